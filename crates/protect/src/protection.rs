//! What is asked of the devices and answered by them, and what protection asks for itself.

use crate::bugs::{Bug, planted};
use crate::bundle::Bundle;
use crate::epoch::{Aging, Phase};
use crate::extents::{Extents, Ranges};
use crate::fast::{Fast, LEAST_REGION};
use crate::header::{Header, Image, Map, Newest};
use crate::layout::Layout;
use crate::ring::{Pos, Ring};
use crate::scan::{Reader, Scanned, newest_map, scan};
use crate::sums::RingSums;
use crate::undo::Undo;
use bimetal_engine::Machine;
use bimetal_engine::action::{Action, BufList, Class, DeviceError, Token};
use bimetal_engine::arena::{Arena, Buf, Pool};
use bimetal_engine::format::Id;
use bimetal_engine::format::superblock::Superblock;
use bimetal_units::{BLOCK_BYTES, FAST, Generation, Nanos, SLOW, Tier};
use std::collections::{BTreeMap, VecDeque};
use std::mem::{Discriminant, discriminant};
use std::ops::Range;

pub(crate) const BLOCK: u64 = BLOCK_BYTES as u64;
/// Marks the tokens that are not the machine's. Whoever replaces a device, below, has the bit above for theirs.
pub(crate) const OWN: u64 = 1 << 62;
/// How soon a map is written again that could not be: clients may wait for it.
const MAP_AGAIN_NS: u64 = Nanos::SECOND / 10;
/// Linux's EIO.
const EIO: i32 = 5;
/// Pieces that memory has room for: more than are ever on their way, so that none waits for what waits for it.
const PIECES_IN_MEMORY: u64 = 32;
/// Why there is no image where that cannot be said.
const STUCK: &str =
    "the slow device cannot be told that its image ends: nothing else is written to it until it can";
/// An image of the end is waited for so long at least.
const FAREWELL_S: u64 = 30;
/// Of a freeze's number, what counts within an opening.
const SESSION_SHIFT: u32 = 32;

/// What is protected, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The volume.
    pub volume: Id,
    /// Its devices.
    pub devices: [Id; 2],
    /// Where everything is.
    pub layout: Layout,
    /// The opening before this one.
    pub generation: Generation,
    /// The oldest that an image is to be.
    pub seconds: u32,
    /// Clients wait rather than that it is older.
    pub strict: bool,
    /// Copied at a time, bytes.
    pub piece_bytes: u64,
    /// The least blocks of a region of the map.
    pub region_blocks: u64,
    /// So many regions behind one that is written to are open with it.
    pub open_ahead: usize,
    /// Any number that was not used before: it tells groups of the ring from those that lie there from before.
    pub fresh: u64,
}

impl Plan {
    /// How much is copied at a time where nothing says otherwise. A disk is busy with transfers by then, not with seeks.
    const PIECE_BYTES: u64 = 256 << 10;
    /// Most of what is written goes on in the next region, which need not wait for a map then; after a crash so much more is copied.
    const OPEN_AHEAD: usize = 16;
    /// The least blocks of a region where nothing says otherwise.
    const REGION_BLOCKS: u64 = LEAST_REGION;

    /// What memory for payload is to have where so much is copied at a time.
    pub const fn pool_bytes(piece_bytes: u64) -> u64 {
        PIECES_IN_MEMORY * piece_bytes
    }

    /// The same where nothing says otherwise.
    pub const POOL_BYTES: u32 = Self::pool_bytes(Self::PIECE_BYTES) as u32;

    /// Of the volume of a superblock, with what is copied at a time, and how regions are opened, as nothing says otherwise.
    pub fn new(superblock: &Superblock, layout: Layout, (seconds, strict): (u32, bool), fresh: u64) -> Plan {
        Plan {
            volume: superblock.volume,
            devices: superblock.devices,
            layout,
            generation: superblock.generation,
            seconds,
            strict,
            piece_bytes: Self::PIECE_BYTES,
            region_blocks: Self::REGION_BLOCKS,
            open_ahead: Self::OPEN_AHEAD,
            fresh,
        }
    }
}

