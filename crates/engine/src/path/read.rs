//! Reads: look each block up, read runs from where they are, verify.

use crate::api::action::{Class, RequestError};
use crate::api::coverage::Stage;
use crate::api::options::Level;
use crate::base::arena::{Arena, Buf};
use crate::base::bugs::{Bug, planted};
use crate::base::sectors::Sectors;
use crate::engine::Engine;
use crate::format::left_out;
use crate::io::issue::Command;
use crate::io::tokens::Owner;
use crate::path::piece::{Extent, Overlay, PieceKind, Source};
use crate::volume::landed::ZoneBlock;
use crate::volume::pending::PendingChunk;
use crate::volume::sums::Lookup;
use bimetal_units::*;
use smallvec::SmallVec;
use std::ops::Range;

enum Verdict {
    Good,
    NeedPage(u32),
    Mismatch(Tier, u64),
}

/// Whether a copy gives a read what it needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fetched {
    /// It has.
    Now,
    /// It will.
    Later,
    /// The read goes to the device by itself.
    No,
}

/// Where blocks are.
#[derive(Default)]
pub(crate) struct Located {
    pub(crate) extents: SmallVec<[Extent; 2]>,
    /// What landed of those of which not all did: to be laid over the extents.
    parts: Vec<(ZoneBlock, Extent)>,
}

impl<A: Arena> Engine<A> {
    pub(crate) fn read_piece(&mut self, piece: u32) {
        self.drop_scratch(piece);
        let p = &self.front.pieces[piece];
        let buf = p.buf.expect("a read has its buffer");
        let mut found = Located::default();
        self.locate(p.chunk, p.first..p.first + p.count, buf, |i| p.bytes_in(i), &mut found);
        let mut scratch = None;
        if !found.parts.is_empty() {
            scratch = self.take_scratch(piece, found.parts.len() as u32);
            if scratch.is_none() {
                return;
            }
        }
        self.set_stage(piece, Stage::ReadData);
        self.fetch(piece, found, scratch);
    }

    /// Where a block's newest copy is.
    pub(crate) fn source(&self, chunk: Chunk, block: u32) -> Source {
        let map = &self.state.map;
        if map.may_be_landed(chunk)
            && let Some(z) = self.state.landed.get(map.join(chunk, block))
            && self
                .pending_in(chunk)
                .is_none_or(|p| p.written.or(p.flushing).is_empty() || self.state.zone.pos_of(z) >= p.ends)
        {
            return match self.state.landed.sectors(z).is_all() {
                true if self.state.landed.is_bad(z) => Source::Bad,
                true => Source::Landed(z),
                false if self.state.landed.is_bad(z) => Source::Remnant(z),
                false => Source::Part(z),
            };
        }
        self.beneath(chunk, block)
    }

    /// What of a chunk is written and not shown yet; most chunks have nothing, which the map knows without a search.
    fn pending_in(&self, chunk: Chunk) -> Option<&PendingChunk> {
        if self.state.map.is_pending(chunk) { self.space.pending.get(chunk) } else { None }
    }

    /// Where a block's newest copy was before any of it landed.
    pub(crate) fn beneath(&self, chunk: Chunk, block: u32) -> Source {
        let map = &self.state.map;
        if self.life.salvage.as_ref().is_some_and(|left| !left.is_readable(chunk, block)) {
            return Source::Bad;
        }
        if let Some(p) = self.pending_in(chunk).filter(|p| p.written.has(block) || p.flushing.has(block)) {
            // Slow blocks prove themselves by their checksums.
            let lost = self.space.unshown_lost && p.home.tier == FAST;
            return if lost { Source::Bad } else { Source::Slot(p.home) };
        }
        match map.home(chunk) {
            Some(home) if map.is_valid(chunk, block) && self.life.is_missing(home.tier) => {
                if planted(Bug::MissingReadsZeros) { Source::Zero } else { Source::Bad }
            }
            Some(home) if map.is_valid(chunk, block) => {
                match (home.tier == SLOW).then(|| self.mover.copies.find(chunk, block)).flatten() {
                    Some(at) => Source::Copy(home, at),
                    None => Source::Slot(home),
                }
            }
            _ => Source::Zero,
        }
    }

