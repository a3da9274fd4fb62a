//! Job files: what is read has fio's value, what is not offered is named, and nothing is too strange to be told.

use bimetal_lab::fio::number::Extent;
use bimetal_lab::fio::options::{
    BlockSizes, Data, Direction, Distribution, Durability, EngineKind, Limit, Metric, Verify, Zone,
};
use bimetal_lab::fio::{Errors, JobFile, JobOptions, Machine, Surroundings, open, parse};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

const MACHINE: Machine = Machine { page_bytes: 4096, memory_mib: 1000, processors: 3 };

fn read(text: &[u8]) -> Result<JobFile, Errors> {
    let mut include = |name: &str, _: &str| {
        if name == "more.fio" {
            Ok((name.into(), b"bs=8k\n".to_vec()))
        } else {
            Err("there is no such file".into())
        }
    };
    let environment = |name: &str| (name == "SIZE").then(|| "4m".to_string());
    parse(
        "a.fio",
        text,
        &mut Surroundings { include: &mut include, environment: &environment, machine: MACHINE },
    )
}

/// The options of a job with these lines.
fn options(lines: &str) -> Result<JobOptions, String> {
    let file =
        read(format!("[a]\nfilename=/tmp/x\n{lines}\n").as_bytes()).map_err(|errors| errors.to_string())?;
    Ok(file.jobs.into_iter().next().expect("one job").options)
}

#[track_caller]
fn good(lines: &str) -> JobOptions {
    options(lines).unwrap_or_else(|error| panic!("{lines}: {error}"))
}

