//! `bimetal sim calibrate`

use crate::args::CalibrateArgs;
use crate::progress::Progress;
use crate::text_file::read;
use crate::{Outcome, complain, say, say_json};
use anyhow::{Context as _, bail};
use bimetal_models::calibrate::Calibration;
use bimetal_models::claims::{self, Claim};
use bimetal_models::disksim::Sources;
use bimetal_models::spec::Spec;
use bimetal_sim::side_by_side;
use serde::Serialize;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// The longest file that is read.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// Drives at a time: a full one takes up to a quarter of a GB.
const THREADS: NonZeroUsize = NonZeroUsize::new(2).expect("not 0");

#[derive(Serialize)]
struct Report {
    drives: Vec<Drive>,
    devices: Vec<Claim>,
}

#[derive(Serialize)]
struct Drive {
    name: String,
    requests: usize,
    measured_mean_us: f64,
    modelled_mean_us: f64,
    demerit_percent: f64,
    mean_error_percent: f64,
    unseen_demerit_percent: f64,
    described_demerit_percent: f64,
    requests_beyond_end: usize,
}

pub(crate) fn run(args: &CalibrateArgs) -> anyhow::Result<Outcome> {
    let dir = folder(args);
    let mut traced = dir.as_deref().map_or_else(|| Ok(Vec::new()), traced)?;
    let mut derived: Vec<String> = claims::MEASURED.map(str::to_owned).to_vec();
    if let Some(name) = args.drive.iter().find(|name| !traced.contains(name) && !derived.contains(name)) {
        let unset = if dir.is_none() { " (BIMETAL_TRACES is not set)" } else { "" };
        bail!("no measurements of '{name}': there are {}{unset}", [traced, derived].concat().join(", "));
    }
    if args.drive.is_empty() {
        if dir.is_none() {
            complain("skipped: BIMETAL_TRACES is not set");
        }
    } else {
        traced.retain(|name| args.drive.contains(name));
        derived.retain(|name| args.drive.contains(name));
    }
    let mut progress = Progress::new("calibrating".to_owned(), args.json);
    let mut waits_for = |name: &String| progress.at(name);
    let drives = match &dir {
        Some(dir) => {
            side_by_side(&traced, THREADS, &mut waits_for, |name| drive(dir, name, args.toml.as_deref()))?
        }
        None => Vec::new(),
    };
    let devices = side_by_side(&derived, THREADS, &mut waits_for, |name| claims::of(name))?;
    drop(progress);
    let report = Report { drives, devices: devices.into_iter().flatten().map(rounded).collect() };
    if args.json {
        say_json(&report)?;
    } else {
        describe(&report);
    }
    Ok(Outcome::Good)
}

/// The folder with the measured drives.
fn folder(args: &CalibrateArgs) -> Option<PathBuf> {
    let default = || {
        let traces = std::env::var_os("BIMETAL_TRACES").filter(|value| !value.is_empty())?;
        Some(Path::new(&traces).join("hdd-validation"))
    };
    args.dir.clone().or_else(default)
}

/// The names of all drives that have a trace in the folder, sorted.
fn traced(dir: &Path) -> anyhow::Result<Vec<String>> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read {}", dir.display()))?.path();
        if path.extension().is_some_and(|extension| extension == "trace") {
            let Some(name) = path.file_stem().and_then(|name| name.to_str()) else {
                bail!("{}: its name is not UTF-8", path.display());
            };
            names.push(name.to_owned());
        }
    }
    names.sort();
    if names.is_empty() {
        bail!("{}: no drive here: NAME.trace, NAME.model, NAME.diskspecs and NAME.seek", dir.display());
    }
    Ok(names)
}

fn drive(dir: &Path, name: &str, toml: Option<&Path>) -> anyhow::Result<Drive> {
    let file = |ending: &str| {
        let path = dir.join(format!("{name}.{ending}"));
        let text = read(&path, MAX_FILE_BYTES)?;
        Ok::<(String, String), anyhow::Error>((path.display().to_string(), text))
    };
    let (model, specs, trace) = (file("model")?, file("diskspecs")?, file("trace")?);
    // Only drives whose seeks were measured have one.
    let has_seek = dir.join(format!("{name}.seek")).exists();
    let seek = if has_seek { Some(file("seek")?) } else { None };
    let sources = Sources {
        name,
        model: (&model.0, &model.1),
        specs: (&specs.0, &specs.1),
        seek: seek.as_ref().map(|(path, text)| (path.as_str(), text.as_str())),
    };
    let found = Calibration::of(&sources, (&trace.0, &trace.1))?;
    if let Some(toml) = toml {
        write(&toml.join(format!("{name}.toml")), &Spec::HardDisk(found.params.clone()).to_toml()?)?;
    }
    Ok(Drive {
        name: name.to_owned(),
        requests: found.requests,
        measured_mean_us: round(found.measured_us),
        modelled_mean_us: round(found.modelled_us),
        demerit_percent: round(found.demerit_percent),
        mean_error_percent: round(found.mean_error_percent()),
        unseen_demerit_percent: round(found.unseen_demerit_percent),
        described_demerit_percent: round(found.described_demerit_percent),
        requests_beyond_end: found.beyond_end,
    })
}

/// Writes a file that is not there yet.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let cannot = || format!("cannot create {}", path.display());
    let mut file = std::fs::File::create_new(path).with_context(cannot)?;
    file.write_all(text.as_bytes()).with_context(cannot)
}

fn rounded(claim: Claim) -> Claim {
    Claim {
        reference: claim.reference.map(round),
        modelled: round(claim.modelled),
        error_percent: claim.error_percent.map(round),
        ..claim
    }
}

/// To hundredths, which is more than the figures are worth.
fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn describe(report: &Report) {
    if !report.drives.is_empty() {
        say(
            "drive           requests  measured us  modelled us  mean error  demerit  unseen half  without fit",
        );
    }
    for drive in &report.drives {
        say(&format!(
            "{:<15} {:>8} {:>12.0} {:>12.0} {:>10.2}% {:>7.2}% {:>11.2}% {:>11.2}%",
            drive.name,
            drive.requests,
            drive.measured_mean_us,
            drive.modelled_mean_us,
            drive.mean_error_percent,
            drive.demerit_percent,
            drive.unseen_demerit_percent,
            drive.described_demerit_percent,
        ));
    }
    let mut last = ("", "");
    for claim in &report.devices {
        if last.0 != claim.name {
            if last.0.is_empty() && !report.drives.is_empty() {
                say("");
            }
            if last.0.is_empty() {
                say(&row("device, and what was run", "measured", "modelled", "error"));
            }
            say(claim.name);
        }
        if last != (claim.name, claim.how) {
            say(&format!("  {}", claim.how));
        }
        last = (claim.name, claim.how);
        let measured = match (claim.reference_range, claim.reference) {
            (Some((low, high)), _) => format!("{low} to {high}"),
            (None, Some(reference)) => format!("{reference}"),
            (None, None) => String::new(),
        };
        let digits = if claim.modelled < 10.0 { 2 } else { 1 };
        let modelled = format!("{:.digits$}", claim.modelled);
        let error = claim.error_percent.map_or(String::new(), |error| format!("{error:+.1} %"));
        say(&row(&format!("    {}", claim.claim), &measured, &modelled, &error));
    }
}

fn row(what: &str, measured: &str, modelled: &str, error: &str) -> String {
    format!("{what:<70} {measured:>10} {modelled:>10} {error:>8}").trim_end().to_owned()
}