/// How protection stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There is no image yet: the fast device is being copied.
    Base,
    /// There is an image.
    Image,
    /// There is none.
    Off {
        /// For this reason.
        why: String,
        /// A new one is begun in so long; none: not until the volume is opened again.
        again_ms: Option<u64>,
    },
    /// There is none: its copy of the fast device has that one's place, until another device takes it.
    StandIn,
}

/// Protection at a glance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// How it stands.
    pub standing: Standing,
    /// The image that counts.
    pub image: Option<Image>,
    /// Nothing has been written that the image lacks.
    pub is_current: bool,
    /// How old it is, where something has been written since.
    pub exposed_ms: u64,
    /// Bytes of the fast device that the image lacks.
    pub exposed_bytes: u64,
    /// Bytes of the fast device that were copied for the first image.
    pub base_bytes: u64,
}

/// Something that the machine asked for.
pub(crate) struct Op {
    pub(crate) device: Tier,
    pub(crate) blocks: Range<u64>,
    is_write: bool,
    is_flush: bool,
    /// A flush of the device failed meanwhile, which said so to somebody else.
    failed_already: Option<DeviceError>,
}

impl Op {
    /// Whether it writes to a device.
    pub(crate) fn writes_to(&self, device: Tier) -> bool {
        self.is_write && self.device == device
    }
}

/// What an answer with a token of ours is to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Own {
    /// A range of a bundle is read.
    Read { bundle: u64, entry: usize },
    /// A bundle is in the ring.
    Group { bundle: u64 },
    /// A flush of a device.
    Flush(Tier),
    /// A header.
    Header,
    /// A map.
    Map,
    /// A piece from one place to another.
    Transfer(u64),
}

/// A flush of the slow device that is on its way.
pub(crate) struct FlushInFlight {
    /// Groups below this number were written before it.
    pub(crate) below: u64,
    /// The phase waits for it.
    pub(crate) for_phase: bool,
}

/// The image of a volume on its slow device, between a machine and its driver.
pub struct Protection {
    pub(crate) plan: Plan,
    pub(crate) session: u64,
    /// Which groups of the ring are of it.
    pub(crate) ring_id: u64,
    pub(crate) fast: Fast,
    pub(crate) undo: Undo,
    pub(crate) ring: Ring,
    pub(crate) phase: Phase,
    /// What is written is noted and kept: there is an image, or one is being made.
    pub(crate) tracking: bool,
    pub(crate) image: Option<Image>,
    /// What the image has of the fast device in the ring, and not in the copy.
    pub(crate) unapplied: Extents,
    /// The first group of that.
    pub(crate) unapplied_from: Option<Pos>,
    /// Blocks of it that go to the copy by themselves, as something with them could not.
    pub(crate) apply_alone: VecDeque<u64>,
    pub(crate) ring_sums: RingSums,
    /// Where the ring ended at the freeze of the image.
    pub(crate) image_from: Pos,
    /// The slow device was written to since the last freeze.
    pub(crate) slow_written: bool,
    pub(crate) bundles: BTreeMap<u64, Bundle>,
    pub(crate) transfers: BTreeMap<u64, crate::transfer::Transfer>,
    pub(crate) flush: Option<FlushInFlight>,
    /// A flush of the fast device is on its way, ...
    pub(crate) fast_flushes: bool,
    /// ... or has ended that the epoch needs.
    pub(crate) fast_flushed: bool,
    /// A header that is being written.
    pub(crate) header: Option<(Buf, Header)>,
    pub(crate) header_number: u64,
    map: Option<Buf>,
    /// The next one is not written before.
    map_not_before: Nanos,
    pub(crate) ops: BTreeMap<u64, Op>,
    /// With the device that it was asked of.
    own: BTreeMap<u64, (Own, Tier)>,
    next: u64,
    pub(crate) held: VecDeque<Action>,
    /// Something has been answered that they may have waited for.
    stirred: bool,
    /// They were tried last in this phase.
    tried_in: Discriminant<Phase>,
    out: VecDeque<Action>,
    pub(crate) told: VecDeque<(Token, Result<(), DeviceError>)>,
    flush_failed: [Option<DeviceError>; 2],
    /// The machine asked for something last.
    pub(crate) asked_at: Nanos,
    /// No transfer begins before.
    pub(crate) paused_until: Nanos,
    /// Somebody wants an image of now.
    pub(crate) hurry: bool,
    /// That is waited for so long.
    until: Option<Nanos>,
    /// Nothing more is begun.
    halted: bool,
    pub(crate) now: Nanos,
    pub(crate) frozen_at: Nanos,
    /// Where the ring ended then.
    pub(crate) frozen_from: Pos,
    /// The epoch's groups are below this number.
    pub(crate) epoch_end: u64,
    /// The next freeze is at once.
    pub(crate) early: bool,
    /// The ring has no room for the next one.
    pub(crate) aging: Option<Aging>,
    /// What the ring has of the epoch that is being copied.
    pub(crate) copied: Extents,
    /// How often something failed since there was an image.
    pub(crate) failures: u32,
    /// Something could not be read of the fast device when it was copied.
    pub(crate) base_lacks: bool,
    /// The copy has all of the fast device, but for what is known to be lacking.
    pub(crate) copy_is_whole: bool,
    /// What the image lacks, as it could not be read.
    pub(crate) image_lost: Ranges,
}

