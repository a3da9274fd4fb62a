//! The offline check: structure, and the checksum of every block that has one. Writes nothing.

use crate::api::action::DeviceError;
use crate::api::options::{CheckReport, DeviceInfo, Finding, OpenError, OpenOptions};
use crate::base::arena::{Arena, Buf, Pool};
use crate::format::page;
use crate::format::superblock::OpenState;
use crate::life::open::no_memory;
use crate::life::recovery::{Reader, Recovered};
use crate::life::task::Task;
use crate::volume::slots::Slots;
use crate::volume::state::State;
use crate::volume::sums::Lookup;
use bimetal_units::*;
use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;

/// Blocks read in one go.
const RUN_BLOCKS: usize = 32;
/// Runs that are read at a time: a disk takes them in the order that suits it, and what is far away answers all in the time of one.
const READS_AHEAD: usize = 16;
/// Findings kept at most: beyond this the volume is beyond listing.
const MAX_FINDINGS: usize = 10_000;

/// Checks a volume that is not open, writing nothing: structure, and the checksum of every block that has one.
pub fn check<A: Arena + 'static>(
    arena: A,
    devices: Vec<DeviceInfo>,
    options: OpenOptions,
) -> Task<A, Result<CheckReport, OpenError>> {
    Task::new(arena, |io| async move {
        if devices.len() != 2 {
            return Err(OpenError::BadOption {
                what: format!("a volume has two devices, {} were given", devices.len()),
            });
        }
        let names: Vec<String> = devices.iter().map(|d| d.name.clone()).collect();
        let reader = Reader::new(io, devices);
        match reader.recover(&options).await {
            Ok(recovered) => {
                let (report, bad_sum_pages) = (CheckReport::default(), BTreeSet::new());
                Checker { reader, recovered, report, bad_sum_pages, reading: VecDeque::new() }.run().await
            }
            // Damage to metadata is what a check is for: it is a finding, not a failure to run.
            Err(OpenError::Corrupt { device, offset, what }) => {
                let tier = Tier(names.iter().position(|n| *n == device).unwrap_or(0) as u8);
                let findings = vec![Finding { device: tier, offset, what }];
                Ok(CheckReport { findings, ..CheckReport::default() })
            }
            Err(error) => Err(error),
        }
    })
}

struct Checker<A> {
    reader: Reader<A>,
    recovered: Recovered,
    report: CheckReport,
    /// Pages of checksums that are a finding already.
    bad_sum_pages: BTreeSet<u32>,
    /// Runs that are being read, oldest first.
    reading: VecDeque<Reading>,
}

/// A run of blocks that is being read: where each is, and its checksum.
struct Reading {
    tier: Tier,
    run: Vec<(u64, u32)>,
    buf: Buf,
    read: Pin<Box<dyn Future<Output = Result<(), DeviceError>>>>,
}

