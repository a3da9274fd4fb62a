//! The slow device as an export of a server: the session of production between the engine and the disk, connections that
//! break, answers that come late or after their connection, and a server that dies and forgets what it was not made to keep.

mod server;

use super::storm::Break;
use super::{Io, Staged, Work, World};
use crate::coverage::Fault;
use crate::disk::{CutStyle, IoId};
use bimetal_engine::action::{Action, Class, DeviceError};
use bimetal_engine::arena::Buf;
use bimetal_nbd::REQUEST_HEADER_BYTES;
use bimetal_remote::{Agreed, Ask, News, Outbox, PIECE_BYTES, Part, Payload, Seal, Session, Wish};
use bimetal_units::rng::Rng;
use bimetal_units::{BLOCK_BYTES, Nanos, SLOW};
use server::Line;
pub(super) use server::Served;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// The device that an export may be.
pub(super) const DEVICE: usize = SLOW.0 as usize;
/// Parts that are sent at a time.
const PARTS: usize = 64;
/// Room for their headers, and for a longest request of what is written again.
const SCRATCH_BYTES: usize = PIECE_BYTES as usize + PARTS * REQUEST_HEADER_BYTES;
/// An I/O that took longer, ns, counts as one that met a stall.
const LONG_NS: u64 = 500_000_000;

/// What a server offers, and how it is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Export {
    /// Connections; more than one where the server lets them see the same.
    pub connections: usize,
    /// A write can be made durable by itself.
    pub fua: bool,
    /// It takes trims.
    pub trim: bool,
    /// It answers reads in chunks.
    pub structured: bool,
    /// The longest request.
    pub most_bytes: u32,
    /// What may be written and not flushed.
    pub journal_bytes: u64,
    /// Reads and writes wait so long for a server that is away.
    pub patience_ns: u64,
    /// The way there, and back.
    pub latency_ns: u64,
}

impl Export {
    fn agreed(&self, size_bytes: u64) -> Agreed {
        Agreed {
            size_bytes,
            read_only: false,
            flush: true,
            fua: self.fua,
            trim: self.trim,
            multi: self.connections > 1,
            most_bytes: self.most_bytes,
        }
    }
}

/// Something that happens between the session and the server; the numbers are those of the connections, counted since the
/// beginning, and of one among them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// The kernel has let go of what was sent last.
    Sent(u64, usize),
    /// So many bytes more have come to the server.
    Arrived(u64, usize, usize),
    /// So many bytes more have come back.
    Returned(u64, usize, usize),
    /// The connections are closed.
    Closed(u64),
    /// An attempt to connect has come to its end.
    Dialed,
}

/// An operation of the machine's that the session has.
struct Asked {
    io: Io,
    since: Nanos,
    /// What it writes: it is to stay so.
    data: Vec<u8>,
}

/// An export in use.
pub(super) struct Remote {
    export: Export,
    session: Session,
    lines: Vec<Line>,
    /// Connections so far.
    epoch: u64,
    is_closing: bool,
    asked: BTreeMap<u64, Asked>,
    next_tag: u64,
    answers: VecDeque<(u64, i32)>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    next_event: u64,
    breaks: VecDeque<Break>,
    /// Requests that were served since the last break.
    served: u32,
    away_until: Nanos,
    /// Answers whose connection is gone, which somebody between brings on the next one.
    late: Vec<u8>,
    brings_late: bool,
    /// With the connections that are being closed, the server dies.
    dies: Option<CutStyle>,
    scratch: Vec<u8>,
    rng: Rng,
}

/// The memory of a machine.
struct Memory<'a, M>(&'a mut M);

impl<M: Staged> Payload for Memory<'_, M> {
    fn load(&mut self, buf: Buf, out: &mut Vec<u8>) {
        self.0.with_arena(|arena| out.extend_from_slice(arena.payload(buf)));
    }

    fn store(&mut self, buf: Buf, bytes: &[u8]) {
        let buf = buf.slice(0, bytes.len() as u32);
        self.0.with_arena(|arena| arena.payload_mut(buf).copy_from_slice(bytes));
    }
}

impl Remote {
    fn new(export: Export, size_bytes: u64, now: Nanos, rng: Rng) -> Remote {
        let mut session = Session::new(export.agreed(size_bytes), export.patience_ns, now);
        session.limit_journal(export.journal_bytes);
        Remote {
            export,
            session,
            lines: Vec::new(),
            epoch: 0,
            is_closing: false,
            asked: BTreeMap::new(),
            next_tag: 0,
            answers: VecDeque::new(),
            events: BinaryHeap::new(),
            next_event: 0,
            breaks: VecDeque::new(),
            served: 0,
            away_until: Nanos(0),
            late: Vec::new(),
            brings_late: false,
            dies: None,
            scratch: vec![0; SCRATCH_BYTES],
            rng,
        }
    }

