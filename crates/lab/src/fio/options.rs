//! What a job's options say, with fio's defaults for those that say nothing.

use super::iolog::ReplayOptions;
use super::number::Extent;
use crate::job::Zones;

/// One value for reads, one for writes, one for discards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct PerSide<T> {
    pub read: T,
    pub write: T,
    pub trim: T,
}

impl<T: Clone> PerSide<T> {
    /// The same for all.
    pub fn all(value: T) -> PerSide<T> {
        PerSide { read: value.clone(), write: value.clone(), trim: value }
    }
}

impl<T> PerSide<T> {
    /// In fio's order: reads, writes, discards.
    pub fn sides(&self) -> [&T; 3] {
        [&self.read, &self.write, &self.trim]
    }

    pub(crate) fn sides_mut(&mut self) -> [&mut T; 3] {
        [&mut self.read, &mut self.write, &mut self.trim]
    }
}

/// How I/O reaches the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// Asynchronously, through our ring: for fio's libaio, posixaio, windowsaio and io_uring.
    Ring,
    /// One at a time: for fio's sync, psync, pvsync, pvsync2 and mmap. The queue depth is 1 whatever `iodepth` says.
    Synchronous,
    /// To a server of the network block device protocol.
    Nbd,
    /// Nowhere: it measures the lab itself.
    Null,
}

/// What is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Reads.
    #[default]
    Read,
    /// Writes.
    Write,
    /// Both, by [`JobOptions::read_percent`].
    ReadWrite,
    /// Discards.
    Trim,
    /// Each block is discarded and then written.
    TrimWrite,
}

impl Direction {
    /// Whether it reads, writes, discards.
    pub fn does(self) -> PerSide<bool> {
        let (read, write, trim) = match self {
            Direction::Read => (true, false, false),
            Direction::Write => (false, true, false),
            Direction::ReadWrite => (true, true, false),
            Direction::Trim => (false, false, true),
            Direction::TrimWrite => (false, true, true),
        };
        PerSide { read, write, trim }
    }
}

/// What [`JobOptions::ios_per_offset`] I/Os do with one random offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sequencer {
    /// They follow one another.
    #[default]
    Sequential,
    /// They are all at it.
    Identical,
}

/// Sizes of I/Os.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockSizes {
    /// All the same, bytes.
    Fixed(u64),
    /// Multiples of the lower one, bytes, all equally likely; any number of bytes if [`JobOptions::unaligned`].
    Range(u64, u64),
    /// Pairs of bytes and a percentage; they add up to 100.
    Split(Vec<(u64, u8)>),
}

impl BlockSizes {
    /// The smallest one, bytes.
    pub fn smallest_bytes(&self) -> u64 {
        match self {
            BlockSizes::Fixed(bytes) | BlockSizes::Range(bytes, _) => *bytes,
            BlockSizes::Split(shares) => shares.iter().map(|share| share.0).min().unwrap_or(0),
        }
    }

    /// The largest one, bytes.
    pub fn largest_bytes(&self) -> u64 {
        match self {
            BlockSizes::Fixed(bytes) | BlockSizes::Range(_, bytes) => *bytes,
            BlockSizes::Split(shares) => shares.iter().map(|share| share.0).max().unwrap_or(0),
        }
    }
}

/// A share of accesses that falls into a part of the span.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Zone<T> {
    /// Percent of the accesses.
    pub accesses_percent: u8,
    /// How large the part is: percent of the span or bytes. Parts lie one behind the other.
    pub part: T,
}

/// Where random I/O goes.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Distribution {
    /// Everywhere alike.
    #[default]
    Uniform,
    /// Zipf's law.
    Zipf {
        /// Its exponent.
        theta: f64,
        /// Where its peak is, as a part of the span (0 to 1); none for a place drawn from the seed.
        center: Option<f64>,
    },
    /// Pareto's law.
    Pareto {
        /// Its power, between 0 and 1.
        power: f64,
        /// As with [`Distribution::Zipf`].
        center: Option<f64>,
    },
    /// A bell.
    Normal {
        /// Its deviation, percent of the span.
        deviation_percent: f64,
        /// Where its middle is, as a part of the span (0 to 1); 0.5 if none.
        center: Option<f64>,
    },
    /// Shares of accesses for percentages of the span.
    Zoned(PerSide<Vec<Zone<u8>>>),
    /// Shares of accesses for bytes of it.
    ZonedAbsolute(PerSide<Vec<Zone<u64>>>),
}

