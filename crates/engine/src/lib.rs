//! The tiered volume: a sans-I/O state machine.
//!
//! Requests come in, actions go out, completions come back; see [`Machine`] and [`Engine`]. The way
//! of a request through the files: [`action`] → `requests` (cut into pieces) → `locks` → `piece` →
//! `read`, or `write` (choose the path) → `pending` or `log` → `commit` (flush, record, show) → `gate`
//! (free, show, reply). In the background `plan` (with `tail`, `elastic`, `rest`) and `policy` choose, `moves` carries out, and
//! `checkpoint` lets the log's tail go. Around it: `create`, `open` (`recovery`, `replay`), `check`, `repair`.

pub mod action;
mod admission;
pub mod arena;
pub mod bugs;
mod check;
mod checkpoint;
mod claim;
mod commit;
mod copies;
pub mod coverage;
mod create;
mod draft;
mod elastic;
mod engine;
pub mod extents;
mod fast_sums;
mod flush;
pub mod format;
mod gate;
mod hash;
mod landed;
mod lending;
mod locks;
mod log;
mod map;
pub mod mask;
pub mod moments;
mod moves;
mod open;
pub mod options;
mod pages;
mod patience;
mod pending;
mod piece;
pub mod pins;
mod places;
mod plan;
pub mod policy;
mod probe;
mod read;
mod recovery;
mod repair;
mod replay;
mod requests;
mod rest;
pub mod sectors;
mod shadows;
mod shutdown;
pub mod slab;
mod slots;
mod stall;
mod state;
mod stats;
mod streams;
mod sumload;
mod sums;
mod tail;
mod task;
mod tokens;
mod trim;
mod wear;
pub mod why;
mod write;
mod zone;

pub use action::Machine;
pub use check::check;
pub use create::create;
pub use engine::Engine;
pub use open::open;
pub use repair::repair;
pub use stats::{landing_ram_bytes_least, ram_bytes_at_most};
pub use task::Task;
