//! The copy takes the place of the fast device, which is gone: from then on the image is what the volume holds.
//!
//! 1. What a crash kept from the ring is put there. A header says under which name the copy takes the place. The image counts as
//!    before: whoever stops here has changed nothing.
//! 2. The slow device's superblocks give that name to the fast one. From here on the old fast device is refused, so that the slow
//!    one may go back to what it held at the freeze.
//! 3. What the ring has of the fast device goes to the copy, what it has of the slow one back to its place.
//! 4. All that is flushed, and both headers say that there is no image any more: the copy is the fast device.
//!
//! Nothing of the ring is written over meanwhile. What a crash cuts short is done again from the second step on.

use crate::bugs::{Bug, planted};
use crate::extents::{Extents, Held};
use crate::header::Header;
use crate::protection::BLOCK;
use crate::scan::{Reader, Scanned, Unkept};
use bimetal_engine::action::DeviceError;
use bimetal_engine::format::Id;
use bimetal_units::{FAST, SLOW, Tier};
use std::ops::Range;

/// Moved at once, blocks.
const PIECE: u64 = 256;

/// The slow device, which nobody else has open.
pub trait Disk: Reader {
    /// Writes whole blocks.
    ///
    /// # Errors
    /// What the device says.
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), DeviceError>;
    /// Makes durable what was written.
    ///
    /// # Errors
    /// What the device says.
    fn flush(&mut self) -> Result<(), DeviceError>;
}

/// Why the copy cannot take the place of the fast device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StandInError {
    /// There is no image.
    NoImage,
    /// What the ring should hold from this byte of the slow device on is not there.
    Broken(u64),
    /// So many bytes of one of the devices are not in the image: they could not be read when it was made, or do not match their
    /// checksum. What is in their place would be taken for them.
    Lost(Tier, u64),
    /// The slow device cannot be read at this byte.
    Unreadable(u64),
    /// The slow device failed a write, or a flush.
    Failed(DeviceError),
}

impl From<DeviceError> for StandInError {
    fn from(error: DeviceError) -> StandInError {
        StandInError::Failed(error)
    }
}

/// Lets the copy take the place of the fast device under this name, or goes on where that was cut short. `rename` gives that name
/// to the fast device in a superblock, which lies at that byte of its device; what is none it leaves as it is. `told` hears how
/// many bytes are where they belong, and of how many.
///
/// # Errors
/// Where something is lost, nothing has changed. What fails later is to be gone on with.
pub fn stand_in(
    disk: &mut impl Disk,
    header: &Header,
    scanned: &Scanned,
    id: Id,
    rename: impl Fn(Tier, u64, &mut [u8]),
    told: impl FnMut(u64, u64),
) -> Result<(), StandInError> {
    if header.image.is_none() {
        return Err(StandInError::NoImage);
    }
    if let Some(at) = scanned.broken_at {
        return Err(StandInError::Broken(at));
    }
    for (tier, extents) in [(FAST, &scanned.fast), (SLOW, &scanned.slow)] {
        let lost = extents.iter().filter(|(_, held)| *held == Held::Lost).map(|(range, _)| bytes_of(&range));
        let lost: u64 = lost.sum();
        if lost > 0 && !planted(Bug::LostStandsIn) {
            return Err(StandInError::Lost(tier, lost));
        }
    }
    let places = superblocks(header);
    let mut work = Work { disk, rename, told, places, done: 0, of: 0 };
    let said = Header { number: header.number + 1, stand_in: Some(id), ..header.clone() };
    work.keep(&scanned.unkept)?;
    if !planted(Bug::NamedUnsaid) {
        work.write_header(&said)?;
    }
    if !planted(Bug::NamedLate) {
        work.rename_in_place(SLOW, 0)?;
    }
    let copy_at = header.layout.copy_at();
    work.of =
        [&scanned.fast, &scanned.slow].into_iter().flat_map(Extents::iter).map(|(r, _)| bytes_of(&r)).sum();
    work.put(FAST, &scanned.fast, copy_at)?;
    work.rename_in_place(FAST, copy_at)?;
    if !planted(Bug::NotTakenBack) {
        work.put(SLOW, &scanned.slow, 0)?;
    }
    if planted(Bug::NamedLate) {
        work.rename_in_place(SLOW, 0)?;
    }
    if !planted(Bug::StandsUnflushed) {
        work.disk.flush()?;
    }
    let head = scanned.head;
    let whole = Header { number: said.number + 1, image: None, tail: head, head, durable: head.seq, ..said };
    work.write_header(&whole)?;
    // Were this the only one, and it went bad, the one before would have it all done again, over what was written since.
    work.write_header(&Header { number: whole.number + 1, ..whole })
}

