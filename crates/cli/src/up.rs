//! `bimetal up`: from nothing to a served volume.

use crate::args::UpArgs;
use crate::create::{self, Plan};
use crate::paths::{self, DeviceSpec, SlowModel};
use crate::serve::{self, Limits, Locked, Serving};
use crate::volume::Volume;
use crate::watch::http;
use crate::{Outcome, say};
use anyhow::Context as _;
use bimetal_engine::options::{DEFAULT_CHUNK_BYTES, Marking};
use bimetal_serve::{Address, Reception};
use std::path::Path;

const FAST_BYTES: u64 = 1 << 30;
const SLOW_BYTES: u64 = 8 << 30;
/// What the slow tier of a new volume is timed as: on a machine without a disk it would be as fast as the fast one.
const SLOW_MODEL: &str = "disk-1tb-2012";
/// Its place among the tiers.
const SLOW: usize = 1;

pub(crate) fn run(args: &UpArgs) -> anyhow::Result<Outcome> {
    let dir = match &args.dir {
        Some(dir) => dir.clone(),
        None => paths::data_dir()?,
    };
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let dir = dir.canonicalize().with_context(|| format!("cannot find {}", dir.display()))?;
    let locked = load_or_create(&dir, args.slow_model)?;
    let timing = match locked.volume.models.get(SLOW).copied().flatten() {
        Some(model) => format!(
            "Its slow tier is timed as {model}, a modelled device; --slow-model none leaves that out."
        ),
        None => format!(
            "Its slow tier is a file like the fast one; --slow-model {SLOW_MODEL} times it as a disk."
        ),
    };
    let serving = Serving {
        nbd: vec![Address::Unix(dir.join("nbd.sock"))],
        // Somebody at the terminal may have forgotten a file system that is mounted on it.
        reception: Reception { asks_back: true, ..serve::reception(&args.reception) },
        read_only: false,
        limits: Limits { memory: args.memory, ..Limits::default() },
        http: http::plan_of_up(args.http.as_deref())?,
    };
    let again = match &args.dir {
        Some(_) => format!("{} up --dir {}", paths::program(), paths::shell(&dir)),
        None => format!("{} up", paths::program()),
    };
    serve::serve(vec![locked], serving, |endpoints, page| {
        let uri = endpoints.first().map(|endpoint| paths::nbd_uri(endpoint, "")).unwrap_or_default();
        say(&format!("ready: {uri}"));
        let seen = page.map(|page| format!("\nSee it in a browser: {page}\n")).unwrap_or_default();
        say(&recipe(&dir, &uri, &(timing + &seen), &again));
    })
}

/// What can be done with the volume, so that it can be pasted into a shell.
fn recipe(dir: &Path, uri: &str, timing: &str, again: &str) -> String {
    let at = |name: &str| paths::shell(&dir.join(name));
    let (nbd, disk, files, file) = (at("nbd"), at("nbd/nbd"), at("files"), at("volume.toml"));
    let program = paths::program();
    format!(
        "
The volume in {} is open.
{timing}

From another terminal:

  nbdinfo '{uri}'
  nbdcopy FILE '{uri}'                         fill it from a disk image (nbdcopy '{uri}' FILE reads it back)
  qemu-img info '{uri}'
  {program} status {file}

As a drive with a file system (needs nbdfuse, and root for the mount), the first time with all lines:

  mkdir -p {nbd} {files}
  nbdfuse {nbd} '{uri}' &
  until [ -e {disk} ] || ! kill -0 $!; do sleep 0.1; done
  mkfs.ext4 -q {disk}
  mount -o loop {disk} {files}

Later without mkfs.ext4, which erases. Before it is closed:

  umount {files} && umount {nbd}

Ctrl-C closes it; `{again}` opens it again.",
        dir.display()
    )
}

/// The volume, its devices locked: a new one's are never let go of in between.
fn load_or_create(dir: &Path, slow_model: Option<SlowModel>) -> anyhow::Result<Locked> {
    let file = dir.join("volume.toml");
    let unfinished = match file.exists() {
        true => {
            let mut volume = Volume::load(&file)?;
            if !volume.unfinished {
                let mut files = volume.open_devices()?;
                if let Some(SlowModel(model)) = slow_model
                    && volume.models[SLOW] != model
                {
                    volume.models[SLOW] = model;
                    files = volume.timed(files)?;
                    volume.save()?;
                }
                return Ok(Locked { volume, files, missing: None });
            }
            true
        }
        false => false,
    };
    let SlowModel(model) = match slow_model {
        Some(asked) => asked,
        None => SlowModel::parse(SLOW_MODEL).map_err(anyhow::Error::msg)?,
    };
    let made = create::make(&Plan {
        devices: [
            DeviceSpec { path: dir.join("fast.img"), size: Some(FAST_BYTES), model: None },
            DeviceSpec { path: dir.join("slow.img"), size: Some(SLOW_BYTES), model },
        ],
        file,
        chunk: DEFAULT_CHUNK_BYTES.into(),
        landing: None,
        marking: Marking::Off,
        wear_budget: None,
        wake_budget: None,
        remote_patience: None,
        protect: None,
        // What an earlier run left half made is ours to overwrite.
        force: if unfinished { 2 } else { 0 },
        resumes: unfinished,
        quiet: false,
    })?;
    Ok(Locked { volume: made.volume, files: made.files, missing: None })
}
