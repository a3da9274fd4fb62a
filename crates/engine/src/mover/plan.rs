//! Chooses what the mover does next: free the zone's tail, then place chunks by heat.
//!
//! Destage drains the oldest part of the zone (`tail.rs`) in the order of the homes on the slow device.

use crate::api::action::RequestError;
use crate::api::economy::Economy;
use crate::api::options::Level;
use crate::api::why::Reason;
use crate::base::arena::Arena;
use crate::base::bugs::{Bug, planted};
use crate::engine::Engine;
use crate::io::tokens::Owner;
use crate::mover::moves::{Barren, MAX_BATCHES};
use crate::mover::tail::Tail;
use crate::path::piece::PieceKind;
use crate::placement::elastic::Borrowing;
use crate::placement::policy::{Foresight, Pace, Policy, Touch, View, Yield};
use crate::placement::rest::Rest;
use crate::volume::landed::ZoneBlock;
use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// Lost blocks are said again when one block for so many of the zone has landed since, or somebody waits for space.
const SAID_SHARE: u64 = 8;
/// Pause after a batch that could move nothing, ns.
const BARREN_PAUSE_NS: u64 = 5 * Nanos::MS;
/// Pause of a busy volume after a batch at most, ns: one that met devices in a bad moment may have taken minutes,
/// which says nothing about the next.
const MAX_BUSY_PAUSE_NS: u64 = 10 * Nanos::SECOND;
/// Pause after a batch of which the devices failed everything, ns.
const FAILED_PAUSE_NS: u64 = 250 * Nanos::MS;
/// Pause after a batch of which everything was read, and is wrong, ns.
const DAMAGED_PAUSE_NS: u64 = 50 * Nanos::MS;
/// Rounds that only say lost blocks again are farther apart the longer that has brought nothing: by one part in so many of that
/// time, up to [`DAMAGED_PAUSE_NS`]. The first few may be all that is needed; later ones would wear the SSD for nothing.
const VAIN_SHARE: u64 = 8;
/// Clients that wait for space get an error when the devices have failed every batch for this long, ns:
/// longer than a landed block that cannot be read may hold the zone.
const BARREN_PATIENCE_NS: u64 = 20 * Nanos::SECOND;
/// ... and the last of these batches ended this long ago at most, ns: longer than the pause after one.
const BARREN_FRESH_NS: u64 = Nanos::SECOND;
/// The same where the slow device is missing, and only what others do may make room.
const ALONE_PATIENCE_NS: u64 = Nanos::SECOND;

/// Chunks that one client's wish to have a range made fast looks at: 512 MiB of chunks of 128 KiB, in a call that stays
/// short.
const CHUNKS_PER_WISH: usize = 4096;

/// The plan for the zone's tail, and when the next batches may begin.
#[derive(Default, Serialize, Deserialize)]
pub struct Planner {
    pub(crate) tail: Tail,
    pub(crate) borrowing: Borrowing,
    pub(crate) rest: Rest,
    next_destage: Nanos,
    /// When a batch that was to empty the zone ended last.
    freed: Nanos,
    /// There was no memory for all of the batch that began last to empty the zone.
    lacks_memory: bool,
    next_place: Nanos,
    /// When a client last had an answer to a read of the slow device.
    read_slow: Nanos,
    /// When a stream last used the slow device.
    streamed: Nanos,
    /// Batches since a client asked for something last, while the volume was idle.
    idle_batches: u32,
    /// Not before this, idle or not: the devices failed the last placement.
    after_failure: Nanos,
    /// The policy had nothing to move when it was last asked, or nothing that could be moved.
    nothing_to_place: bool,
    /// Lost blocks in front of the tail that is being emptied are said again, ...
    pub(crate) says_losses: bool,
    /// ... and not before clients have landed so many blocks those of another one.
    pub(crate) next_said: u64,
    /// The last batch that was to empty the zone could move nothing.
    pub(crate) zone_is_held: bool,
    /// Somebody wants nothing moved that need not be.
    paused: bool,
}

