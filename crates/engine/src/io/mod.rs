//! Commands in flight and who waits for them: tokens, flushes, loads of pages, probes, patience.

pub(crate) mod flush;
pub(crate) mod issue;
pub(crate) mod patience;
pub(crate) mod probe;
pub(crate) mod sumload;
pub(crate) mod tokens;
