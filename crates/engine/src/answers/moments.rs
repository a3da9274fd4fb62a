//! Which moments an engine is in.

use crate::api::moments::Moment;
use crate::base::arena::Arena;
use crate::engine::Engine;
use crate::path::log::Job;

impl<A: Arena> Engine<A> {
    /// Calls `f` with what is so at this moment.
    pub fn moments(&self, f: &mut dyn FnMut(Moment)) {
        let landed = &self.state.landed;
        let now = [
            (Moment::LostBlock, landed.len() > landed.to_merge()),
            (Moment::LossUnderWay, self.log.losses > 0),
            (Moment::Fence, self.log.internal.iter().any(|job| matches!(job, Job::Fence))),
            (Moment::DiscardAwaited, self.commit_awaits_discard()),
            (Moment::TornHome, self.state.may_have_torn_homes()),
            (Moment::HeaderUnflushed, self.checkpoint.header_is_unflushed()),
        ];
        now.into_iter().filter(|(_, is)| *is).for_each(|(moment, _)| f(moment));
    }
}
