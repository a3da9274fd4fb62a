//! Jobs on targets: what is asked for, what is counted, and what is seen when a target lies.

#[path = "common/noted.rs"]
mod noted;

use bimetal_lab::job::{
    Content, DepthSearch, Distribution, Job, Ops, Order, Rate, Sizes, Think, UntilSteady, side,
};
use bimetal_lab::layout::lay_out;
use bimetal_lab::load::{self, Going, LoadTarget, RunError, SlotSpec};
use bimetal_lab::record::JobRun;
use bimetal_lab::stats::{FioRule, quantile};
use bimetal_lab::survey::{Found, survey};
use bimetal_lab::target::{Files, Null, OpenFile, OpenHow, Simulated};
use bimetal_load::{Ended, Target};
use bimetal_models::constant::{Constant, ConstantParams};
use bimetal_models::{Command, Kind};
use noted::Noted;
use std::collections::BTreeMap;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

fn run<T: LoadTarget>(target: &mut T, job: Job) -> JobRun {
    let names = ["target".to_owned()];
    let began = target.now_ns();
    let mut ran =
        load::run(target, &[job], &names, began, SECOND, &mut |_: &Going| true).expect("there is room");
    ran.remove(0)
}

fn asked(job: Job) -> Vec<Command> {
    let mut target = Noted::default();
    run(&mut target, job);
    let asked = target.asked.lock().expect("nobody panics");
    asked.iter().map(|(_, command)| *command).collect()
}

/// A device that takes 10 ms, in virtual time.
fn slow(units: u32) -> Simulated {
    let params = ConstantParams { size_bytes: 1 << 30, latency_ns: 10 * MS, ns_per_kib: 0, units };
    Simulated::device(Box::new(Constant::new(params)))
}

fn ios(count: u64, mut job: Job) -> Job {
    (job.ios, job.time_based) = (Some(count), true);
    job
}

#[test]
fn random_order_meets_each_block_once_in_each_pass() {
    let job = Job { loops: 3, depth: 4, ..Job::new("each", 8192..8192 + MIB) };
    let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
    for command in asked(job) {
        assert_eq!((command.kind, command.len, command.offset % 4096), (Kind::Read, 4096, 0));
        *counts.entry(command.offset).or_default() += 1;
    }
    assert_eq!((counts.len(), counts.values().min(), counts.values().max()), (256, Some(&3), Some(&3)));
    assert_eq!((counts.keys().min(), counts.keys().max()), (Some(&8192), Some(&(8192 + MIB - 4096))));
}

#[test]
fn sequential_order_wraps_and_steps() {
    let job = Job { order: [Order::SEQUENTIAL; 3], loops: 2, ..Job::new("sequential", 0..16384) };
    let offsets: Vec<u64> = asked(job).iter().map(|command| command.offset).collect();
    assert_eq!(offsets, [0, 4096, 8192, 12288, 0, 4096, 8192, 12288]);
    let strided = Order { random_percent: 0, step_bytes: 4096 };
    let job = ios(4, Job { order: [strided; 3], ..Job::new("strided", 0..16384) });
    let offsets: Vec<u64> = asked(job).iter().map(|command| command.offset).collect();
    assert_eq!(offsets, [0, 8192, 0, 8192]);
    let backwards = Order { random_percent: 0, step_bytes: -8192 };
    let job = ios(5, Job { order: [backwards; 3], ..Job::new("backwards", 0..16384) });
    let offsets: Vec<u64> = asked(job).iter().map(|command| command.offset).collect();
    assert_eq!(offsets, [0, 8192, 4096, 0, 8192]);
}

