//! What a device says it is: signatures of file systems, partition tables and other users of whole devices.
//!
//! The places and bytes are those of the formats' own headers in the Linux kernel (`fs/*`,
//! `include/uapi/linux/raid/md_p.h`, `block/partitions/*`) and of the probing functions in util-linux
//! (`libblkid/src/superblocks`, `libblkid/src/partitions`). Whatever is not in the table is still found as
//! bytes that are not zero, and refused without a name.

use crate::bytes::Bytes;
use bimetal_engine::format::id_text;
use bimetal_engine::format::superblock::{Found as Block, Superblock};
use bimetal_replace::Header;
use std::io;

/// How our own superblocks begin.
pub(crate) const OURS: &[u8] = b"BMTLsupr";
/// What is read, and what is erased, to be rid of a signature: our own block.
pub(crate) const BLOCK: u64 = 4096;

/// Where a signature lies.
#[derive(Clone, Copy, Debug)]
enum At {
    /// Bytes from the start.
    Start(u64),
    /// Bytes before the end.
    End(u64),
    /// Bytes into the last whole 4 KiB.
    LastBlock(u64),
    /// Bytes into the place of an md superblock 0.90: the last whole 64 KiB but one boundary.
    Md090,
    /// The place of an md superblock 1.0: 8 KiB before the end, in whole 4 KiB.
    Md10,
}
use At::{End, LastBlock, Start};

impl At {
    /// The byte offset on a device of this size, if there is such a place.
    fn place(self, size: u64) -> Option<u64> {
        match self {
            Start(at) => Some(at),
            End(before) => size.checked_sub(before),
            LastBlock(at) => (size / BLOCK).checked_sub(1).map(|block| block * BLOCK + at),
            At::Md090 => (size / 65536).checked_sub(1).map(|unit| unit * 65536),
            At::Md10 => (size / 512).checked_sub(16).map(|sector| sector / 8 * 8 * 512),
        }
    }
}

/// `MD_SB_MAGIC`, little-endian.
const MD: &[u8] = &[0xfc, 0x4e, 0x2b, 0xa9];
/// The second header of LUKS 2 lies at one of several places.
const SKUL: &[u8] = b"SKUL\xba\xbe";
const STRATIS: &[u8] = b"!Stra0tis\x86\xff\x02^\x41rh";
const BCACHEFS: &[u8] =
    &[0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef];
const BCACHE: &[u8] =
    &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81];

const EXT: &str = "an ext2, ext3 or ext4 file system";
const BTRFS: &str = "a btrfs file system";
const F2FS: &str = "an F2FS file system";
const FAT: &str = "a FAT file system";
const UDF: &str = "a UDF file system";
const HFS: &str = "an HFS or HFS+ file system";
const REISER: &str = "a ReiserFS file system";
const NILFS: &str = "a NILFS2 file system";
const OCFS2: &str = "an OCFS2 file system";
const UFS: &str = "a UFS file system";
const SWAP: &str = "swap space";
const HIBERNATED: &str = "the memory of a hibernated system";
const LUKS: &str = "a LUKS encrypted device";
const LVM: &str = "an LVM physical volume";
const RAID: &str = "a Linux RAID member";
const GPT: &str = "a GPT partition table";
const BCACHEFS_NAME: &str = "a bcachefs file system";
const STRATIS_NAME: &str = "a Stratis pool member";

