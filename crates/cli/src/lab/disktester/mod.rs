//! `bimetal lab create-files`, `read-files`, `fill`, `idle` and `adaptation`

pub(crate) mod args;
mod place;

use super::report::{judge, keep, look_ahead, look_ahead_at, outcome, write};
use super::stop::Stop;
use super::target::{self, Opening, Wanted};
use super::tested::session;
use crate::volume::{self, Volume};
use crate::{Outcome, say, say_json, say_record};
use anyhow::{Context as _, bail, ensure};
use args::{AdaptationArgs, CreateFilesArgs, FillArgs, IdleArgs, ReadFilesArgs};
use bimetal_lab::classic::disktester::{
    self, AdaptationPlan, Deed, FillPlan, Idle, IdleRule, Layout, Tester, Watched, mb_per_s,
};
use bimetal_lab::environment::describe;
use bimetal_lab::load::{Inside, LoadTarget};
use bimetal_lab::record::{JobRun, Run, TargetFacts};
use bimetal_lab::report;
use bimetal_lab::target::{FileKind, OpenHow, TargetName, device_bytes};
use bimetal_units::BLOCK_BYTES;
pub(crate) use place::Listener;
use place::{Ended, Making, Place, Room};
use serde::Serialize;
use std::time::Duration;

/// Parts that a target is filled in: a plot has about so many points.
const FILL_PARTS: u64 = 1000;
/// Files that an adaptation has room for, and the size that they have at most.
const ADAPTATION_FILES: u64 = 400;
const ADAPTATION_FILE_BYTES: u64 = 256 << 20;
/// Of the room, how much the story may take: a volume that is full to the brim has no slot to move anything with.
const ADAPTATION_PERCENT: u64 = 90;
/// A rest, where nothing else is said.
const REST: Duration = Duration::from_secs(7200);
const UNTOLD_REST: Duration = Duration::from_secs(300);
const FILL_QUIET: Duration = Duration::from_secs(10);

/// What came of a command, as `--json` prints it.
#[derive(Serialize)]
struct Document<'d, F> {
    #[serde(flatten)]
    found: &'d F,
    passes: Vec<PassDoc>,
    run: &'d Run,
}

#[derive(Serialize)]
struct PassDoc {
    name: String,
    seconds: f64,
    bytes: u64,
    files: usize,
    mb_per_s: f64,
    slowest_file_mb_per_s: Option<f64>,
    fastest_file_mb_per_s: Option<f64>,
    mismatched: u64,
}

impl PassDoc {
    fn new(ran: &JobRun) -> PassDoc {
        let bytes = ran.read.bytes + ran.write.bytes;
        let speed = |bytes: u64, ns: u64| mb_per_s(bytes, ns.max(1));
        let file = |ns: Option<&u64>| ns.map(|&ns| speed(ran.file_bytes, ns));
        PassDoc {
            name: ran.name.clone(),
            seconds: ran.elapsed_ns as f64 / 1e9,
            bytes,
            files: ran.files_ns.len(),
            mb_per_s: speed(bytes, ran.elapsed_ns),
            slowest_file_mb_per_s: file(ran.files_ns.iter().max()),
            fastest_file_mb_per_s: file(ran.files_ns.iter().min()),
            mismatched: ran.read.mismatched,
        }
    }
}

/// What is said of files that were created or read.
#[derive(Serialize)]
struct FilesDoc {
    target: String,
    files: u64,
    file_bytes: u64,
    transfer_bytes: u64,
    verified: bool,
}

/// Prints what was found, and keeps the record.
fn conclude<F: Serialize>(
    ended: Ended<F>,
    output: &super::args::OutputArgs,
    lines: &[String],
) -> anyhow::Result<Outcome> {
    let Ended { found, mut run, problem } = ended;
    let steady = judge(output, &mut run);
    match output.json {
        true => say_record(&Document {
            found: &found,
            passes: run.jobs.iter().map(PassDoc::new).collect(),
            run: &run,
        })?,
        false => lines.iter().chain(&steady).for_each(|line| say(line)),
    }
    // Behind what is printed: a file that cannot be written loses no run.
    keep(output, &run)?;
    Ok(problem.map_or_else(|| outcome(&[run]), Outcome::Problem))
}

pub(crate) fn create_files(args: &CreateFilesArgs) -> anyhow::Result<Outcome> {
    look_ahead(&args.output, Some(&args.target))?;
    let stop = Stop::new();
    let place = Place::new(&args.target, &args.transfer, &args.opening, &args.output, &stop);
    let layout =
        |room: Room| Ok(Layout { stamped: args.verify, ..place.layout(room, args.count, args.file_size) });
    let ended = place.with("create-files", Making::Keep, layout, |tester, room| {
        let verified = args.verify && room.has_data;
        header(tester, &args.target, args.verify);
        let count = tester.layout().count;
        tester.pass("create files", Deed::Write, 0..count)?;
        if verified && !tester.is_over() {
            tester.pass("verify files", Deed::Verify, 0..count)?;
        } else if args.verify && !verified {
            tester.say("a simulated target holds no data: nothing is verified");
        }
        Ok(files_doc(&args.target, tester.layout(), verified))
    })?;
    conclude(ended, &args.output, &[])
}

