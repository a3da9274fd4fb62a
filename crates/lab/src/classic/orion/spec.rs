//! What is run: Orion's options, and the matrix of loads that they make.

use crate::load::{MAX_BUFFER_BYTES, MAX_IN_FLIGHT};
use std::collections::BTreeSet;

/// A matrix has so many points at most: at a minute each, nearly three days.
pub const MAX_POINTS: usize = 4096;
/// Disks at most.
pub const MAX_DISKS: u32 = 1024;
/// Of a matrix by disks: columns and rows for each of them.
const SMALL_BY_DISK: u32 = 5;
const LARGE_BY_DISK: u32 = 2;
/// Columns of an OLTP run, and rows of a DSS run, each so many times the disks.
const OLTP_COLUMNS: u32 = 20;
const DSS_ROWS: u32 = 15;
/// A search for a knee goes no further.
const MOST_LOAD: u32 = 1024;

/// The workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunType {
    /// Small ones at several loads, then large ones.
    Simple,
    /// All combinations of the two.
    Normal,
    /// What the other options say.
    Advanced,
    /// Large ones, up to high loads.
    Dss,
    /// Small ones, up to high loads.
    Oltp,
}

/// The part of the matrix that is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matrix {
    /// The first row and the first column.
    Basic,
    /// All of it.
    Detailed,
    /// One point.
    Point,
    /// One number of small I/Os, all of large ones.
    Col,
    /// One number of large I/Os, all of small ones.
    Row,
    /// All up to two numbers.
    Max,
}

/// The order of large I/Os.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LargeOrder {
    /// Anywhere.
    Random,
    /// In streams.
    Sequential,
}

/// How several targets become one space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Simulate {
    /// One behind the other.
    Concat,
    /// Striped.
    Raid0,
}

/// A test, as its options describe it.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// What it is called.
    pub testname: String,
    /// The workload.
    pub run: RunType,
    /// Which loads, of an advanced run.
    pub matrix: Matrix,
    /// Disks behind the targets: loads go by them.
    pub disks: u32,
    /// Bytes of a small I/O.
    pub small_bytes: u64,
    /// Bytes of a large I/O.
    pub large_bytes: u64,
    /// The order of large ones.
    pub large_order: LargeOrder,
    /// In flight of each stream, where that is sequential.
    pub stream_ios: u32,
    /// Small I/Os in flight, where the matrix has one number of them or goes up to one.
    pub num_small: Option<u32>,
    /// Large I/Os in flight, or streams.
    pub num_large: Option<u32>,
    /// How several targets become one space.
    pub simulate: Simulate,
    /// Bytes of a stripe of it.
    pub stripe_bytes: u64,
    /// Of a hundred I/Os, or of sequential streams, so many write.
    pub write_percent: u32,
    /// The targets' cache, bytes: what is read before each sequential point; 0 nothing, and for two minutes where it is
    /// not known.
    pub cache_bytes: Option<u64>,
    /// How long a point lasts, seconds.
    pub seconds: u32,
    /// Whether more loads are run, so that the knees are found.
    pub knee: bool,
    /// Where all random choices begin.
    pub seed: u64,
}

/// Loads of a point: I/Os in flight, or streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Point {
    /// Of large I/Os.
    pub large: u32,
    /// Of small I/Os.
    pub small: u32,
}

/// A line of the matrix on which a knee may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ramp {
    /// Small I/Os beside so many large ones.
    Small {
        /// Large ones in flight.
        large: u32,
    },
    /// Large I/Os beside so many small ones.
    Large {
        /// Small ones in flight.
        small: u32,
    },
}

impl Ramp {
    /// The point of a load on it.
    pub fn point(self, load: u32) -> Point {
        match self {
            Ramp::Small { large } => Point { large, small: load },
            Ramp::Large { small } => Point { large: load, small },
        }
    }

    /// The load of a point, if that is on it.
    pub fn load(self, point: Point) -> Option<u32> {
        match self {
            Ramp::Small { large } => (point.large == large && point.small > 0).then_some(point.small),
            Ramp::Large { small } => (point.small == small && point.large > 0).then_some(point.large),
        }
    }
}

