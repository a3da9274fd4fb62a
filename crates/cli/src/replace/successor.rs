//! The device that the volume file names as the one to take another's place.

use crate::find::{self, Look};
use crate::paths;
use crate::protect::stand_in;
use crate::volume::{self, Replacing, Volume};
use anyhow::bail;
use bimetal_driver::{BlockFile, Driver};
use bimetal_engine::format::superblock::Superblock;
use bimetal_replace::{Header, Pace, Plan, Replacement};
use bimetal_serve::successor::Successors;
use bimetal_units::{BLOCK_BYTES, Tier};
use std::path::PathBuf;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// The superblock of one of a volume's devices. What an export says the fast device says as well: its server may take one client
/// at a time.
pub(super) fn superblock(volume: &Volume, tier: usize) -> anyhow::Result<Superblock> {
    if tier == 0
        && let Some(superblock) = stand_in::fast_superblock(volume)
    {
        return Ok(superblock);
    }
    let asked = if paths::is_export(&volume.devices[tier]) { 0 } else { tier };
    let device = volume.devices[asked].display();
    match find::look(&volume.devices[asked]) {
        Look::Ours(superblock) if find::belongs(&superblock, volume, asked) => {
            Ok(Superblock { tier: Tier(tier as u8), ..*superblock })
        }
        _ => bail!(
            "{device} is not there, or is not the {} device of {}; a device is replaced while it is there",
            bimetal_serve::status::tier_name(tier),
            volume.file.display()
        ),
    }
}

/// Where each device has its own superblocks, and a successor says how far it is.
fn own(superblock: &Superblock) -> [u64; 2] {
    [0, superblock.geometry.second_superblock_at(superblock.tier)]
}

/// The newest of what a device says of itself as the successor of the one with this superblock.
pub(super) fn newest_header(device: &BlockFile, old: &Superblock) -> Option<Header> {
    let header = |at| device.read_block(at).ok().and_then(|block| Header::decode(&block));
    let is_its = |header: &Header| {
        header.volume == old.volume
            && header.tier == old.tier
            && header.old == old.devices[usize::from(old.tier.0)]
    };
    own(old).into_iter().filter_map(header).filter(is_its).max_by_key(|header| header.number)
}

/// Erases what a device says of itself as a successor.
pub(super) fn erase_headers(device: &BlockFile, old: &Superblock) -> anyhow::Result<()> {
    own(old).into_iter().try_for_each(|at| device.erase(at, BLOCK).map_err(anyhow::Error::from))
}

/// Opens the successor of a device with this superblock.
fn open(volume: &Volume, replacing: &Replacing, old: &Superblock) -> anyhow::Result<(BlockFile, Plan)> {
    let device = volume::timed(BlockFile::open(&replacing.device)?, volume.models[replacing.tier])?;
    let bytes = old.geometry.device_bytes[replacing.tier];
    if device.size_bytes() < bytes {
        bail!("{} has become shorter than what the volume uses", replacing.device.display());
    }
    let plan = Plan {
        volume: old.volume,
        tier: Tier(replacing.tier as u8),
        old: old.devices[replacing.tier],
        new: crate::create::random_id()?,
        bytes,
        own: own(old),
        generation: old.generation,
        pace: Pace::default(),
    };
    Ok((device, plan))
}

/// From nothing: what the device says of itself no longer counts, however many headers it has had.
fn from_nothing(device: BlockFile, plan: Plan, old: &Superblock) -> anyhow::Result<(BlockFile, Replacement)> {
    erase_headers(&device, old)?;
    Ok((device, Replacement::begin(plan)))
}

/// Goes on where the device says that it is, if nothing was written past it since.
fn go_on(device: BlockFile, plan: Plan, old: &Superblock) -> anyhow::Result<(BlockFile, Replacement)> {
    let resumed = newest_header(&device, old)
        .and_then(|header| Replacement::resume(Plan { new: header.new, ..plan.clone() }, &header));
    match resumed {
        Some(replacement) => Ok((device, replacement)),
        None => from_nothing(device, plan, old),
    }
}

/// The same, with what cannot be read left out where the volume file says so.
fn as_wished(mut begun: (BlockFile, Replacement), replacing: &Replacing) -> (BlockFile, Replacement) {
    if replacing.leave_unreadable {
        begun.1.leave_unreadable();
    }
    begun
}

/// Lets the successor that the volume file names have its part in all that is written from now on. Where it is not there the volume
/// is opened without, and it is copied anew when it is there again.
pub(crate) fn join(volume: &Volume, driver: &mut Driver) {
    let Some(replacing) = &volume.replacing else { return };
    let opened = || {
        let old = superblock(volume, replacing.tier)?;
        let (device, plan) = open(volume, replacing, &old)?;
        go_on(device, plan, &old).map(|begun| as_wished(begun, replacing))
    };
    match opened() {
        Ok((device, replacement)) => {
            driver.begin_replacement(device, replacement);
            driver.forget_successor_with(forgets(volume, replacing));
        }
        Err(error) => tracing::warn!(
            "{} is not copied to while the volume is open: {error:#}",
            replacing.device.display()
        ),
    }
}

/// Lets the volume file forget a successor that fails, and says so.
fn forgets(volume: &Volume, replacing: &Replacing) -> impl FnMut(&str) -> bool + use<> {
    let (mut named, device) = (Named::new(volume), replacing.device.display().to_string());
    let mut was_told = false;
    move |why| {
        let forgotten = named.given_up();
        if !std::mem::replace(&mut was_told, true) {
            tracing::error!("{device} cannot take the other's place: {why}");
            if let Err(unsaved) = &forgotten {
                tracing::error!("nothing is written to the volume until its file can be: {unsaved}");
            }
        }
        forgotten.is_ok()
    }
}

/// What the volume file names.
pub(crate) struct Named {
    file: PathBuf,
}

impl Named {
    pub(crate) fn new(volume: &Volume) -> Named {
        Named { file: volume.file.clone() }
    }

    fn change(&self, change: impl FnOnce(&mut Volume, Replacing)) -> Result<(), String> {
        let change = || -> anyhow::Result<()> {
            let mut volume = Volume::load(&self.file)?;
            if let Some(replacing) = volume.replacing.take() {
                change(&mut volume, replacing);
                volume.save()?;
            }
            Ok(())
        };
        change().map_err(|error| format!("{error:#}"))
    }
}

impl Successors for Named {
    fn begin(&mut self, superblocks: [Superblock; 2]) -> Result<(BlockFile, Replacement), String> {
        let begin = || -> anyhow::Result<(BlockFile, Replacement)> {
            let volume = Volume::load(&self.file)?;
            let Some(replacing) = &volume.replacing else {
                bail!("the volume file names no device to replace")
            };
            // What was written meanwhile did not go to it, whatever it says.
            let old = &superblocks[replacing.tier];
            let (device, plan) = open(&volume, replacing, old)?;
            from_nothing(device, plan, old).map(|begun| as_wished(begun, replacing))
        };
        begin().map_err(|error| format!("{error:#}"))
    }

    fn has_taken_over(&mut self) -> Result<(), String> {
        self.change(|volume, replacing| volume.devices[replacing.tier] = replacing.device)
    }

    fn given_up(&mut self) -> Result<(), String> {
        self.change(|_, _| {})
    }
}
