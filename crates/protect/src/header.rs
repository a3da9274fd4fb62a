//! What the slow device says of the image, and the fast one of what the image may lack.

use crate::bugs::{Bug, planted};
use crate::layout::Layout;
use crate::ring::Pos;
use bimetal_engine::format::Id;
use bimetal_engine::format::codec::{Get, Put, seal, unseal};
use bimetal_engine::format::superblock::Superblock;
use bimetal_units::{BLOCK_BYTES, Generation};
use std::ops::Range;

const HEADER_MAGIC: &[u8; 8] = b"BMTLima3";
/// Without what is durable of the ring.
const OLD_HEADER_MAGIC: &[u8; 8] = b"BMTLima2";
const MAP_MAGIC: &[u8; 8] = b"BMTLlack";
/// Ranges that an image may lack at most, as they could not be read.
pub(crate) const MOST_LOST: usize = 200;
/// Regions that a map has room for.
pub(crate) const MOST_REGIONS: u64 = 31 << 10;

/// The image that counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Image {
    /// The freeze that it is of.
    pub number: u64,
    /// When that was, milliseconds since 1970.
    pub frozen_unix_ms: u64,
}

/// Why a slow device has no image of its volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoImage {
    /// The first one was not done.
    NotDone,
    /// What is said of it does not fit the devices.
    Misfit,
    /// A device was replaced after it was made.
    Replaced,
    /// The volume was opened without protection after it was made.
    Unprotected,
    /// One of the two headers cannot be read, or has rotted: it may be the newer one.
    Doubtful,
    /// What the ring should hold from this byte of the slow device on is not there.
    Broken(u64),
}

/// It lies in one block, twice; the one with the higher number counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The volume.
    pub volume: Id,
    /// Its devices, in tier order.
    pub devices: [Id; 2],
    /// Where everything is.
    pub layout: Layout,
    /// Headers so far.
    pub number: u64,
    /// Openings with protection so far.
    pub session: u64,
    /// Which groups of the ring are of it.
    pub ring_id: u64,
    /// No opening after this one was with protection.
    pub covers: Generation,
    /// The oldest that an image is to be.
    pub seconds: u32,
    /// Clients wait rather than that it is older.
    pub strict: bool,
    /// The image, where there is one.
    pub image: Option<Image>,
    /// The first group of the ring that is needed.
    pub tail: Pos,
    /// Where the ring ended.
    pub head: Pos,
    /// Groups of the ring below this number were durable.
    pub durable: u64,
    /// Blocks of the fast device that the image lacks.
    pub lost: Vec<Range<u64>>,
    /// The copy has the place of the fast device, under this name, once the slow device's superblock names it; while there still
    /// is an image, that has not been done to its end.
    pub stand_in: Option<Id>,
}

impl Header {
    /// Whether the copy has the place of the fast device, or is about to have it and nothing else can.
    pub fn stands_in(&self, superblock: &Superblock) -> bool {
        self.stand_in == Some(superblock.devices[0])
    }

    /// Writes it into a block.
    pub fn encode(&self, block: &mut [u8]) {
        let mut body = Vec::with_capacity(BLOCK_BYTES as usize);
        let mut put = Put(&mut body);
        put.bytes(&self.volume).bytes(&self.devices[0]).bytes(&self.devices[1]);
        self.layout.put(&mut put);
        put.u64(self.number)
            .u64(self.session)
            .u64(self.ring_id)
            .u64(self.covers.0)
            .u32(self.seconds)
            .u8(u8::from(self.strict));
        let Image { number, frozen_unix_ms } = self.image.unwrap_or(Image { number: 0, frozen_unix_ms: 0 });
        put.u8(u8::from(self.image.is_some())).u64(number).u64(frozen_unix_ms);
        for pos in [self.tail, self.head] {
            put.u64(pos.at).u64(pos.seq).u64(pos.session);
        }
        put.u32(self.lost.len() as u32);
        for range in &self.lost {
            put.u64(range.start).u64(range.end);
        }
        put.u8(u8::from(self.stand_in.is_some())).bytes(&self.stand_in.unwrap_or_default()).u64(self.durable);
        seal(block, HEADER_MAGIC, &body);
    }