/// Why a test cannot be run as it is described: in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// An option is for advanced runs.
    #[error("-{0} is for -run advanced; choose that, or leave it out")]
    Advanced(&'static str),
    /// An option is missing.
    #[error("-matrix {matrix} needs -{option}")]
    Missing {
        /// Of the matrix.
        matrix: &'static str,
        /// What it needs.
        option: &'static str,
    },
    /// An option says nothing here.
    #[error("-{option} has no meaning for -matrix {matrix}; leave it out")]
    Meaningless {
        /// Which.
        option: &'static str,
        /// Of the matrix.
        matrix: &'static str,
    },
    /// Nothing is asked for.
    #[error("-num_small 0 and -num_large 0 ask for nothing; give one of them")]
    Idle,
    /// Too many points.
    #[error("the matrix has {0} points, more than {MAX_POINTS}: lower -num_disks, -num_small or -num_large")]
    Points(u64),
    /// A point has too much in flight.
    #[error(
        "{small} small and {large} large I/Os in flight are more than fit ({MAX_IN_FLIGHT} and {MAX_BUFFER_BYTES} \
         bytes): lower -num_disks, -num_small, -num_large or -num_streamIO"
    )]
    InFlight {
        /// Small ones.
        small: u32,
        /// Large ones, or streams.
        large: u32,
    },
    /// A knee needs a line of loads.
    #[error("-matrix point has one load, and a knee needs several; leave out --knee, or choose row or col")]
    NoRamp,
}

impl Spec {
    /// The points of the matrix in the order in which they are run: row after row.
    ///
    /// # Errors
    /// When options contradict each other, or there are too many points, or one has too much in flight.
    pub fn points(&self) -> Result<Vec<Point>, SpecError> {
        self.check()?;
        let (columns, rows) = self.levels();
        let only_edges = match self.run {
            RunType::Simple => true,
            RunType::Advanced => self.matrix == Matrix::Basic,
            _ => false,
        };
        let all = columns.len() as u64 * rows.len() as u64;
        let count = if only_edges { (columns.len() + rows.len()) as u64 } else { all };
        if count > MAX_POINTS as u64 {
            return Err(SpecError::Points(count));
        }
        let cells = rows.iter().flat_map(|&large| columns.iter().map(move |&small| Point { large, small }));
        let points: BTreeSet<Point> = cells
            .filter(|point| point.small + point.large > 0)
            .filter(|point| !only_edges || point.small == 0 || point.large == 0)
            .collect();
        match points.iter().find(|point| !self.fits(**point)) {
            Some(&Point { small, large }) => Err(SpecError::InFlight { small, large }),
            None => Ok(points.into_iter().collect()),
        }
    }

    fn check(&self) -> Result<(), SpecError> {
        let advanced = self.run == RunType::Advanced;
        for (option, given) in [
            ("matrix", self.matrix != Matrix::Basic),
            ("num_small", self.num_small.is_some()),
            ("num_large", self.num_large.is_some()),
        ] {
            if given && !advanced {
                return Err(SpecError::Advanced(option));
            }
        }
        let (matrix, small, large) = match self.matrix {
            Matrix::Basic => ("basic", false, false),
            Matrix::Detailed => ("detailed", false, false),
            Matrix::Point => ("point", true, true),
            Matrix::Col => ("col", true, false),
            Matrix::Row => ("row", false, true),
            Matrix::Max => ("max", true, true),
        };
        let (has_small, has_large) = (self.num_small, self.num_large);
        for (option, needed, given) in [("num_small", small, has_small), ("num_large", large, has_large)] {
            match (needed, given) {
                (true, None) => return Err(SpecError::Missing { matrix, option }),
                (false, Some(_)) => return Err(SpecError::Meaningless { option, matrix }),
                _ => {}
            }
        }
        if small && large && (has_small, has_large) == (Some(0), Some(0)) {
            return Err(SpecError::Idle);
        }
        if self.knee && self.ramps().is_empty() { Err(SpecError::NoRamp) } else { Ok(()) }
    }

