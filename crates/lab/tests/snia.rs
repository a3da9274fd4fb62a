//! SNIA's kind of test, on models in virtual time.

mod common;

use bimetal_lab::classic::disktester::{Nobody, Tester};
use bimetal_lab::classic::snia::{Found, MAX_ROUNDS, SniaPlan, Test, layout, page, snia, text};
use bimetal_lab::record::Run;
use bimetal_lab::report::{Named, html_with};
use bimetal_lab::target::Simulated;
use bimetal_models::constant::{Constant, ConstantParams};
use bimetal_models::{Command, Done, Model, Usage, spec};
use bimetal_units::Nanos;
use common::session;
use std::collections::VecDeque;

const GIB: u64 = 1 << 30;

fn tested(device: Box<dyn Model>, test: Test, scale: f64) -> (Found, Run) {
    let mut target = Simulated::device(device);
    let layout = layout(target.size_bytes(), None).expect("it is large enough");
    let plan = SniaPlan { test, span_bytes: layout.file_bytes, scale, seed: 1 };
    let mut nobody = Nobody;
    let mut tester = Tester::new(&mut target, "a model", layout, &mut nobody);
    let found = snia(&mut tester, &plan).expect("it is run");
    let session = session("a test", "a model");
    (found, tester.finish(session))
}

fn constant() -> Box<dyn Model> {
    let params = ConstantParams { size_bytes: GIB / 16, latency_ns: 100_000, ns_per_kib: 1000, units: 4 };
    Box::new(Constant::new(params))
}

fn ssd(size_bytes: u64) -> Box<dyn Model> {
    let spec = spec::named("ssd-128gb-2012").expect("it is known").resized(size_bytes);
    spec.build(1).expect("it can be built")
}

/// A device that does one command after the other, each a little more slowly the longer it runs: it is never steady.
struct Tiring {
    free_at: u64,
    queue: VecDeque<Done>,
    usage: Usage,
}

impl Model for Tiring {
    fn size_bytes(&self) -> u64 {
        GIB / 64
    }

    fn submit(&mut self, now: Nanos, tag: u64, command: Command) {
        let begins = self.free_at.max(now.0);
        // Twice as slow after each second.
        self.free_at = begins + (10_000.0 * (begins as f64 / 1e9).exp2()) as u64;
        self.queue.push_back(Done::ok(Nanos(self.free_at), tag));
        self.usage.count(command.kind, command.len);
    }

    fn deadline(&self) -> Option<Nanos> {
        self.queue.front().map(|done| done.at)
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Done>) {
        while self.queue.front().is_some_and(|first| first.at <= now) {
            done.extend(self.queue.pop_front());
        }
    }

    fn usage(&self) -> Usage {
        self.usage
    }
}

#[test]
fn a_device_that_never_changes_is_steady_at_once_and_measured_exactly() {
    let (found, run) = tested(constant(), Test::Iops, 0.001);
    let [steady] = found.steady.as_slice() else { panic!("one set of rounds") };
    assert_eq!(steady.steadiness.reached.map(|facts| facts.round), Some(5));
    assert_eq!(steady.loads.len(), 56);
    // Four at a time, 104 us each: what is in flight when a round ends does not count.
    let of = |bytes: u64, read_percent: u32| {
        let load = steady.loads.iter().find(|load| load.bytes == bytes && load.read_percent == read_percent);
        load.expect("it was run").iops.clone()
    };
    let expected = 4.0 / 104e-6;
    assert!(of(4096, 0).iter().all(|iops| (iops / expected - 1.0).abs() < 0.05), "{:?}", of(4096, 0));
    assert!(of(1 << 20, 100)[0] < of(4096, 100)[0]);
    assert!(text(std::slice::from_ref(&found)).contains("this is no result of it"));
    assert_eq!(
        text(std::slice::from_ref(&found)).contains("may be how it begins"),
        steady.written_capacities < 1.0
    );
    // A purge, the preconditioning, and five rounds of 56.
    assert_eq!(run.jobs.len(), 2 + 5 * 56);
    let page = html_with(&[Named { name: "a".to_owned(), run }], &page(std::slice::from_ref(&found)));
    assert!(page.contains("Steady state convergence") && page.contains("Steady state measurement window"));
}

