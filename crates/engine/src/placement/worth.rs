//! Whether copies are worth making, and how many: what became of those that were made.
//!
//! A copy pays when it is read again before it gives way: it saved a seek (some 10 ms of the disk) and cost writing the SSD.
//! The rest of a chunk that comes along takes the disk some 1 ms, and pays when it saves a seek later.

use crate::api::economy::Economy;
use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// What copies have use for is counted in so many parts of the slots: a few hundred copies say nothing yet, and what was given
/// to homes meanwhile does not come back soon.
const PARTS: u64 = 8192;

/// Whether something was more than so much, and has not been less than half of that since: what is about as much as that
/// changes nothing.
#[derive(Default, Serialize, Deserialize)]
struct Proof(bool);

impl Proof {
    fn follow(&mut self, is: u64, proves: u64) {
        self.0 = is >= proves || self.0 && is * 2 >= proves;
    }
}

/// Chunks that streams read from the slow device once more, and for which no slot was free.
#[derive(Serialize, Deserialize)]
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
#[derive(Default, Serialize, Deserialize)]
struct Sample(u32);

impl Sample {
    fn is_due(&mut self, share: u32) -> bool {
        self.0 = self.0.wrapping_add(1);
        self.0.is_multiple_of(share)
    }
}

/// See the module.
#[derive(Serialize, Deserialize)]
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
    /// Those that were made have proved worth more than the least share, ...
    proved: Proof,
    /// ... or those that streams asked for would have.
    proved_by_streams: Proof,
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
            proved: Proof::default(),
            proved_by_streams: Proof::default(),
            economy: *economy,
        }
    }

    /// Slots that copies have use for, as far as experience goes, and what streams asked for of late.
    pub fn wanted(&self, now: Nanos) -> u32 {
        let wanted = u64::from(self.slots) * self.wanted / PARTS;
        let most = self.slots - self.slots / self.economy.copies_others_share;
        (wanted as u32).saturating_add(self.asked_lately(now)).min(most)
    }

    /// Whether copies have use for so much more than their least share that they are worth it.
    pub fn have_proved(&self, now: Nanos) -> bool {
        self.proved.0 || self.proved_by_streams.0 && self.are_asked_for(now)
    }

    fn want(&mut self, parts: u64) {
        let economy = &self.economy;
        let (least, others) = (u64::from(economy.copies_least_share), u64::from(economy.copies_others_share));
        let least = PARTS / least;
        self.wanted = parts.max(least).min(PARTS - PARTS / others);
        self.proved.follow(self.wanted.saturating_sub(least), PARTS / economy.copies_proved_share);
    }

    fn want_more(&mut self, parts: u64) {
        self.want(self.wanted + parts);
    }

    /// A stream would read a chunk from a copy, were there one.
    pub fn asked(&mut self, now: Nanos) {
        self.asked.another(now);
        let proves = u64::from(self.slots) / self.economy.copies_proved_share;
        self.proved_by_streams.follow(u64::from(self.asked_lately(now)), proves.max(1));
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
            self.want(self.wanted.saturating_sub(1));
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

    /// One copy that is read again, or one stream that finds no slot, says nothing; and what has proved worth it has until
    /// that is clearly over.
    #[test]
    fn copies_prove_worth_it_by_many_and_not_by_one() {
        let mut worth = Worth::new(6400, &Economy::default());
        let proves = (PARTS / worth.economy.copies_proved_share / worth.economy.copies_growth) as usize;
        (1..proves).for_each(|_| worth.learn(true));
        assert!(!worth.have_proved(Nanos(0)));
        worth.learn(true);
        assert!(worth.have_proved(Nanos(0)));
        for _ in 0..20 {
            (0..60).for_each(|_| worth.learn(false));
            assert!(worth.have_proved(Nanos(0)), "ups and downs around where it was proved change nothing");
            (0..15).for_each(|_| worth.learn(true));
        }
        (0..1000).for_each(|_| worth.learn(false));
        assert!(!worth.have_proved(Nanos(0)));
        (0..99).for_each(|_| worth.asked(Nanos(0)));
        assert!(!worth.have_proved(Nanos(0)), "streams asked for less than a 64th of the slots");
        worth.asked(Nanos(0));
        assert!(worth.have_proved(Nanos(0)));
        assert!(!worth.have_proved(Nanos(200 * Nanos::SECOND)), "nobody asks any more");
    }
}
