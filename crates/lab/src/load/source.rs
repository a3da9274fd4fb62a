//! What a job asks for next.

use super::flow::Flowing;
use super::pick::{Pick, Shuffle, unit};
use super::search::Search;
use super::stamp;
use crate::job::{Content, Distribution, Job, Ops, Rate, Sizes, side};
use bimetal_models::load::{Ask, Next, Source};
use bimetal_models::rng::{Rng, mix};
use bimetal_models::{Command, Kind};
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Writes that are remembered to be verified, 24 bytes each; a job that verifies goes no further.
const MAX_VERIFIED: usize = 1 << 24;

/// The I/Os of one job.
pub struct JobSource {
    job: Job,
    rng: Rng,
    blocks: [u64; 3],
    pick: [Pick; 3],
    shuffle: [Shuffle; 3],
    /// Where sequential I/O of each side goes on, from the beginning of the span.
    position: [u64; 3],
    /// How many random places were taken, for the order in which each is met once.
    placed: [u64; 3],
    /// I/Os of each side that are still to come from its random place.
    run: [u32; 3],
    /// I/Os and bytes that were asked for in this pass.
    ios: u64,
    bytes: u64,
    in_flight: u64,
    writes: u64,
    /// When the next of each side is meant to begin.
    due_ns: [f64; 3],
    /// Before all others: a flush, or the write behind a discard.
    first: VecDeque<Command>,
    /// The pause before this I/O was made.
    thought: bool,
    ended: bool,
    verifying: Option<Verify>,
    /// What was written, in its order: to be read again.
    written: Vec<(u64, u64, u64)>,
    asked: u64,
    /// Something was not done: nothing more is asked for.
    failed: bool,
    search: Option<Search>,
    flow: Option<Flowing>,
    /// Whoever watches the job has it end.
    stop: Rc<Cell<bool>>,
}

/// The reading of what was written.
struct Verify {
    next: usize,
    /// By the number of the I/O, less that of the first: which of what was written it reads.
    first_number: u64,
}

impl JobSource {
    /// From the beginning.
    pub fn new(job: &Job) -> JobSource {
        let blocks = job.align_bytes.map(|align| ((job.span.end - job.span.start) / align).max(1));
        let pick = |side: usize| Pick::new(&job.distribution[side], blocks[side], mix(job.seed));
        JobSource {
            rng: Rng::new(job.seed, 2),
            blocks,
            pick: std::array::from_fn(pick),
            shuffle: blocks.map(|blocks| Shuffle::new(blocks, mix(job.seed ^ 1))),
            position: [0; 3],
            placed: [0; 3],
            run: [0; 3],
            ios: 0,
            bytes: 0,
            in_flight: 0,
            writes: 0,
            due_ns: [(job.start_delay_ns) as f64; 3],
            first: VecDeque::new(),
            thought: false,
            ended: false,
            verifying: None,
            written: Vec::new(),
            asked: 0,
            failed: false,
            search: job.depth_search.map(|search| Search::new(search, job.depth)),
            flow: job.flow.as_ref().map(Flowing::new),
            stop: Rc::default(),
            job: job.clone(),
        }
    }

    /// On `true` it asks for nothing more.
    pub fn stop(&self) -> Rc<Cell<bool>> {
        self.stop.clone()
    }

    /// The depth that was looked for, as soon as it is found.
    pub fn found_depth(&self) -> Option<u32> {
        self.search.as_ref().and_then(Search::found)
    }

    fn is_over(&self, now: u64) -> bool {
        let job = &self.job;
        let begun = job.start_delay_ns + job.ramp_ns;
        let late = job.runtime_ns.is_some_and(|ns| now >= begun.saturating_add(ns));
        let enough = !job.time_based && self.bytes >= job.bytes_in_all();
        late || enough || self.written.len() >= MAX_VERIFIED || job.ios.is_some_and(|ios| self.ios >= ios)
    }

    /// A read or a write, or whatever the job does.
    fn side(&mut self) -> usize {
        match self.job.ops {
            Ops::Discard | Ops::DiscardWrite => side::DISCARD,
            Ops::ReadWrite { read_percent } => {
                if let [Some(_), Some(_), _] = self.job.rate {
                    // Each side has a rate of its own: the one that is due first.
                    return usize::from(self.due_ns[side::WRITE] < self.due_ns[side::READ]);
                }
                let read = match read_percent {
                    0 => false,
                    100 => true,
                    percent => self.rng.below(100) < u64::from(percent),
                };
                if read { side::READ } else { side::WRITE }
            }
        }
    }

