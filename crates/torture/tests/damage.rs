//! Volumes that were damaged while nobody looked: each named kind of damage by itself, then combinations.
//! Whatever it was, either the volume stays closed and a sentence says why and where, or it opens, every
//! block reads what was flushed last or an error, the check has found what is lost, and the volume works.
//!
//! `DAMAGE_SEED` begins elsewhere, `DAMAGE_SEEDS` tries more combinations.

mod forge;
pub(crate) mod image;
mod kinds;
mod patient;
mod scene;
mod singles;

use crate::story::{BLOCK, Story};
use bimetal_engine::options::{Finding, OpenError};
use bimetal_torture::world::Death;
use bimetal_units::Nanos;
use bimetal_units::rng::Rng;
use image::get;
use kinds::{Ends, KINDS, Kind};
use patient::Patient;
use scene::{Scene, content, first_unwritten};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Times that each kind is tried on each volume.
const TRIES: u64 = 12;
/// Combinations tried unless told otherwise.
const COMBINATIONS: u64 = 400;

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |v| v.parse().expect("a number"))
}

/// How a case ended.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Outcome {
    Refused(String),
    Unharmed,
    /// Some blocks are errors.
    Lost,
    /// Some blocks are as they were before writes of which nothing says that they were durable.
    Older,
    /// Some blocks read what nobody wrote, and nothing can tell.
    Wrong,
}

/// What reading everything brought.
#[derive(Default)]
struct Seen {
    lost: Vec<u64>,
    older: u64,
    wrong: u64,
}

/// What a block may read.
struct Promise<'a> {
    patient: &'a Patient<'a>,
    /// Nothing is promised but survival: what was forged means something else now.
    alive_only: bool,
    /// Groups that nothing says were durable may be gone.
    tail: bool,
    /// The header that knew them all is gone as well.
    any_version: bool,
    /// In fast slots that were hurt: no checksum tells.
    exempt: BTreeSet<u64>,
}

impl<'a> Promise<'a> {
    fn of(patient: &'a Patient<'a>, kinds: &[&Kind]) -> Promise<'a> {
        let scene = patient.scene;
        let changed = |tier: usize, at: u64| {
            let disk = &patient.disks[tier];
            at >= disk.size_bytes() / BLOCK || get(disk, at, 1) != get(&scene.disks[tier], at, 1)
        };
        let zone_changed = || scene.layout.zone().any(|at| changed(0, at));
        let header_lost = (0..2).all(|copy| changed(0, patient.newest_header() + copy));
        let tail = patient.tail || kinds.iter().any(|k| k.ends == Ends::Tail) || kinds.len() > 1;
        let newest = |b: &u64| *scene.held[b].last().expect("a version");
        let exempt = scene.held.keys().copied();
        let exempt = exempt.filter(|b| scene.in_changed_fast_slot(&patient.disks, *b, newest(b))).collect();
        Promise {
            patient,
            alive_only: kinds.iter().any(|k| k.ends == Ends::Alive),
            tail: tail && scene.killed && zone_changed(),
            any_version: kinds.len() > 1 && header_lost && zone_changed(),
            exempt,
        }
    }

    /// Notes what a block reads; false when it must not.
    fn note(&self, block: u64, bytes: &[u8], seen: &mut Seen) -> bool {
        let zeros = vec![0];
        let versions = self.patient.scene.held.get(&block).unwrap_or(&zeros);
        // Version 3 was followed by a checkpoint, which holds it.
        let since = |v: &&u64| self.any_version || self.tail && **v >= 3;
        let holds = |v: &u64| content(block, *v) == bytes;
        if versions.last().is_some_and(holds) {
            return true;
        }
        if versions.iter().filter(since).any(holds) {
            seen.older += 1;
            return true;
        }
        seen.wrong += 1;
        self.alive_only || self.exempt.contains(&block)
    }
}

/// A refusal must name a device, and the check must say the same.
fn refused(error: &OpenError, findings: &Result<Vec<Finding>, OpenError>) -> String {
    let sentence = error.to_string();
    assert!(sentence.contains("fast") || sentence.contains("slow"), "{sentence:?} names no device");
    match (error, findings) {
        (OpenError::Corrupt { device, offset, what }, Ok(found)) => {
            let tier = u8::from(device == "slow");
            let same = |f: &Finding| {
                f.device.0 == tier && f.offset == *offset && f.what == *what
                    || what.starts_with("two chunks claim")
            };
            assert!(found.iter().any(same), "opening says {sentence:?}, the check {found:?}");
        }
        (error, Err(found)) => assert_eq!(error, found, "opening and check agree"),
        (error, Ok(found)) => panic!("opening says {error}, the check {found:?}"),
    }
    match error {
        OpenError::Corrupt { what, .. } => what.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned(),
        other => format!("{other:?}").split(' ').next().unwrap_or_default().to_owned(),
    }
}

