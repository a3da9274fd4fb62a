//! From a job file to what is asked of a target.

use bimetal_lab::fio::{self, Machine, Surroundings};
use bimetal_lab::job::{Content, Distribution, Job, Ops, Order, Rate, Sizes, side};
use bimetal_lab::target::TargetName;

const MIB: u64 = 1 << 20;

fn read(text: &str) -> fio::JobFile {
    let mut include = |name: &str, _: &str| Err(format!("there is no {name}"));
    let machine = Machine { page_bytes: 4096, memory_mib: 1024, processors: 2 };
    let mut around = Surroundings { include: &mut include, environment: &|_| None, machine };
    fio::parse("test.fio", text.as_bytes(), &mut around).expect("it can be read")
}

/// On one target of 64 MiB.
fn phases(text: &str) -> Vec<Vec<Job>> {
    tried(text).expect("it can be run")
}

fn tried(text: &str) -> Result<Vec<Vec<Job>>, String> {
    let file = read(text);
    let plan = fio::plan(&file, Some(&TargetName::Null)).map_err(|error| error.to_string())?;
    plan.phases(&[64 * MIB], 7).map_err(|error| error.to_string())
}

fn only(text: &str) -> Job {
    let mut phases = phases(text);
    assert_eq!((phases.len(), phases[0].len()), (1, 1));
    phases.remove(0).remove(0)
}

#[test]
fn what_is_written_is_what_is_asked_for() {
    let job =
        only("[j]\nrw=randrw\nrwmixread=70\nbs=8k,16k\niodepth=9\nioengine=libaio\nsize=50%\noffset=16m\n");
    assert_eq!(
        (job.ops, job.depth, job.span.clone()),
        (Ops::ReadWrite { read_percent: 70 }, 9, 16 * MIB..48 * MIB)
    );
    assert_eq!((&job.sizes[side::READ], &job.sizes[side::WRITE]), (&Sizes::one(8192), &Sizes::one(16384)));
    assert_eq!((job.align_bytes[side::READ], job.align_bytes[side::WRITE]), (8192, 16384));
    assert_eq!((job.order[side::READ], job.bytes, job.loops, job.each_once), (Order::RANDOM, None, 1, true));

    let job =
        only("[j]\nrw=write\nbs=64k\nsize=8m\nio_size=32m\nloops=2\nruntime=10\ntime_based\nramp_time=2s\n");
    assert_eq!((job.bytes, job.loops, job.time_based), (Some(32 * MIB), 2, true));
    assert_eq!((job.runtime_ns, job.ramp_ns, job.depth), (Some(10_000_000_000), 2_000_000_000, 1));
    assert_eq!(job.order[side::WRITE], Order::SEQUENTIAL);

    let job = only(
        "[j]\nrw=randread\nrate_iops=250\nrate_process=poisson\nthinktime=5ms\nthinktime_blocks=4\nsize=1m\n",
    );
    assert_eq!((job.rate[side::READ], job.poisson), (Some(Rate::Ios(250.0)), true));
    assert!(job.think.is_some_and(|think| (think.ns, think.every_ios) == (5_000_000, 4)));

    let job = only(
        "[j]\nrw=randwrite\nbssplit=4k/60:64k/40\nrandom_distribution=zoned:50/5:30/15:20/80\nfsync=32\nsize=8m\n",
    );
    assert_eq!(job.sizes[side::WRITE], Sizes::Split(vec![(4096, 60), (65536, 40)]));
    let zones = vec![(0.5, 0.05), (0.3, 0.15), (0.2, 0.8)];
    assert_eq!(job.distribution[side::WRITE], Distribution::Zoned(zones));
    assert_eq!((job.sync_every_writes, job.flush_every_writes, job.each_once), (Some(32), None, false));
    let job = only("[j]\nrw=randwrite\nbs=4k,64k\nfdatasync=8\nsize=8m\n");
    assert_eq!((job.sync_every_writes, job.flush_every_writes, job.each_once), (None, Some(8), true));

    let job = only("[j]\nrw=randread:8\npercentage_random=30\nrandom_distribution=zipf:1.2\nsize=8m\n");
    assert_eq!((job.run_ios, job.order[side::READ].random_percent), (8, 30));
    assert_eq!(job.distribution[side::READ], Distribution::Zipf { theta: 1.2 });

    let job = only("[j]\nrw=trimwrite\nbs=128k\nbuffer_pattern=0xdeadbeef\nsize=8m\n");
    assert_eq!(job.ops, Ops::DiscardWrite);
    assert_eq!(job.content, Content::Pattern([0xde, 0xad, 0xbe, 0xef].as_slice().into()));

    let job = only(
        "[j]\nrw=randread\nlatency_target=10ms\nlatency_window=2s\nlatency_percentile=99\niodepth=64\nioengine=libaio\nsize=8m\n",
    );
    let search = job.depth_search.expect("a depth is looked for");
    assert_eq!((search.target_ns, search.window_ns, search.goes_on), (10_000_000, 2_000_000_000, false));
    let job =
        only("[j]\nrw=randread\nsteadystate=iops:5%\nsteadystate_duration=20\nss_interval=2s\nsize=8m\n");
    assert!(
        job.until_steady.is_some_and(|until| (until.rule.rounds, until.interval_ns) == (10, 2_000_000_000))
    );
}

