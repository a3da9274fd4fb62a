//! Stories of blocks of which some sectors were written and the others cannot be read any more: the promise is one of
//! sectors, so what was written and flushed is there, what has rotted is an error, and writing it again heals the block.

use crate::damage::image::{get, put};
use crate::story::{BLOCK, CHUNK, Story};
use bimetal_engine::action::{RequestError, RequestKind};
use bimetal_engine::extents::Placement;
use bimetal_torture::disk::{CutStyle, Disk};
use bimetal_torture::world::Death;
use bimetal_units::{FAST, Nanos, SLOW, Tier};

const SECTOR: u64 = 512;
const IO: Result<Vec<u8>, RequestError> = Err(RequestError::Io);

/// How a sector goes bad.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Damage {
    /// It cannot be read.
    Bad,
    /// A bit of it flips.
    Rot,
}

const DAMAGES: [Damage; 2] = [Damage::Bad, Damage::Rot];

/// The page on a device that is full of this byte.
fn page_full_of(disk: &Disk, byte: u8) -> u64 {
    let mut bytes = vec![0; BLOCK as usize];
    let is_it = |page: &u64| disk.peek(*page, &mut bytes) && bytes.iter().all(|b| *b == byte);
    (0..disk.size_bytes() / BLOCK).find(is_it).expect("it is there")
}

fn hurt(disk: &mut Disk, page: u64, sector: u64, damage: Damage) {
    match damage {
        Damage::Bad => disk.add_bad_sector(page * 8 + sector),
        Damage::Rot => {
            let mut bytes = get(disk, page, 1);
            bytes[(sector * SECTOR) as usize + 7] ^= 4;
            put(disk, page, &bytes);
        }
    }
}

/// A volume with a chunk on the slow tier, the block in its middle full of 0x33, and the first block, of 0x1b, damaged in
/// its sector 5; and where that chunk is.
fn begin(damage: Damage) -> (Story, u64) {
    let mut s = Story::begin_with_zone(64, 64, 32);
    let at = slow_chunk(&mut s);
    let lies = page_full_of(&s.world.disks[1], 0x1b);
    hurt(&mut s.world.disks[1], lies, 5, damage);
    (s, at)
}

/// The chunk before it was damaged.
fn slow_chunk(s: &mut Story) -> u64 {
    let at = s.slow_chunk();
    // No other block of the volume is the same.
    s.write(at, BLOCK, 0x1b);
    s.write(at + CHUNK / 2, BLOCK, 0x33);
    s.flush();
    s.wait(Nanos::SECOND);
    assert!(s.is_slow(at) && s.is_slow(at + CHUNK / 2), "they are merged");
    // The copies that these reads have left on the fast tier end here.
    reopen(s, None);
    at
}

fn sector(s: &mut Story, at: u64, sector: u64) -> Result<u8, RequestError> {
    s.read(at + sector * SECTOR, SECTOR).map(|bytes| {
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "one write made it");
        bytes[0]
    })
}

/// Half a minute, in which the disk reads other blocks.
fn wait_long(s: &mut Story, beside: u64) {
    for _ in 0..30 {
        s.wait(Nanos::SECOND);
        assert_eq!(s.read(beside, BLOCK), Ok(vec![0x33; BLOCK as usize]));
    }
}

fn write_sectors(s: &mut Story, at: u64, sectors: std::ops::Range<u64>, fill: u8) {
    s.write(at + sectors.start * SECTOR, (sectors.end - sectors.start) * SECTOR, fill);
}

fn reopen(s: &mut Story, death: Option<Death>) {
    match death {
        Some(death) => s.die(death),
        None => s.stop(),
    }
    s.open().expect("the volume opens");
}

/// Sector 0 is written and flushed, and the rest of its block cannot be read. The whole block used to be given up: two
/// seconds later sector 0 was an error as well, for good.
#[test]
fn what_was_written_stays_though_the_rest_has_rotted() {
    for damage in DAMAGES {
        let (mut s, at) = begin(damage);
        write_sectors(&mut s, at, 0..1, 0x22);
        s.flush();
        wait_long(&mut s, at + CHUNK / 2);
        for death in [None, Some(Death::Kill), Some(Death::PowerCut(CutStyle::LoseAll)), None] {
            assert_eq!(sector(&mut s, at, 0), Ok(0x22), "{damage:?}");
            assert_eq!(sector(&mut s, at, 5), Err(RequestError::Io), "{damage:?}");
            assert_eq!(s.read(at, BLOCK), IO, "{damage:?}");
            reopen(&mut s, death);
            wait_long(&mut s, at + CHUNK / 2);
        }
        let found = |s: &mut Story| s.engine().extents(at, BLOCK, 1)[0].place;
        assert_eq!(found(&mut s), Placement::Lost, "not all of it can be read");
        // Sector by sector, over restarts, until all of it was written.
        for i in 1..8 {
            write_sectors(&mut s, at, i..i + 1, 0x22);
            s.flush();
            reopen(&mut s, (i == 3).then_some(Death::PowerCut(CutStyle::LoseAll)));
            assert_eq!(
                s.read(at, (i + 1) * SECTOR),
                Ok(vec![0x22; ((i + 1) * SECTOR) as usize]),
                "{damage:?}"
            );
            s.wait(2 * Nanos::SECOND);
        }
        s.wait(2 * Nanos::SECOND);
        assert!(s.is_slow(at), "it is merged, and healed");
        s.stop();
        assert_eq!(s.check(), Ok(Vec::new()), "{damage:?}");
    }
}

