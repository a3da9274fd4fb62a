//! A cache as dm-cache is with its smq policy, in write-back mode.
//!
//! **Sources.** The kernel's documentation (cache.rst, cache-policies.rst) and its source: `dm-cache-target.c`,
//! `dm-cache-policy-smq.c`, `dm-cache-background-tracker.c`; in a version of today, where the adaptive promotion of the
//! first one has become a constant.
//!
//! **What it optimises.** It brings to the SSD what is hit often, and spends little on anything else: whoever misses
//! pays the disk, and blocks rise behind his back. The SSD holds copies: the volume is as large as the disk alone.
//!
//! **Rules.** (What decides about rising and sinking is in `smq.rs`.)
//! - Blocks of 64 KiB are cached whole, larger where there would be more than a million of them (as lvmcache does).
//! - A hit goes to the SSD; a write makes the block dirty. A miss goes to the disk, and if the policy wants the block, it
//!   is copied up: all of it read from the disk and written to the SSD. Writes to it wait for that, reads do not. A
//!   write of a whole block that the policy wants goes to the SSD and needs no copy.
//! - What the policy wants copied is begun at once, whatever clients ask for. Dirty blocks are written back only
//!   after a second without a command, 1 MiB (`migration_threshold`) at a time; while busy one at a time, and only where
//!   a block wants to rise and there is nothing clean to give way.
//!
//! **Simplified.** Metadata cost nothing. kcopyd copies as soon as it is told to. Discards reach the disk and change
//! nothing in the cache.

mod smq;

use super::pieces::{Piece, Runs, pieces};
use super::rig::{FAST, Rig, SLOW, Ticket};
use super::rules::Rules;
use bimetal_models::{Command, Kind};
use bimetal_units::Nanos;
use smq::{Smq, Want, Work};
use std::collections::{BTreeMap, VecDeque};

/// Bytes of a block at least: what lvmcache takes by itself.
const LEAST_BLOCK_BYTES: u64 = 64 << 10;
/// Blocks at most: `allocation/cache_pool_max_chunks` of lvm.conf.
const MAX_BLOCKS: u64 = 1_000_000;
/// Without a command for so long it is idle, nanoseconds: `dm_iot_idle_for(HZ)`.
const IDLE_NS: u64 = Nanos::SECOND;
/// Bytes in copies at the same time while idle: `migration_threshold`, 2048 sectors.
const IDLE_COPY_BYTES: u64 = 1 << 20;
/// The policy is called, even where nothing else happens, each second: `COMMIT_PERIOD`.
const TICK_NS: u64 = Nanos::SECOND;

/// A copy that is being made.
struct Copy {
    work: Work,
    /// The first half, the read, is over.
    read: bool,
    /// Writes to the block that wait for it: where in the block, and how long.
    waiting: Vec<(Ticket, Kind, Piece)>,
}

/// The rules of `dm-cache-smq`.
pub(super) struct DmCache {
    block_bytes: u64,
    size_bytes: u64,
    smq: Smq,
    /// By the number of the block of the volume.
    copies: BTreeMap<u64, Copy>,
    /// What the policy wants and has not been begun.
    queued: VecDeque<Work>,
    next_tick: Nanos,
}

impl DmCache {
    pub(super) fn new(fast_bytes: u64, size_bytes: u64) -> DmCache {
        let mut block_bytes = LEAST_BLOCK_BYTES;
        while fast_bytes / block_bytes > MAX_BLOCKS {
            block_bytes *= 2;
        }
        let blocks = (fast_bytes / block_bytes) as u32;
        DmCache {
            block_bytes,
            size_bytes,
            smq: Smq::new(blocks, size_bytes.div_ceil(block_bytes)),
            copies: BTreeMap::new(),
            queued: VecDeque::new(),
            next_tick: Nanos(0),
        }
    }

    fn is_idle(&self, rig: &Rig) -> bool {
        rig.quiet_since().is_some_and(|since| rig.now.since(since) >= IDLE_NS)
    }

    fn on_fast(&self, cached: u32, piece: Piece) -> u64 {
        u64::from(cached) * self.block_bytes + piece.within
    }

    /// A write goes to the SSD, and its block is dirty.
    fn write_hit(&mut self, rig: &mut Rig, runs: &mut Runs, ticket: Ticket, cached: u32, piece: Piece) {
        self.smq.set_dirty(cached, true);
        let at = self.on_fast(cached, piece);
        runs.add(rig, ticket, FAST, at, piece.len);
    }

