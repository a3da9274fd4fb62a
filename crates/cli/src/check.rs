//! `bimetal check`

use crate::args::CheckArgs;
use crate::progress::Progress;
use crate::volume::{self, Volume};
use crate::{Outcome, protect, say, say_json};
use bimetal_driver::{Driver, run_task};
use bimetal_engine::options::{
    CheckReport, Finding, OpenError, RepairReport, UnconfirmedGroup, describe_unconfirmed,
};
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
    /// The last group of the log.
    log_end: u64,
    /// Groups that are there behind that, and do not count.
    unconfirmed: Vec<GroupDoc>,
    /// One sentence about them.
    #[serde(skip)]
    about_unconfirmed: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repair: Option<RepairDoc>,
}

/// A group behind the log's end.
#[derive(Debug, Serialize)]
struct GroupDoc {
    group: u64,
    offset: u64,
    blocks: u32,
    whole: bool,
    landed: Vec<LandedDoc>,
    other_records: u32,
}

/// Neighbouring blocks in such a group.
#[derive(Debug, Serialize)]
struct LandedDoc {
    volume_offset: u64,
    fast_offset: u64,
    length_bytes: u64,
}

impl From<UnconfirmedGroup> for GroupDoc {
    fn from(group: UnconfirmedGroup) -> GroupDoc {
        let landed = group.landed.into_iter().map(|blocks| LandedDoc {
            volume_offset: blocks.volume_byte,
            fast_offset: blocks.fast_byte,
            length_bytes: blocks.bytes,
        });
        GroupDoc {
            group: group.group,
            offset: group.offset,
            blocks: group.blocks,
            whole: group.whole,
            landed: landed.collect(),
            other_records: group.other_records,
        }
    }
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
        if args.tail {
            tell_tail(&doc);
        }
    }
    Ok(match doc.clean {
        true => Outcome::Good,
        false => Outcome::Problem(format!("{} is not clean", file.display())),
    })
}

fn tell(doc: &CheckDoc) {
    for finding in &doc.findings {
        say(&format!("{} at byte {}: {}", finding.device, finding.offset, finding.what));
    }
    if doc.clean && !doc.second_copies {
        say("its metadata has no second copies: it was made before there were any");
    }
    doc.about_unconfirmed.iter().for_each(|about| say(about));
    let verdict = if doc.clean { "clean".to_owned() } else { format!("{} findings", doc.findings.len()) };
    say(&format!(
        "{}: {verdict}; {} chunks, {} landed blocks, {} checksums verified",
        doc.volume, doc.chunks, doc.landed_blocks, doc.verified_blocks
    ));
}

/// Says what is in the groups behind the log's end.
fn tell_tail(doc: &CheckDoc) {
    if doc.unconfirmed.is_empty() {
        say(&format!("nothing is in the log behind group {}", doc.log_end));
    }
    for group in &doc.unconfirmed {
        let payload = if group.whole { "whole" } else { "its payload does not match" };
        say(&format!("group {} at byte {} of the fast device: {payload}", group.group, group.offset));
        for LandedDoc { volume_offset, fast_offset, length_bytes } in &group.landed {
            let end = volume_offset + length_bytes;
            say(&format!(
                "  bytes {volume_offset} to {end} of the volume, at byte {fast_offset} of the fast device"
            ));
        }
        if group.other_records > 0 {
            say(&format!("  {} records of other kinds", group.other_records));
        }
    }
}

/// Says what a repair will do, and does it. What is beyond it is said, and nothing is written.
fn repair(file: &Path, quiet: bool) -> anyhow::Result<RepairDoc> {
    let volume = Volume::load(file)?;
    // What is copied would no longer be a copy.
    volume.must_not_be_replacing()?;
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
        protect::give_up(&volume)?;
        repair_task(&volume, quiet, true)?;
    }
    Ok(doc)
}

fn repair_task(volume: &Volume, quiet: bool, apply: bool) -> anyhow::Result<(Vec<String>, RepairReport)> {
    let (mut driver, arena) = volume.driver()?;
    let names = names(&driver);
    let task = bimetal_engine::repair(arena, driver.device_infos(), volume.open_options(), apply);
    let mut progress = Progress::new(format!("reading {}", volume.name().0), quiet);
    let report = run_task(&mut driver, task, |bytes, changes| progress.of_task(bytes, changes))??;
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
    let checked = run_task(&mut driver, task, |bytes, changes| progress.of_task(bytes, changes));
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
    let about_unconfirmed = describe_unconfirmed(report.log_end, &report.unconfirmed);
    Ok(CheckDoc {
        volume: volume.name().0,
        clean: findings.is_empty(),
        findings,
        chunks: report.chunks,
        landed_blocks: report.landed_blocks,
        verified_blocks: report.verified_blocks,
        second_copies: !report.has_no_copies,
        log_end: report.log_end,
        unconfirmed: report.unconfirmed.into_iter().map(GroupDoc::from).collect(),
        about_unconfirmed,
        repair: None,
    })
}

/// Whether a volume is clean, for the kill test; says what is not.
pub(crate) fn findings(file: &Path, quiet: bool) -> anyhow::Result<Vec<String>> {
    let doc = check_file(file, quiet)?;
    Ok(doc.findings.into_iter().map(|f| format!("{} at byte {}: {}", f.device, f.offset, f.what)).collect())
}
