//! Volumes whose devices take one another's place, with and without an image, with everything that befalls them: begun amid load, gone on
//! with after crashes, cancelled, done without. Nothing that was flushed is lost, whichever device is the volume's by then, and nobody
//! waits for ever. Planted bugs show that this is seen.

use crate::hunt::{must_be_clean, must_be_found};
use bimetal_engine::bugs as of_engine;
use bimetal_protect::bugs as of_images;
use bimetal_replace::bugs::{Bug, plant};
use bimetal_torture::draw::with_replacements;

#[test]
fn no_bug_no_violation() {
    must_be_clean(with_replacements);
}

macro_rules! planted {
    ($($test:ident: $bug:ident at $seed:literal),* $(,)?) => {
        $(
            #[test]
            fn $test() {
                plant(Some(Bug::$bug));
                must_be_found(with_replacements, stringify!($bug), $seed, "");
                plant(None);
            }
        )*
    };
}

// The first ones need an engine that has memory and patience of its own: lives of a replacement alone do not find them.
planted! {
    memory_shared: MemoryShared at 1021,
    elsewhere_is_evidence: ElsewhereIsEvidence at 1134,
    begun_amid_writes: BegunAmidWrites at 1453,
    old_alone: OldAlone at 1000,
    piece_not_fenced: PieceNotFenced at 1075,
    open_not_copied: OpenNotCopied at 1116,
}

/// An image could not be opened any more once its volume had another fast device: the copy had the superblocks of the one before.
#[test]
fn replaced_unnoted() {
    of_images::plant(Some(of_images::Bug::ReplacedUnnoted));
    must_be_found(with_replacements, "ReplacedUnnoted", 1008, "");
    of_images::plant(None);
}

/// The other device may name the successor, which failed: whatever is written to the old one fails at once, maps of an image as well. They
/// were written again at once, and nobody else had a turn.
#[test]
fn map_again_at_once() {
    of_images::plant(Some(of_images::Bug::MapAgainAtOnce));
    must_be_found(with_replacements, "MapAgainAtOnce", 600_910, "spins");
    of_images::plant(None);
}

/// A block of what is cold on the fast tier cannot be read. What held it was chosen to make room, again and again; what was moved beside
/// it went up and down, with a record in the log each time, a thousand times a second on an idle volume.
#[test]
fn failed_move_again() {
    of_engine::plant(Some(of_engine::Bug::FailedMoveAgain));
    must_be_found(with_replacements, "FailedMoveAgain", 601_071, "runaway");
    of_engine::plant(None);
}
