//! The URIs of exports: `nbd://HOST[:PORT]/NAME` and `nbd+unix:///NAME?socket=PATH`; encrypted with `nbds` instead of `nbd` and
//! `tls-certificates=FOLDER`. The parameters are those that other clients take, too.

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
    /// One of these, and nothing is said there that is not encrypted.
    Secure(Box<Secure>),
}

/// How a server is known, and we to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secure {
    /// Where it listens.
    pub address: NbdAddress,
    /// What its certificate must be made out to: a name, or an address without brackets.
    pub name: String,
    /// The folder of `ca-cert.pem`; of `client-cert.pem` and `client-key.pem` where it wants to know its clients.
    pub certificates: PathBuf,
}

impl fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NbdAddress::Unix(path) => write!(f, "{}", path.display()),
            NbdAddress::Tcp(address) => f.write_str(address),
            NbdAddress::Secure(secure) => write!(f, "{} (encrypted)", secure.address),
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

const ESCAPES: UriError = UriError("a % is followed by two hexadecimal digits, and what comes out is UTF-8");

/// What stands behind a URI's question mark.
#[derive(Default)]
struct Query {
    socket: Option<String>,
    certificates: Option<String>,
    hostname: Option<String>,
}

impl NbdUri {
    /// Whether a text begins as the URI of an export does.
    pub fn is_meant(text: &str) -> bool {
        scheme(text).is_some()
    }

    /// Reads a URI; `None` where the text does not begin as one.
    pub fn parse(text: &str) -> Option<Result<NbdUri, UriError>> {
        let (is_unix, is_secure, rest) = scheme(text)?;
        Some(parse(is_unix, is_secure, rest))
    }
}

/// Whether a URI names a unix socket, whether it is encrypted, and what follows.
fn scheme(text: &str) -> Option<(bool, bool, &str)> {
    const SCHEMES: [(&str, bool, bool); 4] = [
        ("nbd://", false, false),
        ("nbds://", false, true),
        ("nbd+unix://", true, false),
        ("nbds+unix://", true, true),
    ];
    SCHEMES
        .iter()
        .find_map(|&(scheme, is_unix, is_secure)| Some((is_unix, is_secure, text.strip_prefix(scheme)?)))
}

fn parse(is_unix: bool, is_secure: bool, rest: &str) -> Result<NbdUri, UriError> {
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let query = Query::parse(query)?;
    let (address, export, host) = match is_unix {
        true => {
            let socket = query.socket.ok_or(UriError("nbd+unix:///EXPORT?socket=PATH names the socket"))?;
            (NbdAddress::Unix(socket.into()), rest.trim_start_matches('/'), None)
        }
        false if query.socket.is_some() => {
            return Err(UriError("socket= belongs to nbd+unix:// and nbds+unix://"));
        }
        false => tcp(rest)?,
    };
    let export = decoded(export).ok_or(ESCAPES)?;
    if !is_secure {
        return match (query.certificates, query.hostname) {
            (None, None) => Ok(NbdUri { address, export }),
            _ => Err(UriError("tls-certificates and tls-hostname belong to nbds:// and nbds+unix://")),
        };
    }
    let certificates = query.certificates.filter(|folder| folder.starts_with('/')).ok_or(UriError(
        "an encrypted export needs tls-certificates=FOLDER: an absolute path, where ca-cert.pem is, and client-cert.pem and \
         client-key.pem if the server wants to know its clients",
    ))?;
    let name = query.hostname.or(host).ok_or(UriError(
        "nbds+unix:///EXPORT?socket=PATH needs tls-hostname=NAME: what the server's certificate is made out to",
    ))?;
    let secure = Secure { address, name, certificates: certificates.into() };
    Ok(NbdUri { address: NbdAddress::Secure(Box::new(secure)), export })
}

impl Query {
    fn parse(text: &str) -> Result<Query, UriError> {
        let mut query = Query::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(value).ok_or(ESCAPES)?;
            let place = match name {
                "socket" => &mut query.socket,
                "tls-certificates" => &mut query.certificates,
                "tls-hostname" => &mut query.hostname,
                "tls-psk-file" | "tls-username" => {
                    return Err(UriError(
                        "keys that are shared beforehand are not spoken; use tls-certificates",
                    ));
                }
                "tls-verify-peer" => {
                    return Err(UriError(
                        "a server is always verified; give tls-hostname=NAME where it has another name",
                    ));
                }
                _ => return Err(UriError("behind ? stand socket=, tls-certificates= and tls-hostname=")),
            };
            *place = (!value.is_empty()).then_some(value);
        }
        Ok(query)
    }
}

/// The address, what follows, and the host.
fn tcp(rest: &str) -> Result<(NbdAddress, &str, Option<String>), UriError> {
    let (host, export) = rest.split_once('/').unwrap_or((rest, ""));
    if host.is_empty() {
        return Err(UriError("nbd://HOST:PORT/EXPORT names a host"));
    }
    let port = host.rsplit_once(':').filter(|(before, port)| {
        port.parse::<u16>().is_ok() && (!before.contains(':') || before.ends_with(']'))
    });
    // A name has no colons, and an address that has them is in brackets.
    if port.is_none() && host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
        return Err(UriError("a port is from 0 to 65535, and an IPv6 address stands in brackets"));
    }
    let address = if port.is_some() { host.to_owned() } else { format!("{host}:{PORT}") };
    let name = port.map_or(host, |(before, _)| before).trim_start_matches('[').trim_end_matches(']');
    Ok((NbdAddress::Tcp(address), export, Some(name.to_owned())))
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
            "nbd://h/x?socket=/y",
            "nbd://h/x?color=red",
            "nbd://h/x?tls-certificates=/c",
        ] {
            assert!(NbdUri::parse(text).is_some_and(|uri| uri.is_err()), "{text}");
        }
        assert_eq!(NbdUri::parse("/dev/sdb"), None);
    }

    #[test]
    fn encrypted_ones_say_how_the_server_is_known() {
        for (text, address, name) in [
            ("nbds://h/x?tls-certificates=/c%20d", NbdAddress::Tcp("h:10809".into()), "h"),
            ("nbds://[::1]:7/x?tls-certificates=/c%20d", NbdAddress::Tcp("[::1]:7".into()), "::1"),
            (
                "nbds://1.2.3.4/x?tls-hostname=n&tls-certificates=/c%20d",
                NbdAddress::Tcp("1.2.3.4:10809".into()),
                "n",
            ),
            (
                "nbds+unix:///x?socket=/s&tls-hostname=n&tls-certificates=/c%20d",
                NbdAddress::Unix("/s".into()),
                "n",
            ),
        ] {
            let secure = Secure { address, name: name.to_owned(), certificates: "/c d".into() };
            let expected = NbdUri { address: NbdAddress::Secure(Box::new(secure)), export: "x".to_owned() };
            assert_eq!(NbdUri::parse(text), Some(Ok(expected)), "{text}");
        }
        for (text, word) in [
            ("nbds://h/x", "tls-certificates"),
            ("nbds://h/x?tls-certificates=c", "absolute"),
            ("nbds://h/x?tls-psk-file=/k", "shared beforehand"),
            ("nbds://h/x?tls-certificates=/c&tls-verify-peer=false", "always verified"),
            ("nbds+unix:///x?socket=/s&tls-certificates=/c", "tls-hostname"),
        ] {
            let parsed = NbdUri::parse(text);
            assert!(
                matches!(&parsed, Some(Err(why)) if why.to_string().contains(word)),
                "{text}: {parsed:?}"
            );
        }
    }
}
