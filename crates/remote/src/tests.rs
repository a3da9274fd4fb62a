//! The session against a server that does its worst: it answers in any order, in pieces and in any form, fails, cuts
//! connections at any byte, dies and forgets what it was not made to keep. Only what no client can defend against is left
//! out: a server that goes on with what came on a connection after the next one has been agreed on.

mod directed;

use super::bugs::{Bug, plant};
use super::session::{Agreed, Ask, Doubt, News, Outbox, Part, Payload, Seal, Session, Wish};
use bimetal_engine::arena::Buf;
use bimetal_nbd::{Command, Parse, Request, Transmission, data_chunk, error_chunk, hole_chunk};
use bimetal_nbd::{NbdErrno, simple_reply};
use bimetal_units::Nanos;
use bimetal_units::rng::Rng;
use std::collections::BTreeMap;

/// The unit in which it is written and torn.
const CELL: usize = 16;
const CELLS: usize = 32;
const PATIENCE_NS: u64 = 20 * Nanos::SECOND;
/// What the export is known by, and what is there when somebody else has taken it.
const OURS: u8 = 7;
const THEIRS: u8 = 8;
/// What is of no value: trimmed.
const ANYTHING: u32 = 0;
/// What a process wrote that is dead, and did not flush.
const BEFORE: u32 = 1;

struct Room(Vec<u8>);

