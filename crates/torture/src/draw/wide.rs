//! Draws what makes plans wider than their first draws: large chunks, a directory of many pages, other limits at each
//! opening, deep queues, requests of very many pieces, streams that do not end where chunks do, hints. Each from a stream of
//! its own: the rest of a plan stays.

use super::*;

/// Chunks from which on a volume is large: its lives have fewer operations, or they would take seconds.
const LARGE_CHUNK: u32 = 512 << 10;
/// Bytes of a request that has very many pieces, at most.
const VAST_BYTES: u64 = 32 << 20;
/// One of the generators' numbers below.
const GEOMETRY: u64 = 10;
const DIRECTORY: u64 = 11;
const LIMITS: u64 = 12;
const QUEUES: u64 = 13;
const VAST: u64 = 14;
const HINTS: u64 = 15;
const DECAYS: u64 = 16;
const STREAMS: u64 = 17;
const FAST_SUMS: u64 = 18;

/// Now and then chunks of half a MiB to four, on as few of them as a volume may have.
pub(super) fn large(seed: u64, drawn: Geometry) -> Geometry {
    let mut rng = Rng::new(seed, GEOMETRY);
    if !rng.one_in(12) {
        return drawn;
    }
    let chunk_bytes = LARGE_CHUNK << rng.weighted(&[4, 5, 1, 1]);
    let chunk = u64::from(chunk_bytes);
    let room = if chunk_bytes <= 1 << 20 { rng.below(12) * chunk } else { rng.below(4) * chunk };
    Geometry {
        chunk_bytes,
        fast_bytes: 1,
        slow_bytes: 8 * chunk + room,
        landing_bytes: Some(chunk),
        // Areas of the least size where chunks leave a choice.
        area_bytes: Some((chunk_bytes << rng.below(2)).min(4 << 20)),
        slack_bytes: rng.below(3) * chunk,
        ..drawn
    }
}

/// Few references in a page of the directory, now and then, so that a small volume has many such pages.
pub(super) fn refs_per_page(seed: u64) -> Option<u32> {
    let mut rng = Rng::new(seed, DIRECTORY);
    rng.one_in(3).then(|| rng.pick(&[1, 1, 2, 3, 7]))
}

/// So many answers come before a crash, of `usual` on volumes with small chunks.
pub(super) fn answers(plan: &Plan, usual: u64) -> u64 {
    let chunk = plan.geometry.chunk_bytes;
    if chunk < LARGE_CHUNK { usual } else { (usual * (256 << 10) / u64::from(chunk)).max(24) }
}

/// Widens lives that were drawn.
pub(super) fn lives(plan: &mut Plan, lives: &mut [Life]) {
    let most = vast_requests(plan, lives);
    limits(plan, lives, most);
    fast_sums(plan, lives);
    queues(plan, lives);
    streams(plan, lives);
    hints(plan.seed, lives);
    decays(plan.seed, lives);
}

/// Requests of more pieces than are in flight at a time for one. Gives the length of the longest.
fn vast_requests(plan: &Plan, lives: &mut [Life]) -> u64 {
    let mut rng = Rng::new(plan.seed, VAST);
    let (size, chunk) = (plan.size_bytes, u64::from(plan.geometry.chunk_bytes));
    if size < 66 * chunk || !rng.one_in(3) {
        return 0;
    }
    let most = size.min(VAST_BYTES);
    for life in lives.iter_mut() {
        if !rng.one_in(2) || life.ops.is_empty() {
            continue;
        }
        for _ in 0..rng.range(1, 3) {
            let len = rng.range(65 * chunk, most);
            let offset = rng.below(size - len + 1) / 512 * 512;
            let kind = rng.pick(&[OpKind::Write, OpKind::Read, OpKind::Discard, OpKind::Zero, OpKind::Write]);
            let fua = kind != OpKind::Read && rng.one_in(4);
            let at = rng.below(life.ops.len().min(life.after as usize) as u64) as usize;
            life.ops[at] = Op { kind, offset, len, fua, pause_ns: 0, drain: false };
        }
    }
    most
}

