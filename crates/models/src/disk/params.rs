//! The parameters of a drive, as its TOML file holds them.

use serde::{Deserialize, Serialize};

mod check;
mod resize;

/// A drive. Times are nanoseconds, sectors are the unit of its layout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskParams {
    /// What it is called: letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Bytes in a sector of the layout: 512 or 4096. What does not begin and end at a sector is written by reading
    /// the sector first, which takes a revolution more.
    pub sector_bytes: u32,
    /// Bytes that it holds; 0 for all that the zones hold. Not more than those.
    #[serde(default)]
    pub size_bytes: u64,
    /// Surfaces with a head each.
    pub surfaces: u32,
    /// Nanoseconds of a revolution.
    pub rotation_period_ns: u32,
    /// Rotation before time zero, in nanoseconds below a revolution: nobody synchronises a spindle with a clock.
    #[serde(default)]
    pub spindle_phase_ns: u32,
    /// In which order the heads of a cylinder are used.
    #[serde(default)]
    pub serpentine: Serpentine,
    /// How the arm moves.
    pub arm: ArmParams,
    /// What commands cost apart from the medium.
    pub overheads: OverheadParams,
    /// In which order commands are served.
    pub queue: QueueParams,
    /// The buffer and what is read into it unasked.
    pub buffer: BufferParams,
    /// The volatile write cache.
    pub write_cache: WriteCacheParams,
    /// The zones, outermost first.
    pub zones: Vec<ZoneParams>,
}

/// In which order the heads of a cylinder are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Serpentine {
    /// From the first to the last on every cylinder.
    #[default]
    None,
    /// Backwards on every other cylinder, counted from the beginning of the zone.
    ByZone,
    /// Backwards on every cylinder with an odd number.
    ByCylinder,
}

/// Which tracks share their spare sectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spares {
    /// There are none.
    #[default]
    None,
    /// Each track has its own.
    Track,
    /// Groups of cylinders have theirs.
    Cylinders,
    /// At the end of the zone.
    Zone,
}

/// Cylinders with the same number of sectors on a track.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZoneParams {
    /// First cylinder.
    pub first_cylinder: u32,
    /// Cylinders.
    pub cylinders: u32,
    /// Sectors on a track, spares and defects too.
    pub sectors_per_track: u32,
    /// Sectors by which a track begins later than the one before it on the same cylinder.
    #[serde(default)]
    pub track_skew_sectors: f64,
    /// Sectors by which a cylinder's first track begins later than the last one of the cylinder before it.
    #[serde(default)]
    pub cylinder_skew_sectors: f64,
    /// Where the zone's first track begins, in sectors from the index.
    #[serde(default)]
    pub first_sector_angle_sectors: f64,
    /// Sectors without an address at the beginning of the zone.
    #[serde(default)]
    pub gap_sectors: u32,
    /// Which tracks share spare sectors.
    #[serde(default)]
    pub spares: Spares,
    /// Spare sectors of each group.
    #[serde(default)]
    pub spare_sectors: u32,
    /// Cylinders in a group, with `spares = "cylinders"`.
    #[serde(default = "one")]
    pub spare_group_cylinders: u32,
    /// Whether the spares come before the addresses of a group.
    #[serde(default)]
    pub spares_at_front: bool,
    /// Whether a slipped sector moves all addresses up to the end of the zone, not only those of its group.
    #[serde(default)]
    pub slips_to_end: bool,
    /// Whether a slipped sector moves the beginnings of the tracks behind it as well.
    #[serde(default)]
    pub slips_push_skew: bool,
    /// Defects that addresses jump over: first sector counted in the zone, and how many; sorted.
    #[serde(default)]
    pub slips: Vec<(u64, u32)>,
}

/// How the arm moves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmParams {
    /// Distance in cylinders and nanoseconds, sorted by distance; straight lines between.
    pub seek_ns: Vec<(u32, u32)>,
    /// Nanoseconds to another head; overlaps with a seek.
    pub head_switch_ns: u32,
    /// Nanoseconds more before a write, when the arm has moved or the head has changed. Where it is negative, the
    /// seek times are those of reads that settle for longer; no move takes less than no time.
    #[serde(default)]
    pub write_settle_ns: i32,
    /// Nanoseconds that a read takes at least, once its command is understood, before the medium is read: what it
    /// takes to be on a track, be it the one that the head was on.
    #[serde(default)]
    pub least_read_seek_ns: u32,
    /// Nanoseconds that a write to another place than the last takes at least before the medium is written.
    #[serde(default)]
    pub least_write_seek_ns: u32,
}

/// What a command costs by what the command before it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandNs {
    /// Nanoseconds when the command before was a read.
    pub after_read: u32,
    /// Nanoseconds when the command before was a write.
    pub after_write: u32,
}

/// What commands cost apart from the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverheadParams {
    /// Nanoseconds for a sector on the bus.
    pub bus_ns_per_sector: u32,
    /// A read that the buffer holds; before its data are transferred.
    pub read_hit_ns: CommandNs,
    /// Any other read; before the arm moves.
    pub read_miss_ns: CommandNs,
    /// A write that is complete when the cache has it; before its data are transferred.
    pub cached_write_ns: CommandNs,
    /// Any other write; before its data are transferred and the arm moves.
    pub write_ns: CommandNs,
    /// After the data of a read, before it is complete.
    #[serde(default)]
    pub read_completion_ns: u32,
    /// After the data of a write, before it is complete.
    #[serde(default)]
    pub write_completion_ns: u32,
    /// Before data are transferred, beside the work of the medium.
    #[serde(default)]
    pub transfer_preparation_ns: u32,
    /// To reconnect to the host when the medium has been waited for.
    #[serde(default)]
    pub reconnection_ns: u32,
    /// More before the data of a write are transferred, when the write before it was not contiguous; beside the
    /// work of the medium.
    #[serde(default)]
    pub scattered_write_ns: u32,
    /// Thousandths of a read that are in the buffer before its transfer begins; 0 for the first sector.
    #[serde(default)]
    pub read_watermark_permille: u32,
}

