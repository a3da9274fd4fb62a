//! The tests after DiskTester, on simulated volumes in virtual time and on real files.

use bimetal_lab::classic::disktester::{
    Adaptation, AdaptationPlan, Audience, Deed, FillPlan, IdleRule, Layout, Tester, adaptation, fill,
};
use bimetal_lab::environment::environment;
use bimetal_lab::load::LoadTarget;
use bimetal_lab::record::Run;
use bimetal_lab::report::{Named, html, parse};
use bimetal_lab::session::Session;
use bimetal_lab::target::{Folder, Listing, Simulated};
use bimetal_sim::scenario::{Scenario, Target};

const GIB: u64 = 1 << 30;
const SECOND_NS: u64 = 1_000_000_000;

/// Keeps what is said; ends after so many lines.
struct Reader {
    said: Vec<String>,
    patience: usize,
}

impl Audience for Reader {
    fn line(&mut self, text: &str) {
        self.said.push(text.to_owned());
    }

    fn goes_on(&mut self) -> bool {
        self.said.len() < self.patience
    }
}

fn reader() -> Reader {
    Reader { said: Vec::new(), patience: usize::MAX }
}

/// A fused volume of 2012 at a 120th of its size, under a policy.
fn hybrid(policy: &str) -> Simulated {
    let scenario = format!(
        "name = \"hybrid\"\n[volume]\nfast = {{ model = \"ssd-480gb-2012-pcie\", size = \"4G\" }}\n\
         slow = {{ model = \"disk-2tb-2012\", size = \"16G\" }}\npolicy = \"{policy}\"\n\
         [[phase]]\nname = \"rest\"\npause_seconds = 1\n"
    );
    let scenario = Scenario::parse(&scenario).expect("a scenario");
    Simulated::scenario(Target::fresh(&scenario).expect("a volume"))
}

fn layout(bytes: u64, count: u64) -> Layout {
    let file_bytes = bytes / count / 4096 * 4096;
    Layout { count, file_bytes, transfer_bytes: file_bytes.min(8 << 20), depth: 1, seed: 1, stamped: false }
}

fn record<T: LoadTarget>(tester: Tester<'_, T>) -> Run {
    tester.finish(Session {
        title: "disktester".to_owned(),
        environment: environment("test"),
        places: vec!["target".to_owned()],
        seed: 1,
        virtual_time: true,
        notes: Vec::new(),
    })
}

fn story(policy: &str) -> Adaptation {
    let (mut target, mut reader) = (hybrid(policy), reader());
    let layout = layout(target.size_bytes() / 10 * 9, 200);
    let mut tester = Tester::new(&mut target, "target", layout, &mut reader);
    let rest = IdleRule { quiet_ns: 60 * SECOND_NS, most_ns: 7200 * SECOND_NS, untold_ns: 300 * SECOND_NS };
    let plan = AdaptationPlan { all_files: false, reads: 3, rounds: 2, rest };
    adaptation(&mut tester, &plan).expect("it runs")
}

/// The fake and the real one: both look fused until the late files are read again.
#[test]
fn a_volume_that_spills_is_told_from_one_that_migrates() {
    let real = story("bimetal");
    assert_eq!(real.migrates, Some(true), "{}", real.verdict);
    assert!(real.best_mb_per_s > 0.8 * real.fast_mb_per_s, "{real:?}");
    assert!(real.after_seconds.is_some_and(|seconds| seconds > 0.0));
    assert!(real.rise_mb_per_s.is_some_and(|speed| speed > 1.0));
    assert!(real.rests.iter().any(|rest| rest.did.promoted_bytes > 0 && rest.quiet), "{real:?}");
    for policy in ["spill-only", "static"] {
        let fake = story(policy);
        assert_eq!(fake.migrates, Some(false), "{policy}: {}", fake.verdict);
        assert!(fake.cliff.is_some() && fake.fast_mb_per_s > 2.0 * fake.best_mb_per_s, "{policy}: {fake:?}");
        assert!(fake.rests.iter().all(|rest| rest.quiet && rest.did.all_bytes() == 0), "{policy}: {fake:?}");
    }
    let drive = story("fusion");
    assert_eq!(drive.migrates, Some(true), "{}", drive.verdict);
    assert_eq!(story("bimetal"), real);
}

