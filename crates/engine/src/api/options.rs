//! What a volume is made and opened with, and what it says about itself.

use crate::api::action::DeviceError;
use crate::api::audit::Audit;
use crate::api::economy::Economy;
use crate::api::loss::Loss;
use crate::api::scrub::ScrubStatus;
use bimetal_units::{Nanos, Tier};
use serde::{Deserialize, Serialize};

/// One device of a volume, in tier order.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// How to name it in messages: its path.
    pub name: String,
    /// Its size, bytes.
    pub size_bytes: u64,
}

/// How to lay out a new volume.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// The volume's identity (random).
    pub volume_id: [u8; 16],
    /// Bytes per chunk: a power of two, 64 KiB to 4 MiB.
    pub chunk_bytes: u32,
    /// Bytes of the landing zone; `None` is 4 GiB, or an eighth of the fast tier where that is less.
    pub landing_bytes: Option<u64>,
    /// Bytes per area of the fast tier (log segment); `None` chooses by the size of the landing zone.
    pub area_bytes: Option<u32>,
    /// Seconds since 1970, recorded.
    pub created_unix_s: u64,
    /// References in a page of the directory; `None`: as many as there is room for. Few make a small volume have as many
    /// pages of the directory as a large one, so that tests meet them; it costs memory and writes, and gives nothing.
    pub refs_per_page: Option<u32>,
    /// Whether the slow device describes itself.
    pub marking: Marking,
    /// Whether checksums of the fast tier outlive the server, in pages that take two thousandths of it.
    pub fast_checksums: bool,
}

/// Whether the slow device says about itself what it holds, so that it can be read alone should the fast one be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Marking {
    /// It does not: without the fast device nothing can be read.
    #[default]
    Off,
    /// It does. One that is to rest says before that all may be stale from then on, and is left asleep.
    On,
    /// It does, and is woken to say what becomes stale.
    Strict,
}

/// Bytes per chunk where nothing else is asked for.
pub const DEFAULT_CHUNK_BYTES: u32 = 128 << 10;

impl CreateOptions {
    /// For a volume with this identity: chunks of [`DEFAULT_CHUNK_BYTES`], a landing zone and areas that suit the
    /// devices, and no time of creation (0).
    pub fn new(volume_id: [u8; 16]) -> CreateOptions {
        CreateOptions {
            volume_id,
            chunk_bytes: DEFAULT_CHUNK_BYTES,
            landing_bytes: None,
            area_bytes: None,
            created_unix_s: 0,
            refs_per_page: None,
            marking: Marking::Off,
            fast_checksums: true,
        }
    }
}

/// How to run a volume.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// The volume these devices must belong to; `None` accepts any.
    pub volume_id: Option<[u8; 16]>,
    /// Limits and timings.
    pub tuning: Tuning,
}

