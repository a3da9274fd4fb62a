//! What the disks below the targets do meanwhile.

use bimetal_lab::record::DiskUse;
use rustix::fs::{FileType, major, minor, stat};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The counters of some disks, as they were.
pub(crate) struct Disks {
    began: Instant,
    before: BTreeMap<PathBuf, Counted>,
}

/// Reads, merged reads, sectors read, their milliseconds; the same of writes; in flight, busy, in the queue
/// (Documentation/block/stat.rst of Linux).
type Counted = [u64; 11];

impl Disks {
    /// Those that files and block devices lie on.
    pub(crate) fn below<'p>(paths: impl Iterator<Item = &'p Path>) -> Disks {
        let disks = paths.filter_map(disk).filter_map(|disk| Some((counted(&disk)?, disk)));
        Disks { began: Instant::now(), before: disks.map(|(counted, disk)| (disk, counted)).collect() }
    }

    /// What they have done since.
    pub(crate) fn done(&self) -> Vec<DiskUse> {
        let ms = (self.began.elapsed().as_millis() as f64).max(1.0);
        let one = |(disk, before): (&PathBuf, &Counted)| {
            let now = counted(disk)?;
            let since = |n: usize| now[n].saturating_sub(before[n]);
            Some(DiskUse {
                name: disk.file_name()?.to_string_lossy().into_owned(),
                read_ios: since(0),
                read_merges: since(1),
                read_ticks: since(3),
                write_ios: since(4),
                write_merges: since(5),
                write_ticks: since(7),
                in_queue: since(10),
                util: (since(9) as f64 * 100.0 / ms).min(100.0),
            })
        };
        self.before.iter().filter_map(one).collect()
    }
}

/// Where the kernel tells of the disk below a path; of a partition, of the whole disk.
fn disk(path: &Path) -> Option<PathBuf> {
    let found = stat(path).ok()?;
    let is_device = FileType::from_raw_mode(found.st_mode) == FileType::BlockDevice;
    let device = if is_device { found.st_rdev } else { found.st_dev };
    let entry = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    let disk = std::fs::canonicalize(entry).ok()?;
    if disk.join("partition").exists() { disk.parent().map(Path::to_owned) } else { Some(disk) }
}

fn counted(disk: &Path) -> Option<Counted> {
    let text = std::fs::read_to_string(disk.join("stat")).ok()?;
    let mut counts = text.split_whitespace().map(|count| count.parse::<u64>().ok());
    let mut all = Counted::default();
    for count in &mut all {
        *count = counts.next()??;
    }
    Some(all)
}
