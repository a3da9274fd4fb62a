//! The wear budget: what the engine writes to the fast device of its own accord stays within it, and nothing else waits
//! for it.

use crate::story::{BLOCK, CHUNK, Story};
use bimetal_engine::options::WearBudgetStatus;
use bimetal_engine::why::{Outcome, Reason};
use bimetal_sim::scenario::{Phase, Report, Scenario, WrittenBy};
use bimetal_units::{FAST, Nanos};
use std::path::Path;

/// Two hours of reads and a few writes of which the hot part changes, on a volume that is too large for its fast tier.
const STORY: &str = r#"
name = "a budget"
[volume]
fast = { model = "ssd-128gb-2012", size = "512M" }
slow = { model = "disk-1tb-2012", size = "4G" }
BUDGET
[[phase]]
name = "fill"
load = [{ pattern = "sequential", block = "1M", depth = 2 }]
for = "95%"
[[phase]]
name = "first"
load = [
    { pattern = "zipf", theta = 1.1, read_percent = 100, block = "4K", rate_iops = 10, span = "50%" },
    { pattern = "random", block = "4K", rate_iops = 2, span = "90%" },
]
seconds = 3600
[[phase]]
name = "second"
load = [
    { pattern = "zipf", theta = 1.1, read_percent = 100, block = "4K", rate_iops = 10, from = "45%", span = "50%" },
    { pattern = "random", block = "4K", rate_iops = 2, span = "90%" },
]
seconds = 3600
[[phase]]
name = "rest"
pause_seconds = 600
"#;
const DAY_SECONDS: f64 = 86_400.0;

fn report(budget: &str) -> Report {
    let scenario = Scenario::parse(&STORY.replace("BUDGET", budget)).expect("a scenario");
    bimetal_sim::scenario::run(&scenario, Path::new("."), &mut |_, _| {}).expect("it runs")
}

fn written_by(phase: &Phase) -> WrittenBy {
    phase.fast_written.expect("two devices").by.expect("a volume of ours")
}

/// Moves and copies of all phases so far, bytes, with how long it took, after each.
fn own_writes(report: &Report) -> Vec<(f64, u64)> {
    let (mut seconds, mut bytes) = (0.0, 0);
    let phases = report.phases.iter().map(|phase| {
        let by = written_by(phase);
        (seconds, bytes) = (seconds + phase.seconds, bytes + by.moves_bytes + by.copies_bytes);
        (seconds, bytes)
    });
    phases.collect()
}

#[test]
fn moves_and_copies_stay_within_the_budget_and_nothing_else_does() {
    const BUDGET_BYTES: f64 = (1u64 << 29) as f64;
    let (free, bound) = (report(""), report("wear_budget = \"512M\""));
    // A quarter of a day's budget is there when the volume is opened.
    let within = |(seconds, _): (f64, u64)| BUDGET_BYTES / 4.0 + BUDGET_BYTES * seconds / DAY_SECONDS;
    for after in own_writes(&bound) {
        assert!(after.1 as f64 <= within(after), "{after:?}");
    }
    let [spent, unbound] = [&bound, &free].map(|report| own_writes(report).pop().expect("phases"));
    assert!(spent.1 as f64 > within(spent) / 2.0, "{spent:?}: the budget is made use of");
    assert!(unbound.1 as f64 > 1.5 * within(unbound), "{unbound:?}");
    // What lands is as much, it is brought home, and chunks go down. In a rest nothing lands: what is logged there are
    // the moves themselves.
    for (bound, free) in bound.phases.iter().zip(&free.phases) {
        assert_eq!(bound.failures, 0);
        let [bound_log, free_log] = [bound, free].map(|phase| written_by(phase).log_bytes as f64);
        assert!(
            bound.writes.is_none() || bound_log >= 0.5 * free_log,
            "{}: {bound_log} of {free_log} bytes",
            bound.name
        );
    }
    let all = |report: &Report, of: fn(&Phase) -> u64| report.phases.iter().map(of).sum::<u64>();
    assert!(all(&bound, |phase| phase.destaged_bytes) > all(&free, |phase| phase.destaged_bytes) / 2);
    assert!(all(&bound, |phase| phase.demoted_bytes) > 0);
}

