//! A stall that the engine can see: somebody waits, no device has had anything to do for long, and nothing came of the
//! deadlines meanwhile.
//!
//! Progress is announced by whoever makes it, so an announcement that is missing, or two that wait for each other, would be
//! a volume that answers nothing any more. Here they show, whatever they are: in simulation they are a violation, in service
//! a loud event that says where everything stands, and everybody is called once more. Where that helps nobody, the volume
//! fails: an error is better than to wait for ever, and what was flushed is there when it is opened again.

use crate::api::options::Level;
use crate::base::arena::Arena;
use crate::engine::Engine;
use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// So long nobody waits while devices have nothing to do, ns: what is tried again after a failure comes sooner.
const STALL_NS: u64 = 5 * Nanos::SECOND;
/// Everybody is called so many times before those who wait get an error.
const CALLS: u32 = 6;

/// What is known of stalls.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Stall {
    /// Since when somebody has waited and no device had anything to do.
    since: Option<Nanos>,
    /// How often everybody was called since anybody was answered.
    calls: u32,
    /// What waited when the first one was seen.
    first: Option<String>,
}

impl Stall {
    /// Somebody was answered.
    pub(crate) fn answered(&mut self) {
        (self.since, self.calls) = (None, 0);
    }
}

impl<A: Arena> Engine<A> {
    /// Where everything stood when nothing moved any more although somebody waited; none if that never happened.
    pub fn stalled(&self) -> Option<&str> {
        self.life.stall.first.as_deref()
    }

    /// When this is a stall, unless something happens.
    pub(crate) fn stall_deadline(&self) -> Option<Nanos> {
        self.life.stall.since.map(|since| since.after(STALL_NS))
    }

    /// Tells of a stall, and calls everybody who may wait for a word.
    pub(crate) fn mind_stall(&mut self) {
        let somebody_waits =
            !self.front.requests.is_empty() || self.life.shutdown.began() && !self.is_stopped();
        if !somebody_waits || !self.io.tokens.is_idle() {
            self.life.stall.since = None;
            return;
        }
        let since = *self.life.stall.since.get_or_insert(self.io.now);
        if self.io.now < since.after(STALL_NS) {
            return;
        }
        self.life.stall.since = Some(self.io.now);
        let stands = self.where_all_stands();
        let what = format!(
            "nothing has moved for {} s although clients wait; please report this: {stands}",
            STALL_NS / Nanos::SECOND
        );
        self.told.event(Level::Error, what, None);
        self.life.stall.first.get_or_insert(stands);
        self.life.stall.calls += 1;
        if self.life.stall.calls > CALLS && !self.life.is_read_only() {
            let what = "nothing moves any more: the volume is read-only until it is opened again";
            return self.fail_volume(what.into(), None);
        }
        let wanted = &mut self.wanted;
        (wanted.commit, wanted.checkpoint, wanted.wake, wanted.release) = (true, true, true, true);
    }

    /// Where everything stands, in one line.
    pub fn where_all_stands(&self) -> String {
        let mut stages = Vec::new();
        self.stages_in_flight(&mut |stage| stages.push(stage));
        let (zone, log, pending) = (&self.state.zone, &self.log, &self.space.pending);
        let clients = format!(
            "{} requests, {} to be cut; {} pieces, {} blocked; stages {stages:?}",
            self.front.requests.len(),
            self.front.request_queue.len(),
            self.front.pieces.len(),
            self.front.blocked.len(),
        );
        let log = format!(
            "log: {} of its own jobs ({:?} first), {} of clients ({:?} first), {} losses; groups {} appended, {} applied, {} \
             durable; block {} of {}",
            log.internal.len(),
            log.internal.front(),
            log.client.len(),
            log.client.front(),
            log.losses,
            log.appended().0,
            log.applied.0,
            log.durable().0,
            log.cursor,
            self.state.geo.area_blocks(),
        );
        let zone = format!(
            "zone: {} segments, {} free, {} in the chain, {} blocks landed",
            zone.len(),
            zone.free_segments(),
            zone.chain().len(),
            self.state.landed.len(),
        );
        let rest = format!(
            "free slots {} and {}, {} leaving; {} chunks pending, {} bytes of them slow; {} of {} recent checksums; {} chunks \
             moving; checkpoint of {} of {}; wanted {:?}; deadline {:?} at {:?}",
            self.space.slots[FAST].free(),
            self.space.slots[SLOW].free(),
            self.space.gate.leaving(),
            pending.len(),
            pending.slow_bytes,
            self.state.sums.recent(),
            self.state.sums.limit,
            self.mover.chunks(),
            self.checkpoint.applied().0,
            self.recorded().0,
            self.wanted,
            self.move_deadline(),
            self.io.now,
        );
        [clients, log, zone, rest].join("; ")
    }
}
