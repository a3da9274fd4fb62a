//! `bimetal trace record`

use crate::args::TraceRecordArgs;
use crate::progress::Progress;
use crate::volume::{self, Volume};
use crate::{Outcome, complain, say, say_json, size};
use anyhow::{Context as _, bail};
use bimetal_driver::signals::StopSignals;
use bimetal_engine::action::RequestKind;
use bimetal_serve::{Batch, Recorded, Recording, live_recording};
use bimetal_trace::{Marks, Op, OwnWriter, Record, RecordWriter as _};
use bimetal_units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter};
use std::path::Path;
use std::time::{Duration, Instant};

/// How often what came is written for good.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);
/// How long a server that was asked to end the recording may take to say the rest.
const FAREWELL: Duration = Duration::from_secs(10);
/// A server that tells nothing for so long is stopped, or hangs.
const SILENCE: Duration = Duration::from_secs(10);
/// Requests that wait for an earlier one to be answered, at most: 64 MiB or so. Where one takes so long that there are
/// more, they are written without it, and it out of order.
const MAX_WAITING: usize = 1 << 20;

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum End {
    /// It had all that was asked for.
    Limit,
    /// Somebody pressed Ctrl-C.
    Stopped,
    /// The server was stopped.
    ServerStopped,
    /// The server vanished, or answers no more.
    ServerGone,
}

/// The document of `trace record --json`.
#[derive(Debug, Serialize)]
struct RecordDoc<'a> {
    volume: &'a str,
    file: String,
    records: u64,
    /// Requests that the server had no room to tell of.
    lost: u64,
    /// Requests that had not been answered when the recording ended; they are among the records.
    unanswered: u64,
    seconds: f64,
    file_bytes: u64,
    ended: End,
}

/// What came, put into the order in which it began.
struct Tape {
    writer: Box<OwnWriter<BufWriter<File>>>,
    /// When each began, how many came before it, and the request.
    waiting: BinaryHeap<Reverse<(u64, u64, Waiting)>>,
    came: u64,
    first: Option<Nanos>,
    written: u64,
    most: u64,
    unanswered: u64,
    lost: u64,
    checkpoint: Instant,
}

/// A request in the heap, where all are equal but for what stands before them.
struct Waiting(Recorded);

impl PartialEq for Waiting {
    fn eq(&self, _: &Waiting) -> bool {
        true
    }
}
impl Eq for Waiting {}
impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Waiting {
    fn cmp(&self, _: &Waiting) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

impl Tape {
    fn new(file: File, most: Option<u64>) -> io::Result<Tape> {
        Ok(Tape {
            writer: Box::new(OwnWriter::new(BufWriter::with_capacity(1 << 20, file))?),
            waiting: BinaryHeap::new(),
            came: 0,
            first: None,
            written: 0,
            most: most.unwrap_or(u64::MAX),
            unanswered: 0,
            lost: 0,
            checkpoint: Instant::now() + CHECKPOINT_EVERY,
        })
    }

    fn is_full(&self) -> bool {
        self.written >= self.most
    }

    fn take(&mut self, batch: Batch) -> io::Result<()> {
        self.lost = batch.lost;
        for request in batch.requests {
            self.waiting.push(Reverse((request.began.0, self.came, Waiting(request))));
            self.came += 1;
        }
        self.release(if batch.last { Nanos(u64::MAX) } else { batch.settled })
    }

    /// Writes what began before the oldest that is still to come.
    fn release(&mut self, settled: Nanos) -> io::Result<()> {
        while let Some(Reverse((began, ..))) = self.waiting.peek()
            && !self.is_full()
            && (*began < settled.0 || self.waiting.len() > MAX_WAITING)
            && let Some(Reverse((.., Waiting(request)))) = self.waiting.pop()
        {
            let first = *self.first.get_or_insert(request.began);
            self.unanswered += u64::from(request.response.is_none());
            self.writer.record(&record(&request, first))?;
            self.written += 1;
        }
        Ok(())
    }

    fn look_after(&mut self) -> io::Result<()> {
        if self.checkpoint <= Instant::now() {
            self.checkpoint = Instant::now() + CHECKPOINT_EVERY;
            self.writer.checkpoint()?;
        }
        Ok(())
    }

    /// Writes the rest: how much there is, what was lost, what was not answered.
    fn finish(mut self) -> io::Result<(u64, u64, u64)> {
        self.release(Nanos(u64::MAX))?;
        self.writer.lost(self.lost);
        self.writer.finish()?;
        Ok((self.written, self.lost, self.unanswered))
    }
}

/// A kind of request as a trace has it.
pub(crate) fn traced(kind: RequestKind) -> (Op, Marks) {
    match kind {
        RequestKind::Read => (Op::Read, Marks::default()),
        RequestKind::Write { fua } => (Op::Write, Marks { fua, zeroes: false }),
        RequestKind::Flush => (Op::Flush, Marks::default()),
        RequestKind::Discard { fua } => (Op::Discard, Marks { fua, zeroes: false }),
        RequestKind::WriteZeroes { fua } => (Op::Write, Marks { fua, zeroes: true }),
    }
}

/// A request as a trace has it.
fn record(request: &Recorded, first: Nanos) -> Record {
    let (op, marks) = traced(request.kind);
    Record {
        time: Some(Nanos(request.began.0.saturating_sub(first.0))),
        op,
        offset: request.offset,
        bytes: request.bytes.into(),
        device: 0,
        response: request.response,
        marks,
    }
}

pub(crate) fn run(args: &TraceRecordArgs) -> anyhow::Result<Outcome> {
    let signals = StopSignals::new().context("cannot catch Ctrl-C")?;
    let volume = Volume::load(&volume::locate(&args.volume)?)?;
    let control = volume.socket("control")?;
    let name = volume.file.display();
    let silent = || format!("the server of {name} does not answer on {}", control.display());
    let mut recording = match live_recording(&control).with_context(silent)? {
        Some(Ok(recording)) => recording,
        Some(Err(why)) => bail!(why),
        None => bail!("{name}: nobody serves it; start it with `bimetal serve {}`", args.volume),
    };
    let cannot = || format!("cannot write {}", args.output.display());
    let file = output(&args.output, args.force)?;
    let mut tape = Tape::new(file.try_clone().with_context(cannot)?, args.requests).with_context(cannot)?;
    let began = Instant::now();
    let end = listen(&mut recording, &mut tape, &signals, args).with_context(cannot)?;
    let seconds = began.elapsed().as_secs_f64();
    let (records, lost, unanswered) = tape.finish().with_context(cannot)?;
    file.sync_all().with_context(cannot)?;
    let file_bytes = file.metadata().with_context(cannot)?.len();
    let (volume, file) = (recording.doc.volume.as_str(), args.output.display().to_string());
    let doc = RecordDoc { volume, file, records, lost, unanswered, seconds, file_bytes, ended: end };
    if args.json {
        say_json(&doc)?;
    } else {
        describe(&doc);
    }
    if end == End::ServerGone {
        let what = "the server is gone, or stands still; what it told until then is written";
        return Ok(Outcome::Problem(format!("{}: {what} to {}", doc.volume, doc.file)));
    }
    Ok(Outcome::Good)
}

/// The file, made anew.
pub(crate) fn output(path: &Path, force: bool) -> anyhow::Result<File> {
    let cannot = || format!("cannot write {}", path.display());
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => bail!("{}: not a regular file", path.display()),
        Ok(_) if !force => bail!("{} is there already; --force replaces it", path.display()),
        Ok(_) => volume::spare(path)?,
        Err(_) => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).truncate(true).create(force).create_new(!force);
    options.open(path).with_context(cannot)
}

