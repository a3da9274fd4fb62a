//! The offline repair: copies that are bad are written again from those that are good, and where both copies of a page
//! are bad, the checkpoint before the newest is put in force again, if the log still has all that followed it.
//!
//! What is written is what the volume would be without the damage, or nothing is: no bytes are blessed that no checksum
//! vouches for. A repair that is cut short anywhere is begun again: it writes only over what is bad, and over what the
//! newest checkpoint alone needs once that one is known to be beyond use.

use crate::api::options::{DeviceInfo, Finding, OpenError, OpenOptions, RepairReport};
use crate::base::arena::Arena;
use crate::format::geometry::{HEADER_COPIES, header_at};
use crate::format::header::CheckpointHeader;
use crate::format::page::{self, PageKind, root_sum};
use crate::life::recovery::{Basis, Reader, Recovered};
use crate::life::task::{Task, TaskIo};
use crate::volume::state::State;
use bimetal_units::*;
use std::ops::Range;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Repairs a volume that is not open, or only says what it would do.
pub fn repair<A: Arena + 'static>(
    arena: A,
    devices: Vec<DeviceInfo>,
    options: OpenOptions,
    apply: bool,
) -> Task<A, Result<RepairReport, OpenError>> {
    Task::new(arena, move |io| async move {
        if devices.len() != 2 {
            return Err(OpenError::BadOption {
                what: format!("a volume has two devices, {} were given", devices.len()),
            });
        }
        Repair { io, devices, options, apply, report: RepairReport::default() }.run().await
    })
}

struct Repair<A> {
    io: TaskIo<A>,
    devices: Vec<DeviceInfo>,
    options: OpenOptions,
    apply: bool,
    report: RepairReport,
}

impl<A: Arena> Repair<A> {
    async fn run(mut self) -> Result<RepairReport, OpenError> {
        let reader = self.reader();
        match self.recovered(&reader, Basis::Newest).await {
            Ok(recovered) => self.copies(&reader, &recovered).await?,
            Err(error) => self.without_newest(error).await?,
        }
        Ok(self.report)
    }

    fn reader(&self) -> Reader<A> {
        Reader::new(self.io.clone(), self.devices.clone())
    }

    /// Reads all there is and makes sure that no two chunks claim a slot.
    async fn recovered(&self, reader: &Reader<A>, basis: Basis) -> Result<Recovered, OpenError> {
        let recovered = reader.read_from(&self.options, basis).await?;
        reader.used_slots(&recovered.state)?;
        Ok(recovered)
    }

    fn repairs(&mut self, device: Tier, offset: u64, what: String) {
        self.report.repairs.push(Finding { device, offset, what });
    }

    /// Makes all copies good: the volume would open as it is.
    async fn copies(&mut self, reader: &Reader<A>, recovered: &Recovered) -> Result<(), OpenError> {
        let volume = recovered.superblocks[0].volume;
        self.spares(reader, recovered).await?;
        reader.verify_twins(&volume, &recovered.header, &recovered.pages, &recovered.state.geo).await?;
        for bad in reader.bad_copies.borrow().iter() {
            self.repairs(FAST, bad.at, format!("{bad}, and is copied"));
        }
        if self.apply {
            reader.heal_copies().await?;
        }
        let mut pins = reader.pins(&volume, recovered.state.geo.chunks).await?;
        if let Some((at, what)) = pins.faults.first().cloned().filter(|_| pins.known) {
            self.repairs(FAST, at, format!("the list of pins {what}; the other copy counts, and is copied"));
            if self.apply {
                reader.settle_pins(&volume, &mut pins).await;
            }
        }
        Ok(())
    }

    /// Superblocks and checkpoint headers: all copies that are bad, whatever made them so.
    async fn spares(&mut self, reader: &Reader<A>, recovered: &Recovered) -> Result<(), OpenError> {
        let volume = recovered.superblocks[0].volume;
        let mut bad: Vec<(Tier, u64)> =
            reader.bad_spares.borrow().iter().map(|(t, at, _)| (*t, *at)).collect();
        bad.extend(reader.unreadable.borrow().iter().copied());
        bad.extend(reader.stale_headers.borrow().iter().map(|at| (FAST, *at)));
        bad.sort_unstable();
        bad.dedup();
        let own = header_at(recovered.header.number % 2);
        for (tier, at) in bad {
            let superblock = &recovered.superblocks[usize::from(tier.0)];
            let is_superblock = [0, superblock.geometry.second_superblock_at(tier)].contains(&at);
            let is_newest = (own..own + HEADER_COPIES * BLOCK).contains(&at);
            let is_header = tier == FAST && (header_at(0)..header_at(2)).contains(&at);
            let what = match (is_superblock, is_newest, is_header) {
                (true, ..) => "a superblock is not good; the device's other one is copied",
                (_, true, _) => "a copy of the newest checkpoint header is not good; the other one is copied",
                (.., true) => "a copy of an older checkpoint header is not good; it is erased",
                // Indexes of the log: opening does without them.
                _ => continue,
            };
            self.repairs(tier, at, what.into());
            if !self.apply {
                continue;
            }
            let fill = |block: &mut [u8]| match (is_superblock, is_newest) {
                (true, _) => superblock.encode(block, at),
                (_, true) => recovered.header.encode(block, &volume),
                _ => {}
            };
            reader.write_block(tier, at, fill).await?;
            reader.flush(tier).await?;
        }
        Ok(())
    }

