//! Every parser of bytes from a device, fed with damaged bytes: none panics, whatever it is given.
//! The seal is made whole again after the damage, so that what lies behind it is reached.

mod formats;

use bimetal_engine::format::codec::Get;
use bimetal_engine::format::geometry::Geometry;
use bimetal_engine::format::header::CheckpointHeader;
use bimetal_engine::format::hints::{ChunkHeat, CopyHint, Hints, HintsAt};
use bimetal_engine::format::log::{GroupHeader, HomeRecord, Index, Record, SegmentHeader};
use bimetal_engine::format::marks::{BLANK, Mark, MarkHeader, get_marks, put_mark};
use bimetal_engine::format::page::{self, PageKind, PageRef};
use bimetal_engine::format::pins::{MAX_PIN_RANGES, PinRange, get_pins, put_pins};
use bimetal_engine::format::superblock::{Found, LeftBehind, OpenState, Superblock};
use bimetal_engine::mask::BlockMask;
use bimetal_engine::options::{CreateOptions, DeviceInfo, Marking};
use bimetal_engine::sectors::{Remains, Sectors};
use bimetal_units::*;
use formats::{HINTS_OF, VOLUME, input};
use std::path::Path;

const ROUNDS: u32 = 4000;
const SEED: u64 = 0x5eed_0001;

/// The seed: `PARSERS_SEED`, or always the same.
fn seed() -> u64 {
    let seed = std::env::var("PARSERS_SEED").ok().map_or(SEED, |s| s.parse().expect("a number"));
    println!("seed {seed}");
    seed
}

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
    Geometry::plan(&[device(64 << 20), device(256 << 20)], &CreateOptions::new(VOLUME)).unwrap()
}

