//! The rows of the build side by key, never changed once made.
//!
//! **Invariants:** the rows of one key lie side by side, in the order in which they came; a row
//! with NULL in a key column is not there, since it equals nothing, unless the join asks whether
//! there is one (`NOT IN`).
//!
//! ```text
//! key id     0        1    2
//! offsets    0        2    3        5
//! rows       r0  r1   r2   r3  r4
//! ```
//!
//! Without duplicates `offsets` is empty, and a key's id is the number of its row.

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, UInt32Array, new_null_array};
use arrow_buffer::BooleanBuffer;
use arrow_schema::DataType as Arrow;
use arrow_select::concat::concat;
use arrow_select::filter::filter_record_batch;
use arrow_select::take::take;
use thalweg_core::bundle::batch_bytes;
use thalweg_core::{DataType, Error, Result};

use super::HashJoinPlan;
use crate::keys::{ABSENT, KeyTable};
use crate::rows::columns::keys_of;
use crate::rows::input::joinable;

/// Rows that can be looked up.
pub(super) struct Table {
    keys: KeyTable,
    columns: Vec<ArrayRef>,
    types: Vec<Arrow>,
    /// Where the rows of each key begin, and where the last ones end. Empty where every key has one
    /// row: its number is that of the key.
    offsets: Vec<u32>,
    rows: usize,
    bytes: usize,
    /// True if there is a row whose key is NULL.
    has_null: bool,
}

impl Table {
    /// The key of each row, [`ABSENT`] where it has no partner.
    pub fn find(&self, keys: &[ArrayRef], rows: usize, ids: &mut Vec<u32>) -> Result<()> {
        // The id of NULL was never given.
        self.keys.find(keys, rows, ids)
    }

    /// For `NOT IN`, of rows with these keys: which are, or could be, in the table.
    pub fn could_hold(&self, key: &ArrayRef, ids: &[u32]) -> BooleanBuffer {
        let is_null = |row| key.nulls().is_some_and(|nulls| nulls.is_null(row));
        let could = |row| self.has_null || ids[row] != ABSENT || is_null(row);
        BooleanBuffer::collect_bool(ids.len(), |row| self.rows > 0 && could(row))
    }

    /// True if no key has two rows: the number of a key is that of its row.
    pub fn is_unique(&self) -> bool {
        self.offsets.is_empty()
    }

    /// The rows of a key that is there.
    #[inline]
    pub fn rows_of(&self, id: u32) -> std::ops::Range<u32> {
        match self.offsets.get(id as usize..id as usize + 2) {
            Some(ends) => ends[0]..ends[1],
            None => id..id + 1,
        }
    }

    /// Some rows, NULL where the number is [`ABSENT`].
    pub fn take(&self, rows: Vec<u32>) -> Result<Vec<ArrayRef>> {
        self.take_columns(rows, 0..self.types.len())
    }

    /// Some columns of these.
    pub fn take_columns(
        &self,
        rows: Vec<u32>,
        columns: impl Iterator<Item = usize>,
    ) -> Result<Vec<ArrayRef>> {
        let count = rows.len();
        if self.rows == 0 {
            return Ok(columns.map(|column| new_null_array(&self.types[column], count)).collect());
        }
        let indices = match rows.contains(&ABSENT) {
            false => UInt32Array::from(rows),
            true => rows.iter().map(|&row| (row != ABSENT).then_some(row)).collect(),
        };
        columns.map(|column| Ok(take(&self.columns[column], &indices, None)?)).collect()
    }

    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The columns that are kept, empty where nobody reads them, and how many rows there are.
    pub fn columns(&self) -> (&[ArrayRef], usize) {
        (&self.columns, self.rows)
    }

    /// The key columns of each key.
    pub fn keys(&self) -> Result<Vec<ArrayRef>> {
        let ids: Vec<u32> = (0..self.keys.id_limit() as u32).collect();
        self.keys.take_keys(&ids)
    }

    /// How many keys there are.
    pub fn key_count(&self) -> usize {
        self.keys.id_limit()
    }
}

/// Takes the rows of the build side until it has ended.
pub(super) struct Collected {
    keys: KeyTable,
    /// The key of each row.
    ids: Vec<u32>,
    batches: Vec<RecordBatch>,
    bytes: usize,
}

impl Collected {
    pub fn new(plan: &HashJoinPlan) -> Result<Self> {
        let keys = KeyTable::new(&plan.joined.key_types)?;
        Ok(Collected { keys, ids: Vec::new(), batches: Vec::new(), bytes: 0 })
    }

