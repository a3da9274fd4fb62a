//! Limits that are tight together: each alone is met somewhere, two at once may wait for each other.

use crate::damage::image;
use crate::story::{BLOCK, CHUNK, Story, VOLUME};
use bimetal_engine::action::RequestKind;
use bimetal_engine::format::log::GroupHeader;
use bimetal_engine::options::{OpenError, Tuning};
use bimetal_torture::arena::ArenaMemory;
use bimetal_torture::disk::Disk;
use bimetal_torture::world::Death;
use bimetal_torture::{draw, run_plan};

/// Runs a seed's plan with other limits; what is wrong, if anything.
fn with_limits(seed: u64, limit: impl FnOnce(&mut Tuning)) -> Option<String> {
    let mut plan = draw::plan(seed);
    limit(&mut plan.tuning);
    run_plan(plan, &ArenaMemory::default(), false).violation
}

/// Checkpoints failed, and so did appends: each that failed took a segment of the zone, until none was free. The jobs of the
/// last one were to be appended again, behind them the fence. The commit among them was held for want of room, though it had
/// been admitted before; the fence stood behind it, the checkpoint waited for the fence, and the room for the checkpoint.
#[test]
fn what_was_appended_once_is_not_held_for_room_when_it_is_appended_again() {
    assert_eq!(with_limits(4_000_371, |_| {}), None);
}

/// A batch that was to empty the zone found every chunk held by what was written and not yet recorded; so commits were let
/// pass, for it would not get on otherwise. Then its reads failed for a while. Streams, of which one chunk at a time may be
/// unrecorded, committed on and on meanwhile: what had let the first one pass was still said. When the batch got its data at
/// last, the log had no room for its record, and nothing that could have made some: nobody was answered any more.
#[test]
fn commits_that_were_let_pass_once_leave_room_for_the_batch_that_frees_the_zone() {
    let violation = with_limits(700_598, |tuning| {
        tuning.recent_checksums = 512;
        tuning.slow_unflushed_bytes = 64 << 10;
    });
    assert_eq!(violation, None);
}

/// The zone was as full as it may be, and its oldest segment held a chunk whose home could not be written for a while. Batches
/// went on to chunks that lay further up, one at a time, and each took a block of the log for its record; none of them freed
/// anything, for nothing behind the oldest segment becomes free. When the last segment was full of such records, the batch
/// that had written that home at last found no room for its own.
#[test]
fn records_that_free_nothing_leave_room_for_the_one_that_does() {
    assert_eq!(with_limits(5_032_307, |_| {}), None);
}

/// All that was left in a part of the zone were remnants of lost blocks: the sectors that had been written of blocks whose rest
/// had rotted. They hold the zone, were said again at its head to make room, and held that instead, again and again; writes
/// waited for room for ever. They fail now when that has brought nothing for 20 s.
#[test]
fn a_zone_full_of_what_is_left_of_lost_blocks_is_an_error_in_the_end() {
    assert_eq!(with_limits(5_010_664, |_| {}), None);
}

/// The log went on in its next segment while a checkpoint made another one free: by what was counted nothing had changed, so
/// nobody was called once more, and the write that was to begin that segment waited for the next event of any kind.
#[test]
fn a_segment_that_is_begun_while_another_becomes_free_is_progress() {
    assert_eq!(with_limits(9_009_620, |_| {}), None);
}

/// The landing zone held lost blocks only, and the log had room for little else but saying those again at its head. First writes
/// waited for room for the records that would show them, and not in the log's queue, where it is seen that somebody waits: so
/// nothing was said again, and nothing became free.
#[test]
fn first_writes_that_find_no_room_for_their_records_are_seen_to_wait_for_it() {
    assert_eq!(with_limits(40_003_892, |_| {}), None);
}

/// The fast device failed, checkpoints could not read a page of checksums, and only the reserve was left of the zone. By what
/// merging had freed before, clients that waited were due some of what it would free next, in 10 us; they were given
/// nothing, for they may not use the reserve, and were due it again 10 us later: a processor was busy with that alone.
#[test]
fn clients_that_nothing_can_be_given_to_are_not_due_any() {
    assert_eq!(with_limits(380_003_269, |_| {}), None);
}

