//! Formats whose fields are separated by commas.

use crate::Op;
use crate::events::{Item, LineFormat, Request};
use crate::fields::{Bad, Names, beyond, bit, cut, cut_first, fraction, letter, number, number32};

const SECTOR: u64 = 512;

/// Timestamp (100 ns since 1601), Hostname, DiskNumber, Read|Write, Offset, Size, ResponseTime (100 ns).
pub(crate) struct Msr(pub(crate) Names);

impl LineFormat for Msr {
    fn line(&mut self, text: &[u8]) -> Result<Option<Item>, Bad> {
        if text.starts_with(b"Timestamp,") {
            return Ok(None);
        }
        let [time, host, disk, op, offset, bytes, response] = cut(text, b',')?;
        let op = match op {
            b"Read" => Op::Read,
            b"Write" => Op::Write,
            _ => return Err("neither Read nor Write where one belongs"),
        };
        let disk = u16::try_from(number(disk)?).map_err(|_| "a disk number of more than 16 bits")?;
        let host = self.0.number(host)?;
        let mut request = Request::new(op, number(offset)?, number(bytes)?)?;
        request.device = host << 16 | u32::from(disk);
        request.response = Some(beyond(number(response)?.checked_mul(100))?);
        Ok(Some(request.at(number(time)?.checked_mul(100).ok_or("a time of more than 64 bits")?)))
    }
}

/// ASU, LBA, size in bytes, R|W, seconds, and more that is not looked at.
pub(crate) struct Spc;

impl LineFormat for Spc {
    fn line(&mut self, text: &[u8]) -> Result<Option<Item>, Bad> {
        let [asu, lba, bytes, op, time] = cut_first(text, b',')?;
        let offset = beyond(number(lba)?.checked_mul(SECTOR))?;
        let request = Request::new(letter(op)?, offset, number(bytes)?)?;
        Ok(Some(request.on(number32(asu)?).at(fraction(time, 9)?)))
    }
}

/// Timestamp in seconds, Response in seconds or nothing, IOType, LUN, Offset, Size.
pub(crate) struct Systor;

impl LineFormat for Systor {
    fn line(&mut self, text: &[u8]) -> Result<Option<Item>, Bad> {
        if text.starts_with(b"Timestamp,") {
            return Ok(None);
        }
        let [time, response, op, lun, offset, bytes] = cut(text, b',')?;
        let mut request = Request::new(letter(op)?, number(offset)?, number(bytes)?)?.on(number32(lun)?);
        if !response.is_empty() {
            request.response = Some(fraction(response, 9)?);
        }
        Ok(Some(request.at(fraction(time, 9)?)))
    }
}

/// device_id, R|W, offset, length, microseconds.
pub(crate) struct Alibaba;

impl LineFormat for Alibaba {
    fn line(&mut self, text: &[u8]) -> Result<Option<Item>, Bad> {
        if text.starts_with(b"device_id,") {
            return Ok(None);
        }
        let [device, op, offset, bytes, time] = cut(text, b',')?;
        let request = Request::new(letter(op)?, number(offset)?, number(bytes)?)?;
        Ok(Some(request.on(number32(device)?).at(fraction(time, 3)?)))
    }
}

/// Seconds, offset in sectors, size in sectors, 0 (read) or 1 (write), volume.
pub(crate) struct Tencent;

impl LineFormat for Tencent {
    fn line(&mut self, text: &[u8]) -> Result<Option<Item>, Bad> {
        if text.starts_with(b"Timestamp,") {
            return Ok(None);
        }
        let [time, first, count, op, volume] = cut(text, b',')?;
        let request = Request::units(bit(op, 0)?, number(first)?, number(count)?, SECTOR)?;
        Ok(Some(request.on(number32(volume)?).at(fraction(time, 9)?)))
    }
}
