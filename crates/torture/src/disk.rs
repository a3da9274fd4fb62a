//! A device in memory, with a volatile write cache that a power cut plays with.
//!
//! The device holds two states of each page: what reads see, and (for pages with unflushed
//! writes) what is durable. Completed, unflushed writes wait in a journal, oldest first; a
//! flush makes a prefix of it durable: the writes that had completed when it was submitted.

mod harm;
mod pages;

pub use pages::{PAGE_BYTES, PageStore};

use bimetal_units::SECTOR_BYTES;
use bimetal_units::rng::Rng;
use pages::{ALL_SECTORS, GARBAGE, SECTORS_PER_PAGE};
use std::collections::{BTreeSet, VecDeque};

/// Names an I/O while it is in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoId(pub u64);

/// How a power cut treats unflushed writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CutStyle {
    /// All are lost.
    LoseAll,
    /// All are kept.
    KeepAll,
    /// Each is lost, kept or torn by itself.
    Mixed,
    /// Each is lost or kept whole.
    Whole,
    /// Each sector of each write is lost or kept by itself.
    Sectors,
    /// Nearly all are kept; a few are lost or torn.
    LoseFew,
    /// Nearly all are lost; a few are kept or torn.
    KeepFew,
    /// Newer writes are kept while older ones are lost.
    Newest,
}

impl CutStyle {
    /// All styles.
    pub const ALL: [CutStyle; 8] = [
        CutStyle::LoseAll,
        CutStyle::KeepAll,
        CutStyle::Mixed,
        CutStyle::Whole,
        CutStyle::Sectors,
        CutStyle::LoseFew,
        CutStyle::KeepFew,
        CutStyle::Newest,
    ];
}

/// What a discarded range reads back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiscardEffect {
    /// What it held.
    Old,
    /// Zeros.
    Zeros,
    /// Anything.
    Garbage,
}

/// A bad sector was hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadSector(pub u64);

#[derive(Clone)]
struct Change {
    page: u32,
    /// Whole pages.
    data: Vec<u8>,
    /// By page, which sectors it changes; empty when all.
    masks: Vec<u8>,
    /// A FUA write that completed: it survives whatever happens to older ones.
    durable: bool,
}

#[derive(Clone)]
enum Kind {
    Change { change: Change, fua: bool },
    Nothing,
    Flush { covers: u64 },
}

#[derive(Clone)]
struct InFlight {
    id: IoId,
    kind: Kind,
}

#[derive(Clone, Copy)]
struct Page {
    /// What reads see.
    current: u32,
    /// What is durable, while `pending` is not zero.
    durable: u32,
    /// Journal entries that touch the page.
    pending: u32,
}

/// A device.
#[derive(Clone)]
pub struct Disk {
    pages: Vec<Page>,
    store: PageStore,
    journal: VecDeque<Change>,
    /// Entries that left the journal's front.
    journal_gone: u64,
    in_flight: Vec<InFlight>,
    bad: BTreeSet<u64>,
    spare: Vec<Vec<u8>>,
    salt: u64,
}

impl Disk {
    /// A device full of random garbage; `salt` says which. `size_bytes` is a multiple of the page size.
    pub fn new(size_bytes: u64, salt: u64) -> Disk {
        assert!(
            size_bytes.is_multiple_of(PAGE_BYTES as u64),
            "a device of {size_bytes} bytes is not whole pages"
        );
        let page = Page { current: GARBAGE, durable: GARBAGE, pending: 0 };
        Disk {
            pages: vec![page; (size_bytes / PAGE_BYTES as u64) as usize],
            store: PageStore::default(),
            journal: VecDeque::new(),
            journal_gone: 0,
            in_flight: Vec::new(),
            bad: BTreeSet::new(),
            spare: Vec::new(),
            salt,
        }
    }

    /// Its size.
    pub fn size_bytes(&self) -> u64 {
        self.pages.len() as u64 * PAGE_BYTES as u64
    }

    /// Writes that completed and are not durable.
    pub fn unflushed(&self) -> usize {
        self.journal.iter().filter(|c| !c.durable).count()
    }

