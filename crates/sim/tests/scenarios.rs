//! Scenario files: what is refused, what comes out, and that it comes out the same each time.

use bimetal_sim::scenario::{Phase, Report, Scenario, ScenarioError};
use std::path::Path;

const VOLUME: &str = r#"
name = "small"
[volume]
fast = { model = "ssd-128gb-2012", size = "2G" }
slow = { model = "disk-1tb-2012", size = "8G" }
"#;

fn scenario(phases: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse(&format!("{VOLUME}{phases}"))
}

fn run(scenario: &Scenario) -> Result<Report, ScenarioError> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios"));
    bimetal_sim::scenario::run(scenario, folder, &mut |_, _| {})
}

fn report(phases: &str) -> Report {
    run(&scenario(phases).expect("a scenario")).expect("it runs")
}

const STORY: &str = r#"
[[phase]]
name = "fill"
load = [{ pattern = "sequential", block = "1M", depth = 2, span = "60%" }]
for = "60%"
[[phase]]
name = "mixed"
load = [
    { pattern = "random", block = "4K", depth = 4, from = "10%", span = "40%" },
    { pattern = "random", read_percent = 100, block = "16K", span = 1000000000 },
]
seconds = 5
[[phase]]
name = "rest"
pause_seconds = 100
[[phase]]
name = "kill"
reopen = "kill"
[[phase]]
name = "reads"
load = [{ pattern = "random", read_percent = 100, block = "64K", span = "60%" }]
for = "64M"
[[phase]]
name = "give back"
discard = "100%"
[[phase]]
name = "close"
reopen = "close"
[[expect]]
phase = "fill"
metric = "mb_per_s"
at_least = 100
at_most = 400
[[expect]]
phase = "reads"
metric = "fast_share"
at_least = 2
"#;

#[test]
fn a_story_is_told_the_same_twice_and_otherwise_with_another_seed() {
    let first = report(STORY);
    let again = report(STORY);
    let json = |report: &Report| serde_json::to_string(report).expect("JSON");
    assert_eq!(json(&first), json(&again));
    let mut other = scenario(STORY).expect("a scenario");
    other.seed = 2;
    assert_ne!(run(&other).expect("it runs").event_hash, first.event_hash);
}

#[test]
fn figures_are_those_of_their_phases() {
    let report = report(STORY);
    let [fill, mixed, rest, kill, reads, give_back, close] = report.phases.as_slice() else {
        panic!("{} phases", report.phases.len())
    };
    assert!(fill.mb_per_s > 100.0 && fill.fast_share.is_some_and(|share| share > 0.1 && share < 0.9));
    assert!((10..=100).contains(&fill.series.len()), "{}", fill.series.len());
    let mean = fill.series.iter().map(|point| point.mb_per_s).sum::<f64>() / fill.series.len() as f64;
    assert!((mean / fill.mb_per_s - 1.0).abs() < 0.1, "{mean} {}", fill.mb_per_s);
    assert!(mixed.iops > 100.0 && mixed.p50_us <= mixed.p99_us && mixed.p99_us <= mixed.max_us);
    assert_eq!((rest.iops, rest.fast_share, rest.seconds), (0.0, None, 100.0));
    assert!(kill.seconds > 0.0 && close.seconds > 0.0);
    assert!(reads.mb_per_s > 0.0 && reads.failures == 0);
    assert!(give_back.seconds < 60.0);
    // A device cannot have worked for longer than the phase.
    for phase in &report.phases {
        assert!(phase.busy_seconds.iter().all(|&busy| busy <= phase.seconds + 0.001), "{phase:?}");
    }
    let held: Vec<bool> = report.expectations.iter().map(|expectation| expectation.held).collect();
    assert_eq!(held, [true, false]);
    assert!(!report.all_held());
}

/// A volume for the trace that comes with the scenarios.
const TRACED: &str = r#"
name = "traced"
[trace]
files = ["traces/made.iolog"]
[volume]
fast = { model = "ssd-128gb-2012", size = "25% of trace" }
slow = { model = "disk-1tb-2012", size = "110% of trace" }
"#;

