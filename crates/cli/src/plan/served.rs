//! What a server has noted of the requests to its volume, as a trace that is planned with.

use crate::record::traced;
use crate::volume::{self, Volume};
use anyhow::{Context as _, bail, ensure};
use bimetal_serve::plan_tape::Taped;
use bimetal_serve::{TapeDoc, live_tape};
use bimetal_sim::plan::{Arrivals, Measured, PlanSpec, Sampled};
use bimetal_trace::{OwnWriter, Record, RecordWriter as _};
use bimetal_units::Nanos;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::TempPath;

/// What is chosen here and there is the same.
const _: () = assert!(bimetal_serve::plan_tape::REGION_BYTES == bimetal_sim::plan::REGION_BYTES);

/// The fast tier that is asked about at least, unless somebody says otherwise: a quarter of it is the smallest that is run.
const LEAST_FAST_BYTES: u64 = 256 << 20;

/// The volume that is meant, if one is and no trace: by its volume file, or by a name that is no file's.
pub(super) fn volume(files: &[PathBuf]) -> anyhow::Result<Option<Volume>> {
    let [Some(text)] = files.iter().map(|file| file.to_str()).collect::<Vec<_>>()[..] else {
        return Ok(None);
    };
    let is_file = text.ends_with(".toml");
    if !is_file && (text.contains('/') || Path::new(text).exists()) {
        return Ok(None);
    }
    match volume::locate(text) {
        Ok(file) if is_file || file.exists() => Volume::load(&file).map(Some),
        _ => Ok(None),
    }
}

/// What to plan with, and the file that it is in.
pub(super) fn spec(volume: &Volume, fast_bytes: Option<u64>) -> anyhow::Result<(PlanSpec, TempPath)> {
    let control = volume.socket("control")?;
    let name = volume.file.display();
    let silent = || format!("the server of {name} does not answer on {}", control.display());
    let (doc, taped) = match live_tape(&control).with_context(silent)? {
        Some(Ok(told)) => told,
        Some(Err(why)) => bail!(why),
        None => {
            bail!("{name}: nobody serves it, so nobody knows what it is asked for; plan with a trace of it")
        }
    };
    ensure!(
        taped.iter().any(|entry| entry.bytes > 0),
        "{}: nobody has asked for anything since its server began; use it for a while",
        doc.volume
    );
    let cannot = "cannot write what was noted to a temporary file";
    let file = tempfile::NamedTempFile::new().context(cannot)?;
    let sampled = write(&doc, &taped, BufWriter::new(file.as_file())).context(cannot)?;
    let path = file.into_temp_path();
    let measured = Measured {
        answered: doc.answered,
        mean_us: doc.response_us as f64 / doc.answered.max(1) as f64,
        fast_bytes: doc.fast_bytes,
    };
    let spec = PlanSpec {
        source: doc.volume,
        files: vec![path.to_path_buf()],
        fast_bytes: fast_bytes.or(Some(doc.fast_bytes.max(LEAST_FAST_BYTES))),
        fast_models: Vec::new(),
        slow_models: Vec::new(),
        share: None,
        sampled: Some(sampled),
        measured: Some(measured),
    };
    Ok((spec, path))
}

/// Writes a tape as a trace, and says what is to be known beside it.
fn write(doc: &TapeDoc, taped: &[Taped], out: impl Write) -> io::Result<Sampled> {
    let first = taped.first().map_or(Nanos(doc.until_unix_ns), |entry| entry.at);
    let mut writer = Box::new(OwnWriter::new(out)?);
    let mut sampled = Sampled {
        space_share: doc.share,
        seen: 0,
        others: doc.others_after.into(),
        arrivals: Vec::new(),
        lasts_ns: Nanos(doc.until_unix_ns).since(first),
    };
    // What one request asked of neighbouring regions is one request again.
    let mut waiting: Option<Record> = None;
    for entry in taped {
        let at_ns = entry.at.since(first);
        let seen = u32::from(entry.bytes > 0);
        sampled.seen += u64::from(seen);
        sampled.others += u64::from(entry.others);
        match sampled.arrivals.last_mut().filter(|last| last.at_ns == at_ns) {
            Some(last) => {
                last.seen += seen;
                last.others = last.others.saturating_add(entry.others);
            }
            None => sampled.arrivals.push(Arrivals { at_ns, seen, others: entry.others }),
        }
        let Some(kind) = entry.kind else { continue };
        let (op, marks) = traced(kind);
        let (time, offset, bytes) = (Some(Nanos(at_ns)), entry.offset, entry.bytes.into());
        let record = Record { time, op, offset, bytes, device: 0, response: None, marks };
        match &mut waiting {
            Some(last) if continues(last, &record) => last.bytes += record.bytes,
            waiting => {
                waiting.replace(record).map_or(Ok(()), |record| writer.record(&record))?;
            }
        }
    }
    waiting.map_or(Ok(()), |record| writer.record(&record))?;
    writer.finish()?;
    Ok(sampled)
}

