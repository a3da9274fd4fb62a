//! What is known of a device of the machine over the end of the server that serves it: a small file in the runtime
//! directory, which goes with the machine's own end, as the device does.

use super::{AttachedDoc, Kind, Wish, link};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// Its layout.
const VERSION: u32 = 1;
/// Longest file taken.
const MAX_BYTES: u64 = 64 << 10;

/// A device of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    version: u32,
    /// The volume's name.
    pub volume: String,
    /// The volume's identity, 32 hexadecimal digits.
    pub volume_id: String,
    /// How it is made.
    pub kind: Kind,
    /// Its number among devices of its kind.
    pub number: u32,
    /// The folder that is mounted for it, where its way needs one.
    #[serde(default)]
    pub folder: Option<PathBuf>,
    /// What was wished for.
    pub wish: Wish,
    /// The unit that it is read and written in.
    pub sector_bytes: u32,
    /// The process that serves it, or served it last.
    pub server: u32,
    /// It was taken away when its server stopped, since nobody held it; the next one is to make it again.
    #[serde(default)]
    pub put_away: bool,
}

impl Record {
    /// Of a device that this process serves.
    pub(crate) fn new(
        volume: &str,
        volume_id: &str,
        kind: Kind,
        number: u32,
        wish: Wish,
        sector: u32,
    ) -> Record {
        Record {
            version: VERSION,
            volume: volume.to_owned(),
            volume_id: volume_id.to_owned(),
            kind,
            number,
            folder: None,
            wish,
            sector_bytes: sector,
            server: std::process::id(),
            put_away: false,
        }
    }

    /// The same, served by this process.
    pub(crate) fn taken_up(self) -> Record {
        Record { server: std::process::id(), ..self }
    }

    /// The same, taken away until the next server makes it again.
    pub(crate) fn put_away(self) -> Record {
        Record { put_away: true, ..self }
    }

    /// What the kernel calls it.
    pub fn device(&self) -> PathBuf {
        let name = match self.kind {
            Kind::Ublk => bimetal_driver::ublk::name(self.number),
            Kind::Nbd => bimetal_driver::kernel_nbd::name(self.number),
            Kind::Fuse => format!("loop{}", self.number),
        };
        Path::new("/dev").join(name)
    }

    /// By this the kernel's NBD client knows the device again.
    pub(crate) fn nbd_identity(&self) -> String {
        format!("bimetal-{}", self.volume_id)
    }

    /// By this the device is known among those of `ublk`.
    pub(crate) fn ublk_identity(&self) -> u64 {
        ublk_identity(&self.volume_id)
    }

    /// What documents tell of it.
    pub fn doc(&self, served: bool, notes: Vec<String>) -> AttachedDoc {
        AttachedDoc {
            path: link::path(&self.volume, &self.device()),
            device: self.device(),
            kind: self.kind,
            read_only: self.wish.read_only,
            wait_seconds: self.wish.wait_seconds,
            served,
            notes,
        }
    }

    /// Writes it, whole or not at all.
    pub(crate) fn save(&self, file: &Path) -> io::Result<()> {
        let half = file.with_extension("attached-new");
        std::fs::write(&half, serde_json::to_vec(self)?)?;
        std::fs::rename(&half, file)
    }
}

/// A number made of the first digits of a volume's identity.
pub(crate) fn ublk_identity(volume_id: &str) -> u64 {
    volume_id.get(..16).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or_default()
}

/// What is recorded in a file; none where there is none. What cannot be read is an error in a sentence.
pub fn recorded(file: &Path) -> io::Result<Option<Record>> {
    let odd = |why: String| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", file.display()));
    match std::fs::metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        Ok(meta) if !meta.is_file() || meta.len() > MAX_BYTES => {
            return Err(odd("it is no record".to_owned()));
        }
        Ok(_) => {}
    }
    let record: Record = serde_json::from_slice(&std::fs::read(file)?)
        .map_err(|error| odd(format!("it does not say which device is attached ({error}); remove it")))?;
    if record.version != VERSION {
        return Err(odd(format!("it is of version {}, and this program knows {VERSION}", record.version)));
    }
    Ok(Some(record))
}

/// Nothing is attached any more.
pub(crate) fn forget(file: &Path) {
    // What is not there need not be removed, and what cannot be is found to be of no device by the next server.
    let _ = std::fs::remove_file(file);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let wish = Wish { kind: None, read_only: true, wait_seconds: 7 };
        Record::new("films", "00112233445566778899aabbccddeeff", Kind::Nbd, 3, wish, 512)
    }

    #[test]
    fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("films.attached");
        assert_eq!(recorded(&file).expect("nothing there"), None);
        record().save(&file).expect("written");
        assert_eq!(recorded(&file).expect("readable"), Some(record()));
        assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 1);
        forget(&file);
        assert_eq!(recorded(&file).expect("nothing there"), None);
    }

    #[test]
    fn what_is_no_record_is_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("films.attached");
        let newer = serde_json::to_string(&Record { version: 9, ..record() }).expect("text");
        for (text, word) in [("", "which device"), ("{}", "which device"), (newer.as_str(), "version 9")] {
            std::fs::write(&file, text).expect("written");
            let error = recorded(&file).expect_err(text).to_string();
            assert!(error.contains(word) && error.contains("films.attached"), "{error}");
        }
        assert!(recorded(folder.path()).is_err());
    }

    #[test]
    fn devices_have_the_kernels_names() {
        let names = Kind::ALL.map(|kind| Record { kind, ..record() }.device());
        assert_eq!(names, ["/dev/ublkb3", "/dev/nbd3", "/dev/loop3"].map(PathBuf::from));
        assert_eq!(record().ublk_identity(), 0x0011_2233_4455_6677);
        assert_eq!(record().nbd_identity(), "bimetal-00112233445566778899aabbccddeeff");
        assert_eq!(ublk_identity("short"), 0);
    }
}
