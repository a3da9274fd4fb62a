//! A client, two devices and a successor in memory: crashes, errors and failures at any moment. After each, every block holds
//! what was flushed or something newer, and keeps it, whichever device is the volume's by then.

mod disk;
mod life;

use crate::bugs::{Bug, plant};
use life::live;

/// Lives in a slice.
const SEEDS: u64 = 1000;
/// Lives after which a planted bug must have been found.
const MOST: u64 = 3_000;

#[test]
fn nothing_flushed_is_lost_whatever_happens_while_a_device_takes_anothers_place() {
    let (mut taken_over, mut crashes) = (0, 0);
    for seed in 0..SEEDS {
        let seen = live(seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        taken_over += u64::from(seen.taken_over);
        crashes += u64::from(seen.crashes);
    }
    assert!(taken_over > SEEDS / 2 && crashes > SEEDS, "{taken_over} took over, {crashes} crashes");
}

#[test]
fn planted_bugs_are_found() {
    let mut lost = Vec::new();
    for &bug in Bug::ALL {
        plant(Some(bug));
        let found = (0..MOST)
            .find(|seed| std::panic::catch_unwind(|| live(*seed)).map_or(true, |lived| lived.is_err()));
        plant(None);
        println!("{bug:?}: {found:?}");
        lost.extend(found.is_none().then_some(bug));
    }
    assert!(lost.is_empty(), "not found: {lost:?}");
}

#[test]
#[ignore]
fn one() {
    let seed = std::env::var("SEED").unwrap().parse().unwrap();
    life::trace(true);
    println!("{:?}", live(seed).map(|_| ()));
}
