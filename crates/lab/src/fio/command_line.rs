//! fio's command line: jobs that are written there instead of in a file, and what is to become of the report.
//!
//! Options are read as fio reads them: with one dash or two, the value behind `=` or in the next word; those before the
//! first `--name` are for all jobs, those behind one for that job.

use super::error::{At, Problem};
use super::ini::{Section, Written};
use super::table::{Known, unknown};
use std::ffi::OsString;
use std::path::PathBuf;

/// Words of a command line at most; each may be an option of a job.
const MOST_WORDS: usize = 4096;

/// How a report is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Normal,
    /// For scripts of old: a line of figures for each job.
    Terse,
    /// fio's JSON.
    Json,
    /// The same with all the bins of the histograms.
    JsonPlus,
}

/// What a command line says.
#[derive(Clone, Debug, Default)]
pub struct CommandLine {
    /// Jobs that stand on it, and what is for all jobs.
    pub(crate) sections: Vec<Section>,
    /// Job files, `-` for standard input.
    pub files: Vec<PathBuf>,
    /// Only these sections of them; all if there is none.
    pub(crate) only: Vec<String>,
    /// Nothing is run.
    pub parse_only: bool,
    /// Jobs that write are refused.
    pub read_only: bool,
    /// Where the report goes, if not to standard output.
    pub output: Option<PathBuf>,
    /// How it is printed, each time; empty for the usual.
    pub formats: Vec<Format>,
    /// What changes nothing here.
    pub(crate) notes: Vec<String>,
}

