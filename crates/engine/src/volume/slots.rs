//! Slots of one tier: which are in use, by whom, and which have reads in flight.

use crate::api::unused::Unused;
use crate::base::bugs::{Bug, planted};
use crate::base::hash::IndexMap;
use crate::io::flush::Durable;
use crate::volume::named::{Named, Unnamed};
use bimetal_units::*;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Slots that are looked at for one that is near, so that a call stays short: 8 GiB of chunks of 128 KiB.
const NEAR_SLOTS: u32 = 1 << 16;

/// The slots of a tier.
#[derive(Serialize, Deserialize)]
pub struct Slots {
    used: Vec<u64>,
    count: u32,
    free: u32,
    cursor: u32,
    readers: IndexMap<Slot, u32>,
    /// Chunk plus one by slot; kept for the fast tier, where victims are sought by slot.
    owner: Vec<u32>,
    closing: Option<Closing>,
    /// Slots with copies or shadows, which whoever needs one may have.
    lent: u32,
    /// Slots that marks name.
    named: Named,
}

/// Slots that are being taken out of use, so that the log may have their area.
#[derive(Serialize, Deserialize)]
struct Closing {
    range: Range<u32>,
    /// Those of them that hold nothing any more.
    empty: Vec<Slot>,
}

/// Where the slots of a device are.
#[derive(Clone, Copy)]
pub(crate) struct SlotBytes {
    /// The byte at which the first one begins.
    pub(crate) first: u64,
    /// Bytes of each.
    pub(crate) each: u64,
}

impl Slots {
    /// `count` free slots; owners are kept when asked.
    pub fn new(count: u32, owners: bool) -> Slots {
        Slots {
            used: vec![0; (count as usize).div_ceil(64)],
            count,
            free: count,
            cursor: 0,
            readers: IndexMap::default(),
            owner: vec![0; if owners { count as usize } else { 0 }],
            closing: None,
            lent: 0,
            named: Named::default(),
        }
    }

    /// The same, of slots that marks may name.
    pub(crate) fn with_marks(self) -> Slots {
        Slots { named: Named::none(self.count), ..self }
    }

    /// A mark names this slot from here on, or is about to. One that is not in use is kept for the mark.
    pub(crate) fn name(&mut self, slot: Slot) {
        self.named.name(slot);
        if !self.is_used(slot) && self.named.keep(slot) {
            self.mark_used(slot);
        }
    }

    /// No mark names this slot any more; whether somebody may have it now.
    pub(crate) fn unname(&mut self, slot: Slot) -> bool {
        let now = self.named.unname(slot);
        match now {
            Unnamed::Nothing => {}
            Unnamed::Free => self.mark_free_or_closed(slot),
            Unnamed::Lent => self.lent += 1,
        }
        now != Unnamed::Nothing
    }

    /// Whether a mark names this slot: it is not discarded.
    pub(crate) fn is_named(&self, slot: Slot) -> bool {
        self.named.has(slot)
    }

    /// Slots that would be free if marks did not name them, or could be had.
    pub(crate) fn held_by_marks(&self) -> u32 {
        self.named.kept() + self.named.lent()
    }

    /// Bytes of RAM.
    pub fn ram_bytes(&self) -> u64 {
        (self.used.len() * 8 + self.owner.len() * 4) as u64 + self.named.ram_bytes()
    }

    /// Slots in all.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Free slots; those with copies or shadows count as such.
    pub fn free(&self) -> u32 {
        self.free + self.lent
    }

    /// Slots without so much as a copy or a shadow.
    pub fn unused(&self) -> u32 {
        self.free
    }

    /// A slot that was taken, or a home that nothing needs any more, holds copies, or a chunk's shadow, from here on.
    pub fn lend(&mut self, slot: Slot, chunk: Option<Chunk>) {
        assert!(self.is_used(slot), "a slot is taken before it is lent");
        self.set_owner(slot, chunk);
        if !self.named.lend(slot) {
            self.lent += 1;
        }
    }

