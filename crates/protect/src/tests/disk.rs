//! A device in memory with a volatile cache.

use bimetal_units::BLOCK_BYTES;
use bimetal_units::rng::Rng;
use std::collections::BTreeSet;

const BLOCK: usize = BLOCK_BYTES as usize;

/// What a device holds.
#[derive(Clone)]
pub(super) struct Disk {
    /// What a crash leaves.
    durable: Vec<u8>,
    /// What is read.
    view: Vec<u8>,
    /// Blocks that were written and not flushed, in order, with what they held.
    cache: Vec<(usize, Vec<u8>)>,
    pub(super) bad: BTreeSet<usize>,
}

impl Disk {
    pub(super) fn new(bytes: Vec<u8>) -> Disk {
        Disk { durable: bytes.clone(), view: bytes, cache: Vec::new(), bad: BTreeSet::new() }
    }

    pub(super) fn block(&self, at: usize) -> &[u8] {
        &self.view[at..at + BLOCK]
    }

    /// None where a block cannot be read.
    pub(super) fn read(&self, at: usize, out: &mut [u8]) -> bool {
        let blocks = at / BLOCK..(at + out.len()) / BLOCK;
        out.copy_from_slice(&self.view[at..at + out.len()]);
        self.bad.range(blocks).next().is_none()
    }

    pub(super) fn write(&mut self, at: usize, bytes: &[u8], fua: bool) {
        for (i, block) in bytes.chunks(BLOCK).enumerate() {
            let place = at / BLOCK + i;
            self.bad.remove(&place);
            self.view[place * BLOCK..][..BLOCK].copy_from_slice(block);
            if fua {
                self.durable[place * BLOCK..][..BLOCK].copy_from_slice(block);
                self.cache.retain(|(cached, _)| *cached != place);
            } else {
                self.cache.push((place, block.to_vec()));
            }
        }
    }

    /// A bit of a block is another, now and after a crash.
    pub(super) fn rot(&mut self, at: usize) {
        for bytes in [&mut self.view, &mut self.durable] {
            bytes[at] ^= 4;
        }
    }

    /// How much of the cache a flush that begins now covers.
    pub(super) fn cached(&self) -> BTreeSet<usize> {
        self.cache.iter().map(|(place, _)| *place).collect()
    }

    /// A flush has ended that was to cover these blocks.
    pub(super) fn flush(&mut self, covered: &BTreeSet<usize>) {
        for place in covered {
            if let Some((_, block)) = self.cache.iter().rev().find(|(cached, _)| cached == place) {
                self.durable[place * BLOCK..][..BLOCK].copy_from_slice(block);
                self.cache.retain(|(cached, _)| cached != place);
            }
        }
    }

    /// A flush has failed: what it was to cover may be forgotten, which no later flush will say.
    pub(super) fn forget(&mut self, covered: &BTreeSet<usize>) {
        self.cache.retain(|(cached, _)| !covered.contains(cached));
    }

    /// Whatever is cached may be lost or not.
    pub(super) fn crash(&mut self, rng: &mut Rng) {
        for (place, block) in std::mem::take(&mut self.cache) {
            if rng.one_in(2) {
                self.durable[place * BLOCK..][..BLOCK].copy_from_slice(&block);
            }
        }
        self.view.clone_from(&self.durable);
    }
}
