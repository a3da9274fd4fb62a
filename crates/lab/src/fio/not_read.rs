//! fio's options that are not read: those that change nothing here, and those that are not offered.

use super::number;
use super::options::PerSide;
use super::table::{Known, Treat};
use super::value::{Given, Result};

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

/// Options among these that are switched by 0 and 1.
const SWITCHES: &[&str] = &[
    "allrandrepeat",
    "atomic",
    "block_error_percentiles",
    "cgroup_nodelete",
    "create_fsync",
    "create_on_open",
    "create_serialize",
    "dedupe_global",
    "disk_util",
    "error_dump",
    "experimental_verify",
    "log_prio",
    "log_store_compressed",
    "read_iolog_chunked",
    "scramble_buffers",
    "serialize_overlap",
    "softrandommap",
    "stats",
    "trim_verify_zero",
    "unique_filename",
    "verify_dump",
    "verify_state_load",
    "verify_state_save",
];

/// Those that may stand alone as well.
const FLAGS: &[&str] = &["exitall_on_error", "thread", "threads"];

/// Those whose value is a number.
const NUMBERS: &[&str] = &[
    "bwavgtime",
    "cgroup_weight",
    "dedupe_working_set_percentage",
    "gtod_cpu",
    "hugepage-size",
    "iodepth_batch",
    "iodepth_batch_complete",
    "iodepth_batch_complete_max",
    "iodepth_batch_complete_min",
    "iodepth_batch_submit",
    "iodepth_low",
    "iomem_align",
    "iopsavgtime",
    "log_alternate_epoch_clock_id",
    "log_compression",
    "log_entries",
    "log_hist_coarseness",
    "log_hist_msec",
    "mem_align",
    "openfiles",
    "prio",
    "prioclass",
    "significant_figures",
    "trim_backlog_batch",
    "trim_percentage",
    "verify_async",
    "verify_backlog",
    "verify_backlog_batch",
    "verify_interval",
];

/// Those with a value for reads, writes and discards.
const NUMBERS_PER_SIDE: &[&str] = &["rate_iops_min", "rate_min", "ratemin"];

/// Those that have a time.
const TIMES: &[&str] = &["thinktime_spin"];

/// Those that have one of a few words.
const WORDS: &[(&str, &[&str])] = &[
    ("clocksource", &["gettimeofday", "clock_gettime", "cpu"]),
    ("cpus_allowed_policy", &["shared", "split"]),
    ("dedupe_mode", &["repeat", "working_set"]),
    ("fadvise_hint", &["0", "1", "random", "sequential"]),
    ("fallocate", &["none", "native", "posix", "keep", "truncate", "0", "1"]),
    ("io_submit_mode", &["inline", "offload"]),
    ("lockfile", &["none", "exclusive", "readwrite"]),
    ("random_generator", &["tausworthe", "lfsr", "tausworthe64"]),
    ("thinktime_blocks_type", &["complete", "issue"]),
    ("unit_base", &["0", "1", "8"]),
    ("write_hint", &["none", "short", "medium", "long", "extreme"]),
];

/// Whether the value of an option that changes nothing is one at all: what fio would not read is refused here, too.
pub(super) fn is_a_value(given: &Given<'_>) -> Result<()> {
    let name = given.name;
    if SWITCHES.contains(&name) {
        return given.bool().map(|_| ());
    }
    if FLAGS.contains(&name) {
        return given.flag().map(|_| ());
    }
    if NUMBERS.contains(&name) {
        return given.bytes().map(|_| ());
    }
    if TIMES.contains(&name) {
        return given.micros().map(|_| ());
    }
    if NUMBERS_PER_SIDE.contains(&name) {
        return given.per_side(&mut PerSide::default(), |text| number::bytes(text, given.base));
    }
    match WORDS.iter().find(|(option, _)| *option == name) {
        Some((_, words)) => given.word(&words.iter().map(|word| (*word, ())).collect::<Vec<_>>()),
        None => Ok(()),
    }
}

const REPORTS: &str = "the record holds what every report is printed from, so it changes nothing";
const BATCHES: &str = "I/Os are handed over one by one and taken back as they come, so it changes nothing";
const FILES: &str = "files are laid out in the same way always, so it changes nothing";
const BUFFERS: &str = "buffers and rings are set up in the same way always, so it changes nothing";
const HISTOGRAMS: &str = "histograms are in the report (--output-format=json+), not in a log";
const DUPLICATES: &str = "duplicates of a job are all of one block";
const AFTER: &str = "what was written is verified when all is written";
const STAMPS: &str = "stamps are the lab's own, and all bytes are compared";
const OURS: &str = "it is left out: the lab runs as it was started (see nice, ionice, numactl, systemd-run)";
const RING: &str = "it is left out: I/O goes through the lab's own ring";

