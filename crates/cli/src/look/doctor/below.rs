//! What is wrong with what a volume stands on.

use super::device::{Device, Disk, InFile, Used};
use super::facts::Facts;
use super::judge::find;
use super::{Finding, Severity};
use crate::size;
use bimetal_serve::status::tier_name;

/// Parts of a device begin at whole blocks.
const BLOCK: u64 = 4096;
/// A drive of whose life so much is used up is to be replaced, percent.
const WORN_PERCENT: u64 = 80;
/// A disk that takes so many times as long for a command as it did is slower than it was.
const SLOWER_TIMES: u64 = 4;
/// No seek of a disk that is well takes so long, microseconds, and no command of this size, bytes.
const LONG_US: u64 = 50_000;
const LARGE: u64 = 1 << 20;
/// So many commands, at least, are compared.
const ENOUGH_NOW: u64 = 10;
const ENOUGH_BEFORE: u64 = 10_000;
/// File systems that keep files in memory.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];
/// Mount options that keep flushes from the drive.
const NO_FLUSHES: [&str; 2] = ["nobarrier", "barrier=0"];

/// Both devices, each alone and beside the other.
pub(super) fn devices(facts: &Facts, findings: &mut Vec<Finding>) {
    for (tier, device) in facts.devices.iter().enumerate() {
        let Some(device) = device else { continue };
        let name = format!("the {} device, {}", tier_name(tier), device.path.display());
        if let Some(file) = &device.file {
            in_file(&name, file, findings);
        }
        if let Some(begins_at) = device.begins_at.filter(|at| !at.is_multiple_of(BLOCK)) {
            let what = format!(
                "{name}, is a partition that begins at byte {begins_at}, which is no multiple of {BLOCK}: each write is two"
            );
            let cure = "export the volume, make the partition again at a multiple of 1 MiB, and import it";
            find(findings, Severity::Warning, "unaligned", what, cure);
        }
        for disk in &device.disks {
            drive(&name, tier, device, disk, findings);
        }
        if let Some(later) = &facts.later[tier] {
            slower(&name, device, later, findings);
        }
    }
    if let [Some(fast), Some(slow)] = &facts.devices {
        together(fast, slow, findings);
    }
}

fn in_file(name: &str, file: &InFile, findings: &mut Vec<Finding>) {
    let Some(system) = &file.system else { return };
    let place = system.place.display();
    if IN_MEMORY.contains(&system.kind.as_str()) {
        let what = format!(
            "{name}, is on {place}, which is in memory ({}): it is gone at the next restart",
            system.kind
        );
        find(findings, Severity::Error, "in-memory", what, "export the volume now, and make one on a disk");
        return;
    }
    if file.read_only {
        let what = format!("{name}, is on {place}, which is mounted read-only");
        let cure = format!("see why (`dmesg`); then `mount -o remount,rw {place}`");
        find(findings, Severity::Error, "read-only-device", what, cure);
    }
    let to_come = file.to_come();
    if to_come > file.available_bytes {
        let what = format!(
            "{name}, is a sparse file that may still take {}, and {place} has {} left",
            size::show(to_come),
            size::show(file.available_bytes)
        );
        let cure =
            format!("make room on {place}: when it is full, writes fail and the volume becomes read-only");
        find(findings, Severity::Warning, "little-room", what, cure);
    }
    if system.options.iter().any(|option| NO_FLUSHES.contains(&option.as_str())) {
        let what = format!("{name}, is on {place}, which is mounted so that no flush reaches the drive");
        let cure = format!("`mount -o remount,barrier {place}`, and mend its line in /etc/fstab");
        find(findings, Severity::Error, "no-flush", what, cure);
    }
}

