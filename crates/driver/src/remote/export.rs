//! An export that was found and can hold a volume's device.

use super::dial::DialError;
use super::line::Line;
use crate::device::IO_BYTES;
use bimetal_nbd::{NbdUri, RemoteExport};
use bimetal_remote::Agreed;
use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How long reads and writes wait for an export that is away, where nobody says otherwise: a server's restart and most
/// failovers of a cluster are over by then. It is what iSCSI waits, too.
pub const REMOTE_PATIENCE: Duration = Duration::from_secs(120);

/// A connection that breaks while an export is looked at is made again, so many times ...
const LINE_TRIES: u32 = 5;
/// ... after this.
const LINE_PAUSE: Duration = Duration::from_millis(200);

/// Whether a connection broke, or could not be made: the export itself says nothing of the kind.
fn is_break(error: &io::Error) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof,
    };
    let kinds = [BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof];
    kinds.contains(&error.kind())
}

/// Whether somebody was there, and the connection was cut: not every one who looks in that moment is to be told so.
fn is_cut(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    [BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof].contains(&error.kind())
}

/// Connects for the first time.
fn find(uri: &NbdUri) -> Result<(Line, RemoteExport), DialError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match Line::dial(uri) {
            Err(DialError::System(error)) if tries < LINE_TRIES && is_cut(&error) => {
                std::thread::sleep(LINE_PAUSE);
            }
            result => return result,
        }
    }
}

/// What is known of an export, and perhaps a connection to it.
#[derive(Debug)]
pub(crate) struct Export {
    pub(super) uri: NbdUri,
    pub(super) agreed: Agreed,
    pub(super) patience: Duration,
    line: RefCell<Option<Line>>,
}

/// Why an export cannot hold a device.
#[derive(Debug)]
pub(crate) enum Unfit {
    Dial(DialError),
    /// Its blocks are larger than ours, or do not divide them.
    Blocks(u32),
    /// It takes fewer bytes at a time than one of our blocks has.
    Payload(u32),
    ReadOnly,
    NoFlush,
}

impl Export {
    /// Connects, and looks at what the server offers.
    pub(crate) fn find(uri: NbdUri, is_to_be_written: bool) -> Result<Export, Unfit> {
        let (line, found) = find(&uri).map_err(Unfit::Dial)?;
        let smallest = found.block_size.map_or(1, |size| size.minimum);
        let agreed = Agreed::of(&found);
        let most_bytes = found.block_size.map_or(agreed.most_bytes, |size| size.maximum);
        if smallest == 0 || !IO_BYTES.is_multiple_of(smallest) || most_bytes < IO_BYTES {
            line.end();
            return Err(if most_bytes < IO_BYTES {
                Unfit::Payload(most_bytes)
            } else {
                Unfit::Blocks(smallest)
            });
        }
        if is_to_be_written && (agreed.read_only || !agreed.flush) {
            line.end();
            return Err(if agreed.read_only { Unfit::ReadOnly } else { Unfit::NoFlush });
        }
        Ok(Export { uri, agreed, patience: REMOTE_PATIENCE, line: RefCell::new(Some(line)) })
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.agreed.size_bytes
    }

    pub(crate) fn has_fua(&self) -> bool {
        self.agreed.fua
    }

    pub(crate) fn has_trim(&self) -> bool {
        self.agreed.trim
    }

    pub(crate) fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// The connection that it was found by, for a session.
    pub(super) fn take_socket(&self) -> Option<OwnedFd> {
        let line = self.line.borrow_mut().take()?;
        line.into_socket().ok()
    }

    /// Does something with a connection, which is made where there is none; again where that breaks. It must be the same
    /// when it is done twice.
    fn with(&self, mut what: impl FnMut(&mut Line) -> io::Result<()>) -> io::Result<()> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.with_one(&mut what) {
                Err(error) if tries < LINE_TRIES && is_break(&error) => std::thread::sleep(LINE_PAUSE),
                result => return result,
            }
        }
    }

    fn with_one(&self, what: &mut impl FnMut(&mut Line) -> io::Result<()>) -> io::Result<()> {
        let former = self.line.borrow_mut().take();
        let mut line = match former {
            Some(line) => line,
            None => {
                let (line, found) = Line::dial(&self.uri).map_err(|error| match error {
                    DialError::System(error) => error,
                    error => io::Error::other(error.whole()),
                })?;
                if found.size_bytes != self.agreed.size_bytes {
                    return Err(io::Error::other("it has another size than a moment ago"));
                }
                line
            }
        };
        // One that failed is not used again.
        what(&mut line)?;
        *self.line.borrow_mut() = Some(line);
        Ok(())
    }

    /// Reads all of `bytes` at a place.
    pub(crate) fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.with(|line| line.read(at, bytes))
    }

    /// Writes zeros, durably.
    pub(crate) fn erase(&self, at: u64, len: u64) -> io::Result<()> {
        const STEP: u64 = 1 << 20;
        let zeros = vec![0; STEP.min(len) as usize];
        self.with(|line| {
            let mut done = 0;
            while done < len {
                let step = STEP.min(len - done);
                line.write(at + done, &zeros[..step as usize])?;
                done += step;
            }
            line.flush()
        })
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        if let Some(line) = self.line.borrow_mut().take() {
            line.end();
        }
    }
}