    /// A slot with a copy or a shadow is somebody's again: a home's, or on its way to being free once the reads in flight
    /// have ended.
    pub fn reclaim(&mut self, slot: Slot) {
        if !self.named.reclaim(slot) {
            self.lent -= 1;
        }
        self.set_owner(slot, None);
    }

    /// A slot with a copy or a shadow is free. Nothing durable names it.
    pub fn take_back(&mut self, slot: Slot) {
        assert!(
            !self.has_readers(slot) || planted(Bug::CopyFreedUnderRead),
            "a slot with reads in flight is not freed"
        );
        self.reclaim(slot);
        self.mark_free_or_closed(slot);
    }

    /// Marks a slot as used; false when it was already.
    pub fn mark_used(&mut self, slot: Slot) -> bool {
        let (word, bit) = (slot.0 as usize / 64, 1 << (slot.0 % 64));
        let fresh = self.used[word] & bit == 0;
        self.used[word] |= bit;
        self.free -= u32::from(fresh);
        fresh
    }

    /// A free slot without a copy or a shadow, the next one after the last taken: neighbours in time become neighbours on the device.
    pub fn take(&mut self) -> Option<Slot> {
        if self.free == 0 {
            return None;
        }
        let slot = self.free_from(self.cursor, self.used.len() + 1)?;
        self.mark_used(slot);
        self.cursor = (slot.0 + 1) % self.count;
        Some(slot)
    }

    /// The free slot without a copy or a shadow that is next to this one or behind it, not far away; or else any.
    pub fn take_near(&mut self, near: Slot) -> Option<Slot> {
        let from = near.0.min(self.count.saturating_sub(1));
        let end = from.saturating_add(NEAR_SLOTS).min(self.count);
        let words = end.div_ceil(64) - from / 64;
        match self.free_from(from, words as usize).filter(|slot| slot.0 < end) {
            Some(slot) => {
                self.mark_used(slot);
                Some(slot)
            }
            None => self.take(),
        }
    }

    /// The first free slot without a copy or a shadow in so many words from a slot on, round and round.
    fn free_from(&self, from: u32, words: usize) -> Option<Slot> {
        let (first, all) = (from as usize / 64, self.used.len());
        let end = first + words;
        self.free_in_word(first, !0u64 << (from % 64))
            .or_else(|| self.free_in(first + 1..end.min(all)))
            .or_else(|| self.free_in(0..end.saturating_sub(all)))
    }

    /// The first in these words.
    fn free_in(&self, words: Range<usize>) -> Option<Slot> {
        let first = words.start;
        let at = self.used.get(words)?.iter().position(|used| *used != !0)?;
        self.free_in_word(first + at, !0)
    }

    /// The first in this word, of those in the mask. Bits behind the last slot, which are in the last word alone, are none.
    fn free_in_word(&self, word: usize, mask: u64) -> Option<Slot> {
        let bits = !self.used[word] & mask;
        let slot = Slot(word as u32 * 64 + bits.trailing_zeros());
        (bits != 0 && slot.0 < self.count).then_some(slot)
    }

    /// Gives a slot back. What replaced it must be durable, and no read in flight.
    pub fn release(&mut self, slot: Slot, _proof: Durable) {
        assert!(!self.has_readers(slot), "a slot with reads in flight is not freed");
        let (word, bit) = (slot.0 as usize / 64, 1 << (slot.0 % 64));
        assert!(self.used[word] & bit != 0, "a free slot is not freed again");
        self.set_owner(slot, None);
        self.mark_free_or_closed(slot);
    }

    fn mark_free_or_closed(&mut self, slot: Slot) {
        if self.named.keep(slot) {
            return;
        }
        match &mut self.closing {
            Some(closing) if closing.range.contains(&slot.0) => closing.empty.push(slot),
            _ => self.mark_free(slot),
        }
    }

