//! Incidents that were recorded: the engine itself on modelled devices in virtual time, with a fault, and what `/metrics` says
//! of it each minute. `INCIDENTS=write` writes them as `alerts/recorded.yml`; where promtool is there, the rules are run on
//! what is recorded now.

mod faulty;

use crate::metrics::{Below, Seen, text};
use bimetal_driver::DeviceLoad;
use bimetal_engine::options::{CreateOptions, Tuning};
use bimetal_models::{Command, Done, Kind, Model as _, spec};
use bimetal_serve::{StatusDoc, VolumeName};
use bimetal_sim::timed::{TimedDevice, TimedVolume};
use bimetal_units::rng::Rng;
use bimetal_units::{Nanos, Tier};
use faulty::{Fault, Faulty, Noted};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::rc::Rc;

const MINUTE: Nanos = Nanos(60 * Nanos::SECOND);
const GIB: u64 = 1 << 30;
/// The sizes of the devices, by tier.
const SIZES: [u64; 2] = [GIB, 6 * GIB];

fn minutes(count: u64) -> Nanos {
    Nanos(count * MINUTE.0)
}

/// What clients ask for.
#[derive(Clone, Copy, Debug)]
struct Ask {
    /// So many a second; none is as fast as four at a time are answered.
    per_second: Option<u64>,
    read_percent: u64,
    /// Of each ten, so many go to the part that is hot.
    hot_tenths: u64,
    /// Where that begins, bytes.
    hot_at: u64,
    hot_bytes: u64,
}

/// Some reads and writes to a part that fits the fast tier, now and then to all.
const HEALTHY: Ask =
    Ask { per_second: Some(15), read_percent: 70, hot_tenths: 9, hot_at: 2 * GIB, hot_bytes: GIB / 4 };

