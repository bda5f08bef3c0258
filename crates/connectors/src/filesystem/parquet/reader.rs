//! Reading Parquet: a task is a row group, its columns are checked against the declaration once
//! per file.

use std::collections::VecDeque;
use std::sync::Arc;

use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use thalweg_core::connector::{Origin, SourceBatch};
use thalweg_core::{Error, Result};

use super::types::with_views;
use crate::filesystem::columns::FileColumns;
use crate::filesystem::identity::open_listed;
use crate::filesystem::paths::InputFile;
use crate::filesystem::position::{Excerpt, Mark, Place, Reached, RowPlace, Work};
use crate::filesystem::source::{Reading, marking};
use crate::handover::{Cut, Decoded, Emit, Splitter, Task};

/// The first batches are small, so that first results appear at once.
const FIRST_BATCH_ROWS: usize = 4 << 10;
const BATCH_ROWS: usize = 32 << 10;

/// A file whose footer was read and whose columns were checked.
struct Opened {
    number: usize,
    file: Arc<InputFile>,
    /// The last bytes of the file.
    end: Excerpt,
    metadata: ArrowReaderMetadata,
    projection: ProjectionMask,
    columns: FileColumns,
}

/// Cuts files into row groups.
pub struct RowGroupSplitter {
    reading: Arc<Reading>,
    files: VecDeque<Work>,
    open: Option<Remaining>,
    is_first: bool,
}

/// What is left of a file.
struct Remaining {
    opened: Arc<Opened>,
    group: usize,
    /// The number in the file of the group's first row, from 1.
    first_row: u64,
    /// Rows of the group that were read before.
    passed: u64,
}

impl RowGroupSplitter {
    /// Reads these files one after the other.
    pub fn new(reading: Arc<Reading>, files: Vec<Work>) -> Self {
        RowGroupSplitter { reading, files: files.into(), open: None, is_first: true }
    }
}

impl Splitter for RowGroupSplitter {
    fn next_task(&mut self) -> Result<Cut> {
        loop {
            let Some(remaining) = self.open.take() else {
                let Some(work) = self.files.pop_front() else { return Ok(Cut::End) };
                self.open = (!work.is_done).then(|| open(&self.reading, &work)).transpose()?;
                continue;
            };
            let Remaining { opened, group, first_row, passed } = remaining;
            let groups = opened.metadata.metadata().row_groups();
            let Some(rows) = groups.get(group).map(|group| group.num_rows() as u64) else {
                let Opened { number, ref file, end, .. } = *opened;
                let place = Place::Rows(RowPlace { group, row: 0, end });
                let mark = Mark { number, file: file.clone(), place, reached: Reached::End };
                return Ok(Cut::Task(marking(mark, &self.reading)));
            };
            self.open = Some(Remaining {
                opened: opened.clone(),
                group: group + 1,
                first_row: first_row + rows,
                passed: 0,
            });
            let is_first = std::mem::take(&mut self.is_first);
            let batch_rows = if is_first { FIRST_BATCH_ROWS } else { BATCH_ROWS };
            let reading = self.reading.clone();
            let task = RowGroup { reading, opened, group, first_row, passed, batch_rows };
            return Ok(Cut::Task(Box::new(task)));
        }
    }
}

