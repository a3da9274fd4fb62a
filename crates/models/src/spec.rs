//! Devices by name, and devices from parameter files.

use crate::cluster::{Cluster, ClusterParams};
use crate::device::Model;
use crate::disk::Disk;
use crate::disk::params::DiskParams;
use crate::object::{ObjectStore, ObjectStoreParams};
use crate::ssd::{Ssd, SsdParams};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use toml::de::{DeTable, Deserializer, ValueDeserializer};

/// The longest parameter file: a disk may list many defects.
const MAX_FILE_BYTES: usize = 4 << 20;

/// A device, as a parameter file describes it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Spec {
    /// A hard disk.
    HardDisk(DiskParams),
    /// An SSD or a flash card.
    Ssd(SsdParams),
    /// A store of objects over a network.
    ObjectStore(ObjectStoreParams),
    /// A device on a cluster over a network.
    Cluster(ClusterParams),
}

/// What the `kind` of a parameter file may be: the variants of [`Spec`].
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    HardDisk,
    Ssd,
    ObjectStore,
    Cluster,
}

/// Why a description makes no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The text is not what a parameter file is.
    #[error("not a parameter file: {0}")]
    Syntax(String),
    /// A value is out of its bounds.
    #[error("{field} is {value}, not from {low} to {high}")]
    Bounds {
        /// As in the file.
        field: &'static str,
        /// As in the file, or computed from it.
        value: u64,
        /// The least allowed.
        low: u64,
        /// The most allowed.
        high: u64,
    },
    /// There is too little of something.
    #[error("{field} are {value}, fewer than {least}")]
    TooFew {
        /// What is counted.
        field: &'static str,
        /// How many there are.
        value: u64,
        /// The least allowed.
        least: u64,
    },
    /// A value must be a power of two.
    #[error("{field} is {value}, not a power of two")]
    PowerOfTwo {
        /// As in the file.
        field: &'static str,
        /// As in the file.
        value: u64,
    },
    /// A hard disk with a value out of its bounds, or values that do not fit each other; the sentence says which.
    #[error("{0}")]
    Disk(String),
    /// No drive has that name.
    #[error("no modelled device is called '{name}'; there are {known}")]
    Unknown {
        /// As asked for.
        name: String,
        /// The names there are, for people.
        known: String,
    },
}

/// The drives that come with the crate: name and parameter file.
const DRIVES: [(&str, &str); 12] = [
    ("disk-1tb-2012", include_str!("../drives/disk-1tb-2012.toml")),
    ("disk-1tb-2012-rotational", include_str!("../drives/disk-1tb-2012-rotational.toml")),
    ("disk-2tb-2012", include_str!("../drives/disk-2tb-2012.toml")),
    ("disk-2tb-2012-rotational", include_str!("../drives/disk-2tb-2012-rotational.toml")),
    ("disk-20tb", include_str!("../drives/disk-20tb.toml")),
    ("flash-card-2011", include_str!("../drives/flash-card-2011.toml")),
    ("laptop-2022", include_str!("../drives/laptop-2022.toml")),
    ("nvme-present", include_str!("../drives/nvme-present.toml")),
    ("object-store", include_str!("../drives/object-store.toml")),
    ("rbd-lan", include_str!("../drives/rbd-lan.toml")),
    ("ssd-128gb-2012", include_str!("../drives/ssd-128gb-2012.toml")),
    ("ssd-480gb-2012-pcie", include_str!("../drives/ssd-480gb-2012-pcie.toml")),
];

/// The names of the devices that come with the crate, in their order.
pub fn names() -> impl Iterator<Item = &'static str> {
    DRIVES.iter().map(|&(name, _)| name)
}

/// The device of that name that comes with the crate.
pub fn named(name: &str) -> Result<Spec, SpecError> {
    let drive = DRIVES.iter().find(|(known, _)| *known == name);
    let (_, text) = drive.ok_or_else(|| SpecError::Unknown {
        name: name.to_owned(),
        known: names().collect::<Vec<_>>().join(", "),
    })?;
    Spec::parse(text)
}