    /// The sources of some blocks as runs, to be read into `buf`; of each, by its place among them, the bytes that are wanted
    /// are known.
    pub(crate) fn locate(
        &self,
        chunk: Chunk,
        blocks: Range<u32>,
        buf: Buf,
        bytes: impl Fn(u32) -> (u32, u32),
        found: &mut Located,
    ) {
        let first = blocks.start;
        let mut run: Option<Extent> = None;
        for block in blocks {
            let mut source = self.source(chunk, block);
            if let Source::Part(z) | Source::Remnant(z) = source {
                let (from, to) = bytes(block - first);
                let (landed, wanted) = (self.state.landed.sectors(z), Sectors::touching(from, to));
                source = if landed.has(wanted) {
                    Source::Landed(z)
                } else if matches!(source, Source::Remnant(_)) {
                    Source::Bad
                } else if landed.and(wanted).is_none() {
                    // What landed is not wanted, and need not be readable.
                    self.beneath(chunk, block)
                } else {
                    let buf = buf.slice((block - first) * BLOCK_BYTES, BLOCK_BYTES);
                    let source = Source::Landed(z);
                    found.parts.push((z, Extent { source, first: block, count: 1, buf }));
                    self.beneath(chunk, block)
                };
            }
            match &mut run {
                Some(e) if self.follows(e, source) => e.count += 1,
                _ => {
                    found.extents.extend(run.map(|e| close(e, first, buf)));
                    run = Some(Extent { source, first: block, count: 1, buf });
                }
            }
        }
        found.extents.extend(run.map(|e| close(e, first, buf)));
    }

    /// Whether a block from `source` continues the run.
    fn follows(&self, e: &Extent, source: Source) -> bool {
        match (e.source, source) {
            (Source::Landed(z), Source::Landed(next)) => z.after(e.count).index() == next.index(),
            (Source::Copy(home, at), Source::Copy(next_home, next)) => {
                home == next_home && at.after(e.count) == next && self.mover.copies.place(next).1 > 0
            }
            (a, b) => a == b,
        }
    }

    /// Reads what was found, with what landed of blocks of which not all did to where there is room for it; what it refers
    /// to stays in place until it is verified.
    pub(crate) fn fetch(&mut self, piece: u32, found: Located, scratch: Option<Buf>) {
        let Located { mut extents, parts } = found;
        self.turn_to_shadows(piece, &mut extents);
        for (i, (at, part)) in parts.into_iter().enumerate() {
            let scratch = scratch.expect("there is room for parts");
            let from = scratch.slice(i as u32 * BLOCK_BYTES, BLOCK_BYTES);
            let overlay = Overlay { at, sectors: self.state.landed.sectors(at), from, to: part.buf };
            self.front.pieces[piece].overlays.push(overlay);
            extents.push(Extent { buf: from, ..part });
        }
        (self.front.pieces[piece].left, self.front.pieces[piece].verified) = (1, 0);
        let slow = |e: &&Extent| matches!(e.source, Source::Slot(home) if home.tier == SLOW);
        let slow_until = extents.iter().rev().find(slow).map_or(0, |e| e.first + e.count);
        if slow_until > 0 {
            self.count_if_neighbours_are_read(piece);
        }
        for (i, e) in extents.iter().enumerate() {
            match e.source {
                Source::Zero => self.io.arena.zero(e.buf),
                Source::Bad => self.front.pieces[piece].failed = Some(RequestError::Io),
                Source::Landed(z) => {
                    let place = self.state.zone.place_of(z);
                    self.state.zone.get_mut(place).pins += 1;
                    self.issue_read(piece, FAST, self.state.zone.offset_of(z), e.buf);
                }
                Source::Slot(home) => {
                    self.space.slots[home.tier].pin(home.slot);
                    if home.tier == SLOW {
                        match self.read_with_copy(piece, i as u16, home, e, slow_until) {
                            Fetched::Now => continue,
                            Fetched::Later => {
                                self.front.pieces[piece].left += 1;
                                continue;
                            }
                            Fetched::No => {}
                        }
                    }
                    let at = self.state.geo.block_at(home, e.first);
                    self.issue_read(piece, home.tier, at, e.buf);
                }
                Source::Part(_) | Source::Remnant(_) => {
                    unreachable!("what landed of a block is laid over what is beneath it")
                }
                Source::Copy(_, at) => {
                    self.space.slots[FAST].pin(self.mover.copies.place(at).0);
                    self.issue_read(piece, FAST, self.copy_at(at), e.buf);
                }
            }
        }
        self.front.pieces[piece].extents = extents;
        self.piece_io_done(piece, Ok(()));
    }

