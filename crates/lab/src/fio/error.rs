//! What is wrong with a job file, said so that it can be put right.

use std::fmt;
use std::sync::Arc;

/// How many things wrong are told at once: as many as fit a screen.
pub const MOST_TOLD: usize = 20;

/// Where in which file; lines count from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    /// The file's name, as it was given or included.
    pub file: Arc<str>,
    /// 0 where a file as a whole is meant.
    pub line: u32,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Where.
    pub at: At,
    /// The section's name; empty outside of any.
    pub section: String,
    /// The option as it was written; empty if it is not about one.
    pub option: String,
    /// What is wrong.
    pub problem: String,
    /// What to do about it.
    pub cure: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.at.file)?;
        if self.at.line > 0 {
            write!(f, ":{}", self.at.line)?;
        }
        write!(f, ": ")?;
        if !self.section.is_empty() {
            write!(f, "[{}] ", self.section)?;
        }
        if !self.option.is_empty() {
            write!(f, "{}: ", self.option)?;
        }
        write!(f, "{}", self.problem)?;
        if self.cure.is_empty() { Ok(()) } else { write!(f, "; {}", self.cure) }
    }
}

/// All that is wrong, the first [`MOST_TOLD`] of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors(pub Vec<Error>);

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, error) in self.0.iter().enumerate() {
            if n > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}
impl std::error::Error for Errors {}

/// What is wrong with a value, before it is known where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) problem: String,
    pub(crate) cure: String,
}

impl Problem {
    pub(crate) fn new(problem: impl Into<String>, cure: impl Into<String>) -> Problem {
        Problem { problem: problem.into(), cure: cure.into() }
    }

    pub(crate) fn at(self, at: &At, section: &str, option: &str) -> Error {
        let (problem, cure) = (self.problem, self.cure);
        Error { at: at.clone(), section: section.into(), option: option.into(), problem, cure }
    }
}