    /// The newest checkpoint cannot be read. The one before it can, where nothing of it was overwritten since, and says
    /// the same if the log still has all that followed.
    async fn without_newest(&mut self, error: OpenError) -> Result<(), OpenError> {
        let (OpenError::Corrupt { offset, .. } | OpenError::Device { offset, .. }) = &error else {
            return Err(error);
        };
        let at = *offset;
        let reader = self.reader();
        let recovered = match self.recovered(&reader, Basis::Before).await {
            Ok(recovered) => recovered,
            Err(why) => return self.beyond(error, why).await,
        };
        let number = recovered.header.number;
        let what = format!(
            "both copies are lost of what checkpoint {} has here; checkpoint {number} and the log, which has all that \
             followed it, take its place",
            number + 1
        );
        self.repairs(FAST, at, what);
        if self.apply {
            self.put_in_force(&reader, &recovered).await?;
            let reader = self.reader();
            let recovered = self.recovered(&reader, Basis::Newest).await?;
            self.copies(&reader, &recovered).await?;
        }
        Ok(())
    }

    /// Gives a checkpoint the number of the one after it, in that one's places: first its root, then, when that is durable,
    /// its header. Its own root and header stay as they are, for another try.
    async fn put_in_force(&self, reader: &Reader<A>, recovered: &Recovered) -> Result<(), OpenError> {
        let (header, geo) = (&recovered.header, &recovered.state.geo);
        let volume = recovered.superblocks[0].volume;
        let number = header.number + 1;
        let mut sum = 0;
        for (block, payload) in (0..).zip(reader.root_blocks(&volume, header, geo).await?) {
            let mut block_sum = 0;
            let places = [Some(geo.root_at(number % 2, block)), geo.root_twin_at(number % 2, block)];
            for at in places.into_iter().flatten() {
                let fill = |bytes: &mut [u8]| {
                    block_sum = page::encode(bytes, PageKind::Root, &volume, block.into(), number, &payload);
                };
                reader.write_block(FAST, at, fill).await?;
            }
            sum = root_sum(sum, block_sum);
        }
        reader.flush(FAST).await?;
        // What was read is durable: devices were flushed before.
        let durable = recovered.log.last;
        let header = CheckpointHeader { number, durable, root_sum: sum, ..header.clone() };
        for copy in 0..HEADER_COPIES {
            let at = header_at(number % 2) + copy * BLOCK;
            reader.write_block(FAST, at, |block| header.encode(block, &volume)).await?;
        }
        reader.flush(FAST).await
    }

    /// Nothing can be done: says what keeps the volume closed, and of which parts of it nothing says where they are.
    async fn beyond(&mut self, error: OpenError, before: OpenError) -> Result<(), OpenError> {
        for (error, also) in [(&error, ""), (&before, "the checkpoint before does not help: ")] {
            let (device, offset, what) = match error {
                OpenError::Corrupt { device, offset, what } => (device, *offset, what.clone()),
                OpenError::Device { device, offset, errno } => {
                    (device, *offset, format!("device error {errno}"))
                }
                _ => return Err(error.clone()),
            };
            let tier = Tier(u8::from(*device == self.devices[1].name));
            self.report.beyond.push(Finding { device: tier, offset, what: format!("{also}{what}") });
        }
        let mut reader = self.reader();
        reader.without_pages = true;
        if let Ok(recovered) = reader.read_from(&self.options, Basis::Newest).await {
            self.report.lost = lost_ranges(&recovered.state);
        }
        Ok(())
    }
}

/// The blocks of unknown chunks of which nothing landed as a whole, in bytes of the volume.
fn lost_ranges(state: &State) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for chunk in state.unknown_chunks() {
        for block in (0..state.geo.blocks_per_chunk()).map(|block| state.map.join(chunk, block)) {
            let whole = |z| state.landed.sectors(z).is_all() && !state.landed.is_bad(z);
            if state.landed.get(block).is_some_and(whole) {
                continue;
            }
            let at = block.0 * BLOCK;
            match ranges.last_mut().filter(|last| last.end == at) {
                Some(last) => last.end += BLOCK,
                None => ranges.push(at..at + BLOCK),
            }
        }
    }
    ranges
}
