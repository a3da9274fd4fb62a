//! What a parameter file says about an SSD.

use crate::spec::{SpecError, at_least, power_of_two, within};
use serde::{Deserialize, Serialize};

/// An SSD or a flash card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SsdParams {
    /// What it stands for, for people.
    pub description: String,
    /// Bytes that the host sees.
    pub size_bytes: u64,
    /// Bytes of flash behind them; what is more is over-provisioning.
    pub flash_bytes: u64,
    /// What lies between the host and the controller, and the controller's own time.
    pub host: HostParams,
    /// Where writes go first.
    pub buffer: BufferParams,
    /// The chips and the channels to them.
    pub flash: FlashParams,
    /// How the controller keeps house.
    pub ftl: FtlParams,
    /// A part of the flash written with one bit per cell; none if absent.
    pub slc: Option<SlcParams>,
}

/// Interface and controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostParams {
    /// Commands in flight at most; more wait before it.
    pub queue_depth: u32,
    /// Added to each command; any number of commands pass it side by side.
    pub latency_ns: u64,
    /// The controller's time for a read, one command at a time: its inverse is a limit on IOPS.
    pub read_command_ns: u64,
    /// The same for a write or a discard.
    pub write_command_ns: u64,
    /// The interface towards the host.
    pub read_bytes_per_s: u64,
    /// The interface from the host.
    pub write_bytes_per_s: u64,
    /// Time on the interface that each read takes beside its bytes.
    pub read_overhead_ns: u64,
    /// The same for a write.
    pub write_overhead_ns: u64,
    /// Whether both directions run at once.
    pub full_duplex: bool,
    /// Time of a flush beside what it waits for.
    pub flush_ns: u64,
    /// Time of a discard, whatever its length.
    pub discard_ns: u64,
}

/// What holds written data before the flash does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BufferKind {
    /// A write is complete in the buffer; a flush drains it.
    Volatile,
    /// A write is complete in the buffer, which outlives a power cut; a flush has nothing to do.
    Protected,
    /// A write is complete on the flash.
    WriteThrough,
}

/// The write buffer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BufferParams {
    /// What completes a write.
    pub kind: BufferKind,
    /// Bytes of data waiting for the flash.
    pub size_bytes: u64,
}

/// The chips.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlashParams {
    /// Channels, each of which transfers one page at a time.
    pub channels: u32,
    /// Dies on a channel, each of which reads, programs or erases on its own.
    pub dies_per_channel: u32,
    /// What a die programs at once, over all its planes.
    pub page_bytes: u32,
    /// Pages in what a die erases at once.
    pub pages_per_block: u32,
    /// From cells to the die's register, with error correction.
    pub read_ns: u64,
    /// From the register to cells, on average over the pages of a block.
    pub program_ns: u64,
    /// A block.
    pub erase_ns: u64,
    /// Between register and controller.
    pub channel_bytes_per_s: u64,
    /// Whether a channel goes on with other commands while one of its dies reads. Simple controllers do not; the
    /// pages of one command they overlap all the same.
    pub overlapped_reads: bool,
    /// How soon a die that programs or erases lets a read pass; as long as the operation takes if absent.
    pub suspend_ns: Option<u64>,
}

/// The flash translation layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FtlParams {
    /// The unit of mapping: what is written smaller costs a read. The model takes 8 bytes of memory for each unit
    /// that was ever written.
    pub mapping_unit_bytes: u32,
    /// Collect garbage beside the host's writes when so few superblocks (a block of every die) are free.
    pub collect_below_superblocks: u32,
    /// While nobody asks, collect until so much of the flash is free (percent); never if 0.
    pub background_free_percent: u32,
    /// How long nobody must have asked before that.
    pub background_after_ns: u64,
}

/// The SLC cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlcParams {
    /// Bytes that it takes at most; it shrinks as the flash fills up.
    pub size_bytes: u64,
    /// Bits of a cell outside it: what a block holds less inside it.
    pub bits_per_cell: u32,
    /// As in `flash`, in the cache.
    pub read_ns: u64,
    /// As in `flash`, in the cache.
    pub program_ns: u64,
}

/// A minute: no single step of a flash device takes longer.
const LONGEST_NS: u64 = 60_000_000_000;
const RATES: std::ops::RangeInclusive<u64> = 1_000_000..=1_000_000_000_000;
/// Superblocks that the spare flash must make up beyond those kept free and the two being written.
const SPARE_SUPERBLOCKS: u64 = 4;
const FEWEST_SUPERBLOCKS: u64 = 16;
/// Pages of a block below which a smaller drive does not go.
const FEWEST_PAGES: u32 = 4;

