//! `bimetal replace`

mod alone;
pub(crate) mod args;
pub(crate) mod successor;

use crate::find;
use crate::paths::{self, DeviceSpec};
use crate::progress::Progress;
use crate::protect::{self, stand_in};
use crate::volume::{self, Replacing, Volume};
use crate::{Outcome, create, inspect, offline, say, say_json, size};
use anyhow::{Context as _, bail};
use args::ReplaceArgs;
use bimetal_driver::BlockFile;
use bimetal_engine::format::superblock::Superblock;
use bimetal_serve::successor::{ReplaceDoc, ReplaceWish};
use bimetal_serve::{Answer, Question};
use bimetal_units::{BLOCK_BYTES, FAST};
use serde::Serialize;
use std::time::Duration;

/// How often it is asked how far it has come.
const ASKED_EVERY: Duration = Duration::from_millis(200);

/// What `replace --json` prints.
#[derive(Debug, Serialize)]
struct Document<'d> {
    /// The volume's name.
    volume: String,
    #[serde(flatten)]
    replacing: &'d ReplaceDoc,
}

pub(crate) fn run(args: &ReplaceArgs) -> anyhow::Result<Outcome> {
    let mut volume = Volume::load(&volume::locate(&args.volume)?)?;
    let wanted = match (&args.fast, &args.slow) {
        (Some(spec), _) => Some((0, spec)),
        (None, Some(spec)) => Some((1, spec)),
        (None, None) => None,
    };
    let doc = match wanted {
        _ if args.cancel => cancel(&mut volume)?,
        None if args.leave_unreadable => {
            leave_unreadable(&mut volume)?;
            tell(&volume)?
        }
        None => tell(&volume)?,
        Some((tier, spec)) => {
            begin(&mut volume, tier, spec, args.force, args.json)?;
            if args.leave_unreadable {
                leave_unreadable(&mut volume)?;
            }
            match ask(&volume, ReplaceWish::Begin) {
                Ok(Some(doc)) => wait(&volume, doc, args.json)?,
                Ok(None) => alone(&volume, args.json)?,
                Err(error) => {
                    forget(&mut volume)?;
                    return Err(error);
                }
            }
        }
    };
    match args.json {
        true => say_json(&Document { volume: volume.name().0, replacing: &doc })?,
        false => say(&format!("{}: {}", volume.name().0, describe(&doc))),
    }
    Ok(match (doc.state.as_str(), doc.unreadable_bytes) {
        ("failed", _) => Outcome::Problem(format!("{}: {}", volume.name().0, describe(&doc))),
        (_, 1..) if !doc.leaves_unreadable => Outcome::Problem(stuck(&volume, &doc)),
        _ => Outcome::Good,
    })
}

/// It cannot come to its end: why, and what can be done.
fn stuck(volume: &Volume, doc: &ReplaceDoc) -> String {
    let (program, name) = (paths::program(), volume.called());
    let without = match doc.tier.as_str() {
        "slow" => format!(", and `{program} replace {name} --leave-unreadable` does without them, for good"),
        _ => String::new(),
    };
    format!(
        "{}: {} of the old device cannot be read; write them again, or let `{program} scrub {name}` repair what it can: then it \
         goes on{without}",
        volume.name().0,
        size::show(doc.unreadable_bytes),
    )
}

/// What the old device cannot read is left out from now on, also after a crash.
fn leave_unreadable(volume: &mut Volume) -> anyhow::Result<()> {
    *volume = Volume::load(&volume.file)?;
    let name = volume.name().0;
    match &mut volume.replacing {
        Some(Replacing { tier: 1, leave_unreadable, .. }) => *leave_unreadable = true,
        Some(_) => bail!(
            "{name}: its fast device is being replaced, of which not all has a checksum that would tell what was left out; write what \
             cannot be read again"
        ),
        None => bail!("{name}: no device is being replaced"),
    }
    volume.save()?;
    // Where nothing is copied yet, the volume file says it to whoever begins.
    ask(volume, ReplaceWish::LeaveUnreadable).map(drop)
}

