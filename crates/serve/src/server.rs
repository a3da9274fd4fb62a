//! The serving loop.

use crate::answer::READ_EXTENTS;
use crate::attach::{MACHINE_CONNECTIONS, Machine, UBLK, UBLK_CONTROL, from_ublk};
use crate::callers;
use crate::connection::{Connection, Incoming, MAX_CLIENT_BYTES, MAX_CLIENT_HEAD_BYTES, MAX_CLIENT_REQUESTS};
use crate::desk::{Desk, VISITOR};
use crate::door::{Door, Signalled};
use crate::events::EventLimit;
use crate::house::Tenant;
use crate::listen::{Access, ListenError, Listener};
use crate::meter::Meter;
use crate::plan_tape::PlanTape;
use crate::protection::ProtectionDoc;
use crate::record::Recorder;
use crate::requests::{ConnId, Requests};
use crate::served::Served;
use crate::status::{StatusDoc, VolumeName, tier_name};
use crate::successor::Succession;
use crate::trouble::Trouble;
use crate::watched::{EventKind, Watcher, said_as, unix_ms};
use bimetal_driver::driver::FIRST_FREE_TAG;
use bimetal_driver::ring::Mem;
use bimetal_driver::{Completion, Driver, Memory};
use bimetal_engine::action::{MAX_PAYLOAD_BYTES, RequestError, RequestId};
use bimetal_engine::arena::Arena as _;
use bimetal_engine::extents::Extents;
use bimetal_engine::options::Level;
use bimetal_nbd::Export;
use bimetal_units::Nanos;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Rounds of devices' answers before clients are looked at.
const MAX_ROUNDS: u32 = 64;
/// Clients of all volumes of a server at most; the next one waits to be accepted.
pub const MAX_CLIENTS: usize = 64;
/// What the connections' receive and send buffers take.
pub const CLIENT_MEMORY_BYTES: u64 = MAX_CONNECTIONS as u64 * Connection::MEMORY_BYTES;
/// They, and what devices of the machine take.
const MAX_CONNECTIONS: usize = MAX_CLIENTS + MACHINE_CONNECTIONS;
/// A client that keeps a buffer this long while others wait for one is disconnected.
const PATIENCE: Duration = Duration::from_secs(30);
/// A client that sends nothing more of a write for this long while others wait for a buffer is disconnected: far more
/// than any pause of one that lives, and others wait as long.
const STALL_PATIENCE: Duration = Duration::from_secs(5);
/// A client that negotiates for longer than this is disconnected: a handshake is a few exchanges of a few hundred bytes.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(30);
/// The same while others wait for its place.
const CROWDED_HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);
/// Longest wait while something is to be looked after.
pub(crate) const TICK: Duration = Duration::from_secs(1);
/// How soon the threads of other volumes are looked at again when one of them is late with its sign of life.
const LATE_LOOK: Duration = Duration::from_millis(50);
/// After the volume has stopped, how long clients may take to read their last replies.
const FAREWELL: Duration = Duration::from_secs(2);

/// What a tag of the server means: kind in bits 40 to 43, place below.
const KIND_SHIFT: u32 = 40;
const RECV: u64 = 1;
const SEND: u64 = 2;
pub(crate) const ACCEPT: u64 = 3;
pub(crate) const CONTROL: u64 = 4;
pub(crate) const STOP: u64 = 5;
pub(crate) const IGNORE: u64 = 6;
const BELL: u64 = 7;

/// What the protocol announces is what the engine takes.
const _: () = assert!(bimetal_nbd::limits::MAX_PAYLOAD_BYTES as u64 == MAX_PAYLOAD_BYTES);

pub(crate) fn tag(kind: u64, place: usize) -> u64 {
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
    /// A device was cut, detached, or taken by another server.
    #[error("{0}; the server has stopped, and wrote nothing more")]
    Lost(String),
    /// A device's file was deleted or replaced.
    #[error("{0}; the volume took no changes since")]
    Orphaned(String),
    /// A second signal came before the volume was closed.
    #[error("stopped at once by a second signal; the volume recovers when it is opened next")]
    Impatient,
}

/// An open volume and how to serve it.
pub struct Opened<V> {
    /// The volume.
    pub engine: V,
    /// Its devices. Made on the thread that will serve it: the ring is that thread's own.
    pub driver: Driver,
    /// What the arena takes, bytes.
    pub buffer_bytes: u64,
    /// The volume's name, which is also the export's.
    pub volume: VolumeName,
    /// The volume file.
    pub file: PathBuf,
    /// Clients may not write. The volume itself is open as ever: it recovers, merges and moves.
    pub read_only: bool,
    /// Unix socket for status.
    pub control: PathBuf,
}

