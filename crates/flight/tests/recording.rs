//! What is recorded is done again to the byte, holds no payload, and is refused or cut short where it is damaged.

mod common;

use bimetal_flight::{Flight, FlightPlan, RecordingError, Replayed, replay};
use bimetal_units::rng::Rng;
use bimetal_units::{Nanos, SLOW};
use common::{SECRET, World};
use std::path::PathBuf;

const MIB: u64 = 1 << 20;

fn plan(memory_bytes: u64, file: PathBuf) -> FlightPlan {
    FlightPlan { memory_bytes, file, volume: "films".to_owned() }
}

fn recorded(world: &mut World, memory_bytes: u64) -> Flight {
    let engine = world.volume();
    Flight::recorded(engine, world.now, plan(memory_bytes, PathBuf::from("/nowhere")))
}

fn bytes(flight: &mut Flight) -> Vec<u8> {
    let shot = flight.shot().expect("it is recorded");
    let mut bytes = Vec::new();
    shot.write(&mut bytes).expect("into memory");
    assert_eq!(bytes.len() as u64, shot.bytes());
    bytes
}

fn again(bytes: &[u8]) -> Replayed {
    replay(&mut &bytes[..]).expect("it is a recording")
}

fn seconds(seconds: u64) -> u64 {
    seconds * Nanos::SECOND
}

#[test]
fn what_was_recorded_is_done_again_to_the_byte_and_holds_no_payload() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("SEED={seed}");
    let mut world = World::new(seed);
    let mut flight = recorded(&mut world, 64 * MIB);
    world.load(&mut flight, world.now.after(seconds(20)));
    world.rest(&mut flight, world.now.after(seconds(30)));
    let bytes = bytes(&mut flight);
    let replayed = again(&bytes);
    assert_eq!(replayed.difference, None);
    assert!(!replayed.torn);
    assert!(replayed.requests > 5_000, "{replayed:?}");
    assert_eq!(replayed.replies, world.answers.len() as u64);
    assert!(!bytes.windows(SECRET.len()).any(|part| part == SECRET), "payload is in it");
}

#[test]
fn an_older_state_gives_way_to_a_newer_one_in_bounded_memory() {
    let mut world = World::new(2);
    let memory = 6 * MIB;
    let mut flight = recorded(&mut world, memory);
    let began = world.now;
    for _ in 0..6 {
        world.load(&mut flight, world.now.after(seconds(4)));
        world.rest(&mut flight, world.now.after(seconds(2)));
        let bytes = bytes(&mut flight);
        assert!(bytes.len() as u64 <= memory, "{} bytes", bytes.len());
        let replayed = again(&bytes);
        assert_eq!(replayed.difference, None);
        assert!(!replayed.torn);
        assert!(world.now.since(replayed.to) < seconds(2), "its end is missing");
    }
    assert!(again(&bytes(&mut flight)).from > began, "it never began anew");
}

#[test]
fn a_device_that_stalls_for_twenty_seconds_does_so_again() {
    let mut world = World::new(3);
    let mut flight = recorded(&mut world, 64 * MIB);
    world.load(&mut flight, world.now.after(seconds(10)));
    world.stalled_until = world.now.after(seconds(20));
    world.load(&mut flight, world.now.after(seconds(25)));
    let replayed = again(&bytes(&mut flight));
    assert_eq!(replayed.difference, None);
    let slowest = replayed.slowest[SLOW].clone().expect("it was used");
    assert!(slowest.took_ns >= seconds(19) && slowest.answered, "{slowest:?}");
    let longest = replayed.longest.expect("clients asked");
    assert!(longest.took_ns >= seconds(19), "{longest:?}");
}

#[test]
fn what_goes_wrong_is_written_and_done_again_with_its_events() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("films.flight");
    let mut world = World::new(4);
    let engine = world.volume();
    let mut flight = Flight::recorded(engine, world.now, plan(64 * MIB, file.clone()));
    world.load(&mut flight, world.now.after(seconds(20)));
    world.breaks = true;
    world.load(&mut flight, world.now.after(seconds(5)));
    assert!(!file.exists(), "it is written before it is known what comes of it");
    world.load(&mut flight, world.now.after(seconds(20)));
    drop(flight);
    let replayed = again(&std::fs::read(&file).expect("it is written"));
    assert_eq!(replayed.difference, None);
    assert!(replayed.errors > 0);
    assert!(!replayed.events.is_empty());
}

