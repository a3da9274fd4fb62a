//! Gives every chunk of a new, closed volume a home, without writing its data: to measure what a full volume
//! costs in memory and how long it takes to open. The volume is good for nothing else afterwards.
//!
//!     bimetal create ./v.toml --fast 'fast.img?size=64G' --slow 'slow.img?size=2T'
//!     cargo run --release --example dense_map -- fast.img

use bimetal_engine::format::geometry::{HEADER_COPIES, header_at};
use bimetal_engine::format::header::CheckpointHeader;
use bimetal_engine::format::page::{self, PAGE_PAYLOAD, PageKind, PageRef, REFS_PER_PAGE, root_sum};
use bimetal_engine::format::superblock::{Found, Superblock};
use bimetal_engine::mask::BlockMask;
use bimetal_units::{BLOCK_BYTES, FAST, Home, SLOW, Slot};
use std::fs::{File, OpenOptions};
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
    // Map pages are in their first place, checksum pages nowhere yet.
    let mut tables = vec![PageRef::default(); geo.table_pages() as usize];
    for number in 0..geo.map_pages {
        let mut payload = Vec::with_capacity(PAGE_PAYLOAD);
        for chunk in number * per_page..((number + 1) * per_page).min(geo.chunks) {
            let home = match chunk.checked_sub(fast) {
                None => Home { tier: FAST, slot: Slot(chunk) },
                Some(slow) => Home { tier: SLOW, slot: Slot(slow) },
            };
            page::put_map_entry(&mut payload, Some(home), words, &all);
        }
        let sum = page::encode(&mut block, PageKind::Map, &volume, u64::from(number), NEW + 1, &payload);
        tables[number as usize] = PageRef { place: 1, sum };
        write_twice(&file, &block, geo.page_at(number, 0), geo.page_twin_at(number, 0))?;
    }

    let mut directory = Vec::new();
    for (number, refs) in (geo.table_pages()..).zip(tables.chunks(REFS_PER_PAGE as usize)) {
        let payload = refs_payload(refs);
        let sum =
            page::encode(&mut block, PageKind::Directory, &volume, u64::from(number), NEW + 1, &payload);
        directory.push(PageRef { place: 1, sum });
        write_twice(&file, &block, geo.page_at(number, 0), geo.page_twin_at(number, 0))?;
    }
    let mut header = CheckpointHeader { number: NEW + 1, root_blocks: geo.root_ref_blocks(), ..header };
    let place = (NEW + 1) % 2;
    for (i, refs) in (0..).zip(directory.chunks(REFS_PER_PAGE as usize)) {
        let sum = page::encode(&mut block, PageKind::Root, &volume, i.into(), NEW + 1, &refs_payload(refs));
        header.root_sum = root_sum(header.root_sum, sum);
        write_twice(&file, &block, geo.root_at(place, i), geo.root_twin_at(place, i))?;
    }
    header.encode(&mut block, &volume);
    for copy in 0..HEADER_COPIES {
        file.write_all_at(&block, header_at(place) + copy * BLOCK as u64)?;
    }
    file.sync_all()?;
    println!("{} chunks have a home", geo.chunks);
    Ok(())
}

/// Writes a block and its second copy.
fn write_twice(file: &File, block: &[u8], at: u64, twin: Option<u64>) -> io::Result<()> {
    [Some(at), twin].into_iter().flatten().try_for_each(|at| file.write_all_at(block, at))
}

fn refs_payload(refs: &[PageRef]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(PAGE_PAYLOAD);
    refs.iter().for_each(|version| page::put_ref(&mut payload, *version));
    payload
}
