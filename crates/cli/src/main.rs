//! The bimetal command line.
#![forbid(unsafe_code)]

mod args;
mod create;
mod destroy;
mod find;
mod inspect;
mod kill;
mod list;
mod offline;
mod paths;
mod serve;
mod signatures;
mod size;
mod torture;
mod up;
mod volume;

use args::{Cli, Command, SimCommand};
use clap::Parser as _;
use std::process::ExitCode;

/// What a command that ran found.
pub(crate) enum Outcome {
    /// All is well.
    Good,
    /// It ran and found a problem.
    Problem,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Up(args) => up::run(&args),
        Command::Create(args) => create::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Status(args) => offline::status(&args),
        Command::Check(args) => offline::check(&args),
        Command::List(args) => list::run(&args),
        Command::Destroy(args) => destroy::run(&args),
        Command::Sim { command: SimCommand::Torture(args) } => torture::run(&args),
        Command::Sim { command: SimCommand::Kill(args) } => kill::run(&args),
    };
    match outcome {
        Ok(Outcome::Good) => ExitCode::SUCCESS,
        Ok(Outcome::Problem) => ExitCode::from(1),
        Err(error) => {
            eprintln!("bimetal: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Prints to standard output. A reader that has gone away is no reason to fail.
pub(crate) fn say(text: &str) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Prints one JSON document to standard output.
pub(crate) fn say_json(document: &impl serde::Serialize) -> anyhow::Result<()> {
    say(&serde_json::to_string_pretty(document)?);
    Ok(())
}
