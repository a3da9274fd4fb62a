//! What has been written to an export and not flushed: kept in memory, so that a server that restarts and has lost it is
//! given it again.

use std::collections::BTreeMap;

/// A moment: so many writes had been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Moment(u64);

#[derive(Debug)]
struct Entry {
    /// When the write was answered.
    at: Moment,
    bytes: Vec<u8>,
}

/// The bytes of answered writes that no flush has covered, by their place in the export. Entries never overlap: what is
/// newer cuts what is older.
#[derive(Debug, Default)]
pub(super) struct Journal {
    entries: BTreeMap<u64, Entry>,
    bytes: u64,
    now: Moment,
}

impl Journal {
    /// Takes what a write brought that has just been answered.
    pub(super) fn keep(&mut self, offset: u64, bytes: Vec<u8>) {
        self.cut(offset, bytes.len() as u64);
        self.keep_uncut(offset, bytes);
    }

    /// The same where nothing lies in that range.
    pub(super) fn keep_uncut(&mut self, offset: u64, bytes: Vec<u8>) {
        self.now.0 += 1;
        self.bytes += bytes.len() as u64;
        if let Some(former) = self.entries.insert(offset, Entry { at: self.now, bytes }) {
            self.bytes -= former.bytes.len() as u64;
        }
    }

    /// Takes out a range: it is durable in a newer version, or is not needed any more.
    pub(super) fn cut(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        let reaches = |(&at, entry): (&u64, &Entry)| (at + entry.bytes.len() as u64 > offset).then_some(at);
        let first = self.entries.range(..offset).next_back().and_then(reaches);
        let inside = self.entries.range(offset..end).map(|(&at, _)| at);
        let places: Vec<u64> = first.into_iter().chain(inside).collect();
        for place in places {
            let Some(mut entry) = self.entries.remove(&place) else { continue };
            self.bytes -= entry.bytes.len() as u64;
            let entry_end = place + entry.bytes.len() as u64;
            if entry_end > end {
                let bytes = entry.bytes[(end - place) as usize..].to_vec();
                self.bytes += bytes.len() as u64;
                self.entries.insert(end, Entry { at: entry.at, bytes });
            }
            if place < offset {
                entry.bytes.truncate((offset - place) as usize);
                entry.bytes.shrink_to_fit();
                self.bytes += entry.bytes.len() as u64;
                self.entries.insert(place, entry);
            }
        }
    }

    /// The present moment: a flush that is sent from here on covers all that is in the journal now.
    pub(super) fn now(&self) -> Moment {
        self.now
    }

    /// A flush has ended that was sent at this moment.
    pub(super) fn forget(&mut self, covered: Moment) {
        self.entries.retain(|_, entry| entry.at > covered);
        self.bytes = self.entries.values().map(|entry| entry.bytes.len() as u64).sum();
    }

    /// Bytes kept.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Where entries begin, and how long they are.
    pub(super) fn places(&self) -> impl Iterator<Item = (u64, u32)> {
        self.entries.iter().map(|(&at, entry)| (at, entry.bytes.len() as u32))
    }

    /// The entry that begins there.
    pub(super) fn at(&self, offset: u64) -> &[u8] {
        self.entries.get(&offset).map_or(&[], |entry| &entry.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_units::rng::Rng;

    /// What it says of each byte: the value, where there is one.
    fn bytes(journal: &Journal, len: usize) -> Vec<Option<u8>> {
        let mut all = vec![None; len];
        for (at, bytes) in journal.places() {
            for place in at..at + u64::from(bytes) {
                assert_eq!(all[place as usize], None, "entries overlap");
                all[place as usize] = Some(journal.at(at)[(place - at) as usize]);
            }
        }
        assert_eq!(journal.bytes(), all.iter().flatten().count() as u64);
        all
    }

    #[test]
    fn newer_writes_cut_and_flushes_forget() {
        for seed in 0..2000 {
            let mut random = Rng::new(seed, 0);
            let (mut journal, mut model) = (Journal::default(), [None::<(u8, Moment)>; 64]);
            for step in 0..40u8 {
                let at = random.below(60);
                let len = 1 + random.below(64 - at);
                let range = at as usize..(at + len) as usize;
                match random.below(6) {
                    0..=2 => {
                        journal.keep(at, vec![step; len as usize]);
                        model[range].fill(Some((step, journal.now())));
                    }
                    3 => {
                        journal.cut(at, len);
                        model[range].fill(None);
                    }
                    4 => {
                        let then = journal.now();
                        journal.keep(at, vec![step; len as usize]);
                        model[range].fill(Some((step, journal.now())));
                        journal.forget(then);
                        model
                            .iter_mut()
                            .filter(|one| one.is_some_and(|one| one.1 <= then))
                            .for_each(|one| *one = None);
                    }
                    _ => {
                        journal.forget(journal.now());
                        model.fill(None);
                    }
                }
                assert_eq!(
                    bytes(&journal, 64),
                    model.map(|one| one.map(|one| one.0)),
                    "seed {seed}, step {step}"
                );
            }
        }
    }
}
