//! One connection's load, and the reading back of its part of the volume.

use super::client::Client;
use super::part::{EXTENT, EXTENT_SECTORS, Part};
use bimetal_nbd::{Command, Request};
use bimetal_torture::model::{FlushHandle, ReadHandle, SECTOR, WriteHandle};
use bimetal_units::rng::Rng;
use std::io;
use std::path::Path;

/// Requests in flight per connection at most.
const DEPTH: u64 = 16;
/// Sectors in a block.
const BLOCK_SECTORS: u64 = 8;

/// What one connection asks for: sectors are those of its part.
#[derive(Clone, Copy, Debug)]
struct Ask {
    cookie: u64,
    command: Command,
    fua: bool,
    first: u64,
    count: u64,
}

/// What the model calls it.
#[derive(Clone, Copy, Debug)]
enum Handle {
    Read(ReadHandle),
    Flush(FlushHandle),
    Write(WriteHandle),
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
    salt: u64,
    /// None until the size of the volume is known.
    part: Option<Part>,
    next_cookie: u64,
    pub(crate) counts: Counts,
}

impl Worker {
    pub(crate) fn new(place: u64, workers: u64, mut rng: Rng) -> Worker {
        let salt = rng.next_u64();
        Worker { place, workers, rng, salt, part: None, next_cookie: 1, counts: Counts::default() }
    }

    fn part(&mut self, client: &Client) -> &mut Part {
        let (place, workers, salt) = (self.place, self.workers, self.salt);
        self.part.get_or_insert_with(|| Part::new(place, workers, client.size_bytes, salt))
    }

    /// Loads the server until it is gone (`Ok`), or something is wrong (`Err` says what).
    pub(crate) fn load(&mut self, socket: &Path) -> Result<(), String> {
        let mut violation = None;
        if let Ok(mut client) = Client::connect(socket) {
            // Any error here is the kill that we are waiting for.
            let _ = self.converse(&mut client, &mut violation);
        }
        violation.map_or(Ok(()), Err)
    }

    fn converse(&mut self, client: &mut Client, violation: &mut Option<String>) -> io::Result<()> {
        let mut flights: Vec<(Ask, Handle)> = Vec::new();
        let extents = self.part(client).extents();
        // Most requests go to a few extents, so that blocks are written again and again.
        let hot = (0..4).map(|_| self.rng.below(extents)).collect::<Vec<_>>();
        let depth = 1 + self.rng.below(DEPTH);
        loop {
            while (flights.len() as u64) < depth {
                match self.choose(extents, &hot, &flights) {
                    Some(ask) => flights.push((ask, self.start(client, &ask))),
                    None => break,
                }
            }
            client.send()?;
            let reply = client.reply()?;
            let Some(at) = flights.iter().position(|(ask, _)| ask.cookie == reply.cookie) else {
                *violation = Some(format!("a reply came for cookie {}, which was not asked", reply.cookie));
                return Ok(());
            };
            let (ask, handle) = flights.swap_remove(at);
            if let Err(errno) = reply.result {
                let byte = self.part(client).byte_of(ask.first);
                *violation = Some(format!("{:?} at byte {byte} failed: {errno}", ask.command));
                return Ok(());
            }
            if let Some(wrong) = self.finish(client, &ask, handle)? {
                *violation = Some(wrong);
                return Ok(());
            }
        }
    }

    /// A request that overlaps none in flight; `None` when chance found none.
    fn choose(&mut self, extents: u64, hot: &[u64], flights: &[(Ask, Handle)]) -> Option<Ask> {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let kind = self.rng.below(100);
        if kind < 4 {
            return Some(Ask { cookie, command: Command::Flush, fua: false, first: 0, count: 0 });
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
        let longest = [8, 8, 64, 256, EXTENT_SECTORS][self.rng.below(5) as usize];
        let unit = if aligned { BLOCK_SECTORS } else { 1 };
        let count = (1 + self.rng.below(longest)).next_multiple_of(unit).min(EXTENT_SECTORS);
        let start = self.rng.below(EXTENT_SECTORS - count + 1) / unit * unit;
        let first = extent * EXTENT_SECTORS + start;
        let overlaps =
            |(other, _): &(Ask, Handle)| first < other.first + other.count && other.first < first + count;
        if flights.iter().any(overlaps) {
            return None;
        }
        let fua = command != Command::Read && self.rng.one_in(10);
        Some(Ask { cookie, command, fua, first, count })
    }

    fn start(&mut self, client: &mut Client, ask: &Ask) -> Handle {
        let &Ask { cookie, command, fua, first, count } = ask;
        let part = self.part(client);
        let (handle, payload) = match command {
            Command::Flush => (Handle::Flush(part.begin_flush()), Vec::new()),
            Command::Read => (Handle::Read(part.begin_read()), Vec::new()),
            Command::Write => {
                let (handle, payload) = part.write(first, count, fua);
                (Handle::Write(handle), payload)
            }
            _ => (Handle::Write(part.zero(first, count, fua)), Vec::new()),
        };
        // A flush has no place.
        let offset = if count == 0 { 0 } else { part.byte_of(first) };
        let request = Request::new(cookie, command, offset, (count * SECTOR as u64) as u32);
        client.queue(&if fua { request.with_fua() } else { request }, &payload);
        handle
    }

    fn finish(&mut self, client: &mut Client, ask: &Ask, handle: Handle) -> io::Result<Option<String>> {
        match handle {
            Handle::Read(handle) => {
                let mut bytes = vec![0; ask.count as usize * SECTOR];
                client.data(&mut bytes)?;
                self.counts.reads += 1;
                let right = self.part(client).end_read(handle, ask.first, &bytes);
                return Ok(right.err().map(|wrong| format!("a read gave wrong data: {wrong}")));
            }
            Handle::Flush(handle) => {
                self.counts.flushes += 1;
                self.part(client).end_flush(handle);
            }
            Handle::Write(handle) => {
                self.counts.writes += 1;
                self.part(client).written(handle);
            }
        }
        Ok(None)
    }

    /// Reads this connection's part back after a crash.
    pub(crate) fn verify(&mut self, socket: &Path) -> Result<(), String> {
        let broken = |error: io::Error| format!("reading back failed: {error}");
        let mut client = Client::connect(socket).map_err(broken)?;
        let part = self.part(&client);
        part.crash();
        let extents = part.extents();
        let mut bytes = vec![0; EXTENT as usize];
        for extent in 0..extents {
            let first = extent * EXTENT_SECTORS;
            let offset = self.part(&client).byte_of(first);
            client.queue(&Request::new(extent, Command::Read, offset, EXTENT as u32), &[]);
            client.send().map_err(broken)?;
            client
                .reply()
                .map_err(broken)?
                .result
                .map_err(|errno| format!("reading back {offset} failed: {errno}"))?;
            client.data(&mut bytes).map_err(broken)?;
            self.counts.sectors += EXTENT_SECTORS;
            self.counts.older += self.part(&client).recovered(first, &bytes)?;
        }
        Ok(())
    }
}
