//! What a finding may be: anything.

use super::{body, escaped, sample};
use bimetal_lab::record::Run;
use bimetal_lab::report::{Bar, Bars, Extra, Interval, Intervals, Named, Origin, Table, html_with, text};
use bimetal_units::rng::Rng;

/// Characters that something could trip over.
const ODD: [char; 24] = [
    '<', '>', '&', '"', '\'', '/', '\\', '`', '=', ' ', '\n', '\t', '\0', '\u{1b}', '\u{202e}', '\u{2066}',
    '\u{200f}', '\u{2028}', '\u{feff}', 'א', 'ع', 'é', '😀', 'x',
];

fn findings() -> Vec<String> {
    let mut all: Vec<String> = [
        "x".repeat(2000),
        "<script>alert(1)</script>".to_owned(),
        "</li></ul></section><img src=x onerror=alert(1)>".to_owned(),
        "\"double\" and 'single' & &amp; &lt;".to_owned(),
        String::new(),
        "   ".to_owned(),
        "שלום עולם: 10 % יותר מהר".to_owned(),
        "\u{202e}turned around\u{202c}".to_owned(),
        "]]> --> <!-- /*".to_owned(),
        "word ".repeat(2000),
    ]
    .into();
    let mut rng = Rng::new(5, 0);
    for _ in 0..200 {
        let length = rng.below(300) + 1;
        all.push((0..length).map(|_| rng.pick(&ODD)).collect());
    }
    all
}

/// What is to be read: what steers a terminal, or turns text around, is replaced, and nothing is left out.
fn readable(text: &str) -> String {
    let replaced = |c: char| match c {
        '\t' | '\n' => ' ',
        '\0' | '\u{1b}' | '\u{202c}' | '\u{202e}' | '\u{2066}' | '\u{200f}' | '\u{2028}' | '\u{feff}' => {
            '\u{fffd}'
        }
        c => c,
    };
    text.chars().map(replaced).collect()
}

fn page(findings: &[String], run: Run) -> String {
    let odd = |at: usize| findings[at % findings.len()].clone();
    let bar = |at: usize| Bar {
        label: odd(at),
        value: at as f64,
        text: odd(at + 1),
        origin: Origin::Measured,
        interval: Some((f64::NAN, f64::INFINITY)),
    };
    let row = |at: usize| Interval {
        label: odd(at),
        low: 0.0,
        at: f64::NAN,
        high: f64::INFINITY,
        text: odd(at + 1),
    };
    let extra = Extra {
        title: odd(1),
        findings: findings.to_vec(),
        tables: vec![Table { caption: odd(1), head: vec![odd(2), odd(3)], rows: vec![vec![odd(0), odd(3)]] }],
        bars: vec![Bars { title: odd(2), bars: (0..12).map(bar).collect(), note: "" }],
        intervals: vec![Intervals { title: odd(1), unit: odd(2), rows: (0..12).map(row).collect() }],
        figures: Vec::new(),
    };
    html_with(&[Named { name: odd(1), run }], &extra)
}

#[test]
fn whatever_is_found_is_said_whole_and_only_said() {
    let findings = findings();
    let hostile = page(&findings, sample::depths(1));
    let body = body(&hostile);
    let environment = body.find("<h2>Environment</h2>").expect("an environment");
    let items: Vec<&str> = body[..environment]
        .split("<li dir=\"auto\">")
        .skip(1)
        .map(|rest| rest.split("</li>").next().expect("an end"))
        .collect();
    let expected: Vec<String> = findings
        .iter()
        .map(|finding| readable(finding))
        .filter(|finding| !finding.trim().is_empty())
        .map(|finding| escaped(&finding))
        .collect();
    // Behind them stands what the record has to say.
    assert_eq!(items[..expected.len()], expected[..]);
    assert!(expected.iter().any(|finding| finding.len() == 2000));

    // Nothing of it became markup: as many of each tag as with findings that are words.
    let words: Vec<String> = (0..findings.len()).map(|at| format!("finding {at}")).collect();
    let plain = page(&words, sample::depths(1));
    for tag in ["<script", "</script", "<img", "<!--", "</section", "</ul", "<ul", "</table", "NaN%", "inf%"]
    {
        assert_eq!(hostile.matches(tag).count(), plain.matches(tag).count(), "{tag}");
    }
    assert!(!body.contains(['\u{202e}', '\u{2066}', '\u{200f}', '\u{2028}', '\u{1b}', '\0']));
    assert!(!hostile.contains("NaN%") && !hostile.contains("inf%"));
}

/// A record's own notes are no shorter, on a page or as text, and no longer than a page can bear.
#[test]
fn notes_of_records_are_said_whole() {
    let mut run = sample::depths(1);
    run.notes = findings();
    let named = [Named { name: "a".to_owned(), run: run.clone() }];
    let (page, lines) = (html_with(&named, &Extra::default()), text(&named));
    let environment = page.find("<h2>Environment</h2>").expect("an environment");
    for note in run.notes.iter().map(|note| readable(note)).filter(|note| !note.trim().is_empty()) {
        let at = page.find(&format!("<li dir=\"auto\">{}</li>", escaped(&note)));
        assert!(at.is_some_and(|at| at < environment), "{note}");
        assert!(lines.contains(&note), "{note}");
    }
    run.notes = (0..100_000).map(|at| format!("note {at}")).collect();
    let page = html_with(&[Named { name: "a".to_owned(), run }], &Extra::default());
    assert!(page.len() < 1_000_000 && page.contains("and 98000 more in the records"), "{}", page.len());
}
