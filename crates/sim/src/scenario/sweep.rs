//! Sweeps: scenarios run with several values of the settings of placement, and what that changes, beside noise.
//!
//! A run differs from another of the same scenario by its seed. So each value is compared with what the scenario says itself
//! seed by seed: both see the same random choices, and what is left of the differences from seed to seed is noise.

use super::report::SetTo;
use super::{Phase, Report, Scenario, ScenarioError, TuningSpec, run};
use crate::side_by_side;
use bimetal_engine::setting::Setting;
use serde::Serialize;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Values that are tried together; none of them for what the scenario says itself.
pub type Variant = Vec<(&'static Setting, u64)>;

/// Runs of a sweep at most.
pub const MAX_RUNS: usize = 100_000;
/// A difference is beyond noise when so much of it is sure ([`sure_within`]), and it is as large a part of what is compared with.
/// Less than that nobody would notice.
const LEAST_PART: f64 = 0.01;
/// The same where all seeds give the same, so that nothing is known of noise.
const LEAST_PART_UNSURE: f64 = 0.05;
/// A replay has no seed of its own. With each seed its pauses are so much longer, seconds, a part of a disk's revolution: the arm
/// and the platter stand elsewhere when it begins, and what comes of that is noise.
const NUDGE_SECONDS: f64 = 0.0017;
/// That is done for so many seeds.
const MOST_NUDGES: u64 = 1000;

/// A figure of a phase; none where there was nothing to measure.
type Measured = fn(&Phase) -> Option<f64>;

/// What is looked at of a phase.
const FIGURES: [(&str, Measured); 5] = [
    ("mean_us", |phase| (phase.mean_us > 0.0).then_some(phase.mean_us)),
    ("p99_us", |phase| (phase.p99_us > 0.0).then_some(phase.p99_us)),
    ("fast_share", |phase| phase.fast_share),
    ("moved_bytes", |phase| {
        let copied = phase.fast_written.and_then(|written| written.by).map_or(0, |by| by.copies_bytes);
        let down = phase.demoted_bytes - phase.shadow_demoted_bytes;
        Some((phase.promoted_bytes + down + phase.destaged_bytes + copied) as f64)
    }),
    ("slow_wakeups", |phase| phase.wakeups.get(1).map(|slow| (slow.clients + slow.background) as f64)),
];

/// Names of the figures, in the order of [`Line::figures`].
pub fn figures() -> impl Iterator<Item = &'static str> {
    FIGURES.iter().map(|(name, _)| *name)
}

/// What came of a phase with some values set.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// What was set; nothing for what the scenario says itself.
    pub set: Vec<SetTo>,
    /// The scenario.
    pub scenario: String,
    /// The phase.
    pub phase: String,
    /// Its figures; none where there was nothing to measure.
    pub figures: Vec<Option<Figure>>,
}

impl Line {
    /// Figures that differ by more than noise.
    pub fn beyond_noise(&self) -> impl Iterator<Item = &Figure> {
        self.figures.iter().flatten().filter(|figure| figure.beyond_noise)
    }
}

/// A figure, over all seeds.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Its name.
    pub figure: &'static str,
    /// Its mean.
    pub mean: f64,
    /// The mean is sure within so much; none where nothing is known of noise.
    pub sure_within: Option<f64>,
    /// How many times it is what it is where nothing is set; none where that is nothing.
    pub ratio: Option<f64>,
    /// The ratio is sure within so much, seed by seed; none where nothing is known of noise.
    pub ratio_sure_within: Option<f64>,
    /// Whether it differs by more than noise.
    pub beyond_noise: bool,
    /// Of each seed.
    pub by_seed: Vec<f64>,
}

