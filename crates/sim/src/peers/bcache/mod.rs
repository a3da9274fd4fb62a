//! A write-back cache as bcache is.
//!
//! **Sources.** The kernel's documentation (bcache.rst) and its source: `request.c` (what passes by), `alloc.c`
//! (buckets and which is used again), `writeback.c` (order and pace of writing back), `journal.c`.
//!
//! **What it optimises.** Small writes become a log on the SSD, and reads that miss fill it; long sequences pass by.
//! The SSD holds copies: the volume is as large as the disk alone.
//!
//! **Rules.**
//! - What is cached lies in buckets of 512 KiB that are filled from one end to the other: an overwrite goes to a new
//!   place, and its old one is garbage until the whole bucket is used again. A small write costs one write of its own
//!   size, wherever it goes.
//! - A command passes by when it goes on where an earlier one of the last 128 ended, within 5 s, and this sequence
//!   has come to 4 MiB; or when over 95 % of the buckets hold what is not yet on the disk. What it overwrites is
//!   forgotten, unless some of it is dirty: then it is cached after all.
//! - A write is written back later while no more than 70 % of the buckets hold dirty data; up to 95 % it goes to both.
//! - A read that misses is answered by the disk, then written to the SSD: at the first touch (`bcache`), or when the
//!   same 64 KiB were touched before (`bcache-second`, which is not bcache's but what it lacks most often).
//! - The bucket to be used again is, of a sample, the one whose last use lies farthest back in proportion to what is
//!   still valid in it; buckets with dirty data are not.
//! - Writing back goes up the addresses and round again, from 10 % dirty on at a pace that a controller sets every 5 s
//!   (the proportional and the integral term of the kernel), as fast as it can after 30 s without a command.
//!
//! **Simplified.** Sectors are rounded to blocks of 4 KiB. The B-tree and the journal cost nothing. A sample stands in
//! for the kernel's heap, and buckets are found when they are wanted, so that garbage is known at once. Not there: the
//! average size of a task's commands, passing by because the SSD is slow (congestion), quicker write-back when buckets
//! are fragmented, reading ahead. Two buckets are open at a time, one for writes and one for what was read.

mod buckets;
mod pace;
mod sequences;

use super::PeerSpec;
use super::bits::Bits;
use super::pieces::Runs;
use super::rig::{FAST, Rig, SLOW, Ticket};
use super::rules::Rules;
use bimetal_models::{Command, Kind};
use bimetal_units::Nanos;
use buckets::{Buckets, Span};
use pace::Pace;
use sequences::Sequences;

/// Bytes of a block, the unit in which things are cached: the kernel has sectors, but clients write blocks.
const BLOCK: u64 = 4096;
/// Parts of a hundred of the buckets with dirty data above which nothing is cached: `CUTOFF_CACHE_ADD`.
const NOTHING_ABOVE_PERCENT: u64 = 95;
/// The same, above which writes go to both devices: `CUTOFF_WRITEBACK_SYNC`; all writes here are somebody's who waits.
const BOTH_ABOVE_PERCENT: u64 = 70;
/// Blocks that are written back together at most: 512 KiB, the largest extent that a bucket holds.
const RUN_BLOCKS: u64 = 128;
/// Runs that are written back at the same time: the kernel's limit of 64 keys in flight.
const MAX_WRITING_BACK: usize = 64;
/// Blocks of the region that a touch is remembered for: 64 KiB.
const REGION_BLOCKS: u64 = 16;

/// When what was read is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// At once.
    FirstTouch,
    /// When its region was touched before.
    SecondTouch,
}

/// What happens in the background.
enum Job {
    /// A client's read that the disk serves; then it is written to the SSD, or not.
    Miss { ticket: Ticket, first: u64, count: u64, fill: bool },
    /// What was read is being written to the SSD.
    Fill,
    /// Dirty blocks from this one on are being read, then written to the disk; where they lay when that began.
    WriteBack { first: u64, from: Vec<u32>, written: bool },
}

/// The rules of `bcache` and `bcache-second`.
pub(super) struct Bcache {
    admission: Admission,
    /// Where each block of the volume is cached, plus one; 0 for nowhere.
    map: Vec<u32>,
    /// Blocks of the volume that have to be written back, and are not being.
    dirty: Bits,
    buckets: Buckets,
    sequences: Sequences,
    /// Regions that were touched, by their number modulo the length: as many as the SSD holds.
    touched: Vec<u32>,
    jobs: Vec<Option<Job>>,
    free_jobs: Vec<u32>,
    writing_back: usize,
    /// Where writing back goes on.
    cursor: u64,
    pace: Pace,
}

