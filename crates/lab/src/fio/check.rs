//! What options say together: what one implies about another, what contradicts, what changes nothing.

use super::error::Problem;
use super::file::JobSection;
use super::number::Extent;
use super::options::{
    BlockSizes, Direction, Distribution, EngineKind, JobOptions, Limit, Metric, PerSide, SteadyState, Verify,
    ZoneMode,
};

/// What direct I/O needs at least.
const SECTOR_BYTES: u64 = 512;

/// Sets what follows from what was said.
pub(crate) fn complete(job: &mut JobSection) {
    let verify_said = job.written("verify").is_some();
    let options = &mut job.options;
    if options.verify_only {
        options.direction = Direction::Read;
    }
    if options.engine == EngineKind::Null || options.direction == Direction::Trim {
        // Nothing stays that could be verified.
        options.verify = None;
        options.verify_pattern.clear();
    }
    // What is written is compared as well; what others have written, fio only reads.
    let checks = options.direction != Direction::Read;
    options.verify = options.verify.filter(|what| *what != Verify::Null || checks);
    if options.verify == Some(Verify::Null) {
        options.verify = Some(Verify::Checksum);
    }
    if options.read_iolog.is_some() {
        options.logs.iolog = None;
        // What a log says goes before it.
        options.verify_pattern.clear();
    }
    // fio leaves it out, too.
    options.time_based &= options.runtime_ns.is_some();
    if !options.verify_pattern.is_empty()
        && options.verify.is_none()
        && !verify_said
        && options.direction != Direction::Read
    {
        options.verify = Some(Verify::Pattern);
    }
    if options.steady_duration_ns > 0 && options.steady_state.is_none() {
        // fio's own, where only a duration is given.
        let limit = Limit::Percent(0.01);
        options.steady_state = Some(SteadyState { metric: Metric::Iops, slope: true, limit });
    }
}

