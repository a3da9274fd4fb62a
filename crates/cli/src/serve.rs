//! `bimetal serve`

use crate::args::{MemoryArgs, ReceptionArgs, ServeArgs};
use crate::find::{self, Missing};
use crate::progress::Progress;
use crate::protect::stand_in;
use crate::volume::{self, Volume};
use crate::watch::args::RecorderArgs;
use crate::watch::files::keep;
use crate::watch::http::{self, HttpPlan};
use crate::{Outcome, lost, memory, paths, protect, replace, say, size};
use anyhow::{Context as _, bail};
use bimetal_driver::signals::{block_stop_signals, ignore_hangup};
use bimetal_driver::{BlockFile, Driver, IoFacts, RealArena, become_io_flusher, inherited_sockets, run_task};
use bimetal_engine::Engine;
use bimetal_engine::loss::Suspects;
use bimetal_engine::options::OpenError;
use bimetal_flight::{Flight, FlightPlan};
use bimetal_serve::house::MAX_VOLUMES;
use bimetal_serve::plan_tape::{SMALL_TAPE_BYTES, TAPE_BYTES};
use bimetal_serve::{
    Access, Address, Door, EVENT_TARGET, Endpoint, Opened, Reception, ServeError, Server, Tenant,
};
use bimetal_watch::http::Http;
use std::net::{Ipv4Addr, SocketAddr};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};
use tracing::Level;

/// Until when somebody watches a volume.
type Watched = Arc<AtomicU64>;

/// What the server of each volume may take.
#[derive(Clone, Copy, Default)]
pub(crate) struct Limits {
    pub(crate) memory: MemoryArgs,
    pub(crate) recorder: RecorderArgs,
}

impl Limits {
    /// What is noted of clients' requests takes so much.
    fn tape_bytes(&self) -> u64 {
        let most = if self.memory.memory.is_some() { SMALL_TAPE_BYTES } else { TAPE_BYTES };
        self.recorder.plan_tape.unwrap_or(most)
    }
}

/// How volumes are to be served.
pub(crate) struct Serving {
    pub(crate) nbd: Vec<Address>,
    pub(crate) reception: Reception,
    pub(crate) read_only: bool,
    pub(crate) limits: Limits,
    pub(crate) http: Option<HttpPlan>,
}

/// What was said about clients.
pub(crate) fn reception(args: &ReceptionArgs) -> Reception {
    Reception {
        access: Access { mode: args.socket_mode, group: args.socket_group },
        idle_after: Duration::from_secs(args.idle_timeout.into()),
        asks_back: false,
    }
}

/// A volume whose devices are locked.
pub(crate) struct Locked {
    pub(crate) volume: Volume,
    pub(crate) files: Vec<BlockFile>,
    /// The device that is missing, and how what is left is served.
    pub(crate) missing: Option<(Missing, Left)>,
}

/// How what is left of a volume is served.
#[derive(Clone, Copy)]
pub(crate) enum Left {
    /// Read-only, and with what may be stale or not.
    ReadOnly(Suspects),
    /// The slow device is missing, and clients write all the same.
    Writable,
}

impl Locked {
    /// With both devices.
    pub(crate) fn both(volume: Volume) -> anyhow::Result<Locked> {
        Ok(Locked { files: volume.open_devices()?, volume, missing: None })
    }

    /// For good with the image, where the fast device is missing; and without the slow one until that is there again.
    fn going_on(volume: Volume) -> anyhow::Result<Locked> {
        let (resolved, missing) = find::what_is_there(&volume)?;
        if let ([Missing { tier: 1, .. }], None) = (missing.as_slice(), &resolved.stand_in) {
            volume.must_not_be_replacing()?;
            return Locked::what_is_left(volume, Left::Writable);
        }
        if resolved.stand_in.is_none() {
            stand_in::begin(&volume)?;
        }
        Locked::both(volume)
    }

    /// Without the one that is missing.
    fn what_is_left(volume: Volume, left: Left) -> anyhow::Result<Locked> {
        let (files, missing) = match left {
            Left::ReadOnly(_) => volume.open_what_is_left(BlockFile::open_read_only)?,
            Left::Writable => volume.open_what_is_left(BlockFile::open)?,
        };
        Ok(Locked { volume, files, missing: Some((missing, left)) })
    }
}

pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<Outcome> {
    // First of all: these descriptors are known by their numbers only.
    let inherited = inherited_sockets()?;
    let volumes = load(&args.volumes)?;
    let mut nbd = args.nbd.iter().map(|text| address(text)).collect::<anyhow::Result<Vec<_>>>()?;
    nbd.extend(inherited.into_iter().map(Address::Inherited));
    if let ([], Some(first)) = (nbd.as_slice(), volumes.first()) {
        nbd.push(Address::Unix(first.socket("nbd")?));
    }
    let names: Vec<String> = match volumes.as_slice() {
        // Alone, it is the one that a client gets who names none.
        [_] => vec![String::new()],
        several => several.iter().map(|volume| volume.name().0).collect(),
    };
    let http = http::plan(&args.http)?;
    let suspects = if args.with_suspects { Suspects::Read } else { Suspects::Refused };
    let lock = |volume| match (args.degraded, args.writable) {
        (true, true) => Locked::going_on(volume),
        (true, false) => Locked::what_is_left(volume, Left::ReadOnly(suspects)),
        (false, _) => Locked::both(volume),
    };
    let locked = volumes.into_iter().map(lock).collect::<anyhow::Result<Vec<_>>>()?;
    let reception = reception(&args.reception);
    let limits = Limits { memory: args.memory, recorder: args.recorder };
    let serving = Serving { nbd, reception, read_only: args.read_only, limits, http };
    serve(locked, serving, |endpoints, page| {
        for endpoint in endpoints {
            names.iter().for_each(|name| say(&format!("ready: {}", paths::nbd_uri(endpoint, name))));
        }
        if let Some(page) = page {
            say(&format!("page: {page}"));
        }
    })
}

/// Reads the volume files. Exports are told apart by the volumes' names.
fn load(volumes: &[String]) -> anyhow::Result<Vec<Volume>> {
    if volumes.len() > MAX_VOLUMES {
        bail!("{} volumes are more than one server takes ({MAX_VOLUMES}); start another one", volumes.len());
    }
    let mut loaded: Vec<Volume> = Vec::new();
    for text in volumes {
        let volume = Volume::load(&volume::locate(text)?)?;
        if let Some(twin) = loaded.iter().find(|other| other.name() == volume.name()) {
            bail!(
                "{} and {} would be exported under the same name, {:?}; rename one of the volume files, or serve \
                 them apart",
                twin.file.display(),
                volume.file.display(),
                volume.name().0
            );
        }
        loaded.push(volume);
    }
    Ok(loaded)
}

/// Opens volumes and serves them, each on a thread of its own, until the process is told to stop; `ready` is called
/// with the sockets, in their order, once clients can connect.
pub(crate) fn serve(
    volumes: Vec<Locked>,
    serving: Serving,
    ready: impl FnOnce(&[Endpoint], Option<&str>),
) -> anyhow::Result<Outcome> {
    ignore_hangup();
    // The kernel may be writing back through this process: it must not wait for itself. Where this needs rights that
    // are missing, nobody mounts a volume either.
    become_io_flusher();
    let Serving { nbd, reception, read_only, limits, http } = serving;
    let watched: Vec<Watched> = volumes.iter().map(|_| Watched::default()).collect();
    let shown =
        volumes.iter().zip(&watched).map(|(locked, watched)| http::shown(&locked.volume, watched.clone()));
    let shown = shown.collect::<anyhow::Result<Vec<_>>>()?;
    let tenants = Tenant::house(volumes.len()).context("cannot set up the server")?;
    let mut tenants = volumes.into_iter().zip(tenants).zip(watched);
    let Some(((first, tenant), watched)) = tenants.next() else { bail!("there is no volume to serve") };
    std::thread::scope(|scope| {
        let others: Vec<_> = tenants
            .map(|((locked, tenant), watched)| {
                let name = locked.volume.name().0;
                let thread = std::thread::Builder::new().name(name);
                thread.spawn_scoped(scope, move || serve_other(locked, tenant, watched, read_only, limits))
            })
            .collect::<std::io::Result<_>>()
            .context("cannot start a thread for each volume")?;
        let ready = |endpoints: &[Endpoint]| {
            // Clients come first: without a page they are served all the same.
            let page = http.map(|plan| plan.start(shown)).transpose().unwrap_or_else(|error| {
                tracing::warn!("{error:#}");
                None
            });
            let url = page.as_ref().map(|page| format!("http://{}/", page.address));
            ready(endpoints, url.as_deref());
            page
        };
        let result = serve_first((first, watched), tenant, (nbd, reception), read_only, limits, ready);
        // What went wrong first is what the first one stopped for.
        let mut results: Vec<anyhow::Result<()>> = others
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect();
        results.push(result);
        match results.into_iter().collect::<anyhow::Result<()>>() {
            Ok(()) => Ok(Outcome::Good),
            // It ran, and what it found is a problem.
            Err(error)
                if matches!(error.downcast_ref(), Some(ServeError::Lost(_) | ServeError::Orphaned(_))) =>
            {
                Ok(Outcome::Problem(format!("{error:#}")))
            }
            Err(error) => Err(error),
        }
    })
}

