//! Devices that fail, stall or vanish while a volume opens: each told as the story in which opening said something
//! wrong about them, or made it worse, or could have.

use crate::story::{BLOCK, Story, VOLUME};
use bimetal_engine::coverage::Stage;
use bimetal_engine::format::geometry::{HEADER_COPIES, header_at};
use bimetal_engine::format::header::CheckpointHeader;
use bimetal_engine::options::OpenError;
use bimetal_torture::disk::{CutStyle, Disk, PAGE_BYTES};
use bimetal_torture::world::Death;
use bimetal_torture::world::storm::{Aim, Harm, Stall, Storm, Vanish};
use bimetal_units::Nanos;

/// ENXIO.
const GONE: i32 = 6;
/// EIO.
const EIO: i32 = 5;
/// More commands than opening these volumes takes of a device.
const COMMANDS: u32 = 100;

/// A volume that died with homes on both devices and landed blocks, all flushed; and a slow chunk of it.
fn died() -> (Story, u64) {
    let mut s = Story::begin(24, 64);
    let chunk = s.slow_chunk();
    s.wait(2 * Nanos::SECOND);
    s.stop();
    s.open().expect("it opens");
    for block in 1..8 {
        s.write(chunk + block * BLOCK, BLOCK, 0x22);
        s.flush();
    }
    s.die(Death::PowerCut(CutStyle::LoseAll));
    (s, chunk)
}

/// The volume opens, holds what was promised, and the check finds nothing.
fn is_whole(s: &mut Story, chunk: u64, when: &str) {
    assert_eq!(s.check().expect("it can be checked"), Vec::<String>::new(), "{when}");
    holds_all(s, chunk, when);
}

/// The volume opens, and holds what was promised.
fn holds_all(s: &mut Story, chunk: u64, when: &str) {
    s.open().unwrap_or_else(|e| panic!("{when}: {e}"));
    let bytes = s.read(chunk, 8 * BLOCK).expect("it can be read");
    let (home, landed) = bytes.split_at(BLOCK as usize);
    assert!(home.iter().all(|b| *b == 0x11) && landed.iter().all(|b| *b == 0x22), "{when}");
}

/// A device vanishes at each command of an opening in turn, and comes back without its cache. Opening fails and says of
/// which device, or does without what it could not read; and the next one finds everything.
#[test]
fn a_device_that_vanishes_while_the_volume_opens_takes_nothing_with_it() {
    let (died, chunk) = died();
    for (device, name) in ["fast", "slow"].into_iter().enumerate() {
        let mut failed = 0;
        for after in 0..COMMANDS {
            let errno = if after % 2 == 0 { GONE } else { EIO };
            let cache = (errno == GONE).then_some(CutStyle::LoseAll);
            let vanish = Vanish { device, after, stage: None, ns: Nanos::MS / 10, cache, errno };
            let mut s = Story::with(died.world.disks.clone());
            s.world.begin(Storm { vanish: Some(vanish), ..Storm::default() });
            let opened = s.open();
            s.world.calm();
            if let Err(error) = &opened {
                let text = error.to_string();
                let clear = matches!(error, OpenError::Device { .. }) || text.contains("not be read");
                assert!(clear && text.contains(name) && text.contains("byte"), "{text}");
                failed += 1;
            }
            s.die(Death::Kill);
            is_whole(&mut s, chunk, &format!("{name} vanished after {after} commands"));
        }
        assert!(failed > 4, "{name}: flushes and writes of superblocks cannot be done without");
    }
}

/// A device does nothing for half a minute at each command of an opening in turn: it opens, later.
#[test]
fn a_device_that_stalls_while_the_volume_opens_is_waited_for() {
    let (died, chunk) = died();
    for device in 0..2 {
        for after in (0..COMMANDS).step_by(3) {
            let mut s = Story::with(died.world.disks.clone());
            let mut storm = Storm::default();
            storm.weather[device].stall = Some(Stall { after, ns: 30 * Nanos::SECOND, whole: true });
            s.world.begin(storm);
            let began = s.world.now();
            s.open().expect("it opens");
            assert!(s.world.now().since(began) < 35 * Nanos::SECOND);
            s.die(Death::Kill);
            is_whole(&mut s, chunk, &format!("device {device} stalled after {after} commands"));
        }
    }
}

