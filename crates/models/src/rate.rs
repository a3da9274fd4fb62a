//! Serial resources in virtual time: what a link, a channel or a controller adds to a command.

/// A data rate, as the time of a byte in fixed point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// Nanoseconds per byte, times 2^20.
    per_byte: u64,
}

impl Rate {
    /// `bytes_per_s` is not 0.
    pub fn new(bytes_per_s: u64) -> Rate {
        Rate { per_byte: (1_000_000_000 << 20) / bytes_per_s }
    }

    /// What so many bytes take.
    pub fn ns(self, bytes: u64) -> u64 {
        ((u128::from(bytes) * u128::from(self.per_byte)) >> 20) as u64
    }
}

/// A resource that serves one at a time.
///
/// Its capacity is handed out in the order of the calls, from the time of the call, even where the work comes later
/// (data to be transferred when the flash has been read). So one late transfer does not hold up the earlier ones of
/// those who ask next, and never more is handed out than there is; in return a burst of late transfers may overlap.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meter {
    free_at: u64,
}

impl Meter {
    /// Hands out `cost` nanoseconds from `now` on; when they are over.
    pub fn take(&mut self, now: u64, cost: u64) -> u64 {
        self.free_at = self.free_at.max(now) + cost;
        self.free_at
    }
}

/// The time of a die, a channel or a link, which does one thing at a time.
///
/// Long work queues up behind itself. What is urgent passes the long work that has not begun, waits for the step that
/// has, and puts the rest off: a program that was promised for a time is not moved, those given later are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Line {
    urgent_until: u64,
    long_until: u64,
    /// The latest step of long work.
    step_ns: u64,
}

impl Line {
    /// When something urgent can start; a step that has begun is suspended after so long.
    pub fn urgent_at(&self, now: u64, suspend_ns: u64) -> u64 {
        let ahead = self.long_until.saturating_sub(now);
        let begun = if ahead == 0 { 0 } else { (ahead % self.step_ns).min(suspend_ns) };
        self.urgent_until.max(now + begun)
    }

    /// Something urgent takes `ns` up to `end`.
    pub fn take_urgent(&mut self, now: u64, end: u64, ns: u64) {
        if self.long_until > now {
            self.long_until += ns;
        }
        self.urgent_until = end;
    }

    /// Long work is given up to `end`, in steps of so long.
    pub fn take_long(&mut self, end: u64, step_ns: u64) {
        self.long_until = end;
        self.step_ns = step_ns;
    }

    /// When all that was given to it is over.
    pub fn free_at(&self) -> u64 {
        self.urgent_until.max(self.long_until)
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, Meter, Rate};

    #[test]
    fn a_rate_is_exact_enough_at_both_ends() {
        assert_eq!(Rate::new(1_000_000).ns(4096), 4_096_000);
        let eight_gib = Rate::new(7_000_000_000).ns(8 << 30);
        assert!(eight_gib.abs_diff(1_227_133_513) < 20_000, "{eight_gib}");
    }

    #[test]
    fn a_meter_hands_out_no_more_than_there_is() {
        let mut meter = Meter::default();
        assert_eq!(meter.take(100, 10), 110);
        assert_eq!(meter.take(100, 10), 120);
        assert_eq!(meter.take(500, 10), 510);
    }

    #[test]
    fn what_is_urgent_waits_for_one_step_and_puts_the_others_off() {
        let mut line = Line::default();
        line.take_long(300, 100);
        assert_eq!(line.urgent_at(130, u64::MAX), 200);
        assert_eq!(line.urgent_at(130, 20), 150, "suspended");
        line.take_urgent(130, 210, 10);
        assert_eq!(line.urgent_at(130, u64::MAX), 210, "one after the other");
        assert_eq!(line.free_at(), 310);
        assert_eq!(line.urgent_at(400, u64::MAX), 400);
    }
}