impl<V: Served> Opened<V> {
    /// What clients see of it.
    pub fn export(&self) -> Export {
        Export {
            name: self.volume.0.clone(),
            description: format!("Bimetal volume {}", self.volume.0),
            size_bytes: self.engine.size_bytes(),
            read_only: self.read_only,
        }
    }
}

/// A volume, its clients, and the one thread that serves them.
pub struct Server<V> {
    pub(crate) engine: V,
    pub(crate) driver: Driver,
    pub(crate) volume: VolumeName,
    file: PathBuf,
    export: Export,
    pub(crate) tenant: Tenant,
    /// With the first volume of a server.
    pub(crate) door: Option<Door>,
    /// An accept failed (no descriptor is left, perhaps): when to try again.
    pub(crate) accept_at: Option<Instant>,
    /// That was said; it is not repeated until somebody is accepted again.
    pub(crate) accept_complained: bool,
    pub(crate) control: Listener,
    /// An accept is in flight there.
    pub(crate) control_accepting: bool,
    pub(crate) desk: Desk,
    /// The volume as a device of the machine.
    pub(crate) machine: Machine,
    /// Somebody wants to know of every request.
    pub(crate) recorder: Option<Recorder>,
    /// What was asked for lately, for plans.
    pub(crate) plan_tape: Option<PlanTape>,
    /// Who hands over what is recorded of the engine, or that.
    pub(crate) handing_over: Option<JoinHandle<()>>,
    meter: Meter,
    pub(crate) watcher: Option<Box<dyn Watcher>>,
    /// The second in which it was told how the volume is.
    pub(crate) told_second: u64,
    events: EventLimit,
    pub(crate) succession: Succession,
    pub(crate) trouble: Trouble,
    /// It was said that the volume is read-only.
    said_read_only: bool,
    pub(crate) said_unprotected: bool,
    /// Of a protected volume, when it was looked at last.
    pub(crate) has_image: bool,
    /// Receive and send buffers of all connections.
    pub(crate) memory: Memory,
    /// Its place in the ring.
    sockets: usize,
    pub(crate) conns: Vec<Option<Connection>>,
    pub(crate) generation: u64,
    pub(crate) requests: Requests,
    /// Bytes of buffers of large writes that are coming in.
    pub(crate) arriving_bytes: u64,
    /// Connections that wait for room, first come first served.
    pub(crate) blocked: VecDeque<ConnId>,
    /// Somebody at the front of that queue waits for a buffer: nobody behind may take one.
    pub(crate) buffers_short: bool,
    /// Somebody with a large write waits for others to come in.
    pub(crate) arrivals_short: bool,
    /// Connections that have something new to send, or may have come to their end.
    pub(crate) touched: Vec<usize>,
    parts: Vec<Mem>,
    next_look: Instant,
    pub(crate) stopping: bool,
    stopped_at: Option<Instant>,
    buffer_bytes: u64,
}

impl<V: Served> Server<V> {
    /// Gets ready to serve a volume on this thread; `door` with the first tenant, unless some volume did not open
    /// and all are only to be closed again.
    pub fn new(opened: Opened<V>, tenant: Tenant, door: Option<Door>) -> Result<Self, ServeError> {
        let export = opened.export();
        let Opened { engine, mut driver, buffer_bytes, volume, file, control, .. } = opened;
        let memory = Memory::new(CLIENT_MEMORY_BYTES as usize).map_err(ServeError::Setup)?;
        let sockets = driver.ring.add_region(memory.region().clone());
        Ok(Server {
            control: Listener::unix(&control, Access::OWNER)?,
            control_accepting: false,
            desk: Desk::default(),
            machine: Machine::beside(&control),
            recorder: None,
            plan_tape: None,
            handing_over: None,
            meter: Meter::default(),
            watcher: None,
            told_second: 0,
            export,
            tenant,
            door,
            accept_at: None,
            accept_complained: false,
            events: EventLimit::default(),
            succession: Succession::default(),
            trouble: Trouble::default(),
            said_read_only: false,
            said_unprotected: false,
            has_image: false,
            engine,
            driver,
            volume,
            file,
            memory,
            sockets,
            conns: std::iter::repeat_with(|| None).take(MAX_CONNECTIONS).collect(),
            generation: 0,
            requests: Requests::new(),
            arriving_bytes: 0,
            blocked: VecDeque::new(),
            buffers_short: false,
            arrivals_short: false,
            touched: Vec::new(),
            parts: Vec::new(),
            next_look: Instant::now(),
            stopping: false,
            stopped_at: None,
            buffer_bytes,
        })
    }