/// A user is told which device and byte it is, once, and what of the block is left.
#[test]
fn what_is_lost_is_named() {
    for damage in DAMAGES {
        let (mut s, at) = begin(damage);
        let lies = page_full_of_all_but_one(&s.world.disks[1]);
        write_sectors(&mut s, at, 0..1, 0x22);
        s.flush();
        wait_long(&mut s, at + CHUNK / 2);
        let events: Vec<String> = s.engine().take_events().into_iter().map(|event| event.message).collect();
        let named = format!("volume byte {at}: sectors of a block are lost");
        let told: Vec<_> = events.iter().filter(|event| event.contains(&named)).collect();
        assert_eq!(told.len(), 1, "{damage:?}: {events:#?}");
        assert!(told[0].contains(&format!("slow at byte {}", lies * BLOCK)), "{damage:?}: {told:?}");
        assert_eq!(sector(&mut s, at, 5), Err(RequestError::Io));
        let events: Vec<String> = s.engine().take_events().into_iter().map(|event| event.message).collect();
        assert!(events.iter().any(|event| event.contains(&format!("volume byte {at}"))), "{events:#?}");
    }
}

fn page_full_of_all_but_one(disk: &Disk) -> u64 {
    let mut bytes = vec![0; BLOCK as usize];
    let is_it =
        |page: &u64| disk.peek(*page, &mut bytes) && bytes.iter().filter(|b| **b == 0x1b).count() > 4000;
    (0..disk.size_bytes() / BLOCK).find(is_it).expect("it is there")
}

/// The log's tail comes to where such a part is, again and again: it is said again at the head, and never holds the zone.
#[test]
fn what_is_left_of_a_block_goes_with_the_log() {
    for damage in DAMAGES {
        let (mut s, at) = begin(damage);
        write_sectors(&mut s, at, 0..1, 0x22);
        s.flush();
        wait_long(&mut s, at + CHUNK / 2);
        let zone = 32 * CHUNK / BLOCK;
        for round in 0..4 {
            for i in 0..zone {
                s.write(at + CHUNK + i % 64 * BLOCK, BLOCK, (round * 16 + i) as u8);
                if i % 16 == 0 {
                    s.wait(Nanos::MS);
                }
            }
            s.flush();
            s.wait(5 * Nanos::SECOND);
            assert_eq!(sector(&mut s, at, 0), Ok(0x22), "{damage:?}, round {round}");
            assert_eq!(sector(&mut s, at, 1), Err(RequestError::Io), "{damage:?}, round {round}");
            reopen(&mut s, Some(Death::PowerCut(CutStyle::LoseAll)));
            assert_eq!(sector(&mut s, at, 0), Ok(0x22), "{damage:?}, round {round}");
            assert_eq!(sector(&mut s, at, 1), Err(RequestError::Io), "{damage:?}, round {round}");
            wait_long(&mut s, at + CHUNK / 2);
        }
    }
}

fn pin(s: &mut Story, at: u64, tier: Option<Tier>) {
    let now = s.world.now();
    s.engine().begin_pin(now, at, CHUNK, tier).expect("it may be pinned");
    loop {
        if let Some(answer) = s.engine().take_pin_answer() {
            return answer.expect("it is pinned");
        }
        s.step();
    }
}

/// The chunk goes up and down with what is left of the block, and without what is lost of it.
#[test]
fn what_is_left_of_a_block_goes_with_its_chunk() {
    for damage in DAMAGES {
        let (mut s, at) = begin(damage);
        write_sectors(&mut s, at, 0..1, 0x22);
        s.flush();
        for (turn, tier) in [FAST, SLOW, FAST, SLOW].into_iter().enumerate() {
            pin(&mut s, at, Some(tier));
            s.wait(30 * Nanos::SECOND);
            let place = s.engine().extents(at + CHUNK / 2, BLOCK, 1)[0].place;
            assert_eq!(place, Placement::Home(tier), "{damage:?}, turn {turn}");
            for death in [None, Some(Death::PowerCut(CutStyle::LoseAll))] {
                assert_eq!(sector(&mut s, at, 0), Ok(0x22), "{damage:?}, turn {turn}");
                assert_eq!(sector(&mut s, at, 5), Err(RequestError::Io), "{damage:?}, turn {turn}");
                reopen(&mut s, death);
            }
        }
        s.write(at, BLOCK, 0x44);
        s.flush();
        s.wait(5 * Nanos::SECOND);
        s.stop();
        assert_eq!(s.check(), Ok(Vec::new()), "{damage:?}");
    }
}

