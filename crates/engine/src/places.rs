//! A table from keys to places: open addressing over the places themselves, so that an entry costs little RAM.

use crate::hash::mix;

const NONE: u64 = u64::MAX;
const FLAG: u64 = 1 << 63;

/// Up to as many keys as there are places, each at one of them: at most 19 bytes per place. A key is below 2^63; beside it
/// stands a flag.
pub struct Places {
    table: Vec<u32>,
    key: Vec<u64>,
    len: u32,
}

/// Bytes of RAM for so many places.
pub fn ram_bytes(places: u64) -> u64 {
    table_len(places) * 4 + places * 8
}

/// Three quarters full at the most, so that probing stays short.
fn table_len(places: u64) -> u64 {
    (places * 4 / 3 + 1).next_power_of_two()
}

impl Places {
    /// So many places, all of them free.
    pub fn new(places: u32) -> Places {
        let table = vec![0; table_len(u64::from(places)) as usize];
        Places { table, key: vec![NONE; places as usize], len: 0 }
    }

    /// Bytes of RAM.
    pub fn ram_bytes(&self) -> u64 {
        (self.table.len() * 4 + self.key.len() * 8) as u64
    }

    /// Keys in it.
    pub fn len(&self) -> u32 {
        self.len
    }

    fn bucket(&self, key: u64) -> usize {
        mix(key) as usize & (self.table.len() - 1)
    }

    fn find(&self, key: u64) -> Result<usize, usize> {
        let mut i = self.bucket(key);
        loop {
            match self.table[i] {
                0 => return Err(i),
                place if self.key[place as usize - 1] & !FLAG == key => return Ok(i),
                _ => i = (i + 1) & (self.table.len() - 1),
            }
        }
    }

    /// Where the key is.
    pub fn get(&self, key: u64) -> Option<u32> {
        self.find(key).ok().map(|i| self.table[i] - 1)
    }

    /// What is at a place.
    pub fn key(&self, place: u32) -> Option<u64> {
        let key = self.key[place as usize];
        (key != NONE).then_some(key & !FLAG)
    }

    /// Whether a place is taken, by a key with its flag.
    pub fn is_flagged(&self, place: u32) -> bool {
        let key = self.key[place as usize];
        key != NONE && key & FLAG != 0
    }

    /// Puts a key at a place, which must be free; gives the place that it leaves, and whether it had its flag there.
    pub fn insert(&mut self, key: u64, place: u32, flag: bool) -> Option<(u32, bool)> {
        assert!(self.key[place as usize] == NONE, "a place has one key");
        let old = match self.find(key) {
            Ok(i) => {
                let old = self.table[i] - 1;
                let flagged = self.is_flagged(old);
                self.key[old as usize] = NONE;
                self.table[i] = place + 1;
                Some((old, flagged))
            }
            Err(i) => {
                self.table[i] = place + 1;
                self.len += 1;
                None
            }
        };
        self.key[place as usize] = key | if flag { FLAG } else { 0 };
        old
    }

    /// Takes a key away; gives where it was, and whether it had its flag.
    pub fn remove(&mut self, key: u64) -> Option<(u32, bool)> {
        let mut hole = self.find(key).ok()?;
        let place = self.table[hole] - 1;
        let flagged = self.is_flagged(place);
        let mask = self.table.len() - 1;
        // Close the gap: move back each later entry whose own bucket does not lie behind the hole.
        let mut i = hole;
        loop {
            i = (i + 1) & mask;
            let entry = self.table[i];
            if entry == 0 {
                break;
            }
            let home = self.bucket(self.key[entry as usize - 1] & !FLAG);
            if (i.wrapping_sub(home) & mask) >= (i.wrapping_sub(hole) & mask) {
                self.table[hole] = entry;
                hole = i;
            }
        }
        self.table[hole] = 0;
        self.key[place as usize] = NONE;
        self.len -= 1;
        Some((place, flagged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn agrees_with_an_ordered_map() {
        let (mut places, mut model) = (Places::new(64), BTreeMap::new());
        let mut free: Vec<u32> = (0..64).collect();
        let mut n = 1u64;
        for step in 0..20_000 {
            n = mix(n + step);
            let (key, flag) = (n % 100, n >> 33 & 1 == 0);
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
            for key in 0..100 {
                let at = places.get(key);
                assert_eq!(at.map(|place| (place, places.is_flagged(place))), model.get(&key).copied());
                assert!(at.is_none_or(|place| places.key(place) == Some(key)));
            }
        }
    }
}
