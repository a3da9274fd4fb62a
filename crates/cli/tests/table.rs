//! `bimetal sim table`: files with axes, and traces that are not on this machine.

mod common;

use common::bimetal;
use std::path::Path;
use std::process::Output;

const SCENARIO: &str = r#"
name = "{size}"
[[axis]]
name = "size"
values = ["1G", "2G"]
[volume]
fast = { model = "ssd-128gb-2012", size = "{size}" }
slow = { model = "disk-1tb-2012", size = "4G" }
[[phase]]
name = "fill"
load = [{ pattern = "sequential", block = "1M", span = "500M" }]
for = "500M"
[[claim]]
id = "written at {size}"
phase = "fill"
metric = "mb_per_s"
at_least = 100
[[summary]]
id = "written"
claim = "written at {size}"
over = "size"
at_least = 0.5
"#;

fn table(dir: &Path, arguments: &[&str]) -> (Output, String) {
    let mut command = bimetal(dir);
    command.args(["sim", "table", "--policies", "static", "--scenarios"]).arg(dir).args(arguments);
    let output = command.env_remove("NO_SUCH_FOLDER").output().expect("run");
    let printed = String::from_utf8(output.stdout.clone()).expect("UTF-8");
    (output, printed)
}

#[test]
fn rows_are_summed_up_and_what_is_not_here_is_skipped() {
    let dir = tempfile::tempdir().expect("temporary directory");
    std::fs::write(dir.path().join("sizes.toml"), SCENARIO).expect("write");
    let traced = SCENARIO.replace("[volume]", "[trace]\nfiles = [\"$NO_SUCH_FOLDER/x.gz\"]\n[volume]");
    std::fs::write(dir.path().join("traced.toml"), traced).expect("write");

    let (output, printed) = table(dir.path(), &["--json"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let skipped: Vec<&str> = said.lines().filter(|line| line.contains("NO_SUCH_FOLDER is not set")).collect();
    assert!(skipped.len() == 1 && skipped[0].contains("traced.toml"), "{said}");
    let json: serde_json::Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!(json["rows"].as_array().map(Vec::len), Some(2));
    assert!(json["rows"][0]["ceiling"].is_null() && json["rows"][0]["held"] == true);
    assert_eq!(json["summary"][0]["scenarios"], 2);
    assert!(json["summary"][0]["geometric_mean"]["static"].is_f64(), "{printed}");

    let (_, printed) = table(dir.path(), &["--only", "2G"]);
    assert!(printed.contains("| written at 2G |") && !printed.contains("| written at 1G |"), "{printed}");
    assert!(printed.contains("| written | mb_per_s | 1 of size | at least 0.5 times"), "{printed}");
    let (output, _) = table(dir.path(), &["--only", "3G"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_file_with_axes_is_several_reports() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("sizes.toml");
    std::fs::write(&file, SCENARIO).expect("write");
    let run = |arguments: &[&str]| {
        let output = bimetal(dir.path()).args(["sim", "run", "--json"]).arg(&file).args(arguments).output();
        serde_json::from_slice::<serde_json::Value>(&output.expect("run").stdout).expect("JSON")
    };
    assert_eq!(run(&[])["reports"].as_array().map(Vec::len), Some(2));
    assert_eq!(run(&["--only", "2G"])["reports"][0]["scenario"], "2G");
}
