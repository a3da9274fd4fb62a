//! `bimetal lab quick` and `bimetal lab compare`

mod args;
mod measure;

pub(crate) use args::{CompareArgs, QuickArgs};

use super::report::{judge, keep_with, look_ahead, outcome};
use super::stop::Stop;
use super::turns::{Found, in_turns, refuse_of_one};
use crate::progress::Progress;
use crate::{Outcome, say, say_record};
use bimetal_lab::classic::quick::{
    self, Figure, MEASURED_ONCE, Mark, Peer, QuickPlan, Verdict, marks_text, page, text,
};
use bimetal_lab::record::Run;
use bimetal_lab::report::{Origin, findings_text};
use measure::{Measured, Scratch, measure};
use serde::Serialize;

/// What `lab quick --json` prints.
#[derive(Serialize)]
struct QuickDoc<'d> {
    target: String,
    span_bytes: u64,
    figures: &'d [Figure],
    /// MB/s of 10^6 bytes, as CrystalDiskMark has them.
    crystal_disk_mark: &'d [Mark],
    verdict: &'d Verdict,
    models: &'d [Peer],
    measured_once: Vec<OnceDoc>,
    run: &'d Run,
}

/// A drive that was measured with Xbench: MB/s.
#[derive(Serialize)]
struct OnceDoc {
    name: &'static str,
    mb_per_s: [f64; 8],
}

pub(crate) fn run(args: &QuickArgs) -> anyhow::Result<Outcome> {
    look_ahead(&args.output, Some(&args.target))?;
    let stop = Stop::new();
    let scratch = Scratch::new(&args.target)?;
    let quiet = args.output.json;
    let measured = measure(&args.how, &scratch, args.how.seed, true, quiet, &stop, "")?;
    let Measured { found, mut run, plan } = measured;
    let peers = if run.interrupted { Vec::new() } else { models(&plan, quiet, &stop)? };
    let verdict = Verdict::new(&found.figures, &peers);
    run.notes.splice(0..0, verdict.sentences.iter().cloned());
    let steady = judge(&args.output, &mut run);
    let target = args.target.to_string();
    match quiet {
        true => say_record(&QuickDoc {
            target: target.clone(),
            span_bytes: plan.span_bytes,
            figures: &found.figures,
            crystal_disk_mark: &found.marks,
            verdict: &verdict,
            models: &peers,
            measured_once: MEASURED_ONCE.map(|(name, mb_per_s)| OnceDoc { name, mb_per_s }).into(),
            run: &run,
        })?,
        false => {
            say(&run.title);
            say(&text(&found.figures, &peers));
            if !found.marks.is_empty() {
                say(&marks_text(&found.marks));
            }
            run.notes.iter().chain(&steady).for_each(|line| say(line));
        }
    }
    // Behind what is printed: a file that cannot be written loses no run.
    let origin = if run.virtual_time { Origin::Modelled } else { Origin::Measured };
    keep_with(&args.output, &run, &page(&target, origin, &found, &peers, &verdict))?;
    Ok(outcome(&[run]))
}

/// The same test on the models.
fn models(plan: &QuickPlan, quiet: bool, stop: &Stop) -> anyhow::Result<Vec<Peer>> {
    let mut progress = Progress::new("the same on modelled drives".to_owned(), quiet);
    Ok(quick::peers(plan, &mut |name| {
        progress.at(name);
        !stop.is_asked_for()
    })?)
}

pub(crate) fn compare(args: &CompareArgs) -> anyhow::Result<Outcome> {
    let targets = [&args.a, &args.b];
    refuse_of_one(&args.output)?;
    targets.iter().try_for_each(|target| look_ahead(&args.output, Some(target)))?;
    let (stop, quiet) = (Stop::new(), args.output.json);
    // What is wrong with B is said before A is measured.
    targets.iter().try_for_each(|target| Scratch::new(target).map(drop))?;
    let turns = in_turns(args.rounds, |which, round, what| {
        let what = format!("{what}, {}: ", targets[which]);
        let seed = args.how.seed.wrapping_add(u64::from(round));
        // In a directory a new file each time: where a file happens to lie is chance, and would look like a difference.
        let scratch = Scratch::new(targets[which])?;
        Ok(measure(&args.how, &scratch, seed, false, quiet, &stop, &what)?.run)
    })?;
    let names = match args.a == args.b {
        true => ["A", "B"].map(str::to_owned),
        false => [args.a.to_string(), args.b.to_string()],
    };
    let names = [names[0].as_str(), names[1].as_str()];
    let compared = quick::compare(&turns.ran[0], &turns.ran[1], names);
    let found = Found {
        names,
        findings: &compared.findings,
        together: compared.together.as_deref(),
        sentence: Some(&compared.sentence),
    };
    match quiet {
        true => found.say_json(&turns)?,
        false => {
            say(findings_text(&compared.findings, names[0], names[1]).trim_end());
            say("");
            turns.cut.iter().for_each(|line| say(line));
            say(&compared.sentence);
        }
    }
    found.keep(&args.output, &turns)?;
    Ok(outcome(&turns.ran.concat()))
}