fn traced(head: &str, phases: &str) -> Result<Report, ScenarioError> {
    run(&Scenario::parse(&format!("{head}{phases}"))?)
}

fn replay(how: &str) -> String {
    format!("[[phase]]\nname = \"replay\"\nreplay = {{ {how} }}\n")
}

#[test]
fn a_trace_is_replayed_at_its_times_and_as_fast_as_it_goes() {
    let timed = traced(TRACED, &replay("mode = \"timed\"")).expect("it runs");
    let phase = &timed.phases[0];
    let replay_of = phase.replay.expect("a replay");
    assert_eq!((replay_of.records, replay_of.malformed, replay_of.left_out), (1000, 0, replay_of.left_out));
    let done = |phase: &Phase| {
        phase.reads.map_or(0, |reads| reads.count)
            + phase.writes.map_or(0, |writes| writes.count)
            + phase.flushes
            + phase.discards
    };
    assert_eq!(done(phase) + replay_of.left_out, 1000);
    assert!(phase.flushes == 40 && phase.failures == 0, "{phase:?}");
    assert!((59.0..61.0).contains(&phase.seconds), "{}", phase.seconds);
    assert!(phase.late.is_some_and(|late| late.count == 0));
    // What the trace touches is a few thousandths of what it reaches over.
    let touched = timed.trace_bytes.expect("a trace");
    assert!((20 << 20..200 << 20).contains(&touched) && timed.size_bytes >= touched, "{touched}");

    let fast = traced(TRACED, &replay("mode = \"timed\", speed = 10")).expect("it runs");
    assert!((5.9..6.5).contains(&fast.phases[0].seconds), "{}", fast.phases[0].seconds);
    let rushed =
        traced(TRACED, &replay("mode = \"timed\", idle_at_most_seconds = 0, depth = 2")).expect("it runs");
    let late = rushed.phases[0].late.expect("it is timed");
    // All are meant to be submitted at once: a response counts the wait.
    assert!(late.count > 900 && late.max_us > 0.9e6 * rushed.phases[0].seconds, "{late:?}");
    assert!(rushed.phases[0].max_us >= late.max_us);

    let closed = traced(TRACED, &replay("mode = \"closed\", depth = 4")).expect("it runs");
    assert_eq!(done(&closed.phases[0]) + replay_of.left_out, 1000);
    assert!(closed.phases[0].late.is_none() && closed.phases[0].seconds < 30.0);
    let json = |report: &Report| serde_json::to_string(report).expect("JSON");
    let again = traced(TRACED, &replay("mode = \"closed\", depth = 4")).expect("it runs");
    assert_eq!(json(&closed), json(&again));
}

#[test]
fn addresses_beyond_the_target_are_counted_or_brought_back() {
    let of = |how: &str| traced(TRACED, &replay(how)).expect("it runs").phases.remove(0);
    let as_is = of("mode = \"closed\", map = \"as-is\"");
    let wrap = of("mode = \"closed\", map = \"wrap\"");
    let (as_is, wrap) = (as_is.replay.expect("a replay"), wrap.replay.expect("a replay"));
    assert!(as_is.left_out > 800 && as_is.wrapped == 0, "{as_is:?}");
    assert!(wrap.left_out == 0 && wrap.wrapped == as_is.left_out, "{as_is:?} {wrap:?}");
    let first = traced(&TRACED.replace("iolog\"]", "iolog\"]\nfirst = 100"), &replay("mode = \"closed\""))
        .expect("it runs");
    assert_eq!(first.phases[0].replay.map(|replay| replay.records), Some(100));
}

