//! Which columns records have and which are wanted, and batches of them: what is common to the
//! formats that are read record by record.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, Int8Array, RecordBatch, RecordBatchOptions};
use arrow_buffer::BooleanBufferBuilder;
use arrow_schema::SchemaRef;
use thalweg_core::connector::{ColumnBound, KIND_COLUMN};
use thalweg_core::{Column, DataType, Error, Result, RowKind, TableSchema};

use super::bad_data::{BadDataPolicy, BadFields, DecodeError, Rejected};
use super::builder::Field;
use super::text::TextBlock;

/// Which columns records have, which of them are wanted, and what happens to bad ones.
pub struct RecordLayout {
    /// The table's name, for messages.
    pub table: String,
    /// The columns of a record.
    pub schema: TableSchema,
    /// Positions in `schema` of the columns to deliver. Where row kinds are read from a column, the
    /// last of them is that of their short names (`+I`, `-U`, `+U`, `-D`).
    pub wanted: Vec<usize>,
    /// Positions in `schema` of columns that are read only to find bad records.
    pub checked: Vec<usize>,
    /// True if the batch has row kinds in its last column ([`KIND_COLUMN`]).
    pub reads_kinds: bool,
    /// The metadata of the format to deliver behind the wanted columns: the keys and the columns.
    pub metadata: Vec<(String, Column)>,
    /// True if the last wanted column becomes the row kinds.
    has_kind_names: bool,
    /// Conditions that all rows fulfil that are needed
    /// ([`thalweg_core::connector::TableRequest::bounds`]).
    pub bounds: Vec<ColumnBound>,
    /// What happens to bad values.
    pub policy: BadDataPolicy,
    delivered: SchemaRef,
}

impl RecordLayout {
    /// Records with these columns, of which these are wanted. `reads_kinds`: the last of them
    /// becomes the row kinds.
    pub fn new(table: &str, schema: TableSchema, wanted: Vec<usize>, reads_kinds: bool) -> Self {
        let has_kind_names = reads_kinds && !wanted.is_empty();
        RecordLayout {
            table: table.to_owned(),
            delivered: TableSchema::default().arrow(),
            schema,
            wanted,
            checked: Vec::new(),
            reads_kinds,
            metadata: Vec::new(),
            has_kind_names,
            bounds: Vec::new(),
            policy: BadDataPolicy::Fail,
        }
        .delivering()
    }

    /// Changes in a format that says of each what it does ([`super::Format::has_changes`]), with
    /// these metadata columns behind the wanted ones and row kinds last.
    #[must_use]
    pub fn of_changes(mut self, metadata: Vec<(String, Column)>) -> Self {
        (self.reads_kinds, self.has_kind_names, self.metadata) = (true, false, metadata);
        self.delivering()
    }

    fn delivering(mut self) -> Self {
        let values = &self.wanted[..self.wanted.len() - usize::from(self.has_kind_names)];
        let mut columns: Vec<Column> =
            values.iter().map(|&at| self.schema.columns[at].clone()).collect();
        columns.extend(self.metadata.iter().map(|(_, column)| column.clone()));
        if self.reads_kinds {
            columns.push(Column::new(KIND_COLUMN, DataType::TinyInt.not_null()));
        }
        self.delivered = TableSchema::new(columns).arrow();
        self
    }

    /// With this policy for bad records, which these columns find as well.
    #[must_use]
    pub fn with_policy(mut self, policy: BadDataPolicy, checked: Vec<usize>) -> Self {
        (self.policy, self.checked) = (policy, checked);
        self
    }

    /// With rows that are needed only within these bounds.
    #[must_use]
    pub fn within(mut self, bounds: &[ColumnBound]) -> Self {
        self.bounds = bounds.to_vec();
        self
    }

    /// The positions of all columns that are read.
    pub(super) fn read(&self) -> impl Iterator<Item = usize> {
        self.wanted.iter().chain(&self.checked).copied()
    }

