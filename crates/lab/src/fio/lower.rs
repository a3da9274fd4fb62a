//! From a job file to jobs: which targets it needs, and, as soon as their sizes are known, what is asked of them.

use super::file::{JobFile, JobSection};
use super::number::Extent;
use super::options::{
    Arrivals, BlockSizes, Data, Direction, Distribution as Spread, Durability, EngineKind, JobOptions,
    Limit as Far, Metric, PatternPart, PerSide as Sides, Sequencer, Verify, Zone,
};
use super::view::options_for_record;
use crate::job::{
    Content, DepthSearch, Distribution, Job, Ops, Order, PerSide, Rate, Sizes, Think, UntilSteady,
};
use crate::load::MOST_PARTS;
use crate::stats::{FioRule, Limit, Measure, Quantity};
use crate::target::TargetName;
use bimetal_models::rng::mix;
use std::path::Path;

/// Jobs with their copies at most, as with fio.
const MAX_JOBS: usize = 4096;

/// Why a job file cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("job {job}: {what}")]
pub struct LowerError {
    job: String,
    what: String,
}

type Result<T> = std::result::Result<T, LowerError>;

fn wrong<T>(section: &JobSection, what: impl Into<String>) -> Result<T> {
    Err(LowerError { job: section.name.clone(), what: what.into() })
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
}

/// A job file that is about to be run.
#[derive(Debug)]
pub struct Plan<'f> {
    /// What it needs; jobs name them by their places.
    pub targets: Vec<Needed>,
    /// What is to be said about it.
    pub notes: Vec<String>,
    copies: Vec<Copy<'f>>,
    groups: bool,
}

/// One copy of a job.
#[derive(Debug)]
struct Copy<'f> {
    section: &'f JobSection,
    /// Its number among the copies.
    number: u32,
    place: usize,
}

/// What a job file needs; with `redirect`, all of it is done there.
///
/// # Errors
/// When it says something that is read but not done.
pub fn plan<'f>(file: &'f JobFile, redirect: Option<&TargetName>) -> Result<Plan<'f>> {
    let groups = file.jobs.iter().any(|section| section.options.faces.group_reporting);
    let mut plan = Plan { targets: Vec::new(), notes: file.notes.clone(), copies: Vec::new(), groups };
    for section in &file.jobs {
        refuse(section)?;
        for number in 0..section.options.jobs {
            if plan.copies.len() >= MAX_JOBS {
                return wrong(section, format!("with its copies there are more than {MAX_JOBS} jobs"));
            }
            let needed = needed(section, number, redirect)?;
            let place = plan.need(needed);
            plan.copies.push(Copy { section, number, place });
        }
    }
    if file.jobs.iter().any(|section| section.options.verify.is_some()) {
        plan.notes.push(
            "verify: blocks carry the lab's own stamps, and all of their bytes are compared, whichever checksum is named"
                .into(),
        );
    }
    Ok(plan)
}

/// What can be read, but is not done.
fn refuse(section: &JobSection) -> Result<()> {
    let options = &section.options;
    let refused = [
        (
            options.read_iolog.is_some(),
            "read_iolog is not done by a job; `bimetal trace replay` replays a log",
        ),
        (options.filenames.len() > 1, "it names several files; write a job for each"),
        (options.unaligned, "bs_unaligned is not done; leave it out"),
        (
            options.file_bytes.is_some_and(|(from, to)| from != to),
            "a range of filesize is not done; give one size",
        ),
        (options.verify == Some(Verify::Pattern), "verify=pattern is not done; take verify=crc32c"),
        (
            options.max_latency_ns.sides().iter().any(|most| most.is_some()),
            "max_latency is not done; leave it out",
        ),
        (options.rate_ignores_think, "rate_ignore_thinktime is not done; leave it out"),
    ];
    match refused.into_iter().find(|(is, _)| *is) {
        Some((_, what)) => wrong(section, what),
        None => Ok(()),
    }
}

fn needed(section: &JobSection, number: u32, redirect: Option<&TargetName>) -> Result<Needed> {
    let options = &section.options;
    let name = match (redirect, options.engine) {
        (Some(name), _) => name.clone(),
        (None, EngineKind::Null) => TargetName::Null,
        (None, EngineKind::Nbd) => {
            let uri = options.nbd_uri.as_deref().unwrap_or_default();
            TargetName::parse(uri).or_else(|error| wrong(section, error.to_string()))?
        }
        (None, EngineKind::Ring | EngineKind::Synchronous) => path(section, number),
    };
    let does = options.direction.does();
    let writes = does.write || does.trim;
    let at_least = match (options.file_bytes, options.size, options.offset, options.offset_increment) {
        (Some((bytes, _)), ..) => Some(bytes),
        (None, Some(Extent::Bytes(size)), Extent::Bytes(offset), Extent::Bytes(step)) => {
            Some(size.saturating_add(offset).saturating_add(step.saturating_mul(u64::from(number))))
        }
        _ => None,
    };
    if let (TargetName::Path(path), None) = (&name, at_least)
        && !path.exists()
    {
        return wrong(
            section,
            format!("{} is not there; make it, or say with size= how large", path.display()),
        );
    }
    Ok(Needed {
        direct: options.direct,
        write: writes,
        read: does.read,
        at_least_bytes: at_least,
        unlink: options.unlink && matches!(name, TargetName::Path(_)),
        name,
    })
}

