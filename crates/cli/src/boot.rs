//! `bimetal boot-units`: a generator, which systemd runs before anything else, and again whenever it reads its units.
//!
//! A volume's unit says nothing of its devices, which only the volume file knows. So for each volume file the unit gets a
//! piece that lets it wait for them, and each device wants the unit of a volume that is enabled. Devices go by what their
//! superblocks say (`/dev/disk/by-bimetal`, made by udev's rule), so that they may have any name. They are waited for, not
//! required: with one missing the server starts when systemd has waited long enough, and says itself what it misses.

use crate::args::BootUnitsArgs;
use crate::volume::Volume;
use crate::{Outcome, find, list, paths};
use anyhow::Context as _;
use bimetal_serve::status::{hex, tier_name};
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The services of a volume: with a block device of this machine, and for network block devices only.
const TEMPLATES: [&str; 2] = ["bimetal", "bimetal-nbd"];

pub(crate) fn units(args: &BootUnitsArgs) -> anyhow::Result<Outcome> {
    for file in list::named()? {
        // What cannot be read is the service's to say, where it is seen.
        let Ok(volume) = Volume::load(&file) else { continue };
        for template in TEMPLATES {
            write(&volume, template, args).with_context(|| {
                format!("cannot write units of {} to {}", file.display(), args.output.display())
            })?;
        }
    }
    Ok(Outcome::Good)
}

fn write(volume: &Volume, template: &str, args: &BootUnitsArgs) -> io::Result<()> {
    let unit = format!("{template}@{}.service", volume.name().0);
    let folder = args.output.join(format!("{unit}.d"));
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("50-devices.conf"), waits(volume))?;
    if !is_enabled(&unit, &args.units) {
        return Ok(());
    }
    let of_template = format!("{template}@.service");
    let there = args.units.iter().map(|dir| dir.join(&of_template)).find(|path| path.exists());
    let Some(there) = there else { return Ok(()) };
    for device in members(volume) {
        let folder = args.output.join(format!("{device}.wants"));
        fs::create_dir_all(&folder)?;
        match symlink(&there, folder.join(&unit)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Whether somebody has enabled a unit, for whatever wants it.
fn is_enabled(unit: &str, folders: &[PathBuf]) -> bool {
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let wanting =
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "wants"));
    wanting.map(|folder| folder.join(unit)).any(|link| fs::symlink_metadata(link).is_ok())
}

/// The units of a volume's block devices. Its tiers that are files have none.
fn members(volume: &Volume) -> Vec<String> {
    let on_device = |(_, path): &(usize, &PathBuf)| path.starts_with("/dev");
    let tiers = volume.devices.iter().enumerate().filter(on_device);
    tiers.map(|(tier, _)| device_unit(&member(volume, tier))).collect()
}

/// Udev's link to a volume's device.
fn member(volume: &Volume, tier: usize) -> PathBuf {
    Path::new(find::MEMBERS_DIRECTORY).join(format!("{}-{}", hex(&volume.id), tier_name(tier)))
}

/// What the service waits for.
fn waits(volume: &Volume) -> String {
    let mut text = format!("# Made of {} by bimetal boot-units.\n[Unit]\n", volume.file.display());
    for unit in members(volume) {
        text += &format!("Wants={unit}\nAfter={unit}\n");
    }
    for path in volume.devices.iter().filter(|path| !path.starts_with("/dev")) {
        match paths::is_export(path) {
            true => text += "Wants=network-online.target\nAfter=network-online.target\n",
            false => text += &format!("RequiresMountsFor={}\n", quoted(path)),
        }
    }
    text
}

/// A path as a unit file has it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%"))
}

/// The name of the unit of a device, as systemd makes it of its path.
fn device_unit(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    let mut name = String::new();
    for &byte in path.as_os_str().as_bytes().iter().skip(1) {
        match byte {
            b'/' => name.push('-'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b':' | b'_' | b'.' => name.push(byte.into()),
            other => name += &format!("\\x{other:02x}"),
        }
    }
    name + ".device"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(dir: &Path, name: &str, devices: [&str; 2]) -> Volume {
        let volume = Volume {
            file: dir.join(format!("{name}.toml")),
            id: [0xab; 16],
            devices: devices.map(PathBuf::from).to_vec(),
            models: vec![None, None],
            wear_budget: None,
            wake_budget: None,
            on_event: None,
            remote_patience: None,
            protect: None,
            replacing: None,
            unfinished: false,
        };
        volume.save().expect("a volume file");
        volume
    }

    #[test]
    fn units_of_devices_are_called_as_systemd_calls_them() {
        let unit = device_unit(Path::new("/dev/disk/by-bimetal/ab-fast"));
        assert_eq!(unit, "dev-disk-by\\x2dbimetal-ab\\x2dfast.device");
    }

    #[test]
    fn a_volume_waits_for_its_devices_and_for_the_file_systems_of_its_files() {
        let dir = tempfile::tempdir().expect("a folder");
        let text = waits(&volume(dir.path(), "films", ["/dev/nvme0n1p4", "/srv/a 100%\".img"]));
        let id = "ab".repeat(16);
        assert!(text.contains(&format!("\nAfter=dev-disk-by\\x2dbimetal-{id}\\x2dfast.device\n")), "{text}");
        assert!(!text.contains("slow"), "{text}");
        assert!(text.contains("\nRequiresMountsFor=\"/srv/a 100%%\\\".img\"\n"), "{text}");
        assert!(!text.contains("Requires="), "what is missing is the server's to say: {text}");
    }

    #[test]
    fn a_volume_on_an_export_waits_for_the_network() {
        let dir = tempfile::tempdir().expect("a folder");
        let text = waits(&volume(dir.path(), "films", ["/dev/nvme0n1p4", "nbd://host/films"]));
        assert!(
            text.contains("\nAfter=network-online.target\n") && !text.contains("RequiresMountsFor"),
            "{text}"
        );
    }

    #[test]
    fn only_devices_of_enabled_volumes_start_them() {
        let dir = tempfile::tempdir().expect("a folder");
        let units = dir.path().join("units");
        fs::create_dir_all(units.join("multi-user.target.wants")).expect("folders");
        fs::write(units.join("bimetal@.service"), "").expect("a unit");
        let args =
            BootUnitsArgs { output: dir.path().join("out"), units: vec![dir.path().join("none"), units] };
        let films = volume(dir.path(), "films", ["/dev/sda", "/dev/sdb"]);
        write(&films, "bimetal", &args).expect("units");
        let wants = args.output.join(format!("{}.wants/bimetal@films.service", members(&films)[1]));
        assert!(args.output.join("bimetal@films.service.d/50-devices.conf").exists());
        assert!(fs::symlink_metadata(&wants).is_err());
        // Where a link leads is not what counts.
        symlink("/nowhere", args.units[1].join("multi-user.target.wants/bimetal@films.service"))
            .expect("a link");
        write(&films, "bimetal", &args).expect("units");
        write(&films, "bimetal", &args).expect("systemd empties the folder; twice is no harm");
        assert_eq!(fs::read_link(&wants).expect("a link"), args.units[1].join("bimetal@.service"));
    }
}
