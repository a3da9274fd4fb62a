//! Whether a device is steady, with the figures by which the specification decides it: over the measurement window the
//! mean, the excursion of the data, and the slope of the line of least squares.

use super::run::Steady;
use crate::report::Table;
use crate::report::units::three;
use crate::stats::{Rule, SniaRule};

/// The specification's steady state determination of one set of rounds.
pub(super) fn determination(steady: &Steady) -> Table {
    let facts = steady.steadiness.reached.or(steady.steadiness.last);
    let rule = match steady.steadiness.rule {
        Rule::Snia(rule) => rule,
        Rule::Fio(_) => SniaRule::default(),
    };
    let unit = if steady.tracks_latency { "us" } else { "IOPS" };
    let what = if steady.tracks_latency { "mean response" } else { "IOPS" };
    let given = |field: &str, value: String| vec![field.to_owned(), value];
    let mut rows = vec![
        given("tracking variable", format!("{what} of {}", steady.tracked().name)),
        given("rounds run", steady.steadiness.rounds.to_string()),
        given(
            "steady state reached",
            if steady.steadiness.reached.is_some() { "yes" } else { "no" }.to_owned(),
        ),
    ];
    match facts {
        None => rows.push(given("measurement window", format!("none: it takes {} rounds", rule.rounds))),
        Some(facts) => {
            let first = facts.round + 1 - facts.rounds as u64;
            let middle = (first + facts.round) as f64 / 2.0;
            let of_mean = |value: f64| value / facts.mean.abs() * 100.0;
            let held = |value: f64, allowed: f64| {
                format!(
                    "{} {unit}, {} % of the mean; allowed: {} % ({} {unit}): {}",
                    three(value),
                    three(of_mean(value)),
                    three(allowed * 100.0),
                    three(allowed * facts.mean.abs()),
                    if value <= allowed * facts.mean.abs() * (1.0 + 1e-9) { "within" } else { "beyond" }
                )
            };
            let start = facts.mean - facts.slope * middle;
            let sign = if start < 0.0 { '-' } else { '+' };
            rows.extend([
                given("measurement window", format!("rounds {first} to {}", facts.round)),
                given("mean of the window", format!("{} {unit}", three(facts.mean))),
                given("data excursion (highest less lowest)", held(facts.excursion(), rule.excursion)),
                given("slope excursion (of the linear fit, over the window)", held(facts.rise(), rule.slope)),
                given("slope of the linear fit", format!("{} {unit} by round", three(facts.slope))),
                given(
                    "linear fit",
                    format!("{} * round {sign} {} {unit}", three(facts.slope), three(start.abs())),
                ),
            ]);
        }
    }
    Table {
        caption: "Steady state determination".to_owned(),
        head: ["field", "value"].map(str::to_owned).into(),
        rows,
    }
}
