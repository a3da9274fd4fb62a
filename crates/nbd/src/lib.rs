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
//!          <── data_chunk [+ data], hole_chunk, status_chunk, error_chunk   where structured replies are agreed on
//! ```
//!
//! What is spoken: fixed newstyle negotiation, simple replies, and for clients that negotiate them structured
//! replies and the metadata contexts of [`MetaContext`]. TLS and extended headers are refused in the way the
//! specification provides for, so that clients go on without them. Sections named in this crate are those of
//! the specification, `doc/proto.md` in the NBD project's repository.
//!
//! Everything a peer can make us hold or send is bounded; the bounds and their reasons are in [`limits`].
//!
//! Both sides, without a socket between them:
//!
//! ```
//! use bimetal_nbd::{ClientHandshake, ClientStep, Command, Export, Exports, Handshake, HandshakeStep};
//! use bimetal_nbd::{NbdErrno, Parse, Request, Terms, Transmission, encode_request};
//! use std::sync::Arc;
//!
//! let vault =
//!     Export { name: "vault".into(), description: String::new(), size_bytes: 1 << 20, read_only: true };
//! let exports = Arc::new(Exports::new(vec![vault])?);
//! let (mut down, mut up) = (Vec::new(), Vec::new());
//! let mut server = Handshake::new(exports.clone(), &mut down);
//! let mut client = ClientHandshake::new("vault")?;
//! let index = loop {
//!     let (used, step) = client.on_bytes(&down, &mut up)?;
//!     down.drain(..used);
//!     if let ClientStep::Transmission(remote) = &step {
//!         assert_eq!(remote.size_bytes, 1 << 20);
//!     }
//!     let (used, at_server) = server.on_bytes(&up, &mut down)?;
//!     up.drain(..used);
//!     if let (ClientStep::Transmission(_), HandshakeStep::Transmission { export, .. }) = (step, at_server) {
//!         break export;
//!     }
//! };
//!
//! // What clients may not do is told from what makes no sense: the stream goes on.
//! let asked = Request::new(7, Command::Trim, 4096, 4096);
//! let Parse::Request { request, .. } = Transmission::new().next(&encode_request(&asked))? else { panic!() };
//! assert_eq!(request, asked);
//! assert_eq!(request.validate(exports.get(index), &Terms::default()), Err(NbdErrno::NotPermitted));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod chunk;
mod client;
mod error;
mod export;
mod handshake;
pub mod limits;
mod meta;
mod option;
mod reply;
mod request;
mod terms;
mod transmission;
mod uri;
mod wire;

pub use chunk::{DATA_CHUNK_BYTES, HOLE_CHUNK_BYTES, data_chunk, error_chunk, hole_chunk, status_chunk};
pub use client::{BlockSize, ClientError, ClientHandshake, ClientStep, RemoteExport, encode_request};
pub use error::{ExportsError, NbdErrno, ProtocolError};
pub use export::{Export, ExportIndex, Exports, TransmissionFlags};
pub use handshake::{Handshake, HandshakeStep};
pub use reply::{Chunk, ChunkHead, Extent, SimpleReply, parse_chunk, parse_simple_reply};
pub use request::{Command, Request};
pub use terms::{Contexts, MetaContext, Placement, Terms};
pub use transmission::{Parse, Transmission, simple_reply};
pub use uri::{NbdAddress, NbdUri, Secure, UriError};
pub use wire::{CHUNK_HEADER_BYTES, REQUEST_HEADER_BYTES, SIMPLE_REPLY_BYTES};
