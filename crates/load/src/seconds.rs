//! The worst second of a run.

const SECOND_NS: u64 = 1_000_000_000;

/// Bytes done in each whole second, from the beginning of a run on. Only seconds count in which something was always in
/// flight: of others, it is not known what could have been done.
#[derive(Debug)]
pub(super) struct Seconds {
    /// End of the second that is going on.
    end: u64,
    bytes: u64,
    /// In this second there was a time when nothing was in flight.
    paused: bool,
    /// Nothing is in flight.
    idle: bool,
    worst: Option<u64>,
}

impl Seconds {
    /// The first second begins now, with something in flight.
    pub(super) fn new(now: u64) -> Seconds {
        Seconds { end: now.saturating_add(SECOND_NS), bytes: 0, paused: false, idle: false, worst: None }
    }

    #[inline]
    fn reach(&mut self, now: u64) {
        if now >= self.end {
            self.next_second(now);
        }
    }

    fn next_second(&mut self, now: u64) {
        let passed = (now - self.end) / SECOND_NS;
        if !self.paused {
            self.count(self.bytes);
        }
        if passed > 0 && !self.idle {
            self.count(0);
        }
        self.bytes = 0;
        self.paused = self.idle;
        self.end = self.end.saturating_add((passed + 1) * SECOND_NS);
    }

    fn count(&mut self, bytes: u64) {
        self.worst = Some(self.worst.map_or(bytes, |worst| worst.min(bytes)));
    }

    /// So many bytes are done.
    #[inline]
    pub(super) fn done(&mut self, now: u64, bytes: u64) {
        self.reach(now);
        self.bytes += bytes;
    }

    /// Whether nothing is in flight from now on.
    #[inline]
    pub(super) fn set_idle(&mut self, now: u64, idle: bool) {
        if idle != self.idle {
            self.reach(now);
            self.idle = idle;
            self.paused |= idle;
        }
    }

    /// Bytes of the worst second, if one was whole by now.
    pub(super) fn worst(mut self, now: u64) -> Option<u64> {
        self.reach(now);
        self.worst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_busy_whole_seconds_count() {
        let tenth = SECOND_NS / 10;
        let mut seconds = Seconds::new(0);
        (1..10).for_each(|n| seconds.done(n * tenth, 10));
        // Nothing is asked for from 1.5 s to 7.5 s, and nothing ends from 8 s to 9 s.
        seconds.done(14 * tenth, 1);
        seconds.set_idle(15 * tenth, true);
        seconds.set_idle(75 * tenth, false);
        seconds.done(79 * tenth, 1);
        assert_eq!(seconds.worst, Some(90));
        seconds.done(95 * tenth, 50);
        assert_eq!(seconds.worst, Some(0));
        let mut seconds = Seconds::new(0);
        seconds.done(12 * tenth, 7);
        assert_eq!(seconds.worst(19 * tenth), Some(0));
        assert_eq!(Seconds::new(0).worst(9 * tenth), None);
    }
}
