//! Every format is recognised and read as what it says, compressed or not, and what is damaged is named.

mod common;

use bimetal_trace::{Format, Marks, Op, OpenError, OwnWriter, Place, Record, RecordWriter, Stat, Trace, Why};
use bimetal_units::Nanos;
use common::*;

#[test]
fn every_format_is_recognised_and_read() {
    let samples = samples();
    for format in Format::ALL {
        let (_, contents, records) =
            samples.iter().find(|(of, ..)| *of == format).unwrap_or_else(|| panic!("no sample of {format}"));
        let trace = open(contents).unwrap_or_else(|error| panic!("{format}: {error}"));
        assert_eq!(trace.format(), format);
        let (found, errors) = all(trace);
        assert!(errors.is_empty(), "{format}: {errors:?}");
        assert_eq!(&found, records, "{format}");
    }
}

#[test]
fn compression_is_seen_through() {
    for (format, contents, records) in samples() {
        for (how, packed) in compressed(&contents) {
            // Several streams one after the other are one file.
            let (mut twice, empty) = (packed.clone(), compressed(b""));
            let (_, empty) = empty.into_iter().find(|(name, _)| *name == how).expect("the same ones");
            if how != "bz2" {
                twice.extend_from_slice(&empty);
            }
            for packed in [&packed, &twice] {
                let trace = open(packed).unwrap_or_else(|error| panic!("{format}, {how}: {error}"));
                assert_eq!(trace.format(), format, "{how}");
                let (found, errors) = all(trace);
                assert!(errors.is_empty(), "{format}, {how}: {errors:?}");
                assert_eq!(found, records, "{format}, {how}");
            }
        }
    }
}

#[test]
fn a_compressed_file_that_is_cut_off_gives_what_came_before() {
    let contents = own(&mixture());
    for (how, packed) in compressed(&contents) {
        let trace = match open(&packed[..packed.len() * 9 / 10]) {
            Ok(trace) => trace,
            Err(OpenError::Read { .. }) => continue,
            Err(error) => panic!("{how}: {error}"),
        };
        let (found, errors) = all(trace);
        assert!(found.len() < mixture().len(), "{how}");
        assert_eq!(found, mixture()[..found.len()], "{how}");
        assert!(errors.iter().any(|error| matches!(error.why, Why::Read(_))), "{how}: {errors:?}");
    }
}

#[test]
fn malformed_lines_are_named_and_the_rest_is_read() {
    let text = "0,1,512,r,0.1\n0,1,512,r\n\n# a comment\n0,x,512,r,0.2\n0,1,0,w,0.2\n0,9223372036854775807,512,w,0.3\n\
                0,18014398509481983,512,w,0.3\n0,2,99999999999,w,0.4\n0,3,512,w,0.5\n";
    let (records, errors) = all(open(text.as_bytes()).expect("SPC"));
    assert_eq!(records, [record(0, Op::Read, 512, 512), record(400_000_000, Op::Write, 1536, 512)]);
    let said: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(said[0], "sample, line 2: too few fields");
    assert_eq!(said[1], "sample, line 5: not a number where one belongs");
    assert_eq!(said[2], "sample, line 6: a length of zero");
    assert_eq!(said[3], "sample, line 7: a number beyond any device");
    assert_eq!(said[4], "sample, line 8: it ends beyond any device");
    assert_eq!(said[5], "sample, line 9: a transfer of more than 4 GiB");
    assert_eq!(said.len(), 6);
}

#[test]
fn a_long_line_is_one_malformed_line() {
    let text = format!("0,1,512,r,0.1\n{}\n0,3,512,w,0.5\n", "9".repeat(3_000_000));
    let (records, errors) = all(open(text.as_bytes()).expect("SPC"));
    assert_eq!(records.len(), 2);
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].place, Place::Line(2));
}

