//! What the rows come to, in a sentence.

use super::PlanRow;
use bimetal_models::size;

/// How often a flash device can be filled before it is worn: what drives of today are warranted for, about.
pub const LIFE_IN_FILLS: f64 = 600.0;
/// Nobody notices less than this part of the time of a request.
const WORTH_SAYING: f64 = 0.05;
/// A size that comes this near to the best one will do.
const NEAR: f64 = 1.1;
/// The place of the size that is asked about.
const ASKED: usize = 2;
/// Years beyond which nobody asks.
const LONG_YEARS: f64 = 20.0;

/// Of all sizes, with the same devices, the smallest first.
pub(super) fn sentence(rows: &[PlanRow]) -> String {
    let (Some(asked), Some(least)) = (rows.get(ASKED), best(rows)) else { return String::new() };
    let from = size::show(asked.fast_bytes);
    // The smallest size that does nearly as well as the best one.
    let will_do = rows.iter().find(|row| row.mean_us <= least * NEAR).unwrap_or(asked);
    let to = size::show(will_do.fast_bytes);
    let gain = 1.0 - will_do.mean_us / asked.mean_us.max(f64::MIN_POSITIVE);
    let behind = if asked.keeps_up { "" } else { "; with that the slow device does not keep up" };
    if will_do.fast_bytes < asked.fast_bytes {
        return format!("{to} of fast tier would do nearly as well as {from}{}", lives(asked, will_do));
    }
    if gain < WORTH_SAYING {
        return format!("more than {from} of fast tier would make requests less than 5 % faster{behind}");
    }
    let faster = match asked.mean_us / will_do.mean_us.max(f64::MIN_POSITIVE) {
        times if times >= 2.0 => format!("take one part in {times:.1} of the time"),
        _ => format!("take {:.0} % less time", gain * 100.0),
    };
    format!("with {to} instead of {from} requests {faster}{}{behind}", lives(asked, will_do))
}

fn best(rows: &[PlanRow]) -> Option<f64> {
    rows.iter().map(|row| row.mean_us).min_by(f64::total_cmp)
}

fn lives(asked: &PlanRow, other: &PlanRow) -> String {
    let Some((before, after)) = asked.lasts_years.zip(other.lasts_years) else { return String::new() };
    format!(", and the SSD lasts {} instead of {}", years(after), years(before))
}

fn years(years: f64) -> String {
    match years {
        years if years > LONG_YEARS => format!("more than {LONG_YEARS:.0} years"),
        years if years >= 2.0 => format!("{years:.0} years"),
        years => format!("{:.0} months", years * 12.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(means: [f64; 5], years: [f64; 5]) -> Vec<PlanRow> {
        let row = |(number, (mean_us, years)): (u32, (f64, f64))| PlanRow {
            fast_bytes: 32 << 30 << number,
            fast_model: "ssd".into(),
            slow_model: "disk".into(),
            fast_share: 0.9,
            lru_share: None,
            mean_us,
            p99_us: mean_us,
            keeps_up: number > 0,
            wear_bytes_per_day: Some(1.0),
            lasts_years: Some(years),
            wakeups_per_day: None,
        };
        (0..).zip(means.into_iter().zip(years)).map(row).collect()
    }

    #[test]
    fn a_larger_tier_is_named_where_it_is_worth_it() {
        let years = [0.5, 1.0, 2.0, 7.0, 30.0];
        assert_eq!(
            sentence(&rows([900.0, 500.0, 400.0, 312.0, 311.0], years)),
            "with 256 GiB instead of 128 GiB requests take 22 % less time, and the SSD lasts 7 years instead of 2 years"
        );
        assert!(
            sentence(&rows([9e6, 8e6, 400.0, 100.0, 40.0], years)).contains("one part in 10.0 of the time")
        );
        assert_eq!(
            sentence(&rows([900.0, 500.0, 400.0, 396.0, 395.0], years)),
            "more than 128 GiB of fast tier would make requests less than 5 % faster"
        );
        assert_eq!(
            sentence(&rows([900.0, 410.0, 400.0, 396.0, 395.0], years)),
            "64 GiB of fast tier would do nearly as well as 128 GiB, and the SSD lasts 12 months instead of 2 years"
        );
    }
}
