//! Where a volume's bytes are, as it is told to who asks: by cells of one size for a map, and extent by extent. Both are told in
//! parts, each of which takes an engine about a millisecond and goes through a socket at once.

use crate::served::Served;
use bimetal_engine::extents::Placement;
use bimetal_engine::tally::{MAX_TALLY_STEPS, Tally};
use bimetal_units::{FAST, Nanos, SLOW};
use serde::{Deserialize, Serialize};

/// Cells in one answer at most.
const MOST_CELLS: usize = 1024;
/// Extents in one answer at most.
const MOST_EXTENTS: usize = 4096;
/// Chunks whose heat is in one answer at most.
const MOST_HEATS: usize = 8192;

/// Where bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kept {
    /// Nowhere: they read zeros.
    Hole,
    /// At home on the fast tier.
    Fast,
    /// At home on the slow tier.
    Slow,
    /// In the landing zone, on the fast tier.
    Landed,
    /// Lost: reading them is an error.
    Lost,
}

impl From<Placement> for Kept {
    fn from(place: Placement) -> Kept {
        match place {
            Placement::Hole => Kept::Hole,
            Placement::Home(FAST) => Kept::Fast,
            Placement::Home(_) => Kept::Slow,
            Placement::Landed => Kept::Landed,
            Placement::Lost => Kept::Lost,
        }
    }
}

/// Bytes by where they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptBytes {
    /// At home on the fast tier.
    pub fast_bytes: u64,
    /// At home on the slow tier.
    pub slow_bytes: u64,
    /// In the landing zone.
    pub landed_bytes: u64,
    /// They read zeros, and take no space.
    pub hole_bytes: u64,
    /// Lost.
    pub lost_bytes: u64,
}

impl KeptBytes {
    /// Counts bytes that are in one kind of place.
    pub fn add(&mut self, kept: Kept, bytes: u64) {
        *match kept {
            Kept::Hole => &mut self.hole_bytes,
            Kept::Fast => &mut self.fast_bytes,
            Kept::Slow => &mut self.slow_bytes,
            Kept::Landed => &mut self.landed_bytes,
            Kept::Lost => &mut self.lost_bytes,
        } += bytes;
    }

    /// Counts what another one has counted.
    pub fn merge(&mut self, other: &KeptBytes) {
        self.fast_bytes += other.fast_bytes;
        self.slow_bytes += other.slow_bytes;
        self.landed_bytes += other.landed_bytes;
        self.hole_bytes += other.hole_bytes;
        self.lost_bytes += other.lost_bytes;
    }
}

/// A part of a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellDoc {
    /// Its first byte in the volume.
    pub offset: u64,
    /// Where its bytes are.
    #[serde(flatten)]
    pub kept: KeptBytes,
    /// The heat of its hottest chunk.
    pub hottest: u32,
    /// The first byte of that.
    pub hottest_offset: u64,
    /// Of the bytes at home on the slow tier, those in chunks that are hot enough to rise.
    pub hot_slow_bytes: u64,
}

impl CellDoc {
    /// What is counted of a cell, or of a part of it, that begins at this byte.
    fn new(offset: u64, tally: &Tally) -> CellDoc {
        CellDoc {
            offset,
            kept: KeptBytes {
                fast_bytes: tally.home_bytes[FAST],
                slow_bytes: tally.home_bytes[SLOW],
                landed_bytes: tally.landed_bytes,
                hole_bytes: tally.hole_bytes,
                lost_bytes: tally.lost_bytes,
            },
            hottest: tally.hottest,
            hottest_offset: tally.hottest_offset,
            hot_slow_bytes: tally.hot_slow_bytes,
        }
    }

    /// It has a chunk of this heat at this byte.
    fn heats(&mut self, heat: u32, offset: u64) {
        if heat > self.hottest {
            (self.hottest, self.hottest_offset) = (heat, offset);
        }
    }
}

