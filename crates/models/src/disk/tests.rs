//! A small drive under the eyes of a clock.

use super::Disk;
use super::params::{DiskParams, QueuePolicy, ReadAhead, Spares};
use crate::device::{Command, Done, Kind, Model};
use crate::spec::{Spec, SpecError, named, names};
use bimetal_units::Nanos;
use bimetal_units::rng::Rng;

/// Ten milliseconds a revolution; two zones with 20 and 10 sectors on a track, three heads, no cache, no buffer.
const SMALL: &str = r#"
kind = "hard-disk"
name = "small"
sector_bytes = 512
surfaces = 3
rotation_period_ns = 10_000_000
arm = { seek_ns = [[1, 1_000_000], [10, 2_000_000]], head_switch_ns = 500_000 }
queue = { depth = 8, policy = "fifo", window = 8 }
write_cache = { entries = 0, entry_sectors = 64 }

[overheads]
bus_ns_per_sector = 10_000
read_hit_ns = { after_read = 100_000, after_write = 100_000 }
read_miss_ns = { after_read = 200_000, after_write = 200_000 }
cached_write_ns = { after_read = 150_000, after_write = 150_000 }
write_ns = { after_read = 200_000, after_write = 200_000 }

[buffer]
segments = 0
segment_sectors = 64
read_ahead = "none"
read_ahead_sectors = 0

[[zones]]
first_cylinder = 0
cylinders = 10
sectors_per_track = 20

[[zones]]
first_cylinder = 10
cylinders = 10
sectors_per_track = 10
"#;

fn parse(text: &str) -> Result<DiskParams, SpecError> {
    let Spec::HardDisk(params) = Spec::parse(text)? else { panic!("not a hard disk") };
    Ok(params)
}

pub(crate) fn small() -> DiskParams {
    parse(SMALL).expect("good parameters")
}

/// A drive that comes with the crate.
fn derived(name: &str) -> Disk {
    let Ok(Spec::HardDisk(params)) = named(name) else { panic!("{name} is no hard disk") };
    Disk::new(&params).expect("a disk")
}

fn sector(kind: Kind, first: u64, count: u64) -> Command {
    Command { kind, offset: first * 512, len: count * 512 }
}

const READ: Kind = Kind::Read;
const WRITE: Kind = Kind::Write { fua: false };
const FUA: Kind = Kind::Write { fua: true };

/// Runs until everything submitted is complete.
fn finish(disk: &mut Disk) -> Vec<Done> {
    let mut done = Vec::new();
    while let Some(at) = disk.deadline() {
        disk.advance(at, &mut done);
    }
    done
}

/// When a single command, submitted at `at`, is complete.
fn one(disk: &mut Disk, at: u64, command: Command) -> u64 {
    disk.advance(Nanos(at), &mut Vec::new());
    disk.submit(Nanos(at), 7, command);
    let done = finish(disk);
    assert_eq!((done.len(), done[0].tag), (1, 7));
    done[0].at.0
}

#[test]
fn a_read_waits_for_the_angle_that_the_clock_gives() {
    let mut disk = Disk::new(&small()).expect("a disk");
    // Sector 4 begins to pass at 2 ms and has passed at 2.5 ms; the bus takes 10 us.
    assert_eq!(one(&mut disk, 0, sector(READ, 4, 1)), 2_510_000);
    // Sector 4 again: a revolution later.
    assert_eq!(one(&mut disk, 3_000_000, sector(READ, 4, 1)), 12_510_000);
    // The overhead makes it miss the sector that begins to pass 0.1 ms later.
    assert_eq!(one(&mut disk, 21_900_000, sector(READ, 4, 1)), 32_510_000);
}

#[test]
fn the_arm_and_the_heads_take_their_time() {
    let mut disk = Disk::new(&small()).expect("a disk");
    // 0.2 ms overhead, 0.5 ms to the next head: sector 2 of it begins at 1 ms.
    assert_eq!(one(&mut disk, 0, sector(READ, 22, 1)), 1_510_000);
    // One cylinder: 0.2 + 1 ms; the switch back to head 0 is done meanwhile.
    assert_eq!(one(&mut disk, 10_000_000, sector(READ, 63, 1)), 12_010_000);
    // The inner zone has sectors twice as long.
    assert_eq!(one(&mut disk, 20_000_000, sector(READ, 600 + 4, 1)), 25_010_000);
}

