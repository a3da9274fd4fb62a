//! A device takes another's place while nobody serves the volume.

use super::{is_over, successor};
use crate::volume::{self, Volume};
use anyhow::{Context as _, bail};
use bimetal_driver::{Driver, RealArena};
use bimetal_engine::Engine;
use bimetal_replace::Standing;
use bimetal_serve::successor::{ReplaceDoc, Successors as _};
use std::time::{Duration, Instant};

/// Longest wait without looking again.
const TICK: Duration = Duration::from_millis(200);

/// Copies to the end, and lets the successor take over.
pub(super) fn copy(
    volume: &Volume,
    driver: &mut Driver,
    engine: &mut Engine<RealArena>,
    mut told: impl FnMut(&ReplaceDoc),
) -> anyhow::Result<ReplaceDoc> {
    let Some(replacement) = driver.replacement_mut() else { bail!("{} has no successor", volume.name().0) };
    replacement.copy(true);
    let (new, began) = (replacement.plan().new, (Instant::now(), replacement.progress().copied_bytes));
    let mut known = successor::Named::new(volume);
    loop {
        driver.pump(engine, |_, _, _| {});
        let (Some(progress), Some(device)) = (driver.replacement(), driver.successor()) else {
            bail!("{} has no successor any more", volume.name().0)
        };
        let name = device.path().display().to_string();
        let doc = ReplaceDoc::new(&progress, device, Some(began));
        told(&doc);
        match progress.standing {
            Standing::Copying if !is_over(&doc) => {}
            Standing::TakingOver => {}
            Standing::Copying => {
                stop(driver);
                return Ok(doc);
            }
            Standing::Whole => {
                let Some(superblocks) = engine.superblocks() else { bail!("the volume is read-only") };
                driver.begin_takeover(superblocks);
                continue;
            }
            Standing::TakenOver => {
                driver.take_over();
                engine.device_replaced(progress.tier, new, name);
                volume::watch(driver, engine)?;
                known.has_taken_over().map_err(anyhow::Error::msg)?;
                return Ok(doc);
            }
            Standing::Failed(_) => {
                known.given_up().map_err(anyhow::Error::msg)?;
                if let Some(replacement) = driver.replacement_mut() {
                    replacement.settle();
                }
                return Ok(doc);
            }
            Standing::Torn(why) => {
                bail!("{name} failed at the moment at which it took over ({why}); try again")
            }
        }
        driver.wait(engine, Some(TICK)).context("io_uring failed")?;
        driver.harvest(engine, |_| {});
    }
}

/// Begins nothing new.
fn stop(driver: &mut Driver) {
    if let Some(replacement) = driver.replacement_mut() {
        replacement.copy(false);
    }
}