    fn size(&mut self, side: usize) -> u64 {
        match &self.job.sizes[side] {
            Sizes::Split(sizes) if sizes.len() == 1 => sizes[0].0,
            Sizes::Split(sizes) => {
                let weights: u64 = sizes.iter().map(|size| u64::from(size.1)).sum();
                let mut at = self.rng.below(weights);
                for &(bytes, weight) in sizes {
                    match at.checked_sub(u64::from(weight)) {
                        Some(rest) => at = rest,
                        None => return bytes,
                    }
                }
                sizes[0].0
            }
            &Sizes::Range { from, to } => from * self.rng.range(1, to / from),
        }
    }

    /// Where the next I/O of a side begins, from the beginning of the span.
    fn place(&mut self, side: usize, bytes: u64) -> u64 {
        let span = self.job.span.end - self.job.span.start;
        let order = self.job.order[side];
        let in_run = self.run[side] > 0;
        let random = !in_run
            && match order.random_percent {
                0 => false,
                100 => true,
                percent => self.rng.below(100) < u64::from(percent),
            };
        if in_run {
            self.run[side] -= 1;
        } else if random {
            self.run[side] = self.job.run_ios - 1;
        }
        let align = self.job.align_bytes[side];
        let place = match random {
            true => self.random_block(side) * align,
            false => self.position[side],
        };
        // What would reach over the end begins anew.
        let place = match place + bytes <= span {
            true => place,
            false if random => (span - bytes) / align * align,
            false => 0,
        };
        if self.job.run_in_place && self.run[side] > 0 {
            self.position[side] = place;
            return place;
        }
        let next = place as i64 + bytes as i64 + order.step_bytes;
        self.position[side] = u64::try_from(next).unwrap_or((span - bytes) / bytes * bytes);
        place
    }

    fn random_block(&mut self, side: usize) -> u64 {
        let blocks = self.blocks[side];
        if self.job.each_once && self.job.distribution[side] == Distribution::Uniform {
            // Another order in each pass.
            let (pass, nth) = (self.placed[side] / blocks, self.placed[side] % blocks);
            let turn = if pass == 0 { 0 } else { mix(self.job.seed ^ pass.wrapping_mul(3)) % blocks };
            self.placed[side] += 1;
            return (self.shuffle[side].at(nth) + turn) % blocks;
        }
        self.pick[side].draw(&mut self.rng)
    }

    /// When the next I/O of a side is meant to begin, if the job has a rate.
    fn due(&mut self, side: usize, bytes: u64) -> Option<u64> {
        let rate = self.job.rate[side]?;
        let at = self.due_ns[side];
        let mean = match rate {
            Rate::Ios(rate) => 1e9 / rate,
            Rate::Bytes(rate) => bytes as f64 * 1e9 / rate,
        };
        let gap = if self.job.poisson { -(1.0 - unit(&mut self.rng)).ln() * mean } else { mean };
        self.due_ns[side] += gap;
        if !matches!(self.job.rate, [Some(_), Some(_), _]) || self.job.sides().count() == 1 {
            // One clock for all.
            self.due_ns = [self.due_ns[side]; 3];
        }
        Some(at as u64)
    }

    fn command(&mut self, side: usize) -> (Option<u64>, Command) {
        let span = self.job.span.end - self.job.span.start;
        let len = self.size(side).min(span);
        let offset = self.job.span.start + self.place(side, len);
        let kind = match side {
            side::READ => Kind::Read,
            side::WRITE => Kind::Write { fua: self.job.fua },
            _ => Kind::Discard,
        };
        if self.job.ops == Ops::DiscardWrite {
            let kind = Kind::Write { fua: self.job.fua };
            self.first.push_back(Command { kind, offset, len });
        }
        (self.due(side, len), Command { kind, offset, len })
    }

    /// What is put down of a command that is asked for.
    fn ask(&mut self, now: u64, at: Option<u64>, command: Command) -> Next {
        self.in_flight += 1;
        self.thought = false;
        if let Kind::Write { .. } = command.kind {
            self.writes += 1;
            if self.job.verify && self.verifying.is_none() {
                self.written.push((command.offset, command.len, self.asked));
            }
            if self.job.flush_every_writes.is_some_and(|every| self.writes.is_multiple_of(every)) {
                self.first.push_back(Command { kind: Kind::Flush, offset: 0, len: 0 });
            }
        }
        if let Some(search) = &mut self.search {
            search.begun(self.asked, at.unwrap_or(now));
        }
        self.asked += 1;
        Next::Ask(Ask { at, command })
    }

