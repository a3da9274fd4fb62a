//! The head of the specification's report: under which conditions a test ran.

use super::Test;
use super::loads::{DEPTH, rounds};
use super::run::{Found, PRECONDITION_BYTES, PRECONDITION_TIMES};
use super::stages::CROSS_DEPTH;
use crate::record::Run;
use crate::report::Table;
use crate::report::units::{moment, three};

/// What is said where nothing is known.
const UNKNOWN: &str = "not known";

/// Its fields; what the lab cannot tell is said to be not known.
pub(super) fn header(found: &Found, run: &Run) -> Table {
    let mut rows = device(found, run);
    rows.extend(conditions(found));
    Table { caption: "Report header".to_owned(), head: ["field", "value"].map(str::to_owned).into(), rows }
}

fn given(field: &str, value: String) -> Vec<String> {
    vec![field.to_owned(), value]
}

/// When what was tested, and with what.
fn device(found: &Found, run: &Run) -> Vec<Vec<String>> {
    let machine = &run.environment;
    let target = machine.targets.iter().next();
    let facts = target.map(|(_, facts)| facts);
    let detail = |names: &[&str]| {
        let of = |name: &&str| Some(facts?.details.get(*name)?.clone()).filter(|value| !value.is_empty());
        names.iter().find_map(of).unwrap_or_else(|| UNKNOWN.to_owned())
    };
    let or_unknown = |value: &str| if value.is_empty() { UNKNOWN.to_owned() } else { value.to_owned() };
    let capacity = facts.map_or(0, |facts| facts.size_bytes);
    let memory = match machine.memory_bytes {
        0 => String::new(),
        bytes => format!(", {} of memory", crate::report::units::bytes(bytes)),
    };
    let clock = if run.virtual_time { "; simulated, in virtual time" } else { "" };
    // The kernel says what the cache does, not whether it could be turned off.
    let cache = match detail(&["write cache"]) {
        cache if cache == "write back" => "enabled (write back)".to_owned(),
        cache if cache == "write through" => "disabled, or none (write through)".to_owned(),
        cache => cache,
    };
    let name = target.map_or(UNKNOWN, |(name, _)| name.as_str());
    vec![
        given("test run date", moment(run.began_unix_ms)),
        given("test", format!("{}, after SNIA SSS PTS 2.0.2", found.test.name())),
        given("test software", or_unknown(&machine.program)),
        given(
            "test platform",
            format!(
                "{}; {} x {}{memory}",
                or_unknown(&machine.kernel),
                machine.processors,
                or_unknown(&machine.processor)
            ),
        ),
        given("device under test", format!("{name}{clock}")),
        given("device kind", facts.map_or(UNKNOWN.to_owned(), |facts| or_unknown(&facts.kind))),
        given("vendor", detail(&["vendor"])),
        given("model", detail(&["model"])),
        given("firmware revision", detail(&["firmware rev", "rev"])),
        given("form factor", UNKNOWN.to_owned()),
        given("device interface", detail(&["transport"])),
        given("capacity", if capacity > 0 { format!("{capacity} bytes") } else { UNKNOWN.to_owned() }),
        given("volatile write cache", cache),
    ]
}

/// How it was prepared, and what was asked of it.
fn conditions(found: &Found) -> Vec<Vec<String>> {
    let rounds = !rounds(found.test).is_empty();
    let purge = match found.purged {
        true => "TRIM of all that is measured on",
        false => "none: the target takes no TRIM",
    };
    let independent = match rounds {
        true => format!(
            "{PRECONDITION_TIMES} times all of it, in order, {} KiB, {DEPTH} in flight",
            PRECONDITION_BYTES >> 10
        ),
        false => "none: the test begins with the purge".to_owned(),
    };
    // One thread hands over whatever the specification spreads over several.
    let outstanding = match found.test {
        Test::Latency => "1".to_owned(),
        Test::CrossStimulus => format!("{CROSS_DEPTH} of 1 MiB, {DEPTH} of 8 KiB"),
        _ => DEPTH.to_string(),
    };
    vec![
        given("purge", purge.to_owned()),
        given("workload-independent preconditioning (WIPC)", independent),
        given("workload-dependent preconditioning (WDPC)", dependent(found, rounds)),
        given("active range amount", format!("{} bytes, from the target's start", found.span_bytes)),
        given("active range segments", "1".to_owned()),
        given("data pattern", "random".to_owned()),
        given("outstanding I/O (OIO) by thread", outstanding),
        given("thread count", "1".to_owned()),
        given("round of one kind of load", format!("{} s", three(found.round_seconds))),
        given("times", format!("{} of the specification's", found.scale)),
        given("seed", found.seed.to_string()),
    ]
}

fn dependent(found: &Found, rounds: bool) -> String {
    let ran: Vec<String> = found.steady.iter().map(|steady| steady.steadiness.rounds.to_string()).collect();
    match rounds {
        true => format!("the test's own loads, {} rounds", ran.join(", then ")),
        false => "none".to_owned(),
    }
}
