//! Where things lie on the devices: computed once when a volume is created, then recorded.

use super::marks::MarkLayout;
use super::page::{self, PageKind, REFS_PER_PAGE};
use crate::api::options::{CreateOptions, DeviceInfo, Marking, OpenError};
use crate::base::mask::BlockMask;
use bimetal_units::*;
use serde::{Deserialize, Serialize};
use std::ops::Range;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// The landing zone unless told otherwise, bytes.
const DEFAULT_LANDING_BYTES: u64 = 4 << 30;
/// Areas of the landing zone at least: the oldest, the current one and its successor, four in reserve
/// so that freeing can always be recorded, and one for the load.
pub const MIN_ZONE_AREAS: u32 = 8;
/// Bytes of an area at least: long enough to pay for an index.
const MIN_AREA_BYTES: u32 = 128 << 10;
/// Bytes of an area at most.
const MAX_AREA_BYTES: u32 = 4 << 20;
/// Recent checksums that a checkpoint can carry at most, entries (12 bytes each).
const MAX_LIST_ENTRIES: u32 = 256 << 10;
/// Fast slots held back so that a full volume can still move things.
const FAST_SLOTS_HELD: u32 = 2;
/// One slow slot in this many is held back.
const SLOW_SHARE_HELD: u32 = 100;
/// Slots of those held back that the landing zone never borrows: moves need them.
const SLOTS_KEPT: u32 = 2;
/// The landing zone borrows at most this share of the areas that hold slots, in sixteenths: moves and copies keep the rest.
const MOST_BORROWED_SIXTEENTHS: u32 = 15;
/// It grows to this at most, bytes: each block of it takes up to 38 bytes of RAM, 1.3 GB in all.
const MOST_ZONE_BYTES: u64 = 128 << 30;
/// Slow slots held back at least.
const SLOW_SLOTS_HELD_MIN: u32 = 2;

/// The layout of a volume. Offsets are bytes on the device.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Geometry {
    /// Bytes per chunk.
    pub chunk_bytes: u32,
    /// Bytes per area.
    pub area_bytes: u32,
    /// Chunks of the volume.
    pub chunks: u32,
    /// Bytes used on each device, superblocks included.
    pub device_bytes: [u64; 2],
    /// The two roots of the checkpoint.
    pub roots_at: [u64; 2],
    /// Blocks of each root.
    pub root_blocks: u32,
    /// Entries of the checksum list that a root has room for.
    pub list_entries: u32,
    /// The map table (two places per page).
    pub map_at: u64,
    /// Pages of the map table.
    pub map_pages: u32,
    /// The checksum table of the slow tier (two places per page).
    pub sums_at: u64,
    /// Pages of the checksum table.
    pub sum_pages: u32,
    /// Pages of the checksum table of the fast tier, behind those; 0 in a volume that was made before there were any.
    pub fast_sum_pages: u32,
    /// The directory of the tables (two places per page).
    pub directory_at: u64,
    /// Pages of the directory.
    pub directory_pages: u32,
    /// References in a page of the directory, and in a block of the root; 0: as many as there is room for.
    pub few_refs: u32,
    /// The first area.
    pub areas_at: u64,
    /// Areas on the fast tier.
    pub areas: u32,
    /// The first area of the landing zone; those before it hold slots.
    pub zone_first: Area,
    /// The slow tier's slot owners (reserved); in a volume with marks, these.
    pub owners_at: u64,
    /// The slow copy of the map (reserved); in a volume with marks they go on over it.
    pub slow_map_at: u64,
    /// The first slot of the slow tier.
    pub slow_slots_at: u64,
    /// Slots of the slow tier.
    pub slow_slots: u32,
    /// The second copies of the roots, of the map and of the directory, on the fast device; none in a volume that was
    /// made before there were any.
    pub mirror_at: Option<u64>,
    /// Whether the slow device describes itself.
    pub marking: Marking,
}

/// Where the checkpoint headers lie on the fast device, by place (0 or 1) and copy (0 or 1).
pub const HEADERS_AT: u64 = BLOCK;
/// Copies of each header, one behind the other, written as one.
pub const HEADER_COPIES: u64 = 2;

/// Where the copies of the header in this place begin.
pub fn header_at(place: u64) -> u64 {
    HEADERS_AT + place * HEADER_COPIES * BLOCK
}
/// Where the list of pins lies on the fast device: in two places of a block each.
pub const PINS_AT: u64 = HEADERS_AT + 2 * HEADER_COPIES * BLOCK;

