//! The serving loop.

use crate::answer::READ_EXTENTS;
use crate::connection::{Connection, MAX_CLIENT_BYTES, MAX_CLIENT_HEAD_BYTES, MAX_CLIENT_REQUESTS};
use crate::control;
use crate::events::EventLimit;
use crate::listen::{Address, Endpoint, ListenError, Listener, MAX_LISTENERS};
use crate::notify::Notifier;
use crate::requests::{ConnId, Requests};
use crate::served::Served;
use crate::status::{StatusDoc, VolumeName};
use bimetal_driver::driver::FIRST_FREE_TAG;
use bimetal_driver::ring::Mem;
use bimetal_driver::signals::StopSignals;
use bimetal_driver::{Completion, Driver, Memory};
use bimetal_engine::action::{MAX_PAYLOAD_BYTES, RequestError, RequestId};
use bimetal_engine::arena::Arena as _;
use bimetal_engine::extents::Extents;
use bimetal_nbd::{Export, Exports, Handshake};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rounds of devices' answers before clients are looked at.
const MAX_ROUNDS: u32 = 64;
/// Clients at most; the next one waits to be accepted.
pub const MAX_CLIENTS: usize = 64;
/// What the connections' receive and send buffers take.
pub const CLIENT_MEMORY_BYTES: u64 = MAX_CLIENTS as u64 * Connection::MEMORY_BYTES;
/// A client that keeps a buffer this long while others wait for one is disconnected.
const PATIENCE: Duration = Duration::from_secs(30);
/// While others wait for a place, a client that negotiates for longer than this is disconnected: a handshake is a
/// few exchanges of a few hundred bytes.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);
/// Longest wait while something is to be looked after.
const TICK: Duration = Duration::from_secs(1);
/// After the volume has stopped, how long clients may take to read their last replies.
const FAREWELL: Duration = Duration::from_secs(2);

/// What a tag of the server means: kind in bits 40 to 43, place below.
const KIND_SHIFT: u32 = 40;
const RECV: u64 = 1;
const SEND: u64 = 2;
const ACCEPT: u64 = 3;
const CONTROL: u64 = 4;
const STOP: u64 = 5;
const IGNORE: u64 = 6;

/// What the protocol announces is what the engine takes.
const _: () = assert!(bimetal_nbd::limits::MAX_PAYLOAD_BYTES as u64 == MAX_PAYLOAD_BYTES);

fn tag(kind: u64, place: usize) -> u64 {
    let tag = kind << KIND_SHIFT | place as u64;
    debug_assert!(tag >= FIRST_FREE_TAG);
    tag
}