    /// Serves until SIGINT or SIGTERM, or until another volume of the server ends; then drains, closes the volume
    /// and returns. The first volume waits for the others to have done so, too.
    pub fn run(mut self) -> Result<(), ServeError> {
        self.driver.ring.poll_in(self.tenant.bell(), tag(BELL, 0));
        self.welcome_more();
        if let Some(door) = &self.door {
            door.opened(&self.tenant, &mut self.driver.ring);
        }
        self.say_loss();
        self.opening_happened();
        self.take_up_replacement();
        let (mut replies, mut events) = (Vec::new(), Vec::new());
        loop {
            self.driver.pump(&mut self.engine, |id, result, _| replies.push((id, result)));
            // Where devices answer at once, background work could go on for long: clients come in between.
            for _ in 0..MAX_ROUNDS {
                if !self.driver.ring.has_ready() {
                    break;
                }
                self.driver.harvest(&mut self.engine, |completion| events.push(completion));
                self.driver.pump(&mut self.engine, |id, result, _| replies.push((id, result)));
            }
            if self.look_after_devices() {
                self.driver.pump(&mut self.engine, |id, result, _| replies.push((id, result)));
            }
            while self.look_after_replacement() {
                self.driver.pump(&mut self.engine, |id, result, _| replies.push((id, result)));
            }
            while self.look_after_desk() {
                self.driver.pump(&mut self.engine, |id, result, _| replies.push((id, result)));
            }
            let now = self.now();
            for (id, result) in replies.drain(..) {
                self.answer(id, result, now);
            }
            self.visit_touched();
            self.say_events();
            if self.is_finished() {
                self.say_last_events();
                self.closing_happened();
                return std::mem::take(&mut self.trouble).result();
            }
            let limit = self.rest();
            self.driver.wait(&self.engine, limit).map_err(ServeError::Ring)?;
            self.driver.harvest(&mut self.engine, |completion| events.push(completion));
            self.retry_blocked();
            self.serve_ublk();
            for event in events.drain(..) {
                self.on_event(event)?;
            }
            self.look_after();
        }
    }

    /// How long the loop may sleep; the signs of life that are due are given.
    fn rest(&mut self) -> Option<Duration> {
        let waiting = !self.blocked.is_empty() || self.tenant.is_crowded();
        let waiting = waiting || self.conns.iter().flatten().any(Connection::is_shaking_hands);
        let looking = waiting || self.accept_at.is_some() || self.stopping || self.events.is_waiting();
        let recorder = self.look_after_recorder();
        let (desk, device) = (self.desk.due_in(), self.machine.due_in());
        let own = [looking.then_some(TICK), desk, device, recorder, self.tenant.beat()];
        let mut limit = own.into_iter().flatten().min();
        if let Some(door) = &mut self.door {
            let next = match self.tenant.all_beat() {
                true => {
                    door.notifier().alive();
                    door.notifier().due_in()
                }
                false => Some(LATE_LOOK),
            };
            limit = [limit, next].into_iter().flatten().min();
        }
        limit
    }

