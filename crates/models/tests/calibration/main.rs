//! Calibration held against drives made by chance.

mod truth;

use bimetal_models::calibrate::{Calibration, demerit_ns};
use bimetal_models::disksim::Sources;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use truth::{Ahead, Chance, Truth};

/// A drive, and how it was met.
struct Met {
    seed: u64,
    truth: Truth,
    found: Calibration,
    /// The demerit figure of the drive against itself with rests a little longer: what chance alone makes of it.
    chance_percent: f64,
}

fn meet(seed: u64) -> Met {
    let mut chance = Chance::new(seed);
    let truth = Truth::by_chance(&mut chance);
    let [model, specs, seek] = truth.described(&mut chance);
    let measured = truth.measure(&mut chance.clone(), 4000, 1.0);
    let sources = Sources {
        name: "truth",
        model: ("truth.model", &model),
        specs: ("truth.diskspecs", &specs),
        seek: Some(("truth.seek", &seek)),
    };
    let found = Calibration::of(&sources, ("truth.trace", &truth::trace(&measured))).expect("a comparison");
    let times = |requests: &[truth::Request]| -> Vec<u64> {
        requests.iter().map(|request| (request.milliseconds * 1e6) as u64).collect()
    };
    let again = times(&truth.measure(&mut chance, 4000, 1.03));
    let chance_percent = demerit_ns(&times(&measured), &again) / found.measured_us / 10.0;
    Met { seed, truth, found, chance_percent }
}

fn line(met: &Met) -> String {
    let Met { seed, truth, found, chance_percent } = met;
    let mut text = format!(
        "{seed:>4}: {:5.2} % (fitted {:5.2}, unseen {:5.2}, chance {chance_percent:5.2}), described {:6.2} %: {:?}, {} segments of {}{}{}",
        found.demerit_percent,
        found.fitted_demerit_percent,
        found.unseen_demerit_percent,
        found.described_demerit_percent,
        truth.ahead,
        truth.segments,
        truth.segment_sectors,
        if truth.drops_at_write { ", drops at a write" } else { "" },
        if truth.caches_writes { ", caches writes" } else { "" },
    );
    for changed in &found.changed {
        text += &format!("; {} {} not {}", changed.field, changed.fitted, changed.described);
    }
    text
}

#[test]
fn drives_made_by_chance_are_met() {
    for seed in 0..6 {
        let met = meet(seed);
        println!("{}", line(&met));
        assert!(met.found.demerit_percent <= 6.0, "{}", line(&met));
        assert!(met.found.unseen_demerit_percent <= 8.0, "{}", line(&met));
    }
}

/// `cargo test -p bimetal-models --test calibration -- --ignored --nocapture` prints the distribution.
#[test]
#[ignore = "minutes: hundreds of drives"]
fn hundreds_of_drives_made_by_chance_are_met() {
    let seeds = AtomicU64::new(1000);
    let found = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let seed = seeds.fetch_add(1, Ordering::Relaxed)
                    && seed < 1200
                {
                    let one = meet(seed);
                    println!("{}", line(&one));
                    found.lock().expect("nobody panicked").push(one);
                }
            });
        }
    });
    let mut met: Vec<Met> = found.into_inner().expect("nobody panicked");
    let mut quantiles = |what: &str, of: fn(&Met) -> f64| {
        met.sort_by(|a, b| of(a).total_cmp(&of(b)));
        let at = |share: f64| of(&met[((met.len() - 1) as f64 * share) as usize]);
        println!(
            "{what:<12} median {:.2}, 90 % {:.2}, 95 % {:.2}, worst {:.2}",
            at(0.5),
            at(0.9),
            at(0.95),
            at(1.0)
        );
        at(1.0)
    };
    quantiles("described", |met| met.found.described_demerit_percent);
    quantiles("chance", |met| met.chance_percent);
    quantiles("unseen half", |met| met.found.unseen_demerit_percent);
    let worst = quantiles("all", |met| met.found.demerit_percent);
    assert!(worst <= 6.0, "each within 6 %: {worst:.2}");
    let in_order = met.iter().filter(|met| met.truth.ahead == Ahead::InOrder).count();
    assert!(in_order > 20, "{in_order} drives read ahead in order only");
}
