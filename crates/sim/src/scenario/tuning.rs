//! `[tuning]`: what placement and the mover weigh against each other, set by name.
//!
//! ```toml
//! [tuning]
//! push_worth = 8
//! busy_share = "1/20"
//! push_run_bytes = "32M"
//! borrowed_kept_ns = "10min"
//! ```

use super::report::SetTo;
use bimetal_engine::options::Tuning;
use bimetal_engine::setting::{Setting, Unit, out_of_order};
use bimetal_models::size;
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, Visitor};
use std::fmt;
use strsim::levenshtein;

/// Values of settings; all others are what they are by default.
#[derive(Clone, Default)]
pub struct TuningSpec {
    set: Vec<(&'static Setting, u64)>,
}

impl TuningSpec {
    /// What is set.
    pub fn all(&self) -> impl Iterator<Item = (&'static Setting, u64)> + '_ {
        self.set.iter().copied()
    }

    /// Whether nothing is.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// Sets one more; what was set of it before counts no more.
    pub fn set(&mut self, setting: &'static Setting, value: u64) {
        self.set.retain(|(other, _)| other.name != setting.name);
        self.set.push((setting, value));
    }

    /// This, with more of it set.
    #[must_use]
    pub fn with(mut self, values: &[(&'static Setting, u64)]) -> TuningSpec {
        values.iter().for_each(|(setting, value)| self.set(setting, *value));
        self
    }

    /// What is set, as a report tells of it.
    pub fn told(&self) -> Vec<SetTo> {
        let told = |(setting, value): (&'static Setting, u64)| SetTo {
            name: setting.name,
            value,
            default: setting.default(),
        };
        self.all().map(told).collect()
    }

    /// The tuning with all of it.
    pub fn applied(&self, mut tuning: Tuning) -> Tuning {
        for (setting, value) in self.all() {
            let within = setting.set(&mut tuning, value);
            assert!(within, "{} was checked", setting.name);
        }
        tuning
    }

    /// Checks what no value alone can be wrong in.
    pub fn check(&self) -> Result<(), String> {
        let tuning = self.applied(Tuning::default());
        let Some([less, more]) = out_of_order(&tuning) else { return Ok(()) };
        let say = |setting: &Setting| show(setting, setting.get(&tuning));
        Err(format!(
            "[tuning] {} = {:?} and {} = {:?} do not go together: as a number, the first is the greater, and may not be",
            less.name,
            say(less),
            more.name,
            say(more)
        ))
    }
}

impl fmt::Debug for TuningSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.all().map(|(setting, value)| (setting.name, show(setting, value))))
            .finish()
    }
}

/// The setting of this name, or a sentence with the one whose name is nearest, and its range.
pub fn find(name: &str) -> Result<&'static Setting, String> {
    if let Some(setting) = Setting::named(name) {
        return Ok(setting);
    }
    let shown: String = name.chars().take(64).collect();
    let near = Setting::all().map(|setting| (levenshtein(&shown, setting.name), setting));
    let near = near.min_by_key(|(wrong, _)| *wrong).filter(|(wrong, it)| *wrong <= 1 + it.name.len() / 3);
    let cure = match near {
        Some((_, setting)) => format!("the nearest is {}, {}", setting.name, range(setting)),
        None => "`bimetal sim sweep --list` says which there are".to_owned(),
    };
    Err(format!("there is no setting {shown:?}; {cure}"))
}

/// The values that a setting may have, in words.
pub fn range(setting: &Setting) -> String {
    let (least, most) = (*setting.range.start(), *setting.range.end());
    let unit = match setting.unit {
        Unit::Count(of) => format!(" {of}"),
        _ => String::new(),
    };
    format!("from {} to {}{unit}", show(setting, least), show(setting, most))
}

/// A value as [`value`] reads it.
pub fn show(setting: &Setting, value: u64) -> String {
    match setting.unit {
        Unit::Bytes => size::exact(value),
        Unit::Nanoseconds => {
            let unit = TIMES.iter().rev().find(|(_, ns)| value >= *ns && value.is_multiple_of(*ns));
            unit.map_or_else(|| format!("{value}ns"), |(unit, ns)| format!("{}{unit}", value / ns))
        }
        Unit::OnePartIn => format!("1/{value}"),
        Unit::Count(_) => value.to_string(),
    }
}

const TIMES: [(&str, u64); 6] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// A value of a setting: a number, or with its unit (`32M`, `1.5s`, `1/8`), or so many times its default (`x2`).
///
/// # Errors
///
/// A sentence, if the text is no such value or it is out of range.
pub fn value(setting: &'static Setting, text: &str) -> Result<u64, String> {
    let text = text.trim();
    let found = match (text.strip_prefix('x'), setting.unit) {
        (Some(times), _) => {
            times.parse::<f64>().ok().and_then(|times| whole(setting.default() as f64 * times))
        }
        (None, Unit::Bytes) => size::parse(text).ok(),
        (None, Unit::Nanoseconds) => time(text),
        (None, Unit::OnePartIn) => text.strip_prefix("1/").unwrap_or(text).trim().parse().ok(),
        (None, Unit::Count(_)) => text.parse().ok(),
    };
    let example = show(setting, setting.default());
    let found = found.ok_or_else(|| {
        format!(
            "{} = {:?} is no value of it; write one such as {example}, {}",
            setting.name,
            short(text),
            range(setting)
        )
    })?;
    within(setting, found)
}

