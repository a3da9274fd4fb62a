//! docs/LIMITS.md has the values of the constants that it names.

use super::{code_lines, root, sources};
use std::collections::BTreeMap;

/// Where the variable says `write`, values are written into the page; else they are compared.
const WRITE: &str = "LIMITS";

/// The lines of production code of a file.
fn code(text: &str) -> String {
    code_lines(text).map(|(_, line)| format!("{}\n", line.trim_end())).collect()
}

/// Those of a crate.
fn whole(krate: &str) -> String {
    sources(&format!("crates/{krate}/src")).iter().map(|(_, text)| code(text)).collect()
}

/// The number that an expression of constants comes to: products, quotients and shifts of numbers, of units of time and of
/// other constants.
fn number(expression: &str, file: &str) -> Option<u64> {
    let binary = |operator: &str| {
        let (left, right) = expression.rsplit_once(operator)?;
        Some((number(left, file)?, number(right, file)?))
    };
    let expression = expression.trim();
    if let Some(numbers) = binary(" << ") {
        return Some(numbers.0 << numbers.1);
    }
    if let Some(numbers) = binary(" / ") {
        return Some(numbers.0 / numbers.1);
    }
    if let Some(numbers) = binary(" * ") {
        return Some(numbers.0 * numbers.1);
    }
    for (unit, ns) in [("from_secs(", 1_000_000_000), ("from_millis(", 1_000_000), ("from_micros(", 1_000)] {
        if let Some(rest) = expression.strip_prefix("Duration::").and_then(|rest| rest.strip_prefix(unit)) {
            return Some(number(rest.strip_suffix(')')?, file)? * ns);
        }
    }
    match expression {
        "Nanos::SECOND" => Some(1_000_000_000),
        "Nanos::MS" => Some(1_000_000),
        "u64::MAX" => Some(u64::MAX),
        _ if expression.starts_with(|first: char| first.is_ascii_digit()) => {
            expression.replace('_', "").parse().ok()
        }
        _ => number(&said(expression, file)?.1, file),
    }
}

/// The type of a constant, or of a field's default, and what it is said to be.
fn said(name: &str, file: &str) -> Option<(String, String)> {
    for line in file.lines() {
        if let Some((_, rest)) = line.split_once(&format!("const {name}: ")) {
            let (kind, value) = rest.split_once(" = ")?;
            return Some((kind.to_owned(), value.strip_suffix(';')?.to_owned()));
        }
        let of_field = line.trim().strip_prefix(name).and_then(|rest| rest.strip_prefix(": "));
        if let Some(value) =
            of_field.filter(|_| !line.contains("pub ")).and_then(|rest| rest.strip_suffix(','))
        {
            return Some((String::new(), value.to_owned()));
        }
    }
    None
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).expect("digits")).collect();
    groups.join(",")
}

/// A number of the largest of these units of which it is a whole number, or of the last.
fn in_units(number: u64, units: &[(&str, u64)]) -> String {
    let (unit, size) = units.iter().find(|(_, size)| number.is_multiple_of(*size)).expect("the last is 1");
    format!("{} {unit}", grouped(number / size))
}

fn shown(name: &str, file: &str) -> Option<String> {
    let (kind, value) = said(name, file)?;
    if let Some(list) = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let numbers: Option<Vec<String>> =
            list.split(", ").map(|one| number(one, file).map(grouped)).collect();
        return Some(numbers?.join("; "));
    }
    if value == "None" || value == "u64::MAX" {
        return Some("none".to_owned());
    }
    let number = number(&value, file)?;
    let name = name.to_ascii_uppercase();
    let times = [("h", 3_600_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("µs", 1_000), ("ns", 1)];
    let bytes = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("bytes", 1)];
    Some(match &name {
        _ if kind == "Duration" || name.ends_with("_NS") => in_units(number, &times),
        _ if name.ends_with("_MICROS") => in_units(number * 1_000, &times),
        _ if name.ends_with("_BYTES") => in_units(number, &bytes),
        _ if name.contains("SHARE") => format!("1/{number}"),
        _ => grouped(number),
    })
}

#[test]
fn limits_are_those_of_the_code() {
    let page = root().join("docs/LIMITS.md");
    let text = std::fs::read_to_string(&page).expect("the page of limits");
    let (mut problems, mut rows) = (Vec::new(), 0);
    let (mut written, mut crates) = (String::new(), BTreeMap::new());
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let name = cells.get(1).and_then(|cell| cell.strip_prefix('`')?.strip_suffix('`'));
        let ["", _, place, value, of, reason, ""] = cells[..] else {
            written += &format!("{line}\n");
            continue;
        };
        let Some(name) = name else {
            written += &format!("{line}\n");
            continue;
        };
        rows += 1;
        let krate = ["cli", "driver", "flight", "nbd", "protect", "remote", "replace", "serve", "watch"]
            .into_iter()
            .find_map(|krate| Some((krate, place.strip_prefix(krate)?.strip_prefix('/')?)));
        let (krate, file) = krate.unwrap_or(("engine", place));
        let path = root().join("crates").join(krate).join("src").join(file);
        let own = std::fs::read_to_string(path).unwrap_or_default();
        let is_there = said(name, &code(&own)).is_some();
        // What it is made of may stand in another file of the crate.
        let source = code(&own) + crates.entry(krate).or_insert_with(|| whole(krate));
        match shown(name, &source).filter(|_| is_there) {
            Some(now) => {
                if now != value {
                    problems.push(format!("{name} in {place} is {now}, and docs/LIMITS.md says {value}"));
                }
                written += &format!("| `{name}` | {place} | {now} | {of} | {reason} |\n");
            }
            None => {
                problems.push(format!("docs/LIMITS.md: {place} has no {name} whose value can be told"));
                written += &format!("{line}\n");
            }
        }
    }
    assert!(rows > 100, "the table of limits has {rows} rows");
    if std::env::var(WRITE).is_ok_and(|what| what == "write") {
        std::fs::write(page, written).expect("the page of limits is written");
    } else {
        super::report(problems);
    }
}

#[test]
fn expressions_of_limits_come_to_their_numbers() {
    let file =
        "const ONE: u64 = 3 * TWO;\npub const TWO: u32 = 4;\nfn default() {\n    ms: Nanos::SECOND / 2,\n}\n";
    assert_eq!(number("ONE", file), Some(12));
    assert_eq!(number("32 * 1024 * 1024", file), Some(32 << 20));
    assert_eq!(number("64 << 10", file), Some(64 << 10));
    assert_eq!(shown("ms", file).as_deref(), Some("500,000,000"));
    assert_eq!(number("whatever(3)", file), None);
    assert_eq!(in_units(1536 << 10, &[("MiB", 1 << 20), ("KiB", 1 << 10), ("bytes", 1)]), "1,536 KiB");
}
