//! Volume files and what they lead to: devices found again, never guessed; list and destroy.

mod common;

use common::{Client, Served, bimetal, pattern, start, succeed, terminate, text};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

/// Ends with 2 and one sentence that has these words.
fn refused(command: &mut Command, words: &[&str]) {
    let output = command.output().expect("run");
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{command:?}: {message}");
    for word in words {
        assert!(message.contains(word), "{command:?} does not say {word:?}: {message}");
    }
    assert!(output.stdout.is_empty(), "{command:?} writes to standard output");
}

/// A stopped volume with something on it.
fn stopped() -> Served {
    let mut served = Served::new();
    let mut client = served.connect();
    client.write(0, &pattern(1, 100_000));
    client.flush();
    served.stop();
    served
}

fn reads_back(served: &mut Served) {
    served.start();
    assert_eq!(served.connect().read(0, 100_000), pattern(1, 100_000));
    served.stop();
}

fn devices(served: &Served) -> Vec<String> {
    let status = json(&succeed(bimetal(served.dir.path()).arg("status").arg(served.file()).arg("--json")));
    let tiers = status["tiers"].as_array().expect("tiers").clone();
    tiers.iter().map(|tier| tier["device"].as_str().expect("a path").to_owned()).collect()
}

#[test]
fn a_device_that_was_renamed_is_found_and_said() {
    let mut served = stopped();
    let dir = served.dir.path().to_owned();
    std::fs::rename(dir.join("slow.img"), dir.join("renamed")).expect("rename");
    let output = succeed(bimetal(&dir).arg("check").arg(served.file()));
    let message = text(&output.stderr);
    assert!(message.contains("slow.img does not exist; using"), "{message}");
    assert_eq!(
        devices(&served),
        [dir.join("fast.img"), dir.join("renamed")].map(|p| p.display().to_string())
    );
    reads_back(&mut served);
}

#[test]
fn devices_that_changed_places_are_told_apart() {
    let mut served = stopped();
    let at = |name: &str| served.dir.path().join(name);
    for (from, to) in [("fast.img", "x"), ("slow.img", "fast.img"), ("x", "slow.img")] {
        std::fs::rename(at(from), at(to)).expect("rename");
    }
    let real = ["slow.img", "fast.img"].map(|name| at(name).display().to_string());
    assert_eq!(devices(&served), real);
    reads_back(&mut served);
}

#[test]
fn an_old_copy_is_no_reason_to_guess() {
    let mut served = stopped();
    let at = |name: &str| served.dir.path().join(name);
    std::fs::copy(at("slow.img"), at("copy")).expect("copy");
    // As long as the device is where it was, a copy beside it is nobody's business.
    reads_back(&mut served);
    let at = |name: &str| served.dir.path().join(name);
    std::fs::rename(at("slow.img"), at("moved")).expect("rename");
    let mut check = bimetal(served.dir.path());
    refused(check.arg("check").arg(served.file()), &["moved", "copy", "one is a copy"]);
    // A lone copy of an earlier opening is found, and refused by its generation.
    std::fs::remove_file(at("moved")).expect("remove");
    let mut check = bimetal(served.dir.path());
    refused(check.arg("check").arg(served.file()), &["copy", "restored from an old copy"]);
}

#[test]
fn a_missing_device_is_named() {
    let served = stopped();
    std::fs::remove_file(served.dir.path().join("slow.img")).expect("remove");
    for command in ["serve", "status", "check"] {
        let mut command_line = bimetal(served.dir.path());
        refused(command_line.arg(command).arg(served.file()), &["slow.img does not exist", "slow device"]);
    }
}

/// As after a boot with a disk away, when another one has its letter.
#[test]
fn a_missing_device_is_named_when_something_else_is_in_its_place() {
    let served = stopped();
    let dir = served.dir.path();
    let away = tempfile::tempdir().expect("another folder");
    std::fs::rename(dir.join("slow.img"), away.path().join("slow.img")).expect("rename");
    std::fs::write(dir.join("slow.img"), pattern(3, 1 << 20)).expect("something else");
    let mut permissions = std::fs::metadata(dir.join("slow.img")).expect("a file").permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(dir.join("slow.img"), permissions).expect("read-only");
    for command in ["serve", "check"] {
        refused(
            bimetal(dir).arg(command).arg(served.file()),
            &["slow.img is not a Bimetal device", "is the slow device of", "connect it"],
        );
    }
}