#[test]
fn a_write_settles_and_a_range_over_tracks_switches() {
    let mut params = small();
    params.arm.write_settle_ns = 400_000;
    params.zones[0].track_skew_sectors = 2.0;
    let mut disk = Disk::new(&params).expect("a disk");
    // From sector 18 to the end of the track at 10 ms, 0.9 ms to the next head, whose sector 0 is at 11 ms.
    assert_eq!(one(&mut disk, 0, sector(FUA, 18, 4)), 12_000_000);
}

#[test]
fn a_zero_latency_read_of_a_track_takes_one_revolution() {
    let mut params = small();
    params.overheads.read_watermark_permille = 1000;
    let whole = sector(READ, 0, 20);
    let ends = |params: &DiskParams| one(&mut Disk::new(params).expect("a disk"), 4_800_000, whole);
    assert_eq!(ends(&params), 20_000_000 + 200_000);
    params.buffer.zero_latency_reads = true;
    assert_eq!(ends(&params), 15_000_000 + 200_000);
}

/// With a buffer that reads ahead to the end of the segment.
fn buffered() -> DiskParams {
    let mut params = small();
    params.buffer.segments = 2;
    params.buffer.read_ahead = ReadAhead::Segment;
    params.buffer.read_ahead_sectors = 30;
    params.buffer.join_read_ahead = true;
    params
}

#[test]
fn what_was_read_ahead_comes_from_the_buffer() {
    let mut disk = Disk::new(&buffered()).expect("a disk");
    one(&mut disk, 0, sector(READ, 4, 1));
    // At 60 ms sectors 5 to 34 have been read.
    assert_eq!(one(&mut disk, 60_000_000, sector(READ, 34, 1)), 60_000_000 + 110_000);
    assert!(one(&mut disk, 70_000_000, sector(READ, 36, 1)) > 70_200_000);
}

#[test]
fn a_negative_settling_makes_writes_quicker_and_never_takes_less_than_no_time() {
    let mut params = small();
    params.arm.write_settle_ns = -400_000;
    params.zones[0].track_skew_sectors = 0.2;
    let mut disk = Disk::new(&params).expect("a disk");
    // From sector 18 to the end of the track at 10 ms, 0.1 ms to the next head, right where its sector 0 begins.
    assert_eq!(one(&mut disk, 0, sector(FUA, 18, 4)), 11_100_000);
    params.arm.write_settle_ns = -1_000_000_000;
    params.zones[0].track_skew_sectors = 0.0;
    let mut disk = Disk::new(&params).expect("a disk");
    assert_eq!(one(&mut disk, 0, sector(FUA, 18, 4)), 11_000_000);
}

#[test]
fn a_read_takes_at_least_what_it_takes_to_be_on_a_track() {
    let mut params = small();
    params.arm.least_read_seek_ns = 700_000;
    let mut disk = Disk::new(&params).expect("a disk");
    // 0.2 ms of overhead and 0.7 ms: sector 1, at 0.5 ms, has gone by.
    assert_eq!(one(&mut disk, 0, sector(READ, 1, 1)), 11_010_000);
    // A seek of 1 ms takes longer than that anyway.
    assert_eq!(one(&mut disk, 20_000_000, sector(READ, 63, 1)), 22_010_000);
}

#[test]
fn reading_ahead_in_order_only_begins_behind_the_second_read_of_a_row() {
    let mut params = buffered();
    params.buffer.read_ahead_in_order_only = true;
    let mut disk = Disk::new(&params).expect("a disk");
    let hit = |disk: &mut Disk, at: u64, first: u64| one(disk, at, sector(READ, first, 1)) - at == 110_000;
    assert!(!hit(&mut disk, 0, 0), "nothing is there yet");
    assert!(!hit(&mut disk, 30_000_000, 1), "the first was read alone");
    assert!(hit(&mut disk, 60_000_000, 2), "the second was not");
    assert!(hit(&mut disk, 90_000_000, 10), "nor is a gap one in what was read ahead");
    assert!(!hit(&mut disk, 120_000_000, 90), "elsewhere it begins anew");
    assert!(!hit(&mut disk, 150_000_000, 91), "with a read alone");
}

