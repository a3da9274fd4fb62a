//! Draws plans from seeds, swarm-fashion: each life leaves out most of what is possible, so that
//! what is left happens often enough to meet itself.

mod alone;
mod export;
mod image;
mod marks;
mod pairs;
mod storm;
mod successor;
mod wide;

use super::plan::{Geometry, Life, Limits, Op, OpKind, Opening, Plan, When};
use crate::arena::ArenaSizes;
use crate::disk::CutStyle;
use crate::world::{Death, FaultRates, Service};
use bimetal_engine::coverage::Stage;
use bimetal_engine::options::{Marking, Tuning};
use bimetal_units::Nanos;
use bimetal_units::rng::Rng;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// Where it is drawn which lives are looked at without the slow device.
const LONE_STREAM: u64 = 0x6c6f_6e65;
/// One life in so many is.
const LONE_ONE_IN: u32 = 12;
/// The same where devices are lost all the time: with those that are looked at without the fast device about half.
const LOST_ONE_IN: u32 = 4;
/// Operations that are answered before a crash, at least.
pub const MIN_ANSWERS: u64 = 200;

/// What is drawn from a seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Kind {
    /// Whatever the seed has.
    #[default]
    Any,
    /// Nothing, unless the slow device is an export.
    Exports,
    /// One of two disks is lost before every second opening.
    Losses,
    /// The volume has an image on its slow disk.
    Images,
    /// Other disks take the place of its own.
    Replacements,
}

impl Kind {
    /// The one with this name.
    pub fn named(name: &str) -> Option<Kind> {
        match name {
            "exports" => Some(Kind::Exports),
            "losses" => Some(Kind::Losses),
            "images" => Some(Kind::Images),
            "replacements" => Some(Kind::Replacements),
            _ => None,
        }
    }

    /// What a seed makes of it, if anything.
    pub fn plan(self, seed: u64) -> Option<Plan> {
        match self {
            Kind::Any => Some(plan(seed)),
            Kind::Exports => Some(plan(seed)).filter(|plan| plan.export.is_some()),
            Kind::Losses => Some(with_losses(seed)),
            Kind::Images => Some(with_images(seed)),
            Kind::Replacements => Some(with_replacements(seed)),
        }
    }
}

/// Draws the volume that a seed makes; its lives are drawn when its size is known.
pub fn plan(seed: u64) -> Plan {
    marks::plan(Plan { export: export::draw(seed), ..plain(seed) })
}

/// The same on two disks, of which the slow one describes itself, and one is lost before every second opening.
pub fn with_losses(seed: u64) -> Plan {
    marks::plan(Plan { losses: true, ..plain(seed) })
}

/// The same on two disks, of which the slow one has an image of the volume, for the loss of the fast one.
pub fn with_images(seed: u64) -> Plan {
    let plain = plain(seed);
    let protect = image::protect(seed, plain.geometry.chunk_bytes);
    marks::plan(Plan { latent: false, protect: Some(protect), ..plain })
}

/// The same on two disks, of which others take the place, one after the other; with an image, or without.
pub fn with_replacements(seed: u64) -> Plan {
    let plan = if successor::is_protected(seed) { with_images(seed) } else { marks::plan(plain(seed)) };
    Plan { latent: false, replaces: true, ..plan }
}

/// The same on two disks, of which the slow one does not describe itself.
pub fn plain(seed: u64) -> Plan {
    let mut rng = Rng::new(seed, 1);
    let geometry = wide::large(seed, roomy(seed, geometry(&mut rng)));
    let geometry = Geometry { refs_per_page: wide::refs_per_page(seed), ..geometry };
    let chunk = geometry.chunk_bytes;
    let tight = rng.one_in(4);
    let lending = [(1, 0), (1, 0), (4, 60 * Nanos::SECOND)];
    let (kept_from_copies, lend_after_ns) = Rng::new(seed, 9).pick(&lending);
    Plan {
        seed,
        geometry,
        tuning: Tuning {
            wear_bytes_per_day: wear_budget(seed, chunk),
            push_worth: Rng::new(seed, 8).pick(&[0, 0, 4]),
            kept_from_copies,
            lend_after_ns,
            ..tuning(&mut rng, chunk)
        },
        arena: wide::memory(&geometry, tight, (8 * chunk).max(4 << 20)),
        poison_all: rng.one_in(8),
        latent: rng.one_in(16),
        losses: false,
        replaces: false,
        protect: None,
        export: None,
        size_bytes: 0,
        lives: Vec::new(),
    }
}

