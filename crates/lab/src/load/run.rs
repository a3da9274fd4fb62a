//! Runs jobs side by side on a target: each in a thread of its own where the target can be had for each, all in one loop else.

use super::apart::{self, Own};
use super::steady::SteadyWatch;
use super::{JobSource, Meter};
use crate::job::{Content, Job, side};
use crate::record::JobRun;
use bimetal_load::{Fault, Io, Sample, Source, Stream, Target, Until, Witness};
use bimetal_models::Kind;
use bimetal_units::rng::Rng;
use serde::Serialize;
use std::cell::Cell;
use std::num::NonZeroU64;
use std::ops::Range;
use std::rc::Rc;

/// How often a run is looked at.
const LOOK_NS: u64 = 250_000_000;
/// How long a run that is to end waits for what is in flight: several times what a disk takes that tries a bad sector
/// again and again, and less than who has asked for the end is patient.
pub const PATIENCE_NS: u64 = 10_000_000_000;
/// I/Os in flight at most, of all jobs that share a loop: what one ring can hold.
pub const MAX_IN_FLIGHT: u32 = 4096;
/// Memory for what is in flight, at most, on a machine that does not tell how much it has.
pub const MAX_BUFFER_BYTES: u64 = 1 << 30;

/// What one read or write can move: Linux takes no more at once, and would do a part of it.
pub const MAX_TRANSFER_BYTES: u64 = 0x7fff_f000;

/// Why a run cannot begin, or go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The jobs together want more I/Os in flight.
    #[error("{0} I/Os in flight are more than {MAX_IN_FLIGHT}: lower iodepth or numjobs")]
    Depth(u64),
    /// They want more memory for what is in flight.
    #[error(
        "I/Os in flight would take {0} bytes of memory, more than {1}, three quarters of what is free: lower iodepth, numjobs or bs"
    )]
    Memory(u64, u64),
    /// One of them is longer than what the kernel moves at once.
    #[error(
        "a read or write of {0} bytes is longer than {MAX_TRANSFER_BYTES}, which is the most that is done at once: lower bs"
    )]
    Transfer(u64),
    /// The target cannot.
    #[error("{0}")]
    Target(String),
}

/// What a target is told about a slot before a run.
#[derive(Clone, Copy, Debug)]
pub struct SlotSpec {
    /// Its reads and writes have so many bytes at most: what its buffer has to hold.
    pub bytes: u64,
    /// Its I/Os have so many bytes at most, discards among them.
    pub longest: u64,
    /// Its buffer begins with random bytes.
    pub random: bool,
    /// Seed of these.
    pub seed: u64,
}

/// What a target tells of its inside: what it has copied of its own accord since it was opened, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Inside {
    /// Moved to the fast tier.
    pub promoted_bytes: u64,
    /// Moved down from it.
    pub demoted_bytes: u64,
    /// Copied to it, and left where it was as well.
    pub copied_bytes: u64,
    /// Written to the slow tier, after it had been written to the fast one first.
    pub merged_bytes: u64,
    /// Read and written by the device below, for whomever: where only that is known.
    pub device_bytes: u64,
}

impl Inside {
    /// All of it together.
    pub fn all_bytes(&self) -> u64 {
        self.parts().iter().sum()
    }

    /// One by one, in the order of the fields.
    pub fn parts(&self) -> [u64; 5] {
        let Inside { promoted_bytes, demoted_bytes, copied_bytes, merged_bytes, device_bytes } = *self;
        [promoted_bytes, demoted_bytes, copied_bytes, merged_bytes, device_bytes]
    }

    /// What has come since.
    pub fn since(&self, before: &Inside) -> Inside {
        Inside {
            promoted_bytes: self.promoted_bytes.saturating_sub(before.promoted_bytes),
            demoted_bytes: self.demoted_bytes.saturating_sub(before.demoted_bytes),
            copied_bytes: self.copied_bytes.saturating_sub(before.copied_bytes),
            merged_bytes: self.merged_bytes.saturating_sub(before.merged_bytes),
            device_bytes: self.device_bytes.saturating_sub(before.device_bytes),
        }
    }
}

/// What the offsets and lengths of reads and writes have to be multiples of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granule {
    /// Bytes, a power of two.
    pub bytes: u64,
    /// Why, as the end of a sentence.
    pub why: &'static str,
    /// What helps, in the imperative.
    pub cure: &'static str,
}

/// A target of the lab.
pub trait LoadTarget: Target {
    /// Makes room for what will be in flight.
    ///
    /// # Errors
    /// When there is none.
    fn prepare(&mut self, slots: &[SlotSpec]) -> Result<(), RunError>;

