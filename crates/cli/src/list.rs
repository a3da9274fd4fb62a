//! `bimetal list`

use crate::args::ListArgs;
use crate::find::{self, Look};
use crate::volume::Volume;
use crate::{Outcome, attach, paths, say, say_json, size};
use anyhow::Context as _;
use bimetal_serve::StatusDoc;
use bimetal_serve::attach::AttachedDoc;
use bimetal_serve::status::{hex, tier_name};
use serde::Serialize;
use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// What `list --json` prints.
#[derive(Debug, Serialize)]
struct ListDoc {
    volumes: Vec<VolumeDoc>,
}

/// How a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum State {
    /// A process has one of its devices in use, under whatever name.
    #[serde(rename = "served")]
    Served,
    #[serde(rename = "stopped")]
    Stopped,
    /// A device is not there, or cannot be read, or there are two that claim to be it.
    #[serde(rename = "missing device")]
    MissingDevice,
    /// `create` or `destroy` did not come to its end.
    #[serde(rename = "unfinished")]
    Unfinished,
    /// Its file cannot be read.
    #[serde(rename = "broken")]
    Broken,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Served => "served",
            State::Stopped => "stopped",
            State::MissingDevice => "missing device",
            State::Unfinished => "unfinished",
            State::Broken => "broken",
        }
    }
}

#[derive(Debug, Serialize)]
struct VolumeDoc {
    name: String,
    file: PathBuf,
    volume_id: Option<String>,
    state: State,
    /// Size that clients see, where a superblock could be read.
    size_bytes: Option<u64>,
    devices: Vec<DeviceDoc>,
    /// The device of the machine that it is; null where it is none.
    attached: Option<AttachedDoc>,
    /// One sentence, where something is wrong.
    problem: Option<String>,
}

#[derive(Debug, Serialize)]
struct DeviceDoc {
    name: String,
    /// Where it is now, which may be elsewhere than the volume file says.
    device: PathBuf,
    /// Of the device, where it can be read.
    size_bytes: Option<u64>,
    /// What times it; null where it answers as soon as it can.
    model: Option<&'static str>,
}

pub(crate) fn run(args: &ListArgs) -> anyhow::Result<Outcome> {
    let directory = paths::config_dir()?;
    let mut files = named()?;
    let has_name = files.clone();
    files.extend(elsewhere(&files));
    let volumes: Vec<VolumeDoc> = files.iter().map(|file| describe(file, has_name.contains(file))).collect();
    let good = |volume: &&VolumeDoc| matches!(volume.state, State::Served | State::Stopped);
    let (all, cannot) = (volumes.len(), volumes.iter().filter(|volume| !good(volume)).count());
    if args.json {
        say_json(&ListDoc { volumes })?;
    } else if volumes.is_empty() {
        say(&format!("there are no volumes in {}; make one with `bimetal create`", directory.display()));
    } else {
        volumes.iter().for_each(|volume| say(&text(volume)));
    }
    Ok(match cannot {
        0 => Outcome::Good,
        _ => Outcome::Problem(format!("{cannot} of {all} volumes cannot be served as they are")),
    })
}

/// The volume files of a directory, by name; none if there is no such directory.
fn files(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot list {}", directory.display())),
    };
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
        .collect();
    files.sort();
    Ok(files)
}

/// The files of volumes that have a name; of two of one name, the one that it means.
pub(crate) fn named() -> anyhow::Result<Vec<PathBuf>> {
    let mut found = files(&paths::config_dir()?)?;
    // What was there before there was another place is no reason to fail.
    let former = paths::former_config_dir().and_then(|directory| files(&directory).ok()).unwrap_or_default();
    for file in former {
        if !found.iter().any(|known| known.file_name() == file.file_name()) {
            found.push(file);
        }
    }
    Ok(found)
}

/// Names of the volumes in the configuration directory; none where that cannot be read.
pub(crate) fn names() -> Vec<String> {
    let files = named().unwrap_or_default();
    let stem = |file: &PathBuf| Some(file.file_stem()?.to_str()?.to_owned());
    files.iter().filter_map(stem).collect()
}

/// A volume that this user serves.
pub(crate) struct Served {
    pub(crate) status: StatusDoc,
    /// Where its server is asked.
    pub(crate) control: PathBuf,
}

/// The volumes that this user serves, as their servers tell; who does not answer has a volume that cannot be named.
pub(crate) fn served() -> Vec<Served> {
    let sockets = paths::runtime_dir().ok().and_then(|dir| std::fs::read_dir(dir).ok());
    let sockets = sockets.into_iter().flatten().flatten().map(|entry| entry.path());
    let mut sockets: Vec<PathBuf> =
        sockets.filter(|path| path.extension().is_some_and(|ending| ending == "control")).collect();
    sockets.sort();
    let told = |control: PathBuf| {
        let status = bimetal_serve::live_status(&control).ok().flatten()?;
        Some(Served { status, control })
    };
    sockets.into_iter().filter_map(told).collect()
}

