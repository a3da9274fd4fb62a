//! The events of a volume in a file of bounded size: a line for each, with a checksum before it. A line that was torn is
//! no event, and harms no other.

use crate::history::{PutAside, put_aside};
use bimetal_serve::EventDoc;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// A file that is larger is made half as large: the older events go.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Longest line; a sentence that makes it longer is cut.
const MAX_LINE_BYTES: usize = 4096;
/// Longest sentence: written out with escapes it still fits a line.
const MAX_MESSAGE_BYTES: usize = 600;

/// What is in a file of events.
#[derive(Debug, Default)]
pub struct Found {
    /// In the order in which they were written.
    pub events: Vec<EventDoc>,
    /// Lines that are none.
    pub damaged: u64,
    /// How far it was read: from there a later reading goes on.
    pub end: u64,
}

/// Reads all events; none where there is no file.
///
/// # Errors
/// When the file cannot be read, or is no regular one.
pub fn read(path: &Path) -> io::Result<Found> {
    read_from(path, 0)
}

/// Reads what was added since an earlier reading. A file that was made smaller meanwhile is read from its beginning.
///
/// # Errors
/// When the file cannot be read, or is no regular one.
pub fn read_from(path: &Path, from: u64) -> io::Result<Found> {
    let meta = match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::default()),
        meta => meta?,
    };
    if !meta.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let from = if from > meta.len() { 0 } else { from };
    if from == meta.len() {
        return Ok(Found { end: from, ..Found::default() });
    }
    let mut file = File::open(path)?;
    // Of a file that nobody bounded, the end.
    let from = from.max(meta.len().saturating_sub(2 * MAX_FILE_BYTES));
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(2 * MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    // What has no end yet is being written.
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let mut found = Found { end: from + whole as u64, ..Found::default() };
    for line in bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match parse(line) {
            Some(event) => found.events.push(event),
            None => found.damaged += 1,
        }
    }
    Ok(found)
}

fn parse(line: &[u8]) -> Option<EventDoc> {
    let (sum, json) = line.split_at_checked(8)?;
    let json = json.strip_prefix(b" ")?;
    let sum = u32::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
    if line.len() > MAX_LINE_BYTES || sum != crc32c::crc32c(json) {
        return None;
    }
    serde_json::from_slice(json).ok()
}

fn line(event: &EventDoc) -> Option<Vec<u8>> {
    let mut event = event.clone();
    let end = (0..=MAX_MESSAGE_BYTES).rev().find(|&end| event.message.is_char_boundary(end));
    event.message.truncate(end.unwrap_or(0));
    let json = serde_json::to_vec(&event).ok()?;
    let mut line = format!("{:08x} ", crc32c::crc32c(&json)).into_bytes();
    line.extend_from_slice(&json);
    line.push(b'\n');
    (line.len() <= MAX_LINE_BYTES).then_some(line)
}

/// Adds an event; the file is made if there is none. One in which nothing is an event is put aside.
///
/// # Errors
/// When the file cannot be written.
pub fn add(path: &Path, event: &EventDoc) -> io::Result<Option<PutAside>> {
    let Some(line) = line(event) else { return Ok(None) };
    let mut aside = None;
    if let Ok(meta) = std::fs::metadata(path) {
        if !meta.is_file() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
        }
        if meta.len() + line.len() as u64 > MAX_FILE_BYTES {
            shorten(path)?;
        }
    }
    let open = || OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path);
    let mut file = open()?;
    let length = file.metadata()?.len();
    if length > 0 {
        let mut last = [0];
        file.seek(SeekFrom::Start(length - 1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            // Torn, or no file of events at all.
            file.write_all(b"\n")?;
            if read(path)?.events.is_empty() {
                aside = Some(put_aside(path, "it holds no events")?);
                file = open()?;
            }
        }
    }
    file.write_all(&line)?;
    Ok(aside)
}

