//! What the simulated device may and may not do to unflushed writes.

use bimetal_torture::disk::{CutStyle, DiscardEffect, Disk, IoId, PAGE_BYTES};
use bimetal_units::rng::Rng;

const PAGE: u64 = PAGE_BYTES as u64;

fn disk() -> (Disk, Rng) {
    (Disk::new(64 * PAGE, 99), Rng::new(5, 5))
}

fn submit(disk: &mut Disk, id: u64, page: u64, fill: u8, fua: bool) {
    disk.submit_write(IoId(id), page * PAGE, vec![fill; PAGE_BYTES], fua);
}

fn write(disk: &mut Disk, id: u64, page: u64, fill: u8) {
    submit(disk, id, page, fill, false);
    disk.complete(IoId(id));
}

fn flush(disk: &mut Disk, id: u64) {
    disk.submit_flush(IoId(id));
    disk.complete(IoId(id));
}

fn read(disk: &Disk, page: u64) -> Vec<u8> {
    let mut out = vec![0; PAGE_BYTES];
    disk.read(page * PAGE, &mut out).unwrap();
    out
}

fn sectors(disk: &Disk, page: u64) -> Vec<u8> {
    read(disk, page).chunks(512).map(|s| if s.iter().all(|b| *b == s[0]) { s[0] } else { 0xee }).collect()
}

#[test]
fn fresh_devices_hold_garbage_that_stays() {
    let (disk, _) = disk();
    assert_eq!(read(&disk, 3), read(&disk, 3));
    assert_ne!(read(&disk, 3), read(&disk, 4));
    assert!(read(&disk, 3).iter().any(|&b| b != 0));
}

#[test]
fn unflushed_writes_are_read_but_may_be_lost() {
    let (mut disk, mut rng) = disk();
    let before = read(&disk, 1);
    write(&mut disk, 1, 1, 7);
    assert_eq!(sectors(&disk, 1), [7; 8]);
    disk.power_cut(CutStyle::LoseAll, &mut rng);
    assert_eq!(read(&disk, 1), before);
}

#[test]
fn flushed_writes_survive() {
    let (mut disk, mut rng) = disk();
    write(&mut disk, 1, 1, 7);
    flush(&mut disk, 2);
    write(&mut disk, 3, 1, 8);
    disk.power_cut(CutStyle::LoseAll, &mut rng);
    assert_eq!(sectors(&disk, 1), [7; 8]);
}

#[test]
fn a_flush_covers_only_what_had_completed_when_it_was_submitted() {
    let (mut disk, mut rng) = disk();
    write(&mut disk, 1, 1, 7);
    submit(&mut disk, 2, 2, 8, false);
    disk.submit_flush(IoId(3));
    disk.complete(IoId(2));
    write(&mut disk, 4, 1, 9);
    disk.complete(IoId(3));
    assert_eq!(disk.unflushed(), 2);
    disk.power_cut(CutStyle::LoseAll, &mut rng);
    assert_eq!(sectors(&disk, 1), [7; 8]);
    assert_ne!(sectors(&disk, 2), [8; 8]);
}

#[test]
fn an_unfinished_flush_promises_nothing() {
    let (mut disk, mut rng) = disk();
    write(&mut disk, 1, 1, 7);
    disk.submit_flush(IoId(2));
    disk.power_cut(CutStyle::LoseAll, &mut rng);
    assert_ne!(sectors(&disk, 1), [7; 8]);
}

#[test]
fn fua_survives_and_is_not_overlaid_by_older_writes() {
    let (mut disk, mut rng) = disk();
    write(&mut disk, 1, 1, 7);
    submit(&mut disk, 2, 1, 8, true);
    disk.complete(IoId(2));
    write(&mut disk, 3, 2, 9);
    disk.power_cut(CutStyle::LoseAll, &mut rng);
    assert_eq!(sectors(&disk, 1), [8; 8]);
    assert_ne!(sectors(&disk, 2), [9; 8]);
}

/// Every mix of a durable, an older and a newer version comes up, and nothing else.
#[test]
fn a_cut_keeps_any_mix_of_versions() {
    let mut seen = [false; 4];
    let mut whole = [false; 4];
    let mut rng = Rng::new(1, 1);
    for round in 0..400 {
        let mut disk = Disk::new(8 * PAGE, round);
        write(&mut disk, 1, 1, 1);
        flush(&mut disk, 2);
        write(&mut disk, 3, 1, 2);
        submit(&mut disk, 4, 1, 3, false);
        disk.power_cut(rng.pick(&CutStyle::ALL), &mut rng);
        let found = sectors(&disk, 1);
        for &s in &found {
            assert!((1..=3).contains(&s), "garbage after a cut");
            seen[s as usize] = true;
        }
        if found.iter().all(|&s| s == found[0]) {
            whole[found[0] as usize] = true;
        }
        let first = read(&disk, 1);
        disk.power_cut(CutStyle::Mixed, &mut rng);
        assert_eq!(first, read(&disk, 1), "what a cut left is durable");
    }
    assert_eq!((seen, whole), ([false, true, true, true], [false, true, true, true]));
}

