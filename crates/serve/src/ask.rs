//! What can be asked of a volume beside its status: pins, and why a chunk is where it is. The control socket takes
//! questions and gives answers as JSON; who opens a volume by himself asks the engine the same way.

use crate::attach::{AttachedDoc, Wish};
use crate::lost::LossesDoc;
use crate::map::{self, ExtentsDoc, MapDoc};
use crate::scrub::{ScrubDoc, ScrubWish};
use crate::served::Served;
use crate::status::tier_name;
use crate::successor::{ReplaceDoc, ReplaceWish};
use crate::why::{DecisionDoc, WhyDoc};
use bimetal_engine::pins::{PinError, PinReport};
use bimetal_units::{FAST, Nanos, SLOW, Tier};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Decisions of the mover in one answer at most.
pub const MOST_DECISIONS: usize = 256;

/// A tier, as it is named in questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TierName {
    /// The fast one.
    Fast,
    /// The slow one.
    Slow,
}

impl From<TierName> for Tier {
    fn from(name: TierName) -> Tier {
        match name {
            TierName::Fast => FAST,
            TierName::Slow => SLOW,
        }
    }
}

/// A question, or a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase", deny_unknown_fields)]
pub enum Question {
    /// Pin a range of bytes to a tier. Answered with all pins once that is durable.
    Pin {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Where to.
        tier: TierName,
    },
    /// Unpin a range of bytes. Answered like the other.
    Unpin {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// All pins.
    Pins {},
    /// Why the chunk with this byte is where it is.
    Why {
        /// The byte.
        offset: u64,
    },
    /// What the mover decided of late.
    Decisions {},
    /// Pause moves, or resume them: while they are, nothing is moved but what empties the landing zone. Only a server can.
    Moves {
        /// Pause them.
        pause: bool,
    },
    /// What is lost from this byte on; as far as one answer goes.
    Lost {
        /// The byte.
        from: u64,
    },
    /// What is where between two bytes, by cells of so many bytes, from the byte `at` on; as far as one answer goes.
    Map {
        /// The first byte.
        from: u64,
        /// The byte behind the last one.
        to: u64,
        /// Where this part begins.
        at: u64,
        /// Bytes of a cell; whole chunks are taken.
        cell_bytes: u64,
    },
    /// What is where between two bytes, extent by extent; as far as one answer goes.
    Extents {
        /// The first byte.
        from: u64,
        /// The byte behind the last one.
        to: u64,
    },
    /// Scrub the volume. Only a server can.
    Scrub {
        /// What is wished.
        wish: ScrubWish,
    },
    /// Let a device take another's place, as the volume file says. Only a server can.
    Replace {
        /// What is wished.
        wish: ReplaceWish,
    },
    /// Tell of every request from now on. Only a server can.
    Record {},
    /// What was asked for in the last day, of a sample. Only a server can.
    Tape {},
    /// What the flight recorder has. Only a server can.
    Flight {},
    /// Make the volume a device of the machine. Only a server can.
    Attach(Wish),
    /// Take that device away. Only a server can.
    Detach {},
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// All pins.
    Pins(PinsDoc),
    /// One chunk.
    Why(Box<WhyDoc>),
    /// What the mover decided of late, the newest first.
    Decisions(Vec<MoveDoc>),
    /// Whether moves are paused now.
    Moves {
        /// They are.
        paused: bool,
    },
    /// What is lost.
    Lost(LossesDoc),
    /// A part of a map.
    Map(MapDoc),
    /// Extents.
    Extents(ExtentsDoc),
    /// The last scrub.
    Scrub(Box<ScrubReport>),
    /// A device that is to take another's place.
    Replace(Box<ReplaceDoc>),
    /// The recording begins: what follows on the stream are its requests.
    Recording(RecordingDoc),
    /// What was asked for follows on the stream.
    Tape(TapeDoc),
    /// What the flight recorder has follows on the stream.
    Flight(FlightDoc),
    /// The volume is this device of the machine.
    Attached(Box<AttachedDoc>),
    /// This device is gone.
    Detached(PathBuf),
    /// One sentence that says why not.
    Refused(String),
}

/// A chunk, and what the mover decided about it last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MoveDoc {
    /// Its first byte in the volume.
    pub offset: u64,
    /// The decision.
    pub decision: DecisionDoc,
}

