//! Block traces: one record type, readers for many formats, two writers, a summary.
//!
//! A trace is a stream. However long it is, a reader holds a buffer per file and a few bounded tables, and a line that
//! makes no sense is an item of its own: the caller counts it and goes on.
//!
//! ```
//! use bimetal_trace::{Op, Stat, Trace};
//!
//! let log = "fio version 3 iolog\n0 /dev/sda add\n0 /dev/sda open\n\
//!            1 /dev/sda write 0 4096\n3 /dev/sda read 8192 4096\nnonsense\n5 /dev/sda read 0 4096\n";
//! let mut trace = Trace::read(vec![("mail.iolog".to_owned(), Box::new(log.as_bytes()))])?;
//! let (mut stat, mut wrong) = (Stat::default(), Vec::new());
//! for found in trace.by_ref() {
//!     stat.add(&found);
//!     match found {
//!         Ok(record) => assert!(record.op == Op::Write || record.bytes == 4096),
//!         Err(error) => wrong.push(error.to_string()),
//!     }
//! }
//! assert!(wrong.len() == 1 && wrong[0].starts_with("mail.iolog, line 6: "), "{wrong:?}");
//! let summary = stat.summary(&trace);
//! assert_eq!((summary.reads, summary.writes), (2, 1));
//! # Ok::<(), bimetal_trace::OpenError>(())
//! ```
#![forbid(unsafe_code)]

mod binary;
mod blkparse;
mod blktrace;
mod columns;
mod csv;
mod decompress;
pub mod depend;
mod depth;
mod detect;
mod events;
mod fields;
mod footprint;
mod input;
mod iolog;
mod join;
mod own;
#[cfg(feature = "parquet")]
mod parquet;
mod reader;
mod reuse;
mod slots;
mod stat;
mod twins;
mod window;
mod workset;
mod write;

pub use depth::{DepthFound, DepthOverTime, MAX_DEPTH, MAX_DEPTH_SLOTS};
pub use detect::Format;
pub use footprint::MAX_REGIONS;
pub use input::MAX_LINE_BYTES;
pub use own::OwnWriter;
#[cfg(feature = "parquet")]
pub use parquet::ParquetWriter;
pub use reader::{Far, MAX_FILES, OpenError, Trace};
pub use reuse::{CachePoint, ReuseSummary};
pub use stat::{Malformed, Percentiles, QueueDepth, SizeClass, Stat, Summary};
pub use workset::{Window, WorkingSet};
pub use write::{Iolog3Writer, RecordWriter};

use bimetal_units::Nanos;
use std::fmt;
use std::sync::Arc;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Bytes out.
    Read,
    /// Bytes in.
    Write,
    /// Make durable; it has neither offset nor length.
    Flush,
    /// These bytes are not needed any more.
    Discard,
}

/// What a request asks for beside its operation, where the trace says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// It is to be durable before it is answered.
    pub fua: bool,
    /// A write of zeros that came without its bytes (NBD's WRITE_ZEROES).
    pub zeroes: bool,
}

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Since the first record; none where the format has no times. Never negative: what was recorded as earlier than
    /// the first record is at zero.
    pub time: Option<Nanos>,
    /// What it asks for.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Bytes; above zero unless it is a flush. Offset and length together fit in 63 bits.
    pub bytes: u64,
    /// Which device or stream, as the trace numbers them.
    pub device: u32,
    /// How long it took, where the trace says so.
    pub response: Option<Nanos>,
    /// What else it asks for.
    pub marks: Marks,
}

/// Where in a file something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line of text; the first is 1.
    Line(u64),
    /// A byte of the (decompressed) file.
    Byte(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(number) => write!(f, "line {number}"),
            Place::Byte(offset) => write!(f, "byte {offset}"),
        }
    }
}

/// A line, or a binary record, that is none.
#[derive(Debug, thiserror::Error)]
#[error("{file}, {place}: {why}")]
pub struct LineError {
    /// The file, as it was named.
    pub file: Arc<str>,
    /// Where in it.
    pub place: Place,
    /// What is wrong there.
    pub why: Why,
}

/// What is wrong with a line.
#[derive(Debug, thiserror::Error)]
pub enum Why {
    /// It is not what it should be; the lines after it are read.
    #[error("{0}")]
    Malformed(&'static str),
    /// The file cannot be read further, or decompressed; nothing more comes from it.
    #[error("cannot be read: {0}")]
    Read(std::io::Error),
}
