//! What is decided: heat, benefit, worth, admission, borrowing, rest, wear, streams, pins.

pub(crate) mod admission;
pub(crate) mod elastic;
pub mod pins;
pub mod policy;
pub(crate) mod rest;
pub(crate) mod streams;
pub(crate) mod wear;
pub(crate) mod worth;
