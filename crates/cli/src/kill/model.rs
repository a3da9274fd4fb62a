//! What each sector may hold, by the promise of a disk with a volatile write cache.
//!
//! A sector has a base (what it held at the last flush, or was written with FUA) and the values written to it
//! since. After a crash it must hold the base or one of those, whole. What it is found to hold is its base
//! from then on: it may not change by itself.

use bimetal_units::rng::mix;
use std::collections::BTreeMap;

pub(crate) const SECTOR: usize = 512;

/// A value of a sector: the number of the write that made it; 0 is a sector never written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Value {
    write: u64,
    zero: bool,
}

/// The sectors of one connection's part of the volume. Requests in flight on them never overlap, so the
/// order of writing is the order of the numbers.
#[derive(Debug, Default)]
pub(crate) struct Model {
    base: BTreeMap<u64, Value>,
    since: BTreeMap<u64, Vec<Value>>,
}

const NEVER: Value = Value { write: 0, zero: true };

/// Fills a sector with the bytes of write `write`: each carries its own place and the write's number, so
/// that old, torn, misplaced and foreign bytes all show.
pub(crate) fn fill(bytes: &mut [u8], sector: u64, write: u64) {
    let key = mix(write ^ sector.rotate_left(32));
    for (place, word) in bytes.chunks_exact_mut(8).enumerate() {
        let value = match place {
            0 => write,
            1 => sector,
            place => key.wrapping_mul(2 * place as u64 + 1),
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
}

impl Model {
    /// A write (or, with `zero`, a zeroing) is handed to the server.
    pub(crate) fn written(&mut self, first: u64, count: u64, write: u64, zero: bool) {
        for sector in first..first + count {
            self.since.entry(sector).or_default().push(Value { write, zero });
        }
    }

    /// A write with FUA was answered: what is older cannot come back.
    pub(crate) fn durable(&mut self, first: u64, count: u64, write: u64) {
        for sector in first..first + count {
            self.settle_up_to(sector, |value| value.write == write);
        }
    }

    /// A flush was answered that covers the writes for which `covered` holds.
    pub(crate) fn flushed(&mut self, covered: impl Fn(u64) -> bool) {
        let sectors: Vec<u64> = self.since.keys().copied().collect();
        for sector in sectors {
            self.settle_up_to(sector, |value| covered(value.write));
        }
    }

    /// The newest value for which `durable` holds becomes the base.
    fn settle_up_to(&mut self, sector: u64, durable: impl Fn(&Value) -> bool) {
        let Some(values) = self.since.get_mut(&sector) else { return };
        let Some(place) = values.iter().rposition(durable) else { return };
        self.base.insert(sector, values[place]);
        values.drain(..=place);
        if values.is_empty() {
            self.since.remove(&sector);
        }
    }

    /// Checks a sector read while nothing was being written to it: it holds the last value.
    pub(crate) fn check_latest(&self, sector: u64, bytes: &[u8]) -> Result<(), String> {
        let last = self.since.get(&sector).and_then(|values| values.last()).copied();
        let expected = last.unwrap_or_else(|| self.base_of(sector));
        match holds(bytes, sector, expected) {
            true => Ok(()),
            false => {
                Err(format!("sector {sector} holds {} and should hold {}", describe(bytes), name(expected)))
            }
        }
    }

    /// Checks a sector after a crash and settles on what it holds. Returns whether that is older than the
    /// last value written.
    pub(crate) fn check_recovered(&mut self, sector: u64, bytes: &[u8]) -> Result<bool, String> {
        let base = self.base_of(sector);
        let since = self.since.remove(&sector).unwrap_or_default();
        let newest = since.last().copied().unwrap_or(base);
        let found = since.iter().rev().chain([&base]).find(|&&value| holds(bytes, sector, value));
        match found {
            Some(&value) => {
                self.base.insert(sector, value);
                Ok(value != newest)
            }
            None => Err(format!(
                "sector {sector} holds {}; flushed was {}, written since {}",
                describe(bytes),
                name(base),
                since.iter().map(|&value| name(value)).collect::<Vec<_>>().join(", ")
            )),
        }
    }

    fn base_of(&self, sector: u64) -> Value {
        self.base.get(&sector).copied().unwrap_or(NEVER)
    }
}

fn holds(bytes: &[u8], sector: u64, value: Value) -> bool {
    if value.zero {
        return bytes.iter().all(|&byte| byte == 0);
    }
    let mut expected = [0; SECTOR];
    fill(&mut expected, sector, value.write);
    bytes == expected
}

fn name(value: Value) -> String {
    match value {
        NEVER => "zeros (never written)".to_owned(),
        Value { write, zero: true } => format!("zeros of write {write}"),
        Value { write, zero: false } => format!("write {write}"),
    }
}

fn describe(bytes: &[u8]) -> String {
    if bytes.iter().all(|&byte| byte == 0) {
        return "zeros".to_owned();
    }
    let word = |place: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[8 * place..8 * place + 8]);
        u64::from_le_bytes(word)
    };
    let (write, sector) = (word(0), word(1));
    let mut expected = [0; SECTOR];
    fill(&mut expected, sector, write);
    match bytes == expected {
        true => format!("write {write} of sector {sector}"),
        false => format!("torn or foreign bytes (they begin like write {write} of sector {sector})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sector_of(write: u64) -> [u8; SECTOR] {
        let mut bytes = [0; SECTOR];
        fill(&mut bytes, 5, write);
        bytes
    }

    #[test]
    fn the_promise_is_checked() {
        let mut model = Model::default();
        assert!(model.check_latest(5, &[0; SECTOR]).is_ok());
        model.written(5, 1, 1, false);
        model.written(5, 1, 2, false);
        model.flushed(|write| write == 1);
        model.written(5, 1, 3, false);
        assert!(model.check_latest(5, &sector_of(3)).is_ok());
        assert!(model.check_latest(5, &sector_of(2)).is_err());
        assert_eq!(model.check_recovered(5, &sector_of(2)), Ok(true));
        // Settled: it may not change by itself.
        assert!(model.check_recovered(5, &sector_of(3)).is_err());
        assert!(model.check_recovered(5, &[0; SECTOR]).is_err());
        assert_eq!(model.check_recovered(5, &sector_of(2)), Ok(false));
        model.written(5, 1, 4, true);
        model.durable(5, 1, 4);
        assert!(model.check_recovered(5, &sector_of(2)).is_err());
        let mut torn = sector_of(2);
        torn[511] ^= 1;
        assert!(model.check_recovered(5, &torn).is_err());
    }
}
