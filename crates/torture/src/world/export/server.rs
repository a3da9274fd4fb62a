//! The server at the other end: it has the disk, does what it is asked in any order, and fails, dies and forgets.

use super::{DEVICE, Event, Remote};
use crate::coverage::Fault;
use crate::disk::{DiscardEffect, IoId};
use crate::world::{Io, Staged, Work, World};
use bimetal_engine::action::Token;
use bimetal_nbd::{
    Command, NbdErrno, Parse, REQUEST_HEADER_BYTES, Request, Transmission, data_chunk, error_chunk,
    hole_chunk, simple_reply,
};
use bimetal_units::{BLOCK_BYTES, Nanos};
use std::cmp::Reverse;

/// One connection.
#[derive(Default)]
pub(super) struct Line {
    /// The kernel still looks at what is being sent.
    pub(super) is_sending: bool,
    going: Vec<u8>,
    there: Vec<u8>,
    coming: Vec<u8>,
    /// When the last byte comes that is on its way there, and back.
    ends: [Nanos; 2],
}

impl Line {
    /// Bytes set out for the server: when they come, and how many.
    pub(super) fn go(&mut self, bytes: Vec<u8>, arrival: Nanos) -> (Nanos, usize) {
        self.ends[0] = self.ends[0].max(arrival);
        self.going.extend_from_slice(&bytes);
        (self.ends[0], bytes.len())
    }

    /// Bytes set out from the server.
    pub(super) fn come(&mut self, bytes: &[u8], arrival: Nanos) -> (Nanos, usize) {
        self.ends[1] = self.ends[1].max(arrival);
        self.coming.extend_from_slice(bytes);
        (self.ends[1], bytes.len())
    }

    pub(super) fn arrive(&mut self, bytes: usize) {
        self.there.extend(self.going.drain(..bytes));
    }

    pub(super) fn arrive_all(&mut self) {
        self.there.append(&mut self.going);
    }

    pub(super) fn take_back(&mut self, bytes: usize) -> Vec<u8> {
        self.coming.drain(..bytes).collect()
    }

    /// The next request that has come as a whole, with its payload.
    fn request(&mut self) -> Option<(Request, Vec<u8>)> {
        let Ok(Parse::Request { request, .. }) = Transmission::new().next(&self.there) else { return None };
        let payload = if request.command == Command::Write { request.length as usize } else { 0 };
        let whole = REQUEST_HEADER_BYTES + payload;
        (self.there.len() >= whole)
            .then(|| (request, self.there.drain(..whole).skip(REQUEST_HEADER_BYTES).collect()))
    }
}

/// A request that a server is doing.
pub(in crate::world) struct Served {
    request: Request,
    line: usize,
    is_structured: bool,
}

impl World {
    /// Requests that have come as a whole are begun.
    pub(super) fn take_requests(&mut self, remote: &mut Remote, line: usize) {
        while let Some((request, payload)) = remote.lines[line].request() {
            let is_structured = remote.export.structured;
            self.serve_request(Served { request, line, is_structured }, payload);
        }
    }

    fn serve_request(&mut self, served: Served, payload: Vec<u8>) {
        let Request { command, offset, length, fua, .. } = served.request;
        let id = IoId(self.next_io);
        self.next_io += 1;
        let (service, rates) = (self.services[DEVICE], self.rates);
        let blind = command == Command::Read && (self.blind[DEVICE] || self.sky.is_blind(DEVICE, self.now.0));
        let one_in = match command {
            Command::Read => rates.reads,
            Command::Write => rates.writes,
            Command::Flush => rates.flushes,
            _ => rates.discards,
        };
        let error = (self.rng.one_in(one_in) || blind).then_some(self.errno);
        let took = match command {
            Command::Flush => service.flush_time(&mut self.rng),
            Command::Trim => service.time(&mut self.rng, BLOCK_BYTES.into()),
            _ => service.time(&mut self.rng, length.into()),
        };
        let disk = &mut self.disks[DEVICE];
        match command {
            Command::Write => disk.submit_write(id, offset, payload, fua),
            Command::Flush => disk.submit_flush(id),
            Command::Trim => {
                let all = [DiscardEffect::Old, DiscardEffect::Zeros, DiscardEffect::Garbage];
                disk.submit_discard(id, offset, length.into(), self.rng.pick(&all));
            }
            _ => {}
        }
        let (more, stalled) = self.sky.delay(DEVICE, self.now.0);
        let work = Work::Served(served);
        let token = Token(u64::MAX);
        let io =
            Io { id, device: DEVICE, token, error, absent: false, stalled, decay: None, log: false, work };
        let place = self.ios.insert(io);
        self.queue.push(Reverse((self.now.0 + took + more, id.0, place)));
    }

    /// A request has been done: it is answered, and that may be when the connection breaks.
    pub(in crate::world) fn complete_served<M: Staged>(
        &mut self,
        machine: &mut M,
        io: &Io,
    ) -> Result<(), String> {
        let Work::Served(served) = &io.work else { return Ok(()) };
        let reply = self.carry_out(io, served);
        let Some(mut remote) = self.remote.take() else { return Ok(()) };
        remote.served += 1;
        let breaks = remote.breaks.front().is_some_and(|next| next.after < remote.served);
        if !breaks || remote.rng.one_in(2) {
            remote.give_back(self.now, served.line, &reply);
        }
        if breaks {
            self.cut(machine, &mut remote);
            remote.late = reply;
        } else if remote.brings_late && !remote.late.is_empty() && remote.rng.one_in(4) {
            self.injected.late_answers += 1;
            remote.brings_late = false;
            let late = std::mem::take(&mut remote.late);
            remote.give_back(self.now, served.line, &late);
        }
        self.remote = Some(remote);
        self.drive_export(machine)
    }

