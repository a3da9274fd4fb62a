//! The URIs of exports: `nbd://HOST[:PORT]/NAME` and `nbd+unix:///NAME?socket=PATH`.

use std::fmt;
use std::path::PathBuf;

/// The port that servers listen on where a URI gives none.
const PORT: u16 = 10809;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdAddress {
    /// A unix socket.
    Unix(PathBuf),
    /// `HOST:PORT`.
    Tcp(String),
}

impl fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NbdAddress::Unix(path) => write!(f, "{}", path.display()),
            NbdAddress::Tcp(address) => f.write_str(address),
        }
    }
}

/// An export, by its server and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdUri {
    /// Where its server listens.
    pub address: NbdAddress,
    /// Its name; empty is the server's default.
    pub export: String,
}

/// Why a text that begins as a URI of an export names none: in a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UriError(&'static str);

impl NbdUri {
    /// Whether a text begins as the URI of an export does, or would with encryption.
    pub fn is_meant(text: &str) -> bool {
        ["nbd://", "nbd+unix://", "nbds://", "nbds+unix://"].iter().any(|scheme| text.starts_with(scheme))
    }

    /// Reads a URI; `None` where the text does not begin as one.
    pub fn parse(text: &str) -> Option<Result<NbdUri, UriError>> {
        if let Some(rest) = text.strip_prefix("nbd+unix://") {
            return Some(unix(rest));
        }
        if let Some(rest) = text.strip_prefix("nbd://") {
            return Some(tcp(rest));
        }
        NbdUri::is_meant(text).then_some(Err(UriError(
            "encryption (nbds) is not spoken; let stunnel or an ssh tunnel carry the connection, and name the tunnel's \
             end here with nbd:// or nbd+unix://",
        )))
    }
}

fn unix(rest: &str) -> Result<NbdUri, UriError> {
    let (export, query) = rest.split_once('?').unwrap_or((rest, ""));
    let socket = query.split('&').find_map(|pair| pair.strip_prefix("socket="));
    let socket = socket.filter(|socket| !socket.is_empty());
    let socket = socket.ok_or(UriError("nbd+unix:///EXPORT?socket=PATH names the socket"))?;
    let (Some(path), Some(export)) = (decoded(socket), decoded(export.trim_start_matches('/'))) else {
        return Err(UriError("a % is followed by two hexadecimal digits, and what comes out is UTF-8"));
    };
    Ok(NbdUri { address: NbdAddress::Unix(path.into()), export })
}

fn tcp(rest: &str) -> Result<NbdUri, UriError> {
    let (host, export) = rest.split_once('/').unwrap_or((rest, ""));
    if host.is_empty() {
        return Err(UriError("nbd://HOST:PORT/EXPORT names a host"));
    }
    let has_port = host.rsplit_once(':').is_some_and(|(before, port)| {
        port.parse::<u16>().is_ok() && (!before.contains(':') || before.ends_with(']'))
    });
    // A name has no colons, and an address that has them is in brackets.
    if !has_port && host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
        return Err(UriError("a port is from 0 to 65535, and an IPv6 address stands in brackets"));
    }
    let address = if has_port { host.to_owned() } else { format!("{host}:{PORT}") };
    let export = decoded(export).ok_or(UriError("the export's name is not well escaped"))?;
    Ok(NbdUri { address: NbdAddress::Tcp(address), export })
}

/// A part of a URI as it was before it was escaped.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_name_a_server_and_an_export() {
        let unix = |path: &str, export: &str| NbdUri {
            address: NbdAddress::Unix(path.into()),
            export: export.to_owned(),
        };
        let tcp = |address: &str, export: &str| NbdUri {
            address: NbdAddress::Tcp(address.to_owned()),
            export: export.to_owned(),
        };
        for (text, expected) in [
            ("nbd+unix:///?socket=/a%20b/c.sock", unix("/a b/c.sock", "")),
            ("nbd+unix:///my%20films?socket=/x", unix("/x", "my films")),
            ("nbd://localhost", tcp("localhost:10809", "")),
            ("nbd://[::1]:10810/x", tcp("[::1]:10810", "x")),
            ("nbd://[::1]/x", tcp("[::1]:10809", "x")),
        ] {
            assert_eq!(NbdUri::parse(text), Some(Ok(expected)), "{text}");
        }
        for text in [
            "nbd+unix:///x",
            "nbd+unix:///x?socket=",
            "nbd:///x",
            "nbd://h:99999/",
            "nbd://h:x/",
            "nbd://::1/",
        ] {
            assert!(NbdUri::parse(text).is_some_and(|uri| uri.is_err()), "{text}");
        }
        let encrypted = NbdUri::parse("nbds://host/x");
        assert!(matches!(&encrypted, Some(Err(why)) if why.to_string().contains("stunnel")), "{encrypted:?}");
        assert_eq!(NbdUri::parse("/dev/sdb"), None);
    }
}
