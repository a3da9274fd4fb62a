//! An NBD server that does nothing: it answers whatever is asked, as fast as it can be said.

use bimetal_nbd::{
    Command, Export, Exports, Handshake, HandshakeStep, NbdErrno, Parse, Request, Transmission, simple_reply,
};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Serves an export of so many bytes to one client, until it leaves. Of each request `refused` says why it fails, if it
/// does.
pub fn serve(mut socket: UnixStream, size_bytes: u64, mut refused: impl FnMut(&Request) -> Option<NbdErrno>) {
    let export = Export { name: "x".to_owned(), description: String::new(), size_bytes, read_only: false };
    let exports = Arc::new(Exports::new(vec![export]).expect("one export"));
    let (mut input, mut out, mut more) = (Vec::new(), Vec::new(), vec![0; 256 << 10]);
    let mut handshake = Handshake::new(exports, &mut out);
    loop {
        if socket.write_all(&out).is_err() {
            return;
        }
        out.clear();
        let Ok(read @ 1..) = socket.read(&mut more) else { return };
        input.extend_from_slice(&more[..read]);
        let Ok((used, step)) = handshake.on_bytes(&input, &mut out) else { return };
        input.drain(..used);
        if let HandshakeStep::Transmission { .. } = step {
            break;
        }
    }
    let mut requests = Transmission::new();
    loop {
        let mut at = 0;
        while let Ok(Parse::Request { consumed, request }) = requests.next(&input[at..]) {
            let whole = consumed + request.payload_bytes() as usize;
            if input.len() - at < whole {
                break;
            }
            at += whole;
            let error = refused(&request);
            out.extend_from_slice(&simple_reply(request.cookie, error));
            if request.command == Command::Read && error.is_none() {
                out.resize(out.len() + request.length as usize, 0);
            }
        }
        input.drain(..at);
        if socket.write_all(&out).is_err() {
            return;
        }
        out.clear();
        let Ok(read @ 1..) = socket.read(&mut more) else { return };
        input.extend_from_slice(&more[..read]);
    }
}
