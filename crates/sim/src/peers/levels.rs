//! The multi-level queues of smq: entries in levels, the least recently requeued of a level first.

/// Levels of a queue: `NR_CACHE_LEVELS` and `NR_HOTSPOT_LEVELS`.
pub(super) const LEVELS: usize = 64;
/// No entry.
const NONE: u32 = u32::MAX;

/// Where an entry is. Memory: 16 bytes for each.
#[derive(Clone, Copy)]
pub(super) struct Link {
    previous: u32,
    next: u32,
    pub(super) level: u8,
    /// The period in which it was put where it is.
    pub(super) period: u32,
}

impl Default for Link {
    fn default() -> Link {
        Link { previous: NONE, next: NONE, level: 0, period: 0 }
    }
}

#[derive(Clone, Copy)]
struct Level {
    head: u32,
    tail: u32,
    count: u64,
}

/// A queue of entries whose links are kept by its owner, so that an entry can change between queues.
pub(super) struct Levels {
    levels: [Level; LEVELS],
    count: u64,
    /// The topmost levels, and how many entries they hold together; the rest is spread over the others.
    top: (usize, u64),
}

impl Levels {
    pub(super) fn new(top_levels: usize, in_top_levels: u64) -> Levels {
        let level = Level { head: NONE, tail: NONE, count: 0 };
        Levels { levels: [level; LEVELS], count: 0, top: (top_levels, in_top_levels) }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Puts an entry at the end of its level.
    pub(super) fn push(&mut self, links: &mut [Link], entry: u32, period: u32) {
        let level = &mut self.levels[usize::from(links[entry as usize].level)];
        let link = &mut links[entry as usize];
        (link.previous, link.next, link.period) = (level.tail, NONE, period);
        match level.tail {
            NONE => level.head = entry,
            tail => links[tail as usize].next = entry,
        }
        level.tail = entry;
        level.count += 1;
        self.count += 1;
    }

    pub(super) fn remove(&mut self, links: &mut [Link], entry: u32) {
        let Link { previous, next, level, .. } = links[entry as usize];
        let level = &mut self.levels[usize::from(level)];
        match previous {
            NONE => level.head = next,
            previous => links[previous as usize].next = next,
        }
        match next {
            NONE => level.tail = previous,
            next => links[next as usize].previous = previous,
        }
        level.count -= 1;
        self.count -= 1;
    }

    /// Raises an entry by so many levels, in exchange for the oldest one there, and puts it at the end.
    pub(super) fn requeue(&mut self, links: &mut [Link], entry: u32, raise: u8, period: u32) {
        let old = links[entry as usize].level;
        let new = old.saturating_add(raise).min(LEVELS as u8 - 1);
        let other = self.levels[usize::from(new)].head;
        if new > old && other != NONE {
            self.remove(links, other);
            links[other as usize].level = old;
            self.push(links, other, period);
        }
        self.remove(links, entry);
        links[entry as usize].level = new;
        self.push(links, entry, period);
    }

    /// The oldest entry of the lowest of so many levels that was put there before this period.
    pub(super) fn peek(&self, links: &[Link], levels: usize, before: u32) -> Option<u32> {
        let heads = self.levels[..levels].iter().map(|level| level.head);
        heads.into_iter().find(|&head| head != NONE && links[head as usize].period < before)
    }

    /// Takes out the oldest entry of the lowest level.
    pub(super) fn pop(&mut self, links: &mut [Link]) -> Option<u32> {
        let entry = self.peek(links, LEVELS, u32::MAX)?;
        self.remove(links, entry);
        Some(entry)
    }

    fn target(&self, level: usize) -> u64 {
        let (levels, entries) = self.top;
        let (below, in_top) = (LEVELS - levels, entries.min(self.count));
        let (nth, of, all) = match level < below {
            true => (level, below, self.count - in_top),
            false => (level - below, levels, in_top),
        };
        all / of as u64 + u64::from((nth as u64) < all % of as u64)
    }

    /// Moves entries between neighbouring levels until each has its share.
    pub(super) fn redistribute(&mut self, links: &mut [Link]) {
        for level in 0..LEVELS - 1 {
            let target = self.target(level);
            while self.levels[level].count < target {
                let above = self.levels[level + 1..].iter().find(|above| above.head != NONE);
                let Some(entry) = above.map(|above| above.head) else { break };
                self.shift(links, entry, level);
            }
            while self.levels[level].count > target {
                let entry = self.levels[level].tail;
                self.shift(links, entry, level + 1);
            }
        }
    }

    fn shift(&mut self, links: &mut [Link], entry: u32, to: usize) {
        let period = links[entry as usize].period;
        self.remove(links, entry);
        links[entry as usize].level = to as u8;
        self.push(links, entry, period);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_rise_by_exchange_and_are_spread_evenly() {
        let mut links = vec![Link::default(); 640];
        let mut levels = Levels::new(0, 0);
        (0..640).for_each(|entry| levels.push(&mut links, entry, 0));
        levels.redistribute(&mut links);
        assert!((0..LEVELS).all(|level| levels.levels[level].count == 10));
        let entry = levels.peek(&links, 1, 1).expect("the lowest level has ten");
        levels.requeue(&mut links, entry, 5, 1);
        assert_eq!(links[entry as usize].level, 5);
        assert!((0..LEVELS).all(|level| levels.levels[level].count == 10));
        assert_eq!(levels.peek(&links, 1, 0), None);
        let mut popped = 0;
        while levels.pop(&mut links).is_some() {
            popped += 1;
        }
        assert_eq!((popped, levels.count()), (640, 0));
    }

    #[test]
    fn a_queue_may_keep_few_at_its_top() {
        let mut links = vec![Link::default(); 64];
        let mut levels = Levels::new(8, 8);
        (0..64).for_each(|entry| levels.push(&mut links, entry, 0));
        levels.redistribute(&mut links);
        assert!((0..56).all(|level| levels.levels[level].count == 1));
        assert_eq!(levels.levels[63].count, 1);
    }
}
