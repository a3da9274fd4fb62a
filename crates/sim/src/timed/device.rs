//! A modelled device with the metadata that was written to it.

use crate::timed::NoDataArena;
use crate::timed::store::Store;
use bimetal_engine::action::{Action, DeviceError, Machine, Token};
use bimetal_engine::arena::{Arena as _, Buf};
use bimetal_engine::slab::Slab;
use bimetal_models::{Command, Done, Kind, Model, Usage};
use bimetal_units::Nanos;

/// The error number of models: EIO.
const EIO: DeviceError = DeviceError { errno: 5 };

/// What has to be done to the contents when a command has ended.
enum Effect {
    /// Nothing: payload came, or nothing changes.
    None,
    Read {
        offset: u64,
        buf: Buf,
    },
    /// The buffer is the engine's until the completion, so it is looked at then.
    Write {
        offset: u64,
        len: u64,
        bufs: Vec<(u64, Buf)>,
    },
    Clear {
        offset: u64,
        len: u64,
    },
}

struct InFlight {
    token: Token,
    effect: Effect,
}

/// A device of a volume in virtual time.
pub struct TimedDevice {
    model: Box<dyn Model>,
    store: Store,
    /// By the tag that the model has for them.
    in_flight: Slab<InFlight>,
    done: Vec<Done>,
}

impl TimedDevice {
    /// A device that holds zeros.
    pub fn new(model: Box<dyn Model>) -> TimedDevice {
        TimedDevice {
            store: Store::new(model.size_bytes()),
            model,
            in_flight: Slab::new(usize::MAX),
            done: Vec::new(),
        }
    }

    /// Bytes that it holds.
    pub fn size_bytes(&self) -> u64 {
        self.model.size_bytes()
    }

    /// What it holds there, which takes no time: whoever looks is not of the volume.
    pub(crate) fn look(&self, offset: u64, bytes: u64) -> Vec<u8> {
        let mut held = vec![0; bytes as usize];
        self.store.read(offset, &mut held);
        held
    }

    /// What the model has done so far.
    pub fn usage(&self) -> Usage {
        self.model.usage()
    }

    /// Takes an action for this device; replies are not for devices.
    pub(crate) fn submit(&mut self, now: Nanos, action: Action) {
        let payload = NoDataArena::is_payload;
        let (token, command, effect) = match action {
            Action::Read { offset, buf, token, .. } => {
                let effect = if payload(buf) { Effect::None } else { Effect::Read { offset, buf } };
                (token, Command { kind: Kind::Read, offset, len: u64::from(buf.len) }, effect)
            }
            Action::Write { offset, bufs, fua, token, .. } => {
                let len = bufs.iter().map(|buf| u64::from(buf.len)).sum();
                let mut at = offset;
                let mut kept = Vec::new();
                for &buf in &bufs {
                    if !payload(buf) {
                        kept.push((at, buf));
                    }
                    at += u64::from(buf.len);
                }
                let command = Command { kind: Kind::Write { fua }, offset, len };
                (token, command, Effect::Write { offset, len, bufs: kept })
            }
            Action::Flush { token, .. } => {
                (token, Command { kind: Kind::Flush, offset: 0, len: 0 }, Effect::None)
            }
            Action::Discard { offset, len, token, .. } => {
                (token, Command { kind: Kind::Discard, offset, len }, Effect::Clear { offset, len })
            }
            Action::Reply { .. } => return,
        };
        let tag = u64::from(self.in_flight.insert(InFlight { token, effect }));
        self.model.submit(now, tag, command);
    }

    /// When to call [`TimedDevice::advance`] next at the latest.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.model.deadline()
    }

    /// Brings the device to `now` and gives what has ended by then to the machine.
    pub(crate) fn advance<M: Machine<Arena = NoDataArena>>(&mut self, now: Nanos, machine: &mut M) {
        let mut done = std::mem::take(&mut self.done);
        self.model.advance(now, &mut done);
        for Done { tag, failure, .. } in done.drain(..) {
            let io = self.in_flight.remove(tag as u32);
            let result = match failure {
                None => {
                    self.take_effect(machine, io.effect);
                    Ok(())
                }
                Some(_) => Err(EIO),
            };
            machine.on_completion(now, io.token, result);
        }
        self.done = done;
    }

    fn take_effect<M: Machine<Arena = NoDataArena>>(&mut self, machine: &mut M, effect: Effect) {
        let store = &mut self.store;
        match effect {
            Effect::None => {}
            Effect::Read { offset, buf } => {
                machine.with_arena(|arena| store.read(offset, arena.bytes_mut(buf)));
            }
            Effect::Write { offset, len, bufs } => {
                store.clear(offset, len);
                for (at, buf) in bufs {
                    machine.with_arena(|arena| store.write(at, arena.bytes(buf)));
                }
            }
            Effect::Clear { offset, len } => store.clear(offset, len),
        }
    }

    /// The process that uses the device is being killed: what it has handed over happens, and nobody hears of it.
    pub(crate) fn outlive<M: Machine<Arena = NoDataArena>>(&mut self, now: Nanos, machine: &mut M) -> Nanos {
        let mut end = now;
        while let Some(next) = self.model.deadline() {
            end = end.max(next);
            self.model.advance(end, &mut self.done);
        }
        self.done.clear();
        let left: Vec<u32> = self.in_flight.iter().map(|(tag, _)| tag).collect();
        for tag in left {
            match self.in_flight.remove(tag).effect {
                Effect::Read { .. } => {}
                effect => self.take_effect(machine, effect),
            }
        }
        end
    }
}
