//! Finding a volume's devices, also after their paths changed.
//!
//! A path in the volume file is where to look first. What decides is the superblock: the volume's identity
//! and the tier. If the path leads nowhere, or to something else, the likely places are searched for the
//! device, so that /dev/sda and /dev/sdb may change places. Two devices that both match are a copy and its
//! original, and nobody but the user can say which is which: that is refused. What is found is locked and
//! verified again by whoever opens it, generations included.

use crate::bytes::Bytes;
use crate::paths;
use crate::protect::stand_in;
use crate::volume::Volume;
use anyhow::bail;
use bimetal_driver::{BlockFile, DeviceOpenError, Storage};
use bimetal_engine::format::id_text;
use bimetal_engine::format::superblock::{Found, Superblock};
use bimetal_protect::Layout;
use bimetal_units::{BLOCK_BYTES, Tier};
use std::fs::{File, Metadata};
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Entries of one directory that are looked at when a device is searched for, in the order of their names.
const MAX_PER_DIRECTORY: usize = 256;
/// Directories of device nodes. The links below /dev/disk lead to nodes in /dev, most of the time.
const DEVICE_DIRECTORIES: [&str; 7] = [
    MEMBERS_DIRECTORY,
    "/dev",
    "/dev/mapper",
    "/dev/disk/by-id",
    "/dev/disk/by-partuuid",
    "/dev/disk/by-path",
    "/dev/disk/by-uuid",
];
/// Where udev has a link to each device of a volume, by what its superblock says; where there is no udev, it is not there.
pub(crate) const MEMBERS_DIRECTORY: &str = "/dev/disk/by-bimetal";
/// Nodes in /dev that hold no volume: memory, and drives whose medium may not be there.
const NOT_SEARCHED: [&str; 4] = ["ram", "zram", "sr", "fd"];

/// Drivers whose devices some server answers for. A volume that is attached is one.
const SERVED: [&str; 2] = ["ublkb", "nbd"];
/// Devices that stand on one another are followed so far down.
const MAX_LAYERS: usize = 16;

/// Linux's EIO, ENODATA, ENOLINK, EILSEQ, ESHUTDOWN, ETIMEDOUT and EREMOTEIO: what is read of a device that has died.
const FAILING: [i32; 7] = [5, 61, 67, 84, 108, 110, 121];

/// What a path leads to.
#[derive(Debug)]
pub(crate) enum Look {
    /// Nothing.
    Missing,
    /// A device of some volume.
    Ours(Box<Superblock>),
    /// Something without a superblock.
    Other,
    /// A device of a volume of this format, newer than what this program knows.
    Newer(u32),
    /// A device that fails when it is read.
    Failing(io::Error),
    /// It cannot be said: no permission, perhaps.
    Unknown(String),
}

/// Looks at the superblocks of a file or block device, without a lock.
pub(crate) fn look(path: &Path) -> Look {
    if paths::is_export(path) {
        return look_at_export(path);
    }
    match read(path) {
        Ok(look) => look,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Look::Missing,
        // A device node with no device behind it.
        Err(error) if matches!(error.raw_os_error(), Some(6 | 19 | 123)) => Look::Missing,
        Err(error) if error.raw_os_error().is_some_and(|errno| FAILING.contains(&errno)) => {
            Look::Failing(error)
        }
        Err(error) => Look::Unknown(error.to_string()),
    }
}

/// The same of an export. One that cannot be reached is there, as far as anybody knows, and fails.
fn look_at_export(path: &Path) -> Look {
    let device = match BlockFile::open_read_only(path) {
        Ok(device) => device,
        Err(DeviceOpenError::Export { why, .. } | DeviceOpenError::Insecure { why, .. }) => {
            return Look::Failing(io::Error::other(why));
        }
        Err(error) => return Look::Unknown(error.to_string()),
    };
    match superblock(&device, device.size_bytes() / BLOCK) {
        Ok(look) => look,
        Err(error) => Look::Failing(error),
    }
}

fn read(path: &Path) -> io::Result<Look> {
    let kind = std::fs::metadata(path)?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Ok(Look::Other);
    }
    let mut file = File::open(path)?;
    let blocks = file.seek(SeekFrom::End(0))? / BLOCK;
    superblock(&file, blocks)
}

