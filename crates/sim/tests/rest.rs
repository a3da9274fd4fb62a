//! A rest never makes a hot set slower: what is moved while nobody asks for anything takes nothing from what is hotter.

use bimetal_sim::scenario::{Report, Scenario};
use std::path::Path;

/// A volume that was filled, and written all over at random; then a hot set is read, and somebody reads here and there.
struct Shape {
    fast: &'static str,
    slow: &'static str,
    hot_from: &'static str,
    hot_span: &'static str,
    /// For how long it is written at random, and then read, seconds.
    written: u32,
    read: u32,
}

impl Shape {
    /// What the hot set does after so long a rest, requests a second and its share that is answered by the fast tier.
    fn after_rest(&self, seconds: u64) -> (f64, f64) {
        let Shape { fast, slow, hot_from, hot_span, written, read } = self;
        let hot = format!(
            r#"{{ pattern = "random", read_percent = 100, block = "16K", depth = 4, from = "{hot_from}", span = "{hot_span}" }}"#
        );
        let text = format!(
            r#"
name = "a hot set and a rest"
[volume]
fast = {{ model = "ssd-128gb-2012", size = "{fast}" }}
slow = {{ model = "disk-1tb-2012", size = "{slow}" }}
[[phase]]
name = "fill"
load = [{{ pattern = "sequential", block = "1M", depth = 2, span = "50%" }}]
for = "50%"
[[phase]]
name = "random writes"
load = [{{ pattern = "random", block = "4K", depth = 16, span = "50%" }}]
seconds = {written}
[[phase]]
name = "settle"
pause_seconds = 600
[[phase]]
name = "hot set"
load = [{hot}, {{ pattern = "random", read_percent = 100, block = "16K", span = "50%" }}]
seconds = {read}
[[phase]]
name = "rest"
pause_seconds = {seconds}
[[phase]]
name = "hot set again"
load = [{hot}]
seconds = 2
"#
        );
        let scenario = Scenario::parse(&text).expect("a scenario");
        let report: Report =
            bimetal_sim::scenario::run(&scenario, Path::new("."), &mut |_, _| {}).expect("it runs");
        let again = report.phases.last().expect("phases");
        (again.iops, again.fast_share.expect("it asks for something"))
    }
}

/// Old writes rose into the slots of copies, region by region, and the hot set, the last of all, found no slot: after
/// five minutes it was answered 718 times a second.
#[test]
fn a_hot_set_that_is_read_from_copies_is_as_fast_after_any_rest() {
    let shape =
        Shape { fast: "819M", slow: "16G", hot_from: "7680M", hot_span: "163M", written: 30, read: 30 };
    for seconds in [300, 6 * 3600] {
        let (iops, fast) = shape.after_rest(seconds);
        assert!(
            iops > 14_000.0 && fast > 0.999,
            "after {seconds} s: {iops} requests a second, {fast} of them fast"
        );
    }
}

/// A rest too short for all that is warm: what is hot rises first, though its region comes last.
#[test]
fn a_short_rest_is_made_use_of_for_the_hottest() {
    let shape = Shape { fast: "1638M", slow: "4G", hot_from: "1920M", hot_span: "81M", written: 8, read: 15 };
    for seconds in [10, 60] {
        let (iops, fast) = shape.after_rest(seconds);
        assert!(
            iops > 14_000.0 && fast > 0.999,
            "after {seconds} s: {iops} requests a second, {fast} of them fast"
        );
    }
}
