//! Logs of I/Os that jobs replay: fio's own, versions 2 and 3, or any trace that is read otherwise.

use super::error::{Errors, Problem};
use super::file::JobFile;
use super::options::{EngineKind, JobOptions, PerSide};
use crate::load::{Does, Step};
use crate::target::TargetName;
use bimetal_trace::{Op, Trace};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

/// Entries of a log at most: each takes 32 bytes of memory.
const MOST_STEPS: usize = 8 << 20;
/// Files that one log names at most.
const MOST_FILES: usize = 4096;
/// Bytes of a line at most, as with fio.
const MOST_LINE_BYTES: u64 = 4096;
const MICROSECOND_NS: u64 = 1000;
const MILLISECOND_NS: u64 = 1_000_000;

/// What a log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoLog {
    /// The files that it reads, writes or discards in.
    pub files: Vec<LogFile>,
    /// One after the other.
    pub steps: Arc<[Step]>,
    /// Lines that are none, and were passed over.
    pub malformed: u64,
}

/// A file of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    /// Its name.
    pub name: String,
    /// Where what is done in it ends.
    pub end_bytes: u64,
}

/// How a log is replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayOptions {
    /// As fast as it can.
    pub no_stall: bool,
    /// How fast, of a hundred: 200 is twice as fast as it was.
    pub speed_percent: u32,
    /// All of it in this file.
    pub redirect: Option<String>,
    /// What is left out.
    pub skips: PerSide<bool>,
    /// Syncs are left out, too.
    pub skips_syncs: bool,
    /// Offsets are divided by it.
    pub scale: u32,
    /// Offsets are rounded down to multiples of it.
    pub align_bytes: u32,
}

impl Default for ReplayOptions {
    fn default() -> ReplayOptions {
        ReplayOptions {
            no_stall: false,
            speed_percent: 100,
            redirect: None,
            skips: PerSide::default(),
            skips_syncs: false,
            scale: 1,
            align_bytes: 0,
        }
    }
}

/// `read,write,trim,sync`.
pub(crate) fn skips(options: &mut JobOptions, given: &mut super::value::Given<'_>) -> Result<(), Problem> {
    let replay = &mut options.replay;
    for word in given.text()?.split(',').map(str::trim) {
        match word {
            "read" => replay.skips.read = true,
            "write" => replay.skips.write = true,
            "trim" => replay.skips.trim = true,
            "sync" | "flush" => replay.skips_syncs = true,
            _ => {
                let problem = format!("`{word}` is no kind of I/O of a log");
                return Err(Problem::new(problem, "write read, write, trim or sync, commas between them"));
            }
        }
    }
    Ok(())
}

/// Reads the logs that jobs replay; with `redirect`, all is done there.
///
/// # Errors
/// With all that cannot be read.
pub fn read_logs(file: &mut JobFile, redirect: Option<&TargetName>) -> Result<(), Errors> {
    let mut errors = Vec::new();
    for job in &mut file.jobs {
        let mut how = job.options.replay.clone();
        let whole = match job.options.engine {
            EngineKind::Null => Some(TargetName::Null.to_string()),
            EngineKind::Nbd => job.options.nbd_uri.clone(),
            EngineKind::Ring | EngineKind::Synchronous => None,
        };
        how.redirect = redirect.map(ToString::to_string).or(whole).or(how.redirect);
        let names = job.options.read_iolog.iter().flat_map(|names| names.split(':'));
        let names: Vec<String> = names.map(str::to_owned).collect();
        for name in names {
            match open(Path::new(&name), &how) {
                Ok(log) => {
                    if log.malformed > 0 {
                        let (name, lines) = (&job.name, log.malformed);
                        file.notes.push(format!(
                            "[{name}] read_iolog: {lines} lines make no sense and are left out"
                        ));
                    }
                    job.logs.push(Arc::new(log));
                }
                Err(error) => {
                    let problem = Problem::new(format!("{name}: {error}"), "");
                    errors.push(problem.at(&job.at, &job.name, "read_iolog"));
                }
            }
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(Errors(errors)) }
}

/// Reads one log.
fn open(path: &Path, how: &ReplayOptions) -> Result<IoLog, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut text = BufReader::new(file);
    let first = text.fill_buf().map_err(|error| error.to_string())?;
    let log = match first.starts_with(b"fio version ") {
        true => read(text, how)?,
        false => of_trace(path, how)?,
    };
    if log.steps.is_empty() {
        return Err("there is no I/O in it that is to be done; name a log that has some".into());
    }
    Ok(log)
}

/// The log of a text.
pub(crate) fn read(mut text: impl BufRead, how: &ReplayOptions) -> Result<IoLog, String> {
    let mut line = Vec::new();
    next_line(&mut text, &mut line).map_err(|error| error.to_string())?;
    let version = match line.as_slice() {
        line if line.starts_with(b"fio version 2 iolog") => 2,
        line if line.starts_with(b"fio version 3 iolog") => 3,
        _ => return Err("it is a log of another version than 2 or 3; record it anew with write_iolog".into()),
    };
    let mut maker = Maker::new(how);
    while next_line(&mut text, &mut line).map_err(|error| error.to_string())? {
        let line = String::from_utf8_lossy(&line);
        if !line.trim().is_empty() && maker.line(version, &line)?.is_none() {
            maker.malformed += 1;
        }
    }
    Ok(maker.log())
}

