//! From a job file to jobs: which targets it needs, and, as soon as their sizes are known, what is asked of them.

use super::error::{MOST_TOLD, Problem};
use super::file::{JobFile, JobSection};
use super::iolog::IoLog;
use super::logs::LogFiles;
use super::number::Extent;
use super::options::{
    Arrivals, BlockSizes, Data, Direction, Distribution as Spread, Durability, Ends, JobOptions,
    Limit as Far, Metric, PatternPart, PerSide as Sides, Sequencer, Zone,
};
use super::places::{Place, Places, alignment, all_file_bytes, begin};
use super::view::options_for_record;
use crate::job::{
    Content, DepthSearch, Distribution, Job, Ops, Order, PerSide, Rate, Reducible, Sizes, Think, UntilSteady,
    side,
};
use crate::load::{Ended, Flow, MOST_PARTS, Script};
use crate::stats::{FioRule, Limit, Measure, Quantity};
use crate::target::{Spread as OnFiles, TargetName};
use bimetal_engine::action::MAX_PAYLOAD_BYTES;
use bimetal_units::rng::mix;
use std::collections::BTreeMap;

/// Jobs with their copies at most, as with fio.
const MAX_JOBS: usize = 4096;

/// Why a job file cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LowerError(String);

type Result<T> = std::result::Result<T, LowerError>;

pub(super) fn wrong<T>(section: &JobSection, what: impl Into<String>) -> Result<T> {
    Err(LowerError(said_of(section, &what.into())))
}

/// With file and line.
fn said_of(section: &JobSection, what: &str) -> String {
    Problem::new(what, "").at(&section.at, &section.name, "").to_string()
}

/// A target that a job file needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Needed {
    /// Its name.
    pub name: TargetName,
    /// Past the page cache.
    pub direct: bool,
    /// Some job writes to it.
    pub write: bool,
    /// Some job reads what it has not written.
    pub read: bool,
    /// A file is to be at least so long.
    pub at_least_bytes: Option<u64>,
    /// A file is to be removed afterwards.
    pub unlink: bool,
    /// It is to be read before the run, so that the page cache has it.
    pub pre_read: bool,
}

/// A job file that is about to be run.
#[derive(Debug)]
pub struct Plan<'f> {
    /// What it needs.
    pub targets: Vec<Needed>,
    /// What is to be said about it.
    pub notes: Vec<String>,
    copies: Vec<Copy<'f>>,
    places: Places,
    groups: bool,
}

/// One copy of a job.
#[derive(Debug)]
struct Copy<'f> {
    section: &'f JobSection,
    /// Its number among the copies.
    number: u32,
    place: usize,
    /// Where in its file it begins, whatever its offset is.
    begins_bytes: Option<u64>,
}

/// What a job file needs; with `redirect`, all of it is done there.
///
/// # Errors
/// When it says something that is read but not done.
pub fn plan<'f>(file: &'f JobFile, redirect: Option<&TargetName>) -> Result<Plan<'f>> {
    let groups = file.jobs.iter().any(|section| section.options.faces.group_reporting);
    let mut plan = Plan {
        targets: Vec::new(),
        notes: file.notes.clone(),
        copies: Vec::new(),
        places: Places::default(),
        groups,
    };
    let refused: Vec<String> = file.jobs.iter().flat_map(refused).collect();
    if !refused.is_empty() {
        return Err(LowerError(refused.join("\n")));
    }
    let mut problems = Problems::default();
    for section in &file.jobs {
        for number in 0..section.options.jobs {
            if plan.copies.len() >= MAX_JOBS {
                return wrong(section, format!("with its copies there are more than {MAX_JOBS} jobs"));
            }
            match plan.places.of(&mut plan.targets, section, number, redirect) {
                Ok((place, begins_bytes)) => {
                    plan.copies.push(Copy { section, number, place, begins_bytes });
                }
                // Its other copies have it as well.
                Err(error) => {
                    problems.add(error);
                    break;
                }
            }
        }
    }
    problems.none()?;
    if file.jobs.iter().any(|section| section.options.verify.is_some()) {
        plan.notes.push(
            "verify: blocks carry the lab's own stamps, and all of their bytes are compared, whichever checksum is named"
                .into(),
        );
    }
    Ok(plan)
}