/// Each write of an opening is lost, or lands elsewhere, in turn: the volume is as it was, or says where it is not.
#[test]
fn no_lost_write_of_an_opening_shows_an_older_volume() {
    let (died, chunk) = died();
    for (harm, after) in [Harm::Lost, Harm::Misdirected].into_iter().flat_map(|h| (0..5).map(move |n| (h, n)))
    {
        let mut s = Story::with(died.world.disks.clone());
        s.world.layout = Some(s.layout());
        let aim = Aim { stage: Stage::OpenRaise, after, harm };
        s.world.begin(Storm { aims: vec![aim], ..Storm::default() });
        s.open().expect("it opens");
        assert_eq!(s.world.injected.harmed(), 1);
        if s.world.hurt_group.is_some() {
            // It landed on the log, whose last groups nothing misses.
            continue;
        }
        s.die(Death::PowerCut(CutStyle::LoseAll));
        match s.open() {
            Err(error) => assert!(error.to_string().contains("byte"), "{harm:?} {after}: {error}"),
            Ok(()) => (0..8).for_each(|block| match s.read(chunk + block * BLOCK, BLOCK) {
                Ok(bytes) => assert!(bytes.iter().all(|b| *b == if block == 0 { 0x11 } else { 0x22 })),
                Err(_) => assert!(harm == Harm::Misdirected, "a lost write of opening harms no block"),
            }),
        }
    }
}

/// Blocks of the copies of the newest header.
pub fn newest_header(s: &Story) -> [u64; 2] {
    let number = |block: u64, place| {
        let mut bytes = [0; PAGE_BYTES];
        s.world.disks[0].peek(block, &mut bytes);
        CheckpointHeader::decode(&bytes, &VOLUME, place).map(|h| h.number)
    };
    let newest = (0..2).max_by_key(|place| number(header_at(*place) / BLOCK, *place)).expect("two places");
    [0, 1].map(|copy| header_at(newest) / BLOCK + copy)
}

/// All reads fail for a while, or those of all headers: the device is not corrupt, and nothing may say that it is alone.
/// It said that there was no valid checkpoint header.
#[test]
fn a_device_that_cannot_be_read_for_a_while_is_not_called_corrupt() {
    let (mut s, chunk) = died();
    for place in 0..2 {
        (0..HEADER_COPIES)
            .for_each(|copy| s.world.disks[0].add_bad_sector((header_at(place) / BLOCK + copy) * 8));
    }
    let error = s.open().expect_err("no header can be read").to_string();
    assert!(error.contains("fast") && error.contains("byte 4096 could not be read"), "{error}");
    let (mut s, again) = (died().0, chunk);
    s.world.rates.reads = 1;
    let error = s.open().expect_err("nothing can be read").to_string();
    assert!(error.contains("fast failed at byte"), "{error}");
    s.world.rates.reads = 0;
    is_whole(&mut s, again, "the device can be read again");
}

/// The newest checkpoint header cannot be read while the volume opens. The one before it counted, for its root, its map
/// and its log were whole; the newest was erased. But where its pages of checksums were in force, a checkpoint that was
/// cut short had written others since, and these are read only when they are needed: blocks were errors for good, and
/// the next opening would have found all. Now those pages are looked at, where a header is hidden.
#[test]
fn a_newest_header_that_cannot_be_read_for_a_while_costs_no_checksums() {
    let mut s = Story::begin(24, 64);
    let chunk = s.slow_chunk();
    for round in 0..3 {
        s.stop();
        s.open().expect("it opens");
        s.write(chunk, 8 * BLOCK, 0x30 + round);
        s.flush();
        s.wait(5 * Nanos::SECOND);
    }
    s.stop();
    let mut away = Story::with(s.world.disks.clone());
    newest_header(&s).iter().for_each(|block| away.world.disks[0].add_bad_sector(block * 8));
    away.open().expect("all that the header before it names is there");
    assert!(overwrite_older_checksums(&mut s) > 0, "closing folds checksums");
    let mut away = Story::with(s.world.disks.clone());
    newest_header(&s).iter().for_each(|block| away.world.disks[0].add_bad_sector(block * 8));
    let error = away.open().expect_err("nobody knows what the newest header was").to_string();
    assert!(error.contains("checksums") && error.contains("could not be read"), "{error}");
    is_filled(&mut s, chunk);
}

