//! Key interning: tuples of column values become dense ids, so that state is plain columns.
//!
//! A [`KeyTable`] picks a layout from the column types: one integer-like column, several that fit
//! into 128 bits, one string column, any other combination (rows encoded so that equal keys are
//! equal bytes), or no key at all. Ids are dense, counted from 0, and reused once released; whoever
//! holds state per id calls [`KeyTable::release`] when the last of it is gone, so memory follows
//! the live keys. Where all keys of a table go at once, [`KeyTable::clear`] empties it.
//!
//! Two keys are equal as SQL groups them: NULL equals NULL, all NaN are one key, and 0.0 and -0.0
//! are two. [`hash_keys`] agrees with that equality and is stable across runs and versions:
//! [`partition_of`] may therefore be relied upon by routing and, later, by stored state.
//!
//! It does not count references, and it is not shared between threads.
//!
//! | layout | key columns | a key is | look-up |
//! |---|---|---|---|
//! | `Single` | none | nothing | id 0 |
//! | `Integer` | one integer-like | its value in the table | low bits, then the table |
//! | `Short`, `Packed` | several integer-like, up to 64, 128 bits | one word, two | the table |
//! | `Text` | one string | its Arrow view, long text in blocks | the table, then the text |
//! | `Rows` | all others | encoded bytes in one buffer | the table, then the bytes |
//!
//! # The life of an id
//!
//! An id is given by `intern` and belongs to its key until `release`. After that the next new key
//! may get it, within the same call. So state by id must be empty *before* its id is released, and
//! a list of ids (of a piece, a capture, a queue) must not outlive a release unless its holder
//! checks that they still mean the same key.
//!
//! **Invariants**
//! - `id_limit()` never falls except by `clear`. Columns of state are grown to it after each
//!   `intern`.
//! - `hash_of(id)` is defined for live ids only.
//! - Which ids keys get depends on the order in which they came and went, so no result may depend
//!   on ids. Where an order is promised, `CanonicalOrder` gives one that depends on the keys alone.

mod blocks;
mod canonical;
mod encoding;
mod hash;
mod ids;
mod integer;
mod low_bits;
mod packed;
pub(crate) mod ranks;
mod rows;
mod scatter;
mod text;

use arrow_array::{ArrayRef, UInt32Array};
use arrow_buffer::BooleanBufferBuilder;
use arrow_schema::DataType as Arrow;
use thalweg_core::{DataType, Error, Result};

pub use canonical::CanonicalOrder;
pub(crate) use hash::is_proved_by_hash;
pub use hash::{hash_bytes, hash_keys};
pub(crate) use ids::probe_hash;
pub use ids::{ABSENT, partition_of};
pub(crate) use scatter::{hash_rows, route_by_keys, scatter};

use ids::Ids;
use integer::IntegerTable;
use packed::PackedTable;
use rows::RowTable;
use text::TextTable;

/// In a table of more keys than fit into a cache near the core, to look at a key that stays costs
/// about this many times less than to look one up that goes.
const LOOKED_AT: usize = 8;

/// In a table of up to this many keys they are always looked up, which costs less than a walk, and
/// about as much if half of the keys go.
const LOOKED_UP: usize = 32 * 1024;

enum Layout {
    /// No key columns: one group, id 0.
    Single,
    Integer(IntegerTable),
    /// Of one word.
    Short(PackedTable<1>),
    Packed(PackedTable<2>),
    Text(TextTable),
    Rows(RowTable),
}

/// Does the same with the table of any layout, and another thing where there are no key columns.
macro_rules! with_table {
    ($layout:expr, $table:ident => $action:expr, single => $of_single:expr) => {
        match $layout {
            Layout::Single => $of_single,
            Layout::Integer($table) => $action,
            Layout::Short($table) => $action,
            Layout::Packed($table) => $action,
            Layout::Text($table) => $action,
            Layout::Rows($table) => $action,
        }
    };
}

/// Interns key tuples to dense ids.
///
/// ```
/// use std::sync::Arc;
/// use arrow_array::{ArrayRef, Int64Array};
/// use thalweg_core::DataType;
/// use thalweg_operators::keys::KeyTable;
///
/// let mut table = KeyTable::new(&[DataType::BigInt])?;
/// let column: ArrayRef = Arc::new(Int64Array::from(vec![Some(7), None, Some(7)]));
/// let mut ids = Vec::new();
/// table.intern(&[column], None, &mut ids)?;
/// assert_eq!(ids, [0, 1, 0]);
/// # Ok::<(), thalweg_core::Error>(())
/// ```
pub struct KeyTable {
    types: Vec<DataType>,
    ids: Ids,
    layout: Layout,
}

impl KeyTable {
    /// An empty table for keys of these types.
    pub fn new(types: &[DataType]) -> Result<Self> {
        let arrow: Vec<Arrow> = types.iter().map(DataType::arrow).collect();
        let layout = match arrow.as_slice() {
            [] => Layout::Single,
            [only] if integer::is_integer_like(only) => {
                Layout::Integer(IntegerTable::new(only.clone()))
            }
            few if PackedTable::<1>::fits(few) => Layout::Short(PackedTable::new(arrow)),
            several if PackedTable::<2>::fits(several) => Layout::Packed(PackedTable::new(arrow)),
            [Arrow::Utf8View] => Layout::Text(TextTable::default()),
            _ => Layout::Rows(RowTable::new(arrow)?),
        };
        let mut ids = Ids::default();
        if matches!(layout, Layout::Single) {
            ids.assign();
        }
        Ok(KeyTable { types: types.to_vec(), ids, layout })
    }

    /// Makes room for this many more keys: a table that grows in steps is rewritten with each of
    /// them.
    pub fn reserve(&mut self, more: usize) {
        with_table!(&mut self.layout, table => table.reserve(more), single => {});
    }

