//! Ranges that are read together, and written to the ring as a group.

use crate::bugs::{Bug, planted};
use crate::epoch::Phase;
use crate::extents::Held;
use crate::group::{Entry, Group, Kind, MOST_ENTRIES};
use crate::protection::{BLOCK, Own, Protection};
use crate::transfer::pool;
use bimetal_engine::action::{Action, BufList, Class, DeviceError};
use bimetal_engine::arena::{Arena, Buf, Pool};
use bimetal_units::{BLOCK_BYTES, FAST, SLOW};
use std::ops::Range;

/// Bundles of a kind at once: one is read while another is written.
const BUNDLES: usize = 2;
/// Pieces of a bundle at most.
const PIECES: u64 = 4;

/// Ranges that are read together.
pub(crate) struct Bundle {
    kind: Kind,
    freeze: u64,
    entries: Vec<Piece>,
    /// Of those, so many are being read.
    reads: usize,
    /// The group's number, its place, and its first block, once it is being written.
    group: Option<(u64, u64, Buf)>,
}

struct Piece {
    blocks: Range<u64>,
    buf: Buf,
    is_lost: bool,
}

impl Bundle {
    fn bytes(&self) -> u64 {
        let held = self.entries.iter().filter(|entry| !entry.is_lost);
        BLOCK + held.map(|entry| u64::from(entry.buf.len)).sum::<u64>()
    }
}

/// The checksum of each block.
fn sums<A: Arena>(buf: Buf, arena: &A) -> Vec<u32> {
    let blocks = 0..buf.len / BLOCK_BYTES;
    blocks.map(|block| arena.crc32c(buf.slice(block * BLOCK_BYTES, BLOCK_BYTES))).collect()
}

impl Protection {
    /// Whether a bundle is of the epoch, or of what is kept.
    fn counts(&self, bundle: &Bundle) -> bool {
        match bundle.kind {
            Kind::Redo => matches!(self.phase, Phase::Copying) && bundle.freeze == self.undo.freeze(),
            Kind::Undo => self.keeps(),
        }
    }

    /// Whether what the slow device holds is kept.
    fn keeps(&self) -> bool {
        self.tracking && !self.is_ending() && !matches!(self.phase, Phase::Off { .. })
    }

    /// Whether something of the epoch is still on its way.
    pub(crate) fn is_copying(&self) -> bool {
        self.bundles.values().any(|bundle| bundle.kind == Kind::Redo)
    }

    /// Blocks of a bundle at most: a small ring has room for some of them.
    fn most_of_bundle(&self) -> u64 {
        (self.plan.piece_bytes / BLOCK * PIECES).min(self.quota().max(1))
    }

    /// Bytes of a group at most.
    pub(crate) fn most_of_group(&self) -> u64 {
        (self.most_of_bundle() + 1) * BLOCK
    }

    /// Bytes of the epoch that have been read, or are being, and have no place in the ring yet.
    pub(crate) fn pending_redo(&self) -> u64 {
        let pending = |bundle: &&Bundle| bundle.kind == Kind::Redo && bundle.group.is_none();
        self.bundles.values().filter(pending).map(Bundle::bytes).sum()
    }

    pub(crate) fn work_on_bundles<A: Arena>(&mut self, arena: &mut A) {
        if self.keeps() {
            self.gather(Kind::Undo, arena);
        }
        if matches!(self.phase, Phase::Copying) {
            self.gather(Kind::Redo, arena);
        }
        for id in self.ready() {
            self.write_group(id, arena);
        }
    }

    /// Bundles that are read and not on their way to the ring.
    fn ready(&self) -> Vec<u64> {
        let is_ready = |bundle: &Bundle| bundle.reads == 0 && bundle.group.is_none();
        self.bundles.iter().filter(|(_, bundle)| is_ready(bundle)).map(|(id, _)| *id).collect()
    }

    /// Nothing more is begun: what is read goes nowhere.
    pub(crate) fn forget_ready<A: Arena>(&mut self, arena: &mut A) {
        for id in self.ready() {
            self.forget_bundle(id, arena);
        }
    }

    /// Begins to read a bundle of a kind, if there is one to be read.
    fn gather<A: Arena>(&mut self, kind: Kind, arena: &mut A) {
        if self.bundles.values().filter(|bundle| bundle.kind == kind).count() >= BUNDLES {
            return;
        }
        let most = self.plan.piece_bytes / BLOCK;
        let (mut entries, mut left) = (Vec::new(), self.most_of_bundle());
        while entries.len() < MOST_ENTRIES && left > 0 {
            let chosen = match kind {
                Kind::Undo => self.undo.choose(most.min(left)),
                Kind::Redo => self.fast.choose(most.min(left)),
            };
            let Some(blocks) = chosen else { break };
            let Some(buf) = arena.alloc(pool(), ((blocks.end - blocks.start) * BLOCK) as u32) else {
                match kind {
                    Kind::Undo => self.undo.put_back(blocks),
                    Kind::Redo => self.fast.put_back(&blocks),
                }
                break;
            };
            left -= blocks.end - blocks.start;
            entries.push(Piece { blocks, buf, is_lost: false });
        }
        if entries.is_empty() {
            return;
        }
        let (bundle, device) = (self.number(), if kind == Kind::Undo { SLOW } else { FAST });
        for (entry, Piece { blocks, buf, .. }) in entries.iter().enumerate() {
            let (offset, buf) = (blocks.start * BLOCK, *buf);
            self.ask(Own::Read { bundle, entry }, |token| Action::Read {
                device,
                offset,
                buf,
                token,
                class: Class::Background,
            });
        }
        let (reads, freeze) = (entries.len(), self.undo.freeze());
        self.bundles.insert(bundle, Bundle { kind, freeze, entries, reads, group: None });
    }