/// When the I/Os of a limited rate begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// Evenly.
    #[default]
    Linear,
    /// As strangers do: with exponential gaps.
    Poisson,
}

/// What makes a write durable by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Durability {
    #[default]
    None,
    Sync,
    DataSync,
}

/// A part of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternPart {
    /// As they stand.
    Bytes(Vec<u8>),
    /// The offset of the block, 8 bytes, little-endian.
    Offset,
}

/// What is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Data {
    /// Random bytes, drawn once for a buffer and changed a little from I/O to I/O.
    #[default]
    Scrambled,
    /// New random bytes for each write.
    Refilled,
    /// Zeros.
    Zeros,
    /// A pattern, repeated.
    Pattern(Vec<PatternPart>),
}

/// Whether a job works in zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneMode {
    /// If they have a size.
    Unsaid,
    /// Not at all.
    None,
    /// One after the other.
    Strided,
}

/// What is written so that it can be told from anything else when it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Stamps of our own in each sector, whichever checksum was named.
    Checksum,
    /// [`JobOptions::verify_pattern`].
    Pattern,
    /// Reading back is all that matters.
    Null,
}

/// What is watched for a steady state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Metric {
    Iops,
    Bandwidth,
    Latency,
}

/// How far it may be from steady.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Percent of the mean.
    Percent(f64),
    /// In fio's unit of the metric: I/Os per second, bytes per second, nanoseconds.
    Absolute(f64),
}

/// A steady state, on which a job ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SteadyState {
    /// What is watched.
    pub metric: Metric,
    /// Whether the slope of a line through the samples is limited; otherwise each sample's distance from the mean.
    pub slope: bool,
    /// The limit.
    pub limit: Limit,
}

/// Which file of a job comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileService {
    /// So many I/Os of one, then as many of the next.
    Turns(u32),
    /// All of one, then all of the next.
    Sequential,
}

/// Which other jobs the end of one ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Those of its group.
    Group,
    /// Those that run side by side with it.
    Phase,
    /// All, those that have not begun too.
    All,
}

/// fio's logs that a job writes. A name that is empty is the job's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// `NAME_bw.N.log`.
    pub bandwidth: Option<String>,
    /// `NAME_lat.N.log`, `NAME_slat.N.log` and `NAME_clat.N.log`.
    pub latency: Option<String>,
    /// `NAME_iops.N.log`.
    pub iops: Option<String>,
    /// All I/Os as a trace that fio replays.
    pub iolog: Option<String>,
    /// One line for so many nanoseconds; 0 for one for each I/O.
    pub window_ns: u64,
    /// Of a window the highest value stands there, not the mean.
    pub highest: bool,
    /// Lines have the offset, too.
    pub offset: bool,
    /// Jobs share one file of each kind.
    pub shared: bool,
    /// Times are of the wall clock.
    pub wall_clock: bool,
}

/// Whether reads, writes and discards are reported as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unified {
    /// Each for itself.
    #[default]
    Apart,
    /// Only as one.
    Mixed,
    /// Each for itself, and all as one.
    Both,
}

/// What the report shows. The record has all of it anyway.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Faces {
    pub group_reporting: bool,
    pub unified: Unified,
    pub slat_percentiles: bool,
    pub clat_percentiles: bool,
    pub lat_percentiles: bool,
    /// Ascending, at most 20.
    pub percentiles: Vec<f64>,
    pub slat: bool,
    pub clat: bool,
    pub lat: bool,
    pub bandwidth: bool,
}

/// Percentiles that fio shows when it is not told which.
pub const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

impl Default for Faces {
    fn default() -> Faces {
        Faces {
            group_reporting: false,
            unified: Unified::default(),
            slat_percentiles: false,
            clat_percentiles: true,
            lat_percentiles: false,
            percentiles: PERCENTILES.to_vec(),
            slat: true,
            clat: true,
            lat: true,
            bandwidth: true,
        }
    }
}

