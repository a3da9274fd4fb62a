//! Job files by chance, of fio's options and of values that are fine, odd or nonsense: whatever they say, they are read
//! and planned, or refused with a sentence that says where; nothing ends in a panic.

use bimetal_lab::fio::{self, Machine, Surroundings};
use bimetal_lab::target::TargetName;

const MIB: u64 = 1 << 20;

/// Numbers that all look the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

const SIZES: &[&str] = &[
    "4k",
    "8K",
    "64k",
    "1m",
    "512",
    "4Ki",
    "1MiB",
    "3000",
    "0",
    "1",
    " 8k",
    "4k ",
    "16k,4k",
    "4k,,8k",
    "100%",
    "0%",
    "200%",
    "33%",
    "-1",
    "9999999999t",
    "(4k*2)",
    "0x1000",
    "",
    "4x",
    "1.5k",
    "5%%",
    "2z",
];
const WORDS: &[&str] =
    &["0", "1", "2", "", "x", "none", "all", "50", "101", "-5", "8:4", "1-3", "4294967296", "é"];
const RW: &[&str] = &[
    "read",
    "write",
    "randread",
    "randwrite",
    "rw",
    "randrw",
    "trim",
    "randtrim",
    "trimwrite",
    "randread:8",
    "write:8k",
    "read:-4k",
    "RandRead",
    " randread",
];
const SPLITS: &[&str] = &[
    "4k/50:64k/50",
    "4k/50: 64k/48",
    "4k/10:8k:16k",
    "4k",
    "4k/100",
    "4k/60:8k/70",
    "4k/98",
    ":",
    "4k/",
    "4k/0:8k/0",
    "4k/50:8k/50,16k",
    "/",
    "0/50:4k/50",
];
const LAWS: &[&str] = &[
    "random",
    "zipf:1.2",
    "zipf",
    "zipf:1",
    "pareto:0.2",
    "normal:20",
    "zoned:60/10:30/20:8/30:2/40",
    "zoned:60/10:40/",
    "zoned_abs:60/64k:40/",
    "zoned:50/50",
    "zoned:100/0",
    "normal:0",
    "pareto:9",
];
const ENGINES: &[&str] =
    &["psync", "libaio", "io_uring", "null", "mmap", "sync", "rados", "cpuio", "posixaio", "splice"];
const NAMES: &[&str] = &["x", "a:b", "a\\:b", "a:a", ":", "/x/y", "$jobname.$filenum", "${NOPE}", "", "é"];