/// Looks where superblocks are.
fn superblock(file: &dyn Bytes, blocks: u64) -> io::Result<Look> {
    let mut block = vec![0; BLOCK as usize];
    let mut failed = None;
    for place in [Some(0), blocks.checked_sub(1).map(|last| last * BLOCK)].into_iter().flatten() {
        if place >= blocks * BLOCK {
            continue;
        }
        if let Err(error) = file.read_exact_at(&mut block, place) {
            failed = Some(error);
            continue;
        }
        match Superblock::decode(&block, place) {
            Found::Valid(superblock) => return Ok(Look::Ours(superblock)),
            Found::Newer(format) => return Ok(Look::Newer(format)),
            Found::Nothing => {}
        }
    }
    failed.map_or(Ok(Look::Other), Err)
}

/// Where the devices of a volume are.
#[derive(Debug)]
pub(crate) struct Resolved {
    /// In tier order.
    pub(crate) devices: Vec<PathBuf>,
    /// What the user should hear: one sentence for each device that is not where the volume file says.
    pub(crate) notes: Vec<String>,
    /// The slow device has the place of the fast one as well, with the copy that is there.
    pub(crate) stand_in: Option<Layout>,
}

/// A device of a volume that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) tier: usize,
    /// Where it should be.
    pub(crate) path: PathBuf,
    /// What is there instead: `does not exist`.
    pub(crate) instead: String,
    /// Files and devices among which it was searched for; none where something is there that fails.
    looked_at: usize,
}

impl Missing {
    /// What it is called.
    pub(crate) fn name(&self) -> String {
        bimetal_serve::status::tier_name(self.tier)
    }

    /// Why the volume cannot be opened as ever, and what can be done.
    pub(crate) fn sentence(&self, volume: &Volume) -> String {
        let Missing { path, instead, looked_at, .. } = self;
        let (file, named) = (volume.file.display(), self.name());
        let serve = format!("`{} serve {} --degraded`", paths::program(), volume.called());
        let lost = format!("`{} lost {}` lists what is not", paths::program(), volume.called());
        let rest = match self.tier {
            0 if volume.protect.is_some() => format!(
                "; or serve its image, read-only, by {serve}, and go on with it for good by --writable beside that"
            ),
            0 => format!(
                "; if it was made with --marks, what is left is served, read-only, by {serve}; {lost}"
            ),
            _ => format!(
                "; or serve what is left, read-only, by {serve}, and write beside it until the disk is back by --writable; {lost}"
            ),
        };
        let searched = match looked_at {
            0 => format!("; it is the {named} device of {file}; see to it"),
            _ => format!(
                ", and nothing among {looked_at} files and devices is the {named} device of {file}; connect it, or name its \
                 new place in the volume file"
            ),
        };
        format!("{} {instead}{searched}{rest}", path.display())
    }
}

/// Finds the devices of a volume. One of which it cannot be said what it is keeps its path: opening says what is wrong with
/// it. The error is a sentence that names what is missing, or all that match.
pub(crate) fn resolve(volume: &Volume) -> anyhow::Result<Resolved> {
    let (resolved, missing) = what_is_there(volume)?;
    match missing.first() {
        Some(missing) => bail!(missing.sentence(volume)),
        None => Ok(resolved),
    }
}

/// The same where some may be missing, which are named beside it.
pub(crate) fn what_is_there(volume: &Volume) -> anyhow::Result<(Resolved, Vec<Missing>)> {
    let mut resolved = Resolved { devices: volume.devices.clone(), notes: Vec::new(), stand_in: None };
    let mut missing = Vec::new();
    let mut candidates = None;
    // The slow one may say who has the place of the fast one.
    let order = if volume.protect.is_some() { [1, 0] } else { [0, 1] };
    for tier in order {
        let path = &volume.devices[tier];
        if tier == 0 && volume.protect.is_some() {
            resolved.stand_in = stand_in::look(volume, &resolved.devices[1]);
            if resolved.stand_in.is_some() {
                resolved.devices[0] = resolved.devices[1].clone();
                continue;
            }
        }
        if paths::is_export(path) && bimetal_driver::in_use(&resolved.devices[0]) {
            // Whoever serves the volume may be the one client that its server takes.
            continue;
        }
        let look = match look(path) {
            look @ (Look::Ours(_) | Look::Newer(_) | Look::Missing) => look,
            look => second_look(volume, tier, path, &resolved.devices[1 - tier]).unwrap_or(look),
        };
        match &look {
            Look::Ours(superblock) if belongs(superblock, volume, tier) => continue,
            Look::Newer(_) | Look::Unknown(_) => continue,
            Look::Failing(_) => {
                let instead = instead(&look, volume);
                missing.push(Missing { tier, path: path.clone(), instead, looked_at: 0 });
                continue;
            }
            _ => {}
        }
        let candidates = candidates.get_or_insert_with(|| Candidates::of(volume));
        let named = bimetal_serve::status::tier_name(tier);
        let mut matches = candidates.matching(tier);
        if let Look::Ours(other) = self::look(&resolved.devices[1 - tier])
            && belongs(&other, volume, 1 - tier)
        {
            // One that was replaced says that it is the volume's still; the other device knows better.
            let is_named = |path: &PathBuf| matches!(self::look(path), Look::Ours(superblock) if superblock.devices == other.devices);
            matches.retain(is_named);
        }
        match matches.as_slice() {
            [] => {
                let (instead, looked_at) = (instead(&look, volume), candidates.looked_at.max(1));
                missing.push(Missing { tier, path: path.clone(), instead, looked_at });
            }
            [found] => {
                resolved.notes.push(format!(
                    "{} {}; using {}, which says that it is the {named} device of this volume",
                    path.display(),
                    if matches!(look, Look::Missing) { "does not exist" } else { "is something else now" },
                    found.display()
                ));
                resolved.devices[tier] = found.clone();
            }
            [one, other, ..] => bail!(
                "both {} and {} say that they are the {named} device of {}: one is a copy; name the right \
                 one in the volume file, or take the other away",
                one.display(),
                other.display(),
                volume.file.display()
            ),
        }
    }
    missing.sort_by_key(|missing: &Missing| missing.tier);
    Ok((resolved, missing))
}