#[test]
fn a_panic_is_written_and_comes_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("films.flight");
    let mut world = World::new(5);
    let engine = world.volume();
    let mut flight = Flight::recorded(engine, world.now, plan(64 * MIB, file.clone()));
    world.load(&mut flight, world.now.after(seconds(5)));
    let now = world.now;
    let thread = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        // An answer to what was not asked: no device does that.
        let token = bimetal_engine::action::Token(u64::MAX);
        bimetal_engine::Machine::on_completion(&mut flight, now, token, Ok(()));
    }));
    assert!(thread.is_err());
    let replayed = again(&std::fs::read(&file).expect("it is written"));
    assert!(replayed.panicked && replayed.difference.is_none(), "{replayed:?}");
}

#[test]
fn too_little_memory_for_the_state_is_no_recording_and_no_harm() {
    let mut world = World::new(6);
    let mut flight = recorded(&mut world, 4096);
    assert!(flight.shot().is_none());
    world.load(&mut flight, world.now.after(seconds(5)));
    assert!(world.answers.len() > 100);
}

#[test]
fn a_cut_recording_counts_up_to_where_it_was_cut() {
    let mut world = World::new(7);
    let mut flight = recorded(&mut world, 64 * MIB);
    world.load(&mut flight, world.now.after(seconds(4)));
    let whole = bytes(&mut flight);
    let all = again(&whole);
    for part in [2, 3, 5, 9] {
        let cut = &whole[..whole.len() - whole.len() / part];
        match replay(&mut &cut[..]) {
            Ok(replayed) => {
                assert!(replayed.torn && replayed.difference.is_none());
                assert!(replayed.items < all.items);
            }
            Err(RecordingError::NoState) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn what_is_foreign_or_of_another_engine_is_refused() {
    let mut world = World::new(8);
    let mut flight = recorded(&mut world, 64 * MIB);
    world.load(&mut flight, world.now.after(seconds(1)));
    let whole = bytes(&mut flight);
    let with = |at: usize, value: u8| {
        let mut other = whole.clone();
        other[at] = value;
        let sum = crc32c::crc32c(&other[..60]).to_le_bytes();
        other[60..64].copy_from_slice(&sum);
        replay(&mut other.as_slice())
    };
    assert!(matches!(replay(&mut &b"BMTLsomething else that is short"[..]), Err(RecordingError::Foreign)));
    assert!(matches!(replay(&mut &[][..]), Err(RecordingError::Foreign)));
    assert!(matches!(with(0, b'X'), Err(RecordingError::Foreign)));
    assert!(matches!(with(8, 99), Err(RecordingError::Format(99))));
    assert!(matches!(with(16, !whole[16]), Err(RecordingError::OtherEngine { .. })));
    let mut damaged = whole.clone();
    damaged[45] ^= 1;
    assert!(matches!(replay(&mut damaged.as_slice()), Err(RecordingError::Head)));
}

/// Damage that its checksums find ends a recording; damage that they do not is a difference, an error or without
/// consequence, but no panic that gets out, and no memory beyond a few times the recording.
#[test]
fn damage_is_refused_or_ends_it() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(9);
    println!("SEED={seed}");
    let mut rng = Rng::new(seed, 1);
    let mut world = World::new(seed);
    let mut flight = recorded(&mut world, 64 * MIB);
    world.load(&mut flight, world.now.after(seconds(1)));
    let whole = bytes(&mut flight);
    std::panic::set_hook(Box::new(|_| {}));
    let (mut cut, mut other) = (0, 0);
    for turn in 0..60 {
        let mut damaged = whole.clone();
        let at = 64 + rng.below(damaged.len() as u64 - 64) as usize;
        damaged[at] ^= 1 << rng.below(8);
        let mended = turn % 2 == 1;
        if mended {
            mend_sums(&mut damaged);
        }
        match replay(&mut damaged.as_slice()) {
            Ok(replayed) if replayed.torn => cut += 1,
            Ok(_) if !mended => panic!("turn {turn}: damage at byte {at} was not found"),
            Ok(replayed) => other += u32::from(replayed.difference.is_some()),
            Err(_) => cut += 1,
        }
    }
    let _ = std::panic::take_hook();
    assert!(cut > 0 && other > 0, "{cut} {other}");
}

/// Makes all frames valid again, as a forger would.
fn mend_sums(bytes: &mut [u8]) {
    let mut at = 64;
    while at + 24 <= bytes.len() {
        let length = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize;
        let end = at + 24 + length;
        if end > bytes.len() {
            return;
        }
        let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes[at..at + 20]), &bytes[at + 24..end]);
        bytes[at + 20..at + 24].copy_from_slice(&sum.to_le_bytes());
        at = end;
    }
}
