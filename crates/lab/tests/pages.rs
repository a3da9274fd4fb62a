//! What holds of every page that the lab writes: findings stand first and whole, what was measured is told from what was
//! not, maps have scales, forests axes, long tables are folded, and nothing is asked of anyone. The pages are those of
//! small runs in virtual time, the same each time.

#[path = "pages/cases.rs"]
mod cases;
mod common;
#[path = "pages/hostile.rs"]
mod hostile;
#[path = "../examples/sample/mod.rs"]
mod sample;
#[path = "common/orion.rs"]
mod small_orion;

use bimetal_lab::report::{Named, html};
use cases::{Case, all};
use serde_json::Value;
use std::collections::BTreeSet;

/// Rows of a table that may stand open.
const MOST_OPEN: usize = 24;

/// What is shown: neither styles nor scripts.
fn body(page: &str) -> &str {
    let begin = page.find("<body>").expect("a body");
    let end = page.find("<script type=\"application/json\"").expect("data");
    &page[begin..end]
}

/// The styles that are the page's own: uPlot's stand before them.
fn style(page: &str) -> &str {
    let begin = page.find(":root {").expect("our style");
    &page[begin..page.find("</style>").expect("an end")]
}

fn data(page: &str) -> Value {
    let begin = page.find("id=\"data\">").expect("data") + "id=\"data\">".len();
    let end = page[begin..].find("</script>").expect("an end") + begin;
    serde_json::from_str(&page[begin..end]).expect("JSON")
}

/// Text as a page has it.
fn escaped(text: &str) -> String {
    let entity = |c: char| match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&quot;".to_owned(),
        '\'' => "&#39;".to_owned(),
        c => c.to_string(),
    };
    text.chars().map(entity).collect()
}

#[test]
fn findings_stand_before_the_environment_and_whole() {
    for Case { name, page, findings } in all() {
        let body = body(&page);
        let environment =
            body.find("<h2>Environment</h2>").unwrap_or_else(|| panic!("{name}: an environment"));
        for section in ["<h2>Findings</h2>", "<h2>Notes</h2>"] {
            if let Some(at) = body.find(section) {
                assert!(at < environment, "{name}: {section} stands behind the environment");
            }
        }
        for finding in &findings {
            let item = format!("<li dir=\"auto\">{}</li>", escaped(finding));
            let at = body.find(&item).unwrap_or_else(|| panic!("{name}: {finding}"));
            assert!(at < environment, "{name}: {finding}");
            // One that both the test and the record have is said once.
            assert_eq!(body.matches(&item).count(), 1, "{name}: {finding}");
            let open = body[..at].matches("<details").count() == body[..at].matches("</details>").count();
            assert!(open, "{name}: a finding is folded: {finding}");
        }
        assert!(!body.contains('…'), "{name}: something is cut");
        let style = style(&page);
        for cut in ["text-overflow", "overflow: hidden", "overflow:hidden", "line-clamp"] {
            assert!(!style.contains(cut), "{name}: {cut}");
        }
        assert!(style.contains(".said li { overflow-wrap: anywhere;"), "{name}");
    }
}

