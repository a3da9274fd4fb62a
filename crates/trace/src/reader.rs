//! Opens the files of a trace and gives out their records in the order of time.

use crate::blktrace::Moment;
use crate::detect::{self, Format};
use crate::events::{Item, Parser, Step, What};
use crate::fields::Names;
use crate::input::Input;
use crate::join::Join;
use crate::twins::Twins;
use crate::window::Window;
use crate::{LineError, Place, Record, Why, decompress};
use bimetal_units::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, IsTerminal as _, Read};
use std::path::Path;
use std::sync::Arc;

/// Files of one trace: each holds a buffer, and a decompressor its window.
pub const MAX_FILES: usize = 1024;

/// Why a trace cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No file was named.
    #[error("no file to read")]
    None,
    /// More than [`MAX_FILES`].
    #[error("{0} files are more than {MAX_FILES}")]
    TooMany(usize),
    /// It cannot be opened, read or decompressed.
    #[error("cannot read {file}: {error}")]
    Read {
        /// As it was named.
        file: String,
        /// Why.
        error: io::Error,
    },
    /// It is neither a file nor a pipe.
    #[error("{0} is a directory")]
    Directory(String),
    /// There is nothing in it, nor in the others.
    #[error("{0} is empty")]
    Empty(String),
    /// None of the formats.
    #[error("{0} is no trace in a format that is known")]
    Unknown(String),
    /// Text of two bytes a character, as some programs of Windows write it.
    #[error("{0} is text in UTF-16; make it UTF-8 first: iconv -f UTF-16 -t UTF-8")]
    Utf16(String),
    /// Standard input comes once.
    #[error("standard input (-) can be read only once")]
    TwiceStandardInput,
    /// Nobody would type a trace.
    #[error("standard input is a terminal; pipe a trace into it, or name a file")]
    Terminal,
    /// Two files of different formats are not one trace.
    #[error("{0} is {1}, but {2} is {3}")]
    Mixed(String, Format, String, Format),
}

/// One file.
struct Stream {
    name: Arc<str>,
    input: Input,
    parser: Box<dyn Parser>,
    window: Window,
    next: Option<Item>,
    ended: bool,
    /// The earliest and the latest time so far, of its own clock.
    times: Option<(u64, u64)>,
}

/// Two files of which one ends long before the other begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Far {
    /// The file that ends.
    pub before: String,
    /// The one that begins.
    pub behind: String,
    /// The time between, on the files' own clocks.
    pub gap: Nanos,
}

/// Standard input, by this name.
const STANDARD_INPUT: &str = "-";
/// The byte order mark that some programs put before text.
pub(crate) const MARK: &[u8] = "\u{feff}".as_bytes();

/// The records of a trace: of one file, or of several of one format, merged by time.
pub struct Trace {
    format: Format,
    streams: Vec<Stream>,
    /// Times of the streams' next items; where there are no times, the streams come one after the other.
    heap: BinaryHeap<Reverse<(u64, usize)>>,
    /// Streams whose next item must be found before the heap can be believed.
    unread: Vec<usize>,
    twins: Option<Twins>,
    /// Of formats that tell begins and ends apart.
    join: Option<Join>,
    origin: Option<u64>,
}

impl Trace {
    /// Opens the files of one trace; `-` is standard input.
    ///
    /// # Errors
    /// When one cannot be opened or is in no format that is known, or their formats differ.
    pub fn open<P: AsRef<Path>>(paths: &[P]) -> Result<Trace, OpenError> {
        if paths.len() > MAX_FILES {
            return Err(OpenError::TooMany(paths.len()));
        }
        let mut files = Vec::new();
        if paths.iter().filter(|path| path.as_ref().as_os_str() == STANDARD_INPUT).count() > 1 {
            return Err(OpenError::TwiceStandardInput);
        }
        for path in paths {
            if path.as_ref().as_os_str() == STANDARD_INPUT {
                let input = io::stdin();
                if input.is_terminal() {
                    return Err(OpenError::Terminal);
                }
                files.push(("standard input".to_owned(), Box::new(input) as Box<dyn Read + Send>));
                continue;
            }
            let file = path.as_ref().display().to_string();
            match File::open(path).and_then(|open| Ok((open.metadata()?.is_dir(), open))) {
                Ok((true, _)) => return Err(OpenError::Directory(file)),
                Ok((false, open)) => files.push((file, Box::new(open) as Box<dyn Read + Send>)),
                Err(error) => return Err(OpenError::Read { file, error }),
            }
        }
        Trace::read(files)
    }

