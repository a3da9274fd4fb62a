//! The log: segment headers, groups of records, and the index that ends a sealed segment.

use super::Id;
use super::codec::{Get, Put, SEAL_BYTES, claimed_blocks, seal, sealed_blocks, unseal};
use super::page::{pack_home, unpack_home};
use crate::base::mask::BlockMask;
use crate::base::sectors::{Remains, Sectors};
use bimetal_units::*;
use serde::{Deserialize, Serialize};

const SEGMENT_MAGIC: &[u8; 8] = b"BMTLsegm";
const GROUP_MAGIC: &[u8; 8] = b"BMTLgrup";
const INDEX_MAGIC: &[u8; 8] = b"BMTLindx";

/// The first block of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    /// Where it lies.
    pub area: Area,
    /// Its place in the chain.
    pub ordinal: u64,
    /// The opening that began it.
    pub epoch: Generation,
    /// Its first group; the segment before it ends with the group before this one.
    pub first: Seq,
    /// Known durable when it was begun.
    pub durable: Seq,
    /// Where the chain goes on.
    pub successor: Area,
    /// The newest checkpoint that was durable when it was begun.
    pub checkpoint: u64,
}

impl SegmentHeader {
    /// Writes it into a block.
    pub fn encode(&self, block: &mut [u8], volume: &Id) {
        let mut body = Vec::with_capacity(64);
        let mut put = Put(&mut body);
        put.bytes(volume).u64(self.ordinal).u64(self.epoch.0).u64(self.first.0).u64(self.durable.0);
        put.u32(self.area.0).u32(self.successor.0).u64(self.checkpoint);
        seal(block, SEGMENT_MAGIC, &body);
    }

    /// Reads the first block of `area`.
    pub fn decode(block: &[u8], volume: &Id, area: Area) -> Option<SegmentHeader> {
        let mut get = Get(unseal(block, SEGMENT_MAGIC)?);
        if get.id()? != *volume {
            return None;
        }
        let (ordinal, epoch) = (get.count()?, Generation(get.count()?));
        let (first, durable) = (Seq(get.count()?), Seq(get.count()?));
        let (own, successor, checkpoint) = (Area(get.u32()?), Area(get.u32()?), get.count()?);
        let header = SegmentHeader { area, ordinal, epoch, first, durable, successor, checkpoint };
        (own == area).then_some(header)
    }
}

/// What a group says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupHeader {
    /// The segment it belongs to.
    pub ordinal: u64,
    /// The opening that wrote it.
    pub epoch: Generation,
    /// Appends that failed in this opening before it was written. Where a failed group is written over,
    /// what followed it must not be taken for what follows now.
    pub attempt: u32,
    /// Its number.
    pub seq: Seq,
    /// Every group up to here was durable when this one was written.
    pub durable: Seq,
    /// The newest checkpoint that was durable when this one was written.
    pub checkpoint: u64,
    /// Its first block in the area.
    pub offset: u32,
    /// Blocks of payload behind the header.
    pub payload_blocks: u32,
    /// Where the chain goes on behind its segment, as the segment's header says as well; none in logs from before this was said.
    pub successor: Option<Area>,
}

const GROUP_HEAD_BYTES: usize = ID_BYTES + 8 * 5 + 16;
const ID_BYTES: usize = super::ID_BYTES;

/// Blocks of a group's header when its records take this many bytes.
pub fn group_header_blocks(record_bytes: usize) -> u32 {
    sealed_blocks(GROUP_HEAD_BYTES + record_bytes)
}

impl GroupHeader {
    /// Writes header and records into `blocks`.
    pub fn encode(&self, blocks: &mut [u8], volume: &Id, records: &[u8]) {
        let mut body = Vec::with_capacity(GROUP_HEAD_BYTES + records.len());
        let mut put = Put(&mut body);
        put.bytes(volume).u64(self.ordinal).u64(self.epoch.0).u64(self.seq.0).u64(self.durable.0);
        put.u64(self.checkpoint)
            .u32(self.offset)
            .u32(self.payload_blocks)
            .u32(self.attempt)
            .u32(self.successor.map_or(0, |area| area.0 + 1))
            .bytes(records);
        seal(blocks, GROUP_MAGIC, &body);
    }

