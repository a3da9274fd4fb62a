//! How fast is written back: the controller of the kernel's `writeback.c`.

use bimetal_units::Nanos;

/// Sectors of a block: the kernel counts in those.
const SECTORS: f64 = 8.0;
/// The share of the cache that may stay dirty, percent: `writeback_percent`.
const DIRTY_PERCENT: u64 = 10;
/// How often the pace is set, nanoseconds: `writeback_rate_update_seconds`.
const UPDATE_NS: u64 = 5 * Nanos::SECOND;
/// Sectors a second for each sector too many: one over `writeback_rate_p_term_inverse`.
const PROPORTIONAL: f64 = 1.0 / 40.0;
/// The same for each sector too many and second: one over `writeback_rate_i_term_inverse`.
const INTEGRAL: f64 = 1.0 / 10_000.0;
/// Sectors a second at least: `writeback_rate_minimum`.
const LEAST: f64 = 8.0;
/// Updates without a command after which there is no limit: 30 s.
const IDLE_UPDATES: u32 = 6;
/// Nothing is written back before the first write is so old, nanoseconds: `writeback_delay`.
const DELAY_NS: u64 = 30 * Nanos::SECOND;

/// The pace of writing back.
pub(super) struct Pace {
    target_sectors: f64,
    integral: f64,
    /// Sectors a second; none where there is no limit.
    rate: Option<f64>,
    idle_updates: u32,
    next_update: Nanos,
    next_write: Nanos,
    /// Writing back has begun at some time, or will.
    running: bool,
}

impl Pace {
    /// For a cache of so many blocks.
    pub(super) fn new(blocks: u64) -> Pace {
        Pace {
            target_sectors: (blocks * DIRTY_PERCENT / 100) as f64 * SECTORS,
            integral: 0.0,
            rate: Some(LEAST),
            idle_updates: 0,
            next_update: Nanos(0),
            next_write: Nanos(0),
            running: false,
        }
    }

    /// A client asks for something.
    pub(super) fn busy(&mut self, now: Nanos) {
        self.idle_updates = 0;
        if self.rate.is_none() {
            self.rate = Some(LEAST);
        }
        if !self.running {
            self.running = true;
            self.next_update = now.after(UPDATE_NS);
            self.next_write = now.after(DELAY_NS);
        }
    }

    /// Sets the pace where the time for that has come. `is_dirty`: there is anything to be written back.
    pub(super) fn update(&mut self, now: Nanos, dirty_blocks: u64, is_dirty: bool) {
        if !self.running || now < self.next_update {
            return;
        }
        self.next_update = now.after(UPDATE_NS);
        self.idle_updates += 1;
        if self.idle_updates >= IDLE_UPDATES {
            self.rate = None;
            self.integral = 0.0;
            self.running = is_dirty;
            return;
        }
        let too_many = dirty_blocks as f64 * SECTORS - self.target_sectors;
        // The kernel lets the integral grow only while the disk keeps up, and never below zero where nothing is over.
        self.integral = (self.integral + too_many * (UPDATE_NS / Nanos::SECOND) as f64).max(0.0);
        self.rate = Some((too_many * PROPORTIONAL + self.integral * INTEGRAL).max(LEAST));
    }

    pub(super) fn may_write(&self, now: Nanos) -> bool {
        self.running && (self.rate.is_none() || now >= self.next_write)
    }

    /// So many blocks were begun.
    pub(super) fn wrote(&mut self, now: Nanos, blocks: u64) {
        if let Some(rate) = self.rate {
            let ns = (blocks as f64 * SECTORS / rate * Nanos::SECOND as f64) as u64;
            // What was not used for long is not saved up.
            self.next_write = self.next_write.max(now).after(ns.max(1));
        }
    }

    /// When something is to be done; `ready`: there is something to write back, and room to do so.
    pub(super) fn wake_at(&self, ready: bool) -> Option<Nanos> {
        if !self.running {
            return None;
        }
        match ready && self.rate.is_some() {
            true => Some(self.next_update.min(self.next_write)),
            false => Some(self.next_update),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_dirt_is_written_back_faster_and_idle_time_knows_no_limit() {
        let mut pace = Pace::new(1000);
        assert_eq!(pace.wake_at(true), None);
        pace.busy(Nanos(0));
        let second = |n: u64| Nanos(n * Nanos::SECOND);
        let mut rates = Vec::new();
        for (n, dirty) in [(5, 50), (10, 500), (15, 900)] {
            pace.busy(second(n));
            pace.update(second(n), dirty, true);
            rates.push(pace.rate.unwrap_or(0.0));
        }
        assert!(rates[0] == LEAST && rates[1] > 79.0 && rates[2] > rates[1], "{rates:?}");
        for n in 4..10 {
            pace.update(second(5 * n), 900, true);
        }
        assert!(pace.rate.is_none() && pace.may_write(second(46)));
        pace.update(second(50), 0, false);
        assert_eq!(pace.wake_at(false), None);
    }
}
