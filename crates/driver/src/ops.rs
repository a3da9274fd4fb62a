//! Device operations in flight: short I/O is finished here, so that a completion means all of it, and what a model
//! times is held back until its time has come.

use crate::device::{BlockFile, GiveBack, IO_BYTES};
use crate::load::{Asked, Ended, Loads};
use crate::modelled::{Lateness, Modelled};
use crate::remote::{Ask, Remote};
use crate::ring::{MAX_PARTS, Ring};
use bimetal_engine::action::{Action, BufList, DeviceError, Token};
use bimetal_engine::arena::Buf;
use bimetal_models::{Command, Done};
use bimetal_replace::Before;
use bimetal_units::{Nanos, Tier};

/// Tries of one operation that is interrupted or told to come again.
const MAX_RETRIES: u32 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write {
        dsync: bool,
    },
    Flush,
    Discard {
        len: u64,
        refilled: bool,
        way: GiveBack,
    },
    /// Not handed to the device, and failed.
    Refused,
}

#[derive(Debug)]
struct DeviceOp {
    kind: Kind,
    device: usize,
    /// Where the part that is left begins.
    offset: u64,
    /// The buffers of the part that is left.
    bufs: BufList,
    token: Token,
    retries: u32,
    /// When it was handed to the device.
    began: Nanos,
    /// Of its payload.
    bytes: u64,
    /// On a modelled device.
    timed: Option<Timed>,
}

/// An operation that ends when the device and the model have both ended it.
#[derive(Debug)]
struct Timed {
    command: Command,
    since: Nanos,
    /// When the model ended it.
    due: Option<Nanos>,
    /// What the device said, when it has ended.
    result: Option<Result<(), DeviceError>>,
}

/// The operations in flight, named by their place.
#[derive(Debug, Default)]
pub(crate) struct DeviceOps {
    ops: Vec<Option<DeviceOp>>,
    free: Vec<u32>,
    /// Those that only a model holds back.
    held: usize,
    lateness: Lateness,
    loads: Loads,
}

/// What became of a completion.
pub(crate) enum Outcome {
    /// The operation goes on.
    Pending,
    /// Tell the machine.
    Done(Token, Result<(), DeviceError>),
}

impl DeviceOps {
    /// Operations in flight.
    pub(crate) fn len(&self) -> usize {
        self.ops.len() - self.free.len()
    }