/// As a real fio does with each.
#[test]
fn how_much_is_done() {
    let job = only("[j]\nbs=64k\nsize=1000000\n");
    assert_eq!((job.span, job.bytes, job.target_bytes), (0..1_000_000, None, 64 * MIB));
    let job = only("[j]\nbs=64k\nsize=33%\n");
    assert_eq!(job.span, 0..64 * MIB * 33 / 100 / 65536 * 65536);
    let job = only("[j]\nbs=64k\nsize=1m\nio_size=2000000\n");
    assert_eq!((job.span, job.bytes), (0..MIB, Some(2_000_000)));
    let job = only("[j]\nbs=64k\nfilesize=2m\nsize=1m\noffset=512k\n");
    assert_eq!((job.span, job.pass_bytes, job.bytes), (MIB / 2..2 * MIB, Some(MIB), None));
    let job = only("[j]\nbs=64k\nfilesize=2m\nsize=4m\n");
    assert_eq!((job.span, job.pass_bytes, job.bytes), (0..2 * MIB, Some(2 * MIB), None));
    let job = only("[j]\nbs=64k\nsize=1m\nio_size=50%\n");
    assert_eq!((job.span, job.pass_bytes, job.bytes), (0..MIB, Some(MIB / 2), None));
    let job = only("[j]\nrw=randwrite\nbssplit=4k/50:6k/50\nsize=1m\n");
    assert_eq!(job.sizes[side::WRITE], Sizes::Split(vec![(4096, 50), (4096, 50)]));
    let job = only("[j]\nrw=randread\nsize=4m\nnumber_ios=10\nloops=2\n");
    assert_eq!((job.ios, job.loops), (Some(20), 2));
}

#[test]
fn copies_groups_and_walls() {
    let text = "[global]\nsize=8m\nrw=read\ngroup_reporting\n[a]\nnumjobs=3\noffset_increment=8m\n[b]\n[c]\nstonewall\n[d]\nnew_group\n";
    let phases = phases(text);
    let names = |jobs: &[Job]| jobs.iter().map(|job| (job.name.clone(), job.group)).collect::<Vec<_>>();
    let named =
        |list: &[(&str, u32)]| list.iter().map(|&(name, group)| (name.to_owned(), group)).collect::<Vec<_>>();
    assert_eq!(phases.len(), 2);
    assert_eq!(names(&phases[0]), named(&[("a", 0), ("a", 0), ("a", 0), ("b", 0)]));
    assert_eq!(names(&phases[1]), named(&[("c", 1), ("d", 2)]));
    let starts: Vec<u64> = phases[0].iter().map(|job| job.span.start / MIB).collect();
    assert_eq!(starts, [0, 8, 16, 0]);
    // Copies do not do the same.
    assert_ne!(phases[0][0].seed, phases[0][1].seed);
}

