//! A server of the network block device protocol, through io_uring: many requests in flight on one connection or
//! several.

use crate::load::{Granule, LoadTarget, Own, RunError, SlotSpec};
use crate::target::buffers::Buffers;
use bimetal_driver::ring::{MAX_PARTS, Mem};
use bimetal_driver::{Completion, DialError, Memory, Ring, dial};
use bimetal_engine::arena::Buf;
use bimetal_load::{Ended, Fault, Target};
use bimetal_models::{Command, Kind};
use bimetal_nbd::{
    NbdAddress, NbdErrno, NbdUri, REQUEST_HEADER_BYTES, RemoteExport, Request, SIMPLE_REPLY_BYTES, Terms,
    TransmissionFlags, encode_request, parse_simple_reply,
};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

/// Connections at most: a server that is loaded by more is loaded by their number.
pub const MAX_CONNECTIONS: u32 = 64;
/// Bytes of replies that are received at a time.
const RECEIVE_BYTES: usize = 256 << 10;
/// Requests that are sent at a time.
const SEND_REQUESTS: usize = MAX_PARTS / 2;
/// What the headers of these take.
const HEADERS_BYTES: usize = SEND_REQUESTS * REQUEST_HEADER_BYTES;
/// A longer discard is sent in pieces, one after the other: a request has 32 bits for a length, of which some servers use
/// 31.
const DISCARD_BYTES: u64 = 1 << 30;
/// What a server takes that does not say: the specification's.
const PAYLOAD_BYTES: u64 = 32 << 20;

