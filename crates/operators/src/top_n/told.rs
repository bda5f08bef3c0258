//! How what is kept for keys is told: rows that lie in an arena, and keys alone. Where state is kept for a
//! limited time, `$written` says when that of the key was last written, in milliseconds since 1970.

use std::sync::Arc;

use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType as Arrow, Schema, SchemaRef};
use thalweg_core::snapshot::TableRows;
use thalweg_core::{Captured, Result, TableSchema};

use crate::expiry::Expiry;
use crate::join::regular::arena::{Arena, Place};
use crate::keys::KeyTable;
use crate::tables::{ToldPlaces, kept_batch, kept_columns, kept_schema, numbers_of, owners, tell};

const WRITTEN: &str = "$written";

/// The shape of a table.
pub(super) struct Told<'a> {
    name: &'static str,
    /// The columns of the rows, or of the keys.
    columns: &'a TableSchema,
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

impl<'a> Told<'a> {
    /// A table of such rows, or keys.
    pub fn new(name: &'static str, columns: &'a TableSchema, expiry: &Option<Expiry>) -> Self {
        Told { name, columns, expires: expiry.is_some() }
    }

    fn schema(&self) -> SchemaRef {
        let own = [(WRITTEN, Arrow::Int64)];
        kept_schema(if self.expires { &own } else { &[] }, self.columns)
    }

    /// Tells rows of keys, which are put together later.
    pub fn tell_rows(
        &self,
        captured: &mut Captured,
        keys: &KeyTable,
        expiry: &Option<Expiry>,
        arena: &Arena,
        rows: impl Iterator<Item = (u32, Place)>,
    ) {
        let (mut told, mut written_ms) = (ToldPlaces::default(), Vec::new());
        for (id, place) in rows {
            told.push(keys.hash_of(id), place);
            written_ms.extend(expiry.as_ref().map(|expiry| expiry.written_ms(id)));
        }
        let (schema, arena) = (self.schema(), arena.frozen());
        let (of_table, expires) = (Arc::clone(&schema), self.expires);
        let make = move || {
            let written: ArrayRef = Arc::new(Int64Array::from(written_ms));
            let own = if expires { vec![written] } else { Vec::new() };
            Ok(TableRows { rows: told.batches(&of_table, &own, &arena)?, removed: Vec::new() })
        };
        captured.add_later(self.name, schema, Box::new(make));
    }

    /// Tells keys.
    ///
    /// # Errors
    /// If they cannot be decoded.
    pub fn tell_keys(
        &self,
        captured: &mut Captured,
        keys: &KeyTable,
        expiry: &Option<Expiry>,
        ids: &[u32],
    ) -> Result<()> {
        let written_ms = expiry.iter().map(|expiry| -> ArrayRef {
            let times = ids.iter().map(|&id| expiry.written_ms(id));
            Arc::new(Int64Array::from_iter_values(times))
        });
        let owners = owners(ids.iter().map(|&id| keys.hash_of(id)));
        let columns = keys.take_keys(ids)?;
        let batch = kept_batch(&self.schema(), owners, written_ms.collect(), columns)?;
        tell(captured, self.name, batch);
        Ok(())
    }

    /// What a batch of the table says.
    ///
    /// # Errors
    /// If it is not one of this table.
    pub fn take_back<'b>(&self, batch: &'b RecordBatch) -> Result<TakenBack<'b>> {
        let columns = kept_columns(batch, &self.schema(), self.columns.len())?;
        let written_ms = match self.expires {
            true => Some(numbers_of::<Int64Type>(batch, WRITTEN)?),
            false => None,
        };
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let fields = batch.schema_ref().fields().iter().skip(batch.num_columns() - columns.len());
        let schema = Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>()));
        let rows = RecordBatch::try_new_with_options(schema, columns, &options)?;
        Ok(TakenBack { rows, written_ms })
    }
}
