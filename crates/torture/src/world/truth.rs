//! What damaged pages would hold had nothing damaged them: with it, whoever judges the machine can tell what a piece of
//! damage led to, for a world without that piece can be tried as well.

use crate::disk::{Disk, PAGE_BYTES};
use std::collections::BTreeMap;
use std::ops::Range;

/// How a page came to hold what it should not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wound {
    /// A write to it, or one that went astray, did something else than was acknowledged.
    Lost,
    /// It decayed: a bit flipped, or a sector cannot be read.
    Decayed,
}

#[derive(Clone)]
struct Known {
    /// None where nobody needs them any more; what cannot be read there stays so.
    bytes: Option<Box<[u8]>>,
    wound: Wound,
    /// Openings that had begun when it was hurt.
    opening: u32,
}

/// By device and page, what it should hold.
#[derive(Clone, Default)]
pub struct Truth {
    known: BTreeMap<(usize, u64), Known>,
    /// Openings that have begun.
    openings: u32,
}

impl Truth {
    /// A page is damaged that would hold `bytes` otherwise.
    pub fn hurt(&mut self, device: usize, page: u64, bytes: &[u8], wound: Wound) {
        let known = Known { bytes: Some(bytes.into()), wound, opening: self.openings };
        match wound {
            Wound::Lost => _ = self.known.insert((device, page), known),
            // Of what was damaged before, it is known already.
            Wound::Decayed => _ = self.known.entry((device, page)).or_insert(known),
        }
    }

    /// A page that is damaged by a write that goes astray. What is on its way there is what it would hold.
    pub fn overwritten(&mut self, device: usize, page: u64, intended: &[u8]) {
        let opening = self.openings;
        let known = Known { bytes: Some(intended.into()), wound: Wound::Lost, opening };
        self.known.entry((device, page)).and_modify(|known| known.opening = opening).or_insert(known);
    }

    /// A write to these pages was handed over: whatever becomes of it, it may be what stands there.
    pub fn written(&mut self, device: usize, first: u64, data: &[u8]) {
        let pages = first..first + (data.len() / PAGE_BYTES) as u64;
        for ((_, page), known) in self.known.range_mut((device, pages.start)..(device, pages.end)) {
            let at = (page - first) as usize * PAGE_BYTES;
            known.bytes = Some(data[at..at + PAGE_BYTES].into());
        }
    }

    /// Nobody needs what is in these pages any more.
    pub fn discarded(&mut self, device: usize, pages: Range<u64>) {
        let range = self.known.range_mut((device, pages.start)..(device, pages.end));
        range.for_each(|(_, known)| known.bytes = None);
    }

    /// The volume is about to be opened.
    pub fn opening_begins(&mut self) {
        self.openings += 1;
    }

    /// Forgets lost writes, but of pages that are still `awaited`: whoever opened the volume went on from what there was. Of
    /// what it has written itself it has seen nothing yet.
    pub fn decided(&mut self, awaited: impl Fn(usize, u64) -> bool) {
        let openings = self.openings;
        self.known.retain(|(device, page), known| {
            known.wound == Wound::Decayed || known.opening == openings || awaited(*device, *page)
        });
    }

    /// The pages that are not what they should be, on devices with nothing in flight.
    pub fn wounds(&self, disks: &[Disk]) -> Vec<(usize, u64)> {
        let mut bytes = vec![0; PAGE_BYTES];
        let mut is_hurt = |device: usize, page: u64, known: &Known| {
            disks[device].peek(page, &mut bytes);
            disks[device].has_bad(page) || known.bytes.as_ref().is_some_and(|known| bytes[..] != known[..])
        };
        self.known.iter().filter(|((d, p), known)| is_hurt(*d, *p, known)).map(|(key, _)| *key).collect()
    }

    /// Makes a page what it should be.
    pub fn heal(&self, disks: &mut [Disk], (device, page): (usize, u64)) {
        if let Some(known) = self.known.get(&(device, page)) {
            disks[device].mend(page);
            known.bytes.iter().for_each(|bytes| disks[device].put_back(page, bytes));
        }
    }
}
