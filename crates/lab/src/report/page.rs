//! One HTML page that needs nothing else: tables written here, plots drawn by `assets/report.js` with uPlot.
//!
//! Names and notes in a record are anybody's. In the tables they are escaped; to the script they come as JSON in which
//! `<`, `>` and `&` are escaped, too, so that no text can end the element that holds it, and the script puts them into
//! the page as text only. A content security policy forbids the page every request.

use super::data::data;
use super::extra::{Extra, Origin, Table};
use super::facts::FACTS;
use super::fold::{MAX_OPEN, of_rows};
use super::summary::{Ratios, Row, TierRow, ratios, rows, tier_rows};
use super::units::{bytes, count, name, percent, prose, rate, three, time, times};
use super::{Named, beside};
use crate::record::JobRun;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Runs beside each other on a page.
pub const MAX_RUNS: usize = 8;
/// Jobs that are drawn; the tables have more.
pub const MAX_PLOTTED_JOBS: usize = 16;
/// Rows of a table, some four for each job.
pub const MAX_TABLE_ROWS: usize = 1000;
/// Jobs with a heat map and a map of addresses.
pub(super) const MAX_HEAT_MAPS: usize = 8;
/// Lines of details, of a target or a job.
pub(super) const MAX_DETAILS: usize = 100;
/// Notes of records: those of anybody's files must not make a page of any size.
const MAX_NOTES: usize = 2000;

const UPLOT: &str = include_str!("../../assets/uplot/uPlot.iife.min.js");
const PARTS: &str = include_str!("../../assets/parts.js");
const UPLOT_STYLE: &str = include_str!("../../assets/uplot/uPlot.min.css");
const UPLOT_LICENCE: &str = include_str!("../../assets/uplot/LICENSE");
const SCRIPT: &str = include_str!("../../assets/report.js");
const STYLE: &str = include_str!("../../assets/report.css");

/// The page of one run, or of several side by side: the first is what the others are compared with.
pub fn html(runs: &[Named]) -> String {
    html_with(runs, &Extra::default())
}

/// The same with tables and plots of a test's own.
pub fn html_with(runs: &[Named], extra: &Extra) -> String {
    let shown = &runs[..runs.len().min(MAX_RUNS)];
    let rows = rows(shown, MAX_TABLE_ROWS);
    let title = match shown {
        [] => "No run".to_string(),
        [one] => prose(&one.run.title),
        several => several.iter().map(|named| prose(&named.name)).collect::<Vec<_>>().join(" · "),
    };
    let mut page = Page(String::with_capacity(1 << 20));
    page.head(&title);
    page.raw("<main>\n");
    page.findings(shown, extra);
    page.legend(&origins(shown, extra));
    page.limits(runs, shown);
    page.environment(shown);
    page.own(extra);
    if extra.bars.is_empty() {
        let (bars, all) = beside::bars(shown, &rows);
        page.all_bars(&bars);
        page.more_than(bars.len(), all, "charts of bars");
    }
    if !rows.is_empty() {
        page.summary(shown, &rows);
    }
    page.by_tier(shown, &rows);
    page.ratios(shown, &ratios(&rows));
    page.raw(
        "<noscript><p class=\"note\">The plots need JavaScript.</p></noscript>\n<div id=\"plots\"></div>\n",
    );
    if !rows.is_empty() {
        page.details(shown);
    }
    page.raw("</main>\n");
    page.foot();
    page.raw("<script type=\"application/json\" id=\"data\">");
    page.raw(&in_script(&serde_json::to_string(&data(shown, extra)).unwrap_or_else(|_| "null".into())));
    let _ = write!(page.0, "</script>\n<script>\n/*\n{UPLOT_LICENCE}\n*/\n{UPLOT}</script>\n");
    let _ = write!(page.0, "<script>\n{PARTS}\n{SCRIPT}</script>\n</body>\n</html>\n");
    page.0
}

/// Where all that is shown comes from.
fn origins(runs: &[Named], extra: &Extra) -> BTreeSet<Origin> {
    let jobs = runs.iter().flat_map(|named| named.run.jobs.iter().map(|job| Origin::of(&named.run, job)));
    let bars = extra.bars.iter().flat_map(|bars| bars.bars.iter().map(|bar| bar.origin));
    jobs.chain(bars).collect()
}

