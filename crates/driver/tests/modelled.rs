//! Files that are timed by a model: their bytes are a file's, and nothing ends before the model's time.

use bimetal_driver::{BlockFile, Driver, PoolSizes, RealArena, Ring, Timing};
use bimetal_engine::Machine;
use bimetal_engine::action::{Action, Class, DeviceError, Token};
use bimetal_engine::arena::{Arena as _, Buf, Pool};
use bimetal_models::constant::ConstantParams;
use bimetal_models::spec::{self, Spec};
use bimetal_units::{Nanos, Tier};
use std::collections::VecDeque;

const BLOCK: u32 = 4096;
const MIB: u64 = 1 << 20;

/// What became of an operation: when it was handed out and when its end was told.
#[derive(Clone, Copy, Debug)]
struct End {
    token: u64,
    from: Nanos,
    to: Nanos,
    result: Result<(), DeviceError>,
}

/// Hands out what is planned, so many at a time.
struct Client {
    arena: RealArena,
    plan: VecDeque<Action>,
    depth: usize,
    running: Vec<(u64, Nanos)>,
    ended: Vec<End>,
}

impl Machine for Client {
    type Arena = RealArena;
    fn next_action(&mut self, now: Nanos) -> Option<Action> {
        if self.running.len() == self.depth {
            return None;
        }
        let action = self.plan.pop_front()?;
        let (Action::Read { token, .. }
        | Action::Write { token, .. }
        | Action::Flush { token, .. }
        | Action::Discard { token, .. }) = &action
        else {
            panic!("a reply to nobody")
        };
        self.running.push((token.0, now));
        Some(action)
    }
    fn on_completion(&mut self, now: Nanos, token: Token, result: Result<(), DeviceError>) {
        let place = self.running.iter().position(|(one, _)| *one == token.0).expect("it was handed out");
        let (token, from) = self.running.swap_remove(place);
        self.ended.push(End { token, from, to: now, result });
    }
    fn deadline(&self) -> Option<Nanos> {
        None
    }
    fn on_timer(&mut self, _: Nanos) {}
    fn with_arena<R>(&mut self, f: impl FnOnce(&mut RealArena) -> R) -> R {
        f(&mut self.arena)
    }
}

impl Client {
    fn buf(&mut self, fill: u8) -> Buf {
        let buf = self.arena.alloc(Pool::Client, BLOCK).expect("room");
        self.arena.payload_mut(buf).fill(fill);
        buf
    }

    fn write(&mut self, block: u64, fill: u8) {
        let bufs = std::iter::once(self.buf(fill)).collect();
        let (device, offset, token) = (Tier(0), block * u64::from(BLOCK), Token(block));
        self.plan.push_back(Action::Write {
            device,
            offset,
            bufs,
            fua: false,
            token,
            class: Class::Foreground,
        });
    }

    fn read(&mut self, block: u64, token: u64) -> Buf {
        let buf = self.buf(0);
        let (device, offset, token) = (Tier(0), block * u64::from(BLOCK), Token(token));
        self.plan.push_back(Action::Read { device, offset, buf, token, class: Class::Foreground });
        buf
    }

    fn run(&mut self, driver: &mut Driver) {
        loop {
            driver.pump(self, |_, _, _| {});
            if self.plan.is_empty() && self.running.is_empty() {
                break;
            }
            driver.wait(self, None).expect("wait");
            driver.harvest(self, |_| {});
        }
        assert_eq!(driver.device_ops(), 0);
    }
}

/// A driver of one device that is a new file of 16 MiB, and a client of it.
fn set_up(timing: impl FnOnce(u64) -> Timing, depth: usize) -> (tempfile::TempDir, Driver, Client) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("device");
    BlockFile::create_sparse(&path, 16 * MIB).expect("create");
    let file = BlockFile::open(&path).expect("open").timed(timing(16 * MIB));
    let arena = RealArena::new(PoolSizes::default()).expect("arena");
    let ring = Ring::new(arena.region()).expect("ring");
    let client = Client { arena, plan: VecDeque::new(), depth, running: Vec::new(), ended: Vec::new() };
    (dir, Driver::new(ring, vec![file]), client)
}

