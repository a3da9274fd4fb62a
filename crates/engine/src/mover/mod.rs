//! What moves in the background: batches, the zone's tail, copies, space that is given back.

pub(crate) mod borrowing;
pub(crate) mod copies;
pub(crate) mod lending;
pub(crate) mod moves;
pub(crate) mod pinned;
pub(crate) mod plan;
pub(crate) mod rest;
pub(crate) mod scrub;
pub(crate) mod shadows;
pub(crate) mod tail;
pub(crate) mod trim;
pub(crate) mod wear;