impl Protection {
    /// Goes on with the image that the newest header has, if it is one of this volume as it is; else from nothing.
    pub fn open(
        plan: Plan,
        newest: Option<&Newest>,
        fast: &mut impl Reader,
        slow: &mut impl Reader,
    ) -> Protection {
        let found = newest_map(fast, plan.layout.maps(), plan.volume);
        // One that is not believed stays where it is for a while: the next one must not be taken for the one before it.
        let last_map = found.as_ref().map_or(0, |(map, _)| map.number);
        let map = found.filter(|(_, is_sure)| *is_sure).map(|(map, _)| map);
        let is_sure = |newest: &&Newest| !newest.is_doubtful || planted(Bug::DoubtIgnored);
        let header = newest.filter(is_sure).map(|newest| &newest.header);
        let resumed = header.filter(|header| header.image.is_some()).and_then(|header| {
            Protection::resume(plan.clone(), header, scan(slow, header, false), map.as_ref())
        });
        let mut protection = resumed
            .unwrap_or_else(|| Protection::begin(plan, newest.map(|newest| &newest.header), map.as_ref()));
        protection.fast.maps_go_on_from(last_map);
        protection
    }

    /// From nothing: there is no image until the fast device has been copied. The header is the newest that is there, so that
    /// the next one counts.
    pub(crate) fn begin(plan: Plan, newest: Option<&Header>, map: Option<&Map>) -> Protection {
        let (number, session) = newest.map_or((0, 0), |header| (header.number, header.session));
        let layout = plan.layout;
        // No group of before has such a number.
        let from = Pos { at: 0, seq: (session + 1) << SESSION_SHIFT, session: session + 1 };
        let ring = Ring::new(layout.ring_at(), layout.ring_bytes, (from, from), from.seq);
        let fast = Fast::new(layout.fast_bytes / BLOCK, (plan.region_blocks, plan.open_ahead), map);
        Protection::of(plan, session + 1, number, ring, fast)
    }

