//! The serving loop.

use crate::connection::{Connection, MAX_CLIENT_BYTES, MAX_CLIENT_REQUESTS};
use crate::control;
use crate::listen::{ListenError, Listener};
use crate::requests::{ConnId, Requests};
use crate::served::Served;
use crate::status::{StatusDoc, VolumeName};
use bimetal_driver::driver::FIRST_FREE_TAG;
use bimetal_driver::ring::Mem;
use bimetal_driver::signals::StopSignals;
use bimetal_driver::{Completion, Driver, Memory};
use bimetal_engine::action::{RequestError, RequestId};
use bimetal_engine::arena::Arena as _;
use bimetal_nbd::{Export, Exports, Handshake};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rounds of devices' answers before clients are looked at.
const MAX_ROUNDS: u32 = 64;
/// Clients at most; the next one waits to be accepted.
pub const MAX_CLIENTS: usize = 64;
/// A client that keeps a buffer this long while others wait for one is disconnected.
const PATIENCE: Duration = Duration::from_secs(30);
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
    /// Signals or memory cannot be set up.
    #[error("cannot set up the server: {0}")]
    Setup(#[source] io::Error),
    /// A second signal came before the volume was closed.
    #[error("stopped at once by a second signal; the volume recovers when it is opened next")]
    Impatient,
}

/// What to serve and where.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The volume's name.
    pub volume: VolumeName,
    /// Unix socket for NBD clients.
    pub nbd: PathBuf,
    /// Unix socket for status.
    pub control: PathBuf,
}

/// A volume, its clients, and the one thread that serves them.
pub struct Server<V> {
    pub(crate) engine: V,
    driver: Driver,
    options: ServerOptions,
    exports: Arc<Exports>,
    nbd: Option<Listener>,
    control: Option<Listener>,
    signals: StopSignals,
    /// Receive and send buffers of all connections.
    pub(crate) memory: Memory,
    /// Its place in the ring.
    sockets: usize,
    pub(crate) conns: Vec<Option<Connection>>,
    generation: u64,
    accepting: bool,
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
            name: String::new(),
            description: format!("Bimetal volume {}", options.volume.0),
            size_bytes: engine.size_bytes(),
            read_only: false,
        }])?;
        let memory =
            Memory::new(MAX_CLIENTS * Connection::MEMORY_BYTES as usize).map_err(ServeError::Setup)?;
        let sockets = driver.ring.add_region(memory.region().clone());
        Ok(Server {
            control: Some(Listener::bind(&options.control)?),
            nbd: Some(Listener::bind(&options.nbd)?),
            signals: StopSignals::new().map_err(ServeError::Setup)?,
            engine,
            driver,
            options,
            exports: Arc::new(exports),
            memory,
            sockets,
            conns: std::iter::repeat_with(|| None).take(MAX_CLIENTS).collect(),
            generation: 0,
            accepting: false,
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

    /// Where clients connect.
    pub fn nbd_path(&self) -> &Path {
        &self.options.nbd
    }

    /// Serves until SIGINT or SIGTERM, then drains, closes the volume and returns.
    pub fn run(mut self) -> Result<(), ServeError> {
        if let Some(control) = &self.control {
            self.driver.ring.accept(control.socket.as_raw_fd(), tag(CONTROL, 0));
        }
        self.driver.ring.poll_in(self.signals.raw_fd(), tag(STOP, 0));
        self.accept_more();
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
                return Ok(());
            }
            let limit = if self.blocked.is_empty() && !self.stopping { None } else { Some(TICK) };
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
                self.accepting = false;
                if let Some(fd) = self.driver.ring.take_accepted(event.result) {
                    self.welcome(fd);
                }
                self.accept_more();
            }
            CONTROL => {
                if let Some(fd) = self.driver.ring.take_accepted(event.result) {
                    control::answer(fd, &self.status());
                }
                if let Some(control) = &self.control {
                    self.driver.ring.accept(control.socket.as_raw_fd(), tag(CONTROL, 0));
                }
            }
            STOP if self.stopping => return Err(ServeError::Impatient),
            STOP => self.stop(),
            _ => {}
        }
        Ok(())
    }

    fn status(&self) -> StatusDoc {
        let mut doc = StatusDoc::new(&self.options.volume, &self.engine.status());
        doc.clients = self.conns.iter().flatten().count() as u64;
        doc.buffer_bytes = self.buffer_bytes;
        doc.describe_devices(&self.driver.io_facts());
        doc
    }

    fn stop(&mut self) {
        self.stopping = true;
        self.signals.acknowledge();
        self.driver.ring.poll_in(self.signals.raw_fd(), tag(STOP, 0));
        if self.accepting {
            self.driver.ring.cancel(tag(ACCEPT, 0), tag(IGNORE, 0));
        }
        self.nbd = None;
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

    fn accept_more(&mut self) {
        let room = self.conns.iter().any(Option::is_none);
        if let Some(nbd) = &self.nbd
            && room
            && !self.accepting
        {
            self.driver.ring.accept(nbd.socket.as_raw_fd(), tag(ACCEPT, 0));
            self.accepting = true;
        }
    }

    fn welcome(&mut self, fd: OwnedFd) {
        let Some(place) = self.conns.iter().position(Option::is_none) else { return };
        if self.stopping {
            return;
        }
        // Room for a whole batch of replies; a refusal of the system costs only speed.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&fd, 1 << 20);
        self.generation += 1;
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
                let leftover = conn.reply(&pending, result);
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
        let mut touched = std::mem::take(&mut self.touched);
        for place in touched.drain(..) {
            self.send(place);
            let Some(conn) = &mut self.conns[place] else { continue };
            if conn.dead || conn.draining {
                self.wind_up(place);
            }
        }
        self.touched = touched;
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
        self.conns[place] = None;
        self.blocked.retain(|&other| other != id);
        self.accept_more();
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

    /// Disconnects clients that keep buffers while others wait for one.
    fn look_after(&mut self) {
        if !self.buffers_short || self.next_look > Instant::now() {
            return;
        }
        self.next_look = Instant::now() + TICK;
        for (place, conn) in self.conns.iter_mut().enumerate() {
            let Some(conn) = conn else { continue };
            if conn.waiting_since().is_some_and(|since| since.elapsed() > PATIENCE) {
                conn.dead = true;
                self.touched.push(place);
            }
        }
    }

    fn say_events(&mut self) {
        for event in self.engine.take_events() {
            eprintln!("bimetal: {}", event.message);
        }
    }

    /// Whether a connection may hand the engine another request.
    pub(crate) fn has_room_for(&self, conn: &Connection) -> bool {
        self.engine.has_room()
            && self.requests.has_room()
            && conn.requests < MAX_CLIENT_REQUESTS
            && (conn.bytes == 0 || conn.bytes < MAX_CLIENT_BYTES)
    }

    pub(crate) fn now(&self) -> bimetal_engine::units::Nanos {
        self.driver.clock.now()
    }

    pub(crate) fn export(&self) -> &Export {
        &self.exports.as_slice()[0]
    }
}
