//! What is where: the map, what has landed, checksums, the zone and the slots, copies and their traces.

pub(crate) mod cells;
pub(crate) mod ends;
pub(crate) mod fast_sums;
pub(crate) mod ghosts;
pub(crate) mod landed;
pub(crate) mod leaving;
pub(crate) mod live_sums;
pub(crate) mod map;
pub(crate) mod marks;
pub(crate) mod named;
pub(crate) mod pages;
pub(crate) mod pending;
pub(crate) mod places;
pub(crate) mod regions;
pub(crate) mod shadows;
pub(crate) mod slots;
pub(crate) mod space;
pub(crate) mod state;
pub(crate) mod sums;
pub(crate) mod uses;
pub(crate) mod zone;
