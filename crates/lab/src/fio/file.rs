//! A job file as a whole: what each of its jobs is to do.

use super::check;
use super::command_line::CommandLine;
use super::error::{At, Error, Errors, MOST_TOLD, Problem};
use super::ini::{self, Section, Surroundings, Written};
use super::iolog::IoLog;
use super::not_read::is_a_value;
use super::number::KbBase;
use super::options::{EngineKind, JobOptions};
use super::table::{Known, Treat, unknown};
use super::value::Given;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Notes of a file; one that has more to say has said enough.
const MOST_NOTES: usize = 100;

/// Options as they were written, by name; `1` for a name alone.
pub type WrittenOptions = BTreeMap<Arc<str>, Arc<str>>;

/// What a job file says.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFile {
    /// Its jobs, in their order; copies (`numjobs`) are not made yet.
    pub jobs: Vec<JobSection>,
    /// What changes nothing here, and what may surprise.
    pub notes: Vec<String>,
}

/// A section with a job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobSection {
    /// The job's name.
    pub name: String,
    /// What stands in its brackets: its files are called so.
    pub section: String,
    /// Where it begins.
    pub at: At,
    /// What it is to do.
    pub options: JobOptions,
    /// What the section says itself.
    pub own: WrittenOptions,
    /// What the global sections above it say.
    pub globals: Arc<WrittenOptions>,
    /// The logs that it replays, as soon as they are read: one for each copy, then the first again.
    pub logs: Vec<Arc<IoLog>>,
}

impl JobSection {
    /// The log that a copy replays.
    pub(super) fn log(&self, number: u32) -> Option<&Arc<IoLog>> {
        self.logs.get(number as usize % self.logs.len().max(1))
    }

    /// What was said last about an option, by the name that fio's manual lists first.
    pub fn written(&self, name: &str) -> Option<&str> {
        self.own.get(name).or_else(|| self.globals.get(name)).map(AsRef::as_ref)
    }
}

/// What the text of a job file says.
pub fn parse(name: &str, text: &[u8], around: &mut Surroundings<'_>) -> Result<JobFile, Errors> {
    parse_all(&CommandLine::default(), &[(name.into(), text.to_vec())], around)
}

/// What a command line and the texts of job files say, one after the other: what is global in one is so in the next.
pub fn parse_all(
    line: &CommandLine,
    texts: &[(String, Vec<u8>)],
    around: &mut Surroundings<'_>,
) -> Result<JobFile, Errors> {
    let mut maker = Maker { notes: Notes::default(), errors: Vec::new() };
    line.notes.iter().for_each(|note| maker.notes.add(note.clone()));
    let mut sections = line.sections.clone();
    for (name, text) in texts {
        let ini = ini::read(name, text, around)?;
        ini.notes.into_iter().for_each(|note| maker.notes.add(note));
        sections.extend(ini.sections);
    }
    if !line.only.is_empty() {
        sections.retain(|section| section.global || line.only.contains(&section.name));
    }
    let name = texts.first().map_or("the command line", |(name, _)| name);
    let jobs = maker.jobs(name, sections);
    if maker.errors.is_empty() {
        Ok(JobFile { jobs, notes: maker.notes.all })
    } else {
        Err(Errors(maker.errors))
    }
}

/// Notes, each of them once.
#[derive(Default)]
struct Notes {
    all: Vec<String>,
    known: BTreeSet<String>,
}

impl Notes {
    fn add(&mut self, note: String) {
        if self.all.len() < MOST_NOTES && self.known.insert(note.clone()) {
            self.all.push(note);
        }
    }
}

struct Maker {
    notes: Notes,
    errors: Vec<Error>,
}

impl Maker {
    fn jobs(&mut self, file: &str, sections: Vec<Section>) -> Vec<JobSection> {
        let (mut defaults, mut base, mut jobs) = (JobOptions::default(), KbBase::default(), Vec::new());
        let mut globals = Arc::new(WrittenOptions::new());
        for section in sections {
            if self.errors.len() >= MOST_TOLD {
                break;
            }
            if section.global {
                self.apply(&section, &mut defaults, &mut base);
                // As in fio, it names no job.
                defaults.name = None;
                Arc::make_mut(&mut globals).extend(written(&section));
                continue;
            }
            let mut options = defaults.clone();
            self.apply(&section, &mut options, &mut base.clone());
            let own = written(&section);
            let name = options.name.clone().unwrap_or_else(|| section.name.clone());
            let (section, at, globals) = (section.name, section.at, globals.clone());
            let mut job = JobSection { name, section, at, options, own, globals, logs: Vec::new() };
            self.finish(&mut job);
            jobs.push(job);
        }
        if jobs.is_empty() && self.errors.is_empty() {
            let at = At { file: file.into(), line: 0 };
            let problem = Problem::new("there is no job in it", "begin one with its name in brackets");
            self.errors.push(problem.at(&at, "", ""));
        }
        self.errors.truncate(MOST_TOLD);
        jobs
    }

