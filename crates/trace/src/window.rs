//! Records that a file has slightly out of order, put in order: some are logged when they end and not when they begin.

use crate::events::{Item, What};
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

/// Items that are held back at most, so that an earlier one can still come before them: of a trace that is logged by
/// when requests end, what begins in the time of the longest.
pub(crate) const MAX_HELD: usize = 1 << 15;
/// And of all files of a trace together; of each at least so many.
const MAX_HELD_IN_ALL: usize = 1 << 18;
const MIN_HELD: usize = 256;

/// An item in its place: by its time, and of equals by the order of the file.
struct Held {
    time: u64,
    number: u64,
    item: Item,
}

impl Held {
    fn key(&self) -> (u64, u64) {
        (self.time, self.number)
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Held) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Held) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Held) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Held {}

/// Holds items of one file back, and gives out the earliest.
pub(crate) struct Window {
    most: usize,
    /// Those that came in order, and those that came after a later one.
    in_order: VecDeque<Held>,
    late: BinaryHeap<Reverse<Held>>,
    numbers: u64,
    /// The latest time that has come, and the latest that was given out.
    latest: u64,
    given: u64,
    /// Requests that came after a later item; and those of them for which it was too late.
    out_of_order: u64,
    beyond: u64,
}

impl Window {
    /// For one of so many files.
    pub(crate) fn of(files: usize) -> Window {
        Window {
            most: (MAX_HELD_IN_ALL / files.max(1)).clamp(MIN_HELD, MAX_HELD),
            in_order: VecDeque::new(),
            late: BinaryHeap::new(),
            numbers: 0,
            latest: 0,
            given: 0,
            out_of_order: 0,
            beyond: 0,
        }
    }

    /// Whether another item has to come before one is given out, if there is another.
    pub(crate) fn has_room(&self) -> bool {
        self.in_order.len() + self.late.len() < self.most
    }

    /// The next item of the file. One without a time stays where it is.
    pub(crate) fn put(&mut self, item: Item) {
        let time = item.time.unwrap_or(self.latest);
        let held = Held { time, number: self.numbers, item };
        self.numbers += 1;
        if time >= self.latest {
            self.latest = time;
            return self.in_order.push_back(held);
        }
        if let What::Request(_) = item.what {
            self.out_of_order += 1;
            self.beyond += u64::from(time < self.given);
        }
        self.late.push(Reverse(held));
    }

    /// The earliest that is held.
    pub(crate) fn take(&mut self) -> Option<Item> {
        let is_late = match (self.in_order.front(), self.late.peek()) {
            (Some(first), Some(Reverse(late))) => late < first,
            (first, _) => first.is_none(),
        };
        let held = if is_late { self.late.pop().map(|late| late.0) } else { self.in_order.pop_front() }?;
        self.given = self.given.max(held.time);
        Some(held.item)
    }

    /// Requests so far that the file had behind a later one.
    pub(crate) fn out_of_order(&self) -> u64 {
        self.out_of_order
    }

    /// Those of them that came too late to be put where they belong.
    pub(crate) fn beyond(&self) -> u64 {
        self.beyond
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Op;
    use crate::events::Request;
    use bimetal_units::rng::Rng;

    fn item(time: u64, offset: u64) -> Item {
        Request::new(Op::Read, offset, 512).expect("it fits").at(time)
    }

    fn through(window: &mut Window, items: impl Iterator<Item = Item>) -> Vec<(u64, u64)> {
        let mut out = Vec::new();
        let mut take = |window: &mut Window| {
            let Some(Item { time: Some(time), what: What::Request(request) }) = window.take() else {
                return false;
            };
            out.push((time, request.offset));
            true
        };
        for item in items {
            if !window.has_room() {
                take(window);
            }
            window.put(item);
        }
        while take(window) {}
        out
    }

    /// Whatever is displaced by less than the window is sorted, those of one time stay as they were, and none is lost.
    #[test]
    fn what_is_slightly_out_of_order_is_sorted() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed, 0);
            let mut window = Window::of(1024);
            let many = 5000;
            let mut items: Vec<(u64, u64)> =
                (0..many).map(|n| (n / 3 + rng.below(MIN_HELD as u64 / 4), n)).collect();
            let found = through(&mut window, items.iter().map(|&(time, n)| item(time, n * 512)));
            items.sort_by_key(|item| item.0);
            let wanted: Vec<_> = items.iter().map(|&(time, n)| (time, n * 512)).collect();
            assert_eq!(found, wanted, "seed {seed}");
            assert!(window.out_of_order() > many / 4 && window.beyond() == 0, "seed {seed}");
        }
    }

    #[test]
    fn what_is_far_out_of_order_comes_where_it_stands_and_is_counted() {
        let mut window = Window::of(1024);
        let many = 4 * MIN_HELD as u64;
        let items =
            (0..many).map(|n| item(1000 + n, n * 512)).chain([item(5, 7 * 512), item(2000 + many, 512)]);
        let found = through(&mut window, items);
        assert_eq!(found.len() as u64, many + 2);
        let place = found.iter().position(|&(time, _)| time == 5).expect("it is not lost");
        assert!(place > MIN_HELD, "it came too late to be the first");
        assert_eq!((window.out_of_order(), window.beyond()), (1, 1));
    }
}
