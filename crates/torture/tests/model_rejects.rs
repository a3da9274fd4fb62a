//! The checker bites: what the model accepts and, above all, what it rejects.

use bimetal_torture::model::{Mismatch, Model, SECTOR, WriteHandle, pattern};

const SALT: u64 = 42;
const S: u64 = SECTOR as u64;

fn model() -> Model {
    Model::new(1 << 20, SALT)
}

fn data(sector: u64, write: u32) -> Vec<u8> {
    let mut bytes = [0; SECTOR];
    pattern(SALT, sector, write, &mut bytes);
    bytes.to_vec()
}

fn write(m: &mut Model, sector: u64) -> WriteHandle {
    let w = m.begin_write(sector * S, S, false);
    m.end_write(w, true);
    w
}

fn flush(m: &mut Model) {
    let f = m.begin_flush();
    m.end_flush(f, true);
}

fn read(m: &mut Model, sector: u64, bytes: &[u8]) -> Result<(), Mismatch> {
    let r = m.begin_read();
    m.end_read(r, sector * S, bytes)
}

fn zeros() -> Vec<u8> {
    vec![0; SECTOR]
}

#[test]
fn reads_see_the_last_answered_write_only() {
    let mut m = model();
    assert!(read(&mut m, 3, &zeros()).is_ok());
    write(&mut m, 3);
    assert!(read(&mut m, 3, &zeros()).is_err());
    write(&mut m, 3);
    assert!(read(&mut m, 3, &data(3, 1)).unwrap_err().found.contains("superseded"));
    assert!(read(&mut m, 3, &data(3, 2)).is_ok());
}

#[test]
fn concurrent_reads_see_old_or_new() {
    let mut m = model();
    let r = m.begin_read();
    let w = m.begin_write(3 * S, S, false);
    assert!(read(&mut m, 3, &zeros()).is_ok());
    assert!(read(&mut m, 3, &data(3, 1)).is_ok());
    m.end_write(w, true);
    assert!(m.end_read(r, 3 * S, &zeros()).is_ok());
    assert!(read(&mut m, 3, &zeros()).is_err());
}

#[test]
fn overlapping_writes_settle_at_the_first_quiet_read() {
    let mut m = model();
    let (a, b) = (m.begin_write(3 * S, S, false), m.begin_write(3 * S, S, false));
    m.end_write(b, true);
    m.end_write(a, true);
    assert!(read(&mut m, 3, &data(3, 1)).is_ok());
    let changed = read(&mut m, 3, &data(3, 2));
    assert!(changed.is_err(), "a value that changed by itself");
    flush(&mut m);
    m.crash();
    assert!(read(&mut m, 3, &data(3, 2)).is_err());
    assert!(read(&mut m, 3, &data(3, 1)).is_ok());
}

#[test]
fn garbage_and_foreign_data_are_rejected() {
    let mut m = model();
    write(&mut m, 3);
    write(&mut m, 4);
    let foreign = read(&mut m, 3, &data(4, 2)).unwrap_err();
    assert!(foreign.found.contains("another block's data"), "{foreign}");
    assert!(read(&mut m, 3, &[0xa5; SECTOR]).unwrap_err().found.contains("garbage"));
    let mut torn = data(3, 1);
    torn[256..].fill(0);
    assert!(read(&mut m, 3, &torn).unwrap_err().found.contains("torn inside"));
    assert!(read(&mut m, 5, &data(3, 1)).is_err());
}

#[test]
fn after_a_crash_nothing_is_older_than_what_was_flushed() {
    for (write_found, legal) in [(1, false), (2, true), (3, true), (4, true)] {
        let mut m = model();
        write(&mut m, 3);
        write(&mut m, 3);
        flush(&mut m);
        write(&mut m, 3);
        m.begin_write(3 * S, S, false);
        assert_eq!(m.crash(), [3]);
        assert_eq!(read(&mut m, 3, &data(3, write_found)).is_ok(), legal, "write {write_found}");
        assert!(read(&mut m, 3, &zeros()).is_err());
    }
}

#[test]
fn a_flush_covers_only_what_was_answered_before_it() {
    let mut m = model();
    write(&mut m, 3);
    let w = m.begin_write(3 * S, S, false);
    let f = m.begin_flush();
    m.end_write(w, true);
    m.end_flush(f, true);
    m.crash();
    assert!(read(&mut m, 3, &data(3, 1)).is_ok());
}

#[test]
fn a_failed_flush_covers_nothing() {
    let mut m = model();
    write(&mut m, 3);
    let f = m.begin_flush();
    m.end_flush(f, false);
    m.crash();
    assert!(read(&mut m, 3, &zeros()).is_ok());
}

