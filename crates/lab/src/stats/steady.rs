//! Whether a run has become steady, and whether it stays so.
//!
//! Two rules, over a window of the last rounds. That of SNIA's Performance Test Specification (Enterprise and Client,
//! 2.0.2): within five rounds the values lie no further apart than 20 % of their mean, and the line of
//! least squares through them rises or falls by no more than 10 % of it. Those of fio (`steadystate=` in its HOWTO, and
//! `steadystate.c`): no value is as far as the limit from the mean, or the line's slope by round is below the limit.
//!
//! fio ends a job that has become steady. It cannot tell that a job has ceased to be so, which is how a drive looks
//! whose cache is full at last, so a [`Gate`] goes on watching.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;

/// A window longer than this is cut: a day of seconds.
const MAX_ROUNDS: usize = 86_400;
/// Leavings that are kept one by one; all are counted.
const MAX_LEFT: usize = 16;
/// What is at a limit but for rounding keeps to it.
const ROUNDING: f64 = 1e-12;

/// When a series is steady.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// SNIA's.
    Snia(SniaRule),
    /// One of fio's.
    Fio(FioRule),
}

/// Excursion and slope, both.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SniaRule {
    /// Rounds in the window.
    pub rounds: usize,
    /// The highest may be so much above the lowest, as a share of the mean.
    pub excursion: f64,
    /// From its first to its last round the line of least squares may rise or fall so much, as a share of the mean.
    pub slope: f64,
}

impl Default for SniaRule {
    fn default() -> SniaRule {
        SniaRule { rounds: 5, excursion: 0.20, slope: 0.10 }
    }
}

/// What fio watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quantity {
    /// I/Os per second.
    Iops,
    /// Bytes per second.
    Bw,
    /// Mean latency, nanoseconds.
    Lat,
}

/// What of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// How far the farthest value is from the mean.
    Deviation,
    /// The slope of the line of least squares, by round.
    Slope,
}

/// A limit that a measure must stay below.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// Of the mean.
    Percent(f64),
    /// In the quantity's own unit.
    Absolute(f64),
}

/// One of fio's criteria.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FioRule {
    /// What is watched. The gate is given its values by the caller.
    pub quantity: Quantity,
    /// What of it.
    pub measure: Measure,
    /// Below this it is steady.
    pub limit: Limit,
    /// Rounds in the window: `ss_dur` by `ss_interval`.
    pub rounds: usize,
}

/// What is wrong with a `steadystate=` option.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a criterion such as \"iops:2%\", \"bw_slope:0.3%\" or \"lat:50us\"")]
pub struct ParseRuleError(String);

impl FioRule {
    /// Reads `iops|bw|lat`, `_slope` or not, a colon, and the limit: with `%`, or in I/Os, bytes (k, m, g are those of
    /// 1024) or a time (ns where it has no unit).
    ///
    /// # Errors
    /// It is none of that, or the limit is not above zero.
    pub fn parse(text: &str, rounds: usize) -> Result<FioRule, ParseRuleError> {
        let error = || ParseRuleError(text.chars().take(80).collect());
        let (name, limit) = text.trim().split_once(':').ok_or_else(error)?;
        let (name, measure) = match name.strip_suffix("_slope") {
            Some(name) => (name, Measure::Slope),
            None => (name, Measure::Deviation),
        };
        let quantity = match name {
            "iops" => Quantity::Iops,
            "bw" => Quantity::Bw,
            "lat" => Quantity::Lat,
            _ => return Err(error()),
        };
        let limit = match limit.strip_suffix('%') {
            Some(percent) => Limit::Percent(percent.trim().parse().map_err(|_| error())?),
            None => Limit::Absolute(absolute(limit, quantity).ok_or_else(error)?),
        };
        let (Limit::Percent(value) | Limit::Absolute(value)) = limit;
        if !value.is_finite() || value <= 0.0 {
            return Err(error());
        }
        Ok(FioRule { quantity, measure, limit, rounds })
    }
}

