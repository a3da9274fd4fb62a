//! What a batch reads: laid together, held against its checksums, and given up where nothing else helps.

use super::*;
use crate::base::sectors::Sectors;
use crate::path::piece::Overlay;

/// What could be read of a part and of what is beneath it, and is what it should be.
#[derive(Clone, Copy)]
struct Layers {
    /// Whether the part was read, and what was read is right.
    landed: (bool, bool),
    /// The same of what is beneath.
    beneath: (bool, bool),
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

    pub(crate) fn batch_sums_arrived(&mut self, batch: u32, tier: Tier, ok: bool) {
        if ok {
            return self.gather_sums(batch);
        }
        // Which chunks the lost page covers is not worth finding out: those from its tier stay.
        let items = &mut self.mover.batches[batch].items;
        let reads_home = |i: &Item| i.to != Destination::Merge || !i.parts.is_empty();
        items.iter_mut().for_each(|i| i.failed |= i.from.is_some_and(|h| h.tier == tier) && reads_home(i));
        // Or an idle volume would choose the same chunks again at once, and read that page as fast as it can.
        self.mover.batches[batch].damaged = true;
        self.drop_failed(batch);
        self.gather_sums(batch);
    }

    /// Notes what checksums the blocks must have; gives a page of them that has to be read first.
    fn expect_sums(&mut self, item: &mut Item) -> Option<u32> {
        for (k, block) in item.copy.iter().enumerate() {
            if item.sums[k].is_some() || item.bare.or(item.unsummed).has(block) {
                continue;
            }
            if let Some(z) = item.landed_at(block).filter(|_| !item.parts.has(block)) {
                item.sums[k] = Some(self.state.landed.sum(z));
            } else if let Some(home) = item.from.filter(|h| h.tier == SLOW) {
                match self.state.sums.get(home.slot, block) {
                    Lookup::Known(sum) => item.sums[k] = Some(sum),
                    Lookup::InPage(page) => return Some(page),
                }
            } else if let Some(home) = item.from.filter(|_| !planted(Bug::FastSumNotVerified)) {
                match self.state.sums.of_fast(home.slot, block) {
                    Some(Lookup::Known(sum)) => item.sums[k] = Some(sum),
                    Some(Lookup::InPage(page)) => return Some(page),
                    None => item.unsummed.set(block),
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
            let apart = item.landed.iter().any(|(b, z)| {
                let failed = |which| self.mover.unread.contains(&self.landing(item, *b, *z, which));
                failed(Which::Landed) || failed(Which::Beneath)
            });
            let mut last: Option<(Tier, u64)> = None;
            for (k, block) in item.copy.iter().enumerate() {
                let part = buf.slice(k as u32 * BLOCK_BYTES, BLOCK_BYTES);
                if item.bare.has(block) {
                    self.io.arena.zero(part);
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
            for remnant in &item.remnants {
                let buf = buf.slice(remnant.at * BLOCK_BYTES, BLOCK_BYTES);
                let offset = self.state.zone.offset_of(remnant.z);
                ios.push(Io { item: i as u32, tier: FAST, offset, buf });
            }
        }
        self.begin_ios(batch, BatchStage::Read, ios);
    }

    /// Lays what landed over what is beneath it, and compares all that was read with its checksums.
    pub(super) fn verify_item(&mut self, item: &mut Item) {
        let Some(buf) = item.buf else { return };
        let ignored = planted(Bug::ChecksumNotVerified) || planted(Bug::MoveNotVerified);
        let (copy, mut wrong, mut nth) = (item.copy, false, 0);
        for (k, block) in copy.iter().enumerate() {
            let here = buf.slice(k as u32 * BLOCK_BYTES, BLOCK_BYTES);
            let was_read = !item.unreadable.contains(&(k as u32));
            let sum = self.io.arena.crc32c(here);
            let expected = item.sums[k].replace(sum);
            let matches = expected.is_none_or(|expected| expected == sum);
            let landed = item.landed_at(block);
            let good = match landed {
                Some(z) if item.parts.has(block) => {
                    nth += 1;
                    self.verify_part(item, (k, block), (nth - 1, z), (was_read, matches))
                }
                Some(z) => self.verify_landed(item, (block, z), (was_read, matches)),
                None => was_read && matches,
            };
            if good && expected.is_some() {
                let home = item.from.filter(|_| landed.is_none());
                self.read_well(home.map_or(FAST, |home| home.tier));
            }
            if good || ignored {
                continue;
            }
            wrong = true;
            if was_read {
                let what = "the copy to be moved does not match its checksum";
                self.told.event(Level::Warning, format!("chunk {} block {block}: {what}", item.chunk), None);
            }
        }
        for Remnant { block, z, at, .. } in item.remnants.clone() {
            let was_read = !item.unreadable.contains(&at);
            let matches =
                self.io.arena.crc32c(buf.slice(at * BLOCK_BYTES, BLOCK_BYTES)) == self.state.landed.sum(z);
            // What is said again because of what was read here is the block as it is, and no landed one.
            if at >= copy.count() && !self.verify_landed(item, (block, z), (was_read, matches)) {
                wrong = true;
            }
        }
        item.failed = wrong || ignored && item.failed;
    }

    /// Whether a landed block, which was read or not, is as it should be. One that stays unreadable is given up in the end,
    /// for it would hold the log's tail for ever.
    fn verify_landed(&mut self, item: &Item, (b, z): (u32, ZoneBlock), read: (bool, bool)) -> bool {
        if self.is_over(item, (b, z), Which::Landed, read) {
            self.lose_all(item, (b, z));
        }
        read == (true, true)
    }

    /// Lays the nth part over what is beneath it; whether both are as they should be, or one of them is given up and the other
    /// is not lost with it.
    fn verify_part(
        &mut self,
        item: &mut Item,
        (k, block): (usize, u32),
        (nth, z): (u32, ZoneBlock),
        (was_read, matches): (bool, bool),
    ) -> bool {
        let buf = item.buf.expect("what was read has its buffer");
        let (here, from) = (buf.slice(k as u32 * BLOCK_BYTES, BLOCK_BYTES), item.part_buf(buf, nth));
        let (sectors, landed_sum) = (self.state.landed.sectors(z), self.state.landed.sum(z));
        let torn = || self.is_torn(self.state.map.join(item.chunk, block), sectors, here);
        let layers = Layers {
            landed: (
                !item.unreadable.contains(&(item.copy.count() + nth)),
                self.io.arena.crc32c(from) == landed_sum,
            ),
            beneath: (was_read, matches || torn()),
        };
        if layers.landed == (true, true) && layers.beneath == (true, true) {
            self.read_well(FAST);
        }
        let landed_is_over = self.is_over(item, (block, z), Which::Landed, layers.landed);
        let beneath_is_over = self.is_over(item, (block, z), Which::Beneath, layers.beneath);
        match (layers.landed == (true, true), layers.beneath == (true, true)) {
            (true, true) => {
                if item.to == Destination::Merge && item.home.is_some_and(|home| home.tier == SLOW) {
                    item.rests.push((block, self.remains_of(sectors, here)));
                }
                self.lay_over(&Overlay { at: z, sectors, from, to: here });
                item.sums[k] = Some(self.io.arena.crc32c(here));
                return true;
            }
            (true, false) if beneath_is_over && planted(Bug::PartLostWithRest) => {
                self.lose_all(item, (block, z))
            }
            (true, false) if beneath_is_over => self.lose_beneath(item, (block, z)),
            (false, true) if landed_is_over => {
                // What is beneath goes on as it is, and what is left of the block goes with it.
                let sectors = sectors.others().expect("a part is not the whole block");
                item.remnants.push(Remnant { block, z, sectors, at: k as u32 });
                return true;
            }
            (false, false) if landed_is_over && beneath_is_over => self.lose_all(item, (block, z)),
            _ => {}
        }
        false
    }

    /// A block and where it landed, which may hold a part of another block too.
    pub(super) fn landing(&self, item: &Item, b: u32, z: ZoneBlock, which: Which) -> (Block, LogPos, Which) {
        (self.state.map.join(item.chunk, b), self.state.zone.pos_of(z), which)
    }

    fn remains_of(&self, landed: Sectors, here: Buf) -> Remains {
        Remains::of(landed, |offset| self.io.arena.crc32c(here.slice(offset, SECTOR_BYTES)))
    }

    /// Whether a block that does not match its checksum is what overwriting it may have left, and whole with what landed.
    pub(crate) fn is_torn(&self, block: Block, landed: Sectors, here: Buf) -> bool {
        self.state
            .remains(block)
            .is_some_and(|known| landed.has(known.landed) && self.remains_of(known.landed, here) == known)
    }

    /// Whether what was read or not, and is right or not, of a landed block, or of what is beneath it, is to be given up.
    fn is_over(
        &mut self,
        item: &Item,
        (b, z): (u32, ZoneBlock),
        which: Which,
        (was_read, matches): (bool, bool),
    ) -> bool {
        let key = self.landing(item, b, z, which);
        if was_read && matches || self.state.landed.get(key.0) != Some(z) {
            self.mover.unread.forget(&key);
            return false;
        }
        let base = item.from.map_or(FAST, |home| home.tier);
        let tier = if which == Which::Landed { FAST } else { base };
        self.want_probe(tier);
        let good_reads = self.io.good_reads[tier];
        self.mover.unread.failed(key, was_read, self.io.now, good_reads)
    }

    /// All of a block is lost.
    fn lose_all(&mut self, item: &Item, (b, z): (u32, ZoneBlock)) {
        for which in [Which::Landed, Which::Beneath] {
            let key = self.landing(item, b, z, which);
            self.mover.unread.forget(&key);
        }
        let at = self.state.zone.offset_of(z);
        let volume_at = self.state.map.join(item.chunk, b).0 * u64::from(BLOCK_BYTES);
        let what = format!("a block is lost; its only copy was on {} at byte {at}", self.told.names[FAST]);
        self.told.event(Level::Error, format!("volume byte {volume_at}: {what}"), None);
        self.record_loss(self.state.map.join(item.chunk, b), z);
    }

    /// What is beneath a part is lost: the part is all that is left of its block. No record says so before one is needed: what
    /// is beneath may be readable when the volume is opened next.
    fn lose_beneath(&mut self, item: &Item, (b, z): (u32, ZoneBlock)) {
        self.tell_of_loss(item, (b, z), Which::Beneath);
        let key = self.landing(item, b, z, Which::Beneath);
        self.mover.unread.forget(&key);
        self.state.lose_rest(key.0, z);
    }

    pub(super) fn tell_of_loss(&mut self, item: &Item, (b, z): (u32, ZoneBlock), which: Which) {
        let home = item.from.filter(|_| which == Which::Beneath);
        let (name, at) = match home {
            Some(home) => (&self.told.names[home.tier], self.state.geo.block_at(home, b)),
            None => (&self.told.names[FAST], self.state.zone.offset_of(z)),
        };
        let volume_at = self.state.map.join(item.chunk, b).0 * u64::from(BLOCK_BYTES);
        let what = format!("sectors of a block are lost; they were on {name} at byte {at}");
        self.told.event(
            Level::Error,
            format!("volume byte {volume_at}: {what}; what is left of it is kept"),
            None,
        );
    }
}
