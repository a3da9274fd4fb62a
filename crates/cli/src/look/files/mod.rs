//! `bimetal files`: which files are on which tier.

mod count;
mod keep;
mod wishes;

use super::args::{FilesArgs, FilesOrder};
use super::source::Source;
use super::tree::{self, Place};
use crate::args::PinTier;
use crate::volume::Volume;
use crate::{Outcome, list, pins, say, say_json, size};
use anyhow::{Context as _, bail};
use bimetal_serve::ask::TierName;
use bimetal_serve::map::KeptBytes;
use bimetal_serve::{PinsDoc, Question};
use count::Counted;
use serde::Serialize;
use std::path::{Path, PathBuf};
use wishes::{Range, Wish, Wishes, joined, without};

/// Files that are listed where a person reads.
const MOST_LISTED: usize = 20;

/// A file, and where its bytes are.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct FileDoc {
    path: PathBuf,
    /// Those that are on the device.
    bytes: u64,
    #[serde(flatten)]
    kept: KeptBytes,
    /// Those that are not on the device yet, or of which the file system does not say where.
    unknown_bytes: u64,
    /// The mean heat of its bytes.
    heat: f64,
    /// That of its hottest chunk.
    hottest: u32,
}

/// What `files --json` prints.
#[derive(Debug, Serialize)]
struct FilesDoc<'f> {
    volume: &'f str,
    mountpoint: PathBuf,
    path: PathBuf,
    /// All that were looked at.
    count: usize,
    total: KeptBytes,
    files: &'f [FileDoc],
    /// Directories and files that cannot be looked at.
    unknowable: &'f [PathBuf],
    /// After `--pin` and `--unpin`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pins: Option<PinsDoc>,
}

pub(crate) fn run(args: &FilesArgs) -> anyhow::Result<Outcome> {
    if args.keep_pins {
        return keep::run(args);
    }
    let place = Place::of(&args.mountpoint)?;
    let path = match &args.path {
        None => place.mount.clone(),
        Some(path) => within(&place, path)?,
    };
    let served = volume_of(&place)?;
    let mut source = Source::server(&served.status.volume, &served.control, served.status.size_bytes);
    let mut counted = Counted::new(place.begins_at);
    tree::walk(&path, args.json, &mut counted)?;
    counted.ask(&mut source)?;
    let count = counted.files.len();
    let mut total = KeptBytes::default();
    counted.files.iter().for_each(|file| total.merge(&file.kept));
    let wish = match (args.pin, args.unpin) {
        (Some(PinTier::Fast), _) => Some(Some(TierName::Fast)),
        (Some(PinTier::Slow), _) => Some(Some(TierName::Slow)),
        (None, true) => Some(None),
        (None, false) => None,
    };
    let ranges = counted.ranges(served.status.chunk_bytes);
    let pins = match wish {
        Some(tier) => Some(wish_for(&served, &place, &path, ranges, tier)?),
        None => None,
    };
    let mut files = counted.files;
    match args.by {
        FilesOrder::Size => files.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.path.cmp(&b.path))),
        FilesOrder::Heat => files.sort_by(|a, b| b.heat.total_cmp(&a.heat).then_with(|| a.path.cmp(&b.path))),
    }
    files.truncate(args.top.unwrap_or(if args.json { usize::MAX } else { MOST_LISTED }));
    if args.json {
        let (volume, unknowable) = (served.status.volume.as_str(), counted.unknowable.as_slice());
        let mountpoint = place.mount;
        say_json(&FilesDoc { volume, mountpoint, path, count, total, files: &files, unknowable, pins })?;
    } else {
        say(&describe(&files, count, &total, &counted.unknowable));
        if let Some(pins) = &pins {
            pins::say_pins(pins, false)?;
        }
    }
    Ok(Outcome::Good)
}

/// A path on the file system, which may be given from where it is mounted.
fn within(place: &Place, path: &Path) -> anyhow::Result<PathBuf> {
    let path = place.mount.join(path);
    let path = path.canonicalize().with_context(|| format!("cannot find {}", path.display()))?;
    if !path.starts_with(&place.mount) {
        bail!("{} is not below {}; name what is", path.display(), place.mount.display());
    }
    Ok(path)
}