/// Why serving ended early or did not begin.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A socket cannot be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The ring failed.
    #[error("io_uring failed: {0}")]
    Ring(#[source] io::Error),
    /// The exports are not valid.
    #[error(transparent)]
    Exports(#[from] bimetal_nbd::ExportsError),
    /// The service manager's socket cannot be reached.
    #[error("cannot reach the service manager on NOTIFY_SOCKET ({0}); unset it where there is none")]
    Notify(#[source] io::Error),
    /// Signals or memory cannot be set up.
    #[error("cannot set up the server: {0}")]
    Setup(#[source] io::Error),
    /// A second signal came before the volume was closed.
    #[error("stopped at once by a second signal; the volume recovers when it is opened next")]
    Impatient,
}

/// What to serve and where.
#[derive(Debug)]
pub struct ServerOptions {
    /// The volume's name, which is also the export's.
    pub volume: VolumeName,
    /// Clients may not write. The volume itself is open as ever: it recovers, merges and moves.
    pub read_only: bool,
    /// Where NBD clients connect: one at least, [`MAX_LISTENERS`] at most.
    pub nbd: Vec<Address>,
    /// Unix socket for status.
    pub control: PathBuf,
}

/// A place where clients connect.
struct NbdListener {
    listener: Listener,
    /// An accept is in flight.
    accepting: bool,
}

/// A volume, its clients, and the one thread that serves them.
pub struct Server<V> {
    pub(crate) engine: V,
    driver: Driver,
    volume: VolumeName,
    exports: Arc<Exports>,
    nbd: Vec<NbdListener>,
    /// Accepted while all places were taken: they wait, and nobody is accepted behind them. At most one for each
    /// listener.
    lobby: VecDeque<OwnedFd>,
    /// An accept failed (no descriptor is left, perhaps): when to try again.
    accept_at: Option<Instant>,
    /// That was said; it is not repeated until somebody is accepted again.
    accept_complained: bool,
    control: Listener,
    /// An accept is in flight there.
    control_accepting: bool,
    signals: StopSignals,
    notifier: Notifier,
    events: EventLimit,
    /// It was said that the volume is read-only.
    said_read_only: bool,
    /// Receive and send buffers of all connections.
    pub(crate) memory: Memory,
    /// Its place in the ring.
    sockets: usize,
    pub(crate) conns: Vec<Option<Connection>>,
    generation: u64,
    pub(crate) requests: Requests,
    /// Connections that wait for room, first come first served.
    pub(crate) blocked: VecDeque<ConnId>,
    /// Somebody at the front of that queue waits for a buffer: nobody behind may take one.
    pub(crate) buffers_short: bool,
    /// Connections that have something new to send, or may have come to their end.
    touched: Vec<usize>,
    parts: Vec<Mem>,
    next_look: Instant,
    stopping: bool,
    stopped_at: Option<Instant>,
    buffer_bytes: u64,
}

impl<V: Served> Server<V> {
    /// Takes the sockets. Clients can connect from here on; they are answered once [`Server::run`] runs.
    pub fn new(
        engine: V,
        mut driver: Driver,
        buffer_bytes: u64,
        options: ServerOptions,
    ) -> Result<Self, ServeError> {
        let exports = Exports::new(vec![Export {
            name: options.volume.0.clone(),
            description: format!("Bimetal volume {}", options.volume.0),
            size_bytes: engine.size_bytes(),
            read_only: options.read_only,
        }])?;
        match options.nbd.len() {
            0 => return Err(ListenError::Nowhere.into()),
            count if count > MAX_LISTENERS => return Err(ListenError::TooMany { count }.into()),
            _ => {}
        }
        let memory = Memory::new(CLIENT_MEMORY_BYTES as usize).map_err(ServeError::Setup)?;
        let sockets = driver.ring.add_region(memory.region().clone());
        Ok(Server {
            control: Listener::unix(&options.control)?,
            control_accepting: false,
            nbd: options
                .nbd
                .into_iter()
                .map(|address| Ok(NbdListener { listener: Listener::bind(address)?, accepting: false }))
                .collect::<Result<_, ListenError>>()?,
            lobby: VecDeque::new(),
            accept_at: None,
            accept_complained: false,
            signals: StopSignals::new().map_err(ServeError::Setup)?,
            notifier: Notifier::from_environment().map_err(ServeError::Notify)?,
            events: EventLimit::default(),
            said_read_only: false,
            engine,
            driver,
            volume: options.volume,
            exports: Arc::new(exports),
            memory,
            sockets,
            conns: std::iter::repeat_with(|| None).take(MAX_CLIENTS).collect(),
            generation: 0,
            requests: Requests::new(),
            blocked: VecDeque::new(),
            buffers_short: false,
            touched: Vec::new(),
            parts: Vec::new(),
            next_look: Instant::now(),
            stopping: false,
            stopped_at: None,
            buffer_bytes,
        })
    }

    /// Where clients connect, in the order given.
    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.nbd.iter().map(|nbd| nbd.listener.endpoint())
    }

    /// Serves until SIGINT or SIGTERM, then drains, closes the volume and returns.
    pub fn run(mut self) -> Result<(), ServeError> {
        self.driver.ring.poll_in(self.signals.raw_fd(), tag(STOP, 0));
        self.welcome_more();
        self.notifier.ready(&format!("serving {}", self.volume.0));
        let (mut replies, mut events) = (Vec::new(), Vec::new());
        loop {
            self.driver.pump(&mut self.engine, |id, result| replies.push((id, result)));
            // Where devices answer at once, background work could go on for long: clients come in between.
            for _ in 0..MAX_ROUNDS {
                if !self.driver.ring.has_ready() {
                    break;
                }
                self.driver.harvest(&mut self.engine, |completion| events.push(completion));
                self.driver.pump(&mut self.engine, |id, result| replies.push((id, result)));
            }
            for (id, result) in replies.drain(..) {
                self.answer(id, result);
            }
            self.visit_touched();
            self.say_events();
            if self.is_finished() {
                self.events.say_last();
                return Ok(());
            }
            let waiting = !self.blocked.is_empty() || !self.lobby.is_empty();
            let looking = waiting || self.accept_at.is_some() || self.stopping || self.events.is_waiting();
            self.notifier.alive();
            let limit = [looking.then_some(TICK), self.notifier.due_in()].into_iter().flatten().min();
            self.driver.wait(&self.engine, limit).map_err(ServeError::Ring)?;
            self.driver.harvest(&mut self.engine, |completion| events.push(completion));
            self.retry_blocked();
            for event in events.drain(..) {
                self.on_event(event)?;
            }
            self.look_after();
        }
    }

    fn on_event(&mut self, event: Completion) -> Result<(), ServeError> {
        let place = (event.tag & 0xff_ffff) as usize;
        match event.tag >> KIND_SHIFT {
            RECV => self.on_received(place, event.result),
            SEND => self.on_sent(place, event.result),
            ACCEPT => {
                let fd = self.driver.ring.take_accepted(event.result);
                // A server that is stopping has no listeners any more.
                if let Some(nbd) = self.nbd.get_mut(place) {
                    nbd.accepting = false;
                    if let Some(fd) = fd {
                        nbd.listener.prepare(&fd);
                        self.lobby.push_back(fd);
                        self.accept_complained = false;
                        self.welcome_more();
                    } else {
                        self.cannot_accept(event.result);
                    }
                }
            }
            CONTROL => {
                self.control_accepting = false;
                match self.driver.ring.take_accepted(event.result) {
                    Some(fd) => {
                        control::answer(fd, &self.status());
                        self.welcome_more();
                    }
                    None => self.cannot_accept(event.result),
                }
            }
            STOP if self.stopping => return Err(ServeError::Impatient),
            STOP => self.stop(),
            _ => {}
        }
        Ok(())
    }

    /// Most likely no descriptor is left: whoever wants to connect waits until one is.
    fn cannot_accept(&mut self, result: i32) {
        self.accept_at = Some(Instant::now() + TICK);
        if !std::mem::replace(&mut self.accept_complained, true) {
            let error = io::Error::from_raw_os_error(-result);
            tracing::warn!("no client can be accepted for now ({error}); those connected are served on");
        }
    }

    fn status(&self) -> StatusDoc {
        let mut doc = StatusDoc::new(&self.volume, &self.engine.status());
        doc.clients = self.conns.iter().flatten().count() as u64;
        doc.buffer_bytes = self.buffer_bytes;
        doc.describe_devices(&self.driver.io_facts());
        doc
    }

    fn stop(&mut self) {
        tracing::info!("closing {}", self.volume.0);
        self.notifier.stopping();
        self.stopping = true;
        self.signals.acknowledge();
        self.driver.ring.poll_in(self.signals.raw_fd(), tag(STOP, 0));
        for place in (0..self.nbd.len()).filter(|&place| self.nbd[place].accepting) {
            self.driver.ring.cancel(tag(ACCEPT, place), tag(IGNORE, 0));
        }
        self.nbd.clear();
        self.lobby.clear();
        for conn in self.conns.iter_mut().flatten() {
            conn.draining = true;
        }
        self.engine.begin_shutdown(self.driver.clock.now());
    }

    /// Whether the volume is closed and the clients have their last replies.
    fn is_finished(&mut self) -> bool {
        if !self.stopping || !self.engine.is_stopped() || self.driver.device_ops() > 0 {
            return false;
        }
        let since = *self.stopped_at.get_or_insert_with(Instant::now);
        let pending =
            self.conns.iter().flatten().any(|conn| {
                !conn.dead && (conn.sending.is_some() || !conn.out.is_empty() || conn.requests > 0)
            });
        !pending || since.elapsed() > FAREWELL
    }

    /// Gives free places to those who wait, and accepts more when nobody does. One more than there are places
    /// for is accepted on each listener, so that it is known that somebody waits.
    fn welcome_more(&mut self) {
        while let Some(place) = self.conns.iter().position(Option::is_none)
            && let Some(fd) = self.lobby.pop_front()
        {
            self.welcome(place, fd);
        }
        if self.accept_at.is_some() {
            return;
        }
        if !std::mem::replace(&mut self.control_accepting, true) {
            self.driver.ring.accept(self.control.raw_fd(), tag(CONTROL, 0));
        }
        if !self.lobby.is_empty() {
            return;
        }
        for (place, nbd) in self.nbd.iter_mut().enumerate().filter(|(_, nbd)| !nbd.accepting) {
            self.driver.ring.accept(nbd.listener.raw_fd(), tag(ACCEPT, place));
            nbd.accepting = true;
        }
    }

    fn welcome(&mut self, place: usize, fd: OwnedFd) {
        self.generation += 1;
        tracing::debug!("client {} connected", self.generation);
        let mut greeting = Vec::new();
        let handshake = Handshake::new(self.exports.clone(), &mut greeting);
        let id = ConnId { place, generation: self.generation };
        self.conns[place] = Some(Connection::new(id, fd, handshake, greeting));
        self.receive(place, true);
        self.touched.push(place);
    }

    /// Submits a receive, if one makes sense now.
    fn receive(&mut self, place: usize, later: bool) {
        let Some(conn) = &mut self.conns[place] else { return };
        if conn.receiving || conn.draining || conn.dead || conn.blocked {
            return;
        }
        let mem = conn.receive_target(&mut self.memory, self.sockets);
        conn.receiving = true;
        self.driver.ring.recv(conn.fd.as_raw_fd(), mem, later, tag(RECV, place));
    }

    fn on_received(&mut self, place: usize, result: i32) {
        self.touched.push(place);
        let Some(conn) = &mut self.conns[place] else { return };
        conn.receiving = false;
        match result {
            0 => conn.draining = true,
            failed if failed < 0 => conn.dead = true,
            bytes => conn.received(bytes as u32),
        }
        self.advance(place);
        self.receive(place, true);
    }

    fn on_sent(&mut self, place: usize, result: i32) {
        self.touched.push(place);
        let Some(conn) = &mut self.conns[place] else { return };
        self.engine.with_arena(|arena| conn.sent(arena));
        // The kernel goes on after a short send by itself, so what comes back short was cut off.
        if result < 0 || result as u64 != conn.sending_bytes {
            conn.dead = true;
        }
    }

    /// Turns an answer of the engine into a reply to be sent, or drops it with its client.
    fn answer(&mut self, id: RequestId, result: Result<(), RequestError>) {
        let Some(pending) = self.requests.remove(id) else { return };
        let place = pending.conn.place;
        let conn = self.conns[place].as_mut().filter(|conn| conn.id == pending.conn && !conn.dead);
        match conn {
            Some(conn) => {
                let holes = match pending.read {
                    Some(_) if conn.terms.structured && result.is_ok() => {
                        let (offset, length) = (pending.request.offset, pending.request.length);
                        self.engine.extents(offset, length.into(), READ_EXTENTS)
                    }
                    _ => Extents::new(),
                };
                let leftover = conn.reply(&pending, result, &holes);
                if let Some(cover) = leftover {
                    self.engine.with_arena(|arena| arena.free(cover));
                }
                self.touched.push(place);
            }
            None => {
                if let Some(cover) = pending.buf {
                    self.engine.with_arena(|arena| arena.free(cover));
                }
            }
        }
    }

    /// Sends what is ready and takes down what is over.
    fn visit_touched(&mut self) {
        // Whoever takes the place of one that is over is touched meanwhile, too.
        let mut visited = 0;
        while let Some(&place) = self.touched.get(visited) {
            visited += 1;
            self.send(place);
            let Some(conn) = &mut self.conns[place] else { continue };
            if conn.dead || conn.draining {
                self.wind_up(place);
            }
        }
        self.touched.clear();
    }

    fn send(&mut self, place: usize) {
        let Some(conn) = &mut self.conns[place] else { return };
        if !conn.wants_to_send() {
            return;
        }
        let Server { engine, memory, parts, sockets, .. } = self;
        parts.clear();
        engine.with_arena(|arena| conn.gather(memory, arena, *sockets, parts));
        conn.sending_bytes = parts.iter().map(|part| u64::from(part.buf.len)).sum();
        conn.sending = Some(Instant::now());
        self.driver.ring.send(conn.fd.as_raw_fd(), parts, tag(SEND, place));
    }

    /// Ends what keeps a closing connection and removes it when nothing does.
    fn wind_up(&mut self, place: usize) {
        let Some(conn) = &mut self.conns[place] else { return };
        let answered = conn.requests == 0 && !conn.wants_to_send() && conn.sending.is_none();
        if conn.dead || answered {
            // Completes whatever is in flight on it.
            let _ = rustix::net::shutdown(&conn.fd, rustix::net::Shutdown::Both);
        }
        if !conn.is_over() {
            return;
        }
        self.engine.with_arena(|arena| conn.release(arena));
        let id = conn.id;
        tracing::debug!("client {} disconnected", id.generation);
        self.conns[place] = None;
        self.blocked.retain(|&other| other != id);
        self.welcome_more();
    }

    /// Lets waiting connections try again, in their order.
    fn retry_blocked(&mut self) {
        self.buffers_short = false;
        for _ in 0..self.blocked.len() {
            let Some(id) = self.blocked.pop_front() else { break };
            let Some(conn) = self.conns[id.place].as_mut().filter(|conn| conn.id == id) else { continue };
            conn.blocked = false;
            self.advance(id.place);
            self.receive(id.place, false);
            self.touched.push(id.place);
        }
    }

    /// Disconnects clients that keep buffers while others wait for one, or places while others wait for one;
    /// accepts again after a failure.
    fn look_after(&mut self) {
        if self.accept_at.is_some_and(|at| at <= Instant::now()) {
            self.accept_at = None;
            self.welcome_more();
        }
        let (buffers, places) = (self.buffers_short, !self.lobby.is_empty());
        if !(buffers || places) || self.next_look > Instant::now() {
            return;
        }
        self.next_look = Instant::now() + TICK;
        for (place, conn) in self.conns.iter_mut().enumerate() {
            let Some(conn) = conn else { continue };
            let hoards = buffers && conn.waiting_since().is_some_and(|since| since.elapsed() > PATIENCE);
            if hoards || places && conn.squats(HANDSHAKE_PATIENCE, PATIENCE) {
                conn.dead = true;
                self.touched.push(place);
            }
        }
    }

    fn say_events(&mut self) {
        let events = self.engine.take_events();
        if events.is_empty() && !self.events.is_waiting() {
            return;
        }
        self.events.say(events, Instant::now());
        if !self.said_read_only && self.engine.status().state == "read-only" {
            self.said_read_only = true;
            self.notifier.status("read-only after a failure; see the log");
            tracing::error!("{} is read-only until it is opened again", self.volume.0);
        }
    }

    /// Whether a connection may hand the engine another request.
    pub(crate) fn has_room_for(&self, conn: &Connection) -> bool {
        self.engine.has_room()
            && self.requests.has_room()
            && conn.requests < MAX_CLIENT_REQUESTS
            && conn.head_bytes < MAX_CLIENT_HEAD_BYTES
            && (conn.bytes == 0 || conn.bytes < MAX_CLIENT_BYTES)
    }

    pub(crate) fn now(&self) -> bimetal_engine::units::Nanos {
        self.driver.clock.now()
    }

    pub(crate) fn export(&self) -> &Export {
        &self.exports.as_slice()[0]
    }
}
