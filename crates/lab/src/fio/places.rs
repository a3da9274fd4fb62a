//! The files of jobs: what they are called, how long they are, and how a job's span lies on them.

use super::file::JobSection;
use super::iolog::IoLog;
use super::lower::{LowerError, Needed, part, wrong};
use super::number::Extent;
use super::options::{BlockSizes, EngineKind, FileService, JobOptions};
use crate::load::Does;
use crate::target::{Layout, Spread, TargetName};
use bimetal_units::rng::mix;
use std::collections::HashMap;
use std::path::Path;

type Result<T> = std::result::Result<T, LowerError>;

/// Files of all jobs at most: each is open as long as the run lasts.
pub const MAX_FILES: usize = 16_384;

/// Where a job's I/O goes: one target, or several files as one span.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The targets, by their places in the plan.
    pub(super) targets: Vec<u32>,
    /// What is used of each of several files: from where on, and how many bytes at most.
    part: Option<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    offset: Extent,
    step: Extent,
    number: u32,
    align_bytes: u64,
    /// Of each file; `None` for all that it has.
    bytes: Vec<Option<u64>>,
    block_bytes: u64,
    /// Bytes of a turn; `None` where files are taken one behind the other.
    turn_bytes: Option<u64>,
}

impl Part {
    /// All of so many files.
    fn whole(files: usize) -> Part {
        Part {
            offset: Extent::Bytes(0),
            step: Extent::Bytes(0),
            number: 0,
            align_bytes: 1,
            bytes: vec![None; files],
            block_bytes: 1,
            turn_bytes: None,
        }
    }
}

/// All places of a plan, each once, and their targets.
#[derive(Debug, Default)]
pub(super) struct Places {
    pub(super) all: Vec<Place>,
    known: HashMap<(String, bool), u32>,
}

impl Places {
    /// The place of a copy of a job, and where in its file it begins, if that is what it is to be appended to; its targets
    /// are added to those that are needed.
    pub(super) fn of(
        &mut self,
        targets: &mut Vec<Needed>,
        section: &JobSection,
        number: u32,
        redirect: Option<&TargetName>,
    ) -> Result<(usize, Option<u64>)> {
        let mut wanted = needed(section, number, redirect)?;
        let begins =
            if section.options.appends { self.appended(targets, section, &mut wanted)? } else { None };
        let mut place = Vec::with_capacity(wanted.len());
        for needed in wanted {
            place.push(self.need(targets, needed));
            if targets.len() > MAX_FILES {
                return wrong(
                    section,
                    format!("more than {MAX_FILES} files are needed; lower nrfiles or numjobs"),
                );
            }
        }
        let part = (place.len() > 1).then(|| match section.log(number) {
            Some(_) => Part::whole(place.len()),
            None => part_of(&section.options, number, &section.name),
        });
        let same = |known: &Place| known.targets == place && known.part == part;
        if let Some(found) = self.all.iter().position(same) {
            return Ok((found, begins));
        }
        self.all.push(Place { targets: place, part });
        Ok((self.all.len() - 1, begins))
    }

    /// Where a file ends that is appended to, with what jobs before append; it is to be as much longer as the job needs.
    /// Nothing is appended to devices, as in fio.
    fn appended(
        &self,
        targets: &[Needed],
        section: &JobSection,
        wanted: &mut [Needed],
    ) -> Result<Option<u64>> {
        let [needed] = wanted else {
            return wrong(section, "file_append of several files is not done; name one");
        };
        let TargetName::Path(path) = &needed.name else { return Ok(None) };
        let there = std::fs::metadata(path).ok();
        if there.as_ref().is_some_and(|there| !there.is_file()) {
            return Ok(None);
        }
        let Some(Extent::Bytes(bytes)) = section.options.size else {
            return wrong(section, "file_append needs to know how much: add size= in bytes");
        };
        let key = (needed.name.to_string(), needed.direct);
        let known = self.known.get(&key).and_then(|place| targets[*place as usize].at_least_bytes);
        let end = there.map_or(0, |there| there.len()).max(known.unwrap_or(0));
        needed.at_least_bytes = Some(end.saturating_add(bytes));
        Ok(Some(end))
    }

    /// The place of a target: one that is there, or a new one.
    fn need(&mut self, targets: &mut Vec<Needed>, needed: Needed) -> u32 {
        let key = (needed.name.to_string(), needed.direct);
        if let Some(&place) = self.known.get(&key) {
            let known = &mut targets[place as usize];
            known.write |= needed.write;
            known.read |= needed.read;
            known.unlink |= needed.unlink;
            known.pre_read |= needed.pre_read;
            known.at_least_bytes = known.at_least_bytes.max(needed.at_least_bytes);
            return place;
        }
        let place = targets.len() as u32;
        self.known.insert(key, place);
        targets.push(needed);
        place
    }

