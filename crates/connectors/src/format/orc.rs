//! Reading ORC: columns are checked against the declaration once per file, and then any stripe can
//! be read.
//!
//! The library checks little of what a damaged file says of itself: lengths are checked here, and
//! where it panics the file is called damaged.

use std::io;

use arrow_array::RecordBatch;
use bytes::Bytes;
use orc_rust::projection::ProjectionMask;
use orc_rust::reader::ChunkReader;
use orc_rust::schema::TimestampPrecision;
use orc_rust::{ArrowReader, ArrowReaderBuilder};
use parquet::file::reader::ChunkReader as FileReader;
use thalweg_core::{DataType, Error, Result};

use super::bad_data::DecodeError;
use super::columns::FileColumns;
use super::records::RecordLayout;
use crate::panics::caught;

/// An ORC file whose footer was read and whose columns were checked. It keeps no handle: each
/// stripe is read through one of its own, so that several threads can.
pub struct OrcFile {
    /// Where each stripe begins, and how many rows it has.
    stripes: Vec<(usize, u64)>,
    columns: FileColumns,
    precision: TimestampPrecision,
}

/// A file of which nothing is read that it does not have.
struct Input<F>(F);

impl<F: FileReader> ChunkReader for Input<F> {
    type T = F::T;

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn get_read(&self, offset: u64) -> io::Result<F::T> {
        self.0.get_read(offset).map_err(io::Error::other)
    }

    fn get_bytes(&self, offset: u64, length: u64) -> io::Result<Bytes> {
        if offset.checked_add(length).is_none_or(|end| end > self.len()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.0.get_bytes(offset, length as usize).map_err(io::Error::other)
    }
}

impl OrcFile {
    /// Reads the footer.
    ///
    /// # Errors
    /// If it is damaged, or a column is missing or of another type.
    pub fn open(file: impl FileReader, layout: &RecordLayout) -> Result<OrcFile> {
        let precision = precision(layout);
        guarded(|| {
            let reader = ArrowReaderBuilder::try_new(Input(file)).map_err(|e| damaged(&e))?;
            let reader = reader.with_timestamp_precision(precision);
            let columns = FileColumns::find(layout, reader.schema().fields(), "file")?;
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
    pub fn read_group<'f, F: FileReader>(
        &'f self,
        file: F,
        layout: &'f RecordLayout,
        stripe: usize,
        passed: u64,
        batch_rows: usize,
    ) -> Result<StripeBatches<'f, F>> {
        let begin = self.stripes.get(stripe).map_or(0, |(offset, _)| *offset);
        guarded(|| {
            let reader = ArrowReaderBuilder::try_new(Input(file)).map_err(|e| damaged(&e))?;
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
pub struct StripeBatches<'f, F: FileReader> {
    reader: ArrowReader<Input<F>>,
    file: &'f OrcFile,
    layout: &'f RecordLayout,
    row: u64,
    /// Rows that were delivered before. They are decoded again.
    passed: u64,
}

impl<F: FileReader> Iterator for StripeBatches<'_, F> {
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
    caught(work, |_| damaged(&"it is inconsistent"))
}

fn damaged(error: &dyn std::fmt::Display) -> Error {
    Error::data(format!("not a readable ORC file: {error}")).hint(
        "check that the file is complete and that 'format' is right; times with nanoseconds are \
         read as TIMESTAMP(9)",
    )
}