/// Looks where the second superblock of a device is, whose first one is not to be had: a device may be longer than what the volume
/// uses, and then only the other one says where that ends.
fn second_look(volume: &Volume, tier: usize, path: &Path, other: &Path) -> Option<Look> {
    let Look::Ours(other) = look(other) else { return None };
    if paths::is_export(path) || !belongs(&other, volume, 1 - tier) {
        return None;
    }
    let (at, mut block) = (other.geometry.second_superblock_at(Tier(tier as u8)), vec![0; BLOCK as usize]);
    File::open(path).ok()?.read_exact_at(&mut block, at).ok()?;
    match Superblock::decode(&block, at) {
        Found::Valid(superblock) => Some(Look::Ours(superblock)),
        _ => None,
    }
}

/// What is where a device should be.
fn instead(look: &Look, volume: &Volume) -> String {
    match look {
        Look::Ours(superblock) if superblock.volume == volume.id => {
            let tier = bimetal_serve::status::tier_name(usize::from(superblock.tier.0));
            format!("is the {tier} device of this volume")
        }
        Look::Ours(superblock) => {
            format!("belongs to another Bimetal volume ({})", id_text(&superblock.volume))
        }
        Look::Missing => "does not exist".to_owned(),
        Look::Failing(error) => format!("cannot be read ({error})"),
        _ => "is not a Bimetal device (no valid superblock was found)".to_owned(),
    }
}

/// Whether a superblock is that of this volume's device of this tier.
pub(crate) fn belongs(superblock: &Superblock, volume: &Volume, tier: usize) -> bool {
    superblock.volume == volume.id && usize::from(superblock.tier.0) == tier
}

/// Devices of this volume in the likely places.
struct Candidates {
    /// With their tiers.
    found: Vec<(usize, PathBuf)>,
    looked_at: usize,
}

impl Candidates {
    /// Looks into the directories that the volume file and its files are in, then among all block devices.
    fn of(volume: &Volume) -> Candidates {
        let mut directories: Vec<&Path> = Vec::new();
        let files = volume.devices.iter().filter(|path| !paths::is_export(path));
        for path in files.chain([&volume.file]) {
            // Device nodes have their turn below.
            let parent = path.parent().filter(|parent| !parent.starts_with("/dev"));
            directories.extend(parent.filter(|parent| !directories.contains(parent)));
        }
        directories.extend(DEVICE_DIRECTORIES.iter().map(Path::new));
        let mut seen: Vec<DeviceId> = Vec::new();
        let mut found: Vec<(usize, Storage, PathBuf)> = Vec::new();
        for path in directories.into_iter().flat_map(entries) {
            let Some((id, meta)) = DeviceId::of(&path) else { continue };
            if seen.contains(&id) || is_held(&meta) || is_served(&meta) {
                continue;
            }
            seen.push(id);
            if let Look::Ours(superblock) = look(&path)
                && superblock.volume == volume.id
                && let Ok(storage) = Storage::of(&path)
            {
                found.push((usize::from(superblock.tier.0), storage, path));
            }
        }
        // A loop device and the file below it are the same bytes, not a copy: what stands on the other is the one in use.
        found.sort_by_key(|(_, storage, _)| std::cmp::Reverse(storage.layers()));
        let mut apart: Vec<(usize, Storage, PathBuf)> = Vec::new();
        for one in found {
            if !apart.iter().any(|(tier, storage, _)| *tier == one.0 && storage.overlaps(&one.1)) {
                apart.push(one);
            }
        }
        Candidates {
            found: apart.into_iter().map(|(tier, _, path)| (tier, path)).collect(),
            looked_at: seen.len(),
        }
    }

