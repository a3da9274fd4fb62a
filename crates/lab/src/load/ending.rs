//! Jobs whose end ends others, as fio's `exitall` has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Something that has ended, or not yet; jobs share it.
#[derive(Clone, Debug, Default)]
pub struct Ended(Arc<AtomicBool>);

/// What ends a job before its time, and what its own end ends.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// When any of these has ended, the job ends.
    pub with: Vec<Ended>,
    /// That which ends with the job.
    pub ends: Option<Ended>,
}

impl Ending {
    /// Whether the job is to end now.
    pub(super) fn is_here(&self) -> bool {
        self.with.iter().any(|ended| ended.0.load(Ordering::Relaxed))
    }

    /// The job has ended.
    pub(super) fn job_ends(&self) {
        if let Some(Ended(ended)) = &self.ends {
            ended.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_ends_the_others() {
        let group = Ended::default();
        let first = Ending { with: vec![Ended::default(), group.clone()], ends: Some(group.clone()) };
        let second = Ending { with: vec![group], ends: None };
        second.job_ends();
        assert!(!first.is_here() && !second.is_here());
        first.job_ends();
        assert!(first.is_here() && second.is_here());
    }
}
