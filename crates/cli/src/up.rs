//! `bimetal up`: from nothing to a served volume.

use crate::args::UpArgs;
use crate::create::{self, Made, Plan};
use crate::paths::{self, DeviceSpec};
use crate::serve::{self, Locked, Serving};
use crate::volume::Volume;
use crate::{Outcome, say};
use anyhow::Context as _;
use bimetal_serve::Address;
use std::path::Path;

const FAST_BYTES: u64 = 1 << 30;
const SLOW_BYTES: u64 = 8 << 30;

pub(crate) fn run(args: &UpArgs) -> anyhow::Result<Outcome> {
    let dir = match &args.dir {
        Some(dir) => dir.clone(),
        None => paths::data_dir()?,
    };
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let dir = dir.canonicalize().with_context(|| format!("cannot find {}", dir.display()))?;
    let Made { volume, files } = load_or_create(&dir)?;
    let serving =
        Serving { nbd: vec![Address::Unix(dir.join("nbd.sock"))], read_only: false, memory: args.memory };
    serve::serve(vec![Locked { volume, files }], serving, |endpoints| {
        let uri = endpoints.first().map(|endpoint| paths::nbd_uri(endpoint, "")).unwrap_or_default();
        say(&format!("ready: {uri}"));
        say(&format!(
            "
The volume in {dir} is open. From another terminal:

  nbdinfo '{uri}'
  nbdcopy FILE '{uri}'                         fill it from a disk image (nbdcopy '{uri}' FILE reads it back)
  qemu-img info '{uri}'
  bimetal status {dir}/volume.toml

As a drive with a file system (needs nbdfuse, and root for the mount):

  mkdir -p {dir}/mnt && nbdfuse {dir}/mnt '{uri}' &
  mkfs.ext4 {dir}/mnt/nbd && mount -o loop {dir}/mnt/nbd /mnt

Ctrl-C closes it; `bimetal up` opens it again.",
            dir = dir.display()
        ));
    })
}

/// The volume, its devices locked: a new one's are never let go of in between.
fn load_or_create(dir: &Path) -> anyhow::Result<Made> {
    let file = dir.join("volume.toml");
    let unfinished = match file.exists() {
        true => {
            let volume = Volume::load(&file)?;
            if !volume.unfinished {
                let files = volume.open_devices()?;
                return Ok(Made { volume, files });
            }
            true
        }
        false => false,
    };
    create::make(&Plan {
        devices: [
            DeviceSpec { path: dir.join("fast.img"), size: Some(FAST_BYTES) },
            DeviceSpec { path: dir.join("slow.img"), size: Some(SLOW_BYTES) },
        ],
        file,
        chunk: 128 << 10,
        landing: None,
        // What an earlier run left half made is ours to overwrite.
        force: unfinished,
        resumes: unfinished,
        quiet: false,
    })
}
