//! What an image goes through: a freeze, the copying of what was frozen, a flush, and the header that makes it count.

use crate::bugs::{Bug, planted};
use crate::extents::Ranges;
use crate::group::Kind;
use crate::header::{Header, Image, MOST_LOST};
use crate::protection::{BLOCK, FlushInFlight, Own, Protection};
use bimetal_engine::Machine;
use bimetal_engine::action::{Action, BufList, Class, DeviceError};
use bimetal_engine::arena::{Arena, Pool};
use bimetal_engine::unused::Unused;
use bimetal_units::{BLOCK_BYTES, FAST, Generation, Nanos, SLOW};
use std::mem::discriminant;

/// Where something failed, a new image is begun after so long, and each time after twice as long, ...
const AGAIN_NS: u64 = 60 * Nanos::SECOND;
/// ... up to so long.
const AGAIN_AT_MOST_NS: u64 = 3600 * Nanos::SECOND;
/// One part in so many of the ring is for an epoch.
const QUOTA_PART: u64 = 4;
/// How often it is tried to say that there is no image any more, while writes of the slow device wait. From then on they fail, ...
const DROP_TRIES: u32 = 3;
/// ... and it is tried again after so long each time.
const DROP_AGAIN_NS: u64 = Nanos::SECOND;

/// How far an image is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// The first header of this opening is written: until then nothing else is.
    Joining,
    /// The fast device is copied, as it is meanwhile, up to this block.
    Base { next: u64 },
    /// Nothing is to be done yet.
    Resting,
    /// What was frozen goes to the ring.
    Copying,
    /// It is flushed. The slow device may have been already.
    Flushing { slow: bool },
    /// The header is written that makes it count.
    Committing,
    /// What the ring has of the fast device goes to its copy, from this block on.
    Applying { next: u64 },
    /// That is flushed.
    ApplyFlushing,
    /// The header is written that gives the ring's space back.
    Trimming,
    /// The header is written that says that there is no image. A new one is made at once, unless something failed.
    Dropping { off: Option<Failure>, tries: u32 },
    /// There is no image, and it is durable that there is none. A new one is begun at this time, if that is not in vain.
    Off { why: String, again: Option<Nanos> },
    /// There is one that no longer is to count, and it cannot be said: nothing more is written to the slow device, until it can. It is
    /// tried again at this time.
    Stuck { off: Option<Failure>, again: Nanos },
    /// The copy has the place of the fast device: there will be no image until another one has.
    StandIn,
}

/// Why there is no image any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    pub(crate) why: String,
    /// It may pass.
    may_pass: bool,
}

/// The image stays though it is older than it is to be: what it lacks is more than the ring has room for.
pub(crate) struct Aging {
    /// When that was looked at last.
    looked_at: Nanos,
    /// Blocks of the fast device that it lacked then.
    dirty: u64,
}

impl Protection {
    /// Something failed: there is to be no image for a while.
    pub(crate) fn give_up(&mut self, why: String) {
        self.drop_image(Some(Failure { why, may_pass: true }));
    }

    /// There is to be no image until the volume is opened again.
    fn give_up_for_good(&mut self, why: &str) {
        self.drop_image(Some(Failure { why: why.to_owned(), may_pass: false }));
    }

    pub(crate) fn drop_image(&mut self, off: Option<Failure>) {
        match self.phase {
            Phase::Off { .. } => return,
            // There is none to be dropped.
            Phase::StandIn if off.is_some() => return,
            Phase::StandIn => {
                self.phase = Phase::Joining;
                return;
            }
            _ => {}
        }
        if let Phase::Dropping { off: why, .. } | Phase::Stuck { off: why, .. } = &mut self.phase {
            if why.is_none() {
                *why = off;
            }
            return;
        }
        self.copied.clear();
        self.phase = Phase::Dropping { off, tries: 0 };
    }