    fn mark_free(&mut self, slot: Slot) {
        self.used[slot.0 as usize / 64] &= !(1 << (slot.0 % 64));
        self.free += 1;
    }

    /// Whether a slot is in use, or out of use.
    pub fn is_used(&self, slot: Slot) -> bool {
        self.used[slot.0 as usize / 64] >> (slot.0 % 64) & 1 != 0
    }

    /// Those that anybody may have at once, of so many blocks each, the first of which begins at this block. A slot is free only
    /// when it is durable that nothing is in it.
    pub(crate) fn unused_from(&self, first_block: u64, slot_blocks: u64) -> Unused {
        Unused::new(first_block, slot_blocks, u64::from(self.count), self.used.clone())
    }

    /// Of a device on which slots of so many bytes each begin at this byte, the first part of a range that somebody needs: a slot
    /// that is in use, or out of use, or what is no slot. It has so many bytes at most.
    pub(crate) fn next_needed(
        &self,
        slots: SlotBytes,
        range: Range<u64>,
        most_bytes: u64,
    ) -> Option<Range<u64>> {
        let ends = slots.first + u64::from(self.count) * slots.each;
        let slot_of = |at: u64| ((at - slots.first) / slots.each) as u32;
        let until = |from: u64| range.end.min(from.saturating_add(most_bytes));
        let mut from = range.start;
        let mut to = until(from);
        if from < slots.first {
            to = to.min(slots.first);
        } else if from < ends {
            let used = self.next_that(slot_of(from)..self.count, true);
            from = from.max(slots.first + u64::from(used) * slots.each);
            to = until(from);
            let last = (to.clamp(slots.first, ends) - slots.first).div_ceil(slots.each) as u32;
            let unused = self.next_that(used..last.max(used), false);
            if unused < last {
                to = to.min(slots.first + u64::from(unused) * slots.each);
            }
        }
        (from < to).then_some(from..to)
    }

    /// The first slot in a range that is used, or is not; its end where there is none.
    fn next_that(&self, range: Range<u32>, is_used: bool) -> u32 {
        let mut at = range.start;
        while at < range.end {
            let word = self.used[at as usize / 64] ^ if is_used { 0 } else { !0 };
            let bits = word >> (at % 64);
            if bits != 0 {
                return (at + bits.trailing_zeros()).min(range.end);
            }
            at = (at / 64 + 1) * 64;
        }
        range.end
    }

    /// From now on no slot in the range is taken, and those that become free are out of use.
    pub fn close(&mut self, range: Range<u32>) {
        let empty: Vec<Slot> = range.clone().map(Slot).filter(|slot| self.mark_used(*slot)).collect();
        self.closing = Some(Closing { range, empty });
    }

    /// Takes a range out of use if nothing is in it; whether it did.
    pub fn take_empty(&mut self, mut range: Range<u32>) -> bool {
        self.is_empty(range.clone()) && range.all(|slot| self.mark_used(Slot(slot)))
    }

    /// Whether nothing is in a range.
    pub fn is_empty(&self, mut range: Range<u32>) -> bool {
        range.all(|slot| !self.is_used(Slot(slot)))
    }

    /// The range that is being taken out of use.
    pub fn closing(&self) -> Option<Range<u32>> {
        self.closing.as_ref().map(|closing| closing.range.clone())
    }

    /// Whether this slot is being taken out of use.
    pub fn is_closing(&self, slot: Slot) -> bool {
        self.closing.as_ref().is_some_and(|closing| closing.range.contains(&slot.0))
    }

    /// The range that is out of use, once it is so as a whole.
    pub fn take_closed(&mut self) -> Option<Range<u32>> {
        let closed = |c: &mut Closing| c.empty.len() == c.range.len() || planted(Bug::BorrowedTooEarly);
        self.closing.take_if(closed).map(|closing| closing.range)
    }

    /// What has been taken out of use so far is free again.
    pub fn stop_closing(&mut self) {
        let empty = self.closing.take().map(|closing| closing.empty);
        empty.into_iter().flatten().for_each(|slot| self.mark_free(slot));
    }

