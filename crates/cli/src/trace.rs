//! `bimetal trace`

use crate::args::{TraceConvertArgs, TraceFormat, TraceStatArgs};
use crate::progress::Progress;
use crate::{Outcome, complain, say, say_json, size, volume};
use anyhow::{Context as _, bail};
use bimetal_trace::{
    Iolog3Writer, Malformed, OwnWriter, ParquetWriter, Percentiles, RecordWriter, Stat, Summary, Trace,
};
use std::fs::{File, FileType};
use std::io::{BufWriter, IsTerminal as _, Read};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Progress is looked at after so many records.
const BETWEEN: u64 = 1 << 16;

pub(crate) fn stat(args: &TraceStatArgs) -> anyhow::Result<Outcome> {
    let mut trace = Trace::open(&args.files)?;
    let mut progress = Progress::new("reading".to_owned(), args.json);
    let mut stat = Stat::default();
    let mut seen = 0u64;
    while let Some(found) = trace.next() {
        stat.add(&found);
        seen += 1;
        if seen.is_multiple_of(BETWEEN) {
            progress.bytes(trace.bytes_read());
        }
    }
    drop(progress);
    let summary = stat.summary(&trace);
    must_hold(summary.records, &summary.malformed, &args.files[0])?;
    if args.json {
        say_json(&summary)?;
    } else {
        describe(&summary);
    }
    Ok(outcome(&summary.malformed))
}

pub(crate) fn convert(args: &TraceConvertArgs) -> anyhow::Result<Outcome> {
    let out = &args.output;
    let cannot = || format!("cannot write {}", out.display());
    let convert = |buffer: BufWriter<File>| {
        let mut trace = Trace::open(&args.files)?;
        let mut writer: Box<dyn RecordWriter> = match args.to {
            TraceFormat::Iolog3 => Box::new(Iolog3Writer::new(buffer).with_context(cannot)?),
            TraceFormat::Bimetal => Box::new(OwnWriter::new(buffer).with_context(cannot)?),
            TraceFormat::Parquet => Box::new(ParquetWriter::new(buffer).with_context(cannot)?),
        };
        let (records, malformed) = copy(&mut trace, writer.as_mut()).with_context(cannot)?;
        must_hold(records, &malformed, &args.files[0])?;
        writer.finish().with_context(cannot)?;
        Ok((trace, records, malformed))
    };
    let ((trace, records, malformed), bytes) = written(out, args.force, convert)?;
    complain_of(&malformed);
    if trace.unsorted() > 0 {
        complain(&format!(
            "bimetal: {} records stand so far behind later ones that they cannot be put in order; they are written where \
             they stand",
            trace.unsorted()
        ));
    }
    let twins = twins(trace.twins());
    say(&format!("{}: {records} records of {}, {}{twins}", out.display(), trace.format(), size::show(bytes)));
    Ok(outcome(&malformed))
}

/// The files of a trace that is read more than once: what comes only once, as a pipe's contents do, is kept in a file
/// that nobody else sees, for as long.
pub(crate) struct Spooled {
    /// Where they can be read.
    pub(crate) paths: Vec<PathBuf>,
    _kept: Vec<File>,
}

impl Spooled {
    pub(crate) fn new(files: &[PathBuf]) -> anyhow::Result<Spooled> {
        let (mut paths, mut kept) = (Vec::with_capacity(files.len()), Vec::new());
        for file in files {
            let is_input = file.as_os_str() == "-";
            // What is not there is told of where it is read.
            let comes_once = |kind: FileType| !kind.is_file() && !kind.is_dir();
            let comes_once =
                is_input || std::fs::metadata(file).is_ok_and(|found| comes_once(found.file_type()));
            if !comes_once {
                paths.push(file.clone());
                continue;
            }
            let cannot =
                || format!("cannot keep what {} has", if is_input { "standard input" } else { "the pipe" });
            let mut spool = tempfile::tempfile().with_context(cannot)?;
            let mut input: Box<dyn Read> = match is_input {
                true if std::io::stdin().is_terminal() => {
                    bail!("standard input is a terminal; pipe a trace into it, or name a file")
                }
                true => Box::new(std::io::stdin()),
                false => {
                    Box::new(File::open(file).with_context(|| format!("cannot read {}", file.display()))?)
                }
            };
            std::io::copy(&mut input, &mut spool).with_context(cannot)?;
            paths.push(format!("/proc/self/fd/{}", spool.as_raw_fd()).into());
            kept.push(spool);
        }
        Ok(Spooled { paths, _kept: kept })
    }
}