/// What is wrong with several jobs, each thing once.
#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    fn add(&mut self, LowerError(problem): LowerError) {
        if self.0.len() < MOST_TOLD && !self.0.contains(&problem) {
            self.0.push(problem);
        }
    }

    fn none(self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(LowerError(self.0.join("\n"))) }
    }
}

/// What can be read, but is not done.
fn refused(section: &JobSection) -> Vec<String> {
    let options = &section.options;
    let refused = [(
        options.unaligned && options.verify.is_some(),
        "bs_unaligned with verify is not done; leave out one of them",
    )];
    refused.into_iter().filter(|(is, _)| *is).map(|(_, what)| said_of(section, what)).collect()
}

impl Plan<'_> {
    /// How the places that jobs have lie on targets of these sizes; `None` where each is a target of its own.
    pub fn spread(&self, sizes: &[u64]) -> Option<Vec<OnFiles>> {
        let spread = || self.places.all.iter().map(|place| place.spread(sizes)).collect();
        self.places.are_spread().then(spread)
    }

    /// The names of the places that jobs have.
    pub fn place_names(&self) -> Vec<String> {
        let name = |target: &u32| self.targets[*target as usize].name.to_string();
        let names = self.places.all.iter().map(|place| match place.targets.as_slice() {
            [one] => name(one),
            [first, others @ ..] => format!("{} and {} more", name(first), others.len()),
            [] => String::new(),
        });
        names.collect()
    }

    /// Whether jobs of a group are to be reported together.
    pub fn is_grouped(&self) -> bool {
        self.groups
    }

    /// What is run, phase by phase, on targets of these sizes. `seed` is what random choices come from, where a job
    /// does not say.
    ///
    /// # Errors
    /// When a job does not fit on its target.
    pub fn phases(&self, sizes: &[u64], seed: u64) -> Result<Vec<Vec<Job>>> {
        let mut phases: Vec<Vec<Job>> = vec![Vec::new()];
        let mut group = 0;
        let mut begun = false;
        let mut logs = LogFiles::default();
        let names = self.place_names();
        let mut endings: BTreeMap<(u8, usize), Ended> = BTreeMap::new();
        let mut flows: BTreeMap<(usize, u32), Flow> = BTreeMap::new();
        let mut problems = Problems::default();
        for (n, copy) in self.copies.iter().enumerate() {
            let options = &copy.section.options;
            if copy.number == 0 && begun {
                group += u32::from(options.new_group || options.stonewall);
                if options.stonewall || options.waits {
                    phases.push(Vec::new());
                }
            }
            begun = true;
            let place = &self.places.all[copy.place];
            let spread = place.spread(sizes);
            let job = lower(copy, spread.layout.bytes(), place.is_spread(), seed, n as u64);
            let job = job.and_then(|job| self.on_its_place(copy, job, sizes));
            let mut job = match job {
                Ok(job) => job,
                Err(error) => {
                    problems.add(error);
                    continue;
                }
            };
            job.logs = logs.of(copy.section, n + 1, &names[copy.place]);
            if self.copies.iter().any(|copy| copy.section.options.ends_others) {
                let of = [(Ends::Group, group as usize), (Ends::Phase, phases.len()), (Ends::All, 0)];
                let with = of.map(|(what, n)| endings.entry((what as u8, n)).or_default().clone());
                let nth = of.iter().position(|(what, _)| *what == options.ends).unwrap_or(0);
                job.ending.ends = options.ends_others.then(|| with[nth].clone());
                job.ending.with = with.into();
            }
            if options.flow > 0 {
                let (weight, sleep_ns) = (u64::from(options.flow), options.flow_sleep_ns);
                let known =
                    flows.get(&(phases.len(), options.flow_id)).map(|flow| flow.with(weight, sleep_ns));
                let flow = known.unwrap_or_else(|| Flow::new(weight, sleep_ns));
                flows.insert((phases.len(), options.flow_id), flow.clone());
                job.flow = Some(flow);
            }
            (job.group, job.place) = (group, copy.place as u32);
            phases.last_mut().expect("there is one").push(job);
        }
        problems.none()?;
        Ok(phases)
    }

    /// Gives a job the log that it replays; refuses what its place cannot do.
    fn on_its_place(&self, copy: &Copy<'_>, mut job: Job, sizes: &[u64]) -> Result<Job> {
        let (section, place) = (copy.section, &self.places.all[copy.place]);
        if let Some(log) = section.log(copy.number) {
            job.script = Some(script(section, log, place, sizes)?);
            replays(&mut job);
        }
        let is_volume = |target: &u32| matches!(self.targets[*target as usize].name, TargetName::Volume(_));
        let most = job.sides().filter(|side| *side != side::DISCARD).map(|side| job.sizes[side].most());
        if most.max().is_some_and(|bytes| bytes > MAX_PAYLOAD_BYTES) && place.targets.iter().any(is_volume) {
            let what = format!("a volume takes {MAX_PAYLOAD_BYTES} bytes at once; make bs no larger");
            return wrong(section, what);
        }
        let parts = || place.spread(sizes).layout.most_parts(job.most_bytes());
        if place.is_spread() && job.has_payload() && parts() > 1 {
            return wrong(
                section,
                "several files with mixed sizes are written with any data; leave out verify, patterns and \
                 refill_buffers, or give one size",
            );
        }
        Ok(job)
    }
}