    /// A range that was out of use is free again.
    pub fn reopen(&mut self, range: Range<u32>) {
        for slot in range.map(Slot) {
            assert!(self.is_used(slot) && self.owner(slot).is_none(), "a slot out of use holds nothing");
            self.mark_free(slot);
        }
    }

    /// A read of the slot begins.
    pub fn pin(&mut self, slot: Slot) {
        *self.readers.entry(slot).or_insert(0) += 1;
    }

    /// A read of the slot has ended.
    pub fn unpin(&mut self, slot: Slot) {
        let readers = self.readers.get_mut(&slot).expect("an unpinned slot was pinned");
        *readers -= 1;
        if *readers == 0 {
            self.readers.remove(&slot);
        }
    }

    /// Whether reads of the slot are in flight.
    pub fn has_readers(&self, slot: Slot) -> bool {
        self.readers.contains_key(&slot)
    }

    /// Notes whose home a fast slot is.
    pub fn set_owner(&mut self, slot: Slot, chunk: Option<Chunk>) {
        if let Some(owner) = self.owner.get_mut(slot.0 as usize) {
            *owner = chunk.map_or(0, |c| c.0 + 1);
        }
    }

    /// Whose home a fast slot is.
    pub fn owner(&self, slot: Slot) -> Option<Chunk> {
        self.owner.get(slot.0 as usize).and_then(|o| o.checked_sub(1)).map(Chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_is_next_to_it_or_behind_it() {
        let mut slots = Slots::new(200_000, false);
        let mut near = |slot| slots.take_near(Slot(slot)).map(|slot| slot.0);
        assert_eq!([near(100), near(100), near(99), near(100)], [100, 101, 99, 102].map(Some));
        // What was taken in passing does not move what is taken behind each other.
        assert_eq!([slots.take(), slots.take()], [0, 1].map(|slot| Some(Slot(slot))));
        slots.close(1000..100_000);
        assert_eq!(slots.take_near(Slot(1000)), Some(Slot(2)), "too far away");
        assert_eq!(slots.take_near(Slot(500_000)), Some(Slot(199_999)), "beyond the last");
        assert_eq!(slots.take_near(Slot(500_000)), Some(Slot(3)), "none behind it");
    }

    #[test]
    fn what_is_not_of_a_free_slot_is_needed() {
        let mut slots = Slots::new(200, false);
        (60..140).chain([199]).for_each(|slot| assert!(slots.mark_used(Slot(slot))));
        let at = |slot: u64| 1000 + slot * 10;
        let needed =
            |range: Range<u64>, most| slots.next_needed(SlotBytes { first: 1000, each: 10 }, range, most);
        assert_eq!(needed(0..9000, 9000), Some(0..1000));
        assert_eq!(needed(400..9000, 100), Some(400..500));
        assert_eq!(needed(1000..9000, 9000), Some(at(60)..at(140)));
        assert_eq!(needed(1000..9000, 15), Some(at(60)..at(61) + 5));
        assert_eq!(needed(at(70) + 3..at(80) + 3, 9000), Some(at(70) + 3..at(80) + 3));
        assert_eq!(needed(at(139) + 9..9000, 9000), Some(at(139) + 9..at(140)));
        assert_eq!(needed(at(140)..at(199), 9000), None);
        assert_eq!(needed(at(140)..9000, 30), Some(at(199)..at(200) + 20));
        assert_eq!(needed(at(200)..9000, 9000), Some(at(200)..9000));
        assert_eq!(needed(9000..9000, 9000), None);
    }

    #[test]
    fn the_last_free_slot_is_found() {
        let mut slots = Slots::new(100, false);
        (0..100).filter(|slot| *slot != 7).for_each(|slot| assert!(slots.mark_used(Slot(slot))));
        assert_eq!([slots.take_near(Slot(50)), slots.take_near(Slot(50))], [Some(Slot(7)), None]);
    }
}