    /// Whether it is being said that there is no image any more.
    pub(crate) fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Dropping { .. } | Phase::Stuck { .. })
    }

    fn half_full(&self) -> bool {
        self.ring.used() > self.ring.bytes() / 2
    }

    /// Blocks of an epoch that are sure to have room in the ring, beside those of the one before and what is kept of the slow device.
    pub(crate) fn quota(&self) -> u64 {
        self.ring.bytes() / BLOCK / QUOTA_PART
    }

    fn due_at(&self) -> Nanos {
        let interval = u64::from(self.plan.seconds) * Nanos::SECOND / 2;
        if let Some(Aging { looked_at, .. }) = self.aging {
            return Nanos(looked_at.0 + interval);
        }
        let is_much = self.fast.dirty() > self.quota() / 2;
        let now = self.hurry || self.early || self.image.is_none() || self.half_full() || is_much;
        if now { Nanos(0) } else { Nanos(self.frozen_at.0 + interval) }
    }

    pub(crate) fn phase_deadline(&self) -> Option<Nanos> {
        let due = (matches!(self.phase, Phase::Resting) && self.is_changed()).then(|| self.due_at());
        let later = match self.phase {
            Phase::Base { .. } | Phase::Applying { .. } => Some(self.paused_until),
            Phase::Stuck { again, .. } => Some(again),
            Phase::Off { again, .. } => again,
            _ => None,
        };
        [due, later.filter(|at| *at > self.now)].into_iter().flatten().min()
    }

    /// As far as it goes: what comes next may have nothing to wait for, and nobody to call again.
    pub(crate) fn work_on_phase<A: Arena>(&mut self, now: Nanos, arena: &mut A) {
        let mut before = None;
        while before != Some(discriminant(&self.phase)) {
            before = Some(discriminant(&self.phase));
            self.step(now, arena);
        }
    }

    /// Begins an epoch if it is time for one.
    pub(crate) fn begin_if_due<M: Machine>(&mut self, machine: &M, now: Nanos) {
        if matches!(self.phase, Phase::Resting) && self.is_changed() && now >= self.due_at() {
            self.begin_epoch(machine, now);
        }
    }

    fn step<A: Arena>(&mut self, now: Nanos, arena: &mut A) {
        match self.phase {
            Phase::Stuck { again, .. } if now >= again && self.is_idle() && !planted(Bug::StuckForGood) => {
                self.write_header(arena);
            }
            Phase::Off { again: Some(again), .. } if now >= again => self.begin_base(),
            Phase::Base { next } => self.work_on_base(next, now, arena),
            Phase::Copying if self.fast.is_read() && !self.is_copying() || self.ends_early() => {
                self.phase = Phase::Flushing { slow: planted(Bug::CommittedUnflushed) };
                self.fast_flushed = planted(Bug::FastUnflushed);
                self.epoch_end = self.ring.head().seq;
            }
            Phase::Flushing { slow: true } if self.fast_flushed => self.phase = Phase::Committing,
            Phase::ApplyFlushing if planted(Bug::TrimmedUnflushed) => self.phase = Phase::Trimming,
            Phase::Applying { next } => self.work_on_applying(next, now, arena),
            Phase::Joining | Phase::Committing | Phase::Trimming => self.write_header(arena),
            Phase::Dropping { .. } if self.is_idle() || planted(Bug::DroppedLate) => {
                self.write_header(arena);
            }
            _ => {}
        }
    }

    /// Whether a freeze may come before anything ends.
    #[cfg(test)]
    pub(crate) fn may_freeze(&self) -> bool {
        !matches!(self.phase, Phase::Copying | Phase::Flushing { .. } | Phase::Committing | Phase::Off { .. })
    }

    fn ends_early(&self) -> bool {
        matches!(self.phase, Phase::Copying) && planted(Bug::CommittedEarly)
    }

    fn work_on_base<A: Arena>(&mut self, next: u64, now: Nanos, arena: &mut A) {
        let (mut next, most) = (next, self.plan.piece_bytes / BLOCK);
        let mut run = self.fast.next_of_base(next, most);
        while let Some(blocks) = run.clone().filter(|_| self.has_room_for_transfer(now)) {
            let (at, end) = (blocks.start * BLOCK, blocks.end);
            if !self.begin_transfer(blocks, (FAST, at), now, arena) {
                break;
            }
            next = end;
            run = self.fast.next_of_base(next, most);
        }
        self.copy_is_whole = run.is_none() && self.transfers.is_empty();
        self.phase = if self.copy_is_whole { Phase::Resting } else { Phase::Base { next } };
    }

    /// An epoch begins that has room in the ring. Where it has none, space is given back first; the first image has some more copied
    /// for it; and any other stays, and ages.
    fn begin_epoch<M: Machine>(&mut self, machine: &M, now: Nanos) {
        let dirty = self.fast.dirty();
        let has_room = self.ring.has_room(0, self.epoch_bytes(dirty)) || planted(Bug::BegunWithoutRoom);
        if has_room {
            self.freeze(now, machine.unused(SLOW));
        } else if self.image.is_none() && self.base_lacks && !planted(Bug::CopiedForEver) {
            // Copying it again would meet the same.
            self.give_up_for_good("more of the fast device cannot be read than the ring has room for");
        } else if !self.unapplied.is_empty() {
            self.phase = Phase::Applying { next: 0 };
        } else if self.image.is_none() {
            self.begin_base();
        } else {
            // While the fast device is written to faster than the slow one can take it, a new image would not come to its end.
            let is_calm = self.aging.as_ref().is_some_and(|aging| dirty - aging.dirty <= self.quota() / 2);
            self.aging = Some(Aging { looked_at: now, dirty });
            if (is_calm || self.plan.strict) && !planted(Bug::NeverAnew) {
                self.drop_image(None);
            }
        }
    }

    /// From here on nothing changes what the image is to be: what is written over was read before.
    fn freeze(&mut self, now: Nanos, unused: Unused) {
        let number = self.undo.freeze() + 1;
        self.fast.freeze();
        self.undo.begin(number, unused);
        let on_their_way = self.ops.iter().filter(|(_, op)| op.writes_to(SLOW));
        on_their_way.for_each(|(token, op)| self.undo.is_under_way(*token, op.blocks.clone()));
        self.copied.clear();
        self.tracking = true;
        self.slow_written = false;
        self.frozen_at = now;
        self.frozen_from = self.ring.head();
        self.aging = None;
        self.phase = Phase::Copying;
    }

    fn work_on_applying<A: Arena>(&mut self, next: u64, now: Nanos, arena: &mut A) {
        let (mut next, most) = (next, self.plan.piece_bytes / BLOCK);
        while let Some(block) = self.apply_alone.front().copied().filter(|_| self.has_room_for_transfer(now))
        {
            let at = self.unapplied.parts(&(block..block + 1)).into_iter().find_map(|(_, held)| held?.at());
            if at.is_some_and(|at| !self.begin_transfer(block..block + 1, (SLOW, at), now, arena)) {
                return;
            }
            self.apply_alone.pop_front();
        }
        while self.has_room_for_transfer(now) {
            let rest = self.unapplied.parts(&(next..self.fast.blocks()));
            let held = rest.into_iter().find_map(|(range, held)| Some((range, held?.at()?)));
            let Some((range, at)) = held else {
                next = self.fast.blocks();
                break;
            };
            let end = range.end.min(range.start + most);
            if !self.begin_transfer(range.start..end, (SLOW, at), now, arena) {
                break;
            }
            next = end;
        }
        let is_done = next == self.fast.blocks() && self.transfers.is_empty() && self.apply_alone.is_empty();
        self.phase = if is_done { Phase::ApplyFlushing } else { Phase::Applying { next } };
    }

    /// What an epoch of so many blocks takes of the ring, and more: groups of few ranges have more of headers, and the end of the ring
    /// may be too short for a group.
    pub(crate) fn epoch_bytes(&self, blocks: u64) -> u64 {
        if blocks == 0 { 0 } else { (blocks + blocks / 4) * BLOCK + self.most_of_group() }
    }

    /// What is to remain free of the ring beside a group: the epoch has what it needs, and the next one, as they give the ring's
    /// space back.
    pub(crate) fn spare(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Redo => 0,
            Kind::Undo if self.aging.is_some() || planted(Bug::RoomNotKept) => 0,
            Kind::Undo => self.rest_of_epoch() + self.epoch_bytes(self.fast.dirty().min(self.quota())),
        }
    }

    /// What the epoch that is being copied needs of the ring still.
    pub(crate) fn rest_of_epoch(&self) -> u64 {
        let blocks = match self.phase {
            Phase::Copying => self.fast.unread() + self.pending_redo().div_ceil(BLOCK),
            _ => 0,
        };
        self.epoch_bytes(blocks)
    }

    /// A group has no room.
    pub(crate) fn ring_is_full(&mut self, kind: Kind) {
        match self.phase {
            // It has when the epoch counts.
            Phase::Copying if kind == Kind::Undo => {}
            // What has room already would be for nothing: who waits for it goes first.
            Phase::Resting if self.undo.is_awaited() => {}
            Phase::Resting if self.aging.is_some() => self.drop_image(None),
            Phase::Copying => {
                self.fast.unfreeze();
                self.copied.clear();
                self.image_lost.iter().for_each(|range| self.fast.lost.insert(range));
                self.slow_written = true;
                if self.unapplied.is_empty() {
                    self.drop_image(None);
                } else {
                    self.phase = Phase::Applying { next: 0 };
                }
            }
            Phase::Resting if !self.unapplied.is_empty() => self.phase = Phase::Applying { next: 0 },
            Phase::Resting if self.image.is_some() => {
                self.slow_written = true;
                self.early = true;
            }
            _ => {}
        }
    }

    /// Begins a flush of the slow device, if one is waited for.
    pub(crate) fn work_on_flush(&mut self) {
        if matches!(self.phase, Phase::Flushing { .. }) && !self.fast_flushed && !self.fast_flushes {
            self.fast_flushes = true;
            self.ask(Own::Flush(FAST), |token| Action::Flush { device: FAST, token });
        }
        if self.flush.is_some() {
            return;
        }
        let below = match planted(Bug::GroupsOutOfOrder) {
            true => self.ring.head().seq,
            false => self.ring.written_below(),
        };
        // Who reads the ring after a crash comes no further than a group that is not there: what is before the epoch's last one counts.
        let is_in = below >= self.epoch_end || planted(Bug::CommittedOverGap);
        let is_in = is_in && matches!(self.phase, Phase::Flushing { slow: false });
        let for_phase = is_in || matches!(self.phase, Phase::ApplyFlushing);
        let wants = self.undo.wants_flush(below) && !self.is_ending();
        if for_phase || wants {
            self.flush = Some(FlushInFlight { below, for_phase });
            self.undo.flush_begins();
            self.ask(Own::Flush(SLOW), |token| Action::Flush { device: SLOW, token });
        }
    }

    /// A flush of the fast device has ended. One that a phase before asked for began before what this one has read.
    pub(crate) fn fast_is_flushed(&mut self) {
        self.fast_flushes = false;
        self.fast_flushed = matches!(self.phase, Phase::Flushing { .. });
    }

    pub(crate) fn flushed(&mut self, result: Result<(), DeviceError>) {
        let Some(FlushInFlight { below, for_phase }) = self.flush.take() else { return };
        if result.is_err() {
            return;
        }
        self.ring.flushed(below);
        let ring = &self.ring;
        self.undo.flushed(|seq| ring.is_durable(seq));
        match self.phase {
            Phase::Flushing { .. } if for_phase => self.phase = Phase::Flushing { slow: true },
            Phase::ApplyFlushing if for_phase => self.phase = Phase::Trimming,
            _ => {}
        }
    }

    /// What the next header says of the image, and from where on the ring is needed.
    fn next_header(&self) -> Header {
        let plan = &self.plan;
        let (image, tail) = match self.phase {
            Phase::Committing => {
                let frozen_unix_ms = self.unix_ms(self.frozen_at);
                let image = Image { number: self.undo.freeze(), frozen_unix_ms };
                (Some(image), self.unapplied_from.unwrap_or(self.frozen_from))
            }
            Phase::Trimming if planted(Bug::TrimmedFar) => (self.image, self.ring.head()),
            Phase::Trimming => (self.image, self.image_from),
            Phase::Dropping { .. } | Phase::Stuck { .. } => (None, self.ring.head()),
            _ => (self.image, self.ring.tail()),
        };
        let lost = match self.phase {
            Phase::Committing => self.lost(),
            Phase::Dropping { .. } | Phase::Stuck { .. } => Vec::new(),
            _ => self.image_lost.iter().collect(),
        };
        Header {
            volume: plan.volume,
            devices: plan.devices,
            layout: plan.layout,
            number: self.header_number + 1,
            session: self.session,
            ring_id: self.ring_id,
            covers: Generation(plan.generation.0 + 1),
            seconds: plan.seconds,
            strict: plan.strict,
            image,
            tail,
            head: self.ring.head(),
            durable: self.ring.claims(),
            lost,
            stand_in: None,
        }
    }

    fn write_header<A: Arena>(&mut self, arena: &mut A) {
        if self.header.is_some() {
            return;
        }
        let header = self.next_header();
        if header.lost.len() > MOST_LOST {
            match self.phase {
                Phase::Trimming => self.give_up("too much of what was to go to the copy has gone bad".into()),
                _ => self.give_up_for_good("too much of the fast device cannot be read"),
            }
            return;
        }
        let Some(buf) = arena.alloc(Pool::CopyMeta, BLOCK_BYTES) else { return };
        self.header_number += 1;
        header.encode(arena.bytes_mut(buf));
        let offset = self.plan.layout.headers()[(header.number % 2) as usize];
        self.header = Some((buf, header));
        self.ask(Own::Header, |token| Action::Write {
            device: SLOW,
            offset,
            bufs: BufList::from_elem(buf, 1),
            fua: true,
            token,
            class: Class::Background,
        });
    }

    pub(crate) fn header_written<A: Arena>(&mut self, result: Result<(), DeviceError>, arena: &mut A) {
        let Some((buf, header)) = self.header.take() else { return };
        arena.free(buf);
        match (&mut self.phase, result) {
            (Phase::Dropping { tries, off }, Err(_)) => {
                *tries += 1;
                if *tries >= DROP_TRIES {
                    self.phase = Phase::Stuck { off: off.take(), again: self.now.after(DROP_AGAIN_NS) };
                }
            }
            (Phase::Stuck { again, .. }, Err(_)) => *again = self.now.after(DROP_AGAIN_NS),
            (Phase::Dropping { off, .. } | Phase::Stuck { off, .. }, Ok(())) if header.image.is_none() => {
                let off = off.take();
                self.has_dropped(off);
            }
            // It was on its way when the image was dropped.
            (Phase::Dropping { .. } | Phase::Stuck { .. }, Ok(())) => {}
            (_, Err(error)) => self.give_up(format!("the slow device: {error}")),
            (Phase::Joining, Ok(())) if self.image.is_some() => self.phase = Phase::Resting,
            (Phase::Joining, Ok(())) => self.begin_base(),
            (Phase::Committing, Ok(())) => self.has_committed(&header),
            (Phase::Trimming, Ok(())) => {
                self.ring.trim(header.tail);
                self.unapplied.clear();
                self.unapplied_from = None;
                self.phase = Phase::Resting;
            }
            (_, Ok(())) => {}
        }
    }

    /// What the copy has of the last image is not copied again.
    fn begin_base(&mut self) {
        let is_whole = std::mem::take(&mut self.copy_is_whole);
        self.fast.begin_base(Some(&self.unapplied).filter(|_| is_whole));
        self.base_lacks = false;
        self.phase = Phase::Base { next: 0 };
    }

    fn has_committed(&mut self, header: &Header) {
        let copied = std::mem::take(&mut self.copied);
        if !copied.is_empty() && self.unapplied_from.is_none() {
            self.unapplied_from = Some(self.frozen_from);
        }
        copied.iter().for_each(|(range, held)| self.unapplied.insert(range, held));
        self.image = header.image;
        self.failures = 0;
        self.undo.committed();
        self.image_from = self.frozen_from;
        self.image_lost = Ranges::of(&header.lost);
        self.early = false;
        let ops = &self.ops;
        self.fast.committed(|range| Self::is_busy(ops, FAST, range));
        self.ring.trim(header.tail);
        let is_short = self.half_full() || !self.ring.has_room(0, self.epoch_bytes(self.quota()));
        let applies = is_short && !self.unapplied.is_empty();
        self.phase = if applies { Phase::Applying { next: 0 } } else { Phase::Resting };
    }

    /// How long a new image waits where something fails.
    fn wait_ns(&self) -> u64 {
        AGAIN_NS.checked_shl(self.failures).unwrap_or(AGAIN_AT_MOST_NS).min(AGAIN_AT_MOST_NS)
    }

    /// In so many milliseconds a new image is begun after this, once it is said that there is none.
    pub(crate) fn again_ms(&self, off: Option<&Failure>) -> Option<u64> {
        off.map_or(Some(0), |failure| failure.may_pass.then(|| self.wait_ns() / Nanos::MS))
    }

    fn has_dropped(&mut self, off: Option<Failure>) {
        self.tracking = false;
        self.image = None;
        self.image_lost.clear();
        self.undo.forget();
        self.aging = None;
        self.ring.clear();
        self.slow_written = true;
        match off {
            Some(Failure { why, may_pass }) => {
                let wait_ns = self.wait_ns();
                self.failures = self.failures.saturating_add(1);
                self.copy_is_whole = false;
                self.phase = Phase::Off { why, again: may_pass.then(|| self.now.after(wait_ns)) };
            }
            None => self.begin_base(),
        }
        self.unapplied.clear();
        self.unapplied_from = None;
    }
}