/// What a log does on targets of these sizes.
fn script(section: &JobSection, log: &IoLog, place: &Place, sizes: &[u64]) -> Result<Script> {
    let mut begins = Vec::with_capacity(log.files.len());
    let mut sum = 0;
    for (file, target) in log.files.iter().zip(&place.targets) {
        let size = sizes.get(*target as usize).copied().unwrap_or(0);
        if file.end_bytes > size {
            let what = format!(
                "read_iolog: the log goes on to byte {} of {}, which has {size}; make it larger, or name another \
                 one with replay_redirect",
                file.end_bytes, file.name
            );
            return wrong(section, what);
        }
        begins.push(sum);
        sum += size;
    }
    Ok(Script::new(log.steps.clone(), begins))
}

/// Has a job do its script, and nothing that would be drawn.
fn replays(job: &mut Job) {
    let Some(script) = &job.script else { return };
    let longest = script.longest_bytes();
    job.sizes = longest.map(Sizes::one);
    job.align_bytes = [1; 3];
    job.ops = match longest {
        [_, 0, 0] => Ops::ReadWrite { read_percent: 100 },
        [0, _, 0] => Ops::ReadWrite { read_percent: 0 },
        [0, 0, _] => Ops::Discard,
        _ => Ops::ReadWrite { read_percent: 50 },
    };
    (job.bytes, job.pass_bytes, job.loops) = (Some(script.bytes()), None, 1);
    (job.zones, job.each_once, job.is_paced) = (None, false, script.is_timed());
}

