//! Gives every chunk of a new, closed volume a home, without writing its data: to measure what a full volume
//! costs in memory and how long it takes to open. The volume is good for nothing else afterwards.
//!
//!     bimetal create ./v.toml --fast 'fast.img?size=64G' --slow 'slow.img?size=2T'
//!     cargo run --release --example dense_map -- fast.img

use bimetal_engine::format::geometry::{HEADER_COPIES, header_at};
use bimetal_engine::format::header::CheckpointHeader;
use bimetal_engine::format::page::{self, PAGE_PAYLOAD, PageKind};
use bimetal_engine::format::superblock::{Found, Superblock};
use bimetal_engine::mask::BlockMask;
use bimetal_engine::units::{BLOCK_BYTES, FAST, Home, SLOW, Slot};
use std::fs::OpenOptions;
use std::io::{self, Error};
use std::os::unix::fs::FileExt as _;

const BLOCK: usize = BLOCK_BYTES as usize;
/// The checkpoint that a new volume has.
const NEW: u64 = 2;

fn main() -> io::Result<()> {
    let path = std::env::args().nth(1).ok_or_else(|| Error::other("which file is the fast device?"))?;
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut block = vec![0; BLOCK];
    file.read_exact_at(&mut block, 0)?;
    let Found::Valid(superblock) = Superblock::decode(&block, 0) else {
        return Err(Error::other("that is no Bimetal device"));
    };
    let (volume, geo) = (superblock.volume, superblock.geometry);
    file.read_exact_at(&mut block, header_at(NEW % 2))?;
    let header = CheckpointHeader::decode(&block, &volume, NEW % 2)
        .filter(|header| header.number == NEW)
        .ok_or_else(|| Error::other("the volume has been used; make a new one"))?;

    let fast = geo.slots(FAST);
    let all = BlockMask::range(0, geo.blocks_per_chunk());
    let words = geo.mask_words();
    let per_page = page::map_entries_per_page(words);
    for number in 0..geo.map_pages {
        let mut payload = Vec::with_capacity(PAGE_PAYLOAD);
        for chunk in number * per_page..((number + 1) * per_page).min(geo.chunks) {
            let home = match chunk.checked_sub(fast) {
                None => Home { tier: FAST, slot: Slot(chunk) },
                Some(slow) => Home { tier: SLOW, slot: Slot(slow) },
            };
            page::put_map_entry(&mut payload, Some(home), words, &all);
        }
        page::encode(&mut block, PageKind::Map, &volume, u64::from(number), NEW + 1, &payload);
        file.write_all_at(&block, geo.page_at(number, 0))?;
    }

    // Two bits a page: map pages are in their first place, checksum pages nowhere yet.
    let mut places = vec![0u8; geo.pages().div_ceil(4) as usize];
    (0..geo.map_pages as usize).for_each(|p| places[p / 4] |= 1 << (2 * (p % 4)));
    for (i, payload) in places.chunks(PAGE_PAYLOAD).enumerate() {
        page::encode(&mut block, PageKind::Root, &volume, i as u64, NEW + 1, payload);
        file.write_all_at(&block, geo.roots_at[((NEW + 1) % 2) as usize] + (i * BLOCK) as u64)?;
    }
    let root_blocks = places.len().div_ceil(PAGE_PAYLOAD) as u32;
    CheckpointHeader { number: NEW + 1, root_blocks, ..header }.encode(&mut block, &volume);
    for copy in 0..HEADER_COPIES {
        file.write_all_at(&block, header_at((NEW + 1) % 2) + copy * BLOCK as u64)?;
    }
    file.sync_all()?;
    println!("{} chunks have a home", geo.chunks);
    Ok(())
}
