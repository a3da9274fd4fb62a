//! The status of a volume as scripts read it.

use crate::attach::AttachedDoc;
use crate::lost::LossDoc;
use crate::meter::RequestsDoc;
use crate::protection::ProtectionDoc;
use crate::scrub::ScrubDoc;
use crate::successor::ReplaceDoc;
use bimetal_driver::{DeviceLoad, IoFacts, RemoteFacts};
use bimetal_engine::options::Status;
use bimetal_engine::policy::{Audit, Yield};
use serde::{Deserialize, Serialize};

/// The version of [`StatusDoc`]. Fields may be added under the same one; what a field means changes only with it.
pub const STATUS_VERSION: u32 = 1;

/// One tier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TierDoc {
    /// `fast`, `slow`, or `tier N` where there are more.
    pub name: String,
    /// Its path.
    pub device: String,
    /// Bytes of slots on it.
    pub size_bytes: u64,
    /// Bytes of slots in use.
    pub used_bytes: u64,
    /// Its part of the bytes that clients read since the volume was opened, 0 to 1.
    pub read_share: f64,
    /// Its part of the bytes that clients wrote since the volume was opened, 0 to 1.
    pub write_share: f64,
    /// Bytes that clients read from it.
    pub read_bytes: u64,
    /// Bytes that clients wrote to it.
    pub written_bytes: u64,
    /// Bytes written to the device in all: moves, log and metadata too.
    pub device_written_bytes: u64,
    /// Flushes sent to the device.
    pub flushes: u64,
    /// How often the device was used after a rest of 20 s, since the volume was opened.
    #[serde(default)]
    pub wakeups: WakeUpsDoc,
    /// Bytes of the volume that are pinned to it.
    #[serde(default)]
    pub pinned_bytes: u64,
    /// Since when the device has answered nothing; null while nothing is asked of it.
    #[serde(default)]
    pub silent_since_unix_s: Option<u64>,
    /// Whether I/O goes past the page cache.
    #[serde(default)]
    pub direct: bool,
    /// The smallest unit of I/O: a block device's logical sector, or the alignment of a file's direct I/O;
    /// null where there is none, or the kernel does not say.
    #[serde(default)]
    pub logical_sector_bytes: Option<u32>,
    /// The unit that a block device writes without reading first; null for files.
    #[serde(default)]
    pub physical_sector_bytes: Option<u32>,
    /// The modelled device whose times it keeps; null where it answers as soon as it can.
    #[serde(default)]
    pub model: Option<String>,
    /// What the device was asked for since the server opened it, and how busy it is.
    #[serde(default)]
    pub load: LoadDoc,
    /// How it stands, where it is an export of an NBD server; null for files and block devices.
    #[serde(default)]
    pub remote: Option<RemoteDoc>,
}

/// What a device was asked for since the server opened it; the opening's own reads are among it. Flushes and discards
/// count for the last four only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadDoc {
    /// Reads that have ended.
    pub reads: u64,
    /// Writes that have ended.
    pub writes: u64,
    /// Bytes of those reads.
    pub read_bytes: u64,
    /// Bytes of those writes.
    pub written_bytes: u64,
    /// Operations in flight now.
    pub in_flight: u64,
    /// Operations that have failed.
    pub errors: u64,
    /// Time with something in flight, microseconds.
    pub busy_us: u64,
    /// What all operations that have ended took, added up, microseconds.
    pub wait_us: u64,
}

impl From<&DeviceLoad> for LoadDoc {
    fn from(load: &DeviceLoad) -> LoadDoc {
        LoadDoc {
            reads: load.reads,
            writes: load.writes,
            read_bytes: load.read_bytes,
            written_bytes: load.written_bytes,
            in_flight: load.in_flight,
            errors: load.errors,
            busy_us: load.busy_ns / 1000,
            wait_us: load.wait_ns / 1000,
        }
    }
}

