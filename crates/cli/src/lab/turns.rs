//! Two targets in turn.

use anyhow::bail;
use bimetal_lab::record::Run;

/// Runs both of two targets so many times; `once` is told which of them, the round, counted from 0, and that in words.
pub(super) fn in_turns(
    rounds: u32,
    mut once: impl FnMut(usize, u32, &str) -> anyhow::Result<Run>,
) -> anyhow::Result<[Vec<Run>; 2]> {
    let mut ran: [Vec<Run>; 2] = Default::default();
    for round in 0..rounds {
        let what = format!("round {} of {rounds}", round + 1);
        // Who goes first changes, so that what one leaves behind meets both alike.
        for which in if round.is_multiple_of(2) { [0, 1] } else { [1, 0] } {
            let run = once(which, round, &what)?;
            if run.interrupted {
                bail!("interrupted in {what}; nothing can be said of fewer rounds than were asked for");
            }
            ran[which].push(run);
        }
    }
    Ok(ran)
}
