//! Every option of fio's, and what becomes of it: read, told that it changes nothing here, or refused by name.

use super::error::Problem;
use super::options::{Arrivals, Durability, JobOptions, Sequencer};
use super::set;
use super::value::{Given, Result};

/// What becomes of an option.
pub(crate) enum Treat {
    /// It is read.
    Set(fn(&mut JobOptions, &mut Given<'_>) -> Result<()>),
    /// It may stand there and changes nothing, which the note says; nothing is said of these values, fio's defaults.
    Nil { silent: &'static [&'static str], note: &'static str },
    /// It is not offered, but for these values, which ask for nothing.
    Refuse { harmless: &'static [&'static str], why: &'static str, cure: &'static str },
}

/// An option.
pub(crate) struct Known {
    pub(crate) name: &'static str,
    /// Another name for it, or the same again.
    pub(crate) alias: &'static str,
    pub(crate) treat: Treat,
}

impl Known {
    pub(crate) fn find(name: &str) -> Option<&'static Known> {
        TABLES.iter().copied().flatten().find(|known| known.name == name || known.alias == name)
    }
}

/// The option whose name is nearest to one that there is not.
pub(crate) fn unknown(name: &str) -> Problem {
    let problem = "fio has no such option";
    let names = TABLES.iter().copied().flatten().flat_map(|known| [known.name, known.alias]);
    // Only names of about that length can be near enough, and the others take long to tell.
    let names = names.filter(|known| name.len().abs_diff(known.len()) <= wrong_letters(known));
    let near = names.map(|known| (distance(name, known), known)).min();
    match near.filter(|(distance, known)| *distance <= wrong_letters(known)) {
        Some((_, known)) => Problem::new(problem, format!("did you mean {known}?")),
        None => Problem::new(problem, "see fio's manual for those that there are"),
    }
}

/// How many letters of a name may be wrong.
fn wrong_letters(name: &str) -> usize {
    1 + name.len() / 4
}