fn create(dir: &Path, name: &str) -> [PathBuf; 2] {
    let paths = ["fast", "slow"].map(|tier| dir.join(format!("{name}-{tier}.img")));
    let spec = |path: &Path, size| format!("{}?size={size}", path.display());
    succeed(
        bimetal(dir)
            .args(["create", name, "--fast", &spec(&paths[0], "64M"), "--slow", &spec(&paths[1], "256M")])
            .args(["--landing", "8M"]),
    );
    paths
}

#[test]
fn list_shows_every_volume_whatever_is_wrong_with_others() {
    let home = tempfile::tempdir().expect("temporary directory");
    let dir = home.path();
    let list = |code| {
        let output = bimetal(dir).args(["list", "--json"]).output().expect("run");
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        json(&output)["volumes"].as_array().expect("volumes").clone()
    };
    assert_eq!(list(0).len(), 0);
    create(dir, "good");
    for path in create(dir, "lost") {
        std::fs::remove_file(path).expect("remove");
    }
    create(dir, "served");
    create(dir, "half");
    let config = dir.join("bimetal");
    let half = std::fs::read_to_string(config.join("half.toml")).expect("read");
    std::fs::write(config.join("half.toml"), half.replace("version = 1", "version = 1\nunfinished = true"))
        .expect("write");
    std::fs::write(config.join("bad.toml"), "nonsense").expect("write");
    let mut serve = bimetal(dir);
    serve.args(["serve", "served"]);
    let mut child = start(serve);
    let volumes = list(1);
    let states: Vec<(&str, &str)> = volumes
        .iter()
        .map(|v| (v["name"].as_str().expect("a name"), v["state"].as_str().expect("a state")))
        .collect();
    let expected = [
        ("bad", "broken"),
        ("good", "stopped"),
        ("half", "unfinished"),
        ("lost", "missing device"),
        ("served", "served"),
    ];
    assert_eq!(states, expected);
    assert!(volumes[1]["size_bytes"].as_u64() > Some(256 << 20), "{}", volumes[1]);
    assert_eq!(volumes[1]["devices"][0]["size_bytes"], 64 << 20);
    assert_eq!(volumes[1]["volume_id"].as_str().map(str::len), Some(32));
    assert!(volumes[3]["problem"].as_str().expect("a problem").contains("lost-fast.img"), "{}", volumes[3]);
    let table = bimetal(dir).arg("list").output().expect("run");
    assert_eq!(text(&table.stdout).lines().filter(|line| !line.starts_with(' ')).count(), 5);
    assert!(terminate(&mut child).success());
}

#[test]
fn destroy_wants_a_yes_and_leaves_nothing_to_be_found() {
    let home = tempfile::tempdir().expect("temporary directory");
    let dir = home.path();
    let [fast, slow] = create(dir, "v");
    let before = [&fast, &slow].map(|path| std::fs::read(path).expect("read"));
    refused(bimetal(dir).args(["destroy", "v"]), &["--yes", "v-fast.img", "v-slow.img"]);
    let mut serve = bimetal(dir);
    serve.args(["serve", "v"]);
    let mut child = start(serve);
    refused(bimetal(dir).args(["destroy", "v", "--yes"]), &["in use", "nothing was destroyed"]);
    assert!(terminate(&mut child).success());
    let output = succeed(bimetal(dir).args(["destroy", "v", "--yes", "--json"]));
    let doc = json(&output);
    assert_eq!(doc["volume"], "v");
    assert!(doc["devices"].as_array().expect("devices").iter().all(|device| device["erased"] == true));
    assert!(!dir.join("bimetal/v.toml").exists());
    for (path, before) in [&fast, &slow].into_iter().zip(before) {
        let after = std::fs::read(path).expect("read");
        assert_eq!(after.len(), before.len());
        let end = after.len() - 4096;
        assert!(before.starts_with(b"BMTLsupr") && before[end..].starts_with(b"BMTLsupr"));
        assert!(after[..4096].iter().chain(&after[end..]).all(|&byte| byte == 0), "{}", path.display());
    }
    refused(bimetal(dir).args(["serve", "v"]), &["there is no volume"]);
}

