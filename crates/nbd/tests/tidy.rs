//! Rules of this crate that the compiler does not know.

use std::fs;
use std::path::Path;

/// What would tie the protocol to an operating system, or make two runs differ.
const FORBIDDEN: &[&str] = &[
    "std::fs",
    "std::net",
    "std::thread",
    "std::time",
    "std::os",
    "HashMap",
    "HashSet",
    ".unwrap()",
    ".expect(",
];
/// The most lines a source file may have.
const MAX_LINES: usize = 500;

#[test]
fn sources_stay_sans_io_and_short() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut seen = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        for word in FORBIDDEN {
            assert!(!text.contains(word), "{} names {word}", path.display());
        }
        assert!(text.lines().count() <= MAX_LINES, "{} is longer than {MAX_LINES} lines", path.display());
        seen += 1;
    }
    assert!(seen > 5, "the sources were not found");
}