impl Planner {
    pub(crate) fn new(now: Nanos) -> Planner {
        Planner { rest: Rest::opened(now), ..Planner::default() }
    }

    /// A client asks for something.
    pub(crate) fn disturbed(&mut self) {
        self.idle_batches = 0;
    }

    /// Chunks of the next batch of an idle volume: each has twice as many as the one before. Who asks again after a short
    /// pause waits for a few accesses, not for a whole batch.
    fn idle_batch(&self, economy: &Economy) -> usize {
        let first = economy.idle_batch_first_chunks as usize;
        (first << self.idle_batches.min(16)).min(economy.idle_batch_chunks as usize)
    }

    /// There is no memory for these chunks of the batch that begins: their turn comes with the next one, or what is sorted is
    /// not written in its order; and until one fits, no other begins beside it.
    pub(crate) fn does_not_fit(&mut self, chunks: impl DoubleEndedIterator<Item = Chunk>) {
        self.lacks_memory = self.tail.put_back(chunks) > 0;
    }

    /// How long the zone has been freed by a batch that began then and ends now, ns: not while another was at it.
    pub(crate) fn freeing_took_ns(&self, began: Nanos, now: Nanos) -> u64 {
        now.since(began.max(self.freed))
    }

    /// Whether nothing is moved but what empties the zone.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }

    /// There is something to place now.
    pub(crate) fn place_anew(&mut self) {
        self.nothing_to_place = false;
        self.next_place = Nanos(0);
    }
}

/// How a batch ended.
pub(crate) struct Ended {
    /// How long it took, nanoseconds.
    pub(crate) took_ns: u64,
    /// How long the slow device worked for it, nanoseconds.
    pub(crate) worked_ns: u64,
    /// Some chunk was moved.
    pub(crate) moved: bool,
    /// A device failed an I/O.
    pub(crate) failed: bool,
    /// What was read of some chunk is wrong.
    pub(crate) damaged: bool,
}

impl<A: Arena> Engine<A> {
    /// A client touched the piece's chunk.
    pub(crate) fn touched(&mut self, piece: u32, write: bool) {
        let p = &self.front.pieces[piece];
        let stream = self.front.requests[p.request].is_stream();
        let on_fast = self.state.map.is_on(p.chunk, FAST);
        if stream && !on_fast {
            self.mover.planner.streamed = self.io.now;
        }
        let chunk = p.chunk;
        if write {
            self.placement.avoided.forget(chunk);
        }
        self.placement.policy.touch(Touch { chunk, write, stream, on_fast }, self.io.now);
        if let Some(home) = self.state.map.home(chunk).filter(|home| home.tier == FAST) {
            let yields = self.yields();
            self.placement.benefit.touched(home.slot, write, &yields);
        }
    }

    /// A client asks for a range to be made fast: its chunks on the slow tier become candidates, as if they had
    /// been touched often enough, and the mover promotes them when it may; colder chunks make room. A hint: it
    /// is never waited for, loses to what is hotter, and what goes beyond `CHUNKS_PER_WISH` is forgotten. Chunks without a home are left to destage, which gives them one.
    pub fn prefer_fast(&mut self, now: Nanos, offset: u64, len: u64) {
        self.io.tick(now);
        let end = offset.saturating_add(len).min(self.size_bytes());
        if offset >= end || self.life.is_read_only() || self.life.shutdown.began() {
            return;
        }
        let chunk_bytes = u64::from(self.state.geo.chunk_bytes);
        let (first, last) = (offset / chunk_bytes, (end - 1) / chunk_bytes);
        for chunk in (first..=last).take(CHUNKS_PER_WISH).map(|chunk| Chunk(chunk as u32)) {
            if self.state.map.is_on(chunk, SLOW) {
                self.placement.policy.wish(chunk, self.io.now);
                self.rouse_slow();
            }
        }
        self.mover.planner.nothing_to_place = false;
    }

