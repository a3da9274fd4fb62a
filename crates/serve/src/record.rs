//! The server's end of a recording: what is answered goes into a bounded queue, and from there to whoever asked for it
//! (`tape.rs` has the bytes). Nobody waits for him: what has no room is counted, and the count is told.

use crate::requests::{Pending, Requests};
use crate::served::Served;
use crate::server::Server;
use crate::tape::{self, MAX_REQUESTS_PER_HEAD, Recorded, UNIT};
use bimetal_engine::action::RequestKind;
use bimetal_nbd::{Command, Request};
use bimetal_units::Nanos;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// What waits to be sent, at most: 131,072 requests. At 100,000 a second that bridges more than a second in which the
/// recorder's disk, or its processor, is busy with others.
const MAX_QUEUE_BYTES: usize = 4 << 20;
/// Requests that are sent together: some go at a time, so that a request costs no system call of its own.
const BATCH_BYTES: usize = 32 << 10;
const _: () = assert!((BATCH_BYTES / UNIT) as u64 + 2048 < MAX_REQUESTS_PER_HEAD as u64);
/// How long a request waits for company.
const BATCH_WITHIN: Duration = Duration::from_millis(100);
/// How soon a recorder whose socket is full is tried again: by then it has room if anybody reads.
const AGAIN_AFTER: Duration = Duration::from_millis(5);
/// How long the last of a recording may take to be read.
const FAREWELL: Duration = Duration::from_secs(2);

/// A recording that is under way.
pub(crate) struct Recorder {
    fd: OwnedFd,
    /// Of the visitor who records.
    place: usize,
    /// Requests that began earlier are not its concern.
    since: Nanos,
    /// What the next head will stand before.
    batch: Vec<u8>,
    queue: VecDeque<u8>,
    lost: u64,
    /// When the batch is sent at the latest.
    due: Instant,
    /// The socket was full: not before.
    not_before: Option<Instant>,
    /// All is queued; until then it may be read.
    ending: Option<Instant>,
}

impl Recorder {
    /// How soon it is to be looked after.
    fn due_in(&self) -> Duration {
        let at = match (self.not_before, self.queue.is_empty()) {
            (Some(at), false) => at.min(self.due),
            _ => self.due,
        };
        at.saturating_duration_since(Instant::now())
    }

    /// A request has been answered.
    pub(crate) fn answered(&mut self, pending: &Pending, now: Nanos) {
        if pending.began < self.since || self.ending.is_some() {
            return;
        }
        self.push(pending, Some(Nanos(now.0.saturating_sub(pending.began.0))));
    }

    fn push(&mut self, pending: &Pending, response: Option<Nanos>) {
        let Request { offset, length, .. } = pending.request;
        let Some(kind) = kind(&pending.request) else { return };
        let flush = kind == RequestKind::Flush;
        let (offset, bytes) = if flush { (0, 0) } else { (offset, length) };
        if self.queue.len() + self.batch.len() + 3 * UNIT > MAX_QUEUE_BYTES {
            self.lost += 1;
            return;
        }
        let recorded = Recorded { began: pending.began, response, offset, bytes, kind };
        self.batch.extend_from_slice(&recorded.encode());
    }

    /// Puts the batch behind a head into the queue. `settled`: when the oldest request began that is still to come.
    fn queue_batch(&mut self, settled: Nanos, last: bool) {
        self.due = Instant::now() + BATCH_WITHIN;
        // Room for the heads is kept when requests are taken, one for each batch: so a batch of none is only told to
        // a recorder who is not behind.
        if self.batch.is_empty() && !self.queue.is_empty() && !last {
            return;
        }
        self.queue.extend(tape::head((self.batch.len() / UNIT) as u32, self.lost, settled, last));
        self.queue.extend(self.batch.drain(..));
    }