    fn transfer(&mut self, rig: &mut Rig, ticket: Ticket, command: Command) {
        let write = matches!(command.kind, Kind::Write { .. });
        let mut runs = Runs::new(command.kind);
        for piece in pieces(command.offset, command.len, self.block_bytes) {
            if write && let Some(copy) = self.copies.get_mut(&piece.number) {
                rig.hold(ticket);
                copy.waiting.push((ticket, command.kind, piece));
                continue;
            }
            let whole = write && piece.len == self.block_bytes;
            let (cached, want) = self.smq.access(piece.number, write, whole);
            if let Some(work) = want {
                self.queued.push_back(work);
            }
            match cached {
                Some(cached) if write => self.write_hit(rig, &mut runs, ticket, cached, piece),
                Some(cached) => {
                    let at = self.on_fast(cached, piece);
                    runs.add(rig, ticket, FAST, at, piece.len);
                }
                None => {
                    let at = piece.number * self.block_bytes + piece.within;
                    runs.add(rig, ticket, SLOW, at, piece.len);
                }
            }
        }
        runs.end(rig, ticket);
    }

    /// The first half of a copy: where it is read from.
    fn source(&self, work: Work) -> (usize, Command) {
        self.half(Kind::Read, work, work.want == Want::Promote)
    }

    /// The second half.
    fn target(&self, work: Work) -> (usize, Command) {
        self.half(Kind::Write { fua: false }, work, work.want == Want::WriteBack)
    }

    fn half(&self, kind: Kind, work: Work, slow: bool) -> (usize, Command) {
        let (device, number) = if slow { (SLOW, work.block) } else { (FAST, u64::from(work.cached)) };
        // The volume's last block may be shorter.
        let len = self.block_bytes.min(self.size_bytes - work.block * self.block_bytes);
        (device, Command { kind, offset: number * self.block_bytes, len })
    }

    /// Begins what the policy wants.
    fn work(&mut self, rig: &mut Rig) {
        let idle = self.is_idle(rig);
        loop {
            let copying = (self.copies.len() as u64 + 1) * self.block_bytes;
            if self.queued.is_empty() && idle && copying <= IDLE_COPY_BYTES {
                self.queued.extend(self.smq.write_back());
            }
            let Some(work) = self.queued.pop_front() else { return };
            let (device, command) = self.source(work);
            self.copies.insert(work.block, Copy { work, read: false, waiting: Vec::new() });
            rig.background(work.block, device, command);
        }
    }

    fn copied(&mut self, rig: &mut Rig, Copy { work, waiting, .. }: Copy) {
        match work.want {
            Want::Promote => rig.tally.promoted_bytes += self.block_bytes,
            Want::WriteBack => rig.tally.destaged_bytes += self.block_bytes,
        }
        self.smq.completed(work);
        for (ticket, kind, piece) in waiting {
            let mut runs = Runs::new(kind);
            self.write_hit(rig, &mut runs, ticket, work.cached, piece);
            runs.end(rig, ticket);
            rig.release(ticket);
        }
    }
}

impl Rules for DmCache {
    fn serve(&mut self, rig: &mut Rig, ticket: Ticket, command: Command) {
        if self.next_tick.0 == 0 || self.next_tick <= rig.now {
            self.next_tick = rig.now.after(TICK_NS);
            self.smq.tick(rig.now);
        }
        match command.kind {
            Kind::Flush | Kind::Sync => rig.flush(ticket),
            Kind::Discard => rig.client(ticket, SLOW, command),
            Kind::Read | Kind::Write { .. } => {
                self.transfer(rig, ticket, command);
                self.work(rig);
            }
        }
    }

    fn finished(&mut self, rig: &mut Rig, block: u64) {
        let Some(copy) = self.copies.get_mut(&block) else { return };
        if !copy.read {
            copy.read = true;
            let work = copy.work;
            let (device, command) = self.target(work);
            rig.background(block, device, command);
            return;
        }
        if let Some(copy) = self.copies.remove(&block) {
            self.copied(rig, copy);
        }
        self.work(rig);
    }

    fn wake_at(&self, rig: &Rig) -> Option<Nanos> {
        let quiet = rig.quiet_since()?;
        let idle = quiet.after(IDLE_NS);
        (self.copies.is_empty() && self.smq.has_dirty()).then(|| idle.max(self.next_tick))
    }

    fn wake(&mut self, rig: &mut Rig) {
        self.next_tick = rig.now.after(TICK_NS);
        self.smq.tick(rig.now);
        self.work(rig);
    }
}
