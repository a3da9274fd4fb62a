//! `bimetal sim sweep`

use crate::progress::Progress;
use crate::text_file::read;
use crate::threads::threads;
use crate::trace::{Spooled, written};
use crate::{Outcome, complain, say, say_json};
use anyhow::{Context as _, bail, ensure};
use bimetal_engine::setting::Setting;
use bimetal_sim::scenario::sweep::{Figure, Line, MAX_RUNS, Variant, figures, sweep};
use bimetal_sim::scenario::{MAX_FILE_BYTES, Scenario, Survey, TraceSpec, tuning};
use clap::Args;
use serde::Serialize;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// `bimetal sim sweep`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal sim sweep --list
  bimetal sim sweep scenarios/peers-small.toml --set push_worth=2,4,8 --seeds 5
  bimetal sim sweep scenarios/peers-small.toml --set busy_share=1/5,1/20 --set idle_after_ns=2s
  bimetal sim sweep scenarios/files-small.toml --trace mail.gz --set all=x0.5,x2 --json sweep.json

Each scenario is run as it is, and with each combination of the values, with several seeds. A figure is compared seed by
seed with what it is where nothing is set: both see the same random choices. In bold is what differs by more than noise:
the mean difference is beyond the 99 % confidence of Student's t over the seeds, and at least 1 % of the figure. A trace
has no seed: with each, its pauses are 1.7 ms longer, so that the disk stands elsewhere when the replay begins. Where
all seeds give the same, nothing is known of noise, and 5 % counts. One of a hundred figures is beyond noise by chance:
what matters is run again with --seed. Markdown on standard output, progress on standard error.")]
pub(crate) struct SweepArgs {
    /// Scenarios (docs/SIMULATOR.md); of a file with axes, each
    #[arg(value_name = "SCENARIO")]
    pub(crate) scenarios: Vec<PathBuf>,
    /// A trace, replayed on a fast tier of a tenth of what it touches: as recorded, or four in flight where it has no times
    #[arg(long = "trace", value_name = "FILE")]
    pub(crate) traces: Vec<PathBuf>,
    /// A setting and its values, separated by commas: numbers, with their unit, or so many times the default, such as x2.
    /// Several are combined. all=x0.5,x2 sets each setting there is, one at a time, and prints only what is beyond noise
    #[arg(long = "set", value_name = "NAME=VALUES", value_parser = parse_set)]
    pub(crate) sets: Vec<Set>,
    /// Seeds: the scenario's own, and those after it
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) seeds: u64,
    /// The first seed, in place of the scenario's own
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Only the scenarios whose names have this in them
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
    /// Print all of it, each seed too, as one JSON document, and no Markdown; or with a file that is not there yet, write it there
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pub(crate) json: Option<Option<PathBuf>>,
    /// Runs at a time [default: one for each processor]
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<usize>,
    /// Print all settings, with default, range, and what they trade
    #[arg(long, exclusive = true)]
    pub(crate) list: bool,
}

/// What `--set` says.
#[derive(Clone, Debug)]
pub(crate) enum Set {
    /// A setting with its values.
    One(Name, Vec<u64>),
    /// So many times the default, of all of them.
    All(Vec<String>),
}

/// A setting, that is shown by its name.
#[derive(Clone, Copy)]
pub(crate) struct Name(&'static Setting);

impl Name {
    pub(crate) fn setting(self) -> &'static Setting {
        self.0
    }
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.name)
    }
}

pub(crate) fn parse_set(text: &str) -> Result<Set, String> {
    let (name, values) = text.split_once('=').ok_or("write NAME=VALUE,VALUE, such as push_worth=2,8")?;
    let mut values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
    values.dedup();
    if name == "all" {
        let times = |text: &String| text.strip_prefix('x').is_some_and(|times| times.parse::<f64>().is_ok());
        return match values.iter().all(times) {
            true => Ok(Set::All(values)),
            false => {
                Err("all settings have no value in common; write times their defaults, such as all=x0.5,x2"
                    .into())
            }
        };
    }
    let setting = tuning::find(name.trim())?;
    let values =
        values.iter().map(|text| tuning::value(setting, text)).collect::<Result<Vec<u64>, String>>()?;
    Ok(Set::One(Name(setting), values))
}

