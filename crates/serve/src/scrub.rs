//! What is said of a scrub.

use bimetal_engine::scrub::{ScrubPause, ScrubState, ScrubStatus};
use serde::{Deserialize, Serialize};

/// What is wished of a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScrubWish {
    /// That it begins.
    Begin,
    /// That it stops.
    Stop,
    /// To hear how far it has come.
    Tell,
}

/// A range of the volume that is lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostDoc {
    /// First byte in the volume.
    pub offset: u64,
    /// Length.
    pub length_bytes: u64,
}

/// The last scrub of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubDoc {
    /// `never`, `running`, `paused`, `stopped` or `whole`.
    pub state: String,
    /// Why it is paused; null where it is not.
    pub paused_because: Option<String>,
    /// Bytes of the volume that it has looked at.
    pub done_bytes: u64,
    /// Bytes of the volume.
    pub of_bytes: u64,
    /// When it was begun; null where none ever was.
    pub begun_unix_s: Option<u64>,
    /// When one had seen everything last; null where none has.
    pub whole_unix_s: Option<u64>,
    /// Blocks that were not as they should be.
    pub wrong_blocks: u64,
    /// Those of them that are as they should be again.
    pub repaired_blocks: u64,
    /// What is lost, in order.
    pub lost: Vec<LostDoc>,
    /// More bytes that are lost, beyond those listed.
    pub unlisted_bytes: u64,
    /// Bytes of the volume that it looks at in a second; null until that is known.
    pub bytes_per_s: Option<u64>,
    /// How long it takes until it has seen everything, if it goes on like that; null until that is known.
    pub left_s: Option<u64>,
}

impl ScrubDoc {
    /// The document of a scrub of a volume with chunks of so many bytes.
    pub fn new(scrub: &ScrubStatus, chunk_bytes: u32) -> ScrubDoc {
        let bytes = |chunks: u32| u64::from(chunks) * u64::from(chunk_bytes);
        let (state, pause) = match scrub.state {
            ScrubState::Never => ("never", None),
            ScrubState::Running => ("running", None),
            ScrubState::Paused(pause) => ("paused", Some(describe_pause(pause).to_owned())),
            ScrubState::Stopped => ("stopped", None),
            ScrubState::Whole => ("whole", None),
        };
        let left = bytes(scrub.chunks - scrub.done_chunks.min(scrub.chunks));
        let lost =
            scrub.lost.iter().map(|r| LostDoc { offset: r.start, length_bytes: r.end - r.start }).collect();
        ScrubDoc {
            state: state.to_owned(),
            paused_because: pause,
            done_bytes: bytes(scrub.done_chunks),
            of_bytes: bytes(scrub.chunks),
            begun_unix_s: scrub.begun_unix_s,
            whole_unix_s: scrub.whole_unix_s,
            wrong_blocks: scrub.wrong_blocks,
            repaired_blocks: scrub.repaired_blocks,
            lost,
            unlisted_bytes: scrub.unlisted_bytes,
            bytes_per_s: scrub.bytes_per_s,
            left_s: scrub.bytes_per_s.and_then(|rate| left.checked_div(rate)),
        }
    }

    /// Bytes of the volume that are lost.
    pub fn lost_bytes(&self) -> u64 {
        self.lost.iter().map(|lost| lost.length_bytes).sum::<u64>() + self.unlisted_bytes
    }
}

fn describe_pause(pause: ScrubPause) -> &'static str {
    match pause {
        ScrubPause::SlowAtRest => "the slow device is left at rest until clients use it",
        ScrubPause::ZoneShort => "clients wait for the landing zone",
        ScrubPause::DeviceFails => "a device fails whatever it is asked for",
        ScrubPause::ReadOnly => "the volume is read-only until it is opened again, with both its devices",
    }
}
