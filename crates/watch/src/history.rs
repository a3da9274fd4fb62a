//! The history of a volume in a file of fixed size: a header, and places for an hour of seconds, a day of minutes and a
//! year of hours. Which place a sample has follows from its time alone, and each has a checksum of its own. So there is
//! nothing that a torn write could leave half changed but one sample, which then is none.
//!
//! | header | size | |
//! |---|---|---|
//! | 0 | 8 | `BMhistry` |
//! | 8 | 4 | version, 2 |
//! | 12 | 4 | bytes of a place |
//! | 16 | 16 | the volume's identity |
//! | 32 | 4 | CRC32C of the 32 bytes before it |
//!
//! | place | size | |
//! |---|---|---|
//! | 0 | 4 | CRC32C of all that follows |
//! | 4 | 2 | values |
//! | 6 | 2 | bit 0: nothing happened between the sample before it and this one |
//! | 8 | 8 | when it began, seconds since 1970 |
//! | 16 | 8 | how much time it is of, milliseconds |
//! | 24 | 392 | values, 8 bytes each |
//!
//! Numbers are little-endian. The places begin at byte 4096: seconds, minutes, hours.

use crate::sample::{FIELDS, Sample, Step};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

const MAGIC: [u8; 8] = *b"BMhistry";
const VERSION: u32 = 2;
const HEADER_BYTES: u64 = 4096;
/// Of the header, those that say something.
const HEAD: usize = 36;
/// Room for one more value than there are, and for none in part.
const PLACE_BYTES: usize = 416;
/// Seconds that are looked up one by one.
const RECENT: u64 = 120;
const VALUES_AT: usize = 24;
const _: () = assert!(VALUES_AT + 8 * FIELDS.len() <= PLACE_BYTES);

/// Why a history cannot be read.
#[derive(Debug)]
pub enum HistoryError {
    /// The file cannot be read.
    Io(io::Error),
    /// It is no history, or one of another version or volume: this is what is wrong.
    Bad(&'static str),
}

impl fmt::Display for HistoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HistoryError::Io(error) => write!(f, "{error}"),
            HistoryError::Bad(why) => f.write_str(why),
        }
    }
}

impl From<io::Error> for HistoryError {
    fn from(error: io::Error) -> HistoryError {
        HistoryError::Io(error)
    }
}

/// A file that was no good, and was renamed so that a new one could take its place.
#[derive(Debug, PartialEq, Eq)]
pub struct PutAside {
    /// Its new name.
    pub to: PathBuf,
    /// What was wrong with it.
    pub why: String,
}

/// Renames a file that is no good; one that was put aside earlier goes.
pub(crate) fn put_aside(path: &Path, why: &str) -> io::Result<PutAside> {
    let mut name = path.as_os_str().to_owned();
    name.push(".bad");
    let to = PathBuf::from(name);
    std::fs::rename(path, &to)?;
    Ok(PutAside { to, why: why.to_owned() })
}

/// The file, open to be added to.
#[derive(Debug)]
pub(crate) struct History {
    file: File,
}

impl History {
    /// Opens the history of a volume, or makes it.
    pub(crate) fn open(path: &Path, volume: [u8; 16]) -> io::Result<(History, Option<PutAside>)> {
        let open =
            || OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        // What is no file is not opened, since that may wait.
        if std::fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
            return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
        }
        let mut file = open()?;
        let mut aside = None;
        if file.metadata()?.len() > 0 {
            match check_head(&file, Some(volume)) {
                Ok(()) => return Ok((History { file }, None)),
                Err(HistoryError::Io(error)) => return Err(error),
                Err(HistoryError::Bad(why)) => aside = Some(put_aside(path, why)?),
            }
            file = open()?;
        }
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(&MAGIC);
        head[8..12].copy_from_slice(&VERSION.to_le_bytes());
        head[12..16].copy_from_slice(&(PLACE_BYTES as u32).to_le_bytes());
        head[16..32].copy_from_slice(&volume);
        let sum = crc32c::crc32c(&head[..32]);
        head[32..].copy_from_slice(&sum.to_le_bytes());
        file.write_all_at(&head, 0)?;
        file.set_len(size())?;
        Ok((History { file }, aside))
    }

    /// Puts a sample where it belongs; what is there of the same time is added to, as after a restart within an hour.
    pub(crate) fn put(&self, step: Step, sample: &Sample) -> io::Result<()> {
        let at = place(step, sample.at);
        let mut bytes = [0; PLACE_BYTES];
        self.file.read_exact_at(&mut bytes, at)?;
        let joined = match decode(&bytes).filter(|there| there.at == sample.at) {
            Some(mut there) => {
                there.join(sample);
                there
            }
            None => *sample,
        };
        self.file.write_all_at(&encode(&joined), at)
    }
}

