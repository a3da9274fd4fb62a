//! Where things are: devices, configuration, sockets.

use crate::size;
use anyhow::{Context as _, bail};
use bimetal_models::spec;
use bimetal_nbd::NbdUri;
use bimetal_serve::Endpoint;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// A device as written on the command line: a path, a size where it is to be created, a model where it is to be timed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceSpec {
    pub(crate) path: PathBuf,
    pub(crate) size: Option<u64>,
    pub(crate) model: Option<&'static str>,
}

/// Why an export is no fast device.
pub(crate) const NOT_FAST: &str = "an NBD export cannot be the fast device, only the slow one: on the fast device are the log, \
    which each flush waits for, and the lock that keeps two servers of one volume apart, which no export has; give a file or \
    block device of this machine";

/// Whether a device is an export of an NBD server, by how it is named.
pub(crate) fn is_export(device: &Path) -> bool {
    device.to_str().is_some_and(NbdUri::is_meant)
}

/// The modelled device of that name; the error lists the names there are.
pub(crate) fn model(name: &str) -> Result<&'static str, String> {
    let known = spec::names().find(|known| *known == name);
    known.ok_or_else(|| {
        spec::named(name).map_or_else(|error| error.to_string(), |_| format!("no model {name}"))
    })
}

impl DeviceSpec {
    /// Reads what is given as a fast device.
    pub(crate) fn parse_fast(text: &str) -> Result<DeviceSpec, String> {
        match NbdUri::is_meant(text) {
            true => Err(NOT_FAST.to_owned()),
            false => DeviceSpec::parse(text),
        }
    }

    pub(crate) fn parse(text: &str) -> Result<DeviceSpec, String> {
        if let Some(uri) = NbdUri::parse(text) {
            uri.map_err(|error| error.to_string())?;
            return Ok(DeviceSpec { path: text.into(), size: None, model: None });
        }
        let (path, query) = match text.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (text, None),
        };
        if path.is_empty() {
            return Err("a device needs a path".to_owned());
        }
        if path.starts_with("s3://") {
            return Err(
                "s3:// devices are not supported by this release; give a file, a block device or an NBD export"
                    .to_owned(),
            );
        }
        let model = path.strip_prefix("model:").map(model).transpose()?;
        let mut path = model.is_none().then_some(path);
        let mut size = None;
        for pair in query.into_iter().flat_map(|query| query.split('&')) {
            match pair.split_once('=') {
                Some(("size", value)) => size = Some(size::parse(value)?),
                Some(("file", value)) if path.is_none() && !value.is_empty() => path = Some(value),
                _ if model.is_some() => {
                    return Err(format!(
                        "{pair:?} is not an option of a modelled device; there are file=PATH and size=SIZE"
                    ));
                }
                _ => return Err(format!("{pair:?} is not an option of a device; there is size=SIZE")),
            }
        }
        let Some(path) = path else {
            return Err(format!("{text:?} names no file; write model:NAME?file=PATH"));
        };
        Ok(DeviceSpec { path: path.into(), size, model })
    }
}

/// What `up` is told of its slow tier: the model that times it, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlowModel(pub(crate) Option<&'static str>);

impl SlowModel {
    pub(crate) fn parse(text: &str) -> Result<SlowModel, String> {
        match text {
            "none" => Ok(SlowModel(None)),
            name => match model(name) {
                Ok(name) => Ok(SlowModel(Some(name))),
                Err(error) => Err(format!("{error}, and none")),
            },
        }
    }
}

/// Permissions as they are written in octal.
pub(crate) fn socket_mode(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    let mode = u32::from_str_radix(digits, 8).ok().filter(|mode| *mode <= 0o777 && !digits.starts_with('+'));
    mode.ok_or_else(|| format!("{text:?} is no mode; write three octal digits such as 0600 or 0660"))
}

/// A group's number, by that or by its name in /etc/group.
pub(crate) fn group(text: &str) -> Result<u32, String> {
    // The largest number stands for no group at all.
    if let Some(number) = text.parse().ok().filter(|number| *number != u32::MAX) {
        return Ok(number);
    }
    let table = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let number = table.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == text).then(|| fields.nth(1)?.parse().ok()).flatten()
    });
    number.ok_or_else(|| {
        format!("there is no group {text:?} in /etc/group; give one that is there, or a number")
    })
}

fn home() -> anyhow::Result<PathBuf> {
    match std::env::var_os("HOME").filter(|home| !home.is_empty()) {
        Some(home) => Ok(home.into()),
        None => bail!("HOME is not set; set it, or name volumes and directories by path"),
    }
}

/// Where root's volumes are, for its service to find: at boot there is no environment.
const SYSTEM_CONFIG: &str = "/etc/bimetal";
/// Where root's sockets are.
const SYSTEM_RUNTIME: &str = "/run/bimetal";
/// Below it are the runtime directories of logins.
const LOGINS_RUNTIME: &str = "/run/user";

