//! SSDs and flash cards: channels and dies, a flash translation layer, a write buffer, an SLC cache, an interface.
//!
//! A command is timed as a whole when it starts, by what each resource has been given so far: no event is kept but
//! its end. `rate.rs` and `flash.rs` say what that leaves out.

mod buffer;
mod collect;
mod flash;
mod ftl;
mod params;
#[cfg(test)]
mod tests;

pub use params::{BufferKind, BufferParams, FlashParams, FtlParams, HostParams, SlcParams, SsdParams};

use crate::device::{Command, Done, Kind, Model, Usage};
use crate::queue::{Queue, Queued};
use crate::rate::{Line, Meter, Rate};
use crate::spec::SpecError;
use bimetal_units::Nanos;
use buffer::Buffer;
use collect::Collector;
use flash::Flash;
use ftl::{Ftl, Stream};

/// An SSD in virtual time. It begins fresh: nothing is mapped.
#[derive(Debug)]
pub struct Ssd {
    params: SsdParams,
    unit_bytes: u64,
    page_bytes: u64,
    dies: u32,
    queue: Queue,
    /// Commands started so far: the current one's name.
    command: u64,
    controller: Meter,
    read_rate: Rate,
    write_rate: Rate,
    /// The interface: towards the host, from the host (the first serves both if it is not full duplex).
    links: [Line; 2],
    flash: Flash,
    ftl: Ftl,
    buffer: Buffer,
    /// Where the host's writes go.
    hosted: Stream,
    /// Where the collector's go.
    collecting: Stream,
    collector: Collector,
    collect_below: u32,
    /// Superblocks that are to be free when there was time for it.
    background_free: u32,
    /// Superblocks of the SLC cache at most.
    slc_superblocks: u32,
    /// When the host's programs are over.
    programmed_at: u64,
    /// When nothing that the host asked for is going on any more.
    asked_until: u64,
    moved_units: u64,
    hosted_units: u64,
}

impl Ssd {
    /// A fresh drive; in one sentence why the parameters make none.
    pub fn new(params: SsdParams) -> Result<Ssd, SpecError> {
        params.validate()?;
        let (flash, host) = (&params.flash, &params.host);
        let unit_bytes = u64::from(params.ftl.mapping_unit_bytes);
        let page_bytes = u64::from(flash.page_bytes);
        let dies = flash.channels * flash.dies_per_channel;
        let superblocks = (params.flash_bytes / params.superblock_bytes()) as u32;
        let slc_pages =
            params.slc.as_ref().map_or(0, |slc| dies * (flash.pages_per_block / slc.bits_per_cell));
        let slc_bytes = u64::from(slc_pages) * page_bytes;
        let slc_superblocks =
            params.slc.as_ref().map_or(0, |slc| slc.size_bytes.checked_div(slc_bytes).unwrap_or(0));
        let ftl = Ftl::new(
            params.size_bytes.div_ceil(unit_bytes) as u32,
            superblocks,
            dies * flash.pages_per_block,
            (page_bytes / unit_bytes) as u32,
            slc_pages,
        );
        Ok(Ssd {
            unit_bytes,
            page_bytes,
            dies,
            queue: Queue::new(host.queue_depth),
            command: 0,
            controller: Meter::default(),
            read_rate: Rate::new(host.read_bytes_per_s),
            write_rate: Rate::new(host.write_bytes_per_s),
            links: [Line::default(); 2],
            flash: Flash::new(flash, params.slc.as_ref()),
            ftl,
            buffer: Buffer::new(params.buffer.size_bytes / page_bytes),
            hosted: Stream::new(),
            collecting: Stream::new(),
            collector: Collector::default(),
            collect_below: params.ftl.collect_below_superblocks,
            background_free: superblocks * params.ftl.background_free_percent / 100,
            slc_superblocks: slc_superblocks as u32,
            programmed_at: 0,
            asked_until: 0,
            moved_units: 0,
            hosted_units: 0,
            params,
        })
    }

    /// Data written to flash over data written by the host, since the beginning; 1 while nothing was written.
    pub fn write_amplification(&self) -> f64 {
        if self.hosted_units == 0 {
            return 1.0;
        }
        (self.hosted_units + self.moved_units) as f64 / self.hosted_units as f64
    }

