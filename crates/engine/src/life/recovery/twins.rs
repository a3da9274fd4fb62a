//! Second copies of metadata: what was read from one because the other is bad, whether all of them are good, and
//! bad ones made good again.

use super::Reader;
use super::pages::{Copy, Wanted};
use crate::api::options::{Event, Level, OpenError};
use crate::base::arena::Arena;
use crate::base::bugs::{Bug, planted};
use crate::format::Id;
use crate::format::geometry::Geometry;
use crate::format::header::CheckpointHeader;
use crate::format::page::{self, PageFault, PageKind};
use crate::volume::pages::Pages;
use bimetal_units::*;
use std::fmt;

/// Bad copies that are told one by one when a volume is opened.
const MOST_TOLD: usize = 16;

/// What is wrong with a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CopyFault {
    /// The device fails with this error.
    Unreadable(i32),
    /// Something else stands there.
    Page(PageFault),
}

impl fmt::Display for CopyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CopyFault::Unreadable(errno) => write!(f, "cannot be read (device error {errno})"),
            CopyFault::Page(fault) => fault.fmt(f),
        }
    }
}

/// A copy of a block of metadata that is bad while the other one is good.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BadCopy {
    pub(crate) kind: PageKind,
    /// Where it lies on the fast device.
    pub(crate) at: u64,
    /// Where the good one lies.
    pub(crate) twin: u64,
    /// The checksum in the good one's seal.
    pub(crate) sum: u32,
    pub(crate) fault: CopyFault,
}

impl fmt::Display for BadCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BadCopy { kind, fault, twin, .. } = self;
        write!(f, "{kind} {fault}; the other copy, at byte {twin}, is good")
    }
}

/// In which place of the mirror the second copy of what is in a page's place is looked for: the same.
pub(super) fn twin_place(place: u8) -> u8 {
    if planted(Bug::MirrorOfOtherPlace) { 1 - place } else { place }
}

impl<A: Arena> Reader<A> {
    /// Holds second copies against what refers to them, of all that is in force and was read from the first: bad ones
    /// join those that are known.
    pub(crate) async fn verify_twins(
        &self,
        volume: &Id,
        header: &CheckpointHeader,
        pages: &Pages,
        geo: &Geometry,
    ) -> Result<(), OpenError> {
        self.verify_root_twin(volume, header, geo).await?;
        let version = |number| pages.get(number);
        let tables =
            [(PageKind::Directory, geo.table_pages()..geo.pages()), (PageKind::Map, 0..geo.map_pages)];
        for (kind, numbers) in tables {
            let wanted = Wanted { volume, kind, geo, version };
            for run in self.runs(numbers)? {
                for (number, fault) in self.page_faults(&wanted, run, Copy::Second, &mut |_, _| true).await? {
                    let version = version(number);
                    let place = version.index().expect("only what was written is wrong");
                    let (twin, at) = (geo.page_at(number, place), geo.page_twin_at(number, place));
                    let bad = |at| BadCopy { kind, at, twin, sum: version.sum, fault };
                    self.bad_copies.borrow_mut().extend(at.map(bad));
                }
            }
        }
        Ok(())
    }

    async fn verify_root_twin(
        &self,
        volume: &Id,
        header: &CheckpointHeader,
        geo: &Geometry,
    ) -> Result<(), OpenError> {
        let place = header.number % 2;
        for block in 0..header.root_blocks {
            let (first, Some(second)) = (geo.root_at(place, block), geo.root_twin_at(place, block)) else {
                return Ok(());
            };
            let is_known = |bad: &BadCopy| bad.at == first || bad.at == second;
            if self.bad_copies.borrow().iter().any(is_known) {
                continue;
            }
            let page = |bytes: &[u8]| {
                page::decode(bytes, PageKind::Root, volume, u64::from(block))?;
                crate::format::codec::seal_sum(bytes)
            };
            let sum = self.blocks(FAST, first, 1, page).await?;
            let Some(sum) = sum else { continue };
            let fault =
                match self.blocks(FAST, second, 1, |bytes| (page(bytes), page::is_version(bytes, sum))).await
                {
                    Ok((Some(_), true)) => continue,
                    Ok((Some(_), false)) => CopyFault::Page(PageFault::Other(header.number)),
                    Ok((None, _)) => CopyFault::Page(PageFault::Invalid),
                    Err(OpenError::Device { errno, .. }) => CopyFault::Unreadable(errno),
                    Err(error) => return Err(error),
                };
            let bad = BadCopy { kind: PageKind::Root, at: second, twin: first, sum, fault };
            self.bad_copies.borrow_mut().push(bad);
        }
        Ok(())
    }

    /// Writes over copies that are bad what the others hold. A copy that is bad is nothing that anybody needs, so this is
    /// safe whenever it ends; where it fails, the copy stays bad. Gives what was written.
    pub(crate) async fn heal_copies(&self) -> Result<Vec<BadCopy>, OpenError> {
        let mut healed = self.bad_copies.take();
        let mut good = vec![0; BLOCK_BYTES as usize];
        let mut written = 0;
        for i in 0..healed.len() {
            let bad = healed[i];
            let read = self.blocks(FAST, bad.twin, 1, |bytes| {
                good.copy_from_slice(bytes);
                page::is_version(bytes, bad.sum)
            });
            if matches!(read.await, Ok(true))
                && self.io.write_block(FAST, bad.at, |block| block.copy_from_slice(&good)).await.is_ok()
            {
                healed[written] = bad;
                written += 1;
            }
        }
        healed.truncate(written);
        if written > 0 {
            self.io.flush(FAST).await.map_err(|e| self.device_error(FAST, 0, e.errno))?;
        }
        Ok(healed)
    }

    /// What is to be told of copies that were bad when the volume was opened.
    pub(crate) fn copies_told(&self, bad: &[BadCopy]) -> Vec<Event> {
        let name = &self.devices[0].name;
        let told = bad.iter().take(MOST_TOLD).map(|bad| format!("{name}: at byte {}, {bad}", bad.at));
        let more = bad.len().saturating_sub(MOST_TOLD);
        let more =
            (more > 0).then(|| format!("{name}: {more} more copies of metadata were bad at the same time"));
        told.chain(more).map(|message| Event { level: Level::Warning, message, error: None }).collect()
    }
}
