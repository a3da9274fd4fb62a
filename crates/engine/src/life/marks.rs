//! Marks at the beginning and at the end: made with the volume, opened with it, and read where nothing else is left.

use crate::api::options::OpenError;
use crate::base::arena::{Arena, Pool};
use crate::base::bits::Bits;
use crate::base::bugs::{Bug, planted};
use crate::base::mask::BlockMask;
use crate::format::Id;
use crate::format::codec::Get;
use crate::format::marks::{BLANK, MARK_COPIES, Mark, MarkHeader, MarkLayout, UNKNOWN, get_marks};
use crate::format::page::{self, PageKind, PageRef};
use crate::format::superblock::Superblock;
use crate::life::open::no_memory;
use crate::life::recovery::Reader;
use crate::life::task::TaskIo;
use crate::path::marks::Marks;
use crate::volume::marks::MarkTable;
use crate::volume::slots::Slots;
use crate::volume::state::State;
use bimetal_units::*;
use std::ops::Range;

/// Pages of marks that are read at once, as many as there is memory for.
const READ_PAGES: [u32; 3] = [64, 8, 1];

/// Marks as they are on the device.
pub(crate) struct FoundMarks {
    /// The header in force, ...
    pub(crate) header: MarkHeader,
    /// ... and its place (0 or 1).
    place: u8,
}

/// The first header of a volume: all of it reads zeros, and may be stale.
pub(crate) fn first_header(layout: &MarkLayout) -> MarkHeader {
    MarkHeader {
        number: 1,
        generation: Generation(0),
        unix_s: 0,
        directory: vec![BLANK; layout.directory().len()],
        open: Bits::all(layout.regions()),
    }
}

/// Writes a header into one of its two places; it is not durable yet.
pub(crate) async fn write_header<A: Arena>(
    io: &TaskIo<A>,
    (volume, layout, place): (&Id, &MarkLayout, u8),
    header: Option<&MarkHeader>,
) -> Result<(), Option<i32>> {
    let buf = io.alloc(Pool::Meta, layout.header_bytes()).ok_or(None)?;
    io.with(|arena| {
        let bytes = arena.bytes_mut(buf);
        bytes.fill(0);
        for copy in bytes.chunks_exact_mut(layout.copy_bytes() as usize) {
            header.into_iter().for_each(|header| header.encode(copy, volume));
        }
    });
    let written = io.write(SLOW, layout.header_at(place), buf).await;
    io.free(buf);
    written.map_err(|error| Some(error.errno))
}

impl<A: Arena> Reader<A> {
    /// The marks in force, and what they say of each page's chunks. None where there are none, or something of what says
    /// which are in force cannot be read: then nothing is known.
    pub(crate) async fn marks_in_force(
        &self,
        superblock: &Superblock,
        mut each: impl FnMut(u32, PageRef, &[Mark]),
    ) -> Result<Option<FoundMarks>, OpenError> {
        let geo = &superblock.geometry;
        let Some(layout) = geo.marks() else { return Ok(None) };
        let Some((header, place)) = self.mark_header(superblock, &layout).await? else { return Ok(None) };
        let mut pages = Vec::with_capacity(layout.all_pages() as usize);
        for (page, version) in layout.directory().zip(&header.directory) {
            let count = layout.listed_in(page).len();
            let listed = match *version {
                version if version.place == 0 => vec![version; count],
                version => match self.mark_directory(superblock, &layout, page, version).await? {
                    Some(listed) => listed,
                    None => return Ok(None),
                },
            };
            pages.extend(listed);
        }
        let most = READ_PAGES.into_iter().find(|pages| self.has_memory_for(*pages)).ok_or_else(no_memory)?;
        let mut from = 0;
        while from < layout.pages() {
            let place = pages[from as usize].place;
            let is_next = |page: &u32| pages[*page as usize].place == place;
            let end = from + (from..layout.pages().min(from + most)).take_while(is_next).count() as u32;
            if !self.mark_pages(superblock, &layout, from..end, &pages, &mut each).await? {
                return Ok(None);
            }
            from = end;
        }
        Ok(Some(FoundMarks { header, place }))
    }

    fn has_memory_for(&self, pages: u32) -> bool {
        let buf = self.io.alloc(Pool::Meta, pages * BLOCK_BYTES);
        buf.into_iter().for_each(|buf| self.io.free(buf));
        buf.is_some()
    }

    /// The newest header and its place. One that was written by an opening after the superblock's is none: the two do not
    /// belong together.
    async fn mark_header(
        &self,
        superblock: &Superblock,
        layout: &MarkLayout,
    ) -> Result<Option<(MarkHeader, u8)>, OpenError> {
        let mut newest: Option<(MarkHeader, u8)> = None;
        for (place, copy) in (0..2).flat_map(|place| (0..MARK_COPIES).map(move |copy| (place, copy))) {
            let at = layout.header_at(place) + copy * u64::from(layout.copy_bytes());
            let decode = |bytes: &[u8]| MarkHeader::decode(bytes, &superblock.volume, layout);
            let blocks = layout.copy_bytes() / BLOCK_BYTES;
            let found = match self.blocks(SLOW, at, blocks, decode).await {
                Ok(found) => found,
                Err(OpenError::Device { .. }) => None,
                Err(error) => return Err(error),
            };
            let at = |header: &MarkHeader| (header.generation, header.number);
            let newer = |header: &MarkHeader| newest.as_ref().is_none_or(|(other, _)| at(header) > at(other));
            if let Some(header) = found.filter(newer) {
                newest = Some((header, place));
            }
        }
        Ok(newest.filter(|(header, _)| header.generation <= superblock.generation))
    }