    fn on_event(&mut self, event: Completion) -> Result<(), ServeError> {
        let place = (event.tag & 0xff_ffff) as usize;
        match event.tag >> KIND_SHIFT {
            RECV => self.on_received(place, event.result),
            SEND => self.on_sent(place, event.result),
            ACCEPT => self.on_accepted(place, event.result),
            CONTROL => {
                self.control_accepting = false;
                match self.driver.ring.take_accepted(event.result) {
                    Some(fd) => {
                        self.receive_visitor(fd);
                        self.welcome_more();
                    }
                    None => self.cannot_accept(event.result),
                }
            }
            STOP => {
                let clients = self.clients().any(|conn| !conn.dead);
                let ring = &mut self.driver.ring;
                match self.door.as_mut().map_or(Signalled::Stop, |door| door.answer_signal(ring, clients)) {
                    Signalled::AskBack => self.say_who_is_here(),
                    Signalled::Stop => self.tenant.stop_all(),
                    Signalled::StopAtOnce => return Err(ServeError::Impatient),
                }
            }
            VISITOR => self.hear_visitor(place),
            UBLK => self.on_ublk(place, event.result),
            UBLK_CONTROL => self.hear_ublk_control(),
            BELL => {
                self.tenant.answer_bell();
                self.driver.ring.poll_in(self.tenant.bell(), tag(BELL, 0));
                if self.tenant.is_stopping() && !self.stopping {
                    self.stop();
                }
                self.take_guests();
                self.welcome_more();
            }
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn status(&self) -> StatusDoc {
        let mut doc = StatusDoc::new(&self.volume, &self.engine.status());
        doc.clients = self.clients().count() as u64;
        doc.attached = self.machine.doc();
        doc.buffer_bytes = self.buffer_bytes;
        doc.file = self.file.display().to_string();
        doc.describe_devices(&self.driver.io_facts());
        doc.load_devices(&self.driver.loads());
        doc.requests = self.meter.doc();
        doc.replacing = self.replacement();
        doc.protection = ProtectionDoc::of(&self.driver);
        doc.unix_ms = unix_ms();
        doc
    }

    /// Who is connected, but for a device of the machine.
    fn clients(&self) -> impl Iterator<Item = &Connection> {
        self.conns.iter().flatten().filter(|conn| !conn.machine)
    }

    /// Says who is connected, and how to leave in good order.
    fn say_who_is_here(&self) {
        let connected = self.clients().filter(|conn| !conn.dead);
        for sentence in callers::sentences(&self.volume.0, connected.map(|conn| &conn.fd)) {
            tracing::warn!("{sentence}");
        }
        tracing::warn!(
            "{} closes when they have left; Ctrl-C again closes it all the same: clients get errors then",
            self.volume.0
        );
    }

    pub(crate) fn stop(&mut self) {
        tracing::info!("closing {}", self.volume.0);
        self.stopping = true;
        self.leave_device();
        if let Some(door) = &mut self.door {
            door.shut(&mut self.driver.ring);
        }
        for conn in self.conns.iter_mut().flatten() {
            conn.draining = true;
        }
        if let Some(replacement) = self.driver.replacement_mut() {
            replacement.copy(false);
        }
        self.engine.begin_shutdown(self.driver.clock.now());
    }

    /// Whether the volume is closed and the clients have their last replies.
    fn is_finished(&mut self) -> bool {
        if self.trouble.is_lost() {
            return self.has_given_up();
        }
        if !self.stopping || !self.engine.is_stopped() || self.driver.device_ops() > 0 {
            return false;
        }
        if !self.device_is_left() || !self.driver.image_is_finished() {
            return false;
        }
        if self.tenant.place() == 0 && !self.tenant.is_last() {
            return false;
        }
        let since = *self.stopped_at.get_or_insert_with(Instant::now);
        self.end_recording();
        self.look_after_recorder();
        let mut pending =
            self.conns.iter().flatten().any(|conn| {
                !conn.dead && (conn.sending.is_some() || !conn.out.is_empty() || conn.requests > 0)
            });
        pending |= self.recorder_waits();
        !pending || since.elapsed() > FAREWELL
    }

    /// Submits a receive, if one makes sense now.
    pub(crate) fn receive(&mut self, place: usize, later: bool) {
        let Some(conn) = &mut self.conns[place] else { return };
        if conn.receiving || conn.draining || conn.dead || conn.blocked || conn.leaving.is_some() {
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
    fn answer(&mut self, id: RequestId, result: Result<(), RequestError>, now: Nanos) {
        let Some(pending) = self.requests.remove(id) else { return };
        if let Some(recorder) = &mut self.recorder {
            recorder.answered(&pending, now);
        }
        self.meter.answered(&pending, now, result.is_ok());
        if result.is_ok() {
            self.note_answer_for_plans(&pending, now);
        }
        if from_ublk(pending.conn) {
            return self.answer_ublk(&pending, result);
        }
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
            } else if conn.leaving.is_some() {
                self.see_off(place);
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
        if conn.machine && self.stopping && !conn.dead {
            // The kernel counts how long it waits from the end of its connection, and closing a volume may take a while.
            return;
        }
        let answered = conn.requests == 0 && !conn.wants_to_send() && conn.sending.is_none();
        if conn.dead || answered {
            // Completes whatever is in flight on it.
            let _ = rustix::net::shutdown(&conn.fd, rustix::net::Shutdown::Both);
        }
        if !conn.is_over() {
            return;
        }
        self.arriving_bytes -= conn.incoming.as_ref().map_or(0, Incoming::arriving_bytes);
        self.engine.with_arena(|arena| conn.release(arena));
        let (id, machine, goodbye) = (conn.id, conn.machine, conn.goodbye);
        tracing::debug!("client {} of {} disconnected", id.generation, self.volume.0);
        self.conns[place] = None;
        self.blocked.retain(|&other| other != id);
        if machine {
            return self.machine_left(goodbye);
        }
        self.tenant.dismiss();
        self.welcome_more();
        let ends = self.door.as_ref().is_some_and(Door::ends_when_left);
        if ends && !self.stopping && self.clients().next().is_none() {
            tracing::info!("the last client of {} has left", self.volume.0);
            self.tenant.stop_all();
        }
    }

    /// Lets waiting connections try again, in their order.
    fn retry_blocked(&mut self) {
        (self.buffers_short, self.arrivals_short) = (false, false);
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
        self.look_after_device();
        self.look_after_protection();
        self.tell_watcher(false);
        if self.next_look > Instant::now() {
            return;
        }
        self.next_look = Instant::now() + TICK;
        let (buffers, places) = (self.buffers_short || self.arrivals_short, self.tenant.is_crowded());
        let handshake = if places { CROWDED_HANDSHAKE_PATIENCE } else { HANDSHAKE_PATIENCE };
        let mut goes = false;
        for (place, conn) in self.conns.iter_mut().enumerate() {
            let Some(conn) = conn else { continue };
            let hoards = buffers && conn.hoards(STALL_PATIENCE, PATIENCE);
            let squats = (places || conn.is_shaking_hands()) && conn.squats(handshake, PATIENCE);
            if hoards || squats {
                conn.dead = true;
                self.touched.push(place);
                goes = true;
            }
        }
        if places && !goes {
            self.let_one_idle_go();
        }
    }

    /// Somebody waits for a place, and nobody keeps one who should not: the client gives way that has asked for nothing
    /// for longest, one at a time; first those that never asked for anything.
    fn let_one_idle_go(&mut self) {
        let patience = self.tenant.idle_after();
        let idle = |conn: &Connection| {
            let idle = conn.idle_for().filter(|idle| *idle >= patience)?;
            Some((!conn.has_asked, idle, conn.id))
        };
        let Some((_, time, id)) =
            self.conns.iter().flatten().filter_map(idle).max_by_key(|one| (one.0, one.1))
        else {
            return;
        };
        tracing::info!(
            "client {} of {} has asked for nothing for {} s and gives way to one that waits for its place",
            id.generation,
            self.volume.0,
            time.as_secs()
        );
        if let Some(conn) = &mut self.conns[id.place] {
            conn.dead = true;
            self.touched.push(id.place);
        }
    }

    /// Tells the service manager that a device is missing, where that is so.
    fn say_loss(&mut self) {
        let loss = self.engine.status().loss;
        if let (Some(loss), Some(door)) = (loss, &mut self.door) {
            let missing = tier_name(usize::from(loss.missing.0));
            let (lost, size) = (loss.lost_bytes, self.export.size_bytes);
            door.notifier()
                .status(&format!("degraded: {missing} is missing, {lost} of {size} bytes are lost"));
        }
    }

    fn say_events(&mut self) {
        let events = self.engine.take_events();
        if events.is_empty() && !self.events.is_waiting() {
            return;
        }
        let is_told = self.watcher.is_some();
        for (level, said) in self.events.say(events, Instant::now(), is_told) {
            let (kind, level) = said_as(level, said.is_device);
            self.happened(kind, level, said.line);
        }
        if !self.said_read_only && self.engine.status().state == "read-only" {
            self.said_read_only = true;
            if let Some(door) = &mut self.door {
                door.notifier().status("read-only after a failure; see the log");
            }
            let what = format!("{} is read-only until it is opened again", self.volume.0);
            self.say_happened(EventKind::ReadOnly, Level::Error, what);
        }
    }

    /// Says what was counted of events, and not said.
    fn say_last_events(&mut self) {
        for (level, line) in self.events.last() {
            let (kind, _) = said_as(level, false);
            self.say_happened(kind, level, line);
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

    pub(crate) fn now(&self) -> Nanos {
        self.driver.clock.now()
    }

    pub(crate) fn export(&self) -> &Export {
        &self.export
    }
}
