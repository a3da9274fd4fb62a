//! Reads a volume's state: superblocks, checkpoint, log. Writes nothing; opening and the check share it.

use crate::arena::{Arena, Buf, Pool};
use crate::coverage::Stage;
use crate::format::codec::{Get, seal_sum};
use crate::format::geometry::{Geometry, HEADER_COPIES, HEADERS_AT, header_at};
use crate::format::header::CheckpointHeader;
use crate::format::page::{self, PageFault, PageKind, PageRef};
use crate::format::superblock::{Found, OpenState, Superblock};
use crate::format::{FORMAT, Id, id_text};
use crate::open::no_memory;
use crate::options::{DeviceInfo, OpenError, OpenOptions, UnconfirmedGroup};
use crate::pages::Pages;
use crate::state::State;
use crate::task::TaskIo;
use crate::units::*;
use std::cell::RefCell;
use std::ops::Range;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// EIO.
const EIO: i32 = 5;
/// Blocks of the map read in one go, the most that there is memory for: the map of a 10 TB volume is
/// a gigabyte, and small reads one after the other would take minutes.
const READ_BLOCKS: [u32; 3] = [256, 64, 16];
/// Reads of a single block of the log before it counts as one that cannot be read, as long as others near it can. The
/// header of its group is believed from then on, and hides what was there before, even if its data never got there.
const BLOCK_READS: u32 = 5;

/// A way to the devices of a volume that is being read.
pub struct Reader<A> {
    pub(crate) io: TaskIo<A>,
    pub(crate) devices: Vec<DeviceInfo>,
    /// Blocks of metadata that could not be read, and were done without.
    pub(crate) unreadable: RefCell<Vec<(Tier, u64)>>,
    /// Superblocks that are older than the other one of their device: a raise was interrupted between the two.
    pub(crate) older_superblocks: RefCell<Vec<(Tier, u64)>>,
}

/// Blocks in a buffer that the device could not read; they are zeroed.
pub struct Unreadable(Vec<u32>);

impl Unreadable {
    /// Whether any of these blocks is among them.
    pub fn any(&self, blocks: std::ops::Range<u32>) -> bool {
        self.0.iter().any(|b| blocks.contains(b))
    }
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
    pub log: crate::replay::LogEnd,
    /// Groups behind it.
    pub unconfirmed: Vec<UnconfirmedGroup>,
}

