//! Rows as Arrow IPC files (LZ4), and back.
//!
//! A [`TableWriter`] takes batches of any size and hands out finished files: small batches are
//! joined to about [`BATCH_ROWS`], large ones cut, what they share with others is left behind, and
//! a new file begins where one has come to [`FILE_BYTES`]. So in memory are one file, one batch,
//! and what the caller holds.

use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMillisecondType};
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_ipc::CompressionType;
use arrow_ipc::reader::FileReader;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use arrow_select::coalesce::BatchCoalescer;
use bytes::Bytes;
use thalweg_core::{Error, Result};

use super::check;

/// Rows of a batch in a file.
const BATCH_ROWS: usize = 32 * 1024;
/// A file that has come so far gets no further batch.
const FILE_BYTES: usize = 64 * 1024 * 1024;

/// A file that is finished.
pub(crate) struct TableFile {
    /// All of it.
    pub bytes: Bytes,
    /// How many rows it holds.
    pub rows: u64,
    /// Where rows expire: the highest value of the second column.
    pub highest: Option<i64>,
}

/// Makes files of the rows of a table.
pub(crate) struct TableWriter {
    schema: SchemaRef,
    joiner: BatchCoalescer,
    open: Option<OpenFile>,
    file_bytes: usize,
    /// The second column says when rows expire.
    expires: bool,
}

/// The file that is being written.
struct OpenFile {
    writer: FileWriter<Vec<u8>>,
    rows: u64,
    highest: Option<i64>,
}

impl TableWriter {
    /// A writer of files with this schema.
    pub fn new(schema: SchemaRef) -> Self {
        Self::with_file_bytes(schema, FILE_BYTES)
    }

    fn with_file_bytes(schema: SchemaRef, file_bytes: usize) -> Self {
        let joiner = BatchCoalescer::new(schema.clone(), BATCH_ROWS);
        TableWriter { schema, joiner, open: None, file_bytes, expires: false }
    }

    /// Notes of each file when the last of its rows expires.
    pub fn expiring(self, expires: bool) -> Self {
        TableWriter { expires, ..self }
    }

    /// Adds rows. Gives files that are full to `take`.
    ///
    /// # Errors
    /// If the rows are not of the schema, and those of `take`.
    pub fn write(
        &mut self,
        batch: &RecordBatch,
        take: &mut dyn FnMut(TableFile) -> Result<()>,
    ) -> Result<()> {
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let schema = self.schema.clone();
        // The very schema: what differs in names or metadata only is the same to us.
        let own = RecordBatch::try_new_with_options(schema, batch.columns().to_vec(), &options);
        let own = own.map_err(|error| Error::internal(format!("rows of state: {error}")))?;
        self.joiner.push_batch(own)?;
        self.write_joined(take)
    }

    /// Gives the last file to `take`, if there is one.
    ///
    /// # Errors
    /// As [`TableWriter::write`].
    pub fn finish(mut self, take: &mut dyn FnMut(TableFile) -> Result<()>) -> Result<()> {
        self.joiner.finish_buffered_batch()?;
        self.write_joined(take)?;
        self.close(take)
    }

    fn write_joined(&mut self, take: &mut dyn FnMut(TableFile) -> Result<()>) -> Result<()> {
        while let Some(batch) = self.joiner.next_completed_batch() {
            let open = match &mut self.open {
                Some(open) => open,
                none => {
                    let writer = new_file(&self.schema)?;
                    none.insert(OpenFile { writer, rows: 0, highest: None })
                }
            };
            open.writer.write(&batch)?;
            open.rows += batch.num_rows() as u64;
            if self.expires {
                open.highest = open.highest.max(times(&batch)?.iter().max().copied());
            }
            let written = open.writer.get_ref().len();
            // The workers of the job may wait for the core.
            std::thread::yield_now();
            if written >= self.file_bytes {
                self.close(take)?;
            }
        }
        Ok(())
    }

    fn close(&mut self, take: &mut dyn FnMut(TableFile) -> Result<()>) -> Result<()> {
        let Some(OpenFile { mut writer, rows, highest }) = self.open.take() else {
            return Ok(());
        };
        writer.finish()?;
        take(TableFile { bytes: writer.into_inner()?.into(), rows, highest })
    }
}

/// When rows expire: the values of the second column.
///
/// # Errors
/// If there is no such column of INT64, or of timestamps in milliseconds, without NULLs.
pub(crate) fn times(batch: &RecordBatch) -> Result<&[i64]> {
    let column = batch.columns().get(1).filter(|column| column.null_count() == 0);
    let numbers = || Some(column?.as_primitive_opt::<Int64Type>()?.values());
    let instants = || Some(column?.as_primitive_opt::<TimestampMillisecondType>()?.values());
    numbers().or_else(instants).map(|times| &times[..]).ok_or_else(|| {
        Error::data("rows of a table do not say when they expire")
            .hint("the snapshot was written by something else; use an older one")
    })
}

fn new_file(schema: &Schema) -> Result<FileWriter<Vec<u8>>> {
    let options =
        IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME))?;
    Ok(FileWriter::try_new_with_options(Vec::new(), schema, options)?)
}

