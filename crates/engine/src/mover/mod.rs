//! What moves in the background: batches, the zone's tail, copies, space that is given back.

pub(crate) mod copies;
pub(crate) mod moves;
pub(crate) mod plan;
pub(crate) mod tail;
pub(crate) mod trim;
