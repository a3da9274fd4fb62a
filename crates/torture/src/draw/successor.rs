//! Draws in which lives a device is to take another's place. From a stream of its own.

use super::{Life, MS, Plan};
use crate::plan::Successor;
use bimetal_units::rng::Rng;
use bimetal_units::{FAST, SLOW};

const STREAM: u64 = 0x7375_6363;
/// Of the volumes one in so many has an image, too.
const PROTECTED_ONE_IN: u32 = 3;
/// Of the lives, so many in four have a device that is to take another's place, if none is there yet.
const BEGIN_IN_FOUR: u64 = 3;
/// One in so many is cancelled now and then.
const CANCELS_ONE_IN: u32 = 4;
/// Of the seeds, one in so many has sectors go bad, and what cannot be read of a slow device left out in every second life.
const BAD_ONE_IN: u32 = 3;

/// Whether the volume of a seed has an image as well.
pub(super) fn is_protected(seed: u64) -> bool {
    Rng::new(seed, STREAM).one_in(PROTECTED_ONE_IN)
}

/// Draws when one begins, and gives clients pauses in which it may come to its end. Nothing but errors, bad sectors, delays,
/// absences and crashes befalls the devices: what else may is drawn without one.
pub(super) fn lives(plan: &Plan, lives: &mut [Life]) {
    if !plan.replaces {
        return;
    }
    let mut rng = Rng::new(plan.seed, STREAM + 1);
    let mut bad = Rng::new(plan.seed, STREAM + 2);
    let goes_bad = bad.one_in(BAD_ONE_IN);
    for life in lives {
        (life.bad_sectors, life.decays, life.torn_sectors, life.image_harms) = (0, 0, 0, 0);
        if goes_bad {
            life.bad_sectors = bad.below(4) as u32;
        }
        (life.recreate, life.alone) = (false, false);
        for storm in [&mut life.storm, &mut life.opening.storm] {
            storm.aims.clear();
        }
        life.successor = (rng.below(4) < BEGIN_IN_FOUR).then(|| Successor {
            tier: rng.pick(&[FAST, SLOW]),
            after: rng.below(u64::from(life.after).max(1)) as u32,
            cancel_one_in: if rng.one_in(CANCELS_ONE_IN) { 200 } else { 0 },
            takes_over_one_in: rng.pick(&[1, 1, 20, 200]),
            leaves_unreadable: goes_bad && bad.one_in(2),
            was_here: bad.one_in(2),
        });
        let one_in = rng.pick(&[0, 40, 10]);
        for op in &mut life.ops {
            if rng.one_in(one_in) {
                op.pause_ns = rng.pick(&[MS, 100 * MS, 700 * MS, 3000 * MS]);
            }
            // What could not be read is read again after a minute.
            if goes_bad && bad.one_in(40) {
                op.pause_ns = 70_000 * MS;
            }
        }
    }
}
