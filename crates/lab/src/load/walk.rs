//! Which part of its span a job asks for next. The rules are fio's.

use super::map::{MOST_PARTS, Map};
use super::pick::{Pick, Shuffle};
use crate::job::{Distribution, Job, Order, Sizes, Zones};
use bimetal_units::rng::{Rng, mix};

/// A part of the span, from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// Where a job is in its span.
pub(super) struct Walk {
    span_bytes: u64,
    /// The target's end, from the beginning of the span: an I/O of fixed size reaches over the span's end, not over this.
    reach_bytes: u64,
    target_bytes: u64,
    sides: [Side; 3],
    zone: Option<Zone>,
    once: Once,
    seed: u64,
    alike: bool,
    run_ios: u32,
    run_in_place: bool,
    /// I/Os that are still to come before another random place is drawn.
    run_left: u32,
    /// Sequential I/O begins anew at the end of the span; else the pass is over there.
    endless: bool,
}

/// The zone that is being worked in.
struct Zone {
    all: Zones,
    /// Where it begins, from the beginning of the span.
    begins: u64,
    /// What was asked for in it, bytes.
    asked: u64,
}

/// Reads, writes or discards.
struct Side {
    order: Order,
    sizes: Sizes,
    align_bytes: u64,
    blocks: u64,
    pick: Pick,
    /// Where the last one began, and where it ended.
    began: Option<u64>,
    ended: u64,
}

/// How a pass meets each block once, all sides together.
enum Once {
    /// It does not.
    No,
    /// All I/Os have one size: which of the blocks is the next one.
    Shuffled { shuffle: Shuffle, block_bytes: u64, blocks: u64, taken: u64, pass: u64 },
    /// They differ: what is taken already.
    Mapped { map: Map, part_bytes: u64 },
}

impl Walk {
    pub(super) fn new(job: &Job) -> Walk {
        let span_bytes = job.span.end - job.span.start;
        let target_bytes = job.target_bytes.max(job.span.end);
        let reach_bytes = target_bytes - job.span.start;
        let side = |side: usize| {
            let (sizes, align_bytes) = (job.sizes[side].clone(), job.align_bytes[side].max(1));
            // The last is one where the smallest I/O fits.
            let room = job.zones.map_or(span_bytes, |zones| zones.range_bytes);
            let room = room.saturating_sub(sizes.least().saturating_sub(align_bytes));
            let mut blocks = room / align_bytes;
            // Of uneven laws, the one that begins before the span's end is one as well, where it fits on the target.
            let (is_uniform, one) = (job.distribution[side] == Distribution::Uniform, sizes.most());
            let reaches = blocks * align_bytes < span_bytes && blocks * align_bytes + one <= reach_bytes;
            if !is_uniform && sizes.least() == one && reaches && job.zones.is_none() {
                blocks += 1;
            }
            let pick = Pick::new(&job.distribution[side], blocks.max(1), mix(job.seed));
            Side { order: job.order[side], sizes, align_bytes, blocks, pick, began: None, ended: 0 }
        };
        Walk {
            span_bytes,
            reach_bytes,
            target_bytes,
            sides: std::array::from_fn(side),
            zone: job.zones.map(|all| Zone { all, begins: 0, asked: 0 }),
            once: Once::new(job),
            seed: job.seed,
            alike: job.passes_alike,
            run_ios: job.run_ios.max(1),
            run_in_place: job.run_in_place,
            // The first draws one.
            run_left: 1,
            endless: job.time_based,
        }
    }

    /// From the beginning of the span, with all of its blocks to be met.
    pub(super) fn begin_anew(&mut self) {
        for side in &mut self.sides {
            (side.began, side.ended) = (None, 0);
        }
        if let Some(zone) = &mut self.zone {
            (zone.begins, zone.asked) = (0, 0);
        }
        self.once.begin_anew(self.seed, self.alike);
    }

