//! The offline repair: what it says that it will do, what it does, and that it may be cut short anywhere.

use crate::damage::image::{Layout, get, put};
use crate::story::{BLOCK, CHUNK, Story, twin};
use bimetal_engine::format::geometry::{header_at, pins_at};
use bimetal_torture::disk::{CutStyle, Disk};
use bimetal_torture::world::Death;
use bimetal_units::Nanos;

/// Chunks written before and between the closings.
const CHUNKS: u64 = 40;
/// Chunks written between them for the first time at most.
const LATER: u64 = 8;

fn byte(chunk: u64) -> u8 {
    0x10 + chunk as u8
}

/// A volume that was closed twice, with homes on both devices: the second time little had been written, so the log still has
/// all that followed the checkpoint of the first.
fn closed_twice() -> Story {
    used_twice(Story::begin(24, 64))
}

fn used_twice(mut s: Story) -> Story {
    for chunk in 0..CHUNKS {
        s.write(chunk * CHUNK, CHUNK, if chunk % 9 == 0 { 0xff } else { byte(chunk) });
        if chunk % 8 == 7 {
            s.flush();
            s.wait(Nanos::SECOND);
        }
    }
    for chunk in (0..CHUNKS).step_by(9) {
        s.write(chunk * CHUNK, BLOCK, byte(chunk));
        s.write(chunk * CHUNK + BLOCK, CHUNK - BLOCK, byte(chunk));
    }
    s.stop();
    s.open().expect("it opens");
    // These change the map. A checkpoint may come before that of the closing, which then has nothing of it to write.
    for chunk in CHUNKS..CHUNKS + LATER {
        s.write(chunk * CHUNK, CHUNK, byte(chunk));
        s.stop();
        let layout = Layout::of(&s.world.disks);
        let page = get(&s.world.disks[0], layout.map_pages[0], 1);
        println!("checkpoint {}, map page of {}", layout.header.number, page[48]);
        if page[48..56] == layout.header.number.to_le_bytes() {
            return s;
        }
        s.open().expect("it opens");
    }
    panic!("no closing wrote a page of the map");
}

fn holds_all(s: &mut Story) {
    for chunk in 0..=CHUNKS {
        let bytes = s.read(chunk * CHUNK, CHUNK).expect("it can be read");
        assert!(bytes.iter().all(|b| *b == byte(chunk)), "chunk {chunk}: {:#x}", bytes[0]);
    }
}

fn flip(s: &mut Story, device: usize, block: u64) {
    let mut bytes = get(&s.world.disks[device], block, 1);
    bytes[20] ^= 4;
    put(&mut s.world.disks[device], block, &bytes);
}

/// Cuts a repair short after each of its steps, and begins it again: nothing is worse. How many steps that were.
fn cut_short_anywhere(damaged: &[Disk]) -> u32 {
    let mut all = 0;
    for cut in [CutStyle::LoseAll, CutStyle::KeepAll, CutStyle::Mixed, CutStyle::Newest] {
        for steps in 0.. {
            let mut s = Story::with(damaged.to_vec());
            if !s.repair_until(steps, Death::PowerCut(cut)) {
                break;
            }
            all += 1;
            let again = s.repair().expect("it is repaired");
            assert!(again.beyond.is_empty(), "{cut:?} after {steps} steps: {again:?}");
            assert_eq!(s.check().expect("it can be checked"), Vec::<String>::new(), "{cut:?}, {steps}");
            s.open().expect("it opens");
            holds_all(&mut s);
        }
    }
    all
}

/// The check finds each bad copy that stands twice, and says that the other one is good; a repair says what it will do, does
/// it, and the check is clean.
#[test]
fn every_bad_copy_is_found_and_repaired() {
    let whole = closed_twice();
    let layout = Layout::of(&whole.world.disks);
    let geo = &layout.geo;
    let mut bad: Vec<(usize, u64)> = Vec::new();
    for (device, disk) in whole.world.disks.iter().enumerate() {
        bad.extend([(device, 0), (device, disk.size_bytes() / BLOCK - 1)]);
    }
    let newest = header_at(layout.header.number % 2) / BLOCK;
    bad.extend([(0, newest), (0, newest + 1)]);
    let first = [&layout.root[..], &layout.directory, &layout.map_pages].concat();
    bad.extend(first.iter().flat_map(|at| [(0, *at), (0, twin(geo, *at).expect("a second copy"))]));
    for (device, block) in bad {
        let mut s = Story::with(whole.world.disks.clone());
        flip(&mut s, device, block);
        let findings = s.findings().expect("it can be checked");
        let told = findings.iter().any(|f| (usize::from(f.device.0), f.offset) == (device, block * BLOCK));
        assert!(told && findings.len() == 1, "block {block} of device {device}: {findings:?}");
        if block % 3 == 0 {
            assert!(cut_short_anywhere(&s.world.disks) > 8, "block {block} of device {device} is written");
        }
        let plan = s.planned().expect("it can be repaired");
        assert_eq!(s.findings().expect("it can be checked"), findings, "a plan changes nothing");
        assert_eq!(s.repair().expect("it is repaired"), plan);
        assert!(plan.beyond.is_empty() && plan.lost.is_empty(), "{plan:?}");
        assert_eq!(s.check().expect("it can be checked"), Vec::<String>::new());
        assert_eq!(s.planned().expect("nothing is left").repairs, []);
        s.open().expect("it opens");
        holds_all(&mut s);
    }
}