#[test]
fn a_write_may_drop_what_was_read() {
    for drops in [false, true] {
        let mut params = buffered();
        params.buffer.drop_read_at_write = drops;
        let mut disk = Disk::new(&params).expect("a disk");
        one(&mut disk, 0, sector(READ, 0, 1));
        one(&mut disk, 50_000_000, sector(FUA, 500, 1));
        let taken = one(&mut disk, 90_000_000, sector(READ, 3, 1)) - 90_000_000;
        assert_eq!(taken > 1_000_000, drops, "{taken}");
    }
}

#[test]
fn a_read_joins_the_reading_ahead() {
    let mut disk = Disk::new(&buffered()).expect("a disk");
    // Sector 4 has passed at 2.5 ms; without joining, the overhead would make sector 5 pass again before it is read.
    let end = one(&mut disk, 0, sector(READ, 4, 1));
    assert_eq!(one(&mut disk, end, sector(READ, 5, 1)), 3_010_000);
}

#[test]
fn the_cache_answers_at_once_and_a_flush_waits_for_the_medium() {
    let mut params = small();
    params.write_cache.entries = 2;
    params.buffer.keep_written = true;
    params.buffer.segments = 1;
    let mut disk = Disk::new(&params).expect("a disk");
    assert_eq!(one(&mut disk, 0, sector(WRITE, 10, 1)), 160_000);
    // What is in the cache can be read, before it is on the medium at 5.5 ms.
    assert_eq!(one(&mut disk, 200_000, sector(READ, 10, 1)), 310_000);
    assert_eq!(one(&mut disk, 400_000, sector(Kind::Flush, 0, 0)), 5_500_000);
    // Nothing left: it is answered at once; FUA is not.
    assert_eq!(one(&mut disk, 6_000_000, sector(Kind::Flush, 0, 0)), 6_150_000);
    assert_eq!(one(&mut disk, 10_000_000, sector(FUA, 10, 1)), 15_500_000);
}

#[test]
fn a_full_cache_makes_writers_wait() {
    let mut params = small();
    params.write_cache.entries = 1;
    let mut disk = Disk::new(&params).expect("a disk");
    disk.submit(Nanos(0), 0, sector(WRITE, 10, 1));
    disk.submit(Nanos(0), 1, sector(WRITE, 200, 1));
    let done = finish(&mut disk);
    assert_eq!(done[0], Done::ok(Nanos(160_000), 0));
    // Room when sector 10 is on the medium.
    assert_eq!(done[1], Done::ok(Nanos(5_500_000 + 160_000), 1));
}

#[test]
fn what_is_not_whole_sectors_is_read_before_it_is_written() {
    let mut params = small();
    params.sector_bytes = 4096;
    let mut disk = Disk::new(&params).expect("a disk");
    let whole = one(&mut disk, 0, Command { kind: FUA, offset: 4 * 4096, len: 4096 });
    let mut disk = Disk::new(&params).expect("a disk");
    let part = one(&mut disk, 0, Command { kind: FUA, offset: 4 * 4096 + 512, len: 512 });
    assert_eq!(part, whole + 10_000_000);
}

#[test]
fn each_policy_has_its_order() {
    let order = |policy: QueuePolicy, window: u32| {
        let mut params = small();
        params.queue.policy = policy;
        params.queue.window = window;
        let mut disk = Disk::new(&params).expect("a disk");
        // The first is under way when the others come.
        for (tag, first) in [0, 15, 7, 11].into_iter().enumerate() {
            disk.submit(Nanos(0), tag as u64, sector(READ, first, 1));
        }
        finish(&mut disk).iter().map(|done| done.tag).collect::<Vec<_>>()
    };
    assert_eq!(order(QueuePolicy::Fifo, 8), [0, 1, 2, 3]);
    assert_eq!(order(QueuePolicy::Elevator, 8), [0, 2, 3, 1]);
    assert_eq!(order(QueuePolicy::Elevator, 1), [0, 1, 2, 3]);
    assert_eq!(order(QueuePolicy::Sptf, 8), [0, 2, 3, 1]);
}

