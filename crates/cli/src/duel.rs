//! `bimetal sim duel`

use crate::progress::Progress;
use crate::sweep::Set;
use crate::text_file::read;
use crate::threads::threads;
use crate::{Outcome, say, say_json};
use anyhow::{Context as _, bail};
use bimetal_engine::options::Tuning;
use bimetal_models::spec;
use bimetal_sim::duel::{
    Bout, Found, GRAMMAR, Harms, Metric, OTHERS, Rules, Score, Workload, Worst, bout, climb, scores, shrink,
    worst,
};
use bimetal_sim::peers::Policy;
use bimetal_sim::scenario::{ScenarioError, TuningSpec};
use bimetal_sim::side_by_side;
use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Bytes of a file with a workload at most: far more than people write.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Bouts that are shown of those in which ours is farthest behind.
const WORST: usize = 10;
/// Bouts from which worse is looked for.
const CLIMBED: usize = 8;

/// `bimetal sim duel`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal sim duel --seeds 200
  bimetal sim duel --seed 1000017 --seeds 1 --json
  bimetal sim duel --seeds 50 --search --policies static
  bimetal sim duel --shrink 1000017 > worst.toml
  bimetal sim duel worst.toml --set push_worth=8

A seed draws a workload: one to four streams, offsets, sizes, bursts, flushes, rests, and a pair of devices. A volume of
0.5 to 32 GiB is filled, rests ten minutes, and meets it under each policy. A figure is theirs over ours, with 300 us added
to both: above 1 ours is ahead. The same seed draws the same workload everywhere, in each version with the same grammar.
Ours is tuned on seeds below a million; what it reaches is told of others. A workload of your own is a TOML file, such as
--shrink prints. docs/SIMULATOR.md says what each word of it means.")]
pub(crate) struct DuelArgs {
    /// A workload of your own, in place of those that seeds draw
    #[arg(value_name = "FILE", conflicts_with_all = ["devices", "search", "shrink"])]
    pub(crate) workload: Option<PathBuf>,
    /// Seeds, one after the other [default: 100; 1 of a workload of your own]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) seeds: Option<u64>,
    /// The first seed
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(crate) seed: u64,
    /// The others, by name, separated by commas [default: static,bcache,bcache-second,fusion,dm-cache-smq]
    #[arg(long, value_name = "P,...", value_delimiter = ',', value_parser = other)]
    pub(crate) policies: Vec<Policy>,
    /// The models of the fast and the slow device, in place of a pair that is drawn
    #[arg(long, value_name = "FAST,SLOW", value_parser = pair)]
    pub(crate) devices: Option<(String, String)>,
    /// What ours weighs, as in `bimetal sim sweep --list`: one value of a setting
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = crate::sweep::parse_set)]
    pub(crate) sets: Vec<Set>,
    /// From the worst seeds on, look for worse: change a feature 60 times, and keep what is
    #[arg(long)]
    pub(crate) search: bool,
    /// Make the workload of this seed as simple as it can be while ours still loses in the same way, and print it as TOML
    #[arg(long, value_name = "SEED", conflicts_with = "search")]
    pub(crate) shrink: Option<u64>,
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// Seeds at a time [default: one for each processor]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
}

fn other(name: &str) -> Result<Policy, String> {
    let all = || Policy::ALL.into_iter().chain([Policy::AllFast]).filter(|policy| !policy.is_ours());
    all().find(|policy| policy.name() == name).ok_or_else(|| {
        let names: Vec<&str> = all().map(Policy::name).collect();
        format!("no other policy is called {name:?}; there are {}", names.join(", "))
    })
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (fast, slow) = text.split_once(',').ok_or("write FAST,SLOW, such as nvme-present,disk-20tb")?;
    for model in [fast, slow] {
        spec::named(model).map_err(|error| error.to_string())?;
    }
    Ok((fast.to_owned(), slow.to_owned()))
}

#[derive(Serialize)]
struct Document {
    grammar: u32,
    seeds: usize,
    #[serde(flatten)]
    by_metric: BTreeMap<Metric, BTreeMap<&'static str, Score>>,
    worst: Vec<Worst>,
    harms: Harms,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    climbed: Vec<Told>,
    seconds: f64,
}

