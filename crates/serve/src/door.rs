//! Where clients come in: listening, accepting, and the choice of a volume.

use crate::connection::{Connection, Phase};
use crate::house::{Guest, Tenant};
use crate::listen::{Access, Address, Endpoint, ListenError, Listener, MAX_LISTENERS};
use crate::notify::Notifier;
use crate::requests::ConnId;
use crate::served::Served;
use crate::server::{ACCEPT, CONTROL, IGNORE, MAX_CLIENTS, STOP, ServeError, Server, TICK, tag};
use bimetal_driver::Ring;
use bimetal_driver::signals::StopSignals;
use bimetal_nbd::{Export, Exports, Handshake, Terms, Transmission};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A place where clients connect.
struct NbdListener {
    listener: Listener,
    /// An accept is in flight.
    accepting: bool,
}

/// How clients are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reception {
    /// Who may connect to unix sockets.
    pub access: Access,
    /// While all places are taken, a client that has asked for nothing for so long gives way to one that waits.
    pub idle_after: Duration,
    /// The first Ctrl-C with clients connected only says who they are.
    pub asks_back: bool,
}

impl Default for Reception {
    fn default() -> Self {
        Reception { access: Access::OWNER, idle_after: Duration::from_secs(60), asks_back: false }
    }
}

/// How often it is said that somebody waits for a place.
const CROWDED_EVERY: Duration = Duration::from_secs(60);

/// What SIGINT does while clients are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interrupts {
    /// It ends the server.
    End,
    /// The next one only has it said who they are.
    AskBack,
    /// That was said: the server ends when they have left, or at the next one.
    WereAnswered,
}

/// What a signal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signalled {
    /// Say who is connected, and go on.
    AskBack,
    /// Close in good order.
    Stop,
    /// It is not the first one.
    StopAtOnce,
}

/// The sockets that clients connect to, and what they may choose there.
pub struct Door {
    exports: Arc<Exports>,
    nbd: Vec<NbdListener>,
    /// Accepted while all places were taken: they wait, and nobody is accepted behind them. At most one for each
    /// listener.
    lobby: VecDeque<OwnedFd>,
    idle_after: Duration,
    /// When it was said last that somebody waits.
    crowded_said: Option<Instant>,
    signals: StopSignals,
    interrupts: Interrupts,
    /// One has come that ends the server.
    signalled: bool,
    notifier: Notifier,
}

impl Door {
    /// Takes the sockets, `MAX_LISTENERS` at most, on which the volumes are to be offered. Clients can connect
    /// from here on; they are answered once the first volume's [`Server::run`] runs.
    pub fn new(
        addresses: Vec<Address>,
        exports: Vec<Export>,
        reception: Reception,
    ) -> Result<Door, ServeError> {
        let Reception { access, idle_after, asks_back } = reception;
        match addresses.len() {
            0 => return Err(ListenError::Nowhere.into()),
            count if count > MAX_LISTENERS => return Err(ListenError::TooMany { count }.into()),
            _ => {}
        }
        let bind = |address| {
            let listener = Listener::bind(address, access)?;
            Ok(NbdListener { listener, accepting: false })
        };
        Ok(Door {
            exports: Arc::new(Exports::new(exports)?),
            nbd: addresses.into_iter().map(bind).collect::<Result<_, ListenError>>()?,
            lobby: VecDeque::new(),
            idle_after,
            crowded_said: None,
            signals: StopSignals::new().map_err(ServeError::Setup)?,
            interrupts: if asks_back { Interrupts::AskBack } else { Interrupts::End },
            signalled: false,
            notifier: Notifier::from_environment().map_err(ServeError::Notify)?,
        })
    }

    /// Where clients connect, in the order given.
    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.nbd.iter().map(|nbd| nbd.listener.endpoint())
    }

    /// The service manager, who hears of all volumes from here.
    pub(crate) fn notifier(&mut self) -> &mut Notifier {
        &mut self.notifier
    }

    /// Says that clients can connect, and asks every thread for the signs of life that the manager wants.
    pub(crate) fn opened(&self, tenant: &Tenant, ring: &mut Ring) {
        ring.poll_in(self.signals.raw_fd(), tag(STOP, 0));
        tenant.let_idle_go_after(self.idle_after);
        if let Some(every) = self.notifier.every() {
            tenant.watch(every);
        }
        let names: Vec<&str> = self.exports.as_slice().iter().map(|export| export.name.as_str()).collect();
        self.notifier.ready(&format!("serving {}", names.join(", ")));
    }

    /// Takes the signal that came, and listens for another.
    pub(crate) fn answer_signal(&mut self, ring: &mut Ring, clients: bool) -> Signalled {
        let interrupt = self.signals.acknowledge();
        ring.poll_in(self.signals.raw_fd(), tag(STOP, 0));
        if clients && interrupt && !self.signalled && self.interrupts == Interrupts::AskBack {
            self.interrupts = Interrupts::WereAnswered;
            return Signalled::AskBack;
        }
        match std::mem::replace(&mut self.signalled, true) {
            false => Signalled::Stop,
            true => Signalled::StopAtOnce,
        }
    }

    /// Whether the server is to end as soon as no client is connected.
    pub(crate) fn ends_when_left(&self) -> bool {
        self.interrupts == Interrupts::WereAnswered && !self.signalled
    }

    /// Nobody comes in any more.
    pub(crate) fn shut(&mut self, ring: &mut Ring) {
        self.notifier.stopping();
        for place in (0..self.nbd.len()).filter(|&place| self.nbd[place].accepting) {
            ring.cancel(tag(ACCEPT, place), tag(IGNORE, 0));
        }
        self.nbd.clear();
        self.lobby.clear();
    }

    /// Somebody waits for a place.
    fn say_crowded(&mut self) {
        if self.crowded_said.is_none_or(|said| said.elapsed() >= CROWDED_EVERY) {
            self.crowded_said = Some(Instant::now());
            tracing::warn!(
                "all {MAX_CLIENTS} places for clients are taken, and others wait; one that has asked for nothing for {} s \
                 gives way",
                self.idle_after.as_secs()
            );
        }
    }

    /// Accepts on all listeners while nobody waits.
    fn accept(&mut self, ring: &mut Ring) {
        if !self.lobby.is_empty() {
            return;
        }
        for (place, nbd) in self.nbd.iter_mut().enumerate().filter(|(_, nbd)| !nbd.accepting) {
            ring.accept(nbd.listener.raw_fd(), tag(ACCEPT, place));
            nbd.accepting = true;
        }
    }
}

