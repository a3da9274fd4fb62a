//! What a job asks for next.

use super::flow::Flowing;
use super::pick::unit;
use super::search::Search;
use super::stamp;
use super::verify::Written;
use super::walk::Walk;
use crate::job::{Content, Job, Ops, Rate, Think, side};
use bimetal_load::{Ask, Next, Source};
use bimetal_models::{Command, Kind};
use bimetal_units::rng::Rng;
use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

/// The I/Os of one job.
pub struct JobSource {
    job: Job,
    rng: Rng,
    walk: Walk,
    stage: Stage,
    /// Bytes of a pass, and of all passes.
    pass_bytes: u64,
    bytes_in_all: u64,
    /// Passes that are still to come in any case.
    loops_left: u64,
    /// What was asked for in this pass.
    pass: Asked,
    /// In all: what ends the job.
    limited: Asked,
    /// In all, with what was read back.
    all_bytes: u64,
    in_flight: u64,
    writes: u64,
    /// When the next of each side is meant to begin.
    due_ns: [f64; 3],
    /// Before all others: the write behind a discard.
    first: VecDeque<Command>,
    /// Before the next of the load: a flush or a sync, which falls away where nothing follows.
    flush_due: Option<Kind>,
    /// Nothing was asked for since the last flush.
    flushed: bool,
    /// It waits for what it overlaps.
    held: Option<Ask>,
    /// The pause before this I/O was made.
    thought: bool,
    /// When the last pause ended.
    rested_ns: u64,
    /// What is to be read back, of a job that verifies its writes.
    written: Option<Written>,
    asked: u64,
    /// I/Os of the script that were asked for.
    scripted: usize,
    /// Those in flight of which none may take too long: their numbers, and when they end at the latest.
    latest: Vec<(u64, u64)>,
    /// Something was not done: nothing more is asked for.
    failed: bool,
    search: Option<Search>,
    flow: Option<Flowing>,
    /// Whoever watches the job has it end.
    stop: Rc<Cell<bool>>,
}

/// I/Os, and their bytes.
#[derive(Default)]
struct Asked {
    ios: u64,
    bytes: u64,
}

/// Where a job is in a pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It does what it is for.
    Load,
    /// All of that was asked for, and is waited for; then it is verified, and another pass may come.
    Ending { another: bool },
    /// What was written is read back, then the same.
    Back { begun: bool, goes_on: After },
    /// There is no more.
    Over,
}

/// What comes when all was read back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    /// The rest of the pass.
    Rest,
    /// Another pass, if there is to be one.
    Another,
    /// Nothing.
    Nothing,
}

impl JobSource {
    /// From the beginning.
    pub fn new(job: &Job) -> JobSource {
        JobSource {
            rng: Rng::new(job.seed, 2),
            walk: Walk::new(job),
            stage: Stage::Load,
            pass_bytes: job.bytes_of_a_pass(),
            bytes_in_all: job.bytes_in_all(),
            loops_left: job.loops.saturating_sub(1),
            pass: Asked::default(),
            limited: Asked::default(),
            all_bytes: 0,
            in_flight: 0,
            writes: 0,
            due_ns: [(job.start_delay_ns) as f64; 3],
            first: VecDeque::new(),
            flush_due: None,
            flushed: false,
            held: None,
            thought: false,
            rested_ns: job.start_delay_ns,
            written: (job.verify && job.destroys()).then(|| Written::new(job)),
            asked: 0,
            scripted: 0,
            latest: Vec::new(),
            failed: false,
            search: job.depth_search.map(|search| Search::new(search, job.depth)),
            flow: job.flow.as_ref().map(Flowing::new),
            stop: Rc::default(),
            job: job.clone(),
        }
    }

    /// On `true` it asks for nothing more, but for what it verifies.
    pub fn stop(&self) -> Rc<Cell<bool>> {
        self.stop.clone()
    }

    /// The depth that was looked for, as soon as it is found.
    pub fn found_depth(&self) -> Option<u32> {
        self.search.as_ref().and_then(Search::found)
    }