#[test]
fn files_are_merged_by_time_and_empty_ones_are_left_out() {
    let disk = 8 << 20;
    let queued = |ns, sector| blk(ns, sector, 4096, READ | QUEUED, disk, b"");
    let one = [queued(100, 0), queued(300, 16), queued(310, 24)].concat();
    let other = [queued(50, 80), queued(200, 8), queued(400, 32)].concat();
    let files = vec![file("a.0", &one), file("a.1", b""), file("a.2", &other)];
    let (records, errors) = all(Trace::read(files).expect("blktrace"));
    assert!(errors.is_empty());
    let found: Vec<(u64, u64)> =
        records.iter().map(|record| (record.time.expect("a time").0, record.offset / 4096)).collect();
    assert_eq!(found, [(0, 10), (50, 0), (150, 1), (250, 2), (260, 3), (350, 4)]);
}

#[test]
fn names_mean_the_same_in_all_files() {
    let line = |host: &str, time: u32| format!("{time},{host},1,Read,512,512,20\n").into_bytes();
    let web = [line("web", 10), line("web", 30)].concat();
    let files = vec![file("hm_1.csv", &line("hm", 20)), file("web_1.csv", &web)];
    let (records, errors) = all(Trace::read(files).expect("MSR"));
    assert!(errors.is_empty());
    let devices: Vec<u32> = records.iter().map(|record| record.device).collect();
    assert_eq!(devices, [1 << 16 | 1, 1, 1 << 16 | 1]);
}

#[test]
fn files_without_times_follow_one_another() {
    let files = vec![file("1.lis", b"1 1 0 0\n2 1 0 1\n"), file("2.lis", b"9 1 0 0\n8 1 0 1\n")];
    let (records, _) = all(Trace::read(files).expect("ARC"));
    let sectors: Vec<u64> = records.iter().map(|record| record.offset / 512).collect();
    assert_eq!(sectors, [1, 2, 9, 8]);
    assert!(records.iter().all(|record| record.time.is_none()));
}

#[test]
fn what_is_no_trace_is_refused_by_name() {
    let sample = samples();
    let said = |files| Trace::read(files).err().map(|error| error.to_string()).unwrap_or_default();
    assert_eq!(said(vec![]), "no file to read");
    assert_eq!(said(vec![file("x", b"")]), "x is empty");
    assert_eq!(said(vec![file("x", b"words\n")]), "x is no trace in a format that is known");
    assert_eq!(said(vec![file("x", &[0; 5000])]), "x is no trace in a format that is known");
    let mixed = vec![file("x", &sample[1].1), file("y", &sample[5].1)];
    assert_eq!(said(mixed), "x is blktrace, but y is MSR");
    let many = (0..1025).map(|_| file("x", b"1 1 0 0\n")).collect();
    assert_eq!(said(many), "1025 files are more than 1024");
}

#[test]
fn traces_of_only_the_driver_count_what_it_was_given() {
    let disk = 8 << 20;
    // One processor only saw completions; another issued what they end.
    let issued = [
        blk(90, 0, 0, NOTIFY, 0, b"kworker/0:1H\0\0\0\0"),
        blk(100, 8, 4096, WRITE | ISSUED, disk, b""),
        blk(120, 64, 4096, WRITE | ISSUED, disk, b""),
    ]
    .concat();
    let completed =
        [blk(150, 8, 4096, WRITE | COMPLETED, disk, b""), blk(151, 64, 4096, WRITE | COMPLETED, disk, b"")]
            .concat();
    let (records, errors) =
        all(Trace::read(vec![file("0", &issued), file("1", &completed)]).expect("blktrace"));
    assert!(errors.is_empty());
    assert_eq!(records.len(), 2);
    let (records, _) = all(open(&completed).expect("blktrace"));
    assert_eq!(records.len(), 2, "where there is nothing better, completions count");
}

