//! What was measured on real drives, or is claimed of their kind, and what the models say under the same load.
//!
//! Nothing here is a result: each row comes out of a run. `how` says what was run. Where it says "an eighth", the
//! drive is modelled at an eighth of its size and the run is an eighth as long, everything else being the same: it
//! ages the same way in an eighth of the time.

mod card;
mod disk;
mod laptop;
mod ssd;

use crate::{Bench, Job, Pattern, Seen, Until};
use bimetal_models::Model;
use bimetal_models::spec::{Spec, SpecError, named};
use bimetal_models::ssd::Ssd;
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
    /// What was measured; where the source gives a range, what of it is closest to the model. `None` if it gives no
    /// figure.
    pub reference: Option<f64>,
    /// The range, where the source gives one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference_range: Option<(f64, f64)>,
    /// What the model says.
    pub modelled: f64,
    /// How far that is off, in percent of the reference: 0 within a range.
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
        let (name, how) = (self.name, self.how);
        self.rows.push(Claim { name, claim, reference, reference_range: None, modelled, error_percent, how });
    }

    /// A row whose source gives a range.
    fn range(&mut self, claim: &'static str, range: (f64, f64), modelled: f64) {
        self.row(claim, Some(modelled.clamp(range.0, range.1)), modelled);
        if let Some(row) = self.rows.last_mut() {
            row.reference_range = Some(range);
        }
    }
}

/// The drives that something was measured on.
pub const MEASURED: [&str; 9] = [
    "disk-1tb-2012",
    "disk-1tb-2012-rotational",
    "disk-2tb-2012",
    "disk-2tb-2012-rotational",
    "disk-20tb",
    "ssd-128gb-2012",
    "ssd-480gb-2012-pcie",
    "laptop-2022",
    "flash-card-2011",
];

/// The rows of one drive; none if nothing was measured on it. The disks take less than a second of processor time,
/// the others up to ten.
pub fn of(name: &str) -> Result<Vec<Claim>, SpecError> {
    let Some(name) = MEASURED.into_iter().find(|known| *known == name) else { return Ok(Vec::new()) };
    match name {
        "ssd-128gb-2012" => ssd::sata_ssd(),
        "ssd-480gb-2012-pcie" => ssd::pcie_ssd(),
        "laptop-2022" => laptop::laptop(),
        "flash-card-2011" => card::flash_card(),
        "disk-20tb" => disk::conventional(name),
        _ => disk::hybrid(name),
    }
}

/// An SSD that comes with the crate, fresh, at its size over `shrink`.
fn ssd(name: &'static str, shrink: u64) -> Result<Bench<Ssd>, SpecError> {
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
fn alone<M: Model>(bench: &mut Bench<M>, job: Job, until: Until) -> Seen {
    bench.run(&[job], until).swap_remove(0)
}

/// Writes every byte of the drive once, in order.
fn fill(bench: &mut Bench<Ssd>) -> Seen {
    let size = bench.model.size_bytes() / MIB * MIB;
    alone(bench, sequential_write(128 * KIB, size), Until::Bytes(size))
}
