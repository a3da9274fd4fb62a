//! Shares that meet a mean, and cards that meet shares.

use bimetal_units::rng::Rng;

/// Halvings of an interval until doubles tell nothing apart.
const HALVINGS: u32 = 200;

/// Shares of these ascending values that add up to 1 and have this mean, as even as that allows: the share of a value is
/// in proportion to `exp(-t * value)`. None where the mean is not between the least and the most.
pub(super) fn even(values: &[f64], mean: f64) -> Option<Vec<f64>> {
    let (&least, &most) = (values.first()?, values.last()?);
    if values.len() == 1 {
        return ((mean / least - 1.0).abs() < 1e-9).then(|| vec![1.0]);
    }
    if !(mean > least && mean < most) {
        return None;
    }
    let shares = |tilt: f64| {
        // Values as parts of the way from the least to the most: exponents stay small.
        let weights: Vec<f64> =
            values.iter().map(|value| (-tilt * (value - least) / (most - least)).exp()).collect();
        let sum: f64 = weights.iter().sum();
        weights.into_iter().map(|weight| weight / sum).collect::<Vec<f64>>()
    };
    let mean_of =
        |shares: &[f64]| -> f64 { shares.iter().zip(values).map(|(share, value)| share * value).sum() };
    // The mean falls as the tilt rises; at these ends nearly all weight is on one value.
    let (mut low, mut high) = (-500.0, 500.0);
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if mean_of(&shares(middle)) > mean { low = middle } else { high = middle }
    }
    let found = shares((low + high) / 2.0);
    ((mean_of(&found) / mean - 1.0).abs() < 1e-6).then_some(found)
}

/// So many, dealt out by shares that add up to 1: none is further than one from its share.
pub(super) fn apportioned(count: u64, shares: &[f64]) -> Vec<u64> {
    let mut sum = 0.0;
    let mut dealt = 0;
    let upto = shares.iter().map(|share| {
        sum += share;
        let upto = (count as f64 * sum).round() as u64;
        let own = upto.min(count) - dealt;
        dealt += own;
        own
    });
    let mut counts: Vec<u64> = upto.collect();
    // What rounding the sum of the shares left.
    if let Some(last) = counts.iter_mut().rev().find(|own| **own > 0) {
        *last += count - dealt;
    } else if let Some(first) = counts.first_mut() {
        *first += count - dealt;
    }
    counts
}

/// Cards that are drawn without being put back.
#[derive(Clone, Debug)]
pub(super) struct Deck {
    left: Vec<u64>,
    all: u64,
}

impl Deck {
    pub(super) fn new(left: Vec<u64>) -> Deck {
        Deck { all: left.iter().sum(), left }
    }

    /// Cards of this kind that are left.
    pub(super) fn left(&self, kind: usize) -> u64 {
        self.left[kind]
    }

    /// Draws one of any kind; none when all are drawn.
    pub(super) fn draw(&mut self, rng: &mut Rng) -> Option<usize> {
        if self.all == 0 {
            return None;
        }
        let mut at = rng.below(self.all);
        let kind = self.left.iter().position(|&left| {
            let found = at < left;
            at = at.saturating_sub(left);
            found
        })?;
        self.take(kind);
        Some(kind)
    }

    /// Takes one of this kind, of which there is one.
    pub(super) fn take(&mut self, kind: usize) {
        self.left[kind] -= 1;
        self.all -= 1;
    }

    /// Puts one back.
    pub(super) fn put_back(&mut self, kind: usize) {
        self.left[kind] += 1;
        self.all += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_spread_has_its_mean() {
        let values = [1.0, 2.0, 4.0, 8.0];
        for mean in [1.1, 2.0, 3.75, 6.0, 7.9] {
            let shares = even(&values, mean).expect("it is between the ends");
            let (sum, found) = shares
                .iter()
                .zip(values)
                .fold((0.0, 0.0), |(s, m), (share, value)| (s + share, m + share * value));
            assert!((sum - 1.0).abs() < 1e-9 && (found - mean).abs() < 1e-6, "{mean}: {shares:?}");
        }
        // The mean of all alike is met by all alike.
        assert!(even(&values, 3.75).expect("it is").iter().all(|share| (share - 0.25).abs() < 1e-6));
        assert_eq!((even(&values, 1.0), even(&values, 8.1), even(&[], 1.0)), (None, None, None));
        assert_eq!(even(&[3.0], 3.0), Some(vec![1.0]));
    }

    #[test]
    fn all_are_dealt_out() {
        for count in [0, 1, 7, 1000, 4_000_000] {
            let shares = [0.28, 0.1, 0.1, 0.04, 0.48];
            let counts = apportioned(count, &shares);
            assert_eq!(counts.iter().sum::<u64>(), count);
            for (own, share) in counts.iter().zip(shares) {
                assert!((*own as f64 - share * count as f64).abs() <= 1.0, "{count}: {counts:?}");
            }
        }
    }

    #[test]
    fn a_deck_is_drawn_to_its_end() {
        let (mut deck, mut rng, mut seen) = (Deck::new(vec![3, 0, 5]), Rng::new(1, 1), [0; 3]);
        while let Some(kind) = deck.draw(&mut rng) {
            seen[kind] += 1;
        }
        assert_eq!(seen, [3, 0, 5]);
    }
}
