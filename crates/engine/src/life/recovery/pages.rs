//! Reads the root and the pages that it and the directory name, each held against what refers to it, and from its
//! second copy where the first is not good.

use super::twins::{BadCopy, CopyFault, twin_place};
use super::{BLOCK, EIO, Reader};
use crate::api::options::OpenError;
use crate::base::arena::{Arena, Pool};
use crate::format::Id;
use crate::format::codec::{Get, seal_sum};
use crate::format::geometry::Geometry;
use crate::format::header::CheckpointHeader;
use crate::format::page::{self, PageFault, PageKind, PageRef};
use crate::life::open::no_memory;
use crate::volume::pages::Pages;
use crate::volume::state::State;
use bimetal_units::*;
use std::ops::Range;

/// Blocks of the map read in one go, the most that there is memory for: the map of a 10 TB volume is
/// a gigabyte, and small reads one after the other would take minutes.
const READ_BLOCKS: [u32; 3] = [256, 64, 16];
/// Blocks of a root of which both copies are whole and differ: so many at most are tried in all ways.
const MOST_UNDECIDED: usize = 10;

/// Which of the two copies of metadata is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Copy {
    First,
    Second,
}

/// A block of a root that may be the right one: the checksum in its seal, and what it holds.
type RootBlock = Result<(u32, Vec<u8>), CopyFault>;

/// Pages of one kind, and where they are in force.
pub(super) struct Wanted<'a, V> {
    pub volume: &'a Id,
    pub kind: PageKind,
    pub geo: &'a Geometry,
    pub version: V,
}

impl<A: Arena> Reader<A> {
    /// Holds the pages of checksums of the slow tier against their references, which opening does not need otherwise. The checkpoint
    /// after a hidden one may have written over them, and over nothing else that is read here.
    pub(super) async fn sum_pages(
        &self,
        volume: &Id,
        pages: &Pages,
        geo: &Geometry,
    ) -> Result<(), OpenError> {
        let wanted = Wanted { volume, kind: PageKind::Sums, geo, version: |number| pages.get(number) };
        self.pages(&wanted, geo.map_pages..geo.map_pages + geo.sum_pages, |_, _| true).await
    }

