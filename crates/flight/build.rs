//! Names the engine that is compiled in: a recording is done again by the same one only.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Whose source decides what an engine does, and how it is written down.
const SOURCES: [&str; 4] = ["../units/src", "../engine/src", "../driver/src/buddy.rs", "src/item.rs"];

fn files(path: &Path, out: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    if !path.is_dir() {
        out.insert(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        files(&entry?.path(), out)?;
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let mut all = BTreeSet::new();
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
        files(Path::new(source), &mut all)?;
    }
    // FNV-1a, 64 bits: any change of a line is another name.
    let mut name = 0xcbf2_9ce4_8422_2325u64;
    for file in all {
        for byte in fs::read(file)? {
            name = (name ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    let out = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo says where to write"))?;
    fs::write(Path::new(&out).join("engine_name.rs"), format!("{name:#x}"))
}
