//! Rot in the log at rest: one block of what a client wrote costs that block, and never the volume; and what a flush was
//! answered for is not taken for something that a crash has torn.

use crate::lost_groups::groups;
use crate::opening::newest_header;
use crate::story::{BLOCK, CHUNK, Story};
use bimetal_engine::options::{CheckReport, OpenError, Tuning};
use bimetal_torture::disk::CutStyle;
use bimetal_torture::world::Death;
use bimetal_torture::world::storm::{Storm, Vanish};
use bimetal_units::Nanos;
use bimetal_units::rng::Rng;

/// Groups that fill more segments than indexes wait to be written: those of the first will never be.
const MANY: u64 = 120;

/// A volume with a long landing zone, and a chunk of it that is slow: what is written there lands, and stays landed.
fn begin() -> (Story, u64) {
    let mut s = Story::begin_with_zone(124, 200, 90);
    let chunk = s.slow_chunk();
    s.stop();
    s.tuning = Tuning { idle_after_ns: 3600 * Nanos::SECOND, ..s.tuning.clone() };
    s.open().expect("it was closed in order");
    (s, chunk)
}

/// The block of the log that holds nothing but these bytes.
fn only_page_of(s: &Story, fill: u8) -> u64 {
    let mut page = [0; BLOCK as usize];
    let is_data = |at: &u64| s.world.disks[0].peek(*at, &mut page) && page.iter().all(|b| *b == fill);
    s.layout().zone().find(is_data).expect("it has landed")
}

/// A bit flips there.
fn rot_payload(s: &mut Story, fill: u8) {
    let data = only_page_of(s, fill);
    s.world.disks[0].rot(data, &mut Rng::new(1, 1));
}

fn area_blocks(s: &Story) -> u64 {
    u64::from(s.geometry().area_bytes) / BLOCK
}

fn checked(s: &mut Story) -> CheckReport {
    s.checked().expect("it can be checked")
}

/// A client writes over many segments of the log between two flushes, and the server is killed. One bit of one block has
/// flipped. What claims that its group was durable stands many segments further on; recovery judged the block before it
/// had read that, took the group for one that a crash had torn, then found the claims, and kept the whole volume closed.
#[test]
fn a_rotten_block_before_claims_that_stand_far_on_costs_that_block() {
    for place in [0, 1, 7, 15, 40, 100] {
        let (mut s, chunk) = begin();
        let at = |i: u64| chunk + (2 + i % (CHUNK / BLOCK - 2)) * BLOCK;
        for i in 0..place {
            s.write(at(i), BLOCK, 0x33);
        }
        s.write(chunk + BLOCK, BLOCK, 0x22);
        for i in place..MANY {
            s.write(at(i), BLOCK, 0x33);
        }
        s.flush();
        s.write(at(0), BLOCK, 0x44);
        s.flush();
        s.die(Death::Kill);
        rot_payload(&mut s, 0x22);
        s.open().unwrap_or_else(|e| panic!("behind {place} groups: {e}"));
        assert!(
            s.read(chunk + BLOCK, BLOCK).is_err(),
            "behind {place} groups: it cannot be told what was there"
        );
        let rest = s.read(chunk + 2 * BLOCK, CHUNK - 2 * BLOCK).expect("the others can be read");
        assert!(
            rest[..BLOCK as usize].iter().all(|b| *b == 0x44)
                && rest[BLOCK as usize..].iter().all(|b| *b == 0x33)
        );
        s.write(chunk + BLOCK, BLOCK, 0x55);
        assert_eq!(s.read(chunk + BLOCK, BLOCK).map(|bytes| bytes[7]), Ok(0x55), "written anew it is there");
    }
}

/// A flush was answered, nobody wrote anything for two seconds, and the power went. Then the last block of the log rotted.
/// Nothing said that its group had been durable: it was taken for a torn one, the block read as it was before, and the check
/// was clean.
#[test]
fn what_was_flushed_before_a_quiet_time_is_not_taken_for_torn() {
    for death in [Death::Kill, Death::PowerCut(CutStyle::LoseAll)] {
        let (mut s, chunk) = begin();
        s.write(chunk + BLOCK, BLOCK, 0x22);
        s.flush();
        s.write(chunk + BLOCK, BLOCK, 0x33);
        s.flush();
        s.wait(2 * Nanos::SECOND);
        s.die(death);
        rot_payload(&mut s, 0x33);
        assert!(!checked(&mut s).findings.is_empty(), "{death:?}: the check says so");
        s.open().expect("one block of a client keeps no volume closed");
        assert!(s.read(chunk + BLOCK, BLOCK).is_err(), "{death:?}: not the value from before");
    }
}

