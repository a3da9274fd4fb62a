//! What stands a little out of order is put in order, what stands far out of order is told, and what a trace's text is
//! wrapped in changes nothing of what is read.

mod common;

use bimetal_trace::{Format, Op, OpenError, Record, Stat, Trace};
use bimetal_units::Nanos;
use bimetal_units::rng::Rng;
use common::*;

const MARK: &str = "\u{feff}";

/// A record's line in a format of lines, at so many microseconds.
type Writer = fn(u64, &Record) -> String;

fn letter(record: &Record) -> char {
    if record.op == Op::Write { 'W' } else { 'R' }
}

/// Formats of lines with times of a microsecond at least, and a head where they have one.
fn writers() -> Vec<(Format, &'static str, Writer)> {
    vec![
        (Format::Systor17, "Timestamp,Response,IOType,LUN,Offset,Size\n", |at, record| {
            let (letter, response) =
                (letter(record), record.response.map_or(0, |response| response.0 / 1000));
            let (whole, part) = (1_456_095_145 + at / 1_000_000, at % 1_000_000);
            format!(
                "{whole}.{part:06},0.{response:06},{letter},{},{},{}",
                record.device, record.offset, record.bytes
            )
        }),
        (Format::Alibaba, "", |at, record| {
            let time = 1_577_808_144_360_767 + at;
            format!("{},{},{},{},{time}", record.device, letter(record), record.offset, record.bytes)
        }),
        (Format::Msr, "", |at, record| {
            let (time, op) =
                (128_166_372_003_061_629 + at * 10, if record.op == Op::Write { "Write" } else { "Read" });
            let response = record.response.map_or(0, |response| response.0 / 100);
            format!("{time},srv,{},{op},{},{},{response}", record.device, record.offset, record.bytes)
        }),
        (Format::Blkparse, "", |at, record| {
            let (seconds, part) = (at / 1_000_000, at % 1_000_000);
            let (first, sectors) = (record.offset / 512, record.bytes / 512);
            format!(
                "8,{} 1 1 {seconds}.{part:06}000 77 Q {} {first} + {sectors} [x]",
                record.device,
                letter(record)
            )
        }),
    ]
}

/// Requests as they begin, with responses; none of them alike.
fn begun(rng: &mut Rng, many: u64) -> Vec<Record> {
    let mut at = 0;
    let mut records = Vec::new();
    for number in 0..many {
        at += rng.below(40) * 1000;
        let op = if rng.below(3) == 0 { Op::Write } else { Op::Read };
        let took = (1 + rng.below(500)) * 1000;
        records.push(record(at, op, number * 4096, 4096 * (1 + rng.below(4))).took(took));
    }
    records
}

/// As a system writes them that logs a request when it ends.
fn by_their_ends(mut records: Vec<Record>) -> Vec<Record> {
    records.sort_by_key(|record| {
        record.time.map(|time| time.0 + record.response.map_or(0, |response| response.0))
    });
    records
}

fn text(records: &[Record], head: &str, write: Writer, end: &str) -> String {
    let lines = records.iter().map(|record| write(record.time.map_or(0, |time| time.0 / 1000), record) + end);
    head.to_owned() + &lines.collect::<String>()
}

/// What the records are in any order.
fn sorted(mut records: Vec<Record>) -> Vec<(Option<u64>, u64, u64, Op)> {
    records.sort_by_key(|record| (record.time, record.offset));
    let first = records.first().and_then(|record| record.time).map_or(0, |time| time.0);
    let since = |record: &Record| record.time.map(|time| time.0 - first);
    records.iter().map(|record| (since(record), record.offset, record.bytes, record.op)).collect()
}

#[test]
fn what_is_logged_when_it_ends_is_read_as_it_began() {
    for (format, head, write) in writers() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed, 0);
            let records = begun(&mut rng, 2000);
            let logged = by_their_ends(records.clone());
            let out = logged.windows(2).filter(|two| two[1].time < two[0].time).count() as u64;
            assert!(out > 200, "{out}");
            let mut trace = open(text(&logged, head, write, "\n").as_bytes()).expect("it is known");
            assert_eq!(trace.format(), format);
            let found: Vec<Record> = trace.by_ref().map(|found| found.expect("it is sound")).collect();
            assert!(found.windows(2).all(|two| two[0].time <= two[1].time), "{format}, seed {seed}");
            assert_eq!(sorted(found), sorted(records), "{format}, seed {seed}");
            assert!(trace.out_of_order() >= out && trace.unsorted() == 0, "{format}, seed {seed}");
        }
    }
}

