//! Bimetal's own format: compact, in checksummed blocks that can be read one by one. `docs/TRACES.md` has the bytes.

use crate::events::{Item, Parser, Request, Step, What};
use crate::fields::Bad;
use crate::input::Input;
use crate::write::RecordWriter;
use crate::{Marks, Op, Record};
use crc32c::crc32c;
use std::io::{self, Write};

const MAGIC: &[u8; 8] = b"BMTLtrce";
/// Marks, and a count of what was lost, came with version 2.
const VERSION: u16 = 2;
const HEADER_BYTES: usize = 32;
const BLOCK_HEAD_BYTES: usize = 24;
/// The longest payload of a block.
const MAX_PAYLOAD: usize = 32 << 10;
/// The longest record: a tag, marks and five numbers.
const MAX_RECORD_BYTES: usize = 2 + 5 * 10;

/// Bits of a record's tag, above its operation.
const HAS_TIME: u8 = 1 << 2;
const HAS_RESPONSE: u8 = 1 << 3;
const OTHER_DEVICE: u8 = 1 << 4;
const OTHER_BYTES: u8 = 1 << 5;
const ELSEWHERE: u8 = 1 << 6;
const OP_BITS: u8 = 3;
const HAS_MARKS: u8 = 1 << 7;
/// Bits of the byte of marks behind such a tag.
const FUA: u8 = 1 << 0;
const ZEROES: u8 = 1 << 1;

/// What the record before left behind; at the start of a block all is zero, so that each can be read alone.
#[derive(Clone, Copy, Default)]
struct Last {
    time: u64,
    end: u64,
    bytes: u64,
    device: u32,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]))
}

/// Differences of either sign, small ones short.
fn zigzag(to: u64, from: u64) -> u64 {
    let difference = to.wrapping_sub(from) as i64;
    ((difference << 1) ^ (difference >> 63)) as u64
}

fn unzigzag(value: u64, from: u64) -> u64 {
    let difference = (value >> 1) as i64 ^ -((value & 1) as i64);
    from.wrapping_add(difference as u64)
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn get(bytes: &mut &[u8]) -> Result<u64, Bad> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or("a block ends within a record")?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        if shift == 63 && part > 1 {
            break;
        }
        value |= part << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err("a number of more than 64 bits")
}

/// Writes the format.
pub struct OwnWriter<W: Write> {
    out: W,
    payload: Vec<u8>,
    in_block: u32,
    records: u64,
    lost: u64,
    last: Last,
}

impl<W: Write> OwnWriter<W> {
    /// Begins a trace.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn new(mut out: W) -> io::Result<OwnWriter<W>> {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(MAGIC);
        header[12..14].copy_from_slice(&VERSION.to_le_bytes());
        let crc = crc32c(&header[12..]);
        header[8..12].copy_from_slice(&crc.to_le_bytes());
        out.write_all(&header)?;
        let payload = Vec::with_capacity(MAX_PAYLOAD);
        Ok(OwnWriter { out, payload, in_block: 0, records: 0, lost: 0, last: Last::default() })
    }

    /// Hands all complete blocks down, and a block that is not full as it is: what was recorded until now is then read
    /// even if nothing more comes.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn checkpoint(&mut self) -> io::Result<()> {
        if self.in_block > 0 {
            self.end_block()?;
        }
        self.out.flush()
    }

    fn end_block(&mut self) -> io::Result<()> {
        let mut head = [0; BLOCK_HEAD_BYTES];
        head[..4].copy_from_slice(&(self.payload.len() as u32).to_le_bytes());
        head[4..8].copy_from_slice(&self.in_block.to_le_bytes());
        head[8..16].copy_from_slice(&(self.records - u64::from(self.in_block)).to_le_bytes());
        head[16..20].copy_from_slice(&crc32c(&self.payload).to_le_bytes());
        let crc = crc32c(&head[..20]);
        head[20..].copy_from_slice(&crc.to_le_bytes());
        self.out.write_all(&head)?;
        self.out.write_all(&self.payload)?;
        self.payload.clear();
        self.in_block = 0;
        self.last = Last::default();
        Ok(())
    }
}