fn constant(latency_ns: u64, units: u32) -> impl FnOnce(u64) -> Timing {
    move |size_bytes| Timing::constant(ConstantParams { size_bytes, latency_ns, ns_per_kib: 0, units })
}

#[test]
fn nothing_ends_before_the_models_time() {
    let latency = 2_000_000;
    let (_dir, mut driver, mut client) = set_up(constant(latency, 64), 8);
    for block in 0..40 {
        client.write(block, block as u8 + 1);
    }
    client.plan.push_back(Action::Flush { device: Tier(0), token: Token(1000) });
    client.plan.push_back(Action::Discard {
        device: Tier(0),
        offset: 8 * MIB,
        len: MIB,
        refilled: false,
        token: Token(1001),
    });
    client.run(&mut driver);
    let bufs: Vec<Buf> = (0..40).map(|block| client.read(block, 2000 + block)).collect();
    client.run(&mut driver);
    for end in &client.ended {
        assert_eq!(end.result, Ok(()), "{end:?}");
        assert!(end.to.since(end.from) >= latency, "{end:?}");
    }
    for (block, buf) in bufs.into_iter().enumerate() {
        assert!(client.arena.payload(buf).iter().all(|&byte| byte == block as u8 + 1), "block {block}");
    }
    let kept = driver.lateness();
    assert_eq!((kept.operations, kept.modelled_ns), (82, 82 * latency));
    assert!(kept.latest_ns * kept.operations >= kept.late_ns);
    let took: u64 = client.ended.iter().map(|end| end.to.since(end.from)).sum();
    assert_eq!(
        took,
        kept.modelled_ns + kept.late_ns,
        "what it took is what the model said, and what came on top"
    );
}

#[test]
fn a_device_with_one_unit_makes_each_wait_for_those_before_it() {
    let latency = 300_000;
    let (_dir, mut driver, mut client) = set_up(constant(latency, 1), 16);
    for block in 0..16 {
        client.write(block, 1);
    }
    client.run(&mut driver);
    assert_eq!(client.ended.len(), 16);
    for end in &client.ended {
        assert!(end.to.since(end.from) >= latency * (end.token + 1), "{end:?}");
    }
}

#[test]
fn an_error_of_the_file_comes_at_the_models_time() {
    let latency = 1_000_000;
    let (_dir, mut driver, mut client) = set_up(constant(latency, 4), 4);
    // Behind the end of the file: the model is asked about nothing there.
    client.read(16 * MIB / u64::from(BLOCK) + 5, 1);
    client.read(0, 2);
    client.run(&mut driver);
    let failed = client.ended.iter().find(|end| end.token == 1).expect("it ended");
    assert!(failed.result.is_err() && failed.to.since(failed.from) >= latency, "{failed:?}");
    assert_eq!(client.ended.iter().find(|end| end.token == 2).expect("it ended").result, Ok(()));
}

#[test]
fn what_a_model_fails_is_asked_of_it_again() {
    // An object store that grants a few requests at once, and throttles the others, most of them more than once.
    let throttling = |size_bytes| {
        let Ok(Spec::ObjectStore(mut params)) = spec::named("object-store") else {
            panic!("an object store")
        };
        (params.burst_requests, params.requests_per_s, params.tail_per_million) = (4, 500, 0);
        Timing::fitted("throttling", Spec::ObjectStore(params), size_bytes).expect("a store")
    };
    let (_dir, mut driver, mut client) = set_up(throttling, 64);
    for block in 0..64 {
        client.write(block, 1);
    }
    client.run(&mut driver);
    assert_eq!(client.ended.len(), 64);
    assert!(client.ended.iter().all(|end| end.result.is_ok()));
}

#[test]
fn a_model_can_be_ignored() {
    let hour = 3_600_000_000_000;
    let (_dir, mut driver, mut client) = set_up(constant(hour, 1), 4);
    driver.ignore_models();
    client.write(3, 7);
    client.run(&mut driver);
    assert_eq!(client.ended.len(), 1);
    assert_eq!(driver.io_facts()[0].model, Some("constant"), "it is still named");
    assert_eq!(driver.lateness().operations, 0);
}
