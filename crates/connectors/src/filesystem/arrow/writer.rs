//! Writing Arrow IPC files, not compressed: whoever reads them can map them.

use std::io::BufWriter;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, SchemaRef};
use thalweg_core::{Error, Result};

use crate::filesystem::files::OutFile;

/// Bytes gathered before they are written.
const BUFFER_BYTES: usize = 256 << 10;

/// Writes batches to a file.
pub struct ArrowWriter {
    writer: FileWriter<BufWriter<Box<dyn OutFile>>>,
    schema: SchemaRef,
    bytes: u64,
}

impl ArrowWriter {
    /// Starts a file with these columns.
    pub fn new(file: Box<dyn OutFile>, schema: SchemaRef) -> Result<Self> {
        let file = BufWriter::with_capacity(BUFFER_BYTES, file);
        let writer = FileWriter::try_new(file, &schema).map_err(failed)?;
        Ok(ArrowWriter { writer, schema, bytes: 0 })
    }

    /// Adds rows.
    pub fn write(&mut self, columns: Vec<ArrayRef>) -> Result<()> {
        let batch = RecordBatch::try_new(self.schema.clone(), columns)?;
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.bytes +=
            batch.columns().iter().map(|c| c.get_buffer_memory_size() as u64).sum::<u64>();
        self.writer.write(&batch).map_err(failed)
    }

    /// About how many bytes the file has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes the footer and returns the file.
    pub fn finish(self) -> Result<Box<dyn OutFile>> {
        let file = self.writer.into_inner().map_err(failed)?;
        file.into_inner().map_err(|e| failed(ArrowError::from(e.into_error())))
    }
}

fn failed(error: ArrowError) -> Error {
    Error::io(format!("cannot write Arrow: {error}"))
}