impl<A: Arena + 'static> Checker<A> {
    async fn run(mut self) -> Result<CheckReport, OpenError> {
        let examined = self.examine().await;
        // Whatever came of it, no device writes to memory that is not there any more.
        while let Some(oldest) = self.reading.pop_front() {
            self.compare(oldest).await;
        }
        examined.map(|()| self.report)
    }

    async fn examine(&mut self) -> Result<(), OpenError> {
        for (tier, at) in self.reader.unreadable.take() {
            self.find(tier, at, "metadata that is kept elsewhere too cannot be read here");
        }
        let spares = self.reader.bad_spares.take();
        for (tier, at, what) in &spares {
            self.find(*tier, *at, *what);
        }
        if self.recovered.superblocks[0].state == OpenState::Clean {
            let told = |at: &u64| spares.iter().any(|spare| spare.1 == *at);
            for at in self.reader.stale_headers.take().into_iter().filter(|at| !told(at)) {
                self.find(
                    FAST,
                    at,
                    "this copy of the newest checkpoint header is not as it was when the volume was closed",
                );
            }
        }
        let volume = self.recovered.superblocks[0].volume;
        self.report.has_no_copies = self.state().geo.mirror_at.is_none();
        let Recovered { header, pages, state, .. } = &self.recovered;
        self.reader.verify_twins(&volume, header, pages, &state.geo).await?;
        for bad in self.reader.bad_copies.take() {
            self.find(FAST, bad.at, bad.to_string());
        }
        let pins = self.reader.pins(&volume, self.state().geo.chunks).await?;
        for (at, what) in pins.faults {
            self.find(FAST, at, format!("the list of pins {what}"));
        }
        self.slots();
        self.landed().await?;
        for chunk in (0..self.state().map.chunks()).map(Chunk) {
            if let Some(home) = self.state().map.home(chunk) {
                self.report.chunks += 1;
                match home.tier {
                    SLOW => self.slow_chunk(chunk, home).await?,
                    _ => self.fast_chunk(chunk, home).await?,
                }
            }
        }
        let mut unconfirmed = self.reader.left_behind(&volume, self.state()).await?;
        unconfirmed.append(&mut self.recovered.unconfirmed);
        (self.report.log_end, self.report.unconfirmed) = (self.recovered.log.last.0, unconfirmed);
        Ok(())
    }

    fn state(&self) -> &State {
        &self.recovered.state
    }

    fn find(&mut self, device: Tier, offset: u64, what: impl Into<String>) {
        if self.report.findings.len() < MAX_FINDINGS {
            self.report.findings.push(Finding { device, offset, what: what.into() });
        }
    }

    /// Each slot has one owner.
    fn slots(&mut self) {
        let geo = &self.recovered.state.geo;
        let mut slots = [Slots::new(geo.slots(FAST), false), Slots::new(geo.slots(SLOW), false)];
        for slot in self.recovered.state.zone.borrowed().flat_map(|area| geo.slots_in(area)) {
            slots[0].mark_used(Slot(slot));
        }
        for chunk in (0..self.recovered.state.map.chunks()).map(Chunk) {
            let Some(home) = self.state().map.home(chunk) else { continue };
            let at = self.state().geo.slot_at(home);
            if !slots[usize::from(home.tier.0)].mark_used(home.slot) {
                self.find(
                    home.tier,
                    at,
                    format!("chunk {chunk} claims a slot that another chunk or the log has"),
                );
            }
        }
    }

    async fn landed(&mut self) -> Result<(), OpenError> {
        let zone = &self.recovered.state.zone;
        let places: Vec<_> = zone.chain().iter().copied().collect();
        for place in places {
            let mut wanted = Vec::new();
            let blocks = (1..self.state().geo.area_blocks()).map(|b| self.state().zone.zone_block(place, b));
            for z in blocks.flat_map(|z| [z, z.second()]).collect::<Vec<_>>() {
                let Some(owner) = self.state().landed.owner(z) else { continue };
                self.report.landed_blocks += 1;
                let (at, sum) = (self.state().zone.offset_of(z), self.state().landed.sum(z));
                if self.state().landed.is_bad(z) {
                    self.find(FAST, at, format!("block {owner} of the volume was lost earlier"));
                } else {
                    wanted.push((at, sum));
                }
            }
            wanted.dedup();
            self.verify(FAST, &wanted).await?;
        }
        Ok(())
    }

    async fn slow_chunk(&mut self, chunk: Chunk, home: Home) -> Result<(), OpenError> {
        let valid = self.state().map.valid(chunk);
        let mut wanted = Vec::new();
        for block in valid.iter() {
            // Where all of it landed, nobody will read it.
            let (landed, of_volume) = (&self.state().landed, self.state().map.join(chunk, block));
            let whole = |z| landed.is_bad(z) || landed.sectors(z).is_all();
            // Where a part did, a crash may have left the home torn.
            let torn = self.state().remains(of_volume).is_some();
            if torn || landed.get(of_volume).is_some_and(whole) {
                continue;
            }
            let at = self.state().geo.block_at(home, block);
            wanted.extend(self.sum_of(home, block).await?.map(|sum| (at, sum)));
        }
        self.verify(SLOW, &wanted).await
    }

    /// Some blocks on the fast tier have checksums.
    async fn fast_chunk(&mut self, chunk: Chunk, home: Home) -> Result<(), OpenError> {
        let valid = self.state().map.valid(chunk);
        let mut wanted = Vec::new();
        for block in valid.iter() {
            let of_volume = self.state().map.join(chunk, block);
            if self.state().landed.get(of_volume).is_none() {
                let at = self.state().geo.block_at(home, block);
                wanted.extend(self.sum_of(home, block).await?.map(|sum| (at, sum)));
            }
        }
        self.verify(FAST, &wanted).await
    }

    /// Reads the blocks, neighbours together, to compare each with its checksum.
    async fn verify(&mut self, tier: Tier, wanted: &[(u64, u32)]) -> Result<(), OpenError> {
        let neighbours = |a: &(u64, u32), b: &(u64, u32)| a.0 + u64::from(BLOCK_BYTES) == b.0;
        for run in wanted.chunk_by(neighbours).flat_map(|run| run.chunks(RUN_BLOCKS)) {
            self.run_of_blocks(tier, run).await?;
        }
        Ok(())
    }

    /// The checksum that a block of a home must have, if it has one; none when its page cannot be read, which is a finding.
    async fn sum_of(&mut self, home: Home, block: u32) -> Result<Option<u32>, OpenError> {
        loop {
            let sums = &mut self.recovered.state.sums;
            let known = match home.tier {
                SLOW => Some(sums.get(home.slot, block)),
                _ => sums.of_fast(home.slot, block),
            };
            let page = match known {
                None => return Ok(None),
                Some(Lookup::Known(sum)) => return Ok(Some(sum)),
                Some(Lookup::InPage(page)) => page,
            };
            let number = self.state().geo.map_pages + page;
            let version = self.recovered.pages.get(number);
            let Some(place) = version.index() else {
                self.recovered.state.sums.fill(page, &[]);
                continue;
            };
            let at = self.state().geo.page_at(number, place);
            let (volume, kind) = (self.recovered.superblocks[0].volume, self.state().geo.sums_kind(number));
            if self.bad_sum_pages.contains(&page) {
                return Ok(None);
            }
            let read = self.reader.blocks(FAST, at, 1, |b| {
                page::decode_version(b, kind, &volume, u64::from(number), version.sum).map(<[u8]>::to_vec)
            });
            let what = match read.await {
                Ok(Ok(payload)) => {
                    self.recovered.state.sums.fill(page, &payload);
                    continue;
                }
                Ok(Err(fault)) => format!("{kind} {fault}"),
                Err(OpenError::Device { errno, .. }) => {
                    format!("{kind} cannot be read: device error {errno}")
                }
                Err(error) => return Err(error),
            };
            self.find(FAST, at, what);
            self.bad_sum_pages.insert(page);
            return Ok(None);
        }
    }

    /// Begins to read a run of blocks, while some others are on their way: where each read takes long, and could go with others,
    /// one after the other would take all day.
    async fn run_of_blocks(&mut self, tier: Tier, run: &[(u64, u32)]) -> Result<(), OpenError> {
        let io = self.reader.io.clone();
        let buf = loop {
            let buf = io.alloc(Pool::Background, run.len() as u32 * BLOCK_BYTES);
            if buf.is_some() && self.reading.len() < READS_AHEAD {
                break buf.ok_or_else(no_memory)?;
            }
            buf.into_iter().for_each(|buf| io.free(buf));
            let oldest = self.reading.pop_front().ok_or_else(no_memory)?;
            self.compare(oldest).await;
        };
        let read = Box::pin(io.read(tier, run[0].0, buf));
        self.reading.push_back(Reading { tier, run: run.to_vec(), buf, read });
        Ok(())
    }

    /// Waits for a run of blocks, and compares them with their checksums.
    async fn compare(&mut self, Reading { tier, run, buf, read }: Reading) {
        let read = read.await;
        let io = &self.reader.io;
        let found = io.with(|a| {
            let sum = |i| a.crc32c(buf.slice(i * BLOCK_BYTES, BLOCK_BYTES));
            (0..run.len() as u32).map(sum).collect::<Vec<u32>>()
        });
        io.free(buf);
        for ((at, sum), found) in run.iter().zip(found) {
            match &read {
                Err(e) => self.find(tier, *at, format!("cannot be read: device error {}", e.errno)),
                Ok(()) if *sum != found => self.find(tier, *at, "the block does not match its checksum"),
                Ok(()) => self.report.verified_blocks += 1,
            }
        }
    }
}