#[test]
fn the_exercise() {
    let file = open(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/jobs/c4.fio")))
        .unwrap_or_else(|errors| panic!("{errors}"));
    let [first, second] = &file.jobs[..] else { panic!("{} jobs", file.jobs.len()) };
    assert_eq!((first.name.as_str(), second.name.as_str()), ("c1-c2", "c4"));
    assert_eq!(first.options.block_sizes().read, BlockSizes::Fixed(4096));
    let job = &second.options;
    assert_eq!(job.block_sizes().read, BlockSizes::Fixed(2048));
    assert_eq!((job.direction, job.random, job.read_percent), (Direction::ReadWrite, true, 80));
    assert_eq!((job.engine, job.effective_depth()), (EngineKind::Ring, 32));
    assert_eq!((job.size, job.runtime_ns), (Some(Extent::Bytes(1 << 30)), Some(60_000_000_000)));
    assert!(job.time_based && job.direct && job.stonewall && !first.options.stonewall);
    assert!(job.faces.group_reporting);
    assert_eq!(file.notes, ["ioengine: posixaio is replaced by a ring of this program's own"]);
    assert_eq!(second.written("bs"), Some("2k"));
    assert_eq!(second.written("rw"), Some("randrw"));
}

#[test]
fn global_sections_are_for_what_follows() {
    let text = "[global]\nbs=8k\niodepth=2\nioengine=libaio\n[a]\n[global]\nbs=16k\n[b]\niodepth=4\n[global]\niodepth=8\n[c]\n";
    let file = read(text.as_bytes()).unwrap_or_else(|errors| panic!("{errors}"));
    let found =
        file.jobs.iter().map(|job| (job.options.block_bytes.read, job.options.depth)).collect::<Vec<_>>();
    assert_eq!(found, [(8192, 2), (16384, 4), (16384, 8)]);
}

#[test]
fn values() {
    let job = good("bs=8k,16k,32k\nsize=10%\noffset=1m\noffset_increment=25%\nio_size=2g");
    assert_eq!((job.block_bytes.read, job.block_bytes.write, job.block_bytes.trim), (8192, 16384, 32768));
    assert_eq!((job.size, job.io_size), (Some(Extent::Percent(10)), Some(Extent::Bytes(2 << 30))));
    assert_eq!((job.offset, job.offset_increment), (Extent::Bytes(1 << 20), Extent::Percent(25)));

    for (value, expected) in [
        ("8k", (8192, 8192, 8192)),
        ("8k,16k", (8192, 16384, 16384)),
        ("8k,", (8192, 4096, 4096)),
        (",16k", (4096, 16384, 16384)),
        (",16k,", (4096, 16384, 4096)),
        ("8k,,16k", (8192, 4096, 16384)),
    ] {
        let bytes = good(&format!("bs={value}")).block_bytes;
        assert_eq!((bytes.read, bytes.write, bytes.trim), expected, "{value}");
    }

    let job = good("rw=randread:8\nrw_sequencer=identical\nbsrange=4k-1k,2k-8k\nbs_unaligned");
    assert_eq!((job.random, job.ios_per_offset, job.gap_bytes), (true, 8, 0));
    assert_eq!(job.block_sizes().read, BlockSizes::Range(1024, 4096));
    assert_eq!(job.block_sizes().write, BlockSizes::Range(2048, 8192));
    assert_eq!(good("rw=write:4k").gap_bytes, 4096);
    assert_eq!(good("rw=read:-4k").gap_bytes, -4096);

    let job = good("bssplit=4k/10:64k:32k/40,8k/");
    assert_eq!(job.block_sizes().read, BlockSizes::Split(vec![(4096, 10), (65536, 50), (32768, 40)]));
    assert_eq!(job.block_sizes().trim, BlockSizes::Split(vec![(8192, 100)]));

    // What lacks to 100 is of the largest share, as in fio's draw; a blank is none.
    let job = good("bssplit=4k/50: 64k/48");
    assert_eq!(job.block_sizes().read, BlockSizes::Split(vec![(4096, 52), (65536, 48)]));
    assert_eq!(good("size=45Gi").size, Some(Extent::Bytes(45 << 30)));
    assert_eq!(good("size=200%").size, Some(Extent::Percent(200)));
    assert_eq!(good("size=100%%").size, Some(Extent::Percent(100)));
    assert_eq!(good("offset=0%").offset, Extent::Percent(0));
    assert_eq!(good("cpus_allowed=0,2-4").processors, [0, 2, 3, 4]);
    assert_eq!(good("cpumask=5").processors, [0, 2]);
    assert!(good("continue_on_error=all").goes_on && !good("continue_on_error=none").goes_on);
    assert_eq!(good("write_bw_log").logs.bandwidth.as_deref(), Some(""));
    let job = good("rate=1m,500k\nrate_process=poisson\nthinktime=10\nthinktime_blocks=4\nmax_latency=10ms");
    assert_eq!((job.rate_bytes.read, job.rate_bytes.trim), (Some(1 << 20), Some(512_000)));
    assert_eq!((job.think_ns, job.think_ios, job.max_latency_ns.read), (10_000, 4, Some(10_000_000)));
    assert_eq!(good("rate_iops=,500").rate_iops.read, None);

    let job = good("startdelay=1-5\nramp_time=2s\nloops=3\nnumber_ios=100\nfilesize=1m-2m");
    assert_eq!((job.start_delay_ns, job.ramp_ns), ((1_000_000_000, 5_000_000_000), 2_000_000_000));
    assert_eq!((job.loops, job.number_ios, job.file_bytes), (3, Some(100), Some((1 << 20, 2 << 20))));

    let job = good("rw=write\nverify_pattern=0xff%o\nsync=dsync\nzero_buffers");
    assert_eq!(
        (job.verify, job.durability, job.data),
        (Some(Verify::Pattern), Durability::DataSync, Data::Zeros)
    );
    for checksum in ["crc32c-intel", "md5", "sha3-512", "xxhash"] {
        assert_eq!(good(&format!("verify={checksum}")).verify, Some(Verify::Checksum));
    }

    let job = good("ss=iops_slope:0.3%\nss_dur=30\nss_ramp=5s");
    let steady = job.steady_state.expect("a steady state");
    assert_eq!((steady.metric, steady.slope, steady.limit), (Metric::Iops, true, Limit::Percent(0.3)));
    assert_eq!(good("ss_dur=30").steady_state.map(|steady| steady.limit), Some(Limit::Percent(0.01)));
    assert_eq!(good("percentile_list=99:50:99.9").faces.percentiles, [50.0, 99.0, 99.9]);
    assert_eq!(good("size=${SIZE}").size, Some(Extent::Bytes(4 << 20)));
    assert_eq!(good("kb_base=1000\nbs=4kib\nsize=1m").block_bytes.read, 4096);
    assert_eq!(good("size=1m\nkb_base=1000").size, Some(Extent::Bytes(1_000_000)));
    assert_eq!(good("bs=4k\ninclude more.fio").block_bytes.read, 8192);

    let file = read(b"[a]\nfilename=/dev/a\\:1:/dev/b\n").unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(file.jobs[0].options.filenames, ["/dev/a:1", "/dev/b"]);
    // The same file, named again, is no other.
    let text = b"[global]\nfilename=/dev/a:/dev/b\n[j]\nfilename=/dev/b\nfilename=/dev/a\n";
    let file = read(text).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(file.jobs[0].options.filenames, ["/dev/a", "/dev/b"]);
}

#[test]
fn distributions() {
    for (value, expected) in [
        ("random", Distribution::Uniform),
        ("zipf:1.2", Distribution::Zipf { theta: 1.2, center: None }),
        ("zipf:1.2:0.25", Distribution::Zipf { theta: 1.2, center: Some(0.25) }),
        ("pareto:0.2", Distribution::Pareto { power: 0.2, center: None }),
        ("normal:20:0.5", Distribution::Normal { deviation_percent: 20.0, center: Some(0.5) }),
    ] {
        assert_eq!(good(&format!("rw=randread\nrandom_distribution={value}")).distribution, expected);
    }
    let job = good("rw=randread\nrandom_distribution=zoned:60/10:30/20:10/70,50/50:50/50");
    let Distribution::Zoned(zones) = job.distribution else { panic!("not zoned") };
    assert_eq!(zones.read[0], Zone { accesses_percent: 60, part: 10 });
    assert_eq!((zones.read.len(), zones.write.len(), zones.trim.len()), (3, 2, 2));
    let job = good("rw=randread\nrandom_distribution=zoned:60/10:30/20:10/");
    let Distribution::Zoned(zones) = job.distribution else { panic!("not zoned") };
    assert_eq!(zones.read[2], Zone { accesses_percent: 10, part: 70 });
    let job = good("rw=randread\nrandom_distribution=zoned_abs:60/20g:30/100g:10/500g");
    let Distribution::ZonedAbsolute(zones) = job.distribution else { panic!("not zoned") };
    assert_eq!(zones.write[1], Zone { accesses_percent: 30, part: 100 << 30 });
}

/// Lines, and what must be said of them.
const WRONG: &[(&str, &str)] = &[
    ("iodepht=4", "a.fio:3: [a] iodepht: fio has no such option; did you mean iodepth?"),
    (
        "trim_backlog=16",
        "a.fio:3: [a] trim_backlog: discarding what was written for verifying is not offered",
    ),
    ("verify=sum", "verifying with `sum` is not offered; name a checksum, such as verify=crc32c"),
    ("exec_prerun=rm", "no commands are run"),
    ("buffer_compress_percentage=101", "no percentage"),
    ("ioengine=rados", "the engine `rados` is not offered"),
    ("ioengine=filecreate", "does no I/O; `bimetal lab create-files`"),
    ("direct", "fio wants 0 or 1 here; write direct=1"),
    ("direct=yes", "neither 0 nor 1"),
    ("bs=4x", "does not belong"),
    ("bs=0", "a block of no bytes"),
    ("bs=1,2,3,4", "4 values"),
    ("bs=0x10k", "does not belong"),
    ("bsrange=4k", "one number, not two"),
    ("bs=2m\nsize=1m", "does not fit"),
    ("bs=1000\ndirect=1", "multiples of 512"),
    ("io_size=1k\nbs=4k", "less than a block"),
    ("iodepth=0", "out of range"),
    ("iodepth=8 8", "does not belong"),
    ("rate=1m\nrate_iops=100", "a rate is given in bytes and in I/Os"),
    ("direct=1\nbuffered=1", "opposite"),
    ("latency_target=1ms", "latency_window"),
    ("steadystate=iops:2%", "steadystate_duration"),
    ("verify=pattern", "no pattern"),
    ("ioengine=nbd", "needs to know the server"),
    ("rw=randread:0", "no number of I/Os"),
    ("rw=reads", "no kind of I/O"),
    ("bssplit=4k/70:8k/40:16k", "add up to 110"),
    ("random_distribution=zipf:1", "neither 0 nor 1"),
    ("random_distribution=zipf", "lacks its parameter"),
    ("random_distribution=zoned:50/10:40/10", "add up to 90 %"),
    ("random_distribution=zoned:50/60:50/60", "add up to 120 %"),
    ("percentile_list=1:2:3:4:5:6:7:8:9:10:11:12:13:14:15:16:17:18:19:20:21", "more than 20"),
    ("verify_pattern='/etc/passwd'", "from a file is not supported"),
    ("zonemode=strided", "zones have no size"),
    ("zonemode=none\nzonesize=1m", "zones are turned off"),
    ("zonemode=zbd\nzonesize=1m", "not offered"),
    ("zonemode=strided\nzonesize=1m\nzonerange=2k", "less than a block"),
    ("read_iolog=x\nreplay_skip=reads", "no kind of I/O of a log"),
    ("kb_base=1", "neither 1000 nor 1024"),
    ("description=", "a value is missing"),
];

#[test]
fn what_is_wrong_is_named() {
    for (lines, said) in WRONG {
        match options(lines) {
            Ok(_) => panic!("{lines} was taken"),
            Err(error) => assert!(error.contains(said), "{lines}: {error}"),
        }
    }
    let all = read(b"[a]\nx1=1\nx2=2\n[b]\nexec_prerun=x\n").map(|_| ()).map_err(|errors| errors.0.len());
    assert_eq!(all, Err(3));
    assert!(read(b"[global]\nbs=4k\n").is_err());
}

#[test]
fn what_changes_nothing_is_said() {
    for (lines, said) in [
        ("thread", "thread: jobs are neither"),
        ("ioengine=libaio\niodepth_batch=4", "one by one"),
        ("iodepth=32", "[a] iodepth: psync does one I/O at a time"),
        ("bs=4kib", "a kib is a power of 1000"),
        ("rwmixread=80", "nothing is mixed"),
        ("bs= 8k", "behind a blank; here it counts"),
        ("time_based", "time_based: there is no runtime"),
        ("filename=/tmp/y", "and those that were named before are used"),
        ("rate_min=1m", "rate_min: a job that falls below a rate goes on"),
        ("hipri", "hipri: it is left out"),
        ("bs=4k-512k", "4k is for reads and 512k for writes"),
        ("rw=randread\nrandom_distribution=zipf:1.2:0.5", "where the centre is changes nothing"),
        ("sync_file_range=write:8", "the kernel writes back when it likes"),
        ("verify_backlog=8\nverify=meta\nrw=write", "verified when all is written"),
        ("rw=write\nverify=crc32c\nverify_fatal=1", "verify_fatal: what differs is counted"),
        ("invalidate=0", "invalidate: what the page cache holds"),
        ("size=4m${NOPE}", "NOPE is not in the environment"),
    ] {
        let text = format!("[a]\nfilename=/tmp/x\n{lines}\n");
        let file = read(text.as_bytes()).unwrap_or_else(|errors| panic!("{errors}"));
        assert!(file.notes.iter().any(|note| note.contains(said)), "{lines}: {:?}", file.notes);
    }
}

/// Numbers that all look the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

#[test]
fn nothing_is_too_strange() {
    const PIECES: &[&str] = &[
        "[a]\n",
        "[global]\n",
        "\n",
        "=",
        "bs",
        "size=",
        "4k",
        "(",
        ")",
        "^",
        "%",
        "/",
        ":",
        ",",
        "-",
        "0x",
        "${",
        "}",
        "$ncpus",
        "include more.fio\n",
        "rw=",
        "randrw",
        "random_distribution=",
        "zoned:",
        "zipf:",
        "bssplit=",
        "verify_pattern=",
        "\"",
        "%o",
        "'",
        "filename=",
        "\\",
        "é",
        "percentile_list=",
        "99999999999999999999",
        "runtime=",
        "startdelay=",
        "steadystate=",
        "iops:",
        "\0",
        "\u{ff}",
        "ms",
        "kib",
        ".",
        " ",
        "#",
        ";",
    ];
    let mut random = Random(1);
    for _ in 0..10_000 {
        let mut text = String::from("[a]\n");
        for _ in 0..random.below(12) {
            text.push_str(PIECES[random.below(PIECES.len())]);
        }
        let mut text = text.into_bytes();
        if random.below(4) == 0 {
            let at = random.below(text.len());
            text[at] = random.below(256) as u8;
        }
        if let Err(errors) = read(&text) {
            assert!(!errors.0.is_empty() && !errors.to_string().is_empty());
        }
    }
    for _ in 0..200 {
        let text = (0..random.below(4000)).map(|_| random.below(256) as u8).collect::<Vec<_>>();
        let _ = read(&text);
    }
    // What takes long, if anything does.
    for line in
        ["(".repeat(8000), "bs=".to_owned() + &"9^".repeat(4000), "x".repeat(8000), "${SIZE}".repeat(1100)]
    {
        let many = format!("[a]\n{}", format!("size={line}\n").repeat(100));
        let _ = read(many.as_bytes());
    }
}

/// What fio makes of jobs with these lines: for each the numbers that it says it read, none where it dropped the job
/// or had ended before.
fn real(jobs: &[&str]) -> Vec<Option<Vec<u64>>> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.fio");
    let sections = jobs.iter().enumerate().map(|(n, lines)| format!("[job{n}]\nfilename=/tmp/x\n{lines}\n"));
    std::fs::write(&path, sections.collect::<String>()).expect("a job file");
    let done = Command::new("fio").args(["--debug=parse", "--parse-only"]).arg(&path).output().expect("fio");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    let parts = said.split("Parsing section [job").skip(1).map(|part| {
        let (n, rest) = part.split_once(']').unwrap_or_default();
        let numbers = rest.lines().filter_map(|line| line.split_once("ret=0, out=")?.1.trim().parse().ok());
        (n.parse::<usize>().ok(), numbers.collect())
    });
    let mut found = vec![None; jobs.len()];
    for (n, numbers) in parts {
        let n = n.expect("the section's number");
        let dropped = format!("job job{n} dropped\n");
        found[n] = Some(numbers).filter(|_| !said.contains(&dropped) && !errors.contains(&dropped));
    }
    if !done.status.success() && jobs.len() == 1 { vec![None] } else { found }
}

