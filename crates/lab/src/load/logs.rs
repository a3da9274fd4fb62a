//! fio's logs: a line for each I/O or for each window, in the files and columns that people's plotting programs read.
//!
//! A line is `time in ms, value, direction, bytes of a block, priority`, with `offset` before the last where that was
//! asked for; directions are 0 for reads, 1 for writes, 2 for discards. Priorities are 0: the lab gives none.

use bimetal_load::Io;
use bimetal_models::Kind;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

const NANOS_PER_MILLI: u64 = 1_000_000;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// What a log is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logged {
    /// KiB in a second of a window; of one I/O, bytes in a millisecond.
    Bandwidth,
    /// I/Os in a second of a window; of one I/O, 1.
    Ios,
    /// Nanoseconds from begun to handed over.
    Submit,
    /// Nanoseconds from handed over to done.
    Service,
    /// Nanoseconds from meant to begin to done.
    Response,
    /// Each I/O with the time at which it was begun: a trace, fio's iolog of version 3.
    Trace,
}

/// A log that a job writes.
#[derive(Clone, Debug)]
pub struct Log {
    /// Its file.
    pub file: LogFile,
    /// What it is of.
    pub what: Logged,
    /// What a trace calls the target.
    pub target: String,
    /// A line for so long; 0 for one for each I/O.
    pub window_ns: u64,
    /// Of a window the highest value stands there, not the mean.
    pub highest: bool,
    /// Lines have the offset, too.
    pub offset: bool,
    /// Times are of the wall clock.
    pub wall_clock: bool,
}

/// The file of a log; jobs may share it.
#[derive(Clone, Debug)]
pub struct LogFile {
    /// Its name.
    pub path: PathBuf,
    to: Arc<Mutex<To>>,
}

#[derive(Debug, Default)]
struct To {
    file: Option<BufWriter<File>>,
    /// Its first line is there.
    begun: bool,
    error: Option<String>,
}

impl LogFile {
    /// A file that is made, or made anew, by [`LogFile::open`].
    pub fn new(path: PathBuf) -> LogFile {
        LogFile { path, to: Arc::default() }
    }

    /// Whether both are one file.
    pub fn is_same(&self, other: &LogFile) -> bool {
        Arc::ptr_eq(&self.to, &other.to)
    }

    /// Makes it, empty.
    ///
    /// # Errors
    /// When the system says no.
    pub fn open(&self) -> io::Result<()> {
        let file = BufWriter::new(File::create(&self.path)?);
        *self.to.lock().unwrap_or_else(PoisonError::into_inner) = To { file: Some(file), ..To::default() };
        Ok(())
    }

    /// What could not be written of it, in words; all else is in the file then.
    fn flush(&self) -> Option<String> {
        let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = to.file.as_mut().and_then(|file| file.flush().err()) {
            to.error.get_or_insert(error.to_string());
        }
        to.error.take().map(|error| format!("cannot write {}: {error}", self.path.display()))
    }

    /// Adds the first line, which it has once.
    fn begin(&self, line: std::fmt::Arguments<'_>) {
        if !std::mem::replace(&mut self.to.lock().unwrap_or_else(PoisonError::into_inner).begun, true) {
            self.line(line);
        }
    }

    /// Adds a line. After the first that cannot be written there are none, and the run goes on.
    fn line(&self, line: std::fmt::Arguments<'_>) {
        let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = to.file.as_mut().and_then(|file| writeln!(file, "{line}").err()) {
            *to = To { file: None, error: Some(error.to_string()), begun: true };
        }
    }
}

/// What a window has of one direction.
#[derive(Clone, Copy, Default)]
struct Window {
    ios: u64,
    bytes: u64,
    sum: u128,
    highest: u64,
    /// Of all of its I/Os; 0 where they differ.
    block: u64,
}

/// Writes a log of a job.
pub(super) struct Logger {
    log: Log,
    /// What stands for the time at which the job begins to count, milliseconds.
    zero_ms: u64,
    /// When the latest I/O of a trace was begun, microseconds: a trace goes forwards.
    latest_us: u64,
    /// The window that is being filled, by its number.
    nth: u64,
    windows: [Window; 3],
}

