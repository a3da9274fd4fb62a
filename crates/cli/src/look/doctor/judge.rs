//! What is wrong, by what is known. Each rule says nothing where what it goes by is not known.

use super::facts::{Facts, Server, State};
use super::{Finding, Severity, below};
use crate::size;
use bimetal_serve::{StatusDoc, unix_ms};

/// A device that answers nothing for so long while something is asked of it is more than a disk that spins up, seconds.
const SILENCE_SECONDS: u64 = 30;
/// So many moves are judged before it is said that they do not repay.
const ENOUGH_MOVES: u64 = 1000;
/// One move in so many that repays is too few.
const REPAID_ONE_IN: u64 = 5;
/// So much on the slow tier that is this many times as hot as what may rise should have risen.
const HOT_BYTES: u64 = 64 << 20;
const HOT_TIMES: u32 = 8;
/// A promotion so long ago says that nothing rises now, seconds.
const NO_RISE_SECONDS: u64 = 600;
/// A read that is saved by the fast tier saves less than this, microseconds: the devices are alike.
const ALIKE_US: f64 = 20.0;
/// A volume that takes one part in so many of memory takes much.
const MEMORY_SHARE: u64 = 2;
/// Kernels from here on discard block devices for a ring, and those from there on have all that a server needs.
const DISCARDS_SINCE: (u32, u32) = (6, 12);
const SERVES_SINCE: (u32, u32) = (5, 11);

/// What is wrong, the worst first.
pub(crate) fn findings(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    devices_there(facts, &mut findings);
    state(facts, &mut findings);
    at_boot(facts, &mut findings);
    system(facts, &mut findings);
    below::devices(facts, &mut findings);
    if let Some(status) = facts.status() {
        health(facts, status, &mut findings);
        paths_to_devices(status, &mut findings);
    }
    if let Some(server) = facts.server() {
        moving(facts, server, &mut findings);
    }
    findings.sort_by_key(|finding| finding.severity);
    findings
}

/// Adds a finding.
pub(super) fn find(
    findings: &mut Vec<Finding>,
    severity: Severity,
    kind: &'static str,
    what: String,
    cure: impl Into<String>,
) {
    findings.push(Finding { kind, severity, what, cure: cure.into() });
}

/// Adds that the devices are as fast as each other, by what shows it.
pub(super) fn alike(findings: &mut Vec<Finding>, what: String) {
    let cure = "give it a faster fast device: these two are alike";
    find(findings, Severity::Warning, "same-speed", what, cure);
}

fn devices_there(facts: &Facts, findings: &mut Vec<Finding>) {
    let Facts { called, file, .. } = facts;
    for missing in &facts.missing {
        let what = format!(
            "the {} device is missing: {} {}",
            missing.name(),
            missing.path.display(),
            missing.instead
        );
        let cure = match missing.tier {
            0 if facts.is_protected => format!(
                "connect it, or name its new place in {}; `bimetal serve {called} --degraded` serves the image, and \
                 `bimetal replace {called} --fast DEVICE` goes on with it on another device",
                file.display()
            ),
            0 => format!(
                "connect it, or name its new place in {}; nothing can be read without it",
                file.display()
            ),
            _ => format!(
                "connect it, or name its new place in {}; `bimetal lost {called}` says what is on it, and `bimetal serve {called} --degraded` serves the rest",
                file.display()
            ),
        };
        find(findings, Severity::Error, "missing-device", what, cure);
    }
    if facts.stands_in {
        let what = "the fast device is gone, and the copy on the slow one has its place: all is as slow as that, and there is no image";
        let cure = format!("give it another one: `bimetal replace {called} --fast DEVICE`");
        find(findings, Severity::Error, "stand-in", what.to_owned(), cure);
    }
    for moved in &facts.moved {
        let cure =
            format!("write the new place into {}, so that it is not searched for each time", file.display());
        find(findings, Severity::Hint, "moved-device", moved.clone(), cure);
    }
    if let Some(confused) = &facts.confused {
        let (what, cure) =
            confused.split_once("; ").unwrap_or((confused, "name the right devices in the volume file"));
        find(findings, Severity::Error, "two-of-one", what.to_owned(), cure);
    }
    if facts.unfinished {
        let what = format!("{} was not made to its end, or not destroyed to its end", file.display());
        find(
            findings,
            Severity::Error,
            "unfinished",
            what,
            "run `bimetal create --force` again, or `bimetal destroy --force`",
        );
    }
}

