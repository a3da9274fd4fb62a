//! What the description of a drive leaves open is taken from the first half of its trace.
//!
//! A description is written for a simulator that has a host and a bus of its own, so the time that a sector takes on
//! the bus and the costs of commands are often not in it, or not what was measured. The same steps are taken for every
//! drive: straight lines through the service times of what neither the arm nor the medium has a part in, the remaining
//! costs by search, and how far is read ahead, whether what was read is kept, and whether writes are cached, where
//! another reading than the description's is clearly closer. Geometry, seeks and rotation stay as described.

use super::{TraceRequest, demerit_ns, replay};
use crate::disk::params::{CommandNs, DiskParams, OverheadParams, ReadAhead};
use crate::spec::SpecError;

/// Samples that a median needs before it is believed.
const ENOUGH: usize = 15;
/// The most that a command costs, in nanoseconds: ten milliseconds.
const MOST: u32 = 10_000_000;

/// By how much a reading of the description other than the plain one must be closer to be believed.
const CLEARLY: f64 = 0.9;

/// A cost of a command, which the search may change.
type Cost = fn(&mut OverheadParams) -> &mut CommandNs;

/// Parameters that fit these requests at least as well as the ones given.
///
/// # Errors
/// Parameters out of their bounds.
pub fn fit(params: &DiskParams, requests: &[TraceRequest]) -> Result<DiskParams, SpecError> {
    let described = Search::run(params, requests)?;
    let mut other = params.clone();
    other.write_cache.entries = u32::from(params.write_cache.entries == 0);
    let other = Search::run(&other, requests)?;
    let found = if other.demerit < described.demerit * CLEARLY { other } else { described };
    Ok(found.best)
}

fn read_miss(costs: &mut OverheadParams) -> &mut CommandNs {
    &mut costs.read_miss_ns
}

fn write(costs: &mut OverheadParams) -> &mut CommandNs {
    &mut costs.write_ns
}

struct Search<'a> {
    requests: &'a [TraceRequest],
    measured: Vec<u64>,
    best: DiskParams,
    demerit: f64,
}

impl<'a> Search<'a> {
    /// All steps.
    fn run(params: &DiskParams, requests: &'a [TraceRequest]) -> Result<Search<'a>, SpecError> {
        let mut search = Search::new(params, requests)?;
        // What is a hit depends on what is read ahead, which depends on the costs, a little.
        for _ in 0..2 {
            search.through_hits()?;
        }
        search.misses()?;
        search.buffer()?;
        search.through_hits()?;
        search.misses()?;
        Ok(search)
    }

    fn new(params: &DiskParams, requests: &'a [TraceRequest]) -> Result<Search<'a>, SpecError> {
        let measured: Vec<u64> = requests.iter().map(|request| request.service_ns).collect();
        let demerit = demerit_ns(&measured, &replay(params, requests)?);
        Ok(Search { requests, measured, best: params.clone(), demerit })
    }

    /// Keeps a change that lowers the demerit figure; says whether it did.
    fn try_change(&mut self, change: impl FnOnce(&mut DiskParams)) -> Result<bool, SpecError> {
        let mut params = self.best.clone();
        change(&mut params);
        let demerit = demerit_ns(&self.measured, &replay(&params, self.requests)?);
        let better = demerit < self.demerit;
        if better {
            (self.best, self.demerit) = (params, demerit);
        }
        Ok(better)
    }

    /// The costs of what the arm has a part in.
    fn misses(&mut self) -> Result<(), SpecError> {
        for step in [400_000, 100_000, 25_000] {
            for cost in [read_miss as Cost, write] {
                self.shift(cost, step)?;
            }
        }
        // Seen in hits already, where the drive has any.
        for step in [20_000, 5_000] {
            self.shift_bus(step)?;
        }
        Ok(())
    }

    /// How far is read ahead, and whether what has been read is kept: the descriptions' words for this have more than
    /// one reading, and drives differ.
    fn buffer(&mut self) -> Result<(), SpecError> {
        let described = self.best.clone();
        let mut demerit = self.demerit * CLEARLY;
        for read_ahead in [described.buffer.read_ahead, ReadAhead::Track, ReadAhead::Segment] {
            for drop_transferred in [false, true] {
                let mut params = described.clone();
                params.buffer.read_ahead = read_ahead;
                params.buffer.drop_transferred = drop_transferred;
                let figure = demerit_ns(&self.measured, &replay(&params, self.requests)?);
                if figure < demerit {
                    demerit = figure;
                    (self.best, self.demerit) = (params, figure);
                }
            }
        }
        Ok(())
    }

    /// Raises or lowers a cost by steps for as long as that helps.
    fn shift(&mut self, cost: Cost, step: u32) -> Result<(), SpecError> {
        for up in [true, false] {
            let moved = |value: u32| {
                if up { value.saturating_add(step).min(MOST) } else { value.saturating_sub(step) }
            };
            let change = |params: &mut DiskParams| {
                let cost = cost(&mut params.overheads);
                *cost =
                    CommandNs { after_read: moved(cost.after_read), after_write: moved(cost.after_write) };
            };
            while self.try_change(change)? {}
        }
        Ok(())
    }

    /// The same for the time of a sector on the bus.
    fn shift_bus(&mut self, step: u32) -> Result<(), SpecError> {
        for up in [true, false] {
            let moved = |value: u32| {
                if up { value.saturating_add(step).min(MOST) } else { value.saturating_sub(step) }
            };
            let change = |params: &mut DiskParams| {
                let bus = &mut params.overheads.bus_ns_per_sector;
                *bus = moved(*bus);
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
            median(rests).map_or(known, |rest| rest.min(u64::from(MOST)) as u32)
        };
        let read = CommandNs {
            after_read: fixed(0, costs.read_completion_ns, costs.read_hit_ns.after_read),
            after_write: fixed(1, costs.read_completion_ns, costs.read_hit_ns.after_write),
        };
        let write = CommandNs {
            after_read: fixed(2, costs.write_completion_ns, costs.cached_write_ns.after_read),
            after_write: fixed(3, costs.write_completion_ns, costs.cached_write_ns.after_write),
        };
        self.try_change(|params| {
            params.overheads.bus_ns_per_sector = bus;
            params.overheads.read_hit_ns = read;
            params.overheads.cached_write_ns = write;
        })?;
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
