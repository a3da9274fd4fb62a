//! Which drive a target is like.

use super::figures::Figure;
use super::run::{QuickPlan, layout, quick};
use crate::classic::disktester::{Nobody, Tester, TesterError};
use crate::report::units::three;
use crate::target::Simulated;
use bimetal_models::spec;
use serde::Serialize;

/// Two drives are alike where one is no more than so many times as fast as the other.
const ALIKE: f64 = 1.25;

/// A modelled drive under the same test.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Peer {
    /// The model's name.
    pub name: String,
    /// Its figures.
    pub figures: Vec<Figure>,
}

/// A target beside the modelled drives.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// How many times as fast as each of them it is, slowest drive first: the geometric mean over the figures that both have.
    pub times: Vec<(String, f64)>,
    /// What that means, in sentences.
    pub sentences: Vec<String>,
}

/// The test on each of the models that come with the lab, in virtual time. `watch` is told which, and ends it with `false`.
///
/// # Errors
/// When a model cannot be loaded.
pub fn peers(plan: &QuickPlan, watch: &mut dyn FnMut(&str) -> bool) -> Result<Vec<Peer>, TesterError> {
    let mut peers = Vec::new();
    for name in spec::names() {
        if !watch(name) {
            break;
        }
        let device = spec::named(name).and_then(|spec| spec.build(plan.seed));
        let device = device.expect("a model that comes with the lab is sound");
        let mut target = Simulated::device(device);
        let Some(layout) = layout(target.size_bytes(), plan.span_bytes) else { continue };
        let plan = QuickPlan { span_bytes: layout.file_bytes, marks: false, ..*plan };
        let mut nobody = Nobody;
        let figures = quick(&mut Tester::new(&mut target, name, layout, &mut nobody), &plan)?.figures;
        peers.push(Peer { name: name.to_owned(), figures });
    }
    Ok(peers)
}

impl Verdict {
    /// Lays a target beside the drives.
    pub fn new(ours: &[Figure], peers: &[Peer]) -> Verdict {
        let mut times: Vec<(&Peer, f64)> =
            peers.iter().filter_map(|peer| Some((peer, mean_times(ours, &peer.figures)?))).collect();
        times.sort_by(|a, b| b.1.total_cmp(&a.1));
        let mut sentences: Vec<String> = place(&times).into_iter().collect();
        let nearest = times.iter().min_by(|a, b| a.1.ln().abs().total_cmp(&b.1.ln().abs()));
        sentences.extend(nearest.and_then(|(peer, _)| extremes(ours, peer)));
        let times = times.into_iter().map(|(peer, times)| (peer.name.clone(), times)).collect();
        Verdict { times, sentences }
    }
}

/// The figures that both have.
fn pairs<'f>(ours: &'f [Figure], theirs: &'f [Figure]) -> impl Iterator<Item = (&'f Figure, f64)> {
    ours.iter().filter_map(|figure| {
        let other = theirs.iter().find(|other| other.name == figure.name)?;
        Some((figure, figure.unit.times(figure.value, other.value)))
    })
}

fn mean_times(ours: &[Figure], theirs: &[Figure]) -> Option<f64> {
    let logs: Vec<f64> = pairs(ours, theirs).map(|(_, times)| times.ln()).collect();
    (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

/// Between which drives it is; they come with those first that it leaves furthest behind.
fn place(times: &[(&Peer, f64)]) -> Option<String> {
    let is_alike = |times: f64| (1.0 / ALIKE..=ALIKE).contains(&times);
    let mut alike: Vec<&(&Peer, f64)> = times.iter().filter(|(_, times)| is_alike(*times)).collect();
    alike.sort_by(|a, b| a.1.ln().abs().total_cmp(&b.1.ln().abs()));
    let alike: Vec<&str> = alike.into_iter().map(|(peer, _)| peer.name.as_str()).collect();
    let slower = times.iter().rfind(|(_, times)| *times > ALIKE);
    let faster = times.iter().find(|(_, times)| *times < 1.0 / ALIKE);
    let of = |(peer, times): &(&Peer, f64)| format!("{} ({} its speed)", peer.name, factor(*times));
    match (slower, faster) {
        _ if !alike.is_empty() => {
            Some(format!("Over all figures it is about as fast as {}.", alike.join(", ")))
        }
        (Some(slower), Some(faster)) => {
            Some(format!("Over all figures it is between {} and {}.", of(slower), of(faster)))
        }
        (Some(slower), None) => {
            Some(format!("Over all figures it is faster than all models: {}.", of(slower)))
        }
        (None, Some(faster)) => {
            Some(format!("Over all figures it is slower than all models: {}.", of(faster)))
        }
        (None, None) => None,
    }
}

/// What it is best and worst at, beside the drive that is most like it.
fn extremes(ours: &[Figure], peer: &Peer) -> Option<String> {
    let of = |(figure, times): (&Figure, f64)| {
        let unit = figure.unit;
        format!("{} ({} {}, {})", figure.name, three(figure.value), unit.name(), how_good(times))
    };
    let best = pairs(ours, &peer.figures).max_by(|a, b| a.1.total_cmp(&b.1))?;
    let worst = pairs(ours, &peer.figures).min_by(|a, b| a.1.total_cmp(&b.1))?;
    let same = best.1 < ALIKE && worst.1 > 1.0 / ALIKE;
    Some(match same {
        true => format!("In no figure is it far from {}.", peer.name),
        false => format!("Beside {} it is best at {}, and worst at {}.", peer.name, of(best), of(worst)),
    })
}

/// `3.1 times`, or `1/3.1 of`.
fn factor(times: f64) -> String {
    if times >= 1.0 { format!("{} times", three(times)) } else { format!("1/{} of", three(1.0 / times)) }
}

fn how_good(times: f64) -> String {
    if times >= 1.0 {
        format!("{} times better", three(times))
    } else {
        format!("{} times worse", three(1.0 / times))
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::Unit;
    use super::*;

    fn figures(reads: f64, latency: f64) -> Vec<Figure> {
        let figure = |name: &str, value, unit| Figure { name: name.to_owned(), value, unit };
        vec![figure("reads", reads, Unit::MbPerS), figure("latency", latency, Unit::Microseconds)]
    }

    fn peer(name: &str, reads: f64, latency: f64) -> Peer {
        Peer { name: name.to_owned(), figures: figures(reads, latency) }
    }

    #[test]
    fn a_target_is_between_two_drives_like_one_or_beyond_all() {
        let peers = [peer("quick", 1000.0, 10.0), peer("slow", 10.0, 1000.0)];
        let verdict = Verdict::new(&figures(100.0, 50.0), &peers);
        assert_eq!(verdict.times[0].0, "slow");
        assert!((verdict.times[0].1 - 200f64.sqrt()).abs() < 1e-9);
        let says = |verdict: &Verdict, words: &str| {
            assert!(verdict.sentences.iter().any(|sentence| sentence.contains(words)), "{verdict:?}");
        };
        says(&verdict, "between slow (14.1 times its speed) and quick (1/7.07 of its speed)");
        says(&verdict, "Beside quick it is best at latency (50.0 us, 5.00 times worse), and worst at reads");
        says(&Verdict::new(&figures(1100.0, 10.0), &peers), "about as fast as quick");
        says(&Verdict::new(&figures(1100.0, 10.0), &peers), "In no figure is it far from quick");
        says(&Verdict::new(&figures(9000.0, 1.0), &peers), "faster than all models");
        says(&Verdict::new(&figures(1.0, 9000.0), &peers), "slower than all models");
        assert!(Verdict::new(&[], &peers).sentences.is_empty());
    }
}