    /// Reads the options of a section. What a number means comes first: fio reads `kb_base` before all others too.
    fn apply(&mut self, section: &Section, options: &mut JobOptions, base: &mut KbBase) {
        for option in &section.options {
            if &*option.name == "kb_base" {
                match option.value.as_deref() {
                    Some("1000") => *base = KbBase::Standard,
                    Some("1024") => *base = KbBase::Traditional,
                    _ => {
                        self.wrong(section, option, Problem::new("it is neither 1000 nor 1024", "write one"))
                    }
                }
            }
        }
        for option in &section.options {
            let named = options.filenames.len();
            if let Err(problem) = self.option(option, options, *base) {
                self.wrong(section, option, problem);
            }
            if named > 0 && options.filenames.len() > named {
                self.notes.add(format!(
                    "[{}] filename: as in fio, these files and those that were named before are used",
                    section.name
                ));
            }
            if self.errors.len() >= MOST_TOLD {
                return;
            }
        }
    }

    fn option(&mut self, option: &Written, options: &mut JobOptions, base: KbBase) -> Result<(), Problem> {
        let known = Known::find(&option.name).ok_or_else(|| unknown(&option.name))?;
        let value = option.value.as_deref();
        let said = value.unwrap_or("1");
        match &known.treat {
            Treat::Set(set) => {
                set(options, &mut Given { name: known.name, value, base })?;
                self.surprise(option, base);
            }
            Treat::Nil { silent, .. } if silent.contains(&said) => {}
            Treat::Nil { note, .. } => {
                is_a_value(&Given { name: known.name, value, base })?;
                self.notes.add(format!("{}: {note}", option.name));
            }
            Treat::Refuse { harmless, .. } if harmless.contains(&said) => {}
            Treat::Refuse { why, cure, .. } => return Err(Problem::new(*why, *cure)),
        }
        Ok(())
    }

    /// Says so where a unit is not what it seems.
    fn surprise(&mut self, option: &Written, base: KbBase) {
        let value = option.value.as_deref().unwrap_or_default().to_ascii_lowercase();
        let odd = |unit: &str| {
            value.match_indices(unit).any(|(at, _)| at > 0 && value.as_bytes()[at - 1].is_ascii_digit())
        };
        let takes_sizes = [
            "bs",
            "blocksize",
            "ba",
            "blockalign",
            "bsrange",
            "bssplit",
            "size",
            "io_size",
            "offset",
            "filesize",
            "rate",
        ];
        if base == KbBase::Standard || !takes_sizes.contains(&&*option.name) {
            return;
        }
        if value.starts_with([' ', '\t']) || value.contains(": ") {
            self.notes.add(format!(
                "{}: fio drops the unit of a number behind a blank; here it counts",
                option.name
            ));
        }
        if ["bs", "blocksize"].contains(&&*option.name)
            && !value.starts_with('(')
            && let Some((first, rest)) = value.split_once(['-', ':', '/'])
        {
            self.notes.add(format!(
                "{}: as in fio, {first} is for reads and {rest} for writes; bsrange takes a range, bssplit shares",
                option.name
            ));
        }
        if let Some(unit) = ["kib", "mib", "gib", "tib", "pib"].into_iter().find(|unit| odd(unit)) {
            let (name, plain) = (&option.name, &unit[..1]);
            self.notes.add(format!(
                "{name}: to fio a {unit} is a power of 1000 and {plain} of 1024, unless kb_base=1000"
            ));
        }
    }

    /// What the options of a job say together.
    fn finish(&mut self, job: &mut JobSection) {
        check::complete(job);
        for (option, problem) in check::contradictions(job) {
            self.errors.push(problem.at(&job.at, &job.name, option));
        }
        for note in check::notes(job) {
            self.notes.add(note);
        }
        let engine = &job.options.engine_name;
        if job.options.engine == EngineKind::Ring && engine != "io_uring" {
            self.notes.add(format!("ioengine: {engine} is replaced by a ring of this program's own"));
        }
        if job.options.engine == EngineKind::Synchronous {
            self.notes.add(format!(
                "ioengine: {engine} is replaced by a ring of this program's own, one I/O at a time"
            ));
        }
    }

    fn wrong(&mut self, section: &Section, option: &Written, problem: Problem) {
        self.errors.push(problem.at(&option.at, &section.name, &option.name));
    }
}

/// A section's options by the name that the manual lists first.
fn written(section: &Section) -> WrittenOptions {
    let name =
        |option: &Written| Known::find(&option.name).map_or(option.name.clone(), |known| known.name.into());
    let value = |option: &Written| option.value.clone().unwrap_or_else(|| "1".into());
    section.options.iter().map(|option| (name(option), value(option))).collect()
}