impl Bcache {
    pub(super) fn new(fast_bytes: u64, spec: PeerSpec, admission: Admission) -> Bcache {
        let blocks = spec.size_bytes.div_ceil(BLOCK);
        let buckets = Buckets::new(fast_bytes / BLOCK, spec.seed);
        let regions = (buckets.blocks() / REGION_BLOCKS).max(1).next_power_of_two();
        Bcache {
            admission,
            map: vec![0; blocks as usize],
            dirty: Bits::new(blocks),
            pace: Pace::new(buckets.blocks()),
            buckets,
            sequences: Sequences::default(),
            touched: vec![0; regions as usize],
            jobs: Vec::new(),
            free_jobs: Vec::new(),
            writing_back: 0,
            cursor: 0,
        }
    }

    fn add_job(&mut self, job: Job) -> u64 {
        match self.free_jobs.pop() {
            Some(place) => {
                self.jobs[place as usize] = Some(job);
                u64::from(place)
            }
            None => {
                self.jobs.push(Some(job));
                self.jobs.len() as u64 - 1
            }
        }
    }

    /// Remembers that regions were touched; whether all of them were before.
    fn touch(&mut self, first: u64, end: u64) -> bool {
        let mut all = true;
        for region in first / REGION_BLOCKS..end.div_ceil(REGION_BLOCKS) {
            let place = region as usize & (self.touched.len() - 1);
            let known = region as u32 + 1;
            all &= std::mem::replace(&mut self.touched[place], known) == known;
        }
        all
    }

    fn forget(&mut self, block: u64) {
        if let Some(place) = self.map[block as usize].checked_sub(1) {
            self.buckets.drop_block(place);
            self.map[block as usize] = 0;
        }
        self.dirty.remove(block);
    }

    /// Gives blocks a new place on the SSD; as many as there is room for.
    fn cache(&mut self, now: Nanos, first: u64, count: u64, dirty: bool) -> Vec<Span> {
        let mut spans = Vec::new();
        let mut at = first;
        while at < first + count {
            let Some(span) = self.buckets.take(now, first + count - at, dirty, &mut self.map) else { break };
            for place in span.first..span.first + span.count {
                self.forget(at);
                self.map[at as usize] = place + 1;
                self.buckets.hold(place, at, dirty);
                if dirty {
                    self.dirty.insert(at);
                }
                at += 1;
            }
            spans.push(span);
        }
        spans
    }

    fn write(&mut self, rig: &mut Rig, ticket: Ticket, command: Command, sequential: bool) {
        let (first, end) = blocks_of(command);
        self.touch(first, end);
        let in_use = self.buckets.dirty_percent();
        let full = in_use > NOTHING_ABOVE_PERCENT;
        let overlaps = (first..end).any(|block| self.dirty.has(block));
        let by = full || (sequential && !overlaps);
        let both = !by && in_use > BOTH_ABOVE_PERCENT;
        let spans = if by { Vec::new() } else { self.cache(rig.now, first, end - first, !both) };
        let cached: u64 = spans.iter().map(|span| u64::from(span.count)).sum();
        (first + cached..end).for_each(|block| self.forget(block));
        if by || both || cached < end - first {
            rig.client(ticket, SLOW, command);
        } else {
            rig.count(FAST, command.len);
        }
        for span in spans {
            rig.beside(ticket, FAST, Command { kind: command.kind, ..span.command() });
        }
    }

    fn read(&mut self, rig: &mut Rig, ticket: Ticket, command: Command, sequential: bool) {
        let (first, end) = blocks_of(command);
        let known = self.touch(first, end);
        let admitted = known || self.admission == Admission::FirstTouch;
        let fill = admitted && !sequential && self.buckets.dirty_percent() <= NOTHING_ABOVE_PERCENT;
        let mut runs = Runs::new(Kind::Read);
        let mut at = first;
        while at < end {
            let part = |from: u64, to: u64| {
                let from_byte = (from * BLOCK).max(command.offset);
                (from_byte, (to * BLOCK).min(command.offset + command.len) - from_byte)
            };
            if let Some(place) = self.map[at as usize].checked_sub(1) {
                self.buckets.use_block(rig.now, place);
                let (from, len) = part(at, at + 1);
                runs.add(rig, ticket, FAST, u64::from(place) * BLOCK + from % BLOCK, len);
                at += 1;
                continue;
            }
            let missing = (at..end).take_while(|&block| self.map[block as usize] == 0).count() as u64;
            let (offset, len) = part(at, at + missing);
            rig.hold(ticket);
            rig.count(SLOW, len);
            let job = self.add_job(Job::Miss { ticket, first: at, count: missing, fill });
            rig.background(job, SLOW, Command { kind: Kind::Read, offset, len });
            at += missing;
        }
        runs.end(rig, ticket);
    }

