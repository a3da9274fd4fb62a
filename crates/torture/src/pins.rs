//! Somebody changes the pins of a volume now and then, and looks at each opening whether they are as promised: what was
//! answered is there, and what was not is there as a whole or not at all. Pins meet the rest of a plan in what they
//! move; drawn from a stream of its own, so that the rest stays.

use crate::arena::SimArena;
use bimetal_engine::Engine;
use bimetal_engine::pins::PinReport;
use bimetal_units::rng::Rng;
use bimetal_units::{FAST, Nanos, SLOW, Tier};

/// One look in this many begins a change.
const ONE_IN: u32 = 400;

/// What a list of pins says: offset, length, tier.
type Listed = Vec<(u64, u64, Tier)>;

fn listed(report: &PinReport) -> Listed {
    report.ranges.iter().map(|range| (range.offset, range.len, range.tier)).collect()
}

/// Who changes the pins, and what they may be.
#[derive(Clone)]
pub struct PinKeeper {
    rng: Rng,
    /// This seed has pins.
    active: bool,
    /// What is durable.
    kept: Listed,
    /// What may be found instead: changes begun since, answered with an error or not at all.
    perhaps: Vec<Listed>,
    under_way: bool,
}

impl PinKeeper {
    /// For a seed.
    pub fn new(seed: u64) -> PinKeeper {
        let mut rng = Rng::new(seed, 0x7069_6e73);
        let active = rng.one_in(2);
        PinKeeper { rng, active, kept: Vec::new(), perhaps: Vec::new(), under_way: false }
    }

    /// There is a new volume.
    pub fn begin_anew(&mut self) {
        (self.kept, self.perhaps, self.under_way) = (Vec::new(), Vec::new(), false);
    }

    /// A volume was opened: what it says is pinned is what holds from here on. `excused`: devices were damaged, or only
    /// `failed`, so that the list may not have been read this time.
    pub fn opened(&mut self, engine: &Engine<SimArena>, excused: bool, failed: bool) -> Result<(), String> {
        let report = engine.pin_report();
        let found = listed(&report);
        let promised = found == self.kept || self.perhaps.contains(&found);
        self.under_way = false;
        if !report.known {
            // A device that could not be read for a moment: the list is still there.
            return if excused || failed { Ok(()) } else { Err("the list of pins is not known".into()) };
        }
        if !promised && !excused {
            return Err(format!("pinned is {found:?}, not {:?} nor one of {:?}", self.kept, self.perhaps));
        }
        (self.kept, self.perhaps) = (found, Vec::new());
        Ok(())
    }

    /// Takes an answer, or begins a change.
    pub fn look(&mut self, engine: &mut Engine<SimArena>, now: Nanos) {
        if !self.active {
            return;
        }
        if self.under_way {
            let Some(answer) = engine.take_pin_answer() else { return };
            self.under_way = false;
            if answer.is_ok() {
                (self.kept, self.perhaps) = (listed(&engine.pin_report()), Vec::new());
            }
        } else if self.rng.one_in(ONE_IN) && engine.pin_report().known {
            let size = engine.size_bytes();
            let offset = self.rng.below(size);
            let len = 1 + self.rng.below((size - offset).min(size / 8 + 1));
            let tier = self.rng.pick(&[None, Some(FAST), Some(SLOW)]);
            if engine.begin_pin(now, offset, len, tier).is_ok() {
                self.under_way = true;
                self.perhaps.push(after(&self.kept, engine, offset, len, tier));
            }
        }
    }
}

/// What is pinned once a change is made, worked out chunk by chunk.
fn after(kept: &Listed, engine: &Engine<SimArena>, offset: u64, len: u64, tier: Option<Tier>) -> Listed {
    let chunk = u64::from(engine.status().chunk_bytes);
    let mut marks = vec![None; (engine.size_bytes() / chunk) as usize];
    for &(offset, len, tier) in kept {
        marks[(offset / chunk) as usize..((offset + len) / chunk) as usize].fill(Some(tier));
    }
    marks[(offset / chunk) as usize..=((offset + len - 1) / chunk) as usize].fill(tier);
    let mut list: Listed = Vec::new();
    for (n, mark) in marks.into_iter().enumerate() {
        let (at, Some(tier)) = (n as u64 * chunk, mark) else { continue };
        match list.last_mut() {
            Some((offset, len, last)) if *offset + *len == at && *last == tier => *len += chunk,
            _ => list.push((at, chunk, tier)),
        }
    }
    list
}
