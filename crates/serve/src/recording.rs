//! The recorder's end of a recording: asks a server to tell of every request, and takes what it tells (`record.rs` is
//! the other end).

use crate::ask::{Answer, Question, RecordingDoc};
use crate::control::{ANSWER_WITHIN, MAX_DOCUMENT_BYTES, enter, hear};
use crate::tape::{Batch, take_batch};
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

/// What is taken from the socket at once: about what the kernel keeps there.
const READ_BYTES: usize = 256 << 10;

/// A recording that is under way. Its descriptor is readable when there is something to take.
#[derive(Debug)]
pub struct Recording {
    stream: UnixStream,
    /// What is being recorded.
    pub doc: RecordingDoc,
    bytes: Vec<u8>,
    ended: bool,
}

/// Begins to record the volume behind a control socket, or gives the sentence that says why not; `None` when there is no
/// server.
///
/// # Errors
/// When the server does not answer within seconds, or with nonsense.
pub fn live_recording(socket: &Path) -> io::Result<Option<Result<Recording, String>>> {
    let Some(mut stream) = enter(socket)? else { return Ok(None) };
    let mut line = serde_json::to_vec(&Question::Record {})?;
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
    Ok(Some(match answer {
        Answer::Recording(doc) => {
            bytes.drain(..=end);
            stream.set_read_timeout(None)?;
            Ok(Recording { stream, doc, bytes, ended: false })
        }
        Answer::Refused(why) => Err(why),
        _ => return Err(nonsense()),
    }))
}

fn nonsense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "its answer makes no sense; it may be of another release")
}

impl Recording {
    /// Waits for what the server tells next, and gives what is complete: perhaps nothing. `None` when the server is gone.
    ///
    /// # Errors
    /// When what comes is no recording.
    pub fn take(&mut self) -> io::Result<Option<Vec<Batch>>> {
        let mut batches = Vec::new();
        while let Some(batch) = take_batch(&mut self.bytes)? {
            batches.push(batch);
        }
        if !batches.is_empty() {
            return Ok(Some(batches));
        }
        if self.ended {
            return Ok(None);
        }
        let length = self.bytes.len();
        self.bytes.resize(length + READ_BYTES, 0);
        let read = self.stream.read(&mut self.bytes[length..]);
        self.bytes.truncate(length + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => self.ended = true,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => self.ended = true,
            Err(error) => return Err(error),
        }
        while let Some(batch) = take_batch(&mut self.bytes)? {
            batches.push(batch);
        }
        Ok((!batches.is_empty() || !self.ended).then_some(batches))
    }

    /// Asks the server to end it: it tells the rest, and that this is all.
    pub fn finish(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}

impl AsFd for Recording {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
