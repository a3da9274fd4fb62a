//! `bimetal sim run`

use crate::args::ScenarioArgs;
use crate::progress::Progress;
use crate::text_file::read;
use crate::{Outcome, say, say_json, size};
use anyhow::{Context as _, ensure};
use bimetal_sim::scenario::{MAX_FILE_BYTES, Phase, Report, Responses, Scenario, tuning};
use serde::Serialize;
use std::path::Path;

/// What came of a file with axes.
#[derive(Serialize)]
struct Reports {
    reports: Vec<Report>,
}

pub(crate) fn run(args: &ScenarioArgs) -> anyhow::Result<Outcome> {
    let name = || args.file.display().to_string();
    let text = read(&args.file, MAX_FILE_BYTES)?;
    let mut scenarios = Scenario::parse_all(&text).with_context(name)?;
    let has_axes = scenarios.iter().any(|scenario| !scenario.combination.is_empty());
    if let Some(only) = &args.only {
        scenarios.retain(|scenario| scenario.name.contains(only));
        ensure!(!scenarios.is_empty(), "{}: the name of no scenario has {only:?} in it", name());
    }
    let mut reports = Vec::new();
    for mut scenario in scenarios {
        let report = run_one(&mut scenario, args).with_context(name)?;
        if !args.json {
            if !reports.is_empty() {
                say("");
            }
            describe(&scenario, &report);
        }
        reports.push(report);
    }
    let missed = reports.iter().filter(|report| !report.all_held()).count();
    match (args.json, reports.as_slice()) {
        (false, _) => {}
        (true, [report]) if !has_axes => say_json(report)?,
        (true, _) => say_json(&Reports { reports })?,
    }
    Ok(match missed {
        0 => Outcome::Good,
        _ => Outcome::Problem(format!(
            "{}: what was expected of {missed} of its scenarios was not held",
            name()
        )),
    })
}

fn run_one(scenario: &mut Scenario, args: &ScenarioArgs) -> anyhow::Result<Report> {
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    if let Some(policy) = args.policy {
        let volume = scenario.volume.as_mut();
        let volume = volume.context("--policy is for a [volume], and this scenario has a [device]")?;
        volume.policy = policy;
    }
    let mut line = Progress::new(scenario.name.clone(), args.json);
    let folder = args.file.parent().unwrap_or(Path::new(""));
    let report = bimetal_sim::scenario::run(scenario, folder, &mut |phase, share| {
        line.at(&match share {
            Some(share) => format!("{phase} {:.0} %", share * 100.0),
            None => phase.to_owned(),
        });
    })?;
    Ok(report)
}

fn describe(scenario: &Scenario, report: &Report) {
    let trace = report.trace_bytes.map(|bytes| format!(", a trace that touches {}", size::show(bytes)));
    let trace = trace.unwrap_or_default();
    say(&format!("{}: {}{trace}, seed {}", report.scenario, size::show(report.size_bytes), report.seed));
    if !scenario.about.is_empty() {
        say(scenario.about.trim());
    }
    for (setting, value) in scenario.tuning.all() {
        let (value, default) = (tuning::show(setting, value), tuning::show(setting, setting.default()));
        say(&format!("{} = {value} is set; the default is {default}", setting.name));
    }
    say(
        "\nphase                        seconds       MB/s  worst s       IOPS    mean us     p50 us     p99 us     max us  fast   moved up      down  destaged    copied  written  wakes",
    );
    for phase in &report.phases {
        say(&row(phase));
        for (load, number) in phase.loads.iter().zip(1..) {
            let Some(Responses { mean_us, p50_us, p99_us, max_us, .. }) = load.responses else { continue };
            say(&format!(
                "    load {number}: {:.2} MB/s, {:.1} IOPS: mean {mean_us:.0} us, p50 {p50_us:.0}, p99 {p99_us:.0}, max {max_us:.0}",
                load.mb_per_s, load.iops
            ));
        }
        describe_replay(phase);
    }
    say("");
    for device in &report.devices {
        say(&format!(
            "{}: busy for {:.0} s, {} read, {} written, {} flushes",
            device.name,
            device.busy_seconds,
            size::show(device.read_bytes),
            size::show(device.written_bytes),
            device.flushes
        ));
    }
    for expectation in &report.expectations {
        let value = expectation.value.map_or("nothing".to_owned(), |value| format!("{value:.2}"));
        let held = if expectation.held { "held" } else { "NOT HELD" };
        say(&format!("expected {}: {value}, {held}", expectation.what));
    }
    say(&format!("event hash {}", report.event_hash));
}

/// What became of a trace: reads and writes apart, and what was not done as it was recorded.
fn describe_replay(phase: &Phase) {
    let Some(replay) = phase.replay else { return };
    for (what, responses) in [("reads", phase.reads), ("writes", phase.writes)] {
        if let Some(Responses { count, mean_us, p50_us, p99_us, max_us }) = responses {
            say(&format!(
                "    {count} {what}: mean {mean_us:.0} us, p50 {p50_us:.0}, p99 {p99_us:.0}, max {max_us:.0}"
            ));
        }
    }
    if let Some(late) = phase.late.filter(|late| late.count > 0) {
        let (mean, max) = (late.mean_us, late.max_us);
        say(&format!(
            "    {} waited for others to end before they were submitted: {mean:.0} us on average, {max:.0} at most",
            late.count
        ));
    }
    let changed = [
        (phase.flushes, "flushes"),
        (phase.discards, "discards"),
        (replay.split, "split"),
        (replay.wrapped, "wrapped"),
        (replay.clipped, "discards clipped"),
        (replay.left_out, "left out"),
        (replay.malformed, "malformed lines"),
    ];
    let changed = changed.into_iter().filter(|(count, _)| *count > 0);
    let changed = changed.map(|(count, what)| format!(", {count} {what}")).collect::<String>();
    say(&format!("    {} records{changed}", replay.records));
}

fn row(phase: &Phase) -> String {
    let share = phase.fast_share.map_or("-".to_owned(), |share| format!("{:.0}%", share * 100.0));
    let written = phase.fast_written;
    let moved = |bytes: u64| if bytes == 0 { "-".to_owned() } else { size::show(bytes) };
    let wakes =
        phase.wakeups.get(1).map_or("-".to_owned(), |slow| (slow.clients + slow.background).to_string());
    format!(
        "{:<26} {:>9.1} {:>10.2} {:>8} {:>10.1} {:>10.0} {:>10.0} {:>10.0} {:>10.0} {:>5} {:>10} {:>9} {:>9} {:>9} {:>8} {:>6}",
        phase.name,
        phase.seconds,
        phase.mb_per_s,
        phase.worst_second_mb_per_s.map_or("-".to_owned(), |worst| format!("{worst:.2}")),
        phase.iops,
        phase.mean_us,
        phase.p50_us,
        phase.p99_us,
        phase.max_us,
        share,
        moved(phase.promoted_bytes),
        moved(phase.demoted_bytes),
        moved(phase.destaged_bytes),
        moved(written.and_then(|written| written.by).map_or(0, |by| by.copies_bytes)),
        written.and_then(|written| written.per_byte).map_or("-".to_owned(), |times| format!("{times:.2}x")),
        wakes,
    )
}
