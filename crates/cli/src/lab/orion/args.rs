//! What `bimetal lab orion` is told: Orion's options by their names, and the lab's own.

use crate::lab::args::{OutputArgs, TargetArgs};
use bimetal_lab::classic::orion::{LargeOrder, MAX_DISKS, Matrix, RunType, Simulate, Spec};
use bimetal_lab::target::TargetName;
use clap::{Args, ValueEnum};
use std::ffi::OsString;

/// The largest I/O, KB: what the lab replays at most, too.
const MAX_IO_KB: i64 = 32 << 10;

/// `-run`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunArg {
    /// Small random I/Os at several loads, then large ones
    Simple,
    /// All combinations of small and large loads
    Normal,
    /// What the other options say
    Advanced,
    /// Large random I/Os up to 15 times the disks
    Dss,
    /// Small random I/Os up to 20 times the disks
    Oltp,
}

/// `-matrix`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MatrixArg {
    /// Small ones alone, and large ones alone
    Basic,
    /// All combinations
    Detailed,
    /// -num_small and -num_large
    Point,
    /// -num_small, beside all large loads
    Col,
    /// -num_large, beside all small loads
    Row,
    /// All combinations up to -num_small and -num_large
    Max,
}

/// `-type`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TypeArg {
    /// At random places
    Rand,
    /// In streams
    Seq,
}

/// `-simulate`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SimulateArg {
    /// One target behind the other
    Concat,
    /// Striped over the targets
    Raid0,
}

/// `bimetal lab orion`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal lab orion -run simple -testname mytest
  bimetal lab orion -run oltp --target /dev/sdb --knee --html oltp.html
  bimetal lab orion -run advanced -matrix row -num_large 1 -type seq \\
      --target model:flash-card-2011 --knee
  bimetal lab orion -run normal -write 20 --target scratch.img --destroy-data --json

Orion's options may be written with one dash, as Orion has them. TESTNAME.lun names a target in each line, as --target
does: files and block devices, or models, several together; one of nbd://HOST:PORT/EXPORT, volume:NAME, scenario:FILE
or null:. Results go to TESTNAME_yyyymmdd_hhmm_ (UTC) summary.txt, iops.csv, mbps.csv, lat.csv, hist.txt and trace.txt,
and tradeoff.csv where small and large I/Os ran together. Ctrl-C ends the run with the report of what was done.")]
pub(crate) struct OrionArgs {
    /// The workload
    #[arg(long, value_enum, ignore_case = true)]
    pub(crate) run: RunArg,
    /// TESTNAME.lun is read, and TESTNAME begins the names of the results
    #[arg(long, default_value = "orion")]
    pub(crate) testname: String,
    /// Disks behind the targets, by which the loads go [default: the number of targets]
    #[arg(long = "num_disks", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_DISKS)))]
    pub(crate) num_disks: Option<u32>,
    /// Size of a small I/O, KB
    #[arg(long = "size_small", value_name = "KB", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=MAX_IO_KB))]
    pub(crate) size_small: u32,
    /// Size of a large I/O, KB
    #[arg(long = "size_large", value_name = "KB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=MAX_IO_KB))]
    pub(crate) size_large: u32,
    /// The order of large I/Os
    #[arg(long = "type", value_enum, ignore_case = true, default_value = "rand")]
    pub(crate) order: TypeArg,
    /// I/Os in flight of each stream, with -type seq
    #[arg(long = "num_streamIO", value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) num_stream_io: u32,
    /// How several targets become one space
    #[arg(long, value_enum, ignore_case = true, default_value = "concat")]
    pub(crate) simulate: SimulateArg,
    /// Size of a stripe, KB, with -simulate raid0
    #[arg(long, value_name = "KB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(crate) stripe: u32,
    /// Of a hundred I/Os (or, of sequential ones, streams), so many write
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) write: u32,
    /// Size of the targets' cache, MB: so much is read at random before each sequential point; 0 nothing [default: for
    /// two minutes]
    #[arg(long = "cache_size", value_name = "MB", value_parser = clap::value_parser!(u64).range(0..=1 << 30))]
    pub(crate) cache_size: Option<u64>,
    /// How long each point lasts, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) duration: u32,
    /// Which loads, with -run advanced
    #[arg(long, value_enum, ignore_case = true, default_value = "basic")]
    pub(crate) matrix: MatrixArg,
    /// Small I/Os in flight, with -matrix point, col or max
    #[arg(long = "num_small", value_name = "N")]
    pub(crate) num_small: Option<u32>,
    /// Large I/Os in flight or, with -type seq, streams; with -matrix point, row or max
    #[arg(long = "num_large", value_name = "N")]
    pub(crate) num_large: Option<u32>,
    /// Changes nothing here; only skgfr, Orion's own default, is taken
    #[arg(long, value_parser = storax)]
    pub(crate) storax: Option<String>,
    /// Changes nothing here
    #[arg(long)]
    pub(crate) hugenotneeded: bool,
    /// Say what came of each point, as soon as it is done
    #[arg(long)]
    pub(crate) verbose: bool,
    /// What is measured, instead of what TESTNAME.lun names; once for each target
    #[arg(long = "target", value_name = "TARGET", value_parser = TargetName::parse)]
    pub(crate) targets: Vec<TargetName>,
    /// Run more loads, up to 1024, until the knee lies between two that are near each other
    #[arg(long)]
    pub(crate) knee: bool,
    /// Write this many times all of the targets first, in order; 0.5 writes the first half
    #[arg(long, value_name = "TIMES", default_value_t = 0.0, value_parser = times)]
    pub(crate) precondition: f64,
    /// Through the page cache, where targets are files or block devices
    #[arg(long)]
    pub(crate) buffered: bool,
    /// Where the random choices begin
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) opening: TargetArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

