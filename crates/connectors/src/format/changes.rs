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

use arrow_array::{ArrayRef, Int8Array, RecordBatch, StringViewArray, StructArray, UInt64Array};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType as Arrow;
use thalweg_core::{Column, DataType, Error, Result, RowKind, TableSchema};

pub use self::dialect::{ChangeOptions, Dialect};
use self::metadata::Source;
use self::rows::{Images, Rows, is_gone};
use super::avro::AvroDecoder;
use super::bad_data::{BadDataPolicy, DecodeError};
use super::builder;
use super::json::objects;
use super::json::writer::JsonStyle;
use super::records::{DecodedRecords, Objects, RecordLayout, Records, reject};
use super::text::TextBlock;

impl ChangeOptions {
    /// The columns that are read of an object: what a row was, what it is, what happened, then
    /// what filters and metadata need.
    fn envelope(&self, read: &[&Column], sources: &[Source]) -> Vec<Column> {
        let nullable = |column: &&Column| {
            Column::new(&column.name, column.column_type.clone().with_nullable(true))
        };
        let image = DataType::Row(read.iter().map(nullable).collect()).nullable();
        let image = match self.dialect {
            Dialect::Canal => DataType::Array(Box::new(image)).nullable(),
            _ => image,
        };
        let (before, after) = self.dialect.image_keys();
        let mut columns = vec![
            Column::new(before, image.clone()),
            Column::new(after, image),
            Column::new(self.dialect.kind_key(), DataType::STRING.nullable()),
        ];
        let filters = [("database", &self.databases), ("table", &self.tables)];
        let filters = filters.iter().filter(|(_, pattern)| pattern.is_some());
        let filters = filters.map(|(key, _)| Column::new(*key, DataType::STRING.nullable()));
        let inside = sources.iter().filter(|source| !source.is_outside);
        let inside = inside.map(|source| Column::new(source.key, source.read_as().nullable()));
        for column in filters.chain(inside) {
            if !columns.iter().any(|known| known.name == column.name) {
                columns.push(column);
            }
        }
        if !self.has_schema {
            return columns;
        }
        let outside = sources.iter().find(|source| source.is_outside);
        let outside = outside.map(|source| Column::new(source.key, DataType::STRING.nullable()));
        let payload = Column::new("payload", DataType::Row(columns).nullable());
        [payload].into_iter().chain(outside).collect()
    }
}

/// Checks the type of a metadata column.
///
/// # Errors
/// If there is no such key, or its values are of another type than the column.
pub(super) fn check_metadata(options: &ChangeOptions, key: &str, column: &Column) -> Result<()> {
    Source::find(options, key, column).map(|_| ())
}

/// Decodes a block.
pub(super) fn decode(
    options: &ChangeOptions,
    avro: Option<&AvroDecoder>,
    layout: &RecordLayout,
    block: &TextBlock<'_>,
) -> Result<DecodedRecords, DecodeError> {
    let read: Vec<&Column> = layout.read().map(|at| &layout.schema.columns[at]).collect();
    let sources = layout.metadata.iter().map(|(key, column)| Source::find(options, key, column));
    let sources = sources.collect::<Result<Vec<_>>>()?;
    let whole = options.envelope(&read, &sources);
    let envelope: Vec<&Column> = whole.iter().collect();
    let mut fields = builder::record(envelope.iter().copied())?;
    rows::note_missing(&mut fields);
    let objects = match avro {
        Some(avro) => avro.objects(&whole, &envelope, fields, block, layout.policy)?,
        None => {
            let source = block.text(layout.policy)?;
            objects(&options.json, &envelope, fields, &source, block, layout.policy)
        }
    };
    let Objects { fields, mut found, mut bad, mut rejected } = objects;
    let images = Images::of(options, fields)?;
    let mut rows = Rows::default();
    for message in 0..found.records.len() {
        // Before all else: what is filtered out is not read, so it is never bad.
        if !images.is_wanted(options, message) {
            bad.leave_out(message);
            continue;
        }
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
    let bad = reject(layout.policy, &mut found, bad, &mut rejected)?;
    columns.truncate(layout.wanted.len());
    for source in &sources {
        columns.push(source.column(&images, &rows)?);
    }
    columns
        .push(Arc::new(Int8Array::from_iter_values(rows.rows.iter().map(|row| row.kind.code()))));
    let kept = rows.without(bad.into_iter());
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
        let is_gone = is_gone(kind);
        let dialect = options.dialect;
        match dialect {
            Dialect::Debezium | Dialect::Ogg => {
                let shows_null = !options.json.ignore_null_fields;
                out.push('{');
                if shows_null && !is_gone {
                    out.push_str("\"before\":null,");
                }
                out.push_str(if is_gone { "\"before\":" } else { "\"after\":" });
                columns.append(out, row)?;
                if shows_null && is_gone {
                    out.push_str(",\"after\":null");
                }
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

impl ChangeOptions {
    /// Checks that the schema that an option names has what these columns need.
    ///
    /// # Errors
    /// If it has not.
    pub fn check_columns(&self, columns: &[Column]) -> Result<()> {
        match &self.avro {
            Some(options) => options.check_columns(&avro_envelope(columns).columns),
            None => Ok(()),
        }
    }
}

/// The columns of Avro's envelope around rows with these columns.
pub(super) fn avro_envelope(columns: &[Column]) -> TableSchema {
    let image = DataType::Row(columns.to_vec()).nullable();
    TableSchema::new(vec![
        Column::new("before", image.clone()),
        Column::new("after", image),
        Column::new("op", DataType::STRING.nullable()),
    ])
}

/// Rows in that envelope.
pub(super) fn in_avro_envelope(
    batch: &RecordBatch,
    envelope: &TableSchema,
    kinds: Option<&[RowKind]>,
) -> Result<RecordBatch> {
    let schema = envelope.arrow();
    let is_gone = |row: usize| kinds.is_some_and(|kinds| is_gone(kinds[row]));
    let rows = batch.num_rows();
    let image = |at: usize, is_there: Vec<bool>| -> Result<ArrayRef> {
        let Arrow::Struct(fields) = schema.field(at).data_type() else {
            return Err(Error::internal("an image that is no row"));
        };
        let nulls = Some(NullBuffer::from(is_there));
        Ok(Arc::new(StructArray::try_new(fields.clone(), batch.columns().to_vec(), nulls)?))
    };
    let words = (0..rows).map(|row| if is_gone(row) { "d" } else { "c" });
    let columns: Vec<ArrayRef> = vec![
        image(0, (0..rows).map(is_gone).collect())?,
        image(1, (0..rows).map(|row| !is_gone(row)).collect())?,
        Arc::new(StringViewArray::from_iter_values(words)),
    ];
    Ok(RecordBatch::try_new(schema, columns)?)
}