/// A scenario, and the folder at which its paths begin.
struct Case {
    folder: PathBuf,
    scenario: Scenario,
}

#[derive(Serialize)]
struct Document<'d> {
    scenarios: &'d [&'d str],
    seeds: u64,
    lines: &'d [Line],
    left_out: &'d [String],
}

pub(crate) fn run(args: &SweepArgs) -> anyhow::Result<Outcome> {
    if args.list {
        list();
        return Ok(Outcome::Good);
    }
    ensure!(
        !args.sets.is_empty(),
        "nothing is swept; add --set NAME=VALUES (`bimetal sim sweep --list` says which there are)"
    );
    let (variants, left_out) = variants(&args.sets)?;
    if let Some(file) = args.json.iter().flatten().find(|file| file.exists()) {
        bail!(
            "{} is there already; name another file for --json, or put --json last to print it",
            file.display()
        );
    }
    let spooled = Spooled::new(&args.traces)?;
    let cases = cases(args, &spooled)?;
    let runs = (variants.len() + 1).saturating_mul(cases.len()).saturating_mul(args.seeds as usize);
    ensure!(
        runs <= MAX_RUNS,
        "these are {runs} runs, more than {MAX_RUNS}; sweep fewer values, scenarios or seeds"
    );
    check(&cases, &variants)?;
    let of: Vec<(&Path, &Scenario)> =
        cases.iter().map(|case| (case.folder.as_path(), &case.scenario)).collect();
    let line = Mutex::new(Progress::new("sweeping".into(), false));
    let progress = |done: usize, all: usize| {
        if all >= 20 && done * 10 / all > (done - 1) * 10 / all {
            complain(&format!("{done} of {all} runs"));
        }
        line.lock().expect("no thread panicked").at(&format!("{done} of {all} runs"));
    };
    let lines = sweep(&of, &variants, args.seeds, threads(args.jobs)?, &progress)
        .map_err(|(number, error)| anyhow::Error::new(error).context(cases[number].scenario.name.clone()))?;
    drop(line);
    let names: Vec<&str> = cases.iter().map(|case| case.scenario.name.as_str()).collect();
    let document = || Document { scenarios: &names, seeds: args.seeds, lines: &lines, left_out: &left_out };
    if args.json == Some(None) {
        say_json(&document())?;
        return Ok(Outcome::Good);
    }
    describe(args, &names, &lines, &left_out);
    if let Some(file) = args.json.as_ref().and_then(Option::as_ref) {
        let text = serde_json::to_string_pretty(&document()).context("cannot say it as JSON")?;
        let cannot = || format!("cannot write {}", file.display());
        written(file, false, |mut buffer| {
            writeln!(buffer, "{text}").and_then(|()| buffer.flush()).with_context(cannot)
        })?;
    }
    Ok(Outcome::Good)
}

fn list() {
    for setting in Setting::all() {
        let default = tuning::show(setting, setting.default());
        say(&format!("{} = {default}, {}", setting.name, tuning::range(setting)));
        for line in setting.about {
            say(&format!("    {}", line.trim()));
        }
    }
}

/// All combinations of the values, or each setting alone; and what of that cannot be set, in words.
fn variants(sets: &[Set]) -> anyhow::Result<(Vec<Variant>, Vec<String>)> {
    if let [Set::All(times)] = sets {
        return Ok(each_alone(times));
    }
    let mut variants: Vec<Variant> = vec![Vec::new()];
    for (number, set) in sets.iter().enumerate() {
        let Set::One(Name(setting), values) = set else {
            bail!("--set all=... sets each setting alone; it goes with no other --set");
        };
        let is_same = |other: &Set| matches!(other, Set::One(Name(known), _) if known.name == setting.name);
        ensure!(
            !sets[..number].iter().any(is_same),
            "{} is set twice; write all its values into one --set",
            setting.name
        );
        let all = variants.len().saturating_mul(values.len());
        ensure!(all <= MAX_RUNS, "these are {all} combinations, more than {MAX_RUNS}; sweep fewer values");
        let with = |before: &Variant, value: u64| [before.as_slice(), &[(*setting, value)]].concat();
        variants =
            variants.iter().flat_map(|before| values.iter().map(|value| with(before, *value))).collect();
    }
    Ok((variants, Vec::new()))
}

