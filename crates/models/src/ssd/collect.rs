//! Garbage collection: beside the host's writes when space is short, and ahead of them while nobody asks.

use super::Ssd;
use super::ftl::Victim;

/// The command that the collector's own reads belong to: none of the host's.
const COLLECTOR: u64 = u64::MAX;
/// What the collector is not worth its wear for: a victim of which more than this (percent) is still valid.
const BACKGROUND_VALID_PERCENT: u64 = 95;

/// What the collector is at.
#[derive(Debug, Default)]
pub(super) struct Collector {
    victim: Option<Victim>,
    /// How far the cursor must have come, in units of the victim times its invalid units at the start.
    owed: u64,
    /// When the units of the open page have been read.
    ready: u64,
    /// The physical page read last.
    page: Option<(u32, u32)>,
}

impl Ssd {
    /// The host has used `units` of flash: does the collector's share, so that a victim is empty by the time the
    /// host has used what it frees.
    pub(super) fn collect_share(&mut self, now: u64, units: u32) {
        if self.collector.victim.is_none() {
            if self.ftl.free_superblocks() > self.collect_below {
                return;
            }
            self.choose_victim();
        }
        let Some(victim) = self.collector.victim else { return };
        let gain = u64::from(self.ftl.units_per_superblock() - victim.valid).max(1);
        self.collector.owed += u64::from(units) * u64::from(victim.units);
        let target = self.collector.owed.div_ceil(gain).min(u64::from(victim.units)) as u32;
        self.collect_until(now, target);
    }

    /// Makes sure that a stream can open a superblock, whatever it takes.
    pub(super) fn collect_for_room(&mut self, now: u64) {
        while self.ftl.free_superblocks() <= 1 {
            if self.collector.victim.is_none() {
                self.choose_victim();
            }
            self.collect_until(now, u32::MAX);
        }
    }

    fn choose_victim(&mut self) {
        self.collector.victim = self.ftl.fewest_valid(false);
        self.collector.owed = 0;
        self.collector.page = None;
    }

    /// Moves what is valid before `target` in the victim; frees the victim when all has been moved.
    fn collect_until(&mut self, now: u64, target: u32) {
        let Some(mut victim) = self.collector.victim else { return };
        let target = target.min(victim.units);
        while victim.cursor < target {
            if let Some((unit, physical)) = self.ftl.step(&mut victim) {
                self.relocate(now, unit, physical);
            }
        }
        if victim.cursor == victim.units {
            self.ftl.free(&victim);
            let end = self.flash.erase_all(now);
            self.queue.busy(now, end);
            self.collector.victim = None;
        } else {
            self.collector.victim = Some(victim);
        }
    }

    fn relocate(&mut self, now: u64, unit: u32, physical: u32) {
        let page = self.ftl.page_of(physical);
        if self.collector.page.replace((page.superblock, page.number)) != Some((page.superblock, page.number))
        {
            let die = page.number % self.dies;
            let read = self.flash.read(now, die, self.page_bytes, page.slc, COLLECTOR);
            self.collector.ready = self.collector.ready.max(read);
        }
        if self.ftl.is_full(&self.collecting) {
            self.ftl.open(&mut self.collecting, false);
        }
        let target = self.ftl.next_page(&self.collecting);
        self.ftl.append(&mut self.collecting, unit);
        self.moved_units += 1;
        if let Some(target) = target.filter(|_| self.ftl.at_page_start(&self.collecting)) {
            let die = target.number % self.dies;
            let end = self.flash.program(now, self.collector.ready, die, self.page_bytes, false);
            self.queue.busy(now, end);
            self.collector.ready = 0;
        }
    }

    /// Nobody has asked for a while: empties the SLC cache and collects garbage, in the time up to `now`.
    pub(super) fn collect_in_background(&mut self, now: u64) {
        let begin = self.asked_until.saturating_add(self.params.ftl.background_after_ns);
        while begin < now && self.ftl.free_superblocks() > 1 {
            // The dies are given work for as long as there is time; what the last of them began is finished late.
            let Some(next) = self.next_collected_die().filter(|&die| self.flash.free_at(die) < now) else {
                break;
            };
            if self.collector.victim.is_none() && !self.choose_background_victim() {
                break;
            }
            let Some(victim) = self.collector.victim else { break };
            let from = begin.max(self.flash.free_at(next));
            self.collect_until(from, victim.cursor + self.ftl.units_per_page());
        }
    }

    /// The die that the collector's next page goes to.
    fn next_collected_die(&self) -> Option<u32> {
        if self.params.ftl.background_free_percent == 0 && self.slc_superblocks == 0 {
            return None;
        }
        Some(self.ftl.next_page(&self.collecting).map_or(0, |page| page.number % self.dies))
    }

    fn choose_background_victim(&mut self) -> bool {
        let mut victim = self.ftl.fewest_valid(true);
        if victim.is_none() && self.ftl.free_superblocks() < self.background_free {
            let most = u64::from(self.ftl.units_per_superblock()) * BACKGROUND_VALID_PERCENT / 100;
            victim = self.ftl.fewest_valid(false).filter(|victim| u64::from(victim.valid) <= most);
        }
        self.collector = Collector { victim, owed: 0, page: None, ..self.collector };
        victim.is_some()
    }
}
