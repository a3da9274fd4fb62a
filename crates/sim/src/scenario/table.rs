//! The same scenario under several policies, side by side with what was measured.

use super::figures::judge;
use super::{ClaimSpec, Policy, Report, Scenario, ScenarioError, run};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// How far the table has come: under which policy, in which phase, and its share that is done where that is known.
pub type TableProgress<'p> = &'p mut dyn FnMut(Policy, &str, Option<f64>);

/// A claim, and what came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The claim.
    pub claim: String,
    /// The scenario.
    pub scenario: String,
    /// The phase.
    pub phase: String,
    /// The figure.
    pub metric: String,
    /// What it is counted in.
    pub unit: &'static str,
    /// What was measured elsewhere; of a range, the better end.
    pub reference: Option<f64>,
    /// The worse end of a range.
    pub reference_worst: Option<f64>,
    /// What is claimed of ours, in words.
    pub claimed: String,
    /// What came of our engine.
    pub ours: Option<f64>,
    /// The best that anybody could do; none where it is not known.
    pub ceiling: Option<f64>,
    /// What came of the others; none where they cannot do what the scenario asks for.
    pub policies: BTreeMap<&'static str, Option<f64>>,
    /// Whether ours is what is claimed.
    pub held: bool,
}

/// The rows of a scenario's claims. Our engine always runs; each other policy runs once, on devices of its own.
pub fn rows(
    scenario: &Scenario,
    folder: &Path,
    policies: &[Policy],
    progress: TableProgress<'_>,
) -> Result<Vec<Row>, ScenarioError> {
    let mut run_under = |policy: Policy| -> Result<Option<Report>, ScenarioError> {
        let mut scenario = scenario.clone();
        let reopened = scenario.phases.iter().any(|phase| phase.reopen.is_some());
        match &mut scenario.volume {
            _ if policy == Policy::Bimetal => {}
            // A device alone knows no policies, and the others cannot be opened again.
            None => return Ok(None),
            Some(_) if reopened => return Ok(None),
            Some(volume) => volume.policy = policy,
        }
        run(&scenario, folder, &mut |phase, share| progress(policy, phase, share)).map(Some)
    };
    let ours = run_under(Policy::Bimetal)?;
    let mut others = Vec::new();
    for &policy in policies.iter().filter(|&&policy| policy != Policy::Bimetal) {
        others.push((policy.name(), run_under(policy)?));
    }
    Ok(scenario.claims.iter().map(|claim| row(scenario, claim, ours.as_ref(), &others)).collect())
}

fn row(
    scenario: &Scenario,
    claim: &ClaimSpec,
    ours: Option<&Report>,
    others: &[(&'static str, Option<Report>)],
) -> Row {
    let expected = claim.expected();
    let judged = |report: &Report| judge(&expected, &report.phases);
    let ours = ours.map(judged);
    let value = |report: &Option<Report>| report.as_ref().and_then(|report| judged(report).value);
    Row {
        claim: claim.id.clone(),
        scenario: scenario.name.clone(),
        phase: claim.phase.clone(),
        metric: claim.metric.clone(),
        unit: unit(&claim.metric),
        reference: claim.reference,
        reference_worst: claim.reference_worst,
        claimed: claimed(claim),
        ours: ours.as_ref().and_then(|ours| ours.value),
        ceiling: None,
        policies: others.iter().map(|(name, report)| (*name, value(report))).collect(),
        held: ours.is_some_and(|ours| ours.held),
    }
}

fn claimed(claim: &ClaimSpec) -> String {
    match (claim.at_least, claim.at_most) {
        (Some(least), Some(most)) => format!("{least} to {most}"),
        (Some(least), None) => format!("at least {least}"),
        (None, most) => format!("at most {}", most.unwrap_or_default()),
    }
}

/// What a figure is counted in, by its name.
fn unit(metric: &str) -> &'static str {
    let units =
        [("mb_per_s", "MB/s"), ("iops", "IOPS"), ("_us", "us"), ("seconds", "s"), ("_bytes", "bytes")];
    let known = units.iter().find(|(ending, _)| metric.ends_with(ending));
    known.map_or(if metric == "fast_share" { "share" } else { "count" }, |&(_, unit)| unit)
}