/// The volume that a file system is on: that which is the disk, or else the only one that is as large.
fn volume_of(place: &Place) -> anyhow::Result<list::Served> {
    let mut served = list::served();
    let is_it = |one: &list::Served| {
        let attached = one.status.attached.as_ref();
        attached.is_some_and(|attached| attached.device == place.disk)
    };
    if let Some(at) = served.iter().position(is_it) {
        return Ok(served.swap_remove(at));
    }
    served.retain(|one| one.status.size_bytes == place.volume_bytes && one.status.attached.is_none());
    match served.len() {
        0 => bail!(
            "{} is on {}, which is no volume that this user serves: `bimetal attach` makes one a device to mount",
            place.mount.display(),
            place.disk.display()
        ),
        1 => Ok(served.swap_remove(0)),
        _ => {
            let names: Vec<&str> = served.iter().map(|one| one.status.volume.as_str()).collect();
            bail!(
                "{} may be any of {}, which are as large; serve one of them at a time, or use `bimetal attach`",
                place.disk.display(),
                names.join(", ")
            )
        }
    }
}

/// Notes that a file or directory is to be on a tier, or is not any more, and does that; gives all pins after that.
fn wish_for(
    served: &list::Served,
    place: &Place,
    path: &Path,
    ranges: Vec<Range>,
    tier: Option<TierName>,
) -> anyhow::Result<PinsDoc> {
    let volume = Volume::load(served.status.file.as_ref())?;
    let mut wishes = Wishes::read(&volume)?;
    let own = path.strip_prefix(&place.mount).unwrap_or(path);
    let before = wishes.ranges();
    match tier {
        Some(tier) => {
            if ranges.is_empty() {
                bail!("nothing of it is on the device yet: `sync` first");
            }
            let meta =
                std::fs::symlink_metadata(path).with_context(|| format!("cannot find {}", path.display()))?;
            let (inode, made_ns) = wishes::identity(&meta);
            let path = own.to_owned();
            wishes.set(Wish {
                begins_at: place.begins_at,
                path,
                inode,
                made_ns,
                tier,
                ranges: ranges.clone(),
            });
            // What was pinned here to the other tier is not any more.
            let pins = keep::apply(&served.status.file, &before, &wishes)?;
            wishes.write(&volume)?;
            Ok(pins)
        }
        None => {
            let pinned = wishes.forget(place.begins_at, own)?;
            // Somebody else may want the same chunk where it is.
            let all = joined([ranges, pinned].concat());
            let gone = without(&all, &wishes.ranges());
            let pins = pin_ranges(&served.status.file, &gone, None)?;
            wishes.write(&volume)?;
            Ok(pins)
        }
    }
}

/// Pins ranges, or unpins them; gives all pins after that.
fn pin_ranges(volume: &str, ranges: &[(u64, u64)], tier: Option<TierName>) -> anyhow::Result<PinsDoc> {
    let mut pins = None;
    for (nth, &(offset, length)) in ranges.iter().enumerate() {
        let question = match tier {
            Some(tier) => Question::Pin { offset, length, tier },
            None => Question::Unpin { offset, length },
        };
        let done = pins::change(volume, question);
        pins =
            Some(done.with_context(|| {
                format!("{nth} of {} ranges are done, and the next is not", ranges.len())
            })?);
    }
    match pins {
        Some(pins) => Ok(pins),
        None => pins::change(volume, Question::Pins {}),
    }
}

fn describe(files: &[FileDoc], count: usize, total: &KeptBytes, unknowable: &[PathBuf]) -> String {
    let mut text = format!("{:>10} {:>10} {:>10} {:>10} {:>7}", "size", "fast", "slow", "landed", "heat");
    for file in files {
        let KeptBytes { fast_bytes, slow_bytes, landed_bytes, lost_bytes, .. } = file.kept;
        text += &format!(
            "\n{:>10} {:>10} {:>10} {:>10} {:>7.1}  {}",
            size::show(file.bytes),
            size::show(fast_bytes),
            size::show(slow_bytes),
            size::show(landed_bytes),
            file.heat,
            file.path.display()
        );
        if lost_bytes > 0 {
            text += &format!("   {} LOST", size::show(lost_bytes));
        }
        if file.unknown_bytes > 0 {
            text += &format!("   {} not on the device yet", size::show(file.unknown_bytes));
        }
    }
    text += &format!(
        "\n{count} files: {} fast, {} slow, {} landed",
        size::show(total.fast_bytes),
        size::show(total.slow_bytes),
        size::show(total.landed_bytes)
    );
    if count > files.len() {
        text += &format!("; {} are listed: --top N lists more", files.len());
    }
    for path in unknowable.iter().take(MOST_LISTED) {
        text += &format!("\ncannot be looked at: {}", path.display());
    }
    text
}