fn geometry(rng: &mut Rng) -> Geometry {
    let chunk_bytes: u32 = match rng.below(20) {
        0..=14 => 64 << 10,
        15..=18 => 128 << 10,
        _ => 256 << 10,
    };
    let chunk = u64::from(chunk_bytes);
    // A size of one chunk is refused, and then becomes the least that is not, plus the slack.
    let least = |rng: &mut Rng, many: u64| if rng.one_in(3) { 1 } else { rng.range(8, many) };
    let fast_bytes = least(rng, 48) * chunk;
    // A long slow tier now and then, so that its checksums take more pages than are cached.
    let slow_bytes = if rng.one_in(8) { rng.range(64, 200) } else { least(rng, 64) } * chunk;
    let landing_bytes = match rng.below(4) {
        0 => None,
        1 => Some(chunk),
        _ => Some(rng.range(2, 12) * chunk),
    };
    let area_bytes = match rng.below(4) {
        0 | 1 => None,
        _ => Some(chunk_bytes << rng.below(3)),
    };
    let slack_bytes = rng.below(3) * rng.below(6) * chunk;
    Geometry {
        chunk_bytes,
        fast_bytes,
        slow_bytes,
        landing_bytes,
        area_bytes,
        slack_bytes,
        refs_per_page: None,
        marking: Marking::Off,
    }
}

/// Now and then so long a slow tier that half of what nothing is in is more than the landing zone grows to. With a
/// generator of its own, so that the other draws of a seed do not depend on it.
fn roomy(seed: u64, drawn: Geometry) -> Geometry {
    let mut rng = Rng::new(seed, 7);
    if !rng.one_in(10) {
        return drawn;
    }
    let chunk_bytes = 64 << 10;
    let chunk = u64::from(chunk_bytes);
    Geometry {
        chunk_bytes,
        fast_bytes: rng.range(40, 80) * chunk,
        slow_bytes: rng.range(300, 600) * chunk,
        landing_bytes: Some(rng.range(2, 12) * chunk),
        area_bytes: None,
        ..drawn
    }
}

fn tuning(rng: &mut Rng, chunk: u32) -> Tuning {
    let chunk = u64::from(chunk);
    Tuning {
        slow_unflushed_bytes: rng.pick(&[chunk, 4 * chunk, 1 << 20, 64 << 20]),
        pending_chunks: rng.pick(&[1, 2, 4, 16, 4096]),
        commit_interval_ns: rng.pick(&[MS / 2, 5 * MS, 50 * MS, 1000 * MS]),
        idle_after_ns: rng.pick(&[100 * US, MS, 10 * MS, 500 * MS]),
        batch_chunks: rng.pick(&[1, 2, 8, 64]),
        background_depth: rng.pick(&[1, 2, 8, 32]),
        busy_share: rng.pick(&[1, 2, 10]),
        recent_checksums: rng.pick(&[16, 64, 512, 4096]),
        checksum_cache_pages: rng.pick(&[1, 2, 8, 64]),
        promote_touches: rng.pick(&[1, 1, 2, 3]),
        touch_ns: rng.pick(&[0, US, MS, 100 * MS]),
        small_write_bytes: rng.pick(&[0, 4 << 10, 32 << 10, 1 << 20]),
        groups_in_flight: rng.pick(&[1, 2, 4, 8]),
        rest_after_ns: rng.pick(&[0, MS, 50 * MS, 20_000 * MS]),
        rest_at_most_ns: rng.pick(&[0, 20 * MS, 500 * MS, 5000 * MS]),
        ..Tuning::default()
    }
}

/// Mostly none, or little would move: nothing, a few chunks for each opening, or so much in a second. With a generator of
/// its own, so that the other draws of a seed do not depend on it.
fn wear_budget(seed: u64, chunk: u32) -> Option<u64> {
    let mut rng = Rng::new(seed, 6);
    rng.one_in(8).then(|| rng.pick(&[0, 16 * u64::from(chunk), 1 << 36]))
}

fn death(rng: &mut Rng) -> Death {
    if rng.one_in(4) { Death::Kill } else { Death::PowerCut(rng.pick(&CutStyle::ALL)) }
}

/// Stages that a crash seldom hits by chance.
const SELDOM: [Stage; 7] = [
    Stage::MoveQuiesce,
    Stage::ReadChecksums,
    Stage::MoveFlushLanded,
    Stage::CheckpointFold,
    Stage::CheckpointRegions,
    Stage::CheckpointHeader,
    Stage::SealIndex,
];
/// Operations during which the crash waits for such a stage.
const HUNT_OPS: usize = 300;

