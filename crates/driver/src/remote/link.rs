//! The sockets of a session: what it wants sent and received goes through the ring, and connections are made on a thread of
//! their own, so that the ring sleeps meanwhile.

use super::export::Export;
use crate::memory::{Memory, Region};
use crate::ring::{ARENA, MAX_PARTS, Mem, Ring};
use crate::watch::Change;
use bimetal_engine::arena::Buf;
use bimetal_nbd::{Command, NbdUri, REQUEST_HEADER_BYTES, Request, Terms, encode_request};
use bimetal_remote::{
    Agreed, Ask, JOURNAL_BYTES, News, Outbox, PIECE_BYTES, Part, Payload, Seal, Session, Standing, Wish,
};
use bimetal_units::Nanos;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{SendFlags, Shutdown, send, shutdown};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

/// Connections to a server that lets several see the same data: as many as keep a server's threads busy, and no more.
pub(super) const CONNECTIONS: usize = 4;
/// Bytes of replies that are received at a time.
const RECEIVE_BYTES: u32 = 256 << 10;
/// Headers of requests that are sent at a time, and one longest request of the journal.
const SCRATCH_BYTES: u32 = PIECE_BYTES + (MAX_PARTS * REQUEST_HEADER_BYTES).next_multiple_of(4096) as u32;
/// Memory that an export in use takes at most.
pub(crate) const RAM_BYTES: u64 = JOURNAL_BYTES + CONNECTIONS as u64 * (RECEIVE_BYTES + SCRATCH_BYTES) as u64;
/// Payload and headers go out in so many parts at most.
const PARTS: usize = MAX_PARTS;

/// The first tag of remote devices; operations on devices have places far below.
pub(crate) const FIRST_TAG: u64 = 1 << 30;
/// What a tag says: the device above, then the kind, then the connection.
const DEVICE_SHIFT: u32 = 16;
const KIND_SHIFT: u32 = 8;
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
const BELL: u64 = 3;

/// The device that a tag is of.
pub(crate) fn device_of(tag: u64) -> usize {
    ((tag - FIRST_TAG) >> DEVICE_SHIFT) as usize
}

fn tag(device: usize, kind: u64, conn: usize) -> u64 {
    FIRST_TAG | (device as u64) << DEVICE_SHIFT | kind << KIND_SHIFT | conn as u64
}

/// The arena's bytes.
struct ArenaBytes(Rc<Region>);

impl Payload for ArenaBytes {
    fn load(&mut self, buf: Buf, out: &mut Vec<u8>) {
        self.0.load(buf, out);
    }

    fn store(&mut self, buf: Buf, bytes: &[u8]) {
        self.0.store(buf, bytes);
    }
}

struct Wire {
    socket: OwnedFd,
    is_sending: bool,
    is_receiving: bool,
    /// It has been told to end.
    is_shut: bool,
}

type Dialed = Result<(Vec<OwnedFd>, Agreed), String>;

/// A thread that connects.
struct Dialing {
    bell: Arc<OwnedFd>,
    outcome: Arc<Mutex<Option<Dialed>>>,
}

/// An export in use.
pub(crate) struct Remote {
    name: String,
    device: usize,
    uri: NbdUri,
    is_multi: bool,
    session: Session,
    wires: Vec<Wire>,
    dialing: Option<Dialing>,
    payload: ArenaBytes,
    /// What the connections send and receive besides payload, and its place in the ring; from the first connection on.
    memory: Option<(Memory, usize)>,
}

impl Remote {
    /// An export that will be connected to when something is first asked of it.
    pub(crate) fn new(export: &Export, name: String, device: usize, ring: &Ring, now: Nanos) -> Remote {
        let patience_ns = u64::try_from(export.patience.as_nanos()).unwrap_or(u64::MAX);
        Remote {
            name,
            device,
            uri: export.uri.clone(),
            is_multi: export.agreed.multi,
            session: Session::new(export.agreed, patience_ns, now),
            wires: Vec::new(),
            dialing: None,
            payload: ArenaBytes(ring.arena().clone()),
            memory: None,
        }
    }

    /// From now on the export is this volume's slow device, opened under this generation, or nothing is written to it.
    pub(crate) fn seal(&mut self, volume: [u8; 16], generation: u64, second_at: u64) {
        self.session.seal(Seal::of_slow_device(volume, generation, second_at));
    }

    /// Takes an operation.
    pub(crate) fn ask(&mut self, now: Nanos, ask: Ask, tag: u64) {
        self.session.ask(now, ask, tag);
    }

