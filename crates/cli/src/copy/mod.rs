//! Moving in and out: `bimetal import` and `bimetal export`, between a volume that nobody serves and a disk, a partition or
//! a raw image.
//!
//! Both go in windows. A window is copied, flushed, read back and compared with the checksums of what was to be written;
//! then the journal beside the volume file says how far the copy has come. Whoever is killed goes on after the last window
//! that the journal has, where it is sure that neither side was changed since.

pub(crate) mod args;
mod export;
mod import;
mod journal;
mod lanes;
mod raw;

pub(crate) use export::export;
pub(crate) use import::import;

use crate::progress::Progress;
use crate::volume::Volume;
use crate::{Outcome, find, say, say_json, size};
use anyhow::bail;
use serde::Serialize;
use std::ops::Range;

/// Bytes that are read at once.
const PIECE_BYTES: u64 = 1 << 20;
/// Zeros are left out in units of so many bytes: the smallest chunk of a volume.
const GRAIN_BYTES: usize = 64 << 10;
/// Bytes that are verified, and noted in the journal, together: whoever is killed copies so much again.
const WINDOW_BYTES: u64 = 64 << 20;

/// What was written, to be compared with what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sum {
    at: u64,
    length: u64,
    crc: u32,
}

impl Sum {
    fn of(at: u64, bytes: &[u8]) -> Sum {
        Sum { at, length: bytes.len() as u64, crc: crc32c::crc32c(bytes) }
    }

    /// An error where other bytes are there.
    fn compare(&self, bytes: &[u8], of: &str) -> anyhow::Result<()> {
        if crc32c::crc32c(bytes) == self.crc {
            return Ok(());
        }
        bail!(
            "{of} does not hold what was written to it, in the {} bytes from byte {}; it may be failing: copy to another one",
            self.length,
            self.at
        )
    }
}

/// The windows of a copy of so many bytes from a place on.
fn windows(from: u64, to: u64) -> impl Iterator<Item = Range<u64>> {
    let starts = (from..to).step_by(WINDOW_BYTES as usize);
    starts.map(move |start| start..(start + WINDOW_BYTES).min(to))
}

/// The pieces of a window.
fn pieces(window: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = window.end;
    window.step_by(PIECE_BYTES as usize).map(move |start| start..(start + PIECE_BYTES).min(end))
}

/// Where there are bytes that are not zero, in whole grains.
fn runs(bytes: &[u8]) -> Vec<Range<usize>> {
    static ZEROS: [u8; GRAIN_BYTES] = [0; GRAIN_BYTES];
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (nth, grain) in bytes.chunks(GRAIN_BYTES).enumerate() {
        if *grain == ZEROS[..grain.len()] {
            continue;
        }
        let start = nth * GRAIN_BYTES;
        match runs.last_mut() {
            Some(last) if last.end == start => last.end += grain.len(),
            _ => runs.push(start..start + grain.len()),
        }
    }
    runs
}

/// How far a copy has come.
#[derive(Debug, Serialize)]
struct Copied {
    size_bytes: u64,
    /// Where an earlier run had come to.
    resumed_at_bytes: u64,
    /// Where this one has come to.
    done_bytes: u64,
    /// What this one wrote and read back: the rest is zeros.
    written_bytes: u64,
    complete: bool,
    seconds: f64,
}

/// Says how a copy ended: the document, or in words what was done.
fn report(json: bool, doc: &impl Serialize, copied: &Copied, what: &str) -> anyhow::Result<Outcome> {
    if json {
        say_json(doc)?;
    } else if copied.complete {
        let (all, written) = (size::show(copied.size_bytes), size::show(copied.written_bytes));
        say(&format!("{what}: {all}, of which {written} were written and verified now"));
    }
    Ok(match copied.complete {
        true => Outcome::Good,
        false => Outcome::Problem(format!(
            "stopped after {} of {}; give the command again to go on",
            size::show(copied.done_bytes),
            size::show(copied.size_bytes)
        )),
    })
}

/// Refuses a volume that a server has.
fn refuse_served(volume: &Volume) -> anyhow::Result<()> {
    if find::has_server(volume) {
        bail!("{} is served, and may be written meanwhile; stop its server first", volume.file.display());
    }
    Ok(())
}

fn show_progress(progress: &mut Progress, done: u64, all: u64) {
    let percent = done.saturating_mul(100) / all.max(1);
    progress.at(&format!("{} of {}, {percent} %", size::show(done), size::show(all)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_and_pieces_cover_all_of_it_once() {
        for (from, to) in [(0, 0), (0, 1), (0, WINDOW_BYTES), (WINDOW_BYTES, 3 * WINDOW_BYTES + 4097)] {
            let mut at = from;
            for piece in windows(from, to).flat_map(pieces) {
                assert_eq!(piece.start, at);
                assert!(piece.end > piece.start && piece.end - piece.start <= PIECE_BYTES);
                at = piece.end;
            }
            assert_eq!(at, to);
        }
    }

    #[test]
    fn zeros_are_left_out_by_grains() {
        let mut bytes = vec![0; 5 * GRAIN_BYTES + 10];
        assert!(runs(&bytes).is_empty());
        bytes[GRAIN_BYTES] = 1;
        bytes[3 * GRAIN_BYTES - 1] = 1;
        assert_eq!((runs(&bytes).len(), runs(&bytes)[0].clone()), (1, GRAIN_BYTES..3 * GRAIN_BYTES));
        bytes[5 * GRAIN_BYTES + 9] = 1;
        assert_eq!(runs(&bytes)[1], 5 * GRAIN_BYTES..5 * GRAIN_BYTES + 10);
        assert!(runs(&[]).is_empty());
    }

    #[test]
    fn other_bytes_are_an_error_that_names_the_place() {
        let sum = Sum::of(4096, b"abc");
        assert!(sum.compare(b"abc", "x").is_ok());
        let error = sum.compare(b"abd", "the target").expect_err("other bytes").to_string();
        assert!(error.contains("4096") && error.starts_with("the target"), "{error}");
    }
}
