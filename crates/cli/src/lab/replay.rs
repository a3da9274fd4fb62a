//! `bimetal trace replay`

use super::args::{ReplayArgs, TargetArgs};
use super::busy::Busy;
use super::report::{judge, keep, look_ahead, outcome};
use super::stop::Stop;
use super::target::{self, Opening, Wanted};
use super::tested::session;
use crate::progress::Progress;
use crate::trace::Spooled;
use crate::{Outcome, complain, say, say_record};
use anyhow::Context as _;
use bimetal_lab::record::Run;
use bimetal_lab::replay::{self, Fidelity};
use bimetal_lab::report::{self, Named};
use bimetal_lab::target::OpenHow;
use bimetal_sim::scenario::{Extent, ReplaySpec, Survey, TraceSpec};
use serde::Serialize;
use std::path::Path;

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'d> {
    fidelity: &'d Fidelity,
    run: &'d Run,
}

pub(crate) fn run(args: &ReplayArgs) -> anyhow::Result<Outcome> {
    look_ahead(&args.output, Some(&args.target))?;
    let quiet = args.output.json;
    // It is read twice: once to see what it touches, once to do it.
    let spooled = Spooled::new(&args.files)?;
    let files = spooled.paths.iter().map(|file| file.to_string_lossy().into_owned()).collect();
    let spec = TraceSpec { first: args.first, ..TraceSpec::new(files) };
    let how_read = Progress::new("reading the trace".to_owned(), quiet);
    let survey = Survey::read(&spec, Path::new(""))?;
    drop(how_read);
    if survey.unsorted() > 0 {
        complain(&format!(
            "bimetal: {} records stand so far behind later ones that they cannot be put in order; they are begun where \
             they stand",
            survey.unsorted()
        ));
    }
    if let Some(why) = survey.torn() {
        complain(&format!("bimetal: {why}"));
    }
    let how = ReplaySpec {
        mode: args.mode.mode(),
        depth: args.depth,
        speed: args.speed,
        idle_at_most_seconds: args.idle_at_most.map(|time| time.as_secs_f64()),
        map: args.map.map(),
        from: Extent::Bytes(args.from.unwrap_or(0)),
    };
    how.check().map_err(anyhow::Error::msg)?;
    let open = OpenHow { direct: !args.buffered, write: survey.changes() };
    let wanted = Wanted { name: args.target.clone(), how: open, lay_out_bytes: None, read: false };
    let stop = Stop::new();
    let TargetArgs { connections, destroy_data: destroy } = args.opening;
    let opening = Opening { connections, destroy, quiet, seed: 1, stop: &stop };
    let (mut run, fidelity) = target::with(&[wanted], opening, |mut open| {
        let facts = open.facts[0].clone();
        let size_bytes = facts.size_bytes;
        let session = session(title(args), &args.target.to_string(), facts, open.virtual_time, 1);
        stop.listen()?;
        let busy = Busy::new();
        let mut progress = Progress::new(session.title.clone(), quiet);
        let ran = replay::run(&mut open.target, session, &survey, &how, size_bytes, &mut |share| {
            progress.at(&format!("{:.0} %", share * 100.0));
            !stop.is_asked_for()
        })
        .with_context(|| args.target.to_string());
        ran.map(|(run, fidelity)| (Run { cpu: Some(busy.cpu()), ..run }, fidelity))
    })?;
    let steady = judge(&args.output, &mut run);
    if args.output.json {
        say_record(&Document { fidelity: &fidelity, run: &run })?;
    } else {
        say(report::text(&[Named { name: run.title.clone(), run: run.clone() }]).trim_end());
        say(&describe(&fidelity));
        steady.iter().for_each(|line| say(line));
    }
    // Behind what is printed: a file that cannot be written loses no run.
    keep(&args.output, &run)?;
    Ok(outcome(&[run]))
}

fn title(args: &ReplayArgs) -> String {
    let first = args.files.first().and_then(|file| file.file_name()).unwrap_or_default();
    format!("replay of {}", first.to_string_lossy())
}

fn describe(fidelity: &Fidelity) -> String {
    let Fidelity { records, left_out, split, malformed, .. } = fidelity;
    let mut text = format!(
        "\n{} replay of {records} records ({left_out} left out, {split} split, {malformed} malformed)",
        fidelity.mode
    );
    if fidelity.out_of_order > 0 {
        let sorted = fidelity.out_of_order - fidelity.unsorted;
        text += &format!(
            "\n  out of order in the trace: {}; put where they belong: {sorted}",
            fidelity.out_of_order
        );
    }
    if let Some(recorded) = fidelity.recorded_seconds {
        text += &format!("\n  it took {:.2} s; recorded over {recorded:.2} s", fidelity.seconds);
    }
    if fidelity.timed > 0 {
        text += &format!(
            "\n  begun late: {:.1} % of the requests; by {:.1} us on average of all, by {:.1} us at most",
            fidelity.late_share * 100.0,
            fidelity.late_mean_us,
            fidelity.late_max_us
        );
    }
    text += &format!("\n  in flight on average: {:.2}", fidelity.mean_depth);
    if let Some(recorded) = fidelity.recorded_mean_depth {
        text += &format!("; recorded {recorded:.2}");
    }
    if let Some(share) = fidelity.dependent_share {
        text += &format!("\n  waited for another request: {:.1} %", share * 100.0);
    }
    text
}
