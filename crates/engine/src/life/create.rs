//! Lays out a new volume.

use crate::api::options::{CreateOptions, DeviceInfo, OpenError};
use crate::base::arena::Arena;
use crate::format::Id;
use crate::format::geometry::{Geometry, HEADER_COPIES, SCRUB_AT, header_at, pins_at};
use crate::format::header::CheckpointHeader;
use crate::format::log::SegmentHeader;
use crate::format::superblock::{OpenState, Superblock};
use crate::life::marks::{first_header, write_header};
use crate::life::open::no_memory;
use crate::life::task::{Task, TaskIo};
use bimetal_units::*;

/// Lays out a new volume on the devices (in tier order), overwriting what they hold.
pub fn create<A: Arena + 'static>(
    arena: A,
    devices: Vec<DeviceInfo>,
    options: CreateOptions,
) -> Task<A, Result<(), OpenError>> {
    Task::new(arena, |io| async move {
        let geo = Geometry::plan(&devices, &options)?;
        Creator { io, devices, geo, options }.run().await
    })
}

struct Creator<A> {
    io: TaskIo<A>,
    devices: Vec<DeviceInfo>,
    geo: Geometry,
    options: CreateOptions,
}

impl<A: Arena> Creator<A> {
    /// Superblocks go last: until then the devices are nobody's, and a crash leaves no half volume.
    async fn run(&self) -> Result<(), OpenError> {
        for tier in [FAST, SLOW] {
            self.block(tier, 0, |_| {}).await?;
            self.block(tier, self.geo.second_superblock_at(tier), |_| {}).await?;
            self.flush(tier).await?;
        }
        let volume = self.options.volume_id;
        let first = SegmentHeader {
            area: self.geo.zone_first,
            ordinal: 1,
            epoch: Generation(0),
            first: Seq(1),
            durable: Seq(0),
            successor: Area(self.geo.zone_first.0 + 1),
            checkpoint: 0,
        };
        let header = CheckpointHeader {
            number: 2,
            generation: Generation(0),
            applied: Seq(0),
            durable: Seq(0),
            tail_area: first.area,
            tail_ordinal: first.ordinal,
            tail_first: first.first,
            list_entries: 0,
            root_blocks: 0,
            root_sum: 0,
            fast_bytes: self.geo.device_bytes[0],
        };
        let block = u64::from(BLOCK_BYTES);
        self.block(FAST, self.geo.area_at(first.area), |b| first.encode(b, &volume)).await?;
        // The successor must not look begun: what it held may be of an earlier volume of this name.
        self.block(FAST, self.geo.area_at(first.successor), |_| {}).await?;
        self.block(FAST, self.geo.area_at(first.area) + block, |_| {}).await?;
        for copy in 0..HEADER_COPIES {
            self.block(FAST, header_at(1) + copy * block, |_| {}).await?;
            self.block(FAST, header_at(0) + copy * block, |b| header.encode(b, &volume)).await?;
        }
        for place in 0..2 {
            self.block(FAST, pins_at(place), |_| {}).await?;
        }
        self.block(FAST, SCRUB_AT, |_| {}).await?;
        self.flush(FAST).await?;
        self.marks(&volume).await?;
        for tier in [SLOW, FAST] {
            let superblock = self.superblock(tier);
            for at in [0, self.geo.second_superblock_at(tier)] {
                self.block(tier, at, |b| superblock.encode(b, at)).await?;
            }
            self.flush(tier).await?;
        }
        Ok(())
    }

    /// The first marks: durable before the superblocks are.
    async fn marks(&self, volume: &Id) -> Result<(), OpenError> {
        let Some(layout) = self.geo.marks() else { return Ok(()) };
        let first = first_header(&layout);
        for (place, header) in [(0, Some(&first)), (1, None)] {
            let written = write_header(&self.io, (volume, &layout, place), header).await;
            let error = |errno| self.device_error(SLOW, layout.header_at(place), errno);
            written.map_err(|errno| errno.map_or_else(no_memory, error))?;
        }
        self.flush(SLOW).await
    }

    fn superblock(&self, tier: Tier) -> Superblock {
        Superblock {
            volume: self.options.volume_id,
            devices: [device_id(&self.options.volume_id, FAST), device_id(&self.options.volume_id, SLOW)],
            tier,
            generation: Generation(0),
            state: OpenState::Clean,
            created_unix_s: self.options.created_unix_s,
            geometry: self.geo.clone(),
            left_behind: None,
            hints: None,
        }
    }

    async fn block(&self, tier: Tier, offset: u64, fill: impl FnOnce(&mut [u8])) -> Result<(), OpenError> {
        let written = self.io.write_block(tier, offset, fill).await;
        written.map_err(|e| self.device_error(tier, offset, e.errno))
    }

    async fn flush(&self, tier: Tier) -> Result<(), OpenError> {
        self.io.flush(tier).await.map_err(|e| self.device_error(tier, 0, e.errno))
    }

    fn device_error(&self, tier: Tier, offset: u64, errno: i32) -> OpenError {
        OpenError::Device { device: self.devices[usize::from(tier.0)].name.clone(), offset, errno }
    }
}

/// A device's identity: the volume's, with the tier folded in.
fn device_id(volume: &Id, tier: Tier) -> Id {
    let mut id = *volume;
    id[15] ^= tier.0 + 1;
    id
}
