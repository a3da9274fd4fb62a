//! A store for operations in flight, addressed by a small index: bounded, for whoever gives it a limit.

use serde::{Deserialize, Serialize};

/// Up to `limit` values, each at a stable index until removed.
#[derive(Serialize, Deserialize)]
pub struct Slab<T> {
    items: Vec<Option<T>>,
    free: Vec<u32>,
    limit: usize,
}

impl<T> Slab<T> {
    /// A slab for at most `limit` values; it takes memory for as many as it ever held at a time.
    pub fn new(limit: usize) -> Self {
        Slab { items: Vec::new(), free: Vec::new(), limit }
    }

    /// Values in it.
    pub fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether another value fits.
    pub fn has_room(&self) -> bool {
        self.len() < self.limit
    }

    /// Puts a value in. Panics beyond the limit: callers ask [`Slab::has_room`] first.
    pub fn insert(&mut self, value: T) -> u32 {
        assert!(self.has_room(), "slab is full");
        match self.free.pop() {
            Some(i) => {
                self.items[i as usize] = Some(value);
                i
            }
            None => {
                self.items.push(Some(value));
                self.items.len() as u32 - 1
            }
        }
    }

    /// Takes a value out.
    pub fn remove(&mut self, i: u32) -> T {
        let value = self.items[i as usize].take().expect("index of a value that is in the slab");
        self.free.push(i);
        value
    }

    /// Takes the value out, if there is one at the index.
    pub fn take(&mut self, i: u32) -> Option<T> {
        let value = self.items.get_mut(i as usize)?.take()?;
        self.free.push(i);
        Some(value)
    }

    /// All values with their indexes, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.items.iter().enumerate().filter_map(|(i, v)| v.as_ref().map(|v| (i as u32, v)))
    }

    /// All values, to be changed, in the order of their indexes.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.items.iter_mut().flatten()
    }

    /// The value, to be changed, if there is one at the index.
    pub fn get_mut(&mut self, i: u32) -> Option<&mut T> {
        self.items.get_mut(i as usize).and_then(Option::as_mut)
    }

    /// The value, if there is one at the index.
    pub fn get(&self, i: u32) -> Option<&T> {
        self.items.get(i as usize).and_then(Option::as_ref)
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;
    fn index(&self, i: u32) -> &T {
        self.items[i as usize].as_ref().expect("index of a value that is in the slab")
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, i: u32) -> &mut T {
        self.items[i as usize].as_mut().expect("index of a value that is in the slab")
    }
}
