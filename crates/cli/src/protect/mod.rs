//! `bimetal protect`, and the image that a protected volume has on its slow device.

pub(crate) mod args;
pub(crate) mod stand_in;

use crate::volume::{self, Volume};
use crate::{Outcome, create, find, paths, say, say_json, size};
use anyhow::{Context as _, bail};
use args::{ProtectArgs, Time};
use bimetal_driver::{BlockFile, Driver};
use bimetal_engine::format::superblock::Superblock;
use bimetal_engine::options::DeviceInfo;
use bimetal_protect::{
    Header, Image, Layout, Newest, NoImage, Plan, Protection, Reader, Salvage, newest_header,
};
use bimetal_serve::protection::ProtectionDoc;
use bimetal_units::{BLOCK_BYTES, Tier};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Read at once at most, bytes.
const MOST_READ: u64 = 64 << 20;

/// How a volume is to be protected, as its volume file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Protect {
    /// The oldest that an image is to be.
    pub(crate) seconds: u32,
    /// Clients wait rather than that it is older.
    pub(crate) strict: bool,
}

pub(crate) fn run(args: &ProtectArgs) -> anyhow::Result<Outcome> {
    let mut volume = Volume::load(&volume::locate(&args.volume)?)?;
    if let Some(time) = args.time {
        if find::has_server(&volume) || find::is_in_use(&volume) {
            bail!("{} is in use; stop its server first, it begins when it is started again", volume.name().0);
        }
        match time {
            Time::Off => end(&mut volume)?,
            Time::Seconds(seconds) => begin(&mut volume, Protect { seconds, strict: args.strictly })?,
        }
    }
    let doc = volume.protect.map(|protect| ProtectionDoc {
        seconds: protect.seconds,
        strict: protect.strict,
        ..ProtectionDoc::default()
    });
    match args.json {
        true => say_json(&serde_json::json!({ "volume": volume.name().0, "protection": doc }))?,
        false => say(&match volume.protect {
            None => format!("{} is not protected", volume.name().0),
            Some(protect) => format!(
                "{} is protected{}: an image of it that is {} s old at most; `{} status {}` says how it stands",
                volume.name().0,
                if protect.strict { " strictly" } else { "" },
                protect.seconds,
                paths::program(),
                volume.called()
            ),
        }),
    }
    Ok(Outcome::Good)
}

/// How the image stands, in a sentence.
pub(crate) fn describe(doc: &ProtectionDoc) -> String {
    let lacks = size::show(doc.exposed_bytes);
    match (doc.state.as_str(), doc.exposed_seconds) {
        ("image", Some(0)) => "protected: the image on the slow device is of now".to_owned(),
        ("image", Some(age)) => {
            format!(
                "protected: the image on the slow device is {age} s old, and lacks {lacks} of the fast one"
            )
        }
        ("stand-in", _) => {
            "not protected: the copy on the slow device has the place of the fast one".to_owned()
        }
        ("off", _) => {
            let why = doc.why.as_deref().unwrap_or("it is not known why");
            match doc.retry_seconds {
                Some(seconds) => format!("not protected, and a new image is begun in {seconds} s: {why}"),
                None => format!("not protected until it is opened again: {why}"),
            }
        }
        _ => "not protected yet: the fast device is being copied for the first image".to_owned(),
    }
}

/// Writes into the volume file that it is to be protected, where there is room.
fn begin(volume: &mut Volume, protect: Protect) -> anyhow::Result<()> {
    volume.must_not_be_replacing()?;
    if paths::is_export(&volume.devices[1]) {
        bail!("the slow device of {} is an NBD export, which is not protected", volume.name().0);
    }
    let files = volume.open_devices()?;
    if !files[0].is_part() {
        layout(&files, &superblocks(&files)?[1], None)?;
    }
    volume.protect = Some(protect);
    volume.save()
}

