//! Pins: what is asked for, and what has come of it.

use crate::base::arena::Arena;
use crate::engine::Engine;
use crate::format::pins::{MAX_PIN_RANGES, PinRange};
use crate::placement::pins::{PinError, PinReport, PinnedRange};
use bimetal_units::*;

/// One fast slot in this many is never pinned: what is hot, and what is written first, needs some.
const FAST_SHARE_KEPT: u32 = 8;
/// Fast slots never pinned at least.
const FAST_KEPT_MIN: u32 = 4;
/// Chunks looked at for one [`PinReport`] at most: about a millisecond.
const CHUNKS_PER_REPORT: u64 = 256 << 10;

impl<A: Arena> Engine<A> {
    /// Chunks that may be pinned to a tier: not all of its slots, so that a volume full of pins can still move things,
    /// and that everything else finds its place.
    fn pin_room(&self, tier: Tier) -> u64 {
        let (slots, geo) = (self.state.geo.slots(tier), &self.state.geo);
        let kept = match tier {
            FAST => (slots / FAST_SHARE_KEPT).max(FAST_KEPT_MIN),
            _ => (geo.slots(FAST) + geo.slots(SLOW)).saturating_sub(geo.chunks),
        };
        u64::from(slots.saturating_sub(kept))
    }

    /// Begins to pin the chunks that a range of bytes touches to a tier, or to unpin them. One change at a time; once
    /// it is durable, [`Engine::take_pin_answer`] says so, and placement obeys it from there on.
    ///
    /// # Errors
    /// When the list stays as it is; nothing was written then. [`PinError::Busy`] until the answer to the change before
    /// has been taken.
    pub fn begin_pin(
        &mut self,
        now: Nanos,
        offset: u64,
        len: u64,
        tier: Option<Tier>,
    ) -> Result<(), PinError> {
        self.io.tick(now);
        let size_bytes = self.size_bytes();
        let end = offset.checked_add(len).filter(|end| *end <= size_bytes && len > 0);
        let end = end.ok_or(PinError::Range { offset, len, size_bytes })?;
        if self.life.is_read_only() {
            return Err(PinError::ReadOnly);
        }
        if self.life.shutdown.began() {
            return Err(PinError::ShuttingDown);
        }
        if !self.placement.pins.is_idle() || self.placement.pins.keeping.has_answer() {
            return Err(PinError::Busy);
        }
        let chunk_bytes = u64::from(self.state.geo.chunk_bytes);
        let (first, last) = (offset / chunk_bytes, (end - 1) / chunk_bytes);
        let count = (last - first + 1) as u32;
        if self.placement.pins.unknown && (tier.is_some() || count != self.state.geo.chunks) {
            return Err(PinError::Unknown);
        }
        let list = self.placement.pins.list.with(Chunk(first as u32), count, tier);
        if let Some(tier) = tier {
            let (wanted, room) = (list.chunks_on(tier), self.pin_room(tier));
            if wanted > room {
                let (wanted_bytes, room_bytes) = (wanted * chunk_bytes, room * chunk_bytes);
                return Err(PinError::NoRoom { tier, wanted_bytes, room_bytes });
            }
        }
        if list.ranges.len() > MAX_PIN_RANGES {
            return Err(PinError::TooMany);
        }
        self.keep_pins(list);
        Ok(())
    }

    /// What became of the last change, once: `Ok` when it is durable.
    pub fn take_pin_answer(&mut self) -> Option<Result<(), PinError>> {
        self.placement.pins.keeping.take_answer()
    }

    /// What is pinned, and how much of it is where it belongs. Looks at a bounded number of chunks.
    pub fn pin_report(&self) -> PinReport {
        let chunk_bytes = u64::from(self.state.geo.chunk_bytes);
        let mut left = CHUNKS_PER_REPORT;
        let mut report = |range: &PinRange| {
            let looked_at = left >= u64::from(range.count);
            left = left.saturating_sub(u64::from(range.count));
            let (mut settled, mut astray) = (0, 0);
            if looked_at {
                for chunk in (range.first.0..range.first.0 + range.count).map(Chunk) {
                    match self.state.map.home(chunk) {
                        Some(home) if home.tier == range.tier => settled += chunk_bytes,
                        Some(_) => astray += chunk_bytes,
                        None => {}
                    }
                }
            }
            PinnedRange {
                offset: u64::from(range.first.0) * chunk_bytes,
                len: u64::from(range.count) * chunk_bytes,
                tier: range.tier,
                settled_bytes: looked_at.then_some(settled),
                astray_bytes: looked_at.then_some(astray),
            }
        };
        PinReport {
            ranges: self.placement.pins.list.ranges.iter().map(&mut report).collect(),
            room_bytes: [FAST, SLOW].map(|tier| self.pin_room(tier) * chunk_bytes),
            pinned_bytes: [FAST, SLOW].map(|tier| self.placement.pins.list.chunks_on(tier) * chunk_bytes),
            known: !self.placement.pins.unknown,
        }
    }
}
