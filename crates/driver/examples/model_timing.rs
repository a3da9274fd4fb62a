//! Measures how exactly a file that is timed by a model keeps the model's times: what was asked for, and what it took.
//!
//! `model_timing [DIR] [MODEL...]`: DIR is where the file is made (a directory in memory shows the timers alone).

use bimetal_driver::{BlockFile, Driver, PoolSizes, RealArena, Ring, Timing};
use bimetal_engine::Machine;
use bimetal_engine::action::{Action, Class, DeviceError, Token};
use bimetal_engine::arena::{Arena as _, Buf, Pool};
use bimetal_models::constant::ConstantParams;
use bimetal_units::{Nanos, Tier};
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

const BLOCK: u32 = 4096;
const FILE_BYTES: u64 = 1 << 30;
/// How long each row is measured.
const SPAN: Duration = Duration::from_millis(1500);

/// Random 4 KiB, so many at a time, one of four a write.
struct Client {
    arena: RealArena,
    free: Vec<Buf>,
    running: Vec<(u64, Nanos, Buf)>,
    state: u64,
    stopping: bool,
    took: Vec<u64>,
}

impl Client {
    fn draw(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }
}

impl Machine for Client {
    type Arena = RealArena;
    fn next_action(&mut self, now: Nanos) -> Option<Action> {
        if self.stopping {
            return None;
        }
        let buf = self.free.pop()?;
        let draw = self.draw();
        let offset = (draw >> 8) % (FILE_BYTES / u64::from(BLOCK)) * u64::from(BLOCK);
        let (device, token, class) = (Tier(0), Token(buf.start), Class::Foreground);
        self.running.push((token.0, now, buf));
        Some(match draw.is_multiple_of(4) {
            true => {
                let bufs = std::iter::once(buf).collect();
                Action::Write { device, offset, bufs, fua: false, token, class }
            }
            false => Action::Read { device, offset, buf, token, class },
        })
    }
    fn on_completion(&mut self, now: Nanos, token: Token, result: Result<(), DeviceError>) {
        result.expect("the file works");
        let place = self.running.iter().position(|(one, ..)| *one == token.0).expect("it was handed out");
        let (_, from, buf) = self.running.swap_remove(place);
        self.took.push(now.since(from));
        self.free.push(buf);
    }
    fn deadline(&self) -> Option<Nanos> {
        None
    }
    fn on_timer(&mut self, _: Nanos) {}
    fn with_arena<R>(&mut self, f: impl FnOnce(&mut RealArena) -> R) -> R {
        f(&mut self.arena)
    }
}

/// Processor time of this process so far.
fn busy() -> Duration {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0))
}

fn measure(path: &Path, timing: Timing, depth: u32) -> Result<(), Box<dyn Error>> {
    let name = timing.name();
    let file = BlockFile::open(path)?.timed(timing);
    let mut arena = RealArena::new(PoolSizes::default())?;
    let ring = Ring::new(arena.region())?;
    let free =
        (0..depth).map(|_| arena.alloc(Pool::Client, BLOCK).ok_or("no room")).collect::<Result<_, _>>()?;
    let mut client = Client {
        arena,
        free,
        running: Vec::new(),
        state: 0x9e37_79b9_7f4a_7c15,
        stopping: false,
        took: Vec::new(),
    };
    let mut driver = Driver::new(ring, vec![file]);
    let (start, busy_before) = (Instant::now(), busy());
    loop {
        driver.pump(&mut client, |_, _, _| {});
        if client.stopping && client.running.is_empty() {
            break;
        }
        driver.wait(&client, None)?;
        driver.harvest(&mut client, |_| {});
        client.stopping = start.elapsed() >= SPAN;
    }
    let share = (busy() - busy_before).as_secs_f64() / start.elapsed().as_secs_f64();
    let kept = driver.lateness();
    client.took.sort_unstable();
    let us = |ns: f64| ns / 1e3;
    let asked = kept.modelled_ns as f64 / kept.operations as f64;
    let got = client.took.iter().sum::<u64>() as f64 / client.took.len() as f64;
    let quantile = |percent| client.took[client.took.len() * percent / 100] as f64;
    println!(
        "{name:<26} {depth:>5} {:>8} {:>11.1} {:>11.1} {:>9.1} {:>7.1} % {:>11.1} {:>9.0} {:>5.1} %",
        kept.operations,
        us(asked),
        us(got),
        us(quantile(50)),
        (got / asked - 1.0) * 100.0,
        us(quantile(99)),
        us(kept.latest_ns as f64),
        share * 100.0
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let dir = match args.next() {
        Some(dir) => tempfile::tempdir_in(dir)?,
        None => tempfile::tempdir()?,
    };
    let path = dir.path().join("device");
    BlockFile::create_sparse(&path, FILE_BYTES)?;
    println!(
        "{:<26} {:>5} {:>8} {:>11} {:>11} {:>9} {:>9} {:>11} {:>9} {:>7}",
        "model", "depth", "ops", "asked us", "got us", "p50 us", "error", "p99 us", "latest us", "busy"
    );
    for latency_us in [20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000] {
        for depth in [1, 4, 32] {
            let params = ConstantParams {
                size_bytes: FILE_BYTES,
                latency_ns: latency_us * 1000,
                ns_per_kib: 0,
                units: depth,
            };
            measure(&path, Timing::constant(params), depth)?;
        }
    }
    for name in args {
        for depth in [1, 16] {
            measure(&path, Timing::named(&name, FILE_BYTES)?, depth)?;
        }
    }
    Ok(())
}
