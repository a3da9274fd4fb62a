//! Runs passes and rests on one target, one after the other, and keeps what came of them for the record.

use super::idle::{Idle, IdleRule, IdleSource};
use super::pass::{Deed, Layout, LayoutError, Walk};
use super::table::{Table, elapsed, mb_per_s, quantity, speed};
use crate::job::Job;
use crate::load::{self, Going, LoadTarget, RunError};
use crate::record::{JobRun, Run};
use crate::session::{INTERVAL_NS, Session, finish, now_unix_ms};
use std::ops::Range;

/// Who reads along.
pub trait Audience {
    /// A line of the table, or about it.
    fn line(&mut self, text: &str);

    /// How far the present part has come, where there is no line yet.
    fn going(&mut self, _what: &str, _share: f64) {}

    /// Whether it is to go on.
    fn goes_on(&mut self) -> bool;
}

/// An audience of nobody: it goes on, and says nothing.
pub struct Nobody;

impl Audience for Nobody {
    fn line(&mut self, _text: &str) {}

    fn goes_on(&mut self) -> bool {
        true
    }
}

/// Why a pass cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum TesterError {
    /// The files.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The target.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// A target under test.
pub struct Tester<'t, T: LoadTarget> {
    target: &'t mut T,
    layout: Layout,
    audience: &'t mut dyn Audience,
    names: Vec<String>,
    began_ns: u64,
    began_unix_ms: u64,
    ran: Vec<JobRun>,
    interrupted: bool,
}