impl<V: Served> Server<V> {
    /// An accept has ended.
    pub(crate) fn on_accepted(&mut self, place: usize, result: i32) {
        let fd = self.driver.ring.take_accepted(result);
        // A server that is stopping has no listeners any more.
        let Some(door) = &mut self.door else { return };
        let Some(nbd) = door.nbd.get_mut(place) else { return };
        nbd.accepting = false;
        let Some(fd) = fd else { return self.cannot_accept(result) };
        nbd.listener.prepare(&fd);
        door.lobby.push_back(fd);
        self.accept_complained = false;
        self.welcome_more();
    }

    /// Most likely no descriptor is left: whoever wants to connect waits until one is.
    pub(crate) fn cannot_accept(&mut self, result: i32) {
        self.accept_at = Some(Instant::now() + TICK);
        if !std::mem::replace(&mut self.accept_complained, true) {
            let error = io::Error::from_raw_os_error(-result);
            tracing::warn!("no client can be accepted for now ({error}); those connected are served on");
        }
    }

    /// Gives free places to those who wait, and accepts more when nobody does. One more than there are places
    /// for is accepted on each listener, so that it is known that somebody waits.
    pub(crate) fn welcome_more(&mut self) {
        while let Some(door) = &mut self.door {
            if door.lobby.is_empty() {
                self.tenant.not_crowded();
                break;
            }
            if !self.tenant.admit(MAX_CLIENTS) {
                door.say_crowded();
                break;
            }
            let Some(fd) = door.lobby.pop_front() else { break };
            let mut greeting = Vec::new();
            let handshake = Handshake::new(door.exports.clone(), &mut greeting);
            self.seat(fd, Phase::Handshake(handshake), Terms::default(), greeting, &[], false);
        }
        if self.accept_at.is_some() {
            return;
        }
        if !std::mem::replace(&mut self.control_accepting, true) {
            self.driver.ring.accept(self.control.raw_fd(), tag(CONTROL, 0));
        }
        if let Some(door) = &mut self.door {
            door.accept(&mut self.driver.ring);
        }
    }

    /// Takes in the clients that chose this volume.
    pub(crate) fn take_guests(&mut self) {
        while let Some(Guest { fd, terms, input }) = self.tenant.next_guest() {
            if self.stopping {
                self.tenant.dismiss();
                continue;
            }
            let phase = Phase::Requests(Transmission::new());
            self.seat(fd, phase, terms, Vec::new(), &input, false);
        }
    }

    /// Gives a client that was admitted, or a device of the machine, its place.
    pub(crate) fn seat(
        &mut self,
        fd: OwnedFd,
        phase: Phase,
        terms: Terms,
        greeting: Vec<u8>,
        input: &[u8],
        machine: bool,
    ) {
        let place = self.conns.iter().position(Option::is_none).expect("no more are admitted than have room");
        self.generation += 1;
        tracing::debug!("client {} of {} connected", self.generation, self.volume.0);
        let id = ConnId { place, generation: self.generation };
        let mut conn = Connection::new(id, fd, phase, terms, greeting);
        conn.machine = machine;
        conn.take_input(input, &mut self.memory);
        self.conns[place] = Some(conn);
        self.advance(place);
        self.receive(place, true);
        self.touched.push(place);
    }

    /// Hands a client that chose another volume, and has its last reply, to that volume's thread.
    pub(crate) fn see_off(&mut self, place: usize) {
        let ready = |conn: &mut Connection| {
            conn.leaving.is_some() && !conn.receiving && conn.sending.is_none() && conn.out_bytes.is_empty()
        };
        let Some(conn) = self.conns[place].take_if(|conn| ready(conn)) else { return };
        tracing::debug!("client {} of {} goes to another volume", conn.id.generation, self.volume.0);
        let input = conn.input(&self.memory).to_vec();
        if let Some(to) = conn.leaving {
            self.tenant.hand_over(to.get(), Guest { fd: conn.fd, terms: conn.terms, input });
        }
    }
}
