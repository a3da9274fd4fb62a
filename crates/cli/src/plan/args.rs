//! What can be said to `bimetal plan`.

use crate::size;
use clap::Args;
use std::path::PathBuf;

/// `bimetal plan`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal plan films
  bimetal plan web_0.csv.gz
  bimetal plan web_0.csv.gz --fast 1G --plot web.svg
  bimetal plan web_0.csv.gz --fast-model nvme-present --fast-model ssd-480gb-2012-pcie --json
  bimetal trace record films -o films.trace --seconds 86400 && bimetal plan films.trace --fast 480G

Of a served volume it takes what its server has noted: of about the last day, since the server began; of a sample of the regions
of 1 MiB where there is more than its memory holds (serve --plan-tape SIZE, 8M if not said, 0 for none).

Runs the engine itself, in virtual time, on what a trace asks for, with a quarter, a half, once, twice and four times the fast tier,
and says how long requests take, how much the fast tier serves, how soon it is worn, and how often the disk is woken. What is touched
is placed first, in order; the disk is as large as that and a tenth more. Of a large trace a spatial sample is run. Its hit shares are
within about two points of those of the whole trace where the disk keeps up. Its responses are estimates: from a third of what the
whole trace would take to three times that. Its wake-ups are not known. A small trace is run whole.

The server of a volume measures how long requests take. Where that is known of 1,000 or more, all means are scaled so that the present
size takes what was measured. The 99th percentiles are not.

A flash device is taken to last 600 fills. Beside it stands what a cache of that size would hold by least recent use.")]
pub(crate) struct PlanArgs {
    /// A volume that is served; or a trace in any format that `bimetal trace` reads: several files are one, - is standard input
    #[arg(value_name = "VOLUME|TRACE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// The fast tier that is asked about [default: that of the volume; a tenth of what the trace touches, at least 256M]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) fast: Option<u64>,
    /// The modelled device that the fast tier is on; others after it are run at the size that is asked about
    #[arg(long, value_name = "NAME", default_value = "nvme-present")]
    pub(crate) fast_model: Vec<String>,
    /// The modelled device that the slow tier is on, likewise
    #[arg(long, value_name = "NAME", default_value = "disk-20tb")]
    pub(crate) slow_model: Vec<String>,
    /// Run this share of what the trace touches, 1 for all of it [default: as much as is needed]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) share: Option<f64>,
    /// Write a picture of it (SVG)
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Runs at a time [default: one for each processor]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| format!("{text:?} is no share; write a number above 0 and up to 1, such as 0.1"))
}