type Contradiction = (&'static str, Problem);

/// What cannot be done together, and the option to look at.
pub(crate) fn contradictions(job: &JobSection) -> Vec<Contradiction> {
    let options = &job.options;
    let found =
        [sizes(options), queue(job), rates(options), times(options), verification(options), target(options)];
    found.into_iter().flatten().flatten().collect()
}

fn when(
    wrong: bool,
    option: &'static str,
    problem: impl Into<String>,
    cure: &'static str,
) -> Option<Contradiction> {
    wrong.then(|| (option, Problem::new(problem, cure)))
}

fn sizes(options: &JobOptions) -> Vec<Option<Contradiction>> {
    let (does, blocks) = (options.direction.does(), options.block_sizes());
    let used = does.sides().into_iter().zip(blocks.sides()).filter(|(does, _)| **does);
    let used = used.map(|(_, sizes)| sizes).collect::<Vec<_>>();
    let smallest = used.iter().map(|sizes| sizes.smallest_bytes()).min().unwrap_or(0);
    let files = options.filenames.len().max(1) as u64;
    let files = if options.filenames.is_empty() { u64::from(options.files) } else { files };
    let room = match (options.file_bytes, options.size) {
        (Some((_, bytes)), _) => Some(bytes),
        (None, Some(Extent::Bytes(bytes))) => Some(bytes / files),
        _ => None,
    };
    let io_bytes = if let Some(Extent::Bytes(bytes)) = options.io_size { Some(bytes) } else { None };
    let direct = options.direct && matches!(options.engine, EngineKind::Ring | EngineKind::Synchronous);
    let odd = used.iter().any(|sizes| match sizes {
        BlockSizes::Fixed(bytes) => bytes % SECTOR_BYTES != 0,
        BlockSizes::Range(low, _) => options.unaligned || low % SECTOR_BYTES != 0,
        BlockSizes::Split(shares) => shares.iter().any(|(bytes, _)| bytes % SECTOR_BYTES != 0),
    });
    vec![
        when(
            room.is_some_and(|room| smallest > room),
            "size",
            format!(
                "a block of {smallest} bytes does not fit into the {} bytes of a file",
                room.unwrap_or(0)
            ),
            "make size larger or bs smaller",
        ),
        when(
            io_bytes.is_some_and(|bytes| bytes < options.smallest_block_bytes()),
            "io_size",
            "it is less than a block, so nothing would be done",
            "make io_size larger or bs smaller",
        ),
        when(
            direct && odd,
            "bs",
            "direct I/O needs blocks of multiples of 512 bytes",
            "make bs one, or leave out direct",
        ),
    ]
}

fn queue(job: &JobSection) -> Vec<Option<Contradiction>> {
    let both = (job.own.get("direct"), job.own.get("buffered"));
    let disagree = matches!(both, (Some(direct), Some(buffered)) if direct == buffered);
    let flush = job.options.fsync_writes > 0 && job.options.fdatasync_writes > 0;
    vec![
        when(
            disagree,
            "buffered",
            "buffered is the opposite of direct, and both say the same",
            "leave out one",
        ),
        when(
            flush,
            "fdatasync",
            "both fsync and fdatasync are given, and fio then does either or both",
            "leave out one",
        ),
    ]
}

fn rates(options: &JobOptions) -> Vec<Option<Contradiction>> {
    let both = options
        .rate_bytes
        .sides()
        .iter()
        .zip(options.rate_iops.sides())
        .any(|(a, b)| a.is_some() && b.is_some());
    let limited = options.rate_bytes != PerSide::default() || options.rate_iops != PerSide::default();
    vec![
        when(both, "rate_iops", "a rate is given in bytes and in I/Os", "leave out rate or rate_iops"),
        when(
            options.latency_target_ns.is_some() && limited,
            "latency_target",
            "it looks for a depth, and a rate is given that hides it",
            "leave out the rate",
        ),
    ]
}

fn times(options: &JobOptions) -> Vec<Option<Contradiction>> {
    let depth_search = options.latency_target_ns.is_some();
    vec![
        when(
            depth_search && options.latency_window_ns == 0,
            "latency_target",
            "it has no latency_window, in which each depth is tried",
            "add latency_window",
        ),
        when(
            options.steady_state.is_some() && options.steady_duration_ns == 0,
            "steadystate",
            "it has no steadystate_duration, and fio then ignores it",
            "add steadystate_duration",
        ),
        when(
            options.steady_interval_ns == 0
                || options.steady_duration_ns > 0 && options.steady_interval_ns > options.steady_duration_ns,
            "steadystate_check_interval",
            "it is 0, or longer than the steady state's duration",
            "make it shorter",
        ),
    ]
}

fn verification(options: &JobOptions) -> Vec<Option<Contradiction>> {
    let verify = options.verify;
    let smallest = options.smallest_block_bytes();
    vec![
        when(
            verify == Some(Verify::Pattern) && options.direction == Direction::Read && options.do_verify,
            "verify",
            "blocks of a pattern are not known again by a job that only reads",
            "write them in the same job, or name a checksum for what the lab has written",
        ),
        when(
            verify == Some(Verify::Pattern) && options.verify_pattern.is_empty(),
            "verify",
            "there is no pattern to verify",
            "add verify_pattern",
        ),
        when(
            verify == Some(Verify::Checksum) && smallest < SECTOR_BYTES,
            "verify",
            "a header does not fit into blocks of less than 512 bytes",
            "make bs larger",
        ),
    ]
}

fn target(options: &JobOptions) -> Vec<Option<Contradiction>> {
    let nbd = options.engine == EngineKind::Nbd;
    let names = !options.filenames.is_empty();
    vec![
        when(
            nbd && options.nbd_uri.is_none(),
            "ioengine",
            "nbd needs to know the server",
            "add uri=nbd://...",
        ),
        when(
            !nbd && options.nbd_uri.is_some(),
            "uri",
            "it names a server, and the engine is another",
            "add ioengine=nbd",
        ),
        when(nbd && names, "filename", "with nbd it is uri that names the target", "leave out filename"),
        when(
            options.read_iolog.is_some() && (options.time_based || options.verify.is_some()),
            "read_iolog",
            "a log is replayed once, and not verified",
            "leave out time_based and verify",
        ),
        when(
            options.zone_mode == ZoneMode::Strided && options.zone_bytes == 0,
            "zonemode",
            "zones have no size",
            "add zonesize",
        ),
        when(
            options.zone_mode == ZoneMode::None && options.zone_bytes > 0,
            "zonesize",
            "zones are turned off, and have a size",
            "leave out zonemode=none, or zonesize",
        ),
        when(
            options.zones().is_some_and(|zones| zones.range_bytes < options.smallest_block_bytes()),
            "zonerange",
            "a zone has less than a block",
            "make zonesize and zonerange larger, or bs smaller",
        ),
    ]
}

/// What changes nothing because of something else.
pub(crate) fn notes(job: &JobSection) -> Vec<String> {
    let options = &job.options;
    let name = &job.name;
    let said = |option: &str| job.own.contains_key(option);
    let mixed = options.direction == Direction::ReadWrite;
    let one_by_one = options.engine == EngineKind::Synchronous && options.depth > 1;
    let twice = options.verify.is_some() && options.random && options.no_random_map;
    let said_anywhere = |option: &str| job.written(option).is_some();
    let mut notes = Vec::new();
    let mut note = |when: bool, text: String| notes.extend(when.then(|| format!("[{name}] {text}")));
    note(
        one_by_one,
        format!("iodepth: {} does one I/O at a time, so it changes nothing", options.engine_name),
    );
    note(
        !mixed && (said("rwmixread") || said("rwmixwrite")),
        "rwmixread: nothing is mixed, so it changes nothing".into(),
    );
    note(
        !options.random && options.distribution != Distribution::Uniform,
        "random_distribution: nothing is random, so it changes nothing".into(),
    );
    note(
        !options.random && said("percentage_random"),
        "percentage_random: nothing is random, so it changes nothing".into(),
    );
    note(
        said_anywhere("time_based") && options.runtime_ns.is_none(),
        "time_based: there is no runtime, so it changes nothing, as in fio".into(),
    );
    note(said_anywhere("wait_for"), "wait_for: it waits for all jobs before it, as stonewall does".into());
    note(said_anywhere("unlink_each_loop"), "unlink_each_loop: files are removed at the end".into());
    note(
        said_anywhere("verify")
            && (options.engine == EngineKind::Null || options.direction == Direction::Trim),
        "verify: the null engine and discards leave nothing that could be verified".into(),
    );
    note(
        options.verify == Some(Verify::Pattern),
        "verify_pattern: blocks carry the lab's own stamps instead of the pattern".into(),
    );
    note(
        said_anywhere("file_service_type")
            && !job.written("file_service_type").is_some_and(|how| {
                ["roundrobin", "sequential"].iter().any(|known| how.trim().starts_with(known))
            }),
        "file_service_type: files are taken in turns".into(),
    );
    note(said("thinktime_blocks") && options.think_ns == 0, "thinktime_blocks: there is no thinktime".into());
    note(
        said("latency_window") && options.latency_target_ns.is_none(),
        "latency_window: there is no latency_target".into(),
    );
    note(
        options.read_iolog.is_none()
            && ["replay_no_stall", "replay_time_scale", "replay_redirect"].into_iter().any(said),
        "replay: there is no read_iolog".into(),
    );
    note(
        options.read_iolog.is_some() && said_anywhere("write_iolog"),
        "write_iolog: read_iolog goes before it, as in fio".into(),
    );
    let center = match options.distribution {
        Distribution::Zipf { center, .. }
        | Distribution::Pareto { center, .. }
        | Distribution::Normal { center, .. } => center,
        _ => None,
    };
    note(
        center.is_some(),
        "random_distribution: blocks lie scattered, so that where the centre is changes nothing".into(),
    );
    note(
        options.zone_bytes > 0 && options.zones().is_none(),
        "zonesize: of several files there are no zones, as in fio".into(),
    );
    note(
        options.distribution != Distribution::Uniform && options.random && !options.no_random_map,
        "random_distribution: blocks may be met twice, as fio has it too".into(),
    );
    note(
        options.verify.is_some() && options.verify_fatal,
        "verify_fatal: what differs is counted, and the run goes on".into(),
    );
    note(
        !options.invalidate && !options.direct,
        "invalidate: what the page cache holds of a file is dropped before the run in any case".into(),
    );
    note(twice, "norandommap: a block that was written twice is verified with what was written last".into());
    note(
        said("bs")
            && (options.block_range_bytes != PerSide::default() || options.block_split != PerSide::default()),
        "bs: bsrange and bssplit go before it, so it changes nothing".into(),
    );
    notes
}
