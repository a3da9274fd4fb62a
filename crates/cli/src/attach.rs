//! `bimetal attach` and `bimetal detach`

use crate::args::{AttachArgs, AttachKind, DetachArgs};
use crate::volume::{self, Volume};
use crate::{Outcome, complain, paths, say};
use anyhow::{Context as _, bail};
use bimetal_driver::signals::ignore_hangup;
use bimetal_driver::{Holder, who_holds};
use bimetal_serve::attach::{AttachedDoc, Kind, Record, Wish, recorded, remove_orphan};
use bimetal_serve::{Answer, Question};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FlockOperation;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long somebody may have a device open who only looks at it, as `udev` does at whatever is new or was closed.
const GLANCE: Duration = Duration::from_secs(5);
/// How often it is looked whether he has closed it, or whether a server is there again.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often whoever watches over a device that is served looks at its record.
const RECORD_EVERY: Duration = Duration::from_secs(5);

pub(crate) fn attach(args: &AttachArgs) -> anyhow::Result<Outcome> {
    let volume = Volume::load(&volume::locate(&args.volume)?)?;
    if args.watch_over {
        return watch_over(&volume);
    }
    let kind = match args.way {
        AttachKind::Auto => None,
        AttachKind::Ublk => Some(Kind::Ublk),
        AttachKind::Nbd => Some(Kind::Nbd),
        AttachKind::Fuse => Some(Kind::Fuse),
    };
    load_drivers(kind);
    let wish = Wish { kind, read_only: args.read_only, wait_seconds: args.wait };
    let doc = match ask(&volume, Question::Attach(wish))? {
        Some(Answer::Attached(doc)) => doc,
        Some(Answer::Refused(what)) => bail!(what),
        Some(other) => bail!("the server gave another answer than asked for: {other:?}"),
        None => bail!(
            "nobody serves {name}, and a server has to be there for its device; run `{} serve {}` first",
            paths::program(),
            args.volume,
            name = volume.name().0
        ),
    };
    doc.notes.iter().for_each(|note| complain(&format!("bimetal: {}: {note}", doc.device.display())));
    begin_to_watch_over(&volume, &doc);
    say(&doc.path.display().to_string());
    Ok(Outcome::Good)
}

pub(crate) fn detach(args: &DetachArgs) -> anyhow::Result<Outcome> {
    let volume = Volume::load(&volume::locate(&args.volume)?)?;
    let (name, file) = (volume.name().0, volume.socket("attached")?);
    let Some(record) = recorded(&file)? else {
        return Ok(Outcome::Problem(format!("{name} is not attached")));
    };
    if record.put_away {
        remove_orphan(&file, &record).with_context(|| format!("cannot remove {}", file.display()))?;
        say(&format!("{name} will not be attached when it is served next"));
        return Ok(Outcome::Good);
    }
    let device = record.device();
    if let Some(holder) = holder(&device) {
        return Ok(Outcome::Problem(format!(
            "{name}: {} is {}; {}",
            device.display(),
            holder.how,
            cure(&holder)
        )));
    }
    match ask(&volume, Question::Detach {})? {
        Some(Answer::Detached(device)) => say(&format!("{name} is {} no more", device.display())),
        Some(Answer::Refused(what)) => return Ok(Outcome::Problem(what)),
        Some(other) => bail!("the server gave another answer than asked for: {other:?}"),
        None => {
            let failed = || format!("{} cannot be taken away", device.display());
            remove_orphan(&file, &record).with_context(failed)?;
            say(&format!("{name} is {} no more; nobody served it", device.display()));
        }
    }
    Ok(Outcome::Good)
}

/// The device that a volume is, or was when its last server went.
pub(crate) fn waiting(volume: &Volume) -> Option<AttachedDoc> {
    let record = recorded(&volume.socket("attached").ok()?).ok()??;
    let there = !record.put_away && record.device().exists();
    there.then(|| record.doc(false, Vec::new()))
}

/// A line about the device, for who reads the status.
pub(crate) fn describe(doc: &AttachedDoc) -> String {
    let (path, kind, wait) = (doc.path.display(), doc.kind.name(), doc.wait_seconds);
    let mode = if doc.read_only { ", read-only" } else { "" };
    match doc.served {
        true => format!("attached as {path}, by {kind}{mode}; without a server it waits up to {wait} s"),
        false => format!("attached as {path}, by {kind}{mode}: it waits up to {wait} s for a server"),
    }
}

