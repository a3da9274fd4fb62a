//! What is written as Parquet is read again, by the crate's own reader.
#![cfg(feature = "parquet")]

mod common;

use bimetal_trace::{Marks, Op, ParquetWriter, Record, RecordWriter as _};
use bimetal_units::Nanos;
use common::{Shared, mixture, record, timeless};
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::{Field, Row};

fn written(records: &[Record], lost: u64) -> SerializedFileReader<bytes::Bytes> {
    let shared = Shared::default();
    let mut writer = Box::new(ParquetWriter::new(shared.clone()).expect("memory"));
    for record in records {
        writer.record(record).expect("memory");
    }
    writer.lost(lost);
    writer.finish().expect("memory");
    let bytes = shared.0.lock().expect("one thread").clone();
    SerializedFileReader::new(bytes::Bytes::from(bytes)).expect("Parquet")
}

fn rows(reader: &SerializedFileReader<bytes::Bytes>) -> Vec<Record> {
    reader.get_row_iter(None).expect("rows").map(|row| back(&row.expect("a row"))).collect()
}

fn back(row: &Row) -> Record {
    let fields: Vec<(&String, &Field)> = row.get_column_iter().collect();
    let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["time_ns", "op", "offset_bytes", "length_bytes", "device", "response_ns", "fua"]);
    let number = |place: usize| match fields[place].1 {
        Field::Null => None,
        Field::Long(value) => Some(*value as u64),
        Field::UInt(value) => Some(u64::from(*value)),
        other => panic!("{other:?}"),
    };
    let (op, zeroes) = match fields[1].1 {
        Field::Str(op) => match op.as_str() {
            "read" => (Op::Read, false),
            "write" => (Op::Write, false),
            "flush" => (Op::Flush, false),
            "discard" => (Op::Discard, false),
            "write-zeroes" => (Op::Write, true),
            other => panic!("{other}"),
        },
        other => panic!("{other:?}"),
    };
    Record {
        time: number(0).map(Nanos),
        op,
        offset: number(2).expect("required"),
        bytes: number(3).expect("required"),
        device: number(4).expect("required") as u32,
        response: number(5).map(Nanos),
        marks: Marks { fua: *fields[6].1 == Field::Bool(true), zeroes },
    }
}

#[test]
fn every_record_comes_back() {
    let mut records = mixture();
    records.push(timeless(Op::Read, 512, 4096));
    records[0].device = u32::MAX;
    let reader = written(&records, 0);
    assert_eq!(rows(&reader), records);
    assert_eq!(reader.metadata().file_metadata().num_rows(), records.len() as i64);
}

#[test]
fn what_was_lost_is_said_and_nothing_is_a_file_too() {
    let reader = written(&[], 77);
    assert!(rows(&reader).is_empty());
    let said = reader.metadata().file_metadata().key_value_metadata().expect("some");
    assert!(said.iter().any(|pair| pair.key == "bimetal.lost" && pair.value.as_deref() == Some("77")));
}

#[test]
fn more_than_one_group_of_rows_is_written() {
    let records: Vec<Record> = (0..300_000u64)
        .map(|number| record(number * 1000, Op::Read, number * 7919 % 65_536 * 512, 512))
        .collect();
    let reader = written(&records, 0);
    assert_eq!(reader.num_row_groups(), 3);
    assert_eq!(rows(&reader), records);
}
