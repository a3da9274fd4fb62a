//! Writes of metadata that the device acknowledged and lost: what stood there before still stands there, whole
//! and under a good checksum. Each is told as the story in which it showed wrong bytes, or could have.

use crate::story::{BLOCK, CHUNK, Story, twin};
use bimetal_engine::coverage::Stage;
use bimetal_engine::options::Tuning;
use bimetal_torture::disk::{CutStyle, Disk, IoId};
use bimetal_torture::world::Death;
use bimetal_torture::world::storm::{Aim, Harm, Storm};
use bimetal_units::Nanos;
use std::collections::BTreeMap;

/// Kinds of pages, as a page says it.
const MAP: u8 = 1;
const SUMS: u8 = 2;
const ROOT: u8 = 3;

fn get(disk: &Disk, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK as usize];
    disk.read(block * BLOCK, &mut bytes).expect("the device is whole");
    bytes
}

/// What the fast device holds before its first area: all metadata but the log, in its first copy.
fn metadata(s: &Story) -> Vec<Vec<u8>> {
    (0..s.geometry().areas_at / BLOCK).map(|block| get(&s.world.disks[0], block)).collect()
}

/// Blocks of metadata that are not what they were, and what they were.
fn changed(s: &Story, before: &[Vec<u8>]) -> BTreeMap<u64, Vec<u8>> {
    let now = metadata(s);
    let old = |i: usize| before.get(i).cloned().unwrap_or_else(|| vec![0; BLOCK as usize]);
    let differs = |i: &usize| now[*i] != old(*i);
    (0..now.len()).filter(differs).map(|i| (i as u64, old(i))).collect()
}

/// Whether the block is a page of this kind.
fn is_page(block: &[u8], kind: u8) -> bool {
    block.starts_with(b"BMTLpage") && block[32] == kind
}

/// Those of the changed blocks that were pages of this kind before and are still.
fn pages(s: &Story, changed: &BTreeMap<u64, Vec<u8>>, kind: u8) -> Vec<u64> {
    let both =
        |(at, old): &(&u64, &Vec<u8>)| is_page(old, kind) && is_page(&get(&s.world.disks[0], **at), kind);
    changed.iter().filter(both).map(|(at, _)| *at).collect()
}

/// The map page in force of these volumes, which have one.
fn newest_map_page(s: &Story, changed: &BTreeMap<u64, Vec<u8>>) -> u64 {
    let pages = pages(s, changed, MAP);
    pages.into_iter().max_by_key(|at| written_by(&get(&s.world.disks[0], *at))).expect("a page written twice")
}

/// The checkpoint that wrote a page.
fn written_by(page: &[u8]) -> u64 {
    u64::from_le_bytes(page[48..56].try_into().expect("eight bytes"))
}

fn put(s: &mut Story, block: u64, bytes: &[u8]) {
    let disk = &mut s.world.disks[0];
    disk.submit_write(IoId(0), block * BLOCK, bytes.to_vec(), false);
    disk.complete(IoId(0));
    disk.submit_flush(IoId(0));
    disk.complete(IoId(0));
}

/// Chunks written in each round.
const SOME: u64 = 12;

/// More than the fast tier has slots for, in three rounds.
fn write_some(s: &mut Story, round: u64) {
    for chunk in round * SOME..(round + 1) * SOME {
        s.write(chunk * CHUNK, CHUNK, 0x10 + chunk as u8);
    }
    s.flush();
    s.wait(2 * Nanos::SECOND);
}

/// A volume on which something was written between each of three closings, so that both places of a page have
/// been used; and what its metadata was before the last of them.
fn closed_three_times() -> (Story, Vec<Vec<u8>>) {
    let mut s = Story::begin(24, 64);
    for round in 0..2 {
        write_some(&mut s, round);
        s.stop();
        s.open().expect("the volume opens");
    }
    let before = metadata(&s);
    write_some(&mut s, 2);
    s.stop();
    (s, before)
}

/// One copy of these blocks is what it was: the check names the first of them, and the volume opens. Both are: the volume
/// stays closed, a sentence names the byte, and the check says the same.
fn is_told(s: &mut Story, lost: &[u64], old: &BTreeMap<u64, Vec<u8>>) {
    let whole = s.world.disks.clone();
    lost.iter().for_each(|at| put(s, *at, &old[at]));
    let findings = s.findings().expect("it can be checked");
    let told = findings.iter().any(|f| f.offset == lost[0] * BLOCK && f.what.contains("not the one"));
    assert!(told, "{findings:?}");
    s.open().expect("the other copy is good");
    s.stop();
    assert_eq!(s.check().expect("it can be checked"), Vec::<String>::new(), "the bad copy was written again");
    s.world.disks = whole;
    for at in lost {
        put(s, *at, &old[at]);
        let other = twin(&s.geometry(), *at).expect("a second copy");
        put(s, other, &old[at]);
    }
    let error = refuses(s, lost[0]);
    assert!(error.contains("not the one"), "{error}");
}