fn absolute(text: &str, quantity: Quantity) -> Option<f64> {
    let text = text.trim().to_ascii_lowercase();
    let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let factor = match (quantity, &text[at..]) {
        (Quantity::Lat, "" | "ns" | "nsec") => 1.0,
        (Quantity::Lat, "us" | "usec") => 1e3,
        (Quantity::Lat, "ms" | "msec") => 1e6,
        (Quantity::Lat, "s" | "sec") => 1e9,
        (Quantity::Iops | Quantity::Bw, "") => 1.0,
        (Quantity::Iops, "k") => 1e3,
        (Quantity::Bw, "k" | "ki" | "kb" | "kib") => 1024.0,
        (Quantity::Bw, "m" | "mi" | "mb" | "mib") => 1024.0 * 1024.0,
        (Quantity::Bw, "g" | "gi" | "gb" | "gib") => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    text[..at].trim().parse::<f64>().ok().map(|value| value * factor)
}

/// As fio prints it in its results.
impl fmt::Display for FioRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.quantity {
            Quantity::Iops => "iops",
            Quantity::Bw => "bw",
            Quantity::Lat => "lat",
        })?;
        if self.measure == Measure::Slope {
            f.write_str("_slope")?;
        }
        match self.limit {
            Limit::Percent(limit) => write!(f, ":{limit:.6}%"),
            Limit::Absolute(limit) => write!(f, ":{limit:.6}"),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Snia(rule) => write!(
                f,
                "{} rounds, excursion at most {} %, slope at most {} % of the mean",
                rule.rounds,
                rule.excursion * 100.0,
                rule.slope * 100.0
            ),
            Rule::Fio(rule) => write!(f, "{rule} over {} rounds", rule.rounds),
        }
    }
}

/// A window of rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// The last round in it; the first of all is 1.
    pub round: u64,
    /// How many are in it.
    pub rounds: usize,
    /// Their mean.
    pub mean: f64,
    /// The lowest.
    pub min: f64,
    /// The highest.
    pub max: f64,
    /// How far the farthest is from the mean.
    pub deviation: f64,
    /// Of the line of least squares, by round.
    pub slope: f64,
}

impl Facts {
    /// None where a value, or what follows from it, is no number.
    fn of(window: &VecDeque<f64>, round: u64) -> Option<Facts> {
        let count = window.len() as f64;
        let mean = window.iter().sum::<f64>() / count;
        let middle = (count - 1.0) / 2.0;
        let (mut with_time, mut of_time) = (0.0, 0.0);
        let mut facts = Facts {
            round,
            rounds: window.len(),
            mean,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            deviation: 0.0,
            slope: 0.0,
        };
        for (at, &value) in window.iter().enumerate() {
            facts.min = facts.min.min(value);
            facts.max = facts.max.max(value);
            facts.deviation = facts.deviation.max((value - mean).abs());
            with_time += (at as f64 - middle) * (value - mean);
            of_time += (at as f64 - middle).powi(2);
        }
        facts.slope = with_time / of_time;
        let all = [mean, facts.min, facts.max, facts.deviation, facts.slope, facts.max - facts.min];
        all.iter().all(|value| value.is_finite()).then_some(facts)
    }

    /// The highest less the lowest.
    pub fn excursion(&self) -> f64 {
        self.max - self.min
    }

    /// How far the line of least squares rises or falls within the window.
    pub fn rise(&self) -> f64 {
        self.slope.abs() * self.rounds.saturating_sub(1) as f64
    }
}

/// What a rule is not kept by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Why {
    /// The highest and the lowest are too far apart.
    Excursion,
    /// One is too far from the mean.
    Deviation,
    /// They rise or fall too much.
    Slope,
    /// Each window is steady, but by now the mean is too far from where it was when steady state was reached.
    Drift,
    /// A value is no number.
    Unusable,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Excursion => "the values lie too far apart",
            Why::Deviation => "a value is too far from the mean",
            Why::Slope => "the values rise or fall",
            Why::Drift => "the mean has crept away",
            Why::Unusable => "a value is no number",
        })
    }
}

impl Rule {
    fn rounds(&self) -> usize {
        match self {
            Rule::Snia(rule) => rule.rounds,
            Rule::Fio(rule) => rule.rounds,
        }
        .clamp(2, MAX_ROUNDS)
    }

    /// What speaks against the window.
    fn against(&self, facts: &Facts) -> Option<Why> {
        let mean = facts.mean.abs();
        match *self {
            Rule::Snia(rule) => {
                let room = mean * ROUNDING;
                if facts.excursion() > rule.excursion * mean + room {
                    Some(Why::Excursion)
                } else if facts.rise() > rule.slope * mean + room {
                    Some(Why::Slope)
                } else {
                    None
                }
            }
            Rule::Fio(rule) => {
                let (value, why) = match rule.measure {
                    Measure::Deviation => (facts.deviation, Why::Deviation),
                    Measure::Slope => (facts.slope.abs(), Why::Slope),
                };
                let limit = match rule.limit {
                    Limit::Percent(percent) => percent / 100.0 * mean,
                    Limit::Absolute(limit) => limit,
                };
                // A series of equal values is steady whatever its unit; of zeros, too.
                (value != 0.0 && value >= limit).then_some(why)
            }
        }
    }

