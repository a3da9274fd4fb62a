//! What is to be known of a device of a volume without asking the device itself: what the kernel and its file system tell.

use super::system::{self, FileSystem, Root, device_number, number, said};
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// The unit of `start` in `/sys`, and of blocks of a file, bytes.
const SYS_SECTOR: u64 = 512;
/// Disks of virtual machines, by how their names begin.
const VIRTUAL: [&str; 2] = ["vd", "xvd"];
/// Devices that stand on one another are followed so far down.
const MAX_LAYERS: usize = 16;

/// A device of a volume.
#[derive(Clone, Debug, Default)]
pub(crate) struct Device {
    pub(crate) path: PathBuf,
    /// What times it, if that is a model.
    pub(crate) model: Option<&'static str>,
    /// Of a file: what its file system says.
    pub(crate) file: Option<InFile>,
    /// Where on its disk a partition begins, bytes.
    pub(crate) begins_at: Option<u64>,
    /// The disks that it stands on in the end; none where that is not known.
    pub(crate) disks: Vec<Disk>,
}

/// A file as a device.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFile {
    /// Its size, and how much of that is allocated, bytes.
    pub(crate) size_bytes: u64,
    pub(crate) allocated_bytes: u64,
    /// What its file system has left, bytes.
    pub(crate) available_bytes: u64,
    pub(crate) read_only: bool,
    pub(crate) system: Option<FileSystem>,
}

impl InFile {
    /// Bytes that it may still take from its file system.
    pub(crate) fn to_come(&self) -> u64 {
        self.size_bytes.saturating_sub(self.allocated_bytes)
    }
}

/// A disk, as the kernel tells of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Disk {
    /// `sda`
    pub(crate) name: String,
    pub(crate) turns: Option<bool>,
    /// How the kernel takes its write cache: `write back`, `write through`.
    pub(crate) cache: Option<String>,
    /// How the drive itself says it has it.
    pub(crate) cache_of_drive: Option<String>,
    /// Bytes that can be discarded at a time; 0 where none can.
    pub(crate) discard_bytes: Option<u64>,
    /// How far its sectors are out of step with those that it writes, bytes.
    pub(crate) out_of_step: Option<u64>,
    /// `none`, `host-aware`, `host-managed`
    pub(crate) zoned: Option<String>,
    pub(crate) by_usb: bool,
    pub(crate) read_only: bool,
    /// How much of its life is used up, percent, at most.
    pub(crate) worn_percent: Option<u64>,
    /// What it was used for since it is there.
    pub(crate) used: Used,
}

/// What a disk was used for, as the kernel counts (Documentation/block/stat.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) commands: u64,
    pub(crate) bytes: u64,
    pub(crate) busy_ms: u64,
}

impl Used {
    fn read(folder: &Path) -> Used {
        let text = said(folder, "stat").unwrap_or_default();
        let fields: Vec<u64> = text.split_whitespace().filter_map(|field| field.parse().ok()).collect();
        let of = |place: usize| fields.get(place).copied().unwrap_or_default();
        Used { commands: of(0) + of(4), bytes: (of(2) + of(6)) * SYS_SECTOR, busy_ms: of(9) }
    }

    /// What has been added since another look.
    pub(crate) fn since(self, before: Used) -> Used {
        Used {
            commands: self.commands.saturating_sub(before.commands),
            bytes: self.bytes.saturating_sub(before.bytes),
            busy_ms: self.busy_ms.saturating_sub(before.busy_ms),
        }
    }
}

impl Device {
    /// Looks at the file or block device of this path.
    pub(crate) fn of(root: &Root, path: &Path, model: Option<&'static str>) -> Option<Device> {
        let meta = std::fs::metadata(path).ok()?;
        let mut device = Device { path: path.into(), model, ..Device::default() };
        if meta.file_type().is_block_device() {
            device.stand_on(root, meta.rdev());
        } else {
            device.stand_on_file(root, path, &meta);
        }
        Some(device)
    }

