//! Opens a volume: recover, raise the generation, hand over to the engine.

mod room;

use crate::api::coverage::Stage;
use crate::api::options::{DeviceInfo, Event, Level, OpenError, OpenOptions, describe_unconfirmed};
use crate::api::told::Told;
use crate::base::arena::{Arena, Pool};
use crate::base::bugs::{Bug, planted};
use crate::engine::{Engine, Wanted};
use crate::format::Id;
use crate::format::geometry::{HEADER_COPIES, HEADERS_AT, header_at};
use crate::format::header::CheckpointHeader;
use crate::format::log::{GroupHeader, INDEX_ENTRY_BYTES, Index, SegmentHeader};
use crate::format::superblock::{LeftBehind, OpenState, Superblock};
use crate::io::issue::Io;
use crate::life::health::Life;
use crate::life::hints::Learnt;
use crate::life::open::room::LogRoom;
use crate::life::recovery::{BLOCK_READS, Reader, Recovered};
use crate::life::task::Task;
use crate::mover::moves::Mover;
use crate::mover::plan::Planner;
use crate::mover::scrub::Scrub;
use crate::path::checkpoint::Checkpoint;
use crate::path::commit::Commit;
use crate::path::front::Front;
use crate::path::log::Log;
use crate::path::log::LogEnd;
use crate::placement::Placement;
use crate::placement::pins::PinsRead;
use crate::volume::slots::Slots;
use crate::volume::space::Space;
use crate::volume::state::State;
use bimetal_units::*;

/// Opens (and recovers) a volume.
pub fn open<A: Arena + 'static>(
    arena: A,
    devices: Vec<DeviceInfo>,
    options: OpenOptions,
) -> Task<A, Result<Engine<A>, OpenError>> {
    Task::new(arena, |io| async move {
        must_be_two(&devices)?;
        at_work(Reader::new(io, devices), options).await
    })
}

/// Recovers a volume with the devices that the reader has, and makes it ready to be written to.
pub(crate) async fn at_work<A: Arena>(
    reader: Reader<A>,
    options: OpenOptions,
) -> Result<Engine<A>, OpenError> {
    let mut recovered = reader.recover(&options).await?;
    recovered.state.zone.rest_is_free();
    let mut slots = reader.used_slots(&recovered.state)?;
    let marks = match reader.is_missing(SLOW) {
        true => None,
        false => {
            let slow = &recovered.superblocks[1];
            reader.marks_named(slow, &recovered.state, &mut slots[SLOW]).await?
        }
    };
    let room = LogRoom::of(&recovered, &slots[FAST]);
    room.check(&recovered)?;
    let mut pins = reader.pins(&recovered.superblocks[0].volume, recovered.state.geo.chunks).await?;
    // Before the generation is raised, which ends it.
    let (learnt, forgot) = reader.learnt(&recovered, &mut slots[FAST], &options.tuning).await?;
    let scrub = reader.scrub(&recovered.superblocks[0].volume, &recovered.state.geo).await?;
    reader.io.stage(Stage::OpenRaise);
    // Only the fast device says that the volume was closed.
    let clean = recovered.superblocks[0].state == OpenState::Clean;
    let comes_back = recovered.superblocks[0].left_behind.is_some() && !reader.is_missing(SLOW);
    let leaves = reader.leaves_tail(&recovered);
    // A lost header may claim the group that the log ends before: it must not come back once that is erased.
    reader.settle_lost_headers(&recovered.superblocks[0].volume, &recovered.header).await?;
    let bad_copies = reader.bad_copies.borrow().clone();
    reader.heal_copies().await?;
    reader.catch_up(&recovered.superblocks).await?;
    reader.settle_pins(&recovered.superblocks[0].volume, &mut pins).await;
    reader.raise(&mut recovered.superblocks).await?;
    let (log_end, room_is_kept) = (recovered.log.last, room.is_kept(&recovered));
    match leaves {
        true => reader.leave_tail(&mut recovered).await?,
        false => reader.end_log(&mut recovered, room_is_kept).await?,
    }
    let marks = match marks {
        Some(found) => Some(reader.open_marks(&recovered.superblocks[1], found).await?),
        None => None,
    };
    let told = reader.copies_told(&bad_copies);
    let mut engine = engine(&reader, recovered, log_end, slots, (pins, learnt), options);
    engine.mover.scrub = Scrub::found(scrub);
    engine.marks = marks;
    engine.told.stats.recovered = !clean;
    told.into_iter().for_each(|e| engine.told.event(e.level, e.message, e.error));
    if forgot {
        let what = "some of what placement had learnt cannot be read, and is learnt anew";
        engine.told.event(Level::Info, format!("{}: {what}", engine.told.names[FAST]), None);
    }
    if comes_back {
        let [fast, slow] = [FAST, SLOW].map(|tier| &engine.told.names[tier]);
        let what =
            format!("{slow} takes part again: it is as {fast} left it, which was written to alone meanwhile");
        engine.told.event(Level::Info, what, None);
    }
    engine.borrow_again();
    Ok(engine)
}

