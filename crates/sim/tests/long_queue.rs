//! What long queues of clients do to the order in which the disk is asked.

use bimetal_sim::scenario::{Scenario, run};
use std::path::Path;

/// Read from the disk by four clients in sequence, each with so many requests in flight, MB/s.
fn sequential_mb_per_s(depth: u32) -> f64 {
    let client = |from: u32| {
        format!(
            r#"{{ pattern = "sequential", read_percent = 100, block = "48K", depth = {depth}, from = "{from}%", span = "10%" }}"#
        )
    };
    let clients: Vec<String> = [30, 40, 50, 60].into_iter().map(client).collect();
    let text = format!(
        r#"
        name = "a long queue"
        [volume]
        fast = {{ model = "ssd-128gb-2012", size = "1G" }}
        slow = {{ model = "disk-1tb-2012", size = "8G" }}
        [[phase]]
        name = "fill"
        load = [{{ pattern = "sequential", block = "1M", depth = 2, span = "80%" }}]
        for = "80%"
        [[phase]]
        name = "read"
        load = [{}]
        for = "20%"
        "#,
        clients.join(", ")
    );
    let scenario = Scenario::parse(&text).expect("a scenario");
    run(&scenario, Path::new("."), &mut |_, _| {}).expect("it runs").phases[1].mb_per_s
}

#[test]
fn a_queue_longer_than_what_is_in_hand_keeps_its_order() {
    // A request over a chunk's border is two pieces; of these a thousand are in hand. What of the next request found no room
    // once went behind all that waited, so that the disk was asked for a piece here and a piece there: 12 MB/s, not 139.
    let (short, long) = (sequential_mb_per_s(4), sequential_mb_per_s(250));
    assert!(long > 0.8 * short, "{short} MB/s with 4 requests of each in flight, {long} with 250");
}
