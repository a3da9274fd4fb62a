//! The engine: a single owner of the volume's state, without threads, clock or I/O.
//!
//! The loop of [`Machine::next_action`]: hand out what is queued; when the queue is empty, let each
//! kind of operation take its next steps (`pump`), and hand out what that queued.

use crate::api::action::{
    Action, Class, DeviceError, MAX_PAYLOAD_BYTES, Machine, Request, RequestError, RequestKind, Token,
};
use crate::api::coverage::Stage;
use crate::api::options::{Event, Level, Tuning};
use crate::api::told::Told;
use crate::api::unused::Unused;
use crate::base::arena::{Arena, Buf};
use crate::io::flush::Waiter;
use crate::io::issue::{Command, Io};
use crate::io::tokens::Owner;
use crate::life::health::Life;
use crate::mover::moves::Mover;
use crate::path::checkpoint::Checkpoint;
use crate::path::commit::Commit;
use crate::path::front::Front;
use crate::path::log::Log;
use crate::path::marks::Marks;
use crate::placement::Placement;
use crate::volume::slots::SlotBytes;
use crate::volume::space::Space;
use crate::volume::state::State;
use bimetal_units::*;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What the next pump should look at; set where work arises, cleared where it is done.
#[derive(Default, Debug, Serialize, Deserialize)]
pub struct Wanted {
    /// A commit without a client's flush.
    pub commit: bool,
    /// A checkpoint.
    pub checkpoint: bool,
    /// A checkpoint that folds the recent checksums into their pages.
    pub fold: bool,
    /// Something was freed: blocked pieces may go on.
    pub wake: bool,
    /// Slots on their way to being free may go on.
    pub release: bool,
    /// A call ended at its limit while requests could still be cut.
    pub cut: bool,
}

/// A volume at work.
///
/// It can be serialised between two calls, and goes on as if nothing had been when what was read again is given memory
/// ([`Engine::revive`]): whoever records what an engine is told begins with that.
#[derive(Serialize, Deserialize)]
#[serde(bound(serialize = "", deserialize = "A: Default"))]
pub struct Engine<A> {
    pub(crate) tuning: Tuning,
    /// Commands and memory.
    pub(crate) io: Io<A>,
    /// What is recorded: where everything is, as recovery would find it.
    pub(crate) state: State,
    /// What is in use beside that, in this opening.
    pub(crate) space: Space,
    /// Requests, and pieces of them.
    pub(crate) front: Front,
    pub(crate) log: Log,
    pub(crate) commit: Commit,
    pub(crate) checkpoint: Checkpoint,
    /// What the slow device says about itself, where it does.
    pub(crate) marks: Option<Marks>,
    pub(crate) mover: Mover,
    pub(crate) placement: Placement,
    /// Whether it serves, and until when.
    pub(crate) life: Life,
    /// What is told to whoever asks.
    pub(crate) told: Told,
    pub(crate) wanted: Wanted,
}

impl Engine<()> {
    /// Gives memory to an engine that was read from somewhere: that of the one that was written, as it was then.
    pub fn revive<A: Arena>(self, arena: A) -> Engine<A> {
        Engine {
            tuning: self.tuning,
            io: self.io.revive(arena),
            state: self.state,
            space: self.space,
            front: self.front,
            log: self.log,
            commit: self.commit,
            checkpoint: self.checkpoint,
            marks: self.marks,
            mover: self.mover,
            placement: self.placement,
            life: self.life,
            told: self.told,
            wanted: self.wanted,
        }
    }
}

impl<A: Arena> Engine<A> {
    /// Whether another request may be handed in; when not, wait for replies.
    pub fn has_room(&self) -> bool {
        self.front.has_room()
    }

    /// A client's request. Only while [`Engine::has_room`].
    pub fn on_request(&mut self, now: Nanos, request: Request) {
        self.io.tick(now);
        self.front.last_client = self.io.now;
        self.mover.planner.disturbed();
        let volume = self.size_bytes();
        let end = request.offset.checked_add(request.len);
        let payload = matches!(request.kind, RequestKind::Read | RequestKind::Write { .. });
        let changes = !matches!(request.kind, RequestKind::Read);
        if changes {
            self.front.last_change = self.io.now;
        }
        let answer = if end.is_none_or(|end| end > volume) || payload && request.len > MAX_PAYLOAD_BYTES {
            Some(Err(RequestError::Invalid))
        } else if self.life.shutdown.began() {
            Some(Err(RequestError::ShuttingDown))
        } else {
            self.refuse_change(request.kind)
        };
        match answer {
            Some(answer) => self.reply(request.id, answer, ServedBy::default()),
            None => self.admit(request),
        }
    }

