//! What is claimed of devices, and what their models do.

use crate::device::{Kind, Model};
use crate::disk::Disk;
use crate::load::{Load, Measured, Pattern, run};
use bimetal_engine::units::Nanos;

/// A claim and what came of it.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The device, as [`crate::disk::named`] knows it.
    pub name: String,
    /// What is claimed, with its unit.
    pub claim: String,
    /// The lowest and the highest value that the source gives.
    pub range: (f64, f64),
    /// What the model does.
    pub modelled: f64,
}

impl Claim {
    /// The value of the claim that comes closest to the model.
    pub fn reference(&self) -> f64 {
        self.modelled.clamp(self.range.0, self.range.1)
    }

    /// How far the model is from the claim, in percent; zero within its range.
    pub fn error_percent(&self) -> f64 {
        100.0 * (self.modelled - self.reference()) / self.reference()
    }
}

/// A claim of a device: what, the range of values, and how it is measured.
struct Row {
    what: &'static str,
    range: (f64, f64),
    measure: fn(&mut dyn Model) -> f64,
}

/// A 7200 rpm disk of a hybrid drive of 2012, as reviews measured it.
const HYBRID_DISK: &[Row] = &[
    Row { what: "sequential 128 KiB writes, outer edge, MB/s", range: (175.0, 175.0), measure: outer_edge },
    Row { what: "sequential 128 KiB writes, inner edge, MB/s", range: (133.0, 133.0), measure: inner_edge },
    Row {
        what: "random 4 KiB writes, whole disk, queue depth 16, 1/s",
        range: (120.0, 130.0),
        measure: random_writes,
    },
];

/// A conventional disk beside a flash card.
const CONVENTIONAL_DISK: &[Row] = &[
    Row { what: "random 8 KiB reads, queue depth 16, 1/s", range: (150.0, 150.0), measure: random_reads },
    Row {
        what: "1 MiB sequential reads, middle of the disk, MB/s",
        range: (150.0, 250.0),
        measure: large_reads,
    },
];

/// The claims of all derived disks, measured; takes about a second.
pub fn disks() -> Vec<Claim> {
    let devices: [(&str, &[Row]); 5] = [
        ("disk-1tb-2012", HYBRID_DISK),
        ("disk-1tb-2012-rotational", HYBRID_DISK),
        ("disk-2tb-2012", HYBRID_DISK),
        ("disk-2tb-2012-rotational", HYBRID_DISK),
        ("disk-20tb", CONVENTIONAL_DISK),
    ];
    let mut claims = Vec::new();
    for (name, rows) in devices {
        for row in rows {
            let Some(Ok(mut disk)) = crate::disk::named(name).map(|params| Disk::new(&params)) else {
                continue;
            };
            let modelled = (row.measure)(&mut disk);
            claims.push(Claim {
                name: name.to_owned(),
                claim: row.what.to_owned(),
                range: row.range,
                modelled,
            });
        }
    }
    claims
}

const KIB: u64 = 1024;

fn measure(device: &mut dyn Model, load: &Load) -> Measured {
    run(device, Nanos(0), load).0
}

fn stream(device: &mut dyn Model, from: u64, kind: Kind, bytes: u64) -> f64 {
    let range = (from, from + 2_000_000_000);
    let load = Load {
        kind,
        pattern: Pattern::Sequential,
        bytes,
        queue_depth: 1,
        range,
        warm_up: (200 << 20) / bytes,
        commands: (1 << 30) / bytes,
    };
    measure(device, &load).mb_per_second
}

fn outer_edge(device: &mut dyn Model) -> f64 {
    stream(device, 0, Kind::Write { fua: false }, 128 * KIB)
}

fn inner_edge(device: &mut dyn Model) -> f64 {
    let from = (device.size_bytes() - 2_000_000_000) / (128 * KIB) * (128 * KIB);
    stream(device, from, Kind::Write { fua: false }, 128 * KIB)
}

fn large_reads(device: &mut dyn Model) -> f64 {
    let from = device.size_bytes() / 2 / (1024 * KIB) * (1024 * KIB);
    stream(device, from, Kind::Read, 1024 * KIB)
}

fn random(device: &mut dyn Model, kind: Kind, bytes: u64, queue_depth: u32) -> f64 {
    let range = (0, device.size_bytes());
    let load =
        Load { kind, pattern: Pattern::Random, bytes, queue_depth, range, warm_up: 500, commands: 10_000 };
    measure(device, &load).per_second
}

fn random_writes(device: &mut dyn Model) -> f64 {
    random(device, Kind::Write { fua: false }, 4 * KIB, 16)
}

fn random_reads(device: &mut dyn Model) -> f64 {
    random(device, Kind::Read, 8 * KIB, 16)
}
