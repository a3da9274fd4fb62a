//! Reads a volume's state: superblocks, checkpoint, log. Writes nothing; opening and the check share it.

mod pages;
mod twins;

pub(crate) use twins::BadCopy;

use crate::api::coverage::Stage;
use crate::api::options::{DeviceInfo, OpenError, OpenOptions, UnconfirmedGroup};
use crate::base::arena::{Arena, Buf, Pool};
use crate::base::bugs::{Bug, planted};
use crate::format::geometry::{Geometry, HEADER_COPIES, HEADERS_AT, header_at};
use crate::format::header::CheckpointHeader;
use crate::format::superblock::{Found, OpenState, Superblock};
use crate::format::{FORMAT, Id, id_text};
use crate::life::lone::stands_for;
use crate::life::open::no_memory;
use crate::life::task::TaskIo;
use crate::volume::pages::Pages;
use crate::volume::state::State;
use bimetal_units::*;
use std::cell::{Cell, RefCell};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// EIO.
const EIO: i32 = 5;
/// Reads of a single block before it counts as one that cannot be read. Of the log, the header of its group is believed from
/// then on, and hides what was there before, even if its data never got there; what a checkpoint header or a segment's says is
/// done without, and written over.
pub(super) const BLOCK_READS: u32 = 5;

/// Reads of the same blocks that failed.
#[derive(Default)]
struct Failures {
    /// While the device read something else.
    alone: u32,
    /// While it read nothing, which says nothing of these blocks.
    with_all: u32,
}

/// A way to the devices of a volume that is being read.
pub struct Reader<A> {
    pub(crate) io: TaskIo<A>,
    pub(crate) devices: Vec<DeviceInfo>,
    /// A device that is not there: it is asked for nothing.
    missing: Option<Tier>,
    /// A superblock of the fast device that could be read: as long as it can be, the device reads something.
    witness: Cell<u64>,
    /// Blocks of metadata that could not be read, and were done without.
    pub(crate) unreadable: RefCell<Vec<(Tier, u64)>>,
    /// Superblocks that are older than the other one of their device: a raise was interrupted between the two.
    pub(crate) older_superblocks: RefCell<Vec<(Tier, u64)>>,
    /// Superblocks and copies of checkpoint headers that are not what they are whenever a crash may happen, and what they
    /// are instead.
    pub(crate) bad_spares: RefCell<Vec<(Tier, u64, &'static str)>>,
    /// Copies of the newest checkpoint header that do not hold it.
    pub(crate) stale_headers: RefCell<Vec<u64>>,
    /// Whether map pages, and pages of the directory, may be missing: to find out what is lost with them.
    pub(crate) without_pages: bool,
    /// Map pages that are missing.
    pub(crate) lost_pages: RefCell<Vec<u32>>,
    /// Copies of pages in force, and of the root, that are not good while the other copy is.
    pub(crate) bad_copies: RefCell<Vec<BadCopy>>,
}

/// Blocks in a buffer that the device could not read; they are zeroed.
pub struct Unreadable(Vec<u32>);

impl Unreadable {
    /// Whether any of these blocks is among them.
    pub fn any(&self, blocks: std::ops::Range<u32>) -> bool {
        self.0.iter().any(|b| blocks.contains(b))
    }
}

/// The checkpoint that a volume is read from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Basis {
    /// The newest.
    Newest,
    /// The one before it: its pages are where they were, and where its part of the log is still there as well, they say
    /// the same.
    Before,
}

/// A copy of a checkpoint header that can be read: its place, its byte, and what it says if it is valid.
type HeaderFound = (u64, u64, Option<CheckpointHeader>);

/// The checkpoint headers that are valid.
struct Headers {
    newest: CheckpointHeader,
    /// That of the checkpoint before, if it is still there.
    before: Option<CheckpointHeader>,
}

