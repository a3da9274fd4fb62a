//! What the kernel counts of a block device, which is what other programs show of it, too.

use bimetal_serve::status::LoadDoc;
use rustix::fs::{major, minor};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

/// The unit of sectors in `stat`, bytes.
const SYS_SECTOR: u64 = 512;

/// The counters of a block device since it is there; none of a file, whose disk others use as well.
pub(super) fn load(device: &Path) -> Option<LoadDoc> {
    let meta = std::fs::metadata(device).ok().filter(|meta| meta.file_type().is_block_device())?;
    let path = format!("/sys/dev/block/{}:{}/stat", major(meta.rdev()), minor(meta.rdev()));
    parse(&std::fs::read_to_string(path).ok()?)
}

/// Fields as Documentation/block/stat.rst has them; times are in milliseconds.
fn parse(text: &str) -> Option<LoadDoc> {
    let fields: Vec<u64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let of = |place: usize| fields.get(place).copied();
    Some(LoadDoc {
        reads: of(0)?,
        writes: of(4)?,
        read_bytes: of(2)? * SYS_SECTOR,
        written_bytes: of(6)? * SYS_SECTOR,
        in_flight: of(8)?,
        errors: 0,
        busy_us: of(9)? * 1000,
        wait_us: of(10)? * 1000,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_in_their_places() {
        let text = "     100     1     800     50      30      2     240      70      4     90     120  7 8 9 10 11 12\n";
        let load = parse(text).expect("counters");
        assert_eq!(
            (load.reads, load.read_bytes, load.writes, load.written_bytes),
            (100, 409_600, 30, 122_880)
        );
        assert_eq!((load.in_flight, load.busy_us, load.wait_us), (4, 90_000, 120_000));
        assert_eq!((parse(""), parse("1 2 x"), load_of("/dev/null")), (None, None, None));
    }

    fn load_of(path: &str) -> Option<LoadDoc> {
        load(Path::new(path))
    }
}
