//! What a shell completes: the scripts ask the program itself, which knows the volumes.

use crate::args::CompletionsArgs;
use crate::{Outcome, help, list, say};
use anyhow::{Context as _, anyhow};
use clap::Arg;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter as _};
use clap_complete::env::{CompleteEnv, Shells};
use std::ffi::OsStr;

/// By this variable the scripts ask.
const VARIABLE: &str = "BIMETAL_COMPLETE";

/// Answers a script that asks, and ends the process then.
pub(crate) fn answer() {
    CompleteEnv::with_factory(help::command).var(VARIABLE).complete();
}

/// Prints a script.
pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<Outcome> {
    let name = args.shell.to_string();
    let shells = Shells::builtins();
    let shell = shells.completer(&name).ok_or_else(|| anyhow!("there are no completions for {name}"))?;
    let mut script = Vec::new();
    shell
        .write_registration(VARIABLE, "bimetal", "bimetal", "bimetal", &mut script)
        .context("cannot write the script")?;
    say(String::from_utf8_lossy(&script).trim_end());
    Ok(Outcome::Good)
}

/// Lets an argument be completed by what there is.
pub(crate) fn values(argument: Arg) -> Arg {
    match argument.get_id().as_str() {
        "volume" | "volumes" => argument.add(ArgValueCompleter::new(volumes)),
        "target" | "targets" | "against" | "a" | "b" => argument.add(ArgValueCompleter::new(targets)),
        // Devices, with a size perhaps.
        "fast" | "slow" => argument.add(ArgValueCompleter::new(PathCompleter::any())),
        _ => argument,
    }
}

/// Names of volumes, and paths for those who begin with one.
fn volumes(begun: &OsStr) -> Vec<CompletionCandidate> {
    let text = begun.to_string_lossy();
    if text.contains(['/', '.']) {
        return PathCompleter::any().complete(begun);
    }
    let names = list::names().into_iter().filter(|name| name.starts_with(&*text));
    names.map(CompletionCandidate::new).collect()
}

/// Whatever the lab can measure: paths, and volumes by their names.
fn targets(begun: &OsStr) -> Vec<CompletionCandidate> {
    const KIND: &str = "volume:";
    let text = begun.to_string_lossy();
    match text.strip_prefix(KIND) {
        Some(name) => {
            let names = list::names().into_iter().filter(|known| known.starts_with(name));
            names.map(|name| CompletionCandidate::new(format!("{KIND}{name}"))).collect()
        }
        None => PathCompleter::any().complete(begun),
    }
}