    /// Sends what the socket takes. False: nobody is there any more.
    fn send(&mut self) -> bool {
        self.not_before = None;
        while !self.queue.is_empty() {
            let (front, _) = self.queue.as_slices();
            let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
            match rustix::net::send(&self.fd, front, flags) {
                Ok(0) | Err(Errno::AGAIN) => {
                    self.not_before = Some(Instant::now() + AGAIN_AFTER);
                    break;
                }
                Ok(sent) => drop(self.queue.drain(..sent)),
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        true
    }
}

/// What the engine is asked for with a request; none for what it never sees.
fn kind(request: &Request) -> Option<RequestKind> {
    let fua = request.fua;
    Some(match request.command {
        Command::Read => RequestKind::Read,
        Command::Write => RequestKind::Write { fua },
        Command::Flush => RequestKind::Flush,
        Command::Trim => RequestKind::Discard { fua },
        Command::WriteZeroes => RequestKind::WriteZeroes { fua },
        _ => return None,
    })
}

impl Requests {
    /// When the oldest request in flight that began at this time or later did so.
    fn oldest(&self, since: Nanos) -> Option<Nanos> {
        self.in_flight().map(|pending| pending.began).filter(|began| *began >= since).min()
    }
}

impl<V: Served> Server<V> {
    /// Begins a recording for a visitor; gives back why not, if that is so.
    pub(crate) fn begin_recording(&mut self, place: usize, greeting: &[u8]) -> Result<(), String> {
        let name = &self.volume.0;
        if self.recorder.is_some() {
            return Err(format!("{name}: somebody is recording it already; one can at a time"));
        }
        if self.stopping {
            return Err(format!("{name}: its server is stopping"));
        }
        let fd = self.desk.socket(place).ok_or_else(|| format!("{name}: too few descriptors are left"))?;
        let (batch, queue) = (Vec::with_capacity(2 * BATCH_BYTES), greeting.iter().copied().collect());
        let due = Instant::now();
        let since = self.now();
        tracing::info!("requests of {name} are being recorded");
        self.recorder =
            Some(Recorder { fd, place, since, batch, queue, lost: 0, due, not_before: None, ending: None });
        Ok(())
    }

    /// Whether this visitor records.
    pub(crate) fn records(&self, place: usize) -> bool {
        self.recorder.as_ref().is_some_and(|recorder| recorder.place == place)
    }

    /// The recording ends: what is in flight is recorded as not answered.
    pub(crate) fn end_recording(&mut self) {
        let now = self.now();
        let Some(recorder) = &mut self.recorder else { return };
        if recorder.ending.is_some() {
            return;
        }
        let since = recorder.since;
        for pending in self.requests.in_flight().filter(|pending| pending.began >= since) {
            recorder.push(pending, None);
        }
        recorder.queue_batch(now, true);
        recorder.ending = Some(Instant::now() + FAREWELL);
    }

    /// Sends what is to be sent, and lets a recorder go that is through, or gone. Cheap where there is nothing to do.
    pub(crate) fn look_after_recorder(&mut self) -> Option<Duration> {
        let recorder = self.recorder.as_mut()?;
        let now = Instant::now();
        let full = recorder.batch.len() >= BATCH_BYTES;
        if recorder.ending.is_none() && (full || recorder.due <= now) {
            let settled = self.requests.oldest(recorder.since).unwrap_or_else(|| self.driver.clock.now());
            recorder.queue_batch(settled, false);
        }
        let may_send = recorder.not_before.is_none_or(|at| at <= now);
        let there = recorder.queue.is_empty() || !may_send || recorder.send();
        let through = recorder.ending.is_some_and(|until| recorder.queue.is_empty() || until <= now);
        if there && !through {
            return Some(recorder.due_in());
        }
        let place = recorder.place;
        tracing::info!("the recording of {} has ended; {} requests were lost", self.volume.0, recorder.lost);
        self.recorder = None;
        self.desk.dismiss(place);
        None
    }

    /// Whether a recorder waits for its last bytes.
    pub(crate) fn recorder_waits(&self) -> bool {
        self.recorder.as_ref().is_some_and(|recorder| !recorder.queue.is_empty())
    }
}
