//! The quick test and its comparison, on models in virtual time.

mod common;

use bimetal_lab::classic::disktester::{Nobody, Tester};
use bimetal_lab::classic::quick::{
    Compared, Mark, Quick, QuickPlan, Unit, compare, layout, marks_text, quick,
};
use bimetal_lab::record::Run;
use bimetal_lab::report::{comparison_html, findings_text};
use bimetal_lab::target::Simulated;
use bimetal_models::constant::{Constant, ConstantParams};
use common::session;
use std::time::Duration;

/// A run of the quick test on a device that takes so long for each I/O, and 1 us for each KiB.
fn run(latency_ns: u64) -> (Vec<(String, f64, Unit)>, Run) {
    let (found, run) = tested(latency_ns, 16 << 20, false, false);
    (found.figures.into_iter().map(|figure| (figure.name, figure.value, figure.unit)).collect(), run)
}

/// The same on so many bytes, with CrystalDiskMark's rows or without, reading only or not.
fn tested(latency_ns: u64, span_bytes: u64, marks: bool, reads_only: bool) -> (Quick, Run) {
    let params = ConstantParams { size_bytes: 64 << 20, latency_ns, ns_per_kib: 1000, units: 8 };
    let mut target = Simulated::device(Box::new(Constant::new(params)));
    let layout = layout(target.size_bytes(), span_bytes).expect("it is large enough");
    let each = Duration::from_millis(100);
    let plan = QuickPlan { span_bytes: layout.file_bytes, each, reads_only, marks, seed: 1 };
    let mut nobody = Nobody;
    let mut tester = Tester::new(&mut target, "a model", layout, &mut nobody);
    let found = quick(&mut tester, &plan).expect("it is run");
    (found, tester.finish(session("a test", "a model")))
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

/// 1.124 ms for a MiB and 104 us for 4 KiB, eight at a time: what each row comes to is known.
#[test]
fn crystal_disk_marks_rows_are_those_of_the_device() {
    let (found, run) = tested(100_000, 16 << 20, true, false);
    let names: Vec<&str> = found.marks.iter().map(|mark| mark.name).collect();
    assert_eq!(names, ["SEQ1M Q8T1", "SEQ1M Q1T1", "RND4K Q32T1", "RND4K Q1T1"]);
    let iops = [8.0 / 1.124e-3, 1.0 / 1.124e-3, 8.0 / 104e-6, 1.0 / 104e-6];
    for (mark, iops) in found.marks.iter().zip(iops) {
        for side in [mark.read, mark.write] {
            let side = side.expect("it was run");
            assert!((side.iops / iops - 1.0).abs() < 0.05, "{mark:?}, {iops}");
            // Millions of bytes, not of 2^20.
            assert!((side.mb_per_s / (side.iops * mark.bytes as f64 / 1e6) - 1.0).abs() < 1e-9, "{mark:?}");
        }
    }
    // Reads come before writes, so that what writes leave to be done does not burden them.
    let order: Vec<bool> = run.jobs.iter().skip(1).map(|job| job.write.ios > 0).collect();
    assert!(order.is_sorted() && order.len() == 14, "{order:?}");
    let text = marks_text(&found.marks);
    assert_eq!(text.lines().count(), 6, "{text}");
    let row = text.lines().find(|line| line.starts_with("SEQ1M Q1T1 ")).expect("a row");
    let cells: Vec<f64> =
        row.split_whitespace().skip(2).map(|cell| cell.parse().expect("a number")).collect();
    assert!(cells.len() == 4 && (cells[0] / (1048.576 / 1.124) - 1.0).abs() < 0.05, "{row}");
}

/// What was not run is missing, in its place: writes of a target that is only read, and all where there is no MiB.
#[test]
fn rows_that_were_not_run_are_not_made_up() {
    let (reads, _) = tested(100_000, 16 << 20, true, true);
    assert!(reads.marks.iter().all(|mark| mark.read.is_some() && mark.write.is_none()), "{:?}", reads.marks);
    let text = marks_text(&reads.marks);
    assert!(text.lines().skip(2).all(|row| row.ends_with("             -             -")), "{text}");
    for (span_bytes, marks) in [(256 << 10, true), (16 << 20, false)] {
        let found = tested(100_000, span_bytes, marks, false).0;
        assert_eq!((found.marks, found.figures.is_empty()), (Vec::<Mark>::new(), false));
    }
    assert_eq!(marks_text(&[]), "");
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