/// The document of `scrub`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubReport {
    /// The volume's name.
    pub volume: String,
    /// The last scrub.
    pub scrub: ScrubDoc,
}

/// What is being recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingDoc {
    /// The volume's name.
    pub volume: String,
    /// Size that clients see.
    pub size_bytes: u64,
}

/// What was asked of a volume lately.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TapeDoc {
    /// The volume's name.
    pub volume: String,
    /// Its fast tier, bytes.
    pub fast_bytes: u64,
    /// How many requests follow, in entries of [`ENTRY_BYTES`](crate::plan_tape::ENTRY_BYTES).
    pub entries: u64,
    /// The part of all regions that is in the sample.
    pub share: f64,
    /// Parts of requests to other regions since the last entry.
    pub others_after: u32,
    /// When it was taken, nanoseconds since 1970.
    pub until_unix_ns: u64,
    /// Reads and writes that were answered in its time, of all regions; a server that does not say has measured none.
    #[serde(default)]
    pub answered: u64,
    /// How long they took, added up, microseconds.
    #[serde(default)]
    pub response_us: u64,
}

/// What the flight recorder has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlightDoc {
    /// The volume's name.
    pub volume: String,
    /// Bytes of it.
    pub bytes: u64,
}

/// One range of pins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PinDoc {
    /// First byte in the volume.
    pub offset: u64,
    /// Length.
    pub length_bytes: u64,
    /// Where it belongs: `fast` or `slow`.
    pub tier: String,
    /// Bytes of its chunks that are there; null where there are too many to look at.
    pub settled_bytes: Option<u64>,
    /// Bytes of its chunks that are on the other tier, and will be moved; null likewise.
    pub astray_bytes: Option<u64>,
}

/// What may be pinned to a tier, and is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PinRoomDoc {
    /// `fast` or `slow`.
    pub tier: String,
    /// Bytes that may be pinned to it.
    pub room_bytes: u64,
    /// Bytes that are.
    pub pinned_bytes: u64,
}

/// The document of `pins`, `pin` and `unpin`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PinsDoc {
    /// The volume's name.
    pub volume: String,
    /// In order.
    pub pins: Vec<PinDoc>,
    /// Fastest first.
    pub tiers: Vec<PinRoomDoc>,
    /// False when the list could not be read when the volume was opened: nothing is pinned until it is opened again.
    pub known: bool,
}

impl PinsDoc {
    fn new(volume: &str, report: &PinReport) -> PinsDoc {
        let name = |tier: Tier| tier_name(usize::from(tier.0));
        let pins = report.ranges.iter().map(|range| PinDoc {
            offset: range.offset,
            length_bytes: range.len,
            tier: name(range.tier),
            settled_bytes: range.settled_bytes,
            astray_bytes: range.astray_bytes,
        });
        let tiers = [FAST, SLOW].into_iter().map(|tier| PinRoomDoc {
            tier: name(tier),
            room_bytes: report.room_bytes[usize::from(tier.0)],
            pinned_bytes: report.pinned_bytes[usize::from(tier.0)],
        });
        PinsDoc {
            volume: volume.to_owned(),
            pins: pins.collect(),
            tiers: tiers.collect(),
            known: report.known,
        }
    }
}

/// How a question was taken.
#[derive(Debug)]
pub enum Taken {
    /// Here is the answer.
    Answered(Answer),
    /// A change is under way: [`conclude`] has the answer when it is durable.
    Begun,
    /// Another change is under way: ask again after it.
    Later,
}

