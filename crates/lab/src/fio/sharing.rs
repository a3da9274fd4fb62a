//! Jobs that write where another one verifies, and copies that have nothing to do.

use crate::job::Job;

/// What is to be said, before they run, of jobs that write at the same time to a part of a target where one of them
/// verifies; `names` are those of the targets.
pub fn shared_writes(phases: &[Vec<Job>], names: &[String]) -> Vec<String> {
    let mut said = Vec::new();
    for jobs in phases {
        let mut writers: Vec<&Job> = jobs.iter().filter(|job| job.destroys()).collect();
        writers.sort_by_key(|job| (job.place, job.span.start));
        let mut found: Vec<(u32, &Job, &Job)> = Vec::new();
        // The one that reaches furthest so far, and the one that verifies and does.
        let mut before: [Option<&Job>; 2] = [None; 2];
        for &job in &writers {
            let meets = |other: &&Job| other.place == job.place && other.span.end > job.span.start;
            let other = if job.verify { before[0].filter(meets) } else { before[1].filter(meets) };
            if let Some(other) = other
                && found.last().is_none_or(|found| found.0 != job.place)
            {
                found.push((job.place, other, job));
            }
            for (verifies, furthest) in before.iter_mut().enumerate() {
                let counts = verifies == 0 || job.verify;
                let further =
                    furthest.is_none_or(|one| one.place != job.place || one.span.end < job.span.end);
                if counts && further {
                    *furthest = Some(job);
                }
            }
        }
        said.extend(found.into_iter().map(|(place, one, other)| {
            let name = names.get(place as usize).map_or("their target", String::as_str);
            format!(
                "several jobs (`{}` and `{}` for two) write to the same part of {name}, and what one overwrites, \
                 verify reports as damage; give each a file, or an offset, of its own",
                one.name, other.name
            )
        }));
    }
    said
}

/// What is to be said of copies of a job that begin behind the end of their target.
pub fn idle_copies(phases: &[Vec<Job>]) -> Option<String> {
    let idle = phases.iter().flatten().filter(|job| job.ios == Some(0));
    let names: Vec<&str> = idle.map(|job| job.name.as_str()).collect();
    let first = names.first()?;
    Some(format!(
        "{} copies (of `{first}` for one) do nothing: their offset lies at the end of their target, or behind it",
        names.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Ops;

    fn job(name: &str, place: u32, span: std::ops::Range<u64>, verify: bool) -> Job {
        Job { place, verify, ops: Ops::ReadWrite { read_percent: 0 }, ..Job::new(name, span) }
    }

    #[test]
    fn it_is_said_where_one_verifies_and_another_writes_there() {
        let said = |jobs: Vec<Job>| shared_writes(&[jobs], &["x".into(), "y".into()]).len();
        let a = job("a", 0, 0..100, true);
        assert_eq!(said(vec![a.clone(), job("b", 0, 99..200, true)]), 1);
        assert_eq!(said(vec![job("b", 0, 50..60, false), a.clone()]), 1);
        assert_eq!(said(vec![job("c", 0, 0..300, false), job("b", 0, 10..20, false), a.clone()]), 1);
        assert_eq!(said(vec![job("c", 0, 0..300, false), job("b", 0, 200..210, true), a.clone()]), 1);
        // Another part, another target, nobody who verifies, nobody else who writes.
        assert_eq!(said(vec![a.clone(), job("b", 0, 100..200, true)]), 0);
        assert_eq!(said(vec![a.clone(), job("b", 1, 0..100, true)]), 0);
        assert_eq!(said(vec![job("b", 0, 0..100, false), job("c", 0, 0..100, false)]), 0);
        let reads = Job { ops: Ops::ReadWrite { read_percent: 100 }, ..job("r", 0, 0..100, true) };
        assert_eq!(said(vec![a.clone(), reads]), 0);
        // Once for each target.
        assert_eq!(
            said(vec![a.clone(), a.clone(), a.clone(), job("b", 1, 0..9, true), job("b", 1, 0..9, true)]),
            2
        );
        assert_eq!(shared_writes(&[vec![a.clone()], vec![a]], &[]).len(), 0);
    }
}
