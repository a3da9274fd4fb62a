//! What a device holds before it is overwritten.

use anyhow::Context as _;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Bytes looked at from each end of a device.
const WINDOW: u64 = 4 << 20;
/// Bytes of data looked through at most before a file counts as holding something.
const MAX_SCAN: u64 = 256 << 20;

/// Says what a device holds; `None` when it does not exist, is empty or holds only zeros.
pub(crate) fn contents(path: &Path) -> anyhow::Result<Option<String>> {
    let look = || format!("cannot look at what {} holds", path.display());
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(look),
    };
    let meta = file.metadata().with_context(look)?;
    if meta.is_dir() {
        return Ok(None);
    }
    let size = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))
        .map_err(std::io::Error::from)
        .with_context(look)?;
    let start = read(&file, 0, WINDOW.min(size)).with_context(look)?;
    if let Some(found) = signature(&start) {
        return Ok(Some(found.to_owned()));
    }
    data(&file, size).with_context(look)
}

/// Known signatures: where, which bytes, what it is.
const SIGNATURES: [(usize, &[u8], &str); 17] = [
    (0, b"BMTLsupr", "a Bimetal volume"),
    (0x438, &[0x53, 0xef], "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an XFS file system"),
    (0x10040, b"_BHRfS_M", "a btrfs file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (0x52, b"FAT32", "a FAT file system"),
    (0x36, b"FAT1", "a FAT file system"),
    (3, b"EXFAT", "an exFAT file system"),
    (512, b"EFI PART", "a GPT partition table"),
    (0, b"LUKS", "a LUKS encrypted device"),
    (512, b"LABELONE", "an LVM physical volume"),
    (0xff6, b"SWAPSPACE2", "swap space"),
    (0, b"QFI\xfb", "a qcow2 image"),
    (0x8001, b"CD001", "an ISO 9660 image"),
    (0x1018, &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca], "a bcache device"),
    (0x1000, &[0xfc, 0x4e, 0x2b, 0xa9], "a Linux RAID member"),
    (510, &[0x55, 0xaa], "a boot sector or MBR partition table"),
];

fn signature(start: &[u8]) -> Option<&'static str> {
    let holds =
        |&&(at, bytes, _): &&(usize, &[u8], &'static str)| start.get(at..at + bytes.len()) == Some(bytes);
    SIGNATURES.iter().find(holds).map(|found| found.2)
}

/// Looks for bytes that are not zero: in all data of a file, as far as that is little, else at both ends.
fn data(file: &File, size: u64) -> std::io::Result<Option<String>> {
    use rustix::fs::SeekFrom;
    let (mut at, mut scanned) = (0u64, 0u64);
    while at < size {
        let begin = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(begin) => begin,
            // No data up to the end.
            Err(rustix::io::Errno::NXIO) => return Ok(None),
            // A device or file system that knows no holes.
            Err(_) => return ends(file, size),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(begin)).unwrap_or(size);
        at = begin;
        while at < end {
            if scanned >= MAX_SCAN {
                return match ends(file, size)? {
                    Some(found) => Ok(Some(found)),
                    None => Ok(Some(format!("more than {} of allocated data", crate::size::show(MAX_SCAN)))),
                };
            }
            let piece = read(file, at, WINDOW.min(end - at))?;
            if let Some(place) = piece.iter().position(|&byte| byte != 0) {
                return Ok(Some(format!(
                    "data (the first byte that is not zero is at {})",
                    at + place as u64
                )));
            }
            at += piece.len() as u64;
            scanned += piece.len() as u64;
        }
    }
    Ok(None)
}

fn ends(file: &File, size: u64) -> std::io::Result<Option<String>> {
    for at in [0, size.saturating_sub(WINDOW)] {
        let piece = read(file, at, WINDOW.min(size - at))?;
        if let Some(place) = piece.iter().position(|&byte| byte != 0) {
            return Ok(Some(format!("data (a byte that is not zero is at {})", at + place as u64)));
        }
    }
    Ok(None)
}

fn read(file: &File, at: u64, len: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}