/// What was read.
pub struct Recovered {
    /// The superblocks, in tier order.
    pub superblocks: [Superblock; 2],
    /// The checkpoint that recovery began from.
    pub header: CheckpointHeader,
    /// Which of its pages are in force.
    pub pages: Pages,
    /// Everything the log said, applied.
    pub state: State,
    /// The log's end.
    pub log: crate::path::log::LogEnd,
    /// Groups behind it.
    pub unconfirmed: Vec<UnconfirmedGroup>,
}

/// Whether the landing zone is as large as its tables may be, and could be larger with more memory.
pub(super) fn zone_lacks_memory(state: &State) -> bool {
    state.zone.may_borrow() == 0 && state.zone.len() < state.geo.most_zone_areas()
}

impl<A: Arena> Reader<A> {
    /// A reader of these devices, in tier order.
    pub fn new(io: TaskIo<A>, devices: Vec<DeviceInfo>) -> Reader<A> {
        Reader {
            io,
            devices,
            missing: None,
            witness: Cell::new(0),
            unreadable: RefCell::default(),
            older_superblocks: RefCell::default(),
            bad_spares: RefCell::default(),
            stale_headers: RefCell::default(),
            without_pages: false,
            lost_pages: RefCell::default(),
            bad_copies: RefCell::default(),
        }
    }

    /// The same where one of them is missing.
    pub(crate) fn without(io: TaskIo<A>, devices: Vec<DeviceInfo>, missing: Tier) -> Reader<A> {
        Reader { missing: Some(missing), ..Reader::new(io, devices) }
    }

    pub(crate) fn is_missing(&self, tier: Tier) -> bool {
        self.missing == Some(tier)
    }

    /// Flushes, so that nothing read can vanish; then reads all there is. Metadata that could not be read and has a
    /// second copy was done without: where that did not do, it says so, and does not call the device corrupt alone.
    pub async fn recover(&self, options: &OpenOptions) -> Result<Recovered, OpenError> {
        let recovered = self.read_all(options).await;
        recovered.map_err(|error| match (error, self.unreadable.borrow().first()) {
            (OpenError::Corrupt { device, offset, what }, Some((tier, at))) => {
                let missing = format!("what {} has at byte {at} could not be read", self.name(*tier));
                OpenError::Corrupt { device, offset, what: format!("{what} ({missing})") }
            }
            (error, _) => error,
        })
    }

    async fn read_all(&self, options: &OpenOptions) -> Result<Recovered, OpenError> {
        self.read_from(options, Basis::Newest).await
    }

    /// Reads all there is, from whichever checkpoint.
    pub(crate) async fn read_from(
        &self,
        options: &OpenOptions,
        basis: Basis,
    ) -> Result<Recovered, OpenError> {
        self.io.stage(Stage::OpenFlush);
        for tier in [FAST, SLOW].into_iter().filter(|tier| !self.is_missing(*tier)) {
            let flushed = self.io.flush(tier).await.map_err(|e| self.device_error(tier, 0, e.errno));
            // Who only looks acknowledges nothing, and an SSD that turned read-only may refuse to flush.
            if self.missing.is_none() {
                flushed?;
            }
        }
        self.io.stage(Stage::OpenSuperblocks);
        let superblocks = self.superblocks(options.volume_id).await?;
        let geo = superblocks[0].geometry.clone();
        let mut state = State::new(geo, &options.tuning);
        self.io.stage(Stage::OpenCheckpoint);
        let volume = superblocks[0].volume;
        let Headers { newest, before } = self.headers_found(&volume).await?;
        let header = match basis {
            Basis::Newest => newest.clone(),
            Basis::Before => before.ok_or_else(|| {
                self.corrupt(FAST, HEADERS_AT, "the checkpoint before the newest has no valid header")
            })?,
        };
        if header.generation > superblocks[0].generation_with(&superblocks[1]) {
            let what = "its superblocks are of an opening before the newest checkpoint's";
            return Err(self.corrupt(FAST, 0, what));
        }
        let directory = self.root(&volume, &header, &mut state).await?;
        let pages = self.directory(&volume, &state.geo, directory).await?;
        self.map(&volume, &pages, &mut state).await?;
        state.forget_pages(&self.lost_pages.borrow());
        let is_hidden = self.a_header_is_hidden();
        if is_hidden {
            self.sum_pages(&volume, &pages, &state.geo).await?;
        }
        for region in 0..state.geo.fast_sum_pages {
            let number = state.geo.map_pages + state.sums.regions.page(region);
            if pages.get(number).index().is_some() {
                state.sums.regions.found(region);
            }
        }
        if is_hidden || basis == Basis::Before || !self.lost_pages.borrow().is_empty() {
            state.sums.regions.distrust();
        }
        self.io.stage(Stage::OpenReplay);
        // Groups may name the newest checkpoint, and it knows best what was durable, whichever the pages are of.
        let durable = header.durable.max(newest.durable);
        let from = CheckpointHeader { number: newest.number, durable, ..header.clone() };
        let (log, unconfirmed) = self.replay(&volume, &from, &mut state).await?;
        state.settle_fast_sums();
        // A move in flight keeps the home of a chunk that was discarded meanwhile.
        for chunk in (0..state.map.chunks()).map(Chunk) {
            state.drop_empty_home(chunk);
        }
        Ok(Recovered { superblocks, header, pages, state, log, unconfirmed })
    }

