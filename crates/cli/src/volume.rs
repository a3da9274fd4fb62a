//! Volume files: which devices, in tier order, under which identity.

use crate::find::{self, Look, Missing};
use crate::protect::{self, Protect, stand_in};
use crate::{paths, size};
use anyhow::{Context as _, bail};
use bimetal_driver::{
    BlockFile, DeviceOpenError, Driver, PoolSizes, REMOTE_PATIENCE, RealArena, Ring, Timing,
};
use bimetal_engine::format::superblock::{Found, Superblock};
use bimetal_engine::loss::Suspects;
use bimetal_engine::options::{DeviceInfo, OpenError, OpenOptions, Tuning};
use bimetal_engine::{Engine, Task};
use bimetal_serve::VolumeName;
use bimetal_units::{BLOCK_BYTES, FAST, SLOW, Tier};
use serde::{Deserialize, Serialize};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The newest layout of the volume file.
const VERSION: u32 = 1;

/// The largest wake budget: a slow device that is woken each minute hardly rests.
pub(crate) const MOST_WAKEUPS_PER_DAY: u32 = 1440;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct VolumeToml {
    version: u32,
    volume_id: String,
    /// Written before the devices are laid out and cleared afterwards.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unfinished: bool,
    /// Bytes in a day that moves and copies may write to the fast device: a size such as `150G`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wear_budget: Option<String>,
    /// How often in a day what has landed may wake the slow device by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wake_budget: Option<u32>,
    /// A program that is run with each event on its standard input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    on_event: Option<PathBuf>,
    /// How long reads and writes wait for a slow device that is an export and away: a time such as `60s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    remote_patience: Option<String>,
    /// How old the image on the slow device may be that the volume is protected by: a time such as `30s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    protect: Option<String>,
    /// Clients wait rather than that it is older.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    protect_strictly: bool,
    /// A device that is to take the place of one of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replacing: Option<ReplacingToml>,
    tier: Vec<TierToml>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplacingToml {
    /// `fast` or `slow`.
    tier: String,
    device: PathBuf,
    /// Whether what the old device cannot read is left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    leave_unreadable: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TierToml {
    device: PathBuf,
    /// What times it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
}

/// A volume as its file names it.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    /// The volume file.
    pub(crate) file: PathBuf,
    pub(crate) id: [u8; 16],
    /// Absolute, fastest first; an export as it was written.
    pub(crate) devices: Vec<PathBuf>,
    /// What times each of them; it belongs to the tier, whichever file turns out to hold it.
    pub(crate) models: Vec<Option<&'static str>>,
    /// Bytes in a day that moves and copies may write to the fast device.
    pub(crate) wear_budget: Option<u64>,
    /// How often in a day what has landed may wake the slow device by itself.
    pub(crate) wake_budget: Option<u32>,
    /// A program that is run with each event on its standard input; absolute.
    pub(crate) on_event: Option<PathBuf>,
    /// How long reads and writes wait for a slow device that is an export and away.
    pub(crate) remote_patience: Option<Duration>,
    /// How it is protected.
    pub(crate) protect: Option<Protect>,
    /// A device that is to take the place of one of them.
    pub(crate) replacing: Option<Replacing>,
    /// `create` did not come to its end.
    pub(crate) unfinished: bool,
}

/// A device that is to take another's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replacing {
    /// Whose place.
    pub(crate) tier: usize,
    /// Absolute.
    pub(crate) device: PathBuf,
    /// What the old device cannot read is left out.
    pub(crate) leave_unreadable: bool,
}