#[test]
fn shortest_positioning_time_knows_the_rotation() {
    let mut params = small();
    let order = |params: &DiskParams| {
        let mut disk = Disk::new(params).expect("a disk");
        // When sector 0 has passed, sector 1 has to be waited for less than sector 3 of the next track.
        for (tag, first) in [0, 23, 1].into_iter().enumerate() {
            disk.submit(Nanos(0), tag as u64, sector(READ, first, 1));
        }
        finish(&mut disk).iter().map(|done| done.tag).collect::<Vec<_>>()
    };
    params.queue.policy = QueuePolicy::Sptf;
    assert_eq!(order(&params), [0, 2, 1]);
    // From sector 20 on head 1 it is 0.5 ms to the head and 0.5 ms on to sector 2 of it.
    let mut params = small();
    params.queue.policy = QueuePolicy::Sptf;
    let second = |params: &DiskParams| {
        let mut disk = Disk::new(params).expect("a disk");
        for (tag, first) in [0, 22, 5].into_iter().enumerate() {
            disk.submit(Nanos(0), tag as u64, sector(READ, first, 1));
        }
        finish(&mut disk)[1].tag
    };
    assert_eq!(second(&params), 1);
    params.queue.margin_ns = 700_000;
    assert_eq!(second(&params), 2);
}

#[test]
fn more_commands_than_the_queue_holds_wait_before_it() {
    let mut disk = Disk::new(&small()).expect("a disk");
    for tag in 0..100 {
        disk.submit(Nanos(0), tag, sector(READ, tag * 7 % 800, 1));
    }
    let mut tags: Vec<u64> = finish(&mut disk).iter().map(|done| done.tag).collect();
    assert_eq!(tags.len(), 100);
    tags.sort_unstable();
    tags.dedup();
    assert_eq!(tags.len(), 100);
}

/// Parameters by chance, all within their bounds.
fn any(chance: &mut Rng) -> DiskParams {
    let mut params = small();
    let policies = [QueuePolicy::Fifo, QueuePolicy::Elevator, QueuePolicy::Sptf];
    let aheads =
        [ReadAhead::None, ReadAhead::Track, ReadAhead::Cylinder, ReadAhead::Segment, ReadAhead::NextTrack];
    params.queue.policy = policies[chance.below(3) as usize];
    params.queue.depth = 1 + chance.below(32) as u32;
    params.queue.window = 1 + chance.below(32) as u32;
    params.queue.margin_ns = chance.below(2_000_000) as u32;
    params.queue.oldest_first_after_ns = chance.below(2) * 100_000_000;
    params.buffer.segments = chance.below(4) as u32;
    params.buffer.segment_sectors = 1 + chance.below(100) as u32;
    params.buffer.read_ahead = aheads[chance.below(5) as usize];
    params.buffer.read_ahead_sectors = chance.below(100) as u32;
    let flags = chance.below(1 << 11);
    let flag = |bit: u64| flags >> bit & 1 > 0;
    params.buffer.read_ahead_over_requested = flag(0);
    params.buffer.read_ahead_after_hit = flag(1);
    params.buffer.join_read_ahead = flag(2);
    params.buffer.stop_within_sector = flag(3);
    params.buffer.keep_passing_sectors = flag(4);
    params.buffer.zero_latency_reads = flag(5);
    params.buffer.zero_latency_writes = flag(6);
    params.buffer.drop_transferred = flag(7);
    params.buffer.keep_written = flag(8);
    params.buffer.read_ahead_in_order_only = flag(9);
    params.buffer.drop_read_at_write = flag(10);
    params.arm.write_settle_ns = chance.below(2_000_000) as i32 - 1_000_000;
    params.arm.least_read_seek_ns = chance.below(2) as u32 * 700_000;
    params.write_cache.entries = chance.below(5) as u32;
    params.write_cache.entry_sectors = 1 + chance.below(40) as u32;
    params.write_cache.delay_ns = chance.below(3) * 5_000_000;
    params.sector_bytes = [512, 4096][chance.below(2) as usize];
    params
}