/// A workload that was found, as JSON tells of it.
#[derive(Serialize)]
struct Told {
    seed: u64,
    policy: &'static str,
    metric: Metric,
    times: f64,
    from_times: f64,
    what: String,
    workload: Workload,
}

pub(crate) fn run(args: &DuelArgs) -> anyhow::Result<Outcome> {
    let began = Instant::now();
    let rules = rules(args)?;
    let threads = threads(args.threads)?;
    if let Some(seed) = args.shrink {
        return shrunk(args, seed, &rules);
    }
    let own = args.workload.as_deref().map(|path| {
        let text = read(path, MAX_FILE_BYTES)?;
        let workload = Workload::parse(&text).map_err(anyhow::Error::msg);
        workload.with_context(|| path.display().to_string())
    });
    let own = own.transpose()?;
    let count = args.seeds.unwrap_or(if own.is_some() { 1 } else { 100 });
    let last = args.seed.checked_add(count).context("the last seed is beyond what 64 bits hold")?;
    let seeds: Vec<u64> = (args.seed..last).collect();
    let bouts = at_once("the duel", args.json, &seeds, threads, |&seed| {
        let workload = match &own {
            Some(workload) => workload.clone(),
            None => Workload::drawn(seed, args.devices.as_ref()),
        };
        bout(&workload, seed, &rules)
    })?;
    let climbed = if args.search { search(args, &bouts, &rules, threads)? } else { Vec::new() };
    let document = Document {
        grammar: GRAMMAR,
        seeds: bouts.len(),
        by_metric: Metric::ALL
            .into_iter()
            .map(|metric| (metric, scores(&bouts, metric).into_iter().collect()))
            .collect(),
        worst: worst(&bouts, WORST),
        harms: Harms::of(&bouts),
        climbed: climbed.into_iter().map(told).collect(),
        seconds: began.elapsed().as_secs_f64(),
    };
    match args.json {
        true => say_json(&document)?,
        false => describe(&document, &bouts, args),
    }
    Ok(Outcome::Good)
}

fn rules(args: &DuelArgs) -> anyhow::Result<Rules> {
    let mut spec = TuningSpec::default();
    for set in &args.sets {
        match set {
            Set::One(name, values) if values.len() == 1 => spec.set(name.setting(), values[0]),
            _ => bail!("--set of a duel takes one value of one setting; `bimetal sim sweep` takes several"),
        }
    }
    spec.check().map_err(anyhow::Error::msg)?;
    let others = if args.policies.is_empty() { OTHERS.to_vec() } else { args.policies.clone() };
    Ok(Rules { others, tuning: spec.applied(Tuning::default()) })
}

/// Works on all side by side, with a line that says how far it is.
fn at_once<I: Sync, T: Send>(
    what: &str,
    quiet: bool,
    items: &[I],
    threads: NonZeroUsize,
    work: impl Fn(&I) -> Result<T, ScenarioError> + Sync,
) -> anyhow::Result<Vec<T>> {
    let mut line = Progress::new(what.to_owned(), quiet);
    let done = AtomicUsize::new(0);
    let at = |_: &I| line.at(&format!("{} of {}", done.load(Ordering::Relaxed), items.len()));
    let counted = |item: &I| {
        let result = work(item);
        done.fetch_add(1, Ordering::Relaxed);
        result
    };
    Ok(side_by_side(items, threads, at, counted)?)
}

fn search(
    args: &DuelArgs,
    bouts: &[Bout],
    rules: &Rules,
    threads: NonZeroUsize,
) -> anyhow::Result<Vec<Found>> {
    let mut from: Vec<(&Bout, Policy, f64)> = bouts
        .iter()
        .filter_map(|bout| {
            let (policy, times) = bout.best(Metric::Mean)?;
            Some((bout, policy, times))
        })
        .collect();
    from.sort_by(|one, other| one.2.total_cmp(&other.2));
    from.truncate(CLIMBED);
    let climbed = at_once("looking for worse", args.json, &from, threads, |(bout, policy, _)| {
        climb(bout, *policy, Metric::Mean, rules)
    })?;
    let mut climbed: Vec<Found> = climbed.into_iter().flatten().collect();
    climbed.sort_by(|one, other| one.times[1].total_cmp(&other.times[1]));
    Ok(climbed)
}

fn told(Found { seed, policy, metric, times: [from_times, times], workload }: Found) -> Told {
    let what = workload.what();
    Told { seed, policy: policy.name(), metric, times, from_times, what, workload }
}

