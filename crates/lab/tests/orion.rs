//! Orion's kind of test: on targets in virtual time, so that every run is the same; the layout of its files against that
//! of real ones; what is touched, and caches that are known by it.

#[path = "common/orion.rs"]
mod small;

use bimetal_lab::classic::orion::{
    self, Head, LargeOrder, Matrix, Outcome, Point, Ramp, RunType, Simulate, Spec, stamp, tradeoff, verdicts,
};
use bimetal_lab::load::{LoadTarget, RunError, SlotSpec};
use bimetal_lab::record::Environment;
use bimetal_lab::report::{self, Named};
use bimetal_lab::session::Session;
use bimetal_lab::stats::Verdict;
use bimetal_lab::target::{Array, Layout, Simulated};
use bimetal_load::{Ended, Target};
use bimetal_models::constant::{Constant, ConstantParams};
use bimetal_models::{Command, Kind, Model};
use small::spec;
use std::collections::HashSet;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;

/// Sixteen at a time, 1 ms each and 1 ms more for a MiB.
fn device(size_bytes: u64) -> Box<dyn Model> {
    Box::new(Constant::new(ConstantParams { size_bytes, latency_ns: MS, ns_per_kib: 1000, units: 16 }))
}

fn session() -> Session {
    Session {
        title: "t".to_owned(),
        environment: Environment::default(),
        places: vec!["device".to_owned()],
        seed: 7,
        virtual_time: true,
        notes: Vec::new(),
    }
}

fn run_on<T: LoadTarget>(target: &mut T, spec: &Spec, span_bytes: u64) -> Outcome {
    let points = spec.points().expect("a good matrix");
    orion::run(target, spec, &points, span_bytes, session(), &mut |_| true, &mut |_| ()).expect("it runs")
}

fn run(spec: &Spec) -> Outcome {
    run_on(&mut Simulated::device(device(1 << 30)), spec, 1 << 30)
}

fn files(spec: &Spec, outcome: &Outcome) -> Vec<(&'static str, String)> {
    let head = Head {
        program: "p 1".to_owned(),
        command_line: "-run simple".to_owned(),
        luns: vec![("device".to_owned(), 1 << 30)],
    };
    let points = spec.points().expect("a good matrix");
    orion::files(&head, spec, &points, outcome).into_iter().map(|file| (file.suffix, file.text)).collect()
}

