//! All scenarios, and what is held against peers, as one program: the engine is compiled anew for each program that drives it.

mod long_queue;
mod matrix;
mod peers;
mod scenarios;

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
