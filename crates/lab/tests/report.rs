//! Records read, pages and tables written: from runs that look like measurements, and from hostile ones.

#[path = "../examples/sample/mod.rs"]
mod sample;

use bimetal_lab::record::{Interval, IntervalSide, JobRun, Run};
use bimetal_lab::report::{Invalid, MAX_RECORD_BYTES, Named, html, parse, read, text, validate};
use bimetal_units::rng::Rng;
use serde_json::Value;
use std::path::Path;

/// A run of two jobs with six intervals each.
fn small() -> Run {
    let mut run = sample::depths(1);
    run.jobs.truncate(2);
    run.jobs.iter_mut().for_each(|job| job.intervals.truncate(6));
    run
}

fn json(run: &Run) -> Value {
    serde_json::to_value(run).expect("writes")
}

fn parsed(value: &Value) -> Result<Run, Invalid> {
    parse(&serde_json::to_vec(value).expect("writes"))
}

fn named(name: &str, run: Run) -> Named {
    Named { name: name.into(), run }
}

/// What the script on the page is given.
fn data(page: &str) -> Value {
    let begin = page.find("id=\"data\">").expect("data") + "id=\"data\">".len();
    let end = page[begin..].find("</script>").expect("an end") + begin;
    serde_json::from_str(&page[begin..end]).expect("JSON")
}

#[test]
fn a_record_comes_back_as_it_was() {
    for run in [sample::fill_with_cliff(1, 1.0), sample::depths(2)] {
        assert!(parsed(&json(&run)).expect("a run") == run, "{}", run.title);
    }
}

#[test]
fn what_is_no_record_is_told_apart() {
    let why = |text: &[u8]| parse(text).expect_err("refused").to_string();
    let whole = serde_json::to_vec(&small()).expect("writes");
    assert!(why(&whole[..whole.len() / 2]).contains("cut off"));
    assert!(why(b"").contains("cut off"));
    assert!(why(b"fio-3.33\nStarting 1 process").contains("not a record"));
    assert!(why(b"[1, 2]").contains("not a record"));
    assert!(why(b"{\"fio version\": \"fio-3.33\"}").contains("its \"format\" is not \"bimetal-lab-run\""));
    let mut newer = json(&small());
    newer["version"] = 7.into();
    newer["jobs"] = "otherwise by then".into();
    assert!(parsed(&newer).expect_err("refused").to_string().contains("version 7"));
    let mut odd = json(&small());
    odd["jobs"][0]["depth"] = (-1).into();
    assert!(matches!(parsed(&odd), Err(Invalid::Malformed(_))));
    // Zeros that nobody touches take no memory.
    assert!(matches!(parse(&vec![0; MAX_RECORD_BYTES as usize + 1]), Err(Invalid::Large)));
    assert!(
        read(Path::new("/nowhere/at/all.json"))
            .expect_err("refused")
            .to_string()
            .contains("/nowhere/at/all.json")
    );
}

#[test]
fn contradictions_are_refused_with_their_place() {
    type Spoil = fn(&mut JobRun);
    let spoilt: [(&str, Spoil); 13] = [
        ("intervals are not in order", |job| job.intervals.swap(1, 2)),
        ("intervals are not in order", |job| job.intervals[1].n = 0),
        ("no length", |job| job.interval_ns = 0),
        ("146 years", |job| job.intervals[5].n = u64::MAX),
        ("146 years", |job| job.elapsed_ns = u64::MAX),
        ("not in order", |job| job.read.response.bins.reverse()),
        ("add up", |job| job.read.response.bins[0].1 = u64::MAX),
        ("add up", |job| job.read.service.count += 1),
        ("shortest latency", |job| job.read.submit.min_ns = 1 << 60),
        ("a mean is not between", |job| job.read.response.mean_ns = 1e300),
        ("beyond 127", |job| job.intervals[0].read.places = vec![(128, 1)]),
        ("fast tier", |job| job.intervals[0].tiers = Some((2, 1))),
        ("span", |job| job.span = (1, 0)),
    ];
    for (what, spoil) in spoilt {
        let mut run = small();
        spoil(&mut run.jobs[1]);
        let why = validate(&run).expect_err(what).to_string();
        assert!(why.contains(what) && why.contains("job 2 (\"qd2\")"), "{why}");
    }
}

