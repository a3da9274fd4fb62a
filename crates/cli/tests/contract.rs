//! The command line is a contract: scripts rely on exit codes, on one sentence on standard error, and on the keys of
//! JSON documents. Every subcommand is found in `--help`, so that a new one cannot be forgotten here.

mod common;

use common::{Served, bimetal, terminate, text};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How a subcommand is called so that it succeeds, and what its `--json` document holds.
struct Sample {
    command: &'static str,
    /// `@` is a volume that is stopped, `%` a directory to write to.
    arguments: &'static [&'static str],
    keys: Option<&'static [&'static str]>,
    /// It runs until it is told to stop.
    serves: bool,
    /// It succeeds only while the volume is served.
    needs_server: bool,
    /// It succeeds only where the volume is mounted.
    needs_mount: bool,
}

const fn sample(command: &'static str, arguments: &'static [&'static str]) -> Sample {
    Sample { command, arguments, keys: None, serves: false, needs_server: false, needs_mount: false }
}

const STATUS: &[&str] = &[
    "volume",
    "state",
    "version",
    "unix_ms",
    "generation",
    "size_bytes",
    "tiers.0.name",
    "tiers.0.device",
    "tiers.0.size_bytes",
    "tiers.0.used_bytes",
    "tiers.0.read_share",
    "tiers.1.write_share",
    "landing.size_bytes",
    "landing.used_bytes",
    "landing.short",
    "tiers.0.load.reads",
    "tiers.1.load.busy_us",
    "requests.reads.count",
    "requests.writes.response_us",
    "requests.response_bounds_us",
    "promoted_chunks",
    "demoted_chunks",
    "shadowed_bytes",
    "shadow_demoted_chunks",
    "last_promotion_unix_s",
    "reads_again",
    "reads_from_shadows",
    "repaired_blocks",
    "scrub.state",
    "scrub.lost",
    "wear.moved_bytes",
    "wear.copied_bytes",
    "wear.budget",
    "moves.judged_chunks",
    "moves.repaid_chunks",
    "moves.saved_us_per_read",
    "moves.saved_us_per_write",
    "moves.cost_us_per_move",
    "moves.caution",
    "moves.paused",
    "timed_wakeups_per_day",
    "ram_bytes",
    "attached",
];

const SCRUB: &[&str] = &[
    "volume",
    "scrub.state",
    "scrub.paused_because",
    "scrub.done_bytes",
    "scrub.of_bytes",
    "scrub.begun_unix_s",
    "scrub.whole_unix_s",
    "scrub.wrong_blocks",
    "scrub.repaired_blocks",
    "scrub.lost",
    "scrub.unlisted_bytes",
    "scrub.bytes_per_s",
    "scrub.left_s",
    "files",
    "unknowable",
];

const PINS: &[&str] = &[
    "volume",
    "known",
    "pins.0.offset",
    "pins.0.length_bytes",
    "pins.0.tier",
    "pins.0.settled_bytes",
    "pins.0.astray_bytes",
    "tiers.0.tier",
    "tiers.0.room_bytes",
    "tiers.1.pinned_bytes",
];

const WHY: &[&str] = &[
    "volume",
    "chunk",
    "offset",
    "chunk_bytes",
    "tier",
    "device",
    "device_offset",
    "home_bytes",
    "landed_bytes",
    "shadow_offset",
    "pending",
    "moving",
    "pinned",
    "heat",
    "rises_at_heat",
    "coldest_fast_heat",
    "fast_free_slots",
    "wear_budget_spent",
    "since_unix_s",
    "opened_unix_s",
    "last_decision",
    "sentences.0",
];

const TOP: &[&str] = &[
    "volumes.0.volume",
    "volumes.0.state",
    "volumes.0.seconds",
    "volumes.0.devices.0.name",
    "volumes.0.devices.1.read_bytes_per_s",
    "volumes.0.devices.1.writes_per_s",
    "volumes.0.devices.0.latency_us",
    "volumes.0.devices.0.busy_share",
    "volumes.0.devices.0.queue",
    "volumes.0.hits.ever.reads",
    "volumes.0.moves.up_bytes_per_s",
    "volumes.0.moves_paused",
    "volumes.0.decisions",
    "volumes.0.hottest",
];

const PLAN: &[&str] = &["rows.0.wakeups_per_day", "calibrated", "measured", "sentence"];
const MAP: &[&str] = &[
    "volume",
    "served",
    "size_bytes",
    "from",
    "to",
    "cell_bytes",
    "rises_at_heat",
    "total.fast_bytes",
    "cells.0.offset",
    "cells.0.slow_bytes",
    "cells.0.landed_bytes",
    "cells.0.hole_bytes",
    "cells.0.lost_bytes",
    "cells.0.hottest",
    "cells.0.hot_slow_bytes",
];

const CALIBRATE: &[&str] = &[
    "drives",
    "devices.0.name",
    "devices.0.claim",
    "devices.0.reference",
    "devices.0.modelled",
    "devices.0.error_percent",
];

/// What tools read of fio's JSON.
const FIO: &[&str] = &[
    "fio version",
    "timestamp",
    "global options",
    "jobs.0.jobname",
    "jobs.0.job options.rw",
    "jobs.0.job options.iodepth",
    "jobs.0.read.io_bytes",
    "jobs.0.read.bw",
    "jobs.0.read.iops",
    "jobs.0.read.runtime",
    "jobs.0.read.total_ios",
    "jobs.0.read.slat_ns.mean",
    "jobs.0.read.clat_ns.stddev",
    "jobs.0.read.lat_ns.max",
    "jobs.0.write.iops",
    "jobs.0.trim.iops",
];

const ORION: &[&str] = &[
    "testname",
    "seed",
    "virtual_time",
    "interrupted",
    "seconds_by_point",
    "matrix_points",
    "luns.0.name",
    "luns.0.size_bytes",
    "points.0.small",
    "points.0.large",
    "points.0.small_ios.iops",
    "points.0.small_ios.bytes_per_s",
    "points.0.small_ios.mean_us",
    "points.0.small_ios.p99_us",
    "points.5.large_ios.bytes_per_s",
    "knees.0.of",
    "knees.0.beside",
    "knees.0.verdict",
    "knees.0.passes",
    "coverage.small.distinct_blocks",
    "coverage.small.distinct_bytes",
    "coverage.small.span_bytes",
    "coverage.large.cached",
    "tradeoff",
    "files.0",
];

const REPLAY: &[&str] = &[
    "fidelity.mode",
    "fidelity.records",
    "fidelity.left_out",
    "fidelity.seconds",
    "fidelity.late_share",
    "fidelity.mean_depth",
    "run.format",
    "run.environment.kernel",
    "run.jobs.0.read.response.bins",
];

const RUN: &[&str] = &[
    "scenario",
    "seed",
    "event_hash",
    "phases.0.name",
    "phases.0.seconds",
    "phases.0.mb_per_s",
    "phases.1.worst_second_mb_per_s",
    "phases.0.iops",
    "phases.0.mean_us",
    "phases.0.p50_us",
    "phases.0.p99_us",
    "phases.0.max_us",
    "phases.0.reads.p99_us",
    "phases.0.writes.mean_us",
    "phases.0.late.max_us",
    "phases.0.replay.records",
    "phases.0.replay.left_out",
    "phases.0.fast_share",
    "phases.0.fast_written.bytes",
    "phases.0.fast_written.per_byte",
    "phases.0.fast_written.by.log_bytes",
    "phases.0.fast_written.by.moves_bytes",
    "phases.0.fast_written.by.copies_bytes",
    "devices.1.name",
    "devices.1.busy_seconds",
    "devices.1.read_bytes",
    "devices.1.written_bytes",
    "expectations.0.what",
    "expectations.0.value",
    "expectations.0.held",
];

/// Written beside the volume.
const SWEEP: &[&str] = &[
    "scenarios",
    "seeds",
    "left_out",
    "lines.0.set",
    "lines.0.scenario",
    "lines.0.phase",
    "lines.0.figures.0.figure",
    "lines.0.figures.0.mean",
    "lines.0.figures.0.sure_within",
    "lines.0.figures.0.ratio",
    "lines.0.figures.0.ratio_sure_within",
    "lines.0.figures.0.beyond_noise",
    "lines.0.figures.0.by_seed",
];

const DUEL: &[&str] = &[
    "grammar",
    "seeds",
    "mean.static.geometric",
    "mean.static.worst",
    "mean.static.worst_seed",
    "mean.static.behind_share",
    "mean.best.geometric",
    "p99.best.behind_share",
    "worst",
    "harms.seeds",
    "harms.longest_seconds",
    "harms.sustained",
    "harms.failures",
    "seconds",
];

const SCENARIO: &str = r#"
name = "short"
[trace]
files = ["small.csv"]
[volume]
fast = { model = "ssd-128gb-2012", size = "1G" }
slow = { model = "disk-1tb-2012", size = "4G" }
[[phase]]
name = "replay"
replay = { mode = "timed" }
[[phase]]
name = "writes"
load = [{ pattern = "random", block = "4K", depth = 16 }]
seconds = 1
[[expect]]
phase = "writes"
metric = "iops"
at_least = 1000
[[claim]]
id = "quick"
phase = "writes"
metric = "iops"
reference = 130
at_least = 1000
"#;

const TABLE: &[&str] = &[
    "rows.0.claim",
    "rows.0.metric",
    "rows.0.unit",
    "rows.0.reference",
    "rows.0.ours",
    "rows.0.ceiling",
    "rows.0.policies.spill-only",
    "rows.0.held",
    "summary",
];

const TRACE: &[&str] = &[
    "format",
    "records",
    "malformed.count",
    "read_share",
    "write_share",
    "read_bytes",
    "written_bytes",
    "footprint_bytes",
    "duration_seconds",
    "inter_arrival.p50_us",
    "lost",
    "fua_writes",
    "queue_depth.p99",
    "queue_depth.over_time",
    "reuse.reused_share",
    "reuse.caches.0.hit_share",
    "working_set.window_seconds",
    "working_set.windows.0.working_set_bytes",
    "sequential_share",
    "sizes.0.up_to_bytes",
];

const RECORD: &[&str] =
    &["volume", "file", "records", "lost", "unanswered", "seconds", "file_bytes", "ended"];

const IMPORT: &[&str] = &[
    "volume",
    "source",
    "size_bytes",
    "resumed_at_bytes",
    "done_bytes",
    "written_bytes",
    "complete",
    "seconds",
];
const EXPORT: &[&str] = &[
    "volume",
    "target",
    "size_bytes",
    "resumed_at_bytes",
    "done_bytes",
    "written_bytes",
    "complete",
    "seconds",
];
const FILES: &[&str] = &[
    "target",
    "files",
    "file_bytes",
    "transfer_bytes",
    "verified",
    "passes.0.name",
    "passes.0.seconds",
    "passes.0.mb_per_s",
    "passes.0.slowest_file_mb_per_s",
    "passes.0.mismatched",
    "run.jobs.0.files_ns",
];
const FILL: &[&str] = &[
    "part_bytes",
    "written_mb_per_s.0",
    "read_mb_per_s.0",
    "cliff",
    "bursts",
    "rested_at_bytes",
    "run.format",
];
const IDLE: &[&str] =
    &["seconds", "told", "quiet", "promoted_bytes", "demoted_bytes", "busy_seconds", "samples"];
const SNIA: &[&str] = &[
    "target",
    "tests.0.test",
    "tests.0.scale",
    "tests.0.span_bytes",
    "tests.0.purged",
    "tests.0.steady.0.loads.0.iops.0",
    "tests.0.steady.0.tracked",
    "tests.0.steady.0.steadiness.reached.mean",
    "tests.0.histograms",
    "tests.0.stages",
    "run.format",
];
const QUICK: &[&str] = &[
    "target",
    "span_bytes",
    "figures.0.name",
    "figures.0.value",
    "figures.0.unit",
    "verdict.times.0.0",
    "verdict.sentences.0",
    "models.0.figures.0.value",
    "measured_once.0.mb_per_s",
    "run.format",
];
const COMPARE: &[&str] = &[
    "a",
    "b",
    "rounds",
    "interrupted",
    "figures.0.figure",
    "figures.0.means.0",
    "figures.0.differs_together",
    "sentence",
];
const ADAPTATION: &[&str] = &[
    "files",
    "late_files",
    "cliff",
    "fast_mb_per_s",
    "slow_mb_per_s",
    "best_mb_per_s",
    "late.0.mb_per_s",
    "rests.0.seconds",
    "migrates",
    "after_seconds",
    "rise_mb_per_s",
    "verdict",
];
const STORAGE_BENCH: &[&str] = &[
    "workload",
    "published",
    "assumed.0",
    "scale",
    "idle_at_most_ms",
    "results.0.target",
    "results.0.state",
    "results.0.all.mb_per_s",
    "results.0.all.busy_seconds",
    "results.0.read.mean_us",
    "results.0.read.p99_us",
    "results.0.write.above_10_ms",
    "results.0.write.above_100_ms",
    "results.0.fidelity",
    "run.format",
];
const TORTURE_RECOVERY: &[&str] = &[
    "part_bytes",
    "fresh.parts_mb_per_s.0",
    "torture_mb_per_s.1",
    "after_torture.1.share_of_fresh",
    "after_trim.mb_per_s",
    "verdict.slowed",
    "verdict.by_writing",
    "verdict.by_trim",
    "verdict.sentences.0",
    "run.format",
];
const SYNTH: &[&str] = &[
    "profile",
    "published",
    "assumed.0",
    "seed",
    "scale",
    "compared.0.what",
    "compared.0.asked",
    "compared.0.got",
];

/// A short trace.
const SMALL_TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/traces/small.csv");

/// One for every subcommand; `destroy` last, since it ends the volume.
const SAMPLES: &[Sample] = &[
    Sample { serves: true, ..sample("up", &["--dir", "%/up"]) },
    sample("create", &["%/new.toml", "--fast", "%/f?size=64M", "--slow", "%/s?size=64M", "--landing", "8M"]),
    Sample { serves: true, ..sample("serve", &["@", "--nbd", "127.0.0.1:0"]) },
    Sample { keys: Some(STATUS), ..sample("status", &["@"]) },
    sample("attach", &["@"]),
    sample("detach", &["@"]),
    Sample { keys: Some(PINS), ..sample("pin", &["@", "1M", "100K", "--tier", "slow"]) },
    Sample { keys: Some(PINS), ..sample("pins", &["@"]) },
    Sample { keys: Some(WHY), ..sample("why", &["@", "64K"]) },
    Sample { keys: Some(&["volume", "pins", "tiers.1.pinned_bytes"]), ..sample("unpin", &["@", "0", "64K"]) },
    Sample {
        keys: Some(&[
            "volume",
            "clean",
            "findings",
            "second_copies",
            "repair.repaired",
            "repair.beyond",
            "repair.lost",
        ]),
        ..sample("check", &["@", "--repair"])
    },
    Sample {
        keys: Some(&[
            "volume",
            "missing",
            "as_of_unix_s",
            "good_bytes",
            "lost",
            "suspect",
            "files",
            "unknowable",
        ]),
        ..sample("lost", &["@"])
    },
    Sample { keys: Some(TOP), needs_server: true, ..sample("top", &["@", "--once"]) },
    Sample { keys: Some(&["volume", "findings"]), ..sample("doctor", &["%/well.toml"]) },
    Sample { keys: Some(&[]), needs_mount: true, ..sample("files", &["%"]) },
    Sample { keys: Some(MAP), ..sample("map", &["@", "--picture", "%/map.svg"]) },
    Sample { keys: Some(PLAN), ..sample("plan", &[SMALL_TRACE]) },
    Sample { keys: Some(&["volumes"]), ..sample("list", &[]) },
    Sample { keys: Some(SCRUB), needs_server: true, ..sample("scrub", &["@"]) },
    Sample { keys: Some(&["volume", "state", "copied_bytes"]), ..sample("replace", &["@"]) },
    Sample { keys: Some(&["volume", "protection"]), ..sample("protect", &["@"]) },
    Sample { keys: Some(&["volume", "damaged_lines", "events.0.kind"]), ..sample("events", &["@"]) },
    Sample { keys: Some(&["volume", "bytes"]), needs_server: true, ..sample("flight", &["@", "%/v.flight"]) },
    Sample { keys: Some(&["replies"]), ..sample("sim replay-recording", &["%/v.flight"]) },
    sample("completions", &["bash"]),
    sample("man", &["%/man"]),
    Sample { keys: Some(TRACE), ..sample("trace stat", &[SMALL_TRACE]) },
    sample("trace convert", &[SMALL_TRACE, "-o", "%/small.trace"]),
    Sample {
        keys: Some(RECORD),
        needs_server: true,
        ..sample("trace record", &["@", "-o", "%/recorded.trace", "--seconds", "1"])
    },
    Sample {
        keys: Some(REPLAY),
        ..sample("trace replay", &[SMALL_TRACE, "--target", "model:ssd-128gb-2012", "--mode", "closed"])
    },
    Sample { keys: Some(FIO), ..sample("lab fio", &["%/job.fio", "--target", "null:"]) },
    Sample {
        keys: Some(ORION),
        ..sample(
            "lab orion",
            &[
                "-run",
                "simple",
                "-testname",
                "%/t",
                "-duration",
                "1",
                "--target",
                "model:disk-1tb-2012",
                "--force",
            ],
        )
    },
    Sample {
        keys: Some(QUICK),
        ..sample("lab quick", &["model:ssd-128gb-2012", "--span", "16M", "--each", "100ms"])
    },
    Sample {
        keys: Some(COMPARE),
        ..sample("lab compare", &["null:", "null:", "--span", "16M", "--each", "10ms"])
    },
    Sample {
        keys: Some(SNIA),
        ..sample("lab snia", &["throughput", "model:ssd-128gb-2012?size=1G", "--scale", "0.01"])
    },
    sample("lab report", &["%/run.json"]),
    Sample { keys: Some(FILES), ..sample("lab create-files", &["-n", "4", "-f", "64K", "%"]) },
    Sample { keys: Some(FILES), ..sample("lab read-files", &["-n", "4", "-f", "64K", "%/scratch.img"]) },
    Sample { keys: Some(FILL), ..sample("lab fill", &["%/scratch.img"]) },
    Sample { keys: Some(IDLE), ..sample("lab idle", &["volume:@", "--quiet", "1s"]) },
    Sample {
        keys: Some(ADAPTATION),
        ..sample("lab adaptation", &["model:disk-2tb-2012?size=16G", "-n", "20", "-f", "1M"])
    },
    Sample {
        keys: Some(STORAGE_BENCH),
        ..sample("lab storage-bench", &["heavy", "model:ssd-128gb-2012?size=256M", "--scale", "500"])
    },
    Sample {
        keys: Some(TORTURE_RECOVERY),
        ..sample("lab torture-recovery", &["model:ssd-128gb-2012?size=1G", "--torture", "5s"])
    },
    Sample {
        keys: Some(SYNTH),
        ..sample("trace synth", &["heavy", "-o", "%/synth.trace", "--scale", "1000"])
    },
    Sample {
        keys: Some(&["seeds", "cycles", "violations", "faults", "seconds"]),
        ..sample("sim torture", &["--seeds", "2", "--seed", "1", "--threads", "1"])
    },
    Sample {
        keys: Some(&["seed", "rounds", "violations"]),
        ..sample("sim kill", &["--rounds", "1", "--seconds", "0.1", "--dir", "%"])
    },
    Sample { keys: Some(CALIBRATE), ..sample("sim calibrate", &["--drive", "disk-20tb"]) },
    Sample { keys: Some(RUN), ..sample("sim run", &["%/scenario.toml"]) },
    Sample {
        keys: Some(TABLE),
        ..sample("sim table", &["--scenarios", "%/scenario.toml", "--policies", "spill-only"])
    },
    Sample {
        keys: Some(SWEEP),
        ..sample("sim sweep", &["%/scenario.toml", "--set", "push_worth=8", "--seeds", "1"])
    },
    Sample {
        keys: Some(DUEL),
        ..sample("sim duel", &["--seeds", "1", "--seed", "17", "--policies", "static", "--threads", "1"])
    },
    Sample { keys: Some(EXPORT), ..sample("export", &["@", "%/exported.img"]) },
    Sample { keys: Some(IMPORT), ..sample("import", &["%/scratch.img", "@", "--force"]) },
    Sample { keys: Some(&["volume", "devices.0.erased"]), ..sample("destroy", &["@", "--yes"]) },
];

impl Sample {
    fn words(&self) -> impl Iterator<Item = &str> {
        self.command.split(' ')
    }

    fn run(&self, served: &Served) -> Command {
        let dir = served.dir.path();
        let mut command = bimetal(dir);
        command.args(self.words());
        for argument in self.arguments {
            let volume = served.file().display().to_string();
            command.arg(argument.replace('@', &volume).replace('%', &dir.display().to_string()));
        }
        command
    }

    fn help(&self, dir: &Path) -> String {
        text(&common::succeed(bimetal(dir).args(self.words()).arg("--help")).stdout)
    }
}

/// A job that is soon done.
const JOB: &str = "[job]\nrw=randread\nsize=1m\n";

fn stopped() -> Served {
    let mut served = Served::new();
    served.connect().write(0, &common::pattern(1, 100_000));
    served.stop();
    std::fs::write(served.dir.path().join("scenario.toml"), SCENARIO).expect("write");
    // The same with a slow tier that is modelled: then it does not matter that both are on one disk.
    let file = std::fs::read_to_string(served.file()).expect("a volume file");
    let modelled = file.replace("\"slow.img\"", "\"slow.img\"\nmodel = \"disk-1tb-2012\"");
    std::fs::write(served.dir.path().join("well.toml"), modelled).expect("write");
    std::fs::write(served.dir.path().join("job.fio"), JOB).expect("write");
    let scratch = std::fs::File::create(served.dir.path().join("scratch.img")).expect("create");
    scratch.set_len(8 << 20).expect("set the size");
    let mut run = bimetal(served.dir.path());
    run.args(["lab", "fio", "job.fio", "--target", "null:", "--record", "run.json"]);
    common::succeed(run.current_dir(served.dir.path()));
    std::fs::copy(SMALL_TRACE, served.dir.path().join("small.csv")).expect("copy");
    served
}

/// All subcommands that have none below them, as `--help` lists them.
fn leaves(dir: &Path, path: &[String], found: &mut Vec<String>) {
    let help = text(&common::succeed(bimetal(dir).args(path).arg("--help")).stdout);
    let Some((_, list)) = help.split_once("\nCommands:\n") else {
        found.push(path.join(" "));
        return;
    };
    for line in list.lines().take_while(|line| !line.is_empty()) {
        // What is not indented by two is the rest of a description.
        let name = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' '));
        let Some(name) = name.and_then(|rest| rest.split(' ').next()).filter(|name| *name != "help") else {
            continue;
        };
        leaves(dir, &[path, &[name.to_owned()]].concat(), found);
    }
}

