//! Draws lives in which two faults meet: what one leaves is made likely, and the other waits for it.

use super::*;
use crate::plan::Pair;
use bimetal_engine::moments::Moment;

const PAIRS: u64 = 17;
/// Operations that are as in the life before, in this many.
const REVISITED: u64 = 3;

/// What a seed is after.
#[derive(Clone, Copy)]
enum Theme {
    /// Blocks are lost, and written to in part.
    Losses,
    /// The log fails, and what waits for it is appended again.
    Fences,
    /// Homes are torn while parts are merged into them.
    TornHomes,
    /// Raising the generation is interrupted again and again.
    Raises,
    /// Checkpoints fail between header and flush.
    Headers,
    /// Much is written before each flush, and decays.
    Bursts,
}

/// Gives the lives their pairs.
pub(super) fn draw(plan: &Plan, lives: &mut [Life]) {
    let mut rng = Rng::new(plan.seed, PAIRS);
    if !rng.one_in(4) {
        return;
    }
    use Theme::{Bursts, Fences, Headers, Losses, Raises, TornHomes};
    let theme = rng.pick(&[Losses, Losses, Fences, TornHomes, TornHomes, Raises, Headers, Bursts]);
    for i in 0..lives.len() {
        let (before, rest) = lives.split_at_mut(i);
        let (life, before) = (&mut rest[0], before.last());
        match theme {
            Losses => losses(&mut rng, life, before),
            Fences => fences(&mut rng, plan, life),
            TornHomes if i % 2 == 1 => said_again(&mut rng, plan, life),
            TornHomes => torn_homes(&mut rng, plan, life, before),
            Raises => raises(&mut rng, life),
            Headers => headers(&mut rng, life),
            Bursts => bursts(&mut rng, plan, life),
        }
    }
}

fn crash_at(rng: &mut Rng, moment: Moment) -> Option<Pair> {
    let ns = rng.pick(&[0, MS, 100 * MS]);
    rng.one_in(2).then(|| Pair { moment, rates: FaultRates::default(), ns })
}

/// Many operations go where those of the life before went, most of them on parts of blocks.
fn revisit(rng: &mut Rng, life: &mut Life, before: &Life) {
    let writes: Vec<Op> = before.ops.iter().filter(|op| op.kind == OpKind::Write).copied().collect();
    if writes.is_empty() {
        return;
    }
    for op in &mut life.ops {
        if !matches!(op.kind, OpKind::Read | OpKind::Write) || rng.below(REVISITED) == 0 {
            continue;
        }
        let old = rng.pick(&writes);
        (op.offset, op.len) = (old.offset, old.len);
        if op.kind == OpKind::Write && rng.one_in(2) {
            op.offset = old.offset / 512 * 512 + 512 * rng.below(old.len.div_ceil(512));
            op.len = 512;
        }
    }
}

fn losses(rng: &mut Rng, life: &mut Life, before: Option<&Life>) {
    life.decays = life.decays.max(rng.range(1, 3) as u32);
    life.decay_payload = true;
    if let Some(before) = before {
        revisit(rng, life, before);
        // Time to find what is lost, and to give it up.
        for _ in 0..2 {
            let at = rng.below((life.ops.len() as u64 / 3).max(1)) as usize;
            if let Some(op) = life.ops.get_mut(at) {
                (op.pause_ns, op.drain) = (4000 * MS, true);
            }
        }
    }
    life.pair =
        crash_at(rng, Moment::LostBlock).filter(|_| rng.one_in(2)).or(crash_at(rng, Moment::LossUnderWay));
}

/// Whole chunks are written, discarded and flushed, beside small writes, while the log fails.
fn fences(rng: &mut Rng, plan: &Plan, life: &mut Life) {
    life.rates.writes = rng.pick(&[4, 10, 30]);
    life.depth = life.depth.max(8);
    let chunk = u64::from(plan.geometry.chunk_bytes);
    let chunks = plan.size_bytes / chunk;
    let mut at = rng.below(chunks);
    for ops in life.ops.chunks_exact_mut(8) {
        let range =
            |kind, at, len| Op { kind, offset: at * chunk, len, fua: false, pause_ns: 0, drain: false };
        match rng.below(3) {
            // A stream, the last chunk of which is discarded.
            0 => {
                for op in &mut ops[..3] {
                    at = (at + 1) % chunks;
                    *op = range(OpKind::Write, at, chunk);
                }
                ops[4] = range(OpKind::Discard, at, chunk);
                ops[6] = range(OpKind::Flush, 0, 0);
            }
            // All that a flush would have to show is discarded, and nothing else comes until it is answered.
            1 => {
                let other = (at + 1 + rng.below(chunks - 1)) % chunks;
                ops[0] = Op { drain: true, ..range(OpKind::Write, at, chunk) };
                ops[1..4].fill(range(OpKind::Write, other, 4096));
                ops[4] = range(OpKind::Discard, at, chunk);
                ops[5] = range(OpKind::Flush, 0, 0);
                ops[6].drain = true;
            }
            _ => {}
        }
    }
    let rates = FaultRates { writes: rng.pick(&[1, 2, 4]), ..FaultRates::default() };
    let moment = rng.pick(&[Moment::Fence, Moment::DiscardAwaited]);
    life.pair = rng.one_in(2).then(|| Pair { moment, rates, ns: rng.pick(&[0, MS, 20 * MS, 300 * MS]) });
}

