//! Samples: what happened in a second, a minute or an hour, and how things stood at its end.

use bimetal_serve::status::{LoadDoc, TierDoc};
use bimetal_serve::{KindDoc, RESPONSE_BOUNDS_US, RESPONSE_CLASSES, StatusDoc};

/// How long a sample is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Kept for an hour.
    Second,
    /// Kept for a day.
    Minute,
    /// Kept for a year.
    Hour,
}

impl Step {
    /// All of them, shortest first.
    pub const ALL: [Step; 3] = [Step::Second, Step::Minute, Step::Hour];

    /// Its length.
    pub fn seconds(self) -> u64 {
        match self {
            Step::Second => 1,
            Step::Minute => 60,
            Step::Hour => 3600,
        }
    }

    /// How many are kept.
    pub fn kept(self) -> u64 {
        match self {
            Step::Second => SECONDS_KEPT,
            Step::Minute => MINUTES_KEPT,
            Step::Hour => HOURS_KEPT,
        }
    }
}

/// An hour by the second.
const SECONDS_KEPT: u64 = 3600;
/// A day by the minute.
const MINUTES_KEPT: u64 = 1440;
/// A year by the hour, a long one.
const HOURS_KEPT: u64 = 8784;

/// How values of a field become one when samples do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joins {
    /// What happened is added up.
    Sum,
    /// The last one counts.
    Last,
    /// The largest one counts.
    Most,
}

/// A field of a sample.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// As documents name it.
    pub name: &'static str,
    /// How its values are joined.
    pub joins: Joins,
    of: fn(&StatusDoc) -> u64,
}

const fn field(name: &'static str, joins: Joins, of: fn(&StatusDoc) -> u64) -> Field {
    Field { name, joins, of }
}

fn tier(status: &StatusDoc, at: usize) -> Option<&TierDoc> {
    status.tiers.get(at)
}

fn load(status: &StatusDoc, at: usize) -> LoadDoc {
    tier(status, at).map_or(LoadDoc::default(), |tier| tier.load)
}

fn woken(status: &StatusDoc, at: usize) -> u64 {
    tier(status, at).map_or(0, |tier| tier.wakeups.clients + tier.wakeups.background)
}

/// Response times are no counters of the document: they come from the differences of its classes.
fn measured(_: &StatusDoc) -> u64 {
    0
}

use Joins::{Last, Most, Sum};