/// Runs each scenario, whose paths begin at the folder beside it, as it is and with each variant, with so many seeds from its own
/// on. So many threads share the runs; `progress` is told how many of how many have ended.
///
/// # Errors
///
/// The number of the scenario of which a run failed, and why. No run begins after it.
pub fn sweep(
    scenarios: &[(&Path, &Scenario)],
    variants: &[Variant],
    seeds: u64,
    threads: NonZeroUsize,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Vec<Line>, (usize, ScenarioError)> {
    let all: Vec<Variant> = std::iter::once(Vec::new()).chain(variants.iter().cloned()).collect();
    let runs: Vec<(usize, usize, u64)> = (0..scenarios.len())
        .flat_map(|scenario| (0..all.len()).map(move |variant| (scenario, variant)))
        .flat_map(|(scenario, variant)| (0..seeds).map(move |seed| (scenario, variant, seed)))
        .collect();
    let ended = AtomicUsize::new(0);
    let reports = side_by_side(
        &runs,
        threads,
        |_| {},
        |&(number, variant, nth)| {
            let (folder, scenario) = scenarios[number];
            let found = with(scenario, &all[variant], nth);
            let found = run(&found, folder, &mut |_, _| {}).map_err(|error| (number, error))?;
            progress(ended.fetch_add(1, Ordering::Relaxed) + 1, runs.len());
            Ok(figures_of(&found))
        },
    )?;
    let mut lines = Vec::new();
    for (number, of_scenario) in reports.chunks(all.len() * seeds as usize).enumerate() {
        let mut of_variant = of_scenario.chunks(seeds as usize);
        let Some(plain) = of_variant.next() else { continue };
        let name = &scenarios[number].1.name;
        lines.extend(lines_of(name, &Vec::new(), plain, plain));
        for (variant, found) in variants.iter().zip(of_variant) {
            lines.extend(lines_of(name, variant, found, plain));
        }
    }
    Ok(lines)
}

/// The scenario with these values, and another seed.
fn with(scenario: &Scenario, variant: &Variant, nth: u64) -> Scenario {
    let mut scenario = scenario.clone();
    scenario.seed = scenario.seed.wrapping_add(nth);
    scenario.tuning = scenario.tuning.with(variant);
    if scenario.phases.iter().any(|phase| phase.replay.is_some()) {
        let nudges = scenario.seed.wrapping_sub(1) % MOST_NUDGES;
        for seconds in scenario.phases.iter_mut().filter_map(|phase| phase.pause_seconds.as_mut()) {
            *seconds += nudges as f64 * NUDGE_SECONDS;
        }
    }
    scenario
}

/// Figures of one run: of each phase, by name.
type Found = Vec<(String, [Option<f64>; FIGURES.len()])>;

fn figures_of(report: &Report) -> Found {
    let of = |phase: &Phase| (phase.name.clone(), FIGURES.map(|(_, figure)| figure(phase)));
    report.phases.iter().map(of).collect()
}

fn lines_of(scenario: &str, variant: &Variant, found: &[Found], plain: &[Found]) -> Vec<Line> {
    let told = TuningSpec::default().with(variant).told();
    let line = |(at, (phase, _)): (usize, &(String, _))| {
        let figure = |(number, (name, _)): (usize, &(&'static str, _))| {
            let of = |runs: &[Found]| runs.iter().map(|run| run[at].1[number]).collect::<Option<Vec<f64>>>();
            Some(compare(name, of(found)?, &of(plain)?))
        };
        Line {
            set: told.clone(),
            scenario: scenario.to_owned(),
            phase: phase.clone(),
            figures: FIGURES.iter().enumerate().map(figure).collect(),
        }
    };
    found.first().into_iter().flatten().enumerate().map(line).collect()
}

/// A figure beside what it is where nothing is set, both by seed.
fn compare(figure: &'static str, by_seed: Vec<f64>, plain: &[f64]) -> Figure {
    let differences: Vec<f64> = by_seed.iter().zip(plain).map(|(one, other)| one - other).collect();
    let (mean, base, difference) = (mean(&by_seed), self::mean(plain), self::mean(&differences));
    let noise = sure_within(&differences);
    // Where nothing differs from seed to seed, that is no measure of noise, unless nothing differs at all.
    let is_known = noise.is_some_and(|noise| noise > 0.0) || difference == 0.0 && by_seed.len() > 1;
    let noise = noise.filter(|_| is_known);
    let least = if noise.is_some() { LEAST_PART } else { LEAST_PART_UNSURE };
    let is_large = difference.abs() >= least * base.abs() && difference != 0.0;
    Figure {
        figure,
        mean,
        sure_within: sure_within(&by_seed),
        ratio: (base != 0.0).then(|| mean / base),
        ratio_sure_within: noise.filter(|_| base != 0.0).map(|noise| noise / base.abs()),
        beyond_noise: is_large && noise.is_none_or(|noise| difference.abs() > noise),
        by_seed,
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Within how much the mean of so many is sure, to 99 of a hundred: Student's t times the error of the mean. None of one alone.
fn sure_within(values: &[f64]) -> Option<f64> {
    let freedom = values.len().checked_sub(1).filter(|freedom| *freedom > 0)?;
    let mean = mean(values);
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / freedom as f64;
    Some(student(freedom) * (variance / values.len() as f64).sqrt())
}

/// What Student's t of so many degrees of freedom exceeds, either way, in one case of a hundred.
fn student(freedom: usize) -> f64 {
    const OF_FEW: [f64; 9] = [63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250];
    let n = freedom as f64;
    // Beyond a few, the expansion by Cornish and Fisher around the normal distribution.
    let of_many = 2.5758 + 4.916 / n + 8.834 / n.powi(2) + 12.15 / n.powi(3);
    OF_FEW.get(freedom - 1).copied().unwrap_or(of_many)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beyond(by_seed: &[f64], plain: &[f64]) -> bool {
        compare("mean_us", by_seed.to_vec(), plain).beyond_noise
    }

    #[test]
    fn a_difference_counts_when_it_is_larger_than_what_seeds_make() {
        let plain = [100.0, 140.0, 90.0, 120.0];
        assert!(!beyond(&plain, &plain));
        assert!(beyond(&[110.0, 151.0, 99.0, 130.0], &plain), "each seed by about ten");
        assert!(!beyond(&[110.0, 141.0, 80.0, 125.0], &plain), "now more, now less");
        assert!(!beyond(&[100.5, 140.6, 90.4, 120.5], &plain), "it is sure, and nobody would notice");
        assert!(beyond(&[1.0, 1.1, 0.9, 1.0], &[0.0; 4]), "from nothing");
    }

    #[test]
    fn what_seeds_do_not_change_has_to_differ_by_more() {
        assert!(!beyond(&[104.0; 3], &[100.0; 3]));
        assert!(beyond(&[106.0; 3], &[100.0; 3]));
        let alone = compare("mean_us", vec![106.0], &[100.0]);
        assert!(alone.beyond_noise && alone.ratio_sure_within.is_none() && alone.sure_within.is_none());
    }

    #[test]
    fn confidence_is_that_of_student() {
        // The textbook's t for 99 of a hundred.
        for (freedom, t) in
            [(1, 63.657), (4, 4.604), (9, 3.250), (10, 3.169), (20, 2.845), (30, 2.750), (120, 2.617)]
        {
            assert!((student(freedom) - t).abs() < 0.002, "{freedom}: {}", student(freedom));
        }
        // Mean 2, standard deviation 1, of three.
        let within = sure_within(&[1.0, 2.0, 3.0]).expect("of three");
        assert!((within - 9.925 / 3f64.sqrt()).abs() < 1e-9, "{within}");
    }
}