/// Where the list of pins in this place (0 or 1) is.
pub fn pins_at(place: u8) -> u64 {
    PINS_AT + u64::from(place) * BLOCK
}
/// Where it stands on the fast device how far a scrub has come: in one place, a block.
pub const SCRUB_AT: u64 = PINS_AT + 2 * BLOCK;
const FIXED_BLOCKS: u64 = 8;

impl Geometry {
    /// Blocks per chunk.
    pub fn blocks_per_chunk(&self) -> u32 {
        self.chunk_bytes / BLOCK_BYTES
    }
    /// Blocks per area.
    pub fn area_blocks(&self) -> u32 {
        self.area_bytes / BLOCK_BYTES
    }
    /// Slots that an area of the fast tier has room for.
    pub fn slots_per_area(&self) -> u32 {
        self.area_bytes / self.chunk_bytes
    }
    /// 32-bit words of a block mask as stored.
    pub fn mask_words(&self) -> usize {
        self.blocks_per_chunk().div_ceil(32) as usize
    }
    /// Size that clients see, bytes.
    pub fn volume_bytes(&self) -> u64 {
        u64::from(self.chunks) * u64::from(self.chunk_bytes)
    }
    /// Areas of the landing zone.
    pub fn zone_areas(&self) -> u32 {
        self.areas - self.zone_first.0
    }
    /// Areas of the landing zone at most, those that it borrows from the slots included.
    pub fn most_zone_areas(&self) -> u32 {
        let most = (MOST_ZONE_BYTES / u64::from(self.area_bytes)) as u32;
        let borrowed = (u64::from(self.zone_first.0) * u64::from(MOST_BORROWED_SIXTEENTHS) / 16) as u32;
        self.zone_areas() + borrowed.min(most.saturating_sub(self.zone_areas()))
    }
    /// Areas that the landing zone may have whatever the volume holds: it borrows no more than there are slots beyond the
    /// volume's size, so that each chunk finds one.
    pub fn assured_zone_areas(&self) -> u32 {
        let slots = self.slots(FAST) + self.slow_slots;
        let spare = slots.saturating_sub(self.chunks).saturating_sub(SLOTS_KEPT);
        self.zone_areas().saturating_add(spare / self.slots_per_area()).min(self.most_zone_areas())
    }
    /// The slots in an area of the fast tier.
    pub fn slots_in(&self, area: Area) -> Range<u32> {
        let per_area = self.slots_per_area();
        area.0 * per_area..(area.0 + 1) * per_area
    }
    /// Slots of a tier.
    pub fn slots(&self, tier: Tier) -> u32 {
        if tier == FAST { self.zone_first.0 * self.slots_per_area() } else { self.slow_slots }
    }
    /// Slots of the fast device's areas, those of the landing zone included, in which nothing is at home.
    pub fn slots_of_areas(&self) -> u32 {
        self.areas * self.slots_per_area()
    }
    /// Whether there is such a home, and it has room for these blocks.
    pub fn can_hold(&self, home: Option<Home>, valid: &BlockMask) -> bool {
        let room = if home.is_some() { self.blocks_per_chunk() } else { 0 };
        home.is_none_or(|h| h.slot.0 < self.slots(h.tier))
            && valid.minus(BlockMask::range(0, room)).is_empty()
    }
    /// Byte offset of a slot on its device.
    pub fn slot_at(&self, home: Home) -> u64 {
        let base = if home.tier == FAST { self.areas_at } else { self.slow_slots_at };
        base + u64::from(home.slot.0) * u64::from(self.chunk_bytes)
    }
    /// Byte offset of a block of a slot on the slot's device.
    pub fn block_at(&self, home: Home, block: u32) -> u64 {
        self.slot_at(home) + u64::from(block) * BLOCK
    }
    /// Byte offset of an area on the fast device.
    pub fn area_at(&self, area: Area) -> u64 {
        self.areas_at + u64::from(area.0) * u64::from(self.area_bytes)
    }
    /// Byte offset of one of the two places of a page. Map pages come first, checksum pages after them, those of the slow tier
    /// before those of the fast, then those of the directory.
    pub fn page_at(&self, page: u32, place: u8) -> u64 {
        let (base, page) = if page < self.map_pages {
            (self.map_at, page)
        } else if page < self.table_pages() {
            (self.sums_at, page - self.map_pages)
        } else {
            (self.directory_at, page - self.table_pages())
        };
        base + (u64::from(page) * 2 + u64::from(place)) * BLOCK
    }
    /// Byte offset of a block of the root in this place (0 or 1).
    pub fn root_at(&self, place: u64, block: u32) -> u64 {
        self.roots_at[place as usize] + u64::from(block) * BLOCK
    }
    /// Where the second copy of that block is, in a volume that has such copies.
    pub fn root_twin_at(&self, place: u64, block: u32) -> Option<u64> {
        let blocks = place * u64::from(self.root_blocks) + u64::from(block);
        self.mirror_at.map(|mirror| mirror + blocks * BLOCK)
    }
    /// Where the second copy of one of the two places of a page is. Pages of checksums have none: they are as much as all
    /// else together ten times over, and without one of them no more than its blocks is lost.
    pub fn page_twin_at(&self, page: u32, place: u8) -> Option<u64> {
        let page = if page < self.map_pages {
            page
        } else if page < self.table_pages() {
            return None;
        } else {
            page - self.sum_pages - self.fast_sum_pages
        };
        let blocks = 2 * u64::from(self.root_blocks) + u64::from(page) * 2 + u64::from(place);
        self.mirror_at.map(|mirror| mirror + blocks * BLOCK)
    }
    /// Bytes of all second copies: of both roots, then of the map, then of the directory.
    pub fn mirror_bytes(&self) -> u64 {
        2 * BLOCK
            * (u64::from(self.root_blocks) + u64::from(self.map_pages) + u64::from(self.directory_pages))
    }
    /// Pages of all tables; the number of the directory's first page.
    pub fn table_pages(&self) -> u32 {
        self.map_pages + self.sum_pages + self.fast_sum_pages
    }
    /// What a page holds that is neither of the map nor of the directory.
    pub fn sums_kind(&self, page: u32) -> PageKind {
        if page < self.map_pages + self.sum_pages { PageKind::Sums } else { PageKind::FastSums }
    }
    /// All pages: the tables and their directory.
    pub fn pages(&self) -> u32 {
        self.table_pages() + self.directory_pages
    }
    /// References in a page of the directory, and in a block of the root.
    pub fn refs_per_page(&self) -> u32 {
        if self.few_refs == 0 { REFS_PER_PAGE } else { self.few_refs }
    }
    /// The page of the directory that refers to a page of the tables.
    pub fn directory_page_of(&self, page: u32) -> u32 {
        page / self.refs_per_page()
    }
    /// The pages that a page of the directory refers to.
    pub fn listed_in(&self, directory_page: u32) -> Range<u32> {
        let first = directory_page * self.refs_per_page();
        first..(first + self.refs_per_page()).min(self.table_pages())
    }
    /// Blocks of a root before the list of recent checksums: they refer to the directory's pages.
    pub fn root_ref_blocks(&self) -> u32 {
        self.directory_pages.div_ceil(self.refs_per_page())
    }
    /// The pages of the directory that a block of the root refers to, by their page numbers.
    pub fn named_in_root(&self, block: u32) -> Range<u32> {
        let first = self.table_pages() + block * self.refs_per_page();
        first..(first + self.refs_per_page()).min(self.pages())
    }
    /// Where the marks lie on the slow device, in a volume that has them.
    pub fn marks(&self) -> Option<MarkLayout> {
        (self.marking != Marking::Off).then(|| MarkLayout::new(self, self.chunks))
    }
    /// Byte offset of the second superblock.
    pub fn second_superblock_at(&self, tier: Tier) -> u64 {
        self.device_bytes[usize::from(tier.0)] - BLOCK
    }