    /// Goes on with the image that a header has, and what the ring was found to hold. The map is the fast device's.
    pub(crate) fn resume(
        plan: Plan,
        header: &Header,
        scanned: Scanned,
        map: Option<&Map>,
    ) -> Option<Protection> {
        let image = header.image?;
        let fits = header.volume == plan.volume
            && header.devices == plan.devices
            && header.layout == plan.layout
            && header.covers >= plan.generation
            && scanned.broken_at.is_none();
        if !fits {
            return None;
        }
        let layout = plan.layout;
        let head = Pos { session: header.session + 1, ..scanned.head };
        let ring = Ring::new(layout.ring_at(), layout.ring_bytes, (header.tail, head), header.durable);
        let mut fast = Fast::new(layout.fast_bytes / BLOCK, (plan.region_blocks, plan.open_ahead), map);
        for range in &header.lost {
            fast.lost.insert(range.clone());
            // Perhaps it can be read by now.
            fast.written(range);
        }
        let session = header.session + 1;
        let mut protection = Protection::of(plan, session, header.number, ring, fast);
        let slow_blocks = 0..layout.slow_bytes / BLOCK;
        protection.undo = Undo::resumed(protection.undo.freeze(), slow_blocks);
        protection.ring_id = header.ring_id;
        protection.image = Some(image);
        protection.image_lost = Ranges::of(&header.lost);
        scanned.sums.iter().for_each(|(at, sums)| protection.ring_sums.note(*at, sums));
        protection.tracking = true;
        protection.copy_is_whole = true;
        // Where the image's own freeze was in the ring the header does not say.
        protection.image_from = header.tail;
        protection.unapplied_from = (!scanned.fast.is_empty()).then_some(header.tail);
        protection.unapplied = scanned.fast;
        Some(protection)
    }

    /// While the copy has the place of the fast device: there is no image, until another device takes that place.
    pub fn stand_by(plan: Plan, newest: &Header) -> Protection {
        Protection { phase: Phase::StandIn, ..Protection::begin(plan, Some(newest), None) }
    }

    fn of(plan: Plan, session: u64, header_number: u64, ring: Ring, fast: Fast) -> Protection {
        let layout = plan.layout;
        let first = if planted(Bug::NumbersAgain) { 1 << SESSION_SHIFT } else { session << SESSION_SHIFT };
        Protection {
            ring_id: plan.fresh,
            plan,
            session,
            fast,
            undo: Undo::new(first),
            ring,
            phase: Phase::Joining,
            tracking: false,
            image: None,
            unapplied: Extents::default(),
            unapplied_from: None,
            apply_alone: VecDeque::new(),
            ring_sums: RingSums::new(layout.ring_at(), layout.ring_bytes),
            image_from: Pos::default(),
            slow_written: true,
            bundles: BTreeMap::new(),
            transfers: BTreeMap::new(),
            flush: None,
            fast_flushes: false,
            fast_flushed: false,
            header: None,
            header_number,
            map: None,
            map_not_before: Nanos(0),
            ops: BTreeMap::new(),
            own: BTreeMap::new(),
            next: 0,
            held: VecDeque::new(),
            stirred: false,
            tried_in: discriminant(&Phase::Joining),
            out: VecDeque::new(),
            told: VecDeque::new(),
            flush_failed: [None; 2],
            asked_at: Nanos(0),
            paused_until: Nanos(0),
            hurry: false,
            until: None,
            halted: false,
            now: Nanos(0),
            frozen_at: Nanos(0),
            frozen_from: Pos::default(),
            epoch_end: 0,
            early: false,
            aging: None,
            copied: Extents::default(),
            failures: 0,
            base_lacks: false,
            copy_is_whole: false,
            image_lost: Ranges::default(),
        }
    }

    /// What is protected, and how.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Another device has taken the place of one of them: what the image was made of is not the volume any more, and it is made
    /// anew.
    pub fn device_replaced(&mut self, tier: Tier, new: Id) {
        self.plan.devices[usize::from(tier.0)] = new;
        self.copy_is_whole &= tier == FAST;
        if tier == FAST && !planted(Bug::ReplacedUnnoted) {
            // Its superblocks name it, and were not written through here.
            let blocks = self.fast.blocks();
            [0..1, blocks - 1..blocks].iter().for_each(|own| self.fast.written(own));
        }
        self.drop_image(None);
    }

    /// The number of the newest freeze, of which the next image is, or the one that counts.
    pub fn newest_freeze(&self) -> u64 {
        self.undo.freeze()
    }

    /// Where everything stands, in one line.
    pub fn where_all_stands(&self) -> String {
        format!(
            "{:?}; own {:?}; {} of the machine's on their way, {} held, {} to be said; {} bundles, {} transfers; ring {} of {}; dirty {}",
            self.phase,
            self.own,
            self.ops.len(),
            self.held.len(),
            self.out.len() + self.told.len(),
            self.bundles.len(),
            self.transfers.len(),
            self.ring.used(),
            self.ring.bytes(),
            self.fast.dirty(),
        )
    }