    fn matching(&self, tier: usize) -> Vec<PathBuf> {
        self.found.iter().filter(|(of, _)| *of == tier).map(|(_, path)| path.clone()).collect()
    }
}

/// The first entries of a directory, by name.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            directory != Path::new("/dev") || !NOT_SEARCHED.iter().any(|kind| name.starts_with(kind))
        })
        .map(|entry| entry.path())
        .filter(|path| {
            std::fs::metadata(path)
                .is_ok_and(|meta| meta.file_type().is_block_device() || (meta.is_file() && meta.len() > 0))
        })
        .collect();
    paths.sort();
    paths.truncate(MAX_PER_DIRECTORY);
    paths
}

/// What makes two paths the same device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeviceId {
    BlockDevice(u64),
    File(u64, u64),
}

impl DeviceId {
    fn of(path: &Path) -> Option<(DeviceId, Metadata)> {
        let meta = std::fs::metadata(path).ok()?;
        let id = match meta.file_type().is_block_device() {
            true => DeviceId::BlockDevice(meta.rdev()),
            false => DeviceId::File(meta.dev(), meta.ino()),
        };
        Some((id, meta))
    }
}

/// Whether two paths lead to the same storage, or to parts of it that overlap, whatever their names are.
pub(crate) fn is_same_storage(one: &Path, other: &Path) -> bool {
    match (Storage::of(one), Storage::of(other)) {
        (Ok(one), Ok(other)) => one.overlaps(&other),
        _ => false,
    }
}

/// Whether anybody has one of a volume's devices open, under whatever name.
pub(crate) fn is_in_use(volume: &Volume) -> bool {
    let devices = resolve(volume).map_or_else(|_| volume.devices.clone(), |resolved| resolved.devices);
    devices.iter().any(|path| bimetal_driver::in_use(path))
}

/// Whether a server of a volume answers: also one whose files are gone from where they were.
pub(crate) fn has_server(volume: &Volume) -> bool {
    volume.socket("control").is_ok_and(|socket| std::os::unix::net::UnixStream::connect(socket).is_ok())
}

/// Whether a path leads to a block device.
pub(crate) fn is_block_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device())
}

fn sys(meta: &Metadata) -> PathBuf {
    let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
    Path::new("/sys/dev/block").join(format!("{major}:{minor}"))
}

/// Whether a block device is a part of another one (multipath, RAID, LVM), which then is the one to use.
fn is_held(meta: &Metadata) -> bool {
    meta.file_type().is_block_device()
        && std::fs::read_dir(sys(meta).join("holders")).is_ok_and(|mut holders| holders.next().is_some())
}

/// Whether a block device is that of a server, or stands on one. It is not searched: a volume that is attached holds reads
/// until its next server runs, and that may be the one that searches.
fn is_served(meta: &Metadata) -> bool {
    let name = sys(meta).canonicalize().ok().and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
    meta.file_type().is_block_device()
        && name.is_some_and(|name| stands_on_served(Path::new("/sys/class/block"), &name, MAX_LAYERS))
}

fn stands_on_served(devices: &Path, name: &str, layers: usize) -> bool {
    if SERVED.iter().any(|kind| name.starts_with(kind)) {
        return true;
    }
    let below = std::fs::read_dir(devices.join(name).join("slaves")).into_iter().flatten().flatten();
    layers > 0
        && below
            .filter_map(|entry| entry.file_name().into_string().ok())
            .any(|name| stands_on_served(devices, &name, layers - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that searched for its disk under a new name read its own device, and waited for itself.
    #[test]
    fn a_device_of_a_server_and_what_stands_on_it_are_known() {
        let devices = std::env::temp_dir().join(format!("bimetal-find-{}", std::process::id()));
        for (above, below) in [("dm-1", "dm-0"), ("dm-0", "ublkb0"), ("md0", "sda1"), ("loop1", "loop1")] {
            std::fs::create_dir_all(devices.join(above).join("slaves").join(below)).expect("a folder");
        }
        let known = |name| stands_on_served(&devices, name, MAX_LAYERS);
        assert!(known("ublkb0") && known("nbd3") && known("nbd3p1") && known("dm-0") && known("dm-1"));
        assert!(!known("md0") && !known("sda1") && !known("nvme0n1") && !known("loop1"));
        std::fs::remove_dir_all(&devices).expect("removed");
    }
}
