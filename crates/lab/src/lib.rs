//! The lab: measuring storage. So far it reads and writes block traces and says what is in them.
#![forbid(unsafe_code)]

pub mod trace;