    /// Whether an answer with this token is to something of ours, and not of the machine's.
    pub fn is_own(token: Token) -> bool {
        token.0 & OWN != 0
    }

    /// The machine has ended: an image of now is wanted, however old the last one is. Gives whether that is done, or is not to be
    /// waited for any longer: where there is no image yet, the ring has no room for a newer one, or the devices are slow. Then nothing
    /// more is begun.
    pub fn finish(&mut self, now: Nanos) -> bool {
        self.hurry = true;
        let seconds = u64::from(self.plan.seconds).max(FAREWELL_S);
        let until = *self.until.get_or_insert(Nanos(now.0 + seconds * Nanos::SECOND));
        let is_needless = (self.image.is_none() || self.aging.is_some()) && self.is_quiet();
        self.halted = now >= until || is_needless || self.progress().is_current;
        self.halted && self.is_quiet()
    }

    /// Nothing of ours is on its way.
    fn is_quiet(&self) -> bool {
        self.own.is_empty() && self.out.is_empty() && self.bundles.is_empty()
    }

    /// How it stands.
    pub fn progress(&self) -> Progress {
        let standing = match &self.phase {
            Phase::Off { why, again } => Standing::Off {
                why: why.clone(),
                again_ms: again.map(|again| again.since(self.now) / Nanos::MS),
            },
            Phase::Dropping { off: Some(failure), .. } => {
                Standing::Off { why: failure.why.clone(), again_ms: self.again_ms(Some(failure)) }
            }
            Phase::StandIn => Standing::StandIn,
            Phase::Stuck { off, .. } => {
                Standing::Off { why: STUCK.to_owned(), again_ms: self.again_ms(off.as_ref()) }
            }
            _ if self.image.is_some() => Standing::Image,
            _ => Standing::Base,
        };
        let base_bytes = if let Phase::Base { next } = self.phase { next * BLOCK } else { 0 };
        let is_current = self.image.is_some() && !self.is_changed() && matches!(self.phase, Phase::Resting);
        let age = |image: Image| self.unix_ms(self.now).saturating_sub(image.frozen_unix_ms);
        Progress {
            standing,
            image: self.image,
            is_current,
            exposed_ms: self.image.filter(|_| !is_current).map_or(0, age),
            exposed_bytes: self.fast.lacking() * BLOCK,
            base_bytes,
        }
    }

    /// Whether anything was written since the last freeze.
    pub(crate) fn is_changed(&self) -> bool {
        self.fast.dirty() > 0 || self.slow_written || self.ops.values().any(|op| op.is_write)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.own.is_empty() && self.bundles.is_empty() && self.transfers.is_empty()
    }

    /// The next thing to do, of the machine's or of our own.
    pub fn next_action<M: Machine>(&mut self, machine: &mut M, now: Nanos) -> Option<Action> {
        // Not in the call that asks for it: who is answered at once believes that no device has anything to do.
        self.tell(machine, now);
        loop {
            if planted(Bug::RefusedAtOnce) {
                self.tell(machine, now);
            }
            if !self.halted {
                self.begin_if_due(machine, now);
            }
            machine.with_arena(|arena| self.work(now, arena));
            if let Some(action) = self.out.pop_front() {
                return Some(action);
            }
            let action = machine.next_action(now)?;
            self.asked_at = now;
            if let Some(action) = self.sort(action) {
                return Some(action);
            }
        }
    }

    fn tell<M: Machine>(&mut self, machine: &mut M, now: Nanos) {
        while let Some((token, result)) = self.told.pop_front() {
            machine.on_completion(now, token, result);
        }
    }

