//! Reading Parquet: a task is a row group, its columns are checked against the declaration once
//! per file.

use std::collections::VecDeque;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use thalweg_core::connector::{Origin, SourceBatch};
use thalweg_core::{Error, Result};

use super::types::{convert, describe, is_readable, with_views};
use crate::filesystem::csv::values::BadFields;
use crate::filesystem::paths::InputFile;
use crate::filesystem::position::{Excerpt, Mark, Place, RowPlace, Work};
use crate::filesystem::source::Reading;
use crate::handover::{Cut, Decoded, Emit, Splitter, Task};
use crate::options::near_miss;

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
    /// For each wanted column, its place among the projected ones.
    places: Vec<usize>,
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
                self.open = Some(open(&self.reading, &work)?);
                continue;
            };
            let Remaining { opened, group, first_row, passed } = remaining;
            let groups = opened.metadata.metadata().row_groups();
            let Some(rows) = groups.get(group).map(|group| group.num_rows() as u64) else {
                continue;
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
    let check = |path: &Path| -> Result<Opened, ParquetOrOurs> {
        let mut handle = File::open(path).map_err(|e| Error::io(format!("cannot read: {e}")))?;
        let end =
            Excerpt::of_end(&mut handle).map_err(|e| Error::io(format!("cannot read: {e}")))?;
        // The embedded Arrow schema is passed over: what counts is what Parquet itself says.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let metadata = ArrowReaderMetadata::load(&handle, options.clone())?;
        let schema = Arc::new(with_views(metadata.schema()));
        let options = options.with_schema(schema);
        let metadata = ArrowReaderMetadata::try_new(metadata.metadata().clone(), options)?;
        let (projection, places) = project(reading, &metadata)?;
        Ok(Opened { number: work.number, file: file.clone(), end, metadata, projection, places })
    };
    let path = file.path.as_deref().ok_or_else(|| Error::internal("Parquet from a pipe"))?;
    let opened = check(path).map_err(|error| match error {
        ParquetOrOurs::Ours(error) => error.in_file(label),
        ParquetOrOurs::Parquet(error) => damaged(&error, &label),
    })?;
    let at = work.from_row(opened.end)?;
    let groups = opened.metadata.metadata().row_groups();
    let before = groups.iter().take(at.group).map(|group| group.num_rows() as u64);
    let first_row = 1 + before.sum::<u64>();
    Ok(Remaining { opened: Arc::new(opened), group: at.group, first_row, passed: at.row })
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

/// Finds the wanted columns in the file.
fn project(
    reading: &Reading,
    metadata: &ArrowReaderMetadata,
) -> Result<(ProjectionMask, Vec<usize>)> {
    let fields = metadata.schema().fields();
    let mut roots = Vec::with_capacity(reading.wanted.len());
    for &position in &reading.wanted {
        let declared = &reading.schema.columns[position];
        let Some(root) = fields.iter().position(|field| *field.name() == declared.name) else {
            let names = fields.iter().map(|field| field.name().as_str());
            let help = match near_miss(&declared.name, names.clone()) {
                Some(near) => format!("did you mean '{near}'?"),
                None => format!("it has {}", names.collect::<Vec<_>>().join(", ")),
            };
            let message = format!("the file has no column {}", declared.name);
            return Err(Error::data(message).hint(help));
        };
        let (in_file, wanted) = (fields[root].data_type(), &declared.column_type.data_type);
        if !is_readable(in_file, wanted) {
            return Err(Error::data(format!(
                "column {} is {} in the file, but table {} declares it as {wanted}",
                declared.name,
                describe(in_file),
                reading.table
            ))
            .hint("declare the column as it is in the file and CAST it in the query"));
        }
        roots.push(root);
    }
    let mut in_file_order = roots.clone();
    in_file_order.sort_unstable();
    let place = |root: &usize| in_file_order.binary_search(root).expect("sorted copy");
    let places = roots.iter().map(place).collect();
    let schema = metadata.metadata().file_metadata().schema_descr();
    Ok((ProjectionMask::roots(schema, roots), places))
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
        let path = self.opened.file.path.as_deref().unwrap_or(Path::new(""));
        let handle =
            File::open(path).map_err(|e| Error::io(format!("cannot read: {e}")).in_file(label))?;
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
            let columns = self.declared(&batch).map_err(|e| e.at_row(label, first_row))?;
            let at_row = |(e, row): (Error, u64)| e.at_row(label, first_row + row);
            self.refuse_nulls(&columns).map_err(at_row)?;
            let batch = self.delivered(columns, rows).map_err(at_row)?;
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
        Mark { number, file: file.clone(), place }
    }

    /// Everything behind the source relies on NOT NULL. The error comes with its row.
    fn refuse_nulls(&self, columns: &[ArrayRef]) -> Result<(), (Error, u64)> {
        for (&position, values) in self.reading.wanted.iter().zip(columns) {
            let declared = &self.reading.schema.columns[position];
            let Some(nulls) = values.nulls().filter(|_| !declared.column_type.nullable) else {
                continue;
            };
            if let Some(row) = (0..values.len()).find(|&row| nulls.is_null(row)) {
                let message = format!(
                    "column {} ({}): a NULL, but the column is declared NOT NULL",
                    declared.name, declared.column_type.data_type
                );
                let hint = "declare the column without NOT NULL";
                return Err((Error::data(message).hint(hint), row as u64));
            }
        }
        Ok(())
    }

    /// Adds what the file itself does not hold. The error comes with its row.
    fn delivered(
        &self,
        mut columns: Vec<ArrayRef>,
        rows: usize,
    ) -> Result<RecordBatch, (Error, u64)> {
        let mut bad = BadFields::new(self.reading.on_bad);
        let kinds = self.reading.take_kinds(&mut columns, &mut bad).map_err(|e| (e, 0))?;
        if let Some((row, reason)) = bad.into_rows().into_iter().next() {
            return Err((Error::data(reason).hint("correct the row"), row as u64));
        }
        let batch = self.reading.batch(columns, kinds, rows, &self.opened.file);
        batch.map_err(|e| (e, 0))
    }

    fn declared(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.reading.wanted.len());
        for (&position, &place) in self.reading.wanted.iter().zip(&self.opened.places) {
            let declared = &self.reading.schema.columns[position];
            let column = convert(batch.column(place), &declared.column_type.data_type);
            columns.push(column.map_err(|e| {
                Error::new(e.kind(), format!("column {}: {}", declared.name, e.message()))
            })?);
        }
        Ok(columns)
    }
}
