//! One bad sector, anywhere: what stands twice is read where it still stands, what is data is an error for
//! whoever reads it, and only metadata that stands once keeps the volume closed, with a clear error.

use crate::damage::image::Layout;
use crate::story::{BLOCK, CHUNK, Story};
use bimetal_engine::format::geometry::{HEADERS_AT, header_at};
use bimetal_engine::options::OpenError;
use bimetal_torture::arena::ArenaMemory;
use bimetal_torture::disk::Disk;
use bimetal_torture::run_seed;
use bimetal_torture::world::Death;
use bimetal_units::Nanos;

/// A byte that says which write of which block it was.
fn fill(block: u64, round: u64) -> u8 {
    (block * 7 + round * 31 + 1) as u8
}

/// A killed volume with homes on both devices, sealed segments, landed blocks and several checkpoints,
/// and what each of its first blocks holds.
fn killed_volume() -> (Story, Vec<(u64, u8)>) {
    let mut s = Story::begin(32, 32);
    let blocks = s.engine().size_bytes() / BLOCK;
    let mut held = Vec::new();
    for round in 0..3 {
        held.clear();
        for block in (0..blocks).step_by(3) {
            s.write(block * BLOCK, BLOCK, fill(block, round));
            held.push((block * BLOCK, fill(block, round)));
        }
        s.flush();
        s.wait(2 * Nanos::SECOND);
    }
    // What lands last stays landed.
    for (i, (at, byte)) in held.iter_mut().enumerate().filter(|(i, _)| i % 2 == 0) {
        *byte = fill(i as u64, 9);
        s.write(*at, BLOCK, *byte);
    }
    s.flush();
    assert!(s.engine().status().landed_bytes > 0, "blocks are landed");
    assert!(s.engine().status().checkpoints > 1, "there were checkpoints");
    s.die(Death::Kill);
    (s, held)
}

fn content(disk: &Disk, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK as usize];
    disk.read(block * BLOCK, &mut bytes).expect("the device is whole");
    bytes
}

/// Opens with one bad block; false when the volume stays closed, which must be for that block's sake.
fn opens(s: &mut Story, whole: &[Disk], device: usize, block: u64, held: &[(u64, u8)]) -> bool {
    s.world.disks = whole.to_vec();
    s.world.disks[device].add_bad_sector(block * 8);
    let area = 2 * CHUNK / BLOCK;
    match s.open() {
        Ok(()) => {}
        Err(OpenError::Corrupt { offset, .. } | OpenError::Device { offset, .. }) => {
            let near = (offset / BLOCK).abs_diff(block) < area;
            assert!(near, "block {block} is bad, and the error names byte {offset}");
            return false;
        }
        Err(other) => panic!("block {block} of device {device} is bad: {other}"),
    }
    let mut lost = 0;
    for (at, byte) in held {
        match s.read(*at, BLOCK) {
            Ok(bytes) => {
                assert!(bytes.iter().all(|b| b == byte), "byte {at}: {:#x}, not {byte:#x}", bytes[0])
            }
            Err(_) => lost += 1,
        }
    }
    // A page of checksums stands for many blocks; any other sector for one block at most.
    assert!(lost <= 1 || content(&whole[device], block).starts_with(b"BMTLpage"), "{lost} blocks are lost");
    s.stop();
    s.open().expect("it opens again");
    s.die(Death::Kill);
    true
}

/// Of each page of metadata there are two places, one of which is in force. Opening read both in one go, and a sector that
/// could not be read in the other one, which nobody needs, kept the volume closed.
#[test]
fn a_version_of_a_page_that_is_not_in_force_need_not_be_readable() {
    let (mut s, held) = killed_volume();
    let (whole, layout) = (s.world.disks.clone(), Layout::of(&s.world.disks));
    let in_force =
        [&layout.map_pages, &layout.sum_pages, &layout.directory].map(|pages| pages.as_slice()).concat();
    let tables = layout.geo.map_at / BLOCK..layout.geo.areas_at / BLOCK;
    let others: Vec<u64> = tables.filter(|block| !in_force.contains(block)).collect();
    assert!(others.len() > 2, "there are such places");
    for block in others {
        assert!(opens(&mut s, &whole, 0, block, &held), "block {block} keeps the volume closed");
    }
}

