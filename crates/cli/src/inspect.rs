//! What a device holds before it is overwritten.

use crate::bytes::{Bytes, Data};
use crate::paths;
use crate::progress::Progress;
use crate::signatures::{self, BLOCK};
use anyhow::Context as _;
use bimetal_driver::BlockFile;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes that are read at a time, and looked at from each end of a device before anything else.
const WINDOW: u64 = 4 << 20;
/// Times that a device is probed again after what was found has been erased.
const MAX_LAYERS: usize = 4;
/// Bytes of data looked through at most before a file counts as holding something.
const MAX_SCAN: u64 = 256 << 20;
/// Pieces of a block device that are looked at, evenly strewn over it, before it is read in order.
const SAMPLES: u64 = 4096;
/// Bytes of each.
const SAMPLE: u64 = 64 << 10;
/// How long a block device is looked at. Most SSDs of some hundred GB are read to their end in that time.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a look at a device came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    /// What it holds, in a phrase; `None` when it does not exist, is empty or showed only zeros.
    pub(crate) found: Option<String>,
    /// Of a block device that could not be read to its end in time: how much of it was looked at, bytes.
    pub(crate) seen_only: Option<u64>,
}

impl Look {
    fn found(what: String) -> Look {
        Look { found: Some(what), seen_only: None }
    }
}

/// Says what a device holds. A block device knows no holes, so it is read as far as there is time: first both ends, then
/// pieces all over it, then all of it in order. A file that was written full of zeros takes a disk seconds, too: `quiet` is
/// without progress on the terminal.
pub(crate) fn contents(device: &BlockFile, quiet: bool) -> anyhow::Result<Look> {
    match paths::is_export(device.path()) {
        // It may take no other client beside this one.
        true => look_through(device, device.size_bytes(), device.path(), quiet, PATIENCE),
        false => look(device.path(), quiet, PATIENCE),
    }
}

/// Says what a device holds as far as that shows at once: known signatures, and bytes at its ends.
pub(crate) fn glance(path: &Path) -> anyhow::Result<Look> {
    if paths::is_export(path) {
        let device = BlockFile::open(path)?;
        return look_through(&device, device.size_bytes(), path, true, Duration::ZERO);
    }
    look(path, true, Duration::ZERO)
}

fn look(path: &Path, quiet: bool, patience: Duration) -> anyhow::Result<Look> {
    let look = || format!("cannot look at what {} holds", path.display());
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Look::default()),
        Err(error) => return Err(error).with_context(look),
    };
    let meta = file.metadata().with_context(look)?;
    if meta.is_dir() {
        return Ok(Look::default());
    }
    let size = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))
        .map_err(std::io::Error::from)
        .with_context(look)?;
    look_through(&file, size, path, quiet, patience)
}

fn look_through(
    bytes: &dyn Bytes,
    size: u64,
    path: &Path,
    quiet: bool,
    patience: Duration,
) -> anyhow::Result<Look> {
    let look = || format!("cannot look at what {} holds", path.display());
    if let Some(found) = signatures::phrase(&signatures::probe(bytes, size).with_context(look)?) {
        return Ok(Look::found(found));
    }
    let mut progress = Progress::new(format!("looking at what {} holds", path.display()), quiet);
    data(bytes, size, patience, |scanned| progress.bytes(scanned)).with_context(look)
}

