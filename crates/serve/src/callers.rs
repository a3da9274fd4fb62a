//! Who is connected, and what stands on the volume through them: for whoever is about to close it.

use rustix::net::sockopt::socket_peercred;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// Mounts that are listed at most: no sentence is to be longer than a screen.
const MAX_MOUNTS: usize = 16;
/// Layers of loop devices and file systems on one another that are followed.
const MAX_LAYERS: usize = 8;

/// A sentence for each process that is connected: which it is, and what is to be unmounted, as much of that as can be told.
pub(crate) fn sentences<F: AsFd>(volume: &str, clients: impl Iterator<Item = F>) -> Vec<String> {
    // Of TCP nobody tells who it is.
    let pids = clients.map(|client| socket_peercred(client).ok().map(|peer| peer.pid.as_raw_nonzero().get()));
    let mut counted: BTreeMap<Option<i32>, u32> = BTreeMap::new();
    pids.for_each(|pid| *counted.entry(pid).or_default() += 1);
    counted.into_iter().map(|(pid, connections)| sentence(volume, pid, connections)).collect()
}

fn sentence(volume: &str, pid: Option<i32>, connections: u32) -> String {
    let over = match connections {
        1 => "over one connection".to_owned(),
        more => format!("over {more} connections"),
    };
    let Some(pid) = pid else { return format!("somebody is connected to {volume}, {over}") };
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let mut text = match name.trim_end() {
        // It has handed its connection over, as nbd-client does to the kernel, and has gone.
        "" => format!("process {pid} is connected to {volume}, {over}"),
        name => format!("{name} (process {pid}) is connected to {volume}, {over}"),
    };
    let mounts = mounts();
    let mut found: Vec<&Mount> = Vec::new();
    above(&mounts, &begin(pid, &mounts), MAX_LAYERS, &mut found);
    // What stands on others goes first.
    let unmount: Vec<String> =
        found.iter().rev().take(MAX_MOUNTS).map(|mount| format!("umount {}", quoted(&mount.place))).collect();
    if !unmount.is_empty() {
        text += &format!("; to leave it in good order: {}", unmount.join(" && "));
    }
    text
}

/// A line of the mount table.
#[derive(Debug)]
struct Mount {
    device: String,
    place: PathBuf,
}

/// The mount table of this process (proc(5), mountinfo).
fn mounts() -> Vec<Mount> {
    let text = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    text.split(|&byte| byte == b'\n').filter_map(mount).collect()
}

fn mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let device = String::from_utf8(fields.nth(2)?.to_vec()).ok()?;
    let place = unescaped(fields.nth(1)?);
    Some(Mount { device, place })
}

/// A path of the mount table: blanks and the like are three octal digits behind a backslash.
fn unescaped(text: &[u8]) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.get(..3).filter(|_| first == b'\\');
        let code = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &behind[3..] } else { behind };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// What a client shows the volume as: a folder that it has mounted, by its command line, or a network block device.
fn begin(pid: i32, mounts: &[Mount]) -> Vec<Layer> {
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let folder = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
    let arguments = command.split(|&byte| byte == 0).skip(1).filter(|word| !word.is_empty());
    let paths = arguments.map(|word| folder.join(OsString::from_vec(word.to_vec())));
    let mut layers: Vec<Layer> =
        paths.filter(|path| mounts.iter().any(|mount| mount.place == *path)).map(Layer::Folder).collect();
    let disks = block_devices().into_iter();
    let of_client = |sys: &PathBuf| text(&sys.join("pid")).is_some_and(|owner| owner == pid.to_string());
    layers.extend(disks.filter(of_client).filter_map(|sys| text(&sys.join("dev"))).map(Layer::Device));
    layers
}

/// Something that a file system or loop device may stand on.
#[derive(Clone, Debug)]
enum Layer {
    Folder(PathBuf),
    Device(String),
}

/// All mounts on these layers, the lowest first.
fn above<'m>(mounts: &'m [Mount], layers: &[Layer], layers_left: usize, found: &mut Vec<&'m Mount>) {
    for layer in layers {
        let mut next = Vec::new();
        for mount in mounts {
            let stands = match layer {
                Layer::Folder(place) => mount.place == *place,
                Layer::Device(device) => mount.device == *device,
            };
            if stands && !found.iter().any(|known| known.place == mount.place) {
                found.push(mount);
                next.extend(loops_in(&mount.place));
            }
        }
        if layers_left > 0 {
            above(mounts, &next, layers_left - 1, found);
        }
    }
}

/// Loop devices on files below a folder.
fn loops_in(folder: &Path) -> Vec<Layer> {
    let below = |sys: &PathBuf| {
        let file = text(&sys.join("loop/backing_file"));
        file.is_some_and(|file| Path::new(&file).starts_with(folder))
    };
    let devices = block_devices().into_iter().filter(below);
    devices.filter_map(|sys| text(&sys.join("dev"))).map(Layer::Device).collect()
}

fn block_devices() -> Vec<PathBuf> {
    std::fs::read_dir("/sys/block").into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn text(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim_end().to_owned())
}

/// As a shell reads it.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_mount_table_are_read_with_their_blanks() {
        let line = br"36 35 98:0 /mnt1 /a\040b\134c rw,noatime master:1 - ext3 /dev/root rw";
        let mount = mount(line).expect("a mount");
        assert_eq!((mount.device.as_str(), mount.place.to_str()), ("98:0", Some(r"/a b\c")));
        assert!(super::mount(b"").is_none() && super::mount(b"1 2 3").is_none());
        assert_eq!(unescaped(br"\9x\"), PathBuf::from(r"\9x\"));
        assert_eq!(quoted(Path::new("/it's")), r"'/it'\''s'");
    }

    #[test]
    fn what_stands_on_a_device_is_found_once() {
        let on = |device: &str, place: &str| Mount { device: device.to_owned(), place: place.into() };
        let mounts = [on("0:1", "/fuse"), on("9:9", "/a"), on("9:9", "/b"), on("8:1", "/other")];
        let mut found = Vec::new();
        let layers = [Layer::Folder("/fuse".into()), Layer::Device("9:9".to_owned())];
        above(&mounts, &layers, MAX_LAYERS, &mut found);
        above(&mounts, &layers, MAX_LAYERS, &mut found);
        let places: Vec<_> = found.iter().map(|mount| mount.place.to_str()).collect();
        assert_eq!(places, [Some("/fuse"), Some("/a"), Some("/b")]);
    }
}
