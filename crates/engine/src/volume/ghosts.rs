//! What gave way of late, and how the space of copies is shared between what is new and what was read again.
//!
//! What is asked for again soon after it left a queue would have been there in a larger one: as in ARC (Megiddo and Modha,
//! FAST 2003), the share of the queue of new copies follows that.

use crate::api::economy::Economy;
use crate::base::hash::mix;
use serde::{Deserialize, Serialize};

/// The share of new copies is counted in so many parts.
const PARTS: u64 = 1 << 16;

/// The queue that a copy is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// Of what is new.
    Small,
    /// Of what was read again.
    Main,
}

/// See the module. It knows parts by two bytes each: one in 16,384 is taken for another.
#[derive(Serialize, Deserialize)]
pub struct Ghosts {
    prints: Vec<u16>,
    small_share: u64,
    /// How many left the small queue, and the main one.
    left: [u64; 2],
    economy: Economy,
}

const IS_THERE: u16 = 1;
const FROM_MAIN: u16 = 2;

/// Bytes of RAM beside so many copies.
pub fn ram_bytes(copies: u64) -> u64 {
    copies.next_power_of_two() * 2
}

impl Ghosts {
    /// Beside so many copies at most.
    pub fn new(copies: u32, economy: &Economy) -> Ghosts {
        let prints = vec![0; (copies as usize).next_power_of_two()];
        let small_share = PARTS / economy.copies_new_first_share;
        Ghosts { prints, small_share, left: [0; 2], economy: *economy }
    }

    /// Bytes of RAM.
    pub fn ram_bytes(&self) -> u64 {
        self.prints.len() as u64 * 2
    }

    fn print(&self, key: u64) -> (usize, u16) {
        let hash = mix(!key);
        (hash as usize & (self.prints.len() - 1), (hash >> 48) as u16 & !FROM_MAIN | IS_THERE)
    }

    /// A copy left a queue because it had not been read.
    pub fn left(&mut self, key: u64, queue: Queue) {
        let of_main = queue == Queue::Main;
        self.left[usize::from(of_main)] += 1;
        if self.left[0] + self.left[1] > self.economy.copies_new_memory {
            self.left = [self.left[0] / 2, self.left[1] / 2];
        }
        let (at, print) = self.print(key);
        self.prints[at] = print | if of_main { FROM_MAIN } else { 0 };
    }

    /// There is a copy again: whether it had left of late. Where a client `asked` for it, that is a lesson.
    pub fn is_back(&mut self, key: u64, asked: bool) -> bool {
        let (at, print) = self.print(key);
        let found = self.prints[at];
        if found & !FROM_MAIN != print {
            return false;
        }
        self.prints[at] = 0;
        if asked {
            let ([small, main], economy) = (self.left, &self.economy);
            let most = economy.copies_new_most_steps;
            let steps =
                |others: u64, own: u64| economy.copies_new_step * (others / own.max(1)).clamp(1, most);
            self.small_share = if found & FROM_MAIN == 0 {
                (self.small_share + steps(main, small)).min(PARTS / economy.copies_new_most_share)
            } else {
                self.small_share
                    .saturating_sub(steps(small, main))
                    .max(PARTS / economy.copies_new_least_share)
            };
        }
        true
    }

    /// The queue out of which one gives way next, where they are so long.
    pub fn gives_way(&self, small: usize, main: usize) -> Queue {
        let share = (small + main) as u64 * self.small_share;
        if main == 0 || small as u64 * PARTS >= share { Queue::Small } else { Queue::Main }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_wanted_again_makes_its_queue_longer() {
        let mut ghosts = Ghosts::new(1000, &Economy::default());
        assert_eq!(ghosts.gives_way(12, 88), Queue::Main);
        assert_eq!(ghosts.gives_way(13, 87), Queue::Small);
        assert_eq!(ghosts.gives_way(1, 0), Queue::Small);
        assert!(!ghosts.is_back(7, true), "it was never there");
        for key in 0..5000 {
            ghosts.left(key, Queue::Small);
            assert!(ghosts.is_back(key, key != 4000), "it left just now");
            assert!(!ghosts.is_back(key, true), "it is back already");
        }
        assert_eq!(ghosts.gives_way(42, 58), Queue::Main, "19,996 steps of 65,536 more");
        for key in 0..5000 {
            ghosts.left(key, Queue::Main);
            ghosts.is_back(key, true);
        }
        assert_eq!(ghosts.small_share, PARTS / ghosts.economy.copies_new_least_share);
    }
}