    /// Size that clients see, bytes: a multiple of the chunk size.
    pub fn size_bytes(&self) -> u64 {
        self.state.geo.volume_bytes()
    }

    /// What is worth telling the user since the last call (a bounded list).
    pub fn take_events(&mut self) -> Vec<Event> {
        self.told.take_events()
    }

    /// Takes no more changes until the volume is opened again, and says why: what is written would not be found.
    pub fn refuse_changes(&mut self, why: String) {
        match self.life.is_read_only() {
            true => self.told.event(Level::Error, why, None),
            false => self.fail_volume(why, None),
        }
    }

    /// From now on a write is answered when whoever opens the volume next finds it, should this process be killed: for a
    /// client that goes on after that, and never asks again whether what was answered is there. A power cut may still
    /// take what was not flushed. Writes that land, or go in place, are so anyway; the others wait for a commit.
    pub fn outlive_kills(&mut self) {
        self.front.outlives_kills = true;
    }

    /// Gives the arena back.
    pub fn into_arena(mut self) -> A {
        self.forget_all_begun();
        if let Some(spare) = self.mover.spare {
            self.io.arena.free(spare);
        }
        self.io.arena
    }

    /// A background write of metadata to the fast device.
    pub(crate) fn write_metadata(&mut self, owner: Owner, offset: u64, buf: Buf) {
        let command = Command { device: FAST, offset, owner, class: Class::Background };
        self.io.write(command, buf);
    }

    pub(crate) fn fail_volume(&mut self, message: String, error: Option<DeviceError>) {
        self.told.event(Level::Error, message, error);
        self.life.fail(error);
        self.fail_waiting_writes();
    }

    /// Lets each kind of operation take its next steps, again while that moved something inside.
    fn pump(&mut self) {
        loop {
            let before = self.progress();
            if std::mem::take(&mut self.wanted.release) {
                self.release_slots();
            }
            self.mind_margin();
            self.pump_requests();
            self.pump_marks();
            self.pump_commit();
            self.pump_log();
            self.pump_moves();
            self.pump_probes();
            self.pump_scrub();
            self.pump_checkpoint();
            self.pump_pins();
            self.pump_shutdown();
            self.pump_flushes();
            if !self.io.is_drained() || self.progress() == before {
                break;
            }
        }
    }

    /// Changes whenever an operation took a step that handed nothing out.
    fn progress(&self) -> impl PartialEq + use<A> {
        (
            (self.log.appended(), self.log.current(), self.log.durable()),
            (self.io.flushed_already.len(), self.front.requests.len()),
            (self.state.zone.room_blocks(), self.state.zone.free_segments()),
            (
                self.commit.coverage(),
                self.commit.is_busy(),
                self.checkpoint.coverage(),
                self.life.shutdown.step(),
            ),
            // Clients have what is left of the zone once nothing is kept for what will be freed.
            (self.placement.pins.step(), self.marks.as_ref().map(Marks::step), self.mover.barren.is_some()),
            (
                self.mover.steps(),
                self.front.granted.len(),
                self.wanted.wake,
                self.wanted.commit,
                self.wanted.checkpoint,
            ),
        )
    }

    /// Calls `f` with the stage of each operation in flight.
    pub fn stages_in_flight(&self, f: &mut dyn FnMut(Stage)) {
        self.front.pieces.iter().for_each(|(_, p)| p.stage.into_iter().for_each(&mut *f));
        self.commit.coverage().into_iter().for_each(&mut *f);
        self.mover.coverage(&mut *f);
        self.copies_coverage(&mut *f);
        self.checkpoint.coverage().into_iter().for_each(&mut *f);
        self.marks.as_ref().and_then(Marks::coverage).into_iter().for_each(&mut *f);
        self.placement.pins.coverage().into_iter().for_each(&mut *f);
        self.mover.scrub.coverage(&mut *f);
        if self.log.sealing > 0 {
            f(Stage::SealIndex);
        }
        self.life.shutdown.coverage().into_iter().for_each(&mut *f);
    }

    /// Whether something waits for this token.
    pub fn awaits(&self, token: Token) -> bool {
        self.io.tokens.owner(token).is_some()
    }