#[test]
fn mixes_and_sizes_are_what_was_asked_for() {
    let mut job = ios(20_000, Job::new("mixed", 0..64 * MIB));
    job.ops = Ops::ReadWrite { read_percent: 70 };
    job.sizes[side::READ] = Sizes::Split(vec![(4096, 60), (65536, 40)]);
    job.sizes[side::WRITE] = Sizes::Range { from: 4096, to: 16384 };
    job.distribution = std::array::from_fn(|_| Distribution::Zoned(vec![(0.9, 0.1), (0.1, 0.9)]));
    let asked = asked(job);
    let (reads, writes): (Vec<&Command>, Vec<&Command>) =
        asked.iter().partition(|command| command.kind == Kind::Read);
    assert!((13_700..14_300).contains(&reads.len()), "{}", reads.len());
    let large = reads.iter().filter(|command| command.len == 65536).count() as f64 / reads.len() as f64;
    assert!((0.38..0.42).contains(&large), "{large}");
    let sizes: std::collections::BTreeSet<u64> = writes.iter().map(|command| command.len).collect();
    assert_eq!(sizes.into_iter().collect::<Vec<_>>(), [4096, 8192, 12288, 16384]);
    let hot = asked.iter().filter(|command| command.offset < 64 * MIB / 10).count() as f64 / 20_000.0;
    assert!((0.88..0.92).contains(&hot), "{hot}");
}

#[test]
fn reads_and_writes_of_a_mix_meet_each_block_once_together() {
    let job = Job { ops: Ops::ReadWrite { read_percent: 50 }, depth: 8, ..Job::new("mixed", 0..4 * MIB) };
    let asked = asked(job);
    let offsets: std::collections::BTreeSet<u64> = asked.iter().map(|command| command.offset).collect();
    assert_eq!((asked.len(), offsets.len()), (1024, 1024));
    let reads = asked.iter().filter(|command| command.kind == Kind::Read).count();
    assert!((400..624).contains(&reads), "{reads}");
}

#[test]
fn a_rate_is_kept_by_whatever_a_job_does() {
    for (read_percent, rate) in [
        (0, [Some(Rate::Ios(100.0)); 3]),
        (0, [None, Some(Rate::Ios(100.0)), None]),
        (50, [None, Some(Rate::Ios(100.0)), None]),
        (50, [Some(Rate::Ios(300.0)), Some(Rate::Ios(100.0)), None]),
    ] {
        let mut job =
            Job { ops: Ops::ReadWrite { read_percent }, depth: 8, ..Job::new("rated", 0..64 * MIB) };
        (job.runtime_ns, job.time_based, job.rate) = (Some(2 * SECOND), true, rate);
        let ran = run(&mut slow(8), job);
        assert!((190..=202).contains(&ran.write.ios), "{} writes of {rate:?}", ran.write.ios);
        let reads = match (read_percent, rate[side::READ]) {
            (0, _) => 0..=0,
            // Without a rate of their own reads take what is left of the depth.
            (_, None) => 1000..=1600,
            (_, Some(_)) => 570..=602,
        };
        assert!(reads.contains(&ran.read.ios), "{} reads of {rate:?}", ran.read.ios);
    }
}

#[test]
fn passes_are_fios() {
    let writes = |bytes: Option<u64>, loops| {
        let job =
            Job { ops: Ops::ReadWrite { read_percent: 0 }, bytes, loops, ..Job::new("passes", 0..16384) };
        asked(Job { order: [Order::SEQUENTIAL; 3], ..job }).len()
    };
    // Twice the span in two passes; half of the span in half of one; both together as many as both say.
    assert_eq!((writes(None, 3), writes(Some(32768), 1), writes(Some(8192), 1)), (12, 8, 2));
    assert_eq!((writes(Some(32768), 2), writes(Some(8192), 2)), (8, 4));
    // Less than an I/O is left.
    assert_eq!(writes(Some(16384 + 2048), 1), 4);
}

#[test]
fn flushes_and_discards_come_where_they_were_asked_for() {
    let mut job = ios(4, Job::new("flushed", 0..MIB));
    (job.ops, job.flush_every_writes, job.end_flush) = (Ops::ReadWrite { read_percent: 0 }, Some(2), true);
    let flushes = |job: Job| -> Vec<Option<Kind>> {
        let flush = |kind: &Kind| matches!(kind, Kind::Flush | Kind::Sync);
        asked(job).iter().map(|command| Some(command.kind).filter(flush)).collect()
    };
    // What would follow the last write falls away.
    let (flush, sync) = (Some(Kind::Flush), Some(Kind::Sync));
    assert_eq!(flushes(job.clone()), [None, None, flush, None, None, sync]);
    (job.flush_every_writes, job.sync_every_writes, job.end_flush) = (Some(1), Some(2), false);
    assert_eq!(flushes(job), [None, flush, None, sync, None, flush, None]);
    let mut job = ios(2, Job::new("trimmed", 0..MIB));
    job.ops = Ops::DiscardWrite;
    let commands = asked(job);
    assert_eq!(commands.len(), 4);
    for pair in commands.chunks(2) {
        assert_eq!((pair[0].kind, pair[1].kind), (Kind::Discard, Kind::Write { fua: false }));
        assert_eq!(pair[0].offset, pair[1].offset);
    }
}