#[test]
fn where_files_are() {
    let file = read(
        "[global]\nsize=1m\nrw=write\n[a]\nnumjobs=2\ndirectory=/x\n[b]\nfilename=/y/z\ndirect=1\n[c]\nfilename=/y/z\nrw=read\n",
    );
    let plan = fio::plan(&file, None).expect("it can be run");
    let targets: Vec<(String, bool, bool, bool)> = plan
        .targets
        .iter()
        .map(|needed| (needed.name.to_string(), needed.direct, needed.write, needed.read))
        .collect();
    let target = |name: &str, direct, write, read| (name.to_owned(), direct, write, read);
    assert_eq!(
        targets,
        [
            target("/x/a.0.0", false, true, false),
            target("/x/a.1.0", false, true, false),
            target("/y/z", true, true, false),
            target("/y/z", false, false, true),
        ]
    );
    assert_eq!(plan.targets[2].at_least_bytes, Some(MIB));
}

/// A job of several files has each of them, in turns or one behind the other, and their sizes add up to its own.
#[test]
fn several_files_are_one_span() {
    let places = |text: &str| {
        let file = read(text);
        let plan = fio::plan(&file, None).expect("it can be run");
        let names: Vec<String> = plan.targets.iter().map(|needed| needed.name.to_string()).collect();
        let sizes: Vec<u64> =
            plan.targets.iter().map(|needed| needed.at_least_bytes.unwrap_or(MIB)).collect();
        let spans: Vec<u64> = plan.phases(&sizes, 7).expect("it fits")[0]
            .iter()
            .map(|job| job.span.end - job.span.start)
            .collect();
        let spread = plan.spread(&sizes).is_some();
        (names.join(" "), sizes, spans, spread)
    };
    let (names, sizes, spans, spread) = places("[a]\nsize=1m\nnrfiles=3\nrw=write\n");
    assert_eq!((names.as_str(), spread), ("a.0.0 a.0.1 a.0.2", true));
    // A third each, in whole blocks.
    assert_eq!((sizes, spans[0]), (vec![MIB / 3; 3], 3 * (MIB / 3 / 4096 * 4096)));
    let (names, sizes, spans, _) = places(
        "[a]\nfilesize=64k\nnrfiles=2\nnumjobs=2\nrw=write\nfilename_format=$jobname-$jobnum/$filenum\ndirectory=/x:/y\n",
    );
    assert_eq!(names, "/x/a-0/0 /x/a-0/1 /y/a-1/0 /y/a-1/1");
    assert_eq!((sizes, spans), (vec![65_536; 4], vec![131_072; 2]));
    let (names, sizes, spans, _) = places("[a]\nfilename=/x:/y\nsize=1m\noffset=1m\nrw=read\n");
    assert_eq!((names.as_str(), spans), ("/x /y", vec![MIB]));
    assert_eq!(sizes, [MIB + MIB / 2; 2]);
    let (.., spread) = places("[a]\nsize=1m\n[b]\nsize=2m\n");
    assert!(!spread);
}

#[test]
fn a_map_that_is_too_large_is_refused_with_a_cure() {
    let phases = |options: &str| {
        let file = read(&format!("[j]\nrw=randread\nsize=4t\n{options}\n"));
        let plan = fio::plan(&file, Some(&TargetName::Null)).expect("it can be run");
        plan.phases(&[1 << 42], 7).map_err(|error| error.to_string())
    };
    let error = phases("bsrange=512-4k").expect_err("it would take 1 GiB");
    assert!(error.contains("norandommap"), "{error}");
    for options in ["bsrange=512-4k\nnorandommap", "bs=512", "bsrange=4k-8k"] {
        assert!(phases(options).is_ok(), "{options}");
    }
}