impl<'t, T: LoadTarget> Tester<'t, T> {
    /// Of files laid out so on a target of this name.
    pub fn new(
        target: &'t mut T,
        name: &str,
        layout: Layout,
        audience: &'t mut dyn Audience,
    ) -> Tester<'t, T> {
        let began_ns = target.now_ns();
        Tester {
            target,
            layout,
            audience,
            names: vec![name.to_owned()],
            began_ns,
            began_unix_ms: now_unix_ms(),
            ran: Vec::new(),
            interrupted: false,
        }
    }

    /// How the files lie.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Since it began, on the target's clock.
    pub fn now_ns(&mut self) -> u64 {
        self.target.now_ns() - self.began_ns
    }

    /// Whether it was asked to end, or something was not done: nothing more is worth beginning.
    pub fn is_over(&self) -> bool {
        self.interrupted || self.ran.last().is_some_and(|ran| !ran.errors.is_empty())
    }

    /// The passes that were run.
    pub fn ran(&self) -> &[JobRun] {
        &self.ran
    }

    /// Says something.
    pub fn say(&mut self, text: &str) {
        self.audience.line(text);
    }

    /// One pass over some of the files, with the live table.
    ///
    /// # Errors
    /// When the files make no sense, or the target has no room for what is in flight.
    pub fn pass(&mut self, name: &str, deed: Deed, files: Range<u64>) -> Result<&JobRun, TesterError> {
        self.pass_until(name, deed, files, &mut |_| false)
    }

    /// The same, until enough files are done.
    ///
    /// # Errors
    /// As [`Tester::pass`].
    pub fn pass_until(
        &mut self,
        name: &str,
        deed: Deed,
        files: Range<u64>,
        enough: &mut dyn FnMut(&[u64]) -> bool,
    ) -> Result<&JobRun, TesterError> {
        self.audience.line("");
        self.audience.line(name);
        self.audience.line(&Table::head());
        let job = deed.job(name, &self.layout, &files);
        let mut walk = Walk::new(&self.layout, &files, deed, enough)?;
        let mut table = Table::new(self.layout.file_bytes);
        let (audience, interrupted) = (&mut *self.audience, &mut self.interrupted);
        let mut watch = |going: &Going| {
            match table.look(going) {
                Some(row) => audience.line(&row),
                None => audience.going(name, going.share),
            }
            *interrupted |= !audience.goes_on();
            !*interrupted
        };
        let times = (self.began_ns, INTERVAL_NS);
        let jobs = std::slice::from_ref(&job);
        let mut ran = load::run_sources(self.target, jobs, vec![&mut walk], &self.names, times, &mut watch)?;
        let Some(ran) = ran.pop() else { unreachable!("one job was run") };
        let ran = JobRun { files_ns: walk.into_files_ns(), file_bytes: self.layout.file_bytes, ..ran };
        let bytes = ran.read.bytes + ran.write.bytes;
        self.audience.line(&table.end(ran.elapsed_ns, bytes));
        self.audience.line(&summary(&ran));
        self.ran.push(ran);
        Ok(&self.ran[self.ran.len() - 1])
    }

    /// A job that goes through no files.
    ///
    /// # Errors
    /// When the target has no room for what is in flight.
    pub fn job(&mut self, job: &Job) -> Result<&JobRun, TesterError> {
        let ran = self.load(job)?;
        self.audience.line(&summary(&ran));
        self.ran.push(ran);
        Ok(&self.ran[self.ran.len() - 1])
    }

    /// Runs a job of which it is no matter if the target cannot: gives the error then, and the record has nothing of it.
    ///
    /// # Errors
    /// As [`Tester::job`].
    pub fn attempt(&mut self, job: &Job) -> Result<Option<String>, TesterError> {
        let ran = self.load(job)?;
        self.audience.line(&summary(&ran));
        let error = ran.errors.keys().next().cloned();
        if error.is_none() {
            self.ran.push(ran);
        }
        Ok(error)
    }

    fn load(&mut self, job: &Job) -> Result<JobRun, TesterError> {
        self.audience.line("");
        self.audience.line(&job.name);
        let (audience, interrupted) = (&mut *self.audience, &mut self.interrupted);
        let mut watch = |going: &Going| {
            audience.going(&job.name, going.share);
            *interrupted |= !audience.goes_on();
            !*interrupted
        };
        let jobs = std::slice::from_ref(job);
        let mut ran = load::run(self.target, jobs, &self.names, self.began_ns, INTERVAL_NS, &mut watch)?;
        let Some(ran) = ran.pop() else { unreachable!("one job was run") };
        Ok(ran)
    }

    /// Leaves the target alone until it is quiet.
    ///
    /// # Errors
    /// When the target cannot be waited for.
    pub fn idle(&mut self, rule: &IdleRule) -> Result<Idle, TesterError> {
        let began_ns = self.now_ns();
        self.audience.line("");
        self.audience.line("left alone");
        self.audience.line(&Idle::head());
        let mut source = IdleSource::new(rule);
        let over = source.over();
        let mut idle = Idle::new(began_ns, rule);
        let mut job = Job::new("left alone", 0..self.layout.bytes());
        job.depth = 1;
        let (audience, interrupted) = (&mut *self.audience, &mut self.interrupted);
        let mut watch = |going: &Going| {
            if let Some(row) = idle.look(going) {
                audience.line(&row);
            }
            over.set(over.get() || idle.is_over());
            *interrupted |= !audience.goes_on();
            !*interrupted
        };
        let times = (self.began_ns, INTERVAL_NS);
        let jobs = std::slice::from_ref(&job);
        load::run_sources(self.target, jobs, vec![&mut source], &self.names, times, &mut watch)?;
        let ended_ns = self.target.now_ns() - self.began_ns;
        idle.end(ended_ns, self.target.inside());
        self.audience.line(&idle.sentence());
        Ok(idle)
    }

    /// The record of all passes.
    pub fn finish(self, session: Session) -> Run {
        finish(session, self.began_unix_ms, self.interrupted, self.ran)
    }
}

/// What a pass came to, in a line.
fn summary(ran: &JobRun) -> String {
    let (side, done) = match (ran.write.ios, ran.discard.ios) {
        (0, 0) => (&ran.read, "read"),
        (0, _) => (&ran.discard, "given back"),
        _ => (&ran.write, "written"),
    };
    let all = mb_per_s(side.bytes, ran.elapsed_ns);
    let mut text =
        format!("{} {done} in {}: {} MB/s", quantity(side.bytes), elapsed(ran.elapsed_ns), speed(all));
    let each = ran.files_ns.iter().enumerate().map(|(n, &ns)| (mb_per_s(ran.file_bytes, ns), n));
    let first = ran.span.0 / ran.file_bytes.max(1);
    let slowest = each.clone().min_by(|a, b| a.0.total_cmp(&b.0));
    let fastest = each.max_by(|a, b| a.0.total_cmp(&b.0));
    if let (Some(slowest), Some(fastest)) = (slowest, fastest) {
        text += &format!(
            "; the slowest file {} (number {}), the fastest {} (number {})",
            speed(slowest.0),
            first + slowest.1 as u64,
            speed(fastest.0),
            first + fastest.1 as u64
        );
    }
    for (error, count) in &ran.errors {
        text += &format!("; {count} x {error}");
    }
    text
}
