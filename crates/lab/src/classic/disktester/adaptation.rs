//! Whether a volume migrates: the story of a self-built fused volume that only looked as if it did (diglloyd, 2012).
//!
//! Files are created until the fast tier is full and some more; of these the last are read again and again, left alone,
//! and read once more. On a volume that spills they stay as slow as they were; on one that migrates they become quick.

use super::fill::{Cliff, has_fallen, shape};
use super::idle::{Idle, IdleRule};
use super::pass::Deed;
use super::table::{MB, elapsed, mb_per_s, quantity, speed};
use super::tester::{Tester, TesterError};
use crate::load::LoadTarget;
use crate::record::JobRun;
use serde::Serialize;
use std::ops::Range;

/// So many of all files are the late ones: in the story a hundred of 2,100.
const LATE_SHARE: u64 = 20;
/// And no fewer.
const LATE_LEAST: u64 = 3;
/// What the first files are read faster than this many times the late ones is a difference that can be told.
const TELLING: f64 = 1.33;
/// Late files have risen when at least so much of their bytes must come from the fast tier, for them to be read so fast.
const RISEN_SHARE: f64 = 0.5;
/// And have not when no more than this does: what a device differs by between two readings.
const STAYED_SHARE: f64 = 0.25;

/// How the story is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptationPlan {
    /// All files of the layout are created; else only so many as are needed to see the fast tier full.
    pub all_files: bool,
    /// How often the late files are read before they are left alone.
    pub reads: u32,
    /// How often they are left alone, and read again.
    pub rounds: u32,
    /// For how long.
    pub rest: IdleRule,
}

/// One reading.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// What was read.
    pub name: String,
    /// When it began, since the test did.
    pub began_seconds: f64,
    /// How long it took.
    pub seconds: f64,
    /// How fast it was.
    pub mb_per_s: f64,
}

