//! How the list of pins is kept: one block in two places, written one after the other with a flush after each.
//!
//! The place that does not hold the newest version is written first, so a crash at any moment leaves one of them whole:
//! before the first flush the list from before, or already the new one; from then on the new one. It is answered when both
//! hold it, so that a bad sector takes no pin away.

use super::{PinError, PinList};
use crate::api::coverage::Stage;
use crate::base::arena::Buf;
use crate::format::Id;
use crate::format::geometry::pins_at;
use crate::format::page::{self, PageKind};
use crate::format::pins::get_pins;
use serde::{Deserialize, Serialize};

/// No version is ever as high as this.
const MAX_VERSION: u64 = 1 << 52;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) enum KeepStage {
    #[default]
    Idle,
    /// A buffer is wanted.
    Wanted,
    Write,
    Flush,
}

/// A change of the list that is under way, and where the list in force stands.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Keeping {
    pub(crate) stage: KeepStage,
    /// The newest version that may stand on the device.
    pub(crate) version: u64,
    /// The place that holds the list in force.
    pub(crate) newest: Option<u8>,
    /// It stands in both places.
    pub(crate) twice: bool,
    pub(crate) next: PinList,
    /// The place being written.
    pub(crate) place: u8,
    /// The new list is durable in the other place already.
    pub(crate) second: bool,
    pub(crate) buf: Option<Buf>,
    pub(crate) answer: Option<Result<(), PinError>>,
}

impl Keeping {
    pub(super) fn new(read: &PinsRead) -> Keeping {
        Keeping { version: read.version, newest: read.newest, twice: read.twice, ..Keeping::default() }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.stage == KeepStage::Idle
    }

    pub(super) fn step(&self) -> impl PartialEq + use<> {
        (self.stage, self.second)
    }

    pub(super) fn coverage(&self) -> Option<Stage> {
        match self.stage {
            KeepStage::Idle => None,
            KeepStage::Wanted | KeepStage::Write => Some(Stage::PinWrite),
            KeepStage::Flush => Some(Stage::PinFlush),
        }
    }

    /// Whether the answer to the last change has not been taken yet.
    pub(crate) fn has_answer(&self) -> bool {
        self.answer.is_some()
    }

    pub(crate) fn take_answer(&mut self) -> Option<Result<(), PinError>> {
        self.answer.take()
    }
}

/// The list of pins as it was read.
pub struct PinsRead {
    /// What is pinned.
    pub list: PinList,
    /// Whether that is known: a place that may hold the newest list could not be read otherwise.
    pub known: bool,
    /// What is wrong, and at which byte of the fast device.
    pub faults: Vec<(u64, String)>,
    pub(crate) version: u64,
    pub(crate) newest: Option<u8>,
    twice: bool,
    /// The one place that could not be read.
    pub(crate) unreadable: Option<u8>,
}

/// What stands in a place.
pub(crate) enum Found {
    Version(u64, PinList),
    /// Never written.
    Nothing,
    /// Begun, and not whole: a crash tears one that is being written.
    Torn,
    /// Whole, and makes no sense.
    Senseless,
    /// The device cannot read it.
    Unreadable,
}

pub(crate) fn find(block: &[u8], volume: &Id, place: u8, chunks: u32) -> Found {
    match page::decode(block, PageKind::Pins, volume, u64::from(place)) {
        Some((payload, version)) => match get_pins(payload, chunks) {
            Some(ranges) if version < MAX_VERSION => Found::Version(version, PinList { ranges }),
            _ => Found::Senseless,
        },
        None if page::is_broken(block) => Found::Torn,
        None => Found::Nothing,
    }
}

/// Which list is in force, and what is wrong. A place that is torn is what a crash leaves while the other one holds the
/// list, or before there was any.
pub(crate) fn judge(found: [Found; 2]) -> PinsRead {
    let mut read = PinsRead {
        list: PinList::default(),
        known: true,
        faults: Vec::new(),
        version: 0,
        newest: None,
        twice: false,
        unreadable: None,
    };
    let mut fault = |place: u8, what: &str| read.faults.push((pins_at(place), what.to_owned()));
    for (place, found) in [0u8, 1].into_iter().zip(&found) {
        match found {
            Found::Unreadable => fault(place, "cannot be read"),
            Found::Senseless => fault(place, "makes no sense"),
            _ => {}
        }
    }
    match &found {
        [Found::Version(a, one), Found::Version(b, other)] if a == b && one != other => {
            fault(1, "differs from its copy");
        }
        [Found::Torn, Found::Torn] => fault(0, "is not valid, and neither is its copy"),
        _ => {}
    }
    let twice = matches!(&found, [Found::Version(a, _), Found::Version(b, _)] if a == b);
    let unreadable: Vec<u8> =
        (0..2).filter(|place| matches!(found[usize::from(*place)], Found::Unreadable)).collect();
    if let [place] = unreadable[..] {
        read.unreadable = Some(place);
    }
    // One that was never written says that no list was ever complete.
    read.known = found.iter().any(|f| matches!(f, Found::Version(..) | Found::Nothing));
    for (place, found) in [0u8, 1].into_iter().zip(found) {
        if let Found::Version(version, list) = found
            && read.newest.is_none_or(|_| version > read.version)
        {
            (read.list, read.version, read.newest) = (list, version, Some(place));
        }
    }
    read.twice = twice && read.faults.is_empty();
    read
}