/// A claim is written once; then an idle volume leaves its devices alone.
#[test]
fn a_claim_is_made_once() {
    let (mut s, chunk) = begin();
    s.write(chunk + BLOCK, BLOCK, 0x22);
    s.flush();
    s.wait(3 * Nanos::SECOND);
    let written = s.engine().status().tiers[0].written_bytes;
    let busy = s.world.hash();
    s.wait(600 * Nanos::SECOND);
    assert_eq!(s.engine().status().tiers[0].written_bytes, written);
    assert_eq!(s.world.hash(), busy, "nothing at all has happened");
}

/// The server is killed right after a flush was answered, and of the last groups the first one rots. Nothing claims them, so
/// the log ends before them, as it would had a crash torn the first: but it is said, by the check and when the volume is
/// opened, and the groups can still be looked at then.
#[test]
fn intact_groups_behind_the_end_are_told_of_and_kept() {
    let (mut s, chunk) = begin();
    s.write(chunk + BLOCK, BLOCK, 0x21);
    s.flush();
    s.write(chunk + BLOCK, BLOCK, 0x22);
    s.flush();
    let fills = [0x31, 0x32, 0x33, 0x34];
    for (i, fill) in (2..).zip(fills) {
        s.write(chunk + i * BLOCK, BLOCK, fill);
    }
    s.flush();
    s.die(Death::Kill);
    rot_payload(&mut s, 0x31);
    let report = checked(&mut s);
    assert_eq!(report.findings, []);
    let told: Vec<_> = report.unconfirmed.iter().map(|g| (g.group - report.log_end, g.whole)).collect();
    assert_eq!(told, [(1, false), (2, true), (3, true), (4, true)]);
    assert_eq!(report.unconfirmed[1].landed[0].volume_byte, chunk + 3 * BLOCK);
    for life in 0..3 {
        s.open().expect("it opens");
        let events: Vec<_> = s.engine().take_events().into_iter().map(|e| e.message).collect();
        let said =
            events.iter().any(|e| e.contains("4 groups from") && e.contains("payload of 1 does not match"));
        assert_eq!(said, life == 0, "{events:?}");
        assert_eq!(s.read(chunk + BLOCK, BLOCK).map(|bytes| bytes[7]), Ok(0x22));
        s.write(chunk + 9 * BLOCK, BLOCK, 0x60 + life);
        s.flush();
        s.die(Death::Kill);
        assert_eq!(checked(&mut s).unconfirmed, report.unconfirmed, "life {life}: they are still there");
    }
}

/// A flush was answered for a block. The next group was torn by the crash, but for its header, which was the only one that said
/// that the block had been durable; and the block rots. An opening erased that header as what stands behind the log's end.
/// The next one found nobody who said so: it took the block's group for a torn one, and the block read as it was before. Now
/// an opening says it first, and the device may vanish at each of its commands.
#[test]
fn an_opening_erases_no_claim_that_nothing_else_makes() {
    let (mut s, chunk) = begin();
    s.write(chunk + BLOCK, BLOCK, 0x22);
    s.flush();
    // Somewhere within a segment: a header of the next one would say it, too.
    for i in 3..7 {
        s.write(chunk + i * BLOCK, BLOCK, 0x11);
    }
    s.write(chunk + BLOCK, BLOCK, 0x33);
    s.flush();
    s.write(chunk + 2 * BLOCK, BLOCK, 0x44);
    s.die(Death::Kill);
    rot_payload(&mut s, 0x33);
    rot_payload(&mut s, 0x44);
    let is_known_lost = |s: &mut Story, what: &str| {
        s.open().unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(s.read(chunk + BLOCK, BLOCK).is_err(), "{what}: the value from before");
    };
    // A check flushes the devices: the torn group stays where it is.
    let report = checked(&mut s);
    let [torn] = report.unconfirmed.as_slice() else {
        panic!("one group was torn: {:?}", report.unconfirmed)
    };
    assert!(
        !report.findings.is_empty() && (torn.offset / BLOCK) % area_blocks(&s) > 2,
        "in the same segment"
    );
    let cuts = [CutStyle::LoseAll, CutStyle::Sectors, CutStyle::KeepAll];
    for (after, cut) in (0..).flat_map(|after| cuts.map(|cut| (after, cut))) {
        let vanish = Vanish { device: 0, after, stage: None, ns: Nanos::MS / 10, cache: Some(cut), errno: 5 };
        let (mut again, opened) = opened_while_away(&s, vanish);
        let over = again.world.injected.vanished == 0;
        assert!(!over || opened.is_ok(), "nothing has happened to it: {opened:?}");
        for life in 0..3 {
            again.die(Death::Kill);
            is_known_lost(&mut again, &format!("after {after} commands, {cut:?}, life {life}"));
        }
        if over {
            assert!(after > 20, "{after} commands");
            break;
        }
    }
}