    /// Whether a recorded layout can be one: its parts lie on their devices, apart from each other, and are
    /// large enough for what belongs into them. A checksum does not say so: whoever writes a superblock can
    /// compute one. All else that is read is held against the layout, so that it must hold by itself.
    pub(super) fn is_sound(&self) -> bool {
        self.has_sound_units() && self.fast_is_sound() && self.slow_is_sound() && self.tables_have_room()
    }

    fn has_sound_units(&self) -> bool {
        let (chunk, area) = (self.chunk_bytes, self.area_bytes);
        chunk.is_power_of_two()
            && (MIN_CHUNK_BYTES..=MAX_CHUNK_BYTES).contains(&chunk)
            && area.is_power_of_two()
            && (chunk.max(MIN_AREA_BYTES)..=MAX_AREA_BYTES).contains(&area)
            && self.device_bytes.iter().all(|b| b.is_multiple_of(BLOCK) && *b >= 64 * BLOCK)
    }

    fn fast_is_sound(&self) -> bool {
        let root = u64::from(self.root_blocks) * BLOCK;
        let parts = [
            (0, FIXED_BLOCKS * BLOCK),
            (self.roots_at[0], root),
            (self.roots_at[1], root),
            (self.map_at, u64::from(self.map_pages) * 2 * BLOCK),
            (self.sums_at, (u64::from(self.sum_pages) + u64::from(self.fast_sum_pages)) * 2 * BLOCK),
            (self.directory_at, u64::from(self.directory_pages) * 2 * BLOCK),
            (self.areas_at, u64::from(self.areas) * u64::from(self.area_bytes)),
            self.mirror_at.map_or((0, 0), |at| (at, self.mirror_bytes())),
            (self.second_superblock_at(FAST), BLOCK),
        ];
        let Some(zone) = self.areas.checked_sub(self.zone_first.0) else { return false };
        // Slots, and blocks of the zone, are counted in 32 bits.
        let counted = |n: u32, each: u32| u64::from(n) * u64::from(each) < u64::from(u32::MAX / 2);
        lie_apart(parts, self.device_bytes[0])
            && zone >= MIN_ZONE_AREAS
            && counted(zone, 4 * self.area_blocks())
            && counted(self.areas, self.slots_per_area())
    }

