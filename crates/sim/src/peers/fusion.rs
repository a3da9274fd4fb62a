//! The hybrid drive of 2012, as its reviewers saw it and its patents describe it.
//!
//! **Sources.** The measurements A1 to A9 and B6, B7 (AnandTech 2013, diglloyd 2012), Ars Technica and jolly.jinx.de
//! (2012) for what happens after a load ends; patents US9710397 (counts, a sweeping pointer), US8914381 (the filter
//! for accesses that belong together) and US10073851 (the reserve is for new data only, overwrites follow the map).
//!
//! **What it optimises.** New data lands on the SSD; what is used again and again comes to lie there in quiet times;
//! nothing is moved while anybody asks for something.
//!
//! **Rules.**
//! - The sum of both devices is the volume, in chunks of 128 KiB (A9). What is written first goes to the SSD until
//!   4 GB of it are left, then to the disk (A1: 117 of 121 GB). An overwrite goes where the chunk lies: it is never
//!   redirected, which is what makes A3 slow.
//! - Reads and writes are counted alike for each chunk (A6); accesses within a second count once.
//! - When it becomes quiet, chunks on the disk that were accessed twice since they were placed, or together with another
//!   one of the same MiB (A4: "hit more than once, or near each other"), are moved up in the order in which that was
//!   noticed, one at a time: read, written, then freed (A9), with a flush for each MiB.
//! - A pointer goes round the SSD's slots: a chunk with a count loses one, a chunk without is pushed down. So room is
//!   made for what rises, and after 20 s of quiet so that 4 GB above the 4 are free (B6: what is written next finds
//!   them). The pointer's order has nothing to do with addresses: had it, A4 would have pushed down just what was
//!   written first, and A5's first run have found most of its 8 GB on the disk, not a twelfth.
//! - 10 minutes after a load ended all moves stop (jolly.jinx.de, twice).
//!
//! **Simplified.** Counts are exact, where the patents have Bloom filters for the disk; they do not age but by the
//! pointer. Moves under light load, which reviewers saw some of, do not happen. What the operating system keeps there
//! and writes itself is not there.

use super::rig::{FAST, Rig, SLOW, Ticket};
use super::rules::Rules;
use super::tiers::{CHUNK_BYTES, Place, Tiers};
use bimetal_models::{Command, Kind};
use bimetal_units::Nanos;
use std::collections::VecDeque;

/// Bytes of the SSD that new data leaves free: A1 saw 117 of 121 GB taken.
const RESERVE_BYTES: u64 = 4_000_000_000;
/// A smaller SSD leaves this part of it: the same share as of 121 GB.
const RESERVE_SHARE: u64 = 30;
/// How many times the reserve is free once it was quiet: 4 GB for new data beside the 4 that it leaves.
const LANDING_TIMES: u64 = 2;
/// Chunks of a region in which accesses are near each other: 1 MiB, what Ars Technica read again to see it rise.
const REGION_CHUNKS: u64 = 8;
/// What the pointer goes on by, slots: a prime, so that it comes to all of them, and not in order.
const STEP_SLOTS: u64 = 2_654_435_761;
/// Accesses of a region that make its accessed chunks rise: A4, "hit more than once".
const PROMOTE_COUNT: u64 = 2;
/// The greatest count: a chunk that was used much survives so many rounds of the pointer.
const MAX_COUNT: u8 = 15;
/// Set beside the count while a chunk waits to rise.
const QUEUED: u8 = 0x80;
/// Accesses of a chunk within this count once, nanoseconds: one stream passes a chunk in much less.
const CORRELATED_NS: u64 = Nanos::SECOND;
/// Places of the filter for such accesses: more chunks than are accessed in a second by anything but a stream.
const FILTER_PLACES: usize = 4096;
/// Quiet for so long, moves up begin, nanoseconds: A4 saw them begin at once.
const PROMOTE_AFTER_NS: u64 = 100 * Nanos::MS;
/// Quiet for so long, the landing zone is refilled, nanoseconds: the pause that Ars Technica saw after a bulk copy.
const REFILL_AFTER_NS: u64 = 20 * Nanos::SECOND;
/// Quiet for so long, moves end, nanoseconds: about ten minutes, seen twice.
const REST_AFTER_NS: u64 = 600 * Nanos::SECOND;
/// Chunks that wait to rise at most: 8 GB, more than ten minutes move.
const MAX_QUEUE: usize = 1 << 16;

