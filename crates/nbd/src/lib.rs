//! The NBD wire protocol, sans-I/O: bytes in, decisions and bytes out.
//!
//! A connection is a [`Handshake`], then a [`Transmission`]. Neither owns a socket, a clock or a buffer of
//! payload; the driver reads bytes from wherever they come, shows them, and moves payload itself:
//!
//! ```text
//!   socket ──> receive buffer ──> Handshake::on_bytes ──> replies to send
//!                    │                    └─ Transmission { export }
//!                    └──> Transmission::next ──> Request ──> Request::validate ──> the volume
//!                                                  └─ Write: `length` bytes of payload follow in the stream;
//!                                                     the driver receives them straight into a write buffer
//!   socket <── simple_reply (16 bytes) [+ data of a read] <── the volume
//! ```
//!
//! What is spoken: fixed newstyle negotiation and simple replies. Structured replies, metadata contexts and
//! TLS are refused in the way the specification provides for, so that clients go on without them. Sections
//! named in this crate are those of the specification, `doc/proto.md` in the NBD project's repository.
//!
//! Everything a peer can make us hold or send is bounded; the bounds and their reasons are in [`limits`].
#![forbid(unsafe_code)]

mod client;
mod error;
mod export;
mod handshake;
pub mod limits;
mod option;
mod request;
mod transmission;
mod wire;

pub use client::{
    BlockSize, ClientError, ClientHandshake, ClientStep, RemoteExport, SimpleReply, encode_request,
    parse_simple_reply,
};
pub use error::{ExportsError, NbdErrno, ProtocolError};
pub use export::{Export, ExportIndex, Exports, TransmissionFlags};
pub use handshake::{Handshake, HandshakeStep};
pub use request::{Command, Request};
pub use transmission::{Parse, Transmission, simple_reply};
pub use wire::{REQUEST_HEADER_BYTES, SIMPLE_REPLY_BYTES};
