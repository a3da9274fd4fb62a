//! Every option of fio's, and what becomes of it: read, told that it changes nothing here, or refused by name.

use super::error::Problem;
use super::iolog;
use super::not_read::{NIL, REFUSED};
use super::options::{Arrivals, Durability, Ends, JobOptions, Sequencer, Unified};
use super::set;
use super::value::{Given, Result};
use strsim::osa_distance;

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
    let near = names.map(|known| (osa_distance(name, known), known)).min();
    match near.filter(|(distance, known)| *distance <= wrong_letters(known)) {
        Some((_, known)) => Problem::new(problem, format!("did you mean {known}?")),
        None => Problem::new(problem, "see fio's manual for those that there are"),
    }
}

/// How many letters of a name may be wrong.
fn wrong_letters(name: &str) -> usize {
    1 + name.len() / 4
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

static TABLES: &[&[Known]] = &[TARGET, IO, LIMITS, QUEUE, VERIFY, LOGS, FACES, NIL, REFUSED];

const TARGET: &[Known] = &[
    field!("name", "name", name = owned),
    field!("description", "description", description = owned),
    by("filename", "filename", set::filenames),
    field!("directory", "directory", directory = owned),
    field!("nrfiles", "nr_files", files = at_least_1),
    field!("filename_format", "filename_format", filename_format = owned),
    by("file_service_type", "file_service_type", set::file_service),
    field!("allow_file_create", "allow_file_create", creates_files = bool),
    field!("file_append", "file_append", appends = bool),
    field!("overwrite", "overwrite", overwrites = bool),
    field!("pre_read", "pre_read", pre_reads = bool),
    by("cpus_allowed", "cpus_allowed", set::processors),
    by("cpumask", "cpumask", set::processor_mask),
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
    by("unlink_each_loop", "unlink_each_loop", |options, given| {
        options.unlink |= given.bool()?;
        Ok(())
    }),
    field!("read_iolog", "read_iolog", read_iolog = owned),
    field!("replay_no_stall", "replay_no_stall", replay.no_stall = bool),
    field!("replay_time_scale", "replay_time_scale", replay.speed_percent = at_least_1),
    field!("replay_redirect", "replay_redirect", replay.redirect = owned),
    field!("replay_scale", "replay_scale", replay.scale = at_least_0),
    field!("replay_align", "replay_align", replay.align_bytes = at_least_0),
    by("replay_skip", "replay_skip", iolog::skips),
    by("zonemode", "zonemode", set::zone_mode),
    field!("zonesize", "zonesize", zone_bytes = bytes),
    field!("zonerange", "zonerange", zone_range_bytes = bytes),
    field!("zoneskip", "zoneskip", zone_skip_bytes = bytes),
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
    field!("buffer_compress_percentage", "buffer_compress_percentage", compress_percent = percent),
    field!("buffer_compress_chunk", "buffer_compress_chunk", compress_chunk_bytes = at_least_0),
    field!("dedupe_percentage", "dedupe_percentage", dedupe_percent = percent),
    by("zero_buffers", "zero_buffers", set::zero_buffers),
    by("refill_buffers", "refill_buffers", set::refill_buffers),
];

const LIMITS: &[Known] = &[
    field!("number_ios", "number_ios", number_ios = unless_0),
    field!("loops", "loops", loops = times),
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
    field!("thinktime_iotime", "thinktime_iotime", think_after_ns = micros),
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
    field!("flow", "flow", flow = at_least_0),
    field!("flow_id", "flow_id", flow_id = at_least_0),
    field!("flow_sleep", "flow_sleep", flow_sleep_ns = micros),
    by("fill_device", "fill_fs", |options, given| {
        if given.bool()? {
            options.size = Some(super::number::Extent::Percent(100));
        }
        Ok(())
    }),
    field!("new_group", "new_group", new_group = flag),
    field!("stonewall", "wait_for_previous", stonewall = flag),
    field!("exitall", "exitall", ends_others = flag),
    by("exit_what", "exit_what", |options, given| {
        let words = [("group", Ends::Group), ("stonewall", Ends::Phase), ("all", Ends::All)];
        options.ends = given.word(&words)?;
        Ok(())
    }),
    by("wait_for", "wait_for", |options, given| {
        options.waits |= given.owned()?.is_some_and(|name| name != "none");
        Ok(())
    }),
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
    field!("verify_only", "verify_only", verify_only = flag),
    by("continue_on_error", "continue_on_error", set::goes_on),
];

const LOGS: &[Known] = &[
    by("write_bw_log", "write_bw_log", |options, given| {
        options.logs.bandwidth = given.maybe_named(options.logs.bandwidth.take());
        Ok(())
    }),
    by("write_lat_log", "write_lat_log", |options, given| {
        options.logs.latency = given.maybe_named(options.logs.latency.take());
        Ok(())
    }),
    by("write_iops_log", "write_iops_log", |options, given| {
        options.logs.iops = given.maybe_named(options.logs.iops.take());
        Ok(())
    }),
    by("log_avg_msec", "log_avg_msec", |options, given| {
        options.logs.window_ns = given.bytes()?.saturating_mul(1_000_000);
        Ok(())
    }),
    by("log_max_value", "log_window_value", |options, given| {
        let words = [("0", false), ("avg", false), ("1", true), ("max", true)];
        options.logs.highest = given.word(&words)?;
        Ok(())
    }),
    field!("write_iolog", "write_iolog", logs.iolog = owned),
    field!("log_offset", "log_offset", logs.offset = bool),
    field!("log_unix_epoch", "log_unix_epoch", logs.wall_clock = bool),
    field!("log_alternate_epoch", "log_alternate_epoch", logs.wall_clock = bool),
    field!("per_job_logs", "per_job_logs", logs.shared = not),
];

const FACES: &[Known] = &[
    field!("group_reporting", "group_reporting", faces.group_reporting = flag),
    field!("slat_percentiles", "slat_percentiles", faces.slat_percentiles = bool),
    field!("clat_percentiles", "clat_percentiles", faces.clat_percentiles = bool),
    field!("lat_percentiles", "lat_percentiles", faces.lat_percentiles = bool),
    by("unified_rw_reporting", "unified_rw_reporting", |options, given| {
        let words = [
            ("none", Unified::Apart),
            ("0", Unified::Apart),
            ("mixed", Unified::Mixed),
            ("1", Unified::Mixed),
            ("both", Unified::Both),
            ("2", Unified::Both),
        ];
        options.faces.unified = given.word(&words)?;
        Ok(())
    }),
    field!("percentile_list", "percentile_list", faces.percentiles = percentiles),
    field!("disable_slat", "disable_slat", faces.slat = not),
    field!("disable_clat", "disable_clat", faces.clat = not),
    field!("disable_lat", "disable_lat", faces.lat = not),
    field!("disable_bw_measurement", "disable_bw", faces.bandwidth = not),
    by("gtod_reduce", "gtod_reduce", set::gtod_reduce),
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