fn each_alone(times: &[String]) -> (Vec<Variant>, Vec<String>) {
    let (mut variants, mut left_out) = (Vec::new(), Vec::new());
    for setting in Setting::all() {
        for text in times {
            match tuning::value(setting, text) {
                Ok(value) if value == setting.default() => {
                    left_out.push(format!(
                        "{} {text}: that is its default, {}",
                        setting.name,
                        tuning::show(setting, value)
                    ));
                }
                Ok(value) => variants.push(vec![(setting, value)]),
                Err(why) => left_out.push(format!("{} {text}: {why}", setting.name)),
            }
        }
    }
    (variants, left_out)
}

/// Each variant goes with what each scenario sets itself.
fn check(cases: &[Case], variants: &[Variant]) -> anyhow::Result<()> {
    for Case { scenario, .. } in cases {
        for variant in variants {
            let spec = scenario.tuning.clone().with(variant);
            spec.check().map_err(anyhow::Error::msg).with_context(|| scenario.name.clone())?;
        }
    }
    Ok(())
}

fn cases(args: &SweepArgs, traces: &Spooled) -> anyhow::Result<Vec<Case>> {
    ensure!(
        !(args.scenarios.is_empty() && args.traces.is_empty()),
        "nothing is run; name a scenario, or a trace with --trace"
    );
    let mut cases = Vec::new();
    for path in &args.scenarios {
        let name = || path.display().to_string();
        for scenario in Scenario::parse_all(&read(path, MAX_FILE_BYTES)?).with_context(name)? {
            if let Some(missing) = scenario.missing_variable() {
                complain(&format!("skipped: {missing} is not set, so {} is not run", scenario.name));
                continue;
            }
            ensure!(
                scenario.volume.is_some(),
                "{}: a device alone places nothing, so there is nothing to sweep",
                name()
            );
            let folder = path.parent().unwrap_or(Path::new("")).to_owned();
            cases.push(Case { folder, scenario });
        }
    }
    for (name, path) in args.traces.iter().zip(&traces.paths) {
        let scenario =
            of_trace(&name.display().to_string(), path).with_context(|| name.display().to_string())?;
        cases.push(Case { folder: PathBuf::new(), scenario });
    }
    if let Some(only) = &args.only {
        cases.retain(|case| case.scenario.name.contains(only));
        ensure!(!cases.is_empty(), "the name of no scenario has {only:?} in it");
    }
    ensure!(!cases.is_empty(), "no scenario is left to run");
    for case in &mut cases {
        case.scenario.seed = args.seed.unwrap_or(case.scenario.seed);
    }
    Ok(cases)
}

/// How traces are replayed: what a trace touches is placed in order first, then left alone.
const TRACES: &str = include_str!("../../../scenarios/traces.toml");

/// The scenario that replays a trace as those of `scenarios/traces.toml` are, on a fast tier of a tenth of what it touches.
fn of_trace(name: &str, path: &Path) -> anyhow::Result<Scenario> {
    let path = path.to_str().context("the path is no UTF-8; rename the file")?;
    let spec = TraceSpec::new(vec![path.to_owned()]);
    let mode = match Survey::read(&spec, Path::new(""))?.timed() {
        true => "as recorded",
        false => "4 in flight",
    };
    let is_meant = |scenario: &Scenario| {
        let has = |axis: &str, value: &str| {
            scenario.combination.iter().any(|(known, picked)| known == axis && picked == value)
        };
        has("mode", mode) && has("share", "10%")
    };
    let scenario = Scenario::parse_all(TRACES)?.into_iter().find(is_meant);
    let scenario = scenario.context("scenarios/traces.toml has no such combination")?;
    Ok(Scenario { name: format!("{name}, 10% of it fast, {mode}"), trace: Some(spec), ..scenario })
}

