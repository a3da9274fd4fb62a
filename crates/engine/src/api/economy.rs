//! The economic constants of placement and the mover: each weighs one thing against another, and another value would serve some
//! clients better and others worse. None guards data; those that do, and those that keep calls short or memory bounded,
//! stand beside their use. Why each has its value is in docs/EXPERIMENTS.md.

use crate::api::setting::{Setting, Unit};
use bimetal_units::Nanos;
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! economy {
    ($($(#[doc = $about:literal])+ $name:ident: $kind:ident = $default:expr, $unit:expr, $range:expr;)*) => {
        /// The economic constants of placement and the mover.
        #[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
        pub struct Economy { $($(#[doc = $about])+ pub $name: $kind),* }

        impl Default for Economy {
            fn default() -> Self {
                Economy { $($name: $default),* }
            }
        }

        impl Economy {
            pub(crate) const SETTINGS: &'static [Setting] = &[$(Setting {
                name: stringify!($name),
                unit: $unit,
                range: $range,
                about: &[$($about),+],
                get: |tuning| u64::from(tuning.economy.$name),
                set: |tuning, value| tuning.economy.$name = value as $kind,
            }),*];
        }
    };
}

const SECOND: u64 = Nanos::SECOND;
const HOUR: u64 = 3600 * SECOND;

economy! {
    /// Touch intervals without a touch after which a chunk's heat is halved.
    /// More: what was hot long ago stays up; fewer: placement follows what changes.
    heat_half_life_touches: u32 = 3600, Unit::Count("touch intervals"), 1..=65_535;
    /// Hot chunks of a region of 64 that make it rise while clients wait for the zone.
    /// Fewer: more rises, and less is merged meanwhile.
    dense_chunks: u32 = 16, Unit::Count("chunks"), 1..=64;
    /// Neighbouring fast slots that go down together.
    /// More: longer runs for the slow device, and more that is warm goes with them.
    cold_run_slots: u32 = 16, Unit::Count("slots"), 1..=1024;
    /// Runs of fast slots looked at to find the coldest.
    /// More: what goes down is colder, and finding it takes longer.
    cold_sample_runs: u32 = 64, Unit::Count("runs"), 1..=4096;
    /// Of the fast slots, what is kept free for what rises and what is written first.
    /// More of it: first writes and moves find a slot; fewer homes are fast.
    fast_free_share: u32 = 64, Unit::OnePartIn, 2..=65_536;
    /// Fast slots kept free at most.
    fast_free_most: u32 = 16 << 10, Unit::Count("slots"), 1..=1 << 20;
    /// What takes another's place saves more than that did by this part at least.
    /// More of it: what is hotter by a little stays where it is; less of it: two that are about as hot change places.
    edge_share: u64 = 4, Unit::OnePartIn, 1..=1024;
    /// Of the slow slots, what is to be free when the volume is quiet, so that the zone can grow.
    /// More of it: longer bursts; fewer slots for copies.
    slow_free_share: u32 = 100, Unit::OnePartIn, 4..=65_536;

    /// Reads that a mean of latencies remembers.
    /// More: steadier; fewer: it follows the load.
    latency_memory: u64 = 64, Unit::Count("reads"), 1..=65_536;
    /// Chunks moved, after which what that took counts half.
    move_cost_memory: u64 = 1024, Unit::Count("chunks"), 16..=1 << 20;
    /// Reads or moves from which on something is concluded.
    /// More: surer; meanwhile nothing is held back for its cost.
    least_known: u64 = 16, Unit::Count("reads or chunks"), 1..=1024;
    /// Of what a move takes the slow device, what it costs where nobody waits for that.
    /// More of it: fewer moves in quiet times.
    idle_cost_share: u64 = 8, Unit::OnePartIn, 1..=1024;
    /// What a move up has to save at first, in 64ths of what it costs; then it follows how moves are repaid.
    /// More: fewer moves, and those surer.
    caution_first: u32 = 192, Unit::Count("64ths"), 1..=65_536;
    /// The same at least.
    caution_least: u32 = 64, Unit::Count("64ths"), 1..=65_536;
    /// The same at most.
    caution_most: u32 = 512, Unit::Count("64ths"), 1..=65_536;
    /// Chunks that rose and were judged, after which caution is set anew.
    /// More: it follows more slowly, and surer.
    caution_judged: u32 = 64, Unit::Count("chunks"), 8..=65_536;

    /// Of the fast slots, what copies have use for at least while the slow tier has room.
    /// More of it: more copies; fewer homes are fast.
    copies_least_share: u32 = 8, Unit::OnePartIn, 1..=1024;
    /// Of the fast slots, what is to be without a home when the volume is quiet, as far as nobody touches what is at home there:
    /// it stays as a copy.
    /// More of it: whatever is read or written next finds a slot; what is written in parts then is merged.
    copies_quiet_share: u32 = 2, Unit::OnePartIn, 1..=1 << 20;
    /// Of the fast slots, what is left to homes however well copies do.
    copies_others_share: u32 = 8, Unit::OnePartIn, 2..=1024;
    /// Of the fast slots, what copies have to have use for beside the least share before they have proved worth it; they have
    /// until they have use for less than half of that.
    /// More of it: the zone and homes keep their place until that is surer.
    copies_proved_share: u64 = 64, Unit::OnePartIn, 1..=8192;
    /// What copies have use for grows by so many 8,192ths with each that was read again; one that was not takes one away.
    copies_growth: u64 = 4, Unit::Count("8,192ths"), 0..=8192;
    /// The same for what was asked for soon after its copy gave way.
    copies_missed_growth: u64 = 12, Unit::Count("8,192ths"), 0..=8192;
    /// Of the copies, those that have to be read again, or only a sample is copied.
    /// More of it: the fast device wears less; what pays late is missed.
    copies_repaid_share: u32 = 8, Unit::OnePartIn, 1..=1024;
    /// Of the reads, those that are copied all the same, to find out when that changes.
    copies_sample_share: u32 = 16, Unit::OnePartIn, 1..=65_536;
    /// Of the chunks that were read as a whole, what has to save a read for the next to be.
    /// More of it: less is written to the fast device; neighbours are read from the slow one.
    copies_saved_share: u32 = 4, Unit::OnePartIn, 1..=1024;
    /// Copies that gave way, or chunks read as a whole, after which what came of them counts half; a quarter of that says something.
    copies_memory: u32 = 1024, Unit::Count("copies"), 4..=1 << 20;
    /// What streams had to leave without a copy counts for so long, and up to twice.
    /// Longer: room is made for what is read round and round in longer turns.
    copies_asked_ns: u64 = 60 * SECOND, Unit::Nanoseconds, SECOND..=24 * HOUR;
    /// A copy that gave way to another says for so long that copies want more slots.
    /// Longer: homes that are only read give way sooner.
    copies_pressed_ns: u64 = SECOND, Unit::Nanoseconds, 0..=HOUR;
    /// Of the fast slots, what is left without a copy, so that a first write or what rises need not wait for readers of one.
    copies_spare_share: u32 = 256, Unit::OnePartIn, 2..=65_536;
    /// Streams longer than this are copied only where they have been before.
    /// Longer: films and backups push out more; shorter: files are copied late.
    copies_stream_bytes: u64 = 1 << 20, Unit::Bytes, 0..=1 << 40;
    /// Of the copies, those that are new and not read again yet, at first; then it follows what was missed.
    /// More of it: new ones have longer to be read again.
    copies_new_first_share: u64 = 8, Unit::OnePartIn, 1..=65_536;
    /// The same at least.
    copies_new_least_share: u64 = 16, Unit::OnePartIn, 1..=65_536;
    /// The same at most.
    copies_new_most_share: u64 = 2, Unit::OnePartIn, 1..=65_536;
    /// By so many 65,536ths of the copies does a missed one change that, more where few leave that queue.
    copies_new_step: u64 = 4, Unit::Count("65,536ths"), 0..=65_536;
    /// More by so many times at most.
    copies_new_most_steps: u64 = 64, Unit::Count("times"), 1..=65_536;
    /// Copies that left a queue, after which how many did counts half.
    copies_new_memory: u64 = 1 << 16, Unit::Count("copies"), 2..=1 << 32;
    /// Of the zone, segments that are not lent to copies, beside `kept_from_copies`.
    /// More of it: bursts find room at once; fewer copies.
    lent_kept_share: u32 = 16, Unit::OnePartIn, 1..=1024;
    /// Of the slow slots, those that are left without a shadow, so that streams and what goes down find neighbours.
    /// More of it: longer runs; more that goes down has to be copied.
    shadow_spare_share: u32 = 16, Unit::OnePartIn, 1..=65_536;
    /// Shadows that give way for each slow slot that is taken where fewer are left.
    shadows_giving_way: u32 = 4, Unit::Count("shadows"), 1..=64;

    /// Of the zone, what is emptied in one plan where that is soon done.
    /// More of it: blocks lie closer to each other; the first room comes later.
    zone_part_share: u32 = 4, Unit::OnePartIn, 2..=64;
    /// Such parts that are emptied at once while clients wait.
    zone_most_parts: u64 = 2, Unit::Count("parts"), 1..=16;
    /// Of the zone, what is emptied in one plan where that takes longer; as much is kept free meanwhile.
    zone_large_part_share: u32 = 3, Unit::OnePartIn, 2..=64;
    /// What is emptied in one plan at most.
    zone_most_part_bytes: u64 = 8 << 30, Unit::Bytes, 64 << 20..=128 << 30;
    /// Segments kept free beside the reserve and that part.
    /// More: writes slow down sooner, and more gently.
    zone_margin_segments: u32 = 8, Unit::Count("segments"), 0..=1024;
    /// A part that is emptied within this time need not be kept pace with.
    /// Longer: bursts use nearly all of the zone, and then may stand still for so long.
    zone_soon_ns: u64 = 1500 * Nanos::MS, Unit::Nanoseconds, 0..=60 * SECOND;
    /// Segments that are kept free even then.
    zone_least_kept: u32 = 2, Unit::Count("segments"), 1..=64;
    /// What merging frees in this time is lent to clients, which go on at its mean pace within it.
    zone_paced_ns: u64 = 16 * SECOND, Unit::Nanoseconds, 0..=HOUR;
    /// Of what is kept free, what is lent so at most.
    zone_paced_share: u32 = 4, Unit::OnePartIn, 1..=64;
    /// Clients that are paced get their next lot after this time at the latest.
    zone_lot_ns: u64 = 100 * Nanos::MS, Unit::Nanoseconds, Nanos::MS..=10 * SECOND;
    /// Of the zone, in percent, what is in use when it is emptied though clients are busy.
    /// More: longer bursts, and more that is overwritten before it is merged; less room for what comes then.
    zone_merged_from_percent: u32 = 50, Unit::Count("percent"), 5..=90;
    /// Chunks merged in one batch at most.
    /// More: more for the disk to put in order; who waits for them waits longer.
    merge_batch_chunks: u32 = 64, Unit::Count("chunks"), 1..=1024;
    /// Of these, and of their commands in flight, where clients read the slow device and nobody waits for room.
    /// More: the zone is empty sooner; who reads waits for more.
    merge_beside_reads: u32 = 16, Unit::Count("chunks"), 1..=1024;
    /// Beside a chunk that is merged, others with homes so near are merged as well.
    merge_neighbourhood_bytes: u32 = 128 << 10, Unit::Bytes, 0..=64 << 20;
    /// Chunks merged from one end of the slow device before it is the other's turn.
    merge_turn_chunks: u32 = 512, Unit::Count("chunks"), 1..=1 << 20;
    /// Stretches of the slow device, of 1,024, after which a checkpoint frees what the first has held up.
    merge_checkpoint_stretches: u32 = 3, Unit::Count("stretches"), 1..=1024;
    /// Free segments that stay at hand beside the reserve while one is discarded.
    trim_at_hand: u32 = 1, Unit::Count("segments"), 0..=1024;
    /// Of the zone, what has to be unused for whole chunks that belong to no stream to land.
    /// More of it: more of them go to fresh slots at once; neighbours lie apart then.
    wholes_unused_share: u32 = 2, Unit::OnePartIn, 1..=1024;
    /// The same where clients read neighbours on the slow tier.
    wholes_unused_share_read: u32 = 16, Unit::OnePartIn, 1..=1024;
    /// Reads of neighbours and writes of whole chunks after which they count half.
    neighbours_memory: u32 = 1024, Unit::Count("reads and writes"), 2..=1 << 20;
    /// Fewer writes than this from flush to flush are few: small first writes land then.
    /// More: fewer flushes of two devices, more blocks that are written twice.
    frequent_writes: u32 = 16, Unit::Count("writes"), 0..=1 << 20;
    /// Of what may be unflushed on the slow device, what a commit does not wait for.
    /// More of it: all wait while all of it is flushed; less: the device is flushed more often.
    commits_ahead: u64 = 4, Unit::OnePartIn, 1..=1024;
    /// Slots of the slow tier that a commit has to make free for a whole chunk to wait for one, not to land.
    slots_awaited: u32 = 16, Unit::Count("slots"), 0..=1 << 20;
    /// A sequence of requests is a stream from here on.
    /// Longer: more of a file lands, and counts as hot; shorter: what is written in pieces goes to the slow device.
    stream_bytes: u64 = 1 << 20, Unit::Bytes, 4096..=1 << 40;
    /// Requests of a stream of at least this size are joined where they share a chunk, so that it goes to a fresh slot as a whole.
    /// Smaller: less is merged; the disk is busy sooner.
    joined_bytes: u64 = 128 << 10, Unit::Bytes, 512..=1 << 40;

    /// What is pushed down at a time for the zone to grow.
    /// More: seeks and flushes cost less; who asks meanwhile waits longer.
    push_run_bytes: u32 = 16 << 20, Unit::Bytes, 1 << 20..=1 << 30;
    /// Runs looked at to find a cold one.
    push_sample_runs: u32 = 16, Unit::Count("runs"), 1..=1024;
    /// Neighbouring runs that are pushed down one after the other.
    /// More: the flash below erases as a whole; more of what belongs together is slow.
    push_runs_in_a_row: u32 = 8, Unit::Count("runs"), 1..=1024;
    /// `push_worth` times this is worth nearly all of the fast tier.
    push_worth_most: u32 = 3, Unit::Count("times"), 1..=1000;
    /// Of what nothing is in, what one burst puts on call.
    /// More of it: a longer burst, and less for the next.
    on_call_share: u32 = 8, Unit::OnePartIn, 1..=1024;
    /// Chunks of the slow device looked at to learn how hot it is.
    slow_sample_chunks: u32 = 64, Unit::Count("chunks"), 1..=65_536;
    /// What was borrowed is kept for so long after the zone ran short, while clients write.
    /// Longer: the next burst finds it; fewer homes and copies are fast.
    borrowed_kept_ns: u64 = HOUR, Unit::Nanoseconds, 0..=168 * HOUR;
    /// It is given back when nobody has written for so long.
    borrowed_unwritten_ns: u64 = 60 * SECOND, Unit::Nanoseconds, SECOND..=24 * HOUR;
    /// The zone grows only so long after something has been written.
    /// Longer: longer bursts; who reads after one waits for what is pushed down.
    grows_after_write_ns: u64 = 5 * SECOND, Unit::Nanoseconds, 0..=HOUR;
    /// Time spent merging or pushing down, after which what it brought counts half.
    cost_memory_ns: u64 = 4 * SECOND, Unit::Nanoseconds, Nanos::MS..=HOUR;

    /// Chunks that a busy volume merges without hurry, or places beside a stream, in one batch.
    /// More: fewer flushes; who reads meanwhile waits for more.
    busy_batch_chunks: u32 = 1, Unit::Count("chunks"), 1..=1024;
    /// Chunks that a busy volume places in one batch at most, where clients wait for each other on the slow device anyway.
    busy_batch_most_chunks: u32 = 32, Unit::Count("chunks"), 1..=1024;
    /// Chunks that an idle volume places in one batch, and one that makes room for what streams read again.
    idle_batch_chunks: u32 = 128, Unit::Count("chunks"), 1..=4096;
    /// Chunks of the first batch of an idle volume; each further one has twice as many.
    /// More: quiet times are used better; who asks after a short pause waits.
    idle_batch_first_chunks: u32 = 4, Unit::Count("chunks"), 1..=4096;
    /// Of the slow device's work, what placing chunks may have while the zone runs short.
    short_share: u32 = 2, Unit::OnePartIn, 1..=1000;
    /// Pause when there is nothing to move.
    nothing_to_place_ns: u64 = SECOND, Unit::Nanoseconds, Nanos::MS..=HOUR;
    /// Pause after no dense region was found, while the zone is short.
    nothing_dense_ns: u64 = 10 * Nanos::MS, Unit::Nanoseconds, Nanos::MS..=HOUR;
    /// A queue of clients on the slow device, or a stream, of which nothing was seen for so long is over.
    in_use_ns: u64 = SECOND, Unit::Nanoseconds, Nanos::MS..=HOUR;

    /// Of a day's wear budget, what has to be left for anything to be copied.
    /// More of it: more is left for what rises.
    wear_copies_share: u64 = 8, Unit::OnePartIn, 1..=65_536;
    /// Of a day's wear budget, what has to be left for anything to rise: chunks rise in runs.
    wear_run_share: u64 = 1024, Unit::OnePartIn, 1..=1 << 20;
}

/// Says what differs from the default: all of it is long, and mostly nothing does.
impl fmt::Debug for Economy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tuning = crate::api::options::Tuning { economy: *self, ..Default::default() };
        let changed = Economy::SETTINGS.iter().filter(|it| it.get(&tuning) != it.default());
        f.debug_map().entries(changed.map(|it| (it.name, it.get(&tuning)))).finish()
    }
}
