//! `bimetal create`

use crate::args::CreateArgs;
use crate::paths::DeviceSpec;
use crate::progress::Progress;
use crate::volume::{self, Volume};
use crate::{Outcome, find, inspect, say, size};
use anyhow::{Context as _, bail};
use bimetal_driver::{BlockFile, PoolSizes, run_task};
use bimetal_engine::format::geometry::Geometry;
use bimetal_engine::options::CreateOptions;
use std::path::PathBuf;

/// What `create` needs to know.
pub(crate) struct Plan {
    pub(crate) file: PathBuf,
    pub(crate) devices: [DeviceSpec; 2],
    pub(crate) chunk: u64,
    pub(crate) landing: Option<u64>,
    pub(crate) wear_budget: Option<u64>,
    pub(crate) wake_budget: Option<u32>,
    pub(crate) force: bool,
    /// Only what an earlier run left half made may be overwritten.
    pub(crate) resumes: bool,
    /// No progress on the terminal.
    pub(crate) quiet: bool,
}

pub(crate) fn run(args: &CreateArgs) -> anyhow::Result<Outcome> {
    let made = make(&Plan {
        file: volume::locate(&args.volume)?,
        devices: [args.fast.clone(), args.slow.clone()],
        chunk: args.chunk,
        landing: args.landing,
        wear_budget: args.wear_budget,
        wake_budget: args.wake_budget,
        force: args.force,
        resumes: false,
        quiet: false,
    })?;
    say(&format!("created {}; serve it with `bimetal serve {}`", made.volume.file.display(), args.volume));
    for (tier, file) in made.files.iter().enumerate() {
        say(&describe(tier, file));
    }
    Ok(Outcome::Good)
}

/// Makes a volume. Its devices stay locked until what is returned is dropped.
pub(crate) fn make(plan: &Plan) -> anyhow::Result<Made> {
    if plan.file.exists() && !plan.force {
        bail!("{} exists already; choose another name, or overwrite it with --force", plan.file.display());
    }
    if plan.file.exists()
        && let Ok(older) = Volume::load(&plan.file)
        && find::is_in_use(&older)
    {
        bail!(
            "{} names a volume that is in use: its file cannot be replaced; stop its server first, or choose another name",
            plan.file.display()
        );
    }
    let Ok(chunk_bytes) = u32::try_from(plan.chunk) else {
        bail!("a chunk of {} is too large; use 64K to 4M", size::show(plan.chunk));
    };
    let devices = plan.devices.iter().map(|spec| prepare(spec, plan)).collect::<anyhow::Result<Vec<_>>>()?;
    if devices[0] == devices[1] {
        bail!("{} is given as both the fast and the slow device", devices[0].display());
    }
    if find::is_same_storage(&devices[0], &devices[1]) {
        bail!(
            "{} and {} are the same storage, or overlap; a volume needs two that lie apart",
            devices[0].display(),
            devices[1].display()
        );
    }
    let id = random_id()?;
    let models = plan.devices.iter().map(|spec| spec.model).collect();
    let (file, wear_budget, wake_budget) = (plan.file.clone(), plan.wear_budget, plan.wake_budget);
    let mut volume = Volume { file, id, devices, models, wear_budget, wake_budget, unfinished: true };
    let (mut driver, arena) = volume::driver(volume.open_paths(&volume.devices)?, PoolSizes::default())?;
    driver.ignore_models();
    if plan.resumes && Volume::load(&plan.file).is_ok_and(|v| !v.unfinished) {
        bail!("{} was made by another process meanwhile; run the command again", plan.file.display());
    }
    if !plan.force {
        // Looked at again under the lock: somebody else may have been faster.
        for path in &volume.devices {
            if let Some(found) = inspect::contents(path, plan.quiet)? {
                bail!(
                    "{} holds {found} by now; choose another, or overwrite it with --force",
                    path.display()
                );
            }
        }
    }
    let options = CreateOptions {
        chunk_bytes,
        landing_bytes: plan.landing,
        created_unix_s: bimetal_driver::Clock::unix_s(driver.clock.now()),
        ..CreateOptions::new(id)
    };
    // What cannot be laid out is refused before anything is touched, an older volume file included.
    Geometry::plan(&driver.device_infos(), &options)?;
    volume.save()?;
    for device in driver.devices() {
        inspect::wipe(device)?;
    }
    let task = bimetal_engine::create(arena, driver.device_infos(), options);
    let mut progress = Progress::new(format!("creating {}", volume.name().0), plan.quiet);
    let made = run_task(&mut driver, task, |bytes| progress.bytes(bytes));
    drop(progress);
    if let Err(error) = made? {
        // Nothing was made, so nothing is to be found under that name.
        let _ = std::fs::remove_file(&volume.file);
        return Err(error.into());
    }
    volume.unfinished = false;
    volume.save()?;
    Ok(Made { volume, files: driver.into_devices() })
}

/// A new volume, and its devices, still locked.
pub(crate) struct Made {
    pub(crate) volume: Volume,
    pub(crate) files: Vec<BlockFile>,
}

/// Looks at what is there, creates the file if that was asked for, and gives the path to keep: a block
/// device's as it was written, since a name such as /dev/disk/by-id/... outlives the one that it leads to.
fn prepare(spec: &DeviceSpec, plan: &Plan) -> anyhow::Result<PathBuf> {
    let path = &spec.path;
    if !plan.force
        && let Some(found) = inspect::contents(path, plan.quiet)?
    {
        bail!("{} holds {found}; choose another device, or overwrite it with --force", path.display());
    }
    if let Some(size) = spec.size
        && !find::is_block_device(path)
    {
        // What somebody uses does not grow before it is refused.
        if path.exists() {
            drop(BlockFile::open(path)?);
        }
        BlockFile::create_sparse(path, size)?;
    }
    if !path.exists() {
        bail!(
            "{} does not exist; write {}?size=10G to create it as a sparse file",
            path.display(),
            path.display()
        );
    }
    let kept = if find::is_block_device(path) { std::path::absolute(path) } else { path.canonicalize() };
    kept.with_context(|| format!("cannot find {}", path.display()))
}

/// One line for people: how a device is used.
fn describe(tier: usize, file: &BlockFile) -> String {
    let facts = file.facts();
    let kind = if facts.block_device { "block device" } else { "file" };
    let way = if facts.direct { "direct I/O" } else { "through the page cache" };
    let mut text = format!(
        "  {}: {}, a {kind} of {}, {way}",
        bimetal_serve::status::tier_name(tier),
        file.path().display(),
        size::show(file.size_bytes())
    );
    if let Some(sector) = facts.logical_sector_bytes {
        text += &format!(" in units of {sector} bytes");
    }
    if let Some(physical) = facts.physical_sector_bytes {
        text += &format!(", physical sectors of {physical}");
    }
    if let Some(model) = facts.model {
        text += &format!(", timed as {model}");
    }
    text
}

/// A random identity from the system.
fn random_id() -> anyhow::Result<[u8; 16]> {
    use std::io::Read as _;
    let mut id = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut id))
        .context("cannot read random bytes from /dev/urandom")?;
    Ok(id)
}

/// A random number from the system.
pub(crate) fn random_seed() -> anyhow::Result<u64> {
    let id = random_id()?;
    Ok(id.iter().take(6).fold(0, |seed, &byte| seed << 8 | u64::from(byte)))
}