/// Every number of a record is replaced by an extreme one, a few at a time: what is read is printed.
#[test]
fn hostile_numbers_neither_panic_nor_hang() {
    let extremes = [0, 1, 127, 128, 1 << 31, 1 << 32, (1 << 53) + 1, 1 << 60, 1 << 62, u64::MAX];
    let original = json(&small());
    let mut paths = Vec::new();
    numbers(&original, String::new(), &mut paths);
    let mut rng = Rng::new(11, 0);
    let mut accepted = 0;
    for round in 0..4 * paths.len() {
        let mut value = original.clone();
        for _ in 0..=round % 3 {
            let path = &paths[rng.below(paths.len() as u64) as usize];
            *value.pointer_mut(path).expect("a place") = rng.pick(&extremes).into();
        }
        if let Ok(run) = parsed(&value) {
            accepted += 1;
            if accepted % 8 == 0 {
                let runs = [named("A", run), named("B", small())];
                assert!(html(&runs).len() < 2_000_000 && !text(&runs).is_empty());
            }
        }
    }
    assert!(accepted > 100, "{accepted}");
}

fn numbers(value: &Value, path: String, out: &mut Vec<String>) {
    match value {
        Value::Number(_) => out.push(path),
        Value::Array(items) => {
            // Of long lists the beginning and the end.
            let all = items.len();
            let ends = items.iter().enumerate().filter(|(at, _)| *at < 3 || at + 2 >= all);
            ends.for_each(|(at, item)| numbers(item, format!("{path}/{at}"), out));
        }
        Value::Object(fields) => {
            fields.iter().for_each(|(key, field)| numbers(field, format!("{path}/{key}"), out));
        }
        _ => {}
    }
}

#[test]
fn names_cannot_leave_their_place() {
    let hostile = "</title></script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&<!--\u{2028}";
    let mut run = small();
    run.title = hostile.into();
    run.notes.push(hostile.into());
    run.environment.processor = hostile.into();
    run.environment.targets = [(hostile.to_string(), Default::default())].into();
    for job in &mut run.jobs {
        job.name = hostile.into();
        job.target = hostile.into();
        job.options = [(hostile.to_string(), hostile.to_string())].into();
        job.errors = [(hostile.to_string(), 3)].into();
    }
    let runs = [named(hostile, run.clone()), named("B", run)];
    let (plain, page) = (html(&[named("A", small()), named("B", small())]), html(&runs));
    for tag in ["<script", "</script", "<img", "<!--", "onerror=alert(1)>", "\u{2028}", "<title"] {
        assert_eq!(page.matches(tag).count(), plain.matches(tag).count(), "{tag}");
    }
    let label = data(&page)["series"][0]["label"].as_str().expect("a label").to_string();
    assert!(label.contains("<script>alert(1)</script>"), "{label}");
    assert!(!text(&runs).contains('\u{2028}'));
}

#[test]
fn a_page_needs_nothing_else() {
    let page = html(&[named("A", sample::fill_with_cliff(1, 1.0))]);
    for way_out in
        ["src=", "href=", "url(", "@import", "fetch(", "XMLHttpRequest", "WebSocket", "sendBeacon", "import("]
    {
        assert!(!page.contains(way_out), "{way_out}");
    }
    assert!(page.contains("default-src 'none'"));
    // Links in licences are none.
    let links = page.matches("http://").count() + page.matches("https://").count();
    assert!(links <= 1, "{links}");
}

