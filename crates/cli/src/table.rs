//! `bimetal sim table`

use crate::args::TableArgs;
use crate::progress::Progress;
use crate::text_file::read;
use crate::threads::threads;
use crate::{Outcome, complain, say, say_json};
use anyhow::{Context as _, bail, ensure};
use bimetal_sim::peers::Policy;
use bimetal_sim::scenario::{
    MAX_FILE_BYTES, MOST_TIMES, Row, Scenario, Summary, Worst, needed, rows, summaries,
};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

#[derive(Default, Serialize)]
struct Table {
    rows: Vec<Row>,
    summary: Vec<Summary>,
}

/// The scenarios of one file.
struct File {
    path: PathBuf,
    scenarios: Vec<Scenario>,
}

pub(crate) fn run(args: &TableArgs) -> anyhow::Result<Outcome> {
    let mut files = claiming(&args.scenarios)?;
    if let Some(only) = &args.only {
        for file in &mut files {
            file.scenarios.retain(|scenario| scenario.name.contains(only));
        }
        files.retain(|file| !file.scenarios.is_empty());
        ensure!(!files.is_empty(), "the name of no scenario with a [[claim]] has {only:?} in it");
    }
    let mut policies = match args.policies.as_slice() {
        [] => Policy::ALL.to_vec(),
        some => some.to_vec(),
    };
    let mut table = Table::default();
    for file in &mut files {
        leave_out_what_is_not_here(file);
        for scenario in &file.scenarios {
            policies = needed(scenario, &policies);
        }
    }
    let all: Vec<(&Path, &Scenario)> = files
        .iter()
        .flat_map(|file| file.scenarios.iter().map(|scenario| (file.path.as_path(), scenario)))
        .collect();
    let mut ran = all_rows(&all, &policies, args)?.into_iter();
    for File { scenarios, .. } in files {
        let ran: Vec<_> = scenarios.into_iter().zip(&mut ran).collect();
        table.summary.extend(summaries(&ran));
        table.rows.extend(ran.into_iter().flat_map(|(_, rows)| rows));
    }
    let missed = table.rows.iter().filter(|row| !row.held).count()
        + table.summary.iter().filter(|summary| summary.held == Some(false)).count();
    match args.json {
        true => say_json(&table)?,
        false => describe(&table, &policies),
    }
    Ok(match missed {
        0 => Outcome::Good,
        _ => Outcome::Problem(format!("{missed} claims are not held")),
    })
}

/// The rows of each scenario beside the path of its file.
fn all_rows(
    all: &[(&Path, &Scenario)],
    policies: &[Policy],
    args: &TableArgs,
) -> anyhow::Result<Vec<Vec<Row>>> {
    let name = |number: usize| {
        let (path, scenario): (&Path, &Scenario) = all[number];
        match scenario.combination.is_empty() {
            true => path.display().to_string(),
            false => format!("{}, {}", path.display(), scenario.name),
        }
    };
    let in_folders: Vec<(&Path, &Scenario)> =
        all.iter().map(|(path, scenario)| (path.parent().unwrap_or(Path::new("")), *scenario)).collect();
    let begun = Mutex::new((BTreeSet::new(), Progress::new("the table".into(), args.json)));
    let found = rows(&in_folders, policies, threads(args.threads)?, &|number, policy, phase, share| {
        let mut begun = begun.lock().expect("no thread panicked");
        if begun.0.insert((number, policy.name())) {
            complain(&format!("{} under {}", name(number), policy.name()));
        }
        let share = share.map(|share| format!(" {:.0} %", share * 100.0)).unwrap_or_default();
        begun.1.at(&format!("{} under {}, {phase}{share}", name(number), policy.name()));
    });
    found.map_err(|(number, error)| anyhow::Error::new(error).context(name(number)))
}

/// Traces that are somewhere else on each machine, or nowhere, must not keep the others from being run.
fn leave_out_what_is_not_here(file: &mut File) {
    let missing = file.scenarios.iter().find_map(|scenario| scenario.missing_variable().map(str::to_owned));
    let Some(missing) = missing else { return };
    file.scenarios.retain(|scenario| scenario.missing_variable().is_none());
    let what = if file.scenarios.is_empty() { "all of it" } else { "a part of it" };
    complain(&format!("skipped: {missing} is not set, so {what} is not run: {}", file.path.display()));
}

