//! Figures and decisions in few letters.

use bimetal_serve::StatusDoc;
use bimetal_serve::ask::{MOST_DECISIONS, MoveDoc};
use bimetal_serve::map::CellDoc;

use crate::size;

/// Decisions of this span are summed up, seconds.
const RECENT_SECONDS: u64 = 60;

/// Bytes a second, in four digits at most.
pub(super) fn bytes(per_s: f64) -> String {
    let units = [("G", 1u64 << 30), ("M", 1 << 20), ("K", 1 << 10)];
    for (unit, one) in units {
        if per_s >= one as f64 {
            let value = per_s / one as f64;
            return if value < 100.0 { format!("{value:.1}{unit}") } else { format!("{value:.0}{unit}") };
        }
    }
    format!("{per_s:.0}")
}

/// A time in a unit that fits it.
pub(super) fn micros(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{:.2} s", us / 1e6),
        us if us >= 1e3 => format!("{:.2} ms", us / 1e3),
        us => format!("{us:.0} us"),
    }
}

/// When a status was so, seconds since 1970.
pub(super) fn seconds_of(status: &StatusDoc) -> u64 {
    status.unix_ms / 1000
}

fn reason(word: &str) -> &str {
    match word {
        "hot" => "touched often",
        "refill" => "the slow tier was short of room",
        "cold" => "among the coldest",
        "pinned" => "pinned",
        "makes-room" => "room for a pin",
        "zone-grows" => "the landing zone grows",
        "landed" => "had landed",
        other => other,
    }
}

fn direction(to: &str) -> &str {
    if to == "fast" { "up" } else { "down" }
}

/// A decision in a line.
pub(super) fn decision(told: &MoveDoc, now_unix_s: u64) -> String {
    let decision = &told.decision;
    let outcome = match decision.outcome.as_str() {
        "under-way" => "under way",
        "not-moved" => "stayed",
        other => other,
    };
    format!(
        "{:>4} s ago  {:<4} chunk at {:<12} {outcome}: {} (heat {})",
        now_unix_s.saturating_sub(decision.unix_s),
        direction(&decision.to),
        size::show(told.offset),
        reason(&decision.reason),
        decision.heat
    )
}

/// How many were moved where and why of late: in the last minute, or in the time that is remembered where that is less.
pub(super) fn last_minute(decisions: &[MoveDoc], now_unix_s: u64) -> String {
    let age = |told: &MoveDoc| now_unix_s.saturating_sub(told.decision.unix_s);
    let oldest = decisions.last().filter(|_| decisions.len() >= MOST_DECISIONS).map(age);
    let span = oldest.map_or(RECENT_SECONDS, |age| age.clamp(1, RECENT_SECONDS));
    let mut sums: Vec<((&str, &str), u32)> = Vec::new();
    let recent = decisions.iter().filter(|told| age(told) <= span);
    for told in recent.filter(|told| told.decision.outcome == "moved") {
        let kind = (direction(&told.decision.to), reason(&told.decision.reason));
        match sums.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += 1,
            None => sums.push((kind, 1)),
        }
    }
    let list: Vec<String> =
        sums.iter().map(|((direction, why), count)| format!("{count} {direction} ({why})")).collect();
    let list = if list.is_empty() { "nothing".to_owned() } else { list.join(", ") };
    format!("in the last {span} s: {list}")
}

/// Where most of a part of the volume is.
pub(super) fn place(cell: &CellDoc) -> &'static str {
    let kept = &cell.kept;
    let (fast, slow, landed) = (kept.fast_bytes, kept.slow_bytes, kept.landed_bytes);
    match () {
        () if fast + slow + landed == 0 => "nowhere",
        () if slow == 0 && landed == 0 => "fast",
        () if fast == 0 && landed == 0 => "slow",
        () if landed > fast && landed > slow => "landed, most",
        () if fast >= slow => "fast, most",
        () => "slow, most",
    }
}

/// Lines of so many letters at most, broken between words.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is a line");
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= width {
            *last += &format!(" {word}");
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_serve::why::DecisionDoc;

    #[test]
    fn figures_are_short() {
        assert_eq!(
            [0.0, 1023.0, 2048.0, 150.0 * 1048576.0, 3.5 * 1073741824.0].map(bytes),
            ["0", "1023", "2.0K", "150M", "3.5G"]
        );
        assert_eq!([7.4, 1500.0, 2.5e6].map(micros), ["7 us", "1.50 ms", "2.50 s"]);
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
    }

    #[test]
    fn what_moved_is_summed_up_by_why() {
        let told = |unix_s, to: &str, outcome: &str| MoveDoc {
            offset: 1 << 30,
            decision: DecisionDoc {
                unix_s,
                to: to.into(),
                reason: "hot".into(),
                heat: 7,
                outcome: outcome.into(),
            },
        };
        let all = [
            told(100, "fast", "moved"),
            told(99, "fast", "moved"),
            told(98, "slow", "moved"),
            told(97, "fast", "not-moved"),
            told(3, "fast", "moved"),
        ];
        assert_eq!(last_minute(&all, 100), "in the last 60 s: 2 up (touched often), 1 down (touched often)");
        assert_eq!(last_minute(&all[4..], 100), "in the last 60 s: nothing");
        assert_eq!(
            decision(&all[0], 105),
            "   5 s ago  up   chunk at 1 GiB        moved: touched often (heat 7)"
        );
    }
}
