//! Temporary.
use bimetal_sim::peers::Policy;
use bimetal_sim::scenario::{Scenario, rows};
fn main() {
    let path = std::env::args().nth(1).unwrap();
    let all = Scenario::parse_all(&std::fs::read_to_string(&path).unwrap()).unwrap();
    for one in &all {
        let pairs = [(std::path::Path::new("."), one)];
        let policies = [Policy::Static, Policy::Bcache, Policy::Fusion, Policy::DmCacheSmq];
        match rows(&pairs, &policies, std::num::NonZeroUsize::new(2).unwrap(), &|_, _, _, _| {}) {
            Ok(rows) => {
                for row in &rows[0] {
                    println!("{} | {:?} | {:?} held {}", row.claim, row.ours, row.policies, row.held);
                }
            }
            Err(error) => println!("{error:?}"),
        }
    }
}
