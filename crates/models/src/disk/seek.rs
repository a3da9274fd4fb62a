//! How long the arm takes to move.

/// Distances up to this have an entry each; beyond it the curve is close to straight between two entries.
const DENSE: u32 = 4096;
/// Cylinders between two entries beyond [`DENSE`].
const STRIDE: u32 = 64;

/// Seek time by distance, as a table: looked up for every candidate of every choice.
#[derive(Clone, Debug)]
pub(crate) struct SeekTable {
    dense: Box<[u32]>,
    sparse: Box<[u32]>,
}

impl SeekTable {
    /// A table for distances up to `cylinders`, straight lines between the points (distance in cylinders, time in
    /// nanoseconds), which are sorted by distance and not empty. Beyond the last point the line through the last two
    /// goes on, but never falls.
    pub(crate) fn new(points: &[(u32, u32)], cylinders: u32) -> SeekTable {
        let dense = (0..=cylinders.min(DENSE)).map(|distance| interpolate(points, distance)).collect();
        let sparse = if cylinders > DENSE {
            let entries = (cylinders - DENSE).div_ceil(STRIDE) + 1;
            (0..=entries).map(|entry| interpolate(points, DENSE + entry * STRIDE)).collect()
        } else {
            Box::default()
        };
        SeekTable { dense, sparse }
    }

    /// Nanoseconds for this distance in cylinders; zero for none.
    pub(crate) fn time(&self, distance: u32) -> u32 {
        if let Some(&time) = self.dense.get(distance as usize) {
            return time;
        }
        let beyond = distance - DENSE;
        let (entry, rest) = ((beyond / STRIDE) as usize, u64::from(beyond % STRIDE));
        let (low, high) = (u64::from(self.sparse[entry]), u64::from(self.sparse[entry + 1]));
        ((low * (u64::from(STRIDE) - rest) + high * rest) / u64::from(STRIDE)) as u32
    }
}

fn interpolate(points: &[(u32, u32)], distance: u32) -> u32 {
    if distance == 0 {
        return 0;
    }
    let after = points.partition_point(|&(known, _)| known < distance);
    let (from, to) = match after {
        0 => return points[0].1,
        _ if after == points.len() && after == 1 => return points[0].1,
        _ if after == points.len() => (points[after - 2], points[after - 1]),
        _ => (points[after - 1], points[after]),
    };
    let (run, rise) = (i64::from(to.0) - i64::from(from.0), i64::from(to.1) - i64::from(from.1));
    let time = i64::from(from.1) + rise * (i64::from(distance) - i64::from(from.0)) / run;
    let least = if after == points.len() { i64::from(to.1) } else { 0 };
    u32::try_from(time.max(least)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::SeekTable;

    #[test]
    fn between_two_points_is_a_straight_line() {
        let table = SeekTable::new(&[(1, 1_000), (10, 10_000), (100, 28_000)], 200);
        assert_eq!(table.time(0), 0);
        assert_eq!(table.time(1), 1_000);
        assert_eq!(table.time(4), 4_000);
        assert_eq!(table.time(55), 19_000);
        assert_eq!(table.time(200), 48_000);
    }

    #[test]
    fn long_distances_are_as_exact_as_short_ones() {
        let points = [(1, 500_000), (1_000, 2_000_000), (300_000, 16_000_000)];
        let table = SeekTable::new(&points, 300_000);
        for distance in [4_095, 4_096, 4_097, 4_160, 123_456, 299_999, 300_000] {
            let exact = super::interpolate(&points, distance);
            assert!(table.time(distance).abs_diff(exact) <= 2, "{distance}");
        }
    }

    #[test]
    fn a_falling_end_does_not_go_below_the_last_point() {
        let table = SeekTable::new(&[(1, 900), (5, 1_000), (6, 990)], 100);
        assert_eq!(table.time(100), 990);
        assert_eq!(SeekTable::new(&[(7, 900)], 100).time(100), 900);
    }
}
