//! The copy of a fast device that is gone, in its place: the image of a protected volume becomes what the volume holds.

use super::{Locked, header, image, superblock};
use crate::bytes::Bytes as _;
use crate::find::{self, Look};
use crate::progress::Progress;
use crate::volume::{self, Volume};
use crate::{create, paths, size};
use anyhow::{Context as _, bail};
use bimetal_driver::{BlockFile, PoolSizes, run_task};
use bimetal_engine::action::DeviceError;
use bimetal_engine::format::Id;
use bimetal_engine::format::superblock::{Found, Superblock};
use bimetal_engine::loss::Suspects;
use bimetal_protect::{Disk, Header, Layout, Newest, StandInError, newest_header, scan, stand_in};
use bimetal_units::{BLOCK_BYTES, FAST, Tier};
use std::fs::File;
use std::path::Path;

/// Linux's EIO.
const EIO: i32 = 5;

/// What the slow device at this path says of the image, without a lock, beside its superblock.
pub(super) fn seen(volume: &Volume, slow: &Path) -> Option<(Header, Superblock)> {
    let Look::Ours(superblock) = find::look(slow) else { return None };
    if paths::is_export(slow) || !find::belongs(&superblock, volume, 1) {
        return None;
    }
    let file = File::open(slow).ok()?;
    let mut read = |at, bytes: u64| {
        let mut block = vec![0; bytes as usize];
        file.read_exact_at(&mut block, at).ok().map(|()| block)
    };
    let places = Layout::headers_behind(superblock.geometry.device_bytes[1]);
    Some((newest_header(&mut read, places, superblock.volume)?.header, *superblock))
}

/// Where the slow device at this path has the copy, if that has the place of the volume's fast device.
pub(crate) fn look(volume: &Volume, slow: &Path) -> Option<Layout> {
    let (header, superblock) = seen(volume, slow)?;
    header.stands_in(&superblock).then_some(header.layout)
}

/// The superblock of the fast device, where the copy has its place.
pub(crate) fn fast_superblock(volume: &Volume) -> Option<Superblock> {
    volume.protect?;
    let (resolved, _) = find::what_is_there(volume).ok()?;
    let at = resolved.stand_in?.copy_at();
    let (file, mut block) = (File::open(&resolved.devices[1]).ok()?, vec![0; BLOCK_BYTES as usize]);
    file.read_exact_at(&mut block, at).ok()?;
    match Superblock::decode(&block, 0) {
        Found::Valid(superblock) if superblock.tier == FAST => Some(*superblock),
        _ => None,
    }
}

/// Both devices of a volume of which the copy has the place of the fast one: what was cut short is done to its end, where the
/// slow device is opened to be written to.
pub(crate) fn open(volume: &Volume, slow: BlockFile, writable: bool) -> anyhow::Result<Vec<BlockFile>> {
    let (superblock, name) = (superblock(&slow)?, volume.name().0);
    let found = header(&slow, &superblock).filter(|newest| newest.header.stands_in(&superblock));
    let Newest { header, is_doubtful } =
        found.with_context(|| format!("{name} has changed while it was opened; try again"))?;
    if header.image.is_some() && is_doubtful {
        bail!(
            "one of the two headers on {} that say how far the copy is in the place of the fast device of {name} cannot be read, \
             or has rotted: whether that was done to its end nobody knows, and doing it again could undo what was written since",
            slow.path().display()
        );
    }
    if header.image.is_some() {
        if !writable {
            bail!(
                "the copy on {} was about to take the place of the fast device of {name}, and was cut short; \
                 `{} serve {} --degraded --writable` goes on with that",
                slow.path().display(),
                paths::program(),
                volume.called()
            );
        }
        take_place(volume, &slow, &header, superblock.devices[0])?;
    } else if writable {
        tracing::warn!(
            "the copy on {} has the place of the fast device of {name}; `{} replace {} --fast DEVICE` gives it another one",
            slow.path().display(),
            paths::program(),
            volume.called()
        );
    }
    let fast = slow.part(header.layout.copy_at(), header.layout.fast_bytes)?;
    // It is as fast as what it is on.
    [fast, slow].into_iter().map(|file| volume::timed(file, volume.models[1])).collect()
}

