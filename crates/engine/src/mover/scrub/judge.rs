//! What becomes of what is wrong: a copy or a shadow ends, as it is not needed; a block is written again with what another place
//! holds, if that matches the checksum of its newest value; else it is lost, and that is noted.

use super::exam::{Exam, Held, Look, What, Wrong};
use super::*;
use crate::api::action::DeviceError;
use crate::api::options::Level;
use crate::base::arena::Buf;
use crate::base::bugs::{Bug, planted};
use crate::path::mend::Mend;

/// Times that a block is to be written again while something is in the way, [`WAIT_NS`] apart.
const MEND_TRIES: u32 = 100;

impl<A: Arena> Engine<A> {
    /// Judges the next thing that is wrong; after the last, the chunk is done.
    pub(super) fn judge_next(&mut self) -> bool {
        let Some(mut exam) = self.mover.scrub.exam.take() else { return false };
        let Some(wrong) = exam.to_judge.front().copied() else {
            self.end_exam(*exam);
            return true;
        };
        if let Some(page) = self.page_for(exam.chunk, &wrong.look) {
            let is_lost = exam.lost_page == Some(page);
            if is_lost {
                exam.lost.set(wrong.look.block);
                exam.to_judge.pop_front();
            }
            exam.awaits_page = !is_lost;
            self.mover.scrub.exam = Some(exam);
            return is_lost || self.want_scrub_page(page);
        }
        let went_on = match wrong.look.held {
            Held::Copy(..) => {
                // What is wrong in one copy may be so in all that were written with it.
                self.drop_copies(exam.chunk);
                exam.to_judge.pop_front();
                self.is_repaired(&exam, &wrong, "it was a copy, and is dropped");
                true
            }
            Held::Shadow(..) => {
                exam.to_judge.pop_front();
                true
            }
            Held::Home(_) | Held::Landed(_) => match self.stand_in_for(&exam, &wrong) {
                Some(_) if !self.hold_chunk(&mut exam) => {
                    self.mend_waits(&mut exam);
                    false
                }
                Some(look) => self.read_alone(&mut exam, What::StandIn(wrong, look), &look),
                None => {
                    exam.to_judge.pop_front();
                    self.is_lost(&mut exam, &wrong);
                    true
                }
            },
        };
        let is_reading = exam.reading.is_some();
        self.mover.scrub.exam = Some(exam);
        went_on && !is_reading
    }

    /// Where the same as in a place that is wrong should be: what is there is held against the checksum of what is wrong.
    fn stand_in_for(&mut self, exam: &Exam, wrong: &Wrong) -> Option<Look> {
        let Look { block, sum, held } = wrong.look;
        if let Held::Landed(z) = held {
            let is_whole = self.state.landed.sectors(z).is_all();
            let home = self.state.map.home(exam.chunk).filter(|_| is_whole)?;
            let beneath = Look { block, held: Held::Home(home), sum };
            let was_tried = exam.mend_tries > MEND_TRIES;
            return (self.state.map.is_valid(exam.chunk, block) && !was_tried).then_some(beneath);
        }
        let is_good = |look: &&Look| {
            matches!(look.held, Held::Shadow(..) | Held::Copy(..))
                && look.block == block
                && look.sum == sum
                && !exam.wrong.iter().any(|wrong| wrong.look == **look)
        };
        let look = *exam.looks.iter().find(is_good)?;
        // Its own checksum need not be in memory: what is read must match that of what is wrong.
        (exam.mend_tries <= MEND_TRIES && !self.has_changed(exam.chunk, &look)).then_some(look)
    }

    /// What may stand in for a block has been read, or not.
    pub(super) fn stand_in_was_read(
        &mut self,
        wrong: Wrong,
        look: Look,
        buf: Buf,
        result: Result<(), DeviceError>,
    ) {
        let Some(mut exam) = self.mover.scrub.exam.take() else { return };
        let is_same =
            result.is_ok() && (self.io.arena.crc32c(buf) == wrong.look.sum || planted(Bug::MendUnverified));
        // Whoever has written here since has changed what counts.
        let changed = self.has_changed(exam.chunk, &wrong.look);
        let unsure = self.page_for(exam.chunk, &wrong.look).is_some();
        let may = matches!(wrong.look.held, Held::Landed(_)) || !self.has_changed(exam.chunk, &look);
        let mut began = false;
        if changed {
            exam.to_judge.pop_front();
            exam.mend_tries = 0;
            exam.doubt_again(wrong.look);
        } else if !is_same {
            // Not tried again: it is as wrong, or was never the same.
            exam.mend_tries = MEND_TRIES + 1;
        } else if may && !unsure {
            let was = match wrong.look.held {
                Held::Landed(z) => Some(self.state.zone.pos_of(z)),
                _ => None,
            };
            let (chunk, block) = (exam.chunk, wrong.look.block);
            let home = self.state.map.home(chunk);
            began = self.begin_mend(Mend { chunk, block, home, was, buf });
        }
        if began {
            exam.to_judge.pop_front();
            exam.mending = Some(wrong);
        } else {
            self.io.arena.free(buf);
            self.wanted.wake = true;
            if is_same && !changed {
                self.mend_waits(&mut exam);
            }
        }
        self.mover.scrub.exam = Some(exam);
    }

