//! `bimetal create`

use crate::args::CreateArgs;
use crate::paths::DeviceSpec;
use crate::progress::Progress;
use crate::protect::{self, Protect};
use crate::volume::{self, Volume};
use crate::{Outcome, complain, find, inspect, paths, say, size};
use anyhow::{Context as _, bail};
use bimetal_driver::{BlockFile, PoolSizes, run_task};
use bimetal_engine::format::geometry::Geometry;
use bimetal_engine::format::id_text;
use bimetal_engine::options::{CreateOptions, DeviceInfo, Marking, Tuning};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Whether the slow device describes itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Marks {
    #[default]
    Off,
    On,
    Strict,
}

impl From<Marks> for Marking {
    fn from(marks: Marks) -> Marking {
        match marks {
            Marks::Off => Marking::Off,
            Marks::On => Marking::On,
            Marks::Strict => Marking::Strict,
        }
    }
}

/// What `create` needs to know.
pub(crate) struct Plan {
    pub(crate) file: PathBuf,
    pub(crate) devices: [DeviceSpec; 2],
    pub(crate) chunk: u64,
    pub(crate) landing: Option<u64>,
    pub(crate) marking: Marking,
    pub(crate) wear_budget: Option<u64>,
    pub(crate) wake_budget: Option<u32>,
    /// How long an export that is away is waited for.
    pub(crate) remote_patience: Option<Duration>,
    pub(crate) protect: Option<Protect>,
    /// How often overwriting was asked for: what is on the devices needs it once, an older volume file once more.
    pub(crate) force: u8,
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
        marking: args.marks.into(),
        wear_budget: args.wear_budget,
        wake_budget: args.wake_budget,
        remote_patience: args.remote_patience,
        protect: args.protection.wish(),
        force: args.force,
        resumes: false,
        quiet: false,
    })?;
    say(&format!(
        "created {}; serve it with `{} serve {}`",
        made.volume.file.display(),
        paths::program(),
        paths::shell(Path::new(&args.volume))
    ));
    for (tier, file) in made.files.iter().enumerate() {
        say(&describe(tier, file));
    }
    say(&made.memory);
    made.seen_only.iter().for_each(|line| say(line));
    doubts(&made.files).iter().for_each(|doubt| tracing::warn!("{doubt}"));
    Ok(Outcome::Good)
}