/// One job.
fn lower(copy: &Copy<'_>, target_bytes: u64, is_spread: bool, seed: u64, n: u64) -> Result<Job> {
    let (section, options) = (copy.section, &copy.section.options);
    // What is used of several files is one span already, and a log has all of them.
    let whole = is_spread || !section.logs.is_empty();
    let span = if whole { Ok(0..target_bytes) } else { span(copy, target_bytes) };
    let least = options.smallest_block_bytes();
    // As with fio, a copy that would begin behind the end of its target has nothing to do.
    let is_idle = copy.number > 0 && span.as_ref().map_or(true, |span| span.end - span.start < least);
    let span = if is_idle { 0..target_bytes } else { span? };
    let span_bytes = span.end - span.start;
    let mut job = Job::new(&section.name, span);
    job.options = options_for_record(options, &section.own, &section.globals);
    (job.ops, job.sizes) =
        (ops(options), sides(&options.block_sizes()).map(|given| sizes(given, options.unaligned)));
    if section.logs.is_empty() && job.sides().any(|side| job.sizes[side].least() > span_bytes) {
        return wrong(section, format!("a block is larger than the {span_bytes} bytes that it is to be in"));
    }
    job.target_bytes = target_bytes;
    job.zones = options.zones();
    let least: PerSide<u64> = std::array::from_fn(|side| job.sizes[side].least());
    let align = sides(&options.align_bytes);
    job.align_bytes = std::array::from_fn(|side| align[side].unwrap_or(least[side]).max(1));
    let random = sides(&options.random_percent);
    job.order = std::array::from_fn(|side| Order {
        random_percent: if options.random { u32::from(random[side]) } else { 0 },
        step_bytes: options.gap_bytes,
    });
    (job.run_ios, job.run_in_place) =
        (options.ios_per_offset.max(1), options.sequencer == Sequencer::Identical);
    job.distribution = distribution(section, span_bytes)?;
    // As with fio, an alignment of its own leaves out the map.
    let aligned = (0..3).all(|side| job.align_bytes[side] == least[side]);
    job.each_once = !options.no_random_map && aligned && job.distribution.iter().all(is_uniform);
    let (part, is_one_size) = job.part_bytes();
    let mapped_bytes = job.zones.map_or(span_bytes, |zones| zones.range_bytes);
    if job.each_once && options.random && !is_one_size && mapped_bytes / part > MOST_PARTS {
        let what = "which of its blocks were met would take more than 512 MiB of memory; add norandommap";
        return wrong(section, what);
    }
    job.loops = u64::from(options.loops);
    // Where less is left of the target, it is as much as was said all the same.
    let said = match options.size {
        Some(Extent::Bytes(bytes)) if options.file_bytes.is_none() && !whole && bytes > span_bytes => {
            Some(bytes)
        }
        _ => None,
    };
    (job.pass_bytes, job.bytes) = bytes(options, span_bytes, said);
    if job.pass_bytes.is_some_and(|bytes| bytes < options.smallest_block_bytes()) {
        return wrong(
            section,
            "a pass has less than a block, so nothing would be done; make io_size or size larger",
        );
    }
    // fio counts them anew in each loop, and not where time alone ends a job.
    job.ios = options.number_ios.map(|ios| ios.saturating_mul(job.loops));
    job.ios = job.ios.filter(|_| !options.time_based);
    (job.runtime_ns, job.time_based, job.ramp_ns) = (options.runtime_ns, options.time_based, options.ramp_ns);
    (job.depth, job.poisson) = (options.effective_depth(), options.arrivals == Arrivals::Poisson);
    job.rate = rates(options);
    job.think = (options.think_ns > 0).then(|| Think {
        ns: options.think_ns,
        every_ios: match (options.think_ios, options.think_after_ns) {
            (0, 0) => 1,
            (ios, _) => u64::from(ios),
        },
        every_ns: options.think_after_ns,
        delays_rate: options.rate_ignores_think,
    });
    let every = |writes: u32| (writes > 0).then_some(u64::from(writes));
    job.sync_every_writes = every(options.fsync_writes);
    job.flush_every_writes = every(options.fdatasync_writes);
    job.end_flush = options.end_fsync || options.fsync_on_close;
    job.fua = options.durability != Durability::None;
    // As in fio, what a mix reads is not looked at, not even where it is all that it does.
    let only_reads = options.direction == Direction::ReadWrite && options.read_percent == 100;
    job.verify = options.verify.is_some() && options.do_verify && !only_reads;
    job.content = content(section)?;
    // Uneven laws go on drawing, as with fio.
    let begins_anew = |law: &Distribution| matches!(law, Distribution::Uniform | Distribution::Zoned(_));
    job.passes_alike =
        options.repeatable && options.seed.is_none() && job.distribution.iter().all(begins_anew);
    let own = options.seed.unwrap_or(if options.repeatable { 1 } else { seed });
    job.seed = mix(own ^ mix(n));
    let (from, to) = options.start_delay_ns;
    job.start_delay_ns = from + mix(job.seed) % (to.saturating_sub(from) + 1);
    job.depth_search = options.latency_target_ns.map(|target_ns| DepthSearch {
        target_ns,
        percentile: options.latency_percentile,
        window_ns: options.latency_window_ns.max(1),
        goes_on: options.latency_run,
    });
    job.until_steady = steady(options);
    if is_idle {
        (job.ios, job.time_based) = (Some(0), false);
    }
    (job.goes_on, job.max_latency_ns) = (options.goes_on, sides(&options.max_latency_ns));
    Ok(job)
}

