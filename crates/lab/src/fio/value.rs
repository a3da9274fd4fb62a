//! The value of an option, read as what the option wants.

use super::error::Problem;
use super::number::{self, Extent, KbBase};
use super::options::{Limit, Metric, PatternPart, PerSide, SteadyState};

pub(crate) type Result<T> = std::result::Result<T, Problem>;

/// Bytes of a pattern: fio's own limit.
pub const MOST_PATTERN_BYTES: usize = 512;
/// Sizes of a `bssplit`: fio's own limit.
pub const MOST_SPLITS: usize = 64;
/// Percentiles of a list: fio's own limit.
pub const MOST_PERCENTILES: usize = 20;

/// What stands behind the `=`.
pub(crate) struct Given<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: Option<&'a str>,
    pub(crate) base: KbBase,
}

impl<'a> Given<'a> {
    /// The value, which must be there.
    pub(crate) fn text(&self) -> Result<&'a str> {
        let text = self.value.map(str::trim).filter(|value| !value.is_empty());
        text.ok_or_else(|| Problem::new("a value is missing", format!("write {}=VALUE", self.name)))
    }

    pub(crate) fn owned(&self) -> Result<Option<String>> {
        self.text().map(|text| Some(text.trim().into()))
    }

    /// 0 or 1: fio's booleans want to be told.
    pub(crate) fn bool(&self) -> Result<bool> {
        match self.value.map(str::trim) {
            Some("0") => Ok(false),
            Some("1") => Ok(true),
            Some(value) => Err(Problem::new(format!("`{value}` is neither 0 nor 1"), "write one of them")),
            None => Err(Problem::new("fio wants 0 or 1 here", format!("write {}=1", self.name))),
        }
    }

    pub(crate) fn not(&self) -> Result<bool> {
        self.bool().map(|value| !value)
    }

    /// The name alone, or a number: any but 0 is yes, as in fio.
    pub(crate) fn flag(&self) -> Result<bool> {
        match self.value.map(|value| number::bytes(value, self.base)) {
            None => Ok(true),
            Some(Ok(number)) => Ok(number != 0),
            Some(Err(_)) => self.bool(),
        }
    }

    /// Which of these words.
    pub(crate) fn word<T: Copy>(&self, words: &[(&str, T)]) -> Result<T> {
        let text = self.text()?;
        let found = words.iter().find(|(word, _)| *word == text);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let all = words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
            Problem::new(format!("`{text}` is not offered"), format!("write one of: {all}"))
        })
    }

    fn count(&self, least: u32) -> Result<u32> {
        let value = number::bytes(self.text()?, self.base)?;
        let value = u32::try_from(value).ok().filter(|value| *value >= least);
        let cure = format!("write a number from {least} to {}", u32::MAX);
        value.ok_or_else(|| Problem::new(format!("{} is out of range", self.value.unwrap_or_default()), cure))
    }

    pub(crate) fn at_least_0(&self) -> Result<u32> {
        self.count(0)
    }

    pub(crate) fn at_least_1(&self) -> Result<u32> {
        self.count(1)
    }

    /// A number of times, 0 of which is once.
    pub(crate) fn times(&self) -> Result<u32> {
        self.count(0).map(|times| times.max(1))
    }

    /// Something that may be named, and has the job's name if not; a name that it has already stays.
    pub(crate) fn maybe_named(&self, before: Option<String>) -> Option<String> {
        match self.value.map(str::trim).filter(|value| !value.is_empty()) {
            Some(name) => Some(name.to_owned()),
            None => before.or(Some(String::new())),
        }
    }
    pub(crate) fn bytes(&self) -> Result<u64> {
        number::bytes(self.text()?, self.base)
    }

    /// A number, 0 of which is none.
    pub(crate) fn unless_0(&self) -> Result<Option<u64>> {
        self.bytes().map(|value| Some(value).filter(|value| *value > 0))
    }

    pub(crate) fn extent(&self) -> Result<Extent> {
        number::extent(self.text()?, self.base)
    }

    /// An extent, 0 of which is none.
    pub(crate) fn extent_unless_0(&self) -> Result<Option<Extent>> {
        self.extent().map(|extent| Some(extent).filter(|extent| *extent != Extent::Bytes(0)))
    }

    pub(crate) fn byte_range(&self) -> Result<Option<(u64, u64)>> {
        number::range(self.text()?, |text| number::bytes(text, self.base)).map(Some)
    }

    pub(crate) fn seconds(&self) -> Result<u64> {
        number::seconds(self.text()?)
    }

    pub(crate) fn seconds_unless_0(&self) -> Result<Option<u64>> {
        self.seconds().map(|value| Some(value).filter(|value| *value > 0))
    }

    pub(crate) fn seconds_range(&self) -> Result<(u64, u64)> {
        number::range(self.text()?, number::seconds)
    }

    pub(crate) fn micros(&self) -> Result<u64> {
        number::micros(self.text()?)
    }

    pub(crate) fn micros_unless_0(&self) -> Result<Option<u64>> {
        self.micros().map(|value| Some(value).filter(|value| *value > 0))
    }

    pub(crate) fn percent(&self) -> Result<u8> {
        percent(self.text()?)
    }

    pub(crate) fn decimal_percent(&self) -> Result<f64> {
        let value = number::decimal(self.text()?)?;
        let problem = || Problem::new(format!("{value} is no percentage"), "write one from 0 to 100");
        Some(value).filter(|value| *value <= 100.0).ok_or_else(problem)
    }

    /// Values for reads, writes and discards with commas between them. One is for all; the second is for discards
    /// too, where there is no third; what is empty stays as it is.
    pub(crate) fn per_side<T: Clone>(
        &self,
        sides: &mut PerSide<T>,
        one: impl Fn(&str) -> Result<T>,
    ) -> Result<()> {
        let values = self.text()?.split(',').collect::<Vec<_>>();
        if values.len() > 3 {
            let cure = "write no more than one for reads, writes and discards";
            return Err(Problem::new(format!("{} values", values.len()), cure));
        }
        for (n, side) in sides.sides_mut().into_iter().enumerate() {
            let value = values[n.min(values.len() - 1)].trim();
            if !value.is_empty() || values.len() == 1 {
                *side = one(value)?;
            }
        }
        Ok(())
    }

    /// Percentiles, ascending.
    pub(crate) fn percentiles(&self) -> Result<Vec<f64>> {
        percentiles(self.text()?)
    }

    /// What stands between the first colon and the end.
    pub(crate) fn behind_colon(&self) -> Result<(&'a str, Option<&'a str>)> {
        let text = self.text()?;
        Ok(text.split_once(':').map_or((text, None), |(word, rest)| (word, Some(rest))))
    }

    /// `iops_slope:0.3%`.
    pub(crate) fn steady_state(&self) -> Result<Option<SteadyState>> {
        let (word, limit) = self.behind_colon()?;
        let (metric, slope) = match word {
            "iops" => (Metric::Iops, false),
            "iops_slope" => (Metric::Iops, true),
            "bw" => (Metric::Bandwidth, false),
            "bw_slope" => (Metric::Bandwidth, true),
            "lat" => (Metric::Latency, false),
            "lat_slope" => (Metric::Latency, true),
            _ => {
                let cure = "write iops, iops_slope, bw, bw_slope, lat or lat_slope, a colon and a limit";
                return Err(Problem::new(format!("`{word}` is no criterion"), cure));
            }
        };
        let limit =
            limit.ok_or_else(|| Problem::new("it has no limit", "write one behind a colon: iops:2%"))?;
        let limit = match limit.strip_suffix('%') {
            Some(percent) => Limit::Percent(number::decimal(percent)?),
            None => Limit::Absolute(match metric {
                Metric::Iops => number::decimal(limit)?,
                Metric::Bandwidth => number::bytes(limit, self.base)? as f64,
                Metric::Latency => number::micros(limit)? as f64,
            }),
        };
        Ok(Some(SteadyState { metric, slope, limit }))
    }

    /// `0xff%o"abc"-12`: bytes in hexadecimal, the offset, text, numbers of 32 bits.
    pub(crate) fn pattern(&self) -> Result<Vec<PatternPart>> {
        let text = self.text()?;
        let mut parts = Vec::new();
        let (mut rest, mut length) = (text, 0);
        while !rest.is_empty() {
            let (part, behind) = pattern_part(rest)?;
            length += if let PatternPart::Bytes(bytes) = &part { bytes.len() } else { 8 };
            if length > MOST_PATTERN_BYTES {
                let problem = format!("a pattern of more than {MOST_PATTERN_BYTES} bytes");
                return Err(Problem::new(problem, "shorten it"));
            }
            parts.push(part);
            rest = behind;
        }
        Ok(parts)
    }
}

