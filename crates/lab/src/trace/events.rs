//! What parsers give out, before files are merged and twins are dropped.

use super::fields::{Bad, beyond};
use super::input::{Input, Line};
use super::{Op, Place};
use std::io;

/// The longest read or write that is believed; what is longer is taken for damage.
const MAX_TRANSFER_BYTES: u64 = 4 << 30;

/// A request as its file has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) op: Op,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) device: u32,
    pub(super) response: Option<u64>,
}

impl Request {
    /// A request on a range, if there can be one.
    pub(super) fn new(op: Op, offset: u64, bytes: u64) -> Result<Request, Bad> {
        if op == Op::Flush {
            return Ok(Request { op, offset: 0, bytes: 0, device: 0, response: None });
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
        Ok(Request { op, offset, bytes, device: 0, response: None })
    }

    /// The same in units of so many bytes.
    pub(super) fn units(op: Op, first: u64, count: u64, unit: u64) -> Result<Request, Bad> {
        Request::new(op, beyond(first.checked_mul(unit))?, beyond(count.checked_mul(unit))?)
    }

    pub(super) fn on(self, device: u32) -> Request {
        Request { device, ..self }
    }

    pub(super) fn at(self, time: u64) -> Item {
        Item { time: Some(time), what: What::Request(self) }
    }
}

/// A request on one device became one on the device below it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remap {
    /// The device in whose trace this stands.
    pub(super) device: u32,
    pub(super) sector: u64,
    pub(super) from_device: u32,
    pub(super) from_sector: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    Request(Request),
    Remap(Remap),
}

/// Something that happened, at a time in nanoseconds of the file's own clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) time: Option<u64>,
    pub(super) what: What,
}

/// What a parser found next.
#[derive(Debug)]
pub(super) enum Step {
    Item(Item),
    /// Something that is no request, and no error.
    Nothing,
    Bad(Place, Bad),
    End,
}

/// Reads one format. An error ends the file.
pub(super) trait Parser: Send {
    fn step(&mut self, input: &mut Input) -> io::Result<Step>;
}

/// Understands one line of a format of lines.
pub(super) trait LineFormat: Send {
    /// None for what is no request.
    fn line(&mut self, text: &[u8]) -> Result<Option<Item>, Bad>;
}

/// A format of lines. Empty ones, and those that begin with #, are never handed to it.
pub(super) struct Lines<F>(pub(super) F);

impl<F: LineFormat> Parser for Lines<F> {
    fn step(&mut self, input: &mut Input) -> io::Result<Step> {
        let found = match input.line()? {
            None => return Ok(Step::End),
            Some(Line::TooLong) => Err("a line of more than 8192 bytes"),
            Some(Line::Text(text)) if text.is_empty() || text[0] == b'#' => Ok(None),
            Some(Line::Text(text)) => self.0.line(text),
        };
        Ok(match found {
            Ok(Some(item)) => Step::Item(item),
            Ok(None) => Step::Nothing,
            Err(why) => Step::Bad(input.last_line(), why),
        })
    }
}