/// An export and its connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RemoteDoc {
    /// Connections to it.
    pub connections: u32,
    /// Whether single writes can be made durable there; else each is followed by a flush.
    pub fua: bool,
    /// Since when it cannot be reached; null while it can.
    pub away_since_unix_s: Option<u64>,
    /// How often its connections broke, or could not be made.
    pub breaks: u64,
    /// Requests that were sent again for that.
    pub resent: u64,
    /// Bytes that were written there and not flushed: they are kept in memory, and written again after a break.
    pub unflushed_bytes: u64,
}

impl From<RemoteFacts> for RemoteDoc {
    fn from(facts: RemoteFacts) -> RemoteDoc {
        RemoteDoc {
            connections: facts.connections,
            fua: facts.fua,
            away_since_unix_s: facts.away_since.map(bimetal_driver::Clock::unix_s),
            breaks: facts.breaks,
            resent: facts.resent,
            unflushed_bytes: facts.unflushed_bytes,
        }
    }
}

/// How often a device was woken, by whose work that was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WakeUpsDoc {
    /// By clients' requests.
    pub clients: u64,
    /// By what the volume does by itself.
    pub background: u64,
}

/// The landing zone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LandingDoc {
    /// Its size.
    pub size_bytes: u64,
    /// Bytes of segments in use.
    pub used_bytes: u64,
    /// Bytes of blocks whose newest copy is landed.
    pub landed_bytes: u64,
    /// Bytes appended to the log, headers included.
    pub log_written_bytes: u64,
    /// Client payload bytes appended to the log.
    pub log_payload_bytes: u64,
    /// Whether it is short: clients land no more than what is freed.
    #[serde(default)]
    pub short: bool,
}

/// How much the engine may write to the fast device of its own accord.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WearBudgetDoc {
    /// In a day.
    pub bytes_per_day: u64,
    /// What is left of it now.
    pub left_bytes: u64,
}

/// What the engine wrote to the fast device of its own accord, since the volume was opened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WearDoc {
    /// Bytes of chunks that were moved up.
    pub moved_bytes: u64,
    /// Bytes of copies of what was read from the slow tier.
    pub copied_bytes: u64,
    /// The limit; null where there is none.
    pub budget: Option<WearBudgetDoc>,
}

/// Whether chunks that rose have repaid it, and by what that is decided; since the volume was opened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MovesDoc {
    /// Chunks that rose, and have repaid it or gone down again.
    pub judged_chunks: u64,
    /// Those of them that repaid it.
    pub repaid_chunks: u64,
    /// How much sooner a read is answered from the fast tier, microseconds; null until it has been measured.
    pub saved_us_per_read: Option<f64>,
    /// What merging a block takes the slow device, which a write to a chunk on the fast tier saves; null until known.
    pub saved_us_per_write: Option<f64>,
    /// What moving a chunk takes the slow device; null until it has been measured.
    pub cost_us_per_move: Option<f64>,
    /// A move has to save so many times what it costs.
    pub caution: f64,
    /// Whether somebody has paused moves: nothing is moved but what empties the landing zone.
    #[serde(default)]
    pub paused: bool,
}

impl MovesDoc {
    fn new(audit: &Audit, paused: bool) -> MovesDoc {
        let Yield { read_ns, write_ns, move_ns, .. } = audit.yields;
        let us = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e3);
        MovesDoc {
            judged_chunks: audit.judged,
            repaid_chunks: audit.repaid,
            saved_us_per_read: us(read_ns),
            saved_us_per_write: us(write_ns),
            cost_us_per_move: us(move_ns),
            caution: audit.yields.caution(),
            paused,
        }
    }
}