/// Which of our options a number of fio's is.
type Number = fn(&JobOptions) -> u64;

/// Every line that both read must have one value; the units are fio's.
const SAME: &[(&str, Number)] = &[
    ("bs=4k", |job| job.block_bytes.read),
    ("bs=4kb", |job| job.block_bytes.read),
    ("bs=4kib", |job| job.block_bytes.read),
    ("bs=1mib", |job| job.block_bytes.read),
    ("bs=0x1000", |job| job.block_bytes.read),
    ("bs=4096B", |job| job.block_bytes.read),
    ("size=3t", |job| bytes(job.size)),
    ("size=1gib", |job| bytes(job.size)),
    ("io_size=8m", |job| bytes(job.io_size)),
    ("io_limit=8m", |job| bytes(job.io_size)),
    ("offset=12k", |job| bytes(Some(job.offset))),
    ("fileoffset=12k", |job| bytes(Some(job.offset))),
    ("runtime=10", |job| micros(job.runtime_ns)),
    ("timeout=10m", |job| micros(job.runtime_ns)),
    ("runtime=10ms", |job| micros(job.runtime_ns)),
    ("runtime=1d", |job| micros(job.runtime_ns)),
    ("ramp_time=5s", |job| micros(Some(job.ramp_ns))),
    ("thinktime=10", |job| micros(Some(job.think_ns))),
    ("thinktime=1s", |job| micros(Some(job.think_ns))),
    ("latency_window=5\nlatency_target=10m", |job| micros(Some(job.latency_window_ns))),
    ("rate=1m", |job| job.rate_bytes.read.unwrap_or(0)),
    ("rate_iops=2k", |job| job.rate_iops.read.unwrap_or(0)),
    ("iodepth=32", |job| job.depth.into()),
    ("numjobs=4", |job| job.jobs.into()),
    ("rwmixread=30", |job| job.read_percent.into()),
    ("rwmixwrite=30", |job| 100 - u64::from(job.read_percent)),
    ("ba=16k", |job| job.align_bytes.read.unwrap_or(0)),
    ("blockalign=16k", |job| job.align_bytes.read.unwrap_or(0)),
    ("percentage_random=40", |job| job.random_percent.read.into()),
    ("number_ios=1k", |job| job.number_ios.unwrap_or(0)),
    ("loops=7", |job| job.loops.into()),
    ("fsync=3", |job| job.fsync_writes.into()),
    ("replay_time_scale=50", |job| job.replay.speed_percent.into()),
    ("steadystate_duration=30", |job| micros(Some(job.steady_duration_ns))),
    ("max_latency=1ms", |job| micros(job.max_latency_ns.read)),
];