    /// The columns (small) and the rows (large) of the matrix.
    fn levels(&self) -> (Vec<u32>, Vec<u32>) {
        let up_to = |most: u32| (0..=most).collect::<Vec<u32>>();
        let small = up_to(SMALL_BY_DISK * self.disks);
        let large = up_to(LARGE_BY_DISK * self.disks);
        let times = |count: u32| (1..=count).map(|n| n * self.disks).collect::<Vec<u32>>();
        let one = |number: Option<u32>| vec![number.unwrap_or(0)];
        match (self.run, self.matrix) {
            (RunType::Oltp, _) => (times(OLTP_COLUMNS), vec![0]),
            (RunType::Dss, _) => (vec![0], times(DSS_ROWS)),
            (RunType::Simple | RunType::Normal, _) | (_, Matrix::Basic | Matrix::Detailed) => (small, large),
            (_, Matrix::Point) => (one(self.num_small), one(self.num_large)),
            (_, Matrix::Col) => (one(self.num_small), large),
            (_, Matrix::Row) => (small, one(self.num_large)),
            (_, Matrix::Max) => (up_to(self.num_small.unwrap_or(0)), up_to(self.num_large.unwrap_or(0))),
        }
    }

    /// The lines of the matrix on which a knee is looked for.
    pub fn ramps(&self) -> Vec<Ramp> {
        let (small, large) = (Ramp::Small { large: 0 }, Ramp::Large { small: 0 });
        match (self.run, self.matrix) {
            (RunType::Oltp, _) => vec![small],
            (RunType::Dss, _) => vec![large],
            (RunType::Advanced, Matrix::Point) => Vec::new(),
            (RunType::Advanced, Matrix::Col) => vec![Ramp::Large { small: self.num_small.unwrap_or(0) }],
            (RunType::Advanced, Matrix::Row) => vec![Ramp::Small { large: self.num_large.unwrap_or(0) }],
            (RunType::Advanced, Matrix::Max) => {
                let small = self.num_small.is_some_and(|number| number > 0).then_some(small);
                small
                    .into_iter()
                    .chain(self.num_large.is_some_and(|number| number > 0).then_some(large))
                    .collect()
            }
            _ => vec![small, large],
        }
    }

    /// Large I/Os in flight of so many, or of so many streams.
    pub fn large_ios(&self, large: u32) -> u32 {
        match self.large_order {
            LargeOrder::Random => large,
            LargeOrder::Sequential => large.saturating_mul(self.stream_ios),
        }
    }

    /// Whether there is room for what a point has in flight.
    fn fits(&self, point: Point) -> bool {
        let large = u64::from(self.large_ios(point.large));
        let bytes = u64::from(point.small).saturating_mul(self.small_bytes);
        let bytes = bytes.saturating_add(large.saturating_mul(self.large_bytes));
        u64::from(point.small) + large <= u64::from(MAX_IN_FLIGHT) && bytes <= MAX_BUFFER_BYTES
    }

    /// The highest load of a ramp that a search may run: what fits, and no more than a thousand.
    pub fn most_load(&self, ramp: Ramp) -> u32 {
        // Whatever fits, less fits as well.
        let (mut fits, mut too_much) = (0, MOST_LOAD + 1);
        while too_much - fits > 1 {
            let middle = (fits + too_much) / 2;
            match self.fits(ramp.point(middle)) {
                true => fits = middle,
                false => too_much = middle,
            }
        }
        fits
    }

