//! Reads records, and prints them: one page with plots, or a table of text.
//!
//! Both take one run or several; several are laid side by side, and their jobs are matched by name. Nothing is measured
//! here, and nothing is known that is not in a [`crate::record::Run`].

mod beside;
mod charts;
mod compared;
mod data;
mod extra;
mod facts;
mod fold;
mod page;
mod read;
mod series;
mod summary;
mod text;
pub(crate) mod units;

pub use compared::comparison_html;
pub use extra::{Axis, Bar, Bars, Extra, Figure, FigureLine, Interval, Intervals, Mark, Origin, Table, Unit};
pub use page::{MAX_PLOTTED_JOBS, MAX_RUNS, MAX_TABLE_ROWS, html, html_with};
pub use read::{Invalid, MAX_RECORD_BYTES, ReadError, parse, read, validate};
pub use text::{findings_text, text};

use crate::record::Run;

/// A run, and what it is to be called beside others.
#[derive(Clone, Debug)]
pub struct Named {
    /// A short name: that of its file, or `A`.
    pub name: String,
    /// What was recorded.
    pub run: Run,
}