    pub(crate) fn entry_read<A: Arena>(
        &mut self,
        id: u64,
        entry: usize,
        result: Result<(), DeviceError>,
        arena: &mut A,
    ) {
        let Some(bundle) = self.bundles.get_mut(&id) else { return };
        bundle.reads -= 1;
        let is_undo = bundle.kind == Kind::Undo;
        let piece = &mut bundle.entries[entry];
        let (blocks, buf) = (piece.blocks.clone(), piece.buf);
        piece.is_lost = result.is_err() && !(is_undo && planted(Bug::UnkeptIsKept));
        if piece.is_lost {
            arena.free(buf);
        }
        let counts = self.bundles.get(&id).is_some_and(|bundle| self.counts(bundle));
        if !is_undo && counts {
            match result {
                Ok(()) => self.fast.read(&blocks),
                Err(_) => self.fast.cannot_read(&blocks),
            }
        }
    }

    /// All of a bundle is read: it goes to the ring, if it still counts and there is room.
    fn write_group<A: Arena>(&mut self, id: u64, arena: &mut A) {
        let Some(bundle) = self.bundles.get(&id) else { return };
        if !self.counts(bundle) {
            self.forget_bundle(id, arena);
            return;
        }
        let (bytes, is_redo) = (bundle.bytes(), bundle.kind == Kind::Redo);
        if is_redo && !self.fast.epoch_is_open() {
            return;
        }
        let kind = bundle.kind;
        if !self.ring.has_room(bytes, self.spare(kind)) {
            self.ring_is_full(kind);
            return;
        }
        let Some(first) = arena.alloc(Pool::CopyMeta, BLOCK_BYTES) else { return };
        let Some(bundle) = self.bundles.get_mut(&id) else { return };
        let (seq, offset) = self.ring.begin(bytes);
        bundle.group = Some((seq, offset, first));
        let entry = |piece: &Piece| Entry {
            blocks: piece.blocks.clone(),
            sums: (!piece.is_lost).then(|| sums(piece.buf, arena)),
        };
        let entries: Vec<Entry> = match bundle.kind {
            // Of the fast device, the header says what is lost.
            Kind::Redo => bundle.entries.iter().filter(|piece| !piece.is_lost).map(entry).collect(),
            Kind::Undo => bundle.entries.iter().map(entry).collect(),
        };
        let group = Group {
            volume: self.plan.volume,
            seq,
            session: self.session,
            ring_id: self.ring_id,
            kind: bundle.kind,
            freeze: bundle.freeze,
            durable: self.ring.claims(),
            entries,
        };
        group.encode(arena.bytes_mut(first));
        self.ring_sums.note_group(&group, offset);
        let held = bundle.entries.iter().filter(|piece| !piece.is_lost).map(|piece| piece.buf);
        let bufs: BufList = std::iter::once(first).chain(held).collect();
        self.ask(Own::Group { bundle: id }, |token| Action::Write {
            device: SLOW,
            offset,
            bufs,
            fua: false,
            token,
            class: Class::Background,
        });
    }

    pub(crate) fn group_written<A: Arena>(
        &mut self,
        id: u64,
        result: Result<(), DeviceError>,
        arena: &mut A,
    ) {
        let counts = self.bundles.get(&id).is_some_and(|bundle| self.counts(bundle));
        let Some(bundle) = self.forget_bundle(id, arena) else { return };
        let Some((seq, offset, _)) = bundle.group else { return };
        if let Err(error) = result {
            self.give_up(format!("the slow device: {error}"));
            return;
        }
        self.ring.written(seq);
        if !counts {
            return;
        }
        let mut at = offset + BLOCK;
        let mut kept = Vec::new();
        for piece in &bundle.entries {
            match bundle.kind {
                Kind::Undo => kept.push(piece.blocks.clone()),
                Kind::Redo if !piece.is_lost => {
                    self.copied.insert(piece.blocks.clone(), Held::At(at));
                }
                Kind::Redo => {}
            }
            at += if piece.is_lost { 0 } else { u64::from(piece.buf.len) };
        }
        if bundle.kind == Kind::Undo {
            self.undo.written(seq, bundle.freeze, kept);
        }
    }

    /// Gives a bundle's memory back.
    fn forget_bundle<A: Arena>(&mut self, id: u64, arena: &mut A) -> Option<Bundle> {
        let bundle = self.bundles.remove(&id)?;
        bundle.entries.iter().filter(|piece| !piece.is_lost).for_each(|piece| arena.free(piece.buf));
        bundle.group.iter().for_each(|(_, _, first)| arena.free(*first));
        Some(bundle)
    }
}
