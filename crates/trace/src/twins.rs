//! Stacked devices, traced together, log a request twice: above, and after a remap below. The one above is what was
//! asked for; its twins below are dropped.

use crate::events::{Remap, Request};
use std::collections::{HashMap, HashSet, VecDeque};

/// Remaps whose request below has not come yet; beyond that the oldest is forgotten, and its twin stays.
const MAX_EXPECTED: usize = 65_536;
/// Devices that are known to be traced; those beyond are not seen as lying above others.
const MAX_DEVICES: usize = 4096;

const SECTOR: u64 = 512;

/// Finds twins in events that come in the order of time.
#[derive(Default)]
pub(crate) struct Twins {
    /// Devices of which requests were seen.
    traced: HashSet<u32>,
    /// Device and sector at which a twin will come, and the remap that said so last.
    expected: HashMap<(u32, u64), u64>,
    order: VecDeque<((u32, u64), u64)>,
    remaps: u64,
    /// Twins dropped.
    pub(crate) dropped: u64,
}

impl Twins {
    pub(crate) fn remap(&mut self, remap: &Remap) {
        let from_traced = remap.from_device != remap.device && self.traced.contains(&remap.from_device);
        // A remap from a partition to its disk may follow one from a volume to the partition; both stand under the
        // disk's number.
        let chained = self.expected.remove(&(remap.device, remap.from_sector)).is_some();
        if from_traced || chained {
            self.expect((remap.device, remap.sector));
        }
    }

    fn expect(&mut self, place: (u32, u64)) {
        self.remaps += 1;
        self.expected.insert(place, self.remaps);
        self.order.push_back((place, self.remaps));
        // What was met or chained meanwhile is still in the order, but harmless.
        while self.order.len() > MAX_EXPECTED {
            let Some((place, remap)) = self.order.pop_front() else { break };
            if self.expected.get(&place) == Some(&remap) {
                self.expected.remove(&place);
            }
        }
    }

    /// Whether a request is the twin of one that was seen.
    pub(crate) fn is_twin(&mut self, request: &Request) -> bool {
        let known = self.traced.contains(&request.device);
        if !known && self.traced.len() < MAX_DEVICES {
            self.traced.insert(request.device);
        }
        let twin = !self.expected.is_empty()
            && self.expected.remove(&(request.device, request.offset / SECTOR)).is_some();
        self.dropped += u64::from(twin);
        twin
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Op;

    const VOLUME: u32 = 253 << 20;
    const DISK: u32 = 8 << 20;

    fn request(device: u32, sector: u64) -> Request {
        Request::units(Op::Write, sector, 8, SECTOR).expect("sound").on(device)
    }

    fn remap(device: u32, sector: u64, from_device: u32, from_sector: u64) -> Remap {
        Remap { device, sector, from_device, from_sector }
    }

    #[test]
    fn a_partition_is_no_twin_and_a_volume_over_a_partition_is_one() {
        let mut twins = Twins::default();
        twins.remap(&remap(DISK, 2148, DISK + 1, 100));
        assert!(!twins.is_twin(&request(DISK, 2148)));
        assert!(!twins.is_twin(&request(VOLUME, 500)));
        twins.remap(&remap(DISK, 600, VOLUME, 500));
        twins.remap(&remap(DISK, 2648, DISK + 1, 600));
        assert!(!twins.is_twin(&request(DISK, 600)), "another request");
        assert!(twins.is_twin(&request(DISK, 2648)));
        assert!(!twins.is_twin(&request(DISK, 2648)), "only once");
        assert_eq!(twins.dropped, 1);
    }

    #[test]
    fn what_never_comes_is_forgotten() {
        let mut twins = Twins::default();
        assert!(!twins.is_twin(&request(VOLUME, 0)));
        for sector in 0..MAX_EXPECTED as u64 * 2 {
            twins.remap(&remap(DISK, sector, VOLUME, sector));
        }
        assert!(twins.expected.len() <= MAX_EXPECTED && twins.order.len() <= MAX_EXPECTED);
        assert!(!twins.is_twin(&request(DISK, 0)));
        assert!(twins.is_twin(&request(DISK, MAX_EXPECTED as u64)));
    }
}
