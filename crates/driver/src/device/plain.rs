//! Plain I/O on a device, one call after the other: for what is not the engine's business.

use super::{BlockFile, DeviceOpenError, IO_BYTES, Store, system};
use rustix::fs::fdatasync;
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// Moved with one call at most.
const STEP: usize = 1 << 20;

impl BlockFile {
    /// Overwrites whole blocks with zeros, at once and durably.
    pub fn erase(&self, at: u64, bytes: u64) -> Result<(), DeviceOpenError> {
        let unit = u64::from(IO_BYTES);
        assert!(at.is_multiple_of(unit) && bytes.is_multiple_of(unit), "erases {bytes} bytes at {at}");
        let what = "erase a part of";
        if let Store::Export(export) = &self.store {
            return export.erase(at, bytes).map_err(|source| self.system(what, source));
        }
        let mut room = vec![0u8; STEP + IO_BYTES as usize];
        let zeros = aligned(&mut room, STEP);
        let mut done = 0;
        while done < bytes {
            let len = (bytes - done).min(STEP as u64) as usize;
            self.write_all(&zeros[..len], at + done, what)?;
            done += len as u64;
        }
        self.flush()
    }

    /// Writes whole blocks, which are durable once [`BlockFile::flush`] has been called.
    ///
    /// # Errors
    /// What the system says; an export is not written to.
    pub fn write_blocks(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceOpenError> {
        let unit = IO_BYTES as usize;
        assert!(at.is_multiple_of(unit as u64) && bytes.len().is_multiple_of(unit), "writes at {at}");
        let mut room = vec![0u8; STEP.min(bytes.len()) + unit];
        for (part, from) in bytes.chunks(STEP).zip((at..).step_by(STEP)) {
            let block = aligned(&mut room, part.len());
            block.copy_from_slice(part);
            self.write_all(block, from, "write")?;
        }
        Ok(())
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    /// What the system says.
    pub fn flush(&self) -> Result<(), DeviceOpenError> {
        fdatasync(self.local("flush")?).map_err(|e| system(&self.path, "flush", e))
    }

    fn write_all(&self, bytes: &[u8], at: u64, what: &'static str) -> Result<(), DeviceOpenError> {
        let (fd, mut done) = (self.local(what)?, 0);
        while done < bytes.len() {
            match rustix::io::pwrite(fd, &bytes[done..], self.base + at + done as u64) {
                Ok(0) => return Err(system(&self.path, what, Errno::IO)),
                Ok(bytes) => done += bytes,
                Err(Errno::INTR) => {}
                Err(error) => return Err(system(&self.path, what, error)),
            }
        }
        Ok(())
    }

    fn local(&self, what: &'static str) -> Result<&OwnedFd, DeviceOpenError> {
        self.fd().ok_or_else(|| system(&self.path, what, Errno::OPNOTSUPP))
    }

    /// Overwrites the odd bytes of an export behind its last whole block with zeros.
    pub fn erase_tail(&self, from: u64) -> Result<(), DeviceOpenError> {
        match &self.store {
            Store::Export(export) => export
                .erase(from, self.size_bytes.saturating_sub(from))
                .map_err(|error| self.system("erase the end of", error)),
            Store::Local(_) => Err(system(&self.path, "erase the end of", Errno::OPNOTSUPP)),
        }
    }

    /// Reads one block at a multiple of [`IO_BYTES`].
    pub fn read_block(&self, at: u64) -> Result<Vec<u8>, DeviceOpenError> {
        self.read_blocks(at, u64::from(IO_BYTES))
    }

    /// Reads whole blocks.
    pub fn read_blocks(&self, at: u64, bytes: u64) -> Result<Vec<u8>, DeviceOpenError> {
        let unit = u64::from(IO_BYTES);
        assert!(at.is_multiple_of(unit) && bytes.is_multiple_of(unit), "reads {bytes} bytes at {at}");
        let Store::Local(fd) = &self.store else {
            let mut blocks = vec![0; bytes as usize];
            self.read_remote(at, &mut blocks).map_err(|error| self.system("read", error))?;
            return Ok(blocks);
        };
        let mut room = vec![0u8; bytes as usize + IO_BYTES as usize];
        let blocks = aligned(&mut room, bytes as usize);
        let mut done = 0;
        while done < blocks.len() {
            let end = blocks.len().min(done + STEP);
            match rustix::io::pread(fd, &mut blocks[done..end], self.base + at + done as u64) {
                Ok(0) => return Err(system(&self.path, "read", Errno::IO)),
                Ok(bytes) => done += bytes,
                Err(Errno::INTR) => {}
                Err(error) => return Err(system(&self.path, "read", error)),
            }
        }
        Ok(blocks.to_vec())
    }

    /// Reads any bytes of an export.
    pub fn read_remote(&self, at: u64, bytes: &mut [u8]) -> std::io::Result<()> {
        let inside = at.checked_add(bytes.len() as u64).is_some_and(|end| end <= self.size_bytes);
        match &self.store {
            Store::Export(export) if inside => export.read(at, bytes),
            _ => Err(Errno::IO.into()),
        }
    }
}

/// The part of `room` that begins at a multiple of [`IO_BYTES`]; `room` is larger by that much.
fn aligned(room: &mut [u8], len: usize) -> &mut [u8] {
    let start = room.as_ptr().align_offset(IO_BYTES as usize);
    &mut room[start..start + len]
}
