//! What clients have asked for and how long answers took: counters of one volume, written as replies go out.

use crate::requests::Pending;
use bimetal_nbd::Command;
use bimetal_units::Nanos;
use serde::{Deserialize, Serialize};

/// Upper bounds of the classes of response times, microseconds: two to each doubling. What took longer than the last is
/// counted in a class of its own.
pub const RESPONSE_BOUNDS_US: [u64; 45] = [
    8, 11, 16, 23, 32, 45, 64, 91, 128, 181, 256, 362, 512, 724, 1024, 1448, 2048, 2896, 4096, 5793, 8192,
    11_585, 16_384, 23_170, 32_768, 46_341, 65_536, 92_682, 131_072, 185_364, 262_144, 370_728, 524_288,
    741_455, 1_048_576, 1_482_910, 2_097_152, 2_965_821, 4_194_304, 5_931_642, 8_388_608, 11_863_283,
    16_777_216, 23_726_566, 33_554_432,
];
/// Classes of response times.
pub const RESPONSE_CLASSES: usize = RESPONSE_BOUNDS_US.len() + 1;

/// Requests of one kind since the volume was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindDoc {
    /// Those that were answered.
    pub count: u64,
    /// Bytes they asked for.
    pub bytes: u64,
    /// Those that were answered with an error.
    pub errors: u64,
    /// Time from when the engine got each to its reply, added up, microseconds.
    pub response_us: u64,
    /// How many took no longer than each of `response_bounds_us`, and longer than the one before it; then those that took
    /// longer than the last.
    pub responses: Vec<u64>,
}

/// What clients have asked for since the volume was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestsDoc {
    /// Reads.
    pub reads: KindDoc,
    /// Writes, those of zeros too.
    pub writes: KindDoc,
    /// Flushes.
    pub flushes: KindDoc,
    /// Discards.
    pub discards: KindDoc,
    /// Upper bounds of the classes of response times.
    pub response_bounds_us: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Kind {
    count: u64,
    bytes: u64,
    errors: u64,
    response_ns: u64,
    responses: [u64; RESPONSE_CLASSES],
}

const NONE: Kind = Kind { count: 0, bytes: 0, errors: 0, response_ns: 0, responses: [0; RESPONSE_CLASSES] };

/// The counters.
#[derive(Debug)]
pub(crate) struct Meter([Kind; 4]);

impl Default for Meter {
    fn default() -> Meter {
        Meter([NONE; 4])
    }
}

impl Meter {
    /// A request has its answer.
    pub(crate) fn answered(&mut self, pending: &Pending, now: Nanos, ok: bool) {
        let place = match pending.request.command {
            Command::Read => 0,
            Command::Write | Command::WriteZeroes => 1,
            Command::Flush => 2,
            Command::Trim => 3,
            _ => return,
        };
        let took = now.since(pending.began);
        let kind = &mut self.0[place];
        kind.count += 1;
        kind.errors += u64::from(!ok);
        kind.bytes += if place == 2 { 0 } else { u64::from(pending.request.length) };
        kind.response_ns += took;
        kind.responses[class(took)] += 1;
    }

    pub(crate) fn doc(&self) -> RequestsDoc {
        let [reads, writes, flushes, discards] = self.0.each_ref().map(|kind| KindDoc {
            count: kind.count,
            bytes: kind.bytes,
            errors: kind.errors,
            response_us: kind.response_ns / 1000,
            responses: kind.responses.to_vec(),
        });
        RequestsDoc { reads, writes, flushes, discards, response_bounds_us: RESPONSE_BOUNDS_US.to_vec() }
    }
}

/// The class of a response time.
fn class(took_ns: u64) -> usize {
    RESPONSE_BOUNDS_US.partition_point(|bound| bound * 1000 < took_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_class_that_ends_at_it_or_above() {
        assert_eq!((class(0), class(8000), class(8001)), (0, 0, 1));
        assert_eq!((class(33_554_432_000), class(33_554_432_001)), (44, 45));
        assert!(RESPONSE_BOUNDS_US.is_sorted());
        for pair in RESPONSE_BOUNDS_US.windows(3) {
            assert!(pair[2] >= 2 * pair[0] - 2 && pair[2] <= 2 * pair[0] + 2, "{pair:?}");
        }
    }
}
