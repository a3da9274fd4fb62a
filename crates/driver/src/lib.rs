//! The production loop: one thread, one io_uring ring, for sockets and device files alike.
//!
//! A [`Driver`] owns the ring and the device files and serves any engine [`Machine`](bimetal_engine::Machine):
//! it turns actions into submissions and completions into calls. Whoever owns the sockets (the crate that
//! serves exports) submits on the same ring through [`Ring`] and gets its completions back from
//! [`Driver::harvest`]. Nothing here blocks but [`Ring::submit_and_wait`].
//!
//! ```text
//!   clients ──> sockets ──┐                     ┌── Machine (engine, or create / open / check)
//!                         ├── Ring ── Driver ───┤
//!   device files,         │                     └── RealArena: every payload byte, registered once
//!   exports of others ────┘
//! ```
//!
//! Unsafe code stands in seven modules only, each block with its argument: `blockdev` (what the kernel says
//! about a block device, and locks of ranges), [`fiemap`] (where a file lies), [`memory`] (the mapping, and what becomes of memory), [`ring`] (submissions and the buffers they name),
//! [`signals`] (signalfd), [`inherit`] (descriptors that a service manager opened) and [`ublk`] (the kernel's memory with
//! the requests of a device).

mod blockdev;
pub mod buddy;
mod claims;
pub mod clock;
pub mod device;
pub mod driver;
pub mod fiemap;
pub mod inherit;
pub mod kernel_nbd;
mod load;
pub mod memory;
mod modelled;
mod netlink;
mod ops;
mod remote;
pub mod ring;
pub mod signals;
mod storage;
mod task;
pub mod ublk;
mod watch;

pub use claims::{Claim, Holder, in_use, who_holds};
pub use clock::Clock;
pub use device::{BlockFile, DeviceOpenError, IO_BYTES, IoFacts, RemoteFacts, claim};
pub use driver::Driver;
pub use inherit::{InheritError, inherited_sockets};
pub use load::DeviceLoad;
pub use memory::{ArenaState, Memory, PoolSizes, RealArena, become_io_flusher, lock_memory};
pub use modelled::{Lateness, Timing};
pub use remote::{DialError, REMOTE_PATIENCE, dial};
pub use ring::{Completion, Ring};
pub use storage::{Storage, turns};
pub use task::{TaskError, run_task};
pub use watch::Change;
