//! Whether the volume serves: what it was opened as, what has failed, how far its end has come.

use crate::api::action::{DeviceError, RequestError};
use crate::format::superblock::Superblock;
use crate::life::shutdown::Shutdown;
use crate::life::stall::Stall;

/// The life of one opening.
pub(crate) struct Life {
    /// The fast device's, of this opening.
    pub(crate) superblock: Superblock,
    /// Nothing changes until the volume is opened again.
    read_only: bool,
    /// The device error that made the volume read-only.
    failure: Option<DeviceError>,
    pub(crate) stall: Stall,
    pub(crate) shutdown: Shutdown,
}

impl Life {
    /// It serves.
    pub(crate) fn begin(superblock: Superblock) -> Life {
        let (stall, shutdown) = (Stall::default(), Shutdown::default());
        Life { superblock, read_only: false, failure: None, stall, shutdown }
    }

    /// Whether nothing changes any more.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Nothing changes any more; the first error that brought this about is the one that is told.
    pub(crate) fn fail(&mut self, error: Option<DeviceError>) {
        self.read_only = true;
        self.failure = self.failure.or(error);
    }

    /// What those are told who waited when the volume failed: this, unless space is what was missing.
    pub(crate) fn failed_with(&self, otherwise: RequestError) -> RequestError {
        let failure = self.failure.map(RequestError::from);
        failure.filter(|error| *error == RequestError::NoSpace).unwrap_or(otherwise)
    }
}
