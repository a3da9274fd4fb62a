//! The parts of the test, in order.

use super::figures::{Figure, figures};
use super::marks::{Mark, RANDOM_DEEP_WRITE, SEQ_DEEP_READ, SEQ_DEEP_WRITE, SEQ_READ, SEQ_WRITE, marks};
use crate::classic::cell::Cell;
use crate::classic::disktester::{Layout, Tester, TesterError};
use crate::job::Job;
use crate::load::LoadTarget;
use std::time::Duration;

const KIB: u64 = 1024;
/// The target is written in order first, in these pieces, for no longer than this: what is read later must have been
/// written, or a device that knows better reads nothing.
const FILL_BYTES: u64 = 256 * KIB;
const FILL_AT_MOST: Duration = Duration::from_secs(30);

/// What is left open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuickPlan {
    /// From the start of the target, bytes: a multiple of 256 KiB.
    pub span_bytes: u64,
    /// How long each part takes.
    pub each: Duration,
    /// Nothing is written.
    pub reads_only: bool,
    /// What CrystalDiskMark's rows need besides is run, too.
    pub marks: bool,
    /// Where places are drawn from.
    pub seed: u64,
}

/// A part of the test. Its name is that of its job.
pub(super) struct Part {
    pub(super) name: &'static str,
    cell: Cell,
    flushed: bool,
}

impl Part {
    pub(super) fn writes(&self) -> bool {
        self.cell.read_percent == 0
    }
}

const fn part(name: &'static str, writes: bool, random: bool, kib: u64, depth: u32) -> Part {
    let read_percent = if writes { 0 } else { 100 };
    Part { name, cell: Cell { read_percent, bytes: kib * KIB, random, depth }, flushed: false }
}

pub(super) const FILL: &str = "sequential write, 256K";
pub(super) const SMALL_READ: &str = "random read, 4K";
pub(super) const SMALL_WRITE: &str = "random write, 4K";
pub(super) const FLUSHED: &str = "write and flush, 4K";
pub(super) const DEEP: &str = "random read, 4K, 32 in flight";

/// After the fill; reads first, so that what writes leave a device to do does not burden them.
pub(super) const PARTS: [Part; 9] = [
    part("sequential read, 256K", false, false, 256, 1),
    part("sequential read, 4K", false, false, 4, 1),
    part("random read, 256K", false, true, 256, 1),
    part(SMALL_READ, false, true, 4, 1),
    part(DEEP, false, true, 4, 32),
    part("sequential write, 4K", true, false, 4, 1),
    part("random write, 256K", true, true, 256, 1),
    part(SMALL_WRITE, true, true, 4, 1),
    Part { flushed: true, ..part(FLUSHED, true, true, 4, 1) },
];

/// What CrystalDiskMark's rows need besides.
const MARKS: [Part; 5] = [
    part(SEQ_DEEP_READ, false, false, 1024, 8),
    part(SEQ_READ, false, false, 1024, 1),
    part(SEQ_DEEP_WRITE, true, false, 1024, 8),
    part(SEQ_WRITE, true, false, 1024, 1),
    part(RANDOM_DEEP_WRITE, true, true, 4, 32),
];

/// What came of the test.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quick {
    /// The figures, in the order in which they are printed.
    pub figures: Vec<Figure>,
    /// CrystalDiskMark's rows, where they were run.
    pub marks: Vec<Mark>,
}

/// What a target of so many bytes is measured on: the first `wanted` bytes, or as many whole pieces as it has. None if it
/// has none.
pub fn layout(target_bytes: u64, wanted: u64) -> Option<Layout> {
    let file_bytes = target_bytes.min(wanted) / FILL_BYTES * FILL_BYTES;
    (file_bytes > 0).then_some(Layout {
        count: 1,
        file_bytes,
        transfer_bytes: FILL_BYTES,
        depth: 1,
        seed: 1,
        stamped: false,
    })
}

/// Runs the test. Figures of what was ended before its time, or failed, are missing.
///
/// # Errors
/// When the target cannot be loaded.
pub fn quick<T: LoadTarget>(tester: &mut Tester<'_, T>, plan: &QuickPlan) -> Result<Quick, TesterError> {
    let mut span = plan.span_bytes;
    if !plan.reads_only {
        span = tester.job(&fill(plan))?.write.bytes / FILL_BYTES * FILL_BYTES;
    }
    // A piece of 1 MiB does not fit into the smallest spans.
    let has_marks = plan.marks && span >= 1 << 20;
    let own = PARTS.iter().chain(MARKS.iter().filter(|_| has_marks));
    let (reads, writes): (Vec<&Part>, Vec<&Part>) = own.partition(|part| !part.writes());
    let writes = writes.into_iter().filter(|_| !plan.reads_only);
    for part in reads.into_iter().chain(writes) {
        if tester.is_over() || span == 0 {
            break;
        }
        tester.job(&job(part, plan, span))?;
    }
    let marks = if has_marks { marks(tester.ran()) } else { Vec::new() };
    Ok(Quick { figures: figures(tester.ran()), marks })
}

fn fill(plan: &QuickPlan) -> Job {
    Job {
        runtime_ns: Some(FILL_AT_MOST.as_nanos() as u64),
        // What the device still has to do for it must not burden what is measured next.
        end_flush: true,
        ..Job::writes_in_order(FILL, 0..plan.span_bytes, FILL_BYTES)
    }
}

fn job(part: &Part, plan: &QuickPlan, span: u64) -> Job {
    let ns = u64::try_from(plan.each.as_nanos()).unwrap_or(u64::MAX);
    Job { flush_every_writes: part.flushed.then_some(1), ..part.cell.job(part.name, span, plan.seed, ns) }
}
