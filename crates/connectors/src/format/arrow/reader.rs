//! Reading Arrow IPC files: columns are checked against the declaration once per file, and then any
//! record batch can be read.
//!
//! How many rows a batch has is known only when it is read, so errors name no row.

use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;

use arrow_array::RecordBatch;
use arrow_ipc::reader::{FileReader, read_footer_length};
use arrow_ipc::root_as_footer;
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
    /// Reads the footer. A record batch is read as a whole, so none may have more bytes than this.
    ///
    /// # Errors
    /// If it is damaged, a column is missing or of another type, or a batch is too large.
    pub fn open(
        mut input: impl Read + Seek,
        layout: &RecordLayout,
        batch_bytes_max: usize,
    ) -> Result<ArrowFile> {
        let reader = FileReader::try_new(&mut input, None).map_err(|e| damaged(&e))?;
        let columns = FileColumns::find(layout, reader.schema().fields())?;
        let batches = reader.num_batches();
        check_sizes(&mut input, batch_bytes_max)?;
        Ok(ArrowFile { columns, batches })
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

/// Fails if a record batch is larger than this, compressed if it is.
fn check_sizes(input: &mut (impl Read + Seek), bytes_max: usize) -> Result<()> {
    let footer = footer(input).map_err(|e| damaged(&e))?;
    let footer = root_as_footer(&footer);
    let footer = footer.map_err(|e| damaged(&ArrowError::ParseError(e.to_string())))?;
    for (number, block) in footer.recordBatches().into_iter().flatten().enumerate() {
        let bytes = usize::try_from(block.bodyLength()).unwrap_or(usize::MAX);
        if bytes > bytes_max {
            let (mib, max_mib) = (bytes >> 20, bytes_max >> 20);
            return Err(Error::resource(format!(
                "record batch {} has {mib} MiB, and {max_mib} MiB, an eighth of the memory limit, are the most",
                number + 1
            ))
            .hint("raise 'memory.limit', or write the file with smaller record batches"));
        }
    }
    Ok(())
}

/// The bytes of the footer.
fn footer(input: &mut (impl Read + Seek)) -> Result<Vec<u8>, ArrowError> {
    let mut end = [0; 10];
    input.seek(SeekFrom::End(-(end.len() as i64)))?;
    input.read_exact(&mut end)?;
    let length = read_footer_length(end)?;
    input.seek(SeekFrom::End(-((end.len() + length) as i64)))?;
    let mut footer = vec![0; length];
    input.read_exact(&mut footer)?;
    Ok(footer)
}

fn damaged(error: &ArrowError) -> Error {
    Error::data(format!("not a readable Arrow IPC file: {error}"))
        .hint("check that the file is complete, is no stream, and is not compressed with LZ4")
}