    /// What a side asks for next; `None` when the pass is over.
    pub(super) fn next(&mut self, side: usize, rng: &mut Rng) -> Option<Piece> {
        self.enter_zone(side);
        self.run_left -= 1;
        let draws = self.run_left == 0;
        if draws {
            self.run_left = self.run_ios;
        }
        let percent = u64::from(self.sides[side].order.random_percent);
        let random = draws && (percent == 100 || percent > 0 && rng.below(100) < percent);
        let offset = if random {
            self.random(side, rng)?
        } else if !draws && self.run_in_place {
            self.sides[side].began.unwrap_or(0)
        } else {
            let next = self.in_order(side).filter(|next| percent == 0 || *next < self.span_bytes);
            // Where order is only a part of a random job, it ends nothing.
            next.or_else(|| (percent > 0).then(|| self.anywhere(side, rng)))?
        };
        // Zones go on behind the span, to the end of the target.
        let end = if self.zone.is_some() { self.reach_bytes } else { self.span_bytes };
        let room = end.checked_sub(offset).filter(|room| *room > 0)?;
        let mut len = draw(&self.sides[side].sizes, room, rng)?;
        if offset + len > self.reach_bytes {
            return None;
        }
        if random {
            len = self.once.cut(offset - self.first(), len);
        }
        if let Some(zone) = &mut self.zone {
            zone.asked += len;
        }
        let side = &mut self.sides[side];
        (side.began, side.ended) = (Some(offset), offset + len);
        Some(Piece { offset, len })
    }

    /// Goes on to the next zone when enough was done in this one, and to its beginning at its end.
    fn enter_zone(&mut self, side: usize) {
        let Some(zone) = &mut self.zone else { return };
        if zone.asked >= zone.all.bytes {
            let next = zone.begins.saturating_add(zone.all.range_bytes).saturating_add(zone.all.skip_bytes);
            (zone.begins, zone.asked) = (if next < self.reach_bytes { next } else { 0 }, 0);
            self.sides.iter_mut().for_each(|side| (side.began, side.ended) = (None, zone.begins));
        }
        let side = &mut self.sides[side];
        if side.ended >= zone.begins.saturating_add(zone.all.range_bytes) {
            side.ended = zone.begins;
        }
        if zone.asked.is_multiple_of(zone.all.range_bytes) {
            self.once.begin_anew(self.seed, false);
        }
    }

    /// Where the span begins, or the zone.
    fn first(&self) -> u64 {
        self.zone.as_ref().map_or(0, |zone| zone.begins)
    }

    /// Behind the one before, or so much further.
    fn in_order(&mut self, side: usize) -> Option<u64> {
        let (span, first) = (self.span_bytes, self.first());
        let side = &mut self.sides[side];
        if self.endless && side.ended >= span {
            side.ended = first;
        }
        if side.ended >= self.reach_bytes {
            return None;
        }
        if side.ended == first || side.order.step_bytes == 0 {
            return Some(side.ended);
        }
        let step = side.order.step_bytes;
        let next = side.ended.checked_add_signed(step).filter(|next| *next < self.target_bytes);
        // Over the target's end it goes on at its beginning, before its beginning at the span's end.
        next.or_else(|| if step > 0 { Some(0) } else { span.checked_add_signed(step) })
    }

    /// A random place that was not met in this pass, where that counts.
    fn random(&mut self, side: usize, rng: &mut Rng) -> Option<u64> {
        let blocks = self.sides[side].blocks;
        if blocks == 0 {
            return None;
        }
        let align = self.sides[side].align_bytes;
        let found = match &self.once {
            Once::No => Some(self.drawn(side, rng)),
            _ => self.once.next(rng.below(blocks) * align, align),
        };
        let first = self.first();
        if found.is_none() && self.endless {
            self.once.begin_anew(self.seed, false);
            return self.once.next(rng.below(blocks) * align, align).map(|place| first + place);
        }
        found.map(|place| first + place)
    }

