//! Commands in flight and who waits for them: tokens, flushes, patience with devices.

pub(crate) mod flush;
pub(crate) mod issue;
pub(crate) mod patience;
pub(crate) mod tokens;