/// The number of the first half of a move.
const READ: u64 = 0;
/// The number of its second half.
const WRITE: u64 = 1;
/// The number of the flush behind some moves.
const FLUSH: u64 = 2;
/// Moves after which the copies are flushed, so that their sources may be freed: 1 MiB. A modelled disk of 2012 then
/// takes 73 MB/s of moves down, where Ars Technica saw 60 to 85; without any flush it would take 167.
const MOVES_PER_FLUSH: u32 = 8;

struct Move {
    chunk: u64,
    to: Place,
    /// The chunk was written meanwhile, or given back: the copy is worth nothing.
    stale: bool,
}

/// The rules of `fusion`.
pub(super) struct Fusion {
    tiers: Tiers,
    /// What of the SSD new data leaves free, bytes.
    reserve: u64,
    /// Accesses of each chunk since it was placed, and [`QUEUED`].
    counts: Vec<u8>,
    /// The chunk plus one, and when it was accessed last.
    filter: Vec<(u32, Nanos)>,
    rising: VecDeque<u32>,
    moving: Option<Move>,
    /// Moves since the last flush; a flush is under way when they are as many as may be.
    unflushed: u32,
    /// How far the pointer has come on its way round the fast slots.
    hand: u64,
    /// There was nothing to do; only a client changes that.
    settled: bool,
}

impl Fusion {
    pub(super) fn new(sizes: [u64; 2], size_bytes: u64) -> Fusion {
        let tiers = Tiers::new(sizes, size_bytes);
        Fusion {
            reserve: RESERVE_BYTES.min(sizes[FAST] / RESERVE_SHARE),
            counts: vec![0; tiers.chunks()],
            filter: vec![(0, Nanos(0)); FILTER_PLACES],
            rising: VecDeque::new(),
            moving: None,
            unflushed: 0,
            hand: 0,
            settled: false,
            tiers,
        }
    }

    /// Counts an access of a chunk that has a place.
    fn touch(&mut self, now: Nanos, chunk: u64) {
        let last = &mut self.filter[chunk as usize % FILTER_PLACES];
        let repeated = last.0 == chunk as u32 + 1 && now.since(last.1) < CORRELATED_NS;
        if repeated {
            return;
        }
        *last = (chunk as u32 + 1, now);
        let count = &mut self.counts[chunk as usize];
        if *count & !QUEUED >= MAX_COUNT {
            return;
        }
        *count += 1;
        let first = chunk / REGION_CHUNKS * REGION_CHUNKS;
        let region = first..(first + REGION_CHUNKS).min(self.tiers.chunks() as u64);
        let accesses: u64 = region.clone().map(|near| u64::from(self.counts[near as usize] & !QUEUED)).sum();
        if accesses >= PROMOTE_COUNT {
            region.for_each(|near| self.let_rise(near));
        }
    }

    /// A chunk on the disk waits to rise, if it was accessed at all.
    fn let_rise(&mut self, chunk: u64) {
        let accessed = (1..QUEUED).contains(&self.counts[chunk as usize]);
        let below = || self.tiers.place(chunk).is_some_and(|place| place.device == SLOW);
        if accessed && self.rising.len() < MAX_QUEUE && below() {
            self.counts[chunk as usize] |= QUEUED;
            self.rising.push_back(chunk as u32);
        }
    }

    fn lacks_landing_room(&self) -> bool {
        self.tiers.free_bytes(FAST) < self.reserve * LANDING_TIMES
    }

    /// The next chunk that the pointer finds without a count; none in two rounds is none.
    fn coldest(&mut self) -> Option<u64> {
        let slots = self.tiers.fast_slots();
        for _ in 0..2 * u64::from(slots) {
            let slot = (self.hand * STEP_SLOTS % u64::from(slots)) as u32;
            self.hand = (self.hand + 1) % u64::from(slots);
            let Some(chunk) = self.tiers.in_fast_slot(slot) else { continue };
            match &mut self.counts[chunk as usize] {
                0 => return Some(chunk),
                count => *count -= 1,
            }
        }
        None
    }

    fn begin(&mut self, rig: &mut Rig, chunk: u64, device: usize) -> bool {
        let Some(from) = self.tiers.place(chunk) else { return false };
        let Some(to) = self.tiers.take(device) else { return false };
        self.moving = Some(Move { chunk, to, stale: false });
        rig.background(READ, from.device, Command { kind: Kind::Read, offset: from.at(), len: CHUNK_BYTES });
        true
    }