    /// Reads the root: which pages of the directory are in force, and the recent checksums.
    pub(super) async fn root(
        &self,
        volume: &Id,
        header: &CheckpointHeader,
        state: &mut State,
    ) -> Result<Vec<PageRef>, OpenError> {
        let geo = &state.geo;
        if header.root_blocks == 0 {
            return Ok(vec![PageRef::default(); geo.directory_pages as usize]);
        }
        let bad = |what: &str| self.corrupt(FAST, geo.root_at(header.number % 2, 0), what);
        if header.root_blocks > geo.root_blocks || header.list_entries > geo.list_entries {
            return Err(bad("the checkpoint names a root that is too large"));
        }
        let blocks = self.root_blocks(volume, header, geo).await?;
        let (refs, list) = blocks.split_at((geo.root_ref_blocks() as usize).min(blocks.len()));
        let (refs, list) = (refs.concat(), list.concat());
        let mut get = Get(&refs);
        let directory: Option<Vec<_>> = (0..geo.directory_pages).map(|_| page::get_ref(&mut get)).collect();
        let directory = directory.ok_or_else(|| bad("the checkpoint's root is malformed"))?;
        let mut get = Get(&list);
        let slots = u64::from(geo.slow_slots) + u64::from(geo.slots(FAST));
        let sums = slots * u64::from(geo.blocks_per_chunk());
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

    /// What the blocks of the root hold that the header names, of each from whichever copy is the right one.
    pub(crate) async fn root_blocks(
        &self,
        volume: &Id,
        header: &CheckpointHeader,
        geo: &Geometry,
    ) -> Result<Vec<Vec<u8>>, OpenError> {
        let place = header.number % 2;
        let first = self.root_copy(volume, header, |block| geo.root_at(place, block)).await?;
        // A checkpoint that was cut short leaves a root under the number that the next one gets as well.
        let is_named = |sums: &[u32]| sums.iter().fold(0, |so_far, sum| page::root_sum(so_far, *sum));
        let sums: Option<Vec<u32>> = first.iter().map(|b| b.as_ref().ok().map(|(sum, _)| *sum)).collect();
        if sums.is_some_and(|sums| is_named(&sums) == header.root_sum) {
            return Ok(first.into_iter().flatten().map(|(_, payload)| payload).collect());
        }
        if geo.mirror_at.is_none() {
            return Err(self.no_root(&first, header, geo));
        }
        let twin_at = |block| geo.root_twin_at(place, block).unwrap_or_default();
        let second = self.root_copy(volume, header, twin_at).await?;
        let Some(chosen) = choose_root(&first, &second, header.root_sum) else {
            return Err(self.no_root(&first, header, geo));
        };
        let mut blocks = Vec::new();
        for (block, ((first, second), copy)) in (0..).zip(first.into_iter().zip(second).zip(chosen)) {
            let (good, other) = if copy == Copy::First { (first, second) } else { (second, first) };
            let (sum, payload) = good.expect("a block that is chosen is whole");
            let fault = match other {
                Ok((other, _)) if other == sum => None,
                Ok(_) => Some(CopyFault::Page(PageFault::Other(header.number))),
                Err(fault) => Some(fault),
            };
            let (at, twin) = (geo.root_at(place, block), twin_at(block));
            let (at, twin) = if copy == Copy::First { (twin, at) } else { (at, twin) };
            let bad = |fault| BadCopy { kind: PageKind::Root, at, twin, sum, fault };
            self.bad_copies.borrow_mut().extend(fault.map(bad));
            blocks.push(payload);
        }
        Ok(blocks)
    }

    /// Why there is no root.
    fn no_root(&self, first: &[RootBlock], header: &CheckpointHeader, geo: &Geometry) -> OpenError {
        let place = header.number % 2;
        let fault = (0..).zip(first).find_map(|(block, read)| read.as_ref().err().map(|f| (block, *f)));
        match fault {
            Some((block, fault)) => self.fault_error(PageKind::Root, geo.root_at(place, block), fault),
            None => {
                let what = "the checkpoint's root is not the one that its header names";
                self.corrupt(FAST, geo.root_at(place, 0), what)
            }
        }
    }

    /// Reads one copy of all blocks of a root.
    async fn root_copy(
        &self,
        volume: &Id,
        header: &CheckpointHeader,
        at: impl Fn(u32) -> u64,
    ) -> Result<Vec<RootBlock>, OpenError> {
        let mut blocks = Vec::new();
        for block in 0..header.root_blocks {
            let read = self.blocks(FAST, at(block), 1, |b| {
                let (payload, by) =
                    page::decode(b, PageKind::Root, volume, u64::from(block)).ok_or(PageFault::Invalid)?;
                let sum = seal_sum(b).ok_or(PageFault::Invalid)?;
                if by == header.number { Ok((sum, payload.to_vec())) } else { Err(PageFault::Other(by)) }
            });
            blocks.push(match read.await {
                Ok(found) => found.map_err(CopyFault::Page),
                Err(OpenError::Device { errno, .. }) => Err(CopyFault::Unreadable(errno)),
                Err(error) => return Err(error),
            });
        }
        Ok(blocks)
    }

    /// Reads the directory: which pages of the map and of the checksums are in force.
    pub(super) async fn directory(
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
        let wanted = Wanted { volume, kind: PageKind::Directory, geo, version };
        self.pages(&wanted, first..geo.pages(), load).await?;
        directory.iter().zip(first..).for_each(|(version, number)| pages.set(number, *version));
        Ok(pages)
    }

    pub(super) async fn map(&self, volume: &Id, pages: &Pages, state: &mut State) -> Result<(), OpenError> {
        let geo = &state.geo;
        let load = |number: u32, payload: &[u8]| state.map.load_page(geo, number, payload);
        let wanted = Wanted { volume, kind: PageKind::Map, geo, version: |number| pages.get(number) };
        self.pages(&wanted, 0..geo.map_pages, load).await
    }

    /// Reads those of these pages that were ever written, each in the version in force, and hands over what they
    /// hold. False from there: it makes no sense.
    async fn pages<V: Fn(u32) -> PageRef>(
        &self,
        wanted: &Wanted<'_, V>,
        numbers: Range<u32>,
        mut load: impl FnMut(u32, &[u8]) -> bool,
    ) -> Result<(), OpenError> {
        for run in self.runs(numbers)? {
            for (number, fault) in self.page_faults(wanted, run, Copy::First, &mut load).await? {
                let page = self.page_from_twin(wanted, number, fault, &mut load).await;
                if self.without_pages && page.is_err() {
                    self.lost_pages.borrow_mut().extend(self.lost_with(wanted, number));
                } else {
                    page?;
                }
            }
        }
        Ok(())
    }

    /// The first of these numbers of blocks that there is memory for.
    pub(crate) fn blocks_at_once<const N: usize>(&self, numbers: [u32; N]) -> Result<u32, OpenError> {
        let fits = |blocks: &u32| match self.io.alloc(Pool::Meta, blocks * BLOCK_BYTES) {
            Some(buf) => {
                self.io.free(buf);
                true
            }
            None => false,
        };
        numbers.into_iter().find(fits).ok_or_else(no_memory)
    }

    /// These pages in runs that there is memory to read at once.
    pub(super) fn runs(
        &self,
        numbers: Range<u32>,
    ) -> Result<impl Iterator<Item = Range<u32>> + use<A>, OpenError> {
        // Both places of neighbouring pages lie together: one read brings several pages.
        let pages = self.blocks_at_once(READ_BLOCKS)? / 2;
        let end = numbers.end;
        Ok(numbers.step_by(pages as usize).map(move |first| first..end.min(first + pages)))
    }

    /// Reads one copy of a run of pages; what is wrong with which of them.
    pub(super) async fn page_faults<V: Fn(u32) -> PageRef>(
        &self,
        wanted: &Wanted<'_, V>,
        run: Range<u32>,
        copy: Copy,
        load: &mut impl FnMut(u32, &[u8]) -> bool,
    ) -> Result<Vec<(u32, CopyFault)>, OpenError> {
        let Wanted { volume, kind, geo, version } = wanted;
        let at = match copy {
            Copy::First => Some(geo.page_at(run.start, 0)),
            Copy::Second => geo.page_twin_at(run.start, 0),
        };
        let Some(at) = at.filter(|_| run.clone().any(|n| version(n).index().is_some())) else {
            return Ok(Vec::new());
        };
        let buf = self.io.alloc(Pool::Meta, run.len() as u32 * 2 * BLOCK_BYTES).ok_or_else(no_memory)?;
        let read = self.read_around(at, buf).await;
        let unreadable = |block: u32| match &read {
            Ok(blocks) => blocks.any(block..block + 1).then_some(EIO),
            Err(OpenError::Device { errno, .. }) => Some(*errno),
            Err(_) => Some(EIO),
        };
        let faults = self.io.with(|arena| {
            let bytes = arena.bytes(buf);
            let fault = |number: u32| {
                let version = version(number);
                let place = version.index()?;
                let place = if copy == Copy::Second { twin_place(place) } else { place };
                let block = (number - run.start) * 2 + u32::from(place);
                if let Some(errno) = unreadable(block) {
                    return Some((number, CopyFault::Unreadable(errno)));
                }
                let bytes = &bytes[block as usize * BLOCK as usize..][..BLOCK as usize];
                let fault = match page::decode_version(bytes, *kind, volume, u64::from(number), version.sum) {
                    Ok(payload) if load(number, payload) => return None,
                    Ok(_) => PageFault::Invalid,
                    Err(fault) => fault,
                };
                Some((number, CopyFault::Page(fault)))
            };
            run.clone().filter_map(fault).collect()
        });
        self.io.free(buf);
        Ok(faults)
    }

    /// Takes a page whose first copy is bad from the second.
    async fn page_from_twin<V: Fn(u32) -> PageRef>(
        &self,
        wanted: &Wanted<'_, V>,
        number: u32,
        fault: CopyFault,
        load: &mut impl FnMut(u32, &[u8]) -> bool,
    ) -> Result<(), OpenError> {
        let Wanted { volume, kind, geo, version } = wanted;
        let version = version(number);
        let place = version.index().expect("only what was written is wrong");
        let at = geo.page_at(number, place);
        let Some(twin) = geo.page_twin_at(number, twin_place(place)) else {
            return Err(self.fault_error(*kind, at, fault));
        };
        let read = self.blocks(FAST, twin, 1, |bytes| {
            let payload = page::decode_version(bytes, *kind, volume, u64::from(number), version.sum)?;
            if load(number, payload) { Ok(()) } else { Err(PageFault::Invalid) }
        });
        let second = match read.await {
            Ok(Ok(())) => {
                let bad = BadCopy { kind: *kind, at, twin, sum: version.sum, fault };
                self.bad_copies.borrow_mut().push(bad);
                return Ok(());
            }
            Ok(Err(fault)) => CopyFault::Page(fault),
            Err(OpenError::Device { errno, .. }) => CopyFault::Unreadable(errno),
            Err(error) => return Err(error),
        };
        Err(match (fault, second) {
            // A device that only could not be read is not called corrupt.
            (CopyFault::Page(_), CopyFault::Unreadable(_)) => {
                self.unreadable.borrow_mut().push((FAST, twin));
                self.fault_error(*kind, at, fault)
            }
            (CopyFault::Unreadable(_), CopyFault::Page(_)) => {
                self.unreadable.borrow_mut().push((FAST, at));
                self.fault_error(*kind, twin, second)
            }
            _ => self.fault_error(*kind, at, fault),
        })
    }

    /// The map pages that nobody finds without this page.
    fn lost_with<V>(&self, wanted: &Wanted<'_, V>, number: u32) -> Range<u32> {
        let geo = wanted.geo;
        match wanted.kind {
            PageKind::Map => number..number + 1,
            PageKind::Directory => {
                let listed = geo.listed_in(number - geo.table_pages());
                listed.start..listed.end.min(geo.map_pages)
            }
            _ => 0..0,
        }
    }

    pub(super) fn fault_error(&self, kind: PageKind, at: u64, fault: CopyFault) -> OpenError {
        match fault {
            CopyFault::Unreadable(errno) => self.device_error(FAST, at, errno),
            CopyFault::Page(fault) => self.corrupt(FAST, at, format!("{kind} {fault}")),
        }
    }
}

/// Which copy of each block makes the root that has this checksum. Where both are whole and differ, a write of one was
/// lost, and a checkpoint that was cut short had the same number: all ways are tried.
fn choose_root(first: &[RootBlock], second: &[RootBlock], root_sum: u32) -> Option<Vec<Copy>> {
    let undecided = |(_, pair): &(usize, (&RootBlock, &RootBlock))| match pair {
        (Ok((a, _)), Ok((b, _))) => a != b,
        _ => false,
    };
    let pairs = || first.iter().zip(second).enumerate();
    let undecided: Vec<usize> = pairs().filter(undecided).map(|(block, _)| block).collect();
    let ways: Vec<u32> = match undecided.len() {
        few if few <= MOST_UNDECIDED => (0..1 << few).collect(),
        _ => vec![0, u32::MAX],
    };
    ways.into_iter().find_map(|way| {
        let choice = |(block, (first, _)): (usize, (&RootBlock, &RootBlock))| {
            let swapped = undecided.binary_search(&block).is_ok_and(|bit| way >> bit.min(31) & 1 == 1);
            if first.is_ok() && !swapped { Copy::First } else { Copy::Second }
        };
        let chosen: Vec<Copy> = pairs().map(choice).collect();
        let sums = pairs().zip(&chosen).try_fold(0, |so_far, ((_, (first, second)), copy)| {
            let block = if *copy == Copy::First { first } else { second };
            block.as_ref().ok().map(|(sum, _)| page::root_sum(so_far, *sum))
        });
        (sums == Some(root_sum)).then_some(chosen)
    })
}