    /// Whether some job has several files.
    pub(super) fn are_spread(&self) -> bool {
        self.all.iter().any(|place| place.part.is_some())
    }
}

impl Place {
    /// Whether it is several files, of which the job has all.
    pub(super) fn is_spread(&self) -> bool {
        self.part.is_some()
    }

    /// How it lies on targets of these sizes.
    pub(super) fn spread(&self, sizes_bytes: &[u64]) -> Spread {
        let sizes: Vec<u64> = self
            .targets
            .iter()
            .map(|&target| sizes_bytes.get(target as usize).copied().unwrap_or(0))
            .collect();
        let Some(part_of) = &self.part else {
            return Spread {
                places: self.targets.clone(),
                from_bytes: vec![0],
                layout: Layout::concat(&sizes, 1),
            };
        };
        let Part { offset, step, number, align_bytes, .. } = *part_of;
        let from = |size: u64| begin(offset, step, number, size, align_bytes);
        let from_bytes: Vec<u64> = sizes.iter().map(|&size| from(size)).collect();
        let used = sizes.iter().zip(&from_bytes).zip(&part_of.bytes).map(|((size, from), bytes)| {
            let room = size.saturating_sub(*from);
            let used = bytes.unwrap_or(room).min(room);
            used - used % part_of.block_bytes
        });
        let used: Vec<u64> = used.collect();
        // In turns only where all have the same: who has more would go on alone.
        let alike = used.windows(2).all(|two| two[0] == two[1]);
        let turn = part_of.turn_bytes.filter(|turn| alike && used[0].is_multiple_of(*turn));
        let layout = match turn {
            Some(turn) => Layout::raid0(&used, turn),
            None => Layout::concat(&used, part_of.block_bytes),
        };
        Spread { places: self.targets.clone(), from_bytes, layout }
    }
}

/// What a place in percent is rounded up to a multiple of.
pub(super) fn alignment(options: &JobOptions) -> u64 {
    options.offset_align_bytes.unwrap_or(options.smallest_block_bytes()).max(1)
}

/// Where a copy of a job begins in what has so many bytes. Where the offset or what copies add to it is a share, their sum
/// is rounded up, as in fio.
pub(super) fn begin(offset: Extent, step: Extent, number: u32, of_bytes: u64, align_bytes: u64) -> u64 {
    let steps = part(step, of_bytes).saturating_mul(u64::from(number));
    let begin = part(offset, of_bytes).saturating_add(steps);
    let is_share = [offset, step].iter().any(|extent| matches!(extent, Extent::Percent(_)));
    if is_share { begin.checked_next_multiple_of(align_bytes).unwrap_or(u64::MAX) } else { begin }
}

/// What is used of each file of a job that has several.
fn part_of(options: &JobOptions, number: u32, name: &str) -> Part {
    let files = count(options);
    let block_bytes = options.smallest_block_bytes().max(1);
    let bytes = (0..files).map(|nth| match (options.file_bytes, options.size) {
        (Some(_), _) => file_bytes(options, name, number, nth),
        (None, Some(Extent::Bytes(size))) => Some(size / files),
        _ => None,
    });
    let blocks = options.block_sizes();
    let does = options.direction.does();
    let used: Vec<&BlockSizes> = does
        .sides()
        .into_iter()
        .zip(blocks.sides())
        .filter(|(does, _)| **does)
        .map(|(_, sizes)| sizes)
        .collect();
    let one_size = used.iter().all(|sizes| **sizes == BlockSizes::Fixed(block_bytes));
    let turn_bytes = match options.file_service {
        FileService::Turns(ios) if one_size => Some(block_bytes.saturating_mul(u64::from(ios))),
        _ => None,
    };
    let (offset, step) = (options.offset, options.offset_increment);
    let (align_bytes, bytes) = (alignment(options), bytes.collect());
    Part { offset, step, number, align_bytes, bytes, block_bytes, turn_bytes }
}

/// Files of a job.
fn count(options: &JobOptions) -> u64 {
    if options.filenames.is_empty() { u64::from(options.files) } else { options.filenames.len() as u64 }
}

/// The size of a file that has one of its own: of a range, one that its name draws.
fn file_bytes(options: &JobOptions, name: &str, number: u32, nth: u64) -> Option<u64> {
    let (from, to) = options.file_bytes?;
    let drawn = name.bytes().fold(mix(u64::from(number) << 32 | nth), |sum, byte| mix(sum ^ u64::from(byte)));
    let bytes = from + drawn % (to - from).saturating_add(1);
    let block = options.smallest_block_bytes().max(1);
    Some(if from == to { bytes } else { (bytes - bytes % block).max(from) })
}

/// Bytes of all files of a job that have sizes of their own.
pub(super) fn all_file_bytes(section: &JobSection, number: u32) -> Option<u64> {
    section.options.file_bytes?;
    let one = |nth| file_bytes(&section.options, &section.name, number, nth);
    (0..count(&section.options)).map(one).try_fold(0u64, |sum, bytes| Some(sum.saturating_add(bytes?)))
}