impl<W: Write> RecordWriter for OwnWriter<W> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        if self.payload.len() + MAX_RECORD_BYTES > MAX_PAYLOAD {
            self.end_block()?;
        }
        let (out, last) = (&mut self.payload, &mut self.last);
        let at = out.len();
        out.push(0);
        let mut tag = match record.op {
            Op::Read => 0,
            Op::Write => 1,
            Op::Flush => 2,
            Op::Discard => 3,
        };
        if record.marks != Marks::default() {
            tag |= HAS_MARKS;
            let Marks { fua, zeroes } = record.marks;
            out.push((u8::from(fua) * FUA) | (u8::from(zeroes) * ZEROES));
        }
        if let Some(time) = record.time {
            tag |= HAS_TIME;
            put(out, zigzag(time.0, last.time));
            last.time = time.0;
        }
        if record.device != last.device {
            tag |= OTHER_DEVICE;
            put(out, u64::from(record.device));
            last.device = record.device;
        }
        if record.op != Op::Flush {
            if record.offset != last.end {
                tag |= ELSEWHERE;
                put(out, zigzag(record.offset, last.end));
            }
            if record.bytes != last.bytes {
                tag |= OTHER_BYTES;
                put(out, record.bytes);
            }
            last.bytes = record.bytes;
            last.end = record.offset.wrapping_add(record.bytes);
        }
        if let Some(response) = record.response {
            tag |= HAS_RESPONSE;
            put(out, response.0);
        }
        out[at] = tag;
        self.in_block += 1;
        self.records += 1;
        Ok(())
    }

    fn lost(&mut self, requests: u64) {
        self.lost = requests;
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        if self.in_block > 0 {
            self.end_block()?;
        }
        if self.lost > 0 {
            put(&mut self.payload, self.lost);
        }
        self.end_block()?;
        self.out.flush()
    }
}

/// Reads the format.
#[derive(Default)]
pub(crate) struct Own {
    payload: Vec<u8>,
    /// Of the payload, what is read.
    at: usize,
    left: u32,
    /// Of the block, for messages.
    place: u64,
    begun: bool,
    ended: bool,
    next_record: u64,
    lost: u64,
    last: Last,
}

/// Whether a file begins like one, of whatever version.
pub(crate) fn begins(ahead: &[u8]) -> bool {
    ahead.starts_with(MAGIC)
}

impl Parser for Own {
    fn lost(&self) -> u64 {
        self.lost
    }

    fn step(&mut self, input: &mut Input) -> io::Result<Step> {
        if !self.begun {
            self.begun = true;
            if let Err(why) = header(input)? {
                return self.give_up(input, why);
            }
        }
        if self.left == 0 {
            return self.next_block(input);
        }
        let mut rest = &self.payload[self.at..];
        self.left -= 1;
        let found = record(&mut rest, &mut self.last);
        self.at = self.payload.len() - rest.len();
        Ok(match found {
            Ok(_) if self.left == 0 && self.at < self.payload.len() => {
                Step::Bad(crate::Place::Byte(self.place), "a block that is longer than its records")
            }
            Ok(item) => Step::Item(item),
            Err(why) => {
                self.left = 0;
                Step::Bad(crate::Place::Byte(self.place), why)
            }
        })
    }
}

/// The file's header: why it cannot be read, where it cannot.
fn header(input: &mut Input) -> io::Result<Result<(), Bad>> {
    let seen = input.peek(HEADER_BYTES)?;
    let Some(header) = seen.get(..HEADER_BYTES) else { return Ok(Err("cut off within the header")) };
    let version = u16::from_le_bytes([header[12], header[13]]);
    if version > VERSION {
        return Ok(Err("written by a newer version of bimetal"));
    }
    if crc32c(&header[12..]) != u32_at(header, 8) || version == 0 {
        return Ok(Err("a damaged header"));
    }
    input.take(HEADER_BYTES);
    Ok(Ok(()))
}

/// Only a write can be one of zeros.
fn zeroes_elsewhere(marks: Marks, op: Op) -> bool {
    marks.zeroes && op != Op::Write
}

