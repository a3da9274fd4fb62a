//! The status of volumes as OpenMetrics: names, units and meanings are in docs/METRICS.md.

use bimetal_serve::status::TierDoc;
use bimetal_serve::{KindDoc, StatusDoc};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;

/// States that a volume can be in.
const STATES: [&str; 4] = ["open", "degraded", "read-only", "stopping"];

/// The room below a device that is a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Below {
    /// Free on the file system that the file is on, bytes.
    pub(crate) free_bytes: u64,
    /// Of the file's size, what it does not occupy yet, bytes.
    pub(crate) missing_bytes: u64,
}

/// A volume as it is shown.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) name: String,
    /// None where its server does not answer.
    pub(crate) status: Option<StatusDoc>,
    /// By tier.
    pub(crate) below: Vec<Option<Below>>,
}

/// The text of all metrics.
pub(crate) fn text(seen: Vec<Seen>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Volumes(seen)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

type Labels = Vec<(&'static str, String)>;

#[derive(Clone, Debug)]
enum Value {
    Whole(u64),
    Seconds(f64),
    /// Sum in seconds, how many, and how many in each class, whose bound is in seconds.
    Responses(f64, u64, Vec<(f64, u64)>),
}

/// A metric, with its values.
struct Metric {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    kind: MetricType,
    values: Vec<(Labels, Value)>,
}

#[derive(Debug)]
struct Volumes(Vec<Seen>);

impl Collector for Volumes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for metric in self.metrics().into_iter().filter(|metric| !metric.values.is_empty()) {
            let (unit, kind) = (metric.unit.as_ref(), metric.kind);
            let mut family = encoder.encode_descriptor(metric.name, metric.help, unit, kind)?;
            for (labels, value) in &metric.values {
                put(family.encode_family(labels)?, kind, value)?;
            }
        }
        Ok(())
    }
}

fn put(mut encoder: MetricEncoder<'_>, kind: MetricType, value: &Value) -> fmt::Result {
    type None = [(&'static str, &'static str); 0];
    match (kind, value) {
        (MetricType::Counter, Value::Whole(value)) => {
            encoder.encode_counter::<None, u64, f64>(value, Option::None)
        }
        (MetricType::Counter, Value::Seconds(value)) => {
            encoder.encode_counter::<None, f64, f64>(value, Option::None)
        }
        (_, Value::Whole(value)) => encoder.encode_gauge(value),
        (_, Value::Seconds(value)) => encoder.encode_gauge(value),
        (_, Value::Responses(sum, count, classes)) => {
            encoder.encode_histogram::<None>(*sum, *count, classes, Option::None)
        }
    }
}

/// Metrics under way.
struct List<'s> {
    seen: &'s [Seen],
    metrics: Vec<Metric>,
}

impl List<'_> {
    fn push(
        &mut self,
        name: &'static str,
        help: &'static str,
        unit: Option<Unit>,
        kind: MetricType,
        values: Vec<(Labels, Value)>,
    ) {
        self.metrics.push(Metric { name, help, unit, kind, values });
    }

    fn statuses(&self) -> impl Iterator<Item = (&Seen, &StatusDoc)> {
        self.seen.iter().filter_map(|seen| Some((seen, seen.status.as_ref()?)))
    }

    /// One value for each volume; none where it has none.
    fn volume(
        &mut self,
        name: &'static str,
        help: &'static str,
        unit: Option<Unit>,
        kind: MetricType,
        of: impl Fn(&StatusDoc) -> Option<u64>,
    ) {
        let value =
            |(seen, status): (&Seen, &StatusDoc)| Some((vec![volume(seen)], Value::Whole(of(status)?)));
        let values = self.statuses().filter_map(value).collect();
        self.push(name, help, unit, kind, values);
    }

    /// One for each tier.
    fn tier(
        &mut self,
        name: &'static str,
        help: &'static str,
        unit: Option<Unit>,
        kind: MetricType,
        of: impl Fn(&StatusDoc, &TierDoc) -> Value,
    ) {
        let mut values = Vec::new();
        for (seen, status) in self.statuses() {
            for tier in &status.tiers {
                values.push((vec![volume(seen), ("tier", tier.name.clone())], of(status, tier)));
            }
        }
        self.push(name, help, unit, kind, values);
    }

    /// One for each tier and one of two words.
    fn tier_by(
        &mut self,
        name: &'static str,
        help: &'static str,
        unit: Option<Unit>,
        by: (&'static str, [&'static str; 2]),
        of: impl Fn(&TierDoc) -> [u64; 2],
    ) {
        let mut values = Vec::new();
        for (seen, status) in self.statuses() {
            for tier in &status.tiers {
                for (word, value) in by.1.into_iter().zip(of(tier)) {
                    let labels = vec![volume(seen), ("tier", tier.name.clone()), (by.0, word.to_owned())];
                    values.push((labels, Value::Whole(value)));
                }
            }
        }
        self.push(name, help, unit, MetricType::Counter, values);
    }

    /// One for each kind of request.
    fn kind(
        &mut self,
        name: &'static str,
        help: &'static str,
        unit: Option<Unit>,
        kind: MetricType,
        of: impl Fn(&StatusDoc, &KindDoc) -> Value,
    ) {
        let mut values = Vec::new();
        for (seen, status) in self.statuses() {
            let r = &status.requests;
            for (word, doc) in
                [("read", &r.reads), ("write", &r.writes), ("flush", &r.flushes), ("discard", &r.discards)]
            {
                values.push((vec![volume(seen), ("kind", word.to_owned())], of(status, doc)));
            }
        }
        self.push(name, help, unit, kind, values);
    }
}

