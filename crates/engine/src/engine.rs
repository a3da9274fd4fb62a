//! The engine's face: requests in, actions out.

use crate::action::{Action, DeviceError, Machine, Request, Token};
use crate::arena::Arena;
use crate::coverage::Stage;
use crate::options::{CheckReport, CreateOptions, DeviceInfo, Event, OpenError, OpenOptions, Status};
use crate::units::Nanos;

/// A volume at work.
pub struct Engine<A> {
    arena: A,
}

impl<A: Arena> Engine<A> {
    /// Whether another request may be handed in; when not, wait for replies.
    pub fn has_room(&self) -> bool {
        false
    }
    /// A client's request. Only while [`Engine::has_room`].
    pub fn on_request(&mut self, _now: Nanos, _request: Request) {}
    /// Size that clients see, bytes: a multiple of the chunk size.
    pub fn size_bytes(&self) -> u64 {
        0
    }
    /// Takes no new requests, finishes what is in flight, commits, checkpoints and marks the volume clean.
    pub fn begin_shutdown(&mut self, _now: Nanos) {}
    /// Whether the shutdown has ended: nothing is in flight any more.
    pub fn is_stopped(&self) -> bool {
        true
    }
    /// The volume at a glance.
    pub fn status(&self) -> Status {
        Status::default()
    }
    /// What is worth telling the user since the last call (a bounded list).
    pub fn take_events(&mut self) -> Vec<Event> {
        Vec::new()
    }
    /// Calls `f` with the stage of each operation in flight.
    pub fn stages_in_flight(&self, _f: &mut dyn FnMut(Stage)) {}
    /// The stage of the operation that waits for this token.
    pub fn stage_of(&self, _token: Token) -> Option<Stage> {
        None
    }
    /// Gives the arena back.
    pub fn into_arena(self) -> A {
        self.arena
    }
}

impl<A: Arena> Machine for Engine<A> {
    type Arena = A;
    fn next_action(&mut self, _now: Nanos) -> Option<Action> {
        None
    }
    fn on_completion(&mut self, _now: Nanos, _token: Token, _result: Result<(), DeviceError>) {}
    fn deadline(&self) -> Option<Nanos> {
        None
    }
    fn on_timer(&mut self, _now: Nanos) {}
    fn with_arena<R>(&mut self, f: impl FnOnce(&mut A) -> R) -> R {
        f(&mut self.arena)
    }
}

/// Work around the engine (create, open, check) that wants I/O and ends with a `T`.
pub struct Task<A, T> {
    arena: A,
    result: Option<T>,
}

impl<A: Arena, T> Task<A, T> {
    /// The result, once: `Some` when the task has ended. Call after each [`Machine::next_action`] that gave `None`.
    pub fn take_result(&mut self) -> Option<T> {
        self.result.take()
    }
    /// The stage it is in.
    pub fn stage(&self) -> Option<Stage> {
        None
    }
}

impl<A: Arena, T> Machine for Task<A, T> {
    type Arena = A;
    fn next_action(&mut self, _now: Nanos) -> Option<Action> {
        None
    }
    fn on_completion(&mut self, _now: Nanos, _token: Token, _result: Result<(), DeviceError>) {}
    fn deadline(&self) -> Option<Nanos> {
        None
    }
    fn on_timer(&mut self, _now: Nanos) {}
    fn with_arena<R>(&mut self, f: impl FnOnce(&mut A) -> R) -> R {
        f(&mut self.arena)
    }
}

/// Lays out a new volume on the devices (in tier order), overwriting what they hold.
pub fn create<A: Arena>(
    arena: A,
    _devices: Vec<DeviceInfo>,
    _options: CreateOptions,
) -> Task<A, Result<(), OpenError>> {
    Task { arena, result: None }
}

/// Opens (and recovers) a volume.
pub fn open<A: Arena>(
    arena: A,
    _devices: Vec<DeviceInfo>,
    _options: OpenOptions,
) -> Task<A, Result<Engine<A>, OpenError>> {
    Task { arena, result: None }
}

/// Checks a volume that is not open, writing nothing: structure, and the checksum of every block that has one.
pub fn check<A: Arena>(
    arena: A,
    _devices: Vec<DeviceInfo>,
    _options: OpenOptions,
) -> Task<A, Result<CheckReport, OpenError>> {
    Task { arena, result: None }
}
