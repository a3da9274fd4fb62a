//! Samples of every format, made here.
#![allow(dead_code)]

use bimetal_trace::{
    Format, Iolog3Writer, LineError, Marks, Op, OpenError, OwnWriter, Record, RecordWriter, Trace,
};
use bimetal_units::Nanos;
use std::io::{Cursor, Read, Write};
use std::sync::{Arc, Mutex};

/// A file in memory.
pub fn file(name: &str, contents: &[u8]) -> (String, Box<dyn Read + Send>) {
    (name.to_owned(), Box::new(Cursor::new(contents.to_vec())))
}

pub fn open(contents: &[u8]) -> Result<Trace, OpenError> {
    Trace::read(vec![file("sample", contents)])
}

/// All of a trace: records, and what was malformed.
pub fn all(trace: Trace) -> (Vec<Record>, Vec<LineError>) {
    let (mut records, mut errors) = (Vec::new(), Vec::new());
    for found in trace {
        match found {
            Ok(record) => records.push(record),
            Err(error) => errors.push(error),
        }
    }
    (records, errors)
}

/// A record without response on device 0.
pub fn record(ns: u64, op: Op, offset: u64, bytes: u64) -> Record {
    Record { time: Some(Nanos(ns)), op, offset, bytes, device: 0, response: None, marks: Marks::default() }
}

/// A request and nothing else.
pub fn timeless(op: Op, offset: u64, bytes: u64) -> Record {
    Record { time: None, ..record(0, op, offset, bytes) }
}

/// Changes of a record.
pub trait With {
    fn on(self, device: u32) -> Self;
    fn took(self, ns: u64) -> Self;
}

impl With for Record {
    fn on(self, device: u32) -> Record {
        Record { device, ..self }
    }
    fn took(self, ns: u64) -> Record {
        Record { response: Some(Nanos(ns)), ..self }
    }
}

/// A blktrace record; categories in the upper half of the action.
pub fn blk(ns: u64, sector: u64, bytes: u32, action: u32, device: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&0x6561_7407u32.to_le_bytes());
    out.extend_from_slice(&1u32.to_le_bytes());
    out.extend_from_slice(&ns.to_le_bytes());
    out.extend_from_slice(&sector.to_le_bytes());
    for word in [bytes, action, 4242, device, 0] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&0u16.to_le_bytes());
    out.extend_from_slice(&(payload.len() as u16).to_le_bytes());
    out.extend_from_slice(payload);
    out
}

pub const READ: u32 = 1 << 16;
pub const WRITE: u32 = 1 << 17;
pub const FLUSH: u32 = 1 << 18;
pub const NOTIFY: u32 = 1 << 26;
pub const DISCARD: u32 = 1 << 29;
pub const QUEUED: u32 = 1;
pub const ISSUED: u32 = 7;
pub const COMPLETED: u32 = 8;
pub const REMAPPED: u32 = 15;

/// The payload of a remap.
pub fn from(device: u32, to: u32, sector: u64) -> Vec<u8> {
    let mut out = device.to_be_bytes().to_vec();
    out.extend_from_slice(&to.to_be_bytes());
    out.extend_from_slice(&sector.to_be_bytes());
    out
}

fn blktrace() -> Vec<u8> {
    let disk = 8 << 20;
    [
        blk(90, 0, 0, NOTIFY, disk, b"kworker/0:1H\0\0\0\0"),
        blk(100, 8, 4096, READ | QUEUED, disk, b""),
        blk(110, 8, 4096, READ | ISSUED, disk, b""),
        blk(200, 16, 8192, WRITE | QUEUED, disk, b""),
        blk(250, 8, 4096, READ | COMPLETED, disk, b""),
        blk(300, 0, 0, WRITE | FLUSH | QUEUED, disk, b""),
        blk(400, 32, 512, DISCARD | WRITE | QUEUED, disk, b""),
    ]
    .concat()
}

