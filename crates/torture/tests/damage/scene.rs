//! The volumes that get hurt, and what they must still hold.

use super::image::{Layout, get};
use crate::story::{BLOCK, CHUNK, Story};
use bimetal_torture::disk::Disk;
use bimetal_torture::world::Death;
use bimetal_units::Nanos;
use bimetal_units::rng::mix;
use std::collections::BTreeMap;

/// The content of one version of a block, unlike that of any other. Version zero is never written.
pub fn content(block: u64, version: u64) -> Vec<u8> {
    if version == 0 {
        return vec![0; BLOCK as usize];
    }
    let word = |i: u64| mix(block << 20 ^ version << 10 ^ i).to_le_bytes();
    (0..BLOCK / 8).flat_map(word).collect()
}

/// A volume at rest: closed or killed.
pub struct Scene {
    pub name: &'static str,
    pub killed: bool,
    pub disks: Vec<Disk>,
    /// The devices at earlier times, oldest first.
    pub older: Vec<Vec<Disk>>,
    /// Devices of the same size of another volume.
    pub other: Vec<Disk>,
    /// By block of the volume: its versions, all flushed, the last one counts.
    pub held: BTreeMap<u64, Vec<u64>>,
    /// Blocks whose last version was the last that happened before the kill: nothing on the device says
    /// that it was durable.
    pub last_batch: Vec<u64>,
    pub layout: Layout,
    /// Content of the fast slots, by its first bytes: the device block. They have no checksums.
    pub fast_slots: BTreeMap<[u8; 16], u64>,
    pub blocks: u64,
}

const FAST_CHUNKS: u64 = 72;
const SLOW_CHUNKS: u64 = 256;
/// Times that the last blocks are written at most.
const PASSES: u64 = 8;

/// Writes a version of some blocks and flushes.
fn round(s: &mut Story, held: &mut BTreeMap<u64, Vec<u64>>, blocks: impl Iterator<Item = u64>, version: u64) {
    for block in blocks {
        s.write_bytes(block * BLOCK, &content(block, version)).expect("a write succeeds");
        held.entry(block).or_insert_with(|| vec![0]).push(version);
    }
    s.flush();
}

impl Scene {
    /// Homes on both devices, landed blocks, sealed segments, several checkpoints and openings.
    pub fn make(name: &'static str, killed: bool) -> Scene {
        let mut s = Story::begin(FAST_CHUNKS, SLOW_CHUNKS);
        let blocks = s.engine().size_bytes() / BLOCK;
        let (mut held, mut older) = (BTreeMap::new(), Vec::new());
        for version in 1..=3 {
            round(&mut s, &mut held, (0..blocks).step_by(7), version);
            s.wait(2 * Nanos::SECOND);
            older.push(s.world.disks.clone());
            match version {
                1 => s.stop(),
                2 => s.die(Death::Kill),
                _ => continue,
            }
            s.open().expect("it opens");
        }
        round(&mut s, &mut held, (0..blocks).step_by(14), 4);
        round(&mut s, &mut held, (7..blocks).step_by(70), 5);
        older.push(s.world.disks.clone());
        let last_batch: Vec<u64> = (21..blocks).step_by(140).take(30).collect();
        // Flushed in parts, so that groups of the last segment say of each other that they are durable; and again
        // until the log, of which the volume drops what it has merged, happens to have a sealed segment as well.
        for version in 6..6 + PASSES {
            for part in last_batch.chunks(2) {
                round(&mut s, &mut held, part.iter().copied(), version);
            }
            if Layout::of(&s.world.disks).segments.iter().any(|segment| segment.index.is_some()) {
                break;
            }
        }
        assert!(s.engine().status().landed_bytes > 0, "blocks are landed");
        if killed {
            s.die(Death::Kill);
        } else {
            s.stop();
        }
        let disks = s.world.disks.clone();
        let mut other = Story::begin_as(*b"another volume's", FAST_CHUNKS, SLOW_CHUNKS);
        other.stop();
        let layout = Layout::of(&disks);
        let fast_slots = layout.fast_slots().map(|at| (key(&get(&disks[0], at, 1)), at)).collect();
        let other = other.world.disks.clone();
        Scene { name, killed, disks, older, other, held, last_batch, layout, fast_slots, blocks }
    }

    /// Whether the block's home is a fast slot that these devices do not hold as it was.
    pub fn in_changed_fast_slot(&self, disks: &[Disk], block: u64, version: u64) -> bool {
        let at = self.fast_slots.get(&key(&content(block, version)));
        let reaches = |at: u64| at < disks[0].size_bytes() / BLOCK;
        at.is_some_and(|at| !reaches(*at) || get(&disks[0], *at, 1) != get(&self.disks[0], *at, 1))
    }
}

fn key(bytes: &[u8]) -> [u8; 16] {
    bytes[..16].try_into().expect("sixteen bytes")
}

/// Some blocks that were never written.
pub fn first_unwritten(scene: &Scene) -> impl Iterator<Item = u64> + '_ {
    let per = CHUNK / BLOCK;
    (0..scene.blocks).step_by(3 * per as usize).map(|b| b + 1).filter(|b| !scene.held.contains_key(b))
}
