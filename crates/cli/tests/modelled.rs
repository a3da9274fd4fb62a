//! Volumes on files that are timed by a model: every command knows the model, and it is nothing to the data.

mod common;

use common::{Client, bimetal, pattern, serve, start, succeed, terminate, text};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// Makes the volume of this directory, its slow tier timed as this model, and gives what `create` said.
fn create(dir: &Path, model: &str) -> Output {
    let fast = format!("{}?size=64M", dir.join("fast.img").display());
    let slow = format!("model:{model}?file={}&size=256M", dir.join("slow.img").display());
    let mut command = bimetal(dir);
    command.arg("create").arg(dir.join("v.toml")).args(["--fast", &fast, "--slow", &slow]);
    command.args(["--landing", "8M", "--chunk", "64K"]).output().expect("run")
}

fn json(command: &mut Command) -> Value {
    serde_json::from_slice(&succeed(command).stdout).expect("one JSON document")
}

fn models(dir: &Path) -> [Value; 2] {
    let status = json(bimetal(dir).arg("status").arg(dir.join("v.toml")).arg("--json"));
    [0, 1].map(|tier| status["tiers"][tier]["model"].clone())
}

/// Changes the volume file.
fn edit(dir: &Path, from: &str, to: &str) {
    let file = dir.join("v.toml");
    let text = std::fs::read_to_string(&file).expect("read");
    assert!(text.contains(from), "{text}");
    std::fs::write(file, text.replace(from, to)).expect("write");
}

#[test]
fn every_command_knows_the_model_and_the_data_do_not() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let dir = dir.path();
    let made = create(dir, "disk-1tb-2012");
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert!(text(&made.stdout).contains("timed as disk-1tb-2012"), "{}", text(&made.stdout));
    let bytes = pattern(1, 3 << 20);
    let disk = [Value::Null, "disk-1tb-2012".into()];
    let mut child = start(serve(dir));
    assert_eq!(models(dir), disk, "live");
    let mut client = Client::connect(&dir.join("nbd.sock"));
    client.write(12345, &bytes);
    client.flush();
    child.kill().expect("kill");
    child.wait().expect("wait");
    assert_eq!(models(dir), disk, "closed, and recovered for it");

    // Another model, none, and another again: the volume file says which.
    let line = "model = \"disk-1tb-2012\"";
    for to in ["model = \"nvme-present\"", "", "model = \"object-store\""] {
        let from = std::fs::read_to_string(dir.join("v.toml")).expect("read");
        let from = from.lines().last().expect("lines").to_owned();
        edit(dir, &from, if to.is_empty() { "# none" } else { to });
        let mut child = start(serve(dir));
        assert_eq!(Client::connect(&dir.join("nbd.sock")).read(12345, bytes.len()), bytes, "{to}");
        assert!(terminate(&mut child).success(), "{to}");
    }
    edit(dir, "model = \"object-store\"", line);
    let check = json(bimetal(dir).arg("check").arg(dir.join("v.toml")).arg("--json"));
    assert_eq!(check["clean"], true);

    // The model belongs to the tier, wherever its device has gone.
    std::fs::rename(dir.join("slow.img"), dir.join("moved")).expect("rename");
    assert_eq!(models(dir), disk, "found again");
    let shown = text(&succeed(bimetal(dir).arg("status").arg(dir.join("v.toml"))).stdout);
    assert!(shown.contains("timed as disk-1tb-2012"), "{shown}");
    std::fs::create_dir_all(dir.join("bimetal")).expect("a directory");
    std::fs::rename(dir.join("moved"), dir.join("bimetal/slow.img")).expect("rename");
    std::fs::rename(dir.join("fast.img"), dir.join("bimetal/fast.img")).expect("rename");
    std::fs::rename(dir.join("v.toml"), dir.join("bimetal/v.toml")).expect("rename");
    let list = json(bimetal(dir).args(["list", "--json"]));
    assert_eq!(list["volumes"][0]["devices"][1]["model"], "disk-1tb-2012");
    assert_eq!(list["volumes"][0]["devices"][0]["model"], Value::Null);
    let gone = json(bimetal(dir).args(["destroy", "v", "--yes", "--json"]));
    assert_eq!(gone["devices"][1]["erased"], true);
}

#[test]
fn a_model_that_there_is_not_is_answered_with_those_there_are() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let dir = dir.path();
    let refused = |output: Output| {
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains("abacus") && message.contains("disk-1tb-2012, "), "{message}");
        assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    };
    refused(create(dir, "abacus"));
    assert!(!dir.join("slow.img").exists() && !dir.join("fast.img").exists());
    assert!(create(dir, "flash-card-2011").status.success());
    edit(dir, "flash-card-2011", "abacus");
    for command in ["serve", "status", "check"] {
        refused(bimetal(dir).arg(command).arg(dir.join("v.toml")).output().expect("run"));
    }
}
