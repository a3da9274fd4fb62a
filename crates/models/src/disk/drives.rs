//! Drives that are derived from what reviews and data sheets say of their kind.

use super::params::DiskParams;

/// Names and parameter files.
const DRIVES: &[(&str, &str)] = &[
    ("disk-1tb-2012", include_str!("../../drives/disk-1tb-2012.toml")),
    ("disk-1tb-2012-rotational", include_str!("../../drives/disk-1tb-2012-rotational.toml")),
    ("disk-2tb-2012", include_str!("../../drives/disk-2tb-2012.toml")),
    ("disk-2tb-2012-rotational", include_str!("../../drives/disk-2tb-2012-rotational.toml")),
    ("disk-20tb", include_str!("../../drives/disk-20tb.toml")),
];

/// The names that [`named`] knows.
pub fn names() -> impl Iterator<Item = &'static str> {
    DRIVES.iter().map(|&(name, _)| name)
}

/// The parameters of a derived drive.
pub fn named(name: &str) -> Option<DiskParams> {
    let (_, text) = DRIVES.iter().find(|&&(known, _)| known == name)?;
    DiskParams::parse(text).ok()
}
