//! Stories of a volume that is written to while its slow device is missing: which slow device it takes back, wherever a crash fell,
//! and what becomes of what was written.

use crate::story::{BLOCK, CHUNK, Story, all};
use bimetal_engine::action::RequestError;
use bimetal_engine::options::OpenError;
use bimetal_torture::disk::{CutStyle, Disk};
use bimetal_torture::world::Death;
use bimetal_units::{FAST, Nanos};

const CUTS: [Death; 3] =
    [Death::Kill, Death::PowerCut(CutStyle::LoseAll), Death::PowerCut(CutStyle::KeepAll)];

/// A volume with a chunk of 0x11 at home on the slow tier, closed; and where it is.
fn begin() -> (Story, u64) {
    let mut s = Story::begin(32, 32);
    let slow = s.slow_chunk();
    s.write(slow, CHUNK, 0x11);
    s.flush();
    s.wait(Nanos::SECOND);
    assert!(s.is_slow(slow), "it is merged");
    s.stop();
    s.die(Death::Kill);
    (s, slow)
}

/// Writes a block over what is at home on the slow tier, alone, and dies.
fn write_alone(s: &mut Story, slow: u64, block: u64, fill: u8) {
    s.open_alone().expect("it opens alone");
    let at = slow + block * BLOCK;
    s.write(at, BLOCK, fill);
    s.flush();
    assert!(all(&s.read(at, BLOCK).expect("what was written can be read"), fill));
    assert_eq!(s.read(slow + 5 * BLOCK, BLOCK), Err(RequestError::Io), "it is on the device that is missing");
    s.die(Death::PowerCut(CutStyle::LoseAll));
}

/// Opens it with both: what was written alone is there, and the rest is as it was.
fn is_whole(s: &mut Story, slow: u64, fills: &[(u64, u8)]) {
    s.open().expect("it opens with both");
    for block in 0..CHUNK / BLOCK {
        let fill = fills.iter().find(|(at, _)| *at == block).map_or(0x11, |(_, fill)| *fill);
        assert!(all(&s.read(slow + block * BLOCK, BLOCK).expect("it can be read"), fill), "block {block}");
    }
    s.stop();
    assert_eq!(s.check(), Ok(Vec::new()));
    s.die(Death::Kill);
}

/// Refuses this one in the slow device's place, and says which of the two is the wrong one.
fn is_refused(s: &mut Story, slow_disk: &Disk, wrong: &str) {
    let own = s.world.disks[1].clone();
    s.world.disks[1].clone_from(slow_disk);
    let error = s.open().expect_err("another slow device");
    assert!(matches!(&error, OpenError::OtherGeneration { device, .. } if device == wrong), "{error}");
    s.die(Death::Kill);
    s.world.disks[1] = own;
}

#[test]
fn the_slow_device_comes_back_as_it_was_left_or_not_at_all() {
    let (mut s, slow) = begin();
    let older = s.world.disks[1].clone();
    s.open().expect("it opens");
    s.stop();
    s.die(Death::Kill);
    let pair = s.world.disks.clone();
    // A copy of both is used elsewhere, and so is the slow device.
    s.open().expect("it opens");
    s.write(slow + 2 * BLOCK, BLOCK, 0x99);
    s.stop();
    s.die(Death::Kill);
    let used = std::mem::replace(&mut s.world.disks, pair)[1].clone();
    write_alone(&mut s, slow, 0, 0x22);
    let fast = s.world.disks[0].clone();
    write_alone(&mut s, slow, 1, 0x33);
    for other in [&older, &used] {
        is_refused(&mut s, other, "slow");
    }
    is_whole(&mut s, slow, &[(0, 0x22), (1, 0x33)]);
    let after = s.world.disks[1].clone();
    // An older fast device left the same slow one behind, which is not that any more.
    s.world.disks[0] = fast;
    is_refused(&mut s, &after, "fast");
}

