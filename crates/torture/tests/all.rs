//! All stories and campaigns, as one program: the engine is compiled anew for each program that drives it.

mod bad_sectors;
mod copies;
mod damage;
mod determinism;
mod disk_semantics;
mod errors;
mod evidence;
mod fast_sums;
mod faults;
mod landing;
mod lost_groups;
mod lost_writes;
mod model_rejects;
mod narrated;
mod on_call;
mod opening;
mod parts;
mod pins;
mod placement;
mod planted_bugs;
mod remnants;
mod repair;
mod rest;
mod rot_in_the_log;
mod shadows;
mod slow_devices;
mod story;
mod tight_limits;
mod wear;

use std::fs;
use std::path::Path;

#[test]
fn no_file_is_left_out() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    for entry in fs::read_dir(here).expect("the folder of this file") {
        let file = entry.expect("an entry").file_name();
        let Some(name) = file.to_str().and_then(|name| name.strip_suffix(".rs")) else { continue };
        let compiled = name == "all" || include_str!("all.rs").contains(&format!("\nmod {name};\n"));
        assert!(compiled, "{name}.rs is not compiled, and so never run");
    }
}