/// Two files, each out of order by itself, are one in order.
#[test]
fn files_out_of_order_are_merged_in_order() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed, 1);
        let (one, other) = (begun(&mut rng, 1000), begun(&mut rng, 1000));
        let (_, head, write) = writers().remove(0);
        let of = |records: &[Record]| text(&by_their_ends(records.to_vec()), head, write, "\n");
        let files = vec![file("one", of(&one).as_bytes()), file("other", of(&other).as_bytes())];
        let mut trace = Trace::read(files).expect("it is known");
        let found: Vec<Record> = trace.by_ref().map(|found| found.expect("it is sound")).collect();
        assert!(found.windows(2).all(|two| two[0].time <= two[1].time), "seed {seed}");
        assert_eq!(sorted(found), sorted([one, other].concat()), "seed {seed}");
    }
}

#[test]
fn what_stands_too_far_behind_is_told() {
    let many = 70_000u64;
    let mut records: Vec<Record> = (0..many).map(|n| record(n * 1000, Op::Read, n * 4096, 4096)).collect();
    // The first of them moves to the end, and one of the middle a little.
    records.rotate_left(1);
    records.swap(30_000, 30_100);
    let (_, head, write) = writers().remove(1);
    let mut trace = open(text(&records, head, write, "\n").as_bytes()).expect("it is known");
    let mut stat = Stat::default();
    trace.by_ref().for_each(|found| stat.add(&found));
    let summary = stat.summary(&trace);
    assert_eq!((summary.records, summary.malformed.count, summary.unsorted), (many, 0, 1));
    assert!(summary.out_of_order > 1, "{}", summary.out_of_order);
}

/// A byte order mark, lines that end as on Windows, empty lines, and files with marks that were put together.
#[test]
fn wrappings_of_text_change_nothing() {
    let mut texts = 0;
    for (format, contents, wanted) in samples() {
        let Ok(text) = String::from_utf8(contents) else { continue };
        if text.contains('\0') {
            continue;
        }
        texts += 1;
        let windows = text.replace('\n', "\r\n");
        for wrapped in [
            format!("{MARK}{text}"),
            format!("{MARK}{windows}"),
            format!("{MARK}\r\n{windows}\r\n\r\n"),
            text.trim_end().to_owned(),
        ] {
            let trace = open(wrapped.as_bytes()).unwrap_or_else(|error| panic!("{format}: {error}"));
            assert_eq!(trace.format(), format);
            let (found, errors) = all(trace);
            assert!(errors.is_empty(), "{format}: {errors:?}");
            assert_eq!(found, wanted, "{format}");
        }
        let wide: Vec<u8> = format!("{MARK}{text}").encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(matches!(open(&wide), Err(OpenError::Utf16(_))), "{format}");
    }
    assert!(texts > 10, "{texts}");
    let (_, head, write) = writers().remove(1);
    let one = text(&[record(0, Op::Read, 0, 4096)], head, write, "\r\n");
    let other = text(&[record(1000, Op::Write, 4096, 4096)], head, write, "\r\n");
    let (found, errors) = all(open(format!("{MARK}{one}{MARK}{other}").as_bytes()).expect("it is known"));
    assert_eq!((found.len(), errors.len()), (2, 0), "{errors:?}");
}

