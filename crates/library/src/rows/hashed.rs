//! Hashes of keys that come with the rows.
//!
//! The partition of a row has to be known before the partition sees it. Reading the row for the
//! hash of its key costs about as much as working with it, so the stateless step in front of
//! [`key_by`](super::Rows::key_by), which has the row in hand, writes the hash into a column.
//!
//! **Invariant:** where a batch has the column, it holds [`hash_key`] of each row's key as the
//! operator behind it sees it. The column is made by the last step in front of that operator, so
//! nobody changes rows behind it.

use std::rc::Rc;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use thalweg_core::{Column, DataType, TableSchema};

use super::codec::packed_schema;
use super::key::{RowKey, hash_key};
use super::keyed::KeyOf;
use crate::pipeline::Stream;

/// The column of hashes, the first one.
const HASH_COLUMN: &str = "key_hash";

/// The hash of a row's key.
pub(super) type HashOf<T> = Arc<dyn Fn(&T) -> u64 + Send + Sync>;

/// Adds a step to a stream, with hashes if it gets a function for them.
type AddStep<T> = Rc<dyn Fn(Stream, Option<HashOf<T>>) -> Stream>;

/// A stateless step and the stream in front of it.
pub(super) struct LastStep<T> {
    before: Stream,
    add: AddStep<T>,
}

impl<T> Clone for LastStep<T> {
    fn clone(&self) -> Self {
        LastStep { before: self.before.clone(), add: Rc::clone(&self.add) }
    }
}

impl<T: 'static> LastStep<T> {
    pub(super) fn new(
        before: Stream,
        add: impl Fn(Stream, Option<HashOf<T>>) -> Stream + 'static,
    ) -> Self {
        LastStep { before, add: Rc::new(add) }
    }

    /// The stream behind the step.
    pub(super) fn added(&self) -> Stream {
        (self.add)(self.before.clone(), None)
    }

    /// The same with the hashes of keys.
    pub(super) fn hashed<K: RowKey>(&self, key: &KeyOf<T, K>) -> Stream {
        let key = Arc::clone(key);
        let hash: HashOf<T> = Arc::new(move |row| hash_key(&key(row)));
        (self.add)(self.before.clone(), Some(hash))
    }
}

/// The columns of packed rows, perhaps with hashes.
pub(super) fn hashed_schema(is_hashed: bool) -> TableSchema {
    let rows = packed_schema(false).columns;
    let hash = Column::new(HASH_COLUMN, DataType::BigInt.not_null());
    TableSchema::new(is_hashed.then_some(hash).into_iter().chain(rows).collect())
}

/// A column of hashes.
pub(super) fn hash_column(hashes: Vec<i64>) -> ArrayRef {
    Arc::new(Int64Array::from(hashes))
}

/// The hashes that come with the rows of a batch.
pub(super) fn hashes_of(batch: &RecordBatch) -> Option<&[i64]> {
    let is_hashed = batch.schema_ref().field(0).name() == HASH_COLUMN && batch.num_columns() == 2;
    let column = batch.column(0).as_primitive_opt::<Int64Type>().filter(|_| is_hashed)?;
    Some(column.values())
}