/// Volume files that are not in the configuration directory: that of `up`, and those of volumes that this user serves.
fn elsewhere(listed: &[PathBuf]) -> Vec<PathBuf> {
    let up = paths::data_dir().map(|dir| dir.join("volume.toml")).ok().filter(|file| file.exists());
    let told = served().into_iter().map(|served| PathBuf::from(served.status.file));
    let files = told.filter(|file| file.is_absolute());
    let same = |one: &PathBuf, other: &PathBuf| one.canonicalize().ok() == other.canonicalize().ok();
    let mut found: Vec<PathBuf> = Vec::new();
    for file in up.into_iter().chain(files) {
        if !listed.iter().chain(&found).any(|known| same(known, &file)) {
            found.push(file);
        }
    }
    found.sort();
    found
}

/// What VOLUME means it: its name, if it has one, else its file.
fn called(file: &Path, has_name: bool) -> String {
    match has_name {
        true => file.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        false => file.display().to_string(),
    }
}

/// What is to be known of a volume without opening it. Nothing that is wrong with it is an error here.
fn describe(file: &Path, has_name: bool) -> VolumeDoc {
    let volume = match Volume::load(file) {
        Ok(volume) => volume,
        Err(error) => {
            return VolumeDoc {
                name: called(file, has_name),
                file: file.into(),
                volume_id: None,
                state: State::Broken,
                size_bytes: None,
                devices: Vec::new(),
                attached: None,
                problem: Some(format!("{error:#}")),
            };
        }
    };
    let (paths, mut problem) = match find::resolve(&volume) {
        Ok(resolved) => (resolved.devices, None),
        Err(error) => (volume.devices.clone(), Some(error.to_string())),
    };
    let mut size_bytes = None;
    let is_served = paths.iter().any(|path| bimetal_driver::in_use(path));
    for (tier, path) in paths.iter().enumerate() {
        if is_served && paths::is_export(path) {
            // Whoever serves the volume may be the one client that its server takes.
            continue;
        }
        match find::look(path) {
            Look::Ours(superblock) if find::belongs(&superblock, &volume, tier) => {
                size_bytes = Some(superblock.geometry.volume_bytes());
            }
            Look::Newer(format) => {
                problem.get_or_insert_with(|| {
                    format!("{} has format {format}, newer than this program knows", path.display())
                });
            }
            Look::Unknown(why) => {
                problem.get_or_insert_with(|| format!("{} cannot be read: {why}", path.display()));
            }
            _ => {
                problem.get_or_insert_with(|| {
                    format!("{} is not the {} device of this volume", path.display(), tier_name(tier))
                });
            }
        }
    }
    let state = match &problem {
        _ if volume.unfinished => State::Unfinished,
        Some(_) => State::MissingDevice,
        None if is_served => State::Served,
        None => State::Stopped,
    };
    if state == State::Unfinished {
        problem = Some("it was not made to its end, or not destroyed to its end".to_owned());
    }
    let mut attached = attach::waiting(&volume);
    if let Some(attached) = &mut attached {
        attached.served = state == State::Served;
    }
    VolumeDoc {
        attached,
        name: called(file, has_name),
        file: file.into(),
        volume_id: Some(hex(&volume.id)),
        state,
        size_bytes,
        devices: devices(paths, &volume.models),
        problem,
    }
}

fn devices(paths: Vec<PathBuf>, models: &[Option<&'static str>]) -> Vec<DeviceDoc> {
    let tiers = paths.into_iter().zip(models).enumerate();
    tiers
        .map(|(tier, (device, model))| DeviceDoc {
            name: tier_name(tier),
            model: *model,
            size_bytes: File::open(&device).and_then(|mut file| file.seek(SeekFrom::End(0))).ok(),
            device,
        })
        .collect()
}

fn text(volume: &VolumeDoc) -> String {
    let size = volume.size_bytes.map_or_else(|| "?".to_owned(), size::show);
    let mut text = format!("{:<20} {:<14} {size:>10}", volume.name, volume.state.name());
    for device in &volume.devices {
        text += &format!("   {}: {}", device.name, device.device.display());
        if let Some(model) = device.model {
            text += &format!(" (timed as {model})");
        }
    }
    if let Some(attached) = &volume.attached {
        text += &format!("\n    {}", attach::describe(attached));
    }
    if let Some(problem) = &volume.problem {
        text += &format!("\n    {problem}");
    }
    text
}