/// Bytes of a history.
fn size() -> u64 {
    let places: u64 = Step::ALL.iter().map(|step| step.kept()).sum();
    HEADER_BYTES + places * PLACE_BYTES as u64
}

/// Where the places of a step begin.
fn base(step: Step) -> u64 {
    let before: u64 = Step::ALL.iter().take_while(|other| **other != step).map(|other| other.kept()).sum();
    HEADER_BYTES + before * PLACE_BYTES as u64
}

fn place(step: Step, at: u64) -> u64 {
    base(step) + at / step.seconds() % step.kept() * PLACE_BYTES as u64
}

fn check_head(file: &File, volume: Option<[u8; 16]>) -> Result<(), HistoryError> {
    let mut head = [0; HEAD];
    match file.read_exact_at(&mut head, 0) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
            return Err(HistoryError::Bad("it is too short"));
        }
        result => result?,
    }
    let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| head[at + byte]));
    match () {
        () if head[..8] != MAGIC => Err(HistoryError::Bad("it is no history")),
        () if word(32) != crc32c::crc32c(&head[..32]) => Err(HistoryError::Bad("its header is damaged")),
        () if word(8) != VERSION || word(12) != PLACE_BYTES as u32 => {
            Err(HistoryError::Bad("it is of another version"))
        }
        () if volume.is_some_and(|volume| head[16..32] != volume) => {
            Err(HistoryError::Bad("it is of another volume"))
        }
        () if file.metadata()?.len() != size() => Err(HistoryError::Bad("its size is wrong")),
        () => Ok(()),
    }
}

/// All samples of a step, in the order of their times, of as long ago as they are kept, as of now in seconds since 1970.
/// What is damaged is left out.
///
/// # Errors
/// When there is no such file, or it is no history.
pub fn read(path: &Path, step: Step, now: u64) -> Result<Vec<Sample>, HistoryError> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(HistoryError::Bad("it is not a regular file"));
    }
    let file = File::open(path)?;
    check_head(&file, None)?;
    let mut bytes = vec![0; step.kept() as usize * PLACE_BYTES];
    file.read_exact_at(&mut bytes, base(step))?;
    let oldest = now.saturating_sub(step.kept() * step.seconds());
    let (places, _) = bytes.as_chunks::<PLACE_BYTES>();
    let mut samples: Vec<Sample> = places.iter().filter_map(decode).collect();
    samples.retain(|sample| sample.at > oldest && sample.at <= now);
    samples.sort_unstable_by_key(|sample| sample.at);
    Ok(samples)
}

/// Seconds after one and up to another, for who reads again and again: at most [`RECENT`] of them.
pub(crate) fn read_since(path: &Path, after: u64, now: u64) -> Result<Vec<Sample>, HistoryError> {
    let file = File::open(path)?;
    let mut samples = Vec::new();
    for at in after.max(now.saturating_sub(RECENT)) + 1..=now {
        let mut bytes = [0; PLACE_BYTES];
        file.read_exact_at(&mut bytes, place(Step::Second, at))?;
        samples.extend(decode(&bytes).filter(|sample| sample.at == at));
    }
    Ok(samples)
}

fn encode(sample: &Sample) -> [u8; PLACE_BYTES] {
    let mut out = [0; PLACE_BYTES];
    out[4..6].copy_from_slice(&(FIELDS.len() as u16).to_le_bytes());
    out[6..8].copy_from_slice(&u16::from(sample.quiet_before).to_le_bytes());
    out[8..16].copy_from_slice(&sample.at.to_le_bytes());
    out[16..24].copy_from_slice(&sample.span_ms.to_le_bytes());
    for (to, value) in out[VALUES_AT..].chunks_exact_mut(8).zip(&sample.values) {
        to.copy_from_slice(&value.to_le_bytes());
    }
    let sum = crc32c::crc32c(&out[4..]);
    out[..4].copy_from_slice(&sum.to_le_bytes());
    out
}

