//! What has no opinion of volumes: memory for payload, slabs, masks, hashes, planted bugs.

pub mod arena;
pub mod bits;
pub mod bugs;
pub(crate) mod hash;
pub mod mask;
pub(crate) mod place;
pub mod sectors;
pub mod slab;