    /// A device answered.
    pub fn on_completion<M: Machine>(
        &mut self,
        machine: &mut M,
        now: Nanos,
        token: Token,
        result: Result<(), DeviceError>,
    ) {
        self.stirred = true;
        self.now = now;
        if Protection::is_own(token) {
            machine.with_arena(|arena| self.own_done(token, result, arena));
            return;
        }
        if let Some(error) = away(result) {
            self.was_away(error);
        }
        let Some(op) = self.ops.remove(&token.0) else {
            machine.on_completion(now, token, result);
            return;
        };
        if op.writes_to(FAST) && !planted(Bug::EndNotNoted) {
            self.fast.written(&op.blocks);
        }
        self.slow_written |= op.writes_to(SLOW);
        self.undo.has_ended(token.0);
        if op.is_flush
            && let Err(error) = result
        {
            // What the ring was told to keep may be forgotten as well, or what was copied.
            self.give_up(format!("a device failed a flush: {error}"));
        }
        let result = op.failed_already.map_or(result, Err);
        if op.is_flush && result.is_err() {
            self.flush_failed[usize::from(op.device.0)] = None;
        }
        machine.on_completion(now, token, result);
    }

    /// When to call again at the latest.
    pub fn deadline(&self) -> Option<Nanos> {
        if !self.told.is_empty() {
            return Some(self.now);
        }
        if self.halted {
            return None;
        }
        let map = (self.wants_map() && self.map.is_none()).then_some(self.map_not_before);
        [self.phase_deadline(), map.filter(|at| *at > self.now)].into_iter().flatten().min()
    }

    /// Asks for something of our own.
    pub(crate) fn ask(&mut self, own: Own, action: impl FnOnce(Token) -> Action) {
        self.next += 1;
        let token = OWN | self.next;
        let action = action(Token(token));
        let (Action::Read { device, .. } | Action::Write { device, .. } | Action::Flush { device, .. }) =
            action
        else {
            unreachable!("nothing else is asked of our own")
        };
        self.own.insert(token, (own, device));
        self.out.push_back(action);
    }

    /// A number for something of our own.
    pub(crate) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Whether a write of the machine to a range is on its way.
    pub(crate) fn is_busy(ops: &BTreeMap<u64, Op>, device: Tier, blocks: &Range<u64>) -> bool {
        ops.values()
            .any(|op| op.writes_to(device) && op.blocks.start < blocks.end && blocks.start < op.blocks.end)
    }

    /// What is to be done with an action of the machine: at once, or `None`: later.
    fn sort(&mut self, action: Action) -> Option<Action> {
        let op =
            |device, is_flush| Op { device, blocks: 0..0, is_write: false, is_flush, failed_already: None };
        match &action {
            Action::Reply { .. } | Action::Read { .. } => Some(action),
            Action::Flush { device, token } => {
                if let Some(error) = self.flush_failed[usize::from(device.0)].take() {
                    self.told.push_back((*token, Err(error)));
                    return None;
                }
                self.ops.insert(token.0, op(*device, true));
                Some(action)
            }
            // What an image has of it is gone otherwise; the hint is worth less.
            Action::Discard { token, .. } if !matches!(self.phase, Phase::Off { .. } | Phase::StandIn) => {
                self.told.push_back((*token, Ok(())));
                None
            }
            Action::Discard { .. } => Some(action),
            Action::Write { token, device: SLOW, .. } if matches!(self.phase, Phase::Stuck { .. }) => {
                self.told.push_back((*token, Err(DeviceError { errno: EIO })));
                None
            }
            Action::Write { .. } => {
                if !self.held.is_empty() && self.is_behind_held(&action) {
                    self.held.push_back(action);
                    return None;
                }
                self.write(action)
            }
        }
    }

    /// Whether a write to the same blocks is held back.
    fn is_behind_held(&self, action: &Action) -> bool {
        let Some((device, blocks)) = blocks_of(action) else { return false };
        self.held
            .iter()
            .filter_map(blocks_of)
            .any(|(other, held)| other == device && held.start < blocks.end && blocks.start < held.end)
    }

