//! The bytes of one file, decompressed, with a bounded buffer to look ahead in.

use crate::Place;
use std::io::{self, Read};

/// The longest line that is read; a longer one is malformed.
pub const MAX_LINE_BYTES: usize = 8192;
/// How far ahead can be looked. What a file is, is decided by no more than this.
pub(crate) const LOOK_AHEAD: usize = 64 << 10;
const BUFFER: usize = 2 * LOOK_AHEAD;

/// A stream of bytes.
pub(crate) struct Input {
    inner: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Of `start`, in the whole stream.
    offset: u64,
    /// Lines given out.
    lines: u64,
    ended: bool,
    /// Why nothing more comes; told when all before it is taken.
    failed: Option<io::Error>,
}

/// A line of text without its end.
pub(crate) enum Line<'a> {
    Text(&'a [u8]),
    TooLong,
}

impl Input {
    pub(crate) fn new(inner: Box<dyn Read + Send>) -> Input {
        Input {
            inner,
            buffer: vec![0; BUFFER],
            start: 0,
            end: 0,
            offset: 0,
            lines: 0,
            ended: false,
            failed: None,
        }
    }

    /// Bytes taken so far.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The byte that comes next.
    pub(crate) fn byte(&self) -> Place {
        Place::Byte(self.offset)
    }

    /// The line given out last.
    pub(crate) fn last_line(&self) -> Place {
        Place::Line(self.lines)
    }

    /// The bytes that come next: at least so many, unless the stream ends before.
    pub(crate) fn peek(&mut self, least: usize) -> io::Result<&[u8]> {
        debug_assert!(least <= LOOK_AHEAD, "more than the buffer holds");
        while self.end - self.start < least && !self.ended {
            if self.start > 0 && self.buffer.len() - self.start < least {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            match self.inner.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => (self.ended, self.failed) = (true, Some(error)),
            }
        }
        if self.start == self.end {
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            (self.start, self.end) = (0, 0);
        }
        Ok(&self.buffer[self.start..self.end])
    }

    /// Takes bytes that were looked at.
    pub(crate) fn take(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.end - self.start, "never seen");
        let bytes = bytes.min(self.end - self.start);
        self.start += bytes;
        self.offset += bytes as u64;
    }

    /// Takes bytes without looking at them; false if the stream ends before.
    pub(crate) fn skip(&mut self, mut bytes: u64) -> io::Result<bool> {
        while bytes > 0 {
            let seen = self.peek(1)?.len();
            if seen == 0 {
                return Ok(false);
            }
            let step = bytes.min(seen as u64);
            self.take(step as usize);
            bytes -= step;
        }
        Ok(true)
    }

    /// The next line, or none at the end.
    pub(crate) fn line(&mut self) -> io::Result<Option<Line<'_>>> {
        let mut least = 1;
        let (length, taken) = loop {
            let seen = self.peek(least)?;
            let window = &seen[..seen.len().min(MAX_LINE_BYTES + 1)];
            // What was searched before is searched again: once or twice per buffer.
            match memchr::memchr(b'\n', window) {
                Some(at) => break (at, at + 1),
                None if window.len() > MAX_LINE_BYTES => {
                    self.lines += 1;
                    return self.skip_line().map(|()| Some(Line::TooLong));
                }
                None if seen.len() < least => {
                    let length = seen.len();
                    if length == 0 {
                        return Ok(None);
                    }
                    if let Some(error) = self.failed.take() {
                        // Half a line may look like a whole one.
                        self.take(length);
                        return Err(error);
                    }
                    break (length, length);
                }
                None => least = seen.len() + 1,
            }
        };
        let from = self.start;
        self.take(taken);
        self.lines += 1;
        Ok(Some(Line::Text(self.buffer[from..from + length].trim_ascii())))
    }

    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let seen = self.peek(1)?;
            if seen.is_empty() {
                return Ok(());
            }
            let (found, length) = match memchr::memchr(b'\n', seen) {
                Some(at) => (true, at + 1),
                None => (false, seen.len()),
            };
            self.take(length);
            if found {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives out a few bytes at a time.
    struct Drops(io::Cursor<Vec<u8>>, usize);

    impl Read for Drops {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let most = buffer.len().min(self.1);
            self.0.read(&mut buffer[..most])
        }
    }

    #[test]
    fn lines_are_found_however_the_bytes_come() {
        let long = "x".repeat(3 * BUFFER);
        let edge = "y".repeat(MAX_LINE_BYTES);
        let text = format!("one\n\ntwo \r\n{long}\n{edge}\nlast");
        for drop in [1, 7, 4096, usize::MAX] {
            let mut input = Input::new(Box::new(Drops(io::Cursor::new(text.clone().into_bytes()), drop)));
            let mut found = Vec::new();
            while let Some(line) = input.line().expect("memory") {
                found.push(match line {
                    Line::Text(text) => text.to_vec(),
                    Line::TooLong => b"too long".to_vec(),
                });
            }
            let wanted: [&[u8]; 6] = [b"one", b"", b"two", b"too long", edge.as_bytes(), b"last"];
            assert_eq!(found, wanted, "{drop}");
            assert_eq!(input.last_line(), Place::Line(6));
            assert_eq!(input.offset(), text.len() as u64);
        }
    }
}
