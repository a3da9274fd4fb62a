//! What a device holds before it is overwritten.

use crate::progress::Progress;
use crate::signatures::{self, BLOCK};
use anyhow::Context as _;
use bimetal_driver::BlockFile;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Bytes looked at from each end of a device.
const WINDOW: u64 = 4 << 20;
/// Times that a device is probed again after what was found has been erased.
const MAX_LAYERS: usize = 4;
/// Bytes of data looked through at most before a file counts as holding something.
const MAX_SCAN: u64 = 256 << 20;

/// Says what a device holds; `None` when it does not exist, is empty or holds only zeros. A file that was written
/// full of zeros takes a disk seconds to read: `quiet` is without progress on the terminal.
pub(crate) fn contents(path: &Path, quiet: bool) -> anyhow::Result<Option<String>> {
    let look = || format!("cannot look at what {} holds", path.display());
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(look),
    };
    let meta = file.metadata().with_context(look)?;
    if meta.is_dir() {
        return Ok(None);
    }
    let size = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))
        .map_err(std::io::Error::from)
        .with_context(look)?;
    match signatures::phrase(&signatures::probe(&file, size).with_context(look)?) {
        Some(found) => Ok(Some(found)),
        None => {
            let mut progress = Progress::new(format!("looking at what {} holds", path.display()), quiet);
            data(&file, size, |scanned| progress.bytes(scanned)).with_context(look)
        }
    }
}

/// Erases every known signature of a device that is about to be overwritten, so that whoever probes it later
/// finds only what comes next.
pub(crate) fn wipe(device: &BlockFile) -> anyhow::Result<()> {
    let look = || format!("cannot look at what {} holds", device.path().display());
    let file = File::open(device.path()).with_context(look)?;
    // One signature may hide another, as a table its copy.
    for _ in 0..MAX_LAYERS {
        let found = signatures::probe(&file, device.size_bytes()).with_context(look)?;
        if found.is_empty() {
            return Ok(());
        }
        let end = device.size_bytes() / BLOCK * BLOCK;
        for one in found {
            let at = one.at / BLOCK * BLOCK;
            if at < end {
                device.erase(at, BLOCK)?;
            } else {
                erase_tail(device.path(), end, device.size_bytes())?;
            }
        }
    }
    Ok(())
}

/// Erases the odd bytes behind the last whole block, which direct I/O in whole blocks does not reach: the
/// second header of a GPT may be there.
fn erase_tail(path: &Path, from: u64, to: u64) -> anyhow::Result<()> {
    let erase = || -> std::io::Result<()> {
        let file = File::options().write(true).open(path)?;
        file.write_all_at(&vec![0; (to - from) as usize], from)?;
        file.sync_data()
    };
    erase().with_context(|| format!("cannot erase the end of {}", path.display()))
}

/// Looks for bytes that are not zero: in all data of a file, as far as that is little, else at both ends.
fn data(file: &File, size: u64, mut scanned_so_far: impl FnMut(u64)) -> std::io::Result<Option<String>> {
    use rustix::fs::SeekFrom;
    let (mut at, mut scanned) = (0u64, 0u64);
    while at < size {
        let begin = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(begin) => begin,
            // No data up to the end.
            Err(rustix::io::Errno::NXIO) => return Ok(None),
            // A device or file system that knows no holes.
            Err(_) => return ends(file, size),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(begin)).unwrap_or(size);
        at = begin;
        while at < end {
            if scanned >= MAX_SCAN {
                return match ends(file, size)? {
                    Some(found) => Ok(Some(found)),
                    None => Ok(Some(format!("more than {} of allocated data", crate::size::show(MAX_SCAN)))),
                };
            }
            let piece = read(file, at, WINDOW.min(end - at))?;
            if let Some(place) = piece.iter().position(|&byte| byte != 0) {
                return Ok(Some(format!(
                    "data (the first byte that is not zero is at {})",
                    at + place as u64
                )));
            }
            at += piece.len() as u64;
            scanned += piece.len() as u64;
            scanned_so_far(scanned);
        }
    }
    Ok(None)
}

fn ends(file: &File, size: u64) -> std::io::Result<Option<String>> {
    for at in [0, size.saturating_sub(WINDOW)] {
        let piece = read(file, at, WINDOW.min(size - at))?;
        if let Some(place) = piece.iter().position(|&byte| byte != 0) {
            return Ok(Some(format!("data (a byte that is not zero is at {})", at + place as u64)));
        }
    }
    Ok(None)
}

fn read(file: &File, at: u64, len: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}