    /// A write of the machine: at once, or `None`: it is held back.
    fn write(&mut self, action: Action) -> Option<Action> {
        let (device, blocks) = blocks_of(&action)?;
        if !self.admits(device, &blocks) {
            self.held.push_back(action);
            return None;
        }
        let Action::Write { token, .. } = &action else { return Some(action) };
        if device == FAST {
            self.fast.written(&blocks);
        } else {
            self.slow_written = true;
        }
        let op = Op { device, blocks, is_write: true, is_flush: false, failed_already: None };
        let before = self.ops.insert(token.0, op);
        assert!(before.is_none(), "a token is in use once");
        Some(action)
    }

    fn admits(&mut self, device: Tier, blocks: &Range<u64>) -> bool {
        match self.phase {
            Phase::Off { .. } | Phase::StandIn => return true,
            Phase::Joining => return planted(Bug::NotJoined),
            Phase::Dropping { .. } if device == SLOW => return planted(Bug::DroppedLate),
            _ => {}
        }
        if !self.tracking {
            return true;
        }
        if self.is_overdue() || device == FAST && self.is_too_much(blocks) {
            return false;
        }
        if device == FAST { self.fast.admits(blocks) } else { self.undo.admits(blocks) }
    }

    /// Milliseconds since 1970: that is what the machine's clock counts from.
    pub(crate) fn unix_ms(&self, at: Nanos) -> u64 {
        at.0 / 1_000_000
    }

    /// Whether writes wait for a newer image.
    fn is_overdue(&self) -> bool {
        let oldest = self.unix_ms(self.now).saturating_sub(u64::from(self.plan.seconds) * 1000);
        self.plan.strict && self.is_changed() && self.image.is_some_and(|image| image.frozen_unix_ms < oldest)
    }

    /// Whether writes wait as the next epoch would not be sure to have room. Then it comes soon.
    fn is_too_much(&mut self, blocks: &Range<u64>) -> bool {
        if !self.plan.strict || self.image.is_none() || planted(Bug::QuotaIgnored) {
            return false;
        }
        // What is on its way is noted once more when it ends, which may be after the freeze.
        let busy = self.ops.values().filter(|op| op.writes_to(FAST));
        let dirty = self.fast.dirty() + busy.map(|op| op.blocks.end - op.blocks.start).sum::<u64>();
        let then = dirty + (blocks.end - blocks.start);
        let has_room = self.ring.has_room(0, self.epoch_bytes(then) + self.rest_of_epoch());
        // One that is too much by itself goes alone.
        let is_alone = dirty == 0 && (then > self.quota() || self.ring.used() == 0);
        let is_too_much = !is_alone && (then > self.quota() || !has_room);
        // An epoch of nothing gives space back as well.
        self.slow_written |= is_too_much;
        self.early |= is_too_much;
        is_too_much
    }

    /// A device was away. Should it come back, it may have forgotten what it was told and has not made durable, and say nothing.
    fn was_away(&mut self, error: DeviceError) {
        self.give_up(format!("a device was away: {error}"));
    }

    /// A device failed a flush of ours: whoever of the machine waits for one hears of it, or who asks for one next.
    fn flush_has_failed(&mut self, device: Tier, error: DeviceError) {
        if planted(Bug::FlushErrorKept) {
            return;
        }
        self.flush_failed[usize::from(device.0)] = Some(error);
        let flushes = self.ops.values_mut().filter(|op| op.is_flush && op.device == device);
        flushes.for_each(|op| op.failed_already = Some(error));
    }

    fn own_done<A: Arena>(&mut self, token: Token, result: Result<(), DeviceError>, arena: &mut A) {
        let Some((own, device)) = self.own.remove(&token.0) else { return };
        if let Some(error) = away(result) {
            // The machine may have asked nothing of it meanwhile, and believe what it answers from now on.
            self.flush_has_failed(device, error);
            self.was_away(error);
        }
        match own {
            Own::Read { bundle, entry } => self.entry_read(bundle, entry, result, arena),
            Own::Group { bundle } => self.group_written(bundle, result, arena),
            Own::Flush(device) => {
                if let Err(error) = result {
                    self.flush_has_failed(device, error);
                    let name = if device == FAST { "fast" } else { "slow" };
                    self.give_up(format!("the {name} device failed a flush: {error}"));
                }
                if device == FAST {
                    self.fast_is_flushed();
                } else {
                    self.flushed(result);
                }
            }
            Own::Header => self.header_written(result, arena),
            Own::Map => {
                self.map.take().into_iter().for_each(|buf| arena.free(buf));
                match result {
                    Ok(()) => self.fast.map_written(),
                    Err(error) => {
                        self.fast.map_failed();
                        if !planted(Bug::MapAgainAtOnce) {
                            self.map_not_before = self.now.after(MAP_AGAIN_NS);
                        }
                        self.give_up(format!("the fast device: {error}"));
                    }
                }
            }
            Own::Transfer(id) => self.transfer_done(id, result, arena),
        }
    }

