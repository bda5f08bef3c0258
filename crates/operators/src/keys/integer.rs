//! Keys of one integer-like column: the value stands in the hash table itself, so that a look-up
//! touches one cache line, and most rows do without it ([`LowBits`]).
//!
//! **Invariants**
//! - A key is in `table` exactly while it has an id; NULL has its id in `null` alone.
//! - `keys[id]` is the key of a live id. For NULL and for free ids it is meaningless, so no guess
//!   may lead there: `remove` and `null_id` take the id out of `low_bits` first.
//! - All types are widened to `i64`. The table never sees which type a key has, and `take` narrows
//!   the values back.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Int8Type, Int16Type, Int32Type, Int64Type, Time32MillisecondType,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
};
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType as Arrow, TimeUnit};
use thalweg_core::Result;
use thalweg_core::shim::mix64;

use super::ids::NULL_HASH;
use super::ids::{ABSENT, Ids};
use super::low_bits::LowBits;
use crate::gradual::{Entry, GradualTable, Pages};
use crate::rows::columns::retyped;

/// True for the types that [`values`] reads.
pub(super) fn is_integer_like(data_type: &Arrow) -> bool {
    matches!(
        data_type,
        Arrow::Boolean
            | Arrow::Int8
            | Arrow::Int16
            | Arrow::Int32
            | Arrow::Int64
            | Arrow::Date32
            | Arrow::Time32(TimeUnit::Millisecond)
            | Arrow::Timestamp(
                TimeUnit::Millisecond | TimeUnit::Microsecond | TimeUnit::Nanosecond,
                _
            )
    )
}

/// The values of an integer-like column; what stands at a NULL is meaningless.
pub(super) fn values(column: &ArrayRef) -> Cow<'_, [i64]> {
    macro_rules! widened {
        ($type:ty) => {
            Cow::Owned(column.as_primitive::<$type>().values().iter().map(|&v| v.into()).collect())
        };
    }
    macro_rules! as_is {
        ($type:ty) => {
            Cow::Borrowed(column.as_primitive::<$type>().values())
        };
    }
    match column.data_type() {
        Arrow::Boolean => Cow::Owned(column.as_boolean().values().iter().map(i64::from).collect()),
        Arrow::Int8 => widened!(Int8Type),
        Arrow::Int16 => widened!(Int16Type),
        Arrow::Int32 => widened!(Int32Type),
        Arrow::Date32 => widened!(Date32Type),
        Arrow::Time32(_) => widened!(Time32MillisecondType),
        Arrow::Timestamp(TimeUnit::Millisecond, _) => as_is!(TimestampMillisecondType),
        Arrow::Timestamp(TimeUnit::Microsecond, _) => as_is!(TimestampMicrosecondType),
        Arrow::Timestamp(_, _) => as_is!(TimestampNanosecondType),
        _ => as_is!(Int64Type),
    }
}

/// The values where they stand in the column as 64 bits.
fn as_longs(column: &ArrayRef) -> Option<&[i64]> {
    match values(column) {
        Cow::Borrowed(values) => Some(values),
        Cow::Owned(_) => None,
    }
}

/// The values of a column of 64 bits without NULL.
pub(super) fn plain_longs(column: &ArrayRef) -> Option<&[i64]> {
    let is_plain = is_integer_like(column.data_type()) && column.null_count() == 0;
    is_plain.then(|| as_longs(column)).flatten()
}

