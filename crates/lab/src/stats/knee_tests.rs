//! Curves whose knee is known.

use super::*;
use bimetal_units::rng::Rng;

const PARTS: usize = 20;

/// A step of a curve; its parts are off by a normal error of a share of the rate.
fn step(load: u32, rate: f64, error: f64, rng: &mut Rng) -> Step {
    let unit = |rng: &mut Rng| (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    // Twelve uniform ones less six are all but normal.
    let normal = |rng: &mut Rng| (0..12).map(|_| unit(rng)).sum::<f64>() - 6.0;
    let rates: Vec<f64> = (0..PARTS).map(|_| rate * (1.0 + error * normal(rng))).collect();
    Step { load, latency_ns: f64::from(load) / rate * 1e9, rates }
}

/// A device of one queue without chance: 1 ms each, 64 at a time. It has its knee at 64 and 64,000 IOPS.
fn hard(load: u32) -> f64 {
    f64::from(load.min(64)) * 1000.0
}

/// A ring of 33 like queues that serve 10,000 by second each: its throughput is N / (N + 32) of that (Zahorjan and
/// others, Balanced Job Bound Analysis, 1982), so that `X^3 / N` is highest at N = 64, at two thirds.
fn soft(load: u32) -> f64 {
    10_000.0 * f64::from(load) / (f64::from(load) + 32.0)
}

/// Never stands still.
fn linear(load: u32) -> f64 {
    f64::from(load) * 100.0
}

/// Stands still from the beginning.
fn flat(_load: u32) -> f64 {
    5_000.0
}

/// Runs the search as a run does, and judges the ramp.
fn search(curve: fn(u32) -> f64, error: f64, seed: u64, most: u32) -> (Verdict, Vec<u32>) {
    let (mut rng, mut steps) = (Rng::new(seed, 9), Vec::new());
    while let Some(load) = next_load(&steps, most) {
        assert!(steps.len() < 40, "the search does not end");
        assert!(steps.iter().all(|step: &Step| step.load != load), "{load} was run before");
        steps.push(step(load, curve(load), error, &mut rng));
        steps.sort_by_key(|step| step.load);
    }
    (knee(&steps), steps.iter().map(|step| step.load).collect())
}

fn found(verdict: Verdict) -> Knee {
    match verdict {
        Verdict::Knee(knee) => knee,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_knee_without_noise() {
    for (curve, rate) in [(hard as fn(u32) -> f64, 64_000.0), (soft, 20_000.0 / 3.0)] {
        let (verdict, loads) = search(curve, 0.0, 1, 4096);
        let knee = found(verdict);
        assert!(knee.load_low <= 64 && 64 <= knee.load_high, "{knee:?} of {loads:?}");
        assert!(knee.rate_low <= rate && rate <= knee.rate_high, "{knee:?}");
        assert!(knee.load_high <= knee.load_low * 5 / 4, "{knee:?} of {loads:?} is not close");
    }
}

/// The interval holds the truth about as often as it says, and is no wider than it needs.
#[test]
fn a_knee_with_noise() {
    for (curve, error, widest) in
        [(hard as fn(u32) -> f64, 0.02, 0.2), (hard, 0.1, 0.8), (soft, 0.02, 1.5), (soft, 0.1, 4.0)]
    {
        let (mut held, mut wide) = (0, 0.0);
        for seed in 0..200 {
            let knee = found(search(curve, error, seed, 4096).0);
            held += u32::from((knee.load_low..=knee.load_high).contains(&64));
            wide += f64::from(knee.load_high - knee.load_low) / 64.0 / 200.0;
        }
        assert!(held >= 190, "{held} of 200 hold it at an error of {error}");
        assert!(wide < widest, "{wide} at an error of {error}");
    }
}

#[test]
fn there_may_be_none() {
    for error in [0.0, 0.05] {
        let (verdict, loads) = search(linear, error, 3, 256);
        assert_eq!(loads, [1, 2, 4, 8, 16, 32, 64, 128, 256]);
        assert!(matches!(verdict, Verdict::NoneUpTo { load: 256, .. }), "{verdict:?}");
    }
    // The ramp ends before the knee, or at it.
    for most in [8, 64] {
        let (verdict, _) = search(hard, 0.02, 3, most);
        assert!(matches!(verdict, Verdict::NoneUpTo { load, .. } if load == most), "{verdict:?}");
    }
}

#[test]
fn the_least_load_may_be_past_it() {
    let knee = found(search(flat, 0.05, 3, 256).0);
    assert_eq!((knee.load, knee.load_low, knee.load_high), (1, 1, 1));
    let mut rng = Rng::new(1, 1);
    let steps = [8, 16, 32].map(|load| step(load, flat(load), 0.05, &mut rng));
    assert_eq!(super::knee(&steps), Verdict::BelowLeast { load: 8 });
}

#[test]
fn too_few_say_nothing() {
    let mut rng = Rng::new(1, 1);
    let steps = [0, 1, 2].map(|load| step(load, hard(load), 0.0, &mut rng));
    assert_eq!(knee(&steps), Verdict::TooFew { steps: 2 });
    assert_eq!(knee(&[]), Verdict::TooFew { steps: 0 });
    assert_eq!((next_load(&[], 8), next_load(&[], 0)), (Some(1), None));
}

#[test]
fn a_limit_is_passed_between_two_steps() {
    let mut rng = Rng::new(1, 1);
    let steps = [1, 64, 128].map(|load| step(load, hard(load), 0.0, &mut rng));
    let (load, rate) = passes(&steps, 1.5e6).expect("it goes from 1 to 2 ms");
    assert!((load - 96.0).abs() < 1e-6 && (rate - 64_000.0).abs() < 1e-6, "{load} {rate}");
    assert_eq!(passes(&steps, 0.5e6), None);
    assert_eq!(passes(&steps, 3e6), None);
}
