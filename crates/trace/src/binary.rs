//! Binary formats without a magic number: VSCSI, oracleGeneral, HP's SRT.

use crate::Op;
use crate::events::{Item, Parser, Request, Step};
use crate::fields::Bad;
use crate::input::Input;
use std::io;

const SECTOR: u64 = 512;
/// Records that must look right before a file is taken for one without a magic number.
const RECORDS_TO_BELIEVE: usize = 64;

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at + 4)) << 32 | u64::from(u32_at(bytes, at))
}

/// Records of one length, one after the other.
trait Fixed: Send {
    const BYTES: usize;

    fn record(&self, bytes: &[u8]) -> Result<Option<Item>, Bad>;
}

impl<F: Fixed> Parser for Fix<F> {
    fn step(&mut self, input: &mut Input) -> io::Result<Step> {
        let place = input.byte();
        let seen = input.peek(F::BYTES)?;
        let length = seen.len().min(F::BYTES);
        if length == 0 {
            return Ok(Step::End);
        }
        let found = seen.get(..F::BYTES).map(|bytes| self.0.record(bytes));
        input.take(length);
        Ok(match found {
            Some(Ok(Some(item))) => Step::Item(item),
            Some(Ok(None)) => Step::Nothing,
            Some(Err(why)) => Step::Bad(place, why),
            None => Step::Bad(place, "cut off within a record"),
        })
    }
}

struct Fix<F>(F);

/// VMware's traces of SCSI commands. Version 1, 32 bytes: number, length, segments, command, version, block, time in
/// microseconds. Version 2, 40 bytes: command and version first, response time last.
struct Vscsi1;
struct Vscsi2;

fn scsi(command: u16, block: u64, bytes: u32) -> Result<Option<Request>, Bad> {
    let op = match command {
        0x08 | 0x28 | 0xa8 | 0x88 => Op::Read,
        0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0x8e => Op::Write,
        0x35 | 0x91 => Op::Flush,
        // Others move no data of the disk, or do not say which.
        _ => return Ok(None),
    };
    let offset = block.checked_mul(SECTOR).ok_or("it begins beyond any device")?;
    Request::new(op, offset, u64::from(bytes)).map(Some)
}

fn microseconds(time: u64) -> Result<u64, Bad> {
    time.checked_mul(1000).ok_or("a time of more than 64 bits")
}

impl Fixed for Vscsi1 {
    const BYTES: usize = 32;

    fn record(&self, bytes: &[u8]) -> Result<Option<Item>, Bad> {
        if u16_at(bytes, 14) >> 8 != 1 {
            return Err("no record of VSCSI version 1");
        }
        let request = scsi(u16_at(bytes, 12), u64_at(bytes, 16), u32_at(bytes, 4))?;
        let time = microseconds(u64_at(bytes, 24))?;
        Ok(request.map(|request| request.at(time)))
    }
}

impl Fixed for Vscsi2 {
    const BYTES: usize = 40;

    fn record(&self, bytes: &[u8]) -> Result<Option<Item>, Bad> {
        if u16_at(bytes, 2) >> 8 != 2 {
            return Err("no record of VSCSI version 2");
        }
        let request = scsi(u16_at(bytes, 0), u64_at(bytes, 16), u32_at(bytes, 8))?;
        let (time, response) = (microseconds(u64_at(bytes, 24))?, microseconds(u64_at(bytes, 32))?);
        Ok(request.map(|request| Request { response: Some(response), ..request }.at(time)))
    }
}

/// libCacheSim's records of 24 bytes: seconds, object, bytes, next access. Objects are taken for sectors, and all are
/// reads: the format has no operation.
struct Oracle;

impl Fixed for Oracle {
    const BYTES: usize = 24;

    fn record(&self, bytes: &[u8]) -> Result<Option<Item>, Bad> {
        let offset = u64_at(bytes, 4).checked_mul(SECTOR).ok_or("it begins beyond any device")?;
        let request = Request::new(Op::Read, offset, u64::from(u32_at(bytes, 12)))?;
        Ok(Some(request.at(u64::from(u32_at(bytes, 0)) * 1_000_000_000)))
    }
}

/// The first records of a file, whole ones only, all as they should be.
fn all(ahead: &[u8], bytes: usize, mut sound: impl FnMut(usize, &[u8]) -> bool) -> bool {
    let mut records = ahead.chunks_exact(bytes).take(RECORDS_TO_BELIEVE).enumerate().peekable();
    records.peek().is_some() && records.all(|(index, record)| sound(index, record))
}

pub(crate) fn is_vscsi1(ahead: &[u8]) -> bool {
    all(ahead, 32, |_, record| u16_at(record, 14) >> 8 == 1 && u16_at(record, 12) < 0x100)
}

