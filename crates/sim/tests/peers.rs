//! Other policies on the same devices: their rules as they show from outside, and against what was measured.

use bimetal_load::{Bench, Job, Pattern, Until};
use bimetal_models::constant::{Constant, ConstantParams};
use bimetal_models::{Command, Done, Kind, Model};
use bimetal_sim::peers::{Peer, PeerSpec, Policy};
use bimetal_sim::scenario::{Phase, Report, Scenario, rows};
use bimetal_units::Nanos;
use std::num::NonZeroUsize;
use std::path::Path;

const SECOND_NS: u64 = Nanos::SECOND;
const MIB: u64 = 1 << 20;

/// A device of so many commands a second, whatever they are.
fn constant(size_bytes: u64, iops: u64) -> Box<dyn Model> {
    Box::new(Constant::new(ConstantParams {
        size_bytes,
        latency_ns: SECOND_NS / iops,
        ns_per_kib: 0,
        units: 1,
    }))
}

/// A volume of 1 GiB: 256 MiB of a fast device and the rest, or all of it where the policy is a cache, of a slow one.
fn peer(policy: Policy) -> Peer {
    let devices = [constant(256 * MIB, 2000), constant(1024 * MIB, 60)];
    let spec = PeerSpec { size_bytes: 1024 * MIB, landing_bytes: 32 * MIB, seed: 1 };
    Peer::new(policy, devices, spec).expect("a peer")
}

fn at(peer: &mut Peer, now: &mut Nanos, kind: Kind, offset: u64, len: u64) {
    let mut done = Vec::<Done>::new();
    peer.submit(*now, 7, Command { kind, offset, len });
    while let Some(next) = peer.deadline() {
        *now = next;
        peer.advance(next, &mut done);
    }
    assert!(done.len() == 1 && done[0].tag == 7 && done[0].failure.is_none(), "{done:?}");
}

fn rest(peer: &mut Peer, now: &mut Nanos, seconds: u64) {
    *now = now.after(seconds * SECOND_NS);
    let mut done = Vec::new();
    peer.advance(*now, &mut done);
    assert!(done.is_empty());
}

fn fill(peer: &mut Peer, now: &mut Nanos) {
    (0..1024).for_each(|n| at(peer, now, WRITE, n * MIB, MIB));
}

const WRITE: Kind = Kind::Write { fua: false };

/// Bytes of clients that the devices served: the fast one, the slow one.
fn served(peer: &Peer) -> (u64, u64) {
    let tally = peer.tally();
    (tally.fast_bytes, tally.all_bytes - tally.fast_bytes)
}

#[test]
fn what_spills_stays_where_it_is() {
    for (policy, fast) in [(Policy::SpillOnly, 256 * MIB), (Policy::Static, 224 * MIB)] {
        let (mut peer, mut now) = (peer(policy), Nanos(0));
        fill(&mut peer, &mut now);
        assert_eq!(served(&peer), (fast, 1024 * MIB - fast));
        for _ in 0..10 {
            at(&mut peer, &mut now, Kind::Read, 900 * MIB, MIB);
            at(&mut peer, &mut now, WRITE, 900 * MIB, 4096);
            rest(&mut peer, &mut now, 3600);
        }
        assert_eq!(served(&peer).0, fast);
        let tally = peer.tally();
        assert_eq!((tally.promoted_bytes, tally.demoted_bytes, tally.destaged_bytes), (0, 0, 0));
        // What is given back can be placed anew.
        at(&mut peer, &mut now, Kind::Discard, 0, 100 * MIB);
        at(&mut peer, &mut now, WRITE, 0, 64 * MIB);
        assert_eq!(served(&peer).0, fast + 64 * MIB);
    }
}

