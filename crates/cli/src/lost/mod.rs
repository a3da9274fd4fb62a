//! `bimetal lost`

pub(crate) mod files;

use crate::args::LostArgs;
use crate::find::{self, Missing};
use crate::volume::{self, Volume};
use crate::{Outcome, offline, say, say_json, size};
use anyhow::{Context as _, bail};
use bimetal_engine::loss::{Loss, LossClass, Losses};
use bimetal_serve::ask::TierName;
use bimetal_serve::{Answer, LossDoc, LossesDoc, Question};
use serde::Serialize;
use std::path::PathBuf;

/// Ranges, and files, that are listed where a person reads.
pub(crate) const MOST_LISTED: usize = 20;

/// A range of the volume.
#[derive(Debug, Serialize)]
struct RangeDoc {
    offset: u64,
    length: u64,
}

/// What `lost --json` prints.
#[derive(Debug, Serialize)]
struct LostDoc {
    volume: String,
    /// Null where both devices are there.
    missing: Option<TierName>,
    as_of_unix_s: Option<u64>,
    good_bytes: u64,
    lost: Vec<RangeDoc>,
    suspect: Vec<RangeDoc>,
    /// With something in a lost range; none unless `--files` asked for them.
    files: Vec<files::FileDoc>,
    /// Directories and files of which it cannot be known what of them is lost.
    unknowable: Vec<PathBuf>,
}

/// What is lost of a volume.
struct Told {
    loss: Option<LossDoc>,
    size_bytes: u64,
    losses: Losses,
}

pub(crate) fn run(args: &LostArgs) -> anyhow::Result<Outcome> {
    let volume = Volume::load(&volume::locate(&args.volume)?)?;
    let (_, missing) = find::what_is_there(&volume)?;
    let missing = missing.into_iter().next();
    let told = match ask_server(&volume, missing.as_ref())? {
        Some(told) => told,
        None => look(&volume, args.json)?,
    };
    let found = match &args.files {
        Some(mount) => files::lost_files(mount, &told.losses, told.size_bytes, args.json)?,
        None => files::Found::default(),
    };
    if args.json {
        say_json(&document(&volume, &told, found))?;
    } else {
        say(&describe(&volume, missing.as_ref(), &told));
        if let Some(mount) = &args.files {
            say(&found.describe(mount, MOST_LISTED));
        }
    }
    Ok(Outcome::Good)
}

/// What is said when a volume is served though a device is missing.
pub(crate) fn sentence(volume: &Volume, missing: &Missing, loss: &Loss) -> String {
    let size = loss.good_bytes + loss.lost_bytes + loss.suspect_bytes;
    if let (Some(as_of), 0, Some(_)) = (loss.as_of_unix_s, loss.suspect_bytes, volume.protect) {
        return format!(
            "the fast device of {name} is missing, as {} {}: what is served is the image of the volume of {} s ago, read-only",
            missing.path.display(),
            missing.instead,
            (bimetal_serve::unix_ms() / 1000).saturating_sub(as_of),
            name = volume.called(),
        );
    }
    let written = match loss.writable {
        true => {
            "what is written goes to the fast device, as long as it has room, and what is lost is back when the disk is"
        }
        false => "the volume is read-only, and nothing is written to its other device",
    };
    format!(
        "the {} device of {name} is missing, as {} {}: {} of {} can be read, {} is lost (`bimetal lost {name}` lists it); \
         {written}",
        missing.name(),
        missing.path.display(),
        missing.instead,
        size::show(loss.good_bytes),
        size::show(size),
        size::show(loss.lost_bytes),
        name = volume.called(),
    )
}

/// Asks the server of the volume, part by part; none where nobody serves it.
fn ask_server(volume: &Volume, missing: Option<&Missing>) -> anyhow::Result<Option<Told>> {
    let control = volume.socket("control")?;
    let silent =
        || format!("the server of {} does not answer on {}", volume.file.display(), control.display());
    let mut told: Option<Told> = None;
    let mut next = Some(0);
    while let Some(from) = next {
        let doc: LossesDoc =
            match bimetal_serve::live_answer(&control, &Question::Lost { from }).with_context(silent)? {
                None if told.is_none() => return Ok(None),
                None => bail!("the server of {} ended meanwhile; ask again", volume.file.display()),
                Some(Answer::Lost(doc)) => doc,
                Some(Answer::Refused(what)) => bail!(what),
                Some(other) => bail!("the server gave another answer than asked for: {other:?}"),
            };
        let told = told.get_or_insert_with(|| Told {
            loss: doc.loss.clone(),
            size_bytes: doc.size_bytes,
            losses: Losses::default(),
        });
        told.losses.append(doc.losses());
        next = told.losses.next;
    }
    if let (Some(missing), Some(Told { loss: None, .. })) = (missing, &told) {
        bail!(
            "{} {}, and the server of {} was started when it was there: stop it, then ask again",
            missing.path.display(),
            missing.instead,
            volume.called()
        );
    }
    Ok(told)
}

/// Looks at a volume that nobody serves.
fn look(volume: &Volume, quiet: bool) -> anyhow::Result<Told> {
    let engine = offline::look(volume, quiet)?.engine;
    Ok(Told {
        loss: engine.loss().map(LossDoc::from),
        size_bytes: engine.size_bytes(),
        losses: engine.all_losses(),
    })
}

fn document(volume: &Volume, told: &Told, found: files::Found) -> LostDoc {
    let ranges = |class: LossClass| {
        let of_class = told.losses.ranges.iter().filter(|range| range.class == class);
        of_class.map(|range| RangeDoc { offset: range.offset, length: range.len }).collect()
    };
    LostDoc {
        volume: volume.name().0,
        missing: told.loss.as_ref().map(|loss| loss.missing),
        as_of_unix_s: told.loss.as_ref().and_then(|loss| loss.as_of_unix_s),
        good_bytes: told.good_bytes(),
        lost: ranges(LossClass::Lost),
        suspect: ranges(LossClass::Suspect),
        files: found.files,
        unknowable: found.unknowable,
    }
}

impl Told {
    fn good_bytes(&self) -> u64 {
        self.size_bytes - self.losses.bytes(LossClass::Lost) - self.losses.bytes(LossClass::Suspect)
    }
}

fn describe(volume: &Volume, missing: Option<&Missing>, told: &Told) -> String {
    let name = volume.called();
    let why = match (missing, &told.loss) {
        (Some(missing), _) => format!(
            "the {} device is missing: {} {}",
            missing.name(),
            missing.path.display(),
            missing.instead
        ),
        // It has come back since the server was started without it.
        (None, Some(_)) => "a device was missing when its server was started".to_owned(),
        (None, None) if told.losses.ranges.is_empty() => {
            return format!("{name}: nothing is missing, and nothing is lost");
        }
        (None, None) => "no device is missing, and some blocks were lost before".to_owned(),
    };
    let lost = told.losses.bytes(LossClass::Lost);
    let (ranges, good) = (told.losses.ranges.len(), size::show(told.good_bytes()));
    let mut text = format!(
        "{name}: {why}\n  {good} of {} can be read, {} is lost, in {ranges} ranges",
        size::show(told.size_bytes),
        size::show(lost)
    );
    for range in told.losses.ranges.iter().take(MOST_LISTED) {
        text += &format!("\n  lost {:>16} bytes at {:>16}", range.len, range.offset);
    }
    if ranges > MOST_LISTED {
        text += &format!("\n  and {} more: --json lists all", ranges - MOST_LISTED);
    }
    text
}
