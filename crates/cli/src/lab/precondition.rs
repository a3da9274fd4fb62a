//! Writing a target before it is measured.

use super::stop::Stop;
use crate::progress::Progress;
use anyhow::{bail, ensure};
use bimetal_lab::job::Job;
use bimetal_lab::load::{self, Going, LoadTarget};

/// Of a write of preconditioning, as SNIA's Performance Test Specification has it.
pub(super) const WRITE_BYTES: u64 = 128 << 10;
/// How many are in flight.
const DEPTH: u32 = 16;
const SECOND_NS: u64 = 1_000_000_000;

/// Writes so many bytes of a place of so many, in order, over and over; none of it counts.
pub(super) fn fill<T: LoadTarget>(
    target: &mut T,
    name: &str,
    place: u32,
    size_bytes: u64,
    bytes: u64,
    stop: &Stop,
    quiet: bool,
) -> anyhow::Result<()> {
    let span = size_bytes / WRITE_BYTES * WRITE_BYTES;
    let bytes = bytes / WRITE_BYTES * WRITE_BYTES;
    if span == 0 || bytes == 0 {
        return Ok(());
    }
    let mut job = Job::writes_in_order("preconditioning", 0..span, WRITE_BYTES);
    (job.place, job.bytes, job.depth) = (place, Some(bytes), DEPTH);
    let mut line = Progress::new(format!("preconditioning {name}"), quiet);
    let mut go_on = true;
    let ran = load::run(target, &[job], &[], 0, SECOND_NS, &mut |going: &Going| {
        line.at(&format!("{:.0} %", going.share * 100.0));
        go_on = !stop.is_asked_for();
        go_on
    })?;
    ensure!(go_on, "interrupted while {name} was preconditioned; nothing was measured");
    if let Some((error, _)) = ran[0].errors.first_key_value() {
        bail!("{name} cannot be preconditioned: {error}");
    }
    Ok(())
}