fn ask(volume: &Volume, question: Question) -> anyhow::Result<Option<Answer>> {
    let control = volume.socket("control")?;
    bimetal_serve::live_answer(&control, &question).with_context(|| {
        format!("the server of {} does not answer on {}", volume.file.display(), control.display())
    })
}

/// Who holds a device, once those who only looked at it have gone.
fn holder(device: &Path) -> Option<Holder> {
    let until = Instant::now() + GLANCE;
    loop {
        let holder = who_holds(device)?;
        if !holder.may_pass || Instant::now() >= until {
            return Some(holder);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn cure(holder: &Holder) -> &'static str {
    if holder.how.starts_with("mounted") { "unmount it first" } else { "end that first" }
}

/// Lets the kernel load a driver that is wished for. Whether it is there the server finds out.
fn load_drivers(kind: Option<Kind>) {
    let is_wanted = |one| kind.is_none_or(|kind| kind == one);
    if is_wanted(Kind::Ublk) && !Path::new("/dev/ublk-control").exists() {
        modprobe("ublk_drv");
    }
    let has_ublk = kind.is_none() && Path::new("/dev/ublk-control").exists();
    if is_wanted(Kind::Nbd) && !has_ublk && !Path::new("/sys/module/nbd").exists() {
        modprobe("nbd");
    }
    if kind == Some(Kind::Fuse) && !Path::new("/dev/fuse").exists() {
        modprobe("fuse");
    }
}

fn modprobe(module: &str) {
    let quiet = |program| {
        let mut command = Command::new(program);
        command.arg(module).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()
    };
    // Where there is none, or no right to it, the driver stays away, which is said.
    let _ = quiet("modprobe").or_else(|_| quiet("/sbin/modprobe"));
}

/// The kernel's drivers wait for a server without a limit, or with one that not all requests know. So a process stays
/// behind that looks at nothing but the server's life, and ends the wait.
fn begin_to_watch_over(volume: &Volume, doc: &AttachedDoc) {
    if doc.kind == Kind::Fuse {
        return;
    }
    let program = std::env::current_exe();
    let started = program.and_then(|program| {
        let mut command = Command::new(program);
        command.arg("attach").arg("--watch-over").arg(&volume.file).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    });
    if let Err(error) = started {
        complain(&format!(
            "bimetal: nobody ends the wait for a server after {} s, as the process for that cannot be started: {error}",
            doc.wait_seconds
        ));
    }
}

fn watch_over(volume: &Volume) -> anyhow::Result<Outcome> {
    ignore_hangup();
    // Who leads a session already needs no other.
    let _ = rustix::process::setsid();
    let (file, lock) = (volume.socket("attached")?, volume.socket("watched")?);
    let lock = std::fs::File::create(&lock).with_context(|| format!("cannot write {}", lock.display()))?;
    if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        // Somebody watches already.
        return Ok(Outcome::Good);
    }
    while let Some(record) = recorded(&file)? {
        if !is_served(&record)? {
            wait_for_server(&file, &record)?;
        }
    }
    Ok(Outcome::Good)
}

/// Whether the server lives, after some time in which it did, or at once when it does not.
fn is_served(record: &Record) -> io::Result<bool> {
    let Some(pid) = i32::try_from(record.server).ok().and_then(Pid::from_raw) else { return Ok(false) };
    let Ok(server) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(false) };
    let limit = Timespec { tv_sec: RECORD_EVERY.as_secs() as i64, tv_nsec: 0 };
    match poll(&mut [PollFd::new(&server, PollFlags::IN)], Some(&limit)) {
        Ok(ended) => Ok(ended == 0),
        Err(rustix::io::Errno::INTR) => Ok(true),
        Err(errno) => Err(errno.into()),
    }
}

/// The server is gone: another has so long to take its device up. Then what waits for it fails.
fn wait_for_server(file: &Path, gone: &Record) -> io::Result<()> {
    let wait = Duration::from_secs(gone.wish.wait_seconds.into());
    let since = Instant::now();
    while recorded(file)?.is_some_and(|record| record.server == gone.server) {
        if since.elapsed() >= wait && !gone.put_away {
            return remove_orphan(file, gone);
        }
        std::thread::sleep(if gone.put_away { RECORD_EVERY } else { LOOK_EVERY });
    }
    Ok(())
}
