//! Keys of one string column. Strings of at most 12 bytes are compared as the 16 bytes of their
//! Arrow view, which hold length and text; longer ones by length, first four bytes, hash, and then
//! their bytes, which lie in [`TextBlocks`].
//!
//! **Invariants**
//! - The entry of a long key has the hash in its high half, so most entries that are not meant are
//!   rejected without a look at their text.
//! - `views[id]` is 0 for NULL and for free ids. 0 is also the view of the empty string, so it does
//!   not say that an id is free: only the table does.
//! - Hashes of a block of rows are computed first. Nothing in between depends on them, so the
//!   memory reads of the look-ups overlap.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, StringViewArray};
use thalweg_core::Result;

use super::blocks::{TextBlocks, Texts, is_long};
use super::hash::{hash_bytes, hash_u128, hash_view};
use super::ids::NULL_HASH;
use super::ids::{ABSENT, Ids, probe_hash};
use crate::gradual::{self, GradualTable, Pages};

/// This many rows are hashed before they are looked up: look-ups then wait for the memory together
/// and not one after the other.
const HASHED_ROWS: usize = 256;

/// Low and high half of a view; for long strings the high half is the hash, since the place of
/// the text in its buffer says nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
struct TextEntry {
    low: u64,
    high: u64,
    id: u32,
}

/// Where the table looks for a text.
fn probe(entry: &TextEntry) -> u64 {
    let TextEntry { low, high, .. } = *entry;
    let view = u128::from(high) << 64 | u128::from(low);
    probe_hash(if is_long(view) { high } else { hash_u128(view) })
}

#[derive(Default)]
pub(super) struct TextTable {
    table: GradualTable<TextEntry>,
    null: Option<u32>,
    /// The hash of each id; meaningless for free ids.
    hashes: Pages<u64>,
    /// The view of each id; 0 where there is no such key.
    views: Pages<u128>,
    /// What views of long strings point to.
    blocks: TextBlocks,
}

/// The rows of a column that are interned.
struct Column<'a> {
    strings: &'a StringViewArray,
    /// The first of the table's blocks that are those of the column, where they were taken over.
    taken: Option<u32>,
}

impl TextTable {
    pub fn intern(
        &mut self,
        ids: &mut Ids,
        columns: &[ArrayRef],
        rows: Option<&[u32]>,
        out: &mut Vec<u32>,
    ) -> Result<()> {
        let strings = columns[0].as_string_view();
        let views = strings.views();
        let has_nulls = strings.null_count() > 0;
        match rows {
            None if has_nulls || !strings.data_buffers().is_empty() => {
                let column = Column { strings, taken: None };
                self.intern_hashed(ids, &column, views.len(), |place| place, out);
            }
            Some(rows) if has_nulls || !strings.data_buffers().is_empty() => {
                let column = Column { strings, taken: None };
                let row_at = |place: usize| rows[place] as usize;
                self.intern_hashed(ids, &column, rows.len(), row_at, out);
            }
            None => {
                out.extend(views.iter().map(|&view| self.short_id(ids, view, hash_u128(view))));
            }
            Some(rows) => out.extend(rows.iter().map(|&row| {
                let view = views[row as usize];
                self.short_id(ids, view, hash_u128(view))
            })),
        }
        Ok(())
    }

    /// The same for all rows of a column that nobody else needs: its memory may become the table's.
    pub fn intern_owned(&mut self, ids: &mut Ids, column: &ArrayRef, out: &mut Vec<u32>) {
        let strings = column.as_string_view();
        let column = Column { strings, taken: self.blocks.take_over(strings) };
        self.intern_hashed(ids, &column, strings.len(), |place| place, out);
        if let Some(first) = column.taken {
            self.blocks.end_take_over(first, &mut self.views);
        }
    }

    fn intern_hashed(
        &mut self,
        ids: &mut Ids,
        column: &Column<'_>,
        rows: usize,
        row_at: impl Fn(usize) -> usize,
        out: &mut Vec<u32>,
    ) {
        let strings = column.strings;
        let (views, nulls) = (strings.views(), strings.nulls());
        let is_null = |row: usize| nulls.is_some_and(|nulls| nulls.is_null(row));
        let hash_of = |row: usize| match is_null(row) {
            true => NULL_HASH,
            false => hash_view(views[row], || hash_bytes(strings.value(row).as_bytes())),
        };
        let mut hashes = [0; HASHED_ROWS];
        out.reserve(rows);
        for from in (0..rows).step_by(HASHED_ROWS) {
            let places = from..rows.min(from + HASHED_ROWS);
            for (hash, place) in hashes.iter_mut().zip(places.clone()) {
                *hash = hash_of(row_at(place));
            }
            for (&hash, place) in hashes.iter().zip(places) {
                let row = row_at(place);
                out.push(match views[row] {
                    _ if is_null(row) => self.null_id(ids),
                    view if is_long(view) => self.long_id(ids, column, row, hash),
                    view => self.short_id(ids, view, hash),
                });
            }
        }
    }

    /// Makes room for this many more keys.
    pub fn reserve(&mut self, more: usize) {
        self.table.reserve(more, probe);
        self.hashes.reserve(more);
        self.views.reserve(more);
    }

    /// Appends the ids of keys that are there.
    pub fn find(&self, columns: &[ArrayRef], out: &mut Vec<u32>) -> Result<()> {
        let strings = columns[0].as_string_view();
        let views = strings.views();
        let one = |row: usize| self.find_one(strings, row, views[row]).unwrap_or(ABSENT);
        match strings.nulls().filter(|nulls| nulls.null_count() > 0) {
            None => out.extend((0..views.len()).map(one)),
            Some(nulls) => out.extend((0..views.len()).map(|row| match nulls.is_valid(row) {
                true => one(row),
                false => self.null.unwrap_or(ABSENT),
            })),
        }
        Ok(())
    }

