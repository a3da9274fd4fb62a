//! The control socket: whoever connects gets one JSON status document and the end of the stream.

use crate::status::StatusDoc;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long a living server may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Longest document taken.
const MAX_DOCUMENT_BYTES: u64 = 1 << 20;

/// Answers a connection. The document is far smaller than a fresh socket's buffer, so this does not wait;
/// a client for which it would gets nothing.
pub(crate) fn answer(connection: OwnedFd, doc: &StatusDoc) {
    let mut stream = UnixStream::from(connection);
    if stream.set_nonblocking(true).is_ok()
        && let Ok(text) = serde_json::to_vec(doc)
    {
        let _ = stream.write_all(&text);
    }
}

/// Asks the server behind a control socket; `None` when there is none.
pub fn live_status(socket: &Path) -> io::Result<Option<StatusDoc>> {
    let stream = match UnixStream::connect(socket) {
        Ok(stream) => stream,
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => return Ok(None),
            _ => return Err(error),
        },
    };
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    let mut text = String::new();
    match stream.take(MAX_DOCUMENT_BYTES).read_to_string(&mut text) {
        // A killed server's socket takes connections until the kernel is through with the last of its operations.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
        read => read?,
    };
    Ok(Some(serde_json::from_str(&text)?))
}
