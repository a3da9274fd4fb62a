//! Whether copies are worth making, and how many: what became of those that were made.
//!
//! A copy pays when it is read again before it gives way: it saved a seek (some 10 ms of the disk) and cost writing the SSD.
//! The rest of a chunk that comes along takes the disk some 1 ms, and pays when it saves a seek later.

use crate::api::economy::Economy;
use bimetal_units::*;

/// What copies have use for is counted in so many parts of the slots: a few hundred copies say nothing yet, and what was given
/// to homes meanwhile does not come back soon.
const PARTS: u64 = 8192;

/// Chunks that streams read from the slow device once more, and for which no slot was free.
struct Asked {
    /// How long that counts, ns.
    period_ns: u64,
    since: Nanos,
    count: u32,
    /// Of the period before.
    before: u32,
}

impl Asked {
    fn new(period_ns: u64) -> Asked {
        Asked { period_ns, since: Nanos::default(), count: 0, before: 0 }
    }

    fn another(&mut self, now: Nanos) {
        if now.since(self.since) >= self.period_ns {
            self.before = if now.since(self.since) < 2 * self.period_ns { self.count } else { 0 };
            (self.since, self.count) = (now, 0);
        }
        self.count = self.count.saturating_add(1);
    }

    fn lately(&self, now: Nanos) -> u32 {
        match now.since(self.since) / self.period_ns {
            0 => self.count.saturating_add(self.before),
            1 => self.count,
            _ => 0,
        }
    }
}

/// One in so many of what is not worth it, to find out when that changes.
#[derive(Default)]
struct Sample(u32);

impl Sample {
    fn is_due(&mut self, share: u32) -> bool {
        self.0 = self.0.wrapping_add(1);
        self.0.is_multiple_of(share)
    }
}

/// See the module.
pub struct Worth {
    /// Copies of what clients asked for that gave way, and those of them that were read at least once, of late.
    ended: u32,
    repaid: u32,
    /// Chunks that were read as a whole, and seeks that what came along has saved, of late.
    whole: u32,
    saved: u32,
    copies: Sample,
    wholes: Sample,
    /// What copies have use for, of all slots, in [`PARTS`].
    wanted: u64,
    slots: u32,
    asked: Asked,
    economy: Economy,
}

impl Worth {
    /// Without experience, of a volume with so many fast slots.
    pub fn new(slots: u32, economy: &Economy) -> Worth {
        Worth {
            ended: 0,
            repaid: 0,
            whole: 0,
            saved: 0,
            copies: Sample::default(),
            wholes: Sample::default(),
            wanted: PARTS / u64::from(economy.copies_least_share),
            slots,
            asked: Asked::new(economy.copies_asked_ns),
            economy: *economy,
        }
    }

    /// Slots that copies have use for, as far as experience goes, and what streams asked for of late.
    pub fn wanted(&self, now: Nanos) -> u32 {
        let wanted = u64::from(self.slots) * self.wanted / PARTS;
        let most = self.slots - self.slots / self.economy.copies_others_share;
        (wanted as u32).saturating_add(self.asked_lately(now)).min(most)
    }

    fn want_more(&mut self, parts: u64) {
        let most = PARTS - PARTS / u64::from(self.economy.copies_others_share);
        self.wanted = (self.wanted + parts).min(most);
    }

    /// A stream would read a chunk from a copy, were there one.
    pub fn asked(&mut self, now: Nanos) {
        self.asked.another(now);
    }

    /// Chunks for which streams found no slot lately.
    pub fn asked_lately(&self, now: Nanos) -> u32 {
        self.asked.lately(now)
    }

    /// Whether a stream comes by again and again where there was no slot for it.
    pub fn are_asked_for(&self, now: Nanos) -> bool {
        self.asked_lately(now) > 0
    }

    /// Whether what is being read is to be copied.
    pub fn copies_pay(&mut self) -> bool {
        let pays =
            self.ended < self.least_known() || self.repaid * self.economy.copies_repaid_share >= self.ended;
        pays || self.rest_pays() || self.copies.is_due(self.economy.copies_sample_share)
    }

    fn rest_pays(&self) -> bool {
        let share = self.economy.copies_saved_share;
        self.whole < self.least_known() || self.saved.saturating_mul(share) >= self.whole
    }