    /// The same for what is open already: names and contents, compressed or not.
    ///
    /// # Errors
    /// As [`Trace::open`].
    pub fn read(files: Vec<(String, Box<dyn Read + Send>)>) -> Result<Trace, OpenError> {
        if files.len() > MAX_FILES {
            return Err(OpenError::TooMany(files.len()));
        }
        let mut opened: Vec<(String, Input)> = Vec::new();
        let mut format: Option<Format> = None;
        let mut moment: Option<Moment> = None;
        let mut empty = None;
        for (file, contents) in files {
            let error = |error| OpenError::Read { file: file.clone(), error };
            let mut input = Input::new(decompress::plain(contents).map_err(error)?);
            let ahead = detect::ahead(&mut input).map_err(error)?;
            let ahead = match ahead.starts_with(MARK) && !ahead.contains(&0) {
                true => {
                    input.take(MARK.len());
                    detect::ahead(&mut input).map_err(error)?
                }
                false => ahead,
            };
            if ahead.is_empty() {
                // A processor that did nothing leaves an empty file.
                empty = Some(file);
                continue;
            }
            if detect::is_utf16(ahead) {
                return Err(OpenError::Utf16(file));
            }
            let found = detect::detect(ahead).ok_or_else(|| OpenError::Unknown(file.clone()))?;
            moment = moment.max(found.moment(ahead));
            match (format, opened.first()) {
                (Some(known), Some((first, _))) if known != found => {
                    return Err(OpenError::Mixed(first.clone(), known, file, found));
                }
                _ => format = Some(found),
            }
            opened.push((file, input));
        }
        let Some(format) = format else { return Err(empty.map_or(OpenError::None, OpenError::Empty)) };
        Trace::of(format, opened, moment.unwrap_or(Moment::Queue))
    }

    fn of(format: Format, opened: Vec<(String, Input)>, moment: Moment) -> Result<Trace, OpenError> {
        let names = Names::default();
        let mut streams = Vec::new();
        let files = opened.len();
        for (file, mut input) in opened {
            let ahead = detect::ahead(&mut input);
            let parser = match ahead {
                Ok(ahead) => format.parser(ahead, moment, &names),
                Err(error) => return Err(OpenError::Read { file, error }),
            };
            let (name, window) = (file.into(), Window::of(files));
            streams.push(Stream { name, input, parser, window, next: None, ended: false, times: None });
        }
        Ok(Trace {
            format,
            unread: (0..streams.len()).rev().collect(),
            heap: BinaryHeap::with_capacity(streams.len()),
            streams,
            twins: format.has_twins().then(Twins::default),
            join: (format.has_twins() && moment != Moment::Complete).then(Join::default),
            origin: None,
        })
    }

    /// What it was recognised as.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Bytes read so far, decompressed.
    pub fn bytes_read(&self) -> u64 {
        self.streams.iter().map(|stream| stream.input.offset()).sum()
    }

    /// Requests so far that were dropped because a device above had them already.
    pub fn twins(&self) -> u64 {
        self.twins.as_ref().map_or(0, |twins| twins.dropped)
    }

    /// Requests so far that a file had behind one of a later time. They are given out where they belong, but for those
    /// that [`Trace::unsorted`] counts.
    pub fn out_of_order(&self) -> u64 {
        self.streams.iter().map(|stream| stream.window.out_of_order()).sum()
    }

    /// Requests so far that stood so far behind their time that they could not be put where they belong.
    pub fn unsorted(&self) -> u64 {
        self.streams.iter().map(|stream| stream.window.beyond()).sum()
    }

