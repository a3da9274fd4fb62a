//! Files with axes: what they become, what is refused, and what their claims come to together.

use bimetal_sim::peers::Policy;
use bimetal_sim::scenario::{MOST_TIMES, Row, Scenario, needed, rows, summaries};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;

/// A made trace in several ways, small enough to be run under several policies in a moment.
const MADE: &str = r#"
name = "{trace}, {share}, {mode}"

[[axis]]
name = "mode"
values = [
    { name = "timed", replay = { mode = "timed", idle_at_most_seconds = 1 } },
    { name = "closed", replay = { mode = "closed", depth = 4 } },
]

[[axis]]
name = "share"
values = ["25%", "50%"]

[[axis]]
name = "trace"
values = [{ name = "half", first = 500 }, { name = "all", first = 1000 }]

[[without]]
mode = "timed"
share = ["25%"]
trace = "half"

[trace]
files = ["traces/made.iolog"]
first = "{trace.first}"

[volume]
fast = { model = "ssd-128gb-2012", size = "{share} of trace" }
slow = { model = "disk-1tb-2012", size = "110% of trace" }

[[phase]]
name = "place"
load = [{ pattern = "sequential", block = "128K", depth = 2, span = "100% of trace" }]
for = "100% of trace"

[[phase]]
name = "settle"
pause_seconds = 60

[[phase]]
name = "replay"
replay = "{mode.replay}"

[[claim]]
id = "response {trace}"
phase = "replay"
metric = "mean_us"
of = "best"
at_most = 1.05

[[summary]]
id = "{share}, {mode}"
claim = "response {trace}"
over = "trace"
at_least = 1.5
where = { share = "50%", mode = "closed" }
"#;

fn rows_of(scenario: &Scenario, policies: &[Policy]) -> Vec<Row> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios"));
    let two = NonZeroUsize::new(2).expect("not 0");
    rows(&[(folder, scenario)], policies, two, &|_, _, _, _| {}).expect("it runs").remove(0)
}

#[test]
fn a_made_trace_is_run_for_each_combination_and_summed_up() {
    let all = Scenario::parse_all(MADE).expect("scenarios");
    let names: Vec<&str> = all.iter().map(|scenario| scenario.name.as_str()).collect();
    let expected = [
        "all, 25%, timed",
        "half, 50%, timed",
        "all, 50%, timed",
        "half, 25%, closed",
        "all, 25%, closed",
        "half, 50%, closed",
        "all, 50%, closed",
    ];
    assert_eq!(names, expected);
    assert_eq!(all[1].trace.as_ref().and_then(|trace| trace.first), Some(500));

    let policies = [Policy::Static, Policy::Bcache];
    let ran: Vec<(Scenario, Vec<Row>)> = all
        .into_iter()
        .map(|scenario| {
            let rows = rows_of(&scenario, &policies);
            (scenario, rows)
        })
        .collect();
    for (scenario, rows) in &ran {
        let [row] = rows.as_slice() else { panic!("{}: {} rows", scenario.name, rows.len()) };
        let best = row.policies.values().flatten().copied().fold(f64::INFINITY, f64::min);
        let ours = row.ours.expect("a mean");
        assert_eq!(row.held, ours <= 1.05 * best, "{row:?}");
        assert_eq!((row.unit, row.claimed.as_str()), ("us", "at most 1.05 times the best other"));
        assert_eq!(row.policies.len(), 2);
    }

    let summed = summaries(&ran);
    let seen: Vec<(&str, usize, bool)> = summed
        .iter()
        .map(|summary| (summary.summary.as_str(), summary.scenarios, summary.held.is_some()))
        .collect();
    let wanted = [
        ("25%, timed", 1, false),
        ("50%, timed", 2, false),
        ("25%, closed", 2, false),
        ("50%, closed", 2, true),
    ];
    assert_eq!(seen, wanted);
    let last = &summed[3];
    assert_eq!(last.of, BTreeMap::from([("mode".into(), "closed".into()), ("share".into(), "50%".into())]));
    let ratio = |at: usize| {
        let row = &ran[at].1[0];
        (row.policies["static"].expect("a mean") / row.ours.expect("a mean")).min(MOST_TIMES)
    };
    let mean = (ratio(5) * ratio(6)).sqrt();
    assert!((last.geometric_mean["static"].expect("a mean") / mean - 1.0).abs() < 1e-9, "{last:?}");
    assert_eq!(last.held, Some(last.least.expect("a mean") >= 1.5));
    let worst = last.worst_of_static.as_ref().expect("static was run");
    assert_eq!((worst.policy, worst.times), ("static", ratio(5).min(ratio(6))));
}

