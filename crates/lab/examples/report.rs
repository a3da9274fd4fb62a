//! Writes the HTML page of records, and invented records to try it with.
//!
//!     report A.json B.json --html FILE
//!     report --samples DIRECTORY

#[path = "sample/mod.rs"]
mod sample;

use bimetal_lab::report::{Named, html, read, text};
use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, directory] = &arguments[..]
        && flag == "--samples"
    {
        return samples(Path::new(directory));
    }
    let mut page = None;
    let mut runs = Vec::new();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        if argument == "--html" {
            page = Some(arguments.next().ok_or("--html FILE")?);
            continue;
        }
        let path = Path::new(&argument);
        let name =
            path.file_stem().map_or_else(|| argument.clone(), |stem| stem.to_string_lossy().into_owned());
        runs.push(Named { name, run: read(path)? });
    }
    match page {
        Some(page) => std::fs::write(page, html(&runs))?,
        None => print!("{}", text(&runs)),
    }
    Ok(())
}

fn samples(directory: &Path) -> Result<(), Box<dyn Error>> {
    let samples = [
        ("A.json", sample::fill_with_cliff(1, 1.0)),
        ("B.json", sample::fill_with_cliff(2, 1.15)),
        ("depths.json", sample::depths(3)),
    ];
    for (name, run) in samples {
        std::fs::write(directory.join(name), serde_json::to_vec(&run)?)?;
    }
    Ok(())
}
