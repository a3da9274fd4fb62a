//! What would be left if the slow device were missing: at the end of a life, or of an attempt to open the volume, it is
//! opened from the fast device alone. That must succeed wherever both together open, show no wrong byte, have an answer for
//! all that both together would read without the slow device and an error at once for the rest, and write nothing.
//!
//! It is done on copies of the devices, in a world of its own, so that whatever else a seed does stays as it was.

use super::*;
use bimetal_engine::Machine as _;
use bimetal_engine::action::{Request, RequestError, RequestKind};
use bimetal_engine::arena::Arena as _;
use bimetal_engine::extents::Placement;
use bimetal_engine::loss::{LossClass, LossRange, Losses, Suspects};
use bimetal_units::SLOW;
use std::ops::Range;

const BLOCK: u64 = 4096;
const SECTOR_BYTES: u64 = SECTOR as u64;
/// So long nothing may come of a volume that nobody asks for anything.
const LULL_NS: u64 = 7200 * Nanos::SECOND;

/// A volume that is looked at.
pub(super) struct Look {
    pub(super) world: World,
    pub(super) engine: Engine<SimArena>,
}

impl Look {
    /// Opens it on these devices, in whichever way.
    pub(super) fn open(
        mut world: World,
        mut task: Task<SimArena, Result<Engine<SimArena>, OpenError>>,
    ) -> Result<Result<Look, OpenError>, String> {
        loop {
            world.pump(&mut task)?;
            if let Some(result) = task.take_result() {
                return Ok(result.map(|engine| Look { world, engine }));
            }
            world.advance(&mut task, Nanos(u64::MAX))?;
        }
    }

    /// Asks for something, and waits for the answer: with what was read.
    pub(super) fn ask(&mut self, kind: RequestKind, offset: u64, len: u64) -> Result<Answer, String> {
        let start = offset / BLOCK * BLOCK;
        let around = ((offset + len).next_multiple_of(BLOCK) - start) as u32;
        let payload = matches!(kind, RequestKind::Read | RequestKind::Write { .. });
        let buf = match payload {
            true => self.engine.with_arena(|a| a.alloc(Pool::Client, around)),
            false => None,
        };
        if payload && buf.is_none() {
            return Err(format!("no buffer for {kind:?} {offset}+{len}"));
        }
        let id = self.world.request_id();
        self.engine.on_request(self.world.now(), Request { id, kind, offset, len, buf });
        let limit = self.world.now().after(STUCK_NS);
        let result = loop {
            self.world.pump(&mut self.engine)?;
            if let Some(place) = self.world.replies.iter().position(|(of, _)| *of == id) {
                break self.world.replies.swap_remove(place).1;
            }
            if self.world.now() >= limit {
                return Err(format!("stuck: {kind:?} {offset}+{len} has no answer"));
            }
            self.world.advance(&mut self.engine, limit)?;
        };
        let from = (offset - start) as usize;
        let data = buf.map(|buf| {
            self.engine.with_arena(|a| {
                let data = a.payload(buf)[from..from + len as usize].to_vec();
                a.free(buf);
                data
            })
        });
        Ok(result.map(|()| data.unwrap_or_default()))
    }
}

pub(super) type Answer = Result<Vec<u8>, RequestError>;

impl Run<'_> {
    /// Opens the volume without the slow device and looks at all of it; then holds that against what both devices together say.
    pub(super) fn look_without_slow(&mut self) -> Result<(), String> {
        let task = bimetal_engine::open_degraded(
            self.arena(),
            self.devices(),
            SLOW,
            self.options(),
            Suspects::Refused,
        );
        let mut world = World::new(self.world.disks.clone(), self.plan.seed);
        (world.read_only, world.missing) = (true, Some(usize::from(SLOW.0)));
        let alone = |what| format!("without the slow device: {what}");
        let losses = match Look::open(world, task).map_err(alone)? {
            Ok(look) => Ok(self.look_at_what_is_left(look).map_err(alone)?),
            Err(error) => Err(error),
        };
        let task = bimetal_engine::open(self.arena(), self.devices(), self.options());
        let world = World::new(self.world.disks.clone(), self.plan.seed);
        match (Look::open(world, task)?, losses) {
            (Ok(mut both), Ok(losses)) => {
                self.stats.count("looked-without-slow");
                agree(&mut both, &losses, self.damaged).map_err(alone)
            }
            (Ok(_), Err(error)) => Err(alone(format!("refused, and both devices together open: {error}"))),
            (Err(_), _) => Ok(()),
        }
    }

    /// Reads all of it, tries to change something, lets time pass and closes it; gives what it says is lost.
    fn look_at_what_is_left(&self, mut look: Look) -> Result<Losses, String> {
        let losses = look.engine.all_losses();
        let size = look.engine.size_bytes();
        let (lost, told) = (losses.bytes(LossClass::Lost), look.engine.loss().cloned());
        if told.is_none_or(|told| (told.lost_bytes, told.good_bytes) != (lost, size - lost)) {
            return Err(format!("it says that other bytes are lost than {lost}"));
        }
        let mut at = 0;
        for range in &losses.ranges {
            if range.offset < at || range.len == 0 || range.offset + range.len > size {
                return Err(format!("losses are not in order, or not in the volume: {range:?} behind {at}"));
            }
            look.read_what_is_good(&self.model, self.damaged, at..range.offset)?;
            read_what_is_lost(&mut look, range)?;
            at = range.offset + range.len;
        }
        look.read_what_is_good(&self.model, self.damaged, at..size)?;
        let refused = Err(RequestError::ReadOnly);
        for (kind, len, expected) in [
            (RequestKind::Write { fua: true }, BLOCK, refused.clone()),
            (RequestKind::Discard { fua: true }, size, refused.clone()),
            (RequestKind::WriteZeroes { fua: false }, 5, refused),
            (RequestKind::Flush, 0, Ok(Vec::new())),
        ] {
            let answer = look.ask(kind, 0, len)?;
            if answer != expected {
                return Err(format!("{kind:?} is answered with {answer:?}"));
            }
        }
        look.rest_and_close()?;
        same(&self.world.disks[0], &look.world.disks[0]).map(|()| losses)
    }
}

