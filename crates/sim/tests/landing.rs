//! Stories of the landing zone under a load that never ends.

use bimetal_sim::scenario::{Scenario, run};
use std::path::Path;

/// Random writes over a volume that is mostly full, for a quarter of an hour. The zone grows to three times its size, and
/// each time it has doubled, its oldest quarter is chosen anew, the one before left half done. What was left of that used to
/// have its turn by where it lay on the disk, minutes later: until then nothing behind the first segment with one
/// block left could be used again, though clients had been let in for it. So all writes stood still for 40 s here, and for
/// minutes on a volume of a terabyte. What is left of the plan before comes first now.
#[test]
fn writes_never_stand_still_however_long_they_go_on() {
    let text = r#"
name = "random writes without end"
[volume]
fast = { model = "ssd-128gb-2012", size = "4G" }
slow = { model = "disk-1tb-2012", size = "31G" }
[[phase]]
name = "fill"
load = [{ pattern = "sequential", block = "1M", depth = 2 }]
for = "80%"
[[phase]]
name = "rest"
pause_seconds = 600
[[phase]]
name = "random writes"
load = [{ pattern = "random", block = "4K", depth = 16, span = "80%" }]
seconds = 900
[[phase]]
name = "afterwards"
load = [{ pattern = "random", block = "4K", depth = 16, span = "80%" }]
seconds = 60
"#;
    let scenario = Scenario::parse(text).expect("a scenario");
    let report = run(&scenario, Path::new(""), &mut |_, _| {}).expect("it runs");
    for phase in &report.phases {
        assert_eq!(phase.failures, 0, "{}", phase.name);
        assert!(phase.max_us < 1e6, "{}: a write took {:.1} s", phase.name, phase.max_us / 1e6);
    }
}
