//! `bimetal status`, and volumes that nobody serves

use crate::args::LookArgs;
use crate::progress::Progress;
use crate::volume::{self, Volume};
use crate::{Outcome, attach, protect, replace, say, say_json, scrub, size};
use anyhow::{Context as _, bail};
use bimetal_driver::{Change, Driver, PoolSizes, RealArena, run_task};
use bimetal_engine::Engine;
use bimetal_engine::loss::Suspects;
use bimetal_serve::protection::ProtectionDoc;
use bimetal_serve::status::{MovesDoc, RemoteDoc, WakeUpsDoc, WearDoc};
use bimetal_serve::successor::ReplaceDoc;
use bimetal_serve::{LossDoc, StatusDoc, unix_ms};
use bimetal_watch::Ledger;
use serde::Serialize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A device that is silent for less than this is busy, or a disk that spins up.
const WORTH_SAYING: Duration = Duration::from_secs(3);

pub(crate) fn status(args: &LookArgs) -> anyhow::Result<Outcome> {
    let volume = Volume::load(&volume::locate(&args.volume)?)?;
    let control = volume.socket("control")?;
    let live = bimetal_serve::live_status(&control).with_context(|| {
        format!("the server of {} does not answer on {}", volume.file.display(), control.display())
    })?;
    let doc = match live {
        Some(doc) => doc,
        None => closed_status(&volume, args.json)?,
    };
    // Of a volume that was never served there is none.
    let ledger = bimetal_watch::ledger(&volume.history_file(), unix_ms() / 1000).ok();
    if args.json {
        say_json(&StatusReport { doc: &doc, ledger: ledger.as_ref() })?;
    } else {
        let spent = ledger.as_ref().map(saved).unwrap_or_default();
        say(&format!("{}{spent}", describe(&doc, &volume.called())));
    }
    Ok(Outcome::Good)
}

/// What `status --json` prints.
#[derive(Serialize)]
struct StatusReport<'s> {
    #[serde(flatten)]
    doc: &'s StatusDoc,
    /// What the fast tier has saved, and what that cost; null where there is no history.
    ledger: Option<&'s Ledger>,
}

/// What the fast tier has saved, and what that cost, where that is known of something.
fn saved(ledger: &Ledger) -> String {
    let (total, days) = (&ledger.total, ledger.days.len());
    if total.requests == 0 {
        return String::new();
    }
    let many = if days == 1 { "" } else { "s" };
    let mut text = format!(
        "\n  the fast tier has saved {} of waiting on {days} day{many}, and {} were written to it for that",
        waiting(total.saved_hours),
        size::show(total.worn_bytes)
    );
    if total.repaid_chunks + total.unrepaid_chunks > 0 {
        text += &format!("; {} moves repaid, {} did not", total.repaid_chunks, total.unrepaid_chunks);
    }
    text
}

/// Hours as people say them.
fn waiting(hours: f64) -> String {
    match hours {
        hours if hours >= 1.0 => format!("{hours:.1} hours"),
        hours if hours >= 1.0 / 60.0 => format!("{:.1} minutes", hours * 60.0),
        hours => format!("{:.1} seconds", hours * 3600.0),
    }
}

/// Opens a volume that nobody serves, does something with it, and closes it.
pub(crate) fn with_closed<R>(
    volume: &Volume,
    quiet: bool,
    work: impl FnOnce(&mut Driver, &mut Engine<RealArena>) -> anyhow::Result<R>,
) -> anyhow::Result<R> {
    with_driver(volume, volume.driver()?, quiet, work)
}

/// The same, with devices that take as long as they would if it were served.
pub(crate) fn with_open<R>(
    volume: &Volume,
    quiet: bool,
    work: impl FnOnce(&mut Driver, &mut Engine<RealArena>) -> anyhow::Result<R>,
) -> anyhow::Result<R> {
    let driver = volume::driver(volume.open_devices()?, volume.pools())?;
    with_driver(volume, driver, quiet, work)
}

/// A volume that nobody serves, as its devices tell of it.
pub(crate) struct Looked {
    pub(crate) driver: Driver,
    pub(crate) engine: Engine<RealArena>,
}

/// Looks at a volume that nobody serves, of which a device may be missing. Nothing is written.
pub(crate) fn look(volume: &Volume, quiet: bool) -> anyhow::Result<Looked> {
    let (files, missing) = volume.open_to_look()?;
    let (mut driver, arena) = volume::driver_of_rest(files, PoolSizes::default(), missing.as_ref())?;
    driver.ignore_models();
    let options = volume.open_options();
    let task = match &missing {
        Some(missing) => {
            volume::open_degraded(volume, &mut driver, arena, missing, options, Suspects::Refused)
        }
        None => bimetal_engine::open_to_look(arena, driver.device_infos(), options),
    };
    let mut progress = Progress::new(format!("reading {}", volume.name().0), quiet);
    let engine = run_task(&mut driver, task, |bytes, changes| progress.of_task(bytes, changes))??;
    Ok(Looked { driver, engine })
}