pub(super) const NIL: &[Known] = &[
    // kb_base is read before all others.
    nil("kb_base", &["1000", "1024"], ""),
    nil("create_on_open", &["0"], "files are made before the run, so that their making is in no figure"),
    nil("lockfile", &["none"], "files are not locked between jobs"),
    nil("ignore_error", &[], "errors are counted, whatever their number"),
    nil("verify_backlog", &["0"], AFTER),
    nil("verify_backlog_batch", &["0"], AFTER),
    nil("verify_interval", &["0"], STAMPS),
    nil("verify_header_seed", &["1"], STAMPS),
    nil("verify_offset", &["0"], STAMPS),
    nil("verify_write_sequence", &["1"], STAMPS),
    nil("experimental_verify", &["0"], AFTER),
    nil("verify_async_cpus", &[], "verifying keeps up by itself, so it changes nothing"),
    nil("trim_percentage", &["0"], "nothing is discarded where there is no trim_backlog, as in fio"),
    nil("trim_backlog_batch", &["0"], "nothing is discarded where there is no trim_backlog, as in fio"),
    nil("trim_verify_zero", &["0", "1"], "what was discarded is not read back"),
    nil("cpus_allowed_policy", &["shared"], "all jobs share the processors that they name"),
    nil("numa_cpu_nodes", &[], OURS),
    nil("numa_mem_policy", &[], OURS),
    nil("lockmem", &["0"], OURS),
    nil("nice", &["0"], OURS),
    nil("prio", &["0"], OURS),
    nil("prioclass", &[], OURS),
    nil("cmdprio", &[], OURS),
    nil("cmdprio_class", &[], OURS),
    nil("cmdprio_percentage", &["0"], OURS),
    nil("cmdprio_bssplit", &[], OURS),
    nil("ioscheduler", &[], "the machine is left as it is"),
    nil("cgroup", &[], OURS),
    nil("cgroup_nodelete", &["0"], OURS),
    nil("cgroup_weight", &[], OURS),
    nil("serialize_overlap", &["0"], "I/Os in flight that overlap are not held back"),
    nil("atomic", &["0"], "writes are not asked to be atomic"),
    nil("flow_watermark", &[], "jobs of a flow never go ahead by more than an I/O"),
    nil("verify_state_load", &["0"], "all is verified, however far an earlier run came"),
    nil("dedupe_mode", &["repeat"], DUPLICATES),
    nil("dedupe_working_set_percentage", &["5"], DUPLICATES),
    nil("dedupe_global", &["0"], DUPLICATES),
    nil("hipri", &["0"], RING),
    nil("hipri_percentage", &[], RING),
    nil("sqthread_poll", &["0"], RING),
    nil("sqthread_poll_cpu", &[], RING),
    nil("force_async", &["0"], RING),
    nil("nowait", &["0"], RING),
    nil("uncached", &["0"], "what is written stays in the page cache"),
    nil("write_barrier", &["0"], "barriers are gone from the kernel"),
    nil("write_hint", &["none"], "the kernel is given no hints"),
    nil("thinktime_spin", &["0"], "thinking waits and needs no processor"),
    nil("thinktime_blocks_type", &["complete"], "thinking begins when I/Os are done"),
    nil("rate_min", &["0"], "a job that falls below a rate goes on; the record has its intervals"),
    nil("ratemin", &["0"], "a job that falls below a rate goes on; the record has its intervals"),
    nil("rate_iops_min", &["0"], "a job that falls below a rate goes on; the record has its intervals"),
    nil("rate_cycle", &["1000"], "a job that falls below a rate goes on; the record has its intervals"),
    nil("ratecycle", &["1000"], "a job that falls below a rate goes on; the record has its intervals"),
    nil("block_error_percentiles", &["0"], "errors are not counted by block"),
    nil("read_iolog_chunked", &["0", "1"], "traces are always read in pieces"),
    nil("write_hist_log", &[], HISTOGRAMS),
    nil("log_hist_msec", &["0"], HISTOGRAMS),
    nil("log_hist_coarseness", &["0"], HISTOGRAMS),
    nil("log_alternate_epoch_clock_id", &["0"], "times of logs are of the wall clock, or of the run"),
    nil("log_issue_time", &["0"], "logs have the time of the end only"),
    nil("log_prio", &["0"], "I/Os have no priority, so it changes nothing"),
    nil("log_compression", &["0"], "logs go to their files as they come, so it changes nothing"),
    nil("log_compression_cpus", &[], "logs go to their files as they come, so it changes nothing"),
    nil("log_store_compressed", &["0"], "logs are text, not compressed"),
    nil("unit_base", &["0"], "reports show bits and bytes as fio does without it"),
    nil("thread", &["0"], "jobs are neither threads nor processes of their own, so it changes nothing"),
    nil("threads", &[], "jobs are neither threads nor processes of their own, so it changes nothing"),
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
    nil("log_entries", &["1024"], "logs go to their files as they come, so it changes nothing"),
    nil("bwavgtime", &["500"], "samples are as long as the record's intervals"),
    nil("iopsavgtime", &["500"], "samples are as long as the record's intervals"),
    nil("status-interval", &[], "it is an option of the command line, so it changes nothing"),
    nil("create_serialize", &["1"], FILES),
    nil("create_fsync", &["1"], FILES),
    nil(
        "sync_file_range",
        &[],
        "it is left out: the kernel writes back when it likes; fdatasync waits for the data",
    ),
    nil("softrandommap", &["0"], "a map that would take too much memory is refused, with the reason"),
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
    nil("openfiles", &[], "all files are open, so it changes nothing"),
    nil("verify_state_save", &["0", "1"], "there is no state of verification to save"),
    nil("verify_async", &["0"], "verifying keeps up by itself, so it changes nothing"),
    nil("verify_dump", &["0"], "a block that fails is not dumped"),
    nil("error_dump", &["0"], "errors are in the record"),
    nil("exitall_on_error", &["0"], "a job that fails does not end the others"),
];