/// Reads all blocks; those written `again` must be as they are now.
fn read_all(s: &mut Story, promise: &Promise<'_>, again: &BTreeMap<u64, u64>) -> Seen {
    let scene = promise.patient.scene;
    let mut seen = Seen::default();
    for block in scene.held.keys().copied().chain(first_unwritten(scene)) {
        match (s.read(block * BLOCK, BLOCK), again.get(&block)) {
            (Ok(bytes), Some(version)) => {
                let same = bytes == content(block, *version);
                assert!(same || promise.alive_only, "block {block} lost what was written after opening");
            }
            (Ok(bytes), None) => {
                let allowed = promise.note(block, &bytes, &mut seen);
                let old = scene.held.get(&block).into_iter().flatten();
                let old: Vec<_> = old.filter(|v| content(block, **v) == bytes).collect();
                assert!(allowed, "block {block} reads {:x?}..., its version {old:?}", &bytes[..8]);
            }
            (Err(_), _) => seen.lost.push(block),
        }
    }
    seen
}

/// Writes some blocks anew, in order and after a kill.
fn works(s: &mut Story, promise: &Promise<'_>, rng: &mut Rng) {
    let scene = promise.patient.scene;
    let blocks: Vec<u64> = scene.held.keys().copied().collect();
    let mut again = BTreeMap::new();
    for round in 0..2 {
        for _ in 0..20 {
            let block = rng.pick(&blocks);
            let version = 100 + round;
            match s.write_bytes(block * BLOCK, &content(block, version)) {
                Ok(()) => again.insert(block, version),
                Err(error) if promise.alive_only => return println!("a write fails: {error:?}"),
                Err(error) => panic!("block {block} cannot be written: {error:?}"),
            };
        }
        let flush = s.ask(bimetal_engine::action::RequestKind::Flush, 0, 0, 0);
        let flushed = s.answer(flush);
        assert!(flushed.is_ok() || promise.alive_only, "a flush fails");
        s.wait(Nanos::SECOND);
        if round == 0 {
            s.die(Death::Kill);
        } else {
            s.stop();
        }
        match s.open() {
            Ok(()) => {}
            Err(error) if promise.alive_only => return println!("closed from then on: {error}"),
            Err(error) => panic!("it does not open again: {error}"),
        }
        let lost = read_all(s, promise, &again).lost;
        let lost_again = lost.iter().find(|b| again.contains_key(b));
        assert!(promise.alive_only || lost_again.is_none(), "{lost_again:?} was written and is an error");
    }
}

/// Opens a damaged volume and looks at all of it.
fn examine(patient: &Patient<'_>, kinds: &[&Kind], rng: &mut Rng) -> Outcome {
    let promise = Promise::of(patient, kinds);
    let mut s = Story::with(patient.disks.clone());
    let findings = s.findings();
    if let Err(error) = s.open() {
        return Outcome::Refused(refused(&error, &findings));
    }
    let found = findings.unwrap_or_else(|e| panic!("it opens, and cannot be checked: {e}"));
    let Seen { lost, older, wrong } = read_all(&mut s, &promise, &BTreeMap::new());
    let told = lost.is_empty() || !found.is_empty() || promise.alive_only;
    assert!(told, "{} blocks are lost, and the check finds none", lost.len());
    works(&mut s, &promise, rng);
    match (wrong, older, lost.len()) {
        (1.., _, _) => Outcome::Wrong,
        (0, 1.., _) => Outcome::Older,
        (0, 0, 1..) => Outcome::Lost,
        (0, 0, 0) => Outcome::Unharmed,
    }
}

/// Hurts a volume and looks at it. None where there is nothing to hurt.
fn case(scene: &Scene, kinds: &[&Kind], rng: &mut Rng) -> Option<Outcome> {
    let mut patient = Patient::of(scene);
    if !kinds.iter().all(|k| (k.hurt)(&mut patient, rng)) {
        return None;
    }
    Some(examine(&patient, kinds, rng))
}