/// How a replacement stands, in a sentence.
pub(crate) fn describe(doc: &ReplaceDoc) -> String {
    let ReplaceDoc { tier, device, .. } = doc;
    let copied = format!("{} of {} copied", size::show(doc.copied_bytes), size::show(doc.of_bytes));
    let rate = match (doc.bytes_per_s, doc.left_s) {
        (Some(rate), Some(left)) => format!(", {} a second, {left} s left", size::show(rate)),
        _ => String::new(),
    };
    match doc.state.as_str() {
        "copying" if doc.unreadable_bytes > 0 => {
            let then = if doc.leaves_unreadable { ", up to three times, and then done without" } else { "" };
            format!(
                "{device} is being made the {tier} device: {copied}; {} cannot be read, and are tried again each minute{then}",
                size::show(doc.unreadable_bytes)
            )
        }
        "copying" => format!("{device} is being made the {tier} device: {copied}{rate}"),
        "whole" | "taking-over" => format!("{device} is copied, and takes over as the {tier} device"),
        "done" if doc.left_bytes > 0 => format!(
            "{device} is the {tier} device; {} could not be read of the old one, and are errors until they are written again: a scrub \
             repairs what has a copy, and lists the rest; the old one can be taken away",
            size::show(doc.left_bytes)
        ),
        "done" => format!("{device} is the {tier} device; the old one can be taken away"),
        "cancelled" => format!("{device} is not made the {tier} device: it was cancelled"),
        "failed" => {
            let why = doc.why.as_deref().unwrap_or("it is not known why");
            format!("{device} cannot be made the {tier} device: {why}; the old one is the volume's as before")
        }
        _ => "no device is being replaced".to_owned(),
    }
}

/// Asks the server; none where nobody serves the volume.
fn ask(volume: &Volume, wish: ReplaceWish) -> anyhow::Result<Option<ReplaceDoc>> {
    let control = volume.socket("control")?;
    let silent =
        || format!("the server of {} does not answer on {}", volume.file.display(), control.display());
    match bimetal_serve::live_answer(&control, &Question::Replace { wish }).with_context(silent)? {
        None => Ok(None),
        Some(Answer::Replace(doc)) => Ok(Some(*doc)),
        Some(Answer::Refused(what)) => bail!(what),
        Some(other) => bail!("the server gave another answer than asked for: {other:?}"),
    }
}

/// How far it has come.
fn tell(volume: &Volume) -> anyhow::Result<ReplaceDoc> {
    if let Some(doc) = ask(volume, ReplaceWish::Tell)? {
        return Ok(doc);
    }
    let Some(Replacing { tier, device, leave_unreadable }) = &volume.replacing else {
        return Ok(ReplaceDoc { state: "none".to_owned(), ..ReplaceDoc::default() });
    };
    let superblock = successor::superblock(volume, *tier)?;
    let header = successor::newest_header(&BlockFile::open_read_only(device)?, &superblock);
    Ok(ReplaceDoc {
        state: "copying".to_owned(),
        tier: bimetal_serve::status::tier_name(*tier),
        device: device.display().to_string(),
        copied_bytes: header.map_or(0, |header| header.copied_bytes),
        of_bytes: superblock.geometry.device_bytes[*tier],
        leaves_unreadable: *leave_unreadable,
        ..ReplaceDoc::default()
    })
}

/// Ends it before its end.
fn cancel(volume: &mut Volume) -> anyhow::Result<ReplaceDoc> {
    let before = tell(volume)?;
    let doc = match ask(volume, ReplaceWish::Cancel)? {
        Some(_) => ended(volume, |doc| matches!(doc.state.as_str(), "cancelled" | "failed" | "done"))?,
        None if volume.replacing.is_none() => bail!("{}: no device is being replaced", volume.name().0),
        None => ReplaceDoc { state: "cancelled".to_owned(), ..before },
    };
    if doc.state == "cancelled" {
        *volume = Volume::load(&volume.file)?;
        forget(volume)?;
    }
    Ok(doc)
}

/// Asks the server until it has come so far.
fn ended(volume: &Volume, mut is_over: impl FnMut(&ReplaceDoc) -> bool) -> anyhow::Result<ReplaceDoc> {
    loop {
        match ask(volume, ReplaceWish::Tell)? {
            Some(doc) if is_over(&doc) => return Ok(doc),
            Some(_) => std::thread::sleep(ASKED_EVERY),
            None => bail!(
                "the server of {} ended meanwhile; it goes on when the volume is served again",
                volume.file.display()
            ),
        }
    }
}

/// What the volume file says of it is taken back, and what the successor says of itself.
fn forget(volume: &mut Volume) -> anyhow::Result<()> {
    if let Some(Replacing { tier, device, .. }) = volume.replacing.take() {
        volume.save()?;
        // It may be the reason why: then it has nothing to say either.
        if let (Ok(file), Ok(superblock)) = (BlockFile::open(&device), successor::superblock(volume, tier)) {
            let _ = successor::erase_headers(&file, &superblock);
        }
    }
    Ok(())
}