/// The fields, in the order in which they are kept: new ones come at the end.
pub const FIELDS: [Field; 48] = [
    field("reads", Sum, |s| s.requests.reads.count),
    field("writes", Sum, |s| s.requests.writes.count),
    field("flushes", Sum, |s| s.requests.flushes.count),
    field("discards", Sum, |s| s.requests.discards.count),
    field("request_errors", Sum, |s| {
        let r = &s.requests;
        r.reads.errors + r.writes.errors + r.flushes.errors + r.discards.errors
    }),
    field("read_bytes", Sum, |s| s.requests.reads.bytes),
    field("written_bytes", Sum, |s| s.requests.writes.bytes),
    field("fast_served_read_bytes", Sum, |s| tier(s, 0).map_or(0, |t| t.read_bytes)),
    field("slow_served_read_bytes", Sum, |s| tier(s, 1).map_or(0, |t| t.read_bytes)),
    field("fast_served_written_bytes", Sum, |s| tier(s, 0).map_or(0, |t| t.written_bytes)),
    field("slow_served_written_bytes", Sum, |s| tier(s, 1).map_or(0, |t| t.written_bytes)),
    field("fast_reads", Sum, |s| load(s, 0).reads),
    field("fast_writes", Sum, |s| load(s, 0).writes),
    field("fast_read_bytes", Sum, |s| load(s, 0).read_bytes),
    field("fast_written_bytes", Sum, |s| load(s, 0).written_bytes),
    field("fast_busy_us", Sum, |s| load(s, 0).busy_us),
    field("fast_wait_us", Sum, |s| load(s, 0).wait_us),
    field("fast_errors", Sum, |s| load(s, 0).errors),
    field("slow_reads", Sum, |s| load(s, 1).reads),
    field("slow_writes", Sum, |s| load(s, 1).writes),
    field("slow_read_bytes", Sum, |s| load(s, 1).read_bytes),
    field("slow_written_bytes", Sum, |s| load(s, 1).written_bytes),
    field("slow_busy_us", Sum, |s| load(s, 1).busy_us),
    field("slow_wait_us", Sum, |s| load(s, 1).wait_us),
    field("slow_errors", Sum, |s| load(s, 1).errors),
    field("slow_wakeups", Sum, |s| woken(s, 1)),
    field("promoted_chunks", Sum, |s| s.promoted_chunks),
    field("demoted_chunks", Sum, |s| s.demoted_chunks),
    field("destaged_blocks", Sum, |s| s.destaged_blocks),
    field("log_written_bytes", Sum, |s| s.landing.log_written_bytes),
    field("moved_bytes", Sum, |s| s.wear.moved_bytes),
    field("copied_bytes", Sum, |s| s.wear.copied_bytes),
    field("copy_read_bytes", Sum, |s| s.copy_read_bytes),
    field("fast_used_bytes", Last, |s| tier(s, 0).map_or(0, |t| t.used_bytes)),
    field("slow_used_bytes", Last, |s| tier(s, 1).map_or(0, |t| t.used_bytes)),
    field("landing_used_bytes", Last, |s| s.landing.used_bytes),
    field("landed_bytes", Last, |s| s.landing.landed_bytes),
    field("clients", Last, |s| s.clients),
    field("read_p50_us", Most, measured),
    field("read_p99_us", Most, measured),
    field("read_max_us", Most, measured),
    field("write_p50_us", Most, measured),
    field("write_p99_us", Most, measured),
    field("write_max_us", Most, measured),
    field("judged_chunks", Sum, |s| s.moves.judged_chunks),
    field("repaid_chunks", Sum, |s| s.moves.repaid_chunks),
    field("saved_us_per_read", Last, |s| s.moves.saved_us_per_read.unwrap_or(0.0) as u64),
    field("saved_us_per_write", Last, |s| s.moves.saved_us_per_write.unwrap_or(0.0) as u64),
];

/// The field of this name.
pub fn place_of(name: &str) -> Option<usize> {
    FIELDS.iter().position(|field| field.name == name)
}

/// The first of those that are measured.
const RESPONSES: usize = 38;

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When its second, minute or hour began, seconds since 1970.
    pub at: u64,
    /// How much time it is of, milliseconds: less than its step where the volume was not served all of it.
    pub span_ms: u64,
    /// Nothing happened between the sample before it and this one, though the volume was served.
    pub quiet_before: bool,
    /// By [`FIELDS`].
    pub values: [u64; FIELDS.len()],
}

impl Sample {
    /// The value of a field.
    ///
    /// # Panics
    /// Where no field has this name.
    pub fn get(&self, name: &str) -> u64 {
        self.values[place_of(name).expect("a field's name")]
    }

    /// Adds what came after it.
    pub fn join(&mut self, later: &Sample) {
        self.span_ms += later.span_ms;
        for ((value, later), field) in self.values.iter_mut().zip(&later.values).zip(&FIELDS) {
            match field.joins {
                Joins::Sum => *value = value.saturating_add(*later),
                Joins::Last => *value = *later,
                Joins::Most => *value = (*value).max(*later),
            }
        }
    }
}

/// Responses by class, of reads and of writes.
type Classes = [[u64; RESPONSE_CLASSES]; 2];

fn classes(status: &StatusDoc) -> Classes {
    let of = |kind: &KindDoc| {
        let mut all = [0; RESPONSE_CLASSES];
        all.iter_mut().zip(&kind.responses).for_each(|(to, from)| *to = *from);
        all
    };
    [of(&status.requests.reads), of(&status.requests.writes)]
}

