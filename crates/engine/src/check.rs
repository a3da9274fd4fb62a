//! The offline check: structure, and the checksum of every block that has one. Writes nothing.

use crate::arena::{Arena, Pool};
use crate::format::page::{self, PageKind};
use crate::open::no_memory;
use crate::options::{CheckReport, DeviceInfo, Finding, OpenError, OpenOptions};
use crate::recovery::{Reader, Recovered};
use crate::slots::Slots;
use crate::state::State;
use crate::sums::Lookup;
use crate::task::Task;
use crate::units::*;

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
        let reader = Reader { io, devices };
        match reader.recover(&options, true).await {
            Ok(recovered) => Checker { reader, recovered, report: CheckReport::default() }.run().await,
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
}

impl<A: Arena> Checker<A> {
    async fn run(mut self) -> Result<CheckReport, OpenError> {
        self.slots();
        self.landed().await?;
        for chunk in (0..self.state().map.chunks()).map(Chunk) {
            if let Some(home) = self.state().map.home(chunk) {
                self.report.chunks += 1;
                if home.tier == SLOW {
                    self.slow_chunk(chunk, home).await?;
                }
            }
        }
        Ok(self.report)
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
        for chunk in (0..self.recovered.state.map.chunks()).map(Chunk) {
            let Some(home) = self.state().map.home(chunk) else { continue };
            let at = self.state().geo.slot_at(home);
            if !slots[usize::from(home.tier.0)].mark_used(home.slot) {
                self.find(home.tier, at, format!("chunk {chunk} claims a slot that another chunk has"));
            }
        }
    }

    async fn landed(&mut self) -> Result<(), OpenError> {
        let zone = &self.recovered.state.zone;
        let places: Vec<_> = zone.chain.iter().copied().collect();
        for place in places {
            for block in 1..self.state().geo.area_blocks() {
                let z = self.state().zone.zone_block(place, block);
                let Some(owner) = self.state().landed.owner(z) else { continue };
                self.report.landed_blocks += 1;
                let (at, sum) = (self.state().zone.offset_of(z), self.state().landed.sum(z));
                if self.state().landed.is_bad(z) {
                    self.find(FAST, at, format!("block {owner} of the volume was lost earlier"));
                } else {
                    self.block(FAST, at, Some(sum), &format!("landed block {owner}")).await?;
                }
            }
        }
        Ok(())
    }

    async fn slow_chunk(&mut self, chunk: Chunk, home: Home) -> Result<(), OpenError> {
        let valid = self.state().map.valid(chunk);
        for block in valid.iter() {
            // A landed copy supersedes it: nobody will read it.
            if self.state().landed.get(self.state().map.join(chunk, block)).is_some() {
                continue;
            }
            let sum = self.slow_sum(home, block).await?;
            let at = self.state().geo.slot_at(home) + u64::from(block) * u64::from(BLOCK_BYTES);
            self.block(SLOW, at, sum, &format!("chunk {chunk} block {block}")).await?;
        }
        Ok(())
    }

    /// The checksum that a slow block must have; none when its page cannot be read, which is a finding.
    async fn slow_sum(&mut self, home: Home, block: u32) -> Result<Option<u32>, OpenError> {
        loop {
            let page = match self.recovered.state.sums.get(home.slot, block) {
                Lookup::Known(sum) => return Ok(Some(sum)),
                Lookup::InPage(page) => page,
            };
            let number = self.state().geo.map_pages + page;
            let Some(place) = self.recovered.places[number as usize].checked_sub(1) else {
                self.recovered.state.sums.fill(page, &[]);
                continue;
            };
            let at = self.state().geo.page_at(number, place);
            let volume = self.recovered.superblocks[0].volume;
            let payload = self
                .reader
                .blocks(FAST, at, 1, |b| {
                    page::decode(b, PageKind::Sums, &volume, u64::from(number), None).map(<[u8]>::to_vec)
                })
                .await?;
            match payload {
                Some(payload) => self.recovered.state.sums.fill(page, &payload),
                None => {
                    self.find(FAST, at, "a page of checksums is not valid");
                    return Ok(None);
                }
            }
        }
    }

    async fn block(&mut self, tier: Tier, at: u64, sum: Option<u32>, what: &str) -> Result<(), OpenError> {
        let io = self.reader.io.clone();
        let buf = io.alloc(Pool::Background, BLOCK_BYTES).ok_or_else(no_memory)?;
        let read = io.read(tier, at, buf).await;
        let found = io.with(|a| a.crc32c(buf));
        io.free(buf);
        match (read, sum) {
            (Err(e), _) => self.find(tier, at, format!("{what} cannot be read: device error {}", e.errno)),
            (Ok(()), Some(sum)) if sum != found => {
                self.find(tier, at, format!("{what} does not match its checksum"));
            }
            (Ok(()), _) => self.report.verified_blocks += 1,
        }
        Ok(())
    }
}
