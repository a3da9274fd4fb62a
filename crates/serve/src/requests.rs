//! Requests that the engine has: who asked for what, with which buffer.

use bimetal_engine::action::{MAX_REQUESTS, RequestId};
use bimetal_engine::arena::Buf;
use bimetal_nbd::Request;
use bimetal_units::Nanos;

/// Names a connection, also after it is gone: a place and how often it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnId {
    pub(crate) place: usize,
    pub(crate) generation: u64,
}

/// One request in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) conn: ConnId,
    /// What was asked for.
    pub(crate) request: Request,
    /// The block cover, for reads and writes.
    pub(crate) buf: Option<Buf>,
    /// For reads: the payload in the cover.
    pub(crate) read: Option<Buf>,
    /// When the engine got it.
    pub(crate) began: Nanos,
}

/// The table. Its size is the engine's own bound.
#[derive(Debug)]
pub(crate) struct Requests {
    entries: Vec<(u32, Option<Pending>)>,
    free: Vec<u32>,
}

impl Requests {
    pub(crate) fn new() -> Self {
        let places = MAX_REQUESTS as u32;
        Requests { entries: vec![(0, None); MAX_REQUESTS], free: (0..places).rev().collect() }
    }

    pub(crate) fn in_flight(&self) -> impl Iterator<Item = &Pending> {
        self.entries.iter().filter_map(|(_, pending)| pending.as_ref())
    }

    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Takes a place. Only while [`Requests::has_room`].
    pub(crate) fn insert(&mut self, pending: Pending) -> RequestId {
        let place = self.free.pop().expect("the caller asked has_room");
        let entry = &mut self.entries[place as usize];
        entry.1 = Some(pending);
        RequestId(u64::from(entry.0) << 32 | u64::from(place))
    }

    /// Gives all places back: what the engine answers of these later is nobody's.
    pub(crate) fn remove_all(&mut self) -> Vec<Pending> {
        let ids = self.entries.iter().enumerate().filter(|(_, (_, pending))| pending.is_some());
        let ids: Vec<RequestId> =
            ids.map(|(place, (turn, _))| RequestId(u64::from(*turn) << 32 | place as u64)).collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// Gives a place back; `None` for a request that is not in flight.
    pub(crate) fn remove(&mut self, id: RequestId) -> Option<Pending> {
        let place = id.0 as u32;
        let entry = self.entries.get_mut(place as usize)?;
        if u64::from(entry.0) != id.0 >> 32 {
            return None;
        }
        let pending = entry.1.take()?;
        entry.0 = entry.0.wrapping_add(1);
        self.free.push(place);
        Some(pending)
    }
}