    /// A block is being written again. False: it is not in the log yet.
    pub(super) fn mend_goes_on(&mut self) -> bool {
        let Some(landed) = self.front.mends.take_end() else { return false };
        let Some(mut exam) = self.mover.scrub.exam.take() else { return false };
        let Some(wrong) = exam.mending.take() else { return false };
        if landed {
            exam.mend_tries = 0;
            if self.device_place(&wrong.look).0 == SLOW {
                // It is awake for the scrub: what is bad there is overwritten now, not at the next time that it is used.
                self.rouse_slow();
            }
            self.is_repaired(&exam, &wrong, "it was written again with what was found elsewhere");
        } else if !self.has_changed(exam.chunk, &wrong.look) && exam.mend_tries < MEND_TRIES {
            exam.to_judge.push_front(wrong);
            self.mend_waits(&mut exam);
        }
        self.mover.scrub.exam = Some(exam);
        true
    }

    /// Something is in the way, such as that the log has no room: it is tried again soon, and others may go on meanwhile, for
    /// they may be what makes room.
    fn mend_waits(&mut self, exam: &mut Exam) {
        exam.mend_tries += 1;
        self.let_chunk_go(exam);
        self.mover.scrub.next_at = self.io.now.after(WAIT_NS);
    }

    fn tell_of_wrong(&mut self, level: Level, exam: &Exam, wrong: &Wrong, then: &str) {
        let (tier, at) = self.device_place(&wrong.look);
        let byte = self.state.map.join(exam.chunk, wrong.look.block).0 * u64::from(BLOCK_BYTES);
        let what = if wrong.was_read { "does not match its checksum" } else { "cannot be read" };
        let name = &self.told.names[tier];
        self.told.event(
            level,
            format!("volume byte {byte}: the block on {name} at byte {at} {what}; {then}"),
            None,
        );
    }

    fn is_repaired(&mut self, exam: &Exam, wrong: &Wrong, how: &str) {
        self.tell_of_wrong(Level::Warning, exam, wrong, how);
        self.mover.scrub.repaired += 1;
        if exam.scrubs {
            self.mover.scrub.page.wrong += 1;
            self.mover.scrub.page.repaired += 1;
        }
    }

    fn is_lost(&mut self, exam: &mut Exam, wrong: &Wrong) {
        exam.mend_tries = 0;
        exam.bad_home |= matches!(wrong.look.held, Held::Home(_));
        if !self.stands(exam.chunk, &wrong.look) {
            return exam.doubt_again(wrong.look);
        }
        exam.lost.set(wrong.look.block);
        self.tell_of_wrong(Level::Error, exam, wrong, "it could not be repaired");
    }

    /// All of the chunk has been looked at.
    fn end_exam(&mut self, mut exam: Exam) {
        self.let_chunk_go(&mut exam);
        let shadows = exam.wrong.iter().filter(|wrong| matches!(wrong.look.held, Held::Shadow(..)));
        let shadows: Vec<Wrong> = shadows.copied().collect();
        for wrong in shadows {
            let Held::Shadow(home, slot) = wrong.look.held else { continue };
            // Where the home is bad there too, the block was noted as lost.
            let is_needed = exam.bad_home || exam.lost.has(wrong.look.block);
            if !is_needed {
                if self.space.shadows.get(home) == Some(slot) {
                    self.end_shadow(home);
                }
                self.is_repaired(&exam, &wrong, "it was a shadow, and has ended");
            }
        }
        if !exam.scrubs || !self.mover.scrub.is_running() || self.mover.scrub.page.next != exam.chunk {
            return;
        }
        let first = self.state.map.join(exam.chunk, 0).0;
        for (block, count) in exam.lost.runs() {
            let start = (first + u64::from(block)) * u64::from(BLOCK_BYTES);
            self.mover.scrub.page.wrong += u64::from(count);
            self.mover.scrub.lose(start..start + u64::from(count) * u64::from(BLOCK_BYTES));
        }
        self.mover.scrub.page.next.0 += 1;
    }
}
