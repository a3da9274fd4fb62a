//! Hints: what placement has learnt outlives an orderly stop, and nothing else; whatever becomes of them, nobody is answered
//! otherwise.

use crate::story::{BLOCK, CHUNK, Story, all};
use bimetal_torture::disk::CutStyle;
use bimetal_torture::world::Death;
use bimetal_units::Nanos;

/// How a block of hints begins.
const MAGIC: &[u8] = b"BMTLhint";

/// A volume with a slow chunk that was read often, and has a copy.
fn begin() -> (Story, u64) {
    let mut s = Story::begin(32, 64);
    let chunk = s.slow_chunk();
    s.write(chunk, CHUNK, 0x11);
    s.flush();
    s.wait(5 * Nanos::SECOND);
    s.die(Death::Kill);
    s.open().expect("it opens, without copies");
    s.free_fast_slots();
    s.read(chunk, BLOCK).expect("it is read");
    s.wait(Nanos::SECOND);
    assert_eq!(s.engine().status().copied_bytes, CHUNK);
    (s, chunk)
}

fn heat(s: &mut Story, chunk: u64) -> u32 {
    let now = s.world.now();
    s.engine().heats(now, chunk, 1)[0]
}

/// Blocks of the fast device that hold hints.
fn blocks_of_hints(s: &Story) -> Vec<u64> {
    let blocks = 0..s.world.disks[0].size_bytes() / BLOCK;
    let holds = |at: &u64| {
        let mut block = [0; BLOCK as usize];
        s.world.disks[0].peek(*at, &mut block);
        block.starts_with(MAGIC)
    };
    blocks.filter(holds).collect()
}

#[test]
fn copies_and_heat_outlive_a_stop() {
    let (mut s, chunk) = begin();
    let (hot, free) = (heat(&mut s, chunk), s.engine().status().tiers[0].used_bytes);
    assert!(hot > 0);
    for round in 0..3 {
        s.stop();
        assert_eq!(s.check().expect("it can be checked"), Vec::<String>::new());
        s.open().expect("it opens");
        let status = s.engine().status();
        assert_eq!((status.copied_bytes, status.tiers[0].used_bytes), (CHUNK, free), "round {round}");
        assert_eq!(heat(&mut s, chunk), hot, "the time in between does not count");
    }
    let before = s.engine().status().copy_read_bytes;
    assert!(all(&s.read(chunk + BLOCK, BLOCK).expect("it is read"), 0x11));
    assert_eq!(s.engine().status().copy_read_bytes, before + BLOCK, "from the copy");
    s.write(chunk + BLOCK, BLOCK, 0x22);
    s.flush();
    s.wait(10 * Nanos::SECOND);
    s.stop();
    s.open().expect("it opens");
    assert!(all(&s.read(chunk + BLOCK, BLOCK).expect("it is read"), 0x22), "the copy ended with the write");
}

/// An opening ends what the stop before it said, whatever becomes of that opening: what it changes, it changes behind their back.
#[test]
fn nothing_outlives_a_crash() {
    for how in [Death::Kill, Death::PowerCut(CutStyle::Whole), Death::PowerCut(CutStyle::LoseAll)] {
        let (mut s, chunk) = begin();
        s.stop();
        assert!(!blocks_of_hints(&s).is_empty());
        s.open().expect("it opens");
        assert_eq!(s.engine().status().copied_bytes, CHUNK);
        s.die(how);
        s.open().expect("it opens again");
        assert_eq!((s.engine().status().copied_bytes, heat(&mut s, chunk)), (0, 0), "{how:?}");
        assert!(all(&s.read(chunk, CHUNK).expect("it is read"), 0x11));
    }
}

/// A crash at each step of an opening that was told something: whether the next one is told it again depends on how far that
/// one came, and what it reads does not.
#[test]
fn an_opening_that_is_cut_short_is_begun_again() {
    let mut told = [0, 0];
    for steps in 0.. {
        let (mut s, chunk) = begin();
        s.stop();
        if !s.open_until(steps, Death::PowerCut(CutStyle::Whole)) {
            break;
        }
        s.open().expect("it opens");
        let copied = s.engine().status().copied_bytes;
        told[usize::from(copied == CHUNK)] += 1;
        assert!(copied == 0 || copied == CHUNK);
        assert!(all(&s.read(chunk, CHUNK).expect("it is read"), 0x11));
    }
    assert!(told[0] > 0 && told[1] > 0, "{told:?}");
}

/// What a stop does not tell, as the slow device is missing, is not what the one before it told.
#[test]
fn a_stop_that_tells_nothing_says_so() {
    let (mut s, chunk) = begin();
    s.stop();
    s.open_alone().expect("it opens without the slow device");
    s.stop();
    s.open().expect("it opens");
    assert!(!s.engine().take_events().iter().any(|e| e.message.contains("had learnt")));
    assert_eq!((s.engine().status().copied_bytes, heat(&mut s, chunk)), (0, 0));
    assert!(all(&s.read(chunk, CHUNK).expect("it is read"), 0x11));
}

/// What lies before a block of hints that cannot be read is known.
#[test]
fn a_block_of_hints_that_cannot_be_read_costs_no_more_than_what_is_behind_it() {
    let (mut s, chunk) = begin();
    s.stop();
    let blocks = blocks_of_hints(&s);
    s.world.disks[0].add_bad_sector(blocks.last().expect("there are some") * BLOCK / 512);
    s.open().expect("it opens");
    assert!(s.engine().take_events().iter().any(|e| e.message.contains("had learnt")));
    assert_eq!((s.engine().status().copied_bytes, heat(&mut s, chunk)), (CHUNK, 0));
    assert!(all(&s.read(chunk, CHUNK).expect("it is read"), 0x11));
}

#[test]
fn hints_that_rot_are_done_without() {
    let (mut s, chunk) = begin();
    s.stop();
    for block in blocks_of_hints(&s) {
        s.flip(0, block * BLOCK + 100);
    }
    s.open().expect("it opens");
    let forgot = |s: &mut Story| s.engine().take_events().iter().any(|e| e.message.contains("had learnt"));
    assert!(forgot(&mut s), "it says so");
    assert_eq!((s.engine().status().copied_bytes, heat(&mut s, chunk)), (0, 0));
    assert!(all(&s.read(chunk, CHUNK).expect("it is read"), 0x11));
    s.stop();
    s.open().expect("it opens");
    assert!(!forgot(&mut s));
    assert!(heat(&mut s, chunk) > 0, "the read of this opening");
}
