//! The knee of a load ramp: up to it, more load buys throughput, past it only latency.
//!
//! It is where the power `X^2 / R` is highest, X the throughput and R the latency: Kleinrock's power (Power and
//! Deterministic Rules of Thumb for Probabilistic Problems in Computer Communications, 1979) with an exponent of 2. Below
//! it one percent more throughput costs less than two percent more latency, above it more. It depends neither on how far
//! a ramp was driven nor on any limit: a server with one queue (M/M/1) has it at two thirds of its throughput, one
//! without chance where its two asymptotes meet. With N in flight all the time N = X R (Little), so that what is
//! compared is `X^3 / N`, in which only the throughput is measured.
//!
//! How sure it is comes from the parts that each step's time is cut into (batch means). A load may be the best as long
//! as its power is not surely lower than the highest: multiple comparisons with the best, Student's one-sided t with
//! Bonferroni's correction (Hsu, Multiple Comparisons, 1996). The highest of several is chosen for its luck as well, so
//! that drawing the parts anew (a bootstrap) is too narrow: it held the knee of 181 of 200 made ramps. From the loads
//! that may be the best, the interval goes on up to the next ones that were run.

use super::normal::student_at;
use serde::Serialize;

/// How often the interval is to hold the knee.
const LEVEL: f64 = 0.95;
/// Steps that a knee is seen in at least.
const MIN_STEPS: usize = 3;
/// A ramp has left its knee behind when its power has fallen to this share of the highest.
const FALLEN: f64 = 0.8;
/// Loads of which the higher is no more than so many times the lower are near enough.
const NEAR: f64 = 1.1;

/// A load, and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// In flight all the time.
    pub load: u32,
    /// Throughput of each part of its time, by second; parts are of the same length.
    pub rates: Vec<f64>,
    /// The mean latency, nanoseconds.
    pub latency_ns: f64,
}

impl Step {
    /// Throughput by second.
    pub fn rate(&self) -> f64 {
        mean(&self.rates)
    }

    /// The standard error of that.
    pub fn error(&self) -> f64 {
        let (mean, parts) = (self.rate(), self.rates.len() as f64);
        let squares: f64 = self.rates.iter().map(|rate| (rate - mean).powi(2)).sum();
        (squares / (parts - 1.0).max(1.0) / parts.max(1.0)).sqrt()
    }
}

/// Where the knee is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Knee {
    /// In flight.
    pub load: u32,
    /// The interval of it.
    pub load_low: u32,
    /// Its upper end.
    pub load_high: u32,
    /// Throughput there, by second.
    pub rate: f64,
    /// The interval of it.
    pub rate_low: f64,
    /// Its upper end.
    pub rate_high: f64,
    /// The mean latency there, nanoseconds.
    pub latency_ns: f64,
    /// How often such intervals hold the knee.
    pub level: f64,
}

/// What a ramp says of its knee.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    /// It has one.
    Knee(Knee),
    /// The least load is past it already.
    BelowLeast {
        /// That load.
        load: u32,
    },
    /// Throughput still rises, or it cannot be told whether it does.
    NoneUpTo {
        /// The highest load.
        load: u32,
        /// Throughput there, by second.
        rate: f64,
    },
    /// Too few steps.
    TooFew {
        /// How many there are.
        steps: usize,
    },
}

/// The knee of a ramp whose loads ascend; loads of 0 and steps in which nothing was done are no part of one.
pub fn knee(steps: &[Step]) -> Verdict {
    let steps = usable(steps);
    let Some(last) = steps.len().checked_sub(1).filter(|_| steps.len() >= MIN_STEPS) else {
        return Verdict::TooFew { steps: steps.len() };
    };
    let best = best(&steps);
    let (first_likely, last_likely) = likely(&steps, best);
    if last_likely == last {
        return Verdict::NoneUpTo { load: steps[last].load, rate: steps[last].rate() };
    }
    if last_likely == 0 && steps[0].load > 1 {
        return Verdict::BelowLeast { load: steps[0].load };
    }
    // Any load between two that were run may be better than both; those that are surely worse are left out.
    let load_low = if first_likely > 0 { steps[first_likely - 1].load + 1 } else { steps[0].load };
    let load_high = steps[last_likely + 1].load - 1;
    let error = |step: &Step| student_at((1.0 + LEVEL) / 2.0, freedom(step)) * step.error();
    let around = &steps[first_likely.saturating_sub(1)..=last_likely + 1];
    let worst = around.iter().map(|step| error(step)).fold(0.0, f64::max);
    let (a, b) = (rate_at(&steps, load_low), rate_at(&steps, load_high));
    let rate = steps[best].rate();
    // Past the knee throughput may fall.
    let (rate_low, rate_high) = (a.min(b).min(rate) - worst, a.max(b).max(rate) + worst);
    let latency_ns = steps[best].latency_ns;
    Verdict::Knee(Knee {
        load: steps[best].load,
        load_low,
        load_high,
        rate,
        rate_low,
        rate_high,
        latency_ns,
        level: LEVEL,
    })
}