/// The other way round: what landed of a block cannot be read, and the rest lies on the slow tier as it always did.
#[test]
fn what_lies_beneath_stays_though_what_landed_has_rotted() {
    for damage in DAMAGES {
        let mut s = Story::begin_with_zone(64, 64, 32);
        let at = slow_chunk(&mut s);
        s.tuning.idle_after_ns = 3600 * Nanos::SECOND;
        reopen(&mut s, None);
        write_sectors(&mut s, at, 3..4, 0x22);
        s.flush();
        s.stop();
        let mut bytes = vec![0; BLOCK as usize];
        let landed = |page: &u64| {
            s.world.disks[0].peek(*page, &mut bytes) && bytes[3 * 512..4 * 512].iter().all(|b| *b == 0x22)
        };
        let lies = (0..s.world.disks[0].size_bytes() / BLOCK).find(landed).expect("it landed");
        hurt(&mut s.world.disks[0], lies, 3, damage);
        s.tuning.idle_after_ns = 10 * Nanos::MS;
        s.open().expect("the volume opens");
        for opened in 0..3 {
            assert_eq!(sector(&mut s, at, 5), Ok(0x1b), "{damage:?}, opened {opened}");
            assert_eq!(sector(&mut s, at, 3), Err(RequestError::Io), "{damage:?}, opened {opened}");
            wait_long(&mut s, at + CHUNK / 2);
            assert_eq!(sector(&mut s, at, 5), Ok(0x1b), "{damage:?}, opened {opened}");
            assert_eq!(sector(&mut s, at, 3), Err(RequestError::Io), "{damage:?}, opened {opened}");
            reopen(&mut s, Some(Death::PowerCut(CutStyle::LoseAll)));
        }
        write_sectors(&mut s, at, 3..4, 0x55);
        s.flush();
        let mut whole = vec![0x1b; BLOCK as usize];
        whole[3 * 512..4 * 512].fill(0x55);
        assert_eq!(s.read(at, BLOCK).as_ref(), Ok(&whole), "{damage:?}");
        s.wait(5 * Nanos::SECOND);
        assert!(s.is_slow(at), "it is merged, and healed");
        s.stop();
        assert_eq!(s.check(), Ok(Vec::new()), "{damage:?}");
    }
}

/// Blocks of which a part is written, ...
const MANY: u64 = 320;

/// ... at the beginning or in the middle, so that parts of two share a block of the log.
fn written_sector(block: u64) -> u64 {
    block % 2 * 3
}

/// What is left of lost blocks fills a zone that does not grow: two parts were in each block of the log, and each of them, said
/// again, takes a block of its own. A write elsewhere waits until that is known to be in vain, and fails. In these 20 s the same
/// blocks were written to the SSD over and over, as fast as it took them.
#[test]
fn a_zone_full_of_remnants_does_not_wear_the_ssd_while_a_write_waits() {
    let mut s = Story::begin_with_zone(56, 64, 32);
    s.tuning.landing_ram_bytes = 0;
    reopen(&mut s, None);
    let beside = s.slow_chunk();
    let at = beside + CHUNK;
    (0..MANY / 16).for_each(|chunk| s.write(at + chunk * CHUNK, CHUNK, 0x1b));
    s.flush();
    s.wait(10 * Nanos::SECOND);
    let mut bytes = vec![0; BLOCK as usize];
    let disk = &mut s.world.disks[1];
    for page in 0..disk.size_bytes() / BLOCK {
        if disk.peek(page, &mut bytes) && bytes.iter().all(|b| *b == 0x1b) {
            hurt(disk, page, 5, Damage::Rot);
        }
    }
    let kind = RequestKind::Write { fua: false };
    let parts: Vec<_> = (0..MANY)
        .map(|block| s.ask(kind, at + block * BLOCK + written_sector(block) * SECTOR, SECTOR, 0x22))
        .collect();
    let answers: Vec<_> = parts.into_iter().map(|part| s.answer(part).map(drop)).collect();
    let landed = answers.iter().take_while(|answer| answer.is_ok()).count() as u64;
    s.flush();
    s.wait(60 * Nanos::SECOND);
    let before = s.engine().status().log_written_bytes;
    let asked = s.ask(kind, beside + BLOCK, BLOCK, 0x77);
    assert_eq!(s.answer(asked).map(drop), Err(RequestError::NoSpace));
    let appended = (s.engine().status().log_written_bytes - before) / BLOCK;
    assert!(appended < 200 * landed, "{appended} blocks to say {landed} again");
    for block in 0..landed {
        let here = at + block * BLOCK;
        assert_eq!(sector(&mut s, here, written_sector(block)), Ok(0x22), "block {block}");
        assert_eq!(sector(&mut s, here, 5), Err(RequestError::Io), "block {block}");
    }
}