/// Limits and timings. The defaults serve real devices; the simulator varies them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    /// Acknowledged but unflushed client data on the slow tier at most, bytes.
    pub slow_unflushed_bytes: u64,
    /// Chunks at most whose first writes wait to be shown by a commit.
    pub pending_chunks: usize,
    /// A commit comes by itself after this long, ns.
    pub commit_interval_ns: u64,
    /// Quiet for this long is idle, ns.
    pub idle_after_ns: u64,
    /// Chunks in one background batch.
    pub batch_chunks: usize,
    /// Background I/Os in flight at most.
    pub background_depth: usize,
    /// When busy, background moves take at most one part in this many of the slow device's time.
    pub busy_share: u32,
    /// Recent checksums kept as a list before they are folded into pages, entries.
    pub recent_checksums: usize,
    /// Checksum pages cached.
    pub checksum_cache_pages: usize,
    /// Memory at most for checksums of what is on the fast tier, bytes: a little more than
    /// 4 for each block of it.
    pub fast_checksum_bytes: u64,
    /// Checksums of 4 MB of the fast tier that were not written to for this long, and twice as long at most, are written to it
    /// with the next checkpoint, ns: they outlive a crash, and the first write there lands.
    pub fast_checksum_rest_ns: u64,
    /// Touches (at most one per [`Tuning::touch_ns`]) that make a slow chunk rise.
    pub promote_touches: u32,
    /// Touches of one chunk within this long count once, ns.
    pub touch_ns: u64,
    /// A write of at most this many bytes into new blocks lands if flushes are frequent.
    pub small_write_bytes: u32,
    /// Log groups in flight at most.
    pub groups_in_flight: usize,
    /// What moves and copies may write to the fast device in a day, bytes; `None` is no limit.
    pub wear_bytes_per_day: Option<u64>,
    /// A device that was not used for this long rests, ns: what uses it next wakes it. Longer than all pauses within
    /// one stretch of work, so that such a one wakes a disk once; shorter than the times after which disks are commonly
    /// told to stop.
    pub rest_after_ns: u64,
    /// What has landed waits at most this long for the slow device to be in use for something else, ns; 0: not at all.
    /// An hour makes 24 wake-ups a day: in five years fewer than the 50,000 starts and stops that disks are made for.
    pub rest_at_most_ns: u64,
    /// What was not written for so long may be called good again by the marks, ns, while the slow device is awake and idle.
    pub marks_quiet_ns: u64,
    /// A scrub takes at most one part in so many of a device's time while clients are busy.
    pub scrub_share: u32,
    /// A scrub leaves the slow device alone when no client has used it for so long, ns: it may come to rest then.
    pub scrub_awake_ns: u64,
    /// What the landing zone's tables may take, bytes of RAM: 24 a block, and the zone grows no further; 14 more, where there
    /// is that left when it has grown as far as it can, and parts of blocks may share one. Those of its own areas are had
    /// whatever this says. A volume whose zone has grown further is not opened, nor one whose log has no room left without the
    /// areas that it had borrowed.
    pub landing_ram_bytes: u64,
    /// The landing zone grows beyond what is held back for it where a block that is pushed down costs the slow device at
    /// most one part in this many of the time of one that is merged; 0: whatever it costs. What is pushed down has to come
    /// up again, and is missed meanwhile.
    pub push_worth: u32,
    /// Free segments of the landing zone that are not lent to copies, beside its reserve and a part of the zone; at least 1.
    pub kept_from_copies: u32,
    /// Others are lent when no client has asked for a write for so long, ns.
    pub lend_after_ns: u64,
    /// What placement and the mover weigh against each other.
    pub economy: Economy,
}

/// Nanoseconds of a day.
const DAY_NS: u64 = 24 * 3600 * Nanos::SECOND;

impl Tuning {
    /// How often in a day what has landed may wake the slow device by itself; `None` is whenever it is quiet.
    pub fn timed_wakeups_per_day(&self) -> Option<u64> {
        DAY_NS.checked_div(self.rest_at_most_ns)
    }

    /// Lets what has landed wake the slow device so often in a day by itself.
    pub fn with_wakeups_per_day(self, wakeups: u32) -> Tuning {
        Tuning { rest_at_most_ns: DAY_NS / u64::from(wakeups.max(1)), ..self }
    }
}