/// A device that can do 100 a second is asked for 200: each waits longer than the one before, wherever it waits.
#[test]
fn a_stall_cannot_hide_from_a_rate() {
    let mut job = Job { depth: 2, ..Job::new("rated", 0..64 * MIB) };
    (job.runtime_ns, job.time_based, job.rate[side::READ]) = (Some(SECOND), true, Some(Rate::Ios(200.0)));
    let ran = run(&mut slow(1), job.clone());
    assert!((100..=102).contains(&ran.read.ios), "{}", ran.read.ios);
    assert!(ran.read.response.max_ns > 480 * MS, "{} ns", ran.read.response.max_ns);
    assert!(ran.read.service.max_ns <= 20 * MS, "{} ns", ran.read.service.max_ns);
    assert!(ran.late.count > 90 && ran.late.max_ns > 450 * MS, "{:?}", ran.late);
    // One that can do 2000 keeps up.
    let ran = run(&mut slow(20), job);
    assert!((199..=200).contains(&ran.read.ios), "{}", ran.read.ios);
    assert_eq!((ran.read.response.max_ns, ran.late.count), (10 * MS, 0));
    let half = quantile(&ran.read.response, 0.5).expect("there are some");
    assert!(half.abs_diff(10 * MS) <= MS / 100, "{half} ns");
}

#[test]
fn poisson_arrivals_keep_their_rate_but_not_their_distances() {
    let mut job = Job { depth: 64, poisson: true, ..Job::new("poisson", 0..64 * MIB) };
    (job.runtime_ns, job.time_based, job.rate[side::READ]) =
        (Some(100 * SECOND), true, Some(Rate::Ios(50.0)));
    let ran = run(&mut slow(64), job);
    assert!((4_800..5_200).contains(&ran.read.ios), "{}", ran.read.ios);
    let at_once: u64 = ran.depths_ns.iter().filter(|depth| depth.0 >= 2).map(|depth| depth.1).sum();
    assert!(at_once > SECOND, "{at_once} ns");
}

#[test]
fn pauses_delays_and_ramps() {
    let mut job = ios(10, Job::new("thinks", 0..MIB));
    job.think = Some(Think { ns: 90 * MS, every_ios: 1, every_ns: 0, delays_rate: false });
    let ran = run(&mut slow(1), job);
    assert_eq!((ran.read.ios, ran.elapsed_ns, ran.read.response.max_ns), (10, 910 * MS, 10 * MS));
    let mut job = Job::new("ramps", 0..MIB);
    (job.start_delay_ns, job.ramp_ns, job.runtime_ns) = (100 * MS, 200 * MS, Some(300 * MS));
    job.time_based = true;
    let ran = run(&mut slow(1), job);
    assert_eq!((ran.began_ns, ran.elapsed_ns), (300 * MS, 300 * MS));
    assert!((30..=31).contains(&ran.read.ios), "{}", ran.read.ios);
}

#[test]
fn pauses_come_after_a_time_and_may_delay_a_rate() {
    let mut job = ios(30, Job::new("tires", 0..MIB));
    job.think = Some(Think { ns: 100 * MS, every_ios: 0, every_ns: 100 * MS, delays_rate: false });
    // Ten of 10 ms, then a pause.
    assert_eq!(run(&mut slow(1), job).elapsed_ns, 500 * MS);
    let lasts = |delays_rate| {
        let mut job = ios(5, Job { depth: 8, ..Job::new("paced", 0..MIB) });
        job.rate[side::READ] = Some(Rate::Ios(20.0));
        job.think = Some(Think { ns: 200 * MS, every_ios: 2, every_ns: 0, delays_rate });
        run(&mut slow(8), job).elapsed_ns
    };
    assert!(lasts(true) > lasts(false) + 100 * MS, "{} {}", lasts(true), lasts(false));
}