/// This release fuses two devices.
pub(crate) fn must_be_two(devices: &[DeviceInfo]) -> Result<(), OpenError> {
    match devices.len() {
        2 => Ok(()),
        given => Err(OpenError::BadOption { what: format!("a volume has two devices, {given} were given") }),
    }
}

/// An empty group behind the last one, which says that all up to that are durable; in a segment of this ordinal, at this block.
fn claim(
    last: Seq,
    epoch: Generation,
    checkpoint: u64,
    (ordinal, offset): (u64, u32),
    successor: Area,
) -> GroupHeader {
    GroupHeader {
        ordinal,
        epoch,
        attempt: 0,
        seq: Seq(last.0 + 1),
        durable: last,
        checkpoint,
        offset,
        payload_blocks: 0,
        successor: Some(successor),
    }
}

pub(crate) fn no_memory() -> OpenError {
    OpenError::Memory { what: "the buffer pools are too small for this volume: give it more memory".into() }
}

/// Slots in use, as the map says, and those in areas that the log has; the error is a slot that two claim.
fn used_slots(state: &State) -> Result<ByTier<Slots>, Home> {
    let slow = Slots::new(state.geo.slots(SLOW), false);
    let slow = if state.geo.marks().is_some() { slow.with_marks() } else { slow };
    let slots = [Slots::new(state.geo.slots(FAST), true), slow];
    let mut slots = ByTier(slots);
    for slot in state.zone.borrowed().flat_map(|area| state.geo.slots_in(area)) {
        if !planted(Bug::BorrowedForgotten) {
            slots[FAST].mark_used(Slot(slot));
        }
    }
    for chunk in (0..state.map.chunks()).map(Chunk) {
        if let Some(home) = state.map.home(chunk) {
            let tier = &mut slots[home.tier];
            if !tier.mark_used(home.slot) {
                return Err(home);
            }
            tier.set_owner(home.slot, Some(chunk));
        }
    }
    Ok(slots)
}

impl<A: Arena> Reader<A> {
    /// Slots in use; refused where two chunks claim one.
    pub(crate) fn used_slots(&self, state: &State) -> Result<ByTier<Slots>, OpenError> {
        let twice =
            |home: Home| self.corrupt(home.tier, state.geo.slot_at(home), "two chunks claim the same slot");
        used_slots(state).map_err(twice)
    }