    /// Blocks that a header at `bytes` would take, valid or not; one where none seems to begin.
    pub fn claimed_blocks(bytes: &[u8]) -> u32 {
        claimed_blocks(bytes, GROUP_MAGIC).unwrap_or(1)
    }

    /// Reads the group at `bytes`; gives the header, its records, and its length in blocks, header included.
    pub fn decode<'a>(bytes: &'a [u8], volume: &Id) -> Option<(GroupHeader, &'a [u8], u32)> {
        let body = unseal(bytes, GROUP_MAGIC)?;
        let mut get = Get(body);
        if get.id()? != *volume {
            return None;
        }
        let mut header = GroupHeader {
            attempt: 0,
            ordinal: get.count()?,
            epoch: Generation(get.count()?),
            seq: Seq(get.count()?),
            durable: Seq(get.count()?),
            checkpoint: get.count()?,
            offset: get.u32()?,
            payload_blocks: get.u32()?,
            successor: None,
        };
        header.attempt = get.u32()?;
        header.successor = get.u32()?.checked_sub(1).map(Area);
        let blocks = sealed_blocks(body.len());
        Some((header, get.0, blocks.checked_add(header.payload_blocks)?))
    }
}

/// A record that gives a chunk its home.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HomeRecord {
    /// The chunk.
    pub chunk: Chunk,
    /// Its home from now on; `None` when it has no block left.
    pub home: Option<Home>,
    /// Landed blocks of the chunk before this position are ended: the home holds them.
    pub ends: LogPos,
    /// All blocks that the home holds.
    pub valid: BlockMask,
    /// Blocks whose checksums follow (the home is on the slow tier).
    pub summed: BlockMask,
    /// Their checksums, ascending by block.
    pub sums: Vec<u32>,
}

impl HomeRecord {
    /// The blocks whose checksums follow and that are to keep them, and these.
    pub fn sums_where(&self, keeps: impl Fn(u32) -> bool) -> (BlockMask, Vec<u32>) {
        let mut blocks = BlockMask::EMPTY;
        let kept = self.summed.iter().zip(&self.sums).filter(|(block, _)| keeps(*block));
        let sums = kept.inspect(|(block, _)| blocks.set(*block)).map(|(_, sum)| *sum).collect();
        (blocks, sums)
    }
}

/// What the log says happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// Neighbouring blocks landed; their payload follows the header, in the order of the records.
    Data {
        /// The first block.
        block: Block,
        /// Their checksums.
        sums: Vec<u32>,
        /// The sectors that landed: of a block of which not all did, the others are as before. Several blocks are whole.
        sectors: Sectors,
        /// The others are not as before, but lost.
        lost: bool,
    },
    /// A part of a block landed in the sectors that a part of another block left in its block of payload.
    Shared {
        /// The block.
        block: Block,
        /// The sectors that landed.
        sectors: Sectors,
        /// So many blocks before where the next record's payload begins.
        back: u16,
    },
    /// The newest copy of a landed block could not be read: the block is an error until written again.
    /// One block of payload follows like data, which only gives the loss a place in the log.
    Bad {
        /// The block.
        block: Block,
        /// The copy that is lost: the record says nothing of a newer one.
        was: LogPos,
    },
    /// Blocks of a slow home are about to be overwritten with what landed of them and the rest of each as it is.
    Merging {
        /// The chunk.
        chunk: Chunk,
        /// Of each block, by its place in the chunk: what will still be as it was if a crash leaves the block torn.
        rests: Vec<(u32, Remains)>,
    },
    /// A chunk has a home.
    Home(Box<HomeRecord>),
    /// Blocks read zeros.
    Discard {
        /// The first block.
        block: Block,
        /// How many, within one chunk.
        count: u32,
    },
}

const DATA: u8 = 1;
const HOME: u8 = 2;
const DISCARD: u8 = 3;
const BAD: u8 = 4;
const MERGING: u8 = 5;
const SHARED: u8 = 6;
/// A flag of a data record: the sectors that did not land are lost.
const REST_IS_LOST: u16 = 1;
const RECORD_HEAD_BYTES: usize = 16;