/// The cliff of a volume that spills is where its fast device ends; what is freed in a rest is a burst behind it.
#[test]
fn a_fill_finds_the_cliff_and_the_burst() {
    let filled = |policy: &str, rest: Option<IdleRule>| {
        let (mut target, mut reader) = (hybrid(policy), reader());
        let layout = layout(target.size_bytes(), 500);
        let mut tester = Tester::new(&mut target, "target", layout, &mut reader);
        let found = fill(&mut tester, &FillPlan { rest, read: true }).expect("it runs");
        (found, record(tester))
    };
    let (spill, run) = filled("spill-only", None);
    let cliff = spill.cliff.expect("there is one");
    assert!(cliff.at_bytes.abs_diff(4 * GIB) < 4 * spill.part_bytes, "{cliff:?}");
    assert!(cliff.after_mb_per_s < 0.4 * cliff.before_mb_per_s && spill.bursts.is_empty(), "{cliff:?}");
    assert_eq!((spill.written_mb_per_s.len(), spill.read_mb_per_s.len()), (500, 500));
    assert_eq!(run.jobs.iter().map(|job| job.files_ns.len()).collect::<Vec<_>>(), [500, 500]);
    let rest = IdleRule { quiet_ns: 10 * SECOND_NS, most_ns: 600 * SECOND_NS, untold_ns: SECOND_NS };
    let (ours, _) = filled("bimetal", Some(rest));
    let rested = ours.rested_at_bytes.expect("it fell");
    let first = ours.bursts.first().expect("room was made for it");
    assert!(first.at_bytes.abs_diff(rested) <= ours.part_bytes && first.bytes > 100 << 20, "{ours:?}");
    assert!(ours.cliff.is_some_and(|cliff| cliff.at_bytes < rested), "{:?}", ours.cliff);
}

/// The record is read again as it was written, and its page draws the speed by place.
#[test]
fn a_record_keeps_the_files() {
    let (mut target, mut reader) = (hybrid("spill-only"), reader());
    let mut tester = Tester::new(&mut target, "target", layout(GIB, 10), &mut reader);
    tester.pass("create files", Deed::Write, 0..10).expect("it runs");
    tester.pass("read files", Deed::Read, 2..10).expect("it runs");
    let run = record(tester);
    assert_eq!(run.jobs[1].span.0, 2 * run.jobs[1].file_bytes);
    assert_eq!(parse(&serde_json::to_vec(&run).expect("writes")).expect("reads"), run);
    let page = html(&[Named { name: "run".to_owned(), run }]);
    let data =
        page.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next()).expect("data");
    let data: serde_json::Value = serde_json::from_str(data).expect("JSON");
    let points = |line: usize| data["files"][line]["x"].as_array().map_or(0, Vec::len);
    assert_eq!([points(0), points(1), points(2)], [10, 8, 0]);
}

/// Files are written, found whole, and told apart when one byte of them is not what it was.
#[test]
fn files_in_a_folder_are_verified() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let layout =
        Layout { count: 5, file_bytes: 40960, transfer_bytes: 16384, depth: 3, seed: 9, stamped: true };
    let listing = Listing::new(5, layout.file_bytes, layout.seed, true);
    let mut folder = Folder::create(dir.path(), listing.clone(), false).expect("made");
    let pass = |folder: &mut Folder, deed: Deed| {
        let mut reader = reader();
        let mut tester = Tester::new(folder, "folder", layout.clone(), &mut reader);
        tester.pass("pass", deed, 0..5).expect("it runs").clone()
    };
    let written = pass(&mut folder, Deed::Write);
    assert_eq!((written.write.bytes, written.files_ns.len(), written.errors.len()), (5 * 40960, 5, 0));
    // What is there is not written over.
    assert!(!pass(&mut folder, Deed::Write).errors.is_empty());
    let mut folder = Folder::open(dir.path(), false).expect("there");
    assert_eq!(folder.listing(), &listing);
    let read = pass(&mut folder, Deed::Verify);
    assert_eq!((read.read.bytes, read.read.mismatched), (5 * 40960, 0));
    let third = folder.path().join("file-000002");
    let mut bytes = std::fs::read(&third).expect("read");
    bytes[20_000] ^= 1;
    std::fs::write(&third, bytes).expect("write");
    assert_eq!(pass(&mut folder, Deed::Verify).read.mismatched, 1);
    // A file in another's place is not what was written there.
    std::fs::copy(folder.path().join("file-000000"), &third).expect("copy");
    assert_eq!(pass(&mut folder, Deed::Verify).read.mismatched, 3);
    folder.keep(2).expect("three go");
    assert!(!third.exists());
    Folder::open(dir.path(), false).expect("there").remove().expect("removed");
    assert_eq!(std::fs::read_dir(dir.path()).expect("list").count(), 0);
}

/// Whoever has seen enough gets the report of what was done.
#[test]
fn it_ends_when_it_is_asked_to() {
    let (mut target, mut reader) = (hybrid("bimetal"), Reader { said: Vec::new(), patience: 4 });
    let layout = layout(target.size_bytes(), 500);
    let mut tester = Tester::new(&mut target, "target", layout, &mut reader);
    let found = fill(&mut tester, &FillPlan { rest: None, read: true }).expect("it runs");
    let run = record(tester);
    assert!(run.interrupted && run.jobs.len() == 1 && found.read_mb_per_s.is_empty());
    assert!((1..500).contains(&found.written_mb_per_s.len()), "{}", found.written_mb_per_s.len());
    let rows = reader.said.iter().filter(|line| line.split_whitespace().count() == 15).count();
    assert!(rows >= 2, "{:?}", reader.said);
}
