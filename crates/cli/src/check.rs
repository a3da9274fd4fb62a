//! `bimetal check`

use crate::args::CheckArgs;
use crate::progress::Progress;
use crate::volume::{self, Volume};
use crate::{Outcome, say, say_json};
use bimetal_driver::{Driver, run_task};
use bimetal_engine::options::{CheckReport, Finding, OpenError, RepairReport};
use serde::Serialize;
use std::path::Path;

/// What `check --json` prints.
#[derive(Debug, Serialize)]
struct CheckDoc {
    volume: String,
    clean: bool,
    findings: Vec<FindingDoc>,
    chunks: u64,
    landed_blocks: u64,
    verified_blocks: u64,
    /// Whether a bad block of the map, the directory or the root has a second copy.
    second_copies: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    repair: Option<RepairDoc>,
}

#[derive(Debug, Serialize)]
struct FindingDoc {
    device: String,
    offset: u64,
    what: String,
}

/// What a repair wrote, and what it could do nothing about.
#[derive(Debug, Serialize)]
struct RepairDoc {
    repaired: Vec<FindingDoc>,
    beyond: Vec<FindingDoc>,
    lost: Vec<LostDoc>,
}

/// A range of the volume.
#[derive(Debug, Serialize)]
struct LostDoc {
    offset: u64,
    length_bytes: u64,
}

pub(crate) fn check(args: &CheckArgs) -> anyhow::Result<Outcome> {
    let file = volume::locate(&args.volume)?;
    let repaired = if args.repair { Some(repair(&file, args.json)?) } else { None };
    let mut doc = check_file(&file, args.json)?;
    doc.repair = repaired;
    if args.json {
        say_json(&doc)?;
    } else {
        tell(&doc);
    }
    Ok(if doc.clean { Outcome::Good } else { Outcome::Problem })
}

fn tell(doc: &CheckDoc) {
    for finding in &doc.findings {
        say(&format!("{} at byte {}: {}", finding.device, finding.offset, finding.what));
    }
    if doc.clean && !doc.second_copies {
        say("its metadata has no second copies: it was made before there were any");
    }
    let verdict = if doc.clean { "clean".to_owned() } else { format!("{} findings", doc.findings.len()) };
    say(&format!(
        "{}: {verdict}; {} chunks, {} landed blocks, {} checksums verified",
        doc.volume, doc.chunks, doc.landed_blocks, doc.verified_blocks
    ));
}

/// Says what a repair will do, and does it. What is beyond it is said, and nothing is written.
fn repair(file: &Path, quiet: bool) -> anyhow::Result<RepairDoc> {
    let volume = Volume::load(file)?;
    let (names, plan) = repair_task(&volume, quiet, false)?;
    let doc = RepairDoc {
        repaired: docs(&names, plan.repairs),
        beyond: docs(&names, plan.beyond),
        lost: plan
            .lost
            .into_iter()
            .map(|range| LostDoc { offset: range.start, length_bytes: range.end - range.start })
            .collect(),
    };
    if !quiet {
        for FindingDoc { device, offset, what } in &doc.repaired {
            say(&format!("to be repaired: {device} at byte {offset}: {what}"));
        }
        for FindingDoc { device, offset, what } in &doc.beyond {
            say(&format!("beyond repair: {device} at byte {offset}: {what}; nothing is written"));
        }
        for LostDoc { offset, length_bytes } in &doc.lost {
            let end = offset + length_bytes;
            say(&format!("nothing says where bytes {offset} to {end} of the volume are"));
        }
        if doc.repaired.is_empty() && doc.beyond.is_empty() {
            say("nothing is to be repaired");
        }
    }
    if doc.beyond.is_empty() && !doc.repaired.is_empty() {
        repair_task(&volume, quiet, true)?;
    }
    Ok(doc)
}

fn repair_task(volume: &Volume, quiet: bool, apply: bool) -> anyhow::Result<(Vec<String>, RepairReport)> {
    let (mut driver, arena) = volume.driver()?;
    let names = names(&driver);
    let task = bimetal_engine::repair(arena, driver.device_infos(), volume.open_options(), apply);
    let mut progress = Progress::new(format!("reading {}", volume.name().0), quiet);
    let report = run_task(&mut driver, task, |bytes| progress.bytes(bytes))??;
    Ok((names, report))
}

fn names(driver: &Driver) -> Vec<String> {
    driver.device_infos().into_iter().map(|info| info.name).collect()
}

fn docs(names: &[String], findings: Vec<Finding>) -> Vec<FindingDoc> {
    let doc = |finding: Finding| FindingDoc {
        device: names.get(usize::from(finding.device.0)).cloned().unwrap_or_default(),
        offset: finding.offset,
        what: finding.what,
    };
    findings.into_iter().map(doc).collect()
}

fn check_file(file: &Path, quiet: bool) -> anyhow::Result<CheckDoc> {
    let volume = Volume::load(file)?;
    let (mut driver, arena) = volume.driver()?;
    let names = names(&driver);
    let task = bimetal_engine::check(arena, driver.device_infos(), volume.open_options());
    let mut progress = Progress::new(format!("checking {}", volume.name().0), quiet);
    let checked = run_task(&mut driver, task, |bytes| progress.bytes(bytes));
    drop(progress);
    let (report, mut findings) = match checked? {
        Ok(report) => (report, Vec::new()),
        // Damage that keeps the volume from opening is a finding, not a failure to look.
        Err(OpenError::Corrupt { device, offset, what }) => {
            (CheckReport::default(), vec![FindingDoc { device, offset, what }])
        }
        Err(OpenError::Device { device, offset, errno }) => {
            let what = format!("device error {errno}");
            (CheckReport::default(), vec![FindingDoc { device, offset, what }])
        }
        Err(error) => return Err(error.into()),
    };
    findings.extend(docs(&names, report.findings));
    Ok(CheckDoc {
        volume: volume.name().0,
        clean: findings.is_empty(),
        findings,
        chunks: report.chunks,
        landed_blocks: report.landed_blocks,
        verified_blocks: report.verified_blocks,
        second_copies: !report.has_no_copies,
        repair: None,
    })
}

/// Whether a volume is clean, for the kill test; says what is not.
pub(crate) fn findings(file: &Path, quiet: bool) -> anyhow::Result<Vec<String>> {
    let doc = check_file(file, quiet)?;
    Ok(doc.findings.into_iter().map(|f| format!("{} at byte {}: {}", f.device, f.offset, f.what)).collect())
}
