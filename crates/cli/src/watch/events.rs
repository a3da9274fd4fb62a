//! `bimetal events`

use super::args::EventsArgs;
use super::times;
use crate::volume::{self, Volume};
use crate::{Outcome, say, say_json};
use anyhow::Context as _;
use bimetal_driver::signals::StopSignals;
use bimetal_serve::{EventDoc, EventLevel};
use bimetal_watch::events::{self, Found};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// How often the file is looked at while it is followed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &EventsArgs) -> anyhow::Result<Outcome> {
    let volume = Volume::load(&volume::locate(&args.volume)?)?;
    let path = volume.events_file();
    let signals = args.follow.then(StopSignals::new).transpose().context("cannot set up signals")?;
    let Some(signals) = signals else { return list(args, &volume.name().0, &path) };
    let mut end = tell(args, &path, 0)?;
    let timeout = Timespec::try_from(LOOK_EVERY).context("cannot wait")?;
    loop {
        match poll(&mut [PollFd::new(&signals, PollFlags::IN)], Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(Outcome::Good),
            Err(error) => return Err(error).context("cannot wait"),
        }
        end = tell(args, &path, end)?;
    }
}

/// What `events --json` prints.
#[derive(Debug, Serialize)]
struct EventsDoc<'v> {
    volume: &'v str,
    events: Vec<EventDoc>,
    /// Lines of the file that are no events any more.
    damaged_lines: u64,
}

/// All that has happened so far, since the time that was asked for.
fn list(args: &EventsArgs, volume: &str, path: &Path) -> anyhow::Result<Outcome> {
    if !args.json {
        tell(args, path, 0)?;
        return Ok(Outcome::Good);
    }
    let Found { mut events, damaged: damaged_lines, .. } = found(path, 0)?;
    events.retain(|event| event.unix_ms >= args.since.unwrap_or(0));
    say_json(&EventsDoc { volume, events, damaged_lines })?;
    Ok(Outcome::Good)
}

fn found(path: &Path, from: u64) -> anyhow::Result<Found> {
    events::read_from(path, from).with_context(|| format!("cannot read {}", path.display()))
}

/// Tells what was added to the file; gives how far it was read.
fn tell(args: &EventsArgs, path: &Path, from: u64) -> anyhow::Result<u64> {
    let Found { events, damaged, end } = found(path, from)?;
    if damaged > 0 {
        tracing::warn!("{}: {damaged} lines are damaged, and left out", path.display());
    }
    for event in events.iter().filter(|event| event.unix_ms >= args.since.unwrap_or(0)) {
        match args.json {
            true => say(&serde_json::to_string(event)?),
            false => say(&line(event)),
        }
    }
    Ok(end)
}

fn line(event: &EventDoc) -> String {
    let level = match event.level {
        EventLevel::Info => "",
        EventLevel::Warning => "warning: ",
        EventLevel::Error => "error: ",
    };
    let text =
        format!("{}  {:<14}  {level}{}", times::shown(event.unix_ms), event.kind.name(), event.message);
    // A path may have any character in its name; a line stays a line.
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}
