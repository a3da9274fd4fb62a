//! Asks the server of a volume, over its control socket (`desk.rs` is its other end).

use crate::ask::{Answer, Question};
use crate::status::StatusDoc;
use serde::Deserialize;
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long a living server may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How often it is asked at most, while it has too many visitors, and how long is waited in between.
const MAX_CALLS: u32 = 40;
const BETWEEN_CALLS: Duration = Duration::from_millis(50);
/// Longest document taken.
pub(crate) const MAX_DOCUMENT_BYTES: u64 = 1 << 20;

/// Asks the server behind a control socket for the volume's status; `None` when there is none.
pub fn live_status(socket: &Path) -> io::Result<Option<StatusDoc>> {
    let Some(text) = talk(socket, b"")? else { return Ok(None) };
    Ok(Some(serde_json::from_str(&text)?))
}

/// Asks the server behind a control socket; `None` when there is none.
pub fn live_answer(socket: &Path, question: &Question) -> io::Result<Option<Answer>> {
    /// A server from before there were questions says how the volume is, whatever it is asked.
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Told {
        Answer(Answer),
        Status(Box<StatusDoc>),
    }
    let mut line = serde_json::to_vec(question)?;
    line.push(b'\n');
    let Some(text) = talk(socket, &line)? else { return Ok(None) };
    match serde_json::from_str(&text)? {
        Told::Answer(answer) => Ok(Some(answer)),
        Told::Status(status) => {
            let what = format!("the server of {} is of an older release; restart it", status.volume);
            Ok(Some(Answer::Refused(what)))
        }
    }
}

/// Says something to the server, and takes what it answers. One that has too many visitors ends the stream at once.
fn talk(socket: &Path, said: &[u8]) -> io::Result<Option<String>> {
    for _ in 0..MAX_CALLS {
        match call(socket, said)? {
            Some(nothing) if nothing.is_empty() => std::thread::sleep(BETWEEN_CALLS),
            answer => return Ok(answer),
        }
    }
    Err(io::Error::other("too many ask it at once"))
}

/// Goes to a server, who has so long to answer; `None` when there is none.
pub(crate) fn enter(socket: &Path) -> io::Result<Option<UnixStream>> {
    let stream = match UnixStream::connect(socket) {
        Ok(stream) => stream,
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => return Ok(None),
            _ => return Err(error),
        },
    };
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    Ok(Some(stream))
}

fn call(socket: &Path, said: &[u8]) -> io::Result<Option<String>> {
    let Some(mut stream) = enter(socket)? else { return Ok(None) };
    // A server that ends the stream at once is asked no more, but may have answered.
    let _ = stream.write_all(said).and_then(|()| stream.shutdown(Shutdown::Write));
    let mut text = String::new();
    match stream.take(MAX_DOCUMENT_BYTES).read_to_string(&mut text) {
        // A killed server's socket takes connections until the kernel is through with the last of its operations.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
        read => read?,
    };
    Ok(Some(text))
}