    /// Whether anything is written.
    pub fn writes(&self) -> bool {
        self.write_percent > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn spec(run: RunType, disks: u32) -> Spec {
        Spec {
            testname: "orion".to_owned(),
            run,
            matrix: Matrix::Basic,
            disks,
            small_bytes: 8 << 10,
            large_bytes: 1 << 20,
            large_order: LargeOrder::Random,
            stream_ios: 4,
            num_small: None,
            num_large: None,
            simulate: Simulate::Concat,
            stripe_bytes: 1 << 20,
            write_percent: 0,
            cache_bytes: None,
            seconds: 60,
            knee: false,
            seed: 1,
        }
    }

    /// The points of real runs: 7 and 28 of simple ones with 1 and 4 disks, 17 of a normal one; 20 of OLTP, of which
    /// the columns are multiples of the disks. (Orion's own count has the idle point besides.)
    #[test]
    fn as_many_points_as_orion_has() {
        for (run, disks, expected) in [
            (RunType::Simple, 1, 7),
            (RunType::Simple, 4, 28),
            (RunType::Simple, 6, 42),
            (RunType::Normal, 1, 17),
            (RunType::Oltp, 1, 20),
            (RunType::Oltp, 4, 20),
            (RunType::Dss, 2, 15),
        ] {
            let points = spec(run, disks).points().expect("fits");
            assert_eq!(points.len(), expected, "{run:?} {disks}");
        }
        let oltp = spec(RunType::Oltp, 4).points().expect("fits");
        assert_eq!((oltp[0].small, oltp[16].small, oltp[19].small), (4, 68, 80));
        let simple = spec(RunType::Simple, 1).points().expect("fits");
        let loads: Vec<(u32, u32)> = simple.iter().map(|point| (point.small, point.large)).collect();
        assert_eq!(loads, [(1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (0, 1), (0, 2)]);
    }

    #[test]
    fn parts_of_the_matrix() {
        let advanced = |matrix, num_small, num_large| Spec {
            matrix,
            num_small,
            num_large,
            ..spec(RunType::Advanced, 1)
        };
        let count = |spec: Spec| spec.points().map(|points| points.len());
        assert_eq!(count(advanced(Matrix::Point, Some(3), Some(2))), Ok(1));
        assert_eq!(count(advanced(Matrix::Col, Some(3), None)), Ok(3));
        assert_eq!(count(advanced(Matrix::Col, Some(0), None)), Ok(2));
        assert_eq!(count(advanced(Matrix::Row, None, Some(1))), Ok(6));
        assert_eq!(count(advanced(Matrix::Max, Some(3), Some(1))), Ok(7));
        assert_eq!(count(advanced(Matrix::Detailed, None, None)), Ok(17));
    }

    #[test]
    fn contradictions_are_named() {
        let wrong = |change: fn(&mut Spec)| {
            let mut spec = spec(RunType::Advanced, 1);
            change(&mut spec);
            spec.points().expect_err("it is wrong").to_string()
        };
        for (text, word) in [
            (wrong(|spec| (spec.run, spec.num_small) = (RunType::Simple, Some(3))), "-num_small"),
            (wrong(|spec| (spec.run, spec.matrix) = (RunType::Oltp, Matrix::Row)), "-matrix"),
            (wrong(|spec| spec.matrix = Matrix::Point), "-num_small"),
            (wrong(|spec| (spec.matrix, spec.num_small) = (Matrix::Point, Some(1))), "-num_large"),
            (wrong(|spec| (spec.matrix, spec.num_small) = (Matrix::Row, Some(1))), "-num_small"),
            (
                wrong(|spec| {
                    (spec.matrix, spec.num_small, spec.num_large) = (Matrix::Max, Some(0), Some(0));
                }),
                "ask for nothing",
            ),
            (wrong(|spec| (spec.disks, spec.matrix) = (100, Matrix::Detailed)), "100701 points"),
            (
                wrong(|spec| {
                    (spec.matrix, spec.num_small, spec.num_large) = (Matrix::Point, Some(5000), Some(0));
                }),
                "5000 small",
            ),
            (
                wrong(|spec| {
                    (spec.matrix, spec.num_small, spec.num_large) = (Matrix::Point, Some(1), Some(1));
                    spec.knee = true;
                }),
                "--knee",
            ),
        ] {
            assert!(text.contains(word) && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn a_search_stays_within_what_fits() {
        let random = spec(RunType::Simple, 1);
        assert_eq!(random.most_load(Ramp::Small { large: 0 }), 1024);
        assert_eq!(random.most_load(Ramp::Large { small: 0 }), 1024);
        let streams = Spec { large_order: LargeOrder::Sequential, ..random };
        assert_eq!(streams.most_load(Ramp::Large { small: 0 }), 256);
        assert_eq!(streams.most_load(Ramp::Large { small: 8 }), 255);
    }
}
