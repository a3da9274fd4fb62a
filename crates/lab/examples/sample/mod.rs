//! Runs that look like measurements, for tests of what prints them.

use bimetal_lab::record::{
    Environment, FORMAT, Interval, IntervalSide, JobRun, Late, Latency, Run, Side, TargetFacts, VERSION,
};
use bimetal_units::rng::Rng;
use std::collections::BTreeMap;

const SECOND: u64 = 1_000_000_000;
const GIB: u64 = 1 << 30;
/// Times with three digits: what a bin holds is no more than 0.1 % below its name.
const GRID: f64 = 1000.0;

/// Counts times as the real recorder would.
#[derive(Default)]
struct Times {
    bins: BTreeMap<u64, u64>,
    count: u64,
    sum: f64,
    squares: f64,
    min: u64,
    max: u64,
}

impl Times {
    fn add(&mut self, ns: u64, count: u64) {
        if count == 0 {
            return;
        }
        let step = (10f64.powf((ns.max(1) as f64).log10().floor()) / GRID).max(1.0);
        *self.bins.entry(((ns as f64 / step).ceil() * step) as u64).or_default() += count;
        self.min = if self.count == 0 { ns } else { self.min.min(ns) };
        self.max = self.max.max(ns);
        self.count += count;
        self.sum += ns as f64 * count as f64;
        self.squares += (ns as f64).powi(2) * count as f64;
    }

    fn latency(self) -> Latency {
        let mean = self.sum / self.count.max(1) as f64;
        let variance = (self.squares - self.sum * mean) / self.count.saturating_sub(1).max(1) as f64;
        Latency {
            count: self.count,
            min_ns: self.min,
            max_ns: self.max,
            mean_ns: mean,
            stddev_ns: variance.max(0.0).sqrt(),
            bins: self.bins.into_iter().collect(),
        }
    }
}

/// About the exponential of a normal: the sum of uniforms stands in for the latter.
fn around(rng: &mut Rng, ns: f64, spread: f64) -> f64 {
    let sum: f64 = (0..6).map(|_| rng.below(1 << 20) as f64 / (1u64 << 20) as f64).sum();
    ns * ((sum - 3.0) * 1.4 * spread).exp()
}

/// From the share of the time that has gone: the mean service time of a read and of a write, the share of reads, and
/// that of the fast tier.
type At = fn(f64) -> (f64, f64, f64, f64);

/// What a job does in each interval.
struct Shape {
    name: &'static str,
    depth: u32,
    seconds: u64,
    interval_ns: u64,
    block: u64,
    at: At,
    /// From the share of the time that has gone: a place, 0 to 127.
    place: fn(&mut Rng, f64) -> u8,
}

#[derive(Default)]
struct Recorded {
    service: Times,
    response: Times,
    submit: Times,
    ios: u64,
}

impl Recorded {
    /// So many I/Os of about such a time, in forty groups.
    fn interval(&mut self, rng: &mut Rng, shape: &Shape, at: f64, ns: f64, ios: u64) -> IntervalSide {
        let mut side = IntervalSide { ios, bytes: ios * shape.block, ..IntervalSide::default() };
        let (mut heat, mut places) = (BTreeMap::new(), BTreeMap::new());
        for group in 0..40 {
            let count = ios / 40 + u64::from(group < ios % 40);
            if count == 0 {
                continue;
            }
            let stalled = if rng.one_in(150) { 20.0 } else { 1.0 };
            let service = (around(rng, ns, 0.5) * stalled) as u64 + 1;
            let response = service + (around(rng, ns * 0.05, 0.8)) as u64;
            self.service.add(service, count);
            self.response.add(response, count);
            self.submit.add(around(rng, 1800.0, 0.3) as u64, count);
            side.max_ns = side.max_ns.max(response);
            side.total_ns += response * count;
            *heat.entry(((response as f64).log2() * 2.0).floor() as u8).or_insert(0) += count;
            *places.entry((shape.place)(rng, at)).or_insert(0) += count;
        }
        self.ios += ios;
        side.heat = heat.into_iter().collect();
        side.places = places.into_iter().collect();
        side
    }

    fn side(self, block: u64) -> Side {
        Side {
            ios: self.ios,
            bytes: self.ios * block,
            failed: 0,
            mismatched: 0,
            busy_ns: 0,
            runtime_ns: 0,
            submit: self.submit.latency(),
            service: self.service.latency(),
            response: self.response.latency(),
            tiers: None,
        }
    }
}

