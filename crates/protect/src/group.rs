//! Groups of the ring: a block that says what is behind it, and the bytes.

use bimetal_engine::format::Id;
use bimetal_engine::format::codec::{Get, Put, seal, unseal};
use bimetal_units::BLOCK_BYTES;
use std::ops::Range;

const MAGIC: &[u8; 8] = b"BMTLrin3";
/// Without what is durable of the ring.
const OLD_MAGIC: &[u8; 8] = b"BMTLrin2";
const BLOCK: u64 = BLOCK_BYTES as u64;
/// Ranges of a group at most; one header block has room for them.
pub(crate) const MOST_ENTRIES: usize = 64;

/// What a group holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// What blocks of the slow device held before they were written, since a freeze.
    Undo,
    /// What blocks of the fast device held at a freeze.
    Redo,
}

/// A range of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    /// Blocks of the device.
    pub(crate) blocks: Range<u64>,
    /// The checksum of each; none where they could not be read, and are not there.
    pub(crate) sums: Option<Vec<u32>>,
}

impl Entry {
    fn bytes(&self) -> u64 {
        if self.sums.is_some() { (self.blocks.end - self.blocks.start) * BLOCK } else { 0 }
    }
}

/// The first block of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Group {
    pub(crate) volume: Id,
    /// Of all groups between one base and the next.
    pub(crate) ring_id: u64,
    /// Groups so far.
    pub(crate) seq: u64,
    /// The opening that wrote it.
    pub(crate) session: u64,
    pub(crate) kind: Kind,
    /// The newest freeze when it was read.
    pub(crate) freeze: u64,
    /// Groups below this number were durable then.
    pub(crate) durable: u64,
    pub(crate) entries: Vec<Entry>,
}

impl Group {
    /// Its length, with what is behind the first block.
    pub(crate) fn bytes(&self) -> u64 {
        BLOCK + self.entries.iter().map(Entry::bytes).sum::<u64>()
    }

    /// Each range with where its bytes are, from the first byte of the group on.
    pub(crate) fn places(&self) -> impl Iterator<Item = (&Entry, u64)> {
        self.entries.iter().scan(BLOCK, |at, entry| {
            let place = *at;
            *at += entry.bytes();
            Some((entry, place))
        })
    }

    pub(crate) fn encode(&self, block: &mut [u8]) {
        let mut body = Vec::with_capacity(BLOCK_BYTES as usize);
        let mut put = Put(&mut body);
        put.bytes(&self.volume).u64(self.ring_id).u64(self.seq).u64(self.session).u64(self.freeze);
        put.u8(u8::from(self.kind == Kind::Redo)).u32(self.entries.len() as u32);
        for Entry { blocks, sums } in &self.entries {
            put.u64(blocks.start).u32((blocks.end - blocks.start) as u32).u8(u8::from(sums.is_some()));
            for sum in sums.iter().flatten() {
                put.u32(*sum);
            }
        }
        Put(&mut body).u64(self.durable);
        seal(block, MAGIC, &body);
    }

    /// None where it holds none that can be.
    pub(crate) fn decode(block: &[u8]) -> Option<Group> {
        let (old, new) = (unseal(block, OLD_MAGIC), unseal(block, MAGIC));
        let mut get = Get(new.or(old)?);
        let (volume, ring_id, seq) = (get.id()?, get.u64()?, get.u64()?);
        let (session, freeze) = (get.count()?, get.u64()?);
        let kind = if get.u8()? == 1 { Kind::Redo } else { Kind::Undo };
        let count = get.u32()? as usize;
        if count > MOST_ENTRIES {
            return None;
        }
        let entry = |get: &mut Get<'_>| {
            let (start, blocks) = (get.count()?, u64::from(get.u32()?));
            let sums = match get.u8()? {
                0 => None,
                _ => Some((0..blocks).map(|_| get.u32()).collect::<Option<Vec<_>>>()?),
            };
            Some(Entry { blocks: start..start + blocks, sums })
        };
        let entries = (0..count).map(|_| entry(&mut get)).collect::<Option<Vec<_>>>()?;
        let durable = if new.is_some() { get.u64()? } else { 0 };
        Some(Group { volume, ring_id, seq, session, kind, freeze, durable, entries })
    }
}