fn within(setting: &'static Setting, value: u64) -> Result<u64, String> {
    match setting.range.contains(&value) {
        true => Ok(value),
        false => Err(format!(
            "{} = {} is out of its range, {}",
            setting.name,
            show(setting, value),
            range(setting)
        )),
    }
}

fn short(text: &str) -> String {
    text.chars().take(64).collect()
}

/// Rounded down, where it fits.
fn whole(value: f64) -> Option<u64> {
    (value.is_finite() && value >= 0.0 && value < 2f64.powi(62)).then_some(value as u64)
}

fn time(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = text[digits.len()..].trim();
    let ns = if unit.is_empty() { 1 } else { TIMES.iter().find(|(name, _)| *name == unit)?.1 };
    match digits.trim().parse::<u64>() {
        Ok(number) => number.checked_mul(ns),
        Err(_) => whole(digits.trim().parse::<f64>().ok()? * ns as f64),
    }
}

/// A key of `[tuning]`, so that an error is shown where it stands.
struct Name(&'static Setting);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
        let name = String::deserialize(deserializer)?;
        find(&name).map(Name).map_err(de::Error::custom)
    }
}

/// A value of this setting.
struct ValueOf(&'static Setting);

impl<'de> DeserializeSeed<'de> for ValueOf {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for ValueOf {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value of {}, {}", self.0.name, range(self.0))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<u64, E> {
        match u64::try_from(number) {
            Ok(number) => within(self.0, number).map_err(E::custom),
            Err(_) => {
                Err(E::custom(format!("{} = {number} is out of its range, {}", self.0.name, range(self.0))))
            }
        }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
        value(self.0, text).map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for TuningSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TuningSpec, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = TuningSpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names of settings with their values")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<TuningSpec, M::Error> {
                let mut spec = TuningSpec::default();
                while let Some(Name(setting)) = map.next_key()? {
                    spec.set(setting, map.next_value_seed(ValueOf(setting))?);
                }
                Ok(spec)
            }
        }
        deserializer.deserialize_map(All)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> Result<TuningSpec, String> {
        toml::from_str::<TuningSpec>(text).map_err(|error| error.to_string())
    }

    #[test]
    fn values_have_the_unit_of_their_setting() {
        let spec = spec(
            "push_worth = 8\nbusy_share = '1/20'\npush_run_bytes = '32M'\nborrowed_kept_ns = '1.5h'\ndense_chunks = 'x0.5'",
        )
        .expect("a spec");
        let tuning = spec.applied(Tuning::default());
        assert_eq!((tuning.push_worth, tuning.busy_share), (8, 20));
        let economy = tuning.economy;
        assert_eq!(
            (economy.push_run_bytes, economy.borrowed_kept_ns, economy.dense_chunks),
            (32 << 20, 5_400_000_000_000, 8)
        );
    }

    /// Each setting's default and both ends of its range are read as they are shown.
    #[test]
    fn what_is_shown_is_read() {
        for setting in Setting::all() {
            for number in [setting.default(), *setting.range.start(), *setting.range.end()] {
                let shown = show(setting, number);
                assert_eq!(value(setting, &shown), Ok(number), "{} = {shown}", setting.name);
            }
            assert_eq!(value(setting, "x1"), Ok(setting.default()));
        }
    }

    #[test]
    fn what_makes_no_sense_is_said_with_line_name_and_range() {
        for (text, words) in [
            (
                "push_worth = 8\npush_wort = 3",
                &["line 2", "push_wort", "the nearest is push_worth", "from 0 to 1000"][..],
            ),
            ("zzz = 3", &["line 1", "no setting \"zzz\"", "sim sweep --list"]),
            ("dense_chunks = 65", &["line 1", "dense_chunks = 65 is out of its range, from 1 to 64 chunks"]),
            ("dense_chunks = -1", &["dense_chunks = -1", "from 1 to 64"]),
            ("busy_share = '2/3'", &["busy_share", "1/10", "from 1/1 to 1/1000"]),
            ("touch_ns = '3 weeks'", &["touch_ns", "1s", "from 1ms to 1h"]),
            ("touch_ns = true", &["a value of touch_ns, from 1ms to 1h"]),
            ("touch_ns = 1.5", &["a value of touch_ns"]),
            ("push_run_bytes = '9999999T'", &["push_run_bytes", "from 1M to 1G"]),
            ("dense_chunks = 'x1e300'", &["dense_chunks"]),
            ("dense_chunks = 'xNaN'", &["dense_chunks"]),
        ] {
            let error = spec(text).expect_err(text);
            assert!(words.iter().all(|word| error.contains(word)), "{text}: {error}");
        }
        let long = format!("{} = 3", "x".repeat(100_000));
        assert!(spec(&long).expect_err("no such").contains("there is no setting"));
    }

    #[test]
    fn values_that_do_not_go_together_are_refused() {
        let check = |text| spec(text).and_then(|spec| spec.check());
        assert_eq!(check("caution_least = 100\ncaution_first = 100"), Ok(()));
        let error = check("caution_least = 300").expect_err("it is more than caution_first");
        assert!(
            error.contains("caution_least = \"300\"") && error.contains("caution_first = \"192\""),
            "{error}"
        );
    }
}
