//! `bimetal sim kill`: a real serving process, killed for real.

mod client;
mod load;
mod part;

use crate::args::KillArgs;
use crate::create::{self, Plan};
use crate::paths::DeviceSpec;
use crate::progress::Progress;
use crate::volume::Volume;
use crate::{Outcome, check, complain, say, say_json};
use anyhow::{Context as _, bail};
use bimetal_engine::options::Marking;
use bimetal_units::rng::Rng;
use load::{Counts, Worker};
use serde::Serialize;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const WORKERS: u64 = 3;
const FAST_BYTES: u64 = 96 << 20;
const SLOW_BYTES: u64 = 256 << 20;
const LANDING_BYTES: u64 = 16 << 20;
/// A server that is not ready, or not gone, after so long hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// What `sim kill --json` prints.
#[derive(Debug, Serialize)]
struct KillDoc {
    seed: u64,
    rounds: u64,
    kills: u64,
    violations: Vec<String>,
    acknowledged_writes: u64,
    flushes: u64,
    reads: u64,
    sectors_verified: u64,
    /// Sectors that held a flushed value older than the last one written: within the promise.
    sectors_older: u64,
    seconds: f64,
}

pub(crate) fn run(args: &KillArgs) -> anyhow::Result<Outcome> {
    let seed = match args.seed {
        Some(seed) => seed,
        None => create::random_seed()?,
    };
    if !(args.seconds > 0.0 && args.seconds <= 3600.0) {
        bail!("--seconds {} is not a time to load; use more than 0 and at most 3600", args.seconds);
    }
    complain(&format!("seed {seed}"));
    let mut builder = tempfile::Builder::new();
    builder.prefix("bimetal-kill-");
    let dir = match &args.dir {
        Some(dir) => builder.tempdir_in(dir),
        None => builder.tempdir(),
    }
    .context("cannot make a temporary directory")?;
    let doc = rounds(args, seed, dir.path())?;
    if args.json {
        say_json(&doc)?;
    } else {
        say(&format!(
            "{} kills in {} rounds, {} writes and {} flushes answered, {} sectors verified ({} older than the \
             last write, as the promise allows), {} violations, {:.1} s",
            doc.kills,
            doc.rounds,
            doc.acknowledged_writes,
            doc.flushes,
            doc.sectors_verified,
            doc.sectors_older,
            doc.violations.len(),
            doc.seconds
        ));
    }
    for violation in &doc.violations {
        tracing::error!("seed {seed}: {violation}");
    }
    if doc.violations.is_empty() {
        return Ok(Outcome::Good);
    }
    let (violations, kept) = (doc.violations.len(), dir.keep());
    Ok(Outcome::Problem(format!("{violations} violations; the volume is kept in {}", kept.display())))
}