/// Where, which bytes, what it is.
const TABLE: &[(At, &[u8], &str)] = &[
    (Start(0x438), &[0x53, 0xef], EXT),
    (Start(0), b"XFSB", "an XFS file system"),
    (Start(0x1_0040), b"_BHRfS_M", BTRFS),
    (Start(0x400_0040), b"_BHRfS_M", BTRFS),
    (Start(0x40_0000_0040), b"_BHRfS_M", BTRFS),
    (Start(0x1018), BCACHEFS, BCACHEFS_NAME),
    (Start(0x20_0018), BCACHEFS, BCACHEFS_NAME),
    (Start(0x400), &[0x10, 0x20, 0xf5, 0xf2], F2FS),
    (Start(0x1400), &[0x10, 0x20, 0xf5, 0xf2], F2FS),
    (Start(3), b"NTFS    ", "an NTFS file system"),
    (Start(3), b"EXFAT   ", "an exFAT file system"),
    (Start(3), b"-FVE-FS-", "a BitLocker encrypted device"),
    (Start(0x52), b"FAT32", FAT),
    (Start(0x36), b"FAT1", FAT),
    (Start(0x8001), b"CD001", "an ISO 9660 image"),
    (Start(0x8001), b"BEA01", UDF),
    (Start(0x8001), b"NSR0", UDF),
    (Start(0x8801), b"NSR0", UDF),
    (Start(0x400), b"H+", HFS),
    (Start(0x400), b"HX", HFS),
    (Start(0x400), b"BD", HFS),
    (Start(32), b"NXSB", "an APFS container"),
    (Start(0), b"hsqs", "a SquashFS image"),
    (Start(0), b"sqsh", "a SquashFS image"),
    (Start(0x400), &[0xe2, 0xe1, 0xf5, 0xe0], "an EROFS image"),
    (Start(0), &[0x45, 0x3d, 0xcd, 0x28], "a cramfs image"),
    (Start(0), b"-rom1fs-", "a romfs image"),
    (Start(0x1_0034), b"ReIsEr", REISER),
    (Start(0x2034), b"ReIsEr", REISER),
    (Start(0x1_0000), b"ReIsEr4", "a Reiser4 file system"),
    (Start(0x8000), b"JFS1", "a JFS file system"),
    (Start(0x406), &[0x34, 0x34], NILFS),
    (LastBlock(6), &[0x34, 0x34], NILFS),
    (Start(0x1_0000), &[0x01, 0x16, 0x19, 0x70], "a GFS2 file system"),
    (Start(0x400), b"OCFSV2", OCFS2),
    (Start(0x800), b"OCFSV2", OCFS2),
    (Start(0x1000), b"OCFSV2", OCFS2),
    (Start(0x2000), b"OCFSV2", OCFS2),
    (Start(0x255c), &[0x54, 0x19, 0x01, 0x00], UFS),
    (Start(0x1_055c), &[0x19, 0x01, 0x54, 0x19], UFS),
    (Start(0x20_0000), &[0x5e, 0xf1, 0xab, 0x2f], "a VMFS file system"),
    (Start(0x10_0000), &[0x0d, 0xd0, 0x01, 0xc0], "a VMFS volume member"),
    (Start(0xff6), b"SWAPSPACE2", SWAP),
    (Start(0xff6), b"SWAP-SPACE", SWAP),
    (Start(0x1ff6), b"SWAPSPACE2", SWAP),
    (Start(0x3ff6), b"SWAPSPACE2", SWAP),
    (Start(0x7ff6), b"SWAPSPACE2", SWAP),
    (Start(0xfff6), b"SWAPSPACE2", SWAP),
    (Start(0xff6), b"S1SUSPEND", HIBERNATED),
    (Start(0xff6), b"S2SUSPEND", HIBERNATED),
    (Start(0xff6), b"LINHIB0001", HIBERNATED),
    (Start(0), b"LUKS\xba\xbe", LUKS),
    (Start(0x4000), SKUL, LUKS),
    (Start(0x8000), SKUL, LUKS),
    (Start(0x1_0000), SKUL, LUKS),
    (Start(0x2_0000), SKUL, LUKS),
    (Start(0x4_0000), SKUL, LUKS),
    (Start(0x8_0000), SKUL, LUKS),
    (Start(0x10_0000), SKUL, LUKS),
    (Start(0x20_0000), SKUL, LUKS),
    (Start(0x40_0000), SKUL, LUKS),
    (Start(0), b"LABELONE", LVM),
    (Start(512), b"LABELONE", LVM),
    (Start(1024), b"LABELONE", LVM),
    (Start(1536), b"LABELONE", LVM),
    (Start(0), b"SnAp", "an LVM snapshot's store"),
    (Start(0), b"dmvdo001", "a VDO volume"),
    (Start(512), STRATIS, STRATIS_NAME),
    (Start(4608), STRATIS, STRATIS_NAME),
    (Start(0), MD, RAID),
    (Start(0x1000), MD, RAID),
    (At::Md10, MD, RAID),
    (At::Md090, MD, RAID),
    (End(512), &[0xde, 0x11, 0xde, 0x11], "a DDF RAID member"),
    (End(1024), b"Intel Raid ISM Cfg Sig. ", "an Intel RAID member"),
    (Start(0x1018), BCACHE, "a bcache device"),
    (Start(0), b"verity\0\0", "a dm-verity hash device"),
    (Start(0), b"integrt\0", "a dm-integrity device"),
    (Start(0), b"bluestore block device", "a Ceph BlueStore device"),
    (Start(32), b"ORCLDISK", "an Oracle ASM disk"),
    (Start(0), b"QFI\xfb", "a qcow2 image"),
    (Start(0), b"KDMV", "a VMDK image"),
    (Start(0), b"vhdxfile", "a VHDX image"),
    (End(512), b"conectix", "a VHD image"),
    (Start(512), b"EFI PART", GPT),
    (Start(4096), b"EFI PART", GPT),
    (End(512), b"EFI PART", GPT),
    (End(4096), b"EFI PART", GPT),
    (Start(512), b"PM\0\0", "an Apple partition map"),
    (Start(512), &[0x57, 0x45, 0x56, 0x82], "a BSD disk label"),
    (Start(64), &[0x57, 0x45, 0x56, 0x82], "a BSD disk label"),
    (Start(508), &[0xda, 0xbe], "a Sun disk label"),
    (Start(0), &[0x0b, 0xe5, 0xa9, 0x41], "an SGI disk label"),
];