impl Default for Tuning {
    fn default() -> Self {
        Tuning {
            slow_unflushed_bytes: 64 << 20,
            pending_chunks: 4096,
            commit_interval_ns: Nanos::SECOND,
            idle_after_ns: Nanos::SECOND / 2,
            batch_chunks: 256,
            background_depth: 32,
            busy_share: 10,
            recent_checksums: 256 << 10,
            checksum_cache_pages: 2048,
            fast_checksum_bytes: 64 << 20,
            fast_checksum_rest_ns: 60 * Nanos::SECOND,
            promote_touches: 3,
            touch_ns: Nanos::SECOND,
            small_write_bytes: 32 << 10,
            groups_in_flight: 4,
            landing_ram_bytes: u64::MAX,
            wear_bytes_per_day: None,
            rest_after_ns: 20 * Nanos::SECOND,
            rest_at_most_ns: 3600 * Nanos::SECOND,
            marks_quiet_ns: 60 * Nanos::SECOND,
            scrub_share: 5,
            scrub_awake_ns: 600 * Nanos::SECOND,
            push_worth: 4,
            kept_from_copies: 4,
            lend_after_ns: 60 * Nanos::SECOND,
            economy: Economy::default(),
        }
    }
}

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    /// Something is good again.
    Info,
    /// A device failed; nothing is lost by that, though a client may have got an error.
    Warning,
    /// Data is lost, or the volume no longer takes writes.
    Error,
}

/// Something worth telling the user, with device and address where there is one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// How much it matters.
    pub level: Level,
    /// One sentence.
    pub message: String,
    /// What the device said, where it is a device that failed; whoever shows the event can put it into words.
    pub error: Option<DeviceError>,
}

/// How often a device was used after a rest ([`Tuning::rest_after_ns`]), by whose work that was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeUps {
    /// By clients' requests.
    pub clients: u64,
    /// By the engine's own work: moves, checkpoints, pins.
    pub background: u64,
}

/// One tier in [`Status`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TierStatus {
    /// The device's name.
    pub device: String,
    /// Bytes of slots on it.
    pub size_bytes: u64,
    /// Bytes of slots in use.
    pub used_bytes: u64,
    /// Client bytes read from it (landed blocks count for the fast tier).
    pub read_bytes: u64,
    /// Client bytes written to it (landing counts for the fast tier).
    pub written_bytes: u64,
    /// Bytes the engine wrote to the device in all.
    pub device_written_bytes: u64,
    /// Flushes sent to the device.
    pub flushes: u64,
    /// Since when it has answered nothing, on the driver's clock; none while nothing is asked of it.
    pub silent_since: Option<Nanos>,
    /// How often it was woken since open.
    pub wakeups: WakeUps,
    /// Bytes pinned to it.
    pub pinned_bytes: u64,
}

/// What the slow device says about itself, for the day on which the fast one is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarksStatus {
    /// Whether a slow device at rest is woken to say what becomes stale.
    pub strict: bool,
    /// What it would call suspect now, or lost with the fast device, in whole regions, bytes. What is only on the fast device in
    /// other regions would be lost, too.
    pub suspect_bytes: u64,
}

/// How much the engine may write to the fast device of its own accord.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WearBudgetStatus {
    /// In a day, bytes.
    pub bytes_per_day: u64,
    /// What is left of it now, bytes: up to a day's.
    pub left_bytes: u64,
}

/// What the engine wrote to the fast device of its own accord.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WearStatus {
    /// Bytes of chunks that rose, since open.
    pub moved_bytes: u64,
    /// Bytes of copies of what was read from the slow tier, since open.
    pub copied_bytes: u64,
    /// The limit, where there is one.
    pub budget: Option<WearBudgetStatus>,
}