    /// Where a place has data, ascending; what lies between reads zeros. `None` where that is not known, or in more than
    /// so many ranges.
    fn data(&mut self, _place: u32, _most: usize) -> Option<Vec<Range<u64>>> {
        None
    }

    /// What offsets and lengths of a place's reads and writes have to be multiples of; where not any will do.
    fn granule(&self, _place: u32) -> Option<Granule> {
        None
    }

    /// Bytes that the fast tier has served, and all bytes, since it was opened; where it tells.
    fn tiers(&mut self) -> Option<(u64, u64)> {
        None
    }

    /// What it has done of its own accord; where it tells.
    fn inside(&mut self) -> Option<Inside> {
        None
    }

    /// The same target for each of so many jobs, to be made and driven by a thread of its own; all of them have this
    /// one's clock and places. `None` where one loop has to serve all jobs: in virtual time, or in an engine.
    fn apart(&mut self, _jobs: usize) -> Option<Vec<Own>> {
        None
    }

    /// Why jobs share one loop although a target of this kind could be had for each, in a sentence; where that is so.
    fn shared_because(&self) -> Option<String> {
        None
    }
}

impl<T: LoadTarget + ?Sized> LoadTarget for &mut T {
    fn prepare(&mut self, slots: &[SlotSpec]) -> Result<(), RunError> {
        (**self).prepare(slots)
    }

    fn data(&mut self, place: u32, most: usize) -> Option<Vec<Range<u64>>> {
        (**self).data(place, most)
    }

    fn granule(&self, place: u32) -> Option<Granule> {
        (**self).granule(place)
    }

    fn tiers(&mut self) -> Option<(u64, u64)> {
        (**self).tiers()
    }

    fn inside(&mut self) -> Option<Inside> {
        (**self).inside()
    }

    fn apart(&mut self, jobs: usize) -> Option<Vec<Own>> {
        (**self).apart(jobs)
    }

    fn shared_because(&self) -> Option<String> {
        (**self).shared_because()
    }
}

impl<T: LoadTarget + ?Sized> LoadTarget for Box<T> {
    fn prepare(&mut self, slots: &[SlotSpec]) -> Result<(), RunError> {
        (**self).prepare(slots)
    }

    fn data(&mut self, place: u32, most: usize) -> Option<Vec<Range<u64>>> {
        (**self).data(place, most)
    }

    fn granule(&self, place: u32) -> Option<Granule> {
        (**self).granule(place)
    }

    fn tiers(&mut self) -> Option<(u64, u64)> {
        (**self).tiers()
    }

    fn inside(&mut self) -> Option<Inside> {
        (**self).inside()
    }

    fn apart(&mut self, jobs: usize) -> Option<Vec<Own>> {
        (**self).apart(jobs)
    }

    fn shared_because(&self) -> Option<String> {
        (**self).shared_because()
    }
}

/// How far a run has come.
#[derive(Clone, Debug)]
pub struct Going {
    /// Since it began.
    pub at_ns: u64,
    /// The share of it that is done.
    pub share: f64,
    /// What each job has done: reads and writes, and their bytes.
    pub done: Vec<[(u64, u64); 2]>,
    /// What the target has done of its own accord, since it was opened; where it tells.
    pub inside: Option<Inside>,
}

/// Who wants to know how it goes: on `false` it ends.
pub type Watch<'w> = &'w mut dyn FnMut(&Going) -> bool;

struct Look<'r, 'w> {
    jobs: &'r [Job],
    meters: Vec<Meter>,
    /// Of those that end when they are steady.
    gates: Vec<Option<SteadyWatch>>,
    began_ns: u64,
    /// What the tiers had served by the last look, and what they have since each.
    served: Option<(u64, u64)>,
    tiers: Vec<(u64, u64, u64)>,
    stopped_ns: Option<u64>,
    watch: Watch<'w>,
}

impl<T: LoadTarget> Witness<T> for Look<'_, '_> {
    #[inline]
    fn begun(&mut self, stream: usize, kind: Kind, now_ns: u64, late_ns: Option<u64>) {
        self.meters[stream].begun(kind, now_ns, late_ns);
    }

    #[inline]
    fn ended(&mut self, io: &Io) {
        self.meters[io.stream].ended(io, text);
    }

