//! What the server needs of a volume. The engine is one; tests put a trivial one in its place, to test the
//! handling of clients, and to measure it, by itself.

use bimetal_driver::RealArena;
use bimetal_engine::action::Request;
use bimetal_engine::extents::Extents;
use bimetal_engine::format::Id;
use bimetal_engine::format::superblock::Superblock;
use bimetal_engine::loss::Losses;
use bimetal_engine::options::{Event, Status};
use bimetal_engine::pins::{PinError, PinReport};
use bimetal_engine::scrub::ScrubError;
use bimetal_engine::tally::Tally;
use bimetal_engine::why::{Decision, Why};
use bimetal_engine::{Engine, Machine};
use bimetal_flight::{Flight, Shot};
use bimetal_units::{Chunk, Nanos, Tier};

/// A volume to serve.
pub trait Served: Machine<Arena = RealArena> {
    /// Whether another request may be handed in.
    fn has_room(&self) -> bool;
    /// A client's request.
    fn on_request(&mut self, now: Nanos, request: Request);
    /// Where the newest copies of a range are now: at most `max` extents, and perhaps less than the whole
    /// range, but at least a byte of it. A hole is a promise: it reads zeros.
    fn extents(&self, offset: u64, len: u64, max: usize) -> Extents;
    /// How much of a range of whole chunks is in each kind of place, as far as the steps go that are left; and where it ended.
    fn tally(&self, now: Nanos, from: u64, to: u64, steps: &mut u32) -> (Tally, u64);
    /// How hot the chunk with this byte is, and the ones after it: so many at most.
    fn heats(&self, now: Nanos, offset: u64, most: usize) -> Vec<u32>;
    /// The heat from which on a chunk on the slow tier may rise.
    fn rises_at(&self) -> u32;
    /// A client would like a range to be fast; a hint.
    fn prefer_fast(&mut self, now: Nanos, offset: u64, len: u64);
    /// Size that clients see, bytes.
    fn size_bytes(&self) -> u64;
    /// Takes no new requests and closes the volume.
    fn begin_shutdown(&mut self, now: Nanos);
    /// Whether it is closed.
    fn is_stopped(&self) -> bool;
    /// The volume at a glance.
    fn status(&self) -> Status;
    /// Begins to pin a range of bytes to a tier, or to unpin it; one change at a time, until its answer is taken.
    fn begin_pin(&mut self, now: Nanos, offset: u64, len: u64, tier: Option<Tier>) -> Result<(), PinError>;
    /// What became of it, once.
    fn take_pin_answer(&mut self) -> Option<Result<(), PinError>>;
    /// What is pinned.
    fn pin_report(&self) -> PinReport;
    /// Begins a scrub, or goes on with the one that is under way.
    fn begin_scrub(&mut self, now: Nanos) -> Result<(), ScrubError>;
    /// Stops the scrub that is under way.
    fn stop_scrub(&mut self, now: Nanos) -> Result<(), ScrubError>;
    /// Moves nothing but what empties the landing zone, or moves as ever.
    fn pause_moves(&mut self, now: Nanos, paused: bool);
    /// What is known of the chunk with this byte; none behind the end.
    fn why(&mut self, now: Nanos, offset: u64) -> Option<Why>;
    /// What the mover decided of late, the newest first: of so many chunks at most.
    fn decisions(&self, most: usize) -> Vec<(Chunk, Decision)>;
    /// What is lost of it from a byte on; a part that can be told in one answer, and where to go on.
    fn losses(&self, from: u64) -> Losses;
    /// What is worth telling the user since the last call.
    fn take_events(&mut self) -> Vec<Event>;
    /// The superblocks of its devices as they are, while that is certain.
    fn superblocks(&self) -> Option<[Superblock; 2]>;
    /// Another device has the place of one from now on.
    fn device_replaced(&mut self, tier: Tier, id: Id, name: String);
    /// Takes no more changes, for this reason.
    fn refuse_changes(&mut self, why: String);
    /// From now on nothing is answered that a killed process would take with it.
    fn outlive_kills(&mut self);
    /// What is recorded of its calls; none where nothing is.
    fn shot(&mut self) -> Option<Shot>;
}

