//! One connection's load, and the reading back of its part of the volume.

use super::client::Client;
use super::model::{Model, SECTOR, fill};
use bimetal_nbd::{Command, Request};
use bimetal_units::rng::Rng;
use std::io;
use std::path::Path;

/// Connections take turns in the address space by extents of this many bytes, so that they never overlap
/// but share areas, segments and groups.
const EXTENT: u64 = 1 << 20;
/// Requests in flight per connection at most.
const DEPTH: u64 = 16;
/// Sectors in a block.
const BLOCK_SECTORS: u64 = 8;

/// What one connection is about to be answered.
#[derive(Clone, Debug)]
struct InFlight {
    cookie: u64,
    command: Command,
    fua: bool,
    first: u64,
    count: u64,
    /// For a flush: what was in flight when it was sent, which it need not cover.
    beside: Vec<u64>,
}

/// Figures of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) writes: u64,
    pub(crate) flushes: u64,
    pub(crate) reads: u64,
    pub(crate) sectors: u64,
    pub(crate) older: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: Counts) {
        self.writes += other.writes;
        self.flushes += other.flushes;
        self.reads += other.reads;
        self.sectors += other.sectors;
        self.older += other.older;
    }
}

/// A connection's part of the volume, what is known of it, and its random choices.
pub(crate) struct Worker {
    place: u64,
    workers: u64,
    rng: Rng,
    model: Model,
    next_write: u64,
    pub(crate) counts: Counts,
}

impl Worker {
    pub(crate) fn new(place: u64, workers: u64, rng: Rng) -> Worker {
        Worker { place, workers, rng, model: Model::default(), next_write: 1, counts: Counts::default() }
    }

    /// Loads the server until it is gone (`Ok`), or something is wrong (`Err` says what).
    pub(crate) fn load(&mut self, socket: &Path) -> Result<(), String> {
        let mut flights = Vec::new();
        let mut violation = None;
        if let Ok(mut client) = Client::connect(socket) {
            // Any error here is the kill that we are waiting for.
            let _ = self.converse(&mut client, &mut flights, &mut violation);
        }
        violation.map_or(Ok(()), Err)
    }

    fn converse(
        &mut self,
        client: &mut Client,
        flights: &mut Vec<InFlight>,
        violation: &mut Option<String>,
    ) -> io::Result<()> {
        let extents = client.size_bytes / EXTENT / self.workers;
        // Most requests go to a few extents, so that blocks are written again and again.
        let hot = (0..4).map(|_| self.rng.below(extents)).collect::<Vec<_>>();
        let depth = 1 + self.rng.below(DEPTH);
        loop {
            while (flights.len() as u64) < depth {
                match self.choose(extents, &hot, flights) {
                    Some(flight) => {
                        self.start(client, &flight);
                        flights.push(flight);
                    }
                    None => break,
                }
            }
            client.send()?;
            let reply = client.reply()?;
            let Some(at) = flights.iter().position(|flight| flight.cookie == reply.cookie) else {
                *violation = Some(format!("a reply came for cookie {}, which was not asked", reply.cookie));
                return Ok(());
            };
            let flight = flights.swap_remove(at);
            if let Err(errno) = reply.result {
                *violation = Some(format!("{:?} of sector {} failed: {errno}", flight.command, flight.first));
                return Ok(());
            }
            if let Some(wrong) = self.finish(client, &flight)? {
                *violation = Some(wrong);
                return Ok(());
            }
        }
    }

