//! What a volume did between two looks at it, and over longer spans: all of it by the counters of its status.

use bimetal_serve::StatusDoc;
use bimetal_serve::status::{LoadDoc, TierDoc};
use bimetal_watch::Shares;
use serde::Serialize;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Spans over which hits are told, and what they are called.
pub(super) const SPANS: [(&str, Duration); 4] = [
    ("5 s", Duration::from_secs(5)),
    ("5 min", Duration::from_secs(300)),
    ("hour", Duration::from_secs(3600)),
    ("day", Duration::from_secs(86_400)),
];
/// Looks that are kept: each of so many seconds, then one of each minute for a day.
const SECONDS_KEPT: usize = 330;
const MINUTES_KEPT: usize = 1450;
const MINUTE: Duration = Duration::from_secs(60);
/// A span is told when it was watched for nearly all of it: looks are a little apart.
const NEARLY: f64 = 0.9;
/// Points of a sparkline.
pub(super) const POINTS: usize = 60;

/// What a device does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct DeviceRates {
    pub(super) read_bytes_per_s: f64,
    pub(super) written_bytes_per_s: f64,
    pub(super) reads_per_s: f64,
    pub(super) writes_per_s: f64,
    /// What an operation took on average, microseconds; null where none ended.
    pub(super) latency_us: Option<f64>,
    /// The part of the time with something in flight, 0 to 1.
    pub(super) busy_share: f64,
    /// How many operations were in flight on average.
    pub(super) queue: f64,
}

impl DeviceRates {
    fn between(before: &LoadDoc, now: &LoadDoc, seconds: f64) -> DeviceRates {
        let of = |before: u64, now: u64| now.saturating_sub(before) as f64;
        let ended = of(before.reads + before.writes, now.reads + now.writes);
        let waited_us = of(before.wait_us, now.wait_us);
        DeviceRates {
            read_bytes_per_s: of(before.read_bytes, now.read_bytes) / seconds,
            written_bytes_per_s: of(before.written_bytes, now.written_bytes) / seconds,
            reads_per_s: of(before.reads, now.reads) / seconds,
            writes_per_s: of(before.writes, now.writes) / seconds,
            latency_us: (ended > 0.0).then(|| waited_us / ended),
            busy_share: (of(before.busy_us, now.busy_us) / 1e6 / seconds).min(1.0),
            queue: waited_us / 1e6 / seconds,
        }
    }

    /// Bytes in both directions.
    pub(super) fn bytes_per_s(&self) -> f64 {
        self.read_bytes_per_s + self.written_bytes_per_s
    }
}

/// The fast tier's part of what clients read and wrote, 0 to 1; null where they did neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Hits {
    pub(super) reads: Option<f64>,
    pub(super) writes: Option<f64>,
}

impl Hits {
    fn between(before: Option<&StatusDoc>, now: &StatusDoc) -> Hits {
        let share = |bytes: fn(&TierDoc) -> u64| {
            let of = |tier: usize| {
                let was = before.and_then(|doc| doc.tiers.get(tier)).map_or(0, bytes);
                now.tiers.get(tier).map_or(0, bytes).saturating_sub(was)
            };
            let (fast, slow) = (of(0), of(1));
            (fast + slow > 0).then(|| fast as f64 / (fast + slow) as f64)
        };
        Hits { reads: share(|tier| tier.read_bytes), writes: share(|tier| tier.written_bytes) }
    }
}

impl From<Shares> for Hits {
    fn from(shares: Shares) -> Hits {
        let share = |[fast, slow]: [u64; 2]| (fast + slow > 0).then(|| fast as f64 / (fast + slow) as f64);
        Hits { reads: share(shares.read_bytes), writes: share(shares.written_bytes) }
    }
}

/// What moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct MoveRates {
    /// Bytes of chunks that rose.
    pub(super) up_bytes_per_s: f64,
    /// Bytes of chunks that went down.
    pub(super) down_bytes_per_s: f64,
    /// Bytes of landed blocks that were merged into their homes.
    pub(super) merged_bytes_per_s: f64,
    /// Bytes of copies of what was read from the slow tier.
    pub(super) copied_bytes_per_s: f64,
}

/// A look at a volume.
#[derive(Clone, Debug)]
struct Look {
    at: Instant,
    status: StatusDoc,
    /// What the kernel counts of the devices that are block devices, and when it was asked.
    kernel: [Option<(Instant, LoadDoc)>; 2],
}