/// How many letters must be added, removed, changed or swapped to make one of the other.
fn distance(one: &str, other: &str) -> usize {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut rows = vec![(0..=other.len()).collect::<Vec<_>>()];
    for (n, letter) in one.iter().enumerate() {
        let mut row = vec![n + 1];
        for (m, with) in other.iter().enumerate() {
            let changed = rows[n][m] + usize::from(letter != with);
            let mut least = changed.min(rows[n][m + 1] + 1).min(row[m] + 1);
            if n > 0 && m > 0 && *letter == other[m - 1] && one[n - 1] == *with {
                least = least.min(rows[n - 1][m - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

macro_rules! field {
    ($name:literal, $alias:literal, $($field:ident).+ = $read:ident) => {
        Known {
            name: $name,
            alias: $alias,
            treat: Treat::Set(|options, given| {
                options.$($field).+ = given.$read()?;
                Ok(())
            }),
        }
    };
}

const fn by(
    name: &'static str,
    alias: &'static str,
    read: fn(&mut JobOptions, &mut Given<'_>) -> Result<()>,
) -> Known {
    Known { name, alias, treat: Treat::Set(read) }
}

const fn nil(name: &'static str, silent: &'static [&'static str], note: &'static str) -> Known {
    Known { name, alias: name, treat: Treat::Nil { silent, note } }
}

const fn refuse(
    name: &'static str,
    alias: &'static str,
    harmless: &'static [&'static str],
    why: &'static str,
    cure: &'static str,
) -> Known {
    Known { name, alias, treat: Treat::Refuse { harmless, why, cure } }
}

static TABLES: &[&[Known]] = &[TARGET, IO, LIMITS, QUEUE, VERIFY, FACES, NIL, REFUSED];

const TARGET: &[Known] = &[
    field!("name", "name", name = owned),
    field!("description", "description", description = owned),
    by("filename", "filename", set::filenames),
    field!("directory", "directory", directory = owned),
    by("ioengine", "ioengine", set::engine),
    field!("uri", "uri", nbd_uri = owned),
    field!("size", "size", size = extent_unless_0),
    field!("io_size", "io_limit", io_size = extent_unless_0),
    field!("offset", "fileoffset", offset = extent),
    field!("offset_increment", "offset_increment", offset_increment = extent),
    field!("offset_align", "offset_align", offset_align_bytes = unless_0),
    field!("filesize", "filesize", file_bytes = byte_range),
    field!("direct", "direct", direct = bool),
    field!("buffered", "buffered", direct = not),
    field!("invalidate", "invalidate", invalidate = bool),
    field!("unlink", "unlink", unlink = bool),
    field!("read_iolog", "read_iolog", read_iolog = owned),
    field!("replay_no_stall", "replay_no_stall", replay_no_stall = bool),
    field!("replay_time_scale", "replay_time_scale", replay_time_percent = at_least_1),
    field!("replay_redirect", "replay_redirect", replay_redirect = owned),
];

const IO: &[Known] = &[
    by("rw", "readwrite", set::direction),
    by("rw_sequencer", "rw_sequencer", |options, given| {
        let words = [("sequential", Sequencer::Sequential), ("identical", Sequencer::Identical)];
        options.sequencer = given.word(&words)?;
        Ok(())
    }),
    by("rwmixread", "rwmixread", set::read_percent),
    by("rwmixwrite", "rwmixwrite", set::write_percent),
    by("bs", "blocksize", set::block),
    by("ba", "blockalign", set::align),
    by("bsrange", "blocksize_range", set::block_range),
    by("bssplit", "bssplit", set::block_split),
    field!("bs_unaligned", "blocksize_unaligned", unaligned = flag),
    by("percentage_random", "percentage_random", set::random_percent),
    by("random_distribution", "random_distribution", set::distribution),
    field!("norandommap", "norandommap", no_random_map = flag),
    by("randseed", "randseed", |options, given| {
        options.seed = Some(given.bytes()?);
        Ok(())
    }),
    field!("randrepeat", "randrepeat", repeatable = bool),
    by("buffer_pattern", "buffer_pattern", set::buffer_pattern),
    by("zero_buffers", "zero_buffers", set::zero_buffers),
    by("refill_buffers", "refill_buffers", set::refill_buffers),
];

const LIMITS: &[Known] = &[
    field!("number_ios", "number_ios", number_ios = unless_0),
    field!("loops", "loops", loops = at_least_1),
    field!("runtime", "timeout", runtime_ns = seconds_unless_0),
    field!("time_based", "time_based", time_based = flag),
    field!("startdelay", "startdelay", start_delay_ns = seconds_range),
    field!("ramp_time", "ramp_time", ramp_ns = seconds),
    by("rate", "rate", set::rate),
    by("rate_iops", "rate_iops", set::rate_iops),
    by("rate_process", "rate_process", |options, given| {
        options.arrivals = given.word(&[("linear", Arrivals::Linear), ("poisson", Arrivals::Poisson)])?;
        Ok(())
    }),
    field!("rate_ignore_thinktime", "rate_ignore_thinktime", rate_ignores_think = bool),
    field!("thinktime", "thinktime", think_ns = micros),
    field!("thinktime_blocks", "thinktime_blocks", think_ios = at_least_1),
    field!("latency_target", "latency_target", latency_target_ns = micros_unless_0),
    field!("latency_window", "latency_window", latency_window_ns = micros),
    field!("latency_percentile", "latency_percentile", latency_percentile = decimal_percent),
    field!("latency_run", "latency_run", latency_run = bool),
    by("max_latency", "max_latency", set::max_latency),
    field!("steadystate", "ss", steady_state = steady_state),
    field!("steadystate_duration", "ss_dur", steady_duration_ns = seconds),
    field!("steadystate_ramp_time", "ss_ramp", steady_ramp_ns = seconds),
    field!("steadystate_check_interval", "ss_interval", steady_interval_ns = seconds),
];

const QUEUE: &[Known] = &[
    field!("iodepth", "iodepth", depth = at_least_1),
    field!("numjobs", "numjobs", jobs = at_least_1),
    field!("new_group", "new_group", new_group = flag),
    field!("stonewall", "wait_for_previous", stonewall = flag),
    field!("fsync", "fsync", fsync_writes = at_least_0),
    field!("fdatasync", "fdatasync", fdatasync_writes = at_least_0),
    by("sync", "sync", |options, given| {
        let (none, sync, data) = (Durability::None, Durability::Sync, Durability::DataSync);
        options.durability =
            given.word(&[("none", none), ("0", none), ("sync", sync), ("1", sync), ("dsync", data)])?;
        Ok(())
    }),
    field!("end_fsync", "end_fsync", end_fsync = bool),
    field!("fsync_on_close", "fsync_on_close", fsync_on_close = bool),
];

const VERIFY: &[Known] = &[
    by("verify", "verify", set::verify),
    field!("verify_pattern", "verify_pattern", verify_pattern = pattern),
    field!("verify_fatal", "verify_fatal", verify_fatal = bool),
    field!("do_verify", "do_verify", do_verify = bool),
];

const FACES: &[Known] = &[
    field!("group_reporting", "group_reporting", faces.group_reporting = flag),
    field!("slat_percentiles", "slat_percentiles", faces.slat_percentiles = bool),
    field!("clat_percentiles", "clat_percentiles", faces.clat_percentiles = bool),
    field!("lat_percentiles", "lat_percentiles", faces.lat_percentiles = bool),
    field!("percentile_list", "percentile_list", faces.percentiles = percentiles),
    field!("disable_slat", "disable_slat", faces.slat = not),
    field!("disable_clat", "disable_clat", faces.clat = not),
    field!("disable_lat", "disable_lat", faces.lat = not),
    field!("disable_bw_measurement", "disable_bw", faces.bandwidth = not),
    by("gtod_reduce", "gtod_reduce", set::gtod_reduce),
];

const REPORTS: &str = "the record holds what every report is printed from, so it changes nothing";
const BATCHES: &str = "I/Os are handed over and taken back in batches as they come, so it changes nothing";
const FILES: &str = "files are laid out in the same way always, so it changes nothing";
const BUFFERS: &str = "buffers and rings are set up in the same way always, so it changes nothing";
const LOGS: &str = "there are no logs, so it changes nothing";

const NIL: &[Known] = &[
    // kb_base is read before all others.
    nil("kb_base", &["1000", "1024"], ""),
    nil("unit_base", &["0"], "reports show bits and bytes as fio does without it"),
    nil("thread", &["0"], "jobs are neither threads nor processes of their own, so it changes nothing"),
    nil("allrandrepeat", &["0"], "all that is random comes from the seed, so it changes nothing"),
    nil("random_generator", &["tausworthe"], "random numbers come from a generator of ours"),
    nil("iodepth_batch", &["1"], BATCHES),
    nil("iodepth_batch_submit", &["1"], BATCHES),
    nil("iodepth_batch_complete", &["1"], BATCHES),
    nil("iodepth_batch_complete_min", &["1"], BATCHES),
    nil("iodepth_batch_complete_max", &[], BATCHES),
    nil("iodepth_low", &[], "the queue is kept full, so it changes nothing"),
    nil(
        "io_submit_mode",
        &["inline"],
        "I/Os are begun at their time whatever is in flight, so it changes nothing",
    ),
    nil("significant_figures", &["4"], "reports show four"),
    nil("stats", &["1"], REPORTS),
    nil("disk_util", &["1"], REPORTS),
    nil("gtod_cpu", &["0"], "every processor reads the clock itself, so it changes nothing"),
    nil("clocksource", &["clock_gettime"], "time is taken from the monotonic clock"),
    nil("unique_filename", &["0", "1"], "it is for clients of a server"),
    nil("log_avg_msec", &[], LOGS),
    nil("log_max_value", &["0"], LOGS),
    nil("log_offset", &["0"], LOGS),
    nil("log_entries", &["1024"], LOGS),
    nil("log_unix_epoch", &["0"], LOGS),
    nil("per_job_logs", &["1"], LOGS),
    nil("bwavgtime", &["500"], "samples are as long as the record's intervals"),
    nil("iopsavgtime", &["500"], "samples are as long as the record's intervals"),
    nil("status-interval", &[], "it is an option of the command line, so it changes nothing"),
    nil("create_serialize", &["1"], FILES),
    nil("create_fsync", &["1"], FILES),
    nil("fallocate", &["native"], FILES),
    nil("fadvise_hint", &["1"], "the kernel is given no hints"),
    nil("mem", &["malloc"], BUFFERS),
    nil("iomem", &["malloc"], BUFFERS),
    nil("iomem_align", &[], BUFFERS),
    nil("mem_align", &[], BUFFERS),
    nil("hugepage-size", &[], BUFFERS),
    nil("userspace_reap", &["0"], BUFFERS),
    nil("fixedbufs", &["0"], BUFFERS),
    nil("registerfiles", &["0"], BUFFERS),
    nil("nonvectored", &[], BUFFERS),
    nil("scramble_buffers", &["1"], "buffers differ from I/O to I/O, so it changes nothing"),
    nil("file_service_type", &["roundrobin"], "files are taken in turns"),
    nil("openfiles", &[], "all files are open, so it changes nothing"),
    nil("verify_state_save", &["0", "1"], "there is no state of verification to save"),
    nil("verify_async", &["0"], "verifying keeps up by itself, so it changes nothing"),
    nil("verify_dump", &["0"], "a block that fails is not dumped"),
    nil("error_dump", &["0"], "errors are in the record"),
    nil("exitall_on_error", &["0"], "a job that fails does not end the others"),
];

const SAMPLES: &str = "the record has a sample for each interval";
const LOG: &str = "fio's logs are not written";
const LATER: &str = "leave it out";
const RAISE: &str = "it is not for a job file to set up the machine";

const REFUSED: &[Known] = &[
    refuse(
        "wait_for",
        "wait_for",
        &[],
        "waiting for one job is not offered",
        "use stonewall: it waits for all",
    ),
    refuse("lockfile", "lockfile", &["none"], "locking files is not offered", LATER),
    refuse(
        "filename_format",
        "filename_format",
        &["$jobname.$jobnum.$filenum"],
        "names cannot be composed",
        "use filename",
    ),
    refuse(
        "opendir",
        "opendir",
        &[],
        "directories are not searched for files",
        "name the files with filename",
    ),
    refuse(
        "nrfiles",
        "nr_files",
        &["1"],
        "more files than are named are not offered",
        "name each one with filename",
    ),
    refuse("file_append", "file_append", &["0"], "appending is not offered", "use offset"),
    refuse("fill_device", "fill_fs", &["0"], "writing until it is full is not offered", "use size=100%"),
    refuse(
        "overwrite",
        "overwrite",
        &["0"],
        "writing files before the run is not offered",
        "write them with a job of its own, before one with stonewall",
    ),
    refuse(
        "pre_read",
        "pre_read",
        &["0"],
        "reading files before the run is not offered",
        "read them with a job of its own, before one with stonewall",
    ),
    refuse("create_on_open", "create_on_open", &["0"], "files are created before the run only", LATER),
    refuse("create_only", "create_only", &["0"], "a job without I/O is not offered", LATER),
    refuse(
        "allow_file_create",
        "allow_file_create",
        &["1"],
        "files that are missing are created",
        "name one that is there",
    ),
    refuse(
        "allow_mounted_write",
        "allow_mounted_write",
        &["0"],
        "a mounted device is never written to",
        "unmount it",
    ),
    refuse("unlink_each_loop", "unlink_each_loop", &["0"], "files are removed at the end only", "use unlink"),
    refuse("ignore_error", "ignore_error", &[], "errors are not ignored but counted", LATER),
    refuse(
        "continue_on_error",
        "continue_on_error",
        &["none", "0"],
        "going on after errors by kind is not offered",
        LATER,
    ),
    refuse(
        "serialize_overlap",
        "serialize_overlap",
        &["0"],
        "I/Os in flight that overlap are not held back",
        LATER,
    ),
    refuse("write_barrier", "write_barrier", &["0"], "barriers are gone from the kernel", "use fdatasync"),
    refuse("sync_file_range", "sync_file_range", &[], "sync_file_range is not offered", "use fdatasync"),
    refuse("atomic", "atomic", &["0"], "atomic writes are not offered", LATER),
    refuse(
        "verify_only",
        "verify_only",
        &["0"],
        "verifying what another run wrote is not offered",
        "write and verify in one run",
    ),
    refuse("verify_interval", "verify_interval", &["0"], "each block has one header", LATER),
    refuse("verify_header_seed", "verify_header_seed", &["1"], "headers have a seed", LATER),
    refuse("verify_offset", "verify_offset", &["0"], "the header is where it is", LATER),
    refuse(
        "verify_backlog",
        "verify_backlog",
        &["0"],
        "verifying while writing is not offered",
        "leave it out: it verifies after writing",
    ),
    refuse(
        "verify_backlog_batch",
        "verify_backlog_batch",
        &["0"],
        "verifying while writing is not offered",
        LATER,
    ),
    refuse(
        "verify_write_sequence",
        "verify_write_sequence",
        &["1"],
        "what was written last is verified",
        LATER,
    ),
    refuse("experimental_verify", "experimental_verify", &["0"], "it is not offered", LATER),
    refuse(
        "verify_state_load",
        "verify_state_load",
        &["0"],
        "fio's state of verification is not read",
        LATER,
    ),
    refuse(
        "trim_percentage",
        "trim_percentage",
        &["0"],
        "discarding what was verified is not offered",
        "use rw=trimwrite",
    ),
    refuse(
        "trim_verify_zero",
        "trim_verify_zero",
        &["1"],
        "discarding what was verified is not offered",
        LATER,
    ),
    refuse("trim_backlog", "trim_backlog", &["0"], "discarding what was verified is not offered", LATER),
    refuse(
        "trim_backlog_batch",
        "trim_backlog_batch",
        &["0"],
        "discarding what was verified is not offered",
        LATER,
    ),
    refuse("write_iolog", "write_iolog", &[], "recording one's own I/O is not offered", LATER),
    refuse(
        "read_iolog_chunked",
        "read_iolog_chunked",
        &["0", "1"],
        "traces are always read in pieces",
        LATER,
    ),
    refuse(
        "replay_scale",
        "replay_scale",
        &["1"],
        "scaling addresses is not offered",
        "convert the trace first",
    ),
    refuse(
        "replay_align",
        "replay_align",
        &["0"],
        "aligning addresses is not offered",
        "convert the trace first",
    ),
    refuse(
        "replay_skip",
        "replay_skip",
        &[],
        "leaving out kinds of I/O is not offered",
        "convert the trace first",
    ),
    refuse(
        "merge_blktrace_file",
        "merge_blktrace_file",
        &[],
        "merging traces is not offered",
        "merge them first",
    ),
    refuse(
        "merge_blktrace_scalars",
        "merge_blktrace_scalars",
        &[],
        "merging traces is not offered",
        "merge them first",
    ),
    refuse(
        "merge_blktrace_iters",
        "merge_blktrace_iters",
        &[],
        "merging traces is not offered",
        "merge them first",
    ),
    refuse("exec_prerun", "exec_prerun", &[], "no commands are run from job files", "run it before"),
    refuse("exec_postrun", "exec_postrun", &[], "no commands are run from job files", "run it after"),
    refuse("ioscheduler", "ioscheduler", &[], RAISE, "set it before"),
    refuse(
        "zonemode",
        "zonemode",
        &["none"],
        "zones are not offered",
        "use offset and size, or random_distribution=zoned_abs:",
    ),
    refuse("zonesize", "zonesize", &["0"], "zones are not offered", LATER),
    refuse("zonecapacity", "zonecapacity", &["0"], "zones are not offered", LATER),
    refuse("zonerange", "zonerange", &["0"], "zones are not offered", LATER),
    refuse("zoneskip", "zoneskip", &["0"], "zones are not offered", LATER),
    refuse("read_beyond_wp", "read_beyond_wp", &["0"], "zones are not offered", LATER),
    refuse("max_open_zones", "max_open_zones", &["0"], "zones are not offered", LATER),
    refuse("job_max_open_zones", "job_max_open_zones", &["0"], "zones are not offered", LATER),
    refuse("ignore_zone_limits", "ignore_zone_limits", &["0"], "zones are not offered", LATER),
    refuse("zone_reset_threshold", "zone_reset_threshold", &[], "zones are not offered", LATER),
    refuse("zone_reset_frequency", "zone_reset_frequency", &[], "zones are not offered", LATER),
    refuse("lockmem", "lockmem", &["0"], "taking memory away from others is not offered", LATER),
    refuse("nice", "nice", &["0"], RAISE, "start it with nice"),
    refuse("prio", "prio", &[], "priorities of I/O are not offered", "start it with ionice"),
    refuse("prioclass", "prioclass", &[], "priorities of I/O are not offered", "start it with ionice"),
    refuse("cmdprio_percentage", "cmdprio_percentage", &["0"], "priorities of I/O are not offered", LATER),
    refuse("cmdprio_class", "cmdprio_class", &[], "priorities of I/O are not offered", LATER),
    refuse("cmdprio", "cmdprio", &[], "priorities of I/O are not offered", LATER),
    refuse("cmdprio_bssplit", "cmdprio_bssplit", &[], "priorities of I/O are not offered", LATER),
    refuse("hipri", "hipri", &["0"], "polling for completions is not offered", LATER),
    refuse("hipri_percentage", "hipri_percentage", &[], "polling for completions is not offered", LATER),
    refuse("sqthread_poll", "sqthread_poll", &["0"], "a kernel thread that polls is not offered", LATER),
    refuse("sqthread_poll_cpu", "sqthread_poll_cpu", &[], "a kernel thread that polls is not offered", LATER),
    refuse("uncached", "uncached", &["0"], "RWF_UNCACHED is not offered", "use direct=1"),
    refuse("nowait", "nowait", &["0"], "RWF_NOWAIT is not offered", LATER),
    refuse("force_async", "force_async", &["0"], "IOSQE_ASYNC is not offered", LATER),
    refuse(
        "thinktime_spin",
        "thinktime_spin",
        &["0"],
        "thinking does not use a processor",
        "use thinktime alone",
    ),
    refuse(
        "thinktime_blocks_type",
        "thinktime_blocks_type",
        &["complete"],
        "thinking begins when I/Os are done",
        LATER,
    ),
    refuse(
        "thinktime_iotime",
        "thinktime_iotime",
        &["0"],
        "thinking by time is not offered",
        "use thinktime_blocks",
    ),
    refuse(
        "rate_min",
        "ratemin",
        &["0"],
        "ending below a rate is not offered",
        "look at the intervals of the record",
    ),
    refuse(
        "rate_iops_min",
        "rate_iops_min",
        &["0"],
        "ending below a rate is not offered",
        "look at the intervals of the record",
    ),
    refuse("rate_cycle", "ratecycle", &["1000"], "it belongs to rate_min", LATER),
    refuse("write_hint", "write_hint", &["none"], "hints of lifetime are not offered", LATER),
    refuse("cpumask", "cpumask", &[], "binding jobs to processors is not offered", "start it with taskset"),
    refuse(
        "cpus_allowed",
        "cpus_allowed",
        &[],
        "binding jobs to processors is not offered",
        "start it with taskset",
    ),
    refuse(
        "cpus_allowed_policy",
        "cpus_allowed_policy",
        &["shared"],
        "binding jobs to processors is not offered",
        LATER,
    ),
    refuse(
        "numa_cpu_nodes",
        "numa_cpu_nodes",
        &[],
        "binding to nodes is not offered",
        "start it with numactl",
    ),
    refuse(
        "numa_mem_policy",
        "numa_mem_policy",
        &[],
        "binding to nodes is not offered",
        "start it with numactl",
    ),
    refuse(
        "exitall",
        "exitall",
        &["0"],
        "the first job to end does not end the others",
        "give all the same runtime",
    ),
    refuse("exit_what", "exit_what", &["group"], "the first job to end does not end the others", LATER),
    refuse("write_bw_log", "write_bw_log", &[], LOG, SAMPLES),
    refuse("write_lat_log", "write_lat_log", &[], LOG, SAMPLES),
    refuse("write_iops_log", "write_iops_log", &[], LOG, SAMPLES),
    refuse("write_hist_log", "write_hist_log", &[], LOG, "json+ has the histograms"),
    refuse("log_hist_msec", "log_hist_msec", &["0"], LOG, SAMPLES),
    refuse("log_hist_coarseness", "log_hist_coarseness", &["0"], LOG, SAMPLES),
    refuse("log_prio", "log_prio", &["0"], LOG, SAMPLES),
    refuse("log_issue_time", "log_issue_time", &["0"], LOG, SAMPLES),
    refuse("log_compression", "log_compression", &["0"], LOG, SAMPLES),
    refuse("log_compression_cpus", "log_compression_cpus", &[], LOG, SAMPLES),
    refuse("log_store_compressed", "log_store_compressed", &["0"], LOG, SAMPLES),
    refuse("log_alternate_epoch", "log_alternate_epoch", &["0"], LOG, SAMPLES),
    refuse("log_alternate_epoch_clock_id", "log_alternate_epoch_clock_id", &[], LOG, SAMPLES),
    refuse(
        "block_error_percentiles",
        "block_error_percentiles",
        &["0"],
        "errors by block are not counted",
        LATER,
    ),
    refuse(
        "buffer_compress_percentage",
        "buffer_compress_percentage",
        &["0"],
        "data of a given compressibility is not offered",
        "use zero_buffers, buffer_pattern or refill_buffers",
    ),
    refuse(
        "buffer_compress_chunk",
        "buffer_compress_chunk",
        &["512"],
        "data of a given compressibility is not offered",
        LATER,
    ),
    refuse(
        "dedupe_percentage",
        "dedupe_percentage",
        &["0"],
        "data of a given share of duplicates is not offered",
        LATER,
    ),
    refuse(
        "dedupe_mode",
        "dedupe_mode",
        &["repeat"],
        "data of a given share of duplicates is not offered",
        LATER,
    ),
    refuse(
        "dedupe_working_set_percentage",
        "dedupe_working_set_percentage",
        &["5"],
        "data of a given share of duplicates is not offered",
        LATER,
    ),
    refuse(
        "dedupe_global",
        "dedupe_global",
        &["0"],
        "data of a given share of duplicates is not offered",
        LATER,
    ),
    refuse(
        "unified_rw_reporting",
        "unified_rw_reporting",
        &["none", "0"],
        "reads and writes are reported apart",
        LATER,
    ),
    refuse("profile", "profile", &[], "fio's profiles are not offered", "write the jobs"),
    refuse("cgroup", "cgroup", &[], RAISE, "start it in a control group"),
    refuse("cgroup_nodelete", "cgroup_nodelete", &["0"], RAISE, "start it in a control group"),
    refuse("cgroup_weight", "cgroup_weight", &[], RAISE, "start it in a control group"),
    refuse("uid", "uid", &[], RAISE, "start it as that user"),
    refuse("gid", "gid", &[], RAISE, "start it as that group"),
    refuse("flow_id", "flow_id", &["0"], "flows between jobs are not offered", "use rate"),
    refuse("flow", "flow", &["0"], "flows between jobs are not offered", "use rate"),
    refuse("flow_sleep", "flow_sleep", &["0"], "flows between jobs are not offered", "use rate"),
    refuse("flow_watermark", "flow_watermark", &[], "flows between jobs are not offered", "use rate"),
    refuse("num_range", "num_range", &["1"], "several ranges in a discard are not offered", LATER),
    refuse("sprandom", "sprandom", &["0"], "its order is not offered", "precondition with a job of its own"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_name_is_there_twice() {
        let mut names = BTreeSet::new();
        for known in TABLES.iter().copied().flatten() {
            assert!(names.insert(known.name), "{}", known.name);
            assert!(known.alias == known.name || names.insert(known.alias), "{}", known.alias);
        }
    }

    #[test]
    fn the_nearest_name_is_suggested() {
        for (name, nearest) in
            [("iodepht", "iodepth"), ("blocksise", "blocksize"), ("run_time", "runtime"), ("verfy", "verify")]
        {
            assert_eq!(unknown(name).cure, format!("did you mean {nearest}?"));
        }
        assert!(!unknown("entirely_else").cure.contains("did you mean"));
        assert!(!unknown(&"x".repeat(8000)).cure.contains("did you mean"));
    }
}
