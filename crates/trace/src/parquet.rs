//! Writes Apache Parquet, for DuckDB, pandas and others: one row for each record.

use crate::write::RecordWriter;
use crate::{Op, Record};
use ::parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical};
use ::parquet::column::writer::ColumnWriter;
use ::parquet::data_type::ByteArray;
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use ::parquet::schema::types::{ColumnPath, Type};
use std::io::{self, Write};
use std::sync::Arc;

/// Rows that are written together, and held in memory until then: about 6 MiB.
const ROWS: usize = 1 << 17;
/// Where the file says how many requests were lost when it was recorded.
const LOST_KEY: &str = "bimetal.lost";
/// Names of operations, in the order of [`Op`]; then that of a write of zeros.
const OPS: [&str; 5] = ["read", "write", "flush", "discard", "write-zeroes"];

/// Writes Parquet with the columns `time_ns`, `op`, `offset_bytes`, `length_bytes`, `device`, `response_ns` and `fua`.
/// Times and responses that are not known are null.
pub struct ParquetWriter<W: Write + Send> {
    file: SerializedFileWriter<W>,
    ops: [ByteArray; 5],
    rows: Rows,
    lost: u64,
}

/// The columns of the rows that are not written yet.
#[derive(Default)]
struct Rows {
    times: Perhaps,
    ops: Vec<ByteArray>,
    offsets: Vec<i64>,
    lengths: Vec<i64>,
    devices: Vec<i32>,
    responses: Perhaps,
    fuas: Vec<bool>,
}

/// Values of which some are null: those that are not, and for each row whether it has one.
#[derive(Default)]
struct Perhaps {
    values: Vec<i64>,
    there: Vec<i16>,
}

impl Perhaps {
    fn push(&mut self, value: Option<u64>) {
        // 292 years of nanoseconds are enough.
        self.values.extend(value.map(|value| i64::try_from(value).unwrap_or(i64::MAX)));
        self.there.push(i16::from(value.is_some()));
    }
}

fn failed(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(cause) => match cause.downcast::<io::Error>() {
            Ok(cause) => *cause,
            Err(cause) => io::Error::other(cause),
        },
        error => io::Error::other(error),
    }
}

fn schema() -> Result<Type, ParquetError> {
    let column = |name: &str, physical, repetition, logical| {
        let builder = Type::primitive_type_builder(name, physical).with_repetition(repetition);
        builder.with_logical_type(logical).build().map(Arc::new)
    };
    let number = |bits| Some(LogicalType::integer(bits, false));
    let fields = vec![
        column("time_ns", Physical::INT64, Repetition::OPTIONAL, None)?,
        column("op", Physical::BYTE_ARRAY, Repetition::REQUIRED, Some(LogicalType::String))?,
        column("offset_bytes", Physical::INT64, Repetition::REQUIRED, None)?,
        column("length_bytes", Physical::INT64, Repetition::REQUIRED, None)?,
        column("device", Physical::INT32, Repetition::REQUIRED, number(32))?,
        column("response_ns", Physical::INT64, Repetition::OPTIONAL, None)?,
        column("fua", Physical::BOOLEAN, Repetition::REQUIRED, None)?,
    ];
    Type::group_type_builder("trace").with_fields(fields).build()
}

impl<W: Write + Send> ParquetWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn new(out: W) -> io::Result<ParquetWriter<W>> {
        let mut properties = WriterProperties::builder().set_compression(Compression::UNCOMPRESSED);
        for column in ["time_ns", "offset_bytes", "response_ns"] {
            // Neighbours differ by little, or are hardly ever equal: a dictionary would only cost time.
            let column = ColumnPath::from(column);
            properties = properties
                .set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
        }
        let file =
            SerializedFileWriter::new(out, Arc::new(schema().map_err(failed)?), Arc::new(properties.build()));
        Ok(ParquetWriter {
            file: file.map_err(failed)?,
            ops: OPS.map(ByteArray::from),
            rows: Rows::default(),
            lost: 0,
        })
    }

    fn write_rows(&mut self) -> Result<(), ParquetError> {
        let rows = std::mem::take(&mut self.rows);
        if rows.ops.is_empty() {
            return Ok(());
        }
        let mut group = self.file.next_row_group()?;
        let mut column = 0;
        while let Some(mut writer) = group.next_column()? {
            rows.write(column, &mut writer)?;
            writer.close()?;
            column += 1;
        }
        group.close()?;
        Ok(())
    }
}

impl Rows {
    /// Writes one of the columns, which come in the order of the schema.
    fn write(&self, column: usize, writer: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        match (column, writer.untyped()) {
            (0, ColumnWriter::Int64ColumnWriter(writer)) => {
                writer.write_batch(&self.times.values, Some(&self.times.there), None)?
            }
            (1, ColumnWriter::ByteArrayColumnWriter(writer)) => writer.write_batch(&self.ops, None, None)?,
            (2, ColumnWriter::Int64ColumnWriter(writer)) => writer.write_batch(&self.offsets, None, None)?,
            (3, ColumnWriter::Int64ColumnWriter(writer)) => writer.write_batch(&self.lengths, None, None)?,
            (4, ColumnWriter::Int32ColumnWriter(writer)) => writer.write_batch(&self.devices, None, None)?,
            (5, ColumnWriter::Int64ColumnWriter(writer)) => {
                writer.write_batch(&self.responses.values, Some(&self.responses.there), None)?
            }
            (_, ColumnWriter::BoolColumnWriter(writer)) => writer.write_batch(&self.fuas, None, None)?,
            _ => return Err(ParquetError::General("a column of another type".to_owned())),
        };
        Ok(())
    }
}

impl<W: Write + Send> RecordWriter for ParquetWriter<W> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        let rows = &mut self.rows;
        rows.times.push(record.time.map(|time| time.0));
        let op = match record.op {
            Op::Write if record.marks.zeroes => 4,
            op => op as usize,
        };
        rows.ops.push(self.ops[op].clone());
        // Offset and length together fit in 63 bits.
        rows.offsets.push(record.offset as i64);
        rows.lengths.push(record.bytes as i64);
        rows.devices.push(record.device as i32);
        rows.responses.push(record.response.map(|response| response.0));
        rows.fuas.push(record.marks.fua);
        if rows.ops.len() == ROWS { self.write_rows().map_err(failed) } else { Ok(()) }
    }

    fn lost(&mut self, requests: u64) {
        self.lost = requests;
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.write_rows().map_err(failed)?;
        if self.lost > 0 {
            let lost = KeyValue::new(LOST_KEY.to_owned(), self.lost.to_string());
            self.file.append_key_value_metadata(lost);
        }
        self.file.into_inner().map_err(failed)?.flush()
    }
}