fn state(facts: &Facts, findings: &mut Vec<Finding>) {
    let called = &facts.called;
    if let State::Broken(why) = &facts.state {
        let what = format!("it cannot be opened: {why}");
        let cure = format!(
            "run `bimetal check {called}`, which lists the damage, then `bimetal check {called} --repair`"
        );
        find(findings, Severity::Error, "broken", what, cure);
    }
    let Some(Server { status, is_outdated, .. }) = facts.server() else { return };
    match status.state.as_str() {
        "read-only" => {
            let what =
                "it is read-only: a device has failed since it was opened, and nothing is written any more"
                    .to_owned();
            let cure = "see the server's log for the device's error; mend or replace that, then serve the volume again";
            find(findings, Severity::Error, "read-only", what, cure);
        }
        "degraded" => {
            let missing = status.loss.as_ref().map_or("slow".into(), |loss| loss.missing.name());
            let how = match status.loss.as_ref().is_some_and(|loss| loss.writable) {
                true => "and written to as long as the fast one has room",
                false => "read-only",
            };
            let cure = format!(
                "copy away what can be read (`bimetal lost {called}` lists the rest), or connect the device and serve it again"
            );
            let what = format!("it is served without its {missing} device, {how}");
            find(findings, Severity::Error, "degraded", what, cure);
        }
        _ => {}
    }
    if *is_outdated {
        let what = "its server runs a program that has been replaced since".to_owned();
        find(findings, Severity::Hint, "old-server", what, "restart the server, when its clients allow that");
    }
    for tier in &status.tiers {
        if let Some(since) = tier.remote.as_ref().and_then(|remote| remote.away_since_unix_s) {
            let what = format!(
                "the {} device, {}, has been away for {} s; what is only there waits, and then fails",
                tier.name,
                tier.device,
                unix_s().saturating_sub(since)
            );
            let cure = "see to its server, and to the network between; all goes on by itself when it is back";
            find(findings, Severity::Error, "away-device", what, cure);
            continue;
        }
        let silent = tier.silent_since_unix_s.map(|since| unix_s().saturating_sub(since)).unwrap_or_default();
        if silent >= SILENCE_SECONDS {
            let what = format!(
                "the {} device has answered nothing for {silent} s, and requests wait for it",
                tier.name
            );
            let cure = "look for it in the kernel's log (`dmesg`); a cable, a controller or the drive itself may have failed";
            find(findings, Severity::Error, "silent-device", what, cure);
        }
    }
}

fn at_boot(facts: &Facts, findings: &mut Vec<Finding>) {
    let (called, is_served) = (&facts.called, facts.server().is_some());
    match &facts.attached {
        Some(attached) if !is_served => {
            let what = format!("nobody serves it, and what is asked of {} waits", attached.path.display());
            find(
                findings,
                Severity::Error,
                "not-served",
                what,
                format!("run `bimetal serve {called}`, or start its unit"),
            );
        }
        _ if !is_served && (facts.in_fstab || facts.enabled) => {
            let by = if facts.enabled { "its unit is enabled" } else { "/etc/fstab names it" };
            let what = format!("nobody serves it, though {by}");
            let cure = format!(
                "`systemctl status bimetal@{called}` says why; start it with `systemctl start bimetal@{called}`"
            );
            find(findings, Severity::Error, "not-served", what, cure);
        }
        _ => {}
    }
    if facts.in_fstab && !facts.enabled {
        let what = "/etc/fstab mounts it at boot, and no unit serves it then".to_owned();
        find(
            findings,
            Severity::Warning,
            "not-at-boot",
            what,
            format!("run `systemctl enable bimetal@{called}`"),
        );
    }
}

fn system(facts: &Facts, findings: &mut Vec<Finding>) {
    if let (Some((all, available)), Some(status)) = (facts.memory, facts.status()) {
        let takes = status.ram_bytes + status.buffer_bytes;
        let is_short = facts.server().is_none() && takes > available;
        if takes > all / MEMORY_SHARE || is_short {
            let what = format!(
                "it takes {} of memory, of {} that there is and {} that can be had",
                size::show(takes),
                size::show(all),
                size::show(available)
            );
            let cure = "serve it with a smaller --memory, make it again with larger chunks, or give the machine more";
            find(findings, Severity::Warning, "memory", what, cure);
        }
    }
    let is_block = |tier: usize| facts.devices[tier].as_ref().is_some_and(|device| device.file.is_none());
    match facts.kernel {
        Some(kernel) if kernel < SERVES_SINCE => {
            let what = format!("the kernel is {}.{}, and a server needs 5.11", kernel.0, kernel.1);
            find(findings, Severity::Error, "old-kernel", what, "run a newer kernel");
        }
        Some(kernel) if kernel < DISCARDS_SINCE && is_block(0) => {
            let what = format!(
                "the kernel is {}.{}, which gives no space back to block devices; 6.12 does",
                kernel.0, kernel.1
            );
            let cure = "run Linux 6.12 or newer, or leave a part of the SSD unused";
            find(findings, Severity::Hint, "old-kernel", what, cure);
        }
        _ => {}
    }
}

