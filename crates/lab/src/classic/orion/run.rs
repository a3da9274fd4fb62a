//! Runs the points of a test, and the steps of a search for its knees.

use super::cover::{Counted, Cover, Coverage};
use super::measure::{Class, Measured, PARTS};
use super::spec::{LargeOrder, Point, Ramp, Spec};
use crate::job::{Job, Ops, Order, Sizes};
use crate::load::{self, Going, LoadTarget, RunError};
use crate::record::{JobRun, Run};
use crate::session::{Session, finish, now_unix_ms};
use crate::stats::{LoadStep, Verdict, knee, next_load};
use bimetal_models::load::Source;
use bimetal_models::rng::mix;
use std::cell::RefCell;

/// Steps of a search at most: ten doublings, and as many halvings of what is left, twice over.
const MAX_SEARCH: usize = 40;
/// What Orion reads before a sequential point where it does not know how large the cache is.
const WARMING_NS: u64 = 120 * SECOND_NS;
/// A load that is run twice has changed when its throughput is off by more than this share ...
const DRIFT: f64 = 0.05;
/// ... and by so many standard errors.
const SURE: f64 = 4.0;
const SECOND_NS: u64 = 1_000_000_000;

/// How far a test has come.
pub struct Progress<'p> {
    /// The point that is going on; the first is 0.
    pub nth: usize,
    /// Points of the matrix.
    pub points: usize,
    /// Its loads.
    pub point: Point,
    /// Whether it is only made ready.
    pub warming: bool,
    /// How that goes.
    pub going: &'p Going,
}

/// A load that was run twice: whether the target is what it was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Again {
    /// The line.
    pub ramp: Ramp,
    /// Its load.
    pub load: u32,
    /// I/Os by second the first time.
    pub first_iops: f64,
    /// And at the end.
    pub again_iops: f64,
    /// Whether they differ by more than chance, and by enough to matter.
    pub differs: bool,
}

/// What came of a test.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Points, as they were run.
    pub points: Vec<Measured>,
    /// The lines on which a knee may be, and what they say of it.
    pub knees: Vec<(Ramp, Verdict)>,
    /// The loads of the knees, run once more at the end of their search.
    pub again: Vec<Again>,
    /// What small I/Os have touched, if there were any.
    pub small_cover: Option<Coverage>,
    /// What large I/Os have touched.
    pub large_cover: Option<Coverage>,
    /// The record.
    pub run: Run,
}

impl Outcome {
    /// A line of loads, ascending.
    pub fn steps(&self, ramp: Ramp) -> Vec<LoadStep> {
        steps(&self.points, ramp)
    }
}

/// Runs a test on a target of one place (an array has one) of so many bytes. `watch` is told how it goes four times a
/// second, and ends the run with `false`; `told` hears of each point that is done.
///
/// # Errors
/// When the target is too small, or has no room for what is in flight.
pub fn run<T: LoadTarget>(
    target: &mut T,
    spec: &Spec,
    points: &[Point],
    span_bytes: u64,
    session: Session,
    watch: &mut dyn FnMut(&Progress<'_>) -> bool,
    told: &mut dyn FnMut(&Measured),
) -> Result<Outcome, RunError> {
    let began = (now_unix_ms(), target.now_ns());
    let covers =
        [spec.small_bytes, spec.large_bytes].map(|bytes| RefCell::new(Cover::new(span_bytes, bytes)));
    let places = session.places.clone();
    let mut test = Test {
        target,
        spec,
        span_bytes,
        planned: points.len(),
        places,
        began_ns: began.1,
        covers,
        jobs: Vec::new(),
        ran: 0,
        points: Vec::new(),
        again: Vec::new(),
        over: false,
        watch,
        told,
    };
    for &point in points {
        test.measure(point, false)?;
    }
    if spec.knee {
        for ramp in spec.ramps() {
            test.search(ramp)?;
            test.run_again(ramp)?;
        }
    }
    let Test { covers, jobs, points, again, over, .. } = test;
    let failed = jobs.iter().any(|job| !job.errors.is_empty());
    let run = finish(session, began.0, over && !failed, jobs);
    let [small_cover, large_cover] = covers.map(|cover| {
        let coverage = cover.borrow().coverage();
        (coverage.ios > 0).then_some(coverage)
    });
    let knees = spec.ramps().into_iter().map(|ramp| (ramp, knee(&steps(&points, ramp)))).collect();
    Ok(Outcome { points, knees, again, small_cover, large_cover, run })
}

/// The points on a line, by their loads.
fn steps(points: &[Measured], ramp: Ramp) -> Vec<LoadStep> {
    let mut steps: Vec<LoadStep> = points
        .iter()
        .filter_map(|measured| Some(class(measured, ramp)?.step(ramp.load(measured.point)?)))
        .collect();
    steps.sort_by_key(|step| step.load);
    steps
}

/// What a line is of.
pub(super) fn class(measured: &Measured, ramp: Ramp) -> Option<&Class> {
    match ramp {
        Ramp::Small { .. } => measured.small.as_ref(),
        Ramp::Large { .. } => measured.large.as_ref(),
    }
}

struct Test<'t, T> {
    target: &'t mut T,
    spec: &'t Spec,
    span_bytes: u64,
    /// Points of the matrix.
    planned: usize,
    places: Vec<String>,
    began_ns: u64,
    /// Of small and of large I/Os.
    covers: [RefCell<Cover>; 2],
    jobs: Vec<JobRun>,
    /// Points that were run.
    ran: usize,
    points: Vec<Measured>,
    again: Vec<Again>,
    /// It was ended before its time, or something was not done.
    over: bool,
    watch: &'t mut dyn FnMut(&Progress<'_>) -> bool,
    told: &'t mut dyn FnMut(&Measured),
}

