//! What `create` finds before it overwrites anything, what it says then, and how often it has to be told.

mod common;

use common::{Guarded, Served, bimetal, pattern, succeed, text};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const MIB: u64 = 1 << 20;

/// A loop device, detached with its owner.
struct Loop(PathBuf);

impl Loop {
    /// `None` where this may not be done.
    fn of(file: &Path) -> Option<Loop> {
        Loop::with(&[], file)
    }

    /// Of a part of it, perhaps.
    fn with(options: &[&str], file: &Path) -> Option<Loop> {
        let output = losetup().args(["--find", "--show"]).args(options).arg(file).output().ok()?;
        output.status.success().then(|| Loop(text(&output.stdout).trim().into()))
    }

    /// Lets the kernel say that it turns, or that it does not.
    fn turns(&self, turns: bool) -> bool {
        let name = self.0.file_name().expect("a name").to_string_lossy().into_owned();
        std::fs::write(format!("/sys/block/{name}/queue/rotational"), if turns { "1" } else { "0" }).is_ok()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = losetup().arg("--detach").arg(&self.0).output();
    }
}

fn losetup() -> Command {
    let mut command = Command::new("losetup");
    command.env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()));
    command
}

fn empty(path: &Path, bytes: u64) -> File {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path).expect("a file");
    file.set_len(bytes).expect("its size");
    file
}

/// `create VOLUME --fast FAST --slow SLOW` in a folder.
fn create(dir: &Path, volume: &str, fast: &str, slow: &str, options: &[&str]) -> Output {
    let mut command = bimetal(dir);
    command.current_dir(dir).args(["create", volume, "--fast", fast, "--slow", slow]).args(options);
    command.output().expect("run")
}

#[track_caller]
fn refused(output: &Output, words: &[&str]) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    words.iter().for_each(|word| assert!(said.contains(word), "does not say {word:?}: {said}"));
}

#[track_caller]
fn made(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stderr)
}

/// Bytes are written to a block device wherever a generator says; each of them is found, and left as it is.
#[test]
fn a_byte_anywhere_on_a_block_device_is_found() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let size = 300 * MIB + 7 * 512;
    let file = empty(&dir.path().join("disk"), size);
    let Some(disk) = Loop::of(&dir.path().join("disk")) else { return eprintln!("no loop devices: skipped") };
    let device = File::options().read(true).write(true).open(&disk.0).expect("a device");
    let name = disk.0.to_str().expect("UTF-8");
    let places = pattern(7, 96);
    for eight in places.chunks_exact(8) {
        let place = u64::from_le_bytes(eight.try_into().expect("eight bytes")) % size;
        device.write_all_at(b"x", place).and_then(|()| device.sync_all()).expect("write");
        let output = create(dir.path(), "./v.toml", name, "s.img?size=512M", &[]);
        refused(&output, &["holds data", &format!("is at {place})"), "--force"]);
        assert!(!dir.path().join("v.toml").exists());
        let mut byte = [0];
        device.read_exact_at(&mut byte, place).expect("read");
        assert_eq!(byte, *b"x", "at {place}");
        device.write_all_at(&[0], place).and_then(|()| device.sync_all()).expect("write");
    }
    device.write_all_at(b"x", 123_456_789).and_then(|()| device.sync_all()).expect("write");
    drop((device, file));
    let said = made(&create(dir.path(), "./v.toml", name, "s.img?size=512M", &["--force"]));
    assert!(said.contains("overwriting data (a byte that is not zero is at 123456789)"), "{said}");
}

