//! Looks for a violation from a seed on, in plans of one kind: none where nothing is planted, one soon where something is.

use bimetal_torture::arena::ArenaMemory;
use bimetal_torture::plan::Plan;
use bimetal_torture::run_plan;

/// Crash-and-recover cycles in which a planted bug must be found from its seed.
const BUDGET_CYCLES: u64 = 3_000;
/// Cycles in which nothing may be found without one; campaigns are a command.
const CLEAN_CYCLES: u64 = 300;
const FIRST_SEED: u64 = 1000;

/// The first seed that finds a violation, with the cycles it took; or none in so many.
fn hunt(draw: fn(u64) -> Plan, first_seed: u64, budget_cycles: u64) -> Option<(u64, u64, String)> {
    let memory = ArenaMemory::default();
    let mut cycles = 0;
    for seed in first_seed.. {
        let outcome = run_plan(draw(seed), &memory, false);
        // A seed that ends at once must not make the hunt endless.
        cycles += outcome.stats.cycles.max(1);
        if let Some(what) = outcome.violation {
            return Some((seed, cycles, what));
        }
        if cycles >= budget_cycles {
            break;
        }
    }
    None
}

/// Nothing is planted, and nothing is found.
pub fn must_be_clean(draw: fn(u64) -> Plan) {
    if let Some((seed, _, what)) = hunt(draw, FIRST_SEED, CLEAN_CYCLES) {
        panic!("seed {seed}: {what}");
    }
}

/// What is planted is found, by a violation that says this.
pub fn must_be_found(draw: fn(u64) -> Plan, bug: &str, first_seed: u64, says: &str) {
    match hunt(draw, first_seed, BUDGET_CYCLES) {
        Some((seed, cycles, what)) if what.contains(says) => {
            println!("{bug}: seed {seed}, after {cycles} cycles: {what}");
        }
        Some((seed, _, what)) => panic!("{bug}, seed {seed}: {what}, which is not {says:?}"),
        None => panic!("{bug} was not found in {BUDGET_CYCLES} cycles from seed {first_seed}"),
    }
}