fn rounds(args: &KillArgs, seed: u64, dir: &Path) -> anyhow::Result<KillDoc> {
    let start = Instant::now();
    let mut rng = Rng::new(seed, 0);
    // Only the volume is kept: its devices are for the child to lock.
    let create::Made { volume, .. } = create::make(&Plan {
        file: dir.join("volume.toml"),
        devices: [
            DeviceSpec { path: dir.join("fast.img"), size: Some(FAST_BYTES), model: None },
            DeviceSpec { path: dir.join("slow.img"), size: Some(SLOW_BYTES), model: None },
        ],
        chunk: 64 << 10,
        landing: Some(LANDING_BYTES),
        marking: rng.pick(&[Marking::Off, Marking::On, Marking::Strict]),
        wear_budget: None,
        wake_budget: None,
        remote_patience: None,
        protect: None,
        force: 0,
        resumes: false,
        quiet: args.json,
    })?;
    let mut workers: Vec<Worker> =
        (0..WORKERS).map(|place| Worker::new(place, WORKERS, Rng::new(seed, 1 + place))).collect();
    let (mut violations, mut kills, mut done) = (Vec::new(), 0, 0);
    let mut progress = Progress::new("killing".to_owned(), args.json);
    for round in 0..args.rounds {
        progress.at(&format!("round {} of {}, {kills} kills", round + 1, args.rounds));
        let server = Server::start(&volume, dir)?;
        let lifetime = 0.02 + args.seconds * rng.below(1000) as f64 / 1000.0;
        violations = each(
            &mut workers,
            |worker| worker.load(&server.socket),
            || {
                std::thread::sleep(Duration::from_secs_f64(lifetime));
                server.kill()
            },
        )?;
        kills += 1;
        while violations.is_empty() && rng.one_in(4) {
            // A crash in recovery, or just after it.
            let recovering = Server::spawn(&volume, dir)?;
            std::thread::sleep(Duration::from_micros(rng.below(60_000)));
            recovering.kill()?;
            kills += 1;
        }
        if violations.is_empty() {
            let server = Server::start(&volume, dir)?;
            violations = each(&mut workers, |worker| worker.verify(&server.socket), || Ok(()))?;
            match rng.one_in(2) {
                true => server.stop()?,
                false => {
                    server.kill()?;
                    kills += 1;
                }
            }
        }
        done += 1;
        if !violations.is_empty() {
            break;
        }
    }
    drop(progress);
    if violations.is_empty() {
        violations = check::findings(&volume.file, args.json)?;
    }
    let mut counts = Counts::default();
    workers.iter().for_each(|worker| counts.add(worker.counts));
    Ok(KillDoc {
        seed,
        rounds: done,
        kills,
        violations,
        acknowledged_writes: counts.writes,
        flushes: counts.flushes,
        reads: counts.reads,
        sectors_verified: counts.sectors,
        sectors_older: counts.older,
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// Runs `work` for every worker at once, and `beside` beside them; gives what went wrong.
fn each(
    workers: &mut [Worker],
    work: impl Fn(&mut Worker) -> Result<(), String> + Sync,
    beside: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Vec<String>> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = workers.iter_mut().map(|worker| scope.spawn(move || work(worker))).collect();
        beside()?;
        let ended = threads.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(_) => Err("a worker of the test itself panicked".to_owned()),
        });
        Ok(ended.filter_map(Result::err).collect())
    })
}

/// A serving child.
struct Server {
    child: std::sync::Mutex<Child>,
    socket: PathBuf,
}

impl Server {
    fn spawn(volume: &Volume, dir: &Path) -> anyhow::Result<Server> {
        let program = std::env::current_exe().context("cannot find this program itself")?;
        let socket = dir.join("nbd.sock");
        let child = Command::new(program)
            .arg("serve")
            .arg(&volume.file)
            .arg("--nbd")
            .arg(format!("unix:{}", socket.display()))
            .args(["--log", "warn"])
            .env("XDG_RUNTIME_DIR", dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a serving process")?;
        Ok(Server { child: child.into(), socket })
    }

    /// Starts a server and waits until it is ready.
    fn start(volume: &Volume, dir: &Path) -> anyhow::Result<Server> {
        let server = Server::spawn(volume, dir)?;
        let Some(stdout) = server.child().stdout.take() else { bail!("the serving process has no output") };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).context("cannot read from the serving process")?;
        if !line.starts_with("ready: ") {
            let status = server.child().wait().context("cannot wait for the serving process")?;
            bail!("the serving process ended before it was ready ({status})");
        }
        Ok(server)
    }

    fn child(&self) -> std::sync::MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// SIGKILL.
    fn kill(&self) -> anyhow::Result<()> {
        let mut child = self.child();
        child.kill().context("cannot kill the serving process")?;
        child.wait().context("cannot wait for the serving process")?;
        Ok(())
    }

    /// SIGTERM; the volume must be closed soon.
    fn stop(&self) -> anyhow::Result<()> {
        let mut child = self.child();
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .map_err(std::io::Error::from)
            .context("cannot stop the serving process")?;
        let start = Instant::now();
        loop {
            match child.try_wait().context("cannot wait for the serving process")? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("the serving process ended with {status} after SIGTERM"),
                None if start.elapsed() > PATIENCE => bail!("the serving process does not end after SIGTERM"),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Whatever happened, no child stays behind. One that is gone already is as good.
        let mut child = self.child();
        let _ = child.kill();
        let _ = child.wait();
    }
}