    /// Appends the id of each row (or of the rows named) to `ids`, giving new keys new ids. The
    /// columns have the declared types and one length.
    pub fn intern(
        &mut self,
        columns: &[ArrayRef],
        rows: Option<&[u32]>,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let single = || Err(Error::internal("a table without keys is not asked by column"));
        with_table!(
            &mut self.layout,
            table => table.intern(&mut self.ids, columns, rows, ids),
            single => single()
        )
    }

    /// Like [`KeyTable::intern`], also for tables without key columns, where every row has id 0.
    pub fn intern_rows(
        &mut self,
        columns: &[ArrayRef],
        rows: Option<&[u32]>,
        total_rows: usize,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        if matches!(self.layout, Layout::Single) {
            let count = rows.map_or(total_rows, <[u32]>::len);
            ids.resize(ids.len() + count, 0);
            return Ok(());
        }
        self.intern(columns, rows, ids)
    }

    /// Like [`KeyTable::intern_rows`] for all rows of columns that nobody else needs any more:
    /// where that costs no more memory than a copy, the table keeps theirs.
    pub fn intern_owned(
        &mut self,
        columns: &[ArrayRef],
        rows: usize,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        match &mut self.layout {
            Layout::Text(table) => {
                table.intern_owned(&mut self.ids, &columns[0], ids);
                Ok(())
            }
            _ => self.intern_rows(columns, None, rows, ids),
        }
    }

    /// Appends the id of each row, [`ABSENT`] where the key is not in the table. The columns have
    /// the declared types and `rows` rows. What it is asked by many threads at once it answers to
    /// all.
    pub fn find(&self, columns: &[ArrayRef], rows: usize, ids: &mut Vec<u32>) -> Result<()> {
        with_table!(&self.layout, table => table.find(columns, ids), single => {
            ids.resize(ids.len() + rows, 0);
            Ok(())
        })
    }

    /// Forgets a key; its id will be given to another. The single key of a table without key
    /// columns stays.
    pub fn release(&mut self, id: u32) {
        with_table!(&mut self.layout, table => table.remove(id), single => return);
        self.ids.free.push(id);
    }

    /// Forgets some keys, none of them twice. Where they are many in a large table, those that stay
    /// are looked at, too: one walk over it costs less than a look-up for each key that goes.
    ///
    /// Ids are free afterwards. All of them must be live.
    pub fn release_all(&mut self, ids: &[u32]) {
        if self.len() <= LOOKED_UP || ids.len() * LOOKED_AT < self.len() {
            ids.iter().for_each(|&id| self.release(id));
        } else {
            self.release_in_a_walk(ids);
        }
    }

    fn release_in_a_walk(&mut self, ids: &[u32]) {
        let mut gone = BooleanBufferBuilder::new(self.id_limit());
        gone.append_n(self.id_limit(), false);
        ids.iter().for_each(|&id| gone.set_bit(id as usize, true));
        let is_gone = |id: u32| gone.get_bit(id as usize);
        with_table!(&mut self.layout, table => table.remove_all(is_gone, ids), single => return);
        self.ids.free.extend_from_slice(ids);
    }

    /// Forgets all keys at once, which costs far less than one by one, and keeps the memory for
    /// others. The single key of a table without key columns stays.
    ///
    /// All ids are invalid afterwards, and numbering starts from 0.
    pub fn clear(&mut self) {
        with_table!(&mut self.layout, table => table.clear(), single => return);
        self.ids.clear();
    }

    /// False for NULL, and a number such that keys with different numbers have the order of their
    /// key bytes. `None` where a key is more than one column, or of another type.
    fn prefix(&self, id: u32) -> Option<(bool, u64)> {
        match &self.layout {
            Layout::Integer(table) => Some(table.prefix(id)),
            Layout::Text(table) => Some(table.prefix(id)),
            _ => None,
        }
    }

    /// The keys with these ids, as columns of the declared types.
    pub fn take_keys(&self, ids: &[u32]) -> Result<Vec<ArrayRef>> {
        with_table!(&self.layout, table => table.take(ids), single => Ok(Vec::new()))
    }

    /// The hash of a live key, as [`hash_keys`] gives it.
    #[inline]
    pub fn hash_of(&self, id: u32) -> u64 {
        with_table!(&self.layout, table => table.hash_of(id), single => 0)
    }
    /// The types of its keys.
    pub(crate) fn types(&self) -> &[DataType] {
        &self.types
    }
    /// False if there is one key that all rows have.
    pub(crate) fn has_columns(&self) -> bool {
        !self.types.is_empty()
    }
    /// How many keys are live.
    pub fn len(&self) -> usize {
        self.ids.live()
    }
    /// True without live keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// One more than the highest id ever given: how long a column of state must be.
    #[inline]
    pub fn id_limit(&self) -> usize {
        self.ids.limit
    }
    /// For how many keys there is memory.
    pub fn capacity(&self) -> usize {
        with_table!(&self.layout, table => table.capacity(), single => 1)
    }
    /// About how many bytes the table takes.
    pub fn bytes(&self) -> usize {
        let layout = with_table!(&self.layout, table => table.bytes(), single => 0);
        self.ids.bytes() + layout
    }
}

/// The rows named, or the column itself.
pub(crate) fn select(column: &ArrayRef, rows: Option<&[u32]>) -> Result<ArrayRef> {
    match rows {
        None => Ok(ArrayRef::clone(column)),
        Some(rows) => {
            let indices = UInt32Array::from(rows.to_vec());
            Ok(arrow_select::take::take(column, &indices, None)?)
        }
    }
}

#[cfg(test)]
mod tests;
