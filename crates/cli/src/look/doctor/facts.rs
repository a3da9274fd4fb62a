//! All that a doctor goes by, gathered before anything is judged.

use super::device::Device;
use super::system::Root;
use crate::find::{self, Missing};
use crate::look::source::Source;
use crate::offline::{self, Looked};
use crate::volume::Volume;
use anyhow::{Context as _, bail};
use bimetal_engine::options::OpenError;
use bimetal_serve::StatusDoc;
use bimetal_serve::attach::AttachedDoc;
use bimetal_serve::map::CellDoc;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Between two looks at what changes.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
/// A landing zone that is short for longer than this does not keep up.
const BURST: Duration = Duration::from_secs(10);
/// Cells of the map that is looked at.
const CELLS: u64 = 4096;
/// Where units are enabled.
const UNIT_FOLDERS: [&str; 3] = ["/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system"];

/// How the volume itself could be looked at.
#[derive(Debug)]
pub(crate) enum State {
    /// Its server told.
    Served(Box<Server>),
    /// Nobody serves it, and its devices told.
    Closed(Box<StatusDoc>),
    /// Its devices do not make a volume, in a sentence.
    Broken(String),
    /// A device is missing without which nothing can be read, or nothing tells which of two is the right one.
    Unfound,
}

/// What a server told.
#[derive(Debug, Default)]
pub(crate) struct Server {
    pub(crate) status: StatusDoc,
    pub(crate) map: Vec<CellDoc>,
    pub(crate) rises_at_heat: u32,
    /// Its program was replaced since it was started.
    pub(crate) is_outdated: bool,
}

/// What is known of a volume and of what it stands on.
#[derive(Debug)]
pub(crate) struct Facts {
    /// What its user calls it.
    pub(crate) called: String,
    pub(crate) file: PathBuf,
    pub(crate) unfinished: bool,
    pub(crate) state: State,
    /// Devices that are missing.
    pub(crate) missing: Vec<Missing>,
    /// The volume has an image, or is to have one.
    pub(crate) is_protected: bool,
    /// The copy on the slow device has the place of the fast one.
    pub(crate) stands_in: bool,
    /// Each that is elsewhere than the volume file says, in a sentence.
    pub(crate) moved: Vec<String>,
    /// Where the devices could not be told apart, why.
    pub(crate) confused: Option<String>,
    /// By tier; none where it is missing.
    pub(crate) devices: [Option<Device>; 2],
    /// The same a second later, where the volume is served.
    pub(crate) later: [Option<Device>; 2],
    /// The device of this machine that it is, as it was left.
    pub(crate) attached: Option<AttachedDoc>,
    /// Whether `/etc/fstab` names its device.
    pub(crate) in_fstab: bool,
    /// Whether a unit of it is enabled.
    pub(crate) enabled: bool,
    /// Bytes, and those that can be had.
    pub(crate) memory: Option<(u64, u64)>,
    pub(crate) kernel: Option<(u32, u32)>,
}

