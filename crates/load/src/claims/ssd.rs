//! The SSDs of 2012.

use super::{Claim, KIB, MIB, Rows, SECOND, alone, fill, random, sequential_write, ssd};
use crate::Until;
use bimetal_models::Model as _;
use bimetal_models::spec::SpecError;

/// A1, A5 and what a torture as in D does.
pub(super) fn sata_ssd() -> Result<Vec<Claim>, SpecError> {
    let mut rows = Rows::new("ssd-128gb-2012");
    rows.how("fresh drive, 128 KiB at queue depth 1, the first 117 GB");
    let mut bench = ssd(rows.name, 1)?;
    let written = 117_000_000_000 / MIB * MIB;
    let seen = alone(&mut bench, sequential_write(128 * KIB, written), Until::Bytes(written));
    rows.row("A1 sequential write, MB/s", Some(322.0), seen.mb_per_s());

    let mut bench = ssd(rows.name, 8)?;
    let size = bench.model.size_bytes();
    let scattered = random(4 * KIB, 0, 16, size);
    rows.how(
        "an eighth; filled in order, 60 s of rest, then 4 KiB at queue depth 16 anywhere: the first second",
    );
    fill(&mut bench);
    bench.rest(60 * SECOND);
    let fresh = alone(&mut bench, scattered, Until::Elapsed(SECOND)).mb_per_s();
    rows.row("random write anywhere, fresh, MB/s", None, fresh);
    rows.how("the same carried on until twice the size is written; then the mean of 10 s");
    alone(&mut bench, scattered, Until::Bytes(2 * size));
    let steady = alone(&mut bench, scattered, Until::Elapsed(10 * SECOND)).mb_per_s();
    rows.row("random write anywhere, steady state, MB/s", None, steady);
    rows.row("flash written for each byte written, over all of it", None, bench.model.write_amplification());
    rows.how("the same after 60 s of rest, in the first 8 GB (an eighth) only: the first second, the last of 3 minutes");
    bench.rest(60 * SECOND);
    let narrow = random(4 * KIB, 0, 16, 8_000_000_000 / 8);
    let first = alone(&mut bench, narrow, Until::Elapsed(SECOND)).mb_per_s();
    alone(&mut bench, narrow, Until::Elapsed((180 - 2) * SECOND / 8));
    let last = alone(&mut bench, narrow, Until::Elapsed(SECOND)).mb_per_s();
    rows.row("A5 random write in 8 GB, at first, MB/s", Some(98.0), first);
    rows.row("A5 the same, as the drive fragments, MB/s", Some(35.0), last);
    torture(&mut rows)?;
    Ok(rows.rows)
}

/// 20 minutes of random writes on a full drive, then sequential writes, then TRIM. The source gives no figures that
/// belong to this drive: the rows say how far it falls and comes back.
fn torture(rows: &mut Rows) -> Result<(), SpecError> {
    let mut bench = ssd(rows.name, 8)?;
    let size = bench.model.size_bytes();
    let sequential = sequential_write(128 * KIB, size / MIB * MIB);
    let scattered = random(4 * KIB, 0, 32, size);
    let probe = Until::Bytes(MIB << 8);
    rows.how("an eighth; the fill of a fresh drive in order, 128 KiB at queue depth 1");
    let fresh = fill(&mut bench).mb_per_s();
    rows.row("D sequential write, fresh, MB/s", None, fresh);
    rows.how("20 minutes (an eighth) of random 4 KiB at queue depth 32 over the full drive: its last 10 s (an eighth)");
    alone(&mut bench, scattered, Until::Elapsed(20 * 60 * SECOND / 8));
    let tortured = alone(&mut bench, scattered, Until::Elapsed(10 * SECOND / 8)).mb_per_s();
    rows.row("D random write, end of torture, MB/s", None, tortured);
    rows.how("right after the torture, 128 KiB in order at queue depth 1: the first 256 MiB");
    let after = alone(&mut bench, sequential, probe).mb_per_s();
    rows.row("D sequential write, after torture, MB/s", None, after);
    rows.how("after a whole pass in order, the first 256 MiB of the next");
    fill(&mut bench);
    let passed = alone(&mut bench, sequential, probe).mb_per_s();
    rows.row("D sequential write, after a sequential pass, MB/s", None, passed);
    rows.how("after a discard of the whole drive, the same");
    bench.discard(0, size);
    let trimmed = alone(&mut bench, sequential, probe).mb_per_s();
    rows.row("D sequential write, after TRIM, MB/s", None, trimmed);
    rows.how("after a discard of the whole drive, random 4 KiB at queue depth 16 for 1 s");
    let trimmed = alone(&mut bench, random(4 * KIB, 0, 16, size), Until::Elapsed(SECOND)).mb_per_s();
    rows.row("D random write, after TRIM, MB/s", None, trimmed);
    Ok(())
}

/// B1.
pub(super) fn pcie_ssd() -> Result<Vec<Claim>, SpecError> {
    let mut rows = Rows::new("ssd-480gb-2012-pcie");
    rows.how("fresh drive, 256 GB in transfers of 8 MiB, one at a time");
    let mut bench = ssd(rows.name, 1)?;
    let written = 256_000_000_000 / (8 * MIB) * (8 * MIB);
    let seen = alone(&mut bench, sequential_write(8 * MIB, written), Until::Bytes(written));
    rows.row("B1 sequential write, MB/s", Some(672.0), seen.mb_per_s());
    Ok(rows.rows)
}
