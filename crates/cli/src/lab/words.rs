//! The command line of `bimetal lab fio`, where our options and fio's stand side by side.

use super::args::FioArgs;
use clap::{Args as _, Command};
use std::ffi::OsString;

/// Puts our own options of `lab fio` first, and a `--` before what is fio's: whatever fio calls its options, ours are
/// known by their names, wherever they stand.
pub(crate) fn own_first(arguments: Vec<OsString>) -> Vec<OsString> {
    let is_fio = |two: &[OsString]| two[0] == "lab" && two[1] == "fio";
    let Some(at) = arguments.windows(2).position(is_fio) else { return arguments };
    let ours = FioArgs::augment_args(Command::new("fio"));
    // The level of what is said on standard error is an option of all commands.
    let takes_value = |name: &str| match name {
        "help" | "version" => Some(false),
        "log" => Some(true),
        _ => {
            let own = ours.get_arguments().find(|own| own.get_long() == Some(name))?;
            Some(own.get_action().takes_values())
        }
    };
    let (mut own, mut others) = (arguments[..at + 2].to_vec(), Vec::new());
    let mut rest = arguments[at + 2..].iter();
    while let Some(word) = rest.next() {
        let text = word.to_str().unwrap_or_default();
        if text == "--" {
            others.extend(rest.cloned());
            break;
        }
        if text == "-h" {
            own.push(word.clone());
            continue;
        }
        let name = text.strip_prefix("--").unwrap_or_default();
        let (name, has_value) = name.split_once('=').map_or((name, false), |(name, _)| (name, true));
        match takes_value(name) {
            Some(takes) => {
                own.push(word.clone());
                if takes && !has_value {
                    own.extend(rest.next().cloned());
                }
            }
            None => others.push(word.clone()),
        }
    }
    if !others.is_empty() {
        own.push("--".into());
        own.append(&mut others);
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_come_first_in_lab_fio_only() {
        let turned = |line: &str| {
            let words = own_first(line.split(' ').map(OsString::from).collect());
            words.into_iter().map(|word| word.into_string().expect("text")).collect::<Vec<_>>().join(" ")
        };
        for (line, expected) in [
            ("bimetal lab fio a.fio --target null: --json", "bimetal lab fio --target null: --json -- a.fio"),
            ("bimetal lab fio --name x --rw=read --seed=5", "bimetal lab fio --seed=5 -- --name x --rw=read"),
            ("bimetal lab fio -rw=read --log warn -name=a", "bimetal lab fio --log warn -- -rw=read -name=a"),
            ("bimetal lab fio - --output-format json", "bimetal lab fio -- - --output-format json"),
            ("bimetal lab fio --help", "bimetal lab fio --help"),
            ("bimetal lab quick x --json", "bimetal lab quick x --json"),
        ] {
            assert_eq!(turned(line), expected, "{line}");
        }
    }
}