fn job(rng: &mut Rng, shape: &Shape, faster: f64) -> JobRun {
    let slots = shape.seconds * SECOND / shape.interval_ns;
    let (mut read, mut write) = (Recorded::default(), Recorded::default());
    let mut intervals = Vec::new();
    for n in 0..slots {
        let at = n as f64 / slots as f64;
        let (read_ns, write_ns, reads, fast) = (shape.at)(at);
        let mean = (reads * read_ns + (1.0 - reads) * write_ns) / faster;
        let ios = around(rng, f64::from(shape.depth) * shape.interval_ns as f64 / mean, 0.04);
        let read = read.interval(rng, shape, at, read_ns / faster, (ios * reads) as u64);
        let write = write.interval(rng, shape, at, write_ns / faster, (ios * (1.0 - reads)) as u64);
        let all = read.bytes + write.bytes;
        intervals.push(Interval { n, tiers: Some(((all as f64 * fast) as u64, all)), read, write });
    }
    let elapsed_ns = shape.seconds * SECOND;
    let options = [("rw", "randrw"), ("bs", "4k"), ("ioengine", "io_uring"), ("direct", "1")];
    JobRun {
        name: shape.name.into(),
        target: "volume".into(),
        options: options.map(|(key, value)| (key.to_string(), value.to_string())).into(),
        depth: shape.depth,
        elapsed_ns,
        late: Late { timed: read.ios, count: read.ios / 400, total_ns: 31 * SECOND, max_ns: 78_000_000 },
        depths_ns: (0..)
            .map(|power| (1u32 << power) / 2)
            .take_while(|depth| *depth <= shape.depth)
            .map(|depth| (depth, elapsed_ns / 20 + u64::from(depth == shape.depth) * elapsed_ns / 2))
            .collect(),
        read: read.side(shape.block),
        write: write.side(shape.block),
        intervals,
        interval_ns: shape.interval_ns,
        span: (0, 64 * GIB),
        ..JobRun::default()
    }
}

fn run(title: &str, seed: u64, jobs: Vec<JobRun>) -> Run {
    let details =
        [("scheduler", "none"), ("rotational", "no")].map(|(key, value)| (key.into(), value.into()));
    let target = TargetFacts { kind: "simulated".into(), size_bytes: 64 * GIB, details: details.into() };
    Run {
        format: FORMAT.into(),
        version: VERSION,
        title: title.into(),
        began_unix_ms: 1_790_000_000_000,
        seed,
        virtual_time: true,
        interrupted: false,
        cpu: None,
        global_options: Default::default(),
        disks: Vec::new(),
        environment: Environment {
            program: "bimetal 0.1.0".into(),
            kernel: "Linux 6.12.0".into(),
            processor: "a processor".into(),
            processors: 2,
            memory_bytes: 24 * GIB,
            targets: [("volume".to_string(), target)].into(),
        },
        jobs,
        notes: vec!["Invented figures, to look at the page with.".into()],
    }
}

/// A volume that is filled until its fast tier is full, and a database beside it whose working set rises to the fast
/// tier meanwhile.
pub fn fill_with_cliff(seed: u64, faster: f64) -> Run {
    let mut rng = Rng::new(seed, 7);
    let fill = Shape {
        name: "fill",
        depth: 8,
        seconds: 300,
        interval_ns: SECOND / 2,
        block: 128 << 10,
        at: |at| if at < 0.62 { (4e5, 4e5, 0.0, 1.0) } else { (6e6, 6e6, 0.0, 0.08) },
        place: |_, at| (at * 127.9) as u8,
    };
    let database = Shape {
        name: "database",
        depth: 16,
        seconds: 300,
        interval_ns: SECOND / 2,
        block: 4096,
        at: |at| (9e6 * (0.06 + 0.94 * (-at * 5.0).exp()), 9e4, 0.7, 1.0 - 0.9 * (-at * 5.0).exp()),
        place: |rng, _| (if rng.one_in(4) { rng.below(128) } else { 20 + rng.below(14) }) as u8,
    };
    let jobs = [fill, database].iter().map(|shape| job(&mut rng, shape, faster)).collect();
    run("Fill with a database beside it", seed, jobs)
}

/// The same random reads at more and more depth.
pub fn depths(seed: u64) -> Run {
    let mut rng = Rng::new(seed, 8);
    let names = ["qd1", "qd2", "qd4", "qd8", "qd16", "qd32"];
    let at: [At; 6] = [
        |_| (9e4, 9e4, 1.0, 1.0),
        |_| (9.4e4, 9e4, 1.0, 1.0),
        |_| (1.05e5, 9e4, 1.0, 1.0),
        |_| (1.4e5, 9e4, 1.0, 1.0),
        |_| (2.4e5, 9e4, 1.0, 1.0),
        |_| (4.9e5, 9e4, 1.0, 1.0),
    ];
    let shape = |i: usize| Shape {
        name: names[i],
        depth: 1 << i,
        seconds: 20,
        interval_ns: SECOND,
        block: 4096,
        at: at[i],
        place: |rng, _| rng.below(128) as u8,
    };
    let mut jobs: Vec<JobRun> = (0..6).map(|i| job(&mut rng, &shape(i), 1.0)).collect();
    for (at, job) in jobs.iter_mut().enumerate() {
        job.began_ns = at as u64 * 20 * SECOND;
    }
    run("Random reads by depth", seed, jobs)
}
