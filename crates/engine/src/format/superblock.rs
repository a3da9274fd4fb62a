//! Superblocks: two on each device, naming the volume, the device and the layout.

use super::codec::{Get, Put, SEAL_BYTES, seal, unseal};
use super::geometry::Geometry;
use super::hints::HintsAt;
use super::{FORMAT, FORMAT_WITHOUT_FAST_SUMS, FORMAT_WITHOUT_MARKS, Id};
use crate::api::options::Marking;
use bimetal_units::*;
use serde::{Deserialize, Serialize};

const MAGIC: &[u8; 8] = b"BMTLsupr";
/// How a boot sector ends. On a device's first block, behind a table of four partitions that are none, it makes the tools that
/// look for signatures say that the device is not blank: none of them knows these superblocks.
const BOOT_SECTOR_END: [u8; 2] = [0x55, 0xaa];
const BOOT_SECTOR_END_AT: usize = 510;
/// Of four entries of 16 bytes.
const PARTITIONS_AT: usize = BOOT_SECTOR_END_AT - 64;
/// The first format whose superblocks say where the second copies of metadata are.
const FIRST_WITH_MIRROR: u32 = 4;

/// Flags: the slow device describes itself, ...
const FLAG_MARKS: u32 = 1;
/// ... and is woken for it.
const FLAG_STRICT: u32 = 2;
/// The first format whose flags count.
const FIRST_WITH_FLAGS: u32 = 5;
/// The first format whose superblocks say how many checksum pages the fast tier has.
const FIRST_WITH_FAST_SUMS: u32 = 6;

/// The format that a volume has, and its flags: one without marks, or without checksum pages of the fast tier, is as programs
/// know it that know of none.
fn format_of(geometry: &Geometry) -> (u32, u32) {
    let flags = match geometry.marking {
        Marking::Off => 0,
        Marking::On => FLAG_MARKS,
        Marking::Strict => FLAG_MARKS | FLAG_STRICT,
    };
    let format = match geometry.fast_sum_pages {
        0 if geometry.marking == Marking::Off => FORMAT_WITHOUT_MARKS,
        0 => FORMAT_WITHOUT_FAST_SUMS,
        _ => FORMAT,
    };
    (format, flags)
}

/// What flags of a format say; none where they say what is not known.
fn marking_of(format: u32, flags: u32) -> Option<Marking> {
    match flags {
        _ if format < FIRST_WITH_FLAGS => Some(Marking::Off),
        0 => Some(Marking::Off),
        FLAG_MARKS => Some(Marking::On),
        flags if flags == FLAG_MARKS | FLAG_STRICT => Some(Marking::Strict),
        _ => None,
    }
}

/// How far the last opening came; see "Opening" in `docs/FORMAT.md`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum OpenState {
    /// Closed cleanly: the checkpoint holds everything.
    Clean,
    /// The generation is being raised: the other device may be one behind.
    Raising,
    /// In use, or was when the power failed: every device carries this generation.
    Open,
}

/// What the slow device was like when the volume was first used without it. It takes part again only if it still is: were it
/// written to meanwhile, by whomever, the two would each know what the other does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LeftBehind {
    /// Of this generation, ...
    pub generation: Generation,
    /// ... or of this one, to which it was being raised when a crash came: nothing else was written to it then.
    pub raised: Generation,
}

impl LeftBehind {
    /// Whether a slow device of this generation is the one that was left behind.
    pub fn is(&self, generation: Generation) -> bool {
        generation == self.generation || generation == self.raised
    }
}

/// A superblock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Superblock {
    /// The volume.
    pub volume: Id,
    /// The devices in tier order.
    pub devices: [Id; 2],
    /// Which of them this is.
    pub tier: Tier,
    /// Openings so far.
    pub generation: Generation,
    /// How far the last one came.
    pub state: OpenState,
    /// Seconds since 1970 at creation.
    pub created_unix_s: u64,
    /// The layout.
    pub geometry: Geometry,
    /// Of the fast device: the volume was used without the slow one, which has not come back since.
    pub left_behind: Option<LeftBehind>,
    /// Of the fast device of a volume that was closed: what placement had learnt. It is said in no other state, so an opening
    /// ends it before it writes anything else.
    pub hints: Option<HintsAt>,
}

/// What a block that should hold a superblock holds.
#[derive(Debug)]
pub enum Found {
    /// A superblock of ours.
    Valid(Box<Superblock>),
    /// One of a newer format.
    Newer(u32),
    /// Nothing of ours.
    Nothing,
}

impl Superblock {
    /// The generation that the next opening raises by one, as the fast device's superblock has it: that of the slow device, which is
    /// raised last, unless it was left behind.
    pub fn generation_with(&self, slow: &Superblock) -> Generation {
        if self.left_behind.is_some() { self.generation } else { slow.generation }
    }