/// The next line, without what it has beyond the most.
fn next_line(text: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    text.by_ref().take(MOST_LINE_BYTES).read_until(b'\n', line)?;
    Ok(!line.is_empty())
}

/// The log of a trace in another format. Its files have no names here, so that all are one.
fn of_trace(path: &Path, how: &ReplayOptions) -> Result<IoLog, String> {
    let trace = Trace::open(&[path]).map_err(|error| error.to_string())?;
    let Some(name) = how.redirect.clone() else {
        return Err(format!(
            "it is {}, and names no files; add replay_redirect, or --target on the command line",
            trace.format()
        ));
    };
    let mut maker = Maker::new(how);
    for record in trace {
        let Ok(record) = record else {
            maker.malformed += 1;
            continue;
        };
        let does = match record.op {
            Op::Read => Does::Read,
            Op::Write => Does::Write,
            Op::Discard => Does::Trim,
            Op::Flush => Does::DataSync,
        };
        if let Some(time) = record.time.filter(|_| !how.no_stall) {
            maker.due_ns = maker.scaled(time.0);
        }
        let Ok(len) = u32::try_from(record.bytes) else {
            maker.malformed += 1;
            continue;
        };
        let file = maker.file(&name)?;
        maker.step(file, does, record.offset, len)?;
    }
    Ok(maker.log())
}

struct Maker<'h> {
    how: &'h ReplayOptions,
    steps: Vec<Step>,
    of_files: Vec<LogFile>,
    malformed: u64,
    files: HashMap<String, u16>,
    /// When the next one is to begin.
    due_ns: u64,
    last_us: u64,
}