fn decode(place: &[u8; PLACE_BYTES]) -> Option<Sample> {
    let long = |at: usize| u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| place[at + byte]));
    let short = |at: usize| u16::from_le_bytes([place[at], place[at + 1]]);
    let sum = u32::from_le_bytes([0, 1, 2, 3].map(|byte| place[byte]));
    if short(4) == 0 || sum != crc32c::crc32c(&place[4..]) {
        return None;
    }
    let mut values = [0; FIELDS.len()];
    // One from before a field was added has none of it.
    let count = usize::from(short(4)).min(FIELDS.len());
    values.iter_mut().take(count).enumerate().for_each(|(at, value)| *value = long(VALUES_AT + 8 * at));
    Some(Sample { at: long(8), span_ms: long(16), quiet_before: short(6) & 1 != 0, values })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_units::rng::Rng;

    const VOLUME: [u8; 16] = [7; 16];

    fn sample(at: u64) -> Sample {
        Sample { at, span_ms: 1000, quiet_before: at % 2 == 1, values: [at; FIELDS.len()] }
    }

    fn filled(path: &Path, seconds: u64) {
        let (history, aside) = History::open(path, VOLUME).expect("opens");
        assert_eq!(aside, None);
        (0..seconds).for_each(|at| history.put(Step::Second, &sample(1_000_000 + at)).expect("is written"));
    }

    #[test]
    fn the_last_hour_is_there_and_nothing_older() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("v.history");
        filled(&path, 5000);
        let samples = read(&path, Step::Second, 1_004_999).expect("reads");
        assert_eq!(samples.len(), 3600);
        assert_eq!(samples.last(), Some(&sample(1_004_999)));
        assert!(samples.windows(2).all(|two| two[0].at + 1 == two[1].at));
        // An hour later all of it is too old, though it is still in the file.
        assert_eq!(read(&path, Step::Second, 1_009_000).expect("reads"), []);
        assert_eq!(std::fs::metadata(&path).expect("there").len(), size());
    }

    #[test]
    fn a_restart_adds_to_the_hour() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("v.history");
        for _ in 0..2 {
            let (history, _) = History::open(&path, VOLUME).expect("opens");
            history
                .put(Step::Hour, &Sample { values: [5; FIELDS.len()], ..sample(7200) })
                .expect("is written");
        }
        let hours = read(&path, Step::Hour, 8000).expect("reads");
        assert_eq!((hours.len(), hours[0].get("reads"), hours[0].get("clients")), (1, 10, 5));
        assert_eq!(hours[0].span_ms, 2000);
    }

    /// Whatever was done to the file, what is read of it was written, and opening it ends in a good one.
    #[test]
    fn damage_costs_what_was_damaged() {
        let seed = std::env::var("HISTORY_SEED").ok().map_or(1u64, |text| text.parse().expect("a number"));
        println!("HISTORY_SEED={seed}");
        let mut rng = Rng::new(seed, 0);
        let mut below = |n: u64| rng.below(n);
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("v.history");
        filled(&path, 40);
        let whole = std::fs::read(&path).expect("reads");
        let (mut aside, mut kept) = (0, 0);
        for _ in 0..300 {
            let mut bytes = whole.clone();
            let used = HEADER_BYTES + 40 * PLACE_BYTES as u64;
            for _ in 0..=below(6) {
                let at = below(used) as usize;
                match below(4) {
                    0 => bytes[below(HEAD as u64) as usize] ^= 1 << below(8),
                    1 => bytes[at..at + 64].fill(below(256) as u8),
                    2 if below(10) == 0 => bytes.truncate(at),
                    _ => bytes[at] = below(256) as u8,
                }
                if bytes.len() < whole.len() {
                    break;
                }
            }
            std::fs::write(&path, &bytes).expect("is written");
            for found in read(&path, Step::Second, 1_000_100).into_iter().flatten() {
                assert_eq!(found, sample(found.at));
                kept += 1;
            }
            let (_, put) = History::open(&path, VOLUME).expect("opens");
            aside += u32::from(put.is_some());
            assert!(read(&path, Step::Second, 1_000_100).is_ok());
        }
        assert!(aside > 20 && kept > 1000, "{aside} put aside, {kept} samples kept");
    }
}
