//! Writing Parquet with Zstandard.

use std::io::Write;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use thalweg_core::{Error, Result};

/// Small enough that a file is read by several threads.
const ROW_GROUP_ROWS: usize = 256 << 10;

/// Writes batches to an output.
pub struct ParquetWriter<W: Write + Send> {
    writer: ArrowWriter<W>,
    schema: SchemaRef,
}

impl<W: Write + Send> ParquetWriter<W> {
    /// Starts an output with these columns.
    pub fn new(out: W, schema: SchemaRef) -> Result<Self> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
            .set_created_by("thalweg".to_string())
            .build();
        let writer = ArrowWriter::try_new(out, schema.clone(), Some(properties));
        Ok(ParquetWriter { writer: writer.map_err(failed)?, schema })
    }

    /// Adds rows.
    pub fn write(&mut self, columns: Vec<ArrayRef>) -> Result<()> {
        let batch = RecordBatch::try_new(self.schema.clone(), columns)?;
        self.writer.write(&batch).map_err(failed)
    }

    /// About how many bytes the output has.
    pub fn bytes(&self) -> u64 {
        (self.writer.bytes_written() + self.writer.in_progress_size()) as u64
    }

    /// Writes the footer and returns the output.
    pub fn finish(self) -> Result<W> {
        self.writer.into_inner().map_err(failed)
    }
}

fn failed(error: ParquetError) -> Error {
    Error::io(format!("cannot write Parquet: {error}"))
}
