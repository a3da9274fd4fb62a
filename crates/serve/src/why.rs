//! Why a chunk is where it is, in numbers and in sentences.

use crate::status::tier_name;
use bimetal_driver::Clock;
use bimetal_engine::options::Status;
use bimetal_engine::why::{Decision, Outcome, Reason, Why};
use bimetal_units::{BLOCK_BYTES, FAST, Nanos, Tier};
use serde::{Deserialize, Serialize};

/// The mover's last decision about a chunk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionDoc {
    /// When it was carried out or given up, or when it began.
    pub unix_s: u64,
    /// Where to.
    pub to: String,
    /// `hot`, `refill`, `cold`, `pinned`, `makes-room`, `zone-grows` or `landed`.
    pub reason: String,
    /// The chunk's heat when it was decided.
    pub heat: u32,
    /// `under-way`, `moved` or `not-moved`.
    pub outcome: String,
}

impl DecisionDoc {
    /// Of a decision.
    pub(crate) fn new(decision: &Decision) -> DecisionDoc {
        DecisionDoc {
            unix_s: Clock::unix_s(decision.at),
            to: name(decision.to),
            reason: reason(decision.reason).to_owned(),
            heat: decision.heat,
            outcome: outcome(decision.outcome).to_owned(),
        }
    }
}

/// The document of `why`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WhyDoc {
    /// The volume's name.
    pub volume: String,
    /// The chunk's number.
    pub chunk: u32,
    /// Its first byte in the volume.
    pub offset: u64,
    /// Bytes per chunk.
    pub chunk_bytes: u32,
    /// Where it is at home: `fast`, `slow`, or null.
    pub tier: Option<String>,
    /// That device.
    pub device: Option<String>,
    /// Where on it, in bytes.
    pub device_offset: Option<u64>,
    /// Bytes that its home holds.
    pub home_bytes: u64,
    /// Bytes whose newest copy is in the landing zone.
    pub landed_bytes: u64,
    /// Bytes with a copy on the fast tier, which serves reads of them and gives way to whatever needs its place.
    pub copied_bytes: u64,
    /// Where on the slow device it has a shadow: it goes down without being copied until it is written; null where not.
    #[serde(default)]
    pub shadow_offset: Option<u64>,
    /// The tier to which it was written and not yet recorded, or null.
    pub pending: Option<String>,
    /// Whether the mover is at work on it.
    pub moving: bool,
    /// The tier that it is pinned to, or null.
    pub pinned: Option<String>,
    /// How hot it is.
    pub heat: u32,
    /// The heat from which on a chunk on the slow tier may rise.
    pub rises_at_heat: u32,
    /// The heat of the coldest chunk on the fast tier that may be moved; null when there is none.
    pub coldest_fast_heat: Option<u32>,
    /// Whether that is the coldest of all, or only of a sample.
    pub coldest_of_all: bool,
    /// Slots on the fast tier that are free.
    pub fast_free_slots: u32,
    /// Whether somebody has paused moves, so that nothing rises.
    #[serde(default)]
    pub moves_paused: bool,
    /// Whether the wear budget is spent, so that nothing rises but what is pinned.
    #[serde(default)]
    pub wear_budget_spent: bool,
    /// Since when it is there; null when that is not known.
    pub since_unix_s: Option<u64>,
    /// When the volume was opened; after a crash, heat counts from there.
    pub opened_unix_s: u64,
    /// The mover's last decision about it; null when it is not remembered, or there was none.
    pub last_decision: Option<DecisionDoc>,
    /// All of that in plain sentences.
    pub sentences: Vec<String>,
}

