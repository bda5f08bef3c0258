//! Changes of tables, as tools that follow the log of a database write them: a JSON object says
//! what happened to a row, what it was and what it is.
//!
//! | dialect | what happened | rows |
//! |---|---|---|
//! | Debezium | `op`: c, r, u, d | `before`, `after` |
//! | Maxwell | `type`: insert, update, delete | `data`; in `old` what was different before |
//! | Canal | `type`: INSERT, UPDATE, DELETE | the same, several in an array |
//! | Ogg | `op_type`: I, U, D | `before`, `after` |
//!
//! An update is two rows, -U and +U. The object is read by columns like any other
//! ([`super::json`]), with the wanted columns of the table inside; what a row of the batch is made
//! of is then picked from these columns ([`rows`]).

mod dialect;
mod metadata;
mod rows;

use std::sync::Arc;

use arrow_array::{ArrayRef, Int8Array, RecordBatch, UInt64Array};
use regex::Regex;
use thalweg_core::{Column, Error, Result, RowKind, TableSchema};

pub use self::dialect::Dialect;
use self::metadata::Source;
use self::rows::{Images, Row, Rows};
use super::bad_data::{BadDataPolicy, DecodeError, Rejected};
use super::builder;
use super::json::writer::JsonStyle;
use super::json::{JsonOptions, Objects, objects};
use super::records::{DecodedRecords, RecordLayout, Records};
use super::text::TextBlock;

/// How changes are read and written.
#[derive(Clone, Debug)]
pub struct ChangeOptions {
    /// Who writes them.
    pub dialect: Dialect,
    /// How the JSON is read and written.
    pub json: JsonOptions,
    /// True if the change stands in a key `payload`, beside its schema.
    pub has_schema: bool,
    /// The databases, of which changes are read; all if there is none.
    pub databases: Option<Regex>,
    /// The same for tables.
    pub tables: Option<Regex>,
}

/// Decodes a block.
pub(super) fn decode(
    options: &ChangeOptions,
    layout: &RecordLayout,
    block: &TextBlock<'_>,
) -> Result<DecodedRecords, DecodeError> {
    let read: Vec<&Column> = layout.read().map(|at| &layout.schema.columns[at]).collect();
    let sources = layout.metadata.iter().map(|(key, column)| Source::find(options, key, column));
    let sources = sources.collect::<Result<Vec<_>>>()?;
    let envelope = options.envelope(&read, &sources);
    let envelope: Vec<&Column> = envelope.iter().collect();
    let mut fields = builder::record(envelope.iter().copied())?;
    rows::note_missing(&mut fields);
    let source = block.text(layout.policy)?;
    let objects = objects(&options.json, &envelope, fields, &source, block, layout.policy);
    let Objects { fields, mut found, mut bad, mut rejected } = objects;
    let images = Images::of(options, fields)?;
    let broken = found.take_broken();
    let messages = found.records.len() - usize::from(broken.is_some());
    let mut rows = Rows::default();
    for message in 0..messages {
        if let Err(reason) = images.rows_of(options, message, &mut rows) {
            match layout.policy {
                BadDataPolicy::Null => bad.leave_out(message),
                _ => bad.refuse(message, reason),
            }
        }
    }
    let mut columns = Vec::with_capacity(read.len());
    for (at, declared) in read.iter().enumerate() {
        let values = images.column(at, &rows)?;
        bad.begin_at(at, declared);
        rows.refuse_nulls(values.as_ref(), declared, &mut bad);
        columns.push(values);
    }
    let bad = bad.into_rows();
    let first = bad.iter().find_map(|(message, reason)| Some((*message, reason.as_ref()?)));
    if let (BadDataPolicy::Fail, Some((message, reason))) = (layout.policy, first) {
        return Err(found.error(reason, found.number(message)));
    }
    if let Some(error) = broken {
        return Err(error);
    }
    columns.truncate(layout.wanted.len());
    for source in &sources {
        columns.push(source.column(&images, &rows)?);
    }
    columns
        .push(Arc::new(Int8Array::from_iter_values(rows.rows.iter().map(|row| row.kind.code()))));
    let kept = rows.without(bad.iter().map(|(message, _)| *message));
    for (message, reason) in bad {
        let Some(reason) = reason else { continue };
        let (number, raw) = (found.number(message), found.raw(message).to_vec());
        rejected.push(Rejected { number, reason, raw });
    }
    rejected.sort_by_key(|record| record.number);
    let numbers = kept.iter().map(|&row| found.number(rows.rows[row as usize].message) as u32);
    let messages = block.as_messages().map_or(Vec::new(), |_| numbers.collect());
    let first_number = if found.rows() > 0 { found.number(0) } else { block.number_at(0) };
    let batch = take(layout, columns, rows.rows.len(), kept)?;
    Ok(DecodedRecords { batch, rejected, first_number, messages })
}

/// These rows of the columns.
fn take(
    layout: &RecordLayout,
    columns: Vec<ArrayRef>,
    rows: usize,
    kept: Vec<u64>,
) -> Result<RecordBatch> {
    let count = kept.len();
    if count == rows {
        return layout.of_rows(columns, rows);
    }
    let kept = UInt64Array::from(kept);
    let take = |values: &ArrayRef| arrow_select::take::take(values.as_ref(), &kept, None);
    let columns = columns.iter().map(take).collect::<Result<Vec<_>, _>>()?;
    layout.of_rows(columns, count)
}

/// Appends a message per row, and `end` after each: what a row became, or that it is gone.
///
/// # Errors
/// If a value cannot be written.
pub(super) fn write(
    options: &ChangeOptions,
    style: &JsonStyle,
    out: &mut String,
    batch: &RecordBatch,
    schema: &TableSchema,
    kinds: Option<&[RowKind]>,
    mut end: impl FnMut(&mut String),
) -> Result<()> {
    let columns = style.columns(batch, schema);
    for row in 0..batch.num_rows() {
        let kind = kinds.map_or(RowKind::Insert, |kinds| kinds[row]);
        let is_gone = matches!(kind, RowKind::UpdateBefore | RowKind::Delete);
        let dialect = options.dialect;
        match dialect {
            Dialect::Debezium | Dialect::Ogg => {
                let (first, second) =
                    if is_gone { ("before", "after") } else { ("after", "before") };
                let mut image = String::new();
                columns.append(&mut image, row)?;
                let null = format!("\"{second}\":null");
                let parts = match (is_gone, options.json.ignore_null_fields) {
                    (_, true) => format!("\"{first}\":{image}"),
                    (true, false) => format!("\"{first}\":{image},{null}"),
                    (false, false) => format!("{null},\"{first}\":{image}"),
                };
                out.push('{');
                out.push_str(&parts);
            }
            Dialect::Maxwell => {
                out.push_str("{\"data\":");
                columns.append(out, row)?;
            }
            Dialect::Canal => {
                out.push_str("{\"data\":[");
                columns.append(out, row)?;
                out.push(']');
            }
        }
        let (key, word) = (dialect.kind_key(), dialect.word(is_gone));
        out.push_str(&format!(",\"{key}\":\"{word}\"}}"));
        end(out);
    }
    Ok(())
}

/// The error of a metadata column.
fn bad_metadata(key: &str, column: &Column, expected: &str) -> Error {
    Error::plan(format!(
        "metadata '{key}' is {expected}, but column {} is {}",
        column.name, column.column_type.data_type
    ))
}

impl Row {
    /// Whether it is what a row was before.
    fn is_before(&self) -> bool {
        matches!(self.kind, RowKind::UpdateBefore | RowKind::Delete)
    }
}