impl Payload for Room {
    fn load(&mut self, buf: Buf, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0[buf.start as usize..][..buf.len as usize]);
    }

    fn store(&mut self, buf: Buf, bytes: &[u8]) {
        self.0[buf.start as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}

/// One connection, seen from the server.
#[derive(Default)]
struct Line {
    up: Vec<u8>,
    down: Vec<u8>,
    /// Requests that have come, with their payload.
    pending: Vec<(Request, Vec<u8>)>,
    sending: bool,
    /// The buffers that are being sent.
    bufs: Vec<Buf>,
}

/// Cells as they are read, and as they are kept.
struct Server {
    cache: [u32; CELLS],
    durable: [u32; CELLS],
    dirty: [bool; CELLS],
    fua: bool,
    most_bytes: u32,
    structured: bool,
    fails: bool,
    /// It takes no writes.
    refuses: bool,
    owner: u8,
}

impl Server {
    /// It dies: what it was not made to keep is lost, or not.
    fn crash(&mut self, rng: &mut Rng) {
        for cell in 0..CELLS {
            if self.dirty[cell] && rng.one_in(2) {
                self.durable[cell] = self.cache[cell];
            }
        }
        (self.cache, self.dirty) = (self.durable, [false; CELLS]);
    }

    /// Does a request; with the bytes of its answer.
    fn answer(&mut self, rng: &mut Rng, request: &Request, bytes: &[u8]) -> Vec<u8> {
        let fails = self.fails && rng.one_in(12);
        let first = request.offset as usize / CELL;
        let cells = first..first + request.length as usize / CELL;
        match request.command {
            Command::Write if self.refuses => {
                return simple_reply(request.cookie, Some(NbdErrno::Io)).to_vec();
            }
            Command::Write => {
                assert!(request.length <= self.most_bytes, "a request that is too long");
                assert!(!request.fua || self.fua, "FUA was not agreed on");
                for (cell, value) in cells.zip(bytes.chunks(CELL)) {
                    if fails && rng.one_in(2) {
                        continue;
                    }
                    self.cache[cell] = u32::from_le_bytes([value[0], value[1], value[2], value[3]]);
                    self.dirty[cell] = true;
                    if request.fua {
                        (self.durable[cell], self.dirty[cell]) = (self.cache[cell], false);
                    }
                }
            }
            Command::Trim => cells.filter(|_| !fails).for_each(|cell| {
                (self.cache[cell], self.dirty[cell]) = (ANYTHING, true);
            }),
            Command::Flush => {
                for cell in 0..CELLS {
                    // A flush that fails may forget what it was to keep.
                    if self.dirty[cell] && !(fails && rng.one_in(2)) {
                        self.durable[cell] = self.cache[cell];
                    }
                    self.dirty[cell] = false;
                }
            }
            Command::Read if !fails => return self.read(rng, request, cells),
            _ => {}
        }
        self.verdict(rng, request, fails)
    }

    fn verdict(&self, rng: &mut Rng, request: &Request, fails: bool) -> Vec<u8> {
        let error = if self.fails && rng.one_in(20) { NbdErrno::Shutdown } else { NbdErrno::Io };
        match fails.then_some(error) {
            Some(error) if self.structured => error_chunk(request.cookie, error),
            error => simple_reply(request.cookie, error).to_vec(),
        }
    }

    fn read(&self, rng: &mut Rng, request: &Request, cells: std::ops::Range<usize>) -> Vec<u8> {
        let bytes: Vec<u8> = match cells.start < CELLS {
            true => cells.flat_map(|cell| self.cache[cell].to_le_bytes().repeat(CELL / 4)).collect(),
            false => vec![self.owner; request.length as usize],
        };
        if !self.structured {
            return [&simple_reply(request.cookie, None)[..], &bytes].concat();
        }
        let (mut out, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            let len = CELL * (1 + rng.below(((bytes.len() - at) / CELL) as u64) as usize);
            let (offset, done) = (request.offset + at as u64, at + len == bytes.len());
            if bytes[at..at + len].iter().all(|&byte| byte == 0) {
                out.extend_from_slice(&hole_chunk(request.cookie, done, offset, len as u32));
            } else {
                out.extend_from_slice(&data_chunk(request.cookie, done, offset, len as u32));
                out.extend_from_slice(&bytes[at..at + len]);
            }
            at += len;
        }
        out
    }
}

/// What was asked, and not answered.
struct Asked {
    ask: Ask,
    first: usize,
    cells: usize,
    buf: Buf,
    /// Of a flush: what had been answered of each cell when it was asked for. Of a write: where its attempts are.
    marks: Vec<usize>,
    durable: bool,
}

/// Of one cell: all that was written to it, in order, and the last of that which was answered, and flushed.
#[derive(Clone)]
struct Cell {
    values: Vec<u32>,
    answered: usize,
    kept: usize,
}

struct World {
    rng: Rng,
    session: Session,
    server: Server,
    room: Room,
    lines: Vec<Line>,
    now: Nanos,
    asked: BTreeMap<u64, Asked>,
    next_tag: u64,
    next_value: u32,
    cells: Vec<Cell>,
    multi: bool,
    /// When somebody else takes the export, and whether anything was asked so late after it that it must be noticed.
    taken_at: Option<Nanos>,
    must_notice: bool,
    is_lost: bool,
    /// Answers that never came, and that somebody between may bring later.
    late: Vec<Vec<u8>>,
    problem: Option<String>,
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = Rng::new(seed, 43);
        let (fua, multi, most_cells) = (rng.one_in(2), rng.one_in(2), 1 + rng.below(4) as u32);
        let server = Server {
            cache: [BEFORE; CELLS],
            durable: [ANYTHING; CELLS],
            dirty: [true; CELLS],
            fua,
            most_bytes: most_cells * CELL as u32,
            structured: rng.one_in(2),
            fails: rng.one_in(2),
            refuses: false,
            owner: OURS,
        };
        let mut world = World {
            session: Session::new(agreed(&server, multi), PATIENCE_NS, Nanos(0)),
            rng,
            server,
            room: Room(Vec::new()),
            lines: Vec::new(),
            now: Nanos(0),
            asked: BTreeMap::new(),
            next_tag: 0,
            next_value: BEFORE,
            cells: vec![Cell { values: vec![ANYTHING, BEFORE], answered: 0, kept: 0 }; CELLS],
            multi,
            taken_at: None,
            must_notice: false,
            is_lost: false,
            late: Vec::new(),
            problem: None,
        };
        let journal_most = (CELL * CELLS) as u64 / (1 + world.rng.below(4));
        world.session.limit_journal(journal_most);
        world
    }

    /// The same, or one where something says whose the export is, and somebody else may take it.
    fn any(seed: u64) -> World {
        let mut world = World::new(seed);
        if seed.is_multiple_of(2) {
            return world;
        }
        world.session.seal(Seal { places: vec![(CELL * CELLS) as u64], judge: Box::new(judge) });
        if world.rng.one_in(4) {
            world.taken_at = Some(Nanos(world.rng.below(10 * Nanos::SECOND)));
            // Who cannot read there cannot notice.
            world.server.fails = false;
        }
        world
    }

    fn is_free(&self, first: usize, cells: usize) -> bool {
        self.asked.values().all(|other| {
            matches!(other.ask, Ask::Flush)
                || first + cells <= other.first
                || other.first + other.cells <= first
        })
    }

    /// A client asks for something that meets nothing that is under way.
    fn ask(&mut self) {
        let cells = 1 + self.rng.below(8) as usize;
        let first = self.rng.below((CELLS - cells + 1) as u64) as usize;
        let what = self.rng.below(10);
        if what < 9 && !self.is_free(first, cells) || self.asked.len() >= 12 {
            return;
        }
        let start = self.room.0.len() as u64;
        let buf = Buf { start, len: (cells * CELL) as u32 };
        let (offset, len) = ((first * CELL) as u64, (cells * CELL) as u64);
        let (mut marks, mut durable) = (Vec::new(), false);
        let ask = match what {
            0..=4 => {
                self.next_value += 1;
                let value = self.next_value;
                durable = self.rng.one_in(5);
                self.room.0.extend(value.to_le_bytes().repeat(cells * CELL / 4));
                marks = self.attempt(first, cells, value);
                // In two parts, as buffers come.
                let half = (cells / 2 * CELL) as u32;
                let bufs = match half {
                    0 => std::iter::once(buf).collect(),
                    half => [buf.slice(0, half), buf.slice(half, buf.len - half)].into_iter().collect(),
                };
                Ask::Write { offset, bufs, durable }
            }
            5 | 6 => {
                self.room.0.extend(std::iter::repeat_n(0xee, cells * CELL));
                Ask::Read { offset, buf }
            }
            7 if self.rng.one_in(3) => {
                self.attempt(first, cells, ANYTHING);
                Ask::Trim { offset, len }
            }
            7 | 8 => return,
            _ => {
                marks = self.cells.iter().map(|cell| cell.answered.max(1)).collect();
                Ask::Flush
            }
        };
        let tag = self.next_tag;
        self.next_tag += 1;
        // A flush of nothing is answered without a word.
        let is_late = self.taken_at.is_some_and(|at| at.after(Nanos::SECOND) <= self.now);
        self.must_notice |= is_late && !matches!(ask, Ask::Flush);
        self.asked.insert(tag, Asked { ask: ask.clone(), first, cells, buf, marks, durable });
        self.session.ask(self.now, ask, tag);
    }

    fn attempt(&mut self, first: usize, cells: usize, value: u32) -> Vec<usize> {
        let cells = self.cells[first..first + cells].iter_mut();
        cells
            .map(|cell| {
                cell.values.push(value);
                cell.values.len() - 1
            })
            .collect()
    }

    /// Answers are held against what they must be.
    fn hear(&mut self) {
        while let Some((tag, result)) = self.session.take_done() {
            let Some(asked) = self.asked.remove(&tag) else {
                self.problem.get_or_insert(format!("{tag} was answered twice"));
                continue;
            };
            let range = asked.first..asked.first + asked.cells;
            let is_its = |buf: &Buf| {
                asked.buf.start <= buf.start && buf.start < asked.buf.start + u64::from(asked.buf.len)
            };
            let is_write = matches!(asked.ask, Ask::Write { .. });
            if is_write && self.lines.iter().any(|line| line.sending && line.bufs.iter().any(is_its)) {
                self.problem.get_or_insert(format!("{tag} was answered while its buffer was being sent"));
            }
            match asked.ask {
                _ if result < 0 => {
                    let is_late_flush = matches!(asked.ask, Ask::Flush)
                        && result == -libc::ETIMEDOUT
                        && self.session.is_sealed();
                    if is_late_flush {
                        self.problem.get_or_insert("a flush failed for the time it took".to_owned());
                    }
                }
                Ask::Write { .. } => {
                    for (cell, mark) in self.cells[range].iter_mut().zip(asked.marks) {
                        cell.answered = mark;
                        if asked.durable {
                            cell.kept = mark;
                        }
                    }
                }
                Ask::Flush => {
                    for (cell, mark) in self.cells.iter_mut().zip(asked.marks) {
                        cell.kept = cell.kept.max(mark);
                        cell.answered = cell.answered.max(mark);
                    }
                }
                Ask::Read { .. } => {
                    let mut bytes = Vec::new();
                    self.room.load(asked.buf, &mut bytes);
                    for (cell, read) in range.zip(bytes.chunks(CELL)) {
                        let value = u32::from_le_bytes([read[0], read[1], read[2], read[3]]);
                        self.check(cell, value, self.cells[cell].answered, "read");
                    }
                }
                Ask::Trim { .. } => {}
            }
        }
    }

    fn check(&mut self, cell: usize, value: u32, from: usize, what: &str) {
        let allowed = &self.cells[cell].values[from..];
        if !allowed.contains(&value) && !allowed.contains(&ANYTHING) {
            self.problem.get_or_insert(format!("cell {cell} was {what} as {value}, and may be {allowed:?}"));
        }
    }

    /// Bytes go out.
    fn send(&mut self, line: usize) {
        if self.lines[line].sending || self.session.waiting() == 0 {
            return;
        }
        let mut scratch = vec![0; 4096];
        let mut out = Outbox::new(&mut scratch, 64);
        let most = 1 + self.rng.below(4) as usize;
        if !self.session.fill(line, self.now, most, &mut out) {
            return;
        }
        let mut bytes = Vec::new();
        for &part in out.parts() {
            match part {
                Part::Scratch { at, len } => bytes.extend_from_slice(&out.scratch()[at..at + len]),
                Part::Buf(buf) => self.room.load(buf, &mut bytes),
            }
        }
        let buf = |part: &Part| match *part {
            Part::Buf(buf) => Some(buf),
            Part::Scratch { .. } => None,
        };
        self.lines[line].bufs = out.parts().iter().filter_map(buf).collect();
        self.lines[line].up.extend(bytes);
        self.lines[line].sending = true;
    }

    /// The server reads what has come so far.
    fn read_requests(&mut self, line: usize) {
        let line = &mut self.lines[line];
        loop {
            let Ok(Parse::Request { request, .. }) = Transmission::new().next(&line.up) else { return };
            let payload = if request.command == Command::Write { request.length as usize } else { 0 };
            if line.up.len() < 28 + payload {
                return;
            }
            let bytes: Vec<u8> = line.up.drain(..28 + payload).skip(28).collect();
            line.pending.push((request, bytes));
        }
    }

    fn serve(&mut self, line: usize) {
        self.read_requests(line);
        let pending = self.lines[line].pending.len() as u64;
        if pending > 0 {
            let nth = self.rng.below(pending) as usize;
            let (request, bytes) = self.lines[line].pending.swap_remove(nth);
            let answer = self.server.answer(&mut self.rng, &request, &bytes);
            self.forget_before();
            self.lines[line].down.extend(answer);
        }
    }

    fn deliver(&mut self, line: usize) {
        let there = self.lines[line].down.len() as u64;
        if there > 0 {
            let bytes: Vec<u8> = self.lines[line].down.drain(..1 + self.rng.below(there) as usize).collect();
            self.session.received(line, self.now, &bytes, &mut self.room);
        }
    }

    fn kernel_sent(&mut self, line: usize) {
        if std::mem::take(&mut self.lines[line].sending) {
            self.session.sent(line, self.now, &mut self.room);
        }
    }

    fn step(&mut self, is_kind: bool) {
        self.now = self.now.after(self.rng.below(20 * Nanos::MS));
        if self.taken_at.is_some_and(|at| at <= self.now) {
            self.server.owner = THEIRS;
        }
        self.session.on_time(self.now);
        match self.session.wish(self.now) {
            Wish::Close => self.close(is_kind),
            Wish::Dial => {
                self.session.dialing();
                match !is_kind && self.rng.one_in(3) {
                    true => self.session.refused(self.now, "nobody is there"),
                    false => self.connect(),
                }
            }
            Wish::Serve | Wish::Rest => {}
        }
        if !self.lines.is_empty() {
            let line = self.rng.below(self.lines.len() as u64) as usize;
            match self.rng.below(4) {
                0 => self.send(line),
                1 => self.serve(line),
                2 => self.deliver(line),
                _ => self.kernel_sent(line),
            }
        }
        if !is_kind {
            match self.rng.below(400) {
                0..=80 => self.ask(),
                81 | 82 => self.session.break_off(self.now, "it was cut".to_owned()),
                83 => self.now = self.now.after(self.rng.below(40) * Nanos::SECOND),
                _ => {}
            }
        }
        self.is_lost |= self.session.take_news().iter().any(|news| matches!(news, News::Lost(_)));
        self.hear();
    }

    /// Whether anything is under way.
    fn is_busy(&self) -> bool {
        let is_busy = |line: usize| self.lines[line].sending || self.session.unanswered(line) > 0;
        !self.asked.is_empty() || self.session.waiting() > 0 || (0..self.lines.len()).any(is_busy)
    }

    fn connect(&mut self) {
        let count = if self.multi { 1 + self.rng.below(3) as usize } else { 1 };
        self.lines = std::iter::repeat_with(Line::default).take(count).collect();
        let late = std::mem::take(&mut self.late);
        if self.rng.one_in(4) {
            self.lines[0].down = late.concat();
        }
        self.session.connected(self.now, agreed(&self.server, self.multi), count);
    }

    /// The connections end: what had reached the server is done, or not, and it may have died.
    fn close(&mut self, is_kind: bool) {
        for line in 0..self.lines.len() {
            self.read_requests(line);
            for _ in 0..self.rng.below(4) {
                self.lines[line].down.clear();
                self.serve(line);
                self.late.push(std::mem::take(&mut self.lines[line].down));
            }
        }
        if !is_kind && self.rng.one_in(2) {
            self.server.crash(&mut self.rng);
            self.forget_before();
        }
        self.lines.clear();
        self.session.closed(self.now, &mut self.room);
    }

    /// What was written before our time may be gone with the server, or with a flush that failed, before one has ended well.
    fn forget_before(&mut self) {
        let Server { durable, dirty, .. } = &self.server;
        for (place, cell) in self.cells.iter_mut().enumerate() {
            if cell.kept == 0 && durable[place] == ANYTHING && !dirty[place] {
                cell.values[1] = ANYTHING;
            }
        }
    }

    fn run(mut self, steps: u32) -> Result<Session, String> {
        for _ in 0..steps {
            self.step(false);
        }
        self.server.fails = false;
        let mut left = 40_000;
        while self.is_busy() && left > 0 {
            self.step(true);
            left -= 1;
        }
        if !self.asked.is_empty() {
            return Err(format!("{} operations are never answered", self.asked.len()));
        }
        let is_away = self.session.standing().away_since.is_some();
        if !is_away && self.is_lost != self.must_notice && (self.must_notice || self.taken_at.is_none()) {
            return Err(format!("somebody else took it at {:?}, lost: {}", self.taken_at, self.is_lost));
        }
        // Both end without a word.
        self.server.crash(&mut self.rng);
        for cell in 0..CELLS {
            let value = self.server.durable[cell];
            self.check(cell, value, self.cells[cell].kept, "kept");
        }
        self.problem.map_or(Ok(self.session), Err)
    }
}

