//! One storage under several names: whoever has it open under one of them keeps everybody away who knows it by another.

mod common;

use common::{Served, bimetal, create, pattern, start, succeed, terminate, text};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const MIB: u64 = 1 << 20;

/// A loop device, detached with its owner.
struct Loop(PathBuf);

impl Loop {
    /// `None` where this may not be done.
    fn of(file: &Path, options: &[&str]) -> Option<Loop> {
        let output = losetup().args(["--find", "--show"]).args(options).arg(file).output().ok()?;
        let path = text(&output.stdout).trim().to_owned();
        output.status.success().then(|| Loop(path.into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = losetup().arg("--detach").arg(&self.0).output();
    }
}

fn losetup() -> Command {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("losetup");
    command.env("PATH", path);
    command
}

fn skip() {
    eprintln!("there are no loop devices here: skipped");
}

/// A command that must be refused, with this in its sentence.
#[track_caller]
fn refused(command: &mut Command, words: &str) -> Output {
    let output = command.output().expect("run");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{command:?}: {said}");
    assert!(said.contains(words), "{command:?} does not say {words:?}: {said}");
    output
}

/// Another volume file for the volume of this directory, with other names of its devices.
fn renamed(dir: &Path, fast: &Path, slow: &Path) -> PathBuf {
    let text = std::fs::read_to_string(dir.join("v.toml")).expect("a volume file");
    let named = |path: &Path| format!("\"{}\"", path.display());
    let other = text.replace("\"fast.img\"", &named(fast)).replace("\"slow.img\"", &named(slow));
    assert_ne!(text, other);
    let file = dir.join("w.toml");
    std::fs::write(&file, other).expect("write");
    file
}

/// A job that writes to a file or device.
fn writes(dir: &Path, target: &Path) -> Command {
    let job = dir.join("job.fio");
    std::fs::write(&job, "[job]\nrw=write\nsize=64k\nbs=4k\n").expect("write");
    let mut command = bimetal(dir);
    command.args(["lab", "fio", "--destroy-data"]).arg(job).arg("--target").arg(target);
    command
}

/// A trace with a write, done there.
fn replays(dir: &Path, target: &Path) -> Command {
    let trace = dir.join("trace.iolog");
    std::fs::write(&trace, "fio version 2 iolog\n/dev/x add\n/dev/x open\n/dev/x write 0 4096\n")
        .expect("write");
    let mut command = bimetal(dir);
    command.args(["trace", "replay", "--destroy-data"]).arg(trace).arg("--target").arg(target);
    command
}

/// All that opens a volume is refused for a volume file with other names of served devices.
fn all_is_refused(served: &Served, file: &Path) {
    let dir = served.dir.path();
    let of = |command: &str| {
        let mut all = bimetal(dir);
        all.arg(command).arg(file);
        all
    };
    let socket = format!("unix:{}", dir.join("w.sock").display());
    refused(of("serve").arg("--nbd").arg(&socket), "in use");
    refused(of("serve").arg("--read-only").arg("--nbd").arg(&socket), "in use");
    refused(&mut of("check"), "in use");
    refused(of("destroy").arg("--yes"), "in use");
    refused(of("destroy").args(["--yes", "--force"]), "in use");
}

#[test]
fn loop_devices_over_the_files_of_a_served_volume_are_those_files() {
    let served = Served::new();
    let dir = served.dir.path();
    let at = |name: &str| dir.join(name);
    let (Some(fast), Some(slow)) = (Loop::of(&at("fast.img"), &[]), Loop::of(&at("slow.img"), &[])) else {
        return skip();
    };
    let mut client = served.connect();
    client.write(0, &pattern(1, 65536));
    client.flush();
    let file = renamed(dir, &fast.0, &slow.0);
    all_is_refused(&served, &file);
    // A second layer, and a part of the file.
    let Some(second) = Loop::of(&fast.0, &[]) else { return skip() };
    refused(bimetal(dir).arg("check").arg(renamed(dir, &second.0, &slow.0)), "in use");
    let Some(part) = Loop::of(&at("fast.img"), &["--offset", "1048576"]) else { return skip() };
    for path in [&part.0, &second.0, &fast.0] {
        refused(&mut writes(dir, path), "in use");
        refused(&mut replays(dir, path), "in use");
        let mut again = bimetal(dir);
        again.arg("create").arg(at("x.toml")).args(["--force", "--fast"]).arg(path);
        refused(again.arg("--slow").arg(format!("{}?size=256M", at("x.img").display())), "in use");
    }
    // What is refused has not grown before.
    let mut again = bimetal(dir);
    again.arg("create").arg(at("x.toml")).args([
        "--force",
        "--slow",
        &format!("{}?size=1G", at("y.img").display()),
    ]);
    refused(again.args(["--fast", &format!("{}?size=1G", at("fast.img").display())]), "in use");
    assert_eq!(std::fs::metadata(at("fast.img")).expect("the file").len(), 64 * MIB);
    assert_eq!(client.read(0, 65536), pattern(1, 65536));
    let listed = text(&bimetal(dir).env("XDG_CONFIG_HOME", dir).arg("list").output().expect("list").stdout);
    assert!(!listed.contains("stopped"), "{listed}");
}

#[test]
fn a_file_is_refused_while_a_server_has_a_loop_device_over_it() {
    let mut served = Served::new();
    served.stop();
    let dir = served.dir.path().to_owned();
    let at = |name: &str| dir.join(name);
    let (Some(fast), Some(slow)) = (Loop::of(&at("fast.img"), &[]), Loop::of(&at("slow.img"), &[])) else {
        return skip();
    };
    let file = renamed(&dir, &fast.0, &slow.0);
    let mut command = bimetal(&dir);
    command.arg("serve").arg(&file).arg("--nbd").arg(format!("unix:{}", served.socket().display()));
    served.child = Some(start(command));
    let mut client = served.connect();
    client.write(0, &pattern(1, 65536));
    all_is_refused(&served, &served.file());
    // Hard and soft links of the files, from another folder.
    std::fs::create_dir(at("other")).expect("a folder");
    std::fs::hard_link(at("fast.img"), at("other/hard")).expect("link");
    std::os::unix::fs::symlink(at("slow.img"), at("other/soft")).expect("link");
    std::fs::rename(&file, at("u.toml")).expect("rename");
    all_is_refused(&served, &renamed(&dir, &at("other/hard"), &at("other/soft")));
    // Another loop device over the same file.
    if let Some(other) = Loop::of(&at("fast.img"), &[]) {
        refused(bimetal(&dir).arg("check").arg(renamed(&dir, &other.0, &slow.0)), "in use");
    }
    client.flush();
    served.stop();
    served.check();
}

#[test]
fn a_file_whose_loop_device_is_mounted_is_refused() {
    let served = Served::new();
    let dir = served.dir.path();
    let disk = dir.join("disk.img");
    File::create(&disk).and_then(|file| file.set_len(64 * MIB)).expect("a file");
    let Some(device) = Loop::of(&disk, &[]) else { return skip() };
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let run = |name: &str, args: &[&Path]| {
        Command::new(name).env("PATH", &path).args(args).output().is_ok_and(|done| done.status.success())
    };
    let place = dir.join("mnt");
    std::fs::create_dir(&place).expect("a folder");
    if !run("mkfs.ext4", &[Path::new("-q"), &device.0]) || !run("mount", &[&device.0, &place]) {
        return eprintln!("nothing can be mounted here: skipped");
    }
    let mut again = bimetal(dir);
    again.arg("create").arg(dir.join("x.toml")).args(["--force", "--fast"]).arg(&disk);
    again.arg("--slow").arg(format!("{}?size=256M", dir.join("x.img").display()));
    let said = text(&refused(&mut again, "in use through").stderr);
    assert!(run("umount", &[&place]), "unmount");
    assert!(said.contains("mounted on") && said.contains("disk.img"), "{said}");
}

#[test]
fn the_devices_of_a_volume_lie_apart() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let at = |name: &str| dir.path().join(name);
    File::create(at("disk")).and_then(|file| file.set_len(700 * MIB)).expect("a file");
    std::fs::hard_link(at("disk"), at("link")).expect("link");
    let create = |fast: &Path, slow: &Path| {
        let mut create = bimetal(dir.path());
        create.arg("create").arg(at("v.toml")).arg("--fast").arg(fast).arg("--slow").arg(slow);
        create.args(["--landing", "8M"]);
        create
    };
    refused(&mut create(&at("disk"), &at("link")), "the same storage");
    let Some(whole) = Loop::of(&at("disk"), &[]) else { return skip() };
    refused(&mut create(&whole.0, &at("disk")), "the same storage");
    refused(&mut create(&at("link"), &whole.0), "the same storage");
    let (fast, slow) = (["--sizelimit", "104857600"], ["--offset", "104857600"]);
    let Some(first) = Loop::of(&at("disk"), &fast) else { return skip() };
    let Some(rest) = Loop::of(&at("disk"), &slow) else { return skip() };
    refused(&mut create(&first.0, &whole.0), "the same storage");
    // What lies apart may be used together, and by nobody else meanwhile.
    succeed(&mut create(&first.0, &rest.0));
    let mut server = common::Guarded(start(common::serve(dir.path())));
    refused(&mut writes(dir.path(), &at("disk")), "in use");
    refused(bimetal(dir.path()).arg("check").arg(at("v.toml")), "in use");
    assert!(terminate(&mut server.0).success());
    succeed(bimetal(dir.path()).arg("check").arg(at("v.toml")));
}

/// Two partitions of a device, taken away with their owner: 100 MiB, and 350 MiB right behind.
struct Partitions<'d>(&'d Loop);