    /// Whether the job is to end: it was told to, has found what it looked for, or its time is over.
    fn is_over(&self, now: u64) -> bool {
        let begun = self.job.start_delay_ns + self.job.ramp_ns;
        let late = self.job.runtime_ns.is_some_and(|ns| now >= begun.saturating_add(ns));
        late || self.stop.get() || self.search.as_ref().is_some_and(Search::is_over)
    }

    /// Whether the pass has asked for all that it is to.
    fn pass_is_done(&self) -> bool {
        let job = &self.job;
        if job.script.is_some() {
            return false;
        }
        let pass = self.pass.bytes >= self.pass_bytes && (!job.time_based || self.written.is_some());
        let all = !job.time_based && self.limited.bytes >= self.bytes_in_all;
        pass || all || self.has_all_ios()
    }

    fn has_all_ios(&self) -> bool {
        self.job.ios.is_some_and(|ios| self.limited.ios >= ios)
    }

    /// Whether there is another pass behind one that asked for all it could.
    fn has_another(&mut self) -> bool {
        if self.pass.ios == 0 {
            return false;
        }
        if self.job.time_based {
            return !self.has_all_ios();
        }
        if self.loops_left > 0 {
            self.loops_left -= 1;
            return true;
        }
        // What is less than an I/O may not be reached at all.
        let most = self.job.sizes.iter().map(|sizes| sizes.most()).max().unwrap_or(0);
        let left = self.job.bytes.map_or(0, |bytes| bytes.saturating_sub(self.all_bytes));
        !self.has_all_ios() && left > 0 && left >= most
    }

    /// A read or a write, or whatever the job does.
    fn side(&mut self, now: u64) -> usize {
        let Ops::ReadWrite { read_percent } = self.job.ops else { return side::DISCARD };
        let drawn = match read_percent {
            0 => return side::WRITE,
            100 => return side::READ,
            percent if self.rng.below(100) < u64::from(percent) => side::READ,
            _ => side::WRITE,
        };
        // One that is not due leaves its turn to the other; of two that are not, the first that will be comes.
        let other = side::READ + side::WRITE - drawn;
        let due = |side: usize| if self.job.rate[side].is_some() { self.due_ns[side] } else { 0.0 };
        let is_due = |side: usize| due(side) <= now as f64;
        if is_due(drawn) || !is_due(other) && due(drawn) <= due(other) { drawn } else { other }
    }

    /// When the next I/O of a side is meant to begin, if it has a rate.
    fn due(&mut self, side: usize, bytes: u64) -> Option<u64> {
        let rate = self.job.rate[side]?;
        let at = self.due_ns[side];
        let mean = match rate {
            Rate::Ios(rate) => 1e9 / rate,
            Rate::Bytes(rate) => bytes as f64 * 1e9 / rate,
        };
        let gap = if self.job.poisson { -(1.0 - unit(&mut self.rng)).ln() * mean } else { mean };
        self.due_ns[side] += gap;
        Some(at as u64)
    }

    /// The next of the load, and when it is meant to begin; `None` at the end of the pass.
    fn command(&mut self, now: u64) -> Option<Ask> {
        if let Some(script) = &self.job.script {
            let ask = script.ask(self.scripted, self.job.start_delay_ns, self.job.fua)?;
            self.scripted += 1;
            let side = match ask.command.kind {
                Kind::Read => side::READ,
                Kind::Write { .. } => side::WRITE,
                Kind::Discard => side::DISCARD,
                _ => return Some(ask),
            };
            return Some(Ask { at: ask.at.max(self.due(side, ask.command.len)), ..ask });
        }
        let side = self.side(now);
        let piece = self.walk.next(side, &mut self.rng)?;
        let (offset, len) = (self.job.span.start + piece.offset, piece.len);
        let kind = match side {
            side::READ => Kind::Read,
            side::WRITE => Kind::Write { fua: self.job.fua },
            _ => Kind::Discard,
        };
        if self.job.ops == Ops::DiscardWrite {
            let kind = Kind::Write { fua: self.job.fua };
            self.first.push_back(Command { kind, offset, len });
        }
        Some(Ask { at: self.due(side, len), command: Command { kind, offset, len } })
    }

