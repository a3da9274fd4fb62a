//! The steps at the end. Until the other device's first superblock names the successor, the old device is the volume's; from
//! then on the successor is. Both have the same bytes meanwhile, so that a crash between any two finds a whole volume.

use crate::bugs::{Bug, planted};
use crate::replacement::{Own, Replacement, SUCCESSOR};
use bimetal_engine::action::{Action, BufList, Class, DeviceError};
use bimetal_engine::arena::{Arena, Buf, Pool};
use bimetal_engine::format::superblock::Superblock;
use bimetal_units::{BLOCK_BYTES, FAST, Nanos, SLOW, Tier};

/// How soon it is tried again where the other device did not take its superblock.
const AGAIN_NS: u64 = 60 * Nanos::SECOND;

/// How far the takeover is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Takeover {
    /// It has not begun.
    No,
    /// What is on its way to the old device ends.
    Draining,
    /// A superblock is written, from this buffer.
    Writing(Step, Buf),
    /// It is flushed.
    Flushing(Step, Buf),
    /// It has ended.
    Done,
}

/// A superblock that is written, and flushed before the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// The successor's first. All that was copied is flushed with it.
    First,
    /// The other device's first: the volume changes over.
    Commit,
    /// The other device's second.
    Other,
    /// The successor's second, in the place of its header.
    Second,
}

impl Step {
    fn next(self) -> Option<Step> {
        match self {
            Step::First => Some(Step::Commit),
            Step::Commit => Some(Step::Other),
            Step::Other => Some(Step::Second),
            Step::Second => None,
        }
    }
}

impl Replacement {
    /// Lets the successor take over, now that all is copied. These are the superblocks of both devices as they are. From here on
    /// the machine is asked for nothing until it has.
    pub fn begin_takeover(&mut self, superblocks: [Superblock; 2], now: Nanos) {
        if self.takeover != Takeover::No || !self.copying.is_whole() || now < self.not_before {
            return;
        }
        let (new, tier) = (self.plan.new, usize::from(self.plan.tier.0));
        self.superblocks = Some(superblocks.map(|mut superblock| {
            superblock.devices[tier] = new;
            superblock
        }));
        self.takeover = Takeover::Draining;
    }

    pub(crate) fn work_on_takeover<A: Arena>(&mut self, now: Nanos, arena: &mut A) {
        if self.takeover != Takeover::Draining {
            return;
        }
        if !self.copying.is_whole() {
            self.takeover = Takeover::No;
        } else if (self.is_drained() || planted(Bug::NotDrained)) && self.header_stands() {
            // While the first place is written, the second one says how far it is.
            if !self.header_is_second() {
                self.write_header(now, arena);
            } else if let Some(buf) = arena.alloc(Pool::CopyMeta, BLOCK_BYTES) {
                self.begin_step(Step::First, buf, now, arena);
            }
        }
    }

    fn begin_step<A: Arena>(&mut self, step: Step, buf: Buf, now: Nanos, arena: &mut A) {
        let Some(superblocks) = &self.superblocks else { return };
        let (device, tier, second) = self.place(step);
        let superblock = &superblocks[usize::from(tier.0)];
        let offset = if second { superblock.geometry.second_superblock_at(tier) } else { 0 };
        // From here on the other device may name it, however what follows ends.
        self.keeps_first |= step == Step::Commit && !planted(Bug::FirstOverwritten);
        superblock.encode(arena.bytes_mut(buf), offset);
        self.takeover = Takeover::Writing(step, buf);
        self.ask(Own::Takeover, device, now, |token| Action::Write {
            device,
            offset,
            bufs: BufList::from_elem(buf, 1),
            fua: true,
            token,
            class: Class::Background,
        });
    }

    /// It ends where it is.
    pub(crate) fn give_up_takeover(&mut self) {
        if let Takeover::Writing(_, buf) | Takeover::Flushing(_, buf) =
            std::mem::replace(&mut self.takeover, Takeover::No)
        {
            self.given_up = Some(buf);
        }
    }

    /// Whether a step is being flushed.
    pub(crate) fn is_flushing_step(&self) -> bool {
        matches!(self.takeover, Takeover::Flushing(..))
    }

    /// Which device it is written to, whose superblock it is, and whether it is that one's second.
    fn place(&self, step: Step) -> (Tier, Tier, bool) {
        let own = self.plan.tier;
        let other = if own == FAST { SLOW } else { FAST };
        match step {
            Step::First => (SUCCESSOR, own, false),
            Step::Commit => (other, other, false),
            Step::Other => (other, other, true),
            Step::Second => (SUCCESSOR, own, true),
        }
    }

    pub(crate) fn takeover_done<A: Arena>(
        &mut self,
        now: Nanos,
        result: Result<(), DeviceError>,
        arena: &mut A,
    ) {
        let (step, buf, flushed) = match self.takeover {
            Takeover::Writing(step, buf) => (step, buf, planted(Bug::CommitUnflushed)),
            Takeover::Flushing(step, buf) => (step, buf, true),
            _ => {
                self.given_up.take().into_iter().for_each(|buf| arena.free(buf));
                return;
            }
        };
        match (step, result) {
            (Step::First, Err(_)) => {
                arena.free(buf);
                self.takeover = Takeover::No;
                self.must(result);
            }
            (Step::Commit, Err(_)) => {
                // It may name the successor, or not: both go on with the same bytes, and either is right at the next opening.
                arena.free(buf);
                self.not_before = Nanos(now.0 + AGAIN_NS);
                self.takeover = Takeover::No;
            }
            // The machine is to hear of it, and there is nobody else who would tell.
            (Step::Other, Err(_)) if self.other_has_failed() => {
                arena.free(buf);
                self.takeover = Takeover::No;
                self.fail("the volume's other device failed a flush".to_owned());
            }
            (_, Ok(())) if !flushed => {
                let (device, ..) = self.place(step);
                self.takeover = Takeover::Flushing(step, buf);
                self.ask(Own::Takeover, device, now, |token| Action::Flush { device, token });
            }
            // What could not be written after the change is written by the next opening.
            _ => match step.next() {
                Some(next) => self.begin_step(next, buf, now, arena),
                None => {
                    arena.free(buf);
                    self.takeover = Takeover::Done;
                }
            },
        }
    }
}
