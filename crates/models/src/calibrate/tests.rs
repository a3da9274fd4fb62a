//! The comparison itself, on a drive that is the model with other costs; and on measured drives, where they are.

use super::{Calibration, Trace, demerit_ns, fit, replay};
use crate::Model as _;
use crate::disk::Disk;
use crate::disksim::tests::{MODEL, SEEK, SPECS, sources};
use crate::disksim::{Sources, convert};
use bimetal_units::rng::Rng;
use std::path::Path;

/// A trace of requests near each other and far from each other.
fn requests() -> Trace {
    let mut chance = Rng::new(6, 1);
    let mut text = String::new();
    let mut last = 0;
    for _ in 0..2000 {
        let sector = if chance.below(2) == 0 { chance.below(2900) } else { last + chance.below(20) };
        let sectors = 1 + chance.below(8);
        last = (sector + sectors).min(2900);
        let op = if chance.below(3) == 0 { "W" } else { "R" };
        text += &format!("{op} Miss {sector} {sectors} 0.0 {}.5\n", 20_000 + chance.below(30_000));
    }
    Trace::parse("t", &text).expect("a trace")
}

#[test]
fn what_the_description_lacks_is_found_in_the_trace() {
    let described = convert(&sources(MODEL, SPECS, SEEK)).expect("a drive");
    let mut real = described.clone();
    real.overheads.bus_ns_per_sector = 150_000;
    real.overheads.read_hit_ns.after_read = 410_000;
    real.overheads.cached_write_ns.after_read = 700_000;
    real.overheads.read_miss_ns.after_read += 900_000;
    real.overheads.read_miss_ns.after_write += 900_000;
    let mut trace = requests();
    let times = replay(&real, &trace.requests).expect("times");
    for (request, time) in trace.requests.iter_mut().zip(&times) {
        request.service_ns = *time;
    }
    let found = fit(&described, &trace.requests).expect("a fit");
    let overheads = found.overheads;
    assert!(overheads.bus_ns_per_sector.abs_diff(150_000) < 3_000, "{overheads:?}");
    assert!(overheads.read_hit_ns.after_read.abs_diff(410_000) < 20_000, "{overheads:?}");
    let demerit = |params| {
        let mean = times.iter().sum::<u64>() as f64 / times.len() as f64;
        demerit_ns(&times, &replay(params, &trace.requests).expect("times")) / mean
    };
    assert!(demerit(&described) > 0.1 && demerit(&found) < 0.03, "{}", demerit(&found));
    assert_eq!(demerit(&real), 0.0);
}

#[test]
fn the_demerit_figure_compares_distributions() {
    assert_eq!(demerit_ns(&[1, 2, 3], &[3, 1, 2]), 0.0);
    assert_eq!(demerit_ns(&[0, 0], &[3, 3]), 3.0);
}

#[test]
fn bad_traces_are_refused_with_their_line() {
    for bad in [
        "X Hit 1 1 1.0 1.0",
        "R Hit 1 1 1.0",
        "R Hit 1 1 1.0 1.0 1.0",
        "R Hit -1 1 1.0 1.0",
        "R Hit 1 0 1.0 1.0",
        "R Hit 99999999999999999999 1 1.0 1.0",
        "R Hit 1 1 nan 1.0",
        "R Hit 1 1 1.0 1e300",
        "R Hit",
    ] {
        let error = Trace::parse("t", &format!("R Hit 1 1 1.0 1.0\n{bad}\n")).expect_err(bad).to_string();
        assert!(error.starts_with("t:2: "), "{error}");
    }
    let long = "R Hit 1 1 1.0 9999999999.0\n".repeat(400_000);
    let error = Trace::parse("t", &long).expect_err("a long one").to_string();
    assert!(error.contains("more than a hundred years"), "{error}");
    assert!(Trace::parse("t", "\n\n").is_err());
    let mut trace = Trace::parse("t", "R Hit 100 10 1.0 1.0\nW Hit 5 5 1 1").expect("a trace");
    assert_eq!(trace.keep_within(50), 1);
    assert_eq!((trace.requests[0].sector, trace.requests[0].sectors), (40, 10));
}

#[test]
fn damaged_traces_do_no_harm() {
    let mut chance = Rng::new(7, 1);
    let good = "R Hit 10 4 1000.5 20000.0\nW Miss 20 8 2000.0 30000.0\n".repeat(3);
    let described = convert(&sources(MODEL, SPECS, SEEK)).expect("a drive");
    let size = Disk::new(&described).expect("a disk").size_bytes() / 512;
    for _ in 0..2000 {
        let mut text = good.clone().into_bytes();
        for _ in 0..1 + chance.below(3) {
            let at = chance.below(text.len() as u64) as usize;
            text[at] = b"0123456789RW. \nex-"[chance.below(18) as usize];
        }
        if let Ok(mut trace) = Trace::parse("t", &String::from_utf8_lossy(&text)) {
            trace.keep_within(size);
            assert_eq!(replay(&described, &trace.requests).expect("times").len(), trace.requests.len());
        }
    }
}

#[test]
fn measured_drives_are_met() {
    let Some(traces) = std::env::var_os("BIMETAL_TRACES") else {
        println!("skipped: BIMETAL_TRACES is not set");
        return;
    };
    for name in ["atlas10k", "cheetah4LP", "cheetah9LP", "hp_c3323a"] {
        let path = |ending: &str| Path::new(&traces).join("hdd-validation").join(format!("{name}.{ending}"));
        let text = |ending: &str| std::fs::read_to_string(path(ending)).expect("a file of the drive");
        let (model, specs, seek, trace) = (text("model"), text("diskspecs"), text("seek"), text("trace"));
        let sources = Sources {
            name,
            model: ("model", &model),
            specs: ("diskspecs", &specs),
            seek: Some(("seek", &seek)),
        };
        let found = Calibration::of(&sources, ("trace", &trace)).expect("a comparison");
        assert!(found.demerit_percent <= 6.0, "{name}: {:.2} %", found.demerit_percent);
        assert!(found.unseen_demerit_percent <= 6.0, "{name}: {:.2} %", found.unseen_demerit_percent);
        assert!(found.mean_error_percent().abs() <= 2.0, "{name}: {:.2} %", found.mean_error_percent());
    }
}
