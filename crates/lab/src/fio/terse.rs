//! fio's terse report (`--minimal`, version 3), from a record: a line for each job, with semicolons between the figures.

use super::json::{aggregate_percent, is_idle};
use super::options::PERCENTILES;
use super::view::{LAYOUT, Samples, View, views};
use crate::record::{Latency, Run, Side};
use crate::stats::quantiles;

/// The version of the layout.
const VERSION: u32 = 3;
/// A line has room for so many percentiles.
const PLACES: usize = 20;
const NANOS_PER_MICRO: u64 = 1000;

/// The record as fio would have printed it for scripts.
pub fn terse(run: &Run) -> String {
    views(run).iter().map(|view| line(view, run) + "\n").collect()
}

fn line(view: &View<'_>, run: &Run) -> String {
    let mut fields: Vec<String> = [
        VERSION.to_string(),
        LAYOUT.to_owned(),
        view.name.to_owned(),
        view.group.to_string(),
        view.error().to_string(),
    ]
    .into();
    let sides = [(&view.sides.read, &view.samples.read), (&view.sides.write, &view.samples.write)];
    sides.into_iter().for_each(|(side, samples)| direction(&mut fields, view, side, samples));
    let cpu = run.cpu.unwrap_or_default();
    fields.extend([cpu.user_percent, cpu.system_percent].map(|percent| format!("{percent:.6}%")));
    fields.extend([cpu.context_switches, cpu.major_faults, cpu.minor_faults].map(|count| count.to_string()));
    fields.extend(view.depth_levels().map(|percent| format!("{percent:.1}%")));
    let spread = view.spread();
    // What took less than a microsecond is with what took less than two.
    let below: f64 = spread.ns.iter().sum();
    let first = spread.us[0] + below;
    let all = [first].into_iter().chain(spread.us[1..].iter().copied()).chain(spread.ms);
    fields.extend(all.map(|percent| format!("{percent:.2}%")));
    for disk in &run.disks {
        fields.push(disk.name.clone());
        fields.extend(disk.counters().map(|count| count.to_string()));
        fields.push(format!("{:.2}%", disk.util));
    }
    fields.extend(view.options.description.clone());
    fields.join(";")
}

/// 41 figures of reads, or of writes.
fn direction(fields: &mut Vec<String>, view: &View<'_>, side: &Side, samples: &Samples) {
    let bandwidth = view.bandwidth(side);
    let runtime_ms = if is_idle(side) { 0 } else { view.runtime_ms() };
    let whole = [side.bytes / 1024, bandwidth / 1024, view.iops(side) as u64, runtime_ms];
    fields.extend(whole.map(|figure| figure.to_string()));
    times(fields, &side.submit);
    times(fields, &side.service);
    let list = &view.options.faces.percentiles;
    let list = if list.is_empty() { &PERCENTILES[..] } else { list };
    let shares: Vec<f64> = list.iter().map(|percent| percent / 100.0).collect();
    let values = quantiles(&side.service, &shares).into_iter().map(Option::unwrap_or_default);
    let percentiles =
        list.iter().zip(values).map(|(percent, ns)| format!("{percent:.6}%={}", ns / NANOS_PER_MICRO));
    let none = std::iter::repeat_with(|| "0%=0".to_owned());
    fields.extend(percentiles.chain(none).take(PLACES));
    times(fields, &side.response);
    let moments = samples.bandwidth;
    let share = aggregate_percent(moments.mean, bandwidth);
    fields.extend([moments.min, moments.max].map(|figure| (figure as u64).to_string()));
    fields.push(format!("{share:.6}%"));
    fields.extend([moments.mean, moments.deviation].map(|figure| format!("{figure:.6}")));
}

/// Microseconds: least, most, mean, deviation.
fn times(fields: &mut Vec<String>, latency: &Latency) {
    let whole = [latency.min_ns, latency.max_ns].map(|ns| (ns / NANOS_PER_MICRO).to_string());
    let exact = [latency.mean_ns, latency.stddev_ns].map(|ns| format!("{:.6}", ns / NANOS_PER_MICRO as f64));
    fields.extend(whole.into_iter().chain(exact));
}