    /// A device has answered something: what a read that a client waits for takes is remembered.
    pub(crate) fn learn_latency(&mut self, device: Tier, owner: Owner, took_ns: u64) {
        let bytes = match owner {
            Owner::Piece(piece) if self.front.pieces[piece].kind == PieceKind::Read => {
                self.front.pieces[piece].count * BLOCK_BYTES
            }
            Owner::Copy(fill) if device == SLOW => self.mover.copies.asked_bytes(fill),
            _ => return,
        };
        if device == SLOW {
            self.mover.planner.read_slow = self.io.now;
        }
        self.placement.benefit.read(device, bytes, took_ns);
    }

    /// From now on placement knows what clients will do: for replays, to see what could be reached at best.
    pub fn foresee(&mut self, uses: Vec<Chunk>, window: usize) {
        assert!(window > 0, "nothing is in sight");
        self.placement.policy.foresee(Foresight::new(self.state.geo.chunks, uses, window));
        self.mover.planner.place_anew();
    }

    /// From now on nothing rises, nothing is copied and no pin is obeyed; or all of that as ever. What empties the landing zone
    /// goes on: clients would wait for it. It lasts until it is said otherwise, or the volume is opened again.
    pub fn pause_moves(&mut self, now: Nanos, paused: bool) {
        self.io.tick(now);
        self.mover.planner.paused = paused;
        self.mover.planner.place_anew();
    }

    /// Whether a pinned chunk may lie on another tier, and be moved.
    pub(crate) fn pins_are_astray(&self) -> bool {
        !self.mover.planner.is_paused() && self.placement.pins.are_astray()
    }

    /// A volume that is being closed frees its zone only as far as clients still wait for space.
    pub(crate) fn moves_are_over(&self) -> bool {
        self.life.is_read_only() || self.life.shutdown.began() && self.front.requests.is_empty()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.front.requests.is_empty()
            && self.io.now.since(self.front.last_client) >= self.tuning.idle_after_ns
    }

    /// How much of the slow device is to be had for placing chunks now.
    pub(crate) fn pace(&self) -> Pace {
        match self.is_idle() {
            true => Pace::Idle,
            false if self.zone_runs_short() && self.zone_is_wanted() => Pace::Short,
            false => Pace::Busy,
        }
    }

    /// Whether somebody waits for the zone, or has written so lately that he may soon.
    fn zone_is_wanted(&self) -> bool {
        self.io.now.since(self.front.last_change) < self.tuning.idle_after_ns || self.log_is_starved()
    }

    /// Whether so much of the zone is in use that it is emptied though clients are busy.
    pub(crate) fn zone_is_worth_emptying(&self) -> bool {
        let percent = self.tuning.economy.zone_merged_from_percent as usize;
        self.state.zone.chain().len() * 100 > self.state.zone.len() as usize * percent
    }

    pub(crate) fn zone_is_half_full(&self) -> bool {
        self.state.zone.chain().len() * 2 > self.state.zone.len() as usize
    }

    /// Whether clients keep the slow device busy with several commands at once: what need not be merged yet would only
    /// make them wait, and the longer it waits, the more of it is one batch.
    fn clients_queue_on_disk(&self) -> bool {
        self.slow_is_in_use() && self.io.tokens.client_depth(SLOW) > 1
    }

    fn destage_is_due(&self) -> bool {
        self.log_is_starved()
            || self.zone_is_worth_emptying() && (self.zone_runs_short() || !self.clients_queue_on_disk())
            || self.zone_gives_back()
            || self.is_idle() && !self.slow_is_left_alone()
    }

