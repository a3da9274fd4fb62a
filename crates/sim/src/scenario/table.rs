//! The same scenario under several policies, side by side with what was measured.

use super::figures::value;
use super::{ClaimSpec, Policy, Report, Rival, Scenario, ScenarioError, run};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// How far the table has come: under which policy, in which phase, and its share that is done where that is known.
pub type TableProgress<'p> = &'p mut dyn FnMut(Policy, &str, Option<f64>);

/// The largest volume for which a device like the fast one is made that holds all of it, bytes.
const MOST_ALL_FAST_BYTES: u64 = 128 << 30;

/// How much of a replay placement may know ahead for the ceiling: less than all, since a chunk that is used a few times in the
/// far future is not to push out what is used now.
pub const FORESIGHTS: [f64; 3] = [1.0 / 4.0, 1.0 / 16.0, 1.0 / 64.0];

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
    /// The load alone that it is of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<usize>,
    /// The phase whose figure it is more than.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minus: Option<String>,
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
    /// The best that our engine did when it knew [`FORESIGHTS`] of a replay ahead; none where nothing is replayed.
    pub ceiling: Option<f64>,
    /// What a device like the fast one did that holds everything; none where the scenario asks for more than a device.
    pub all_fast: Option<f64>,
    /// What came of the others; none where they cannot do what the scenario asks for.
    pub policies: BTreeMap<&'static str, Option<f64>>,
    /// Whether ours is what is claimed.
    pub held: bool,
}

/// These policies, and those that a claim of the scenario is a multiple of.
pub fn needed(scenario: &Scenario, policies: &[Policy]) -> Vec<Policy> {
    let mut needed = policies.to_vec();
    for claim in &scenario.claims {
        match claim.of {
            Some(Rival::Policy(policy)) if !needed.contains(&policy) => needed.push(policy),
            _ => {}
        }
    }
    needed
}

/// The rows of a scenario's claims. Our engine always runs; each other policy, and each that a claim is a multiple of,
/// runs once, on devices of its own.
pub fn rows(
    scenario: &Scenario,
    folder: &Path,
    policies: &[Policy],
    progress: TableProgress<'_>,
) -> Result<Vec<Row>, ScenarioError> {
    let mut run_under = |policy: Policy, foresight: Option<f64>| -> Result<Option<Report>, ScenarioError> {
        let mut scenario = scenario.clone();
        let reopened = scenario.phases.iter().any(|phase| phase.reopen.is_some());
        match &mut scenario.volume {
            _ if policy == Policy::Bimetal => {}
            // A device alone knows no policies, and the others cannot be opened again.
            None => return Ok(None),
            Some(_) if reopened => return Ok(None),
            Some(volume) => {
                volume.policy = policy;
                volume.foresight = foresight.unwrap_or(volume.foresight);
            }
        }
        run(&scenario, folder, &mut |phase, share| progress(policy, phase, share)).map(Some)
    };
    let ours = run_under(Policy::Bimetal, None)?;
    // A model of an SSD remembers each of its pages.
    let is_small = ours.as_ref().is_some_and(|report| report.size_bytes <= MOST_ALL_FAST_BYTES);
    let all_fast = if is_small { run_under(Policy::AllFast, None)? } else { None };
    let mut known_ahead = Vec::new();
    if scenario.phases.iter().any(|phase| phase.replay.is_some()) {
        for foresight in FORESIGHTS {
            known_ahead.extend(run_under(Policy::Clairvoyant, Some(foresight))?);
        }
    }
    let mut others = Vec::new();
    for policy in needed(scenario, policies).into_iter().filter(|&policy| policy != Policy::Bimetal) {
        others.push((policy.name(), run_under(policy, None)?));
    }
    let reports = Reports { ours, others, all_fast, known_ahead };
    Ok(scenario.claims.iter().map(|claim| row(scenario, claim, &reports)).collect())
}

/// What came of a scenario.
struct Reports {
    ours: Option<Report>,
    others: Vec<(&'static str, Option<Report>)>,
    all_fast: Option<Report>,
    /// Of ours, with one foresight after the other.
    known_ahead: Vec<Report>,
}

fn row(scenario: &Scenario, claim: &ClaimSpec, reports: &Reports) -> Row {
    let Reports { ours, others, all_fast, known_ahead } = reports;
    let expected = claim.expected();
    let of = |report: Option<&Report>| report.and_then(|report| value(&expected, &report.phases));
    let ours = of(ours.as_ref());
    let replays =
        |phase: &str| scenario.phases.iter().any(|p| p.replay.is_some() && p.rows().any(|row| row == phase));
    let known = known_ahead.iter().filter(|_| replays(&claim.phase));
    let known = known.filter_map(|report| Some(((), of(Some(report))?)));
    let ceiling = best_of(known, claim.less_is_better()).map(|((), value)| value);
    let policies = others.iter().map(|(name, report)| (*name, of(report.as_ref()))).collect();
    Row {
        claim: claim.id.clone(),
        scenario: scenario.name.clone(),
        phase: claim.phase.clone(),
        metric: claim.metric.clone(),
        load: claim.load,
        minus: claim.minus.clone(),
        unit: unit(&claim.metric),
        reference: claim.reference,
        reference_worst: claim.reference_worst,
        claimed: claimed(claim),
        ours,
        ceiling,
        all_fast: of(all_fast.as_ref()),
        held: holds(claim, ours, &policies),
        policies,
    }
}

/// Whether ours is within the bounds, which may be multiples of what came of others.
fn holds(claim: &ClaimSpec, ours: Option<f64>, others: &BTreeMap<&'static str, Option<f64>>) -> bool {
    let unit = match claim.of {
        None => Some(1.0),
        Some(Rival::Policy(policy)) => others.get(policy.name()).copied().flatten(),
        Some(Rival::Best) => best(others, claim.less_is_better()).map(|(_, value)| value),
    };
    let (Some(ours), Some(unit)) = (ours, unit) else { return false };
    claim.at_least.is_none_or(|least| ours >= least * unit)
        && claim.at_most.is_none_or(|most| ours <= most * unit)
}

/// The best of the others.
pub(super) fn best(
    others: &BTreeMap<&'static str, Option<f64>>,
    less_is_better: bool,
) -> Option<(&'static str, f64)> {
    best_of(others.iter().filter_map(|(name, value)| Some((*name, (*value)?))), less_is_better)
}

fn best_of<N>(known: impl Iterator<Item = (N, f64)>, less_is_better: bool) -> Option<(N, f64)> {
    match less_is_better {
        true => known.min_by(|one, other| one.1.total_cmp(&other.1)),
        false => known.max_by(|one, other| one.1.total_cmp(&other.1)),
    }
}

fn claimed(claim: &ClaimSpec) -> String {
    let times = match claim.of {
        None => String::new(),
        Some(Rival::Best) => " times the best other".into(),
        Some(Rival::Policy(policy)) => format!(" times {}", policy.name()),
    };
    match (claim.at_least, claim.at_most) {
        (Some(least), Some(most)) => format!("{least} to {most}{times}"),
        (Some(least), None) => format!("at least {least}{times}"),
        (None, most) => format!("at most {}{times}", most.unwrap_or_default()),
    }
}

/// What a figure is counted in, by its name.
fn unit(metric: &str) -> &'static str {
    let units =
        [("mb_per_s", "MB/s"), ("iops", "IOPS"), ("_us", "us"), ("seconds", "s"), ("_bytes", "bytes")];
    let known = units.iter().find(|(ending, _)| metric.ends_with(ending));
    known.map_or(if metric == "fast_share" { "share" } else { "count" }, |&(_, unit)| unit)
}