/// What becomes of an option that is fio's own, and no job's.
enum Own {
    /// It is done: this says how.
    Does(fn(&mut CommandLine, &str)),
    /// It says how the report is printed.
    Formats,
    /// It says how the terse one is: in one way only.
    TerseVersion,
    /// It changes nothing here, which a note says if there is one.
    Nil(&'static str),
    /// It is not offered.
    Refused(&'static str),
}

/// Whether an option has a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    None,
    Behind,
    Needed,
}

const NO_PEERS: &str = "clients and servers of fio are not offered; run it on each machine";

fn own(name: &str) -> Option<(Value, Own)> {
    use Own::{Does, Nil, Refused};
    use Value::{Behind, Needed, None as Alone};
    Some(match name {
        "parse-only" => (Alone, Does(|line, _| line.parse_only = true)),
        "readonly" => (Alone, Does(|line, _| line.read_only = true)),
        "output" => (Needed, Does(|line, value| line.output = Some(value.into()))),
        "output-format" => (Needed, Own::Formats),
        "section" => (Needed, Does(|line, value| line.only.push(value.into()))),
        "eta" | "eta-newline" | "eta-interval" | "max-jobs" | "alloc-size" | "debug" => (Needed, Nil("")),
        "warnings-fatal" => (Alone, Nil("warnings of fio's are notes here, so it changes nothing")),
        "status-interval" => (Needed, Nil("the report is printed at the end only")),
        "idle-prof" => (Needed, Nil("how idle processors are is not measured")),
        "bandwidth-log" | "latency-log" => {
            (Behind, Refused("write_bw_log and write_lat_log of the jobs write logs"))
        }
        "minimal" => (Alone, Does(|line, _| line.formats = vec![Format::Terse])),
        "append-terse" => (Alone, Does(|line, _| line.formats = vec![Format::Normal, Format::Terse])),
        "terse-version" => (Needed, Own::TerseVersion),
        "client" | "server" | "daemonize" | "remote-config" => (Behind, Refused(NO_PEERS)),
        "profile" => (Needed, Refused("fio's profiles are not offered; write the jobs")),
        "trigger"
        | "trigger-file"
        | "trigger-timeout"
        | "trigger-remote"
        | "aux-path"
        | "merge-blktrace-only"
        | "inflate-log"
        | "showcmd"
        | "cmdhelp"
        | "enghelp"
        | "crctest"
        | "cpuclock-test" => (Behind, Refused("it is not offered by the lab; use fio")),
        _ => return None,
    })
}

fn formats(value: &str) -> Result<Vec<Format>, String> {
    let format = |word: &str| match word.trim() {
        "normal" => Ok(Format::Normal),
        "terse" => Ok(Format::Terse),
        "json" => Ok(Format::Json),
        "json+" => Ok(Format::JsonPlus),
        other => {
            Err(format!("--output-format: `{other}` is not offered; write normal, terse, json or json+"))
        }
    };
    value.split(',').map(format).collect()
}

/// Options of jobs that stand alone, or with a value behind `=` (`FIO_OPT_STR_SET` in fio's table), and those that
/// have the job's name without one.
const ALONE: &[&str] = &[
    "bs_unaligned",
    "blocksize_unaligned",
    "norandommap",
    "time_based",
    "verify_only",
    "exitall",
    "exitall_on_error",
    "stonewall",
    "wait_for_previous",
    "new_group",
    "thread",
    "group_reporting",
    "zero_buffers",
    "refill_buffers",
    "write_bw_log",
    "write_lat_log",
    "write_iops_log",
    "write_hist_log",
];

impl CommandLine {
    /// What the words behind `fio` say.
    ///
    /// # Errors
    /// With what is wrong, and what to do about it.
    pub fn parse(words: &[OsString]) -> Result<CommandLine, String> {
        if words.len() > MOST_WORDS {
            return Err(format!("more than {MOST_WORDS} words on the command line; write a job file"));
        }
        let mut line = CommandLine::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let text = word.to_str();
            let Some(option) = text.filter(|text| text.starts_with('-') && text.len() > 1) else {
                line.files.push(word.into());
                continue;
            };
            let option = option.trim_start_matches('-');
            let (name, behind) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (option, None),
            };
            let found = own(name);
            let wants = match &found {
                Some((wants, _)) => *wants,
                None if ALONE.contains(&name) => Value::Behind,
                None => Value::Needed,
            };
            if found.is_none() && Known::find(name).is_none() {
                let Problem { problem, cure } = unknown(name);
                return Err(format!("'--{name}': {problem}; {cure}"));
            }
            let value = match (behind, wants) {
                (Some(value), _) => Some(value),
                (None, Value::Needed) => {
                    let next = words.next().and_then(|word| word.to_str());
                    Some(
                        next.ok_or_else(|| format!("--{name}: a value is missing; write --{name}=VALUE"))?
                            .into(),
                    )
                }
                (None, Value::Behind | Value::None) => None,
            };
            match found {
                Some((_, Own::Does(does))) => does(&mut line, value.as_deref().unwrap_or_default()),
                Some((_, Own::Formats)) => line.formats = formats(value.as_deref().unwrap_or_default())?,
                Some((_, Own::TerseVersion)) if value.as_deref() == Some("3") => {}
                Some((_, Own::TerseVersion)) => {
                    return Err("--terse-version: only version 3 is offered; write 3, or use json".into());
                }
                Some((_, Own::Nil(""))) => {}
                Some((_, Own::Nil(note))) => line.notes.push(format!("--{name}: {note}")),
                Some((_, Own::Refused(why))) => return Err(format!("--{name}: {why}")),
                None => line.option(name, value),
            }
        }
        if line.files.is_empty() && line.sections.iter().all(|section| section.global) {
            return Err("there is no job; name a job file, or begin one with --name=NAME".into());
        }
        Ok(line)
    }

    /// An option of a job: `name` begins one.
    fn option(&mut self, name: &str, value: Option<String>) {
        let at = At { file: "the command line".into(), line: 0 };
        let begins = name == "name";
        if begins || self.sections.is_empty() {
            let job = value.as_deref().filter(|_| begins).unwrap_or("global").trim();
            let global = job.starts_with("global");
            let section = Section { name: job.into(), global, at: at.clone(), options: Vec::new() };
            self.sections.push(section);
        }
        if let Some(section) = self.sections.last_mut().filter(|section| !begins || !section.global) {
            section.options.push(Written { name: name.into(), value: value.map(Into::into), at });
        }
    }

    /// What the run is called: its files, or its first job.
    pub fn title(&self) -> String {
        let name =
            |path: &PathBuf| path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let jobs = self.sections.iter().filter(|section| !section.global).map(|section| section.name.clone());
        self.files.iter().map(name).chain(jobs).next().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Result<CommandLine, String> {
        CommandLine::parse(&text.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    /// Sections with their options, as one line.
    fn sections(text: &str) -> String {
        let line = line(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let option = |option: &Written| match &option.value {
            Some(value) => format!("{}={value}", option.name),
            None => option.name.to_string(),
        };
        let section = |section: &Section| {
            let options: Vec<String> = section.options.iter().map(option).collect();
            format!("[{}] {}", section.name, options.join(" "))
        };
        line.sections.iter().map(section).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn words_are_read_as_fio_reads_them() {
        for (text, expected) in [
            ("--name=a --rw=read", "[a] name=a rw=read"),
            ("--name a --rw read --thread", "[a] name=a rw=read thread"),
            ("-rw=read -name=a -iodepth 4", "[global] rw=read [a] name=a iodepth=4"),
            ("--bs=4k --name=a --bs=8k --name=b", "[global] bs=4k [a] name=a bs=8k [b] name=b"),
            ("--name=a --name=global --bs=8k --name=b", "[a] name=a [global] bs=8k [b] name=b"),
            ("--name=a --group_reporting=1 --write_bw_log", "[a] name=a group_reporting=1 write_bw_log"),
            ("--runtime=5 x.fio", "[global] runtime=5"),
        ] {
            assert_eq!(sections(text), expected, "{text}");
        }
        let all =
            line("--output-format=normal,json+ --output=o --parse-only - x.fio --eta always").expect("read");
        assert_eq!(all.formats, [Format::Normal, Format::JsonPlus]);
        assert!(all.parse_only && all.output == Some("o".into()));
        assert_eq!(all.files, [PathBuf::from("-"), PathBuf::from("x.fio")]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, said) in [
            ("--rw=read", "there is no job"),
            ("--name=a --iodepht=3", "did you mean iodepth"),
            ("--name=a --rw", "a value is missing"),
            ("--name=a --client=x", "not offered"),
            ("--name=a --output-format=xml", "normal, terse, json or json+"),
            ("--name=a --terse-version=5", "only version 3"),
        ] {
            let error = line(text).map(|_| ()).expect_err(text);
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