    /// Reads whole pages as they are now.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), BadSector> {
        let first = offset / u64::from(SECTOR_BYTES);
        let end = first + out.len() as u64 / u64::from(SECTOR_BYTES);
        if let Some(&sector) = self.bad.range(first..end).next() {
            return Err(BadSector(sector));
        }
        let page = (offset / PAGE_BYTES as u64) as usize;
        for (i, part) in out.chunks_exact_mut(PAGE_BYTES).enumerate() {
            self.store.read(self.pages[page + i].current, self.salt, (page + i) as u64, part);
        }
        Ok(())
    }

    /// An empty vector to gather a write's data in.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Takes a write of whole pages.
    pub fn submit_write(&mut self, id: IoId, offset: u64, data: Vec<u8>, fua: bool) {
        let change =
            Change { page: (offset / PAGE_BYTES as u64) as u32, data, masks: Vec::new(), durable: false };
        self.in_flight.push(InFlight { id, kind: Kind::Change { change, fua } });
    }

    /// Takes a discard.
    pub fn submit_discard(&mut self, id: IoId, offset: u64, len: u64, effect: DiscardEffect) {
        if effect == DiscardEffect::Old {
            self.in_flight.push(InFlight { id, kind: Kind::Nothing });
            return;
        }
        let mut data = self.buffer();
        data.resize(len as usize, 0);
        if effect == DiscardEffect::Garbage {
            for (i, page) in data.chunks_exact_mut(PAGE_BYTES).enumerate() {
                pages::garbage(self.salt ^ id.0, offset / PAGE_BYTES as u64 + i as u64, page);
            }
        }
        self.submit_write(id, offset, data, false);
    }

    /// Takes a flush: it covers what has completed by now.
    pub fn submit_flush(&mut self, id: IoId) {
        let covers = self.journal_gone + self.journal.len() as u64;
        self.in_flight.push(InFlight { id, kind: Kind::Flush { covers } });
    }

    /// The data of a write in flight.
    pub fn data_in_flight(&self, id: IoId) -> &[u8] {
        match self.in_flight.iter().find(|f| f.id == id).map(|f| &f.kind) {
            Some(Kind::Change { change, .. }) => &change.data,
            _ => &[],
        }
    }

    fn take(&mut self, id: IoId) -> Kind {
        let i = self.in_flight.iter().position(|f| f.id == id).expect("completions are for I/O in flight");
        self.in_flight.swap_remove(i).kind
    }

    /// Completes an I/O.
    pub fn complete(&mut self, id: IoId) {
        match self.take(id) {
            Kind::Nothing => {}
            Kind::Change { mut change, fua } => {
                change.durable = fua;
                self.cache(change);
            }
            Kind::Flush { covers } => self.flush(covers),
        }
    }

    /// Fails a write or discard: none, all or some of its sectors are written nevertheless.
    pub fn fail_change(&mut self, id: IoId, rng: &mut Rng) {
        let Kind::Change { mut change, .. } = self.take(id) else { return };
        match rng.below(3) {
            0 => self.spare(change.data),
            1 => self.cache(change),
            _ => {
                let pages = change.data.len() / PAGE_BYTES;
                tear(&mut change.masks, pages, rng);
                self.cache(change);
            }
        }
    }

    /// Fails a flush. With `drop_cache` unflushed writes are gone, in any mix, and the next flush will
    /// report success without them.
    pub fn fail_flush(&mut self, id: IoId, drop_cache: bool, rng: &mut Rng) {
        self.take(id);
        if drop_cache {
            let style = rng.pick(&CutStyle::ALL);
            self.settle(style, rng);
        }
    }

    /// Puts a completed change into the cache.
    fn cache(&mut self, change: Change) {
        for (i, data) in change.data.chunks_exact(PAGE_BYTES).enumerate() {
            let mask = change.masks.get(i).copied().unwrap_or(ALL_SECTORS);
            let number = change.page as usize + i;
            let page = &mut self.pages[number];
            if page.pending == 0 {
                // The page as it is becomes the durable one; reads see a new one from now on.
                page.durable = page.current;
                page.current = self.store.copy_for(page.durable, mask, self.salt, number as u64);
            }
            page.pending += 1;
            self.store.write(&mut page.current, data, mask, self.salt, number as u64);
            if !self.bad.is_empty() {
                heal(&mut self.bad, number as u64, mask);
            }
        }
        self.journal.push_back(change);
    }

    /// Makes the journal durable up to a position.
    fn flush(&mut self, covers: u64) {
        let count = covers.saturating_sub(self.journal_gone) as usize;
        let covered: Vec<Change> = self.journal.drain(..count).collect();
        self.journal_gone += count as u64;
        for change in &covered {
            for i in 0..change.data.len() / PAGE_BYTES {
                let page = &mut self.pages[change.page as usize + i];
                page.pending -= 1;
                if page.pending == 0 {
                    self.store.free(page.durable);
                }
            }
        }
        for change in covered {
            for (i, data) in change.data.chunks_exact(PAGE_BYTES).enumerate() {
                let number = change.page as usize + i;
                let page = &mut self.pages[number];
                if page.pending > 0 {
                    let mask = change.masks.get(i).copied().unwrap_or(ALL_SECTORS);
                    self.store.write(&mut page.durable, data, mask, self.salt, number as u64);
                }
            }
            self.spare(change.data);
        }
    }

    /// Power is cut: each unflushed sector, of completed writes and of those in flight, meets its fate.
    pub fn power_cut(&mut self, style: CutStyle, rng: &mut Rng) {
        let mut in_flight = std::mem::take(&mut self.in_flight);
        rng.shuffle(&mut in_flight);
        for io in in_flight {
            if let Kind::Change { change, .. } = io.kind {
                self.cache(change);
            }
        }
        self.settle(style, rng);
    }

    /// The process dies: what was handed over happens, and the cache lives on.
    pub fn kill(&mut self, rng: &mut Rng) {
        let mut in_flight = std::mem::take(&mut self.in_flight);
        rng.shuffle(&mut in_flight);
        for io in in_flight {
            match io.kind {
                Kind::Change { mut change, fua } => {
                    change.durable = fua;
                    self.cache(change);
                }
                Kind::Flush { covers } => self.flush(covers),
                Kind::Nothing => {}
            }
        }
    }

    /// Decides what of the journal is kept; all that remains is durable.
    fn settle(&mut self, style: CutStyle, rng: &mut Rng) {
        let journal = std::mem::take(&mut self.journal);
        self.journal_gone += journal.len() as u64;
        for change in &journal {
            for i in 0..change.data.len() / PAGE_BYTES {
                let page = &mut self.pages[change.page as usize + i];
                if page.pending > 0 {
                    page.pending = 0;
                    self.store.free(page.current);
                    page.current = page.durable;
                }
            }
        }
        let count = journal.len();
        for (i, change) in journal.into_iter().enumerate() {
            self.settle_one(change, style, i * 2 >= count, rng);
        }
    }

    fn settle_one(&mut self, change: Change, style: CutStyle, newer: bool, rng: &mut Rng) {
        let pages = change.data.len() / PAGE_BYTES;
        let mut kept = Vec::new();
        if change.durable {
            kept.resize(pages, ALL_SECTORS);
        } else {
            fate(&mut kept, pages, style, newer, rng);
        }
        for (i, data) in change.data.chunks_exact(PAGE_BYTES).enumerate() {
            let mask = kept[i] & change.masks.get(i).copied().unwrap_or(ALL_SECTORS);
            let number = change.page as usize + i;
            self.store.write(&mut self.pages[number].current, data, mask, self.salt, number as u64);
        }
        self.spare(change.data);
    }

    /// Pages that are being written, or were and are not durable.
    pub fn volatile_pages(&self) -> Vec<u64> {
        let flying = self.in_flight.iter().filter_map(|io| match &io.kind {
            Kind::Change { change, .. } => Some(change),
            Kind::Nothing | Kind::Flush { .. } => None,
        });
        let cached = self.journal.iter().filter(|change| !change.durable);
        let pages = |c: &Change| {
            (0..(c.data.len() / PAGE_BYTES) as u64).map(|i| u64::from(c.page) + i).collect::<Vec<_>>()
        };
        flying.chain(cached).flat_map(pages).collect()
    }

    /// Whether a sector of a page is unreadable.
    pub fn has_bad(&self, page: u64) -> bool {
        let first = page * SECTORS_PER_PAGE;
        self.bad.range(first..first + SECTORS_PER_PAGE).next().is_some()
    }

    /// All sectors of a page can be read again.
    pub fn mend(&mut self, page: u64) {
        heal(&mut self.bad, page, ALL_SECTORS);
    }

    /// What a page will hold when all that is in flight has happened.
    pub fn intended(&self, page: u64, out: &mut [u8]) {
        self.peek(page, out);
        for io in &self.in_flight {
            let Kind::Change { change, .. } = &io.kind else { continue };
            let pages =
                u64::from(change.page)..u64::from(change.page) + (change.data.len() / PAGE_BYTES) as u64;
            if pages.contains(&page) && change.masks.is_empty() {
                let at = (page - pages.start) as usize * PAGE_BYTES;
                out.copy_from_slice(&change.data[at..at + PAGE_BYTES]);
            }
        }
    }

    /// Makes a sector unreadable until it is written.
    pub fn add_bad_sector(&mut self, sector: u64) {
        self.bad.insert(sector);
    }

    /// Flips a bit in a page: reads succeed and are wrong.
    pub fn rot(&mut self, page: u64, rng: &mut Rng) {
        let mut data = [0; PAGE_BYTES];
        let index = page as usize;
        self.store.read(self.pages[index].current, self.salt, page, &mut data);
        data[rng.below(PAGE_BYTES as u64) as usize] ^= 1 << rng.below(8);
        self.store.write(&mut self.pages[index].current, &data, ALL_SECTORS, self.salt, page);
    }

    /// What a page holds, whatever the device would say to a read. False: it was never written.
    pub fn peek(&self, page: u64, out: &mut [u8]) -> bool {
        let index = self.pages[page as usize].current;
        self.store.read(index, self.salt, page, out);
        index != GARBAGE
    }

    /// Puts back what a page held before: reads succeed and bring an older version of it.
    pub fn put_back(&mut self, page: u64, old: &[u8]) {
        self.store.write(&mut self.pages[page as usize].current, old, ALL_SECTORS, self.salt, page);
    }

    /// A page that was written at some time, for damage to hurt.
    pub fn written_page(&self, rng: &mut Rng) -> Option<u64> {
        let start = rng.below(self.pages.len() as u64) as usize;
        let around = (start..self.pages.len()).chain(0..start);
        around.into_iter().find(|&p| self.pages[p].current != GARBAGE).map(|p| p as u64)
    }

    fn spare(&mut self, mut data: Vec<u8>) {
        // A few are enough: more would only grow the memory in use.
        if self.spare.len() < 64 {
            data.clear();
            self.spare.push(data);
        }
    }
}