/// Options, and which values are tried with them.
const OPTIONS: &[(&str, &[&str])] = &[
    ("rw", RW),
    ("readwrite", RW),
    ("bs", SIZES),
    ("blocksize", SIZES),
    ("size", SIZES),
    ("io_size", SIZES),
    ("offset", SIZES),
    ("offset_increment", SIZES),
    ("filesize", SIZES),
    ("bsrange", SIZES),
    ("ba", SIZES),
    ("bssplit", SPLITS),
    ("random_distribution", LAWS),
    ("ioengine", ENGINES),
    ("filename", NAMES),
    ("directory", NAMES),
    ("filename_format", NAMES),
    ("nrfiles", WORDS),
    ("numjobs", WORDS),
    ("iodepth", WORDS),
    ("loops", WORDS),
    ("runtime", WORDS),
    ("time_based", WORDS),
    ("ramp_time", WORDS),
    ("startdelay", WORDS),
    ("rate", SIZES),
    ("rate_iops", WORDS),
    ("thinktime", WORDS),
    ("fsync", WORDS),
    ("fdatasync", WORDS),
    ("verify", &["crc32c", "md5", "meta", "pattern", "0", "x", "null"]),
    ("verify_pattern", &["0xff", "%o", "x", "\"a\"", "12"]),
    ("buffer_pattern", &["0xdeadbeef", "%o", "x"]),
    ("do_verify", WORDS),
    ("verify_backlog", WORDS),
    ("file_service_type", &["roundrobin", "roundrobin:3", "sequential", "random", "zipf:1.2", "x"]),
    ("cpus_allowed", WORDS),
    ("cpumask", WORDS),
    ("flow", WORDS),
    ("flow_id", WORDS),
    ("write_bw_log", NAMES),
    ("write_lat_log", NAMES),
    ("log_avg_msec", WORDS),
    ("per_job_logs", WORDS),
    ("continue_on_error", WORDS),
    ("unlink", WORDS),
    ("create_on_open", WORDS),
    ("allow_file_create", WORDS),
    ("percentage_random", WORDS),
    ("rwmixread", WORDS),
    ("norandommap", WORDS),
    ("group_reporting", WORDS),
    ("stonewall", WORDS),
    ("direct", WORDS),
    ("kb_base", &["1000", "1024", "1"]),
    ("number_ios", WORDS),
    ("randseed", WORDS),
    ("steadystate", &["iops:2%", "x"]),
    ("zonemode", &["none", "zbd", "strided", "strided\nzonesize=64k", "strided\nzonesize=1"]),
    ("zonesize", &["64k", "4k", "0", "1", "16e"]),
    ("zonerange", &["16k", "256k", "0", "16e"]),
    ("zoneskip", &["16k", "1m", "0", "16e"]),
    ("read_iolog", &["a.log", "a:b", ""]),
    ("replay_skip", &["read", "read,write", "none"]),
    ("replay_scale", WORDS),
    ("replay_align", WORDS),
    ("wait_for", NAMES),
    ("hipri", WORDS),
    ("openfiles", WORDS),
    ("overwrite", WORDS),
    ("pre_read", WORDS),
    ("verify_only", WORDS),
    ("latency_target", WORDS),
    ("nonsense", WORDS),
];

fn job_file(random: &mut Random) -> String {
    let mut text = String::from("[global]\nsize=1m\n");
    for n in 0..1 + random.below(3) {
        for _ in 0..random.below(7) {
            let (name, values) = OPTIONS[random.below(OPTIONS.len())];
            match random.below(12) {
                0 => text += &format!("{name}\n"),
                1 => text += &format!("  {name} = {} ; said\n", random.one(values)),
                _ => text += &format!("{name}={}\n", random.one(values)),
            }
        }
        text += &format!("[job{n}]\n");
    }
    text
}

#[test]
fn whatever_a_file_says_it_is_read_or_refused() {
    let mut random = Random(7);
    let (mut read, mut planned) = (0, 0);
    for _ in 0..4000 {
        let text = job_file(&mut random);
        let mut include = |name: &str, _: &str| Err(format!("there is no {name}"));
        let machine = Machine { page_bytes: 4096, memory_mib: 1024, processors: 2 };
        let mut around = Surroundings { include: &mut include, environment: &|_| None, machine };
        let file = match fio::parse("a.fio", text.as_bytes(), &mut around) {
            Ok(file) => file,
            Err(errors) => {
                assert!(
                    errors.0.iter().all(|error| error.to_string().starts_with("a.fio:")),
                    "{text}\n{errors}"
                );
                continue;
            }
        };
        read += 1;
        let redirect = (random.below(2) == 0).then_some(TargetName::Null);
        let plan = match fio::plan(&file, redirect.as_ref()) {
            Ok(plan) => plan,
            Err(error) => {
                assert!(error.to_string().contains("a.fio:"), "{text}\n{error}");
                continue;
            }
        };
        let sizes: Vec<u64> =
            plan.targets.iter().map(|needed| needed.at_least_bytes.unwrap_or(MIB).min(64 * MIB)).collect();
        match plan.phases(&sizes, 7) {
            Ok(phases) => {
                planned += 1;
                for job in phases.iter().flatten() {
                    assert!(job.span.start < job.span.end, "{text}");
                }
                let _ = (plan.spread(&sizes), plan.place_names());
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    assert!(read > 200 && planned > 100, "of 4000 files {read} are read and {planned} can be run");
}
