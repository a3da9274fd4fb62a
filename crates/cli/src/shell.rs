//! `bimetal man`: made of the same definition that parses the command line.

use crate::args::ManArgs;
use crate::{Outcome, help, paths, say};
use anyhow::Context as _;
use clap::Command;
use std::path::Path;

pub(crate) fn man(args: &ManArgs) -> anyhow::Result<Outcome> {
    let mut command = help::command().disable_help_subcommand(true);
    command.build();
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(&args.dir)?;
        pages(&command, &args.dir)
    };
    write().with_context(|| format!("cannot write manual pages to {}", args.dir.display()))?;
    let first = paths::shell(&args.dir.join("bimetal.1"));
    say(&format!("wrote the manual to {}; read it with `man {first}`", args.dir.display()));
    Ok(Outcome::Good)
}

/// The page of a command, and those of the commands below it.
fn pages(command: &Command, dir: &Path) -> std::io::Result<()> {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        pages(sub, dir)?;
    }
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    std::fs::write(dir.join(format!("{name}.1")), help::page(command)?)
}
