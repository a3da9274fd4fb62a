//! Where a segment of the log is kept track of.

use serde::{Deserialize, Serialize};

/// A segment's place in RAM. Those of the zone's own areas come first, in their order; behind them are places for areas
/// that it may borrow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Place(pub u32);
