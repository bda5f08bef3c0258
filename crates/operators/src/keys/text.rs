//! Keys of one string column. Strings of at most 12 bytes are compared as the 16 bytes of their
//! Arrow view, which hold length and text; longer ones by length, first four bytes, hash, and then
//! their bytes.

use std::sync::Arc;

use arrow_array::builder::StringViewBuilder;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, StringViewArray};
use hashbrown::HashTable;
use thalweg_core::Result;

use super::hash::{NULL_HASH, hash_bytes, hash_u128};
use super::{ABSENT, Ids, probe_hash};

/// Low and high half of a view; for long strings the high half is the hash, since the place of
/// the text in its buffer says nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry {
    low: u64,
    high: u64,
    id: u32,
}

#[derive(Default)]
pub(super) struct TextTable {
    table: HashTable<Entry>,
    null: Option<u32>,
    /// The view of each id; of a long string only the length counts.
    views: Vec<u128>,
    /// The text of long strings by id, as far as there are any.
    long: Vec<Box<str>>,
}

impl TextTable {
    pub(super) fn intern(
        &mut self,
        ids: &mut Ids,
        column: &ArrayRef,
        rows: Option<&[u32]>,
        out: &mut Vec<u32>,
    ) -> Result<()> {
        let strings = column.as_string_view();
        let views = strings.views();
        match (rows, strings.nulls().filter(|nulls| nulls.null_count() > 0)) {
            (None, None) => out.extend(
                views.iter().enumerate().map(|(row, &view)| self.id(ids, strings, row, view)),
            ),
            (Some(rows), None) => out.extend(rows.iter().map(|&row| {
                let row = row as usize;
                self.id(ids, strings, row, views[row])
            })),
            (rows, Some(nulls)) => {
                let mut one = |row: usize| {
                    if nulls.is_valid(row) {
                        self.id(ids, strings, row, views[row])
                    } else {
                        self.null_id(ids)
                    }
                };
                match rows {
                    None => out.extend((0..strings.len()).map(one)),
                    Some(rows) => out.extend(rows.iter().map(|&row| one(row as usize))),
                }
            }
        }
        Ok(())
    }

    /// Makes room for so many more keys.
    pub(super) fn reserve(&mut self, ids: &Ids, more: usize) {
        let hashes = &ids.hashes;
        self.table.reserve(more, |entry| probe_hash(hashes[entry.id as usize]));
        self.views.reserve(more);
    }

    /// Appends the ids of keys that are there.
    pub(super) fn find(&self, column: &ArrayRef, out: &mut Vec<u32>) {
        let strings = column.as_string_view();
        let views = strings.views();
        let one = |row: usize| self.find_one(strings, row, views[row]).unwrap_or(ABSENT);
        match strings.nulls().filter(|nulls| nulls.null_count() > 0) {
            None => out.extend((0..views.len()).map(one)),
            Some(nulls) => out.extend((0..views.len()).map(|row| match nulls.is_valid(row) {
                true => one(row),
                false => self.null.unwrap_or(ABSENT),
            })),
        }
    }

    #[inline(always)]
    fn find_one(&self, strings: &StringViewArray, row: usize, view: u128) -> Option<u32> {
        if view as u32 > 12 {
            let text = strings.value(row);
            return self.find_long(text, hash_bytes(text.as_bytes()), view);
        }
        let (low, high) = (view as u64, (view >> 64) as u64);
        let is_it = |entry: &Entry| entry.low == low && entry.high == high;
        self.table.find(probe_hash(hash_u128(view)), is_it).map(|entry| entry.id)
    }

    fn find_long(&self, text: &str, hash: u64, view: u128) -> Option<u32> {
        let low = view as u64;
        let is_it = |entry: &Entry| {
            entry.low == low && entry.high == hash && *self.long[entry.id as usize] == *text
        };
        self.table.find(probe_hash(hash), is_it).map(|entry| entry.id)
    }