    /// A request that overlaps none in flight; `None` when chance found none.
    fn choose(&mut self, extents: u64, hot: &[u64], flights: &[InFlight]) -> Option<InFlight> {
        let cookie = self.next_write;
        self.next_write += 1;
        let kind = self.rng.below(100);
        if kind < 4 {
            let beside = flights.iter().map(|other| other.cookie).collect();
            return Some(InFlight {
                cookie,
                command: Command::Flush,
                fua: false,
                first: 0,
                count: 0,
                beside,
            });
        }
        let (command, aligned) = match kind {
            4..30 => (Command::Read, false),
            30..92 => (Command::Write, self.rng.below(4) > 0),
            92..96 => (Command::Trim, true),
            _ => (Command::WriteZeroes, self.rng.one_in(2)),
        };
        let extent = match self.rng.one_in(4) {
            true => self.rng.below(extents),
            false => hot[self.rng.below(hot.len() as u64) as usize],
        };
        let extent_sectors = EXTENT / SECTOR as u64;
        let longest = [8, 8, 64, 256, extent_sectors][self.rng.below(5) as usize];
        let unit = if aligned { BLOCK_SECTORS } else { 1 };
        let count = (1 + self.rng.below(longest)).next_multiple_of(unit).min(extent_sectors);
        let start = self.rng.below(extent_sectors - count + 1) / unit * unit;
        let first = (extent * self.workers + self.place) * extent_sectors + start;
        let overlaps = |other: &InFlight| first < other.first + other.count && other.first < first + count;
        if flights.iter().any(overlaps) {
            return None;
        }
        let fua = command != Command::Read && self.rng.one_in(10);
        Some(InFlight { cookie, command, fua, first, count, beside: Vec::new() })
    }

    fn start(&mut self, client: &mut Client, flight: &InFlight) {
        let &InFlight { cookie, command, fua, first, count, .. } = flight;
        let mut payload = Vec::new();
        match command {
            Command::Write => {
                payload.resize(count as usize * SECTOR, 0);
                for (sector, bytes) in (first..).zip(payload.chunks_exact_mut(SECTOR)) {
                    fill(bytes, sector, self.mark(cookie));
                }
                self.model.written(first, count, self.mark(cookie), false);
            }
            Command::Trim | Command::WriteZeroes => {
                self.model.written(first, count, self.mark(cookie), true);
            }
            _ => {}
        }
        let length = (count * SECTOR as u64) as u32;
        let request = Request::new(cookie, command, first * SECTOR as u64, length);
        client.queue(&if fua { request.with_fua() } else { request }, &payload);
    }

    /// Numbers of writes differ between connections, so that a foreign sector shows.
    fn mark(&self, cookie: u64) -> u64 {
        cookie << 8 | self.place
    }

    fn finish(&mut self, client: &mut Client, flight: &InFlight) -> io::Result<Option<String>> {
        match flight.command {
            Command::Read => {
                let mut bytes = vec![0; flight.count as usize * SECTOR];
                client.data(&mut bytes)?;
                self.counts.reads += 1;
                for (sector, bytes) in (flight.first..).zip(bytes.chunks_exact(SECTOR)) {
                    if let Err(wrong) = self.model.check_latest(sector, bytes) {
                        return Ok(Some(format!("a read gave wrong data: {wrong}")));
                    }
                }
            }
            Command::Flush => {
                self.counts.flushes += 1;
                // A write is covered when it was answered before the flush was sent.
                let covered = |write: u64| {
                    let cookie = write >> 8;
                    cookie < flight.cookie && !flight.beside.contains(&cookie)
                };
                self.model.flushed(covered);
            }
            _ => {
                self.counts.writes += 1;
                if flight.fua {
                    self.model.durable(flight.first, flight.count, self.mark(flight.cookie));
                }
            }
        }
        Ok(None)
    }

    /// Reads this connection's part back after a crash.
    pub(crate) fn verify(&mut self, socket: &Path) -> Result<(), String> {
        let broken = |error: io::Error| format!("reading back failed: {error}");
        let mut client = Client::connect(socket).map_err(broken)?;
        let extents = client.size_bytes / EXTENT / self.workers;
        let mut bytes = vec![0; EXTENT as usize];
        for extent in 0..extents {
            let offset = (extent * self.workers + self.place) * EXTENT;
            client.queue(&Request::new(extent, Command::Read, offset, EXTENT as u32), &[]);
            client.send().map_err(broken)?;
            client
                .reply()
                .map_err(broken)?
                .result
                .map_err(|errno| format!("reading back {offset} failed: {errno}"))?;
            client.data(&mut bytes).map_err(broken)?;
            for (sector, bytes) in (offset / SECTOR as u64..).zip(bytes.chunks_exact(SECTOR)) {
                self.counts.sectors += 1;
                self.counts.older += u64::from(self.model.check_recovered(sector, bytes)?);
            }
        }
        Ok(())
    }
}
