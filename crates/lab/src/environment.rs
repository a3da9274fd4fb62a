//! What is known of the machine and of a target: so that figures can be believed, and had again.

use crate::record::{Environment, TargetFacts};
use crate::target::FileKind;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The machine, as the kernel describes it. What it does not say is empty.
pub fn environment(program: &str) -> Environment {
    let uname = rustix::system::uname();
    let kernel = format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy());
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = field(&meminfo, "MemTotal").and_then(|kib| kib.split(' ').next()?.parse::<u64>().ok());
    let processors = std::thread::available_parallelism().map_or(0, |count| count.get() as u32);
    Environment {
        program: program.to_owned(),
        kernel,
        processor: field(&cpuinfo, "model name").unwrap_or_default().to_owned(),
        processors,
        memory_bytes: kib.unwrap_or(0) << 10,
        targets: BTreeMap::new(),
    }
}

/// The first `name : value` of a text.
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then_some(value.trim())
    })
}

/// What is known of a file or a device.
pub fn describe(path: &Path, kind: FileKind, size_bytes: u64) -> TargetFacts {
    let mut details = BTreeMap::new();
    let is_block_device = kind == FileKind::BlockDevice;
    if let Ok(stat) = rustix::fs::stat(path)
        && kind != FileKind::Memory
    {
        let device = if is_block_device { stat.st_rdev } else { stat.st_dev };
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        queue(&format!("/sys/dev/block/{major}:{minor}"), &mut details);
        if let Some((name, system)) = mounted(major, minor).filter(|_| !is_block_device) {
            details.insert("file system".to_owned(), system);
            details.insert("device".to_owned(), name);
        }
    }
    TargetFacts { kind: kind.name().to_owned(), size_bytes, details }
}

/// What the kernel says of a block device's queue; of a partition, its disk's.
fn queue(folder: &str, details: &mut BTreeMap<String, String>) {
    let folder = match Path::new(&format!("{folder}/queue")).exists() {
        true => folder.to_owned(),
        false => format!("{folder}/.."),
    };
    let names =
        ["queue/scheduler", "queue/rotational", "queue/logical_block_size", "queue/physical_block_size"];
    let more = ["queue/write_cache", "queue/nr_requests", "device/model", "device/vendor"];
    // NVMe's name for it, and SCSI's; NVMe says how it is connected as well.
    let firmware = ["device/firmware_rev", "device/rev", "device/transport"];
    for name in names.into_iter().chain(more).chain(firmware) {
        if let Ok(value) = fs::read_to_string(format!("{folder}/{name}")) {
            let key = name.rsplit('/').next().unwrap_or(name).replace('_', " ");
            details.insert(key, value.trim().to_owned());
        }
    }
}

/// The device and the kind of the file system that is mounted from a device of these numbers.
fn mounted(major: u32, minor: u32) -> Option<(String, String)> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        let numbers = mount.split(' ').nth(2)?;
        let mut system = system.split(' ');
        let (kind, source) = (system.next()?, system.next()?);
        (numbers == format!("{major}:{minor}")).then(|| (source.to_owned(), kind.to_owned()))
    })
}