/// Erases every known signature of a device that is about to be overwritten, so that whoever probes it later
/// finds only what comes next.
pub(crate) fn wipe(device: &BlockFile) -> anyhow::Result<()> {
    let look = || format!("cannot look at what {} holds", device.path().display());
    let is_export = paths::is_export(device.path());
    let file = if is_export { None } else { Some(File::open(device.path()).with_context(look)?) };
    let bytes: &dyn Bytes = file.as_ref().map_or(device, |file| file);
    // One signature may hide another, as a table its copy.
    for _ in 0..MAX_LAYERS {
        let found = signatures::probe(bytes, device.size_bytes()).with_context(look)?;
        if found.is_empty() {
            return Ok(());
        }
        let end = device.size_bytes() / BLOCK * BLOCK;
        for one in found {
            let at = one.at / BLOCK * BLOCK;
            if at < end {
                device.erase(at, BLOCK)?;
            } else if is_export {
                device.erase_tail(end)?;
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

/// Looks for bytes that are not zero: in all data of a file, as far as that is little; elsewhere as far as there is time.
fn data(
    file: &dyn Bytes,
    size: u64,
    patience: Duration,
    mut scanned_so_far: impl FnMut(u64),
) -> std::io::Result<Look> {
    let (mut at, mut scanned) = (0u64, 0u64);
    while at < size {
        let end = match file.data_from(at, size) {
            Some(Data::At(begin, end)) => {
                at = begin;
                end
            }
            Some(Data::Nowhere) => return Ok(Look::default()),
            None => return throughout(file, size, patience, scanned_so_far),
        };
        while at < end {
            if scanned >= MAX_SCAN {
                let much = || format!("more than {} of allocated data", crate::size::show(MAX_SCAN));
                return Ok(Look::found(ends(file, size)?.unwrap_or_else(much)));
            }
            let piece = read(file, at, WINDOW.min(end - at))?;
            if let Some(place) = not_zero(&piece) {
                return Ok(Look::found(data_at(at + place)));
            }
            at += piece.len() as u64;
            scanned += piece.len() as u64;
            scanned_so_far(scanned);
        }
    }
    Ok(Look::default())
}

/// Looks at both ends, at pieces all over, and then at everything in order, until the time is over. What cannot be read
/// is something, too.
fn throughout(
    file: &dyn Bytes,
    size: u64,
    patience: Duration,
    mut scanned_so_far: impl FnMut(u64),
) -> std::io::Result<Look> {
    if let Some(found) = ends(file, size)? {
        return Ok(Look::found(found));
    }
    let start = Instant::now();
    let mut scanned = size.min(2 * WINDOW);
    let unit = size / SAMPLES / BLOCK * BLOCK;
    let samples = (0..SAMPLES).map(|nth| (nth * unit, SAMPLE)).filter(|_| unit > SAMPLE);
    let in_order = (0..size.div_ceil(WINDOW)).map(|nth| (nth * WINDOW, WINDOW.min(size - nth * WINDOW)));
    for (at, bytes) in samples.chain(in_order) {
        if start.elapsed() >= patience {
            let seen_only = (!patience.is_zero()).then_some(scanned.min(size));
            return Ok(Look { found: None, seen_only });
        }
        let piece = match read(file, at, bytes) {
            Ok(piece) => piece,
            Err(error) => return Ok(Look::found(format!("what cannot be read at {at} ({error})"))),
        };
        if let Some(place) = not_zero(&piece) {
            return Ok(Look::found(data_at(at + place)));
        }
        file.forget(at, bytes);
        scanned += bytes;
        scanned_so_far(scanned);
    }
    Ok(Look::default())
}

fn ends(file: &dyn Bytes, size: u64) -> std::io::Result<Option<String>> {
    for at in [0, size.saturating_sub(WINDOW)] {
        let piece = read(file, at, WINDOW.min(size - at))?;
        if let Some(place) = not_zero(&piece) {
            return Ok(Some(data_at(at + place)));
        }
    }
    Ok(None)
}

fn data_at(place: u64) -> String {
    format!("data (a byte that is not zero is at {place})")
}

/// The first byte that is not zero.
fn not_zero(bytes: &[u8]) -> Option<u64> {
    const ZEROS: [u8; BLOCK as usize] = [0; BLOCK as usize];
    // Compared block by block, which is many times faster than byte by byte.
    let nth = bytes.chunks(ZEROS.len()).position(|block| *block != ZEROS[..block.len()])?;
    let from = nth * ZEROS.len();
    bytes[from..].iter().position(|&byte| byte != 0).map(|place| (from + place) as u64)
}

fn read(file: &dyn Bytes, at: u64, len: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sparse file, looked through as a device that knows no holes is.
    fn seen(size: u64, byte_at: Option<u64>, patience: Duration) -> Look {
        let file = tempfile::tempfile().expect("temporary file");
        file.set_len(size).expect("size");
        if let Some(at) = byte_at {
            file.write_all_at(b"x", at).expect("write");
        }
        throughout(&file, size, patience, |_| {}).expect("a look")
    }

    #[test]
    fn a_byte_anywhere_is_found_where_there_is_time() {
        for size in [1, 511, 4096, 5 << 20, (300 << 20) + 7 * 512] {
            assert_eq!(seen(size, None, PATIENCE), Look::default(), "{size}");
            let places = [0, 1, 4095, 4096, size / 3, size / 2, size - WINDOW.min(size), size - 1];
            for at in places.into_iter().filter(|at| *at < size) {
                let found = seen(size, Some(at), PATIENCE).found.unwrap_or_default();
                assert!(found.ends_with(&format!(" {at})")), "{at} of {size}: {found}");
            }
        }
    }

    #[test]
    fn who_looks_for_a_moment_only_says_how_much_was_seen() {
        let seen = seen(1 << 40, None, Duration::from_millis(1));
        assert!(seen.found.is_none() && seen.seen_only.is_some_and(|bytes| bytes < 1 << 40), "{seen:?}");
    }

    #[test]
    fn what_lies_all_over_a_large_device_is_found_at_once() {
        let file = tempfile::tempfile().expect("temporary file");
        file.set_len(1 << 40).expect("size");
        for nth in 0..64 {
            file.write_all_at(&[1; 1 << 16], (nth * 16 + 7) << 30).expect("write");
        }
        let found = throughout(&file, 1 << 40, PATIENCE, |_| {}).expect("a look").found;
        assert!(found.is_some_and(|what| what.contains(&(7u64 << 30).to_string())));
    }
}
