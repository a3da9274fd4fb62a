//! Storage Bench's kind of test, and torture and recovery, on models in virtual time.

mod common;

use bimetal_lab::classic::disktester::{Nobody, Tester};
use bimetal_lab::classic::storage_bench::{
    BenchError, Figures, IDLE_AT_MOST_NS, Measured, Plan, State, extra, measure, text,
};
use bimetal_lab::classic::torture_recovery::{Found, TorturePlan, layout, torture_recovery};
use bimetal_lab::record::Run;
use bimetal_lab::report::{Named, html_with};
use bimetal_lab::synth::{Profile, Synth};
use bimetal_lab::target::Simulated;
use bimetal_models::constant::{Constant, ConstantParams};
use bimetal_models::{Model, spec};
use bimetal_sim::scenario::{Survey, TraceSpec};
use bimetal_trace::{OwnWriter, RecordWriter as _};
use common::session;
use std::path::Path;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// How long random writes go on: they fill two thirds of a drive of 4 GiB by then.
const TORTURE_SECONDS: u64 = 80;
const CAPPED: Plan = Plan { state: State::Empty, idle_at_most_ns: Some(IDLE_AT_MOST_NS) };

/// The heavy workload, one in 500 operations, on a model.
fn tried(device: Box<dyn Model>, plan: Plan, goes_on: bool) -> Result<Measured, BenchError> {
    let profile = Profile::named("heavy").expect("it is there").scaled(500).expect("enough is left");
    let file = tempfile::NamedTempFile::new().expect("a file");
    let mut writer = Box::new(OwnWriter::new(file.as_file()).expect("a header"));
    for record in Synth::new(&profile, 1).expect("a trace") {
        writer.record(&record).expect("it is written");
    }
    writer.finish().expect("it is whole");
    let spec = TraceSpec::new(vec![file.path().to_string_lossy().into_owned()]);
    let survey = Survey::read(&spec, Path::new("")).expect("it can be read");
    let mut target = Simulated::device(device);
    let bytes = target.size_bytes();
    measure(&mut target, session("a model", "target"), &survey, plan, bytes, &mut |_, _| goes_on)
}

fn measured(device: Box<dyn Model>, plan: Plan) -> Measured {
    tried(device, plan, true).expect("it is measured")
}

fn constant(latency_ns: u64, size_bytes: u64) -> Box<dyn Model> {
    Box::new(Constant::new(ConstantParams { size_bytes, latency_ns, ns_per_kib: 0, units: 64 }))
}

fn ssd(size_bytes: u64) -> Box<dyn Model> {
    spec::named("ssd-128gb-2012").expect("it is there").resized(size_bytes).build(1).expect("it is sound")
}

#[test]
fn figures_of_a_device_whose_times_are_known() {
    for (latency_us, above_10_ms, above_100_ms) in
        [(1_000, 0.0, 0.0), (20_000, 1.0, 0.0), (200_000, 1.0, 1.0)]
    {
        let Measured { figures, fidelity, run } = measured(constant(latency_us * 1000, GIB), CAPPED);
        assert_eq!((figures.read.ios, figures.write.ios), (2_168_893 / 500, 1_783_447 / 500));
        assert_eq!((fidelity.records, fidelity.left_out), (figures.all.ios, 0));
        for side in [&figures.all, &figures.read, &figures.write] {
            assert_eq!(side.mean_us, Some(latency_us as f64));
            assert_eq!((side.above_10_ms, side.above_100_ms), (above_10_ms, above_100_ms));
            assert!((side.mb_per_s - side.bytes as f64 / 1e6 / side.busy_seconds).abs() < 1e-6);
        }
        // All of a burst is in flight at once, so the device is busy for a latency with each; 59 % of operations begin one.
        let bursts = (figures.all.ios as f64 * 0.59).round();
        assert!((figures.all.busy_seconds - bursts * latency_us as f64 / 1e6).abs() < 1e-6, "{figures:?}");
        let idle = run.jobs[0].depths_ns.iter().find(|depth| depth.0 == 0).map_or(0, |depth| depth.1);
        assert!((figures.seconds - figures.all.busy_seconds - idle as f64 / 1e9).abs() < 1e-6);
        // Both may be in flight at once, but nothing else is.
        assert!(figures.read.busy_seconds + figures.write.busy_seconds >= figures.all.busy_seconds);
        assert!(figures.read.busy_seconds.max(figures.write.busy_seconds) <= figures.all.busy_seconds);
    }
}

#[test]
fn idle_time_is_kept_or_cut_short_and_counts_for_nothing() {
    let capped = measured(constant(1_000_000, GIB), CAPPED).figures;
    let kept = measured(constant(1_000_000, GIB), Plan { idle_at_most_ns: None, ..CAPPED }).figures;
    assert_eq!((&capped.all, &capped.read), (&kept.all, &kept.read));
    assert!(kept.seconds > capped.seconds * 1.2, "{} s and {} s", kept.seconds, capped.seconds);
}

