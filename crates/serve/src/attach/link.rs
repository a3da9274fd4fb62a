//! A name for a device of the machine that stays the same: a link called after the volume.

use std::io;
use std::path::{Path, PathBuf};

/// Where the links are.
const FOLDER: &str = "/dev/bimetal";

/// Makes the link, or says in a sentence why there is none.
pub(crate) fn make(volume: &str, device: &Path) -> Result<(), String> {
    make_in(Path::new(FOLDER), volume, device)
}

fn make_in(folder: &Path, volume: &str, device: &Path) -> Result<(), String> {
    let link = folder.join(volume);
    let failed = |error: io::Error| format!("{} could not be made: {error}", link.display());
    std::fs::create_dir_all(folder).map_err(failed)?;
    if target(&link).is_some_and(|target| target != device && target.exists()) {
        return Err(format!("{} is another volume's device", link.display()));
    }
    let name = device.file_name().unwrap_or_default();
    let half = folder.join(format!(".{volume}"));
    let _ = std::fs::remove_file(&half);
    // As udev makes its own.
    std::os::unix::fs::symlink(Path::new("..").join(name), &half).map_err(failed)?;
    std::fs::rename(&half, &link).map_err(failed)
}

/// Takes the link away, if it leads to this device.
pub(crate) fn remove(volume: &str, device: &Path) {
    remove_in(Path::new(FOLDER), volume, device);
}

fn remove_in(folder: &Path, volume: &str, device: &Path) {
    let link = folder.join(volume);
    if target(&link).is_some_and(|target| target == device) {
        let _ = std::fs::remove_file(&link);
    }
}

/// The link, where it leads to this device; else the device itself.
pub(crate) fn path(volume: &str, device: &Path) -> PathBuf {
    let link = Path::new(FOLDER).join(volume);
    if target(&link).is_some_and(|target| target == device) { link } else { device.to_owned() }
}

/// Where a link in the folder leads.
fn target(link: &Path) -> Option<PathBuf> {
    let target = std::fs::read_link(link).ok()?;
    match target.strip_prefix("..") {
        Ok(name) => Some(link.parent()?.parent()?.join(name)),
        Err(_) => Some(link.parent()?.join(target)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_to_its_device_and_spares_others() {
        let dev = tempfile::tempdir().expect("a folder");
        let folder = dev.path().join("bimetal");
        let [one, other] = ["nbd0", "nbd1"].map(|name| dev.path().join(name));
        std::fs::write(&one, "").expect("a device");
        make_in(&folder, "films", &one).expect("made");
        assert_eq!(target(&folder.join("films")), Some(one.clone()));
        let refused = make_in(&folder, "films", &other).expect_err("it is taken");
        assert!(refused.contains("another volume"), "{refused}");
        remove_in(&folder, "films", &other);
        assert!(folder.join("films").exists());
        // Its device is gone: nobody's link.
        std::fs::remove_file(&one).expect("removed");
        make_in(&folder, "films", &other).expect("made");
        remove_in(&folder, "films", &other);
        assert_eq!(std::fs::read_dir(&folder).expect("the folder").count(), 0);
    }
}