fn bytes(extent: Option<Extent>) -> u64 {
    if let Some(Extent::Bytes(bytes)) = extent { bytes } else { u64::MAX }
}

fn micros(time_ns: Option<u64>) -> u64 {
    time_ns.unwrap_or(0) / 1000
}

/// Lines that both take.
const BOTH: &[&str] = &[
    "rw=readwrite",
    "rw=randtrimwrite",
    "rw=randread:8",
    "rw=write:4k",
    "rw=read:-4k",
    "bs=,8k",
    "bs=8k,,16k",
    "bsrange=1k-4k",
    "bsrange=1k:4k",
    "blocksize_range=1k-4k,2k-8k",
    "bssplit=4k/10:64k:32k/40",
    "bssplit=2k/50:4k/50,4k/90:8k/10",
    "rw=randread\nrandom_distribution=zipf:1.2:0.25",
    "rw=randread\nrandom_distribution=zoned:60/10:30/20:10/70",
    "rw=randread\nrandom_distribution=zoned_abs:60/20g:40/100g",
    "rw=randread\nrandom_distribution=normal:20",
    "size=10%",
    "io_size=50%",
    "offset=10%",
    "offset_increment=1g",
    "startdelay=1-5",
    "filesize=1m-2m",
    "norandommap",
    "norandommap=1",
    "time_based\nruntime=1",
    "group_reporting=1",
    "thread",
    "stonewall",
    "wait_for_previous",
    "new_group",
    "sync=dsync",
    "sync=1",
    "verify=crc32c",
    "verify_pattern=0xff%o\"ab\"-12",
    "buffer_pattern=1000",
    "zero_buffers",
    "refill_buffers=0",
    "percentile_list=50:99.9",
    "ss=iops:2%\nss_dur=10",
    "steadystate=bw_slope:1m\nss_dur=10",
    "rate_process=poisson\nrate_iops=10",
    "gtod_reduce=1",
    "disable_bw=1",
    "unlink=1",
    "kb_base=1000",
    "rw_sequencer=identical",
    "read_iolog=/tmp/x",
    "ioengine=libaio",
    "ioengine=mmap",
    "direct=0",
    "buffered=1",
    "invalidate=0",
    "randseed=77",
    "randrepeat=0",
    "bs_unaligned",
    "blocksize_unaligned=1",
    "bs=4k # comment",
    "description=a b c",
    "latency_percentile=99.9",
    "iodepth_batch_complete=3",
    "random_generator=lfsr",
    "loops=2",
];

