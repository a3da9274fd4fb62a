//! What each test asks for.

use crate::classic::cell::Cell;
use serde::Serialize;

const KIB: u64 = 1024;

/// A test of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Test {
    /// Seven mixes of reads and writes by eight sizes, at random.
    Iops,
    /// 128 KiB and 1 MiB, in order.
    Throughput,
    /// One in flight: three sizes by three mixes, at random.
    Latency,
    /// Random writes of 4 KiB from the fresh device on.
    WriteSaturation,
    /// Random writes in pieces of 5 s, with rests of 5 to 50 s between them.
    HostIdle,
    /// In order, at random, in order again.
    CrossStimulus,
}

impl Test {
    /// All of them, in the order of the specification.
    pub const ALL: [Test; 6] = [
        Test::Iops,
        Test::Throughput,
        Test::Latency,
        Test::WriteSaturation,
        Test::HostIdle,
        Test::CrossStimulus,
    ];

    /// As a command line names it.
    pub fn name(self) -> &'static str {
        match self {
            Test::Iops => "iops",
            Test::Throughput => "throughput",
            Test::Latency => "latency",
            Test::WriteSaturation => "write-saturation",
            Test::HostIdle => "host-idle",
            Test::CrossStimulus => "cross-stimulus",
        }
    }
}

/// In flight where the specification leaves it open: two threads with sixteen each, as its own example has it.
pub(super) const DEPTH: u32 = 32;

/// The random writes by which a device becomes steady, and by which most tests see that it is.
pub(super) const RANDOM_WRITE: Cell = Cell { read_percent: 0, bytes: 4 * KIB, random: true, depth: DEPTH };

/// A kind of load, in words.
pub(super) fn name(cell: &Cell) -> String {
    let order = if cell.random { "random" } else { "in order" };
    let mix = match cell.read_percent {
        100 => "reads".to_owned(),
        0 => "writes".to_owned(),
        reads => format!("{reads}/{}", 100 - reads),
    };
    format!("{order}, {mix}, {}", size(cell.bytes))
}

/// `4K`.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        512 => "0.5K".to_owned(),
        bytes => format!("{}K", bytes / KIB),
    }
}

/// Mixes of the latency test, reads of a hundred.
pub(super) const MIXES_OF_LATENCY: [u32; 3] = [100, 65, 0];

/// Mixes of the IOPS test, reads of a hundred; and sizes of all random tests, in the order of the specification.
pub(super) const MIXES: [u32; 7] = [100, 95, 65, 50, 35, 5, 0];
pub(super) const SIZES: [u64; 8] =
    [1024 * KIB, 128 * KIB, 64 * KIB, 32 * KIB, 16 * KIB, 8 * KIB, 4 * KIB, KIB / 2];

/// What a test runs in each round, and which of these is tracked. Several, one after the other, where each begins anew.
pub(super) fn rounds(test: Test) -> Vec<(Vec<Cell>, Cell)> {
    let cell = |read_percent, bytes| Cell { read_percent, bytes, ..RANDOM_WRITE };
    match test {
        Test::Iops => {
            let cells = MIXES.iter().flat_map(|mix| SIZES.iter().map(|bytes| cell(*mix, *bytes)));
            vec![(cells.collect(), RANDOM_WRITE)]
        }
        Test::Throughput => [128 * KIB, 1024 * KIB]
            .into_iter()
            .map(|bytes| {
                let writes = Cell { bytes, random: false, ..RANDOM_WRITE };
                (vec![Cell { read_percent: 100, ..writes }, writes], writes)
            })
            .collect(),
        Test::Latency => {
            let one = |mix, bytes| Cell { depth: 1, ..cell(mix, bytes) };
            let sizes = |mix: &u32| [8 * KIB, 4 * KIB, KIB / 2].map(|bytes| one(*mix, bytes));
            vec![(MIXES_OF_LATENCY.iter().flat_map(sizes).collect(), one(0, 4 * KIB))]
        }
        Test::HostIdle => vec![(vec![RANDOM_WRITE], RANDOM_WRITE)],
        Test::WriteSaturation | Test::CrossStimulus => Vec::new(),
    }
}