fn with_driver<R>(
    volume: &Volume,
    (mut driver, arena): (Driver, RealArena),
    quiet: bool,
    work: impl FnOnce(&mut Driver, &mut Engine<RealArena>) -> anyhow::Result<R>,
) -> anyhow::Result<R> {
    protect::join(volume, &mut driver);
    replace::successor::join(volume, &mut driver);
    let task = bimetal_engine::open(arena, driver.device_infos(), volume.open_options());
    let mut progress = Progress::new(format!("opening {}", volume.name().0), quiet);
    let mut engine = run_task(&mut driver, task, |bytes, changes| progress.of_task(bytes, changes))??;
    drop(progress);
    volume::watch(&mut driver, &engine)?;
    let result = work(&mut driver, &mut engine);
    look_after(&mut driver)?;
    close(&mut driver, engine)?;
    look_after(&mut driver)?;
    result
}

/// Says what has changed about the devices meanwhile; an error where the volume is none any more.
fn look_after(driver: &mut Driver) -> anyhow::Result<()> {
    for change in driver.take_changes() {
        match change {
            Change::Moved(what) | Change::Away(what) => tracing::warn!("{what}"),
            Change::Back(what) => tracing::info!("{what}"),
            Change::Orphaned(what) | Change::Lost(what) => bail!(what),
        }
    }
    Ok(())
}

fn closed_status(volume: &Volume, quiet: bool) -> anyhow::Result<StatusDoc> {
    with_closed(volume, quiet, |driver, engine| {
        let mut doc = StatusDoc::new(&volume.name(), &engine.status());
        doc.describe_devices(&driver.io_facts());
        doc.attached = attach::waiting(volume);
        let successor = driver.replacement().zip(driver.successor());
        doc.replacing = successor.map(|(progress, device)| ReplaceDoc::new(&progress, device, None));
        doc.protection = ProtectionDoc::of(driver);
        if doc.state == "open" {
            doc.state = "closed".to_owned();
        }
        Ok(doc)
    })
}

fn close(driver: &mut Driver, mut engine: Engine<RealArena>) -> anyhow::Result<()> {
    engine.begin_shutdown(driver.clock.now());
    loop {
        driver.pump(&mut engine, |_, _, _| {});
        if engine.is_stopped() && driver.device_ops() == 0 && driver.image_is_finished() {
            return Ok(());
        }
        driver.wait(&engine, Some(Duration::from_secs(1))).context("io_uring failed")?;
        driver.harvest(&mut engine, |_| {});
    }
}

/// For who reads it; `called` is what he calls the volume.
fn describe(doc: &StatusDoc, called: &str) -> String {
    let mut text = format!("{}: {}, {}\n", doc.volume, doc.state, size::show(doc.size_bytes));
    for tier in &doc.tiers {
        text += &format!(
            "  {:<5} {:>10} of {:>10} used   {:>5.1} % of reads   {:>5.1} % of writes   {}\n",
            tier.name,
            size::show(tier.used_bytes),
            size::show(tier.size_bytes),
            tier.read_share * 100.0,
            tier.write_share * 100.0,
            tier.device
        );
        if doc.loss.as_ref().is_some_and(|loss| tier.name == loss.missing.name()) {
            text += "        it is missing\n";
            continue;
        }
        if let Some(remote) = &tier.remote {
            text += &of_export(remote);
            continue;
        }
        text += &format!("        {}", if tier.direct { "direct I/O" } else { "through the page cache" });
        if let Some(sector) = tier.logical_sector_bytes {
            text += &format!(" in units of {sector} bytes");
        }
        if let Some(physical) = tier.physical_sector_bytes {
            text += &format!(", physical sectors of {physical}");
        }
        if let Some(model) = &tier.model {
            text += &format!(", timed as {model}");
        }
        text += "\n";
        if doc.state != "closed" {
            let WakeUpsDoc { clients, background } = tier.wakeups;
            text += &format!("        woken {} times, {clients} by clients\n", clients + background);
        }
        if tier.pinned_bytes > 0 {
            text += &format!("        {} pinned to it\n", size::show(tier.pinned_bytes));
        }
        if let Some(silent) = tier.silent_since_unix_s.and_then(silent_for) {
            text += &format!("        it has not answered for {silent} s, and requests wait for it\n");
        }
    }
    if let Some(loss) = &doc.loss {
        text += &format!("  {}\n", degraded(called, loss));
    }
    text += &format!(
        "  landing zone: {} of {} in use, {} landed\n",
        size::show(doc.landing.used_bytes),
        size::show(doc.landing.size_bytes),
        size::show(doc.landing.landed_bytes)
    );
    text += &format!(
        "  since it was opened: {} chunks moved up, {} down, {} landed blocks brought home\n",
        doc.promoted_chunks, doc.demoted_chunks, doc.destaged_blocks
    );
    if doc.shadowed_bytes > 0 || doc.shadow_demoted_chunks > 0 {
        let (held, down) = (size::show(doc.shadowed_bytes), doc.shadow_demoted_chunks);
        text += &format!(
            "  shadows on the slow tier: {held}, and {down} chunks went down without being copied\n"
        );
    }
    if doc.copied_bytes > 0 {
        let (held, read) = (size::show(doc.copied_bytes), size::show(doc.copy_read_bytes));
        text += &format!("  copies of the slow tier: {held}, from which {read} was read\n");
    }
    if let Some(replacing) = &doc.replacing {
        text += &format!("  {}\n", replace::describe(replacing));
    }
    if let Some(protection) = &doc.protection {
        text += &format!("  {}\n", protect::describe(protection));
    }
    text += &health(doc);
    if let Some(attached) = &doc.attached {
        text += &format!("  {}\n", attach::describe(attached));
    }
    text += &wear(&doc.wear);
    text += &moves(&doc.moves);
    text + &format!(
        "  memory: {} of tables, {} of buffers",
        size::show(doc.ram_bytes),
        size::show(doc.buffer_bytes)
    )
}

