//! Draws how a volume is protected, and which lives are looked at by its image alone, or go on with that, and where the image itself goes bad. From a stream of its own.

use super::{Life, MS, Plan};
use crate::plan::Protect;
use bimetal_units::BLOCK_BYTES;
use bimetal_units::rng::Rng;

const STREAM: u64 = 0x696d_6167;
const BLOCK: u64 = BLOCK_BYTES as u64;
/// One life in so many begins with a look at what the image holds, before each opening, ...
const LOOK_ONE_IN: u32 = 2;
/// ... and one in so many with the loss of the fast device.
const LOST_ONE_IN: u32 = 4;
/// Of the seeds, one in so many has what says where the image is go bad, ...
const HARMS_ONE_IN: u32 = 3;
/// ... at the end of one life in so many.
const HARM_ONE_IN: u32 = 3;
/// A ring has room for so many groups of four pieces, and for what so many writes of a chunk replace.
const GROUPS: u64 = 8;

/// How the volume of a seed is protected.
pub(super) fn protect(seed: u64, chunk_bytes: u32) -> Protect {
    let mut rng = Rng::new(seed, STREAM);
    let piece_bytes = rng.pick(&[2 * BLOCK, 8 * BLOCK, u64::from(chunk_bytes).min(256 << 10)]);
    let least = GROUPS * (4 * piece_bytes).max(u64::from(chunk_bytes));
    Protect {
        seconds: rng.pick(&[1, 1, 2, 10]),
        strict: rng.one_in(4),
        ring_bytes: least * rng.pick(&[1, 1, 4, 16]),
        piece_bytes,
        region_blocks: rng.pick(&[4, 16, 256]),
        open_ahead: rng.pick(&[0, 1, 16]),
    }
}

/// Draws which lives are looked at, and gives their clients pauses in which an image may come to its end. Nothing but errors, delays
/// and crashes befalls the devices: what else may is drawn without an image.
pub(super) fn lives(plan: &Plan, lives: &mut [Life]) {
    if plan.protect.is_none() {
        return;
    }
    let mut rng = Rng::new(plan.seed, STREAM + 1);
    let harms = rng.one_in(HARMS_ONE_IN);
    for life in lives {
        (life.bad_sectors, life.decays, life.torn_sectors) = (0, 0, 0);
        for storm in [&mut life.storm, &mut life.opening.storm] {
            storm.aims.clear();
        }
        life.image = rng.one_in(LOOK_ONE_IN);
        life.fast_lost = rng.one_in(LOST_ONE_IN);
        life.image_harms = if harms && rng.one_in(HARM_ONE_IN) { rng.range(1, 4) as u32 } else { 0 };
        let one_in = rng.pick(&[0, 40, 10]);
        for op in &mut life.ops {
            if rng.one_in(one_in) {
                op.pause_ns = rng.pick(&[MS, 100 * MS, 700 * MS, 3000 * MS]);
            }
        }
    }
}
