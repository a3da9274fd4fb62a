//! `nbdfuse` and a loop device as the way to a device of the machine, where the kernel has nothing better. Both are
//! programs of this machine. `nbdfuse` is a client of this server, on a socket that it is born with; it shows the volume
//! as a file, and `losetup` makes that file a block device.
//!
//! No other server can take it up: `nbdfuse` ends with the connection, and what is asked of the device then fails.

use super::machine::{Device, Standing, Way};
use super::{Kind, Record, Wish};
use crate::connection::Phase;
use crate::served::Served;
use crate::server::Server;
use bimetal_nbd::{Exports, Handshake, Terms};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Both programs do what they do at once.
const WITHIN: Duration = Duration::from_secs(20);
/// Where programs for the administrator are, where the path leaves them out.
const MORE_FOLDERS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// A device by `nbdfuse` and a loop device.
pub(crate) struct MachineFuse {
    nbdfuse: Option<Child>,
    /// What makes the loop device, until it has.
    losetup: Option<Child>,
    folder: PathBuf,
    since: Instant,
}

impl MachineFuse {
    /// How often it is looked whether a program has come as far as it is to.
    pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(50);

    /// Takes the loop device and the mount away, in the background: they ask this server for what is to be written.
    pub(crate) fn take_away(&self, record: &Record) -> io::Result<()> {
        let quiet = |command: &mut Command| {
            command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().map(see_to_its_end)
        };
        quiet(program("losetup")?.arg("--detach").arg(record.device()))?;
        quiet(program("umount")?.arg("--lazy").arg(&self.folder))
    }

    fn is_mounted(&self) -> bool {
        self.folder.with_extension("fuse-pid").exists()
    }
}

impl Drop for MachineFuse {
    fn drop(&mut self) {
        // It ends with its connection.
        [self.nbdfuse.take(), self.losetup.take()].into_iter().flatten().for_each(see_to_its_end);
    }
}

/// Lets nothing be left of a program when it ends.
fn see_to_its_end(mut program: Child) {
    std::thread::spawn(move || program.wait());
}

/// A program of this machine; `NotFound` says which.
fn program(name: &str) -> io::Result<Command> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(MORE_FOLDERS.map(PathBuf::from));
    let found = folders.map(|folder| folder.join(name)).find(|path| path.is_file());
    found.map(Command::new).ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, format!("the program {name} is not installed"))
    })
}

fn file_in(folder: &Path) -> PathBuf {
    folder.join("nbd")
}

fn start_nbdfuse(folder: &Path, read_only: bool, theirs: OwnedFd) -> io::Result<Child> {
    let mut command = program("nbdfuse")?;
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let pid = folder.with_extension("fuse-pid");
    let _ = std::fs::remove_file(&pid);
    if read_only {
        command.arg("--readonly");
    }
    // The socket is its standard input, by which number it is told of it.
    command.arg("--pidfile").arg(pid).arg(file_in(folder)).args(["--fd", "0"]);
    command.stdin(theirs).stdout(Stdio::null()).spawn()
}

fn start_losetup(folder: &Path, record: &Record) -> io::Result<Child> {
    let mut command = program("losetup")?;
    if record.wish.read_only {
        command.arg("--read-only");
    }
    command.arg("--sector-size").arg(record.sector_bytes.to_string());
    command.args(["--find", "--show"]).arg(file_in(folder));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()
}

/// The number in the path of a loop device.
fn loop_number(path: &str) -> Option<u32> {
    path.trim().strip_prefix("/dev/loop")?.parse().ok()
}

/// What the last server's programs left: its device fails everything by now. An error where somebody holds it.
pub(crate) fn clear(record: &Record) -> io::Result<()> {
    if let Some(holder) = bimetal_driver::who_holds(&record.device()) {
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, format!("it is {}", holder.how)));
    }
    remove(record)
}

/// Takes a device away whose server is gone.
pub(crate) fn remove(record: &Record) -> io::Result<()> {
    program("losetup")?.arg("--detach").arg(record.device()).stderr(Stdio::null()).status()?;
    if let Some(folder) = &record.folder {
        program("umount")?.arg("--lazy").arg(folder).stderr(Stdio::null()).status()?;
    }
    Ok(())
}

impl<V: Served> Server<V> {
    pub(crate) fn make_fuse(&mut self, wish: Wish) -> Result<Device, String> {
        let folder = self.machine.file.with_extension("fuse");
        let mut record = self.new_record(Kind::Fuse, 0, wish);
        record.folder = Some(folder.clone());
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(|errno| format!("no socket can be had: {errno}"))?;
        let exports = Exports::new(vec![self.export().clone()]).map_err(|error| error.to_string())?;
        let nbdfuse = start_nbdfuse(&folder, wish.read_only, theirs).map_err(|error| error.to_string())?;
        let mut greeting = Vec::new();
        let handshake = Handshake::new(Arc::new(exports), &mut greeting);
        self.seat(ours, Phase::Handshake(handshake), Terms::default(), greeting, &[], true);
        let way =
            Way::Fuse(MachineFuse { nbdfuse: Some(nbdfuse), losetup: None, folder, since: Instant::now() });
        let notes = vec!["it does not outlive this server: no other can take it up".to_owned()];
        Ok(Device { record, way, standing: Standing::Coming, notes, asker: None })
    }

    /// Goes on making the device, if a program has come as far as it was to.
    pub(crate) fn look_after_fuse(&mut self) {
        let Some(Device { record, way: Way::Fuse(fuse), standing: Standing::Coming, .. }) =
            &mut self.machine.device
        else {
            return;
        };
        match fuse_step(fuse, record) {
            Ok(true) => {
                self.note_device();
                self.device_came();
            }
            Ok(false) => {}
            Err(error) => {
                fuse.nbdfuse.as_mut().map(Child::kill);
                self.device_failed(&error.to_string());
            }
        }
    }
}

/// One step; true when the device is there.
fn fuse_step(fuse: &mut MachineFuse, record: &mut Record) -> io::Result<bool> {
    if let Some(nbdfuse) = &mut fuse.nbdfuse
        && let Some(ended) = nbdfuse.try_wait()?
    {
        return Err(io::Error::other(format!("nbdfuse has ended, with {ended}")));
    }
    let mounted = fuse.is_mounted();
    match &mut fuse.losetup {
        None if mounted => fuse.losetup = Some(start_losetup(&fuse.folder, record)?),
        None => {}
        Some(losetup) => {
            if let Some(ended) = losetup.try_wait()? {
                let mut said = String::new();
                if let Some(out) = &mut losetup.stdout {
                    out.read_to_string(&mut said)?;
                }
                let number = loop_number(&said).filter(|_| ended.success());
                record.number =
                    number.ok_or_else(|| io::Error::other(format!("losetup has ended, with {ended}")))?;
                return Ok(true);
            }
        }
    }
    match fuse.since.elapsed() > WITHIN {
        true => Err(io::Error::other("nbdfuse and losetup do not come to an end")),
        false => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_loop_devices_are_read() {
        assert_eq!(loop_number("/dev/loop12\n"), Some(12));
        assert_eq!([loop_number(""), loop_number("/dev/sda1"), loop_number("/dev/loop")], [None; 3]);
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = program("no-such-program").expect_err("it is not there").to_string();
        assert!(error.contains("no-such-program is not installed"), "{error}");
        assert!(program("sh").is_ok());
    }
}
