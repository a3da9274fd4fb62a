//! Whether a move is worth making, in time: how much sooner a chunk's touches are answered from the fast tier, beside
//! what it takes the slow device to move it. Both are measured, under whatever load there is; and of each chunk that rose it is
//! seen whether it repaid that.
//!
//! Nothing here holds back a move before both sides of it have been measured.

use crate::api::audit::{Audit, Yield};
use crate::api::economy::Economy;
use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// Where size classes of reads end, bytes; what is larger is the last class. A seek rules the first, the rate the last.
const CLASSES: [u32; 2] = [16 << 10, 128 << 10];

/// Unit of caution: a move up has to save so many times what it costs.
const CAUTION_UNIT: u32 = 64;

/// A mean of nanoseconds in which the newest count most.
#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
struct Mean {
    ns: u64,
    count: u64,
}

impl Mean {
    /// The newest is one of so many at least.
    fn another(&mut self, ns: u64, memory: u64) {
        self.count += 1;
        let weight = self.count.min(memory);
        self.ns = (self.ns * (weight - 1) + ns) / weight;
    }

    fn known(&self, least: u64) -> Option<u64> {
        (self.count >= least).then_some(self.ns)
    }
}

impl Yield {
    /// Nothing has been measured: every move is as good as its heat.
    pub const UNKNOWN: Yield = Yield { read_ns: None, write_ns: None, move_ns: None, caution: CAUTION_UNIT };

    /// A move up has to save so many times what it costs.
    pub fn caution(&self) -> f64 {
        f64::from(self.caution) / f64::from(CAUTION_UNIT)
    }

    /// The same where so many of so many parts of what a chunk was touched of late are to be expected of it again.
    pub fn believed(self, (parts, of): (u64, u64)) -> Yield {
        let share = |ns: u64| (u128::from(ns) * u128::from(parts) / u128::from(of.max(1))) as u64;
        Yield { read_ns: self.read_ns.map(share), write_ns: self.write_ns.map(share), ..self }
    }

    /// The same where nobody waits for the slow device, of whose time one part in so many is a cost then.
    pub fn in_idle_time(self, share: u64) -> Yield {
        Yield { move_ns: self.move_ns.map(|ns| ns / share), ..self }
    }

    /// What so many reads and writes take less time on the fast tier, ns; none where that is not known.
    fn saved_ns(&self, reads: u32, writes: u32) -> Option<u64> {
        let of =
            |count: u32, ns: Option<u64>| if count == 0 { Some(0) } else { Some(u64::from(count) * ns?) };
        Some(of(reads, self.read_ns)? + of(writes, self.write_ns)?)
    }

    /// What so many reads and writes are worth on the fast tier, to be compared with what others are. Where one of the two
    /// was not measured it counts as the other does.
    pub(super) fn worth(&self, reads: u32, writes: u32) -> u64 {
        let read_ns = self.read_ns.or(self.write_ns).unwrap_or(1);
        u64::from(reads) * read_ns + u64::from(writes) * self.write_ns.unwrap_or(read_ns)
    }

    /// Whether a chunk with so many reads and writes repays rising, if it is touched as often again as it was of late. `over`
    /// is what the chunk that gives way to it has been touched, if one does.
    pub fn pays(&self, (reads, writes): (u32, u32), over: Option<(u32, u32)>) -> bool {
        let (Some(saved), Some(move_ns)) = (self.saved_ns(reads, writes), self.move_ns) else { return true };
        let lost = match over {
            None => 0,
            Some((reads, writes)) => self.saved_ns(reads, writes).unwrap_or(0),
        };
        let moves = 1 + u64::from(over.is_some());
        saved > lost && (saved - lost) * u64::from(CAUTION_UNIT) > moves * move_ns * u64::from(self.caution)
    }
}

/// Touches of a chunk since it rose.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct Trial {
    /// Reads and writes, one more than there were, so that 0 and 0 is no trial.
    reads: u8,
    writes: u8,
}

/// See the module.
#[derive(Serialize, Deserialize)]
pub struct Benefit {
    /// By tier and size class.
    reads: [[Mean; CLASSES.len() + 1]; 2],
    /// Chunks that were moved, and how long the slow device worked for it, ns.
    moved: u64,
    worked_ns: u64,
    caution: u32,
    /// By fast slot: what is at home there, if it rose, and was not judged yet.
    trials: Vec<Trial>,
    /// Since caution was set last.
    recent: [u32; 2],
    judged: u64,
    repaid: u64,
    economy: Economy,
}

