//! `bimetal doctor`: what is wrong with a volume and with what it stands on, and what cures it.

mod active;
mod below;
mod device;
mod facts;
mod judge;
mod system;
#[cfg(test)]
mod tests;

use super::args::DoctorArgs;
use crate::volume::{self, Volume};
use crate::{Outcome, say, say_json};
use facts::Facts;
use serde::Serialize;
use std::path::PathBuf;
use system::Root;

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// Data is lost or in danger, or the volume does not do what it is for.
    Error,
    /// It works, and not as it should.
    Warning,
    /// It could be better.
    Hint,
}

/// Something that is wrong.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    /// A word that does not change between releases.
    pub(crate) kind: &'static str,
    pub(crate) severity: Severity,
    /// What is wrong, in a sentence.
    pub(crate) what: String,
    /// What to do about it.
    pub(crate) cure: String,
}

/// What `doctor --json` prints.
#[derive(Debug, Serialize)]
struct DoctorDoc {
    volume: String,
    /// The worst first.
    findings: Vec<Finding>,
}

pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<Outcome> {
    let volume = Volume::load(&volume::locate(&args.volume)?)?;
    let facts = Facts::gather(&volume, &Root(PathBuf::from("/")), args.json)?;
    let mut findings = judge::findings(&facts);
    let mut tried = Vec::new();
    if args.active {
        active::read_devices(&facts, &mut findings, &mut tried)?;
        active::try_scratch(&mut findings, &mut tried)?;
        findings.sort_by_key(|finding| finding.severity);
    }
    let (name, count) = (volume.name().0, findings.len());
    if args.json {
        say_json(&DoctorDoc { volume: name, findings })?;
    } else {
        tried.iter().for_each(|line| say(&format!("tried: {line}")));
        findings.iter().for_each(|finding| say(&describe(finding)));
        if findings.is_empty() {
            say(&format!("{name}: nothing is wrong that shows"));
        }
    }
    Ok(match count {
        0 => Outcome::Good,
        1 => Outcome::Problem(format!("{} has a finding", volume.called())),
        _ => Outcome::Problem(format!("{} has {count} findings", volume.called())),
    })
}

fn describe(finding: &Finding) -> String {
    let severity = match finding.severity {
        Severity::Error => "ERROR",
        Severity::Warning => "warning",
        Severity::Hint => "hint",
    };
    format!("{severity} ({}): {}.\n    {}.", finding.kind, finding.what, finding.cure)
}