    /// Writes it into a block that will lie at `at` on the device.
    pub fn encode(&self, block: &mut [u8], at: u64) {
        let mut body = Vec::with_capacity(512);
        let g = &self.geometry;
        let mut put = Put(&mut body);
        let (format, flags) = format_of(g);
        put.u32(format).u32(flags).bytes(&self.volume).u64(at);
        put.u8(self.tier.0).u8(2).u8(self.state as u8).u8(0).u32(0);
        put.bytes(&self.devices[0]).bytes(&self.devices[1]);
        put.u64(self.generation.0).u64(self.created_unix_s);
        put.u32(g.chunk_bytes).u32(g.area_bytes).u32(g.chunks).u32(g.root_blocks);
        put.u64(g.device_bytes[0]).u64(g.device_bytes[1]);
        put.u64(g.roots_at[0]).u64(g.roots_at[1]).u32(g.list_entries).u32(g.map_pages);
        put.u64(g.map_at).u64(g.sums_at).u32(g.sum_pages).u32(g.areas);
        put.u64(g.areas_at).u32(g.zone_first.0).u32(g.slow_slots);
        put.u64(g.owners_at).u64(g.slow_map_at).u64(g.slow_slots_at);
        put.u64(g.directory_at).u32(g.directory_pages).u32(g.few_refs);
        put.u64(g.mirror_at.unwrap_or_default());
        let left = self.left_behind.map_or([0; 2], |left| [left.generation.0, left.raised.0 + 1]);
        put.u64(left[0]).u64(left[1]).u32(g.fast_sum_pages);
        let hints = self.hints.filter(|_| self.state == OpenState::Clean && self.tier == FAST);
        put.u32(hints.map_or(0, |hints| hints.slot.0 + 1)).u32(hints.map_or(0, |hints| hints.blocks));
        seal(block, MAGIC, &body);
        if at == 0 {
            assert!(SEAL_BYTES + body.len() <= PARTITIONS_AT, "the fields end before the partition table");
            block[BOOT_SECTOR_END_AT..][..2].copy_from_slice(&BOOT_SECTOR_END);
        }
    }

    /// Reads a block that lay at `at`.
    pub fn decode(block: &[u8], at: u64) -> Found {
        let Some(body) = unseal(block, MAGIC) else { return Found::Nothing };
        let mut get = Get(body);
        let (format, flags) = (get.u32(), get.u32());
        match format {
            Some(format) if format > FORMAT => Found::Newer(format),
            // What such a flag means, whoever knows it not must not overlook.
            Some(format) if flags.is_some_and(|flags| marking_of(format, flags).is_none()) => {
                Found::Newer(format)
            }
            _ => Self::fields(body, at).map_or(Found::Nothing, |s| Found::Valid(Box::new(s))),
        }
    }

    fn fields(body: &[u8], at: u64) -> Option<Superblock> {
        let mut get = Get(body);
        let (format, flags, volume) = (get.u32()?, get.u32()?, get.id()?);
        if get.u64()? != at {
            return None;
        }
        let (tier, _tiers, state) = (Tier(get.u8()?), get.u8()?, get.u8()?);
        get.bytes(5)?;
        let devices = [get.id()?, get.id()?];
        let (generation, created_unix_s) = (Generation(get.count()?), get.u64()?);
        let mut g = Geometry {
            chunk_bytes: get.u32()?,
            area_bytes: get.u32()?,
            chunks: get.u32()?,
            root_blocks: get.u32()?,
            device_bytes: [get.u64()?, get.u64()?],
            roots_at: [get.u64()?, get.u64()?],
            list_entries: get.u32()?,
            map_pages: get.u32()?,
            map_at: get.u64()?,
            sums_at: get.u64()?,
            marking: marking_of(format, flags)?,
            ..Geometry::default()
        };
        (g.sum_pages, g.areas) = (get.u32()?, get.u32()?);
        (g.areas_at, g.zone_first, g.slow_slots) = (get.u64()?, Area(get.u32()?), get.u32()?);
        (g.owners_at, g.slow_map_at, g.slow_slots_at) = (get.u64()?, get.u64()?, get.u64()?);
        (g.directory_at, g.directory_pages, g.few_refs) = (get.u64()?, get.u32()?, get.u32()?);
        if format >= FIRST_WITH_MIRROR {
            g.mirror_at = Some(get.u64()?).filter(|at| *at > 0);
        }
        let state = match state {
            0 => OpenState::Clean,
            1 => OpenState::Raising,
            2 => OpenState::Open,
            _ => return None,
        };
        let left_behind = match (get.count(), get.count()) {
            (Some(left), Some(raised)) if raised > 0 => {
                Some(LeftBehind { generation: Generation(left), raised: Generation(raised - 1) })
            }
            _ => None,
        };
        if format >= FIRST_WITH_FAST_SUMS {
            g.fast_sum_pages = get.u32()?;
        } else {
            // Nothing, as it always was.
            get.u32();
        }
        let hints = match (get.u32(), get.u32()) {
            (Some(slot), Some(blocks)) if slot > 0 && blocks > 0 => {
                Some(HintsAt { slot: Slot(slot - 1), blocks })
            }
            _ => None,
        };
        let hints = hints.filter(|_| state == OpenState::Clean && tier == FAST);
        if !g.is_sound() {
            return None;
        }
        Some(Superblock {
            volume,
            devices,
            tier,
            generation,
            state,
            created_unix_s,
            geometry: g,
            left_behind,
            hints,
        })
    }
}