/// Makes a volume. Its devices stay locked until what is returned is dropped.
pub(crate) fn make(plan: &Plan) -> anyhow::Result<Made> {
    let older = older(plan)?;
    let Ok(chunk_bytes) = u32::try_from(plan.chunk) else {
        bail!("a chunk of {} is too large; use 64K to 4M", size::show(plan.chunk));
    };
    // What shows at once is refused before any file is made.
    for spec in &plan.devices {
        let found = inspect::glance(&spec.path)?.found;
        may_overwrite(plan, &older, &spec.path, found.as_deref())?;
    }
    if plan.protect.is_some() && paths::is_export(&plan.devices[1].path) {
        bail!("{} is an NBD export, and no volume with one is protected", plan.devices[1].path.display());
    }
    let devices = plan.devices.iter().map(prepare).collect::<anyhow::Result<Vec<_>>>()?;
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
    let remote_patience = plan.remote_patience;
    let mut volume = Volume {
        file,
        id,
        devices,
        models,
        wear_budget,
        wake_budget,
        on_event: None,
        remote_patience,
        protect: plan.protect,
        replacing: None,
        unfinished: true,
    };
    let (mut driver, arena) = volume::driver(volume.open_paths(&volume.devices)?, PoolSizes::default())?;
    driver.ignore_models();
    if plan.resumes && Volume::load(&plan.file).is_ok_and(|v| !v.unfinished) {
        bail!("{} was made by another process meanwhile; run the command again", plan.file.display());
    }
    let options = CreateOptions {
        chunk_bytes,
        landing_bytes: plan.landing,
        marking: plan.marking,
        created_unix_s: bimetal_driver::Clock::unix_s(driver.clock.now()),
        ..CreateOptions::new(id)
    };
    // What cannot be laid out is refused before anything is touched, an older volume file included.
    let mut infos = driver.device_infos();
    if plan.protect.is_some() {
        protect::leave_room(&mut infos)?;
    }
    let mut memory = memory(&infos, &options, &Geometry::plan(&infos, &options)?, volume.pools());
    let remote: u64 = driver.devices().iter().map(BlockFile::ram_bytes).sum();
    if remote > 0 {
        memory += &format!("; up to {} for what the export may still forget", size::show(remote));
    }
    // Looked at under the lock, and thoroughly: nobody writes there any more.
    let (mut erased, mut seen_only) = (Vec::new(), Vec::new());
    for device in driver.devices() {
        let path = device.path();
        let look = inspect::contents(device, plan.quiet)?;
        may_overwrite(plan, &older, path, look.found.as_deref())?;
        erased.extend(look.found.map(|found| format!("{found} on {}", path.display())));
        seen_only.extend(look.seen_only.map(|bytes| {
            format!(
                "  of {}, {} in its ends, in pieces all over it and in order was looked at, and was zeros",
                path.display(),
                size::show(bytes)
            )
        }));
    }
    if !plan.resumes {
        erased.iter().for_each(|what| complain(&format!("bimetal: overwriting {what}")));
        if let Older::Volume(older) = &older {
            let (file, id) = (older.file.display(), id_text(&older.id));
            let on: Vec<String> = older.devices.iter().map(|path| path.display().to_string()).collect();
            complain(&format!("bimetal: replacing {file}, which named volume {id} on {}", on.join(" and ")));
        }
    }
    volume.save()?;
    for device in driver.devices() {
        inspect::wipe(device)?;
    }
    let task = bimetal_engine::create(arena, infos, options);
    let mut progress = Progress::new(format!("creating {}", volume.name().0), plan.quiet);
    let made = run_task(&mut driver, task, |bytes, changes| progress.of_task(bytes, changes));
    drop(progress);
    if let Err(error) = made? {
        // Nothing was made, so nothing is to be found under that name.
        let _ = std::fs::remove_file(&volume.file);
        return Err(error.into());
    }
    volume.unfinished = false;
    volume.save()?;
    Ok(Made { volume, files: driver.into_devices(), memory, seen_only })
}

/// What stands where the volume file is to be written.
enum Older {
    Nothing,
    /// A file that is no volume's.
    File,
    Volume(Box<Volume>),
}

/// Looks at the volume file that would be replaced, and refuses where it must not be.
fn older(plan: &Plan) -> anyhow::Result<Older> {
    let file = &plan.file;
    if std::fs::symlink_metadata(file).is_err() {
        return Ok(Older::Nothing);
    }
    if plan.force == 0 {
        bail!("{} exists already; choose another name, or overwrite it with --force", file.display());
    }
    let Ok(older) = Volume::load(file) else {
        volume::spare(file)?;
        return Ok(Older::File);
    };
    if find::has_server(&older) || find::is_in_use(&older) {
        bail!(
            "{} names a volume that is in use: its file cannot be replaced; stop its server first, or choose another \
             name",
            file.display()
        );
    }
    Ok(Older::Volume(Box::new(older)))
}

/// Whether what was found on a device may be overwritten. One --force is for a device, another one for a volume file:
/// who only wants to replace a file is not to lose what somebody has put on a device meanwhile. What belongs to the older
/// volume of that file goes with it.
fn may_overwrite(plan: &Plan, older: &Older, path: &Path, found: Option<&str>) -> anyhow::Result<()> {
    let Some(found) = found else { return Ok(()) };
    let own = match older {
        Older::Volume(older) => {
            found == format!("a Bimetal volume ({})", id_text(&older.id))
                || older.unfinished && older.devices.iter().any(|device| find::is_same_storage(device, path))
        }
        Older::Nothing | Older::File => false,
    };
    let needed = u8::from(!matches!(older, Older::Nothing)) + u8::from(!own);
    if plan.force >= needed {
        return Ok(());
    }
    match needed {
        1 => bail!("{} holds {found}; choose another device, or overwrite it with --force", path.display()),
        _ => bail!(
            "{} holds {found}, and {} exists already; choose others, or overwrite both with --force --force",
            path.display(),
            plan.file.display()
        ),
    }
}