    fn count_if_neighbours_are_read(&mut self, piece: u32) {
        let p = &mut self.front.pieces[piece];
        if p.kind == PieceKind::Read && self.front.requests[p.request].goes_on() && !p.neighbours_counted {
            p.neighbours_counted = true;
            self.placement.neighbours.read(self.tuning.economy.neighbours_memory);
        }
    }

    fn issue_read(&mut self, piece: u32, device: Tier, offset: u64, buf: Buf) {
        self.front.pieces[piece].left += 1;
        let owner = Owner::Piece(piece);
        self.io.read(Command { device, offset, owner, class: Class::Foreground }, buf);
    }

    /// Everything has been read, or checksums that were missing have come: verify and go on.
    pub(crate) fn data_arrived(&mut self, piece: u32) {
        let filling = self.front.pieces[piece].kind != PieceKind::Read;
        if self.space.unshown_lost && self.reads_unshown(piece) {
            self.front.pieces[piece].failed.get_or_insert(RequestError::Io);
        }
        if self.front.pieces[piece].failed.is_some() && self.may_read_again(piece) {
            self.unpin(piece);
            let p = &mut self.front.pieces[piece];
            (p.failed, p.error) = (None, None);
            return self.read_again(piece);
        }
        if let Some(error) = self.front.pieces[piece].failed {
            self.report_unreadable(piece);
            self.unpin(piece);
            return self.finish_piece(piece, Err(error));
        }
        match self.verify(piece) {
            Verdict::NeedPage(page) => {
                self.set_stage(piece, Stage::ReadChecksums);
                self.load_sum_page(page, piece);
            }
            Verdict::Mismatch(tier, offset) => {
                self.read_without_copy(piece);
                self.unpin(piece);
                self.mismatch(piece, tier, offset);
            }
            Verdict::Good => {
                self.note_sources(piece);
                if self.front.pieces[piece].from_shadows {
                    self.told.stats.reads_from_shadows += 1;
                    self.mover.scrub.doubt(self.front.pieces[piece].chunk);
                }
                self.unpin(piece);
                for overlay in std::mem::take(&mut self.front.pieces[piece].overlays) {
                    self.lay_over(&overlay);
                }
                if filling {
                    self.filled(piece);
                } else {
                    self.count_read(piece);
                    self.finish_piece(piece, Ok(()));
                }
            }
        }
    }

    /// A page of checksums came, or could not be read.
    pub(crate) fn checksums_arrived(&mut self, piece: u32, ok: bool) {
        if !ok {
            self.front.pieces[piece].failed.get_or_insert(RequestError::Io);
        }
        let filling = self.front.pieces[piece].kind != PieceKind::Read;
        self.set_stage(piece, if filling { Stage::WriteFill } else { Stage::ReadData });
        self.data_arrived(piece);
    }

    /// Lays what landed of a block over what is beneath it.
    pub(crate) fn lay_over(&mut self, overlay: &Overlay) {
        if planted(Bug::PartNotLaidOver) {
            return;
        }
        for offset in overlay.sectors.offsets() {
            let (from, to) =
                (overlay.from.slice(offset, SECTOR_BYTES), overlay.to.slice(offset, SECTOR_BYTES));
            self.io.arena.copy(to, from);
        }
    }

