//! What a phase may say.

use super::extent::{Extent, Size};
use super::{MAX_BLOCK_BYTES, MAX_DEPTH, MAX_ENTRIES, MAX_FILES, MAX_SECONDS, one};
use bimetal_load::Pattern;
use serde::{Deserialize, Serialize};

/// Commands in flight of a load with a rate, or of a timed replay, unless it says otherwise.
const OPEN_DEPTH: u32 = 1024;

/// One phase: loads side by side, files, a replay, a pause, or an end of the process.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseSpec {
    /// Its name; each is told from the others by it.
    pub name: String,
    /// How often it is done, one time after the other: each has a row of its own in the report, called "NAME, pass 1"
    /// and so on where there are several.
    #[serde(default = "one")]
    pub times: u32,
    /// What is asked for, side by side.
    #[serde(default)]
    pub load: Vec<LoadSpec>,
    /// How many bytes the loads transfer together: a size, or a share of the target such as "50%".
    #[serde(rename = "for")]
    pub bytes: Option<Extent>,
    /// Or how long they go on.
    pub seconds: Option<f64>,
    /// Writes files.
    pub create_files: Option<FilesSpec>,
    /// Reads files.
    pub read_files: Option<FilesSpec>,
    /// Does what the trace says.
    pub replay: Option<ReplaySpec>,
    /// Asks for nothing for so long.
    pub pause_seconds: Option<f64>,
    /// Gives a range back: all that a load with this span would reach.
    pub discard: Option<Extent>,
    /// The process ends and the volume is opened again.
    pub reopen: Option<Reopen>,
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reopen {
    /// The volume is closed.
    Close,
    /// The process is killed: the devices keep what they were given.
    Kill,
}

/// A loop: closed, or with a rate.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadSpec {
    /// In which order.
    pub pattern: Order,
    /// How uneven a zipf pattern is: the n-th most frequent block is asked for in proportion to n to the power of minus
    /// theta; from 0 to 10, 1.2 if not given.
    pub theta: Option<f64>,
    /// How many of a hundred commands are reads.
    #[serde(default)]
    pub read_percent: u64,
    /// Bytes of a command.
    pub block: Size,
    /// Commands in flight: 1 unless it says otherwise, or at most 1024 where there is a rate.
    pub depth: Option<u32>,
    /// Commands a second, at even distances: a response counts from the time its command was meant for. Without a
    /// rate, a command follows when another has ended.
    pub rate_iops: Option<f64>,
    /// Where the span begins.
    #[serde(default)]
    pub from: Extent,
    /// What is asked for; to the end of the target if not given.
    pub span: Option<Extent>,
}

/// In which order a load asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Anywhere in the span.
    Random,
    /// One block after another.
    Sequential,
    /// Anywhere, some blocks more often than others.
    Zipf,
}

/// Files: extents of one size, one behind the other.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilesSpec {
    /// How many.
    pub count: u64,
    /// Bytes of each.
    pub size: Size,
    /// Bytes of a command at most; the last of a file is shorter where the size is no multiple.
    #[serde(default = "transfer")]
    pub transfer: Size,
    /// Commands in flight.
    #[serde(default = "one")]
    pub depth: u32,
    /// Where the first begins.
    #[serde(default)]
    pub from: Extent,
}

/// How the trace is replayed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplaySpec {
    /// When requests are submitted.
    pub mode: Mode,
    /// Requests in flight: closed, always so many (1); else at most so many (1024), and what comes meanwhile waits.
    pub depth: Option<u32>,
    /// Not closed: so many times as fast as recorded (1).
    pub speed: Option<f64>,
    /// Not closed: of a longer recorded gap between two requests, only so much is kept.
    pub idle_at_most_seconds: Option<f64>,
    /// Where on the target the trace's addresses lie.
    #[serde(default)]
    pub map: Map,
    /// Where on the target the map begins.
    #[serde(default)]
    pub from: Extent,
}

/// When requests of a trace are submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// At the recorded times; a response counts from then.
    Timed,
    /// As soon as another has ended.
    Closed,
    /// As soon as what it waited for when it was recorded has ended, and as long after that as then: inferred from the
    /// recorded times and responses. A faster target is asked for more.
    Dependent,
    /// In the recorded order, each as soon as fewer are in flight than it found when it was recorded, itself included.
    /// One that found nothing in flight begins as long after the end of all before it as then.
    Queued,
}

/// Where on a target the addresses of a trace lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Map {
    /// What the trace touches, grain by grain in the order of devices and addresses, without the rest.
    #[default]
    Compact,
    /// Where they are in the trace; the devices of a trace lie over one another. What ends beyond the target is left
    /// out and counted.
    AsIs,
    /// The same, but what is beyond the target begins again at its start.
    Wrap,
}