/// Bytes of a data record for `count` blocks.
pub fn data_record_bytes(count: u32) -> usize {
    RECORD_HEAD_BYTES + 4 * count as usize
}

/// Where in a data record the checksum of its first block is.
const SUM_AT: usize = RECORD_HEAD_BYTES;

/// Bytes of a record of a part that shares another one's block.
pub const SHARED_RECORD_BYTES: usize = RECORD_HEAD_BYTES;

/// Bytes of a home record.
pub fn home_record_bytes(mask_words: usize, sums: u32) -> usize {
    RECORD_HEAD_BYTES + 16 + 8 * mask_words + 4 * sums as usize
}

/// Bytes of a record of loss.
pub const BAD_RECORD_BYTES: usize = RECORD_HEAD_BYTES + 8;

/// Bytes of a record of so many blocks that are about to be overwritten.
pub fn merging_record_bytes(blocks: u32) -> usize {
    RECORD_HEAD_BYTES + 8 * blocks as usize
}

/// Bytes of a discard record.
pub const DISCARD_RECORD_BYTES: usize = RECORD_HEAD_BYTES;

impl Record {
    /// Appends the record's bytes.
    pub fn encode(&self, out: &mut Vec<u8>, mask_words: usize) {
        match self {
            Record::Data { block, sums, sectors, lost } => put_data(out, *block, sums, *sectors, *lost),
            Record::Merging { chunk, rests } => {
                let mut put = Put(out);
                put.u8(MERGING).u8(0).u16(0).u32(rests.len() as u32).u64(u64::from(chunk.0));
                for (block, remains) in rests {
                    put.u16(*block as u16).u8(remains.landed.absent()).u8(0).u32(remains.sum);
                }
            }
            Record::Shared { block, sectors, back } => {
                Put(out).u8(SHARED).u8(sectors.absent()).u16(*back).u32(1).u64(block.0);
            }
            Record::Bad { block, was } => {
                Put(out).u8(BAD).u8(0).u16(0).u32(1).u64(block.0).u64(was.0);
            }
            Record::Discard { block, count } => {
                Put(out).u8(DISCARD).u8(0).u16(0).u32(*count).u64(block.0);
            }
            Record::Home(r) => {
                let mut put = Put(out);
                put.u8(HOME).u8(0).u16(0).u32(r.sums.len() as u32).u64(u64::from(r.chunk.0));
                put.u64(pack_home(r.home)).u64(r.ends.0);
                (0..mask_words).for_each(|i| {
                    put.u32(r.valid.word(i));
                });
                (0..mask_words).for_each(|i| {
                    put.u32(r.summed.word(i));
                });
                r.sums.iter().for_each(|s| {
                    put.u32(*s);
                });
            }
        }
    }

    /// Blocks of payload that belong to the record.
    pub fn payload_blocks(&self) -> u32 {
        match self {
            Record::Data { sums, .. } => sums.len() as u32,
            Record::Bad { .. } => 1,
            Record::Home(_) | Record::Discard { .. } | Record::Merging { .. } | Record::Shared { .. } => 0,
        }
    }

    /// Reads the next record; `None` when the bytes are not a record.
    pub fn decode(get: &mut Get<'_>, mask_words: usize) -> Option<Record> {
        // The third has flags of a data record, and the place of a shared part.
        let (kind, absent, back) = (get.u8()?, get.u8()?, get.u16()?);
        let (count, key) = (get.u32()?, get.u64()?);
        match kind {
            DATA => {
                let sectors = Sectors::from_absent(absent)?;
                let lost = back & REST_IS_LOST != 0;
                let data = Record::Data { block: Block(key), sums: words(get, count)?, sectors, lost };
                (sectors.is_all() && !lost || !sectors.is_all() && count == 1).then_some(data)
            }
            MERGING => {
                let chunk = Chunk(u32::try_from(key).ok()?);
                let rest = |_| {
                    let (block, absent, _, sum) = (get.u16()?, get.u8()?, get.u8()?, get.u32()?);
                    Some((u32::from(block), Remains { landed: Sectors::from_absent(absent)?, sum }))
                };
                (count <= MAX_BLOCKS_PER_CHUNK).then_some(())?;
                Some(Record::Merging { chunk, rests: (0..count).map(rest).collect::<Option<_>>()? })
            }
            SHARED => {
                let sectors = Sectors::from_absent(absent).filter(|sectors| !sectors.is_all())?;
                (count == 1).then_some(Record::Shared { block: Block(key), sectors, back })
            }
            BAD => Some(Record::Bad { block: Block(key), was: LogPos(get.u64()?) }),
            DISCARD => Some(Record::Discard { block: Block(key), count }),
            HOME => {
                let (home, ends) = (unpack_home(get.u64()?)?, LogPos(get.u64()?));
                let valid = BlockMask::from_words(words(get, mask_words as u32)?.into_iter());
                let summed = BlockMask::from_words(words(get, mask_words as u32)?.into_iter());
                let sums = words(get, count)?;
                let chunk = Chunk(u32::try_from(key).ok()?);
                (summed.count() == count).then_some(Record::Home(Box::new(HomeRecord {
                    chunk,
                    home,
                    ends,
                    valid,
                    summed,
                    sums,
                })))
            }
            _ => None,
        }
    }
}