impl WhyDoc {
    pub(crate) fn new(volume: &str, why: &Why, status: &Status, now: Nanos) -> WhyDoc {
        let bytes = |blocks: u32| u64::from(blocks) * u64::from(BLOCK_BYTES);
        let device = |tier: Tier| status.tiers.get(usize::from(tier.0)).map(|tier| tier.device.clone());
        WhyDoc {
            volume: volume.to_owned(),
            chunk: why.chunk.0,
            offset: why.offset,
            chunk_bytes: why.chunk_bytes,
            tier: why.home.map(|home| name(home.tier)),
            device: why.home.and_then(|home| device(home.tier)),
            device_offset: why.home_offset,
            home_bytes: bytes(why.home_blocks),
            landed_bytes: bytes(why.landed_blocks),
            copied_bytes: bytes(why.copied_blocks),
            shadow_offset: why.shadow_offset,
            pending: why.pending.map(name),
            moving: why.moving,
            pinned: why.pinned.map(name),
            heat: why.heat,
            rises_at_heat: why.rises_at,
            coldest_fast_heat: why.coldest.map(|coldest| coldest.heat),
            coldest_of_all: why.coldest.is_some_and(|coldest| coldest.of_all),
            fast_free_slots: why.fast_free_slots,
            moves_paused: why.moves_paused,
            wear_budget_spent: why.wear_budget_spent,
            since_unix_s: why.since.map(Clock::unix_s),
            opened_unix_s: Clock::unix_s(why.opened),
            last_decision: why.last.as_ref().map(DecisionDoc::new),
            sentences: sentences(why, status, now),
        }
    }
}

fn name(tier: Tier) -> String {
    tier_name(usize::from(tier.0))
}

fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::Hot => "hot",
        Reason::Refill => "refill",
        Reason::Cold => "cold",
        Reason::Pinned => "pinned",
        Reason::MakesRoom => "makes-room",
        Reason::ZoneGrows => "zone-grows",
        Reason::Landed => "landed",
    }
}

fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::UnderWay => "under-way",
        Outcome::Moved => "moved",
        Outcome::NotMoved => "not-moved",
    }
}

