//! The doors of the engine's house: which room may name which. A room is a folder of the engine; the order is that of the floors
//! in docs/ARCHITECTURE.md.

use super::{code_lines, root, sources};
use std::collections::BTreeSet;

/// From the ground up: a file names its own floor and those below.
const FLOORS: [&str; 10] =
    ["base", "api", "format", "io", "volume", "placement", "path", "mover", "life", "answers"];
/// The highest floor that does not know the engine as a whole.
const TOPMOST_WITHOUT_ENGINE: &str = "placement";

const ENGINE: &str = "crates/engine/src";
/// Crates that know nothing of the engine.
const WITHOUT_ENGINE: [&str; 4] = ["units", "models", "load", "trace"];

/// What production code of a file names behind `crate::`: a room and what is in it, or the engine.
fn names(text: &str) -> BTreeSet<(String, String)> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut found = BTreeSet::new();
    for (_, line) in code_lines(text) {
        for rest in line.split("crate::").skip(1) {
            let room = word(rest);
            let inside = rest[room.len()..].strip_prefix("::").map(word).unwrap_or_default();
            found.insert((room, inside));
        }
    }
    found
}

/// Each name of a floor above, or of the engine where it is not to be known, in the files of a room.
fn upwards(room: &str, found: &mut BTreeSet<(String, String)>) {
    let floor = |name: &str| FLOORS.iter().position(|floor| *floor == name);
    let engine = root().join(ENGINE);
    for (path, text) in sources(&format!("{ENGINE}/{room}")) {
        let file = path.strip_prefix(&engine).expect("it is in the engine").display().to_string();
        for (named, inside) in names(&text) {
            if named == "engine" && floor(room) <= floor(TOPMOST_WITHOUT_ENGINE) {
                found.insert((file.clone(), named));
            } else if floor(&named).is_some_and(|other| Some(other) > floor(room)) {
                found.insert((file.clone(), format!("{named}::{inside}")));
            }
        }
    }
}

#[test]
fn no_file_names_a_floor_above_its_own() {
    let mut found = BTreeSet::new();
    for room in FLOORS {
        upwards(room, &mut found);
    }
    assert!(
        found.is_empty(),
        "these name a floor above their own, or the engine from where it is not known: {found:#?}"
    );
}

#[test]
fn every_file_of_the_engine_is_in_a_room() {
    for entry in std::fs::read_dir(root().join(ENGINE)).expect("the engine") {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        let known = FLOORS.contains(&name.as_str()) || ["engine.rs", "lib.rs"].contains(&name.as_str());
        assert!(known, "crates/engine/src/{name} is no room, and in none");
    }
}

#[test]
fn models_loads_and_traces_know_no_engine() {
    for name in WITHOUT_ENGINE {
        let manifest = root().join("crates").join(name).join("Cargo.toml");
        let text = std::fs::read_to_string(manifest).expect("a manifest");
        assert!(!text.contains("bimetal-engine"), "{name} depends on the engine");
    }
}
