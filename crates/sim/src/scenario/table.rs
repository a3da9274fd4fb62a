//! The same scenario under several policies, side by side with what was measured.

use super::figures::value;
use super::{ClaimSpec, Policy, Report, Rival, Scenario, ScenarioError, run};
use crate::side_by_side;
use serde::Serialize;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;

/// How far the table has come: the number of the scenario, under which policy, in which phase, and its share that is done where
/// that is known.
pub type TableProgress<'p> = &'p (dyn Fn(usize, Policy, &str, Option<f64>) + Sync);

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
    /// The best that can be said to be in reach: what our engine did when it knew [`FORESIGHTS`] of a replay ahead, what it did
    /// without that, or what leaving everything where it is did; none where nothing is replayed.
    pub ceiling: Option<f64>,
    /// What a device like the fast one did that holds everything; none where the scenario asks for more than a device.
    pub all_fast: Option<f64>,
    /// What came of the others; none where they cannot do what the scenario asks for.
    pub policies: BTreeMap<&'static str, Option<f64>>,
    /// Whether ours is what is claimed.
    pub held: bool,
}

/// These policies, those that a claim of the scenario is a multiple of, and static where there is a ceiling: that is never
/// below doing nothing.
pub fn needed(scenario: &Scenario, policies: &[Policy]) -> Vec<Policy> {
    let mut needed = policies.to_vec();
    let claimed = scenario.claims.iter().filter_map(|claim| match claim.of {
        Some(Rival::Policy(policy)) => Some(policy),
        _ => None,
    });
    for policy in claimed.chain(replays(scenario).then_some(Policy::Static)) {
        if !needed.contains(&policy) {
            needed.push(policy);
        }
    }
    needed
}

fn replays(scenario: &Scenario) -> bool {
    scenario.phases.iter().any(|phase| phase.replay.is_some())
}

/// One run of a scenario, on devices of its own.
#[derive(Clone, Copy)]
enum Run {
    /// Under our engine and, where the volume is small enough, on a device like the fast one that holds everything.
    Ours,
    /// Under our engine, which knows this share of a replay ahead.
    KnownAhead(f64),
    /// Under another policy.
    Other(Policy),
}

/// What came of the runs of a scenario.
#[derive(Default)]
struct Reports {
    ours: Option<Report>,
    others: BTreeMap<&'static str, Option<Report>>,
    all_fast: Option<Report>,
    /// Of ours, one for each foresight.
    known_ahead: Vec<Report>,
}

/// The rows of the claims of each scenario, whose paths begin at the folder beside it. Our engine always runs; each other
/// policy, and each that a claim is a multiple of, runs once. So many threads share the runs.
///
/// # Errors
///
/// The number of the scenario of which a run failed, and why. No run begins after it.
pub fn rows(
    scenarios: &[(&Path, &Scenario)],
    policies: &[Policy],
    threads: NonZeroUsize,
    progress: TableProgress<'_>,
) -> Result<Vec<Vec<Row>>, (usize, ScenarioError)> {
    let runs = scenarios.iter().enumerate();
    let runs =
        runs.flat_map(|(number, (_, it))| runs_of(it, policies).into_iter().map(move |run| (number, run)));
    let runs: Vec<(usize, Run)> = runs.collect();
    let ran = side_by_side(
        &runs,
        threads,
        |_| {},
        |&(number, run)| {
            let (folder, scenario) = scenarios[number];
            let mut say = |policy, phase: &str, share| progress(number, policy, phase, share);
            carry_out(run, scenario, folder, &mut say).map_err(|error| (number, error))
        },
    )?;
    let mut found: Vec<Reports> = scenarios.iter().map(|_| Reports::default()).collect();
    for ((number, run), reports) in runs.into_iter().zip(ran) {
        add_to(&mut found[number], run, reports);
    }
    let of = scenarios.iter().zip(&found);
    Ok(of.map(|((_, it), found)| it.claims.iter().map(|claim| row(it, claim, found)).collect()).collect())
}

fn runs_of(scenario: &Scenario, policies: &[Policy]) -> Vec<Run> {
    let mut runs = vec![Run::Ours];
    if replays(scenario) {
        runs.extend(FORESIGHTS.map(Run::KnownAhead));
    }
    let others = needed(scenario, policies).into_iter().filter(|&policy| policy != Policy::Bimetal);
    runs.extend(others.map(Run::Other));
    runs
}

/// What came of a run, and of all-fast beside ours.
fn carry_out(
    what: Run,
    scenario: &Scenario,
    folder: &Path,
    progress: &mut dyn FnMut(Policy, &str, Option<f64>),
) -> Result<[Option<Report>; 2], ScenarioError> {
    let mut under = |policy: Policy, foresight: Option<f64>| -> Result<Option<Report>, ScenarioError> {
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
    let first = match what {
        Run::Ours => under(Policy::Bimetal, None)?,
        Run::KnownAhead(share) => under(Policy::Clairvoyant, Some(share))?,
        Run::Other(policy) => under(policy, None)?,
    };
    // A model of an SSD remembers each of its pages.
    let is_small = first.as_ref().is_some_and(|report| report.size_bytes <= MOST_ALL_FAST_BYTES);
    let all_fast = match what {
        Run::Ours if is_small => under(Policy::AllFast, None)?,
        _ => None,
    };
    Ok([first, all_fast])
}

fn add_to(reports: &mut Reports, run: Run, [first, all_fast]: [Option<Report>; 2]) {
    match run {
        Run::Ours => (reports.ours, reports.all_fast) = (first, all_fast),
        Run::KnownAhead(_) => reports.known_ahead.extend(first),
        Run::Other(policy) => _ = reports.others.insert(policy.name(), first),
    }
}

fn row(scenario: &Scenario, claim: &ClaimSpec, reports: &Reports) -> Row {
    let Reports { ours, others, all_fast, known_ahead } = reports;
    let expected = claim.expected();
    let of = |report: Option<&Report>| report.and_then(|report| value(&expected, &report.phases));
    let ours = of(ours.as_ref());
    let replayed =
        scenario.phases.iter().any(|p| p.replay.is_some() && p.rows().any(|row| row == claim.phase));
    let left_alone = others.get(Policy::Static.name()).and_then(Option::as_ref);
    let in_reach = known_ahead.iter().chain(reports.ours.as_ref()).chain(left_alone);
    let in_reach = in_reach.filter(|_| replayed).filter_map(|report| Some(((), of(Some(report))?)));
    let ceiling = best_of(in_reach, claim.less_is_better()).map(|((), value)| value);
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
