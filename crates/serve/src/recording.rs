//! The recorder's end of a recording: asks a server to tell of every request, and takes what it tells (`record.rs` is
//! the other end).

use crate::ask::{Answer, Question, RecordingDoc};
use crate::control::{greet, nonsense};
use crate::tape::{Batch, take_batch};
use std::io::{self, Read as _};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

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
    let Some((stream, answer, bytes)) = greet(socket, &Question::Record {})? else { return Ok(None) };
    Ok(Some(match answer {
        Answer::Recording(doc) => {
            stream.set_read_timeout(None)?;
            Ok(Recording { stream, doc, bytes, ended: false })
        }
        Answer::Refused(why) => Err(why),
        _ => return Err(nonsense()),
    }))
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
