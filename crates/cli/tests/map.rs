//! `bimetal map` says what `x-bimetal:tier` says, to the byte, whether the volume is served or not.

mod common;

use common::{Served, bimetal, pattern, succeed, text};
use serde_json::Value;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const KINDS: [&str; 5] = ["hole_bytes", "fast_bytes", "slow_bytes", "landed_bytes", "lost_bytes"];

fn map(served: &Served, more: &[&str]) -> Value {
    let mut command = bimetal(served.dir.path());
    let output = succeed(command.arg("map").arg(served.file()).arg("--json").args(more));
    serde_json::from_slice(&output.stdout).expect("one document")
}

fn sums(cells: &[Value]) -> [u64; 5] {
    KINDS.map(|kind| cells.iter().map(|cell| cell[kind].as_u64().expect("bytes")).sum())
}

/// Bytes of each kind in a range, as the NBD context tells them.
fn told(served: &Served, from: u64, to: u64) -> [u64; 5] {
    let mut found = [0; 5];
    common::tiers(&served.socket(), from, to)
        .iter()
        .for_each(|(_, bytes, kind)| found[*kind as usize] += bytes);
    found
}

/// A volume with something of each kind in it, and nothing that moves.
fn mixed() -> Served {
    let mut served = Served::new();
    for (offset, length, tier) in [("0", "8M", "slow"), ("8M", "8M", "fast")] {
        succeed(
            bimetal(served.dir.path()).arg("pin").arg(served.file()).args([offset, length, "--tier", tier]),
        );
    }
    let mut client = served.connect();
    (0..12).for_each(|at| client.write(at * MIB, &pattern(at, 700_000)));
    client.flush();
    drop(client);
    served.stop();
    served.start();
    let mut client = served.connect();
    (0..40).for_each(|at| client.write(at * 4096 * 37 + 4096, &pattern(at, 4096)));
    client.flush();
    served
}

/// What both say when nothing moved in between.
fn agree(served: &Served) -> Vec<Value> {
    let since = Instant::now();
    loop {
        let before = map(served, &["--cells", "200"]);
        let size = before["size_bytes"].as_u64().expect("a size");
        let told = told(served, 0, size);
        let cells = before["cells"].as_array().expect("cells").clone();
        let same = map(served, &["--cells", "200"])["cells"] == before["cells"];
        if same && sums(&cells) == told {
            assert_eq!(told.iter().sum::<u64>(), size);
            assert_eq!(sums(std::slice::from_ref(&before["total"])), told);
            return cells;
        }
        assert!(since.elapsed() < Duration::from_secs(30), "{:?} is not {told:?}", sums(&cells));
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn it_is_what_clients_are_told() {
    let mut served = mixed();
    let cells = agree(&served);
    let [_, fast, slow, landed, lost] = sums(&cells);
    assert!(fast > 0 && slow > 0 && lost == 0, "{fast} {slow} {landed}");
    for pair in cells.windows(2) {
        assert!(pair[0]["offset"].as_u64() < pair[1]["offset"].as_u64(), "{pair:?}");
    }
    assert!(cells.iter().any(|cell| cell["hottest"].as_u64() > Some(0)), "what was just used is hot");

    // A range of its own, cell by cell.
    let part = map(&served, &["--from", "3M", "--to", "11M", "--cells", "7"]);
    let (from, to) = (part["from"].as_u64().expect("a byte"), part["to"].as_u64().expect("a byte"));
    assert_eq!((from, to), (3 * MIB, 11 * MIB));
    assert_eq!(part["cells"].as_array().expect("cells").len(), 7);
    assert_eq!(sums(std::slice::from_ref(&part["total"])).iter().sum::<u64>(), to - from);

    same_when_closed(&mut served);
}

/// What its devices say of a volume whose server was killed is what that said last; looking at them writes nothing.
fn same_when_closed(served: &mut Served) {
    let bytes = |cells: &[Value]| -> Vec<[Value; 5]> {
        cells.iter().map(|cell| KINDS.map(|kind| cell[kind].clone())).collect()
    };
    for _ in 0..20 {
        let cells = agree(served);
        served.kill();
        let before = std::fs::read(served.dir.path().join("fast.img")).expect("a device");
        let closed = map(served, &["--cells", "200"]);
        assert_eq!(closed["served"], false);
        let after = std::fs::read(served.dir.path().join("fast.img")).expect("a device");
        assert!(before == after, "to look writes nothing");
        if bytes(closed["cells"].as_array().expect("cells")) == bytes(&cells) {
            return;
        }
        // Something has moved between the two.
        served.start();
    }
    panic!("served or not, it is never the same");
}

#[test]
fn it_is_a_bar_and_a_picture() {
    let mut served = mixed();
    served.stop();
    let picture = served.dir.path().join("map.svg");
    let mut command = bimetal(served.dir.path());
    let output = succeed(command.arg("map").arg(served.file()).arg("--picture").arg(&picture));
    let said = text(&output.stdout);
    let bars: Vec<&str> = said.lines().filter(|line| line.starts_with("  |")).collect();
    assert!(bars.iter().all(|bar| bar.len() == 2 + 72 + 2), "{said}");
    assert!(bars[0].contains('.') && bars[0].contains('#'), "{said}");
    let picture = std::fs::read_to_string(picture).expect("a picture");
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    for class in ["fast", "slow", "blank"] {
        assert!(picture.contains(&format!("<rect class=\"{class}\" x=\"24")), "{class}");
    }
    let mut command = bimetal(served.dir.path());
    let output = command.arg("map").arg(served.file()).args(["--from", "9T"]).output().expect("run");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no part of"), "{}", text(&output.stderr));
}
