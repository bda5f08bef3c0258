//! Hashes of keys that come with the rows.
//!
//! The partition of a row has to be known before the partition sees it. Reading the row for the
//! hash of its key costs about as much as working with it, so whoever makes the rows in front of
//! [`key_by`](super::Rows::key_by), and has them in hand, writes the hash into a column: a
//! stateless step, which is added once it is known what the next key is ([`LastStep`]), or an
//! operator, which is there already and learns of it ([`NextKey`]).
//!
//! **Invariants:**
//! - where a batch has the column, it holds [`hash_key`] of each row's key as the operator behind
//!   it sees it. The column is made by the last step in front of that operator, so nobody changes
//!   rows behind it;
//! - rows of an operator are hashed only if one operator alone reads them: clones share the
//!   operator, so who clones its rows settles that there is no next key.

use std::rc::Rc;
use std::sync::{Arc, OnceLock};

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

/// The hash of the key that the rows of an operator get behind it, settled before the job runs;
/// `None` where nobody else may count on it.
pub(super) struct NextKey<T>(Arc<OnceLock<Option<HashOf<T>>>>);

impl<T> Clone for NextKey<T> {
    fn clone(&self) -> Self {
        NextKey(Arc::clone(&self.0))
    }
}

impl<T: 'static> NextKey<T> {
    pub(super) fn new() -> Self {
        NextKey(Arc::default())
    }

    /// The rows get this key. False if they go to several readers.
    pub(super) fn set<K: RowKey>(&self, key: &KeyOf<T, K>) -> bool {
        self.0.set(Some(hash_of(key))).is_ok()
    }

    /// What was settled.
    pub(super) fn get(&self) -> Option<HashOf<T>> {
        self.0.get().cloned().flatten()
    }
}

impl<T> NextKey<T> {
    /// The rows go to several readers.
    pub(super) fn settle_on_none(&self) {
        // Whoever has set it has taken the rows, so nobody can clone them any more.
        let _ = self.0.set(None);
    }
}

fn hash_of<T: 'static, K: RowKey>(key: &KeyOf<T, K>) -> HashOf<T> {
    let key = Arc::clone(key);
    Arc::new(move |row| hash_key(&key(row)))
}

/// Who made the rows, and can also hash the key that is named next.
pub(super) enum Maker<T> {
    Step(LastStep<T>),
    Operator(NextKey<T>),
}

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
        (self.add)(self.before.clone(), Some(hash_of(key)))
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