impl Partitions<'_> {
    /// `None` where this may not be done.
    fn of(device: &Loop) -> Option<Partitions<'_>> {
        let add = |number: &str, first: &str, sectors: &str| {
            let done = Command::new("addpart").arg(&device.0).args([number, first, sectors]).output();
            done.is_ok_and(|done| done.status.success())
        };
        let partitions = Partitions(device);
        (add("1", "2048", "204800") && add("2", "206848", "716800")).then_some(partitions)
    }

    fn path(&self, number: u32) -> PathBuf {
        PathBuf::from(format!("{}p{number}", self.0.0.display()))
    }
}

impl Drop for Partitions<'_> {
    fn drop(&mut self) {
        for number in ["1", "2"] {
            let _ = Command::new("delpart").arg(&self.0.0).arg(number).output();
        }
    }
}

#[test]
fn partitions_of_one_disk_lie_apart() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let at = |name: &str| dir.path().join(name);
    let disk = at("disk");
    File::create(&disk).and_then(|file| file.set_len(500 * MIB)).expect("a file");
    let Some(whole) = Loop::of(&disk, &[]) else { return skip() };
    let Some(parts) = Partitions::of(&whole) else {
        return eprintln!("devices get no partitions here: skipped");
    };
    let create = |fast: &Path, slow: &Path| {
        let mut create = bimetal(dir.path());
        create.arg("create").arg(at("v.toml")).arg("--fast").arg(fast).arg("--slow").arg(slow);
        create
    };
    refused(&mut create(&parts.path(1), &whole.0), "the same storage");
    refused(&mut create(&disk, &parts.path(2)), "the same storage");
    succeed(&mut create(&parts.path(1), &parts.path(2)));
    let mut server = common::Guarded(start(common::serve(dir.path())));
    for path in [&whole.0, &disk] {
        let mut again = bimetal(dir.path());
        again.arg("create").arg(at("x.toml")).args(["--force", "--fast"]).arg(path);
        again.arg("--slow").arg(format!("{}?size=256M", at("x.img").display()));
        refused(&mut again, "in use");
        refused(&mut writes(dir.path(), path), "in use");
    }
    // The second partition's range of the file, under a name of its own.
    let Some(range) = Loop::of(&disk, &["--offset", "105906176"]) else { return skip() };
    refused(&mut writes(dir.path(), &range.0), "in use");
    assert!(terminate(&mut server.0).success());
    succeed(bimetal(dir.path()).arg("check").arg(at("v.toml")));
}