    /// Asks for it, unless it overlaps what is in flight and to be verified: then it is held back until that has ended.
    fn ask(&mut self, now: u64, ask: Ask) -> Next {
        let Ask { at, command } = ask;
        if let (Some(written), Some(range)) = (&mut self.written, changed(&command)) {
            if written.overlaps(&range) {
                self.held = Some(ask);
                return Next::Hold;
            }
            written.begun(&range, self.asked);
            match command.kind {
                Kind::Write { .. } => written.note(&range, self.asked),
                _ => written.forget(&range),
            }
        }
        self.in_flight += 1;
        self.thought = false;
        self.flushed = matches!(command.kind, Kind::Flush | Kind::Sync);
        if let Kind::Write { .. } = command.kind {
            self.writes += 1;
            let is_due = |every: Option<u64>| every.is_some_and(|every| self.writes.is_multiple_of(every));
            self.flush_due = match () {
                () if is_due(self.job.sync_every_writes) => Some(Kind::Sync),
                () if is_due(self.job.flush_every_writes) => Some(Kind::Flush),
                () => None,
            };
        }
        if let Some(search) = &mut self.search {
            search.begun(self.asked, at.unwrap_or(now));
        }
        if let Some(most_ns) = longest_ns(&self.job, command.kind) {
            self.latest.push((self.asked, at.unwrap_or(now).saturating_add(most_ns)));
        }
        self.asked += 1;
        Next::Ask(ask)
    }

    fn at_once(&mut self, now: u64, kind: Kind, range: Range<u64>) -> Next {
        let (offset, len) = (range.start, range.end - range.start);
        self.ask(now, Ask { at: None, command: Command { kind, offset, len } })
    }

    /// Whether it is time for a pause.
    fn is_tired(&self, think: Think, now: u64) -> bool {
        let by_ios = think.every_ios > 0 && self.pass.ios.is_multiple_of(think.every_ios);
        by_ios || think.every_ns > 0 && now >= self.rested_ns.saturating_add(think.every_ns)
    }

    /// The next of the load.
    fn load(&mut self, now: u64) -> Option<Next> {
        if let Some(ask) = self.held.take() {
            return Some(self.ask(now, ask));
        }
        if let Some(command) = self.first.pop_front() {
            return Some(self.ask(now, Ask { at: None, command }));
        }
        if self.is_over(now) {
            self.stage = Stage::Ending { another: false };
            return None;
        }
        if self.pass_is_done() {
            self.stage = Stage::Ending { another: true };
            return None;
        }
        if let Some(kind) = self.flush_due.take() {
            return Some(self.at_once(now, kind, 0..0));
        }
        if self.written.as_ref().is_some_and(Written::is_full) {
            self.stage = Stage::Back { begun: false, goes_on: After::Rest };
            return None;
        }
        let mut at =
            (self.limited.ios == 0 && self.job.start_delay_ns > 0).then_some(self.job.start_delay_ns);
        if let Some(think) = self.job.think
            && self.pass.ios > 0
            && !self.thought
            && self.is_tired(think, now)
        {
            if self.in_flight > 0 {
                return Some(Next::Hold);
            }
            self.thought = true;
            at = Some(now + think.ns);
            self.rested_ns = now + think.ns;
            if think.delays_rate {
                self.due_ns.iter_mut().for_each(|due| *due += think.ns as f64);
            }
        }
        let Some(mut ask) = self.command(now) else {
            self.stage = Stage::Ending { another: self.job.script.is_none() };
            return None;
        };
        ask.at = ask.at.max(at);
        let begun = self.job.start_delay_ns + self.job.ramp_ns;
        if ask.at.zip(self.job.runtime_ns).is_some_and(|(at, ns)| at >= begun.saturating_add(ns)) {
            // It would begin when the job is over.
            self.first.clear();
            self.stage = Stage::Ending { another: false };
            return None;
        }
        for asked in [&mut self.pass, &mut self.limited] {
            asked.ios += 1;
            asked.bytes += ask.command.len;
        }
        self.all_bytes += ask.command.len;
        Some(self.ask(now, ask))
    }

