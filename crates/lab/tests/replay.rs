//! Traces on targets: timed, closed, in the order of what waited for what, and with the queue that was recorded.

mod common;

use bimetal_lab::record::Run;
use bimetal_lab::replay::{self, Fidelity, ReplayError};
use bimetal_lab::target::Simulated;
use bimetal_models::constant::{Constant, ConstantParams};
use bimetal_sim::scenario::{Map, Mode, ReplaySpec, Survey, TraceSpec};
use bimetal_trace::{Op, OwnWriter, Record, RecordWriter as _};
use bimetal_units::Nanos;
use common::session;
use std::path::Path;

const MS: u64 = 1_000_000;
const SIZE_BYTES: u64 = 1 << 30;

/// Two programs, each of which reads a hundred times, one after the other, 10 ms each and 0.2 ms between; one of them
/// begins 3 ms later. Then something happens that waited for neither.
fn two_programs() -> Vec<Record> {
    let read = |time: u64, place: u64| Record {
        time: Some(Nanos(time)),
        op: Op::Read,
        offset: place * 4096,
        bytes: 4096,
        device: 0,
        response: Some(Nanos(10 * MS)),
        marks: Default::default(),
    };
    let step = 10 * MS + MS / 5;
    let mut records: Vec<Record> =
        (0..100).flat_map(|n| [read(n * step, n), read(n * step + 3 * MS, 10_000 + n)]).collect();
    records.push(read(1500 * MS, 5));
    records
}

fn tried(
    records: &[Record],
    mode: Mode,
    latency_ns: u64,
    change: impl FnOnce(&mut ReplaySpec),
) -> Result<(Run, Fidelity), ReplayError> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let mut writer = Box::new(OwnWriter::new(file.as_file()).expect("a header"));
    records.iter().for_each(|record| writer.record(record).expect("it is written"));
    writer.finish().expect("it is whole");
    let name = file.path().to_string_lossy().into_owned();
    let spec: TraceSpec = toml::from_str(&format!("files = [{name:?}]")).expect("a trace");
    let survey = Survey::read(&spec, Path::new("/")).expect("it can be read");
    let params = ConstantParams { size_bytes: SIZE_BYTES, latency_ns, ns_per_kib: 0, units: 64 };
    let mut target = Simulated::device(Box::new(Constant::new(params)));
    let mut spec = ReplaySpec {
        mode,
        depth: None,
        speed: None,
        idle_at_most_seconds: None,
        map: Map::AsIs,
        from: Default::default(),
    };
    change(&mut spec);
    let session = session("two programs", "target");
    replay::run(&mut target, session, &survey, &spec, SIZE_BYTES, &mut |_| true)
}

fn replayed(
    records: &[Record],
    mode: Mode,
    latency_ns: u64,
    change: impl FnOnce(&mut ReplaySpec),
) -> (Run, Fidelity) {
    tried(records, mode, latency_ns, change).expect("it is replayed")
}

#[test]
fn a_timed_replay_keeps_the_times() {
    let (run, fidelity) = replayed(&two_programs(), Mode::Timed, MS, |_| {});
    assert_eq!((run.jobs[0].read.ios, run.jobs[0].elapsed_ns), (201, 1501 * MS));
    assert_eq!((fidelity.timed, fidelity.late_share, fidelity.left_out), (201, 0.0, 0));
    // 200 reads of 10 ms in 1.5 s, and of 1 ms.
    let recorded = fidelity.recorded_mean_depth.expect("the trace tells");
    assert!((1.3..1.4).contains(&recorded) && (0.13..0.14).contains(&fidelity.mean_depth), "{fidelity:?}");
    // Faster, and without the pause.
    let (run, _) = replayed(&two_programs(), Mode::Timed, MS, |spec| spec.speed = Some(2.0));
    assert_eq!(run.jobs[0].elapsed_ns, 751 * MS);
    let (run, _) = replayed(&two_programs(), Mode::Timed, MS, |spec| spec.idle_at_most_seconds = Some(0.025));
    assert!((1020 * MS..1060 * MS).contains(&run.jobs[0].elapsed_ns), "{}", run.jobs[0].elapsed_ns);
}

#[test]
fn a_slow_target_is_late_when_too_little_may_be_in_flight() {
    let (_, fidelity) = replayed(&two_programs(), Mode::Timed, 20 * MS, |spec| spec.depth = Some(1));
    assert!(fidelity.late_share > 0.9 && fidelity.late_max_us > 1e6, "{fidelity:?}");
}