#[test]
fn what_was_measured_shares_no_colour_with_what_was_not() {
    let (mut seen, mut mixed) = (BTreeSet::new(), 0);
    for Case { name, page, .. } in all() {
        let (body, data) = (body(&page), data(&page));
        let mut origins: BTreeSet<String> = BTreeSet::new();
        for lines in ["series", "jobs", "tiers", "depths", "loads"] {
            let of = data[lines].as_array().expect("lines").iter();
            origins.extend(of.map(|line| line["origin"].as_str().expect("an origin").to_owned()));
        }
        let drawn = ["measured", "modelled", "published"];
        origins.extend(
            drawn
                .iter()
                .filter(|origin| body.contains(&format!("class=\"{origin}\"/>")))
                .map(|o| (*o).to_owned()),
        );
        for origin in drawn {
            let said = body.contains(&format!("<span class=\"swatch {origin}\"></span>"));
            assert_eq!(said, origins.contains(origin), "{name}: the legend and {origin}");
        }
        // Where both are on a page, a model's lines say it themselves.
        let series = data["series"].to_string();
        let both = series.contains("\"measured\"") && series.contains("\"modelled\"");
        mixed += usize::from(both);
        for line in data["series"].as_array().expect("lines") {
            let says = line["label"].as_str().expect("a label").contains("[modelled]");
            assert_eq!(says, both && line["origin"] == "modelled", "{name}: {line}");
        }
        seen.extend(origins);

        for theme in ["light: {", "dark: {"] {
            let begin = page.find(&format!("    {theme} measured: [")).expect("colours");
            let line = page[begin..].lines().next().expect("a line");
            let (measured, modelled) = line.split_once("modelled:").expect("both");
            let colours = |text: &str| -> BTreeSet<String> {
                text.split('"').filter(|part| part.starts_with('#')).map(str::to_owned).collect()
            };
            let (measured, modelled) = (colours(measured), colours(modelled));
            assert!(measured.len() == 4 && modelled.len() == 4 && measured.is_disjoint(&modelled), "{line}");
        }
        let style = style(&page);
        for theme in style.split("color-scheme").skip(1).take(2) {
            let of = |kind: &str| {
                let begin =
                    theme.find(&format!("--{kind}: ")).unwrap_or_else(|| panic!("{kind}")) + kind.len() + 4;
                theme[begin..begin + 7].to_owned()
            };
            assert_eq!(drawn.map(of).into_iter().collect::<BTreeSet<_>>().len(), 3, "{name}: a colour each");
        }
        // And without colour: filled, dashed, empty.
        assert!(style.contains("rect.modelled { fill: var(--modelled); fill-opacity: 0.25;"));
        assert!(style.contains("stroke-dasharray: 5 3") && style.contains("rect.published { fill: none;"));
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["measured", "modelled", "published"]);
    assert!(mixed > 0, "one page has both");
}

#[test]
fn maps_have_scales_with_end_values() {
    let mut maps = 0;
    for Case { name, page, .. } in all() {
        let data = data(&page);
        for map in ["heat", "places"].iter().flat_map(|kind| data[kind].as_array().expect("maps")) {
            maps += 1;
            let scales = &map["scales"];
            let unit = scales["unit"].as_str().expect("a unit");
            assert!(unit.starts_with("I/Os in a cell of ") && unit.contains(" by "), "{name}: {unit}");
            for side in ["both", "read", "write"] {
                let number = |value: &Value| value.as_u64().expect("a number");
                let ticks: Vec<u64> =
                    scales[side]["ticks"].as_array().expect("ticks").iter().map(number).collect();
                assert!(ticks.windows(2).all(|two| two[0] < two[1]), "{name}: {ticks:?}");
                assert_eq!(
                    (ticks.first(), ticks.last()),
                    (Some(&1), scales[side]["most"].as_u64().as_ref()),
                    "{name}"
                );
            }
            // The most is that of the cells.
            for side in ["read", "write"] {
                let cells = map[side]["cells"].as_array().expect("cells");
                let most = cells.iter().skip(2).step_by(3).filter_map(Value::as_u64).max().unwrap_or(1);
                assert_eq!(scales[side]["most"].as_u64(), Some(most), "{name}");
            }
        }
        assert!(page.contains("className: \"scale\"") && page.contains("scaleBar(where,"), "{name}");
    }
    assert!(maps > 4, "{maps}");
}

#[test]
fn forests_have_an_axis_with_ticks_and_the_line_of_no_difference() {
    let mut forests = 0;
    for Case { name, page, .. } in all() {
        for forest in body(&page).split("<table class=\"bars intervals\">").skip(1) {
            forests += 1;
            let (table, behind) = forest.split_once("</table>").expect("an end");
            let axis = table.split("</tr>").next().expect("a row");
            assert!(
                axis.contains("class=\"axis\"") && axis.contains(">no difference</text>"),
                "{name}: {axis}"
            );
            assert!(axis.matches("class=\"tick\"").count() >= 3, "{name}: {axis}");
            assert!(axis.contains("<text x=\"50.00%\" y=\"34\">1</text>"), "{name}: {axis}");
            let note = behind.split("</p>").next().expect("a note");
            assert!(note.contains(", as a number of times, on a logarithmic axis."), "{name}: {note}");
            // Every row has the line, too.
            let rows = table.matches("<circle").count();
            assert_eq!(table.matches("y1=\"0\" y2=\"14\" class=\"same\"/>").count(), rows, "{name}");
        }
    }
    assert!(forests > 0);
}