/// Writes a file, which appears under its name only when it is complete; its bytes.
pub(crate) fn written<R>(
    out: &Path,
    force: bool,
    write: impl FnOnce(BufWriter<File>) -> anyhow::Result<R>,
) -> anyhow::Result<(R, u64)> {
    let cannot = || format!("cannot write {}", out.display());
    match std::fs::metadata(out) {
        Ok(found) if !found.is_file() => bail!("{}: not a regular file", out.display()),
        Ok(_) if !force => bail!("{} is there already; --force replaces it", out.display()),
        Ok(_) => volume::spare(out)?,
        Err(_) => {}
    }
    let dir = out.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let readable = std::fs::Permissions::from_mode(0o666);
    let file = tempfile::Builder::new().permissions(readable).tempfile_in(dir).with_context(cannot)?;
    let buffer = BufWriter::with_capacity(1 << 20, file.as_file().try_clone().with_context(cannot)?);
    let came = write(buffer)?;
    file.as_file().sync_all().with_context(cannot)?;
    let bytes = file.as_file().metadata().with_context(cannot)?.len();
    let kept = if force { file.persist(out) } else { file.persist_noclobber(out) };
    kept.map_err(|error| error.error).with_context(cannot)?;
    Ok((came, bytes))
}

/// Writes all that is valid: how much that was, and what was not.
fn copy(trace: &mut Trace, writer: &mut dyn RecordWriter) -> std::io::Result<(u64, Malformed)> {
    let mut progress = Progress::new("converting".to_owned(), false);
    let (mut records, mut malformed) = (0u64, Malformed::default());
    while let Some(found) = trace.next() {
        match found {
            Ok(record) => {
                writer.record(&record)?;
                records += 1;
            }
            Err(error) => malformed.add(&error),
        }
        if (records + malformed.count).is_multiple_of(BETWEEN) {
            progress.bytes(trace.bytes_read());
        }
    }
    writer.lost(trace.lost());
    Ok((records, malformed))
}

/// A trace in which nothing makes sense is none.
fn must_hold(records: u64, malformed: &Malformed, file: &Path) -> anyhow::Result<()> {
    match malformed.first.first() {
        _ if records > 0 => Ok(()),
        Some(first) => bail!("{}: no valid record; {first}", file.display()),
        None => bail!("{}: no request in it", file.display()),
    }
}

fn outcome(malformed: &Malformed) -> Outcome {
    match malformed.unread_files {
        0 => Outcome::Good,
        1 => Outcome::Problem("a file could not be read to its end; what came before counts".to_owned()),
        files => Outcome::Problem(format!(
            "{files} files could not be read to their ends; what came before counts"
        )),
    }
}

fn complain_of(malformed: &Malformed) {
    for one in &malformed.first {
        complain(&format!("bimetal: {one}"));
    }
    let named = malformed.first.len() as u64;
    if malformed.count > named {
        complain(&format!("bimetal: {} more malformed lines", malformed.count - named));
    }
}

fn twins(count: u64) -> String {
    if count == 0 { String::new() } else { format!(", {count} logged again on a device below left out") }
}

