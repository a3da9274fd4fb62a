//! Amounts of bytes, as a scenario says them.

use bimetal_models::size;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use std::fmt;

/// The largest share of a trace, percent: a device may well hold more than a trace touches.
const MAX_TRACE_PERCENT: f64 = 1e6;

/// Bytes: a number, or as people write it ("128K").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

/// Bytes, or a share of the target or of what the trace touches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Extent {
    /// So many bytes.
    Bytes(u64),
    /// So many parts of a hundred of the target.
    Percent(f64),
    /// So many parts of a hundred of what the trace touches.
    OfTrace(f64),
}

/// What shares are taken of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Whole {
    /// Bytes of the target.
    pub target_bytes: u64,
    /// Bytes that the trace touches, in whole grains; 0 without a trace.
    pub trace_bytes: u64,
}

impl Default for Extent {
    fn default() -> Extent {
        Extent::Bytes(0)
    }
}

impl Extent {
    /// Bytes of this whole.
    pub fn of(self, whole: Whole) -> u64 {
        let share = |bytes: u64, percent: f64| (bytes as f64 * percent / 100.0) as u64;
        match self {
            Extent::Bytes(bytes) => bytes,
            Extent::Percent(percent) => share(whole.target_bytes, percent),
            Extent::OfTrace(percent) => share(whole.trace_bytes, percent),
        }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        match deserializer.deserialize_any(ExtentVisitor)? {
            Extent::Bytes(bytes) => Ok(Size(bytes)),
            _ => Err(de::Error::custom("a share has no meaning here; write a size")),
        }
    }
}

impl<'de> Deserialize<'de> for Extent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Extent, D::Error> {
        deserializer.deserialize_any(ExtentVisitor)
    }
}

struct ExtentVisitor;

impl Visitor<'_> for ExtentVisitor {
    type Value = Extent;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes, a size such as \"128K\", or a share such as \"50%\" or \"10% of trace\"")
    }

    fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Extent, E> {
        u64::try_from(bytes)
            .map(Extent::Bytes)
            .map_err(|_| E::custom(format!("{bytes} bytes are fewer than none")))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Extent, E> {
        let (share, of_trace) = match text.trim().strip_suffix("of trace") {
            Some(share) => (share.trim(), true),
            None => (text.trim(), false),
        };
        let Some(percent) = share.strip_suffix('%') else {
            if of_trace {
                return Err(E::custom(format!(
                    "{text:?} is not a share of the trace such as \"10% of trace\""
                )));
            }
            return size::parse(text).map(Extent::Bytes).map_err(E::custom);
        };
        let most = if of_trace { MAX_TRACE_PERCENT } else { 100.0 };
        match percent.trim().parse::<f64>() {
            Ok(percent) if !(0.0..=most).contains(&percent) => {
                Err(E::custom(format!("{text:?} is not a share from 0% to {most}%")))
            }
            Ok(percent) if of_trace => Ok(Extent::OfTrace(percent)),
            Ok(percent) => Ok(Extent::Percent(percent)),
            Err(_) => Err(E::custom(format!("{text:?} is not a share such as \"50%\" or \"10% of trace\""))),
        }
    }
}