/// What happens, and which alerts are to fire at some minutes of it.
struct Incident {
    name: &'static str,
    /// Of which device: 0 is the fast one.
    tier: usize,
    fault: Fault,
    minutes: u64,
    /// Minutes from one value to the next.
    step: u64,
    wear_bytes_per_day: Option<u64>,
    ask: fn(u64) -> Ask,
    /// From this minute on its server is gone.
    gone: Option<u64>,
    /// Its server is killed, and opens it again without that device.
    left_without: Option<(u64, u64)>,
    /// When a scrub is begun.
    scrub: Option<u64>,
    /// What is free at a minute on the file system below, but for what the volume's devices occupy there.
    free_below: fn(u64) -> u64,
    expected: &'static [(u64, &'static [&'static str])],
}

const USUAL: Incident = Incident {
    name: "an hour and a half of healthy load",
    tier: 1,
    fault: Fault::None,
    minutes: 90,
    step: 1,
    wear_bytes_per_day: Some(256 * GIB),
    ask: |_| HEALTHY,
    gone: None,
    left_without: None,
    scrub: None,
    free_below: |_| 400 * GIB,
    expected: &[(20, &[]), (45, &[]), (60, &[]), (75, &[]), (89, &[])],
};

/// All of them.
fn incidents() -> Vec<Incident> {
    let flood = |minute: u64| match minute {
        20..39 => Ask { per_second: Some(600), read_percent: 0, hot_tenths: 0, ..HEALTHY },
        _ => HEALTHY,
    };
    let everywhere = |_| Ask { per_second: None, read_percent: 100, hot_tenths: 0, ..HEALTHY };
    let wandering = |minute: u64| Ask {
        per_second: Some(25),
        read_percent: 100,
        hot_at: minute / 10 * (GIB / 2) % (5 * GIB),
        hot_bytes: GIB / 2,
        ..HEALTHY
    };
    vec![
        USUAL,
        Incident {
            name: "the server is killed after half an hour",
            minutes: 45,
            gone: Some(30),
            expected: &[(29, &[]), (40, &["BimetalServerGone"])],
            ..USUAL
        },
        Incident {
            name: "three reads of the disk fail",
            fault: Fault::Reads { at: 30, count: 3 },
            minutes: 45,
            expected: &[(29, &[]), (33, &["BimetalDeviceErrors"]), (44, &[])],
            ..USUAL
        },
        Incident {
            name: "the disk fails all writes",
            fault: Fault::Writes { at: 30 },
            expected: &[(29, &[]), (40, &["BimetalDeviceErrors"])],
            minutes: 45,
            ..USUAL
        },
        Incident {
            name: "the SSD fails all writes",
            tier: 0,
            fault: Fault::Writes { at: 30 },
            minutes: 45,
            expected: &[
                (29, &[]),
                (33, &["BimetalDeviceErrors", "BimetalReadOnly"]),
                (44, &["BimetalReadOnly"]),
            ],
            ..USUAL
        },
        Incident {
            name: "the disk answers nothing for two minutes",
            fault: Fault::Stall { at: 30, seconds: 150 },
            minutes: 45,
            expected: &[(29, &[]), (32, &["BimetalDeviceSilent"]), (44, &[])],
            ..USUAL
        },
        Incident {
            name: "more is written for twenty minutes than the disk takes",
            minutes: 45,
            ask: flood,
            expected: &[(19, &[]), (38, &["BimetalZoneShort"])],
            ..USUAL
        },
        Incident {
            name: "what is read is more than the SSD holds, and nothing may rise",
            minutes: 50,
            wear_bytes_per_day: Some(0),
            ask: everywhere,
            expected: &[(49, &["BimetalSlowDeviceSaturated"])],
            ..USUAL
        },
        Incident {
            name: "what is hot changes all the time",
            minutes: 100,
            wear_bytes_per_day: Some(GIB / 2),
            ask: wandering,
            expected: &[(99, &["BimetalWearBudget"])],
            ..USUAL
        },
        Incident {
            name: "the server is killed, and opens the volume without its disk",
            minutes: 45,
            left_without: Some((30, 35)),
            expected: &[(29, &[]), (34, &["BimetalServerGone"]), (40, &["BimetalDeviceMissing"])],
            ..USUAL
        },
        Incident {
            name: "a scrub finds what the disk cannot read any more",
            fault: Fault::Rots { at: 12, from: 3 * GIB, bytes: 256 << 10 },
            minutes: 45,
            // While writes keep the zone short, a scrub waits.
            ask: |minute| Ask { read_percent: if minute < 12 { 70 } else { 100 }, ..HEALTHY },
            scrub: Some(15),
            expected: &[
                (11, &[]),
                (20, &["BimetalDataLost", "BimetalDeviceErrors"]),
                (44, &["BimetalDataLost"]),
            ],
            ..USUAL
        },
        Incident {
            name: "somebody else fills the file system that the devices are on",
            minutes: 45,
            free_below: |minute| 20 * GIB - (4 * minute.saturating_sub(18)).min(54) * GIB / 4,
            expected: &[(29, &[]), (44, &["BimetalNoRoomBelow"])],
            ..USUAL
        },
        Incident {
            name: "the disk takes four times as long as yesterday",
            fault: Fault::Slower { at: 25 * 60, times: 4 },
            minutes: 27 * 60 + 30,
            step: 5,
            ask: |_| Ask { per_second: Some(1), read_percent: 100, hot_tenths: 0, ..HEALTHY },
            expected: &[(25 * 60, &[]), (27 * 60 + 25, &["BimetalSlowDeviceSlower"])],
            ..USUAL
        },
    ]
}

/// Values of each series, minute by minute.
type Series = BTreeMap<String, Vec<Option<f64>>>;

fn device(model: &str, size_bytes: u64, fault: Fault, noted: &Rc<RefCell<Noted>>) -> TimedDevice {
    let spec = spec::named(model).expect("a model").resized(size_bytes);
    let inner = spec.build(1).expect("it can be built");
    TimedDevice::new(Box::new(Faulty::new(inner, fault, noted)))
}

/// Runs it, and notes what is said of the volume at each step.
fn record(incident: &Incident, wanted: &BTreeSet<String>) -> Series {
    let noted: [Rc<RefCell<Noted>>; 2] = Default::default();
    let fault = |tier: usize| if incident.tier == tier { incident.fault } else { Fault::None };
    let devices = vec![
        device("ssd-128gb-2012", SIZES[0], fault(0), &noted[0]),
        device("disk-1tb-2012", SIZES[1], fault(1), &noted[1]),
    ];
    let tuning = Tuning { wear_bytes_per_day: incident.wear_bytes_per_day, ..Tuning::default() };
    let mut volume =
        TimedVolume::create(devices, CreateOptions::new([7; 16]), tuning.clone()).expect("it is made");
    let mut load = Load::new(volume.size_bytes());
    load.fill(&mut volume);
    // Minutes are counted from the end of the filling, which takes less than the first ten of them.
    assert!(volume.now() < minutes(10), "{:?}", volume.now());
    let mut series = Series::new();
    for minute in (0..incident.minutes).step_by(incident.step as usize) {
        let killed = incident.left_without.is_some_and(|(gone, back)| (gone..back).contains(&minute));
        if !killed && minutes(minute) > volume.now() {
            load.run(&mut volume, minutes(minute), &incident.ask);
        }
        if incident.scrub == Some(minute) {
            volume.begin_scrub().expect("it begins");
        }
        if incident.left_without.is_some_and(|(_, back)| back == minute) {
            let mut world = volume.kill();
            world.rest_until(minutes(minute));
            let missing = Tier(incident.tier as u8);
            volume = TimedVolume::open_degraded(world, missing, tuning.clone()).expect("what is left opens");
            load = Load { size_bytes: volume.size_bytes(), next: volume.now(), in_flight: 0, ..load };
        }
        let gone = killed || incident.gone.is_some_and(|at| minute >= at);
        let status = (!gone).then(|| document(&volume, &noted, incident));
        let occupied = [0, 1].map(|tier| noted[tier].borrow().occupied_bytes());
        let free_bytes = (incident.free_below)(minute).saturating_sub(occupied.iter().sum());
        let below =
            [0, 1].map(|tier| Some(Below { free_bytes, missing_bytes: SIZES[tier] - occupied[tier] }));
        note(
            &mut series,
            Seen { name: "films".into(), status, below: below.to_vec() },
            minute / incident.step,
            wanted,
        );
    }
    series
}

/// The document of a volume as its server would give it.
fn document(volume: &TimedVolume, noted: &[Rc<RefCell<Noted>>; 2], incident: &Incident) -> StatusDoc {
    let mut doc = StatusDoc::new(&VolumeName("films".into()), &volume.status());
    let loads: Vec<DeviceLoad> = volume
        .device_usage()
        .iter()
        .enumerate()
        .map(|(tier, usage)| DeviceLoad {
            reads: usage.reads,
            writes: usage.writes,
            read_bytes: usage.read_bytes,
            written_bytes: usage.written_bytes,
            errors: noted[tier].borrow().errors,
            busy_ns: busy_ns(
                usage.busy_ns,
                if tier == incident.tier { incident.fault } else { Fault::None },
                volume.now(),
            ),
            ..DeviceLoad::default()
        })
        .collect();
    doc.load_devices(&loads);
    doc.unix_ms = volume.now().0 / Nanos::MS;
    doc
}

/// How long it was busy in the time of clients: a slower device counts its own.
fn busy_ns(own: u64, fault: Fault, now: Nanos) -> u64 {
    thread_local!(static BEFORE: RefCell<u64> = const { RefCell::new(0) });
    let Fault::Slower { at, times } = fault else { return own };
    BEFORE.with_borrow_mut(|before| {
        if now < minutes(at).after(1) {
            *before = own;
        }
        *before + (own - *before) * times
    })
}

/// Adds what `/metrics` says of those metrics that rules name.
fn note(series: &mut Series, seen: Seen, place: u64, wanted: &BTreeSet<String>) {
    let text = text(vec![seen]).expect("metrics");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("a value");
        let plain = name.split('{').next().unwrap_or(name);
        if !wanted.contains(plain) {
            continue;
        }
        let values = series.entry(name.to_owned()).or_default();
        values.resize(place as usize, None);
        values.push(Some(value.parse().expect("a number")));
    }
}