/// A client writes over several segments and does not flush, and the power goes. Of one of the last segments the last group is
/// torn, and the next segment is there: it is of a future that was lost. An opening ends the log before the torn group and
/// says that all up to there is durable; what it found is served. Then a block of a segment before rots. What says that it was
/// durable is in neither the newest segment nor the one behind its own: nobody looked there, its group was taken for a torn
/// one, and the block read as it was before it had been served.
#[test]
fn what_an_opening_says_is_found_before_segments_that_were_lost() {
    for far in 1..5 {
        let (mut s, chunk) = begin();
        s.write(chunk + BLOCK, BLOCK, 0x22);
        s.flush();
        for i in 0..MANY {
            s.write(chunk + (2 + i % (CHUNK / BLOCK - 2)) * BLOCK, BLOCK, 0x11);
            if i == MANY / 4 {
                s.write(chunk + BLOCK, BLOCK, 0x33);
            }
        }
        s.die(Death::Kill);
        let data = only_page_of(&s, 0x33);
        let all = groups(&s);
        let own = all.iter().filter(|(page, _)| *page < data).max_by_key(|(page, _)| *page);
        let (_, own) = own.expect("it is in a group");
        let last = all.iter().filter(|(_, g)| g.ordinal == own.ordinal + far).max_by_key(|(_, g)| g.seq);
        let (torn_at, torn) = last.expect("the log goes on in that segment");
        assert!(all.iter().any(|(_, g)| g.ordinal > torn.ordinal), "and behind it");
        assert!(all.iter().all(|(_, g)| g.durable < own.seq), "nobody says that the block is durable");
        s.world.disks[0].rot(torn_at + 1, &mut Rng::new(1, 1));
        for _ in 0..2 {
            s.open().unwrap_or_else(|e| panic!("{far} segments on: {e}"));
            assert_eq!(s.read(chunk + BLOCK, BLOCK).map(|bytes| bytes[7]), Ok(0x33));
            s.die(Death::Kill);
        }
        rot_payload(&mut s, 0x33);
        assert!(!checked(&mut s).findings.is_empty(), "{far} segments on: the check says so");
        for life in 0..2 {
            s.open().unwrap_or_else(|e| panic!("{far} segments on, life {life}: {e}"));
            let read = s.read(chunk + BLOCK, BLOCK).map(|bytes| bytes[7]);
            assert!(read.is_err(), "{far} segments on, life {life}: it reads {read:?}");
            s.die(Death::Kill);
        }
    }
}