pub(crate) fn percent(text: &str) -> Result<u8> {
    let text = text.trim();
    let value = text.parse::<u8>().ok().filter(|value| *value <= 100 && !text.starts_with('+'));
    value.ok_or_else(|| Problem::new(format!("`{text}` is no percentage"), "write one from 0 to 100"))
}

/// Percentiles with colons between them, put in order.
pub(crate) fn percentiles(text: &str) -> Result<Vec<f64>> {
    let values = text.split(':').map(number::decimal).collect::<Result<Vec<_>>>();
    let mut values = values?;
    if values.len() > MOST_PERCENTILES || values.iter().any(|value| *value > 100.0) {
        let problem = format!("more than {MOST_PERCENTILES} percentiles, or one above 100");
        return Err(Problem::new(problem, "write fewer, from 0 to 100"));
    }
    values.sort_by(f64::total_cmp);
    Ok(values)
}

fn pattern_part(text: &str) -> Result<(PatternPart, &str)> {
    if let Some(rest) = text.strip_prefix("%o") {
        return Ok((PatternPart::Offset, rest));
    }
    if let Some(rest) = text.strip_prefix('"') {
        let closed = rest.split_once('"').filter(|(inside, _)| !inside.is_empty());
        let (inside, rest) = closed.ok_or_else(|| strange_pattern(text))?;
        return Ok((PatternPart::Bytes(inside.as_bytes().to_vec()), rest));
    }
    if text.starts_with('\'') {
        let problem = "a pattern from a file is not supported";
        return Err(Problem::new(problem, "write its bytes in hexadecimal, behind 0x"));
    }
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (part, rest) = match hex {
        Some(digits) => hex_pattern(digits),
        None => decimal_pattern(text),
    }
    .ok_or_else(|| strange_pattern(text))?;
    Ok((PatternPart::Bytes(part), rest))
}

