//! The front: requests that are not answered yet, the pieces of them that are under way, and what is read for their sake.

use crate::api::action::MAX_REQUESTS;
use crate::base::slab::Slab;
use crate::path::begun::Begun;
use crate::path::locks::Locks;
use crate::path::mend::Mends;
use crate::path::piece::Piece;
use crate::path::probe::Probe;
use crate::path::requests::{InRequest, MAX_PIECES};
use crate::path::sumload::SumLoads;
use crate::path::write::HomeWriters;
use crate::placement::streams::Streams;
use bimetal_units::*;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Requests and pieces in flight.
#[derive(Serialize, Deserialize)]
pub(crate) struct Front {
    pub(crate) requests: Slab<InRequest>,
    /// Requests of which pieces are still to be cut.
    pub(crate) request_queue: VecDeque<u32>,
    pub(crate) pieces: Slab<Piece>,
    /// Pieces in flight that may take a slot.
    pub(crate) slot_takers: u32,
    /// Pieces that try again when something is freed.
    pub(crate) blocked: VecDeque<u32>,
    pub(crate) locks: Locks,
    /// Chunks that streams have begun.
    pub(crate) begun: Begun,
    /// Pieces that were given their lock and have not started.
    pub(crate) granted: Vec<u32>,
    pub(crate) home_writers: HomeWriters,
    /// Pages of checksums that are being loaded.
    pub(crate) sum_loads: SumLoads,
    pub(crate) probes: ByTier<Probe>,
    /// What is written again of blocks that went bad.
    pub(crate) mends: Mends,
    /// When a client last asked for something.
    pub(crate) last_client: Nanos,
    /// When a client last asked for something that is not a read.
    pub(crate) last_change: Nanos,
    /// Of reads, of writes.
    pub(crate) streams: [Streams; 2],
    /// Nothing is answered that a killed process would take with it.
    pub(crate) outlives_kills: bool,
}

impl Front {
    /// Nobody has asked for anything yet.
    pub(crate) fn new(now: Nanos) -> Front {
        Front {
            requests: Slab::new(MAX_REQUESTS),
            request_queue: VecDeque::new(),
            pieces: Slab::new(MAX_PIECES),
            slot_takers: 0,
            blocked: VecDeque::new(),
            locks: Locks::default(),
            begun: Begun::default(),
            granted: Vec::new(),
            home_writers: HomeWriters::default(),
            sum_loads: SumLoads::default(),
            probes: Default::default(),
            mends: Mends::default(),
            last_client: now,
            last_change: now,
            streams: Default::default(),
            outlives_kills: false,
        }
    }

    /// Whether another request may come in.
    pub(crate) fn has_room(&self) -> bool {
        self.requests.len() < MAX_REQUESTS
    }
}
