//! Volumes that have an image on their slow disk, with everything that befalls them. The image alone is what the volume was at one
//! freeze; what goes bad of it is less, and never wrong; and nobody waits for ever for it. Planted bugs show that this is seen.

use crate::hunt::{must_be_clean, must_be_found};
use bimetal_engine::bugs as of_engine;
use bimetal_protect::bugs::{Bug, plant};
use bimetal_torture::draw::with_images;

#[test]
fn no_bug_no_violation() {
    must_be_clean(with_images);
}

macro_rules! planted {
    ($($test:ident: $bug:ident at $seed:literal),* $(,)?) => {
        $(
            #[test]
            fn $test() {
                plant(Some(Bug::$bug));
                must_be_found(with_images, stringify!($bug), $seed, "");
                plant(None);
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
    refused_at_once: RefusedAtOnce at 2023,
    copied_for_ever: CopiedForEver at 1412,
    absence_ignored: AbsenceIgnored at 1276,
    nothing_kept: NothingKept at 1001,
    kept_forever: KeptForever at 1001,
    committed_unflushed: CommittedUnflushed at 1005,
    end_not_noted: EndNotNoted at 1001,
    region_not_opened: RegionNotOpened at 1009,
}

/// One of the engine, which only such volumes show soon.
fn must_be_found_of_engine(bug: of_engine::Bug, first_seed: u64, says: &str) {
    of_engine::plant(Some(bug));
    must_be_found(with_images, &format!("{bug:?}"), first_seed, says);
    of_engine::plant(None);
}

#[test]
fn second_superblock_where_the_device_ends() {
    must_be_found_of_engine(of_engine::Bug::SecondAtDeviceEnd, 1092, "Superblock at byte 0");
}