fn health(facts: &Facts, status: &StatusDoc, findings: &mut Vec<Finding>) {
    let called = &facts.called;
    let lost = status.scrub.lost_bytes();
    if lost > 0 {
        let what = format!("the last scrub has found {} lost", size::show(lost));
        let cure = format!(
            "`bimetal scrub {called} --files MOUNTPOINT` names the files: restore them, then scrub once more"
        );
        find(findings, Severity::Error, "lost-data", what, cure);
    }
    if status.reads_again > 0 {
        let what = format!(
            "{} reads failed, or read what was wrong, and were made again since it was opened; {} blocks were repaired",
            status.reads_again, status.repaired_blocks
        );
        let cure = format!("run `bimetal scrub {called}`, and look at both drives with `smartctl -a`");
        find(findings, Severity::Warning, "reads-again", what, cure);
    }
    for tier in status.tiers.iter().filter(|tier| tier.load.errors > 0) {
        let what =
            format!("the {} device has failed {} commands since it was opened", tier.name, tier.load.errors);
        let cure =
            "look into the kernel's log (`dmesg`) and at the drive (`smartctl -a`); have a spare at hand";
        find(findings, Severity::Warning, "device-errors", what, cure);
    }
}

fn paths_to_devices(status: &StatusDoc, findings: &mut Vec<Finding>) {
    for tier in status.tiers.iter().filter(|tier| !tier.direct) {
        if status.loss.as_ref().is_some_and(|loss| loss.missing.name() == tier.name) {
            continue;
        }
        let what = format!(
            "the {} device, {}, goes through the page cache, which keeps all of it twice",
            tier.name, tier.device
        );
        let cure = "put the file on a file system with direct I/O in units of 4 KiB or less (ext4, XFS), or use a block device";
        find(findings, Severity::Hint, "page-cache", what, cure);
    }
}

/// Whether what is hot is where it should be, and whether the volume keeps up.
fn moving(facts: &Facts, server: &Server, findings: &mut Vec<Finding>) {
    let (status, called) = (&server.status, &facts.called);
    if status.landing.short {
        let what = format!(
            "the landing zone is short ({} of {} in use): writes wait for what the slow device takes",
            size::show(status.landing.used_bytes),
            size::show(status.landing.size_bytes)
        );
        let cure = "wait until a burst of writes is over; where that never ends, a larger or faster device is needed";
        find(findings, Severity::Warning, "zone-short", what, cure);
    }
    let budget = status.wear.budget.as_ref();
    let is_spent = budget.is_some_and(|budget| budget.left_bytes < u64::from(status.chunk_bytes));
    if let Some(budget) = budget.filter(|_| is_spent) {
        let what = format!(
            "the wear budget of {} a day is spent, so nothing rises but what is pinned",
            size::show(budget.bytes_per_day)
        );
        let cure = format!("wait, or raise wear_budget in {}", facts.file.display());
        find(findings, Severity::Warning, "wear-budget", what, cure);
    }
    let moves = &status.moves;
    if moves.judged_chunks >= ENOUGH_MOVES && moves.repaid_chunks * REPAID_ONE_IN < moves.judged_chunks {
        let what = format!(
            "of {} chunks that rose, only {} have repaid it",
            moves.judged_chunks, moves.repaid_chunks
        );
        let cure =
            "little of what is used is used again: a larger fast device would help, or pins for what matters";
        find(findings, Severity::Warning, "moves-do-not-repay", what, cure);
    }
    let is_modelled = facts.devices.iter().flatten().any(|device| device.model.is_some());
    if let Some(us) = moves.saved_us_per_read.filter(|us| *us < ALIKE_US && !is_modelled) {
        let what = format!(
            "a read from the fast device is only {us:.0} us sooner there than one from the slow device"
        );
        alike(findings, what);
    }
    if !is_spent && status.state == "open" {
        hot_and_slow(server, called, findings);
    }
}

fn hot_and_slow(server: &Server, called: &str, findings: &mut Vec<Finding>) {
    let status = &server.status;
    let much = server.rises_at_heat.max(1).saturating_mul(HOT_TIMES);
    let hot = server.map.iter().filter(|cell| cell.hottest >= much);
    let (bytes, first) = hot
        .fold((0, None), |(bytes, first), cell| (bytes + cell.hot_slow_bytes, first.or(Some(cell.offset))));
    let fast = status.tiers.first().map_or(0, |tier| tier.size_bytes.saturating_sub(tier.used_bytes));
    let rose = status.last_promotion_unix_s.is_some_and(|at| unix_s().saturating_sub(at) < NO_RISE_SECONDS);
    let Some(first) = first.filter(|_| bytes >= HOT_BYTES && fast >= bytes && !rose) else { return };
    let hot = size::show(bytes);
    let cure = format!(
        "`bimetal why {called} {first}` says why one of them is where it is; pins may be in the way (`bimetal pins {called}`)"
    );
    let (kind, what) = match status.promoted_chunks {
        0 => (
            "never-moved",
            format!(
                "nothing has risen since it was opened, though {hot} of the slow tier are hot and the fast tier has room"
            ),
        ),
        _ => (
            "hot-on-slow",
            format!("{hot} of the slow tier are hot, the fast tier has room, and nothing rises"),
        ),
    };
    find(findings, Severity::Warning, kind, what, cure);
}

fn unix_s() -> u64 {
    unix_ms() / 1000
}
