//! What a stream saw.

use super::Histogram;
use bimetal_models::device::Kind;

/// The longest latency that is told from longer ones: an hour, in nanoseconds.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Decimal digits that latencies are counted to.
const DIGITS: u8 = 3;

/// What one stream saw.
#[derive(Clone, Debug)]
pub struct Seen {
    /// How long the run was.
    pub elapsed_ns: u64,
    /// Bytes of reads and writes that were done.
    pub bytes: u64,
    /// Commands that failed.
    pub failures: u64,
    /// Flushes that were done.
    pub flushes: u64,
    /// Discards that were done.
    pub discards: u64,
    /// Responses of reads that were done, in nanoseconds: since the command was submitted or, if it had a time, since
    /// that.
    pub reads: Histogram<u64>,
    /// The same of writes.
    pub writes: Histogram<u64>,
    /// Commands that had a time, and were submitted later.
    pub late: u64,
    /// How much later all of them were together.
    pub late_ns: u64,
    /// How much later one was at most.
    pub latest_ns: u64,
}

impl Default for Seen {
    fn default() -> Seen {
        let none = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("bounds of a histogram");
        Seen {
            elapsed_ns: 0,
            bytes: 0,
            failures: 0,
            flushes: 0,
            discards: 0,
            reads: none.clone(),
            writes: none,
            late: 0,
            late_ns: 0,
            latest_ns: 0,
        }
    }
}

impl Seen {
    /// Reads and writes done in a second.
    pub fn iops(&self) -> f64 {
        self.per_second(self.reads.len() + self.writes.len())
    }

    /// Millions of bytes in a second.
    pub fn mb_per_s(&self) -> f64 {
        self.per_second(self.bytes) / 1e6
    }

    /// Mean latency of reads and writes.
    pub fn mean_ns(&self) -> f64 {
        let (reads, writes) = (self.reads.len() as f64, self.writes.len() as f64);
        (self.reads.mean() * reads + self.writes.mean() * writes) / (reads + writes).max(1.0)
    }

    /// So many of something, in a second of the run.
    pub fn per_second(&self, count: u64) -> f64 {
        count as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// A command was submitted so much after its time.
    pub(super) fn submitted(&mut self, late_ns: u64) {
        self.late += u64::from(late_ns > 0);
        self.late_ns += late_ns;
        self.latest_ns = self.latest_ns.max(late_ns);
    }

    /// A command was done.
    #[inline]
    pub(super) fn ended(&mut self, kind: Kind, bytes: u64, response_ns: u64) {
        match kind {
            Kind::Read => {
                self.bytes += bytes;
                self.reads.saturating_record(response_ns);
            }
            Kind::Write { .. } => {
                self.bytes += bytes;
                self.writes.saturating_record(response_ns);
            }
            Kind::Flush | Kind::Sync => self.flushes += 1,
            Kind::Discard => self.discards += 1,
        }
    }
}