const LATER: &str = "leave it out";
const RAISE: &str = "it is not for a job file to set up the machine";

pub(super) const REFUSED: &[Known] = &[
    refuse(
        "opendir",
        "opendir",
        &[],
        "directories are not searched for files",
        "name the files with filename",
    ),
    refuse("create_only", "create_only", &["0"], "a job without I/O is not offered", LATER),
    refuse(
        "allow_mounted_write",
        "allow_mounted_write",
        &["0"],
        "a mounted device is never written to",
        "unmount it",
    ),
    refuse(
        "trim_backlog",
        "trim_backlog",
        &["0"],
        "discarding what was written for verifying is not offered",
        "leave it out, or write rw=trimwrite",
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
    refuse("zonecapacity", "zonecapacity", &["0"], "zones are not offered", LATER),
    refuse("read_beyond_wp", "read_beyond_wp", &["0"], "zones are not offered", LATER),
    refuse("max_open_zones", "max_open_zones", &["0"], "zones are not offered", LATER),
    refuse("job_max_open_zones", "job_max_open_zones", &["0"], "zones are not offered", LATER),
    refuse("ignore_zone_limits", "ignore_zone_limits", &["0"], "zones are not offered", LATER),
    refuse("zone_reset_threshold", "zone_reset_threshold", &[], "zones are not offered", LATER),
    refuse("zone_reset_frequency", "zone_reset_frequency", &[], "zones are not offered", LATER),
    refuse("profile", "profile", &[], "fio's profiles are not offered", "write the jobs"),
    refuse("uid", "uid", &[], RAISE, "start it as that user"),
    refuse("gid", "gid", &[], RAISE, "start it as that group"),
    refuse("num_range", "num_range", &["1"], "several ranges in a discard are not offered", LATER),
    refuse("sprandom", "sprandom", &["0"], "its order is not offered", "precondition with a job of its own"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::number::KbBase;

    #[test]
    fn what_fio_would_not_read_is_refused_though_it_changes_nothing() {
        let lists = [SWITCHES, FLAGS, NUMBERS, NUMBERS_PER_SIDE, TIMES].into_iter().flatten().copied();
        for name in lists.chain(WORDS.iter().map(|(name, _)| *name)) {
            assert!(NIL.iter().any(|known| known.name == name), "{name} changes nothing");
            let reads = |value| is_a_value(&Given { name, value: Some(value), base: KbBase::default() });
            assert!(reads("nonsense").is_err(), "{name}=nonsense");
            let one = WORDS.iter().find(|(option, _)| *option == name).map_or("1", |(_, words)| words[0]);
            assert_eq!(reads(one), Ok(()), "{name}={one}");
        }
    }
}
