//! Tables of state: the columns that captures write and restores read.
//!
//! A table ([`thalweg_core::snapshot`]) is made of columns by name; the first is always the virtual
//! partition. What is read back is looked for by name and type, and what is not there is an error
//! of the snapshot, never a panic.
//!
//! Names matter where users' columns are stored next to the engine's own: those begin with `$`, and
//! a user's column that does so, too, gets a second `$`. Tables of kept rows are read by place, so
//! their names are for people.

use crate::rows::columns::batch_of;
use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{
    Array, ArrayRef, BooleanArray, Int64Array, PrimitiveArray, RecordBatch, UInt8Array,
};
use arrow_schema::{DataType as Arrow, Field, SchemaRef};
use thalweg_core::snapshot::{TableRows, state_schema};
use thalweg_core::{Captured, Error, Restored, Result, TableSchema};

/// The virtual partition of keys with this hash: the one that
/// [`partition_of`](crate::keys::partition_of) gives to a range.
#[inline]
pub(crate) fn virtual_partition(hash: u64) -> u8 {
    (hash >> 56) as u8
}

/// The first column of a table whose rows belong to keys with these hashes.
pub(crate) fn owners(hashes: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(UInt8Array::from_iter_values(hashes.map(virtual_partition)))
}

/// The first column of a table whose rows are for all partitions.
pub(crate) fn for_all(rows: usize) -> ArrayRef {
    Arc::new(UInt8Array::new_null(rows))
}

/// Named columns behind their owners, as one batch of a table.
///
/// # Errors
/// If the columns are not of one length.
pub fn state_batch(owners: ArrayRef, columns: Vec<(String, ArrayRef)>) -> Result<RecordBatch> {
    let fields = columns.iter().map(|(name, c)| Field::new(name, c.data_type().clone(), true));
    let schema = state_schema(fields);
    let rows = owners.len();
    let columns = std::iter::once(owners).chain(columns.into_iter().map(|(_, column)| column));
    batch_of(&schema, columns.collect(), rows)
}

/// Names for columns of a table, in this order, such that none is another's or the beginning of
/// another's up to a dot, and none looks like one of the engine's own, which begin with `$`.
pub(crate) fn unique_names<'a>(wanted: impl Iterator<Item = &'a str>) -> Vec<String> {
    let beginnings = |name: &str| -> Vec<String> {
        name.match_indices('.').map(|(at, _)| name[..at].to_owned()).collect()
    };
    let mut names: Vec<String> = Vec::new();
    let mut taken: HashSet<String> = HashSet::new();
    let mut taken_beginnings: HashSet<String> = HashSet::new();
    for wanted in wanted {
        let wanted = if wanted.starts_with('$') { format!("${wanted}") } else { wanted.to_owned() };
        let mut name = wanted.clone();
        let mut number = 1;
        while taken.contains(&name)
            || taken_beginnings.contains(&name)
            || beginnings(&name).iter().any(|beginning| taken.contains(beginning))
        {
            number += 1;
            name = format!("{wanted}#{number}");
        }
        taken_beginnings.extend(beginnings(&name));
        taken.insert(name.clone());
        names.push(name);
    }
    names
}

/// Adds a table that is one batch.
pub fn add_table(captured: &mut Captured, name: &'static str, batch: RecordBatch) {
    captured.add(name, batch.schema(), vec![batch]);
}

/// The column of a table with this name.
///
/// # Errors
/// If it is not there.
pub fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef> {
    batch.column_by_name(name).ok_or_else(|| does_not_fit(format!("there is no column '{name}'")))
}

/// The column of a table with this name and type.
///
/// # Errors
/// If it is not there, or of another type.
pub(crate) fn typed<'a, T: ArrowPrimitiveType>(
    batch: &'a RecordBatch,
    name: &str,
) -> Result<&'a PrimitiveArray<T>> {
    let column = column(batch, name)?;
    let wrong = || does_not_fit(format!("column '{name}' is of type {}", column.data_type()));
    column.as_primitive_opt().ok_or_else(wrong)
}

/// A number that is wanted at each row of a table.
///
/// # Errors
/// If there is no such column of this type, or it holds a NULL.
pub fn numbers_of<'a, T: ArrowPrimitiveType>(
    batch: &'a RecordBatch,
    name: &str,
) -> Result<&'a [T::Native]> {
    let column = typed::<T>(batch, name)?;
    match column.nulls().map_or(0, |nulls| nulls.null_count()) {
        0 => Ok(column.values()),
        _ => Err(does_not_fit(format!("column '{name}' holds NULL"))),
    }
}

