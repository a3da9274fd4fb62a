//! Limits that are tight together: each alone is met somewhere, two at once may wait for each other.

use crate::story::{BLOCK, CHUNK, Story};
use bimetal_engine::action::RequestKind;
use bimetal_engine::options::Tuning;
use bimetal_torture::arena::ArenaMemory;
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
