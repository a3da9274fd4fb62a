//! fio's reports from a record: what they say, and what of fio's they leave out, held against a real fio's.

use bimetal_lab::fio::{json, terse, text};
use bimetal_lab::job::{Job, Ops};
use bimetal_lab::record::{Cpu, Environment, Run};
use bimetal_lab::session::{self, Session};
use bimetal_lab::target::Null;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// What ours has and fio has not.
const OURS: &str = "made by";

/// Reads and writes, two jobs of a group and one of another, on nothing.
fn run() -> Run {
    let mut jobs = Vec::new();
    for (name, group, depth) in [("a", 0, 4), ("a", 0, 4), ("b", 1, 1)] {
        let mut job = Job::new(name, 0..1 << 30);
        (job.group, job.depth, job.ops) = (group, depth, Ops::ReadWrite { read_percent: 70 });
        (job.runtime_ns, job.time_based) = (Some(1_100_000_000), true);
        job.flush_every_writes = Some(100);
        let options = [
            ("rw", "randrw"),
            ("bs", "4k"),
            ("ioengine", "null"),
            ("iodepth", "4"),
            ("numjobs", "2"),
            ("group_reporting", "1"),
            ("percentile_list", "50:99.9"),
            ("description", "of nothing"),
            ("not_fios", "x"),
        ];
        job.options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        jobs.push(job);
    }
    let session = Session {
        title: "nothing".into(),
        environment: Environment::default(),
        places: vec!["null:".into()],
        seed: 1,
        virtual_time: false,
        notes: vec!["something to be said".into()],
    };
    session::run(&mut Null::default(), session, &[jobs], &mut |_| true).expect("there is room")
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn the_json_adds_up() {
    let run = run();
    let report = parsed(&json(&run, true));
    let jobs = report["jobs"].as_array().expect("jobs");
    assert_eq!(jobs.len(), 2);
    let (both, one) = (&jobs[0], &jobs[1]);
    assert_eq!((both["jobname"].as_str(), one["jobname"].as_str()), (Some("a"), Some("b")));
    for (job, of) in [(both, &run.jobs[..2]), (one, &run.jobs[2..])] {
        let ios = of.iter().map(|job| job.read.ios).sum::<u64>();
        let bytes = of.iter().map(|job| job.read.bytes).sum::<u64>();
        let read = &job["read"];
        assert_eq!((read["total_ios"].as_u64(), read["io_bytes"].as_u64()), (Some(ios), Some(bytes)));
        let clat = &read["clat_ns"];
        assert_eq!(clat["N"].as_u64(), Some(ios));
        let bins = clat["bins"].as_object().expect("bins");
        assert_eq!(bins.values().filter_map(Value::as_u64).sum::<u64>(), ios);
        let percentiles = clat["percentile"].as_object().expect("percentiles");
        assert_eq!(percentiles.keys().collect::<Vec<_>>(), ["50.000000", "99.900000"]);
        assert!(job["lat_ns"]["percentile"].is_null());
        let spread =
            ["latency_ns", "latency_us", "latency_ms"].into_iter().filter_map(|name| job[name].as_object());
        let all = spread.flat_map(|shares| shares.values()).filter_map(Value::as_f64).sum::<f64>();
        assert!((all - 100.0).abs() < 1e-6, "{all}");
        let levels = job["iodepth_level"].as_object().expect("levels");
        let all = levels.values().filter_map(Value::as_f64).sum::<f64>();
        assert!((all - 100.0).abs() < 1e-6 || all == 0.0, "{all}");
        assert!(job["sync"]["total_ios"].as_u64() > Some(0));
        assert_eq!(job["job options"]["iodepth"].as_str(), Some("4"));
    }
    assert!(one["usr_cpu"].is_null(), "what nobody measured is not said");
    let cpu = Some(Cpu { user_percent: 12.5, system_percent: 25.0, ..Cpu::default() });
    let report = parsed(&json(&Run { cpu, ..run }, false));
    assert_eq!(report["jobs"][0]["usr_cpu"].as_f64(), Some(12.5));
    assert!(report["jobs"][0]["read"]["clat_ns"]["bins"].is_null());
    // Numbers are taken from it as from fio's own.
    let version = report["fio version"].as_str().and_then(|version| version.strip_prefix("fio-"));
    assert!(version.is_some_and(|version| version.parse::<f64>().is_ok()));
    for levels in ["iodepth_submit", "iodepth_complete"] {
        let levels = report["jobs"][0][levels].as_object().expect("levels");
        let all = levels.values().filter_map(Value::as_f64).sum::<f64>();
        assert!((all - 100.0).abs() < 1e-6, "{all}");
    }
}

#[test]
fn errors_are_told() {
    let mut run = run();
    run.jobs[2].write.failed = 3;
    run.jobs[2].errors = BTreeMap::from([("no space left".to_owned(), 3)]);
    let report = parsed(&json(&run, false));
    assert_eq!(
        (report["jobs"][1]["error"].as_u64(), report["jobs"][1]["total_err"].as_u64()),
        (Some(5), Some(3))
    );
    let said = text(&run);
    assert!(said.contains("b: (groupid=1, jobs=1): err= 5 (no space left): "), "{said}");
    assert!(said.contains("     errors    : total=3, first_error=5/<no space left>"), "{said}");
}

#[test]
fn damage_is_told_as_fio_tells_it() {
    let mut run = run();
    run.jobs[2].read.mismatched = 2;
    run.jobs[2].errors = BTreeMap::from([("not what was written".to_owned(), 2)]);
    let report = parsed(&json(&run, false));
    let [error, total] = ["error", "total_err"].map(|key| report["jobs"][1][key].as_u64());
    assert_eq!((error, total, report["jobs"][0]["error"].as_u64()), (Some(84), Some(2), Some(0)));
    let said = text(&run);
    assert!(said.contains("b: (groupid=1, jobs=1): err= 84 (not what was written): "), "{said}");
}

#[test]
fn the_depth_that_was_found_is_told() {
    let mut run = run();
    assert_eq!(parsed(&json(&run, false))["jobs"][1]["latency_depth"].as_u64(), Some(1));
    (run.jobs[2].depth, run.jobs[2].found_depth) = (64, Some(5));
    assert_eq!(parsed(&json(&run, false))["jobs"][1]["latency_depth"].as_u64(), Some(5));
    assert!(text(&run).contains("percentile=100.00%, depth=5\n"));
}

/// A record is read from a file, and says what it likes.
#[test]
fn a_record_is_not_believed() {
    let mut run = run();
    run.began_unix_ms = u64::MAX;
    for job in &mut run.jobs {
        (job.began_ns, job.elapsed_ns, job.interval_ns) = (u64::MAX - 1, u64::MAX, 1);
        job.depths_ns = vec![(u32::MAX, u64::MAX); 3];
        job.options.insert("percentile_list".into(), "::".into());
        job.options.insert("latency_percentile".into(), "x".into());
        for side in [&mut job.read, &mut job.write] {
            (side.ios, side.bytes, side.failed) = (u64::MAX, u64::MAX, u64::MAX);
            side.service.bins = vec![(u64::MAX, u64::MAX), (0, u64::MAX)];
            (side.service.mean_ns, side.service.stddev_ns) = (f64::NAN, f64::INFINITY);
            side.response = side.service.clone();
        }
        for interval in &mut job.intervals {
            (interval.n, interval.read.bytes, interval.read.ios) = (u64::MAX, u64::MAX, u64::MAX);
        }
    }
    parsed(&json(&run, true));
    assert!(text(&run).contains("Run status group 0"));
    run.jobs.clear();
    parsed(&json(&run, true));
    text(&run);
}

/// Paths to all keys; those that differ from run to run are not told apart.
fn keys(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let path = if path.is_empty() { key.clone() } else { format!("{path}/{key}") };
                found.insert(path.clone());
                let differ = ["job options", "global options", "percentile", "bins", "disk_util"];
                if !differ.contains(&key.as_str()) {
                    keys(value, &path, found);
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| keys(value, path, found)),
        _ => {}
    }
}

