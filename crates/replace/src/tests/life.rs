//! One life: a client, a replacement, and what happens to them.

use super::disk::Disk;
use crate::{Before, Header, Pace, Plan, Replacement, SUCCESSOR, Standing};
use bimetal_engine::Machine;
use bimetal_engine::action::{Action, BufList, Class, DeviceError, Token};
use bimetal_engine::arena::{Arena, Buf, Pool};
use bimetal_engine::format::geometry::Geometry;
use bimetal_engine::format::superblock::{OpenState, Superblock};
use bimetal_units::rng::Rng;
use bimetal_units::{BLOCK_BYTES, FAST, Generation, Nanos, SLOW, Tier};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

const BLOCK: usize = BLOCK_BYTES as usize;
/// Linux's EIO and ENODEV.
const EIO: i32 = 5;
const ENODEV: i32 = 19;
const VOLUME: [u8; 16] = [1; 16];
const OLD: [u8; 16] = [2; 16];
const OTHER: [u8; 16] = [3; 16];
/// Turns of one opening at most, and of the calm one at the end.
const TURNS: u32 = 1500;
const CALM_TURNS: u32 = 40_000;

fn other(tier: Tier) -> Tier {
    if tier == FAST { SLOW } else { FAST }
}

/// Of a block that nobody needs: it may hold anything.
const ANY: u64 = u64::MAX;
/// One life in so many has such blocks, and one in so many has its unreadable ones left out.
const FREES_ONE_IN: u64 = 3;
const LEAVES_ONE_IN: u64 = 4;

/// What is left in the place of what could not be read.
fn left_out() -> u64 {
    version_of(bimetal_engine::format::left_out::block())
}

fn version_of(block: &[u8]) -> u64 {
    u64::from_le_bytes(block[..8].try_into().expect("eight bytes"))
}

/// What a life has seen.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) taken_over: bool,
    pub(super) crashes: u32,
}

struct Memory {
    bytes: Vec<u8>,
    free: Vec<u64>,
}

/// Buffers have this many bytes at most.
const BUF: u64 = 8 * BLOCK as u64;
const BUFS: u64 = 64;

impl Arena for Memory {
    fn alloc(&mut self, _: Pool, len: u32) -> Option<Buf> {
        assert!(u64::from(len) <= BUF);
        self.free.pop().map(|start| Buf { start, len })
    }
    fn free(&mut self, buf: Buf) {
        assert!(!self.free.contains(&buf.start), "given back twice");
        self.free.push(buf.start);
    }
    fn crc32c(&self, _: Buf) -> u32 {
        0
    }
    fn zero(&mut self, buf: Buf) {
        self.bytes_mut(buf).fill(0);
    }
    fn copy(&mut self, _: Buf, _: Buf) {}
    fn bytes(&self, buf: Buf) -> &[u8] {
        &self.bytes[buf.start as usize..][..buf.len as usize]
    }
    fn bytes_mut(&mut self, buf: Buf) -> &mut [u8] {
        &mut self.bytes[buf.start as usize..][..buf.len as usize]
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Done,
    Failed,
    Busy,
}

/// What a block may hold, the oldest first.
#[derive(Clone)]
struct Known {
    all: Vec<(u64, How)>,
    /// What was read of it since.
    seen: Option<u64>,
}

impl Known {
    fn new(version: u64) -> Known {
        Known { all: vec![(version, How::Done)], seen: None }
    }

    /// Whether nobody needs it: it may be so again after a crash.
    fn is_unused(&self) -> bool {
        self.all[0].0 == ANY
    }

    fn is_busy(&self) -> bool {
        self.all.last().is_some_and(|(_, how)| *how == How::Busy)
    }

    /// The newest that is certain.
    fn done(&self) -> Option<u64> {
        self.all.iter().rev().find(|(_, how)| *how == How::Done).map(|(version, _)| *version)
    }

