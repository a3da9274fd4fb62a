//! `bimetal sim table`

use crate::args::TableArgs;
use crate::progress::Progress;
use crate::text_file::read;
use crate::{Outcome, complain, say, say_json};
use anyhow::{Context as _, bail};
use bimetal_sim::peers::Policy;
use bimetal_sim::scenario::{MAX_FILE_BYTES, Row, Scenario, rows};
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Serialize)]
struct Table {
    rows: Vec<Row>,
}

pub(crate) fn run(args: &TableArgs) -> anyhow::Result<Outcome> {
    let scenarios = claiming(&args.scenarios)?;
    let policies = match args.policies.as_slice() {
        [] => Policy::ALL.to_vec(),
        some => some.to_vec(),
    };
    let mut table = Table { rows: Vec::new() };
    for (path, scenario) in scenarios {
        let name = || path.display().to_string();
        let mut line = Progress::new(name(), args.json);
        let mut under = None;
        let folder = path.parent().unwrap_or(Path::new(""));
        let found = rows(&scenario, folder, &policies, &mut |policy, phase, share| {
            if under.replace(policy) != Some(policy) {
                complain(&format!("{} under {}", name(), policy.name()));
            }
            let share = share.map(|share| format!(" {:.0} %", share * 100.0)).unwrap_or_default();
            line.at(&format!("{}, {phase}{share}", policy.name()));
        });
        table.rows.extend(found.with_context(name)?);
    }
    let held = table.rows.iter().all(|row| row.held);
    match args.json {
        true => say_json(&table)?,
        false => describe(&table.rows, &policies),
    }
    Ok(if held { Outcome::Good } else { Outcome::Problem })
}

/// The scenarios that claim something, in the order of their names. A file that is named must do so.
fn claiming(paths: &[PathBuf]) -> anyhow::Result<Vec<(PathBuf, Scenario)>> {
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
        for file in files {
            let text = read(&file, MAX_FILE_BYTES)?;
            let scenario = Scenario::parse(&text).with_context(|| file.display().to_string())?;
            match scenario.claims.is_empty() {
                false => found.push((file, scenario)),
                true if is_folder => {}
                true => bail!("{}: there is no [[claim]] in it", file.display()),
            }
        }
    }
    if found.is_empty() {
        bail!("no scenario with a [[claim]] was found");
    }
    Ok(found)
}

fn describe(rows: &[Row], policies: &[Policy]) {
    let others: Vec<&str> =
        policies.iter().filter(|&&policy| policy != Policy::Bimetal).map(|policy| policy.name()).collect();
    say("# Results\n");
    say(
        "What `bimetal sim table` printed. `bimetal` is the engine; the others are models (POLICIES.md) on the same",
    );
    say("devices. The reference is what was measured on real ones.\n");
    let mut head = "| claim | scenario | phase | figure | reference | claimed | bimetal | held |".to_owned();
    let mut rule = "|---|---|---|---|---|---|---|---|".to_owned();
    for name in &others {
        head += &format!(" {name} |");
        rule += "---|";
    }
    say(&head);
    say(&rule);
    for row in rows {
        let mut line = format!(
            "| {} | {} | {} | {}, {} | {} | {} | {} | {} |",
            row.claim,
            row.scenario,
            row.phase,
            row.metric,
            row.unit,
            reference(row),
            row.claimed,
            figure(row.ours),
            if row.held { "yes" } else { "**no**" }
        );
        for name in &others {
            line += &format!(" {} |", figure(row.policies.get(name).copied().flatten()));
        }
        say(&line);
    }
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
