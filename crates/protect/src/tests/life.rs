//! One life: a machine that writes to two devices, its protection, and what happens to them.

use super::disk::Disk;
use super::standing_in;
use crate::bugs::{Bug, planted};
use crate::epoch::Phase;
use crate::protection::OWN;
use crate::{Header, Layout, Newest, Plan, Protection, Salvage, Standing, newest_header, scan};
use bimetal_engine::Machine;
use bimetal_engine::action::{Action, BufList, Class, DeviceError, Token};
use bimetal_engine::arena::{Arena, Buf, Pool};
use bimetal_engine::unused::Unused;
use bimetal_units::rng::Rng;
use bimetal_units::{BLOCK_BYTES, FAST, Generation, Nanos, SLOW, Tier};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

const BLOCK: usize = BLOCK_BYTES as usize;
const VOLUME: [u8; 16] = [1; 16];
/// Of what somebody needs or not, or nobody does.
const SLOT_BLOCKS: u64 = 3;
/// Turns of one opening at most, and of the calm one at the end.
const TURNS: u32 = 1500;
const CALM_TURNS: u32 = 60_000;
/// The image is looked at after one turn in so many, and after one in so many in which something was written for it, or each of them
/// where the machine's writes end late; beside after crashes.
const IS_LOOKED_AT: u32 = 200;
const IS_LOOKED_AT_WHEN_WRITTEN: u32 = 10;

fn version_of(block: &[u8]) -> u64 {
    u64::from_le_bytes(block[..8].try_into().expect("eight bytes"))
}

/// What a life has seen.
#[derive(Default, Debug)]
pub(super) struct Seen {
    pub(super) crashes: u64,
    /// Images that were looked at.
    pub(super) images: u64,
    /// Blocks of images that were lost.
    pub(super) lost: u64,
    /// Times that there was no image.
    pub(super) none: u64,
    /// Times that the ring was gone through and an image gone on with.
    pub(super) resumed: u64,
    /// Times that a copy was brought up to date.
    pub(super) applied: u64,
}

struct Memory {
    bytes: Vec<u8>,
    free: Vec<u64>,
}

/// Buffers have this many bytes at most.
const BUF: u64 = 8 * BLOCK as u64;
const BUFS: u64 = 96;
/// The machine takes those below.
const OWN_BUFS: u64 = 40;