fn record(bytes: &mut &[u8], last: &mut Last) -> Result<Item, Bad> {
    let (&tag, rest) = bytes.split_first().ok_or("a block ends within a record")?;
    *bytes = rest;
    let op = match tag & OP_BITS {
        0 => Op::Read,
        1 => Op::Write,
        2 => Op::Flush,
        _ => Op::Discard,
    };
    let mut marks = Marks::default();
    if tag & HAS_MARKS != 0 {
        let (&bits, rest) = bytes.split_first().ok_or("a block ends within a record")?;
        *bytes = rest;
        marks = Marks { fua: bits & FUA != 0, zeroes: bits & ZEROES != 0 };
        if bits & !(FUA | ZEROES) != 0 || zeroes_elsewhere(marks, op) {
            return Err("a mark that is not known");
        }
    }
    let mut time = None;
    if tag & HAS_TIME != 0 {
        last.time = unzigzag(get(bytes)?, last.time);
        time = Some(last.time);
    }
    if tag & OTHER_DEVICE != 0 {
        last.device = u32::try_from(get(bytes)?).map_err(|_| "a device of more than 32 bits")?;
    }
    let mut offset = last.end;
    if tag & ELSEWHERE != 0 {
        offset = unzigzag(get(bytes)?, last.end);
    }
    if tag & OTHER_BYTES != 0 {
        last.bytes = get(bytes)?;
    }
    let mut request = Request { marks, ..Request::new(op, offset, last.bytes)?.on(last.device) };
    if op != Op::Flush {
        last.end = offset + last.bytes;
    }
    if tag & HAS_RESPONSE != 0 {
        request.response = Some(get(bytes)?);
    }
    Ok(Item { time, what: What::Request(request) })
}

impl Own {
    /// Nothing more can be read: says so once, or not if all is well.
    fn give_up(&mut self, input: &mut Input, why: Bad) -> io::Result<Step> {
        let place = input.byte();
        self.ended = true;
        while input.skip(1 << 20)? {}
        Ok(Step::Bad(place, why))
    }

    fn next_block(&mut self, input: &mut Input) -> io::Result<Step> {
        let place = input.byte();
        let seen = input.peek(BLOCK_HEAD_BYTES)?;
        if self.ended {
            return if seen.is_empty() { Ok(Step::End) } else { self.give_up(input, "bytes behind the end") };
        }
        let Some(head) = seen.get(..BLOCK_HEAD_BYTES) else {
            return self.give_up(input, "it is cut off: its end is missing");
        };
        let (length, records, crc) = (u32_at(head, 0) as usize, u32_at(head, 4), u32_at(head, 16));
        let first = u64::from(u32_at(head, 12)) << 32 | u64::from(u32_at(head, 8));
        if crc32c(&head[..20]) != u32_at(head, 20) || length > MAX_PAYLOAD || records as usize > length {
            return self.give_up(input, "a damaged block; what follows cannot be found");
        }
        let missing = first != self.next_record;
        let seen = input.peek(BLOCK_HEAD_BYTES + length)?;
        let Some(payload) = seen.get(BLOCK_HEAD_BYTES..BLOCK_HEAD_BYTES + length) else {
            return self.give_up(input, "it is cut off: its end is missing");
        };
        let sound = crc32c(payload) == crc;
        self.payload.clear();
        self.payload.extend_from_slice(payload);
        input.take(BLOCK_HEAD_BYTES + length);
        (self.at, self.last, self.ended) = (0, Last::default(), records == 0);
        self.left = if sound { records } else { 0 };
        self.next_record = first.saturating_add(u64::from(records));
        if self.ended && sound && length > 0 {
            match get(&mut self.payload.as_slice()) {
                Ok(lost) => self.lost = lost,
                Err(why) => return Ok(Step::Bad(place, why)),
            }
        }
        if let crate::Place::Byte(byte) = place {
            self.place = byte;
        }
        Ok(match (sound, missing) {
            (false, _) => Step::Bad(place, "a damaged block: its records are lost"),
            (true, true) => Step::Bad(place, "records are missing before this block"),
            (true, false) => Step::Nothing,
        })
    }
}
