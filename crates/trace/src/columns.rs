//! Formats of other columns: blkreplay, DiskSim and its validation, MQSim, ARC.

use crate::Op;
use crate::events::{Item, LineFormat, Request, What};
use crate::fields::{Bad, bit, cut_first, exactly, fraction, hex, letter, number, number32};

const SECTOR: u64 = 512;

/// start in seconds ; sector ; sectors ; R|W ; delay ; duration. A licence of free text comes first; where traces were
/// put together, more of it stands between. So only what begins with a digit is held for a request.
pub(crate) struct Blkreplay;

impl LineFormat for Blkreplay {
    fn line(&mut self, text: &[u8]) -> Result<Option<Item>, Bad> {
        if !text[0].is_ascii_digit() { Ok(None) } else { request(text).map(Some) }
    }
}

fn request(text: &[u8]) -> Result<Item, Bad> {
    let [start, first, count, op] = cut_first(text, b';')?;
    let (first, count) = (number(first)?, number(count)?);
    Ok(Request::units(letter(op)?, first, count, SECTOR)?.at(fraction(start, 9)?))
}

/// Milliseconds, device, block, blocks, flags in hexadecimal whose lowest bit is a read. The time has a decimal point:
/// without one it is MQSim's.
pub(crate) struct Disksim;

impl LineFormat for Disksim {
    fn line(&mut self, text: &[u8]) -> Result<Option<Item>, Bad> {
        let [time, device, first, count, flags] = exactly(text)?;
        if !time.contains(&b'.') {
            return Err("a time without a decimal point");
        }
        let op = if hex(flags)? & 1 == 1 { Op::Read } else { Op::Write };
        let request = Request::units(op, number(first)?, number(count)?, SECTOR)?;
        Ok(Some(request.on(number32(device)?).at(fraction(time, 6)?)))
    }
}

/// Nanoseconds, device, sector, sectors, 1 (read) or 0 (write).
pub(crate) struct Mqsim;

impl LineFormat for Mqsim {
    fn line(&mut self, text: &[u8]) -> Result<Option<Item>, Bad> {
        let [time, device, first, count, op] = exactly(text)?;
        let request = Request::units(bit(op, 1)?, number(first)?, number(count)?, SECTOR)?;
        Ok(Some(request.on(number32(device)?).at(number(time)?)))
    }
}

/// R|W, Hit|Miss, sector, sectors, service time, gap to the next request, both in microseconds. One at a time: when
/// each began is the sum of all before it.
#[derive(Default)]
pub(crate) struct Validation {
    clock: u64,
}

impl LineFormat for Validation {
    fn line(&mut self, text: &[u8]) -> Result<Option<Item>, Bad> {
        let [op, class, first, count, service, gap] = exactly(text)?;
        if class != b"Hit" && class != b"Miss" {
            return Err("neither Hit nor Miss where one belongs");
        }
        let (service, gap) = (fraction(service, 3)?, fraction(gap, 3)?);
        let mut request = Request::units(letter(op)?, number(first)?, number(count)?, SECTOR)?;
        request.response = Some(service);
        let began = self.clock;
        let next = began.checked_add(service).and_then(|end| end.checked_add(gap));
        self.clock = next.ok_or("a time of more than 64 bits")?;
        Ok(Some(request.at(began)))
    }
}

/// First block, blocks, a number that is not looked at, request number. Reads, without times; blocks of 512 bytes.
pub(crate) struct Arc;

impl LineFormat for Arc {
    fn line(&mut self, text: &[u8]) -> Result<Option<Item>, Bad> {
        let [first, count, ignored, order] = exactly(text)?;
        number(ignored)?;
        number(order)?;
        let request = Request::units(Op::Read, number(first)?, number(count)?, SECTOR)?;
        Ok(Some(Item { time: None, what: What::Request(request) }))
    }
}