    /// Whole superblocks ready to be written, as a share of the flash (0 to 1).
    pub fn free_share(&self) -> f64 {
        let superblocks = self.params.flash_bytes / self.params.superblock_bytes();
        f64::from(self.ftl.free_superblocks()) / superblocks as f64
    }

    /// The logical units that a range touches, up to the second.
    fn units(&self, offset: u64, len: u64) -> (u32, u32) {
        ((offset / self.unit_bytes) as u32, (offset + len).div_ceil(self.unit_bytes) as u32)
    }

    /// When the host has the range.
    fn read(&mut self, now: u64, offset: u64, len: u64) -> u64 {
        let (first, end) = self.units(offset, len);
        let mut ready = now;
        // Neighbours on the same page are read at once.
        let mut run: Option<(ftl::Page, u64)> = None;
        for unit in first..end {
            let page = self.ftl.lookup(unit).map(|physical| self.ftl.page_of(physical));
            match (&mut run, page) {
                (Some((open, units)), Some(page)) if *open == page => *units += 1,
                (_, page) => {
                    let before = std::mem::replace(&mut run, page.map(|page| (page, 1)));
                    ready = ready.max(self.read_page(now, before, len));
                }
            }
        }
        ready = ready.max(self.read_page(now, run, len));
        let transfer = self.read_rate.ns(len);
        let taken = self.transfer(now, 0, len, self.read_rate, self.params.host.read_overhead_ns);
        (ready + transfer).max(taken)
    }

    /// Gives a command its time on a link; when that is over. What is longer than a page goes page by page, between
    /// which shorter commands pass.
    fn transfer(&mut self, now: u64, link: usize, len: u64, rate: Rate, overhead_ns: u64) -> u64 {
        let line = &mut self.links[link];
        let ns = rate.ns(len) + overhead_ns;
        if len <= self.page_bytes {
            let end = line.urgent_at(now, u64::MAX) + ns;
            line.take_urgent(now, end, ns);
            end
        } else {
            let end = line.free_at().max(now) + ns;
            line.take_long(end, rate.ns(self.page_bytes).max(1));
            end
        }
    }

    /// When the controller has so many units of a page, for a command of `len` bytes.
    fn read_page(&mut self, now: u64, run: Option<(ftl::Page, u64)>, len: u64) -> u64 {
        let Some((page, units)) = run else { return now };
        let open = self.ftl.next_page(&self.hosted).filter(|open| open.superblock == page.superblock);
        if let Some(open) = open {
            // At the start of a page, the latest page is the one before.
            let latest = open.number - u32::from(self.ftl.at_page_start(&self.hosted));
            if self.buffer.holds(latest - page.number, now) {
                return now;
            }
        }
        let bytes = (units * self.unit_bytes).min(len);
        self.flash.read(now, page.number % self.dies, bytes, page.slc, self.command)
    }

    /// When the write is complete.
    fn write(&mut self, now: u64, offset: u64, len: u64, fua: bool) -> u64 {
        let (link, overhead) =
            (usize::from(self.params.host.full_duplex), self.params.host.write_overhead_ns);
        let arrived = self.transfer(now, link, len, self.write_rate, overhead);
        let (first, end) = self.units(offset, len);
        let mut taken = arrived;
        let mut programmed = 0;
        for unit in first..end {
            let from = u64::from(unit) * self.unit_bytes;
            // The rest of the command comes in after this unit.
            let rest = (offset + len).saturating_sub(from + self.unit_bytes);
            let mut ready = arrived - self.write_rate.ns(rest).min(arrived - now);
            if from < offset || from + self.unit_bytes > offset + len {
                ready = ready.max(self.read_for_modify(now, unit));
            }
            let room = self.append(now, unit, ready, &mut programmed);
            taken = taken.max(room);
        }
        match self.params.buffer.kind {
            BufferKind::Protected => taken,
            BufferKind::Volatile if !fua => taken,
            _ => self.close_page(now, arrived).max(programmed).max(taken),
        }
    }

    /// A unit is written in part: when the rest of it is there.
    fn read_for_modify(&mut self, now: u64, unit: u32) -> u64 {
        let page = self.ftl.lookup(unit).map(|physical| self.ftl.page_of(physical));
        self.read_page(now, page.map(|page| (page, 1)), self.unit_bytes)
    }

