//! What the engine has to say, as lines of the log: not more of a kind than somebody can read.
//!
//! A device that fails may fail thousands of times a second. Of each kind of message the first few in a second are
//! said; the others are counted, and the count is said when the second is over.

use bimetal_engine::options::{Event, Level};
use std::io;
use std::time::{Duration, Instant};

/// The target of lines that are told as events as well: where these reach the journal with fields, the lines need not.
pub const EVENT_TARGET: &str = "bimetal::event";

/// Messages of one kind that are said within one [`WINDOW`].
const MAX_PER_WINDOW: u32 = 5;
const WINDOW: Duration = Duration::from_secs(1);
/// Kinds that are told apart at most; those beyond share the last one.
const MAX_KINDS: usize = 64;

/// Messages of one kind since `since`.
#[derive(Debug)]
struct Kind {
    /// The message without its numbers.
    pattern: String,
    since: Instant,
    said: u32,
    /// How many were not said, and the last of them.
    suppressed: u64,
    last: String,
    level: Level,
}

/// A line that was said, and whether it tells of a device's failure.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) line: String,
    pub(crate) is_device: bool,
}

/// Counts messages by kind.
#[derive(Debug, Default)]
pub(crate) struct EventLimit {
    kinds: Vec<Kind>,
}

impl EventLimit {
    /// Says what is to be said of these events, and the sums that are due; gives back what was said.
    pub(crate) fn say(&mut self, events: Vec<Event>, now: Instant, is_told: bool) -> Vec<(Level, Said)> {
        let sums = self.sums(now).into_iter().map(|(level, line)| (level, Said { line, is_device: false }));
        let mut said: Vec<_> = sums.collect();
        for event in events {
            let (level, is_device) = (event.level, event.error.is_some());
            if let Some(line) = self.admit(level, in_words(event), now) {
                said.push((level, Said { line, is_device }));
            }
        }
        said.iter().for_each(|(level, said)| say(*level, &said.line, is_told));
        said
    }

    /// The sums of all that is counted: nothing comes after.
    pub(crate) fn last(&mut self) -> Vec<(Level, String)> {
        self.sums(Instant::now() + WINDOW)
    }

    /// Takes a message, and gives it back if it is to be said.
    fn admit(&mut self, level: Level, message: String, now: Instant) -> Option<String> {
        let pattern = pattern(&message);
        let known = self.kinds.iter().position(|kind| kind.pattern == pattern);
        let place = known.unwrap_or_else(|| {
            if self.kinds.len() < MAX_KINDS {
                let last = String::new();
                self.kinds.push(Kind { pattern, since: now, said: 0, suppressed: 0, last, level });
            }
            self.kinds.len() - 1
        });
        let kind = &mut self.kinds[place];
        if kind.said < MAX_PER_WINDOW {
            kind.said += 1;
            return Some(message);
        }
        kind.suppressed += 1;
        (kind.last, kind.level) = (message, level);
        None
    }

    /// Whether something is counted and not yet said.
    pub(crate) fn is_waiting(&self) -> bool {
        self.kinds.iter().any(|kind| kind.suppressed > 0)
    }

    /// The sums of the windows that are over.
    fn sums(&mut self, now: Instant) -> Vec<(Level, String)> {
        let is_over = |kind: &Kind| now.saturating_duration_since(kind.since) >= WINDOW;
        let sums = self.kinds.iter().filter(|kind| is_over(kind) && kind.suppressed > 0);
        let sum = |kind: &Kind| format!("{} more like this one: {}", kind.suppressed, kind.last);
        let sums = sums.map(|kind| (kind.level, sum(kind))).collect();
        self.kinds.retain(|kind| !is_over(kind));
        sums
    }
}

/// Says a line; `is_told`: it is told as an event as well.
pub(crate) fn say(level: Level, line: &str, is_told: bool) {
    match (level, is_told) {
        (Level::Info, true) => tracing::info!(target: EVENT_TARGET, "{line}"),
        (Level::Warning, true) => tracing::warn!(target: EVENT_TARGET, "{line}"),
        (Level::Error, true) => tracing::error!(target: EVENT_TARGET, "{line}"),
        (Level::Info, false) => tracing::info!("{line}"),
        (Level::Warning, false) => tracing::warn!("{line}"),
        (Level::Error, false) => tracing::error!("{line}"),
    }
}

/// An event in words.
fn in_words(event: Event) -> String {
    match event.error {
        Some(error) => format!("{}: {}", event.message, io::Error::from_raw_os_error(error.errno)),
        None => event.message,
    }
}

/// A message without its numbers: two that differ only in places and counts are of one kind.
fn pattern(message: &str) -> String {
    message.chars().filter(|c| !c.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_engine::action::DeviceError;

    const WARNING: Level = Level::Warning;

    #[test]
    fn a_flood_is_counted_and_not_repeated() {
        let (mut limit, start) = (EventLimit::default(), Instant::now());
        let mut said = 0;
        for at in 0..1000 {
            said += u32::from(
                limit.admit(WARNING, format!("/dev/sda: a write at byte {at} failed"), start).is_some(),
            );
        }
        assert_eq!(said, MAX_PER_WINDOW);
        assert!(
            limit.admit(WARNING, "/dev/sdb: a write at byte 0 failed".to_owned(), start).is_some(),
            "another kind"
        );
        assert!(limit.is_waiting() && limit.sums(start).is_empty());
        let later = start + WINDOW;
        assert_eq!(
            limit.sums(later),
            [(WARNING, "995 more like this one: /dev/sda: a write at byte 999 failed".to_owned())]
        );
        assert!(!limit.is_waiting() && limit.sums(later).is_empty());
        assert!(limit.admit(WARNING, "/dev/sda: a write at byte 1 failed".to_owned(), later).is_some());
    }

    #[test]
    fn kinds_without_end_share_a_limit() {
        let (mut limit, now) = (EventLimit::default(), Instant::now());
        let name = |n: u32| char::from_u32(0x4e00 + n).expect("a character").to_string();
        let said = (0..1000).filter(|&n| limit.admit(WARNING, name(n), now).is_some()).count();
        assert!(said <= MAX_KINDS + MAX_PER_WINDOW as usize, "{said}");
    }

    #[test]
    fn the_number_of_an_error_is_put_into_words() {
        let event = |error| Event { level: WARNING, message: "/dev/sda: a write failed".into(), error };
        assert_eq!(in_words(event(None)), "/dev/sda: a write failed");
        let full = Some(DeviceError { errno: 28 });
        assert_eq!(in_words(event(full)), "/dev/sda: a write failed: No space left on device (os error 28)");
    }
}