#[test]
fn the_hybrid_drive_overwrites_where_a_chunk_lies_and_moves_it_in_quiet_times() {
    let (mut peer, mut now) = (peer(Policy::Fusion), Nanos(0));
    fill(&mut peer, &mut now);
    // A thirtieth of the fast device is left by what is new.
    let (fast, _) = served(&peer);
    assert!((246 * MIB..249 * MIB).contains(&fast), "{fast}");
    for second in 0..3 {
        let (fast, slow) = served(&peer);
        at(&mut peer, &mut now, WRITE, 900 * MIB, 4096);
        at(&mut peer, &mut now, WRITE, 4096, 4096);
        assert_eq!(served(&peer), (fast + 4096, slow + 4096));
        // Busy all the time: something else is asked for each 50 ms.
        for _ in 0..30 {
            now = now.after(SECOND_NS / 20);
            at(&mut peer, &mut now, WRITE, 500 * MIB + 4096 * second, 4096);
        }
    }
    assert_eq!(peer.tally().promoted_bytes, 0);
    rest(&mut peer, &mut now, 1);
    assert!(peer.tally().promoted_bytes >= (2 * 128) << 10, "{:?}", peer.tally());
    let before = served(&peer);
    at(&mut peer, &mut now, Kind::Read, 900 * MIB, 4096);
    assert_eq!(served(&peer), (before.0 + 4096, before.1));
    // Twice the reserve is free again after some rest, and then all is still.
    rest(&mut peer, &mut now, 100);
    let demoted = peer.tally().demoted_bytes;
    assert!((7 * MIB..11 * MIB).contains(&demoted), "{demoted}");
    rest(&mut peer, &mut now, 3600);
    assert_eq!(peer.tally().demoted_bytes, demoted);
}

#[test]
fn a_copy_of_what_was_written_meanwhile_is_thrown_away() {
    let (mut peer, mut now) = (peer(Policy::Fusion), Nanos(0));
    fill(&mut peer, &mut now);
    for _ in 0..2 {
        at(&mut peer, &mut now, WRITE, 900 * MIB, 4096);
        now = now.after(SECOND_NS);
        peer.advance(now.after(0), &mut Vec::new());
    }
    // The move that began 100 ms after the last write was over within a second; the next access is on the fast device.
    let before = peer.tally().promoted_bytes;
    assert_eq!(before, 128 << 10);
    at(&mut peer, &mut now, WRITE, 800 * MIB, 4096);
    at(&mut peer, &mut now, Kind::Flush, 0, 0);
    now = now.after(2 * SECOND_NS);
    peer.advance(now, &mut Vec::new());
    at(&mut peer, &mut now, WRITE, 800 * MIB, 4096);
    // The read half is under way when the chunk is written.
    now = now.after(105 * Nanos::MS);
    peer.advance(now, &mut Vec::new());
    at(&mut peer, &mut now, WRITE, 800 * MIB, 4096);
    rest(&mut peer, &mut now, 1);
    assert_eq!(peer.tally().promoted_bytes, before);
}

#[test]
fn sequences_pass_a_bcache_by_and_small_writes_do_not() {
    let (mut peer, mut now) = (peer(Policy::Bcache), Nanos(0));
    (0..8).for_each(|n| at(&mut peer, &mut now, WRITE, n * MIB, MIB));
    assert_eq!(served(&peer), (3 * MIB, 5 * MIB));
    (0..50).for_each(|n| at(&mut peer, &mut now, WRITE, (100 + 7 * n) * MIB, 4096));
    assert_eq!(served(&peer), (3 * MIB + 50 * 4096, 5 * MIB));
    // What is overwritten by a sequence while it is dirty stays cached, so that the disk's old state cannot show.
    (0..4).for_each(|n| at(&mut peer, &mut now, WRITE, (99 + n) * MIB, MIB));
    let before = served(&peer);
    at(&mut peer, &mut now, Kind::Read, 100 * MIB, 4096);
    assert_eq!(served(&peer), (before.0 + 4096, before.1));
    // After half a minute of quiet all is written back, and stays cached.
    rest(&mut peer, &mut now, 120);
    assert!(peer.tally().destaged_bytes > 3 * MIB);
    at(&mut peer, &mut now, Kind::Read, 107 * MIB, 4096);
    assert_eq!(served(&peer), (before.0 + 8192, before.1));
}

#[test]
fn reads_are_cached_at_the_first_touch_or_at_the_second() {
    for (policy, touches) in [(Policy::Bcache, 1), (Policy::BcacheSecond, 2)] {
        let (mut peer, mut now) = (peer(policy), Nanos(0));
        for touch in 1..4 {
            at(&mut peer, &mut now, Kind::Read, 300 * MIB, 4096);
            rest(&mut peer, &mut now, 1);
            let promoted = peer.tally().promoted_bytes;
            assert_eq!(promoted, if touch < touches { 0 } else { 4096 }, "{policy:?}, touch {touch}");
        }
        assert_eq!(served(&peer), (4096 * (3 - touches), 4096 * touches));
    }
}