    async fn mark_directory(
        &self,
        superblock: &Superblock,
        layout: &MarkLayout,
        page: u32,
        version: PageRef,
    ) -> Result<Option<Vec<PageRef>>, OpenError> {
        let count = layout.listed_in(page).len();
        let decode = |bytes: &[u8]| {
            let (kind, number) = (PageKind::MarkDirectory, u64::from(page));
            let payload = page::decode_version(bytes, kind, &superblock.volume, number, version.sum).ok()?;
            let mut get = Get(payload);
            (0..count).map(|_| page::get_ref(&mut get)).collect()
        };
        match self.blocks(SLOW, layout.page_at(page, version.place - 1), 1, decode).await {
            Err(OpenError::Device { .. }) => Ok(None),
            other => other,
        }
    }

    /// Reads a run of pages of which all are in the same place. False where one is not what it should be.
    async fn mark_pages(
        &self,
        superblock: &Superblock,
        layout: &MarkLayout,
        run: Range<u32>,
        versions: &[PageRef],
        each: &mut impl FnMut(u32, PageRef, &[Mark]),
    ) -> Result<bool, OpenError> {
        let mut hand_over = |page: u32, marks: &[Mark]| each(page, versions[page as usize], marks);
        let Some(place) = versions[run.start as usize].index() else {
            run.for_each(|page| {
                let all = BlockMask::range(0, superblock.geometry.blocks_per_chunk());
                let lost = if versions[page as usize] == BLANK { BlockMask::EMPTY } else { all };
                hand_over(page, &vec![Mark { lost, ..Mark::default() }; layout.chunks_of(page).len()]);
            });
            return Ok(true);
        };
        let (at, count) = (layout.page_at(run.start, place), run.len() as u32);
        let read = self.blocks(SLOW, at, count, |bytes| {
            run.zip(bytes.chunks_exact(BLOCK_BYTES as usize)).all(|(page, block)| {
                let (volume, sum) = (&superblock.volume, versions[page as usize].sum);
                page::decode_version(block, PageKind::Marks, volume, u64::from(page), sum)
                    .ok()
                    .and_then(|payload| get_marks(payload, &superblock.geometry, layout.chunks_of(page)))
                    .inspect(|marks| hand_over(page, marks))
                    .is_some()
            })
        });
        match read.await {
            Err(OpenError::Device { .. }) => Ok(false),
            other => other,
        }
    }

    /// Reads what the marks of a volume that is being opened name: those slots are kept for them.
    pub(crate) async fn marks_named(
        &self,
        slow: &Superblock,
        state: &State,
        slots: &mut Slots,
    ) -> Result<Option<(MarkTable, Option<FoundMarks>)>, OpenError> {
        let Some(layout) = slow.geometry.marks() else { return Ok(None) };
        let mut table = MarkTable::unknown(layout, slow.geometry.chunks);
        let found =
            self.marks_in_force(slow, |page, version, marks| table.found(page, version, marks)).await?;
        if found.is_none() {
            table = MarkTable::unknown(layout, slow.geometry.chunks);
        }
        for chunk in (0..slow.geometry.chunks).map(Chunk) {
            let Some(slot) = table.slot(chunk) else { continue };
            slots.name(slot);
            if state.map.home(chunk) != Some(Home { tier: SLOW, slot }) {
                table.left(chunk, slot);
            }
        }
        Ok(Some((table, found)))
    }

    /// Says durably, before anything is served, that all may be stale from now on; what is named stays named.
    pub(crate) async fn open_marks(
        &self,
        slow: &Superblock,
        (mut table, found): (MarkTable, Option<FoundMarks>),
    ) -> Result<Marks, OpenError> {
        let layout = table.layout;
        if planted(Bug::OpenedWithClosedRegions)
            && let Some(found) = &found
        {
            (0..layout.regions()).filter(|region| !found.header.open.has(*region)).for_each(|region| {
                table.begin_closing(region);
            });
            table.close();
        }
        let number = found.as_ref().map_or(0, |found| found.header.number) + 1;
        let directory = found
            .as_ref()
            .map_or_else(|| vec![UNKNOWN; layout.directory().len()], |found| found.header.directory.clone());
        let header = MarkHeader {
            number,
            generation: slow.generation,
            unix_s: self.io.now().0 / Nanos::SECOND,
            directory: directory.clone(),
            open: table.open().clone(),
        };
        let places: &[u8] = match &found {
            Some(found) => &[1 - found.place],
            None => &[0, 1],
        };
        for place in places {
            let written = write_header(&self.io, (&slow.volume, &layout, *place), Some(&header)).await;
            let error = |errno| self.device_error(SLOW, layout.header_at(*place), errno);
            written.map_err(|errno| errno.map_or_else(no_memory, error))?;
            self.flush(SLOW).await?;
        }
        let place = *places.last().expect("it is written somewhere");
        let now = self.io.now();
        Ok(Marks::opened(table, slow.geometry.marking, (number, place), directory, now))
    }
}
