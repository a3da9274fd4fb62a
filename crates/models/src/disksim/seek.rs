//! Seek curves: measured ones, and those that a formula gives.

use super::convert::{Fields, nanos};
use super::{Body, FormatError};

/// Points of a measured curve at most.
const MAX_POINTS: usize = 100_000;

/// A measured curve: a line that says how many, then distance in cylinders and milliseconds on each line.
pub(super) fn measured(file: &str, text: &str) -> Result<Vec<(u32, u32)>, FormatError> {
    let error = |line: usize, what: String| FormatError { file: file.to_owned(), line, what };
    let mut points: Vec<(u32, u32)> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let number = number + 1;
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() || line.to_ascii_lowercase().starts_with("seek distances measured") {
            continue;
        }
        let mut words = line.split([',', ' ', '\t']).filter(|word| !word.is_empty());
        let (distance, time, more) = (words.next(), words.next(), words.next());
        let distance = distance.and_then(|word| word.parse::<u32>().ok()).filter(|_| more.is_none());
        let time = time.and_then(|word| word.parse::<f64>().ok()).filter(|time| (0.0..1000.0).contains(time));
        let (Some(distance), Some(time)) = (distance, time) else {
            let shown: String = line.chars().take(60).collect();
            return Err(error(number, format!("{shown:?} is not a distance in cylinders and milliseconds")));
        };
        if distance == 0 {
            continue;
        }
        if points.last().is_some_and(|&(last, _)| distance <= last) {
            return Err(error(number, format!("distance {distance} does not come after the one before it")));
        }
        if points.len() >= MAX_POINTS {
            return Err(error(number, format!("more than {MAX_POINTS} points")));
        }
        points.push((distance, nanos(time)));
    }
    if points.is_empty() {
        return Err(error(0, "it holds no seek time".to_owned()));
    }
    Ok(points)
}

/// The curve that the mechanical model's numbers describe.
pub(super) fn by_formula(
    mech: &Fields<'_>,
    kind: &str,
    cylinders: u32,
) -> Result<Vec<(u32, u32)>, FormatError> {
    let single = mech.number("Single cylinder seek time")?.unwrap_or(0.0);
    let average = mech.number("Average seek time")?;
    let full = mech.number("Full strobe seek time")?.or(mech.number("Full strobe")?);
    let span = f64::from(cylinders.saturating_sub(2).max(1));
    let need = |value: Option<f64>, key: &str| value.ok_or_else(|| mech.error(format!("{key} is missing")));
    let curve: Box<dyn Fn(f64) -> f64> = match kind {
        "constant" => {
            let time = need(mech.number("Constant seek time")?.or(average), "Constant seek time")?;
            Box::new(move |_| time)
        }
        "linear" => {
            let full = need(full, "Full strobe seek time")?;
            Box::new(move |distance| single + (full - single) * (distance - 1.0) / span)
        }
        "curve" => {
            // Through the three times, as a + b sqrt(d) + c d; the average seek is a third of the way.
            let (average, full) = (need(average, "Average seek time")?, need(full, "Full strobe seek time")?);
            let b = (15.0 * average - 10.0 * single - 5.0 * full) / (3.0 * span.sqrt());
            let c = (7.0 * single + 8.0 * full - 15.0 * average) / (3.0 * span);
            Box::new(move |distance| single + b * (distance - 1.0).sqrt() + c * (distance - 1.0))
        }
        "hpl" | "hplplus10" => {
            let v = numbers(mech, "HPL seek equation values")?;
            let Ok(v) = <[f64; 6]>::try_from(v) else {
                return Err(mech.error("HPL seek equation values are not six".to_owned()));
            };
            Box::new(move |distance| {
                if distance == 1.0 && v[5] >= 0.0 {
                    v[5]
                } else if distance < v[0] {
                    v[1] + v[2] * distance.sqrt()
                } else {
                    v[3] + v[4] * distance
                }
            })
        }
        _ => return Err(mech.error(format!("Seek type {kind:?} is not known"))),
    };
    let first = if kind == "hplplus10" { numbers(mech, "First ten seek times")? } else { Vec::new() };
    let mut points = Vec::new();
    let mut distance = 1;
    while distance < cylinders.max(2) {
        let time = first.get(distance as usize - 1).copied().unwrap_or_else(|| curve(f64::from(distance)));
        points.push((distance, nanos(time)));
        distance += (distance / 32).max(1);
    }
    Ok(points)
}

fn numbers(mech: &Fields<'_>, key: &str) -> Result<Vec<f64>, FormatError> {
    let Some(value) = mech.block.get(key) else {
        return Err(mech.error(format!("{key} are missing")));
    };
    let Body::List(list) = &value.body else {
        return Err(mech.error(format!("{key} are not a list")));
    };
    list.iter().map(|value| mech.number_of(key, value)).collect()
}