#[test]
fn a_closed_replay_has_always_as_much_in_flight() {
    let (run, _) = replayed(&two_programs(), Mode::Closed, MS, |spec| spec.depth = Some(3));
    assert_eq!((run.jobs[0].read.ios, run.jobs[0].elapsed_ns), (201, 67 * MS));
}

/// Ten times as fast a device: each program goes on at once, and what waited for nobody keeps its time.
#[test]
fn a_faster_target_is_asked_sooner_by_those_who_waited() {
    let (run, fidelity) = replayed(&two_programs(), Mode::Dependent, MS, |_| {});
    assert_eq!((run.jobs[0].read.ios, run.jobs[0].elapsed_ns), (201, 1501 * MS));
    assert!(fidelity.dependent_share.is_some_and(|share| share > 0.98), "{fidelity:?}");
    // All but the last within 100 times 1.2 ms, and the 3 ms before.
    let busy: u64 = run.jobs[0].intervals.iter().filter(|interval| interval.n == 0).map(|i| i.read.ios).sum();
    let (short, _) = replayed(&two_programs()[..200], Mode::Dependent, MS, |_| {});
    assert_eq!((busy, short.jobs[0].read.ios), (200, 200));
    assert!((110 * MS..125 * MS).contains(&short.jobs[0].elapsed_ns), "{}", short.jobs[0].elapsed_ns);
    // And a slower one later: nothing runs away.
    let (slow, _) = replayed(&two_programs()[..200], Mode::Dependent, 30 * MS, |_| {});
    assert!((3000 * MS..3040 * MS).contains(&slow.jobs[0].elapsed_ns), "{}", slow.jobs[0].elapsed_ns);
}

/// Three reads at once every 20 ms; each takes 5 ms.
fn bursts() -> Vec<Record> {
    let read = |time: u64, place: u64| Record {
        time: Some(Nanos(time)),
        op: Op::Read,
        offset: place * 4096,
        bytes: 4096,
        device: 0,
        response: Some(Nanos(5 * MS)),
        marks: Default::default(),
    };
    (0..30).map(|n| read(n / 3 * 20 * MS, n)).collect()
}

/// Of each burst three are in flight, and the pauses of 15 ms begin when it is over; a slower device has no more.
#[test]
fn a_queued_replay_keeps_the_queue() {
    for (latency, elapsed) in [(MS, 10 + 9 * 15), (5 * MS, 10 * 5 + 9 * 15), (50 * MS, 10 * 50 + 9 * 15)] {
        let (run, fidelity) = replayed(&bursts(), Mode::Queued, latency, |_| {});
        let ran = &run.jobs[0];
        assert_eq!((ran.read.ios, ran.elapsed_ns, fidelity.left_out), (30, elapsed * MS, 0));
        assert_eq!((ran.read.busy_ns, ran.write.busy_ns), (10 * latency, 0));
        // 2 and 3 in flight are one class.
        assert_eq!(ran.depths_ns, [(0, 9 * 15 * MS), (2, 10 * latency)]);
    }
    let (run, _) = replayed(&bursts(), Mode::Queued, MS, |spec| spec.idle_at_most_seconds = Some(0.002));
    assert_eq!(run.jobs[0].elapsed_ns, (10 + 9 * 2) * MS);
    // What has no room at once follows.
    let (run, _) = replayed(&bursts(), Mode::Queued, MS, |spec| spec.depth = Some(1));
    assert_eq!(run.jobs[0].elapsed_ns, (30 + 9 * 15) * MS);
}

/// Two that overlap by a half, again and again: the second of each pair found one, and the first of the next pair none.
#[test]
fn a_queued_replay_begins_what_overlapped_together() {
    let mut records = bursts();
    records.truncate(20);
    for (n, record) in records.iter_mut().enumerate() {
        let n = n as u64;
        record.time = Some(Nanos(n / 2 * 20 * MS + n % 2 * 2 * MS));
    }
    let (run, _) = replayed(&records, Mode::Queued, MS, |_| {});
    // 7 of each 20 ms were busy when it was recorded.
    assert_eq!((run.jobs[0].read.ios, run.jobs[0].elapsed_ns), (20, (10 + 9 * 13) * MS));
}

#[test]
fn what_needs_times_is_refused_without() {
    let records: Vec<Record> =
        two_programs().into_iter().map(|record| Record { response: None, ..record }).collect();
    for mode in [Mode::Dependent, Mode::Queued] {
        let error = tried(&records, mode, MS, |_| {}).expect_err("nothing is known of what waited");
        assert!(error.to_string().contains("how long requests took"), "{error}");
    }
}
