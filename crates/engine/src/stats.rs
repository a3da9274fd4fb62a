//! Counters, and the status made of them.

use crate::arena::Arena;
use crate::engine::Engine;
use crate::options::{Status, TierStatus};
use crate::units::*;

/// Counters since open.
#[derive(Default)]
pub struct Stats {
    /// Client bytes read, by the tier that served them.
    pub read_bytes: [u64; 2],
    /// Client bytes written, by the tier that took them.
    pub written_bytes: [u64; 2],
    /// Bytes written to each device, by whatever part of the engine.
    pub device_written: [u64; 2],
    /// Bytes appended to the log.
    pub log_bytes: u64,
    /// Client payload among them.
    pub log_payload: u64,
    /// Chunks moved up.
    pub promoted: u64,
    /// Chunks moved down.
    pub demoted: u64,
    /// Landed blocks merged into homes.
    pub destaged: u64,
    /// When the last promotion ended.
    pub last_promotion: Option<Nanos>,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Client flushes answered.
    pub client_flushes: u64,
}

impl<A: Arena> Engine<A> {
    /// The volume at a glance.
    pub fn status(&self) -> Status {
        let geo = &self.state.geo;
        let s = &self.stats;
        let chunk = u64::from(geo.chunk_bytes);
        let tiers = [FAST, SLOW].map(|tier| {
            let i = usize::from(tier.0);
            let slots = &self.slots[i];
            TierStatus {
                device: self.names[i].clone(),
                size_bytes: u64::from(slots.count()) * chunk,
                used_bytes: u64::from(slots.count() - slots.free()) * chunk,
                read_bytes: s.read_bytes[i],
                written_bytes: s.written_bytes[i],
                device_written_bytes: s.device_written[i],
                flushes: self.flushers[i].count,
            }
        });
        let stopping = self.shutdown.began();
        Status {
            volume_id: self.superblock.volume,
            state: if self.read_only {
                "read-only"
            } else if stopping {
                "stopping"
            } else {
                "open"
            },
            size_bytes: self.size_bytes(),
            chunk_bytes: geo.chunk_bytes,
            tiers: tiers.into(),
            landing_size_bytes: u64::from(geo.zone_areas()) * u64::from(geo.area_bytes),
            landing_used_bytes: self.state.zone.used_bytes(),
            landed_bytes: u64::from(self.state.landed.len()) * u64::from(BLOCK_BYTES),
            log_written_bytes: s.log_bytes,
            log_payload_bytes: s.log_payload,
            promoted_chunks: s.promoted,
            demoted_chunks: s.demoted,
            destaged_blocks: s.destaged,
            last_promotion: s.last_promotion,
            checkpoints: s.checkpoints,
            client_flushes: s.client_flushes,
            ram_bytes: self.ram_bytes(),
        }
    }

    fn ram_bytes(&self) -> u64 {
        let st = &self.state;
        st.map.ram_bytes()
            + st.landed.ram_bytes()
            + st.sums.ram_bytes()
            + self.slots.iter().map(|s| s.ram_bytes()).sum::<u64>()
            + self.policy.ram_bytes()
            + self.checkpoint.ram_bytes()
    }
}