/// What a job asks for on its target.
fn span(copy: &Copy<'_>, target_bytes: u64) -> Result<std::ops::Range<u64>> {
    let (section, options) = (copy.section, &copy.section.options);
    let (offset, step) = (options.offset, options.offset_increment);
    let start = begin(offset, step, copy.number, target_bytes, alignment(options));
    let start = copy.begins_bytes.unwrap_or(start);
    // A file's own size goes before the target's, and before `size`, which is then only how much is done.
    let end = all_file_bytes(section, copy.number).map_or(target_bytes, |bytes| bytes.min(target_bytes));
    let room = end.saturating_sub(start);
    let bytes = match options.size.filter(|_| options.file_bytes.is_none()) {
        None => room,
        Some(Extent::Bytes(bytes)) => bytes,
        // What is left behind the last whole block is left alone, as fio leaves it.
        Some(percent) => {
            let (bytes, block) =
                (part(percent, target_bytes).min(room), options.smallest_block_bytes().max(1));
            if bytes >= block { bytes - bytes % block } else { bytes }
        }
    };
    // What reaches over the target's end is left out, as with fio.
    let bytes = bytes.min(room);
    if target_bytes == 0 {
        return wrong(section, "its target has no size of its own; say with size= how many bytes are used");
    }
    if bytes == 0 {
        let what = format!("it begins at byte {start} of a target that has {end}; make offset smaller");
        return wrong(section, what);
    }
    Ok(start..start + bytes)
}

/// How many bytes a pass has, and how many there are in all, where it is not as many as the span has.
fn bytes(options: &JobOptions, span_bytes: u64, said: Option<u64>) -> (Option<u64>, Option<u64>) {
    let of_size = options.size.filter(|_| options.file_bytes.is_some());
    let of_size = of_size.map(|size| part(size, span_bytes).min(span_bytes));
    match options.io_size {
        Some(Extent::Bytes(bytes)) => (of_size.or(said), Some(bytes)),
        // As with fio, a share is one of each pass.
        Some(percent) => {
            let share = part(percent, said.unwrap_or(span_bytes));
            (Some(share.min(of_size.unwrap_or(u64::MAX))), None)
        }
        None => (of_size.or(said), None),
    }
}

pub(super) fn part(extent: Extent, of: u64) -> u64 {
    match extent {
        Extent::Bytes(bytes) => bytes,
        Extent::Percent(percent) => (u128::from(of) * u128::from(percent) / 100) as u64,
    }
}

fn sides<T: Clone>(sides: &Sides<T>) -> PerSide<T> {
    [sides.read.clone(), sides.write.clone(), sides.trim.clone()]
}

fn ops(options: &JobOptions) -> Ops {
    let read_percent = match options.direction {
        Direction::Read => 100,
        Direction::Write => 0,
        Direction::ReadWrite => u32::from(options.read_percent),
        Direction::Trim => return Ops::Discard,
        Direction::TrimWrite => return Ops::DiscardWrite,
    };
    Ops::ReadWrite { read_percent }
}

fn sizes(sizes: BlockSizes, unaligned: bool) -> Sizes {
    match sizes {
        BlockSizes::Fixed(bytes) => Sizes::one(bytes),
        BlockSizes::Range(from, to) if unaligned => Sizes::Any { from, to },
        BlockSizes::Range(from, to) => Sizes::Range { from, to },
        BlockSizes::Split(shares) => {
            let least = shares.iter().map(|share| share.0).min().unwrap_or(1).max(1);
            let used = shares.into_iter().filter(|share| share.1 > 0);
            // As with fio, sizes are multiples of the least.
            Sizes::Split(used.map(|(bytes, percent)| (bytes - bytes % least, u32::from(percent))).collect())
        }
    }
}