fn is_filled(s: &mut Story, chunk: u64) {
    s.open().expect("the header can be read again");
    assert!(s.read(chunk, 8 * BLOCK).expect("nothing was damaged").iter().all(|b| *b == 0x32));
}

/// Where the older version of a page of checksums is, another stands from now on. How many there were.
fn overwrite_older_checksums(s: &mut Story) -> usize {
    let disk = &mut s.world.disks[0];
    let page = |disk: &Disk, at: u64| {
        let mut bytes = vec![0; PAGE_BYTES];
        disk.peek(at, &mut bytes);
        // Magic; the kind of page, 2; and the checkpoint that wrote it.
        let is_one = bytes.starts_with(b"BMTLpage") && bytes[32] == 2;
        let by = u64::from_le_bytes(bytes[48..56].try_into().expect("eight bytes"));
        is_one.then(|| (by, bytes[40..48].to_vec(), bytes))
    };
    let mut overwritten = 0;
    for at in 0..disk.size_bytes() / BLOCK - 1 {
        if let (Some(one), Some(other)) = (page(disk, at), page(disk, at + 1))
            && one.1 == other.1
        {
            let (older, newer) = if one.0 < other.0 { (at, other.2) } else { (at + 1, one.2) };
            disk.put_back(older, &newer);
            overwritten += 1;
        }
    }
    overwritten
}

/// One copy of the newest checkpoint header cannot be read. Opening used to erase it, although the other one said what
/// it had held; when that went bad too, the header before it counted, or the volume stayed closed. It is written again.
#[test]
fn a_copy_of_the_newest_header_that_cannot_be_read_is_written_again() {
    let (mut s, chunk) = died();
    let copies = newest_header(&s);
    for bad in copies {
        s.world.disks[0].add_bad_sector(bad * 8);
        s.open().expect("the other copy counts");
        s.die(Death::PowerCut(CutStyle::LoseAll));
        let bytes = copies.map(|at| {
            let mut bytes = vec![0; PAGE_BYTES];
            s.world.disks[0].read(at * BLOCK, &mut bytes).expect("it was written again");
            bytes
        });
        assert_eq!(bytes[0], bytes[1]);
        assert_eq!(newest_header(&s), copies);
    }
    is_whole(&mut s, chunk, "both copies were bad, one after the other");
}

/// Of a device's two superblocks one was raised when the opening ended there, and so did the next one before it came to
/// this device: one superblock was then two generations behind the other device. Had the newer one not been readable
/// now, the device would have been taken for an old copy of itself.
#[test]
fn no_superblock_falls_behind_while_openings_fail() {
    let (died, chunk) = died();
    let interrupted = |disks: &[Disk], device: usize, after: u32| {
        let mut s = Story::with(disks.to_vec());
        let stage = Some(Stage::OpenRaise);
        let vanish = Vanish { device, after, stage, ns: Nanos::MS / 10, cache: None, errno: EIO };
        s.world.begin(Storm { vanish: Some(vanish), ..Storm::default() });
        let failed = s.open().is_err();
        s.die(Death::PowerCut(CutStyle::LoseAll));
        failed.then(|| s.world.disks.clone())
    };
    let steps = || (0..2).flat_map(|device| (0..10).map(move |after| (device, after)));
    let once: Vec<_> =
        steps().filter_map(|(device, after)| interrupted(&died.world.disks, device, after)).collect();
    let twice: Vec<_> = once
        .iter()
        .flat_map(|disks| steps().filter_map(|(device, after)| interrupted(disks, device, after)))
        .collect();
    assert!(twice.len() > 100, "openings are interrupted at most steps: {}", twice.len());
    for (i, disks) in twice.iter().enumerate() {
        for (device, first) in [(0, true), (0, false), (1, true), (1, false)] {
            let mut s = Story::with(disks.clone());
            let sector = if first { 0 } else { disks[device].size_bytes() / 512 - 8 };
            s.world.disks[device].add_bad_sector(sector);
            holds_all(&mut s, chunk, &format!("case {i}, device {device}, first {first}"));
            s.die(Death::Kill);
        }
    }
}