/// A slow chunk stays where it is for a while. Then some of it is written: that lands, and is given time to be brought home.
fn does_not_rise(s: &mut Story, chunk: u64) {
    for _ in 0..5 {
        assert!(s.is_slow(chunk));
        s.wait(2 * Nanos::SECOND);
    }
    s.write(chunk + BLOCK, BLOCK, 0x22);
    s.flush();
    s.wait(20 * Nanos::SECOND);
}

#[test]
fn without_any_budget_only_what_is_pinned_rises_and_it_is_said_why() {
    let mut s = Story::begin(32, 64);
    let chunk = s.slow_chunk();
    s.stop();
    (s.tuning.promote_touches, s.tuning.wear_bytes_per_day) = (1, Some(0));
    s.open().expect("it opens");
    does_not_rise(&mut s, chunk);
    let status = s.engine().status();
    assert_eq!((status.landed_bytes, status.promoted_chunks), (0, 0));
    assert_eq!((status.wear.moved_bytes, status.wear.copied_bytes), (0, 0));
    assert_eq!(status.wear.budget, Some(WearBudgetStatus { bytes_per_day: 0, left_bytes: 0 }));
    let now = s.world.now();
    let why = s.engine().why(now, chunk).expect("a chunk");
    assert!(why.wear_budget_spent && why.rises_again.is_none() && why.heat >= why.rises_at, "{why:?}");

    s.engine().begin_pin(now, chunk, 1, Some(FAST)).expect("it may be pinned");
    while s.engine().take_pin_answer().is_none() {
        s.step();
    }
    s.wait(20 * Nanos::SECOND);
    let why = s.engine().why(now, chunk).expect("a chunk");
    let last = why.last.expect("it was moved");
    assert_eq!((last.reason, last.outcome), (Reason::Pinned, Outcome::Moved));
    assert!(!s.is_slow(chunk));
    let moved = s.engine().status().wear.moved_bytes;
    assert!((2 * BLOCK..=CHUNK).contains(&moved), "{moved}: it is counted");
    s.stop();
    assert_eq!(s.check().expect("it can be checked"), [""; 0]);
}

#[test]
fn what_is_hot_rises_when_the_budget_is_earned_again() {
    let mut s = Story::begin(32, 64);
    let chunk = s.slow_chunk();
    s.stop();
    // Two chunks in a day, and half of one to begin with.
    (s.tuning.promote_touches, s.tuning.wear_bytes_per_day) = (1, Some(2 * CHUNK));
    s.open().expect("it opens");
    assert!(s.is_slow(chunk));
    s.wait(60 * Nanos::SECOND);
    let now = s.world.now();
    let why = s.engine().why(now, chunk).expect("a chunk");
    let again = why.rises_again.expect("it will rise").since(now);
    let hour = 3600 * Nanos::SECOND;
    assert!((5 * hour..=6 * hour).contains(&again), "{again}");
    assert_eq!(s.engine().status().promoted_chunks, 0);
    // Or it would cool down.
    for _ in 0..5 {
        assert!(s.is_slow(chunk));
        s.wait(again / 5);
    }
    // A disk at rest is not woken for it.
    assert_eq!(s.engine().status().promoted_chunks, 0);
    assert!(s.is_slow(chunk));
    s.wait(60 * Nanos::SECOND);
    assert!(s.engine().status().promoted_chunks > 0);
    assert!(!s.is_slow(chunk));
}

#[test]
fn while_moves_are_paused_nothing_rises_and_what_landed_is_brought_home() {
    let mut s = Story::begin(32, 64);
    let chunk = s.slow_chunk();
    s.stop();
    s.tuning.promote_touches = 1;
    s.open().expect("it opens");
    let now = s.world.now();
    s.engine().pause_moves(now, true);
    s.engine().begin_pin(now, chunk, 1, Some(FAST)).expect("it may be pinned");
    while s.engine().take_pin_answer().is_none() {
        s.step();
    }
    does_not_rise(&mut s, chunk);
    let status = s.engine().status();
    assert!(status.moves_paused);
    assert_eq!((status.landed_bytes, status.promoted_chunks, status.copied_bytes), (0, 0, 0));
    let now = s.world.now();
    let why = s.engine().why(now, chunk).expect("a chunk");
    assert!(why.moves_paused && !why.wear_budget_spent, "{why:?}");

    s.engine().pause_moves(now, false);
    s.wait(20 * Nanos::SECOND);
    assert!(!s.is_slow(chunk) && !s.engine().status().moves_paused);
    s.stop();
    assert_eq!(s.check().expect("it can be checked"), [""; 0]);
}
