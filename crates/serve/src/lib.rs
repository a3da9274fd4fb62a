//! Exports of a volume and the life of a serving process.
//!
//! [`server::Server`] owns the open engine, the driver and all sockets, on one thread. One turn of its loop:
//! run the engine until it wants nothing, put the replies of each connection into one send, submit all of it
//! at once, wait, and take in what has come. Several volumes are several of them ([`house`]).
#![forbid(unsafe_code)]

mod answer;
pub mod ask;
pub mod attach;
mod callers;
mod connection;
mod control;
mod desk;
pub mod door;
mod events;
mod flight;
pub mod house;
mod input;
mod listen;
pub mod lost;
pub mod map;
mod meter;
mod notify;
pub mod plan_tape;
pub mod protection;
mod record;
mod recording;
mod requests;
pub mod scrub;
pub mod served;
pub mod server;
pub mod status;
pub mod successor;
mod tape;
mod taped;
mod trouble;
mod watched;
pub mod why;

pub use ask::{Answer, FlightDoc, PinsDoc, Question, RecordingDoc, ScrubReport, TapeDoc};
pub use control::{live_answer, live_status};
pub use desk::pin_event;
pub use door::{Door, Reception};
pub use events::EVENT_TARGET;
pub use flight::{Handover, live_flight};
pub use house::Tenant;
pub use listen::{Access, Address, Endpoint, ListenError};
pub use lost::{LossDoc, LossesDoc};
pub use meter::{KindDoc, RESPONSE_BOUNDS_US, RESPONSE_CLASSES, RequestsDoc};
pub use recording::{Recording, live_recording};
pub use served::Served;
pub use server::{CLIENT_MEMORY_BYTES, Opened, ServeError, Server};
pub use status::{STATUS_VERSION, StatusDoc, VolumeName};
pub use tape::{Batch, Recorded};
pub use taped::{Tape, live_tape};
pub use watched::{EventDoc, EventKind, EventLevel, Watcher, unix_ms};
pub use why::WhyDoc;