fn files_doc(target: &TargetName, layout: &Layout, verified: bool) -> FilesDoc {
    FilesDoc {
        target: target.to_string(),
        files: layout.count,
        file_bytes: layout.file_bytes,
        transfer_bytes: layout.transfer_bytes,
        verified,
    }
}

/// What DiskTester says first.
fn header<T: LoadTarget>(tester: &mut Tester<'_, T>, target: &TargetName, verify: bool) {
    let Layout { count, file_bytes, transfer_bytes, .. } = *tester.layout();
    let show = bimetal_models::size::show;
    for (name, value) in [
        ("Volume", target.to_string()),
        ("Num files", count.to_string()),
        ("File size", show(file_bytes)),
        ("Transfer size", show(transfer_bytes)),
        ("Verify", verify.to_string()),
    ] {
        tester.say(&format!("{name:<14} {value}"));
    }
    if let TargetName::Path(_) = target {
        tester.say("Speed includes what the file system does to create, open and allocate.");
    }
}

pub(crate) fn read_files(args: &ReadFilesArgs) -> anyhow::Result<Outcome> {
    look_ahead(&args.output, Some(&args.target))?;
    let stop = Stop::new();
    let place = Place::new(&args.target, &args.transfer, &args.opening, &args.output, &stop);
    ensure!(
        place.is_directory() || args.count.is_some(),
        "{} is no directory; say with -n and -f how many parts of which size are to be read",
        args.target
    );
    ensure!(
        !(place.is_directory() && args.count.is_some()),
        "{} is a directory, whose listing says how many files there are; leave out -n and -f",
        args.target
    );
    let making = if place.is_simulated() { Making::Keep } else { Making::Nothing };
    let layout = |room: Room| match room.listed {
        Some((count, file_bytes, seed, stamped)) => {
            ensure!(
                stamped || !args.verify,
                "the files were made without --verify: their contents cannot be compared"
            );
            Ok(Layout { seed, stamped, ..place.layout(room, count, file_bytes) })
        }
        None => Ok(place.layout(room, args.count.unwrap_or(0), args.file_size.unwrap_or(0))),
    };
    let ended = place.with("read-files", making, layout, |tester, room| {
        let verified = args.verify && room.has_data;
        header(tester, &args.target, args.verify);
        let count = tester.layout().count;
        if making == Making::Keep {
            tester.pass("create files", Deed::Write, 0..count)?;
        }
        let deed = if verified { Deed::Verify } else { Deed::Read };
        for nth in 1..=args.iterations {
            if tester.is_over() {
                break;
            }
            tester.pass(&format!("read files, {nth} of {}", args.iterations), deed, 0..count)?;
        }
        Ok(files_doc(&args.target, tester.layout(), verified))
    })?;
    conclude(ended, &args.output, &[])
}

pub(crate) fn fill(args: &FillArgs) -> anyhow::Result<Outcome> {
    look_ahead(&args.output, Some(&args.target))?;
    let stop = Stop::new();
    let place = Place::new(&args.target, &args.transfer, &args.opening, &args.output, &stop);
    let rest = args.rest.map(|rest| rule(FILL_QUIET.min(rest), rest, rest));
    let plan = FillPlan { rest, read: !args.no_read };
    let layout = |room: Room| {
        let part = place.part(room.bytes / FILL_PARTS);
        ensure!(
            part > 0,
            "{} has {} bytes, too few to be filled in {FILL_PARTS} parts",
            args.target,
            room.bytes
        );
        Ok(place.layout(room, (room.bytes / part).min(2 * FILL_PARTS), part))
    };
    let mut ended =
        place.with("fill", Making::Remove, layout, |tester, _| Ok(disktester::fill(tester, &plan)?))?;
    ended.run.notes.push(ended.found.sentence());
    conclude(ended, &args.output, &[])
}

fn rule(quiet: Duration, most: Duration, untold: Duration) -> IdleRule {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    IdleRule { quiet_ns: ns(quiet), most_ns: ns(most), untold_ns: ns(untold) }
}

