use super::*;
use bimetal_trace::{Marks, Op, OwnWriter, Record, RecordWriter as _};
use bimetal_units::Nanos;
use bimetal_units::rng::Rng;
use std::path::Path;

const MIB: u64 = 1 << 20;

/// A trace of so many regions with its own hot ones, in bursts.
fn made(dir: &Path, regions: u64, requests: u64, timed: bool) -> PathBuf {
    let path = dir.join("made.trace");
    let mut writer =
        OwnWriter::new(BufWriter::new(std::fs::File::create(&path).expect("a file"))).expect("begins");
    let mut rng = Rng::new(7, 0);
    let mut now = 0;
    for number in 0..requests {
        if number % 8 == 0 {
            now += rng.below(800_000_000);
        }
        // A third of the regions gets nine in ten requests.
        let region = if rng.below(10) < 9 { 3 * rng.below(regions / 3) } else { rng.below(regions) };
        let record = Record {
            time: timed.then_some(Nanos(now)),
            op: if rng.below(10) < 7 { Op::Read } else { Op::Write },
            offset: region * MIB + rng.below(256) * 4096,
            bytes: 4096,
            device: 0,
            response: None,
            marks: Marks::default(),
        };
        writer.record(&record).expect("is written");
    }
    Box::new(writer).finish().expect("ends");
    path
}

fn spec(path: PathBuf, share: Option<f64>) -> PlanSpec {
    PlanSpec {
        source: "made".into(),
        files: vec![path],
        fast_bytes: Some(256 * MIB),
        fast_models: vec!["ssd-128gb-2012".into()],
        slow_models: vec!["disk-1tb-2012".into()],
        share,
        sampled: None,
        measured: None,
    }
}

fn run(spec: &PlanSpec) -> PlanDoc {
    plan(spec, NonZeroUsize::MIN, &mut |_| {}).expect("a plan")
}

/// The sample answers as the whole does: hit shares within three points; responses, which are no more than estimates, within
/// three fifths.
#[test]
fn a_sample_answers_as_the_whole_does() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = made(dir.path(), 1200, 12_000, true);
    let (whole, sample) = (run(&spec(path.clone(), Some(1.0))), run(&spec(path, Some(0.5))));
    assert!(whole.sampled_share == 1.0 && (0.4..0.6).contains(&sample.sampled_share));
    assert_eq!((whole.requests, sample.requests, whole.rows.len()), (12_000, 12_000, 5));
    for (one, other) in whole.rows.iter().zip(&sample.rows) {
        let (bytes, times) = (one.fast_bytes, other.mean_us / one.mean_us);
        assert!(
            (one.fast_share - other.fast_share).abs() < 0.03,
            "{bytes}: {} {}",
            one.fast_share,
            other.fast_share
        );
        assert!((0.625..1.6).contains(&times), "{bytes}: {} {}", one.mean_us, other.mean_us);
        let (of_one, of_other) = (one.lru_share.expect("touches"), other.lru_share.expect("touches"));
        assert!((of_one - of_other).abs() < 0.05, "{bytes}: {of_one} {of_other}");
        let wear = other.wear_bytes_per_day.expect("times") / one.wear_bytes_per_day.expect("times");
        assert!((0.7..1.4).contains(&wear), "{bytes}: {wear}");
        assert!(one.keeps_up && one.wakeups_per_day.is_some() && other.wakeups_per_day.is_none());
    }
    let (least, most) = (&whole.rows[0], &whole.rows[4]);
    assert!(most.fast_share > least.fast_share && most.mean_us < least.mean_us);
}

#[test]
fn further_devices_are_run_at_the_size_that_is_asked_about() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = made(dir.path(), 300, 500, false);
    let mut spec = spec(path, None);
    spec.fast_models.push("nvme-present".into());
    spec.slow_models.push("disk-20tb".into());
    let found = run(&spec);
    assert_eq!((found.sampled_share, found.seconds), (1.0, None), "it is too small to be sampled");
    let sizes: Vec<u64> = found.rows.iter().map(|row| row.fast_bytes / MIB).collect();
    assert_eq!(sizes, [64, 128, 256, 512, 1024, 256, 256, 256]);
    assert!(found.rows.iter().all(|row| row.wear_bytes_per_day.is_none() && row.keeps_up));
    spec.fast_models = vec!["ssd-of-tomorrow".into()];
    let error = plan(&spec, NonZeroUsize::MIN, &mut |_| {}).expect_err("no such model");
    assert!(error.to_string().contains("ssd-of-tomorrow"), "{error}");
}

/// What lies across chosen regions is cut to them, however long it is.
#[test]
fn ranges_are_cut_to_what_was_chosen() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("long.trace");
    let mut writer = OwnWriter::new(std::fs::File::create(&path).expect("a file")).expect("begins");
    let record = |op, offset, bytes| Record {
        time: Some(Nanos(offset)),
        op,
        offset,
        bytes,
        device: 0,
        response: None,
        marks: Marks::default(),
    };
    for region in 0..64 {
        writer.record(&record(Op::Write, region * MIB, MIB)).expect("is written");
    }
    writer.record(&record(Op::Discard, 512, 1 << 62)).expect("is written");
    Box::new(writer).finish().expect("ends");
    let regions = Regions::read(vec![path]).expect("reads");
    let choice = regions.choose(0.5);
    let out = dir.path().join("sample.trace");
    let arrivals = regions.write(&choice, std::fs::File::create(&out).expect("a file")).expect("is written");
    let records: Vec<Record> =
        Trace::open(&[out]).expect("opens").map(|found| found.expect("sound")).collect();
    let of =
        |op: Op| records.iter().filter(move |record| record.op == op).map(|record| record.bytes).sum::<u64>();
    let chosen = (choice.space_share * 64.0).round() as u64;
    assert!((16..48).contains(&chosen) && of(Op::Write) == chosen * MIB);
    assert!(of(Op::Discard) <= chosen * MIB && of(Op::Discard) >= chosen * MIB - 512);
    let seen: u32 = arrivals.iter().map(|arrivals| arrivals.seen).sum();
    let others: u32 = arrivals.iter().map(|arrivals| arrivals.others).sum();
    assert_eq!((u64::from(seen), u64::from(seen + others)), (chosen, 64));
}