pub(crate) fn is_vscsi2(ahead: &[u8]) -> bool {
    all(ahead, 40, |_, record| u16_at(record, 2) >> 8 == 2 && u16_at(record, 0) < 0x100)
}

/// Times that do not fall, lengths, and next accesses that lie ahead.
pub(crate) fn is_oracle(ahead: &[u8]) -> bool {
    let mut last = 0;
    all(ahead, 24, |index, record| {
        let (time, bytes, next) = (u32_at(record, 0), u32_at(record, 12), u64_at(record, 16) as i64);
        let sound = time >= last && (1..=1 << 30).contains(&bytes) && (next < 0 || next > index as i64);
        last = time;
        sound && next >= -2
    })
}

pub(crate) fn vscsi1() -> Box<dyn Parser> {
    Box::new(Fix(Vscsi1))
}

pub(crate) fn vscsi2() -> Box<dyn Parser> {
    Box::new(Fix(Vscsi2))
}

pub(crate) fn oracle() -> Box<dyn Parser> {
    Box::new(Fix(Oracle))
}

/// HP's traces of 1992 and later: a header of text that ends in a form feed, then records of 13 to 15 big-endian
/// words: bytes, id, seconds, microseconds, start, stop, bytes moved, block of 256 bytes, device, driver, cylinder,
/// flags, info. Start and stop are microseconds after the request came.
#[derive(Default)]
pub(crate) struct Srt {
    begun: bool,
}

const SRT_UNIT: u64 = 256;
const SRT_LEAST: usize = 13 * 4;
const FORM_FEED: u8 = 0x0c;
/// Kinds of records: a request, and one that the tracers did not trust.
const SHORT: u32 = 1;
const SUSPECT: u32 = 4;

fn word(record: &[u8], index: usize) -> u32 {
    u32::from_be_bytes([0, 1, 2, 3].map(|byte| record[index * 4 + byte]))
}

/// Whether a record begins here: its length follows from its id.
fn srt_bytes(record: &[u8]) -> Option<usize> {
    let id = word(record.get(..8)?, 1);
    let (version, kind) = (id >> 16, id & 0xffff);
    if !(1..=4).contains(&version) || (kind != SHORT && kind != SUSPECT) {
        return None;
    }
    let bytes = SRT_LEAST + 4 * (usize::from(version == 4) + usize::from(kind == SUSPECT));
    (word(record, 0) as usize == bytes).then_some(bytes)
}

/// Where the header of text ends, if it is one.
pub(crate) fn srt_header(ahead: &[u8]) -> Option<usize> {
    let end = memchr::memchr(FORM_FEED, ahead)?;
    let mut lines = ahead[..end].split(|&byte| byte == b'\n');
    lines.any(|line| line.trim_ascii_start().starts_with(b"tracedate")).then_some(end + 1)
}

impl Srt {
    fn record(record: &[u8]) -> Result<Option<Item>, Bad> {
        if word(record, 1) & 0xffff == SUSPECT {
            return Ok(None);
        }
        let op = if word(record, 11) & 1 == 1 { Op::Read } else { Op::Write };
        let offset = u64::from(word(record, 7)) * SRT_UNIT;
        let mut request = Request::new(op, offset, u64::from(word(record, 6)))?.on(word(record, 8));
        let (start, stop) = (word(record, 4), word(record, 5));
        if start <= stop && stop <= i32::MAX as u32 {
            request.response = Some(u64::from(stop) * 1000);
        }
        let time = u64::from(word(record, 2)) * 1_000_000_000 + u64::from(word(record, 3)) * 1000;
        Ok(Some(request.at(time)))
    }
}

impl Parser for Srt {
    fn step(&mut self, input: &mut Input) -> io::Result<Step> {
        if !self.begun {
            let end = srt_header(input.peek(crate::input::LOOK_AHEAD)?).unwrap_or(0);
            input.take(end);
            self.begun = true;
        }
        let place = input.byte();
        let seen = input.peek(SRT_LEAST + 8)?;
        if seen.is_empty() {
            return Ok(Step::End);
        }
        if let Some(bytes) = srt_bytes(seen) {
            let found = seen.get(..bytes).map(Srt::record);
            let length = bytes.min(seen.len());
            input.take(length);
            return Ok(match found {
                Some(Ok(Some(item))) => Step::Item(item),
                Some(Ok(None)) => Step::Nothing,
                Some(Err(why)) => Step::Bad(place, why),
                None => Step::Bad(place, "cut off within a record"),
            });
        }
        // Goes on at the next word that may begin one.
        loop {
            let length = input.peek(8)?.len().min(4);
            input.take(length);
            let seen = input.peek(8)?;
            if length < 4 || seen.is_empty() || srt_bytes(seen).is_some() {
                return Ok(Step::Bad(place, "no SRT record"));
            }
        }
    }
}