fn file<'f>(files: &'f [(&'static str, String)], suffix: &str) -> &'f str {
    &files.iter().find(|file| file.0 == suffix).expect(suffix).1
}

#[test]
fn the_matrices_are_laid_out_as_orions() {
    let simple = spec(RunType::Simple);
    let files = files(&simple, &run(&simple));
    // 8 KiB take 1.008 ms: a load of n does n times 992 in a second.
    assert_eq!(
        file(&files, "iops.csv"),
        "Large/Small,      1,      2,      3,      4,      5\n          0,    992,   1984,   2976,   3968,   4960\n          1\n          2\n"
    );
    assert_eq!(
        file(&files, "lat.csv"),
        "Large/Small,      1,      2,      3,      4,      5\n          0, 1008.00, 1008.00, 1008.00, 1008.00, 1008.00\n          1\n          2\n"
    );
    let mbps = file(&files, "mbps.csv");
    assert!(
        mbps.starts_with("Large/Small,      0,      1,      2,      3,      4,      5\n          1, 494."),
        "{mbps}"
    );
    assert_eq!(mbps.lines().count(), 3);
    assert!(!files.iter().any(|file| file.0 == "tradeoff.csv"));
}

#[test]
fn cells_between_stay_empty() {
    let normal = spec(RunType::Normal);
    let files = files(&normal, &run(&normal));
    let iops: Vec<&str> = file(&files, "iops.csv").lines().collect();
    assert_eq!(iops.len(), 4);
    assert!(iops.iter().all(|line| line.split(',').count() == 6), "{iops:?}");
    let mbps: Vec<&str> = file(&files, "mbps.csv").lines().collect();
    assert!(mbps.len() == 3 && mbps.iter().all(|line| line.split(',').count() == 7), "{mbps:?}");
    // A row of its own: the column of no small I/Os is not among its points, and so empty.
    let row = Spec { matrix: Matrix::Max, num_small: Some(2), num_large: Some(1), ..spec(RunType::Advanced) };
    let mut outcome = run(&row);
    outcome.points.retain(|measured| measured.point != Point { large: 1, small: 1 });
    let files = self::files(&row, &outcome);
    assert!(
        file(&files, "iops.csv").ends_with("          1,       ,   1984\n"),
        "{}",
        file(&files, "iops.csv")
    );
}

#[test]
fn the_summary_is_laid_out_as_orions() {
    let simple = spec(RunType::Simple);
    let files = files(&simple, &run(&simple));
    let summary = file(&files, "summary.txt");
    let head = "ORION VERSION p 1\n\nCommandline:\n-run simple\n\nThis maps to this test:\nTest: t\n\
                Small IO size: 8 KB\nLarge IO size: 1024 KB\nIO Types: Small Random IOs, Large Random IOs\n\
                Simulated Array Type: CONCAT\nWrite: 0%\nCache Size: Not Entered\n\
                Duration for each Data Point: 2 seconds\nSmall Columns:,      0\n\
                Large Columns:,      0,      1,      2\nTotal Data Points: 8\n\n\
                Name: device  Size: 1073741824\n1 FILEs found.\n\nMaximum Large MBPS=";
    assert!(summary.starts_with(head), "{summary}");
    for line in [
        "Maximum Small IOPS=4960 @ Small=5 and Large=0",
        "Small Read Latency: avg=1008.000 us, min=1008.000 us, max=1008.000 us, std dev=0.000 us @ Small=5 and Large=0",
        "        Latency:                         # of IOs (read)          # of IOs (write)",
        "        0 - 32         us:               0 (  0.00%)              0 (  0.00%)",
        "Small Knee: none up to IOPS=4960 @ Small=5 and Large=0; --knee runs more loads",
    ] {
        assert!(summary.lines().any(|found| found == line), "{line}\n{summary}");
    }
    // Milliseconds, as that version has them, right behind the other two.
    let results: Vec<&str> =
        summary.lines().skip_while(|line| !line.starts_with("Maximum Large")).take(4).collect();
    assert!(results[1].starts_with("Maximum Small IOPS=4960 @ "), "{summary}");
    assert!(results[2].starts_with("Minimum Small Latency=1.01 @ Small="), "{summary}");
    assert_eq!(results[3], "");
}

/// A whole summary as version 11.1.0.7.0 wrote it, of one disk under `-run simple`: every line of it is a line of ours, in
/// its order; of results, the words and the number of decimals.
#[test]
fn a_published_summary_has_the_same_lines() {
    let published = "ORION VERSION 11.1.0.7.0\n\nCommandline:\n-run simple\n\nThis maps to this test:\nTest: orion\n\
                     Small IO size: 8 KB\nLarge IO size: 1024 KB\nIO Types: Small Random IOs, Large Random IOs\n\
                     Simulated Array Type: CONCAT\nWrite: 0%\nCache Size: Not Entered\n\
                     Duration for each Data Point: 60 seconds\nSmall Columns:,      0\n\
                     Large Columns:,      0,      1,      2\nTotal Data Points: 8\n\n\
                     Name: /dev/vdb  Size: 21474836480\n1 FILEs found.\n\n\
                     Maximum Large MBPS=1554.54 @ Small=0 and Large=2\n\
                     Maximum Small IOPS=19019 @ Small=5 and Large=0\nMinimum Small Latency=0.26 @ Small=5 and Large=0";
    let simple = Spec { testname: "orion".to_owned(), seconds: 60, ..spec(RunType::Simple) };
    let outcome = run(&Spec { seconds: 2, ..simple.clone() });
    let head = Head {
        program: "11.1.0.7.0".to_owned(),
        command_line: "-run simple".to_owned(),
        luns: vec![("/dev/vdb".to_owned(), 21_474_836_480)],
    };
    let points = simple.points().expect("a good matrix");
    let summary = orion::files(&head, &simple, &points, &outcome).swap_remove(0).text;
    let shape = |line: &str| match line.split_once(" @ Small=") {
        Some((result, _)) => {
            let (what, value) = result.split_once('=').expect("a value");
            let decimals = value.split_once('.').map_or(0, |(_, behind)| behind.len());
            format!("{what} with {decimals} decimals @ Small= and Large=")
        }
        None => line.to_owned(),
    };
    let theirs: Vec<String> = published.lines().map(shape).collect();
    let ours: Vec<String> = summary.lines().take(theirs.len()).map(shape).collect();
    assert_eq!(ours, theirs);
}

#[test]
fn histograms_count_all_and_end_as_orions() {
    let simple = spec(RunType::Simple);
    let outcome = run(&simple);
    let files = files(&simple, &outcome);
    let hist = file(&files, "hist.txt");
    assert_eq!(hist.matches("Small Read / Write Latency Histogram @").count(), 5);
    assert_eq!(hist.matches("Large Read / Write Latency Histogram @").count(), 2);
    let first: Vec<&str> = hist.lines().take_while(|line| !line.is_empty()).collect();
    let ios = outcome.points[0].small.as_ref().expect("small ones").read.ios;
    let within = format!("      512 - 1024       us: {ios:>15} (100.00%)              0 (  0.00%)");
    assert!(first.contains(&within.as_str()), "{within}\n{hist}");
    assert_eq!(
        first.last(),
        Some(&"     1024 - 268435456  us:               0 (100.00%)              0 (  0.00%)")
    );
    let trace = file(&files, "trace.txt");
    assert!(trace.starts_with("Point 1 (small=1, large=0) of 7\nran (small): iops=992"), "{trace}");
    assert_eq!(trace.matches("\nran (large): ").count(), 2);
}

#[test]
fn the_name_of_a_file_has_the_minute() {
    assert_eq!(stamp(1_234_567_890_123), "20090213_2331");
}

#[test]
fn a_knee_is_bracketed_where_the_units_are_busy() {
    let searched = Spec { knee: true, ..spec(RunType::Simple) };
    let outcome = run(&searched);
    let (_, Verdict::Knee(knee)) = outcome.knees[0] else { panic!("{:?}", outcome.knees) };
    assert_eq!((knee.load, knee.load_low, knee.load_high), (16, 16, 16));
    assert!((knee.rate - 16.0 / 1.008e-3).abs() < 10.0, "{knee:?}");
    let (_, Verdict::Knee(large)) = outcome.knees[1] else { panic!("{:?}", outcome.knees) };
    assert_eq!(large.load, 16);
    assert!(
        outcome.again.len() == 2 && outcome.again.iter().all(|again| !again.differs),
        "{:?}",
        outcome.again
    );
    // What is printed names it, and the page marks it.
    let lines = verdicts(&searched, &outcome);
    assert!(lines.iter().any(|line| line.starts_with("Small Knee: IOPS=1587")), "{lines:?}");
    let extra = orion::figures(&searched, &outcome);
    let marked: Vec<&str> = extra
        .figures
        .iter()
        .filter(|figure| !figure.marks.is_empty())
        .map(|figure| figure.id.as_str())
        .collect();
    assert_eq!(marked, ["small-rate", "small-latency", "large-rate", "large-latency"]);
    let named = Named { name: "t".to_owned(), run: outcome.run.clone() };
    let page = report::html_with(&[named], &extra);
    assert!(page.contains("Large MBPS (of 2^20 bytes)") && page.contains("\"id\":\"small-latency\""));
}

#[test]
fn the_same_seed_is_the_same_run() {
    let mixed = Spec { write_percent: 30, knee: true, ..spec(RunType::Normal) };
    let (one, other) = (run(&mixed), run(&mixed));
    assert_eq!(one.points, other.points);
    assert_eq!(one.small_cover, other.small_cover);
    let wrote =
        one.points.iter().filter_map(|point| point.small.as_ref()).map(|small| small.write.ios).sum::<u64>();
    let read =
        one.points.iter().filter_map(|point| point.small.as_ref()).map(|small| small.read.ios).sum::<u64>();
    let share = wrote as f64 / (wrote + read) as f64;
    assert!((0.28..0.32).contains(&share), "{share}");
}

#[test]
fn large_ios_cost_small_ones() {
    let normal = Spec { disks: 4, ..spec(RunType::Normal) };
    let outcome = run(&normal);
    let trades = tradeoff(&outcome);
    assert!(trades.iter().any(|trade| trade.large > 0), "{trades:?}");
    assert!(trades.iter().all(|trade| (trade.large == 0) == (trade.large_bytes_per_s == 0.0)), "{trades:?}");
    // At 1 ms plus a bit nothing waits: what large ones take, small ones lack.
    let of = |large: u32| outcome.steps(Ramp::Small { large }).last().expect("steps").rate();
    assert!(of(8) < of(0) * 0.9, "{} {}", of(8), of(0));
}

/// Each stream of a sequential point has its own part, in order, and no point begins where another has.
#[test]
fn streams_lie_apart() {
    let streams = Spec {
        large_order: LargeOrder::Sequential,
        matrix: Matrix::Point,
        num_small: Some(0),
        num_large: Some(4),
        write_percent: 50,
        cache_bytes: Some(0),
        ..spec(RunType::Advanced)
    };
    let mut noted = Noted { inner: Simulated::device(device(1 << 30)), asked: Vec::new(), bytes_of: [0; 4] };
    run_on(&mut noted, &streams, 1 << 30);
    for stream in 0..4u64 {
        let part = stream << 28..(stream + 1) << 28;
        let of: Vec<&Command> = noted.asked.iter().filter(|command| part.contains(&command.offset)).collect();
        assert!(of.len() > 100, "{}", of.len());
        let writes = of.iter().filter(|command| command.kind != Kind::Read).count();
        assert_eq!(writes, if stream < 2 { of.len() } else { 0 }, "a stream reads or writes");
        let next = |at: u64| if at + MIB == part.end { part.start } else { at + MIB };
        assert!(of.windows(2).all(|pair| next(pair[0].offset) == pair[1].offset), "in order, and round");
        assert_ne!(of[0].offset, part.start, "it begins elsewhere");
    }
}

/// Before a sequential point, random reads of as much as a cache holds.
#[test]
fn a_cache_is_filled_with_other_data_before_a_stream() {
    let streams = Spec {
        large_order: LargeOrder::Sequential,
        matrix: Matrix::Point,
        num_small: Some(0),
        num_large: Some(1),
        cache_bytes: Some(100 * MIB),
        ..spec(RunType::Advanced)
    };
    let mut noted = Noted { inner: Simulated::device(device(1 << 30)), asked: Vec::new(), bytes_of: [0; 4] };
    let outcome = run_on(&mut noted, &streams, 1 << 30);
    let measured = outcome.points[0].large.as_ref().expect("large ones").read.ios;
    assert_eq!(noted.asked.len() as u64, 100 + measured);
    let apart = noted.asked[..100].windows(2).filter(|pair| pair[1].offset != pair[0].offset + MIB).count();
    assert!(apart > 90, "{apart} of 99 are not in order");
    assert_eq!(outcome.large_cover.expect("large ones").ios, measured, "what warms is not counted");
}

#[test]
fn what_is_touched_is_counted() {
    let small = Spec { seconds: 1, ..spec(RunType::Oltp) };
    let mut noted = Noted { inner: Simulated::device(device(4 * MIB)), asked: Vec::new(), bytes_of: [0; 4] };
    let outcome = run_on(&mut noted, &small, 4 * MIB);
    let cover = outcome.small_cover.expect("small ones");
    let distinct: HashSet<u64> = noted.asked.iter().map(|command| command.offset).collect();
    assert_eq!((cover.ios, cover.distinct_blocks), (noted.asked.len() as u64, distinct.len() as u64));
    assert_eq!((cover.distinct_bytes, cover.span_bytes), (4 * MIB, 4 * MIB));
    assert!(!cover.cached && outcome.large_cover.is_none(), "{cover:?}");
    // A few of many blocks: about as many as chance leaves apart.
    let outcome = run_on(&mut Simulated::device(device(1 << 40)), &small, 1 << 40);
    let cover = outcome.small_cover.expect("small ones");
    assert!(cover.share() < 0.01 && cover.distinct_blocks * 1000 > cover.ios * 999, "{cover:?}");
}

#[test]
fn a_cache_is_known_by_what_is_read_again() {
    let small = Spec { seconds: 1, ..spec(RunType::Oltp) };
    let outcome = run_on(&mut Cached::default(), &small, 256 * MIB);
    let cover = outcome.small_cover.expect("small ones");
    assert!(
        cover.cached && cover.first_by_again.is_some_and(|ratio| (9.0..11.0).contains(&ratio)),
        "{cover:?}"
    );
    let lines = verdicts(&small, &outcome);
    assert!(lines.iter().any(|line| line.starts_with("A cache is in these figures")), "{lines:?}");
}

/// Striped, four devices do four times what one does; each is asked for a quarter.
#[test]
fn several_targets_are_one_space() {
    let devices = || (0..4).map(|_| device(256 * MIB)).collect();
    let loaded = Spec {
        disks: 16,
        large_bytes: 256 * KIB,
        stripe_bytes: 64 * KIB,
        simulate: Simulate::Raid0,
        write_percent: 50,
        ..spec(RunType::Simple)
    };
    let layouts = [Layout::raid0(&[256 * MIB; 4], 64 * KIB), Layout::concat(&[256 * MIB; 4], 256 * KIB)];
    for layout in layouts {
        let noted = Noted { inner: Simulated::devices(devices()), asked: Vec::new(), bytes_of: [0; 4] };
        let mut array = Array::new(noted, layout);
        let outcome = run_on(&mut array, &loaded, 1 << 30);
        let parts = array.inner().bytes_of.map(|bytes| bytes as f64);
        let asked: u64 =
            [&outcome.small_cover, &outcome.large_cover].into_iter().flatten().map(|c| c.asked_bytes).sum();
        assert!(
            parts.iter().all(|part| (0.23..0.27).contains(&(part / asked as f64))),
            "{parts:?} of {asked}"
        );
        assert_eq!(parts.iter().sum::<f64>(), asked as f64);
        assert!(outcome.run.jobs.iter().all(|job| job.errors.is_empty()));
        let most = outcome.points.iter().filter_map(|point| point.small.as_ref()).map(|small| small.iops);
        let most = most.fold(0.0, f64::max);
        assert!(most > 55_000.0, "{most} of 63492 IOPS");
    }
}

/// A run that is ended has what was done until then.
#[test]
fn an_end_before_its_time() {
    let simple = spec(RunType::Simple);
    let points = simple.points().expect("a good matrix");
    let mut target = Simulated::device(device(1 << 30));
    let mut watch = |now: &orion::Progress<'_>| now.nth < 3;
    let outcome = orion::run(&mut target, &simple, &points, 1 << 30, session(), &mut watch, &mut |_| ())
        .expect("it runs");
    assert!(outcome.run.interrupted);
    assert_eq!(outcome.points.len(), 4);
    assert!(verdicts(&simple, &outcome)[0].starts_with("Interrupted: 4 points"));
}

#[test]
fn a_target_may_be_too_small() {
    let simple = spec(RunType::Simple);
    let points = simple.points().expect("a good matrix");
    let mut target = Simulated::device(device(512 * KIB));
    let error = orion::run(&mut target, &simple, &points, 512 * KIB, session(), &mut |_| true, &mut |_| ());
    let error = error.expect_err("a MiB does not fit").to_string();
    assert!(error.contains("524288 bytes") && !error.contains('\n'), "{error}");
}

/// Writes down what is asked for.
struct Noted {
    inner: Simulated,
    asked: Vec<Command>,
    /// Bytes of each place, and that no I/O reaches over its end.
    bytes_of: [u64; 4],
}

impl Target for Noted {
    fn now_ns(&mut self) -> u64 {
        self.inner.now_ns()
    }

    fn submit(&mut self, slot: u32, place: u32, command: Command) {
        self.asked.push(command);
        self.bytes_of[place as usize] += command.len;
        assert!(command.offset + command.len <= self.inner.sizes_bytes()[place as usize], "{command:?}");
        self.inner.submit(slot, place, command);
    }

    fn wait(&mut self, until: Option<u64>, ended: &mut Vec<Ended>) -> u64 {
        self.inner.wait(until, ended)
    }
}

impl LoadTarget for Noted {
    fn prepare(&mut self, slots: &[SlotSpec]) -> Result<(), RunError> {
        self.inner.prepare(slots)
    }
}

/// In virtual time: 1 ms for what is read for the first time, a tenth of it for what is known.
#[derive(Default)]
struct Cached {
    now_ns: u64,
    known: HashSet<u64>,
    in_flight: Vec<(u64, u32)>,
}

impl Target for Cached {
    fn now_ns(&mut self) -> u64 {
        self.now_ns
    }

    fn submit(&mut self, slot: u32, _place: u32, command: Command) {
        let took = if self.known.insert(command.offset) { MS } else { MS / 10 };
        self.in_flight.push((self.now_ns + took, slot));
    }

    fn wait(&mut self, until: Option<u64>, ended: &mut Vec<Ended>) -> u64 {
        let next = self.in_flight.iter().map(|flight| flight.0).chain(until).min();
        self.now_ns = self.now_ns.max(next.unwrap_or(self.now_ns));
        let now = self.now_ns;
        let done = self.in_flight.iter().filter(|flight| flight.0 <= now);
        ended.extend(done.map(|&(at_ns, slot)| Ended {
            slot,
            handed_ns: None,
            at_ns,
            fault: None,
            served: None,
        }));
        self.in_flight.retain(|flight| flight.0 > now);
        now
    }
}

impl LoadTarget for Cached {
    fn prepare(&mut self, _: &[SlotSpec]) -> Result<(), RunError> {
        Ok(())
    }
}
