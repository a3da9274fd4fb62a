//! Lives without the slow device, in which the volume is written to. What is good then, and what was written since, is there
//! whenever it is opened again, alone or with both; the rest is an error until it is written, and is as it was when the slow device
//! comes back. No command goes to the device that is missing: the world sees to that.

use super::*;
use crate::client::Outcome;
use bimetal_engine::loss::{LossClass, LossRange, Losses};

/// What is known of such a life.
#[derive(Default)]
pub(super) struct Alone {
    /// What was lost when the volume was opened.
    losses: Losses,
    /// It said that there is no room.
    is_full: bool,
}

impl Run<'_> {
    /// One such life.
    pub(super) fn live_alone(&mut self, life: &Life) -> Result<(), String> {
        self.alone = Some(Alone::default());
        self.scrubs.rest(true);
        let result = self.lived_alone(life);
        self.scrubs.rest(false);
        self.alone = None;
        result.map_err(|what| format!("without the slow device: {what}"))
    }

    fn lived_alone(&mut self, life: &Life) -> Result<(), String> {
        let Some(mut engine) = self.begin(life)? else { return Ok(()) };
        self.world.services = life.services.to_vec();
        let stopped = self.work(&mut engine, life).inspect_err(|_| self.keep_events(&mut engine))?;
        self.stats.count("lived-without-slow");
        self.end_life(engine, life, stopped)
    }

    /// Reads all that is said to be good, and some of what is said to be lost.
    pub(super) fn verify_what_is_left(&mut self, engine: &mut Engine<SimArena>) -> Result<(), String> {
        let losses = engine.all_losses();
        let read =
            |offset, len| Op { kind: OpKind::Read, offset, len, fua: false, pause_ns: 0, drain: false };
        let (mut ops, mut at) = (Vec::new(), 0);
        let ends = LossRange { offset: self.plan.size_bytes, len: 0, class: LossClass::Lost };
        for range in losses.ranges.iter().chain([&ends]) {
            while at < range.offset {
                let len = range.offset.min((at / UNIT + 1) * UNIT) - at;
                ops.push(read(at, len));
                at += len;
            }
            at = range.offset + range.len;
        }
        if let Some(range) = losses.ranges.first() {
            ops.push(read(range.offset, range.len.min(UNIT)));
            self.stats.count("lost-without-slow");
        }
        self.alone = Some(Alone { losses, is_full: false });
        self.read_all(engine, &ops)
    }

    /// What failed while the slow device is missing was lost with it, or there was no room for it, which is told.
    pub(super) fn judge_alone(
        &mut self,
        engine: &mut Engine<SimArena>,
        outcomes: &[Outcome],
    ) -> Result<(), String> {
        let failed = outcomes.iter().filter(|outcome| !outcome.ok);
        let failed: Vec<Op> = failed.map(|outcome| outcome.op).collect();
        if self.alone.is_none() || failed.is_empty() {
            return Ok(());
        }
        self.keep_events(engine);
        let told = self.events.iter().any(|event| event.contains("the landing zone is full"));
        let alone = self.alone.as_mut().expect("it was there just now");
        alone.is_full |= told || engine.status().state == "read-only";
        for op in failed {
            let end = op.offset + op.len;
            let was_lost = |range: &LossRange| range.offset < end && op.offset < range.offset + range.len;
            let touches = alone.losses.ranges.iter().any(was_lost);
            let is_whole = [op.offset, op.len].iter().all(|n| n.is_multiple_of(SECTOR as u64));
            let may_fail = match op.kind {
                OpKind::Read => touches,
                _ => alone.is_full || touches && !is_whole,
            };
            if !may_fail {
                let stands = engine.where_all_stands();
                return Err(format!("{op} failed, and was not lost, nor was there no room: {stands}"));
            }
        }
        if alone.is_full {
            self.stats.count("full-without-slow");
        }
        Ok(())
    }
}
