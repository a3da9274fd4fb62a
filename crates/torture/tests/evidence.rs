//! What a device says that fails as a whole is no evidence against one block, however long that lasts.

use crate::story::{BLOCK, CHUNK, Story};
use bimetal_engine::action::RequestKind;
use bimetal_torture::world::Death;
use bimetal_torture::world::storm::{Storm, Vanish};
use bimetal_units::Nanos;

const SECTOR: u64 = 512;

/// Reads of the fast device fail for ten minutes, while it takes writes; blocks have landed, and the mover tries to merge
/// them all the time. After two minutes they used to be given up, one and all, and to be errors for good.
#[test]
fn a_fast_device_that_reads_nothing_takes_no_block_with_it() {
    let mut s = Story::begin(32, 32);
    let at = s.slow_chunk();
    s.world.blind[0] = true;
    for i in 1..9 {
        s.write(at + i * BLOCK, BLOCK, i as u8);
        s.flush();
    }
    s.wait(600 * Nanos::SECOND);
    let events: Vec<String> = s.engine().take_events().into_iter().map(|event| event.message).collect();
    assert!(!events.iter().any(|event| event.contains("lost")), "{events:#?}");
    s.world.blind[0] = false;
    for opened in 0..2 {
        for i in 1..9 {
            assert_eq!(s.read(at + i * BLOCK, BLOCK), Ok(vec![i as u8; BLOCK as usize]), "opened {opened}");
        }
        s.die(Death::Kill);
        s.open().expect("the volume opens");
    }
    s.wait(30 * Nanos::SECOND);
    assert_eq!(s.engine().status().landed_bytes, 0, "what could not be read for so long is merged");
}

/// The same of the slow device, with parts of blocks above it. What it writes says nothing of what it reads.
#[test]
fn a_slow_device_that_reads_nothing_takes_no_block_with_it() {
    let mut s = Story::begin(32, 32);
    let at = s.slow_chunk();
    s.world.blind[1] = true;
    s.write(at, SECTOR, 0x22);
    for i in 0..8 {
        // Whole blocks that land beside it are merged all the while.
        s.write(at + CHUNK * (1 + i % 2), BLOCK, i as u8);
        s.flush();
        s.wait(75 * Nanos::SECOND);
    }
    let events: Vec<String> = s.engine().take_events().into_iter().map(|event| event.message).collect();
    assert!(!events.iter().any(|event| event.contains("lost")), "{events:#?}");
    s.world.blind[1] = false;
    let mut whole = vec![0x11; BLOCK as usize];
    whole[..SECTOR as usize].fill(0x22);
    assert_eq!(s.read(at, BLOCK), Ok(whole));
}

/// The slow device is gone for ten minutes: whatever it is asked for fails, with either of the numbers that the kernel has for
/// a disk that was pulled. Clients go on reading and writing, parts of blocks above it too. When it is back nothing is lost.
#[test]
fn a_slow_device_that_is_gone_takes_no_block_with_it() {
    for errno in [5, 6] {
        let mut s = Story::begin(32, 32);
        let at = s.slow_chunk();
        s.write(at, SECTOR, 0x22);
        s.flush();
        let vanish = Vanish { device: 1, after: 0, stage: None, ns: 600 * Nanos::SECOND, cache: None, errno };
        s.world.begin(Storm { vanish: Some(vanish), ..Storm::default() });
        let mut events = Vec::new();
        for i in 0..40 {
            // What has just landed has its own time.
            if i % 10 == 0 {
                let write =
                    s.ask(RequestKind::Write { fua: false }, at + SECTOR * (1 + i / 10 % 3), SECTOR, 0x33);
                _ = s.answer(write);
            }
            _ = s.read(at + BLOCK / 2, BLOCK);
            s.wait(10 * Nanos::SECOND);
            events.append(&mut s.engine().take_events());
        }
        assert_eq!(s.world.injected.vanished, 1, "it was gone");
        let lost: Vec<_> = events.into_iter().filter(|event| event.message.contains("lost")).collect();
        assert_eq!(lost, [], "error {errno}");
        s.world.calm();
        for _ in 0..2 {
            s.die(Death::Kill);
            s.open().expect("the volume opens");
            assert_eq!(s.read(at, SECTOR), Ok(vec![0x22; SECTOR as usize]), "error {errno}");
            let rest = vec![0x11; (BLOCK - 4 * SECTOR) as usize];
            assert_eq!(s.read(at + 4 * SECTOR, BLOCK - 4 * SECTOR), Ok(rest), "error {errno}");
        }
    }
}

/// A volume of which one landed block cannot be read, and nobody reads anything else of the fast device; where it begins.
fn one_unreadable_block() -> (Story, u64) {
    let mut s = Story::begin(32, 32);
    let at = s.slow_chunk();
    s.tuning.idle_after_ns = 3600 * Nanos::SECOND;
    s.stop();
    s.open().expect("the volume opens");
    s.write(at, BLOCK, 0x22);
    s.flush();
    s.stop();
    let disk = &mut s.world.disks[0];
    let mut bytes = vec![0; BLOCK as usize];
    let landed = |page: &u64| disk.peek(*page, &mut bytes) && bytes.iter().all(|byte| *byte == 0x22);
    let lies = (0..disk.size_bytes() / BLOCK).find(landed).expect("it landed");
    disk.add_bad_sector(lies * 8 + 1);
    s.tuning.idle_after_ns = 10 * Nanos::MS;
    s.open().expect("the volume opens");
    (s, at)
}

/// How often in the next minute it is said that the block is lost.
fn said_to_be_lost(s: &mut Story, at: u64) -> usize {
    s.wait(60 * Nanos::SECOND);
    let events: Vec<String> = s.engine().take_events().into_iter().map(|event| event.message).collect();
    let lost = format!("volume byte {at}: a block is lost");
    events.iter().filter(|event| event.contains(&lost)).count()
}

/// One block of the fast device cannot be read, and nobody reads anything else of it: the engine asks for something else by
/// itself, so that what cannot be read is given up in the end, and does not hold the zone.
#[test]
fn what_cannot_be_read_alone_is_given_up_though_nobody_reads_anything_else() {
    let (mut s, at) = one_unreadable_block();
    assert_eq!(said_to_be_lost(&mut s, at), 1);
}

/// The same, and both superblocks of the device went bad meanwhile, which are what the engine asks for: it used to conclude that
/// the device reads nothing, to give nothing up, and to let clients wait for ever once the zone was full.
#[test]
fn superblocks_that_went_bad_do_not_make_a_device_one_that_reads_nothing() {
    let (mut s, at) = one_unreadable_block();
    let second = s.geometry().second_superblock_at(bimetal_units::FAST) / BLOCK;
    [0, second].into_iter().for_each(|page| s.world.disks[0].add_bad_sector(page * 8 + 3));
    assert_eq!(said_to_be_lost(&mut s, at), 1);
}

/// The same, and when the engine writes one of them again, that fails: it was never tried a second time.
#[test]
fn a_superblock_that_went_bad_is_written_again_until_that_succeeds() {
    let (mut s, at) = one_unreadable_block();
    let second = s.geometry().second_superblock_at(bimetal_units::FAST) / BLOCK;
    [0, second].into_iter().for_each(|page| s.world.disks[0].add_bad_sector(page * 8 + 3));
    s.world.rates.writes = 1;
    s.wait(5 * Nanos::SECOND);
    assert!(s.world.injected.writes > 0, "it was tried");
    s.world.rates.writes = 0;
    assert_eq!(said_to_be_lost(&mut s, at), 1);
}