impl<T: LoadTarget> Test<'_, T> {
    /// Runs loads of a line until its knee is bracketed, or cannot be.
    fn search(&mut self, ramp: Ramp) -> Result<(), RunError> {
        let most = self.spec.most_load(ramp);
        for _ in 0..MAX_SEARCH {
            let Some(load) = next_load(&steps(&self.points, ramp), most).filter(|_| !self.over) else {
                break;
            };
            self.measure(ramp.point(load), true)?;
        }
        Ok(())
    }

    /// Runs the load of a knee once more: a target that writes have changed meanwhile has no one curve.
    fn run_again(&mut self, ramp: Ramp) -> Result<(), RunError> {
        let steps_before = steps(&self.points, ramp);
        let Verdict::Knee(knee) = knee(&steps_before) else { return Ok(()) };
        let first = steps_before.into_iter().find(|step| step.load == knee.load);
        let measured = self.run_point(ramp.point(knee.load), true)?;
        let again = measured.as_ref().and_then(|measured| class(measured, ramp)).map(|of| of.step(knee.load));
        if let (Some(first), Some(again)) = (first, again) {
            let (first_iops, again_iops) = (first.rate(), again.rate());
            let differs = (again_iops / first_iops).ln().abs() > DRIFT
                && (again_iops - first_iops).abs() > SURE * first.error().hypot(again.error());
            self.again.push(Again { ramp, load: knee.load, first_iops, again_iops, differs });
        }
        Ok(())
    }

    fn measure(&mut self, point: Point, searched: bool) -> Result<(), RunError> {
        let measured = self.run_point(point, searched)?;
        self.points.extend(measured);
        Ok(())
    }

    /// Runs a point; none where the run is over.
    fn run_point(&mut self, point: Point, searched: bool) -> Result<Option<Measured>, RunError> {
        if self.over {
            return Ok(None);
        }
        self.warm(point)?;
        let nth = self.ran;
        let (jobs, smalls) = self.jobs_of(point, nth)?;
        if self.over {
            return Ok(None);
        }
        let part_ns = u64::from(self.spec.seconds) * SECOND_NS / PARTS;
        let covers = &self.covers;
        let shift = |at: usize, job: &Job| {
            // Random places are anywhere as it is.
            let blocks = (job.span.end - job.span.start) / job.align_bytes[0];
            let turn = mix(self.spec.seed ^ mix((nth * 4096 + at) as u64)) % blocks;
            if job.order[0] == Order::SEQUENTIAL { turn * job.align_bytes[0] } else { 0 }
        };
        let counted =
            |(at, job): (usize, &Job)| Counted::new(job, shift(at, job), &covers[usize::from(at >= smalls)]);
        let mut sources: Vec<Counted<'_>> = jobs.iter().enumerate().map(counted).collect();
        let sources = sources.iter_mut().map(|source| source as &mut dyn Source).collect();
        let (planned, over, watch) = (self.planned, &mut self.over, &mut self.watch);
        let mut watch = |going: &Going| {
            let go_on = watch(&Progress { nth, points: planned, point, warming: false, going });
            *over |= !go_on;
            go_on
        };
        let times = (self.began_ns, part_ns);
        let ran = load::run_sources(self.target, &jobs, sources, &self.places, times, &mut watch)?;
        self.covers.iter().for_each(|cover| cover.borrow_mut().end_point());
        self.over |= ran.iter().any(|job| !job.errors.is_empty());
        let (small, large) = ran.split_at(smalls);
        let measured = Measured { point, searched, small: Class::of(small), large: Class::of(large) };
        (self.told)(&measured);
        self.ran += 1;
        self.jobs.extend(ran);
        Ok(Some(measured))
    }

    /// Before large sequential I/O, Orion reads at random what is not measured, so that no cache holds the stream.
    fn warm(&mut self, point: Point) -> Result<(), RunError> {
        if self.spec.large_order != LargeOrder::Sequential || point.large == 0 {
            return Ok(());
        }
        let bytes = self.spec.cache_bytes;
        if bytes == Some(0) {
            return Ok(());
        }
        let mut job = self.job("warming", self.spec.large_bytes, self.spec.large_ios(point.large));
        job.span = 0..self.span_bytes / self.spec.large_bytes * self.spec.large_bytes;
        self.check(&job)?;
        job.ops = Ops::ReadWrite { read_percent: 100 };
        (job.time_based, job.bytes) = (bytes.is_none(), bytes);
        job.runtime_ns = bytes.is_none().then_some(WARMING_NS);
        job.seed = mix(self.spec.seed ^ mix(self.ran as u64) ^ 1);
        let (nth, planned) = (self.ran, self.planned);
        let (over, watch) = (&mut self.over, &mut self.watch);
        let mut watch = |going: &Going| {
            let go_on = watch(&Progress { nth, points: planned, point, warming: true, going });
            *over |= !go_on;
            go_on
        };
        load::run(self.target, &[job], &self.places, self.began_ns, SECOND_NS, &mut watch)?;
        Ok(())
    }

    /// The jobs of a point, small ones first, and how many these are.
    fn jobs_of(&self, point: Point, nth: usize) -> Result<(Vec<Job>, usize), RunError> {
        let Point { small, large } = point;
        let mut jobs = Vec::new();
        let whole = |bytes: u64| 0..self.span_bytes / bytes * bytes;
        let name = |what: &str| format!("small={small} large={large}: {what}");
        if small > 0 {
            let mut job = self.job(&name("small"), self.spec.small_bytes, small);
            job.span = whole(self.spec.small_bytes);
            jobs.push(job);
        }
        let smalls = jobs.len();
        match self.spec.large_order {
            _ if large == 0 => {}
            LargeOrder::Random => {
                let mut job = self.job(&name("large"), self.spec.large_bytes, large);
                job.span = whole(self.spec.large_bytes);
                jobs.push(job);
            }
            LargeOrder::Sequential => jobs.extend((0..large).map(|stream| self.stream(point, stream))),
        }
        for (at, job) in jobs.iter_mut().enumerate() {
            self.check(job)?;
            job.group = nth as u32;
            job.seed = mix(self.spec.seed ^ mix((nth * 4096 + at) as u64 ^ 2));
        }
        Ok((jobs, smalls))
    }

    /// One of the streams of a point: each has a part of the span.
    fn stream(&self, point: Point, stream: u32) -> Job {
        let bytes = self.spec.large_bytes;
        let name = format!("small={} large={}: stream {}", point.small, point.large, stream + 1);
        let mut job = self.job(&name, bytes, self.spec.stream_ios);
        let part = self.span_bytes / u64::from(point.large) / bytes * bytes;
        job.span = u64::from(stream) * part..(u64::from(stream) + 1) * part;
        job.order = [Order::SEQUENTIAL; 3];
        // A stream reads or writes: so many of a hundred streams, to the nearest.
        let writers = (u64::from(point.large) * u64::from(self.spec.write_percent) + 50) / 100;
        let read_percent = if u64::from(stream) < writers { 0 } else { 100 };
        job.ops = Ops::ReadWrite { read_percent };
        job
    }

    /// I/O at random places, for as long as a point lasts.
    fn job(&self, name: &str, bytes: u64, depth: u32) -> Job {
        let mut job = Job::new(name, 0..self.span_bytes);
        (job.sizes, job.align_bytes) = (std::array::from_fn(|_| Sizes::one(bytes)), [bytes; 3]);
        job.ops = Ops::ReadWrite { read_percent: 100 - self.spec.write_percent };
        (job.depth, job.each_once) = (depth, false);
        (job.time_based, job.runtime_ns) = (true, Some(u64::from(self.spec.seconds) * SECOND_NS));
        job
    }

    fn check(&self, job: &Job) -> Result<(), RunError> {
        if job.span.is_empty() {
            let (span, bytes) = (self.span_bytes, job.align_bytes[0]);
            return Err(RunError::Target(format!(
                "the targets have {span} bytes together, too few for I/Os of {bytes} bytes ({}); name larger ones",
                job.name
            )));
        }
        Ok(())
    }
}