#[test]
fn an_io_that_takes_too_long_ends_its_job() {
    let job = |most_ns| Job {
        depth: 4,
        max_latency_ns: [Some(most_ns), None, None],
        ..ios(100, Job::new("waits", 0..64 * MIB))
    };
    let ran = run(&mut slow(4), job(10 * MS));
    assert!(ran.read.ios == 100 && ran.errors.is_empty(), "{} {:?}", ran.read.ios, ran.errors);
    // Four at once on a device that does one at a time: the second takes 20 ms.
    let ran = run(&mut slow(1), job(15 * MS));
    assert!((4..8).contains(&ran.read.ios), "{}", ran.read.ios);
    assert_eq!(ran.errors.keys().collect::<Vec<_>>(), ["it took longer than max_latency"]);
}

#[test]
fn the_same_seed_asks_for_the_same() {
    let job = |seed| {
        let mut job = ios(1000, Job { depth: 8, seed, ..Job::new("seeded", 0..64 * MIB) });
        job.ops = Ops::ReadWrite { read_percent: 50 };
        job.distribution = std::array::from_fn(|_| Distribution::Zipf { theta: 1.1 });
        job
    };
    assert_eq!(asked(job(5)), asked(job(5)));
    assert_ne!(asked(job(5)), asked(job(6)));
}

#[test]
fn runs_follow_a_random_place_or_stay_there() {
    let places = |in_place| {
        let mut job = ios(12, Job::new("runs", 0..MIB));
        (job.run_ios, job.run_in_place) = (4, in_place);
        let offsets: Vec<u64> = asked(job).iter().map(|command| command.offset / 4096).collect();
        assert!(offsets[0] != offsets[4] && offsets[4] != offsets[8], "{offsets:?}");
        offsets
            .chunks(4)
            .map(|run| run.iter().map(|offset| offset - run[0]).collect())
            .collect::<Vec<Vec<u64>>>()
    };
    assert_eq!(places(false)[0], [0, 1, 2, 3]);
    assert_eq!(places(true), [[0; 4]; 3]);
}

/// A device with eight units of 10 ms: beyond eight, I/Os wait for one another.
#[test]
fn the_depth_that_keeps_a_limit_is_found() {
    let mut job = Job { depth: 64, ..Job::new("searches", 0..64 * MIB) };
    (job.runtime_ns, job.time_based) = (Some(3600 * SECOND), true);
    let search = DepthSearch { target_ns: 12 * MS, percentile: 95.0, window_ns: SECOND, goes_on: false };
    job.depth_search = Some(search);
    let ran = run(&mut slow(8), job.clone());
    assert_eq!(ran.found_depth, Some(8));
    assert!(ran.elapsed_ns < 20 * SECOND, "{}", ran.elapsed_ns);
    // One that cannot be kept at all.
    job.depth_search = Some(DepthSearch { target_ns: MS, ..search });
    assert_eq!(run(&mut slow(8), job).found_depth, Some(0));
}

#[test]
fn a_job_ends_when_it_is_steady() {
    let mut job = Job { depth: 4, ..Job::new("steady", 0..64 * MIB) };
    (job.runtime_ns, job.time_based) = (Some(3600 * SECOND), true);
    let rule = FioRule::parse("iops:2%", 5).expect("a rule");
    job.until_steady = Some(UntilSteady { rule, interval_ns: SECOND, ramp_ns: 2 * SECOND });
    let ran = run(&mut slow(4), job);
    assert_eq!(ran.elapsed_ns.div_ceil(SECOND), 7, "{} ns", ran.elapsed_ns);
    assert!(ran.steady.is_some());
}

#[test]
fn it_ends_when_it_is_told_to() {
    let mut job = Job::new("endless", 0..MIB);
    (job.runtime_ns, job.time_based) = (Some(3600 * SECOND), true);
    let names = ["target".to_owned()];
    let mut looks = 0;
    let mut watch = |_: &Going| {
        looks += 1;
        // Before the first, and each quarter of a second.
        looks < 9
    };
    let ran =
        load::run(&mut slow(1), &[job], &names, 0, SECOND, &mut watch).expect("there is room").remove(0);
    assert!((195..=201).contains(&ran.read.ios), "{}", ran.read.ios);
    assert_eq!(ran.elapsed_ns, 2 * SECOND);
}

