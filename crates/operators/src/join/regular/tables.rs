//! The tables of state of a regular join: rows of a side, and numbers of rows by key.
//!
//! Columns of a row's table, in order: the virtual partition of its key, `$serial`, `$partners`
//! where rows count their partners, `$written` where they expire, then all columns of the side.
//! Keys are not written again, as they are among these.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, UInt32Array, UInt64Array};
use arrow_schema::{DataType as Arrow, SchemaRef};
use thalweg_core::Result;

use super::plan::RegularJoinPlan;
use crate::capture::rows::SERIAL;
use crate::join::sides::Side;
use crate::keys::hash_keys;
use crate::rows::arena::{Arena, ArenaPlace};
use crate::rows::columns::{keys_of, schema_of};
use crate::tables::{KeyedTable, kept_batch, kept_schema, owners};

pub(super) const PARTNERS: &str = "$partners";
pub(super) const WRITTEN: &str = "$written";
pub(super) const ROWS: &str = "$rows";

/// A row at the time of a capture.
pub(super) struct CapturedRow {
    pub serial: u64,
    pub place: ArenaPlace,
    pub partners: u32,
    pub written_ms: i64,
}

/// How the rows of a side are captured.
pub(super) struct SideTable {
    pub schema: SchemaRef,
    rows: SchemaRef,
    keys: Vec<usize>,
    /// Rows count their partners.
    pub is_counted: bool,
    expires: bool,
}

impl SideTable {
    /// The columns of the rows.
    pub fn rows_schema(&self) -> SchemaRef {
        Arc::clone(&self.rows)
    }

    /// These rows, as rows of the table.
    pub fn batch(&self, rows: &[CapturedRow], arena: &Arena) -> Result<RecordBatch> {
        let places: Vec<ArenaPlace> = rows.iter().map(|row| row.place).collect();
        let all: Vec<usize> = (0..self.rows.fields().len()).collect();
        let columns = arena.gather(&places, &[], &all)?;
        let hashes = hash_keys(&keys_of(&columns, &self.keys), rows.len())?;
        let serials = rows.iter().map(|row| row.serial);
        let mut own: Vec<ArrayRef> = vec![Arc::new(UInt64Array::from_iter_values(serials))];
        if self.is_counted {
            let partners = rows.iter().map(|row| row.partners);
            own.push(Arc::new(UInt32Array::from_iter_values(partners)));
        }
        if self.expires {
            let times = rows.iter().map(|row| row.written_ms);
            own.push(Arc::new(Int64Array::from_iter_values(times)));
        }
        kept_batch(&self.schema, owners(hashes.into_iter()), own, columns)
    }
}

impl RegularJoinPlan {
    /// How the rows of a side are captured.
    pub fn side_table(&self, side: Side) -> SideTable {
        let (is_counted, expires) = (self.counts(side), self.ttl_ms(side).is_some());
        let mut own = vec![(SERIAL, Arrow::UInt64)];
        if is_counted {
            own.push((PARTNERS, Arrow::UInt32));
        }
        if expires {
            own.push((WRITTEN, Arrow::Int64));
        }
        let columns = self.spec.join.sides.schema(side);
        let schema = kept_schema(&own, columns);
        let keys = self.keys(side).to_vec();
        SideTable { schema, rows: columns.arrow(), keys, is_counted, expires }
    }

    /// How the numbers of rows of a side are captured.
    pub fn lengths_table(&self, side: Side) -> KeyedTable {
        let keys = schema_of(self.spec.join.sides.schema(side), self.keys(side));
        let all: Vec<usize> = (0..keys.len()).collect();
        KeyedTable::new(&[(ROWS, Arrow::UInt32)], &keys, &all)
    }
}
