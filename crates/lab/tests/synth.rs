//! Traces that are made up have what was asked for, as an independent reader finds it.

use bimetal_lab::synth::{Compared, Profile, Synth, compare};
use bimetal_trace::{Op, OwnWriter, Record, RecordWriter as _, Stat, Summary, Trace};
use std::collections::BTreeMap;

/// A hundredth of the operations: rounding is the larger, the fewer there are.
const SCALE: u64 = 100;
const SEEDS: [u64; 4] = [1, 2, 7, 4711];

fn summary(profile: &Profile, seed: u64) -> Summary {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let mut writer = Box::new(OwnWriter::new(file.as_file()).expect("a header"));
    for record in Synth::new(profile, seed).expect("a trace") {
        writer.record(&record).expect("it is written");
    }
    writer.finish().expect("it is whole");
    let mut trace = Trace::open(&[file.path().to_owned()]).expect("it is a trace");
    let mut stat = Stat::default();
    for found in trace.by_ref() {
        stat.add(&found);
    }
    stat.summary(&trace)
}

fn row<'r>(rows: &'r [Compared], what: &str) -> &'r Compared {
    rows.iter().find(|row| row.what == what).unwrap_or_else(|| panic!("no row {what:?}: {rows:?}"))
}

/// Counts are exact, bytes within 0.1 %, shares and depths within 0.5 %.
#[test]
fn what_was_asked_for_is_what_a_reader_finds() {
    for name in Profile::names() {
        let profile = Profile::named(name).expect("it is there").scaled(SCALE).expect("enough is left");
        for seed in SEEDS {
            let rows = compare(&profile, &summary(&profile, seed));
            for row in &rows {
                let most = match row.what.as_str() {
                    "reads" | "writes" => 0.0,
                    "read, GB" | "written, GB" => 1e-3,
                    _ => 5e-3,
                };
                assert!(row.error().abs() <= most, "{name}, seed {seed}: {row:?}");
            }
            let published = rows.iter().filter(|row| row.asked.is_some()).count();
            // Reads, writes, the sequential share, the depth; and of each profile what else is known.
            let own = match name {
                "heavy" => 1 + 4 + 1,
                "light" => 4,
                _ => 2,
            };
            assert_eq!(published, 4 + own, "{name}: {rows:?}");
        }
    }
}

/// The published figures of the heavy workload, by their names: a profile that lost one would not be noticed above.
#[test]
fn the_heavy_profile_has_the_published_figures() {
    let profile = Profile::named("heavy").expect("it is there");
    assert_eq!((profile.reads, profile.writes), (2_168_893, 1_783_447));
    let rows = compare(
        &profile.scaled(SCALE).expect("enough is left"),
        &summary(&profile.scaled(SCALE).expect("enough"), 3),
    );
    for (what, asked) in [
        ("written, GB", 1.0632),
        ("4 KiB, %", 28.0),
        ("16 KiB, %", 10.0),
        ("32 KiB, %", 10.0),
        ("64 KiB, %", 4.0),
        ("sequential, %", 42.0),
        ("mean queue depth", 4.625),
        ("in a queue of 1, %", 59.0),
    ] {
        let got = row(&rows, what).got;
        assert!((got / asked - 1.0).abs() < 5e-3, "{what}: {got}, asked for {asked}");
    }
}

/// The hottest 5 % of the extents have half of what begins at a new place.
#[test]
fn operations_lie_where_the_profile_says() {
    let profile = Profile::named("heavy").expect("it is there").scaled(10).expect("enough is left");
    let locality = &profile.locality;
    for seed in SEEDS {
        let (mut begun, mut last): (BTreeMap<u64, u64>, u64) = (BTreeMap::new(), u64::MAX);
        for Record { offset, bytes, .. } in Synth::new(&profile, seed).expect("a trace") {
            assert!(offset + bytes <= locality.span_bytes);
            if offset != last {
                *begun.entry(offset / locality.extent_bytes).or_default() += 1;
            }
            last = offset + bytes;
        }
        let mut counts: Vec<u64> = begun.values().copied().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let all: u64 = counts.iter().sum();
        let extents = (locality.span_bytes / locality.extent_bytes) as f64;
        let (mut percent, mut seen) = (0.0, 0.0);
        for zone in &locality.zones {
            (percent, seen) = (percent + zone.span_percent, seen + zone.operations_percent);
            let hottest = &counts[..((percent / 100.0 * extents) as usize).min(counts.len())];
            let share = hottest.iter().sum::<u64>() as f64 / all as f64 * 100.0;
            // The hottest of extents that are alike are a little hotter than these.
            assert!((share - seen).abs() < 2.0, "seed {seed}: {percent} % of the extents have {share} %");
        }
    }
}

#[test]
fn the_same_seed_is_the_same_trace() {
    let profile = Profile::named("light").expect("it is there").scaled(1000).expect("enough is left");
    let trace = |seed| Synth::new(&profile, seed).expect("a trace").collect::<Vec<Record>>();
    assert_eq!(trace(5), trace(5));
    assert_ne!(trace(5), trace(6));
    assert!(trace(5).iter().all(|record| matches!(record.op, Op::Read | Op::Write)));
}
