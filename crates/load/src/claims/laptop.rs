//! The storage of a laptop.

use super::{Claim, KIB, MIB, Rows, SECOND, alone, random, sequential_write, ssd};
use crate::Until;
use bimetal_models::spec::SpecError;

/// What fio had in flight on the laptop: its report's IOPS times mean latency (28,100/s x 446.61 us + 7,046/s x
/// 482.68 us) is 15.95, not the 32 of the job: the host's asynchronous I/O takes 16 commands of a process at a time.
const LAPTOP_DEPTH: u32 = 16;

pub(super) fn laptop() -> Result<Vec<Claim>, SpecError> {
    let mut rows = Rows::new("laptop-2022");
    rows.how("a 1 GiB file laid out in order, then 60 s of random 4 KiB, 80 % reads, 16 in flight");
    let mut bench = ssd(rows.name, 1)?;
    let span = 1 << 30;
    alone(&mut bench, sequential_write(MIB, span), Until::Bytes(span));
    let seen = alone(&mut bench, random(4 * KIB, 80, LAPTOP_DEPTH, span), Until::Elapsed(60 * SECOND));
    rows.row("C1 read, IOPS", Some(28_100.0), seen.per_second(seen.reads.len()));
    rows.row("C1 read, mean latency, us", Some(446.61), seen.reads.mean() / 1e3);
    rows.row("C1 read, p50 latency, us", Some(330.0), seen.reads.value_at_quantile(0.5) as f64 / 1e3);
    rows.row("C1 read, p99 latency, us", Some(2507.0), seen.reads.value_at_quantile(0.99) as f64 / 1e3);
    rows.row("C2 write, IOPS", Some(7046.0), seen.per_second(seen.writes.len()));
    rows.row("C2 write, mean latency, us", Some(482.68), seen.writes.mean() / 1e3);
    rows.row("C2 write, p50 latency, us", Some(359.0), seen.writes.value_at_quantile(0.5) as f64 / 1e3);
    rows.row("C2 write, p99 latency, us", Some(2769.0), seen.writes.value_at_quantile(0.99) as f64 / 1e3);
    Ok(rows.rows)
}