/// An end may be of two that were merged, or of a part; of two that are alike the older one ends first.
#[test]
fn ends_of_blktrace_tell_how_long_requests_took() {
    let disk = 8 << 20;
    let contents = [
        blk(100, 8, 4096, WRITE | QUEUED, disk, b""),
        blk(110, 16, 4096, WRITE | QUEUED, disk, b""),
        blk(120, 64, 8192, READ | QUEUED, disk, b""),
        blk(130, 64, 8192, READ | QUEUED, disk, b""),
        blk(140, 8, 4096, READ | QUEUED, disk, b""),
        blk(150, 8, 8192, WRITE | ISSUED, disk, b""),
        blk(200, 8, 8192, WRITE | COMPLETED, disk, b""),
        blk(210, 64, 4096, READ | COMPLETED, disk, b""),
        blk(220, 72, 4096, READ | COMPLETED, disk, b""),
        blk(300, 64, 8192, READ | COMPLETED, disk, b""),
    ]
    .concat();
    let (records, errors) = all(open(&contents).expect("blktrace"));
    assert!(errors.is_empty(), "{errors:?}");
    let found: Vec<(u64, Option<u64>)> = records
        .iter()
        .map(|record| (record.time.expect("a time").0, record.response.map(|response| response.0)))
        .collect();
    assert_eq!(found, [(0, Some(100)), (10, Some(90)), (20, Some(100)), (30, Some(170)), (40, None)]);
    let text = "8,0 0 1 0.000001000 9 Q W 8 + 8 [a]\n8,0 0 2 0.000002000 9 Q W 16 + 8 [a]\n\
                8,0 0 3 0.000005000 9 C W 8 + 16 [0]\n";
    let (records, errors) = all(open(text.as_bytes()).expect("blkparse"));
    assert!(errors.is_empty(), "{errors:?}");
    let took: Vec<Option<u64>> = records.iter().map(|record| record.response.map(|r| r.0)).collect();
    assert_eq!(took, [Some(4000), Some(3000)]);
}

#[test]
fn twins_below_a_remap_are_dropped() {
    let (disk, volume) = (8 << 20, 253 << 20);
    let upper =
        [blk(100, 1000, 4096, WRITE | QUEUED, volume, b""), blk(500, 2000, 4096, READ | QUEUED, volume, b"")]
            .concat();
    let lower = [
        blk(110, 3000, 4096, WRITE | REMAPPED, disk, &from(volume, disk + 1, 1000)),
        blk(111, 5048, 4096, WRITE | REMAPPED, disk, &from(disk + 1, disk, 3000)),
        blk(112, 5048, 4096, WRITE | QUEUED, disk, b""),
        blk(510, 4000, 4096, READ | REMAPPED, disk, &from(volume, disk, 2000)),
        blk(511, 4000, 4096, READ | QUEUED, disk, b""),
        blk(600, 2148, 4096, READ | REMAPPED, disk, &from(disk + 2, disk, 100)),
        blk(601, 2148, 4096, READ | QUEUED, disk, b""),
    ]
    .concat();
    let mut trace = Trace::read(vec![file("dm", &upper), file("sd", &lower)]).expect("blktrace");
    let devices: Vec<u32> = trace.by_ref().map(|found| found.expect("sound").device).collect();
    assert_eq!(devices, [volume, volume, disk], "the last is the partition's own");
    assert_eq!(trace.twins(), 2);
    let text = "253,0 0 1 0.1 9 Q W 1000 + 8 [a]\n8,0 0 1 0.2 9 A W 3000 + 8 <- (253,0) 1000\n\
                8,0 0 2 0.3 9 Q W 3000 + 8 [a]\n8,0 0 3 0.4 9 Q W 3000 + 8 [a]\n";
    let (records, errors) = all(open(text.as_bytes()).expect("blkparse"));
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(records.len(), 2);
}

#[test]
fn lost_places_of_blktrace_are_passed_over() {
    let disk = 8 << 20;
    let queued = |ns, sector| blk(ns, sector, 4096, READ | QUEUED, disk, b"");
    let contents =
        [queued(100, 0), b"junk junk junk".to_vec(), queued(200, 8), queued(300, 16)[..40].to_vec()];
    let (records, errors) = all(open(&contents.concat()).expect("blktrace"));
    assert_eq!(records.len(), 2);
    let places: Vec<Place> = errors.iter().map(|error| error.place).collect();
    assert_eq!(places, [Place::Byte(48), Place::Byte(110)]);
}

