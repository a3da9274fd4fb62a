//! The fast device is gone for good: the copy takes its place, on a copy of the slow device, with crashes on the way.

use super::disk::Disk as Device;
use super::life::Moment;
use crate::{Disk, Header, Reader, StandInError, newest_header, scan, stand_in};
use bimetal_engine::action::DeviceError;
use bimetal_units::rng::Rng;
use bimetal_units::{BLOCK_BYTES, FAST, SLOW, Tier};

const BLOCK: usize = BLOCK_BYTES as usize;
/// What the fast device is called from then on, and in a superblock of this test.
const NAME: [u8; 16] = [0xab; 16];
/// Where that is: behind the version.
const NAME_AT: std::ops::Range<usize> = 8..16;

/// A device whose power fails after so many writes and flushes.
struct Failing<'d> {
    device: &'d mut Device,
    left: u64,
}

impl Failing<'_> {
    fn step(&mut self) -> Result<(), DeviceError> {
        self.left = self.left.checked_sub(1).ok_or(DeviceError { errno: 5 })?;
        Ok(())
    }
}

impl Reader for Failing<'_> {
    fn read(&mut self, at: u64, bytes: u64) -> Option<Vec<u8>> {
        let mut out = vec![0; bytes as usize];
        self.device.read(at as usize, &mut out).then_some(out)
    }
}

impl Disk for Failing<'_> {
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.step()?;
        self.device.write(at as usize, bytes, false);
        Ok(())
    }
    fn flush(&mut self) -> Result<(), DeviceError> {
        self.step()?;
        let all = self.device.cached();
        self.device.flush(&all);
        Ok(())
    }
}

fn rename(_: Tier, _: u64, block: &mut [u8]) {
    block[NAME_AT].copy_from_slice(&NAME[..8]);
}

fn is_named(block: &[u8]) -> bool {
    block[NAME_AT] == NAME[..8]
}

/// Whether it comes to its end, whatever happens on the way, and holds the image then.
pub(super) fn tries(
    slow: &Device,
    header: &Header,
    moment: &Moment,
    rng: &mut Rng,
    may_lack: bool,
) -> Result<(), String> {
    let (before, mut device) = (slow.clone(), slow.clone());
    let (volume, layout) = (header.volume, header.layout);
    let newest = |device: &mut Device| {
        newest_header(&mut Failing { device, left: 0 }, layout.headers(), volume)
            .map(|newest| newest.header)
            .ok_or_else(|| "standing in: there is no header".to_owned())
    };
    let mut patience = rng.below(12);
    loop {
        let header = newest(&mut device)?;
        let mut failing = Failing { device: &mut device, left: patience };
        let scanned = scan(&mut failing, &header, true);
        let stood = stand_in(&mut failing, &header, &scanned, NAME, rename, |done, of| assert!(done <= of));
        match stood {
            Ok(_) => {
                device.crash(rng);
                break;
            }
            Err(StandInError::Lost(..) | StandInError::Unreadable(_)) if may_lack => return Ok(()),
            Err(StandInError::Failed(_)) => {
                device.crash(rng);
                patience += rng.below(12);
            }
            Err(error) => return Err(format!("standing in: {error:?}")),
        }
        // Until the old fast device is refused the slow one is what it was, and the image counts.
        let header = newest(&mut device)?;
        if header.image.is_none() {
            break;
        }
        let is_named = is_named(device.block(0));
        if is_named && header.stand_in != Some(NAME) {
            return Err("standing in: it has the name, and no header says so".into());
        }
        let changed = |place: &usize| before.block(place * BLOCK) != device.block(place * BLOCK);
        let blocks = layout.slow_bytes as usize / BLOCK;
        if !is_named && let Some(place) = (0..blocks).find(changed) {
            return Err(format!("standing in: block {place} changed while the old fast device counts"));
        }
    }
    let header = newest(&mut device)?;
    if header.stand_in != Some(NAME) || header.image.is_some() {
        return Err("standing in: the header does not say so".into());
    }
    for (tier, base, blocks) in [(FAST, layout.copy_at() as usize, &moment[0]), (SLOW, 0, &moment[1])] {
        for (place, may) in blocks.iter().enumerate() {
            let at = base + place * BLOCK;
            let block = device.block(at);
            let held = u64::from_le_bytes(block[..8].try_into().expect("eight bytes"));
            let is_superblock = place == 0 || place == blocks.len() - 1;
            if !may.is_empty() && !device.bad.contains(&(at / BLOCK)) && !may.contains(&held) {
                return Err(format!("stands in: block {place} of {tier:?} holds {held}, not one of {may:?}"));
            }
            if is_superblock != is_named(block) {
                return Err(format!("stands in: block {place} of {tier:?} has a name, or has none"));
            }
        }
    }
    Ok(())
}