/// The document that `status --json` prints and the control socket gives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatusDoc {
    /// [`STATUS_VERSION`]; 0 from servers from before there was one.
    #[serde(default)]
    pub version: u32,
    /// When this was so, milliseconds since 1970; 0 where nobody serves the volume.
    #[serde(default)]
    pub unix_ms: u64,
    /// Which opening this is, counted over the volume's life: counters begin anew with each.
    #[serde(default)]
    pub generation: u64,
    /// The volume's name.
    pub volume: String,
    /// `open`, `degraded`, `read-only`, `stopping`, or `closed` when no server has it.
    pub state: String,
    /// The volume's identity, 32 hexadecimal digits.
    pub volume_id: String,
    /// Size that clients see.
    pub size_bytes: u64,
    /// Bytes per chunk.
    pub chunk_bytes: u32,
    /// Fastest first.
    pub tiers: Vec<TierDoc>,
    /// The landing zone.
    pub landing: LandingDoc,
    /// Chunks moved up since the volume was opened.
    pub promoted_chunks: u64,
    /// Chunks moved down since the volume was opened.
    pub demoted_chunks: u64,
    /// Landed blocks merged into their homes since the volume was opened.
    pub destaged_blocks: u64,
    /// When the last promotion ended.
    pub last_promotion_unix_s: Option<u64>,
    /// Checkpoints since the volume was opened.
    pub checkpoints: u64,
    /// Client flushes answered since the volume was opened.
    pub client_flushes: u64,
    /// Bytes of the slow tier with shadows of chunks that were moved up: unchanged, these go down again without being
    /// copied. They give way to whatever needs their place, and count as free.
    #[serde(default)]
    pub shadowed_bytes: u64,
    /// Chunks among those moved down that had one.
    #[serde(default)]
    pub shadow_demoted_chunks: u64,
    /// Bytes of the slow tier that have a clean copy on the fast one, which gives way to whatever needs its place.
    pub copied_bytes: u64,
    /// Bytes read from such copies since the volume was opened.
    pub copy_read_bytes: u64,
    /// Reads of clients that were made again since the volume was opened, as a device had failed them or what was read was wrong.
    #[serde(default)]
    pub reads_again: u64,
    /// Those of them that got from shadows what the fast tier did not give.
    #[serde(default)]
    pub reads_from_shadows: u64,
    /// Blocks that were found wrong since the volume was opened, and are as they should be again.
    #[serde(default)]
    pub repaired_blocks: u64,
    /// The last scrub.
    #[serde(default)]
    pub scrub: ScrubDoc,
    /// A device that is to take another's place, or has since the volume was opened; null where there is none.
    #[serde(default)]
    pub replacing: Option<ReplaceDoc>,
    /// The image that the volume is protected by; null of one that is not.
    #[serde(default)]
    pub protection: Option<ProtectionDoc>,
    /// What moves and copies wrote to the fast device.
    #[serde(default)]
    pub wear: WearDoc,
    /// Whether what rose has repaid it.
    #[serde(default)]
    pub moves: MovesDoc,
    /// How often in a day what has landed may wake the slow device by itself; null is whenever it is quiet.
    #[serde(default)]
    pub timed_wakeups_per_day: Option<u64>,
    /// Bytes held by the engine's tables and caches.
    pub ram_bytes: u64,
    /// Bytes of the buffers between sockets and devices.
    pub buffer_bytes: u64,
    /// Clients connected.
    pub clients: u64,
    /// The volume file; empty where no server has the volume.
    #[serde(default)]
    pub file: String,
    /// The device of the machine that it is; null where it is none.
    #[serde(default)]
    pub attached: Option<AttachedDoc>,
    /// What the slow device says about itself, for the day on which the fast one is lost; null of a volume without marks.
    #[serde(default)]
    pub marks: Option<MarksDoc>,
    /// What is lost with a device that was missing when the volume was opened; null where both were there.
    #[serde(default)]
    pub loss: Option<LossDoc>,
    /// What clients have asked for, and how long answers took.
    #[serde(default)]
    pub requests: RequestsDoc,
}

/// What the slow device says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarksDoc {
    /// Whether a slow device at rest is woken for it.
    pub strict: bool,
    /// What would be suspect were the fast device lost now, or lost with it, in whole regions.
    pub suspect_bytes: u64,
}

/// What a volume is called in documents and messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeName(pub String);

