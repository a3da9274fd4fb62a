//! A test of Orion's, at small sizes.

use bimetal_lab::classic::orion::{LargeOrder, Matrix, RunType, Simulate, Spec};

/// Of one disk, two seconds for each point.
pub fn spec(run: RunType) -> Spec {
    Spec {
        testname: "t".to_owned(),
        run,
        matrix: Matrix::Basic,
        disks: 1,
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
        seconds: 2,
        knee: false,
        seed: 7,
    }
}