    /// Ends the log with an empty group that says of all before it that they are durable, as the opening has flushed them;
    /// it is of the generation that was raised, so nothing older behind it counts any more. What stood there may have been the only one that said so: of a group that a
    /// crash has torn, the header may be whole. So it is said a block further on first, by a group that nobody takes for a
    /// part of the log; one of the two blocks is whole at any moment. Where an orderly close has said it, and where there is
    /// no room, so that no group can have begun there either, that block is erased. Where the room is kept for others, neither is
    /// a part of the log, and the next group is written over them.
    pub(crate) async fn end_log(
        &self,
        recovered: &mut Recovered,
        room_is_kept: bool,
    ) -> Result<(), OpenError> {
        let Recovered { superblocks, header, state, log, .. } = recovered;
        let segment = state.zone.get(log.place);
        let (ordinal, successor) = (segment.ordinal, state.zone.area(segment.successor));
        let room = |index: &Index| {
            let entries = index.entries.len() + INDEX_ENTRY_BYTES;
            log.cursor.saturating_add(1 + Index::blocks(entries)) <= state.geo.area_blocks()
        };
        let has_room = segment.index.as_ref().is_some_and(room);
        if !has_room || header.durable >= log.last {
            if log.cursor < state.geo.area_blocks() {
                self.end_at(state.zone.offset(log.place, log.cursor), |_| {}).await?;
            }
            return Ok(());
        }
        let (volume, epoch) = (superblocks[0].volume, superblocks[0].generation);
        let claim = claim(log.last, epoch, header.number, (ordinal, log.cursor), successor);
        let aside = GroupHeader { seq: log.last, ..claim };
        let ahead = GroupHeader { offset: log.cursor + 1, ..aside };
        for group in [ahead, if room_is_kept { aside } else { claim }] {
            let at = state.zone.offset(log.place, group.offset);
            self.end_at(at, |b| group.encode(b, &volume, &[])).await?;
        }
        if room_is_kept {
            return Ok(());
        }
        let own = state.zone.get_mut(log.place);
        own.last = claim.seq;
        let index = own.index.as_mut().expect("it has room for the group");
        index.add(claim.seq, epoch, claim.offset, 1, &[]);
        *log = LogEnd { cursor: log.cursor + 1, last: claim.seq, claimed: claim.seq, ..*log };
        Ok(())
    }

    /// Writes a block of what ends the log, flushes it, and looks whether it is there: were it acknowledged and lost, a group
    /// that a crash has torn would still stand there, under the number of one that is durable from here on.
    async fn end_at(&self, offset: u64, fill: impl Fn(&mut [u8])) -> Result<(), OpenError> {
        let mut wanted = vec![0; BLOCK_BYTES as usize];
        fill(&mut wanted);
        for _ in 0..BLOCK_READS {
            self.write_block(FAST, offset, &fill).await?;
            self.flush(FAST).await?;
            let kept = self.lone_block(offset, |found| found == wanted).await?;
            if kept == Some(true) {
                return Ok(());
            }
        }
        Err(self.corrupt(
            FAST,
            offset,
            "the device says that it has written the end of the log here, and has not",
        ))
    }

    /// Whether the log goes on in another segment, so that groups behind its end, which may be more than what a crash has
    /// torn, can be looked at. Not where segments are short: a crash loop would use up those that records are kept for.
    fn leaves_tail(&self, recovered: &Recovered) -> bool {
        let (zone, log) = (&recovered.state.zone, &recovered.log);
        let begin = zone.offset(log.place, 0);
        let segment = begin..begin + u64::from(recovered.state.geo.area_bytes);
        let kept = recovered.unconfirmed.iter().any(|group| group.whole && segment.contains(&group.offset));
        kept && zone.free_segments() * 2 > zone.len()
    }

