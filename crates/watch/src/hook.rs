//! The user's program, run with each event on its standard input. It is given a time, and ended with all that it has
//! started when that is over. Of each kind of event it is run once a second at most; of those in between it hears of the
//! last, and how many there were.

use bimetal_serve::{EventDoc, EventKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a run may take.
pub const HOOK_WITHIN: Duration = Duration::from_secs(10);
/// Between two runs for events of one kind.
const HOOK_EVERY: Duration = Duration::from_secs(1);
/// Runs at a time.
const MAX_RUNS: usize = 8;
/// How often it is said that it cannot be run.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);

/// What the program reads.
#[derive(Debug, Serialize)]
pub struct HookEvent<'e> {
    /// The event.
    #[serde(flatten)]
    pub event: &'e EventDoc,
    /// Events of its kind before it for which the program was not run.
    pub missed: u64,
}

/// Events of one kind.
#[derive(Debug)]
struct Turn {
    /// Not before.
    next: Instant,
    held: Option<EventDoc>,
    missed: u64,
}

/// The program, and what waits for it.
#[derive(Debug)]
pub(crate) struct Hook {
    program: PathBuf,
    turns: BTreeMap<EventKind, Turn>,
    running: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
    complained: Option<Instant>,
}

impl Hook {
    pub(crate) fn new(program: PathBuf) -> Hook {
        Hook {
            program,
            turns: BTreeMap::new(),
            running: Arc::default(),
            threads: Vec::new(),
            complained: None,
        }
    }

    /// Takes an event, for now or for later.
    pub(crate) fn take(&mut self, event: EventDoc) {
        let turn = self.turns.entry(event.kind).or_insert_with(|| Turn {
            next: Instant::now(),
            held: None,
            missed: 0,
        });
        turn.missed += u64::from(turn.held.is_some());
        turn.held = Some(event);
        self.run_due();
    }

    /// When the next of those that wait is due.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        let waiting = self.turns.values().filter(|turn| turn.held.is_some());
        waiting.map(|turn| turn.next.saturating_duration_since(Instant::now())).min()
    }

    /// Runs the program for what is due.
    pub(crate) fn run_due(&mut self) {
        let now = Instant::now();
        self.run(|turn| turn.next <= now);
    }

    /// Runs it for all that waits, and waits for its end: at most [`HOOK_WITHIN`].
    pub(crate) fn finish(mut self) {
        self.run(|_| true);
        for thread in self.threads {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }

    fn run(&mut self, is_due: impl Fn(&Turn) -> bool) {
        self.threads.retain(|thread| !thread.is_finished());
        let mut failed = None;
        for turn in self.turns.values_mut().filter(|turn| is_due(turn)) {
            let Some(event) = turn.held.take() else { continue };
            turn.next = Instant::now() + HOOK_EVERY;
            if self.running.load(Ordering::Relaxed) >= MAX_RUNS {
                turn.missed += 1;
                continue;
            }
            let missed = std::mem::take(&mut turn.missed);
            match start(&self.program, &HookEvent { event: &event, missed }) {
                Ok(child) => self.threads.extend(attend(child, &self.program, &self.running)),
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed
            && self.complained.is_none_or(|last| last.elapsed() >= COMPLAIN_EVERY)
        {
            self.complained = Some(Instant::now());
            tracing::warn!("on_event: {} cannot be run: {error}", self.program.display());
        }
    }
}

/// Starts the program, in a group of processes of its own, and gives it the event: less than a pipe holds.
fn start(program: &Path, event: &HookEvent<'_>) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
    let mut child = command.spawn()?;
    let mut text = serde_json::to_vec(event)?;
    text.push(b'\n');
    if let Some(mut stdin) = child.stdin.take() {
        // Whoever does not read it does not want it.
        let _ = stdin.write_all(&text);
    }
    Ok(child)
}

/// Sees to it that a run ends, on a thread of its own.
fn attend(mut child: Child, program: &Path, running: &Arc<AtomicUsize>) -> Option<JoinHandle<()>> {
    running.fetch_add(1, Ordering::Relaxed);
    let (name, count) = (program.display().to_string(), running.clone());
    let pid = Pid::from_child(&child);
    let attended = std::thread::Builder::new().name("hook".to_owned()).spawn(move || {
        if !ends_in_time(pid) {
            tracing::warn!("on_event: {name} was ended: it took longer than {} s", HOOK_WITHIN.as_secs());
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let _ = child.wait();
        count.fetch_sub(1, Ordering::Relaxed);
    });
    attended
        .inspect_err(|_| {
            // Without a thread nobody can wait for it; the child was moved into what failed, and is not waited for there.
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
            running.fetch_sub(1, Ordering::Relaxed);
        })
        .ok()
}

/// Waits for a child; false when it takes too long.
fn ends_in_time(pid: Pid) -> bool {
    let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
    let until = Instant::now() + HOOK_WITHIN;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let Ok(timeout) = Timespec::try_from(left) else { return false };
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}