    fn at(&mut self, at: Nanos, event: Event) {
        self.next_event += 1;
        self.events.push(Reverse((at.0, self.next_event, event)));
    }

    /// A way through the network that begins now.
    fn arrival(&mut self, now: Nanos) -> Nanos {
        now.after(self.rng.range(self.export.latency_ns / 2, self.export.latency_ns * 2))
    }

    pub(super) fn is_busy(&self) -> bool {
        !self.asked.is_empty()
    }

    /// When something is to be done next.
    pub(super) fn next(&self, now: Nanos) -> Option<Nanos> {
        if !self.answers.is_empty() {
            return Some(now);
        }
        let event = self.events.peek().map(|Reverse((at, ..))| Nanos(*at));
        let deadline = self.session.deadline();
        [event, deadline].into_iter().flatten().min().map(|at| at.max(now))
    }
}

impl World {
    /// From now on the slow device is reached through a session.
    pub fn put_behind(&mut self, export: Export) {
        let rng = Rng::new(self.rng.next_u64(), 0x6578_706f);
        self.remote = Some(Box::new(Remote::new(export, self.disks[DEVICE].size_bytes(), self.now, rng)));
    }

    /// From now on the export is the slow device of this volume, opened under this generation.
    pub fn seal_export(&mut self, volume: [u8; 16], generation: u64, second_at: u64) {
        if let Some(remote) = &mut self.remote {
            remote.session.seal(Seal::of_slow_device(volume, generation, second_at));
        }
    }

    /// Whether something is written to an export, or may be written again: what goes bad there may be made good by it.
    pub fn owes_export(&self) -> bool {
        let writes = |asked: &Asked| matches!(asked.io.work, Work::Write { .. });
        self.remote.as_ref().is_some_and(|remote| {
            remote.session.standing().journal_bytes > 0 || remote.asked.values().any(writes)
        })
    }

    /// The server makes durable what it has, as any may at any time: what goes bad then stays bad when it dies.
    pub fn write_back(&mut self) {
        if self.remote.is_some() {
            self.disks[DEVICE].lose_cache(CutStyle::KeepAll, &mut self.rng);
        }
    }

    /// The connections will break so, one time after the other.
    pub(super) fn break_as(&mut self, breaks: &[Break]) {
        if let Some(remote) = &mut self.remote {
            remote.breaks = breaks.iter().copied().collect();
            remote.served = 0;
        }
    }

    /// Nothing breaks any more, and the server is there.
    pub(super) fn mend_lines(&mut self) {
        let Some(remote) = &mut self.remote else { return };
        remote.breaks.clear();
        remote.away_until = Nanos(0);
    }

    /// The session takes an action of the machine's.
    pub(super) fn ask_export<M: Staged>(&mut self, machine: &mut M, action: Action) -> Result<(), String> {
        let block = u64::from(BLOCK_BYTES);
        let (token, log, work, offset, len, what) = match action {
            Action::Read { offset, buf, token, class, .. } => {
                (token, class == Class::Log, Work::Read { offset, buf }, offset, buf.len.into(), "read")
            }
            Action::Write { offset, bufs, fua, token, class, .. } => {
                let len = bufs.iter().map(|b| u64::from(b.len)).sum();
                (token, class == Class::Log, Work::Write { bufs, fua }, offset, len, "write")
            }
            Action::Discard { offset, len, token, .. } => {
                (token, false, Work::Discard, offset, len, "discard")
            }
            Action::Flush { token, .. } => (token, false, Work::Flush, 0, block, "flush"),
            Action::Reply { .. } => return Ok(()),
        };
        let device = self.check_range(SLOW, offset, len, what)?;
        self.note([12, offset, len]);
        let pages = offset / block..(offset + len) / block;
        match work {
            Work::Write { .. } | Work::Discard if self.read_only => {
                return Err(format!("a {what} in a check, at {offset}"));
            }
            Work::Discard => self.truth.discarded(device, pages),
            _ => {}
        }
        let id = IoId(0);
        let io = Io { id, device, token, error: None, absent: false, stalled: false, decay: None, log, work };
        self.give_session(machine, io, offset, len);
        Ok(())
    }

