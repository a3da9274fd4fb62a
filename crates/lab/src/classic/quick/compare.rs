//! Two targets under the quick test, in alternation.

use super::run::{DEEP, FILL, FLUSHED, PARTS, SMALL_READ};
use crate::record::Run;
use crate::stats::{Bootstrap, Finding, Metric, findings, pairs_needed};

/// What a comparison came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// A figure each: B's by A's.
    pub findings: Vec<Finding>,
    /// The same with intervals that hold the truth all together as often as one of those does by itself; where there are
    /// rounds enough for that.
    pub together: Option<Vec<Finding>>,
    /// What that means, in a sentence.
    pub sentence: String,
}

/// Compares runs of two targets of these names: the n-th of each are a pair.
pub fn compare(a: &[Run], b: &[Run], names: [&str; 2]) -> Compared {
    let by = |level: f64| -> Vec<Finding> {
        let bootstrap = Bootstrap { level, ..Bootstrap::default() };
        let found = findings(a, b, &bootstrap).into_iter();
        found.filter(|finding| counts(&finding.job, finding.metric)).collect()
    };
    let level = Bootstrap::default().level;
    let found = by(level);
    let known = found.iter().filter(|finding| finding.ratio.is_ok()).count();
    // Bonferroni: of so many intervals, each may be wrong only so much more rarely.
    let joint_level = 1.0 - (1.0 - level) / known.max(1) as f64;
    let together = Some(by(joint_level)).filter(|together| {
        let still = together.iter().filter(|finding| finding.ratio.is_ok()).count();
        still == known && known > 0
    });
    let mut sentence = sentence(together.as_deref().unwrap_or(&found), names);
    if known > 0 {
        sentence += &match together {
            Some(_) => " All of this together holds 95 of 100 times.".to_owned(),
            None => format!(
                " Each figure is judged by itself: of {known}, one may be wrong; {} rounds judge them together.",
                pairs_needed(joint_level)
            ),
        };
    }
    Compared { findings: found, together, sentence }
}

/// Whether this is how a part of the test is judged.
fn counts(part: &str, metric: Metric) -> bool {
    match part {
        DEEP | FLUSHED => metric == Metric::Iops,
        SMALL_READ => matches!(metric, Metric::Bandwidth | Metric::P99Response),
        _ => metric == Metric::Bandwidth && (part == FILL || PARTS.iter().any(|known| known.name == part)),
    }
}

/// Whether B is better; none where no difference was seen.
fn better(finding: &Finding) -> Option<bool> {
    let ratio = finding.ratio.as_ref().ok().filter(|ratio| ratio.differs())?;
    let more_is_better = matches!(finding.metric, Metric::Iops | Metric::Bandwidth);
    Some((ratio.ratio > 1.0) == more_is_better)
}

fn sentence(found: &[Finding], [a, b]: [&str; 2]) -> String {
    let of = |wanted: Option<bool>| -> Vec<String> {
        let known = found.iter().filter(|finding| finding.ratio.is_ok() && better(finding) == wanted);
        known.map(|finding| format!("{} ({})", finding.job, finding.metric.name())).collect()
    };
    let say =
        |what: &str, list: Vec<String>| (!list.is_empty()).then(|| format!("{what} {}", list.join("; ")));
    let parts = [
        say(&format!("{b} is better than {a} at"), of(Some(true))),
        say(&format!("{a} is better than {b} at"), of(Some(false))),
        say("No difference was seen at", of(None)),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "Nothing could be compared.".to_owned() } else { format!("{}.", parts.join(". ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{Ratio, Statistic};

    fn finding(job: &str, metric: Metric, low: f64, high: f64) -> Finding {
        let ratio = Ratio {
            statistic: Statistic::Mean,
            a: 1.0,
            b: (low * high).sqrt(),
            ratio: (low * high).sqrt(),
            low,
            high,
            level: 0.95,
            pairs: 6,
            resamples: 1000,
            seed: 1,
        };
        Finding { job: job.to_owned(), metric, means: None, ratio: Ok(ratio) }
    }

    #[test]
    fn a_longer_latency_is_worse_and_an_interval_around_equality_says_nothing() {
        let found = [
            finding(FILL, Metric::Bandwidth, 1.1, 1.3),
            finding(SMALL_READ, Metric::P99Response, 1.1, 1.3),
            finding(DEEP, Metric::Iops, 0.9, 1.1),
        ];
        assert_eq!(
            sentence(&found, ["A", "B"]),
            "B is better than A at sequential write, 256K (bandwidth). A is better than B at random read, 4K (p99 \
             response). No difference was seen at random read, 4K, 32 in flight (IOPS)."
        );
        assert_eq!(sentence(&[], ["A", "B"]), "Nothing could be compared.");
    }

    #[test]
    fn each_part_is_judged_by_what_it_is_for() {
        let judged = |part: &str| Metric::ALL.into_iter().filter(|metric| counts(part, *metric)).count();
        assert!(PARTS.iter().all(|part| judged(part.name) == 1 + usize::from(part.name == SMALL_READ)));
        assert_eq!((judged(FILL), judged("something else")), (1, 0));
    }
}