pub(crate) fn adaptation(args: &AdaptationArgs) -> anyhow::Result<Outcome> {
    look_ahead(&args.output, Some(&args.target))?;
    let stop = Stop::new();
    let place = Place::new(&args.target, &args.transfer, &args.opening, &args.output, &stop);
    let rest = rule(args.quiet, args.idle.unwrap_or(REST), args.idle.unwrap_or(UNTOLD_REST));
    let plan =
        AdaptationPlan { all_files: args.count.is_some(), reads: args.reads, rounds: args.rounds, rest };
    let layout = |room: Room| {
        let may = room.bytes / 100 * ADAPTATION_PERCENT;
        let own = place.part((may / ADAPTATION_FILES).min(ADAPTATION_FILE_BYTES));
        let file = args.file_size.unwrap_or(own);
        ensure!(file > 0, "{} has {} bytes, too few for this test", args.target, room.bytes);
        let most = (may / file).min(bimetal_lab::target::MAX_FILES);
        Ok(place.layout(room, args.count.unwrap_or(most), file))
    };
    let mut ended = place
        .with("adaptation", Making::Remove, layout, |tester, _| Ok(disktester::adaptation(tester, &plan)?))?;
    ended.run.notes.push(ended.found.verdict.clone());
    let mut lines = vec![String::new()];
    lines.extend(ended.found.lines());
    conclude(ended, &args.output, &lines)
}

pub(crate) fn idle(args: &IdleArgs) -> anyhow::Result<Outcome> {
    let page = args.html.as_deref();
    look_ahead_at(&args.html, args.force, Some(&args.target))?;
    let stop = Stop::new();
    let mut listener = Listener::new(args.json, &stop);
    let (found, run) = match &args.target {
        TargetName::Volume(name) => idle_volume(name, args, &mut listener, &stop)?,
        TargetName::Path(path) => {
            ensure!(path.exists(), "there is no {}; name a directory or a device that is", path.display());
            ensure!(
                device_bytes(path).is_some(),
                "the kernel does not count what the device below {} does; there is nothing to watch",
                path.display()
            );
            stop.listen()?;
            let mut watched =
                Watched::new(|| Some(Inside { device_bytes: device_bytes(path)?, ..Inside::default() }));
            let kind = if path.is_dir() { FileKind::Regular } else { FileKind::BlockDevice };
            let facts = describe(path, kind, 0);
            rest(&mut watched, facts, args, &mut listener)?
        }
        TargetName::Model { .. } | TargetName::Scenario(_) => bail!(
            "{} is new each time, and has nothing to do; `bimetal lab adaptation` loads it first, and leaves it alone \
             then",
            args.target
        ),
        TargetName::Nbd { .. } | TargetName::Null => {
            bail!("{} does not tell what it does; name a volume, a directory or a block device", args.target)
        }
    };
    if args.json {
        say_json(&found)?;
    }
    if let Some(path) = page {
        let named = report::Named { name: run.title.clone(), run };
        write(path, args.force, report::html_with(&[named], &found.page()).as_bytes())?;
    }
    Ok(Outcome::Good)
}

/// Leaves a target alone; what it did, and a record without jobs, as it was asked for nothing.
fn rest<T: LoadTarget>(
    target: &mut T,
    facts: TargetFacts,
    args: &IdleArgs,
    listener: &mut Listener<'_>,
) -> anyhow::Result<(Idle, Run)> {
    let nothing =
        Layout { count: 1, file_bytes: 4096, transfer_bytes: 4096, depth: 1, seed: 0, stamped: false };
    let mut tester = Tester::new(target, "", nothing, listener);
    let idle = tester.idle(&rule(args.quiet, args.at_most, args.at_most))?;
    let target = args.target.to_string();
    Ok((idle, tester.finish(session(format!("idle {target}"), &target, facts, false, 0))))
}

/// A volume that is served is asked for its status; another is opened here, as long as the rest lasts.
fn idle_volume(
    name: &str,
    args: &IdleArgs,
    listener: &mut Listener<'_>,
    stop: &Stop,
) -> anyhow::Result<(Idle, Run)> {
    let volume = Volume::load(&volume::locate(name)?)?;
    let control = volume.socket("control")?;
    let ask = || {
        bimetal_serve::live_status(&control).with_context(|| {
            format!("the server of {} does not answer on {}", volume.file.display(), control.display())
        })
    };
    if let Some(status) = ask()? {
        stop.listen()?;
        let mut watched = Watched::new(|| {
            let status = ask().ok()??;
            let chunk = u64::from(status.chunk_bytes);
            Some(Inside {
                promoted_bytes: status.promoted_chunks * chunk,
                demoted_bytes: status.demoted_chunks * chunk,
                copied_bytes: status.wear.copied_bytes,
                merged_bytes: status.destaged_blocks * u64::from(BLOCK_BYTES),
                device_bytes: 0,
            })
        });
        let kind = "served volume".to_owned();
        let facts = TargetFacts { kind, size_bytes: status.size_bytes, ..TargetFacts::default() };
        return rest(&mut watched, facts, args, listener);
    }
    let wanted = Wanted {
        name: args.target.clone(),
        how: OpenHow { direct: true, write: false },
        lay_out_bytes: None,
        read: false,
    };
    let opening = Opening { connections: 1, destroy: false, quiet: args.json, seed: 1, stop };
    target::with(&[wanted], opening, |mut open| rest(&mut open.target, open.facts[0].clone(), args, listener))
}