/// Takes back what the volume file says, and what the slow device does.
fn end(volume: &mut Volume) -> anyhow::Result<()> {
    if volume.protect.is_none() {
        bail!("{} is not protected", volume.name().0);
    }
    let (resolved, missing) = find::what_is_there(volume)?;
    if let Some(missing) = missing.first() {
        bail!("its image stays what it is while a device is missing: {}", missing.sentence(volume));
    }
    if resolved.stand_in.is_some() {
        bail!(
            "the copy on {} has the place of the fast device of {}; give it another one first: `{} replace {} --fast DEVICE`",
            resolved.devices[1].display(),
            volume.name().0,
            paths::program(),
            volume.called()
        );
    }
    volume.protect = None;
    volume.save()?;
    erase_headers(volume)
}

/// What is written to the devices next passes by the image, which is not true any more then: the next opening makes another one.
pub(crate) fn give_up(volume: &Volume) -> anyhow::Result<()> {
    if volume.protect.is_some() { erase_headers(volume) } else { Ok(()) }
}

fn erase_headers(volume: &Volume) -> anyhow::Result<()> {
    let files = volume.open_devices()?;
    let [_, superblock] = superblocks(&files)?;
    // There is no image then; but where the copy is, they say.
    if files[0].is_part() {
        return Ok(());
    }
    let slow_bytes = superblock.geometry.device_bytes[1];
    if files[1].size_bytes() >= slow_bytes + 2 * BLOCK {
        files[1].erase(slow_bytes, 2 * BLOCK)?;
    }
    Ok(())
}

/// The superblocks of both devices. Of a device that is longer than the volume, the other one knows where the second is.
fn superblocks(files: &[BlockFile]) -> anyhow::Result<[Superblock; 2]> {
    let first = [0, 1].map(|tier: usize| volume::superblock_at(&files[tier], 0));
    let known = first.iter().flatten().next().map(|superblock| superblock.geometry.clone());
    let found = |tier: usize| {
        let second_at = || Some(known.as_ref()?.second_superblock_at(Tier(tier as u8)));
        let second = || volume::superblock_at(&files[tier], second_at()?);
        first[tier].clone().or_else(second).map_or_else(|| superblock(&files[tier]), Ok)
    };
    Ok([found(0)?, found(1)?])
}

/// The superblock of a device that is alone.
fn superblock(device: &BlockFile) -> anyhow::Result<Superblock> {
    volume::lone_superblock(device)
        .with_context(|| format!("the superblock of {} cannot be read", device.path().display()))
}

/// A device that is locked.
struct Locked<'d>(&'d BlockFile);

impl Reader for Locked<'_> {
    fn read(&mut self, at: u64, bytes: u64) -> Option<Vec<u8>> {
        // No range of a group is longer; what says so has rotted, or was made to.
        if bytes > MOST_READ {
            return None;
        }
        self.0.read_blocks(at, bytes).ok()
    }
}

fn header(device: &BlockFile, superblock: &Superblock) -> Option<Newest> {
    let places = Layout::headers_behind(superblock.geometry.device_bytes[1]);
    newest_header(&mut Locked(device), places, superblock.volume)
}

/// Where protection has its things, or why there is no room.
fn layout(files: &[BlockFile], superblock: &Superblock, header: Option<&Header>) -> anyhow::Result<Layout> {
    let [fast_bytes, slow_bytes] = superblock.geometry.device_bytes;
    let known = header.map(|header| header.layout).filter(|known| {
        known.fast_bytes == fast_bytes
            && known.slow_bytes == slow_bytes
            && known.end() <= files[1].size_bytes()
    });
    let layout = known.or_else(|| Layout::fitting(fast_bytes, slow_bytes, files[1].size_bytes()));
    let fast_needs = layout.map_or(0, |layout| layout.maps()[1] + BLOCK);
    match layout.filter(|_| fast_needs <= files[0].size_bytes()) {
        Some(layout) => Ok(layout),
        None => bail!(
            "there is no room for an image: it takes {} behind what the volume uses of {}, which has {}, and 8 KiB of \
             {}; make a volume with `{} create --protect`, which sets that aside",
            size::show(Layout::needs(fast_bytes, files[1].size_bytes())[1]),
            files[1].path().display(),
            size::show(files[1].size_bytes().saturating_sub(slow_bytes)),
            files[0].path().display(),
            paths::program()
        ),
    }
}

