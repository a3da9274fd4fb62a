//! How many records a second of processor time the readers take: of the files that are named, or of samples made here
//! in memory: `cargo run --release -p bimetal-trace --example trace_speed [FILE...]`.

use bimetal_trace::{Iolog3Writer, Marks, Op, OwnWriter, Record, RecordWriter, Stat, Trace};
use bimetal_units::Nanos;
use std::io::{Cursor, Read};
use std::sync::{Arc, Mutex};

const RECORDS: u64 = 1_000_000;

/// What this thread has had of a processor so far (Linux): a busy machine slows down the clock on the wall.
fn processor_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells it");
    stat.split_whitespace().next().and_then(|ns| ns.parse().ok()).expect("nanoseconds come first")
}

fn pace(name: &str, contents: Vec<u8>) {
    // Short files are read often enough to take a while.
    let (mut records, mut malformed, mut ns) = (0u64, 0u64, 0u64);
    let mut format = None;
    while ns < 300_000_000 {
        let contents: Box<dyn Read + Send> = Box::new(Cursor::new(contents.clone()));
        let began = processor_ns();
        let mut trace = Trace::read(vec![(name.to_owned(), contents)]).expect("a trace");
        for found in &mut trace {
            match found {
                Ok(_) => records += 1,
                Err(_) => malformed += 1,
            }
        }
        ns += processor_ns() - began;
        format = Some(trace.format());
    }
    let format = format.map_or(String::new(), |format| format.to_string());
    let pace = records as f64 / (ns as f64 / 1e9) / 1e6;
    println!("{name:<32} {format:<18} {pace:>7.2} M records/s {malformed:>6} malformed");
}

fn sample() -> impl Iterator<Item = Record> {
    (0..RECORDS).map(|number| {
        let place = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
        Record {
            time: Some(Nanos(number * 12_345)),
            op: if number % 3 == 0 { Op::Read } else { Op::Write },
            offset: place * 4096,
            bytes: 4096 << (number % 4),
            device: 0,
            response: None,
            marks: Marks::default(),
        }
    })
}

fn vscsi1() -> Vec<u8> {
    let mut out = Vec::new();
    for (number, record) in sample().enumerate() {
        let command: u16 = if record.op == Op::Read { 0x28 } else { 0x2a };
        out.extend_from_slice(&(number as u32).to_le_bytes());
        out.extend_from_slice(&(record.bytes as u32).to_le_bytes());
        out.extend_from_slice(&1u32.to_le_bytes());
        out.extend_from_slice(&command.to_le_bytes());
        out.extend_from_slice(&0x0100u16.to_le_bytes());
        out.extend_from_slice(&(record.offset / 512).to_le_bytes());
        out.extend_from_slice(&(number as u64 * 12).to_le_bytes());
    }
    out
}

fn vscsi2() -> Vec<u8> {
    let mut out = Vec::new();
    for (number, record) in sample().enumerate() {
        let command: u16 = if record.op == Op::Read { 0x28 } else { 0x2a };
        out.extend_from_slice(&command.to_le_bytes());
        out.extend_from_slice(&0x0200u16.to_le_bytes());
        out.extend_from_slice(&(number as u32).to_le_bytes());
        out.extend_from_slice(&(record.bytes as u32).to_le_bytes());
        out.extend_from_slice(&1u32.to_le_bytes());
        out.extend_from_slice(&(record.offset / 512).to_le_bytes());
        out.extend_from_slice(&(number as u64 * 12).to_le_bytes());
        out.extend_from_slice(&100u64.to_le_bytes());
    }
    out
}

/// So many events of each request: queued, and others that do not count (G, I, D, C).
fn blktrace(events: &[u32]) -> Vec<u8> {
    let mut out = Vec::new();
    for ((number, record), event) in
        sample().enumerate().flat_map(|record| events.iter().map(move |event| (record, *event)))
    {
        let category: u32 = if record.op == Op::Read { 1 } else { 2 };
        out.extend_from_slice(&0x6561_7407u32.to_le_bytes());
        out.extend_from_slice(&(number as u32).to_le_bytes());
        out.extend_from_slice(&(number as u64 * 12_345).to_le_bytes());
        out.extend_from_slice(&(record.offset / 512).to_le_bytes());
        out.extend_from_slice(&(record.bytes as u32).to_le_bytes());
        out.extend_from_slice(&(category << 16 | event).to_le_bytes());
        out.extend_from_slice(&[0; 16]);
    }
    out
}

fn oracle() -> Vec<u8> {
    let mut out = Vec::new();
    for (number, record) in sample().enumerate() {
        out.extend_from_slice(&(number as u32 / 80_000).to_le_bytes());
        out.extend_from_slice(&(record.offset / 512).to_le_bytes());
        out.extend_from_slice(&(record.bytes as u32).to_le_bytes());
        out.extend_from_slice(&(-1i64).to_le_bytes());
    }
    out
}

fn csv(line: impl Fn(Record, u64) -> String) -> Vec<u8> {
    let lines = sample().enumerate().map(|(number, record)| line(record, number as u64 * 12));
    lines.collect::<String>().into_bytes()
}

/// A buffer that can be looked at while a writer has it.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("one thread").extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn written(make: impl FnOnce(Shared) -> Box<dyn RecordWriter>) -> Vec<u8> {
    let shared = Shared::default();
    let mut writer = make(shared.clone());
    for record in sample() {
        writer.record(&record).expect("memory");
    }
    writer.finish().expect("memory");
    shared.0.lock().expect("one thread").clone()
}

/// What `stat` takes beside reading.
fn summing() {
    let (mut stat, began) = (Stat::default(), processor_ns());
    sample().for_each(|record| stat.add(&Ok(record)));
    let pace = stat.records() as f64 / ((processor_ns() - began) as f64 / 1e9) / 1e6;
    println!("{:<32} {:<18} {pace:>7.2} M records/s", "summing up, without reading", "");
}

fn main() {
    let files: Vec<String> = std::env::args().skip(1).collect();
    for file in &files {
        pace(file.rsplit('/').next().unwrap_or(file), std::fs::read(file).expect("a file"));
    }
    if files.is_empty() {
        summing();
        pace("sample.bimetal", written(|out| Box::new(OwnWriter::new(out).expect("memory"))));
        pace("sample.blktrace", blktrace(&[1]));
        pace("sample.blktrace, 5 events each", blktrace(&[1, 4, 12, 7, 8]));
        pace("sample.vscsi1", vscsi1());
        pace("sample.vscsi2", vscsi2());
        pace("sample.oracleGeneral", oracle());
        pace(
            "sample.msr.csv",
            csv(|record, us| {
                let op = if record.op == Op::Read { "Read" } else { "Write" };
                format!("{us},web,0,{op},{},{},100\n", record.offset, record.bytes)
            }),
        );
        pace(
            "sample.alibaba.csv",
            csv(|record, us| {
                let op = if record.op == Op::Read { 'R' } else { 'W' };
                format!("7,{op},{},{},{us}\n", record.offset, record.bytes)
            }),
        );
        pace("sample.iolog3", written(|out| Box::new(Iolog3Writer::new(out).expect("memory"))));
    }
}