    /// Whether this landed block, which cannot be moved because it is lost, must be said again at the head
    /// so that the log's tail can go on. Not before the zone needs it, for saying it costs two blocks; and not
    /// while a block that is not lost holds the tail as well, for then it would be in vain.
    pub(crate) fn holds_tail(&self, z: ZoneBlock) -> bool {
        let zone = &self.state.zone;
        let ordinal = zone.get(zone.place_of(z)).ordinal;
        let oldest = zone.chain().front().map_or(0, |p| zone.get(*p).ordinal);
        self.losses_are_said_again()
            && ordinal < oldest + zone.chain().len() as u64 / 2
            && zone
                .chain()
                .iter()
                .take_while(|p| zone.get(**p).ordinal <= ordinal)
                .all(|p| zone.get(*p).is_lost())
    }

    /// Whether the zone needs the space in front of lost blocks.
    pub(crate) fn losses_are_said_again(&self) -> bool {
        self.mover.planner.says_losses || self.log_is_starved()
    }

    /// Decides that for the part of the zone that is emptied next. Where lost blocks alone fill half of it, saying them again
    /// makes no room, and would go on for ever.
    pub(crate) fn decide_to_say_losses(&mut self) {
        let landed = self.log.landed_blocks;
        let says = self.zone_is_half_full() && landed >= self.mover.planner.next_said;
        self.mover.planner.says_losses = says;
        if says {
            let zone_blocks = u64::from(self.state.zone.len()) * u64::from(self.state.geo.area_blocks());
            self.mover.planner.next_said = landed + zone_blocks / SAID_SHARE;
        }
    }

    pub(crate) fn pump_moves(&mut self) {
        if self.tail_goes_on() {
            self.gather_tail();
        }
        self.pump_borrowing();
        self.pump_lending();
        self.pump_trims();
        self.mind_rest();
        // Records of loss must be in place before the next move of their chunks fixes what it ends.
        if self.moves_are_over() || self.log.losses > 0 {
            return;
        }
        let pace = self.pace();
        let in_turns = self.works_in_turns(pace);
        if in_turns {
            self.pump_placement(pace);
        }
        if self.may_free_more(pace)
            && self.destage_is_due()
            && self.io.now >= self.mover.planner.next_destage
            && !(in_turns && self.mover.is_placing_data())
        {
            self.destage();
        }
        if !in_turns {
            self.pump_placement(pace);
        }
    }

    /// Whether clients have asked the slow device for something of late.
    fn slow_is_in_use(&self) -> bool {
        self.io.now.since(self.io.tokens.used_by_clients(SLOW)) < self.tuning.economy.in_use_ns
    }

    /// Whether clients read the slow device, and nobody waits for the zone: a flush has the disk write all that it has accepted,
    /// and who reads meanwhile waits for most of that.
    pub(crate) fn merges_beside_reads(&self) -> bool {
        self.io.now.since(self.mover.planner.read_slow) < self.tuning.economy.in_use_ns
            && !self.landing_is_starved()
    }

    /// Whether another batch may begin to empty the zone. While clients wait for it, and for nothing else of the slow
    /// device, the next one is read and written when the last has been: a disk that has many writes to choose from has
    /// less way between them, and is not to run dry at the end of each batch. Not when the log is so full that what one
    /// batch has to record may not find room beside another's.
    fn may_free_more(&self, pace: Pace) -> bool {
        match self.mover.freeing() {
            0 => true,
            1 => {
                pace == Pace::Short
                    && self.landing_is_starved()
                    && !self.slow_is_in_use()
                    && !self.mover.is_freeing_data()
                    && !self.zone_is_full()
                    && self.space.slots[FAST].closing().is_none()
                    && !self.mover.planner.lacks_memory
            }
            _ => false,
        }
    }

    /// Whether placing and emptying the zone take turns: two kinds of work at once would have the slow device seek between
    /// them, and who asks for something meanwhile would find both before him. Where large batches make room for what streams
    /// read, emptying the zone does not wait for them.
    fn works_in_turns(&self, pace: Pace) -> bool {
        match pace {
            Pace::Idle => false,
            Pace::Busy => !self.mover.copies.are_asked_for(self.io.now),
            Pace::Short => true,
        }
    }

