//! The end of all faults: what is pending then must come to its end, in bounded time. And what must be so where
//! faults are silent.

use super::*;
use crate::world::Service;
use crate::world::storm::Layout;
use bimetal_engine::extents::Placement;
use bimetal_engine::format::superblock::{Found, Superblock};
use bimetal_units::SLOW;

/// From the end of all faults until everything is answered, a flush is, and the landing zone is empty. Of this a
/// command that stalls may take half a minute, and a landed block that cannot be read ten seconds and more before it is given up.
const REST_NS: u64 = 180 * Nanos::SECOND;
/// How often the landing zone is looked at.
const LOOK_NS: u64 = 20 * Nanos::MS;

impl Run<'_> {
    /// Faults stop: from here on it takes [`REST_NS`] at most until all is answered, a flush is answered, and nothing is
    /// landed any more; or the volume is read-only, and says so to whoever asks.
    pub(super) fn rest(
        &mut self,
        engine: &mut Engine<SimArena>,
        client: &mut Client<'_>,
    ) -> Result<(), String> {
        self.stats.count("liveness");
        self.world.rates = FaultRates::default();
        self.world.services = vec![Service::default(); 2];
        self.world.calm();
        let start = self.world.now();
        // A disk that nobody needs is left alone for so long before what has landed wakes it.
        let end = start.after(REST_NS + self.limits.tuning.rest_at_most_ns);
        let what = |run: &Self, what: String| {
            Err(format!(
                "not live {} s after the last fault: {what}",
                run.world.now().since(start) / Nanos::SECOND
            ))
        };
        loop {
            self.serve(engine, client)?;
            if client.is_quiet() {
                break;
            }
            if self.world.now() >= end {
                return what(self, format!("unanswered: {}", client.waiting()));
            }
            self.step(engine, client, end)?;
        }
        let flush = Op { kind: OpKind::Flush, offset: 0, len: 0, fua: false, pause_ns: 0, drain: false };
        let flush = [flush];
        let mut last = Client::new(&flush, 1);
        loop {
            self.serve(engine, &mut last)?;
            let has_settled = engine.status().state == "read-only" || !self.has_landed(engine);
            if last.is_done() && has_settled && self.image_rests() {
                break;
            }
            if self.world.now() >= end {
                let landed = engine.status().landed_bytes;
                let image = self.world.protection().map(|protection| protection.progress());
                let waiting = last.waiting();
                return what(
                    self,
                    format!("{landed} bytes are landed, waiting: {waiting}; the image: {image:?}"),
                );
            }
            let look = self.world.now().after(LOOK_NS).min(end);
            while self.world.now() < look {
                self.serve(engine, &mut last)?;
                self.step(engine, &last, look)?;
            }
        }
        let took = self.world.now().since(start) / Nanos::MS;
        self.stats.longest_rest_ms = self.stats.longest_rest_ms.max(took);
        Ok(())
    }

    /// Whether any block is landed that could be merged: not one that was lost.
    fn has_landed(&self, engine: &Engine<SimArena>) -> bool {
        if engine.status().landed_bytes == 0 {
            return false;
        }
        let (mut at, size) = (0, engine.size_bytes());
        while at < size {
            for extent in engine.extents(at, size - at, 256) {
                if extent.place == Placement::Landed {
                    return true;
                }
                at += extent.len;
            }
        }
        false
    }

    /// A read that fails because of damage alone has been told of, with its place.
    pub(super) fn must_have_named(&mut self, engine: &mut Engine<SimArena>) -> Result<(), String> {
        self.keep_events(engine);
        let i = &self.world.injected;
        let other = i.total() - i.bad_sectors > 0 || engine.status().state != "open";
        if self.named || other {
            return Ok(());
        }
        Err("a read failed, and nothing said on which device and at which byte".into())
    }

    /// The volume is open: its slow device, where that is an export, is known by its superblocks from now on.
    pub(super) fn seal_export(&mut self) {
        self.world.forgives_lost = self.damaged;
        let mut bytes = [0; PAGE_BYTES];
        self.world.disks[1].peek(0, &mut bytes);
        if let Found::Valid(superblock) = Superblock::decode(&bytes, 0) {
            let second_at = superblock.geometry.second_superblock_at(SLOW);
            self.world.seal_export(superblock.volume, superblock.generation.0, second_at);
        }
    }

    /// Where checksums are, in a plan that harms writes.
    pub(super) fn learn_layout(&mut self) {
        if !self.harms || self.world.layout.is_some() {
            return;
        }
        let mut bytes = [0; PAGE_BYTES];
        self.world.disks[0].peek(0, &mut bytes);
        if let Found::Valid(superblock) = Superblock::decode(&bytes, 0) {
            self.world.layout = Some(Layout::new(superblock.volume, &superblock.geometry));
        }
    }
}