/// What the trials of so many fast slots take.
pub(crate) fn ram_bytes(fast_slots: u64) -> u64 {
    fast_slots * size_of::<Trial>() as u64
}

impl Benefit {
    /// Of a volume with so many fast slots; nothing is known yet.
    pub fn new(fast_slots: u32, economy: &Economy) -> Benefit {
        Benefit {
            reads: Default::default(),
            moved: 0,
            worked_ns: 0,
            caution: economy.caution_first,
            trials: vec![Trial::default(); fast_slots as usize],
            recent: [0; 2],
            judged: 0,
            repaid: 0,
            economy: *economy,
        }
    }

    /// A device answered a client's read of so many bytes after so long.
    pub fn read(&mut self, tier: Tier, bytes: u32, took_ns: u64) {
        let class = CLASSES.iter().filter(|end| bytes > **end).count();
        self.reads[usize::from(tier.0)][class].another(took_ns, self.economy.latency_memory);
    }

    /// So many chunks were moved, for which the slow device worked so long.
    pub fn moved(&mut self, chunks: u64, worked_ns: u64) {
        if self.moved >= self.economy.move_cost_memory {
            (self.moved, self.worked_ns) = (self.moved / 2, self.worked_ns / 2);
        }
        (self.moved, self.worked_ns) = (self.moved + chunks, self.worked_ns + worked_ns);
    }

    /// What moves save and cost now, where merging a block takes so long.
    pub fn yields(&self, write_ns: Option<u64>) -> Yield {
        // The mix of sizes is the slow tier's: those reads would change tiers.
        let (pairs, least) = (self.reads[0].iter().zip(&self.reads[1]), self.economy.least_known);
        let (mut saved, mut count) = (0i128, 0u64);
        for (fast, slow) in pairs {
            if let (Some(fast), Some(slow_ns)) = (fast.known(least), slow.known(least)) {
                saved += (i128::from(slow_ns) - i128::from(fast)) * i128::from(slow.count);
                count += slow.count;
            }
        }
        let read_ns = (count > 0).then(|| (saved / i128::from(count)).max(0) as u64);
        let move_ns = (self.moved >= least).then(|| self.worked_ns / self.moved);
        Yield { read_ns, write_ns, move_ns, caution: self.caution }
    }

    /// A chunk rose into this slot.
    pub fn rose(&mut self, slot: Slot) {
        self.trials[slot.0 as usize] = Trial { reads: 1, writes: 1 };
    }

    /// What is at home in this slot was touched.
    pub fn touched(&mut self, slot: Slot, write: bool, yields: &Yield) {
        let trial = &mut self.trials[slot.0 as usize];
        if trial.reads == 0 {
            return;
        }
        let counter = if write { &mut trial.writes } else { &mut trial.reads };
        *counter = counter.saturating_add(1);
        if self.has_repaid(slot, yields) == Some(true) {
            self.judge(slot, true);
        }
    }

    /// What was at home in this slot has left it.
    pub fn left(&mut self, slot: Slot, yields: &Yield) {
        if self.trials[slot.0 as usize].reads == 0 {
            return;
        }
        match self.has_repaid(slot, yields) {
            Some(repaid) => self.judge(slot, repaid),
            None => self.trials[slot.0 as usize] = Trial::default(),
        }
    }

    /// Whether a trial's touches saved what rising and going down take.
    fn has_repaid(&self, slot: Slot, yields: &Yield) -> Option<bool> {
        let Trial { reads, writes } = self.trials[slot.0 as usize];
        let saved = yields.saved_ns(u32::from(reads) - 1, u32::from(writes) - 1)?;
        Some(saved >= 2 * yields.move_ns?)
    }

    fn judge(&mut self, slot: Slot, repaid: bool) {
        self.trials[slot.0 as usize] = Trial::default();
        (self.judged, self.repaid) = (self.judged + 1, self.repaid + u64::from(repaid));
        let [judged, good] = &mut self.recent;
        (*judged, *good) = (*judged + 1, *good + u32::from(repaid));
        let economy = &self.economy;
        if *judged == economy.caution_judged {
            let caution = match *good {
                few if few * 2 < *judged => self.caution * 5 / 4,
                most if most * 5 > *judged * 4 => self.caution * 9 / 10,
                _ => self.caution,
            };
            self.caution = caution.clamp(economy.caution_least, economy.caution_most);
            self.recent = [0; 2];
        }
    }

    /// How chunks that rose have done.
    pub fn audit(&self, write_ns: Option<u64>) -> Audit {
        Audit { judged: self.judged, repaid: self.repaid, yields: self.yields(write_ns) }
    }