/// The volume file that VOLUME means.
pub(crate) fn locate(volume: &str) -> anyhow::Result<PathBuf> {
    if volume.contains('/') || volume.ends_with(".toml") {
        return std::path::absolute(volume).with_context(|| format!("{volume:?} is not a path"));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if volume.is_empty() || volume.starts_with('.') || !volume.chars().all(plain) || volume.len() > 64 {
        bail!(
            "{volume:?} is not a volume name; use up to 64 letters, digits, - and _, or a path ending in .toml"
        );
    }
    let file = format!("{volume}.toml");
    let kept = paths::config_dir()?.join(&file);
    let former = paths::former_config_dir().map(|dir| dir.join(&file));
    match former.filter(|former| former.exists() && !kept.exists()) {
        Some(former) => {
            tracing::warn!(
                "using {}; root's volumes are kept in {} now: move it there, or the service does not find it",
                former.display(),
                kept.parent().unwrap_or(&kept).display()
            );
            Ok(former)
        }
        None => Ok(kept),
    }
}

impl Volume {
    /// Reads a volume file.
    pub(crate) fn load(file: &Path) -> anyhow::Result<Volume> {
        let text = match read(file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                bail!("there is no volume {}; make it with `bimetal create`", file.display())
            }
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
        };
        let parsed: VolumeToml = toml::from_str(&text).map_err(|error| {
            let first = error.message().lines().next().unwrap_or_default().to_owned();
            anyhow::anyhow!("{} is not a volume file: {first}", file.display())
        })?;
        if parsed.version > VERSION {
            bail!(
                "{} has version {}, newer than {VERSION}, the newest this program knows",
                file.display(),
                parsed.version
            );
        }
        let Some(id) = parse_id(&parsed.volume_id) else {
            bail!("{}: volume_id must be 32 hexadecimal digits", file.display());
        };
        if parsed.tier.len() != 2 {
            bail!("{} names {} devices; this release fuses two", file.display(), parsed.tier.len());
        }
        let wear_budget = parsed.wear_budget.as_deref().map(size::parse).transpose();
        let wear_budget =
            wear_budget.map_err(|error| anyhow::anyhow!("{}: wear_budget: {error}", file.display()))?;
        let dir = file.parent().unwrap_or(Path::new("/"));
        let (mut devices, mut models) = (Vec::new(), Vec::new());
        for TierToml { device, model } in parsed.tier {
            devices.push(if paths::is_export(&device) { device } else { dir.join(device) });
            let model = model.as_deref().map(paths::model).transpose();
            models.push(model.map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?);
        }
        if devices.first().is_some_and(|fast| paths::is_export(fast)) {
            bail!("{}: {}", file.display(), paths::NOT_FAST);
        }
        let remote_patience = parsed.remote_patience.as_deref().map(crate::lab::args::time).transpose();
        let remote_patience = remote_patience
            .map_err(|error| anyhow::anyhow!("{}: remote_patience: {error}", file.display()))?;
        let protect = parsed.protect.as_deref().map(crate::protect::args::seconds).transpose();
        let protect = protect.map_err(|error| anyhow::anyhow!("{}: protect: {error}", file.display()))?;
        let protect = protect.map(|seconds| Protect { seconds, strict: parsed.protect_strictly });
        let (wake_budget, unfinished) = (parsed.wake_budget, parsed.unfinished);
        if let Some(times) = wake_budget.filter(|times| !(1..=MOST_WAKEUPS_PER_DAY).contains(times)) {
            bail!("{}: wake_budget: {times} times a day; use 1 to {MOST_WAKEUPS_PER_DAY}", file.display());
        }
        let on_event = parsed.on_event.map(|program| dir.join(program));
        if on_event.as_ref().is_some_and(|program| program.as_os_str().as_encoded_bytes().contains(&0)) {
            bail!("{}: on_event holds a zero byte; name a program", file.display());
        }
        let replacing = parsed.replacing.map(|ReplacingToml { tier, device, leave_unreadable }| {
            let tier = match tier.as_str() {
                "fast" => 0,
                "slow" => 1,
                other => bail!("{}: replacing: {other:?} is no tier; use fast or slow", file.display()),
            };
            Ok(Replacing { tier, device: dir.join(device), leave_unreadable })
        });
        let replacing = replacing.transpose()?;
        let mut volume = Volume {
            file: file.into(),
            id,
            devices,
            models,
            wear_budget,
            wake_budget,
            on_event,
            remote_patience,
            protect,
            replacing,
            unfinished,
        };
        volume.settle_replacement();
        Ok(volume)
    }

    /// Where a device has taken another's place, and nobody has written it here yet, its own place is here from now on: the other
    /// device says which of the two is the volume's.
    fn settle_replacement(&mut self) {
        let Some(Replacing { tier, device, .. }) = &self.replacing else { return };
        // Who has them open writes it himself.
        if bimetal_driver::in_use(device) {
            return;
        }
        let (Look::Ours(new), Look::Ours(other)) = (find::look(device), find::look(&self.devices[1 - tier]))
        else {
            return;
        };
        let is_its = find::belongs(&new, self, *tier) && find::belongs(&other, self, 1 - tier);
        if is_its && new.devices == other.devices {
            self.devices[*tier] = device.clone();
            self.replacing = None;
            // Who may only read it looks again.
            let _ = self.save();
        }
    }

    /// Writes the volume file, whole or not at all. Devices beside it are named relative to it, so that the
    /// directory can be moved.
    pub(crate) fn save(&self) -> anyhow::Result<()> {
        let dir = self.file.parent().unwrap_or(Path::new("/"));
        let tier = self.devices.iter().zip(&self.models).map(|(device, model)| TierToml {
            device: device.strip_prefix(dir).unwrap_or(device).to_owned(),
            model: model.map(str::to_owned),
        });
        let document = VolumeToml {
            version: VERSION,
            volume_id: bimetal_serve::status::hex(&self.id),
            unfinished: self.unfinished,
            wear_budget: self.wear_budget.map(size::exact),
            wake_budget: self.wake_budget,
            on_event: self
                .on_event
                .as_ref()
                .map(|program| program.strip_prefix(dir).unwrap_or(program).to_owned()),
            remote_patience: self.remote_patience.map(|time| format!("{}s", time.as_secs_f64())),
            protect: self.protect.map(|protect| format!("{}s", protect.seconds)),
            protect_strictly: self.protect.is_some_and(|protect| protect.strict),
            replacing: self.replacing.as_ref().map(|replacing| ReplacingToml {
                tier: bimetal_serve::status::tier_name(replacing.tier),
                device: replacing.device.strip_prefix(dir).unwrap_or(&replacing.device).to_owned(),
                leave_unreadable: replacing.leave_unreadable,
            }),
            tier: tier.collect(),
        };
        let text =
            format!("# A Bimetal volume: its devices, fastest first.\n{}", toml::to_string(&document)?);
        let write = || -> std::io::Result<()> {
            std::fs::create_dir_all(dir)?;
            let mut file = tempfile::NamedTempFile::new_in(dir)?;
            file.write_all(text.as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(&self.file)?;
            std::fs::File::open(dir)?.sync_all()
        };
        write().with_context(|| format!("cannot write {}", self.file.display()))
    }

    /// What it is called: the file's name without `.toml`.
    pub(crate) fn name(&self) -> VolumeName {
        let stem = self.file.file_stem().unwrap_or(self.file.as_os_str());
        VolumeName(stem.to_string_lossy().into_owned())
    }

    /// What a user calls it on the command line, as far as it is known: by its name, or by its file.
    pub(crate) fn called(&self) -> String {
        let name = self.name().0;
        match locate(&name) {
            Ok(file) if file == self.file => name,
            _ => paths::shell(&self.file),
        }
    }

    /// A socket of this volume in the runtime directory. The volume's identity is in the name, since two
    /// volume files in different directories may be called the same.
    pub(crate) fn socket(&self, suffix: &str) -> anyhow::Result<PathBuf> {
        let id = bimetal_serve::status::hex(&self.id[..4]);
        let mut name = self.name().0;
        name.truncate((0..=32).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0));
        Ok(paths::runtime_dir()?.join(format!("{name}-{id}.{suffix}")))
    }

    /// Finds, opens and locks the devices; says on standard error where one was found under another name.
    pub(crate) fn open_devices(&self) -> anyhow::Result<Vec<BlockFile>> {
        self.must_be_finished()?;
        let resolved = find::resolve(self)?;
        resolved.notes.iter().for_each(|note| tracing::warn!("{note}"));
        match resolved.stand_in {
            Some(_) => stand_in::open(self, BlockFile::open(&resolved.devices[1])?, true),
            None => self.open_paths(&resolved.devices),
        }
    }

    /// Finds what is left of a volume of which a device is missing, opens and locks it; says where it was found under
    /// another name. An error where nothing is missing, or too much.
    pub(crate) fn open_what_is_left(
        &self,
        open: impl Fn(&Path) -> Result<BlockFile, DeviceOpenError>,
    ) -> anyhow::Result<(Vec<BlockFile>, Missing)> {
        self.must_be_finished()?;
        let (resolved, missing) = find::what_is_there(self)?;
        let missing = match missing.as_slice() {
            [] => {
                if resolved.stand_in.is_some() {
                    bail!(
                        "nothing is missing of {}: the copy on {} has the place of the fast device; serve it without \
                         --degraded",
                        self.called(),
                        resolved.devices[1].display()
                    )
                }
                for path in &resolved.devices {
                    if let Look::Unknown(why) = find::look(path) {
                        bail!("{} cannot be looked at: {why}", path.display());
                    }
                }
                bail!("both devices of {} are there; serve it without --degraded", self.called())
            }
            [missing] => missing.clone(),
            [missing, ..] => bail!(missing.sentence(self)),
        };
        resolved.notes.iter().for_each(|note| tracing::warn!("{note}"));
        let left = 1 - missing.tier;
        let file = open(&resolved.devices[left])?;
        Ok((vec![timed(file, self.models[left])?], missing))
    }

    /// Finds, opens and locks the devices to read them, and nothing else: the one that is missing is told beside them.
    pub(crate) fn open_to_look(&self) -> anyhow::Result<(Vec<BlockFile>, Option<Missing>)> {
        self.must_be_finished()?;
        let (resolved, missing) = find::what_is_there(self)?;
        if !missing.is_empty() {
            let (files, missing) = self.open_what_is_left(BlockFile::open_read_only)?;
            return Ok((files, Some(missing)));
        }
        resolved.notes.iter().for_each(|note| tracing::warn!("{note}"));
        let files = match resolved.stand_in {
            Some(_) => stand_in::open(self, BlockFile::open_read_only(&resolved.devices[1])?, false)?,
            None => self.open_each(&resolved.devices, BlockFile::open_read_only)?,
        };
        Ok((files, None))
    }

    /// Refuses what must not be done while a device makes way for another one.
    pub(crate) fn must_not_be_replacing(&self) -> anyhow::Result<()> {
        if let Some(Replacing { device, .. }) = &self.replacing {
            bail!(
                "{} is being made a device of {}; wait for that, or cancel it: `{} replace {} --cancel`",
                device.display(),
                self.name().0,
                paths::program(),
                self.called()
            );
        }
        Ok(())
    }

    fn must_be_finished(&self) -> anyhow::Result<()> {
        if self.unfinished {
            bail!("{} was not made to its end; run `bimetal create --force` again", self.file.display());
        }
        Ok(())
    }

    /// Opens and locks the devices, which are at these paths.
    pub(crate) fn open_paths(&self, paths: &[PathBuf]) -> anyhow::Result<Vec<BlockFile>> {
        self.open_each(paths, BlockFile::open)
    }

    fn open_each(
        &self,
        paths: &[PathBuf],
        open: impl Fn(&Path) -> Result<BlockFile, DeviceOpenError>,
    ) -> anyhow::Result<Vec<BlockFile>> {
        if let [fast, slow] = paths
            && find::is_same_storage(fast, slow)
        {
            bail!(
                "{}: {} and {} are the same storage, or overlap; name two devices that lie apart",
                self.file.display(),
                fast.display(),
                slow.display()
            );
        }
        let patience = self.remote_patience.unwrap_or(REMOTE_PATIENCE);
        let open = |path: &PathBuf| open(path).map(|file| file.patient(patience));
        let files = paths.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        self.timed(files)
    }

    /// Devices in tier order, from now on timed by what the volume file says.
    pub(crate) fn timed(&self, files: Vec<BlockFile>) -> anyhow::Result<Vec<BlockFile>> {
        files.into_iter().zip(&self.models).map(|(file, model)| timed(file, *model)).collect()
    }

    /// Finds, opens and locks the devices and sets up the ring: for work that is over sooner without their models.
    pub(crate) fn driver(&self) -> anyhow::Result<(Driver, RealArena)> {
        let (mut driver, arena) = driver(self.open_devices()?, self.pools())?;
        driver.ignore_models();
        Ok((driver, arena))
    }

    /// Buffers for it where nothing limits them.
    pub(crate) fn pools(&self) -> PoolSizes {
        let copy = if self.protect.is_some() { bimetal_protect::Plan::POOL_BYTES } else { 0 };
        PoolSizes { copy, ..PoolSizes::default() }
    }

    /// How the engine is to open it.
    pub(crate) fn open_options(&self) -> OpenOptions {
        let mut tuning = Tuning { wear_bytes_per_day: self.wear_budget, ..Tuning::default() };
        if let Some(times) = self.wake_budget {
            tuning = tuning.with_wakeups_per_day(times);
        }
        OpenOptions { volume_id: Some(self.id), tuning }
    }
}

