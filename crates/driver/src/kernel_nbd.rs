//! The kernel's own NBD client as a device of the machine: it is given one end of a socket pair, by netlink, and asks for
//! what its block device is asked for at the other.
//!
//! Commands and attributes are those of Linux's `include/uapi/linux/nbd-netlink.h`.

use crate::netlink::{Attributes, Family};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

const FAMILY: &str = "nbd";
const CONNECT: u8 = 1;
const DISCONNECT: u8 = 2;
const RECONFIGURE: u8 = 3;
const INDEX: u16 = 1;
const SIZE_BYTES: u16 = 2;
const BLOCK_SIZE_BYTES: u16 = 3;
const TIMEOUT: u16 = 4;
const SERVER_FLAGS: u16 = 5;
const SOCKETS: u16 = 7;
const DEAD_CONN_TIMEOUT: u16 = 8;
const BACKEND_IDENTIFIER: u16 = 10;
const SOCK_ITEM: u16 = 1;
const SOCK_FD: u16 = 1;

/// How long the kernel waits before it looks whether a request has to be sent again, as its server was replaced
/// meanwhile. Each look at one that is only slow leaves a line in the kernel's log.
const RESEND_AFTER: Duration = Duration::from_secs(5);
/// The kernel notices the death of a server when the last of its I/O has ended.
const TAKEN_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What a device of the kernel's NBD client is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdShape {
    /// Size, bytes.
    pub size_bytes: u64,
    /// The unit that it is read and written in.
    pub sector_bytes: u32,
    /// What the server can do: NBD's transmission flags.
    pub flags: u16,
    /// How long requests wait while nobody serves it.
    pub wait: Duration,
    /// By this it is known again.
    pub identity: String,
}

/// Makes a device, and gives its number and our end of the socket pair, in which its first requests may wait already.
pub fn connect(shape: &NbdShape) -> io::Result<(u32, OwnedFd)> {
    let mut family = Family::named(FAMILY)?;
    let (ours, theirs) = pair()?;
    let reply = family.ask(CONNECT, &connect_attributes(shape, theirs.as_raw_fd() as u32))?;
    let index = reply
        .get_u32(INDEX)
        .ok_or_else(|| io::Error::other("the kernel does not say which device it made"))?;
    look_again_soon(index);
    Ok((index, ours))
}

/// Gives a device that nobody serves any more a new connection. It waits until the kernel has noticed that the last
/// server is gone. `NotFound` where there is no such device, or it is somebody else's.
pub fn reconnect(index: u32, shape: &NbdShape) -> io::Result<OwnedFd> {
    let until = Instant::now() + TAKEN_WITHIN;
    loop {
        if let Some(ours) = try_reconnect(index, shape)? {
            return Ok(ours);
        }
        if Instant::now() >= until {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "somebody else serves it"));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// As [`reconnect`], at once: none where the kernel has a connection that it takes for good.
pub fn try_reconnect(index: u32, shape: &NbdShape) -> io::Result<Option<OwnedFd>> {
    let (ours, theirs) = pair()?;
    let attributes = reconnect_attributes(index, shape, theirs.as_raw_fd() as u32);
    Family::named(FAMILY)?.ask(RECONFIGURE, &attributes).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => io::ErrorKind::NotFound.into(),
        _ => error,
    })?;
    drop(theirs);
    // The kernel says that all is well where no connection of its has died, and takes nothing then.
    Ok(is_held(&ours).then_some(ours))
}

/// The number of a device that was made under this identity, and is still there.
pub fn find(identity: &str) -> Option<u32> {
    let entries = std::fs::read_dir("/sys/block").ok()?.flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix(FAMILY)?.parse().ok());
    let is_ours = |index: &u32| {
        let backend = std::fs::read_to_string(format!("/sys/block/{}/backend", name(*index)));
        backend.is_ok_and(|backend| backend.trim_end() == identity)
    };
    numbers.into_iter().find(is_ours)
}

/// Takes a device away: what waits for it fails.
pub fn disconnect(index: u32) -> io::Result<()> {
    Family::named(FAMILY)?.ask(DISCONNECT, &Attributes::default().with_u32(INDEX, index)).map(drop)
}