    /// Waits for the pass to end, and has its writes synced.
    fn ending(&mut self, now: u64, another: bool) -> Option<Next> {
        if self.in_flight > 0 {
            return Some(Next::Hold);
        }
        self.flush_due = None;
        let writes = self.job.destroys() && self.pass.ios > 0;
        if self.job.end_flush && writes && !self.flushed {
            return Some(self.at_once(now, Kind::Sync, 0..0));
        }
        let goes_on = if another { After::Another } else { After::Nothing };
        self.stage = Stage::Back { begun: false, goes_on };
        None
    }

    /// Reads back what was written.
    fn back(&mut self, now: u64, begun: bool, goes_on: After) -> Option<Next> {
        if !begun {
            if self.in_flight > 0 {
                return Some(Next::Hold);
            }
            self.stage = Stage::Back { begun: true, goes_on };
        }
        if let Some(range) = self.written.as_mut().and_then(Written::next_back) {
            let bytes = range.end - range.start;
            if goes_on != After::Rest {
                // As with fio, it counts as the job's own.
                self.all_bytes += bytes;
                self.limited.ios += 1;
                if matches!(self.job.ops, Ops::ReadWrite { read_percent: 1..=99 }) {
                    self.limited.bytes += bytes;
                }
            }
            return Some(self.at_once(now, Kind::Read, range));
        }
        if self.in_flight > 0 {
            return Some(Next::Hold);
        }
        if let Some(written) = &mut self.written {
            written.clear();
        }
        self.stage = match goes_on {
            After::Rest => Stage::Load,
            After::Another if self.has_another() => {
                self.walk.begin_anew();
                if self.job.passes_alike {
                    self.rng = Rng::new(self.job.seed, 2);
                }
                self.pass = Asked::default();
                Stage::Load
            }
            _ => Stage::Over,
        };
        None
    }
}

/// How long an I/O may take, where that is limited.
fn longest_ns(job: &Job, kind: Kind) -> Option<u64> {
    match kind {
        Kind::Read => job.max_latency_ns[side::READ],
        Kind::Write { .. } => job.max_latency_ns[side::WRITE],
        Kind::Discard => job.max_latency_ns[side::DISCARD],
        Kind::Flush | Kind::Sync => None,
    }
}

/// What a command changes.
fn changed(command: &Command) -> Option<Range<u64>> {
    let changes = matches!(command.kind, Kind::Write { .. } | Kind::Discard);
    changes.then(|| command.offset..command.offset + command.len)
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
        loop {
            let next = match self.stage {
                Stage::Load => self.load(now),
                Stage::Ending { another } => self.ending(now, another),
                Stage::Back { begun, goes_on } => self.back(now, begun, goes_on),
                Stage::Over => Some(Next::End),
            };
            if let Some(next) = next {
                return next;
            }
        }
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
        if let Some(written) = &mut self.written {
            written.ended(number);
        }
        self.in_flight -= 1;
        if let Some(nth) = self.latest.iter().position(|(asked, _)| *asked == number) {
            self.failed |= self.latest.swap_remove(nth).1 < now;
        }
        self.failed |= !done && !self.job.goes_on;
    }

    fn fill(&mut self, number: u64, command: &Command, bytes: &mut [u8]) {
        match (&self.written, &self.job.content) {
            (Some(written), _) => written.fill(bytes, command.offset, number),
            (None, Content::Pattern(pattern)) => {
                bytes.iter_mut().zip(pattern.iter().cycle()).for_each(|(byte, &with)| *byte = with);
            }
            (None, Content::Fresh) => stamp::fill(bytes, self.job.seed, command.offset, number),
            (None, Content::Reducible(reducible)) => {
                stamp::fill_reducible(bytes, *reducible, self.job.seed, command.offset, number);
            }
            (None, Content::Random | Content::Zeros) => {}
        }
    }

    fn reads_back(&self) -> bool {
        matches!(self.stage, Stage::Back { begun: true, .. })
    }

    fn check(&mut self, _number: u64, command: &Command, bytes: &[u8]) -> bool {
        match &self.written {
            Some(written) => !self.reads_back() || written.is_there(bytes, command.offset),
            None => !self.job.verify || stamp::is_whole(bytes, command.offset),
        }
    }
}