/// The options of a job. Times are nanoseconds, sizes bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct JobOptions {
    /// Goes before the section's name.
    pub name: Option<String>,
    /// Free text.
    pub description: Option<String>,
    /// Targets; where there is none, fio makes a file with the job's name.
    pub filenames: Vec<String>,
    /// Where files are that are not named by a whole path.
    pub directory: Option<String>,
    /// How many files, where none is named.
    pub files: u32,
    /// What they are called, with `$jobname`, `$jobnum` and `$filenum` in it.
    pub filename_format: Option<String>,
    /// Which of several files comes next.
    pub file_service: FileService,
    /// A file that is missing is made.
    pub creates_files: bool,
    /// It works behind the end that a file had.
    pub appends: bool,
    /// Files are written in full before the run.
    pub overwrites: bool,
    /// Files are read before the run.
    pub pre_reads: bool,
    /// The processors that the jobs run on; any if none is named.
    pub processors: Vec<u16>,
    /// How I/O gets there.
    pub engine: EngineKind,
    /// fio's name for it.
    pub engine_name: String,
    /// For [`EngineKind::Nbd`].
    pub nbd_uri: Option<String>,

    /// What is done.
    pub direction: Direction,
    /// At random offsets; otherwise one after the other.
    pub random: bool,
    /// I/Os for each random offset.
    pub ios_per_offset: u32,
    /// What those do.
    pub sequencer: Sequencer,
    /// What a sequential offset moves beyond the end of the last I/O; may be negative.
    pub gap_bytes: i64,
    /// Reads of a mix, percent.
    pub read_percent: u8,
    /// `bs`.
    pub block_bytes: PerSide<u64>,
    /// `bsrange`, before `bs`.
    pub block_range_bytes: PerSide<Option<(u64, u64)>>,
    /// `bssplit`, before both; empty if not given.
    pub block_split: PerSide<Vec<(u64, u8)>>,
    /// I/Os need not be multiples of the smallest size.
    pub unaligned: bool,
    /// What random offsets are multiples of; the smallest block if none.
    pub align_bytes: PerSide<Option<u64>>,
    /// What share of the offsets is random.
    pub random_percent: PerSide<u8>,
    /// Where they are.
    pub distribution: Distribution,
    /// Blocks may be met twice before all have been met once.
    pub no_random_map: bool,
    /// The seed, if one was given.
    pub seed: Option<u64>,
    /// The same run each time when no seed was given.
    pub repeatable: bool,

    /// The part of the target that is used, and how much I/O is done: all of it if none.
    pub size: Option<Extent>,
    /// How much I/O is done, if that is another: bytes, or percent of `size`.
    pub io_size: Option<Extent>,
    /// Where it begins.
    pub offset: Extent,
    /// What each copy of a job (`numjobs`) adds to it.
    pub offset_increment: Extent,
    /// What an offset in percent is rounded up to a multiple of; the smallest block if none.
    pub offset_align_bytes: Option<u64>,
    /// Zones that are worked in, if `zonemode` says so.
    pub zone_mode: ZoneMode,
    /// What is done in each; 0 for no zones.
    pub zone_bytes: u64,
    /// What each has; 0 for as much as is done in it.
    pub zone_range_bytes: u64,
    /// What lies between two.
    pub zone_skip_bytes: u64,
    /// The size of each file, from, to.
    pub file_bytes: Option<(u64, u64)>,
    /// I/Os at most.
    pub number_ios: Option<u64>,
    /// How often all of it is done.
    pub loops: u32,
    /// For how long at most.
    pub runtime_ns: Option<u64>,
    /// For exactly so long, over and over.
    pub time_based: bool,
    /// Waits before it begins, from, to.
    pub start_delay_ns: (u64, u64),
    /// What is run before it counts.
    pub ramp_ns: u64,

    /// Bytes per second at most.
    pub rate_bytes: PerSide<Option<u64>>,
    /// I/Os per second at most.
    pub rate_iops: PerSide<Option<u64>>,
    /// When they begin.
    pub arrivals: Arrivals,
    /// A limited rate does not make up for the time spent thinking.
    pub rate_ignores_think: bool,
    /// Rests after I/Os.
    pub think_ns: u64,
    /// After so many; 0 for one each, or where they come after so long, for none.
    pub think_ios: u32,
    /// After so long; 0 for never.
    pub think_after_ns: u64,

    /// I/Os in flight at most.
    pub depth: u32,
    /// Copies of the job.
    pub jobs: u32,
    /// Begins a new group of reports.
    pub new_group: bool,
    /// Waits for all before it, and begins a new group of reports.
    pub stonewall: bool,
    /// Waits for all before it.
    pub waits: bool,
    /// Past the page cache.
    pub direct: bool,
    /// Drops what the page cache holds before it begins.
    pub invalidate: bool,
    /// Flushes after so many writes; 0 for never.
    pub fsync_writes: u32,
    /// Flushes data after so many writes; 0 for never.
    pub fdatasync_writes: u32,
    /// Each write is durable.
    pub durability: Durability,
    /// Flushes when all is written.
    pub end_fsync: bool,
    /// Flushes when a file is closed.
    pub fsync_on_close: bool,
    /// Removes its files at the end.
    pub unlink: bool,

    /// What is written.
    pub data: Data,
    /// How much of each chunk can be compressed away, percent.
    pub compress_percent: u8,
    /// Bytes of such a chunk; 0 for all of an I/O.
    pub compress_chunk_bytes: u32,
    /// How much of what is written is a duplicate, percent.
    pub dedupe_percent: u8,
    /// What is verified.
    pub verify: Option<Verify>,
    /// For [`Verify::Pattern`].
    pub verify_pattern: Vec<PatternPart>,
    /// Ends at the first error.
    pub verify_fatal: bool,
    /// Reads everything back after writing.
    pub do_verify: bool,
    /// Only reads back what an earlier run has written.
    pub verify_only: bool,
    /// Goes on after an I/O that was not done.
    pub goes_on: bool,

    /// Looks for the highest depth whose latency is within this.
    pub latency_target_ns: Option<u64>,
    /// For so long at each depth.
    pub latency_window_ns: u64,
    /// For this percentage of the I/Os.
    pub latency_percentile: f64,
    /// Goes on when it has found it.
    pub latency_run: bool,
    /// Ends the job with an error when an I/O takes longer.
    pub max_latency_ns: PerSide<Option<u64>>,
    /// Ends when it is steady.
    pub steady_state: Option<SteadyState>,
    /// For so long.
    pub steady_duration_ns: u64,
    /// What is not looked at before.
    pub steady_ramp_ns: u64,
    /// How long a sample is.
    pub steady_interval_ns: u64,

    /// Logs that are replayed, colons between them.
    pub read_iolog: Option<String>,
    /// How.
    pub replay: ReplayOptions,

    /// Its end ends others.
    pub ends_others: bool,
    /// Which.
    pub ends: Ends,
    /// What part of a flow the job has; it is in none if 0.
    pub flow: u32,
    /// Which flow.
    pub flow_id: u32,
    /// How long it rests where it is ahead.
    pub flow_sleep_ns: u64,
    /// What is logged.
    pub logs: LogOptions,
    /// What is reported.
    pub faces: Faces,
}