#[test]
fn a_full_ssd_is_slower_than_an_empty_one() {
    // Somewhat more than the trace touches: it is written four times over.
    let device = || ssd(64 * MIB);
    let empty = measured(device(), CAPPED).figures;
    let full = measured(device(), Plan { state: State::Full, ..CAPPED }).figures;
    assert!(full.all.busy_seconds > empty.all.busy_seconds, "{full:?}\n{empty:?}");
    assert_eq!(measured(device(), CAPPED).figures, empty, "the same seed is the same run");
}

#[test]
fn what_does_not_fit_is_refused_and_what_is_ended_measures_nothing() {
    let small = tried(constant(1000, 16 * MIB), CAPPED, true).expect_err("it has too little room");
    assert!(matches!(small, BenchError::Room { .. }) && small.to_string().contains("--scale"), "{small}");
    let ended = tried(constant(1_000_000, 1 << 40), Plan { state: State::Full, ..CAPPED }, false);
    assert!(matches!(ended, Err(BenchError::Stopped)), "{ended:?}");
}

#[test]
fn tables_and_bars_have_each_target() {
    let all: Vec<Figures> = [("slow", 20_000_000), ("fast", 1_000_000)]
        .map(|(name, ns)| Figures { name: name.to_owned(), ..measured(constant(ns, GIB), CAPPED).figures })
        .into();
    let text = text(&all);
    assert_eq!((text.matches("\nslow ").count(), text.matches("\nfast ").count()), (3, 3), "{text}");
    let extra = extra("heavy", &all);
    let rates = &extra.bars[0].bars;
    assert_eq!((rates[0].label.as_str(), rates[1].label.as_str()), ("fast", "slow"), "the best comes first");
    let run = measured(constant(1_000_000, GIB), CAPPED).run;
    let page = html_with(&[Named { name: "heavy".to_owned(), run }], &extra);
    assert_eq!(page.matches("<rect width=").count(), 2 * extra.bars.len());
    assert!(page.contains("<rect width=\"100.00%\""));
}

fn tortured(device: Box<dyn Model>, seconds: u64) -> (Found, Run) {
    let mut target = Simulated::device(device);
    let layout = layout(target.size_bytes()).expect("it has room for the parts");
    let mut nobody = Nobody;
    let mut tester = Tester::new(&mut target, "a model", layout, &mut nobody);
    let plan = TorturePlan { torture: Duration::from_secs(seconds), seed: 1 };
    let found = torture_recovery(&mut tester, plan).expect("it is run");
    (found, tester.finish(session("torture", "target")))
}

/// An SSD of flash falls under random writes, comes back as it is written in order, and at once with TRIM.
///
/// A fresh one takes its first 94 MB faster than the rest: the drive is so large that these are in the first parts alone.
#[test]
fn an_ssd_falls_and_comes_back() {
    let drive = || ssd(4 * GIB);
    let (found, run) = tortured(drive(), TORTURE_SECONDS);
    let verdict = found.verdict.as_ref().expect("all was done");
    assert!(verdict.slowed && verdict.share_after_torture < 0.5, "{verdict:?}");
    assert!(found.torture_mb_per_s[1] < 0.5 * found.torture_mb_per_s[0], "{:?}", found.torture_mb_per_s);
    let by_writing = verdict.by_writing.expect("writing in order brings it back");
    assert!(by_writing.after_bytes > 0 && by_writing.after_seconds > 0.0);
    assert_eq!(verdict.by_trim.expect("TRIM brings it back").after_bytes, 0);
    // The passes in order, the torture, and giving back twice.
    assert_eq!(run.jobs.len(), 4 + 1 + 2);
    let page = html_with(
        &[Named { name: "torture".to_owned(), run: run.clone() }],
        &bimetal_lab::classic::torture_recovery::extra(&found, &run),
    );
    assert!(page.contains("torture-time") && page.contains(&verdict.sentences[0]));
    // The record of a run has the wall clock beside what was measured.
    let (again, rerun) = tortured(drive(), TORTURE_SECONDS);
    assert_eq!((again, rerun.jobs), (found, run.jobs), "the same seed is the same run");
}

#[test]
fn a_device_without_memory_is_not_slowed() {
    let (found, _) = tortured(constant(1_000_000, GIB), 5);
    let verdict = found.verdict.expect("all was done");
    assert!(!verdict.slowed && verdict.share_after_torture > 0.99, "{verdict:?}");
    assert_eq!(verdict.by_trim.map(|back| back.after_bytes), Some(0));
}