/// Draws the lives of a volume of this size.
pub fn lives(plan: &mut Plan) -> Vec<Life> {
    let mut rng = Rng::new(plan.seed, 2);
    let count = rng.range(4, 12);
    let mut lives: Vec<Life> = (0..count).map(|i| life(&mut rng, plan, i > 0)).collect();
    storm::draw(plan.seed, &mut lives);
    wide::lives(plan, &mut lives);
    pairs::draw(plan, &mut lives);
    export::lives(plan, &mut lives);
    // From a stream of their own: all else that a seed does is as it was.
    let mut rng = Rng::new(plan.seed, LONE_STREAM);
    // Rare, as a look reads the whole volume several times over.
    let one_in = if plan.losses { LOST_ONE_IN } else { LONE_ONE_IN };
    lives.iter_mut().for_each(|life| life.lone = rng.one_in(one_in));
    marks::lives(plan, &mut lives);
    alone::lives(plan, &mut lives);
    image::lives(plan, &mut lives);
    successor::lives(plan, &mut lives);
    lives
}

fn life(rng: &mut Rng, plan: &Plan, later: bool) -> Life {
    let depth = rng.pick(&[1, 2, 4, 8, 16, 32]);
    let after = wide::answers(plan, rng.range(MIN_ANSWERS, MIN_ANSWERS + 40)) as u32;
    let when = match rng.below(8) {
        0..=4 => When::Busy,
        5 | 6 => When::Idle(rng.pick(&[MS, 20 * MS, 300 * MS, 3000 * MS])),
        _ => When::Stopping,
    };
    let clean = when == When::Stopping && rng.one_in(2);
    let error_life = rng.one_in(6);
    let hunt = (when == When::Busy && rng.one_in(6)).then(|| rng.pick(&SELDOM));
    let more = if hunt.is_some() { HUNT_OPS } else { 16 };
    Life {
        recreate: later && rng.one_in(40),
        limits: None,
        opening: opening(rng),
        alone: false,
        lone: false,
        salvage: false,
        image: false,
        fast_lost: false,
        image_harms: 0,
        successor: None,
        twice: rng.one_in(8).then(|| death(rng)),
        verify_all: rng.one_in(8),
        services: [service(rng, 50 * US), service(rng, 2 * MS)],
        rates: rates(rng, error_life),
        storm: Default::default(),
        calm: false,
        depth,
        ops: ops(rng, plan, after as usize + depth as usize + more),
        after,
        when,
        points: steps(rng, 9),
        hunt,
        pair: None,
        death: (!clean).then(|| death(rng)),
        bad_sectors: if plan.latent { rng.below(3) as u32 } else { 0 },
        decays: 0,
        decay_payload: false,
        torn_sectors: 0,
        check: rng.one_in(4),
    }
}

/// A number of steps, small or large with the same chance.
fn steps(rng: &mut Rng, bits: u64) -> u32 {
    let most = 1 << rng.range(1, bits);
    rng.below(most) as u32
}

fn opening(rng: &mut Rng) -> Opening {
    let crashes = if rng.one_in(3) { rng.range(1, 3) } else { 0 };
    Opening {
        crashes: (0..crashes).map(|_| (steps(rng, 8), death(rng))).collect(),
        rates: rng.one_in(10).then(|| FaultRates {
            reads: rng.pick(&[0, 5, 30]),
            writes: rng.pick(&[0, 2, 10]),
            flushes: rng.pick(&[0, 2, 5]),
            discards: 0,
        }),
        ..Opening::default()
    }
}

fn rates(rng: &mut Rng, errors: bool) -> FaultRates {
    // Discards are hints: their failure must harm nothing in any life.
    let discards = if rng.one_in(3) { 2 } else { 0 };
    if !errors {
        return FaultRates { discards, ..FaultRates::default() };
    }
    let mut rate = |often: u32| if rng.one_in(2) { often << rng.below(5) } else { 0 };
    FaultRates { reads: rate(10), writes: rate(30), flushes: rate(5), discards }
}

fn service(rng: &mut Rng, typical_ns: u64) -> Service {
    let min_ns = 1 + typical_ns / rng.pick(&[1, 4, 16]);
    Service {
        min_ns,
        max_ns: min_ns * rng.pick(&[1, 2, 10, 50]),
        per_kib_ns: rng.pick(&[0, 500, 5000]),
        flush_factor: rng.pick(&[1, 3, 10]),
        stall_one_in: rng.pick(&[0, 0, 100, 1000]),
        stall_ns: rng.pick(&[MS, 200 * MS]),
    }
}

/// What one client likes.
struct Habits {
    kinds: [u32; 5],
    sizes: [u32; 7],
    fua_one_in: u32,
    /// Where hot spots begin, in bytes.
    hot: Vec<u64>,
    hot_bytes: u64,
    hot_share: u32,
    /// The part of the volume in use.
    used: (u64, u64),
    stream_share: u32,
    pause_one_in: u32,
    pause_ns: u64,
    drain_one_in: u32,
}