    /// Does to the disk what is asked; with the answer.
    fn carry_out(&mut self, io: &Io, served: &Served) -> Vec<u8> {
        let Request { command, offset, length, cookie, .. } = served.request;
        let disk = &mut self.disks[DEVICE];
        let mut fails = io.error.is_some();
        if command == Command::Read {
            let mut bytes = vec![0; length as usize];
            let read = disk.read(offset, &mut bytes);
            self.injected.bad_sectors += u64::from(read.is_err());
            self.injected.reads += u64::from(fails);
            if !fails && read.is_ok() {
                return self.content(served, &bytes);
            }
            fails = true;
        } else if !fails {
            disk.complete(io.id);
        } else if command == Command::Flush {
            let lost = self.rng.one_in(2);
            self.injected.flushes += 1;
            self.injected.lost_caches += u64::from(lost);
            disk.fail_flush(io.id, lost, &mut self.rng);
        } else {
            let is_write = command == Command::Write;
            *if is_write { &mut self.injected.writes } else { &mut self.injected.discards } += 1;
            disk.fail_change(io.id, &mut self.rng);
        }
        match fails {
            true if served.is_structured => error_chunk(cookie, NbdErrno::Io),
            true => simple_reply(cookie, Some(NbdErrno::Io)).to_vec(),
            false => simple_reply(cookie, None).to_vec(),
        }
    }

    /// The answer to a read.
    fn content(&mut self, served: &Served, bytes: &[u8]) -> Vec<u8> {
        let Request { cookie, offset, length, .. } = served.request;
        if !served.is_structured {
            return [&simple_reply(cookie, None)[..], bytes].concat();
        }
        if bytes.iter().all(|&byte| byte == 0) {
            return hole_chunk(cookie, true, offset, length).to_vec();
        }
        // In two chunks, the later one first, now and then.
        let half = if self.rng.one_in(2) { bytes.len() / 2 } else { 0 };
        let (one, two) = bytes.split_at(half);
        let last = data_chunk(cookie, one.is_empty(), offset + half as u64, two.len() as u32);
        let mut out = [&last[..], two].concat();
        if !one.is_empty() {
            out.extend_from_slice(&data_chunk(cookie, true, offset, half as u32));
            out.extend_from_slice(one);
        }
        out
    }

    /// The connections break.
    fn cut<M: Staged>(&mut self, machine: &M, remote: &mut Remote) {
        let Some(one) = remote.breaks.pop_front() else { return };
        if self.trace {
            eprintln!("{:>12} {one:?}", self.now.0);
        }
        machine.stages().iter().for_each(|stage| self.coverage.hit(stage, Fault::Broken));
        self.note([11, one.down_ns, u64::from(one.dies.is_some())]);
        self.injected.breaks += 1;
        remote.served = 0;
        remote.away_until = self.now.after(one.down_ns);
        (remote.dies, remote.brings_late) = (one.dies, one.late);
        remote.session.break_off(self.now, "it was cut".to_owned());
    }

    /// The connections are given up. Before the next ones, the server has done what had come on them, or not, or some of it.
    pub(super) fn end_lines<M: Staged>(&mut self, machine: &M, remote: &mut Remote) {
        remote.is_closing = true;
        if !remote.brings_late {
            remote.late.clear();
        }
        let is_served = |io: &Io| matches!(io.work, Work::Served(_));
        let mut flying: Vec<u32> =
            self.ios.iter().filter(|(_, io)| is_served(io)).map(|(place, _)| place).collect();
        self.rng.shuffle(&mut flying);
        for place in flying {
            let (id, device, token) = (self.ios[place].id, DEVICE, self.ios[place].token);
            let gone = Io {
                id,
                device,
                token,
                error: None,
                absent: false,
                stalled: false,
                decay: None,
                log: false,
                work: Work::Gone,
            };
            let io = std::mem::replace(&mut self.ios[place], gone);
            let Work::Served(served) = &io.work else { continue };
            match (self.rng.below(3), served.request.command) {
                (0 | 1, _) if io.error.is_none() => {
                    let answer = self.carry_out(&io, served);
                    remote.late.extend_from_slice(&answer);
                }
                (_, Command::Read) => {}
                (0 | 1, Command::Write) => self.disks[DEVICE].fail_change(id, &mut self.rng),
                _ => self.disks[DEVICE].forget(id),
            }
        }
        if let Some(style) = remote.dies.take()
            && self.disks[DEVICE].lose_cache(style, &mut self.rng)
        {
            machine.stages().iter().for_each(|stage| self.coverage.hit(stage, Fault::Forgot));
            self.injected.forgot += 1;
        }
        let closed_at = self.now.after(remote.rng.below(remote.export.latency_ns.max(2)));
        remote.at(closed_at, Event::Closed(remote.epoch));
    }
}