    /// An answer, with its tag.
    pub(crate) fn take_done(&mut self) -> Option<(u64, i32)> {
        self.session.take_done()
    }

    /// How it stands.
    pub(crate) fn standing(&self) -> Standing {
        self.session.standing()
    }

    /// When it is to be driven again, at the latest.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.session.deadline()
    }

    /// What is to be told of it.
    pub(crate) fn take_changes(&mut self) -> impl Iterator<Item = Change> {
        let name = &self.name;
        self.session.take_news().into_iter().map(move |news| match news {
            News::Broke(why) => Change::Away(format!(
                "{name} is away: {why}; what is asked of it waits, and nothing that was written is lost"
            )),
            News::Back { away_ns, resent } => Change::Back(format!(
                "{name} is back after {:.1} s; {resent} requests were sent again",
                away_ns as f64 / Nanos::SECOND as f64
            )),
            News::Failed(what) => {
                Change::Away(format!("{name}: {what}; what it was to keep is written again"))
            }
            News::Lost(why) => Change::Lost(format!("{name} is not what it was: {why}")),
        })
    }

    /// Sends, receives, connects and closes as the session wants it. `export` may still have the connection that it was
    /// found by.
    pub(crate) fn drive(&mut self, now: Nanos, ring: &mut Ring, export: &Export) {
        self.session.on_time(now);
        if self.session.wish(now) == Wish::Close && self.shut() {
            self.session.closed(now, &mut self.payload);
        }
        if self.session.wish(now) == Wish::Dial {
            self.dial(now, ring, export);
        }
        match self.session.wish(now) {
            Wish::Serve => self.serve(now, ring),
            Wish::Rest => {
                self.shut();
            }
            Wish::Close | Wish::Dial => {}
        }
    }

    /// Ends all connections; whether the kernel has let go of them.
    fn shut(&mut self) -> bool {
        for wire in self.wires.iter_mut().filter(|wire| !wire.is_shut) {
            wire.is_shut = true;
            // One that is not connected any more is what is wanted.
            let _ = shutdown(&wire.socket, Shutdown::Both);
        }
        let is_over = self.wires.iter().all(|wire| !wire.is_sending && !wire.is_receiving);
        if is_over {
            self.wires.clear();
        }
        is_over
    }

    fn serve(&mut self, now: Nanos, ring: &mut Ring) {
        let Some((memory, region)) = &mut self.memory else { return };
        let region = *region;
        for conn in 0..self.wires.len() {
            let base = conn as u64 * u64::from(RECEIVE_BYTES + SCRATCH_BYTES);
            if !self.wires[conn].is_sending && self.session.waiting() > 0 {
                let idle = self.wires[conn..].iter().filter(|wire| !wire.is_sending).count();
                let most = self.session.waiting().div_ceil(idle.max(1));
                let at = base + u64::from(RECEIVE_BYTES);
                let scratch = memory.bytes_mut(Buf { start: at, len: SCRATCH_BYTES });
                let mut out = Outbox::new(scratch, PARTS);
                if self.session.fill(conn, now, most, &mut out) {
                    let mem = |part: &Part| match *part {
                        Part::Buf(buf) => Mem { region: ARENA, buf },
                        Part::Scratch { at: from, len } => {
                            Mem { region, buf: Buf { start: at + from as u64, len: len as u32 } }
                        }
                    };
                    let parts: Vec<Mem> = out.parts().iter().map(mem).collect();
                    self.wires[conn].is_sending = true;
                    let tag = tag(self.device, SEND, conn);
                    ring.send(self.wires[conn].socket.as_raw_fd(), &parts, tag);
                }
            }
            if !self.wires[conn].is_receiving && self.session.unanswered(conn) > 0 {
                self.wires[conn].is_receiving = true;
                let mem = Mem { region, buf: Buf { start: base, len: RECEIVE_BYTES } };
                ring.recv(self.wires[conn].socket.as_raw_fd(), mem, true, tag(self.device, RECEIVE, conn));
            }
        }
    }

    /// Something that was asked of the ring has ended.
    pub(crate) fn completed(&mut self, now: Nanos, tag: u64, result: i32) {
        let (kind, conn) = ((tag >> KIND_SHIFT) & 0xff, (tag & 0xff) as usize);
        if kind == BELL {
            return self.dialed(now);
        }
        let Some(wire) = self.wires.get_mut(conn) else { return };
        if kind == SEND {
            wire.is_sending = false;
            if result < 0 && !wire.is_shut {
                self.session.break_off(now, broke(result));
            }
            self.session.sent(conn, now, &mut self.payload);
            return;
        }
        wire.is_receiving = false;
        if result <= 0 {
            return self.session.break_off(now, broke(result));
        }
        let start = conn as u64 * u64::from(RECEIVE_BYTES + SCRATCH_BYTES);
        if let Some((memory, _)) = self.memory.as_ref().filter(|_| !wire.is_shut) {
            let bytes = memory.bytes(Buf { start, len: result as u32 });
            self.session.received(conn, now, bytes, &mut self.payload);
        }
    }

    fn dial(&mut self, now: Nanos, ring: &mut Ring, export: &Export) {
        self.session.dialing();
        if let Err(error) = self.have_memory(ring) {
            return self.session.refused(now, &format!("there is no memory for connections ({error})"));
        }
        // A server that takes one client at a time has the one that looked at it first.
        if let Some(socket) = export.take_socket().filter(|_| !self.is_multi) {
            return self.connect(now, vec![socket], export.agreed);
        }
        let begun = Dialing::begin(self.uri.clone(), if self.is_multi { CONNECTIONS } else { 1 });
        match begun {
            Ok(dialing) => {
                ring.poll_in(dialing.bell.as_raw_fd(), tag(self.device, BELL, 0));
                self.dialing = Some(dialing);
            }
            Err(error) => self.session.refused(now, &format!("no thread can be had to connect ({error})")),
        }
    }

    fn have_memory(&mut self, ring: &mut Ring) -> io::Result<()> {
        if self.memory.is_none() {
            let memory = Memory::new(CONNECTIONS * (RECEIVE_BYTES + SCRATCH_BYTES) as usize)?;
            let region = ring.add_region(memory.region().clone());
            self.memory = Some((memory, region));
        }
        Ok(())
    }

    /// The thread that connects has come to its end.
    fn dialed(&mut self, now: Nanos) {
        let Some(dialing) = self.dialing.take() else { return };
        let outcome = dialing.outcome.lock().ok().and_then(|mut outcome| outcome.take());
        match outcome.unwrap_or_else(|| Err("the thread that connects has ended".to_owned())) {
            Ok((sockets, agreed)) => self.connect(now, sockets, agreed),
            Err(why) => self.session.refused(now, &why),
        }
    }

    fn connect(&mut self, now: Nanos, sockets: Vec<OwnedFd>, agreed: Agreed) {
        let wire = |socket| Wire { socket, is_sending: false, is_receiving: false, is_shut: false };
        self.wires = sockets.into_iter().map(wire).collect();
        self.session.connected(now, agreed, self.wires.len());
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let end = encode_request(&Request::new(0, Command::Disconnect, 0, 0));
        for wire in self.wires.iter().filter(|wire| !wire.is_sending && !wire.is_shut) {
            // Who does not hear it sees the connection end.
            let _ = send(&wire.socket, &end, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }
}

impl Dialing {
    /// Connects so many times, if the server lets it; once is enough.
    fn begin(uri: NbdUri, connections: usize) -> io::Result<Dialing> {
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let outcome = Arc::new(Mutex::new(None));
        let (rings, told) = (bell.clone(), outcome.clone());
        std::thread::Builder::new().name("dial".to_owned()).spawn(move || {
            let dialed = dial_all(&uri, connections);
            if let Ok(mut outcome) = told.lock() {
                *outcome = Some(dialed);
            }
            // It has room for one.
            let _ = rustix::io::write(&*rings, &1u64.to_ne_bytes());
        })?;
        Ok(Dialing { bell, outcome })
    }
}

fn dial_all(uri: &NbdUri, connections: usize) -> Dialed {
    let wishes = Terms { structured: true, ..Terms::default() };
    let (first, export) = super::dial::dial(uri, wishes).map_err(|error| error.whole())?;
    let agreed = Agreed::of(&export);
    let mut sockets = vec![first];
    if agreed.multi {
        let more = (1..connections).map_while(|_| super::dial::dial(uri, wishes).ok());
        sockets.extend(more.map(|(socket, _)| socket));
    }
    Ok((sockets, agreed))
}

/// Why a connection broke, by what the kernel said of it.
fn broke(result: i32) -> String {
    match result {
        0 => "its server ended the connection".to_owned(),
        error => format!("the connection broke ({})", io::Error::from_raw_os_error(-error)),
    }
}
