//! The image in the place of the devices: where each block of it is on the slow one.

use crate::extents::Held;
use crate::layout::Layout;
use crate::protection::{BLOCK, OWN};
use crate::scan::Scanned;
use bimetal_engine::Machine;
use bimetal_engine::action::{Action, Class, DeviceError, Token};
use bimetal_engine::arena::Buf;
use bimetal_units::{FAST, Nanos, SLOW, Tier};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Linux's EIO and EROFS.
const EIO: i32 = 5;
const EROFS: i32 = 30;

/// The image of two devices on the slow one, between a machine that reads it and its driver.
pub struct Salvage {
    layout: Layout,
    scanned: Scanned,
    /// Reads of the machine that are in parts: how many are still on their way, and how it went.
    reads: BTreeMap<u64, (usize, Result<(), DeviceError>)>,
    /// Which of them a part is of.
    parts: BTreeMap<u64, u64>,
    next: u64,
    out: VecDeque<Action>,
}

impl Salvage {
    /// Of what a ring holds.
    pub fn new(layout: Layout, scanned: Scanned) -> Salvage {
        Salvage {
            layout,
            scanned,
            reads: BTreeMap::new(),
            parts: BTreeMap::new(),
            next: 0,
            out: VecDeque::new(),
        }
    }

    /// Where everything is.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Where the slow device holds blocks of one of the devices, in parts; none where a part is lost.
    pub fn places(&self, tier: Tier, blocks: Range<u64>) -> Vec<(Range<u64>, Option<u64>)> {
        let (extents, behind) = match tier {
            FAST => (&self.scanned.fast, self.layout.copy_at()),
            _ => (&self.scanned.slow, 0),
        };
        let place = |(part, held): (Range<u64>, Option<Held>)| match held {
            Some(Held::At(at)) => (part, Some(at)),
            Some(Held::Lost) => (part, None),
            None => (part.clone(), Some(behind + part.start * BLOCK)),
        };
        extents.parts(&blocks).into_iter().map(place).collect()
    }

    /// The next thing to do of a machine that has the image for its devices. Nothing is written.
    pub fn next_action<M: Machine>(&mut self, machine: &mut M, now: Nanos) -> Option<Action> {
        loop {
            if let Some(action) = self.out.pop_front() {
                return Some(action);
            }
            match machine.next_action(now)? {
                Action::Read { device, offset, buf, token, class } => {
                    if let Err(error) = self.read(device, offset, buf, token, class) {
                        machine.on_completion(now, token, Err(error));
                    }
                }
                Action::Write { token, .. } => {
                    machine.on_completion(now, token, Err(DeviceError { errno: EROFS }));
                }
                Action::Flush { token, .. } | Action::Discard { token, .. } => {
                    machine.on_completion(now, token, Ok(()));
                }
                action @ Action::Reply { .. } => return Some(action),
            }
        }
    }

    /// Asks for the parts of a read.
    fn read(
        &mut self,
        device: Tier,
        offset: u64,
        buf: Buf,
        token: Token,
        class: Class,
    ) -> Result<(), DeviceError> {
        let first = offset / BLOCK;
        let parts = self.places(device, first..first + u64::from(buf.len) / BLOCK);
        if parts.iter().any(|(_, at)| at.is_none()) {
            return Err(DeviceError { errno: EIO });
        }
        self.reads.insert(token.0, (parts.len(), Ok(())));
        for (part, at) in parts {
            self.next += 1;
            let own = OWN | self.next;
            self.parts.insert(own, token.0);
            let start = buf.start + (part.start - first) * BLOCK;
            let buf = Buf { start, len: ((part.end - part.start) * BLOCK) as u32 };
            let offset = at.unwrap_or_default();
            self.out.push_back(Action::Read { device: SLOW, offset, buf, token: Token(own), class });
        }
        Ok(())
    }

    /// The slow device answered.
    pub fn on_completion<M: Machine>(
        &mut self,
        machine: &mut M,
        now: Nanos,
        token: Token,
        result: Result<(), DeviceError>,
    ) {
        let Some(of) = self.parts.remove(&token.0) else { return };
        let Some((left, all)) = self.reads.get_mut(&of) else { return };
        *left -= 1;
        *all = all.and(result);
        if *left == 0
            && let Some((_, result)) = self.reads.remove(&of)
        {
            machine.on_completion(now, Token(of), result);
        }
    }
}
