//! Files: extents of one size, one behind the other, without a file system.

use super::{FilesSpec, Whole};
use bimetal_load::{Ask, Next, Source};
use bimetal_models::{Command, Kind};
use bimetal_units::BLOCK_BYTES;
use bimetal_units::rng::Rng;

/// The commands that write or read files from the first to the last, each from its beginning to its end.
pub struct Files {
    kind: Kind,
    size: u64,
    transfer: u64,
    /// First byte of the file that is being written or read.
    file: u64,
    /// Where in it.
    at: u64,
    left: u64,
}

impl Files {
    /// The commands of these files, and how many bytes they are.
    ///
    /// # Errors
    /// When they do not fit, in words.
    pub fn new(spec: &FilesSpec, kind: Kind, whole: Whole) -> Result<(Files, u64), String> {
        let block = u64::from(BLOCK_BYTES);
        let from = spec.from.of(whole) / block * block;
        let all =
            spec.size.0.checked_mul(spec.count).filter(|all| from.saturating_add(*all) <= whole.target_bytes);
        let Some(all) = all else {
            return Err(format!(
                "{} files of {} bytes from byte {from} on do not fit into {} bytes",
                spec.count, spec.size.0, whole.target_bytes
            ));
        };
        let files =
            Files { kind, size: spec.size.0, transfer: spec.transfer.0, file: from, at: 0, left: spec.count };
        Ok((files, all))
    }
}

impl Source for Files {
    fn next(&mut self, _now: u64, _: &mut Rng) -> Next {
        if self.left == 0 {
            return Next::End;
        }
        let (offset, len) = (self.file + self.at, self.transfer.min(self.size - self.at));
        self.at += len;
        if self.at == self.size {
            (self.file, self.at, self.left) = (self.file + self.size, 0, self.left - 1);
        }
        Next::Ask(Ask { at: None, command: Command { kind: self.kind, offset, len } })
    }
}