/// How long ago something was.
fn ago(at: Nanos, now: Nanos) -> String {
    let seconds = now.since(at) / Nanos::SECOND;
    match seconds {
        0..120 => format!("{seconds} s ago"),
        120..7200 => format!("{} min ago", seconds / 60),
        7200..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

fn sentences(why: &Why, status: &Status, now: Nanos) -> Vec<String> {
    let mut said = where_it_is(why, status);
    said.extend(since(why, now));
    said.push(heat(why, now));
    said.extend(why.last.map(|last| decision(last, now)));
    said.push(pinned(why));
    said.extend(hindrances(why));
    said.push(what_would_change_it(why, now));
    said
}

fn where_it_is(why: &Why, status: &Status) -> Vec<String> {
    let (blocks, mut said) = (why.chunk_bytes / BLOCK_BYTES, Vec::new());
    match (why.home, why.home_offset) {
        (Some(home), Some(at)) => {
            let device = status.tiers.get(usize::from(home.tier.0)).map_or("?", |tier| tier.device.as_str());
            said.push(format!(
                "It is at home on the {} tier, at byte {at} of {device}, which holds {} of its {blocks} blocks.",
                name(home.tier),
                why.home_blocks
            ));
        }
        _ if why.landed_blocks > 0 => {
            said.push(
                "It has no home on a tier yet, and gets one when what has landed is brought home.".into(),
            );
        }
        _ if why.pending.is_some() => {}
        _ => said.push("Nothing is stored in it: it reads zeros, and no device is asked.".into()),
    }
    if why.landed_blocks > 0 {
        said.push(format!(
            "The newest copy of {} of its blocks is in the landing zone, on the fast device.",
            why.landed_blocks
        ));
    }
    if why.copied_blocks > 0 {
        said.push(format!(
            "Reads of {} of its blocks are served by copies on the fast tier, which give way to whatever needs their place.",
            why.copied_blocks
        ));
    }
    if let Some(at) = why.shadow_offset {
        said.push(format!(
            "The slow device still has what it holds, at byte {at}: until it is written, or that place is needed, it \
             goes down without being copied."
        ));
    }
    if let Some(tier) = why.pending {
        said.push(format!(
            "It was just written to the {} tier, which the next flush will record.",
            name(tier)
        ));
    }
    if why.moving {
        said.push("The mover is at work on it now.".into());
    }
    said
}

fn since(why: &Why, now: Nanos) -> Option<String> {
    why.home?;
    Some(match why.since {
        Some(since) => format!("The mover brought it there {}.", ago(since, now)),
        None => format!(
            "Since when it is there is not known: the mover remembers no move of it since the volume was opened, {}.",
            ago(why.opened, now)
        ),
    })
}

fn heat(why: &Why, now: Nanos) -> String {
    let mut said = format!(
        "Its heat is {}, where each second in which it was read or written counted one (streams over what was never \
         touched before do not), and an hour alone halves it; it outlives a stop of the volume, which was opened {}, and no crash.",
        why.heat,
        ago(why.opened, now)
    );
    if why.touch_ns != Nanos::SECOND {
        said = format!(
            "Its heat is {}; it outlives a stop of the volume, which was opened {}, and no crash.",
            why.heat,
            ago(why.opened, now)
        );
    }
    if let Some(coldest) = why.coldest {
        let of = if coldest.of_all { "" } else { " of a sample" };
        said += &format!(" The coldest chunk{of} on the fast tier that may be moved has {}.", coldest.heat);
    }
    said
}

fn decision(last: Decision, now: Nanos) -> String {
    let why = match last.reason {
        Reason::Hot => format!("it was hot enough to rise (heat {})", last.heat),
        Reason::Refill => "the fast tier had free slots and the slow tier was short of them".into(),
        Reason::Cold => {
            format!("it was among the coldest (heat {}) and the fast tier needed room", last.heat)
        }
        Reason::Pinned => "it was pinned there".into(),
        Reason::MakesRoom => {
            format!("it was among the coldest (heat {}) when something pinned needed its place", last.heat)
        }
        Reason::ZoneGrows => "it was in a cold run of slots that the landing zone borrowed".into(),
        Reason::Landed => "it had landed and needed a home".into(),
    };
    let tier = name(last.to);
    match last.outcome {
        Outcome::UnderWay => format!("It is being moved to the {tier} tier, because {why}."),
        Outcome::Moved => {
            format!("It was last moved {}, to the {tier} tier, because {why}.", ago(last.at, now))
        }
        Outcome::NotMoved => format!(
            "It was to be moved to the {tier} tier, because {why}, and stayed where it was ({}): something else was \
             under way with it, there was no free slot, the wear budget was spent, or a device failed.",
            ago(last.at, now)
        ),
    }
}

fn pinned(why: &Why) -> String {
    match why.pinned {
        Some(tier) => format!("It is pinned to the {} tier.", name(tier)),
        None => "It is not pinned.".into(),
    }
}

/// What keeps the mover from its work now.
fn hindrances(why: &Why) -> Option<String> {
    let said = if why.read_only {
        "The volume is read-only after a failure, so nothing is moved until it is opened again."
    } else if why.busy && why.zone_runs_short {
        "Clients are writing more than can be brought home, so nothing else is moved for now."
    } else if why.busy {
        "Clients are being served now, so chunks are moved only in a part of the time."
    } else {
        return None;
    };
    Some(said.into())
}

fn what_would_change_it(why: &Why, now: Nanos) -> String {
    match (why.home.map(|home| home.tier), why.pinned) {
        (Some(at), Some(tier)) if at == tier => "It stays there until it is unpinned.".into(),
        (Some(_), Some(tier)) => {
            format!("It will be moved to the {} tier as soon as the mover may, ahead of what is hot.", name(tier))
        }
        (None, Some(tier)) => format!("What is written to it will be brought to the {} tier.", name(tier)),
        (Some(FAST), None) => "It goes down when the fast tier needs room and it is among the coldest there; \
                               reading or writing it makes it hotter, and pinning it to the fast tier keeps it there."
            .into(),
        (Some(_), None) => what_would_raise_it(why, now),
        (None, None) => format!(
            "The first write takes one of the fast tier's free slots ({} now) while there are some, or lands and is \
             brought home later; pinning it decides where.",
            why.fast_free_slots
        ),
    }
}

fn what_would_raise_it(why: &Why, now: Nanos) -> String {
    if why.heat < why.rises_at {
        return format!(
            "It rises when its heat comes to {}, over chunks that are colder: {} more. Pinning it to the fast tier \
             raises it at once.",
            why.rises_at,
            why.rises_at - why.heat
        );
    }
    if why.moves_paused {
        return "It is hot enough to rise, but moves are paused: nothing rises until somebody resumes them, or the volume \
                is opened again."
            .to_owned();
    }
    if why.wear_budget_spent {
        let until = match why.rises_again {
            Some(at) => format!("for {} s more", at.since(now).div_ceil(Nanos::SECOND)),
            None => "while it is so small".to_owned(),
        };
        return format!(
            "It is hot enough to rise, but the wear budget of the fast device is spent: nothing rises {until}; pinning \
             it to the fast tier raises it all the same."
        );
    }
    match why.coldest {
        Some(coldest) if coldest.heat >= why.heat => format!(
            "It is hot enough to rise, but only over a chunk that is colder, and the coldest on the fast tier has \
             {}; more touches, or pinning it to the fast tier, would raise it.",
            coldest.heat
        ),
        _ => "It is hot enough to rise, and will when its turn comes or, if it was passed over, when it is touched \
              again; pinning it to the fast tier raises it at once."
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_engine::why::Coldest;
    use bimetal_units::{Chunk, Home, SLOW, Slot};

    fn on(tier: Tier) -> Why {
        Why {
            chunk: Chunk(3),
            offset: 3 << 17,
            chunk_bytes: 128 << 10,
            home: Some(Home { tier, slot: Slot(1) }),
            home_offset: Some(4096),
            home_blocks: 32,
            landed_blocks: 0,
            copied_blocks: 0,
            shadow_offset: None,
            pending: None,
            moving: false,
            pinned: None,
            heat: 1,
            rises_at: 3,
            touch_ns: Nanos::SECOND,
            coldest: Some(Coldest { heat: 2, of_all: true }),
            fast_free_slots: 5,
            since: None,
            opened: Nanos(0),
            last: None,
            read_only: false,
            busy: false,
            zone_runs_short: false,
            moves_paused: false,
            wear_budget_spent: false,
            rises_again: None,
        }
    }

    fn said(why: &Why) -> String {
        sentences(why, &Status::default(), Nanos(500 * Nanos::SECOND)).join("\n")
    }

    #[test]
    fn it_says_what_would_change_and_claims_nothing_that_is_not_known() {
        let cold = on(SLOW);
        assert!(
            said(&cold).contains("It rises when its heat comes to 3") && said(&cold).contains(": 2 more")
        );
        assert!(said(&cold).contains("Since when it is there is not known"));
        let hot = Why { heat: 3, coldest: Some(Coldest { heat: 3, of_all: true }), ..on(SLOW) };
        assert!(said(&hot).contains("but only over a chunk that is colder"));
        let paused = Why { moves_paused: true, ..hot.clone() };
        assert!(said(&paused).contains("but moves are paused"));
        let spent = Why { wear_budget_spent: true, ..hot };
        assert!(
            said(&spent).contains("budget of the fast device is spent: nothing rises while it is so small")
        );
        let again = Why { rises_again: Some(Nanos(501 * Nanos::SECOND)), ..spent };
        assert!(said(&again).contains("nothing rises for 1 s more"));
        assert!(!said(&Why { heat: 1, ..again }).contains("budget"), "heat is what is missing");
        let pinned = Why { pinned: Some(FAST), busy: true, ..on(SLOW) };
        assert!(said(&pinned).contains("moved to the fast tier as soon as the mover may"));
        assert!(said(&pinned).contains("only in a part of the time"));
        let there = Why { pinned: Some(FAST), since: Some(Nanos(0)), ..on(FAST) };
        assert!(
            said(&there).contains("stays there until it is unpinned") && said(&there).contains("8 min ago")
        );
        let blank = Why { home: None, home_offset: None, home_blocks: 0, ..on(SLOW) };
        assert!(said(&blank).contains("Nothing is stored in it") && !said(&blank).contains("Since when"));
    }
}
