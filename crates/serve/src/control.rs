//! Asks the server of a volume, over its control socket (`desk.rs` is its other end).

use crate::ask::{Answer, Question};
use crate::listen::try_connect;
use crate::status::StatusDoc;
use rustix::io::Errno;
use serde::Deserialize;
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a living server may take to answer: it does so between two turns of its loop, whatever its devices do.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long it may take to make a change of the pins durable, once it has answered something else: its device may be
/// silent for half a minute and live.
const CHANGE_WITHIN: Duration = Duration::from_secs(90);
/// How long it may take to make a device of the machine, or to take one away: the kernel reads its partitions.
const ATTACH_WITHIN: Duration = Duration::from_secs(120);
/// How often it is asked at most, while it has too many visitors, and how long is waited in between.
const MAX_CALLS: u32 = 40;
const BETWEEN_CALLS: Duration = Duration::from_millis(50);
/// Longest document taken.
const MAX_DOCUMENT_BYTES: u64 = 1 << 20;

/// Asks the server behind a control socket for the volume's status; `None` when there is none.
pub fn live_status(socket: &Path) -> io::Result<Option<StatusDoc>> {
    let Some(text) = talk(socket, b"", ANSWER_WITHIN)? else { return Ok(None) };
    match serde_json::from_str(&text) {
        Ok(status) => Ok(Some(status)),
        // What else it says is why not.
        Err(error) => Err(match serde_json::from_str(&text) {
            Ok(Answer::Refused(what)) => io::Error::new(io::ErrorKind::PermissionDenied, what),
            _ => error.into(),
        }),
    }
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
    let mut patience = ANSWER_WITHIN;
    if matches!(question, Question::Pin { .. } | Question::Unpin { .. }) {
        // Whether it lives is not to be waited for that long.
        if live_status(socket)?.is_none() {
            return Ok(None);
        }
        patience = CHANGE_WITHIN;
    }
    if matches!(question, Question::Attach(_) | Question::Detach {}) {
        patience = ATTACH_WITHIN;
    }
    let Some(text) = talk(socket, &line, patience)? else { return Ok(None) };
    match serde_json::from_str(&text)? {
        Told::Answer(answer) => Ok(Some(answer)),
        Told::Status(status) => {
            let what = format!("the server of {} is of an older release; restart it", status.volume);
            Ok(Some(Answer::Refused(what)))
        }
    }
}

/// Says something to the server, and takes what it answers. One that has too many visitors ends the stream at once.
fn talk(socket: &Path, said: &[u8], patience: Duration) -> io::Result<Option<String>> {
    for _ in 0..MAX_CALLS {
        match call(socket, said, Instant::now() + patience)? {
            Some(nothing) if nothing.is_empty() => std::thread::sleep(BETWEEN_CALLS),
            answer => return Ok(answer),
        }
    }
    Err(io::Error::other("too many ask it at once"))
}

/// What is to be said of a server that takes connections and does not answer.
fn silent() -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        "it is there, and says nothing; its process may be stopped (continue it with SIGCONT) or hang",
    )
}

/// Goes to a server, who has so long to answer; `None` when there is none.
fn enter(socket: &Path) -> io::Result<Option<UnixStream>> {
    let until = Instant::now() + ANSWER_WITHIN;
    let stream = loop {
        match try_connect(socket) {
            Ok(stream) => break UnixStream::from(stream),
            Err(Errno::NOENT | Errno::CONNREFUSED) => return Ok(None),
            // Too many wait to be let in.
            Err(Errno::AGAIN) if Instant::now() < until => std::thread::sleep(BETWEEN_CALLS),
            Err(Errno::AGAIN) => return Err(silent()),
            Err(errno) => return Err(errno.into()),
        }
    };
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    stream.set_write_timeout(Some(ANSWER_WITHIN))?;
    Ok(Some(stream))
}

/// What is to be said of an answer that is none.
pub(crate) fn nonsense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "its answer makes no sense; it may be of another release")
}

/// Asks something whose answer is a line with more behind it: the stream, the answer, and what came behind that so far. `None`
/// when there is no server.
pub(crate) fn greet(socket: &Path, question: &Question) -> io::Result<Option<(UnixStream, Answer, Vec<u8>)>> {
    let Some(mut stream) = enter(socket)? else { return Ok(None) };
    let mut line = serde_json::to_vec(question)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let (mut bytes, until) = (Vec::new(), Instant::now() + ANSWER_WITHIN);
    let end = loop {
        let seen = bytes.len();
        let mut piece = [0; 4096];
        let count = hear(&mut stream, &mut piece, until)?;
        bytes.extend_from_slice(&piece[..count]);
        match bytes[seen..].iter().position(|&byte| byte == b'\n') {
            Some(at) => break seen + at,
            // Who refuses says so in a document without a line's end.
            None if count == 0 => break bytes.len(),
            None if bytes.len() as u64 > MAX_DOCUMENT_BYTES => return Err(nonsense()),
            None => {}
        }
    };
    if bytes.is_empty() {
        return Err(io::Error::other("too many ask it at once"));
    }
    let answer = serde_json::from_slice(&bytes[..end]).map_err(|_| nonsense())?;
    bytes.drain(..(end + 1).min(bytes.len()));
    Ok(Some((stream, answer, bytes)))
}

/// What comes next on a stream with a timeout, before that time; nothing at its end.
fn hear(stream: &mut UnixStream, piece: &mut [u8], until: Instant) -> io::Result<usize> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(silent());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(piece) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(silent()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

fn call(socket: &Path, said: &[u8], until: Instant) -> io::Result<Option<String>> {
    let Some(mut stream) = enter(socket)? else { return Ok(None) };
    // A server that ends the stream at once is asked no more, but may have answered.
    let _ = stream.write_all(said).and_then(|()| stream.shutdown(Shutdown::Write));
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match hear(&mut stream, &mut piece, until) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
            // A killed server's socket takes connections until the kernel is through with the last of its operations.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(error),
        }
        if bytes.len() as u64 > MAX_DOCUMENT_BYTES {
            return Err(io::Error::other("its answer has no end"));
        }
    }
    String::from_utf8(bytes).map(Some).map_err(|_| io::Error::other("its answer is no text"))
}
