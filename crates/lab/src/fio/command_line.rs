//! fio's command line: jobs that are written there instead of in a file, and what is to become of the report.
//!
//! Options are read as fio reads them: with one dash or two, the value behind `=` or in the next word; those before the
//! first `--name` are for all jobs, those behind one for that job.

use super::error::{At, MOST_TOLD, Problem};
use super::ini::{Section, Written};
use super::number::{self, KbBase};
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
    /// It changes nothing here, which a note says if there is one; what it wants, and whether a value is that.
    Nil(&'static str, Wants),
    /// It is not offered.
    Refused(&'static str),
}

/// What a value is to be, in words and as a check.
type Wants = (&'static str, fn(&str) -> bool);

const ANYTHING: Wants = ("", |_| true);
const NUMBER: Wants = ("a number", |text| number::bytes(text, KbBase::default()).is_ok());
const TIME: Wants = ("a time", |text| number::seconds(text).is_ok());
const IDLE: Wants = ("system, percpu or calibrate", |text| ["system", "percpu", "calibrate"].contains(&text));

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
        "eta-newline" | "eta-interval" => (Needed, Nil("", TIME)),
        "max-jobs" | "alloc-size" => (Needed, Nil("", NUMBER)),
        "debug" | "eta" => (Needed, Nil("", ANYTHING)),
        "warnings-fatal" => (Alone, Nil("warnings of fio's are notes here, so it changes nothing", ANYTHING)),
        "status-interval" => (Needed, Nil("the report is printed at the end only", TIME)),
        "idle-prof" => (Needed, Nil("how idle processors are is not measured", IDLE)),
        "bandwidth-log" => {
            let note = "fio fills these logs from its display only; write_bw_log of the jobs writes logs";
            (Alone, Nil(note, ANYTHING))
        }
        "latency-log" => (Behind, Refused("write_lat_log of the jobs writes logs")),
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
        let mut wrong = Vec::new();
        while let Some(word) = words.next() {
            let text = word.to_str();
            let Some(option) = text.filter(|text| text.starts_with('-') && text.len() > 1) else {
                line.files.push(word.into());
                continue;
            };
            if let Err(problem) = line.word(option, &mut words) {
                wrong.push(problem);
            }
            if wrong.len() >= MOST_TOLD {
                break;
            }
        }
        if wrong.is_empty() && line.files.is_empty() && line.sections.iter().all(|section| section.global) {
            wrong.push("there is no job; name a job file, or begin one with --name=NAME".into());
        }
        if wrong.is_empty() { Ok(line) } else { Err(wrong.join("\n")) }
    }

    /// One word that begins with a dash, and the next, if that is its value.
    fn word<'w>(
        &mut self,
        option: &str,
        words: &mut impl Iterator<Item = &'w OsString>,
    ) -> Result<(), String> {
        let plain = option.strip_prefix("--").or_else(|| option.strip_prefix('-')).unwrap_or(option);
        let (name, behind) = match plain.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (plain, None),
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
            (Some(_), Value::None) => {
                return Err(format!("--{name}: it has no value; write --{name} alone"));
            }
            (Some(value), _) => Some(value),
            (None, Value::Needed) => {
                let next = words.next().and_then(|word| word.to_str());
                Some(
                    next.ok_or_else(|| format!("--{name}: a value is missing; write --{name}=VALUE"))?.into(),
                )
            }
            (None, Value::Behind | Value::None) => None,
        };
        let text = value.as_deref().unwrap_or_default();
        match found {
            Some((_, Own::Does(does))) => does(self, text),
            Some((_, Own::Formats)) => self.formats = formats(text)?,
            Some((_, Own::TerseVersion)) if text == "3" => {}
            Some((_, Own::TerseVersion)) => {
                return Err("--terse-version: only version 3 is offered; write 3, or use json".into());
            }
            Some((_, Own::Nil(_, (wants, is_one)))) if !is_one(text) => {
                return Err(format!("--{name}: `{text}` is not {wants}; write one, or leave it out"));
            }
            Some((_, Own::Nil("", _))) => {}
            Some((_, Own::Nil(note, _))) => self.notes.push(format!("--{name}: {note}")),
            Some((_, Own::Refused(why))) => return Err(format!("--{name}: {why}")),
            None => self.option(name, value),
        }
        Ok(())
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
            ("--name=a ---bs=4k", "'---bs'"),
            ("--name=a --readonly=1", "it has no value"),
            ("--name=a --eta-newline=often", "`often` is not a time"),
            ("--name=a --client=x --nope=1", "fio has no such option"),
        ] {
            let error = line(text).map(|_| ()).expect_err(text);
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
