//! Whether the volume serves: what it was opened as, what has failed, how far its end has come.

use crate::api::action::{DeviceError, RequestError};
use crate::api::loss::Loss;
use crate::format::superblock::Superblock;
use crate::life::salvage::Salvage;
use crate::life::shutdown::Shutdown;
use crate::life::stall::Stall;
use bimetal_units::{SLOW, Tier};
use serde::{Deserialize, Serialize};

/// The life of one opening.
#[derive(Serialize, Deserialize)]
pub(crate) struct Life {
    /// The fast device's, of this opening.
    pub(crate) superblock: Superblock,
    /// Nothing changes until the volume is opened again.
    read_only: bool,
    /// The device error that made the volume read-only.
    failure: Option<DeviceError>,
    /// A device that was missing when the volume was opened.
    missing: Option<Tier>,
    /// What is lost with it.
    loss: Option<Loss>,
    /// It was opened to be written to all the same.
    alone: bool,
    /// What is known of the slow device where the fast one is missing.
    pub(crate) salvage: Option<Salvage>,
    pub(crate) stall: Stall,
    pub(crate) shutdown: Shutdown,
}

impl Life {
    /// It serves.
    pub(crate) fn begin(superblock: Superblock) -> Life {
        let (stall, shutdown) = (Stall::default(), Shutdown::default());
        Life {
            superblock,
            read_only: false,
            failure: None,
            missing: None,
            loss: None,
            alone: false,
            salvage: None,
            stall,
            shutdown,
        }
    }

    /// It serves what is left without this device, and nothing changes from the beginning.
    pub(crate) fn without(superblock: Superblock, missing: Tier) -> Life {
        Life { read_only: true, missing: Some(missing), ..Life::begin(superblock) }
    }

    /// It serves without the slow device, and what is written is put elsewhere.
    pub(crate) fn goes_alone(&mut self) {
        (self.missing, self.alone) = (Some(SLOW), true);
    }

    /// Whether it was opened so.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone
    }

    /// So much is lost with the device that is missing.
    pub(crate) fn lost(&mut self, loss: Loss) {
        self.loss = Some(loss);
    }

    /// How much is lost with a device that was missing when the volume was opened; none where both were there.
    pub(crate) fn loss(&self) -> Option<&Loss> {
        self.loss.as_ref()
    }

    /// Whether this device was missing when the volume was opened.
    pub(crate) fn is_missing(&self, tier: Tier) -> bool {
        self.missing == Some(tier)
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
