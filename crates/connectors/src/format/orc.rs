//! Reading ORC: columns are checked against the declaration once per file, and then any stripe can
//! be read.
//!
//! The library checks little of what a damaged file says of itself: lengths are checked here, and
//! where it panics the file is called damaged.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::RecordBatch;
use bytes::Bytes;
use orc_rust::projection::ProjectionMask;
use orc_rust::reader::ChunkReader;
use orc_rust::schema::TimestampPrecision;
use orc_rust::{ArrowReader, ArrowReaderBuilder};
use thalweg_core::{DataType, Error, Result};

use super::bad_data::DecodeError;
use super::columns::FileColumns;
use super::records::RecordLayout;

/// An ORC file whose footer was read and whose columns were checked. It keeps no handle: each
/// stripe is read through one of its own, so that several threads can.
pub struct OrcFile {
    /// Where each stripe begins, and how many rows it has.
    stripes: Vec<(usize, u64)>,
    columns: FileColumns,
    precision: TimestampPrecision,
}

/// A file of which nothing is read that it does not have.
pub struct Input {
    file: File,
    length: u64,
}

impl Input {
    fn new(file: File) -> Result<Input> {
        let length = file.metadata().map_err(|e| Error::io(format!("cannot read: {e}")))?.len();
        Ok(Input { file, length })
    }
}

impl ChunkReader for Input {
    type T = BufReader<File>;

    fn len(&self) -> u64 {
        self.length
    }

    fn get_read(&self, offset: u64) -> io::Result<BufReader<File>> {
        let mut file = self.file.try_clone()?;
        file.seek(SeekFrom::Start(offset))?;
        Ok(BufReader::new(file))
    }

    fn get_bytes(&self, offset: u64, length: u64) -> io::Result<Bytes> {
        if offset.checked_add(length).is_none_or(|end| end > self.length) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut bytes = vec![0; length as usize];
        let mut file = &self.file;
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(&mut bytes)?;
        Ok(bytes.into())
    }
}

impl OrcFile {
    /// Reads the footer.
    ///
    /// # Errors
    /// If it is damaged, or a column is missing or of another type.
    pub fn open(file: File, layout: &RecordLayout) -> Result<OrcFile> {
        let input = Input::new(file)?;
        let precision = precision(layout);
        guarded(|| {
            let reader = ArrowReaderBuilder::try_new(input).map_err(|e| damaged(&e))?;
            let reader = reader.with_timestamp_precision(precision);
            let columns = FileColumns::find(layout, reader.schema().fields())?;
            let stripes = reader.file_metadata().stripe_metadatas().iter();
            let stripes = stripes.map(|stripe| (stripe.offset() as usize, stripe.number_of_rows()));
            Ok(OrcFile { stripes: stripes.collect(), columns, precision })
        })
    }

    /// How many rows a stripe has; `None` behind the last one.
    pub fn group_rows(&self, stripe: usize) -> Option<u64> {
        self.stripes.get(stripe).map(|(_, rows)| *rows)
    }

    /// Reads the rows of a stripe behind its first `passed` ones.
    ///
    /// # Errors
    /// If the input cannot be read.
    pub fn read_group<'f>(
        &'f self,
        file: File,
        layout: &'f RecordLayout,
        stripe: usize,
        passed: u64,
        batch_rows: usize,
    ) -> Result<StripeBatches<'f>> {
        let input = Input::new(file)?;
        let begin = self.stripes.get(stripe).map_or(0, |(offset, _)| *offset);
        guarded(|| {
            let reader = ArrowReaderBuilder::try_new(input).map_err(|e| damaged(&e))?;
            let root = reader.file_metadata().root_data_type();
            let children = self.columns.in_file().iter().filter_map(|&at| root.children().get(at));
            let indices = children.map(|child| child.data_type().column_index());
            let projection = ProjectionMask::roots(root, indices.collect::<Vec<_>>());
            let reader = reader
                .with_timestamp_precision(self.precision)
                .with_projection(projection)
                .with_batch_size(batch_rows)
                .with_file_byte_range(begin..begin.saturating_add(1));
            Ok(StripeBatches { reader: reader.build(), file: self, layout, row: 0, passed })
        })
    }
}

/// ORC counts nanoseconds, which do not reach far from 1970 in Arrow: where fewer digits are
/// declared, microseconds do.
fn precision(layout: &RecordLayout) -> TimestampPrecision {
    let has_nanoseconds = layout.schema.columns.iter().any(|column| {
        matches!(
            column.column_type.data_type,
            DataType::Timestamp(7..) | DataType::TimestampLtz(7..)
        )
    });
    match has_nanoseconds {
        true => TimestampPrecision::Nanosecond,
        false => TimestampPrecision::Microsecond,
    }
}

/// The batches of a stripe. Errors have the row in the stripe, from 0.
pub struct StripeBatches<'f> {
    reader: ArrowReader<Input>,
    file: &'f OrcFile,
    layout: &'f RecordLayout,
    row: u64,
    /// Rows that were delivered before. They are decoded again.
    passed: u64,
}

impl Iterator for StripeBatches<'_> {
    type Item = Result<RecordBatch, DecodeError>;
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let reader = &mut self.reader;
            let read = guarded(|| reader.next().transpose().map_err(|e| damaged(&e)));
            let mut batch = match read {
                Ok(batch) => batch?,
                Err(error) => return Some(Err(error.into())),
            };
            let (mut first_row, rows) = (self.row, batch.num_rows());
            self.row += rows as u64;
            if self.row <= self.passed {
                continue;
            }
            let before = self.passed.saturating_sub(first_row) as usize;
            if before > 0 {
                first_row += before as u64;
                batch = batch.slice(before, rows - before);
            }
            let delivered = self.file.columns.delivered(self.layout, &batch);
            return Some(delivered.map_err(|error| DecodeError {
                number: error.number.map(|row| first_row + row),
                ..error
            }));
        }
    }
}

/// What the library does; where it panics, the file is damaged.
fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(damaged(&"it is inconsistent")))
}

fn damaged(error: &dyn std::fmt::Display) -> Error {
    Error::data(format!("not a readable ORC file: {error}")).hint(
        "check that the file is complete and that 'format' is right; times with nanoseconds are \
         read as TIMESTAMP(9)",
    )
}