/// Takes the sectors that a write covers off the bad ones.
fn heal(bad: &mut BTreeSet<u64>, page: u64, mask: u8) {
    for i in 0..SECTORS_PER_PAGE {
        if mask & (1 << i) != 0 {
            bad.remove(&(page * SECTORS_PER_PAGE + i));
        }
    }
}

/// Which sectors of a write of `pages` pages a power cut keeps.
fn fate(kept: &mut Vec<u8>, pages: usize, style: CutStyle, newer: bool, rng: &mut Rng) {
    let [lose, keep, torn] = match style {
        CutStyle::LoseAll => [1, 0, 0],
        CutStyle::KeepAll => [0, 1, 0],
        CutStyle::Mixed => [1, 1, 1],
        CutStyle::Whole => [1, 1, 0],
        CutStyle::Sectors => [0, 0, 1],
        CutStyle::LoseFew => [1, 14, 1],
        CutStyle::KeepFew => [14, 1, 1],
        CutStyle::Newest if newer => [1, 14, 1],
        CutStyle::Newest => [14, 1, 1],
    };
    match rng.weighted(&[lose, keep, torn]) {
        0 => kept.resize(pages, 0),
        1 => kept.resize(pages, ALL_SECTORS),
        _ => tear(kept, pages, rng),
    }
}

/// Keeps some sectors of a write: a beginning, an end, all but one, one only, or any subset.
fn tear(kept: &mut Vec<u8>, pages: usize, rng: &mut Rng) {
    let sectors = pages as u64 * SECTORS_PER_PAGE;
    let at = rng.below(sectors);
    let how = rng.below(5);
    kept.clear();
    kept.resize(pages, 0);
    if how == 4 {
        kept.iter_mut().for_each(|m| *m = rng.next_u64() as u8);
        return;
    }
    for s in 0..sectors {
        let keep = match how {
            0 => s < at,
            1 => s >= at,
            2 => s != at,
            _ => s == at,
        };
        kept[(s / SECTORS_PER_PAGE) as usize] |= u8::from(keep) << (s % SECTORS_PER_PAGE);
    }
}
