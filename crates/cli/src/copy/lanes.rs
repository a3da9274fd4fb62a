//! The volume's side of a copy: several requests in flight.

use super::PIECE_BYTES;
use bimetal_driver::{Driver, RealArena};
use bimetal_engine::Engine;
use bimetal_lab::load::{LoadTarget as _, SlotSpec};
use bimetal_lab::target::Volume;
use bimetal_load::{Ended, Fault, Target as _};
use bimetal_models::{Command, Kind};
use std::io;
use std::ops::Range;

/// Requests in flight.
const LANES: u32 = 16;
/// Bytes that are discarded with one request.
const DISCARD_BYTES: u64 = 1 << 30;

/// An open volume. A lane is taken by one request at a time.
pub(super) struct Lanes<'v> {
    volume: Volume<'v>,
    idle: Vec<u32>,
    /// By lane.
    asked: Vec<Option<Command>>,
    ended: Vec<Ended>,
}

impl<'v> Lanes<'v> {
    pub(super) fn new(
        driver: &'v mut Driver,
        engine: &'v mut Engine<RealArena>,
    ) -> anyhow::Result<Lanes<'v>> {
        let mut volume = Volume::new(driver, engine);
        let slot = |_| SlotSpec { bytes: PIECE_BYTES, longest: DISCARD_BYTES, random: false, seed: 0 };
        volume.prepare(&(0..LANES).map(slot).collect::<Vec<_>>())?;
        let asked = vec![None; LANES as usize];
        Ok(Lanes { volume, idle: (0..LANES).collect(), asked, ended: Vec::new() })
    }

    /// Begins to write; what was written before may still be under way.
    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) -> anyhow::Result<()> {
        let lane = self.lane(&mut |_, _| Ok(()))?;
        let length = bytes.len() as u64;
        if let Some(payload) = self.volume.payload(lane, length) {
            payload.copy_from_slice(bytes);
        }
        self.ask(lane, Command { kind: Kind::Write { fua: false }, offset: at, len: length });
        Ok(())
    }

    /// Begins to read; what has been read, now or by a later call, is given to `take` with its place.
    pub(super) fn read(
        &mut self,
        at: u64,
        length: u64,
        take: &mut dyn FnMut(u64, &[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let lane = self.lane(take)?;
        self.ask(lane, Command { kind: Kind::Read, offset: at, len: length });
        Ok(())
    }

    /// Waits until nothing is under way.
    pub(super) fn settle(
        &mut self,
        take: &mut dyn FnMut(u64, &[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        while self.idle.len() < LANES as usize {
            self.wait(take)?;
        }
        Ok(())
    }

    /// All that was written is durable when this has ended.
    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        self.settle(&mut |_, _| Ok(()))?;
        let lane = self.lane(&mut |_, _| Ok(()))?;
        self.ask(lane, Command { kind: Kind::Flush, offset: 0, len: 0 });
        self.settle(&mut |_, _| Ok(()))
    }

    /// Lets a range read zeros, durably.
    pub(super) fn discard(&mut self, range: Range<u64>) -> anyhow::Result<()> {
        for offset in range.clone().step_by(DISCARD_BYTES as usize) {
            let lane = self.lane(&mut |_, _| Ok(()))?;
            let len = DISCARD_BYTES.min(range.end - offset);
            self.ask(lane, Command { kind: Kind::Discard, offset, len });
        }
        self.flush()
    }

    fn ask(&mut self, lane: u32, command: Command) {
        self.asked[lane as usize] = Some(command);
        self.volume.submit(lane, 0, command);
    }

    /// A lane that is idle, as soon as there is one.
    fn lane(&mut self, take: &mut dyn FnMut(u64, &[u8]) -> anyhow::Result<()>) -> anyhow::Result<u32> {
        loop {
            if let Some(lane) = self.idle.pop() {
                return Ok(lane);
            }
            self.wait(take)?;
        }
    }

    fn wait(&mut self, take: &mut dyn FnMut(u64, &[u8]) -> anyhow::Result<()>) -> anyhow::Result<()> {
        self.volume.wait(None, &mut self.ended);
        for Ended { slot, fault, .. } in self.ended.drain(..) {
            let Some(command) = self.asked[slot as usize].take() else { continue };
            self.idle.push(slot);
            if let Some(fault) = fault {
                return Err(cannot(command, fault));
            }
            if command.kind == Kind::Read
                && let Some(bytes) = self.volume.payload(slot, command.len)
            {
                take(command.offset, bytes)?;
            }
        }
        Ok(())
    }
}

fn cannot(command: Command, fault: Fault) -> anyhow::Error {
    let what = match command.kind {
        Kind::Read => "read",
        Kind::Write { .. } => "write",
        Kind::Flush | Kind::Sync => "flush",
        Kind::Discard => "discard",
    };
    let why = match fault {
        Fault::Errno(errno) => io::Error::from_raw_os_error(errno).to_string(),
        Fault::Failed(_) | Fault::Short(_) => "it ended early".to_owned(),
    };
    let Command { offset, len, .. } = command;
    match command.kind {
        Kind::Flush | Kind::Sync => anyhow::anyhow!("cannot flush the volume: {why}"),
        _ => anyhow::anyhow!("cannot {what} the {len} bytes from byte {offset} of the volume: {why}"),
    }
}
