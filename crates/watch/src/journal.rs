//! Events in the system's journal, with fields: one datagram each, as its native protocol says (`NAME=value` lines; a
//! value with a line's end in it has its length before it).

use bimetal_serve::{EventDoc, EventLevel};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// Where the journal listens.
pub const JOURNAL_SOCKET: &str = "/run/systemd/journal/socket";

/// Tells the journal; false where there is none, or it is not reading: nothing is told then.
pub(crate) fn tell(socket: &Path, event: &EventDoc) -> bool {
    let send = || {
        let own = UnixDatagram::unbound()?;
        own.set_nonblocking(true)?;
        own.send_to(&datagram(event), socket)
    };
    send().is_ok()
}

fn datagram(event: &EventDoc) -> Vec<u8> {
    let priority = match event.level {
        EventLevel::Error => "3",
        EventLevel::Warning => "4",
        EventLevel::Info => "6",
    };
    let message = format!("{}: {}", event.volume, event.message);
    let fields = [
        ("MESSAGE", message.as_str()),
        ("PRIORITY", priority),
        ("SYSLOG_IDENTIFIER", "bimetal-event"),
        ("BIMETAL_VOLUME", &event.volume),
        ("BIMETAL_EVENT", event.kind.name()),
    ];
    let mut out = Vec::new();
    for (name, value) in fields {
        out.extend_from_slice(name.as_bytes());
        match value.contains('\n') {
            true => {
                out.push(b'\n');
                out.extend_from_slice(&(value.len() as u64).to_le_bytes());
            }
            false => out.push(b'='),
        }
        out.extend_from_slice(value.as_bytes());
        out.push(b'\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_serve::EventKind;

    #[test]
    fn the_journal_gets_fields() {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("journal");
        let journal = UnixDatagram::bind(&socket).expect("binds");
        let event = EventDoc {
            unix_ms: 1,
            volume: "films".into(),
            kind: EventKind::ReadOnly,
            level: EventLevel::Error,
            message: "one\ntwo".into(),
        };
        assert!(tell(&socket, &event));
        let mut bytes = [0; 1000];
        let count = journal.recv(&mut bytes).expect("a datagram");
        let expected = [
            &b"MESSAGE\n\x0e\0\0\0\0\0\0\0films: one\ntwo\nPRIORITY=3\n"[..],
            b"SYSLOG_IDENTIFIER=bimetal-event\nBIMETAL_VOLUME=films\nBIMETAL_EVENT=read-only\n",
        ];
        assert_eq!(bytes[..count], expected.concat());
        // Nobody there is nobody told.
        assert!(!tell(&dir.path().join("none"), &event));
    }
}