    fn verify(&mut self, piece: u32) -> Verdict {
        let mut nth = 0;
        for i in 0..self.front.pieces[piece].extents.len() {
            let e = self.front.pieces[piece].extents[i];
            let chunk = self.front.pieces[piece].chunk;
            for k in 0..e.count {
                nth += 1;
                if nth <= self.front.pieces[piece].verified {
                    continue;
                }
                let (expected, tier, at) = match e.source {
                    Source::Landed(z) => {
                        let z = z.after(k);
                        (Lookup::Known(self.state.landed.sum(z)), FAST, self.state.zone.offset_of(z))
                    }
                    // Its checksums are on the fast device. What was left out is known all the same.
                    Source::Slot(home) if home.tier == SLOW && self.life.is_missing(FAST) => {
                        let block = e.buf.slice(k * BLOCK_BYTES, BLOCK_BYTES);
                        if self.io.arena.crc32c(block) == left_out::sum() && !planted(Bug::LeftOutIsGood) {
                            return Verdict::Mismatch(SLOW, self.state.geo.block_at(home, e.first + k));
                        }
                        continue;
                    }
                    Source::Slot(home) if home.tier == SLOW => {
                        let at = self.state.geo.block_at(home, e.first + k);
                        (self.slow_sum(chunk, home, e.first + k), SLOW, at)
                    }
                    Source::Slot(home) => {
                        let sums = &mut self.state.sums;
                        let own = match planted(Bug::LiveSumNotVerified) {
                            true => sums.fast.get(home.slot, e.first + k).map(Lookup::Known),
                            false => sums.of_fast_at_once(home.slot, e.first + k),
                        };
                        let shadow = || self.sum_of_shadow(home, e.first + k).map(Lookup::Known);
                        let Some(known) = own.or_else(shadow) else {
                            // Nor is it asked again: its page may have given way to another by then.
                            self.front.pieces[piece].verified = nth;
                            continue;
                        };
                        (known, FAST, self.state.geo.block_at(home, e.first + k))
                    }
                    Source::Copy(..) if copies_believed() => continue,
                    Source::Copy(home, at) => {
                        (self.slow_sum(chunk, home, e.first + k), FAST, self.copy_at(at.after(k)))
                    }
                    _ => continue,
                };
                match expected {
                    Lookup::InPage(page) => return Verdict::NeedPage(page),
                    Lookup::Known(sum) => {
                        let block = e.buf.slice(k * BLOCK_BYTES, BLOCK_BYTES);
                        // What landed is overwritten by nobody: it is as it was written, or an error.
                        let is_beneath = !matches!(e.source, Source::Landed(_));
                        if self.io.arena.crc32c(block) != sum
                            && !(is_beneath && self.is_torn_beneath(piece, e.first + k, block))
                            && !planted(Bug::ChecksumNotVerified)
                        {
                            return Verdict::Mismatch(tier, at);
                        }
                    }
                }
                self.front.pieces[piece].verified = nth;
            }
        }
        Verdict::Good
    }

    /// Whether a block that does not match its checksum is being, or was, overwritten, and whole with what landed of it.
    fn is_torn_beneath(&self, piece: u32, block: u32, here: Buf) -> bool {
        let p = &self.front.pieces[piece];
        let of_volume = self.state.map.join(p.chunk, block);
        let overlay = p.overlays.iter().find(|overlay| overlay.to == here);
        // Where none is laid over it, nobody wants the sectors that landed.
        let unwanted = || self.state.landed.get(of_volume).map(|z| self.state.landed.sectors(z));
        let landed = overlay.map(|overlay| overlay.sectors).or_else(unwanted);
        landed.is_some_and(|landed| self.is_torn(of_volume, landed, here))
    }

    /// The checksum of a block in a slow slot, which a stream may have written that no record shows yet.
    pub(crate) fn slow_sum(&mut self, chunk: Chunk, home: Home, block: u32) -> Lookup {
        if let Some(p) = self.space.pending.get(chunk).filter(|p| p.home == home && p.shown().has(block)) {
            return Lookup::Known(p.sums[block as usize]);
        }
        self.state.sums.get(home.slot, block)
    }

    /// On a mismatch the block is looked up and read again once: it may have moved, or the transfer was bad.
    fn mismatch(&mut self, piece: u32, tier: Tier, offset: u64) {
        // What is beneath a part may have been overwritten with it since it was looked up: once for each part, as who reads
        // a block holds its lock.
        let p = &self.front.pieces[piece];
        let merged = p.overlays.iter().any(|overlay| self.state.landed.owner(overlay.at).is_none());
        if p.again && !merged && !self.may_read_shadows(piece) {
            let name = &self.told.names[tier];
            self.told.event(
                Level::Error,
                format!("{name}: the block at byte {offset} does not match its checksum"),
                None,
            );
            return self.finish_piece(piece, Err(RequestError::Io));
        }
        self.read_again(piece);
    }

    fn read_again(&mut self, piece: u32) {
        self.told.stats.reads_again += 1;
        self.front.pieces[piece].again = true;
        match self.front.pieces[piece].kind {
            PieceKind::Read => self.read_piece(piece),
            _ => self.fill_piece(piece),
        }
    }

    /// Whether the piece read blocks that a flush, failing meanwhile, may have turned into what the
    /// slot held before.
    fn reads_unshown(&self, piece: u32) -> bool {
        let p = &self.front.pieces[piece];
        let lost = |e: &Extent| (e.first..e.first + e.count).any(|b| self.source(p.chunk, b) == Source::Bad);
        p.extents.iter().any(lost)
    }