/// Appends a data record without building one.
pub fn put_data(out: &mut Vec<u8>, block: Block, sums: &[u32], sectors: Sectors, lost: bool) {
    assert!(sectors.is_all() && !lost || !sectors.is_all() && sums.len() == 1, "several blocks are whole");
    let flags = if lost { REST_IS_LOST } else { 0 };
    let mut put = Put(out);
    put.u8(DATA).u8(sectors.absent()).u16(flags).u32(sums.len() as u32).u64(block.0);
    sums.iter().for_each(|s| {
        put.u32(*s);
    });
}

/// The block of payload of a data record of one block, which begins at `at`, has become another one.
pub fn correct_sum(records: &mut [u8], at: usize, sum: u32) {
    records[at + SUM_AT..at + SUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
}

fn words(get: &mut Get<'_>, count: u32) -> Option<Vec<u32>> {
    let bytes = get.bytes(4 * count as usize)?;
    Some(bytes.chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]])).collect())
}

/// The end of a sealed segment: all its records again, so that opening need not walk the groups.
/// Written only when every group of the segment is durable.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Index {
    /// The segment's last group.
    pub last: Seq,
    /// The newest epoch in the segment.
    pub epoch: Generation,
    /// For each group: sequence (8), offset (4), header blocks (4), record bytes (4), reserved (4), then its records.
    pub entries: Vec<u8>,
}

const INDEX_HEAD_BYTES: usize = ID_BYTES + 24;
/// Bytes of an index entry before its records.
pub const INDEX_ENTRY_BYTES: usize = 24;

impl Index {
    /// Blocks that an index with this many bytes of entries takes, its trailer included.
    pub fn blocks(entry_bytes: usize) -> u32 {
        sealed_blocks(INDEX_HEAD_BYTES + entry_bytes) + 1
    }

    /// Adds a group.
    pub fn add(&mut self, seq: Seq, epoch: Generation, offset: u32, header_blocks: u32, records: &[u8]) {
        (self.last, self.epoch) = (seq, epoch);
        let mut put = Put(&mut self.entries);
        put.u64(seq.0).u32(offset).u32(header_blocks).u32(records.len() as u32).u32(0).bytes(records);
    }

    /// Writes the index into `blocks`: its body first, then a trailer in the last block that says how long it is.
    pub fn encode(&self, blocks: &mut [u8], volume: &Id, ordinal: u64) {
        let (body_blocks, trailer) = blocks.split_at_mut(blocks.len() - BLOCK_BYTES as usize);
        let mut body = Vec::with_capacity(INDEX_HEAD_BYTES + self.entries.len());
        Put(&mut body).bytes(volume).u64(ordinal).u64(self.last.0).u64(self.epoch.0).bytes(&self.entries);
        seal(body_blocks, INDEX_MAGIC, &body);
        let mut body = Vec::with_capacity(INDEX_HEAD_BYTES);
        Put(&mut body).bytes(volume).u64(ordinal).u64(sealed_bytes(self.entries.len()) as u64);
        seal(trailer, INDEX_MAGIC, &body);
    }