fn refuses(s: &mut Story, block: u64) -> String {
    let findings = s.findings().expect("it can be checked");
    let error = s.open().expect_err("it must not open").to_string();
    assert!(error.contains("fast") && error.contains(&format!("byte {}", block * BLOCK)), "{error}");
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!((findings[0].device.0, findings[0].offset), (0, block * BLOCK), "{findings:?}");
    error
}

/// The last page of the map that a closing wrote is acknowledged and lost. Its place still held the page of two
/// closings before, and since the checkpoint named only the place, that was believed: a chunk written and
/// flushed since read zeros.
#[test]
fn a_map_page_that_was_lost_is_told_from_the_one_before() {
    let (mut s, before) = closed_three_times();
    let changed = changed(&s, &before);
    let lost = newest_map_page(&s, &changed);
    is_told(&mut s, &[lost], &changed);
}

/// The root of a checkpoint that a power cut ended before its header, and the one that the next opening writes in
/// its place, have the same number. Should the second be lost, the number cannot tell.
#[test]
fn a_root_of_a_checkpoint_that_was_cut_short_is_told_from_the_next_one() {
    let (mut s, cut_short) = cut_short_before_the_header();
    s.write(CHUNK, CHUNK, 0x22);
    s.stop();
    let lost = pages(&s, &changed(&s, &cut_short), ROOT);
    assert!(!lost.is_empty(), "the same root was written twice");
    for at in &lost {
        let (old, new) = (&cut_short[*at as usize], get(&s.world.disks[0], *at));
        assert_eq!(written_by(old), written_by(&new), "both attempts have the same number");
    }
    let old = lost.iter().map(|at| (*at, cut_short[*at as usize].clone())).collect();
    is_told(&mut s, &lost, &old);
}

/// The same for a page of the map.
#[test]
fn a_map_page_of_a_checkpoint_that_was_cut_short_is_told_from_the_next_one() {
    let (mut s, cut_short) = cut_short_before_the_header();
    s.write(CHUNK, CHUNK, 0x22);
    s.stop();
    let lost = pages(&s, &changed(&s, &cut_short), MAP);
    assert_eq!(lost.len(), 1, "the same place was written twice");
    let old = BTreeMap::from([(lost[0], cut_short[lost[0] as usize].clone())]);
    is_told(&mut s, &lost, &old);
}

/// A volume that a power cut met when a checkpoint had written all but its header, which is open again; and what
/// its metadata was then.
fn cut_short_before_the_header() -> (Story, Vec<Vec<u8>>) {
    let mut s = Story::begin(24, 64);
    s.write(0, CHUNK, 0x11);
    let now = s.world.now();
    s.engine().begin_shutdown(now);
    s.until_stage(Stage::CheckpointFlushPages);
    s.die(Death::PowerCut(CutStyle::KeepAll));
    let cut_short = metadata(&s);
    s.open().expect("the volume opens");
    (s, cut_short)
}

/// A page of the map is overwritten with what its other place holds: the version before it.
#[test]
fn a_map_page_is_told_from_the_one_in_its_other_place() {
    let (mut s, before) = closed_three_times();
    let changed = changed(&s, &before);
    let page = newest_map_page(&s, &changed);
    let number = |block: &[u8]| block[32..48].to_vec();
    let bytes = get(&s.world.disks[0], page);
    let other = [page - 1, page + 1].map(|at| get(&s.world.disks[0], at));
    let other =
        other.iter().find(|b| is_page(b, MAP) && number(b) == number(&bytes)).expect("its other place");
    is_told(&mut s, &[page], &BTreeMap::from([(page, other.clone())]));
}

/// A page of checksums is lost. Its older version vouches for what the slow device held then, and the device that
/// lost that page's write may not be the only one that lost one: so nothing of it is believed. The volume opens,
/// what the page stands for is an error, and the check names the page.
#[test]
fn a_lost_page_of_checksums_vouches_for_nothing() {
    let mut s = Story::begin(24, 64);
    let chunks = s.engine().size_bytes() / CHUNK;
    let mut slow = Vec::new();
    for at in (0..chunks).map(|c| c * CHUNK) {
        s.write(at, CHUNK, 0x11);
        s.flush();
        s.wait(Nanos::SECOND);
        slow.extend(s.is_slow(at).then_some(at));
    }
    assert!(slow.len() > 4, "chunks on the slow tier");
    let mut before = Vec::new();
    for round in 0..2 {
        s.stop();
        s.open().expect("the volume opens");
        before = metadata(&s);
        s.write(slow[0], BLOCK, 0x20 + round);
        s.flush();
        s.wait(2 * Nanos::SECOND);
    }
    s.stop();
    let changed = changed(&s, &before);
    let lost = pages(&s, &changed, SUMS);
    assert!(!lost.is_empty(), "a page of checksums was written twice in this place");
    lost.iter().for_each(|at| put(&mut s, *at, &changed[at]));
    let findings = s.findings().expect("it can be checked");
    let told = |at: &u64| findings.iter().any(|f| f.offset == at * BLOCK && f.what.contains("not the one"));
    assert!(lost.iter().all(told), "{findings:?}");
    s.open().expect("the volume opens");
    for at in &slow {
        if let Ok(bytes) = s.read(*at, BLOCK) {
            let fill = if at == &slow[0] { 0x21 } else { 0x11 };
            assert!(bytes.iter().all(|b| *b == fill), "{:#x}", bytes[0]);
        }
    }
    s.read(slow[0], BLOCK).expect_err("nothing vouches for it");
}