#[test]
fn damage_of_the_own_format_is_named_and_costs_one_block() {
    let records = mixture();
    let good = own(&records);
    assert!(good.len() > 40_000, "several blocks: {}", good.len());
    let mut flipped = good.clone();
    flipped[100] ^= 1;
    let (found, errors) = all(open(&flipped).expect("the header is sound"));
    assert!(!found.is_empty() && found.len() < records.len());
    // Times begin anew with the first record that is left.
    let shift = |offset: usize| found[offset].bytes == records[records.len() - found.len() + offset].bytes;
    assert!((0..found.len()).all(shift));
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].to_string(), "sample, byte 32: a damaged block: its records are lost");
    let (found, errors) = all(open(&good[..good.len() - 24]).expect("the header is sound"));
    assert_eq!(found, records);
    assert!(errors[0].to_string().ends_with("its end is missing"), "{errors:?}");
    let (_, errors) = all(open(&[&good[..], b"more"].concat()).expect("the header is sound"));
    assert!(errors[0].to_string().ends_with("bytes behind the end"), "{errors:?}");
    let mut newer = good.clone();
    newer[12] = 9;
    let (_, errors) = all(open(&newer).expect("the magic is right"));
    assert!(errors[0].to_string().ends_with("newer version of bimetal"), "{errors:?}");
}

#[test]
fn files_of_version_1_are_read_as_ever() {
    let plain: Vec<Record> =
        mixture().into_iter().map(|record| Record { marks: Marks::default(), ..record }).collect();
    // Without marks, and without anything lost, version 1 differs in nothing but its number.
    let mut old = own(&plain);
    old[12] = 1;
    let crc = crc32c::crc32c(&old[12..32]);
    old[8..12].copy_from_slice(&crc.to_le_bytes());
    let (found, errors) = all(open(&old).expect("the header is sound"));
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(found, plain);
}

#[test]
fn what_was_lost_is_told_and_what_came_before_a_cut_is_read() {
    let shared = Shared::default();
    let mut writer = Box::new(OwnWriter::new(shared.clone()).expect("memory"));
    let records = &mixture()[..10];
    records.iter().for_each(|record| writer.record(record).expect("memory"));
    writer.checkpoint().expect("memory");
    let cut = shared.0.lock().expect("one thread").clone();
    writer.lost(1 << 40);
    writer.finish().expect("memory");
    let mut trace = open(&shared.0.lock().expect("one thread")).expect("own");
    assert_eq!(trace.by_ref().filter_map(Result::ok).collect::<Vec<_>>(), records);
    assert_eq!(trace.lost(), 1 << 40);
    let (found, errors) = all(open(&cut).expect("own"));
    assert_eq!(found, records);
    assert!(errors.len() == 1 && errors[0].to_string().ends_with("its end is missing"), "{errors:?}");
}

#[test]
fn fua_is_read_where_it_is_told() {
    let (disk, fua) = (8 << 20, 1 << 31);
    let contents = [
        blk(100, 8, 4096, WRITE | fua | QUEUED, disk, b""),
        blk(200, 8, 4096, WRITE | FLUSH | QUEUED, disk, b""),
    ];
    let (records, _) = all(open(&contents.concat()).expect("blktrace"));
    assert_eq!([true, false], [0, 1].map(|place: usize| records[place].marks.fua));
    let text =
        "8,0 0 1 0.1 9 Q WFS 8 + 8 [a]\n8,0 0 2 0.2 9 Q FWS 8 + 8 [a]\n8,0 0 3 0.3 9 Q FWF 8 + 8 [a]\n";
    let (records, _) = all(open(text.as_bytes()).expect("blkparse"));
    assert_eq!([true, false, true], [0, 1, 2].map(|place: usize| records[place].marks.fua));
}

/// Sums up records by way of the own format.
fn summed(records: &[Record]) -> bimetal_trace::Summary {
    let mut trace = open(&own(records)).expect("own");
    let mut stat = Stat::default();
    trace.by_ref().for_each(|found| stat.add(&found));
    stat.summary(&trace)
}

