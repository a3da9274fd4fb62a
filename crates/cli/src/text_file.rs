//! Text files that the user names.

use anyhow::{Context as _, bail};
use std::io::{IsTerminal as _, Read};
use std::path::Path;

/// A text file of at most so many bytes, or standard input by the name `-`; what else is no regular file is not waited
/// for. A byte order mark, which some programs put before text, is no part of it.
pub(crate) fn read(path: &Path, most: u64) -> anyhow::Result<String> {
    let is_input = path.as_os_str() == "-";
    let name = if is_input { "standard input".to_owned() } else { path.display().to_string() };
    let cannot = || format!("cannot read {name}");
    let input: Box<dyn Read> = if is_input {
        if std::io::stdin().is_terminal() {
            bail!("standard input is a terminal; pipe a text into it, or name a file");
        }
        Box::new(std::io::stdin())
    } else {
        if !std::fs::metadata(path).with_context(cannot)?.is_file() {
            bail!("{name}: not a file");
        }
        Box::new(std::fs::File::open(path).with_context(cannot)?)
    };
    let mut bytes = Vec::new();
    input.take(most + 1).read_to_end(&mut bytes).with_context(cannot)?;
    if bytes.len() as u64 > most {
        bail!("{name}: longer than {} MiB", most >> 20);
    }
    if let [0xff, 0xfe, ..] | [0xfe, 0xff, ..] = bytes.as_slice() {
        bail!("{name}: text in UTF-16; make it UTF-8 first: iconv -f UTF-16 -t UTF-8");
    }
    let mut text = String::from_utf8(bytes).ok().with_context(|| format!("{name}: not text"))?;
    if text.starts_with('\u{feff}') {
        text.drain(..'\u{feff}'.len_utf8());
    }
    Ok(text)
}