    /// Takes rows.
    pub fn add(&mut self, plan: &HashJoinPlan, batch: RecordBatch) -> Result<()> {
        let keys = plan.spec.join.keys(plan.spec.build);
        let mut batch = batch;
        let without_null = joinable(&keys_of(batch.columns(), keys));
        if let Some(valid) = without_null.filter(|_| !plan.spec.is_null_aware) {
            batch = filter_record_batch(&batch, &valid.into_inner().into())?;
        }
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let keys = keys_of(batch.columns(), keys);
        self.keys.intern_rows(&keys, None, batch.num_rows(), &mut self.ids)?;
        if self.ids.len() >= ABSENT as usize {
            return Err(Error::resource("the build side of a join has more than 4 billion rows")
                .hint("let the other side be read first, or filter the rows"));
        }
        self.bytes += batch_bytes(&batch);
        self.batches.push(batch);
        Ok(())
    }

    /// About how many bytes the rows take.
    pub fn bytes(&self) -> usize {
        self.keys.bytes() + self.ids.capacity() * 4 + self.bytes
    }

    /// The rows that have come so far.
    pub fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    /// How many keys they have.
    pub fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// How many rows these are.
    pub fn count(&self) -> u64 {
        self.ids.len() as u64
    }

    /// The table of these rows.
    pub fn into_table(self, plan: &HashJoinPlan) -> Result<Table> {
        let Collected { keys, ids, batches, .. } = self;
        let schema = plan.spec.join.sides.schema(plan.spec.build);
        let types: Vec<Arrow> =
            schema.columns.iter().map(|column| column.column_type.data_type.arrow()).collect();
        let rows = ids.len();
        let has_null = plan.spec.is_null_aware && has_null_key(&keys, plan)?;
        let (offsets, order) = by_key(&ids, keys.id_limit());
        drop(ids);
        let is_read = plan.joined.reads(plan.spec.build);
        let column = |place: usize| column(&batches, place, order.as_ref());
        let columns: Vec<ArrayRef> = match is_read && rows > 0 {
            true => (0..types.len()).map(column).collect::<Result<_>>()?,
            false => Vec::new(),
        };
        let of_columns: usize = columns.iter().map(|column| column.get_array_memory_size()).sum();
        let bytes = keys.bytes() + of_columns + offsets.capacity() * 4;
        Ok(Table { keys, columns, types, offsets, rows, bytes, has_null })
    }
}

/// True if one of the keys is NULL.
fn has_null_key(keys: &KeyTable, plan: &HashJoinPlan) -> Result<bool> {
    let null = |of: &DataType| new_null_array(&of.arrow(), 1);
    let nulls: Vec<ArrayRef> = plan.joined.key_types.iter().map(null).collect();
    let mut ids = Vec::new();
    keys.find(&nulls, 1, &mut ids)?;
    Ok(ids.iter().any(|&id| id != ABSENT))
}

/// Where the rows of each key begin once they lie by key, and which row comes where; nothing where
/// each key has one row, since keys are numbered as they come.
fn by_key(ids: &[u32], keys: usize) -> (Vec<u32>, Option<UInt32Array>) {
    if ids.len() == keys {
        return (Vec::new(), None);
    }
    let mut offsets = vec![0u32; keys + 1];
    ids.iter().for_each(|&id| offsets[id as usize + 1] += 1);
    (0..keys).for_each(|key| offsets[key + 1] += offsets[key]);
    let mut next = offsets.clone();
    let mut order = vec![0u32; ids.len()];
    for (row, &id) in ids.iter().enumerate() {
        let place = &mut next[id as usize];
        order[*place as usize] = row as u32;
        *place += 1;
    }
    (offsets, Some(order.into()))
}

/// One column of all batches.
fn column(batches: &[RecordBatch], place: usize, order: Option<&UInt32Array>) -> Result<ArrayRef> {
    let parts: Vec<&dyn arrow_array::Array> =
        batches.iter().map(|batch| batch.column(place).as_ref()).collect();
    let mut column = concat(&parts)?;
    if let Some(order) = order {
        column = take(&column, order, None)?;
    }
    // Views into the blocks that were read would keep all of those.
    Ok(match column.as_string_view_opt() {
        Some(texts) => std::sync::Arc::new(texts.gc()),
        None => column,
    })
}
