//! Somebody scrubs the volume now and then: whatever else goes on, clients must not notice, and where no device was ever damaged
//! nothing may be found. In some of these runs what lies in slots goes bad, while the volume is served and while it is not
//! (`run/rot.rs`). Drawn from streams of their own, so that the rest of a plan stays.

use crate::arena::SimArena;
use bimetal_engine::Engine;
use bimetal_units::Nanos;
use bimetal_units::rng::Rng;

/// One look in this many begins a scrub, or stops one.
const ONE_IN: u32 = 200;
/// Of these, one in this many stops it.
const STOPS_ONE_IN: u32 = 6;

/// In one of so many runs with scrubs something goes bad for them to find.
const ROTS_ONE_IN: u32 = 4;
/// There, one look in this many finds something gone bad.
const ROT_ONE_IN: u32 = 300;

/// Who scrubs.
pub struct Scrubber {
    rng: Rng,
    /// This seed has scrubs.
    active: bool,
    /// What goes bad for them to find.
    rot: Rng,
    rots: bool,
    /// Nobody scrubs, and nothing goes bad.
    rests: bool,
}

impl Scrubber {
    /// For a seed.
    pub fn new(seed: u64, may_rot: bool) -> Scrubber {
        let mut rng = Rng::new(seed, 0x7363_7275);
        let active = rng.one_in(3);
        let mut rot = Rng::new(seed, 0x726f_7473);
        let rots = active && rot.one_in(ROTS_ONE_IN) && may_rot;
        Scrubber { rng, active, rot, rots, rests: false }
    }

    /// Whether in this run something goes bad for scrubs to find.
    pub fn rots(&self) -> bool {
        self.rots
    }

    /// For a while nobody scrubs, and nothing goes bad.
    pub fn rest(&mut self, rests: bool) {
        self.rests = rests;
    }

    /// What is drawn of where something goes bad, if it does now.
    pub fn rot_now(&mut self) -> Option<&mut Rng> {
        let now = self.rots && !self.rests && self.rot.one_in(ROT_ONE_IN);
        now.then_some(&mut self.rot)
    }

    /// Begins a scrub, or stops it. `excused`: devices have failed or were damaged.
    pub fn look(&mut self, engine: &mut Engine<SimArena>, now: Nanos, excused: bool) -> Result<(), String> {
        if !self.active || self.rests || !self.rng.one_in(ONE_IN) {
            return Ok(());
        }
        // Neither need be possible now.
        let _ = match self.rng.one_in(STOPS_ONE_IN) {
            true => engine.stop_scrub(now),
            false => engine.begin_scrub(now),
        };
        self.judge(engine, excused)
    }

    /// Where devices were always well, nothing is wrong.
    pub fn judge(&self, engine: &Engine<SimArena>, excused: bool) -> Result<(), String> {
        let scrub = engine.scrub();
        if self.active && !excused && (scrub.wrong_blocks > 0 || engine.status().repaired_blocks > 0) {
            return Err(format!("a scrub has found what cannot be: {scrub:?}"));
        }
        Ok(())
    }
}
