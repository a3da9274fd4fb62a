//! What each area of the landing zone is used for: one table, and one way from one use to another.
//!
//! Areas that hold slots are not in it: they have no [`Place`]. An area is passed on only as [`Use::may_become`] says; each
//! such step has a proof, which whoever asks for it holds: a record that is durable, or no I/O in flight.

use crate::base::place::Place;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// What an area that the log has is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Use {
    /// Nothing that is known: no area is here, or nobody has said yet what is in it.
    Vacant,
    /// The chain goes through it: recovery reads it. Oldest first.
    Chain,
    /// The last segment of the chain names it as the next.
    Named,
    /// Free, and the device keeps nothing of what was in it, as far as is known.
    Clean,
    /// Free as well, those longest so first; the device still keeps what was in it.
    Spent,
    /// Free, and the device is being told so.
    Trimming,
    /// Out of the chain, but reads are in flight in it.
    Retiring,
    /// Free, and lent to copies: the last one is recalled first.
    Lent,
    /// It was recalled, and something is in flight in it.
    Recalled,
}

impl Use {
    const COUNT: usize = Use::Recalled as usize + 1;

    /// Free: it may be named.
    const FREE: [Use; 2] = [Use::Clean, Use::Spent];

    fn may_become(self, to: Use) -> bool {
        use Use::*;
        match self {
            // Recovery finds it in the chain, named by it, or neither; an area that held slots is borrowed.
            Vacant => matches!(to, Chain | Named | Clean | Spent),
            // A durable checkpoint does without it; or it was begun, and the append of its first group failed.
            Chain => matches!(to, Retiring | Named),
            // Its header is about to be written; or the segment that named it never began.
            Named => matches!(to, Chain | Clean),
            // An area that is given back holds slots again.
            Clean => matches!(to, Named | Lent | Vacant),
            Spent => matches!(to, Named | Lent | Vacant | Trimming),
            Trimming => to == Clean,
            // Nothing is in flight in it any more.
            Retiring | Recalled => to == Spent,
            Lent => to == Recalled,
        }
    }
}

/// Which end of those with the same use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Those that came first.
    Front,
    /// Those that came last.
    Back,
}

/// The use of each place, and of each use those that have it, in the order in which they got it.
#[derive(Serialize, Deserialize)]
pub struct Uses {
    of: Vec<Use>,
    lists: [VecDeque<Place>; Use::COUNT],
}

impl Uses {
    /// So many places, of which nothing is known.
    pub fn new(places: u32) -> Uses {
        Uses { of: vec![Use::Vacant; places as usize], lists: Default::default() }
    }

    /// What a place is used for.
    pub fn of(&self, place: Place) -> Use {
        self.of[place.0 as usize]
    }

    /// Those with a use, in the order in which they got it; not of those that are vacant.
    pub fn all(&self, with: Use) -> &VecDeque<Place> {
        &self.lists[with as usize]
    }

    /// Passes a place on to another use, as the first or the last of those that have it.
    pub fn pass(&mut self, place: Place, to: Use, end: End) {
        let from = self.of(place);
        assert!(
            from.may_become(to),
            "an area is passed on from one use to another by a proof: {from:?}, {to:?}"
        );
        if from != Use::Vacant {
            let list = &mut self.lists[from as usize];
            let at = match list.back() == Some(&place) {
                true => Some(list.len() - 1),
                false => list.iter().position(|one| *one == place),
            };
            list.remove(at.expect("a place is in the list of its use"));
        }
        self.of[place.0 as usize] = to;
        match end {
            _ if to == Use::Vacant => {}
            End::Front => self.lists[to as usize].push_front(place),
            End::Back => self.lists[to as usize].push_back(place),
        }
    }

    /// The free place that comes first, or last, of those that will do, clean ones or spent ones before the others.
    pub fn free(&self, before: Use, end: End, will_do: impl Fn(Place) -> bool) -> Option<Place> {
        let others = if before == Use::Clean { Use::Spent } else { Use::Clean };
        let find = |with: Use| {
            let mut list = self.all(with).iter().copied();
            match end {
                End::Front => list.find(|place| will_do(*place)),
                End::Back => list.rfind(|place| will_do(*place)),
            }
        };
        find(before).or_else(|| find(others))
    }

    /// Those that can be named as a successor.
    pub fn free_count(&self) -> usize {
        Use::FREE.iter().map(|with| self.all(*with).len()).sum()
    }

    /// Passes on all with a use for which nothing is waited any more to those that are spent; whether there was one.
    pub fn settle(&mut self, with: Use, is_done: impl Fn(Place) -> bool) -> bool {
        let done: Vec<Place> = self.all(with).iter().copied().filter(|place| is_done(*place)).collect();
        done.iter().for_each(|place| self.pass(*place, Use::Spent, End::Back));
        !done.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes free is found again in its order, and clean before spent or the other way round.
    #[test]
    fn free_places_come_in_the_order_asked_for() {
        let mut uses = Uses::new(4);
        for n in [2, 0, 1] {
            uses.pass(Place(n), Use::Spent, End::Back);
        }
        uses.pass(Place(3), Use::Clean, End::Back);
        assert_eq!(uses.free(Use::Clean, End::Front, |_| true), Some(Place(3)));
        assert_eq!(uses.free(Use::Spent, End::Front, |_| true), Some(Place(2)));
        assert_eq!(uses.free(Use::Spent, End::Back, |place| place.0 != 1), Some(Place(0)));
        assert_eq!((uses.free_count(), uses.of(Place(0))), (4, Use::Spent));
    }

    /// What the chain goes through is free only when it was left, and nothing is in flight in it.
    #[test]
    #[should_panic(expected = "by a proof: Chain, Clean")]
    fn the_chain_is_left_before_it_is_free() {
        let mut uses = Uses::new(1);
        uses.pass(Place(0), Use::Chain, End::Back);
        uses.pass(Place(0), Use::Clean, End::Back);
    }
}
