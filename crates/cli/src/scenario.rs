//! `bimetal sim run`

use crate::args::ScenarioArgs;
use crate::calibrate::read;
use crate::progress::Progress;
use crate::{Outcome, say, say_json, size};
use anyhow::Context as _;
use bimetal_sim::scenario::{MAX_FILE_BYTES, Phase, Report, Scenario};

pub(crate) fn run(args: &ScenarioArgs) -> anyhow::Result<Outcome> {
    let name = || args.file.display().to_string();
    let text = read(&args.file, MAX_FILE_BYTES)?;
    let mut scenario = Scenario::parse(&text).with_context(name)?;
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    let mut line = Progress::new(scenario.name.clone(), args.json);
    let report = bimetal_sim::scenario::run(&scenario, &mut |phase, share| {
        line.at(&match share {
            Some(share) => format!("{phase} {:.0} %", share * 100.0),
            None => phase.to_owned(),
        });
    })
    .with_context(name)?;
    drop(line);
    if args.json {
        say_json(&report)?;
    } else {
        describe(&scenario, &report);
    }
    Ok(if report.all_held() { Outcome::Good } else { Outcome::Problem })
}

fn describe(scenario: &Scenario, report: &Report) {
    say(&format!("{}: {}, seed {}", report.scenario, size::show(report.size_bytes), report.seed));
    if !scenario.about.is_empty() {
        say(scenario.about.trim());
    }
    say(
        "\nphase                        seconds       MB/s       IOPS     p50 us     p99 us     max us  fast   moved up      down  destaged",
    );
    report.phases.iter().for_each(|phase| say(&row(phase)));
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

fn row(phase: &Phase) -> String {
    let share = phase.fast_share.map_or("-".to_owned(), |share| format!("{:.0}%", share * 100.0));
    let moved = |bytes: u64| if bytes == 0 { "-".to_owned() } else { size::show(bytes) };
    format!(
        "{:<26} {:>9.1} {:>10.2} {:>10.1} {:>10.0} {:>10.0} {:>10.0} {:>5} {:>10} {:>9} {:>9}",
        phase.name,
        phase.seconds,
        phase.mb_per_s,
        phase.iops,
        phase.p50_us,
        phase.p99_us,
        phase.max_us,
        share,
        moved(phase.promoted_bytes),
        moved(phase.demoted_bytes),
        moved(phase.destaged_bytes),
    )
}
