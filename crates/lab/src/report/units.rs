//! Numbers as people read them, and names that cannot do harm.

/// Longer names are cut.
const MAX_NAME_CHARS: usize = 120;

/// A time with its unit and three digits.
pub(crate) fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if !ns.is_finite() => return "–".into(),
        ns if ns < 999.5 => (ns, "ns"),
        ns if ns < 999.5e3 => (ns / 1e3, "µs"),
        ns if ns < 999.5e6 => (ns / 1e6, "ms"),
        ns if ns < 120e9 => (ns / 1e9, "s"),
        ns if ns < 7200e9 => (ns / 60e9, "min"),
        ns => (ns / 3600e9, "h"),
    };
    format!("{} {unit}", three(value))
}

/// Three digits, and no zeros behind the point that say nothing of precision.
pub(crate) fn three(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if size >= 99.95 => format!("{value:.0}"),
        _ if size >= 9.995 => format!("{value:.1}"),
        _ if size == 0.0 => "0".into(),
        _ if size >= 0.001 => format!("{value:.2}"),
        _ => format!("{value:.1e}"),
    }
}

/// A count with its thousands apart.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            // U+202F, a narrow space that no line breaks at.
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// A rate: as a count where it is large, with three digits where not.
pub(crate) fn rate(value: f64) -> String {
    match value {
        value if !value.is_finite() => "–".into(),
        value if value >= 100.0 => count(value.round() as u64),
        value => three(value),
    }
}

/// Bytes, binary as memory and devices are cut.
pub(crate) fn bytes(value: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let at = (value.max(1).ilog2() / 10) as usize;
    match at {
        0 => format!("{value} B"),
        _ => format!("{} {}", three(value as f64 / (1u64 << (10 * at)) as f64), units[at]),
    }
}

/// A share in percent.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    match part as f64 / whole as f64 * 100.0 {
        share if !share.is_finite() => "–".into(),
        share if share > 0.0 && share < 0.01 => "< 0.01 %".into(),
        share => format!("{} %", three(share)),
    }
}

/// A ratio, as it is said: 1.12×.
pub(crate) fn times(ratio: f64) -> String {
    if ratio.is_finite() { format!("{}×", three(ratio)) } else { "–".into() }
}

/// The moment, in UTC; years that calendars do not have are not said.
pub(crate) fn moment(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000;
    // From days to the civil calendar in eras of 400 years, which begin in March so that the leap day is a year's last
    // (Hinnant, chrono-Compatible Low-Level Date Algorithms).
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let march = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * march + 2) / 5 + 1, if march < 10 { march + 3 } else { march - 9 });
    let year = era * 400 + year + u64::from(month <= 2);
    if unix_ms == 0 || year > 9999 {
        return "–".into();
    }
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// A name from a record, fit for a line: cut, and without what could steer a terminal or turn text around (control
/// characters, and Unicode's embeddings, overrides and isolates).
pub(crate) fn name(text: &str) -> String {
    let mut out: String = text.chars().take(MAX_NAME_CHARS).map(harmless).collect();
    if text.chars().nth(MAX_NAME_CHARS).is_some() {
        out.push('…');
    }
    out
}

/// A sentence, a note or a value: as harmless as a name, and whole however long it is.
pub(crate) fn prose(text: &str) -> String {
    text.chars().map(harmless).collect()
}

fn harmless(c: char) -> char {
    match c {
        '\t' | '\n' | '\r' => ' ',
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => {
            '\u{fffd}'
        }
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let times = [0.0, 999.0, 1500.0, 12_345.0, 999_499.0, 999_600.0, 5e9, 119e9, 180e9, 7200e9];
        let told = [
            "0 ns", "999 ns", "1.50 µs", "12.3 µs", "999 µs", "1.00 ms", "5.00 s", "119 s", "3.00 min",
            "2.00 h",
        ];
        assert_eq!(times.map(time), told);
        assert_eq!((count(7), count(1_234_567)), ("7".into(), "1\u{202f}234\u{202f}567".into()));
        assert_eq!(
            (rate(12.34), rate(f64::NAN), rate(1234.5)),
            ("12.3".into(), "–".into(), "1\u{202f}235".into())
        );
        assert_eq!(
            (bytes(0), bytes(4096), bytes(u64::MAX)),
            ("0 B".into(), "4.00 KiB".into(), "16.0 EiB".into())
        );
        assert_eq!(
            (percent(1, 4), percent(1, 0), percent(1, 1 << 40)),
            ("25.0 %".into(), "–".into(), "< 0.01 %".into())
        );
    }

    /// `date -u -d @N`.
    #[test]
    fn moments() {
        assert_eq!(moment(951_782_400_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(moment(1_234_567_890_123), "2009-02-13 23:31:30 UTC");
        assert_eq!(moment(4_107_542_399_000), "2100-02-28 23:59:59 UTC");
        assert_eq!(moment(u64::MAX), "–");
    }

    #[test]
    fn names_stay_in_their_line() {
        assert_eq!(name("a\nb\u{1b}[31m\u{202e}c"), "a b\u{fffd}[31m\u{fffd}c");
        assert_eq!(name(&"x".repeat(500)).chars().count(), MAX_NAME_CHARS + 1);
        assert_eq!(prose("a\nb\u{1b}[31m\u{202e}c"), "a b\u{fffd}[31m\u{fffd}c");
        assert_eq!(prose(&"x".repeat(5000)).chars().count(), 5000);
    }
}
