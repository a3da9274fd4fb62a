//! The search for the highest depth at which latencies keep to a limit: doubled while they do, then halved in between,
//! each depth for a window of time.

use crate::job::DepthSearch;
use std::collections::BTreeMap;

/// A search that is going on.
pub(super) struct Search {
    search: DepthSearch,
    /// The highest depth that keeps to the limit, and the lowest that does not, as far as is known.
    keeps: u32,
    breaks: Option<u32>,
    most: u32,
    depth: u32,
    /// When the present window began; nothing has ended in it where there is none.
    since: Option<u64>,
    within: u64,
    all: u64,
    /// When each that is in flight was meant to begin, by number. Those of an earlier window count for nothing.
    begun: BTreeMap<u64, u64>,
    first: u64,
    found: Option<u32>,
}

impl Search {
    pub(super) fn new(search: DepthSearch, most: u32) -> Search {
        Search {
            search,
            keeps: 0,
            breaks: None,
            most,
            depth: 1,
            since: None,
            within: 0,
            all: 0,
            begun: BTreeMap::new(),
            first: 0,
            found: None,
        }
    }

    /// I/Os that may be in flight now.
    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    /// What was found; 0 where not even one at a time keeps to the limit.
    pub(super) fn found(&self) -> Option<u32> {
        self.found
    }

    /// Whether the job has nothing more to do.
    pub(super) fn is_over(&self) -> bool {
        self.found.is_some() && !self.search.goes_on
    }

    pub(super) fn begun(&mut self, number: u64, at: u64) {
        self.since.get_or_insert(at);
        self.begun.insert(number, at);
    }

    pub(super) fn ended(&mut self, number: u64, now: u64) {
        let Some(at) = self.begun.remove(&number) else { return };
        if self.found.is_some() || number < self.first {
            return;
        }
        self.all += 1;
        self.within += u64::from(now.saturating_sub(at) <= self.search.target_ns);
        if now.saturating_sub(self.since.unwrap_or(now)) >= self.search.window_ns {
            self.judge(number);
        }
    }

    /// A window is over.
    fn judge(&mut self, number: u64) {
        let keeps = self.within as f64 * 100.0 >= self.search.percentile * self.all as f64;
        match keeps {
            true => self.keeps = self.depth,
            false => self.breaks = Some(self.depth),
        }
        let next = match self.breaks {
            Some(breaks) => self.keeps + (breaks - self.keeps) / 2,
            None => (self.depth * 2).min(self.most),
        };
        if next == self.keeps {
            self.found = Some(self.keeps);
        }
        self.depth = next.max(1);
        (self.since, self.within, self.all) = (None, 0, 0);
        // What is in flight was begun at another depth.
        self.first = self.begun.last_key_value().map_or(number, |(&last, _)| last) + 1;
    }
}
