//! The bimetal command line.
#![forbid(unsafe_code)]

mod args;
mod attach;
mod boot;
mod bytes;
mod calibrate;
mod check;
mod complete;
mod copy;
mod create;
mod destroy;
mod duel;
#[cfg(test)]
#[path = "../tests/examples/extract.rs"]
mod examples;
mod find;
mod help;
mod inspect;
mod kill;
mod lab;
mod list;
mod logs;
mod look;
mod lost;
mod memory;
mod offline;
mod paths;
mod pins;
mod plan;
mod progress;
mod protect;
mod record;
mod replace;
mod scenario;
mod scrub;
mod serve;
mod shell;
mod signatures;
mod sweep;
mod synth;
mod table;
mod text_file;
mod threads;
mod torture;
mod trace;
mod udev;
mod up;
mod volume;
mod watch;

use args::{Cli, Command, SimCommand, TraceCommand};
use bimetal_models::size;
use clap::FromArgMatches as _;
use clap::error::ErrorKind as UsageKind;
use lab::args::LabCommand;
use std::io::ErrorKind;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a command that ran found.
pub(crate) enum Outcome {
    /// All is well.
    Good,
    /// It ran and found a problem: this one, in a sentence, which is said on standard error.
    Problem(String),
}

fn main() -> ExitCode {
    complete::answer();
    let words = lab::words::own_first(lab::orion::with_two_dashes(std::env::args_os()));
    let cli =
        match help::command().try_get_matches_from(words).and_then(|found| Cli::from_arg_matches(&found)) {
            Ok(cli) => cli,
            Err(error) => return usage(&error),
        };
    logs::begin(cli.log, matches!(cli.command, Command::Serve(_) | Command::Up(_)));
    let outcome = match cli.command {
        Command::Up(args) => up::run(&args),
        Command::Create(args) => create::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Status(args) => offline::status(&args),
        Command::Check(args) => check::check(&args),
        Command::Attach(args) => attach::attach(&args),
        Command::Detach(args) => attach::detach(&args),
        Command::Pin(args) => pins::pin(&args),
        Command::Unpin(args) => pins::unpin(&args),
        Command::Pins(args) => pins::pins(&args),
        Command::Why(args) => pins::why(&args),
        Command::Lost(args) => lost::run(&args),
        Command::Events(args) => watch::events::run(&args),
        Command::Flight(args) => watch::flight::write(&args),
        Command::Map(args) => look::map::run(&args),
        Command::Top(args) => look::top::run(&args),
        Command::Files(args) => look::files::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Doctor(args) => look::doctor::run(&args),
        Command::Scrub(args) => scrub::run(&args),
        Command::Replace(args) => replace::run(&args),
        Command::Protect(args) => protect::run(&args),
        Command::List(args) => list::run(&args),
        Command::Destroy(args) => destroy::run(&args),
        Command::Import(args) => copy::import(&args),
        Command::Export(args) => copy::export(&args),
        Command::UdevProbe(args) => udev::probe(&args),
        Command::BootUnits(args) => boot::units(&args),
        Command::Completions(args) => complete::completions(&args),
        Command::Man(args) => shell::man(&args),
        Command::Trace { command: TraceCommand::Stat(args) } => trace::stat(&args),
        Command::Trace { command: TraceCommand::Convert(args) } => trace::convert(&args),
        Command::Trace { command: TraceCommand::Synth(args) } => synth::run(&args),
        Command::Trace { command: TraceCommand::Record(args) } => record::run(&args),
        Command::Trace { command: TraceCommand::Replay(args) } => lab::replay::run(&args),
        Command::Lab { command: LabCommand::Fio(args) } => lab::fio::run(&args),
        Command::Lab { command: LabCommand::Snia(args) } => lab::snia::run(&args),
        Command::Lab { command: LabCommand::Quick(args) } => lab::quick::run(&args),
        Command::Lab { command: LabCommand::Compare(args) } => lab::quick::compare(&args),
        Command::Lab { command: LabCommand::Orion(args) } => lab::orion::run(&args),
        Command::Lab { command: LabCommand::Report(args) } => lab::report::run(&args),
        Command::Lab { command: LabCommand::CreateFiles(args) } => lab::disktester::create_files(&args),
        Command::Lab { command: LabCommand::ReadFiles(args) } => lab::disktester::read_files(&args),
        Command::Lab { command: LabCommand::Fill(args) } => lab::disktester::fill(&args),
        Command::Lab { command: LabCommand::Idle(args) } => lab::disktester::idle(&args),
        Command::Lab { command: LabCommand::TortureRecovery(args) } => lab::torture_recovery::run(&args),
        Command::Lab { command: LabCommand::StorageBench(args) } => lab::storage_bench::run(&args),
        Command::Lab { command: LabCommand::Adaptation(args) } => lab::disktester::adaptation(&args),
        Command::Sim { command: SimCommand::Torture(args) } => torture::run(&args),
        Command::Sim { command: SimCommand::Kill(args) } => kill::run(&args),
        Command::Sim { command: SimCommand::Calibrate(args) } => calibrate::run(&args),
        Command::Sim { command: SimCommand::Run(args) } => scenario::run(&args),
        Command::Sim { command: SimCommand::Table(args) } => table::run(&args),
        Command::Sim { command: SimCommand::Sweep(args) } => sweep::run(&args),
        Command::Sim { command: SimCommand::Duel(args) } => duel::run(&args),
        Command::Sim { command: SimCommand::ReplayRecording(args) } => watch::flight::replay(&args),
    };
    match outcome {
        Ok(_) if UNSAID.load(Ordering::Relaxed) => ExitCode::from(2),
        Ok(Outcome::Good) => ExitCode::SUCCESS,
        Ok(Outcome::Problem(cause)) => {
            complain(&format!("bimetal: {cause}"));
            ExitCode::from(1)
        }
        Err(error) => {
            complain(&format!("bimetal: {error:#}"));
            ExitCode::from(2)
        }
    }
}