/// The load to run next so that the knee is bracketed closely; none where it is, or where `most` is too little for it.
pub fn next_load(steps: &[Step], most: u32) -> Option<u32> {
    let steps = usable(steps);
    let Some(last) = steps.last() else { return (most > 0).then_some(1) };
    let best = best(&steps);
    let has_fallen = steps.len() >= MIN_STEPS
        && power(last) <= FALLEN * power(steps[best])
        && likely(&steps, best).1 + 1 < steps.len();
    if !has_fallen && last.load < most {
        return Some(last.load.saturating_mul(2).min(most));
    }
    if best + 1 == steps.len() {
        return None;
    }
    if best == 0 && steps[0].load > 1 {
        return Some(steps[0].load / 2);
    }
    let below = if best > 0 { steps[best - 1].load } else { steps[0].load };
    let gaps = [(below, steps[best].load), (steps[best].load, steps[best + 1].load)];
    let wide = |&(low, high): &(u32, u32)| high > low + 1 && f64::from(high) > NEAR * f64::from(low);
    let ratio = |&(low, high): &(u32, u32)| f64::from(high) / f64::from(low);
    let (low, high) = gaps.into_iter().filter(wide).max_by(|a, b| ratio(a).total_cmp(&ratio(b)))?;
    let middle = (f64::from(low) * f64::from(high)).sqrt().round() as u32;
    Some(middle.clamp(low + 1, high - 1))
}

/// Where a ramp's latency passes a limit: in flight and throughput, on a straight line between two steps. None where it
/// is above from the beginning, or never passes.
pub fn passes(steps: &[Step], latency_ns: f64) -> Option<(f64, f64)> {
    let steps = usable(steps);
    let pair =
        steps.windows(2).find(|pair| pair[0].latency_ns <= latency_ns && pair[1].latency_ns > latency_ns)?;
    let share = (latency_ns - pair[0].latency_ns) / (pair[1].latency_ns - pair[0].latency_ns);
    let between = |low: f64, high: f64| low + (high - low) * share;
    Some((between(f64::from(pair[0].load), f64::from(pair[1].load)), between(pair[0].rate(), pair[1].rate())))
}

fn usable(steps: &[Step]) -> Vec<&Step> {
    steps.iter().filter(|step| step.load > 0 && step.rate() > 0.0).collect()
}

fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// `X^2 / R` by Little's law.
fn power(step: &Step) -> f64 {
    step.rate().powi(3) / f64::from(step.load)
}

/// The step of the highest power.
fn best(steps: &[&Step]) -> usize {
    (0..steps.len()).max_by(|&a, &b| power(steps[a]).total_cmp(&power(steps[b]))).unwrap_or(0)
}

fn freedom(step: &Step) -> u64 {
    (step.rates.len() as u64).saturating_sub(1).max(1)
}

/// The first and the last step that may be the best.
fn likely(steps: &[&Step], best: usize) -> (usize, usize) {
    let one_sided = 1.0 - (1.0 - LEVEL) / (steps.len() - 1) as f64;
    // ln X^3: its error is three times the relative one of the rate.
    let error = |step: &Step| 3.0 * step.error() / step.rate();
    let may_be = |&at: &usize| {
        let freedom = freedom(steps[at]).min(freedom(steps[best]));
        let error = error(steps[at]).hypot(error(steps[best]));
        power(steps[best]).ln() - power(steps[at]).ln() <= student_at(one_sided, freedom) * error
    };
    let may: Vec<usize> = (0..steps.len()).filter(|at| *at == best || may_be(at)).collect();
    (may.first().copied().unwrap_or(best), may.last().copied().unwrap_or(best))
}

/// On a straight line between the steps on both sides of a load.
fn rate_at(steps: &[&Step], load: u32) -> f64 {
    let after = steps.iter().position(|step| step.load >= load).unwrap_or(steps.len() - 1);
    let (high, low) = (steps[after], steps[after.saturating_sub(1)]);
    if high.load <= load || high.load == low.load {
        return high.rate();
    }
    let share = f64::from(load - low.load) / f64::from(high.load - low.load);
    low.rate() + (high.rate() - low.rate()) * share
}

#[cfg(test)]
#[path = "knee_tests.rs"]
mod tests;
