//! An orderly end: answer what is in flight, commit, checkpoint, tell what was learnt, mark the volume as clean.

use crate::api::action::DeviceError;
use crate::api::coverage::Stage;
use crate::base::arena::{Arena, Buf, Pool};
use crate::engine::Engine;
use crate::format::superblock::OpenState;
use crate::io::flush::Waiter;
use crate::io::tokens::Owner;
use crate::life::hints::Writing;
use crate::path::marks::Marks;
use bimetal_units::*;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
enum ShutdownStage {
    #[default]
    No,
    Drain,
    Commit,
    Checkpoint,
    /// What placement has learnt.
    Hints,
    /// The first superblock, then the second.
    Superblock(u8),
    Done,
}

/// How long the end waits for discarded slots to be given back to their devices, ns: what is left is
/// free, but keeps its space below until it is used again.
const TRIM_PATIENCE_NS: u64 = 2 * Nanos::SECOND;

/// How far the end has come.
#[derive(Default, Serialize, Deserialize)]
pub struct Shutdown {
    stage: ShutdownStage,
    since: Nanos,
    /// What is being written.
    pub(crate) buf: Option<Buf>,
    pub(crate) hints: Option<Writing>,
}

impl Shutdown {
    /// Whether it has begun.
    pub fn began(&self) -> bool {
        self.stage != ShutdownStage::No
    }

    /// Whether nothing more is asked for, and the last checkpoint is being made.
    pub fn makes_last_checkpoint(&self) -> bool {
        self.stage == ShutdownStage::Checkpoint
    }

    /// Whether nothing more is written but what was learnt, and that the volume is clean.
    pub fn is_marking(&self) -> bool {
        matches!(self.stage, ShutdownStage::Hints | ShutdownStage::Superblock(_) | ShutdownStage::Done)
    }

    /// Changes with every step.
    pub fn step(&self) -> impl PartialEq + use<> {
        self.stage
    }

    /// Its stage, for coverage.
    pub fn coverage(&self) -> Option<Stage> {
        matches!(self.stage, ShutdownStage::Hints | ShutdownStage::Superblock(_)).then_some(Stage::Shutdown)
    }
}

impl<A: Arena> Engine<A> {
    /// Takes no new requests, finishes what is in flight, commits, checkpoints and marks the volume clean.
    pub fn begin_shutdown(&mut self, now: Nanos) {
        self.io.tick(now);
        if !self.life.shutdown.began() {
            self.life.shutdown.stage = ShutdownStage::Drain;
            self.life.shutdown.since = self.io.now;
        }
    }

    /// Whether the shutdown has ended: nothing is in flight any more.
    pub fn is_stopped(&self) -> bool {
        self.life.shutdown.stage == ShutdownStage::Done && self.io.is_drained()
    }

    fn is_quiet(&self) -> bool {
        self.front.requests.is_empty()
            && self.mover.is_idle()
            && !self.commit.is_busy()
            && self.checkpoint.is_idle()
            && self.marks.as_ref().is_none_or(Marks::is_idle)
            && self.placement.pins.is_idle()
            && self.mover.scrub.is_still()
            && self.log.is_idle()
            && self.log.sealing == 0
            && self.io.tokens.is_idle()
            && self.io.is_drained()
    }

    pub(crate) fn pump_shutdown(&mut self) {
        if !self.life.shutdown.began() || !self.is_quiet() || self.life.shutdown.buf.is_some() {
            return;
        }
        self.life.shutdown.stage = match self.life.shutdown.stage {
            _ if self.life.is_read_only() => ShutdownStage::Done,
            ShutdownStage::Drain => {
                self.wanted.commit = true;
                ShutdownStage::Commit
            }
            ShutdownStage::Commit => {
                self.release_slots();
                if !self.io.is_drained() && self.io.now.since(self.life.shutdown.since) < TRIM_PATIENCE_NS {
                    return;
                }
                self.wanted.checkpoint = true;
                ShutdownStage::Checkpoint
            }
            // A checkpoint that failed leaves the log, which holds everything.
            stage @ (ShutdownStage::Checkpoint | ShutdownStage::Hints) => {
                self.life.shutdown.stage = ShutdownStage::Hints;
                if stage == ShutdownStage::Checkpoint {
                    self.begin_hints();
                }
                if !self.write_hints() {
                    self.write_clean(0);
                }
                return;
            }
            stage => stage,
        };
        if self.life.shutdown.stage != ShutdownStage::Done {
            self.pump_commit();
            self.pump_checkpoint();
        }
    }

    fn write_clean(&mut self, copy: u8) {
        self.life.shutdown.stage = ShutdownStage::Superblock(copy);
        let Some(buf) = self.io.arena.alloc(Pool::Meta, BLOCK_BYTES) else {
            self.life.shutdown.stage = ShutdownStage::Done;
            return;
        };
        self.life.superblock.state = OpenState::Clean;
        let offset = if copy == 0 { 0 } else { self.state.geo.second_superblock_at(FAST) };
        self.life.superblock.encode(self.io.arena.bytes_mut(buf), offset);
        self.life.shutdown.buf = Some(buf);
        self.write_metadata(Owner::Shutdown, offset, buf);
    }

    pub(crate) fn shutdown_io_done(&mut self, result: Result<(), DeviceError>) {
        self.io.flushers[FAST].dirty = true;
        if let Some(buf) = self.life.shutdown.buf.take() {
            self.io.arena.free(buf);
        }
        if self.life.shutdown.stage == ShutdownStage::Hints {
            // The flush of the superblock covers them. Until then nobody knows where they are.
            return self.hints_written(result);
        }
        self.request_flush(FAST, Waiter::Shutdown);
    }

    pub(crate) fn shutdown_flushed(&mut self, _ok: bool) {
        match self.life.shutdown.stage {
            ShutdownStage::Superblock(0) if !self.life.is_read_only() => self.write_clean(1),
            _ => self.life.shutdown.stage = ShutdownStage::Done,
        }
    }
}