/// The column of a table with this name that says yes or no.
///
/// # Errors
/// As [`typed`].
pub(crate) fn flags<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a BooleanArray> {
    let column = column(batch, name)?;
    let wrong = || does_not_fit(format!("column '{name}' is of type {}", column.data_type()));
    column.as_boolean_opt().ok_or_else(wrong)
}

/// The most rows of a batch of kept rows.
pub const KEPT_ROWS_MAX: usize = 1 << 14;

/// The columns of a table of rows that an operator keeps: some of its own, then those of the rows.
/// A column of the rows whose name is taken gets another one: they are read by place
/// ([`kept_columns`]).
pub(crate) fn kept_schema(own: &[(&str, Arrow)], rows: &TableSchema) -> SchemaRef {
    let mut fields: Vec<Field> =
        own.iter().map(|(name, of)| Field::new(*name, of.clone(), true)).collect();
    for column in &rows.columns {
        let is_taken = |name: &str| fields.iter().any(|field| field.name() == name);
        let numbered = (1..).map(|number| format!("{}_{number}", column.name));
        let mut names = std::iter::once(column.name.clone()).chain(numbered);
        let name = names.find(|name| !is_taken(name)).unwrap_or_default();
        fields.push(Field::new(name, column.column_type.data_type.arrow(), true));
    }
    state_schema(fields)
}

/// Captures batches of these rows as a table with a schema of [`kept_schema`], later: until then
/// they share their memory.
pub(crate) fn captured_batches(
    table: &'static str,
    rows: &TableSchema,
    batches: Vec<RecordBatch>,
) -> Captured {
    let schema = kept_schema(&[], rows);
    let of_table = Arc::clone(&schema);
    let make = move || {
        let parts = |batch: &RecordBatch| kept_parts(batch.columns(), batch.num_rows(), &of_table);
        let rows = batches.iter().map(parts).collect::<Result<Vec<_>>>()?.concat();
        Ok(TableRows { rows, removed: Vec::new() })
    };
    let mut captured = Captured::default();
    captured.add_later(table, schema, Box::new(make));
    captured
}

/// Rows of a table with a schema of [`kept_schema`]. Texts are copied, so that they hold on to no
/// others.
///
/// # Errors
/// If the columns do not fit the schema.
pub(crate) fn kept_batch(
    schema: &SchemaRef,
    owners: ArrayRef,
    own: Vec<ArrayRef>,
    columns: Vec<ArrayRef>,
) -> Result<RecordBatch> {
    let rows = owners.len();
    let columns = columns.into_iter().map(own_text);
    let columns = std::iter::once(owners).chain(own).chain(columns).collect();
    batch_of(schema, columns, rows)
}

/// The same texts in buffers that hold no others.
pub(crate) fn own_text(column: ArrayRef) -> ArrayRef {
    match column.as_string_view_opt() {
        Some(texts) => Arc::new(texts.gc()),
        None => column,
    }
}

/// The columns of kept rows: the last `rows` of a table with such a schema.
///
/// # Errors
/// If its columns are others. Names may differ.
pub(crate) fn kept_columns(
    batch: &RecordBatch,
    schema: &SchemaRef,
    rows: usize,
) -> Result<Vec<ArrayRef>> {
    let columns = batch.columns();
    if columns.len() != schema.fields().len() {
        let (count, expected) = (columns.len(), schema.fields().len());
        return Err(does_not_fit(format!("a table has {count} columns, not {expected}")));
    }
    let mut pairs = schema.fields().iter().zip(columns);
    if let Some((field, column)) = pairs.find(|(field, c)| c.data_type() != field.data_type()) {
        let (name, of) = (field.name(), column.data_type());
        return Err(does_not_fit(format!("column '{name}' is of type {of}")));
    }
    Ok(columns[columns.len() - rows..].to_vec())
}

/// A table of rows of keys, which go by their keys: those stand first, then columns of the
/// operator's own, then the other columns of the rows.
#[derive(Clone, Debug)]
pub(crate) struct KeyedTable {
    schema: SchemaRef,
    /// The columns of the rows in the order of the table, as far as they are behind the keys.
    others: Vec<usize>,
    keys: Vec<usize>,
    own: usize,
}

