//! Draws lives without the slow device, in which the volume is written to all the same. From a stream of its own: whatever else a
//! seed does stays as it was where it has none.

use super::*;

/// The generator's number.
const ALONE: u64 = 0x616c_6f6e;
/// One seed in so many has such lives, ...
const ONE_IN: u32 = 8;
/// ... or in so many where devices are lost all the time, ...
const LOST_ONE_IN: u32 = 2;
/// ... up to so many in a row, here and there.
const MOST_IN_A_ROW: u64 = 3;

/// Puts such lives between others. Not where the slow device is an export, which goes away and comes back in ways of its own, nor
/// where devices are damaged: what is lost then is no device's; nor where it has an image, which nobody would keep meanwhile.
pub(super) fn lives(plan: &Plan, lives: &mut Vec<Life>) {
    let mut rng = Rng::new(plan.seed, ALONE);
    let one_in = if plan.losses { LOST_ONE_IN } else { ONE_IN };
    if plan.export.is_some() || plan.protect.is_some() || plan.latent || !rng.one_in(one_in) {
        return;
    }
    let drawn = std::mem::take(lives);
    for life in drawn {
        // Before the first there is nothing to be without.
        let count = if !lives.is_empty() && rng.one_in(2) { rng.range(1, MOST_IN_A_ROW + 1) } else { 0 };
        lives.extend((0..count).map(|_| alone(&mut rng, plan)));
        lives.push(life);
    }
}

fn alone(rng: &mut Rng, plan: &Plan) -> Life {
    let drawn = life(rng, plan, false);
    let opening = Opening { crashes: drawn.opening.crashes, ..Opening::default() };
    Life { alone: true, opening, rates: FaultRates::default(), bad_sectors: 0, check: false, ..drawn }
}