/// Asks a volume.
pub fn ask(volume: &str, engine: &mut impl Served, now: Nanos, question: Question) -> Taken {
    let begun = match question {
        Question::Pin { offset, length, tier } => engine.begin_pin(now, offset, length, Some(tier.into())),
        Question::Unpin { offset, length } => engine.begin_pin(now, offset, length, None),
        Question::Pins {} => return Taken::Answered(pins(volume, engine)),
        Question::Decisions {} => {
            let chunk_bytes = u64::from(engine.status().chunk_bytes);
            let decisions = engine.decisions(MOST_DECISIONS).into_iter();
            let told = decisions.map(|(chunk, decision)| MoveDoc {
                offset: u64::from(chunk.0) * chunk_bytes,
                decision: DecisionDoc::new(&decision),
            });
            return Taken::Answered(Answer::Decisions(told.collect()));
        }
        Question::Moves { .. } => {
            return Taken::Answered(refused(volume, "nobody serves it, so nothing is moved"));
        }
        Question::Lost { from } => {
            let (status, losses) = (engine.status(), engine.losses(from));
            let doc = LossesDoc::new(status.loss.as_ref(), status.size_bytes, &losses);
            return Taken::Answered(Answer::Lost(doc));
        }
        Question::Map { from, to, at, cell_bytes } => {
            return Taken::Answered(Answer::Map(map::map(engine, now, (from, to), at, cell_bytes)));
        }
        Question::Extents { from, to } => {
            return Taken::Answered(Answer::Extents(map::extents(engine, now, from, to)));
        }
        Question::Scrub { wish } => return Taken::Answered(scrub(volume, engine, now, wish)),
        Question::Replace { .. } => return Taken::Answered(refused(volume, "nobody serves it")),
        Question::Record {} | Question::Flight {} | Question::Tape {} => {
            return Taken::Answered(refused(volume, "nobody serves it, so there is nothing to record"));
        }
        Question::Attach(_) | Question::Detach {} => {
            return Taken::Answered(refused(
                volume,
                "nobody serves it, so it can be no device of the machine",
            ));
        }
        Question::Why { offset } => {
            return Taken::Answered(match engine.why(now, offset) {
                Some(why) => Answer::Why(Box::new(WhyDoc::new(volume, &why, &engine.status(), now))),
                None => {
                    refused(volume, &format!("byte {offset} is behind its end at {}", engine.size_bytes()))
                }
            });
        }
    };
    match begun {
        Ok(()) => Taken::Begun,
        Err(PinError::Busy) => Taken::Later,
        Err(error) => Taken::Answered(refused(volume, &error.to_string())),
    }
}

/// The answer to the change that is under way, once there is one.
pub fn conclude(volume: &str, engine: &mut impl Served) -> Option<Answer> {
    Some(match engine.take_pin_answer()? {
        Ok(()) => pins(volume, engine),
        Err(error) => refused(volume, &error.to_string()),
    })
}

fn scrub(volume: &str, engine: &mut impl Served, now: Nanos, wish: ScrubWish) -> Answer {
    let done = match wish {
        ScrubWish::Begin => engine.begin_scrub(now),
        ScrubWish::Stop => engine.stop_scrub(now),
        ScrubWish::Tell => Ok(()),
    };
    if let Err(error) = done {
        return refused(volume, &error.to_string());
    }
    let status = engine.status();
    let scrub = ScrubDoc::new(&status.scrub, status.chunk_bytes);
    Answer::Scrub(Box::new(ScrubReport { volume: volume.to_owned(), scrub }))
}

fn pins(volume: &str, engine: &impl Served) -> Answer {
    Answer::Pins(PinsDoc::new(volume, &engine.pin_report()))
}

fn refused(volume: &str, what: &str) -> Answer {
    Answer::Refused(format!("{volume}: {what}"))
}