    /// How many blocks before the trailer the body takes, if this block is a trailer of that segment.
    pub fn decode_trailer(block: &[u8], volume: &Id, ordinal: u64) -> Option<u32> {
        let mut get = Get(unseal(block, INDEX_MAGIC)?);
        let ours = get.id()? == *volume && get.u64()? == ordinal;
        let bytes = get.u64()?;
        (ours && get.0.is_empty()).then(|| u32::try_from(bytes.div_ceil(u64::from(BLOCK_BYTES))).ok())?
    }

    /// Reads the body.
    pub fn decode(blocks: &[u8], volume: &Id, ordinal: u64) -> Option<Index> {
        let mut get = Get(unseal(blocks, INDEX_MAGIC)?);
        if get.id()? != *volume || get.u64()? != ordinal {
            return None;
        }
        let (last, epoch) = (Seq(get.count()?), Generation(get.count()?));
        Some(Index { last, epoch, entries: get.0.to_vec() })
    }

    /// Calls `f` with each group: sequence, offset, header blocks, records. `None` when the entries are malformed.
    pub fn groups<'a>(&'a self) -> impl Iterator<Item = Option<(Seq, u32, u32, &'a [u8])>> + 'a {
        let mut get = Get(&self.entries);
        std::iter::from_fn(move || {
            if get.0.is_empty() {
                return None;
            }
            let entry = (|| {
                let (seq, offset, header) = (Seq(get.u64()?), get.u32()?, get.u32()?);
                let len = get.u32()? as usize;
                get.u32()?;
                Some((seq, offset, header, get.bytes(len)?))
            })();
            if entry.is_none() {
                get.0 = &[];
            }
            Some(entry)
        })
    }
}

fn sealed_bytes(entry_bytes: usize) -> usize {
    SEAL_BYTES + INDEX_HEAD_BYTES + entry_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<Record> {
        let home = Some(Home { tier: SLOW, slot: Slot(7) });
        let summed = BlockMask::range(3, 2);
        let valid = BlockMask::range(0, 9);
        vec![
            Record::Data { block: Block(77), sums: vec![1, 2, 3], sectors: Sectors::ALL, lost: false },
            Record::Data {
                block: Block(78),
                sums: vec![4],
                sectors: Sectors::touching(512, 1536),
                lost: true,
            },
            Record::Merging {
                chunk: Chunk(2),
                rests: vec![(3, Remains { landed: Sectors::touching(0, 512), sum: 7 })],
            },
            Record::Discard { block: Block(5), count: 4 },
            Record::Home(Box::new(HomeRecord {
                chunk: Chunk(9),
                home,
                ends: LogPos(44),
                valid,
                summed,
                sums: vec![8, 9],
            })),
            Record::Bad { block: Block(1), was: LogPos(3) },
            Record::Shared { block: Block(79), sectors: Sectors::touching(0, 512), back: 2 },
        ]
    }

    #[test]
    fn records_come_back_and_every_cut_is_refused() {
        let mut bytes = Vec::new();
        records().iter().for_each(|r| r.encode(&mut bytes, 1));
        let read = |bytes: &[u8]| {
            let mut get = Get(bytes);
            let mut out = Vec::new();
            while !get.0.is_empty() {
                out.push(Record::decode(&mut get, 1)?);
            }
            Some(out)
        };
        assert_eq!(read(&bytes), Some(records()));
        let whole = records().len();
        for cut in 0..bytes.len() {
            assert!(read(&bytes[..cut]).is_none_or(|r| r.len() < whole), "cut at {cut}");
        }
    }

    #[test]
    fn an_index_is_found_from_its_trailer() {
        let mut index = Index::default();
        index.add(Seq(4), Generation(2), 1, 1, b"records of group four");
        index.add(Seq(5), Generation(2), 9, 2, b"");
        let n = Index::blocks(index.entries.len()) as usize;
        let mut blocks = vec![0; n * 4096];
        index.encode(&mut blocks, &[7; 16], 3);
        let body = Index::decode_trailer(&blocks[(n - 1) * 4096..], &[7; 16], 3);
        assert_eq!(body, Some(n as u32 - 1));
        assert_eq!(Index::decode(&blocks, &[7; 16], 3), Some(index));
        assert_eq!(Index::decode(&blocks, &[7; 16], 4), None);
    }
}