/// Prints the help that was asked for, or what is wrong with the command line, in one sentence.
fn usage(error: &clap::Error) -> ExitCode {
    if matches!(
        error.kind(),
        UsageKind::DisplayHelp
            | UsageKind::DisplayVersion
            | UsageKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        // Whoever does not read it to its end is not to be bothered.
        let _ = error.print();
        if error.use_stderr() {
            complain(&format!(
                "bimetal: say which command; `{} COMMAND --help` says more of one",
                help::asked_for()
            ));
        }
        return ExitCode::from(error.exit_code() as u8);
    }
    let text = error.to_string();
    let mut paragraphs =
        text.split("\n\n").map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "));
    let what = paragraphs.next().unwrap_or_default();
    let mut command = help::asked_for();
    let mut tip = String::new();
    for paragraph in paragraphs {
        if let Some(usage) = paragraph.strip_prefix("Usage: ") {
            let words: Vec<&str> =
                usage.split(' ').take_while(|word| !word.starts_with(['<', '[', '-'])).collect();
            command = words.join(" ");
        } else if let Some(text) = paragraph.strip_prefix("tip: ") {
            tip = format!(" ({text})");
        }
    }
    let what = what.trim_start_matches("error: ");
    complain(&format!("bimetal: {what}{tip}; see `{command} --help`"));
    ExitCode::from(2)
}

/// Says something on standard error; nobody there is no reason to fail.
pub(crate) fn complain(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Whether something was to be printed that could not be.
static UNSAID: AtomicBool = AtomicBool::new(false);

/// Prints to standard output. A reader that has gone away is no reason to fail; a full disk behind it is one.
pub(crate) fn say(text: &str) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    if let Err(error) = writeln!(out, "{text}").and_then(|()| out.flush())
        && error.kind() != ErrorKind::BrokenPipe
        && !UNSAID.swap(true, Ordering::Relaxed)
    {
        complain(&format!("bimetal: cannot write to standard output: {error}"));
    }
}

/// Prints one JSON document to standard output.
pub(crate) fn say_json(document: &impl serde::Serialize) -> anyhow::Result<()> {
    say(&serde_json::to_string_pretty(document)?);
    Ok(())
}

/// The same with the record of a run in it: in one line, as indented it is six times as long.
pub(crate) fn say_record(document: &impl serde::Serialize) -> anyhow::Result<()> {
    say(&serde_json::to_string(document)?);
    Ok(())
}
