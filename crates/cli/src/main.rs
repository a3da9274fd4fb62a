//! The bimetal command line.
fn main() {}
