//! What was written since anything was damaged: no damage of anything else is an excuse for not reading it.

use super::*;
use crate::client::Outcome;
use bimetal_units::BLOCK_BYTES;

/// In so many of these, sectors are written: what is left of blocks takes up the landing zone, and these are small.
const UNREADABLE_BLOCKS: usize = 6;
/// Of so many ranges that could not be read, each block is tried.
const UNREADABLE_UNITS: usize = 4;

/// When a sector's newest write was answered; none where that is not known to be after the last damage.
type Answered = Option<Nanos>;

/// The sectors that were written since the last damage.
#[derive(Default)]
pub(super) struct Fresh {
    answered: Vec<Answered>,
    /// Those of them that an answered flush covers.
    flushed: Vec<bool>,
    /// When something was damaged last while the volume was served.
    hurt_at: Nanos,
}

impl Fresh {
    /// Of a volume of so many bytes, with nothing written.
    pub(super) fn new(size_bytes: u64) -> Fresh {
        let sectors = (size_bytes / SECTOR as u64) as usize;
        Fresh { answered: vec![None; sectors], flushed: vec![false; sectors], hurt_at: Nanos(0) }
    }

    /// Something was damaged, or failed: which sectors it hit nobody knows.
    pub(super) fn clear(&mut self) {
        self.answered.fill(None);
        self.flushed.fill(false);
    }

    /// Something is damaged now, while the volume is served: of what was begun before, a part may have been written already.
    pub(super) fn hurt(&mut self, now: Nanos) {
        self.clear();
        self.hurt_at = now;
    }

    /// The machine died: what no flush covers may be what it was before.
    pub(super) fn crash(&mut self) {
        for (answered, flushed) in self.answered.iter_mut().zip(&self.flushed) {
            *answered = answered.filter(|_| *flushed);
        }
    }

    /// The volume was closed in order.
    pub(super) fn cover_all(&mut self) {
        for (answered, flushed) in self.answered.iter().zip(&mut self.flushed) {
            *flushed = answered.is_some();
        }
    }

    fn note(&mut self, outcome: &Outcome, now: Nanos) {
        let sector = SECTOR as u64;
        let Op { kind, offset, len, fua, .. } = outcome.op;
        match kind {
            OpKind::Write | OpKind::Zero if outcome.since > self.hurt_at => {
                for i in (offset.div_ceil(sector)..(offset + len) / sector).map(|i| i as usize) {
                    self.answered[i] = Some(now);
                    self.flushed[i] |= fua;
                }
            }
            OpKind::Flush => {
                for (answered, flushed) in self.answered.iter().zip(&mut self.flushed) {
                    *flushed |= answered.is_some_and(|at| at < outcome.since);
                }
            }
            OpKind::Write | OpKind::Zero | OpKind::Read | OpKind::Discard | OpKind::Prefer => {}
        }
    }

    /// Whether all sectors with any of these bytes were fresh by then: a read from before its write was answered may meet
    /// what was there.
    fn held(&self, offset: u64, len: u64, then: Nanos) -> bool {
        let sector = SECTOR as u64;
        let range = offset / sector..(offset + len).div_ceil(sector);
        len > 0 && range.map(|i| i as usize).all(|i| self.answered[i].is_some_and(|at| at < then))
    }

    /// Reads of all fresh sectors.
    fn reads(&self) -> Vec<Op> {
        let (sector, mut ops) = (SECTOR as u64, Vec::<Op>::new());
        for i in (0..self.answered.len() as u64).filter(|i| self.answered[*i as usize].is_some()) {
            let offset = i * sector;
            match ops.last_mut() {
                Some(op) if op.offset + op.len == offset && op.len < UNIT => op.len += sector,
                _ => {
                    let kind = OpKind::Read;
                    ops.push(Op { kind, offset, len: sector, fua: false, pause_ns: 0, drain: false });
                }
            }
        }
        ops
    }
}

impl Run<'_> {
    /// Whether nothing but damage from before is an excuse for an error now.
    pub(super) fn only_damage(&self) -> bool {
        let i = &self.world.injected;
        i.reads + i.writes + i.flushes + i.harmed() + i.vanished == 0 && !self.failed_while_opening
    }

    /// What was answered; a read of fresh sectors alone must not have failed.
    pub(super) fn judge(&mut self, outcomes: Vec<Outcome>) -> Result<(), String> {
        for outcome in outcomes {
            if outcome.ok {
                self.fresh.note(&outcome, self.world.now());
            } else if outcome.op.kind == OpKind::Read && self.damaged && self.only_damage() {
                let Op { offset, len, .. } = outcome.op;
                if self.fresh.held(offset, len, outcome.since) {
                    return Err(format!("{}: written since the damage, and cannot be read", outcome.op));
                }
                self.unreadable.push((offset, len));
            }
        }
        Ok(())
    }

    /// A device that reads nothing does so for as long as it was to, and what tries to read it meanwhile gives nothing up.
    pub(super) fn wait_blind(
        &mut self,
        engine: &mut Engine<SimArena>,
        client: &mut Client<'_>,
        life: &Life,
    ) -> Result<(), String> {
        let Some(blind) = life.storm.blind else { return Ok(()) };
        self.stats.count("device-blind");
        let end = self.world.now().after(blind.ns);
        while self.world.now() < end {
            // It is tried all the while.
            self.world.progress();
            let second = Nanos::SECOND.min(end.since(self.world.now()));
            self.lull(engine, client, second)?;
        }
        Ok(())
    }

    /// Sectors are written of blocks that cannot be read: chance seldom hits these.
    pub(super) fn write_beside_damage(&mut self, engine: &mut Engine<SimArena>) -> Result<(), String> {
        let units = std::mem::take(&mut self.unreadable);
        let at_most = |units: Vec<(u64, u64)>| units.into_iter().take(UNREADABLE_UNITS);
        let op = |kind, offset, len| Op { kind, offset, len, fua: false, pause_ns: 0, drain: true };
        let block = u64::from(BLOCK_BYTES);
        let blocks: Vec<Op> = at_most(units)
            .flat_map(|(offset, len)| (offset / block..(offset + len).div_ceil(block)).map(|b| b * block))
            .map(|offset| op(OpKind::Read, offset, block))
            .collect();
        self.drive(engine, &mut Client::new(&blocks, 8), None)?;
        let mut writes = Vec::new();
        for (offset, _) in std::mem::take(&mut self.unreadable).into_iter().take(UNREADABLE_BLOCKS) {
            let sector = self.rng.below(block / SECTOR as u64) * SECTOR as u64;
            writes.push(op(OpKind::Write, offset + sector, SECTOR as u64));
        }
        if !writes.is_empty() {
            self.stats.count("write-beside-damage");
            writes.push(op(OpKind::Flush, 0, 0));
            self.drive(engine, &mut Client::new(&writes, 8), None)?;
        }
        Ok(())
    }

    /// Nothing is under way any more: what is fresh is still there.
    pub(super) fn verify_fresh(&mut self, engine: &mut Engine<SimArena>) -> Result<(), String> {
        if !self.damaged {
            return Ok(());
        }
        let ops = self.fresh.reads();
        self.stats.verified_bytes += ops.iter().map(|op| op.len).sum::<u64>();
        let mut client = Client::new(&ops, 8);
        let flow = self.drive(engine, &mut client, None)?;
        assert!(flow == Flow::Quiet, "nothing crashes while verifying");
        Ok(())
    }
}