    pub(crate) fn device_error(&self, tier: Tier, offset: u64, errno: i32) -> OpenError {
        OpenError::Device { device: self.name(tier), offset, errno }
    }

    /// Why the landing zone cannot have an area that the log names.
    pub(crate) fn no_area(&self, state: &State, offset: u64, what: &str) -> OpenError {
        if zone_lacks_memory(state) {
            let what =
                "the landing zone has grown beyond what its tables may take: give this volume more memory";
            return OpenError::Memory { what: what.into() };
        }
        self.corrupt(FAST, offset, what)
    }

    pub(crate) fn corrupt(&self, tier: Tier, offset: u64, what: impl Into<String>) -> OpenError {
        OpenError::Corrupt { device: self.name(tier), offset, what: what.into() }
    }

    fn name(&self, tier: Tier) -> String {
        self.devices[usize::from(tier.0)].name.clone()
    }

    /// Reads blocks and works on their bytes.
    pub(crate) async fn blocks<R>(
        &self,
        tier: Tier,
        offset: u64,
        count: u32,
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, OpenError> {
        let buf = self.io.alloc(Pool::Meta, count * BLOCK_BYTES).ok_or_else(no_memory)?;
        let read = self.io.read(tier, offset, buf).await;
        let result = read.map(|()| self.io.with(|a| f(a.bytes(buf))));
        self.io.free(buf);
        result.map_err(|e| self.device_error(tier, offset, e.errno))
    }

    /// Reads a block of metadata of which there is another copy, or another way to know: none when the
    /// device cannot read it.
    pub(crate) async fn spare_block<R>(
        &self,
        tier: Tier,
        offset: u64,
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, OpenError> {
        match self.blocks(tier, offset, 1, f).await {
            Err(OpenError::Device { .. }) => {
                self.unreadable.borrow_mut().push((tier, offset));
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// The same of a block of the fast device that may say what nothing else does. What it says is lost for good once an
    /// opening has gone on without it, so no error that passes hides it.
    pub(crate) async fn lone_block<R>(
        &self,
        offset: u64,
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, OpenError> {
        let buf = self.io.alloc(Pool::Meta, BLOCK_BYTES).ok_or_else(no_memory)?;
        let mut failures = Failures::default();
        let result = loop {
            let Err(error) = self.io.read(FAST, offset, buf).await else {
                break Ok(Some(self.io.with(|a| f(a.bytes(buf)))));
            };
            let error = self.device_error(FAST, offset, error.errno);
            match self.is_bad(&mut failures, error, buf).await {
                Ok(false) => {}
                Ok(true) => break Ok(None),
                Err(error) => break Err(error),
            }
        };
        self.io.free(buf);
        result
    }

    /// Whether what could not be read of the fast device once more counts as bad. A device that reads nothing at all is no
    /// evidence against a block, however long that lasts: then this is the error. `spare` may be overwritten.
    async fn is_bad(&self, failures: &mut Failures, error: OpenError, spare: Buf) -> Result<bool, OpenError> {
        let read = self.io.read(FAST, self.witness.get(), spare).await;
        self.io.with(|a| a.zero(spare));
        *(if read.is_ok() { &mut failures.alone } else { &mut failures.with_all }) += 1;
        if failures.with_all == BLOCK_READS { Err(error) } else { Ok(failures.alone == BLOCK_READS) }
    }

    /// Fills a buffer from the fast device; where that cannot, block by block, so that one bad sector costs one block, and again,
    /// so that a passing error costs none.
    pub(crate) async fn read_around(&self, offset: u64, buf: Buf) -> Result<Unreadable, OpenError> {
        let Err(error) = self.io.read(FAST, offset, buf).await else { return Ok(Unreadable(Vec::new())) };
        let error = self.device_error(FAST, offset, error.errno);
        let count = buf.len / BLOCK_BYTES;
        let mut bad: Vec<u32> = (0..count).collect();
        let mut failures = Failures::default();
        loop {
            let missing = std::mem::take(&mut bad);
            for i in missing {
                let block = buf.slice(i * BLOCK_BYTES, BLOCK_BYTES);
                if self.io.read(FAST, offset + u64::from(i) * BLOCK, block).await.is_err() {
                    self.io.with(|a| a.zero(block));
                    bad.push(i);
                }
            }
            if bad.len() as u32 == count {
                return Err(error);
            }
            let Some(spare) = bad.first().map(|i| buf.slice(i * BLOCK_BYTES, BLOCK_BYTES)) else {
                return Ok(Unreadable(bad));
            };
            if self.is_bad(&mut failures, error.clone(), spare).await? {
                return Ok(Unreadable(bad));
            }
        }
    }

    pub(crate) async fn superblocks(&self, expected: Option<Id>) -> Result<[Superblock; 2], OpenError> {
        let (fast, slow) = if self.is_missing(FAST) {
            let slow = self.superblock(SLOW, None).await?;
            (stands_for(FAST, &slow), slow)
        } else {
            let fast = self.superblock(FAST, None).await?;
            let slow = match self.is_missing(SLOW) {
                true => stands_for(SLOW, &fast),
                false => self.superblock(SLOW, Some(&fast.geometry)).await?,
            };
            (fast, slow)
        };
        let wanted = expected.unwrap_or(fast.volume);
        for (tier, found) in [(FAST, &fast), (SLOW, &slow)] {
            let device = self.name(tier);
            if found.volume != wanted {
                return Err(OpenError::OtherVolume { device, found: id_text(&found.volume) });
            }
            if found.tier != tier {
                return Err(OpenError::Swapped { device, found: found.tier.0, expected: tier.0 });
            }
        }
        for (tier, found) in [(FAST, &fast), (SLOW, &slow)] {
            if self.is_missing(tier) {
                continue;
            }
            let need_bytes = found.geometry.device_bytes[usize::from(tier.0)];
            let have_bytes = self.devices[usize::from(tier.0)].size_bytes;
            if have_bytes < need_bytes {
                return Err(OpenError::Shrunk { device: self.name(tier), have_bytes, need_bytes });
            }
        }
        let differs = [FAST, SLOW].map(|tier| {
            let place = usize::from(tier.0);
            fast.devices[place] != slow.devices[place]
        });
        // Each knows itself; the other one knows who has its place.
        if let ([true, false] | [false, true], true) = (differs, fast.geometry == slow.geometry) {
            let tier = if differs[0] { FAST } else { SLOW };
            return Err(OpenError::Replaced { device: self.name(tier) });
        }
        if (&fast.geometry, fast.devices) != (&slow.geometry, slow.devices) {
            return Err(self.corrupt(
                SLOW,
                0,
                "its superblock describes another layout than the fast device's",
            ));
        }
        // Opening raises the fast device first: one step ahead, and only while it says so.
        let raising = fast.state == OpenState::Raising && fast.generation.0 == slow.generation.0 + 1;
        let fits = fast.left_behind.map_or(fast.generation == slow.generation || raising, |left| {
            self.is_missing(SLOW) || left.is(slow.generation)
        });
        if !fits {
            let (tier, found, expected) = if fast.generation < slow.generation {
                (FAST, fast.generation.0, slow.generation.0)
            } else {
                let expected = fast.left_behind.map_or(fast.generation, |left| left.generation);
                (SLOW, slow.generation.0, expected.0)
            };
            return Err(OpenError::OtherGeneration { device: self.name(tier), found, expected });
        }
        Ok([fast, slow])
    }

    /// The newer of a device's two superblocks. The second one is where the volume ends. The device may be longer: where the first
    /// one does not say, the other device's does.
    async fn superblock(&self, tier: Tier, known: Option<&Geometry>) -> Result<Superblock, OpenError> {
        let device = self.name(tier);
        let size = self.devices[usize::from(tier.0)].size_bytes;
        if size < 64 * BLOCK {
            return Err(OpenError::NotOurs { device });
        }
        let first = self.spare_block(tier, 0, |b| Superblock::decode(b, 0)).await?;
        let lost = first.is_none();
        let first = first.unwrap_or(Found::Nothing);
        let end = |geometry: &Geometry| geometry.device_bytes[usize::from(tier.0)];
        let volume_end = match (&first, known) {
            (Found::Valid(own), _) => Some(end(&own.geometry)),
            (_, Some(known)) => Some(end(known)),
            _ if tier == FAST => match self.glimpse(SLOW).await {
                Some(others) => Some(end(&others)),
                None => self.end_by_headers().await,
            },
            _ => None,
        };
        let device_end = size / BLOCK * BLOCK;
        let volume_end = volume_end.filter(|_| !planted(Bug::SecondAtDeviceEnd));
        let mut second_at = volume_end.unwrap_or(device_end).saturating_sub(BLOCK);
        let mut second = self.second_superblock(tier, second_at).await?;
        // What the other device says may be another volume's.
        let is_found =
            matches!(first, Found::Valid(_)) || matches!(second, Some(Found::Valid(_) | Found::Newer(_)));
        if !is_found && second_at != device_end - BLOCK {
            second_at = device_end - BLOCK;
            second = self.second_superblock(tier, second_at).await?;
        }
        // What a superblock holds is one sector, which no crash tears.
        for (at, bad) in [
            (0, !lost && matches!(first, Found::Nothing)),
            (second_at, matches!(second, Some(Found::Nothing))),
        ] {
            if bad {
                self.bad_spares.borrow_mut().push((
                    tier,
                    at,
                    "this superblock is not valid; the device's other one is",
                ));
            }
        }
        if tier == FAST {
            self.witness.set(if lost { second_at } else { 0 });
        }
        let second = second.unwrap_or(Found::Nothing);
        match (first, second) {
            // One that belongs on the other device came here by mistake; both do where the devices are swapped.
            (Found::Valid(a), Found::Valid(b)) if (a.tier == tier) != (b.tier == tier) => {
                let (own, at) = if a.tier == tier { (a, second_at) } else { (b, 0) };
                let what = "this superblock is another device's; the device's other one is its own";
                self.bad_spares.borrow_mut().push((tier, at, what));
                Ok(*own)
            }
            (Found::Valid(a), Found::Valid(b)) if a.generation == b.generation => Ok(*a),
            (Found::Valid(a), Found::Valid(b)) => {
                let (newer, older_at) = if b.generation > a.generation { (b, 0) } else { (a, second_at) };
                self.older_superblocks.borrow_mut().push((newer.tier, older_at));
                Ok(*newer)
            }
            (Found::Newer(found), _) | (_, Found::Newer(found)) => {
                Err(OpenError::NewerFormat { device, found, known: FORMAT })
            }
            (Found::Valid(s), Found::Nothing) | (Found::Nothing, Found::Valid(s)) => Ok(*s),
            (Found::Nothing, Found::Nothing) if lost => Err(self.device_error(tier, 0, EIO)),
            (Found::Nothing, Found::Nothing) => Err(OpenError::NotOurs { device }),
        }
    }

    /// The second superblock, at this place. On a device that shrank it is gone; the first says so.
    async fn second_superblock(&self, tier: Tier, at: u64) -> Result<Option<Found>, OpenError> {
        if at + BLOCK > self.devices[usize::from(tier.0)].size_bytes {
            return Ok(None);
        }
        self.spare_block(tier, at, |b| Superblock::decode(b, at)).await
    }

    /// Where the volume ends on the fast device, as a checkpoint header says, which has a fixed place.
    async fn end_by_headers(&self) -> Option<u64> {
        for (place, copy) in (0..2).flat_map(|place| (0..HEADER_COPIES).map(move |copy| (place, copy))) {
            let at = header_at(place) + copy * BLOCK;
            if let Ok(Some((_, header))) =
                self.blocks(FAST, at, 1, |b| CheckpointHeader::decode_any(b, place)).await
                && header.fast_bytes > 0
            {
                return Some(header.fast_bytes);
            }
        }
        None
    }

    /// The layout by a device's first superblock, if that can be read.
    async fn glimpse(&self, tier: Tier) -> Option<Geometry> {
        if self.is_missing(tier) {
            return None;
        }
        match self.blocks(tier, 0, 1, |b| Superblock::decode(b, 0)).await {
            Ok(Found::Valid(superblock)) => Some(superblock.geometry),
            _ => None,
        }
    }

    /// The newest checkpoint. One that cannot be read may have been newer: pages and log groups written
    /// since then say so, and are refused.
    async fn headers_found(&self, volume: &Id) -> Result<Headers, OpenError> {
        let mut found = Vec::new();
        for place in 0..2 {
            for copy in 0..HEADER_COPIES {
                found.extend(self.header_found(volume, place, header_at(place) + copy * BLOCK).await?);
            }
        }
        let newest =
            found.iter().filter_map(|(.., header)| header.clone()).max_by_key(|header| header.number);
        if let Some(newest) = &newest {
            let is_stale = |(place, _, header): &&HeaderFound| {
                *place == newest.number % 2 && header.as_ref() != Some(newest)
            };
            self.stale_headers.borrow_mut().extend(found.iter().filter(is_stale).map(|(_, at, _)| *at));
        }
        let newest = newest.ok_or_else(|| self.corrupt(FAST, HEADERS_AT, "no valid checkpoint header"))?;
        let is_before = |header: &CheckpointHeader| header.number + 1 == newest.number;
        let before = found.into_iter().filter_map(|(.., header)| header).find(is_before);
        Ok(Headers { newest, before })
    }

    /// Reads a copy of a checkpoint header; none where it cannot be read.
    async fn header_found(&self, volume: &Id, place: u64, at: u64) -> Result<Option<HeaderFound>, OpenError> {
        let decode = |b: &[u8]| (CheckpointHeader::decode(b, volume, place), b.iter().all(|byte| *byte == 0));
        let Some((header, blank)) = self.lone_block(at, decode).await? else {
            self.unreadable.borrow_mut().push((FAST, at));
            return Ok(None);
        };
        // A header is one sector, which no crash tears; a place that was never written is blank.
        if header.is_none() && !blank {
            let what = "this copy of a checkpoint header is not valid; the newest one is known from another";
            self.bad_spares.borrow_mut().push((FAST, at, what));
        }
        Ok(Some((place, at, header)))
    }

    /// Whether all copies of some checkpoint's header could not be read: it may have been the newest.
    fn a_header_is_hidden(&self) -> bool {
        let unreadable = self.unreadable.borrow();
        let hidden = |copy: u64, place: u64| unreadable.contains(&(FAST, header_at(place) + copy * BLOCK));
        (0..2).any(|place| (0..HEADER_COPIES).all(|copy| hidden(copy, place)))
    }
}
