//! What of a volume is lost, as it is told: to who asks, in parts, and as the document of `bimetal lost`.

use crate::ask::TierName;
use crate::status::tier_name;
use bimetal_engine::loss::{Loss, LossClass, LossRange, Losses};
use bimetal_units::{FAST, Tier};
use serde::{Deserialize, Serialize};

impl From<Tier> for TierName {
    fn from(tier: Tier) -> TierName {
        if tier == FAST { TierName::Fast } else { TierName::Slow }
    }
}

impl TierName {
    /// As it is written.
    pub fn name(self) -> String {
        tier_name(usize::from(Tier::from(self).0))
    }
}

/// How much is left of a volume that is served while a device is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossDoc {
    /// The device that is missing.
    pub missing: TierName,
    /// As of when it is known what is left; null where that is the newest.
    pub as_of_unix_s: Option<u64>,
    /// Bytes that can be read, what reads zeros included.
    pub good_bytes: u64,
    /// Bytes that cannot.
    pub lost_bytes: u64,
    /// Bytes that are there, and may be older than what was flushed last.
    pub suspect_bytes: u64,
    /// It is written to all the same.
    #[serde(default)]
    pub writable: bool,
}

impl From<&Loss> for LossDoc {
    fn from(loss: &Loss) -> LossDoc {
        LossDoc {
            missing: loss.missing.into(),
            as_of_unix_s: loss.as_of_unix_s,
            good_bytes: loss.good_bytes,
            lost_bytes: loss.lost_bytes,
            suspect_bytes: loss.suspect_bytes,
            writable: loss.writable,
        }
    }
}

/// A part of what is lost of a volume, as a server tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossesDoc {
    /// What is missing; null where both devices are there.
    pub loss: Option<LossDoc>,
    /// Size that clients see.
    pub size_bytes: u64,
    /// First byte and length of each range that is lost.
    pub lost: Vec<(u64, u64)>,
    /// The same of those that are suspect.
    pub suspect: Vec<(u64, u64)>,
    /// Where to ask on from; null at the end.
    pub next: Option<u64>,
}

impl LossesDoc {
    /// Of a part of the losses.
    pub fn new(loss: Option<&Loss>, size_bytes: u64, losses: &Losses) -> LossesDoc {
        let of = |class: LossClass| {
            let ranges = losses.ranges.iter().filter(|range| range.class == class);
            ranges.map(|range| (range.offset, range.len)).collect()
        };
        LossesDoc {
            loss: loss.map(LossDoc::from),
            size_bytes,
            lost: of(LossClass::Lost),
            suspect: of(LossClass::Suspect),
            next: losses.next,
        }
    }

    /// The same as the engine has it.
    pub fn losses(&self) -> Losses {
        let with = |class| move |&(offset, len): &(u64, u64)| LossRange { offset, len, class };
        let lost = self.lost.iter().map(with(LossClass::Lost));
        let mut ranges: Vec<LossRange> =
            lost.chain(self.suspect.iter().map(with(LossClass::Suspect))).collect();
        ranges.sort_by_key(|range| range.offset);
        Losses { ranges, next: self.next }
    }
}