impl Step {
    fn new(ran: &JobRun) -> Step {
        let bytes = ran.read.bytes + ran.write.bytes;
        Step {
            name: ran.name.clone(),
            began_seconds: ran.began_ns as f64 / 1e9,
            seconds: ran.elapsed_ns as f64 / 1e9,
            mb_per_s: mb_per_s(bytes, ran.elapsed_ns),
        }
    }
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Adaptation {
    /// Files that were created, and bytes of each.
    pub files: u64,
    /// Bytes of each.
    pub file_bytes: u64,
    /// The last so many are the late ones.
    pub late_files: u64,
    /// Where the creation of files became slow.
    pub cliff: Option<Cliff>,
    /// The speed at which the first files were read.
    pub fast_mb_per_s: f64,
    /// The speed at which the late ones were read at first.
    pub slow_mb_per_s: f64,
    /// The readings of the late files, in order.
    pub late: Vec<Step>,
    /// The rests between them.
    pub rests: Vec<Idle>,
    /// Whether it migrates; `None` where that cannot be told.
    pub migrates: Option<bool>,
    /// When the late files had risen, counted from their first reading.
    pub after_seconds: Option<f64>,
    /// How fast they rose, at least.
    pub rise_mb_per_s: Option<f64>,
    /// The best speed of a later reading.
    pub best_mb_per_s: f64,
    /// All of it in a sentence.
    pub verdict: String,
}

/// Tells the story on a target.
///
/// # Errors
/// When it cannot be loaded.
pub fn adaptation<T: LoadTarget>(
    tester: &mut Tester<'_, T>,
    plan: &AdaptationPlan,
) -> Result<Adaptation, TesterError> {
    let mut found = Adaptation { file_bytes: tester.layout().file_bytes, ..Adaptation::default() };
    tell(tester, plan, &mut found)?;
    judge(&mut found);
    tester.say("");
    tester.say(&found.verdict);
    Ok(found)
}

fn tell<T: LoadTarget>(
    tester: &mut Tester<'_, T>,
    plan: &AdaptationPlan,
    found: &mut Adaptation,
) -> Result<(), TesterError> {
    let count = tester.layout().count;
    let side = |files: usize| late(files as u64) as usize;
    let mut enough = |files_ns: &[u64]| !plan.all_files && has_fallen(files_ns, side(files_ns.len()));
    let files_ns = tester.pass_until("create files", Deed::Write, 0..count, &mut enough)?.files_ns.clone();
    found.files = files_ns.len() as u64;
    found.late_files = late(found.files).min(found.files);
    found.cliff = shape(&files_ns, files_ns.len(), found.file_bytes).0;
    let files = 0..found.files;
    let late = files.end - found.late_files..files.end;
    if tester.is_over() {
        return Ok(());
    }
    found.fast_mb_per_s =
        Step::new(tester.pass("read the first files", Deed::Read, 0..found.late_files)?).mb_per_s;
    for nth in 1..=plan.reads {
        if !read(tester, found, &late, format!("read the late files, {nth} of {}", plan.reads))? {
            return Ok(());
        }
    }
    for nth in 1..=plan.rounds {
        found.rests.push(tester.idle(&plan.rest)?);
        let name = format!("read the late files after rest {nth} of {}", plan.rounds);
        if tester.is_over() || !read(tester, found, &late, name)? {
            return Ok(());
        }
    }
    Ok(())
}

/// Reads the late files; whether to go on.
fn read<T: LoadTarget>(
    tester: &mut Tester<'_, T>,
    found: &mut Adaptation,
    late: &Range<u64>,
    name: String,
) -> Result<bool, TesterError> {
    if tester.is_over() {
        return Ok(false);
    }
    found.late.push(Step::new(tester.pass(&name, Deed::Read, late.clone())?));
    Ok(!tester.is_over())
}

fn late(files: u64) -> u64 {
    (files / LATE_SHARE).max(LATE_LEAST)
}

/// The share of the bytes that must have come from the fast tier, for a reading to be so fast.
fn risen(found: &Adaptation, mb_per_s: f64) -> f64 {
    let time = |mb_per_s: f64| 1.0 / mb_per_s.max(1e-9);
    let distance = time(found.slow_mb_per_s) - time(found.fast_mb_per_s);
    ((time(found.slow_mb_per_s) - time(mb_per_s)) / distance).clamp(0.0, 1.0)
}

/// Says what the readings mean.
fn judge(found: &mut Adaptation) {
    let Some(first) = found.late.first() else {
        found.verdict = "it was ended before the late files were read; nothing can be said".to_owned();
        return;
    };
    found.slow_mb_per_s = first.mb_per_s;
    let since = first.began_seconds;
    let later = &found.late[1..];
    found.best_mb_per_s = later.iter().map(|step| step.mb_per_s).fold(0.0, f64::max);
    let (fast, slow, best) = (found.fast_mb_per_s, found.slow_mb_per_s, found.best_mb_per_s);
    if fast < slow * TELLING {
        found.verdict = format!(
            "it cannot be told whether this volume migrates: the first files are read at {} MB/s and the late ones at \
             {}, so nothing lies where it is slow; create more or larger files, beyond the fast tier",
            speed(fast),
            speed(slow)
        );
        return;
    }
    let at = found.late[1..].iter().position(|step| risen(found, step.mb_per_s) >= RISEN_SHARE);
    let Some(at) = at.map(|at| at + 1) else {
        let rested: f64 = found.rests.iter().map(|rest| rest.seconds).sum();
        if later.is_empty() || found.rests.is_empty() {
            found.verdict =
                "it was ended before the late files were left alone; nothing can be said".to_owned();
            return;
        }
        if risen(found, best) > STAYED_SHARE {
            found.verdict = format!(
                "it cannot be told yet whether this volume migrates: the late files are read at up to {} MB/s, at first at \
                 {}, the first files at {}; leave it alone for longer, or for more rounds",
                speed(best),
                speed(slow),
                speed(fast)
            );
            return;
        }
        found.migrates = Some(false);
        found.verdict = format!(
            "this volume does not migrate: the late files, read {} times and left alone for {}, are still read at {} \
             MB/s (at first {}), the first files at {}; what came late stays slow, as on a concatenation",
            found.late.len(),
            elapsed((rested * 1e9) as u64),
            speed(best),
            speed(slow),
            speed(fast)
        );
        return;
    };
    found.migrates = Some(true);
    let step = &found.late[at];
    found.after_seconds = Some(step.began_seconds - since);
    let bytes = risen(found, step.mb_per_s) * (found.late_files * found.file_bytes) as f64;
    let before = &found.late[at - 1];
    // It rose while the files were read before, or between: at least so fast. A target that tells does better, and one
    // that tells of next to nothing has not risen meanwhile.
    let moved = |rest: &Idle| (rest.did.promoted_bytes + rest.did.copied_bytes) as f64;
    let between = before.began_seconds..step.began_seconds;
    let rest = found.rests.iter().find(|rest| between.contains(&rest.began_seconds));
    let rest = rest.filter(|rest| !rest.told || rest.did.device_bytes > 0 || moved(rest) >= bytes / 2.0);
    let (rose, seconds) = match rest {
        Some(rest) if moved(rest) > 0.0 => (moved(rest), rest.busy_seconds),
        _ => (bytes, step.began_seconds - before.began_seconds),
    };
    found.rise_mb_per_s = (seconds > 0.0).then(|| rose / MB / seconds);
    let when = match rest {
        Some(_) => "while it was left alone",
        None => "while they were read",
    };
    found.verdict = format!(
        "this volume migrates: {} after their first reading, {when}, the late files had risen, at {} MB/s; they are read \
         at up to {} MB/s instead of {}, the first files at {}",
        elapsed(((step.began_seconds - since) * 1e9) as u64),
        found.rise_mb_per_s.map_or_else(|| "-".to_owned(), speed),
        speed(best),
        speed(slow),
        speed(fast)
    );
}

impl Adaptation {
    /// The readings, one below the other.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "{} files of {}, the last {} of them late; {}",
            self.files,
            quantity(self.file_bytes),
            self.late_files,
            match &self.cliff {
                Some(cliff) => format!(
                    "written at {} MB/s up to {}, then at {}",
                    speed(cliff.before_mb_per_s),
                    quantity(cliff.at_bytes),
                    speed(cliff.after_mb_per_s)
                ),
                None => "written without a cliff".to_owned(),
            }
        )];
        lines.push(format!("{:>8} MB/s  read the first files", speed(self.fast_mb_per_s)));
        lines.extend(self.late.iter().map(|step| {
            format!(
                "{:>8} MB/s  {}, {} after the beginning",
                speed(step.mb_per_s),
                step.name,
                elapsed((step.began_seconds * 1e9) as u64)
            )
        }));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(speeds: &[f64], rests: usize) -> Adaptation {
        let step = |(n, &mb_per_s): (usize, &f64)| Step {
            name: String::new(),
            began_seconds: 100.0 * n as f64,
            seconds: 10.0,
            mb_per_s,
        };
        let rule = IdleRule { quiet_ns: 1, most_ns: 1, untold_ns: 1 };
        let rest = |n: usize| {
            let mut idle = Idle::new((100 * (speeds.len() - rests + n) - 60) as u64 * 1_000_000_000, &rule);
            idle.seconds = 50.0;
            idle
        };
        let mut found = Adaptation {
            files: 100,
            file_bytes: 1 << 20,
            late_files: 5,
            fast_mb_per_s: 500.0,
            late: speeds.iter().enumerate().map(step).collect(),
            rests: (0..rests).map(rest).collect(),
            ..Adaptation::default()
        };
        judge(&mut found);
        found
    }

    #[test]
    fn what_readings_mean() {
        let spills = found(&[100.0, 101.0, 99.0, 108.0], 1);
        assert_eq!(spills.migrates, Some(false), "{}", spills.verdict);
        let rises = found(&[100.0, 101.0, 99.0, 450.0], 1);
        assert_eq!((rises.migrates, rises.after_seconds), (Some(true), Some(300.0)), "{}", rises.verdict);
        assert!(rises.verdict.contains("while it was left alone"), "{}", rises.verdict);
        let at_once = found(&[100.0, 400.0, 500.0, 500.0], 1);
        assert!(at_once.verdict.contains("while they were read"), "{}", at_once.verdict);
        assert_eq!(at_once.after_seconds, Some(100.0));
        let half = found(&[100.0, 101.0, 140.0], 1);
        assert_eq!(half.migrates, None, "{}", half.verdict);
        for untold in
            [found(&[450.0, 500.0, 500.0], 1), found(&[100.0], 0), found(&[], 0), found(&[100.0, 100.0], 0)]
        {
            assert_eq!(untold.migrates, None, "{}", untold.verdict);
        }
    }
}