/// Looks at one opening of a volume.
#[derive(Debug, Default)]
pub(super) struct Looks {
    seconds: VecDeque<Look>,
    minutes: VecDeque<Look>,
    /// Bytes a second of each device, for its sparkline.
    points: [VecDeque<u64>; 2],
}

impl Looks {
    /// The volume was looked at, and the kernel was asked of its block devices. Counters that begin anew are those of another opening.
    pub(super) fn add(&mut self, at: Instant, status: StatusDoc, kernel: [Option<(Instant, LoadDoc)>; 2]) {
        let is_other = self.seconds.back().is_some_and(|last| {
            (last.status.generation, &last.status.volume_id) != (status.generation, &status.volume_id)
        });
        if is_other {
            *self = Looks::default();
        }
        if self.minutes.back().is_none_or(|last| at.duration_since(last.at) >= MINUTE) {
            self.minutes.push_back(Look { at, status: status.clone(), kernel });
            if self.minutes.len() > MINUTES_KEPT {
                self.minutes.pop_front();
            }
        }
        self.seconds.push_back(Look { at, status, kernel });
        if self.seconds.len() > SECONDS_KEPT {
            self.seconds.pop_front();
        }
        for tier in 0..self.points.len() {
            let bytes = self.rates(tier).map_or(0.0, |rates| rates.bytes_per_s());
            self.points[tier].push_back(bytes as u64);
            if self.points[tier].len() > POINTS {
                self.points[tier].pop_front();
            }
        }
    }

    /// As it was last.
    pub(super) fn status(&self) -> Option<&StatusDoc> {
        self.seconds.back().map(|look| &look.status)
    }

    /// The last two looks, and the seconds between them, by the server's clock where it tells.
    fn last_two(&self) -> Option<(&StatusDoc, &StatusDoc, f64)> {
        let now = self.seconds.back()?;
        let before = self.seconds.iter().rev().nth(1)?;
        let told = now.status.unix_ms.saturating_sub(before.status.unix_ms);
        let seconds = match told {
            0 => now.at.duration_since(before.at).as_secs_f64(),
            ms => ms as f64 / 1e3,
        };
        (seconds > 0.0).then_some((&before.status, &now.status, seconds))
    }

    /// Seconds between the last two looks.
    pub(super) fn seconds(&self) -> Option<f64> {
        self.last_two().map(|(_, _, seconds)| seconds)
    }

    /// What a device does now.
    pub(super) fn rates(&self, tier: usize) -> Option<DeviceRates> {
        if let Some(rates) = self.kernels_rates(tier) {
            return Some(rates);
        }
        let (before, now, seconds) = self.last_two()?;
        Some(DeviceRates::between(&before.tiers.get(tier)?.load, &now.tiers.get(tier)?.load, seconds))
    }

    /// The same by the kernel's counters, of a block device.
    pub(super) fn kernels_rates(&self, tier: usize) -> Option<DeviceRates> {
        let mut looks = self.seconds.iter().rev();
        let (at, now) = (*looks.next()?.kernel.get(tier)?)?;
        let (then, before) = (*looks.next()?.kernel.get(tier)?)?;
        let seconds = at.duration_since(then).as_secs_f64();
        (seconds > 0.0).then(|| DeviceRates::between(&before, &now, seconds))
    }

    /// What moves now.
    pub(super) fn moves(&self) -> Option<MoveRates> {
        let (before, now, seconds) = self.last_two()?;
        let rate = |bytes: fn(&StatusDoc) -> u64| bytes(now).saturating_sub(bytes(before)) as f64 / seconds;
        Some(MoveRates {
            up_bytes_per_s: rate(|doc| doc.promoted_chunks * u64::from(doc.chunk_bytes)),
            down_bytes_per_s: rate(|doc| doc.demoted_chunks * u64::from(doc.chunk_bytes)),
            merged_bytes_per_s: rate(|doc| doc.destaged_blocks * u64::from(bimetal_units::BLOCK_BYTES)),
            copied_bytes_per_s: rate(|doc| doc.wear.copied_bytes),
        })
    }

    /// The fast tier's part over a span that was watched; none where it was not.
    pub(super) fn hits(&self, span: Duration) -> Option<Hits> {
        let now = self.seconds.back()?;
        let is_within = |look: &&Look| now.at.duration_since(look.at) <= span + Duration::from_secs(1);
        let first = |looks: &VecDeque<Look>| looks.iter().find(is_within).cloned();
        let before =
            [first(&self.seconds), first(&self.minutes)].into_iter().flatten().min_by_key(|look| look.at)?;
        let watched = now.at.duration_since(before.at).as_secs_f64();
        (watched >= span.as_secs_f64() * NEARLY).then(|| Hits::between(Some(&before.status), &now.status))
    }

