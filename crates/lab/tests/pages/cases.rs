//! A page of each kind that the lab writes.

use super::common::session;
use super::{sample, small_orion};
use bimetal_lab::classic::disktester::{IdleRule, Nobody, Tester};
use bimetal_lab::classic::orion::{self, RunType, Spec};
use bimetal_lab::classic::quick::{self, Quick, QuickPlan, Verdict};
use bimetal_lab::classic::snia::{self, SniaPlan, Test};
use bimetal_lab::classic::storage_bench::{self, Figures};
use bimetal_lab::classic::torture_recovery::{self, TorturePlan, torture_recovery};
use bimetal_lab::record::Run;
use bimetal_lab::report::{Extra, Named, Origin, comparison_html, html, html_with};
use bimetal_lab::session::Session;
use bimetal_lab::target::Simulated;
use bimetal_models::constant::{Constant, ConstantParams};
use std::sync::OnceLock;
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// A page, and what must stand on it.
#[derive(Clone)]
pub struct Case {
    pub name: &'static str,
    pub page: String,
    pub findings: Vec<String>,
}

/// All pages; they are made once.
pub fn all() -> Vec<Case> {
    static ALL: OnceLock<Vec<Case>> = OnceLock::new();
    ALL.get_or_init(make).clone()
}

fn make() -> Vec<Case> {
    let mut cases = vec![runs("run", &[sample::fill_with_cliff(1, 1.0)])];
    cases.push(runs("two runs", &[sample::fill_with_cliff(1, 1.0), sample::fill_with_cliff(2, 1.1)]));
    cases.push(runs("by depth", &[sample::depths(3)]));
    let mut measured = Run { virtual_time: false, ..sample::fill_with_cliff(2, 1.1) };
    measured.environment.targets.values_mut().for_each(|facts| facts.kind = "file".to_owned());
    cases.push(runs("measured and modelled", &[measured, sample::fill_with_cliff(1, 1.0)]));
    cases.push(runs("quick and quick", &[long_quick(1_000_000), long_quick(1_500_000)]));
    cases.extend([one_quick(), compared(), one_snia(), one_orion(), benched(), tortured(), rested()]);
    cases
}

fn named(name: &str, run: Run) -> Named {
    Named { name: name.to_owned(), run }
}

fn runs(name: &'static str, runs: &[Run]) -> Case {
    let prefix = |at: usize| if runs.len() > 1 { format!("run {at}: ") } else { String::new() };
    let of = |(at, run): (usize, &Run)| -> Vec<String> {
        run.notes.iter().map(|note| format!("{}{note}", prefix(at))).collect()
    };
    let findings = runs.iter().enumerate().flat_map(of).collect();
    let shown: Vec<Named> =
        runs.iter().enumerate().map(|(at, run)| named(&format!("run {at}"), run.clone())).collect();
    Case { name, page: html(&shown), findings }
}

fn with(name: &'static str, run: Run, extra: &Extra) -> Case {
    let findings = extra.findings.clone();
    Case { name, page: html_with(&[named(name, run)], extra), findings }
}

fn device(latency_ns: u64, size_bytes: u64) -> Simulated {
    let params = ConstantParams { size_bytes, latency_ns, ns_per_kib: 1000, units: 8 };
    Simulated::device(Box::new(Constant::new(params)))
}

fn quick_run(latency_ns: u64, seed: u64) -> (Quick, Run) {
    quick_for(Duration::from_millis(600), latency_ns, seed)
}

/// As long as the test is unless told otherwise: what is shorter has too few intervals to say how sure it is.
fn long_quick(latency_ns: u64) -> Run {
    quick_for(Duration::from_secs(5), latency_ns, 1).1
}

fn quick_for(each: Duration, latency_ns: u64, seed: u64) -> (Quick, Run) {
    let mut target = device(latency_ns, 64 * MIB);
    let layout = quick::layout(target.size_bytes(), 16 * MIB).expect("it is large enough");
    let plan = QuickPlan { span_bytes: layout.file_bytes, each, reads_only: false, marks: true, seed };
    let mut nobody = Nobody;
    let mut tester = Tester::new(&mut target, "a model", layout, &mut nobody);
    let found = quick::quick(&mut tester, &plan).expect("it is run");
    (found, tester.finish(session("quick", "a model")))
}

