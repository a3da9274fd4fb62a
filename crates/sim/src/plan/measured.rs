//! What requests to a served volume were measured to take, and what that makes of the means of its plan.
//!
//! A request takes what the fast device takes, and beside that it may wait for the disk. What a sample is off is how long it
//! waits: that is scaled where some wait with the present fast tier. Where nobody does, what was measured says how fast the fast
//! device is, and nothing of the disk.

use super::PlanRow;
use super::row::LEAST_FAST_BYTES;
use bimetal_models::size;
use serde::Serialize;

/// Answers that a measured mean rests on at least. One response is off the mean by some three times that, so that the mean of
/// a thousand is known to a tenth: no worse than the ratios that it is to be the measure of.
pub const LEAST_ANSWERED: u64 = 1000;
/// Answers to each noted part of a request at most, in tenths: where there are more, they are of a longer time.
const MOST_TENTHS: u64 = 11;

/// A fast tier that serves as much has nobody wait for the disk.
const NOBODY_WAITS: f64 = 0.995;

/// What was measured in the time that a sample is of.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Reads and writes that were answered, of all regions.
    pub answered: u64,
    /// How long they took, on average.
    pub mean_us: f64,
    /// The fast tier that they were measured with.
    pub fast_bytes: u64,
}

/// How the means of a plan stand to what was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// Reads and writes that were answered.
    pub answered: u64,
    /// How long they took, on average.
    pub mean_us: f64,
    /// What the plan makes of that by itself; null where it was not run.
    pub planned_mean_us: Option<f64>,
    /// What was measured in times of that, where means were scaled; null where they were not.
    pub factor: Option<f64>,
    /// Why they were not.
    pub why_not: Option<String>,
}

impl Measured {
    /// Refuses where it can be no measure of what so many parts of requests asked for, of which a share is run.
    pub(super) fn fit(&self, parts: u64, space_share: f64) -> Result<(), String> {
        if self.answered < LEAST_ANSWERED {
            return Err(format!(
                "{} answers were measured, and a mean of less than {LEAST_ANSWERED} is chance",
                self.answered
            ));
        }
        if self.answered / MOST_TENTHS > parts / 10 {
            return Err("answers were measured over a longer time than requests are known of".to_owned());
        }
        if self.fast_bytes as f64 * space_share < LEAST_FAST_BYTES as f64 {
            let size = size::show(self.fast_bytes);
            return Err(format!("the fast tier that it has, of {size}, is too small to be run"));
        }
        Ok(())
    }

    /// What a mean becomes, from what the plan says of the fast tier that there is, and of one of which nobody waits for the disk.
    fn scaled(&self, present: PlanRow, unwaited_us: Option<f64>) -> Result<impl Fn(f64) -> f64, String> {
        if !present.keeps_up {
            let what = "with the fast tier that it has, the modelled slow device does not keep up";
            return Err(what.to_owned());
        }
        let (measured, planned) = (self.mean_us, present.mean_us);
        if measured <= 0.0 || planned <= 0.0 {
            return Err("what was measured or planned takes no time".to_owned());
        }
        let waits = present.fast_share < NOBODY_WAITS;
        let unwaited = if waits { unwaited_us.unwrap_or(0.0) } else { 0.0 };
        if measured <= unwaited || planned <= unwaited {
            return Err("it took less than the modelled fast device takes alone; name others".to_owned());
        }
        let times = (measured - unwaited) / (planned - unwaited);
        Ok(move |mean: f64| match waits {
            true => {
                let unwaited = unwaited.min(mean);
                unwaited + (mean - unwaited) * times
            }
            false => mean + (measured - planned) * (mean / planned).min(1.0),
        })
    }