/// Refuses a file that what a command writes would take the place of, whatever was forced: a volume file, and what somebody
/// has open as a device.
pub(crate) fn spare(path: &Path) -> anyhow::Result<()> {
    if Volume::load(path).is_ok() {
        bail!("{} is a volume file; name another file to write", path.display());
    }
    if path.exists() && bimetal_driver::in_use(path) {
        bail!("{} is in use by another process; name another file to write", path.display());
    }
    Ok(())
}

/// Longest volume file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Reads a volume file; what is none by its kind is not even opened, since that may wait or never end.
fn read(file: &Path) -> std::io::Result<String> {
    let not = |what| Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, what));
    let meta = std::fs::metadata(file)?;
    match meta.is_file() {
        false if meta.is_dir() => not("it is a directory, not a volume file"),
        false => not("it is not a regular file"),
        true if meta.len() > MAX_FILE_BYTES => not("it is too large for a volume file"),
        true => std::fs::read_to_string(file),
    }
}

/// A device that is timed as this model from now on, or by nothing.
pub(crate) fn timed(file: BlockFile, model: Option<&'static str>) -> anyhow::Result<BlockFile> {
    let Some(name) = model else { return Ok(file.untimed()) };
    let timing = Timing::named(name, file.size_bytes())
        .with_context(|| format!("{} cannot be timed as {name}", file.path().display()))?;
    Ok(file.timed(timing))
}

