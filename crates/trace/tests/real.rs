//! Real traces, read from the folder that BIMETAL_TRACES names, and what is known of them.

use bimetal_trace::{Format, Stat, Summary, Trace};
use std::path::PathBuf;

const MIB: u64 = 1 << 20;

/// How many minutes some last, and how many GiB their device has at least.
const LASTING: &[(&str, f64, f64)] = &[
    ("linux-mysql.load.gz", 60.0, 30.0),
    ("windows-mssql.load.gz", 51.0, 24.0),
    ("cloudPhysicsIO.vscsi", 120.0, 31.0),
];

/// What is known of a trace: file names, format, requests, percent of reads, footprint in MiB.
type Known = (&'static [&'static str], Format, u64, f64, Option<u64>);

const KNOWN: &[Known] = &[
    (&["linux-mysql.load.gz"], Format::Blkreplay, 80_793, 9.0, Some(557)),
    (&["windows-mssql.load.gz"], Format::Blkreplay, 42_976, 6.0, Some(605)),
    (&["cloudPhysicsIO.vscsi"], Format::Vscsi1, 113_872, 41.0, Some(1052)),
    (&["P6.lis.zst"], Format::Arc, 519_711, 100.0, Some(398)),
    (&["OLTP.lis.zst"], Format::Arc, 914_145, 100.0, Some(91)),
    (&["hdd-validation/atlas10k.trace"], Format::DisksimValidation, 10_000, 66.0, None),
    (&["hdd-validation/cheetah4LP.trace"], Format::DisksimValidation, 10_000, 66.0, None),
    (&["hdd-validation/cheetah9LP.trace"], Format::DisksimValidation, 10_000, 66.0, None),
    (&["hdd-validation/hp_c3323a.trace"], Format::DisksimValidation, 9_074, 67.4, None),
    (&["formats/sample.blktrace.0"], Format::Blktrace, 963, 100.0, None),
    (&["formats/dc-only.blktrace.0", "formats/dc-only.blktrace.3"], Format::Blktrace, 362, 0.0, None),
    (&["formats/sample.blkparse.txt"], Format::Blkparse, 1_695, 100.0, None),
    (&["formats/msr-sample.csv"], Format::Msr, 1_000, 50.8, None),
    // A thousand lines, one of them a header.
    (&["formats/systor17-sample.csv.gz"], Format::Systor17, 999, 82.7, None),
    (&["formats/tpcc-small.mqsim"], Format::Mqsim, 6_999, 62.6, None),
];

fn summary(names: &[PathBuf]) -> Summary {
    let mut trace = Trace::open(names).expect("it can be read");
    let mut stat = Stat::default();
    for found in trace.by_ref() {
        stat.add(&found);
    }
    stat.summary(&trace)
}

#[test]
fn real_traces_hold_what_is_known_of_them() {
    let Some(folder) = std::env::var_os("BIMETAL_TRACES").filter(|value| !value.is_empty()) else {
        println!("skipped: BIMETAL_TRACES is not set");
        return;
    };
    for (names, format, requests, reads, footprint) in KNOWN {
        let paths: Vec<PathBuf> = names.iter().map(|name| PathBuf::from(&folder).join(name)).collect();
        if !paths.iter().all(|path| path.exists()) {
            println!("skipped: {} is not there", names[0]);
            continue;
        }
        let found = summary(&paths);
        let name = names[0];
        assert_eq!((found.format, found.records), (*format, *requests), "{name}");
        let percent = found.read_share * 100.0;
        assert!((percent - reads).abs() < 1.0, "{name}: {percent} % reads");
        if let Some(mib) = footprint {
            let off = found.footprint_bytes.abs_diff(mib * MIB);
            assert!(found.footprint_exact && off <= MIB, "{name}: {} bytes", found.footprint_bytes);
        }
        if let Some((_, minutes, gib)) = LASTING.iter().find(|(of, ..)| *of == name) {
            let lasts = found.duration_seconds.expect("times") / 60.0;
            let end = found.end_bytes as f64 / (1u64 << 30) as f64;
            assert!(
                (lasts - minutes).abs() < 0.5 && (end - gib).abs() < 1.0,
                "{name}: {lasts} min, {end} GiB"
            );
        }
        let reuse = found.reuse.expect("all of them read or write");
        let most = reuse.caches.last().map_or(0.0, |point| point.hit_share);
        assert!((most - reuse.reused_share).abs() < 0.02, "{name}: {most}, {}", reuse.reused_share);
        let touched =
            found.working_set.and_then(|set| set.windows.last().map(|window| window.footprint_bytes));
        let share = touched.expect("windows") as f64 / found.footprint_bytes as f64;
        assert!((share - 1.0).abs() < 0.03, "{name}: {share}");
        if name.starts_with("hdd-validation") {
            let depth = found.queue_depth.expect("service times");
            assert_eq!(depth.max, 1, "{name}: one request at a time");
        }
        // One line of it has an operation of its own, a read-ahead.
        let malformed = u64::from(name.starts_with("linux-mysql"));
        assert_eq!(found.malformed.count, malformed, "{name}: {:?}", found.malformed.first);
    }
}