/// A client.
struct Load {
    rng: Rng,
    size_bytes: u64,
    next: Nanos,
    tag: u64,
    in_flight: u64,
    done: Vec<Done>,
}

impl Load {
    fn new(size_bytes: u64) -> Load {
        Load { rng: Rng::new(1, 0), size_bytes, next: Nanos(0), tag: 0, in_flight: 0, done: Vec::new() }
    }

    /// Writes most of the volume in order.
    fn fill(&mut self, volume: &mut TimedVolume) {
        let mut at = 0;
        while at < self.size_bytes / 10 * 9 {
            self.submit(volume, Kind::Write { fua: false }, at, 1 << 20);
            at += 1 << 20;
            while self.in_flight >= 4 {
                self.wait(volume, Nanos(u64::MAX));
            }
        }
        self.next = volume.now();
    }

    fn submit(&mut self, volume: &mut TimedVolume, kind: Kind, offset: u64, len: u64) {
        self.tag += 1;
        self.in_flight += 1;
        volume.submit(volume.now(), self.tag, Command { kind, offset, len });
    }

    /// Goes on to the next thing that happens, or to a time.
    fn wait(&mut self, volume: &mut TimedVolume, until: Nanos) {
        let at = volume.deadline().unwrap_or(until).min(until).max(volume.now());
        volume.advance(at, &mut self.done);
        self.in_flight -= self.done.len() as u64;
        self.done.clear();
    }