    /// Reads a block; none where it holds none that can be.
    pub fn decode(block: &[u8]) -> Option<Header> {
        let (old, new) = (unseal(block, OLD_HEADER_MAGIC), unseal(block, HEADER_MAGIC));
        let mut get = Get(new.or(old)?);
        let (volume, devices) = (get.id()?, [get.id()?, get.id()?]);
        let layout = Layout::get(&mut get)?;
        let (number, session, ring_id) = (get.count()?, get.count()?, get.u64()?);
        let covers = Generation(get.count()?);
        let (seconds, strict, has_image) = (get.u32()?, get.u8()? == 1, get.u8()? == 1);
        let image = Image { number: get.u64()?, frozen_unix_ms: get.u64()? };
        let mut pos = || {
            let at = get.count()?;
            let is_of_blocks = at.is_multiple_of(u64::from(BLOCK_BYTES));
            Some(Pos { at, seq: get.u64()?, session: get.count()? }).filter(|_| is_of_blocks)
        };
        let (tail, head) = (pos()?, pos()?);
        let count = get.u32()? as usize;
        let sound = count <= MOST_LOST && tail.at <= head.at && head.at - tail.at <= layout.ring_bytes;
        let lost = (0..count.min(MOST_LOST)).map(|_| Some(get.u64()?..get.u64()?));
        let lost = lost.collect::<Option<Vec<_>>>()?;
        let stands_in = get.u8()? == 1;
        let stand_in = Some(get.id()?).filter(|_| stands_in);
        let durable = if new.is_some() { get.u64()? } else { tail.seq };
        let blocks = layout.fast_bytes / u64::from(BLOCK_BYTES);
        let inside = lost.iter().all(|range| range.start < range.end && range.end <= blocks);
        (sound && inside).then_some(Header {
            volume,
            devices,
            layout,
            number,
            session,
            ring_id,
            covers,
            seconds,
            strict,
            image: has_image.then_some(image),
            tail,
            head,
            durable,
            lost,
            stand_in,
        })
    }
}

/// The header of a volume that counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Newest {
    /// It is the newest that can be read.
    pub header: Header,
    /// The other one is not the one before: it cannot be read, or has rotted, and may be newer.
    pub is_doubtful: bool,
}

impl Newest {
    /// The image, if it is one of the volume as the superblock of its slow device tells of it, which has so many bytes.
    ///
    /// # Errors
    /// Why it is none.
    pub fn image_of(&self, superblock: &Superblock, slow_device_bytes: u64) -> Result<Image, NoImage> {
        let Header { image, layout, devices, covers, .. } = &self.header;
        let image = image.ok_or(NoImage::NotDone)?;
        if [layout.fast_bytes, layout.slow_bytes] != superblock.geometry.device_bytes
            || layout.end() > slow_device_bytes
        {
            return Err(NoImage::Misfit);
        }
        if *devices != superblock.devices {
            return Err(NoImage::Replaced);
        }
        if *covers < superblock.generation {
            return Err(NoImage::Unprotected);
        }
        if self.is_doubtful && !planted(Bug::DoubtIgnored) {
            return Err(NoImage::Doubtful);
        }
        Ok(image)
    }
}

/// Which regions of the fast device the image may lack something of: it lies on that device, in one block, twice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Map {
    /// The volume.
    pub volume: Id,
    /// Maps so far.
    pub number: u64,
    /// Blocks of a region.
    pub region_blocks: u64,
    /// Which of them.
    pub open: Vec<bool>,
}

impl Map {
    /// Writes it into a block.
    pub fn encode(&self, block: &mut [u8]) {
        let mut body = Vec::with_capacity(BLOCK_BYTES as usize);
        let mut bits = vec![0; self.open.len().div_ceil(8)];
        for (place, open) in self.open.iter().enumerate() {
            bits[place / 8] |= u8::from(*open) << (place % 8);
        }
        let mut put = Put(&mut body);
        put.bytes(&self.volume).u64(self.number).u64(self.region_blocks).u32(self.open.len() as u32);
        put.bytes(&bits);
        seal(block, MAP_MAGIC, &body);
    }

    /// Reads a block; none where it holds none that can be.
    pub fn decode(block: &[u8]) -> Option<Map> {
        let mut get = Get(unseal(block, MAP_MAGIC)?);
        let (volume, number, region_blocks, count) = (get.id()?, get.count()?, get.count()?, get.u32()?);
        if u64::from(count) > MOST_REGIONS || region_blocks == 0 {
            return None;
        }
        let bits = get.bytes((count as usize).div_ceil(8))?;
        let open = (0..count as usize).map(|place| bits[place / 8] >> (place % 8) & 1 == 1).collect();
        Some(Map { volume, number, region_blocks, open })
    }
}