    /// All of them, with the devices they are of.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Tier, Token, Before)> {
        self.ops.iter().flatten().map(|op| {
            let before = match op.kind {
                Kind::Read | Kind::Refused => Before::Reads,
                Kind::Write { .. } | Kind::Discard { .. } => Before::Changes,
                Kind::Flush => Before::Flushes,
            };
            (Tier(op.device as u8), op.token, before)
        })
    }

    /// Operations in flight that the ring will complete.
    pub(crate) fn in_ring(&self) -> usize {
        self.len() - self.held
    }

    /// How exactly the models' times were kept.
    pub(crate) fn lateness(&self) -> Lateness {
        self.lateness
    }

    /// What each device was asked for so far.
    pub(crate) fn loads(&self) -> &Loads {
        &self.loads
    }

    /// Submits a device action, to the device's model too. Replies are not for this.
    pub(crate) fn start(
        &mut self,
        now: Nanos,
        action: Action,
        ring: &mut Ring,
        devices: &[BlockFile],
        models: &mut [Option<Modelled>],
        remotes: &mut [Option<Remote>],
    ) {
        let none = BufList::new();
        let (kind, device, offset, bufs, token) = match action {
            Action::Read { device, offset, buf, token, .. } => {
                (Kind::Read, device, offset, std::iter::once(buf).collect(), token)
            }
            Action::Write { device, offset, bufs, fua, token, .. } => {
                assert!(!bufs.is_empty() && bufs.len() <= MAX_PARTS, "a write of {} buffers", bufs.len());
                (Kind::Write { dsync: fua }, device, offset, bufs, token)
            }
            Action::Flush { device, token } => (Kind::Flush, device, 0, none, token),
            Action::Discard { device, offset, len, refilled, token } => {
                let way = devices[usize::from(device.0)].give_back(refilled);
                (Kind::Discard { len, refilled, way }, device, offset, none, token)
            }
            Action::Reply { .. } => return,
        };
        let aligned = |bytes: u64| bytes.is_multiple_of(u64::from(IO_BYTES));
        assert!(
            aligned(offset) && bufs.iter().all(|buf| aligned(buf.start) && aligned(u64::from(buf.len))),
            "I/O at {offset} is not in whole blocks"
        );
        let bytes = bufs.iter().map(|buf| u64::from(buf.len)).sum();
        let device = usize::from(device.0);
        let mut op =
            DeviceOp { kind, device, offset, bufs, token, retries: 0, began: now, bytes, timed: None };
        self.loads.begin(device, now);
        let place = self.free.pop().unwrap_or_else(|| {
            self.ops.push(None);
            self.ops.len() as u32 - 1
        });
        if let Some(model) = models.get_mut(op.device).and_then(Option::as_mut) {
            let command = op.command();
            model.submit(now, place, command);
            op.timed = Some(Timed { command, since: now, due: None, result: None });
        }
        submit(now, &op, place, ring, devices, remotes);
        self.ops[place as usize] = Some(op);
    }

    /// Fails a device action without asking the device.
    pub(crate) fn refuse(&mut self, action: Action, ring: &mut Ring) {
        let (device, token) = match action {
            Action::Read { device, token, .. }
            | Action::Write { device, token, .. }
            | Action::Flush { device, token }
            | Action::Discard { device, token, .. } => (device, token),
            Action::Reply { .. } => return,
        };
        let (device, bufs) = (usize::from(device.0), BufList::new());
        let kind = Kind::Refused;
        let began = Nanos::default();
        let op = DeviceOp { kind, device, offset: 0, bufs, token, retries: 0, began, bytes: 0, timed: None };
        let place = self.keep(op);
        ring.nop(u64::from(place));
    }

    /// A place for an operation.
    fn keep(&mut self, op: DeviceOp) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.ops[place as usize] = Some(op);
                place
            }
            None => {
                self.ops.push(Some(op));
                self.ops.len() as u32 - 1
            }
        }
    }

    /// Takes the device's result of the operation at `place`.
    pub(crate) fn complete(
        &mut self,
        now: Nanos,
        place: u32,
        result: i32,
        ring: &mut Ring,
        devices: &mut [BlockFile],
        remotes: &mut [Option<Remote>],
    ) -> Outcome {
        let Some(op) = self.ops.get_mut(place as usize).and_then(Option::as_mut) else {
            return Outcome::Pending;
        };
        let device = &mut devices[op.device];
        let outcome = match -result {
            libc::EINTR | libc::EAGAIN if op.retries < MAX_RETRIES => {
                op.retries += 1;
                None
            }
            errno if errno > 0 => op.failed(errno, device),
            _ => op.advance(result as u32),
        };
        match outcome {
            None => {
                submit(now, op, place, ring, devices, remotes);
                Outcome::Pending
            }
            Some(result) => match &mut op.timed {
                Some(timed) if timed.due.is_none() => {
                    timed.result = Some(result);
                    self.held += 1;
                    Outcome::Pending
                }
                _ => self.end(now, place, result),
            },
        }
    }

    /// The model has ended an operation. What it failed it is asked for again: a model says how long something takes,
    /// and what the file can do does not fail for it.
    pub(crate) fn model_ended(&mut self, now: Nanos, done: Done, model: &mut Modelled) -> Outcome {
        let place = done.tag as u32;
        let Some(op) = self.ops.get_mut(place as usize).and_then(Option::as_mut) else {
            return Outcome::Pending;
        };
        let Some(timed) = &mut op.timed else { return Outcome::Pending };
        if done.failure.is_some() {
            model.submit(now, place, timed.command);
            return Outcome::Pending;
        }
        timed.due = Some(done.at);
        match timed.result.take() {
            None => Outcome::Pending,
            Some(result) => {
                self.held -= 1;
                self.end(now, place, result)
            }
        }
    }

    fn end(&mut self, now: Nanos, place: u32, result: Result<(), DeviceError>) -> Outcome {
        let Some(op) = self.ops[place as usize].take() else { return Outcome::Pending };
        self.free.push(place);
        if let Some(Timed { since, due: Some(due), .. }) = op.timed {
            self.lateness.count(due.since(since), now.since(due));
        }
        let asked = match op.kind {
            Kind::Read => Some(Asked::Read),
            Kind::Write { .. } => Some(Asked::Write),
            Kind::Flush | Kind::Discard { .. } => Some(Asked::Other),
            Kind::Refused => None,
        };
        if let Some(asked) = asked {
            self.loads.end(
                op.device,
                now,
                &Ended { asked, bytes: op.bytes, began: op.began, ok: result.is_ok() },
            );
        }
        Outcome::Done(op.token, result)
    }
}