/// A part of one of a seed's few blocks that parts are written of.
fn part(rng: &mut Rng, plan: &Plan) -> (u64, u64) {
    let mut of_seed = Rng::new(plan.seed, PAIRS + 1);
    let sectors = plan.size_bytes / 512;
    let span = of_seed.pick(&[32, 64, 512]).min(sectors);
    let base = of_seed.below((sectors - span) / 8 + 1) * 8;
    let offset = (base + rng.below(span)) * 512;
    (offset, (512 * rng.range(1, 5)).min(plan.size_bytes - offset))
}

/// Limits under which what is on the slow tier stays there.
fn nothing_rises(plan: &Plan) -> Tuning {
    Tuning { wear_bytes_per_day: Some(0), promote_touches: 1000, ..plan.tuning.clone() }
}

/// Parts of the same blocks as in the life before land until the log has left behind all that was before; nothing is merged that need
/// not be, and the volume is closed.
fn said_again(rng: &mut Rng, plan: &Plan, life: &mut Life) {
    for op in &mut life.ops {
        if !matches!(op.kind, OpKind::Read | OpKind::Flush) {
            let (offset, len) = part(rng, plan);
            *op = Op { kind: OpKind::Write, offset, len, ..*op };
        }
    }
    let tuning = Tuning { idle_after_ns: 3_600_000 * MS, ..nothing_rises(plan) };
    life.limits = Some(Box::new(Limits { tuning, arena: plan.arena }));
    (life.when, life.death, life.hunt, life.calm) = (When::Stopping, None, None, false);
    (life.rates, life.twice) = (FaultRates::default(), None);
}

/// Parts of a few blocks are written, again and again, beside other things; merges of them are torn.
fn torn_homes(rng: &mut Rng, plan: &Plan, life: &mut Life, before: Option<&Life>) {
    for op in &mut life.ops {
        if op.kind == OpKind::Write && rng.one_in(3) {
            (op.offset, op.len) = part(rng, plan);
        }
    }
    life.limits = Some(Box::new(Limits { tuning: nothing_rises(plan), arena: plan.arena }));
    if before.is_none() {
        // Most chunks have their homes on the slow tier then.
        let mut first = Vec::new();
        fill(&mut first, rng, plan.size_bytes, u64::from(plan.geometry.chunk_bytes), life.ops.len() / 2);
        life.ops.splice(..first.len(), first.iter().copied());
    }
    if let Some(before) = before.filter(|_| rng.one_in(3)) {
        revisit(rng, life, before);
    }
    let pauses = rng.one_in(2);
    let at = rng.below(MIN_ANSWERS / 2) as usize;
    if let Some(op) = life.ops.get_mut(at).filter(|_| pauses) {
        (op.pause_ns, op.drain) = (600 * MS, true);
    }
    match rng.below(4) {
        // A merge is torn, and nothing else fails.
        0 => (life.rates.writes, life.pair) = (rng.pick(&[6, 20]), None),
        1 => life.pair = crash_at(rng, Moment::TornHome),
        _ => (life.when, life.hunt) = (When::Busy, Some(Stage::MoveWrite)),
    }
    if life.death.is_some() && rng.one_in(2) {
        life.death = Some(Death::PowerCut(rng.pick(&[CutStyle::Sectors, CutStyle::Mixed])));
    }
}

fn raises(rng: &mut Rng, life: &mut Life) {
    // Always near the same step: what one leaves is what the next one finds.
    let (count, step) = (rng.below(4), rng.below(26));
    life.opening.raises = (0..count).map(|_| ((step + rng.below(3)) as u32, death(rng))).collect();
}

fn headers(rng: &mut Rng, life: &mut Life) {
    let often = rng.pick(&[1, 2]);
    let rates = match rng.below(3) {
        0 => FaultRates { writes: often, ..FaultRates::default() },
        1 => FaultRates { flushes: often, ..FaultRates::default() },
        _ => FaultRates::default(),
    };
    let pair = Pair { moment: Moment::HeaderUnflushed, rates, ns: rng.pick(&[0, MS / 4, 5 * MS, 1500 * MS]) };
    life.pair = rng.one_in(2).then_some(pair);
}

/// No flush but one, after several segments, and then the end.
fn bursts(rng: &mut Rng, plan: &Plan, life: &mut Life) {
    let size = plan.size_bytes;
    let len = (64 << 10).min(size);
    life.decays = life.decays.max(2);
    (life.when, life.hunt) = (When::Busy, None);
    let flush = life.after as usize - 4;
    for (i, op) in life.ops.iter_mut().enumerate() {
        let random = rng.below(size - len + 1) / 4096 * 4096;
        let short = len - 4096 * rng.below(8).min(len / 4096 - 1);
        match op.kind {
            OpKind::Flush => (op.kind, op.offset, op.len) = (OpKind::Read, random, short),
            OpKind::Write if i < flush => (op.offset, op.len, op.fua) = (random, short, false),
            _ => op.fua = false,
        }
    }
    if let Some(op) = life.ops.get_mut(flush) {
        *op = Op { kind: OpKind::Flush, offset: 0, len: 0, fua: false, pause_ns: 0, drain: true };
    }
    life.points = rng.below(40) as u32;
}
