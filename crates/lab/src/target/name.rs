//! How a target is named.

use bimetal_nbd::{NbdAddress, NbdUri};
use std::fmt;
use std::path::PathBuf;

/// The longest name of a target, bytes: two paths.
const MAX_NAME_BYTES: usize = 8192;

/// What is to be measured, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetName {
    /// A file or a block device.
    Path(PathBuf),
    /// An export of an NBD server.
    Nbd {
        /// Where it listens.
        address: NbdAddress,
        /// The export's name; empty is the server's default.
        export: String,
    },
    /// A Bimetal volume that nobody serves, opened in this process.
    Volume(String),
    /// A modelled device in virtual time.
    Model {
        /// Its model.
        name: String,
        /// Its size as it was written, if it is not the model's own.
        size: Option<String>,
    },
    /// What a scenario file describes, in virtual time.
    Scenario(PathBuf),
    /// Nothing.
    Null,
}

/// Why a text names no target: in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} names no target: {why}")]
pub struct NameError {
    text: String,
    why: String,
}

impl TargetName {
    /// Reads `PATH`, `nbd://HOST[:PORT]/EXPORT`, `nbd+unix:///EXPORT?socket=PATH`, `volume:NAME`,
    /// `model:NAME[?size=SIZE]`, `scenario:FILE` or `null:`.
    ///
    /// # Errors
    /// When it is none of these.
    pub fn parse(text: &str) -> Result<TargetName, NameError> {
        let wrong = |why: &str| NameError { text: text.chars().take(200).collect(), why: why.to_owned() };
        if text.is_empty() || text.len() > MAX_NAME_BYTES || text.contains('\0') {
            return Err(wrong("a name has from 1 to 8192 bytes, none of them zero"));
        }
        if text == "null:" {
            return Ok(TargetName::Null);
        }
        if let Some(uri) = NbdUri::parse(text) {
            let NbdUri { address, export } = uri.map_err(|error| wrong(&error.to_string()))?;
            return Ok(TargetName::Nbd { address, export });
        }
        if let Some(name) = text.strip_prefix("volume:") {
            return match name {
                "" => Err(wrong("volume:NAME names a volume")),
                name => Ok(TargetName::Volume(name.to_owned())),
            };
        }
        if let Some(file) = text.strip_prefix("scenario:") {
            return match file {
                "" => Err(wrong("scenario:FILE names a scenario")),
                file => Ok(TargetName::Scenario(file.into())),
            };
        }
        if let Some(rest) = text.strip_prefix("model:") {
            let (name, query) = rest.split_once('?').unwrap_or((rest, ""));
            let size = match query.strip_prefix("size=") {
                Some(size) => Some(size.to_owned()),
                None if query.is_empty() => None,
                None => return Err(wrong("model:NAME?size=SIZE has a size and nothing else")),
            };
            return Ok(TargetName::Model { name: name.to_owned(), size });
        }
        Ok(TargetName::Path(text.into()))
    }
}

impl fmt::Display for TargetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetName::Path(path) => write!(f, "{}", path.display()),
            TargetName::Nbd { address, export } if export.is_empty() => {
                write!(f, "the NBD export at {address}")
            }
            TargetName::Nbd { address, export } => write!(f, "the NBD export {export} at {address}"),
            TargetName::Volume(name) => write!(f, "volume:{name}"),
            TargetName::Model { name, size: Some(size) } => write!(f, "model:{name}?size={size}"),
            TargetName::Model { name, size: None } => write!(f, "model:{name}"),
            TargetName::Scenario(file) => write!(f, "scenario:{}", file.display()),
            TargetName::Null => write!(f, "null:"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let unix = |path: &str, export: &str| TargetName::Nbd {
            address: NbdAddress::Unix(path.into()),
            export: export.to_owned(),
        };
        let tcp = |address: &str, export: &str| TargetName::Nbd {
            address: NbdAddress::Tcp(address.to_owned()),
            export: export.to_owned(),
        };
        for (text, expected) in [
            ("/dev/sdb", TargetName::Path("/dev/sdb".into())),
            ("nbd+unix:///?socket=/a%20b/c.sock", unix("/a b/c.sock", "")),
            ("nbd+unix:///my%20films?socket=/x", unix("/x", "my films")),
            ("nbd://localhost", tcp("localhost:10809", "")),
            ("nbd://[::1]:10810/x", tcp("[::1]:10810", "x")),
            ("nbd://[::1]/x", tcp("[::1]:10809", "x")),
            ("volume:films", TargetName::Volume("films".into())),
            (
                "model:disk-1tb-2012?size=1G",
                TargetName::Model { name: "disk-1tb-2012".into(), size: Some("1G".into()) },
            ),
            ("scenario:a.toml", TargetName::Scenario("a.toml".into())),
            ("null:", TargetName::Null),
        ] {
            assert_eq!(TargetName::parse(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "nbd+unix:///x",
            "nbd:///x",
            "nbd://h:99999/",
            "nbd://h:x/",
            "nbd://::1/",
            "volume:",
            "model:x?speed=2",
            "nbd+unix:///%x?socket=/a",
        ] {
            let error = TargetName::parse(text).expect_err(text).to_string();
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
