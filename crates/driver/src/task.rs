//! Running a task of the engine (create, open, check) to its end.

use crate::driver::Driver;
use crate::memory::RealArena;
use crate::watch::Change;
use bimetal_engine::Task;
use std::io;
use std::time::Duration;

/// Why a task did not come to an end.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The ring failed.
    #[error("io_uring failed: {0}")]
    Ring(#[from] io::Error),
    /// The task waits for nothing: a bug, said rather than hung on.
    #[error("the operation stopped without a result")]
    Stalled,
}

/// Longest wait without looking again.
const TICK: Duration = Duration::from_secs(1);

/// Serves the task until it has a result. `progress` is called now and then, at least once a second, with the bytes
/// that went to and from the devices so far, and with what has happened to exports since.
pub fn run_task<T>(
    driver: &mut Driver,
    mut task: Task<RealArena, T>,
    mut progress: impl FnMut(u64, Vec<Change>),
) -> Result<T, TaskError> {
    loop {
        progress(driver.moved_bytes(), driver.take_changes());
        driver.pump(&mut task, |_, _, _| {});
        if driver.device_ops() == 0 {
            if let Some(result) = task.take_result() {
                progress(driver.moved_bytes(), driver.take_changes());
                return Ok(result);
            }
            if driver.deadline(&task).is_none() && driver.replacement().is_none() {
                return Err(TaskError::Stalled);
            }
        }
        driver.wait(&task, Some(TICK))?;
        driver.harvest(&mut task, |_| {});
    }
}