/// Cuts an opening short at each of its steps, on the same devices, in each way.
fn cut_everywhere(
    begin: impl Fn() -> (Story, u64),
    open_until: impl Fn(&mut Story, u32, Death) -> bool,
    then: impl Fn(&mut Story, u64),
) {
    for death in CUTS {
        let (mut s, slow) = begin();
        let disks = s.world.disks.clone();
        for steps in 0.. {
            s.world.disks.clone_from(&disks);
            if !open_until(&mut s, steps, death) {
                assert!(steps > 8, "an opening has steps");
                break;
            }
            then(&mut s, slow);
        }
    }
}

#[test]
fn wherever_an_opening_alone_is_cut_short_nothing_is_lost() {
    let opened = || {
        let (mut s, slow) = begin();
        s.open().expect("it opens");
        s.die(Death::Kill);
        (s, slow)
    };
    cut_everywhere(opened, Story::open_alone_until, |s, slow| {
        let cut = s.world.disks.clone();
        is_whole(s, slow, &[]);
        s.world.disks = cut;
        write_alone(s, slow, 0, 0x22);
        is_whole(s, slow, &[(0, 0x22)]);
    });
}

#[test]
fn wherever_the_opening_that_takes_it_back_is_cut_short_nothing_is_lost() {
    let written = || {
        let (mut s, slow) = begin();
        write_alone(&mut s, slow, 0, 0x22);
        (s, slow)
    };
    cut_everywhere(written, Story::open_until, |s, slow| {
        let cut = s.world.disks.clone();
        is_whole(s, slow, &[(0, 0x22)]);
        // It is missing again, and once more.
        s.world.disks = cut;
        write_alone(s, slow, 1, 0x33);
        write_alone(s, slow, 2, 0x44);
        is_whole(s, slow, &[(0, 0x22), (1, 0x33), (2, 0x44)]);
    });
}

#[test]
fn what_has_no_room_is_refused_and_however_often_it_is_opened_alone_it_opens_with_both() {
    let (mut s, slow) = begin();
    s.open().expect("it opens");
    let size = s.engine().size_bytes();
    let mut chunks = (0..size).step_by(CHUNK as usize);
    let fast = chunks.find(|at| s.home_of(*at).0 == FAST).expect("a chunk on the fast tier");
    s.stop();
    s.die(Death::Kill);
    s.open_alone().expect("it opens alone");
    let mut fills = Vec::new();
    let full = loop {
        let (at, fill) = (fills.len() as u64 % (CHUNK / BLOCK), fills.len() as u8);
        if let Err(error) = s.write_bytes(slow + at * BLOCK, &[fill; BLOCK as usize]) {
            break error;
        }
        s.flush();
        fills.push((at, fill));
        assert!(fills.len() < 10_000, "there is no end to the room");
    };
    assert_eq!(full, RequestError::NoSpace);
    // What is in place on the fast device goes on.
    s.write(fast, CHUNK, 0x55);
    s.flush();
    for death in CUTS.into_iter().cycle().take(60) {
        s.die(death);
        s.open_alone().expect("it opens alone");
        let write = s.write_bytes(slow, &[0x66; BLOCK as usize]);
        assert!(matches!(write, Ok(()) | Err(RequestError::NoSpace | RequestError::ReadOnly)), "{write:?}");
        assert!(all(&s.read(fast, CHUNK).expect("it can be read"), 0x55));
    }
    s.die(Death::Kill);
    s.open().expect("it opens with both");
    s.wait(10 * Nanos::SECOND);
    for (at, fill) in fills.iter().rev().take((CHUNK / BLOCK) as usize).filter(|(at, _)| *at > 0) {
        assert!(all(&s.read(slow + at * BLOCK, BLOCK).expect("it can be read"), *fill), "block {at}");
    }
    assert_eq!(s.engine().status().landed_bytes, 0, "what landed is merged");
    s.stop();
    assert_eq!(s.check(), Ok(Vec::new()));
}
