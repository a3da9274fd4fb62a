//! A table from keys to places: open addressing over the places themselves, so that an entry costs little RAM.
//!
//! It is cut into shards, each of which grows and shrinks by itself: of a table that may hold tens of millions of keys and
//! holds a few, few pages are in use, and no insertion waits until all of it was made anew.

use crate::base::hash::mix;
use serde::{Deserialize, Serialize};

const FLAG: u64 = 1 << 63;
/// Keys of a shard when all places are taken, about: made anew in well below a millisecond.
const SHARD_KEYS: u32 = 8 << 10;
/// Entries of a shard at least, once it has any.
const LEAST_ENTRIES: usize = 64;

/// Up to as many keys as there are places, each at one of them: at most 8 bytes per place and 11 per key, beside 40 per shard.
/// A key is below 2^63 - 1; beside it stands a flag.
#[derive(Serialize, Deserialize)]
pub struct Places {
    shards: Vec<Shard>,
    /// The key at each place, plus one; 0 is none, so that what was never used takes no memory.
    key: Vec<u64>,
    len: u32,
}

/// A part of the table, by the upper bits of the keys' hashes.
#[derive(Default, Serialize, Deserialize)]
struct Shard {
    /// Places plus one; 0 is none.
    table: Vec<u32>,
    len: u32,
}

/// Bytes of RAM for so many places at most, of which so many have a key at a time.
pub fn ram_bytes(places: u64, keys: u64) -> u64 {
    // A shard doubles when it is three quarters full.
    let tables = (keys * 8 / 3 + shards(keys) * LEAST_ENTRIES as u64) * 4;
    tables + shards(keys) * size_of::<Shard>() as u64 + places * 8
}

fn shards(keys: u64) -> u64 {
    (keys / u64::from(SHARD_KEYS)).next_power_of_two()
}

fn bucket(key: u64, table: &[u32]) -> usize {
    mix(key) as usize & (table.len() - 1)
}

/// The key that is noted so.
fn noted(key: u64) -> Option<u64> {
    (key & !FLAG).checked_sub(1)
}

/// Zeros behind the first ones, which take no memory until they are used; resizing would write them.
pub fn extend<T: Copy + Default>(list: &mut Vec<T>, len: u32, used: u32) {
    let used = used as usize;
    let mut longer = vec![T::default(); len as usize];
    longer[..used].copy_from_slice(&list[..used]);
    *list = longer;
}

impl Shard {
    fn find(&self, key: u64, keys: &[u64]) -> Result<usize, usize> {
        if self.table.is_empty() {
            return Err(0);
        }
        let mut i = bucket(key, &self.table);
        loop {
            match self.table[i] {
                0 => return Err(i),
                place if noted(keys[place as usize - 1]) == Some(key) => return Ok(i),
                _ => i = (i + 1) & (self.table.len() - 1),
            }
        }
    }

    fn resize(&mut self, entries: usize, keys: &[u64]) {
        let before = std::mem::replace(&mut self.table, vec![0; entries]);
        for place in before.into_iter().filter(|place| *place != 0) {
            let key = noted(keys[place as usize - 1]).expect("what is in the table has a key");
            let at = self.find(key, keys).expect_err("a key is in the table once");
            self.table[at] = place;
        }
    }

    /// Another place for a key that is not in the shard.
    fn add(&mut self, key: u64, place: u32, keys: &[u64]) {
        // Three quarters full at the most, so that probing stays short.
        if (self.len as usize + 1) * 4 > self.table.len() * 3 {
            self.resize((self.table.len() * 2).max(LEAST_ENTRIES), keys);
        }
        let at = self.find(key, keys).expect_err("a key is in the table once");
        self.table[at] = place + 1;
        self.len += 1;
    }

    /// Makes an entry free.
    fn clear(&mut self, mut hole: usize, keys: &[u64]) {
        let mask = self.table.len() - 1;
        // Close the gap: move back each later entry whose own bucket does not lie behind the hole.
        let mut i = hole;
        loop {
            i = (i + 1) & mask;
            let entry = self.table[i];
            if entry == 0 {
                break;
            }
            let home = noted(keys[entry as usize - 1]).map(|key| bucket(key, &self.table));
            let home = home.expect("what is in the table has a key");
            if (i.wrapping_sub(home) & mask) >= (i.wrapping_sub(hole) & mask) {
                self.table[hole] = entry;
                hole = i;
            }
        }
        self.table[hole] = 0;
        self.len -= 1;
        if self.table.len() > LEAST_ENTRIES && self.len as usize * 8 < self.table.len() {
            self.resize(self.table.len() / 2, keys);
        }
    }
}

impl Places {
    /// So many places, all of them free, for about so many keys at a time.
    pub fn new(places: u32, keys: u32) -> Places {
        let shards = (0..shards(u64::from(keys))).map(|_| Shard::default()).collect();
        Places { shards, key: vec![0; places as usize], len: 0 }
    }

