//! A folder of measured drives, of which some cannot be read.

mod common;

use common::{bimetal, text};
use std::fmt::Write as _;
use std::path::Path;

const MODEL: &str = "
dm_disk TOY {
   Number of data surfaces = 2,
   Layout Model = dm_layout_g1 {
      Zones = [ dm_layout_g1_zone {
         First cylinder number = 0, Last cylinder number = 99, Blocks per track = 50, Skew for track switch = 5
      } ]
   },
   Mechanical Model = dm_mech_g1 {
      Seek type = extracted, Full seek curve = toy-measured.seek,
      Add. write settling delay = -0.25, Head switch time = 0.5, Rotation speed (in rpms) = 6000
   }
}";
const SPECS: &str = "
disksim_disk TOY {
   Model = source toy-measured.model, Bulk sector transfer time = 0.1,
   Number of buffer segments = 2, Segment size (in blks) = 64, Buffer continuous read = 3
}";
const SEEK: &str = "1, 0.5\n10, 1.5\n99, 3.25\n";

/// A drive whose model and seek times are called as its description says, and a trace of it.
fn toy(dir: &Path, name: &str) {
    let mut trace = String::new();
    for number in 0_u64..400 {
        let op = if number % 3 == 0 { 'W' } else { 'R' };
        let _ =
            writeln!(trace, "{op} Hit {} 4 {}.0 20000.0", number * 2711 % 9990, 3000 + number * 37 % 9000);
    }
    let write = |file: &str, text: &str| std::fs::write(dir.join(file), text).expect("write");
    write("toy-measured.model", MODEL);
    write("toy-measured.seek", SEEK);
    write(&format!("{name}.diskspecs"), SPECS);
    write(&format!("{name}.trace"), &trace);
}

#[test]
fn one_bad_drive_does_not_end_the_others() {
    let dir = tempfile::tempdir().expect("a folder");
    toy(dir.path(), "bad");
    toy(dir.path(), "good");
    std::fs::write(dir.path().join("bad.trace"), "R Hit 1 1 1 1\nR Hit x\n").expect("write");
    std::fs::write(dir.path().join("alone.trace"), "R Hit 1 1 1 1\n").expect("write");
    let calibrate = |drives: &[&str]| {
        let mut command = bimetal(dir.path());
        command.args(["sim", "calibrate", "--dir"]).arg(dir.path());
        for drive in drives {
            command.args(["--drive", drive]);
        }
        command
    };
    let output = calibrate(&["alone", "bad", "good"]).arg("--json").output().expect("run");
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    let lines: Vec<&str> = complaint.lines().collect();
    assert_eq!(lines.len(), 3, "{complaint}");
    assert!(lines[0].starts_with("bimetal: alone: ") && lines[0].contains("alone.model"), "{complaint}");
    assert!(lines[1].starts_with("bimetal: bad: ") && lines[1].contains("bad.trace:2: "), "{complaint}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["drives"][0]["name"], "good");
    assert!(report["drives"][0]["unseen_demerit_percent"].as_f64().is_some_and(|percent| percent > 0.0));
    assert_eq!(
        (&report["refused"][0]["name"], &report["refused"][1]["name"]),
        (&"alone".into(), &"bad".into())
    );

    let output = calibrate(&["good"]).output().expect("run");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(table.contains("unseen half") && table.contains("\ngood "), "{table}");

    let output = calibrate(&["alone", "bad"]).output().expect("run");
    let complaint = text(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{complaint}");
    assert!(complaint.contains("none of the 2 drives can be compared"), "{complaint}");
}
