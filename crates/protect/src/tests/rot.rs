//! What rots in the ring is not brought to the copy: it is lost to the image until the next one, which has it from the fast device.

use super::life::born;
use crate::Protection;
use crate::bugs::{Bug, plant};

use crate::epoch::Phase;

/// Lives that are looked at.
const LIVES: u64 = 12;
/// Turns of each.
const TURNS: u32 = 3_000;

/// A life in which something in the ring rots now and then that is to go to the copy. Gives how often it was to go there.
fn live(seed: u64) -> Result<u32, String> {
    let mut life = born(seed);
    let mut protection = life.protection();
    life.fail(None);
    let (mut rotted, mut number) = (0, 0);
    for turn in 0..TURNS {
        life.turn(&mut protection);
        life.wrong().map_or(Ok(()), Err)?;
        let applies = matches!(protection.phase, Phase::Applying { .. });
        let image = protection.progress().image.map_or(0, |image| image.number);
        if applies && image != number {
            let held = protection.unapplied.iter().find_map(|(_, held)| held.at());
            held.into_iter().for_each(|at| life.rot(at));
            (rotted, number) = (rotted + u32::from(held.is_some()), image);
        }
        if turn % 8 == 0 {
            life.is_image_good()?;
        }
    }
    let is_whole = |protection: &Protection| {
        protection.image_lost.iter().next().is_none() && matches!(protection.phase, Phase::Resting)
    };
    for _ in 0..TURNS {
        if is_whole(&protection) {
            break;
        }
        life.turn(&mut protection);
    }
    life.crash()?;
    is_whole(&protection).then_some(rotted).ok_or_else(|| "no later image is whole".into())
}

#[test]
fn what_rots_in_the_ring_does_not_reach_the_copy() {
    let rotted: u32 =
        (0..LIVES).map(|seed| live(seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"))).sum();
    assert!(rotted > 10, "{rotted}");
    plant(Some(Bug::RotApplied));
    let found = (0..LIVES).find_map(|seed| live(seed).err());
    plant(None);
    assert!(found.is_some_and(|what| what.contains("not one of")), "it would not be seen");
}
