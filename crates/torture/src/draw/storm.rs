//! Draws the bad times of a seed's lives. From a stream of its own: whatever is drawn here, the rest of the plan stays.

use super::{MS, US};
use crate::coverage::{OPENING, SUMMED};
use crate::disk::CutStyle;
use crate::plan::{Life, Opening, When};
use crate::world::storm::{Aim, Blind, Harm, Ramp, Stall, Vanish, Weather};
use bimetal_engine::coverage::Stage;
use bimetal_units::rng::Rng;

const SECOND: u64 = 1000 * MS;
/// EIO.
const EIO: i32 = 5;
/// ENXIO, ENODEV, ENOLINK, ENOMEDIUM: the device is not there.
const GONE: [i32; 4] = [6, 19, 67, 123];

/// Which kinds a seed has.
struct Kinds {
    stalls: bool,
    ramps: bool,
    vanishes: bool,
    harms: Vec<Harm>,
    /// One life in so many has each of them.
    one_in: u32,
    calm_one_in: u32,
}

impl Kinds {
    fn draw(rng: &mut Rng) -> Kinds {
        let (stalls, ramps, vanishes) = (rng.one_in(6), rng.one_in(8), rng.one_in(6));
        let mut harms = Vec::new();
        if rng.one_in(6) {
            harms.extend(Harm::ALL.iter().filter(|_| rng.one_in(3)));
            if harms.is_empty() {
                harms.push(rng.pick(&Harm::ALL));
            }
        }
        Kinds {
            stalls,
            ramps,
            vanishes,
            harms,
            one_in: rng.pick(&[1, 2, 3]),
            calm_one_in: rng.pick(&[0, 2, 4]),
        }
    }
}

/// Gives the lives their bad times.
pub(super) fn draw(seed: u64, lives: &mut [Life]) {
    let (mut rng, mut opening_rng) = (Rng::new(seed, 4), Rng::new(seed, 5));
    let kinds = Kinds::draw(&mut rng);
    let mut blind_rng = Rng::new(seed, 10);
    let blinds = blind_rng.one_in(10);
    for life in lives {
        life.calm = rng.one_in(kinds.calm_one_in) && life.hunt.is_none();
        for device in 0..2 {
            life.storm.weather[device] = weather(&mut rng, &kinds, life.when == When::Stopping);
        }
        if kinds.vanishes && rng.one_in(kinds.one_in) {
            life.storm.vanish = Some(vanish(&mut rng, life.when == When::Stopping));
        }
        if !kinds.harms.is_empty() && rng.one_in(kinds.one_in) {
            let stopping = life.when == When::Stopping;
            life.storm.aims = (0..rng.range(1, 2)).map(|_| aim(&mut rng, &kinds.harms, stopping)).collect();
        }
        if blinds && life.hunt.is_none() && blind_rng.one_in(2) {
            life.storm.blind = Some(blind(&mut blind_rng));
            life.calm = true;
        }
        if opening_rng.one_in(6) {
            opening(&mut opening_rng, &kinds.harms, &mut life.opening);
        }
    }
}

/// Some of them last longer than anybody would be patient with one block.
fn blind(rng: &mut Rng) -> Blind {
    Blind {
        device: rng.below(2) as usize,
        after: super::steps(rng, 6),
        ns: rng.pick(&[5 * MS, 500 * MS, 20 * SECOND, 150 * SECOND]),
    }
}