/// Where each device has its superblocks.
fn superblocks(header: &Header) -> [[u64; 2]; 2] {
    let layout = header.layout;
    [layout.fast_bytes, layout.slow_bytes].map(|bytes| [0, bytes - BLOCK])
}

fn bytes_of(range: &Range<u64>) -> u64 {
    (range.end - range.start) * BLOCK
}

struct Work<'d, D, R, T> {
    disk: &'d mut D,
    rename: R,
    told: T,
    /// Where each device has its superblocks.
    places: [[u64; 2]; 2],
    done: u64,
    of: u64,
}

impl<D: Disk, R: Fn(Tier, u64, &mut [u8]), T: FnMut(u64, u64)> Work<'_, D, R, T> {
    fn read(&mut self, at: u64, bytes: u64) -> Result<Vec<u8>, StandInError> {
        self.disk.read(at, bytes).ok_or(StandInError::Unreadable(at))
    }

    fn write_header(&mut self, header: &Header) -> Result<(), StandInError> {
        let mut block = vec![0; BLOCK as usize];
        header.encode(&mut block);
        self.disk.write(header.layout.headers()[(header.number % 2) as usize], &block)?;
        Ok(self.disk.flush()?)
    }

    /// What the ring should have, and a crash kept from it, goes there before the place changes where it still is.
    fn keep(&mut self, unkept: &[Unkept]) -> Result<(), StandInError> {
        if unkept.is_empty() || planted(Bug::UnkeptStandsIn) {
            return Ok(());
        }
        for Unkept { at, ring_at } in unkept {
            let held = self.read(*at, BLOCK)?;
            self.disk.write(*ring_at, &held)?;
        }
        Ok(self.disk.flush()?)
    }

    /// Of a device's two superblocks one is always whole.
    fn rename_in_place(&mut self, tier: Tier, base: u64) -> Result<(), StandInError> {
        for at in self.places[usize::from(tier.0)] {
            let mut block = self.read(base + at, BLOCK)?;
            (self.rename)(tier, at, &mut block);
            self.disk.write(base + at, &block)?;
            self.disk.flush()?;
        }
        Ok(())
    }

    /// Puts what the ring has of a device where it belongs. The superblocks among it get the name on the way.
    fn put(&mut self, tier: Tier, extents: &Extents, base: u64) -> Result<(), StandInError> {
        for (range, held) in extents.iter() {
            let Held::At(from) = held else { continue };
            for first in range.clone().step_by(PIECE as usize) {
                let piece = first..range.end.min(first + PIECE);
                let mut bytes = self.read(from + (first - range.start) * BLOCK, bytes_of(&piece))?;
                let blocks = piece.clone().map(|block| block * BLOCK).zip(bytes.chunks_mut(BLOCK as usize));
                for (at, bytes) in blocks.filter(|(at, _)| self.places[usize::from(tier.0)].contains(at)) {
                    (self.rename)(tier, at, bytes);
                }
                self.disk.write(base + first * BLOCK, &bytes)?;
                self.done += bytes_of(&piece);
                (self.told)(self.done, self.of);
            }
        }
        Ok(())
    }
}