#[test]
fn newer_is_kept_while_older_is_lost() {
    let mut rng = Rng::new(1, 1);
    let reordered = (0..100).any(|round| {
        let mut disk = Disk::new(8 * PAGE, round);
        write(&mut disk, 1, 1, 2);
        write(&mut disk, 2, 2, 3);
        disk.power_cut(CutStyle::Whole, &mut rng);
        sectors(&disk, 1) != [2; 8] && sectors(&disk, 2) == [3; 8]
    });
    assert!(reordered);
}

#[test]
fn a_kill_keeps_all_that_was_submitted_but_makes_nothing_durable() {
    let (mut disk, mut rng) = disk();
    write(&mut disk, 1, 1, 7);
    submit(&mut disk, 2, 2, 8, false);
    disk.kill(&mut rng);
    assert_eq!((sectors(&disk, 1), sectors(&disk, 2)), (vec![7; 8], vec![8; 8]));
    disk.power_cut(CutStyle::LoseAll, &mut rng);
    assert_ne!(sectors(&disk, 2), [8; 8]);
}

#[test]
fn failed_writes_leave_none_all_or_some() {
    let mut kinds = [false; 3];
    let mut rng = Rng::new(3, 3);
    for round in 0..100 {
        let mut disk = Disk::new(8 * PAGE, round);
        write(&mut disk, 1, 1, 1);
        submit(&mut disk, 2, 1, 2, false);
        disk.fail_change(IoId(2), &mut rng);
        let new = sectors(&disk, 1).iter().filter(|&&s| s == 2).count();
        kinds[if new == 0 { 0 } else { 1 + usize::from(new == 8) }] = true;
        assert!(sectors(&disk, 1).iter().all(|&s| s == 1 || s == 2));
    }
    assert_eq!(kinds, [true; 3]);
}

#[test]
fn a_failed_flush_may_drop_what_the_next_one_reports_as_safe() {
    let mut rng = Rng::new(3, 3);
    let dropped = (0..50).any(|round| {
        let mut disk = Disk::new(8 * PAGE, round);
        write(&mut disk, 1, 1, 7);
        disk.submit_flush(IoId(2));
        disk.fail_flush(IoId(2), true, &mut rng);
        flush(&mut disk, 3);
        sectors(&disk, 1) != [7; 8]
    });
    assert!(dropped);
    let (mut disk, _) = disk();
    write(&mut disk, 1, 1, 7);
    disk.submit_flush(IoId(2));
    disk.fail_flush(IoId(2), false, &mut rng);
    assert_eq!(sectors(&disk, 1), [7; 8]);
}

#[test]
fn bad_sectors_fail_until_rewritten() {
    let (mut disk, _) = disk();
    write(&mut disk, 1, 1, 7);
    disk.add_bad_sector(8 + 3);
    let mut out = vec![0; PAGE_BYTES];
    assert!(disk.read(PAGE, &mut out).is_err());
    assert!(disk.read(2 * PAGE, &mut out).is_ok());
    write(&mut disk, 2, 1, 8);
    assert_eq!(sectors(&disk, 1), [8; 8]);
}

#[test]
fn discards_leave_old_zeros_or_garbage() {
    let (mut disk, mut rng) = disk();
    write(&mut disk, 1, 1, 7);
    flush(&mut disk, 2);
    disk.submit_discard(IoId(3), PAGE, PAGE, DiscardEffect::Old);
    disk.complete(IoId(3));
    assert_eq!(sectors(&disk, 1), [7; 8]);
    disk.submit_discard(IoId(4), PAGE, PAGE, DiscardEffect::Garbage);
    disk.complete(IoId(4));
    assert_eq!(sectors(&disk, 1), [0xee; 8]);
    disk.submit_discard(IoId(5), PAGE, PAGE, DiscardEffect::Zeros);
    disk.complete(IoId(5));
    assert_eq!(sectors(&disk, 1), [0; 8]);
    disk.power_cut(CutStyle::LoseAll, &mut rng);
    assert_eq!(sectors(&disk, 1), [7; 8]);
}

#[test]
fn rot_flips_one_bit() {
    let (mut disk, mut rng) = disk();
    write(&mut disk, 1, 1, 7);
    disk.rot(1, &mut rng);
    let flipped: u32 = read(&disk, 1).iter().map(|b| (b ^ 7).count_ones()).sum();
    assert_eq!(flipped, 1);
}
