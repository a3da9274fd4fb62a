//! Work on many things of the same kind, on a few threads.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// How often it is said what is waited for.
const BETWEEN: Duration = Duration::from_millis(200);

/// Does something for each item on so many threads; what came of it, in the order of the items. Now and then `waits_for` is
/// told of the first one that is not done.
///
/// # Errors
///
/// An error of one; no other begins then, and those that have begun are waited for.
pub fn side_by_side<I: Sync, T: Send, E: Send>(
    items: &[I],
    threads: NonZeroUsize,
    mut waits_for: impl FnMut(&I),
    work: impl Fn(&I) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let next = AtomicUsize::new(0);
    let mut found: Vec<Option<T>> = items.iter().map(|_| None).collect();
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..threads.get().min(items.len()) {
            let (sender, next, work) = (sender.clone(), &next, &work);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    // Where an error has ended it, nobody receives.
                    let Some(item) = items.get(index) else { break };
                    if sender.send((index, work(item))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        loop {
            match receiver.recv_timeout(BETWEEN) {
                Ok((_, Err(error))) => {
                    next.store(items.len(), Ordering::Relaxed);
                    return Err(error);
                }
                Ok((index, Ok(one))) => found[index] = Some(one),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if let Some((item, _)) = items.iter().zip(&found).find(|(_, found)| found.is_none()) {
                waits_for(item);
            }
        }
    })?;
    Ok(found.into_iter().flatten().collect())
}