/// Exit code 2, nothing on standard output, one sentence on standard error with these words.
fn refuses(command: &mut Command, words: &[&str]) {
    let output = command.output().expect("run");
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{command:?}: {message}");
    assert!(output.stdout.is_empty(), "{command:?} writes to standard output");
    assert!(message.starts_with("bimetal: "), "{command:?}: {message}");
    assert!(!message.contains("panicked"), "{command:?}: {message}");
    assert_eq!(message.lines().count(), 1, "{command:?}: {message}");
    for word in words {
        assert!(message.contains(word), "{command:?} does not say {word:?}: {message}");
    }
}

fn quiet(command: &Command, output: &Output) {
    let message = text(&output.stderr);
    assert!(output.status.code().is_some_and(|code| code <= 2), "{command:?}: {}", output.status);
    assert!(!message.contains("panicked"), "{command:?}: {message}");
}

#[test]
fn every_subcommand_is_held_to_the_contract() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut found = Vec::new();
    leaves(dir.path(), &[], &mut found);
    let mut known: Vec<String> = SAMPLES.iter().map(|sample| sample.command.to_owned()).collect();
    found.sort();
    known.sort();
    assert_eq!(found, known, "SAMPLES must have one for each subcommand");
}

#[test]
fn help_shows_an_example_and_the_version_is_told() {
    let dir = tempfile::tempdir().expect("temporary directory");
    for sample in SAMPLES {
        let help = sample.help(dir.path());
        assert!(help.contains("Example"), "{}: {help}", sample.command);
        assert!(help.contains(&format!("bimetal {} ", sample.command)), "{}: {help}", sample.command);
        let has_json = help.contains("--json");
        assert_eq!(has_json, sample.keys.is_some(), "{}: --json is to be tested", sample.command);
    }
    let version = common::succeed(bimetal(dir.path()).arg("--version")).stdout;
    assert_eq!(text(&version), format!("bimetal {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn what_cannot_be_understood_is_refused_in_one_sentence() {
    let dir = tempfile::tempdir().expect("temporary directory");
    for sample in SAMPLES {
        let see = format!("`bimetal {} --help`", sample.command);
        refuses(
            bimetal(dir.path()).args(sample.words()).arg("--no-such-option"),
            &["'--no-such-option'", &see],
        );
        refuses(bimetal(dir.path()).args(sample.words()).args(["--log", "loud"]), &["loud", "debug"]);
        refuses(bimetal(dir.path()).env("BIMETAL_LOG", "loud").args(sample.words()), &["loud"]);
    }
    refuses(bimetal(dir.path()).arg("serf"), &["'serf'", "serve", "`bimetal --help`"]);
    refuses(bimetal(dir.path()).args(["create", "x"]), &["--fast", "--slow"]);
    refuses(bimetal(dir.path()).args(["serve", "x", "--memory", "1X"]), &["\"1X\" is not a size"]);
    let calibrate = |folder: &str| {
        let mut command = bimetal(dir.path());
        command.args(["sim", "calibrate", "--dir"]).arg(dir.path().join(folder));
        command
    };
    refuses(&mut calibrate("none"), &["none"]);
    refuses(&mut calibrate("."), &["no drive here"]);
    std::fs::write(dir.path().join("x.trace"), "R Hit 1 1 1 1").expect("write");
    refuses(&mut calibrate("."), &["x.model"]);
    refuses(calibrate(".").args(["--drive", "y"]), &["'y'", "x, disk-1tb-2012"]);
    let run = |file: &str| {
        let mut command = bimetal(dir.path());
        command.args(["sim", "run"]).arg(dir.path().join(file));
        command
    };
    refuses(&mut run("none.toml"), &["none.toml"]);
    // A trace that is not there, and a folder that nobody named.
    std::fs::write(dir.path().join("s.toml"), SCENARIO).expect("write");
    refuses(&mut run("s.toml"), &["s.toml", "small.csv", "No such file"]);
    std::fs::write(dir.path().join("s.toml"), SCENARIO.replace("small.csv", "$BIMETAL_TRACES/small.csv"))
        .expect("write");
    refuses(
        run("s.toml").env_remove("BIMETAL_TRACES"),
        &["s.toml", "BIMETAL_TRACES is not set", "small.csv"],
    );
    std::fs::copy(SMALL_TRACE, dir.path().join("small.csv")).expect("copy");
    std::fs::write(dir.path().join("s.toml"), SCENARIO.replace("128gb", "129gb")).expect("write");
    refuses(&mut run("s.toml"), &["s.toml", "ssd-129gb-2012", "ssd-128gb-2012"]);
    std::fs::write(dir.path().join("s.toml"), SCENARIO.replace("at_least = 1000", "at_least = 1e9"))
        .expect("write");
    let table = |path: &str| {
        let mut command = bimetal(dir.path());
        command.args(["sim", "table", "--policies", "static", "--scenarios"]).arg(dir.path().join(path));
        command
    };
    refuses(table("s.toml").args(["--policies", "magic"]), &["magic", "dm-cache-smq"]);
    refuses(&mut table("none.toml"), &["none.toml"]);
    std::fs::create_dir(dir.path().join("bare")).expect("a folder");
    refuses(&mut table("bare"), &["no scenario with a [[claim]]"]);
    let bare = SCENARIO.split("[[claim]]").next().expect("a beginning");
    std::fs::write(dir.path().join("bare/s.toml"), bare).expect("write");
    refuses(&mut table("bare/s.toml"), &["bare/s.toml", "no [[claim]]"]);
    let output = run("s.toml").output().expect("run");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("NOT HELD"), "{}", text(&output.stdout));
    let trace = |words: &[&str]| {
        let mut command = bimetal(dir.path());
        command.current_dir(dir.path()).arg("trace").args(words);
        command
    };
    std::fs::write(dir.path().join("words.csv"), "a trace of nothing\n").expect("write");
    std::fs::write(dir.path().join("empty.csv"), "").expect("write");
    for (file, words) in [
        ("none.csv", ["none.csv", "No such file"]),
        (".", [".", "directory"]),
        ("words.csv", ["words.csv", "format"]),
        ("empty.csv", ["empty.csv", "empty"]),
    ] {
        refuses(&mut trace(&["stat", file]), &words);
        refuses(&mut trace(&["convert", file, "-o", "out"]), &words);
        assert!(!dir.path().join("out").exists(), "{file}");
    }
    refuses(&mut trace(&["convert", SMALL_TRACE, "-o", "words.csv"]), &["words.csv", "--force"]);
    refuses(&mut trace(&["convert", SMALL_TRACE, "-o", ".", "--force"]), &["not a regular file"]);
    refuses(&mut trace(&["convert", SMALL_TRACE, "-o", "none/out"]), &["none"]);
    refuses(&mut trace(&["convert", SMALL_TRACE, "-o", "out", "--to", "tape"]), &["tape", "iolog3"]);
    common::succeed(&mut trace(&["convert", SMALL_TRACE, "-o", "out.parquet", "--to", "parquet"]));
    common::succeed(&mut trace(&["convert", SMALL_TRACE, "-o", "words.csv", "--force"]));
    common::succeed(&mut trace(&["stat", "words.csv"]));
    refuses(bimetal(dir.path()).args(["check", "a b"]), &["\"a b\" is not a volume name"]);
}

/// Files that are no volume files, by name; what they hold is none of a volume's business.
fn wrong_files(dir: &Path, good: &[u8]) -> Vec<(String, &'static str)> {
    let junk = common::pattern(3, 5000);
    let write = |name: &str, bytes: &[u8]| std::fs::write(dir.join(name), bytes).expect("write");
    write("words.toml", b"this is not TOML");
    write("empty.toml", b"");
    write("other.toml", b"[package]\nname = \"x\"\n");
    write("junk.toml", &junk);
    write("zeros.toml", &[0; 4096]);
    write("future.toml", text(good).replace("version = 1", "version = 99").as_bytes());
    write("keys.toml", &[good, b"\nmore = 1\n"].concat());
    std::fs::create_dir(dir.join("directory.toml")).expect("directory");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.join("pipe.toml"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .expect("pipe");
    let file = std::fs::File::create(dir.join("huge.toml")).expect("create");
    file.set_len(1 << 40).expect("size");
    let mut names = vec![
        ("none.toml".to_owned(), "no volume"),
        ("words.toml".to_owned(), "not a volume file"),
        ("empty.toml".to_owned(), "not a volume file"),
        ("other.toml".to_owned(), "not a volume file"),
        ("junk.toml".to_owned(), "cannot read"),
        ("zeros.toml".to_owned(), "not a volume file"),
        ("future.toml".to_owned(), "newer"),
        ("keys.toml".to_owned(), "not a volume file"),
        ("directory.toml".to_owned(), "directory"),
        ("pipe.toml".to_owned(), "regular file"),
        ("huge.toml".to_owned(), "too large"),
    ];
    // Cut off in the middle, at a few places.
    for tenth in 1..9 {
        let name = format!("cut{tenth}.toml");
        write(&name, &good[..good.len() * tenth / 10]);
        names.push((name, ""));
    }
    names
}

#[test]
fn a_volume_file_that_is_none_is_named_and_nothing_else_happens() {
    let served = stopped();
    let good = std::fs::read(served.file()).expect("a volume file");
    let files = wrong_files(served.dir.path(), &good);
    let mut tried = 0;
    for sample in SAMPLES.iter().filter(|sample| sample.arguments.contains(&"@")) {
        for (name, why) in &files {
            let path = served.dir.path().join(name).display().to_string();
            let arguments = sample.arguments.iter().map(|argument| argument.replace('@', &path));
            refuses(bimetal(served.dir.path()).args(sample.words()).args(arguments), &[name, why]);
            tried += 1;
        }
    }
    assert!(tried >= 4 * files.len(), "{tried}");
    served.check();
}

#[test]
fn devices_that_are_none_are_named() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let at = |name: &str| dir.path().join(name).display().to_string();
    std::fs::create_dir(at("directory")).expect("directory");
    std::fs::write(at("tiny"), [0; 100]).expect("write");
    let good = format!("{}?size=64M", at("good"));
    for (device, words) in [
        (at("none"), ["none", "does not exist"]),
        (at("directory"), ["directory", ""]),
        (at("tiny"), ["tiny", "too small"]),
        ("/dev/null".to_owned(), ["/dev/null", ""]),
        (format!("{}?sise=1G", at("x")), ["sise", "size=SIZE"]),
        ("s3://bucket/x".to_owned(), ["s3://", "not supported"]),
    ] {
        for (fast, slow) in [(&device, &good), (&good, &device)] {
            let mut command = bimetal(dir.path());
            command.args(["create", &at("v.toml"), "--fast", fast, "--slow", slow]);
            refuses(&mut command, &words);
            assert!(!dir.path().join("v.toml").exists(), "{command:?}");
        }
    }
}

#[test]
fn json_is_one_document_with_the_keys_that_were_promised() {
    let mut served = stopped();
    for sample in SAMPLES {
        // What needs a mount has a test of its own, where mounts are.
        let Some(keys) = sample.keys.filter(|_| !sample.needs_mount) else { continue };
        if sample.needs_server {
            served.start_with(&["--flight-recorder", "64M"]);
        }
        let output = sample.run(&served).arg("--json").output().expect("run");
        // Where temporary files are in memory, a doctor finds that.
        let is_told = sample.command == "doctor" && output.status.code() == Some(1);
        assert!(output.status.success() || is_told, "{}: {}", sample.command, text(&output.stderr));
        if sample.needs_server {
            served.stop();
        }
        let document: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{}: {error}: {}", sample.command, text(&output.stdout)));
        for key in keys {
            let pointer = format!("/{}", key.replace('.', "/"));
            assert!(document.pointer(&pointer).is_some(), "{} has no {key}: {document}", sample.command);
        }
    }
}

/// Runs a command whose standard output (or error) nobody reads.
fn unread(command: &mut Command, error_too: bool) {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    if error_too {
        command.stderr(writer.try_clone().expect("a pipe"));
    }
    command.stdout(writer);
    let child = command.spawn().expect("start");
    let output = child.wait_with_output().expect("wait");
    quiet(command, &output);
    assert_ne!(output.status.code(), Some(101), "{command:?} panicked");
}

#[test]
fn nobody_reading_is_no_reason_to_fail() {
    let served = stopped();
    for sample in SAMPLES {
        unread(bimetal(served.dir.path()).args(sample.words()).arg("--help"), false);
        unread(bimetal(served.dir.path()).args(sample.words()).arg("--no-such-option"), true);
        if !sample.serves {
            unread(&mut sample.run(&served), true);
        }
    }
}

#[test]
fn a_server_whose_readers_are_gone_serves_on() {
    let mut served = stopped();
    for (place, sample) in SAMPLES.iter().filter(|sample| sample.serves).enumerate() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = sample.run(&served);
        let is_up = sample.command == "up";
        let socket = if is_up { served.dir.path().join("up/nbd.sock") } else { served.socket() };
        if !is_up {
            command.arg("--nbd").arg(format!("unix:{}", socket.display()));
        }
        command.stdout(writer.try_clone().expect("a pipe")).stderr(writer);
        served.child = Some(command.spawn().expect("start"));
        let start = Instant::now();
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            assert!(start.elapsed() < Duration::from_secs(60), "{} does not come up", sample.command);
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut client = common::Client::connect(&socket);
        client.write(0, &common::pattern(place as u64, 4096));
        assert_eq!(client.read(0, 4096), common::pattern(place as u64, 4096));
        let status = terminate(served.child.as_mut().expect("serving"));
        assert!(status.success(), "{}: {status}", sample.command);
        served.child = None;
    }
}