    fn slow_is_sound(&self) -> bool {
        let slots = u64::from(self.slow_slots) * u64::from(self.chunk_bytes);
        let parts = [
            (0, FIXED_BLOCKS * BLOCK),
            (self.slow_slots_at, slots),
            (self.second_superblock_at(SLOW), BLOCK),
        ];
        let room = self.slow_slots_at.checked_sub(self.owners_at);
        let marks_have_room = self.marks().is_none_or(|marks| room.is_some_and(|room| marks.bytes() <= room));
        lie_apart(parts, self.device_bytes[1])
            && (4..=u32::MAX / 2).contains(&self.slow_slots)
            && (self.marking == Marking::Off || self.owners_at == FIXED_BLOCKS * BLOCK)
            && marks_have_room
    }

    fn tables_have_room(&self) -> bool {
        let slots = u64::from(self.slots(FAST)) + u64::from(self.slow_slots);
        let sums = u64::from(self.slow_slots) * u64::from(self.blocks_per_chunk());
        let least = 8 * self.blocks_per_chunk();
        let fast_sums = u64::from(self.slots(FAST)) * u64::from(self.blocks_per_chunk());
        let pages = u64::from(self.map_pages) + u64::from(self.sum_pages) + u64::from(self.fast_sum_pages);
        let refs = u64::from(self.refs_per_page());
        let directory = u64::from(self.directory_pages);
        let list = self.list_entries.div_ceil(page::LIST_ENTRIES_PER_BLOCK);
        (1..=slots).contains(&u64::from(self.chunks))
            && self.map_pages >= self.chunks.div_ceil(page::map_entries_per_page(self.mask_words()))
            && u64::from(self.sum_pages) >= sums.div_ceil(page::SUMS_PER_PAGE)
            && (self.fast_sum_pages == 0
                || u64::from(self.fast_sum_pages) >= fast_sums.div_ceil(page::SUMS_PER_PAGE))
            && (least..=MAX_LIST_ENTRIES).contains(&self.list_entries)
            && self.few_refs < REFS_PER_PAGE
            && directory == pages.div_ceil(refs)
            && pages + directory < u64::from(u32::MAX - REFS_PER_PAGE)
            && u64::from(self.root_blocks) >= directory.div_ceil(refs) + u64::from(list)
    }

