//! The lines of a job file: sections, options, comments, included files, what is put in for `${NAME}` and `$ncpus`.
//!
//! Nothing is read here but text that is handed in, so that a test can be the file system and the environment.

use super::error::{At, Error, Errors, MOST_TOLD, Problem};
use super::number::{self, KbBase};
use std::sync::Arc;

/// Bytes of a file. Job files are written by hand; a megabyte of one is a mistake, a trace or a device say.
pub const MOST_FILE_BYTES: usize = 1 << 20;
/// Bytes of all files together, counted each time that one is included: files that include one another twice would
/// otherwise double with each level.
pub const MOST_BYTES: usize = 4 << 20;
/// Bytes of a line, before and after names are replaced: fio's own limit.
pub const MOST_LINE_BYTES: usize = 8192;
/// Files that include one another.
pub const DEEPEST_INCLUDE: u32 = 16;
/// Jobs of a file, each of them options and a report. fio ends at 4096 including copies.
pub const MOST_JOBS: usize = 1024;

/// Gives the text of an included file: its name as it stands in the file, and the name of the file that includes it.
/// The answer is the name that it is to have in messages, and what it holds.
pub type Include<'a> = dyn FnMut(&str, &str) -> Result<(String, Vec<u8>), String> + 'a;

/// The machine that a job file is for: what `$pagesize`, `$mb_memory` and `$ncpus` stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Mebibytes of memory.
    pub memory_mib: u64,
    /// Processors.
    pub processors: u64,
}

/// What the text of a job file does not hold itself.
pub struct Surroundings<'a> {
    /// Reads included files.
    pub include: &'a mut Include<'a>,
    /// The environment.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    /// The machine.
    pub machine: Machine,
}

/// An option as it was written, with what was put in for names.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Written {
    pub(crate) name: Arc<str>,
    /// None for a name alone.
    pub(crate) value: Option<Arc<str>>,
    pub(crate) at: At,
}

/// A section.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) global: bool,
    pub(crate) at: At,
    pub(crate) options: Vec<Written>,
}

/// Everything that a file holds, in its order.
pub(crate) struct Ini {
    pub(crate) sections: Vec<Section>,
    pub(crate) notes: Vec<String>,
}

pub(crate) fn read(name: &str, text: &[u8], around: &mut Surroundings<'_>) -> Result<Ini, Errors> {
    let ini = Ini { sections: Vec::new(), notes: Vec::new() };
    let mut reader = Reader { ini, around, errors: Vec::new(), bytes: 0, jobs: 0 };
    reader.file(name, text, 0);
    if reader.errors.is_empty() { Ok(reader.ini) } else { Err(Errors(reader.errors)) }
}

struct Reader<'a, 'b> {
    ini: Ini,
    around: &'a mut Surroundings<'b>,
    errors: Vec<Error>,
    /// Of all files so far.
    bytes: usize,
    jobs: usize,
}

impl Reader<'_, '_> {
    fn wrong(&mut self, at: &At, option: &str, problem: Problem) {
        let section = self.ini.sections.last().map_or("", |section| &section.name);
        let error = problem.at(at, section, option);
        self.errors.push(error);
    }

    fn file(&mut self, name: &str, text: &[u8], deep: u32) {
        let name: Arc<str> = name.into();
        self.bytes += text.len();
        let problem = if text.len() > MOST_FILE_BYTES || self.bytes > MOST_BYTES {
            Some("more than a megabyte (four with what is included): this is no job file")
        } else if deep > DEEPEST_INCLUDE {
            Some("too many files that include one another")
        } else {
            None
        };
        if let Some(problem) = problem {
            let at = At { file: name, line: 0 };
            return self.wrong(&at, "", Problem::new(problem, "name another file"));
        }
        // Some editors put a byte order mark before a text.
        let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
        for (n, line) in text.split(|&byte| byte == b'\n').enumerate() {
            if self.errors.len() >= MOST_TOLD {
                return;
            }
            let at = At { file: name.clone(), line: u32::try_from(n + 1).unwrap_or(u32::MAX) };
            if let Err(problem) = self.line(&at, line, deep) {
                self.wrong(&at, "", problem);
            }
        }
    }