/// Sets up a ring for the devices of a volume that are there; the engine is to be told of the missing one, too.
pub(crate) fn driver_of_rest(
    files: Vec<BlockFile>,
    pools: PoolSizes,
    missing: Option<&Missing>,
) -> anyhow::Result<(Driver, RealArena)> {
    let (driver, arena) = driver(files, pools)?;
    let first = if missing.is_some_and(|missing| missing.tier == 0) { SLOW } else { FAST };
    Ok((driver.beginning_with(first), arena))
}

/// Sets up a ring for devices in tier order.
pub(crate) fn driver(files: Vec<BlockFile>, pools: PoolSizes) -> anyhow::Result<(Driver, RealArena)> {
    let arena = RealArena::new(pools).context("cannot map memory for buffers")?;
    let ring = Ring::new(arena.region()).map_err(|error| {
        let cure = match error.kind() {
            std::io::ErrorKind::OutOfMemory => "raise the limit of locked memory, `ulimit -l`",
            _ => "is it disabled on this system?",
        };
        anyhow::Error::new(error).context(format!("cannot set up io_uring ({cure})"))
    })?;
    Ok((Driver::new(ring, files), arena))
}

/// The device that the driver has, and the one that is missing, of which only the name counts.
pub(crate) fn infos_with(driver: &Driver, missing: &Missing) -> Vec<DeviceInfo> {
    let mut devices = driver.device_infos();
    let name = missing.path.display().to_string();
    devices.insert(missing.tier.min(devices.len()), DeviceInfo { name, size_bytes: 0 });
    devices
}

