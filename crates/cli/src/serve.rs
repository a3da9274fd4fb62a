//! `bimetal serve`

use crate::args::MemoryArgs;
use crate::args::ServeArgs;
use crate::progress::Progress;
use crate::volume::{self, Volume};
use crate::{Outcome, memory, paths, say, size};
use anyhow::{Context as _, bail};
use bimetal_driver::signals::ignore_hangup;
use bimetal_driver::{BlockFile, RealArena, become_io_flusher, inherited_sockets, run_task};
use bimetal_engine::Engine;
use bimetal_serve::{Address, Server, ServerOptions};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

/// How a volume is to be served.
pub(crate) struct Serving {
    pub(crate) nbd: Vec<Address>,
    pub(crate) read_only: bool,
    pub(crate) memory: MemoryArgs,
}

pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<Outcome> {
    // First of all: these descriptors are known by their numbers only.
    let inherited = inherited_sockets()?;
    let volume = Volume::load(&volume::locate(&args.volume)?)?;
    let mut nbd = args.nbd.iter().map(|text| address(text)).collect::<anyhow::Result<Vec<_>>>()?;
    nbd.extend(inherited.into_iter().map(Address::Inherited));
    if nbd.is_empty() {
        nbd.push(Address::Unix(volume.socket("nbd")?));
    }
    let files = volume.open_devices()?;
    serve(&volume, files, Serving { nbd, read_only: args.read_only, memory: args.memory }, |uris| {
        uris.iter().for_each(|uri| say(&format!("ready: {uri}")));
    })
}

/// Opens a volume on its devices, which are locked already, and serves it until it is told to stop; `ready`
/// is called with the URIs, in the order of the sockets, once clients can connect.
pub(crate) fn serve(
    volume: &Volume,
    files: Vec<BlockFile>,
    serving: Serving,
    ready: impl FnOnce(&[String]),
) -> anyhow::Result<Outcome> {
    let start = Instant::now();
    let Serving { nbd, read_only, memory: limits } = serving;
    ignore_hangup();
    // The kernel may be writing back through this process: it must not wait for itself. Where this needs rights that
    // are missing, nobody mounts a volume either.
    become_io_flusher();
    let options = volume.open_options();
    let pools = memory::pools(limits, volume, &files, &options.tuning)?;
    let (mut driver, arena) = volume::driver(files, pools)?;
    let buffer_bytes = arena.region().len() as u64;
    let task = bimetal_engine::open(arena, driver.device_infos(), options);
    let mut progress = Progress::new(format!("opening {}", volume.name().0), false);
    let engine = run_task(&mut driver, task, |bytes| progress.bytes(bytes))??;
    drop(progress);
    say_opened(volume, &engine, start);
    let options = ServerOptions { volume: volume.name(), read_only, nbd, control: volume.socket("control")? };
    let server = Server::new(engine, driver, buffer_bytes, options)?;
    memory::lock(limits);
    let uris: Vec<String> = server.endpoints().map(paths::nbd_uri).collect();
    ready(&uris);
    uris.iter().for_each(|uri| tracing::info!("ready: {uri}{}", if read_only { ", read-only" } else { "" }));
    server.run()?;
    tracing::info!("closed {}", volume.name().0);
    Ok(Outcome::Good)
}

fn say_opened(volume: &Volume, engine: &Engine<RealArena>, start: Instant) {
    let status = engine.status();
    tracing::info!(
        "opened {}: {}, generation {}, {}, {} landed blocks, {:.2} s",
        volume.name().0,
        size::show(status.size_bytes),
        status.generation,
        if status.recovered { "recovered after a crash" } else { "it had been closed" },
        status.landed_bytes / u64::from(bimetal_engine::units::BLOCK_BYTES),
        start.elapsed().as_secs_f64()
    );
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
