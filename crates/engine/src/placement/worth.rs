//! Whether copies are worth making, and how many: what became of those that were made.

use bimetal_units::*;

/// A copy pays when it is read again before it gives way: it saved a seek (some 10 ms of the disk) and cost writing the
/// SSD. While fewer than one in this many are read again ...
const REPAID_SHARE: u32 = 8;
/// ... only one read in this many is copied, to find out when that changes.
const SAMPLE_SHARE: u32 = 16;
/// The rest of a chunk that comes along pays when it saves one read in this many later: it takes the disk some 1 ms,
/// and a seek some 10 ms; but the SSD is written with it.
const SAVED_SHARE: u32 = 4;
/// Copies that gave way, or chunks read as a whole, after which what came of them counts half: so much is remembered.
const MEMORY: u32 = 1024;
/// Nothing is concluded from fewer.
const LEAST_KNOWN: u32 = MEMORY / 4;
/// What streams had to leave without a copy counts for this long, ns, and up to twice as long: what is read round and round
/// from a disk comes by again within minutes.
const ASKED_NS: u64 = 60 * Nanos::SECOND;

/// Copies have use for one fast slot in this many at least, while the slow tier has room for what is at home there.
/// Replays of three recorded traces with a fast tier of a tenth of what they touch gave mean responses 14, 16 and 10 %
/// below those without; with a quarter, one of them became slower again.
pub(crate) const LEAST_SHARE: u32 = 8;
/// They have use for all but one in this many at most.
const OTHERS_SHARE: u32 = 8;
/// Each copy that gave way after it had been read was worth its place: copies have use for so many more parts of the slots.
/// One that had not takes one away. A trace of reads alone was answered 1.2 times as fast as with [`LEAST_SHARE`]
/// throughout.
const GROWTH: u64 = 4;
/// What was asked for again soon after its copy gave way would have been found among more of them.
const MISSED_GROWTH: u64 = 12;
/// What that is a part of: few hundred copies say nothing yet, and what was given to homes meanwhile does not come back soon.
const PARTS: u64 = 8192;

/// Chunks that streams read from the slow device once more, and for which no slot was free.
#[derive(Default)]
struct Asked {
    since: Nanos,
    count: u32,
    /// Of the period before.
    before: u32,
}

impl Asked {
    fn another(&mut self, now: Nanos) {
        if now.since(self.since) >= ASKED_NS {
            self.before = if now.since(self.since) < 2 * ASKED_NS { self.count } else { 0 };
            (self.since, self.count) = (now, 0);
        }
        self.count = self.count.saturating_add(1);
    }

    fn lately(&self, now: Nanos) -> u32 {
        match now.since(self.since) / ASKED_NS {
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
    fn is_due(&mut self) -> bool {
        self.0 = self.0.wrapping_add(1);
        self.0.is_multiple_of(SAMPLE_SHARE)
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
}

impl Worth {
    /// Without experience, of a volume with so many fast slots.
    pub fn new(slots: u32) -> Worth {
        Worth {
            ended: 0,
            repaid: 0,
            whole: 0,
            saved: 0,
            copies: Sample::default(),
            wholes: Sample::default(),
            wanted: PARTS / u64::from(LEAST_SHARE),
            slots,
            asked: Asked::default(),
        }
    }

    /// Slots that copies have use for, as far as experience goes, and what streams asked for of late.
    pub fn wanted(&self, now: Nanos) -> u32 {
        let wanted = u64::from(self.slots) * self.wanted / PARTS;
        (wanted as u32).saturating_add(self.asked_lately(now)).min(self.slots - self.slots / OTHERS_SHARE)
    }

    fn want_more(&mut self, parts: u64) {
        self.wanted = (self.wanted + parts).min(PARTS - PARTS / u64::from(OTHERS_SHARE));
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
        let pays = self.ended < LEAST_KNOWN || self.repaid * REPAID_SHARE >= self.ended;
        pays || self.rest_pays() || self.copies.is_due()
    }

    fn rest_pays(&self) -> bool {
        self.whole < LEAST_KNOWN || self.saved.saturating_mul(SAVED_SHARE) >= self.whole
    }

    /// Whether the rest of a chunk is to be read along with what is asked for.
    pub fn whole_pays(&mut self) -> bool {
        let pays = self.rest_pays() || self.wholes.is_due();
        if pays {
            self.whole += 1;
            if self.whole >= MEMORY {
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
        self.want_more(MISSED_GROWTH);
    }

    /// A copy of what clients asked for has ended: whether it was read.
    pub fn learn(&mut self, repaid: bool) {
        if repaid {
            self.want_more(GROWTH);
        } else {
            self.wanted = (self.wanted - 1).max(PARTS / u64::from(LEAST_SHARE));
        }
        self.ended += 1;
        self.repaid += u32::from(repaid);
        if self.ended >= MEMORY {
            (self.ended, self.repaid) = (self.ended / 2, self.repaid / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_streams_ask_for_is_wanted_for_a_while() {
        let mut worth = Worth::new(800);
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
        let mut worth = Worth::new(800);
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
        let mut worth = Worth::new(800);
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
        let mut worth = Worth::new(800);
        let wholes = |worth: &mut Worth| (0..1600).filter(|_| worth.whole_pays()).count();
        assert!((100..=LEAST_KNOWN as usize + 100).contains(&wholes(&mut worth)), "a sample alone");
        (0..MEMORY).for_each(|_| worth.saved());
        assert!(wholes(&mut worth) > 500, "it has been worth it");
        (0..2 * MEMORY).for_each(|_| worth.learn(false));
        (0..20).for_each(|_| _ = wholes(&mut worth));
        let copied = (0..1600).filter(|_| worth.copies_pay()).count();
        assert_eq!(copied, 100, "neither pays");
    }
}