    /// What was missed has been read: it is written to the SSD, but for what was written there meanwhile.
    fn fill(&mut self, rig: &mut Rig, first: u64, count: u64) {
        let mut at = first;
        while at < first + count {
            let missing =
                (at..first + count).take_while(|&block| self.map[block as usize] == 0).count() as u64;
            for span in self.cache(rig.now, at, missing, false) {
                rig.tally.promoted_bytes += u64::from(span.count) * BLOCK;
                let job = self.add_job(Job::Fill);
                rig.background(job, FAST, Command { kind: Kind::Write { fua: false }, ..span.command() });
            }
            at += missing.max(1);
        }
    }

    /// Begins to write back as much as the pace allows.
    fn write_back(&mut self, rig: &mut Rig) {
        while self.writing_back < MAX_WRITING_BACK && self.pace.may_write(rig.now) {
            let Some(first) = self.dirty.next(self.cursor).or_else(|| self.dirty.next(0)) else { return };
            let from: Vec<u32> = (first..first + RUN_BLOCKS)
                .take_while(|&block| block < self.map.len() as u64 && self.dirty.remove(block))
                .map(|block| self.map[block as usize])
                .collect();
            self.cursor = first + from.len() as u64;
            self.pace.wrote(rig.now, from.len() as u64);
            self.writing_back += 1;
            // The kernel reads each extent; they lie together where they were written together.
            let command = Command {
                kind: Kind::Read,
                offset: u64::from(from[0] - 1) * BLOCK,
                len: (from.len() as u64 * BLOCK)
                    .min(self.buckets.blocks() * BLOCK - u64::from(from[0] - 1) * BLOCK),
            };
            let job = self.add_job(Job::WriteBack { first, from, written: false });
            rig.background(job, FAST, command);
        }
    }

    fn written_back(&mut self, rig: &mut Rig, first: u64, from: &[u32]) {
        self.writing_back -= 1;
        rig.tally.destaged_bytes += from.len() as u64 * BLOCK;
        for (block, &place) in (first..).zip(from) {
            if self.map[block as usize] == place && !self.dirty.has(block) {
                self.buckets.clean(place - 1);
            }
        }
    }
}

/// The blocks that a command touches.
fn blocks_of(command: Command) -> (u64, u64) {
    (command.offset / BLOCK, (command.offset + command.len).div_ceil(BLOCK))
}

impl Rules for Bcache {
    fn serve(&mut self, rig: &mut Rig, ticket: Ticket, command: Command) {
        self.pace.busy(rig.now);
        match command.kind {
            Kind::Flush | Kind::Sync => rig.flush(ticket),
            Kind::Discard => {
                let (first, end) = blocks_of(command);
                (first..end).for_each(|block| self.forget(block));
                rig.client(ticket, SLOW, command);
            }
            Kind::Read | Kind::Write { .. } => {
                let sequential = self.sequences.is_long(rig.now, command.offset, command.len);
                match command.kind {
                    Kind::Read => self.read(rig, ticket, command, sequential),
                    _ => self.write(rig, ticket, command, sequential),
                }
            }
        }
    }

    fn finished(&mut self, rig: &mut Rig, number: u64) {
        let Some(job) = self.jobs[number as usize].take() else { return };
        match job {
            Job::WriteBack { first, from, written: false } => {
                let len = from.len() as u64 * BLOCK;
                let command = Command { kind: Kind::Write { fua: false }, offset: first * BLOCK, len };
                self.jobs[number as usize] = Some(Job::WriteBack { first, from, written: true });
                rig.background(number, SLOW, command);
                return;
            }
            Job::WriteBack { first, from, written: true } => {
                self.written_back(rig, first, &from);
                self.write_back(rig);
            }
            Job::Miss { ticket, first, count, fill } => {
                rig.release(ticket);
                if fill {
                    self.fill(rig, first, count);
                }
            }
            Job::Fill => {}
        }
        self.free_jobs.push(number as u32);
    }

    fn wake_at(&self, _: &Rig) -> Option<Nanos> {
        self.pace.wake_at(self.dirty.count() > 0 && self.writing_back < MAX_WRITING_BACK)
    }

    fn wake(&mut self, rig: &mut Rig) {
        let is_dirty = self.dirty.count() > 0 || self.writing_back > 0;
        self.pace.update(rig.now, self.buckets.dirty_blocks(), is_dirty);
        self.write_back(rig);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_touch_is_known_as_one() {
        let spec = PeerSpec { size_bytes: 1 << 30, landing_bytes: 0, seed: 1 };
        let mut cache = Bcache::new(1 << 28, spec, Admission::SecondTouch);
        assert!(!cache.touch(0, 4) && cache.touch(2, 8) && !cache.touch(8, 20) && cache.touch(0, 20));
    }
}