#[test]
fn what_is_forced_is_named_and_two_things_are_forced_twice() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let at = |name: &str| dir.path().join(name);
    made(&create(dir.path(), "./v.toml", "f.img?size=64M", "s.img?size=256M", &[]));
    let before = std::fs::read(at("v.toml")).expect("a volume file");
    std::fs::write(at("notes"), pattern(1, 1 << 16)).expect("write");
    let again =
        |options: &[&str]| create(dir.path(), "./v.toml", "notes?size=64M", "s2.img?size=256M", options);
    refused(&again(&[]), &["exists already", "--force"]);
    refused(&again(&["--force"]), &["notes holds data", "exists already", "--force --force"]);
    assert_eq!(std::fs::read(at("notes")).expect("read"), pattern(1, 1 << 16), "it is as it was");
    assert_eq!(std::fs::read(at("v.toml")).expect("a volume file"), before);
    let said = made(&again(&["--force", "--force"]));
    assert!(said.contains("overwriting data") && said.contains("notes"), "{said}");
    assert!(said.contains("replacing") && said.contains("f.img") && said.contains("s.img"), "{said}");
    // What belongs to the volume of the file that is replaced goes with it.
    let said = made(&create(dir.path(), "./v.toml", "notes", "s2.img", &["--force"]));
    assert!(said.contains("overwriting a Bimetal volume"), "{said}");
    // Another's does not.
    let first = create(dir.path(), "./v.toml", "f.img", "s.img", &["--force"]);
    refused(&first, &["f.img holds a Bimetal volume", "--force --force"]);
    made(&create(dir.path(), "./w.toml", "f.img", "s.img", &["--force"]));
}

#[test]
fn devices_that_look_odd_are_said() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let said = made(&create(dir.path(), "./v.toml", "f.img?size=300M", "s.img?size=256M", &[]));
    assert!(said.contains("the fast device, 300 MiB, is larger than the slow one, 256 MiB"), "{said}");
    let said = made(&create(dir.path(), "./w.toml", "f2.img?size=64M", "s2.img?size=256M", &[]));
    assert_eq!(said, "", "nothing is odd");
    let loops = ["a", "b"].map(|name| {
        let file = dir.path().join(name);
        empty(&file, 256 * MIB);
        Loop::of(&file)
    });
    let [Some(fast), Some(slow)] = &loops else { return eprintln!("no loop devices: skipped") };
    if !fast.turns(true) || !slow.turns(false) {
        return eprintln!("the kernel takes no word about what turns: skipped");
    }
    let path = |device: &Loop| device.0.display().to_string();
    let said = made(&create(dir.path(), "./x.toml", &path(fast), &path(slow), &[]));
    assert!(said.contains("fast device, and the kernel says that it turns"), "{said}");
    assert!(said.contains("slow device, and the kernel says that it does not turn"), "{said}");
    assert!(fast.turns(false) && slow.turns(true));
    let said = made(&create(dir.path(), "./x.toml", &path(fast), &path(slow), &["--force"]));
    assert!(!said.contains("kernel says"), "{said}");
}

/// Every pair of names of one storage, and of parts of it that overlap, is refused; parts beside each other are not.
#[test]
fn no_two_names_of_one_storage_make_a_volume() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let at = |name: &str| dir.path().join(name);
    empty(&at("disk"), 600 * MIB);
    std::os::unix::fs::symlink("disk", at("soft")).expect("a link");
    std::fs::hard_link(at("disk"), at("hard")).expect("a link");
    std::fs::create_dir(at("folder")).expect("a folder");
    let mut names: Vec<String> =
        ["disk", "soft", "hard", "folder/../disk", "/proc/self/cwd/disk"].map(str::to_owned).into();
    let part = |options: &[&str], of: &Path| Loop::with(options, of);
    let whole = part(&[], &at("disk"));
    let twin = part(&[], &at("disk"));
    let above = whole.as_ref().and_then(|whole| part(&[], &whole.0));
    let first = part(&["--sizelimit", "256M"], &at("disk"));
    let middle = part(&["--offset", "100M"], &at("disk"));
    let second = part(&["--offset", "256M"], &at("disk"));
    let loops = [&whole, &twin, &above, &first, &middle].map(Option::as_ref).into_iter().flatten();
    names.extend(loops.map(|device| device.0.display().to_string()));
    for fast in &names {
        for slow in &names {
            let output = create(dir.path(), "./v.toml", fast, slow, &[]);
            assert_eq!(output.status.code(), Some(2), "{fast} and {slow}: {}", text(&output.stderr));
        }
    }
    let (Some(first), Some(second)) = (first, second) else {
        return eprintln!("no loop devices: not all was tried");
    };
    let path = |device: &Loop| device.0.display().to_string();
    made(&create(dir.path(), "./v.toml", &path(&first), &path(&second), &[]));
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let output = create(dir.path(), "./v.toml", "none/f.img?size=64M", "s.img?size=256M", &[]);
    refused(&output, &["none/f.img cannot be created", "no folder none"]);
}