/// What the same work looks like from a real fio, if one is installed.
fn real(format: &str) -> Option<String> {
    const JOB: &str = "[global]\nioengine=null\nsize=1g\nruntime=1\ntime_based\nrw=randrw\nrwmixread=70\niodepth=4\n\
        fsync=100\npercentile_list=50:99.9\ngroup_reporting\nnumjobs=2\nthread\n[a]\ndescription=x\n";
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.fio");
    std::fs::write(&path, JOB).expect("a job file");
    let done =
        Command::new("fio").arg(format!("--output-format={format}")).arg("--eta=never").arg(&path).output();
    let done = done.ok().filter(|done| done.status.success());
    if done.is_none() {
        println!("fio is not installed: nothing was compared");
    }
    done.map(|done| String::from_utf8_lossy(&done.stdout).into_owned())
}

#[test]
fn the_json_has_fios_keys() {
    let Some(theirs) = real("json+") else { return };
    let (mut ours_has, mut theirs_has) = (BTreeSet::new(), BTreeSet::new());
    let theirs = &theirs[theirs.find('{').unwrap_or(0)..];
    keys(&parsed(theirs), "", &mut theirs_has);
    let cpu = Some(Cpu { user_percent: 1.0, system_percent: 1.0, ..Cpu::default() });
    keys(&parsed(&json(&Run { cpu, ..run() }, true)), "", &mut ours_has);
    let missing = theirs_has.difference(&ours_has).collect::<Vec<_>>();
    assert!(missing.is_empty(), "fio has {missing:?}");
    let more = ours_has.difference(&theirs_has).filter(|key| *key != OURS).collect::<Vec<_>>();
    assert!(more.is_empty(), "only ours has {more:?}");
}

