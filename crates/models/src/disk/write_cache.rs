//! What the volatile cache has taken and the medium does not hold yet.

use super::mechanism::Target;
use super::params::WriteCacheParams;

/// A range of sectors that is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// When it has been transferred.
    pub(crate) ready: u64,
    /// Its first command, counted over all writes.
    pub(crate) order: u64,
    /// Where it begins.
    pub(crate) target: Target,
    /// Not in whole sectors: the sectors are read first.
    pub(crate) partial: bool,
}

/// The entries, oldest first.
#[derive(Clone, Debug)]
pub(crate) struct WriteCache {
    entries: Vec<Entry>,
    limit: usize,
    entry_sectors: u64,
    /// Taken out to be written, but not on the medium yet.
    writing: Option<Entry>,
    next_order: u64,
}

impl WriteCache {
    /// An empty cache.
    pub(crate) fn new(params: &WriteCacheParams) -> WriteCache {
        WriteCache {
            entries: Vec::with_capacity(params.entries as usize),
            limit: params.entries as usize,
            entry_sectors: u64::from(params.entry_sectors),
            writing: None,
            next_order: 0,
        }
    }

    /// Whether a write of this many sectors is ever taken.
    pub(crate) fn takes(&self, sectors: u64) -> bool {
        self.limit > 0 && sectors <= self.entry_sectors
    }

    /// Entries that can be chosen to be written, oldest first.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Takes a write, into an entry that it overwrites or continues, or into a new one. False when it is full.
    pub(crate) fn take(
        &mut self,
        range: (u64, u64),
        ready: u64,
        partial: bool,
        target: impl FnOnce() -> Target,
    ) -> bool {
        let (start, end) = range;
        self.next_order += 1;
        let fits = |entry: &Entry| {
            let inside = entry.start <= start && end <= entry.end;
            inside || (entry.end == start && end - entry.start <= self.entry_sectors)
        };
        if let Some(entry) = self.entries.iter_mut().rev().find(|entry| fits(entry)) {
            entry.end = entry.end.max(end);
            entry.ready = entry.ready.max(ready);
            entry.partial |= partial;
            return true;
        }
        if self.entries.len() + usize::from(self.writing.is_some()) >= self.limit {
            return false;
        }
        let order = self.next_order;
        self.entries.push(Entry { start, end, ready, order, target: target(), partial });
        true
    }

    /// Takes an entry out to write it.
    pub(crate) fn begin(&mut self, number: usize) -> Entry {
        let entry = self.entries.remove(number);
        self.writing = Some(entry);
        entry
    }

    /// The entry taken out last is on the medium.
    pub(crate) fn written(&mut self) {
        self.writing = None;
    }

    /// A mark for [`WriteCache::has_before`]: all that has been taken so far.
    pub(crate) fn mark(&self) -> u64 {
        self.next_order
    }

    /// Whether anything taken up to the mark is not on the medium yet.
    pub(crate) fn has_before(&self, mark: u64) -> bool {
        let old = |entry: Option<&Entry>| entry.is_some_and(|entry| entry.order <= mark);
        old(self.entries.first()) || old(self.writing.as_ref())
    }

    /// Whether one entry holds all of `start..end`.
    pub(crate) fn holds(&self, start: u64, end: u64) -> bool {
        let holds = |entry: &Entry| entry.start <= start && end <= entry.end;
        self.writing.as_ref().is_some_and(holds) || self.entries.iter().any(holds)
    }
}