/// Something known on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// With its article.
    pub(crate) what: String,
    /// Where it shows, bytes.
    pub(crate) at: u64,
}

/// Everything known that a device of `size` bytes carries, the most telling first.
pub(crate) fn probe(file: &dyn Bytes, size: u64) -> io::Result<Vec<Found>> {
    let mut found = bimetal(file, size)?;
    for &(at, magic, what) in TABLE {
        if let Some(at) = at.place(size)
            && bytes(file, size, at, magic.len())?.is_some_and(|there| there == magic)
        {
            found.push(Found { what: what.to_owned(), at });
        }
    }
    found.extend(zfs(file, size)?);
    found.extend(boot_sector(file, size, found.is_empty())?);
    Ok(found)
}

/// In one phrase: `an XFS file system and a GPT partition table`.
pub(crate) fn phrase(found: &[Found]) -> Option<String> {
    let mut names: Vec<&str> = Vec::new();
    for one in found {
        if !names.contains(&one.what.as_str()) {
            names.push(&one.what);
        }
    }
    let (last, rest) = names.split_last()?;
    Some(if rest.is_empty() { (*last).to_owned() } else { format!("{} and {last}", rest.join(", ")) })
}

/// Our own superblocks: the first, and the second where the first says, or else at the end.
fn bimetal(file: &dyn Bytes, size: u64) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    let mut second = LastBlock(0).place(size);
    if let Some(block) = bytes(file, size, 0, BLOCK as usize)?
        && block.starts_with(OURS)
    {
        if let Block::Valid(superblock) = Superblock::decode(&block, 0) {
            second = Some(superblock.geometry.second_superblock_at(superblock.tier));
        }
        found.push(Found { what: volume_name(&block, 0), at: 0 });
    }
    if let Some(at) = second
        && let Some(block) = bytes(file, size, at, BLOCK as usize)?
        && block.starts_with(OURS)
    {
        let what = found.first().map_or_else(|| volume_name(&block, at), |first| first.what.clone());
        found.push(Found { what, at });
    }
    found.extend(successor(file, size)?);
    Ok(found)
}

/// What a device says of itself that was to take another's place, in the places of superblocks.
fn successor(file: &dyn Bytes, size: u64) -> io::Result<Vec<Found>> {
    let (mut found, mut places) = (Vec::new(), vec![0]);
    places.extend(LastBlock(0).place(size).filter(|last| *last > 0));
    let mut place = 0;
    while let Some(at) = places.get(place).copied() {
        place += 1;
        let Some(block) = bytes(file, size, at, BLOCK as usize)? else { continue };
        let Some(header) = Header::decode(&block) else { continue };
        let second = header.bytes.saturating_sub(BLOCK);
        if !places.contains(&second) {
            places.push(second);
        }
        let what =
            format!("a copy, not finished, of a device of a Bimetal volume ({})", id_text(&header.volume));
        found.push(Found { what, at });
    }
    Ok(found)
}

fn volume_name(block: &[u8], at: u64) -> String {
    match Superblock::decode(block, at) {
        Block::Valid(superblock) => format!("a Bimetal volume ({})", id_text(&superblock.volume)),
        _ => "a Bimetal volume".to_owned(),
    }
}

/// ZFS: four labels of 256 KiB, two at each end; the second half of a label is a ring of uberblocks, each
/// of which begins with 0x00bab10c in the byte order of the system that wrote it.
fn zfs(file: &dyn Bytes, size: u64) -> io::Result<Vec<Found>> {
    const LABEL: u64 = 256 << 10;
    const RING: u64 = LABEL / 2;
    const MAGIC: u64 = 0x00ba_b10c;
    let mut found = Vec::new();
    if size < 4 * LABEL {
        return Ok(found);
    }
    let end = size / LABEL * LABEL;
    for label in [0, LABEL, end - 2 * LABEL, end - LABEL] {
        let Some(ring) = bytes(file, size, label + RING, RING as usize)? else { continue };
        for (index, slot) in ring.chunks_exact(1024).enumerate() {
            let known =
                [MAGIC.to_le_bytes(), MAGIC.to_be_bytes()].iter().any(|magic| slot.starts_with(magic));
            if known {
                let at = label + RING + index as u64 * 1024;
                found.push(Found { what: "a ZFS pool member".to_owned(), at });
            }
        }
    }
    Ok(found)
}

