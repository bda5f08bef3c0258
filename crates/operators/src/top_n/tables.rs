//! How what is kept for keys is captured: rows that lie in an arena, and keys alone. Where state is
//! kept for a limited time, `$written` says when that of the key was last written, in milliseconds
//! since 1970.
//!
//! Columns of the key stand first ([`KeyedTable`]), but where rows are captured one by one
//! ([`NumberedRows`]).

use std::sync::Arc;

use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, UInt64Array};
use arrow_schema::{DataType as Arrow, SchemaRef};
use thalweg_core::{Result, TableSchema};

use super::store::NumberedRow;
use crate::capture::rows::{SERIAL, by_serial};
use crate::expiry::Expiry;
use crate::keys::{KeyTable, hash_keys};
use crate::rows::arena::{Arena, ArenaPlace};
use crate::rows::columns::{batch_of, keys_of};
use crate::tables::{KeyedTable, kept_batch, kept_columns, kept_schema, numbers_of, owners};

const WRITTEN: &str = "$written";

/// The shape of a table.
#[derive(Clone)]
pub(crate) struct KeyedRowTable {
    table: KeyedTable,
    /// The rows, or the keys.
    schema: SchemaRef,
    expires: bool,
}

/// The rows of a table.
pub(crate) struct RestoredRows<'a> {
    /// The rows, as the operator takes them.
    pub rows: RecordBatch,
    written_ms: Option<&'a [i64]>,
}

impl RestoredRows<'_> {
    /// The state of a key was last written when this row says.
    pub fn write(&self, expiry: &mut Expiry, id: u32, row: usize) {
        if let Some(written_ms) = self.written_ms {
            expiry.write(id, written_ms[row]);
        }
    }
}

impl KeyedRowTable {
    /// A table of such rows with these key columns.
    pub fn rows(columns: &TableSchema, keys: &[usize], expires: bool) -> Self {
        let own = [(WRITTEN, Arrow::Int64)];
        let table = KeyedTable::new(if expires { &own } else { &[] }, columns, keys);
        KeyedRowTable { table, schema: columns.arrow(), expires }
    }

    /// A table of keys alone.
    pub fn keys(columns: &TableSchema, expires: bool) -> Self {
        let all: Vec<usize> = (0..columns.len()).collect();
        KeyedRowTable::rows(columns, &all, expires)
    }

    /// Rows of keys, as rows of the table.
    ///
    /// # Errors
    /// If they do not fit the table.
    pub fn capture_rows(
        &self,
        keys: &KeyTable,
        expiry: &Expiry,
        arena: &Arena,
        (ids, places): (&[u32], &[ArenaPlace]),
    ) -> Result<RecordBatch> {
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        self.batch(keys, expiry, ids, arena.gather(places, &[], &all)?)
    }

    /// Keys, as rows of the table.
    ///
    /// # Errors
    /// If they cannot be decoded.
    pub fn capture_keys(
        &self,
        keys: &KeyTable,
        expiry: &Expiry,
        ids: &[u32],
    ) -> Result<RecordBatch> {
        self.batch(keys, expiry, ids, keys.take_keys(ids)?)
    }

    fn batch(
        &self,
        keys: &KeyTable,
        expiry: &Expiry,
        ids: &[u32],
        columns: Vec<ArrayRef>,
    ) -> Result<RecordBatch> {
        let written_ms = self.expires.then(|| -> ArrayRef {
            let times = ids.iter().map(|&id| expiry.written_ms(id));
            Arc::new(Int64Array::from_iter_values(times))
        });
        let owners = owners(ids.iter().map(|&id| keys.hash_of(id)));
        self.table.batch(owners, written_ms.into_iter().collect(), columns)
    }

    /// What a batch of the table says.
    ///
    /// # Errors
    /// If it is not one of this table.
    pub fn read<'b>(&self, batch: &'b RecordBatch) -> Result<RestoredRows<'b>> {
        let columns = self.table.columns(batch)?;
        let written_ms = match self.expires {
            true => Some(numbers_of::<Int64Type>(batch, WRITTEN)?),
            false => None,
        };
        let rows = batch_of(&self.schema, columns, batch.num_rows())?;
        Ok(RestoredRows { rows, written_ms })
    }
}

/// The shape of a table of rows that are captured one by one, by their serials.
pub(super) struct NumberedRows {
    schema: SchemaRef,
    rows: SchemaRef,
    keys: Vec<usize>,
}

impl NumberedRows {
    /// A table of such rows with these key columns.
    pub fn new(columns: &TableSchema, keys: &[usize]) -> Self {
        let schema = kept_schema(&[(SERIAL, Arrow::UInt64)], columns);
        NumberedRows { schema, rows: columns.arrow(), keys: keys.to_vec() }
    }

    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// These rows, as rows of the table.
    ///
    /// # Errors
    /// If they do not fit the table.
    pub fn batch(&self, rows: &[NumberedRow], arena: &Arena) -> Result<RecordBatch> {
        let places: Vec<ArenaPlace> = rows.iter().map(|&(_, place)| place).collect();
        let all: Vec<usize> = (0..self.rows.fields().len()).collect();
        let columns = arena.gather(&places, &[], &all)?;
        let hashes = hash_keys(&keys_of(&columns, &self.keys), rows.len())?;
        let serials = UInt64Array::from_iter_values(rows.iter().map(|&(serial, _)| serial));
        kept_batch(&self.schema, owners(hashes.into_iter()), vec![Arc::new(serials)], columns)
    }

    /// The rows of batches of the table, in the order of their serials.
    ///
    /// # Errors
    /// If they are not of this table.
    pub fn read(&self, batches: &[RecordBatch]) -> Result<Vec<RecordBatch>> {
        let rows = by_serial(batches)?.into_iter().map(|batch| {
            let columns = kept_columns(&batch, &self.schema, self.rows.fields().len())?;
            batch_of(&self.rows, columns, batch.num_rows())
        });
        rows.collect()
    }
}
