//! Writing Arrow IPC files, not compressed, so that readers can map them.

use std::io::{BufWriter, Write};

use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, SchemaRef};
use thalweg_core::{Error, Result};

/// Bytes gathered before they are written.
const BUFFER_BYTES: usize = 256 << 10;

/// Writes batches to an output.
pub struct ArrowWriter<W: Write> {
    writer: FileWriter<BufWriter<W>>,
    schema: SchemaRef,
    bytes: u64,
}

impl<W: Write> ArrowWriter<W> {
    /// Starts an output with these columns.
    pub fn new(out: W, schema: SchemaRef) -> Result<Self> {
        let out = BufWriter::with_capacity(BUFFER_BYTES, out);
        let writer = FileWriter::try_new(out, &schema).map_err(failed)?;
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

    /// About how many bytes the output has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes the footer and returns the output.
    pub fn finish(self) -> Result<W> {
        let out = self.writer.into_inner().map_err(failed)?;
        out.into_inner().map_err(|e| failed(ArrowError::from(e.into_error())))
    }
}

fn failed(error: ArrowError) -> Error {
    Error::io(format!("cannot write Arrow: {error}"))
}