    /// What is read: the newest, unless a write failed or is on its way.
    fn reads(&self) -> Vec<u64> {
        if let Some(seen) = self.seen {
            return vec![seen];
        }
        let from = self.all.iter().rposition(|(_, how)| *how == How::Done).unwrap_or(0);
        self.all[from..].iter().map(|(version, _)| *version).collect()
    }
}

#[derive(Clone)]
enum Asked {
    Write {
        blocks: Range<usize>,
        buf: Buf,
        version: u64,
    },
    Read {
        blocks: Range<usize>,
        buf: Buf,
        before: Vec<Known>,
    },
    /// What each block holds at least, once it has ended.
    Flush {
        done: Vec<Option<u64>>,
    },
    /// Of the other device.
    Elsewhere,
}

/// What stands for the engine: it writes, reads and flushes at random.
struct Client {
    memory: Memory,
    rng: Rng,
    tier: Tier,
    blocks: Vec<Known>,
    asked: BTreeMap<u64, Asked>,
    next: u64,
    version: u64,
    is_open: bool,
    /// Which blocks nobody needs any more.
    frees: Option<Rng>,
    /// A flush has failed: what was written is not certain any more, whatever later ones say.
    doubts: bool,
    wrong: Option<String>,
    /// A flush of the other device has failed.
    elsewhere_failed: bool,
}

impl Client {
    fn range(&mut self) -> Option<Range<usize>> {
        let len = self.rng.range(1, 6) as usize;
        let start = self.rng.range(1, self.blocks.len() as u64 - 1 - len as u64) as usize;
        (!self.blocks[start..start + len].iter().any(Known::is_busy)).then_some(start..start + len)
    }

    /// Somebody has done with a block that nothing is on its way to.
    fn free_some(&mut self) {
        let Some(rng) = &mut self.frees else { return };
        if !rng.one_in(20) {
            return;
        }
        let place = rng.range(1, self.blocks.len() as u64 - 2) as usize;
        let is_read = |asked: &Asked| matches!(asked, Asked::Read { blocks, .. } if blocks.contains(&place));
        if !self.blocks[place].is_busy() && !self.asked.values().any(is_read) {
            self.blocks[place] = Known::new(ANY);
        }
    }

    fn is_needed(&self, place: usize) -> bool {
        self.blocks[place].all.iter().any(|(version, _)| *version != ANY)
    }
}

impl Machine for Client {
    type Arena = Memory;

    fn next_needed(&self, device: Tier, range: Range<u64>, most_bytes: u64) -> Option<Range<u64>> {
        let block = BLOCK as u64;
        let is = |at: &u64| device != self.tier || self.is_needed((at / block) as usize);
        let mut blocks = range.step_by(BLOCK);
        let first = blocks.find(is)?;
        let more = blocks.take((most_bytes / block - 1) as usize).take_while(is).count() as u64;
        Some(first..first + (1 + more) * block)
    }

    fn next_action(&mut self, _: Nanos) -> Option<Action> {
        if !self.is_open || self.asked.len() >= 12 {
            return None;
        }
        self.free_some();
        self.next += 1;
        let (token, device, class) = (Token(self.next), self.tier, Class::Foreground);
        let (action, asked) = match self.rng.weighted(&[60, 15, 12, 3]) {
            kind @ (0 | 1) => {
                let blocks = self.range()?;
                let buf = self.memory.alloc(Pool::Client, (blocks.len() * BLOCK) as u32)?;
                let offset = (blocks.start * BLOCK) as u64;
                if kind == 1 && blocks.clone().all(|place| self.is_needed(place)) {
                    let before = self.blocks[blocks.clone()].to_vec();
                    let read = Action::Read { device, offset, buf, token, class };
                    (read, Asked::Read { blocks, buf, before })
                } else {
                    self.version += 1;
                    let version = self.version;
                    self.memory
                        .bytes_mut(buf)
                        .chunks_mut(8)
                        .for_each(|b| b.copy_from_slice(&version.to_le_bytes()));
                    self.blocks[blocks.clone()].iter_mut().for_each(|known| {
                        known.all.push((version, How::Busy));
                        known.seen = None;
                    });
                    let (bufs, fua) = (BufList::from_elem(buf, 1), false);
                    (
                        Action::Write { device, offset, bufs, fua, token, class },
                        Asked::Write { blocks, buf, version },
                    )
                }
            }
            2 => {
                let done = self.blocks.iter().map(Known::done).collect();
                (Action::Flush { device, token }, Asked::Flush { done })
            }
            _ => (Action::Flush { device: other(self.tier), token }, Asked::Elsewhere),
        };
        self.asked.insert(token.0, asked);
        Some(action)
    }