fn open(reading: &Reading, work: &Work) -> Result<Remaining> {
    let file = &work.file;
    let label = file.label.to_string();
    let check = || -> Result<Opened, ParquetOrOurs> {
        let mut handle = open_listed(file)?;
        let end =
            Excerpt::of_end(&mut handle).map_err(|e| Error::io(format!("cannot read: {e}")))?;
        // The embedded Arrow schema is passed over: what counts is what Parquet itself says.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let metadata = ArrowReaderMetadata::load(&handle, options.clone())?;
        let schema = Arc::new(with_views(metadata.schema()));
        let options = options.with_schema(schema);
        let metadata = ArrowReaderMetadata::try_new(metadata.metadata().clone(), options)?;
        let columns = FileColumns::find(reading, metadata.schema().fields())?;
        check_compression(&metadata)?;
        let roots = metadata.metadata().file_metadata().schema_descr();
        let projection = ProjectionMask::roots(roots, columns.in_file().iter().copied());
        Ok(Opened { number: work.number, file: file.clone(), end, metadata, projection, columns })
    };
    let opened = check().map_err(|error| match error {
        ParquetOrOurs::Ours(error) => error.in_file(label),
        ParquetOrOurs::Parquet(error) => damaged(&error, &label),
    })?;
    let at = work.first_row_place(opened.end)?;
    let groups = opened.metadata.metadata().row_groups();
    let before = groups.iter().take(at.group).map(|group| group.num_rows() as u64);
    let first_row = 1 + before.sum::<u64>();
    Ok(Remaining { opened: Arc::new(opened), group: at.group, first_row, passed: at.row })
}

/// Refuses what cannot be decompressed, before any row is read.
fn check_compression(metadata: &ArrowReaderMetadata) -> Result<()> {
    let groups = metadata.metadata().row_groups().iter();
    let unfit = groups.flat_map(RowGroupMetaData::columns).find(|column| {
        !matches!(
            column.compression(),
            Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::ZSTD(_)
        )
    });
    let Some(column) = unfit else { return Ok(()) };
    let codec = column.compression().to_string();
    let codec = codec.split('(').next().unwrap_or_default().to_owned();
    let path = column.column_path().string();
    Err(Error::unsupported(format!("column {path} is compressed with {codec}"))
        .hint("write the file with Snappy or Zstandard, or not compressed; these are read"))
}

enum ParquetOrOurs {
    Parquet(ParquetError),
    Ours(Error),
}

impl From<ParquetError> for ParquetOrOurs {
    fn from(error: ParquetError) -> Self {
        ParquetOrOurs::Parquet(error)
    }
}

impl From<Error> for ParquetOrOurs {
    fn from(error: Error) -> Self {
        ParquetOrOurs::Ours(error)
    }
}

fn damaged(error: &dyn std::fmt::Display, label: &str) -> Error {
    Error::data(format!("not a readable Parquet file: {error}"))
        .in_file(label)
        .hint("check that the file is complete and that 'format' is right")
}

struct RowGroup {
    reading: Arc<Reading>,
    opened: Arc<Opened>,
    group: usize,
    first_row: u64,
    passed: u64,
    batch_rows: usize,
}

impl Task for RowGroup {
    fn run(self: Box<Self>, emit: &Emit<'_>) -> Result<()> {
        let label = self.opened.file.label.as_ref();
        let handle = open_listed(&self.opened.file)?;
        let metadata = self.opened.metadata.clone();
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(handle, metadata)
            .with_row_groups(vec![self.group])
            .with_projection(self.opened.projection.clone())
            .with_batch_size(self.batch_rows)
            .with_offset(usize::try_from(self.passed).unwrap_or(usize::MAX))
            .build()
            .map_err(|e| damaged(&e, label))?;
        let mut row = self.passed;
        for batch in reader {
            let batch = batch.map_err(|e| damaged(&e, label))?;
            let (rows, first_row) = (batch.num_rows(), self.first_row + row);
            let at_row = |(e, row): (Error, u64)| e.at_row(label, first_row + row);
            let Opened { columns, file, .. } = self.opened.as_ref();
            let batch = columns.delivered(&self.reading, file, &batch).map_err(at_row)?;
            let origin = Origin { file: self.opened.file.label.clone(), first_row };
            row += rows as u64;
            let batch = SourceBatch { batch, origin: Some(origin) };
            if emit.emit(Decoded { batch, bad: Vec::new(), end: Some(self.mark(row)) }).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }
}

impl RowGroup {
    /// The place behind so many rows of the group.
    fn mark(&self, row: u64) -> Mark {
        let Opened { number, ref file, end, .. } = *self.opened;
        let place = Place::Rows(RowPlace { group: self.group, row, end });
        Mark { number, file: file.clone(), place, reached: Reached::Block }
    }
}