    /// Lays out a new volume. Errors name the device or the option.
    pub fn plan(devices: &[DeviceInfo], options: &CreateOptions) -> Result<Geometry, OpenError> {
        let bad = |what: String| Err(OpenError::BadOption { what });
        let chunk = options.chunk_bytes;
        if !chunk.is_power_of_two() || !(MIN_CHUNK_BYTES..=MAX_CHUNK_BYTES).contains(&chunk) {
            return bad(format!("chunk size {chunk} is not a power of two between 64K and 4M"));
        }
        if devices.len() != 2 {
            return bad(format!("a volume has two devices, {} were given", devices.len()));
        }
        let sizes = [devices[0].size_bytes & !(BLOCK - 1), devices[1].size_bytes & !(BLOCK - 1)];
        let landing = options.landing_bytes.unwrap_or(DEFAULT_LANDING_BYTES.min(sizes[0] / 8));
        let area = match options.area_bytes {
            Some(a) if !a.is_power_of_two() || a < chunk.max(MIN_AREA_BYTES) || a > MAX_AREA_BYTES => {
                return bad(format!(
                    "area size {a} is not a power of two from the chunk size (at least 128K) to 4M"
                ));
            }
            Some(a) => a,
            None => default_area(landing, chunk),
        };
        let zone_areas =
            u32::try_from(landing.div_ceil(u64::from(area))).unwrap_or(u32::MAX).max(MIN_ZONE_AREAS);
        let few_refs = match options.refs_per_page {
            Some(refs) if !(1..=REFS_PER_PAGE).contains(&refs) => {
                return bad(format!("{refs} references do not fit a page: 1 to {REFS_PER_PAGE} do"));
            }
            refs => refs.filter(|refs| *refs < REFS_PER_PAGE).unwrap_or(0),
        };
        let mut g = Geometry {
            chunk_bytes: chunk,
            area_bytes: area,
            device_bytes: sizes,
            few_refs,
            marking: options.marking,
            ..Geometry::default()
        };
        g.plan_slow(&devices[1])?;
        g.plan_fast(&devices[0], zone_areas, options.fast_checksums)?;
        Ok(g)
    }

    fn plan_slow(&mut self, device: &DeviceInfo) -> Result<(), OpenError> {
        let chunk = u64::from(self.chunk_bytes);
        let need = 8 * chunk + 64 * BLOCK;
        let too_small = || OpenError::TooSmall {
            device: device.name.clone(),
            have_bytes: device.size_bytes,
            need_bytes: need,
        };
        if self.device_bytes[1] < need {
            return Err(too_small());
        }
        let most = (self.device_bytes[1] / chunk).min(u64::from(u32::MAX / 2));
        self.owners_at = FIXED_BLOCKS * BLOCK;
        self.slow_map_at = self.owners_at + blocks_for(most * 32) * BLOCK;
        // The map covers the fast tier's chunks too; its slow copy is sized for twice the slow slots.
        let map_copy = blocks_for(2 * most * page::map_entry_bytes(self.mask_words()) as u64);
        let reserved_end = self.slow_map_at + map_copy * BLOCK;
        // Each slot that there could be on either device has a chunk at most.
        let most_chunks =
            most.saturating_add(self.device_bytes[0] / chunk).min(u64::from(u32::MAX / 2)) as u32;
        let marks_end = match self.marking {
            Marking::Off => 0,
            Marking::On | Marking::Strict => self.owners_at + MarkLayout::new(self, most_chunks).bytes(),
        };
        self.slow_slots_at = reserved_end.max(marks_end).next_multiple_of(chunk);
        let end = self.device_bytes[1] - BLOCK;
        let slots = end.checked_sub(self.slow_slots_at).ok_or_else(too_small)? / chunk;
        self.slow_slots = slots.min(most) as u32;
        if self.slow_slots < 4 {
            return Err(too_small());
        }
        Ok(())
    }