    /// The same since the volume was opened.
    pub(super) fn hits_ever(&self) -> Option<Hits> {
        Some(Hits::between(None, self.status()?))
    }

    /// Bytes a second of a device, second by second, the newest last.
    pub(super) fn points(&self, tier: usize) -> Vec<u64> {
        self.points.get(tier).into_iter().flatten().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(generation: u64, second: u64) -> StatusDoc {
        let tier = |read: u64| {
            let load = LoadDoc {
                reads: 100 * second,
                writes: 50 * second,
                read_bytes: 409_600 * second,
                written_bytes: 204_800 * second,
                busy_us: 250_000 * second,
                wait_us: 1_500_000 * second,
                ..LoadDoc::default()
            };
            let doc = serde_json::json!({
                "name": "fast", "device": "x", "size_bytes": 1, "used_bytes": 1, "read_share": 0, "write_share": 0,
                "read_bytes": read, "written_bytes": 0, "device_written_bytes": 0, "flushes": 0, "load": load
            });
            serde_json::from_value(doc).expect("a tier")
        };
        StatusDoc {
            generation,
            unix_ms: 1000 * (second + 1),
            chunk_bytes: 1 << 17,
            promoted_chunks: 8 * second,
            tiers: vec![tier(300 * second), tier(100 * second)],
            ..StatusDoc::default()
        }
    }

    fn watched(seconds: u64) -> Looks {
        let (mut looks, begun) = (Looks::default(), Instant::now());
        (0..=seconds)
            .for_each(|second| looks.add(begun + Duration::from_secs(second), status(1, second), [None; 2]));
        looks
    }

    #[test]
    fn rates_are_what_was_counted_by_the_time_it_took() {
        let looks = watched(2);
        let rates = looks.rates(1).expect("two looks");
        let expected = DeviceRates {
            read_bytes_per_s: 409_600.0,
            written_bytes_per_s: 204_800.0,
            reads_per_s: 100.0,
            writes_per_s: 50.0,
            latency_us: Some(10_000.0),
            busy_share: 0.25,
            queue: 1.5,
        };
        assert_eq!(rates, expected);
        assert_eq!(looks.moves().expect("two looks").up_bytes_per_s, 8.0 * 131_072.0);
        assert_eq!(looks.points(0), [0, 614_400, 614_400]);
    }

    #[test]
    fn spans_are_told_once_they_were_watched() {
        let share = |looks: &Looks, span| looks.hits(span).map(|hits| hits.reads.expect("reads"));
        let (five, minutes) = (SPANS[0].1, SPANS[1].1);
        assert_eq!(share(&watched(3), five), None);
        assert_eq!(share(&watched(5), five), Some(0.75));
        let looks = watched(400);
        assert_eq!((share(&looks, minutes), share(&looks, SPANS[2].1)), (Some(0.75), None));
        assert_eq!(share(&watched(3700), SPANS[2].1), Some(0.75));
        assert_eq!(looks.hits_ever().expect("a look").writes, None, "nothing was written");
    }

    #[test]
    fn of_a_block_device_the_kernel_counts() {
        let (mut looks, begun) = (Looks::default(), Instant::now());
        for second in 0..2u64 {
            let at = begun + Duration::from_secs(second);
            let load = LoadDoc { reads: 7 * second, busy_us: 500_000 * second, ..LoadDoc::default() };
            looks.add(at, status(1, second), [Some((at, load)), None]);
        }
        let rates = [0, 1].map(|tier| looks.rates(tier).expect("two looks").reads_per_s);
        assert_eq!(rates, [7.0, 100.0]);
        assert_eq!(looks.kernels_rates(1), None);
    }

    #[test]
    fn another_opening_begins_anew() {
        let mut looks = watched(10);
        looks.add(Instant::now() + Duration::from_secs(11), status(2, 0), [None; 2]);
        assert_eq!((looks.rates(0), looks.points(0).len()), (None, 1));
    }

    #[test]
    fn a_day_of_looks_is_bounded() {
        let looks = watched(100_000);
        assert_eq!((looks.seconds.len(), looks.minutes.len()), (SECONDS_KEPT, MINUTES_KEPT));
        assert!(looks.hits(SPANS[3].1).is_some());
    }
}