    /// Whatever can be done now.
    fn work<A: Arena>(&mut self, now: Nanos, arena: &mut A) {
        self.now = now;
        // A ring that is full changes the phase, what no longer counts is forgotten, and nobody may call again.
        while !self.halted && self.work_once(now, arena) {}
        if self.halted {
            self.forget_ready(arena);
        }
    }

    /// Gives whether there may be more.
    fn work_once<A: Arena>(&mut self, now: Nanos, arena: &mut A) -> bool {
        self.work_on_phase(now, arena);
        let (phase, bundles) = (discriminant(&self.phase), self.bundles.len());
        let is_new = std::mem::replace(&mut self.tried_in, phase) != phase;
        let held = if std::mem::take(&mut self.stirred) || is_new { self.held.len() } else { 0 };
        for _ in 0..held {
            let Some(action) = self.held.pop_front() else { break };
            if let Some(action) = self.write(action) {
                self.out.push_back(action);
            }
        }
        if matches!(self.phase, Phase::Stuck { .. }) {
            self.refuse_held();
        }
        self.work_on_bundles(arena);
        self.work_on_map(arena);
        self.work_on_flush();
        phase != discriminant(&self.phase) || bundles > self.bundles.len() && !planted(Bug::EndedQuietly)
    }

    /// Whether a map is to be written.
    fn wants_map(&self) -> bool {
        let asked = matches!(self.phase, Phase::Resting) && self.hurry && self.fast.could_close();
        self.tracking && (self.fast.lacks_map() || asked)
    }

    fn work_on_map<A: Arena>(&mut self, arena: &mut A) {
        if self.map.is_some() || !self.wants_map() || self.now < self.map_not_before {
            return;
        }
        let Some(buf) = arena.alloc(Pool::CopyMeta, BLOCK_BYTES) else { return };
        let map = self.fast.begin_map(self.plan.volume);
        map.encode(arena.bytes_mut(buf));
        self.map = Some(buf);
        let offset = self.plan.layout.maps()[(map.number % 2) as usize];
        self.ask(Own::Map, |token| Action::Write {
            device: FAST,
            offset,
            bufs: BufList::from_elem(buf, 1),
            fua: true,
            token,
            class: Class::Foreground,
        });
    }

    /// Every write that is held back fails: nobody can say that there is no image any more.
    fn refuse_held(&mut self) {
        for action in std::mem::take(&mut self.held) {
            if let Action::Write { token, .. } = action {
                self.told.push_back((token, Err(DeviceError { errno: EIO })));
            }
        }
    }

    /// Blocks of the fast device that could not be read, for a header.
    pub(crate) fn lost(&self) -> Vec<Range<u64>> {
        let lost: &Ranges = &self.fast.lost;
        lost.iter().collect()
    }
}

/// The error, if it says that the device was away.
fn away(result: Result<(), DeviceError>) -> Option<DeviceError> {
    result.err().filter(|error| error.is_away() && !planted(Bug::AbsenceIgnored))
}

/// The device and the blocks of a write.
fn blocks_of(action: &Action) -> Option<(Tier, Range<u64>)> {
    let Action::Write { device, offset, bufs, .. } = action else { return None };
    let bytes: u64 = bufs.iter().map(|buf| u64::from(buf.len)).sum();
    Some((*device, offset / BLOCK..(offset + bytes) / BLOCK))
}
