//! The text that blkparse prints.

use crate::Op;
use crate::blktrace::Moment;
use crate::events::{Item, LineFormat, Remap, Request, What};
use crate::fields::{Bad, beyond, fraction, number, number32, words};

const SECTOR: u64 = 512;

/// `major,minor processor sequence seconds pid ACTION RWBS sector + sectors [process]`; a remap has
/// `<- (major,minor) sector` behind. Counts and messages stand between and after.
pub(crate) struct Blkparse {
    moment: Moment,
}

impl Blkparse {
    pub(crate) fn new(moment: Moment) -> Blkparse {
        Blkparse { moment }
    }
}

/// The fixed fields of a line.
struct Event<'a> {
    device: u32,
    time: u64,
    action: &'a [u8],
}

fn event<'a>(fields: &mut impl Iterator<Item = &'a [u8]>) -> Result<Event<'a>, Bad> {
    let mut next = || fields.next().ok_or("too few fields");
    let device = device(next()?)?;
    number(next()?)?;
    number(next()?)?;
    let time = fraction(next()?, 9)?;
    number(next()?)?;
    Ok(Event { device, time, action: next()? })
}

impl LineFormat for Blkparse {
    fn line(&mut self, text: &[u8]) -> Result<Option<Item>, Bad> {
        if !text[0].is_ascii_digit() {
            // The summary at the end, or a message.
            return Ok(None);
        }
        let mut fields = words(text);
        let event = event(&mut fields)?;
        let found = match moment(event.action) {
            Some(moment) if moment == self.moment => {
                request(&mut fields)?.map(|request| request.on(event.device))
            }
            Some(Moment::Complete) => {
                let end = request(&mut fields)?.map(|request| request.on(event.device).end());
                return Ok(end.map(|end| Item { time: Some(event.time), what: What::End(end) }));
            }
            None if event.action == b"A" => {
                let what = What::Remap(remap(event.device, &mut fields)?);
                return Ok(Some(Item { time: Some(event.time), what }));
            }
            _ => None,
        };
        Ok(found.map(|request| request.at(event.time)))
    }
}

fn moment(action: &[u8]) -> Option<Moment> {
    match action {
        b"Q" => Some(Moment::Queue),
        b"D" => Some(Moment::Issue),
        b"C" => Some(Moment::Complete),
        _ => None,
    }
}

/// The best moment among the lines that begin a file.
pub(crate) fn best_moment(ahead: &[u8]) -> Option<Moment> {
    let moments = ahead.split(|&byte| byte == b'\n').map(|line| {
        let event = event(&mut words(line)).ok()?;
        moment(event.action)
    });
    moments.max().flatten()
}

fn request<'a>(fields: &mut impl Iterator<Item = &'a [u8]>) -> Result<Option<Request>, Bad> {
    let flags = fields.next().ok_or("too few fields")?;
    let first = fields.next().unwrap_or_default();
    if first.is_empty() || first[0] == b'[' {
        // Without a range: a flush, or nothing that moves data.
        let flush = flags.contains(&b'F');
        return if flush { Request::new(Op::Flush, 0, 0).map(Some) } else { Ok(None) };
    }
    if first.starts_with(b"(") || fields.next() != Some(b"+") {
        // Pass-through commands have a number of bytes and the command.
        return Ok(None);
    }
    let count = number(fields.next().ok_or("too few fields")?)?;
    let op = match operation(flags) {
        Some(Op::Discard) => Op::Discard,
        _ if count == 0 && flags.contains(&b'F') => Op::Flush,
        _ if count == 0 => return Ok(None),
        Some(op) => op,
        None => return Ok(None),
    };
    // An F before the operation is a flush that comes first, one behind it FUA.
    let behind = flags.iter().skip_while(|&&flag| flag != b'W').any(|&flag| flag == b'F');
    let request = Request::units(op, number(first)?, count, SECTOR)?;
    Ok(Some(request.durable(op == Op::Write && behind)))
}

/// What the letters of a request say that it does: `F` before them is a flush that comes first, and behind them stand
/// how it is to be done (read ahead, synchronous, metadata, FUA, barrier) in any combination. A zone's commands begin with
/// `Z`, of which an append alone moves data.
fn operation(flags: &[u8]) -> Option<Op> {
    let letters = match flags {
        [b'F', rest @ ..] if !rest.is_empty() => rest,
        _ => flags,
    };
    match letters {
        [b'R', ..] => Some(Op::Read),
        [b'W', ..] | [b'Z', b'A', ..] => Some(Op::Write),
        [b'D', ..] => Some(Op::Discard),
        _ => None,
    }
}

/// `RWBS sector + sectors <- (major,minor) sector`
fn remap<'a>(device: u32, fields: &mut impl Iterator<Item = &'a [u8]>) -> Result<Remap, Bad> {
    let mut next = || fields.next().ok_or("too few fields");
    next()?;
    let sector = number(next()?)?;
    let (_plus, _sectors, _arrow) = (next()?, next()?, next()?);
    let from = next()?.strip_prefix(b"(").and_then(|from| from.strip_suffix(b")"));
    let from_device = self::device(from.ok_or("a remap that does not say from where")?)?;
    Ok(Remap { device, sector, from_device, from_sector: number(next()?)? })
}

/// Major and minor number, as the kernel puts them into one.
fn device(field: &[u8]) -> Result<u32, Bad> {
    let comma = memchr::memchr(b',', field).ok_or("no device where one belongs")?;
    let (major, minor) = (number32(&field[..comma])?, number32(&field[comma + 1..])?);
    beyond((major < 1 << 12 && minor < 1 << 20).then_some(major << 20 | minor))
}
