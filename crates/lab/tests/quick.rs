//! The quick test and its comparison, on models in virtual time.

mod common;

use bimetal_lab::classic::disktester::{Nobody, Tester};
use bimetal_lab::classic::quick::{Compared, QuickPlan, Unit, compare, layout, quick};
use bimetal_lab::record::Run;
use bimetal_lab::report::{comparison_html, findings_text};
use bimetal_lab::target::Simulated;
use bimetal_models::constant::{Constant, ConstantParams};
use common::session;
use std::time::Duration;

/// A run of the quick test on a device that takes so long for each I/O, and 1 us for each KiB.
fn run(latency_ns: u64) -> (Vec<(String, f64, Unit)>, Run) {
    let params = ConstantParams { size_bytes: 64 << 20, latency_ns, ns_per_kib: 1000, units: 8 };
    let mut target = Simulated::device(Box::new(Constant::new(params)));
    let layout = layout(target.size_bytes(), 16 << 20).expect("it is large enough");
    let plan = QuickPlan {
        span_bytes: layout.file_bytes,
        each: Duration::from_millis(100),
        reads_only: false,
        marks: false,
        seed: 1,
    };
    let mut nobody = Nobody;
    let mut tester = Tester::new(&mut target, "a model", layout, &mut nobody);
    let figures = quick(&mut tester, &plan).expect("it is run").figures;
    let session = session("a test", "a model");
    let figures = figures.into_iter().map(|figure| (figure.name, figure.value, figure.unit)).collect();
    (figures, tester.finish(session))
}

/// Devices that differ by so much, with a spread of a hundredth between rounds.
fn compared(rounds: u64, times: f64) -> Compared {
    let latency = |round: u64| 100_000.0 * (1.0 + (round * 7 % 11) as f64 / 1000.0);
    let runs = |times: f64, shift: u64| -> Vec<Run> {
        (0..rounds).map(|round| run((latency(round + shift) * times) as u64).1).collect()
    };
    compare(&runs(1.0, 0), &runs(times, 5), ["A", "B"])
}

#[test]
fn a_device_of_known_times_is_measured_as_it_is() {
    let (figures, _) = run(100_000);
    let of = |name: &str, unit: Unit| {
        let found = figures.iter().find(|figure| figure.0 == name && figure.2 == unit);
        found.unwrap_or_else(|| panic!("there is no {name} in {figures:?}")).1
    };
    let close =
        |value: f64, expected: f64| assert!((value / expected - 1.0).abs() < 0.02, "{value}, {expected}");
    // 104 us for 4 KiB, 356 us for 256 KiB, one in flight.
    for order in ["sequential", "random"] {
        for kind in ["read", "write"] {
            close(of(&format!("{order} {kind}, 4K"), Unit::MbPerS), 4.096 / 0.104);
            close(of(&format!("{order} {kind}, 256K"), Unit::MbPerS), 262.144 / 0.356);
        }
    }
}

#[test]
fn what_differs_is_said_and_what_does_not_is_not() {
    let slower = compared(9, 1.3);
    assert!(slower.together.is_some());
    assert!(slower.sentence.starts_with("A is better than B at "), "{}", slower.sentence);
    assert!(slower.sentence.ends_with("All of this together holds 95 of 100 times."), "{}", slower.sentence);
    let same = compared(9, 1.0);
    assert!(same.sentence.starts_with("No difference was seen at "), "{}", same.sentence);
    // Intervals that hold together are wider than those that hold one by one.
    let together = slower.together.expect("there are rounds enough");
    for (one, all) in slower.findings.iter().zip(&together) {
        let (one, all) = (one.ratio.as_ref().expect("a ratio"), all.ratio.as_ref().expect("a ratio"));
        assert!(all.low <= one.low && one.high <= all.high && all.high - all.low >= one.high - one.low);
    }
}

#[test]
fn few_rounds_promise_no_more_than_they_can() {
    let six = compared(6, 1.3);
    assert!(six.together.is_none() && six.findings.iter().all(|finding| finding.ratio.is_ok()));
    assert!(six.sentence.ends_with("9 rounds judge them together."), "{}", six.sentence);
    let two = compared(2, 2.0);
    assert_eq!(two.sentence, "Nothing could be compared.");
    let text = findings_text(&two.findings, "A", "B");
    let reads =
        text.lines().find(|line| line.starts_with("random read, 4K, bandwidth: ")).expect("it was measured");
    assert!(reads.contains("B is 0.51 times A on average, but 2 pairs are too few, 6 are needed"), "{reads}");
    let runs = [[run(100_000).1], [run(200_000).1]];
    let page = comparison_html(&two.findings, Some(&two.sentence), ["A", "B"], [&runs[0], &runs[1]]);
    assert!(page.contains("B by A") && page.contains("are too few"));
}