impl StatusDoc {
    /// The document of an engine's status.
    pub fn new(name: &VolumeName, status: &Status) -> StatusDoc {
        let (mut read, mut written) = (0u64, 0u64);
        for tier in &status.tiers {
            read += tier.read_bytes;
            written += tier.written_bytes;
        }
        let tiers = status.tiers.iter().enumerate().map(|(index, tier)| TierDoc {
            name: tier_name(index),
            device: tier.device.clone(),
            size_bytes: tier.size_bytes,
            used_bytes: tier.used_bytes,
            read_share: share(tier.read_bytes, read),
            write_share: share(tier.written_bytes, written),
            read_bytes: tier.read_bytes,
            written_bytes: tier.written_bytes,
            device_written_bytes: tier.device_written_bytes,
            flushes: tier.flushes,
            wakeups: WakeUpsDoc { clients: tier.wakeups.clients, background: tier.wakeups.background },
            pinned_bytes: tier.pinned_bytes,
            silent_since_unix_s: tier.silent_since.map(bimetal_driver::Clock::unix_s),
            direct: false,
            logical_sector_bytes: None,
            physical_sector_bytes: None,
            model: None,
            load: LoadDoc::default(),
            remote: None,
        });
        StatusDoc {
            version: STATUS_VERSION,
            unix_ms: 0,
            generation: status.generation,
            volume: name.0.clone(),
            state: status.state.to_owned(),
            volume_id: hex(&status.volume_id),
            size_bytes: status.size_bytes,
            chunk_bytes: status.chunk_bytes,
            tiers: tiers.collect(),
            landing: LandingDoc {
                size_bytes: status.landing_size_bytes,
                used_bytes: status.landing_used_bytes,
                landed_bytes: status.landed_bytes,
                log_written_bytes: status.log_written_bytes,
                log_payload_bytes: status.log_payload_bytes,
                short: status.landing_is_short,
            },
            promoted_chunks: status.promoted_chunks,
            demoted_chunks: status.demoted_chunks,
            destaged_blocks: status.destaged_blocks,
            last_promotion_unix_s: status.last_promotion.map(bimetal_driver::Clock::unix_s),
            checkpoints: status.checkpoints,
            client_flushes: status.client_flushes,
            shadowed_bytes: status.shadowed_bytes,
            shadow_demoted_chunks: status.shadow_demoted_chunks,
            copied_bytes: status.copied_bytes,
            copy_read_bytes: status.copy_read_bytes,
            reads_again: status.reads_again,
            reads_from_shadows: status.reads_from_shadows,
            repaired_blocks: status.repaired_blocks,
            scrub: ScrubDoc::new(&status.scrub, status.chunk_bytes),
            replacing: None,
            protection: None,
            wear: WearDoc {
                moved_bytes: status.wear.moved_bytes,
                copied_bytes: status.wear.copied_bytes,
                budget: status.wear.budget.map(|budget| WearBudgetDoc {
                    bytes_per_day: budget.bytes_per_day,
                    left_bytes: budget.left_bytes,
                }),
            },
            moves: MovesDoc::new(&status.audit, status.moves_paused),
            timed_wakeups_per_day: status.timed_wakeups_per_day,
            ram_bytes: status.ram_bytes,
            buffer_bytes: 0,
            clients: 0,
            file: String::new(),
            attached: None,
            marks: status
                .marks
                .map(|marks| MarksDoc { strict: marks.strict, suspect_bytes: marks.suspect_bytes }),
            loss: status.loss.as_ref().map(LossDoc::from),
            requests: RequestsDoc::default(),
        }
    }

    /// Adds what the devices were asked for, in tier order.
    pub fn load_devices(&mut self, loads: &[DeviceLoad]) {
        for (tier, load) in self.tiers.iter_mut().zip(loads) {
            tier.load = load.into();
        }
    }

    /// Adds what the driver knows of the devices, in tier order.
    pub fn describe_devices(&mut self, devices: &[IoFacts]) {
        for (tier, facts) in self.tiers.iter_mut().zip(devices) {
            tier.direct = facts.direct;
            tier.logical_sector_bytes = facts.logical_sector_bytes;
            tier.physical_sector_bytes = facts.physical_sector_bytes;
            tier.model = facts.model.map(str::to_owned);
            tier.remote = facts.remote.map(RemoteDoc::from);
        }
    }
}

/// What a tier is called.
pub fn tier_name(index: usize) -> String {
    match index {
        0 => "fast".to_owned(),
        1 => "slow".to_owned(),
        more => format!("tier {more}"),
    }
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