impl<A: Arena> Reader<A> {
    /// A reader of these devices, in tier order.
    pub fn new(io: TaskIo<A>, devices: Vec<DeviceInfo>) -> Reader<A> {
        Reader { io, devices, unreadable: RefCell::default(), older_superblocks: RefCell::default() }
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
        self.io.stage(Stage::OpenFlush);
        for tier in [FAST, SLOW] {
            self.io.flush(tier).await.map_err(|e| self.device_error(tier, 0, e.errno))?;
        }
        self.io.stage(Stage::OpenSuperblocks);
        let superblocks = self.superblocks(options.volume_id).await?;
        let geo = superblocks[0].geometry.clone();
        let mut state = State::new(geo, &options.tuning);
        self.io.stage(Stage::OpenCheckpoint);
        let volume = superblocks[0].volume;
        let header = self.header(&volume).await?;
        if header.generation > superblocks[1].generation {
            let what = "its superblocks are of an opening before the newest checkpoint's";
            return Err(self.corrupt(FAST, 0, what));
        }
        let directory = self.root(&volume, &header, &mut state).await?;
        let pages = self.directory(&volume, &state.geo, directory).await?;
        self.map(&volume, &pages, &mut state).await?;
        if self.a_header_is_hidden() {
            self.sum_pages(&volume, &pages, &state.geo).await?;
        }
        self.io.stage(Stage::OpenReplay);
        let (log, unconfirmed) = self.replay(&volume, &header, &mut state).await?;
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
        if state.zone.may_borrow() == 0 && state.zone.len() < state.geo.most_zone_areas() {
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

    /// Fills a buffer; where the device cannot, block by block, so that one bad sector costs one block, and again, so that
    /// a passing error costs none.
    pub(crate) async fn read_around(
        &self,
        tier: Tier,
        offset: u64,
        buf: Buf,
    ) -> Result<Unreadable, OpenError> {
        let Err(error) = self.io.read(tier, offset, buf).await else { return Ok(Unreadable(Vec::new())) };
        let count = buf.len / BLOCK_BYTES;
        let mut bad: Vec<u32> = (0..count).collect();
        for _ in 0..BLOCK_READS {
            let missing = std::mem::take(&mut bad);
            for i in missing {
                let block = buf.slice(i * BLOCK_BYTES, BLOCK_BYTES);
                if self.io.read(tier, offset + u64::from(i) * BLOCK, block).await.is_err() {
                    self.io.with(|a| a.zero(block));
                    bad.push(i);
                }
            }
            if bad.len() as u32 == count {
                return Err(self.device_error(tier, offset, error.errno));
            }
        }
        Ok(Unreadable(bad))
    }

    async fn superblocks(&self, expected: Option<Id>) -> Result<[Superblock; 2], OpenError> {
        let fast = self.superblock(FAST).await?;
        let slow = self.superblock(SLOW).await?;
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
            let need_bytes = found.geometry.device_bytes[usize::from(tier.0)];
            let have_bytes = self.devices[usize::from(tier.0)].size_bytes;
            if have_bytes < need_bytes {
                return Err(OpenError::Shrunk { device: self.name(tier), have_bytes, need_bytes });
            }
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
        if fast.generation != slow.generation && !raising {
            let (tier, found, expected) = if fast.generation < slow.generation {
                (FAST, fast.generation.0, slow.generation.0)
            } else {
                (SLOW, slow.generation.0, fast.generation.0)
            };
            return Err(OpenError::OtherGeneration { device: self.name(tier), found, expected });
        }
        Ok([fast, slow])
    }

    /// The newer of a device's two superblocks.
    async fn superblock(&self, tier: Tier) -> Result<Superblock, OpenError> {
        let device = self.name(tier);
        let size = self.devices[usize::from(tier.0)].size_bytes;
        if size < 64 * BLOCK {
            return Err(OpenError::NotOurs { device });
        }
        let first = self.spare_block(tier, 0, |b| Superblock::decode(b, 0)).await?;
        let lost = first.is_none();
        let first = first.unwrap_or(Found::Nothing);
        let second_at = match &first {
            Found::Valid(s) => {
                s.geometry.device_bytes.get(usize::from(s.tier.0)).map_or(0, |b| b.saturating_sub(BLOCK))
            }
            _ => size / BLOCK * BLOCK - BLOCK,
        };
        // On a device that shrank the second one is gone; the first says so.
        let second = if second_at + BLOCK <= size {
            let decoded = self.spare_block(tier, second_at, |b| Superblock::decode(b, second_at)).await?;
            decoded.unwrap_or(Found::Nothing)
        } else {
            Found::Nothing
        };
        match (first, second) {
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

    /// The newest checkpoint. One that cannot be read may have been newer: pages and log groups written
    /// since then say so, and are refused.
    async fn header(&self, volume: &Id) -> Result<CheckpointHeader, OpenError> {
        let mut newest: Option<CheckpointHeader> = None;
        for (place, copy) in (0..2).flat_map(|place| (0..HEADER_COPIES).map(move |copy| (place, copy))) {
            let at = header_at(place) + copy * BLOCK;
            let found = self.spare_block(FAST, at, |b| CheckpointHeader::decode(b, volume, place)).await?;
            if let Some(header) = found.flatten()
                && newest.as_ref().is_none_or(|n| n.number < header.number)
            {
                newest = Some(header);
            }
        }
        newest.ok_or_else(|| self.corrupt(FAST, HEADERS_AT, "no valid checkpoint header"))
    }

    /// Whether all copies of some checkpoint's header could not be read: it may have been the newest.
    fn a_header_is_hidden(&self) -> bool {
        let unreadable = self.unreadable.borrow();
        let hidden = |copy: u64, place: u64| unreadable.contains(&(FAST, header_at(place) + copy * BLOCK));
        (0..2).any(|place| (0..HEADER_COPIES).all(|copy| hidden(copy, place)))
    }

    /// Holds the pages of checksums against their references, which opening does not need otherwise. The checkpoint
    /// after a hidden one may have written over them, and over nothing else that is read here.
    async fn sum_pages(&self, volume: &Id, pages: &Pages, geo: &Geometry) -> Result<(), OpenError> {
        let numbers = geo.map_pages..geo.table_pages();
        self.pages(volume, PageKind::Sums, geo, numbers, |number| pages.get(number), |_, _| true).await
    }

    /// Reads the root: which pages of the directory are in force, and the recent checksums.
    async fn root(
        &self,
        volume: &Id,
        header: &CheckpointHeader,
        state: &mut State,
    ) -> Result<Vec<PageRef>, OpenError> {
        let geo = &state.geo;
        if header.root_blocks == 0 {
            return Ok(vec![PageRef::default(); geo.directory_pages as usize]);
        }
        let at = geo.roots_at[(header.number % 2) as usize];
        let bad = |what: &str| self.corrupt(FAST, at, what);
        if header.root_blocks > geo.root_blocks || header.list_entries > geo.list_entries {
            return Err(bad("the checkpoint names a root that is too large"));
        }
        let (mut refs, mut list, mut sum) = (Vec::new(), Vec::new(), 0);
        for block in 0..header.root_blocks {
            let offset = at + u64::from(block) * BLOCK;
            let read = self.blocks(FAST, offset, 1, |b| {
                let (payload, by) =
                    page::decode(b, PageKind::Root, volume, u64::from(block)).ok_or(PageFault::Invalid)?;
                sum = page::root_sum(sum, seal_sum(b).ok_or(PageFault::Invalid)?);
                if by == header.number { Ok(payload.to_vec()) } else { Err(PageFault::Other(by)) }
            });
            let bytes =
                read.await?.map_err(|e| self.corrupt(FAST, offset, format!("{} {e}", PageKind::Root)))?;
            if block < geo.root_ref_blocks() { &mut refs } else { &mut list }.extend_from_slice(&bytes);
        }
        // A checkpoint that was cut short leaves a root under the number that the next one gets as well.
        if sum != header.root_sum {
            return Err(bad("the checkpoint's root is not the one that its header names"));
        }
        let mut get = Get(&refs);
        let directory: Option<Vec<_>> = (0..geo.directory_pages).map(|_| page::get_ref(&mut get)).collect();
        let directory = directory.ok_or_else(|| bad("the checkpoint's root is malformed"))?;
        let mut get = Get(&list);
        let sums = u64::from(geo.slow_slots) * u64::from(geo.blocks_per_chunk());
        for _ in 0..header.list_entries {
            let (Some(index), Some(sum)) = (get.u64(), get.u32()) else {
                return Err(bad("the checkpoint's root is too short"));
            };
            if index >= sums {
                return Err(bad("the checkpoint lists a checksum of a block that does not exist"));
            }
            state.sums.note_listed(index, sum);
        }
        Ok(directory)
    }

    /// Reads the directory: which pages of the map and of the checksums are in force.
    async fn directory(
        &self,
        volume: &Id,
        geo: &Geometry,
        directory: Vec<PageRef>,
    ) -> Result<Pages, OpenError> {
        let mut pages = Pages::new(geo.pages());
        let first = geo.table_pages();
        let version = |number: u32| directory[(number - first) as usize];
        let load = |number: u32, payload: &[u8]| {
            let mut get = Get(payload);
            geo.listed_in(number - first).all(|page| {
                let version = page::get_ref(&mut get);
                version.inspect(|version| pages.set(page, *version)).is_some()
            })
        };
        self.pages(volume, PageKind::Directory, geo, first..geo.pages(), version, load).await?;
        directory.iter().zip(first..).for_each(|(version, number)| pages.set(number, *version));
        Ok(pages)
    }

    async fn map(&self, volume: &Id, pages: &Pages, state: &mut State) -> Result<(), OpenError> {
        let geo = &state.geo;
        let load = |number: u32, payload: &[u8]| state.map.load_page(geo, number, payload);
        self.pages(volume, PageKind::Map, geo, 0..geo.map_pages, |number| pages.get(number), load).await
    }

    /// Reads those of these pages that were ever written, each in the version in force, and hands over what they
    /// hold. False from there: it makes no sense. Of other versions none needs to be readable.
    async fn pages(
        &self,
        volume: &Id,
        kind: PageKind,
        geo: &Geometry,
        numbers: Range<u32>,
        version: impl Fn(u32) -> PageRef,
        mut load: impl FnMut(u32, &[u8]) -> bool,
    ) -> Result<(), OpenError> {
        let fits = |blocks: &u32| match self.io.alloc(Pool::Meta, blocks * BLOCK_BYTES) {
            Some(buf) => {
                self.io.free(buf);
                true
            }
            None => false,
        };
        let run = READ_BLOCKS.into_iter().find(fits).ok_or_else(no_memory)?;
        let mut first = numbers.start;
        while first < numbers.end {
            // Both places of neighbouring pages lie together: one read brings several pages.
            let count = (run / 2).min(numbers.end - first);
            let run = first..first + count;
            first += count;
            if run.clone().all(|number| version(number).index().is_none()) {
                continue;
            }
            let mut check = |number: u32, place: u8, bytes: &[u8]| {
                let version = version(number);
                let fault = match page::decode_version(bytes, kind, volume, u64::from(number), version.sum) {
                    Ok(payload) if load(number, payload) => return Ok(()),
                    Ok(_) => PageFault::Invalid,
                    Err(fault) => fault,
                };
                Err(self.corrupt(FAST, geo.page_at(number, place), format!("{kind} {fault}")))
            };
            let in_force = || run.clone().filter_map(|number| Some((number, version(number).index()?)));
            let read = self.blocks(FAST, geo.page_at(run.start, 0), count * 2, |bytes| {
                in_force().try_for_each(|(number, place)| {
                    let at = ((number - run.start) * 2 + u32::from(place)) as usize * BLOCK as usize;
                    check(number, place, &bytes[at..at + BLOCK as usize])
                })
            });
            match read.await {
                // What cannot be read may be a version that is not in force, which nobody needs.
                Err(OpenError::Device { .. }) => {
                    for (number, place) in in_force() {
                        let at = geo.page_at(number, place);
                        self.blocks(FAST, at, 1, |bytes| check(number, place, bytes)).await??;
                    }
                }
                read => read??,
            }
        }
        Ok(())
    }
}
