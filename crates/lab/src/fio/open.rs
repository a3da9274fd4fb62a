//! Job files of this machine: its files, its environment, its memory and processors.

use super::command_line::CommandLine;
use super::error::{At, Errors, Problem};
use super::file::{JobFile, parse_all};
use super::ini::{MOST_FILE_BYTES, Machine, Surroundings};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// What a job file says; files that it includes are looked for where this program runs, then beside it.
pub fn open(path: &Path) -> Result<JobFile, Errors> {
    open_all(&CommandLine { files: vec![path.into()], ..CommandLine::default() })
}

/// What a command line and the job files that it names say.
pub fn open_all(line: &CommandLine) -> Result<JobFile, Errors> {
    let mut texts = Vec::new();
    for path in &line.files {
        let name = if is_standard_input(path) { "standard input".into() } else { path.display().to_string() };
        let text = contents(path).map_err(|error| {
            let problem = Problem::new(format!("it cannot be read: {error}"), "name a file that can be");
            Errors(vec![problem.at(&At { file: name.as_str().into(), line: 0 }, "", "")])
        })?;
        texts.push((name, text));
    }
    let mut include = |name: &str, from: &str| {
        let beside = Path::new(from).parent().map(|directory| directory.join(name));
        let path = beside.filter(|_| !Path::new(name).exists()).unwrap_or_else(|| name.into());
        let text = contents(&path).map_err(|error| error.to_string())?;
        Ok((path.display().to_string(), text))
    };
    let environment = |name: &str| std::env::var(name).ok();
    parse_all(
        line,
        &texts,
        &mut Surroundings { include: &mut include, environment: &environment, machine: machine() },
    )
}

/// All of a file, and one byte more than it may have.
fn contents(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let most = MOST_FILE_BYTES as u64 + 1;
    match is_standard_input(path) {
        true => io::stdin().take(most).read_to_end(&mut text)?,
        false => File::open(path)?.take(most).read_to_end(&mut text)?,
    };
    Ok(text)
}

fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

/// This machine.
pub fn machine() -> Machine {
    let facts = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = facts.lines().find_map(|line| line.strip_prefix("MemTotal:")?.strip_suffix("kB"));
    let kib = total.and_then(|kib| kib.trim().parse::<u64>().ok()).unwrap_or(0);
    let processors = std::thread::available_parallelism().map_or(1, |number| number.get() as u64);
    Machine { page_bytes: page_bytes(), memory_mib: kib / 1024, processors }
}

/// Bytes of a page, as the kernel told this process; 4096 where it did not.
fn page_bytes() -> u64 {
    const PAGE_BYTES: u64 = 6;
    let facts = std::fs::read("/proc/self/auxv").unwrap_or_default();
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_ne_bytes).unwrap_or(0);
    let pairs = facts.chunks_exact(16).map(|pair| (word(&pair[..8]), word(&pair[8..])));
    pairs.into_iter().find(|(what, _)| *what == PAGE_BYTES).map_or(4096, |(_, bytes)| bytes)
}
