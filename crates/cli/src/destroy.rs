//! `bimetal destroy`

use crate::args::DestroyArgs;
use crate::find::{self, Look};
use crate::signatures;
use crate::volume::{self, Volume};
use crate::{Outcome, say, say_json};
use anyhow::{Context as _, bail};
use bimetal_driver::{BlockFile, IO_BYTES};
use bimetal_engine::format::superblock::{Found, Superblock};
use bimetal_serve::status::{hex, tier_name};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// What `destroy --json` prints.
#[derive(Debug, Serialize)]
struct DestroyDoc {
    volume: String,
    volume_id: String,
    /// The volume file, which is gone.
    file: PathBuf,
    devices: Vec<DeviceDoc>,
}

#[derive(Debug, Serialize)]
struct DeviceDoc {
    name: String,
    device: PathBuf,
    /// Whether superblocks were erased on it; otherwise it was not touched.
    erased: bool,
}

/// A device that is going to be erased: locked, and looked at under the lock.
struct Target {
    file: BlockFile,
    /// Where superblocks of this volume stand.
    superblocks: Vec<u64>,
}

pub(crate) fn run(args: &DestroyArgs) -> anyhow::Result<Outcome> {
    let mut volume = Volume::load(&volume::locate(&args.volume)?)?;
    if !args.yes {
        bail!(
            "this would destroy {} on {} and {} for good; give --yes if that is meant",
            volume.file.display(),
            volume.devices[0].display(),
            volume.devices[1].display()
        );
    }
    volume.must_not_be_replacing().context("nothing was destroyed")?;
    if find::has_server(&volume) {
        bail!("{} is in use; stop its server first; nothing was destroyed", volume.file.display());
    }
    let paths = paths(&volume, args.force)?;
    // All that can be refused is refused before anything is touched.
    let targets = paths
        .iter()
        .enumerate()
        .map(|(tier, path)| target(&volume, tier, path, args.force))
        .collect::<anyhow::Result<Vec<_>>>()?;
    // If this is cut short, the volume is one that was not made to its end, and can be destroyed again.
    volume.unfinished = true;
    volume.save()?;
    for target in targets.iter().flatten() {
        for &at in &target.superblocks {
            target.file.erase(at, u64::from(IO_BYTES))?;
        }
    }
    std::fs::remove_file(&volume.file).with_context(|| format!("cannot remove {}", volume.file.display()))?;
    volume.forget();
    report(args, &volume, &paths, &targets)?;
    Ok(Outcome::Good)
}

/// Where the devices are. By force, where the volume file says, if they cannot all be found.
fn paths(volume: &Volume, force: bool) -> anyhow::Result<Vec<PathBuf>> {
    match find::resolve(volume) {
        Ok(resolved) if resolved.stand_in.is_some() && !force => bail!(
            "the fast device of {} is gone, and the copy on {} has its place; nothing was destroyed (--force destroys the rest)",
            volume.name().0,
            resolved.devices[1].display()
        ),
        Ok(resolved) if resolved.stand_in.is_none() => {
            resolved.notes.iter().for_each(|note| tracing::warn!("{note}"));
            Ok(resolved.devices)
        }
        Ok(_) => Ok(volume.devices.clone()),
        Err(_) if force || volume.unfinished => Ok(volume.devices.clone()),
        Err(error) => Err(error.context("nothing was destroyed (--force destroys the rest)")),
    }
}

/// Locks a device and looks at its superblocks; `None` when it is not there or not this volume's, which must
/// be allowed for.
fn target(volume: &Volume, tier: usize, path: &Path, force: bool) -> anyhow::Result<Option<Target>> {
    let optional = force || volume.unfinished;
    if matches!(find::look(path), Look::Missing) && optional {
        return Ok(None);
    }
    let file = BlockFile::open(path).context("nothing was destroyed")?;
    let superblocks = superblocks(&file, volume, tier);
    if superblocks.is_empty() && !optional {
        bail!(
            "{} holds no superblock of {}'s {} device; nothing was destroyed (--force destroys the rest and \
             leaves it alone)",
            path.display(),
            volume.file.display(),
            tier_name(tier)
        );
    }
    Ok((!superblocks.is_empty()).then_some(Target { file, superblocks }))
}

/// Where superblocks of this volume and tier stand: at the start, and where the first says, or at the end.
/// A block that is ours by its first bytes but damaged counts if the other one is whole.
fn superblocks(file: &BlockFile, volume: &Volume, tier: usize) -> Vec<u64> {
    let last = (file.size_bytes() / signatures::BLOCK).checked_sub(1).map(|last| last * signatures::BLOCK);
    let mut places = vec![0];
    // A block that cannot be read is none.
    match file.read_block(0).map(|block| Superblock::decode(&block, 0)) {
        Ok(Found::Valid(first)) => places.push(first.geometry.second_superblock_at(first.tier)),
        _ => places.extend(last),
    }
    let read = |&at: &u64| {
        let inside = at + signatures::BLOCK <= file.size_bytes();
        inside.then(|| file.read_block(at).ok()).flatten().map(|block| (at, block))
    };
    let blocks: Vec<(u64, Vec<u8>)> = places.iter().filter_map(read).collect();
    let is_whole = |(at, block): &(u64, Vec<u8>)| matches!(Superblock::decode(block, *at), Found::Valid(s) if find::belongs(&s, volume, tier));
    let is_damaged = |(at, block): &(u64, Vec<u8>)| {
        block.starts_with(signatures::OURS) && matches!(Superblock::decode(block, *at), Found::Nothing)
    };
    if !blocks.iter().any(is_whole) {
        return Vec::new();
    }
    blocks.iter().filter(|one| is_whole(one) || is_damaged(one)).map(|(at, _)| *at).collect()
}

fn report(
    args: &DestroyArgs,
    volume: &Volume,
    paths: &[PathBuf],
    targets: &[Option<Target>],
) -> anyhow::Result<()> {
    let devices = paths.iter().zip(targets).enumerate().map(|(tier, (path, target))| DeviceDoc {
        name: tier_name(tier),
        device: path.clone(),
        erased: target.is_some(),
    });
    let doc = DestroyDoc {
        volume: volume.name().0,
        volume_id: hex(&volume.id),
        file: volume.file.clone(),
        devices: devices.collect(),
    };
    if args.json {
        return say_json(&doc);
    }
    say(&format!("destroyed {}", doc.volume));
    for device in &doc.devices {
        let what = if device.erased { "superblocks erased, the rest left as it is" } else { "not touched" };
        say(&format!("  {}: {}: {what}", device.name, device.device.display()));
    }
    Ok(())
}