    fn report_unreadable(&mut self, piece: u32) {
        let p = &self.front.pieces[piece];
        let offset = (u64::from(p.chunk.0)) * u64::from(self.state.geo.chunk_bytes)
            + u64::from(p.first) * u64::from(BLOCK_BYTES);
        let error = p.error;
        if self.life.loss().is_some() && error.is_none() {
            // Opening has said what is missing.
            return;
        }
        let sources: Vec<String> = p.extents.iter().filter_map(|e| self.describe(e)).collect();
        self.told.event(
            Level::Warning,
            format!("volume byte {offset}: cannot be read ({})", sources.join(", ")),
            error,
        );
    }

    fn describe(&self, e: &Extent) -> Option<String> {
        match e.source {
            Source::Zero => None,
            Source::Bad | Source::Remnant(_) => Some("its newest copy was lost".into()),
            Source::Landed(z) | Source::Part(z) => {
                Some(format!("{} at byte {}", self.told.names[FAST], self.state.zone.offset_of(z)))
            }
            Source::Slot(home) | Source::Copy(home, _) => {
                let at = self.state.geo.block_at(home, e.first);
                Some(format!("{} at byte {at}", self.told.names[home.tier]))
            }
        }
    }

    fn unpin(&mut self, piece: u32) {
        let extents = std::mem::take(&mut self.front.pieces[piece].extents);
        for e in &extents {
            match e.source {
                Source::Landed(z) => self.unpin_landed(z),
                Source::Slot(home) => self.unpin_slot(home),
                Source::Copy(_, at) => {
                    let slot = self.mover.copies.place(at).0;
                    self.unpin_slot(Home { tier: FAST, slot });
                }
                Source::Part(_) | Source::Remnant(_) | Source::Zero | Source::Bad => {}
            }
        }
        self.front.pieces[piece].extents = extents;
    }

    pub(crate) fn unpin_landed(&mut self, z: ZoneBlock) {
        let place = self.state.zone.place_of(z);
        let segment = self.state.zone.get_mut(place);
        segment.pins -= 1;
        if segment.pins == 0 {
            self.state.zone.recycle();
        }
    }

    pub(crate) fn unpin_slot(&mut self, home: Home) {
        let slots = &mut self.space.slots[home.tier];
        slots.unpin(home.slot);
        if self.space.gate.leaving() > 0 {
            self.release_slots();
        }
    }

    fn note_sources(&mut self, piece: u32) {
        let p = &self.front.pieces[piece];
        let served = &mut self.front.requests[p.request].served;
        for e in &p.extents {
            match e.source {
                Source::Landed(_) | Source::Copy(..) => served.add(FAST),
                Source::Slot(home) => served.add(home.tier),
                Source::Part(_) | Source::Remnant(_) | Source::Zero | Source::Bad => {}
            }
        }
    }

    fn count_read(&mut self, piece: u32) {
        let scratch = self.front.pieces[piece].scratch.map(|buf| buf.start..buf.start + u64::from(buf.len));
        for i in 0..self.front.pieces[piece].extents.len() {
            let e = self.front.pieces[piece].extents[i];
            if scratch.as_ref().is_some_and(|scratch| scratch.contains(&e.buf.start)) {
                // It is counted with what it is laid over.
                continue;
            }
            let bytes = u64::from(e.count) * u64::from(BLOCK_BYTES);
            let tier = match e.source {
                Source::Landed(_) => FAST,
                Source::Slot(home) => home.tier,
                Source::Copy(..) => {
                    self.count_copy_read(piece, &e);
                    FAST
                }
                Source::Part(_) | Source::Remnant(_) | Source::Zero | Source::Bad => continue,
            };
            if has_sum(e.source) {
                self.read_well(tier);
            }
            self.told.stats.read_bytes[tier] += bytes;
        }
        self.touched(piece, false);
    }
}

/// Whether what is read there is held against a checksum.
fn has_sum(source: Source) -> bool {
    !matches!(source, Source::Slot(Home { tier: FAST, .. }))
}

/// Whether copies are not held against checksums: in tests of what would happen then.
fn copies_believed() -> bool {
    planted(Bug::CopyOutlivesHome) || planted(Bug::CopyFreedUnderRead)
}

fn close(e: Extent, first: u32, buf: Buf) -> Extent {
    Extent { buf: buf.slice((e.first - first) * BLOCK_BYTES, e.count * BLOCK_BYTES), ..e }
}