    fn begin_demotion(&mut self, rig: &mut Rig) -> bool {
        self.coldest().is_some_and(|chunk| self.begin(rig, chunk, SLOW))
    }

    /// Begins a move if there is one to be made now.
    fn next_move(&mut self, rig: &mut Rig) {
        let Some(quiet) = rig.quiet_since().map(|since| rig.now.since(since)) else { return };
        if quiet > REST_AFTER_NS {
            self.settled = true;
            return;
        }
        while let Some(&chunk) = self.rising.front() {
            let chunk = u64::from(chunk);
            let below = self.tiers.place(chunk).is_some_and(|place| place.device == SLOW);
            // Half of the reserve is what is left when much rises; then each has to wait for one that goes down.
            if below && self.tiers.free_bytes(FAST) <= self.reserve / 2 && self.begin_demotion(rig) {
                return;
            }
            self.rising.pop_front();
            self.counts[chunk as usize] &= !QUEUED;
            if below && self.begin(rig, chunk, FAST) {
                return;
            }
        }
        if quiet >= REFILL_AFTER_NS {
            self.settled = !self.lacks_landing_room() || !self.begin_demotion(rig);
        }
    }

    fn moved(&mut self, rig: &mut Rig, Move { chunk, to, stale }: Move) {
        if stale {
            self.tiers.give(to);
            return;
        }
        self.tiers.put(chunk, to);
        self.counts[chunk as usize] = 0;
        match to.device {
            FAST => rig.tally.promoted_bytes += CHUNK_BYTES,
            _ => rig.tally.demoted_bytes += CHUNK_BYTES,
        }
    }

    fn spoil_move(&mut self, command: Command) {
        let end = command.offset + command.len;
        if let Some(moving) = &mut self.moving
            && moving.chunk * CHUNK_BYTES < end
            && command.offset < (moving.chunk + 1) * CHUNK_BYTES
        {
            moving.stale = true;
        }
    }
}

impl Rules for Fusion {
    fn serve(&mut self, rig: &mut Rig, ticket: Ticket, command: Command) {
        self.settled = false;
        if matches!(command.kind, Kind::Write { .. } | Kind::Discard) {
            self.spoil_move(command);
        }
        match command.kind {
            Kind::Flush | Kind::Sync => rig.flush(ticket),
            Kind::Discard => self.tiers.discard(rig, ticket, command),
            Kind::Read | Kind::Write { .. } => {
                for chunk in
                    command.offset / CHUNK_BYTES..(command.offset + command.len).div_ceil(CHUNK_BYTES)
                {
                    if self.tiers.place(chunk).is_some() {
                        self.touch(rig.now, chunk);
                    } else {
                        // What goes on writing a chunk is the same access as its first write.
                        self.counts[chunk as usize] = 0;
                        self.filter[chunk as usize % FILTER_PLACES] = (chunk as u32 + 1, rig.now);
                    }
                }
                let reserve = self.reserve;
                let first = |tiers: &Tiers| if tiers.free_bytes(FAST) > reserve { FAST } else { SLOW };
                self.tiers.transfer(rig, ticket, command, first);
            }
        }
    }

    fn finished(&mut self, rig: &mut Rig, half: u64) {
        if half == FLUSH {
            self.unflushed = 0;
            return self.next_move(rig);
        }
        if half == READ {
            if let Some(Move { to, .. }) = &self.moving {
                let command = Command { kind: Kind::Write { fua: false }, offset: to.at(), len: CHUNK_BYTES };
                rig.background(WRITE, to.device, command);
            }
            return;
        }
        let Some(done) = self.moving.take() else { return };
        let device = done.to.device;
        self.moved(rig, done);
        self.unflushed += 1;
        match self.unflushed < MOVES_PER_FLUSH {
            true => self.next_move(rig),
            false => rig.background(FLUSH, device, Command { kind: Kind::Flush, offset: 0, len: 0 }),
        }
    }

    fn wake_at(&self, rig: &Rig) -> Option<Nanos> {
        if self.moving.is_some() || self.unflushed == MOVES_PER_FLUSH || self.settled {
            return None;
        }
        let since = rig.quiet_since()?;
        if !self.rising.is_empty() {
            return Some(since.after(PROMOTE_AFTER_NS));
        }
        self.lacks_landing_room().then(|| since.after(REFILL_AFTER_NS))
    }

    fn wake(&mut self, rig: &mut Rig) {
        self.next_move(rig);
    }
}