    fn on_completion(&mut self, _: Nanos, token: Token, result: Result<(), DeviceError>) {
        let asked = self.asked.remove(&token.0).expect("it was asked, and not answered");
        self.doubts |= result.is_err_and(DeviceError::is_away);
        match asked {
            Asked::Write { blocks, buf, version } => {
                self.memory.free(buf);
                let how = if result.is_ok() { How::Done } else { How::Failed };
                self.blocks[blocks].iter_mut().for_each(|known| {
                    known
                        .all
                        .iter_mut()
                        .filter(|(other, _)| *other == version)
                        .for_each(|entry| entry.1 = how);
                });
            }
            Asked::Read { blocks, buf, before } => {
                for (i, (place, before)) in blocks.zip(before).enumerate() {
                    let known = &mut self.blocks[place];
                    let same = known.all.last() == before.all.last() && !known.is_busy();
                    let held = version_of(&self.memory.bytes(buf)[i * BLOCK..]);
                    // Whoever reads that finds that it is nothing of his.
                    let result = if held == left_out() { Err(DeviceError { errno: EIO }) } else { result };
                    let same = same && !known.reads().contains(&ANY);
                    if result.is_ok() && same && !known.reads().contains(&held) {
                        self.wrong =
                            Some(format!("block {place} reads {held}, not one of {:?}", known.reads()));
                    }
                    if result.is_ok() && same {
                        known.seen = Some(held);
                    }
                }
                self.memory.free(buf);
            }
            Asked::Flush { .. } if result.is_err() => self.doubts = true,
            Asked::Flush { done } if !self.doubts => {
                for (known, done) in self.blocks.iter_mut().zip(done) {
                    let place = known.all.iter().position(|(version, _)| Some(*version) == done);
                    known.all.drain(..place.unwrap_or(0));
                }
            }
            Asked::Elsewhere => self.elsewhere_failed |= result.is_err(),
            Asked::Flush { .. } => {}
        }
    }

