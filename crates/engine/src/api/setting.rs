//! What placement and the mover weigh against each other can be set by name, within a range: for scenarios and sweeps of
//! the simulator.

use crate::api::economy::Economy;
use crate::api::options::Tuning;
use bimetal_units::Nanos;
use std::ops::RangeInclusive;

/// What a setting is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Nanoseconds,
    /// One part in so many of something: more of it is less of that.
    OnePartIn,
    /// So many of these.
    Count(&'static str),
}

/// A value of [`Tuning`] that is an economic choice: another one would serve some clients better and others worse, and
/// none would lose data.
pub struct Setting {
    /// Its name: that of the field.
    pub name: &'static str,
    /// What it is counted in.
    pub unit: Unit,
    /// The values that it may have.
    pub range: RangeInclusive<u64>,
    /// What it is and what it trades, in lines.
    pub about: &'static [&'static str],
    pub(crate) get: fn(&Tuning) -> u64,
    pub(crate) set: fn(&mut Tuning, u64),
}

impl Setting {
    /// All of them, in the order in which they are told of.
    pub fn all() -> impl Iterator<Item = &'static Setting> {
        OF_TUNING.iter().chain(Economy::SETTINGS)
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<&'static Setting> {
        Setting::all().find(|setting| setting.name == name)
    }

    /// Its value.
    pub fn get(&self, tuning: &Tuning) -> u64 {
        (self.get)(tuning)
    }

    /// Its value where nobody set it.
    pub fn default(&self) -> u64 {
        self.get(&Tuning::default())
    }

    /// Gives it a value; false where that is out of its range, and nothing is changed.
    pub fn set(&self, tuning: &mut Tuning, value: u64) -> bool {
        let within = self.range.contains(&value);
        if within {
            (self.set)(tuning, value);
        }
        within
    }
}

/// Pairs of settings of which the first may not be more than the second.
const ORDERED: &[(&str, &str)] = &[
    ("caution_least", "caution_first"),
    ("caution_first", "caution_most"),
    ("copies_new_most_share", "copies_new_first_share"),
    ("copies_new_first_share", "copies_new_least_share"),
];

/// The first pair of settings of which one is more than the other, and may not be.
pub fn out_of_order(tuning: &Tuning) -> Option<[&'static Setting; 2]> {
    let pairs =
        ORDERED.iter().filter_map(|(less, more)| Some([Setting::named(less)?, Setting::named(more)?]));
    pairs.into_iter().find(|[less, more]| less.get(tuning) > more.get(tuning))
}

/// Settings of the fields of [`Tuning`] itself.
macro_rules! of_tuning {
    ($($name:ident: $kind:ident, $unit:expr, $range:expr, [$($about:literal),+];)*) => {
        const OF_TUNING: &[Setting] = &[$(Setting {
            name: stringify!($name),
            unit: $unit,
            range: $range,
            about: &[$($about),+],
            get: |tuning| tuning.$name as u64,
            set: |tuning, value| tuning.$name = value as $kind,
        }),*];
    };
}

const HOUR_NS: u64 = 3600 * Nanos::SECOND;

of_tuning! {
    promote_touches: u32, Unit::Count("touches"), 1..=255,
        ["Touches that make a slow chunk rise.", "Fewer: what is hot rises sooner, and so does what is not."];
    touch_ns: u64, Unit::Nanoseconds, Nanos::MS..=HOUR_NS,
        ["Touches of one chunk within this time count once.", "Longer: a burst counts for less, and heat is kept for longer."];
    idle_after_ns: u64, Unit::Nanoseconds, Nanos::MS..=HOUR_NS,
        ["Quiet for this long is idle.", "Shorter: more is moved between requests, which then wait for it."];
    busy_share: u32, Unit::OnePartIn, 1..=1000,
        ["Of the slow device's work, what placing chunks may have while clients are busy.",
         "More of it: what is hot rises sooner, and whoever reads the slow device waits."];
    batch_chunks: usize, Unit::Count("chunks"), 1..=4096,
        ["Chunks in one background batch at most.", "More: fewer flushes and records; what waits for a batch waits longer."];
    background_depth: usize, Unit::Count("I/Os"), 1..=1024,
        ["I/Os in flight of each batch, and of a checkpoint.", "More: the devices have more to put in order, and clients' wait among them."];
    small_write_bytes: u32, Unit::Bytes, 0..=1 << 20,
        ["First writes of up to this size land if flushes are frequent.",
         "Larger: fewer flushes of two devices, more blocks that are written twice."];
    rest_after_ns: u64, Unit::Nanoseconds, 0..=24 * HOUR_NS,
        ["A device that was not used for this long rests.",
         "Longer: more is moved after each use; the slow device is left alone for less."];
    rest_at_most_ns: u64, Unit::Nanoseconds, 0..=168 * HOUR_NS,
        ["What has landed waits so long for the slow device to be in use.", "Longer: fewer wake-ups, and more in the zone."];
    push_worth: u32, Unit::Count("times"), 0..=1000,
        ["The zone grows beyond what is held back for it where a block that is pushed down costs one part in so many of one that is merged.",
         "More: shorter bursts at the fast device's speed; what has a place there keeps it."];
    kept_from_copies: u32, Unit::Count("segments"), 1..=4096,
        ["Free segments of the zone that are not lent to copies, beside its reserve and a part of it.",
         "More: bursts find room at once; fewer copies."];
    lend_after_ns: u64, Unit::Nanoseconds, 0..=24 * HOUR_NS,
        ["Others are lent when nobody has written for so long.", "Shorter: more copies; writes may wait for segments that are recalled."];
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Whatever is set is had back, at both ends of each range, and nothing else changes with it.
    #[test]
    fn each_setting_is_a_value_of_its_own() {
        let mut names = BTreeSet::new();
        for setting in Setting::all() {
            let name = setting.name;
            assert!(names.insert(name), "{name} is there twice");
            assert!(setting.range.contains(&setting.default()), "{name}: its default is out of its range");
            for value in [*setting.range.start(), *setting.range.end()] {
                let mut tuning = Tuning::default();
                assert!(setting.set(&mut tuning, value));
                assert_eq!(setting.get(&tuning), value, "{name}");
                let changed = Setting::all().filter(|other| other.get(&tuning) != other.default());
                assert!(changed.map(|other| other.name).all(|other| other == name), "{name} moves another");
            }
            let mut tuning = Tuning::default();
            assert!(setting.range.end().checked_add(1).is_none_or(|value| !setting.set(&mut tuning, value)));
            assert_eq!(tuning, Tuning::default(), "{name}: what is out of range changes nothing");
        }
    }

    #[test]
    fn a_least_that_is_more_than_the_most_is_found() {
        let mut tuning = Tuning::default();
        assert!(out_of_order(&tuning).is_none());
        assert!(Setting::named("caution_least").is_some_and(|least| least.set(&mut tuning, 600)));
        let found = out_of_order(&tuning).map(|pair| pair.map(|setting| setting.name));
        assert_eq!(found, Some(["caution_least", "caution_first"]));
        assert!(
            ORDERED
                .iter()
                .all(|(less, more)| Setting::named(less).is_some() && Setting::named(more).is_some())
        );
    }
}
