//! Reading Arrow IPC files: columns are checked against the declaration once per file, and then any
//! record batch can be read.
//!
//! How many rows a batch has is known only when it is read, so errors name no row.

use std::io::{Read, Seek};
use std::ops::Range;

use arrow_array::RecordBatch;
use arrow_ipc::reader::FileReader;
use arrow_schema::ArrowError;
use thalweg_core::{Error, Result};

use crate::format::columns::FileColumns;
use crate::format::records::RecordLayout;

/// An Arrow IPC file whose footer was read and whose columns were checked. It keeps no handle.
pub struct ArrowFile {
    columns: FileColumns,
    batches: usize,
}

impl ArrowFile {
    /// Reads the footer.
    ///
    /// # Errors
    /// If it is damaged, or a column is missing or of another type.
    pub fn open(input: impl Read + Seek, layout: &RecordLayout) -> Result<ArrowFile> {
        let reader = FileReader::try_new(input, None).map_err(|e| damaged(&e))?;
        let columns = FileColumns::find(layout, reader.schema().fields())?;
        Ok(ArrowFile { columns, batches: reader.num_batches() })
    }

    /// How many record batches it has.
    pub fn batches(&self) -> usize {
        self.batches
    }

    /// Reads some of its record batches.
    ///
    /// # Errors
    /// If the input cannot be read; each batch has errors of its own.
    pub fn read<'f>(
        &'f self,
        input: impl Read + Seek + 'f,
        layout: &'f RecordLayout,
        batches: Range<usize>,
    ) -> Result<impl Iterator<Item = Result<RecordBatch>> + 'f> {
        let projection = Some(self.columns.in_file().to_vec());
        let mut reader = FileReader::try_new(input, projection).map_err(|e| damaged(&e))?;
        reader.set_index(batches.start).map_err(|e| damaged(&e))?;
        Ok(reader.take(batches.len()).map(|batch| {
            let batch = batch.map_err(|e| damaged(&e))?;
            self.columns.delivered(layout, &batch).map_err(|e| e.error)
        }))
    }
}

fn damaged(error: &ArrowError) -> Error {
    Error::data(format!("not a readable Arrow IPC file: {error}"))
        .hint("check that the file is complete, is no stream, and is not compressed with LZ4")
}
