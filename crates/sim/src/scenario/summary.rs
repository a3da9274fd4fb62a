//! What a claim comes to over all values of an axis: how many times better ours is than each other policy.

use super::table::best;
use super::{Against, ClaimSpec, Combination, Policy, Row, Scenario, SummarySpec};
use serde::Serialize;
use std::collections::BTreeMap;

/// The most that one scenario counts for: a policy that cannot do a thing at all does not decide the mean alone.
pub const MOST_TIMES: f64 = 10.0;

/// What a claim comes to over all values of an axis.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// What it is called.
    pub summary: String,
    /// The figure.
    pub metric: String,
    /// The axis that it is over, ...
    pub over: String,
    /// ... how many scenarios there are along it, ...
    pub scenarios: usize,
    /// ... and the values on the others.
    pub of: BTreeMap<String, String>,
    /// How many times better ours is than each, the geometric mean of at most [`MOST_TIMES`] each; none where one has
    /// no figure.
    pub geometric_mean: BTreeMap<&'static str, Option<f64>>,
    /// The least of these: against the best single other policy.
    pub least: Option<f64>,
    /// The same against the ceiling; none where one scenario has none.
    pub ceiling: Option<f64>,
    /// The worst of all against the best other policy.
    pub worst_of_best: Option<Worst>,
    /// The worst of all against leaving everything where it is.
    pub worst_of_static: Option<Worst>,
    /// What is claimed of `least` or of `ceiling`, in words; none where nothing is.
    pub claimed: Option<String>,
    /// Whether it is so; none where nothing is claimed.
    pub held: Option<bool>,
}

/// Where ours does worst.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Worst {
    /// In this scenario,
    pub scenario: String,
    /// against this policy,
    pub policy: &'static str,
    /// it is so many times better.
    pub times: f64,
}

/// A row, and what it belongs to.
struct Entry<'a> {
    spec: &'a SummarySpec,
    claim: &'a ClaimSpec,
    row: &'a Row,
}

/// Which summary of the file, and where on the other axes.
type Key = (usize, Combination);

/// The summaries of the scenarios of one file, each with the rows of its claims.
pub fn summaries(ran: &[(Scenario, Vec<Row>)]) -> Vec<Summary> {
    // In the order of the file.
    let mut groups: Vec<(Key, Vec<Entry<'_>>)> = Vec::new();
    for (scenario, rows) in ran {
        for (place, spec) in scenario.summaries.iter().enumerate() {
            let claim = scenario.claims.iter().find(|claim| claim.id == spec.claim);
            let row = rows.iter().find(|row| row.claim == spec.claim);
            let (Some(claim), Some(row)) = (claim, row) else { continue };
            let mut others = scenario.combination.clone();
            others.retain(|(axis, _)| *axis != spec.over);
            let (key, entry) = ((place, others), Entry { spec, claim, row });
            match groups.iter_mut().find(|(known, _)| *known == key) {
                Some((_, entries)) => entries.push(entry),
                None => groups.push((key, vec![entry])),
            }
        }
    }
    groups.into_iter().filter_map(|((_, of), entries)| summary(of, &entries)).collect()
}

/// None where there is nothing to say: what is only held against the ceiling is told of where that is claimed.
fn summary(of: Combination, entries: &[Entry<'_>]) -> Option<Summary> {
    let Entry { spec, claim, row } = entries.first()?;
    let less_is_better = claim.less_is_better();
    let against = |row: &Row, value: Option<f64>| Some(times(row.ours?, value?, less_is_better));
    let mean = |figure: &dyn Fn(&Row) -> Option<f64>| {
        let all = entries.iter().map(|entry| against(entry.row, figure(entry.row)));
        all.collect::<Option<Vec<f64>>>().map(|all| geometric_mean(&all))
    };
    let beside = |name: &&'static str| (*name, mean(&|row| row.policies.get(name).copied().flatten()));
    let geometric_mean: BTreeMap<_, _> = row.policies.keys().map(beside).collect();
    let ceiling = mean(&|row| row.ceiling);
    let least = geometric_mean.values().copied().flatten().min_by(f64::total_cmp);
    let worst = |rival: &dyn Fn(&Row) -> Option<(&'static str, f64)>| {
        let all = entries.iter().filter_map(|entry| {
            let (policy, value) = rival(entry.row)?;
            let times = against(entry.row, Some(value))?;
            Some(Worst { scenario: entry.row.scenario.clone(), policy, times })
        });
        all.min_by(|one, other| one.times.total_cmp(&other.times))
    };
    let bound = spec.at_least.filter(|_| spec.claims_at(&of));
    if spec.against == Against::Ceiling && bound.is_none() {
        return None;
    }
    let left_alone = Policy::Static.name();
    Some(Summary {
        summary: spec.id.clone(),
        metric: claim.metric.clone(),
        over: spec.over.clone(),
        scenarios: entries.len(),
        of: of.into_iter().collect(),
        worst_of_best: worst(&|row| best(&row.policies, less_is_better)),
        worst_of_static: worst(&|row| Some((left_alone, row.policies.get(left_alone).copied()??))),
        geometric_mean,
        least,
        ceiling,
        claimed: bound.map(|bound| match spec.against {
            Against::Best => format!("at least {bound} times the best single other"),
            Against::Ceiling => format!("at least {bound} times the ceiling"),
        }),
        held: bound.map(|bound| match spec.against {
            Against::Best => least.is_some_and(|least| least >= bound),
            Against::Ceiling => ceiling.is_some_and(|ceiling| ceiling >= bound),
        }),
    })
}

/// How many times better ours is than theirs, at most [`MOST_TIMES`].
fn times(ours: f64, theirs: f64, less_is_better: bool) -> f64 {
    let (better, worse) = if less_is_better { (theirs, ours) } else { (ours, theirs) };
    match better == worse {
        true => 1.0,
        false => (better / worse).min(MOST_TIMES),
    }
}

fn geometric_mean(all: &[f64]) -> f64 {
    (all.iter().map(|one| one.ln()).sum::<f64>() / all.len().max(1) as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_geometric_mean_is_of_capped_ratios() {
        assert_eq!(times(2.0, 6.0, true), 3.0);
        assert_eq!(times(2.0, 6.0, false), 1.0 / 3.0);
        assert_eq!(times(1.0, 1000.0, true), MOST_TIMES);
        assert_eq!(times(0.0, 0.0, true), 1.0);
        assert_eq!(times(0.0, 5.0, true), MOST_TIMES);
        assert!((geometric_mean(&[2.0, 8.0]) - 4.0).abs() < 1e-12);
        // Half as good once and twice as good once is as good.
        assert!((geometric_mean(&[0.5, 2.0]) - 1.0).abs() < 1e-12);
    }
}