/// The time that a share of the responses took no longer than, microseconds: between the bounds of its class, where it is
/// by how much of the class lies below. The largest is the upper bound of its class.
fn quantile(classes: &[u64; RESPONSE_CLASSES], share: f64) -> u64 {
    let all: u64 = classes.iter().sum();
    let rank = (all as f64 * share).ceil().max(1.0);
    let mut below = 0.0;
    for (at, &count) in classes.iter().enumerate().filter(|(_, count)| **count > 0) {
        if below + count as f64 >= rank {
            let last = RESPONSE_BOUNDS_US[RESPONSE_BOUNDS_US.len() - 1];
            let high = RESPONSE_BOUNDS_US.get(at).copied().unwrap_or(last) as f64;
            let low = if at == 0 { 1.0 } else { RESPONSE_BOUNDS_US[at - 1] as f64 };
            return (low * (high / low).powf((rank - below) / count as f64)).round() as u64;
        }
        below += count as f64;
    }
    0
}

/// A minute or an hour under way.
#[derive(Debug)]
struct Gathering {
    sample: Sample,
    classes: Classes,
}

impl Gathering {
    fn finish(mut self) -> Sample {
        for (kind, classes) in self.classes.iter().enumerate() {
            for (at, share) in [0.5, 0.99, 1.0].into_iter().enumerate() {
                self.sample.values[RESPONSES + 3 * kind + at] = quantile(classes, share);
            }
        }
        self.sample
    }
}

/// What was seen last.
#[derive(Debug)]
struct Seen {
    unix_ms: u64,
    generation: u64,
    totals: [u64; FIELDS.len()],
    classes: Classes,
    /// Nothing has happened since the last sample.
    quiet: bool,
}

/// Makes samples of documents that come once a second.
#[derive(Debug, Default)]
pub struct Sampler {
    seen: Option<Seen>,
    gathering: [Option<Gathering>; 2],
}

impl Sampler {
    /// Takes how the volume is now; gives the samples that are complete with that.
    pub fn take(&mut self, status: &StatusDoc) -> Vec<(Step, Sample)> {
        let totals = FIELDS.map(|field| (field.of)(status));
        let now = Seen {
            unix_ms: status.unix_ms,
            generation: status.generation,
            totals,
            classes: classes(status),
            quiet: false,
        };
        let Some(before) = self.seen.replace(now).filter(|seen| seen.generation == status.generation) else {
            return self.finish();
        };
        let Some(span_ms) = status.unix_ms.checked_sub(before.unix_ms).filter(|span| *span > 0) else {
            // The wall clock was set back: what was begun belongs to no time that can be told.
            return self.finish();
        };
        let mut made = Vec::new();
        let sample = self.difference(&before, status.unix_ms / 1000, span_ms);
        let classes = self.class_difference(&before);
        for (place, step) in [Step::Minute, Step::Hour].into_iter().enumerate() {
            let at = sample.at / step.seconds() * step.seconds();
            if self.gathering[place].as_ref().is_some_and(|gathering| gathering.sample.at != at) {
                made.extend(self.gathering[place].take().map(|over| (step, over.finish())));
            }
            let part = Sample { at, ..sample };
            match &mut self.gathering[place] {
                Some(gathering) => {
                    gathering.sample.join(&part);
                    let pairs = gathering.classes.iter_mut().flatten().zip(classes.iter().flatten());
                    pairs.for_each(|(all, more)| *all += more);
                }
                none => *none = Some(Gathering { sample: part, classes }),
            }
        }
        let happened = FIELDS.iter().enumerate().any(|(at, field)| match field.joins {
            Joins::Sum => sample.values[at] > 0,
            _ => totals[at] != before.totals[at],
        });
        if let Some(seen) = &mut self.seen {
            seen.quiet = !happened;
        }
        if happened || !before.quiet {
            let second = Gathering { sample, classes }.finish();
            made.push((Step::Second, Sample { quiet_before: before.quiet, ..second }));
        }
        made
    }

    /// All that is under way; nothing comes after, or after a pause.
    pub fn finish(&mut self) -> Vec<(Step, Sample)> {
        let [minute, hour] = &mut self.gathering;
        let minute = minute.take().map(|over| (Step::Minute, over.finish()));
        let hour = hour.take().map(|over| (Step::Hour, over.finish()));
        minute.into_iter().chain(hour).collect()
    }

