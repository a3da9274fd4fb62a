//! Jobs that run side by side, each in a thread of its own with a target of its own. On the way of an I/O they share
//! nothing: what each has done is told a few times a second, and put together when all have ended.

use super::run::{Going, How, LoadTarget, RunError, SlotSpec, Watch, run_prepared, share};
use crate::job::Job;
use crate::record::JobRun;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, scope};
use std::time::{Duration, Instant};

/// Makes the target of one job, in the thread that drives it: a ring belongs to one.
pub type Own = Box<dyn FnOnce() -> Result<Box<dyn LoadTarget>, RunError> + Send>;

/// How often a job tells how far it has come, and looks whether it is to end: several times for each time that
/// somebody looks at all of them.
const TELL_NS: u64 = 50_000_000;

/// What a thread needs of memory beside what its target has.
const STACK_BYTES: usize = 1 << 20;

/// What is known of a job while it runs.
#[derive(Default)]
struct Told {
    /// Reads and their bytes, writes and theirs.
    done: [AtomicU64; 4],
}

impl Told {
    fn tell(&self, done: &[(u64, u64); 2]) {
        let [reads, writes] = *done;
        for (told, now) in self.done.iter().zip([reads.0, reads.1, writes.0, writes.1]) {
            told.store(now, Ordering::Relaxed);
        }
    }

    fn done(&self) -> [(u64, u64); 2] {
        let [reads, read_bytes, writes, written_bytes] =
            self.done.each_ref().map(|done| done.load(Ordering::Relaxed));
        [(reads, read_bytes), (writes, written_bytes)]
    }
}

/// A job, as its thread has it.
struct Part<'r> {
    number: usize,
    job: &'r Job,
    slots: Vec<SlotSpec>,
    how: How<'r>,
    told: &'r Told,
    stop: &'r AtomicBool,
    /// It is ready, or why it is not.
    ready: Sender<Result<(), RunError>>,
    /// All are ready: begin. Nothing more comes where one is not.
    begin: Receiver<()>,
    ended: Sender<(usize, JobRun)>,
}

impl Part<'_> {
    fn run(self, own: Own) {
        let mut target = match own().and_then(|mut target| target.prepare(&self.slots).map(|()| target)) {
            Ok(target) => target,
            Err(error) => {
                let _ = self.ready.send(Err(error));
                return;
            }
        };
        let _ = self.ready.send(Ok(()));
        drop(self.ready);
        if self.begin.recv().is_err() {
            return;
        }
        let mut watch = |going: &Going| {
            going.done.iter().for_each(|done| self.told.tell(done));
            !self.stop.load(Ordering::Relaxed)
        };
        let jobs = std::slice::from_ref(self.job);
        for ran in run_prepared(&mut target, jobs, self.how, &mut watch) {
            let _ = self.ended.send((self.number, ran));
        }
    }
}

/// Rings, files and connections of many jobs are more than what a process has leave to open until it asks for more.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // Where it is refused, whatever cannot be opened says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Runs each job on its own target, all from the same moment on.
///
/// # Errors
/// When one of them cannot begin: then none does.
pub(super) fn run<T: LoadTarget>(
    target: &mut T,
    owns: Vec<Own>,
    jobs: &[Job],
    slots: Vec<SlotSpec>,
    how: How<'_>,
    watch: Watch<'_>,
) -> Result<Vec<JobRun>, RunError> {
    let told: Vec<Told> = jobs.iter().map(|_| Told::default()).collect();
    let stop = AtomicBool::new(false);
    let (ready, readiness) = channel();
    let (ended, endings) = channel();
    let mut slots = slots.into_iter();
    allow_descriptors();
    scope(|threads| {
        let mut begins = Vec::with_capacity(jobs.len());
        for (number, (own, job)) in owns.into_iter().zip(jobs).enumerate() {
            let (begin, begun) = channel();
            let part = Part {
                number,
                job,
                slots: slots.by_ref().take(job.depth as usize).collect(),
                how: How { look_ns: TELL_NS, ..how },
                told: &told[number],
                stop: &stop,
                ready: ready.clone(),
                begin: begun,
                ended: ended.clone(),
            };
            let thread = Builder::new().name(format!("job {number}")).stack_size(STACK_BYTES);
            thread.spawn_scoped(threads, move || part.run(own)).map_err(|error| {
                let many = jobs.len();
                RunError::Target(format!(
                    "there is no thread for each of {many} jobs ({error}): lower numjobs"
                ))
            })?;
            begins.push(begin);
        }
        drop((ready, ended));
        for result in &readiness {
            result?;
        }
        let began_ns = target.now_ns();
        let mut look = |at_ns: u64| {
            let done: Vec<_> = told.iter().map(Told::done).collect();
            watch(&Going { at_ns, share: share(jobs, at_ns, &done), done, inside: None })
        };
        // Jobs that are over before anybody looks would leave nobody a chance to end those that come next.
        stop.store(!look(0), Ordering::Relaxed);
        for begin in &begins {
            let _ = begin.send(());
        }
        let mut ran: Vec<Option<JobRun>> = jobs.iter().map(|_| None).collect();
        let every = Duration::from_nanos(how.look_ns);
        let mut next = Instant::now() + every;
        loop {
            match endings.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok((number, one)) => ran[number] = Some(one),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    next += every;
                    if !look(target.now_ns() - began_ns) {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
        // A job is missing only where its thread has panicked, which the scope passes on.
        Ok(ran.into_iter().flatten().collect())
    })
}
