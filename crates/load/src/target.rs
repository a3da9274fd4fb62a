//! What is loaded.

use bimetal_models::device::{Command, Failure};
use bimetal_units::ServedBy;

/// Why a command was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A model said so.
    Failed(Failure),
    /// The operating system, or a server, said so: an `errno`.
    Errno(i32),
    /// Only so many bytes of it were done.
    Short(u32),
}

/// A command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// As given with the command.
    pub slot: u32,
    /// When it was handed over, on the target's clock; `None` as soon as it was taken.
    pub handed_ns: Option<u64>,
    /// When it ended.
    pub at_ns: u64,
    /// Why it was not done; `None` when it was.
    pub fault: Option<Fault>,
    /// The tiers that had a part in it, where the target tells.
    pub served: Option<ServedBy>,
}

/// Something that takes commands and has a clock: a model in virtual time, files, a server.
pub trait Target {
    /// Its clock, nanoseconds; it never runs backwards.
    fn now_ns(&mut self) -> u64;

    /// Takes a command for one of its places (its files; most have one), to be handed over at the next
    /// [`Target::wait`] at the latest. In a slot, one command is in flight at a time.
    fn submit(&mut self, slot: u32, place: u32, command: Command);

    /// Waits until something has ended, or until a time; with neither in sight it returns at once. Appends what has
    /// ended, and says what time it is.
    fn wait(&mut self, until: Option<u64>, ended: &mut Vec<Ended>) -> u64;

    /// What a slot's command writes or has read, where there is payload at all: its first `len` bytes.
    fn payload(&mut self, _slot: u32, _len: u64) -> Option<&mut [u8]> {
        None
    }
}

impl<T: Target + ?Sized> Target for &mut T {
    fn now_ns(&mut self) -> u64 {
        (**self).now_ns()
    }

    fn submit(&mut self, slot: u32, place: u32, command: Command) {
        (**self).submit(slot, place, command);
    }

    fn wait(&mut self, until: Option<u64>, ended: &mut Vec<Ended>) -> u64 {
        (**self).wait(until, ended)
    }

    fn payload(&mut self, slot: u32, len: u64) -> Option<&mut [u8]> {
        (**self).payload(slot, len)
    }
}

impl<T: Target + ?Sized> Target for Box<T> {
    fn now_ns(&mut self) -> u64 {
        (**self).now_ns()
    }

    fn submit(&mut self, slot: u32, place: u32, command: Command) {
        (**self).submit(slot, place, command);
    }

    fn wait(&mut self, until: Option<u64>, ended: &mut Vec<Ended>) -> u64 {
        (**self).wait(until, ended)
    }

    fn payload(&mut self, slot: u32, len: u64) -> Option<&mut [u8]> {
        (**self).payload(slot, len)
    }
}