    /// Places in all.
    pub fn places(&self) -> u32 {
        self.key.len() as u32
    }

    /// So many places instead, of which so many of the first may be taken and all others are free.
    pub fn extend(&mut self, places: u32, used: u32) {
        extend(&mut self.key, places, used);
    }

    /// Bytes of RAM, if so many of the places have ever been used.
    pub fn ram_bytes(&self, used: u32) -> u64 {
        let tables = self.shards.iter().map(|shard| shard.table.len() * 4).sum::<usize>();
        (tables + self.shards.len() * size_of::<Shard>() + used as usize * 8) as u64
    }

    /// Keys in it.
    pub fn len(&self) -> u32 {
        self.len
    }

    fn shard(&self, key: u64) -> usize {
        (mix(key) >> 32) as usize & (self.shards.len() - 1)
    }

    /// Where the key is.
    pub fn get(&self, key: u64) -> Option<u32> {
        let shard = &self.shards[self.shard(key)];
        shard.find(key, &self.key).ok().map(|i| shard.table[i] - 1)
    }

    /// What is at a place.
    pub fn key(&self, place: u32) -> Option<u64> {
        noted(self.key[place as usize])
    }

    /// Whether a place is taken, by a key with its flag.
    pub fn is_flagged(&self, place: u32) -> bool {
        self.key[place as usize] & FLAG != 0
    }

    /// Gives the key at a place its flag; whether it had none.
    pub fn flag(&mut self, place: u32) -> bool {
        let key = &mut self.key[place as usize];
        assert!(*key != 0, "what is flagged is there");
        let is_new = *key & FLAG == 0;
        *key |= FLAG;
        is_new
    }

    /// Puts a key at a place, which must be free; gives the place that it leaves, and whether it had its flag there.
    pub fn insert(&mut self, key: u64, place: u32, flag: bool) -> Option<(u32, bool)> {
        assert!(self.key[place as usize] == 0, "a place has one key");
        let at = self.shard(key);
        let shard = &mut self.shards[at];
        let old = match shard.find(key, &self.key) {
            Ok(i) => {
                let old = shard.table[i] - 1;
                let flagged = self.key[old as usize] & FLAG != 0;
                self.key[old as usize] = 0;
                shard.table[i] = place + 1;
                Some((old, flagged))
            }
            Err(_) => {
                shard.add(key, place, &self.key);
                self.len += 1;
                None
            }
        };
        self.key[place as usize] = (key + 1) | if flag { FLAG } else { 0 };
        old
    }

    /// Takes a key away; gives where it was, and whether it had its flag.
    pub fn remove(&mut self, key: u64) -> Option<(u32, bool)> {
        let at = self.shard(key);
        let shard = &mut self.shards[at];
        let i = shard.find(key, &self.key).ok()?;
        let place = shard.table[i] - 1;
        shard.clear(i, &self.key);
        let flagged = self.is_flagged(place);
        self.key[place as usize] = 0;
        self.len -= 1;
        Some((place, flagged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn shards_grow_and_shrink_by_themselves() {
        let mut places = Places::new(100_000, 100_000);
        let least = places.ram_bytes(0);
        (0..100_000).for_each(|n| assert_eq!(places.insert(u64::from(n) << 7, n, false), None));
        assert!(places.shards.len() > 1 && places.ram_bytes(100_000) <= ram_bytes(100_000, 100_000));
        assert!((0..100_000).all(|n| places.get(u64::from(n) << 7) == Some(n)));
        (0..100_000).for_each(|n| assert_eq!(places.remove(u64::from(n) << 7), Some((n, false))));
        let entries = (places.ram_bytes(0) - least) / 4;
        assert!(places.len() == 0 && entries <= (places.shards.len() * LEAST_ENTRIES) as u64);
    }

    #[test]
    fn agrees_with_an_ordered_map() {
        let (mut places, mut model) = (Places::new(640, 640), BTreeMap::new());
        let mut free: Vec<u32> = (0..640).collect();
        let mut n = 1u64;
        for step in 0..20_000 {
            n = mix(n + step);
            let (key, flag) = (n % 1000, n >> 33 & 1 == 0);
            let old = if n >> 32 & 1 == 0 && !free.is_empty() {
                let place = free.remove((n >> 40) as usize % free.len());
                let old = places.insert(key, place, flag);
                assert_eq!(old, model.insert(key, (place, flag)));
                old
            } else {
                let old = places.remove(key);
                assert_eq!(old, model.remove(&key));
                old
            };
            free.extend(old.map(|(place, _)| place));
            assert_eq!(places.len() as usize, model.len());
            for key in 0..1000 {
                let at = places.get(key);
                assert_eq!(at.map(|place| (place, places.is_flagged(place))), model.get(&key).copied());
                assert!(at.is_none_or(|place| places.key(place) == Some(key)));
            }
        }
    }
}
