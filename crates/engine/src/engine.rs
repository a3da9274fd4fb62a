//! The engine: a single owner of the volume's state, without threads, clock or I/O.
//!
//! The loop of [`Machine::next_action`]: hand out what is queued; when the queue is empty, let each
//! kind of operation take its next steps (`pump`), and hand out what that queued.

use crate::api::action::{
    Action, BufList, Class, DeviceError, Machine, Request, RequestError, RequestKind, Token,
};
use crate::api::action::{MAX_PAYLOAD_BYTES, MAX_REQUESTS};
use crate::api::coverage::Stage;
use crate::api::options::{Event, Level, Tuning};
use crate::api::stall::Stall;
use crate::api::stats::Stats;
use crate::api::why::Decisions;
use crate::base::arena::{Arena, Buf};
use crate::base::slab::Slab;
use crate::format::superblock::Superblock;
use crate::io::flush::{Flusher, Waiter};
use crate::io::probe::Probe;
use crate::io::sumload::SumLoads;
use crate::io::tokens::Tokens;
use crate::life::shutdown::Shutdown;
use crate::mover::copies::Copies;
use crate::mover::moves::Mover;
use crate::path::checkpoint::Checkpoint;
use crate::path::commit::Commit;
use crate::path::gate::Gate;
use crate::path::locks::Locks;
use crate::path::log::Log;
use crate::path::piece::Piece;
use crate::path::requests::{InRequest, MAX_PIECES};
use crate::placement::admission::Kept;
use crate::placement::pins::Pins;
use crate::placement::policy::{Benefit, Policy};
use crate::placement::streams::{Neighbours, Streams};
use crate::placement::wear::Wear;
use crate::volume::pending::Pending;
use crate::volume::shadows::Shadows;
use crate::volume::slots::Slots;
use crate::volume::state::State;
use bimetal_units::*;
use std::collections::VecDeque;

/// Who waits for a device's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// A piece of a request.
    Piece(u32),
    /// A log group, by its number.
    Group(Seq),
    /// The index of a segment.
    Index(crate::volume::zone::Place),
    /// A flush.
    Flush {
        /// Of which device.
        tier: Tier,
        /// Whether a commit waits for it.
        for_commit: bool,
    },
    /// An I/O of a batch of moves.
    Batch {
        /// The batch.
        batch: u32,
        /// Which of its I/Os.
        io: u32,
    },
    /// A write of the checkpoint.
    Checkpoint(u32),
    /// A page of checksums.
    SumPage(u32),
    /// A copy being made.
    Copy(u32),
    /// A slot whose space is given back.
    Trim(Home),
    /// A free segment that is discarded.
    Segment,
    /// The list of pins.
    Pins,
    /// A read for no other reason than to hear whether this device reads at all.
    Probe(Tier),
    /// A superblock.
    Shutdown,
}

impl Owner {
    /// Whether a client's request is behind it. Pages of checksums count as read for clients: moves and checkpoints
    /// read few, and other things with them.
    pub(crate) fn is_clients(self) -> bool {
        match self {
            Owner::Piece(_) | Owner::Group(_) | Owner::SumPage(_) | Owner::Copy(_) | Owner::Trim(_) => true,
            Owner::Flush { for_commit, .. } => for_commit,
            Owner::Index(_)
            | Owner::Segment
            | Owner::Batch { .. }
            | Owner::Checkpoint(_)
            | Owner::Pins
            | Owner::Probe(_)
            | Owner::Shutdown => false,
        }
    }
}