fn judge(blocks: &[Vec<u8>]) -> Result<(), Doubt> {
    match blocks[0][0] {
        OURS => Ok(()),
        other => Err(Doubt::Other(format!("it begins with {other}"))),
    }
}

fn agreed(server: &Server, multi: bool) -> Agreed {
    Agreed {
        size_bytes: (CELLS * CELL) as u64,
        read_only: false,
        flush: true,
        fua: server.fua,
        trim: true,
        multi,
        most_bytes: server.most_bytes,
    }
}

/// So many cases, or those of a seed that is given.
fn cases(most: u64) -> std::ops::Range<u64> {
    let first = std::env::var("REMOTE_SEED").ok().and_then(|seed| seed.parse().ok());
    first.map_or(0..most, |seed: u64| seed..seed + 1)
}

#[test]
fn no_flushed_byte_is_lost_and_nothing_wrong_is_read() {
    let (mut breaks, mut resent) = (0, 0);
    for seed in cases(10_000) {
        match World::any(seed).run(600) {
            Ok(session) => {
                breaks += session.standing().breaks;
                resent += session.standing().resent;
            }
            Err(problem) => panic!("REMOTE_SEED={seed}: {problem}"),
        }
    }
    println!("{breaks} breaks, {resent} requests sent again");
    assert!(breaks > 0 && resent > 0, "{breaks} breaks, {resent} requests sent again: nothing was tried");
}

/// How a seed fails, if it does.
fn ends_wrong(seed: u64) -> Option<String> {
    let outcome = std::panic::catch_unwind(|| World::any(seed).run(600).err());
    outcome.unwrap_or_else(|_| Some("it panics".to_owned()))
}

#[test]
fn planted_faults_are_found() {
    for &bug in Bug::ALL {
        plant(Some(bug));
        let found = (0..10_000).find_map(|seed| Some((seed, ends_wrong(seed)?)));
        let (seed, problem) = found.unwrap_or_else(|| panic!("{bug:?} is not found"));
        println!("{bug:?}: seed {seed}: {problem}");
    }
}
