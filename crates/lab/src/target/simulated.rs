//! A modelled device, or a whole volume on modelled devices, in virtual time.

use crate::load::{LoadTarget, RunError, SlotSpec};
use bimetal_models::Model;
use bimetal_models::load::Bench;

impl<M: Model> LoadTarget for Bench<M> {
    fn prepare(&mut self, _slots: &[SlotSpec]) -> Result<(), RunError> {
        Ok(())
    }
}
