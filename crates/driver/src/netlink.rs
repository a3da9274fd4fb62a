//! Generic netlink, as far as one family of the kernel is asked to do something and answers once.
//!
//! Messages and attributes are laid out as in Linux's `include/uapi/linux/netlink.h` and `genetlink.h`: lengths and types
//! in the machine's byte order, everything at multiples of 4 bytes.

use rustix::io::Errno;
use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// `NLMSG_HDRLEN` and `GENL_HDRLEN`: what stands before the attributes.
const HEADER_BYTES: usize = 16 + 4;
/// `NLMSG_ERROR`: the kernel's last word on a request, zero where all is well.
const KIND_ERROR: u16 = 2;
/// `NLM_F_REQUEST | NLM_F_ACK`.
const FLAGS: u16 = 1 | 4;
/// `GENL_ID_CTRL`: the family that knows the others.
const CONTROL: u16 = 0x10;
/// `CTRL_CMD_GETFAMILY`, `CTRL_ATTR_FAMILY_NAME` and `CTRL_ATTR_FAMILY_ID`.
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// `NLA_F_NESTED`, which the kernel sets or leaves out as it likes.
const NESTED: u16 = 1 << 15;
/// Longest answer taken.
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// The kernel answers at once; a driver that hangs is to hang nobody else for ever.
const PATIENCE: Duration = Duration::from_secs(30);

/// The attributes of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributes(Vec<u8>);

impl Attributes {
    /// One more, whatever it holds.
    pub(crate) fn with(mut self, kind: u16, value: &[u8]) -> Attributes {
        // Names and lists of sockets: far below 64 KiB.
        self.0.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(crate) fn with_u32(self, kind: u16, value: u32) -> Attributes {
        self.with(kind, &value.to_ne_bytes())
    }

    pub(crate) fn with_u64(self, kind: u16, value: u64) -> Attributes {
        self.with(kind, &value.to_ne_bytes())
    }

    /// Text ends with a zero.
    pub(crate) fn with_text(self, kind: u16, value: &str) -> Attributes {
        self.with(kind, &[value.as_bytes(), &[0]].concat())
    }

    pub(crate) fn with_nested(self, kind: u16, inner: &Attributes) -> Attributes {
        self.with(kind | NESTED, &inner.0)
    }

    /// What the first attribute of this kind holds.
    pub(crate) fn get(&self, kind: u16) -> Option<&[u8]> {
        let mut rest = self.0.as_slice();
        while let Some(head) = rest.first_chunk::<4>() {
            let [a, b, c, d] = *head;
            let (len, found) =
                (usize::from(u16::from_ne_bytes([a, b])), u16::from_ne_bytes([c, d]) & !NESTED);
            let value = rest.get(4..len)?;
            if found == kind {
                return Some(value);
            }
            rest = rest.get(len.next_multiple_of(4)..)?;
        }
        None
    }

    pub(crate) fn get_u32(&self, kind: u16) -> Option<u32> {
        Some(u32::from_ne_bytes(self.get(kind)?.try_into().ok()?))
    }
}

/// A message to a family, as it goes to the kernel.
fn message(family: u16, command: u8, sequence: u32, attributes: &Attributes) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + attributes.0.len());
    bytes.extend_from_slice(&((HEADER_BYTES + attributes.0.len()) as u32).to_ne_bytes());
    bytes.extend_from_slice(&family.to_ne_bytes());
    bytes.extend_from_slice(&FLAGS.to_ne_bytes());
    bytes.extend_from_slice(&sequence.to_ne_bytes());
    // The port number: the kernel fills in ours.
    bytes.extend_from_slice(&[0; 4]);
    // The families' versions never told anything: all is in the attributes.
    bytes.extend_from_slice(&[command, 1, 0, 0]);
    bytes.extend_from_slice(&attributes.0);
    bytes
}

/// What one message of an answer says.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// The attributes of a reply.
    Reply(Attributes),
    /// That was all, and it went well.
    Done,
    /// It failed.
    Failed(i32),
}

/// Takes the answers to a request out of a datagram; those to others are left out.
fn answers(datagram: &[u8], sequence: u32) -> Vec<Said> {
    let mut said = Vec::new();
    let mut rest = datagram;
    while let Some(head) = rest.first_chunk::<16>() {
        let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (len, kind) = (word(0) as usize, u16::from_ne_bytes([head[4], head[5]]));
        let Some(body) = rest.get(16..len) else { break };
        if word(8) == sequence {
            match (kind, body.first_chunk::<4>()) {
                (KIND_ERROR, Some(code)) => match i32::from_ne_bytes(*code) {
                    0 => said.push(Said::Done),
                    code => said.push(Said::Failed(code.saturating_neg())),
                },
                (KIND_ERROR, None) => break,
                _ => said.push(Said::Reply(Attributes(body.get(4..).unwrap_or_default().to_vec()))),
            }
        }
        let Some(next) = rest.get(len.next_multiple_of(4)..) else { break };
        rest = next;
    }
    said
}

