//! What a test adds to the page of its record: tables, bars and plots of its own.

use crate::record::{JobRun, Run, TargetFacts};
use serde::Serialize;

/// A section of its own.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    /// Its heading.
    pub title: String,
    /// What was found, in sentences.
    pub findings: Vec<String>,
    /// Tables, before the plots.
    pub tables: Vec<Table>,
    /// Bars, between the tables and the plots of the run.
    pub bars: Vec<Bars>,
    /// Ratios and how sure they are, behind these.
    pub intervals: Vec<Intervals>,
    /// Plots.
    pub figures: Vec<Figure>,
}

/// Where a figure comes from: what was measured is never drawn as what was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A target that did the I/O, in real time.
    Measured,
    /// A model or a scenario, in virtual time.
    Modelled,
    /// What others have published.
    Published,
}

impl Origin {
    /// All of them.
    pub(super) const ALL: [Origin; 3] = [Origin::Measured, Origin::Modelled, Origin::Published];

    /// That of a job: of a run in virtual time, or on a target that is simulated, it is a model's.
    pub fn of(run: &Run, job: &JobRun) -> Origin {
        let simulated = run
            .environment
            .targets
            .get(&job.target)
            .is_some_and(|facts| facts.kind == TargetFacts::SIMULATED);
        if run.virtual_time || simulated { Origin::Modelled } else { Origin::Measured }
    }

    /// In a style sheet.
    pub(super) fn class(self) -> &'static str {
        match self {
            Origin::Measured => "measured",
            Origin::Modelled => "modelled",
            Origin::Published => "published",
        }
    }

    /// As a legend says it.
    pub(super) fn words(self) -> &'static str {
        match self {
            Origin::Measured => "measured on a target that did the I/O, in real time",
            Origin::Modelled => "modelled: simulated, in virtual time",
            Origin::Published => "published by others",
        }
    }
}

/// A chart of bars, which needs no script.
#[derive(Clone, Debug)]
pub struct Bars {
    /// What it shows, and in which unit.
    pub title: String,
    /// From top to bottom.
    pub bars: Vec<Bar>,
    /// What is to be said of such charts, once for all of them; nothing where it is empty.
    pub note: &'static str,
}

/// A bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Of what.
    pub label: String,
    /// How long it is; nothing where it is not above 0.
    pub value: f64,
    /// The value as it is written beside it.
    pub text: String,
    /// Where it comes from.
    pub origin: Origin,
    /// Where the value lies, lowest and highest, of as many values as were measured.
    pub interval: Option<(f64, f64)>,
}

/// A chart of ratios on a logarithmic axis, which needs no script.
#[derive(Clone, Debug)]
pub struct Intervals {
    /// What it shows.
    pub title: String,
    /// What the ratios are: `B by A`.
    pub unit: String,
    /// From top to bottom.
    pub rows: Vec<Interval>,
}

/// A ratio above 0, and how sure it is.
#[derive(Clone, Debug)]
pub struct Interval {
    /// Of what.
    pub label: String,
    /// The lower end.
    pub low: f64,
    /// The ratio.
    pub at: f64,
    /// The upper end.
    pub high: f64,
    /// As it is written beside it.
    pub text: String,
}

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    /// What it shows.
    pub caption: String,
    /// The head of each column.
    pub head: Vec<String>,
    /// As many cells in each as the head has.
    pub rows: Vec<Vec<String>>,
}

/// A plot of lines.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Its name in the page: letters, digits and hyphens.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// Across.
    pub x: Axis,
    /// Up.
    pub y: Axis,
    /// Its lines.
    pub lines: Vec<FigureLine>,
    /// Places across that matter.
    pub marks: Vec<Mark>,
}

/// An axis.
#[derive(Clone, Debug, Serialize)]
pub struct Axis {
    /// What it counts.
    pub label: String,
    /// In what.
    pub unit: Unit,
    /// Logarithmic: all values are above 0 then.
    pub log: bool,
}

/// What the values of an axis are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Numbers.
    Count,
    /// Times.
    Nanoseconds,
    /// Of a hundred.
    Percent,
}

/// A line through points.
#[derive(Clone, Debug, Serialize)]
pub struct FigureLine {
    /// Its name.
    pub label: String,
    /// Across and up; joined in this order.
    pub points: Vec<(f64, f64)>,
}

/// A place across, and how sure it is.
#[derive(Clone, Debug, Serialize)]
pub struct Mark {
    /// What it is.
    pub label: String,
    /// Where.
    pub at: f64,
    /// The lower end of its interval.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}