/// The first volume, with the door. Where another one does not open, it is closed again.
fn serve_first(
    (locked, watched): (Locked, Watched),
    tenant: Tenant,
    (nbd, reception): (Vec<Address>, Reception),
    read_only: bool,
    limits: Limits,
    ready: impl FnOnce(&[Endpoint]) -> Option<Http>,
) -> anyhow::Result<()> {
    let (name, volume) = (locked.volume.name(), locked.volume.clone());
    let (opened, lines) = open(locked, read_only, limits)?;
    tenant.announce(opened.export());
    let door = match tenant.exports().map(|exports| Door::new(nbd, exports, reception)).transpose() {
        Ok(door) => door,
        Err(error) => {
            lines.say(false);
            tenant.stop_all();
            Server::new(opened, tenant, None)?.run()?;
            return Err(error.into());
        }
    };
    let endpoints: Vec<Endpoint> = door.iter().flat_map(Door::endpoints).cloned().collect();
    // It outlives the server, which tells it of its end.
    let (_keeper, reporter) = keep(&volume, watched);
    let is_told = reporter.is_some();
    lines.say(is_told);
    let mut server = Server::new(opened, tenant, door)?;
    server.watched_by(reporter);
    server.keep_tape(limits.tape_bytes());
    server.knows_successors(Box::new(replace::successor::Named::new(&volume)));
    server.take_up_device();
    memory::lock(limits.memory);
    let _page = if endpoints.is_empty() { None } else { ready(&endpoints) };
    for endpoint in &endpoints {
        let mode = if read_only { ", read-only" } else { "" };
        tracing::info!("ready: {}{mode}", paths::nbd_uri(endpoint, ""));
    }
    server.run()?;
    say_event(Level::INFO, &format!("closed {}", name.0), is_told);
    Ok(())
}

fn serve_other(
    locked: Locked,
    tenant: Tenant,
    watched: Watched,
    read_only: bool,
    limits: Limits,
) -> anyhow::Result<()> {
    // Before the first volume can say that all is ready: a signal that found this thread open to it would end the
    // process instead of stopping it.
    block_stop_signals().context("cannot set up signals")?;
    let (name, volume) = (locked.volume.name(), locked.volume.clone());
    let (opened, lines) = open(locked, read_only, limits)?;
    tenant.announce(opened.export());
    let (_keeper, reporter) = keep(&volume, watched);
    let is_told = reporter.is_some();
    lines.say(is_told);
    let mut server = Server::new(opened, tenant, None)?;
    server.watched_by(reporter);
    server.keep_tape(limits.tape_bytes());
    server.knows_successors(Box::new(replace::successor::Named::new(&volume)));
    server.take_up_device();
    server.run()?;
    say_event(Level::INFO, &format!("closed {}", name.0), is_told);
    Ok(())
}

/// Opens a volume on this thread, whose ring it will be served with.
fn open(locked: Locked, read_only: bool, limits: Limits) -> anyhow::Result<(Opened<Flight>, Lines)> {
    let start = Instant::now();
    let Locked { volume, files, missing } = locked;
    let read_only = read_only || matches!(missing, Some((_, Left::ReadOnly(_))));
    let mut options = volume.open_options();
    let pools = memory::pools(limits.memory, limits.tape_bytes(), &volume, &files, &mut options.tuning)?;
    let (mut driver, arena) =
        volume::driver_of_rest(files, pools, missing.as_ref().map(|(missing, _)| missing))?;
    let buffer_bytes = arena.region().len() as u64;
    if missing.is_none() {
        protect::join(&volume, &mut driver);
        replace::successor::join(&volume, &mut driver);
    }
    let task = match &missing {
        None => bimetal_engine::open(arena, driver.device_infos(), options),
        Some((missing, Left::Writable)) => {
            bimetal_engine::open_alone(arena, volume::infos_with(&driver, missing), options)
        }
        Some((missing, Left::ReadOnly(suspects))) => {
            volume::open_degraded(&volume, &mut driver, arena, missing, options, *suspects)
        }
    };
    let mut progress = Progress::new(format!("opening {}", volume.name().0), false);
    let opened = run_task(&mut driver, task, |bytes, changes| progress.of_task(bytes, changes))?;
    drop(progress);
    let engine = opened.map_err(|error| why_not_opened(error, &driver, &volume))?;
    volume::watch(&mut driver, &engine)?;
    let loss = missing.zip(engine.loss()).map(|((missing, _), loss)| lost::sentence(&volume, &missing, loss));
    let lines = Lines { opened: opened_line(&volume, &engine, start), loss };
    let control = volume.socket("control")?;
    let engine = match limits.recorder.flight_recorder {
        None => Flight::unrecorded(engine),
        Some(memory_bytes) => {
            let (file, volume) = (volume.flight_file(), volume.name().0);
            Flight::recorded(engine, driver.clock.now(), FlightPlan { memory_bytes, file, volume })
        }
    };
    let (name, file) = (volume.name(), volume.file);
    Ok((Opened { engine, driver, buffer_bytes, volume: name, file, read_only, control }, lines))
}