#[test]
fn files_are_written_and_read_in_order_pass_by_pass() {
    let report = report(
        r#"
[[phase]]
name = "create"
create_files = { count = 10, size = "50M" }
[[phase]]
name = "read"
read_files = { count = 10, size = "50M", transfer = "8M", depth = 2 }
times = 3
[[expect]]
phase = "read, pass 3"
metric = "p99_read_us"
at_most = 1e6
"#,
    );
    let names: Vec<&str> = report.phases.iter().map(|phase| phase.name.as_str()).collect();
    assert_eq!(names, ["create", "read, pass 1", "read, pass 2", "read, pass 3"]);
    // Seven commands for each file: the last is of 2 MiB.
    let create = &report.phases[0];
    assert_eq!(create.writes.map(|writes| writes.count), Some(70));
    let bytes = create.mb_per_s * create.seconds * 1e6;
    assert!((bytes / f64::from(500 << 20) - 1.0).abs() < 1e-6, "{bytes}");
    assert!(report.phases[1..].iter().all(|phase| phase.reads.is_some_and(|reads| reads.count == 70)));
    assert!(create.worst_second_mb_per_s.is_some_and(|worst| worst > 0.0 && worst <= create.mb_per_s * 1.5));
    assert!(report.all_held());
}

#[test]
fn a_load_with_a_rate_keeps_it() {
    let report = report(
        r#"
[[phase]]
name = "fill"
load = [{ pattern = "sequential", block = "1M", depth = 2, span = "60%" }]
for = "60%"
[[phase]]
name = "beside"
load = [
    { pattern = "random", block = "4K", depth = 4, span = "60%" },
    { pattern = "zipf", theta = 1.1, read_percent = 100, block = "4K", span = "60%", rate_iops = 20 },
]
seconds = 10
"#,
    );
    let reads = report.phases[1].reads.expect("reads");
    // Some are in flight at the end.
    assert!((180..=200).contains(&reads.count), "{reads:?}");
}

#[test]
fn one_device_can_be_loaded_alone() {
    let text = r#"
name = "alone"
[device]
model = "disk-1tb-2012"
[[phase]]
name = "writes"
load = [{ pattern = "random", block = "4K", depth = 16 }]
seconds = 60
"#;
    let report = run(&Scenario::parse(text).expect("a scenario")).expect("it runs");
    // Its cache takes the first ones.
    assert!((100.0..200.0).contains(&report.phases[0].iops), "{}", report.phases[0].iops);
    assert_eq!(report.phases[0].fast_share, None);
}

