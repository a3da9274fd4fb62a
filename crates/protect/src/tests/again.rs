//! What failed is tried again: an image that was given up for an error is made anew when devices are well.

use super::life::{Life, born};
use crate::{Protection, Standing};
use bimetal_units::Nanos;

/// Turns in which whatever is waited for here must have come.
const TURNS: u32 = 20_000;
/// A life without bad blocks, whose clients do not wait.
const SEED: u64 = 4;

fn until(
    life: &mut Life,
    protection: &mut Protection,
    what: &str,
    is_so: impl Fn(&Standing) -> bool,
) -> Nanos {
    for _ in 0..TURNS {
        if is_so(&protection.progress().standing) {
            return life.now();
        }
        life.turn(protection);
        assert_eq!(life.wrong(), None);
    }
    panic!("{what}: {}", protection.where_all_stands());
}

#[test]
fn an_image_that_was_given_up_for_an_error_is_made_again() {
    let mut life = born(SEED);
    let mut protection = life.protection();
    life.fail(None);
    until(&mut life, &mut protection, "no image", |standing| *standing == Standing::Image);
    let mut waited = Vec::new();
    for _ in 0..3 {
        life.fail(Some(2));
        let off = |standing: &Standing| matches!(standing, Standing::Off { again_ms: Some(_), .. });
        let failed = until(&mut life, &mut protection, "nothing is given up", off);
        let is_again = |standing: &Standing| !matches!(standing, Standing::Off { .. });
        // As long as devices fail, each new beginning comes later.
        waited.push(
            until(&mut life, &mut protection, "nothing begins anew", is_again).since(failed) / Nanos::SECOND,
        );
    }
    assert!(waited[0] >= 59 && waited[1] >= 119 && waited[2] >= 239, "{waited:?}");
    life.fail(None);
    until(&mut life, &mut protection, "no image after that", |standing| *standing == Standing::Image);
    life.crash().expect("the image is of one moment");
}