/// Gives an opening its bad times. It takes some dozens of commands, one after the other.
fn opening(rng: &mut Rng, harms: &[Harm], opening: &mut Opening) {
    for weather in &mut opening.storm.weather {
        weather.ramp = rng.one_in(6).then(|| Ramp {
            step_ns: rng.pick(&[MS, 50 * MS, 3 * SECOND]),
            steps: rng.range(2, 8) as u32,
            peak_ns: rng.pick(&[200 * MS, 2 * SECOND, 8 * SECOND]),
        });
        weather.stall = rng.one_in(4).then(|| Stall {
            after: super::steps(rng, 6),
            ns: rng.pick(&[500 * MS, 5 * SECOND, 30 * SECOND]),
            whole: rng.one_in(2),
        });
    }
    if rng.one_in(2) {
        let stage = rng.pick(OPENING);
        let both = [Stage::OpenFlush, Stage::OpenSuperblocks, Stage::OpenRaise].contains(&stage);
        let gone = rng.one_in(2);
        opening.storm.vanish = Some(Vanish {
            device: if both { rng.below(2) as usize } else { 0 },
            after: super::steps(rng, 3),
            stage: Some(stage),
            ns: rng.pick(&[100 * US, 5 * MS, 500 * MS, 60 * SECOND]),
            cache: (gone && rng.one_in(2)).then(|| rng.pick(&CutStyle::ALL)),
            errno: if gone { rng.pick(&GONE) } else { EIO },
        });
    }
    if !harms.is_empty() && rng.one_in(2) {
        let aim = |rng: &mut Rng| Aim {
            stage: Stage::OpenRaise,
            after: rng.below(5) as u32,
            harm: rng.pick(harms),
        };
        opening.storm.aims = (0..rng.range(1, 2)).map(|_| aim(rng)).collect();
    }
    opening.storm_crash = rng.one_in(4).then(|| (super::steps(rng, 8), super::death(rng)));
}

fn weather(rng: &mut Rng, kinds: &Kinds, stopping: bool) -> Weather {
    if stopping && kinds.ramps && rng.one_in(2) {
        // Slow from beginning to end, so that the last writes are as well.
        let ramp = Ramp { step_ns: 60 * SECOND, steps: 2, peak_ns: 2 * SECOND };
        return Weather { ramp: Some(ramp), stall: None };
    }
    let ramp = (kinds.ramps && rng.one_in(kinds.one_in)).then(|| Ramp {
        step_ns: rng.pick(&[5 * MS, 50 * MS, 500 * MS, 3 * SECOND]),
        steps: rng.range(2, 8) as u32,
        peak_ns: rng.pick(&[200 * MS, 2 * SECOND, 8 * SECOND]),
    });
    let stall = (kinds.stalls && rng.one_in(kinds.one_in)).then(|| Stall {
        after: super::steps(rng, 9),
        ns: rng.pick(&[500 * MS, 5 * SECOND, 30 * SECOND]),
        whole: rng.one_in(2),
    });
    Weather { ramp, stall }
}

fn vanish(rng: &mut Rng, stopping: bool) -> Vanish {
    // A device that is reset says so: whoever uses it must be able to tell that its cache may be gone.
    let gone = rng.one_in(2);
    let seldom = if stopping {
        Stage::Shutdown
    } else {
        rng.pick(&[Stage::MoveQuiesce, Stage::MoveQuiesce, Stage::ReadChecksums])
    };
    let stage = rng.one_in(2).then(|| if rng.one_in(2) { seldom } else { rng.pick(&BUSY) });
    // Their commands are the fast device's.
    let fast = [Stage::Shutdown, Stage::MoveQuiesce, Stage::ReadChecksums];
    let device = if stage.is_some_and(|s| fast.contains(&s)) { 0 } else { rng.below(2) as usize };
    let after = if stage == Some(seldom) { 0 } else { super::steps(rng, 9) };
    Vanish {
        after,
        stage,
        device,
        ns: rng.pick(&[100 * US, 5 * MS, 500 * MS, 5 * SECOND, 60 * SECOND]),
        cache: (gone && rng.one_in(2)).then(|| rng.pick(&CutStyle::ALL)),
        errno: if gone { rng.pick(&GONE) } else { EIO },
    }
}

/// Stages that a device is made to vanish in.
const BUSY: [Stage; 16] = [
    Stage::CopyRead,
    Stage::CopyWrite,
    Stage::WriteLand,
    Stage::WriteFresh,
    Stage::WriteStream,
    Stage::CommitFlushData,
    Stage::CommitAppend,
    Stage::MoveQuiesce,
    Stage::MoveFlushLanded,
    Stage::MoveWrite,
    Stage::MoveFlushData,
    Stage::MoveAppend,
    Stage::CheckpointFold,
    Stage::CheckpointHeader,
    Stage::SealIndex,
    Stage::ReadChecksums,
];

fn aim(rng: &mut Rng, harms: &[Harm], stopping: bool) -> Aim {
    let stage = if stopping && rng.one_in(2) { Stage::Shutdown } else { rng.pick(SUMMED) };
    let after = if stage == Stage::Shutdown { 0 } else { super::steps(rng, 4) };
    Aim { stage, after, harm: rng.pick(harms) }
}
