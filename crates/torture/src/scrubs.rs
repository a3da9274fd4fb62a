//! Somebody scrubs the volume now and then: whatever else goes on, clients must not notice, and where no device was ever damaged
//! nothing may be found. Drawn from a stream of its own, so that the rest of a plan stays.

use crate::arena::SimArena;
use bimetal_engine::Engine;
use bimetal_units::Nanos;
use bimetal_units::rng::Rng;

/// One look in this many begins a scrub, or stops one.
const ONE_IN: u32 = 200;
/// Of these, one in this many stops it.
const STOPS_ONE_IN: u32 = 6;

/// Who scrubs.
pub struct Scrubber {
    rng: Rng,
    /// This seed has scrubs.
    active: bool,
}

impl Scrubber {
    /// For a seed.
    pub fn new(seed: u64) -> Scrubber {
        let mut rng = Rng::new(seed, 0x7363_7275);
        let active = rng.one_in(3);
        Scrubber { rng, active }
    }

    /// Begins a scrub, or stops it. `excused`: devices have failed or were damaged.
    pub fn look(&mut self, engine: &mut Engine<SimArena>, now: Nanos, excused: bool) -> Result<(), String> {
        if !self.active || !self.rng.one_in(ONE_IN) {
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
