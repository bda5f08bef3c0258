//! Reading streams of Arrow IPC that are in memory whole.

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::root_as_message;
use arrow_schema::ArrowError;
use arrow_select::concat::concat_batches;
use thalweg_core::{Error, Result};

use crate::format::bad_data::DecodeError;
use crate::format::columns::FileColumns;
use crate::format::records::RecordLayout;
use crate::panics::caught;

/// Rows of a stream at most: columns that are left out could promise any number.
const ROWS_MAX: usize = 4_000_000;

/// All rows of a stream, as the layout delivers them. Columns are found by name; the stream may
/// have others.
///
/// # Errors
/// If it is damaged or compressed, a column is missing or of another type, or a value does not fit
/// its declaration; with the row of the stream, from 0, where it is known.
pub fn read_stream(bytes: &[u8], layout: &RecordLayout) -> Result<RecordBatch, DecodeError> {
    refuse_compressed(bytes)?;
    // The library panics over types that it does not know.
    caught(|| Ok(read(bytes, layout)), cut_off)?
}

fn read(bytes: &[u8], layout: &RecordLayout) -> Result<RecordBatch, DecodeError> {
    let reader = StreamReader::try_new(bytes, None).map_err(|e| damaged(&e))?;
    let columns = FileColumns::find(layout, reader.schema().fields(), "stream")?;
    let projection = Some(columns.in_file().to_vec());
    let reader = StreamReader::try_new(bytes, projection).map_err(|e| damaged(&e))?;
    let (mut batches, mut rows) = (Vec::new(), 0);
    for batch in reader {
        let batch = batch.map_err(|e| damaged(&e))?;
        let of_stream = |error: DecodeError| DecodeError {
            number: error.number.map(|row| row + rows as u64),
            ..error
        };
        batches.push(columns.delivered(layout, &batch).map_err(of_stream)?);
        rows = batch.num_rows().saturating_add(rows);
        if rows > ROWS_MAX {
            let message = format!("the stream has more than {ROWS_MAX} rows");
            return Err(Error::data(message).hint("send fewer rows").into());
        }
    }
    Ok(concat_batches(&layout.delivered(), &batches).map_err(Error::from)?)
}

/// Fails if buffers are compressed: a small stream could become a very large one.
fn refuse_compressed(mut rest: &[u8]) -> Result<()> {
    while let Some(metadata) = next_metadata(&mut rest)? {
        let message = root_as_message(metadata).map_err(|e| cut_off(&e.to_string()))?;
        let batch = message.header_as_record_batch();
        let batch = batch.or_else(|| message.header_as_dictionary_batch()?.data());
        if batch.is_some_and(|batch| batch.compression().is_some()) {
            return Err(Error::data("the stream is compressed").hint("send it uncompressed"));
        }
        let body = usize::try_from(message.bodyLength()).unwrap_or(usize::MAX);
        rest = rest.get(body..).ok_or_else(|| cut_off("it ends within a message"))?;
    }
    Ok(())
}

/// The metadata of the next message, whose length stands in front of it, since version 0.15 of the
/// format behind a mark; `None` at the end.
fn next_metadata<'s>(rest: &mut &'s [u8]) -> Result<Option<&'s [u8]>> {
    const MARK: [u8; 4] = [0xFF; 4];
    *rest = rest.strip_prefix(&MARK).unwrap_or(rest);
    let Some((length, behind)) = rest.split_first_chunk::<4>() else { return Ok(None) };
    let length = usize::try_from(i32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    if length == 0 {
        return Ok(None);
    }
    let metadata = behind.get(..length).ok_or_else(|| cut_off("it ends within a message"))?;
    *rest = &behind[length..];
    Ok(Some(metadata))
}

fn damaged(error: &ArrowError) -> Error {
    cut_off(&error.to_string())
}

fn cut_off(why: &str) -> Error {
    Error::data(format!("not a readable stream of Arrow IPC: {why}"))
        .hint("send a stream, as `new_stream` of pyarrow writes it, and no file")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int32Array, Int64Array, StringArray};
    use arrow_ipc::CompressionType;
    use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
    use thalweg_core::{Column, DataType, TableSchema};

    use super::*;

    fn layout(data_type: DataType) -> RecordLayout {
        let schema = TableSchema::new(vec![Column::new("n", data_type.not_null())]);
        RecordLayout::new("t", schema, vec![0], false)
    }

    fn stream(batches: &[RecordBatch], compression: Option<CompressionType>) -> Vec<u8> {
        let options = IpcWriteOptions::default().try_with_compression(compression);
        let (schema, options) = (batches[0].schema(), options.expect("options"));
        let writer = StreamWriter::try_new_with_options(Vec::new(), &schema, options);
        let mut writer = writer.expect("a stream");
        batches.iter().for_each(|batch| writer.write(batch).expect("written"));
        writer.into_inner().expect("written")
    }

    fn batch(numbers: &[Option<i32>]) -> RecordBatch {
        let n: ArrayRef = Arc::new(Int32Array::from(numbers.to_vec()));
        let other: ArrayRef = Arc::new(StringArray::from(vec!["x"; numbers.len()]));
        RecordBatch::try_from_iter_with_nullable([("other", other, true), ("n", n, true)])
            .expect("two columns")
    }

    #[test]
    fn columns_are_found_by_name_and_widened() {
        let bytes = stream(&[batch(&[Some(1), Some(2)]), batch(&[]), batch(&[Some(3)])], None);
        let read = read_stream(&bytes, &layout(DataType::BigInt)).expect("rows");
        let expected: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        assert_eq!(read.column(0), &expected);
    }

    #[test]
    fn a_bad_value_is_named_by_its_row_of_the_stream() {
        let bytes = stream(&[batch(&[Some(1), Some(2)]), batch(&[Some(3), None])], None);
        let error = read_stream(&bytes, &layout(DataType::BigInt)).expect_err("a NULL");
        assert_eq!(error.number, Some(3));
        let error = read_stream(&bytes, &layout(DataType::STRING)).expect_err("no text");
        assert!(error.error.message().contains("column n is INT in the stream"), "{error:?}");
    }

    #[test]
    fn what_is_compressed_or_damaged_is_refused_without_a_panic() {
        let good = [batch(&[Some(1), Some(2)]), batch(&[Some(3)])];
        let zipped = stream(&good, Some(CompressionType::ZSTD));
        let layout = layout(DataType::BigInt);
        let error = read_stream(&zipped, &layout).expect_err("compressed");
        assert!(error.error.message().contains("compressed"), "{error:?}");
        let bytes = stream(&good, None);
        for length in 0..bytes.len() {
            let _ = read_stream(&bytes[..length], &layout);
            let mut damaged = bytes.clone();
            damaged[length] ^= 0x55;
            let _ = read_stream(&damaged, &layout);
        }
    }
}