/// Both copies of a root, of a directory page, of a map page, or of all of them, which the newest checkpoint wrote: the volume
/// stays closed. The checkpoint before and the log since say the same, so the repair loses nothing, wherever a crash cuts it short.
#[test]
fn both_copies_lost_are_rebuilt_from_the_checkpoint_before_and_the_log() {
    let whole = closed_twice();
    let layout = Layout::of(&whole.world.disks);
    let all = [&layout.root[..], &layout.directory, &layout.map_pages].concat();
    let kinds = [&layout.root[..1], &layout.directory[..1], &layout.map_pages[..1], &all];
    for lost in kinds {
        let mut s = Story::with(whole.world.disks.clone());
        for at in lost {
            flip(&mut s, 0, *at);
            flip(&mut s, 0, twin(&layout.geo, *at).expect("a second copy"));
        }
        s.open().expect_err("both copies are bad");
        let damaged = s.world.disks.clone();
        let plan = s.planned().expect("it can be repaired");
        assert!(!plan.repairs.is_empty() && plan.beyond.is_empty(), "{plan:?}");
        s.repair().expect("it is repaired");
        assert_eq!(s.check().expect("it can be checked"), Vec::<String>::new());
        s.open().expect("it opens");
        holds_all(&mut s);
        assert!(cut_short_anywhere(&damaged) > 40, "root and header are written");
    }
}

/// Nothing says where the chunks of a map page are, of which both copies are bad and which the log has nothing of: the repair
/// writes nothing, and names the bytes that would be lost. Nothing is given up that is not.
#[test]
fn what_cannot_be_rebuilt_is_said_to_the_byte() {
    let mut s = Story::begin(24, 64);
    let size = s.engine().size_bytes();
    for round in 0..3 {
        for chunk in 0..CHUNKS {
            s.write(chunk * CHUNK, CHUNK, byte(chunk + round));
            s.flush();
        }
        s.wait(2 * Nanos::SECOND);
        s.stop();
        s.open().expect("it opens");
    }
    s.stop();
    let layout = Layout::of(&s.world.disks);
    let page = layout.map_pages[0];
    let other = layout.geo.roots_at[(layout.header.number as usize + 1) % 2] / BLOCK;
    for at in [page, other] {
        flip(&mut s, 0, at);
        flip(&mut s, 0, twin(&layout.geo, at).expect("a second copy"));
    }
    s.open().expect_err("both copies are bad");
    let report = s.planned().expect("it can be looked at");
    assert_eq!(report.repairs, []);
    assert_eq!(report.beyond.len(), 2);
    assert_eq!(report.beyond[0].offset, page * BLOCK);
    let lost: u64 = report.lost.iter().map(|range| range.end - range.start).sum();
    assert!(lost > 0 && report.lost.iter().all(|range| range.end <= size), "{report:?}");
    let known = size - lost;
    println!("{lost} of {size} bytes are lost, the log says where {known} are");
    let before = s.world.disks.clone();
    assert_eq!(s.repair().expect("it can be looked at"), report);
    let same = |at: u64| get(&before[0], at, 1) == get(&s.world.disks[0], at, 1);
    assert!((0..before[0].size_bytes() / BLOCK).all(same), "nothing was written");
}

/// One place of the list of pins is bad.
#[test]
fn a_list_of_pins_that_cannot_be_read_in_one_place_is_repaired() {
    let mut s = closed_twice();
    s.world.disks[0].add_bad_sector(pins_at(0) / BLOCK * 8);
    assert_eq!(s.findings().expect("it can be checked").len(), 1);
    assert_eq!(s.repair().expect("it is repaired").repairs.len(), 1);
    assert_eq!(s.check().expect("it can be checked"), Vec::<String>::new());
}

/// A volume from before there were second copies opens as it is, stays readable, and the check says that it has none. One
/// bad block of its map, of its directory or of its root closes it, as it did.
#[test]
fn a_volume_without_second_copies_opens_as_it_is() {
    let mut s = used_twice(Story::begin_without_fast_pages(24, 64));
    assert!(!s.checked().expect("it can be checked").has_no_copies);
    s.make_old();
    let report = s.checked().expect("it can be checked");
    assert!(report.has_no_copies && report.findings.is_empty(), "{:?}", report.findings);
    s.open().expect("it opens");
    holds_all(&mut s);
    s.write((CHUNKS + LATER) * CHUNK, CHUNK, 1);
    s.stop();
    assert!(s.checked().expect("it can be checked").has_no_copies, "there is no room for them");
    let layout = Layout::of(&s.world.disks);
    assert_eq!(layout.geo.mirror_at, None);
    let whole = s.world.disks.clone();
    for at in [&layout.root[..], &layout.directory, &layout.map_pages].concat() {
        let mut s = Story::with(whole.clone());
        flip(&mut s, 0, at);
        s.open().expect_err("there is one copy");
        // The checkpoint before it helps here as well.
        s.repair().expect("it is repaired");
        s.open().expect("it opens");
        holds_all(&mut s);
    }
}
