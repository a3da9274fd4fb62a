//! One run of the quick test on one target.

use super::args::HowArgs;
use crate::lab::args::TargetArgs;
use crate::lab::stop::Stop;
use crate::lab::target::{Opening, Wanted};
use crate::lab::tested::{Named, tested};
use crate::lab::watcher::Watcher;
use anyhow::{Context as _, ensure};
use bimetal_lab::classic::quick::{Quick, QuickPlan, layout, quick};
use bimetal_lab::record::Run;
use bimetal_lab::target::{OpenHow, TargetName};
use bimetal_models::size;
use std::time::Duration;
use tempfile::NamedTempFile;

/// What is measured where a target was named: of a directory, a file in it that is removed in the end.
pub(super) struct Scratch {
    shown: String,
    target: TargetName,
    own: Option<NamedTempFile>,
}

impl Scratch {
    pub(super) fn new(named: &TargetName) -> anyhow::Result<Scratch> {
        let (mut target, mut own) = (named.clone(), None);
        if let TargetName::Path(path) = named {
            ensure!(path.exists(), "there is no {named}; name a directory, a file or a device that is there");
            if path.is_dir() {
                let file = tempfile::Builder::new().prefix("bimetal-quick-").tempfile_in(path);
                let file = file.with_context(|| format!("cannot make a file in {named}"))?;
                target = TargetName::Path(file.path().to_owned());
                own = Some(file);
            }
        }
        Ok(Scratch { shown: named.to_string(), target, own })
    }
}

/// What came of it.
pub(super) struct Measured {
    pub(super) found: Quick,
    pub(super) run: Run,
    pub(super) plan: QuickPlan,
}

/// Runs the test once, with what CrystalDiskMark's rows need or without.
pub(super) fn measure(
    how: &HowArgs,
    scratch: &Scratch,
    seed: u64,
    marks: bool,
    quiet: bool,
    stop: &Stop,
    what: &str,
) -> anyhow::Result<Measured> {
    ensure!(how.each > Duration::ZERO, "--each is a time above 0");
    let reads_only = how.reads_only && scratch.own.is_none();
    let wanted = Wanted {
        name: scratch.target.clone(),
        how: OpenHow { direct: true, write: !reads_only },
        lay_out_bytes: scratch.own.is_some().then_some(how.span),
        read: false,
    };
    let TargetArgs { connections, destroy_data } = how.opening;
    // A file of its own holds nothing yet.
    let destroy = destroy_data || scratch.own.is_some();
    let opening = Opening { connections, destroy, quiet, seed, stop };
    let name = scratch.shown.clone();
    let mut watcher = Watcher::new(what, quiet, stop);
    let layout = |size_bytes: u64| {
        layout(size_bytes, how.span).with_context(|| {
            format!("{name}: of {} bytes, there is no piece of 256 KiB to measure", size_bytes.min(how.span))
        })
    };
    let named = Named { title: format!("quick test of {name}"), target: name.clone() };
    let ((found, plan), mut run) = tested(named, wanted, opening, &mut watcher, layout, |tester| {
        let span_bytes = tester.layout().file_bytes;
        let plan = QuickPlan { span_bytes, each: how.each, reads_only, marks, seed };
        Ok((quick(tester, &plan)?, plan))
    })?;
    run.notes.splice(0..0, notes(&plan));
    Ok(Measured { found, run, plan })
}

fn notes(plan: &QuickPlan) -> Vec<String> {
    let mut notes = vec![format!(
        "measured on the first {} of it: a device with a cache as large as that answers from its cache",
        size::show(plan.span_bytes)
    )];
    if plan.reads_only {
        notes.push(
            "nothing was written: figures of writes are missing, and what was never written may be read without \
             asking the medium"
                .to_owned(),
        );
    }
    notes
}