impl KeyedTable {
    /// A table of such rows, with these key columns. Names that are taken are as in
    /// [`kept_schema`].
    pub fn new(own: &[(&str, Arrow)], rows: &TableSchema, keys: &[usize]) -> Self {
        let others: Vec<usize> = (0..rows.len()).filter(|column| !keys.contains(column)).collect();
        let named = kept_schema(own, rows);
        // The partition, the operator's own, and the columns of the rows.
        let behind = 1 + own.len();
        let order = keys.iter().map(|key| behind + key).chain(1..behind);
        let order = order.chain(others.iter().map(|column| behind + column));
        let schema = state_schema(order.map(|at| named.field(at).clone()));
        KeyedTable { schema, others, keys: keys.to_vec(), own: own.len() }
    }

    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Rows of the table. Texts are copied, so that they hold on to no others.
    ///
    /// # Errors
    /// If the columns do not fit the table.
    pub fn batch(
        &self,
        owners: ArrayRef,
        own: Vec<ArrayRef>,
        columns: Vec<ArrayRef>,
    ) -> Result<RecordBatch> {
        let rows = owners.len();
        let column = |&at: &usize| own_text(ArrayRef::clone(&columns[at]));
        let columns = std::iter::once(owners).chain(self.keys.iter().map(column)).chain(own);
        let columns = columns.chain(self.others.iter().map(column)).collect();
        batch_of(&self.schema, columns, rows)
    }

    /// Rows of the table as a table with `schema` has them: not by their keys, but behind a column
    /// that says when they expire and the operator's own; `columns` are all of the rows.
    ///
    /// # Errors
    /// If the columns do not fit that table.
    pub fn by_expiry(
        &self,
        batch: &RecordBatch,
        (schema, expires): (&SchemaRef, Int64Array),
        columns: Vec<ArrayRef>,
    ) -> Result<RecordBatch> {
        let behind = 1 + self.keys.len();
        let mut all: Vec<ArrayRef> = vec![ArrayRef::clone(batch.column(0)), Arc::new(expires)];
        all.extend_from_slice(&batch.columns()[behind..behind + self.own]);
        all.extend(columns);
        Ok(RecordBatch::try_new(Arc::clone(schema), all)?)
    }

    /// The columns of the rows.
    ///
    /// # Errors
    /// If the table's columns are others. Names may differ.
    pub fn columns(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let columns = kept_columns(batch, &self.schema, self.schema.fields().len() - 1)?;
        let behind = self.keys.len() + self.own;
        let of_keys = self.keys.iter().copied().zip(&columns);
        let of_others = self.others.iter().copied().zip(&columns[behind..]);
        let mut columns: Vec<(usize, &ArrayRef)> = of_keys.chain(of_others).collect();
        columns.sort_by_key(|(at, _)| *at);
        columns.dedup_by_key(|(at, _)| *at);
        Ok(columns.into_iter().map(|(_, column)| ArrayRef::clone(column)).collect())
    }
}

/// Rows that are for the only partition, or for all, as batches of a table with a schema of
/// [`kept_schema`] without columns of its own.
///
/// # Errors
/// If the columns do not fit the schema.
pub(crate) fn kept_parts(
    columns: &[ArrayRef],
    rows: usize,
    schema: &SchemaRef,
) -> Result<Vec<RecordBatch>> {
    let part = |from: usize| {
        let count = KEPT_ROWS_MAX.min(rows - from);
        let columns = columns.iter().map(|column| column.slice(from, count)).collect();
        kept_batch(schema, for_all(count), Vec::new(), columns)
    };
    (0..rows).step_by(KEPT_ROWS_MAX).map(part).collect()
}

/// A number that a table holds once for each partition that wrote it, or not at all.
///
/// # Errors
/// As [`typed`].
pub(crate) fn numbers<T: ArrowPrimitiveType>(
    restored: &Restored,
    table: &str,
    name: &str,
) -> Result<Vec<T::Native>> {
    let batches = restored.table(table).iter();
    let values = batches.map(|batch| Ok(typed::<T>(batch, name)?.values().to_vec()));
    Ok(values.collect::<Result<Vec<_>>>()?.concat())
}

/// A flag that a table holds for all partitions: true if any that wrote it says so.
///
/// # Errors
/// As [`flags`].
pub(crate) fn is_set(restored: &Restored, table: &str, name: &str) -> Result<bool> {
    let mut any = false;
    for batch in restored.table(table) {
        let flags = flags(batch, name)?;
        any |= (0..flags.len()).any(|row| flags.is_valid(row) && flags.value(row));
    }
    Ok(any)
}

/// The snapshot does not hold what the operator captures.
pub fn does_not_fit(what: String) -> Error {
    Error::data(format!("the state in the snapshot does not fit the operator: {what}"))
        .hint("the snapshot is damaged, or was written by another version")
}
