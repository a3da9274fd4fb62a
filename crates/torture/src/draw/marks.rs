//! Draws volumes whose slow device describes itself, and when it is looked at alone. From a stream of its own: whatever else a
//! seed does stays as it was where it has none.

use super::*;

/// The generator's number.
const MARKS: u64 = 0x6d61_726b;
/// One seed in so many has a volume with marks, ...
const ONE_IN: u32 = 3;
/// ... and one of its lives in so many is looked at without the fast device.
const SALVAGE_ONE_IN: u32 = 2;
/// The same where either device is lost all the time.
const LOST_ONE_IN: u32 = 3;

/// Gives a plan a volume with marks, now and then, and times in which regions are closed and opened again.
pub(super) fn plan(drawn: Plan) -> Plan {
    let mut rng = Rng::new(drawn.seed, MARKS);
    if !rng.one_in(ONE_IN) && !drawn.losses {
        return drawn;
    }
    let marking = if rng.one_in(4) { Marking::Strict } else { Marking::On };
    let tuning = Tuning {
        marks_quiet_ns: rng.pick(&[0, MS, 5 * MS, 50 * MS, 1000 * MS]),
        // Most of the time it is awake, or little would ever be good.
        rest_after_ns: rng.pick(&[50 * MS, 1000 * MS, 20_000 * MS, 20_000 * MS]),
        ..drawn.tuning
    };
    Plan { geometry: Geometry { marking, ..drawn.geometry }, tuning, ..drawn }
}

/// Draws which lives are looked at without the fast device.
pub(super) fn lives(plan: &Plan, lives: &mut [Life]) {
    if plan.geometry.marking == Marking::Off {
        return;
    }
    let mut rng = Rng::new(plan.seed, MARKS + 1);
    let one_in = if plan.losses { LOST_ONE_IN } else { SALVAGE_ONE_IN };
    lives.iter_mut().for_each(|life| life.salvage = rng.one_in(one_in));
}
