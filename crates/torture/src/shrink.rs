//! Makes a failing plan short: drops whatever is not needed for it to fail.

use super::plan::{Life, Op, Opening, Plan};
use crate::world::FaultRates;
use crate::world::storm::{Storm, Weather};

/// Runs that shrinking may take.
pub const BUDGET: u32 = 600;

/// The shortest failing plan found, with what it fails with. `fails` runs a plan and says how it
/// fails and in which life.
pub fn shrink(
    plan: Plan,
    what: String,
    life: usize,
    fails: impl FnMut(&Plan) -> Option<(String, usize)>,
) -> (Plan, String) {
    let mut s = Shrinker { best: plan, what, left: BUDGET, fails };
    s.best.lives.truncate(life + 1);
    let truncated = s.best.clone();
    s.attempt(truncated);
    s.lives();
    for _ in 0..2 {
        s.operations();
        s.details();
    }
    s.lengths();
    (s.best, s.what)
}

struct Shrinker<F> {
    best: Plan,
    what: String,
    left: u32,
    fails: F,
}

impl<F: FnMut(&Plan) -> Option<(String, usize)>> Shrinker<F> {
    /// Keeps a plan if it still fails, in whatever way.
    fn attempt(&mut self, mut plan: Plan) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        match (self.fails)(&plan) {
            Some((what, life)) => {
                // Lives after the failing one are not needed, unless closing is what fails.
                let failing = life + 1;
                if failing < plan.lives.len() {
                    plan.lives.truncate(failing.max(1));
                }
                self.what = what;
                self.best = plan;
                true
            }
            None => false,
        }
    }

    fn lives(&mut self) {
        let mut i = 0;
        while i < self.best.lives.len() {
            let mut plan = self.best.clone();
            plan.lives.remove(i);
            if !self.attempt(plan) {
                i += 1;
            }
        }
    }

    /// Drops operations, in ever smaller runs, the last life's first.
    fn operations(&mut self) {
        for life in (0..self.best.lives.len()).rev() {
            let mut step = self.best.lives.get(life).map_or(0, |l| l.ops.len()).div_ceil(2);
            while step > 0 {
                self.drop_runs(life, step);
                step /= 2;
            }
        }
    }

    fn drop_runs(&mut self, life: usize, step: usize) {
        let mut at = 0;
        while life < self.best.lives.len() && at < self.best.lives[life].ops.len() {
            let mut plan = self.best.clone();
            let l = &mut plan.lives[life];
            let end = (at + step).min(l.ops.len());
            l.ops.drain(at..end);
            l.after = l.after.saturating_sub((end - at) as u32);
            if !self.attempt(plan) {
                at += step;
            }
            if self.left == 0 {
                return;
            }
        }
    }

    fn details(&mut self) {
        for life in 0..self.best.lives.len() {
            self.simplify(life, |l| l.depth = 1);
            self.simplify(life, |l| l.opening = Opening::default());
            self.simplify(life, |l| l.limits = None);
            self.simplify(life, |l| l.alone = false);
            self.simplify(life, |l| l.lone = false);
            self.simplify(life, |l| l.decays = 0);
            self.simplify(life, |l| l.torn_sectors = 0);
            self.simplify(life, |l| l.opening.crashes.clear());
            self.simplify(life, |l| l.opening.raises.clear());
            self.simplify(life, |l| l.pair = None);
            self.simplify(life, |l| l.opening.rates = None);
            self.simplify(life, |l| l.opening.storm_crash = None);
            self.simplify(life, |l| l.opening.storm.vanish = None);
            self.simplify(life, |l| l.opening.storm.weather = [Weather::default(); 2]);
            self.simplify(life, |l| l.opening.storm.aims.clear());
            self.simplify(life, |l| l.twice = None);
            self.simplify(life, |l| l.check = false);
            self.simplify(life, |l| l.rates = FaultRates::default());
            self.simplify(life, |l| l.storm = Storm::default());
            self.simplify(life, |l| l.storm.vanish = None);
            self.simplify(life, |l| l.storm.blind = None);
            self.simplify(life, |l| l.storm.weather = [Weather::default(); 2]);
            self.simplify(life, |l| l.storm.aims.clear());
            self.simplify(life, |l| l.storm.breaks.clear());
            self.simplify(life, |l| l.storm.breaks.truncate(1));
            self.simplify(life, |l| l.opening.storm.breaks.clear());
            self.simplify(life, |l| l.calm = false);
            self.simplify(life, |l| l.ops.iter_mut().for_each(|op| op.pause_ns = 0));
            self.simplify(life, |l| l.ops.iter_mut().for_each(|op| op.drain = false));
            self.simplify(life, |l| l.points /= 2);
        }
    }

    fn simplify(&mut self, life: usize, f: impl FnOnce(&mut Life)) {
        if let Some(old) = self.best.lives.get(life) {
            let mut plan = self.best.clone();
            f(&mut plan.lives[life]);
            if plan.lives[life] != *old {
                self.attempt(plan);
            }
        }
    }

    /// Halves the lengths of what is left.
    fn lengths(&mut self) {
        for life in 0..self.best.lives.len() {
            for i in 0..self.best.lives.get(life).map_or(0, |l| l.ops.len()) {
                self.shorten(life, i, |op| op.len = op.len.div_ceil(2));
                self.shorten(life, i, |op| op.len = op.len.min(4096));
            }
        }
    }

    fn shorten(&mut self, life: usize, i: usize, f: impl FnOnce(&mut Op)) {
        if self.best.lives.get(life).is_some_and(|l| i < l.ops.len()) {
            self.simplify(life, |l| f(&mut l.ops[i]));
        }
    }
}
