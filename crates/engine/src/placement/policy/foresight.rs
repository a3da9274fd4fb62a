//! What clients will do, where that is known: in a replay, to see what placement could reach at best.

use bimetal_units::Chunk;
use serde::{Deserialize, Serialize};

/// There is no such use.
const NEVER: u32 = u32::MAX;

/// The chunks that will be touched, in order, and how far ahead one looks.
///
/// It goes by touches, not by time, so that it is as good for requests that come as fast as they are answered. Requests
/// that overtake each other do not matter: only how many were served is counted.
#[derive(Serialize, Deserialize)]
pub struct Foresight {
    uses: Vec<Chunk>,
    /// Of each use, which is the next one of the same chunk; [`NEVER`] where there is none.
    following: Vec<u32>,
    /// Of each chunk, which use is the next one.
    next: Vec<u32>,
    /// How many uses are in sight.
    window: usize,
    position: usize,
    /// Uses in sight, by chunk.
    ahead: Vec<u32>,
}

impl Foresight {
    /// Of a volume with so many chunks, seeing so many touches ahead; eight bytes of RAM for each chunk and touch.
    pub fn new(chunks: u32, uses: Vec<Chunk>, window: usize) -> Foresight {
        assert!(uses.len() < NEVER as usize, "more touches than can be numbered");
        let mut ahead = vec![0; chunks as usize];
        uses.iter().take(window).for_each(|chunk| ahead[chunk.0 as usize] += 1);
        let (mut following, mut next) = (vec![NEVER; uses.len()], vec![NEVER; chunks as usize]);
        for (place, chunk) in uses.iter().enumerate().rev() {
            following[place] = std::mem::replace(&mut next[chunk.0 as usize], place as u32);
        }
        Foresight { uses, following, next, window, position: 0, ahead }
    }

    /// A chunk was touched: the chunk of which another use comes in sight.
    pub(super) fn step(&mut self) -> Option<Chunk> {
        let over = self.uses.get(self.position)?;
        let ahead = &mut self.ahead[over.0 as usize];
        *ahead = ahead.saturating_sub(1);
        self.next[over.0 as usize] = self.following[self.position];
        self.position += 1;
        let seen = *self.uses.get(self.position + self.window - 1)?;
        self.ahead[seen.0 as usize] += 1;
        Some(seen)
    }

    /// Uses of the chunk in sight.
    pub(super) fn ahead(&self, chunk: Chunk) -> u32 {
        self.ahead[chunk.0 as usize]
    }

    /// Which use of all is the chunk's next one, or the one after that; none if there is none.
    pub(super) fn next_use(&self, chunk: Chunk, after: bool) -> Option<u32> {
        let known = |place: u32| Some(place).filter(|place| *place != NEVER);
        let next = known(self.next[chunk.0 as usize])?;
        if after { known(self.following[next as usize]) } else { Some(next) }
    }

    /// The uses of the chunk that are in sight do not count.
    pub(super) fn forget(&mut self, chunk: Chunk) {
        self.ahead[chunk.0 as usize] = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_sight_is_counted_until_it_is_over() {
        let uses = [0, 1, 0, 2, 0].map(Chunk).to_vec();
        let mut foresight = Foresight::new(3, uses, 3);
        let ahead = |foresight: &Foresight| [0, 1, 2].map(|chunk| foresight.ahead(Chunk(chunk)));
        assert_eq!(ahead(&foresight), [2, 1, 0]);
        assert_eq!((foresight.step(), ahead(&foresight)), (Some(Chunk(2)), [1, 1, 1]));
        assert_eq!((foresight.step(), ahead(&foresight)), (Some(Chunk(0)), [2, 0, 1]));
        let next = |chunk, after| foresight.next_use(Chunk(chunk), after);
        assert_eq!([next(0, false), next(0, true), next(1, false)], [Some(2), Some(4), None]);
        foresight.forget(Chunk(0));
        assert_eq!((foresight.step(), ahead(&foresight)), (None, [0, 0, 1]));
        foresight.step();
        foresight.step();
        assert_eq!((foresight.step(), ahead(&foresight)), (None, [0, 0, 0]));
    }
}