impl Default for JobOptions {
    fn default() -> JobOptions {
        JobOptions {
            name: None,
            description: None,
            filenames: Vec::new(),
            directory: None,
            files: 1,
            filename_format: None,
            file_service: FileService::Turns(1),
            creates_files: true,
            appends: false,
            overwrites: false,
            pre_reads: false,
            processors: Vec::new(),
            engine: EngineKind::Synchronous,
            engine_name: "psync".into(),
            nbd_uri: None,
            direction: Direction::Read,
            random: false,
            ios_per_offset: 1,
            sequencer: Sequencer::Sequential,
            gap_bytes: 0,
            read_percent: 50,
            block_bytes: PerSide::all(4096),
            block_range_bytes: PerSide::default(),
            block_split: PerSide::default(),
            unaligned: false,
            align_bytes: PerSide::default(),
            random_percent: PerSide::all(100),
            distribution: Distribution::Uniform,
            no_random_map: false,
            seed: None,
            repeatable: true,
            size: None,
            io_size: None,
            offset: Extent::Bytes(0),
            offset_increment: Extent::Bytes(0),
            offset_align_bytes: None,
            zone_mode: ZoneMode::Unsaid,
            zone_bytes: 0,
            zone_range_bytes: 0,
            zone_skip_bytes: 0,
            file_bytes: None,
            number_ios: None,
            loops: 1,
            runtime_ns: None,
            time_based: false,
            start_delay_ns: (0, 0),
            ramp_ns: 0,
            rate_bytes: PerSide::default(),
            rate_iops: PerSide::default(),
            arrivals: Arrivals::Linear,
            rate_ignores_think: false,
            think_ns: 0,
            think_ios: 0,
            think_after_ns: 0,
            depth: 1,
            jobs: 1,
            new_group: false,
            stonewall: false,
            waits: false,
            direct: false,
            invalidate: true,
            fsync_writes: 0,
            fdatasync_writes: 0,
            durability: Durability::None,
            end_fsync: false,
            fsync_on_close: false,
            unlink: false,
            data: Data::Scrambled,
            compress_percent: 0,
            compress_chunk_bytes: 512,
            dedupe_percent: 0,
            verify: None,
            verify_pattern: Vec::new(),
            verify_fatal: false,
            do_verify: true,
            verify_only: false,
            goes_on: false,
            latency_target_ns: None,
            latency_window_ns: 0,
            latency_percentile: 100.0,
            latency_run: false,
            max_latency_ns: PerSide::default(),
            steady_state: None,
            steady_duration_ns: 0,
            steady_ramp_ns: 0,
            steady_interval_ns: 1_000_000_000,
            read_iolog: None,
            replay: ReplayOptions::default(),
            ends_others: false,
            ends: Ends::Group,
            flow: 0,
            flow_id: 0,
            flow_sleep_ns: 0,
            logs: LogOptions::default(),
            faces: Faces::default(),
        }
    }
}