impl DeviceOp {
    /// The same to a model.
    fn command(&self) -> Command {
        let bytes = self.bufs.iter().map(|buf| u64::from(buf.len)).sum();
        let (kind, len) = match self.kind {
            Kind::Read => (bimetal_models::Kind::Read, bytes),
            Kind::Write { dsync } => (bimetal_models::Kind::Write { fua: dsync }, bytes),
            Kind::Flush => (bimetal_models::Kind::Flush, 0),
            Kind::Discard { len, .. } => (bimetal_models::Kind::Discard, len),
            Kind::Refused => (bimetal_models::Kind::Flush, 0),
        };
        Command { kind, offset: self.offset, len }
    }

    /// The same to an export; `None` where nothing is asked of it.
    fn ask(&self) -> Option<Ask> {
        let offset = self.offset;
        match self.kind {
            Kind::Read => self.bufs.first().map(|&buf| Ask::Read { offset, buf }),
            Kind::Write { dsync } => Some(Ask::Write { offset, bufs: self.bufs.clone(), durable: dsync }),
            Kind::Flush => Some(Ask::Flush),
            Kind::Discard { way: GiveBack::Nothing, .. } | Kind::Refused => None,
            Kind::Discard { len, .. } => Some(Ask::Trim { offset, len }),
        }
    }

    /// What an error means; `None` when there is another way to try.
    fn failed(&mut self, errno: i32, device: &mut BlockFile) -> Option<Result<(), DeviceError>> {
        let Kind::Discard { way, refilled, .. } = &mut self.kind else {
            return Some(Err(DeviceError { errno }));
        };
        // How kernels and devices say that they do not know the command.
        if matches!(errno, libc::EOPNOTSUPP | libc::EINVAL | libc::ENOTTY | libc::ENOSYS) {
            device.cannot_give_back(*way);
            let next = device.give_back(*refilled);
            if next < *way && next != GiveBack::Nothing {
                *way = next;
                return None;
            }
        }
        // A hint that was not taken.
        Some(Ok(()))
    }

    /// Takes note of `done` more bytes; `None` when some are left.
    fn advance(&mut self, mut done: u32) -> Option<Result<(), DeviceError>> {
        match self.kind {
            Kind::Flush | Kind::Discard { .. } => return Some(Ok(())),
            Kind::Refused => return Some(Err(DeviceError { errno: libc::EIO })),
            Kind::Read | Kind::Write { .. } => {}
        }
        if done == 0 {
            // The end of the file, or a device that takes nothing more.
            return Some(Err(DeviceError { errno: libc::EIO }));
        }
        self.offset += u64::from(done);
        let mut left = BufList::new();
        for buf in self.bufs.drain(..) {
            let used = done.min(buf.len);
            done -= used;
            if used < buf.len {
                left.push(buf.slice(used, buf.len - used));
            }
        }
        self.bufs = left;
        self.bufs.is_empty().then_some(Ok(()))
    }
}

fn submit(
    now: Nanos,
    op: &DeviceOp,
    place: u32,
    ring: &mut Ring,
    devices: &[BlockFile],
    remotes: &mut [Option<Remote>],
) {
    let (device, tag) = (&devices[op.device], u64::from(place));
    let Some(fd) = device.raw_fd() else {
        return match remotes.get_mut(op.device).and_then(Option::as_mut).zip(op.ask()) {
            Some((remote, ask)) => remote.ask(now, ask, tag),
            None => ring.nop(tag),
        };
    };
    let (now, at) = (device.is_in_memory(), device.base() + op.offset);
    match op.kind {
        Kind::Read => {
            let buf = op.bufs.first().copied().unwrap_or(Buf { start: 0, len: 0 });
            match now {
                true => ring.read_now(fd, at, buf, tag),
                false => ring.read(fd, at, buf, tag),
            }
        }
        Kind::Write { dsync } if now => ring.write_now(fd, at, &op.bufs, dsync, tag),
        Kind::Flush if now => ring.flush_now(fd, tag),
        Kind::Write { dsync } => ring.write(fd, at, &op.bufs, dsync, tag),
        Kind::Flush => ring.flush(fd, tag),
        Kind::Discard { len, way: GiveBack::Discard, .. } => ring.discard(fd, at, len, tag),
        Kind::Discard { len, way: GiveBack::Punch, .. } => ring.punch(fd, at, len, tag),
        Kind::Discard { way: GiveBack::Nothing, .. } | Kind::Refused => ring.nop(tag),
    }
}
