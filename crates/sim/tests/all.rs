//! All stories, campaigns and scenarios, as one program: the engine is compiled anew for each program that drives it.

mod bad_sectors;
mod copies;
mod damage;
mod determinism;
mod disk_semantics;
mod errors;
mod faults;
mod landing;
mod long_queue;
mod lost_groups;
mod lost_writes;
mod matrix;
mod model_rejects;
mod narrated;
mod on_call;
mod opening;
mod parts;
mod peers;
mod pins;
mod placement;
mod planted_bugs;
mod rest;
mod scenarios;
mod shadows;
mod slow_devices;
mod story;
mod wear;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
fn no_file_is_left_out() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let names = fs::read_dir(here)
        .expect("the folder of this file")
        .map(|entry| entry.expect("an entry").file_name());
    let names: BTreeSet<String> = names.filter_map(|name| name.into_string().ok()).collect();
    let files = names.iter().filter_map(|name| name.strip_suffix(".rs")).filter(|name| *name != "all");
    let left_out: Vec<&str> =
        files.filter(|name| !include_str!("all.rs").contains(&format!("\nmod {name};\n"))).collect();
    assert!(left_out.is_empty(), "not compiled, and so never run: {left_out:?}");
}
