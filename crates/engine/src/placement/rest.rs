//! A quiet disk is left quiet: when the slow device is used for what nobody waits for, and when that waits.
//!
//! Work that is due only because there is time for it (merging what has landed, placing chunks by heat) is done while
//! the slow device is in use anyway: from a client's request that needs it on, until `Tuning::rest_after_ns` has
//! passed without another one and everything is done. After that it is left alone. The mover's own use of it does not
//! count, or each line of a log would be followed by a merge, and the merge by the next line.

use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// Whether work that nobody waits for may use the slow device.
#[derive(Default, Serialize, Deserialize)]
pub struct Rest {
    /// When it was last in use for something that does not wait.
    pub(crate) roused: Nanos,
    /// What was to be done then is not done yet.
    pub(crate) draining: bool,
    /// Since when something landed has waited for it.
    pub(crate) waits_since: Option<Nanos>,
}

impl Rest {
    /// Of a volume that has just been opened: for that, the slow device was read, and what is landed is brought home.
    pub(crate) fn opened(now: Nanos) -> Rest {
        Rest { roused: now, draining: true, waits_since: None }
    }

    /// It is to be used now, whatever comes of it.
    pub(crate) fn rouse(&mut self, now: Nanos) {
        (self.roused, self.draining, self.waits_since) = (now, true, None);
    }
}