#[test]
fn smq_copies_a_block_that_is_hit_each_second_and_writes_back_when_idle() {
    let (mut peer, mut now) = (peer(Policy::DmCacheSmq), Nanos(0));
    at(&mut peer, &mut now, WRITE, 300 * MIB, 4096);
    assert_eq!((served(&peer), peer.tally().promoted_bytes), ((0, 4096), 0));
    for _ in 0..40 {
        now = now.after(SECOND_NS / 2);
        at(&mut peer, &mut now, WRITE, 300 * MIB, 4096);
    }
    assert!(served(&peer).0 > 0 && peer.tally().promoted_bytes == 64 << 10, "{:?}", peer.tally());
    // A whole block goes to the SSD at once while there is room.
    let before = served(&peer);
    at(&mut peer, &mut now, WRITE, 500 * MIB, 64 << 10);
    assert_eq!(served(&peer), (before.0 + (64 << 10), before.1));
    assert_eq!(peer.tally().destaged_bytes, 0);
    rest(&mut peer, &mut now, 10);
    assert_eq!(peer.tally().destaged_bytes, 128 << 10);
}

/// Rounds of 12 s of 4 KiB writes, zipf 1.1, 32 in flight, over an eighth of the volume, on devices of 2,000 and 60
/// commands a second: commands a second in each. How large the devices were that this was measured on is not known; on
/// larger ones there are fewer hits, and smq takes longer to see them.
fn rounds(policy: Policy) -> Vec<f64> {
    let size_bytes = 1024 * MIB;
    let devices = [constant(512 * MIB, 2000), constant(size_bytes, 60)];
    let spec = PeerSpec { size_bytes, landing_bytes: 0, seed: 1 };
    let mut bench = Bench::new(Peer::new(policy, devices, spec).expect("a peer"), 1);
    let job = Job {
        pattern: Pattern::Zipf { theta: 1.1 },
        read_percent: 0,
        block_bytes: 4096,
        depth: 32,
        from_byte: 0,
        span_bytes: size_bytes / 8,
    };
    (0..3).map(|_| bench.run(&[job], Until::Elapsed(12 * SECOND_NS))[0].iops()).collect()
}

/// The kernel's own, measured in a guest whose disks were throttled to these rates.
#[test]
fn caches_are_near_what_was_measured_of_the_kernel() {
    let measured = [
        (Policy::DmCacheSmq, [65.0, 138.0, 210.0], 0.8..1.25),
        (Policy::Bcache, [2300.0, 2292.0, 2312.0], 0.8..1.2),
    ];
    for (policy, measured, within) in measured {
        for (round, (modelled, measured)) in rounds(policy).into_iter().zip(measured).enumerate() {
            let factor = modelled / measured;
            println!(
                "{}, round {}: {modelled:.0} IOPS, measured {measured}, factor {factor:.2}",
                policy.name(),
                round + 1
            );
            assert!(within.contains(&factor), "{}, round {}: factor {factor}", policy.name(), round + 1);
        }
    }
}

fn small(policy: Policy) -> Report {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios"));
    let text = std::fs::read_to_string(folder.join("peers-small.toml")).expect("a scenario");
    let mut scenario = Scenario::parse(&text).expect("a scenario");
    scenario.volume.as_mut().expect("a volume").policy = policy;
    bimetal_sim::scenario::run(&scenario, folder, &mut |_, _| {}).expect("it runs")
}

/// The same scenario under all policies: each does what it is, and twice the same.
#[test]
fn policies_differ_as_they_should() {
    let reports = Policy::ALL.map(|policy| (policy, small(policy)));
    for (policy, report) in &reports {
        let name = policy.name();
        let phase = |name: &str| report.phases.iter().find(|phase| phase.name == name).expect("a phase");
        let all = |of: fn(&Phase) -> u64| report.phases.iter().map(of).sum::<u64>();
        let share = |name: &str| phase(name).fast_share.expect("something was asked for");
        assert_eq!(report.size_bytes, reports[0].1.size_bytes, "{name}");
        assert_eq!(all(|phase| phase.failures), 0, "{name}");
        let promoted = all(|phase| phase.promoted_bytes);
        match policy {
            Policy::Static | Policy::SpillOnly => {
                assert_eq!((promoted, all(|phase| phase.demoted_bytes)), (0, 0), "{name}");
                assert!(share("writes after it") == 0.0 && share("reads after it") == 0.0, "{name}");
            }
            Policy::Fusion => {
                assert!(share("writes, pass 3") == 0.0 && share("writes after it") > 0.95, "{name}");
                assert!(share("reads, pass 3") == 0.0 && share("reads after it") > 0.95, "{name}");
            }
            Policy::Bimetal => assert!(share("writes, pass 1") > 0.99 && share("reads after it") > 0.9),
            Policy::Bcache | Policy::BcacheSecond => {
                assert!(share("fill") < 0.01 && share("writes, pass 1") > 0.99, "{name}");
                assert!(share("reads, pass 1") < 0.5 && share("reads after it") > 0.95, "{name}");
            }
            Policy::DmCacheSmq => {
                assert!(share("fill") > 0.2 && share("writes, pass 1") < 0.95, "{name}");
                assert!(share("writes after it") > 0.95 && promoted > 0, "{name}");
            }
            Policy::Clairvoyant | Policy::AllFast => unreachable!("no policies that can be had"),
        }
    }
    let again = small(Policy::DmCacheSmq);
    assert_eq!(again.event_hash, reports[6].1.event_hash);
    assert_ne!(again.event_hash, reports[5].1.event_hash);
}