/// JSON as it may stand in a script element: nothing in it ends the element, or begins a comment there.
fn in_script(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

/// HTML under way. Writing to a string cannot fail, so what `write!` returns is dropped.
pub(super) struct Page(pub(super) String);

impl Page {
    pub(super) fn raw(&mut self, html: &str) {
        self.0.push_str(html);
    }

    pub(super) fn text(&mut self, text: &str) {
        for c in text.chars() {
            match c {
                '&' => self.raw("&amp;"),
                '<' => self.raw("&lt;"),
                '>' => self.raw("&gt;"),
                '"' => self.raw("&quot;"),
                '\'' => self.raw("&#39;"),
                c => self.0.push(c),
            }
        }
    }

    /// `<tag>text</tag>`; the tag may have attributes.
    pub(super) fn element(&mut self, tag: &str, text: &str) {
        let _ = write!(self.0, "<{tag}>");
        self.text(text);
        let _ = write!(self.0, "</{}>", tag.split(' ').next().unwrap_or(tag));
    }

    fn head(&mut self, title: &str) {
        self.raw("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
        self.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
        self.raw("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; ");
        self.raw("style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n");
        self.element("title", &name(title));
        let _ = write!(self.0, "\n<style>\n{UPLOT_STYLE}\n{STYLE}</style>\n</head>\n<body>\n<header>\n");
        self.element("h1 dir=\"auto\"", title);
        self.raw("\n<button type=\"button\" id=\"theme\">Dark</button>\n</header>\n");
    }

    /// What was left out, if anything was.
    fn limits(&mut self, all: &[Named], shown: &[Named]) {
        if all.len() > shown.len() {
            self.element("p class=\"note\"", &format!("The first {MAX_RUNS} of {} runs.", all.len()));
        }
        let jobs: usize = shown.iter().map(|named| named.run.jobs.len()).sum();
        if jobs > MAX_PLOTTED_JOBS {
            let text =
                format!("Plots show {MAX_PLOTTED_JOBS} of the {jobs} jobs, heat maps {MAX_HEAT_MAPS}.");
            self.element("p class=\"note\"", &text);
        }
        let in_table = MAX_TABLE_ROWS / 4 / shown.len().max(1);
        if shown.iter().any(|named| named.run.jobs.len() > in_table) {
            self.element("p class=\"note\"", &format!("Tables show the first {in_table} jobs of a run."));
        }
    }

    /// That there are more than are shown, if there are.
    pub(super) fn more_than(&mut self, shown: usize, all: usize, what: &str) {
        if all > shown {
            self.element("p class=\"note\"", &format!("The first {shown} of {all} {what}."));
        }
    }

    /// A row for each fact, a column for each run.
    fn environment(&mut self, runs: &[Named]) {
        self.raw("<section>\n<h2>Environment</h2>\n<div class=\"wide\"><table class=\"facts\">\n");
        if runs.len() > 1 {
            self.raw("<tr><th></th>");
            runs.iter().for_each(|named| self.element("th", &prose(&named.name)));
            self.raw("</tr>\n");
        }
        for (label, of) in FACTS {
            let values: Vec<String> = runs.iter().map(|named| of(&named.run)).collect();
            if values.iter().all(String::is_empty) {
                continue;
            }
            self.raw("<tr>");
            self.element("th", label);
            values.iter().for_each(|value| self.element("td", value));
            self.raw("</tr>\n");
        }
        self.raw("</table></div>\n</section>\n");
    }

    /// What a test adds: its tables and charts, and where its plots will be.
    fn own(&mut self, extra: &Extra) {
        self.raw("<div id=\"own\"></div>\n");
        extra.tables.iter().for_each(|table| self.table(table));
        self.all_bars(&extra.bars);
        extra.intervals.iter().for_each(|intervals| self.intervals(intervals));
    }

    fn table(&mut self, table: &Table) {
        // Words begin at the left and go on in the next line, numbers end at the right: what is longer than a number is,
        // is words.
        let words = |at: usize| at == 0 || table.rows.iter().any(|row| row[at].chars().count() > 20);
        let tag = |kind: &str, at: usize| match words(at) {
            true => format!("{kind} class=\"name\" dir=\"auto\""),
            false => kind.to_owned(),
        };
        self.raw("<section>\n");
        self.element("h2", &prose(&table.caption));
        self.folded(table.rows.len(), &format!("{} rows", table.rows.len()), |page| {
            page.raw("<div class=\"wide\"><table class=\"figures\">\n<thead><tr>");
            table.head.iter().enumerate().for_each(|(at, cell)| page.element(&tag("th", at), &prose(cell)));
            page.raw("</tr></thead>\n<tbody>\n");
            for row in &table.rows {
                page.raw("<tr>");
                row.iter().enumerate().for_each(|(at, cell)| page.element(&tag("td", at), &prose(cell)));
                page.raw("</tr>\n");
            }
            page.raw("</tbody></table></div>\n");
        });
        self.raw("</section>\n");
    }

    fn summary(&mut self, runs: &[Named], rows: &[Row<'_>]) {
        self.raw("<section>\n<h2>Summary</h2>\n");
        self.folded(rows.len(), &of_rows(rows), |page| page.summary_table(runs, rows));
        self.raw("<p class=\"note\">MB/s are 10⁶ bytes. Service time runs from the hand-over ");
        self.raw("of an I/O to the target until it is done; response from when it was meant to begin. Late is what ");
        self.raw("was begun after its time, where it had one.</p>\n</section>\n");
    }

    fn summary_table(&mut self, runs: &[Named], rows: &[Row<'_>]) {
        self.raw("<div class=\"wide\"><table class=\"figures\">\n<thead><tr>");
        if runs.len() > 1 {
            self.raw("<th rowspan=\"2\" class=\"name\">Run</th>");
        }
        self.raw(
            "<th rowspan=\"2\" class=\"name\">Job</th><th rowspan=\"2\"></th><th rowspan=\"2\">IOPS</th>",
        );
        self.raw("<th rowspan=\"2\">MB/s</th><th colspan=\"5\" class=\"group\">Service time</th>");
        self.raw("<th colspan=\"5\" class=\"group\">Response</th>");
        self.raw("<th rowspan=\"2\" class=\"group\">Errors</th><th colspan=\"2\" class=\"group\">Late</th></tr>\n<tr>");
        for _ in 0..2 {
            self.raw("<th class=\"group\">mean</th><th>p50</th><th>p99</th><th>p99.9</th><th>max</th>");
        }
        self.raw("<th class=\"group\">share</th><th>worst</th></tr></thead>\n<tbody>\n");
        rows.iter().for_each(|row| self.row(runs, row));
        self.raw("</tbody></table></div>\n");
    }

    fn names(&mut self, runs: &[Named], row: &Row<'_>) {
        self.raw("<tr>");
        if runs.len() > 1 {
            self.element(
                "td class=\"name\"",
                &runs.get(row.run).map_or(String::new(), |run| name(&run.name)),
            );
        }
        self.element("td class=\"name\"", &name(&row.job.name));
        self.element("td class=\"name\"", row.kind);
    }

    fn row(&mut self, runs: &[Named], row: &Row<'_>) {
        self.names(runs, row);
        self.element("td", &rate(row.iops));
        self.element("td", &three(row.bytes_per_s / 1e6));
        for times in [row.service, row.response] {
            let columns = times.map_or([None; 5], |times| times.columns());
            for (at, ns) in columns.into_iter().enumerate() {
                self.element(if at == 0 { "td class=\"group\"" } else { "td" }, &ns.map_or("–".into(), time));
            }
        }
        let failed = row.side.failed.saturating_add(row.side.mismatched);
        self.element(
            if failed > 0 { "td class=\"group bad\"" } else { "td class=\"group\"" },
            &count(failed),
        );
        let late = &row.job.late;
        let worst = if late.count > 0 { time(late.max_ns as f64) } else { "–".into() };
        let share = if late.timed > 0 { percent(late.count, late.timed) } else { "–".into() };
        self.element("td class=\"group\"", &share);
        self.element("td", &worst);
        self.raw("</tr>\n");
    }

    /// Of targets that tell which tiers had a part.
    fn by_tier(&mut self, runs: &[Named], rows: &[Row<'_>]) {
        let tiers: Vec<TierRow<'_>> = tier_rows(rows).collect();
        if tiers.is_empty() {
            return;
        }
        self.raw("<section>\n<h2>By tier</h2>\n");
        let line = format!("{} rows: which tiers served how much of each job", tiers.len());
        self.folded(tiers.len(), &line, |page| page.tier_table(runs, &tiers));
        self.raw("<p class=\"note\">Each I/O counts once: the fast tier alone had a part in ");
        self.raw(
            "it, slower ones alone, both, or none, as when what was never written is read.</p>\n</section>\n",
        );
    }

    fn tier_table(&mut self, runs: &[Named], tiers: &[TierRow<'_>]) {
        self.raw("<div class=\"wide\"><table class=\"figures\">\n<thead><tr>");
        if runs.len() > 1 {
            self.raw("<th rowspan=\"2\" class=\"name\">Run</th>");
        }
        self.raw("<th rowspan=\"2\" class=\"name\">Job</th><th rowspan=\"2\"></th>");
        self.raw("<th rowspan=\"2\" class=\"name\">Served by</th><th rowspan=\"2\">Share</th>");
        self.raw("<th rowspan=\"2\">IOPS</th><th colspan=\"5\" class=\"group\">Service time</th></tr>\n<tr>");
        self.raw("<th class=\"group\">mean</th><th>p50</th><th>p99</th><th>p99.9</th><th>max</th></tr></thead>\n<tbody>\n");
        for tier in tiers {
            self.names(runs, tier.row);
            self.element("td class=\"name\"", tier.by);
            self.element("td", &percent(tier.side.ios, tier.row.side.ios));
            self.element("td", &rate(tier.iops));
            for (at, ns) in tier.service.columns().into_iter().enumerate() {
                self.element(if at == 0 { "td class=\"group\"" } else { "td" }, &ns.map_or("–".into(), time));
            }
            self.raw("</tr>\n");
        }
        self.raw("</tbody></table></div>\n");
    }

    fn ratios(&mut self, runs: &[Named], all: &[Ratios<'_>]) {
        let Some(first) = runs.first().filter(|_| !all.is_empty()) else { return };
        self.raw("<section>\n");
        self.element("h2", &format!("Compared with {}", prose(&first.name)));
        let line = format!("{} rows: ratios of rates and responses", all.len());
        self.folded(all.len(), &line, |page| page.ratio_table(runs, all));
        self.raw("<p class=\"note\">▲ better and ▼ worse by more than 5 %. One run of each says ");
        self.raw("nothing of chance; runs in alternation would.</p>\n</section>\n");
    }

    fn ratio_table(&mut self, runs: &[Named], all: &[Ratios<'_>]) {
        self.raw("<div class=\"wide\"><table class=\"figures\">\n<thead><tr><th rowspan=\"2\" class=\"name\">Run</th>");
        self.raw(
            "<th rowspan=\"2\" class=\"name\">Job</th><th rowspan=\"2\"></th><th rowspan=\"2\">IOPS</th>",
        );
        self.raw("<th rowspan=\"2\">MB/s</th><th colspan=\"5\" class=\"group\">Response</th></tr>\n<tr>");
        self.raw("<th class=\"group\">mean</th><th>p50</th><th>p99</th><th>p99.9</th><th>max</th></tr></thead>\n<tbody>\n");
        for Ratios { row, ratios } in all {
            self.names(runs, row);
            for (at, ratio) in ratios.iter().enumerate() {
                // Rates are better higher, times lower.
                let better = ratio.map(|ratio| if at < 2 { ratio } else { 1.0 / ratio });
                let class = match better {
                    Some(better) if better > 1.05 => "better",
                    Some(better) if better < 1.0 / 1.05 => "worse",
                    _ => "",
                };
                let group = if at == 2 { " group" } else { "" };
                let text = ratio.map_or("–".into(), times);
                self.element(&format!("td class=\"{class}{group}\""), &text);
            }
            self.raw("</tr>\n");
        }
        self.raw("</tbody></table></div>\n");
    }

    /// What a test found, whole; then what the records have to say, where that is more than the test has said.
    fn findings(&mut self, runs: &[Named], extra: &Extra) {
        let found: Vec<String> =
            extra.findings.iter().map(|line| prose(line)).filter(|line| !line.trim().is_empty()).collect();
        self.lines("Findings", &found, found.len());
        let mut notes = notes(runs);
        notes.retain(|line| !line.trim().is_empty() && !found.contains(line));
        self.lines("Notes", &notes, MAX_OPEN);
    }

    /// A list, of which so many lines stand open.
    fn lines(&mut self, title: &str, lines: &[String], open: usize) {
        if lines.is_empty() {
            return;
        }
        let list = |page: &mut Page, lines: &[String]| {
            page.raw("<ul class=\"said\">\n");
            lines.iter().for_each(|line| page.element("li dir=\"auto\"", line));
            page.raw("</ul>\n");
        };
        self.raw("<section>\n");
        self.element("h2", title);
        let (open, rest) = lines.split_at(lines.len().min(open));
        list(self, open);
        if !rest.is_empty() {
            self.raw("<details class=\"fold\"><summary>");
            self.text(&format!("and {} more", rest.len()));
            self.raw("</summary>\n");
            list(self, rest);
            self.raw("</details>\n");
        }
        self.raw("</section>\n");
    }

    /// The jobs' options, folded.
    fn details(&mut self, runs: &[Named]) {
        let jobs: usize = runs.iter().map(|named| named.run.jobs.len()).sum();
        self.raw("<section>\n<h2>Jobs</h2>\n");
        self.folded(jobs, &format!("{jobs} jobs: targets, spans and options"), |page| {
            for named in runs {
                let jobs = MAX_DETAILS / runs.len().max(1);
                named.run.jobs.iter().take(jobs).for_each(|job| page.job(named, job, runs.len() > 1));
            }
        });
        self.raw("</section>\n");
    }

    fn job(&mut self, named: &Named, job: &JobRun, several: bool) {
        let prefix = if several { format!("{}: ", name(&named.name)) } else { String::new() };
        let head = format!(
            "{prefix}{} on {}, depth {}, {}",
            name(&job.name),
            name(&job.target),
            job.depth,
            time(job.elapsed_ns as f64)
        );
        self.raw("<details><summary>");
        self.text(&head);
        self.raw("</summary><dl>");
        let span = format!("{} to {}", bytes(job.span.0), bytes(job.span.1));
        self.element("dt", "span");
        self.element("dd", &span);
        for (option, value) in job.options.iter().take(MAX_DETAILS) {
            self.element("dt", &name(option));
            self.element("dd", &name(value));
        }
        self.raw("</dl></details>\n");
    }

    fn foot(&mut self) {
        self.raw("<footer><p class=\"note\">Lines over time keep the lowest and the highest value of each part of ");
        self.raw("the time where there are more than fit, so that no peak is lost; moving means stand at the end of ");
        self.raw(
            "their window. Drawn with uPlot 1.6.32 (MIT licence, © Leon Sorokin), which is embedded.</p>",
        );
        self.raw("</footer>\n<pre id=\"drawn\" hidden></pre>\n");
    }
}

/// Notes, errors, and whether jobs were steady.
fn notes(runs: &[Named]) -> Vec<String> {
    let mut lines = Vec::new();
    for named in runs {
        let prefix = if runs.len() > 1 { format!("{}: ", name(&named.name)) } else { String::new() };
        lines.extend(named.run.notes.iter().map(|note| format!("{prefix}{}", prose(note))));
        for job in &named.run.jobs {
            let job_name = name(&job.name);
            let errors = job.errors.iter();
            lines
                .extend(errors.map(|(why, n)| format!("{prefix}{job_name}: {} × {}", count(*n), prose(why))));
            lines.extend(job.steady.iter().map(|steady| format!("{prefix}{job_name}: {steady}")));
        }
    }
    if lines.len() > MAX_NOTES {
        let more = lines.len() - MAX_NOTES;
        lines.truncate(MAX_NOTES);
        lines.push(format!("and {more} more in the records"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_cannot_end_its_element() {
        let hostile = "</script><!--<script>\u{2028}\u{2029}&";
        let json = serde_json::to_string(hostile).expect("writes");
        let safe = in_script(&json);
        assert!(!safe.contains(['<', '>', '&', '\u{2028}', '\u{2029}']), "{safe}");
        assert_eq!(serde_json::from_str::<String>(&safe).expect("reads"), hostile);
    }

    /// Nothing that is embedded ends the element that it is in.
    #[test]
    fn assets_stay_in_their_elements() {
        for script in [UPLOT, PARTS, SCRIPT, UPLOT_LICENCE] {
            let script = script.to_lowercase();
            assert!(!script.contains("</script") && !script.contains("<!--"));
        }
        assert!(!UPLOT_LICENCE.contains("*/"));
        for style in [UPLOT_STYLE, STYLE] {
            assert!(!style.contains('<') && !style.contains("url(") && !style.contains("@import"));
        }
    }
}
