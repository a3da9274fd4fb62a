//! Every parser of bytes from a device, fed with damaged bytes: none panics, whatever it is given.
//! The seal is made whole again after the damage, so that what lies behind it is reached.

use bimetal_engine::format::codec::Get;
use bimetal_engine::format::geometry::Geometry;
use bimetal_engine::format::header::CheckpointHeader;
use bimetal_engine::format::log::{GroupHeader, HomeRecord, Index, Record, SegmentHeader};
use bimetal_engine::format::page::{self, PageKind};
use bimetal_engine::format::superblock::{OpenState, Superblock};
use bimetal_engine::mask::BlockMask;
use bimetal_engine::options::{CreateOptions, DeviceInfo};
use bimetal_engine::units::*;

const VOLUME: [u8; 16] = [7; 16];
const ROUNDS: u32 = 4000;
const SEED: u64 = 0x5eed_0001;

/// A small generator (SplitMix64), so that a failure comes again.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// Damages some bytes behind the seal, or the length in it, and makes the checksum right again.
fn damage(block: &mut [u8], rng: &mut Rng) {
    let len = u32::from_le_bytes(block[12..16].try_into().unwrap()) as usize;
    for _ in 0..1 + rng.below(8) {
        let at = 16 + rng.below(len.max(1)).min(block.len() - 17);
        block[at] = if rng.below(2) == 0 { rng.next() as u8 } else { 0xff };
    }
    let len = if rng.below(4) == 0 { rng.below(block.len() - 16) } else { len };
    block[12..16].copy_from_slice(&(len as u32).to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&block[..8]), &block[12..16 + len]);
    block[8..12].copy_from_slice(&crc.to_le_bytes());
}

fn geometry() -> Geometry {
    let device = |size_bytes| DeviceInfo { name: "device".into(), size_bytes };
    let options = CreateOptions {
        volume_id: VOLUME,
        chunk_bytes: 128 << 10,
        landing_bytes: None,
        area_bytes: None,
        created_unix_s: 0,
    };
    Geometry::plan(&[device(64 << 20), device(256 << 20)], &options).unwrap()
}

fn records(rng: &mut Rng) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..1 + rng.below(6) {
        let block = Block(rng.next() % 1000);
        let summed = BlockMask::range(0, rng.below(32) as u32);
        let record = match rng.below(4) {
            0 => Record::Data { block, sums: vec![1; rng.below(40)] },
            1 => Record::Discard { block, count: rng.next() as u32 },
            2 => Record::Bad { block, was: LogPos(rng.next()) },
            _ => Record::Home(Box::new(HomeRecord {
                chunk: Chunk(3),
                home: Some(Home { tier: SLOW, slot: Slot(5) }),
                ends: LogPos(9),
                valid: BlockMask::range(0, 32),
                summed,
                sums: vec![2; summed.count() as usize],
            })),
        };
        record.encode(&mut out, 1);
    }
    out
}

fn read_records(mut get: Get<'_>) {
    while !get.0.is_empty() && Record::decode(&mut get, 1).is_some() {}
}

#[test]
fn no_damaged_metadata_block_makes_a_parser_panic() {
    println!("seed {SEED}");
    let mut rng = Rng(SEED);
    let geometry = geometry();
    let superblock = Superblock {
        volume: VOLUME,
        devices: [VOLUME, VOLUME],
        tier: FAST,
        generation: Generation(3),
        state: OpenState::Open,
        created_unix_s: 1,
        geometry: geometry.clone(),
    };
    for _ in 0..ROUNDS {
        let mut block = vec![0; 4096];
        superblock.encode(&mut block, 0);
        damage(&mut block, &mut rng);
        let _ = Superblock::decode(&block, 0);

        let mut payload = Vec::new();
        let home = Some(Home { tier: FAST, slot: Slot(1) });
        (0..40).for_each(|_| page::put_map_entry(&mut payload, home, 1, &BlockMask::range(0, 3)));
        page::encode(&mut block, PageKind::Map, &VOLUME, 4, 2, &payload);
        damage(&mut block, &mut rng);
        if let Some(payload) = page::decode(&block, PageKind::Map, &VOLUME, 4, 0..=u64::MAX) {
            let mut get = Get(payload);
            while page::get_map_entry(&mut get, 1).is_some() {}
        }

        let header = SegmentHeader {
            area: Area(9),
            ordinal: 2,
            epoch: Generation(1),
            first: Seq(5),
            durable: Seq(4),
            successor: Area(10),
            checkpoint: 2,
        };
        header.encode(&mut block, &VOLUME);
        damage(&mut block, &mut rng);
        let _ = SegmentHeader::decode(&block, &VOLUME, Area(9));
        let _ = CheckpointHeader::decode(&block, &VOLUME, 0);
    }
}

#[test]
fn no_damaged_log_group_or_index_makes_a_parser_panic() {
    println!("seed {SEED}");
    let mut rng = Rng(SEED);
    for _ in 0..ROUNDS {
        let records = records(&mut rng);
        let header = GroupHeader {
            attempt: 0,
            ordinal: 2,
            epoch: Generation(1),
            seq: Seq(5),
            durable: Seq(4),
            checkpoint: 2,
            offset: 1,
            payload_blocks: rng.below(5) as u32,
        };
        let mut blocks = vec![0; 4 * 4096];
        header.encode(&mut blocks, &VOLUME, &records);
        damage(&mut blocks, &mut rng);
        if let Some((_, records, _)) = GroupHeader::decode(&blocks, &VOLUME) {
            read_records(Get(records));
        }

        let mut index = Index::default();
        index.add(Seq(5), Generation(1), 1, 1, &records);
        index.add(Seq(6), Generation(1), 4, 1, &records);
        index.encode(&mut blocks, &VOLUME, 2);
        damage(&mut blocks[..3 * 4096], &mut rng);
        if let Some(index) = Index::decode(&blocks, &VOLUME, 2) {
            index.groups().flatten().for_each(|(_, _, _, records)| read_records(Get(records)));
        }
        damage(&mut blocks[3 * 4096..], &mut rng);
        let _ = Index::decode_trailer(&blocks[3 * 4096..], &VOLUME, 2);
    }
}