fn describe(summary: &Summary) {
    complain_of(&summary.malformed);
    let row = |what: &str, value: String| say(&format!("{what:<18} {value}"));
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    row("format", summary.format.to_string());
    let malformed = match summary.malformed.count {
        0 => String::new(),
        count => format!(", {count} malformed"),
    };
    let lost = match summary.lost {
        0 => String::new(),
        count => format!(", {count} lost when it was recorded"),
    };
    row("records", format!("{}{}{malformed}{lost}", summary.records, twins(summary.twins)));
    for (what, count, share, bytes, footprint) in [
        ("reads", summary.reads, summary.read_share, summary.read_bytes, summary.read_footprint_bytes),
        (
            "writes",
            summary.writes,
            summary.write_share,
            summary.written_bytes,
            summary.written_footprint_bytes,
        ),
    ] {
        let (bytes, footprint) = (size::show(bytes), size::show(footprint));
        row(what, format!("{count} ({}), {bytes} in {footprint}", percent(share)));
    }
    row("flushes, discards", format!("{}, {}", summary.flushes, summary.discards));
    if summary.fua_writes + summary.zero_writes > 0 {
        row("of the writes", format!("{} FUA, {} of zeros", summary.fua_writes, summary.zero_writes));
    }
    let about = if summary.footprint_exact { "" } else { "about " };
    let (footprint, end) = (size::show(summary.footprint_bytes), size::show(summary.end_bytes));
    row("footprint", format!("{about}{footprint} of {end} on {} devices", summary.devices));
    row("sequential", percent(summary.sequential_share));
    row("aligned to 4 KiB", percent(summary.aligned_share));
    describe_times(summary);
    describe_reuse(summary);
    say("up to               reads      writes");
    for class in &summary.sizes {
        say(&format!("{:>9} {:>15} {:>11}", size::show(class.up_to_bytes), class.reads, class.writes));
    }
}

fn describe_times(summary: &Summary) {
    let row = |what: &str, value: String| say(&format!("{what:<18} {value}"));
    let Some(seconds) = summary.duration_seconds else {
        row("duration", "the trace has no times".to_owned());
        return;
    };
    let rate = summary.requests_per_second.map_or(String::new(), |rate| format!(", {rate:.1} requests/s"));
    let busiest = summary.busiest_second_requests.unwrap_or_default();
    row("duration", format!("{seconds:.3} s{rate}, {busiest} in the busiest second"));
    if summary.out_of_order > 0 {
        let sorted = summary.out_of_order - summary.unsorted;
        row("out of order", format!("{}, {sorted} of them put where they belong", summary.out_of_order));
    }
    for (what, times) in [("between requests", &summary.inter_arrival), ("response", &summary.response)] {
        if let Some(Percentiles { mean_us, p50_us, p90_us, p99_us, max_us }) = times {
            let tail = format!("90 % {p90_us:.1}, 99 % {p99_us:.1}, most {max_us:.1}");
            row(what, format!("mean {mean_us:.1} us, median {p50_us:.1}, {tail}"));
        }
    }
}

/// What is in flight, what is used again, and how much is used at a time.
fn describe_reuse(summary: &Summary) {
    let row = |what: &str, value: String| say(&format!("{what:<18} {value}"));
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    if let Some(depth) = &summary.queue_depth {
        let found = format!(
            "mean {:.2}, median {}, 90 % {}, 99 % {}, most {}",
            depth.found_mean, depth.p50, depth.p90, depth.p99, depth.max
        );
        row("queue depth", format!("mean {:.2} over time; as found by requests {found}", depth.mean));
    }
    if let Some(reuse) = &summary.reuse {
        let held: Vec<String> = [0.01, 0.1, 0.5]
            .into_iter()
            .filter_map(|part| {
                let size = summary.footprint_bytes as f64 * part;
                let caches = reuse.caches.iter().rev();
                let point = caches.clone().find(|point| point.cache_bytes as f64 <= size)?;
                Some(format!("{} by {}", percent(point.hit_share), size::show(point.cache_bytes)))
            })
            .collect();
        let held = if held.is_empty() { String::new() } else { format!("; held {}", held.join(", ")) };
        row("used again", format!("{} of blocks touched{held}", percent(reuse.reused_share)));
    }
    let Some(working) = &summary.working_set else { return };
    let mut sizes: Vec<u64> = working.windows.iter().map(|window| window.working_set_bytes).collect();
    sizes.sort_unstable();
    if let (Some(median), Some(most)) = (sizes.get(sizes.len() / 2), sizes.last()) {
        let each = match (working.window_seconds, working.window_requests) {
            (Some(seconds), _) => format!("{seconds} s"),
            (None, requests) => format!("{} requests", requests.unwrap_or_default()),
        };
        row("working set", format!("median {}, most {} in {each}", size::show(*median), size::show(*most)));
    }
}
