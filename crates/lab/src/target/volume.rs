//! A Bimetal volume in this process: the engine and its devices, without a server between.

use crate::load::{Inside, LoadTarget, RunError, SlotSpec, stamped};
use bimetal_driver::{Driver, RealArena};
use bimetal_engine::Engine;
use bimetal_engine::action::{Machine as _, Request, RequestError, RequestId, RequestKind};
use bimetal_engine::arena::{Arena as _, Buf, Pool};
use bimetal_load::{Ended, Fault, Target};
use bimetal_models::{Command, Kind};
use bimetal_units::{BLOCK_BYTES, Nanos, ServedBy};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::time::Duration;

/// What a kernel would say.
fn errno(error: RequestError) -> i32 {
    let errno = match error {
        RequestError::Io => Errno::IO,
        RequestError::NoSpace => Errno::NOSPC,
        RequestError::ReadOnly => Errno::ROFS,
        RequestError::Invalid => Errno::INVAL,
        RequestError::ShuttingDown => Errno::SHUTDOWN,
    };
    errno.raw_os_error()
}

/// A volume under load. Whoever opened it closes it.
pub struct Volume<'v> {
    driver: &'v mut Driver,
    engine: &'v mut Engine<RealArena>,
    began: Nanos,
    /// What each slot writes or has read: the engine's buffers last as long as a request.
    payload: Vec<Vec<u8>>,
    slots: Vec<Option<(Command, Option<Buf>)>>,
    handed_ns: Vec<u64>,
    /// Commands that wait for room in the engine.
    waiting: VecDeque<u32>,
    in_flight: usize,
    replies: Vec<(u32, Option<i32>, ServedBy)>,
}

impl<'v> Volume<'v> {
    /// An open volume.
    pub fn new(driver: &'v mut Driver, engine: &'v mut Engine<RealArena>) -> Volume<'v> {
        let began = driver.clock.now();
        Volume {
            driver,
            engine,
            began,
            payload: Vec::new(),
            slots: Vec::new(),
            handed_ns: Vec::new(),
            waiting: VecDeque::new(),
            in_flight: 0,
            replies: Vec::new(),
        }
    }

    /// Where a command lies in its buffer, which covers whole blocks.
    fn part(command: Command) -> std::ops::Range<usize> {
        let head = (command.offset % u64::from(BLOCK_BYTES)) as usize;
        head..head + command.len as usize
    }

    /// Hands a command to the engine; false where there is no room for it now.
    fn admit(&mut self, slot: u32) -> bool {
        let Some((command, _)) = self.slots[slot as usize] else { return true };
        if !self.engine.has_room() {
            return false;
        }
        let kind = match command.kind {
            Kind::Read => RequestKind::Read,
            Kind::Write { fua } => RequestKind::Write { fua },
            Kind::Flush | Kind::Sync => RequestKind::Flush,
            Kind::Discard => RequestKind::Discard { fua: false },
        };
        let mut buf = None;
        if matches!(command.kind, Kind::Read | Kind::Write { .. }) {
            let cover = Self::part(command).end.next_multiple_of(BLOCK_BYTES as usize);
            buf = self.engine.with_arena(|arena| arena.alloc(Pool::Client, cover as u32));
            let Some(buf) = buf else { return false };
            if let Kind::Write { .. } = command.kind {
                let from = &self.payload[slot as usize][..command.len as usize];
                self.engine.with_arena(|arena| {
                    arena.payload_mut(buf)[Self::part(command)].copy_from_slice(from);
                });
            }
        }
        self.slots[slot as usize] = Some((command, buf));
        let now = self.driver.clock.now();
        self.handed_ns[slot as usize] = now.since(self.began);
        let (id, offset, len) = (RequestId(u64::from(slot)), command.offset, command.len);
        self.engine.on_request(now, Request { id, kind, offset, len, buf });
        true
    }

    fn pump(&mut self, ended: &mut Vec<Ended>) {
        loop {
            while let Some(&slot) = self.waiting.front() {
                if !self.admit(slot) {
                    break;
                }
                self.waiting.pop_front();
            }
            let replies = &mut self.replies;
            self.driver.pump(self.engine, |id, result, served| {
                replies.push((id.0 as u32, result.err().map(errno), served));
            });
            if self.replies.is_empty() {
                return;
            }
            let at_ns = self.driver.clock.now().since(self.began);
            for (slot, errno, served) in std::mem::take(&mut self.replies) {
                let Some((command, buf)) = self.slots[slot as usize].take() else { continue };
                if let Some(buf) = buf {
                    if command.kind == Kind::Read && errno.is_none() {
                        let into = &mut self.payload[slot as usize][..command.len as usize];
                        self.engine.with_arena(|arena| {
                            into.copy_from_slice(&arena.payload(buf)[Self::part(command)]);
                        });
                    }
                    self.engine.with_arena(|arena| arena.free(buf));
                }
                self.in_flight -= 1;
                let handed_ns = Some(self.handed_ns[slot as usize]);
                let fault = errno.map(Fault::Errno);
                ended.push(Ended { slot, handed_ns, at_ns, fault, served: Some(served) });
            }
        }
    }
}

impl Target for Volume<'_> {
    fn now_ns(&mut self) -> u64 {
        self.driver.clock.now().since(self.began)
    }

    fn submit(&mut self, slot: u32, _place: u32, command: Command) {
        self.slots[slot as usize] = Some((command, None));
        self.waiting.push_back(slot);
        self.in_flight += 1;
    }

    fn wait(&mut self, until: Option<u64>, ended: &mut Vec<Ended>) -> u64 {
        self.pump(ended);
        while ended.is_empty() {
            let now = self.now_ns();
            if until.map_or(self.in_flight == 0, |until| now >= until) {
                break;
            }
            let limit = until.map(|until| Duration::from_nanos(until - now));
            self.driver.wait(self.engine, limit).expect("a ring that was set up takes I/O");
            self.driver.harvest(self.engine, |_| {});
            self.pump(ended);
        }
        self.now_ns()
    }

    fn payload(&mut self, slot: u32, len: u64) -> Option<&mut [u8]> {
        Some(&mut self.payload[slot as usize][..len as usize])
    }
}

impl LoadTarget for Volume<'_> {
    fn prepare(&mut self, slots: &[SlotSpec]) -> Result<(), RunError> {
        self.slots = vec![None; slots.len()];
        self.handed_ns = vec![0; slots.len()];
        self.payload.clear();
        for (n, slot) in slots.iter().enumerate() {
            let mut bytes = vec![0; slot.bytes as usize];
            if slot.random {
                stamped(&mut bytes, slot.seed, n as u64);
            }
            self.payload.push(bytes);
        }
        Ok(())
    }

    fn tiers(&mut self) -> Option<(u64, u64)> {
        let bytes = |tier: &bimetal_engine::options::TierStatus| tier.read_bytes + tier.written_bytes;
        let status = self.engine.status();
        Some((status.tiers.first().map_or(0, bytes), status.tiers.iter().map(bytes).sum()))
    }

    fn inside(&mut self) -> Option<Inside> {
        let status = self.engine.status();
        let chunk = u64::from(status.chunk_bytes);
        Some(Inside {
            promoted_bytes: status.promoted_chunks * chunk,
            demoted_bytes: status.demoted_chunks * chunk,
            copied_bytes: status.wear.copied_bytes,
            merged_bytes: status.destaged_blocks * u64::from(BLOCK_BYTES),
            device_bytes: 0,
        })
    }
}