    #[inline(always)]
    fn find_one(&self, strings: &StringViewArray, row: usize, view: u128) -> Option<u32> {
        if is_long(view) {
            let text = strings.value(row).as_bytes();
            return self.find_long(text, hash_bytes(text), view);
        }
        let (low, high) = (view as u64, (view >> 64) as u64);
        let is_it = |entry: &TextEntry| entry.low == low && entry.high == high;
        self.table.find(probe_hash(hash_u128(view)), is_it).map(|entry| entry.id)
    }

    #[inline(always)]
    fn find_long(&self, text: &[u8], hash: u64, view: u128) -> Option<u32> {
        let low = view as u64;
        let is_it = |entry: &TextEntry| {
            let own = || self.blocks.bytes_of(self.views[entry.id as usize]);
            entry.low == low && entry.high == hash && own() == text
        };
        self.table.find(probe_hash(hash), is_it).map(|entry| entry.id)
    }

    #[inline(always)]
    fn short_id(&mut self, ids: &mut Ids, view: u128, hash: u64) -> u32 {
        let (low, high) = (view as u64, (view >> 64) as u64);
        let is_it = |entry: &TextEntry| entry.low == low && entry.high == high;
        let place = match self.table.entry(probe_hash(hash), is_it, probe) {
            gradual::Entry::Occupied(entry) => return entry.id,
            gradual::Entry::Vacant(place) => place,
        };
        let id = ids.assign();
        place.insert(TextEntry { low, high, id });
        self.remember(id, hash, view);
        id
    }

    #[inline(always)]
    fn long_id(&mut self, ids: &mut Ids, column: &Column<'_>, row: usize, hash: u64) -> u32 {
        let (text, view) = (column.strings.value(row), column.strings.views()[row]);
        let low = view as u64;
        let is_it = |entry: &TextEntry| {
            let own = || self.blocks.bytes_of(self.views[entry.id as usize]);
            entry.low == low && entry.high == hash && own() == text.as_bytes()
        };
        let place = match self.table.entry(probe_hash(hash), is_it, probe) {
            gradual::Entry::Occupied(entry) => return entry.id,
            gradual::Entry::Vacant(place) => place,
        };
        let id = ids.assign();
        place.insert(TextEntry { low, high: hash, id });
        let view = match column.taken {
            Some(first) => self.blocks.put_taken(id, view, first),
            None => self.blocks.put(id, text, view),
        };
        self.remember(id, hash, view);
        id
    }

    fn null_id(&mut self, ids: &mut Ids) -> u32 {
        if let Some(id) = self.null {
            return id;
        }
        let id = ids.assign();
        self.remember(id, NULL_HASH, 0);
        self.null = Some(id);
        id
    }

    #[inline(always)]
    fn remember(&mut self, id: u32, hash: u64, view: u128) {
        self.hashes.put(id as usize, hash);
        self.views.put(id as usize, view);
    }

    pub fn remove(&mut self, id: u32) {
        if self.null == Some(id) {
            self.null = None;
            return;
        }
        self.table.remove(probe_hash(self.hashes[id as usize]), |entry| entry.id == id);
        self.forget(id);
    }

    /// Forgets the keys with such ids, which are these.
    pub fn remove_all(&mut self, is_gone: impl Fn(u32) -> bool, ids: &[u32]) {
        let null = self.null;
        self.null = null.filter(|&id| !is_gone(id));
        self.table.retain(|entry| !is_gone(entry.id));
        ids.iter().filter(|&&id| null != Some(id)).for_each(|&id| self.forget(id));
    }

    fn forget(&mut self, id: u32) {
        let view = std::mem::take(&mut self.views[id as usize]);
        if is_long(view) {
            self.blocks.remove(view, &mut self.views);
        }
    }

    pub fn clear(&mut self) {
        self.table.clear();
        self.null = None;
        self.hashes.clear();
        self.views.clear();
        self.blocks.clear();
    }

    #[inline]
    pub fn hash_of(&self, id: u32) -> u64 {
        self.hashes[id as usize]
    }

    /// For how many keys there is memory.
    pub fn capacity(&self) -> usize {
        self.hashes.capacity()
    }

    /// False for NULL, and the first eight bytes as a number that has their order.
    pub fn prefix(&self, id: u32) -> (bool, u64) {
        if self.null == Some(id) {
            return (false, 0);
        }
        let view = self.views[id as usize];
        let mut first = [0u8; 8];
        if is_long(view) {
            first.copy_from_slice(&self.blocks.bytes_of(view)[..8]);
        } else {
            // Behind the length stand the bytes, padded with zeros.
            first.copy_from_slice(&view.to_le_bytes()[4..12]);
        }
        (true, u64::from_be_bytes(first))
    }

    pub fn take(&self, ids: &[u32]) -> Result<Vec<ArrayRef>> {
        let mut texts = Texts::default();
        for &id in ids {
            let view = self.views[id as usize];
            if self.null == Some(id) {
                texts.push(None);
            } else if is_long(view) {
                texts.push(Some(self.blocks.bytes_of(view)));
            } else {
                // Behind the length stand the bytes.
                texts.push(Some(&view.to_le_bytes()[4..4 + view as u32 as usize]));
            }
        }
        Ok(vec![texts.finish()?])
    }

    pub fn bytes(&self) -> usize {
        self.table.bytes() + self.hashes.bytes() + self.views.bytes() + self.text_bytes()
    }

    /// What is taken by the bytes of long strings.
    pub fn text_bytes(&self) -> usize {
        self.blocks.memory()
    }
}