/// What the next pump should look at; set where work arises, cleared where it is done.
#[derive(Default, Debug)]
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
pub struct Engine<A> {
    pub(crate) arena: A,
    pub(crate) now: Nanos,
    pub(crate) names: [String; 2],
    pub(crate) superblock: Superblock,
    pub(crate) tuning: Tuning,
    pub(crate) state: State,
    pub(crate) slots: [Slots; 2],
    pub(crate) gate: Gate,
    pub(crate) out: VecDeque<Action>,
    pub(crate) tokens: Tokens,
    pub(crate) flushers: [Flusher; 2],
    pub(crate) flushed_already: VecDeque<(Waiter, bool)>,
    pub(crate) log: Log,
    pub(crate) requests: Slab<InRequest>,
    pub(crate) request_queue: VecDeque<u32>,
    pub(crate) pieces: Slab<Piece>,
    /// Pieces in flight that may take a slot.
    pub(crate) slot_takers: u32,
    pub(crate) blocked: VecDeque<u32>,
    pub(crate) locks: Locks,
    pub(crate) pending: Pending,
    pub(crate) commit: Commit,
    pub(crate) mover: Mover,
    pub(crate) policy: Box<dyn Policy>,
    pub(crate) pins: Pins,
    /// What the mover decided lately.
    pub(crate) decisions: Decisions,
    /// Of reads, of writes.
    pub(crate) streams: [Streams; 2],
    /// Whether clients read them on the slow tier.
    pub(crate) neighbours: Neighbours,
    pub(crate) sum_loads: SumLoads,
    pub(crate) copies: Copies,
    pub(crate) shadows: Shadows,
    pub(crate) wear: Wear,
    pub(crate) benefit: Benefit,
    pub(crate) kept: Kept,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) shutdown: Shutdown,
    pub(crate) wanted: Wanted,
    pub(crate) stats: Stats,
    pub(crate) events: VecDeque<Event>,
    pub(crate) read_only: bool,
    /// The device error that made the volume read-only.
    pub(crate) failure: Option<DeviceError>,
    /// A flush of the fast device failed: slots that no record shows may hold what was there before.
    pub(crate) unshown_lost: bool,
    /// A buffer for a chunk and what landed of it, for the batch that empties the zone: those who wait for the zone may
    /// hold all others.
    pub(crate) spare: Option<Buf>,
    pub(crate) last_client: Nanos,
    /// When a client last asked for something that is not a read.
    pub(crate) last_change: Nanos,
    /// How often each device has read something that was what it should be.
    pub(crate) good_reads: [u64; 2],
    pub(crate) probes: [Probe; 2],
    pub(crate) leaving_since: Option<Nanos>,
    pub(crate) granted: Vec<u32>,
    pub(crate) index_bufs: Vec<(crate::volume::zone::Place, crate::base::arena::Buf)>,
    pub(crate) home_writers: crate::path::write::HomeWriters,
    pub(crate) stall: Stall,
}

/// Events kept until they are taken; older ones give way.
const MAX_EVENTS: usize = 256;

impl<A: Arena> Engine<A> {
    /// Whether another request may be handed in; when not, wait for replies.
    pub fn has_room(&self) -> bool {
        self.requests.len() < MAX_REQUESTS
    }

    /// A client's request. Only while [`Engine::has_room`].
    pub fn on_request(&mut self, now: Nanos, request: Request) {
        self.tick(now);
        self.last_client = self.now;
        self.mover.planner.disturbed();
        let volume = self.size_bytes();
        let end = request.offset.checked_add(request.len);
        let payload = matches!(request.kind, RequestKind::Read | RequestKind::Write { .. });
        let changes = !matches!(request.kind, RequestKind::Read);
        if changes {
            self.last_change = self.now;
        }
        let refused = if end.is_none_or(|end| end > volume) || payload && request.len > MAX_PAYLOAD_BYTES {
            Some(RequestError::Invalid)
        } else if self.shutdown.began() {
            Some(RequestError::ShuttingDown)
        } else if changes && self.read_only {
            Some(RequestError::ReadOnly)
        } else {
            None
        };
        match refused {
            Some(error) => self.reply(request.id, Err(error), ServedBy::default()),
            None => self.admit(request),
        }
    }

    /// Size that clients see, bytes: a multiple of the chunk size.
    pub fn size_bytes(&self) -> u64 {
        self.state.geo.volume_bytes()
    }

    /// What is worth telling the user since the last call (a bounded list).
    pub fn take_events(&mut self) -> Vec<Event> {
        self.events.drain(..).collect()
    }

    /// Takes no more changes until the volume is opened again, and says why: what is written would not be found.
    pub fn refuse_changes(&mut self, why: String) {
        match self.read_only {
            true => self.event(Level::Error, why, None),
            false => self.fail_volume(why, None),
        }
    }

    /// Gives the arena back.
    pub fn into_arena(mut self) -> A {
        if let Some(spare) = self.spare {
            self.arena.free(spare);
        }
        self.arena
    }

    pub(crate) fn event(&mut self, level: Level, message: String, error: Option<DeviceError>) {
        if self.events.len() == MAX_EVENTS {
            // What is lost is not pushed out by a flood of failures.
            let place = self.events.iter().position(|e| e.level < Level::Error).unwrap_or(0);
            self.events.remove(place);
        }
        self.events.push_back(Event { level, message, error });
    }

    /// Time never runs backwards for the engine.
    fn tick(&mut self, now: Nanos) {
        self.now = self.now.max(now);
    }

    /// A background write of metadata to the fast device.
    pub(crate) fn write_metadata(&mut self, owner: Owner, offset: u64, buf: Buf) {
        self.stats.device_written[0] += u64::from(buf.len);
        let token = self.tokens.issue(FAST, owner, self.now);
        let bufs = BufList::from_elem(buf, 1);
        let class = Class::Background;
        self.out.push_back(Action::Write { device: FAST, offset, bufs, fua: false, token, class });
    }

    pub(crate) fn fail_volume(&mut self, message: String, error: Option<DeviceError>) {
        self.event(Level::Error, message, error);
        self.read_only = true;
        self.failure = self.failure.or(error);
        self.fail_waiting_writes();
    }

