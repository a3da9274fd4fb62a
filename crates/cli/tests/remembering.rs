//! What a real server has learnt of a volume outlives a stop.

mod common;

use common::{Served, bimetal, pattern, succeed};
use serde_json::Value;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(60);

fn why(served: &Served, at: u64) -> Value {
    let mut command = bimetal(served.dir.path());
    let output = succeed(command.arg("why").arg(served.file()).args([&at.to_string(), "--json"]));
    serde_json::from_slice(&output.stdout).expect("one document")
}

#[test]
fn what_was_read_often_is_known_after_a_stop_and_not_after_a_kill() {
    let mut served = Served::new();
    let mut client = served.connect();
    client.write(0, &pattern(1, 16 << 20));
    client.flush();
    let length = (16 * MIB).to_string();
    succeed(bimetal(served.dir.path()).arg("pin").arg(served.file()).args(["0", &length, "--tier", "slow"]));
    let start = Instant::now();
    let is = |key: &str, value: Value| why(&served, 4 * MIB)[key] == value;
    while !is("tier", "slow".into()) {
        assert!(start.elapsed() < PATIENCE, "it is not moved: {:#}", why(&served, 4 * MIB));
        std::thread::sleep(Duration::from_millis(200));
    }
    while is("copied_bytes", 0.into()) || is("heat", 0.into()) {
        client.read(4 * MIB, BLOCK);
        assert!(start.elapsed() < PATIENCE, "no copy is made: {:#}", why(&served, 4 * MIB));
        std::thread::sleep(Duration::from_millis(200));
    }
    let before = why(&served, 4 * MIB);
    served.stop();
    served.check();
    served.start();
    let told = why(&served, 4 * MIB);
    let learnt = |doc: &Value| (doc["copied_bytes"].clone(), doc["heat"].clone());
    assert_eq!(learnt(&told), learnt(&before), "{told:#}");
    let mut client = served.connect();
    assert_eq!(client.read(4 * MIB, MIB as usize), pattern(1, 16 << 20)[4 << 20..5 << 20]);
    served.kill();
    served.start();
    let told = why(&served, 4 * MIB);
    assert_eq!(learnt(&told), (Value::from(0), Value::from(0)), "{told:#}");
    let mut client = served.connect();
    assert_eq!(client.read(4 * MIB, MIB as usize), pattern(1, 16 << 20)[4 << 20..5 << 20]);
}
