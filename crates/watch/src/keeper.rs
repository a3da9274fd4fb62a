//! The thread that keeps the history and the events of one volume, and who tells it.

use crate::events;
use crate::history::{History, PutAside};
use crate::hook::Hook;
use crate::journal;
use crate::sample::{Sample, Sampler, Step};
use bimetal_driver::signals::block_stop_signals;
use bimetal_serve::{EventDoc, EventKind, EventLevel, StatusDoc, Watcher, unix_ms};
use bimetal_units::size;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Messages that wait for the keeper at most: what comes beyond that waits at the reporter.
const MAX_WAITING: usize = 64;
/// Samples that wait at the reporter at most, while nobody watches: they are handed over together.
const SAMPLES_TOGETHER: usize = 60;
/// Samples and events that wait at the reporter at most while the keeper takes nothing; older ones give way.
const MAX_HELD: usize = 600;
/// Who has asked for something watches for so long.
const WATCHING: Duration = Duration::from_secs(5);
/// Chunks that rose one soon after the other are told of together when none has for so long.
const BURST_GAP: Duration = Duration::from_secs(10);
/// A zone that was short has room again when it has had for so long.
const ZONE_CALM: Duration = Duration::from_secs(60);
/// A burst is worth telling of from this part of the fast tier on.
const BURST_SHARE: u64 = 256;

/// What the keeper keeps, and where.
#[derive(Clone, Debug)]
pub struct KeeperPlan {
    /// The file of the history.
    pub history: PathBuf,
    /// The file of the events.
    pub events: PathBuf,
    /// The volume's identity.
    pub volume: [u8; 16],
    /// The program that is run with each event.
    pub on_event: Option<PathBuf>,
    /// Until when somebody watches ([`watches`]).
    pub watched: Arc<AtomicU64>,
    /// Where the system's journal listens ([`JOURNAL_SOCKET`](crate::JOURNAL_SOCKET)).
    pub journal: PathBuf,
    /// Standard error goes to the journal as well, so events are not said there: one that the journal does not take is.
    pub instead_of_lines: bool,
}

enum Told {
    Samples(Vec<(Step, Sample)>),
    Event(EventDoc),
}

/// The thread of a volume. It ends when its reporter is gone, with all written and the hook's runs over.
#[derive(Debug)]
pub struct Keeper {
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts it.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(plan: KeeperPlan) -> io::Result<(Keeper, Reporter)> {
        let (sender, receiver) = sync_channel(MAX_WAITING);
        let watched = plan.watched.clone();
        let run = move || {
            // Signals are for whoever serves.
            if block_stop_signals().is_ok() {
                Keeping::new(plan).run(&receiver);
            }
        };
        let thread = Some(std::thread::Builder::new().name("keeper".to_owned()).spawn(run)?);
        let reporter = Reporter {
            sender,
            watched,
            sampler: Sampler::default(),
            samples: Vec::new(),
            events: Vec::new(),
            changes: Changes::default(),
        };
        Ok((Keeper { thread }, reporter))
    }
}

