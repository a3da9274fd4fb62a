//! What is known of a trace, and what is assumed beside it: a TOML file.

use super::law::even;
use serde::Deserialize;

/// Bytes of a profile's file at most.
pub const MAX_PROFILE_BYTES: u64 = 1 << 20;
/// Operations of a trace at most: some hundred times the longest that was published.
const MAX_OPERATIONS: u64 = 10_000_000_000;
/// Sizes, zones, and notes at most.
const MAX_ENTRIES: usize = 1000;
/// The longest request, and what all addresses and sizes are multiples of.
const MAX_REQUEST_BYTES: u64 = 32 << 20;
pub(super) const BLOCK_BYTES: u64 = 4096;
/// The largest span: what a replay can follow in pieces of 128 KiB.
const MAX_SPAN_BYTES: u64 = 1 << 39;
/// The deepest queue.
const MAX_QUEUE: u32 = 1024;
/// Profiles that come with the program.
const OWN: [(&str, &str); 3] = [
    ("heavy", include_str!("../../profiles/heavy.toml")),
    ("light", include_str!("../../profiles/light.toml")),
    ("destroyer", include_str!("../../profiles/destroyer.toml")),
];

/// Why a profile makes no sense, in a sentence.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ProfileError(String);

/// The class that a reader counts a size in: the power of two that holds it.
pub(super) fn size_class(bytes: u64) -> u64 {
    bytes.next_power_of_two()
}

fn wrong<T>(what: impl Into<String>) -> Result<T, ProfileError> {
    Err(ProfileError(what.into()))
}

/// What a trace is like.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// What was published, where and when.
    pub published: String,
    /// What is assumed beside it, in sentences.
    #[serde(default)]
    pub assumed: Vec<String>,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes read; if not said, reads are as large as writes.
    pub read_bytes: Option<u64>,
    /// Bytes written; if not said, writes are as large as reads.
    pub written_bytes: Option<u64>,
    /// Bytes of an operation on average; where neither is said.
    pub mean_bytes: Option<u64>,
    /// Operations that begin where the one before ended, of a hundred.
    pub sequential_percent: f64,
    /// Sizes whose shares are known.
    #[serde(default)]
    pub sizes: Vec<SizeShare>,
    /// Sizes, ascending, of the others.
    #[serde(default)]
    pub other_sizes: Vec<u64>,
    /// How deep the queue was.
    pub queue: QueueProfile,
    /// Where operations lie.
    pub locality: Locality,
    /// What it was recorded on, and the pauses of whoever used it.
    pub device: Recorded,
}

/// A size, and how many operations have it.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeShare {
    /// Bytes.
    pub bytes: u64,
    /// Of a hundred operations.
    pub percent: f64,
}

/// Requests in flight as each found it when it began, itself included.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueProfile {
    /// On average.
    pub mean: f64,
    /// Of a hundred, those that found nothing in flight; if not said, what the mean leaves.
    pub alone_percent: Option<f64>,
    /// At most.
    pub most: u32,
}

/// Where operations lie.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Locality {
    /// All lie in so much.
    pub span_bytes: u64,
    /// Which is cut into extents of this size; those of a zone lie scattered.
    pub extent_bytes: u64,
    /// How much of what begins at a new place begins in which part of the extents.
    pub zones: Vec<Zone>,
}

/// A part of the span.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Zone {
    /// Of a hundred operations.
    pub operations_percent: f64,
    /// Of a hundred extents.
    pub span_percent: f64,
}

/// How long what was recorded took.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// Microseconds of an operation without its bytes.
    pub first_byte_us: f64,
    /// MB/s of its bytes.
    pub mb_per_s: f64,
    /// Between the end of a burst and the next: the median, microseconds, ...
    pub think_median_us: f64,
    /// ... and the standard deviation of its logarithm.
    pub think_sigma: f64,
}

