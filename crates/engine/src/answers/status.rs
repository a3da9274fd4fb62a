//! The volume at a glance.

use crate::api::options::{Status, TierStatus};
use crate::api::why;
use crate::base::arena::Arena;
use crate::engine::Engine;
use crate::placement::policy::Policy as _;
use bimetal_units::*;

impl<A: Arena> Engine<A> {
    /// The volume at a glance.
    pub fn status(&self) -> Status {
        let geo = &self.state.geo;
        let s = &self.told.stats;
        let chunk = u64::from(geo.chunk_bytes);
        let tiers = [FAST, SLOW].map(|tier| {
            let slots = &self.space.slots[tier];
            TierStatus {
                device: self.told.names[tier].clone(),
                size_bytes: u64::from(slots.count()) * chunk,
                used_bytes: u64::from(slots.count() - slots.free()) * chunk,
                read_bytes: s.read_bytes[tier],
                written_bytes: s.written_bytes[tier],
                device_written_bytes: self.io.written_bytes(tier),
                flushes: self.io.flushers[tier].count,
                silent_since: self.io.tokens.silent_since(tier),
                wakeups: self.io.tokens.wakeups(tier),
                pinned_bytes: self.placement.pins.list().chunks_on(tier) * chunk,
            }
        });
        let stopping = self.life.shutdown.began();
        Status {
            volume_id: self.life.superblock.volume,
            state: if self.life.loss().is_some() && !(self.life.is_alone() && self.life.is_read_only()) {
                "degraded"
            } else if self.life.is_read_only() {
                "read-only"
            } else if stopping {
                "stopping"
            } else {
                "open"
            },
            generation: self.life.superblock.generation.0,
            recovered: s.recovered,
            size_bytes: self.size_bytes(),
            chunk_bytes: geo.chunk_bytes,
            tiers: tiers.into(),
            landing_size_bytes: u64::from(self.state.zone.len()) * u64::from(geo.area_bytes),
            landing_used_bytes: self.state.zone.used_bytes(),
            landing_is_short: self.zone_is_short(),
            landed_bytes: u64::from(self.state.landed.len()) * u64::from(BLOCK_BYTES),
            log_written_bytes: s.log_bytes,
            log_payload_bytes: s.log_payload,
            promoted_chunks: s.promoted,
            demoted_chunks: s.demoted,
            destaged_blocks: s.destaged,
            last_promotion: s.last_promotion,
            moves_paused: self.mover.planner.is_paused(),
            checkpoints: s.checkpoints,
            client_flushes: s.client_flushes,
            shadowed_bytes: self.space.shadows.len() as u64 * chunk,
            shadow_demoted_chunks: self.space.shadows.used,
            copied_bytes: self.mover.copies.bytes(),
            copy_read_bytes: self.mover.copies.read_bytes,
            reads_again: s.reads_again,
            reads_from_shadows: s.reads_from_shadows,
            repaired_blocks: self.mover.scrub.repaired,
            scrub: self.scrub_status(),
            wear: self.wear_status(),
            audit: self.placement.benefit.audit(self.yields().write_ns),
            timed_wakeups_per_day: self.tuning.timed_wakeups_per_day(),
            ram_bytes: self.ram_bytes(),
            marks: self.marks.as_ref().map(|marks| marks.status(geo.chunk_bytes)),
            loss: self.life.loss().cloned(),
        }
    }

    fn ram_bytes(&self) -> u64 {
        let st = &self.state;
        st.map.ram_bytes()
            + st.landed.ram_bytes()
            + st.sums.ram_bytes()
            + self.space.slots.0.iter().map(|s| s.ram_bytes()).sum::<u64>()
            + self.placement.policy.ram_bytes()
            + why::RAM_BYTES
            + self.checkpoint.ram_bytes()
            + self.marks.as_ref().map_or(0, |marks| marks.table.ram_bytes())
            + self.mover.copies.ram_bytes()
            + self.space.shadows.ram_bytes()
            + self.placement.benefit.ram_bytes()
    }
}