    fn plan_fast(
        &mut self,
        device: &DeviceInfo,
        zone_areas: u32,
        fast_checksums: bool,
    ) -> Result<(), OpenError> {
        let area = u64::from(self.area_bytes);
        let per_area = self.slots_per_area();
        let most_fast =
            (self.device_bytes[0] / u64::from(self.chunk_bytes)).min(u64::from(u32::MAX / 4)) as u32;
        let most_chunks = self.slow_slots.saturating_add(most_fast);
        let per_page = page::map_entries_per_page(self.mask_words());
        self.map_pages = most_chunks.div_ceil(per_page);
        let sums = u64::from(self.slow_slots) * u64::from(self.blocks_per_chunk());
        self.sum_pages = sums.div_ceil(page::SUMS_PER_PAGE) as u32;
        let summed = if fast_checksums { most_fast } else { 0 };
        let fast_sums = u64::from(summed) * u64::from(self.blocks_per_chunk());
        self.fast_sum_pages = fast_sums.div_ceil(page::SUMS_PER_PAGE) as u32;
        let least = 1024.max(8 * self.blocks_per_chunk());
        self.list_entries = (sums / 16).clamp(u64::from(least), u64::from(MAX_LIST_ENTRIES)) as u32;
        self.directory_pages = self.table_pages().div_ceil(self.refs_per_page());
        self.root_blocks = self.root_ref_blocks() + self.list_entries.div_ceil(page::LIST_ENTRIES_PER_BLOCK);
        self.roots_at = [FIXED_BLOCKS * BLOCK, (FIXED_BLOCKS + u64::from(self.root_blocks)) * BLOCK];
        self.map_at = self.roots_at[1] + u64::from(self.root_blocks) * BLOCK;
        self.sums_at = self.map_at + u64::from(self.map_pages) * 2 * BLOCK;
        let sum_pages = u64::from(self.sum_pages) + u64::from(self.fast_sum_pages);
        self.directory_at = self.sums_at + sum_pages * 2 * BLOCK;
        let metadata_end = self.directory_at + u64::from(self.directory_pages) * 2 * BLOCK;
        self.areas_at = metadata_end.next_multiple_of(area.min(1 << 20));
        // The second copies lie at the other end: what happens to the first megabytes does not reach them.
        let end = self.device_bytes[0].saturating_sub(BLOCK + self.mirror_bytes());
        self.mirror_at = Some(end);
        let areas = end.saturating_sub(self.areas_at) / area;
        let slot_areas_min = (FAST_SLOTS_HELD + 2).div_ceil(per_area);
        let need_areas = u64::from(zone_areas) + u64::from(slot_areas_min);
        if areas < need_areas {
            return Err(OpenError::TooSmall {
                device: device.name.clone(),
                have_bytes: device.size_bytes,
                need_bytes: self.areas_at + need_areas * area + self.mirror_bytes() + BLOCK,
            });
        }
        self.areas = areas.min(u64::from(u32::MAX / 4 / per_area)) as u32;
        self.zone_first = Area(self.areas - zone_areas);
        let held = FAST_SLOTS_HELD + (self.slow_slots / SLOW_SHARE_HELD).max(SLOW_SLOTS_HELD_MIN);
        self.chunks = self.slots(FAST) + self.slow_slots - held;
        Ok(())
    }
}

/// Whether all these parts (offset, bytes) begin with a block, end on the device, and share nothing.
fn lie_apart<const N: usize>(mut parts: [(u64, u64); N], device_bytes: u64) -> bool {
    parts.sort_unstable();
    let mut end = 0;
    parts.iter().all(|(at, bytes)| {
        let apart = at.is_multiple_of(BLOCK) && *at >= end;
        end = at.saturating_add(*bytes);
        apart && end <= device_bytes
    })
}

fn blocks_for(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK)
}

/// 4 MiB segments are long enough to amortise their index; small zones get smaller ones, so that
/// the oldest eighth is at least two of them.
fn default_area(landing: u64, chunk: u32) -> u32 {
    let mut area = MAX_AREA_BYTES;
    while area > chunk.max(MIN_AREA_BYTES) && u64::from(area) * 16 > landing {
        area /= 2;
    }
    area.max(chunk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn what_stands_twice_stands_far_from_itself_and_alone() {
        let device = |mib: u64| DeviceInfo { name: String::new(), size_bytes: mib << 20 };
        for (fast, slow) in [(64, 256), (100, 4000), (1 << 10, 100 << 10)] {
            let geo = Geometry::plan(&[device(fast), device(slow)], &CreateOptions::new([1; 16]))
                .expect("a layout");
            assert!(geo.is_sound());
            let roots = (0..2).flat_map(|place| (0..geo.root_blocks).map(move |block| (place, block)));
            let pages = (0..geo.pages()).flat_map(|page| [(page, 0), (page, 1)]);
            let roots =
                roots.map(|(place, block)| (geo.root_at(place, block), geo.root_twin_at(place, block)));
            let pages = pages.map(|(page, place)| (geo.page_at(page, place), geo.page_twin_at(page, place)));
            let (mut twins, mut all) = (BTreeSet::new(), 0);
            for (at, twin) in roots.chain(pages) {
                let Some(twin) = twin else {
                    let sums = geo.sums_at..geo.directory_at;
                    assert!(sums.contains(&at), "only pages of checksums stand once");
                    continue;
                };
                assert!(at < geo.areas_at && twin >= geo.area_at(Area(geo.areas)));
                all += 1;
                twins.insert(twin);
            }
            assert_eq!((twins.len() as u64 * BLOCK, all), (geo.mirror_bytes(), twins.len()));
            assert_eq!(twins.last().map(|at| at + BLOCK), Some(geo.second_superblock_at(FAST)));
        }
    }
}
