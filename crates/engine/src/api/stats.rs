//! Counters: written by whoever does something, read by nobody but who tells of them.

use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// Counters since open.
#[derive(Default, Serialize, Deserialize)]
pub struct Stats {
    /// Client bytes read, by the tier that served them.
    pub read_bytes: ByTier<u64>,
    /// Client bytes written, by the tier that took them.
    pub written_bytes: ByTier<u64>,
    /// Bytes appended to the log.
    pub log_bytes: u64,
    /// Client payload among them.
    pub log_payload: u64,
    /// Chunks moved up.
    pub promoted: u64,
    /// Chunks moved down.
    pub demoted: u64,
    /// Landed blocks merged into homes.
    pub destaged: u64,
    /// When the last promotion ended.
    pub last_promotion: Option<Nanos>,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Client flushes answered.
    pub client_flushes: u64,
    /// Reads of clients that were made again, as a device had failed them or what was read was wrong.
    pub reads_again: u64,
    /// Those of them that got from shadows what homes on the fast tier did not give.
    pub reads_from_shadows: u64,
    /// Whether the volume was recovered when it was opened.
    pub recovered: bool,
}
