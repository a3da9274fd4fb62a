//! The image that a volume in virtual time has on its slow device.

use crate::timed::TimedDevice;
use bimetal_engine::format::superblock::{Found, Superblock};
use bimetal_protect::{Layout, Plan, Protection, Reader, newest_header};
use bimetal_units::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;

struct Look<'d>(&'d TimedDevice);

impl Reader for Look<'_> {
    fn read(&mut self, at: u64, bytes: u64) -> Option<Vec<u8>> {
        Some(self.0.look(at, bytes))
    }
}

/// What stands between a volume and its devices, which are there already. Looking for the last image takes no time.
pub(crate) fn protection(seconds: u32, devices: &[TimedDevice]) -> Protection {
    let [fast, slow] = devices else { unreachable!("a volume has two devices") };
    let Found::Valid(superblock) = Superblock::decode(&slow.look(0, BLOCK), 0) else {
        unreachable!("a volume was made on them")
    };
    let [fast_bytes, slow_bytes] = superblock.geometry.device_bytes;
    let layout = Layout::fitting(fast_bytes, slow_bytes, slow.size_bytes()).expect("room was left for it");
    let header = newest_header(&mut Look(slow), layout.headers(), superblock.volume);
    let plan = Plan::new(&superblock, layout, (seconds, false), superblock.generation.0);
    Protection::open(plan, header.as_ref(), &mut Look(fast), &mut Look(slow))
}