#[test]
fn two_runs_are_bars_with_intervals() {
    for (name, fewest) in [("two runs", 3), ("compare", 11), ("quick and quick", 13)] {
        let page = all().into_iter().find(|case| case.name == name).unwrap_or_else(|| panic!("{name}")).page;
        let body = body(&page);
        let charts: Vec<&str> = body.split("<table class=\"bars\">").skip(1).collect();
        let mut sure = 0;
        for chart in charts {
            let chart = chart.split("</table>").next().expect("an end");
            assert_eq!(chart.matches("<rect width=").count(), 2, "{name}: {chart}");
            // Flushes have no intervals of time, and what is over at once has too few: both bars are without ends then.
            let ends = chart.matches("class=\"spread\"").count();
            assert!(ends == 2 || ends == 0, "{name}: {chart}");
            sure += usize::from(ends == 2);
        }
        assert!(sure >= fewest, "{name}: {sure}");
        assert!(body.contains("where that mean lies 95 of 100 times"), "{name}");
    }
}

#[test]
fn long_tables_are_folded_behind_a_line_that_says_what_they_hold() {
    let mut folded = 0;
    for Case { name, page, .. } in all() {
        let body = body(&page);
        for (at, _) in body.match_indices("<tbody>") {
            let rows = body[at..].split("</tbody>").next().expect("an end").matches("<tr>").count();
            let before = &body[..at];
            let inside = before.rfind("<details").filter(|open| before[*open..].find("</details>").is_none());
            assert_eq!(inside.is_some(), rows > MOST_OPEN, "{name}: {rows} rows");
            if let Some(open) = inside {
                folded += 1;
                let line =
                    before[open..].split("<summary>").nth(1).and_then(|rest| rest.split("</summary>").next());
                let line = line.expect("a line");
                assert!(
                    line.contains("rows") && line.contains(|c: char| c.is_ascii_digit()),
                    "{name}: {line}"
                );
            }
        }
    }
    assert!(folded > 0);
    let snia = all().into_iter().find(|case| case.name == "snia").expect("it is there").page;
    // Reads and writes are rows of their own.
    let line = snia
        .split("<summary>")
        .find(|part| part.contains(" rows of 250 jobs; "))
        .expect("the summary's line");
    for part in ["read: ", "write: ", " IOPS, ", " MB/s, the longest response ", "; errors: 0</summary>"] {
        assert!(line.contains(part), "{part}");
    }
}

/// What does not fit is said to be left out, and many charts are folded.
#[test]
fn many_jobs_are_few_charts_and_that_is_said() {
    let mut run = sample::depths(1);
    let job = run.jobs[0].clone();
    let named = |at: usize| bimetal_lab::record::JobRun { name: format!("job {at}"), ..job.clone() };
    run.jobs = (0..60).map(named).collect();
    let runs = ["A", "B"].map(|name| Named { name: name.to_owned(), run: run.clone() });
    let page = html(&runs);
    let body = body(&page);
    assert_eq!(body.matches("<table class=\"bars\">").count(), 40);
    assert!(body.contains("<summary>40 charts of bars</summary>"));
    assert!(body.contains("The first 40 of 60 charts of bars."));
}

#[test]
fn no_page_asks_anyone_for_anything() {
    for Case { name, page, .. } in all() {
        for way_out in [
            "src=",
            "href=",
            "url(",
            "@import",
            "fetch(",
            "XMLHttpRequest",
            "WebSocket",
            "sendBeacon",
            "import(",
        ] {
            assert!(!page.contains(way_out), "{name}: {way_out}");
        }
        assert!(page.contains("default-src 'none'"), "{name}");
    }
}

/// A column for a label, one for the drawing and one for its text are as wide as their row; on a narrow page they stand
/// below each other.
#[test]
fn charts_and_words_fit_a_narrow_page() {
    let page = all().swap_remove(0).page;
    let style = style(&page);
    assert!(style.contains("table-layout: fixed") && style.contains("@media (max-width: 640px)"));
    let narrow = style.split("@media (max-width: 640px)").nth(1).expect("a rule");
    assert!(narrow.contains(".bars tr, .bars th, .bars td { display: block; width: auto; }"));
    assert!(
        style.contains(".figures .name { text-align: left; white-space: normal; overflow-wrap: anywhere;")
    );
    assert!(page.contains("name=\"viewport\" content=\"width=device-width, initial-scale=1\""));
}