#[test]
fn fua_covers_itself_only() {
    let mut m = model();
    write(&mut m, 3);
    write(&mut m, 4);
    let w = m.begin_write(3 * S, S, true);
    m.end_write(w, true);
    m.crash();
    assert!(read(&mut m, 4, &zeros()).is_ok());
    assert!(read(&mut m, 3, &data(3, 1)).is_err());
    assert!(read(&mut m, 3, &data(3, 3)).is_ok());
}

#[test]
fn recovered_values_stay() {
    let mut m = model();
    write(&mut m, 3);
    m.crash();
    assert!(read(&mut m, 3, &zeros()).is_ok());
    assert!(read(&mut m, 3, &data(3, 1)).is_err(), "changed by itself");
    m.crash();
    assert!(read(&mut m, 3, &data(3, 1)).is_err(), "changed by a second recovery");
    assert!(read(&mut m, 3, &zeros()).is_ok());
}

#[test]
fn discards_take_whole_blocks_and_zeroes_take_bytes() {
    let mut m = model();
    let w = m.begin_write(0, 3 * 4096, false);
    m.end_write(w, true);
    let d = m.begin_discard(100, 2 * 4096, false);
    m.end_write(d, true);
    assert!(read(&mut m, 0, &data(0, 1)).is_ok());
    assert!(read(&mut m, 8, &zeros()).is_ok());
    assert!(read(&mut m, 16, &data(16, 1)).is_ok());
    let z = m.begin_zeroes(20 * S + 10, 20, false);
    m.end_write(z, true);
    let mut holed = data(20, 1);
    assert!(read(&mut m, 20, &holed).is_err());
    holed[10..30].fill(0);
    assert!(read(&mut m, 20, &holed).is_ok());
}

#[test]
fn a_discard_does_not_resurrect() {
    let mut m = model();
    write(&mut m, 8);
    let d = m.begin_discard(4096, 4096, false);
    m.end_write(d, true);
    flush(&mut m);
    m.crash();
    assert!(read(&mut m, 8, &data(8, 1)).is_err());
    assert!(read(&mut m, 8, &zeros()).is_ok());
}

#[test]
fn sub_sector_writes_keep_the_rest() {
    let mut m = model();
    write(&mut m, 3);
    let w = m.begin_write(3 * S + 100, 50, false);
    let mut payload = [0; 50];
    m.fill(w, 3 * S + 100, &mut payload);
    m.end_write(w, true);
    let mut mixed = data(3, 1);
    assert!(read(&mut m, 3, &mixed).is_err());
    mixed[100..150].copy_from_slice(&payload);
    assert!(read(&mut m, 3, &mixed).is_ok());
    let r = m.begin_read();
    assert!(m.end_read(r, 3 * S + 90, &mixed[90..200]).is_ok());
}

/// Two concurrent writes to different bytes of one sector: neither may be lost.
#[test]
fn concurrent_sub_sector_writes_are_both_there() {
    let mut m = model();
    let a = m.begin_write(3 * S, 100, false);
    let b = m.begin_write(3 * S + 200, 100, false);
    let mut both = zeros();
    m.fill(a, 3 * S, &mut both[..100]);
    let only_a = both.clone();
    m.fill(b, 3 * S + 200, &mut both[200..300]);
    assert!(!m.can_follow(3 * S + 400, 10));
    m.end_write(a, true);
    m.end_write(b, true);
    assert!(read(&mut m, 3, &both).is_ok());
    assert!(read(&mut m, 3, &only_a).is_err());
}

#[test]
fn failed_writes_may_be_old_or_new() {
    let mut m = model();
    write(&mut m, 3);
    let w = m.begin_write(3 * S, S, false);
    m.end_write(w, false);
    assert!(read(&mut m, 3, &data(3, 2)).is_ok());
    assert!(read(&mut m, 3, &data(3, 1)).is_ok());
    assert!(read(&mut m, 3, &zeros()).is_err());
}

#[test]
fn a_lost_cache_allows_what_a_crash_would() {
    let mut m = model();
    write(&mut m, 3);
    flush(&mut m);
    write(&mut m, 3);
    m.cache_was_lost();
    assert!(read(&mut m, 3, &data(3, 1)).is_ok());
    assert!(read(&mut m, 3, &zeros()).is_err());
}

#[test]
fn long_histories_are_swept_without_losing_candidates() {
    let mut m = model();
    for _ in 0..50 {
        write(&mut m, 3);
        flush(&mut m);
    }
    for _ in 0..5 {
        write(&mut m, 3);
    }
    assert!(read(&mut m, 3, &data(3, 55)).is_ok());
    m.crash();
    assert!(read(&mut m, 3, &data(3, 49)).is_err());
    assert!(read(&mut m, 3, &data(3, 52)).is_ok());
}