    fn sample(&mut self, target: &mut T, sample: Sample) -> bool {
        let now = self.began_ns + sample.at_ns;
        if let Some((fast, all)) = target.tiers()
            && let Some((fast_before, all_before)) = self.served.replace((fast, all))
        {
            self.tiers.push((now, fast - fast_before, all - all_before));
        }
        for (gate, meter) in self.gates.iter_mut().zip(&self.meters) {
            if let Some(gate) = gate {
                gate.look(sample.at_ns, meter);
            }
        }
        let done: Vec<_> = self.meters.iter().map(Meter::so_far).collect();
        let share = share(self.jobs, sample.at_ns, &done);
        let going = Going { at_ns: sample.at_ns, share, done, inside: target.inside() };
        if !(self.watch)(&going) && self.stopped_ns.is_none() {
            self.stopped_ns = Some(now);
            self.meters.iter_mut().for_each(|meter| meter.stop(now));
        }
        self.stopped_ns.is_none()
    }

    fn gives_up(&mut self, now_ns: u64) -> bool {
        self.stopped_ns.is_some_and(|since| now_ns >= since.saturating_add(PATIENCE_NS))
    }
}

impl Look<'_, '_> {
    /// Whether the jobs are to begin at all.
    fn begins(&mut self) -> bool {
        let done = vec![Default::default(); self.jobs.len()];
        let begins = (self.watch)(&Going { at_ns: 0, share: 0.0, done, inside: None });
        if !begins {
            self.meters.iter_mut().for_each(|meter| meter.stop(self.began_ns));
        }
        begins
    }
}

/// How a run is looked at and reported.
#[derive(Clone, Copy)]
pub(super) struct How<'n> {
    /// The names of the target's places.
    pub(super) names: &'n [String],
    /// What times in the report count from, on the target's clock.
    pub(super) run_began_ns: u64,
    /// The length of the first intervals.
    pub(super) interval_ns: u64,
    /// How often it is looked at.
    pub(super) look_ns: u64,
}

/// The share of a run that is done: that of the job that has most to do.
pub(super) fn share(jobs: &[Job], at_ns: u64, done: &[[(u64, u64); 2]]) -> f64 {
    let shares = jobs
        .iter()
        .zip(done)
        .map(|(job, [reads, writes])| job.share(at_ns, reads.0 + writes.0, reads.1 + writes.1));
    shares.fold(1.0, f64::min)
}

/// Runs jobs side by side until all have ended, or the watch has it end; `names` are those of the target's places.
/// What came of each, with times since `run_began_ns` on the target's clock. Each job has a thread and a target of its
/// own, where the target can be had so.
///
/// # Errors
/// When the target has no room for what will be in flight.
pub fn run<T: LoadTarget>(
    target: &mut T,
    jobs: &[Job],
    names: &[String],
    run_began_ns: u64,
    interval_ns: u64,
    watch: Watch<'_>,
) -> Result<Vec<JobRun>, RunError> {
    let how = How { names, run_began_ns, interval_ns, look_ns: LOOK_NS };
    if jobs.len() > 1
        && let Some(owns) = target.apart(jobs.len())
    {
        // Each has a ring of its own.
        jobs.iter().try_for_each(|job| depth_fits(std::slice::from_ref(job)))?;
        return apart::run(target, owns, jobs, slots(jobs)?, how, watch);
    }
    depth_fits(jobs)?;
    target.prepare(&slots(jobs)?)?;
    Ok(run_prepared(target, jobs, how, watch))
}

/// The same in one loop, on a target that has room for all.
pub(super) fn run_prepared<T: LoadTarget>(
    target: &mut T,
    jobs: &[Job],
    how: How<'_>,
    watch: Watch<'_>,
) -> Vec<JobRun> {
    let mut sources: Vec<JobSource> = jobs.iter().map(JobSource::new).collect();
    let stops = sources.iter().map(JobSource::stop).collect();
    let streams = sources.iter_mut().map(|source| source as &mut dyn Source).collect();
    let mut ran = run_all(target, jobs, streams, stops, how, watch);
    for (ran, source) in ran.iter_mut().zip(&sources) {
        ran.found_depth = source.found_depth();
    }
    ran
}

/// The same with other sources than the jobs' own: these describe how much is in flight, and what counts.
///
/// # Errors
/// As [`run`].
pub fn run_sources<T: LoadTarget>(
    target: &mut T,
    jobs: &[Job],
    sources: Vec<&mut dyn Source>,
    names: &[String],
    (run_began_ns, interval_ns): (u64, u64),
    watch: Watch<'_>,
) -> Result<Vec<JobRun>, RunError> {
    depth_fits(jobs)?;
    target.prepare(&slots(jobs)?)?;
    let how = How { names, run_began_ns, interval_ns, look_ns: LOOK_NS };
    Ok(run_all(target, jobs, sources, vec![Rc::default(); jobs.len()], how, watch))
}

