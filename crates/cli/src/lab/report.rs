//! What becomes of a record: text, a page, a file.

use super::args::{OutputArgs, ReportArgs, SteadyOf};
use crate::{Outcome, say, volume};
use anyhow::{Context as _, bail};
use bimetal_lab::record::{JobRun, Run, Side};
use bimetal_lab::report::{self, Extra, Named};
use bimetal_lab::stats::{Gate, Quantity, Rule, SniaRule, rounds};
use bimetal_lab::target::TargetName;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

/// `bimetal lab report`
pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<Outcome> {
    let named = |path: &std::path::PathBuf| -> anyhow::Result<Named> {
        let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Ok(Named { name, run: report::read(path)? })
    };
    let runs = args.files.iter().map(named).collect::<anyhow::Result<Vec<Named>>>()?;
    match &args.html {
        Some(path) => write(path, args.force, report::html(&runs).as_bytes())?,
        None => say(report::text(&runs).trim_end()),
    }
    Ok(Outcome::Good)
}

/// Refuses, before a run, to write where something is that was not to be replaced, where nothing can be, or over what
/// is measured.
pub(crate) fn look_ahead(output: &OutputArgs, target: Option<&TargetName>) -> anyhow::Result<()> {
    if output.record.is_some() && output.record == output.html {
        bail!("--record and --html name the same file; give each its own");
    }
    look_ahead_at(output.record.iter().chain(&output.html), output.force, target)
}

/// The same of files by their names.
pub(super) fn look_ahead_at<'a>(
    files: impl IntoIterator<Item = &'a PathBuf>,
    force: bool,
    target: Option<&TargetName>,
) -> anyhow::Result<()> {
    for path in files {
        if !force && path.exists() {
            bail!("{} is there already; --force replaces it", path.display());
        }
        if path.is_dir() {
            bail!("{} is a directory; name a file", path.display());
        }
        volume::spare(path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            bail!(
                "{} is not a directory; make it, or name another file than {}",
                folder.display(),
                path.display()
            );
        }
        if let Some(TargetName::Path(target)) = target
            && (target == path || is_same(target, path))
        {
            bail!("{} is what is to be measured; name another file for what comes of it", path.display());
        }
    }
    Ok(())
}

/// Whether and when the jobs of a run became steady, if that was asked for: put down in the record, and said.
pub(crate) fn judge(output: &OutputArgs, run: &mut Run) -> Vec<String> {
    let Some(what) = output.steady else { return Vec::new() };
    let quantity = match what {
        SteadyOf::Iops => Quantity::Iops,
        SteadyOf::Bw => Quantity::Bw,
        SteadyOf::Lat => Quantity::Lat,
    };
    let round_ns = output.round.as_nanos() as u64;
    let mut said = Vec::new();
    for job in run.jobs.iter_mut().filter(|job| job.steady.is_none()) {
        let per_round = round_ns.div_ceil(job.interval_ns.max(1)).max(1);
        let mut gate = Gate::new(Rule::Snia(SniaRule::default()));
        for value in rounds(job, quantity, per_round) {
            gate.push(value);
        }
        let seconds = (per_round * job.interval_ns) as f64 / 1e9;
        said.push(format!("{}: {} (rounds of {seconds} s)", job.name, gate.steadiness()));
        job.steady = Some(gate.steadiness().clone());
    }
    said
}

/// Whether all was done that was asked for, with the data that was expected; if not, what was not.
pub(super) fn outcome(runs: &[Run]) -> Outcome {
    let troubles: Vec<String> = runs.iter().flat_map(|run| &run.jobs).filter_map(trouble).collect();
    match troubles.as_slice() {
        [] => Outcome::Good,
        [one] => Outcome::Problem(one.clone()),
        [first, others @ ..] => {
            Outcome::Problem(format!("{first}; and {} more jobs had errors", others.len()))
        }
    }
}

/// What went wrong with a job, in a sentence.
fn trouble(job: &JobRun) -> Option<String> {
    let sides = [&job.read, &job.write, &job.discard, &job.flush];
    let sum = |of: fn(&Side) -> u64| sides.into_iter().map(of).sum::<u64>();
    let (failed, mismatched) = (sum(|side| side.failed), sum(|side| side.mismatched));
    let JobRun { name, target, .. } = job;
    let what = match job.errors.first_key_value() {
        Some((error, times)) => format!("{error} ({times} times)"),
        None if mismatched > 0 => format!("{mismatched} I/Os did not read what was written"),
        None if failed > 0 => format!("{failed} I/Os failed"),
        None if job.unanswered > 0 => format!("{} I/Os were not answered", job.unanswered),
        None => return None,
    };
    Some(format!("{name} on {target}: {what}"))
}

/// Whether both are there, and lead to the same file.
fn is_same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

/// Keeps what a run recorded, as it was asked for.
pub(crate) fn keep(output: &OutputArgs, run: &Run) -> anyhow::Result<()> {
    keep_with(output, run, &Extra::default())
}

/// The same; the page has tables and plots of the test's own.
pub(crate) fn keep_with(output: &OutputArgs, run: &Run, extra: &Extra) -> anyhow::Result<()> {
    if let Some(path) = &output.record {
        write(path, output.force, &serde_json::to_vec(run)?)?;
    }
    if let Some(path) = &output.html {
        let named = Named { name: run.title.clone(), run: run.clone() };
        write(path, output.force, report::html_with(&[named], extra).as_bytes())?;
    }
    Ok(())
}

/// Writes a file; one that is there only by force.
pub(super) fn write(path: &Path, force: bool, bytes: &[u8]) -> anyhow::Result<()> {
    let create = |path: &Path| -> std::io::Result<File> {
        match force {
            true => File::create(path),
            false => OpenOptions::new().write(true).create_new(true).open(path),
        }
    };
    let written = create(path).and_then(|file| {
        let mut out = BufWriter::new(file);
        out.write_all(bytes)?;
        out.flush()
    });
    written.with_context(|| match !force && path.exists() {
        true => format!("{} is there already; --force replaces it", path.display()),
        false => format!("cannot write {}", path.display()),
    })
}
