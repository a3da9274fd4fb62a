//! `--threads`

use anyhow::Context as _;
use std::num::NonZeroUsize;

/// So many, or as many as the machine has processors.
pub(crate) fn threads(asked: Option<usize>) -> anyhow::Result<NonZeroUsize> {
    match asked {
        Some(asked) => NonZeroUsize::new(asked).context("--threads 0 runs nothing; use 1 or more"),
        None => Ok(std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)),
    }
}