/// Two targets in turn, by jobs of 10 ms, once went on for minutes after Ctrl-C: each job was over before anybody looked.
#[test]
fn it_does_not_begin_what_is_over_before_anybody_looks() {
    let mut job = Job::new("short", 0..MIB);
    (job.runtime_ns, job.time_based) = (Some(SECOND / 100), true);
    let names = ["target".to_owned()];
    let ran = load::run(&mut slow(1), &[job], &names, 0, SECOND, &mut |_: &Going| false);
    let ran = ran.expect("there is room").remove(0);
    assert_eq!((ran.read.ios, ran.elapsed_ns, ran.unanswered), (0, 0, 0));
}

#[test]
fn too_much_in_flight_is_refused() {
    let refused = |job: Job| {
        let names = ["target".to_owned()];
        load::run(&mut Null::default(), &[job], &names, 0, SECOND, &mut |_: &Going| true)
            .expect_err("too much")
    };
    let job = Job { depth: 1_000_000, ..Job::new("deep", 0..MIB) };
    assert!(matches!(refused(job), RunError::Depth(1_000_000)));
    let job = Job {
        depth: 4096,
        sizes: std::array::from_fn(|_| Sizes::one(1024 * MIB)),
        ..Job::new("wide", 0..8192 * MIB)
    };
    // 4 TiB: more than any machine at hand has.
    assert!(matches!(refused(job), RunError::Memory(..)));
}

/// Reads of some offset come back with a bit turned.
struct Lying {
    files: Files,
    from: u64,
    slots: BTreeMap<u32, Command>,
}

impl Target for Lying {
    fn now_ns(&mut self) -> u64 {
        self.files.now_ns()
    }

    fn submit(&mut self, slot: u32, place: u32, command: Command) {
        self.slots.insert(slot, command);
        self.files.submit(slot, place, command);
    }

    fn wait(&mut self, until: Option<u64>, ended: &mut Vec<Ended>) -> u64 {
        let now = self.files.wait(until, ended);
        for end in ended.iter() {
            let command = self.slots[&end.slot];
            if command.kind == Kind::Read && command.offset == self.from {
                self.files.payload(end.slot, command.len).expect("files have payload")[1000] ^= 4;
            }
        }
        now
    }

    fn payload(&mut self, slot: u32, len: u64) -> Option<&mut [u8]> {
        self.files.payload(slot, len)
    }
}

impl LoadTarget for Lying {
    fn prepare(&mut self, slots: &[SlotSpec]) -> Result<(), RunError> {
        self.files.prepare(slots)
    }
}

fn file(dir: &tempfile::TempDir, bytes: u64) -> Files {
    let path = dir.path().join("file");
    std::fs::File::create(&path).and_then(|file| file.set_len(bytes)).expect("a file");
    let how = OpenHow { write: true, ..OpenHow::default() };
    Files::new(vec![OpenFile::open(&path, how).expect("it opens")]).expect("a ring")
}

#[test]
fn what_is_written_is_verified() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut job = Job { depth: 8, verify: true, each_once: false, ..Job::new("verified", 0..MIB) };
    (job.ops, job.bytes) = (Ops::ReadWrite { read_percent: 0 }, Some(2 * MIB));
    job.sizes[side::WRITE] = Sizes::Range { from: 4096, to: 16384 };
    let ran = run(&mut file(&dir, MIB), job.clone());
    assert!(ran.read.ios > 50, "{}", ran.read.ios);
    assert_eq!((ran.read.mismatched, ran.read.failed, ran.write.failed), (0, 0, 0));
    let from =
        asked(job.clone()).iter().rev().find(|command| command.kind == Kind::Read).expect("a read").offset;
    let mut lying = Lying { files: file(&dir, MIB), from, slots: BTreeMap::new() };
    assert_eq!(run(&mut lying, job).read.mismatched, 1);
}

/// Ends what is in flight in any order but that in which it came, and tells when writes overlap.
#[derive(Default)]
struct Disorderly {
    null: Null,
    now_ns: u64,
    in_flight: Vec<(u32, Command)>,
    overlaps: usize,
    read_bytes: u64,
}