/// Every single block of metadata that the last of several closings wrote is lost, one at a time, in one copy or in both:
/// with one copy left the volume opens; otherwise it stays closed, or what was written reads as it was, or as an error.
#[test]
fn no_lost_block_of_metadata_shows_an_older_volume() {
    let (s, before) = closed_three_times();
    let changed = changed(&s, &before);
    assert!(changed.len() > 6, "map, checksums, directory, root and header: {}", changed.len());
    let mut refused = 0;
    for ((at, old), copies) in changed.iter().flat_map(|lost| [(lost, 1), (lost, 2)]) {
        let mut s = Story::with(s.world.disks.clone());
        let new = get(&s.world.disks[0], *at);
        put(&mut s, *at, old);
        if copies == 2
            && let Some(twin) = twin(&s.geometry(), *at)
        {
            put(&mut s, twin, old);
        }
        match s.open() {
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains("fast is corrupt at byte"), "{error}");
                assert_eq!(copies, 2, "one copy was left: {error}");
                refused += 1;
            }
            // Of the blocks that a lost page of checksums stands for, nothing is known.
            Ok(()) => (0..3 * SOME).for_each(|c| match s.read(c * CHUNK, CHUNK) {
                Ok(bytes) => assert!(bytes.iter().all(|b| *b == 0x10 + c as u8), "block {at}, chunk {c}"),
                Err(_) => assert!(is_page(&new, SUMS), "block {at}, chunk {c} is an error"),
            }),
        }
    }
    assert!(refused >= 3, "{refused} of {} in both copies: map, directory, root at least", changed.len());
}

/// A crash tears a group of the log that no flush covers: of two blocks the second is there. An opening ends the log before it,
/// in its place, and that write is acknowledged and lost. The group still stood there, under the number that the closing said
/// was durable, so the opening after that took it for a part of the log: the first block was an error, the second had bytes
/// that both lives before had said it had not. Now an opening looks whether what ends the log is there.
#[test]
fn what_a_crash_has_torn_does_not_come_back_when_the_end_of_the_log_is_lost() {
    for harm in [Harm::Lost, Harm::Misdirected] {
        let mut lost = 0;
        for after in 0..24 {
            let (mut s, at) = torn_behind_the_end();
            let aims = vec![Aim { stage: Stage::OpenRaise, after, harm }];
            s.world.layout = Some(s.layout());
            s.world.begin(Storm { aims, ..Storm::default() });
            let opened = s.open();
            s.world.calm();
            let injected = s.world.injected.harms[harm as usize];
            lost += injected;
            let when = format!("{harm:?} after {after}");
            assert!(opened.is_ok() || injected > 0, "{when}: {opened:?}");
            if opened.is_err() {
                continue;
            }
            for life in 0..3 {
                assert_eq!(
                    s.read(at, 2 * BLOCK).map(|b| b[7..][..2].to_vec()),
                    Ok(vec![0, 0]),
                    "{when}, life {life}"
                );
                s.stop();
                if let Err(error) = s.open() {
                    assert!(injected > 0, "{when}: {error}");
                    break;
                }
            }
        }
        assert!(lost > 5, "{lost} writes were lost");
    }
}

/// A volume that a crash left with a group behind the log's end, and the first of its two blocks.
fn torn_behind_the_end() -> (Story, u64) {
    let mut s = Story::begin_with_zone(120, 200, 90);
    let chunk = s.slow_chunk();
    s.stop();
    s.tuning = Tuning { idle_after_ns: 3600 * Nanos::SECOND, ..s.tuning.clone() };
    s.open().expect("it was closed in order");
    s.write(chunk + BLOCK, BLOCK, 0x22);
    s.flush();
    let at = chunk + 4 * BLOCK;
    s.write(at, 2 * BLOCK, 0x44);
    s.die(Death::Kill);
    let mut page = [0; BLOCK as usize];
    let is_data = |at: &u64| s.world.disks[0].peek(*at, &mut page) && page.iter().all(|b| *b == 0x44);
    let first = s.layout().zone().find(is_data).expect("it has landed");
    s.world.disks[0].rot(first, &mut bimetal_units::rng::Rng::new(1, 1));
    (s, at)
}
