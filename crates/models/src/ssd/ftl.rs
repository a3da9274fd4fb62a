//! The flash translation layer without time: which logical unit lies where, and what a superblock still holds.
//!
//! A superblock is a block of every die. It is written from its start to its end, page by page over the dies, and
//! erased as a whole. Numbers of units, logical and physical, fit 32 bits; entries hold the number plus one, so that
//! memory that was never written is zeros, which the system does not hand out before it is touched.

/// No superblock.
const NONE: u32 = u32::MAX;
/// Logical units in a region, whose mapped ones are counted so that a discard can pass empty ones by.
const REGION_UNITS: u32 = 4096;

/// What a superblock is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Erased, or about to be.
    Free,
    /// A stream writes it.
    Open,
    /// Written to its end.
    Full,
}

#[derive(Clone, Copy, Debug)]
struct Superblock {
    /// Units that are mapped to it.
    valid: u32,
    /// Units that fit: all, or fewer with one bit per cell.
    limit: u32,
    state: State,
    slc: bool,
}

/// A place where data is appended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    superblock: u32,
    /// Next unit in it.
    next: u32,
}

impl Stream {
    /// A stream that has no superblock yet.
    pub fn new() -> Stream {
        Stream { superblock: NONE, next: 0 }
    }
}

/// A page of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub superblock: u32,
    /// Number in the superblock: pages go over the dies first.
    pub number: u32,
    pub slc: bool,
}

/// The mapping of a drive.
#[derive(Debug)]
pub(crate) struct Ftl {
    /// For each logical unit, where it lies.
    place: Vec<u32>,
    /// For each physical unit, whose it is; 0 where nothing valid lies.
    owner: Vec<u32>,
    superblocks: Vec<Superblock>,
    /// Taken from its end: what was freed last is used first, so that little memory is touched.
    free: Vec<u32>,
    mapped_in_region: Vec<u16>,
    units_per_superblock: u32,
    units_per_page: u32,
    slc_limit: u32,
    slc_superblocks: u32,
}

impl Ftl {
    /// `pages_per_superblock` pages of `units_per_page` units; with one bit per cell, only `slc_pages` of them.
    pub fn new(
        logical_units: u32,
        superblocks: u32,
        pages_per_superblock: u32,
        units_per_page: u32,
        slc_pages: u32,
    ) -> Ftl {
        let units_per_superblock = pages_per_superblock * units_per_page;
        let fresh = Superblock { valid: 0, limit: units_per_superblock, state: State::Free, slc: false };
        Ftl {
            place: vec![0; logical_units as usize],
            owner: vec![0; superblocks as usize * units_per_superblock as usize],
            superblocks: vec![fresh; superblocks as usize],
            free: (0..superblocks).rev().collect(),
            mapped_in_region: vec![0; logical_units.div_ceil(REGION_UNITS) as usize],
            units_per_superblock,
            units_per_page,
            slc_limit: slc_pages * units_per_page,
            slc_superblocks: 0,
        }
    }

    /// Where a unit lies; `None` if it holds nothing.
    pub fn lookup(&self, unit: u32) -> Option<u32> {
        self.place[unit as usize].checked_sub(1)
    }

    /// The page of a physical unit.
    pub fn page_of(&self, physical: u32) -> Page {
        let superblock = physical / self.units_per_superblock;
        let number = (physical - superblock * self.units_per_superblock) / self.units_per_page;
        Page { superblock, number, slc: self.superblocks[superblock as usize].slc }
    }

    /// Whether the stream is at the start of a page, and so has none open.
    pub fn at_page_start(&self, stream: &Stream) -> bool {
        stream.next.is_multiple_of(self.units_per_page)
    }

    /// The page that the stream's next unit falls in.
    pub fn next_page(&self, stream: &Stream) -> Option<Page> {
        let block = self.superblocks.get(stream.superblock as usize)?;
        let number = stream.next / self.units_per_page;
        Some(Page { superblock: stream.superblock, number, slc: block.slc })
    }

    /// Whether the stream must open a superblock before it can append.
    pub fn is_full(&self, stream: &Stream) -> bool {
        self.superblocks.get(stream.superblock as usize).is_none_or(|block| stream.next == block.limit)
    }

    /// Gives the stream a free superblock. There is one.
    pub fn open(&mut self, stream: &mut Stream, slc: bool) {
        assert!(self.is_full(stream), "a superblock is written to its end");
        if let Some(full) = self.superblocks.get_mut(stream.superblock as usize) {
            full.state = State::Full;
        }
        let superblock = self.free.pop().expect("the collector keeps superblocks free");
        let block = &mut self.superblocks[superblock as usize];
        assert!(block.state == State::Free && block.valid == 0, "a free superblock is empty");
        block.state = State::Open;
        block.slc = slc;
        block.limit = if slc { self.slc_limit } else { self.units_per_superblock };
        self.slc_superblocks += u32::from(slc);
        *stream = Stream { superblock, next: 0 };
    }

