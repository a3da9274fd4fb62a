//! What the description of a drive leaves open is taken from the first half of its trace.
//!
//! A description is written for a simulator that has a host and a bus of its own, so the time that a sector takes on
//! the bus and the costs of commands are often not in it, or not what was measured; and its words for what a drive
//! reads ahead and keeps fit fewer drives than there are. The same steps are taken for every drive: straight lines
//! through the service times of what neither the arm nor the medium has a part in, the remaining costs by search, and
//! other readings of buffer and cache, one at a time, where one is clearly closer. Geometry, seeks and rotation stay
//! as described.

use super::circumstances::Circumstances;
use super::{TraceRequest, replay};
use crate::disk::params::{CommandNs, DiskParams, OverheadParams};
use crate::spec::SpecError;

mod readings;

/// Samples that a quantile needs before it is believed.
const ENOUGH: usize = 15;
/// The most that a command costs, in nanoseconds: ten milliseconds.
const MOST: u32 = 10_000_000;
/// The most that a command costs which needs no medium, unless the description says more: no controller takes longer,
/// and what does is no hit.
const MOST_OF_A_HIT: u32 = 2_000_000;
/// Requests that the search sees at most.
const MOST_REQUESTS: usize = 20_000;
/// Sectors that these touch at most: each track of a request takes time to work out.
const MOST_SECTORS: u64 = 1 << 23;
/// By how much another reading of the description must be closer to be believed.
const CLEARLY: f64 = 0.95;
/// Readings that are changed at most.
const MOST_READINGS: usize = 8;

/// A cost of a command, which the search may change.
type Cost = fn(&mut DiskParams) -> &mut u32;

/// The costs of what the arm has a part in: those of a kind of command after a read and after a write.
const MISSES: [[Cost; 2]; 2] = [
    [
        |drive| &mut drive.overheads.read_miss_ns.after_read,
        |drive| &mut drive.overheads.read_miss_ns.after_write,
    ],
    [|drive| &mut drive.overheads.write_ns.after_read, |drive| &mut drive.overheads.write_ns.after_write],
];
/// The time of a sector on the bus.
const BUS: Cost = |drive| &mut drive.overheads.bus_ns_per_sector;
/// What it takes to be on a track, to read and to write.
const LEAST: [Cost; 2] =
    [|drive| &mut drive.arm.least_read_seek_ns, |drive| &mut drive.arm.least_write_seek_ns];

/// Parameters that fit these requests at least as well as the ones given.
///
/// # Errors
/// Parameters out of their bounds.
pub fn fit(params: &DiskParams, requests: &[TraceRequest]) -> Result<DiskParams, SpecError> {
    let requests = &requests[..seen(requests)];
    let circumstances = Circumstances::of(requests);
    let mut best = Search::new(params, requests, &circumstances)?;
    best.costs()?;
    for _ in 0..MOST_READINGS {
        let mut closest: Option<Search<'_>> = None;
        for other in readings::of(&best.best) {
            let mut other = best.with(other)?;
            other.quickly()?;
            if closest.as_ref().is_none_or(|closest| other.distance < closest.distance) {
                closest = Some(other);
            }
        }
        let Some(mut closest) = closest else { break };
        closest.costs()?;
        if closest.distance >= best.distance * CLEARLY {
            break;
        }
        best = closest;
    }
    Ok(best.best)
}

/// How many of the requests the search sees.
fn seen(requests: &[TraceRequest]) -> usize {
    let mut sectors = 0;
    let within = |request: &&TraceRequest| {
        sectors += u64::from(request.sectors);
        sectors <= MOST_SECTORS
    };
    requests.iter().take(MOST_REQUESTS).take_while(within).count().max(1).min(requests.len())
}

/// The closest parameters so far.
#[derive(Clone)]
struct Search<'a> {
    requests: &'a [TraceRequest],
    circumstances: &'a Circumstances,
    /// What a hit may cost at most, in the description.
    most_of_a_hit: u32,
    best: DiskParams,
    /// How far these are from what was measured.
    distance: f64,
}

