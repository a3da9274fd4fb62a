//! Other readings of what a description says of buffer and cache.

use crate::disk::params::{BufferParams, DiskParams, ReadAhead};

/// The most sectors that a segment, or reading ahead, is tried with.
const MOST_SECTORS: u32 = 1 << 14;
/// The most segments, or entries of the write cache, that are tried.
const MOST_SEGMENTS: u32 = 32;

/// What a drive either does or does not.
const HABITS: [fn(&mut BufferParams) -> &mut bool; 9] = [
    |buffer| &mut buffer.read_ahead_over_requested,
    |buffer| &mut buffer.read_ahead_after_hit,
    |buffer| &mut buffer.join_read_ahead,
    |buffer| &mut buffer.keep_passing_sectors,
    |buffer| &mut buffer.zero_latency_reads,
    |buffer| &mut buffer.zero_latency_writes,
    |buffer| &mut buffer.drop_transferred,
    |buffer| &mut buffer.drop_read_at_write,
    |buffer| &mut buffer.keep_written,
];

/// Parameters that differ from these in one reading each.
pub(super) fn of(params: &DiskParams) -> Vec<DiskParams> {
    let mut found = Vec::new();
    let mut add = |change: &dyn Fn(&mut DiskParams)| {
        let mut other = params.clone();
        change(&mut other);
        if other != *params && !found.contains(&other) {
            found.push(other);
        }
    };
    // How far, when, and how much fits: one without the other may change nothing.
    for kind in
        [ReadAhead::None, ReadAhead::Track, ReadAhead::Cylinder, ReadAhead::Segment, ReadAhead::NextTrack]
    {
        for in_order_only in [false, true] {
            for (times, parts) in [(1, 1), (1, 4), (1, 2), (2, 1), (4, 1)] {
                add(&|other| {
                    let buffer = &mut other.buffer;
                    (buffer.read_ahead, buffer.read_ahead_in_order_only) = (kind, in_order_only);
                    buffer.segment_sectors = scaled(buffer.segment_sectors, MOST_SECTORS, times, parts);
                    buffer.read_ahead_sectors = scaled(buffer.read_ahead_sectors, MOST_SECTORS, times, parts);
                });
            }
        }
    }
    for habit in HABITS {
        add(&|other| {
            let habit = habit(&mut other.buffer);
            *habit = !*habit;
        });
    }
    for (times, parts) in [(1, 4), (1, 2), (2, 1), (4, 1)] {
        let sectors = |value: u32| scaled(value, MOST_SECTORS, times, parts);
        add(&|other| other.buffer.read_ahead_sectors = sectors(other.buffer.read_ahead_sectors));
        add(&|other| other.write_cache.entry_sectors = sectors(other.write_cache.entry_sectors));
        add(&|other| other.buffer.segments = scaled(other.buffer.segments, MOST_SEGMENTS, times, parts));
    }
    for entries in [0, 1, 2, 4, 8] {
        add(&|other| other.write_cache.entries = entries);
    }
    found
}

/// So many times the value, from 1 to `most`; the value where it is more already.
fn scaled(value: u32, most: u32, times: u32, parts: u32) -> u32 {
    if value > most { value } else { (value * times / parts).clamp(1, most) }
}
