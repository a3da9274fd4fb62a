//! What is expected of a scenario, and what is claimed of ours beside others.

use super::MAX_ENTRIES;
use super::report;
use crate::peers::Policy;
use serde::Deserialize;
use serde::de::{self, Deserializer};
use std::collections::{BTreeMap, BTreeSet};

/// What is expected of a phase.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectSpec {
    /// The phase.
    pub phase: String,
    /// A figure of it, as the report names it.
    pub metric: String,
    /// Of the load of this number alone, the first being 1, where several are side by side.
    pub load: Option<usize>,
    /// How much more the figure is than the same of this phase.
    pub minus: Option<String>,
    /// The least that is expected.
    pub at_least: Option<f64>,
    /// The most.
    pub at_most: Option<f64>,
}

/// A figure of a phase that is compared: with other policies, and with what was measured.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimSpec {
    /// What it is called.
    pub id: String,
    /// What was measured elsewhere, if anything was; of a range, the better end.
    pub reference: Option<f64>,
    /// The worse end of a range.
    pub reference_worst: Option<f64>,
    /// The phase.
    pub phase: String,
    /// A figure of it, as the report names it.
    pub metric: String,
    /// Of the load of this number alone, as of an [`ExpectSpec`].
    pub load: Option<usize>,
    /// How much more the figure is than the same of this phase.
    pub minus: Option<String>,
    /// The bounds are multiples of what comes of this policy.
    pub of: Option<Rival>,
    /// The least that is claimed of ours.
    pub at_least: Option<f64>,
    /// The most.
    pub at_most: Option<f64>,
}

/// Whose figure a claim is a multiple of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rival {
    /// The best of all others that are run: the least where `at_most` is claimed, the most where `at_least` is.
    Best,
    /// This one. It is run, whatever else is.
    Policy(Policy),
}

/// Against whom the mean of a summary is claimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Against {
    /// The best single other policy.
    #[default]
    Best,
    /// Ours with the replay known ahead.
    Ceiling,
}

/// What a claim comes to over all values of an axis: the geometric mean of how many times better ours is.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SummarySpec {
    /// What it is called.
    pub id: String,
    /// The claim.
    pub claim: String,
    /// The axis.
    pub over: String,
    /// Against whom something is claimed.
    #[serde(default)]
    pub against: Against,
    /// The mean that is claimed; none where nothing is.
    pub at_least: Option<f64>,
    /// It is claimed only where these other axes have these values; everywhere if none are named.
    #[serde(default, rename = "where")]
    pub place: BTreeMap<String, String>,
}

impl ClaimSpec {
    /// What is expected of ours, bounds aside.
    pub fn expected(&self) -> ExpectSpec {
        ExpectSpec {
            phase: self.phase.clone(),
            metric: self.metric.clone(),
            load: self.load,
            minus: self.minus.clone(),
            at_least: self.at_least,
            at_most: self.at_most,
        }
    }

    /// Whether a smaller figure is a better one.
    pub(super) fn less_is_better(&self) -> bool {
        self.at_most.is_some()
    }

    /// Checks it against the rows of the report.
    pub(super) fn check(&self, rows: &BTreeSet<String>) -> Result<(), String> {
        self.expected().check(rows)?;
        match self.of {
            Some(Rival::Policy(Policy::Bimetal)) => {
                Err(format!("claim {:?}: ours is no multiple of itself", self.id))
            }
            Some(Rival::Best) if self.at_least.is_some() && self.at_most.is_some() => Err(format!(
                "claim {:?}: with both at_least and at_most, nobody knows which other is the best",
                self.id
            )),
            _ => Ok(()),
        }
    }
}

impl ExpectSpec {
    pub(super) fn check(&self, rows: &BTreeSet<String>) -> Result<(), String> {
        let phases = [Some(&self.phase), self.minus.as_ref()];
        if let Some(unknown) = phases.into_iter().flatten().find(|phase| !rows.contains(*phase)) {
            return Err(format!("no phase is called {unknown:?}, of which something is expected"));
        }
        let known = match self.load {
            None => report::metric(&self.metric).is_some(),
            Some(0) => return Err("the first load has the number 1".into()),
            Some(_) => report::load_metric(&self.metric).is_some(),
        };
        if !known {
            let names = match self.load {
                None => report::METRICS.map(|(name, _)| name).join(", "),
                Some(_) => report::LOAD_METRICS.map(|(name, _)| name).join(", "),
            };
            let of = if self.load.is_some() { " of a load" } else { "" };
            return Err(format!("no figure{of} is called {:?}; there are {names}", self.metric));
        }
        match self.at_least.or(self.at_most) {
            None => Err(format!("of {:?}, neither at_least nor at_most is said", self.phase)),
            Some(_) => Ok(()),
        }
    }
}

impl SummarySpec {
    /// Whether something is claimed where the axes have these values.
    pub(super) fn claims_at(&self, axes: &[(String, String)]) -> bool {
        self.at_least.is_some()
            && self
                .place
                .iter()
                .all(|(axis, value)| axes.iter().any(|known| (&known.0, &known.1) == (axis, value)))
    }

    pub(super) fn check(&self, claims: &[ClaimSpec], axes: &[(String, String)]) -> Result<(), String> {
        let SummarySpec { id, claim, over, .. } = self;
        if !claims.iter().any(|known| known.id == *claim) {
            return Err(format!("summary {id:?}: no claim is called {claim:?}"));
        }
        if let Some(axis) =
            self.place.keys().chain([over]).find(|axis| !axes.iter().any(|(known, _)| known == *axis))
        {
            return Err(format!("summary {id:?}: no axis is called {axis:?}"));
        }
        match self.place.contains_key(over) || self.at_least.is_none() && !self.place.is_empty() {
            true => Err(format!("summary {id:?}: `where` says on which other axes at_least is claimed")),
            false => Ok(()),
        }
    }
}

/// Checks that names are told from each other, and not too many.
pub(super) fn check_ids<'a>(what: &str, ids: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let mut known = BTreeSet::new();
    for id in ids {
        if !known.insert(id) || known.len() > MAX_ENTRIES {
            return Err(format!("two {what} have the same id, or there are more than {MAX_ENTRIES}"));
        }
    }
    Ok(())
}

impl<'de> Deserialize<'de> for Rival {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Rival, D::Error> {
        let name = String::deserialize(deserializer)?;
        if name == "best" {
            return Ok(Rival::Best);
        }
        Policy::named(&name).map(Rival::Policy).ok_or_else(|| {
            let names = Policy::ALL.map(Policy::name).join(", ");
            de::Error::custom(format!("{name:?} is neither \"best\" nor a policy; there are {names}"))
        })
    }
}