    fn stand_on_file(&mut self, root: &Root, path: &Path, meta: &Metadata) {
        let system = system::file_system(root, meta.dev());
        let left = rustix::fs::statvfs(path).ok();
        self.file = Some(InFile {
            size_bytes: meta.len(),
            allocated_bytes: meta.blocks() * SYS_SECTOR,
            available_bytes: left.as_ref().map_or(u64::MAX, |left| left.f_bavail * left.f_frsize),
            read_only: left.is_some_and(|left| left.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY)),
            system: system.clone(),
        });
        // A file system of several devices has a number of its own; its source is one of them.
        let below = match rustix::fs::major(meta.dev()) {
            0 => system.and_then(|system| std::fs::metadata(root.at(system.source)).ok()).map(|m| m.rdev()),
            _ => Some(meta.dev()),
        };
        if let Some(below) = below.filter(|below| *below != 0) {
            self.follow(root, below, MAX_LAYERS);
        }
    }

    /// It is the block device of this number.
    pub(crate) fn stand_on(&mut self, root: &Root, number_of: u64) {
        let folder = root.block(number_of).filter(|folder| folder.join("partition").exists());
        self.begins_at = folder.and_then(|folder| Some(number(&folder, "start")? * SYS_SECTOR));
        self.follow(root, number_of, MAX_LAYERS);
    }

    fn follow(&mut self, root: &Root, number: u64, layers_left: usize) {
        let Some(mut folder) = root.block(number).filter(|_| layers_left > 0) else { return };
        if folder.join("partition").exists()
            && let Some(disk) = folder.parent()
        {
            folder = disk.to_owned();
        }
        let slaves = std::fs::read_dir(folder.join("slaves")).into_iter().flatten().flatten();
        let slaves: Vec<u64> = slaves.filter_map(|slave| device_number(&slave.path())).collect();
        if let Some(below) = said(&folder, "loop/backing_file")
            && let Ok(meta) = std::fs::metadata(root.at(below))
        {
            let below = if meta.file_type().is_block_device() { meta.rdev() } else { meta.dev() };
            return self.follow(root, below, layers_left - 1);
        }
        if !slaves.is_empty() {
            return slaves.into_iter().for_each(|slave| self.follow(root, slave, layers_left - 1));
        }
        let disk = Disk::of(&folder);
        if !self.disks.iter().any(|known| known.name == disk.name) {
            self.disks.push(disk);
        }
    }
}

impl Disk {
    fn of(folder: &Path) -> Disk {
        let queue = folder.join("queue");
        let drive = std::fs::read_dir(folder.join("device/scsi_disk")).into_iter().flatten().flatten().next();
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_virtual = VIRTUAL.iter().any(|kind| name.starts_with(kind));
        Disk {
            // Of a virtual disk it says nothing: they all claim to turn.
            turns: number(&queue, "rotational").map(|turns| turns != 0).filter(|_| !is_virtual),
            cache: said(&queue, "write_cache"),
            cache_of_drive: drive.and_then(|drive| said(&drive.path(), "cache_type")),
            discard_bytes: number(&queue, "discard_max_bytes"),
            out_of_step: number(folder, "alignment_offset"),
            zoned: said(&queue, "zoned"),
            by_usb: folder.components().any(|part| part.as_os_str().to_string_lossy().starts_with("usb")),
            read_only: number(folder, "ro") == Some(1),
            worn_percent: worn(folder),
            used: Used::read(folder),
            name,
        }
    }
}

/// How much of a drive's life is used up, as eMMC and UFS say it: in tenths, counted from 1, and 11 beyond the end. The worse
/// of the kinds of cells that it has.
fn worn(folder: &Path) -> Option<u64> {
    let tenth = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let mut tenths: Vec<u64> = said(folder, "device/life_time")
        .map(|text| text.split_whitespace().filter_map(tenth).collect())
        .unwrap_or_default();
    for above in folder.ancestors().take(MAX_LAYERS) {
        for name in ["life_time_estimation_a", "life_time_estimation_b"] {
            let text = said(&above.join("health_descriptor"), name);
            tenths.extend(text.as_deref().and_then(tenth));
        }
    }
    // 0 is not told.
    tenths.into_iter().filter(|tenth| (1..=11).contains(tenth)).max().map(|tenth| tenth * 10)
}
