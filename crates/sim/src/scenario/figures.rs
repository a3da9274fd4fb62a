//! From what was seen to the figures of a report.

use super::report::{
    Device, Expectation, FastWritten, Late, Load, Phase, Responses, Wakes, WrittenBy, load_metric, metric,
};
use super::target::Counts;
use super::{ExpectSpec, Scenario};
use bimetal_engine::options::WakeUps;
use bimetal_load::{Histogram, Ran, Seen};
use bimetal_models::Usage;

/// Puts down what the loads of a phase saw.
pub(super) fn figures(phase: &mut Phase, ran: &Ran) {
    let mut reads = Seen::default().reads;
    let mut writes = reads.clone();
    for seen in &ran.seen {
        phase.mb_per_s += seen.mb_per_s();
        phase.iops += seen.iops();
        phase.failures += seen.failures;
        phase.flushes += seen.flushes;
        phase.discards += seen.discards;
        add(&mut reads, &seen.reads);
        add(&mut writes, &seen.writes);
    }
    phase.reads = responses(&reads);
    phase.writes = responses(&writes);
    add(&mut reads, &writes);
    if let Some(all) = responses(&reads) {
        phase.mean_us = all.mean_us;
        phase.p50_us = all.p50_us;
        phase.p99_us = all.p99_us;
        phase.max_us = all.max_us;
    }
    if ran.seen.len() > 1 {
        phase.loads = ran.seen.iter().map(load).collect();
    }
    phase.worst_second_mb_per_s = ran.worst_second_bytes.map(|bytes| bytes as f64 / 1e6);
}

fn load(seen: &Seen) -> Load {
    let mut all = seen.reads.clone();
    add(&mut all, &seen.writes);
    Load { mb_per_s: seen.mb_per_s(), iops: seen.iops(), responses: responses(&all), failures: seen.failures }
}

fn add(sum: &mut Histogram<u64>, one: &Histogram<u64>) {
    // All have the same bounds.
    let _ = sum.add(one);
}

fn responses(all: &Histogram<u64>) -> Option<Responses> {
    (!all.is_empty()).then(|| Responses {
        count: all.len(),
        mean_us: all.mean() / 1e3,
        p50_us: all.value_at_quantile(0.5) as f64 / 1e3,
        p99_us: all.value_at_quantile(0.99) as f64 / 1e3,
        max_us: all.max() as f64 / 1e3,
    })
}

/// How late commands were submitted that had a time.
pub(super) fn lateness(seen: &[Seen]) -> Late {
    let sum = |of: fn(&Seen) -> u64| seen.iter().map(of).sum::<u64>();
    let count = sum(|seen| seen.late);
    Late {
        count,
        mean_us: sum(|seen| seen.late_ns) as f64 / 1e3 / count.max(1) as f64,
        max_us: seen.iter().map(|seen| seen.latest_ns).max().unwrap_or(0) as f64 / 1e3,
    }
}

/// Puts down what the target and its devices did meanwhile.
pub(super) fn settle(phase: &mut Phase, before: &Counts, after: &Counts) {
    let all = after.all_bytes - before.all_bytes;
    phase.fast_share = (all > 0).then(|| (after.fast_bytes - before.fast_bytes) as f64 / all as f64);
    phase.promoted_bytes = after.promoted_bytes - before.promoted_bytes;
    phase.demoted_bytes = after.demoted_bytes - before.demoted_bytes;
    phase.shadow_demoted_bytes = after.shadow_demoted_bytes - before.shadow_demoted_bytes;
    phase.destaged_bytes = after.destaged_bytes - before.destaged_bytes;
    phase.fast_written = fast_written(before, after, all);
    phase.wakeups = wakeups(&before.wakeups, &after.wakeups);
    phase.exposed_seconds = after.exposed_seconds;
    let busy = |(before, after): (&Usage, &Usage)| (after.busy_ns - before.busy_ns) as f64 / 1e9;
    phase.busy_seconds = before.usage.iter().zip(&after.usage).map(busy).collect();
}

/// What was written to the fast device of a volume meanwhile, while clients asked for so many bytes.
fn fast_written(before: &Counts, after: &Counts, asked_bytes: u64) -> Option<FastWritten> {
    let (Some(was), [is, _]) = (before.usage.first(), after.usage.as_slice()) else { return None };
    let bytes = is.written_bytes - was.written_bytes;
    let was = before.written_by.unwrap_or_default();
    let by = after.written_by.map(|is| WrittenBy {
        log_bytes: is.log_bytes - was.log_bytes,
        moves_bytes: is.moves_bytes - was.moves_bytes,
        copies_bytes: is.copies_bytes - was.copies_bytes,
    });
    Some(FastWritten { bytes, per_byte: (asked_bytes > 0).then(|| bytes as f64 / asked_bytes as f64), by })
}

/// What came to what there was before; where the volume was opened meanwhile, nothing was.
fn wakeups(before: &[WakeUps], after: &[WakeUps]) -> Vec<Wakes> {
    let before = before.iter().copied().chain(std::iter::repeat(WakeUps::default()));
    let came = |(before, after): (WakeUps, &WakeUps)| Wakes {
        clients: after.clients - before.clients,
        background: after.background - before.background,
    };
    before.zip(after).map(came).collect()
}

pub(super) fn devices(scenario: &Scenario, usage: &[Usage]) -> Vec<Device> {
    let names: Vec<String> = match (&scenario.volume, &scenario.device) {
        (Some(volume), _) => {
            vec![format!("fast: {}", volume.fast.model), format!("slow: {}", volume.slow.model)]
        }
        (_, device) => device.iter().map(|device| device.model.clone()).collect(),
    };
    let device = |(name, usage): (String, &Usage)| Device {
        name,
        busy_seconds: usage.busy_ns as f64 / 1e9,
        read_bytes: usage.read_bytes,
        written_bytes: usage.written_bytes,
        flushes: usage.flushes,
    };
    names.into_iter().zip(usage).map(device).collect()
}

/// The figure that something is expected of; none where there was nothing to measure.
pub(super) fn value(expect: &ExpectSpec, phases: &[Phase]) -> Option<f64> {
    let of = |name: &str| {
        let phase = phases.iter().find(|phase| phase.name == name)?;
        match expect.load {
            None => metric(&expect.metric)?(phase),
            Some(number) => load_metric(&expect.metric)?(phase.loads.get(number.checked_sub(1)?)?),
        }
    };
    match &expect.minus {
        None => of(&expect.phase),
        Some(minus) => Some(of(&expect.phase)? - of(minus)?),
    }
}

pub(super) fn judge(expect: &ExpectSpec, phases: &[Phase]) -> Expectation {
    let value = value(expect, phases);
    let within = |value: f64| {
        expect.at_least.is_none_or(|least| value >= least) && expect.at_most.is_none_or(|most| value <= most)
    };
    let load = expect.load.map(|number| format!(" of load {number}")).unwrap_or_default();
    let minus = expect.minus.as_ref().map(|phase| format!(" minus that of {phase}")).unwrap_or_default();
    Expectation {
        what: format!("{}: {}{load}{minus} {}", expect.phase, expect.metric, bounds(expect)),
        value,
        held: value.is_some_and(within),
    }
}

fn bounds(expect: &ExpectSpec) -> String {
    match (expect.at_least, expect.at_most) {
        (Some(least), Some(most)) => format!("from {least} to {most}"),
        (Some(least), None) => format!("at least {least}"),
        (None, most) => format!("at most {}", most.unwrap_or_default()),
    }
}