    /// The files between which the longest time lies in which none of them has anything, as far as they have been read;
    /// none where there is no such time.
    pub fn far(&self) -> Option<Far> {
        let mut spans: Vec<(u64, u64, &str)> = self
            .streams
            .iter()
            .filter_map(|stream| stream.times.map(|(first, last)| (first, last, &*stream.name)))
            .collect();
        spans.sort_unstable();
        let (mut found, mut end) = (None, *spans.first()?);
        for span in spans {
            let gap = span.0.saturating_sub(end.1);
            if gap > found.as_ref().map_or(0, |far: &Far| far.gap.0) {
                found = Some(Far { before: end.2.to_owned(), behind: span.2.to_owned(), gap: Nanos(gap) });
            }
            if span.1 >= end.1 {
                end = span;
            }
        }
        found
    }

    /// Requests that whoever recorded the trace had to leave out: known when all is read.
    pub fn lost(&self) -> u64 {
        self.streams.iter().map(|stream| stream.parser.lost()).fold(0, u64::saturating_add)
    }

    /// The next item in the order of time.
    fn next_item(&mut self) -> Option<Result<Item, LineError>> {
        loop {
            while let Some(&index) = self.unread.last() {
                match self.streams[index].next_item() {
                    None => {}
                    Some(Ok(item)) => {
                        // Without times all are equal, and the first file comes first.
                        self.heap.push(Reverse((item.time.unwrap_or(0), index)));
                        self.streams[index].next = Some(item);
                    }
                    Some(Err(error)) => return Some(Err(error)),
                }
                self.unread.pop();
            }
            let Reverse((_, index)) = self.heap.pop()?;
            self.unread.push(index);
            if let Some(item) = self.streams[index].next.take() {
                return Some(Ok(item));
            }
        }
    }

    fn only_item(&mut self) -> Option<Result<Item, LineError>> {
        match self.streams.as_mut_slice() {
            [only] => only.next_item(),
            _ => self.next_item(),
        }
    }
}

impl Stream {
    /// The next item in the order of time, as far as the window reaches.
    fn next_item(&mut self) -> Option<Result<Item, LineError>> {
        while !self.ended && self.window.has_room() {
            let (place, why) = match self.parser.step(&mut self.input) {
                Ok(Step::Item(item)) => {
                    if let Some(time) = item.time {
                        let (first, last) = self.times.get_or_insert((time, time));
                        (*first, *last) = (time.min(*first), time.max(*last));
                    }
                    self.window.put(item);
                    continue;
                }
                Ok(Step::Nothing) => continue,
                Ok(Step::Bad(place, why)) => (place, Why::Malformed(why)),
                Ok(Step::End) => {
                    self.ended = true;
                    break;
                }
                Err(error) => {
                    self.ended = true;
                    (Place::Byte(self.input.offset()), Why::Read(error))
                }
            };
            return Some(Err(LineError { file: self.name.clone(), place, why }));
        }
        self.window.take().map(Ok)
    }
}

impl Iterator for Trace {
    type Item = Result<Record, LineError>;

    fn next(&mut self) -> Option<Result<Record, LineError>> {
        loop {
            if let Some(record) = self.join.as_mut().and_then(|join| join.next(false)) {
                return Some(Ok(record));
            }
            let item = match self.only_item() {
                Some(Ok(item)) => item,
                Some(Err(error)) => return Some(Err(error)),
                None => return self.join.as_mut().and_then(|join| join.next(true)).map(Ok),
            };
            let request = match item.what {
                What::Remap(remap) => {
                    if let Some(twins) = &mut self.twins {
                        twins.remap(&remap);
                    }
                    continue;
                }
                What::End(end) => {
                    // Before the first request there is nothing to end.
                    if let (Some(join), Some(time), Some(origin)) = (&mut self.join, item.time, self.origin) {
                        join.ended(end, time.saturating_sub(origin));
                    }
                    continue;
                }
                What::Request(request) => request,
            };
            if self.twins.as_mut().is_some_and(|twins| twins.is_twin(&request)) {
                continue;
            }
            let time = item.time.map(|time| Nanos(time.saturating_sub(*self.origin.get_or_insert(time))));
            let record = Record {
                time,
                op: request.op,
                offset: request.offset,
                bytes: request.bytes,
                device: request.device,
                response: request.response.map(Nanos),
                marks: request.marks,
            };
            match &mut self.join {
                Some(join) => join.begun(record),
                None => return Some(Ok(record)),
            }
        }
    }
}
