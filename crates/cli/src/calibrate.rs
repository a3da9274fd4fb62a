//! `bimetal sim calibrate`

use crate::args::CalibrateArgs;
use crate::progress::Progress;
use crate::text_file::read;
use crate::{Outcome, complain, say, say_json};
use anyhow::{Context as _, bail};
use bimetal_load::claims::{self, Claim};
use bimetal_models::calibrate::{Calibration, Changed};
use bimetal_models::disksim::{Sources, model_file, seek_file};
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
    refused: Vec<Refused>,
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
    fitted_demerit_percent: f64,
    unseen_demerit_percent: f64,
    described_demerit_percent: f64,
    requests_beyond_end: usize,
    /// What of buffer and cache is read otherwise than described.
    read_otherwise: Vec<Otherwise>,
}

#[derive(Serialize)]
struct Otherwise {
    field: String,
    described: String,
    fitted: String,
}

/// A drive that could not be compared.
#[derive(Serialize)]
struct Refused {
    name: String,
    why: String,
}

pub(crate) fn run(args: &CalibrateArgs) -> anyhow::Result<Outcome> {
    let dir = folder(args);
    let (mut traced, mut unnamed) = dir.as_deref().map_or_else(|| Ok((Vec::new(), Vec::new())), traced)?;
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
        unnamed.clear();
        derived.retain(|name| args.drive.contains(name));
    }
    let mut progress = Progress::new("calibrating".to_owned(), args.json);
    let mut waits_for = |name: &String| progress.at(name);
    let mut drives = Vec::new();
    let mut refused = unnamed;
    if let Some(dir) = &dir {
        let one = |name: &String| Ok::<_, anyhow::Error>(drive(dir, name, args.toml.as_deref()));
        for (name, found) in traced.iter().zip(side_by_side(&traced, THREADS, &mut waits_for, one)?) {
            match found {
                Ok(drive) => drives.push(drive),
                Err(error) => refused.push(Refused { name: name.clone(), why: format!("{error:#}") }),
            }
        }
    }
    if let [one] = &refused[..]
        && drives.is_empty()
    {
        bail!("{}: {}", one.name, one.why);
    }
    for one in &refused {
        complain(&format!("bimetal: {}: {}", one.name, one.why));
    }
    if drives.is_empty() && !refused.is_empty() {
        bail!("none of the {} drives can be compared", refused.len());
    }
    let devices = side_by_side(&derived, THREADS, &mut waits_for, |name| claims::of(name))?;
    drop(progress);
    let outcome = match refused.len() {
        0 => Outcome::Good,
        some => Outcome::Problem(format!("{some} of {} drives cannot be compared", some + drives.len())),
    };
    let report = Report { drives, refused, devices: devices.into_iter().flatten().map(rounded).collect() };
    if args.json {
        say_json(&report)?;
    } else {
        describe(&report);
    }
    Ok(outcome)
}

/// The folder with the measured drives.
fn folder(args: &CalibrateArgs) -> Option<PathBuf> {
    let default = || {
        let traces = std::env::var_os("BIMETAL_TRACES").filter(|value| !value.is_empty())?;
        Some(Path::new(&traces).join("hdd-validation"))
    };
    args.dir.clone().or_else(default)
}

/// The names of all drives that have a trace in the folder, sorted; and those whose name cannot be used.
fn traced(dir: &Path) -> anyhow::Result<(Vec<String>, Vec<Refused>)> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let (mut names, mut refused) = (Vec::new(), Vec::new());
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read {}", dir.display()))?.path();
        if path.extension().is_some_and(|extension| extension == "trace") {
            let stem = path.file_stem().unwrap_or_default();
            match stem.to_str() {
                Some(name) => names.push(name.to_owned()),
                None => refused.push(Refused {
                    name: stem.to_string_lossy().into_owned(),
                    why: format!("{}: its name is not UTF-8", path.display()),
                }),
            }
        }
    }
    names.sort();
    if names.is_empty() && refused.is_empty() {
        bail!("{}: no drive here: NAME.trace, NAME.model, NAME.diskspecs and NAME.seek", dir.display());
    }
    Ok((names, refused))
}

fn drive(dir: &Path, name: &str, toml: Option<&Path>) -> anyhow::Result<Drive> {
    let text = |path: &Path| {
        let text = read(path, MAX_FILE_BYTES)?;
        Ok::<(String, String), anyhow::Error>((path.display().to_string(), text))
    };
    let file = |ending: &str| dir.join(format!("{name}.{ending}"));
    let specs = file("diskspecs");
    // Files are called after the drive, or by what the description calls them.
    let model = match file("model") {
        model if !model.exists() && specs.exists() => {
            let (path, text) = text(&specs)?;
            model_file((&path, &text))?.map_or(model, |named| dir.join(named))
        }
        model => model,
    };
    let (model, specs) = (text(&model)?, text(&specs)?);
    let seek = match file("seek") {
        seek if !seek.exists() => seek_file((&model.0, &model.1))?.map_or(seek, |named| dir.join(named)),
        seek => seek,
    };
    // Only drives whose seeks were measured have one.
    let seek = if seek.exists() { Some(text(&seek)?) } else { None };
    let trace = text(&file("trace"))?;
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
        fitted_demerit_percent: round(found.fitted_demerit_percent),
        unseen_demerit_percent: round(found.unseen_demerit_percent),
        described_demerit_percent: round(found.described_demerit_percent),
        requests_beyond_end: found.beyond_end,
        read_otherwise: found.changed.into_iter().map(otherwise).collect(),
    })
}

fn otherwise(changed: Changed) -> Otherwise {
    let Changed { field, described, fitted } = changed;
    Otherwise { field, described, fitted }
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
            "drive           requests  measured us  modelled us  mean error  demerit  fitted half  unseen half  without fit",
        );
    }
    for drive in &report.drives {
        say(&format!(
            "{:<15} {:>8} {:>12.0} {:>12.0} {:>10.2}% {:>7.2}% {:>11.2}% {:>11.2}% {:>11.2}%",
            drive.name,
            drive.requests,
            drive.measured_mean_us,
            drive.modelled_mean_us,
            drive.mean_error_percent,
            drive.demerit_percent,
            drive.fitted_demerit_percent,
            drive.unseen_demerit_percent,
            drive.described_demerit_percent,
        ));
        if drive.requests_beyond_end > 0 {
            let beyond = drive.requests_beyond_end;
            say(&format!(
                "    {beyond} requests lie beyond what the description holds, and were moved to its end"
            ));
        }
        for Otherwise { field, described, fitted } in &drive.read_otherwise {
            say(&format!("    {field} is {fitted}, not {described}"));
        }
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
