//! A session with an export of an NBD server, sans-I/O: what is promised of it outlives its connections.
//!
//! | file | owns |
//! |---|---|
//! | `session` | **what is promised**: what is asked, what is on its way, what is not flushed |
//! | `journal` | the bytes that a server may still forget |
//! | `piece`, `replies` | requests, and what is answered to them |
//! | `seal` | by what an export is known as the slow device that it was |
//!
//! It owns no socket, no clock and no payload. Who drives it does what [`Session::wish`] says, sends what [`Session::fill`]
//! gives, and tells what happened:
//!
//! ```
//! use bimetal_engine::arena::Buf;
//! use bimetal_remote::{Agreed, Ask, Outbox, Payload, Session, Wish};
//! use bimetal_units::Nanos;
//!
//! struct Memory(Vec<u8>);
//! impl Payload for Memory {
//!     fn load(&mut self, buf: Buf, out: &mut Vec<u8>) {
//!         out.extend_from_slice(&self.0[buf.start as usize..][..buf.len as usize]);
//!     }
//!     fn store(&mut self, buf: Buf, bytes: &[u8]) {
//!         self.0[buf.start as usize..][..bytes.len()].copy_from_slice(bytes);
//!     }
//! }
//!
//! let agreed = Agreed {
//!     size_bytes: 1 << 20,
//!     read_only: false,
//!     flush: true,
//!     fua: true,
//!     trim: true,
//!     multi: false,
//!     most_bytes: 1 << 20,
//! };
//! let (mut session, now) = (Session::new(agreed, 120 * Nanos::SECOND, Nanos(0)), Nanos(0));
//! session.ask(now, Ask::Read { offset: 0, buf: Buf { start: 0, len: 4096 } }, 7);
//! assert_eq!(session.wish(now), Wish::Dial);
//! session.dialing();
//! session.connected(now, agreed, 1);
//! let mut scratch = [0; 4096];
//! let mut out = Outbox::new(&mut scratch, 16);
//! assert!(session.fill(0, now, 8, &mut out));
//! assert_eq!(out.used(), 28, "a header");
//! session.sent(0, now, &mut Memory(vec![0; 4096]));
//! ```

pub mod bugs;
mod journal;
mod piece;
mod replies;
mod seal;
mod session;
#[cfg(test)]
mod tests;

pub use session::{
    Agreed, Ask, Doubt, JOURNAL_BYTES, Judge, News, Outbox, PIECE_BYTES, Part, Payload, Seal, Session,
    Standing, Wish,
};