impl Target for Disorderly {
    fn now_ns(&mut self) -> u64 {
        self.now_ns
    }

    fn submit(&mut self, slot: u32, _place: u32, command: Command) {
        if matches!(command.kind, Kind::Write { .. }) {
            let meets = |(_, other): &&(u32, Command)| {
                other.offset < command.offset + command.len && command.offset < other.offset + other.len
            };
            self.overlaps += self.in_flight.iter().filter(meets).count();
        }
        self.read_bytes += if command.kind == Kind::Read { command.len } else { 0 };
        self.in_flight.push((slot, command));
    }

    fn wait(&mut self, _until: Option<u64>, ended: &mut Vec<Ended>) -> u64 {
        self.now_ns += MS;
        if let Some((slot, _)) = self.in_flight.pop() {
            ended.push(Ended { slot, handed_ns: None, at_ns: self.now_ns, fault: None, served: None });
        }
        self.now_ns
    }

    fn payload(&mut self, slot: u32, len: u64) -> Option<&mut [u8]> {
        self.null.payload(slot, len)
    }
}

impl LoadTarget for Disorderly {
    fn prepare(&mut self, slots: &[SlotSpec]) -> Result<(), RunError> {
        self.null.prepare(slots)
    }
}

#[test]
fn writes_that_are_verified_do_not_overlap_in_flight_and_all_are_read_back() {
    let mut job = Job { depth: 8, verify: true, each_once: false, ..Job::new("verified", 0..MIB / 4) };
    (job.ops, job.bytes, job.loops) = (Ops::ReadWrite { read_percent: 0 }, Some(2 * MIB), 2);
    job.sizes[side::WRITE] = Sizes::Range { from: 4096, to: 16384 };
    let mut target = Disorderly::default();
    let ran = run(&mut target, job.clone());
    assert_eq!((target.overlaps, ran.flush.ios), (0, 0));
    // So many writes leave nothing out.
    assert!(target.read_bytes > MIB / 2 * 98 / 100, "{}", target.read_bytes);
    // Written and read back in times of their own.
    let (writing, reading) = (ran.write.runtime_ns, ran.read.runtime_ns);
    assert!(writing > 0 && reading > 0 && writing + reading == ran.elapsed_ns, "{writing} {reading}");
    job.verify = false;
    let mut target = Disorderly::default();
    assert_eq!((run(&mut target, job).write.runtime_ns, target.overlaps > 0), (0, true));
}

#[test]
fn what_is_more_than_can_be_remembered_is_read_back_in_parts() {
    let mut job = Job { depth: 4, verify: true, ios: Some(3000), ..Job::new("wide", 0..1 << 40) };
    job.ops = Ops::ReadWrite { read_percent: 0 };
    let asked = asked(job);
    let of = |kind: Kind| asked.iter().filter(|command| command.kind == kind).count();
    let places = |kind: Kind| -> std::collections::BTreeSet<u64> {
        asked.iter().filter(|command| command.kind == kind).map(|command| command.offset).collect()
    };
    let writes = Kind::Write { fua: false };
    assert_eq!((of(writes), of(Kind::Read)), (3000, 3000));
    assert_eq!(places(writes), places(Kind::Read));
    let turns = asked.windows(2).filter(|pair| pair[0].kind == writes && pair[1].kind == Kind::Read).count();
    assert_eq!(turns, 3);
}

/// A target that takes everything and answers nothing, in virtual time.
#[derive(Default)]
struct Mute {
    now_ns: u64,
}

impl Target for Mute {
    fn now_ns(&mut self) -> u64 {
        self.now_ns
    }

    fn submit(&mut self, _slot: u32, _place: u32, _command: Command) {}

    fn wait(&mut self, until: Option<u64>, _ended: &mut Vec<Ended>) -> u64 {
        self.now_ns = until.expect("the run is looked at");
        self.now_ns
    }
}

impl LoadTarget for Mute {
    fn prepare(&mut self, _: &[SlotSpec]) -> Result<(), RunError> {
        Ok(())
    }
}