/// How large a device has to be that is to have the place of this tier's, so that there is room for the image as well.
pub(crate) fn needs(volume: &Volume, superblock: &Superblock, tier: usize) -> u64 {
    let bytes = superblock.geometry.device_bytes[tier];
    let known = volume.protect.and_then(|_| stand_in::seen(volume, &volume.devices[1]));
    match (volume.protect, known, tier) {
        (Some(_), _, 0) => bytes + 2 * BLOCK,
        (_, Some((header, _)), 1) => bytes.max(header.layout.end()),
        _ => bytes,
    }
}

/// What is to be left free of new devices, so that there is room.
pub(crate) fn leave_room(infos: &mut [DeviceInfo]) -> anyhow::Result<()> {
    let [fast_bytes, slow_bytes] = [infos[0].size_bytes, infos[1].size_bytes];
    let left = Layout::left_of(fast_bytes, slow_bytes);
    infos.iter_mut().zip(left).for_each(|(info, left)| info.size_bytes = left);
    if infos[1].size_bytes < infos[0].size_bytes.min(64 << 20) {
        bail!(
            "{} is too small for a protected volume: its image takes {} of it; give a larger one, or a smaller fast device",
            infos[1].name,
            size::show(Layout::needs(fast_bytes, slow_bytes)[1])
        );
    }
    Ok(())
}

/// Lets an image be kept from now on, if the volume file says so. Where it cannot be, the volume is opened without.
pub(crate) fn join(volume: &Volume, driver: &mut Driver) {
    let Some(protect) = volume.protect else { return };
    match protection(protect, driver.devices()) {
        Ok(protection) => driver.protect(protection),
        Err(error) => tracing::warn!("{} is not protected: {error:#}", volume.name().0),
    }
}

fn protection(protect: Protect, files: &[BlockFile]) -> anyhow::Result<Protection> {
    let [fast, mut superblock] = superblocks(files)?;
    let mut newest = header(&files[1], &superblock);
    superblock.generation = fast.generation_with(&superblock);
    if fast.left_behind.is_some() {
        // It was written to without the slow device, which the image knows nothing of.
        newest.iter_mut().for_each(|newest| newest.header.image = None);
    }
    let found = newest.as_ref().map(|newest| &newest.header);
    let stand_in = found.filter(|header| header.stands_in(&superblock));
    let layout = match stand_in {
        Some(header) if files[0].is_part() => header.layout,
        Some(_) => bail!("the copy on {} has the place of the fast device", files[1].path().display()),
        None => layout(files, &superblock, found)?,
    };
    let fresh = u64::from_le_bytes(create::random_id()?[..8].try_into()?);
    let plan = Plan::new(&superblock, layout, (protect.seconds, protect.strict), fresh);
    Ok(match stand_in {
        Some(header) => Protection::stand_by(plan, header),
        None => Protection::open(plan, newest.as_ref(), &mut Locked(&files[0]), &mut Locked(&files[1])),
    })
}

/// The image of a volume whose fast device is missing, on its slow one; an error says why there is none.
pub(crate) fn image(volume: &Volume, slow: &BlockFile) -> anyhow::Result<(Salvage, Image)> {
    let superblock = superblock(slow)?;
    let (name, device) = (volume.name().0, slow.path().display());
    let Some(newest) = header(slow, &superblock) else { bail!("{name} has no image yet") };
    bimetal_protect::image(&mut Locked(slow), &newest, &superblock, slow.size_bytes()).map_err(|why| {
        anyhow::anyhow!(match why {
            NoImage::NotDone => format!("{name} has no image yet: its first one was not done"),
            NoImage::Misfit => format!("what {name} says of its image does not fit its devices"),
            NoImage::Replaced => {
                format!("a device of {name} was replaced after its image was made, and the next one was not done")
            }
            NoImage::Unprotected => {
                format!("{name} was opened without protection after its image was made, which is not true any more")
            }
            NoImage::Doubtful => format!(
                "{name} has an image, but one of the two headers that say which cannot be read on {device}, or has rotted, and \
                 may be the newer one: the image may not be true any more"
            ),
            NoImage::Broken(at) => format!(
                "{name} has an image, but a part of it at byte {at} of {device} cannot be read, or has rotted, and what it lacks \
                 nobody knows"
            ),
        })
    })
}