#[test]
fn destroy_never_touches_what_is_not_the_volumes() {
    let home = tempfile::tempdir().expect("temporary directory");
    let dir = home.path();
    let [fast, slow] = create(dir, "v");
    let [_, other] = create(dir, "other");
    // The slow device's place is taken by another volume's device; its own is gone.
    std::fs::rename(&slow, dir.join("away")).expect("rename");
    std::fs::copy(&other, &slow).expect("copy");
    let away = std::fs::read(dir.join("away")).expect("read");
    std::fs::remove_file(dir.join("away")).expect("remove");
    let bytes = std::fs::read(&slow).expect("read");
    let untouched = std::fs::read(&fast).expect("read");
    refused(
        bimetal(dir).args(["destroy", "v", "--yes"]),
        &["v-slow.img", "nothing was destroyed", "--force"],
    );
    assert!(std::fs::read(&fast).expect("read") == untouched);
    // Gone altogether: refused too, and forced, the other one goes.
    std::fs::remove_file(&slow).expect("remove");
    refused(
        bimetal(dir).args(["destroy", "v", "--yes"]),
        &["v-slow.img does not exist", "nothing was destroyed"],
    );
    std::fs::write(&slow, &bytes).expect("write");
    let doc = json(&succeed(bimetal(dir).args(["destroy", "v", "--yes", "--force", "--json"])));
    assert_eq!((&doc["devices"][0]["erased"], &doc["devices"][1]["erased"]), (&true.into(), &false.into()));
    assert!(std::fs::read(&slow).expect("read") == bytes, "another volume's device was touched");
    assert!(away.starts_with(b"BMTLsupr"));
    succeed(bimetal(dir).args(["check", "other"]));
}

#[test]
fn destroy_that_was_cut_short_can_be_repeated() {
    let home = tempfile::tempdir().expect("temporary directory");
    let dir = home.path();
    let [fast, _] = create(dir, "v");
    let file = dir.join("bimetal/v.toml");
    // As a crash leaves it: marked, and one device erased.
    let volume = std::fs::read_to_string(&file).expect("read");
    std::fs::write(&file, volume.replace("version = 1", "version = 1\nunfinished = true")).expect("write");
    let len = std::fs::metadata(&fast).expect("metadata").len();
    let end = len as usize - 4096;
    let mut bytes = std::fs::read(&fast).expect("read");
    bytes[..4096].fill(0);
    bytes[end..].fill(0);
    std::fs::write(&fast, bytes).expect("write");
    refused(bimetal(dir).args(["serve", "v"]), &["not made to its end"]);
    succeed(bimetal(dir).args(["destroy", "v", "--yes"]));
    assert!(!file.exists());
}

#[test]
fn create_says_how_devices_are_used_and_status_too() {
    let home = tempfile::tempdir().expect("temporary directory");
    let dir = home.path();
    let spec = |name: &str| format!("{}?size=64M", dir.join(name).display());
    let output = succeed(bimetal(dir).args(["create", "v", "--fast", &spec("f"), "--slow", &spec("s")]));
    let said = text(&output.stdout);
    assert!(said.contains("fast: ") && said.contains("a file of 64 MiB"), "{said}");
    let doc = json(&succeed(bimetal(dir).args(["status", "v", "--json"])));
    for tier in doc["tiers"].as_array().expect("tiers") {
        assert!(tier["direct"].is_boolean(), "{tier}");
        assert!(tier.get("logical_sector_bytes").is_some(), "{tier}");
    }
    // The same device twice, under two names.
    std::os::unix::fs::symlink(dir.join("x"), dir.join("y")).expect("link");
    std::fs::write(dir.join("x"), "").expect("write");
    refused(
        bimetal(dir).args(["create", "w", "--fast", &spec("x"), "--slow", &spec("y")]),
        &["both the fast and the slow device"],
    );
}

#[test]
fn up_hands_its_lock_from_creating_to_serving() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let up = || {
        let mut command = bimetal(dir.path());
        command.arg("up").arg("--dir").arg(dir.path().join("up")).args(["--slow-model", "none"]);
        command
    };
    // Many at once: one makes the volume and serves it, the others find it in use.
    let mut children: Vec<_> = (0..4)
        .map(|_| {
            up().stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::piped())
                .spawn()
                .expect("start")
        })
        .collect();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while children.iter_mut().filter_map(|child| child.try_wait().expect("wait")).count() < 3 {
        assert!(std::time::Instant::now() < deadline, "three of four must give way");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(Client::connect(&dir.path().join("up/nbd.sock")).size_bytes > 8 << 30);
    for child in &mut children {
        match child.try_wait().expect("wait") {
            Some(status) => assert_eq!(status.code(), Some(2)),
            None => assert!(terminate(child).success()),
        }
    }
}