/// The files that claim something, in the order of their names. One that is named must do so.
fn claiming(paths: &[PathBuf]) -> anyhow::Result<Vec<File>> {
    let mut found = Vec::new();
    for path in paths {
        let is_folder = path.is_dir();
        let mut files = vec![path.clone()];
        if is_folder {
            let entries = std::fs::read_dir(path).with_context(|| path.display().to_string())?;
            files = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
            files.retain(|file| file.extension().is_some_and(|ending| ending == "toml"));
            files.sort();
        }
        for path in files {
            let text = read(&path, MAX_FILE_BYTES)?;
            let scenarios = Scenario::parse_all(&text).with_context(|| path.display().to_string())?;
            match scenarios.iter().all(|scenario| scenario.claims.is_empty()) {
                false => found.push(File { path, scenarios }),
                true if is_folder => {}
                true => bail!("{}: there is no [[claim]] in it", path.display()),
            }
        }
    }
    if found.is_empty() {
        bail!("no scenario with a [[claim]] was found");
    }
    Ok(found)
}

fn describe(table: &Table, policies: &[Policy]) {
    let others: Vec<&str> =
        policies.iter().filter(|&&policy| policy != Policy::Bimetal).map(|policy| policy.name()).collect();
    say("# Results\n");
    say(
        "What `bimetal sim table` printed. `bimetal` is the engine; the others are models (POLICIES.md) on the same",
    );
    say(
        "devices. The reference is what was measured on real ones. The ceiling is `bimetal` where it knows a part of a replay",
    );
    say("ahead; `all-fast` is a device like the fast one that holds everything.\n");
    let head = "| claim | scenario | phase | figure | reference | claimed | bimetal | held |";
    say_head(head, &others, " ceiling | all-fast |");
    for row in &table.rows {
        let mut line = format!(
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            row.claim,
            row.scenario,
            phase(row),
            what(row),
            reference(row),
            row.claimed,
            figure(row.ours),
            yes_or_no(row.held),
        );
        for name in &others {
            line += &format!(" {} |", figure(row.policies.get(name).copied().flatten()));
        }
        say(&format!("{line} {} | {} |", figure(row.ceiling), figure(row.all_fast)));
    }
    if !table.summary.is_empty() {
        describe_summaries(&table.summary, &others);
    }
}

fn describe_summaries(summaries: &[Summary], others: &[&str]) {
    say("\n## How many times better\n");
    say(&format!(
        "Geometric means over all scenarios of a summary of what each other policy's figure is of ours, at most {MOST_TIMES:.0} of each:"
    ));
    say(
        "above 1 ours is better. Then the scenario in which ours does worst, against the best other and against `static`.\n",
    );
    let head = "| summary | figure | over | claimed | least | held |";
    say_head(head, others, " ceiling | worst of best | worst of static |");
    for summary in summaries {
        let mut line = format!(
            "| {} | {} | {} of {} | {} | {} | {} |",
            summary.summary,
            summary.metric,
            summary.scenarios,
            summary.over,
            summary.claimed.as_deref().unwrap_or("-"),
            figure(summary.least),
            summary.held.map_or("-", yes_or_no),
        );
        for name in others {
            line += &format!(" {} |", figure(summary.geometric_mean.get(name).copied().flatten()));
        }
        let (best, left_alone) = (worst(&summary.worst_of_best), worst(&summary.worst_of_static));
        say(&format!("{line} {} | {best} | {left_alone} |", figure(summary.ceiling)));
    }
}

/// The head of a table with a column for each policy, and some behind.
fn say_head(before: &str, others: &[&str], behind: &str) {
    let others: String = others.iter().map(|name| format!(" {name} |")).collect();
    let head = format!("{before}{others}{behind}");
    say(&head);
    say(&format!("|{}", "---|".repeat(head.matches('|').count() - 1)));
}

fn worst(worst: &Option<Worst>) -> String {
    worst.as_ref().map_or("-".to_owned(), |Worst { scenario, policy, times }| {
        format!("{} ({policy}, {scenario})", figure(Some(*times)))
    })
}

fn phase(row: &Row) -> String {
    match &row.minus {
        Some(minus) => format!("{} minus {minus}", row.phase),
        None => row.phase.clone(),
    }
}

fn what(row: &Row) -> String {
    let load = row.load.map(|number| format!(" of load {number}")).unwrap_or_default();
    format!("{}{load}, {}", row.metric, row.unit)
}

fn yes_or_no(held: bool) -> &'static str {
    if held { "yes" } else { "**no**" }
}

fn reference(row: &Row) -> String {
    match (row.reference_worst, row.reference) {
        (Some(worst), Some(best)) => format!("{worst} to {best}"),
        (_, Some(best)) => best.to_string(),
        _ => "-".to_owned(),
    }
}

/// Three digits, which is what a comparison is worth.
fn figure(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}
