//! What a device does to single writes, and to its cache, while it says that all is well or nothing at all.

use super::{CutStyle, Disk, IoId, Kind, PAGE_BYTES, tear};
use bimetal_units::rng::Rng;

impl Disk {
    fn change_mut(&mut self, id: IoId) -> &mut super::Change {
        match self.in_flight.iter_mut().find(|f| f.id == id).map(|f| &mut f.kind) {
            Some(Kind::Change { change, .. }) => change,
            _ => panic!("only a write in flight can be harmed"),
        }
    }

    /// A write in flight will never happen, although it will be acknowledged.
    pub fn lose(&mut self, id: IoId) {
        let change = self.change_mut(id);
        change.masks = vec![0; change.data.len() / PAGE_BYTES];
    }

    /// Only some sectors of a write in flight will be written, although all will be acknowledged.
    pub fn shear(&mut self, id: IoId, rng: &mut Rng) {
        let change = self.change_mut(id);
        tear(&mut change.masks, change.data.len() / PAGE_BYTES, rng);
    }

    /// A write in flight goes to these pages, and not to its own.
    pub fn misdirect(&mut self, id: IoId, page: u64) {
        let end = page as usize + self.change_mut(id).data.len() / PAGE_BYTES;
        assert!(end <= self.pages.len(), "a misdirected write stays on its device");
        self.change_mut(id).page = page as u32;
    }

    /// A command in flight has no effect: the device is not there.
    pub fn forget(&mut self, id: IoId) {
        if let Kind::Change { change, .. } = self.take(id) {
            self.spare(change.data);
        }
    }

    /// The volatile cache is lost, as in a power cut. False: there was nothing in it.
    pub fn lose_cache(&mut self, style: CutStyle, rng: &mut Rng) -> bool {
        let any = self.unflushed() > 0;
        self.settle(style, rng);
        any
    }
}
