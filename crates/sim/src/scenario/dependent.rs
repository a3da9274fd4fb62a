//! A replay that waits for what was waited for when the trace was recorded.
//!
//! Some records are read ahead; each is ready when what it depends on has ended, and its gap after that. What depends on
//! nothing keeps its recorded time.

use super::replay::{Pace, Replay, Rest};
use bimetal_load::{Next, Source};
use bimetal_trace::depend::{Dependencies, Tally};
use bimetal_units::rng::Rng;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Records that are read ahead: more than were in flight together in most traces, so that one that waits long keeps few
/// others back. About 100 bytes each.
const AHEAD: usize = 16_384;
/// Completions that are remembered: nothing depends on older ones ([`bimetal_trace::Dependencies`] forgets them, too).
const REMEMBERED: usize = 1 << 17;

/// A replay in dependency order.
pub struct Dependent<'s> {
    replay: Replay<'s>,
    pace: Pace,
    dependencies: Dependencies,
    /// Records that were read and are not begun, by number.
    read: BTreeMap<u64, Rest>,
    /// When which of them may begin.
    ready: BinaryHeap<Reverse<(u64, u64)>>,
    /// By the number of a record that has not ended: those that wait for it, and their gaps.
    waiting: BTreeMap<u64, Vec<(u64, u64)>>,
    /// Records that have not ended: parts of each that are in flight or to come; none begun is 0.
    open: BTreeMap<u64, u32>,
    /// When others ended.
    ended: BTreeMap<u64, u64>,
    /// By the number of a command: its record.
    running: BTreeMap<u64, u64>,
    /// The record whose parts are being asked for, and when it was meant to begin.
    current: Option<(u64, u64)>,
    asked: u64,
    dry: bool,
}

impl<'s> Dependent<'s> {
    /// Of a replay that has not begun.
    pub(super) fn new(replay: Replay<'s>, pace: Pace) -> Dependent<'s> {
        Dependent {
            replay,
            pace,
            dependencies: Dependencies::default(),
            read: BTreeMap::new(),
            ready: BinaryHeap::new(),
            waiting: BTreeMap::new(),
            open: BTreeMap::new(),
            ended: BTreeMap::new(),
            running: BTreeMap::new(),
            current: None,
            asked: 0,
            dry: false,
        }
    }

    /// The replay itself.
    pub fn replay(&self) -> &Replay<'s> {
        &self.replay
    }

    /// How many of the records depend on others.
    pub fn tally(&self) -> Tally {
        self.dependencies.tally()
    }

    fn read_ahead(&mut self, now: u64) {
        while !self.dry && self.read.len() < AHEAD {
            let Some((record, request)) = self.replay.next_record() else {
                self.dry = true;
                return;
            };
            let number = self.dependencies.tally().requests;
            let dependency = self.dependencies.next(&record);
            let Some(request) = request else {
                self.has_ended(number, now);
                continue;
            };
            self.read.insert(number, request);
            self.open.insert(number, 0);
            let Some(after) = dependency.after else {
                self.ready.push(Reverse((self.pace.at(Some(dependency.gap.0)), number)));
                continue;
            };
            let gap = self.pace.gap(dependency.gap.0);
            if self.open.contains_key(&after) {
                self.waiting.entry(after).or_default().push((number, gap));
            } else {
                let ended = self.ended.get(&after).copied().unwrap_or(now);
                self.ready.push(Reverse((ended + gap, number)));
            }
        }
    }

    fn has_ended(&mut self, number: u64, now: u64) {
        self.open.remove(&number);
        self.ended.insert(number, now);
        if self.ended.len() > REMEMBERED {
            self.ended.pop_first();
        }
        for (waiting, gap) in self.waiting.remove(&number).unwrap_or_default() {
            self.ready.push(Reverse((now + gap, waiting)));
        }
    }

    /// The next part of the record that is being asked for.
    fn part(&mut self) -> Option<Next> {
        let (number, meant) = self.current?;
        let request = self.read.remove(&number)?;
        let (command, rest) = self.replay.part(request);
        match rest {
            Some(rest) => {
                self.read.insert(number, rest);
            }
            None => self.current = None,
        }
        *self.open.entry(number).or_default() += 1;
        self.running.insert(self.asked, number);
        self.asked += 1;
        Some(Next::Ask(bimetal_load::Ask { at: Some(meant), command }))
    }
}

impl Source for Dependent<'_> {
    fn next(&mut self, now: u64, _: &mut Rng) -> Next {
        if let Some(part) = self.part() {
            return part;
        }
        self.read_ahead(now);
        match self.ready.peek() {
            Some(&Reverse((at, _))) if at > now => Next::Later(at),
            Some(&Reverse((at, number))) => {
                self.ready.pop();
                self.current = Some((number, at));
                self.part().expect("what is ready was read and is not begun")
            }
            None if !self.running.is_empty() => Next::Hold,
            None => {
                assert!(self.read.is_empty(), "each record waits for an earlier one, and those have ended");
                Next::End
            }
        }
    }

    fn ended(&mut self, number: u64, now: u64, _done: bool) {
        let Some(record) = self.running.remove(&number) else { return };
        let parts = self.open.entry(record).or_default();
        *parts -= 1;
        // More parts may be to come.
        if *parts == 0 && !self.read.contains_key(&record) {
            self.has_ended(record, now);
        }
    }
}