    /// A batch of the wanted columns, and what stands behind them.
    pub(super) fn batch(
        &self,
        mut columns: Vec<ArrayRef>,
        rows: usize,
        bad: &mut BadFields,
    ) -> Result<RecordBatch> {
        if self.has_kind_names {
            let names = columns.pop();
            let names = names.ok_or_else(|| Error::internal("no column of row kinds was read"))?;
            columns.push(row_kinds(&names, bad)?);
        }
        self.of_rows(columns, rows)
    }

    /// The columns of batches.
    pub(super) fn delivered(&self) -> SchemaRef {
        self.delivered.clone()
    }

    /// A batch of all that is delivered.
    pub(super) fn of_rows(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(self.delivered.clone(), columns, &options)?)
    }
}

/// Turns the short names of row kinds into their codes. An unknown name is a bad row under every
/// policy: nothing says what the row does.
fn row_kinds(names: &ArrayRef, bad: &mut BadFields) -> Result<ArrayRef> {
    let names = names.as_string_view_opt().ok_or_else(|| Error::internal("'op' is no text"))?;
    let mut codes = Vec::with_capacity(names.len());
    for row in 0..names.len() {
        let name = (!names.is_null(row)).then(|| names.value(row));
        let kind = name.and_then(RowKind::from_short);
        if kind.is_none() {
            let found = name.map_or("missing".to_owned(), |name| format!("'{name}'"));
            bad.refuse(row, format!("op is {found}: it must be +I, -U, +U or -D"));
        }
        codes.push(kind.unwrap_or(RowKind::Insert).code());
    }
    Ok(Arc::new(Int8Array::from(codes)))
}

/// What a decoder has made of a block.
#[derive(Debug)]
pub struct DecodedRecords {
    /// The wanted columns of the records that could be read; row kinds last, if they are read.
    pub batch: RecordBatch,
    /// Those that could not, ascending by number.
    pub rejected: Vec<Rejected>,
    /// The number of the first record that was found.
    pub first_number: u64,
    /// For messages: the number of the message that each row of the batch came from.
    pub messages: Vec<u32>,
}

/// The records that were found in a block.
pub(super) trait Records {
    /// How many there are.
    fn rows(&self) -> usize;
    /// The number of a record.
    fn number(&self, row: usize) -> u64;
    /// The bytes of a record.
    fn raw(&self, row: usize) -> &[u8];
    /// The error of a job that fails because of this one.
    fn error(&self, reason: &str, number: u64) -> DecodeError;
    /// The first piece that is no record, which ended the search. A value in a record before it
    /// may be bad as well, and is then the first mistake of the input.
    fn take_broken(&mut self) -> Option<DecodeError>;
}

/// Records whose columns were read row by row.
pub(super) struct FoundRecords<'b> {
    /// The number and the bytes of each.
    pub records: Vec<(u64, &'b [u8])>,
    /// The first piece that is no record, where that fails the job.
    pub broken: Option<DecodeError>,
    /// The error of a job that fails because of a record.
    pub error: fn(&str, u64) -> DecodeError,
}

impl Records for FoundRecords<'_> {
    fn rows(&self) -> usize {
        self.records.len()
    }
    fn number(&self, row: usize) -> u64 {
        self.records[row].0
    }
    fn raw(&self, row: usize) -> &[u8] {
        self.records[row].1
    }
    fn error(&self, reason: &str, number: u64) -> DecodeError {
        (self.error)(reason, number)
    }
    fn take_broken(&mut self) -> Option<DecodeError> {
        self.broken.take()
    }
}

/// The records of a block, in columns that are complete but for the bad ones.
pub(super) struct Objects<'b> {
    pub fields: Vec<Field>,
    pub found: FoundRecords<'b>,
    pub bad: BadFields,
    pub rejected: Vec<Rejected>,
}