#[test]
fn a_device_that_tires_is_never_called_steady() {
    let tiring = Tiring { free_at: 0, queue: VecDeque::new(), usage: Usage::default() };
    let (found, _) = tested(Box::new(tiring), Test::Latency, 0.001);
    let [steady] = found.steady.as_slice() else { panic!("one set of rounds") };
    assert_eq!(steady.steadiness.rounds, u64::from(MAX_ROUNDS));
    assert!(!steady.steadiness.steady && steady.steadiness.reached.is_none());
    assert!(found.histograms.is_empty(), "there is no state to have a histogram of");
    assert!(text(std::slice::from_ref(&found)).contains("not steady in 25 rounds"));
    assert!(text(std::slice::from_ref(&found)).contains("no figures of the device, but of a moment"));
}

#[test]
fn an_ssd_saturates_and_recovers_from_random_writes() {
    let (found, _) = tested(ssd(GIB), Test::WriteSaturation, 0.01);
    let [stage] = found.stages.as_slice() else { panic!("one stage") };
    let (first, last) = (stage.points.first().expect("points"), stage.points.last().expect("points"));
    assert!(first.iops > 1.5 * last.iops, "{first:?}, {last:?}");
    assert!((4.0..4.5).contains(&last.written_capacities), "{last:?}");

    let (found, _) = tested(ssd(GIB), Test::CrossStimulus, 0.002);
    let speed = |stage: usize, at: fn(&[f64]) -> f64| {
        at(&found.stages[stage].points.iter().map(|point| point.mb_per_s).collect::<Vec<_>>())
    };
    let first = |speeds: &[f64]| speeds[0];
    let last = |speeds: &[f64]| speeds[speeds.len() - 1];
    assert!(speed(2, first) < 0.9 * speed(0, last), "random writes are felt by what follows");
    assert!(speed(2, last) > 0.95 * speed(0, last), "and that ends");
}

#[test]
fn the_same_seed_finds_the_same() {
    let found = || tested(ssd(GIB), Test::Throughput, 0.01).0;
    assert_eq!(found(), found());
    assert_eq!(found().steady.len(), 2);
}

#[test]
fn every_response_of_the_latency_test_is_in_its_histogram() {
    let (found, _) = tested(constant(), Test::Latency, 0.001);
    assert_eq!(
        found.histograms.iter().map(|histogram| histogram.read_percent).collect::<Vec<_>>(),
        [100, 65, 0]
    );
    for histogram in &found.histograms {
        assert_eq!(histogram.bins.iter().map(|bin| bin.1).sum::<u64>(), histogram.ios);
        // One in flight, 104 us each, for 1.2 s.
        assert!((11_000..=11_539).contains(&histogram.ios), "{}", histogram.ios);
        let fullest = histogram.bins.iter().max_by_key(|bin| bin.1).expect("there are bins");
        assert!(fullest.1 == histogram.ios && (104.0..114.0).contains(&fullest.0), "{fullest:?}");
        // Of 11,500 responses the slowest in 10,000 can be told, that in 100,000 cannot.
        let last = histogram.percentiles.last().expect("there are percentiles");
        assert!(last.0 == 99.99 && (last.1 / 104.0 - 1.0).abs() < 0.001, "{last:?}");
    }

    // Of a device that answers in more than one way, bins without a response are there, too: the plot has no bridge.
    let (found, run) = tested(ssd(GIB), Test::Latency, 0.02);
    let writes = &found.histograms[2];
    assert!(writes.bins.windows(2).all(|two| (two[1].0 / two[0].0 - 2f64.powf(0.125)).abs() < 1e-9));
    assert!(writes.bins.iter().filter(|bin| bin.1 > 0).count() > 2, "{:?}", writes.bins);
    let found = [found];
    let page = html_with(&[Named { name: "a".to_owned(), run }], &page(&found));
    assert!(page.contains("Response time histogram") && page.contains("Report header"));
    assert!(text(&found).contains("workload-independent preconditioning (WIPC): 2 times all of it"));
}
