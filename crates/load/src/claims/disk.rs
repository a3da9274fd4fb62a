//! The derived hard disks.

use super::{Claim, KIB, MIB, Rows, SEED, alone, random, sequential_write};
use crate::{Bench, Job, Until};
use bimetal_models::Model;
use bimetal_models::spec::{SpecError, named};

type Disk = Bench<Box<dyn Model>>;

fn drive(name: &str) -> Result<Disk, SpecError> {
    Ok(Bench::new(named(name)?.build(SEED)?, SEED))
}

/// MB/s of a stream from there on, when the caches are full.
fn stream(bench: &mut Disk, job: Job) -> f64 {
    let warm_up = 200 * MIB;
    alone(bench, job, Until::Bytes(warm_up));
    let rest = Job { from_byte: job.from_byte + warm_up, span_bytes: job.span_bytes - warm_up, ..job };
    alone(bench, rest, Until::Bytes(1 << 30)).mb_per_s()
}

/// Commands a second, when the caches are full.
fn scattered(bench: &mut Disk, job: Job) -> f64 {
    alone(bench, job, Until::Bytes(500 * job.block_bytes));
    alone(bench, job, Until::Bytes(10_000 * job.block_bytes)).iops()
}

/// A 7200 rpm disk of a hybrid drive of 2012, as reviews measured it.
pub(super) fn hybrid(name: &'static str) -> Result<Vec<Claim>, SpecError> {
    let mut rows = Rows::new(name);
    let job = sequential_write(128 * KIB, 2 << 30);
    rows.how("128 KiB in order at queue depth 1, write cache full: 1 GiB of the first 2");
    rows.row("sequential write, outer edge, MB/s", Some(175.0), stream(&mut drive(name)?, job));
    rows.how("the same in the last 2 GiB");
    let mut bench = drive(name)?;
    let from_byte = (bench.model.size_bytes() - job.span_bytes) / job.block_bytes * job.block_bytes;
    let inner = stream(&mut bench, Job { from_byte, ..job });
    rows.row("sequential write, inner edge, MB/s", Some(133.0), inner);
    rows.how("4 KiB at queue depth 16 anywhere, write cache full: 10,000 commands");
    let mut bench = drive(name)?;
    let anywhere = random(4 * KIB, 0, 16, bench.model.size_bytes());
    rows.range("random write anywhere, IOPS", (120.0, 130.0), scattered(&mut bench, anywhere));
    Ok(rows.rows)
}

/// A conventional disk beside a flash card.
pub(super) fn conventional(name: &'static str) -> Result<Vec<Claim>, SpecError> {
    let mut rows = Rows::new(name);
    rows.how("8 KiB at queue depth 16 anywhere: 10,000 commands");
    let mut bench = drive(name)?;
    let size = bench.model.size_bytes();
    rows.row(
        "random read anywhere, IOPS",
        Some(150.0),
        scattered(&mut bench, random(8 * KIB, 100, 16, size)),
    );
    rows.how("1 MiB in order at queue depth 1, buffer full: 1 GiB of 2 in the middle of the disk");
    let from_byte = size / 2 / MIB * MIB;
    let middle = Job { read_percent: 100, from_byte, ..sequential_write(MIB, 2 << 30) };
    rows.range(
        "sequential read, middle of the disk, MB/s",
        (150.0, 250.0),
        stream(&mut drive(name)?, middle),
    );
    Ok(rows.rows)
}