fn drive(name: &str, tier: usize, device: &Device, disk: &Disk, findings: &mut Vec<Finding>) {
    let on = format!("{name}, is on {}", disk.name);
    if tier == 0 && disk.turns == Some(true) && device.model.is_none() {
        let what = format!("{on}, which turns (rotational)");
        let cure = "use an SSD as the fast device; if the two were given the wrong way round, export the volume and make it again";
        find(findings, Severity::Warning, "fast-turns", what, cure);
    }
    if disk.read_only {
        let what = format!("{on}, which the kernel has as read-only");
        let cure = "see why (`dmesg`): an SSD at the end of its life does that; copy the volume away";
        find(findings, Severity::Error, "read-only-device", what, cure);
    }
    let is_through = |cache: &Option<String>| cache.as_deref().map(|cache| cache.contains("write through"));
    let (kernel, own) = (is_through(&disk.cache), is_through(&disk.cache_of_drive));
    if kernel == Some(true) && own == Some(false) {
        let what = format!(
            "{on}, which has a write cache that the kernel does not flush (queue/write_cache says write through)"
        );
        let cure = format!(
            "`echo 'write back' > /sys/block/{}/queue/write_cache`, and find what has set it otherwise",
            disk.name
        );
        find(findings, Severity::Error, "no-flush", what, cure);
    } else if disk.turns == Some(true) && own == Some(true) {
        let what = format!("{on}, whose write cache is off: each write waits for the platter");
        let cure = format!("`hdparm -W1 /dev/{}`; flushes are sent, so nothing is lost by it", disk.name);
        find(findings, Severity::Hint, "cache-off", what, cure);
    }
    if tier == 0 && device.file.is_none() && disk.turns == Some(false) && disk.discard_bytes == Some(0) {
        let what = format!("{on}, to which freed space cannot be told (no discard)");
        let cure = "enable it in what lies between (a RAID or USB controller, LUKS: --allow-discards), or leave a part of the SSD unused";
        find(findings, Severity::Hint, "no-discard", what, cure);
    }
    if disk.out_of_step.is_some_and(|bytes| bytes != 0) {
        let what = format!("{on}, whose sectors are out of step with those that it writes");
        find(
            findings,
            Severity::Warning,
            "unaligned",
            what,
            "set the drive's jumper or its controller so that they are in step",
        );
    }
    match disk.zoned.as_deref() {
        None | Some("none" | "") => {}
        Some(zoned) => {
            let what = format!("{on}, a shingled disk ({zoned} zones)");
            let cure = "use a disk that is not shingled (CMR): what lands is merged at random places";
            find(findings, Severity::Warning, "shingled", what, cure);
        }
    }
    if disk.by_usb {
        let what = format!(
            "{on}, which is connected by USB: it may go at any moment, and many bridges lie about flushes"
        );
        find(findings, Severity::Warning, "usb", what, "connect it by SATA, SAS or NVMe");
    }
    if let Some(percent) = disk.worn_percent.filter(|percent| *percent >= WORN_PERCENT) {
        let what = format!("{on}, of whose life {} % are used up", percent.min(100));
        find(
            findings,
            Severity::Warning,
            "worn",
            what,
            "replace it soon, and set wear_budget in the volume file",
        );
    }
}

/// Whether a disk takes far longer for a command of the same size now than it has since it is there. Of an SSD nothing is said,
/// which does many at a time, and of a disk below a file, which others use, too.
fn slower(name: &str, device: &Device, later: &Device, findings: &mut Vec<Finding>) {
    if device.file.is_some() {
        return;
    }
    for (before, after) in device
        .disks
        .iter()
        .zip(&later.disks)
        .filter(|(disk, _)| disk.turns == Some(true))
        .filter(|(a, b)| a.name == b.name)
    {
        let (all, now) = (before.used, after.used.since(before.used));
        if now.commands < ENOUGH_NOW || all.commands < ENOUGH_BEFORE {
            continue;
        }
        let us = |used: Used| used.busy_ms * 1000 / used.commands;
        let bytes = |used: Used| used.bytes / used.commands;
        let is_alike = bytes(now) <= 2 * bytes(all) && bytes(all) <= 2 * bytes(now);
        if is_alike && bytes(now) < LARGE && us(now) > LONG_US.max(SLOWER_TIMES * us(all)) {
            let what = format!(
                "{name}, is slower than it was: {} takes {} us for a command now, and took {} on average since it is there",
                before.name,
                us(now),
                us(all)
            );
            let cure = "look at it with `smartctl -a` (pending sectors, errors of the link) and have a spare at hand";
            find(findings, Severity::Warning, "slower", what, cure);
        }
    }
}

/// Whether the two are two, and have room beside each other.
fn together(fast: &Device, slow: &Device, findings: &mut Vec<Finding>) {
    if let (Some(one), Some(other)) = (&fast.file, &slow.file)
        && let (Some(system), true) = (&one.system, one.system == other.system)
    {
        let (to_come, left) = (one.to_come() + other.to_come(), one.available_bytes);
        if to_come > left && one.to_come() <= left && other.to_come() <= left {
            let (place, more) = (system.place.display(), size::show(to_come));
            let what = format!(
                "both devices are sparse files that together may still take {more}, and {place} has {} left",
                size::show(left)
            );
            let cure = format!(
                "make room on {place}: when it is full, writes fail and the volume becomes read-only"
            );
            find(findings, Severity::Warning, "little-room", what, cure);
        }
    }
    let is_modelled = fast.model.is_some() || slow.model.is_some();
    let shared: Vec<&str> = fast
        .disks
        .iter()
        .filter(|disk| slow.disks.iter().any(|other| other.name == disk.name))
        .map(|disk| disk.name.as_str())
        .collect();
    if let Some(disk) = shared.first().filter(|_| !is_modelled) {
        let what = format!("both devices are on one disk, {disk}: nothing is faster on either");
        let cure = "put the fast device on an SSD of its own";
        find(findings, Severity::Warning, "same-disk", what, cure);
    }
}