    /// Takes a unit into the buffer; when there is room for it. A page that is full is programmed.
    fn append(&mut self, now: u64, unit: u32, ready: u64, programmed: &mut u64) -> u64 {
        let mut room = ready;
        if self.ftl.at_page_start(&self.hosted) {
            if self.ftl.is_full(&self.hosted) {
                self.open_superblock(now);
            }
            room = room.max(self.buffer.open());
        }
        self.ftl.append(&mut self.hosted, unit);
        self.hosted_units += 1;
        if self.ftl.at_page_start(&self.hosted) {
            *programmed = (*programmed).max(self.program(now, room, 0));
        }
        room
    }

    fn open_superblock(&mut self, now: u64) {
        self.collect_for_room(now);
        let roomy = self.ftl.free_superblocks() > self.collect_below + 1;
        let slc = roomy && self.ftl.slc_superblocks() < self.slc_superblocks;
        self.ftl.open(&mut self.hosted, slc);
    }

    /// Programs the page that the host's stream has just filled, of which so many units are padding.
    fn program(&mut self, now: u64, ready: u64, padding: u32) -> u64 {
        let next = self.ftl.next_page(&self.hosted).expect("a page was filled");
        let die = (next.number - 1) % self.dies;
        let bytes = self.page_bytes - u64::from(padding) * self.unit_bytes;
        let end = self.flash.program(now, ready, die, bytes, next.slc);
        self.buffer.close(end);
        self.programmed_at = self.programmed_at.max(end);
        self.queue.busy(now, end);
        self.collect_share(now, self.ftl.units_per_page());
        end
    }

    /// Programs a page that is open, padded; when it is on the medium (`ready` if none is).
    fn close_page(&mut self, now: u64, ready: u64) -> u64 {
        if self.ftl.at_page_start(&self.hosted) {
            return ready;
        }
        let padding = self.ftl.pad(&mut self.hosted);
        self.program(now, ready, padding)
    }

    /// When all that was written is on the medium.
    fn flush(&mut self, now: u64) -> u64 {
        match self.params.buffer.kind {
            BufferKind::Volatile => self.close_page(now, now).max(self.programmed_at).max(now),
            BufferKind::Protected | BufferKind::WriteThrough => now,
        }
    }

    /// Forgets the units that lie wholly in the range.
    fn discard(&mut self, offset: u64, len: u64) {
        let first = offset.div_ceil(self.unit_bytes) as u32;
        let end = ((offset + len) / self.unit_bytes) as u32;
        self.ftl.discard(first, end.max(first));
    }

    fn catch_up(&mut self, now: u64) {
        if self.queue.is_idle() && now > self.asked_until {
            self.collect_in_background(now);
        }
    }
}

impl Queued for Ssd {
    fn queue(&mut self) -> &mut Queue {
        &mut self.queue
    }

    fn start(&mut self, now: u64, tag: u64, command: Command) {
        self.command += 1;
        let host = &self.params.host;
        let end = match command.kind {
            Kind::Read => {
                let ready = self.controller.take(now, host.read_command_ns);
                self.read(ready, command.offset, command.len)
            }
            Kind::Write { fua } => {
                let ready = self.controller.take(now, host.write_command_ns);
                self.write(ready, command.offset, command.len, fua)
            }
            Kind::Flush | Kind::Sync => self.flush(now) + self.params.host.flush_ns,
            Kind::Discard => {
                let ready = self.controller.take(now, host.write_command_ns);
                self.discard(command.offset, command.len);
                ready + self.params.host.discard_ns
            }
        };
        let end = end + self.params.host.latency_ns;
        self.asked_until = self.asked_until.max(end).max(self.programmed_at);
        self.queue.start(now, end, tag, command, None);
    }
}

impl Model for Ssd {
    fn size_bytes(&self) -> u64 {
        self.params.size_bytes
    }

    fn submit(&mut self, now: Nanos, tag: u64, command: Command) {
        command.assert_within(self.params.size_bytes);
        self.catch_up(now.0);
        self.take(now, tag, command);
    }

    fn deadline(&self) -> Option<Nanos> {
        self.queue.deadline()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Done>) {
        self.end(now, done);
        self.catch_up(now.0);
    }

    fn usage(&self) -> Usage {
        self.queue.usage()
    }
}
