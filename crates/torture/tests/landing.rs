//! Stories of the landing zone under a load that never ends.

use crate::story::{BLOCK, CHUNK, Story};
use bimetal_engine::action::RequestKind;
use bimetal_sim::scenario::{Report, Scenario, run};
use bimetal_units::Nanos;
use std::collections::VecDeque;
use std::path::Path;

/// What comes of these phases on a volume of which 80 % were written in order, and which has rested.
fn mostly_full(phases: &str) -> Report {
    const FULL: &str = r#"
name = "a volume that is mostly full"
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
"#;
    let scenario = Scenario::parse(&format!("{FULL}{phases}")).expect("a scenario");
    run(&scenario, Path::new(""), &mut |_, _| {}).expect("it runs")
}

/// Random writes over a volume that is mostly full, for a quarter of an hour. The zone grows to three times its size, and
/// each time it has doubled, its oldest quarter is chosen anew, the one before left half done. What was left of that used to
/// have its turn by where it lay on the disk, minutes later: until then nothing behind the first segment with one
/// block left could be used again, though clients had been let in for it. So all writes stood still for 40 s here, and for
/// minutes on a volume of a terabyte. What is left of the plan before comes first now.
#[test]
fn writes_never_stand_still_however_long_they_go_on() {
    let report = mostly_full(
        r#"
[[phase]]
name = "random writes"
load = [{ pattern = "random", block = "4K", depth = 16, span = "80%" }]
seconds = 900
[[phase]]
name = "afterwards"
load = [{ pattern = "random", block = "4K", depth = 16, span = "80%" }]
seconds = 60
"#,
    );
    for phase in &report.phases {
        assert_eq!(phase.failures, 0, "{}", phase.name);
        assert!(phase.max_us < 1e6, "{}: a write took {:.1} s", phase.name, phase.max_us / 1e6);
    }
}

/// Half a gigabyte on the disk is written at random after a rest, in which an eighth of the SSD was made free. What had been
/// there had left copies behind, which nobody read and which counted as used: so the zone, when it ran short, pushed chunks
/// down to the disk to grow, and the burst went at 65 MB/s beside that.
#[test]
fn a_burst_lands_where_only_copies_are_that_nobody_reads() {
    let report = mostly_full(
        r#"
[[phase]]
name = "burst"
load = [{ pattern = "random", block = "4K", depth = 16, from = "70%", span = 500000000 }]
seconds = 7
"#,
    );
    let burst = report.phases.last().expect("it has phases");
    assert!(burst.mb_per_s > 95.0, "{:.1} MB/s", burst.mb_per_s);
}

/// A volume that is nearly full: its fast tier keeps its last few slots free for what rises, and under a burst of writes
/// chunks are pushed down so that the zone can grow. Small first writes land then, and were to settle on the slow tier; but
/// that had no slot left. They waited in the zone for ever, held the log's tail, and so stopped all writes, though the fast
/// tier had slots.
#[test]
fn what_landed_settles_on_whichever_tier_has_a_slot() {
    const BLANK: u64 = 6;
    let mut s = Story::begin(320, 320);
    s.tuning.small_write_bytes = 32 << 10;
    s.stop();
    s.open().expect("the volume opens");
    let chunks = s.engine().size_bytes() / CHUNK;
    (0..chunks - BLANK).for_each(|chunk| s.write(chunk * CHUNK, CHUNK, 0x11));
    s.flush();
    s.wait(60 * Nanos::SECOND);
    let write = RequestKind::Write { fua: false };
    let mut blanks = chunks - BLANK..chunks;
    let mut asked = VecDeque::new();
    for i in 0..6000 {
        if i > 1500
            && i % 100 == 0
            && let Some(chunk) = blanks.next()
        {
            asked.push_back(s.ask(write, chunk * CHUNK, BLOCK, 0x22));
        }
        let anywhere = i * 7919 % (chunks - BLANK) * CHUNK + i % (CHUNK / BLOCK) * BLOCK;
        asked.push_back(s.ask(write, anywhere, BLOCK, 0x33));
        if i % 4 == 0 {
            asked.push_back(s.ask(RequestKind::Flush, 0, 0, 0));
        }
        while asked.len() > 64 {
            let oldest = asked.pop_front().expect("there is one");
            s.answer(oldest).expect("it is written");
        }
    }
    asked.into_iter().for_each(|request| _ = s.answer(request).expect("it is written"));
    s.wait(60 * Nanos::SECOND);
    assert_eq!(s.engine().status().landed_bytes, 0, "all has a home");
}