    fn deadline(&self) -> Option<Nanos> {
        None
    }
    fn on_timer(&mut self, _: Nanos) {}
    fn with_arena<R>(&mut self, f: impl FnOnce(&mut Memory) -> R) -> R {
        f(&mut self.memory)
    }
}

/// On its way to a device.
struct InFlight {
    action: Action,
    /// What a flush covers.
    covers: BTreeSet<usize>,
}

struct Life {
    rng: Rng,
    client: Client,
    /// Fast, slow, and the successor.
    disks: [Disk; 3],
    old: Tier,
    bytes: u64,
    generation: u64,
    attempt: u8,
    in_flight: Vec<InFlight>,
    now: Nanos,
    calm: bool,
    /// The successor answers nothing.
    hangs: bool,
    /// A device that is late.
    slow: Tier,
    /// Which failures are a device's that was away.
    aways: Rng,
    /// Whether a replacement begins while the volume is used.
    late: Option<Rng>,
    /// What the old device cannot read is left out.
    leaves: bool,
    /// When minutes pass in which nobody does anything, and when the old device reads nothing for a while.
    leaps: Option<Rng>,
    is_mute: bool,
    /// The successor fails once in so many times.
    fails_one_in: u32,
    seen: Seen,
}

enum End {
    Crashed,
    TakenOver,
}

/// A client, its devices, and a successor of one of them.
fn born(seed: u64) -> Life {
    let mut rng = Rng::new(seed, 1);
    let blocks = rng.range(24, 90) as usize;
    let old = rng.pick(&[FAST, SLOW]);
    let numbered = |from: usize| {
        let block = |i: usize| ((from + i) as u64).to_le_bytes().repeat(BLOCK / 8);
        (0..blocks).flat_map(block).collect::<Vec<u8>>()
    };
    let client = Client {
        memory: Memory { bytes: vec![0; (BUF * BUFS) as usize], free: (0..BUFS).map(|i| i * BUF).collect() },
        rng: Rng::new(seed, 2),
        tier: old,
        blocks: (0..blocks).map(|i| Known::new(1000 + i as u64)).collect(),
        asked: BTreeMap::new(),
        next: 0,
        version: 10_000,
        is_open: true,
        frees: (seed % FREES_ONE_IN == 1).then(|| Rng::new(seed, 9)),
        doubts: false,
        wrong: None,
        elsewhere_failed: false,
    };
    let mut life = Life {
        disks: [Disk::new(numbered(1000)), Disk::new(numbered(1000)), Disk::new(numbered(5000))],
        rng,
        client,
        old,
        bytes: (blocks * BLOCK) as u64,
        generation: 7,
        attempt: 0,
        in_flight: Vec::new(),
        now: Nanos(0),
        calm: false,
        hangs: false,
        slow: Tier(0),
        aways: Rng::new(seed, 7),
        leaves: old == SLOW && seed.is_multiple_of(LEAVES_ONE_IN),
        leaps: seed.is_multiple_of(LEAVES_ONE_IN).then(|| Rng::new(seed, 10)),
        is_mute: false,
        late: (seed % 5 == 3).then(|| Rng::new(seed, 8)),
        fails_one_in: 0,
        seen: Seen::default(),
    };
    life.slow = life.rng.pick(&[FAST, SLOW, SUCCESSOR, Tier(9)]);
    life.fails_one_in = life.rng.pick(&[300, 3000, 100_000]);
    for _ in 0..life.rng.below(4) {
        let place = life.rng.range(1, blocks as u64 - 2) as usize;
        life.disks[usize::from(old.0)].bad.insert(place);
    }
    life
}

/// The successor hangs when it is to write its second superblock, after the other device names it. Gives how it stands half a minute
/// later, though whoever serves it has settled that it is done without.
pub(super) fn hang_after_the_change() -> Standing {
    let mut life = born(1);
    life.calm = true;
    let mut replacement = life.replacement();
    replacement.copy(true);
    let is_last = |life: &Life, op: &InFlight| {
        let second = life.own()[1];
        let is_second =
            matches!(&op.action, Action::Write { device: SUCCESSOR, offset, .. } if *offset == second);
        is_second && life.names_successor()
    };
    while !life.in_flight.iter().any(|op| is_last(&life, op)) {
        life.turn(&mut replacement);
        if replacement.progress().standing == Standing::Whole {
            replacement.begin_takeover(life.superblocks(), life.now);
        }
    }
    life.now = Nanos(life.now.0 + 31 * Nanos::SECOND);
    drop(replacement.next_action(&mut life.client, life.now));
    replacement.settle();
    replacement.progress().standing
}

/// The other device fails the flush by which the volume changes over, and forgets what it covered. Gives whether a flush of it that
/// the client asks for afterwards fails, which nothing else does.
pub(super) fn fail_the_change() -> bool {
    let mut life = born(1);
    life.calm = true;
    let mut replacement = life.replacement();
    replacement.copy(true);
    let own = |op: &InFlight| matches!(&op.action, Action::Flush { token, .. } if token.0 >> 63 != 0);
    let is_change = |life: &Life, op: &InFlight| {
        own(op) && device_of(&op.action) == other(life.old) && life.names_successor()
    };
    let place = loop {
        if let Some(place) = life.in_flight.iter().position(|op| is_change(&life, op)) {
            break place;
        }
        // Step by step: a whole turn would have it end as well.
        life.now = Nanos(life.now.0 + 1_000_000);
        if let Some(action) = replacement.next_action(&mut life.client, life.now) {
            life.start(action);
        } else if let Some((token, result)) = life.finish_one() {
            replacement.on_completion(&mut life.client, life.now, token, result);
        }
        if replacement.progress().standing == Standing::Whole {
            replacement.begin_takeover(life.superblocks(), life.now);
        }
        assert!(life.now < Nanos(3600 * Nanos::SECOND), "{:?}", replacement.progress());
    };
    let InFlight { action, .. } = life.in_flight.swap_remove(place);
    let Action::Flush { token, .. } = action else { unreachable!("it is a flush") };
    let failed = Err(DeviceError { errno: EIO });
    replacement.on_completion(&mut life.client, life.now, token, failed);
    for _ in 0..CALM_TURNS / 10 {
        life.turn(&mut replacement);
    }
    life.client.elsewhere_failed
}

/// Lives one life; the error says what was wrong.
pub(super) fn live(seed: u64) -> Result<Seen, String> {
    let mut life = born(seed);
    let openings = life.rng.range(1, 8);
    // By chance the successor is silent for too long in a calm one, too.
    for opening in 0..openings + 4 {
        life.calm = opening >= openings;
        if life.names_successor() {
            life.check(SUCCESSOR, true)?;
            return Ok(life.seen);
        }
        if !life.calm && life.rng.one_in(6) {
            life.open_without();
            life.crash()?;
            continue;
        }
        match life.open()? {
            End::Crashed => life.crash()?,
            End::TakenOver => {
                life.seen.taken_over = true;
                life.check(SUCCESSOR, false)?;
                life.crash_disks();
                if !life.names_successor() {
                    return Err("the other device does not name the successor after all".into());
                }
                life.check(SUCCESSOR, true)?;
                return Ok(life.seen);
            }
        }
    }
    Err("it did not come to its end".into())
}

impl Life {
    fn own(&self) -> [u64; 2] {
        [0, self.bytes - BLOCK as u64]
    }

