//! `bimetal completions` and `bimetal man`: made of the same definition that parses the command line.

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::{Outcome, say};
use anyhow::Context as _;
use clap::CommandFactory as _;

pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "bimetal", &mut script);
    say(String::from_utf8_lossy(&script).trim_end());
    Ok(Outcome::Good)
}

pub(crate) fn man(args: &ManArgs) -> anyhow::Result<Outcome> {
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(&args.dir)?;
        clap_mangen::generate_to(Cli::command(), &args.dir)
    };
    write().with_context(|| format!("cannot write manual pages to {}", args.dir.display()))?;
    say(&format!("wrote the manual to {}; read it with `man {0}/bimetal.1`", args.dir.display()));
    Ok(Outcome::Good)
}