/// What serving it will take, in a line.
fn memory(infos: &[DeviceInfo], options: &CreateOptions, geometry: &Geometry, pools: PoolSizes) -> String {
    let most = Tuning::default();
    let least = Tuning { landing_ram_bytes: 0, ..most.clone() };
    let tables = bimetal_engine::ram_bytes_at_most(geometry, &least);
    let zone = bimetal_engine::ram_bytes_at_most(geometry, &most) - tables;
    let mut line = format!(
        "  memory: {} of tables, up to {} more where bursts of writes let the landing zone grow, {} of buffers",
        size::show(tables),
        size::show(zone),
        size::show(pools.total())
    );
    // What grows with the devices is seen on devices of twice the size.
    let twice =
        infos.iter().map(|info| DeviceInfo { size_bytes: info.size_bytes.saturating_mul(2), ..info.clone() });
    if let Ok(larger) = Geometry::plan(&twice.collect::<Vec<_>>(), options) {
        let more_bytes = larger.volume_bytes().saturating_sub(geometry.volume_bytes()).max(1);
        let more_tables = bimetal_engine::ram_bytes_at_most(&larger, &least).saturating_sub(tables);
        let per_tib = more_tables as f64 * (1u64 << 40) as f64 / more_bytes as f64;
        line += &format!("; each TiB more would add {} of tables", size::show(per_tib as u64));
    }
    line
}

/// What is unusual about the devices, a sentence each: most often they were given the wrong way round.
fn doubts(files: &[BlockFile]) -> Vec<String> {
    let [fast, slow] = files else { return Vec::new() };
    let turns = |file: &BlockFile| match file.facts().model {
        None => bimetal_driver::turns(file.path()),
        Some(_) => None,
    };
    let mut doubts = Vec::new();
    if turns(fast) == Some(true) {
        doubts.push(format!(
            "{} is given as the fast device, and the kernel says that it turns (rotational)",
            fast.path().display()
        ));
    }
    if turns(slow) == Some(false) {
        doubts.push(format!(
            "{} is given as the slow device, and the kernel says that it does not turn (not rotational)",
            slow.path().display()
        ));
    }
    if fast.size_bytes() > slow.size_bytes() {
        doubts.push(format!(
            "the fast device, {}, is larger than the slow one, {}: are they the wrong way round?",
            size::show(fast.size_bytes()),
            size::show(slow.size_bytes())
        ));
    }
    doubts
}

/// A new volume, and its devices, still locked.
pub(crate) struct Made {
    pub(crate) volume: Volume,
    pub(crate) files: Vec<BlockFile>,
    /// What serving it will take, in a line.
    pub(crate) memory: String,
    /// Of devices that were not read to their end, how much was looked at, a line each.
    pub(crate) seen_only: Vec<String>,
}

/// Creates the file if that was asked for, and gives the path to keep: a block device's as it was written, since a name
/// such as /dev/disk/by-id/... outlives the one that it leads to.
pub(crate) fn prepare(spec: &DeviceSpec) -> anyhow::Result<PathBuf> {
    let path = &spec.path;
    if paths::is_export(path) {
        return Ok(path.clone());
    }
    if let Some(size) = spec.size
        && !find::is_block_device(path)
    {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.exists()) {
            bail!(
                "{} cannot be created: there is no folder {}; make it first",
                path.display(),
                folder.display()
            );
        }
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
    if let Some(remote) = facts.remote {
        return format!(
            "  {}: {}, an NBD export of {}{}; nothing keeps another machine from using it",
            bimetal_serve::status::tier_name(tier),
            file.path().display(),
            size::show(file.size_bytes()),
            if remote.fua { "" } else { " without FUA" }
        );
    }
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
pub(crate) fn random_id() -> anyhow::Result<[u8; 16]> {
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