    fn anywhere(&self, side: usize, rng: &mut Rng) -> u64 {
        self.first() + self.drawn(side, rng)
    }

    /// From the beginning of the span, or of the zone.
    fn drawn(&self, side: usize, rng: &mut Rng) -> u64 {
        let side = &self.sides[side];
        side.pick.draw(rng) * side.align_bytes
    }
}

impl Once {
    fn new(job: &Job) -> Once {
        let uniform = job.sides().all(|side| job.distribution[side] == Distribution::Uniform);
        let random = job.sides().any(|side| job.order[side].random_percent > 0);
        if !job.each_once || !uniform || !random {
            return Once::No;
        }
        let span_bytes = job.zones.map_or(job.span.end - job.span.start, |zones| zones.range_bytes);
        match job.part_bytes() {
            (part_bytes, true) => {
                let blocks = span_bytes / part_bytes;
                let shuffle = Shuffle::new(blocks.max(1), mix(job.seed ^ 1));
                Once::Shuffled { shuffle, block_bytes: part_bytes, blocks, taken: 0, pass: 0 }
            }
            (part_bytes, false) if span_bytes / part_bytes <= MOST_PARTS => {
                Once::Mapped { map: Map::new(span_bytes / part_bytes), part_bytes }
            }
            _ => Once::No,
        }
    }

    /// With all blocks to be met: in the same order, or another one.
    fn begin_anew(&mut self, seed: u64, alike: bool) {
        match self {
            Once::No => {}
            Once::Shuffled { shuffle, blocks, taken, pass, .. } => {
                (*taken, *pass) = (0, *pass + u64::from(!alike));
                *shuffle = Shuffle::new((*blocks).max(1), mix(seed ^ 1 ^ pass.wrapping_mul(3)));
            }
            Once::Mapped { map, .. } => map.clear(),
        }
    }

    /// A place that was not met, near one that was drawn.
    fn next(&mut self, drawn: u64, align: u64) -> Option<u64> {
        match self {
            Once::No => Some(drawn),
            Once::Shuffled { shuffle, block_bytes, blocks, taken, .. } => {
                let nth = Some(*taken).filter(|nth| nth < blocks)?;
                *taken += 1;
                Some(shuffle.at(nth) * *block_bytes)
            }
            Once::Mapped { map, part_bytes } => {
                let each = (align / *part_bytes).max(1);
                let drawn = drawn / *part_bytes;
                let found = aligned(map, drawn..u64::MAX, each).or_else(|| aligned(map, 0..drawn, each))?;
                Some(found * *part_bytes)
            }
        }
    }

    /// The length of an I/O, cut to what was not met behind its beginning; that is met now.
    fn cut(&mut self, offset: u64, len: u64) -> u64 {
        match self {
            Once::No | Once::Shuffled { .. } => len,
            Once::Mapped { map, part_bytes } => {
                len.min(map.take(offset / *part_bytes, len.div_ceil(*part_bytes)) * *part_bytes)
            }
        }
    }
}

/// The first free part within a range whose number is a multiple.
fn aligned(map: &Map, range: std::ops::Range<u64>, of: u64) -> Option<u64> {
    let mut from = range.start;
    loop {
        let free = map.free_from(from).filter(|free| *free < range.end)?;
        if free.is_multiple_of(of) {
            return Some(free);
        }
        from = free.next_multiple_of(of);
    }
}

