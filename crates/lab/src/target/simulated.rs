//! A modelled device, or a whole volume on modelled devices, in virtual time.

use crate::load::{Inside, LoadTarget, RunError, SlotSpec};
use bimetal_load::{Bench, Ended, Target};
use bimetal_models::{Command, Done, Model, Usage};
use bimetal_sim::scenario;
use bimetal_units::Nanos;

/// What is simulated.
enum Simulation {
    Device(Box<dyn Model>),
    Loaded(Box<scenario::Target>),
}

impl Simulation {
    fn model(&self) -> &dyn Model {
        match self {
            Simulation::Device(device) => device.as_ref(),
            Simulation::Loaded(target) => target.as_ref(),
        }
    }

    fn model_mut(&mut self) -> &mut dyn Model {
        match self {
            Simulation::Device(device) => device.as_mut(),
            Simulation::Loaded(target) => target.as_mut(),
        }
    }
}

impl Model for Simulation {
    fn size_bytes(&self) -> u64 {
        self.model().size_bytes()
    }

    fn submit(&mut self, now: Nanos, tag: u64, command: Command) {
        self.model_mut().submit(now, tag, command);
    }

    fn deadline(&self) -> Option<Nanos> {
        self.model().deadline()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Done>) {
        self.model_mut().advance(now, done);
    }

    fn usage(&self) -> Usage {
        self.model().usage()
    }
}

/// A simulated target: one device or volume, or several devices, each a place, that share a clock.
pub struct Simulated {
    benches: Vec<Bench<Simulation>>,
    now_ns: u64,
}

impl Simulated {
    /// A device.
    pub fn device(device: Box<dyn Model>) -> Simulated {
        Simulated::devices(vec![device])
    }

    /// Several devices, of which none has done anything yet; the first is place 0.
    pub fn devices(devices: Vec<Box<dyn Model>>) -> Simulated {
        let bench = |device| Bench::new(Simulation::Device(device), 0);
        Simulated { benches: devices.into_iter().map(bench).collect(), now_ns: 0 }
    }

    /// What a scenario loads, before its first phase.
    pub fn scenario(target: scenario::Target) -> Simulated {
        let now = target.now();
        let bench = Bench::since(Simulation::Loaded(Box::new(target)), now, 0);
        Simulated { benches: vec![bench], now_ns: now.0 }
    }

    /// Bytes that each place holds.
    pub fn sizes_bytes(&self) -> Vec<u64> {
        self.benches.iter().map(|bench| bench.model.size_bytes()).collect()
    }

    /// Bytes that the first place holds.
    pub fn size_bytes(&self) -> u64 {
        self.benches.first().map_or(0, |bench| bench.model.size_bytes())
    }
}

impl Target for Simulated {
    fn now_ns(&mut self) -> u64 {
        self.now_ns
    }

    #[inline]
    fn submit(&mut self, slot: u32, place: u32, command: Command) {
        // What is one device under many names has one bench.
        let last = self.benches.len() - 1;
        self.benches[(place as usize).min(last)].submit(slot, place, command);
    }

    #[inline]
    fn wait(&mut self, until: Option<u64>, ended: &mut Vec<Ended>) -> u64 {
        let deadlines = self.benches.iter().filter_map(|bench| bench.model.deadline());
        let Some(next) = deadlines.map(|deadline| deadline.0).chain(until).min() else { return self.now_ns };
        for bench in &mut self.benches {
            self.now_ns = self.now_ns.max(bench.wait(Some(next), ended));
        }
        self.now_ns
    }
}

impl LoadTarget for Simulated {
    fn prepare(&mut self, _slots: &[SlotSpec]) -> Result<(), RunError> {
        Ok(())
    }

    fn tiers(&mut self) -> Option<(u64, u64)> {
        match &self.benches.first()?.model {
            Simulation::Device(_) => None,
            Simulation::Loaded(target) => target.served_bytes(),
        }
    }

    fn inside(&mut self) -> Option<Inside> {
        let Simulation::Loaded(target) = &self.benches.first()?.model else { return None };
        let moved = target.moved_bytes()?;
        Some(Inside {
            promoted_bytes: moved.promoted,
            demoted_bytes: moved.demoted,
            copied_bytes: moved.copied,
            merged_bytes: moved.merged,
            device_bytes: 0,
        })
    }
}