/// A line without what is measured: its words, up to the first number, and the names of its figures.
fn shape(line: &str) -> String {
    let named = line.match_indices('=').filter_map(|(at, _)| {
        let before = line[..at].trim_end();
        before.split(|letter: char| !(letter.is_alphanumeric() || letter == '_')).next_back()
    });
    let named = named.filter(|name| !name.starts_with(|letter: char| letter.is_ascii_digit()));
    let first = line.trim_start().split([':', '=']).next().unwrap_or_default();
    let first =
        first.split_whitespace().filter(|word| !word.starts_with(|letter: char| letter.is_ascii_digit()));
    let indent = line.len() - line.trim_start().len();
    format!("{indent} {}: {}", first.collect::<Vec<_>>().join(" "), named.collect::<Vec<_>>().join(" "))
}

#[test]
fn the_terse_line_has_fios_fields() {
    let run = run();
    let ours = terse(&run);
    assert_eq!(ours.lines().count(), 2);
    let fields: Vec<&str> = ours.lines().next().expect("a line").split(';').collect();
    assert_eq!((fields[0], fields[1], fields[2]), ("3", "fio-3.33", "a"));
    let bytes = run.jobs[..2].iter().map(|job| job.read.bytes).sum::<u64>();
    assert_eq!(fields[5].parse::<u64>(), Ok(bytes / 1024));
    let Some(theirs) = real("terse") else { return };
    let theirs: Vec<&str> = theirs.trim().split(';').collect();
    assert_eq!(fields.len(), theirs.len(), "{ours}\n{theirs:?}");
    let shape =
        |field: &&str| field.trim_matches(|letter: char| letter.is_ascii_digit() || letter == '.').to_owned();
    // What is no figure stands where fio has it: names, the marks of percentages.
    let shapes = |fields: &[&str]| fields[5..].iter().map(shape).collect::<Vec<_>>();
    let figures = fields.len() - 1;
    assert_eq!(shapes(&fields[..figures]), shapes(&theirs[..figures]));
}

#[test]
fn the_text_has_fios_lines() {
    let Some(theirs) = real("normal") else { return };
    let cpu = Some(Cpu { user_percent: 1.0, system_percent: 1.0, ..Cpu::default() });
    let ours = text(&Run { cpu, ..run() });
    // Units follow from what was measured, and so does which of the times below a limit there are.
    let unit = |line: &str| {
        ["nsec", "usec", "msec"].into_iter().fold(line.to_owned(), |line, unit| line.replace(unit, "T"))
    };
    let unit = |line: &str| {
        ["MiB/s)", "GiB/s)"].into_iter().fold(unit(line), |line, unit| line.replace(unit, "KiB/s)"))
    };
    let shapes = |text: &str| -> BTreeSet<String> {
        let lines = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with("fio-") && !line.starts_with("note:"));
        lines.map(|line| shape(&unit(line))).collect()
    };
    let (ours, theirs) = (shapes(&ours), shapes(&theirs));
    assert!(theirs.len() >= 20, "only {}", theirs.len());
    // What of a line is not told is not told on purpose: the process, dropped I/Os.
    let known = |line: &str| line.replace(" pid", "").replace(" dropped", "");
    let theirs: BTreeSet<String> = theirs.iter().map(|line| known(line)).collect();
    // Jobs are no processes.
    let out = |line: &&String| line.contains("Starting");
    let missing = theirs.difference(&ours).filter(|line| !out(line)).collect::<Vec<_>>();
    assert!(missing.is_empty(), "fio has\n{missing:#?}\nours\n{ours:#?}");
}
