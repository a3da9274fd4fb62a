//! What parsers give out, before files are merged and twins are dropped.

use crate::fields::{Bad, beyond};
use crate::input::{Input, Line};
use crate::join::End;
use crate::reader::MARK;
use crate::{Marks, Op, Place};
use std::io;

/// The longest read or write that is believed; what is longer is taken for damage.
const MAX_TRANSFER_BYTES: u64 = 4 << 30;

/// A request as its file has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) op: Op,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) device: u32,
    pub(crate) response: Option<u64>,
    pub(crate) marks: Marks,
}

impl Request {
    /// A request on a range, if there can be one.
    pub(crate) fn new(op: Op, offset: u64, bytes: u64) -> Result<Request, Bad> {
        if op == Op::Flush {
            return Ok(Request {
                op,
                offset: 0,
                bytes: 0,
                device: 0,
                response: None,
                marks: Marks::default(),
            });
        }
        if bytes == 0 {
            return Err("a length of zero");
        }
        if op != Op::Discard && bytes > MAX_TRANSFER_BYTES {
            return Err("a transfer of more than 4 GiB");
        }
        match offset.checked_add(bytes) {
            Some(end) if end <= i64::MAX as u64 => {}
            _ => return Err("it ends beyond any device"),
        }
        Ok(Request { op, offset, bytes, device: 0, response: None, marks: Marks::default() })
    }

    /// The same in units of so many bytes.
    pub(crate) fn units(op: Op, first: u64, count: u64, unit: u64) -> Result<Request, Bad> {
        Request::new(op, beyond(first.checked_mul(unit))?, beyond(count.checked_mul(unit))?)
    }

    pub(crate) fn on(self, device: u32) -> Request {
        Request { device, ..self }
    }

    /// The same, to be durable before it is answered, or not.
    pub(crate) fn durable(self, fua: bool) -> Request {
        Request { marks: Marks { fua, ..self.marks }, ..self }
    }

    /// The end of such a request.
    pub(crate) fn end(self) -> End {
        End { device: self.device, op: self.op, offset: self.offset, bytes: self.bytes }
    }

    pub(crate) fn at(self, time: u64) -> Item {
        Item { time: Some(time), what: What::Request(self) }
    }
}

/// A request on one device became one on the device below it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remap {
    /// The device in whose trace this stands.
    pub(crate) device: u32,
    pub(crate) sector: u64,
    pub(crate) from_device: u32,
    pub(crate) from_sector: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Request(Request),
    End(End),
    Remap(Remap),
}

/// Something that happened, at a time in nanoseconds of the file's own clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) time: Option<u64>,
    pub(crate) what: What,
}

/// What a parser found next.
#[derive(Debug)]
pub(crate) enum Step {
    Item(Item),
    /// Something that is no request, and no error.
    Nothing,
    Bad(Place, Bad),
    End,
}

/// Reads one format. An error ends the file.
pub(crate) trait Parser: Send {
    fn step(&mut self, input: &mut Input) -> io::Result<Step>;

    /// Requests that whoever recorded the trace had to leave out, as far as has been read.
    fn lost(&self) -> u64 {
        0
    }
}

/// Understands one line of a format of lines.
pub(crate) trait LineFormat: Send {
    /// None for what is no request.
    fn line(&mut self, text: &[u8]) -> Result<Option<Item>, Bad>;
}

/// A format of lines. Empty ones, and those that begin with #, are never handed to it.
pub(crate) struct Lines<F>(pub(crate) F);

impl<F: LineFormat> Parser for Lines<F> {
    fn step(&mut self, input: &mut Input) -> io::Result<Step> {
        let found = match input.line()? {
            None => return Ok(Step::End),
            Some(Line::TooLong) => Err("a line of more than 8192 bytes"),
            Some(Line::Text(text)) => {
                // Files that were put together have one wherever another one began.
                let text = text.strip_prefix(MARK).map_or(text, <[u8]>::trim_ascii);
                if text.is_empty() || text[0] == b'#' { Ok(None) } else { self.0.line(text) }
            }
        };
        Ok(match found {
            Ok(Some(item)) => Step::Item(item),
            Ok(None) => Step::Nothing,
            Err(why) => Step::Bad(input.last_line(), why),
        })
    }
}
