//! Looking for worse, and for what makes it so.

use super::grammar::{Arrival, FOR_EVER, StreamSpec, Workload};
use super::{Bout, Metric, Rules, bout};
use crate::peers::Policy;
use crate::scenario::ScenarioError;
use bimetal_units::rng::Rng;

/// How often a workload is changed while worse is looked for.
const MUTATIONS: u32 = 60;

/// What was found from a seed on.
#[derive(Clone, Debug)]
pub struct Found {
    /// Where it began.
    pub seed: u64,
    /// Who is ahead, and by which figure.
    pub policy: Policy,
    /// See [`Found::policy`].
    pub metric: Metric,
    /// Theirs over ours: at the beginning, and of what was found.
    pub times: [f64; 2],
    /// What was found.
    pub workload: Workload,
}

impl Found {
    fn beginning(from: &Bout, policy: Policy, metric: Metric, times: f64) -> Found {
        Found { seed: from.seed, policy, metric, times: [times, times], workload: from.workload.clone() }
    }
}

/// Changes one feature after the other of the workload of a bout, and keeps what puts ours farther behind that policy.
///
/// # Errors
/// When a volume cannot be made.
pub fn climb(
    from: &Bout,
    policy: Policy,
    metric: Metric,
    rules: &Rules,
) -> Result<Option<Found>, ScenarioError> {
    let rules = Rules { others: vec![policy], ..rules.clone() };
    let Some(first) = from.times(policy, metric) else { return Ok(None) };
    let mut rng = Rng::new(from.seed, 4);
    let mut found = Found::beginning(from, policy, metric, first);
    for _ in 0..MUTATIONS {
        let changed = found.workload.mutated(&mut rng);
        let times = bout(&changed, from.seed, &rules)?.times(policy, metric);
        if let Some(times) = times.filter(|times| *times < found.times[1]) {
            (found.times[1], found.workload) = (times, changed);
        }
    }
    Ok(Some(found))
}

/// In which way ours loses.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Signature {
    policy: Policy,
    metric: Metric,
    by_reads: bool,
    stalls: bool,
}

impl Signature {
    /// By whom, and by which figure, ours is farthest behind.
    fn of(bout: &Bout) -> Option<(Signature, f64)> {
        let metrics = [Metric::Mean, Metric::P99].into_iter();
        let (metric, (policy, times)) = metrics
            .filter_map(|metric| Some((metric, bout.best(metric)?)))
            .min_by(|one, other| one.1.1.total_cmp(&other.1.1))?;
        let side = |metric| bout.times(policy, metric).unwrap_or(f64::INFINITY);
        let by_reads = side(Metric::Reads) < side(Metric::Writes);
        Some((Signature { policy, metric, by_reads, stalls: bout.ours.harm_ns > 0 }, times))
    }
}

/// Makes the workload of a bout simpler for as long as ours still loses to the same policy by the same figure, by reads or
/// by writes as before, and by at least half as much; none where ours does not lose.
///
/// # Errors
/// When a volume cannot be made.
pub fn shrink(from: &Bout, rules: &Rules) -> Result<Option<Found>, ScenarioError> {
    let Some((signature, first)) = Signature::of(from).filter(|(_, times)| *times < 1.0) else {
        return Ok(None);
    };
    let rules = Rules { others: vec![signature.policy], ..rules.clone() };
    let enough = first.sqrt();
    let mut least = Found::beginning(from, signature.policy, signature.metric, first);
    loop {
        let mut is_simpler = false;
        for simpler in simpler(&least.workload) {
            let bout = bout(&simpler, from.seed, &rules)?;
            let times = bout.times(signature.policy, signature.metric);
            let same = Signature::of(&bout).is_some_and(|(found, _)| {
                (found.by_reads, found.stalls) == (signature.by_reads, signature.stalls)
            });
            if let Some(times) = times.filter(|times| same && *times <= enough) {
                (least.times[1], least.workload) = (times, simpler);
                is_simpler = true;
                break;
            }
        }
        if !is_simpler {
            return Ok(Some(least));
        }
    }
}

/// The same with one thing simpler, each way there is; the greatest step first.
fn simpler(of: &Workload) -> Vec<Workload> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut Workload)| {
        let mut changed = of.clone();
        change(&mut changed);
        if changed != *of {
            all.push(changed);
        }
    };
    if of.streams.len() > 1 {
        (0..of.streams.len()).for_each(|at| {
            with(&|it| {
                it.streams.remove(at);
            });
        });
    }
    with(&|it| it.pauses.clear());
    with(&|it| it.flush_every = 0);
    with(&|it| it.fua_percent = 0);
    with(&|it| it.turn = 1);
    with(&|it| (it.fill_percent, it.fill_shuffled) = (100, false));
    with(&|it| it.requests = (it.requests / 2).max(1000).min(it.requests));
    with(&|it| it.arrival = Arrival::Closed { depth: 1 });
    with(&|it| {
        if let Arrival::Open { burst, .. } = &mut it.arrival {
            *burst = 1;
        }
    });
    for at in 0..of.streams.len() {
        let mut plain = |change: &dyn Fn(&mut StreamSpec)| with(&|it| change(&mut it.streams[at]));
        plain(&|it| it.weight = 1);
        plain(&|it| it.discard_percent = 0);
        plain(&|it| it.shift_sectors = 0);
        plain(&|it| it.zipf_eighths = 0);
        plain(&|it| it.clustered = false);
        plain(&|it| it.reuse_percent = 0);
        plain(&|it| it.drift_permille = 0);
        plain(&|it| it.grid_bytes = it.bytes);
        plain(&|it| it.run = if it.run == FOR_EVER { FOR_EVER } else { 1 });
        // Neither of the two is simpler than the other.
        if !matches!(of.streams[at].read_percent, 0 | 100) {
            plain(&|it| it.read_percent = 100);
            plain(&|it| it.read_percent = 0);
        }
        plain(&|it| {
            if it.discard_percent == 0 {
                (it.from_permille, it.span_permille) = (0, 1000);
            }
        });
    }
    all
}
