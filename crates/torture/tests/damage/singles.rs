//! One damage at a time, drawn over everything that is on the devices: which structures, hurt in which way, end how.
//! Only those that FORMAT.md lists may close the volume, and nothing reads wrong bytes where there is a checksum.
//!
//! `DAMAGE_SEED` begins elsewhere, `DAMAGE_SINGLES` tries more.

use super::kinds::{Ends, Kind};
use super::patient::{At, Patient};
use super::{Outcome, Scene, examine, from_env, guarded, report, scenes};
use crate::story::BLOCK;
use bimetal_engine::format::geometry::{header_at, pins_at};
use bimetal_units::rng::Rng;
use std::collections::BTreeMap;

/// Damages tried unless told otherwise.
const SINGLES: u64 = 120;

/// What is hurt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Part {
    Superblock,
    Header,
    Pins,
    Root,
    Directory,
    Map,
    SecondCopy,
    Sums,
    SegmentHeader,
    GroupHeader,
    LogEnd,
    Payload,
    Index,
    FastSlot,
    SlowBlock,
}

use Part::*;

const PARTS: [Part; 15] = [
    Superblock,
    Header,
    Pins,
    Root,
    Directory,
    Map,
    SecondCopy,
    Sums,
    SegmentHeader,
    GroupHeader,
    LogEnd,
    Payload,
    Index,
    FastSlot,
    SlowBlock,
];

/// How.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Way {
    Flipped,
    Zeroed,
    Unreadable,
    Older,
}

impl Part {
    fn is_log(self) -> bool {
        matches!(self, SegmentHeader | GroupHeader | LogEnd | Payload | Index)
    }

    /// Whether FORMAT.md lists it among what keeps a volume closed when it cannot be read or is damaged.
    fn may_close(self) -> bool {
        matches!(self, SegmentHeader | GroupHeader | LogEnd)
    }

    /// One block of it.
    fn pick(self, p: &Patient<'_>, rng: &mut Rng) -> Option<At> {
        let layout = &p.scene.layout;
        let fast = |blocks: &[u64], rng: &mut Rng| (!blocks.is_empty()).then(|| (0, rng.pick(blocks)));
        match self {
            Superblock => Some(p.superblock(rng.below(2) as usize, rng.below(2))),
            Header => Some((0, header_at(rng.below(2)) / BLOCK + rng.below(2))),
            Pins => Some((0, pins_at(rng.below(2) as u8) / BLOCK)),
            Root => fast(&layout.root, rng),
            Directory => fast(&layout.directory, rng),
            Map => fast(&layout.map_pages, rng),
            SecondCopy => {
                let all = [&layout.root[..], &layout.directory, &layout.map_pages].concat();
                fast(&all, rng).map(|(tier, at)| (tier, p.twin(at)))
            }
            Sums => fast(&layout.sum_pages, rng),
            SegmentHeader => Some((0, p.segment(rng).at)),
            GroupHeader => Some((0, p.group(rng).at)),
            LogEnd => Some((0, layout.end)),
            Payload => {
                let group = p.group(rng);
                let payload = u64::from(group.header.payload_blocks);
                (payload > 0).then(|| (0, group.at + group.blocks - payload + rng.below(payload)))
            }
            Index => p.index(rng).map(|(at, blocks)| (0, at + rng.below(blocks + 1))),
            FastSlot => {
                let slots = layout.fast_slots();
                Some((0, rng.range(slots.start, slots.end - 1)))
            }
            SlowBlock => Some((1, p.slow_block(rng))),
        }
    }
}

fn hurt(p: &mut Patient<'_>, at: At, way: Way, rng: &mut Rng) -> bool {
    match way {
        // Most of a sealed block is zeros that no checksum covers and nobody reads.
        Way::Flipped if rng.one_in(4) => p.flip_anywhere(at, rng),
        Way::Flipped => p.flip(at, rng),
        Way::Zeroed => p.put(at, &[0; BLOCK as usize]),
        Way::Unreadable => {
            p.disks[at.0].add_bad_sector(at.1 * 8 + rng.below(8));
            true
        }
        Way::Older => p.age(at, rng),
    }
}

/// What may come of it, for those who judge what is read.
const IN_THE_LOG: Kind = Kind { name: "in the log", ends: Ends::Tail, hurt: |_, _| true };
const ELSEWHERE: Kind = Kind { name: "elsewhere", ends: Ends::Open, hurt: |_, _| true };

fn single(scene: &Scene, part: Part, way: Way, rng: &mut Rng) -> Option<Outcome> {
    // Nothing but whoever reads a fast slot finds out that it cannot be read.
    if (part, way) == (FastSlot, Way::Unreadable) {
        return None;
    }
    let mut patient = Patient::of(scene);
    let at = part.pick(&patient, rng)?;
    if !hurt(&mut patient, at, way, rng) {
        return None;
    }
    patient.tail = part.is_log();
    Some(examine(&patient, &[if part.is_log() { &IN_THE_LOG } else { &ELSEWHERE }], rng))
}

/// What is wrong with how it ended.
fn objection(scene: &Scene, part: Part, outcome: &Outcome) -> Option<String> {
    let fine = match outcome {
        Outcome::Refused(_) => part.may_close(),
        Outcome::Unharmed => true,
        Outcome::Lost => matches!(part, Sums | Payload | SlowBlock),
        // What a crash left behind the last group known durable.
        Outcome::Older => scene.killed && part.is_log(),
        Outcome::Wrong => part == FastSlot,
    };
    (!fine).then(|| format!("{outcome:?}"))
}

#[test]
fn no_single_damage_closes_what_format_does_not_list_or_reads_wrong() {
    let (first, count) = (from_env("DAMAGE_SEED", 1), from_env("DAMAGE_SINGLES", SINGLES));
    println!("seeds {first} to {}", first + count - 1);
    let scenes = scenes();
    let (mut table, mut failures, mut ran) =
        (BTreeMap::<(Part, Way), BTreeMap<String, u32>>::new(), Vec::new(), 0);
    for seed in first..first + count {
        let mut rng = Rng::new(seed, 78);
        let scene = &scenes[rng.below(2) as usize];
        let (part, way) =
            (rng.pick(&PARTS), rng.pick(&[Way::Flipped, Way::Zeroed, Way::Unreadable, Way::Older]));
        let ended = guarded(|| single(scene, part, way, &mut rng));
        let (name, problem) = match &ended {
            Ok(None) => continue,
            Ok(Some(Outcome::Refused(what))) => {
                ("closed".to_owned(), objection(scene, part, &Outcome::Refused(what.clone())))
            }
            Ok(Some(outcome)) => (format!("{outcome:?}").to_lowercase(), objection(scene, part, outcome)),
            Err(panic) => ("PANIC".to_owned(), Some(panic.clone())),
        };
        failures.extend(problem.map(|p| format!("seed {seed}, {}, {part:?} {way:?}: {p}", scene.name)));
        *table.entry((part, way)).or_default().entry(name).or_default() += 1;
        ran += 1;
    }
    for ((part, way), endings) in &table {
        println!("{:<14} {:<11} {endings:?}", format!("{part:?}"), format!("{way:?}"));
    }
    println!("{ran} single damages");
    report(&failures);
    assert!(ran * 2 > count, "the damage no longer reaches what it should");
}
