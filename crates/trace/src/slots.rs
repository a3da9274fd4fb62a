//! A bounded number of slots over a range that nobody knows the end of: where there are too few, each becomes twice as
//! wide.

/// What two neighbouring slots become one of.
pub(crate) trait Join: Default {
    fn join(&mut self, other: Self);
}

/// Slots of one width, from zero on.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    width: u64,
    most: usize,
    slots: Vec<T>,
}

impl<T: Join> Slots<T> {
    /// Slots of this width at first, and so many at most: an even number.
    pub(crate) fn new(width: u64, most: usize) -> Slots<T> {
        Slots { width, most, slots: Vec::new() }
    }

    pub(crate) fn width(&self) -> u64 {
        self.width
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter()
    }

    /// The slot of a position.
    pub(crate) fn at(&mut self, position: u64) -> &mut T {
        while position / self.width >= self.most as u64 {
            self.halve();
        }
        let slot = (position / self.width) as usize;
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, T::default);
        }
        &mut self.slots[slot]
    }

    fn halve(&mut self) {
        self.width = self.width.saturating_mul(2);
        let mut old = std::mem::take(&mut self.slots).into_iter();
        while let Some(mut first) = old.next() {
            if let Some(second) = old.next() {
                first.join(second);
            }
            self.slots.push(first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Join for u64 {
        fn join(&mut self, other: u64) {
            *self += other;
        }
    }

    #[test]
    fn slots_grow_and_keep_what_they_hold() {
        let mut slots: Slots<u64> = Slots::new(10, 4);
        for position in [0, 9, 10, 39, 40, 1000] {
            *slots.at(position) += 1;
        }
        assert_eq!((slots.width(), slots.iter().sum::<u64>()), (320, 6));
        assert_eq!(slots.iter().copied().collect::<Vec<_>>(), [5, 0, 0, 1]);
        *slots.at(u64::MAX) += 1;
        assert_eq!(slots.iter().sum::<u64>(), 7);
    }
}