/// The volume at a glance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// The volume's identity.
    pub volume_id: [u8; 16],
    /// `open`, `degraded`, `read-only` or `stopping`.
    pub state: &'static str,
    /// Which opening this is, counted over the volume's life.
    pub generation: u64,
    /// Whether the volume had not been closed when it was opened, and was recovered.
    pub recovered: bool,
    /// Size that clients see, bytes.
    pub size_bytes: u64,
    /// Bytes per chunk.
    pub chunk_bytes: u32,
    /// By tier, fastest first.
    pub tiers: Vec<TierStatus>,
    /// Bytes of the landing zone.
    pub landing_size_bytes: u64,
    /// Bytes of segments in use.
    pub landing_used_bytes: u64,
    /// Whether the landing zone is short: clients land no more than what is freed.
    pub landing_is_short: bool,
    /// Bytes of blocks whose newest copy is landed, as a whole or in part.
    pub landed_bytes: u64,
    /// Bytes appended to the log, headers included.
    pub log_written_bytes: u64,
    /// Client payload bytes appended to the log.
    pub log_payload_bytes: u64,
    /// Chunks moved up since open.
    pub promoted_chunks: u64,
    /// Chunks moved down since open.
    pub demoted_chunks: u64,
    /// Landed blocks merged into their homes since open.
    pub destaged_blocks: u64,
    /// When the last promotion ended, on the driver's clock.
    pub last_promotion: Option<Nanos>,
    /// Whether somebody has paused moves: nothing is moved but what empties the landing zone.
    pub moves_paused: bool,
    /// Checkpoints completed since open.
    pub checkpoints: u64,
    /// Client flushes answered since open.
    pub client_flushes: u64,
    /// Bytes of the slow tier with shadows of chunks that were moved up, which give way to whatever needs their place.
    pub shadowed_bytes: u64,
    /// Chunks among those moved down that had one, so that nothing was copied.
    pub shadow_demoted_chunks: u64,
    /// Bytes of the slow tier that have a clean copy on the fast one.
    pub copied_bytes: u64,
    /// Bytes of clients' reads that such copies served, since open.
    pub copy_read_bytes: u64,
    /// Reads of clients that were made again since open, as a device had failed them or what was read was wrong.
    pub reads_again: u64,
    /// Those of them that got from shadows what homes on the fast tier did not give.
    pub reads_from_shadows: u64,
    /// Blocks that were found wrong since open, by a scrub or after a read, and are as they should be again.
    pub repaired_blocks: u64,
    /// The last scrub.
    pub scrub: ScrubStatus,
    /// What moves and copies wrote to the fast device.
    pub wear: WearStatus,
    /// Whether what rose has repaid it.
    pub audit: Audit,
    /// How often in a day what has landed may wake the slow device by itself; `None` is whenever it is quiet.
    pub timed_wakeups_per_day: Option<u64>,
    /// Bytes of RAM held by the engine's tables and caches.
    pub ram_bytes: u64,
    /// What the slow device says about itself; none of a volume without marks.
    pub marks: Option<MarksStatus>,
    /// What is lost with a device that was missing when the volume was opened; none where both were there.
    pub loss: Option<Loss>,
}

/// Why a volume cannot be made or opened. Each sentence names the device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// A device is too small for its part.
    #[error("{device} is too small: it has {have_bytes} bytes and needs at least {need_bytes}")]
    TooSmall {
        /// The device's name.
        device: String,
        /// Its size.
        have_bytes: u64,
        /// The least that would do.
        need_bytes: u64,
    },
    /// An option has no valid value.
    #[error("{what}")]
    BadOption {
        /// One sentence.
        what: String,
    },
    /// No superblock of ours.
    #[error("{device} is not a Bimetal device (no valid superblock was found)")]
    NotOurs {
        /// The device's name.
        device: String,
    },
    /// The device belongs to another volume.
    #[error("{device} belongs to another Bimetal volume ({found})")]
    OtherVolume {
        /// The device's name.
        device: String,
        /// The volume it names.
        found: String,
    },
    /// The device is another tier of this volume.
    #[error("{device} is tier {found} of this volume, not tier {expected}: the devices are swapped")]
    Swapped {
        /// The device's name.
        device: String,
        /// What its superblock says.
        found: u8,
        /// Where it was given.
        expected: u8,
    },
    /// The devices were last used in different openings.
    #[error(
        "{device} is of another generation ({found}, the volume is at {expected}): it was restored from an old copy"
    )]
    OtherGeneration {
        /// The device's name.
        device: String,
        /// Its generation.
        found: u64,
        /// The other device's generation.
        expected: u64,
    },
    /// Another device has the place of this one, says the volume's other device.
    #[error(
        "{device} is not the device that the volume's other one names in its place: it was replaced, or is a copy of a device \
         that was not finished"
    )]
    Replaced {
        /// The device's name.
        device: String,
    },
    /// The device was written by a newer release.
    #[error("{device} has format {found}, newer than {known}, the newest this program knows")]
    NewerFormat {
        /// The device's name.
        device: String,
        /// Its format.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// The device became smaller.
    #[error("{device} has shrunk: it has {have_bytes} bytes and the volume needs {need_bytes}")]
    Shrunk {
        /// The device's name.
        device: String,
        /// Its size now.
        have_bytes: u64,
        /// What the volume uses.
        need_bytes: u64,
    },
    /// Metadata that was durable cannot be read back.
    #[error("{device} is corrupt at byte {offset}: {what}")]
    Corrupt {
        /// The device's name.
        device: String,
        /// Where.
        offset: u64,
        /// What was expected there.
        what: String,
    },
    /// The device failed.
    #[error("{device} failed at byte {offset}: device error {errno}")]
    Device {
        /// The device's name.
        device: String,
        /// Where.
        offset: u64,
        /// The operating system's error number.
        errno: i32,
    },
    /// The limits do not suffice.
    #[error("{what}")]
    Memory {
        /// One sentence.
        what: String,
    },
}