    /// Writes a logical unit to the end of the stream, which is not full.
    pub fn append(&mut self, stream: &mut Stream, unit: u32) {
        let physical = stream.superblock * self.units_per_superblock + stream.next;
        stream.next += 1;
        self.owner[physical as usize] = unit + 1;
        self.superblocks[stream.superblock as usize].valid += 1;
        match std::mem::replace(&mut self.place[unit as usize], physical + 1) {
            0 => self.mapped_in_region[(unit / REGION_UNITS) as usize] += 1,
            old => self.invalidate(old - 1),
        }
    }

    /// Leaves the rest of the open page empty; how many units that wastes.
    pub fn pad(&mut self, stream: &mut Stream) -> u32 {
        let padded = stream.next.next_multiple_of(self.units_per_page);
        padded - std::mem::replace(&mut stream.next, padded)
    }

    fn invalidate(&mut self, physical: u32) {
        self.owner[physical as usize] = 0;
        self.superblocks[(physical / self.units_per_superblock) as usize].valid -= 1;
    }

    /// Forgets the units from `from` up to `until`.
    pub fn discard(&mut self, from: u32, until: u32) {
        let mut unit = from;
        while unit < until {
            let region = unit / REGION_UNITS;
            let end = until.min((region + 1) * REGION_UNITS);
            if self.mapped_in_region[region as usize] == 0 {
                unit = end;
                continue;
            }
            for unit in unit..end {
                let old = std::mem::take(&mut self.place[unit as usize]);
                if old != 0 {
                    self.mapped_in_region[region as usize] -= 1;
                    self.invalidate(old - 1);
                }
            }
            unit = end;
        }
    }

    /// The full superblock with the fewest valid units: the greedy choice; of those in the SLC cache only, if so
    /// asked. `None` while none is full.
    ///
    /// A scan: there are at most 65,536, and a choice is made once per superblock written, so it costs each unit far
    /// less than lists by valid count, kept at every write, would.
    pub fn fewest_valid(&self, slc_only: bool) -> Option<Victim> {
        self.superblocks
            .iter()
            .zip(0..)
            .filter(|(block, _)| block.state == State::Full && (block.slc || !slc_only))
            .min_by_key(|(block, _)| block.valid)
            .map(|(block, superblock)| Victim {
                superblock,
                valid: block.valid,
                cursor: 0,
                units: block.limit,
            })
    }

    /// The logical unit at the victim's cursor and its place, if one is valid there; moves the cursor on.
    pub fn step(&self, victim: &mut Victim) -> Option<(u32, u32)> {
        let physical = victim.superblock * self.units_per_superblock + victim.cursor;
        victim.cursor += 1;
        self.owner[physical as usize].checked_sub(1).map(|unit| (unit, physical))
    }

    /// Frees a superblock from which everything has been moved.
    pub fn free(&mut self, victim: &Victim) {
        let block = &mut self.superblocks[victim.superblock as usize];
        assert!(block.state == State::Full && block.valid == 0, "only what is empty is erased");
        block.state = State::Free;
        self.slc_superblocks -= u32::from(std::mem::take(&mut block.slc));
        self.free.push(victim.superblock);
    }

    /// How many superblocks are free.
    pub fn free_superblocks(&self) -> u32 {
        self.free.len() as u32
    }

    /// How many superblocks are in the SLC cache.
    pub fn slc_superblocks(&self) -> u32 {
        self.slc_superblocks
    }

    /// Units of a superblock at full density.
    pub fn units_per_superblock(&self) -> u32 {
        self.units_per_superblock
    }

    /// Units of a page.
    pub fn units_per_page(&self) -> u32 {
        self.units_per_page
    }
}

/// A superblock that is being emptied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Victim {
    superblock: u32,
    /// Valid units when it was chosen.
    pub valid: u32,
    /// Next unit to look at.
    pub cursor: u32,
    /// Units to look at.
    pub units: u32,
}

#[cfg(test)]
impl Ftl {
    /// Holds the books against each other.
    pub fn check(&self) {
        let mut mapped_in_region = vec![0; self.mapped_in_region.len()];
        for (unit, &place) in (0..).zip(&self.place) {
            if place != 0 {
                assert_eq!(self.owner[place as usize - 1], unit + 1, "unit {unit} lies where it is said to");
                mapped_in_region[(unit / REGION_UNITS) as usize] += 1;
            }
        }
        assert_eq!(self.mapped_in_region, mapped_in_region);
        for (physical, &owner) in (0..).zip(&self.owner) {
            if owner != 0 {
                assert_eq!(
                    self.place[owner as usize - 1],
                    physical + 1,
                    "what lies at {physical} is looked for there"
                );
            }
        }
        let owners = self.owner.chunks(self.units_per_superblock as usize);
        for (block, owners) in self.superblocks.iter().zip(owners) {
            let valid = owners.iter().filter(|&&owner| owner != 0).count();
            assert_eq!(block.valid as usize, valid);
            assert!(block.state != State::Free || valid == 0);
            assert!(owners[block.limit as usize..].iter().all(|&owner| owner == 0));
        }
        let count = |state| self.superblocks.iter().filter(|block| block.state == state).count();
        assert_eq!(count(State::Free), self.free.len());
        assert!(count(State::Open) <= 2, "the host's and the collector's");
        let slc = self.superblocks.iter().filter(|block| block.slc && block.state != State::Free).count();
        assert_eq!(slc, self.slc_superblocks as usize);
    }
}