/// Why a volume does not open, and what can be done where its export has gone away meanwhile.
fn why_not_opened(error: OpenError, driver: &Driver, volume: &Volume) -> anyhow::Error {
    let is_away = |facts: &IoFacts| facts.remote.is_some_and(|remote| remote.away_since.is_some());
    if !driver.io_facts().iter().any(is_away) {
        return error.into();
    }
    let (program, called) = (paths::program(), volume.called());
    let cure = format!("`{program} serve {called} --degraded` serves what is on the fast device, read-only");
    anyhow::anyhow!("{error}: the export went away while {called} was opened; see to its server, or {cure}")
}

/// What is said of a volume that was opened.
struct Lines {
    opened: String,
    loss: Option<String>,
}

impl Lines {
    /// Says it; `is_told`: it is told as events as well.
    fn say(&self, is_told: bool) {
        say_event(Level::INFO, &self.opened, is_told);
        if let Some(loss) = &self.loss {
            say_event(Level::ERROR, loss, is_told);
        }
    }
}

/// Says what is told as an event as well, or would be.
fn say_event(level: Level, line: &str, is_told: bool) {
    match (level, is_told) {
        (Level::ERROR, true) => tracing::error!(target: EVENT_TARGET, "{line}"),
        (_, true) => tracing::info!(target: EVENT_TARGET, "{line}"),
        (Level::ERROR, false) => tracing::error!("{line}"),
        (_, false) => tracing::info!("{line}"),
    }
}

fn opened_line(volume: &Volume, engine: &Engine<RealArena>, start: Instant) -> String {
    let status = engine.status();
    format!(
        "opened {}: {}, generation {}, {}, {} landed blocks, {:.2} s",
        volume.name().0,
        size::show(status.size_bytes),
        status.generation,
        if status.recovered { "recovered after a crash" } else { "it had been closed" },
        status.landed_bytes / u64::from(bimetal_units::BLOCK_BYTES),
        start.elapsed().as_secs_f64()
    )
}

/// The address that `--nbd` means. Names are not looked up: what they stand for may change.
fn address(text: &str) -> anyhow::Result<Address> {
    if let Some(path) = text.strip_prefix("unix:") {
        if path.is_empty() {
            bail!("{text:?} names no socket; write unix:PATH");
        }
        let path = std::path::absolute(path).with_context(|| format!("{path:?} is not a path"))?;
        return Ok(Address::Unix(path));
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(Address::loopback(address)?);
    }
    match text.rsplit_once(':') {
        Some(("localhost", port)) if port.parse::<u16>().is_ok() => {
            let port = port.parse()?;
            Ok(Address::Tcp((Ipv4Addr::LOCALHOST, port).into()))
        }
        _ => bail!(
            "{text:?} is not an address to serve on; write unix:PATH, 127.0.0.1:PORT, [::1]:PORT or localhost:PORT"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(text: &str) -> SocketAddr {
        match address(text) {
            Ok(Address::Tcp(address)) => address,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn addresses_are_paths_or_numbers() {
        assert!(matches!(address("unix:/x/y"), Ok(Address::Unix(path)) if path.as_os_str() == "/x/y"));
        assert!(matches!(address("unix:y"), Ok(Address::Unix(path)) if path.is_absolute()));
        assert_eq!(tcp("127.0.0.1:0").to_string(), "127.0.0.1:0");
        assert_eq!(tcp("localhost:10809").to_string(), "127.0.0.1:10809");
        assert_eq!(tcp("[::1]:10809").to_string(), "[::1]:10809");
        for text in [
            "",
            "unix:",
            "/x/y",
            "10809",
            "localhost",
            "localhost:x",
            "example.org:10809",
            "::1:1:",
            "0.0.0.0:1",
        ] {
            let error = address(text).expect_err(text).to_string();
            assert!(error.contains(text), "{error}");
        }
    }
}
