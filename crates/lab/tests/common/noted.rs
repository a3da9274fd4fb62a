//! A target that does nothing, and writes down what it is asked.

use bimetal_lab::load::{LoadTarget, Own, RunError, SlotSpec};
use bimetal_lab::target::Null;
use bimetal_load::{Ended, Target};
use bimetal_models::Command;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

/// What was asked for, by which thread.
pub type Asked = Arc<Mutex<Vec<(ThreadId, Command)>>>;

/// Does nothing, and writes down who asked. Of its jobs' targets, so many cannot be made; or there are none.
#[derive(Default)]
pub struct Noted {
    pub null: Null,
    pub asked: Asked,
    pub broken: usize,
    pub is_one: bool,
}

impl Target for Noted {
    fn now_ns(&mut self) -> u64 {
        self.null.now_ns()
    }

    fn submit(&mut self, slot: u32, place: u32, command: Command) {
        self.asked.lock().expect("nobody panics").push((std::thread::current().id(), command));
        self.null.submit(slot, place, command);
    }

    fn wait(&mut self, until: Option<u64>, ended: &mut Vec<Ended>) -> u64 {
        self.null.wait(until, ended)
    }
}

impl LoadTarget for Noted {
    fn prepare(&mut self, _: &[SlotSpec]) -> Result<(), RunError> {
        Ok(())
    }

    fn apart(&mut self, jobs: usize) -> Option<Vec<Own>> {
        if self.is_one {
            return None;
        }
        let own = |n: usize| -> Own {
            let (asked, broken) = (self.asked.clone(), n < self.broken);
            Box::new(move || match broken {
                true => Err(RunError::Target(format!("there is no {n}"))),
                false => Ok(Box::new(Noted { asked, ..Noted::default() }) as Box<dyn LoadTarget>),
            })
        };
        Some((0..jobs).map(own).collect())
    }
}