impl Facts {
    /// Looks at a volume and at what is below it. An error says why that cannot be done.
    pub(crate) fn gather(volume: &Volume, root: &Root, quiet: bool) -> anyhow::Result<Facts> {
        let mut stands_in = false;
        let (paths, missing, moved, confused) = match find::what_is_there(volume) {
            Ok((resolved, missing)) => {
                stands_in = resolved.stand_in.is_some();
                (resolved.devices, missing, resolved.notes, None)
            }
            Err(error) => (volume.devices.clone(), Vec::new(), Vec::new(), Some(error.to_string())),
        };
        let look = || {
            let mut tiers = paths.iter().zip(&volume.models).enumerate();
            let mut one = |(tier, (path, model)): (usize, (&PathBuf, &Option<&'static str>))| {
                let is_gone = stands_in && tier == 0;
                let is_there = !is_gone && missing.iter().all(|missing| missing.tier != tier);
                is_there.then(|| Device::of(root, path, *model)).flatten()
            };
            [tiers.next().and_then(&mut one), tiers.next().and_then(&mut one)]
        };
        let devices = look();
        let state = state(volume, root, quiet, &paths, &missing, confused.is_some())?;
        let later = match &state {
            State::Served(_) => {
                std::thread::sleep(BETWEEN_LOOKS);
                look()
            }
            _ => [None, None],
        };
        let memory = root.memory("MemTotal").zip(root.memory("MemAvailable"));
        Ok(Facts {
            called: volume.called(),
            file: volume.file.clone(),
            unfinished: volume.unfinished,
            state,
            missing,
            is_protected: volume.protect.is_some(),
            stands_in,
            moved,
            confused,
            devices,
            later,
            attached: crate::attach::waiting(volume),
            in_fstab: is_in_fstab(root, &volume.name().0),
            enabled: is_enabled(root, &volume.name().0),
            memory,
            kernel: root.kernel(),
        })
    }

    /// What the volume says of itself, if it could be asked.
    pub(crate) fn status(&self) -> Option<&StatusDoc> {
        match &self.state {
            State::Served(server) => Some(&server.status),
            State::Closed(status) => Some(status),
            State::Broken(_) | State::Unfound => None,
        }
    }

    /// Its server, if it has one.
    pub(crate) fn server(&self) -> Option<&Server> {
        match &self.state {
            State::Served(server) => Some(server),
            _ => None,
        }
    }
}

fn state(
    volume: &Volume,
    root: &Root,
    quiet: bool,
    paths: &[PathBuf],
    missing: &[Missing],
    confused: bool,
) -> anyhow::Result<State> {
    let control = volume.socket("control")?;
    let silent =
        || format!("the server of {} does not answer on {}", volume.file.display(), control.display());
    if let Some(mut status) = bimetal_serve::live_status(&control).with_context(silent)? {
        let began = Instant::now();
        // A burst of writes is no sickness, and neither is a zone that stays full while nobody writes.
        while status.landing.short && began.elapsed() < BURST {
            std::thread::sleep(BETWEEN_LOOKS);
            let Some(later) = bimetal_serve::live_status(&control).with_context(silent)? else { break };
            let writes = later.requests.writes.count > status.requests.writes.count;
            status = later;
            status.landing.short &= writes;
        }
        return Ok(State::Served(Box::new(ask(&volume.name().0, &control, status, root))));
    }
    if volume.unfinished || confused || missing.iter().any(|missing| missing.tier == 0) {
        return Ok(State::Unfound);
    }
    if let Some(path) = paths.iter().find(|path| path.exists() && bimetal_driver::in_use(path)) {
        bail!(
            "{} is in use by another process, which is not this user's server of {}: ask as the user who serves it",
            path.display(),
            volume.called()
        );
    }
    match offline::look(volume, quiet) {
        Ok(Looked { driver, engine }) => {
            let mut status = StatusDoc::new(&volume.name(), &engine.status());
            status.describe_devices(&driver.io_facts());
            Ok(State::Closed(Box::new(status)))
        }
        Err(error) if is_damage(&error) => Ok(State::Broken(format!("{error:#}"))),
        Err(error) => Err(error),
    }
}

/// Whether it is the devices that are no volume, rather than that they could not be looked at.
fn is_damage(error: &anyhow::Error) -> bool {
    let open = error.downcast_ref::<OpenError>();
    open.is_some_and(|error| !matches!(error, OpenError::Memory { .. } | OpenError::BadOption { .. }))
}

fn ask(name: &str, control: &Path, status: StatusDoc, root: &Root) -> Server {
    let mut source = Source::server(name, control, status.size_bytes);
    // A server of an older release has no map.
    let map = source.map(0, status.size_bytes, (status.size_bytes / CELLS).max(1)).unwrap_or_default();
    Server {
        map: map.cells,
        rises_at_heat: map.rises_at_heat,
        is_outdated: is_outdated(control, root),
        status,
    }
}

/// Whether the program of the server behind a socket was replaced since it was started.
fn is_outdated(control: &Path, root: &Root) -> bool {
    let peer = std::os::unix::net::UnixStream::connect(control)
        .ok()
        .and_then(|stream| rustix::net::sockopt::socket_peercred(&stream).ok());
    let program = peer.map(|peer| root.at(format!("/proc/{}/exe", peer.pid.as_raw_nonzero())));
    let target = program.and_then(|link| std::fs::read_link(link).ok());
    target.is_some_and(|target| target.to_string_lossy().ends_with(" (deleted)"))
}

/// Whether a line of `/etc/fstab` that is not left to `noauto` names the volume's device.
pub(super) fn is_in_fstab(root: &Root, name: &str) -> bool {
    let text = root.text("/etc/fstab").unwrap_or_default();
    let device = format!("/dev/bimetal/{name}");
    text.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let by_hand = fields.get(3).is_some_and(|options| options.split(',').any(|one| one == "noauto"));
        fields.first() == Some(&device.as_str()) && !by_hand
    })
}

/// Whether something of the system's wants a unit of the volume.
pub(super) fn is_enabled(root: &Root, name: &str) -> bool {
    let units = ["", "-nbd"].map(|kind| format!("bimetal{kind}@{name}."));
    let folders =
        UNIT_FOLDERS.iter().flat_map(|folder| std::fs::read_dir(root.at(folder)).into_iter().flatten());
    let wants = folders.flatten().map(|entry| entry.path());
    let wants = wants.filter(|path| path.extension().is_some_and(|end| end == "wants"));
    wants.flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten()).any(|link| {
        let link = link.file_name();
        units.iter().any(|unit| link.to_string_lossy().starts_with(unit.as_str()))
    })
}
