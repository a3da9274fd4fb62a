//! The client: submits a plan's operations, and has the model check each answer.

use super::plan::{Op, OpKind};
use crate::arena::SimArena;
use crate::model::{FlushHandle, Model, ReadHandle, SECTOR, WriteHandle};
use crate::world::World;
use bimetal_engine::Engine;
use bimetal_engine::action::{Machine, Request, RequestError, RequestId, RequestKind};
use bimetal_engine::arena::{Arena, Buf, Pool};
use bimetal_engine::extents::Placement;
use bimetal_units::{BLOCK_BYTES, Nanos};

/// Extents asked for when a read is answered.
const MAX_EXTENTS: usize = 64;
const BLOCK: u64 = BLOCK_BYTES as u64;

#[derive(Clone, Copy)]
enum Tracked {
    Read(ReadHandle),
    Write(WriteHandle),
    Flush(FlushHandle),
}

struct Flight {
    id: RequestId,
    op: Op,
    buf: Option<Buf>,
    tracked: Tracked,
    since: Nanos,
    /// Bytes that requests in flight covered at most since.
    most_bytes: u64,
}

/// How an operation ended.
pub struct Outcome {
    /// The operation.
    pub op: Op,
    /// When it was submitted.
    pub since: Nanos,
    /// It succeeded.
    pub ok: bool,
}

/// A client at work.
pub struct Client<'a> {
    ops: &'a [Op],
    depth: usize,
    next: usize,
    flights: Vec<Flight>,
    /// When the next operation may go, once its pause has begun.
    wake: Option<Nanos>,
    /// Requests answered.
    pub answered: u64,
    /// Reads among them that failed, since this was last looked at.
    pub failed_reads: u64,
    /// How they ended, since this was last taken.
    pub outcomes: Vec<Outcome>,
}