fn run_all<T: LoadTarget>(
    target: &mut T,
    jobs: &[Job],
    sources: Vec<&mut dyn Source>,
    stops: Vec<Rc<Cell<bool>>>,
    how: How<'_>,
    watch: Watch<'_>,
) -> Vec<JobRun> {
    let How { names, run_began_ns, interval_ns, look_ns } = how;
    // Without this the kernel may let a pause last 50 us longer than was asked for, to wake up less often (prctl(2)).
    // Where it cannot be set, the report says how late I/Os were begun.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let began_ns = target.now_ns();
    let streams = sources.into_iter().zip(jobs).map(|(source, job)| Stream {
        source,
        depth: job.depth,
        place: job.place,
        payload: job.has_payload(),
    });
    let meters = jobs.iter().map(|job| Meter::new(job, began_ns, interval_ns)).collect();
    let served = target.tiers();
    let gates = jobs.iter().zip(stops).map(|(job, stop)| SteadyWatch::new(job, stop)).collect();
    let mut look = Look { jobs, gates, meters, began_ns, served, tiers: Vec::new(), stopped_ns: None, watch };
    // Jobs that are over before anybody looks would leave nobody a chance to end those that come next.
    let begins = look.begins();
    let streams = streams.filter(|_| begins);
    // Each job draws its own random numbers.
    let mut rng = Rng::new(0, 0);
    bimetal_load::run(target, streams.collect(), Until::Dry, look_ns, &mut rng, &mut look);
    let (tiers, gates) = (look.tiers, look.gates);
    let ended = look.meters.into_iter().zip(jobs).enumerate().map(|(n, (meter, job))| {
        let name = names.get(job.place as usize).map_or("", String::as_str);
        let tiers: &[_] = if n == 0 { &tiers } else { &[] };
        let mut ran = meter.finish(job, name, tiers);
        ran.began_ns += began_ns - run_began_ns;
        ran
    });
    let mut ended: Vec<JobRun> = ended.collect();
    for (ran, gate) in ended.iter_mut().zip(gates) {
        ran.steady = gate.map(SteadyWatch::steadiness);
    }
    ended
}

/// Whether one ring can hold what these jobs have in flight.
fn depth_fits(jobs: &[Job]) -> Result<(), RunError> {
    let depth: u64 = jobs.iter().map(|job| u64::from(job.depth)).sum();
    if depth > u64::from(MAX_IN_FLIGHT) { Err(RunError::Depth(depth)) } else { Ok(()) }
}

fn slots(jobs: &[Job]) -> Result<Vec<SlotSpec>, RunError> {
    if let Some(bytes) = jobs.iter().map(buffer_bytes).find(|&bytes| bytes > MAX_TRANSFER_BYTES) {
        return Err(RunError::Transfer(bytes));
    }
    let bytes = jobs.iter().map(|job| u64::from(job.depth).saturating_mul(buffer_bytes(job)));
    let bytes = bytes.fold(0, u64::saturating_add);
    // Looked up only where it is much.
    if bytes > MAX_BUFFER_BYTES && bytes > most_buffer_bytes() {
        return Err(RunError::Memory(bytes, most_buffer_bytes()));
    }
    let slots = jobs.iter().flat_map(|job| {
        let random = job.content != Content::Zeros;
        let slot = SlotSpec { bytes: buffer_bytes(job), longest: job.most_bytes(), random, seed: job.seed };
        std::iter::repeat_n(slot, job.depth as usize)
    });
    Ok(slots.collect())
}

/// What each of a job's I/Os in flight needs of memory: what is only discarded is not carried.
fn buffer_bytes(job: &Job) -> u64 {
    let carries = |side: &usize| *side != side::DISCARD;
    let sizes = job.sides().filter(carries).map(|side| job.sizes[side].most());
    if job.verify { job.most_bytes() } else { sizes.max().unwrap_or(0) }
}

/// Memory for what is in flight, at most: three quarters of what the kernel says can be had without swapping.
fn most_buffer_bytes() -> u64 {
    let facts = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = facts.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.strip_suffix("kB"));
    let bytes = kib.and_then(|kib| kib.trim().parse::<u64>().ok()).map(|kib| kib.saturating_mul(1024));
    bytes.map_or(MAX_BUFFER_BYTES, |bytes| (bytes / 4).saturating_mul(3))
}

/// A fault in words.
fn text(fault: Fault) -> String {
    match fault {
        Fault::Failed(failure) => format!("the model says: {failure:?}").to_lowercase(),
        Fault::Errno(errno) => std::io::Error::from_raw_os_error(errno).to_string(),
        Fault::Short(_) => "only a part was done".to_owned(),
    }
}