#[test]
fn what_makes_no_sense_is_refused_in_a_sentence() {
    let load = |rest: &str| {
        format!(
            "[[phase]]\nname = \"x\"\nload = [{{ pattern = \"random\", block = \"4K\"{rest} }}]\nseconds = 1\n"
        )
    };
    for (phases, words) in [
        ("[[phase]]\nname = \"x\"\n".to_owned(), "one of load"),
        ("[[phase]]\nname = \"x\"\npause_seconds = -1\n".to_owned(), "number of seconds"),
        ("[[phase]]\nname = \"x\"\npause_seconds = nan\n".to_owned(), "number of seconds"),
        ("[[phase]]\nname = \"x\"\npause_seconds = 1\nseconds = 1\n".to_owned(), "nothing else"),
        (load(", depth = 0"), "in flight"),
        (load(", depth = 100000"), "in flight"),
        (load(", read_percent = 101"), "reads"),
        (load(", span = \"200%\""), "200%"),
        (load(", from = -5"), "fewer than none"),
        (load(", block = \"3\"").replace("block = \"4K\", ", ""), "whole sectors"),
        (load(", colour = 1"), "colour"),
        (format!("{}{}", load(""), load("")), "two phases"),
        (format!("{}[[expect]]\nphase = \"y\"\nmetric = \"iops\"\nat_least = 1\n", load("")), "no phase"),
        (format!("{}[[expect]]\nphase = \"x\"\nmetric = \"wow\"\nat_least = 1\n", load("")), "no figure"),
        (format!("{}[[expect]]\nphase = \"x\"\nmetric = \"iops\"\n", load("")), "neither"),
        (
            format!("{}[[claim]]\nid = \"1\"\nphase = \"y\"\nmetric = \"iops\"\nat_least = 1\n", load("")),
            "no phase",
        ),
        (format!("{}[[claim]]\nid = \"1\"\nphase = \"x\"\nmetric = \"iops\"\n", load("")), "neither"),
        (
            format!(
                "{}{}",
                load(""),
                "[[claim]]\nid = \"1\"\nphase = \"x\"\nmetric = \"iops\"\nat_least = 1\n".repeat(2)
            ),
            "same id",
        ),
        ("[device]\nmodel = \"disk-1tb-2012\"\n".to_owned() + &load(""), "either"),
        (load(", rate_iops = 0"), "rate_iops"),
        (load(", theta = 1"), "theta"),
        (load(", theta = 11").replace("random", "zipf"), "theta"),
        (load(", span = \"5% of trace\""), "no [trace]"),
        (load(", span = \"5 of trace\""), "share of the trace"),
        (replay("mode = \"timed\""), "no [trace]"),
        (format!("{}times = 0\n", load("")), "times"),
        (format!("{}times = 100000\n", load("")), "times"),
        ("[[phase]]\nname = \"x\"\ncreate_files = { count = 0, size = \"1M\" }\n".to_owned(), "files"),
        ("[[phase]]\nname = \"x\"\nread_files = { count = 1, size = 100 }\n".to_owned(), "whole sectors"),
        (
            "[[phase]]\nname = \"x\"\nread_files = { count = 1, size = \"1M\", transfer = \"1G\" }\n"
                .to_owned(),
            "transfer",
        ),
    ] {
        let error = scenario(&phases).expect_err(&phases).to_string();
        assert!(error.contains(words), "{phases}\n{error}");
    }
    for (phases, words) in [
        (load(", from = \"99%\", span = \"50%\""), "does not fit"),
        (load(", block = \"1M\", span = \"4K\"").replace("block = \"4K\", ", ""), "does not fit"),
        (
            "[[phase]]\nname = \"x\"\ncreate_files = { count = 1000, size = \"1G\" }\n".to_owned(),
            "do not fit",
        ),
    ] {
        let error = run(&scenario(&phases).expect(&phases)).expect_err(&phases).to_string();
        assert!(error.contains(words), "{phases}\n{error}");
    }
    for (head, phases, words) in [
        (TRACED.replace("made.iolog", "none.iolog"), replay("mode = \"closed\""), "none.iolog"),
        (
            TRACED.replace("traces/made.iolog", "$NO_SUCH_FOLDER/made.iolog"),
            replay("mode = \"closed\""),
            "NO_SUCH_FOLDER is not set",
        ),
        (TRACED.replace("iolog\"]", "iolog\"]\ngrain = \"3K\""), replay("mode = \"closed\""), "power of two"),
        (TRACED.replace("25% of trace", "1M"), replay("mode = \"closed\""), "can be made of 1048576 bytes"),
        (TRACED.replace("110%", "10%"), replay("mode = \"closed\""), "devices larger"),
        (TRACED.replace("25% of trace", "25%"), replay("mode = \"closed\""), "share of the target"),
        (TRACED.to_owned(), replay("mode = \"closed\", speed = 2"), "closed one knows no times"),
        (TRACED.to_owned(), replay("mode = \"timed\", speed = 0"), "speed"),
        (TRACED.to_owned(), replay("mode = \"timed\", depth = 5000"), "5000"),
    ] {
        let error = traced(&head, &phases).expect_err(&phases).to_string();
        assert!(error.contains(words), "{head}{phases}\n{error}");
    }
    let unlike = format!("{VOLUME}policy = \"magic\"\n{}", load(""));
    let error = Scenario::parse(&unlike).expect_err("there is no such policy").to_string();
    assert!(error.contains("magic") && error.contains("spill-only"), "{error}");
    let peer = format!("{VOLUME}policy = \"fusion\"\n[[phase]]\nname = \"x\"\nreopen = \"kill\"\n");
    let error =
        run(&Scenario::parse(&peer).expect("its shape is right")).expect_err("it is no volume").to_string();
    assert!(error.contains("\"x\"") && error.contains("fusion"), "{error}");
    let large = peer
        .replace("disk-1tb-2012\", size = \"8G\"", "disk-20tb\"")
        .replace("ssd-128gb-2012\", size = \"2G\"", "nvme-present\"")
        .replace("reopen = \"kill\"", "pause_seconds = 1");
    let error =
        run(&Scenario::parse(&large).expect("its shape is right")).expect_err("too large").to_string();
    assert!(error.contains("fusion takes no devices above"), "{error}");
    let unknown = VOLUME.replace("disk-1tb-2012", "drum-1956");
    let error = Scenario::parse(&format!("{unknown}{}", load(""))).expect("its shape is right");
    let error = run(&error).expect_err("there is no such model").to_string();
    assert!(error.contains("drum-1956") && error.contains("disk-1tb-2012"), "{error}");
}