/// Every kind of record.
pub fn mixture() -> Vec<Record> {
    let mut records = Vec::new();
    for number in 0..5000u64 {
        let op = [Op::Read, Op::Write, Op::Write, Op::Flush, Op::Discard][(number % 5) as usize];
        let (offset, bytes) = ((number * 7919) % 1_000_003 * 512, 512 << (number % 9));
        let mut record = match op {
            Op::Flush => record(number * 1000, op, 0, 0),
            _ => record(number * 1000, op, offset, bytes),
        };
        record.device = (number / 700) as u32 * 77;
        if number % 3 == 0 {
            record.response = Some(Nanos(number * 11));
        }
        record.marks.fua = number % 10 == 1;
        record.marks.zeroes = number % 15 == 2;
        records.push(record);
    }
    records[4999].offset = 0;
    records[4998].op = Op::Write;
    records[4998].bytes = 4 << 30;
    records[4998].offset = i64::MAX as u64 - (4 << 30);
    records
}

/// A buffer that can be looked at while a writer has it.
#[derive(Clone, Default)]
pub struct Shared(pub Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("one thread").extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn written(records: &[Record], make: impl FnOnce(Shared) -> Box<dyn RecordWriter>) -> Vec<u8> {
    let shared = Shared::default();
    let mut writer = make(shared.clone());
    for record in records {
        writer.record(record).expect("memory");
    }
    writer.finish().expect("memory");
    shared.0.lock().expect("one thread").clone()
}

pub fn own(records: &[Record]) -> Vec<u8> {
    written(records, |out| Box::new(OwnWriter::new(out).expect("memory")))
}

pub fn iolog3(records: &[Record]) -> Vec<u8> {
    written(records, |out| Box::new(Iolog3Writer::new(out).expect("memory")))
}

fn vscsi1() -> Vec<u8> {
    let mut out = Vec::new();
    for (number, (command, bytes, block, us)) in
        [(0x2au16, 4096u32, 100u64, 5_000_000u64), (0x28, 512, 7, 5_000_010), (0x12, 36, 0, 5_000_020)]
            .into_iter()
            .enumerate()
    {
        for word in [number as u32, bytes, 1] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&command.to_le_bytes());
        out.extend_from_slice(&0x0100u16.to_le_bytes());
        out.extend_from_slice(&block.to_le_bytes());
        out.extend_from_slice(&us.to_le_bytes());
    }
    out
}

fn vscsi2() -> Vec<u8> {
    let mut out = Vec::new();
    for (number, (command, bytes, block, us)) in
        [(0x8au16, 4096u32, 100u64, 5_000_000u64), (0x88, 512, 7, 5_000_010), (0x35, 0, 0, 5_000_020)]
            .into_iter()
            .enumerate()
    {
        out.extend_from_slice(&command.to_le_bytes());
        out.extend_from_slice(&0x0204u16.to_le_bytes());
        for word in [number as u32, bytes, 1] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for long in [block, us, 300 + number as u64] {
            out.extend_from_slice(&long.to_le_bytes());
        }
    }
    out
}

fn oracle() -> Vec<u8> {
    let mut out = Vec::new();
    for (seconds, object, bytes, next) in
        [(10u32, 100u64, 4096u32, 3i64), (10, 8, 512, -1), (12, 100, 4096, -1)]
    {
        out.extend_from_slice(&seconds.to_le_bytes());
        out.extend_from_slice(&object.to_le_bytes());
        out.extend_from_slice(&bytes.to_le_bytes());
        out.extend_from_slice(&next.to_le_bytes());
    }
    out
}