    fn give_session<M: Staged>(&mut self, machine: &mut M, io: Io, offset: u64, len: u64) {
        let Some(remote) = &mut self.remote else { return };
        let mut data = Vec::new();
        let ask = match &io.work {
            Work::Read { buf, .. } => Ask::Read { offset, buf: *buf },
            Work::Write { bufs, fua } => {
                machine.with_arena(|arena| {
                    bufs.iter().for_each(|&buf| data.extend_from_slice(arena.payload(buf)));
                });
                self.truth.written(DEVICE, offset / u64::from(BLOCK_BYTES), &data);
                Ask::Write { offset, bufs: bufs.clone(), durable: *fua }
            }
            Work::Discard => Ask::Trim { offset, len },
            Work::Flush | Work::Served(..) | Work::Gone => Ask::Flush,
        };
        remote.next_tag += 1;
        remote.asked.insert(remote.next_tag, Asked { io, since: self.now, data });
        remote.session.ask(self.now, ask, remote.next_tag);
    }

    /// Does what the session wants.
    pub(super) fn drive_export<M: Staged>(&mut self, machine: &mut M) -> Result<(), String> {
        let Some(mut remote) = self.remote.take() else { return Ok(()) };
        let now = self.now;
        remote.session.on_time(now);
        if remote.session.wish(now) == Wish::Close && !remote.is_closing {
            self.end_lines(machine, &mut remote);
        }
        if remote.session.wish(now) == Wish::Dial {
            remote.session.dialing();
            let at = remote.arrival(now);
            remote.at(at, Event::Dialed);
        }
        if remote.session.wish(now) == Wish::Serve {
            (0..remote.lines.len()).for_each(|line| remote.send(machine, line, now));
        }
        while let Some(answer) = remote.session.take_done() {
            remote.answers.push_back(answer);
        }
        let news = remote.session.take_news();
        if self.trace {
            news.iter().for_each(|news| eprintln!("{:>12} the export: {news:?}", now.0));
        }
        let lost = news.into_iter().find_map(|news| match news {
            News::Lost(why) => Some(why),
            News::Broke(_) | News::Back { .. } | News::Failed(_) => None,
        });
        self.remote = Some(remote);
        // An export whose superblocks were damaged is another matter.
        match lost.filter(|_| !self.forgives_lost) {
            Some(why) => Err(format!("the export was given up: {why}")),
            None => Ok(()),
        }
    }

    /// Whether the next thing that happens, by now, is one of the export's; it happens then.
    pub(super) fn export_goes_on<M: Staged>(&mut self, machine: &mut M) -> Result<bool, String> {
        let Some(mut remote) = self.remote.take() else { return Ok(false) };
        if let Some((tag, result)) = remote.answers.pop_front() {
            let asked = remote.asked.remove(&tag);
            self.remote = Some(remote);
            let asked = asked.ok_or("the session answers what was not asked, or twice")?;
            self.answer(machine, asked, result)?;
        } else if remote.events.peek().is_some_and(|Reverse((at, ..))| *at <= self.now.0) {
            let Some(Reverse((.., event))) = remote.events.pop() else { return Ok(false) };
            self.happen(machine, &mut remote, event);
            self.remote = Some(remote);
        } else {
            let is_due = remote.session.deadline().is_some_and(|at| at <= self.now);
            self.remote = Some(remote);
            if !is_due {
                return Ok(false);
            }
        }
        self.drive_export(machine)?;
        Ok(true)
    }

    fn happen<M: Staged>(&mut self, machine: &mut M, remote: &mut Remote, event: Event) {
        let now = self.now;
        match event {
            Event::Sent(epoch, line) if epoch == remote.epoch => {
                remote.lines[line].is_sending = false;
                remote.session.sent(line, now, &mut Memory(machine));
            }
            Event::Arrived(epoch, line, bytes) if epoch == remote.epoch && !remote.is_closing => {
                remote.lines[line].arrive(bytes);
                self.take_requests(remote, line);
            }
            Event::Returned(epoch, line, bytes) if epoch == remote.epoch && !remote.is_closing => {
                let bytes = remote.lines[line].take_back(bytes);
                remote.session.received(line, now, &bytes, &mut Memory(machine));
            }
            Event::Sent(..) | Event::Arrived(..) | Event::Returned(..) => {}
            Event::Closed(epoch) if epoch == remote.epoch => {
                remote.lines.clear();
                remote.epoch += 1;
                remote.is_closing = false;
                remote.session.closed(now, &mut Memory(machine));
            }
            Event::Closed(_) => {}
            Event::Dialed if now < remote.away_until => remote.session.refused(now, "nobody is there"),
            Event::Dialed => remote.connect(now, self.disks[DEVICE].size_bytes()),
        }
    }

