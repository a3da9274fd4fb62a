//! Writes that were answered, and not flushed, when the process was killed. As a rule they may be gone. A client that goes
//! on over the kill, as the kernel does with a device of the machine, never asks again whether they are there.

use crate::story::{BLOCK, CHUNK, Story};
use bimetal_engine::action::RequestKind;
use bimetal_torture::disk::CutStyle;
use bimetal_torture::world::Death;
use bimetal_units::Nanos;
use bimetal_units::rng::Rng;

/// A volume whose streams begin at a chunk.
fn story() -> Story {
    let mut s = Story::begin(40, 60);
    s.stop();
    s.tuning.economy.stream_bytes = CHUNK;
    s.open().expect("the volume opens");
    s
}

fn reads(s: &mut Story, offset: u64, len: u64, byte: u8) -> bool {
    s.read(offset, len).expect("it can be read").iter().all(|at| *at == byte)
}

/// A first write into a fast slot was answered before any record said so, and a killed server's successor found zeros. The
/// kernel had been told that it was written.
#[test]
fn what_is_answered_outlives_a_kill_where_that_is_asked_for() {
    for asked in [false, true] {
        let mut s = story();
        if asked {
            s.engine().outlive_kills();
        }
        s.write(0, CHUNK / 2, 0x33);
        s.die(Death::Kill);
        s.open().expect("the volume opens");
        assert_eq!(reads(&mut s, 0, CHUNK / 2, 0x33), asked);
    }
}

/// It costs nothing of what a flush promises, and promises nothing of what only a flush does.
#[test]
fn a_power_cut_still_takes_what_was_not_flushed() {
    let mut s = story();
    s.engine().outlive_kills();
    s.write(0, BLOCK, 0x33);
    s.flush();
    s.write(0, BLOCK, 0x44);
    s.die(Death::PowerCut(CutStyle::LoseAll));
    s.open().expect("the volume opens");
    assert!(reads(&mut s, 0, BLOCK, 0x33));
}

/// What the volume holds, by sectors of 512 bytes.
struct Model(Vec<u8>);

impl Model {
    fn range(&mut self, offset: u64, len: u64) -> &mut [u8] {
        &mut self.0[(offset / 512) as usize..((offset + len) / 512) as usize]
    }

    fn holds(&self, s: &mut Story) -> Result<(), u64> {
        for (place, want) in self.0.chunks((CHUNK / 512) as usize).enumerate() {
            let at = place as u64 * CHUNK;
            let bytes = s.read(at, CHUNK).expect("it can be read");
            let sector =
                bytes.chunks(512).zip(want).position(|(is, want)| is.iter().any(|byte| byte != want));
            if let Some(sector) = sector {
                return Err(at + sector as u64 * 512);
            }
        }
        Ok(())
    }
}

/// One write, discard or zeroing of any size, answered.
fn change(s: &mut Story, model: &mut Model, rng: &mut Rng, fill: u8) {
    let size = model.0.len() as u64 * 512;
    let unit = [512, BLOCK, CHUNK / 2, CHUNK, 2 * CHUNK][rng.below(5) as usize];
    let len = unit * (1 + rng.below(3));
    let offset = rng.below((size - len) / unit) * unit;
    let (kind, byte) = match rng.below(8) {
        0 if unit >= BLOCK => (RequestKind::Discard { fua: false }, 0),
        1 => (RequestKind::WriteZeroes { fua: false }, 0),
        _ => (RequestKind::Write { fua: false }, fill),
    };
    let asked = s.ask(kind, offset, len, byte);
    s.answer(asked).expect("it succeeds");
    model.range(offset, len).fill(byte);
    match rng.below(12) {
        0 => s.flush(),
        1 => s.wait(Nanos::SECOND * 2),
        _ => {}
    }
}

#[test]
fn any_change_that_is_answered_outlives_kills() {
    let seed = std::env::var("SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_260);
    println!("SEED={seed}");
    for case in 0..40 {
        let mut rng = Rng::new(seed + case, 0);
        let mut s = story();
        let mut model = Model(vec![0; (s.engine().size_bytes().min(64 * CHUNK) / 512) as usize]);
        for life in 0..4u8 {
            s.engine().outlive_kills();
            for n in 0..1 + rng.below(30) as u8 {
                change(&mut s, &mut model, &mut rng, 1 + life * 60 + n);
            }
            s.die(Death::Kill);
            s.open().expect("the volume opens");
            if let Err(at) = model.holds(&mut s) {
                panic!("SEED={}: byte {at} is not what was written, after life {life}", seed + case);
            }
        }
    }
}