/// Where the file of a job is; fio's name for one that has none.
fn path(section: &JobSection, number: u32) -> TargetName {
    let name = match section.options.filenames.first() {
        Some(name) => name.clone(),
        None => format!("{}.{number}.0", section.name.replace('/', "_")),
    };
    let folder = section.options.directory.as_deref().unwrap_or("");
    TargetName::Path(Path::new(folder).join(name))
}

impl Plan<'_> {
    /// The place of a target: one that is there, or a new one.
    fn need(&mut self, needed: Needed) -> usize {
        let same = |known: &Needed| known.name == needed.name && known.direct == needed.direct;
        if let Some(place) = self.targets.iter().position(same) {
            let known = &mut self.targets[place];
            known.write |= needed.write;
            known.read |= needed.read;
            known.unlink |= needed.unlink;
            known.at_least_bytes = known.at_least_bytes.max(needed.at_least_bytes);
            return place;
        }
        self.targets.push(needed);
        self.targets.len() - 1
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
        for (n, copy) in self.copies.iter().enumerate() {
            let options = &copy.section.options;
            if copy.number == 0 && begun {
                group += u32::from(options.new_group || options.stonewall);
                if options.stonewall {
                    phases.push(Vec::new());
                }
            }
            begun = true;
            let mut job = lower(copy, sizes[copy.place], seed, n as u64)?;
            (job.group, job.place) = (group, copy.place as u32);
            phases.last_mut().expect("there is one").push(job);
        }
        Ok(phases)
    }
}

/// One job.
fn lower(copy: &Copy<'_>, target_bytes: u64, seed: u64, n: u64) -> Result<Job> {
    let (section, options) = (copy.section, &copy.section.options);
    let span = span(copy, target_bytes)?;
    let span_bytes = span.end - span.start;
    let mut job = Job::new(&section.name, span);
    job.options = options_for_record(options, &section.own, &section.globals);
    (job.ops, job.sizes) = (ops(options), sides(&options.block_sizes()).map(sizes));
    if job.sides().any(|side| job.sizes[side].least() > span_bytes) {
        return wrong(section, format!("a block is larger than the {span_bytes} bytes that it is to be in"));
    }
    job.target_bytes = target_bytes;
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
    if job.each_once && options.random && !is_one_size && span_bytes / part > MOST_PARTS {
        let what = "which of its blocks were met would take more than 512 MiB of memory; add norandommap";
        return wrong(section, what);
    }
    job.loops = u64::from(options.loops);
    (job.pass_bytes, job.bytes) = bytes(options, span_bytes);
    // fio counts them anew in each loop, and not where time alone ends a job.
    job.ios = options.number_ios.map(|ios| ios.saturating_mul(job.loops));
    job.ios = job.ios.filter(|_| !options.time_based);
    (job.runtime_ns, job.time_based, job.ramp_ns) = (options.runtime_ns, options.time_based, options.ramp_ns);
    (job.depth, job.poisson) = (options.effective_depth(), options.arrivals == Arrivals::Poisson);
    job.rate = rates(options);
    job.think = (options.think_ns > 0)
        .then(|| Think { ns: options.think_ns, every_ios: u64::from(options.think_ios.max(1)) });
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
    Ok(job)
}

/// What a job asks for on its target.
fn span(copy: &Copy<'_>, target_bytes: u64) -> Result<std::ops::Range<u64>> {
    let (section, options) = (copy.section, &copy.section.options);
    let align = options.offset_align_bytes.unwrap_or(options.smallest_block_bytes()).max(1);
    let offset = match options.offset {
        Extent::Bytes(bytes) => bytes,
        percent => part(percent, target_bytes).next_multiple_of(align),
    };
    let step = match options.offset_increment {
        Extent::Bytes(bytes) => bytes,
        percent => part(percent, target_bytes).next_multiple_of(align),
    };
    let start = offset.saturating_add(step.saturating_mul(u64::from(copy.number)));
    // A file's own size goes before the target's, and before `size`, which is then only how much is done.
    let end = options.file_bytes.map_or(target_bytes, |(bytes, _)| bytes.min(target_bytes));
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
    if bytes == 0 || bytes > room {
        let what =
            format!("{bytes} bytes from byte {start} on do not fit on its target, which has {target_bytes}");
        return wrong(section, what);
    }
    Ok(start..start + bytes)
}

/// How many bytes a pass has, and how many there are in all, where it is not as many as the span has.
fn bytes(options: &JobOptions, span_bytes: u64) -> (Option<u64>, Option<u64>) {
    let of_size = options.size.filter(|_| options.file_bytes.is_some());
    let of_size = of_size.map(|size| part(size, span_bytes).min(span_bytes));
    match options.io_size {
        Some(Extent::Bytes(bytes)) => (of_size, Some(bytes)),
        // As with fio, a share is one of each pass.
        Some(percent) => (Some(part(percent, span_bytes).min(of_size.unwrap_or(u64::MAX))), None),
        None => (of_size, None),
    }
}

fn part(extent: Extent, of: u64) -> u64 {
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

fn sizes(sizes: BlockSizes) -> Sizes {
    match sizes {
        BlockSizes::Fixed(bytes) => Sizes::one(bytes),
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
    let no_center = "a centre of random_distribution is not done; leave out what is behind the second colon";
    let same = |distribution: Distribution| std::array::from_fn(|_| distribution.clone());
    Ok(match &section.options.distribution {
        Spread::Uniform => same(Distribution::Uniform),
        Spread::Zipf { center: Some(_), .. }
        | Spread::Pareto { center: Some(_), .. }
        | Spread::Normal { center: Some(_), .. } => return wrong(section, no_center),
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
    Ok(match &options.data {
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
