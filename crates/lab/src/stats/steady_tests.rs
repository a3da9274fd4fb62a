//! Tests of the gate.

use super::*;

fn last(rule: Rule, values: &[f64]) -> Step {
    let mut gate = Gate::new(rule);
    values.iter().map(|&value| gate.push(value)).last().expect("a value")
}

fn snia() -> Rule {
    Rule::Snia(SniaRule::default())
}

fn fio(text: &str, rounds: usize) -> Rule {
    Rule::Fio(FioRule::parse(text, rounds).expect(text))
}

/// python3: statistics.mean and .linear_regression(range(5), ...).slope of 100 102 98 101 99 are 100 and -0.3; of 1000
/// 900 850 820 805 they are 875 and -47, so that it falls by 188, which is 21.5 % of the mean.
#[test]
fn five_rounds_as_snia_has_them() {
    let Step::Steady(facts) = last(snia(), &[100.0, 102.0, 98.0, 101.0, 99.0]) else { panic!("not steady") };
    assert_eq!((facts.mean, facts.excursion(), facts.deviation, facts.round), (100.0, 4.0, 2.0, 5));
    assert!((facts.slope + 0.3).abs() < 1e-12 && (facts.rise() - 1.2).abs() < 1e-12);
    let Step::NotYet(Some(facts)) = last(snia(), &[1000.0, 900.0, 850.0, 820.0, 805.0]) else {
        panic!("steady")
    };
    assert_eq!((facts.mean, facts.slope), (875.0, -47.0));
    assert_eq!(last(snia(), &[100.0; 4]), Step::NotYet(None));
}

/// 91 100 109 100 100: mean 100, apart by 18, and by python3 slope 1.8: 7.2 % of the mean. 90 95 100 105 110 are apart
/// by 20 %, which is at the limit and kept, but rise by 20 %.
#[test]
fn limits_belong_to_what_is_steady() {
    assert!(matches!(last(snia(), &[91.0, 100.0, 109.0, 100.0, 100.0]), Step::Steady(_)));
    assert!(matches!(last(snia(), &[90.0, 110.0, 100.0, 100.0, 100.0]), Step::Steady(_)));
    assert!(matches!(last(snia(), &[89.9, 110.0, 100.0, 100.0, 100.0]), Step::NotYet(_)));
    assert!(matches!(last(snia(), &[90.0, 95.0, 100.0, 105.0, 110.0]), Step::NotYet(_)));
    // Rises by exactly 10 %.
    assert!(matches!(last(snia(), &[95.0, 97.5, 100.0, 102.5, 105.0]), Step::Steady(_)));
    assert!(matches!(last(snia(), &[94.9, 97.5, 100.0, 102.5, 105.0]), Step::NotYet(_)));
    let wide = Rule::Snia(SniaRule { rounds: 3, excursion: 0.5, slope: 0.5 });
    assert!(matches!(last(wide, &[80.0, 100.0, 120.0]), Step::Steady(_)));
    assert!(matches!(last(snia(), &[0.0; 5]), Step::Steady(_)));
}

#[test]
fn fio_deviation_and_slope() {
    let values = [100.0, 102.0, 98.0, 101.0, 99.0];
    assert!(matches!(last(fio("iops:2.1%", 5), &values), Step::Steady(_)));
    // Below the limit, not at it, as in steadystate.c.
    assert!(matches!(last(fio("iops:2%", 5), &values), Step::NotYet(_)));
    assert!(matches!(last(fio("bw:2.5", 5), &values), Step::Steady(_)));
    assert!(matches!(last(fio("iops_slope:0.31%", 5), &values), Step::Steady(_)));
    assert!(matches!(last(fio("iops_slope:0.29%", 5), &values), Step::NotYet(_)));
    assert!(matches!(last(fio("lat_slope:0.31", 5), &values), Step::Steady(_)));
    assert!(matches!(last(fio("lat_slope:0.29", 5), &values), Step::NotYet(_)));
}

#[test]
fn fio_options_are_read() {
    let rule = FioRule::parse("iops_slope:0.3%", 30).expect("a rule");
    assert_eq!((rule.quantity, rule.measure, rule.rounds), (Quantity::Iops, Measure::Slope, 30));
    assert_eq!(rule.to_string(), "iops_slope:0.300000%");
    assert_eq!(FioRule::parse("bw:2m", 5).expect("a rule").limit, Limit::Absolute(2_097_152.0));
    assert_eq!(FioRule::parse("lat:50us", 5).expect("a rule").limit, Limit::Absolute(50_000.0));
    for wrong in
        ["", "iops", "iops:", "iops:x%", "iops:0", "iops:-1%", "iops:inf", "watts:3", "iops:3us", "lat:3k"]
    {
        assert!(FioRule::parse(wrong, 5).is_err(), "{wrong}");
    }
}

/// A drive whose cache lasts for eight rounds.
#[test]
fn the_alarm_rings_once_and_the_gate_opens_again() {
    let mut gate = Gate::new(snia());
    let series = [500.0, 300.0, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0, 60.0, 40.0, 40.0, 40.0, 40.0, 40.0];
    let steps: Vec<Step> = series.iter().map(|&value| gate.push(value)).collect();
    assert!(steps[..6].iter().all(|step| matches!(step, Step::NotYet(_))));
    assert!(steps[6..8].iter().all(|step| matches!(step, Step::Steady(_))));
    assert!(matches!(steps[8], Step::Left(Why::Excursion, Some(_))));
    assert!(steps[9..13].iter().all(|step| matches!(step, Step::NotYet(_))));
    assert!(matches!(steps[13], Step::Steady(_)));
    let seen = gate.steadiness();
    assert_eq!(seen.reached.map(|facts| facts.round), Some(7));
    assert_eq!((seen.times_left, seen.left[0].round, seen.steady), (1, 9, true));
    assert_eq!(
        seen.to_string(),
        "steady since round 7 of 14, left with round 9: the values lie too far apart; steady at the end \
         (5 rounds, excursion at most 20 %, slope at most 10 % of the mean)"
    );
    let text = serde_json::to_string(seen).expect("writes");
    assert_eq!(&serde_json::from_str::<Steadiness>(&text).expect("reads"), seen);
}

/// One percent less with each round: a window falls by 4 % only, but after some twenty the level is another.
#[test]
fn creeping_is_noticed() {
    let mut gate = Gate::new(snia());
    let mut value = 1000.0;
    let left = (1..100).find(|_| {
        value *= 0.99;
        matches!(gate.push(value), Step::Left(Why::Drift, _))
    });
    // 0.99^22 = 0.8016 and 0.99^23 = 0.7936; it was reached with round 5.
    assert_eq!(left, Some(5 + 23));
}

#[test]
fn no_number_is_not_steady() {
    let mut gate = Gate::new(snia());
    for _ in 0..5 {
        gate.push(7.0);
    }
    assert_eq!(gate.push(f64::NAN), Step::Left(Why::Unusable, None));
    assert_eq!(gate.push(f64::INFINITY), Step::NotYet(None));
    assert!(matches!(last(snia(), &[f64::MAX; 5]), Step::NotYet(None)));
    let text = serde_json::to_string(gate.steadiness()).expect("writes");
    assert!(serde_json::from_str::<Steadiness>(&text).is_ok(), "{text}");
    let none = Rule::Snia(SniaRule { rounds: 0, excursion: -1.0, slope: -1.0 });
    assert!(!matches!(last(none, &[1.0, 2.0]), Step::Steady(_)));
    Gate::new(Rule::Snia(SniaRule { rounds: usize::MAX, ..SniaRule::default() })).push(1.0);
}