/// Other limits and other memory at each opening, and extremes that meet; where requests are vast, memory for them.
fn limits(plan: &mut Plan, lives: &mut [Life], most_bytes: u64) {
    if most_bytes > 0 {
        plan.arena.client = plan.arena.client.max(most_bytes as u32 + (64 << 10));
    }
    let mut rng = Rng::new(plan.seed, LIMITS);
    if !rng.one_in(2) {
        return;
    }
    let one_in = rng.pick(&[1, 1, 2]);
    for life in lives {
        if !rng.one_in(one_in) {
            continue;
        }
        let chunk = plan.geometry.chunk_bytes;
        let mut tuning =
            Tuning { wear_bytes_per_day: plan.tuning.wear_bytes_per_day, ..tuning(&mut rng, chunk) };
        tuning.push_worth = rng.pick(&[0, 0, 4]);
        if rng.one_in(4) {
            tuning.wear_bytes_per_day =
                rng.pick(&[None, Some(0), Some(16 * u64::from(chunk)), Some(1 << 36)]);
        }
        for _ in 0..rng.below(4) {
            extreme(&mut rng, &mut tuning, u64::from(chunk));
        }
        let tight = rng.one_in(3);
        let arena = memory(&plan.geometry, tight, plan.arena.client);
        life.limits = Some(Box::new(Limits { tuning, arena }));
    }
}

/// How long what is written to the fast tier rests before its checksums are, and how much of them memory has room for.
fn fast_sums(plan: &mut Plan, lives: &mut [Life]) {
    let mut rng = Rng::new(plan.seed, FAST_SUMS);
    let limits = lives.iter_mut().filter_map(|life| life.limits.as_mut()).map(|limits| &mut limits.tuning);
    for tuning in limits.chain([&mut plan.tuning]) {
        tuning.fast_checksum_bytes = rng.pick(&[64 << 20, 64 << 20, 64 << 20, 64 << 10, 0]);
        tuning.fast_checksum_rest_ns = rng.pick(&[MS, 20 * MS, 500 * MS, 60_000 * MS]);
    }
}

/// Memory that suffices, or hardly.
pub(super) fn memory(geometry: &Geometry, tight: bool, client: u32) -> ArenaSizes {
    let chunk = geometry.chunk_bytes;
    // Opening reads a segment whole.
    let segment = geometry.area_bytes.unwrap_or(chunk).max(256 << 10);
    ArenaSizes {
        client,
        log: if tight { 2 * segment } else { (2 * segment).max(2 << 20) },
        background: if tight { 4 * chunk } else { (8 * chunk).max(2 << 20) },
        meta: if tight { 512 << 10 } else { 2 << 20 },
        copy: 0,
    }
}

/// One limit goes to an end of what it can be.
fn extreme(rng: &mut Rng, t: &mut Tuning, chunk: u64) {
    let low = rng.one_in(2);
    let either = |least: u64, most: u64| if low { least } else { most };
    match rng.below(16) {
        0 => t.slow_unflushed_bytes = either(chunk, 1 << 30),
        1 => t.pending_chunks = either(1, 4096) as usize,
        2 => t.commit_interval_ns = either(MS / 10, 60_000 * MS),
        3 => t.idle_after_ns = either(10 * US, 5000 * MS),
        4 => t.batch_chunks = either(1, 256) as usize,
        5 => t.background_depth = either(1, 64) as usize,
        6 => t.busy_share = either(1, 100) as u32,
        7 => t.recent_checksums = either(16, 256 << 10) as usize,
        8 => t.checksum_cache_pages = either(1, 2048) as usize,
        9 => t.promote_touches = either(1, 8) as u32,
        10 => t.small_write_bytes = either(0, 4 << 20) as u32,
        11 => t.groups_in_flight = either(1, 16) as usize,
        12 => (t.rest_after_ns, t.rest_at_most_ns) = (either(0, 20_000 * MS), either(0, 3_600_000 * MS)),
        13 => t.kept_from_copies = either(1, 64) as u32,
        14 => t.lend_after_ns = either(0, 60_000 * MS),
        _ => t.landing_ram_bytes = either(0, u64::MAX),
    }
}