    /// How far the mean may creep from where it was; none where the rule says nothing of levels.
    fn drift(&self, from: f64) -> Option<f64> {
        match *self {
            Rule::Snia(rule) => Some(rule.excursion * from.abs()),
            Rule::Fio(rule) => match (rule.measure, rule.limit) {
                (Measure::Slope, _) => None,
                (Measure::Deviation, Limit::Percent(percent)) => Some(percent / 100.0 * from.abs()),
                (Measure::Deviation, Limit::Absolute(limit)) => Some(limit),
            },
        }
    }
}

/// What a round came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Not steady; with the window as soon as it is full.
    NotYet(Option<Facts>),
    /// Steady, since now or for longer.
    Steady(Facts),
    /// The alarm: it was steady with the round before, and is no longer. Said once; what follows is not steady until it
    /// is again.
    Left(Why, Option<Facts>),
}

/// When steady state was left.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// With this round; the first of all is 1.
    pub round: u64,
    /// Why.
    pub why: Why,
    /// The window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Facts>,
}

/// What a gate has seen, for the record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Steadiness {
    /// What was asked for.
    pub rule: Rule,
    /// Rounds seen.
    pub rounds: u64,
    /// Whether it is steady with the last of them.
    pub steady: bool,
    /// The window with which it became steady first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<Facts>,
    /// The last full window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Facts>,
    /// How often it was left.
    pub times_left: u64,
    /// When, the first times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<Evidence>,
}

impl fmt::Display for Steadiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reached {
            None => write!(f, "not steady in {} rounds", self.rounds)?,
            Some(facts) => write!(f, "steady since round {} of {}", facts.round, self.rounds)?,
        }
        if let Some(left) = self.left.first() {
            write!(f, ", left with round {}: {}", left.round, left.why)?;
        }
        if self.times_left > 1 {
            write!(f, " ({} times in all)", self.times_left)?;
        }
        if self.times_left > 0 {
            f.write_str(if self.steady { "; steady at the end" } else { "; not steady at the end" })?;
        }
        write!(f, " ({})", self.rule)
    }
}

/// Watches a series.
#[derive(Clone, Debug)]
pub struct Gate {
    window: VecDeque<f64>,
    /// The mean when it became steady, as long as it is.
    level: Option<f64>,
    seen: Steadiness,
}

impl Gate {
    /// Nothing seen yet. A window has at least two rounds, whatever the rule says.
    pub fn new(rule: Rule) -> Gate {
        let seen = Steadiness {
            rule,
            rounds: 0,
            steady: false,
            reached: None,
            last: None,
            times_left: 0,
            left: Vec::new(),
        };
        Gate { window: VecDeque::with_capacity(rule.rounds()), level: None, seen }
    }

    /// The next round's value.
    pub fn push(&mut self, value: f64) -> Step {
        let rule = self.seen.rule;
        self.seen.rounds += 1;
        if self.window.len() == rule.rounds() {
            self.window.pop_front();
        }
        self.window.push_back(value);
        if self.window.len() < rule.rounds() {
            return Step::NotYet(None);
        }
        let facts = Facts::of(&self.window, self.seen.rounds);
        self.seen.last = facts;
        let against = match facts {
            None => Some(Why::Unusable),
            Some(facts) => rule.against(&facts).or_else(|| self.crept(&facts)),
        };
        match (against, facts) {
            (None, Some(facts)) => {
                self.level.get_or_insert(facts.mean);
                self.seen.reached.get_or_insert(facts);
                self.seen.steady = true;
                Step::Steady(facts)
            }
            (against, facts) if self.seen.steady => self.leave(against.unwrap_or(Why::Unusable), facts),
            (_, facts) => Step::NotYet(facts),
        }
    }

    fn crept(&self, facts: &Facts) -> Option<Why> {
        let level = self.level?;
        let room = self.seen.rule.drift(level)? + level.abs() * ROUNDING;
        ((facts.mean - level).abs() > room).then_some(Why::Drift)
    }

    fn leave(&mut self, why: Why, window: Option<Facts>) -> Step {
        self.level = None;
        self.seen.steady = false;
        self.seen.times_left += 1;
        if self.seen.left.len() < MAX_LEFT {
            self.seen.left.push(Evidence { round: self.seen.rounds, why, window });
        }
        Step::Left(why, window)
    }

    /// What was seen so far.
    pub fn steadiness(&self) -> &Steadiness {
        &self.seen
    }
}

#[cfg(test)]
#[path = "steady_tests.rs"]
mod tests;