#[test]
fn a_run_that_is_ended_does_not_wait_for_ever() {
    let mut target = Mute::default();
    let job = Job { depth: 3, ..Job::new("mute", 0..MIB) };
    let began = target.now_ns();
    let ends_at = 2 * SECOND;
    let mut watch = |going: &Going| going.at_ns < ends_at;
    let ran = load::run(&mut target, &[job], &[], began, SECOND, &mut watch).expect("there is room");
    assert_eq!((ran[0].unanswered, ran[0].read.ios), (3, 0));
    assert_eq!(target.now_ns, ends_at + load::PATIENCE_NS);
}

/// Each answer of a volume says who had a part in it: what was never written has nobody.
#[test]
fn tiers_are_told_of_each_io() {
    let text = "name = 'tiers'\n[volume]\nfast = { model = 'ssd-480gb-2012-pcie', size = '1G' }\n\
                slow = { model = 'disk-2tb-2012', size = '8G' }\n[[phase]]\nname = 'x'\npause_seconds = 1\n";
    let scenario = bimetal_sim::scenario::Scenario::parse_all(text).expect("a scenario").remove(0);
    let target = bimetal_sim::scenario::Target::fresh(&scenario).expect("a volume");
    let mut volume = Simulated::scenario(target);
    let blank = run(&mut volume, ios(100, Job::new("blank", 0..64 * MIB)));
    let tiers = blank.read.tiers.expect("it tells");
    assert_eq!((tiers.neither.ios, tiers.fast.ios, tiers.slow.ios, tiers.both.ios), (100, 0, 0, 0));
    let mut fill = Job { order: [Order::SEQUENTIAL; 3], depth: 4, ..Job::new("fill", 0..3 << 30) };
    (fill.ops, fill.sizes) = (Ops::ReadWrite { read_percent: 0 }, std::array::from_fn(|_| Sizes::one(MIB)));
    let fill = run(&mut volume, fill);
    let tiers = fill.write.tiers.expect("it tells");
    assert!(tiers.fast.ios > 0 && tiers.slow.ios + tiers.both.ios > 0, "{:?}", tiers.each().map(|t| t.1.ios));
    assert_eq!(tiers.each().map(|tier| tier.1.ios).iter().sum::<u64>(), fill.write.ios);
    let reads = run(&mut volume, ios(2000, Job::new("reads", 0..3 << 30)));
    let tiers = reads.read.tiers.expect("it tells");
    assert!(tiers.fast.ios > 0 && tiers.slow.ios > 0, "{:?}", tiers.each().map(|t| t.1.ios));
    assert!(tiers.fast.service.mean_ns * 10.0 < tiers.slow.service.mean_ns);
    let (device, job) = (&mut slow(1), ios(10, Job::new("device", 0..MIB)));
    assert_eq!(run(device, job).read.tiers, None, "a device has no tiers");
}

#[test]
fn errors_end_a_job_and_are_counted() {
    let dir = tempfile::tempdir().expect("a folder");
    // Reads behind the end of the file are short.
    let ran =
        run(&mut file(&dir, MIB), Job { order: [Order::SEQUENTIAL; 3], ..Job::new("short", 0..2 * MIB) });
    assert_eq!((ran.read.ios, ran.read.failed), (256, 1));
    assert_eq!(ran.errors.into_iter().collect::<Vec<_>>(), [("only a part was done".to_owned(), 1)]);
}

#[test]
fn data_of_others_is_found_and_the_labs_own_is_not() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut files = file(&dir, 8 * MIB);
    assert_eq!(survey(&mut files, 0, 8 * MIB, 1).expect("room"), Found::Nothing);
    let mut job = Job { content: Content::Random, ..Job::new("fill", 0..8 * MIB) };
    job.ops = Ops::ReadWrite { read_percent: 0 };
    assert_eq!(run(&mut files, job).write.bytes, 8 * MIB);
    assert_eq!(survey(&mut files, 0, 8 * MIB, 1).expect("room"), Found::Nothing);
    let path = dir.path().join("file");
    let mut bytes = std::fs::read(&path).expect("it is there");
    bytes[0x438] = 0x53;
    bytes[512..1024].fill(7);
    std::fs::write(&path, bytes).expect("it is written");
    assert_eq!(survey(&mut files, 0, 8 * MIB, 1).expect("room"), Found::Data { offset: 0 });
}

