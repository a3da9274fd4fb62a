//! `bimetal lab quick` and `bimetal lab compare`

mod args;
mod measure;

pub(crate) use args::{CompareArgs, QuickArgs};

use super::report::{judge, keep_with, look_ahead, outcome};
use super::stop::Stop;
use super::turns::in_turns;
use crate::progress::Progress;
use crate::{Outcome, say, say_json};
use bimetal_lab::classic::quick::{
    self, Compared, Figure, MEASURED_ONCE, Peer, QuickPlan, Verdict, comparison_page, page, text,
};
use bimetal_lab::record::Run;
use bimetal_lab::stats::Ratio;
use measure::{Measured, Scratch, measure};
use serde::Serialize;

/// What `lab quick --json` prints.
#[derive(Serialize)]
struct QuickDoc<'d> {
    target: String,
    span_bytes: u64,
    figures: &'d [Figure],
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

/// What `lab compare --json` prints.
#[derive(Serialize)]
struct CompareDoc<'d> {
    a: String,
    b: String,
    rounds: u32,
    figures: Vec<FindingDoc<'d>>,
    sentence: &'d str,
}

#[derive(Serialize)]
struct FindingDoc<'d> {
    figure: &'d str,
    metric: &'static str,
    differs: Option<bool>,
    ratio: Option<&'d Ratio>,
    problem: Option<String>,
}

pub(crate) fn run(args: &QuickArgs) -> anyhow::Result<Outcome> {
    look_ahead(&args.output, Some(&args.target))?;
    let stop = Stop::new();
    let scratch = Scratch::new(&args.target)?;
    let quiet = args.output.json;
    let Measured { figures, mut run, plan } = measure(&args.how, &scratch, args.how.seed, quiet, &stop, "")?;
    let peers = if run.interrupted { Vec::new() } else { models(&plan, quiet, &stop)? };
    let verdict = Verdict::new(&figures, &peers);
    run.notes.splice(0..0, verdict.sentences.iter().cloned());
    let steady = judge(&args.output, &mut run);
    let target = args.target.to_string();
    match quiet {
        true => say_json(&QuickDoc {
            target: target.clone(),
            span_bytes: plan.span_bytes,
            figures: &figures,
            verdict: &verdict,
            models: &peers,
            measured_once: MEASURED_ONCE.map(|(name, mb_per_s)| OnceDoc { name, mb_per_s }).into(),
            run: &run,
        })?,
        false => {
            say(&run.title);
            say(&text(&figures, &peers));
            run.notes.iter().chain(&steady).for_each(|line| say(line));
        }
    }
    // Behind what is printed: a file that cannot be written loses no run.
    keep_with(&args.output, &run, &page(&target, &figures, &peers, &verdict))?;
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
    targets.iter().try_for_each(|target| look_ahead(&args.output, Some(target)))?;
    let (stop, quiet) = (Stop::new(), args.output.json);
    let scratch = [Scratch::new(&args.a)?, Scratch::new(&args.b)?];
    let ran = in_turns(args.rounds, |which, round, what| {
        let what = format!("{what}, {}: ", targets[which]);
        let seed = args.how.seed.wrapping_add(u64::from(round));
        Ok(measure(&args.how, &scratch[which], seed, quiet, &stop, &what)?.run)
    })?;
    let names = match args.a == args.b {
        true => ["A", "B"].map(str::to_owned),
        false => [args.a.to_string(), args.b.to_string()],
    };
    let names = [names[0].as_str(), names[1].as_str()];
    let compared = quick::compare(&ran[0], &ran[1], names);
    match quiet {
        true => say_json(&document(args, &compared))?,
        false => {
            say(bimetal_lab::report::findings_text(&compared.findings, names[0], names[1]).trim_end());
            say("");
            say(&compared.sentence);
        }
    }
    let outcome = outcome(&ran.concat());
    let [_, b] = ran;
    if let Some(mut last) = b.into_iter().next_back() {
        last.notes.push(compared.sentence.clone());
        keep_with(&args.output, &last, &comparison_page(&compared, names))?;
    }
    Ok(outcome)
}

fn document<'d>(args: &CompareArgs, compared: &'d Compared) -> CompareDoc<'d> {
    let figures = compared.findings.iter().map(|finding| FindingDoc {
        figure: &finding.job,
        metric: finding.metric.name(),
        differs: finding.ratio.as_ref().ok().map(Ratio::differs),
        ratio: finding.ratio.as_ref().ok(),
        problem: finding.ratio.as_ref().err().map(ToString::to_string),
    });
    CompareDoc {
        a: args.a.to_string(),
        b: args.b.to_string(),
        rounds: args.rounds,
        figures: figures.collect(),
        sentence: &compared.sentence,
    }
}