    fn pump_placement(&mut self, pace: Pace) {
        let idle = pace == Pace::Idle;
        let turn = match pace {
            Pace::Short => !self.mover.is_freeing_data(),
            _ => !self.works_in_turns(pace) || !self.mover.is_busy(true),
        };
        if turn
            && !self.lacks_slow()
            && !self.slow_is_left_alone()
            && !self.mover.is_busy(false)
            && !self.life.shutdown.began()
            && self.policy_has_work()
            && (idle || self.io.now >= self.mover.planner.next_place)
            && self.io.now >= self.mover.planner.after_failure
        {
            self.place(pace);
        }
    }

    /// Chunks of a batch whose checksums the list of recent ones has room for, whatever tier they go to.
    fn batch_room(&mut self) -> usize {
        let per_chunk = self.state.geo.blocks_per_chunk() as usize;
        let limit = self.state.sums.limit;
        let room = limit.saturating_sub(self.sums_spoken_for()) / per_chunk;
        // In time: folding takes a read and a write for each page, and nothing can be merged while the list is full.
        self.want_fold(self.state.sums.recent() > if room == 0 { 0 } else { limit / 2 });
        room
    }

    /// Recent checksums, and those that batches and streams in flight may add.
    pub(crate) fn sums_spoken_for(&self) -> usize {
        let pending = self.space.pending.slow_bytes / u64::from(BLOCK_BYTES);
        let moving = self.mover.chunks() * self.state.geo.blocks_per_chunk() as usize;
        self.state.sums.recent() + self.state.sums.fast.expected() + moving + pending as usize
    }

    /// Asks for a checkpoint that empties the list of recent checksums.
    pub(crate) fn want_fold(&mut self, wanted: bool) {
        self.wanted.checkpoint |= wanted;
        self.wanted.fold |= wanted;
    }

    /// Writes that wait for room fail. Those that come next do as soon as the next batch has brought nothing as well: each of
    /// many that wait for each other is not to wait as long as the first.
    fn fail_who_waits_for_room(&mut self, barren: Barren) {
        if !barren.told {
            let what = "the landing zone is full and cannot be emptied: waiting writes fail";
            self.told.event(Level::Error, what.into(), barren.error);
        }
        self.mover.barren = Some(Barren { told: true, ..barren });
        self.fail_client_jobs(barren.error.map_or(RequestError::NoSpace, RequestError::from));
    }