/// One of the sizes: where they differ, one that fits; `None` where none does.
fn draw(sizes: &Sizes, room: u64, rng: &mut Rng) -> Option<u64> {
    if sizes.least() == sizes.most() {
        return Some(sizes.most());
    }
    if sizes.least() > room {
        return None;
    }
    match sizes {
        Sizes::Split(sizes) => {
            // What does not fit leaves its share to the next that does; behind the last of these it is drawn again.
            let weights: u64 = sizes.iter().map(|size| u64::from(size.1)).sum();
            loop {
                let at = rng.below(weights);
                let mut sum = 0;
                let fits = sizes.iter().find(|(bytes, weight)| {
                    sum += u64::from(*weight);
                    at < sum && *bytes <= room
                });
                if let Some((bytes, _)) = fits {
                    return Some(*bytes);
                }
            }
        }
        &Sizes::Range { from, to } if room >= to => {
            let bytes = from + rng.below(to);
            Some((bytes - bytes % from).min(to))
        }
        &Sizes::Range { from, .. } => Some(from * rng.range(1, room / from)),
        // As with fio, the least is added to what may be as much as the most.
        &Sizes::Any { from, to } if room >= to => Some((from + rng.below(to)).min(to)),
        &Sizes::Any { from, .. } => Some(rng.range(from, room)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Ops, side};

    /// The pieces of a pass; sides take turns.
    fn pass(job: &Job) -> Vec<(usize, Piece)> {
        let (mut walk, mut rng) = (Walk::new(job), Rng::new(job.seed, 2));
        let sides: Vec<usize> = job.sides().collect();
        let next = |n: usize| {
            let side = sides[n % sides.len()];
            walk.next(side, &mut rng).map(|piece| (side, piece))
        };
        (0..).map_while(next).take(100_000).collect()
    }

    fn random(sizes: [Sizes; 3], span: u64, seed: u64) -> Job {
        let align_bytes = sizes.each_ref().map(Sizes::least);
        Job { sizes, align_bytes, seed, ops: Ops::ReadWrite { read_percent: 50 }, ..Job::new("j", 0..span) }
    }

    #[test]
    fn a_pass_of_mixed_directions_and_sizes_meets_no_byte_twice() {
        let split = Sizes::Split(vec![(4096, 40), (16384, 30), (65536, 30)]);
        let range = Sizes::Range { from: 1024, to: 10_000 };
        let one = Sizes::one(4096);
        for seed in 0..20 {
            for sizes in [
                [one.clone(), one.clone(), one.clone()],
                [split.clone(), split.clone(), split.clone()],
                [range.clone(), range.clone(), range.clone()],
                [one.clone(), Sizes::one(8192), one.clone()],
                [Sizes::one(6144), one.clone(), one.clone()],
            ] {
                let job = random(sizes, 1_000_000, seed);
                let mut met = vec![false; 1_000_000];
                for (side, Piece { offset, len }) in pass(&job) {
                    assert!(len > 0 && offset.is_multiple_of(job.align_bytes[side]), "{offset} {len}");
                    let part = &mut met[offset as usize..(offset + len) as usize];
                    assert!(part.iter().all(|byte| !byte), "{offset} {len}");
                    part.fill(true);
                }
                let share = met.iter().filter(|byte| **byte).count() as f64 / 1e6;
                // Where a side's places are all taken the pass is over; of sizes that divide each other that is late.
                let most = job.sides().map(|side| job.sizes[side].least()).max().unwrap_or(0);
                let divide = job.sides().all(|side| most.is_multiple_of(job.sizes[side].least()));
                assert!(share > if divide { 0.75 } else { 0.25 }, "{share} of {:?}", job.sizes);
            }
        }
    }

    #[test]
    fn mixed_sizes_in_order_reach_the_end_once() {
        for seed in 0..50 {
            let sizes = match seed % 2 {
                0 => Sizes::Range { from: 1024, to: 16384 },
                _ => Sizes::Any { from: 1, to: 16384 },
            };
            let mut job = random(std::array::from_fn(|_| sizes.clone()), 524_288, seed);
            (job.ops, job.order) = (Ops::ReadWrite { read_percent: 0 }, [Order::SEQUENTIAL; 3]);
            let mut end = 0;
            for (_, piece) in pass(&job) {
                assert_eq!(piece.offset, end);
                end += piece.len;
            }
            assert_eq!(end, 524_288);
        }
    }

    #[test]
    fn an_io_of_fixed_size_reaches_over_the_span_but_not_over_the_target() {
        let mut job = random(std::array::from_fn(|_| Sizes::one(16384)), 40_960, 1);
        (job.ops, job.order) = (Ops::ReadWrite { read_percent: 100 }, [Order::SEQUENTIAL; 3]);
        assert_eq!(pass(&job).len(), 2);
        job.target_bytes = 49_152;
        assert_eq!(pass(&job).last().map(|last| last.1), Some(Piece { offset: 32_768, len: 16_384 }));
        job.order = [Order::RANDOM; 3];
        assert_eq!(pass(&job).len(), 2);
    }

    #[test]
    fn steps_go_over_the_span_once_and_over_the_whole_target_again() {
        let step = |step_bytes, target_bytes, take| {
            let mut job = random(std::array::from_fn(|_| Sizes::one(4096)), 16_384, 1);
            (job.ops, job.target_bytes) = (Ops::ReadWrite { read_percent: 100 }, target_bytes);
            job.order = [Order { random_percent: 0, step_bytes }; 3];
            pass(&job).iter().take(take).map(|(_, piece)| piece.offset / 4096).collect::<Vec<_>>()
        };
        assert_eq!(step(4096, 65_536, 9), [0, 2]);
        assert_eq!(step(4096, 16_384, 5), [0, 2, 0, 2, 0]);
        assert_eq!(step(-8192, 65_536, 6), [0, 2, 1, 0, 2, 1]);
        assert_eq!(step(-4096, 65_536, 3), [0, 0, 0]);
    }

    #[test]
    fn zones_are_worked_in_one_after_the_other() {
        let zones = |bytes, range_bytes, skip_bytes| Some(Zones { bytes, range_bytes, skip_bytes });
        let mut job = random(std::array::from_fn(|_| Sizes::one(4096)), 32_768, 1);
        (job.ops, job.target_bytes) = (Ops::ReadWrite { read_percent: 100 }, 65_536);
        job.order = [Order::SEQUENTIAL; 3];
        let blocks = |job: &Job, take| {
            pass(job).iter().take(take).map(|(_, piece)| piece.offset / 4096).collect::<Vec<_>>()
        };
        job.zones = zones(8192, 16_384, 8192);
        assert_eq!(blocks(&job, 8), [0, 1, 6, 7, 12, 13, 0, 1]);
        // A zone that is smaller than what is done in it is met again.
        job.zones = zones(16_384, 8192, 4096);
        assert_eq!(blocks(&job, 8), [0, 1, 0, 1, 3, 4, 3, 4]);
        job.zones = zones(8192, 16_384, 16_384);
        job.order = [Order::RANDOM; 3];
        for (nth, (_, piece)) in pass(&job).iter().take(40).enumerate() {
            let zone = nth as u64 / 2 % 2 * 32_768;
            assert!((zone..zone + 16_384).contains(&piece.offset), "{nth}: {piece:?}");
        }
    }

    #[test]
    fn runs_draw_a_place_with_their_first_io() {
        let mut job = random(std::array::from_fn(|_| Sizes::one(4096)), 1 << 20, 3);
        (job.ops, job.run_ios, job.target_bytes) = (Ops::ReadWrite { read_percent: 100 }, 4, 2 << 20);
        let offsets: Vec<u64> = pass(&job).iter().map(|(_, piece)| piece.offset / 4096).collect();
        assert_eq!(offsets.len(), 1024);
        for run in offsets.chunks_exact(4) {
            // One that comes to the end of the span goes on anywhere.
            let follow = |pair: &[u64]| pair[1] == pair[0] + 1 || pair[0] == 255;
            assert!(run.windows(2).all(follow), "{run:?}");
        }
        assert_eq!(job.sides().collect::<Vec<_>>(), [side::READ]);
    }
}
