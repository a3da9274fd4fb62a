//! What was measured on real drives, and what the models of those drives say under the same load.
//!
//! Nothing here is a result: each row comes out of a run. `how` says what was run. Where it says "an eighth", the
//! drive is modelled at an eighth of its size and the run is an eighth as long, everything else being the same: it
//! ages the same way in an eighth of the time.

use crate::load::{Bench, Job, Pattern, Seen, Until};
use crate::spec::{Spec, SpecError, named};
use crate::ssd::Ssd;
use serde::Serialize;

const SECOND: u64 = 1_000_000_000;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// The seed of every run here.
const SEED: u64 = 1;

/// A figure that was measured, and the model's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// The modelled drive.
    pub name: &'static str,
    /// What the figure is, with its unit.
    pub claim: &'static str,
    /// What was measured; `None` if the source gives no figure.
    pub reference: Option<f64>,
    /// What the model says.
    pub modelled: f64,
    /// How far that is off, in percent of the reference.
    pub error_percent: Option<f64>,
    /// The load.
    pub how: &'static str,
}

/// Collects the rows of one drive.
struct Rows {
    name: &'static str,
    how: &'static str,
    rows: Vec<Claim>,
}

impl Rows {
    fn new(name: &'static str) -> Rows {
        Rows { name, how: "", rows: Vec::new() }
    }

    /// The rows from here on were measured so.
    fn how(&mut self, how: &'static str) {
        self.how = how;
    }

    fn row(&mut self, claim: &'static str, reference: Option<f64>, modelled: f64) {
        let error_percent = reference.map(|reference| (modelled / reference - 1.0) * 100.0);
        self.rows.push(Claim { name: self.name, claim, reference, modelled, error_percent, how: self.how });
    }
}

/// The drives that something was measured on.
pub const MEASURED: [&str; 4] = ["ssd-128gb-2012", "ssd-480gb-2012-pcie", "laptop-2022", "flash-card-2011"];

/// All rows, drive by drive. It takes some ten seconds of wall time.
pub fn all() -> Result<Vec<Claim>, SpecError> {
    let mut rows = Vec::new();
    for name in MEASURED {
        rows.extend(of(name)?);
    }
    Ok(rows)
}

/// The rows of one drive; none if nothing was measured on it.
pub fn of(name: &str) -> Result<Vec<Claim>, SpecError> {
    match name {
        "ssd-128gb-2012" => sata_ssd(),
        "ssd-480gb-2012-pcie" => pcie_ssd(),
        "laptop-2022" => laptop(),
        "flash-card-2011" => flash_card(),
        _ => Ok(Vec::new()),
    }
}

/// A drive that comes with the crate, fresh, at its size over `shrink`.
fn drive(name: &'static str, shrink: u64) -> Result<Bench<Ssd>, SpecError> {
    let spec = named(name)?;
    let Spec::Ssd(params) = spec.resized(spec.size_bytes() / shrink / MIB * MIB) else {
        return Err(SpecError::Unknown { name: name.to_owned(), known: "SSDs only".to_owned() });
    };
    Ok(Bench::new(Ssd::new(params)?, SEED))
}

fn sequential_write(block_bytes: u64, span_bytes: u64) -> Job {
    Job { pattern: Pattern::Sequential, read_percent: 0, block_bytes, depth: 1, from_byte: 0, span_bytes }
}

fn random(block_bytes: u64, read_percent: u64, depth: u32, span_bytes: u64) -> Job {
    Job { pattern: Pattern::Random, read_percent, block_bytes, depth, from_byte: 0, span_bytes }
}

/// One job, alone.
fn alone<M: crate::Model>(bench: &mut Bench<M>, job: Job, until: Until) -> Seen {
    bench.run(&[job], until).swap_remove(0)
}

/// Writes every byte of the drive once, in order.
fn fill(bench: &mut Bench<Ssd>) -> Seen {
    let size = crate::Model::size_bytes(&bench.model) / MIB * MIB;
    alone(bench, sequential_write(128 * KIB, size), Until::Bytes(size))
}