impl<'h> Maker<'h> {
    fn new(how: &'h ReplayOptions) -> Maker<'h> {
        Maker {
            how,
            steps: Vec::new(),
            of_files: Vec::new(),
            malformed: 0,
            files: HashMap::new(),
            due_ns: 0,
            last_us: 0,
        }
    }

    fn log(self) -> IoLog {
        IoLog { files: self.of_files, steps: self.steps.into(), malformed: self.malformed }
    }

    /// A time of the log as one of the replay.
    fn scaled(&self, ns: u64) -> u64 {
        let scaled = u128::from(ns) * 100 / u128::from(self.how.speed_percent.max(1));
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// One line; `None` where it is none.
    fn line(&mut self, version: u8, line: &str) -> Result<Option<()>, String> {
        let mut words = line.split_ascii_whitespace();
        if version == 3 {
            let Some(at_us) = words.next().and_then(number) else { return Ok(None) };
            // As with fio, what comes behind the time 0 or before the one before waits for nothing.
            let gap_us = if self.last_us == 0 { 0 } else { at_us.saturating_sub(self.last_us) };
            self.last_us = at_us;
            if !self.how.no_stall {
                self.due_ns = self.due_ns.saturating_add(self.scaled(gap_us.saturating_mul(MICROSECOND_NS)));
            }
        }
        let (Some(name), Some(action)) = (words.next(), words.next()) else { return Ok(None) };
        let does = match action {
            "add" | "open" | "close" => return Ok(Some(())),
            "read" => Does::Read,
            "write" => Does::Write,
            "trim" => Does::Trim,
            "sync" => Does::Sync,
            "datasync" => Does::DataSync,
            "wait" if version == 2 => {
                // fio's manual speaks of microseconds; it waits milliseconds, from the beginning on.
                let Some(until_ms) = words.next().and_then(number) else { return Ok(None) };
                if !self.how.no_stall {
                    self.due_ns = self.due_ns.max(until_ms.saturating_mul(MILLISECOND_NS));
                }
                return Ok(Some(()));
            }
            _ => return Ok(None),
        };
        let mut next = || words.next().and_then(number);
        let (offset, len) = match does {
            Does::Sync | Does::DataSync => (0, 0),
            _ => match (next(), next()) {
                (Some(offset), Some(len)) => (offset, len),
                _ => return Ok(None),
            },
        };
        let Ok(len) = u32::try_from(len) else { return Ok(None) };
        let is_io = !matches!(does, Does::Sync | Does::DataSync);
        if is_io && (len == 0 || offset.checked_add(u64::from(len)).is_none()) {
            return Ok(None);
        }
        let file = self.file(name)?;
        self.step(file, does, offset, len)?;
        Ok(Some(()))
    }

    /// The number of a file; all are one where they are redirected.
    fn file(&mut self, name: &str) -> Result<u16, String> {
        let name = self.how.redirect.as_deref().unwrap_or(name);
        if let Some(&known) = self.files.get(name) {
            return Ok(known);
        }
        if self.files.len() >= MOST_FILES {
            return Err(format!("it names more than {MOST_FILES} files; add replay_redirect"));
        }
        let number = self.files.len() as u16;
        self.files.insert(name.to_owned(), number);
        self.of_files.push(LogFile { name: name.to_owned(), end_bytes: 0 });
        Ok(number)
    }

    fn step(&mut self, file: u16, does: Does, offset: u64, len: u32) -> Result<(), String> {
        let skips = &self.how.skips;
        let left_out = match does {
            Does::Read => skips.read,
            Does::Write => skips.write,
            Does::Trim => skips.trim,
            Does::Sync | Does::DataSync => self.how.skips_syncs,
        };
        if left_out {
            return Ok(());
        }
        if self.steps.len() >= MOST_STEPS {
            return Err(format!(
                "it has more than {MOST_STEPS} entries; `bimetal trace replay` replays logs of any length"
            ));
        }
        let offset = offset / u64::from(self.how.scale.max(1));
        let offset = offset - offset % u64::from(self.how.align_bytes.max(1));
        let of = &mut self.of_files[usize::from(file)];
        of.end_bytes = of.end_bytes.max(offset.saturating_add(u64::from(len)));
        self.steps.push(Step { at_ns: self.due_ns, offset, len, file, does });
        Ok(())
    }
}

/// A decimal number without sign.
fn number(word: &str) -> Option<u64> {
    word.bytes().all(|digit| digit.is_ascii_digit()).then(|| word.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_units::rng::Rng;

    fn log(text: &str, how: &ReplayOptions) -> IoLog {
        read(text.as_bytes(), how).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// What is done, when in microseconds, and where.
    fn steps(text: &str, how: &ReplayOptions) -> Vec<(u64, Does, u16, u64, u32)> {
        let step = |step: &Step| (step.at_ns / 1000, step.does, step.file, step.offset, step.len);
        log(text, how).steps.iter().map(step).collect()
    }

    const THREE: &str = "fio version 3 iolog\n0 a add\n0 a open\n50 b add\n100 a write 0 4096\n150 b read 512 512\n\
                         140 a sync\n240 a trim 8192 4096\nwhat\n300 a close\n";

    #[test]
    fn version_3_has_times_and_passes_over_what_is_no_line() {
        let expected = [
            (50, Does::Write, 0, 0, 4096),
            (100, Does::Read, 1, 512, 512),
            (100, Does::Sync, 0, 0, 0),
            (200, Does::Trim, 0, 8192, 4096),
        ];
        assert_eq!(steps(THREE, &ReplayOptions::default()), expected);
        let log = log(THREE, &ReplayOptions::default());
        assert_eq!(log.malformed, 1);
        let ends: Vec<_> = log.files.iter().map(|file| (file.name.as_str(), file.end_bytes)).collect();
        assert_eq!(ends, [("a", 12_288), ("b", 1024)]);
    }

    #[test]
    fn version_2_waits_from_the_beginning_on() {
        let text =
            "fio version 2 iolog\na add\na open\na wait 4 0\na read 0 512\na wait 6 0\na write 512 512\n";
        let expected = [(4000, Does::Read, 0, 0, 512), (6000, Does::Write, 0, 512, 512)];
        assert_eq!(steps(text, &ReplayOptions::default()), expected);
    }

    #[test]
    fn a_replay_may_be_faster_elsewhere_and_in_part() {
        let how = ReplayOptions { speed_percent: 200, ..ReplayOptions::default() };
        assert_eq!(steps(THREE, &how).last().map(|step| step.0), Some(100));
        let how = ReplayOptions { no_stall: true, redirect: Some("x".into()), ..ReplayOptions::default() };
        assert!(steps(THREE, &how).iter().all(|step| step.0 == 0 && step.2 == 0));
        let skips = PerSide { read: true, write: false, trim: true };
        let how = ReplayOptions { skips, skips_syncs: true, ..ReplayOptions::default() };
        assert_eq!(steps(THREE, &how).len(), 1);
        let how = ReplayOptions { scale: 2, align_bytes: 1024, ..ReplayOptions::default() };
        let offsets: Vec<u64> = steps(THREE, &how).iter().map(|step| step.3).collect();
        assert_eq!(offsets, [0, 0, 0, 4096]);
    }

    #[test]
    fn bytes_by_chance_are_no_harm() {
        let mut rng = Rng::new(7, 0);
        for _ in 0..2000 {
            let mut text = THREE.as_bytes().to_vec();
            for _ in 0..rng.below(12) {
                let at = rng.below(text.len() as u64) as usize;
                match rng.below(4) {
                    0 => text[at] = rng.below(256) as u8,
                    1 => text.insert(at, b"0123456789 \n"[rng.below(12) as usize]),
                    2 => text.truncate(at.max(21)),
                    _ => {
                        let digits = [b'9'; 25];
                        text.splice(at..at, digits);
                    }
                }
            }
            let Ok(log) = read(text.as_slice(), &ReplayOptions::default()) else { continue };
            for step in &*log.steps {
                let end = step.offset.checked_add(u64::from(step.len)).expect("no overflow");
                assert!(log.files[usize::from(step.file)].end_bytes >= end);
            }
        }
    }
}