    /// After the last of what the job asks for: a flush, and the reading of what was written.
    fn end(&mut self, now: u64) -> Next {
        if self.job.end_flush && !self.ended {
            if self.in_flight > 0 {
                return Next::Hold;
            }
            self.ended = true;
            return self.ask(now, None, Command { kind: Kind::Flush, offset: 0, len: 0 });
        }
        if self.job.verify && self.job.destroys() && self.verifying.is_none() {
            if self.in_flight > 0 {
                return Next::Hold;
            }
            self.keep_the_newest();
            self.verifying = Some(Verify { next: 0, first_number: self.asked });
        }
        let Some(verify) = &mut self.verifying else { return Next::End };
        let Some(&(offset, len, _)) = self.written.get(verify.next) else { return Next::End };
        verify.next += 1;
        self.ask(now, None, Command { kind: Kind::Read, offset, len })
    }

    /// Of what was written over, wholly or in part, only the newest is known to be there.
    fn keep_the_newest(&mut self) {
        let mut newest: std::collections::BTreeMap<u64, (u64, u64)> = Default::default();
        for (offset, len, number) in std::mem::take(&mut self.written) {
            let mut stale: Vec<u64> = newest.range(offset..offset + len).map(|(&at, _)| at).collect();
            let before = newest.range(..offset).next_back().map(|(&at, &(bytes, _))| (at, at + bytes));
            stale.extend(before.filter(|&(_, end)| end > offset).map(|(at, _)| at));
            stale.iter().for_each(|at| {
                newest.remove(at);
            });
            newest.insert(offset, (len, number));
        }
        self.written = newest.into_iter().map(|(offset, (len, number))| (offset, len, number)).collect();
    }
}

impl JobSource {
    /// What it does next, whatever other jobs do.
    fn next_of_its_own(&mut self, now: u64) -> Next {
        if self.failed {
            return Next::End;
        }
        if self.search.as_ref().is_some_and(|search| self.in_flight >= u64::from(search.depth())) {
            return Next::Hold;
        }
        if let Some(command) = self.first.pop_front() {
            return self.ask(now, None, command);
        }
        let found = self.search.as_ref().is_some_and(Search::is_over);
        if self.verifying.is_some() || self.stop.get() || found || self.is_over(now) {
            return self.end(now);
        }
        let mut at = (self.ios == 0 && self.job.start_delay_ns > 0).then_some(self.job.start_delay_ns);
        if let Some(think) = self.job.think
            && self.ios > 0
            && self.ios.is_multiple_of(think.every_ios)
            && !self.thought
        {
            if self.in_flight > 0 {
                return Next::Hold;
            }
            self.thought = true;
            at = Some(now + think.ns);
        }
        let side = self.side();
        let (due, command) = self.command(side);
        let at = at.max(due);
        let begun = self.job.start_delay_ns + self.job.ramp_ns;
        if at.zip(self.job.runtime_ns).is_some_and(|(at, ns)| at >= begun.saturating_add(ns)) {
            // It would begin when the job is over.
            self.job.runtime_ns = Some(0);
            self.first.clear();
            return self.end(now);
        }
        self.ios += 1;
        self.bytes += command.len;
        self.ask(now, at, command)
    }
}

impl Source for JobSource {
    fn next(&mut self, now: u64, _: &mut Rng) -> Next {
        if self.job.ending.is_here() {
            return Next::End;
        }
        if let Some(at) = self.flow.as_ref().and_then(|flow| flow.waits(now)) {
            return Next::Later(at);
        }
        let next = self.next_of_its_own(now);
        if matches!(next, Next::End) {
            self.job.ending.job_ends();
        }
        if let Some(flow) = &mut self.flow {
            flow.does(&next);
        }
        next
    }

    fn ended(&mut self, number: u64, now: u64, done: bool) {
        if let Some(search) = &mut self.search {
            search.ended(number, now);
        }
        self.in_flight -= 1;
        self.failed |= !done && !self.job.goes_on;
    }

    fn fill(&mut self, number: u64, command: &Command, bytes: &mut [u8]) {
        match &self.job.content {
            Content::Pattern(pattern) if !self.job.verify => {
                bytes.iter_mut().zip(pattern.iter().cycle()).for_each(|(byte, &with)| *byte = with);
            }
            Content::Reducible(reducible) if !self.job.verify => {
                stamp::fill_reducible(bytes, *reducible, self.job.seed, command.offset, number);
            }
            content if self.job.verify || *content == Content::Fresh => {
                stamp::fill(bytes, self.job.seed, command.offset, number);
            }
            _ => {}
        }
    }

    fn check(&mut self, number: u64, command: &Command, bytes: &[u8]) -> bool {
        let Some(verify) = &self.verifying else {
            return !self.job.verify || self.job.destroys() || stamp::is_whole(bytes, command.offset);
        };
        let Some(nth) = number.checked_sub(verify.first_number) else { return true };
        let Some(&(offset, _, written)) = self.written.get(nth as usize) else { return true };
        offset == command.offset && stamp::is_filled(bytes, self.job.seed, offset, written)
    }
}
