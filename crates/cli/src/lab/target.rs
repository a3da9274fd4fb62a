//! Opens what is to be measured.

use super::stop::Stop;
use crate::progress::Progress;
use crate::text_file;
use crate::volume::{self, Volume as VolumeFile};
use crate::{offline, size};
use anyhow::{Context as _, bail, ensure};
use bimetal_lab::environment::describe;
use bimetal_lab::layout::lay_out;
use bimetal_lab::load::LoadTarget;
use bimetal_lab::record::TargetFacts;
use bimetal_lab::survey::{Found, survey};
use bimetal_lab::target::{FileKind, Files, Nbd, Null, OpenFile, OpenHow, Simulated, TargetName, Volume};
use bimetal_models::{Model, spec};
use bimetal_sim::peers::Policy;
use bimetal_sim::scenario::{self, MAX_FILE_BYTES, Scenario};
use std::path::Path;

/// What `null:` says its size is.
const NULL_BYTES: u64 = 1 << 40;

/// What I/O past the page cache is done in.
const SECTOR_BYTES: u64 = 512;

/// A target, and how it is to be opened.
pub(crate) struct Wanted {
    /// Its name.
    pub(crate) name: TargetName,
    /// How, if it is a file or block device.
    pub(crate) how: OpenHow,
    /// A file that is missing, or shorter, is made so long first.
    pub(crate) lay_out_bytes: Option<u64>,
    /// And written in full, as it is going to be read.
    pub(crate) read: bool,
}

/// How targets are to be opened.
#[derive(Clone, Copy)]
pub(crate) struct Opening<'s> {
    /// Connections to an NBD server.
    pub(crate) connections: u32,
    /// Overwrites what is there.
    pub(crate) destroy: bool,
    /// A program reads along.
    pub(crate) quiet: bool,
    /// For simulated devices.
    pub(crate) seed: u64,
    /// Whether the user has asked for the end.
    pub(crate) stop: &'s Stop,
}

/// Targets that are open; places are in the order in which they were wanted.
pub(crate) struct Open<'t> {
    pub(crate) target: Box<dyn LoadTarget + 't>,
    pub(crate) facts: Vec<TargetFacts>,
    pub(crate) virtual_time: bool,
}

/// Opens targets, does something with them, and closes them. Where they are to be written and hold something that is
/// not the lab's, that is refused, unless it was asked for.
pub(crate) fn with<R>(
    wanted: &[Wanted],
    opening: Opening<'_>,
    work: impl FnOnce(Open<'_>) -> anyhow::Result<R>,
) -> anyhow::Result<R> {
    let Some(first) = wanted.first() else { bail!("there is no target to measure") };
    if wanted.iter().all(|wanted| matches!(wanted.name, TargetName::Path(_))) {
        return work(guard(files(wanted, opening)?, wanted, opening)?);
    }
    ensure!(
        wanted.iter().all(|wanted| wanted.name == first.name),
        "files can be measured together, but no other target beside another: {} and {} are named",
        first.name,
        wanted.iter().map(|wanted| &wanted.name).find(|name| **name != first.name).unwrap_or(&first.name)
    );
    let open = match &first.name {
        TargetName::Path(_) => bail!("files can be measured together, but not with other targets"),
        TargetName::Volume(name) => return with_volume(name, wanted, opening, work),
        TargetName::Null => open(Box::new(Null::default()), "null", NULL_BYTES, false),
        TargetName::Nbd { address, export } => {
            let nbd = Nbd::connect(address, export, opening.connections)
                .with_context(|| format!("NBD server at {address}"))?;
            ensure!(
                !(nbd.is_read_only() && first.how.write),
                "the export at {address} is read-only, and the job writes"
            );
            let bytes = nbd.size_bytes();
            open(Box::new(nbd), "nbd", bytes, false)
        }
        TargetName::Model { .. } => {
            let device = Simulated::device(model(&first.name, opening.seed)?);
            let bytes = device.size_bytes();
            open(Box::new(device), TargetFacts::SIMULATED, bytes, true)
        }
        TargetName::Scenario(file) => {
            let target = simulated(file, None)?;
            let bytes = target.size_bytes();
            open(Box::new(target), TargetFacts::SIMULATED, bytes, true)
        }
    };
    let facts = open.facts[0].clone();
    work(guard(Open { facts: vec![facts; wanted.len()], ..open }, wanted, opening)?)
}

/// Opens the targets of an array, each of them a place: files and block devices, or models; of what else there is, one
/// alone.
pub(crate) fn with_luns<R>(
    names: &[TargetName],
    how: OpenHow,
    opening: Opening<'_>,
    work: impl FnOnce(Open<'_>) -> anyhow::Result<R>,
) -> anyhow::Result<R> {
    let wanted: Vec<Wanted> = names
        .iter()
        .map(|name| Wanted { name: name.clone(), how, lay_out_bytes: None, read: false })
        .collect();
    let is_model = |name: &TargetName| matches!(name, TargetName::Model { .. });
    if let Some(other) = names.iter().find(|name| !matches!(name, TargetName::Path(_)))
        && names.len() > 1
    {
        ensure!(
            names.iter().all(is_model),
            "files and block devices, or models, can be measured together, but {other} only alone"
        );
        // Drives of one model are not in step with each other.
        let device = |(nth, name)| model(name, opening.seed.wrapping_add(nth as u64));
        let devices = names.iter().enumerate().map(device).collect::<anyhow::Result<_>>()?;
        let simulated = Simulated::devices(devices);
        let fact = |size_bytes| TargetFacts {
            kind: TargetFacts::SIMULATED.to_owned(),
            size_bytes,
            ..TargetFacts::default()
        };
        let facts = simulated.sizes_bytes().into_iter().map(fact).collect();
        let open = Open { target: Box::new(simulated), facts, virtual_time: true };
        return work(guard(open, &wanted, opening)?);
    }
    with(&wanted, opening, work)
}

/// A modelled device.
fn model(name: &TargetName, seed: u64) -> anyhow::Result<Box<dyn Model>> {
    let TargetName::Model { name: spec, size } = name else { bail!("{name} is no model") };
    let spec = spec::named(spec)?;
    let spec = match size {
        Some(text) => {
            let bytes = size::parse(text).map_err(anyhow::Error::msg)?;
            ensure!(bytes > 0, "{name}: a device of no bytes cannot be measured; give it a size");
            spec.resized(bytes)
        }
        None => spec,
    };
    spec.build(seed).with_context(|| name.to_string())
}

fn open<'t>(target: Box<dyn LoadTarget + 't>, kind: &str, size_bytes: u64, virtual_time: bool) -> Open<'t> {
    let facts = TargetFacts { kind: kind.to_owned(), size_bytes, ..TargetFacts::default() };
    Open { target, facts: vec![facts], virtual_time }
}