#[test]
fn the_volume_file_of_a_served_volume_is_not_replaced() {
    let served = Served::new();
    let before = std::fs::read(served.file()).expect("a volume file");
    let other = |name: &str| format!("{}?size=256M", served.dir.path().join(name).display());
    let mut create = bimetal(served.dir.path());
    create.arg("create").arg(served.file()).arg("--force");
    refused(create.args(["--fast", &other("f.img"), "--slow", &other("s.img")]), "in use");
    assert_eq!(std::fs::read(served.file()).expect("a volume file"), before);
}

#[test]
fn two_volumes_do_not_share_a_file() {
    let served = Served::new();
    let dir = served.dir.path().join("second");
    std::fs::create_dir(&dir).expect("a folder");
    create(&dir, [(dir.join("fast.img"), "64M"), (dir.join("slow.img"), "256M")], &[]);
    let text = std::fs::read_to_string(dir.join("v.toml")).expect("a volume file");
    let shared =
        text.replace("\"slow.img\"", &format!("\"{}\"", served.dir.path().join("slow.img").display()));
    std::fs::remove_file(dir.join("slow.img")).expect("remove");
    std::fs::write(dir.join("v.toml"), shared).expect("write");
    let output = common::serve(&dir).output().expect("run");
    assert_eq!(output.status.code(), Some(2), "{}", common::text(&output.stderr));
    let mut client = served.connect();
    client.write(0, &pattern(1, 4096));
    assert_eq!(client.read(0, 4096), pattern(1, 4096));
}