#[test]
fn depth_reuse_and_working_set_are_summed_up() {
    // Four at a time for a second, then one at a time; sixteen blocks over and over, then each block once.
    let millisecond = 1_000_000;
    let deep = (0..4000u64)
        .map(|number| record(number / 4 * millisecond, Op::Read, number % 16 * 4096, 4096).took(millisecond));
    let flat = (0..1000u64).map(|number| {
        record((1000 + number) * millisecond, Op::Write, (1000 + number) * 4096, 4096).took(millisecond)
    });
    let found = summed(&deep.chain(flat).collect::<Vec<_>>());
    let depth = found.queue_depth.expect("responses");
    assert!((depth.mean - 2.5).abs() < 1e-9, "{depth:?}");
    assert_eq!((depth.max, depth.p99), (4, 4));
    assert!((depth.over_time[10] - 4.0).abs() < 1e-9);
    assert!((depth.over_time.last().expect("slots") - 1.0).abs() < 1e-9);
    let reuse = found.reuse.expect("touches");
    assert_eq!((reuse.block_touches, reuse.exact), (5000, true));
    assert!((reuse.reused_share - 3984.0 / 5000.0).abs() < 1e-9);
    let held = |bytes: u64| {
        reuse.caches.iter().find(|point| point.cache_bytes == bytes).map(|point| point.hit_share)
    };
    assert_eq!((held(8 * 4096), held(16 * 4096)), (Some(0.0), Some(3984.0 / 5000.0)));
    let working = found.working_set.expect("records");
    let of = |window: usize| working.windows[window].working_set_bytes / 4096;
    let last = working.windows.last().expect("windows").footprint_bytes / 4096;
    assert_eq!(of(1), 16);
    assert!(of(working.windows.len() - 2) > 16 && last.abs_diff(1016) < 30, "{last}");
    assert_eq!((found.fua_writes, found.zero_writes, found.lost), (0, 0, 0));
    let marked = summed(&mixture());
    assert_eq!((marked.fua_writes, marked.zero_writes), (500, 334));
    let silent = Record { time: Some(Nanos(0)), ..timeless(Op::Read, 0, 512) };
    assert!(summed(&[silent]).queue_depth.is_none());
}

#[test]
fn a_summary_says_what_is_in_it() {
    let text = "Timestamp,Response,IOType,LUN,Offset,Size\n1.0,0.001,R,0,0,4096\n1.5,0.003,W,0,4096,8192\n\
                2.5,0.002,W,1,512,512\n2.4,,W,1,1024,512\n";
    let mut trace = open(text.as_bytes()).expect("SYSTOR");
    let mut stat = Stat::default();
    for found in trace.by_ref() {
        stat.add(&found);
    }
    let summary = stat.summary(&trace);
    assert_eq!((summary.records, summary.reads, summary.writes), (4, 1, 3));
    assert_eq!((summary.read_bytes, summary.written_bytes), (4096, 9216));
    assert_eq!((summary.footprint_bytes, summary.read_footprint_bytes), (16_384, 4096));
    assert_eq!((summary.devices, summary.end_bytes, summary.out_of_order), (2, 12_288, 1));
    assert_eq!(summary.duration_seconds, Some(1.5));
    assert_eq!(summary.busiest_second_requests, Some(2));
    assert_eq!((summary.sequential_share, summary.aligned_share, summary.read_share), (0.25, 0.5, 0.25));
    let sizes: Vec<_> =
        summary.sizes.iter().map(|size| (size.up_to_bytes, size.reads, size.writes)).collect();
    assert_eq!(sizes, [(512, 0, 2), (4096, 1, 0), (8192, 0, 1)]);
    let response = summary.response.expect("three of them");
    assert_eq!((response.mean_us, response.max_us), (2000.0, 3000.0));
    assert!(summary.inter_arrival.is_some_and(|gaps| gaps.max_us == 900_000.0));
}