#[test]
fn a_bad_sector_closes_the_volume_only_where_metadata_stands_once() {
    let (mut s, held) = killed_volume();
    let whole = s.world.disks.clone();
    for device in 0..2 {
        let blocks = whole[device].size_bytes() / BLOCK;
        let headers = HEADERS_AT / BLOCK..header_at(2) / BLOCK;
        let (mut closed, mut ends) = (Vec::new(), 0);
        for block in 0..blocks {
            if opens(&mut s, &whole, device, block, &held) {
                continue;
            }
            assert!(block != 0 && block != blocks - 1, "a superblock stands twice");
            assert!(device == 1 || !headers.contains(&block), "each checkpoint header stands twice");
            let bytes = content(&whole[device], block);
            assert!(!bytes.starts_with(b"BMTLpage"), "a page in force stands twice: block {block}");
            let once = [&b"BMTLsegm"[..], b"BMTLgrup"].iter().any(|m| bytes.starts_with(m));
            // Where the log ends, nobody knows whether it does if the block cannot be read; nor whether it went on in the
            // segment that is named next, which was discarded.
            ends += u32::from(!once);
            closed.push(block);
        }
        println!("device {device}: {blocks} blocks, {} of which keep it closed: {closed:?}", closed.len());
        assert!(ends <= 2, "{ends} blocks that hold no metadata keep the volume closed");
        assert!(device == 0 || closed.is_empty(), "nothing on the slow device is needed for opening");
    }
}

/// A hot chunk was to rise, and the page with its checksums could not be read. An idle volume chose it again at once, as often
/// as the device answered, and told of each time; it waits now as after any other failure.
#[test]
fn a_page_of_checksums_that_cannot_be_read_is_not_read_without_end() {
    assert_eq!(run_seed(9_026_286, &ArenaMemory::default()).violation, None);
}

/// The SSD can read nothing any more of hundreds of blocks that landed, and they are found lost in one go. Their records, each
/// with a block that gives the loss a place in the log, became one group, whatever a group may have: a write of more buffers
/// than a device takes, and the server fell over it, at each opening anew.
#[test]
fn hundreds_of_blocks_that_are_lost_at_once_are_told_in_groups_as_large_as_any() {
    const CHUNKS: u64 = 40;
    const BLOCKS: u64 = 12;
    let mut s = Story::begin_with_areas(400, 200, 256, 32);
    let first = s.slow_chunk();
    for chunk in 1..CHUNKS {
        s.write(first + chunk * CHUNK, BLOCK, 0x11);
        s.flush();
    }
    s.stop();
    s.tuning.idle_after_ns = 3600 * Nanos::SECOND;
    s.open().expect("it was closed in order");
    let written = || (0..CHUNKS).flat_map(|c| (1..=BLOCKS).map(move |b| first + c * CHUNK + b * BLOCK));
    (0..CHUNKS).for_each(|c| s.write(first + c * CHUNK + BLOCK, BLOCKS * BLOCK, 0x33));
    s.flush();
    s.die(Death::Kill);
    let mut page = [0; BLOCK as usize];
    let is_data = |at: &u64| s.world.disks[0].peek(*at, &mut page) && page.iter().all(|b| *b == 0x33);
    let landed: Vec<u64> = s.layout().zone().filter(is_data).collect();
    assert_eq!(landed.len() as u64, CHUNKS * BLOCKS, "all have landed");
    landed.iter().for_each(|page| s.world.disks[0].add_bad_sector(page * 8));
    s.tuning.idle_after_ns = 10 * Nanos::MS;
    s.tuning.batch_chunks = 64;
    s.open().expect("bad sectors under landed blocks keep no volume closed");
    s.wait(60 * Nanos::SECOND);
    let lost = written().filter(|at| s.read(*at, BLOCK).is_err()).count();
    assert_eq!(lost, landed.len());
    s.stop();
}
