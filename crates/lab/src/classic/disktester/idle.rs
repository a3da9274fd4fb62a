//! A target that is left alone: what it does of its own accord, until it does nothing any more.

use super::table::{MB, elapsed, quantity, speed};
use crate::load::{Going, Inside, LoadTarget, RunError, SlotSpec};
use crate::report::{Axis, Extra, Figure, FigureLine, Unit};
use bimetal_load::{Ended, Next, Source, Target};
use bimetal_models::Command;
use bimetal_units::rng::Rng;
use serde::Serialize;
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// A row is shown so often, where anything has changed; twice as rarely each time that so many were shown.
const ROW_NS: u64 = 5_000_000_000;
const ROWS: usize = 24;
/// How often the end is looked for.
const LOOK_NS: u64 = 250_000_000;
/// What a device below a file system does in the background of everything else, in the time that has to be quiet:
/// less than this is nobody's migration.
const TRICKLE_BYTES: u64 = 1 << 20;
/// Samples that are kept at most.
const MAX_SAMPLES: usize = 2048;

/// What [`Inside::parts`] has, in words.
const PARTS: [&str; 5] = [
    "promoted",
    "demoted",
    "copied to the fast tier",
    "merged into the slow tier",
    "read and written by the device",
];

/// When a rest is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleRule {
    /// When the target has done nothing for so long, where it tells.
    pub quiet_ns: u64,
    /// And in any case after so long.
    pub most_ns: u64,
    /// So long where it does not tell.
    pub untold_ns: u64,
}

/// What a target had done by a time of its rest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct IdleSample {
    /// Since the rest began.
    pub seconds: f64,
    /// Since the rest began.
    #[serde(flatten)]
    pub inside: Inside,
}

/// A rest.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Idle {
    /// When it began, since the test did.
    pub began_seconds: f64,
    /// How long it was.
    pub seconds: f64,
    /// Whether the target tells what it does.
    pub told: bool,
    /// Whether it had become quiet in the end.
    pub quiet: bool,
    /// What it did; nothing where it does not tell.
    #[serde(flatten)]
    pub did: Inside,
    /// Until when it did something, since the rest began.
    pub busy_seconds: f64,
    /// What it had done by when: where something changed, at most some thousand times.
    pub samples: Vec<IdleSample>,
    #[serde(skip)]
    watch: Watch,
}

/// What is needed while it goes on.
#[derive(Clone, Debug, Default, PartialEq)]
struct Watch {
    rule: Option<IdleRule>,
    first: Option<Inside>,
    last_change_ns: u64,
    /// What had been done when something last changed by more than a trickle.
    at_change: Inside,
    at_ns: u64,
    shown_ns: u64,
    shown: usize,
    shown_bytes: u64,
    sample_ns: u64,
    sampled_ns: u64,
}

impl Idle {
    pub(super) fn new(began_ns: u64, rule: &IdleRule) -> Idle {
        Idle {
            began_seconds: began_ns as f64 / 1e9,
            seconds: 0.0,
            told: false,
            quiet: false,
            did: Inside::default(),
            busy_seconds: 0.0,
            samples: Vec::new(),
            watch: Watch { rule: Some(*rule), sample_ns: LOOK_NS, ..Watch::default() },
        }
    }

    pub(super) fn head() -> String {
        format!(
            "{:>9} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8}",
            "Elapsed", "Promoted", "Demoted", "Copied", "Merged", "Device", "MB/s"
        )
    }

    /// Looks; a row, where it is time for one.
    pub(super) fn look(&mut self, going: &Going) -> Option<String> {
        self.take(going.at_ns, going.inside);
        let moved = self.did.all_bytes();
        let every = ROW_NS << (self.watch.shown / ROWS).min(20);
        let due = going.at_ns >= self.watch.shown_ns + every && moved > self.watch.shown_bytes;
        due.then(|| self.row())
    }

    fn take(&mut self, at_ns: u64, inside: Option<Inside>) {
        self.watch.at_ns = at_ns;
        let Some(inside) = inside else { return };
        self.told = true;
        let first = *self.watch.first.get_or_insert(inside);
        let did = inside.since(&first);
        let since = did.since(&self.watch.at_change);
        if since.all_bytes() > since.device_bytes || since.device_bytes >= TRICKLE_BYTES {
            (self.watch.at_change, self.watch.last_change_ns) = (did, at_ns);
            if at_ns >= self.watch.sampled_ns + self.watch.sample_ns || self.samples.is_empty() {
                self.watch.sampled_ns = at_ns;
                self.samples.push(IdleSample { seconds: at_ns as f64 / 1e9, inside: did });
            }
        }
        if self.samples.len() >= MAX_SAMPLES {
            let mut nth = 0;
            self.samples.retain(|_| {
                nth += 1;
                nth % 2 == 0
            });
            self.watch.sample_ns *= 2;
        }
        self.did = did;
    }

