//! A quiet disk is left quiet: when the slow device is woken, by whom, and what becomes of what waits for it.

use crate::story::{BLOCK, CHUNK, Story};
use bimetal_engine::action::RequestKind;
use bimetal_engine::options::{CreateOptions, Tuning, WakeUps};
use bimetal_models::constant::{Constant, ConstantParams};
use bimetal_models::{Command, Kind, Model as _, Usage};
use bimetal_sim::timed::{TimedDevice, TimedVolume};
use bimetal_torture::disk::CutStyle;
use bimetal_torture::world::Death;
use bimetal_units::{Nanos, SLOW};

const HOUR: u64 = 3600 * Nanos::SECOND;
const MINUTE: u64 = 60 * Nanos::SECOND;

/// A volume with two slow chunks, the first one's place, that has been quiet for a minute. What lands waits for an hour.
fn quiet() -> (Story, u64) {
    quiet_for_at_most(HOUR)
}

fn quiet_for_at_most(rest_at_most_ns: u64) -> (Story, u64) {
    let mut s = Story::begin_with_zone(120, 200, 90);
    let chunk = s.slow_chunk();
    s.write(chunk + CHUNK, CHUNK, 0x11);
    s.flush();
    s.wait(Nanos::SECOND);
    s.stop();
    s.tuning.rest_at_most_ns = rest_at_most_ns;
    s.open().expect("the volume opens");
    s.wait(MINUTE);
    assert_eq!((landed(&mut s), woken(&mut s)), (0, WakeUps::default()));
    (s, chunk)
}

fn woken(s: &mut Story) -> WakeUps {
    s.engine().status().tiers[1].wakeups
}

fn landed(s: &mut Story) -> u64 {
    s.engine().status().landed_bytes
}

fn all(bytes: &[u8], fill: u8) -> bool {
    bytes.iter().all(|byte| *byte == fill)
}

/// A line of a log every minute, for a day: the disk is woken once an hour, where it was woken by each line. Nothing that
/// was flushed is lost meanwhile, and when the log has ended everything comes home.
#[test]
fn a_line_of_a_log_every_minute_wakes_the_disk_once_an_hour() {
    let wakeups = [0, HOUR].map(|rest_at_most_ns| {
        let (mut s, chunk) = quiet_for_at_most(rest_at_most_ns);
        let mut background = 0;
        for minute in 0..24 * 60u64 {
            let at = chunk + minute % (CHUNK / BLOCK) * BLOCK;
            s.write(at, BLOCK, minute as u8);
            s.flush();
            if minute == 700 {
                background += woken(&mut s).background;
                s.die(Death::PowerCut(CutStyle::LoseAll));
                s.open().expect("the volume opens");
                assert!(all(&s.read(at, BLOCK).expect("it can be read"), minute as u8));
            }
            s.wait(MINUTE);
        }
        s.wait(HOUR);
        let status = s.engine().status();
        assert_eq!((status.landed_bytes, status.tiers[1].wakeups.clients), (0, 0));
        s.die(Death::PowerCut(CutStyle::LoseAll));
        s.open().expect("the volume opens");
        assert!(all(&s.read(chunk, BLOCK).expect("it can be read"), (24 * 60 - 16) as u8));
        background + status.tiers[1].wakeups.background
    });
    println!("woken {} and {} times a day", wakeups[0], wakeups[1]);
    let [before, after] = wakeups;
    assert!(before > 1400, "{before}");
    assert!((1..=24).contains(&after), "{after}");
}

/// Lines of a log that come more often than the disk would come to rest: merging each would keep it awake for ever.
#[test]
fn a_line_of_a_log_every_ten_seconds_does_not_keep_the_disk_awake() {
    let (mut s, chunk) = quiet();
    s.read(chunk, BLOCK).expect("it can be read");
    s.wait(MINUTE / 2);
    let written = s.engine().status().tiers[1].device_written_bytes;
    // Each takes three blocks of the log: its own, its group's header, and what says that it is durable.
    for _ in 0..160 {
        s.write(chunk, BLOCK, 0x22);
        s.flush();
        s.wait(10 * Nanos::SECOND);
    }
    assert_eq!(s.engine().status().tiers[1].device_written_bytes, written);
    assert_eq!(woken(&mut s), WakeUps { clients: 1, background: 0 });
    s.wait(HOUR);
    assert_eq!(landed(&mut s), 0);
    assert_eq!(woken(&mut s), WakeUps { clients: 1, background: 1 });
}