    /// The stage of the operation that waits for this token.
    pub fn stage_of(&self, token: Token) -> Option<Stage> {
        match self.io.tokens.owner(token)? {
            Owner::Piece(p) => self.front.pieces.get(p)?.stage,
            Owner::Group(seq) => self.group_coverage(seq),
            Owner::Index(_) => Some(Stage::SealIndex),
            Owner::Flush { tier, .. } => match self.io.flushers[tier].first_waiter()? {
                Waiter::Commit => self.commit.coverage(),
                Waiter::Batch(batch) => self.mover.stage(batch),
                Waiter::Checkpoint => self.checkpoint.coverage(),
                Waiter::Pins => self.placement.pins.coverage(),
                Waiter::Marks => self.marks.as_ref()?.coverage(),
                Waiter::Shutdown => Some(Stage::Shutdown),
            },
            Owner::Batch { batch, .. } => self.mover.stage(batch),
            Owner::Checkpoint(_) => self.checkpoint.coverage(),
            Owner::SumPage(page) => self.sum_load_coverage(page),
            Owner::Copy(fill) => self.copy_coverage(fill),
            Owner::Trim(_) | Owner::Segment | Owner::Probe(_) => None,
            Owner::Pins => self.placement.pins.coverage(),
            Owner::Marks(_) => self.marks.as_ref()?.coverage(),
            Owner::Scrub => Some(Stage::ScrubRead),
            Owner::ScrubPage => Some(Stage::ScrubKeep),
            Owner::Shutdown => Some(Stage::Shutdown),
        }
    }
}

impl<A: Arena> Machine for Engine<A> {
    type Arena = A;

    fn unused(&self, device: Tier) -> Unused {
        let (geo, slots) = (&self.state.geo, &self.space.slots[device]);
        // Areas of the fast tier are the log's now and then.
        if device == FAST {
            return Unused::default();
        }
        let first_block = geo.slot_at(Home { tier: device, slot: Slot(0) }) / u64::from(BLOCK_BYTES);
        slots.unused_from(first_block, u64::from(geo.blocks_per_chunk()))
    }

    fn next_needed(&self, device: Tier, range: Range<u64>, most_bytes: u64) -> Option<Range<u64>> {
        let geo = &self.state.geo;
        let first = geo.slot_at(Home { tier: device, slot: Slot(0) });
        let slots = SlotBytes { first, each: u64::from(geo.chunk_bytes) };
        self.space.slots[device].next_needed(slots, range, most_bytes)
    }

    fn is_read_elsewhere(&mut self, device: Tier, is: bool) {
        self.io.read_elsewhere[device] = is;
    }

    fn next_action(&mut self, now: Nanos) -> Option<Action> {
        self.io.tick(now);
        if self.io.is_drained() {
            self.mind_stall();
            self.pump();
        }
        self.io.hand_out()
    }

    fn on_completion(&mut self, now: Nanos, token: Token, result: Result<(), DeviceError>) {
        self.io.tick(now);
        let (device, owner, took_ns) = self.io.tokens.redeem(token, self.io.now);
        if result.is_ok() {
            self.learn_latency(device, owner, took_ns);
        }
        self.io.tokens.note_late(device, result.err().is_some_and(DeviceError::is_late));
        let away = result.err().filter(|error| error.is_away());
        if away.is_some() {
            self.device_was_away(device);
        }
        match owner {
            Owner::Piece(piece) => self.piece_io_done(piece, result),
            Owner::Group(seq) => self.group_done(seq, result),
            Owner::Index(place) => self.index_done(place),
            Owner::Flush { tier, .. } => self.flush_done(tier, result),
            Owner::Batch { batch, io } => self.batch_io_done(batch, io, result),
            Owner::Checkpoint(io) => self.checkpoint_io_done(io, result),
            Owner::SumPage(page) => self.sum_page_loaded(page, result),
            Owner::Copy(fill) => self.copy_io_done(fill, result),
            Owner::Trim(home) => self.on_trimmed(home),
            Owner::Segment => self.on_segment_trimmed(),
            Owner::Pins => self.pins_written(result),
            Owner::Marks(page) => self.marks_io_done(page, result),
            Owner::Probe(tier) => self.probe_done(tier, result),
            Owner::Scrub => self.scrub_io_done(result),
            Owner::ScrubPage => self.scrub_kept(result),
            Owner::Shutdown => self.shutdown_io_done(result),
        }
        if let Some(error) = away {
            self.tell_of_absence(device, error);
        }
    }

    fn deadline(&self) -> Option<Nanos> {
        // Work that was cut short goes on at once, as soon as others had their turn.
        let more = (self.wanted.release || self.wanted.cut || self.tail_goes_on()).then_some(self.io.now);
        let times = [
            more,
            self.commit_deadline(),
            self.move_deadline(),
            self.checkpoint.deadline(),
            self.regions_deadline(),
            self.log.deadline(),
            self.admission_deadline(),
            self.claim_deadline(),
            self.stall_deadline(),
            self.scrub_deadline(),
            self.marks_deadline(),
        ];
        times.into_iter().flatten().min()
    }

    fn on_timer(&mut self, now: Nanos) {
        self.io.tick(now);
        self.commit_timer();
    }

    fn with_arena<R>(&mut self, f: impl FnOnce(&mut A) -> R) -> R {
        f(&mut self.io.arena)
    }
}
