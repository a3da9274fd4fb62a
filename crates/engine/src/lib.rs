//! The tiered volume: a sans-I/O state machine.
//!
//! Requests come in, actions go out, completions come back; see [`Machine`] and [`Engine`]. The way
//! of a request through the rooms: `api/action` → `path/requests` (cut into pieces) → `path/locks` → `path/piece` →
//! `path/read`, or `path/write` (choose the way) → `volume/pending` or `path/log` → `path/commit` (flush, record, show) →
//! `path/gate` (free, show, reply). In the background `placement` and `mover/plan` choose, `mover/moves` carries out, and
//! `path/checkpoint` lets the log's tail go. Around it, in `life`: `create`, `open` (`recovery`, `replay`), `check`, `repair`.
//!
//! A driver is a loop around [`Machine::next_action`]. This one has two devices in memory, and is all that a volume needs:
//!
//! ```
//! use bimetal_engine::action::{Action, Machine, Request, RequestId, RequestKind};
//! use bimetal_engine::arena::{Arena, Buf, Pool};
//! use bimetal_engine::options::{CreateOptions, DeviceInfo, OpenOptions, Tuning};
//! use bimetal_engine::{create, open};
//! use bimetal_units::Nanos;
//!
//! /// Buffers, one behind the other. A real arena uses them again.
//! #[derive(Default)]
//! struct Memory(Vec<u8>);
//!
//! fn range(buf: Buf) -> std::ops::Range<usize> {
//!     buf.start as usize..buf.start as usize + buf.len as usize
//! }
//!
//! impl Arena for Memory {
//!     fn alloc(&mut self, _: Pool, len: u32) -> Option<Buf> {
//!         let start = self.0.len();
//!         self.0.resize(start + len as usize, 0);
//!         Some(Buf { start: start as u64, len })
//!     }
//!     fn free(&mut self, _: Buf) {}
//!     fn crc32c(&self, buf: Buf) -> u32 {
//!         crc32c::crc32c(self.bytes(buf))
//!     }
//!     fn zero(&mut self, buf: Buf) {
//!         self.bytes_mut(buf).fill(0);
//!     }
//!     fn copy(&mut self, to: Buf, from: Buf) {
//!         self.0.copy_within(range(from), to.start as usize);
//!     }
//!     fn bytes(&self, buf: Buf) -> &[u8] {
//!         &self.0[range(buf)]
//!     }
//!     fn bytes_mut(&mut self, buf: Buf) -> &mut [u8] {
//!         &mut self.0[range(buf)]
//!     }
//! }
//!
//! /// Does what is asked until nothing is; whether a request was answered as it should be.
//! fn drive(machine: &mut impl Machine<Arena = Memory>, disks: &mut [Vec<u8>; 2]) -> bool {
//!     let mut answered = false;
//!     while let Some(action) = machine.next_action(Nanos(0)) {
//!         let token = match action {
//!             Action::Read { device, offset, buf, token, .. } => {
//!                 let disk = &disks[usize::from(device.0)][offset as usize..];
//!                 machine.with_arena(|arena| arena.bytes_mut(buf).copy_from_slice(&disk[..buf.len as usize]));
//!                 token
//!             }
//!             Action::Write { device, offset, bufs, token, .. } => {
//!                 let mut at = offset as usize;
//!                 for buf in bufs {
//!                     let disk = &mut disks[usize::from(device.0)][at..at + buf.len as usize];
//!                     machine.with_arena(|arena| disk.copy_from_slice(arena.bytes(buf)));
//!                     at += buf.len as usize;
//!                 }
//!                 token
//!             }
//!             Action::Flush { token, .. } | Action::Discard { token, .. } => token,
//!             Action::Reply { result, .. } => {
//!                 answered = result.is_ok();
//!                 continue;
//!             }
//!         };
//!         machine.on_completion(Nanos(0), token, Ok(()));
//!     }
//!     answered
//! }
//!
//! let mut disks = [vec![0; 16 << 20], vec![0; 32 << 20]];
//! let info = |name: &str, disk: &Vec<u8>| DeviceInfo { name: name.to_owned(), size_bytes: disk.len() as u64 };
//! let devices = vec![info("fast", &disks[0]), info("slow", &disks[1])];
//!
//! let mut task = create(Memory::default(), devices.clone(), CreateOptions::new([1; 16]));
//! drive(&mut task, &mut disks);
//! task.take_result().expect("it ends")?;
//!
//! let mut task = open(Memory::default(), devices, OpenOptions { volume_id: None, tuning: Tuning::default() });
//! drive(&mut task, &mut disks);
//! let mut volume = task.take_result().expect("it ends")?;
//! assert!(volume.size_bytes() > 32 << 20, "one volume of both");
//!
//! let buf = volume.with_arena(|arena| arena.alloc(Pool::Client, 4096)).expect("there is room");
//! for (kind, byte) in [(RequestKind::Write { fua: true }, 42), (RequestKind::Read, 0)] {
//!     volume.with_arena(|arena| arena.bytes_mut(buf).fill(byte));
//!     volume.on_request(
//!         Nanos(0),
//!         Request { id: RequestId(1), kind, offset: 40960, len: 4096, buf: Some(buf) },
//!     );
//!     assert!(drive(&mut volume, &mut disks));
//! }
//! assert!(volume.with_arena(|arena| arena.bytes(buf).iter().all(|&byte| byte == 42)));
//! # Ok::<(), bimetal_engine::options::OpenError>(())
//! ```

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
pub use api::{
    action, coverage, economy, extents, loss, moments, options, scrub, setting, tally, unused, why,
};
pub use base::{arena, bits, bugs, mask, sectors, slab};
pub use engine::Engine;
pub use life::check::check;
pub use life::create::create;
pub use life::lone::{open_alone, open_degraded, open_image, open_to_look};
pub use life::open::open;
pub use life::ram::{landing_ram_bytes_least, ram_bytes_at_most};
pub use life::repair::repair;
pub use life::task::Task;
pub use placement::{pins, policy};