/// A1, A5 and what a torture as in D does.
fn sata_ssd() -> Result<Vec<Claim>, SpecError> {
    let mut rows = Rows::new("ssd-128gb-2012");
    rows.how("fresh drive, 128 KiB at queue depth 1, the first 117 GB");
    let mut bench = drive(rows.name, 1)?;
    let written = 117_000_000_000 / MIB * MIB;
    let seen = alone(&mut bench, sequential_write(128 * KIB, written), Until::Bytes(written));
    rows.row("A1 sequential write, MB/s", Some(322.0), seen.mb_per_s());

    let mut bench = drive(rows.name, 8)?;
    let size = crate::Model::size_bytes(&bench.model);
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
    let mut bench = drive(rows.name, 8)?;
    let size = crate::Model::size_bytes(&bench.model);
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

fn pcie_ssd() -> Result<Vec<Claim>, SpecError> {
    let mut rows = Rows::new("ssd-480gb-2012-pcie");
    rows.how("fresh drive, 256 GB in transfers of 8 MiB, one at a time");
    let mut bench = drive(rows.name, 1)?;
    let written = 256_000_000_000 / (8 * MIB) * (8 * MIB);
    let seen = alone(&mut bench, sequential_write(8 * MIB, written), Until::Bytes(written));
    rows.row("B1 sequential write, MB/s", Some(672.0), seen.mb_per_s());
    Ok(rows.rows)
}

/// What fio had in flight on the laptop: its report's IOPS times mean latency (28,100/s x 446.61 us + 7,046/s x
/// 482.68 us) is 15.95, not the 32 of the job: the host's asynchronous I/O takes 16 commands of a process at a time.
const LAPTOP_DEPTH: u32 = 16;

fn laptop() -> Result<Vec<Claim>, SpecError> {
    let mut rows = Rows::new("laptop-2022");
    rows.how("a 1 GiB file laid out in order, then 60 s of random 4 KiB, 80 % reads, 16 in flight");
    let mut bench = drive(rows.name, 1)?;
    let span = 1 << 30;
    alone(&mut bench, sequential_write(MIB, span), Until::Bytes(span));
    let seen = alone(&mut bench, random(4 * KIB, 80, LAPTOP_DEPTH, span), Until::Elapsed(60 * SECOND));
    rows.row("C1 read, IOPS", Some(28_100.0), seen.per_second(seen.reads.count()));
    rows.row("C1 read, mean latency, us", Some(446.61), seen.reads.mean_ns() / 1e3);
    rows.row("C1 read, p50 latency, us", Some(330.0), seen.reads.quantile_ns(0.5) as f64 / 1e3);
    rows.row("C1 read, p99 latency, us", Some(2507.0), seen.reads.quantile_ns(0.99) as f64 / 1e3);
    rows.row("C2 write, IOPS", Some(7046.0), seen.per_second(seen.writes.count()));
    rows.row("C2 write, mean latency, us", Some(482.68), seen.writes.mean_ns() / 1e3);
    rows.row("C2 write, p50 latency, us", Some(359.0), seen.writes.quantile_ns(0.5) as f64 / 1e3);
    rows.row("C2 write, p99 latency, us", Some(2769.0), seen.writes.quantile_ns(0.99) as f64 / 1e3);
    Ok(rows.rows)
}

/// The steps of a load ramp: commands in flight. The last is what 50,000 commands/s at 9.5 ms, the full load of E1,
/// are by Little's law.
const RAMP: [u32; 17] = [1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64, 96, 128, 192, 320, 475];

/// One step of a ramp.
struct Step {
    iops: f64,
    ms: f64,
}

/// Runs a job at each depth of the ramp.
fn ramp(bench: &mut Bench<Ssd>, job: Job, ns: u64) -> Vec<Step> {
    let step = |depth| {
        let seen = alone(bench, Job { depth, ..job }, Until::Elapsed(ns));
        Step { iops: seen.iops(), ms: seen.mean_ns() / 1e6 }
    };
    RAMP.into_iter().map(step).collect()
}

/// The IOPS at which the mean latency passes `ms`, on a straight line between two steps.
fn iops_at(steps: &[Step], ms: f64) -> f64 {
    let passed = steps.windows(2).find(|pair| pair[0].ms <= ms && pair[1].ms > ms);
    let Some([below, above]) = passed else { return 0.0 };
    below.iops + (above.iops - below.iops) * (ms - below.ms) / (above.ms - below.ms)
}

/// The limit: the least load that has all but 2 % of the most IOPS.
fn limit(steps: &[Step]) -> &Step {
    let most = steps.iter().map(|step| step.iops).fold(0.0, f64::max);
    steps.iter().find(|step| step.iops >= 0.98 * most).expect("a ramp has steps")
}

/// Orion's runs E1 to E6.
fn flash_card() -> Result<Vec<Claim>, SpecError> {
    let mut rows = Rows::new("flash-card-2011");
    let mut bench = drive(rows.name, 8)?;
    let size = crate::Model::size_bytes(&bench.model);
    fill(&mut bench);
    card_reads(&mut rows, &mut bench, size);
    card_mixes(&mut rows, &mut bench, size);
    card_writes(&mut rows)?;
    Ok(rows.rows)
}

fn card_reads(rows: &mut Rows, bench: &mut Bench<Ssd>, size: u64) {
    rows.how("an eighth, filled in order; 8 KiB anywhere at 1 to 475 in flight, 2 s each");
    let steps = ramp(bench, random(8 * KIB, 100, 1, size), 2 * SECOND);
    let full = &steps[steps.len() - 1];
    rows.row("E1 8 KB random read at full load, IOPS", Some(50_000.0), full.iops);
    rows.row("E1 the same, MB/s", Some(400.0), full.iops * 8.192e-3);
    rows.row("E1 the same, latency, ms", Some(9.5), full.ms);
    rows.row("E1 8 KB random read where latency passes 1 ms, IOPS", Some(40_000.0), iops_at(&steps, 1.0));
    rows.how("the same with 4 KiB");
    let steps = ramp(bench, random(4 * KIB, 100, 1, size), 2 * SECOND);
    rows.row("E2 4 KB random read where latency passes 1 ms, IOPS", Some(70_000.0), iops_at(&steps, 1.0));
    rows.row("E2 the same, MB/s", Some(280.0), iops_at(&steps, 1.0) * 4.096e-3);
    rows.how("1 MiB in order, 1 to 16 in flight, 2 s each");
    let large = |depth| Job { depth, read_percent: 100, ..sequential_write(MIB, size / MIB * MIB) };
    let steps = [1, 2, 3, 4, 5, 6, 8, 12, 16].map(|depth| {
        let seen = alone(bench, large(depth), Until::Elapsed(2 * SECOND));
        Step { iops: seen.iops(), ms: seen.mean_ns() / 1e6 }
    });
    let limit = limit(&steps);
    rows.row("E3 1 MB sequential read, IOPS", Some(700.0), limit.iops);
    rows.row("E3 latency at the limit (reference: below 10), ms", None, limit.ms);
    rows.row("E3 latency at 16 in flight, ms", None, steps[steps.len() - 1].ms);
}

fn card_writes(rows: &mut Rows) -> Result<(), SpecError> {
    rows.how("an eighth, half filled in order; 8 KiB anywhere at 1 to 475 in flight, 60 s (an eighth) each, one after another");
    let mut bench = drive(rows.name, 8)?;
    let size = crate::Model::size_bytes(&bench.model);
    alone(&mut bench, sequential_write(128 * KIB, size / 2 / MIB * MIB), Until::Bytes(size / 2));
    let steps = ramp(&mut bench, random(8 * KIB, 0, 1, size), 60 * SECOND / 8);
    let best = limit(&steps);
    rows.row("E4 8 KB random write, peak, IOPS", Some(58_000.0), best.iops);
    rows.row("E4 the same, MB/s", Some(460.0), best.iops * 8.192e-3);
    rows.row("E4 latency at the peak, ms", Some(1.0), best.ms);
    let last = &steps[steps.len() - 1];
    rows.row("E4 at full load (reference: lower than the peak), IOPS", None, last.iops);
    Ok(())
}

fn card_mixes(rows: &mut Rows, bench: &mut Bench<Ssd>, size: u64) {
    rows.how("an eighth, filled in order; 8 KiB anywhere, 20 % writes, at 1 to 475 in flight, 2 s each");
    let mixed = random(8 * KIB, 80, 1, size);
    let steps = ramp(bench, mixed, 2 * SECOND);
    rows.row(
        "E5 8 KB random, 20 % writes, where latency passes 1 ms, IOPS",
        Some(45_000.0),
        iops_at(&steps, 1.0),
    );
    rows.row("E5 the same, MB/s", Some(360.0), iops_at(&steps, 1.0) * 8.192e-3);
    rows.how("the same beside a stream of 1 MiB reads in order, 4 in flight");
    let large = Job { read_percent: 100, depth: 4, ..sequential_write(MIB, size / MIB * MIB) };
    let mut together = Vec::new();
    let mut steps = Vec::new();
    for depth in RAMP {
        let seen = bench.run(&[Job { depth, ..mixed }, large], Until::Elapsed(2 * SECOND));
        let (iops, ms) = (seen[0].iops(), seen[0].mean_ns() / 1e6);
        let mb = seen[0].mb_per_s() + seen[1].mb_per_s();
        steps.push(Step { iops, ms });
        together.push(Step { iops: mb, ms });
    }
    rows.row(
        "E6 as E5 beside large sequential, where latency passes 1 ms, IOPS",
        Some(40_000.0),
        iops_at(&steps, 1.0),
    );
    rows.row("E6 both together there, MB/s", Some(580.0), iops_at(&together, 1.0));
    rows.row("E6 at the limit of the small ones, IOPS", None, limit(&steps).iops);
}
