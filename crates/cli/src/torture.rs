//! `bimetal sim torture`

use crate::args::TortureArgs;
use crate::threads::threads;
use crate::{Outcome, complain, say, say_json};
use bimetal_torture::{Options, Report, main_loop};

pub(crate) fn run(args: &TortureArgs) -> anyhow::Result<Outcome> {
    let threads = Some(threads(args.threads)?.get());
    let options = Options { seeds: Some(args.seeds), seed: args.seed, threads, ..Options::default() };
    let report = main_loop(&options, &complain);
    if args.json {
        say_json(&report)?;
    } else {
        describe(&report);
    }
    Ok(match report.violations {
        0 => Outcome::Good,
        violations => Outcome::Problem(format!("{violations} violations of the promise")),
    })
}

fn describe(report: &Report) {
    let faults: Vec<String> = report.faults.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    say(&format!(
        "{} seeds, {} crash-and-recover cycles, {} operations, {} violations, {:.1} s, event hash {}\nfaults: {}",
        report.seeds,
        report.cycles,
        report.operations,
        report.violations,
        report.seconds,
        report.event_hash,
        faults.join(", ")
    ));
    if report.unseen.is_empty() {
        say("every stage met every fault");
    } else {
        say(&format!("{} crossings of a stage and a fault were not seen:", report.unseen.len()));
        report.unseen.iter().for_each(|crossing| say(&format!("  {crossing}")));
    }
}