fn distribution(section: &JobSection, span_bytes: u64) -> Result<PerSide<Distribution>> {
    let same = |distribution: Distribution| std::array::from_fn(|_| distribution.clone());
    Ok(match &section.options.distribution {
        Spread::Uniform => same(Distribution::Uniform),
        Spread::Zipf { theta, .. } => same(Distribution::Zipf { theta: *theta }),
        Spread::Pareto { power, .. } => same(Distribution::Pareto { h: *power }),
        Spread::Normal { deviation_percent, .. } => {
            same(Distribution::Normal { deviation_percent: *deviation_percent })
        }
        Spread::Zoned(zones) => sides(zones).map(|zones| {
            zoned(
                zones
                    .iter()
                    .map(|&Zone { accesses_percent, part }| (accesses_percent, f64::from(part) / 100.0)),
            )
        }),
        Spread::ZonedAbsolute(zones) => sides(zones).map(|zones| {
            let share = |part: u64| part as f64 / span_bytes as f64;
            zoned(zones.iter().map(|&Zone { accesses_percent, part }| (accesses_percent, share(part))))
        }),
    })
}

fn is_uniform(distribution: &Distribution) -> bool {
    *distribution == Distribution::Uniform
}

fn zoned(zones: impl Iterator<Item = (u8, f64)>) -> Distribution {
    let zones: Vec<(f64, f64)> =
        zones.map(|(accesses, share)| (f64::from(accesses) / 100.0, share)).collect();
    if zones.is_empty() { Distribution::Uniform } else { Distribution::Zoned(zones) }
}

fn rates(options: &JobOptions) -> PerSide<Option<Rate>> {
    let (bytes, ios) = (sides(&options.rate_bytes), sides(&options.rate_iops));
    std::array::from_fn(|side| {
        let bytes = bytes[side].map(|rate| Rate::Bytes(rate as f64));
        bytes.or(ios[side].map(|rate| Rate::Ios(rate as f64)))
    })
}

fn content(section: &JobSection) -> Result<Content> {
    let options = &section.options;
    if options.verify.is_some() {
        return Ok(Content::Fresh);
    }
    let reducible = options.compress_percent > 0 || options.dedupe_percent > 0;
    Ok(match &options.data {
        Data::Scrambled | Data::Refilled if reducible => Content::Reducible(Reducible {
            zero_percent: options.compress_percent,
            chunk_bytes: match options.compress_chunk_bytes {
                0 => u32::MAX,
                bytes => bytes,
            },
            same_percent: options.dedupe_percent,
        }),
        Data::Scrambled => Content::Random,
        Data::Refilled => Content::Fresh,
        Data::Zeros => Content::Zeros,
        Data::Pattern(parts) => {
            let mut bytes = Vec::new();
            for part in parts {
                match part {
                    PatternPart::Bytes(part) => bytes.extend_from_slice(part),
                    PatternPart::Offset => {
                        return wrong(section, "%o in buffer_pattern is not done; leave it out");
                    }
                }
            }
            if bytes.is_empty() { Content::Zeros } else { Content::Pattern(bytes.into()) }
        }
    })
}

fn steady(options: &JobOptions) -> Option<UntilSteady> {
    let state = options.steady_state?;
    let interval_ns = options.steady_interval_ns.max(1);
    let rule = FioRule {
        quantity: match state.metric {
            Metric::Iops => Quantity::Iops,
            Metric::Bandwidth => Quantity::Bw,
            Metric::Latency => Quantity::Lat,
        },
        measure: if state.slope { Measure::Slope } else { Measure::Deviation },
        limit: match state.limit {
            Far::Percent(percent) => Limit::Percent(percent),
            Far::Absolute(value) => Limit::Absolute(value),
        },
        rounds: (options.steady_duration_ns / interval_ns).max(2) as usize,
    };
    Some(UntilSteady { rule, interval_ns, ramp_ns: options.steady_ramp_ns })
}
