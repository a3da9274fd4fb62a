//! `bimetal sim calibrate`

use crate::args::CalibrateArgs;
use crate::{Outcome, complain, say, say_json};
use anyhow::{Context as _, bail};
use bimetal_models::calibrate::Calibration;
use bimetal_models::claims::{self, Claim};
use bimetal_models::disksim::Sources;
use serde::Serialize;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

/// The longest file that is read.
const MAX_FILE_BYTES: u64 = 256 << 20;

#[derive(Serialize)]
struct Report {
    drives: Vec<Drive>,
    devices: Vec<Device>,
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

#[derive(Serialize)]
struct Device {
    name: String,
    claim: String,
    reference: f64,
    reference_range: (f64, f64),
    modelled: f64,
    error_percent: f64,
}

pub(crate) fn run(args: &CalibrateArgs) -> anyhow::Result<Outcome> {
    let drives = match folder(args) {
        Some(dir) => drives(&dir, args.toml.as_deref())?,
        None => {
            complain("skipped: BIMETAL_TRACES is not set");
            Vec::new()
        }
    };
    let report = Report { drives, devices: claims::disks().iter().map(device).collect() };
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

/// All drives that have a trace in the folder, by name.
fn drives(dir: &Path, toml: Option<&Path>) -> anyhow::Result<Vec<Drive>> {
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
    names.iter().map(|name| drive(dir, name, toml)).collect()
}

fn drive(dir: &Path, name: &str, toml: Option<&Path>) -> anyhow::Result<Drive> {
    let file = |ending: &str| {
        let path = dir.join(format!("{name}.{ending}"));
        let text = read(&path)?;
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
        write(&toml.join(format!("{name}.toml")), &found.params.to_toml()?)?;
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

/// A text file; what is no regular file is not waited for.
fn read(path: &Path) -> anyhow::Result<String> {
    let cannot = || format!("cannot read {}", path.display());
    let metadata = std::fs::metadata(path).with_context(cannot)?;
    if !metadata.is_file() {
        bail!("{}: not a file", path.display());
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).with_context(cannot)?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).with_context(cannot)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        bail!("{}: longer than {} MiB", path.display(), MAX_FILE_BYTES >> 20);
    }
    String::from_utf8(bytes).ok().with_context(|| format!("{}: not text", path.display()))
}

/// Writes a file that is not there yet.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let cannot = || format!("cannot create {}", path.display());
    let mut file = std::fs::File::create_new(path).with_context(cannot)?;
    file.write_all(text.as_bytes()).with_context(cannot)
}

fn device(claim: &Claim) -> Device {
    Device {
        name: claim.name.clone(),
        claim: claim.claim.clone(),
        reference: round(claim.reference()),
        reference_range: claim.range,
        modelled: round(claim.modelled),
        error_percent: round(claim.error_percent()),
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
    if !report.drives.is_empty() {
        say("");
    }
    say(
        "device                    claim                                                     claimed modelled  error",
    );
    for device in &report.devices {
        let (low, high) = device.reference_range;
        let claimed = if low == high { format!("{low}") } else { format!("{low} to {high}") };
        say(&format!(
            "{:<25} {:<54} {:>10} {:>8.1} {:>5.1}%",
            device.name, device.claim, claimed, device.modelled, device.error_percent
        ));
    }
}