    /// Begins the next segment of the log: its header says where this one has ended, so that nothing behind that comes back
    /// to life.
    async fn leave_tail(&self, recovered: &mut Recovered) -> Result<(), OpenError> {
        let Recovered { superblocks, header, state, log, .. } = recovered;
        let old = state.zone.get(log.place);
        let (successor, ordinal) = (old.successor, old.ordinal + 1);
        let (seq, epoch, checkpoint) = (Seq(log.last.0 + 1), superblocks[0].generation, header.number);
        let next = state.zone.take_free(false).expect("there are free segments");
        let area = state.zone.area(successor);
        let segment = SegmentHeader {
            area,
            ordinal,
            epoch,
            first: seq,
            durable: log.last,
            successor: state.zone.area(next),
            checkpoint,
        };
        let group = claim(log.last, epoch, checkpoint, (ordinal, 1), segment.successor);
        let (volume, at) = (superblocks[0].volume, state.geo.area_at(area));
        // The group first: without the header nobody looks at it.
        self.end_at(at + u64::from(BLOCK_BYTES), |b| group.encode(b, &volume, &[])).await?;
        self.end_at(at, |b| segment.encode(b, &volume)).await?;
        // It is never sealed: its index would be written over what is to be kept.
        state.zone.get_mut(log.place).index = None;
        let mut index = Index::default();
        index.add(seq, epoch, 1, 1, &[]);
        let own = state.zone.get_mut(successor);
        (own.ordinal, own.first, own.last) = (ordinal, seq, seq);
        (own.successor, own.index) = (next, Some(index));
        state.zone.begin(successor);
        *log = LogEnd { place: successor, cursor: 2, last: seq, claimed: log.last };
        Ok(())
    }

    /// Writes over copies of checkpoint headers that could not be read. Those of the newest one's place hold it
    /// again: a device that failed for a moment does not cost the second copy, nor does a crash between the two. Others
    /// are erased: were they to come back, they would name pages that the next checkpoint overwrites.
    async fn settle_lost_headers(&self, volume: &Id, newest: &CheckpointHeader) -> Result<(), OpenError> {
        let own = header_at(newest.number % 2);
        for at in (HEADERS_AT..header_at(2)).step_by(BLOCK_BYTES as usize) {
            let lost = self.unreadable.borrow().contains(&(FAST, at)) && !planted(Bug::HeaderCopyNotRestored);
            if lost || self.stale_headers.borrow().contains(&at) {
                let again = (own..own + HEADER_COPIES * u64::from(BLOCK_BYTES)).contains(&at);
                let fill = |block: &mut [u8]| {
                    if again {
                        newest.encode(block, volume);
                    }
                };
                self.write_block(FAST, at, fill).await?;
                self.flush(FAST).await?;
            }
        }
        Ok(())
    }

    /// Brings superblocks that are older than the other one of their device up to it: were they to fall behind further, and
    /// the other one not be readable, the device would look like an old copy of itself.
    async fn catch_up(&self, superblocks: &[Superblock; 2]) -> Result<(), OpenError> {
        if planted(Bug::SuperblockNotCaughtUp) {
            return Ok(());
        }
        for (tier, at) in self.older_superblocks.take() {
            let newer = &superblocks[usize::from(tier.0)];
            self.write_block(tier, at, |b| newer.encode(b, at)).await?;
            self.flush(tier).await?;
        }
        Ok(())
    }

    /// Raises the generation on both devices, the fast one first, which says so until both have it.
    /// Of a device's two superblocks one is always whole.
    async fn raise(&self, superblocks: &mut [Superblock; 2]) -> Result<(), OpenError> {
        let [fast, slow] = superblocks;
        if self.is_missing(SLOW) {
            return self.raise_alone(fast).await;
        }
        let generation = Generation(fast.generation_with(slow).0 + 1);
        if fast.left_behind.is_some() {
            fast.left_behind = Some(LeftBehind { generation: slow.generation, raised: generation });
        }
        for s in [&mut *fast, &mut *slow] {
            (s.generation, s.state) = (generation, OpenState::Raising);
        }
        self.write_superblock(fast).await?;
        slow.state = OpenState::Open;
        self.write_superblock(slow).await?;
        (fast.state, fast.left_behind) = (OpenState::Open, None);
        self.write_superblock(fast).await
    }