/// Every combination of the letters that the kernel puts together.
#[test]
fn letters_of_blkparse_say_what_is_done() {
    let mut seen = 0;
    for first in ["", "F"] {
        for (letter, op) in [("R", Op::Read), ("W", Op::Write), ("D", Op::Discard), ("DE", Op::Discard)] {
            for how in 0..32u32 {
                let how: String = ["F", "A", "S", "M", "B"]
                    .iter()
                    .enumerate()
                    .filter(|(n, _)| how >> n & 1 == 1)
                    .map(|(_, l)| *l)
                    .collect();
                let line = format!("8,0 1 1 0.000001000 77 Q {first}{letter}{how} 2048 + 8 [x]\n");
                let (found, errors) = all(open(line.as_bytes()).expect("blkparse"));
                let wanted = (op, 2048 * 512, 4096);
                assert!(errors.is_empty());
                let found: Vec<_> =
                    found.iter().map(|record| (record.op, record.offset, record.bytes)).collect();
                assert_eq!(found, [wanted], "{line}");
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 256);
    // The commands of zones move nothing, but for an append.
    let zones =
        "8,0 1 1 0.1 7 Q R 0 + 8 [x]\n8,0 1 2 0.2 7 Q ZR 64 + 8 [x]\n8,0 1 3 0.3 7 Q ZAS 128 + 8 [x]\n";
    let (found, _) = all(open(zones.as_bytes()).expect("blkparse"));
    assert_eq!(found.iter().map(|record| record.op).collect::<Vec<_>>(), [Op::Read, Op::Write]);
}

#[test]
fn files_of_different_clocks_are_told_apart() {
    let (_, head, write) = writers().remove(2);
    let today =
        text(&[record(0, Op::Read, 0, 4096), record(5_000_000, Op::Read, 0, 4096)], head, write, "\n");
    let boot = "1000,srv,0,Read,0,4096,1\n20000000,srv,0,Read,4096,4096,1\n";
    let mut trace =
        Trace::read(vec![file("today", today.as_bytes()), file("boot", boot.as_bytes())]).expect("MSR");
    assert_eq!(trace.by_ref().filter(Result::is_ok).count(), 4);
    let far = trace.far().expect("they are far apart");
    assert_eq!((far.before.as_str(), far.behind.as_str()), ("boot", "today"));
    assert_eq!(far.gap, Nanos((128_166_372_003_061_629 - 20_000_000) * 100));
    let mut trace =
        Trace::read(vec![file("today", today.as_bytes()), file("too", today.as_bytes())]).expect("MSR");
    assert_eq!(trace.by_ref().filter(Result::is_ok).count(), 4);
    assert_eq!(trace.far(), None);
}

/// Numbers that cannot be: each line with one is told of as malformed, and none of it is taken for something else.
#[test]
fn what_cannot_be_is_malformed_and_nothing_else() {
    let good = "128166372003061629,srv,0,Read,4096,512,41\n";
    let bad = [
        "-1,srv,0,Read,4096,512,41",
        "128166372003061630,srv,0,Read,-4096,512,41",
        "128166372003061630,srv,0,Read,4096,0,41",
        "128166372003061630,srv,0,Read,4096,-512,41",
        "128166372003061630,srv,0,Read,4096,4294967297,41",
        "128166372003061630,srv,0,Read,9223372036854775807,512,41",
        "128166372003061630,srv,0,Read,99999999999999999999,512,41",
        "184467440737095517,srv,0,Read,4096,512,41",
        "128166372003061630,srv,0,Read,4096,512,184467440737095517",
        "128166372003061630,srv,65536,Read,4096,512,41",
        "128166372003061630,srv,0,Raed,4096,512,41",
        "128166372003061630,srv,0,Read,4096,512",
    ];
    for line in bad {
        let (found, errors) = all(open(format!("{good}{line}\n{good}").as_bytes()).expect("MSR"));
        assert_eq!((found.len(), errors.len()), (2, 1), "{line}");
        assert!(found.iter().all(|record| (record.offset, record.bytes) == (4096, 512)), "{line}");
    }
    // Discards are not carried: they may be as long as a device.
    let long = format!("8,0 1 1 0.1 7 Q D 8 + {} [x]\n", 5u64 << 21);
    let (found, _) = all(open(long.as_bytes()).expect("blkparse"));
    assert_eq!(found[0].bytes, 5 << 30);
}

/// Whatever is done to one line, the others are read as they were: none is lost, none is made up.
#[test]
fn a_damaged_line_costs_itself_and_nothing_else() {
    for (format, head, write) in writers() {
        for seed in 0..150 {
            let mut rng = Rng::new(seed, 2);
            let records = begun(&mut rng, 60);
            let mut lines: Vec<Vec<u8>> =
                text(&records, "", write, "\n").lines().map(|line| line.as_bytes().to_vec()).collect();
            let hit = rng.below(lines.len() as u64) as usize;
            let line = &mut lines[hit];
            for _ in 0..rng.range(1, 4) {
                let at = rng.below(line.len() as u64) as usize;
                let bytes = b"0123456789.,;-+ RWQDCA\xef\xbb\xbf\xff#";
                let byte = bytes[rng.below(bytes.len() as u64) as usize];
                match rng.below(3) {
                    0 => line[at] = byte,
                    1 => line.insert(at, byte),
                    _ => line.truncate(at.max(1)),
                }
            }
            let contents = [head.as_bytes(), &lines.join(&b'\n')].concat();
            let (found, errors) = all(open(&contents).expect("it is known"));
            let key = |record: &Record| (record.offset, record.bytes, record.op);
            let mut left: Vec<_> = found.iter().map(key).collect();
            for (n, record) in records.iter().enumerate().filter(|(n, _)| *n != hit) {
                let place = left.iter().position(|left| *left == key(record));
                let place =
                    place.unwrap_or_else(|| panic!("{format}, seed {seed}: line {n} is lost, {hit} was hit"));
                left.swap_remove(place);
            }
            assert!(left.len() + errors.len() <= 1, "{format}, seed {seed}: {left:?} {errors:?}");
        }
    }
}
