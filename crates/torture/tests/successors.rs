//! Volumes whose devices take one another's place, with and without an image, with everything that befalls them: begun amid load, gone on
//! with after crashes, cancelled, done without. Nothing that was flushed is lost, whichever device is the volume's by then, and nobody
//! waits for ever. Planted bugs show that this is seen.

use bimetal_protect::bugs as of_images;
use bimetal_replace::bugs::{Bug, plant};
use bimetal_torture::arena::ArenaMemory;
use bimetal_torture::{draw, run_plan};

/// Crash-and-recover cycles in which a planted bug must be found from its seed.
const BUDGET_CYCLES: u64 = 3_000;
/// Cycles in which nothing may be found without one; campaigns are a command.
const CLEAN_CYCLES: u64 = 300;
const FIRST_SEED: u64 = 1000;

/// The first seed that finds a violation, with the cycles it took; or none in so many.
fn hunt(first_seed: u64, budget_cycles: u64) -> Option<(u64, u64, String)> {
    let memory = ArenaMemory::default();
    let mut cycles = 0;
    for seed in first_seed.. {
        let outcome = run_plan(draw::with_replacements(seed), &memory, false);
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

#[test]
fn no_bug_no_violation() {
    if let Some((seed, _, what)) = hunt(FIRST_SEED, CLEAN_CYCLES) {
        panic!("seed {seed}: {what}");
    }
}

fn must_be_found(name: &str, first_seed: u64) {
    match hunt(first_seed, BUDGET_CYCLES) {
        Some((seed, cycles, what)) => println!("{name}: seed {seed}, after {cycles} cycles: {what}"),
        None => panic!("{name} was not found in {BUDGET_CYCLES} cycles from seed {first_seed}"),
    }
}

macro_rules! planted {
    ($($test:ident: $bug:ident at $seed:literal),* $(,)?) => {
        $(
            #[test]
            fn $test() {
                plant(Some(Bug::$bug));
                must_be_found(stringify!($bug), $seed);
                plant(None);
            }
        )*
    };
}

// The first ones need an engine that has memory and patience of its own: lives of a replacement alone do not find them.
planted! {
    memory_shared: MemoryShared at 1006,
    elsewhere_is_evidence: ElsewhereIsEvidence at 1134,
    other_flush_error_kept: OtherFlushErrorKept at 3_002_206,
    begun_amid_writes: BegunAmidWrites at 1360,
    old_alone: OldAlone at 1000,
    piece_not_fenced: PieceNotFenced at 1011,
    open_not_copied: OpenNotCopied at 1030,
}

/// An image could not be opened any more once its volume had another fast device: the copy had the superblocks of the one before.
#[test]
fn replaced_unnoted() {
    of_images::plant(Some(of_images::Bug::ReplacedUnnoted));
    must_be_found("ReplacedUnnoted", 1008);
    of_images::plant(None);
}
