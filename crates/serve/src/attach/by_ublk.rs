//! The kernel's `ublk` driver as the way to a device of the machine. Its requests come as completions of the serving
//! loop's own ring, their payload is copied straight into the buffer that the engine gets, and answers go the same way.

use super::machine::{Device, Standing, Way};
use super::record::ublk_identity;
use super::{Kind, Record, Wish};
use crate::input::{cover_bytes, payload_of};
use crate::requests::{ConnId, Pending};
use crate::served::Served;
use crate::server::{Server, tag};
use bimetal_driver::Ring;
use bimetal_driver::ublk::{UblkControl, UblkOp, UblkPlace, UblkQueues, UblkRequest, UblkShape};
use bimetal_engine::action::{Request as EngineRequest, RequestError, RequestKind};
use bimetal_engine::arena::{Arena as _, Buf, Pool};
use bimetal_nbd::{Command, Request, Terms};
use bimetal_units::BLOCK_BYTES;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

/// Kinds of its tags: a request has come, a command has ended.
pub(crate) const UBLK: u64 = 9;
pub(crate) const UBLK_CONTROL: u64 = 10;

/// Queues at most: one thread serves them all, and more of them only spare the kernel's processors each other.
const MAX_QUEUES: u16 = 4;
/// Requests in each.
const QUEUE_DEPTH: u16 = 128;
/// The longest request: as long as the largest chunk is worth streaming.
const MAX_REQUEST_BYTES: u32 = 1 << 20;
/// A killed server has its device until the last of its I/O has ended.
const FREE_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A device by `ublk`.
pub(crate) struct MachineUblk {
    control: UblkControl,
    queues: Option<UblkQueues>,
    number: u32,
    step: Step,
    /// Fetches in flight.
    fetching: usize,
    /// Requests that wait for room.
    waiting: VecDeque<UblkPlace>,
}

/// Which command is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Starting,
    None,
    Stopping,
    Deleting,
}

/// Requests of the device, beside those of connections.
pub(crate) fn from_ublk(conn: ConnId) -> bool {
    conn.place == usize::MAX
}

const OURS: ConnId = ConnId { place: usize::MAX, generation: 0 };

impl MachineUblk {
    fn fetch_all(&mut self, ring: &mut Ring) -> io::Result<()> {
        let Some(queues) = &self.queues else { return Ok(()) };
        for place in queues.places() {
            queues.fetch(ring, place, tag(UBLK, queues.number(place)));
            self.fetching += 1;
        }
        // The kernel waits for the last of them.
        ring.submit()
    }

    fn answer(&mut self, ring: &mut Ring, place: UblkPlace, result: i32) {
        if let Some(queues) = &self.queues {
            queues.answer(ring, place, result, tag(UBLK, queues.number(place)));
            self.fetching += 1;
        }
    }

    /// Begins to take it away.
    pub(crate) fn begin_stop(&mut self, ring: &mut Ring) -> io::Result<()> {
        self.control.begin_stop(self.number)?;
        self.step = Step::Stopping;
        ring.poll_in(self.control.raw_fd(), tag(UBLK_CONTROL, 0));
        Ok(())
    }
}

