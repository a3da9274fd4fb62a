//! Numbers as job files write them: sizes, times, percentages, ranges, arithmetic in parentheses.
//!
//! fio reads as far as it can and forgets the rest: `4x` is 4 to it, `1.5k` is 1, `1h30m` is a microsecond. Here a
//! number is all of its text or it is refused, and what is accepted has fio's value.

use super::error::Problem;

type Result<T> = std::result::Result<T, Problem>;

/// Parentheses within parentheses. An expression is evaluated by recursion, and nobody writes so many.
const DEEPEST: u32 = 32;

/// What an extent may be of what it is a part of, percent: a thousand times all of it.
const MOST_PERCENT: u32 = 100_000;

const NANOS_PER_MICRO: i128 = 1000;

/// What k, m, g, ... multiply with, by fio's `kb_base`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KbBase {
    /// 1024: k is 1024 and kib, against all standards, 1000. fio's default.
    #[default]
    Traditional,
    /// 1000: k is 1000 and kib 1024.
    Standard,
}

/// A part of the target, or of a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// So many bytes.
    Bytes(u64),
    /// So many hundredths; more than a hundred are more than all of it.
    Percent(u32),
}

/// What a number is a number of: it decides which units may follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    Bytes(KbBase),
    /// What a number without a unit counts, in microseconds.
    Time(i128),
}

/// Bytes, or a plain count: fio lets both have a unit.
pub(crate) fn bytes(text: &str, base: KbBase) -> Result<u64> {
    unsigned(value(text, Measure::Bytes(base))?, text)
}

/// As [`bytes`], but may be negative.
pub(crate) fn signed_bytes(text: &str, base: KbBase) -> Result<i64> {
    i64::try_from(value(text, Measure::Bytes(base))?).map_err(|_| too_large(text))
}

/// Bytes or a percentage.
pub(crate) fn extent(text: &str, base: KbBase) -> Result<Extent> {
    if text.ends_with('%') {
        // fio takes 100%% for 100%.
        let number = text.trim_end_matches('%');
        let percent = u32::try_from(bytes(number, base)?).ok().filter(|percent| *percent <= MOST_PERCENT);
        let problem = || {
            Problem::new(format!("{text} is no percentage from 0 to {MOST_PERCENT}"), "write one, or bytes")
        };
        return percent.map(Extent::Percent).ok_or_else(problem);
    }
    if text.strip_suffix(['z', 'Z']).is_some() {
        return Err(Problem::new("zones of zoned devices are not supported", "write bytes"));
    }
    bytes(text, base).map(Extent::Bytes)
}

/// Nanoseconds; a number without a unit is in seconds.
pub(crate) fn seconds(text: &str) -> Result<u64> {
    time(text, 1_000_000)
}

/// Nanoseconds; a number without a unit is in microseconds.
pub(crate) fn micros(text: &str) -> Result<u64> {
    time(text, 1)
}

fn time(text: &str, unit: i128) -> Result<u64> {
    let micros = value(text, Measure::Time(unit))?;
    unsigned(micros.checked_mul(NANOS_PER_MICRO).ok_or_else(|| too_large(text))?, text)
}

/// Two numbers with `-` or `:` between them, the lower one first.
pub(crate) fn two(text: &str, one: impl Fn(&str) -> Result<u64>) -> Result<(u64, u64)> {
    if !text.contains(['-', ':']) {
        return Err(Problem::new(
            format!("`{text}` is one number, not two"),
            "write two, with - between them",
        ));
    }
    range(text, one)
}

/// As [`two`]; one number alone stands for both.
pub(crate) fn range(text: &str, one: impl Fn(&str) -> Result<u64>) -> Result<(u64, u64)> {
    let in_parentheses = text.starts_with('(');
    let Some((low, high)) = text.split_once(['-', ':']).filter(|_| !in_parentheses) else {
        return one(text).map(|value| (value, value));
    };
    let (low, high) = (one(low)?, one(high)?);
    Ok((low.min(high), low.max(high)))
}

/// A number with a fraction, and nothing else.
pub(crate) fn decimal(text: &str) -> Result<f64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let value = text.parse::<f64>().ok().filter(|value| plain && value.is_finite());
    value.ok_or_else(|| Problem::new(format!("`{text}` is no number"), "write one like 1.5"))
}

