//! A small blocking NBD client that keeps several requests in flight.

use bimetal_nbd::{
    ClientHandshake, ClientStep, REQUEST_HEADER_BYTES, Request, SIMPLE_REPLY_BYTES, SimpleReply,
    encode_request, parse_simple_reply,
};
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A server that does not answer for so long hangs.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

pub(crate) struct Client {
    stream: UnixStream,
    out: Vec<u8>,
    pub(crate) size_bytes: u64,
}

impl Client {
    pub(crate) fn connect(socket: &Path) -> io::Result<Client> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        stream.set_write_timeout(Some(ANSWER_WITHIN))?;
        let mut handshake = ClientHandshake::new("").map_err(io::Error::other)?;
        let (mut input, mut out) = (Vec::new(), Vec::new());
        loop {
            let (used, step) = handshake.on_bytes(&input, &mut out).map_err(io::Error::other)?;
            input.drain(..used);
            stream.write_all(&out)?;
            out.clear();
            if let ClientStep::Transmission(export) = step {
                return Ok(Client { stream, out, size_bytes: export.size_bytes });
            }
            let mut piece = [0; 4096];
            match stream.read(&mut piece) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => input.extend_from_slice(&piece[..count]),
                // Under a timeout the kernel does not take a read up again by itself.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Queues a request; [`Client::send`] sends what is queued.
    pub(crate) fn queue(&mut self, request: &Request, payload: &[u8]) {
        let header: [u8; REQUEST_HEADER_BYTES] = encode_request(request);
        self.out.extend_from_slice(&header);
        self.out.extend_from_slice(payload);
    }

    pub(crate) fn send(&mut self) -> io::Result<()> {
        let result = self.stream.write_all(&self.out);
        self.out.clear();
        result
    }

    /// The header of the next reply; after a read's the caller takes the data.
    pub(crate) fn reply(&mut self) -> io::Result<SimpleReply> {
        let mut header = [0; SIMPLE_REPLY_BYTES];
        self.stream.read_exact(&mut header)?;
        let reply = parse_simple_reply(&header).map_err(io::Error::other)?;
        reply.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    pub(crate) fn data(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.stream.read_exact(bytes)
    }
}