/// A line on a device that was missing when the volume was opened.
fn degraded(called: &str, loss: &LossDoc) -> String {
    format!(
        "the {} device is missing: {} can be read, {} is lost (`bimetal lost {called}` lists it); {}",
        loss.missing.name(),
        size::show(loss.good_bytes),
        size::show(loss.lost_bytes),
        if loss.writable { "what is written goes to the fast one" } else { "nothing is written" }
    )
}

/// How an export stands.
fn of_export(remote: &RemoteDoc) -> String {
    let mut text = match remote.away_since_unix_s {
        Some(since) => format!(
            "        an NBD export, away{}",
            silent_for(since).map_or_else(String::new, |s| format!(" for {s} s"))
        ),
        None => {
            let many = if remote.connections == 1 { "" } else { "s" };
            format!("        an NBD export, {} connection{many}", remote.connections)
        }
    };
    if remote.breaks > 0 {
        let times = if remote.breaks == 1 { "once".to_owned() } else { format!("{} times", remote.breaks) };
        let requests = if remote.resent == 1 { "request was" } else { "requests were" };
        text += &format!("; broken {times}, and {} {requests} sent again", remote.resent);
    }
    if remote.unflushed_bytes > 0 {
        text += &format!("; {} written there and not flushed", size::show(remote.unflushed_bytes));
    }
    text + "\n"
}

/// What was read again or repaired, and the last scrub, where there is something to say.
fn health(doc: &StatusDoc) -> String {
    let mut text = String::new();
    if doc.reads_again + doc.repaired_blocks > 0 {
        let (again, shadows, repaired) = (doc.reads_again, doc.reads_from_shadows, doc.repaired_blocks);
        text += &format!(
            "  {again} reads were made again, {shadows} of them from shadows; {repaired} blocks were repaired\n"
        );
    }
    if let Some(marks) = &doc.marks {
        text += &format!(
            "  without the fast device: what is on it would be lost, and up to {} suspect\n",
            size::show(marks.suspect_bytes)
        );
    }
    if !matches!(doc.scrub.state.as_str(), "" | "never") {
        text += &format!("  {}\n", scrub::describe(&doc.scrub));
    }
    let lost = doc.scrub.lost_bytes();
    if lost > 0 {
        text += &format!(
            "  it has found {} lost; `bimetal scrub {} --status` lists them\n",
            size::show(lost),
            doc.volume
        );
    }
    text
}

/// What the engine wrote to the fast device of its own accord, where there is something to say.
fn wear(wear: &WearDoc) -> String {
    if wear.moved_bytes + wear.copied_bytes == 0 && wear.budget.is_none() {
        return String::new();
    }
    let budget = wear.budget.as_ref().map(|budget| {
        format!("; {} of {} a day left", size::show(budget.left_bytes), size::show(budget.bytes_per_day))
    });
    format!(
        "  wear of the fast device: {} by moves, {} by copies{}\n",
        size::show(wear.moved_bytes),
        size::show(wear.copied_bytes),
        budget.unwrap_or_default()
    )
}

/// Whether what rose has repaid it, where that has been seen of something.
fn moves(moves: &MovesDoc) -> String {
    if moves.judged_chunks == 0 {
        return String::new();
    }
    format!(
        "  of {} chunks that rose, {} have repaid it; a move has to save {:.2} times what it costs\n",
        moves.judged_chunks, moves.repaid_chunks, moves.caution
    )
}

/// How many seconds a device has been silent; none where that is nothing unusual.
fn silent_for(since_unix_s: u64) -> Option<u64> {
    let since = UNIX_EPOCH + Duration::from_secs(since_unix_s);
    let silent = SystemTime::now().duration_since(since).ok()?;
    (silent >= WORTH_SAYING).then_some(silent.as_secs())
}