fn unsigned(value: i128, text: &str) -> Result<u64> {
    if value < 0 {
        return Err(Problem::new(format!("{text} is below zero"), "write a number from 0 on"));
    }
    u64::try_from(value).map_err(|_| too_large(text))
}

fn too_large(text: &str) -> Problem {
    Problem::new(format!("{text} is a number beyond any device"), "write a smaller one")
}

fn value(text: &str, measure: Measure) -> Result<i128> {
    let text = text.trim();
    let expression = text.starts_with('(');
    let mut reader = Reader { text, at: 0, measure, deep: 0 };
    let value = if expression { reader.group()? } else { reader.number(false)? };
    if reader.at < text.len() { Err(reader.strange()) } else { Ok(value) }
}

/// Reads a number or an expression from the left.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    measure: Measure,
    deep: u32,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Takes what the predicate accepts.
    fn take(&mut self, accepted: impl Fn(u8) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.bytes().position(|byte| !accepted(byte)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn skip_blanks(&mut self) {
        self.take(|byte| byte == b' ' || byte == b'\t');
    }

    fn eat(&mut self, symbol: char) -> bool {
        self.skip_blanks();
        let found = self.rest().starts_with(symbol);
        self.at += usize::from(found);
        found
    }

    fn strange(&self) -> Problem {
        let cure = match self.measure {
            Measure::Bytes(_) => "write a whole number like 4096, 4k, 1m or 0x1000",
            Measure::Time(_) => "write a whole number with d, h, m, s, ms or us behind it",
        };
        if self.text.is_empty() {
            return Problem::new("a value is missing", cure);
        }
        Problem::new(format!("`{}` is no number: `{}` does not belong", self.text, self.rest()), cure)
    }

    fn outside(&self) -> Problem {
        too_large(self.text)
    }

    /// `( sum )`, a unit behind it if there is one.
    fn group(&mut self) -> Result<i128> {
        self.deep += 1;
        if self.deep > DEEPEST {
            return Err(Problem::new("too many parentheses within parentheses", "write it with fewer"));
        }
        self.at += 1;
        let value = self.sum()?;
        if !self.eat(')') {
            return Err(Problem::new(format!("`{}` lacks a closing parenthesis", self.text), "close it"));
        }
        self.deep -= 1;
        let before = self.at;
        let unit_text = self.take(|byte| byte.is_ascii_alphabetic());
        let after = std::mem::replace(&mut self.at, before);
        let unit = self.unit(unit_text, true)?;
        self.at = after;
        value.checked_mul(unit).ok_or_else(|| self.outside())
    }

    fn sum(&mut self) -> Result<i128> {
        let mut sum = self.product()?;
        loop {
            let next = if self.eat('+') {
                self.product()?
            } else if self.eat('-') {
                -self.product()?
            } else {
                return Ok(sum);
            };
            sum = sum.checked_add(next).ok_or_else(|| self.outside())?;
        }
    }

    fn product(&mut self) -> Result<i128> {
        let mut product = self.power()?;
        loop {
            let next = if self.eat('*') {
                let factor = self.power()?;
                product.checked_mul(factor)
            } else if self.eat('/') {
                let by = self.divisor()?;
                product.checked_div(by)
            } else if self.eat('%') {
                let by = self.divisor()?;
                product.checked_rem(by)
            } else {
                return Ok(product);
            };
            product = next.ok_or_else(|| self.outside())?;
        }
    }

    fn divisor(&mut self) -> Result<i128> {
        match self.power()? {
            0 => Err(Problem::new(format!("`{}` divides by zero", self.text), "write another divisor")),
            by => Ok(by),
        }
    }

    fn power(&mut self) -> Result<i128> {
        let base = self.atom()?;
        if !self.eat('^') {
            return Ok(base);
        }
        let exponent = u32::try_from(self.atom()?).map_err(|_| self.outside())?;
        base.checked_pow(exponent).ok_or_else(|| self.outside())
    }

    /// A number or a group, with a sign if need be.
    fn atom(&mut self) -> Result<i128> {
        let negative = self.eat('-');
        self.skip_blanks();
        let value = if self.rest().starts_with('(') { self.group()? } else { self.number(true)? };
        Ok(if negative { -value } else { value })
    }

    /// Digits with a unit; within an expression with a fraction too, if the whole is a whole number.
    fn number(&mut self, expression: bool) -> Result<i128> {
        let negative = !expression && self.rest().starts_with('-');
        self.at += usize::from(negative);
        let rest = self.rest();
        let hex = rest.starts_with("0x") || rest.starts_with("0X");
        let value = if hex { self.hex()? } else { self.scaled(expression)? };
        Ok(if negative { -value } else { value })
    }

    fn hex(&mut self) -> Result<i128> {
        self.at += 2;
        let digits = self.take(|byte| byte.is_ascii_hexdigit());
        if digits.is_empty() {
            return Err(self.strange());
        }
        // fio knows no units behind hexadecimal digits, and drops them.
        i128::from_str_radix(digits, 16).map_err(|_| self.outside())
    }

    fn scaled(&mut self, expression: bool) -> Result<i128> {
        let whole = self.take(|byte| byte.is_ascii_digit());
        let mut fraction = "";
        if expression && self.rest().starts_with('.') {
            self.at += 1;
            fraction = self.take(|byte| byte.is_ascii_digit());
        }
        if whole.is_empty() {
            return Err(self.strange());
        }
        let before = self.at;
        let unit_text = self.take(|byte| byte.is_ascii_alphabetic());
        let after = std::mem::replace(&mut self.at, before);
        let unit = self.unit(unit_text, expression)?;
        self.at = after;
        let places = u32::try_from(fraction.len()).map_err(|_| self.outside())?;
        let ten = 10_i128.checked_pow(places).ok_or_else(|| self.outside())?;
        let digits = format!("{whole}{fraction}").parse::<i128>().map_err(|_| self.outside())?;
        let scaled = digits.checked_mul(unit).ok_or_else(|| self.outside())?;
        if scaled % ten != 0 {
            let problem = format!("{whole}.{fraction}{unit_text} is no whole number of the smallest unit");
            return Err(Problem::new(problem, "write one that is"));
        }
        Ok(scaled / ten)
    }

    /// How many of the smallest unit (bytes, microseconds) one of these is.
    fn unit(&self, unit: &str, expression: bool) -> Result<i128> {
        let unit = unit.to_ascii_lowercase();
        match self.measure {
            Measure::Bytes(base) => self.bytes_unit(&unit, base),
            // Within parentheses fio counts microseconds whatever the option counts.
            Measure::Time(plain) if unit.is_empty() => Ok(if expression { 1 } else { plain }),
            Measure::Time(_) => self.time_unit(&unit),
        }
    }

    fn bytes_unit(&self, unit: &str, base: KbBase) -> Result<i128> {
        if unit.is_empty() || unit == "b" {
            return Ok(1);
        }
        let power = "kmgtp".find(&unit[..1]).ok_or_else(|| self.strange())? as u32 + 1;
        let (plain, with_i) = match base {
            KbBase::Traditional => (1024_i128, 1000_i128),
            KbBase::Standard => (1000, 1024),
        };
        match &unit[1..] {
            // Of `gi` fio reads the g and drops the rest, so that 45Gi of a job made for containers is what it seems.
            "" | "b" | "i" => Ok(plain.pow(power)),
            "ib" => Ok(with_i.pow(power)),
            _ => Err(self.strange()),
        }
    }

    fn time_unit(&self, unit: &str) -> Result<i128> {
        Ok(match unit {
            "us" | "usec" => 1,
            "ms" | "msec" => 1000,
            "s" => 1_000_000,
            "m" => 60 * 1_000_000,
            "h" => 3600 * 1_000_000,
            "d" => 86_400 * 1_000_000,
            _ => return Err(self.strange()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_belong_is_named() {
        for (text, rest) in
            [("4kk", "kk"), ("1.5k", ".5k"), ("4q", "q"), ("k4", "k4"), ("(4kk+1)", "kk+1)"), ("(4)kk", "kk")]
        {
            let said = bytes(text, KbBase::default()).map_err(|problem| problem.problem);
            assert_eq!(said, Err(format!("`{text}` is no number: `{rest}` does not belong")));
        }
    }

    #[test]
    fn sizes_have_fios_value() {
        use KbBase::{Standard, Traditional};
        for (text, base, expected) in [
            ("4k", Traditional, Some(4096)),
            ("4kb", Traditional, Some(4096)),
            ("4kib", Traditional, Some(4000)),
            ("4KiB", Traditional, Some(4000)),
            ("1m", Traditional, Some(1 << 20)),
            ("1mib", Traditional, Some(1_000_000)),
            ("1p", Traditional, Some(1 << 50)),
            ("1k", Standard, Some(1000)),
            ("1kib", Standard, Some(1024)),
            ("0x1000", Traditional, Some(4096)),
            ("0x1b", Traditional, Some(27)),
            ("0x10k", Traditional, None),
            ("4096b", Traditional, Some(4096)),
            ("(4k+4k)", Traditional, Some(8192)),
            ("(2*1024)", Traditional, Some(2048)),
            ("(1024/3)", Traditional, Some(341)),
            ("(1k-24)", Traditional, Some(1000)),
            ("(2^10)", Traditional, Some(1024)),
            ("(1024%1000)", Traditional, Some(24)),
            ("(4+4)k", Traditional, Some(8192)),
            ("( 1 + 2 * (3 + 4) )", Traditional, Some(15)),
            ("(1.5k)", Traditional, Some(1536)),
            ("(-1+2)", Traditional, Some(1)),
            ("(1-2)", Traditional, None),
            ("(1/0)", Traditional, None),
            ("(2^200)", Traditional, None),
            ("(1", Traditional, None),
            ("(1.5)", Traditional, None),
            ("()", Traditional, None),
            ("4ki", Traditional, Some(4096)),
            ("45Gi", Traditional, Some(45 << 30)),
            ("4x", Traditional, None),
            ("1.5k", Traditional, None),
            ("4kk", Traditional, None),
            ("4 k", Traditional, None),
            (" 4k ", Traditional, Some(4096)),
            ("-1", Traditional, None),
            ("0x", Traditional, None),
            ("", Traditional, None),
            ("16384p", Traditional, None),
            ("18446744073709551615", Traditional, Some(u64::MAX)),
            ("18446744073709551616", Traditional, None),
        ] {
            assert_eq!(bytes(text, base).ok(), expected, "{text}");
        }
        assert_eq!(signed_bytes("-4k", Traditional), Ok(-4096));
        let deep = "(".repeat(10_000);
        assert!(bytes(&deep, Traditional).is_err());
    }

    #[test]
    fn times_have_fios_value() {
        for (text, expected) in [
            ("10", Some(10_000_000_000)),
            ("10s", Some(10_000_000_000)),
            ("10S", Some(10_000_000_000)),
            ("10ms", Some(10_000_000)),
            ("10us", Some(10_000)),
            ("10usec", Some(10_000)),
            ("10M", Some(600_000_000_000)),
            ("2h", Some(7_200_000_000_000)),
            ("1d", Some(86_400_000_000_000)),
            ("(10*2)", Some(20_000)),
            ("(1.5s+500ms)", Some(2_000_000_000)),
            ("10ns", None),
            ("1h30m", None),
            ("1.5", None),
            ("10min", None),
        ] {
            assert_eq!(seconds(text).ok(), expected, "{text}");
        }
        assert_eq!(micros("10"), Ok(10_000));
        assert_eq!(micros("1m"), Ok(60_000_000_000));
    }

    #[test]
    fn percentages_and_ranges() {
        let base = KbBase::default();
        assert_eq!(extent("20%", base), Ok(Extent::Percent(20)));
        assert_eq!(extent("1m", base), Ok(Extent::Bytes(1 << 20)));
        assert_eq!(extent("0%", base), Ok(Extent::Percent(0)));
        assert_eq!(extent("200%", base), Ok(Extent::Percent(200)));
        for text in ["100001%", "-1%", "2z", "%"] {
            assert!(extent(text, base).is_err(), "{text}");
        }
        let size = |text: &str| bytes(text, base);
        assert_eq!(range("4k-1k", size), Ok((1024, 4096)));
        assert_eq!(range("1k:4k", size), Ok((1024, 4096)));
        assert_eq!(range("4k", size), Ok((4096, 4096)));
        assert_eq!(range("(8-4)", size), Ok((4, 4)));
        assert!(range("1k-", size).is_err());
    }
}
