//! What a batch reads: laid together, held against its checksums, and given up where nothing else helps.

use super::*;
use crate::piece::Overlay;
use crate::sectors::Sectors;

/// What is wrong with a landed block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// What landed.
    Landed,
    /// What is beneath it, of which not all sectors landed.
    Beneath,
}

impl<A: Arena> Engine<A> {
    /// Notes the checksums that what is read must have, loading pages of them as needed.
    pub(super) fn gather_sums(&mut self, batch: u32) {
        let mut items = std::mem::take(&mut self.mover.batches[batch].items);
        let missing = items.iter_mut().find_map(|item| self.expect_sums(item));
        self.mover.batches[batch].items = items;
        match missing {
            Some(page) => self.want_sum_page(page, SumWaiter::Batch(batch)),
            None => self.plan_reads(batch),
        }
    }

    pub(crate) fn batch_sums_arrived(&mut self, batch: u32, ok: bool) {
        if ok {
            return self.gather_sums(batch);
        }
        // Which chunks the lost page covers is not worth finding out: those from the slow tier stay.
        let items = &mut self.mover.batches[batch].items;
        let reads_home = |i: &Item| i.to != Destination::Merge || !i.parts.is_empty();
        items.iter_mut().for_each(|i| i.failed |= i.from.is_some_and(|h| h.tier == SLOW) && reads_home(i));
        self.drop_failed(batch);
        self.gather_sums(batch);
    }

    /// Notes what checksums the blocks must have; gives a page of them that has to be read first.
    fn expect_sums(&mut self, item: &mut Item) -> Option<u32> {
        for (k, block) in item.copy.iter().enumerate() {
            if item.sums[k].is_some() || item.bare.has(block) {
                continue;
            }
            if let Some(z) = item.landed_at(block).filter(|_| !item.parts.has(block)) {
                item.sums[k] = Some(self.state.landed.sum(z));
            } else if let Some(home) = item.from.filter(|h| h.tier == SLOW) {
                match self.state.sums.get(home.slot, block) {
                    Lookup::Known(sum) => item.sums[k] = Some(sum),
                    Lookup::InPage(page) => return Some(page),
                }
            }
        }
        None
    }

    fn plan_reads(&mut self, batch: u32) {
        let mut ios = Vec::new();
        for (i, item) in self.mover.batches[batch].items.iter().enumerate() {
            let Some(buf) = item.buf else { continue };
            // After a failure each landed block is read by itself, so that one bad sector does not
            // condemn its neighbours.
            let apart =
                item.landed.iter().any(|(b, z)| self.mover.unread.contains(&self.landing(item, *b, *z)));
            let mut last: Option<(Tier, u64)> = None;
            for (k, block) in item.copy.iter().enumerate() {
                let part = buf.slice(k as u32 * BLOCK_BYTES, BLOCK_BYTES);
                if item.bare.has(block) {
                    self.arena.zero(part);
                    last = None;
                    continue;
                }
                let landed = item.landed_at(block).filter(|_| !item.parts.has(block));
                let (tier, offset) = match (landed, item.from) {
                    (Some(z), _) => (FAST, self.state.zone.offset_of(z)),
                    (None, Some(home)) => (home.tier, self.state.geo.block_at(home, block)),
                    (None, None) => unreachable!("a block that is copied is somewhere"),
                };
                match ios.last_mut() {
                    Some(Io { item, buf, .. })
                        if *item == i as u32 && last == Some((tier, offset)) && !apart =>
                    {
                        buf.len += BLOCK_BYTES;
                    }
                    _ => ios.push(Io { item: i as u32, tier, offset, buf: part }),
                }
                last = Some((tier, offset + u64::from(BLOCK_BYTES)));
            }
            for (nth, block) in item.parts.iter().enumerate() {
                let z = item.landed_at(block).expect("a part has landed");
                let (offset, buf) = (self.state.zone.offset_of(z), item.part_buf(buf, nth as u32));
                ios.push(Io { item: i as u32, tier: FAST, offset, buf });
            }
        }
        self.begin_ios(batch, BatchStage::Read, ios);
    }