/// The last bytes of the first sector are those of a boot sector; its partition entries tell more. Most file
/// systems for DOS and every GPT have one, too: `alone` says that nothing else was found.
fn boot_sector(file: &dyn Bytes, size: u64, alone: bool) -> io::Result<Option<Found>> {
    let Some(sector) = bytes(file, size, 0, 512)? else { return Ok(None) };
    if sector[510..] != [0x55, 0xaa] {
        return Ok(None);
    }
    let entries = || sector[446..510].chunks_exact(16);
    let plausible = entries().all(|entry| matches!(entry[0], 0 | 0x80));
    let partitions = plausible && entries().any(|entry| entry[4] != 0 && entry[4] != 0xee);
    let what = match (partitions, alone) {
        (true, _) => "an MBR partition table",
        (false, true) => "a boot sector",
        (false, false) => return Ok(None),
    };
    Ok(Some(Found { what: what.to_owned(), at: 510 }))
}

/// `None` where the device does not reach so far.
fn bytes(file: &dyn Bytes, size: u64, at: u64, len: usize) -> io::Result<Option<Vec<u8>>> {
    if at.checked_add(len as u64).is_none_or(|end| end > size) {
        return Ok(None);
    }
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, at)?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;

    /// A sparse file of this size with these bytes in it.
    fn image(size: u64, parts: &[(u64, &[u8])]) -> File {
        let file = tempfile::tempfile().expect("temporary file");
        file.set_len(size).expect("size");
        for (at, bytes) in parts {
            file.write_all_at(bytes, *at).expect("write");
        }
        file
    }

    #[test]
    fn every_entry_of_the_table_is_found_by_its_name_on_devices_of_any_size() {
        for size in [300 << 30, (300 << 30) + 7 * 512, 300 << 20] {
            for &(at, magic, what) in TABLE {
                let at = at.place(size).expect("large enough");
                if at + magic.len() as u64 > size {
                    continue;
                }
                let found = probe(&image(size, &[(at, magic)]), size).expect("probe");
                assert!(found.contains(&Found { what: what.to_owned(), at }), "{what}: {found:?}");
            }
        }
    }

    #[test]
    fn the_places_at_the_end_are_those_of_their_formats() {
        // md_p.h: MD_NEW_SIZE_SECTORS is (sectors & ~127) - 128; version 1.0 is 16 sectors before the end,
        // on a multiple of 8.
        let sectors = 204_803u64;
        assert_eq!(At::Md090.place(sectors * 512), Some(((sectors & !127) - 128) * 512));
        assert_eq!(At::Md10.place(sectors * 512), Some(((sectors - 16) & !7) * 512));
        assert_eq!(LastBlock(6).place(8 * 4096 + 100), Some(7 * 4096 + 6));
        for at in [End(512), LastBlock(0), At::Md090, At::Md10] {
            assert_eq!(at.place(100), None);
        }
    }

    #[test]
    fn nothing_is_found_where_nothing_is() {
        for size in [0, 1, 511, 512, 4096, 1 << 20, 300 << 20] {
            assert_eq!(probe(&image(size, &[]), size).expect("probe"), []);
        }
    }

    #[test]
    fn a_boot_sector_is_told_from_a_partition_table() {
        let name = |parts: &[(u64, &[u8])]| {
            phrase(&probe(&image(1 << 20, parts), 1 << 20).expect("probe")).unwrap_or_default()
        };
        let end: (u64, &[u8]) = (510, &[0x55, 0xaa]);
        assert_eq!(name(&[end]), "a boot sector");
        assert_eq!(name(&[end, (450, &[0x83])]), "an MBR partition table");
        assert_eq!(name(&[end, (446, &[0x33]), (450, &[0x83])]), "a boot sector");
        assert_eq!(name(&[end, (0x36, b"FAT16   ")]), "a FAT file system");
        assert_eq!(name(&[end, (450, &[0xee]), (512, b"EFI PART")]), "a GPT partition table");
        assert_eq!(
            name(&[end, (450, &[0x83]), (0, b"XFSB")]),
            "an XFS file system and an MBR partition table"
        );
    }

    #[test]
    fn zfs_labels_are_found_at_both_ends() {
        let size = 64 << 20;
        for label in [0, 256 << 10, size - (512 << 10), size - (256 << 10)] {
            for magic in [0x00ba_b10c_u64.to_le_bytes(), 0x00ba_b10c_u64.to_be_bytes()] {
                let at = label + (128 << 10) + 4096;
                let found = probe(&image(size, &[(at, &magic)]), size).expect("probe");
                assert_eq!(found, [Found { what: "a ZFS pool member".to_owned(), at }]);
            }
        }
    }
}
