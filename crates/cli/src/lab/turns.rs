//! Two targets in turn, and how they compare.

use super::args::OutputArgs;
use super::report::write;
use crate::say_json;
use anyhow::bail;
use bimetal_lab::record::Run;
use bimetal_lab::report;
use bimetal_lab::stats::{Finding, Ratio};
use serde::Serialize;

/// The rounds that both had.
pub(super) struct Turns {
    /// Runs of each, as many of the one as of the other; at least one.
    pub(super) ran: [Vec<Run>; 2],
    /// What is to be said where these are fewer than were asked for.
    pub(super) cut: Option<String>,
}

/// What `--json` prints of a comparison.
#[derive(Serialize)]
struct Document<'d> {
    a: &'d str,
    b: &'d str,
    rounds: usize,
    interrupted: bool,
    figures: Vec<FindingDoc<'d>>,
    sentence: Option<&'d str>,
}

#[derive(Serialize)]
struct FindingDoc<'d> {
    figure: &'d str,
    metric: &'static str,
    /// Of all rounds: bytes or I/Os in a second, nanoseconds.
    means: Option<[f64; 2]>,
    differs: Option<bool>,
    /// Where each figure's interval is so wide that all hold the truth together.
    differs_together: Option<bool>,
    ratio: Option<&'d Ratio>,
    problem: Option<String>,
}

/// Runs both of two targets so many times; `once` is told which of them, the round, counted from 0, and that in words.
pub(super) fn in_turns(
    rounds: u32,
    mut once: impl FnMut(usize, u32, &str) -> anyhow::Result<Run>,
) -> anyhow::Result<Turns> {
    let mut ran: [Vec<Run>; 2] = Default::default();
    for round in 0..rounds {
        let what = format!("round {} of {rounds}", round + 1);
        // Who goes first changes, so that what one leaves behind meets both alike.
        for which in if round.is_multiple_of(2) { [0, 1] } else { [1, 0] } {
            let run = once(which, round, &what)?;
            if run.interrupted {
                if round == 0 {
                    bail!("interrupted in {what}: there is nothing to compare yet");
                }
                ran.iter_mut().for_each(|ran| ran.truncate(round as usize));
                let cut = format!("interrupted in {what}: this is of the {round} before");
                return Ok(Turns { ran, cut: Some(cut) });
            }
            ran[which].push(run);
        }
    }
    Ok(Turns { ran, cut: None })
}

/// Refuses what is for one run.
pub(super) fn refuse_of_one(output: &OutputArgs) -> anyhow::Result<()> {
    if output.record.is_some() || output.steady.is_some() {
        bail!("--record and --steady are for one run, and a comparison has many; leave them out");
    }
    Ok(())
}

/// What was found of targets of these names.
pub(super) struct Found<'f> {
    pub(super) names: [&'f str; 2],
    pub(super) findings: &'f [Finding],
    /// The same, in the same order, with intervals that hold together.
    pub(super) together: Option<&'f [Finding]>,
    pub(super) sentence: Option<&'f str>,
}

impl Found<'_> {
    /// Prints it as a document.
    pub(super) fn say_json(&self, turns: &Turns) -> anyhow::Result<()> {
        let differs = |finding: &Finding| finding.ratio.as_ref().ok().map(Ratio::differs);
        let figures = self.findings.iter().enumerate().map(|(at, finding)| FindingDoc {
            figure: &finding.job,
            metric: finding.metric.name(),
            means: finding.means,
            differs: differs(finding),
            differs_together: self.together.and_then(|together| differs(&together[at])),
            ratio: finding.ratio.as_ref().ok(),
            problem: finding.ratio.as_ref().err().map(ToString::to_string),
        });
        say_json(&Document {
            a: self.names[0],
            b: self.names[1],
            rounds: turns.ran[0].len(),
            interrupted: turns.cut.is_some(),
            figures: figures.collect(),
            sentence: self.sentence,
        })
    }

    /// Writes the page, where one was asked for.
    pub(super) fn keep(&self, output: &OutputArgs, turns: &Turns) -> anyhow::Result<()> {
        let Some(path) = &output.html else { return Ok(()) };
        let said: Vec<&str> = turns.cut.as_deref().into_iter().chain(self.sentence).collect();
        let said = (!said.is_empty()).then(|| said.join(". "));
        let html = report::comparison_html(
            self.findings,
            said.as_deref(),
            self.names,
            turns.ran.each_ref().map(Vec::as_slice),
        );
        write(path, output.force, html.as_bytes())
    }
}