    fn new_id(&self) -> [u8; 16] {
        [100 + self.attempt; 16]
    }

    /// Whether the other device says that the successor is the volume's.
    fn names_successor(&self) -> bool {
        let block = self.disks[usize::from(other(self.old).0)].block(0);
        block.windows(16).any(|part| part == self.new_id())
    }

    fn superblocks(&self) -> [Superblock; 2] {
        let mut devices = [OTHER; 2];
        devices[usize::from(self.old.0)] = OLD;
        let geometry = Geometry { device_bytes: [self.bytes; 2], ..Geometry::default() };
        [FAST, SLOW].map(|tier| Superblock {
            volume: VOLUME,
            devices,
            tier,
            generation: Generation(self.generation),
            state: OpenState::Open,
            created_unix_s: 0,
            geometry: geometry.clone(),
            left_behind: None,
            hints: None,
        })
    }

    fn replacement(&self) -> Replacement {
        let pace = Pace { piece_bytes: 4 * BLOCK as u64, region_bytes: 6 * BLOCK as u64, rest_times: 2 };
        let plan = Plan {
            volume: VOLUME,
            tier: self.old,
            old: OLD,
            new: self.new_id(),
            bytes: self.bytes,
            own: self.own(),
            generation: Generation(self.generation),
            pace,
        };
        let headers = self.own().map(|at| Header::decode(self.disks[2].block(at as usize)));
        let newest = headers.into_iter().flatten().max_by_key(|header| header.number);
        let resumed = newest.and_then(|header| Replacement::resume(plan.clone(), &header));
        let mut replacement = resumed.unwrap_or_else(|| Replacement::begin(plan));
        if self.leaves {
            assert!(replacement.leave_unreadable());
        }
        replacement
    }