/// A part of a map, as a server tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapDoc {
    /// Size that clients see.
    pub size_bytes: u64,
    /// Bytes per chunk.
    pub chunk_bytes: u32,
    /// The heat from which on a chunk on the slow tier may rise.
    pub rises_at_heat: u32,
    /// Bytes of a cell: chunks, and so many of them. The last one ends where the range does.
    pub cell_bytes: u64,
    /// In order. The first may go on where the last one of the part before has ended.
    pub cells: Vec<CellDoc>,
    /// Where to ask on from; null at the end.
    pub next: Option<u64>,
}

impl MapDoc {
    /// Adds the part that comes next.
    pub fn append(&mut self, part: MapDoc) {
        let mut cells = part.cells.into_iter().peekable();
        if let (Some(last), Some(first)) = (self.cells.last_mut(), cells.peek())
            && last.offset == first.offset
        {
            last.kept.merge(&first.kept);
            last.heats(first.hottest, first.hottest_offset);
            last.hot_slow_bytes += first.hot_slow_bytes;
            cells.next();
        }
        self.cells.extend(cells);
        self.next = part.next;
    }
}

/// Extents, as a server tells them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtentsDoc {
    /// Size that clients see.
    pub size_bytes: u64,
    /// Bytes per chunk.
    pub chunk_bytes: u32,
    /// Length and kind of neighbouring extents, in order, from the byte that was asked for.
    pub extents: Vec<(u64, Kept)>,
    /// The heat of the chunks in which they are, in order.
    pub heats: Vec<u32>,
    /// Where to ask on from; null at the end.
    pub next: Option<u64>,
}

/// Cells of a range from the byte `at` on, which cells of `cell_bytes` from `from` on are cut at.
pub(crate) fn map(engine: &impl Served, now: Nanos, range: (u64, u64), at: u64, cell_bytes: u64) -> MapDoc {
    let chunk_bytes = u64::from(engine.status().chunk_bytes).max(1);
    let size_bytes = engine.size_bytes();
    let cell_bytes = cell_bytes.div_ceil(chunk_bytes).max(1).saturating_mul(chunk_bytes);
    let (from, to) = (range.0 / chunk_bytes * chunk_bytes, range.1.min(size_bytes));
    let mut doc = MapDoc {
        size_bytes,
        chunk_bytes: chunk_bytes as u32,
        rises_at_heat: engine.rises_at(),
        cell_bytes,
        ..MapDoc::default()
    };
    let (mut at, mut steps) = (at.max(from) / chunk_bytes * chunk_bytes, MAX_TALLY_STEPS);
    while at < to && steps > 0 && doc.cells.len() < MOST_CELLS {
        let offset = from + (at - from) / cell_bytes * cell_bytes;
        let (tally, reached) = engine.tally(now, at, to.min(offset.saturating_add(cell_bytes)), &mut steps);
        doc.cells.push(CellDoc::new(offset, &tally));
        if reached <= at {
            break;
        }
        at = reached;
    }
    doc.next = (at < to && !doc.cells.is_empty()).then_some(at);
    doc
}

/// Extents of a range.
pub(crate) fn extents(engine: &impl Served, now: Nanos, from: u64, to: u64) -> ExtentsDoc {
    let chunk_bytes = u64::from(engine.status().chunk_bytes).max(1);
    let to = to.min(engine.size_bytes());
    // No more than whose heat can be told.
    let end = to.min((from / chunk_bytes + MOST_HEATS as u64) * chunk_bytes);
    let told = engine.extents(from, end.saturating_sub(from), MOST_EXTENTS);
    let bytes: u64 = told.iter().map(|extent| extent.len).sum();
    let at = from + bytes;
    let chunks = (at.div_ceil(chunk_bytes) - from / chunk_bytes) as usize;
    ExtentsDoc {
        size_bytes: engine.size_bytes(),
        chunk_bytes: chunk_bytes as u32,
        extents: told.iter().map(|extent| (extent.len, extent.place.into())).collect(),
        heats: if bytes > 0 { engine.heats(now, from, chunks) } else { Vec::new() },
        next: (at < to && bytes > 0).then_some(at),
    }
}