    /// What those are told who waited when the volume failed: this, unless space is what was missing.
    pub(crate) fn failed_with(&self, otherwise: RequestError) -> RequestError {
        let failure = self.failure.map(RequestError::from);
        failure.filter(|error| *error == RequestError::NoSpace).unwrap_or(otherwise)
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
            self.pump_commit();
            self.pump_log();
            self.pump_moves();
            self.pump_probes();
            self.pump_checkpoint();
            self.pump_pins();
            self.pump_shutdown();
            self.pump_flushes();
            if !self.out.is_empty() || self.progress() == before {
                break;
            }
        }
    }

    /// Changes whenever an operation took a step that handed nothing out.
    fn progress(&self) -> impl PartialEq + use<A> {
        (
            (self.log.appended(), self.log.current(), self.log.durable),
            (self.flushed_already.len(), self.requests.len()),
            (self.state.zone.room_blocks(), self.state.zone.free_segments()),
            (self.commit.coverage(), self.commit.is_busy(), self.checkpoint.coverage(), self.shutdown.step()),
            self.pins.step(),
            (
                self.mover.steps(),
                self.granted.len(),
                self.wanted.wake,
                self.wanted.commit,
                self.wanted.checkpoint,
            ),
        )
    }

    /// Calls `f` with the stage of each operation in flight.
    pub fn stages_in_flight(&self, f: &mut dyn FnMut(Stage)) {
        self.pieces.iter().for_each(|(_, p)| p.stage.into_iter().for_each(&mut *f));
        self.commit.coverage().into_iter().for_each(&mut *f);
        self.mover.coverage(&mut *f);
        self.copies_coverage(&mut *f);
        self.checkpoint.coverage().into_iter().for_each(&mut *f);
        self.pins.coverage().into_iter().for_each(&mut *f);
        if self.log.sealing > 0 {
            f(Stage::SealIndex);
        }
        self.shutdown.coverage().into_iter().for_each(&mut *f);
    }

    /// The stage of the operation that waits for this token.
    pub fn stage_of(&self, token: Token) -> Option<Stage> {
        match self.tokens.owner(token)? {
            Owner::Piece(p) => self.pieces.get(p)?.stage,
            Owner::Group(seq) => self.group_coverage(seq),
            Owner::Index(_) => Some(Stage::SealIndex),
            Owner::Flush { tier, .. } => match self.flush_waiter(tier)? {
                Waiter::Commit => self.commit.coverage(),
                Waiter::Batch(batch) => self.mover.stage(batch),
                Waiter::Checkpoint => self.checkpoint.coverage(),
                Waiter::Pins => self.pins.coverage(),
                Waiter::Shutdown => Some(Stage::Shutdown),
            },
            Owner::Batch { batch, .. } => self.mover.stage(batch),
            Owner::Checkpoint(_) => self.checkpoint.coverage(),
            Owner::SumPage(page) => self.sum_load_coverage(page),
            Owner::Copy(fill) => self.copy_coverage(fill),
            Owner::Trim(_) | Owner::Segment | Owner::Probe(_) => None,
            Owner::Pins => self.pins.coverage(),
            Owner::Shutdown => Some(Stage::Shutdown),
        }
    }
}

impl<A: Arena> Machine for Engine<A> {
    type Arena = A;

    fn next_action(&mut self, now: Nanos) -> Option<Action> {
        self.tick(now);
        if self.out.is_empty() {
            self.mind_stall();
            self.pump();
        }
        self.out.pop_front()
    }

    fn on_completion(&mut self, now: Nanos, token: Token, result: Result<(), DeviceError>) {
        self.tick(now);
        let (device, owner, took_ns) = self.tokens.redeem(token, self.now);
        if result.is_ok() {
            self.learn_latency(device, owner, took_ns);
        }
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
            Owner::Probe(tier) => self.probe_done(tier, result),
            Owner::Shutdown => self.shutdown_io_done(),
        }
        if let Some(error) = away {
            self.tell_of_absence(device, error);
        }
    }

    fn deadline(&self) -> Option<Nanos> {
        // Work that was cut short goes on at once, as soon as others had their turn.
        let more = (self.wanted.release || self.wanted.cut || self.tail_goes_on()).then_some(self.now);
        let times = [
            more,
            self.commit_deadline(),
            self.move_deadline(),
            self.checkpoint.deadline(),
            self.log.deadline(),
            self.admission_deadline(),
            self.claim_deadline(),
            self.stall_deadline(),
        ];
        times.into_iter().flatten().min()
    }

    fn on_timer(&mut self, now: Nanos) {
        self.tick(now);
        self.commit_timer();
    }

    fn with_arena<R>(&mut self, f: impl FnOnce(&mut A) -> R) -> R {
        f(&mut self.arena)
    }
}

pub(crate) fn new_slabs() -> (Slab<InRequest>, Slab<Piece>) {
    (Slab::new(MAX_REQUESTS), Slab::new(MAX_PIECES))
}