    /// One opening.
    fn open(&mut self) -> Result<End, String> {
        let begins_late = self.late.as_mut().is_some_and(|late| late.one_in(2));
        if begins_late {
            self.open_without();
        }
        let mut replacement = self.replacement();
        replacement.copy(begins_late);
        for op in self.in_flight.iter().filter(|op| device_of(&op.action) == self.old) {
            match op.action {
                Action::Write { token, .. } => replacement.is_under_way(self.old, token, Before::Changes),
                Action::Flush { token, .. } => replacement.is_under_way(self.old, token, Before::Flushes),
                _ => {}
            }
        }
        let raises_at = self.rng.below(40) as u32;
        let most = if self.calm { CALM_TURNS } else { TURNS };
        let crash_at = match self.calm {
            true => u32::MAX,
            false => self.rng.pick(&[60, 300, u64::from(TURNS)]) as u32,
        };
        let mut failed = false;
        let mut crash_at = if self.calm { crash_at } else { self.rng.below(crash_at.into()) as u32 };
        let mut settle_at = u32::MAX;
        for turn in 0..most {
            if turn == raises_at {
                self.generation += 1;
                // The header says so a little later.
            }
            if turn == raises_at + 3 {
                replacement.opened(Generation(self.generation));
                replacement.copy(true);
            }
            if turn == crash_at {
                return Ok(End::Crashed);
            }
            self.turn(&mut replacement);
            if let Some(wrong) = self.client.wrong.take() {
                return Err(wrong);
            }
            match replacement.progress().standing {
                Standing::Whole if turn > raises_at + 3 && (self.calm || self.rng.one_in(40)) => {
                    replacement.begin_takeover(self.superblocks(), self.now);
                }
                Standing::TakenOver => return self.end(replacement),
                Standing::Failed(_) | Standing::Torn(_) if crash_at != u32::MAX && !failed => {
                    failed = true;
                    if self.rng.one_in(2) {
                        crash_at = turn + 1 + self.rng.below(50) as u32;
                    }
                }
                Standing::Failed(_) if settle_at == u32::MAX => {
                    settle_at = turn + 1 + self.rng.below(60) as u32
                }
                Standing::Failed(_) if turn == settle_at => {
                    replacement.settle();
                    // The next one is another successor.
                    self.attempt += 1;
                }
                Standing::Torn(_) if self.calm => return Ok(End::Crashed),
                Standing::Copying if !self.calm && self.rng.one_in(3000) && replacement.cancel() => {
                    replacement.settle();
                    self.attempt += 1;
                    settle_at = turn;
                }
                _ => {}
            }
            if turn >= settle_at && settle_at != u32::MAX && replacement.is_over() {
                self.must_have_all_memory()?;
                self.hangs = false;
                for _ in 0..50 {
                    self.turn_alone();
                }
                return Ok(End::Crashed);
            }
        }
        match self.calm {
            true => Err(format!("stuck: {:?}", replacement.progress())),
            false => Ok(End::Crashed),
        }
    }

    /// An opening by who does not know of the successor.
    fn open_without(&mut self) {
        self.generation += 1;
        for _ in 0..self.rng.below(60) {
            self.turn_alone();
        }
    }

    fn end(&mut self, replacement: Replacement) -> Result<End, String> {
        drop(replacement);
        self.must_have_all_memory()?;
        let left = self.in_flight.iter().find(|op| device_of(&op.action) != other(self.old));
        match left {
            Some(op) => Err(format!("taken over while this is on its way: {:?}", op.action)),
            None => Ok(End::TakenOver),
        }
    }

    /// All memory was given back that the client does not use.
    fn must_have_all_memory(&self) -> Result<(), String> {
        let is_used = |asked: &&Asked| matches!(asked, Asked::Write { .. } | Asked::Read { .. });
        let (used, free) =
            (self.client.asked.values().filter(is_used).count(), self.client.memory.free.len());
        let left = BUFS as usize - used - free;
        if left > 0 { Err(format!("{left} buffers are not given back")) } else { Ok(()) }
    }