/// What placement weighs is set for ours alone, and told of; a device places nothing.
#[test]
fn what_placement_weighs_can_be_set() {
    let text = format!("{VOLUME}{STORY}\n[tuning]\nzone_merged_from_percent = 5\nidle_after_ns = \"2s\"\n");
    let set = run(&Scenario::parse(&text).expect("a scenario")).expect("it runs");
    let plain = run(&Scenario::parse(&format!("{VOLUME}{STORY}")).expect("a scenario")).expect("it runs");
    assert_ne!(set.event_hash, plain.event_hash);
    let told: Vec<_> = set.tuning.iter().map(|set| (set.name, set.value, set.default)).collect();
    assert_eq!(told, [("idle_after_ns", 2_000_000_000, 500_000_000), ("zone_merged_from_percent", 5, 50)]);
    assert!(plain.tuning.is_empty());
    let by_default = format!("{VOLUME}{STORY}\n[tuning]\nzone_merged_from_percent = 50\n");
    let same = run(&Scenario::parse(&by_default).expect("a scenario")).expect("it runs");
    assert_eq!(same.event_hash, plain.event_hash);
    let device = "name = \"d\"\n[device]\nmodel = \"disk-1tb-2012\"\n[tuning]\npush_worth = 3\n[[phase]]\nname = \"p\"\npause_seconds = 1\n";
    let error = Scenario::parse(device).expect_err("a device places nothing").to_string();
    assert!(error.contains("[tuning] is for a [volume]"), "{error}");
}

/// Cut anywhere, or with any byte changed, a file is a scenario or an error.
#[test]
fn damaged_files_are_refused_or_read() {
    let text = format!("{VOLUME}{STORY}");
    for end in 0..text.len() {
        let _ = Scenario::parse(&text[..end]);
        let mut bytes = text.clone().into_bytes();
        bytes[end] = b"9-\"[]{}\n"[end % 8];
        let _ = Scenario::parse(&String::from_utf8(bytes).expect("ASCII"));
    }
}

/// The scenarios that come with the project can be read.
#[test]
fn scenarios_that_come_with_the_project_are_valid() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let mut count = 0;
    let entries = |folder: &str| std::fs::read_dir(folder).expect("scenarios");
    for entry in entries(folder).chain(entries(&format!("{folder}/sweep"))) {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("text");
        Scenario::parse_all(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        count += 1;
    }
    assert!(count > 0);
}

/// Files larger than all caches are read in a loop, without a pause: the first pass is a film, and nobody moves for it. From
/// the second on room is made, and the copies of each pass are there for the next; a volume that is never idle converges.
#[test]
fn what_is_read_round_and_round_gets_fast_without_any_rest() {
    let report = report(
        r#"
[[phase]]
name = "fill the SSD"
create_files = { count = 80, size = "32M", transfer = "8M" }
[[phase]]
name = "files"
create_files = { count = 16, size = "32M", transfer = "8M", from = "4G" }
[[phase]]
name = "read them"
read_files = { count = 16, size = "32M", transfer = "8M", from = "4G" }
times = 8
"#,
    );
    let shares: Vec<f64> = report.phases[2..].iter().filter_map(|phase| phase.fast_share).collect();
    assert!(shares[0] < 0.1, "{shares:?}");
    assert!(shares.last() > Some(&0.95), "{shares:?}");
}