    /// Bytes of RAM.
    pub fn ram_bytes(&self) -> u64 {
        ram_bytes(self.trials.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = Nanos::MS;
    const LEAST_KNOWN: u64 = 16;

    fn new(fast_slots: u32) -> Benefit {
        Benefit::new(fast_slots, &Economy::default())
    }

    fn measured(fast_ms: u64, slow_ms: u64, move_ms: u64) -> Benefit {
        let mut benefit = new(100);
        (0..LEAST_KNOWN).for_each(|_| {
            benefit.read(FAST, 4096, fast_ms * MS);
            benefit.read(SLOW, 4096, slow_ms * MS);
        });
        benefit.moved(LEAST_KNOWN, LEAST_KNOWN * move_ms * MS);
        benefit
    }

    #[test]
    fn what_was_not_measured_holds_nothing_back() {
        let yields = new(1).yields(None);
        assert_eq!(yields, Yield { caution: Economy::default().caution_first, ..Yield::UNKNOWN });
        assert!(yields.pays((1, 0), Some((9, 9))));
        assert!(measured(1, 11, 5).yields(None).pays((0, 1), None), "what writes cost is not known");
    }

    #[test]
    fn a_move_pays_when_it_saves_more_than_it_costs_with_caution() {
        let yields = measured(1, 11, 20).yields(Some(5 * MS));
        assert_eq!((yields.read_ns, yields.move_ns), (Some(10 * MS), Some(20 * MS)));
        // 3 times 20 ms up; 3 times 40 ms up and down.
        assert!(!yields.pays((6, 0), None));
        assert!(yields.pays((7, 0), None));
        assert!(!yields.pays((12, 0), Some((0, 0))));
        assert!(yields.pays((13, 0), Some((0, 0))));
        assert!(!yields.pays((13, 0), Some((1, 0))), "what gives way was worth something as well");
        assert!(yields.pays((13, 2), Some((1, 0))));
    }

    #[test]
    fn what_nobody_waits_for_costs_an_eighth() {
        let yields = measured(1, 11, 20).yields(None);
        assert!(!yields.pays((3, 0), Some((0, 0))));
        assert!(yields.in_idle_time(8).pays((3, 0), Some((0, 0))));
        assert!(!yields.in_idle_time(8).pays((3, 0), Some((3, 0))), "nothing is gained");
    }

    #[test]
    fn nothing_rises_to_a_device_that_is_no_faster_under_its_load() {
        let yields = measured(15, 11, 1).yields(Some(0));
        assert_eq!(yields.read_ns, Some(0));
        assert!(!yields.pays((255, 255), None));
    }

    #[test]
    fn reads_are_compared_with_those_of_their_size() {
        let mut benefit = measured(1, 11, 1);
        (0..LEAST_KNOWN).for_each(|_| benefit.read(SLOW, 1 << 20, 500 * MS));
        assert_eq!(benefit.yields(None).read_ns, Some(10 * MS), "none of that size was fast");
        (0..LEAST_KNOWN).for_each(|_| benefit.read(FAST, 1 << 20, 480 * MS));
        assert_eq!(benefit.yields(None).read_ns, Some(15 * MS));
    }

    #[test]
    fn caution_grows_while_moves_are_not_repaid_and_shrinks_while_they_are() {
        let mut benefit = measured(1, 11, 10);
        let yields = benefit.yields(Some(MS));
        let trial = |benefit: &mut Benefit, reads: u32| {
            benefit.rose(Slot(7));
            (0..reads).for_each(|_| benefit.touched(Slot(7), false, &yields));
            benefit.left(Slot(7), &yields);
        };
        let Economy { caution_first, caution_least, caution_most, caution_judged, .. } = Economy::default();
        (0..caution_judged).for_each(|_| trial(&mut benefit, 1));
        assert_eq!(benefit.caution, caution_first * 5 / 4);
        (0..caution_judged).for_each(|_| trial(&mut benefit, 2));
        assert_eq!(benefit.caution, caution_first * 5 / 4 * 9 / 10);
        (0..20 * caution_judged).for_each(|_| trial(&mut benefit, 3));
        assert_eq!(benefit.caution, caution_least);
        (0..20 * caution_judged).for_each(|_| trial(&mut benefit, 0));
        assert_eq!(benefit.caution, caution_most);
        let audit = benefit.audit(None);
        assert_eq!(
            (audit.judged, audit.repaid),
            (u64::from(42 * caution_judged), u64::from(21 * caution_judged))
        );
    }
}