/// Many parts of blocks were zeroed at once, and the rest of each block had to be read. Each request had taken memory for the
/// block that it was to write; nothing was left to read the rest to, and as all of them held what the others waited for,
/// nobody was answered any more.
#[test]
fn requests_that_zero_parts_of_blocks_do_not_wait_for_the_memory_of_each_other() {
    let mut story = Story::begin(40, 40);
    story.stop();
    story.memory_sizes.background = 2 * CHUNK as u32 + 5 * BLOCK as u32;
    story.open().expect("it opens");
    story.write(0, 64 * BLOCK, 7);
    story.flush();
    let asked: Vec<_> = (0..64)
        .map(|block| story.ask(RequestKind::WriteZeroes { fua: false }, block * BLOCK + 100, 200, 0))
        .collect();
    for (block, asked) in asked.into_iter().enumerate() {
        assert!(story.answer(asked).is_ok(), "block {block}");
    }
    for block in 0..64 {
        let read = story.read(block * BLOCK, BLOCK).expect("it is readable");
        let zeros = read.iter().enumerate().filter(|(_, byte)| **byte == 0).map(|(at, _)| at);
        assert!(zeros.eq(100..300), "block {block}");
    }
}

/// The zone had borrowed areas, which were free when the machine died, and all of its own were in the log. Opened with less
/// memory it may not borrow any: the log had no segment to go on in, and in its last one no room for the record of the batch that
/// was to free one. Nobody who wrote was answered, by this opening or by any other with as little.
#[test]
fn a_reserve_that_was_borrowed_is_missed_by_an_opening_with_less_memory() {
    assert_eq!(with_limits(190_008_703, |_| {}), None);
}

/// Writes of a block: the first few land, ...
const LANDED: u64 = 10;
/// ... the others have home records only, until the zone has borrowed by far.
const WRITES: u64 = 150;

/// Where a write goes, and what it writes.
fn nth(n: u64) -> (u64, u8) {
    let block = if n < LANDED { n } else { CHUNK / BLOCK + n - LANDED };
    (block * BLOCK, n as u8 | 1)
}

/// A volume whose zone, of eight areas, is filled write by write, each in an opening of its own in which nothing leaves it; after
/// each the machine dies, and this is called with the devices as they are then, and how many writes there were.
fn fill_with_crashes(mut look: impl FnMut(Vec<Disk>, &Tuning, u64)) {
    let mut s = Story::begin_with_zone(56, 64, 16);
    for n in 0..WRITES {
        s.die(Death::Kill);
        s.tuning.small_write_bytes = if n < LANDED { CHUNK as u32 } else { 0 };
        s.open().expect("it opens");
        s.world.rates.reads = 1;
        let (at, fill) = nth(n);
        let asked = s.ask(RequestKind::Write { fua: true }, at, BLOCK, fill);
        s.answer(asked).expect("the write is recorded");
        s.die(Death::Kill);
        look(s.world.disks.clone(), &s.tuning, n + 1);
    }
}

/// The volume on these devices, opened with the least memory; why not, where that is not enough.
fn with_least_memory(disks: Vec<Disk>, tuning: &Tuning) -> Result<Story, String> {
    let mut less = Story::with(disks);
    less.tuning = Tuning { landing_ram_bytes: 0, ..tuning.clone() };
    match less.open() {
        Err(OpenError::Memory { what }) => Err(what),
        opened => {
            opened.expect("it opens");
            Ok(less)
        }
    }
}

/// Everything reads back, and writes are answered.
fn is_alive(s: &mut Story, written: u64) {
    for (at, fill) in (0..written).map(nth) {
        assert_eq!(s.read(at, BLOCK), Ok(vec![fill; BLOCK as usize]), "byte {at}");
    }
    s.write(nth(WRITES).0, BLOCK, 2);
    s.flush();
}

/// The same at each moment at which the zone may be found: whoever gives such a volume less memory is told that it needs more,
/// and with more it is there; or it serves.
#[test]
fn a_volume_with_less_memory_is_refused_or_serves() {
    let (mut served, mut refused) = (0, Vec::new());
    fill_with_crashes(|disks, tuning, written| match with_least_memory(disks.clone(), tuning) {
        Ok(mut less) => {
            is_alive(&mut less, written);
            served += 1;
        }
        Err(what) => {
            let mut enough = Story::with(disks);
            enough.open().expect("it was not harmed");
            is_alive(&mut enough, written);
            refused.push(what);
        }
    });
    let for_room = refused.iter().filter(|what| what.contains("without room in the log to empty it")).count();
    assert!(served > 0 && for_room > 0, "{served} served; {refused:?}");
}