/// The rows of a file; of the first `columns` columns only, if so wanted.
///
/// # Errors
/// If it is no such file. Its checksum was compared before, so that it is what was written.
pub(crate) fn decode(bytes: &[u8], columns: Option<usize>) -> Result<Vec<RecordBatch>> {
    let projection = columns.map(|count| (0..count).collect());
    let read = || -> Result<Vec<RecordBatch>, ArrowError> {
        FileReader::try_new(Cursor::new(bytes), projection)?.collect()
    };
    let no_file = |why: String| Error::data(format!("it is no Arrow file that can be read: {why}"));
    check::lengths(bytes).map_err(no_file)?;
    // The reader trusts offsets that a file names; one made by hand could lead it astray.
    let read = catch_unwind(AssertUnwindSafe(read));
    match read {
        Ok(Ok(batches)) => Ok(batches),
        Ok(Err(error)) => Err(no_file(error.to_string())),
        Err(_) => Err(no_file("its parts do not fit together".to_owned())),
    }
}

/// The columns that identify a row.
///
/// # Errors
/// If there are fewer columns.
pub(crate) fn identity_schema(schema: &Schema, columns: usize) -> Result<SchemaRef> {
    let identity: Vec<usize> = (0..columns).collect();
    Ok(Arc::new(schema.project(&identity)?))
}

/// Name and type of each column.
pub(crate) fn column_texts(schema: &Schema) -> Vec<String> {
    let text = |field: &arrow_schema::FieldRef| format!("{} {}", field.name(), field.data_type());
    schema.fields().iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{
        ArrayRef, Int64Array, StringViewArray, TimestampMillisecondArray, TimestampSecondArray,
    };
    use arrow_schema::{DataType, Field};

    fn batch(from: i64, rows: i64) -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(from..from + rows));
        let text = |n: i64| format!("a text that is longer than twelve bytes: {n}");
        let texts = StringViewArray::from_iter_values((from..from + rows).map(text));
        let fields = vec![
            Field::new("n", DataType::Int64, true),
            Field::new("text", DataType::Utf8View, true),
        ];
        let schema = Arc::new(Schema::new(fields));
        RecordBatch::try_new(schema, vec![numbers, Arc::new(texts)]).expect("two columns")
    }

    fn files(batches: &[RecordBatch], file_bytes: usize) -> Vec<TableFile> {
        let mut writer = TableWriter::with_file_bytes(batches[0].schema(), file_bytes);
        let mut files = Vec::new();
        let mut take = |file| {
            files.push(file);
            Ok(())
        };
        for batch in batches {
            writer.write(batch, &mut take).expect("written");
        }
        writer.finish(&mut take).expect("finished");
        files
    }

    #[test]
    fn rows_come_back_in_order_whatever_batches_and_files_they_were_in() {
        let all = batch(0, 100_000);
        let parts = [all.slice(0, 1), all.slice(1, 70), all.slice(71, 99_929)];
        for file_bytes in [1, 1 << 20, FILE_BYTES] {
            let files = files(&parts, file_bytes);
            assert_eq!(files.len() > 1, file_bytes < FILE_BYTES, "{file_bytes}");
            assert_eq!(files.iter().map(|file| file.rows).sum::<u64>(), 100_000);
            let batches: Vec<_> =
                files.iter().flat_map(|file| decode(&file.bytes, None).expect("read")).collect();
            let read = arrow_select::concat::concat_batches(&all.schema(), &batches).expect("one");
            assert_eq!(read, all);
        }
    }

    #[test]
    fn a_slice_does_not_take_along_what_it_was_cut_from() {
        let small = files(&[batch(0, 100_000).slice(5, 10)], FILE_BYTES);
        assert!(small[0].bytes.len() < 4096, "{}", small[0].bytes.len());
        let identity = decode(&small[0].bytes, Some(1)).expect("read");
        assert_eq!(identity[0].num_columns(), 1);
        assert_eq!(identity[0].column(0).as_primitive::<Int64Type>().value(0), 5);
    }

    #[test]
    fn the_time_of_a_row_may_be_a_timestamp() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![0, 1]));
        let instants: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![7, 9]));
        let named = |time: &ArrayRef| vec![("n", Arc::clone(&numbers)), ("time", Arc::clone(time))];
        let batch = |columns| RecordBatch::try_from_iter(columns).expect("two columns");
        let rows = batch(named(&instants));
        let mut writer = TableWriter::new(rows.schema()).expiring(true);
        let mut highest = Vec::new();
        let mut take = |file: TableFile| {
            highest.push(file.highest);
            Ok(())
        };
        writer.write(&rows, &mut take).expect("written");
        writer.finish(&mut take).expect("finished");
        assert_eq!(highest, [Some(9)]);
        assert_eq!(times(&batch(named(&numbers))).expect("numbers"), [0, 1]);
        let with_null: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![Some(7), None]));
        assert!(times(&batch(named(&with_null))).is_err());
        let seconds: ArrayRef = Arc::new(TimestampSecondArray::from(vec![7, 9]));
        assert!(times(&batch(named(&seconds))).is_err());
    }

    #[test]
    fn what_is_no_file_is_an_error() {
        let file = files(&[batch(0, 1000)], FILE_BYTES).remove(0).bytes;
        for length in [0, 5, 11, file.len() / 2, file.len() - 1] {
            assert!(decode(&file.slice(..length), None).is_err(), "{length}");
        }
        let backwards: Vec<u8> = file.iter().rev().copied().collect();
        assert!(decode(&backwards, None).is_err());
    }
}