/// Where what is kept of root's volumes is: their configuration is not to be written by services.
const SYSTEM_STATE: &str = "/var/lib/bimetal";

/// Where files are kept for volumes whose volume files are in this directory.
pub(crate) fn state_for(dir: &Path) -> PathBuf {
    if dir == Path::new(SYSTEM_CONFIG) { SYSTEM_STATE.into() } else { dir.to_owned() }
}

/// The directory that a variable of the environment names.
fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// Where named volumes are kept.
pub(crate) fn config_dir() -> anyhow::Result<PathBuf> {
    config_of(is_root(), named("XDG_CONFIG_HOME"), home)
}

fn config_of(
    root: bool,
    named: Option<PathBuf>,
    home: impl FnOnce() -> anyhow::Result<PathBuf>,
) -> anyhow::Result<PathBuf> {
    match named {
        Some(base) => Ok(base.join("bimetal")),
        None if root => Ok(SYSTEM_CONFIG.into()),
        None => Ok(home()?.join(".config/bimetal")),
    }
}

/// Where root's volumes were before they had a directory of the system's; what is left there is still found.
pub(crate) fn former_config_dir() -> Option<PathBuf> {
    let is_system = is_root() && named("XDG_CONFIG_HOME").is_none();
    is_system.then(|| home().ok()).flatten().map(|home| home.join(".config/bimetal"))
}

/// Where `up` keeps its volume.
pub(crate) fn data_dir() -> anyhow::Result<PathBuf> {
    let base = named("XDG_DATA_HOME").map_or_else(|| Ok(home()?.join(".local/share")), anyhow::Ok)?;
    Ok(base.join("bimetal"))
}

/// Root's login has a runtime directory that goes with it; a service's sockets are looked for where the service has them.
fn runtime_of(uid: u32, named: Option<PathBuf>) -> PathBuf {
    match named {
        Some(base) if uid != 0 || !base.starts_with(LOGINS_RUNTIME) => base.join("bimetal"),
        _ if uid == 0 => SYSTEM_RUNTIME.into(),
        _ => PathBuf::from(format!("/tmp/bimetal-{uid}")),
    }
}

/// Where sockets are: a directory in which only this user can make any.
pub(crate) fn runtime_dir() -> anyhow::Result<PathBuf> {
    let uid = rustix::process::getuid().as_raw();
    let dir = runtime_of(uid, named("XDG_RUNTIME_DIR"));
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&dir)
        .with_context(|| format!("cannot make the directory for sockets, {}", dir.display()))?;
    let meta =
        std::fs::symlink_metadata(&dir).with_context(|| format!("cannot examine {}", dir.display()))?;
    if meta.is_dir() && meta.uid() == uid && meta.mode() & 0o700 != 0o700 {
        // An umask left us less than that.
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700))
            .with_context(|| format!("cannot set the permissions of {}", dir.display()))?;
    } else if !meta.is_dir() || meta.uid() != uid || meta.mode() & 0o022 != 0 {
        bail!("{} is not a directory of this user alone; set XDG_RUNTIME_DIR to one that is", dir.display());
    }
    Ok(dir)
}

/// A path as a shell reads it.
pub(crate) fn shell(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// How this program can be called again: by its name, if that finds it, else by where it is.
pub(crate) fn program() -> String {
    let name = "bimetal";
    let Some(own) = std::env::current_exe().ok().and_then(|path| path.canonicalize().ok()) else {
        return name.to_owned();
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file());
    match found.and_then(|path| path.canonicalize().ok()) {
        Some(found) if found == own => name.to_owned(),
        _ => shell(&own),
    }
}

/// Where clients connect, as the NBD URI of an export; the empty name means the default one. An inherited socket
/// without a path has none; it is named in words.
pub(crate) fn nbd_uri(endpoint: &Endpoint, export: &str) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    let export = percent_encoded(export.as_bytes());
    match endpoint {
        Endpoint::Unix(path) => {
            format!("nbd+unix:///{export}?socket={}", percent_encoded(path.as_os_str().as_bytes()))
        }
        Endpoint::Tcp(address) => format!("nbd://{address}/{export}"),
        Endpoint::Unnamed if export.is_empty() => "an inherited unix socket without a path".to_owned(),
        Endpoint::Unnamed => format!("an inherited unix socket without a path, export {export}"),
    }
}