impl PhaseSpec {
    /// The names of its rows in the report.
    pub fn rows(&self) -> impl Iterator<Item = String> + '_ {
        let row = |pass| match self.times {
            1 => self.name.clone(),
            _ => format!("{}, pass {pass}", self.name),
        };
        (1..=self.times).map(row)
    }

    /// All amounts that may be shares.
    pub(super) fn extents(&self) -> impl Iterator<Item = Extent> + '_ {
        let loads = self.load.iter().flat_map(|load| [Some(load.from), load.span]);
        let files =
            [&self.create_files, &self.read_files].into_iter().flatten().map(|files| Some(files.from));
        let replay = self.replay.iter().map(|replay| Some(replay.from));
        loads.chain(files).chain(replay).chain([self.bytes, self.discard]).flatten()
    }

    pub(super) fn check(&self, on_volume: bool) -> Result<(), String> {
        let kinds = [
            !self.load.is_empty(),
            self.create_files.is_some(),
            self.read_files.is_some(),
            self.replay.is_some(),
            self.pause_seconds.is_some(),
            self.discard.is_some(),
            self.reopen.is_some(),
        ];
        if kinds.iter().filter(|&&kind| kind).count() != 1 {
            return Err(
                "it has one of load, create_files, read_files, replay, pause_seconds, discard and reopen"
                    .into(),
            );
        }
        let ends = [self.bytes.is_some(), self.seconds.is_some()].iter().filter(|&&end| end).count();
        if ends != usize::from(!self.load.is_empty()) {
            return Err("a load ends with either `for` or `seconds`, and nothing else has one".into());
        }
        for seconds in [self.seconds, self.pause_seconds].into_iter().flatten() {
            check_seconds(seconds)?;
        }
        if self.times == 0 || self.times as usize > MAX_ENTRIES {
            return Err(format!("it is done from 1 to {MAX_ENTRIES} times"));
        }
        if self.reopen.is_some() && !on_volume {
            return Err("only a volume can be opened again".into());
        }
        if self.load.len() > MAX_ENTRIES {
            return Err(format!("more than {MAX_ENTRIES} loads"));
        }
        let depth: u64 = self.load.iter().map(|load| u64::from(load.depth())).sum();
        if depth > u64::from(MAX_DEPTH) {
            return Err(format!("its loads have more than {MAX_DEPTH} commands in flight together"));
        }
        self.load.iter().try_for_each(LoadSpec::check)?;
        [&self.create_files, &self.read_files].into_iter().flatten().try_for_each(FilesSpec::check)?;
        self.replay.iter().try_for_each(ReplaySpec::check)
    }
}

impl LoadSpec {
    /// Commands in flight.
    pub fn depth(&self) -> u32 {
        self.depth.unwrap_or(if self.rate_iops.is_some() { OPEN_DEPTH } else { 1 })
    }

    /// In which order.
    pub fn pattern(&self) -> Pattern {
        match self.pattern {
            Order::Random => Pattern::Random,
            Order::Sequential => Pattern::Sequential,
            Order::Zipf => Pattern::Zipf { theta: self.theta.unwrap_or(1.2) },
        }
    }

    fn check(&self) -> Result<(), String> {
        check_depth(self.depth())?;
        check_block("block", self.block.0)?;
        match self.theta {
            Some(_) if self.pattern != Order::Zipf => return Err("only a zipf pattern has a theta".into()),
            Some(theta) if !(0.0..=10.0).contains(&theta) => {
                return Err(format!("theta is {theta}, not from 0 to 10"));
            }
            _ => {}
        }
        if self.read_percent > 100 {
            return Err(format!("{} of a hundred commands cannot be reads", self.read_percent));
        }
        if let Some(rate) = self.rate_iops
            && !(1e-6..=1e9).contains(&rate)
        {
            return Err(format!("rate_iops is {rate}, not from 0.000001 to 1000000000 commands a second"));
        }
        Ok(())
    }
}

impl FilesSpec {
    fn check(&self) -> Result<(), String> {
        check_depth(self.depth)?;
        check_block("transfer", self.transfer.0)?;
        if !(1..=MAX_FILES).contains(&self.count) {
            return Err(format!("{} files are not from 1 to {MAX_FILES}", self.count));
        }
        if self.size.0 < 512 || !self.size.0.is_multiple_of(512) {
            return Err(format!("a file of {} bytes is not whole sectors of 512", self.size.0));
        }
        Ok(())
    }
}

impl ReplaySpec {
    /// Requests in flight.
    pub fn depth(&self) -> u32 {
        self.depth.unwrap_or(if self.mode == Mode::Closed { 1 } else { OPEN_DEPTH })
    }

    /// Whether it makes sense; if not, why, in a sentence.
    pub fn check(&self) -> Result<(), String> {
        check_depth(self.depth())?;
        if self.mode == Mode::Closed && (self.speed.is_some() || self.idle_at_most_seconds.is_some()) {
            return Err(
                "speed and idle_at_most_seconds are of a timed replay; a closed one knows no times".into()
            );
        }
        if let Some(speed) = self.speed
            && !(1e-6..=1e6).contains(&speed)
        {
            return Err(format!("speed is {speed}, not from 0.000001 to 1000000"));
        }
        match self.idle_at_most_seconds {
            Some(seconds) if seconds != 0.0 => check_seconds(seconds),
            _ => Ok(()),
        }
    }
}

fn check_seconds(seconds: f64) -> Result<(), String> {
    match seconds > 0.0 && seconds <= MAX_SECONDS {
        true => Ok(()),
        false => Err(format!("{seconds} is not a number of seconds from above 0 to {MAX_SECONDS}")),
    }
}

fn check_depth(depth: u32) -> Result<(), String> {
    match (1..=MAX_DEPTH).contains(&depth) {
        true => Ok(()),
        false => Err(format!("a depth of {depth} is not from 1 to {MAX_DEPTH} commands in flight")),
    }
}

fn check_block(what: &str, block: u64) -> Result<(), String> {
    match (512..=MAX_BLOCK_BYTES).contains(&block) && block.is_multiple_of(512) {
        true => Ok(()),
        false => {
            Err(format!("a {what} of {block} bytes is not whole sectors of 512 up to {MAX_BLOCK_BYTES}"))
        }
    }
}

fn transfer() -> Size {
    Size(8 << 20)
}
