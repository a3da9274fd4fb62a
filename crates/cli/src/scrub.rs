//! `bimetal scrub`

use crate::args::ScrubArgs;
use crate::lost::MOST_LISTED;
use crate::lost::files::{self, FileDoc, Found};
use crate::volume::{self, Volume};
use crate::{Outcome, say, say_json, size};
use anyhow::{Context as _, bail};
use bimetal_engine::loss::{LossClass, LossRange, Losses};
use bimetal_serve::scrub::{ScrubDoc, ScrubWish};
use bimetal_serve::{Answer, Question, ScrubReport};
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds of a minute, an hour and a day.
const SPANS: [(u64, &str); 3] = [(24 * 3600, "days"), (3600, "hours"), (60, "minutes")];

/// What `scrub --json` prints.
#[derive(Debug, Serialize)]
struct Document<'r> {
    #[serde(flatten)]
    report: &'r ScrubReport,
    /// With something in a lost range; none unless `--files` asked for them.
    files: &'r [FileDoc],
    /// Directories and files of which it cannot be known what of them is lost.
    unknowable: &'r [PathBuf],
}

pub(crate) fn run(args: &ScrubArgs) -> anyhow::Result<Outcome> {
    let wish = match (args.status || args.files.is_some(), args.stop) {
        (true, _) => ScrubWish::Tell,
        (_, true) => ScrubWish::Stop,
        _ => ScrubWish::Begin,
    };
    let report = ask(&args.volume, wish)?;
    let found = match &args.files {
        Some(mount) => files::lost_files(mount, &losses(&report.scrub), report.scrub.of_bytes, args.json)?,
        None => Found::default(),
    };
    if args.json {
        say_json(&Document { report: &report, files: &found.files, unknowable: &found.unknowable })?;
    } else {
        say(&listing(&report));
        if let Some(mount) = &args.files {
            say(&found.describe(mount, MOST_LISTED));
            if report.scrub.unlisted_bytes > 0 {
                say("  and perhaps others, in what is not listed");
            }
        }
    }
    Ok(match report.scrub.lost_bytes() {
        0 => Outcome::Good,
        lost => Outcome::Problem(format!(
            "{}: {} are lost; write them again, from a backup, and scrub once more",
            report.volume,
            size::show(lost)
        )),
    })
}

/// How far it has come, and what is lost, for who reads it.
fn listing(report: &ScrubReport) -> String {
    let mut text = format!("{}: {}", report.volume, describe(&report.scrub));
    for lost in &report.scrub.lost {
        text += &format!("\n  lost: byte {:>15}   {:>10}", lost.offset, size::show(lost.length_bytes));
    }
    if report.scrub.unlisted_bytes > 0 {
        text += &format!("\n  lost: {} more, which are not listed", size::show(report.scrub.unlisted_bytes));
    }
    text
}

/// What is listed as lost.
fn losses(scrub: &ScrubDoc) -> Losses {
    let mut losses = Losses::default();
    for lost in &scrub.lost {
        losses.push(LossRange { offset: lost.offset, len: lost.length_bytes, class: LossClass::Lost });
    }
    losses
}

fn ask(name: &str, wish: ScrubWish) -> anyhow::Result<ScrubReport> {
    let volume = Volume::load(&volume::locate(name)?)?;
    let control = volume.socket("control")?;
    let silent =
        || format!("the server of {} does not answer on {}", volume.file.display(), control.display());
    let answer = bimetal_serve::live_answer(&control, &Question::Scrub { wish }).with_context(silent)?;
    match answer {
        Some(Answer::Scrub(report)) => Ok(*report),
        Some(Answer::Refused(what)) => bail!(what),
        Some(other) => bail!("the server gave another answer than asked for: {other:?}"),
        None => bail!(
            "{}: nobody serves it, so nothing scrubs it: `bimetal serve {name}` does, and `bimetal check {name}` looks at all \
             of it while it is closed",
            volume.name().0
        ),
    }
}

/// The last scrub, in a sentence or two.
pub(crate) fn describe(scrub: &ScrubDoc) -> String {
    let percent = 100.0 * scrub.done_bytes as f64 / scrub.of_bytes.max(1) as f64;
    let far = format!("{percent:.1} % of {}", size::show(scrub.of_bytes));
    let ago = |unix_s: Option<u64>| unix_s.and_then(ago).map_or(String::new(), |ago| format!(" {ago}"));
    let stands = match scrub.state.as_str() {
        "running" | "paused" => {
            let rate = match (scrub.bytes_per_s, scrub.left_s) {
                (Some(rate), Some(left)) => format!(", {} a second, {} left", size::show(rate), span(left)),
                _ => String::new(),
            };
            let pause =
                scrub.paused_because.as_ref().map_or(String::new(), |why| format!("; it waits: {why}"));
            format!("a scrub has seen {far}{rate}{pause}")
        }
        "stopped" => format!("the last scrub was stopped after {far}"),
        "whole" => format!("the last scrub saw everything{}", ago(scrub.whole_unix_s)),
        _ => return "it was never scrubbed".to_owned(),
    };
    let found = match (scrub.wrong_blocks, scrub.repaired_blocks) {
        (0, _) => "nothing was wrong".to_owned(),
        (wrong, repaired) => format!("{wrong} blocks were wrong, {repaired} of them are repaired"),
    };
    format!("{stands}; {found}")
}

/// How long ago that was.
fn ago(unix_s: u64) -> Option<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{} ago", span(now.saturating_sub(Duration::from_secs(unix_s)).as_secs())))
}

/// So many seconds, in the largest unit of which there are two.
fn span(seconds: u64) -> String {
    let found = SPANS.iter().find(|(unit, _)| seconds >= 2 * unit);
    found.map_or(format!("{seconds} s"), |(unit, name)| format!("{} {name}", seconds / unit))
}
