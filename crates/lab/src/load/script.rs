//! I/Os that a job is told one by one, instead of drawing them.

use crate::job::side;
use bimetal_load::Ask;
use bimetal_models::{Command, Kind};
use std::sync::Arc;

/// One I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When it is to begin, from the beginning of the job; 0 for as soon as there is room.
    pub at_ns: u64,
    /// Where in its file.
    pub offset: u64,
    /// Bytes; 0 of what makes durable.
    pub len: u32,
    /// Which file.
    pub file: u16,
    /// What is done.
    pub does: Does,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// It discards.
    Trim,
    /// It makes durable what was written, and what a file system knows of it.
    Sync,
    /// It makes the data durable.
    DataSync,
}

impl Does {
    /// Which side it is of, if it moves bytes or discards them.
    pub fn side(self) -> Option<usize> {
        match self {
            Does::Read => Some(side::READ),
            Does::Write => Some(side::WRITE),
            Does::Trim => Some(side::DISCARD),
            Does::Sync | Does::DataSync => None,
        }
    }
}

/// All I/Os of a job, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    steps: Arc<[Step]>,
    /// Where each file begins on the job's target.
    begins: Vec<u64>,
    /// The longest of each side, bytes; 0 of one that has none.
    longest: [u64; 3],
}

impl Script {
    /// These steps, in files that begin there.
    pub fn new(steps: Arc<[Step]>, begins: Vec<u64>) -> Script {
        let mut longest = [0; 3];
        for step in &*steps {
            if let Some(side) = step.does.side() {
                longest[side] = u64::from(step.len).max(longest[side]);
            }
        }
        Script { steps, begins, longest }
    }

    /// The longest I/O of each side, bytes; 0 of one that has none.
    pub fn longest_bytes(&self) -> [u64; 3] {
        self.longest
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> u64 {
        self.steps.iter().map(|step| u64::from(step.len)).sum()
    }

    /// Whether any is to begin at a time of its own.
    pub fn is_timed(&self) -> bool {
        self.steps.last().is_some_and(|step| step.at_ns > 0)
    }

    /// The n-th of them, for a job that begins at this time.
    pub(super) fn ask(&self, nth: usize, begins_ns: u64, fua: bool) -> Option<Ask> {
        let step = self.steps.get(nth)?;
        let kind = match step.does {
            Does::Read => Kind::Read,
            Does::Write => Kind::Write { fua },
            Does::Trim => Kind::Discard,
            Does::Sync => Kind::Sync,
            Does::DataSync => Kind::Flush,
        };
        let begin = self.begins.get(usize::from(step.file)).copied().unwrap_or(0);
        let len = u64::from(step.len);
        let offset = if len == 0 { 0 } else { begin + step.offset };
        let at = (step.at_ns > 0).then(|| begins_ns.saturating_add(step.at_ns));
        Some(Ask { at, command: Command { kind, offset, len } })
    }
}