#[test]
fn whatever_the_parameters_each_command_ends_once_and_is_counted() {
    let mut chance = Rng::new(1, 1);
    for _ in 0..300 {
        let params = any(&mut chance);
        let mut disk = Disk::new(&params).expect("a disk");
        let size = disk.size_bytes() / 512;
        let (mut now, mut done, mut submitted) = (0, Vec::new(), Vec::new());
        let (mut reads, mut written, mut flushes) = (0, 0, 0);
        for tag in 0..200 {
            now += chance.below(3) * chance.below(20_000_000);
            disk.advance(Nanos(now), &mut done);
            let kind = [READ, READ, WRITE, WRITE, FUA, Kind::Flush, Kind::Discard][chance.below(7) as usize];
            let first = chance.below(size);
            let count = 1 + chance.below(60.min(size - first));
            disk.submit(Nanos(now), tag, sector(kind, first, count));
            submitted.push(now);
            match kind {
                Kind::Read => reads += count * 512,
                Kind::Write { .. } => written += count * 512,
                Kind::Flush | Kind::Sync => flushes += 1,
                Kind::Discard => {}
            }
        }
        done.extend(finish(&mut disk));
        assert!(done.windows(2).all(|pair| pair[0].at <= pair[1].at), "{params:?}");
        assert!(done.iter().all(|done| done.at.0 >= submitted[done.tag as usize]));
        let mut tags: Vec<u64> = done.iter().map(|done| done.tag).collect();
        tags.sort_unstable();
        assert_eq!(tags, (0..200).collect::<Vec<_>>());
        let usage = disk.usage();
        assert_eq!((usage.read_bytes, usage.written_bytes, usage.flushes), (reads, written, flushes));
        assert!(usage.busy_ns <= done.last().map_or(0, |done| done.at.0));
    }
}

#[test]
fn a_flush_ends_after_the_writes_before_it_are_on_the_medium() {
    let mut chance = Rng::new(2, 1);
    for _ in 0..100 {
        let mut params = any(&mut chance);
        params.write_cache.entries = 4;
        let mut disk = Disk::new(&params).expect("a disk");
        let size = disk.size_bytes() / 512;
        for tag in 0..3 {
            disk.submit(Nanos(0), tag, sector(WRITE, chance.below(size), 1));
        }
        let mut done = finish(&mut disk);
        let now = done.last().map_or(Nanos(0), |done| done.at);
        disk.submit(now, 3, sector(Kind::Flush, 0, 0));
        done = finish(&mut disk);
        assert!(!disk.cache.has_before(disk.cache.mark()) && done.len() == 1);
    }
}

#[test]
fn the_same_commands_give_the_same_times() {
    let times = || {
        let mut chance = Rng::new(3, 1);
        let mut disk = derived("disk-20tb");
        for tag in 0..500 {
            let kind = [READ, WRITE, FUA][chance.below(3) as usize];
            disk.submit(Nanos(tag * 1000), tag, sector(kind, chance.below(1 << 30) * 8, 8));
        }
        finish(&mut disk)
    };
    assert_eq!(times(), times());
}

#[test]
fn the_derived_drives_hold_what_they_are_called_after() {
    for name in names().filter(|name| name.starts_with("disk-")) {
        let disk = derived(name);
        assert_eq!(disk.params.name, name);
        let called: u64 =
            name.split('-').find_map(|part| part.strip_suffix("tb")?.parse().ok()).expect("a size");
        assert_eq!(disk.size_bytes() / 1_000_000_000_000, called, "{name}");
    }
}

