//! What a peer decides.

use super::rig::{Rig, Ticket};
use bimetal_models::Command;
use bimetal_units::Nanos;

/// The rules of a peer. They hold all of its state, and the [`Rig`] does what they say.
pub(super) trait Rules {
    /// A client asks. Its command ends when all device commands on this ticket have, and nothing holds it.
    fn serve(&mut self, rig: &mut Rig, ticket: Ticket, command: Command);

    /// A device command in the background has ended; the number is the one it was given.
    fn finished(&mut self, rig: &mut Rig, job: u64);

    /// When [`Rules::wake`] wants to be called: after it was, that lies ahead.
    fn wake_at(&self, rig: &Rig) -> Option<Nanos>;

    /// The time has come.
    fn wake(&mut self, rig: &mut Rig);
}
