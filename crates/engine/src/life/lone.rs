//! Opens a volume of which a device is missing, so that what the other one has can be read and the rest is an error at once; and
//! one that somebody only looks at.
//!
//! Recovery is that of any opening. But nothing is written to any device: no generation is raised, the log is not ended, bad
//! copies are not made good, and the engine that is handed over begins in the state that others fail into, so that nothing
//! moves, is checkpointed, discarded, or marked at closing. So there is nothing in it that a crash could cut short, and the
//! volume is as it was when the missing device comes back.
//!
//! Unless somebody wants to write without the slow device: then the fast one is opened as ever, and says what was left behind.
//! What is at home on the slow device stays where it is, and is written beside, as long as there is room.

use crate::api::action::{RequestError, RequestKind};
use crate::api::coverage::Stage;
use crate::api::loss::{Loss, LossClass, Suspects};
use crate::api::options::{DeviceInfo, OpenError, OpenOptions};
use crate::base::arena::Arena;
use crate::base::bugs::{Bug, planted};
use crate::engine::Engine;
use crate::format::superblock::{OpenState, Superblock};
use crate::life::health::Life;
use crate::life::hints::Learnt;
use crate::life::open;
use crate::life::recovery::Reader;
use crate::life::salvage;
use crate::life::task::{Task, TaskIo};
use bimetal_units::*;

/// Opens a volume without one of its devices, read-only, and writes nothing. `devices` are both, in tier order; of the
/// missing one only the name counts. Where that is the fast one, the volume must have marks, and what may be stale is read
/// only where `suspects` says so.
pub fn open_degraded<A: Arena + 'static>(
    arena: A,
    devices: Vec<DeviceInfo>,
    missing: Tier,
    options: OpenOptions,
    suspects: Suspects,
) -> Task<A, Result<Engine<A>, OpenError>> {
    Task::new(arena, move |io| async move {
        open::must_be_two(&devices)?;
        let reader = Reader::without(io, devices, missing);
        if missing == FAST {
            return salvage::open_slow(&reader, options, suspects).await;
        }
        let mut engine = as_it_is(&reader, options).await?;
        engine.life = Life::without(engine.life.superblock.clone(), missing);
        engine.count_losses(missing, None);
        Ok(engine)
    })
}

/// Opens a volume without its slow device, to be written to. `devices` are both, in tier order; of the slow one only the name
/// counts. From then on the slow device takes part again only as it was left.
pub fn open_alone<A: Arena + 'static>(
    arena: A,
    devices: Vec<DeviceInfo>,
    options: OpenOptions,
) -> Task<A, Result<Engine<A>, OpenError>> {
    Task::new(arena, move |io| async move {
        open::must_be_two(&devices)?;
        let mut engine = open::at_work(Reader::without(io, devices, SLOW), options).await?;
        engine.life.goes_alone();
        engine.count_losses(SLOW, None);
        Ok(engine)
    })
}

/// Opens a volume to look at it: nothing is written, and nothing ever will be by the engine that is handed over.
pub fn open_to_look<A: Arena + 'static>(
    arena: A,
    devices: Vec<DeviceInfo>,
    options: OpenOptions,
) -> Task<A, Result<Engine<A>, OpenError>> {
    Task::new(arena, move |io| to_look(io, devices, options))
}

/// Opens the image of a volume whose fast device is missing, read-only: both devices as they were then. What stands before them
/// knows where they are, and writes nothing.
pub fn open_image<A: Arena + 'static>(
    arena: A,
    devices: Vec<DeviceInfo>,
    as_of_unix_s: u64,
    options: OpenOptions,
) -> Task<A, Result<Engine<A>, OpenError>> {
    Task::new(arena, move |io| async move {
        let mut engine = to_look(io, devices, options).await?;
        engine.count_losses(FAST, Some(as_of_unix_s));
        Ok(engine)
    })
}

/// With both devices, and nothing will be written.
async fn to_look<A: Arena>(
    io: TaskIo<A>,
    devices: Vec<DeviceInfo>,
    options: OpenOptions,
) -> Result<Engine<A>, OpenError> {
    open::must_be_two(&devices)?;
    let mut engine = as_it_is(&Reader::new(io, devices), options).await?;
    engine.life.fail(None);
    Ok(engine)
}

/// What recovery finds, with nothing written. Whoever gets it has to see to it that nothing will be.
async fn as_it_is<A: Arena>(reader: &Reader<A>, options: OpenOptions) -> Result<Engine<A>, OpenError> {
    let mut recovered = reader.recover(&options).await?;
    recovered.state.zone.rest_is_free();
    let slots = reader.used_slots(&recovered.state)?;
    let pins = reader.pins(&recovered.superblocks[0].volume, recovered.state.geo.chunks).await?;
    reader.io.stage(Stage::OpenReplay);
    let clean = recovered.superblocks[0].state == OpenState::Clean;
    let bad_copies = reader.bad_copies.borrow().clone();
    if planted(Bug::DegradedEndsLog) {
        reader.end_log(&mut recovered, false).await?;
    }
    let log_end = recovered.log.last;
    let told = reader.copies_told(&bad_copies);
    let learnt = Learnt::nothing(&recovered.state.geo, &options.tuning);
    let mut engine = open::engine(reader, recovered, log_end, slots, (pins, learnt), options);
    engine.told.stats.recovered = !clean;
    told.into_iter().for_each(|e| engine.told.event(e.level, e.message, e.error));
    Ok(engine)
}

/// Stands for the superblock of a device that is missing: the other one's is as new as any, and has the same layout.
pub(crate) fn stands_for(missing: Tier, other: &Superblock) -> Superblock {
    Superblock { tier: missing, ..other.clone() }
}

impl<A: Arena> Engine<A> {
    /// Whether the slow device is missing, so that nothing is asked of it, and nothing is put there.
    pub(crate) fn lacks_slow(&self) -> bool {
        self.life.is_missing(SLOW)
    }

    /// How much was left of a volume when it was opened while a device was missing; none of one that was opened with both.
    pub fn loss(&self) -> Option<&Loss> {
        self.life.loss()
    }

    /// A device is missing: what is left is counted once.
    pub(crate) fn count_losses(&mut self, missing: Tier, as_of_unix_s: Option<u64>) {
        let (mut lost_bytes, mut suspect_bytes, mut next) = (0, 0, Some(0));
        while let Some(from) = next {
            let losses = self.losses(from);
            lost_bytes += losses.bytes(LossClass::Lost);
            suspect_bytes += losses.bytes(LossClass::Suspect);
            next = losses.next;
        }
        let good_bytes = self.size_bytes() - lost_bytes - suspect_bytes;
        let writable = self.life.is_alone();
        self.life.lost(Loss { missing, as_of_unix_s, good_bytes, lost_bytes, suspect_bytes, writable });
    }

    /// What a request that changes something is answered at once, if it is not to be admitted.
    pub(crate) fn refuse_change(&self, kind: RequestKind) -> Option<Result<(), RequestError>> {
        match kind {
            RequestKind::Read => None,
            // Nothing was ever acknowledged in this opening that a flush could cover.
            RequestKind::Flush
                if self.life.loss().is_some()
                    && (!self.life.is_alone() || planted(Bug::AloneFlushAnswered)) =>
            {
                Some(Ok(()))
            }
            _ => self.life.is_read_only().then_some(Err(RequestError::ReadOnly)),
        }
    }
}