#[test]
fn lines_and_maps_are_told_to_the_script() {
    let told = data(&html(&[
        named("A", sample::fill_with_cliff(1, 1.0)),
        named("B", sample::fill_with_cliff(2, 1.1)),
    ]));
    let labels: Vec<&str> =
        told["series"].as_array().expect("series").iter().filter_map(|s| s["label"].as_str()).collect();
    let expected = [
        "A: fill write",
        "B: fill write",
        "A: database read",
        "A: database write",
        "B: database read",
        "B: database write",
    ];
    assert_eq!(labels, expected);
    let count = |key: &str| told[key].as_array().map(Vec::len);
    assert_eq!(
        (count("windows"), count("iops"), count("heat"), count("places")),
        (Some(4), Some(4), Some(4), Some(4))
    );
    assert_eq!(told["iops"][1].as_array().map(Vec::len), Some(6));
    assert_eq!((told["end"].as_f64(), count("loads")), (Some(300.0), Some(6)));
    // The fill falls when the fast tier is full, at 62 % of five minutes.
    let fill = &told["iops"][2][0];
    let value_at = |seconds: f64| {
        let at = fill["x"].as_array()?.iter().position(|x| x.as_f64() >= Some(seconds))?;
        fill["y"][at].as_f64()
    };
    assert!(value_at(100.0) > Some(15_000.0) && value_at(250.0) < Some(2000.0));
}

#[test]
fn many_jobs_and_many_intervals_make_no_large_page() {
    let mut run = small();
    let job = run.jobs[0].clone();
    run.jobs = vec![JobRun { intervals: Vec::new(), ..job.clone() }; 9000];
    let page = html(&[named("A", run.clone()), named("B", run.clone())]);
    assert!(page.len() < 3_000_000, "{}", page.len());
    assert!(page.contains("Plots show 16 of the 18000 jobs") && page.contains("the first 125 jobs of a run"));
    assert!(text(&[named("A", run.clone())]).contains("Of each run the first 250 jobs; there are 9000."));
    let side = |ios| IntervalSide {
        ios,
        bytes: ios,
        max_ns: ios,
        heat: vec![(30, ios)],
        places: vec![(3, ios)],
        total_ns: 1,
    };
    let intervals = (0..300_000).map(|n| Interval { n, read: side(n % 1000 + 1), ..Interval::default() });
    let long = JobRun { elapsed_ns: 300_000_000_000_000, intervals: intervals.collect(), ..job };
    run.jobs = vec![long; 2];
    validate(&run).expect("valid");
    let page = html(&[named("A", run)]);
    assert!(page.len() < 1_000_000, "{}", page.len());
    let line = &data(&page)["iops"][0][0];
    let highest = line["y"].as_array().expect("a line").iter().filter_map(Value::as_f64).fold(0.0, f64::max);
    assert_eq!(highest, 1000.0);
}

#[test]
fn nothing_is_a_page_too() {
    let mut run = small();
    run.jobs = vec![JobRun::default()];
    for runs in [vec![], vec![named("A", run.clone())], vec![named("A", run); 20]] {
        assert!(html(&runs).ends_with("</html>\n"));
        assert!(text(&runs).contains("IOPS"));
    }
}

#[test]
fn the_table_compares_by_name() {
    let mut second = sample::depths(1);
    second.jobs.iter_mut().for_each(|job| job.elapsed_ns *= 2);
    second.jobs.remove(0);
    let table = text(&[named("one", sample::depths(1)), named("two", second)]);
    let ratios: Vec<&str> =
        table.lines().skip_while(|line| !line.starts_with("By one:")).skip(3).take(5).collect();
    assert_eq!(
        ratios[0].split_whitespace().collect::<Vec<_>>()[..6],
        ["two", "qd2", "read", "0.50×", "0.50×", "1.00×"]
    );
    assert!(ratios[4].starts_with("two  qd32"), "{table}");
    let one = text(&[named("one", sample::depths(1))]);
    assert!(!one.contains("By one") && one.contains("qd16"));
}
