//! `bimetal udev-probe`: what udev is to remember of a block device that is a volume's.
//!
//! A rule calls it for every block device that comes or changes, so it reads two blocks, and says nothing of what is not
//! ours, or cannot be read: the device may hold anything.

use crate::args::UdevProbeArgs;
use crate::find::{self, Look};
use crate::volume::Volume;
use crate::{Outcome, list, say};
use bimetal_engine::format::superblock::Superblock;
use bimetal_serve::status::{hex, tier_name};

/// Volume files that are looked into for a volume's name.
const MAX_FILES: usize = 256;

pub(crate) fn probe(args: &UdevProbeArgs) -> anyhow::Result<Outcome> {
    if let Some(properties) = properties(&find::look(&args.device), name_of) {
        say(&properties.join("\n"));
    }
    Ok(Outcome::Good)
}

/// The name by which this machine knows a volume, if a volume file has it.
fn name_of(id: &[u8; 16]) -> Option<String> {
    let files = list::named().unwrap_or_default();
    let volumes = files.iter().take(MAX_FILES).filter_map(|file| Volume::load(file).ok());
    volumes.filter(|volume| volume.id == *id).map(|volume| volume.name().0).next()
}

/// Lines `KEY=VALUE`, in the words that udev, systemd and udisks know: a member of something larger, not to be mounted or
/// formatted by itself.
fn properties(look: &Look, name_of: impl Fn(&[u8; 16]) -> Option<String>) -> Option<Vec<String>> {
    let mut lines =
        ["ID_FS_TYPE=bimetal_member", "ID_FS_USAGE=raid", "UDISKS_IGNORE=1"].map(str::to_owned).to_vec();
    match look {
        Look::Ours(superblock) => lines.extend(identity(superblock, name_of(&superblock.volume))),
        Look::Newer(format) => lines.push(format!("ID_FS_VERSION={format}")),
        Look::Missing | Look::Other | Look::Failing(_) | Look::Unknown(_) => return None,
    }
    Some(lines)
}

fn identity(superblock: &Superblock, name: Option<String>) -> Vec<String> {
    let tier = usize::from(superblock.tier.0);
    let volume = uuid(&superblock.volume);
    let mut lines = vec![
        format!("ID_FS_UUID={volume}"),
        format!("ID_FS_UUID_ENC={volume}"),
        format!("BIMETAL_VOLUME={}", hex(&superblock.volume)),
        format!("BIMETAL_TIER={}", tier_name(tier)),
    ];
    lines.extend(superblock.devices.get(tier).map(|device| format!("ID_FS_UUID_SUB={}", uuid(device))));
    // A name that a shell, or a file system, would read otherwise is left out.
    let plain =
        |name: &String| name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    if let Some(name) = name.filter(plain) {
        lines.extend(["BIMETAL_NAME", "ID_FS_LABEL", "ID_FS_LABEL_ENC"].map(|key| format!("{key}={name}")));
    }
    lines
}

/// An identity in the groups of a UUID.
fn uuid(id: &[u8; 16]) -> String {
    [&id[..4], &id[4..6], &id[6..8], &id[8..10], &id[10..]].map(hex).join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_engine::format::superblock::OpenState;
    use bimetal_units::{Generation, Tier};
    use std::io::Write as _;

    fn superblock(tier: u8) -> Box<Superblock> {
        Box::new(Superblock {
            volume: *b"0123456789abcdef",
            devices: [[1; 16], [2; 16]],
            tier: Tier(tier),
            generation: Generation(7),
            state: OpenState::Clean,
            created_unix_s: 0,
            geometry: bimetal_engine::format::geometry::Geometry::default(),
            left_behind: None,
            hints: None,
        })
    }

    #[test]
    fn a_member_is_described_in_words_that_udev_knows() {
        let lines = properties(&Look::Ours(superblock(1)), |_| Some("films".to_owned())).expect("it is ours");
        for line in [
            "ID_FS_TYPE=bimetal_member",
            "ID_FS_USAGE=raid",
            "ID_FS_UUID=30313233-3435-3637-3839-616263646566",
            "ID_FS_UUID_SUB=02020202-0202-0202-0202-020202020202",
            "UDISKS_IGNORE=1",
            "BIMETAL_VOLUME=30313233343536373839616263646566",
            "BIMETAL_TIER=slow",
            "BIMETAL_NAME=films",
        ] {
            assert!(lines.iter().any(|said| said == line), "{line}: {lines:?}");
        }
        let unknown = properties(&Look::Ours(superblock(0)), |_| None).expect("it is ours");
        assert!(!unknown.iter().any(|line| line.starts_with("BIMETAL_NAME")), "{unknown:?}");
        let odd =
            properties(&Look::Ours(superblock(0)), |_| Some("a b\nX=1".to_owned())).expect("it is ours");
        assert!(!odd.iter().any(|line| line.contains('\n') || line.contains("X=1")), "{odd:?}");
    }

    #[test]
    fn what_is_newer_is_still_protected_and_what_is_foreign_is_left_alone() {
        let newer = properties(&Look::Newer(99), |_| None).expect("it is ours");
        assert!(newer.contains(&"ID_FS_TYPE=bimetal_member".to_owned()));
        for look in [Look::Missing, Look::Other, Look::Unknown("an I/O error".to_owned())] {
            assert!(properties(&look, |_| None).is_none());
        }
    }

    #[test]
    fn bytes_of_any_kind_are_no_member() {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        for length in [0, 1, 511, 4095, 4096, 4097, 8192, 65536] {
            let mut file = tempfile::NamedTempFile::new().expect("a file");
            let bytes: Vec<u8> = (0..length)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 56) as u8
                })
                .collect();
            file.write_all(&bytes).expect("bytes");
            // With our own first bytes, too: they are not what counts.
            for magic in [&b""[..], b"BMTLsupr"] {
                use std::os::unix::fs::FileExt as _;
                let begin = &magic[..magic.len().min(length)];
                file.as_file().write_all_at(begin, 0).expect("bytes");
                assert!(properties(&find::look(file.path()), |_| None).is_none(), "{length}");
            }
        }
    }
}