/// Far more requests in flight than most clients have.
fn queues(plan: &Plan, lives: &mut [Life]) {
    let mut rng = Rng::new(plan.seed, QUEUES);
    if !rng.one_in(6) {
        return;
    }
    for life in lives {
        if rng.one_in(2) {
            life.depth = rng.pick(&[64, 128, 256, 1000]);
            let more = answers(plan, u64::from(life.depth).min(300)) as usize;
            life.ops.extend(ops(&mut rng, plan, more));
        }
    }
}

/// Streams of writes that begin anywhere and do not end where chunks do, with others' writes to what they have just written.
fn streams(plan: &mut Plan, lives: &mut [Life]) {
    let mut rng = Rng::new(plan.seed, STREAMS);
    if !rng.one_in(3) {
        return;
    }
    let (size, chunk) = (plan.size_bytes, u64::from(plan.geometry.chunk_bytes));
    let limits = lives.iter_mut().filter_map(|life| life.limits.as_mut()).map(|limits| &mut limits.tuning);
    for tuning in limits.chain([&mut plan.tuning]) {
        tuning.economy.stream_bytes = rng.pick(&[4096, chunk, 2 * chunk]);
        tuning.economy.joined_bytes = 512;
    }
    for life in lives.iter_mut().filter(|life| life.ops.len() > 1) {
        if !rng.one_in(2) {
            continue;
        }
        let len = rng.range(1, 3 * chunk / 512).min(size / 512) * 512;
        let (others, gap) = (rng.pick(&[0, 2, 6]), rng.range(1, 3) as usize);
        let mut at = rng.below(life.ops.len() as u64) as usize;
        let mut offset = rng.below(size / 512) * 512;
        for _ in 0..rng.range(4, 24) {
            if at >= life.ops.len() || offset + len > size {
                break;
            }
            let stream = Op { kind: OpKind::Write, offset, len, fua: false, pause_ns: 0, drain: false };
            life.ops[at] = stream;
            offset += len;
            at += gap;
            if rng.one_in(others) && at < life.ops.len() {
                let kind =
                    rng.pick(&[OpKind::Write, OpKind::Discard, OpKind::Zero, OpKind::Discard, OpKind::Read]);
                let back = rng.range(1, len.min(2 * chunk) / 512) * 512;
                let len = (rng.range(1, 64) * 512).min(back);
                life.ops[at] = Op { kind, offset: offset - back, len, ..stream };
                at += 1;
            }
        }
    }
}

/// Clients say of ranges that they will be wanted.
fn hints(seed: u64, lives: &mut [Life]) {
    let mut rng = Rng::new(seed, HINTS);
    if !rng.one_in(3) {
        return;
    }
    let one_in = rng.pick(&[4, 20, 60]);
    for life in lives {
        for op in &mut life.ops {
            if op.kind == OpKind::Read && rng.one_in(one_in) {
                op.kind = OpKind::Prefer;
            }
        }
    }
}

/// What is at rest decays, and power cuts leave sectors that cannot be read.
fn decays(seed: u64, lives: &mut [Life]) {
    let mut rng = Rng::new(seed, DECAYS);
    let (decays, torn) = (rng.one_in(7), rng.one_in(16));
    for life in lives {
        if decays && rng.one_in(2) {
            life.decays = rng.range(1, 3) as u32;
        }
        if torn && rng.one_in(2) {
            life.torn_sectors = rng.range(1, 2) as u32;
        }
    }
}