/// A replay known ahead comes from the fast device more often than one that is not, and is answered as soon but for a
/// tenth (which of the rest the disk is asked for matters too), and no earlier than by the fast device alone.
#[test]
fn what_is_known_ahead_lies_between_what_is_not_and_the_fast_device_alone() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios"));
    let text = std::fs::read_to_string(folder.join("made-replay.toml")).expect("a scenario");
    let scenario = Scenario::parse(&text).expect("a scenario");
    let run = |policy| {
        let mut scenario = scenario.clone();
        let volume = scenario.volume.as_mut().expect("a volume");
        (volume.policy, volume.foresight) = (policy, 1.0);
        bimetal_sim::scenario::run(&scenario, folder, &mut |_, _| {}).expect("it runs")
    };
    let replay = |report: &Report| {
        let phase = report.phases.iter().find(|phase| phase.name == "as recorded").expect("a phase");
        (phase.mean_us, phase.fast_share)
    };
    let [ours, known, fast] = [Policy::Bimetal, Policy::Clairvoyant, Policy::AllFast].map(run);
    let [(ours_us, our_share), (known_us, known_share), (fast_us, _)] = [&ours, &known, &fast].map(replay);
    assert!(fast_us < known_us / 2.0, "{fast_us} {known_us}");
    assert!(known_share > our_share, "{known_share:?} {our_share:?}");
    assert!(known_us <= 1.1 * ours_us, "{known_us} {ours_us}");
    assert_eq!(run(Policy::Clairvoyant).event_hash, known.event_hash);
    let wrong = text.replace("[volume]", "[volume]\nforesight = 1.5");
    assert!(Scenario::parse(&wrong).expect_err("more than all").to_string().contains("foresight"));
}

/// A table has a row for each claim; what cannot be compared is left out rather than guessed.
#[test]
fn a_table_compares_what_can_be_compared() {
    let volume = r#"
name = "two claims"
[volume]
fast = { model = "ssd-128gb-2012", size = "1G" }
slow = { model = "disk-1tb-2012", size = "2G" }
[[phase]]
name = "writes"
load = [{ pattern = "random", block = "4K", depth = 16 }]
seconds = 1
[[claim]]
id = "quick"
phase = "writes"
metric = "iops"
reference = 130
at_least = 1000
[[claim]]
id = "impossible"
phase = "writes"
metric = "p99_us"
at_most = 1
"#;
    let rows = |text: &str| {
        let scenario = Scenario::parse(text).expect("a scenario");
        let policies = [Policy::SpillOnly, Policy::Bcache];
        let all = [(Path::new(""), &scenario)];
        rows(&all, &policies, NonZeroUsize::MIN, &|_, _, _, _| {}).expect("rows").remove(0)
    };
    let compared = rows(volume);
    assert_eq!(
        compared.iter().map(|row| (row.held, row.unit)).collect::<Vec<_>>(),
        [(true, "IOPS"), (false, "us")]
    );
    assert_eq!(compared[0].policies.keys().copied().collect::<Vec<_>>(), ["bcache", "spill-only"]);
    assert!(compared[0].policies.values().all(|value| value.is_some_and(|iops| iops > 100.0)));
    let reopened = rows(&format!("{volume}[[phase]]\nname = \"close\"\nreopen = \"close\"\n"));
    assert!(reopened[0].ours.is_some() && reopened[0].policies.values().all(Option::is_none));
}