    fn difference(&self, before: &Seen, at: u64, span_ms: u64) -> Sample {
        let mut values = self.seen.as_ref().map_or([0; FIELDS.len()], |seen| seen.totals);
        for ((value, before), field) in values.iter_mut().zip(&before.totals).zip(&FIELDS) {
            if field.joins == Joins::Sum {
                *value = value.saturating_sub(*before);
            }
        }
        Sample { at, span_ms, quiet_before: false, values }
    }

    fn class_difference(&self, before: &Seen) -> Classes {
        let mut classes = self.seen.as_ref().map_or([[0; RESPONSE_CLASSES]; 2], |seen| seen.classes);
        let pairs = classes.iter_mut().flatten().zip(before.classes.iter().flatten());
        pairs.for_each(|(now, before)| *now = now.saturating_sub(*before));
        classes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(unix_ms: u64, reads: u64, class: usize) -> StatusDoc {
        let mut status = StatusDoc { unix_ms, generation: 3, ..StatusDoc::default() };
        status.requests.reads.count = reads;
        status.requests.reads.responses = vec![0; RESPONSE_CLASSES];
        status.requests.reads.responses[class] = reads;
        status
    }

    #[test]
    fn seconds_add_up_to_minutes_and_idle_seconds_are_left_out() {
        let (mut sampler, mut made) = (Sampler::default(), Vec::new());
        for second in 0..130u64 {
            // Ten reads a second for thirty seconds, then nothing, then five more.
            let reads = if second < 100 { 10 * second.min(30) } else { 305 };
            made.extend(sampler.take(&status(1_200_000_000 + second * 1000, reads, 10)));
        }
        made.extend(sampler.finish());
        let of = |step| made.iter().filter(|one| one.0 == step).map(|one| one.1).collect::<Vec<_>>();
        let (seconds, minutes, hours) = (of(Step::Second), of(Step::Minute), of(Step::Hour));
        assert_eq!(seconds.iter().map(|one| one.get("reads")).sum::<u64>(), 305);
        // Thirty with reads, the first without, the one with five, and the first without after that.
        assert_eq!(seconds.len(), 33);
        assert!(seconds[31].quiet_before && seconds[31].get("reads") == 5 && seconds[31].span_ms == 1000);
        assert_eq!(minutes.iter().map(|one| one.get("reads")).collect::<Vec<_>>(), [300, 5, 0]);
        assert_eq!((hours.len(), hours[0].get("reads"), hours[0].span_ms), (1, 305, 129_000));
    }

    #[test]
    fn counters_that_begin_anew_give_no_sample() {
        let mut sampler = Sampler::default();
        sampler.take(&status(1000, 500, 0));
        let again = StatusDoc { generation: 4, ..status(2000, 3, 0) };
        assert!(sampler.take(&again).iter().all(|(step, _)| *step != Step::Second));
        assert_eq!(sampler.take(&StatusDoc { generation: 4, ..status(3000, 7, 0) })[0].1.get("reads"), 4);
    }

    #[test]
    fn what_is_measured_stands_together() {
        let names =
            ["read_p50_us", "read_p99_us", "read_max_us", "write_p50_us", "write_p99_us", "write_max_us"];
        assert!(FIELDS[RESPONSES..].iter().map(|field| field.name).take(6).eq(names));
    }

    #[test]
    fn a_quantile_lies_in_its_class() {
        let mut classes = [0; RESPONSE_CLASSES];
        classes[4] = 98;
        classes[20] = 2;
        let (low, high) = (RESPONSE_BOUNDS_US[3], RESPONSE_BOUNDS_US[4]);
        assert!((low..=high).contains(&quantile(&classes, 0.5)));
        assert!((RESPONSE_BOUNDS_US[19]..=RESPONSE_BOUNDS_US[20]).contains(&quantile(&classes, 0.99)));
        assert_eq!(quantile(&classes, 1.0), RESPONSE_BOUNDS_US[20]);
        assert_eq!(quantile(&[0; RESPONSE_CLASSES], 0.5), 0);
        let mut long = [0; RESPONSE_CLASSES];
        long[RESPONSE_CLASSES - 1] = 1;
        assert_eq!(quantile(&long, 1.0), 33_554_432);
    }
}
