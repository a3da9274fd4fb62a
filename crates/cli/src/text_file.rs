//! Text files that the user names.

use anyhow::{Context as _, bail};
use std::io::Read as _;
use std::path::Path;

/// A text file of at most so many bytes; what is no regular file is not waited for.
pub(crate) fn read(path: &Path, most: u64) -> anyhow::Result<String> {
    let cannot = || format!("cannot read {}", path.display());
    let metadata = std::fs::metadata(path).with_context(cannot)?;
    if !metadata.is_file() {
        bail!("{}: not a file", path.display());
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).with_context(cannot)?;
    file.take(most + 1).read_to_end(&mut bytes).with_context(cannot)?;
    if bytes.len() as u64 > most {
        bail!("{}: longer than {} MiB", path.display(), most >> 20);
    }
    String::from_utf8(bytes).ok().with_context(|| format!("{}: not text", path.display()))
}