fn habits(rng: &mut Rng, size: u64, chunk: u64) -> Habits {
    let mut upto = |n: u64| rng.below(n + 1) as u32;
    let kinds = [upto(6), 1 + upto(9), upto(3), upto(2), upto(2)];
    let sizes = [upto(5), upto(6), 1 + upto(10), upto(8), upto(3), upto(2), upto(1)];
    let hot_bytes = rng.pick(&[4096, 16 << 10, chunk, 2 * chunk]).min(size);
    let hot = (0..rng.range(1, 4)).map(|_| rng.below(size - hot_bytes + 1) / 4096 * 4096).collect();
    let used = match rng.below(3) {
        0 => {
            let len = (size / rng.range(2, 8)).next_multiple_of(chunk).min(size);
            (rng.below((size - len) / chunk + 1) * chunk, len)
        }
        _ => (0, size),
    };
    Habits {
        kinds,
        sizes,
        fua_one_in: rng.pick(&[0, 0, 10, 2]),
        hot,
        hot_bytes,
        hot_share: rng.pick(&[0, 3, 9]),
        used,
        stream_share: rng.pick(&[0, 0, 1, 4]),
        pause_one_in: rng.pick(&[0, 0, 30, 5]),
        pause_ns: rng.pick(&[10 * US, MS, 20 * MS, 600 * MS]),
        drain_one_in: rng.pick(&[0, 20, 5]),
    }
}

fn ops(rng: &mut Rng, plan: &Plan, count: usize) -> Vec<Op> {
    let (size, chunk) = (plan.size_bytes, u64::from(plan.geometry.chunk_bytes));
    let habits = habits(rng, size, chunk);
    let mut ops = Vec::with_capacity(count);
    if rng.one_in(6) {
        fill(&mut ops, rng, size, chunk, count / 2);
    }
    let mut stream = habits.used.0;
    while ops.len() < count {
        let (offset, len) = if rng.below(10) < u64::from(habits.stream_share) {
            let offset = stream;
            stream += chunk;
            if stream >= habits.used.0 + habits.used.1 {
                stream = habits.used.0;
            }
            (offset, chunk.min(size - offset))
        } else {
            place(rng, &habits, size, chunk)
        };
        let kind = [OpKind::Read, OpKind::Write, OpKind::Flush, OpKind::Discard, OpKind::Zero]
            [rng.weighted(&habits.kinds)];
        let stretch = matches!(kind, OpKind::Discard | OpKind::Zero) && rng.one_in(4);
        let len = if stretch { (len * 8).min(size - offset) } else { len };
        ops.push(Op {
            kind,
            offset,
            len,
            fua: rng.one_in(habits.fua_one_in) && kind != OpKind::Read && kind != OpKind::Flush,
            pause_ns: if rng.one_in(habits.pause_one_in) { rng.below(habits.pause_ns) } else { 0 },
            drain: rng.one_in(habits.drain_one_in),
        });
    }
    ops
}

/// Writes the whole volume, so that the rest meets a full one.
fn fill(ops: &mut Vec<Op>, rng: &mut Rng, size: u64, chunk: u64, most: usize) {
    let step = (size / most as u64 + 1).next_multiple_of(chunk).min(4 * chunk);
    let mut offset = 0;
    while offset < size && ops.len() < most {
        let len = step.min(size - offset);
        ops.push(Op { kind: OpKind::Write, offset, len, fua: false, pause_ns: 0, drain: false });
        offset += len;
        if rng.one_in(12) {
            ops.push(Op { kind: OpKind::Flush, offset: 0, len: 0, fua: false, pause_ns: 0, drain: false });
        }
    }
}

/// Where a request goes and how long it is.
fn place(rng: &mut Rng, habits: &Habits, size: u64, chunk: u64) -> (u64, u64) {
    let class = rng.weighted(&habits.sizes);
    let (align, len) = match class {
        0 => (1, rng.range(1, 700)),
        1 => (512, 512 * rng.range(1, 20)),
        2 => (4096, 4096),
        3 => (4096, 4096 * rng.range(1, 8)),
        4 => (rng.pick(&[1, 512, 4096]), rng.range(1, chunk)),
        5 => (chunk, chunk),
        _ => (rng.pick(&[1, 4096, chunk]), rng.range(chunk, 4 * chunk)),
    };
    let hot = rng.below(10) < u64::from(habits.hot_share);
    let (base, span) = if hot { (rng.pick(&habits.hot), habits.hot_bytes) } else { habits.used };
    let offset = ((base + rng.below(span)) / align * align).min(size - 1);
    (offset, len.min(size - offset))
}
