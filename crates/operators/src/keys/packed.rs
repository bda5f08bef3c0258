//! Keys of several integer-like columns of at most 128 bits together: the values stand side by side
//! in a word or two, next to one bit for each column that is NULL, and the words in the hash table
//! itself.
//!
//! Compared with encoded rows nothing is written or compared byte by byte, and the hash that says
//! which partition owns a key is computed where it is asked for, not for each row.
//!
//! **Invariant:** a column that is NULL has its bit set and value 0, so equal keys are equal words.
//! The probe hash is not the key's hash: it only has to spread within the table.

use arrow_array::{Array, ArrayRef};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType as Arrow;
use thalweg_core::Result;
use thalweg_core::shim::mix64;

use super::hash::{combine, fold};
use super::ids::NULL_HASH;
use super::ids::{ABSENT, Ids};
use super::integer::{array_of, is_integer_like, values, values_at};
use crate::gradual::{Entry, GradualTable, Pages};

/// The most columns: as many as there are bits for NULL.
const COLUMNS_MAX: usize = 8;

/// The values of a key side by side, those of the last column lowest, and which are NULL. What is
/// NULL has value 0.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Packed<const WORDS: usize> {
    /// The highest first.
    words: [u64; WORDS],
    nulls: u8,
}

/// A number of this many bits.
#[inline(always)]
fn lowest(value: u64, bits: u32) -> u64 {
    value & (u64::MAX >> (64 - bits))
}

impl<const WORDS: usize> Packed<WORDS> {
    /// A first value of this many bits.
    #[inline(always)]
    fn of(value: u64, bits: u32) -> Self {
        let mut words = [0; WORDS];
        words[WORDS - 1] = lowest(value, bits);
        Packed { words, nulls: 0 }
    }

    #[inline(always)]
    fn all(&self) -> u128 {
        self.words.iter().fold(0, |all, &word| all << 64 | u128::from(word))
    }

    /// Gives the value of this many bits that was put in last value 0.
    #[inline(always)]
    fn forget_last(&mut self, bits: u32) {
        self.words[WORDS - 1] &= !(u64::MAX >> (64 - bits));
    }

    /// Puts a value of this many bits behind those that are there.
    #[inline(always)]
    fn push(&mut self, value: u64, bits: u32) {
        let mut all = self.all() << bits | u128::from(lowest(value, bits));
        for word in self.words.iter_mut().rev() {
            (*word, all) = (all as u64, all >> 64);
        }
    }

    /// The value of this many bits that has `behind` bits behind it.
    #[inline(always)]
    fn value(&self, behind: u32, bits: u32) -> i64 {
        // Shifted up and down again for its sign.
        ((self.all() >> behind) as u64 as i64) << (64 - bits) >> (64 - bits)
    }

    /// Where the table looks for it.
    #[inline(always)]
    fn probe(&self) -> u64 {
        let first = 0x9E37_79B9_7F4A_7C15 ^ u64::from(self.nulls);
        self.words.iter().fold(first, |state, word| fold(word ^ state, 0xD6E8_FEB8_6659_FD93))
    }
}

/// A key and its id, with the id where [`Packed`] has padding.
#[derive(Clone, Copy)]
struct PackedEntry<const WORDS: usize> {
    words: [u64; WORDS],
    id: u32,
    nulls: u8,
}

impl<const WORDS: usize> PackedEntry<WORDS> {
    #[inline(always)]
    fn key(&self) -> Packed<WORDS> {
        Packed { words: self.words, nulls: self.nulls }
    }
}

pub(super) struct PackedTable<const WORDS: usize> {
    types: Vec<Arrow>,
    table: GradualTable<PackedEntry<WORDS>>,
    /// The key of each id; meaningless for free ids.
    keys: Pages<Packed<WORDS>>,
    /// The keys of the rows that are interned.
    packed: Vec<Packed<WORDS>>,
}

/// How many bits a value takes.
fn bits_of(data_type: &Arrow) -> u32 {
    match data_type {
        Arrow::Boolean | Arrow::Int8 => 8,
        Arrow::Int16 => 16,
        Arrow::Int32 | Arrow::Date32 | Arrow::Time32(_) => 32,
        _ => 64,
    }
}

impl<const WORDS: usize> PackedTable<WORDS> {
    /// True if keys of these types fit.
    pub fn fits(types: &[Arrow]) -> bool {
        types.len() <= COLUMNS_MAX
            && types.iter().all(is_integer_like)
            && types.iter().map(bits_of).sum::<u32>() <= 64 * WORDS as u32
    }

    pub fn new(types: Vec<Arrow>) -> Self {
        let (table, keys, packed) = Default::default();
        PackedTable { types, table, keys, packed }
    }

