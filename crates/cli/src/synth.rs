//! `bimetal trace synth`

use crate::progress::Progress;
use crate::trace::written;
use crate::{Outcome, say, say_json, size, text_file};
use anyhow::{Context as _, anyhow};
use bimetal_lab::synth::{Compared, MAX_PROFILE_BYTES, Profile, Synth, compare};
use bimetal_trace::{OwnWriter, RecordWriter as _, Stat, Summary, Trace};
use clap::Args;
use serde::Serialize;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// Progress is looked at after so many records.
const BETWEEN: u64 = 1 << 16;

/// `bimetal trace synth`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal trace synth heavy -o heavy.trace
  bimetal trace synth heavy -o small.trace --scale 100
  bimetal trace synth mine.toml -o mine.trace --seed 7 --json

A profile says how many reads and writes there are, how many bytes, which sizes, how much is sequential, how deep the
queue is, and where they lie. heavy, light and destroyer are those of AnandTech's Storage Bench, whose traces were never
published; what is assumed beside their published figures is printed. The trace is read again, and what was asked for
stands beside what is found in it.")]
pub(crate) struct SynthArgs {
    /// heavy, light, destroyer, or a file that ends in .toml
    #[arg(value_name = "PROFILE")]
    pub(crate) profile: String,
    /// The file to write, in Bimetal's own format
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Where random choices begin
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// One in so many operations, in a span so much smaller
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) scale: u64,
    /// Replace the file if it is there
    #[arg(long)]
    pub(crate) force: bool,
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Serialize)]
struct Document<'d> {
    profile: &'d str,
    published: &'d str,
    assumed: &'d [String],
    seed: u64,
    scale: u64,
    compared: &'d [Compared],
}

pub(crate) fn run(args: &SynthArgs) -> anyhow::Result<Outcome> {
    let profile = profile(&args.profile, args.scale)?;
    let made = |out: BufWriter<File>| make(&profile, args.seed, out, args.json);
    let ((), bytes) = written(&args.output, args.force, made)?;
    let compared = compare(&profile, &read_again(&args.output, args.json)?);
    if args.json {
        say_json(&Document {
            profile: &profile.name,
            published: &profile.published,
            assumed: &profile.assumed,
            seed: args.seed,
            scale: args.scale,
            compared: &compared,
        })?;
        return Ok(Outcome::Good);
    }
    let name = args.output.display();
    say(&format!(
        "{name}: {} operations after {}, {}",
        profile.operations(),
        profile.name,
        size::show(bytes)
    ));
    say(&format!("published: {}", profile.published));
    profile.assumed.iter().for_each(|line| say(&format!("assumed: {line}")));
    say(&format!("{:<28} {:>15} {:>15} {:>9}", "", "asked for", "got", "error"));
    compared.iter().for_each(|row| say(&line(row)));
    Ok(Outcome::Good)
}

fn line(row: &Compared) -> String {
    let number = |value: f64| match value.fract() == 0.0 && value.abs() >= 100.0 {
        true => format!("{value:.0}"),
        false => format!("{value:.3}"),
    };
    let asked = row.asked.map_or("-".to_owned(), number);
    let error = row.asked.map_or("-".to_owned(), |_| format!("{:+.2} %", row.error() * 100.0));
    format!("{:<28} {asked:>15} {:>15} {error:>9}", row.what, number(row.got))
}

/// The profile of this name, or in this file, of one in so many operations.
pub(crate) fn profile(name: &str, scale: u64) -> anyhow::Result<Profile> {
    let found = match Profile::named(name) {
        Some(found) => found,
        None => {
            let path = Path::new(name);
            let known: Vec<&str> = Profile::names().collect();
            if path.extension().is_none_or(|ending| ending != "toml") {
                return Err(anyhow!(
                    "there is no profile {name:?}; name {}, or a file that ends in .toml",
                    known.join(", ")
                ));
            }
            Profile::parse(&text_file::read(path, MAX_PROFILE_BYTES)?).with_context(|| name.to_owned())?
        }
    };
    found.scaled(scale).with_context(|| name.to_owned())
}

/// Writes the trace of a profile.
pub(crate) fn make(profile: &Profile, seed: u64, out: BufWriter<File>, quiet: bool) -> anyhow::Result<()> {
    let mut progress = Progress::new(format!("making up {}", profile.name), quiet);
    let mut writer = Box::new(OwnWriter::new(out)?);
    for (record, n) in Synth::new(profile, seed)?.zip(1u64..) {
        writer.record(&record)?;
        if n.is_multiple_of(BETWEEN) {
            progress.at(&format!("{:.0} %", n as f64 / profile.operations() as f64 * 100.0));
        }
    }
    Ok(writer.finish()?)
}

/// What a reader finds in a trace.
fn read_again(file: &Path, quiet: bool) -> anyhow::Result<Summary> {
    let mut progress = Progress::new("reading it again".to_owned(), quiet);
    let mut trace = Trace::open(&[file.to_owned()])?;
    let mut stat = Stat::default();
    while let Some(found) = trace.next() {
        stat.add(&found);
        if stat.records().is_multiple_of(BETWEEN) {
            progress.bytes(trace.bytes_read());
        }
    }
    Ok(stat.summary(&trace))
}
