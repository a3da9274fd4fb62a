//! Draws whether the slow device is an export of a server, and what becomes of its connections. From a stream of its own: plans
//! without one stay as they are.

use super::{MS, steps};
use crate::disk::CutStyle;
use crate::plan::{Life, Plan};
use crate::world::Export;
use crate::world::storm::Break;
use bimetal_units::rng::Rng;

const STREAM: u64 = 0x6578_706f;
/// One seed in so many has one.
const ONE_IN: u32 = 4;
const SECOND: u64 = 1000 * MS;

/// The export that a seed has for a slow device.
pub(super) fn draw(seed: u64) -> Option<Export> {
    let mut rng = Rng::new(seed, STREAM);
    if !rng.one_in(ONE_IN) {
        return None;
    }
    let most_bytes = rng.pick(&[4 << 10, 64 << 10, 1 << 20, 32 << 20]);
    // A longest request must fit; and where each few blocks wait for a flush, nothing else is seen.
    let least = u64::from(most_bytes.clamp(64 << 10, 1 << 20));
    Some(Export {
        connections: rng.pick(&[1, 1, 2, 4]),
        fua: !rng.one_in(3),
        trim: !rng.one_in(3),
        structured: rng.one_in(2),
        most_bytes,
        journal_bytes: rng.pick(&[least, 4 * least, 64 << 20, 64 << 20]),
        // Mostly longer than it is away: whoever waits gets no error then, and none is excused.
        patience_ns: rng.pick(&[120 * SECOND, 120 * SECOND, 120 * SECOND, SECOND]),
        latency_ns: rng.pick(&[MS / 20, MS / 2, 20 * MS]),
    })
}

/// Gives the lives of a plan with an export their breaks.
pub(super) fn lives(plan: &Plan, lives: &mut [Life]) {
    if plan.export.is_none() {
        return;
    }
    let mut rng = Rng::new(plan.seed, STREAM + 1);
    for life in lives {
        // A server that forgets what it holds without dying, or says nothing of it, is no server to be used.
        for storm in [&mut life.storm, &mut life.opening.storm] {
            storm.vanish = storm.vanish.take().filter(|vanish| vanish.device == 0);
        }
        if !rng.one_in(3) {
            life.storm.breaks = (0..rng.range(1, 5)).map(|_| one(&mut rng, 8)).collect();
        }
        if rng.one_in(4) {
            life.opening.storm.breaks = (0..rng.range(1, 3)).map(|_| one(&mut rng, 5)).collect();
        }
    }
}

fn one(rng: &mut Rng, bits: u64) -> Break {
    Break {
        after: steps(rng, bits),
        down_ns: rng.pick(&[0, MS, 500 * MS, 5 * SECOND, 40 * SECOND]),
        dies: rng.one_in(2).then(|| rng.pick(&CutStyle::ALL)),
        late: rng.one_in(4),
    }
}