impl OrionArgs {
    /// The test, on so many targets.
    pub(crate) fn spec(&self, targets: usize) -> Spec {
        Spec {
            testname: self.testname.clone(),
            run: match self.run {
                RunArg::Simple => RunType::Simple,
                RunArg::Normal => RunType::Normal,
                RunArg::Advanced => RunType::Advanced,
                RunArg::Dss => RunType::Dss,
                RunArg::Oltp => RunType::Oltp,
            },
            matrix: match self.matrix {
                MatrixArg::Basic => Matrix::Basic,
                MatrixArg::Detailed => Matrix::Detailed,
                MatrixArg::Point => Matrix::Point,
                MatrixArg::Col => Matrix::Col,
                MatrixArg::Row => Matrix::Row,
                MatrixArg::Max => Matrix::Max,
            },
            disks: self.num_disks.unwrap_or(targets as u32),
            small_bytes: u64::from(self.size_small) << 10,
            large_bytes: u64::from(self.size_large) << 10,
            large_order: match self.order {
                TypeArg::Rand => LargeOrder::Random,
                TypeArg::Seq => LargeOrder::Sequential,
            },
            stream_ios: self.num_stream_io,
            num_small: self.num_small,
            num_large: self.num_large,
            simulate: match self.simulate {
                SimulateArg::Concat => Simulate::Concat,
                SimulateArg::Raid0 => Simulate::Raid0,
            },
            stripe_bytes: u64::from(self.stripe) << 10,
            write_percent: self.write,
            cache_bytes: self.cache_size.map(|mb| mb << 20),
            seconds: self.duration,
            knee: self.knee,
            seed: self.seed,
        }
    }
}

fn storax(text: &str) -> Result<String, String> {
    match text.to_ascii_lowercase().as_str() {
        "skgfr" => Ok(text.to_owned()),
        _ => Err("it is a library of Oracle's that is not here; leave it out, or write skgfr".to_owned()),
    }
}

fn times(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=100.0).contains(number));
    number.ok_or_else(|| format!("{text:?} is no number from 0 to 100, such as 1 or 0.5"))
}

/// The arguments of the program, in which Orion's options, written with one dash, have two.
pub(crate) fn with_two_dashes(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut out: Vec<OsString> = Vec::new();
    let mut is_orion = false;
    for argument in arguments {
        is_orion |= argument == "orion" && out.last().is_some_and(|last| last == "lab");
        let has_one = |text: &str| {
            let mut chars = text.chars();
            chars.next() == Some('-')
                && chars.next().is_some_and(|c| c.is_ascii_alphabetic())
                && text.len() > 2
        };
        match argument.to_str() {
            Some(text) if is_orion && has_one(text) => out.push(format!("-{text}").into()),
            _ => out.push(argument),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_dash_becomes_two_in_orion_only() {
        let turned = |line: &str| {
            let words = with_two_dashes(line.split(' ').map(OsString::from));
            words.into_iter().map(|word| word.into_string().expect("text")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            turned("bimetal lab orion -run simple --knee -h -num_disks 4 - -1"),
            "bimetal lab orion --run simple --knee -h --num_disks 4 - -1"
        );
        assert_eq!(turned("bimetal trace convert orion -out x"), "bimetal trace convert orion -out x");
    }
}
