//! Reading Arrow IPC files: columns are checked against the declaration once per file, and then any
//! record batch can be read.
//!
//! How many rows a batch has is known only when it is read, so errors name no row.

use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;

use arrow_array::RecordBatch;
use arrow_ipc::reader::{FileReader, read_footer_length};
use arrow_ipc::{Block, root_as_footer, root_as_message};
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
        let columns = FileColumns::find(layout, reader.schema().fields(), "file")?;
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

/// Fails if a record batch is larger than this, decompressed where it is compressed.
fn check_sizes(input: &mut (impl Read + Seek), bytes_max: usize) -> Result<()> {
    let footer = footer(input).map_err(|e| damaged(&e))?;
    let footer = root_as_footer(&footer);
    let footer = footer.map_err(|e| damaged(&ArrowError::ParseError(e.to_string())))?;
    for (number, block) in footer.recordBatches().into_iter().flatten().enumerate() {
        let bytes = batch_bytes(input, block).map_err(|e| damaged(&e))?;
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

/// How many bytes the buffers of a record batch have. Each that is compressed says so in its first
/// eight bytes, where -1 stands for one that is stored as it is.
fn batch_bytes(input: &mut (impl Read + Seek), block: &Block) -> Result<usize, ArrowError> {
    const LENGTH_BYTES: i64 = 8;
    let stored = usize::try_from(block.bodyLength()).unwrap_or(usize::MAX);
    let metadata_bytes = i64::from(block.metaDataLength());
    let mut metadata = Vec::new();
    input.seek(SeekFrom::Start(block.offset() as u64))?;
    input.by_ref().take(metadata_bytes as u64).read_to_end(&mut metadata)?;
    // The length of the message, since version 0.15 of the format behind a mark.
    let message = metadata.get(if metadata.starts_with(&[0xFF; 4]) { 8 } else { 4 }..);
    let message = root_as_message(message.unwrap_or_default());
    let message = message.map_err(|e| ArrowError::ParseError(e.to_string()))?;
    let batch = message.header_as_record_batch().filter(|batch| batch.compression().is_some());
    let Some(batch) = batch else { return Ok(stored) };
    let body = block.offset().saturating_add(metadata_bytes);
    let mut bytes = 0usize;
    for buffer in batch.buffers().into_iter().flatten().filter(|b| b.length() >= LENGTH_BYTES) {
        let mut length = [0; LENGTH_BYTES as usize];
        input.seek(SeekFrom::Start(body.saturating_add(buffer.offset()) as u64))?;
        input.read_exact(&mut length)?;
        let length = match i64::from_le_bytes(length) {
            -1 => buffer.length() - LENGTH_BYTES,
            length => length,
        };
        bytes = bytes.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
    }
    Ok(bytes)
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