fn needed(section: &JobSection, number: u32, redirect: Option<&TargetName>) -> Result<Vec<Needed>> {
    let options = &section.options;
    if let Some(log) = section.log(number) {
        return of_log(section, log, redirect);
    }
    let does = options.direction.does();
    let one = |name: TargetName, at_least_bytes: Option<u64>| Needed {
        direct: options.direct,
        write: does.write || does.trim,
        read: does.read || options.overwrites,
        at_least_bytes,
        unlink: options.unlink && matches!(name, TargetName::Path(_)),
        pre_read: options.pre_reads,
        name,
    };
    let whole = extent_end(options, number, options.size);
    let all = all_file_bytes(section, number).or(whole);
    match (redirect, options.engine) {
        (Some(name), _) => return Ok(vec![one(name.clone(), all)]),
        (None, EngineKind::Null) => return Ok(vec![one(TargetName::Null, all)]),
        (None, EngineKind::Nbd) => {
            let uri = options.nbd_uri.as_deref().unwrap_or_default();
            let name = TargetName::parse(uri).or_else(|error| wrong(section, error.to_string()))?;
            return Ok(vec![one(name, all)]);
        }
        (None, EngineKind::Ring | EngineKind::Synchronous) => {}
    }
    let files = count(options);
    if files > MAX_FILES as u64 {
        return wrong(section, format!("it has more than {MAX_FILES} files; lower nrfiles"));
    }
    let of_files = (0..files).map(|nth| {
        let size = match options.size {
            Some(Extent::Bytes(size)) => Some(Extent::Bytes(size / files)),
            other => other,
        };
        let own = file_bytes(options, &section.name, number, nth);
        let at_least = own.or(extent_end(options, number, size));
        let name = path(section, number, nth);
        if let TargetName::Path(path) = &name
            && !path.exists()
        {
            let path = path.display();
            if !options.creates_files {
                return wrong(
                    section,
                    format!("{path} is not there, and allow_file_create=0 says not to make it"),
                );
            }
            if at_least.is_none() {
                return wrong(section, format!("{path} is not there; make it, or say with size= how large"));
            }
        }
        Ok(one(name, at_least.filter(|_| options.creates_files)))
    });
    of_files.collect()
}

/// What a job needs that replays a log: its files, each of which is made as large as what is done in it.
fn of_log(section: &JobSection, log: &IoLog, redirect: Option<&TargetName>) -> Result<Vec<Needed>> {
    let options = &section.options;
    let folder = Path::new(options.directory.as_deref().unwrap_or(""));
    let does = |what: Does| log.steps.iter().any(|step| step.does == what);
    let (read, write) = (does(Does::Read), does(Does::Write) || does(Does::Trim));
    let needed = log.files.iter().map(|file| {
        let name = match (redirect, options.engine) {
            (Some(name), _) => name.clone(),
            (None, EngineKind::Null) => TargetName::Null,
            (None, EngineKind::Nbd) => {
                let uri = options.nbd_uri.as_deref().unwrap_or_default();
                TargetName::parse(uri).or_else(|error| wrong(section, error.to_string()))?
            }
            (None, _) => TargetName::Path(folder.join(&file.name)),
        };
        Ok(Needed {
            direct: options.direct,
            write,
            read,
            at_least_bytes: Some(file.end_bytes).filter(|_| options.creates_files),
            unlink: options.unlink && matches!(name, TargetName::Path(_)),
            pre_read: options.pre_reads,
            name,
        })
    });
    needed.collect()
}

/// Where a job's part of a file ends, as far as that is said in bytes.
fn extent_end(options: &JobOptions, number: u32, size: Option<Extent>) -> Option<u64> {
    match (size, options.offset, options.offset_increment) {
        (Some(Extent::Bytes(size)), Extent::Bytes(offset), Extent::Bytes(step)) => {
            Some(size.saturating_add(offset).saturating_add(step.saturating_mul(u64::from(number))))
        }
        _ => None,
    }
}

/// Where a file of a job is; fio's name for one that has none.
fn path(section: &JobSection, number: u32, nth: u64) -> TargetName {
    let options = &section.options;
    let job_name = section.section.replace('/', "_");
    let name = match (options.filenames.get(nth as usize), &options.filename_format) {
        (Some(name), _) => name.clone(),
        (None, Some(format)) => format
            .replace("$jobname", &job_name)
            .replace("$jobnum", &number.to_string())
            .replace("$filenum", &nth.to_string())
            .replace("$clientuid", "localhost"),
        (None, None) => format!("{job_name}.{number}.{nth}"),
    };
    // Copies of a job are spread over several directories.
    let folders: Vec<&str> = options.directory.as_deref().unwrap_or("").split(':').collect();
    TargetName::Path(Path::new(folders[number as usize % folders.len()]).join(name))
}