    /// Lays what landed over what is beneath it, and compares all that was read with its checksums.
    pub(super) fn verify_item(&mut self, item: &mut Item) {
        let Some(buf) = item.buf else { return };
        let ignored = planted(Bug::ChecksumNotVerified) || planted(Bug::MoveNotVerified);
        let mut faults = Vec::new();
        let (copy, mut wrong, mut nth) = (item.copy, item.failed, 0);
        for (k, block) in copy.iter().enumerate() {
            let here = buf.slice(k as u32 * BLOCK_BYTES, BLOCK_BYTES);
            let was_read = !item.unreadable.contains(&(k as u32));
            let sum = self.arena.crc32c(here);
            let matches = item.sums[k].replace(sum).is_none_or(|expected| expected == sum);
            let mut fault = (!was_read || !matches).then_some(Fault::Landed);
            if item.parts.has(block) {
                fault = self.verify_part(item, (k, block), nth, was_read, matches);
                nth += 1;
            }
            let Some(fault) = fault.filter(|_| !ignored) else { continue };
            wrong = true;
            faults.push((block, fault));
            if was_read {
                let what = "the copy to be moved does not match its checksum";
                self.event(Level::Warning, format!("chunk {} block {block}: {what}", item.chunk), None);
            }
        }
        item.failed = wrong;
        for (b, z) in &item.landed {
            match faults.iter().find(|(of, _)| of == b) {
                Some((_, fault)) => self.settle_fault(item, (*b, *z), *fault),
                None => self.mover.unread.forget(&self.landing(item, *b, *z)),
            }
        }
    }

    /// Lays the nth part over what is beneath it; gives what is wrong with either, in which case nobody is shown the two.
    fn verify_part(
        &mut self,
        item: &mut Item,
        (k, block): (usize, u32),
        nth: u32,
        was_read: bool,
        matches: bool,
    ) -> Option<Fault> {
        let buf = item.buf.expect("what was read has its buffer");
        let (here, from) = (buf.slice(k as u32 * BLOCK_BYTES, BLOCK_BYTES), item.part_buf(buf, nth));
        let z = item.landed_at(block).expect("a part has landed");
        let (sectors, landed_sum) = (self.state.landed.sectors(z), self.state.landed.sum(z));
        let landed_read = !item.unreadable.contains(&(item.copy.count() + nth));
        let fault = if !landed_read || self.arena.crc32c(from) != landed_sum {
            Some(Fault::Landed)
        } else if !was_read
            || !matches && !self.is_torn(self.state.map.join(item.chunk, block), sectors, here)
        {
            Some(Fault::Beneath)
        } else {
            None
        };
        if item.to == Destination::Merge && item.home.is_some_and(|home| home.tier == SLOW) {
            item.rests.push((block, self.remains_of(sectors, here)));
        }
        self.lay_over(&Overlay { at: z, sectors, from, to: here });
        item.sums[k] = Some(self.arena.crc32c(here));
        fault
    }

    /// A block and where it landed, which may hold a part of another block too.
    fn landing(&self, item: &Item, b: u32, z: ZoneBlock) -> (Block, LogPos) {
        (self.state.map.join(item.chunk, b), self.state.zone.pos_of(z))
    }

    fn remains_of(&self, landed: Sectors, here: Buf) -> Remains {
        Remains::of(landed, |offset| self.arena.crc32c(here.slice(offset, SECTOR_BYTES)))
    }

    /// Whether a block that does not match its checksum is what overwriting it may have left, and whole with what landed.
    pub(crate) fn is_torn(&self, block: Block, landed: Sectors, here: Buf) -> bool {
        self.state
            .remains(block)
            .is_some_and(|known| landed.has(known.landed) && self.remains_of(known.landed, here) == known)
    }

    /// A landed block that stays unreadable, or what is beneath it, is given up in the end, for it would hold the log's tail
    /// for ever.
    fn settle_fault(&mut self, item: &Item, (b, z): (u32, ZoneBlock), fault: Fault) {
        let was_read = item.unreadable.is_empty();
        let (now, last_good) = (self.now, self.last_good);
        let base = item.from.map_or(FAST, |home| home.tier);
        let key = self.landing(item, b, z);
        let block = key.0;
        let unread = &mut self.mover.unread;
        if self.state.landed.get(block) != Some(z) {
            return unread.forget(&key);
        }
        let over = match fault {
            // A slow device that is away takes nothing with it that landed.
            Fault::Beneath => unread.failed_alone(key, was_read, now, last_good[usize::from(base.0)]),
            Fault::Landed => unread.failed(key, was_read, now, last_good[0]),
        };
        if !over {
            return;
        }
        unread.forget(&key);
        let what = match fault {
            Fault::Landed => {
                let at = self.state.zone.offset_of(z);
                format!("its only copy was on {} at byte {at}", self.names[0])
            }
            Fault::Beneath => {
                let home = item.from.expect("what is beneath is at home");
                let (name, at) = (&self.names[usize::from(home.tier.0)], self.state.geo.block_at(home, b));
                format!("a part of it was written, and the rest, on {name} at byte {at}, cannot be read")
            }
        };
        let volume_at = block.0 * u64::from(BLOCK_BYTES);
        self.event(Level::Error, format!("volume byte {volume_at}: a block is lost; {what}"), None);
        self.record_loss(block, z);
    }
}
