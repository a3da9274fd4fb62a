//! Drawn stacks of loop devices over one file: what overlaps is known to, and is never open twice; what does not may be
//! used together. Needs root; skipped elsewhere.

use bimetal_driver::{BlockFile, Storage};
use bimetal_units::rng::Rng;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

const FILE_BYTES: u64 = 16 << 20;
const STEP: u64 = 1 << 20;
const ROUNDS: u64 = 3;

/// A loop device, detached with its owner.
struct Loop(PathBuf);

impl Loop {
    fn over(path: &Path, offset: u64, limit: u64) -> Option<Loop> {
        let number = |n: u64| n.to_string();
        let mut losetup = losetup();
        losetup
            .args(["--find", "--show", "--offset", &number(offset), "--sizelimit", &number(limit)])
            .arg(path);
        let done = losetup.output().ok()?;
        done.status.success().then(|| Loop(String::from_utf8_lossy(&done.stdout).trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = losetup().arg("--detach").arg(&self.0).output();
    }
}

fn losetup() -> Command {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("losetup");
    command.env("PATH", path);
    command
}

/// A name of some of the file's bytes.
struct Name {
    path: PathBuf,
    range: Range<u64>,
    /// How many loop devices are between.
    layers: u32,
    device: Option<Loop>,
}

/// Names drawn by a seed; `None` where there are no loop devices.
fn draw(file: &Path, rng: &mut Rng) -> Option<Vec<Name>> {
    let mut names = vec![Name { path: file.into(), range: 0..FILE_BYTES, layers: 0, device: None }];
    for _ in 0..3 {
        let below = &names[rng.below(names.len() as u64) as usize];
        let steps = (below.range.end - below.range.start) / STEP;
        let first = rng.below(steps);
        let count = 1 + rng.below(steps - first);
        let start = below.range.start + first * STEP;
        let device = Loop::over(&below.path, first * STEP, count * STEP)?;
        let (path, layers) = (device.0.clone(), below.layers + 1);
        names.push(Name { path, range: start..start + count * STEP, layers, device: Some(device) });
    }
    // What stands on others goes first.
    names.reverse();
    Some(names)
}

#[test]
fn what_overlaps_is_never_open_twice() {
    let seed = 20_261_126;
    println!("seed {seed}");
    let mut rng = Rng::new(seed, 0);
    let dir = tempfile::tempdir().expect("temporary directory");
    for round in 0..ROUNDS {
        let file = dir.path().join(format!("file-{round}"));
        std::fs::File::create(&file).and_then(|file| file.set_len(FILE_BYTES)).expect("a file");
        let Some(names) = draw(&file, &mut rng) else { return eprintln!("no loop devices here: skipped") };
        for (n, one) in names.iter().enumerate() {
            for other in &names[n + 1..] {
                let meet = one.range.start < other.range.end && other.range.start < one.range.end;
                let said = format!(
                    "round {round}: {:?} {:?}, {:?} {:?}",
                    one.path, one.range, other.path, other.range
                );
                let of = |name: &Name| Storage::of(&name.path).expect("it is there");
                assert_eq!(of(one).overlaps(&of(other)), meet, "{said}");
                assert_eq!(of(other).overlaps(&of(one)), meet, "{said}");
                let held = BlockFile::open(&one.path).unwrap_or_else(|error| panic!("{said}: {error}"));
                match BlockFile::open(&other.path) {
                    Ok(_) => assert!(!meet, "{said}: both are open"),
                    // Somebody who has a part of a device has that device, as seen from elsewhere.
                    Err(error) => assert!(meet || one.layers + other.layers > 2, "{said}: {error}"),
                }
                drop(held);
            }
        }
        // In an order in which each can be detached.
        names.into_iter().for_each(|name| drop(name.device));
    }
}