    pub fn intern(
        &mut self,
        ids: &mut Ids,
        columns: &[ArrayRef],
        rows: Option<&[u32]>,
        out: &mut Vec<u32>,
    ) -> Result<()> {
        let mut packed = std::mem::take(&mut self.packed);
        pack(columns, rows, &mut packed);
        out.extend(packed.iter().map(|key| self.id(ids, key)));
        self.packed = packed;
        Ok(())
    }

    /// Appends the ids of keys that are there.
    pub fn find(&self, columns: &[ArrayRef], out: &mut Vec<u32>) -> Result<()> {
        let mut packed = Vec::new();
        pack(columns, None, &mut packed);
        let find = |key: &Packed<WORDS>| self.table.find(key.probe(), |entry| entry.key() == *key);
        out.extend(packed.iter().map(|key| find(key).map_or(ABSENT, |entry| entry.id)));
        Ok(())
    }

    #[inline(always)]
    fn id(&mut self, ids: &mut Ids, key: &Packed<WORDS>) -> u32 {
        let is_it = |entry: &PackedEntry<WORDS>| entry.key() == *key;
        let place = match self.table.entry(key.probe(), is_it, |entry| entry.key().probe()) {
            Entry::Occupied(entry) => return entry.id,
            Entry::Vacant(place) => place,
        };
        let id = ids.assign();
        place.insert(PackedEntry { words: key.words, id, nulls: key.nulls });
        self.keys.put(id as usize, *key);
        id
    }

    /// Makes room for this many more keys.
    pub fn reserve(&mut self, more: usize) {
        self.table.reserve(more, |entry| entry.key().probe());
        self.keys.reserve(more);
    }

    /// The columns: place, bits behind, bits.
    fn fields(&self) -> impl Iterator<Item = (usize, u32, u32)> {
        let mut behind: u32 = self.types.iter().map(bits_of).sum();
        self.types.iter().map(bits_of).enumerate().map(move |(place, bits)| {
            behind -= bits;
            (place, behind, bits)
        })
    }

    pub fn remove(&mut self, id: u32) {
        let key = self.keys[id as usize];
        self.table.remove(key.probe(), |entry| entry.id == id);
    }

    /// Forgets the keys with such ids.
    pub fn remove_all(&mut self, is_gone: impl Fn(u32) -> bool, _ids: &[u32]) {
        self.table.retain(|entry| !is_gone(entry.id));
    }

    pub fn clear(&mut self) {
        self.table.clear();
        self.keys.clear();
    }

    /// The hash that [`hash_keys`](super::hash_keys) gives.
    pub fn hash_of(&self, id: u32) -> u64 {
        let key = &self.keys[id as usize];
        let mut state = None;
        for (place, behind, bits) in self.fields() {
            let hash = match key.nulls >> place & 1 {
                0 => mix64(key.value(behind, bits) as u64),
                _ => NULL_HASH,
            };
            state = Some(combine(state, hash));
        }
        state.unwrap_or_default()
    }

    /// For how many keys there is memory.
    pub fn capacity(&self) -> usize {
        self.keys.capacity()
    }

    pub fn take(&self, ids: &[u32]) -> Result<Vec<ArrayRef>> {
        let keys = || ids.iter().map(|&id| &self.keys[id as usize]);
        let any_nulls = keys().fold(0, |nulls, key| nulls | key.nulls);
        let column = |(place, behind, bits): (usize, u32, u32)| {
            let nulls = (any_nulls >> place & 1 == 1)
                .then(|| keys().map(|key| key.nulls >> place & 1 == 0).collect::<NullBuffer>());
            array_of(&self.types[place], keys().map(|key| key.value(behind, bits)), nulls)
        };
        Ok(self.fields().map(column).collect())
    }

    pub fn bytes(&self) -> usize {
        let packed = self.packed.capacity() * size_of::<Packed<WORDS>>();
        self.table.bytes() + self.keys.bytes() + packed
    }
}

/// The keys of the rows named, or of all.
fn pack<const WORDS: usize>(
    columns: &[ArrayRef],
    rows: Option<&[u32]>,
    packed: &mut Vec<Packed<WORDS>>,
) {
    packed.clear();
    for (place, column) in columns.iter().enumerate() {
        let bits = bits_of(column.data_type());
        let values = rows.map_or_else(|| values(column), |rows| values_at(column, rows).into());
        if place == 0 {
            packed.extend(values.iter().map(|&value| Packed::of(value as u64, bits)));
        } else {
            let keys = packed.iter_mut().zip(values.iter());
            keys.for_each(|(key, &value)| key.push(value as u64, bits));
        }
        let Some(nulls) = column.nulls().filter(|nulls| nulls.null_count() > 0) else { continue };
        for (number, key) in packed.iter_mut().enumerate() {
            if nulls.is_null(rows.map_or(number, |rows| rows[number] as usize)) {
                key.forget_last(bits);
                key.nulls |= 1 << place;
            }
        }
    }
}