/// A conversation with one family.
#[derive(Debug)]
pub(crate) struct Family {
    socket: OwnedFd,
    id: u16,
    sequence: u32,
}

impl Family {
    /// The family of that name; `NotFound` where the kernel has none, nor a module for it.
    pub(crate) fn named(name: &str) -> io::Result<Family> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(GENERIC),
        )?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
        let mut family = Family { socket, id: CONTROL, sequence: 0 };
        let reply = family.ask(GET_FAMILY, &Attributes::default().with_text(FAMILY_NAME, name))?;
        let id = reply.get(FAMILY_ID).and_then(|value| value.try_into().ok()).map(u16::from_ne_bytes);
        family.id = id.ok_or_else(|| io::Error::other("the kernel's answer names no family"))?;
        Ok(family)
    }

    /// Asks for something, and gives the attributes of the answer: none where there is nothing but that it was done.
    pub(crate) fn ask(&mut self, command: u8, attributes: &Attributes) -> io::Result<Attributes> {
        self.sequence += 1;
        let bytes = message(self.id, command, self.sequence, attributes);
        rustix::net::send(&self.socket, &bytes, SendFlags::empty())?;
        let mut reply = Attributes::default();
        let mut buffer = vec![0; MAX_ANSWER_BYTES];
        loop {
            let bytes = match rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((_, bytes)) => bytes,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
                Err(errno) => return Err(errno.into()),
            };
            for said in answers(buffer.get(..bytes).unwrap_or_default(), self.sequence) {
                match said {
                    Said::Reply(attributes) => reply = attributes,
                    Said::Done => return Ok(reply),
                    Said::Failed(code) => return Err(io::Error::from_raw_os_error(code)),
                }
            }
        }
    }
}

#[cfg(test)]
#[cfg(target_endian = "little")]
mod tests {
    use super::*;

    #[test]
    fn messages_are_laid_out_as_the_kernel_reads_them() {
        let attributes = Attributes::default().with_text(2, "nbd").with_u32(1, 7);
        let bytes = message(0x10, 3, 9, &attributes);
        let want = [
            36, 0, 0, 0, 0x10, 0, 5, 0, 9, 0, 0, 0, 0, 0, 0, 0, // length, family, flags, sequence, port
            3, 1, 0, 0, // command, version
            8, 0, 2, 0, b'n', b'b', b'd', 0, // text with its zero
            8, 0, 1, 0, 7, 0, 0, 0,
        ];
        assert_eq!(bytes, want);
    }

    #[test]
    fn what_is_nested_and_what_is_odd_is_padded() {
        let inner = Attributes::default().with(3, &[1]);
        let bytes = Attributes::default().with_nested(7, &inner).0;
        assert_eq!(bytes, [12, 0, 7, 0x80, 5, 0, 3, 0, 1, 0, 0, 0]);
        let nested = Attributes(bytes);
        assert_eq!(nested.get(7), Some(&inner.0[..]));
        assert_eq!(Attributes(nested.get(7).expect("it is there").to_vec()).get(3), Some(&[1][..]));
    }

    #[test]
    fn answers_are_taken_apart_and_nonsense_ends_them() {
        let mut datagram = message(0x20, 1, 4, &Attributes::default().with_u32(1, 5));
        datagram.extend([20, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        datagram.extend([20, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0xf0, 0xff, 0xff, 0xff]);
        let said = answers(&datagram, 4);
        assert!(
            matches!(&said[..], [Said::Reply(reply), Said::Done, Said::Failed(16)] if reply.get_u32(1) == Some(5))
        );
        assert_eq!(answers(&datagram, 5), []);
        for end in 0..datagram.len() {
            answers(&datagram[..end], 4);
        }
        assert_eq!(answers(&[0; 64], 0).len(), 0, "a message of no length ends them");
        assert_eq!(Attributes(vec![3, 0, 1, 0]).get(1), None);
        assert_eq!(Attributes(vec![200, 0, 1, 0, 1]).get(1), None);
    }

    #[test]
    fn a_family_that_is_not_there_is_not_found() {
        let error = Family::named("no-such-family").expect_err("there is none");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let mut control = Family::named("nlctrl").expect("every kernel has it");
        assert_eq!(control.id, CONTROL);
        assert!(control.ask(GET_FAMILY, &Attributes::default().with_text(FAMILY_NAME, "nlctrl")).is_ok());
    }
}
