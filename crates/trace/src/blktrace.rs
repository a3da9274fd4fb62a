//! blktrace's binary files, one per processor, of either byte order.

use crate::events::{Item, Parser, Remap, Request, Step, What};
use crate::fields::Bad;
use crate::input::Input;
use crate::{Op, Place};
use std::io;

/// The upper three bytes of a record's first word; the lowest is the version.
const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;
/// A record without its payload.
const HEAD_BYTES: usize = 48;
const SECTOR: u64 = 512;

/// Categories, the upper half of the action.
const WRITE: u32 = 1 << 1;
const FLUSH: u32 = 1 << 2;
const PASS_THROUGH: u32 = 1 << 9;
const NOTIFY: u32 = 1 << 10;
const DISCARD: u32 = 1 << 13;
const FUA: u32 = 1 << 15;

const QUEUE: u32 = 1;
const ISSUE: u32 = 7;
const COMPLETE: u32 = 8;
const REMAP: u32 = 15;

/// Which event of a request stands for it: all of them would count it several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Moment {
    /// Traces that hold nothing better.
    Complete,
    /// Where only the driver was traced: requests after merging.
    Issue,
    /// As it came from above.
    Queue,
}

/// Fields of either byte order.
#[derive(Clone, Copy)]
struct Head<'a>(&'a [u8], bool);

impl<'a> Head<'a> {
    /// A record whose magic and version are right.
    fn at(bytes: &'a [u8]) -> Option<Head<'a>> {
        let head = bytes.get(..HEAD_BYTES)?;
        [false, true]
            .map(|swapped| Head(head, swapped))
            .into_iter()
            .find(|head| head.u32(0) == MAGIC | VERSION)
    }

    fn u16(self, at: usize) -> u16 {
        let bytes = [self.0[at], self.0[at + 1]];
        if self.1 { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
    }

    fn u32(self, at: usize) -> u32 {
        let bytes = [0, 1, 2, 3].map(|byte| self.0[at + byte]);
        if self.1 { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    fn u64(self, at: usize) -> u64 {
        let (first, second) = (u64::from(self.u32(at)), u64::from(self.u32(at + 4)));
        if self.1 { first << 32 | second } else { second << 32 | first }
    }

    fn time(self) -> u64 {
        self.u64(8)
    }

    fn sector(self) -> u64 {
        self.u64(16)
    }

    fn category(self) -> u32 {
        self.u32(28) >> 16
    }

    /// Without the bit that says that a control group's id is in the payload.
    fn event(self) -> u32 {
        self.u32(28) & 0xff
    }

    fn device(self) -> u32 {
        self.u32(36)
    }

    fn payload_bytes(self) -> usize {
        usize::from(self.u16(46))
    }

    fn moment(self) -> Option<Moment> {
        if self.category() & (NOTIFY | PASS_THROUGH) != 0 {
            return None;
        }
        match self.event() {
            QUEUE => Some(Moment::Queue),
            ISSUE => Some(Moment::Issue),
            COMPLETE => Some(Moment::Complete),
            _ => None,
        }
    }

    /// None for what moves nothing and asks for nothing.
    fn request(self) -> Result<Option<Request>, Bad> {
        let (category, bytes) = (self.category(), u64::from(self.u32(24)));
        let op = match category {
            _ if category & DISCARD != 0 => Op::Discard,
            _ if bytes == 0 && category & FLUSH != 0 => Op::Flush,
            _ if bytes == 0 => return Ok(None),
            _ if category & WRITE != 0 => Op::Write,
            _ => Op::Read,
        };
        let offset = self.sector().checked_mul(SECTOR).ok_or("it begins beyond any device")?;
        let durable = op == Op::Write && category & FUA != 0;
        Request::new(op, offset, bytes).map(|request| Some(request.on(self.device()).durable(durable)))
    }

    /// What the payload says of where it came from.
    fn remap(self, payload: &[u8]) -> Option<Remap> {
        let payload = payload.get(..16)?;
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| payload[at + byte]));
        Some(Remap {
            device: self.device(),
            sector: self.sector(),
            from_device: word(0),
            from_sector: u64::from(word(8)) << 32 | u64::from(word(12)),
        })
    }
}

/// The best moment among the records that begin a file.
pub(crate) fn best_moment(mut ahead: &[u8]) -> Option<Moment> {
    let mut best = None;
    while let Some(head) = Head::at(ahead) {
        best = best.max(head.moment());
        ahead = ahead.get(HEAD_BYTES + head.payload_bytes()..).unwrap_or_default();
    }
    best
}

/// Whether a file begins like one.
pub(crate) fn begins(ahead: &[u8]) -> bool {
    Head::at(ahead).is_some()
}

/// One processor's file.
pub(crate) struct Blktrace {
    moment: Moment,
}

impl Blktrace {
    pub(crate) fn new(moment: Moment) -> Blktrace {
        Blktrace { moment }
    }
}

impl Parser for Blktrace {
    fn step(&mut self, input: &mut Input) -> io::Result<Step> {
        let place = input.byte();
        // Payloads are short: most records are seen whole with their head.
        let seen = input.peek(HEAD_BYTES)?;
        if seen.is_empty() {
            return Ok(Step::End);
        }
        let Some(head) = Head::at(seen) else { return lost(input, place) };
        let (whole, event, notify) =
            (HEAD_BYTES + head.payload_bytes(), head.event(), head.category() & NOTIFY != 0);
        let time = Some(head.time());
        let step = if notify || event != REMAP {
            let moment = head.moment().filter(|&moment| moment == self.moment || moment == Moment::Complete);
            match moment.map_or(Ok(None), |_| head.request()) {
                Ok(Some(request)) if moment == Some(self.moment) => {
                    Step::Item(Item { time, what: What::Request(request) })
                }
                Ok(Some(request)) => Step::Item(Item { time, what: What::End(request.end()) }),
                Ok(None) => Step::Nothing,
                Err(why) => Step::Bad(place, why),
            }
        } else {
            let seen = input.peek(HEAD_BYTES + 16)?;
            let payload = &seen[HEAD_BYTES..seen.len().min(whole)];
            match Head::at(seen).and_then(|head| head.remap(payload)) {
                Some(remap) => Step::Item(Item { time, what: What::Remap(remap) }),
                None => Step::Bad(place, "a remap that does not say from where"),
            }
        };
        if input.skip(whole as u64)? { Ok(step) } else { Ok(Step::Bad(place, "cut off within a record")) }
    }
}

/// Goes on at the next record.
fn lost(input: &mut Input, place: Place) -> io::Result<Step> {
    if input.peek(HEAD_BYTES)?.len() < HEAD_BYTES {
        let rest = input.peek(1)?.len();
        input.take(rest);
        return Ok(Step::Bad(place, "cut off within a record"));
    }
    loop {
        input.take(1);
        let seen = input.peek(HEAD_BYTES)?;
        if seen.len() < HEAD_BYTES {
            let rest = seen.len();
            input.take(rest);
            break;
        }
        if Head::at(seen).is_some() {
            break;
        }
    }
    Ok(Step::Bad(place, "no record of blktrace version 7"))
}
