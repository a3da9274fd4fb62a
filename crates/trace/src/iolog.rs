//! fio's I/O logs, versions 2 and 3.

use crate::Op;
use crate::events::{Item, LineFormat, Request, What};
use crate::fields::{Bad, Names, number, words};
use bimetal_units::Nanos;

const MICROSECOND_NS: u64 = 1000;

/// Version 2: `file action [offset length]`; version 3 has microseconds before it.
///
/// fio's manual says that waits of version 2 are microseconds, each from the one before. What fio does when it replays them
/// is to wait milliseconds, counted from the start of the job: two waits of 4 and 6 end 6 ms after the start.
pub(crate) struct Iolog {
    version: u8,
    files: Names,
    /// In nanoseconds; none where nothing ever waits.
    clock: Option<u64>,
}

impl Iolog {
    /// Looks ahead for a wait: a version 2 without one has no times.
    pub(crate) fn new(ahead: &[u8], files: Names) -> Iolog {
        let waits = memchr::memmem::find(ahead, b" wait ").is_some();
        Iolog { version: 0, files, clock: waits.then_some(0) }
    }
}

impl LineFormat for Iolog {
    fn line(&mut self, text: &[u8]) -> Result<Option<Item>, Bad> {
        if self.version == 0 {
            self.version = version(text).ok_or("not the first line of an iolog of version 2 or 3")?;
            return Ok(None);
        }
        let mut fields = words(text);
        let mut next = || fields.next().ok_or("too few fields");
        if self.version == 3 {
            self.clock = Some(times(next()?, MICROSECOND_NS)?);
        }
        let (file, action) = (next()?, next()?);
        let op = match action {
            b"add" | b"open" | b"close" => return Ok(None),
            b"read" => Op::Read,
            b"write" => Op::Write,
            b"trim" => Op::Discard,
            b"sync" | b"datasync" | b"sync_file_range" => Op::Flush,
            b"wait" if self.version == 2 => {
                let end = times(next()?, Nanos::MS)?;
                self.clock = self.clock.map(|clock| clock.max(end));
                return Ok(None);
            }
            _ => return Err("an action that is not known"),
        };
        let request = match op {
            Op::Flush => Request::new(op, 0, 0)?,
            _ => Request::new(op, number(next()?)?, number(next()?)?)?,
        };
        let what = What::Request(request.on(self.files.number(file)?));
        Ok(Some(Item { time: self.clock, what }))
    }
}

/// Which version a first line announces.
pub(crate) fn version(line: &[u8]) -> Option<u8> {
    match line.strip_prefix(b"fio version ")?.strip_suffix(b" iolog")? {
        b"2" => Some(2),
        b"3" => Some(3),
        _ => None,
    }
}

/// A time in this unit, ns.
fn times(field: &[u8], unit_ns: u64) -> Result<u64, Bad> {
    number(field)?.checked_mul(unit_ns).ok_or("a time of more than 64 bits")
}