/// Lines that fio refuses, and so do we.
const NEITHER: &[&str] = &[
    "iodepht=1",
    "BS=4k",
    "direct",
    "direct=2",
    "rw=foo",
    "bs=0",
    "iodepth=0",
    "rwmixread=101",
    "bsrange=4k",
    "random_distribution=foo",
    "rw=randread\nrandom_distribution=zipf:1.0",
    "verify=foo",
    "percentage_random=101",
    "buffer_pattern=2147483648",
    "size=",
    "kb_base=7",
    "sync=2",
    "rate_process=foo",
    "fsync=x",
];

#[test]
fn fio_agrees() {
    let installed = Command::new("fio").arg("--version").output().is_ok_and(|done| done.status.success());
    if !installed {
        println!("fio is not installed: nothing was compared");
        return;
    }
    let mut wrong = String::new();
    let lines = SAME.iter().map(|(lines, _)| *lines).collect::<Vec<_>>();
    for ((lines, number), theirs) in SAME.iter().zip(real(&lines)) {
        let ours = options(lines).map(|job| number(&job));
        let same =
            ours.as_ref().is_ok_and(|ours| theirs.as_ref().is_some_and(|theirs| theirs.contains(ours)));
        if !same {
            writeln!(wrong, "{lines:?}: ours {ours:?}, fio's {theirs:?}").expect("text");
        }
    }
    for (lines, theirs) in BOTH.iter().zip(real(BOTH)) {
        let ours = options(lines);
        if ours.is_err() || theirs.is_none() {
            writeln!(wrong, "{lines:?}: ours {:?}, fio takes it: {}", ours.map(|_| ()), theirs.is_some())
                .expect("text");
        }
    }
    for lines in NEITHER {
        let (ours, theirs) = (options(lines), real(&[lines]));
        if ours.is_ok() || theirs[0].is_some() {
            writeln!(wrong, "{lines:?}: we take it: {}, fio: {}", ours.is_ok(), theirs[0].is_some())
                .expect("text");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