fn fits(ends: Ends, outcome: &Outcome) -> bool {
    match ends {
        Ends::Refused => matches!(outcome, Outcome::Refused(_)),
        Ends::Unharmed => *outcome == Outcome::Unharmed,
        Ends::Open => !matches!(outcome, Outcome::Refused(_)),
        Ends::Safe | Ends::Tail | Ends::Alive => true,
    }
}

/// Runs a case; a panic becomes its message.
fn guarded(f: impl FnOnce() -> Option<Outcome>) -> Result<Option<Outcome>, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default()
    })
}

fn report(failures: &[String]) {
    failures.iter().for_each(|f| println!("FAILED {f}"));
    assert!(failures.is_empty(), "{} cases failed, the first: {}", failures.len(), failures[0]);
}

fn scenes() -> [Scene; 2] {
    [Scene::make("closed", false), Scene::make("killed", true)]
}

#[test]
fn the_volumes_have_all_that_can_be_hurt() {
    for scene in scenes() {
        let layout = &scene.layout;
        let sealed = layout.segments.iter().filter(|s| s.index.is_some()).count();
        println!(
            "{}: {} segments, {sealed} sealed, {} groups",
            scene.name,
            layout.segments.len(),
            layout.groups.len()
        );
        assert!(!scene.killed || sealed > 0 && layout.segments.len() > 1, "{}: sealed segments", scene.name);
        assert!(layout.groups.len() > 4, "{}: a log", scene.name);
        assert!(layout.map_pages.len() > 1 && layout.sum_pages.len() > 1, "{}: pages", scene.name);
        assert!(scene.fast_slots.len() > 100 && scene.last_batch.len() > 10, "{}: homes", scene.name);
        let outcome = examine(&Patient::of(&scene), &[], &mut Rng::new(1, 1));
        assert_eq!(outcome, Outcome::Unharmed, "{}", scene.name);
    }
}

#[test]
fn every_kind_of_damage_ends_in_a_refusal_or_in_the_truth() {
    let seed = from_env("DAMAGE_SEED", 1);
    println!("seed {seed}");
    let mut failures = Vec::new();
    let scenes = scenes();
    for (number, kind) in KINDS.iter().enumerate() {
        let mut outcomes = BTreeMap::<String, u32>::new();
        for scene in &scenes {
            for attempt in 0..TRIES {
                let mut rng = Rng::new(seed, number as u64 * 1000 + attempt);
                let ended = guarded(|| case(scene, &[kind], &mut rng));
                let problem = match &ended {
                    Ok(None) => continue,
                    Ok(Some(outcome)) if fits(kind.ends, outcome) => None,
                    Ok(Some(outcome)) => Some(format!("{outcome:?}, not {:?}", kind.ends)),
                    Err(panic) => Some(panic.clone()),
                };
                failures.extend(problem.map(|p| format!("{}, {} ({attempt}): {p}", scene.name, kind.name)));
                let outcome = ended.map_or("PANIC".to_owned(), |o| format!("{:?}", o.expect("it ended")));
                *outcomes.entry(outcome).or_default() += 1;
            }
        }
        println!("{} [{:?}]: {outcomes:?}", kind.name, kind.ends);
        if outcomes.is_empty() {
            failures.push(format!("{}: there is nothing to hurt", kind.name));
        }
    }
    report(&failures);
}

#[test]
fn combinations_of_damage_end_in_a_refusal_or_in_the_truth() {
    let (first, count) = (from_env("DAMAGE_SEED", 1), from_env("DAMAGE_SEEDS", COMBINATIONS));
    println!("seeds {first} to {}", first + count - 1);
    let scenes = scenes();
    let (mut failures, mut ran, mut opened) = (Vec::new(), 0, 0);
    for seed in first..first + count {
        let mut rng = Rng::new(seed, 77);
        let scene = &scenes[rng.below(2) as usize];
        let kinds: Vec<&Kind> =
            (0..rng.range(1, 3)).map(|_| &KINDS[rng.below(KINDS.len() as u64) as usize]).collect();
        let names: Vec<_> = kinds.iter().map(|k| k.name).collect();
        match guarded(|| case(scene, &kinds, &mut rng)) {
            Ok(None) => continue,
            Ok(Some(Outcome::Refused(_))) => {}
            Ok(Some(_)) => opened += 1,
            Err(panic) => failures.push(format!("seed {seed}, {}, {names:?}: {panic}", scene.name)),
        }
        ran += 1;
    }
    println!("{ran} combinations, {opened} of which opened");
    report(&failures);
    assert!(ran * 2 > count && opened * 10 > ran, "the damage no longer reaches what it should");
}
