//! The curves.

use super::run::Found;
use super::verdict::Pass;
use crate::record::{JobRun, Run};
use crate::report::{Axis, Extra, Figure, FigureLine, Table, Unit};

/// Points of a line at most.
const MAX_POINTS: usize = 600;

/// The page's table and plots: speed over time, and by place.
pub fn extra(found: &Found, run: &Run) -> Extra {
    Extra {
        title: "Torture and recovery".to_owned(),
        findings: found.verdict.iter().flat_map(|verdict| verdict.sentences.clone()).collect(),
        tables: vec![table(found)],
        figures: vec![over_time(run), by_place(found)],
        ..Extra::default()
    }
}

fn passes(found: &Found) -> impl Iterator<Item = &Pass> {
    std::iter::once(&found.fresh).chain(&found.after_torture).chain(&found.after_trim)
}

fn table(found: &Found) -> Table {
    let row = |pass: &Pass| {
        let back = pass
            .back
            .map_or("no".to_owned(), |back| format!("after {:.2} GB", back.after_bytes as f64 / 1e9));
        vec![
            pass.name.clone(),
            format!("{:.1}", pass.mb_per_s),
            format!("{:.0} %", pass.share_at_first * 100.0),
            format!("{:.0} %", pass.share_of_fresh * 100.0),
            back,
        ]
    };
    Table {
        caption: "Passes in order".to_owned(),
        head: ["pass", "MB/s", "of fresh at first", "of fresh", "at 90 % of fresh"].map(str::to_owned).into(),
        rows: passes(found).map(row).collect(),
    }
}

fn speed_axis() -> Axis {
    Axis { label: "MB/s".to_owned(), unit: Unit::Count, log: false }
}

fn over_time(run: &Run) -> Figure {
    let writes = run.jobs.iter().filter(|job| job.write.ios > 0);
    Figure {
        id: "torture-time".to_owned(),
        title: "Speed over time".to_owned(),
        x: Axis { label: "time".to_owned(), unit: Unit::Nanoseconds, log: false },
        y: speed_axis(),
        lines: writes.map(|job| FigureLine { label: job.name.clone(), points: points(job) }).collect(),
        marks: Vec::new(),
    }
}

/// The speed of each part of a pass, or of each interval of another job, at its end.
fn points(job: &JobRun) -> Vec<(f64, f64)> {
    let mut at_ns = job.began_ns;
    let steps: Vec<(u64, u64)> = match job.files_ns.as_slice() {
        [] => job.intervals.iter().map(|interval| (job.interval_ns, interval.write.bytes)).collect(),
        files => files.iter().map(|&ns| (ns, job.file_bytes)).collect(),
    };
    let group = steps.len().div_ceil(MAX_POINTS).max(1);
    let end_ns = job.began_ns + job.elapsed_ns;
    let point = |steps: &[(u64, u64)]| {
        let (from_ns, bytes) = (at_ns, steps.iter().map(|step| step.1).sum::<u64>());
        at_ns = (at_ns + steps.iter().map(|step| step.0).sum::<u64>()).min(end_ns);
        (at_ns as f64, bytes as f64 * 1e3 / at_ns.saturating_sub(from_ns).max(1) as f64)
    };
    steps.chunks(group).map(point).collect()
}

fn by_place(found: &Found) -> Figure {
    let line = |pass: &Pass| {
        let count = pass.parts_mb_per_s.len().max(1) as f64;
        let points = pass.parts_mb_per_s.iter().enumerate();
        let points = points.map(|(n, &speed)| ((n as f64 + 0.5) / count * 100.0, speed)).collect();
        FigureLine { label: pass.name.clone(), points }
    };
    Figure {
        id: "torture-place".to_owned(),
        title: "Passes in order, by place".to_owned(),
        x: Axis { label: "place on the target".to_owned(), unit: Unit::Percent, log: false },
        y: speed_axis(),
        lines: passes(found).filter(|pass| !pass.parts_mb_per_s.is_empty()).map(line).collect(),
        marks: Vec::new(),
    }
}
