//! Volumes that have an image on their slow disk, with everything that befalls them. The image alone is what the volume was at one
//! freeze; what goes bad of it is less, and never wrong; and nobody waits for ever for it. Planted bugs show that this is seen.

use bimetal_protect::bugs::{Bug, plant};
use bimetal_torture::arena::ArenaMemory;
use bimetal_torture::{draw, run_plan};

/// Crash-and-recover cycles in which a planted bug must be found from its seed.
const BUDGET_CYCLES: u64 = 3_000;
/// Cycles in which nothing may be found without one; campaigns are a command.
const CLEAN_CYCLES: u64 = 300;
const FIRST_SEED: u64 = 1000;

/// The first seed that finds a violation, with the cycles it took; or none in so many.
fn hunt(bug: Option<Bug>, first_seed: u64, budget_cycles: u64) -> Option<(u64, u64, String)> {
    plant(bug);
    let memory = ArenaMemory::default();
    let mut cycles = 0;
    for seed in first_seed.. {
        let outcome = run_plan(draw::with_images(seed), &memory, false);
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
    if let Some((seed, _, what)) = hunt(None, FIRST_SEED, CLEAN_CYCLES) {
        panic!("seed {seed}: {what}");
    }
}

fn must_be_found(bug: Bug, first_seed: u64) {
    match hunt(Some(bug), first_seed, BUDGET_CYCLES) {
        Some((seed, cycles, what)) => println!("{bug:?}: seed {seed}, after {cycles} cycles: {what}"),
        None => panic!("{bug:?} was not found in {BUDGET_CYCLES} cycles from seed {first_seed}"),
    }
}

macro_rules! planted {
    ($($test:ident: $bug:ident at $seed:literal),* $(,)?) => {
        $(
            #[test]
            fn $test() {
                must_be_found(Bug::$bug, $seed);
            }
        )*
    };
}

// The first ones only the engine's own ways show, or devices that go bad: the tests of the image alone do not look for them.
planted! {
    doubt_ignored: DoubtIgnored at 1091,
    break_ignored: BreakIgnored at 1101,
    memory_shared: MemoryShared at 1001,
    ended_quietly: EndedQuietly at 1186,
    stuck_for_good: StuckForGood at 1028,
    refused_at_once: RefusedAtOnce at 2020,
    copied_for_ever: CopiedForEver at 1412,
    absence_ignored: AbsenceIgnored at 1276,
    nothing_kept: NothingKept at 1001,
    kept_forever: KeptForever at 1001,
    committed_unflushed: CommittedUnflushed at 1005,
    end_not_noted: EndNotNoted at 1001,
    region_not_opened: RegionNotOpened at 1009,
}

/// One of the engine, which only such volumes show soon.
fn must_be_found_of_engine(bug: bimetal_engine::bugs::Bug, first_seed: u64, what: &str) {
    bimetal_engine::bugs::plant(Some(bug));
    let found = hunt(None, first_seed, BUDGET_CYCLES);
    bimetal_engine::bugs::plant(None);
    match found {
        Some((seed, cycles, found)) if found.contains(what) => {
            println!("{bug:?}: seed {seed}, after {cycles} cycles")
        }
        found => panic!("{bug:?} from seed {first_seed}: {found:?}"),
    }
}

#[test]
fn second_superblock_where_the_device_ends() {
    must_be_found_of_engine(bimetal_engine::bugs::Bug::SecondAtDeviceEnd, 1092, "Superblock at byte 0");
}

#[test]
fn left_region_stays_closed() {
    must_be_found_of_engine(
        bimetal_engine::bugs::Bug::LeftRegionStaysClosed,
        1326,
        "does not match its checksum",
    );
}