    /// Scales the means of the rows so that the present one takes what was measured. The first `sizes` are of the same devices.
    pub(super) fn scale(
        &self,
        rows: &mut [PlanRow],
        sizes: usize,
        present: Result<PlanRow, String>,
    ) -> Calibration {
        let unwaited = rows[..sizes].iter().filter(|row| row.fast_share >= NOBODY_WAITS);
        let unwaited = unwaited.map(|row| row.mean_us).min_by(f64::total_cmp);
        let planned_mean_us = present.as_ref().ok().map(|row| row.mean_us);
        let (factor, why_not) = match present.and_then(|row| self.scaled(row, unwaited)) {
            Ok(scaled) => {
                rows.iter_mut().for_each(|row| row.mean_us = scaled(row.mean_us));
                (planned_mean_us.map(|planned| self.mean_us / planned), None)
            }
            Err(why) => (None, Some(why)),
        };
        Calibration { answered: self.answered, mean_us: self.mean_us, planned_mean_us, factor, why_not }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEASURED: Measured = Measured { answered: 1000, mean_us: 300.0, fast_bytes: 256 << 20 };

    fn row(mean_us: f64, fast_share: f64, keeps_up: bool) -> PlanRow {
        PlanRow {
            fast_bytes: 256 << 20,
            fast_model: "ssd".into(),
            slow_model: "disk".into(),
            fast_share,
            lru_share: None,
            mean_us,
            p99_us: 900.0,
            keeps_up,
            wear_bytes_per_day: None,
            lasts_years: None,
            wakeups_per_day: None,
        }
    }

    /// What becomes of rows of these means and hit shares, of which the second is the present one.
    fn scaled(of: &[(f64, f64)]) -> (Vec<f64>, Calibration) {
        let mut rows: Vec<PlanRow> = of.iter().map(|(mean, share)| row(*mean, *share, true)).collect();
        let present = rows[1].clone();
        let found = MEASURED.scale(&mut rows, of.len(), Ok(present));
        assert!(rows.iter().all(|row| row.p99_us == 900.0));
        (rows.iter().map(|row| row.mean_us).collect(), found)
    }

    #[test]
    fn means_are_scaled_to_what_was_measured() {
        let (means, found) = scaled(&[(400.0, 0.5), (200.0, 0.7), (50.0, 0.9)]);
        assert_eq!(means, [600.0, 300.0, 75.0]);
        assert_eq!((found.factor, found.planned_mean_us, found.why_not), (Some(1.5), Some(200.0), None));
        // What nobody waits for is not scaled where somebody waits now.
        let (means, found) = scaled(&[(400.0, 0.5), (200.0, 0.7), (101.0, 1.0), (100.0, 1.0)]);
        assert_eq!((means, found.factor), (vec![700.0, 300.0, 102.0, 100.0], Some(1.5)));
        // Where nobody waits now, how long a disk takes is not known any better.
        let (means, found) = scaled(&[(4000.0, 0.9), (200.0, 1.0), (100.0, 1.0)]);
        assert_eq!((means, found.factor), (vec![4100.0, 300.0, 150.0], Some(1.5)));
    }

    #[test]
    fn what_says_too_little_scales_nothing() {
        let refused = |measured: &Measured, present: Result<PlanRow, String>| {
            let mut rows = vec![row(400.0, 0.9, true), row(301.0, 1.0, true)];
            let found = measured.scale(&mut rows, 2, present);
            assert_eq!((found.factor, rows[0].mean_us), (None, 400.0));
            found.why_not.expect("a reason")
        };
        assert!(refused(&MEASURED, Ok(row(9e6, 0.9, false))).contains("does not keep up"));
        assert!(refused(&MEASURED, Ok(row(0.0, 0.9, true))).contains("no time"));
        assert!(refused(&Measured { mean_us: 0.0, ..MEASURED }, Ok(row(9.0, 0.9, true))).contains("no time"));
        assert!(refused(&MEASURED, Ok(row(350.0, 0.9, true))).contains("name others"));
        assert_eq!(refused(&MEASURED, Err("because".into())), "because");

        assert_eq!(MEASURED.fit(1000, 1.0), Ok(()));
        let few = Measured { answered: 999, ..MEASURED };
        assert!(few.fit(1000, 1.0).expect_err("too few").starts_with("999 answers"));
        let longer = Measured { answered: 2000, ..MEASURED };
        assert!(longer.fit(1000, 1.0).expect_err("too many").contains("longer time"));
        let small = MEASURED.fit(1000, 0.125).expect_err("too small");
        assert!(small.contains("256 MiB"), "{small}");
    }
}