/// Bytes as they may stand in a URI.
fn percent_encoded(bytes: &[u8]) -> String {
    let mut text = String::new();
    for &byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' | b'~' => {
                text.push(byte as char)
            }
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_paths_with_a_size_perhaps() {
        let spec = DeviceSpec::parse("/x/y.img?size=10G").expect("valid");
        assert_eq!(spec, DeviceSpec { path: "/x/y.img".into(), size: Some(10 << 30), model: None });
        assert_eq!(DeviceSpec::parse("y").expect("valid").size, None);
        for text in ["", "?size=1G", "x?size=", "x?sise=1G", "x?file=y", "s3://bucket/x"] {
            assert!(DeviceSpec::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_export_is_a_slow_device_by_its_uri() {
        for text in ["nbd://host:10810/x", "nbd+unix:///x?socket=/a/b"] {
            let spec = DeviceSpec::parse(text).expect("valid");
            assert_eq!(spec, DeviceSpec { path: text.into(), size: None, model: None });
            assert!(is_export(&spec.path));
            let refused = DeviceSpec::parse_fast(text).expect_err("no fast device");
            assert!(refused.contains("slow one"), "{refused}");
        }
        let refused = DeviceSpec::parse("nbds://host/x").expect_err("no certificates");
        assert!(refused.contains("tls-certificates"), "{refused}");
        assert!(DeviceSpec::parse("nbd+unix:///x").is_err() && !is_export(Path::new("/nbd://x")));
    }

    #[test]
    fn modes_are_octal_and_groups_have_names_or_numbers() {
        for (text, mode) in [("0600", 0o600), ("660", 0o660), ("0o666", 0o666), ("0", 0)] {
            assert_eq!(socket_mode(text), Ok(mode), "{text}");
        }
        for text in ["", "rw", "0800", "1000", "-1", "+600", "0x1f"] {
            assert!(socket_mode(text).expect_err(text).contains("octal"), "{text}");
        }
        assert_eq!((group("root"), group("12")), (Ok(0), Ok(12)));
        for text in ["", "no such group", "-1", "4294967295"] {
            assert!(group(text).expect_err(text).contains("/etc/group"), "{text}");
        }
    }

    #[test]
    fn a_model_times_a_file() {
        let model = Some("ssd-128gb-2012");
        let spec = DeviceSpec::parse("model:ssd-128gb-2012?file=/x/y.img&size=10G").expect("valid");
        assert_eq!(spec, DeviceSpec { path: "/x/y.img".into(), size: Some(10 << 30), model });
        let spec = DeviceSpec::parse("model:ssd-128gb-2012?file=y=z").expect("valid");
        assert_eq!(spec, DeviceSpec { path: "y=z".into(), size: None, model });
        for (text, word) in [
            ("model:abacus?file=x", "flash-card-2011, "),
            ("model:?file=x", "flash-card-2011, "),
            ("model:flash-card-2011", "file=PATH"),
            ("model:flash-card-2011?size=1G", "file=PATH"),
            ("model:flash-card-2011?file=", "file=PATH"),
            ("model:flash-card-2011?file=x&file=y", "file=PATH"),
            ("model:flash-card-2011?file=x&speed=2", "speed=2"),
        ] {
            let error = DeviceSpec::parse(text).expect_err(text);
            assert!(error.contains(word) && !error.contains('\n'), "{text}: {error}");
        }
    }

    #[test]
    fn root_has_the_directories_of_the_system() {
        let home = || Ok(PathBuf::from("/home/me"));
        let none = || bail!("HOME is not set");
        let config =
            |root, named: Option<&str>| config_of(root, named.map(PathBuf::from), home).expect("home");
        assert_eq!(config(false, None), Path::new("/home/me/.config/bimetal"));
        assert_eq!(config(true, None), Path::new("/etc/bimetal"));
        assert_eq!(config(true, Some("/x")), Path::new("/x/bimetal"));
        assert_eq!(config_of(true, None, none).expect("no home is needed"), Path::new("/etc/bimetal"));
        assert!(config_of(false, None, none).is_err());

        let runtime = |uid, named: Option<&str>| runtime_of(uid, named.map(PathBuf::from));
        assert_eq!(runtime(1000, None), Path::new("/tmp/bimetal-1000"));
        assert_eq!(runtime(1000, Some("/run/user/1000")), Path::new("/run/user/1000/bimetal"));
        for named in [None, Some("/run/user/0"), Some("/run/user/1000")] {
            assert_eq!(runtime(0, named), Path::new("/run/bimetal"));
        }
        assert_eq!(runtime(0, Some("/x")), Path::new("/x/bimetal"));
    }

    #[test]
    fn paths_are_quoted_where_a_shell_needs_it() {
        for (path, quoted) in [("/a/b.c-d", "/a/b.c-d"), ("/a b", "'/a b'"), ("/it's $x", r"'/it'\''s $x'")] {
            assert_eq!(shell(Path::new(path)), quoted);
        }
    }

    #[test]
    fn uris_escape_what_is_special() {
        let socket = Endpoint::Unix("/a b/c&d.sock".into());
        assert_eq!(nbd_uri(&socket, ""), "nbd+unix:///?socket=/a%20b/c%26d.sock");
        assert_eq!(nbd_uri(&socket, "my films"), "nbd+unix:///my%20films?socket=/a%20b/c%26d.sock");
        let address = "[::1]:10809".parse().expect("an address");
        assert_eq!(nbd_uri(&Endpoint::Tcp(address), "x"), "nbd://[::1]:10809/x");
    }
}
