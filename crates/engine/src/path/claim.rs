//! Says on the device that groups of the log are durable, where nothing that is written anyway would say so.
//!
//! A group that was torn and one that rotted look the same, unless something behind it says that it had been durable. Each
//! group says so of those before it; the last ones before a quiet time have nobody. So a group without records follows
//! them, and is flushed.

use crate::base::arena::Arena;
use crate::base::bugs::{Bug, planted};
use crate::engine::Engine;
use crate::path::draft::Draft;
use crate::path::log::Job;
use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// After a flush that made groups durable, so long somebody else may say so, ns.
const CLAIM_AFTER_NS: u64 = Nanos::SECOND;

/// What of the log is known to be durable, by what is on the device.
#[derive(Serialize, Deserialize)]
pub(crate) struct Claims {
    /// Groups up to here are claimed by what was written.
    claimed: Seq,
    /// The last complete group with records.
    content: Seq,
    /// When a flush made groups durable last.
    flushed: Nanos,
    /// A claim is on its way into the log.
    pending: bool,
}

impl Claims {
    /// Of a log that was opened: opening has flushed all of it, and this is what somebody says so of.
    pub(crate) fn opened(last: Seq, claimed: Seq, now: Nanos) -> Claims {
        Claims { claimed, content: last, flushed: now, pending: false }
    }

    /// Something that says that groups up to here are durable has been written.
    pub(crate) fn written(&mut self, durable: Seq) {
        self.claimed = self.claimed.max(durable);
    }

    /// A complete group has records.
    pub(crate) fn has_content(&mut self, group: Seq) {
        self.content = group;
    }

    /// A flush has made groups durable.
    pub(crate) fn flushed(&mut self, now: Nanos) {
        self.flushed = now;
    }
}

impl<A: Arena> Engine<A> {
    /// When a claim of its own is due; none where nothing needs one. Not with the last of the zone, which is kept for
    /// what frees it: those records make claims themselves.
    pub(crate) fn claim_deadline(&self) -> Option<Nanos> {
        let claims = &self.log.claims;
        let wanted = claims.content.min(self.log.durable()) > claims.claimed && !claims.pending;
        let may = !self.life.is_read_only() && !self.life.shutdown.began() && !self.zone_is_full();
        (wanted && may).then(|| claims.flushed.after(CLAIM_AFTER_NS))
    }

    pub(crate) fn pump_claim(&mut self) {
        if self.claim_deadline().is_some_and(|at| at <= self.io.now) {
            self.log.claims.pending = true;
            self.log.internal.push_back(Job::Claim);
        }
    }

    /// What a group that is being formed says is durable.
    pub(crate) fn claim(&self) -> Seq {
        if planted(Bug::ClaimedBeforeDurable) { self.log.applied } else { self.log.durable() }
    }

    pub(crate) fn draft_claim(&mut self, draft: &mut Draft) -> Option<Job> {
        if !self.has_room_for(draft, 0) {
            draft.full = true;
            return Some(Job::Claim);
        }
        draft.parts.push(draft.part(Job::Claim));
        None
    }

    /// The claim is complete; what makes it durable itself is the next flush.
    pub(crate) fn claim_applied(&mut self) {
        self.log.claims.pending = false;
        self.wanted.commit = true;
    }

    /// The claim will never be appended.
    pub(crate) fn claim_failed(&mut self) {
        self.log.claims.pending = false;
    }
}