fn strange_pattern(text: &str) -> Problem {
    let cure = "write bytes behind 0x, text in double quotes, %o or a number of 32 bits";
    Problem::new(format!("`{text}` is no pattern"), cure)
}

/// Where digits end that may have the 0 of another number's `0x` behind them.
fn without_prefix(text: &str, end: usize) -> usize {
    let (digits, rest) = text.split_at(end);
    end - usize::from(end > 1 && digits.ends_with('0') && rest.starts_with(['x', 'X']))
}

/// As they stand, two digits a byte; an odd number of digits has a 0 before it.
fn hex_pattern(text: &str) -> Option<(Vec<u8>, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_hexdigit).count();
    let (digits, rest) = text.split_at(without_prefix(text, digits));
    let even = format!("{}{digits}", if digits.len() % 2 == 0 { "" } else { "0" });
    let pairs = (0..even.len()).step_by(2).map(|at| u8::from_str_radix(&even[at..at + 2], 16).ok());
    let bytes = pairs.collect::<Option<Vec<_>>>().filter(|bytes| !bytes.is_empty())?;
    Some((bytes, rest))
}

/// The bytes of a 32-bit number, the lowest first, as many as it needs.
fn decimal_pattern(text: &str) -> Option<(Vec<u8>, &str)> {
    let sign = usize::from(text.starts_with('-'));
    let digits = text[sign..].bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(without_prefix(text, sign + digits));
    let bytes = number.parse::<i32>().ok()?.to_le_bytes();
    let length = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
    Some((bytes[..length].to_vec(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_fios_bytes() {
        for (text, expected) in [
            ("0xdeadface", Some(vec![0xde, 0xad, 0xfa, 0xce])),
            ("0xf", Some(vec![0xf])),
            ("0xabc", Some(vec![0x0a, 0xbc])),
            ("12", Some(vec![12])),
            ("0", Some(vec![0])),
            ("010", Some(vec![10])),
            ("1000", Some(vec![0xe8, 3])),
            ("305419896", Some(vec![0x78, 0x56, 0x34, 0x12])),
            ("-12", Some(vec![0xf4, 0xff, 0xff, 0xff])),
            ("0xff0x14", Some(vec![0xff, 0x14])),
            ("-120xde", Some(vec![0xf4, 0xff, 0xff, 0xff, 0xde])),
            ("2147483648", None),
            ("0x", None),
            ("\"abc", None),
            ("\"\"", None),
            ("'/etc/passwd'", None),
            ("x", None),
            ("é", None),
        ] {
            let given = Given { name: "buffer_pattern", value: Some(text), base: KbBase::default() };
            let bytes = given.pattern().ok().map(|parts| {
                let bytes = parts.into_iter().map(|part| match part {
                    PatternPart::Bytes(bytes) => bytes,
                    PatternPart::Offset => panic!("{text} has no offset"),
                });
                bytes.collect::<Vec<_>>().concat()
            });
            assert_eq!(bytes, expected, "{text}");
        }
        let given = Given { name: "", value: Some("0xff%o\"ab\"-12"), base: KbBase::default() };
        let parts = given.pattern().map(|parts| parts.len());
        assert_eq!(parts, Ok(4));
    }
}
