//! What it costs to record an engine: the same requests with a recorder and without, in turns; the least time of each. A server
//! adds its sockets and its devices to both.

#[path = "../tests/common/mod.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod common;

use bimetal_flight::{Flight, FlightPlan};
use bimetal_units::Nanos;
use common::World;
use std::time::{Duration, Instant};

const TURNS: usize = 7;
const VIRTUAL_SECONDS: u64 = 2;

/// Serves the load of a seed: how long that takes, for how many requests, and bytes of the recording.
fn turn(recorded: bool) -> (Duration, usize, u64) {
    let mut world = World::new(1);
    let engine = world.volume();
    let mut flight = match recorded {
        false => Flight::unrecorded(engine),
        true => {
            let (file, volume) = ("/nowhere".into(), "films".to_owned());
            Flight::recorded(engine, world.now, FlightPlan { memory_bytes: 256 << 20, file, volume })
        }
    };
    let before = flight.shot().map_or(0, |shot| shot.bytes());
    let began = Instant::now();
    world.load(&mut flight, world.now.after(VIRTUAL_SECONDS * Nanos::SECOND));
    let took = began.elapsed();
    let bytes = flight.shot().map_or(0, |shot| shot.bytes());
    (took, world.answers.len(), bytes - before)
}

fn main() {
    let mut least = [Duration::MAX; 2];
    let (mut requests, mut bytes) = (0, 0);
    for _ in 0..TURNS {
        for recorded in [false, true] {
            let (took, count, recording) = turn(recorded);
            least[usize::from(recorded)] = least[usize::from(recorded)].min(took);
            (requests, bytes) = (count, bytes.max(recording));
        }
    }
    let each = least.map(|took| took.as_nanos() as f64 / requests as f64);
    println!(
        "{requests} requests: {:.0} ns each without a recorder, {:.0} with one: {:.0} ns and {:.0} bytes a request",
        each[0],
        each[1],
        each[1] - each[0],
        bytes as f64 / requests as f64
    );
}