    fn line(&mut self, at: &At, line: &[u8], deep: u32) -> Result<(), Problem> {
        if line.len() > MOST_LINE_BYTES {
            let problem =
                format!("a line of {} bytes, and fio reads no more than {MOST_LINE_BYTES}", line.len());
            return Err(Problem::new(problem, "shorten it"));
        }
        let text = std::str::from_utf8(line).ok().filter(|text| !text.contains('\0'));
        let text = text.ok_or_else(|| Problem::new("this is no text", "write it in UTF-8"))?;
        // What follows a ; or # is a comment wherever it stands: fio knows no quotes.
        let text = text.split([';', '#']).next().unwrap_or_default().trim();
        if text.is_empty() {
            return Ok(());
        }
        if text.contains('\r') {
            let problem = "a carriage return stands within the line, which is none of its end";
            return Err(Problem::new(problem, "end lines with a line feed, as Unix does, or with both"));
        }
        if text.starts_with('[') {
            return self.section(at, text, deep);
        }
        if self.ini.sections.is_empty() {
            let problem = format!("`{text}` stands before any section");
            return Err(Problem::new(problem, "begin with [global] or the name of a job in brackets"));
        }
        match text.strip_prefix("include").filter(|rest| rest.starts_with([' ', '\t'])) {
            Some(file) => self.include(at, file.trim(), deep),
            None => self.option(at, text),
        }
    }

    fn section(&mut self, at: &At, text: &str, deep: u32) -> Result<(), Problem> {
        if deep > 0 {
            let problem = "a section in an included file: fio takes only options from it";
            return Err(Problem::new(problem, "move it into the file that includes"));
        }
        let name = text[1..].strip_suffix(']').filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| {
            Problem::new(format!("`{text}` is no section"), "write a name in brackets, alone in its line")
        })?;
        // As fio has it.
        let global = name.starts_with("global");
        if global && name != "global" {
            self.ini.notes.push(format!(
                "{}:{}: [{name}] is for all jobs behind it, as every section whose name begins with global",
                at.file, at.line
            ));
        }
        self.jobs += usize::from(!global);
        if self.jobs > MOST_JOBS {
            return Err(Problem::new(
                format!("more than {MOST_JOBS} jobs"),
                "spread them over several files",
            ));
        }
        let section = Section { name: name.into(), global, at: at.clone(), options: Vec::new() };
        self.ini.sections.push(section);
        Ok(())
    }

    fn include(&mut self, at: &At, name: &str, deep: u32) -> Result<(), Problem> {
        let found = (self.around.include)(name, &at.file);
        let (name, text) = found.map_err(|reason| {
            Problem::new(format!("{name} cannot be included: {reason}"), "name a file that can be read")
        })?;
        self.file(&name, &text, deep + 1);
        Ok(())
    }

    fn option(&mut self, at: &At, text: &str) -> Result<(), Problem> {
        let text = self.environment(at, text)?;
        let text = self.keywords(text)?;
        if text.len() > MOST_LINE_BYTES {
            let problem = format!("more than {MOST_LINE_BYTES} bytes with what the names stand for");
            return Err(Problem::new(problem, "shorten it"));
        }
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name.trim_end(), Some(value.into())),
            None => (text.as_str(), None),
        };
        let written = Written { name: name.into(), value, at: at.clone() };
        if let Some(section) = self.ini.sections.last_mut() {
            section.options.push(written);
        }
        Ok(())
    }

    /// Puts in what `${NAME}` stands for; as in fio, nothing where the environment has no such name.
    fn environment(&mut self, at: &At, text: &str) -> Result<String, Problem> {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let Some((name, after)) = after.split_once('}') else {
                return Err(Problem::new(format!("`{text}` lacks a closing brace"), "close it"));
            };
            out.push_str(before);
            match (self.around.environment)(name) {
                Some(value) => out.push_str(&value),
                None => self.ini.notes.push(format!(
                    "{}:{}: {name} is not in the environment: it stands for nothing, as in fio",
                    at.file, at.line
                )),
            }
            // A value may be as long as the environment allows, and stand there once for every five bytes.
            if out.len() > 2 * MOST_LINE_BYTES {
                break;
            }
            rest = after;
        }
        out.push_str(rest);
        Ok(out)
    }

    /// Puts in what `$pagesize` and its like stand for, and calculates the value of an option that has one.
    fn keywords(&self, text: String) -> Result<String, Problem> {
        let machine = self.around.machine;
        let replaced = [
            ("$pagesize", machine.page_bytes),
            ("$mb_memory", machine.memory_mib),
            ("$ncpus", machine.processors),
        ]
        .iter()
        .fold(text.clone(), |text, (word, value)| text.replace(word, &value.to_string()));
        let calculated = replaced.split_once('=').filter(|(_, value)| {
            replaced != text && value.contains(['+', '-', '*', '/']) && is_arithmetic(value)
        });
        let Some((name, value)) = calculated else { return Ok(replaced) };
        let value = number::bytes(&format!("({value})"), KbBase::default())?;
        Ok(format!("{name}={value}"))
    }
}