    /// Asks until a time.
    fn run(&mut self, volume: &mut TimedVolume, until: Nanos, ask: &fn(u64) -> Ask) {
        while volume.now() < until {
            let now = volume.now();
            let ask = ask(now.0 / MINUTE.0);
            let may = match ask.per_second {
                Some(_) => self.next <= now && self.in_flight < 256,
                None => self.in_flight < 4,
            };
            if may {
                let hot = self.rng.below(10) < ask.hot_tenths;
                let (from, bytes) =
                    if hot { (ask.hot_at, ask.hot_bytes) } else { (0, self.size_bytes / 10 * 9) };
                let offset = (from + self.rng.below(bytes / 4096) * 4096) % (self.size_bytes / 10 * 9);
                let read = self.rng.below(100) < ask.read_percent;
                self.submit(volume, if read { Kind::Read } else { Kind::Write { fua: false } }, offset, 4096);
                let pause = Nanos::SECOND / ask.per_second.unwrap_or(1);
                self.next = now.after(self.rng.below(2 * pause));
                continue;
            }
            let next = if ask.per_second.is_some() && self.in_flight < 256 { self.next } else { until };
            self.wait(volume, next.max(Nanos(now.0 + 1)).min(until));
        }
    }
}

/// Values as promtool reads them: those that stay, or grow as evenly, are one expression.
fn values(values: &[Option<f64>], all: usize) -> String {
    let mut parts: Vec<String> = Vec::new();
    let (mut at, mut values) = (0, values.to_vec());
    values.resize(all, None);
    while at < all {
        let Some(first) = values[at] else {
            let end = (at..all).find(|&place| values[place].is_some()).unwrap_or(all);
            parts.push(format!("_x{}", end - at));
            at = end;
            continue;
        };
        let step = values.get(at + 1).copied().flatten().map_or(0.0, |second| second - first);
        let follows =
            |place: usize| values[place].is_some_and(|value| value - first == step * (place - at) as f64);
        let end = (at + 1..all).find(|&place| !follows(place)).unwrap_or(all);
        let many = end - at - 1;
        match (many, step) {
            (0 | 1, _) => {
                parts.push(format!("{first}"));
                at += 1;
                continue;
            }
            (_, 0.0) => parts.push(format!("{first}x{many}")),
            _ => parts.push(format!("{first}{step:+}x{many}")),
        }
        at = end;
    }
    parts.join(" ")
}

