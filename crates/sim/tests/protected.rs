//! A volume with an image on its slow device, in virtual time.

use bimetal_sim::scenario::{Report, Scenario};
use std::path::Path;

/// A volume that was filled by half, and is written to at random: so many times a second, to a span, for a minute.
fn run(protect_seconds: Option<u32>, rate: u32, span: &str) -> Report {
    let protect = protect_seconds.map_or(String::new(), |seconds| format!("protect_seconds = {seconds}"));
    let text = format!(
        r#"
name = "random writes"
[volume]
fast = {{ model = "ssd-128gb-2012", size = "2G" }}
slow = {{ model = "disk-1tb-2012", size = "16G" }}
{protect}
[[phase]]
name = "fill"
load = [{{ pattern = "sequential", block = "1M", depth = 2, span = "4G" }}]
for = "4G"
[[phase]]
name = "settle"
pause_seconds = 600
[[phase]]
name = "write"
load = [{{ pattern = "random", block = "4K", rate_iops = {rate}, span = "{span}" }}]
seconds = 60
[[phase]]
name = "kill"
reopen = "kill"
[[phase]]
name = "write again"
load = [{{ pattern = "random", block = "4K", rate_iops = {rate}, span = "{span}" }}]
seconds = 60
[[phase]]
name = "rest"
pause_seconds = 300
[[phase]]
name = "close"
reopen = "close"
"#
    );
    let scenario = Scenario::parse(&text).expect("a scenario");
    bimetal_sim::scenario::run(&scenario, Path::new("."), &mut |_, _| {}).expect("it runs")
}

fn exposed(report: &Report) -> Vec<Option<f64>> {
    report.phases.iter().map(|phase| phase.exposed_seconds).collect()
}

/// While the disk keeps up, the image is as young as it is to be, after a kill as well; after a rest, it lacks nothing.
#[test]
fn an_image_is_young_and_survives_a_kill() {
    let report = run(Some(10), 200, "64M");
    let exposed = exposed(&report);
    for (phase, age) in report.phases.iter().zip(&exposed).skip(1) {
        let age = age.unwrap_or_else(|| panic!("{}: there is no image", phase.name));
        assert!(age <= 10.0, "{}: {age} s", phase.name);
    }
    assert_eq!(exposed[5], Some(0.0), "after a rest");
    assert_eq!(report.event_hash, run(Some(10), 200, "64M").event_hash);
}

/// A volume without protection has none.
#[test]
fn without_protection_there_is_no_image() {
    assert!(exposed(&run(None, 200, "64M")).iter().all(Option::is_none));
}