#[test]
fn data_of_others_is_found_in_the_last_bytes_of_a_file() {
    for (len, at) in [(3, 0), (511, 510), (2000, 1999), (4096 + 14, 4096 + 13), (MIB + 513, MIB + 512)] {
        let dir = tempfile::tempdir().expect("a folder");
        let mut files = file(&dir, len);
        let path = dir.path().join("file");
        let found = |files: &mut Files| survey(files, 0, len, 1).expect("room");
        assert_eq!(found(&mut files), Found::Nothing, "zeros, {len} bytes");
        std::fs::write(&path, []).expect("it is emptied");
        lay_out(&path, len, true, &mut |_, _| true).expect("it is laid out");
        assert_eq!(found(&mut files), Found::Nothing, "the lab's own, {len} bytes");
        let mut bytes = vec![0; len as usize];
        bytes[at as usize] = 7;
        std::fs::write(&path, bytes).expect("it is written");
        assert_eq!(found(&mut files), Found::Data { offset: at / 4096 * 4096 }, "{len} bytes");
        // Past the page cache the last sector is out of reach, for the survey as for the run.
        let whole =
            if at < len / 512 * 512 { Found::Data { offset: at / 4096 * 4096 } } else { Found::Nothing };
        assert_eq!(survey(&mut files, 0, len, 512).expect("room"), whole, "{len} bytes, in sectors");
    }
}

/// Nothing else in a large sparse file: no even sample of the whole meets it.
#[test]
fn data_that_lies_alone_among_holes_is_found() {
    let dir = tempfile::tempdir().expect("a folder");
    let len = 1 << 30;
    let mut files = file(&dir, len);
    let at = 700 * MIB + 12 * 4096;
    let path = dir.path().join("file");
    let other = std::fs::OpenOptions::new().write(true).open(&path).expect("it opens");
    other.write_all_at(&[7; 4096], at).expect("it is written");
    if files.data(0, 8).is_none_or(|ranges| ranges.len() != 1) {
        eprintln!("skipped: this file system does not tell where data lies");
        return;
    }
    assert_eq!(survey(&mut files, 0, len, 1).expect("room"), Found::Data { offset: at });
}

#[test]
fn two_runs_do_not_get_one_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let first = file(&dir, MIB);
    let path = dir.path().join("file");
    let open = |path| OpenFile::open(path, OpenHow::default()).expect("it opens");
    let error = Files::new(vec![open(&path)]).err().expect("it is in use").to_string();
    assert!(error.contains("in use"), "{error}");
    drop(first);
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&path, &link).expect("a link");
    assert!(Files::new(vec![open(&path), open(&link)]).is_ok(), "a run may have it twice");
}

#[test]
fn the_space_of_a_file_that_is_only_written_is_reserved() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("new");
    lay_out(&path, MIB, false, &mut |_, _| true).expect("it is laid out");
    let there = std::fs::metadata(&path).expect("it is there");
    assert_eq!(there.len(), MIB);
    let probe = std::fs::File::create(dir.path().join("probe")).expect("a file");
    if rustix::fs::fallocate(&probe, rustix::fs::FallocateFlags::empty(), 0, MIB).is_ok() {
        assert!(there.blocks() * 512 >= MIB, "{} blocks", there.blocks());
    }
}

#[test]
fn a_layout_that_is_given_up_leaves_what_was_there() {
    let dir = tempfile::tempdir().expect("a folder");
    let (new, old) = (dir.path().join("new"), dir.path().join("old"));
    let mut once = |done, all| {
        assert!(done > 0 && done < all);
        false
    };
    lay_out(&new, 8 * MIB, true, &mut once).expect_err("it is given up");
    assert!(!new.exists());
    std::fs::write(&old, "letters").expect("it is written");
    lay_out(&old, 8 * MIB, true, &mut once).expect_err("it is given up");
    assert_eq!(std::fs::read(&old).expect("it is there"), b"letters");
}

#[test]
fn what_is_no_file_is_refused_at_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let fifo = dir.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).expect("a FIFO");
    // Nobody writes to it: to open it would be to wait for ever.
    let error = OpenFile::open(&fifo, OpenHow::default()).err().expect("it is refused");
    assert!(error.to_string().contains("neither a file nor a block device"), "{error}");
}