/// Whether nothing but a calculation is written there; a name of a file with `$ncpus` in it is none.
fn is_arithmetic(value: &str) -> bool {
    value.bytes().all(|byte| byte.is_ascii_digit() || b"+-*/%^() ".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Ini, Errors> {
        let mut include = |name: &str, _: &str| match name {
            "b.fio" => Ok((name.into(), b"bs=8k\n".to_vec())),
            "self.fio" => Ok((name.into(), b"include self.fio\ninclude self.fio\n".to_vec())),
            "job.fio" => Ok((name.into(), b"[x]\n".to_vec())),
            _ => Err("there is no such file".into()),
        };
        let environment = |name: &str| match name {
            "SIZE" => Some("4m".into()),
            "LONG" => Some("x".repeat(100_000)),
            _ => None,
        };
        let machine = Machine { page_bytes: 4096, memory_mib: 1000, processors: 3 };
        read(
            "a.fio",
            text.as_bytes(),
            &mut Surroundings { include: &mut include, environment: &environment, machine },
        )
    }

    fn options(text: &str) -> Vec<(String, Option<String>)> {
        let ini = parse(text).unwrap_or_else(|errors| panic!("{text:?}: {errors}"));
        let all = ini.sections.iter().flat_map(|section| &section.options);
        all.map(|option| (option.name.to_string(), option.value.as_deref().map(Into::into))).collect()
    }

    #[test]
    fn lines() {
        for (text, expected) in [
            ("bs=4k", Some(("bs", Some("4k")))),
            ("  bs=4k # comment", Some(("bs", Some("4k")))),
            ("bs=4k ; comment\r", Some(("bs", Some("4k")))),
            ("bs =4k", Some(("bs", Some("4k")))),
            ("description = a b", Some(("description", Some(" a b")))),
            ("time_based", Some(("time_based", None))),
            ("# bs=4k", None),
            ("   ;", None),
            ("size=${SIZE}", Some(("size", Some("4m")))),
            ("filename=/tmp/${NOPE}x", Some(("filename", Some("/tmp/x")))),
            ("size=8*$mb_memory", Some(("size", Some("8000")))),
            ("bs=$pagesize", Some(("bs", Some("4096")))),
            ("filename=/dev/x-$ncpus", Some(("filename", Some("/dev/x-3")))),
            ("include b.fio", Some(("bs", Some("8k")))),
            ("included=1", Some(("included", Some("1")))),
        ] {
            let marked = format!("\u{feff}[a]\n{text}\n");
            assert_eq!(options(&marked), options(&marked[3..]), "{text}");
            let expected = expected.map(|(name, value)| (name.to_string(), value.map(String::from)));
            assert_eq!(options(&format!("[a]\n{text}\n")), Vec::from_iter(expected), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (text, said) in [
            ("bs=4k\n[a]\n", "a.fio:1: `bs=4k` stands before any section"),
            ("[a\n", "a.fio:1: `[a` is no section"),
            ("[]\n", "is no section"),
            ("[a]\nsize=${SIZE\n", "a.fio:2: [a] `size=${SIZE` lacks"),
            ("[a]\ninclude nope.fio\n", "nope.fio cannot be included: there is no such file"),
            ("[a]\ninclude job.fio\n", "job.fio:1: [a] a section in an included file"),
            ("[a]\ninclude self.fio\n", "include one another"),
            ("[a]\ndescription=${LONG}${LONG}\n", "more than 8192"),
            ("[a]\nx\0y\n", "no text"),
            ("[a]\rrw=read\r", "a carriage return"),
        ] {
            let said_so = parse(text).err().map(|errors| errors.to_string()).unwrap_or_default();
            assert!(said_so.contains(said), "{text:?}: {said_so}");
        }
        let many = "[a]\n".repeat(MOST_JOBS + 1);
        assert!(parse(&many).is_err());
        assert!(parse(&" ".repeat(MOST_FILE_BYTES + 1)).is_err());
        assert!(parse(&format!("[a]\n{}", "x".repeat(MOST_LINE_BYTES + 1))).is_err());
    }
}
