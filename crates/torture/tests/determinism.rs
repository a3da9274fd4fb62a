//! The same seed tells the same story, twice.

use bimetal_torture::arena::ArenaMemory;
use bimetal_torture::{run_plan, run_seed};

#[test]
fn same_seed_same_event_hash() {
    let memory = ArenaMemory::default();
    for seed in 0..10 {
        let first = run_seed(seed, &memory);
        let second = run_seed(seed, &ArenaMemory::default());
        assert_eq!(first.stats.hash, second.stats.hash, "seed {seed}");
        assert_eq!(first.violation, second.violation, "seed {seed}");
        assert_eq!(first.plan.to_string(), second.plan.to_string(), "seed {seed}");
    }
}

/// A drawn plan replays what its drawing ran: shrinking starts from the same failure.
#[test]
fn a_drawn_plan_replays() {
    let memory = ArenaMemory::default();
    for seed in 0..5 {
        let first = run_seed(seed, &memory);
        let again = run_plan(first.plan.clone(), &memory, false);
        assert_eq!(first.stats.hash, again.stats.hash, "seed {seed}");
    }
}