impl Spec {
    /// Reads a parameter file (TOML, with `kind` at its top) and checks it.
    pub fn parse(text: &str) -> Result<Spec, SpecError> {
        if text.len() > MAX_FILE_BYTES {
            return Err(SpecError::Syntax(format!("longer than {} MiB", MAX_FILE_BYTES >> 20)));
        }
        let spec = Spec::deserialize(text).map_err(|error| {
            let line = error.span().map(|span| 1 + text[..span.start].matches('\n').count());
            let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
            let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
            SpecError::Syntax(format!("{place}{message}"))
        })?;
        match &spec {
            Spec::HardDisk(params) => params.validate()?,
            Spec::Ssd(params) => params.validate()?,
            Spec::ObjectStore(params) => params.validate()?,
            Spec::Cluster(params) => params.validate()?,
        }
        Ok(spec)
    }

    /// By hand and not derived: serde's enums with the tag inside forget on which line an error is.
    fn deserialize(text: &str) -> Result<Spec, toml::de::Error> {
        let mut table = DeTable::parse(text)?;
        let kind = table.get_mut().remove("kind").ok_or_else(|| serde::de::Error::missing_field("kind"))?;
        let rest = Deserializer::from(table);
        Ok(match Kind::deserialize(ValueDeserializer::from(kind))? {
            Kind::HardDisk => Spec::HardDisk(DiskParams::deserialize(rest)?),
            Kind::Ssd => Spec::Ssd(SsdParams::deserialize(rest)?),
            Kind::ObjectStore => Spec::ObjectStore(ObjectStoreParams::deserialize(rest)?),
            Kind::Cluster => Spec::Cluster(ClusterParams::deserialize(rest)?),
        })
    }

    /// The device as a parameter file.
    pub fn to_toml(&self) -> Result<String, SpecError> {
        toml::to_string(self).map_err(|error| SpecError::Syntax(error.to_string()))
    }

    /// The same device with another size, everything else in proportion; a disk holds whole sectors.
    #[must_use]
    pub fn resized(&self, size_bytes: u64) -> Spec {
        match self {
            Spec::HardDisk(params) => Spec::HardDisk(params.resized(size_bytes)),
            Spec::Ssd(params) => Spec::Ssd(params.resized(size_bytes)),
            Spec::ObjectStore(params) => {
                Spec::ObjectStore(ObjectStoreParams { size_bytes, ..params.clone() })
            }
            Spec::Cluster(params) => Spec::Cluster(ClusterParams { size_bytes, ..params.clone() }),
        }
    }

    /// Bytes that the device holds.
    pub fn size_bytes(&self) -> u64 {
        match self {
            Spec::HardDisk(params) => params.bytes(),
            Spec::Ssd(params) => params.size_bytes,
            Spec::ObjectStore(params) => params.size_bytes,
            Spec::Cluster(params) => params.size_bytes,
        }
    }

    /// A model of it, fresh. The seed is for devices whose times are drawn.
    pub fn build(&self, seed: u64) -> Result<Box<dyn Model>, SpecError> {
        Ok(match self {
            Spec::HardDisk(params) => Box::new(Disk::new(params)?),
            Spec::Ssd(params) => Box::new(Ssd::new(params.clone())?),
            Spec::ObjectStore(params) => Box::new(ObjectStore::new(params.clone(), seed)?),
            Spec::Cluster(params) => Box::new(Cluster::new(params.clone(), seed)?),
        })
    }
}

/// Checks a value against its bounds.
pub(crate) fn within(field: &'static str, value: u64, bounds: RangeInclusive<u64>) -> Result<(), SpecError> {
    if bounds.contains(&value) {
        return Ok(());
    }
    Err(SpecError::Bounds { field, value, low: *bounds.start(), high: *bounds.end() })
}

/// Checks that a value is at least so much.
pub(crate) fn at_least(field: &'static str, value: u64, least: u64) -> Result<(), SpecError> {
    if value >= least { Ok(()) } else { Err(SpecError::TooFew { field, value, least }) }
}

/// Checks that a value is a power of two.
pub(crate) fn power_of_two(field: &'static str, value: u64) -> Result<(), SpecError> {
    if value.is_power_of_two() { Ok(()) } else { Err(SpecError::PowerOfTwo { field, value }) }
}