impl Profile {
    /// The names of the profiles that come with the program.
    pub fn names() -> impl Iterator<Item = &'static str> {
        OWN.iter().map(|own| own.0)
    }

    /// A profile that comes with the program.
    pub fn named(name: &str) -> Option<Profile> {
        let text = OWN.iter().find(|own| own.0 == name)?.1;
        Some(
            Profile::parse(text)
                .expect("profiles that come with the program are sound: a test reads them all"),
        )
    }

    /// Reads a profile.
    ///
    /// # Errors
    /// When it is none, or makes no sense.
    pub fn parse(text: &str) -> Result<Profile, ProfileError> {
        let profile: Profile = toml::from_str(text).map_err(|error| ProfileError(error.to_string()))?;
        profile.check()?;
        Ok(profile)
    }

    /// The same with one in so many operations, in a span so much smaller.
    ///
    /// # Errors
    /// When nothing is left, or a span of less than one extent.
    pub fn scaled(&self, by: u64) -> Result<Profile, ProfileError> {
        let by = by.max(1);
        let mut scaled = self.clone();
        (scaled.reads, scaled.writes) = (self.reads / by, self.writes / by);
        (scaled.read_bytes, scaled.written_bytes) =
            (self.read_bytes.map(|bytes| bytes / by), self.written_bytes.map(|bytes| bytes / by));
        scaled.locality.span_bytes = self.locality.span_bytes / by;
        match scaled.check() {
            Ok(()) => Ok(scaled),
            Err(ProfileError(why)) => {
                wrong(format!("with one in {by} operations: {why}; take a smaller part away"))
            }
        }
    }

    /// Operations in all.
    pub fn operations(&self) -> u64 {
        self.reads + self.writes
    }

    /// Bytes of a read, and of a write, on average.
    pub(super) fn means(&self) -> [f64; 2] {
        let mean = |bytes: Option<u64>, count: u64| bytes.map(|bytes| bytes as f64 / count.max(1) as f64);
        let (read, written) = (mean(self.read_bytes, self.reads), mean(self.written_bytes, self.writes));
        let other = self.mean_bytes.map_or(0.0, |bytes| bytes as f64);
        [read.or(written).unwrap_or(other), written.or(read).unwrap_or(other)]
    }

    /// Sizes, and the share of each among operations of this mean.
    pub(super) fn size_law(&self, mean: f64) -> Result<Vec<(u64, f64)>, ProfileError> {
        let known: f64 = self.sizes.iter().map(|size| size.percent / 100.0).sum();
        let bytes: f64 = self.sizes.iter().map(|size| size.percent / 100.0 * size.bytes as f64).sum();
        let mut law: Vec<(u64, f64)> =
            self.sizes.iter().map(|size| (size.bytes, size.percent / 100.0)).collect();
        let left = 1.0 - known;
        if left < 1e-9 {
            return match (bytes / mean - 1.0).abs() < 1e-3 {
                true => Ok(law),
                false => {
                    wrong(format!("sizes have a mean of {bytes:.0} bytes, and operations one of {mean:.0}"))
                }
            };
        }
        let others: Vec<f64> = self.other_sizes.iter().map(|&size| size as f64).collect();
        let other_mean = (mean - bytes) / left;
        let Some(shares) = even(&others, other_mean) else {
            return wrong(format!(
                "other_sizes would need a mean of {other_mean:.0} bytes, which is not between the least and the most \
                 of them"
            ));
        };
        law.extend(self.other_sizes.iter().zip(shares).map(|(&size, share)| (size, share * left)));
        Ok(law)
    }

    /// The share of operations that find 1, 2, ... in flight, themselves included; none is above the one before it.
    pub(super) fn queue_law(&self) -> Result<Vec<f64>, ProfileError> {
        let QueueProfile { mean, alone_percent, most } = self.queue;
        let impossible = || {
            ProfileError(format!(
                "no queue of at most {most} has a mean of {mean} and falls off; check [queue]"
            ))
        };
        let law = match alone_percent.map(|percent| percent / 100.0) {
            _ if most == 1 => (mean == 1.0).then(|| vec![1.0]),
            Some(alone) if alone < 1.0 => {
                let deeper: Vec<f64> = (2..=most).map(f64::from).collect();
                even(&deeper, (mean - alone) / (1.0 - alone)).map(|shares| {
                    std::iter::once(alone).chain(shares.iter().map(|share| share * (1.0 - alone))).collect()
                })
            }
            Some(_) => (mean == 1.0).then(|| vec![1.0]),
            None => even(&(1..=most).map(f64::from).collect::<Vec<_>>(), mean),
        };
        let law: Vec<f64> = law.ok_or_else(impossible)?;
        match law.windows(2).all(|pair| pair[1] <= pair[0] + 1e-12) {
            true => Ok(law),
            false => Err(impossible()),
        }
    }

    fn check(&self) -> Result<(), ProfileError> {
        if self.operations() == 0 || self.reads.max(self.writes) > MAX_OPERATIONS {
            return wrong(format!(
                "reads and writes are {} and {}: 1 to {MAX_OPERATIONS} make sense",
                self.reads, self.writes
            ));
        }
        if self.sizes.len().max(self.other_sizes.len()).max(self.locality.zones.len()).max(self.assumed.len())
            > MAX_ENTRIES
        {
            return wrong(format!("more than {MAX_ENTRIES} sizes, zones or notes"));
        }
        self.check_sizes()?;
        self.check_locality()?;
        let percent = |percent: f64| (0.0..=100.0).contains(&percent);
        if !percent(self.sequential_percent) || !self.queue.alone_percent.is_none_or(percent) {
            return wrong("sequential_percent and alone_percent are shares from 0 to 100");
        }
        if !(1..=MAX_QUEUE).contains(&self.queue.most) {
            return wrong(format!("the most of [queue] is {}, not from 1 to {MAX_QUEUE}", self.queue.most));
        }
        let Recorded { first_byte_us, mb_per_s, think_median_us, think_sigma } = self.device;
        if !((0.001..=1e7).contains(&first_byte_us)
            && (0.001..=1e7).contains(&mb_per_s)
            && (0.0..=1e9).contains(&think_median_us)
            && (0.0..=5.0).contains(&think_sigma))
        {
            return wrong("[device] has times or rates that no device has");
        }
        self.queue_law()?;
        let means = self.means();
        [self.reads, self.writes].into_iter().zip(means).try_for_each(|(count, mean)| match count {
            0 => Ok(()),
            _ => self.size_law(mean).map(drop),
        })
    }

    fn check_sizes(&self) -> Result<(), ProfileError> {
        let sizes = self.sizes.iter().map(|size| size.bytes).chain(self.other_sizes.iter().copied());
        for size in sizes {
            if size == 0 || size > MAX_REQUEST_BYTES || !size.is_multiple_of(BLOCK_BYTES) {
                return wrong(format!(
                    "a size of {size}: sizes are multiples of {BLOCK_BYTES} up to {MAX_REQUEST_BYTES}"
                ));
            }
        }
        if !self.other_sizes.is_sorted_by(|a, b| a < b) {
            return wrong("other_sizes do not ascend");
        }
        let mut known = self.sizes.iter().map(|size| size_class(size.bytes)).collect::<Vec<_>>();
        known.sort_unstable();
        let told_apart = known.windows(2).all(|pair| pair[0] != pair[1])
            && self.other_sizes.iter().all(|&size| !known.contains(&size_class(size)));
        if !told_apart {
            return wrong(
                "of sizes whose shares are known, each is alone between two powers of two: a reader counts by those",
            );
        }
        let known: f64 = self.sizes.iter().map(|size| size.percent).sum();
        match self.sizes.iter().all(|size| size.percent >= 0.0) && known <= 100.0 + 1e-9 {
            true => Ok(()),
            false => wrong(format!("the shares of sizes add up to {known} %, or one is below 0")),
        }
    }

    fn check_locality(&self) -> Result<(), ProfileError> {
        let Locality { span_bytes, extent_bytes, zones } = &self.locality;
        let most = self
            .sizes
            .iter()
            .map(|size| size.bytes)
            .chain(self.other_sizes.iter().copied())
            .max()
            .unwrap_or(0);
        if *extent_bytes < BLOCK_BYTES || !extent_bytes.is_multiple_of(BLOCK_BYTES) {
            return wrong(format!("extent_bytes is {extent_bytes}, no multiple of {BLOCK_BYTES}"));
        }
        if *span_bytes < (*extent_bytes).max(2 * most) || *span_bytes > MAX_SPAN_BYTES {
            return wrong(format!(
                "the span is {span_bytes} bytes: it has an extent and two of the largest operations at least, and \
                 {MAX_SPAN_BYTES} at most"
            ));
        }
        let sum = |of: fn(&Zone) -> f64| zones.iter().map(of).sum::<f64>();
        let (operations, span) = (sum(|zone| zone.operations_percent), sum(|zone| zone.span_percent));
        let sound = zones.iter().all(|zone| zone.operations_percent >= 0.0 && zone.span_percent > 0.0);
        match sound && (operations - 100.0).abs() < 1e-6 && (span - 100.0).abs() < 1e-6 {
            true => Ok(()),
            false => wrong(format!(
                "zones add up to {operations} % of operations and {span} % of the span, not to 100"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_that_come_with_the_program_are_sound() {
        for name in Profile::names() {
            let profile = Profile::named(name).expect("it is there");
            let queue = profile.queue_law().expect("it falls off");
            let mean: f64 = queue.iter().zip(1..).map(|(share, depth)| share * f64::from(depth)).sum();
            assert!((mean - profile.queue.mean).abs() < 1e-6, "{name}: {mean}");
            assert!(!profile.assumed.is_empty() && !profile.published.is_empty());
            assert!(profile.scaled(1000).is_ok(), "{name}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let heavy = OWN[0].1;
        assert!(Profile::parse(heavy).is_ok());
        for (from, to, why) in [
            ("reads = 2_168_893", "reads = 99_999_999_999", "make sense"),
            ("written_bytes = 106_320_000_000", "written_bytes = 1_000_000", "other_sizes would need"),
            (
                "written_bytes = 106_320_000_000",
                "written_bytes = 9_000_000_000_000",
                "other_sizes would need",
            ),
            ("percent = 28.0", "percent = 99.0", "add up to"),
            ("bytes = 4096", "bytes = 4095", "multiples"),
            ("bytes = 4096", "bytes = 12288", "alone between"),
            ("other_sizes = [8192,", "other_sizes = [4096, 8192,", "alone between"),
            ("mean = 4.625", "mean = 40.0", "no queue"),
            ("most = 32", "most = 0", "not from 1"),
            ("span_percent = 5.0", "span_percent = 6.0", "zones add up"),
            ("span_bytes = 26_580_000_000", "span_bytes = 4096", "the span is"),
            ("mb_per_s = 250.0", "mb_per_s = 0.0", "no device"),
            ("sequential_percent = 42.0", "sequential_percent = nan", "shares from"),
            ("name =", "title =", "unknown field"),
        ] {
            let text = heavy.replacen(from, to, 1);
            assert_ne!(text, heavy, "{from}");
            let error = Profile::parse(&text).expect_err(to).to_string();
            assert!(error.contains(why), "{to}: {error}");
        }
        assert!(Profile::named("heavy").expect("it is there").scaled(u64::MAX).is_err());
    }
}