impl Logger {
    /// Of a job that begins to count so long after now.
    pub(super) fn new(log: &Log, begins_in_ns: u64) -> Logger {
        let now =
            if log.wall_clock { crate::session::now_unix_ms() + begins_in_ns / NANOS_PER_MILLI } else { 0 };
        if log.what == Logged::Trace {
            let target = &log.target;
            log.file.begin(format_args!("fio version 3 iolog"));
            log.file.line(format_args!("0 {target} add\n0 {target} open"));
        }
        Logger { log: log.clone(), zero_ms: now, latest_us: 0, nth: 0, windows: Default::default() }
    }

    /// An I/O has ended, so long after the job began to count.
    pub(super) fn ended(&mut self, io: &Io, at_ns: u64) {
        let side = match io.command.kind {
            Kind::Read => 0,
            Kind::Write { .. } => 1,
            Kind::Discard => 2,
            Kind::Flush | Kind::Sync => return,
        };
        if self.log.what == Logged::Trace {
            return self.trace(io, at_ns.saturating_sub(io.at_ns.saturating_sub(io.begun_ns)));
        }
        let service_ns = io.at_ns.saturating_sub(io.handed_ns);
        let bytes = io.command.len;
        let value = match self.log.what {
            // As fio works it out: bytes in a millisecond.
            Logged::Bandwidth => {
                (u128::from(bytes) * u128::from(NANOS_PER_MILLI) / u128::from(service_ns.max(1))) as u64
            }
            Logged::Ios => 1,
            Logged::Submit => io.handed_ns.saturating_sub(io.begun_ns),
            Logged::Service => service_ns,
            Logged::Response | Logged::Trace => io.at_ns.saturating_sub(io.meant_ns.unwrap_or(io.begun_ns)),
        };
        if self.log.window_ns == 0 {
            return self.line(at_ns, value, side, bytes, io.command.offset);
        }
        let nth = at_ns / self.log.window_ns;
        if nth != self.nth {
            self.end_window((self.nth + 1).saturating_mul(self.log.window_ns), self.log.window_ns);
            self.nth = nth;
        }
        let window = &mut self.windows[side];
        window.block = if window.ios == 0 || window.block == bytes { bytes } else { 0 };
        window.ios += 1;
        window.bytes += bytes;
        window.sum += u128::from(value);
        window.highest = window.highest.max(value);
    }

    /// The job has ended, so long after it began to count. What could not be written, in words.
    pub(super) fn finish(mut self, at_ns: u64) -> Option<String> {
        if self.log.window_ns > 0 {
            let began = self.nth.saturating_mul(self.log.window_ns);
            self.end_window(at_ns.max(began), at_ns.saturating_sub(began).max(NANOS_PER_MILLI));
        }
        if self.log.what == Logged::Trace {
            self.log.file.line(format_args!("{} {} close", self.latest_us, self.log.target));
        }
        self.log.file.flush()
    }

    /// An I/O that was begun then.
    fn trace(&mut self, io: &Io, begun_ns: u64) {
        self.latest_us = self.latest_us.max(begun_ns / 1000);
        let action = match io.command.kind {
            Kind::Read => "read",
            Kind::Write { .. } => "write",
            Kind::Discard => "trim",
            Kind::Flush => "datasync",
            Kind::Sync => "sync",
        };
        let (target, offset, len) = (&self.log.target, io.command.offset, io.command.len);
        self.log.file.line(format_args!("{} {target} {action} {offset} {len}", self.latest_us));
    }

    fn end_window(&mut self, at_ns: u64, lasted_ns: u64) {
        for side in 0..3 {
            let window = std::mem::take(&mut self.windows[side]);
            if window.ios == 0 {
                continue;
            }
            let in_a_second = |count: u64| {
                let all = u128::from(count) * u128::from(NANOS_PER_SECOND) / u128::from(lasted_ns.max(1));
                u64::try_from(all).unwrap_or(u64::MAX)
            };
            let value = match self.log.what {
                Logged::Bandwidth => in_a_second(window.bytes) / 1024,
                Logged::Ios => in_a_second(window.ios),
                _ if self.log.highest => window.highest,
                // Rounded, as fio rounds it.
                _ => ((window.sum + u128::from(window.ios) / 2) / u128::from(window.ios)) as u64,
            };
            let block = match self.log.what {
                Logged::Bandwidth | Logged::Ios => window.block,
                _ => 0,
            };
            self.line(at_ns, value, side, block, 0);
        }
    }

