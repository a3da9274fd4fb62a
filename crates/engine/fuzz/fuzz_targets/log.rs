//! Groups, indexes and records of the log, under correct checksums.
#![no_main]

#[path = "../../tests/formats/mod.rs"]
#[allow(dead_code, reason = "each target uses a part of it")]
mod formats;

libfuzzer_sys::fuzz_target!(|data: &[u8]| formats::log(data));