/// Writes into the volume file which device is to take whose place, once nothing stands against it.
fn begin(
    volume: &mut Volume,
    tier: usize,
    spec: &DeviceSpec,
    force: bool,
    quiet: bool,
) -> anyhow::Result<()> {
    if paths::is_export(&spec.path) {
        bail!("{} is an NBD export; a device is replaced by a file or a block device", spec.path.display());
    }
    let device = create::prepare(spec)?;
    if let Some(under_way) = &volume.replacing {
        if under_way.tier == tier && find::is_same_storage(&under_way.device, &device) {
            return Ok(());
        }
        bail!(
            "{} is being made the {} device of {}; wait for that, or end it with --cancel",
            under_way.device.display(),
            bimetal_serve::status::tier_name(under_way.tier),
            volume.name().0
        );
    }
    let (resolved, missing) = find::what_is_there(volume)?;
    let stands_in = resolved.stand_in.is_some();
    // Then the image is what there is.
    let is_gone =
        tier == 0 && volume.protect.is_some() && missing.first().is_some_and(|missing| missing.tier == 0);
    let superblock = match is_gone {
        true => Superblock { tier: FAST, ..successor::superblock(volume, 1)? },
        false => successor::superblock(volume, tier)?,
    };
    // What is where the fast device was is not the volume's, once that is gone.
    let own = &volume.devices[usize::from(is_gone || stands_in)..];
    if let Some(own) = own.iter().find(|own| find::is_same_storage(own, &device)) {
        bail!("{} is the same storage as {}, which is the volume's", device.display(), own.display());
    }
    if tier == 1 && stands_in {
        bail!(
            "{} has the place of the fast device of {} as well; give that another one first, with --fast",
            volume.devices[1].display(),
            volume.name().0
        );
    }
    let need = protect::needs(volume, &superblock, tier);
    let file = BlockFile::open(&device)?;
    let have = file.size_bytes() / u64::from(BLOCK_BYTES) * u64::from(BLOCK_BYTES);
    if have < need {
        bail!(
            "{} has {} bytes, and the volume uses {need} of its {} device; give one that is at least as large",
            device.display(),
            file.size_bytes(),
            bimetal_serve::status::tier_name(tier)
        );
    }
    if let Some(found) = inspect::contents(&file, quiet)?.found
        && !force
    {
        bail!("{} holds {found}; choose another device, or overwrite it with --force", device.display());
    }
    inspect::wipe(&file)?;
    successor::erase_headers(&file, &superblock)?;
    let used = superblock.geometry.device_bytes[tier];
    if need > used {
        // What was said of another image has no place in this one.
        file.erase(used, (need - used).min(2 * u64::from(BLOCK_BYTES)))?;
    }
    drop(file);
    if is_gone {
        stand_in::begin(volume).map_err(|error| match find::has_server(volume) {
            false => error,
            true => anyhow::anyhow!(
                "the image of {} is being served, read-only; stop that server first",
                volume.name().0
            ),
        })?;
    }
    volume.replacing = Some(Replacing { tier, device, leave_unreadable: false });
    volume.save()
}

/// Waits until a server has done it.
fn wait(volume: &Volume, begun: ReplaceDoc, quiet: bool) -> anyhow::Result<ReplaceDoc> {
    let mut progress = Progress::new(format!("making {} the {} device", begun.device, begun.tier), quiet);
    ended(volume, |doc| {
        progress.at(&how_far(doc));
        is_over(doc)
    })
}

fn is_over(doc: &ReplaceDoc) -> bool {
    let is_stuck = !doc.leaves_unreadable
        && doc.unreadable_bytes > 0
        && doc.copied_bytes + doc.unreadable_bytes >= doc.of_bytes;
    is_stuck || !matches!(doc.state.as_str(), "copying" | "whole" | "taking-over")
}

/// Does it while nobody serves the volume.
fn alone(volume: &Volume, quiet: bool) -> anyhow::Result<ReplaceDoc> {
    offline::with_closed(volume, quiet, |driver, engine| {
        let mut progress = Progress::new(format!("replacing a device of {}", volume.name().0), quiet);
        alone::copy(volume, driver, engine, |doc| progress.at(&how_far(doc)))
    })
}

/// How far it has come, for a line that is drawn again and again.
fn how_far(doc: &ReplaceDoc) -> String {
    format!("{} of {}", size::show(doc.copied_bytes), size::show(doc.of_bytes))
}
