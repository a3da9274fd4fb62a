//! The head of the specification's report: under which conditions a test ran.

use super::Test;
use super::loads::{DEPTH, rounds};
use super::run::{Found, PRECONDITION_BYTES, PRECONDITION_TIMES};
use super::stages::CROSS_DEPTH;
use crate::report::Table;
use crate::report::units::three;

/// Its fields, as far as the lab sets them; the device, the system and its software stand in the record's environment.
pub(super) fn header(found: &Found) -> Table {
    let rounds = !rounds(found.test).is_empty();
    let given = |field: &str, value: String| vec![field.to_owned(), value];
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
    let outstanding = match found.test {
        Test::Latency => "1: 1 thread, queue depth 1".to_owned(),
        Test::CrossStimulus => format!("1 thread; 1 MiB: queue depth {CROSS_DEPTH}, 8 KiB: {DEPTH}"),
        _ => format!("{DEPTH}: 1 thread, queue depth {DEPTH}"),
    };
    let rows = vec![
        given("purge", purge.to_owned()),
        given("workload-independent preconditioning (WIPC)", independent),
        given("workload-dependent preconditioning (WDPC)", dependent(found, rounds)),
        given("active range", format!("{} bytes from the target's start, in one segment", found.span_bytes)),
        given("data pattern", "random".to_owned()),
        given("outstanding I/O (OIO)", outstanding),
        given("round of one kind of load", format!("{} s", three(found.round_seconds))),
        given("times", format!("{} of the specification's", found.scale)),
        given("seed", found.seed.to_string()),
    ];
    Table { caption: "Report header".to_owned(), head: ["field", "value"].map(str::to_owned).into(), rows }
}

fn dependent(found: &Found, rounds: bool) -> String {
    let ran: Vec<String> = found.steady.iter().map(|steady| steady.steadiness.rounds.to_string()).collect();
    match rounds {
        true => format!("the test's own loads, {} rounds", ran.join(", then ")),
        false => "none".to_owned(),
    }
}