impl SsdParams {
    /// Checks that a model can be made of it; in one sentence why not.
    pub fn validate(&self) -> Result<(), SpecError> {
        within("size_bytes", self.size_bytes, 1 << 20..=1 << 46)?;
        within("flash_bytes", self.flash_bytes, self.size_bytes..=self.size_bytes.saturating_mul(4))?;
        self.host.validate()?;
        self.flash.validate()?;
        let page = u64::from(self.flash.page_bytes);
        within("buffer.size_bytes", self.buffer.size_bytes, 2 * page..=16 << 30)?;
        let unit = u64::from(self.ftl.mapping_unit_bytes);
        power_of_two("ftl.mapping_unit_bytes", unit)?;
        within("ftl.mapping_unit_bytes", unit, 512..=page)?;
        within("flash_bytes / ftl.mapping_unit_bytes", self.flash_bytes / unit, 1..=u64::from(u32::MAX) - 2)?;
        within("ftl.background_free_percent", self.ftl.background_free_percent.into(), 0..=90)?;
        within("ftl.background_after_ns", self.ftl.background_after_ns, 0..=60 * LONGEST_NS)?;
        if let Some(slc) = &self.slc {
            within("slc.size_bytes", slc.size_bytes, 1..=self.flash_bytes)?;
            within("slc.bits_per_cell", slc.bits_per_cell.into(), 2..=6)?;
            within("slc.read_ns", slc.read_ns, 1..=LONGEST_NS)?;
            within("slc.program_ns", slc.program_ns, 1..=LONGEST_NS)?;
        }
        self.validate_superblocks()
    }

    fn validate_superblocks(&self) -> Result<(), SpecError> {
        let superblock = self.superblock_bytes();
        within(
            "superblocks (flash_bytes / a block of every die)",
            self.flash_bytes / superblock,
            16..=65_536,
        )?;
        within("ftl.collect_below_superblocks", self.ftl.collect_below_superblocks.into(), 2..=4096)?;
        let spare = (self.flash_bytes / superblock).saturating_sub(self.size_bytes.div_ceil(superblock));
        let needed = u64::from(self.ftl.collect_below_superblocks) + SPARE_SUPERBLOCKS;
        at_least("superblocks beyond size_bytes", spare, needed)
    }

    /// Bytes of a block of every die.
    pub fn superblock_bytes(&self) -> u64 {
        let flash = &self.flash;
        [flash.dies_per_channel, flash.page_bytes, flash.pages_per_block]
            .iter()
            .fold(u64::from(flash.channels), |bytes, &factor| bytes * u64::from(factor))
    }

    /// The same drive with so many bytes: the same dies and times, blocks made smaller where there would be too few,
    /// so that over-provisioning is the same in parts and a fill or a torture is shorter in proportion. A drive of
    /// some hundred MB has more spare flash than that, as it needs some blocks to collect garbage at all.
    #[must_use]
    pub fn resized(&self, size_bytes: u64) -> SsdParams {
        let mut p = self.clone();
        let scale = |bytes: u64| {
            (u128::from(bytes) * u128::from(size_bytes) / u128::from(self.size_bytes.max(1))) as u64
        };
        p.size_bytes = size_bytes;
        p.flash_bytes = scale(self.flash_bytes);
        if let Some(slc) = &mut p.slc {
            slc.size_bytes = scale(slc.size_bytes).max(1);
        }
        let blocks = self.flash_bytes / self.superblock_bytes().max(1);
        while p.flash_bytes / p.superblock_bytes().max(1) < blocks.min(512)
            && p.flash.pages_per_block > FEWEST_PAGES
        {
            p.flash.pages_per_block /= 2;
            p.flash.erase_ns = (p.flash.erase_ns / 2).max(1);
        }
        let superblock = p.superblock_bytes().max(1);
        let used = size_bytes.div_ceil(superblock);
        let total = (p.flash_bytes / superblock).max(used + 2 * SPARE_SUPERBLOCKS).max(FEWEST_SUPERBLOCKS);
        p.flash_bytes = p.flash_bytes.max(total.saturating_mul(superblock));
        let spare = (total - used - SPARE_SUPERBLOCKS).min(u64::from(u32::MAX)) as u32;
        p.ftl.collect_below_superblocks = p.ftl.collect_below_superblocks.min(spare);
        p
    }
}

impl HostParams {
    fn validate(&self) -> Result<(), SpecError> {
        within("host.queue_depth", self.queue_depth.into(), 1..=65_536)?;
        for (field, ns) in [
            ("host.latency_ns", self.latency_ns),
            ("host.read_command_ns", self.read_command_ns),
            ("host.write_command_ns", self.write_command_ns),
            ("host.read_overhead_ns", self.read_overhead_ns),
            ("host.write_overhead_ns", self.write_overhead_ns),
            ("host.flush_ns", self.flush_ns),
            ("host.discard_ns", self.discard_ns),
        ] {
            within(field, ns, 0..=LONGEST_NS)?;
        }
        within("host.read_bytes_per_s", self.read_bytes_per_s, RATES)?;
        within("host.write_bytes_per_s", self.write_bytes_per_s, RATES)
    }
}

impl FlashParams {
    fn validate(&self) -> Result<(), SpecError> {
        within("flash.channels", self.channels.into(), 1..=256)?;
        within("flash.dies_per_channel", self.dies_per_channel.into(), 1..=256)?;
        power_of_two("flash.page_bytes", self.page_bytes.into())?;
        within("flash.page_bytes", self.page_bytes.into(), 512..=1 << 20)?;
        within("flash.pages_per_block", self.pages_per_block.into(), 1..=65_536)?;
        within("flash.read_ns", self.read_ns, 1..=LONGEST_NS)?;
        within("flash.program_ns", self.program_ns, 1..=LONGEST_NS)?;
        within("flash.erase_ns", self.erase_ns, 1..=LONGEST_NS)?;
        within("flash.suspend_ns", self.suspend_ns.unwrap_or(0), 0..=LONGEST_NS)?;
        within("flash.channel_bytes_per_s", self.channel_bytes_per_s, RATES)
    }
}