/// Lets the copy take the place of a fast device that is gone, for good; the image must be one that opens.
pub(crate) fn begin(volume: &Volume) -> anyhow::Result<()> {
    volume.must_not_be_replacing()?;
    let name = volume.name().0;
    let slow = {
        let (files, missing) = volume.open_what_is_left(BlockFile::open_read_only)?;
        if missing.tier != 0 {
            bail!(
                "the slow device of {name} is missing, and with it the image that could take the place of its fast one"
            );
        }
        if volume.protect.is_none() {
            bail!(
                "{name} is not protected: without its fast device what is left of it is served read-only, without --writable"
            );
        }
        let path = files[0].path().to_owned();
        image(volume, &files[0])?;
        let (mut driver, arena) = volume::driver_of_rest(files, PoolSizes::default(), Some(&missing))?;
        driver.ignore_models();
        let options = volume.open_options();
        let task = volume::open_degraded(volume, &mut driver, arena, &missing, options, Suspects::Refused);
        run_task(&mut driver, task, |_, _| {})?
            .with_context(|| format!("the image of {name} does not open, and nothing was changed"))?;
        path
    };
    let slow = BlockFile::open(&slow)?;
    let superblock = superblock(&slow)?;
    let newest = header(&slow, &superblock).with_context(|| format!("{name} has no image any more"))?;
    take_place(volume, &slow, &newest.header, create::random_id()?)
}

fn take_place(volume: &Volume, slow: &BlockFile, header: &Header, id: Id) -> anyhow::Result<()> {
    let (name, device) = (volume.name().0, slow.path().display());
    let as_of = header.image.map_or(0, |image| image.frozen_unix_ms / 1000);
    let mut progress = Progress::new(format!("{name}: the image takes its place"), false);
    let scanned = scan(&mut Locked(slow), header, true);
    let rename = |_: Tier, at: u64, block: &mut [u8]| {
        if let Found::Valid(mut superblock) = Superblock::decode(block, at)
            && superblock.volume == volume.id
        {
            superblock.devices[0] = id;
            superblock.encode(block, at);
        }
    };
    let told = |done, of| progress.at(&format!("{} of {}", size::show(done), size::show(of)));
    let stood = stand_in(&mut Locked(slow), header, &scanned, id, rename, told);
    drop(progress);
    stood.map_err(|error| match error {
        StandInError::NoImage => anyhow::anyhow!("{name} has no image"),
        StandInError::Broken(at) => anyhow::anyhow!(
            "a part of the image of {name} at byte {at} of {device} cannot be read, or has rotted; nothing was changed"
        ),
        StandInError::Lost(tier, bytes) => anyhow::anyhow!(
            "{} of the {} device are lost in the image of {name}, so that it is served read-only alone, without --writable: \
             copy it to a new volume; nothing was changed",
            size::show(bytes),
            bimetal_serve::status::tier_name(usize::from(tier.0))
        ),
        StandInError::Unreadable(at) => anyhow::anyhow!("{device} cannot be read at byte {at}"),
        StandInError::Failed(error) => anyhow::anyhow!("{device} cannot be written to: {error}"),
    })?;
    tracing::warn!(
        "{name} goes on as it was {} s ago: the copy on {device} has the place of its fast device, which is refused from now \
         on; `{} replace {} --fast DEVICE` gives it another one",
        (bimetal_serve::unix_ms() / 1000).saturating_sub(as_of),
        paths::program(),
        volume.called()
    );
    Ok(())
}

impl Disk for Locked<'_> {
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.0.write_blocks(at, bytes).map_err(|_| DeviceError { errno: EIO })
    }
    fn flush(&mut self) -> Result<(), DeviceError> {
        self.0.flush().map_err(|_| DeviceError { errno: EIO })
    }
}