impl Arena for Memory {
    fn alloc(&mut self, pool: Pool, len: u32) -> Option<Buf> {
        assert!(u64::from(len) <= BUF);
        let is_of = |start: &u64| (*start < OWN_BUFS * BUF) == (pool == Pool::Client);
        let place = self.free.iter().rposition(is_of)?;
        Some(Buf { start: self.free.remove(place), len })
    }
    fn free(&mut self, buf: Buf) {
        assert!(!self.free.contains(&buf.start), "given back twice");
        self.free.push(buf.start);
    }
    fn crc32c(&self, buf: Buf) -> u32 {
        crc32c::crc32c(self.bytes(buf))
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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Done,
    Failed,
    Busy,
}

/// What a block may hold, the oldest first.
#[derive(Clone, Debug)]
struct Known {
    all: Vec<(u64, How)>,
    /// What was read of it since.
    seen: Option<u64>,
}

impl Known {
    fn new(version: u64) -> Known {
        Known { all: vec![(version, How::Done)], seen: None }
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

enum Asked {
    Write {
        device: Tier,
        blocks: Range<usize>,
        buf: Buf,
        version: u64,
    },
    Read {
        device: Tier,
        blocks: Range<usize>,
        buf: Buf,
        before: Vec<Known>,
    },
    /// What each block holds at least, once it has ended.
    Flush {
        device: Tier,
        done: Vec<Option<u64>>,
    },
    Discard,
}

/// What stands for the engine: it writes, reads and flushes at random.
struct Client {
    memory: Memory,
    rng: Rng,
    blocks: [Vec<Known>; 2],
    asked: BTreeMap<u64, Asked>,
    next: u64,
    version: u64,
    is_open: bool,
    /// How often it writes, in a hundred times.
    busy: u64,
    /// Which slots of the slow device are needed: what the next freeze is told.
    needed: u64,
    /// A flush has failed: what was written is not certain any more, whatever later ones say.
    doubts: [bool; 2],
    wrong: Option<String>,
}

impl Client {
    fn known(&mut self, device: Tier) -> &mut Vec<Known> {
        &mut self.blocks[usize::from(device.0)]
    }

    fn range(&mut self, device: Tier) -> Option<Range<usize>> {
        let len = self.rng.range(1, 5) as usize;
        let count = self.known(device).len();
        // Mostly the same few places.
        let end = if self.rng.one_in(3) { count } else { count / 2 + 6 };
        let start = self.rng.below((end - len) as u64) as usize;
        let busy = self.known(device)[start..start + len].iter().any(Known::is_busy);
        (!busy).then_some(start..start + len)
    }
}

impl Machine for Client {
    type Arena = Memory;

    fn unused(&self, device: Tier) -> Unused {
        assert_eq!(device, SLOW);
        Unused::new(1, SLOT_BLOCKS, self.blocks[1].len() as u64 / SLOT_BLOCKS - 1, vec![self.needed])
    }

    fn next_action(&mut self, _: Nanos) -> Option<Action> {
        if !self.is_open || self.asked.len() >= 12 || self.rng.below(100) >= self.busy {
            return None;
        }
        self.next += 1;
        let device = self.rng.pick(&[FAST, SLOW]);
        let (token, class) = (Token(self.next), Class::Foreground);
        let (action, asked) = match self.rng.weighted(&[60, 15, 8, 2]) {
            kind @ (0 | 1) => {
                let blocks = self.range(device)?;
                let buf = self.memory.alloc(Pool::Client, (blocks.len() * BLOCK) as u32)?;
                let offset = (blocks.start * BLOCK) as u64;
                if kind == 1 {
                    let before = self.known(device)[blocks.clone()].to_vec();
                    let read = Action::Read { device, offset, buf, token, class };
                    (read, Asked::Read { device, blocks, buf, before })
                } else {
                    self.version += 1;
                    let version = self.version;
                    let bytes = self.memory.bytes_mut(buf);
                    bytes.chunks_mut(8).for_each(|b| b.copy_from_slice(&version.to_le_bytes()));
                    self.known(device)[blocks.clone()].iter_mut().for_each(|known| {
                        known.all.push((version, How::Busy));
                        known.seen = None;
                    });
                    let (bufs, fua) = (BufList::from_elem(buf, 1), false);
                    (
                        Action::Write { device, offset, bufs, fua, token, class },
                        Asked::Write { device, blocks, buf, version },
                    )
                }
            }
            2 => {
                let done = self.known(device).iter().map(Known::done).collect();
                (Action::Flush { device, token }, Asked::Flush { device, done })
            }
            _ => {
                let (offset, len) = (0, BLOCK as u64);
                (Action::Discard { device, offset, len, refilled: false, token }, Asked::Discard)
            }
        };
        self.asked.insert(token.0, asked);
        Some(action)
    }

    fn on_completion(&mut self, _: Nanos, token: Token, result: Result<(), DeviceError>) {
        let asked = self.asked.remove(&token.0).expect("it was asked, and not answered");
        match asked {
            Asked::Write { device, blocks, buf, version } => {
                self.memory.free(buf);
                let how = if result.is_ok() { How::Done } else { How::Failed };
                for known in &mut self.known(device)[blocks] {
                    let entry = known.all.iter_mut().filter(|(other, _)| *other == version);
                    entry.for_each(|entry| entry.1 = how);
                }
            }
            Asked::Read { device, blocks, buf, before } => {
                for (i, (place, before)) in blocks.zip(before).enumerate() {
                    let held = version_of(&self.memory.bytes(buf)[i * BLOCK..]);
                    let known = &mut self.blocks[usize::from(device.0)][place];
                    let same = known.all.last() == before.all.last() && !known.is_busy();
                    if result.is_ok() && same && !known.reads().contains(&held) {
                        let reads = known.reads();
                        self.wrong =
                            Some(format!("block {place} of {device:?} reads {held}, not one of {reads:?}"));
                    } else if result.is_ok() && same {
                        known.seen = Some(held);
                    }
                }
                self.memory.free(buf);
            }
            Asked::Flush { device, .. } if result.is_err() => self.doubts[usize::from(device.0)] = true,
            Asked::Flush { device, done } if !self.doubts[usize::from(device.0)] => {
                for (known, done) in self.known(device).iter_mut().zip(done) {
                    let place = known.all.iter().position(|(version, _)| Some(*version) == done);
                    known.all.drain(..place.unwrap_or(0));
                }
            }
            Asked::Flush { .. } | Asked::Discard => {}
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

impl InFlight {
    /// Whether the machine writes to the slow device with it.
    fn is_slow_write(&self) -> bool {
        matches!(self.action, Action::Write { device: SLOW, token, .. } if token.0 & OWN == 0)
    }
}

/// What each block may hold in an image.
pub(super) type Moment = [Vec<Vec<u64>>; 2];

pub(super) struct Life {
    rng: Rng,
    /// For what is tried on a copy of a device, so that the life goes on as without.
    aside: Rng,
    client: Client,
    disks: [Disk; 2],
    layout: Layout,
    generation: u64,
    in_flight: Vec<InFlight>,
    /// At each freeze.
    moments: BTreeMap<u64, Moment>,
    now: Nanos,
    calm: bool,
    /// Blocks of either device that could not be read are in this life.
    has_bad: bool,
    strict: bool,
    /// Of the ring, for more than a few writes.
    has_room: bool,
    /// How often another device has had the place of the fast one, and two more.
    replaced: u8,
    /// Images of this opening, without one that was given up between them.
    images: BTreeSet<u64>,
    fresh: u64,
    fails_one_in: u32,
    /// What the machine writes to the slow device mostly ends after everything else.
    is_slow: bool,
    /// Something was written for the image in this turn.
    is_written: bool,
    seen: Seen,
}

pub(super) fn born(seed: u64) -> Life {
    let mut rng = Rng::new(seed, 1);
    let is_slow = seed % 5 == 4;
    let mut counts = [rng.range(12, 70) as usize, rng.range(12, 70) as usize];
    if is_slow {
        // Others write to the same blocks meanwhile, and nothing fails.
        counts[1] = 12;
    }
    let ring_blocks = rng.pick(&[16, 24, 60, 200]);
    let layout = Layout {
        fast_bytes: (counts[0] * BLOCK) as u64,
        slow_bytes: (counts[1] * BLOCK) as u64,
        ring_bytes: ring_blocks * BLOCK as u64,
    };
    let numbered = |from: u64, bytes: u64| {
        let block = |i: u64| (from + i).to_le_bytes().repeat(BLOCK / 8);
        Disk::new((0..bytes / BLOCK as u64).flat_map(block).collect())
    };
    let client = Client {
        memory: Memory { bytes: vec![0; (BUF * BUFS) as usize], free: (0..BUFS).map(|i| i * BUF).collect() },
        rng: Rng::new(seed, 2),
        blocks: counts.map(|count| (0..count).map(|i| Known::new(1000 + i as u64)).collect()),
        asked: BTreeMap::new(),
        next: 0,
        version: 10_000,
        is_open: true,
        busy: rng.pick(&[5, 30, 100]),
        needed: u64::MAX,
        doubts: [false; 2],
        wrong: None,
    };
    let fast = numbered(1000, layout.maps()[1] + BLOCK as u64);
    let mut life = Life {
        disks: [fast, numbered(1000, layout.end())],
        client,
        layout,
        generation: 7,
        in_flight: Vec::new(),
        moments: BTreeMap::new(),
        now: Nanos(0),
        calm: false,
        has_bad: false,
        strict: rng.one_in(4),
        has_room: ring_blocks >= 60,
        replaced: 2,
        images: BTreeSet::new(),
        fresh: 0,
        fails_one_in: rng.pick(&[400, 4000, u32::MAX]),
        is_slow,
        is_written: false,
        seen: Seen::default(),
        aside: Rng::new(seed, 3),
        rng,
    };
    life.has_bad = life.rng.one_in(4) && !is_slow;
    if is_slow {
        life.fails_one_in = u32::MAX;
    }
    if life.has_bad {
        for (disk, count) in counts.into_iter().enumerate() {
            for _ in 0..life.rng.below(4) {
                let place = life.rng.below(count as u64) as usize;
                life.disks[disk].bad.insert(place);
            }
        }
    }
    life
}

/// Lives one life; the error says what was wrong.
pub(super) fn live(seed: u64) -> Result<Seen, String> {
    let mut life = born(seed);
    for _ in 0..life.rng.range(1, 8) {
        if life.rng.one_in(12) {
            life.open_without();
        } else {
            life.open()?;
        }
        life.crash()?;
    }
    life.calm = true;
    life.disks.iter_mut().for_each(|disk| disk.bad.clear());
    life.open()?;
    // The last image lacks nothing.
    life.has_bad = false;
    life.crash()?;
    let header = life.header().ok_or("there is no header in the end")?;
    if header.header.image.is_none() {
        return Err("there is no image in the end".into());
    }
    Ok(life.seen)
}

impl Life {
    fn plan(&self) -> Plan {
        Plan {
            volume: VOLUME,
            devices: [[self.replaced; 16], [3; 16]],
            layout: self.layout,
            generation: Generation(self.generation),
            seconds: if self.calm { 1000 } else { 2 },
            strict: self.strict,
            piece_bytes: 2 * BLOCK as u64,
            region_blocks: 4,
            open_ahead: 0,
            fresh: self.fresh,
        }
    }

    fn header(&self) -> Option<Newest> {
        newest_header(&mut reader(&self.disks[1]), self.layout.headers(), VOLUME)
    }

    pub(super) fn protection(&mut self) -> Protection {
        self.fresh += 1;
        if self.rng.one_in(30) {
            // As who ends protection leaves it.
            self.moments.clear();
            let blank = vec![0; BLOCK];
            self.layout.headers().iter().for_each(|at| self.disks[1].write(*at as usize, &blank, true));
        }
        let header = self.header();
        let [fast, slow] = &self.disks;
        let protection = Protection::open(self.plan(), header.as_ref(), &mut reader(fast), &mut reader(slow));
        self.seen.resumed += u64::from(protection.progress().image.is_some());
        protection
    }

    /// One opening.
    fn open(&mut self) -> Result<(), String> {
        let mut protection = self.protection();
        self.images.clear();
        let raises_at = self.rng.below(40) as u32;
        let crash_at = self.rng.pick(&[60, 300, u64::from(TURNS)]);
        let crash_at = if self.calm { CALM_TURNS } else { self.rng.below(crash_at) as u32 };
        for turn in 0..crash_at {
            if turn == raises_at && protection.phase != Phase::Joining {
                self.generation += 1;
            }
            self.turn(&mut protection);
            if let Some(wrong) = self.client.wrong.take() {
                return Err(wrong);
            }
            if self.calm && turn == 300 {
                self.client.is_open = false;
            }
            if self.calm && turn >= 300 && self.client.asked.is_empty() && self.is_closed(&mut protection) {
                let last = self.moments.last_key_value().is_some_and(|(_, last)| *last == self.moment());
                return if last { Ok(()) } else { Err("the last image is not of the end".into()) };
            }
            self.is_kept(&protection)?;
            let is_written = std::mem::take(&mut self.is_written);
            let one_in = match is_written {
                true if self.is_slow => 1,
                true => IS_LOOKED_AT_WHEN_WRITTEN,
                false => IS_LOOKED_AT,
            };
            if self.aside.one_in(one_in) {
                self.is_image_good()?;
            }
            if !self.calm && self.aside.one_in(5000) {
                self.replace(&mut protection);
            }
            if let (true, Standing::Off { why, .. }) = (self.calm, protection.progress().standing) {
                return Err(format!("off in a calm time: {why}"));
            }
        }
        match self.calm {
            true => Err(format!("stuck: {:?} {:?}", protection.progress(), protection.phase)),
            false => Ok(()),
        }
    }

    /// Nothing fails in this life.
    fn is_clean(&self) -> bool {
        !self.has_bad && self.fails_one_in == u32::MAX
    }

    /// Where clients are to wait, the image stays while nothing fails: its ring has room for what comes. The first one of an opening
    /// may be of more than that.
    fn is_kept(&mut self, protection: &Protection) -> Result<(), String> {
        let is_sure = self.strict && self.is_clean() && self.has_room;
        let number = protection.progress().image.map(|image| image.number);
        if number.is_none() && self.images.len() > 2 && is_sure {
            return Err(format!("the image is gone: {:?}", protection.phase));
        }
        match number {
            None => self.images.clear(),
            Some(number) => drop(self.images.insert(number)),
        }
        Ok(())
    }

    /// Whether an image of the end is there: the machine has ended. That a first one is waited for is the test's wish.
    fn is_closed(&self, protection: &mut Protection) -> bool {
        let has_image = protection.progress().image.is_some() && protection.aging.is_none();
        has_image && protection.finish(self.now)
    }

    /// Another device has the place of the fast one, with the same bytes, and no map.
    fn replace(&mut self, protection: &mut Protection) {
        self.replaced += 1;
        let blank = vec![0; BLOCK];
        self.layout.maps().iter().for_each(|at| self.disks[0].write(*at as usize, &blank, true));
        protection.device_replaced(FAST, [self.replaced; 16]);
        self.images.clear();
    }

    /// An opening by who does not know of protection.
    fn open_without(&mut self) {
        let covers = self.header().map_or(0, |newest| newest.header.covers.0);
        self.generation = self.generation.max(covers) + 1;
        for _ in 0..self.rng.below(100) {
            if let Some(action) = self.client.next_action(self.now) {
                self.start(action);
            }
            if let Some((token, result)) = self.finish_one() {
                self.client.on_completion(self.now, token, result);
            }
        }
    }

    /// What each block may hold; nothing of those that nobody needs, which may hold whatever they do.
    fn moment(&self) -> Moment {
        let mut moment =
            self.client.blocks.each_ref().map(|b| b.iter().map(Known::reads).collect::<Vec<_>>());
        let all = 0..moment[1].len() as u64;
        let needed = self.client.unused(SLOW).needed(&all);
        for (place, may) in moment[1].iter_mut().enumerate() {
            if !needed.iter().any(|part| part.contains(&(place as u64))) {
                may.clear();
            }
        }
        moment
    }

    /// What time it is.
    pub(super) fn now(&self) -> Nanos {
        self.now
    }

    /// What the machine has seen that cannot be.
    pub(super) fn wrong(&mut self) -> Option<String> {
        self.client.wrong.take()
    }

    /// The block at this byte of the slow device rots.
    pub(super) fn rot(&mut self, at: u64) {
        self.disks[1].rot(at as usize);
        self.has_bad = true;
    }

    /// From now on one command in so many fails; or none does.
    pub(super) fn fail(&mut self, one_in: Option<u32>) {
        self.fails_one_in = one_in.unwrap_or(u32::MAX);
    }

    pub(super) fn turn(&mut self, protection: &mut Protection) {
        let step = match self.rng.one_in(40) {
            true => Nanos::SECOND * self.rng.range(1, 3),
            false => self.rng.below(1_000_000),
        };
        self.now = Nanos(self.now.0 + step);
        for _ in 0..self.rng.below(5) {
            let before = protection.undo.freeze();
            self.client.needed = if self.calm { u64::MAX } else { self.aside.next_u64() };
            let moment = protection.may_freeze().then(|| self.moment());
            let was_copying = protection.phase == Phase::Copying;
            let action = protection.next_action(&mut self.client, self.now);
            let is_given_up = matches!(protection.phase, Phase::Dropping { .. });
            if was_copying && is_given_up && self.is_clean() && self.has_room {
                self.client.wrong = Some("an epoch is given up that had begun".to_owned());
            }
            let after = protection.undo.freeze();
            if after != before {
                assert_eq!(after, before + 1);
                let before = self.moments.insert(after, moment.expect("it could freeze"));
                assert!(before.is_none() || planted(Bug::NumbersAgain), "numbers are given once");
            }
            let Some(action) = action else { break };
            self.start(action);
        }
        for _ in 0..self.rng.below(5) {
            let Some((token, result)) = self.finish_one() else { break };
            let was_trimming = protection.phase == Phase::Trimming;
            protection.on_completion(&mut self.client, self.now, token, result);
            self.seen.applied += u64::from(was_trimming && protection.phase == Phase::Resting);
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
        if self.in_flight.is_empty() {
            return None;
        }
        let mut place = self.rng.below(self.in_flight.len() as u64) as usize;
        if self.is_slow && self.in_flight[place].is_slow_write() && !self.aside.one_in(12) {
            let other = self.in_flight.iter().position(|other| !other.is_slow_write());
            place = other.unwrap_or(place);
        }
        let InFlight { action, covers } = self.in_flight.swap_remove(place);
        let fails = !self.calm && self.rng.one_in(self.fails_one_in);
        let result = if fails { Err(DeviceError { errno: 5 }) } else { Ok(()) };
        let disk = &mut self.disks[usize::from(device_of(&action).0)];
        match action {
            Action::Read { offset, buf, token, .. } => {
                let read = disk.read(offset as usize, self.client.memory.bytes_mut(buf));
                let good = if read { result } else { Err(DeviceError { errno: 5 }) };
                if good.is_err() {
                    self.client.memory.bytes_mut(buf).fill(0xee);
                }
                Some((token, good))
            }
            Action::Write { offset, bufs, fua, token, .. } => {
                self.is_written |= token.0 & OWN != 0;
                let mut at = offset as usize;
                for part in bufs.iter().flat_map(|buf| self.client.memory.bytes(*buf).chunks(BLOCK)) {
                    if !fails || self.rng.one_in(2) {
                        disk.write(at, part, fua && !fails);
                    }
                    at += BLOCK;
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

    /// The power fails, and comes back.
    pub(super) fn crash(&mut self) -> Result<(), String> {
        self.seen.crashes += 1;
        for op in std::mem::take(&mut self.in_flight) {
            for (device, disk) in [FAST, SLOW].into_iter().zip(&mut self.disks) {
                tear(&op, device, disk, &self.client.memory, &mut self.rng);
            }
        }
        self.disks.iter_mut().for_each(|disk| disk.crash(&mut self.rng));
        self.client.asked.clear();
        self.client.doubts = [false; 2];
        self.client.memory.free = (0..BUFS).map(|i| i * BUF).collect();
        self.check_devices()?;
        self.check_images()?;
        // What is read from now on is what is there.
        for (disk, blocks) in self.disks.iter().zip(&mut self.client.blocks) {
            for (place, known) in blocks.iter_mut().enumerate() {
                if !disk.bad.contains(&place) {
                    *known = Known::new(version_of(disk.block(place * BLOCK)));
                } else {
                    known.all.iter_mut().for_each(|entry| entry.1 = How::Failed);
                    known.seen = None;
                }
            }
        }
        Ok(())
    }

    /// Whether each device holds what was flushed, or something newer.
    fn check_devices(&self) -> Result<(), String> {
        for (device, (disk, blocks)) in self.disks.iter().zip(&self.client.blocks).enumerate() {
            for (place, known) in blocks.iter().enumerate() {
                let held = version_of(disk.block(place * BLOCK));
                let may: Vec<u64> = known.all.iter().map(|(version, _)| *version).collect();
                if !disk.bad.contains(&place) && !may.contains(&held) {
                    return Err(format!("device {device}: block {place} holds {held}, not one of {may:?}"));
                }
            }
        }
        Ok(())
    }

    /// The fast device is lost at this moment, and the power with it.
    pub(super) fn is_image_good(&mut self) -> Result<(), String> {
        let mut slow = self.disks[1].clone();
        for op in &self.in_flight {
            tear(op, SLOW, &mut slow, &self.client.memory, &mut self.aside);
        }
        slow.crash(&mut self.aside);
        self.check_image(&slow).map(drop)
    }

    /// After a crash: whether the image holds what both held at its freeze, and can take the place of the fast device.
    fn check_images(&mut self) -> Result<(), String> {
        let Some(header) = self.check_image(&self.disks[1].clone())? else {
            self.seen.none += 1;
            return Ok(());
        };
        let moment = header.image.and_then(|image| self.moments.get(&image.number));
        let moment = moment.ok_or("an image of no freeze")?;
        let may_lack = !self.is_clean();
        standing_in::tries(&self.disks[1], &header, moment, &mut self.aside, may_lack)
    }

    /// Whether the image that a slow device has holds what both held at its freeze. Gives the header, where there is one.
    fn check_image(&mut self, disk: &Disk) -> Result<Option<Header>, String> {
        let mut reader = reader(disk);
        let header = newest_header(&mut reader, self.layout.headers(), VOLUME);
        let header = header.map(|newest| newest.header);
        let Some(header) = header.filter(|header| header.covers.0 >= self.generation) else {
            return Ok(None);
        };
        let Some(image) = header.image else { return Ok(None) };
        let moment = self.moments.get(&image.number).ok_or("an image of no freeze")?;
        self.seen.images += 1;
        let salvage = Salvage::new(self.layout, scan(&mut reader, &header, true));
        for (tier, blocks) in [FAST, SLOW].into_iter().zip(moment) {
            for (place, may) in blocks.iter().enumerate().filter(|(_, may)| !may.is_empty()) {
                let block = place as u64;
                let places = salvage.places(tier, block..block + 1);
                let Some(at) = places[0].1 else {
                    self.seen.lost += 1;
                    if self.is_clean() {
                        return Err(format!("image {:x}: block {place} of {tier:?} is lost", image.number));
                    }
                    continue;
                };
                let held = version_of(disk.block(at as usize));
                if !disk.bad.contains(&(at as usize / BLOCK)) && !may.contains(&held) {
                    return Err(format!(
                        "image {:x}: block {place} of {tier:?} holds {held}, not one of {may:?}",
                        image.number
                    ));
                }
            }
        }
        Ok(Some(header))
    }
}

/// Reads a device.
fn reader(disk: &Disk) -> impl FnMut(u64, u64) -> Option<Vec<u8>> + use<'_> {
    |at, bytes| {
        let mut out = vec![0; bytes as usize];
        disk.read(at as usize, &mut out).then_some(out)
    }
}

/// The power fails while something is on its way: of what is written to a device, any blocks may be there.
fn tear(op: &InFlight, device: Tier, disk: &mut Disk, memory: &Memory, rng: &mut Rng) {
    let Action::Write { device: to, offset, bufs, .. } = &op.action else { return };
    if *to != device {
        return;
    }
    for (place, part) in bufs.iter().flat_map(|buf| memory.bytes(*buf).chunks(BLOCK)).enumerate() {
        if rng.one_in(2) {
            disk.write(*offset as usize + place * BLOCK, part, false);
        }
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