/// Why a server cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum NbdError {
    /// No export was granted.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// There is no memory for connections.
    #[error("cannot map memory for connections")]
    System(#[from] io::Error),
    /// There is no ring.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// One connection.
struct Conn {
    socket: OwnedFd,
    /// Slots whose requests wait to be sent.
    waiting: VecDeque<u32>,
    /// Slots whose requests are being sent.
    sending: Vec<u32>,
    /// Where its headers and received bytes lie in the memory of the connections.
    headers_at: u64,
    received_at: u64,
    /// Received bytes that are not taken yet.
    unread: std::ops::Range<usize>,
    receiving: bool,
    /// What is being received goes straight into the buffer of a read.
    direct: bool,
    /// Requests that are not answered. Only then something is received: between runs, nothing is in flight.
    in_flight: u32,
    /// A read's payload that is coming in: its slot, and the bytes of it that are there.
    payload: Option<(u32, usize)>,
    /// It is broken: with this.
    broken: Option<i32>,
}

/// A server under load.
pub struct Nbd {
    /// Whom to ask for further connections, how many each time, and for what.
    address: NbdAddress,
    name: String,
    ring: Ring,
    export: RemoteExport,
    conns: Vec<Conn>,
    /// What the connections send and receive besides payload.
    memory: Memory,
    memory_place: usize,
    buffers: Buffers,
    commands: Vec<Option<Command>>,
    /// Of discards, the bytes that are done, and those of the piece that is being done.
    discards: Vec<(u64, u64)>,
    /// The longest piece of one.
    discard_bytes: u64,
    handed_ns: Vec<u64>,
    began: Instant,
    /// No other job has a connection of its own beside these.
    is_alone: bool,
    in_flight: usize,
    /// Ended without the ring: their connection is broken.
    lost: Vec<(u32, i32)>,
    done: Vec<Completion>,
}

/// The server has closed the connection, or does not keep to the protocol.
const CONNRESET: i32 = rustix::io::Errno::CONNRESET.raw_os_error();
const PROTO: i32 = rustix::io::Errno::PROTO.raw_os_error();

/// What a completion's tag means: the connection in the lower half.
const SEND: u64 = 1 << 32;
const RECEIVE: u64 = 2 << 32;

impl Nbd {
    /// Connects to an export, so many times.
    ///
    /// # Errors
    /// When the server is not there, or does not grant the export.
    pub fn connect(address: &NbdAddress, export: &str, connections: u32) -> Result<Nbd, NbdError> {
        Nbd::connect_since(address, export, connections, Instant::now())
    }

    fn connect_since(
        address: &NbdAddress,
        export: &str,
        connections: u32,
        began: Instant,
    ) -> Result<Nbd, NbdError> {
        let connections = connections.clamp(1, MAX_CONNECTIONS) as usize;
        let each = (RECEIVE_BYTES + HEADERS_BYTES).next_multiple_of(4096);
        let memory = Memory::new(each * connections)?;
        let mut conns = Vec::with_capacity(connections);
        let mut granted = None;
        let uri = NbdUri { address: address.clone(), export: export.to_owned() };
        for n in 0..connections {
            let (socket, found) = dial(&uri, Terms::default())?;
            granted.get_or_insert(found);
            let received_at = (each * n) as u64;
            conns.push(Conn {
                socket,
                waiting: VecDeque::new(),
                sending: Vec::new(),
                headers_at: received_at + RECEIVE_BYTES as u64,
                received_at,
                unread: 0..0,
                receiving: false,
                direct: false,
                in_flight: 0,
                payload: None,
                broken: None,
            });
        }
        let buffers = Buffers::new(&[])?;
        let (ring, memory_place) = ring(&buffers, &memory)?;
        Ok(Nbd {
            address: address.clone(),
            name: export.to_owned(),
            ring,
            export: granted.expect("there is one connection at least"),
            conns,
            memory,
            memory_place,
            buffers,
            commands: Vec::new(),
            discards: Vec::new(),
            discard_bytes: DISCARD_BYTES,
            handed_ns: Vec::new(),
            began,
            is_alone: true,
            in_flight: 0,
            lost: Vec::new(),
            done: Vec::new(),
        })
    }

    /// Bytes of the export.
    pub fn size_bytes(&self) -> u64 {
        self.export.size_bytes
    }

    /// Whether what is done on one connection is seen on all others.
    fn is_one_by_many(&self) -> bool {
        self.is_read_only() || self.export.flags.contains(TransmissionFlags::CAN_MULTI_CONN)
    }

    /// Whether it may be written.
    pub fn is_read_only(&self) -> bool {
        self.export.flags.contains(TransmissionFlags::READ_ONLY)
    }

    /// The longest read or write that the server takes.
    fn payload_bytes(&self) -> u64 {
        self.export.block_size.map_or(PAYLOAD_BYTES, |size| u64::from(size.maximum))
    }

    /// What is to be asked for next in a slot: a command, or the next piece of a discard.
    fn piece(&self, slot: u32) -> Command {
        let command = self.commands[slot as usize].expect("it is in flight");
        if command.kind != Kind::Discard {
            return command;
        }
        let (done, _) = self.discards[slot as usize];
        let len = (command.len - done).min(self.discard_bytes);
        Command { offset: command.offset + done, len, ..command }
    }

    fn request(&self, slot: u32) -> Request {
        let command = self.piece(slot);
        let (what, fua) = match command.kind {
            Kind::Read => (bimetal_nbd::Command::Read, false),
            Kind::Write { fua } => (bimetal_nbd::Command::Write, fua),
            Kind::Flush | Kind::Sync => (bimetal_nbd::Command::Flush, false),
            Kind::Discard => (bimetal_nbd::Command::Trim, false),
        };
        // Of reads and writes `prepare` has seen to it, of discards `piece`.
        let len = u32::try_from(command.len).expect("no longer than a request can be");
        Request { fua, ..Request::new(u64::from(slot), what, command.offset, len) }
    }

    /// Sends what waits on a connection, if it is not sending already.
    fn send(&mut self, n: usize, now: u64) {
        if !self.conns[n].sending.is_empty() || self.conns[n].waiting.is_empty() {
            return;
        }
        let mut parts: Vec<Mem> = Vec::with_capacity(8);
        let mut at = self.conns[n].headers_at;
        // Headers that follow each other are one part.
        let mut run = at;
        let region = self.memory_place;
        let headers = |run: u64, at: u64| Mem { region, buf: Buf { start: run, len: (at - run) as u32 } };
        while self.conns[n].sending.len() < SEND_REQUESTS {
            let Some(slot) = self.conns[n].waiting.pop_front() else { break };
            let request = self.request(slot);
            let len = REQUEST_HEADER_BYTES as u32;
            self.memory.bytes_mut(Buf { start: at, len }).copy_from_slice(&encode_request(&request));
            at += u64::from(len);
            if request.command == bimetal_nbd::Command::Write {
                parts.push(headers(run, at));
                parts.push(self.buffers.mem(slot, request.length));
                run = at;
            }
            self.conns[n].sending.push(slot);
            let (done, doing) = &mut self.discards[slot as usize];
            *doing = u64::from(request.length);
            if *done == 0 {
                self.handed_ns[slot as usize] = now;
            }
        }
        if at > run {
            parts.push(headers(run, at));
        }
        self.ring.send(self.conns[n].socket.as_raw_fd(), &parts, SEND | n as u64);
    }

    /// Receives on a connection: what comes next, or the rest of a long payload straight into its buffer.
    fn receive(&mut self, n: usize) {
        let conn = &mut self.conns[n];
        if conn.receiving || conn.broken.is_some() || conn.in_flight == 0 {
            return;
        }
        let fd = conn.socket.as_raw_fd();
        conn.receiving = true;
        conn.direct = false;
        if let Some((slot, there)) = conn.payload {
            let all = self.commands[slot as usize].expect("it is in flight").len as usize;
            if all - there >= RECEIVE_BYTES / 4 {
                let whole = self.buffers.mem(slot, all as u32);
                let buf = Buf { start: whole.buf.start + there as u64, len: (all - there) as u32 };
                conn.direct = true;
                return self.ring.recv(fd, Mem { buf, ..whole }, false, RECEIVE | n as u64);
            }
        }
        // What is left of a header goes to the front.
        let left = conn.unread.len();
        let whole = Buf { start: conn.received_at, len: RECEIVE_BYTES as u32 };
        self.memory.bytes_mut(whole).copy_within(conn.unread.clone(), 0);
        conn.unread = 0..left;
        let buf = Buf { start: whole.start + left as u64, len: (RECEIVE_BYTES - left) as u32 };
        self.ring.recv(fd, Mem { region: self.memory_place, buf }, false, RECEIVE | n as u64);
    }

    /// Bytes have come.
    fn received(&mut self, n: usize, result: i32, now: u64, ended: &mut Vec<Ended>) {
        let conn = &mut self.conns[n];
        conn.receiving = false;
        if result <= 0 {
            return self.break_off(n, if result == 0 { CONNRESET } else { -result });
        }
        let came = result as usize;
        match conn.payload {
            Some((slot, there)) if conn.direct => self.payload_came(n, slot, there + came, now, ended),
            _ => conn.unread.end += came,
        }
        if let Err(errno) = self.parse(n, now, ended) {
            return self.break_off(n, errno);
        }
        self.receive(n);
    }

    fn payload_came(&mut self, n: usize, slot: u32, there: usize, now: u64, ended: &mut Vec<Ended>) {
        let all = self.commands[slot as usize].expect("it is in flight").len as usize;
        if there < all {
            self.conns[n].payload = Some((slot, there));
            return;
        }
        self.conns[n].payload = None;
        self.end(slot, now, None, ended);
    }

    fn end(&mut self, slot: u32, now: u64, fault: Option<Fault>, ended: &mut Vec<Ended>) {
        let n = slot as usize % self.conns.len();
        if self.commands[slot as usize].take().is_some() {
            self.conns[n].in_flight -= 1;
        }
        self.in_flight -= 1;
        ended.push(Ended {
            slot,
            handed_ns: Some(self.handed_ns[slot as usize]),
            at_ns: now,
            fault,
            served: None,
        });
    }

    /// Takes the replies that have come whole, and what is there of the next one's payload. An `errno` where the
    /// server does not keep to the protocol.
    fn parse(&mut self, n: usize, now: u64, ended: &mut Vec<Ended>) -> Result<(), i32> {
        loop {
            let conn = &self.conns[n];
            let (at, unread) = (conn.received_at + conn.unread.start as u64, conn.unread.len());
            if let Some((slot, there)) = conn.payload {
                let all = self.commands[slot as usize].expect("it is in flight").len as usize;
                let take = unread.min(all - there);
                let from = self.memory.bytes(Buf { start: at, len: take as u32 });
                self.buffers.bytes_mut(slot, all as u32)[there..there + take].copy_from_slice(from);
                self.conns[n].unread.start += take;
                self.payload_came(n, slot, there + take, now, ended);
                if self.conns[n].payload.is_some() {
                    return Ok(());
                }
                continue;
            }
            let bytes = self.memory.bytes(Buf { start: at, len: unread as u32 });
            let Some(reply) = parse_simple_reply(bytes).map_err(|_| PROTO)? else { return Ok(()) };
            self.conns[n].unread.start += SIMPLE_REPLY_BYTES;
            let slot = u32::try_from(reply.cookie).map_err(|_| PROTO)?;
            let command = self.commands.get(slot as usize).copied().flatten().ok_or(PROTO)?;
            match reply.result {
                Ok(()) if command.kind == Kind::Read => self.conns[n].payload = Some((slot, 0)),
                result if command.kind == Kind::Discard && self.goes_on(slot, result) => {
                    self.conns[n].waiting.push_back(slot);
                }
                Ok(()) => self.end(slot, now, None, ended),
                Err(errno) => self.end(slot, now, Some(Fault::Errno(errno.code() as i32)), ended),
            }
        }
    }

    /// Whether a discard has another piece to send, after the server's answer to one.
    fn goes_on(&mut self, slot: u32, result: Result<(), NbdErrno>) -> bool {
        let (done, doing) = &mut self.discards[slot as usize];
        let piece_bytes = *doing;
        match result {
            Ok(()) => {
                *done += piece_bytes;
                let done = *done;
                self.commands[slot as usize].is_some_and(|command| done < command.len)
            }
            // It may hold discards to its limit for payload, though they have none.
            Err(NbdErrno::Invalid | NbdErrno::Overflow) => {
                let minimum = self.export.block_size.map_or(1, |size| u64::from(size.minimum.max(1)));
                let less = self.payload_bytes() / minimum * minimum;
                let again = less > 0 && less < piece_bytes;
                if again {
                    self.discard_bytes = less;
                }
                again
            }
            Err(_) => false,
        }
    }

    /// A connection has gone: so have the requests on it.
    fn break_off(&mut self, n: usize, errno: i32) {
        let count = self.conns.len();
        let conn = &mut self.conns[n];
        conn.broken = Some(errno);
        conn.waiting.clear();
        conn.payload = None;
        conn.in_flight = 0;
        for (slot, command) in self.commands.iter_mut().enumerate().skip(n).step_by(count) {
            if command.take().is_some() {
                self.lost.push((slot as u32, errno));
            }
        }
    }

    fn completed(&mut self, Completion { tag, result }: Completion, now: u64, ended: &mut Vec<Ended>) {
        let n = tag as u32 as usize;
        if tag & RECEIVE != 0 {
            return self.received(n, result, now, ended);
        }
        let conn = &mut self.conns[n];
        conn.sending.clear();
        if result < 0 && conn.broken.is_none() {
            self.break_off(n, -result);
        }
    }
}

impl Target for Nbd {
    fn now_ns(&mut self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn submit(&mut self, slot: u32, _place: u32, command: Command) {
        self.in_flight += 1;
        let n = slot as usize % self.conns.len();
        if let Some(errno) = self.conns[n].broken {
            return self.lost.push((slot, errno));
        }
        self.commands[slot as usize] = Some(command);
        self.discards[slot as usize] = (0, 0);
        self.conns[n].in_flight += 1;
        self.conns[n].waiting.push_back(slot);
    }

    fn wait(&mut self, until: Option<u64>, ended: &mut Vec<Ended>) -> u64 {
        let now = self.now_ns();
        if self.in_flight == 0 {
            std::thread::sleep(Duration::from_nanos(until.unwrap_or(now).saturating_sub(now)));
            return self.now_ns();
        }
        for n in 0..self.conns.len() {
            self.send(n, now);
            self.receive(n);
        }
        if self.lost.is_empty() {
            let timeout = until.map(|until| Duration::from_nanos(until.saturating_sub(now)));
            // Who is alone looks for the answer for a moment: sleeping costs more than that. Of several, each would take the
            // processor from the others, and from the server.
            let came = match self.is_alone {
                true => self.ring.submit_and_wait(timeout, 1, false),
                false => self.ring.submit_and_sleep(timeout),
            };
            came.expect("a ring that was set up takes I/O");
        }
        let mut done = std::mem::take(&mut self.done);
        self.ring.completions(&mut done);
        let now = self.now_ns();
        done.drain(..).for_each(|completion| self.completed(completion, now, ended));
        self.done = done;
        for (slot, errno) in std::mem::take(&mut self.lost) {
            self.end(slot, now, Some(Fault::Errno(errno)), ended);
        }
        now
    }

    fn payload(&mut self, slot: u32, len: u64) -> Option<&mut [u8]> {
        Some(self.buffers.bytes_mut(slot, len as u32))
    }
}

impl LoadTarget for Nbd {
    fn prepare(&mut self, slots: &[SlotSpec]) -> Result<(), RunError> {
        let most = self.payload_bytes();
        if let Some(slot) = slots.iter().find(|slot| slot.bytes > most) {
            let bytes = slot.bytes;
            return Err(RunError::Target(format!(
                "the server takes {most} bytes at a time, not {bytes}: lower bs"
            )));
        }
        self.buffers = Buffers::new(slots)?;
        (self.ring, self.memory_place) = ring(&self.buffers, &self.memory)?;
        self.commands = vec![None; slots.len()];
        self.discards = vec![(0, 0); slots.len()];
        self.handed_ns = vec![0; slots.len()];
        Ok(())
    }

    fn granule(&self, _place: u32) -> Option<Granule> {
        let bytes = u64::from(self.export.block_size?.minimum);
        let (why, cure) = ("its server takes nothing smaller", "have the server export smaller blocks");
        (bytes > 1 && bytes.is_power_of_two()).then_some(Granule { bytes, why, cure })
    }

    fn apart(&mut self, jobs: usize) -> Option<Vec<Own>> {
        if !self.is_one_by_many() {
            return None;
        }
        let own = |_| -> Own {
            let (address, name) = (self.address.clone(), self.name.clone());
            let (connections, began) = (self.conns.len() as u32, self.began);
            Box::new(move || {
                let nbd = Nbd::connect_since(&address, &name, connections, began).map_err(|error| {
                    RunError::Target(format!(
                        "no connection of its own for each of {jobs} jobs to the NBD server at {address} ({}): let it \
                         take more, or lower numjobs",
                        whole(&error)
                    ))
                })?;
                Ok(Box::new(Nbd { is_alone: false, ..nbd }) as Box<dyn LoadTarget>)
            })
        };
        Some((0..jobs).map(own).collect())
    }

    fn shared_because(&self) -> Option<String> {
        let (address, connections) = (&self.address, self.conns.len());
        (!self.is_one_by_many()).then(|| {
            format!(
                "the NBD server at {address} does not promise that several connections see the same data \
                 (CAN_MULTI_CONN), so the jobs share what --connections says: {connections}"
            )
        })
    }
}

/// An error with what lies below it.
fn whole(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

fn ring(buffers: &Buffers, memory: &Memory) -> Result<(Ring, usize), RunError> {
    // Each connection sends and receives, one of both at a time.
    let mut ring = buffers.ring(2 * MAX_CONNECTIONS as usize)?;
    let place = ring.add_region(memory.region().clone());
    Ok((ring, place))
}
