//! What real programs leave on a device is refused by name, and gone after `create --force`: neither we nor
//! `blkid` (where it is installed) finds it any more.

mod common;

use common::{bimetal, succeed, text};
use std::path::Path;
use std::process::{Command, Stdio};

/// A program and its arguments (`@` is the file), and what is to be found then.
const MAKERS: &[(&[&str], &str)] = &[
    (&["mkfs.ext4", "-q", "-F", "@"], "ext2, ext3 or ext4"),
    (&["mkfs.xfs", "-q", "-f", "@"], "XFS"),
    (&["mkfs.btrfs", "-q", "-f", "@"], "btrfs"),
    (&["mkfs.f2fs", "-q", "-f", "@"], "F2FS"),
    (&["mkfs.vfat", "-F", "32", "@"], "FAT"),
    (&["mkfs.vfat", "-F", "16", "@"], "FAT"),
    (&["mkfs.ntfs", "-q", "-Q", "-F", "@"], "NTFS"),
    (&["mkfs.exfat", "@"], "exFAT"),
    (&["mkfs.jfs", "-q", "@"], "JFS"),
    (&["mkfs.nilfs2", "-q", "-f", "@"], "NILFS2"),
    (&["mkfs.reiserfs", "-q", "-f", "-f", "@"], "ReiserFS"),
    (&["mkfs.udf", "@"], "UDF"),
    (&["mkswap", "@"], "swap"),
    (&["mkswap", "-p", "65536", "@"], "swap"),
    (&["sgdisk", "--new=1:0:+20M", "@"], "GPT"),
    (&["parted", "-s", "@", "mklabel", "gpt", "mkpart", "x", "1MiB", "20MiB"], "GPT"),
    (&["parted", "-s", "@", "mklabel", "msdos", "mkpart", "primary", "1MiB", "20MiB"], "MBR"),
    (&["parted", "-s", "@", "mklabel", "bsd"], "BSD disk label"),
    (&["parted", "-s", "@", "mklabel", "mac"], "Apple partition map"),
    (
        &[
            "cryptsetup",
            "luksFormat",
            "--batch-mode",
            "--type",
            "luks1",
            "--key-file",
            "/proc/version",
            "--pbkdf-force-iterations",
            "1000",
            "@",
        ],
        "LUKS",
    ),
    (
        &[
            "cryptsetup",
            "luksFormat",
            "--batch-mode",
            "--type",
            "luks2",
            "--key-file",
            "/proc/version",
            "--pbkdf",
            "pbkdf2",
            "--pbkdf-force-iterations",
            "1000",
            "@",
        ],
        "LUKS",
    ),
    (&["make-bcache", "-B", "@"], "bcache"),
    (&["make-bcache", "-C", "@"], "bcache"),
];

/// Those that want a block device, which a test has only as root.
const DEVICE_MAKERS: &[(&[&str], &str)] = &[
    (&["pvcreate", "--yes", "--force", "@"], "LVM physical volume"),
    (&["make-bcache", "-B", "@"], "bcache"),
];

fn run(arguments: &[&str], target: &Path) -> bool {
    let target = target.to_str().expect("a path in UTF-8");
    let arguments: Vec<&str> =
        arguments.iter().map(|&argument| if argument == "@" { target } else { argument }).collect();
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    Command::new("/usr/bin/env")
        .arg(format!("PATH={path}"))
        .args(&arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Whether libblkid finds anything on `target`: `None` when it is not installed.
fn blkid(target: &Path) -> Option<String> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new("blkid").env("PATH", path).arg("-p").arg(target).output().ok()?;
    Some(text(&output.stdout))
}

/// Refused by name without --force; with it, only a volume is left.
fn check(dir: &Path, target: &Path, maker: &[&str], name: &str) {
    let create = || {
        let mut command = bimetal(dir);
        command.arg("create").arg(dir.join("v.toml")).arg("--fast").arg(dir.join("fast.img?size=64M"));
        command.arg("--slow").arg(target).args(["--landing", "8M"]);
        command
    };
    let refused = create().output().expect("run");
    assert_eq!(refused.status.code(), Some(2), "{maker:?}");
    assert!(text(&refused.stderr).contains(name), "{maker:?}: {}", text(&refused.stderr));
    succeed(create().arg("--force"));
    if let Some(found) = blkid(target) {
        // Our own empty partition table is all that is left.
        let found = found.split_once(": ").map_or("", |(_, what)| what.trim());
        assert_eq!(found, "PTTYPE=\"dos\"", "{maker:?}: what blkid finds");
    }
    let again = bimetal(dir)
        .args(["create", "other", "--fast", &format!("{}?size=64M", dir.join("other.img").display())])
        .arg("--slow")
        .arg(target)
        .output()
        .expect("run");
    let message = text(&again.stderr);
    assert!(message.contains("holds a Bimetal volume (") && message.contains(");"), "{maker:?}: {message}");
    succeed(bimetal(dir).arg("check").arg(dir.join("v.toml")));
    std::fs::remove_file(dir.join("v.toml")).expect("remove");
    std::fs::remove_file(dir.join("fast.img")).expect("remove");
}

#[test]
fn what_mkfs_and_others_leave_is_refused_by_name_and_gone_after_force() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut tried = 0;
    for (maker, name) in MAKERS {
        let target = dir.path().join("slow.img");
        // An odd size: the last sector is not in a whole block.
        let size = if maker[0].starts_with("mkfs") { 512 << 20 } else { (512 << 20) + 512 };
        std::fs::File::create(&target).and_then(|file| file.set_len(size)).expect("a sparse file");
        if !run(maker, &target) {
            eprintln!("{}: not installed, or not able to", maker[0]);
            continue;
        }
        check(dir.path(), &target, maker, name);
        tried += 1;
    }
    eprintln!("{tried} of {} makers were tried", MAKERS.len());
}

/// A loop device that goes with its owner.
struct Loop(String);

impl Loop {
    fn new(file: &Path) -> Option<Loop> {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output().ok()?;
        output.status.success().then(|| Loop(text(&output.stdout).trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

#[test]
fn what_needs_a_block_device_is_refused_by_name_too() {
    let dir = tempfile::tempdir().expect("temporary directory");
    for (maker, name) in DEVICE_MAKERS {
        let file = dir.path().join("slow.img");
        std::fs::File::create(&file).and_then(|file| file.set_len((512 << 20) + 512)).expect("a sparse file");
        let Some(device) = Loop::new(&file) else {
            eprintln!("no loop devices");
            return;
        };
        if !run(maker, Path::new(&device.0)) {
            eprintln!("{}: not installed, or not able to", maker[0]);
            continue;
        }
        check(dir.path(), Path::new(&device.0), maker, name);
    }
}