impl<'a> Client<'a> {
    /// A client for these operations.
    pub fn new(ops: &'a [Op], depth: u32) -> Client<'a> {
        Client {
            ops,
            depth: depth as usize,
            next: 0,
            flights: Vec::new(),
            wake: None,
            answered: 0,
            failed_reads: 0,
            outcomes: Vec::new(),
        }
    }

    /// Whether all is submitted and answered.
    pub fn is_done(&self) -> bool {
        self.next == self.ops.len() && self.flights.is_empty()
    }

    /// Whether all that was submitted is answered.
    pub fn is_quiet(&self) -> bool {
        self.flights.is_empty()
    }

    /// Submits nothing more.
    pub fn stop(&mut self) {
        self.ops = &self.ops[..self.next];
    }

    /// When the next operation goes, if time is what it waits for.
    pub fn wake(&self, now: Nanos) -> Option<Nanos> {
        self.wake.filter(|&w| w > now && self.flights.len() < self.depth)
    }

    /// When the first of the requests in flight has waited too long, and how long that is, where each may take `patience_ns`
    /// of the bytes that were in flight while it was: it may have waited for a large one that is answered by now.
    pub fn stuck(&self, patience_ns: impl Fn(u64) -> u64) -> Option<(Nanos, u64)> {
        let each = self.flights.iter().map(|f| (f.since, patience_ns(f.most_bytes)));
        each.map(|(since, patience)| (since.after(patience), patience)).min()
    }

    /// Names the requests in flight.
    pub fn waiting(&self) -> String {
        let names: Vec<String> = self.flights.iter().take(8).map(|f| f.op.to_string()).collect();
        names.join(", ")
    }

    /// Submits what may go now.
    pub fn feed(&mut self, engine: &mut Engine<SimArena>, world: &mut World, model: &mut Model) {
        while let Some(&op) = self.ops.get(self.next) {
            if self.flights.len() >= self.depth
                || !engine.has_room()
                || (op.drain && !self.flights.is_empty())
            {
                return;
            }
            let wake = *self.wake.get_or_insert(world.now().after(op.pause_ns));
            if wake > world.now() {
                return;
            }
            let op = followable(op, model);
            let Some(buf) = self.buffer(engine, op) else { return };
            self.next += 1;
            self.wake = None;
            if op.kind == OpKind::Prefer {
                world.note([11, op.offset, op.len]);
                engine.prefer_fast(world.now(), op.offset, op.len);
                self.answered += 1;
                continue;
            }
            self.submit(engine, world, model, op, buf);
        }
    }

    /// The buffer that an operation needs; `None` when there is no memory now.
    fn buffer(&self, engine: &mut Engine<SimArena>, op: Op) -> Option<Option<Buf>> {
        if !matches!(op.kind, OpKind::Read | OpKind::Write) {
            return Some(None);
        }
        let start = op.offset / BLOCK * BLOCK;
        let len = (op.offset + op.len).next_multiple_of(BLOCK) - start;
        let buf = engine.with_arena(|arena| arena.alloc(Pool::Client, len as u32));
        assert!(buf.is_some() || !self.flights.is_empty(), "the client's pool is too small for {op}");
        buf.map(Some)
    }

    fn submit(
        &mut self,
        engine: &mut Engine<SimArena>,
        world: &mut World,
        model: &mut Model,
        op: Op,
        buf: Option<Buf>,
    ) {
        let fua = op.fua;
        let (kind, tracked) = match op.kind {
            OpKind::Prefer => unreachable!("a hint is no request"),
            OpKind::Read => (RequestKind::Read, Tracked::Read(model.begin_read())),
            OpKind::Write => {
                let handle = model.begin_write(op.offset, op.len, fua);
                let part = payload(op, buf);
                engine.with_arena(|arena| model.fill(handle, op.offset, arena.payload_mut(part)));
                (RequestKind::Write { fua }, Tracked::Write(handle))
            }
            OpKind::Flush => (RequestKind::Flush, Tracked::Flush(model.begin_flush())),
            OpKind::Discard => {
                let handle = model.begin_discard(op.offset, op.len, fua);
                (RequestKind::Discard { fua }, Tracked::Write(handle))
            }
            OpKind::Zero => {
                let handle = model.begin_zeroes(op.offset, op.len, fua);
                (RequestKind::WriteZeroes { fua }, Tracked::Write(handle))
            }
        };
        let id = world.request_id();
        world.note([8, op.offset, op.len * 8 + op.kind as u64]);
        if world.trace {
            let write = if let Tracked::Write(h) = tracked { model.write_number(h) } else { 0 };
            eprintln!("{:>12} request {} {op} (write {write})", world.now().0, id.0);
        }
        self.flights.push(Flight { id, op, buf, tracked, since: world.now(), most_bytes: 0 });
        let bytes = self.flights.iter().map(|f| f.op.len).sum();
        self.flights.iter_mut().for_each(|f| f.most_bytes = f.most_bytes.max(bytes));
        let (offset, len) = if op.kind == OpKind::Flush { (0, 0) } else { (op.offset, op.len) };
        engine.on_request(world.now(), Request { id, kind, offset, len, buf });
    }

    /// Takes the answers; `errors` says whether an error is a legal one. Returns whether there were any.
    pub fn settle(
        &mut self,
        engine: &mut Engine<SimArena>,
        world: &mut World,
        model: &mut Model,
        errors: bool,
    ) -> Result<bool, String> {
        let mut replies = std::mem::take(&mut world.replies);
        let any = !replies.is_empty();
        for (id, result) in replies.drain(..) {
            let i = self.flights.iter().position(|f| f.id == id);
            let i = i.ok_or_else(|| format!("an answer to request {}, which is not in flight", id.0))?;
            let flight = self.flights.swap_remove(i);
            if world.trace {
                eprintln!("{:>12} answer {} {result:?}", world.now().0, id.0);
            }
            self.answered += 1;
            self.failed_reads += u64::from(flight.op.kind == OpKind::Read && result.is_err());
            self.outcomes.push(Outcome { op: flight.op, since: flight.since, ok: result.is_ok() });
            answer(engine, model, &flight, result, errors)?;
        }
        world.replies = replies;
        Ok(any)
    }
}

fn answer(
    engine: &mut Engine<SimArena>,
    model: &mut Model,
    flight: &Flight,
    result: Result<(), RequestError>,
    errors: bool,
) -> Result<(), String> {
    if let Err(error) = result
        && !errors
    {
        return Err(format!("\"{error}\" for {} where no device had failed", flight.op));
    }
    let ok = result.is_ok();
    let checked = match flight.tracked {
        Tracked::Write(handle) => {
            model.end_write(handle, ok);
            Ok(())
        }
        Tracked::Flush(handle) => {
            model.end_flush(handle, ok);
            Ok(())
        }
        Tracked::Read(handle) if ok => {
            let part = payload(flight.op, flight.buf);
            if flight.id.0.is_multiple_of(2) {
                leave_holes_out(engine, &flight.op, part)?;
            }
            engine.with_arena(|arena| model.end_read(handle, flight.op.offset, arena.payload(part)))
        }
        Tracked::Read(handle) => {
            model.fail_read(handle);
            Ok(())
        }
    };
    if let Some(buf) = flight.buf {
        engine.with_arena(|arena| arena.free(buf));
    }
    checked.map_err(|mismatch| format!("{}: {mismatch}", flight.op))
}

/// What a server does that tells a client of holes instead of sending zeros: it asks when the read is answered, and
/// what is a hole by then counts as read from it.
fn leave_holes_out(engine: &mut Engine<SimArena>, op: &Op, part: Buf) -> Result<(), String> {
    let extents = engine.extents(op.offset, op.len, MAX_EXTENTS);
    let mut at = 0;
    for extent in &extents {
        if extent.len == 0 || at + extent.len > op.len {
            return Err(format!("{op}: its extents do not fit it: {extents:?}"));
        }
        if extent.place == Placement::Hole {
            let hole = part.slice(at as u32, extent.len as u32);
            engine.with_arena(|arena| arena.payload_mut(hole).fill(0));
        }
        at += extent.len;
    }
    if extents.is_empty() || at < op.len && extents.len() < MAX_EXTENTS {
        return Err(format!("{op}: its extents end early: {extents:?}"));
    }
    Ok(())
}

/// The payload in the block cover of an operation.
fn payload(op: Op, buf: Option<Buf>) -> Buf {
    buf.expect("reads and writes have buffers").slice((op.offset % BLOCK) as u32, op.len as u32)
}

/// Sub-sector writes that the model could not follow become writes of whole sectors.
fn followable(op: Op, model: &Model) -> Op {
    if !matches!(op.kind, OpKind::Write | OpKind::Zero) || model.can_follow(op.offset, op.len) {
        return op;
    }
    let sector = SECTOR as u64;
    let offset = op.offset / sector * sector;
    Op { offset, len: (op.offset + op.len).next_multiple_of(sector) - offset, ..op }
}