/// The machine dies again and again just after the volume was opened. Each opening said in the log that what it had found was
/// durable, and took a block for that; of the last segment, too, until there was none left for what frees the zone. They still
/// say it: where the last group rots, nobody takes it for one that a crash has torn.
#[test]
fn openings_do_not_use_up_the_last_blocks_of_the_log() {
    let (mut served, mut kept) = (0, 0);
    fill_with_crashes(|disks, tuning, written| {
        let Ok(mut less) = with_least_memory(disks, tuning) else { return };
        let mut ends = [0; 2];
        for opening in 0..40 {
            less.die(Death::Kill);
            ends[opening % 2] = less.checked().expect("it can be checked").log_end;
            less.open().unwrap_or_else(|error| panic!("opening {opening} after {written} writes: {error}"));
        }
        less.die(Death::Kill);
        if ends[0] == ends[1] && has_claim_of(&less, ends[0]) {
            let mut rotten = Story::with(less.world.disks.clone());
            rot_group(&mut rotten, ends[0]);
            let error = rotten.open().expect_err("the last group is missing").to_string();
            assert!(error.contains("was durable and is not valid"), "{error}");
            kept += 1;
        }
        less.open().expect("it opens");
        is_alive(&mut less, written);
        served += 1;
    });
    assert!(served > kept && kept > 0, "{served} served, of which {kept} kept their room");
}

/// The blocks of the zone where a header of a group with this number is, in their order.
fn groups_of(s: &Story, seq: u64) -> Vec<(u64, GroupHeader)> {
    let read = |page: u64| image::get(&s.world.disks[0], page, 4);
    let header = |page| GroupHeader::decode(&read(page), &VOLUME).map(|(header, ..)| (page, header));
    let zone = s.layout().zone();
    (zone.start..zone.end - 4).filter_map(header).filter(|(_, header)| header.seq.0 == seq).collect()
}

/// Whether a group that is no part of the log says that this one is durable.
fn has_claim_of(s: &Story, seq: u64) -> bool {
    groups_of(s, seq).iter().any(|(_, header)| header.durable.0 == seq)
}

/// A bit flips in the header of a group.
fn rot_group(s: &mut Story, seq: u64) {
    let (page, _) =
        *groups_of(s, seq).iter().find(|(_, header)| header.durable.0 < seq).expect("it is there");
    let mut bytes = image::get(&s.world.disks[0], page, 1);
    bytes[7] ^= 4;
    image::put(&mut s.world.disks[0], page, &bytes);
}

/// The same in other volumes: every other life has the least memory for the zone, and openings crash.
#[test]
fn lives_with_less_memory_do_not_wait_for_what_those_with_more_have_used() {
    for seed in 42_000..42_040 {
        let mut plan = draw::plan(seed);
        plan.tuning.landing_ram_bytes = u64::MAX;
        let whole = plan.limits();
        for (i, life) in plan.lives.iter_mut().enumerate() {
            let limits = life.limits.get_or_insert_with(|| Box::new(whole.clone()));
            limits.tuning.landing_ram_bytes = if i % 2 == 0 { u64::MAX } else { 0 };
        }
        let outcome = run_plan(plan, &ArenaMemory::default(), false);
        assert_eq!(outcome.violation, None, "seed {seed}");
    }
}

/// The same in other volumes, with other pairs of limits.
#[test]
fn pairs_of_tight_limits_do_not_wait_for_each_other() {
    for seed in 41_000..41_060 {
        let violation = with_limits(seed, |tuning| {
            let pairs: [fn(&mut Tuning); 6] = [
                |t| (t.recent_checksums, t.slow_unflushed_bytes) = (0, 64 << 10),
                |t| (t.pending_chunks, t.batch_chunks) = (1, 1),
                |t| (t.recent_checksums, t.pending_chunks) = (0, 4096),
                |t| (t.slow_unflushed_bytes, t.groups_in_flight) = (64 << 20, 1),
                |t| (t.batch_chunks, t.recent_checksums) = (64, 0),
                |t| (t.pending_chunks, t.commit_interval_ns) = (1, 60_000_000_000),
            ];
            pairs[seed as usize % pairs.len()](tuning);
        });
        assert_eq!(violation, None, "seed {seed}");
    }
}
