//! The same proof for the session with an export: each bug planted there is found by plans whose slow device is one.

use bimetal_remote::bugs::{Bug, plant};
use bimetal_torture::arena::ArenaMemory;
use bimetal_torture::{draw, run_seed};

/// Crash-and-recover cycles in which each must be found.
const BUDGET_CYCLES: u64 = 20_000;
/// Cycles in which nothing may be found without one.
const CLEAN_CYCLES: u64 = 200;
const FIRST_SEED: u64 = 1000;

/// The first seed with an export that finds a violation, with the cycles it took; or none in so many cycles.
fn hunt(bug: Option<Bug>, budget_cycles: u64) -> Option<(u64, u64, String)> {
    plant(bug);
    let memory = ArenaMemory::default();
    let mut cycles = 0;
    let mut seeds = (FIRST_SEED..).filter(|&seed| draw::plan(seed).export.is_some());
    while cycles < budget_cycles {
        let seed = seeds.next()?;
        let outcome = run_seed(seed, &memory);
        // A seed that ends at once must not make the hunt endless.
        cycles += outcome.stats.cycles.max(1);
        if let Some(what) = outcome.violation {
            return Some((seed, cycles, what));
        }
    }
    None
}

#[test]
fn no_bug_no_violation() {
    if let Some((seed, _, what)) = hunt(None, CLEAN_CYCLES) {
        panic!("seed {seed}: {what}");
    }
}

fn must_be_found(bug: Bug) {
    match hunt(Some(bug), BUDGET_CYCLES) {
        Some((seed, cycles, what)) => println!("{bug:?}: seed {seed}, after {cycles} cycles: {what}"),
        None => panic!("{bug:?} was not found in {BUDGET_CYCLES} cycles from seed {FIRST_SEED}"),
    }
}

macro_rules! planted {
    ($($test:ident: $bug:ident),* $(,)?) => {
        $(
            #[test]
            fn $test() {
                must_be_found(Bug::$bug);
            }
        )*

        /// A variant that is not in the list does not compile.
        #[allow(dead_code, reason = "it is there to be compiled")]
        fn every_bug_has_a_test(bug: Bug) {
            match bug {
                $(Bug::$bug => {})*
                // The tests of the session alone find these. No seed is known for the first two. After the third the engine takes
                // no more changes. An engine flushes once more before it shows what it found, which hides the fourth. Here
                // nobody else takes an export, which the last two are about.
                Bug::UncutJournal
                | Bug::LateAnswerTaken
                | Bug::FailedFlushForgotten
                | Bug::FirstFlushSpared
                | Bug::NobodyLooks
                | Bug::LostWhileSending => {}
            }
        }
    };
}

planted! {
    nothing_rewritten: NothingRewritten,
    hasty_rewriting: HastyRewriting,
    greedy_flush: GreedyFlush,
    request_dropped: RequestDropped,
    flush_answered_over_break: FlushAnsweredOverBreak,
    timeout_is_success: TimeoutIsSuccess,
}