    fn row(&mut self) -> String {
        let ns = (self.watch.at_ns - self.watch.shown_ns).max(1);
        let moved = self.did.all_bytes();
        let rate = moved.saturating_sub(self.watch.shown_bytes) as f64 * 1e3 / ns as f64;
        (self.watch.shown_ns, self.watch.shown_bytes) = (self.watch.at_ns, moved);
        self.watch.shown += 1;
        let mut text = format!("{:>9}", elapsed(self.watch.at_ns));
        for bytes in self.did.parts() {
            text += &format!(" {:>10}", quantity(bytes));
        }
        text + &format!(" {:>8}", speed(rate))
    }

    /// Whether it has lasted long enough.
    pub(super) fn is_over(&self) -> bool {
        let Some(rule) = self.watch.rule else { return true };
        match self.told {
            true => self.watch.at_ns - self.watch.last_change_ns >= rule.quiet_ns,
            false => self.watch.at_ns >= rule.untold_ns,
        }
    }

    pub(super) fn end(&mut self, ended_ns: u64, inside: Option<Inside>) {
        let at_ns = ended_ns.saturating_sub((self.began_seconds * 1e9) as u64);
        self.take(at_ns, inside);
        self.seconds = at_ns as f64 / 1e9;
        self.busy_seconds = self.watch.last_change_ns as f64 / 1e9;
        self.quiet = self.told && self.is_over();
    }

    /// What it had done by when, for its page.
    pub fn page(&self) -> Extra {
        let line = |(at, label): (usize, &&str)| {
            let done = |inside: &Inside| inside.parts()[at] as f64 / MB;
            let points = self.samples.iter().map(|sample| (sample.seconds * 1e9, done(&sample.inside)));
            let end = (self.seconds * 1e9, done(&self.did));
            let points = std::iter::once((0.0, 0.0)).chain(points).chain([end]).collect();
            (done(&self.did) > 0.0).then(|| FigureLine { label: label.to_string(), points })
        };
        let axis = |label: &str, unit| Axis { label: label.to_owned(), unit, log: false };
        let lines: Vec<FigureLine> = PARTS.iter().enumerate().filter_map(line).collect();
        let figure = Figure {
            id: "idle".to_owned(),
            title: "What it did by then".to_owned(),
            x: axis("time", Unit::Nanoseconds),
            y: axis("MB", Unit::Count),
            lines,
            marks: Vec::new(),
        };
        Extra {
            title: "Left alone".to_owned(),
            findings: vec![self.sentence()],
            figures: if figure.lines.is_empty() { Vec::new() } else { vec![figure] },
            ..Extra::default()
        }
    }

    /// What came of it, in a line.
    pub fn sentence(&self) -> String {
        let lasted = elapsed((self.seconds * 1e9) as u64);
        if !self.told {
            return format!("left alone for {lasted}; this target does not tell what it does meanwhile");
        }
        let until = elapsed((self.busy_seconds * 1e9) as u64);
        let parts = self.did.parts().into_iter().zip(PARTS).filter(|(bytes, _)| *bytes > 0);
        let parts: Vec<String> = parts.map(|(bytes, what)| format!("{} {what}", quantity(bytes))).collect();
        let ended = if self.quiet { "then it was quiet" } else { "it was not quiet yet" };
        match parts.is_empty() {
            true => format!("left alone for {lasted}, it did nothing"),
            false => format!("left alone for {lasted}: {} by {until}; {ended}", parts.join(", ")),
        }
    }
}

/// Asks for nothing, until it is over.
pub(super) struct IdleSource {
    most_ns: u64,
    over: Rc<Cell<bool>>,
}

impl IdleSource {
    pub(super) fn new(rule: &IdleRule) -> IdleSource {
        IdleSource { most_ns: rule.most_ns, over: Rc::default() }
    }

    pub(super) fn over(&self) -> Rc<Cell<bool>> {
        self.over.clone()
    }
}

impl Source for IdleSource {
    fn next(&mut self, now: u64, _: &mut Rng) -> Next {
        match self.over.get() || now >= self.most_ns {
            true => Next::End,
            false => Next::Later((now + LOOK_NS).min(self.most_ns)),
        }
    }
}

/// A target that is only watched: what is served, or mounted, by somebody else.
pub struct Watched<F> {
    began: Instant,
    inside: F,
}

impl<F: FnMut() -> Option<Inside>> Watched<F> {
    /// What it does is asked for so.
    pub fn new(inside: F) -> Watched<F> {
        Watched { began: Instant::now(), inside }
    }
}

impl<F> Target for Watched<F> {
    fn now_ns(&mut self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn submit(&mut self, _slot: u32, _place: u32, command: Command) {
        unreachable!("{command:?}: nothing is asked for of what is only watched");
    }

    fn wait(&mut self, until: Option<u64>, _ended: &mut Vec<Ended>) -> u64 {
        let now = self.now_ns();
        std::thread::sleep(Duration::from_nanos(until.unwrap_or(now).saturating_sub(now)));
        self.now_ns()
    }
}

impl<F: FnMut() -> Option<Inside>> LoadTarget for Watched<F> {
    fn prepare(&mut self, _slots: &[SlotSpec]) -> Result<(), RunError> {
        Ok(())
    }

    fn inside(&mut self) -> Option<Inside> {
        (self.inside)()
    }
}