    fn line(&self, at_ns: u64, value: u64, side: usize, bytes: u64, offset: u64) {
        let ms = self.zero_ms + at_ns / NANOS_PER_MILLI;
        match self.log.offset {
            true => self.log.file.line(format_args!("{ms}, {value}, {side}, {bytes}, {offset}, 0")),
            false => self.log.file.line(format_args!("{ms}, {value}, {side}, {bytes}, 0")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_models::Command;

    const MS: u64 = NANOS_PER_MILLI;

    /// What stands in the log of reads of 4 KiB that took 1 ms each and ended at these milliseconds.
    fn logged(what: Logged, window_ns: u64, offset: bool, ends_ms: &[u64]) -> String {
        let folder = tempfile::tempdir().expect("temporary directory");
        let file = LogFile::new(folder.path().join("x.log"));
        file.open().expect("made");
        let target = "x".to_owned();
        let log =
            Log { file: file.clone(), what, target, window_ns, highest: false, offset, wall_clock: false };
        let mut logger = Logger::new(&log, 0);
        for &ms in ends_ms {
            let at_ns = ms * MS;
            let io = Io {
                reads_back: false,
                stream: 0,
                command: Command { kind: Kind::Read, offset: ms * 4096, len: 4096 },
                meant_ns: Some(at_ns - 3 * MS),
                begun_ns: at_ns - 2 * MS,
                handed_ns: at_ns - MS,
                at_ns,
                fault: None,
                served: None,
                mismatched: false,
            };
            logger.ended(&io, at_ns);
        }
        assert_eq!(logger.finish(ends_ms.last().map_or(0, |ms| ms * MS)), None);
        std::fs::read_to_string(&file.path).expect("read")
    }

    #[test]
    fn lines_have_fios_columns() {
        assert_eq!(
            logged(Logged::Bandwidth, 0, false, &[5, 7]),
            "5, 4096, 0, 4096, 0\n7, 4096, 0, 4096, 0\n"
        );
        assert_eq!(logged(Logged::Ios, 0, true, &[5]), "5, 1, 0, 4096, 20480, 0\n");
        assert_eq!(logged(Logged::Submit, 0, false, &[5]), "5, 1000000, 0, 4096, 0\n");
        assert_eq!(logged(Logged::Response, 0, false, &[5]), "5, 3000000, 0, 4096, 0\n");
        let trace = "fio version 3 iolog\n0 x add\n0 x open\n3000 x read 20480 4096\n3000 x close\n";
        assert_eq!(logged(Logged::Trace, 0, false, &[5]), trace);
    }

    #[test]
    fn windows_are_of_their_length() {
        let text = logged(Logged::Bandwidth, 100 * MS, false, &[5, 7, 150, 320, 350]);
        // 8192 bytes in 100 ms, 4096 in the next, none in the third, 8192 in the 50 ms that are left.
        assert_eq!(text, "100, 80, 0, 4096, 0\n200, 40, 0, 4096, 0\n350, 160, 0, 4096, 0\n");
        let text = logged(Logged::Ios, 100 * MS, false, &[5, 7, 150]);
        assert_eq!(text, "100, 20, 0, 4096, 0\n150, 20, 0, 4096, 0\n");
        assert_eq!(logged(Logged::Service, 100 * MS, false, &[5, 7]), "7, 1000000, 0, 0, 0\n");
    }

    #[test]
    fn a_log_that_cannot_be_written_is_told() {
        let file = LogFile::new("/dev/full".into());
        file.open().expect("it can be opened");
        let log = Log {
            file,
            what: Logged::Ios,
            target: String::new(),
            window_ns: 0,
            highest: false,
            offset: false,
            wall_clock: false,
        };
        let logger = Logger::new(&log, 0);
        logger.line(0, 1, 0, 1, 0);
        assert!(logger.finish(0).is_some_and(|said| said.contains("/dev/full")));
    }
}
