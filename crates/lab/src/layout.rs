//! Files that jobs need, made before they run.

use crate::load::stamped;
use crate::target::FileError;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

/// What is written at a time.
const WRITE_BYTES: usize = 1 << 20;

/// Makes a file of at least so many bytes, whose space is reserved; with `written`, in full from where it ended, so that
/// reads of it are reads of data. Whether anything had to be done; `progress` is told bytes, and says on `false` to stop.
///
/// # Errors
/// When it cannot be made or written, or was stopped: then the file is as long as it was, and one that was not there is
/// removed.
pub fn lay_out(
    path: &Path,
    bytes: u64,
    written: bool,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<bool, FileError> {
    let wrong = |what| move |error: io::Error| FileError::System { what, path: path.into(), error };
    let is_new = !path.exists();
    // As fio does, for names such as jobs/1/data.
    let folder = path.parent().filter(|folder| is_new && !folder.as_os_str().is_empty());
    folder.map_or(Ok(()), std::fs::create_dir_all).map_err(wrong("make the folder of"))?;
    let options = OpenOptions::new().read(true).write(true).create(true).mode(0o600).clone();
    let mut file = options.open(path).map_err(wrong("open"))?;
    let there = file.metadata().map_err(wrong("examine"))?;
    if !there.is_file() || there.len() >= bytes {
        return Ok(false);
    }
    let (what, done) = match written {
        true => ("write", fill(&mut file, there.len(), bytes, progress)),
        false => ("reserve the space of", reserve(&file, bytes)),
    };
    match done {
        Ok(()) => Ok(true),
        Err(error) => {
            // A file that was begun only would be taken for somebody's by the next run. What the error was says more
            // than that this fails, too.
            let _ = if is_new { std::fs::remove_file(path) } else { file.set_len(there.len()) };
            Err(wrong(what)(error))
        }
    }
}

/// As fio does it (its `fallocate=native`): a file without space of its own would have each first write find some, which
/// a file system does apart from the I/O and one after the other. Where none can be reserved, the file is only made so
/// long.
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    use rustix::io::Errno;
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(bytes),
        Err(errno) => Err(errno.into()),
    }
}

fn fill(file: &mut File, from: u64, to: u64, progress: &mut dyn FnMut(u64, u64) -> bool) -> io::Result<()> {
    let mut at = from;
    let mut buffer = vec![0; WRITE_BYTES];
    while at < to {
        let len = (to - at).min(WRITE_BYTES as u64) as usize;
        stamped(&mut buffer[..len], 0, at);
        file.write_all_at(&buffer[..len], at)?;
        at += len as u64;
        if !progress(at - from, to - from) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted"));
        }
    }
    file.flush()?;
    file.sync_all()
}