    /// An operation of the machine's has come to its end.
    fn answer<M: Staged>(&mut self, machine: &mut M, asked: Asked, result: i32) -> Result<(), String> {
        let Asked { io, since, data } = asked;
        if let Work::Write { bufs, .. } = &io.work
            && !machine.with_arena(|arena| super::unchanged(arena, bufs, &data))
        {
            return Err("a buffer was changed or freed while it was being written".into());
        }
        // Before anything is promised there, a flush that takes too long fails the opening.
        let is_promised = self.remote.as_ref().is_some_and(|remote| remote.session.is_sealed());
        let result = if result < 0 { Err(DeviceError { errno: -result }) } else { Ok(()) };
        let is_late = result.is_err_and(DeviceError::is_late);
        if is_late && matches!(io.work, Work::Flush) && is_promised {
            return Err("a flush failed for the time it took".into());
        }
        if result.is_err() {
            self.cross(machine, &io, Fault::IoError);
        }
        // What the server fails with is counted there.
        if is_late {
            *match &io.work {
                Work::Read { .. } => &mut self.injected.reads,
                Work::Discard => &mut self.injected.discards,
                _ => &mut self.injected.writes,
            } += 1;
            self.injected.timed_out += 1;
        }
        if self.now.since(since) >= LONG_NS {
            self.cross(machine, &io, Fault::Stalled);
        }
        self.note([6, io.token.0, u64::from(result.is_ok()) + self.now.0 * 2]);
        if self.trace {
            eprintln!("{:>12} completed {:?} {result:?} by the export", self.now.0, io.token);
        }
        machine.on_completion(self.now, io.token, result);
        Ok(())
    }

    /// The process is dead, and its session with it. What was on its way may still come to the server.
    pub(super) fn forget_session(&mut self, arrives: bool) {
        let Some(mut remote) = self.remote.take() else { return };
        if arrives {
            (0..remote.lines.len()).for_each(|line| {
                remote.lines[line].arrive_all();
                self.take_requests(&mut remote, line);
            });
        }
        let rng = Rng::new(remote.rng.next_u64(), 0x6578_706f);
        let size_bytes = self.disks[DEVICE].size_bytes();
        self.remote = Some(Box::new(Remote::new(remote.export, size_bytes, self.now, rng)));
    }
}

impl Remote {
    fn connect(&mut self, now: Nanos, size_bytes: u64) {
        self.lines = std::iter::repeat_with(Line::default).take(self.export.connections).collect();
        self.session.connected(now, self.export.agreed(size_bytes), self.export.connections);
    }

    /// What the session has for a connection goes out.
    fn send<M: Staged>(&mut self, machine: &mut M, line: usize, now: Nanos) {
        if self.lines[line].is_sending || self.session.waiting() == 0 {
            return;
        }
        let mut out = Outbox::new(&mut self.scratch, PARTS);
        let most = self.session.waiting().div_ceil(self.lines.len());
        if !self.session.fill(line, now, most, &mut out) {
            return;
        }
        let mut bytes = Vec::new();
        for &part in out.parts() {
            match part {
                Part::Scratch { at, len } => bytes.extend_from_slice(&out.scratch()[at..at + len]),
                Part::Buf(buf) => Memory(machine).load(buf, &mut bytes),
            }
        }
        self.lines[line].is_sending = true;
        let sent_at = now.after(self.rng.below(self.export.latency_ns.max(2)));
        self.at(sent_at, Event::Sent(self.epoch, line));
        let arrival = self.arrival(now);
        let epoch = self.epoch;
        let (at, len) = self.lines[line].go(bytes, arrival);
        self.at(at, Event::Arrived(epoch, line, len));
    }

    /// Bytes go back on a connection; perhaps in two parts.
    fn give_back(&mut self, now: Nanos, line: usize, bytes: &[u8]) {
        let first =
            if self.rng.one_in(4) { 1 + self.rng.below(bytes.len() as u64) as usize } else { bytes.len() };
        for part in [&bytes[..first], &bytes[first..]].into_iter().filter(|part| !part.is_empty()) {
            let arrival = self.arrival(now);
            let epoch = self.epoch;
            let (at, len) = self.lines[line].come(part, arrival);
            self.at(at, Event::Returned(epoch, line, len));
        }
    }
}