    fn destage(&mut self) {
        if self.state.landed.len() == 0 {
            // Only records fill the chain: a checkpoint frees it. One that holds no more than the last may still free what
            // was emptied since; but while a batch waits for a device, one must not follow the other at once.
            if self.zone_is_worth_emptying() || self.log_is_starved() {
                self.wanted.checkpoint = true;
                if self.recorded() <= self.checkpoint.applied() {
                    self.mover.planner.next_destage = self.io.now.after(BARREN_PAUSE_NS);
                }
            }
            return;
        }
        // Where no device failed, and clients had room, nothing stands still.
        let landed = self.log.landed_blocks;
        self.mover.barren = self.mover.barren.filter(|b| b.error.is_some() || b.landed_blocks == landed);
        // What was so a while ago is tried again first.
        let now = self.io.now;
        let patience_ns = if self.lacks_slow() { ALONE_PATIENCE_NS } else { BARREN_PATIENCE_NS };
        let is_over = |barren: &Barren| {
            now.since(barren.since) >= patience_ns && now.since(barren.last) <= BARREN_FRESH_NS
        };
        if let Some(barren) = self.mover.barren.filter(is_over)
            && self.log_is_starved()
        {
            let flushes_wait = !self.landing_is_starved();
            if flushes_wait {
                let what = "the landing zone is full and cannot be emptied: the volume is read-only until it \
                            is opened again";
                return self.fail_volume(what.into(), barren.error);
            }
            self.fail_who_waits_for_room(barren);
        }
        let room = self.batch_room();
        if room == 0 && self.space.pending.slow_bytes > 0 && !self.space.pending.dirty.is_empty() {
            // What streams have written, and no record shows yet, may take all the room for checksums: it goes first.
            self.mover.planner.zone_is_held = true;
            self.wanted.commit = true;
        }
        if self.push_down(room) {
            return;
        }
        let tail = &self.mover.planner.tail;
        if tail.is_empty() || !tail.is_as_large_as(self.tail_segments()) {
            self.choose_tail_segments();
        }
        if self.mover.planner.tail.is_gathering() {
            return;
        }
        if self.mover.planner.tail.is_void() {
            // Only lost blocks are left, and they hold nothing up but what lies before them: with a checkpoint it becomes
            // free. That devices failed batches before says nothing any more.
            let stays = self.losses_are_said_again() || self.lacks_slow();
            self.wanted.checkpoint |= self.state.zone.front_is_empty() && stays;
            self.mover.planner.tail = Tail::default();
            self.mover.barren = self.mover.barren.filter(|barren| barren.error.is_none());
            let is_full = !self.state.zone.front_is_empty() && self.log_is_starved();
            let in_vain = self.lacks_slow() && is_full;
            if in_vain {
                self.count_as_barren(None);
            }
            let pause = if in_vain { DAMAGED_PAUSE_NS } else { self.tuning.economy.nothing_to_place_ns };
            self.mover.planner.next_destage = self.io.now.after(pause);
            return;
        }
        let moves = self.take_tail(self.tuning.batch_chunks.min(self.destage_batch()).min(room));
        self.wanted.checkpoint |= self.mover.planner.tail.is_empty();
        if !moves.is_empty() {
            self.decide(&moves, |_| Reason::Hot);
            self.start_batch(&moves, true);
        } else if self.mover.planner.tail.is_empty() {
            self.mover.planner.next_destage = self.io.now.after(BARREN_PAUSE_NS);
        }
    }

    /// Chunks that a busy volume places in one batch: where clients keep the slow device busy with several commands at once,
    /// as many up as they have there, and as many down; a pair at least, or nothing rises while no slot is free. Beside a stream
    /// one: moves break it up, and its many commands are one to the disk.
    fn busy_batch(&self) -> usize {
        let economy = &self.tuning.economy;
        if self.io.now.since(self.mover.planner.streamed) < economy.in_use_ns {
            return economy.busy_batch_chunks as usize;
        }
        let depth = if self.slow_is_in_use() { self.io.tokens.client_depth(SLOW) as usize } else { 1 };
        (2 * depth.max(1)).min(economy.busy_batch_most_chunks as usize)
    }

    /// What was at home here has left it.
    pub(crate) fn end_trial(&mut self, old: Option<Home>) {
        if let Some(home) = old.filter(|home| home.tier == FAST) {
            let yields = self.yields();
            self.placement.benefit.left(home.slot, &yields);
        }
    }

    /// What moves save and cost, as far as it is known.
    pub(crate) fn yields(&self) -> Yield {
        self.placement.benefit.yields(self.mover.planner.borrowing.merging_takes_ns(1))
    }