/// The spans of jobs on a target of 64 MiB, in MiB; `None` of a copy that has nothing to do.
fn spans(options: &str) -> Result<Vec<Option<(u64, u64)>>, String> {
    const MIB: u64 = 1 << 20;
    let file = read(&format!("[j]\nbs=64k\n{options}\n"));
    let plan = fio::plan(&file, Some(&TargetName::Null)).map_err(|error| error.to_string())?;
    let phases = plan.phases(&[64 * MIB], 7).map_err(|error| error.to_string())?;
    let span = |job: &Job| (job.ios != Some(0)).then_some((job.span.start / MIB, job.span.end / MIB));
    Ok(phases.iter().flatten().map(span).collect())
}

#[test]
fn what_reaches_over_the_end_of_a_target_is_left_out() {
    for (options, expected) in [
        ("size=100m", vec![Some((0, 64))]),
        ("size=150%", vec![Some((0, 64))]),
        ("size=10m\noffset=60m", vec![Some((60, 64))]),
        ("numjobs=3\noffset_increment=40m\nsize=10m", vec![Some((0, 10)), Some((40, 50)), None]),
        (
            "numjobs=4\noffset_increment=25%",
            vec![Some((0, 64)), Some((16, 64)), Some((32, 64)), Some((48, 64))],
        ),
        ("numjobs=3\noffset_increment=50%", vec![Some((0, 64)), Some((32, 64)), None]),
        ("bsrange=4k-1m\nsize=1m", vec![Some((0, 1))]),
    ] {
        assert_eq!(spans(options), Ok(expected), "{options}");
    }
}

#[test]
fn a_pass_has_as_much_as_was_said_where_less_is_left_of_the_target() {
    let passes = |options: &str| {
        let file = read(&format!("[j]\nrw=randread\nnorandommap\n{options}\n"));
        let plan = fio::plan(&file, Some(&TargetName::Null)).expect("it can be run");
        plan.phases(&[64 << 20], 7).expect("it can be run")[0][0].pass_bytes
    };
    assert_eq!(passes("size=32m"), None);
    assert_eq!(passes("size=100m"), Some(100 << 20));
    assert_eq!(passes("size=10m\noffset=60m\nio_size=50%"), Some(5 << 20));
}

#[test]
fn all_that_targets_cannot_do_is_said_at_once() {
    let error = spans("offset=64m\n[k]\noffset=70m\n[l]\nbs=4k").expect_err("two are behind the end");
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines.len(), 2, "{error}");
    assert!(
        lines[0].contains("[j] it begins at byte") && lines[1].contains("[k] it begins at byte"),
        "{error}"
    );
    let file = read("[j]\nbs=48m\nsize=1g\nrw=write\n");
    let name = TargetName::Volume("v".into());
    let error = fio::plan(&file, Some(&name)).and_then(|plan| plan.phases(&[1 << 30], 7)).map(|_| ());
    let error = error.expect_err("a volume takes less at once").to_string();
    assert!(error.contains("a volume takes 33554432 bytes at once"), "{error}");
}

#[test]
fn what_is_not_done_is_refused_by_name() {
    for (options, word) in [
        ("bs_unaligned\nbsrange=1k-2k\nverify=crc32c\nrw=write", "bs_unaligned with verify"),
        ("offset=64m\nsize=2m", "it begins at byte"),
        ("bs=1m\nsize=64k", "larger than"),
    ] {
        let size = if options.contains("size=") { "" } else { "size=1m\n" };
        let text = format!("[j]\n{size}{options}\n");
        let error = match std::panic::catch_unwind(|| tried(&text)) {
            Ok(Err(error)) => error,
            // The parser has refused it already.
            Err(_) => continue,
            Ok(Ok(_)) => panic!("{options} is done"),
        };
        assert!(
            error.contains(word) && error.starts_with("test.fio:1: [j] ") && !error.contains('\n'),
            "{options}: {error}"
        );
    }
}
