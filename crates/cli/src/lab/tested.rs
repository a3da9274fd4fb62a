//! One test on one target, from opening it to the record of what was done.

use super::PROGRAM;
use super::busy::Busy;
use super::target::{self, Opening, Wanted};
use anyhow::Context as _;
use bimetal_lab::classic::disktester::{Audience, Layout, Tester, TesterError};
use bimetal_lab::environment::environment;
use bimetal_lab::load::LoadTarget;
use bimetal_lab::record::{Run, TargetFacts};
use bimetal_lab::session::Session;

/// A test, as its record has it.
pub(super) struct Named {
    /// What was run, in a line.
    pub(super) title: String,
    /// The target.
    pub(super) target: String,
}

/// Opens a target, works on the part of it that `layout` finds in its size, and closes it.
pub(super) fn tested<F>(
    named: Named,
    wanted: Wanted,
    opening: Opening<'_>,
    audience: &mut dyn Audience,
    layout: impl FnOnce(u64) -> anyhow::Result<Layout>,
    work: impl FnOnce(&mut Tester<'_, Box<dyn LoadTarget + '_>>) -> Result<F, TesterError>,
) -> anyhow::Result<(F, Run)> {
    let Named { title, target } = named;
    target::with(&[wanted], opening, |mut open| {
        let facts = open.facts[0].clone();
        let layout = layout(facts.size_bytes)?;
        let session = session(title, &target, facts, open.virtual_time, opening.seed);
        opening.stop.listen()?;
        let busy = Busy::new();
        let mut tester = Tester::new(&mut open.target, &target, layout, audience);
        let found = work(&mut tester).with_context(|| target.clone())?;
        let run = Run { cpu: Some(busy.cpu()), ..tester.finish(session) };
        Ok((found, run))
    })
}

/// What a run on one target is called and was done on.
pub(super) fn session(
    title: String,
    target: &str,
    facts: TargetFacts,
    virtual_time: bool,
    seed: u64,
) -> Session {
    let mut environment = environment(PROGRAM);
    environment.targets.insert(target.to_owned(), facts);
    Session { title, environment, places: vec![target.to_owned()], seed, virtual_time, notes: Vec::new() }
}