fn shrunk(args: &DuelArgs, seed: u64, rules: &Rules) -> anyhow::Result<Outcome> {
    let mut line = Progress::new(format!("shrinking the workload of seed {seed}"), args.json);
    line.at("the first bout");
    let first = bout(&Workload::drawn(seed, args.devices.as_ref()), seed, rules)?;
    let Some(found) = shrink(&first, rules)? else {
        bail!("with seed {seed} ours is behind none of the others, so there is nothing to shrink");
    };
    drop(line);
    let told = told(found);
    if args.json {
        say_json(&told)?;
        return Ok(Outcome::Good);
    }
    let Told { policy, metric, times, from_times, what, workload, .. } = told;
    say(&format!(
        "# Shrunk from seed {seed}: {policy} by {}, {times:.3} times (it was {from_times:.3}).\n# {what}\n",
        metric.name()
    ));
    say(workload.to_toml().trim_end());
    Ok(Outcome::Good)
}

fn describe(document: &Document, bouts: &[Bout], args: &DuelArgs) {
    show_bouts(bouts, args);
    say("Theirs over ours, with 300 us on both sides: above 1 ours is ahead.\n");
    say("| figure | of | geometric | worst | seed | 5 % | half | behind |");
    say("|---|---|---|---|---|---|---|---|");
    for (metric, of) in &document.by_metric {
        for (name, score) in of {
            say(&format!(
                "| {} | {name} | {:.2} | {:.4} | {} | {:.2} | {:.2} | {:.0} % |",
                metric.name(),
                score.geometric,
                score.worst,
                score.worst_seed,
                score.five_percent,
                score.half,
                score.behind_share * 100.0
            ));
        }
    }
    let harms = &document.harms;
    say(&format!(
        "\nOlder than a second where static has nothing so old: {} seeds; the longest {:.1} s{}.",
        harms.seeds,
        harms.longest_seconds,
        harms.worst_seed.map(|seed| format!(" (seed {seed})")).unwrap_or_default()
    ));
    if let (Some(sustained), Some(least)) = (harms.sustained, harms.least_sustained) {
        say(&format!("Of the rate that static sustains in open loops: {sustained:.3}, at least {least:.3}."));
    }
    if harms.failures > 0 {
        say(&format!("{} requests failed.", harms.failures));
    }
    if !document.worst.is_empty() {
        say("\nFarthest behind:\n");
    }
    for Worst { seed, policy, metric, times, what } in &document.worst {
        say(&format!("- seed {seed}: {times:.4} of {policy} by {}: {what}", metric.name()));
    }
    if !document.climbed.is_empty() {
        say("\nWorse that was found from the worst seeds on:\n");
    }
    for Told { seed, policy, metric, times, from_times, what, workload } in &document.climbed {
        say(&format!(
            "- from seed {seed}: {times:.4} of {policy} by {} (it was {from_times:.3}): {what}\n\n```toml\n{}```\n",
            metric.name(),
            workload.to_toml()
        ));
    }
}

/// One bout, and each of a workload of one's own, is shown in microseconds beside the ratios.
fn show_bouts(bouts: &[Bout], args: &DuelArgs) {
    if bouts.len() > 1 && args.workload.is_none() {
        return;
    }
    for bout in bouts {
        say(&format!("seed {}: {}\n", bout.seed, bout.workload.what()));
        let heads: String = Metric::ALL.iter().map(|metric| format!(" {} |", metric.name())).collect();
        say(&format!("| us |{heads} requests/s | disk busy afterwards, s |"));
        say(&format!("|{}", "---|".repeat(Metric::ALL.len() + 3)));
        let all = [(Policy::Bimetal, &bout.ours)];
        for (policy, figures) in all.into_iter().chain(bout.theirs.iter().map(|(policy, of)| (*policy, of))) {
            let cells: String = Metric::ALL
                .iter()
                .map(|&metric| match figures.of(metric) {
                    Some(ns) => format!(" {:.0} |", ns / 1e3),
                    None => " - |".to_owned(),
                })
                .collect();
            let debt = figures.debt_ns as f64 / 1e9;
            say(&format!("| {} |{cells} {:.0} | {debt:.1} |", policy.name(), figures.rate));
        }
        say("");
    }
}