    #[inline(always)]
    fn id(&mut self, ids: &mut Ids, strings: &StringViewArray, row: usize, view: u128) -> u32 {
        if view as u32 > 12 {
            return self.long_id(ids, strings.value(row), view);
        }
        let hash = hash_u128(view);
        let (low, high) = (view as u64, (view >> 64) as u64);
        let found =
            self.table.find(probe_hash(hash), |entry| entry.low == low && entry.high == high);
        match found {
            Some(entry) => entry.id,
            None => self.insert(ids, Entry { low, high, id: 0 }, hash, view),
        }
    }

    #[inline(never)]
    fn long_id(&mut self, ids: &mut Ids, text: &str, view: u128) -> u32 {
        let hash = hash_bytes(text.as_bytes());
        if let Some(id) = self.find_long(text, hash, view) {
            return id;
        }
        let entry = Entry { low: view as u64, high: hash, id: 0 };
        let id = self.insert(ids, entry, hash, view);
        if self.long.len() <= id as usize {
            self.long.resize(id as usize + 1, Box::default());
        }
        self.long[id as usize] = text.into();
        id
    }

    #[cold]
    #[inline(never)]
    fn insert(&mut self, ids: &mut Ids, mut entry: Entry, hash: u64, view: u128) -> u32 {
        entry.id = ids.assign(hash);
        let hashes = &ids.hashes;
        self.table
            .insert_unique(probe_hash(hash), entry, |entry| probe_hash(hashes[entry.id as usize]));
        self.remember(entry.id, view);
        entry.id
    }

    fn null_id(&mut self, ids: &mut Ids) -> u32 {
        if let Some(id) = self.null {
            return id;
        }
        let id = ids.assign(NULL_HASH);
        self.remember(id, 0);
        self.null = Some(id);
        id
    }

    fn remember(&mut self, id: u32, view: u128) {
        let place = id as usize;
        if place == self.views.len() {
            self.views.push(view);
        } else {
            self.views[place] = view;
        }
    }

    pub(super) fn remove(&mut self, hash: u64, id: u32) {
        if self.null == Some(id) {
            self.null = None;
            return;
        }
        if let Ok(entry) = self.table.find_entry(probe_hash(hash), |entry| entry.id == id) {
            entry.remove();
        }
        if let Some(text) = self.long.get_mut(id as usize) {
            *text = Box::default();
        }
    }

    pub(super) fn clear(&mut self) {
        self.table.clear();
        self.null = None;
        self.views.clear();
        self.long.clear();
    }

    /// False for NULL, and the first eight bytes as a number that has their order.
    pub(super) fn prefix(&self, id: u32) -> (bool, u64) {
        if self.null == Some(id) {
            return (false, 0);
        }
        let view = self.views[id as usize];
        let mut first = [0u8; 8];
        if view as u32 > 12 {
            first.copy_from_slice(&self.long[id as usize].as_bytes()[..8]);
        } else {
            // Behind the length stand the bytes, padded with zeros.
            first.copy_from_slice(&view.to_le_bytes()[4..12]);
        }
        (true, u64::from_be_bytes(first))
    }

    pub(super) fn take(&self, ids: &[u32]) -> ArrayRef {
        let mut strings = StringViewBuilder::with_capacity(ids.len());
        for &id in ids {
            let view = self.views[id as usize];
            if self.null == Some(id) {
                strings.append_null();
            } else if view as u32 > 12 {
                strings.append_value(&self.long[id as usize]);
            } else {
                let bytes = view.to_le_bytes();
                let text = &bytes[4..4 + view as u32 as usize];
                strings.append_value(std::str::from_utf8(text).expect("a view holds UTF-8"));
            }
        }
        Arc::new(strings.finish())
    }

    pub(super) fn bytes(&self) -> usize {
        let long: usize = self.long.iter().map(|text| text.len() + 16).sum();
        self.table.allocation_size() + self.views.capacity() * 16 + long
    }
}