    /// Raises the generation of the fast device, which says from then on what the slow one is like: as it was left, or as it was
    /// being raised.
    async fn raise_alone(&self, fast: &mut Superblock) -> Result<(), OpenError> {
        let here = fast.generation;
        fast.left_behind.get_or_insert(match fast.state {
            OpenState::Raising => {
                LeftBehind { generation: Generation(here.0.saturating_sub(1)), raised: here }
            }
            OpenState::Clean | OpenState::Open => LeftBehind { generation: here, raised: here },
        });
        if planted(Bug::LeftBehindForgotten) {
            fast.left_behind = None;
        }
        let raised = Generation(here.0 + u64::from(!planted(Bug::AloneKeepsGeneration)));
        (fast.generation, fast.state) = (raised, OpenState::Open);
        self.write_superblock(fast).await
    }

    async fn write_superblock(&self, superblock: &Superblock) -> Result<(), OpenError> {
        let tier = superblock.tier;
        let copies = if planted(Bug::OneSuperblockRaised) { 1 } else { 2 };
        for at in [0, superblock.geometry.second_superblock_at(tier)].into_iter().take(copies) {
            self.write_block(tier, at, |b| superblock.encode(b, at)).await?;
            self.flush(tier).await?;
        }
        Ok(())
    }

    pub(crate) async fn write_block(
        &self,
        tier: Tier,
        offset: u64,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), OpenError> {
        let written = self.io.write_block(tier, offset, fill).await;
        written.map_err(|e| self.device_error(tier, offset, e.errno))
    }

    pub(crate) async fn flush(&self, tier: Tier) -> Result<(), OpenError> {
        self.io.flush(tier).await.map_err(|e| self.device_error(tier, 0, e.errno))
    }
}

/// A volume at work, as it was read.
pub(crate) fn engine<A: Arena>(
    reader: &Reader<A>,
    recovered: Recovered,
    log_end: Seq,
    slots: ByTier<Slots>,
    (pins, Learnt { policy, copies }): (PinsRead, Learnt),
    options: OpenOptions,
) -> Engine<A> {
    let Recovered { superblocks, header, pages, state, log, unconfirmed } = recovered;
    let end = state.zone.pos(log.place, log.cursor);
    let [superblock, _] = superblocks;
    // What the stop before told is not told again by the next.
    let superblock = Superblock { hints: None, ..superblock };
    let tuning = options.tuning;
    let now = reader.io.now();
    let events = reader.unreadable.take().into_iter().map(|(tier, at)| Event {
        level: Level::Warning,
        message: format!(
            "{}: the metadata at byte {at} cannot be read; it is kept elsewhere too",
            reader.devices[usize::from(tier.0)].name
        ),
        error: None,
    });
    let spares = reader.bad_spares.take().into_iter().map(|(tier, at, what)| Event {
        level: Level::Warning,
        message: format!("{}: at byte {at}, {what}", reader.devices[usize::from(tier.0)].name),
        error: None,
    });
    let events = events.chain(spares);
    let pin_faults = pins.faults.iter().map(|(at, what)| Event {
        level: if pins.known { Level::Warning } else { Level::Error },
        message: format!("{}: the list of pins at byte {at} {what}", reader.devices[0].name),
        error: None,
    });
    let what = describe_unconfirmed(log_end.0, &unconfirmed);
    let tail = what.map(|message| Event { level: Level::Warning, message, error: None });
    let events = events.chain(pin_faults).chain(tail).collect();
    let mut arena = reader.io.take_arena();
    let spare = arena.alloc(Pool::Background, 2 * state.geo.chunk_bytes);
    let names = ByTier(std::array::from_fn(|i| reader.devices[i].name.clone()));
    Engine {
        io: Io::new(arena, now, tuning.rest_after_ns),
        space: Space::new(slots),
        front: Front::new(now),
        log: Log::new(&log, end, now),
        commit: Commit::default(),
        checkpoint: Checkpoint::new(header, pages),
        marks: None,
        mover: Mover::new(Planner::new(now), copies, spare),
        placement: Placement::new(&state.geo, &tuning, policy, pins, now),
        life: Life::begin(superblock),
        told: Told::new(names, events, now),
        wanted: Wanted::default(),
        state,
        tuning,
    }
}
