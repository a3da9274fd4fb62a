//! SNIA's kind of test, on models in virtual time.

mod common;

use bimetal_lab::classic::disktester::{Nobody, Tester};
use bimetal_lab::classic::snia::{Found, MAX_ROUNDS, SniaPlan, Test, layout, page, snia, text};
use bimetal_lab::record::{Run, TargetFacts};
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
#[derive(Default)]
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
    assert!(text(std::slice::from_ref(&found), &run).contains("this is no result of it"));
    assert_eq!(
        text(std::slice::from_ref(&found), &run).contains("may be how it begins"),
        steady.written_capacities < 1.0
    );
    // A purge, the preconditioning, and five rounds of 56.
    assert_eq!(run.jobs.len(), 2 + 5 * 56);
    let page = page(std::slice::from_ref(&found), &run);
    let page = html_with(&[Named { name: "a".to_owned(), run }], &page);
    assert!(page.contains("Steady state convergence") && page.contains("Steady state measurement window"));
}

#[test]
fn a_device_that_tires_is_never_called_steady() {
    let tiring = Tiring::default();
    let (found, run) = tested(Box::new(tiring), Test::Latency, 0.001);
    let [steady] = found.steady.as_slice() else { panic!("one set of rounds") };
    assert_eq!(steady.steadiness.rounds, u64::from(MAX_ROUNDS));
    assert!(!steady.steadiness.steady && steady.steadiness.reached.is_none());
    assert!(found.histograms.is_empty(), "there is no state to have a histogram of");
    assert!(text(std::slice::from_ref(&found), &run).contains("not steady in 25 rounds"));
    assert!(text(std::slice::from_ref(&found), &run).contains("no figures of the device, but of a moment"));
}

/// The determination has the window's own figures, worked out here by hand, and what each is allowed to be.
#[test]
fn the_text_determines_steady_state_as_the_specification_does() {
    let tiring: Box<dyn Model> = Box::new(Tiring::default());
    for (device, is_steady) in [(constant(), true), (ssd(GIB), true), (tiring, false)] {
        let (found, run) = tested(device, Test::Latency, 0.001);
        let [steady] = found.steady.as_slice() else { panic!("one set of rounds") };
        let tracked = &steady.loads[steady.tracked].mean_us;
        let window = &tracked[tracked.len() - 5..];
        let mean = window.iter().sum::<f64>() / 5.0;
        let range = |of: fn(f64, f64) -> f64| window.iter().copied().reduce(of).expect("values");
        let excursion = (range(f64::max) - range(f64::min)) / mean * 100.0;
        // Of five rounds, weights of least squares are -2 to 2 by 10; the window is four rounds long.
        let slope = (0..5).map(|at| (at as f64 - 2.0) * window[at]).sum::<f64>() / 10.0;
        let slope_excursion = slope.abs() * 4.0 / mean * 100.0;
        let text = text(std::slice::from_ref(&found), &run);
        let percent = |field: &str| -> f64 {
            let line = text
                .lines()
                .find(|line| line.starts_with(field))
                .unwrap_or_else(|| panic!("{field}\n{text}"));
            let of_mean = line.split(" % of the mean").next().expect("a share");
            of_mean.rsplit(' ').next().and_then(|share| share.parse().ok()).expect("a number")
        };
        let close =
            |told: f64, own: f64| assert!((told - own).abs() <= own.abs() * 0.01 + 0.006, "{told} {own}");
        close(percent("data excursion"), excursion);
        close(percent("slope excursion"), slope_excursion);
        assert_eq!(excursion <= 20.0 && slope_excursion <= 10.0, is_steady, "{text}");
        let reached = text.lines().find(|line| line.starts_with("steady state reached")).expect("it is said");
        assert_eq!(reached.ends_with(" yes"), is_steady, "{text}");
        assert_eq!(text.contains(": beyond"), !is_steady, "{text}");
        let last = tracked.len();
        assert!(text.contains(&format!("rounds {} to {last}", last - 4)), "{text}");
        assert!(text.contains("allowed: 20.0 %") && text.contains("allowed: 10.0 %"), "{text}");
    }
}

/// Every field of the specification's head of a report is there; what nobody knows is said to be that.
#[test]
fn the_header_says_what_is_known_and_what_is_not() {
    let (found, mut run) = tested(constant(), Test::Throughput, 0.001);
    let found = [found];
    let head = |run: &Run, field: &str| -> String {
        let text = text(&found, run);
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{field}: ")));
        line.unwrap_or_else(|| panic!("{field}: {text}")).to_owned()
    };
    let unknown = [
        "vendor",
        "model",
        "firmware revision",
        "form factor",
        "device interface",
        "volatile write cache",
        "capacity",
    ];
    for field in unknown {
        assert_eq!(head(&run, field), "not known", "{field}");
    }
    assert_eq!(
        head(&run, "workload-dependent preconditioning (WDPC)"),
        "the test's own loads, 5, then 5 rounds"
    );
    for (field, value) in [
        ("thread count", "1"),
        ("outstanding I/O (OIO) by thread", "32"),
        ("data pattern", "random"),
        ("active range amount", "67108864 bytes, from the target's start"),
        ("active range segments", "1"),
        ("times", "0.001 of the specification's"),
    ] {
        assert_eq!(head(&run, field), value, "{field}");
    }
    run.began_unix_ms = 1_234_567_890_123;
    let details = [("vendor", "V"), ("model", "M 1"), ("firmware rev", "F2"), ("write cache", "write back")];
    let details = details.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let facts = TargetFacts { kind: "block device".to_owned(), size_bytes: 123, details };
    run.environment.targets = [("/dev/x".to_owned(), facts)].into();
    for (field, value) in [
        ("test run date", "2009-02-13 23:31:30 UTC"),
        ("device under test", "/dev/x; simulated, in virtual time"),
        ("vendor", "V"),
        ("model", "M 1"),
        ("firmware revision", "F2"),
        ("capacity", "123 bytes"),
        ("volatile write cache", "enabled (write back)"),
    ] {
        assert_eq!(head(&run, field), value, "{field}");
    }
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
    let text = text(&found, &run);
    let page = page(&found, &run);
    let page = html_with(&[Named { name: "a".to_owned(), run }], &page);
    assert!(page.contains("Response time histogram") && page.contains("Report header"));
    assert!(text.contains("workload-independent preconditioning (WIPC): 2 times all of it"));
}