/// Takes a device away that nobody serves, if it is this volume's.
pub(crate) fn remove(number: u32, identity: u64) -> io::Result<()> {
    let mut control = UblkControl::open()?;
    match control.info(number) {
        Ok(info) if info.identity == identity => control.remove(number),
        // Somebody else has the number: ours is gone.
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// What the engine makes of an error.
fn errno(error: RequestError) -> Errno {
    match error {
        RequestError::Io | RequestError::ShuttingDown => Errno::IO,
        RequestError::NoSpace => Errno::NOSPC,
        RequestError::ReadOnly => Errno::PERM,
        RequestError::Invalid => Errno::INVAL,
    }
}

/// The request as an NBD client would ask for it: they are checked alike.
fn as_nbd(cookie: u64, asked: UblkRequest) -> Option<(Request, RequestKind)> {
    let fua = asked.fua;
    let (command, kind) = match asked.op {
        UblkOp::Read => (Command::Read, RequestKind::Read),
        UblkOp::Write => (Command::Write, RequestKind::Write { fua }),
        UblkOp::Flush => return Some((Request::new(cookie, Command::Flush, 0, 0), RequestKind::Flush)),
        UblkOp::Discard => (Command::Trim, RequestKind::Discard { fua }),
        UblkOp::WriteZeroes => (Command::WriteZeroes, RequestKind::WriteZeroes { fua }),
        UblkOp::Unknown(_) => return None,
    };
    let length = u32::try_from(asked.len).ok()?;
    Some((Request { fua, ..Request::new(cookie, command, asked.offset, length) }, kind))
}

impl<V: Served> Server<V> {
    fn ublk_shape(&self, record: &Record) -> UblkShape {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u16);
        UblkShape {
            size_bytes: self.export().size_bytes,
            sector_bytes: record.sector_bytes,
            block_bytes: BLOCK_BYTES,
            chunk_bytes: self.engine.status().chunk_bytes,
            most_bytes: MAX_REQUEST_BYTES,
            read_only: record.wish.read_only || self.export().read_only,
            queues: processors.min(MAX_QUEUES),
            depth: QUEUE_DEPTH,
            identity: record.ublk_identity(),
        }
    }

    pub(crate) fn make_ublk(&mut self, wish: Wish) -> Result<Device, String> {
        let mut control = UblkControl::open().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                "/dev/ublk-control is not there (is the module ublk_drv loaded?)".to_owned()
            }
            _ => format!("/dev/ublk-control cannot be opened: {error}"),
        })?;
        control.suits()?;
        let mut record = self.new_record(Kind::Ublk, 0, wish);
        // One whose record was lost may be mounted.
        if let Some(left) = control.find(record.ublk_identity()) {
            record.number = left.number;
            let taken =
                self.take_up_ublk(&record).map_err(|error| format!("it cannot be taken up: {error}"))?;
            let way = Way::Ublk(Box::new(taken));
            return Ok(Device { record, way, standing: Standing::There, notes: Vec::new(), asker: None });
        }
        let made =
            control.add(&self.ublk_shape(&record)).map_err(|error| format!("the kernel refuses: {error}"))?;
        record.number = made.number;
        let queues = UblkQueues::open(&made).map_err(|error| {
            let _ = control.begin_delete(made.number);
            format!("its queues cannot be opened: {error}")
        })?;
        let (queues, number, step) = (Some(queues), made.number, Step::Starting);
        let mut ublk = MachineUblk { control, queues, number, step, fetching: 0, waiting: VecDeque::new() };
        let ring = &mut self.driver.ring;
        let started = ublk.fetch_all(ring).and_then(|()| ublk.control.begin_start(number));
        started.map_err(|error| format!("it cannot be started: {error}"))?;
        ring.poll_in(ublk.control.raw_fd(), tag(UBLK_CONTROL, 0));
        let way = Way::Ublk(Box::new(ublk));
        Ok(Device { record, way, standing: Standing::Coming, notes: Vec::new(), asker: None })
    }

    pub(crate) fn take_up_ublk(&mut self, record: &Record) -> io::Result<MachineUblk> {
        let mut control = UblkControl::open()?;
        let info = control.info(record.number)?;
        if info.identity != ublk_identity(&record.volume_id) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if info.is_stopped {
            control.remove(record.number)?;
            return Err(io::ErrorKind::NotFound.into());
        }
        let until = Instant::now() + FREE_WITHIN;
        while let Err(error) = control.start_recovery(record.number) {
            if error.kind() != io::ErrorKind::ResourceBusy || Instant::now() >= until {
                return Err(error);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let queues = Some(UblkQueues::open(&info)?);
        let (number, step) = (record.number, Step::None);
        let mut ublk = MachineUblk { control, queues, number, step, fetching: 0, waiting: VecDeque::new() };
        ublk.fetch_all(&mut self.driver.ring)?;
        ublk.control.end_recovery(number)?;
        Ok(ublk)
    }

    /// A fetch has ended: a request is there, or there are to be none any more.
    pub(crate) fn on_ublk(&mut self, number: usize, result: i32) {
        let Some(ublk) = self.machine.ublk() else { return };
        ublk.fetching = ublk.fetching.saturating_sub(1);
        match result {
            0 => {
                ublk.waiting.extend(ublk.queues.as_ref().map(|queues| queues.place(number)));
                self.serve_ublk();
            }
            _ if ublk.step != Step::None => self.go_on_deleting(),
            // The kernel ends what was asked of a ring that goes.
            _ if self.stopping => {}
            failed => {
                if !UblkQueues::is_abort(failed) {
                    let error = io::Error::from_raw_os_error(-failed);
                    tracing::error!("the kernel gives no more requests of {}: {error}", self.volume.0);
                }
                if ublk.fetching == 0 {
                    self.device_was_taken();
                }
            }
        }
    }

    /// Hands the engine what waits, as far as there is room.
    pub(crate) fn serve_ublk(&mut self) {
        // What comes now is the next server's.
        while !self.stopping
            && self.engine.has_room()
            && self.requests.has_room()
            && let Some(place) = self.machine.ublk().and_then(|ublk| ublk.waiting.front().copied())
        {
            if !self.begin_ublk(place) {
                return;
            }
            if let Some(ublk) = self.machine.ublk() {
                ublk.waiting.pop_front();
            }
        }
    }

    /// False: there is no buffer for it now.
    fn begin_ublk(&mut self, place: UblkPlace) -> bool {
        let Some(ublk) = self.machine.ublk() else { return true };
        let Some(queues) = &ublk.queues else { return true };
        let asked = queues.request(place);
        let cookie = queues.number(place) as u64;
        let valid = as_nbd(cookie, asked)
            .filter(|(request, _)| request.validate(self.export(), &Terms::default()).is_ok());
        let Some((request, kind)) = valid else {
            self.end_ublk(place, -Errno::INVAL.raw_os_error());
            return true;
        };
        let carries = matches!(kind, RequestKind::Read | RequestKind::Write { .. });
        let mut buf = None;
        if carries {
            let cover = cover_bytes(request.offset, request.length);
            buf = self.engine.with_arena(|arena| arena.alloc(Pool::Client, cover));
            if buf.is_none() {
                return false;
            }
        }
        let payload = buf.map(|buf| payload_of(buf, &request));
        if let (RequestKind::Write { .. }, Some(to)) = (kind, payload)
            && let Err(error) = self.copy_from_ublk(place, to)
        {
            buf.into_iter().for_each(|buf| self.engine.with_arena(|arena| arena.free(buf)));
            self.end_ublk(place, -error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()));
            return true;
        }
        let now = self.now();
        let read = payload.filter(|_| kind == RequestKind::Read);
        let id = self.requests.insert(Pending { conn: OURS, request, buf, read, began: now });
        let (offset, len) = (request.offset, u64::from(request.length));
        self.note_for_plans(now, kind, offset, len);
        self.engine.on_request(now, EngineRequest { id, kind, offset, len, buf });
        true
    }

    fn copy_from_ublk(&mut self, place: UblkPlace, to: Buf) -> io::Result<()> {
        let queues = self.machine.ublk().and_then(|ublk| ublk.queues.as_ref());
        let Some(queues) = queues else { return Ok(()) };
        self.engine.with_arena(|arena| queues.copy_from(place, arena.payload_mut(to)))
    }

    /// The engine has answered a request of the device.
    pub(crate) fn answer_ublk(&mut self, pending: &Pending, result: Result<(), RequestError>) {
        let queues = self.machine.ublk().and_then(|ublk| ublk.queues.as_ref());
        let place = queues.map(|queues| queues.place(pending.request.cookie as usize));
        let copied = match (queues, place, pending.read) {
            (Some(queues), Some(place), Some(from)) if result.is_ok() => {
                self.engine.with_arena(|arena| queues.copy_to(place, arena.payload(from)))
            }
            _ => Ok(()),
        };
        if let Some(buf) = pending.buf {
            self.engine.with_arena(|arena| arena.free(buf));
        }
        let carries = matches!(pending.request.command, Command::Read | Command::Write);
        let answer = match (result, copied) {
            (Err(error), _) => -errno(error).raw_os_error(),
            (Ok(()), Err(error)) => -error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
            // At most `MAX_REQUEST_BYTES`.
            (Ok(()), Ok(())) if carries => pending.request.length as i32,
            (Ok(()), Ok(())) => 0,
        };
        if let Some(place) = place {
            self.end_ublk(place, answer);
        }
    }

    fn end_ublk(&mut self, place: UblkPlace, result: i32) {
        if let Some(Device { way: Way::Ublk(ublk), .. }) = &mut self.machine.device {
            ublk.answer(&mut self.driver.ring, place, result);
        }
    }

    /// A command about the device has ended.
    pub(crate) fn hear_ublk_control(&mut self) {
        let Some(ublk) = self.machine.ublk() else { return };
        let Some(result) = ublk.control.take() else {
            let fd = ublk.control.raw_fd();
            return self.driver.ring.poll_in(fd, tag(UBLK_CONTROL, 0));
        };
        let result = result.map(drop);
        match (ublk.step, result) {
            (Step::Starting, Ok(())) => {
                ublk.step = Step::None;
                match self.stopping {
                    true => self.leave_device(),
                    false => self.device_came(),
                }
            }
            (Step::Starting, Err(error)) => {
                let number = ublk.number;
                self.device_failed(&format!("it cannot be shown: {error}"));
                // Its queues are closed by now.
                if let Ok(mut control) = UblkControl::open() {
                    let _ = control.begin_delete(number);
                }
            }
            (Step::Stopping, _) => {
                ublk.step = Step::Deleting;
                self.go_on_deleting();
            }
            (Step::Deleting, _) => self.device_went(),
            (Step::None, _) => {}
        }
    }

    /// The kernel forgets a device that was stopped, once its queues are closed, for which the last fetch has to end.
    fn go_on_deleting(&mut self) {
        let Some(Device { way: Way::Ublk(ublk), .. }) = &mut self.machine.device else { return };
        if ublk.step != Step::Deleting || ublk.fetching > 0 || ublk.queues.take().is_none() {
            return;
        }
        ublk.waiting.clear();
        match ublk.control.begin_delete(ublk.number) {
            Ok(()) => self.driver.ring.poll_in(ublk.control.raw_fd(), tag(UBLK_CONTROL, 0)),
            Err(_) => self.device_went(),
        }
    }
}
