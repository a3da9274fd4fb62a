//! Times in UTC, read and written.

use bimetal_serve::unix_ms;
use std::time::Duration;

/// Seconds of a day.
const DAY_S: u64 = 24 * 3600;

/// Seconds of `90s`, `10m`, `2h` or `3d`.
fn seconds(text: &str) -> Option<u64> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => DAY_S,
        _ => return None,
    };
    let count: u64 = digits.parse().ok().filter(|_| !digits.starts_with('+'))?;
    Some(count.saturating_mul(seconds))
}

/// What `--every` means: a second at least, a year at most.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    let seconds = seconds(text).filter(|seconds| (1..=366 * DAY_S).contains(seconds));
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| format!("{text:?} is no span of time; write 90s, 10m, 2h or 3d"))
}

/// What `--since` means, in milliseconds since 1970.
pub(super) fn since(text: &str) -> Result<u64, String> {
    let ago = || Some(unix_ms().saturating_sub(seconds(text)?.saturating_mul(1000)));
    ago().or_else(|| moment(text)).ok_or_else(|| {
        format!("{text:?} is no time; write 90s, 10m, 2h or 3d, 2026-11-28, or 2026-11-28T07:30:00Z")
    })
}

/// `2026-11-28`, `2026-11-28T07:30` or `2026-11-28T07:30:00`, with a Z or without.
fn moment(text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let numbers = |text: &str, between: char| -> Option<Vec<u64>> {
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        text.split(between).map(|part| part.parse().ok().filter(|_| digits(part))).collect()
    };
    let (date, time) = (numbers(date, '-')?, numbers(time, ':')?);
    let [year @ 1970..=9999, month @ 1..=12, day @ 1..=31] = date[..] else { return None };
    let (hour, minute, second) = match time[..] {
        [hour, minute] => (hour, minute, 0),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = days_before(year, month) + day - 1;
    // The 31st of a month that has none.
    (days < days_before(year + month / 12, month % 12 + 1)).then_some(())?;
    Some((days * DAY_S + hour * 3600 + minute * 60 + second) * 1000)
}

/// Days from 1970 to the first of a month.
fn days_before(year: u64, month: u64) -> u64 {
    // Years begin in March, so that the leap day is the last of one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    let march = 365 * year + leap_days + (153 * month + 2) / 5;
    march - 719_468
}

/// A time as `2026-11-28T07:30:00Z`.
pub(super) fn shown(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000;
    let days = (seconds / DAY_S).min(DAY_S * 365);
    let mut year = 1970 + days / 366;
    while days_before(year + 1, 1) <= days {
        year += 1;
    }
    let month = (1..=12).rev().find(|&month| days_before(year, month) <= days).unwrap_or(1);
    let day = days - days_before(year, month) + 1;
    let of_day = seconds % DAY_S;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for (text, unix_s) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:00:01Z", 951_825_601),
            ("2026-11-28T07:30:00Z", 1_795_851_000),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
        ] {
            assert_eq!((moment(text), shown(unix_s * 1000).as_str()), (Some(unix_s * 1000), text));
        }
        assert_eq!(moment("2026-11-28"), moment("2026-11-28 00:00"));
        for text in
            ["", "x", "2026", "2026-13-01", "2026-02-30", "2026-11-28T24:00", "1969-01-01", "+1d", "-1s", "d"]
        {
            assert!(since(text).expect_err(text).contains("is no time"), "{text}");
        }
        let ago = unix_ms() - since("2h").expect("a time");
        assert!((7_200_000..7_210_000).contains(&ago), "{ago}");
    }
}
