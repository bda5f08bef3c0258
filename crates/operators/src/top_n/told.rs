//! How what is kept for keys is told: rows that lie in an arena, and keys alone. Where state is kept for a
//! limited time, `$written` says when that of the key was last written, in milliseconds since 1970.
//!
//! Columns of the key stand first ([`KeyedTable`]).

use std::sync::Arc;

use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, UInt8Array};
use arrow_schema::{DataType as Arrow, SchemaRef};
use thalweg_core::snapshot::{CapturedTable, TableRows};
use thalweg_core::{Extent, Result, TableSchema};

use crate::expiry::Expiry;
use crate::join::regular::arena::{Arena, Place};
use crate::keys::KeyTable;
use crate::tables::{KEPT_ROWS_MAX, KeyedTable, numbers_of, owners, virtual_partition};

const WRITTEN: &str = "$written";

/// The shape of a table.
#[derive(Clone)]
pub(super) struct Told {
    table: KeyedTable,
    /// The rows, or the keys.
    schema: SchemaRef,
    expires: bool,
}

/// What a table tells of some rows.
pub(super) struct TakenBack<'a> {
    /// The rows, as the operator takes them.
    pub rows: RecordBatch,
    written_ms: Option<&'a [i64]>,
}

impl TakenBack<'_> {
    /// The state of a key was last written when this row says.
    pub fn write(&self, expiry: &mut Option<Expiry>, id: u32, row: usize) {
        if let (Some(expiry), Some(written_ms)) = (expiry, self.written_ms) {
            expiry.write(id, written_ms[row]);
        }
    }
}

impl Told {
    /// A table of such rows with these key columns.
    pub fn rows(columns: &TableSchema, keys: &[usize], expires: bool) -> Self {
        let own = [(WRITTEN, Arrow::Int64)];
        let table = KeyedTable::new(if expires { &own } else { &[] }, columns, keys);
        Told { table, schema: columns.arrow(), expires }
    }

    /// A table of keys alone.
    pub fn keys(columns: &TableSchema, expires: bool) -> Self {
        let all: Vec<usize> = (0..columns.len()).collect();
        Told::rows(columns, &all, expires)
    }

    /// Rows of keys, as rows of the table.
    ///
    /// # Errors
    /// If they do not fit the table.
    pub fn tell_rows(
        &self,
        keys: &KeyTable,
        expiry: &Option<Expiry>,
        arena: &Arena,
        (ids, places): (&[u32], &[Place]),
    ) -> Result<RecordBatch> {
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        self.tell(keys, expiry, ids, arena.gather(places, &[], &all)?)
    }

    /// Tells rows of keys whole: their places are noted now, and they are put together later.
    pub fn tell_later(
        &self,
        name: &'static str,
        keys: &KeyTable,
        expiry: &Option<Expiry>,
        arena: &Arena,
        rows: impl Iterator<Item = (u32, Place)>,
    ) -> CapturedTable {
        let (mut owners, mut places, mut written_ms) = (Vec::new(), Vec::new(), Vec::new());
        for (id, place) in rows {
            owners.push(virtual_partition(keys.hash_of(id)));
            places.push(place);
            written_ms.extend(expiry.as_ref().map(|expiry| expiry.written_ms(id)));
        }
        let (told, arena) = (self.clone(), arena.frozen());
        let make = move || {
            let all: Vec<usize> = (0..told.schema.fields().len()).collect();
            let batch = |from: usize| {
                let range = from..places.len().min(from + KEPT_ROWS_MAX);
                let owners = UInt8Array::from(owners[range.clone()].to_vec());
                let written = || Int64Array::from(written_ms[range.clone()].to_vec());
                let own = told.expires.then(|| -> ArrayRef { Arc::new(written()) });
                let columns = arena.gather(&places[range.clone()], &[], &all)?;
                told.table.batch(Arc::new(owners), own.into_iter().collect(), columns)
            };
            let rows = (0..places.len()).step_by(KEPT_ROWS_MAX).map(batch);
            Ok(TableRows { rows: rows.collect::<Result<_>>()?, removed: Vec::new() })
        };
        let (schema, extent, rows) = (self.table.schema(), Extent::Whole, Box::new(make));
        CapturedTable { name, schema, extent, identity_columns: 0, kept_from: None, rows }
    }

    /// Keys, as rows of the table.
    ///
    /// # Errors
    /// If they cannot be decoded.
    pub fn tell_keys(
        &self,
        keys: &KeyTable,
        expiry: &Option<Expiry>,
        ids: &[u32],
    ) -> Result<RecordBatch> {
        self.tell(keys, expiry, ids, keys.take_keys(ids)?)
    }

    fn tell(
        &self,
        keys: &KeyTable,
        expiry: &Option<Expiry>,
        ids: &[u32],
        columns: Vec<ArrayRef>,
    ) -> Result<RecordBatch> {
        let written_ms = expiry.iter().filter(|_| self.expires).map(|expiry| -> ArrayRef {
            let times = ids.iter().map(|&id| expiry.written_ms(id));
            Arc::new(Int64Array::from_iter_values(times))
        });
        let owners = owners(ids.iter().map(|&id| keys.hash_of(id)));
        self.table.batch(owners, written_ms.collect(), columns)
    }

    /// What a batch of the table says.
    ///
    /// # Errors
    /// If it is not one of this table.
    pub fn take_back<'b>(&self, batch: &'b RecordBatch) -> Result<TakenBack<'b>> {
        let columns = self.table.columns(batch)?;
        let written_ms = match self.expires {
            true => Some(numbers_of::<Int64Type>(batch, WRITTEN)?),
            false => None,
        };
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let schema = Arc::clone(&self.schema);
        let rows = RecordBatch::try_new_with_options(schema, columns, &options)?;
        Ok(TakenBack { rows, written_ms })
    }
}