/// Keeps the newer half.
fn shorten(path: &Path) -> io::Result<()> {
    let mut lines: Vec<Vec<u8>> = read(path)?.events.iter().filter_map(line).collect();
    let mut kept = 0;
    let first = lines.iter().rposition(|line| {
        kept += line.len() as u64;
        kept > MAX_FILE_BYTES / 2
    });
    lines.drain(..first.map_or(0, |first| first + 1));
    let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new("/")))?;
    file.write_all(&lines.concat())?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_serve::{EventKind, EventLevel};
    use bimetal_units::rng::Rng;

    fn event(number: u64) -> EventDoc {
        EventDoc {
            unix_ms: number,
            volume: "films".into(),
            kind: EventKind::Notice,
            level: EventLevel::Info,
            message: format!("number {number}, \"quoted\"\nand in two lines"),
        }
    }

    #[test]
    fn what_was_added_is_read_and_a_reader_goes_on() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("v.events");
        assert!(read(&path).expect("none is none").events.is_empty());
        add(&path, &event(1)).expect("is written");
        let first = read(&path).expect("reads");
        assert_eq!(first.events, [event(1)]);
        add(&path, &event(2)).expect("is written");
        assert_eq!(read_from(&path, first.end).expect("reads").events, [event(2)]);
    }

    #[test]
    fn the_file_stays_bounded_and_the_newest_stay() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("v.events");
        let (mut long, count) = (event(0), 4000);
        for number in 0..count {
            long.unix_ms = number;
            long.message = "\u{1}".repeat(5000);
            add(&path, &long).expect("is written");
            assert!(std::fs::metadata(&path).expect("there").len() <= MAX_FILE_BYTES);
        }
        let times: Vec<u64> = read(&path).expect("reads").events.iter().map(|event| event.unix_ms).collect();
        assert_eq!(times.last(), Some(&(count - 1)));
        assert!(times.len() > 100 && times.windows(2).all(|two| two[0] + 1 == two[1]));
    }

    #[test]
    fn a_torn_line_costs_itself_and_nonsense_is_put_aside() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("v.events");
        add(&path, &event(1)).expect("is written");
        let whole = std::fs::read(&path).expect("reads");
        std::fs::write(&path, [&whole[..], &whole[..20]].concat()).expect("is written");
        assert_eq!(add(&path, &event(2)).expect("is written"), None);
        let found = read(&path).expect("reads");
        assert_eq!((found.events, found.damaged), (vec![event(1), event(2)], 1));
        std::fs::write(&path, "something else").expect("is written");
        let aside = add(&path, &event(3)).expect("is written").expect("was put aside");
        assert_eq!(std::fs::read(aside.to).expect("reads"), b"something else\n");
        assert_eq!(read(&path).expect("reads").events, [event(3)]);
    }

    #[test]
    fn no_bytes_make_a_reader_fall_over() {
        let seed = std::env::var("EVENTS_SEED").ok().map_or(1u64, |text| text.parse().expect("a number"));
        println!("EVENTS_SEED={seed}");
        let mut rng = Rng::new(seed, 0);
        let mut below = |n: u64| rng.below(n);
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("v.events");
        (0..8).for_each(|number| drop(add(&path, &event(number)).expect("is written")));
        let whole = std::fs::read(&path).expect("reads");
        let mut kept = 0;
        for _ in 0..2000 {
            let mut bytes = whole.clone();
            for _ in 0..=below(5) {
                let at = below(bytes.len() as u64) as usize;
                match below(3) {
                    0 => bytes[at] = below(256) as u8,
                    1 => bytes.truncate(at.max(1)),
                    _ => bytes.insert(at, b'\n'),
                }
            }
            std::fs::write(&path, &bytes).expect("is written");
            for found in read(&path).expect("reads").events {
                assert_eq!(found, event(found.unix_ms));
                kept += 1;
            }
        }
        assert!(kept > 2000, "{kept}");
    }
}
