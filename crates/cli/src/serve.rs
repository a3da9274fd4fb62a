//! `bimetal serve`

use crate::args::ServeArgs;
use crate::volume::{self, Volume};
use crate::{Outcome, paths, say};
use anyhow::{Context as _, bail};
use bimetal_driver::{BlockFile, run_task};
use bimetal_serve::{Server, ServerOptions};
use std::path::PathBuf;

pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<Outcome> {
    let volume = Volume::load(&volume::locate(&args.volume)?)?;
    let nbd = match &args.nbd {
        Some(address) => unix_path(address)?,
        None => volume.socket("nbd")?,
    };
    let files = volume.open_devices()?;
    serve(&volume, files, nbd, |uri| say(&format!("ready: {uri}")))
}

/// Opens a volume on its devices, which are locked already, and serves it until it is told to stop; `ready`
/// is called once clients can connect.
pub(crate) fn serve(
    volume: &Volume,
    files: Vec<BlockFile>,
    nbd: PathBuf,
    ready: impl FnOnce(&str),
) -> anyhow::Result<Outcome> {
    let (mut driver, arena) = volume::driver(files)?;
    let buffer_bytes = arena.region().len() as u64;
    let task = bimetal_engine::open(arena, driver.device_infos(), volume.open_options());
    let engine = run_task(&mut driver, task)??;
    let options = ServerOptions { volume: volume.name(), nbd, control: volume.socket("control")? };
    let server = Server::new(engine, driver, buffer_bytes, options)?;
    ready(&paths::nbd_uri(server.nbd_path()));
    server.run()?;
    Ok(Outcome::Good)
}

/// The socket of `unix:PATH`.
fn unix_path(address: &str) -> anyhow::Result<PathBuf> {
    match address.strip_prefix("unix:") {
        Some(path) if !path.is_empty() => {
            std::path::absolute(path).with_context(|| format!("{path:?} is not a path"))
        }
        _ => bail!("{address:?} is not an address to serve on; write unix:PATH"),
    }
}