    /// Nothing is concluded from fewer.
    fn least_known(&self) -> u32 {
        self.economy.copies_memory / 4
    }

    /// Whether the rest of a chunk is to be read along with what is asked for.
    pub fn whole_pays(&mut self) -> bool {
        let pays = self.rest_pays() || self.wholes.is_due(self.economy.copies_sample_share);
        if pays {
            self.whole += 1;
            if self.whole >= self.economy.copies_memory {
                (self.whole, self.saved) = (self.whole / 2, self.saved / 2);
            }
        }
        pays
    }

    /// A read was served by what had come along.
    pub fn saved(&mut self) {
        self.saved = self.saved.saturating_add(1);
        self.want_more(1);
    }

    /// A client read from the slow device what had had a copy not long before.
    pub fn missed(&mut self) {
        self.want_more(self.economy.copies_missed_growth);
    }

    /// A copy of what clients asked for has ended: whether it was read.
    pub fn learn(&mut self, repaid: bool) {
        if repaid {
            self.want_more(self.economy.copies_growth);
        } else {
            let least = PARTS / u64::from(self.economy.copies_least_share);
            self.wanted = (self.wanted - 1).max(least);
        }
        self.ended += 1;
        self.repaid += u32::from(repaid);
        if self.ended >= self.economy.copies_memory {
            (self.ended, self.repaid) = (self.ended / 2, self.repaid / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_streams_ask_for_is_wanted_for_a_while() {
        let mut worth = Worth::new(800, &Economy::default());
        let at = |seconds: u64| Nanos(seconds * Nanos::SECOND);
        (100..120).for_each(|second| worth.asked(at(second)));
        assert_eq!(worth.wanted(at(120)), 120);
        assert!(worth.are_asked_for(at(219)), "for a period more");
        assert!(!worth.are_asked_for(at(221)));
        (0..5000).for_each(|_| worth.asked(at(230)));
        assert_eq!(worth.wanted(at(230)), 700, "others keep theirs");
        worth.asked(at(295));
        assert_eq!(worth.asked.lately(at(295)), 5001);
        worth.asked(at(500));
        assert_eq!(worth.asked.lately(at(500)), 1);
    }

    #[test]
    fn copies_that_are_read_again_get_more_slots_and_others_fewer() {
        let mut worth = Worth::new(800, &Economy::default());
        assert_eq!(worth.wanted(Nanos(0)), 100);
        worth.learn(false);
        assert_eq!(worth.wanted(Nanos(0)), 100, "never below their share");
        (0..520).for_each(|_| worth.learn(true));
        (0..32).for_each(|_| worth.learn(false));
        assert_eq!(worth.wanted(Nanos(0)), 300);
        (0..5000).for_each(|_| worth.learn(true));
        assert_eq!(worth.wanted(Nanos(0)), 700, "others keep theirs");
    }

    #[test]
    fn copies_that_are_missed_get_more_slots_though_most_are_never_read() {
        let mut worth = Worth::new(800, &Economy::default());
        (0..2560).for_each(|n| {
            worth.learn(false);
            if n % 5 == 0 {
                worth.missed();
            }
        });
        // 512 times 12 parts more, 2,560 times one less; the first was one too many.
        assert_eq!(worth.wanted(Nanos(0)), 100 + 800 * (512 * 12 - 2559) / 8192);
    }

    #[test]
    fn chunks_are_read_as_a_whole_while_that_saves_seeks() {
        let mut worth = Worth::new(800, &Economy::default());
        let wholes = |worth: &mut Worth| (0..1600).filter(|_| worth.whole_pays()).count();
        let (least, memory) = (worth.least_known(), worth.economy.copies_memory);
        assert!((100..=least as usize + 100).contains(&wholes(&mut worth)), "a sample alone");
        (0..memory).for_each(|_| worth.saved());
        assert!(wholes(&mut worth) > 500, "it has been worth it");
        (0..2 * memory).for_each(|_| worth.learn(false));
        (0..20).for_each(|_| _ = wholes(&mut worth));
        let copied = (0..1600).filter(|_| worth.copies_pay()).count();
        assert_eq!(copied, 100, "neither pays");
    }
}
