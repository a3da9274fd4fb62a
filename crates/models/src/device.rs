//! What every model is to those who use it.

use bimetal_units::{Nanos, ServedBy};

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads a range.
    Read,
    /// Writes a range; with `fua`, complete only when it is on the medium.
    Write {
        /// Past the volatile cache.
        fua: bool,
    },
    /// Complete when all that was complete before it was submitted is on the medium.
    Flush,
    /// A flush that has a file's own facts (its times) on the medium as well; of what is no file, a flush.
    Sync,
    /// The range is no longer needed.
    Discard,
}

/// A command to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// What to do.
    pub kind: Kind,
    /// First byte of the range; 0 for a flush.
    pub offset: u64,
    /// Bytes of the range; 0 for a flush.
    pub len: u64,
}

impl Command {
    /// Panics where the range does not lie within a device of this size.
    pub(crate) fn assert_within(&self, size_bytes: u64) {
        let end = self.offset.checked_add(self.len);
        assert!(end.is_some_and(|end| end <= size_bytes), "{self:?} lies within the device");
    }
}

/// Why a command was not done. Nothing was read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The device could not do it; asking again may help.
    Error,
    /// The device was asked for more than it grants; asking again later helps.
    Throttled,
}

/// A command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// When.
    pub at: Nanos,
    /// As given with the command.
    pub tag: u64,
    /// Why it was not done; `None` when it was.
    pub failure: Option<Failure>,
    /// Who had a part in it, if it was done by a volume that tells.
    pub served: Option<ServedBy>,
}

impl Done {
    /// Ended as it should.
    pub fn ok(at: Nanos, tag: u64) -> Done {
        Done { at, tag, failure: None, served: None }
    }
}

/// What a device has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Reads completed.
    pub reads: u64,
    /// Writes completed.
    pub writes: u64,
    /// Flushes completed.
    pub flushes: u64,
    /// Bytes read by the host.
    pub read_bytes: u64,
    /// Bytes written by the host.
    pub written_bytes: u64,
    /// Nanoseconds in which it worked on at least one command, or on its own cache.
    pub busy_ns: u64,
}

impl Usage {
    /// Counts a command that was done, of so many bytes. Discards are not counted.
    #[inline]
    pub fn count(&mut self, kind: Kind, len: u64) {
        match kind {
            Kind::Read => {
                self.reads += 1;
                self.read_bytes += len;
            }
            Kind::Write { .. } => {
                self.writes += 1;
                self.written_bytes += len;
            }
            Kind::Flush | Kind::Sync => self.flushes += 1,
            Kind::Discard => {}
        }
    }
}

/// A device in virtual time.
///
/// Any number of commands may be submitted: those beyond the device's own queue depth wait before it, in their order.
/// Work that nobody waits for (writing back a cache, collecting garbage) goes on between the calls and is caught up
/// with when the next call tells the time.
pub trait Model {
    /// Bytes that it holds.
    fn size_bytes(&self) -> u64;

    /// Takes a command. `now` never runs backwards, over all calls, and nothing is due before it: whoever calls has
    /// advanced the model to `now` first. The range lies within the device.
    fn submit(&mut self, now: Nanos, tag: u64, command: Command);

    /// When to call [`Model::advance`] next at the latest; `None` while no command is in flight. At that time there
    /// need not be a completion.
    fn deadline(&self) -> Option<Nanos>;

    /// Brings the model to `now` and appends what has ended by then, in the order of their ends.
    fn advance(&mut self, now: Nanos, done: &mut Vec<Done>);

    /// What it has done so far.
    fn usage(&self) -> Usage;
}

impl<M: Model + ?Sized> Model for Box<M> {
    fn size_bytes(&self) -> u64 {
        (**self).size_bytes()
    }

    fn submit(&mut self, now: Nanos, tag: u64, command: Command) {
        (**self).submit(now, tag, command);
    }

    fn deadline(&self) -> Option<Nanos> {
        (**self).deadline()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Done>) {
        (**self).advance(now, done);
    }

    fn usage(&self) -> Usage {
        (**self).usage()
    }
}