fn files(wanted: &[Wanted], opening: Opening<'_>) -> anyhow::Result<Open<'static>> {
    let (mut opened, mut facts) = (Vec::new(), Vec::new());
    for Wanted { name, how, lay_out_bytes, read } in wanted {
        let TargetName::Path(path) = name else { continue };
        if let Some(bytes) = lay_out_bytes {
            make(path, *bytes, *read, opening)?;
        }
        let file = OpenFile::open(path, *how)?.of_bytes(*lay_out_bytes);
        facts.push(describe(path, file.kind(), file.size_bytes()));
        opened.push(file);
    }
    Ok(Open { target: Box::new(Files::new(opened)?), facts, virtual_time: false })
}

fn make(path: &Path, bytes: u64, written: bool, opening: Opening<'_>) -> anyhow::Result<()> {
    if let Ok(there) = std::fs::metadata(path) {
        if !there.is_file() || there.len() >= bytes {
            return Ok(());
        }
        ensure!(
            there.len() == 0 || opening.destroy,
            "{} has {} bytes, and {bytes} are needed; name another file, or let it grow with --destroy-data",
            path.display(),
            there.len()
        );
    }
    // A slip of the fingers in a device's name would fill memory instead.
    ensure!(
        path.exists() || !path.starts_with("/dev") || path.starts_with("/dev/shm"),
        "there is no device {}; name one that is",
        path.display()
    );
    opening.stop.listen()?;
    let mut progress = Progress::new(format!("laying out {}", path.display()), opening.quiet);
    lay_out(path, bytes, written, &mut |done, all| {
        progress.at(&format!("{} of {}", size::show(done), size::show(all)));
        !opening.stop.is_asked_for()
    })?;
    Ok(())
}

/// The volume or device of a scenario; a volume under another policy, if one is named.
pub(super) fn simulated(file: &Path, policy: Option<Policy>) -> anyhow::Result<Simulated> {
    let name = || file.display().to_string();
    let text = text_file::read(file, MAX_FILE_BYTES)?;
    let mut scenarios = Scenario::parse_all(&text).with_context(name)?;
    let [scenario] = scenarios.as_mut_slice() else {
        bail!("{}: a target is one volume or device, and this file has axes", name());
    };
    if let Some(policy) = policy {
        let volume = scenario.volume.as_mut();
        volume.with_context(|| format!("{}: only a [volume] has a policy", name()))?.policy = policy;
    }
    Ok(Simulated::scenario(scenario::Target::fresh(scenario).with_context(name)?))
}

fn with_volume<R>(
    name: &str,
    wanted: &[Wanted],
    opening: Opening<'_>,
    work: impl FnOnce(Open<'_>) -> anyhow::Result<R>,
) -> anyhow::Result<R> {
    let file = VolumeFile::load(&volume::locate(name)?)?;
    // Before the engine has threads.
    opening.stop.listen()?;
    offline::with_open(&file, opening.quiet, |driver, engine| {
        let bytes = engine.size_bytes();
        let mut open = open(Box::new(Volume::new(driver, engine)), "volume", bytes, false);
        open.facts = vec![open.facts[0].clone(); wanted.len()];
        work(guard(open, wanted, opening)?)
    })
}

/// Refuses to write over what is not the lab's.
fn guard<'t>(mut open: Open<'t>, wanted: &[Wanted], opening: Opening<'_>) -> anyhow::Result<Open<'t>> {
    if opening.destroy {
        return Ok(open);
    }
    for (place, (wanted, facts)) in wanted.iter().zip(&open.facts).enumerate() {
        // What a memory device swallows overwrites nothing.
        if !wanted.how.write || facts.kind == FileKind::Memory.name() {
            continue;
        }
        // Past the page cache, only sectors can be read, and written.
        let granule =
            if wanted.how.direct && matches!(wanted.name, TargetName::Path(_)) { SECTOR_BYTES } else { 1 };
        match survey(&mut open.target, place as u32, facts.size_bytes, granule)? {
            Found::Nothing => {}
            Found::Data { offset } => bail!(
                "{} holds data that the lab did not write (at byte {offset}), and this run would overwrite it; \
                 --destroy-data does it all the same",
                wanted.name
            ),
            Found::Unreadable { offset } => bail!(
                "{} cannot be read at byte {offset}, so it is not known whether it holds data; --destroy-data \
                 writes to it all the same",
                wanted.name
            ),
        }
    }
    Ok(open)
}
