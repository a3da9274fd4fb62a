//! Who holds a block device that will not open exclusively: what the kernel shows in `/proc` and `/sys`.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Says what holds the block device with this number, or a partition of it: a mount, swap, or a device made
/// of it. `None` when none of them shows (btrfs over several devices and ZFS do not).
pub(crate) fn holder(device: u64) -> Option<String> {
    let sys = sys(device);
    let mut numbers = vec![number(device)];
    // Partitions are folders of their disk that hold a number of their own.
    for entry in std::fs::read_dir(&sys).into_iter().flatten().flatten() {
        if entry.path().join("partition").exists()
            && let Ok(number) = std::fs::read_to_string(entry.path().join("dev"))
        {
            numbers.push(number.trim().to_owned());
        }
    }
    mounted(&numbers).or_else(|| swap(&numbers)).or_else(|| stacked(&sys))
}

fn number(device: u64) -> String {
    format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device))
}

fn sys(device: u64) -> PathBuf {
    Path::new("/sys/dev/block").join(number(device))
}

/// `/proc/self/mountinfo`: the third field is the device, the fifth the place (proc(5)).
fn mounted(numbers: &[String]) -> Option<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    table.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(2);
        let number = fields.next()?;
        let place = fields.nth(1)?.replace("\\040", " ");
        numbers.iter().any(|ours| ours == number).then(|| format!("mounted on {place}"))
    })
}

/// `/proc/swaps`: a heading, then one path a line.
fn swap(numbers: &[String]) -> Option<String> {
    let table = std::fs::read_to_string("/proc/swaps").ok()?;
    table.lines().skip(1).find_map(|line| {
        let meta = std::fs::metadata(line.split_whitespace().next()?).ok()?;
        numbers.contains(&number(meta.rdev())).then(|| "in use as swap".to_owned())
    })
}

/// Devices that stand on this one: LVM, RAID, encryption.
fn stacked(sys: &Path) -> Option<String> {
    let above = std::fs::read_dir(sys.join("holders")).ok()?.flatten().next()?;
    Some(format!("part of /dev/{}", above.file_name().to_string_lossy()))
}
