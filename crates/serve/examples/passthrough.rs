//! Serves a plain file over NBD with the production loop and no engine between: what the transport can do
//! by itself, and a place to test the handling of clients.
//!
//! `passthrough FILE SOCKET [MODEL]`: prints `ready` and serves until SIGTERM. With MODEL the file answers as slowly as
//! that modelled device.

use bimetal_driver::{BlockFile, Driver, PoolSizes, RealArena, Ring, Timing};
use bimetal_engine::Machine;
use bimetal_engine::action::{
    Action, Class, DeviceError, Request, RequestError, RequestId, RequestKind, Token,
};
use bimetal_engine::extents::{Extents, Placed, Placement};
use bimetal_engine::format::superblock::Superblock;
use bimetal_engine::loss::Losses;
use bimetal_engine::options::{Event, Status};
use bimetal_engine::pins::{PinError, PinReport};
use bimetal_engine::scrub::ScrubError;
use bimetal_engine::tally::Tally;
use bimetal_engine::why::{Decision, Why};
use bimetal_serve::{Address, Door, Opened, Reception, Served, Server, Tenant, VolumeName};
use bimetal_units::{Chunk, FAST, Nanos, ServedBy, Tier};
use std::collections::VecDeque;
use std::path::PathBuf;

/// Passes whole-block requests through to the file.
struct Passthrough {
    arena: RealArena,
    actions: VecDeque<Action>,
    size_bytes: u64,
    in_flight: usize,
    stopping: bool,
}

impl Machine for Passthrough {
    type Arena = RealArena;
    fn next_action(&mut self, _now: Nanos) -> Option<Action> {
        self.actions.pop_front()
    }
    fn on_completion(&mut self, _now: Nanos, token: Token, result: Result<(), DeviceError>) {
        self.in_flight -= 1;
        let (id, result) = (RequestId(token.0), result.map_err(RequestError::from));
        self.actions.push_back(Action::Reply { id, result, served: ServedBy::default() });
    }
    fn deadline(&self) -> Option<Nanos> {
        None
    }
    fn on_timer(&mut self, _now: Nanos) {}
    fn with_arena<R>(&mut self, f: impl FnOnce(&mut RealArena) -> R) -> R {
        f(&mut self.arena)
    }
}

impl Served for Passthrough {
    fn shot(&mut self) -> Option<bimetal_flight::Shot> {
        None
    }
    fn has_room(&self) -> bool {
        self.in_flight < 1024
    }
    fn on_request(&mut self, _now: Nanos, request: Request) {
        self.in_flight += 1;
        let (token, offset, class) = (Token(request.id.0), request.offset / 4096 * 4096, Class::Foreground);
        let action = match (request.kind, request.buf) {
            (RequestKind::Read, Some(buf)) => Action::Read { device: FAST, offset, buf, token, class },
            (RequestKind::Write { fua }, Some(buf)) => Action::Write {
                device: FAST,
                offset,
                bufs: std::iter::once(buf).collect(),
                fua,
                token,
                class,
            },
            (RequestKind::Flush, _) => Action::Flush { device: FAST, token },
            _ => Action::Discard {
                device: FAST,
                offset: request.offset,
                len: request.len,
                refilled: false,
                token,
            },
        };
        self.actions.push_back(action);
    }
    fn extents(&self, _offset: u64, len: u64, _max: usize) -> Extents {
        Extents::from_iter([Placed { len, place: Placement::Home(FAST) }])
    }
    fn tally(&self, _now: Nanos, from: u64, to: u64, _steps: &mut u32) -> (Tally, u64) {
        let mut tally = Tally::default();
        tally.add(Placement::Home(FAST), to - from);
        (tally, to)
    }
    fn heats(&self, _now: Nanos, _offset: u64, _most: usize) -> Vec<u32> {
        Vec::new()
    }
    fn rises_at(&self) -> u32 {
        1
    }
    fn prefer_fast(&mut self, _now: Nanos, _offset: u64, _len: u64) {}
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
    fn begin_shutdown(&mut self, _now: Nanos) {
        self.stopping = true;
    }
    fn is_stopped(&self) -> bool {
        self.stopping && self.in_flight == 0
    }
    fn status(&self) -> Status {
        Status { state: "open", size_bytes: self.size_bytes, ..Status::default() }
    }
    fn begin_pin(
        &mut self,
        _now: Nanos,
        _offset: u64,
        _len: u64,
        _tier: Option<Tier>,
    ) -> Result<(), PinError> {
        Err(PinError::ReadOnly)
    }
    fn take_pin_answer(&mut self) -> Option<Result<(), PinError>> {
        None
    }
    fn pin_report(&self) -> PinReport {
        PinReport { ranges: Vec::new(), room_bytes: [0; 2], pinned_bytes: [0; 2], known: true }
    }
    fn outlive_kills(&mut self) {}
    fn begin_scrub(&mut self, _now: Nanos) -> Result<(), ScrubError> {
        Err(ScrubError::ReadOnly)
    }
    fn stop_scrub(&mut self, _now: Nanos) -> Result<(), ScrubError> {
        Err(ScrubError::NotRunning)
    }
    fn pause_moves(&mut self, _now: Nanos, _paused: bool) {}
    fn why(&mut self, _now: Nanos, _offset: u64) -> Option<Why> {
        None
    }
    fn decisions(&self, _most: usize) -> Vec<(Chunk, Decision)> {
        Vec::new()
    }
    fn losses(&self, _from: u64) -> Losses {
        Losses::default()
    }
    fn take_events(&mut self) -> Vec<Event> {
        Vec::new()
    }
    fn refuse_changes(&mut self, _why: String) {}
    fn superblocks(&self) -> Option<[Superblock; 2]> {
        None
    }
    fn device_replaced(&mut self, _tier: Tier, _id: [u8; 16], _name: String) {}
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(file), Some(nbd)) = (args.next(), args.next()) else {
        return Err("passthrough FILE SOCKET [MODEL]".into());
    };
    let mut device = BlockFile::open(&file)?;
    if let Some(model) = args.next() {
        let timing = Timing::named(&model.to_string_lossy(), device.size_bytes())?;
        device = device.timed(timing);
    }
    let size_bytes = device.size_bytes() / 4096 * 4096;
    let arena = RealArena::new(PoolSizes::default())?;
    let ring = Ring::new(arena.region())?;
    eprintln!("direct: {}, registered: {}", device.is_direct(), ring.is_fixed());
    let driver = Driver::new(ring, vec![device]);
    let machine = Passthrough { arena, actions: VecDeque::new(), size_bytes, in_flight: 0, stopping: false };
    let control = nbd.with_extension("control");
    let volume = VolumeName("passthrough".into());
    let file = std::path::PathBuf::new();
    let opened = Opened { engine: machine, driver, buffer_bytes: 0, volume, file, read_only: false, control };
    let door = Door::new(vec![Address::Unix(nbd)], vec![opened.export()], Reception::default())?;
    let tenant = Tenant::house(1)?.pop().ok_or("a house of one has one tenant")?;
    let server = Server::new(opened, tenant, Some(door))?;
    println!("ready");
    server.run()?;
    Ok(())
}