    /// What the policy is shown.
    pub(crate) fn view(&self) -> View<'_> {
        View {
            map: &self.state.map,
            slots: &self.space.slots,
            pins: self.placement.pins.list(),
            avoided: &self.placement.avoided,
            copies: self.mover.copies.cells(),
            copies_wanted: self.mover.copies.wanted(self.io.now),
            copies_proved: self.mover.copies.have_proved(self.io.now),
            copies_pressed: self.copies_are_pressed(),
            may_rise: self.may_rise(),
            yields: self.yields(),
        }
    }

    /// Asks the policy for something that it notes.
    pub(crate) fn ask_policy<R>(&mut self, ask: impl FnOnce(&mut dyn Policy, &View<'_>) -> R) -> R {
        let view = View {
            map: &self.state.map,
            slots: &self.space.slots,
            pins: self.placement.pins.list(),
            avoided: &self.placement.avoided,
            copies: self.mover.copies.cells(),
            copies_wanted: self.mover.copies.wanted(self.io.now),
            copies_proved: self.mover.copies.have_proved(self.io.now),
            copies_pressed: self.copies_are_pressed(),
            may_rise: self.may_rise(),
            yields: self.yields(),
        };
        ask(&mut self.placement.policy, &view)
    }

    /// Chunks that are merged next at most.
    fn destage_batch(&self) -> usize {
        let economy = &self.tuning.economy;
        let most = economy.merge_batch_chunks as usize;
        match self.pace() {
            Pace::Short if self.merges_beside_reads() => most.min(economy.merge_beside_reads as usize),
            Pace::Short => most,
            Pace::Busy => economy.busy_batch_chunks as usize,
            Pace::Idle if self.zone_runs_short() => most,
            Pace::Idle => most.min(self.mover.planner.idle_batch(economy)),
        }
    }

    /// Whether there was something to place when that was last asked.
    pub(crate) fn has_chunks_to_place(&self) -> bool {
        self.policy_has_work() && !self.mover.planner.nothing_to_place
    }

    fn policy_has_work(&self) -> bool {
        self.pins_are_astray() || self.placement.policy.has_work(&self.view())
    }

    fn place(&mut self, pace: Pace) {
        let most = match pace {
            Pace::Idle => self.mover.planner.idle_batch(&self.tuning.economy),
            Pace::Busy if self.mover.copies.are_asked_for(self.io.now) => {
                self.tuning.economy.idle_batch_chunks as usize
            }
            Pace::Busy => self.busy_batch(),
            Pace::Short => self.tuning.economy.idle_batch_chunks as usize,
        };
        let budget = self.tuning.batch_chunks.min(most);
        let budget = budget.min(self.batch_room());
        self.placement.avoided.expire(self.io.now);
        let mut moves = if pace == Pace::Short { Vec::new() } else { self.pin_moves(budget) };
        if moves.is_empty() {
            let now = self.io.now;
            let plan = self.ask_policy(|policy, view| policy.plan(now, view, budget, pace));
            plan.leaving.into_iter().for_each(|slot| self.drop_tray(slot));
            moves = plan.moves;
            self.decide_by_heat(&moves);
        }
        if budget == 0 || moves.is_empty() {
            let economy = &self.tuning.economy;
            let pause =
                if pace == Pace::Short { economy.nothing_dense_ns } else { economy.nothing_to_place_ns };
            self.mover.planner.next_place = self.io.now.after(pause);
            self.mover.planner.nothing_to_place = true;
        } else {
            self.mover.planner.nothing_to_place = false;
            self.start_batch(&moves, false);
        }
    }

    /// A batch has ended: when busy, pause in proportion to the work that it was for the slow device.
    pub(crate) fn batch_ended(&mut self, frees_zone: bool, ended: Ended) {
        let Ended { took_ns, worked_ns, moved, failed, damaged } = ended;
        if self.is_idle() {
            self.mover.planner.idle_batches += 1;
        }
        let short = self.zone_runs_short();
        let planner = &mut self.mover.planner;
        if frees_zone {
            planner.freed = self.io.now;
            planner.zone_is_held = !moved && !failed && !damaged;
            if !moved {
                let pause = match (failed, damaged) {
                    (true, _) => FAILED_PAUSE_NS,
                    (_, true) => DAMAGED_PAUSE_NS,
                    _ => BARREN_PAUSE_NS,
                };
                let never = failed && planted(Bug::DestageNeverResumes);
                planner.next_destage = if never { Nanos(u64::MAX) } else { self.io.now.after(pause) };
                self.wanted.commit = self.space.pending.len() > 0 || self.space.gate.leaving() > 0;
            } else if let Some(vain) = self.mover.barren.filter(|barren| barren.error.is_none()) {
                let pause = self.io.now.since(vain.since) / VAIN_SHARE;
                planner.next_destage = self.io.now.after(pause.min(DAMAGED_PAUSE_NS));
            }
        } else {
            // What rises while the zone is short takes as much off the slow device as emptying the zone does. Who reads the same
            // again and again, in order, is not kept waiting by single commands: with room made for it at the disk's full speed,
            // 18 GB read in a loop came from the SSD in the fifth pass; at a third of the time, four tenths of them.
            let share = match short {
                true => self.tuning.economy.short_share,
                false if self.mover.copies.are_asked_for(self.io.now) => 1,
                false => self.tuning.busy_share.max(1),
            };
            // What clients had the device do meanwhile is not held against it.
            let pause = worked_ns.saturating_mul(u64::from(share)).saturating_sub(took_ns);
            let pause = pause.min(MAX_BUSY_PAUSE_NS);
            planner.next_place = self.io.now.after(pause.max(if moved { 0 } else { BARREN_PAUSE_NS }));
            if (failed || damaged) && !moved {
                // What cannot be read is chosen again and again, and idle volumes wait for nothing else.
                planner.after_failure = self.io.now.after(self.tuning.economy.nothing_to_place_ns);
                planner.nothing_to_place = true;
            }
        }
    }

    /// Whether the tail's plan is to be gone on with at once.
    pub(crate) fn tail_goes_on(&self) -> bool {
        self.mover.planner.tail.is_gathering() && !self.moves_are_over()
    }

    /// When the mover wants to be called again.
    pub(crate) fn move_deadline(&self) -> Option<Nanos> {
        if self.moves_are_over() {
            return None;
        }
        let idle_at = self.front.last_client.after(self.tuning.idle_after_ns);
        let p = &self.mover.planner;
        let mut times: [Option<Nanos>; MAX_BATCHES + 2] = [None; MAX_BATCHES + 2];
        times[MAX_BATCHES] = self.zone_shrinks_at();
        times[MAX_BATCHES + 1] = self.rises_again();
        let alone = self.slow_is_left_alone();
        let waits = self.state.landed.len() > 0 && self.front.requests.is_empty();
        times[0] = if self.mover.is_busy(true) {
            None
        } else if waits && !alone {
            Some(idle_at.max(p.next_destage))
        } else if self.log_is_starved() {
            Some(p.next_destage)
        } else {
            self.merge_is_due_at()
        };
        let places = !self.lacks_slow() && !alone && !self.mover.is_busy(false);
        if places && self.policy_has_work() && !self.life.shutdown.began() {
            let at =
                if p.nothing_to_place { p.next_place } else { p.next_place.min(idle_at.max(self.io.now)) };
            // What is pinned and may not be moved while clients are busy waits for quiet.
            let at = if at <= self.io.now && self.pins_are_astray() { idle_at } else { at };
            times[1] = Some(at.max(p.after_failure));
        }
        times.into_iter().flatten().filter(|t| *t > self.io.now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_volume_begins_gently_and_doubles_until_it_is_disturbed() {
        let (mut planner, economy) = (Planner::default(), Economy::default());
        let mut batches = Vec::new();
        for _ in 0..7 {
            batches.push(planner.idle_batch(&economy));
            planner.idle_batches += 1;
        }
        assert_eq!(batches, [4, 8, 16, 32, 64, 128, 128]);
        planner.disturbed();
        assert_eq!(planner.idle_batch(&economy), economy.idle_batch_first_chunks as usize);
    }
}