/// Takes what the server tells until there is enough of it. An error is the file's, or says that the server tells
/// nonsense.
fn listen(
    recording: &mut Recording,
    tape: &mut Tape,
    signals: &StopSignals,
    args: &TraceRecordArgs,
) -> io::Result<End> {
    let mut progress = Progress::new(format!("recording {}", recording.doc.volume), args.json);
    let mut until = args.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut heard = Instant::now();
    // Why the server was asked for the rest, once it was.
    let mut asked = None;
    loop {
        if tape.is_full() {
            return Ok(End::Limit);
        }
        let late = until.is_some_and(|until| until <= Instant::now());
        if late && asked.is_some() {
            return Ok(End::ServerGone);
        }
        let stopped = wait(recording, signals, until)?;
        if stopped.signal && asked == Some(End::Stopped) {
            return Ok(End::Stopped);
        }
        if asked.is_none() && (stopped.signal || late) {
            asked = Some(if stopped.signal { End::Stopped } else { End::Limit });
            until = Some(Instant::now() + FAREWELL);
            recording.finish();
        }
        if stopped.told {
            heard = Instant::now();
            let Some(batches) = recording.take()? else { return Ok(asked.unwrap_or(End::ServerGone)) };
            for batch in batches {
                let last = batch.last;
                tape.take(batch)?;
                if last {
                    return Ok(asked.unwrap_or(End::ServerStopped));
                }
            }
        }
        // A server that lives tells ten times a second how far it is.
        if !stopped.told && heard.elapsed() >= SILENCE {
            return Ok(End::ServerGone);
        }
        tape.look_after()?;
        progress.at(&format!("{} requests", tape.came));
    }
}

/// What happened.
struct Stopped {
    /// Ctrl-C.
    signal: bool,
    /// The server told something.
    told: bool,
}

/// Waits for the server, for Ctrl-C, and not for longer than a second.
fn wait(recording: &Recording, signals: &StopSignals, until: Option<Instant>) -> io::Result<Stopped> {
    let left = until.map_or(CHECKPOINT_EVERY, |until| until.saturating_duration_since(Instant::now()));
    let limit = left.min(CHECKPOINT_EVERY);
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    let mut watched = [PollFd::new(recording, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
    match poll(&mut watched, Some(&limit)) {
        Err(rustix::io::Errno::INTR) => {}
        result => drop(result?),
    }
    let [told, signal] = [0, 1].map(|place: usize| !watched[place].revents().is_empty());
    if signal {
        signals.acknowledge();
    }
    Ok(Stopped { signal, told })
}

fn describe(doc: &RecordDoc<'_>) {
    let RecordDoc { volume, file, records, seconds, .. } = doc;
    let bytes = size::show(doc.file_bytes);
    say(&format!("{file}: {records} requests of {volume} in {seconds:.1} s, {bytes}"));
    if doc.unanswered > 0 {
        say(&format!("{} of them had not been answered when the recording ended", doc.unanswered));
    }
    if doc.lost > 0 {
        let cure = "write to a faster device";
        complain(&format!(
            "bimetal: {volume}: {} requests were lost, as they came faster than {file} was written; {cure}",
            doc.lost
        ));
    }
}