/// Rows of one claim along one axis, as if something had been run.
fn made_rows(bound: &str, figures: &[(f64, Option<f64>, f64)]) -> Vec<(Scenario, Vec<Row>)> {
    let values: Vec<String> = (0..figures.len()).map(|number| format!("\"{number}\"")).collect();
    let text = format!(
        "name = \"{{a}}\"\n[[axis]]\nname = \"a\"\nvalues = [{}]\n[volume]\nfast = {{ model = \"x\" }}\n\
         slow = {{ model = \"x\" }}\n[[phase]]\nname = \"p\"\npause_seconds = 1\n[[claim]]\nid = \"c\"\nphase = \"p\"\n\
         metric = \"iops\"\n{bound} = 1\n[[summary]]\nid = \"s\"\nclaim = \"c\"\nover = \"a\"\nat_least = 2\n",
        values.join(", ")
    );
    let scenarios = Scenario::parse_all(&text).expect("scenarios");
    let row = |scenario: &Scenario, &(ours, still, fusion): &(f64, Option<f64>, f64)| Row {
        claim: "c".into(),
        scenario: scenario.name.clone(),
        phase: "p".into(),
        metric: "iops".into(),
        load: None,
        minus: None,
        unit: "IOPS",
        reference: None,
        reference_worst: None,
        claimed: String::new(),
        ours: Some(ours),
        ceiling: Some(2.0 * ours),
        all_fast: None,
        policies: BTreeMap::from([("static", still), ("fusion", Some(fusion))]),
        held: true,
    };
    scenarios
        .into_iter()
        .zip(figures)
        .map(|(scenario, figures)| {
            let rows = vec![row(&scenario, figures)];
            (scenario, rows)
        })
        .collect()
}

#[test]
fn the_mean_is_geometric_and_each_ratio_is_capped() {
    let figures = [(1.0, Some(100.0), 2.0), (1.0, Some(2.5), 8.0)];
    let of = |bound: &str| summaries(&made_rows(bound, &figures)).remove(0);
    let less = of("at_most");
    // sqrt(min(100, 10) * 2.5) and sqrt(2 * 8).
    assert!((less.geometric_mean["static"].expect("a mean") - 5.0).abs() < 1e-9, "{less:?}");
    assert!((less.geometric_mean["fusion"].expect("a mean") - 4.0).abs() < 1e-9, "{less:?}");
    assert!((less.least.expect("a mean") - 4.0).abs() < 1e-9 && less.held == Some(true));
    assert!((less.ceiling.expect("a mean") - 2.0).abs() < 1e-9, "{less:?}");
    let worst = less.worst_of_best.expect("others");
    assert_eq!((worst.scenario.as_str(), worst.policy, worst.times), ("0", "fusion", 2.0));
    assert_eq!(less.worst_of_static.map(|worst| worst.times), Some(2.5));

    let more = of("at_least");
    assert!((more.geometric_mean["fusion"].expect("a mean") - 0.25).abs() < 1e-9, "{more:?}");
    assert_eq!(more.held, Some(false));
    assert_eq!(more.worst_of_best.map(|worst| (worst.policy, worst.times)), Some(("static", 0.01)));

    let unknown = summaries(&made_rows("at_most", &[(1.0, None, 3.0), (1.0, Some(3.0), 3.0)])).remove(0);
    assert_eq!(unknown.geometric_mean["static"], None);
    assert!((unknown.least.expect("a mean") - 3.0).abs() < 1e-9 && unknown.scenarios == 2);
}

const SMALL: &str = r#"
name = "small"
[volume]
fast = { model = "ssd-128gb-2012", size = "1G" }
slow = { model = "disk-1tb-2012", size = "4G" }
[[phase]]
name = "fill"
load = [{ pattern = "sequential", block = "1M", depth = 2, span = "60%" }]
for = "60%"
[[phase]]
name = "beside"
load = [
    { pattern = "sequential", read_percent = 100, block = "1M", span = "60%" },
    { pattern = "random", block = "4K", rate_iops = 20, span = "60%" },
]
seconds = 10
[[claim]]
id = "many times"
phase = "beside"
metric = "mb_per_s"
of = "fusion"
at_least = 100
[[claim]]
id = "as good"
phase = "fill"
metric = "mb_per_s"
of = "fusion"
at_least = 0.5
[[claim]]
id = "the second load"
phase = "beside"
load = 2
metric = "iops"
at_least = 19
at_most = 21
[[claim]]
id = "the difference"
phase = "beside"
minus = "fill"
metric = "mb_per_s"
at_most = 0
"#;

#[test]
fn claims_are_of_loads_of_differences_and_of_others() {
    let scenario = Scenario::parse(SMALL).expect("a scenario");
    // A policy that is claimed to be surpassed is run, whether it was asked for or not.
    assert_eq!(needed(&scenario, &[Policy::Static]), [Policy::Static, Policy::Fusion]);
    let rows = rows_of(&scenario, &[]);
    let [many, good, second, difference] = rows.as_slice() else { panic!("{} rows", rows.len()) };
    assert!(!many.held && many.claimed == "at least 100 times fusion", "{many:?}");
    assert!(good.held && good.policies["fusion"].is_some(), "{good:?}");
    assert!(second.held && second.load == Some(2), "{second:?}");
    let of_phases = many.ours.zip(good.ours).map(|(beside, fill)| beside - fill);
    assert!(difference.ours.is_some() && difference.ours == of_phases, "{difference:?}");
}