fn records(rng: &mut Rng) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..1 + rng.below(6) {
        let block = Block(rng.next() % 1000);
        let summed = BlockMask::range(0, rng.below(32) as u32);
        let record = match rng.below(7) {
            0 => Record::Data { block, sums: vec![1; rng.below(40)], sectors: Sectors::ALL, lost: false },
            4 => Record::Data { block, sums: vec![1], sectors: Sectors::touching(512, 4096), lost: true },
            5 => {
                let remains = Remains { landed: Sectors::touching(0, 1024), sum: 3 };
                Record::Merging {
                    chunk: Chunk(3),
                    rests: (0..rng.below(40) as u32).map(|b| (b, remains)).collect(),
                }
            }
            1 => Record::Discard { block, count: rng.next() as u32 },
            2 => Record::Bad { block, was: LogPos(rng.next()) },
            6 => Record::Shared { block, sectors: Sectors::touching(0, 512), back: rng.next() as u16 },
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
    let mut rng = Rng(seed());
    let superblock = superblock();
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
        if let Some((payload, _)) = page::decode(&block, PageKind::Map, &VOLUME, 4) {
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
    let mut rng = Rng(seed());
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
            successor: (rng.below(2) > 0).then_some(Area(3)),
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

fn superblock() -> Superblock {
    Superblock {
        volume: VOLUME,
        devices: [VOLUME, VOLUME],
        tier: FAST,
        generation: Generation(3),
        state: OpenState::Clean,
        created_unix_s: 1,
        geometry: geometry(),
        left_behind: Some(LeftBehind { generation: Generation(1), raised: Generation(2) }),
        hints: Some(HintsAt { slot: Slot(3), blocks: 2 }),
    }
}

/// The longest list there can be.
fn pins() -> Vec<PinRange> {
    let range = |n: u32| PinRange { first: Chunk(3 * n), count: 1 + n % 3, tier: Tier((n % 2) as u8) };
    (0..MAX_PIN_RANGES as u32).map(range).collect()
}

#[test]
fn a_list_of_pins_is_taken_only_if_it_makes_sense() {
    let (mut rng, mut taken, mut payload) = (Rng(seed()), 0, Vec::new());
    put_pins(&mut payload, &pins());
    assert_eq!(get_pins(&payload, 766), Some(pins()));
    assert_eq!(get_pins(&payload, 765), None, "beyond the volume");
    for cut in 0..payload.len() {
        assert_eq!(get_pins(&payload[..cut], 768), None, "cut at {cut}");
    }
    for _ in 0..ROUNDS {
        let mut bytes = payload.clone();
        let at = rng.below(bytes.len());
        bytes[at] = rng.next() as u8;
        let Some(list) = get_pins(&bytes, 768) else { continue };
        taken += 1;
        let mut behind = 0;
        for range in list {
            assert!(u64::from(range.first.0) >= behind && range.count > 0 && range.tier <= SLOW);
            behind = range.end();
        }
        assert!(behind <= 768);
    }
    assert!(taken < ROUNDS);
}

/// One of each structure, as the engine writes it: what the fuzzer begins with.
fn metadata_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let mut block = vec![0; 4096];
    superblock().encode(&mut block, 0);
    let mut seeds = vec![("superblock", input(0, &block))];
    let header = CheckpointHeader {
        number: 4,
        generation: Generation(3),
        applied: Seq(8),
        durable: Seq(9),
        tail_area: Area(2),
        tail_ordinal: 5,
        tail_first: Seq(7),
        list_entries: 10,
        root_blocks: 2,
        root_sum: 0x1234_5678,
        fast_bytes: 1 << 30,
    };
    header.encode(&mut block, &VOLUME);
    seeds.push(("checkpoint_header", input(1, &block)));
    let (ordinal, epoch, first, durable) = (2, Generation(1), Seq(5), Seq(4));
    let (area, successor, checkpoint) = (Area(9), Area(10), 2);
    let header = SegmentHeader { area, ordinal, epoch, first, durable, successor, checkpoint };
    header.encode(&mut block, &VOLUME);
    seeds.push(("segment_header", input(2, &block)));
    let mut payload = Vec::new();
    let home = Some(Home { tier: SLOW, slot: Slot(1) });
    (0..4).for_each(|_| page::put_map_entry(&mut payload, home, 1, &BlockMask::range(0, 3)));
    for (name, kind) in [("map_page", PageKind::Map), ("sum_page", PageKind::Sums), ("root", PageKind::Root)]
    {
        page::encode(&mut block, kind, &VOLUME, 4, 2, &payload);
        seeds.push((name, input(3, &block)));
    }
    payload.clear();
    (0..9)
        .for_each(|n| page::put_ref(&mut payload, PageRef { place: n % 3, sum: 0x0101_0101 * u32::from(n) }));
    page::encode(&mut block, PageKind::Directory, &VOLUME, 4, 2, &payload);
    seeds.push(("directory", input(3, &block)));
    payload.clear();
    put_pins(&mut payload, &pins());
    page::encode(&mut block, PageKind::Pins, &VOLUME, 4, 2, &payload);
    seeds.push(("pins", input(3, &block)));
    let heat = |n: u8| ChunkHeat { reads: n, writes: n / 2, age: (n != 5).then_some(u16::from(n) * 300) };
    Hints::Heats(Chunk(64), (0..64).map(heat).collect()).encode(&mut block, &HINTS_OF, 4, Some(Slot(7)));
    seeds.push(("heat_hints", input(4, &block)));
    let copy =
        |n: u32| CopyHint { cell: n, chunk: Chunk(n / 32), part: n as u16 % 32, flags: 6, main: n < 9 };
    Hints::Copies((0..64).map(copy).collect()).encode(&mut block, &HINTS_OF, 4, None);
    seeds.push(("copy_hints", input(4, &block)));
    seeds
}

fn log_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let records = records(&mut Rng(SEED));
    let (ordinal, epoch, seq, durable) = (2, Generation(1), Seq(5), Seq(4));
    let (attempt, checkpoint, offset, payload_blocks) = (0, 2, 1, 3);
    let successor = None;
    let header =
        GroupHeader { attempt, ordinal, epoch, seq, durable, checkpoint, offset, payload_blocks, successor };
    let mut blocks = vec![0; 4 * 4096];
    header.encode(&mut blocks, &VOLUME, &records);
    let mut seeds = vec![("group", input(0, &blocks))];
    let mut index = Index::default();
    index.add(Seq(5), Generation(1), 1, 1, &records);
    index.add(Seq(6), Generation(1), 4, 1, &records);
    index.encode(&mut blocks, &VOLUME, 2);
    seeds.push(("index", input(1, &blocks)));
    seeds.push(("trailer", input(2, &blocks[3 * 4096..])));
    seeds.push(("records", [&[3], &records[..]].concat()));
    seeds
}

/// What the fuzzer begins with is in files; `WRITE_CORPUS=1` writes them anew after a change of the format.
#[test]
fn the_fuzzers_seeds_are_what_the_engine_writes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    for (target, seeds) in [("metadata", metadata_seeds()), ("log", log_seeds())] {
        for (name, seed) in seeds {
            let file = corpus.join(target).join(name);
            if std::env::var_os("WRITE_CORPUS").is_some() {
                std::fs::write(&file, &seed).expect("it can be written");
            }
            assert_eq!(std::fs::read(&file).expect("a seed"), seed, "{}", file.display());
        }
    }
}

type Target = fn(&[u8]);