fn continues(last: &Record, next: &Record) -> bool {
    let same = (last.time, last.op, last.marks) == (next.time, next.op, next.marks);
    same && next.bytes > 0 && last.bytes > 0 && last.offset + last.bytes == next.offset
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_engine::action::RequestKind;
    use bimetal_serve::plan_tape::{ENTRY_BYTES, PlanTape};
    use bimetal_sim::plan::{PlanDoc, plan};
    use bimetal_units::rng::Rng;
    use std::num::NonZeroUsize;

    const MIB: u64 = 1 << 20;
    const REGIONS: u64 = 10_000;
    const REQUESTS: u64 = 40_000;
    const FAST_BYTES: u64 = 2 << 30;

    /// A day of load in bursts, in which a third of the regions gets nine in ten requests: when, what, and where.
    fn load(mut each: impl FnMut(Nanos, RequestKind, u64, u64)) -> Nanos {
        let (mut rng, mut now) = (Rng::new(7, 0), Nanos(1 << 60));
        for number in 0..REQUESTS {
            if number % 8 == 0 {
                now.0 += rng.below(1200) * Nanos::MS;
            }
            let region = if rng.below(10) < 9 { 3 * rng.below(REGIONS / 3) } else { rng.below(REGIONS) };
            let offset = region * MIB + rng.below(256) * 4096;
            let kind = if rng.below(10) < 7 { RequestKind::Read } else { RequestKind::Write { fua: false } };
            each(now, kind, offset, 4096 << rng.below(4));
            if number % 100 == 0 {
                each(now, RequestKind::Flush, 0, 0);
            }
        }
        now
    }

    fn planned(spec: &PlanSpec) -> PlanDoc {
        let models = |name: &str| vec![name.to_owned()];
        let (fast_models, slow_models) = (models("ssd-480gb-2012-pcie"), models("disk-20tb"));
        let spec = PlanSpec { fast_models, slow_models, ..spec.clone() };
        plan(&spec, NonZeroUsize::MIN, &mut |_| {}).expect("a plan")
    }

    fn spec_of(path: &Path, sampled: Option<Sampled>) -> PlanSpec {
        PlanSpec {
            source: "made".into(),
            files: vec![path.to_path_buf()],
            fast_bytes: Some(FAST_BYTES),
            fast_models: Vec::new(),
            slow_models: Vec::new(),
            share: if sampled.is_none() { Some(1.0) } else { None },
            sampled,
            measured: None,
        }
    }

    /// What a tape of so many bytes has of the load, as it comes from a server.
    fn taped(memory_bytes: u64) -> (TapeDoc, Vec<Taped>) {
        let mut tape = PlanTape::new(memory_bytes, FAST_BYTES).expect("a tape");
        let until = load(|now, kind, offset, bytes| tape.note(now, kind, offset, bytes));
        let mut shot = tape.shot(until);
        let (facts, mut bytes) = (shot.finish(), Vec::new());
        shot.write(&mut bytes).expect("memory takes it");
        let (entries, _) = bytes.as_chunks::<ENTRY_BYTES>();
        let entries = entries.iter().map(|entry| Taped::decode(entry).expect("an entry")).collect();
        let doc = TapeDoc {
            volume: "made".into(),
            fast_bytes: FAST_BYTES,
            entries: facts.entries,
            share: facts.share,
            others_after: facts.others_after,
            until_unix_ns: facts.until.0,
            answered: facts.answered.count,
            response_us: facts.answered.took_ns / 1000,
        };
        (doc, entries)
    }

    /// A tape that had no room for more than half of the regions plans about what all of the load does: hit shares within
    /// three points; responses, which are no more than estimates, within three fifths. Where it is known what requests take
    /// with the fast tier that there is, they are within a tenth with half of it, and within a fifth with more or less.
    #[test]
    fn a_tape_plans_about_what_the_whole_load_does() {
        let dir = tempfile::tempdir().expect("a folder");
        let (all, some) = (dir.path().join("all.trace"), dir.path().join("some.trace"));
        let mut writer =
            Box::new(OwnWriter::new(std::fs::File::create(&all).expect("a file")).expect("begins"));
        let mut first = None;
        load(|now, kind, offset, bytes| {
            let time = Some(Nanos(now.since(*first.get_or_insert(now))));
            let (op, marks) = traced(kind);
            let record = Record { time, op, offset, bytes, device: 0, response: None, marks };
            writer.record(&record).expect("is written");
        });
        writer.finish().expect("ends");
        let whole = planned(&spec_of(&all, None));
        let (doc, entries) = taped(512 << 10);
        assert!(doc.share == 0.5, "{doc:?}");
        let file = std::fs::File::create(&some).expect("a file");
        let sampled = write(&doc, &entries, BufWriter::new(file)).expect("is written");
        let requests = sampled.seen + sampled.others;
        assert!(requests.abs_diff(REQUESTS) < REQUESTS / 50, "{requests}");
        let of_some = spec_of(&some, Some(sampled));
        let found = planned(&of_some);
        let of_all = |of: &PlanDoc| of.touched_bytes as f64 / whole.touched_bytes as f64;
        assert!((0.95..1.05).contains(&of_all(&found)), "{}", of_all(&found));
        let seconds = |of: &PlanDoc| of.seconds.expect("times");
        assert!((seconds(&found) - seconds(&whole)).abs() < 10.0);
        for (one, other) in whole.rows.iter().zip(&found.rows) {
            let bytes = one.fast_bytes;
            println!(
                "{}: hits {:.4} {:.4}, mean {:.0} {:.0}, 99 % {:.0} {:.0}, worn {:?} {:?}",
                bimetal_models::size::show(bytes),
                one.fast_share,
                other.fast_share,
                one.mean_us,
                other.mean_us,
                one.p99_us,
                other.p99_us,
                one.wear_bytes_per_day,
                other.wear_bytes_per_day
            );
        }
        for (one, other) in whole.rows.iter().zip(&found.rows) {
            let (bytes, times) = (one.fast_bytes, other.mean_us / one.mean_us);
            let off = (one.fast_share - other.fast_share).abs();
            assert!(off < 0.03, "{bytes}: {} {}", one.fast_share, other.fast_share);
            assert!((0.625..1.6).contains(&times), "{bytes}: {} {}", one.mean_us, other.mean_us);
            let wear = other.wear_bytes_per_day.expect("times") / one.wear_bytes_per_day.expect("times");
            assert!((0.7..1.4).contains(&wear), "{bytes}: {wear}");
        }
        let measured = Measured {
            answered: requests,
            mean_us: whole.rows[2].mean_us,
            fast_bytes: whole.rows[2].fast_bytes,
        };
        let scaled = planned(&PlanSpec { measured: Some(measured), ..of_some });
        assert!(!found.calibrated && found.measured.is_none() && scaled.calibrated);
        let factor = scaled.measured.expect("it was measured").factor.expect("it is scaled");
        println!("scaled by {factor:.3}");
        for ((one, plain), other) in whole.rows.iter().zip(&found.rows).zip(&scaled.rows) {
            let (bytes, times) = (one.fast_bytes, other.mean_us / one.mean_us);
            println!("{}: {times:.3}", bimetal_models::size::show(bytes));
            assert_eq!(other.p99_us, plain.p99_us);
            let off = if bytes <= FAST_BYTES { 0.1 } else { 0.2 };
            assert!((times - 1.0).abs() < off, "{bytes}: {times}");
        }
    }

    /// While all of it has room, it is the same load to the request.
    #[test]
    fn a_tape_with_room_has_all_of_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let (doc, entries) = taped(16 << 20);
        assert_eq!((doc.share, doc.others_after), (1.0, 0));
        let path = dir.path().join("all.trace");
        write(&doc, &entries, std::fs::File::create(&path).expect("a file")).expect("is written");
        let mut read = bimetal_trace::Trace::open(&[&path]).expect("a trace").flatten();
        let (mut first, mut unflushed) = (None, false);
        load(|now, kind, offset, bytes| {
            let time = Some(Nanos(now.since(*first.get_or_insert(now))));
            if kind == RequestKind::Flush && !std::mem::take(&mut unflushed) {
                return;
            }
            unflushed |= matches!(kind, RequestKind::Write { .. });
            let (op, marks) = traced(kind);
            let expected = Record { time, op, offset, bytes, device: 0, response: None, marks };
            assert_eq!(read.next(), Some(expected));
        });
        assert!(read.next().is_none());
    }
}