/// One thing that [`crate::check`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The device.
    pub device: Tier,
    /// Byte offset on it.
    pub offset: u64,
    /// One sentence.
    pub what: String,
}

/// What a repair did, or would do; what is beyond it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// What is written, where, and from what.
    pub repairs: Vec<Finding>,
    /// What keeps the volume closed all the same.
    pub beyond: Vec<Finding>,
    /// Ranges of the volume of which nothing says where they are, bytes.
    pub lost: Vec<std::ops::Range<u64>>,
}

/// The result of an offline check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// What is wrong; empty when clean.
    pub findings: Vec<Finding>,
    /// Chunks with a home.
    pub chunks: u64,
    /// Landed blocks.
    pub landed_blocks: u64,
    /// Blocks whose checksum was verified.
    pub verified_blocks: u64,
    /// Whether the volume was made before metadata had second copies, and has none.
    pub has_no_copies: bool,
    /// The last group of the log.
    pub log_end: u64,
    /// Groups that are there behind that, or were when an earlier opening found the log's end: nothing says that they were
    /// durable. A crash leaves some, and that is no fault; but so would a group before them that rotted.
    pub unconfirmed: Vec<UnconfirmedGroup>,
}

/// A group behind the log's end that is there, and does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnconfirmedGroup {
    /// Its number.
    pub group: u64,
    /// Where it begins on the fast device, bytes.
    pub offset: u64,
    /// Its length, blocks.
    pub blocks: u32,
    /// Whether all of its payload matches its checksums.
    pub whole: bool,
    /// What clients wrote that is in it.
    pub landed: Vec<UnconfirmedBlocks>,
    /// Records of other kinds in it.
    pub other_records: u32,
}

/// Neighbouring blocks in an [`UnconfirmedGroup`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnconfirmedBlocks {
    /// Where in the volume they would be.
    pub volume_byte: u64,
    /// Where on the fast device they are.
    pub fast_byte: u64,
    /// Their length, bytes.
    pub bytes: u64,
}

/// One sentence about groups behind the log's end; none where there are none.
pub fn describe_unconfirmed(log_end: u64, groups: &[UnconfirmedGroup]) -> Option<String> {
    let (first, last) = (groups.first()?, groups.last()?);
    let (count, broken) = (groups.len(), groups.iter().filter(|group| !group.whole).count());
    let which = match count {
        1 => format!("group {} is", first.group),
        _ => format!("{count} groups from {} to {} are", first.group, last.group),
    };
    let payload =
        if broken == 0 { String::new() } else { format!("; the payload of {broken} does not match") };
    Some(format!(
        "the log ended at group {log_end}; {which} there behind that, and nothing says that they had been flushed{payload}"
    ))
}