/// Opens what is left of a volume on the devices that the driver has: the engine hears of the missing one, too. Where that is the
/// fast one, and the volume is protected, it is the image.
pub(crate) fn open_degraded(
    volume: &Volume,
    driver: &mut Driver,
    arena: RealArena,
    missing: &Missing,
    options: OpenOptions,
    suspects: Suspects,
) -> Task<RealArena, Result<Engine<RealArena>, OpenError>> {
    let mut devices = infos_with(driver, missing);
    if missing.tier == 0 && volume.protect.is_some() {
        match protect::image(volume, &driver.devices()[0]) {
            Ok((salvage, image)) => {
                devices[0].size_bytes = salvage.layout().fast_bytes;
                driver.salvage(salvage);
                let as_of_unix_s = image.frozen_unix_ms / 1000;
                return bimetal_engine::open_image(arena, devices, as_of_unix_s, options);
            }
            Err(error) => tracing::warn!("{error:#}"),
        }
    }
    bimetal_engine::open_degraded(arena, devices, Tier(missing.tier as u8), options, suspects)
}

/// Lets the devices of a volume that was just opened be looked after.
pub(crate) fn watch(driver: &mut Driver, engine: &Engine<RealArena>) -> anyhow::Result<()> {
    let status = engine.status();
    driver
        .watch(status.volume_id, status.generation)
        .context("the volume that was opened is not there any more")
}

fn parse_id(text: &str) -> Option<[u8; 16]> {
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    let mut id = [0; 16];
    for (place, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * place..2 * place + 2], 16).ok()?;
    }
    Some(id)
}

/// The superblock at a place of a device, if one is there.
pub(crate) fn superblock_at(device: &BlockFile, at: u64) -> Option<Superblock> {
    let block = device.read_block(at).ok()?;
    if let Found::Valid(superblock) = Superblock::decode(&block, at) { Some(*superblock) } else { None }
}

/// The first superblock of a device, or one where the device ends.
pub(crate) fn lone_superblock(device: &BlockFile) -> Option<Superblock> {
    let block = u64::from(BLOCK_BYTES);
    let last = (device.size_bytes() / block).checked_sub(1).map(|last| last * block);
    [Some(0), last].into_iter().flatten().find_map(|at| superblock_at(device, at))
}