impl Objects<'_> {
    /// None yet, for these fields; `error` is that of a job that fails because of a record.
    pub fn new(
        fields: Vec<Field>,
        policy: BadDataPolicy,
        error: fn(&str, u64) -> DecodeError,
    ) -> Self {
        let found = FoundRecords { records: Vec::new(), broken: None, error };
        Objects { fields, found, bad: BadFields::new(policy), rejected: Vec::new() }
    }

    /// The last record that was found is bad, perhaps in the middle: it is no row.
    #[cold]
    pub fn leave_out(&mut self, policy: BadDataPolicy, reason: String) {
        let rows = self.found.records.len();
        let Some(&(number, record)) = self.found.records.last() else { return };
        self.fields.iter_mut().for_each(|field| field.column.fill(rows));
        self.bad.leave_out(rows - 1);
        match policy {
            BadDataPolicy::Fail => self.found.broken = Some((self.found.error)(&reason, number)),
            BadDataPolicy::Null => {}
            BadDataPolicy::Reject => {
                self.rejected.push(Rejected { number, reason, raw: record.to_vec() });
            }
        }
    }
}

/// The error of a job that fails because of a record of a binary format.
pub(super) fn bad_record(reason: &str, number: u64) -> DecodeError {
    let hint = "correct the record or the table's columns, or set 'bad-data' = 'drop' or \
                'dead-letter'";
    DecodeError::at(Error::data(reason).hint(hint), number)
}

/// Makes a batch of the columns that were read and leaves out the bad records. `rejected` are those
/// that were found before any column was read.
pub(super) fn finish(
    layout: &RecordLayout,
    block: &TextBlock<'_>,
    records: &mut impl Records,
    mut columns: Vec<ArrayRef>,
    mut bad: BadFields,
    mut rejected: Vec<Rejected>,
) -> Result<DecodedRecords, DecodeError> {
    columns.truncate(layout.wanted.len());
    let rows = records.rows();
    let mut batch = layout.batch(columns, rows, &mut bad)?;
    let bad = reject(layout.policy, records, bad, &mut rejected)?;
    let first_number = if rows > 0 { records.number(0) } else { block.number_at(0) };
    let mut messages: Vec<u32> = match block.as_messages() {
        Some(_) => (0..rows).map(|row| records.number(row) as u32).collect(),
        None => Vec::new(),
    };
    if !bad.is_empty() {
        let keep = without(rows, bad.into_iter());
        batch = arrow_select::filter::filter_record_batch(&batch, &keep).map_err(Error::from)?;
        let mut kept = keep.values().iter();
        messages.retain(|_| kept.next().unwrap_or(true));
    }
    Ok(DecodedRecords { batch, rejected, first_number, messages })
}

/// Ends the job at its first bad record, where those fail it; else adds them to those that were
/// rejected. Returns which they are, ascending.
///
/// # Errors
/// That of the first bad record.
pub(super) fn reject(
    policy: BadDataPolicy,
    records: &mut impl Records,
    bad: BadFields,
    rejected: &mut Vec<Rejected>,
) -> Result<Vec<usize>, DecodeError> {
    let bad = bad.into_rows();
    let first = bad.iter().find_map(|(row, reason)| Some((*row, reason.as_ref()?)));
    if let (BadDataPolicy::Fail, Some((row, reason))) = (policy, first) {
        return Err(records.error(reason, records.number(row)));
    }
    if let Some(error) = records.take_broken() {
        return Err(error);
    }
    let rows = bad.iter().map(|(row, _)| *row).collect();
    for (row, reason) in bad {
        let Some(reason) = reason else { continue };
        let (number, raw) = (records.number(row), records.raw(row).to_vec());
        rejected.push(Rejected { number, reason, raw });
    }
    rejected.sort_by_key(|record| record.number);
    Ok(rows)
}

/// True for all rows but these (ascending).
fn without(rows: usize, bad: impl Iterator<Item = usize>) -> BooleanArray {
    let mut keep = BooleanBufferBuilder::new(rows);
    keep.append_n(rows, true);
    bad.for_each(|row| keep.set_bit(row, false));
    BooleanArray::new(keep.finish(), None)
}