/// Somebody watches from now on, for a while: samples are in the file as soon as they are made.
pub fn watches(watched: &AtomicU64) {
    watched.store(unix_ms() + WATCHING.as_millis() as u64, Ordering::Relaxed);
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Keeping {
    plan: KeeperPlan,
    history: Option<History>,
    hook: Option<Hook>,
    /// It was said that a file cannot be written.
    complained: [bool; 2],
}

impl Keeping {
    fn new(plan: KeeperPlan) -> Keeping {
        let hook = plan.on_event.clone().map(Hook::new);
        let mut keeping = Keeping { plan, history: None, hook, complained: [false; 2] };
        for path in [&keeping.plan.history, &keeping.plan.events] {
            if let Some(dir) = path.parent() {
                // Where that fails, so does what is written into it, which is said.
                let _ = std::fs::create_dir_all(dir);
            }
        }
        match History::open(&keeping.plan.history, keeping.plan.volume) {
            Ok((history, aside)) => {
                keeping.history = Some(history);
                say_aside(&keeping.plan.history, aside);
            }
            Err(error) => complain(&mut keeping.complained[0], &keeping.plan.history, &error),
        }
        keeping
    }

    fn run(mut self, told: &Receiver<Told>) {
        loop {
            let next = match self.hook.as_ref().and_then(Hook::due_in) {
                Some(due) => told.recv_timeout(due),
                None => told.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match next {
                Ok(Told::Samples(samples)) => self.keep(&samples),
                Ok(Told::Event(event)) => self.happened(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if let Some(hook) = &mut self.hook {
                hook.run_due();
            }
        }
        if let Some(hook) = self.hook {
            hook.finish();
        }
    }

    fn keep(&mut self, samples: &[(Step, Sample)]) {
        let Some(history) = &self.history else { return };
        for (step, sample) in samples {
            match history.put(*step, sample) {
                Ok(()) => self.complained[0] = false,
                Err(error) => complain(&mut self.complained[0], &self.plan.history, &error),
            }
        }
    }

    fn happened(&mut self, event: EventDoc) {
        match events::add(&self.plan.events, &event) {
            Ok(aside) => {
                self.complained[1] = false;
                say_aside(&self.plan.events, aside);
            }
            Err(error) => complain(&mut self.complained[1], &self.plan.events, &error),
        }
        let is_told = journal::tell(&self.plan.journal, &event);
        if !is_told && self.plan.instead_of_lines {
            // Its line was left out, since it would have been told twice.
            say(&event);
        }
        if let Some(hook) = &mut self.hook {
            hook.take(event);
        }
    }
}

/// Says an event on standard error.
fn say(event: &EventDoc) {
    let EventDoc { volume, message, .. } = event;
    match event.level {
        EventLevel::Error => tracing::error!("{volume}: {message}"),
        EventLevel::Warning => tracing::warn!("{volume}: {message}"),
        EventLevel::Info => tracing::info!("{volume}: {message}"),
    }
}

fn complain(complained: &mut bool, path: &Path, error: &io::Error) {
    if !std::mem::replace(complained, true) {
        tracing::warn!("{} cannot be written, and is not until that works again: {error}", path.display());
    }
}

fn say_aside(path: &Path, aside: Option<PutAside>) {
    if let Some(PutAside { to, why }) = aside {
        tracing::warn!(
            "{}: {why}; it was put aside as {}, and a new one is begun",
            path.display(),
            to.display()
        );
    }
}

/// Hears from the thread that serves, and hands on to the keeper without waiting.
#[derive(Debug)]
pub struct Reporter {
    sender: SyncSender<Told>,
    watched: Arc<AtomicU64>,
    sampler: Sampler,
    samples: Vec<(Step, Sample)>,
    events: Vec<EventDoc>,
    changes: Changes,
}

impl Reporter {
    /// Hands on what waits, as far as the keeper takes it.
    fn hand_on(&mut self, at_once: bool) {
        while !self.events.is_empty() {
            let event = self.events.remove(0);
            if let Err(TrySendError::Full(Told::Event(event))) = self.sender.try_send(Told::Event(event)) {
                self.events.insert(0, event);
                break;
            }
        }
        let excess = self.events.len().saturating_sub(MAX_HELD);
        self.events.drain(..excess);
        if self.samples.len() >= SAMPLES_TOGETHER || at_once && !self.samples.is_empty() {
            let samples = std::mem::take(&mut self.samples);
            if let Err(TrySendError::Full(Told::Samples(samples))) =
                self.sender.try_send(Told::Samples(samples))
            {
                self.samples = samples;
            }
        }
        let excess = self.samples.len().saturating_sub(MAX_HELD);
        self.samples.drain(..excess);
    }
}

impl Watcher for Reporter {
    fn status(&mut self, status: &StatusDoc) {
        let made = self.sampler.take(status);
        self.samples.extend(made);
        self.events.extend(self.changes.of(status));
        let is_watched = self.watched.load(Ordering::Relaxed) > status.unix_ms;
        self.hand_on(is_watched);
    }

    fn event(&mut self, event: EventDoc) {
        let is_last = event.kind == EventKind::Closed;
        self.events.push(event);
        self.hand_on(is_last);
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        let rest = self.sampler.finish();
        self.samples.extend(rest);
        // Nobody is served any more, so there is time to wait.
        let events = std::mem::take(&mut self.events).into_iter().map(Told::Event);
        let samples = std::mem::take(&mut self.samples);
        for told in events.chain([Told::Samples(samples)]) {
            if self.sender.send(told).is_err() {
                break;
            }
        }
    }
}

/// Chunks that rose one soon after the other.
#[derive(Debug)]
struct Burst {
    begun_ms: u64,
    last_ms: u64,
    chunks: u64,
}

/// What is seen by holding a document against the one before it.
#[derive(Debug, Default)]
struct Changes {
    before: Option<StatusDoc>,
    burst: Option<Burst>,
    /// When the zone was short last, since it was told that it is.
    short_at_ms: Option<u64>,
}

impl Changes {
    fn of(&mut self, status: &StatusDoc) -> Vec<EventDoc> {
        let mut found = Vec::new();
        let Some(before) = self.before.replace(status.clone()) else { return found };
        let mut happened = |kind, level, message: String| {
            found.push(EventDoc {
                unix_ms: status.unix_ms,
                volume: status.volume.clone(),
                kind,
                level,
                message,
            });
        };
        if let Some(is_short) = self.zone_turns(status) {
            let (kind, level, what) = match is_short {
                true => (
                    EventKind::ZoneShort,
                    EventLevel::Warning,
                    "is short: clients write no faster than it is emptied",
                ),
                false => (EventKind::ZoneFree, EventLevel::Info, "has had room for a minute"),
            };
            happened(kind, level, zone(status, what));
        }
        let (wrong, repaired) = (status.scrub.wrong_blocks, status.scrub.repaired_blocks);
        if wrong > before.scrub.wrong_blocks {
            let lost = status.scrub.lost_bytes();
            let level =
                if lost > before.scrub.lost_bytes() { EventLevel::Error } else { EventLevel::Warning };
            let what = format!(
                "the scrub has found {wrong} blocks of 4 KiB wrong: {repaired} repaired, {} lost",
                size::show(lost)
            );
            happened(EventKind::ScrubFinding, level, what);
        }
        if status.scrub.state == "whole" && before.scrub.state != "whole" {
            let what = format!(
                "a scrub has seen everything: {wrong} blocks of 4 KiB were wrong, {repaired} were repaired"
            );
            happened(EventKind::ScrubWhole, EventLevel::Info, what);
        }
        if let Some(what) = self.burst(status, status.promoted_chunks.saturating_sub(before.promoted_chunks))
        {
            happened(EventKind::Promotions, EventLevel::Info, what);
        }
        found
    }

    /// Whether the zone is short now, where that is news. A zone on the brink is short now and then: it has room again when it
    /// has had for a while.
    fn zone_turns(&mut self, status: &StatusDoc) -> Option<bool> {
        let now = status.unix_ms;
        if status.landing.short {
            return self.short_at_ms.replace(now).is_none().then_some(true);
        }
        self.short_at_ms
            .take_if(|last| now.saturating_sub(*last) >= ZONE_CALM.as_millis() as u64)
            .map(|_| false)
    }

    /// Counts chunks that rose; a sentence on a burst that is over.
    fn burst(&mut self, status: &StatusDoc, chunks: u64) -> Option<String> {
        let now = status.unix_ms;
        if chunks > 0 {
            let burst = self.burst.get_or_insert(Burst { begun_ms: now, last_ms: now, chunks: 0 });
            (burst.last_ms, burst.chunks) = (now, burst.chunks + chunks);
            return None;
        }
        let is_over = |burst: &mut Burst| now.saturating_sub(burst.last_ms) >= BURST_GAP.as_millis() as u64;
        let burst = self.burst.take_if(is_over)?;
        let bytes = burst.chunks * u64::from(status.chunk_bytes);
        let fast_bytes = status.tiers.first().map_or(0, |tier| tier.size_bytes);
        let seconds = (burst.last_ms - burst.begun_ms) / 1000 + 1;
        let (chunks, told) = (burst.chunks, bytes >= fast_bytes / BURST_SHARE);
        told.then(|| format!("{chunks} chunks, {}, were moved up within {seconds} s", size::show(bytes)))
    }
}

fn zone(status: &StatusDoc, what: &str) -> String {
    let zone = &status.landing;
    let (used, all) = (size::show(zone.used_bytes), size::show(zone.size_bytes));
    format!("the landing zone {what}; {used} of {all} are in use")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(changes: &mut Changes, statuses: impl IntoIterator<Item = StatusDoc>) -> Vec<(u64, EventKind)> {
        let told = |status: StatusDoc| {
            changes.of(&status).into_iter().map(|event| (event.unix_ms / 1000, event.kind))
        };
        statuses.into_iter().flat_map(told).collect()
    }

    fn at(second: u64) -> StatusDoc {
        StatusDoc { unix_ms: second * 1000, chunk_bytes: 1 << 20, ..StatusDoc::default() }
    }

    #[test]
    fn a_zone_on_the_brink_is_told_of_twice() {
        let short = |second| {
            let mut status = at(second);
            status.landing.short = (10..40).contains(&second) && second % 3 == 0;
            status
        };
        let told = kinds(&mut Changes::default(), (0..200).map(short));
        assert_eq!(told, [(12, EventKind::ZoneShort), (99, EventKind::ZoneFree)]);
    }

    #[test]
    fn a_burst_of_promotions_is_told_of_when_it_is_over() {
        let rising = |second: u64| StatusDoc { promoted_chunks: second.clamp(20, 50) * 4, ..at(second) };
        let told = kinds(&mut Changes::default(), (0..100).map(rising));
        assert_eq!(told, [(60, EventKind::Promotions)]);
    }

    #[test]
    fn a_scrub_that_finds_something_is_told_of() {
        let scrub = |second: u64| {
            let mut status = at(second);
            status.scrub.wrong_blocks = second / 5;
            status.scrub.state = if second < 9 { "running" } else { "whole" }.to_owned();
            status
        };
        let told = kinds(&mut Changes::default(), (0..10).map(scrub));
        assert_eq!(told, [(5, EventKind::ScrubFinding), (9, EventKind::ScrubWhole)]);
    }

    /// Where the journal listens, an event is there with its fields; and in the file all the same.
    #[test]
    fn an_event_is_told_to_the_journal_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let of = |name: &str| dir.path().join(name);
        let journal = std::os::unix::net::UnixDatagram::bind(of("journal")).expect("binds");
        let plan = KeeperPlan {
            history: of("history"),
            events: of("events"),
            volume: [1; 16],
            on_event: None,
            watched: Arc::default(),
            journal: of("journal"),
            instead_of_lines: true,
        };
        let (keeper, mut reporter) = Keeper::start(plan).expect("a thread");
        reporter.event(EventDoc::now("films", EventKind::Opened, EventLevel::Info, "opened".to_owned()));
        drop((reporter, keeper));
        journal.set_nonblocking(true).expect("a socket");
        let mut bytes = [0; 1000];
        let count = journal.recv(&mut bytes).expect("a datagram");
        let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
        assert!(
            text.starts_with("MESSAGE=films: opened\n") && text.contains("BIMETAL_EVENT=opened"),
            "{text}"
        );
        assert!(journal.recv(&mut bytes).is_err(), "once");
        assert_eq!(events::read(&of("events")).expect("events").events.len(), 1);
    }
}