impl Look {
    /// Reads a stretch that is said to be good: an error needs an excuse, and each sector must be one that the model allows.
    pub(super) fn read_what_is_good(
        &mut self,
        model: &Model,
        is_excused: bool,
        stretch: Range<u64>,
    ) -> Result<(), String> {
        let mut at = stretch.start;
        while at < stretch.end {
            let end = stretch.end.min((at / UNIT + 1) * UNIT);
            match self.ask(RequestKind::Read, at, end - at)? {
                Ok(data) => model.may_be_found(at, &data).map_err(|mismatch| mismatch.to_string())?,
                Err(_) if is_excused => {}
                Err(error) => return Err(format!("\"{error}\" for {at}+{}, which is good", end - at)),
            }
            at = end;
        }
        Ok(())
    }

    /// Nothing comes of it by itself, and it closes with all buffers given back.
    pub(super) fn rest_and_close(&mut self) -> Result<(), String> {
        let until = self.world.now().after(LULL_NS);
        while self.world.now() < until {
            self.world.advance(&mut self.engine, until)?;
            self.world.pump(&mut self.engine)?;
            if self.world.busy() {
                return Err("it uses a device though nobody asks for anything".into());
            }
        }
        self.engine.begin_shutdown(until);
        self.world.pump(&mut self.engine)?;
        if !self.engine.is_stopped() || self.world.busy() {
            return Err("it does not stop at once".into());
        }
        Ok(())
    }
}

/// What is said to be lost is an error, as a whole and at its ends.
pub(super) fn read_what_is_lost(look: &mut Look, range: &LossRange) -> Result<(), String> {
    let LossRange { offset, len, .. } = *range;
    let ends = [offset, offset + len - SECTOR_BYTES].map(|at| (at, SECTOR_BYTES));
    for (at, len) in ends.into_iter().chain([(offset, len.min(UNIT))]) {
        let answer = look.ask(RequestKind::Read, at, len)?;
        if answer != Err(RequestError::Io) {
            return Err(format!(
                "{at}+{len} is said to be lost, and is answered with {:?}",
                answer.map(drop)
            ));
        }
    }
    Ok(())
}

/// Whether what is lost without the slow device is just what both devices together have to ask it for, and what was lost
/// before. They are asked before anything moves.
fn agree(both: &mut Look, losses: &Losses, damaged: bool) -> Result<(), String> {
    let size = both.engine.size_bytes();
    let mut partly = Vec::new();
    let mut at = 0;
    while at < size {
        let extents = both.engine.extents(at, size - at, 64);
        for extent in &extents {
            let (end, lost) = (at + extent.len, lost_in(losses, at, at + extent.len));
            let as_told = match extent.place {
                Placement::Hole => lost == 0,
                Placement::Home(tier) => lost == if tier == SLOW { extent.len } else { 0 },
                Placement::Landed => {
                    partly.extend(blocks(at, end).filter(|at| lost_in(losses, *at, at + BLOCK) > 0));
                    true
                }
                Placement::Lost => blocks(at, end).all(|at| lost_in(losses, at, at + BLOCK) > 0),
            };
            if !as_told {
                return Err(format!(
                    "{lost} bytes of {at}+{} are lost: both have it {:?}",
                    extent.len, extent.place
                ));
            }
            at = end;
        }
    }
    // Of blocks of which a part landed, what landed can be read though the slow device reads nothing.
    both.world.blind[usize::from(SLOW.0)] = true;
    for sector in partly.into_iter().flat_map(|at| (at..at + BLOCK).step_by(SECTOR)) {
        let lost = lost_in(losses, sector, sector + SECTOR_BYTES) > 0;
        let answer = both.ask(RequestKind::Read, sector, SECTOR_BYTES)?;
        if answer.is_err() != lost && !(answer.is_err() && damaged) {
            return Err(format!(
                "sector at {sector}: lost is {lost}, and with both it is {:?}",
                answer.map(drop)
            ));
        }
    }
    Ok(())
}

fn blocks(from: u64, to: u64) -> impl Iterator<Item = u64> {
    (from / BLOCK..to.div_ceil(BLOCK)).map(|block| block * BLOCK)
}

/// Bytes of a stretch that are lost.
fn lost_in(losses: &Losses, from: u64, to: u64) -> u64 {
    let first = losses.ranges.partition_point(|range| range.offset + range.len <= from);
    let inside = losses.ranges[first..].iter().take_while(|range| range.offset < to);
    inside.map(|range| to.min(range.offset + range.len) - from.max(range.offset)).sum()
}

/// Whether a device is as it was, byte for byte.
pub(super) fn same(was: &Disk, is: &Disk) -> Result<(), String> {
    let (mut old, mut new) = ([0; PAGE_BYTES], [0; PAGE_BYTES]);
    for page in 0..was.size_bytes() / PAGE {
        was.peek(page, &mut old);
        is.peek(page, &mut new);
        if old != new {
            return Err(format!("byte {} of the device that is left was changed", page * PAGE));
        }
    }
    Ok(())
}