impl Served for Engine<RealArena> {
    fn has_room(&self) -> bool {
        Engine::has_room(self)
    }
    fn on_request(&mut self, now: Nanos, request: Request) {
        Engine::on_request(self, now, request);
    }
    fn extents(&self, offset: u64, len: u64, max: usize) -> Extents {
        Engine::extents(self, offset, len, max)
    }
    fn tally(&self, now: Nanos, from: u64, to: u64, steps: &mut u32) -> (Tally, u64) {
        Engine::tally(self, now, from, to, steps)
    }
    fn heats(&self, now: Nanos, offset: u64, most: usize) -> Vec<u32> {
        Engine::heats(self, now, offset, most)
    }
    fn rises_at(&self) -> u32 {
        Engine::rises_at(self)
    }
    fn prefer_fast(&mut self, now: Nanos, offset: u64, len: u64) {
        Engine::prefer_fast(self, now, offset, len);
    }
    fn size_bytes(&self) -> u64 {
        Engine::size_bytes(self)
    }
    fn begin_shutdown(&mut self, now: Nanos) {
        Engine::begin_shutdown(self, now);
    }
    fn is_stopped(&self) -> bool {
        Engine::is_stopped(self)
    }
    fn status(&self) -> Status {
        Engine::status(self)
    }
    fn begin_pin(&mut self, now: Nanos, offset: u64, len: u64, tier: Option<Tier>) -> Result<(), PinError> {
        Engine::begin_pin(self, now, offset, len, tier)
    }
    fn take_pin_answer(&mut self) -> Option<Result<(), PinError>> {
        Engine::take_pin_answer(self)
    }
    fn pin_report(&self) -> PinReport {
        Engine::pin_report(self)
    }
    fn begin_scrub(&mut self, now: Nanos) -> Result<(), ScrubError> {
        Engine::begin_scrub(self, now)
    }
    fn stop_scrub(&mut self, now: Nanos) -> Result<(), ScrubError> {
        Engine::stop_scrub(self, now)
    }
    fn pause_moves(&mut self, now: Nanos, paused: bool) {
        Engine::pause_moves(self, now, paused);
    }
    fn why(&mut self, now: Nanos, offset: u64) -> Option<Why> {
        Engine::why(self, now, offset)
    }
    fn decisions(&self, most: usize) -> Vec<(Chunk, Decision)> {
        Engine::decisions(self, most)
    }
    fn losses(&self, from: u64) -> Losses {
        Engine::losses(self, from)
    }
    fn take_events(&mut self) -> Vec<Event> {
        Engine::take_events(self)
    }
    fn refuse_changes(&mut self, why: String) {
        Engine::refuse_changes(self, why);
    }
    fn superblocks(&self) -> Option<[Superblock; 2]> {
        Engine::superblocks(self)
    }
    fn device_replaced(&mut self, tier: Tier, id: Id, name: String) {
        Engine::device_replaced(self, tier, id, name);
    }
    fn outlive_kills(&mut self) {
        Engine::outlive_kills(self);
    }
    fn shot(&mut self) -> Option<Shot> {
        None
    }
}

impl Served for Flight {
    fn has_room(&self) -> bool {
        Engine::has_room(self.engine())
    }
    fn on_request(&mut self, now: Nanos, request: Request) {
        Flight::on_request(self, now, request);
    }
    fn extents(&self, offset: u64, len: u64, max: usize) -> Extents {
        Engine::extents(self.engine(), offset, len, max)
    }
    fn tally(&self, now: Nanos, from: u64, to: u64, steps: &mut u32) -> (Tally, u64) {
        Engine::tally(self.engine(), now, from, to, steps)
    }
    fn heats(&self, now: Nanos, offset: u64, most: usize) -> Vec<u32> {
        Engine::heats(self.engine(), now, offset, most)
    }
    fn rises_at(&self) -> u32 {
        Engine::rises_at(self.engine())
    }
    fn prefer_fast(&mut self, now: Nanos, offset: u64, len: u64) {
        Flight::prefer_fast(self, now, offset, len);
    }
    fn size_bytes(&self) -> u64 {
        Engine::size_bytes(self.engine())
    }
    fn begin_shutdown(&mut self, now: Nanos) {
        Flight::begin_shutdown(self, now);
    }
    fn is_stopped(&self) -> bool {
        Engine::is_stopped(self.engine())
    }
    fn status(&self) -> Status {
        Engine::status(self.engine())
    }
    fn begin_pin(&mut self, now: Nanos, offset: u64, len: u64, tier: Option<Tier>) -> Result<(), PinError> {
        Flight::begin_pin(self, now, offset, len, tier)
    }
    fn take_pin_answer(&mut self) -> Option<Result<(), PinError>> {
        Flight::take_pin_answer(self)
    }
    fn pin_report(&self) -> PinReport {
        Engine::pin_report(self.engine())
    }
    fn begin_scrub(&mut self, now: Nanos) -> Result<(), ScrubError> {
        Flight::begin_scrub(self, now)
    }
    fn stop_scrub(&mut self, now: Nanos) -> Result<(), ScrubError> {
        Flight::stop_scrub(self, now)
    }
    fn pause_moves(&mut self, now: Nanos, paused: bool) {
        Flight::pause_moves(self, now, paused);
    }
    fn why(&mut self, now: Nanos, offset: u64) -> Option<Why> {
        Flight::why(self, now, offset)
    }
    fn decisions(&self, most: usize) -> Vec<(Chunk, Decision)> {
        Engine::decisions(self.engine(), most)
    }
    fn losses(&self, from: u64) -> Losses {
        Engine::losses(self.engine(), from)
    }
    fn take_events(&mut self) -> Vec<Event> {
        Flight::take_events(self)
    }
    fn refuse_changes(&mut self, why: String) {
        Flight::refuse_changes(self, why);
    }
    fn superblocks(&self) -> Option<[Superblock; 2]> {
        Engine::superblocks(self.engine())
    }
    fn device_replaced(&mut self, tier: Tier, id: Id, name: String) {
        Flight::device_replaced(self, tier, id, name);
    }
    fn outlive_kills(&mut self) {
        Flight::outlive_kills(self);
    }
    fn shot(&mut self) -> Option<Shot> {
        Flight::shot(self)
    }
}