/// Whether the kernel has a client for NBD, or a module with one.
pub fn is_there() -> io::Result<()> {
    Family::named(FAMILY).map(drop)
}

/// The name of the device with this number.
pub fn name(index: u32) -> String {
    format!("nbd{index}")
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// Whether anybody has the other end.
fn is_held(ours: &OwnedFd) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    !matches!(rustix::net::recv(ours, &mut [0; 1][..], flags), Ok((_, 0)))
}

/// Without a timeout of its own, the driver never gives up a connection that is only slow: it looks now and then whether
/// a request went to one that is gone, and sends it again. Here is how often. A kernel that cannot be told looks every 30 s.
///
/// The kernel takes this in when no request of the device is under way, and whoever makes the device is to serve those:
/// so it is said on a thread of its own.
fn look_again_soon(index: u32) {
    let path = format!("/sys/block/{}/queue/io_timeout", name(index));
    std::thread::spawn(move || std::fs::write(path, RESEND_AFTER.as_millis().to_string()));
}

fn sockets(fd: u32) -> Attributes {
    let item = Attributes::default().with_u32(SOCK_FD, fd);
    Attributes::default().with_nested(SOCK_ITEM, &item)
}

fn connect_attributes(shape: &NbdShape, fd: u32) -> Attributes {
    Attributes::default()
        .with_u64(SIZE_BYTES, shape.size_bytes)
        .with_u64(BLOCK_SIZE_BYTES, shape.sector_bytes.into())
        // A time here would end connections of a server that is only slow, and send what it has again beside it.
        .with_u64(TIMEOUT, 0)
        .with_u64(SERVER_FLAGS, shape.flags.into())
        .with_u64(DEAD_CONN_TIMEOUT, shape.wait.as_secs())
        .with_text(BACKEND_IDENTIFIER, &shape.identity)
        .with_nested(SOCKETS, &sockets(fd))
}

fn reconnect_attributes(index: u32, shape: &NbdShape, fd: u32) -> Attributes {
    Attributes::default()
        .with_u32(INDEX, index)
        .with_u64(DEAD_CONN_TIMEOUT, shape.wait.as_secs())
        .with_text(BACKEND_IDENTIFIER, &shape.identity)
        .with_nested(SOCKETS, &sockets(fd))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> NbdShape {
        NbdShape {
            size_bytes: 1 << 40,
            sector_bytes: 512,
            flags: 0x16d,
            wait: Duration::from_secs(300),
            identity: "bimetal-00ff".to_owned(),
        }
    }

    #[test]
    fn a_device_is_asked_for_with_all_it_needs() {
        let attributes = connect_attributes(&shape(), 9);
        let number =
            |kind| attributes.get(kind).and_then(|value| value.try_into().ok()).map(u64::from_ne_bytes);
        assert_eq!(number(SIZE_BYTES), Some(1 << 40));
        assert_eq!(number(BLOCK_SIZE_BYTES), Some(512));
        assert_eq!(number(TIMEOUT), Some(0));
        assert_eq!(number(SERVER_FLAGS), Some(0x16d));
        assert_eq!(number(DEAD_CONN_TIMEOUT), Some(300));
        assert_eq!(attributes.get(BACKEND_IDENTIFIER), Some(&b"bimetal-00ff\0"[..]));
        assert_eq!(attributes.get(INDEX), None, "the kernel chooses");
        let nested = Attributes::default().with(SOCK_ITEM | 1 << 15, &[8, 0, 1, 0, 9, 0, 0, 0]);
        #[cfg(target_endian = "little")]
        assert_eq!(sockets(9), nested);
    }

    #[test]
    fn a_connection_that_nobody_took_is_known() {
        let (ours, theirs) = pair().expect("a pair");
        assert!(is_held(&ours));
        drop(theirs);
        assert!(!is_held(&ours));
    }

    /// Where there is a driver this would need a server; here it is known that there is none.
    #[test]
    fn a_kernel_without_the_driver_says_so() {
        if is_there().is_ok() {
            return;
        }
        assert_eq!(connect(&shape()).expect_err("no driver").kind(), io::ErrorKind::NotFound);
        assert!(disconnect(0).is_err());
    }
}
