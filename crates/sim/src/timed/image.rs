//! The image that a volume in virtual time has on its slow device.

use crate::timed::TimedDevice;
use bimetal_engine::format::superblock::{Found, Superblock};
use bimetal_protect::{Layout, Map, Plan, Protection, Reader, newest_header, scan};
use bimetal_units::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// How a volume is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protect {
    /// The oldest that its image is to be.
    pub seconds: u32,
    /// Clients wait rather than that it is older.
    pub strict: bool,
}

struct Look<'d>(&'d TimedDevice);

impl Reader for Look<'_> {
    fn read(&mut self, at: u64, bytes: u64) -> Option<Vec<u8>> {
        Some(self.0.look(at, bytes))
    }
}

/// What stands between a volume and its devices, which are there already. Looking for the last image takes no time.
pub(crate) fn protection(protect: Protect, devices: &[TimedDevice]) -> Protection {
    let [fast, slow] = devices else { unreachable!("a volume has two devices") };
    let Found::Valid(superblock) = Superblock::decode(&slow.look(0, BLOCK), 0) else {
        unreachable!("a volume was made on them")
    };
    let [fast_bytes, slow_bytes] = superblock.geometry.device_bytes;
    let layout = Layout::fitting(fast_bytes, slow_bytes, slow.size_bytes()).expect("room was left for it");
    let header = newest_header(&mut Look(slow), layout.headers(), superblock.volume);
    let maps = layout.maps().map(|at| Map::decode(&fast.look(at, BLOCK)));
    let map = maps.into_iter().flatten().max_by_key(|map| map.number);
    let plan = Plan {
        volume: superblock.volume,
        devices: superblock.devices,
        layout,
        generation: superblock.generation,
        seconds: protect.seconds,
        strict: protect.strict,
        piece_bytes: Plan::PIECE_BYTES,
        region_blocks: Plan::REGION_BLOCKS,
        open_ahead: Plan::OPEN_AHEAD,
        fresh: superblock.generation.0,
    };
    let resumed = header.as_ref().filter(|header| header.image.is_some()).and_then(|header| {
        let scanned = scan(&mut Look(slow), header, false);
        Protection::resume(plan.clone(), header, scanned, map.as_ref())
    });
    resumed.unwrap_or_else(|| Protection::begin(plan, header.as_ref(), map.as_ref()))
}