/// Metrics that the rules name.
fn named(rules: &str) -> BTreeSet<String> {
    let words = rules.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("bimetal_")).map(str::to_owned).collect()
}

fn yaml(incident: &Incident, series: &Series) -> String {
    let mut out =
        format!("  - name: {}\n    interval: {}m\n    input_series:\n", incident.name, incident.step);
    let all = incident.minutes.div_ceil(incident.step) as usize;
    for (name, of) in series {
        let _ = writeln!(out, "      - series: '{name}'\n        values: '{}'", values(of, all));
    }
    out += "    promql_expr_test:\n";
    for (minute, alerts) in incident.expected {
        let _ = writeln!(
            out,
            "      - expr: group by (alertname) (ALERTS{{alertstate=\"firing\"}})\n        eval_time: {minute}m\n        \
             exp_samples: [{}]",
            alerts
                .iter()
                .map(|name| format!("{{labels: '{{alertname=\"{name}\"}}', value: 1}}"))
                .collect::<Vec<_>>()
                .join(", ")
        );
    }
    out
}

fn alerts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../alerts")
}

/// Each incident fires its own alerts and no others, which promtool says where it is there; each has a series for what it is about.
#[test]
fn recorded_incidents_fire_their_alerts() {
    let rules = std::fs::read_to_string(alerts().join("bimetal.yml")).expect("the rules");
    let wanted = named(&rules);
    let mut out = String::from(
        "# Incidents that were recorded: the engine on modelled devices in virtual time, with a fault, as /metrics tells of it.\n\
         # Made by INCIDENTS=write cargo test -p bimetal-watch incidents. `promtool test rules alerts/recorded.yml` runs them.\n\
         rule_files: [bimetal.yml]\nevaluation_interval: 1m\ntests:\n",
    );
    let is_written = std::env::var("INCIDENTS").is_ok_and(|what| what == "write");
    for incident in incidents() {
        // The long ones take minutes.
        if !is_written && incident.minutes > 45 {
            continue;
        }
        let series = record(&incident, &wanted);
        println!("{}", incident.name);
        assert!(series.len() >= 15, "{}: {:?}", incident.name, series.keys());
        out += &yaml(&incident, &series);
    }
    if is_written {
        std::fs::write(alerts().join("recorded.yml"), &out).expect("it is written");
    }
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("bimetal.yml"), rules).expect("it is written");
    std::fs::write(dir.path().join("recorded.yml"), out).expect("it is written");
    let mut promtool = std::process::Command::new("promtool");
    promtool.args(["test", "rules", "recorded.yml"]).current_dir(dir.path()).stdin(Stdio::null());
    match promtool.output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => println!("promtool is not there ({error}); only the recording was tried"),
    }
}

#[test]
fn values_are_written_as_they_are() {
    let some = |list: &[f64]| list.iter().map(|value| Some(*value)).collect::<Vec<_>>();
    assert_eq!(values(&some(&[1.0, 1.0, 1.0, 1.0]), 4), "1x3");
    assert_eq!(values(&some(&[5.0, 7.0, 9.0, 20.0, 1.0]), 7), "5+2x2 20 1 _x2");
    assert_eq!(values(&some(&[9.0, 6.0, 3.0]), 3), "9-3x2");
    assert_eq!(values(&[None, Some(2.0), None], 3), "_x1 2 _x1");
}
