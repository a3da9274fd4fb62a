//! The command line as it is shown: in help, in the manual, and to shells that complete it.

use crate::args::Cli;
use crate::complete;
use clap::builder::StyledStr;
use clap::{Command, CommandFactory as _};

/// Columns of help at most; a narrower terminal has less.
pub(crate) const COLUMNS: usize = 100;

/// All that can be said, with prose that is wrapped where the terminal ends.
pub(crate) fn command() -> Command {
    shown(Cli::command().max_term_width(COLUMNS))
}

fn shown(command: Command) -> Command {
    let after = command.get_after_help().map(|text| flowing(&text.to_string()));
    let command = match after {
        Some(text) => command.after_help(StyledStr::from(text)),
        None => command,
    };
    command.mut_args(complete::values).mut_subcommands(shown)
}

/// Joins the lines of a paragraph. What is indented is an example, and stays as it is.
fn flowing(text: &str) -> String {
    let mut out = String::new();
    let mut in_prose = false;
    for line in text.lines() {
        let prose = is_prose(line);
        if !out.is_empty() {
            out.push(if prose && in_prose { ' ' } else { '\n' });
        }
        out.push_str(line);
        in_prose = prose;
    }
    out
}

/// Whether a line may be joined with the next one of its kind.
fn is_prose(line: &str) -> bool {
    !line.is_empty() && !line.starts_with(' ') && !line.ends_with(':')
}

/// The manual page of a command, in roff: its parts in the order that pages have, examples before what follows them.
pub(crate) fn page(command: &Command) -> std::io::Result<Vec<u8>> {
    let man = clap_mangen::Man::new(command.clone());
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    if command.get_subcommands().any(|sub| !sub.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(after) = command.get_after_help() {
        page.extend(notes(&after.to_string()).bytes());
    }
    Ok(page)
}

/// Examples as they are typed, and paragraphs that are filled.
fn notes(text: &str) -> String {
    let mut out = String::new();
    let (mut typed, mut prose) = (false, false);
    for line in text.lines() {
        let is_typed = line.starts_with(' ');
        if typed && !is_typed {
            out += ".fi\n.RE\n";
        }
        match line.trim() {
            "" => {}
            "Examples:" | "Example:" => out += ".SH EXAMPLES\n",
            shown if is_typed => {
                if !typed {
                    out += ".RS 2\n.nf\n";
                }
                let indent = line.len() - line.trim_start().len();
                out += &format!("{}{}\n", " ".repeat(indent.saturating_sub(2)), roff(shown));
            }
            sentence => {
                if !prose {
                    out += ".SH NOTES\n";
                }
                prose = true;
                out += &format!(".PP\n{}\n", roff(sentence));
            }
        }
        typed = is_typed;
    }
    if typed {
        out += ".fi\n.RE\n";
    }
    out
}

/// Text that roff takes for text.
fn roff(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}

/// The command that was asked for, as far as it can be told from a command line that makes no sense.
pub(crate) fn asked_for() -> String {
    let mut command = Cli::command();
    let mut name = "bimetal".to_owned();
    for word in std::env::args().skip(1) {
        if let Some(next) = command.find_subcommand(&word).cloned() {
            name += &format!(" {word}");
            command = next;
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn each(command: &mut Command, see: &mut impl FnMut(&mut Command)) {
        see(command);
        command.get_subcommands_mut().for_each(|sub| each(sub, see));
    }

    #[test]
    fn no_line_of_any_help_is_wider_than_a_terminal() {
        let mut all = command();
        all.build();
        let mut wide = Vec::new();
        each(&mut all, &mut |command| {
            for text in [command.render_help(), command.render_long_help()] {
                let text = text.to_string();
                let lines = text.lines().filter(|line| line.chars().count() > COLUMNS);
                wide.extend(lines.map(|line| format!("{}: {line}", command.get_name())));
            }
        });
        assert!(wide.is_empty(), "{wide:#?}");
    }

    #[test]
    fn no_example_is_so_wide_that_it_would_be_broken() {
        let mut wide = Vec::new();
        each(&mut command(), &mut |command| {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples = after.lines().filter(|line| line.starts_with(' '));
            wide.extend(examples.filter(|line| line.chars().count() > COLUMNS).map(str::to_owned));
        });
        assert!(wide.is_empty(), "{wide:#?}");
    }

    use crate::examples as extract;

    /// What a command line of an example says to this program; none where it is for another one.
    fn said(command: &str) -> Option<Vec<String>> {
        let own = command.split(" && ").find(|part| part.contains("bimetal "))?;
        let own = own.split(['>', '|']).next()?;
        let words = extract::words(own);
        words.first()?.ends_with("bimetal").then_some(words)
    }

    #[test]
    fn every_example_is_understood() {
        let mut examples = Vec::new();
        each(&mut command(), &mut |command| {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            examples.extend(extract::of_help(command.get_name(), &after));
        });
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let docs =
            std::fs::read_dir(root.join("docs")).expect("documents").flatten().map(|entry| entry.path());
        for path in
            docs.chain([root.join("README.md")]).filter(|path| path.extension().is_some_and(|e| e == "md"))
        {
            let text = std::fs::read_to_string(&path).expect("a document");
            examples.extend(extract::of_document(&path.display().to_string(), &text));
        }
        let mut understood = 0;
        for example in &examples {
            let Some(words) = said(&example.command) else { continue };
            let words = crate::lab::orion::with_two_dashes(words.into_iter().map(Into::into));
            let words = crate::lab::words::own_first(words);
            if let Err(error) = command().try_get_matches_from(words) {
                panic!("{}: {}\n{error}", example.place, example.command);
            }
            understood += 1;
        }
        assert!(understood > 90, "only {understood} of {} examples", examples.len());
    }

    #[test]
    fn every_page_has_its_examples_as_they_are_typed() {
        let mut all = command();
        all.build();
        let mut pages = 0;
        each(&mut all, &mut |command| {
            let page = String::from_utf8(page(command).expect("a page")).expect("UTF-8");
            let (begun, ended) = (page.matches("\n.nf\n").count(), page.matches("\n.fi\n").count());
            assert_eq!(begun, ended, "{page}");
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert_eq!(after.contains("Example"), page.contains("\n.SH EXAMPLES\n"), "{page}");
            pages += 1;
        });
        assert!(pages > 20);
    }

    #[test]
    fn prose_runs_on_and_examples_stay() {
        let text = "Examples:\n  bimetal x\n      more\n\nOne\ntwo.\n\nThree.";
        assert_eq!(flowing(text), "Examples:\n  bimetal x\n      more\n\nOne two.\n\nThree.");
        assert_eq!(roff(".a-b\\"), "\\&.a\\-b\\e");
    }
}