    fn turn(&mut self, replacement: &mut Replacement) {
        let step = if self.rng.one_in(60) {
            Nanos::SECOND * self.rng.range(1, 12)
        } else {
            self.rng.below(1_000_000)
        };
        self.now = Nanos(self.now.0 + step);
        if self.calm {
            self.hangs = false;
            if !self.leaves {
                self.disks[usize::from(self.old.0)].bad.clear();
            }
        } else {
            self.hangs ^= self.rng.one_in(if self.hangs { 100 } else { 3000 });
        }
        if let Some(leaps) = &mut self.leaps {
            self.is_mute ^= leaps.one_in(if self.is_mute { 60 } else { 1000 });
            self.is_mute &= !self.calm;
            self.client.is_open ^= leaps.one_in(if self.client.is_open { 200 } else { 400 });
        }
        if self.hangs && self.rng.one_in(20) {
            self.now = Nanos(self.now.0 + 31 * Nanos::SECOND);
        }
        let mut is_all = false;
        for _ in 0..self.rng.below(4) {
            let Some(action) = replacement.next_action(&mut self.client, self.now) else {
                is_all = true;
                break;
            };
            self.start(action);
        }
        for _ in 0..self.rng.below(4) {
            let Some((token, result)) = self.finish_one() else { break };
            is_all = false;
            replacement.on_completion(&mut self.client, self.now, token, result);
        }
        if is_all && self.in_flight.is_empty() && self.leaps.as_mut().is_some_and(|leaps| leaps.one_in(2)) {
            self.now = Nanos(self.now.0 + 61 * Nanos::SECOND);
        }
    }

    /// Without a replacement.
    fn turn_alone(&mut self) {
        if let Some(action) = self.client.next_action(self.now) {
            self.start(action);
        }
        if let Some((token, result)) = self.finish_one()
            && token.0 >> 63 == 0
        {
            self.client.on_completion(self.now, token, result);
        }
    }

    fn start(&mut self, action: Action) {
        let covers = match &action {
            Action::Flush { device, .. } => self.disks[usize::from(device.0)].cached(),
            _ => BTreeSet::new(),
        };
        self.in_flight.push(InFlight { action, covers });
    }

    /// Something ends.
    fn finish_one(&mut self) -> Option<(Token, Result<(), DeviceError>)> {
        let ready = |op: &&InFlight| !self.hangs || device_of(&op.action) != SUCCESSOR;
        let count = self.in_flight.iter().filter(ready).count();
        let place = self.rng.below(count as u64) as usize;
        let place = self.in_flight.iter().enumerate().filter(|(_, op)| ready(op)).nth(place)?.0;
        if !self.calm && device_of(&self.in_flight[place].action) == self.slow && !self.rng.one_in(12) {
            return None;
        }
        let InFlight { action, covers } = self.in_flight.swap_remove(place);
        let device = device_of(&action);
        let is_commit = device == other(self.old) && matches!(action, Action::Write { .. });
        let one_in = match device {
            SUCCESSOR => self.fails_one_in,
            _ if is_commit => 4,
            _ => 300,
        };
        let fails = !self.calm && self.rng.one_in(one_in);
        let is_away = fails && self.aways.one_in(3);
        let errno = if is_away { ENODEV } else { EIO };
        let result = if fails { Err(DeviceError { errno }) } else { Ok(()) };
        let disk = &mut self.disks[usize::from(device.0)];
        if is_away {
            // It was reset, and only this command says so.
            disk.forget(&disk.cached());
        }
        match action {
            Action::Read { offset, buf, token, .. } => {
                let read = disk.read(offset as usize, self.client.memory.bytes_mut(buf));
                let read = read && !(self.is_mute && device == self.old);
                let good = if read { result } else { result.and(Err(DeviceError { errno: EIO })) };
                if good.is_err() {
                    self.client.memory.bytes_mut(buf).fill(0xee);
                }
                Some((token, good))
            }
            Action::Write { offset, bufs, fua, token, .. } => {
                let mut at = offset as usize;
                for buf in bufs {
                    for part in self.client.memory.bytes(buf).chunks(BLOCK) {
                        if !fails || self.rng.one_in(2) {
                            disk.write(at, part, fua && !fails);
                        }
                        at += BLOCK;
                    }
                }
                Some((token, result))
            }
            Action::Flush { token, .. } => {
                match fails {
                    false => disk.flush(&covers),
                    true => disk.forget(&covers),
                }
                Some((token, result))
            }
            Action::Discard { token, .. } => Some((token, result)),
            Action::Reply { .. } => None,
        }
    }

