//! Scenario files: what is refused, what comes out, and that it comes out the same each time.

use bimetal_sim::scenario::{Report, Scenario, ScenarioError, run};

const VOLUME: &str = r#"
name = "small"
[volume]
fast = { model = "ssd-128gb-2012", size = "2G" }
slow = { model = "disk-1tb-2012", size = "8G" }
"#;

fn scenario(phases: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse(&format!("{VOLUME}{phases}"))
}

fn report(phases: &str) -> Report {
    run(&scenario(phases).expect("a scenario"), &mut |_, _| {}).expect("it runs")
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
    assert_ne!(run(&other, &mut |_, _| {}).expect("it runs").event_hash, first.event_hash);
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
    let report = run(&Scenario::parse(text).expect("a scenario"), &mut |_, _| {}).expect("it runs");
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
        ("[device]\nmodel = \"disk-1tb-2012\"\n".to_owned() + &load(""), "either"),
    ] {
        let error = scenario(&phases).expect_err(&phases).to_string();
        assert!(error.contains(words), "{phases}\n{error}");
    }
    for (phases, words) in [
        (load(", from = \"99%\", span = \"50%\""), "does not fit"),
        (load(", block = \"1M\", span = \"4K\"").replace("block = \"4K\", ", ""), "does not fit"),
    ] {
        let error = run(&scenario(&phases).expect(&phases), &mut |_, _| {}).expect_err(&phases).to_string();
        assert!(error.contains(words), "{phases}\n{error}");
    }
    let unknown = VOLUME.replace("disk-1tb-2012", "drum-1956");
    let error = Scenario::parse(&format!("{unknown}{}", load(""))).expect("its shape is right");
    let error = run(&error, &mut |_, _| {}).expect_err("there is no such model").to_string();
    assert!(error.contains("drum-1956") && error.contains("disk-1tb-2012"), "{error}");
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
    for entry in std::fs::read_dir(folder).expect("scenarios") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("text");
        Scenario::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        count += 1;
    }
    assert!(count > 0);
}
