//! A block whose newest copy is bad, and of which the same was found elsewhere, is written again: it lands, as a write does,
//! and is merged into its home in time, over what is bad there, so that the drive can put another sector in its place.
//!
//! While it is on its way into the log, its chunk counts as moving: so what clients write meanwhile lands too, and the log's
//! order says that it is newer. What was discarded meanwhile, or has landed since, is left as it is. Where the log has room for
//! nothing but what clients wait for, it is not landed: somebody may find the block again.

use crate::base::arena::{Arena, Buf};
use crate::base::bugs::{Bug, planted};
use crate::base::sectors::Sectors;
use crate::engine::Engine;
use crate::format::log::data_record_bytes;
use crate::path::draft::Draft;
use crate::path::log::Job;
use crate::volume::landed::ZoneBlock;
use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// A good block on its way into the log.
#[derive(Serialize, Deserialize)]
pub(crate) struct Mend {
    pub(crate) chunk: Chunk,
    /// Which block of the chunk.
    pub(crate) block: u32,
    /// The chunk's home.
    pub(crate) home: Option<Home>,
    /// Where the copy landed that is bad; none where it is the home.
    pub(crate) was: Option<LogPos>,
    /// What it holds, held against the checksum of its newest value.
    pub(crate) buf: Buf,
}

/// The one that is under way.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Mends {
    now: Option<Mend>,
    /// It was in a group already. One that failed may be on the device all the same, so it has to come again.
    drafted: bool,
    /// What became of the last one, until somebody asks.
    ended: Option<bool>,
}

impl Mends {
    /// Whether none is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.now.is_none()
    }

    /// Whether the one that was under way landed, once.
    pub(crate) fn take_end(&mut self) -> Option<bool> {
        self.ended.take()
    }
}

impl<A: Arena> Engine<A> {
    /// Begins to land a block whose newest copy is where it says. Its chunk counts as moving, for the caller, until that has ended.
    /// False, and its buffer is the caller's, where that cannot be now.
    pub(crate) fn begin_mend(&mut self, mend: Mend) -> bool {
        let beside = planted(Bug::MendBesideWrite);
        let may = self.front.mends.is_idle()
            && !self.life.is_read_only()
            && !self.life.shutdown.began()
            && self.log.losses == 0
            && (beside || self.state.map.is_moving(mend.chunk))
            && self.clients_may_land(1);
        if may {
            self.front.mends = Mends { now: Some(mend), drafted: false, ended: None };
            self.log.internal.push_back(Job::Mend);
        }
        may
    }

    /// Whether the block's newest copy is still the one that is bad.
    fn mend_is_wanted(&self, mend: &Mend) -> bool {
        let map = &self.state.map;
        map.home(mend.chunk) == mend.home
            && map.is_valid(mend.chunk, mend.block)
            && (planted(Bug::MendBesideWrite)
                || self.state.landed_at(map.join(mend.chunk, mend.block)) == mend.was)
    }

    /// Adds the block to a group, unless something newer is there or on its way.
    pub(crate) fn draft_mend(&mut self, draft: &mut Draft) -> Option<Job> {
        let Mends { now: Some(mend), drafted, .. } = &self.front.mends else { return None };
        let (block, buf) = (self.state.map.join(mend.chunk, mend.block), mend.buf);
        let is_newest = self.mend_is_wanted(mend)
            && (planted(Bug::MendBesideWrite) || !self.lands_in_flight(draft, block));
        if !is_newest || !drafted && !self.clients_may_land(draft.payload_blocks) {
            self.end_mend(false);
            return None;
        }
        if !self.takes(draft, data_record_bytes(1), 1) {
            draft.full = true;
            return Some(Job::Mend);
        }
        self.front.mends.drafted = true;
        draft.parts.push(draft.part(Job::Mend));
        self.put_blocks(draft, block, buf, (Sectors::ALL, false));
        None
    }

    /// The group with the block is complete: it is the newest copy, unless it was discarded meanwhile.
    pub(crate) fn mend_applied(&mut self, z: ZoneBlock) {
        let Some(mend) = &self.front.mends.now else { return };
        let wanted = self.mend_is_wanted(mend);
        if wanted {
            let block = self.state.map.join(mend.chunk, mend.block);
            self.state.land(block, z, false);
        }
        self.end_mend(wanted);
    }

    /// It has landed, or does not.
    pub(crate) fn end_mend(&mut self, landed: bool) {
        let Some(mend) = self.front.mends.now.take() else { return };
        self.io.arena.free(mend.buf);
        self.front.mends.ended = Some(landed);
        self.wanted.wake = true;
    }
}