#[test]
fn what_makes_no_sense_is_refused_in_a_sentence() {
    let changed = |from: &str, to: &str| {
        assert!(MADE.contains(from), "{from}");
        MADE.replacen(from, to, 1)
    };
    let many: Vec<String> = (0..1001).map(|number| number.to_string()).collect();
    for (text, words) in [
        (changed("{trace}, {share}, {mode}", "{trace}, {share}"), "all axes into the name"),
        (changed("name = \"{trace},", "name = \"{drum},"), "no axis is called \"drum\""),
        (changed("{trace.first}", "{trace.last}"), "no field \"last\""),
        (changed("{share} of trace", "{share.of} of trace"), "no field \"of\""),
        (changed("{share} of trace", "{share of trace"), "nothing closes"),
        (changed("{share} of trace", "{mode.replay} of trace"), "no text"),
        (changed("\"{trace.first}\"", "\"{trace}\""), "trace = \"all\""),
        (changed("[\"25%\", \"50%\"]", "[]"), "no values"),
        (changed("[\"25%\", \"50%\"]", "[\"25%\", \"25%\"]"), "twice"),
        (changed("[\"25%\", \"50%\"]", "[[1], \"25%\"]"), "neither plain nor a table"),
        (changed("{ name = \"half\", first = 500 }", "{ first = 500 }"), "neither plain nor a table"),
        (
            changed("[\"25%\", \"50%\"]", &format!("[{}]", many.join(", "))).replace("[\"25%\"]", "\"1\""),
            "more than",
        ),
        (changed("name = \"share\"", "name = \"mode\""), "two axes"),
        (changed("name = \"share\"", "name = \"the share\""), "letters"),
        (changed("name = \"share\"", "label = \"share\""), "[[axis]]"),
        (changed("trace = \"half\"", "trace = \"none\""), "has no value \"none\""),
        (changed("trace = \"half\"", "drum = \"half\""), "no axis is called \"drum\""),
        (changed("mode = \"timed\"\nshare = [\"25%\"]\ntrace = \"half\"\n", ""), "says nothing"),
        (
            changed(
                "mode = \"timed\"\nshare = [\"25%\"]\ntrace = \"half\"\n",
                "share = [\"25%\", \"50%\"]\n",
            ),
            "no combination",
        ),
        (changed("claim = \"response", "claim = \"request"), "no claim"),
        (changed("over = \"trace\"", "over = \"drum\""), "no axis is called \"drum\""),
        (changed("where = { share", "where = { trace"), "on which other axes"),
        (changed("share = \"50%\", mode", "share = \"51%\", mode"), "no combination of the axes"),
        (changed("of = \"best\"", "of = \"magic\""), "magic"),
        (changed("of = \"best\"", "of = \"bimetal\""), "multiple of itself"),
        (changed("at_most = 1.05", "at_most = 1.05\nat_least = 1"), "which other is the best"),
        (changed("at_most = 1.05", "at_most = 1.05\nminus = \"before\""), "no phase is called \"before\""),
        (changed("at_most = 1.05", "at_most = 1.05\nload = 0"), "number 1"),
        (changed("metric = \"mean_us\"", "metric = \"fast_share\"\nload = 1"), "of a load"),
    ] {
        let error = Scenario::parse_all(&text).expect_err(&text).to_string();
        assert!(error.contains(words), "{words}\n{error}");
    }
    let one = Scenario::parse(MADE).expect_err("there are several").to_string();
    assert!(one.contains("7 scenarios"), "{one}");
    let summary = "[[summary]]\nid = \"s\"\nclaim = \"as good\"\nover = \"trace\"\n";
    let error = Scenario::parse(&format!("{SMALL}{summary}")).expect_err("there is no axis").to_string();
    assert!(error.contains("no axis is called \"trace\""), "{error}");
    let variable = MADE.replace("traces/made", "$NO_SUCH_FOLDER/made");
    let all = Scenario::parse_all(&variable).expect("scenarios");
    assert!(all.iter().all(|scenario| scenario.missing_variable() == Some("NO_SUCH_FOLDER")));
}

/// A small file cannot become a large one by naming a long value again and again.
#[test]
fn what_is_filled_in_is_bounded() {
    let about = "{long}".repeat(1000);
    let long = "x".repeat(100_000);
    let text = format!(
        "name = \"x\"\nabout = \"{about}\"\n[[axis]]\nname = \"long\"\nvalues = [\"{long}\"]\n{SMALL}"
    )
    .replacen("name = \"small\"", "", 1);
    let error = Scenario::parse_all(&text).expect_err("it is too much").to_string();
    assert!(error.contains("bytes"), "{}", &error[error.len() - 200..]);
}

/// Cut anywhere, or with any byte changed, a file is some scenarios or an error.
#[test]
fn damaged_files_are_refused_or_read() {
    for end in 0..MADE.len() {
        let _ = Scenario::parse_all(&MADE[..end]);
        let mut bytes = MADE.as_bytes().to_vec();
        bytes[end] = b"9-\"[]{}\n"[end % 8];
        let _ = Scenario::parse_all(&String::from_utf8(bytes).expect("ASCII"));
    }
}