/// A read that only the disk can answer wakes it, and what waits is brought home in the same wake, half a second of quiet
/// later; what lands in the next seconds as well.
#[test]
fn what_waits_comes_home_when_a_client_has_woken_the_disk() {
    let (mut s, chunk) = quiet();
    s.write(chunk, BLOCK, 0x22);
    s.flush();
    s.wait(30 * MINUTE);
    assert_eq!(landed(&mut s), BLOCK);
    s.read(chunk + CHUNK, BLOCK).expect("it can be read");
    s.wait(Nanos::SECOND);
    assert_eq!(landed(&mut s), 0);
    s.write(chunk, BLOCK, 0x33);
    s.wait(Nanos::SECOND);
    assert_eq!(landed(&mut s), 0);
    assert_eq!(woken(&mut s), WakeUps { clients: 1, background: 0 });
}

/// The landing zone must not run full while the disk rests: half of it is enough.
#[test]
fn a_landing_zone_that_is_half_full_wakes_the_disk() {
    let (mut s, chunk) = quiet();
    for n in 0..600 {
        s.write(chunk + n % 32 * BLOCK, BLOCK, 0x22);
    }
    s.wait(MINUTE);
    assert_eq!((landed(&mut s), woken(&mut s).background), (0, 1));
}

/// What a user or a client asks for explicitly does not wait: a range that is pinned, and one that is to be made fast.
#[test]
fn wishes_wake_the_disk() {
    let (mut s, chunk) = quiet();
    s.tuning.promote_touches = 3;
    // Without copies: what has one is fast as it is.
    s.die(Death::Kill);
    s.open().expect("the volume opens");
    s.wait(MINUTE);
    let now = s.world.now();
    s.engine().prefer_fast(now, chunk + CHUNK, CHUNK);
    s.wait(10 * Nanos::SECOND);
    assert_eq!((s.engine().status().promoted_chunks, woken(&mut s).background), (1, 1));
    s.wait(MINUTE);
    let (now, demoted) = (s.world.now(), s.engine().status().demoted_chunks);
    s.engine().begin_pin(now, 0, CHUNK, Some(SLOW)).expect("it is pinned");
    s.wait(10 * Nanos::SECOND);
    assert_eq!((s.engine().status().demoted_chunks - demoted, woken(&mut s).background), (1, 2));
}

/// Reads and writes of what the fast device has, and discards that leave something of a chunk, do not need the disk.
#[test]
fn what_the_fast_device_can_do_alone_leaves_the_disk_alone() {
    let (mut s, chunk) = quiet();
    for round in 0..10 {
        s.write(0, BLOCK, round);
        s.write(chunk + CHUNK, BLOCK, round);
        s.flush();
        assert!(all(&s.read(chunk + CHUNK, BLOCK).expect("it can be read"), round));
        let discard = s.ask(RequestKind::Discard { fua: true }, chunk + CHUNK, BLOCK, 0);
        s.answer(discard).expect("it is discarded");
        s.wait(MINUTE);
    }
    assert_eq!(woken(&mut s), WakeUps::default());
}

fn device(size_bytes: u64, latency_ns: u64) -> TimedDevice {
    let params = ConstantParams { size_bytes, latency_ns, ns_per_kib: 10, units: 8 };
    TimedDevice::new(Box::new(Constant::new(params)))
}

fn write(volume: &mut TimedVolume, offset: u64, len: u64) {
    let mut done = Vec::new();
    volume.submit(volume.now(), 1, Command { kind: Kind::Write { fua: false }, offset, len });
    while let Some(at) = volume.deadline() {
        volume.advance(at, &mut done);
    }
    assert!(done.iter().all(|done| done.failure.is_none()));
}

/// Once a volume has done what there was to do, nothing happens on either device, for as long as nobody asks.
#[test]
fn a_volume_that_nobody_uses_does_nothing_at_all() {
    let devices = vec![device(1 << 30, 20_000), device(8 << 30, 5_000_000)];
    let mut volume =
        TimedVolume::create(devices, CreateOptions::new([7; 16]), Tuning::default()).expect("it is made");
    (0..1600).for_each(|n| write(&mut volume, n << 20, 1 << 20));
    (0..4000).for_each(|n| write(&mut volume, (n * 7919 % 1600) << 20 | 8192, 4096));
    let rest = |volume: &mut TimedVolume, ns| volume.advance(volume.now().after(ns), &mut Vec::new());
    rest(&mut volume, 2 * HOUR);
    assert_eq!(volume.status().landed_bytes, 0);
    let commands = |usage: Usage| (usage.reads, usage.writes, usage.flushes, usage.written_bytes);
    let before: Vec<_> = volume.device_usage().into_iter().map(commands).collect();
    rest(&mut volume, 24 * HOUR);
    let after: Vec<_> = volume.device_usage().into_iter().map(commands).collect();
    assert_eq!(before, after);
}
