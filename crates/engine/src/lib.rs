//! The tiered volume: a sans-I/O state machine.
//!
//! Requests come in, actions go out, completions come back; see [`Machine`] and [`Engine`]. The way
//! of a request through the rooms: `api/action` → `path/requests` (cut into pieces) → `path/locks` → `path/piece` →
//! `path/read`, or `path/write` (choose the way) → `volume/pending` or `path/log` → `path/commit` (flush, record, show) →
//! `path/gate` (free, show, reply). In the background `placement` and `mover/plan` choose, `mover/moves` carries out, and
//! `path/checkpoint` lets the log's tail go. Around it, in `life`: `create`, `open` (`recovery`, `replay`), `check`, `repair`.

mod answers;
mod api;
mod base;
mod engine;
pub mod format;
mod io;
mod life;
mod mover;
mod path;
mod placement;
mod volume;

pub use api::action::Machine;
pub use api::{action, coverage, economy, extents, moments, options, setting, why};
pub use base::{arena, bugs, mask, sectors, slab};
pub use engine::Engine;
pub use life::check::check;
pub use life::create::create;
pub use life::open::open;
pub use life::ram::{landing_ram_bytes_least, ram_bytes_at_most};
pub use life::repair::repair;
pub use life::task::Task;
pub use placement::{pins, policy};