/// The order in which queued commands are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueuePolicy {
    /// As they came.
    Fifo,
    /// By address, upwards, and again from the lowest: knows nothing of rotation.
    Elevator,
    /// Shortest positioning time, rotation included, first.
    Sptf,
}

/// In which order commands are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueParams {
    /// Commands that the drive takes at a time, 1 to 256; more wait before it.
    pub depth: u32,
    /// How the next is chosen.
    pub policy: QueuePolicy,
    /// Among how many, the oldest, it is chosen: commands, and entries of the write cache.
    pub window: u32,
    /// Nanoseconds by which the medium must be reached early for the drive to count on this revolution; with `sptf`.
    #[serde(default)]
    pub margin_ns: u32,
    /// Nanoseconds after which the oldest is served first; 0 for never.
    #[serde(default)]
    pub oldest_first_after_ns: u64,
}

/// How far is read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadAhead {
    /// Not at all.
    None,
    /// To the end of the track.
    Track,
    /// To the end of the cylinder.
    Cylinder,
    /// Until the segment is full.
    Segment,
    /// To the end of the track, and of the next one where the track before has been read, too.
    NextTrack,
}

/// The buffer and what is read into it unasked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BufferParams {
    /// Segments; 0 for no buffering of what was read.
    pub segments: u32,
    /// Sectors in a segment.
    pub segment_sectors: u32,
    /// How far is read ahead.
    pub read_ahead: ReadAhead,
    /// Sectors that are read ahead at most.
    pub read_ahead_sectors: u32,
    /// Whether it reads ahead only behind a read that began where the one before it from the same segment had ended.
    #[serde(default)]
    pub read_ahead_in_order_only: bool,
    /// Whether what was read ahead may take the place of what was asked for.
    #[serde(default)]
    pub read_ahead_over_requested: bool,
    /// Whether a read that the buffer holds starts the reading ahead again.
    #[serde(default)]
    pub read_ahead_after_hit: bool,
    /// Whether a read that begins where reading ahead has come to joins it, rather than beginning anew.
    #[serde(default)]
    pub join_read_ahead: bool,
    /// Whether reading ahead stops within a sector, not at its end.
    #[serde(default)]
    pub stop_within_sector: bool,
    /// Whether sectors of the track that pass the head before the first that is asked for are kept.
    #[serde(default)]
    pub keep_passing_sectors: bool,
    /// Whether a read begins with whichever of its sectors passes the head first.
    #[serde(default)]
    pub zero_latency_reads: bool,
    /// The same for writes.
    #[serde(default)]
    pub zero_latency_writes: bool,
    /// Whether what the host has read, and what lies before it, makes room at once.
    #[serde(default)]
    pub drop_transferred: bool,
    /// Whether a write makes room by dropping all that was read.
    #[serde(default)]
    pub drop_read_at_write: bool,
    /// Whether what was written can be read from the buffer.
    #[serde(default)]
    pub keep_written: bool,
}

/// The volatile write cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteCacheParams {
    /// Ranges that it holds; 0 for no cache: a write is complete when it is on the medium.
    pub entries: u32,
    /// Sectors in a range at most; a longer write goes past the cache.
    pub entry_sectors: u32,
    /// Nanoseconds that an entry waits for more before it is written, when nothing else is to be done.
    #[serde(default)]
    pub delay_ns: u64,
}

fn one() -> u32 {
    1
}

impl DiskParams {
    /// Bytes that the zones hold.
    pub(crate) fn zoned_bytes(&self) -> u64 {
        let sectors: u64 = self.zones.iter().map(|zone| zone.addresses(self.surfaces)).sum();
        sectors * u64::from(self.sector_bytes)
    }

    /// Bytes that the drive holds.
    pub fn bytes(&self) -> u64 {
        if self.size_bytes == 0 { self.zoned_bytes() } else { self.size_bytes }
    }
}

impl ZoneParams {
    /// Sectors of the zone, those without an address too.
    pub(crate) fn total_sectors(&self, surfaces: u32) -> u64 {
        u64::from(self.cylinders) * u64::from(surfaces) * u64::from(self.sectors_per_track)
    }

    /// Sectors of the zone without an address, its gap aside.
    fn spared(&self, surfaces: u32) -> u64 {
        let spares = u64::from(self.spare_sectors);
        let tracks = u64::from(self.cylinders) * u64::from(surfaces);
        let slipped: u64 = self.slips.iter().map(|&(_, count)| u64::from(count)).sum();
        let groups = match self.spares {
            Spares::None => return if self.slips_to_end { slipped } else { 0 },
            Spares::Zone => 1,
            Spares::Track => tracks,
            Spares::Cylinders => u64::from(self.cylinders / self.spare_group_cylinders.max(1)),
        };
        spares.saturating_mul(groups) + if self.slips_to_end { slipped } else { 0 }
    }

    /// Sectors of the zone that have an address.
    pub(crate) fn addresses(&self, surfaces: u32) -> u64 {
        self.total_sectors(surfaces)
            .saturating_sub(u64::from(self.gap_sectors))
            .saturating_sub(self.spared(surfaces))
    }
}