/// The volume was closed in order, which only the newest checkpoint header says of the log's last group, and a block of that
/// rots. Then the header cannot be read for a while, and the device vanishes at each command of an opening in turn, with
/// its cache. The log's end used to be erased before that header was: when it could be read again, it claimed a group that
/// was not there any more, and the volume stayed closed.
#[test]
fn what_claims_a_group_goes_before_the_group() {
    let (mut s, chunk) = begin();
    s.write(chunk + BLOCK, BLOCK, 0x22);
    s.stop();
    rot_payload(&mut s, 0x22);
    let newest = newest_header(&s);
    newest.iter().for_each(|page| s.world.disks[0].add_bad_sector(page * 8));
    let (mut claimed, mut forgotten) = (0, 0);
    for after in 0.. {
        let cache = Some(CutStyle::LoseAll);
        let vanish = Vanish { device: 0, after, stage: None, ns: Nanos::MS / 10, cache, errno: 5 };
        let (mut again, opened) = opened_while_away(&s, vanish);
        if again.world.injected.vanished == 0 {
            opened.expect("nothing has happened to it");
            break;
        }
        again.die(Death::Kill);
        newest.iter().for_each(|page| again.world.disks[0].mend(*page));
        again.open().unwrap_or_else(|e| panic!("after {after} commands of one that was {opened:?}: {e}"));
        match again.read(chunk + BLOCK, BLOCK) {
            Err(_) => claimed += 1,
            Ok(bytes) => forgotten += u32::from(bytes == [0; BLOCK as usize]),
        }
    }
    assert!(claimed > 5 && forgotten > 5, "{claimed} {forgotten}");
}

/// The volume was closed in order, which only the newest checkpoint header says of the log's last group, and a block of that
/// rots. While the volume is opened, the fast device reads nothing for a moment: just when the headers are looked for. After
/// five readings both copies of the newest counted as lost. The one before it was read when the device was back; it says
/// nothing of the group, which was taken for a torn one, the newest header was erased, and the block read as it was before.
/// A device that reads nothing is no evidence against a block.
#[test]
fn a_device_that_reads_nothing_for_a_moment_hides_no_claim() {
    let (mut s, chunk) = begin();
    s.write(chunk + BLOCK, BLOCK, 0x22);
    s.flush();
    s.write(chunk + BLOCK, BLOCK, 0x33);
    s.stop();
    rot_payload(&mut s, 0x33);
    tells_of_the_rot_whatever_happens(&s, chunk);
}

/// The same where segments of the log say so that stand behind its end: there several blocks do, and none of them must be read
/// at its first reading.
#[test]
fn a_device_that_reads_nothing_for_a_moment_hides_no_claim_that_stands_far_on() {
    for place in [0, 15, 40, 100] {
        let (mut s, chunk) = begin();
        s.write(chunk + BLOCK, BLOCK, 0x22);
        s.flush();
        let at = |i: u64| chunk + (2 + i % (CHUNK / BLOCK - 2)) * BLOCK;
        for i in 0..MANY {
            if i == place {
                s.write(chunk + BLOCK, BLOCK, 0x33);
            }
            s.write(at(i), BLOCK, 0x44);
        }
        s.flush();
        s.write(at(0), BLOCK, 0x55);
        s.flush();
        s.die(Death::Kill);
        rot_payload(&mut s, 0x33);
        tells_of_the_rot_whatever_happens(&s, chunk);
    }
}

/// A volume on the same devices, and how an opening of it ended in which one of them went away. It is back.
fn opened_while_away(s: &Story, vanish: Vanish) -> (Story, Result<(), OpenError>) {
    let mut again = Story::with(s.world.disks.clone());
    again.tuning = s.tuning.clone();
    again.world.begin(Storm { vanish: Some(vanish), ..Storm::default() });
    let opened = again.open();
    again.world.calm();
    (again, opened)
}

/// The device reads nothing for a moment from each command of an opening on. Whatever becomes of that opening, the block that
/// has rotted is an error, not what it was before.
fn tells_of_the_rot_whatever_happens(s: &Story, chunk: u64) {
    let mut opened_all_the_same = 0;
    for ns in [Nanos::MS / 10, Nanos::MS / 2, Nanos::MS, 5 * Nanos::MS, 20 * Nanos::MS] {
        for after in 0.. {
            let vanish = Vanish { device: 0, after, stage: None, ns, cache: None, errno: 5 };
            let (mut again, opened) = opened_while_away(s, vanish);
            if again.world.injected.vanished == 0 {
                opened.expect("nothing has happened to it");
                break;
            }
            let when = format!("away for {ns} ns after {after} commands");
            opened_all_the_same += u32::from(opened.is_ok());
            if opened.is_err() {
                again.die(Death::Kill);
                again.open().unwrap_or_else(|e| panic!("{when}: {e}"));
            }
            let read = again.read(chunk + BLOCK, BLOCK);
            assert!(read.is_err(), "{when}: it reads {:?}", read.map(|bytes| bytes[7]));
        }
    }
    assert!(opened_all_the_same > 5, "it is waited for");
}