fn srt() -> Vec<u8> {
    let mut out = b"tracename\t= \"made\";\ntracedate\t= \"Tue Apr 18 10:00:00 1992\";\n\x0c".to_vec();
    let records: [&[u32]; 3] = [
        &[52, 1 << 16 | 1, 5, 10, 100, 900, 8192, 64, 0x1f00, 0, 3, 1, 0],
        &[60, 4 << 16 | 4, 5, 20, 0, 0, 8192, 64, 0x1f00, 0, 3, 1, 0, 2, 9],
        &[56, 4 << 16 | 1, 6, 0, 0, 700, 1024, 2, 0x1f00, 0, 3, 0, 0, 2],
    ];
    for word in records.into_iter().flatten() {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out
}

const BLKPARSE: &str = "  8,0    1        1     0.000000100  4020  Q   R 8 + 8 [java]
  8,0    1        2     0.000000110  4020  D  RS 8 + 8 [java]
  8,0    1        0     0.000000120     0  m   N cfq4020 schedule
  8,0    1        3     0.000000200  4020  Q  WS 16 + 16 [java]
  8,0    1        4     0.000000250     0  C  RS 8 + 8 [0]
  8,0    1        5     0.000000300  4020  Q FWS [java]
  8,0    1        6     0.000000400  4020  Q  DS 32 + 1 [java]
  8,0    1        7     0.000000410  4020  U   N [java] 1
CPU1 (8,0):
 Reads Queued:           1,        4KiB\t Writes Queued:           1,        8KiB
Total (8,0):
Throughput (R/W): 4KiB/s / 8KiB/s
";

const BLKREPLAY: &str = "Copyright Nobody
Copying is permitted.

#####
start ; sector; length ; op ;  replay_delay=0 ; replay_duration=0
      1.000000000 ;     8 ;   64 ; W ; 0.0 ; 0.0
Where traces meet ; there is text
      1.449518165 ;     16 ;   1 ; R ; 0.0 ; 0.0
";

const IOLOG2: &str = "fio version 2 iolog
/dev/sdb add
/dev/sdb open
/dev/sdb read 0 4096
/dev/sdb wait 4 0
/dev/sdb write 4096 512
/dev/sdb wait 6 0
/dev/sdb sync 0 0
/dev/sdb trim 8192 4096
/dev/sdb close
";

/// A sample of every format, and what is in it.
pub fn samples() -> Vec<(Format, Vec<u8>, Vec<Record>)> {
    use Op::{Discard, Flush, Read, Write};
    let disk = 8 << 20;
    let text = |text: &str| text.as_bytes().to_vec();
    let kernel = vec![
        record(0, Read, 4096, 4096).on(disk).took(150),
        record(100, Write, 8192, 8192).on(disk),
        record(200, Flush, 0, 0).on(disk),
        record(300, Discard, 16384, 512).on(disk),
    ];
    let microseconds = |records: Vec<Record>| -> Vec<Record> {
        // Devices are numbered in the order in which they are met; responses have no place there.
        records
            .into_iter()
            .map(|record| Record {
                device: record.device / 77,
                response: None,
                marks: Marks::default(),
                ..record
            })
            .collect()
    };
    vec![
        (Format::Bimetal, own(&mixture()), mixture()),
        (Format::Blktrace, blktrace(), kernel.clone()),
        (Format::Blkparse, text(BLKPARSE), kernel),
        (
            Format::Iolog2,
            text(IOLOG2),
            vec![
                record(0, Read, 0, 4096),
                record(4_000_000, Write, 4096, 512),
                record(6_000_000, Flush, 0, 0),
                record(6_000_000, Discard, 8192, 4096),
            ],
        ),
        (Format::Iolog3, iolog3(&mixture()), microseconds(mixture())),
        (
            Format::Msr,
            text(
                "128166385295514663,hm,0,Write,9056014336,2048,2833\n128166385295514670,hm,1,Read,512,512,20\n",
            ),
            vec![
                record(0, Write, 9_056_014_336, 2048).took(283_300),
                record(700, Read, 512, 512).on(1).took(2000),
            ],
        ),
        (
            Format::Spc,
            text("0,303567,3584,w,0.000000\n1,55590,3072,W,0.026214\n0,1,512,r,0.1,2,3\n"),
            vec![
                record(0, Write, 303_567 * 512, 3584),
                record(26_214_000, Write, 55_590 * 512, 3072).on(1),
                record(100_000_000, Read, 512, 512),
            ],
        ),
        (
            Format::Systor17,
            text(
                "Timestamp,Response,IOType,LUN,Offset,Size\n1456095145.133076000,0.000806000,R,0,4096,131072\n1456095146.1,,W,4,512,512\n",
            ),
            vec![record(0, Read, 4096, 131_072).took(806_000), record(966_924_000, Write, 512, 512).on(4)],
        ),
        (
            Format::Alibaba,
            text("419,W,2048,4096,1577808144360767\n725,R,0,512,1577808144360768\n"),
            vec![record(0, Write, 2048, 4096).on(419), record(1000, Read, 0, 512).on(725)],
        ),
        (
            Format::Tencent,
            text("1538323200,12910952,128,0,1063\n1538323201,8,16,1,1064\n"),
            vec![
                record(0, Read, 12_910_952 * 512, 65_536).on(1063),
                record(1_000_000_000, Write, 4096, 8192).on(1064),
            ],
        ),
        (Format::Vscsi1, vscsi1(), vec![record(0, Write, 51_200, 4096), record(10_000, Read, 3584, 512)]),
        (
            Format::Vscsi2,
            vscsi2(),
            vec![
                record(0, Write, 51_200, 4096).took(300_000),
                record(10_000, Read, 3584, 512).took(301_000),
                record(20_000, Flush, 0, 0).took(302_000),
            ],
        ),
        (
            Format::Blkreplay,
            text(BLKREPLAY),
            vec![record(0, Write, 4096, 32_768), record(449_518_165, Read, 8192, 512)],
        ),
        (
            Format::Disksim,
            text("0.000000 0 1234 8 0\n1.5 3 16 8 1\n"),
            vec![record(0, Write, 1234 * 512, 4096), record(1_500_000, Read, 8192, 4096).on(3)],
        ),
        (
            Format::DisksimValidation,
            text("W Hit    4583176   4    663.00000  45422.00000\nR Miss 8 1 0.5 1\nR Hit 8 1 2 1\n"),
            vec![
                record(0, Write, 4_583_176 * 512, 2048).took(663_000),
                record(46_085_000, Read, 4096, 512).took(500),
                record(46_086_500, Read, 4096, 512).took(2000),
            ],
        ),
        (
            Format::Mqsim,
            text("938513000 4 264719034 16 0\n938828000 3 16 32 1\n"),
            vec![record(0, Write, 264_719_034 * 512, 8192).on(4), record(315_000, Read, 8192, 16_384).on(3)],
        ),
        (
            Format::HpSrt,
            srt(),
            vec![
                record(0, Read, 16_384, 8192).on(0x1f00).took(900_000),
                record(999_990_000, Write, 512, 1024).on(0x1f00).took(700_000),
            ],
        ),
        (
            Format::Arc,
            text("110765 64 0 0\n110888 1 0 1\n"),
            vec![timeless(Read, 110_765 * 512, 32_768), timeless(Read, 110_888 * 512, 512)],
        ),
        (
            Format::OracleGeneral,
            oracle(),
            vec![
                record(0, Read, 51_200, 4096),
                record(0, Read, 4096, 512),
                record(2_000_000_000, Read, 51_200, 4096),
            ],
        ),
    ]
}

/// The same bytes in every compression.
pub fn compressed(plain: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(plain).expect("memory");
    let mut bz = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bz.write_all(plain).expect("memory");
    let mut xz =
        lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(1)).expect("memory");
    xz.write_all(plain).expect("memory");
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    vec![
        ("gz", gz.finish().expect("memory")),
        ("bz2", bz.finish().expect("memory")),
        ("xz", xz.finish().expect("memory")),
        ("zst", ruzstd::encoding::compress_to_vec(plain, level)),
    ]
}