fn describe(args: &SweepArgs, names: &[&str], lines: &[Line], left_out: &[String]) {
    let is_each_alone = matches!(args.sets.as_slice(), [Set::All(_)]);
    say("# Sweep\n");
    say(&format!(
        "What `bimetal sim sweep` printed: {} with {} each. A figure is the mean over the seeds, with 99 % confidence, then how \
         many times it is what it is where nothing is set, compared seed by seed. In bold: beyond noise (at least 1 %, or 5 % \
         where all seeds give the same).",
        counted(names.len(), "scenario"),
        counted(args.seeds as usize, "seed"),
    ));
    if args.seeds == 1 {
        say("With one seed nothing is known of noise.");
    }
    say("");
    let head: String = figures().map(|name| format!(" {name} |")).collect();
    say(&format!("| set | scenario | phase |{head}"));
    say(&format!("|{}", "---|".repeat(3 + figures().count())));
    for line in lines {
        let has_something =
            line.figures.iter().flatten().any(|figure| figure.mean != 0.0 || figure.beyond_noise);
        let is_asked_for = !is_each_alone || line.set.is_empty() || line.beyond_noise().next().is_some();
        if has_something && is_asked_for {
            let cells: String =
                line.figures.iter().map(|figure| format!(" {} |", cell(figure.as_ref(), line))).collect();
            say(&format!("| {} | {} | {} |{cells}", set(line), line.scenario, line.phase));
        }
    }
    say("\n## What moved\n");
    say("Phases of which a figure is beyond noise, and the mean that is farthest from what it was.\n");
    say(&format!("| set |{head} of | farthest mean |"));
    say(&format!("|{}", "---|".repeat(3 + figures().count())));
    let mut by_set: Vec<(String, Vec<&Line>)> = Vec::new();
    for line in lines.iter().filter(|line| !line.set.is_empty()) {
        let set = set(line);
        match by_set.iter_mut().find(|(known, _)| *known == set) {
            Some((_, of)) => of.push(line),
            None => by_set.push((set, vec![line])),
        }
    }
    for (set, of) in by_set {
        say(&moved(&set, &of));
    }
    if !left_out.is_empty() {
        say("\nNot run:\n");
        left_out.iter().for_each(|what| say(&format!("- {what}")));
    }
}

fn moved(set: &str, of: &[&Line]) -> String {
    let beyond = |name: &'static str| {
        of.iter().flat_map(move |line| {
            line.beyond_noise().filter(move |figure| figure.figure == name).map(move |figure| (*line, figure))
        })
    };
    let counts: String = figures().map(|name| format!(" {} |", beyond(name).count())).collect();
    let far = |figure: &Figure| figure.ratio.map_or(0.0, |ratio| ratio.ln().abs());
    let farthest = beyond("mean_us").max_by(|one, other| far(one.1).total_cmp(&far(other.1)));
    let farthest = farthest.map_or("-".to_owned(), |(line, figure)| {
        format!("{:.3} times: {}, {}", figure.ratio.unwrap_or(1.0), line.scenario, line.phase)
    });
    format!("| {set} |{counts} {} | {farthest} |", of.len())
}

fn set(line: &Line) -> String {
    let shown = line.set.iter().filter_map(|set| {
        Some(format!("{} = {}", set.name, tuning::show(Setting::named(set.name)?, set.value)))
    });
    let shown: Vec<String> = shown.collect();
    if shown.is_empty() { "as it is".to_owned() } else { shown.join(", ") }
}

fn cell(figure: Option<&Figure>, line: &Line) -> String {
    let Some(figure) = figure else { return "-".to_owned() };
    let number = |value: f64| match figure.figure {
        "fast_share" => format!("{value:.3}"),
        "moved_bytes" => format!("{:.1} MB", value / 1e6),
        _ => format!("{value:.0}"),
    };
    let within = |within: Option<f64>, shown: String| within.map_or(String::new(), |_| format!(" ± {shown}"));
    let mean = format!(
        "{}{}",
        number(figure.mean),
        within(figure.sure_within, number(figure.sure_within.unwrap_or_default()))
    );
    if line.set.is_empty() {
        return mean;
    }
    let ratio = match figure.ratio {
        Some(ratio) => format!(
            "{ratio:.3}{}",
            within(figure.ratio_sure_within, format!("{:.3}", figure.ratio_sure_within.unwrap_or_default()))
        ),
        None => "-".to_owned(),
    };
    if figure.beyond_noise { format!("{mean}; **{ratio}**") } else { format!("{mean}; {ratio}") }
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