/// The values of the rows named, without a look at the others: a piece may be a small part of a
/// bundle.
pub(super) fn values_at(column: &ArrayRef, rows: &[u32]) -> Vec<i64> {
    macro_rules! gathered {
        ($type:ty) => {{
            let values = column.as_primitive::<$type>().values();
            rows.iter().map(|&row| values[row as usize].into()).collect()
        }};
    }
    match column.data_type() {
        Arrow::Boolean => {
            let values = column.as_boolean().values();
            rows.iter().map(|&row| values.value(row as usize).into()).collect()
        }
        Arrow::Int8 => gathered!(Int8Type),
        Arrow::Int16 => gathered!(Int16Type),
        Arrow::Int32 => gathered!(Int32Type),
        Arrow::Date32 => gathered!(Date32Type),
        Arrow::Time32(_) => gathered!(Time32MillisecondType),
        Arrow::Timestamp(TimeUnit::Millisecond, _) => gathered!(TimestampMillisecondType),
        Arrow::Timestamp(TimeUnit::Microsecond, _) => gathered!(TimestampMicrosecondType),
        Arrow::Timestamp(_, _) => gathered!(TimestampNanosecondType),
        _ => gathered!(Int64Type),
    }
}

/// A column of an integer-like type with these values.
pub(super) fn array_of(
    data_type: &Arrow,
    keys: impl Iterator<Item = i64>,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    let values: ArrayRef = Arc::new(Int64Array::new(keys.collect(), nulls));
    match data_type {
        Arrow::Boolean => {
            let longs = values.as_primitive::<Int64Type>();
            Arc::new(BooleanArray::from_unary(longs, |key| key != 0))
        }
        Arrow::Date32 | Arrow::Time32(_) => retyped(retyped(values, &Arrow::Int32), data_type),
        _ => retyped(values, data_type),
    }
}

/// Where the table looks for a key: one multiplication whose halves are folded. The hash that says
/// which partition owns a key is another one and computed where it is asked for, not for each row.
#[inline(always)]
fn probe(key: i64) -> u64 {
    let product =
        u128::from(key as u64 ^ 0x9E37_79B9_7F4A_7C15) * u128::from(0xD6E8_FEB8_6659_FD93_u64);
    product as u64 ^ (product >> 64) as u64
}

#[derive(Clone, Copy)]
struct IntegerEntry {
    key: i64,
    id: u32,
}

pub(super) struct IntegerTable {
    data_type: Arrow,
    table: GradualTable<IntegerEntry>,
    /// Ids of keys that stand in the table.
    low_bits: LowBits,
    null: Option<u32>,
    /// The key of each id; meaningless for NULL and for free ids.
    keys: Pages<i64>,
}

impl IntegerTable {
    pub fn new(data_type: Arrow) -> Self {
        let (table, low_bits, keys) = Default::default();
        IntegerTable { data_type, table, low_bits, null: None, keys }
    }

    pub fn intern(
        &mut self,
        ids: &mut Ids,
        columns: &[ArrayRef],
        rows: Option<&[u32]>,
        out: &mut Vec<u32>,
    ) -> Result<()> {
        let column = &columns[0];
        let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
        if let (Some(rows), None, Some(values)) = (rows, nulls, as_longs(column)) {
            out.extend(rows.iter().map(|&row| self.id(ids, values[row as usize])));
            return Ok(());
        }
        let values = match rows {
            None => values(column),
            Some(rows) => Cow::Owned(values_at(column, rows)),
        };
        match nulls {
            None => out.extend(values.iter().map(|&key| self.id(ids, key))),
            Some(nulls) => out.extend(values.iter().enumerate().map(|(place, &key)| {
                let row = rows.map_or(place, |rows| rows[place] as usize);
                if nulls.is_valid(row) { self.id(ids, key) } else { self.null_id(ids) }
            })),
        }
        Ok(())
    }

    /// Appends the ids of keys that are there.
    pub fn find(&self, columns: &[ArrayRef], out: &mut Vec<u32>) -> Result<()> {
        let column = &columns[0];
        let values = values(column);
        let find = |key: i64| match self.table.find(probe(key), |entry| entry.key == key) {
            Some(entry) => entry.id,
            None => ABSENT,
        };
        match column.nulls().filter(|nulls| nulls.null_count() > 0) {
            None => out.extend(values.iter().map(|&key| find(key))),
            Some(nulls) => out.extend(values.iter().enumerate().map(|(row, &key)| {
                if nulls.is_valid(row) { find(key) } else { self.null.unwrap_or(ABSENT) }
            })),
        }
        Ok(())
    }