impl<'a> Search<'a> {
    fn new(
        params: &DiskParams,
        requests: &'a [TraceRequest],
        circumstances: &'a Circumstances,
    ) -> Result<Search<'a>, SpecError> {
        let OverheadParams { read_hit_ns: read, cached_write_ns: write, .. } = params.overheads;
        let described = [read.after_read, read.after_write, write.after_read, write.after_write];
        let most_of_a_hit = described.into_iter().fold(MOST_OF_A_HIT, u32::max);
        let distance = circumstances.distance_ns(&replay(params, requests)?);
        Ok(Search { requests, circumstances, most_of_a_hit, best: params.clone(), distance })
    }

    /// The same search at other parameters.
    fn with(&self, params: DiskParams) -> Result<Search<'a>, SpecError> {
        let distance = self.circumstances.distance_ns(&replay(&params, self.requests)?);
        Ok(Search { best: params, distance, ..*self })
    }

    /// Keeps a change that brings the two closer; says whether it did.
    fn try_change(&mut self, change: impl FnOnce(&mut DiskParams)) -> Result<bool, SpecError> {
        let mut params = self.best.clone();
        change(&mut params);
        if params == self.best {
            return Ok(false);
        }
        let distance = self.circumstances.distance_ns(&replay(&params, self.requests)?);
        let closer = distance < self.distance;
        if closer {
            (self.best, self.distance) = (params, distance);
        }
        Ok(closer)
    }

    /// All costs.
    fn costs(&mut self) -> Result<(), SpecError> {
        // What is a hit depends on what is read ahead, which depends on the costs, a little.
        for _ in 0..2 {
            self.through_hits()?;
            for step in [400_000, 100_000, 25_000] {
                for pair in MISSES {
                    self.shift(&pair, step)?;
                }
                for least in LEAST {
                    self.shift(&[least], step)?;
                }
            }
            for step in [20_000, 5_000] {
                self.shift(&[BUS], step)?;
            }
        }
        for pair in MISSES {
            for cost in pair {
                self.shift(&[cost], 50_000)?;
            }
        }
        Ok(())
    }

    /// The costs as far as is needed to see whether another reading is closer.
    fn quickly(&mut self) -> Result<(), SpecError> {
        self.through_hits()?;
        for pair in MISSES {
            self.shift(&pair, 200_000)?;
        }
        self.through_hits()
    }

    /// Raises or lowers costs together, by steps, for as long as that helps.
    fn shift(&mut self, costs: &[Cost], step: u32) -> Result<(), SpecError> {
        for up in [true, false] {
            let change = |params: &mut DiskParams| {
                for cost in costs {
                    let cost = cost(params);
                    *cost = if up { cost.saturating_add(step).min(MOST) } else { cost.saturating_sub(step) };
                }
            };
            while self.try_change(change)? {}
        }
        Ok(())
    }

    /// Lines through the service times of reads from the buffer, and of writes into the cache.
    fn through_hits(&mut self) -> Result<(), SpecError> {
        let costs = self.best.overheads;
        let modelled = replay(&self.best, self.requests)?;
        let mut hits: [Vec<(u32, u64)>; 4] = Default::default();
        let mut before = false;
        for (request, &time) in self.requests.iter().zip(&modelled) {
            if time == hit_time(&costs, self.best.write_cache.entries > 0, request, before) {
                let class = 2 * usize::from(request.write) + usize::from(before);
                hits[class].push((request.sectors, request.service_ns));
            }
            before = request.write;
        }
        let bus = slope(&hits).map_or(costs.bus_ns_per_sector, |bus| bus.round() as u32);
        let fixed = |class: usize, completion: u32, known: u32| {
            let rests = hits[class].iter().map(|&(sectors, time)| {
                let given = u64::from(sectors) * u64::from(bus) + u64::from(completion);
                time.saturating_sub(given + u64::from(costs.transfer_preparation_ns))
            });
            median(rests).map_or(known, |rest| rest.min(u64::from(self.most_of_a_hit)) as u32)
        };
        let read = CommandNs {
            after_read: fixed(0, costs.read_completion_ns, costs.read_hit_ns.after_read),
            after_write: fixed(1, costs.read_completion_ns, costs.read_hit_ns.after_write),
        };
        let write = CommandNs {
            after_read: fixed(2, costs.write_completion_ns, costs.cached_write_ns.after_read),
            after_write: fixed(3, costs.write_completion_ns, costs.cached_write_ns.after_write),
        };
        let bus_only = |params: &mut DiskParams| params.overheads.bus_ns_per_sector = bus;
        let reads = |params: &mut DiskParams| params.overheads.read_hit_ns = read;
        let writes = |params: &mut DiskParams| params.overheads.cached_write_ns = write;
        // Together, since a slower bus goes with cheaper commands; then each, where one of them is no line.
        self.try_change(|params| {
            bus_only(params);
            reads(params);
            writes(params);
        })?;
        self.try_change(reads)?;
        self.try_change(writes)?;
        self.try_change(bus_only)?;
        Ok(())
    }
}

/// What the model gives a request that needs no medium and waits for nothing.
fn hit_time(costs: &OverheadParams, cached: bool, request: &TraceRequest, after_write: bool) -> u64 {
    let (cost, completion) = if request.write {
        if !cached {
            return u64::MAX;
        }
        (costs.cached_write_ns, costs.write_completion_ns)
    } else {
        (costs.read_hit_ns, costs.read_completion_ns)
    };
    let cost = if after_write { cost.after_write } else { cost.after_read };
    u64::from(cost)
        + u64::from(costs.transfer_preparation_ns)
        + u64::from(completion)
        + u64::from(request.sectors) * u64::from(costs.bus_ns_per_sector)
}

fn median(values: impl Iterator<Item = u64>) -> Option<u64> {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    (values.len() >= ENOUGH).then(|| values[values.len() / 2])
}

/// Nanoseconds per sector: the slope of the lines, one for each class, through the medians by length.
fn slope(classes: &[Vec<(u32, u64)>]) -> Option<f64> {
    let (mut products, mut squares) = (0.0, 0.0);
    for class in classes {
        let mut lengths: Vec<u32> = class.iter().map(|&(sectors, _)| sectors).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let mut medians = Vec::new();
        for length in lengths {
            let times = class.iter().filter(|&&(sectors, _)| sectors == length).map(|&(_, time)| time);
            let count = times.clone().count() as f64;
            if let Some(time) = median(times) {
                medians.push((f64::from(length), time as f64, count));
            }
        }
        let weight: f64 = medians.iter().map(|&(_, _, count)| count).sum();
        let mean = |of: fn(&(f64, f64, f64)) -> f64| {
            medians.iter().map(|entry| of(entry) * entry.2).sum::<f64>() / weight
        };
        let (length, time) = (mean(|entry| entry.0), mean(|entry| entry.1));
        for entry in &medians {
            products += entry.2 * (entry.0 - length) * (entry.1 - time);
            squares += entry.2 * (entry.0 - length).powi(2);
        }
    }
    let slope = products / squares;
    (slope.is_finite() && (0.0..1e7).contains(&slope)).then_some(slope)
}