/// Its server has the files open, though nobody finds them any more.
#[test]
fn a_served_volume_whose_files_are_gone_keeps_its_volume_file() {
    let served = Served::new();
    let dir = served.dir.path();
    for name in ["fast.img", "slow.img"] {
        std::fs::remove_file(dir.join(name)).expect("remove");
    }
    let file = served.file().display().to_string();
    refused(&create(dir, &file, "f.img?size=64M", "s.img?size=256M", &["--force", "--force"]), &["in use"]);
    let destroy = bimetal(dir).args(["destroy", &file, "--yes", "--force"]).output().expect("run");
    refused(&destroy, &["in use", "nothing was destroyed"]);
    assert!(served.file().exists());
}

/// Whatever writes a file by force spares volume files, and what a server has open.
#[test]
fn what_is_written_by_force_spares_volumes() {
    let served = Served::new();
    let dir = served.dir.path();
    std::fs::write(dir.join("i"), "fio version 2 iolog\n/dev/x add\n/dev/x open\n/dev/x read 0 4096\n")
        .expect("write");
    std::fs::write(dir.join("job.fio"), "[job]\nrw=read\nsize=64k\nfilename=i\n").expect("write");
    let (file, job, trace) = (served.file(), dir.join("job.fio"), dir.join("i"));
    let before = std::fs::read(&file).expect("a volume file");
    for (victim, why) in [(file.clone(), "is a volume file"), (dir.join("fast.img"), "in use")] {
        let [victim, file, job, trace] =
            [&victim, &file, &job, &trace].map(|path| path.display().to_string());
        for words in [
            &["trace", "convert", &trace, "-o", &victim, "--force"][..],
            &["trace", "synth", "light", "-o", &victim, "--force", "--scale", "1000"],
            &["trace", "record", &file, "-o", &victim, "--force", "--seconds", "1"],
            &["lab", "fio", &job, "--target", "null:", "--record", &victim, "--force"],
            &["lab", "fio", &job, "--target", "null:", "--html", &victim, "--force"],
        ] {
            refused(&bimetal(dir).args(words).output().expect("run"), &[why, "name another file"]);
        }
    }
    assert_eq!(std::fs::read(&file).expect("a volume file"), before);
    let mut client = served.connect();
    client.write(0, &pattern(1, 4096));
    assert_eq!(client.read(0, 4096), pattern(1, 4096));
}

#[test]
fn volumes_are_listed_and_completed_wherever_their_files_are() {
    let served = Served::new();
    let dir = served.dir.path();
    made(&create(dir, "films", "films.fast?size=64M", "films.slow?size=256M", &[]));
    let list = text(&succeed(bimetal(dir).arg("list")).stdout);
    let line = |what: &str| list.lines().find(|line| line.contains(what)).unwrap_or_default().to_owned();
    assert!(line("films").contains("stopped"), "{list}");
    assert!(line("v.toml").starts_with(&format!("{} ", served.file().display())), "{list}");
    assert!(line("v.toml").contains("served"), "{list}");
    let complete = |words: &[&str]| {
        let mut command = bimetal(dir);
        command.env("BIMETAL_COMPLETE", "fish").arg("--").arg("bimetal").args(words);
        text(&succeed(&mut command).stdout)
    };
    for words in [&["status", ""][..], &["serve", "fi"], &["pin", "f"], &["trace", "record", ""]] {
        assert!(complete(words).lines().any(|line| line == "films"), "{words:?}: {}", complete(words));
    }
    assert!(complete(&["lab", "idle", "volume:f"]).contains("volume:films"));
    let begun = dir.join("films.f").display().to_string();
    for words in [
        &["create", "x", "--fast", &begun][..],
        &["lab", "fio", "job", "--target", &begun],
        &["status", &begun],
    ] {
        assert!(complete(words).contains("films.fast"), "{words:?}: {}", complete(words));
    }
    let data = dir.join("data");
    let mut command = bimetal(dir);
    command.env("XDG_DATA_HOME", &data).args(["up", "--slow-model", "none"]);
    let mut server = Guarded(common::start(command));
    let list = text(&succeed(bimetal(dir).env("XDG_DATA_HOME", &data).arg("list")).stdout);
    let file = data.join("bimetal/volume.toml").display().to_string();
    assert!(list.lines().any(|line| line.starts_with(&file) && line.contains("served")), "{list}");
    assert!(common::terminate(&mut server.0).success());
}