/// As if it had been measured: beside models and what others have published.
fn one_quick() -> Case {
    let (found, run) = quick_run(100_000, 1);
    let peer = |name: &str, latency_ns| quick::Peer {
        name: name.to_owned(),
        figures: quick_run(latency_ns, 1).0.figures,
    };
    let peers = [peer("slow", 400_000), peer("quick", 20_000)];
    let verdict = Verdict::new(&found.figures, &peers);
    let mut run = Run { virtual_time: false, ..run };
    run.notes.extend(verdict.sentences.clone());
    with("quick", run, &quick::page("/dev/x", Origin::Measured, &found, &peers, &verdict))
}

fn compared() -> Case {
    let runs = |latency_ns: u64| -> Vec<Run> {
        (0..6).map(|round| quick_run(latency_ns + round * 7 % 11 * 100, round).1).collect()
    };
    let (a, b) = (runs(100_000), runs(130_000));
    let found = quick::compare(&a, &b, ["A", "B"]);
    let page = comparison_html(&found.findings, Some(&found.sentence), ["A", "B"], [&a, &b]);
    Case { name: "compare", page, findings: vec![found.sentence] }
}

fn one_snia() -> Case {
    let mut target = device(100_000, 64 * MIB);
    let layout = snia::layout(target.size_bytes(), None).expect("it is large enough");
    let plan = SniaPlan { test: Test::Iops, span_bytes: layout.file_bytes, scale: 0.001, seed: 1 };
    let mut nobody = Nobody;
    let mut tester = Tester::new(&mut target, "a model", layout, &mut nobody);
    let found = [snia::snia(&mut tester, &plan).expect("it is run")];
    let run = tester.finish(session("snia", "a model"));
    let extra = snia::page(&found, &run);
    assert!(!extra.findings.is_empty());
    with("snia", run, &extra)
}

fn one_orion() -> Case {
    let spec = Spec { seconds: 1, ..small_orion::spec(RunType::Normal) };
    let points = spec.points().expect("a good matrix");
    let session = Session { seed: 7, ..session("orion", "a model") };
    let outcome = orion::run(
        &mut device(1_000_000, 1 << 30),
        &spec,
        &points,
        1 << 30,
        session,
        &mut |_| true,
        &mut |_| (),
    );
    let outcome = outcome.expect("it runs");
    with("orion", outcome.run.clone(), &orion::figures(&spec, &outcome))
}

fn benched() -> Case {
    let run = sample::fill_with_cliff(1, 1.0);
    let of = |name: &str, at: usize, simulated| Figures {
        name: name.to_owned(),
        ..Figures::new(&run.jobs[at], simulated)
    };
    let all = [of("/dev/x", 0, false), of("a model", 1, true)];
    let extra = storage_bench::extra("storage bench", &all);
    with("storage bench", run, &extra)
}

fn tortured() -> Case {
    let mut target = device(1_000_000, 1 << 30);
    let layout = torture_recovery::layout(target.size_bytes()).expect("it has room for the parts");
    let mut nobody = Nobody;
    let mut tester = Tester::new(&mut target, "a model", layout, &mut nobody);
    let plan = TorturePlan { torture: Duration::from_secs(5), seed: 1 };
    let found = torture_recovery(&mut tester, plan).expect("it is run");
    let run = tester.finish(session("torture", "a model"));
    let extra = torture_recovery::extra(&found, &run);
    with("torture and recovery", run, &extra)
}

fn rested() -> Case {
    let mut target = device(1_000_000, 64 * MIB);
    let layout = quick::layout(target.size_bytes(), 16 * MIB).expect("it is large enough");
    let mut nobody = Nobody;
    let mut tester = Tester::new(&mut target, "a model", layout, &mut nobody);
    let rule = IdleRule { quiet_ns: 1_000_000_000, most_ns: 1_000_000_000, untold_ns: 1_000_000_000 };
    let idle = tester.idle(&rule).expect("it rests");
    with("idle", tester.finish(session("idle", "a model")), &idle.page())
}
