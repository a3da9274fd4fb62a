//! Writers of traces.

use crate::{Op, Record};
use std::collections::HashSet;
use std::io::{self, Write};

/// Devices that a trace for fio can name; a further one is an error.
const MAX_DEVICES: usize = 65_536;

/// Takes records and writes them down.
pub trait RecordWriter {
    /// Writes one.
    ///
    /// # Errors
    /// Those of the writer below.
    fn record(&mut self, record: &Record) -> io::Result<()>;

    /// Whoever recorded the trace had to leave out so many requests; a format that cannot say so does not.
    fn lost(&mut self, _requests: u64) {}

    /// Writes what is missing at the end.
    ///
    /// # Errors
    /// Those of the writer below.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// Writes an I/O log of fio, version 3: a file `device-N` for each device of the trace, times in microseconds. A trace
/// without times has all of them at zero: as fast as fio can.
pub struct Iolog3Writer<W: Write> {
    out: W,
    devices: HashSet<u32>,
    latest_us: u64,
}

impl<W: Write> Iolog3Writer<W> {
    /// Begins a log.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn new(mut out: W) -> io::Result<Iolog3Writer<W>> {
        out.write_all(b"fio version 3 iolog\n")?;
        Ok(Iolog3Writer { out, devices: HashSet::new(), latest_us: 0 })
    }
}

impl<W: Write> RecordWriter for Iolog3Writer<W> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        let time = record.time.map_or(0, |time| time.0 / 1000);
        // fio waits for the difference to the line before, which must not be negative.
        self.latest_us = self.latest_us.max(time);
        let (time, device) = (self.latest_us, record.device);
        if !self.devices.contains(&device) {
            if self.devices.len() >= MAX_DEVICES {
                return Err(io::Error::other("more than 65,536 devices"));
            }
            self.devices.insert(device);
            writeln!(self.out, "{time} device-{device} add\n{time} device-{device} open")?;
        }
        let action = match record.op {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "sync",
            Op::Discard => "trim",
        };
        writeln!(self.out, "{time} device-{device} {action} {} {}", record.offset, record.bytes)
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        let mut devices: Vec<u32> = self.devices.iter().copied().collect();
        devices.sort_unstable();
        for device in devices {
            writeln!(self.out, "{} device-{device} close", self.latest_us)?;
        }
        self.out.flush()
    }
}