    #[inline(always)]
    fn id(&mut self, ids: &mut Ids, key: i64) -> u32 {
        match self.low_bits.guess(key) {
            // The number of an id that is absent is not below that of keys.
            Some(id) if self.keys.get(id as usize) == Some(&key) => id,
            _ => self.look_up(ids, key),
        }
    }

    #[inline(always)]
    fn look_up(&mut self, ids: &mut Ids, key: i64) -> u32 {
        let is_it = |entry: &IntegerEntry| entry.key == key;
        let id = match self.table.entry(probe(key), is_it, |entry| probe(entry.key)) {
            Entry::Occupied(entry) => entry.id,
            Entry::Vacant(place) => {
                let id = ids.assign();
                place.insert(IntegerEntry { key, id });
                self.low_bits.add(key, self.table.len());
                self.remember(id, key);
                id
            }
        };
        self.low_bits.learn(key, id);
        id
    }

    /// Makes room for this many more keys.
    pub fn reserve(&mut self, more: usize) {
        self.table.reserve(more, |entry| probe(entry.key));
        self.low_bits.fit(self.table.len() + more);
        self.keys.reserve(more);
    }

    fn null_id(&mut self, ids: &mut Ids) -> u32 {
        if let Some(id) = self.null {
            return id;
        }
        let id = ids.assign();
        // Before all keys were forgotten this may have been the id of what stands for NULL here.
        self.low_bits.forget(0, id);
        self.remember(id, 0);
        self.null = Some(id);
        id
    }

    #[inline(always)]
    fn remember(&mut self, id: u32, key: i64) {
        self.keys.put(id as usize, key);
    }

    pub fn remove(&mut self, id: u32) {
        if self.null == Some(id) {
            self.null = None;
            return;
        }
        let key = self.keys[id as usize];
        self.low_bits.forget(key, id);
        self.table.remove(probe(key), |entry| entry.id == id);
    }

    /// Forgets the keys with such ids.
    pub fn remove_all(&mut self, is_gone: impl Fn(u32) -> bool, _ids: &[u32]) {
        self.null = self.null.filter(|&id| !is_gone(id));
        let low_bits = &mut self.low_bits;
        self.table.retain(|&mut IntegerEntry { key, id }| {
            let stays = !is_gone(id);
            if !stays {
                low_bits.forget(key, id);
            }
            stays
        });
    }

    pub fn clear(&mut self) {
        self.table.clear();
        self.null = None;
        self.keys.clear();
    }

    /// False for NULL, and a number that has the order of the keys.
    pub fn prefix(&self, id: u32) -> (bool, u64) {
        let key = self.keys[id as usize] as u64 ^ 1 << 63;
        if self.null == Some(id) { (false, 0) } else { (true, key) }
    }

    /// The hash that [`hash_keys`](super::hash_keys) gives.
    #[inline]
    pub fn hash_of(&self, id: u32) -> u64 {
        if self.null == Some(id) { NULL_HASH } else { mix64(self.keys[id as usize] as u64) }
    }

    /// For how many keys there is memory.
    pub fn capacity(&self) -> usize {
        self.keys.capacity()
    }

    pub fn take(&self, ids: &[u32]) -> Result<Vec<ArrayRef>> {
        // Most often NULL is no key, or none of these: then values are copied without a test each.
        let null = self.null.filter(|null| ids.contains(null));
        let keys = ids.iter().map(|&id| self.keys[id as usize]);
        let nulls = null.map(|null| ids.iter().map(|&id| id != null).collect::<NullBuffer>());
        Ok(vec![array_of(&self.data_type, keys, nulls)])
    }

    pub fn bytes(&self) -> usize {
        self.table.bytes() + self.low_bits.bytes() + self.keys.bytes()
    }
}
