//! A target that does nothing, at once: what the lab itself costs.

use crate::load::{LoadTarget, Own, RunError, SlotSpec};
use bimetal_load::{Ended, Target};
use bimetal_models::Command;
use std::time::Instant;

/// It has done what it is asked for as soon as it is asked.
pub struct Null {
    began: Instant,
    taken: Vec<u32>,
}

impl Default for Null {
    fn default() -> Null {
        Null { began: Instant::now(), taken: Vec::new() }
    }
}

impl Target for Null {
    fn now_ns(&mut self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    #[inline]
    fn submit(&mut self, slot: u32, _place: u32, _command: Command) {
        self.taken.push(slot);
    }

    fn wait(&mut self, until: Option<u64>, ended: &mut Vec<Ended>) -> u64 {
        let now = self.now_ns();
        if self.taken.is_empty() {
            if let Some(until) = until {
                std::thread::sleep(std::time::Duration::from_nanos(until.saturating_sub(now)));
            }
            return self.now_ns();
        }
        let end = |slot| Ended { slot, handed_ns: Some(now), at_ns: now, fault: None, served: None };
        ended.extend(self.taken.drain(..).map(end));
        now
    }
}

impl LoadTarget for Null {
    fn prepare(&mut self, _slots: &[SlotSpec]) -> Result<(), RunError> {
        Ok(())
    }

    fn apart(&mut self, jobs: usize) -> Option<Vec<Own>> {
        let began = self.began;
        let own = |_| -> Own {
            Box::new(move || Ok(Box::new(Null { began, taken: Vec::new() }) as Box<dyn LoadTarget>))
        };
        Some((0..jobs).map(own).collect())
    }
}