/// A short run of what the fuzzer does, everywhere and always.
#[test]
fn a_slice_of_fuzzing() {
    let mut rng = Rng(seed());
    let targets = [(formats::metadata as Target, metadata_seeds()), (formats::log, log_seeds())];
    for (target, seeds) in targets {
        for (_, seed) in &seeds {
            target(seed);
            for _ in 0..ROUNDS {
                let mut bytes = seed.clone();
                for _ in 0..1 + rng.below(4) {
                    let at = rng.below(bytes.len());
                    let value = [0, 0xff, 1, 0x80, rng.next() as u8][rng.below(5)];
                    let end = at + [1, 4, 8][rng.below(3)];
                    let end = end.min(bytes.len());
                    bytes[at..end].fill(value);
                }
                bytes.truncate(if rng.below(4) == 0 { rng.below(bytes.len()) } else { bytes.len() });
                target(&bytes);
            }
        }
    }
}

/// Fields of a recorded layout, one by one, to the ends of what they can say: it is refused, or its parts lie
/// on the devices. Unchecked, they made opening ask for all memory there is, or divide by zero.
#[test]
fn no_layout_is_taken_at_its_word() {
    let (mut block, mut refused) = (vec![0; 4096], 0);
    superblock().encode(&mut block, 0);
    let whole = input(0, &block);
    // From the chunk size to the end of the table, in the body behind the byte that says what it is.
    let fields = 1 + 104 - 16..whole.len() - 3;
    for at in fields.clone().step_by(4) {
        for value in [0, 1, 3, 4095, 1 << 20, 1 << 31, u32::MAX - 1, u32::MAX] {
            let mut bytes = whole.clone();
            bytes[at..at + 4].copy_from_slice(&u32::to_le_bytes(value));
            formats::metadata(&bytes);
            let mut sealed = vec![0; 4096];
            bimetal_engine::format::codec::seal(&mut sealed, b"BMTLsupr", &bytes[1..]);
            refused += u32::from(!matches!(Superblock::decode(&sealed, 0), Found::Valid(_)));
        }
    }
    assert!(refused > 100, "{refused} wrong layouts were refused");
}

#[test]
fn damaged_marks() {
    let mut rng = Rng(seed());
    let device = |size_bytes| DeviceInfo { name: "device".into(), size_bytes };
    let options = CreateOptions { marking: Marking::On, ..CreateOptions::new(VOLUME) };
    let geo = Geometry::plan(&[device(64 << 20), device(256 << 20)], &options).unwrap();
    let layout = geo.marks().expect("it has marks");
    let chunks = layout.chunks_of(0);
    for _ in 0..ROUNDS {
        let mut open = bimetal_engine::bits::Bits::none(layout.regions());
        (0..layout.regions()).filter(|_| rng.below(2) == 0).for_each(|region| _ = open.set(region));
        let directory = vec![
            if rng.below(2) == 0 { BLANK } else { PageRef { place: 1, sum: 7 } };
            layout.directory().len()
        ];
        let header = MarkHeader { number: 5, generation: Generation(3), unix_s: rng.next(), directory, open };
        let mut block = vec![0; layout.copy_bytes() as usize];
        header.encode(&mut block, &VOLUME);
        assert_eq!(MarkHeader::decode(&block, &VOLUME, &layout), Some(header));
        damage(&mut block, &mut rng);
        if let Some(header) = MarkHeader::decode(&block, &VOLUME, &layout) {
            assert!(
                header.open.size() == layout.regions() && header.directory.len() == layout.directory().len()
            );
        }
        let mut payload = Vec::new();
        let marks: Vec<Mark> = chunks
            .clone()
            .map(|chunk| match rng.below(3) {
                0 => Mark::default(),
                1 => Mark { lost: BlockMask::range(0, 32), ..Mark::default() },
                _ => Mark {
                    slot: Some(Slot(chunk)),
                    held: BlockMask::range(4, 9),
                    lost: BlockMask::range(20, 3),
                },
            })
            .collect();
        marks.iter().for_each(|mark| put_mark(&mut payload, mark, layout.mask_words()));
        assert_eq!(get_marks(&payload, &geo, chunks.clone()), Some(marks));
        for _ in 0..1 + rng.below(8) {
            let at = rng.below(payload.len());
            payload[at] = rng.next() as u8;
        }
        payload.truncate(payload.len() - rng.below(2) * rng.below(payload.len()));
        for mark in get_marks(&payload, &geo, chunks.clone()).into_iter().flatten() {
            assert!(
                mark.slot.is_none_or(|slot| slot.0 < geo.slow_slots) && mark.held.and(mark.lost).is_empty()
            );
        }
    }
}