    fn crash_disks(&mut self) {
        for op in std::mem::take(&mut self.in_flight) {
            if let Action::Write { device, offset, bufs, .. } = op.action {
                let mut at = offset as usize;
                for part in bufs.iter().flat_map(|buf| self.client.memory.bytes(*buf).chunks(BLOCK)) {
                    if self.rng.one_in(2) {
                        self.disks[usize::from(device.0)].write(at, part, false);
                    }
                    at += BLOCK;
                }
            }
        }
        self.disks.iter_mut().for_each(|disk| disk.crash(&mut self.rng));
    }

    /// The power fails, and comes back.
    fn crash(&mut self) -> Result<(), String> {
        self.seen.crashes += 1;
        self.crash_disks();
        self.client.asked.clear();
        self.client.doubts = false;
        self.client.memory.free = (0..BUFS).map(|i| i * BUF).collect();
        let first = self.disks[usize::from(other(self.old).0)].block(0);
        let names = |attempt: u8| first.windows(16).any(|part| part == [100 + attempt; 16]);
        if (0..self.attempt).any(names) {
            return Err("the other device names a successor that was done without".into());
        }
        let device = if self.names_successor() { SUCCESSOR } else { self.old };
        self.check(device, true)?;
        // What is read from now on is what is there.
        let disk = &self.disks[usize::from(device.0)];
        for (place, known) in self.client.blocks.iter_mut().enumerate() {
            if known.is_unused() {
                *known = Known::new(ANY);
            } else if !disk.bad.contains(&place) {
                *known = Known::new(version_of(disk.block(place * BLOCK)));
            } else {
                known.all.iter_mut().for_each(|entry| entry.1 = How::Failed);
                known.seen = None;
            }
        }
        Ok(())
    }

    /// Whether a device holds what was flushed, or something newer.
    fn check(&self, device: Tier, crashed: bool) -> Result<(), String> {
        let disk = &self.disks[usize::from(device.0)];
        if device == SUCCESSOR {
            let is_superblock =
                |at: u64| disk.block(at as usize).windows(16).any(|part| part == self.new_id());
            let magic = |at: u64| disk.block(at as usize).starts_with(b"BMTLsupr");
            if !self.own().iter().any(|at| is_superblock(*at) && magic(*at)) {
                return Err("the successor has no superblock".into());
            }
        }
        for (place, known) in self.client.blocks.iter().enumerate().skip(1).take(self.client.blocks.len() - 2)
        {
            let held = version_of(disk.block(place * BLOCK));
            let may: Vec<u64> = match crashed {
                true => known.all.iter().map(|(version, _)| *version).collect(),
                false => known.reads(),
            };
            let is_left = device == SUCCESSOR
                && held == left_out()
                && self.leaves
                && self.disks[usize::from(self.old.0)].bad.contains(&place);
            if !disk.bad.contains(&place) && !may.contains(&held) && !may.contains(&ANY) && !is_left {
                return Err(format!("device {}: block {place} holds {held}, not one of {may:?}", device.0));
            }
        }
        Ok(())
    }
}

fn device_of(action: &Action) -> Tier {
    match action {
        Action::Read { device, .. }
        | Action::Write { device, .. }
        | Action::Flush { device, .. }
        | Action::Discard { device, .. } => *device,
        Action::Reply { .. } => FAST,
    }
}
