//! When the dies and the channels have time.

use super::params::{FlashParams, SlcParams};
use crate::rate::{Line, Meter, Rate};

/// One die.
#[derive(Clone, Copy, Debug, Default)]
struct Die {
    /// Reads are urgent, programs and erases are long.
    line: Line,
    /// The latest command that read from it.
    reader: u64,
    channel: u32,
}

/// One channel. Where it overlaps reads, it only transfers, and its line is not used.
#[derive(Clone, Copy, Debug, Default)]
struct Channel {
    meter: Meter,
    /// The first page of each command is urgent, so that a large one does not keep small ones waiting.
    line: Line,
    /// The latest command that read over it.
    reader: u64,
}

/// What the cells of a page take.
#[derive(Clone, Copy, Debug)]
struct Cells {
    read_ns: u64,
    program_ns: u64,
}

/// The chips of a drive, in time only.
///
#[derive(Debug)]
pub(crate) struct Flash {
    dies: Vec<Die>,
    channels: Vec<Channel>,
    rate: Rate,
    /// Cells at full density, then in the SLC cache.
    cells: [Cells; 2],
    erase_ns: u64,
    suspend_ns: u64,
    overlapped_reads: bool,
}

impl Flash {
    pub fn new(p: &FlashParams, slc: Option<&SlcParams>) -> Flash {
        let full = Cells { read_ns: p.read_ns, program_ns: p.program_ns };
        let fast = slc.map_or(full, |slc| Cells { read_ns: slc.read_ns, program_ns: slc.program_ns });
        let die = |index| Die { channel: index % p.channels, ..Die::default() };
        Flash {
            dies: (0..p.channels * p.dies_per_channel).map(die).collect(),
            channels: vec![Channel::default(); p.channels as usize],
            rate: Rate::new(p.channel_bytes_per_s),
            cells: [full, fast],
            erase_ns: p.erase_ns,
            suspend_ns: p.suspend_ns.unwrap_or(u64::MAX),
            overlapped_reads: p.overlapped_reads,
        }
    }

    /// Reads `bytes` of a page for `command`, asked at `now`; when the controller has them.
    pub fn read(&mut self, now: u64, die: u32, bytes: u64, slc: bool, command: u64) -> u64 {
        let (cells, transfer) = (self.cells[usize::from(slc)], self.rate.ns(bytes));
        let die = &mut self.dies[die as usize];
        let channel = &mut self.channels[die.channel as usize];
        // The next page of the same command is read from the cells while this one is transferred.
        let reader = if self.overlapped_reads { &mut die.reader } else { &mut channel.reader };
        let follows = std::mem::replace(reader, command) == command;
        let hold = if follows { cells.read_ns.max(transfer) } else { cells.read_ns + transfer };
        let ready = die.line.urgent_at(now, self.suspend_ns) + hold;
        if self.overlapped_reads {
            let end = ready.max(channel.meter.take(now, transfer));
            die.line.take_urgent(now, end, hold);
            end
        } else if follows {
            // Commands that ask later may pass it on this die too: it holds the channel only.
            let end = ready.max(channel.line.free_at() + hold);
            channel.line.take_long(end, hold);
            end
        } else {
            let taken = channel.line.urgent_at(now, u64::MAX) + hold;
            channel.line.take_urgent(now, taken, hold);
            let end = ready.max(taken);
            die.line.take_urgent(now, end, hold);
            end
        }
    }

    /// Programs a page of `bytes`, which the controller has at `ready`; when it is on the medium.
    pub fn program(&mut self, now: u64, ready: u64, die: u32, bytes: u64, slc: bool) -> u64 {
        let (cells, transfer) = (self.cells[usize::from(slc)], self.rate.ns(bytes));
        let die = &mut self.dies[die as usize];
        let channel = &mut self.channels[die.channel as usize];
        let sent = if self.overlapped_reads {
            channel.meter.take(now, transfer)
        } else {
            let sent = channel.line.urgent_at(now, u64::MAX) + transfer;
            channel.line.take_urgent(now, sent, transfer);
            sent
        };
        let start = die.line.free_at().max(ready);
        let end = (start + transfer).max(sent) + cells.program_ns;
        die.line.take_long(end, cells.program_ns);
        end
    }

    /// Erases a block on every die; when the last has done so.
    pub fn erase_all(&mut self, now: u64) -> u64 {
        let mut last = now;
        for die in &mut self.dies {
            let end = die.line.free_at().max(now) + self.erase_ns;
            die.line.take_long(end, self.erase_ns);
            last = last.max(end);
        }
        last
    }

    /// When a die has done all that was given to it.
    pub fn free_at(&self, die: u32) -> u64 {
        self.dies[die as usize].line.free_at()
    }
}
