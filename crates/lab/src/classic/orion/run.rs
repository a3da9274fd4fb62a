//! Runs the points of a test, and the steps of a search for its knees.

use super::cover::{Counted, Cover, Coverage};
use super::jobs::{Jobs, SECOND_NS};
use super::measure::{Class, Measured, PARTS};
use super::spec::{Point, Ramp, Spec};
use crate::job::{Job, Order};
use crate::load::{self, Going, LoadTarget, RunError};
use crate::record::{JobRun, Run};
use crate::session::{Session, finish, now_unix_ms};
use crate::stats::{LoadStep, Verdict, knee, next_load};
use bimetal_load::Source;
use bimetal_units::rng::mix;
use std::cell::RefCell;

/// Steps of a search at most: ten doublings, and as many halvings of what is left, twice over.
const MAX_SEARCH: usize = 40;
/// A load that is run twice has changed when its throughput is off by more than this share ...
const DRIFT: f64 = 0.05;
/// ... and by so many standard errors.
const SURE: f64 = 4.0;

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

/// Whether a test finds room on a target of so many bytes.
///
/// # Errors
/// When the target is too small.
pub fn check(spec: &Spec, points: &[Point], span_bytes: u64) -> Result<(), RunError> {
    points.iter().try_for_each(|point| Jobs { spec, span_bytes }.of(*point, 0).map(|_| ()))
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
    check(spec, points, span_bytes)?;
    let began = (now_unix_ms(), target.now_ns());
    let covers =
        [spec.small_bytes, spec.large_bytes].map(|bytes| RefCell::new(Cover::new(span_bytes, bytes)));
    let places = session.places.clone();
    let mut test = Test {
        target,
        spec,
        jobs_of: Jobs { spec, span_bytes },
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
    jobs_of: Jobs<'t>,
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
        let (jobs, smalls) = self.jobs_of.of(point, nth)?;
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

    /// What a point needs to have been read before.
    fn warm(&mut self, point: Point) -> Result<(), RunError> {
        let (nth, points) = (self.ran, self.planned);
        let Some(job) = self.jobs_of.warming(point, nth) else { return Ok(()) };
        let (over, watch) = (&mut self.over, &mut self.watch);
        let mut watch = |going: &Going| {
            let go_on = watch(&Progress { nth, points, point, warming: true, going });
            *over |= !go_on;
            go_on
        };
        load::run(self.target, &[job], &self.places, self.began_ns, SECOND_NS, &mut watch)?;
        Ok(())
    }
}