fn volume(seen: &Seen) -> (&'static str, String) {
    ("volume", seen.name.clone())
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

fn responses(status: &StatusDoc, kind: &KindDoc) -> Value {
    let bounds =
        status.requests.response_bounds_us.iter().map(|bound| seconds(*bound)).chain([f64::INFINITY]);
    Value::Responses(
        seconds(kind.response_us),
        kind.count,
        bounds.zip(kind.responses.iter().copied()).collect(),
    )
}

use MetricType::{Counter, Gauge, Histogram};

impl Volumes {
    fn metrics(&self) -> Vec<Metric> {
        let mut list = List { seen: &self.0, metrics: Vec::new() };
        list.state();
        list.requests();
        list.devices();
        list.zone();
        list.moves();
        list.health();
        list.metrics
    }
}

impl List<'_> {
    fn state(&mut self) {
        let up =
            self.seen.iter().map(|seen| (vec![volume(seen)], Value::Whole(seen.status.is_some().into())));
        self.push("bimetal_up", "Whether the server of the volume answers", None, Gauge, up.collect());
        let mut states = Vec::new();
        for (seen, status) in self.statuses() {
            for state in STATES {
                let labels = vec![volume(seen), ("state", state.to_owned())];
                states.push((labels, Value::Whole((status.state == state).into())));
            }
        }
        self.push("bimetal_state", "1 for the state that the volume is in", None, Gauge, states);
        self.volume("bimetal_generation", "Which opening of the volume this is", None, Gauge, |s| {
            Some(s.generation)
        });
        self.volume("bimetal_size", "Size that clients see", Some(Unit::Bytes), Gauge, |s| {
            Some(s.size_bytes)
        });
        self.volume("bimetal_chunk", "Bytes of a chunk", Some(Unit::Bytes), Gauge, |s| {
            Some(s.chunk_bytes.into())
        });
        self.volume("bimetal_clients", "Clients connected", None, Gauge, |s| Some(s.clients));
        self.volume("bimetal_tables", "Memory of tables and caches", Some(Unit::Bytes), Gauge, |s| {
            Some(s.ram_bytes)
        });
        self.volume("bimetal_buffers", "Memory of buffers", Some(Unit::Bytes), Gauge, |s| {
            Some(s.buffer_bytes)
        });
        self.volume(
            "bimetal_lost",
            "What is lost with a device that is missing",
            Some(Unit::Bytes),
            Gauge,
            |s| Some(s.loss.as_ref().map_or(0, |loss| loss.lost_bytes)),
        );
        self.volume(
            "bimetal_marks_suspect",
            "What would be suspect were the fast device lost now",
            Some(Unit::Bytes),
            Gauge,
            |s| s.marks.as_ref().map(|marks| marks.suspect_bytes),
        );
        self.protection();
    }

    /// Of a volume that is protected.
    fn protection(&mut self) {
        self.volume(
            "bimetal_protection",
            "How old the image on the slow device may be",
            Some(Unit::Seconds),
            Gauge,
            |s| s.protection.as_ref().map(|image| image.seconds.into()),
        );
        self.volume(
            "bimetal_exposed",
            "How old that image is, where something has been written since",
            Some(Unit::Seconds),
            Gauge,
            |s| s.protection.as_ref().and_then(|image| image.exposed_seconds),
        );
        self.volume(
            "bimetal_exposed_data",
            "What of the fast device that image lacks",
            Some(Unit::Bytes),
            Gauge,
            |s| s.protection.as_ref().map(|image| image.exposed_bytes),
        );
        self.volume("bimetal_image", "Whether there is such an image", None, Gauge, |s| {
            s.protection.as_ref().map(|image| u64::from(image.state == "image"))
        });
    }

    fn requests(&mut self) {
        self.kind("bimetal_requests", "Requests of clients that were answered", None, Counter, |_, k| {
            Value::Whole(k.count)
        });
        self.kind("bimetal_request", "Bytes that they asked for", Some(Unit::Bytes), Counter, |_, k| {
            Value::Whole(k.bytes)
        });
        self.kind(
            "bimetal_request_errors",
            "Those that were answered with an error",
            None,
            Counter,
            |_, k| Value::Whole(k.errors),
        );
        self.kind(
            "bimetal_response",
            "From when the engine got a request to its reply",
            Some(Unit::Seconds),
            Histogram,
            responses,
        );
        self.tier(
            "bimetal_served_read",
            "Bytes that clients read, by the tier that had them",
            Some(Unit::Bytes),
            Counter,
            |_, t| Value::Whole(t.read_bytes),
        );
        self.tier(
            "bimetal_served_written",
            "Bytes that clients wrote, by the tier that took them",
            Some(Unit::Bytes),
            Counter,
            |_, t| Value::Whole(t.written_bytes),
        );
    }

    fn devices(&mut self) {
        self.tier("bimetal_tier_size", "Room of a tier", Some(Unit::Bytes), Gauge, |_, t| {
            Value::Whole(t.size_bytes)
        });
        self.tier("bimetal_tier_used", "Room of a tier in use", Some(Unit::Bytes), Gauge, |_, t| {
            Value::Whole(t.used_bytes)
        });
        self.tier("bimetal_tier_pinned", "Bytes pinned to a tier", Some(Unit::Bytes), Gauge, |_, t| {
            Value::Whole(t.pinned_bytes)
        });
        let ways = ("kind", ["read", "write"]);
        self.tier_by("bimetal_device_operations", "Reads and writes of a device", None, ways, |t| {
            [t.load.reads, t.load.writes]
        });
        self.tier_by(
            "bimetal_device_transferred",
            "Bytes read from a device, and written to it",
            Some(Unit::Bytes),
            ways,
            |t| [t.load.read_bytes, t.load.written_bytes],
        );
        let by = ("by", ["clients", "background"]);
        self.tier_by("bimetal_device_wakeups", "Uses of a device after a rest of 20 s", None, by, |t| {
            [t.wakeups.clients, t.wakeups.background]
        });
        self.tier("bimetal_device_flushes", "Flushes sent to a device", None, Counter, |_, t| {
            Value::Whole(t.flushes)
        });
        self.tier("bimetal_device_errors", "Operations that a device failed", None, Counter, |_, t| {
            Value::Whole(t.load.errors)
        });
        self.tier(
            "bimetal_device_busy",
            "Time with something in flight",
            Some(Unit::Seconds),
            Counter,
            |_, t| Value::Seconds(seconds(t.load.busy_us)),
        );
        self.tier(
            "bimetal_device_wait",
            "What all operations took, added up",
            Some(Unit::Seconds),
            Counter,
            |_, t| Value::Seconds(seconds(t.load.wait_us)),
        );
        self.tier("bimetal_device_in_flight", "Operations in flight", None, Gauge, |_, t| {
            Value::Whole(t.load.in_flight)
        });
        self.tier(
            "bimetal_device_silent",
            "How long a device that is asked for something has answered nothing",
            Some(Unit::Seconds),
            Gauge,
            |s, t| {
                Value::Whole(
                    t.silent_since_unix_s.map_or(0, |since| (s.unix_ms / 1000).saturating_sub(since)),
                )
            },
        );
        let below = |of: fn(Below) -> u64| {
            let mut values = Vec::new();
            for (seen, status) in self.statuses() {
                for (tier, below) in status.tiers.iter().zip(&seen.below) {
                    let labels = vec![volume(seen), ("tier", tier.name.clone())];
                    values.extend(below.map(|below| (labels, Value::Whole(of(below)))));
                }
            }
            values
        };
        let (free, missing) = (below(|below| below.free_bytes), below(|below| below.missing_bytes));
        self.push(
            "bimetal_backing_free",
            "Free on the file system that a device's file is on",
            Some(Unit::Bytes),
            Gauge,
            free,
        );
        self.push(
            "bimetal_backing_missing",
            "Of a device's file, what takes no room yet",
            Some(Unit::Bytes),
            Gauge,
            missing,
        );
    }

    fn zone(&mut self) {
        self.volume("bimetal_landing_size", "Size of the landing zone", Some(Unit::Bytes), Gauge, |s| {
            Some(s.landing.size_bytes)
        });
        self.volume("bimetal_landing_used", "Of it, what is in use", Some(Unit::Bytes), Gauge, |s| {
            Some(s.landing.used_bytes)
        });
        self.volume(
            "bimetal_landing_landed",
            "Blocks whose newest copy is in it",
            Some(Unit::Bytes),
            Gauge,
            |s| Some(s.landing.landed_bytes),
        );
        self.volume(
            "bimetal_landing_short",
            "Whether it is short, and clients are metered",
            None,
            Gauge,
            |s| Some(s.landing.short.into()),
        );
        self.volume("bimetal_log_written", "Bytes appended to the log", Some(Unit::Bytes), Counter, |s| {
            Some(s.landing.log_written_bytes)
        });
        self.volume("bimetal_log_payload", "Of these, what clients wrote", Some(Unit::Bytes), Counter, |s| {
            Some(s.landing.log_payload_bytes)
        });
        self.volume("bimetal_checkpoints", "Checkpoints completed", None, Counter, |s| Some(s.checkpoints));
        self.volume("bimetal_destaged_blocks", "Landed blocks brought home", None, Counter, |s| {
            Some(s.destaged_blocks)
        });
    }

    fn moves(&mut self) {
        self.volume("bimetal_promoted_chunks", "Chunks moved up", None, Counter, |s| Some(s.promoted_chunks));
        self.volume("bimetal_demoted_chunks", "Chunks moved down", None, Counter, |s| Some(s.demoted_chunks));
        self.volume(
            "bimetal_shadow_demoted_chunks",
            "Of these, those that were not copied",
            None,
            Counter,
            |s| Some(s.shadow_demoted_chunks),
        );
        self.volume(
            "bimetal_judged_chunks",
            "Chunks that rose, and have repaid it or gone down again",
            None,
            Counter,
            |s| Some(s.moves.judged_chunks),
        );
        self.volume("bimetal_repaid_chunks", "Of these, those that have repaid it", None, Counter, |s| {
            Some(s.moves.repaid_chunks)
        });
        self.volume(
            "bimetal_last_promotion_timestamp",
            "When the last chunk rose",
            Some(Unit::Seconds),
            Gauge,
            |s| s.last_promotion_unix_s,
        );
        self.volume(
            "bimetal_copies",
            "Of the slow tier, what has a copy on the fast one",
            Some(Unit::Bytes),
            Gauge,
            |s| Some(s.copied_bytes),
        );
        self.volume(
            "bimetal_copy_read",
            "Bytes that clients read from copies",
            Some(Unit::Bytes),
            Counter,
            |s| Some(s.copy_read_bytes),
        );
        self.volume(
            "bimetal_shadows",
            "Of the slow tier, what is there still of chunks that rose",
            Some(Unit::Bytes),
            Gauge,
            |s| Some(s.shadowed_bytes),
        );
        self.volume(
            "bimetal_wear_moved",
            "Written to the fast device by moves",
            Some(Unit::Bytes),
            Counter,
            |s| Some(s.wear.moved_bytes),
        );
        self.volume(
            "bimetal_wear_copied",
            "Written to the fast device by copies",
            Some(Unit::Bytes),
            Counter,
            |s| Some(s.wear.copied_bytes),
        );
        self.volume("bimetal_wear_budget", "What both may write in a day", Some(Unit::Bytes), Gauge, |s| {
            Some(s.wear.budget.as_ref()?.bytes_per_day)
        });
        self.volume("bimetal_wear_budget_left", "What is left of that", Some(Unit::Bytes), Gauge, |s| {
            Some(s.wear.budget.as_ref()?.left_bytes)
        });
    }

    fn health(&mut self) {
        self.volume("bimetal_reads_again", "Reads of clients that were made again", None, Counter, |s| {
            Some(s.reads_again)
        });
        self.volume(
            "bimetal_reads_from_shadows",
            "Of these, those that shadows answered",
            None,
            Counter,
            |s| Some(s.reads_from_shadows),
        );
        self.volume(
            "bimetal_repaired_blocks",
            "Blocks that were wrong and are right again",
            None,
            Counter,
            |s| Some(s.repaired_blocks),
        );
        self.volume(
            "bimetal_scrub_wrong_blocks",
            "Blocks that the last scrub found wrong",
            None,
            Gauge,
            |s| Some(s.scrub.wrong_blocks),
        );
        self.volume("bimetal_scrub_lost", "What scrubs found lost", Some(Unit::Bytes), Gauge, |s| {
            Some(s.scrub.lost_bytes())
        });
        self.volume(
            "bimetal_scrub_done",
            "What the last scrub has looked at",
            Some(Unit::Bytes),
            Gauge,
            |s| Some(s.scrub.done_bytes),
        );
        self.volume(
            "bimetal_scrub_whole_timestamp",
            "When a scrub had seen everything last",
            Some(Unit::Seconds),
            Gauge,
            |s| s.scrub.whole_unix_s,
        );
    }
}