#[test]
fn a_drive_with_spares_and_defects_can_be_resized() {
    let mut params = small();
    params.zones[0].spares = Spares::Zone;
    params.zones[0].spare_sectors = 300;
    params.zones[1].slips = vec![(5, 3), (200, 1)];
    params.zones[1].slips_to_end = true;
    let spec = Spec::HardDisk(params);
    for size in [512, 10_000, 100_000, 10_000_000, 1_000_000_000] {
        let other = spec.resized(size);
        assert_eq!(other.build(1).expect("a disk").size_bytes(), size / 512 * 512);
    }
    assert!(spec.resized(1 << 60).build(1).is_err());
}

#[test]
fn parameters_out_of_bounds_are_refused_in_one_sentence() {
    let cases = [
        ("surfaces = 3", "surfaces = 0", "surfaces is 0"),
        ("rotation_period_ns = 10_000_000", "rotation_period_ns = 0", "rotation_period_ns is 0"),
        ("sector_bytes = 512", "sector_bytes = 513", "sector_bytes is 513"),
        ("name = \"small\"", "name = \"a b\"", "name \"a b\""),
        ("depth = 8", "depth = 257", "queue depth is 257"),
        ("[[1, 1_000_000], [10, 2_000_000]]", "[]", "points in seek_ns"),
        ("[10, 2_000_000]", "[1, 2_000_000]", "distance 1"),
        ("first_cylinder = 10", "first_cylinder = 9", "zone 1: first_cylinder is 9"),
        (
            "cylinders = 10\nsectors_per_track = 20",
            "cylinders = 4_000_001\nsectors_per_track = 20",
            "zone 0: cyl",
        ),
        ("sectors_per_track = 10", "sectors_per_track = 0", "zone 1: sectors_per_track"),
        ("sectors_per_track = 10", "sectors_per_track = 10\ntrack_skew_sectors = nan", "track_skew_sectors"),
        ("sectors_per_track = 10", "sectors_per_track = 10\nslips = [[300, 1]]", "slips"),
        ("sectors_per_track = 10", "sectors_per_track = 10\nslips = [[3, 1], [3, 1]]", "sector 3"),
        (
            "sectors_per_track = 10",
            "sectors_per_track = 10\nspares = \"zone\"\nspare_sectors = 300",
            "spare_sectors",
        ),
        ("sectors_per_track = 10", "sectors_per_track = 10\ngap_sectors = 300", "no addresses"),
        ("surfaces = 3", "surfaces = 3\nsize_bytes = 1_000_000_000", "size_bytes"),
        ("surfaces = 3", "surfaces = 3\nwheels = 4", "line 6: unknown field `wheels`"),
        ("segments = 0", "segments = -1", "line"),
        ("surfaces = 3", "", "missing field `surfaces`"),
    ];
    for (good, bad, words) in cases {
        assert!(SMALL.contains(good), "{good}");
        let error = parse(&SMALL.replace(good, bad)).expect_err(bad).to_string();
        assert!(error.contains(words) && error.lines().count() == 1, "{bad:?}: {error}");
    }
}

#[test]
fn damaged_parameter_files_are_refused_or_give_a_disk_that_works() {
    let mut chance = Rng::new(4, 1);
    for _ in 0..2000 {
        let mut text = SMALL.as_bytes().to_vec();
        for _ in 0..1 + chance.below(4) {
            let at = chance.below(text.len() as u64) as usize;
            match chance.below(3) {
                0 => text.truncate(at.max(1)),
                1 => text[at] = b"0123456789.-=[]{}\"\n e"[chance.below(21) as usize],
                _ => text.insert(at, b"0123456789"[chance.below(10) as usize]),
            }
        }
        let Ok(params) = parse(&String::from_utf8_lossy(&text)) else { continue };
        let mut disk = Disk::new(&params).expect("checked parameters");
        let last = disk.size_bytes() / 512 - 1;
        for (tag, first) in [0, last, last / 2].into_iter().enumerate() {
            disk.submit(Nanos(0), tag as u64, sector([READ, WRITE, FUA][tag], first, 1));
        }
        assert_eq!(finish(&mut disk).len(), 3);
    }
}
