//! What is tried, beside what is looked at: how long reads of the devices take, and what this program does on this machine.

use super::device::Device;
use super::facts::Facts;
use super::judge::{alike, find};
use super::{Finding, Severity};
use anyhow::{Context as _, bail};
use bimetal_serve::status::tier_name;
use bimetal_units::rng::Rng;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Reads of each device, so large each, at places that a seed draws.
const READS: u32 = 64;
const READ_BYTES: usize = 4096;
/// A read that takes longer on average, of a disk that has nothing else to do, is too long.
const SLOW_READ: Duration = Duration::from_millis(100);
/// The slow device takes at least so many times as long as the fast one; else they are alike.
const TIMES: u32 = 2;
/// What is written to the scratch volume, and how much of that is moved, bytes.
const SCRATCH_BYTES: usize = 8 << 20;
const MOVED_BYTES: &str = "4M";
/// How long a step may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Times reads of both devices. Files are left out: what of them is a hole is read at once.
pub(super) fn read_devices(
    facts: &Facts,
    findings: &mut Vec<Finding>,
    tried: &mut Vec<String>,
) -> anyhow::Result<()> {
    let mut means = [None, None];
    for (tier, device) in facts.devices.iter().enumerate() {
        let Some(device) = device.as_ref().filter(|device| device.file.is_none()) else { continue };
        let mean = read(device)?;
        let (name, path) = (tier_name(tier), device.path.display());
        tried
            .push(format!("{READS} random reads of the {name} device, {path}: {} us each", mean.as_micros()));
        if mean > SLOW_READ {
            let what = format!(
                "a read of 4 KiB from the {name} device, {path}, takes {} ms on average",
                mean.as_millis()
            );
            let cure = "if nothing else keeps it busy, look at it with `smartctl -a`";
            find(findings, Severity::Warning, "slow-reads", what, cure);
        }
        means[tier] = Some(mean);
    }
    if let [Some(fast), Some(slow)] = means
        && slow < fast * TIMES
    {
        let what = format!(
            "a random read takes {} us on the fast device, and {} us on the slow one",
            fast.as_micros(),
            slow.as_micros()
        );
        alike(findings, what);
    }
    Ok(())
}

/// How long a read takes on average.
fn read(device: &Device) -> anyhow::Result<Duration> {
    let failed = || format!("cannot read {}", device.path.display());
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    let file: OwnedFd = rustix::fs::open(&device.path, flags, Mode::empty()).with_context(failed)?;
    let size = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)).with_context(failed)?;
    let blocks = (size / READ_BYTES as u64).max(1);
    let mut room = vec![0u8; 2 * READ_BYTES];
    let from = room.as_ptr().align_offset(READ_BYTES);
    let buffer = &mut room[from..from + READ_BYTES];
    let mut rng = Rng::new(std::process::id().into(), 0);
    let began = Instant::now();
    for _ in 0..READS {
        rustix::io::pread(&file, &mut *buffer, rng.below(blocks) * READ_BYTES as u64).with_context(failed)?;
    }
    Ok(began.elapsed() / READS)
}

/// Makes a scratch volume and does with it what volumes are for. What fails is a finding.
pub(super) fn try_scratch(findings: &mut Vec<Finding>, tried: &mut Vec<String>) -> anyhow::Result<()> {
    let dir = tempfile::Builder::new()
        .prefix("bimetal-doctor-")
        .tempdir()
        .context("cannot make a scratch folder")?;
    match scratch(dir.path()) {
        Ok(()) => tried.push(
            "a scratch volume: written, moved down and up, its server killed, read back and checked; all of it was as it should be"
                .to_owned(),
        ),
        Err(error) => {
            let what = format!("on a scratch volume, {error:#}");
            let cure = "free space in the temporary directory and memory may be short; else report it";
            find(findings, Severity::Error, "scratch-failed", what, cure);
        }
    }
    Ok(())
}

fn scratch(dir: &Path) -> anyhow::Result<()> {
    let mut rng = Rng::new(std::process::id().into(), 1);
    let bytes: Vec<u8> = (0..SCRATCH_BYTES / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    std::fs::write(dir.join("in.img"), &bytes).context("nothing could be written beside it")?;
    run(dir, &["create", "./v.toml", "--fast", "fast.img?size=64M", "--slow", "slow.img?size=256M"])?;
    run(dir, &["import", "in.img", "./v.toml"])?;
    let mut server = Server(start(dir)?);
    for tier in ["slow", "fast"] {
        run(dir, &["pin", "./v.toml", "0", MOVED_BYTES, "--tier", tier])?;
        wait_until_there(dir)?;
    }
    if let Some(pid) = i32::try_from(server.0.id()).ok().and_then(Pid::from_raw) {
        kill_process(pid, Signal::KILL).context("its server could not be killed")?;
    }
    server.0.wait().context("its server could not be waited for")?;
    wait_until_gone(dir)?;
    run(dir, &["export", "./v.toml", "out.img"])?;
    run(dir, &["check", "./v.toml"])?;
    let mut read = std::fs::read(dir.join("out.img")).context("what was exported cannot be read")?;
    read.truncate(bytes.len());
    if read != bytes {
        bail!("what was written is not what is read");
    }
    Ok(())
}

/// A server that ends with its owner.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(dir: &Path) -> anyhow::Result<Child> {
    let mut child = command(dir, &["serve", "./v.toml", "--nbd", "unix:nbd.sock"])?
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("its server could not be started")?;
    let began = Instant::now();
    while !dir.join("nbd.sock").exists() {
        if child.try_wait().is_ok_and(|ended| ended.is_some()) || began.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            bail!("its server did not come up");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(child)
}

fn wait_until_there(dir: &Path) -> anyhow::Result<()> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let doc: serde_json::Value = serde_json::from_slice(&run(dir, &["pins", "./v.toml", "--json"])?)?;
        if doc["pins"][0]["astray_bytes"] == 0 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    bail!("what was pinned to the other tier was not moved there within {} s", PATIENCE.as_secs())
}

/// The kernel lets a killed server's sockets go when it is through with the last of its operations.
fn wait_until_gone(dir: &Path) -> anyhow::Result<()> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let entries = std::fs::read_dir(dir.join("bimetal")).context("its server had no socket")?.flatten();
        let sockets = entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "control"));
        if sockets.filter(|path| std::os::unix::net::UnixStream::connect(path).is_ok()).count() == 0 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("its server did not end when it was killed")
}

/// This program, with a folder as all of its world.
fn command(dir: &Path, words: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("this program cannot be found")?);
    command.args(words).current_dir(dir).stdin(Stdio::null());
    for variable in ["XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "HOME"] {
        command.env(variable, dir);
    }
    command.env_remove("BIMETAL_LOG");
    Ok(command)
}

fn run(dir: &Path, words: &[&str]) -> anyhow::Result<Vec<u8>> {
    let output = command(dir, words)?.output().with_context(|| format!("`{}` could not be run", words[0]))?;
    if !output.status.success() {
        bail!("`{}` failed: {}", words[0], String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}
