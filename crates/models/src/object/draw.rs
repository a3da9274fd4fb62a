//! Random latencies. Only additions, multiplications and divisions are used, which every machine rounds the same.

use bimetal_units::rng::Rng;

/// e to the x.
fn exp(x: f64) -> f64 {
    let halvings = (x / std::f64::consts::LN_2).round().clamp(-1000.0, 1000.0);
    let rest = x - halvings * std::f64::consts::LN_2;
    let (mut sum, mut term) = (1.0, 1.0);
    for n in 1..16 {
        term *= rest / f64::from(n);
        sum += term;
    }
    sum * f64::from_bits(((halvings as i64 + 1023) as u64) << 52)
}

/// The natural logarithm of a positive, normal number.
fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = ((bits >> 52) as i32) - 1023;
    let mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let (mut sum, mut power) = (0.0, s);
    for n in 0..20 {
        sum += power / f64::from(2 * n + 1);
        power *= s * s;
    }
    2.0 * sum + f64::from(exponent) * std::f64::consts::LN_2
}

/// From the standard normal distribution, as the sum of twelve numbers from 0 to 1: never beyond six.
fn normal(rng: &mut Rng) -> f64 {
    let mut sum = 0;
    for _ in 0..3 {
        let word = rng.next_u64();
        sum += (word & 0xffff) + (word >> 16 & 0xffff) + (word >> 32 & 0xffff) + (word >> 48);
    }
    sum as f64 / 65_536.0 - 6.0
}

/// `median_ns` times a lognormal factor.
pub(crate) fn lognormal(rng: &mut Rng, median_ns: u64, sigma: f64) -> u64 {
    (median_ns as f64 * exp(sigma * normal(rng))) as u64
}

/// At least `least_ns`; each doubling of that is exceeded 2^`alpha` times less often.
pub(crate) fn pareto(rng: &mut Rng, least_ns: u64, alpha: f64) -> u64 {
    // From just above 0 to 1.
    let uniform = ((rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
    (least_ns as f64 * exp(-ln(uniform) / alpha)) as u64
}

#[cfg(test)]
mod tests {
    use super::{exp, ln, lognormal, pareto};
    use bimetal_units::rng::Rng;

    #[test]
    fn the_functions_are_those_of_the_books() {
        for x in [-20.0, -1.0, -1e-9, 0.0, 0.3, 1.0, 7.5, 30.0_f64] {
            assert!((exp(x) / x.exp() - 1.0).abs() < 1e-12, "exp {x}");
        }
        for x in [1e-16, 0.1, 0.999, 1.0, 1.5, 2.0, 1e9_f64] {
            assert!((ln(x) - x.ln()).abs() < 1e-9, "ln {x}");
        }
    }

    #[test]
    fn drawn_latencies_have_their_quantiles() {
        let mut rng = Rng::new(1, 1);
        let mut body: Vec<u64> = (0..20_000).map(|_| lognormal(&mut rng, 1_000_000, 0.5)).collect();
        let mut tail: Vec<u64> = (0..20_000).map(|_| pareto(&mut rng, 1_000_000, 1.5)).collect();
        body.sort_unstable();
        tail.sort_unstable();
        let near = |value: u64, wanted: f64| (value as f64 / wanted - 1.0).abs() < 0.04;
        assert!(near(body[10_000], 1e6), "median {}", body[10_000]);
        assert!(near(body[19_000], 1e6 * (0.5 * 1.645_f64).exp()), "p95 {}", body[19_000]);
        assert!(near(tail[10_000], 1e6 * 2f64.powf(1.0 / 1.5)), "median {}", tail[10_000]);
        assert!(tail[0] >= 1_000_000);
    }
}
