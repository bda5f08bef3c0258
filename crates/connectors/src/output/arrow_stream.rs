//! Rows as a stream of Arrow: what programs read without parsing text.

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::Schema;
use thalweg_core::Result;

/// Batches with these columns as bytes: the schema, then each batch. There may be none.
///
/// # Errors
/// If a batch has other columns.
pub fn arrow_stream(schema: &Schema, batches: &[RecordBatch]) -> Result<Vec<u8>> {
    let mut writer = StreamWriter::try_new(Vec::new(), schema)?;
    for batch in batches {
        writer.write(batch)?;
    }
    Ok(writer.into_inner()?)
}