impl JobOptions {
    /// The sizes of reads, writes and discards.
    pub fn block_sizes(&self) -> PerSide<BlockSizes> {
        let sizes = |split: &Vec<(u64, u8)>, range: Option<(u64, u64)>, bytes: u64| match range {
            _ if !split.is_empty() => BlockSizes::Split(split.clone()),
            Some((low, high)) if low < high => BlockSizes::Range(low, high),
            Some((low, _)) => BlockSizes::Fixed(low),
            None => BlockSizes::Fixed(bytes),
        };
        let (split, range, bytes) = (&self.block_split, self.block_range_bytes, self.block_bytes);
        PerSide {
            read: sizes(&split.read, range.read, bytes.read),
            write: sizes(&split.write, range.write, bytes.write),
            trim: sizes(&split.trim, range.trim, bytes.trim),
        }
    }

    /// The zones that it works in; of several files there are none, as with fio.
    pub fn zones(&self) -> Option<Zones> {
        let files = self.filenames.len().max(self.files as usize);
        let zoned = self.zone_mode != ZoneMode::None && self.zone_bytes > 0 && files == 1;
        zoned.then_some(Zones {
            bytes: self.zone_bytes,
            range_bytes: if self.zone_range_bytes > 0 { self.zone_range_bytes } else { self.zone_bytes },
            skip_bytes: self.zone_skip_bytes,
        })
    }

    /// How many I/Os are in flight at most, whatever was asked for.
    pub fn effective_depth(&self) -> u32 {
        if self.engine == EngineKind::Synchronous { 1 } else { self.depth }
    }

    /// The smallest block of what is done, bytes.
    pub fn smallest_block_bytes(&self) -> u64 {
        let (does, sizes) = (self.direction.does(), self.block_sizes());
        let used = does.sides().into_iter().zip(sizes.sides()).filter(|(does, _)| **does);
        used.map(|(_, sizes)| sizes.smallest_bytes()).min().unwrap_or(0)
    }
}