#[test]
fn a_wear_budget_is_kept_in_the_volume_file_and_shown_by_status() {
    let mut served = Served::sized("64M", "256M");
    let file = served.file();
    let wear = |served: &Served| {
        let output = succeed(bimetal(served.dir.path()).arg("status").arg(&file).arg("--json"));
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a document");
        document["wear"].clone()
    };
    let none = serde_json::json!({ "moved_bytes": 0, "copied_bytes": 0, "budget": null });
    assert_eq!(wear(&served), none, "there is no limit unless it is asked for");
    served.stop();

    let device = |name: &str| served.dir.path().join(name).display().to_string();
    let mut again = bimetal(served.dir.path());
    again.args(["create", "--force", "--wear-budget", "164G", "--fast", &device("fast.img")]);
    succeed(again.args(["--slow", &device("slow.img"), "--landing", "8M"]).arg(&file));
    let made = std::fs::read_to_string(&file).expect("a volume file");
    assert!(made.contains("wear_budget = \"164G\""), "{made}");
    served.start();
    let budget = wear(&served)["budget"].clone();
    assert_eq!(budget["bytes_per_day"], 164u64 << 30);
    assert!(budget["left_bytes"].as_u64().is_some_and(|left| left >= 41 << 30), "{budget}");
    let output = succeed(bimetal(served.dir.path()).arg("status").arg(&file));
    assert!(text(&output.stdout).contains("of 164 GiB a day left"), "{}", text(&output.stdout));
    served.stop();

    std::fs::write(&file, made.replace("164G", "1500")).expect("it can be changed");
    assert_eq!(wear(&served)["budget"]["bytes_per_day"], 1500);
    std::fs::write(&file, made.replace("164G", "much")).expect("it can be changed");
    let output = bimetal(served.dir.path()).arg("status").arg(&file).output().expect("run");
    let said = text(&output.stderr);
    assert!(
        output.status.code() == Some(2) && said.contains("wear_budget") && said.contains("much"),
        "{said}"
    );
}

#[test]
fn a_wake_budget_is_kept_in_the_volume_file_and_shown_by_status() {
    let mut served = Served::sized("64M", "256M");
    let file = served.file();
    let wakeups = |served: &Served| {
        let output = succeed(bimetal(served.dir.path()).arg("status").arg(&file).arg("--json"));
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a document");
        document["timed_wakeups_per_day"].clone()
    };
    assert_eq!(wakeups(&served), 24, "once an hour, unless something else is asked for");
    served.stop();

    let device = |name: &str| served.dir.path().join(name).display().to_string();
    let mut again = bimetal(served.dir.path());
    again.args(["create", "--force", "--wake-budget", "6", "--fast", &device("fast.img")]);
    succeed(again.args(["--slow", &device("slow.img"), "--landing", "8M"]).arg(&file));
    let made = std::fs::read_to_string(&file).expect("a volume file");
    assert!(made.contains("wake_budget = 6"), "{made}");
    served.start();
    assert_eq!(wakeups(&served), 6);
    served.stop();

    for (wrong, why) in
        [("0", "use 1 to 1440"), ("1441", "use 1 to 1440"), ("\"often\"", "not a volume file")]
    {
        std::fs::write(&file, made.replace("wake_budget = 6", &format!("wake_budget = {wrong}")))
            .expect("it can be changed");
        let output = bimetal(served.dir.path()).arg("status").arg(&file).output().expect("run");
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(why), "{wrong}: {said}");
    }
}

/// A block of the root in force is bad in one copy: the check finds it and says that the other one is good, the repair says
/// what it does, and then the volume is clean.
#[test]
fn a_bad_copy_of_metadata_is_found_and_repaired() {
    let mut served = stopped();
    let fast = served.dir.path().join("fast.img");
    let bytes = std::fs::read(&fast).expect("a device");
    let is_root = |block: &[u8]| block.starts_with(b"BMTLpage") && block[32] == 3;
    let roots: Vec<usize> =
        (0..bytes.len() / 4096).filter(|at| is_root(&bytes[at * 4096..][..4096])).collect();
    assert!(roots.len() > 1, "each block of a root stands twice: {roots:?}");
    let newest =
        |at: &usize| u64::from_le_bytes(bytes[at * 4096 + 48..][..8].try_into().expect("eight bytes"));
    let last = roots.iter().map(newest).max().expect("a root");
    let root = *roots.iter().find(|at| newest(at) == last).expect("a root");
    let mut bad = bytes.clone();
    bad[root * 4096 + 60] ^= 1;
    std::fs::write(&fast, &bad).expect("write");

    let check = |arguments: &[&str]| {
        bimetal(served.dir.path()).arg("check").arg(served.file()).args(arguments).output()
    };
    let found = check(&[]).expect("run");
    assert_eq!(found.status.code(), Some(1), "{}", text(&found.stdout));
    let said = text(&found.stdout);
    assert!(said.contains(&format!("at byte {}", root * 4096)) && said.contains("is good"), "{said}");
    let repaired = check(&["--repair"]).expect("run");
    let said = text(&repaired.stdout);
    assert!(repaired.status.success() && said.contains("to be repaired") && said.contains("clean"), "{said}");
    assert!(check(&[]).expect("run").status.success());
    reads_back(&mut served);
}
