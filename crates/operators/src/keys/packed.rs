//! Keys of several integer-like columns of at most 128 bits together: the values stand side by side
//! in two words, next to one bit for each column that is NULL, and the words in the hash table
//! itself.
//!
//! Compared with encoded rows nothing is written or compared byte by byte, and the hash that says
//! which partition owns a key is computed once per key, not once per row.
//!
//! **Invariant:** a column that is NULL has its bit set and value 0, so equal keys are equal words.
//! The probe hash is not the key's hash: it only has to spread within the table, and the key's hash
//! is computed when a key is new.

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
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Packed {
    high: u64,
    low: u64,
    nulls: u8,
}

impl Packed {
    /// A first value of this many bits.
    #[inline(always)]
    fn of(value: u64, bits: u32) -> Self {
        Packed { high: 0, low: value & (u64::MAX >> (64 - bits)), nulls: 0 }
    }

    /// Gives the value of this many bits that was put in last value 0.
    #[inline(always)]
    fn forget_last(&mut self, bits: u32) {
        self.low &= !(u64::MAX >> (64 - bits));
    }

    /// Puts a value of this many bits behind those that are there.
    #[inline(always)]
    fn push(&mut self, value: u64, bits: u32) {
        let all = (u128::from(self.high) << 64 | u128::from(self.low)) << bits
            | u128::from(value & (u64::MAX >> (64 - bits)));
        (self.high, self.low) = ((all >> 64) as u64, all as u64);
    }

    /// The value of this many bits that has `behind` bits behind it.
    #[inline(always)]
    fn value(&self, behind: u32, bits: u32) -> i64 {
        let all = u128::from(self.high) << 64 | u128::from(self.low);
        // Shifted up and down again for its sign.
        ((all >> behind) as u64 as i64) << (64 - bits) >> (64 - bits)
    }
}

/// A key and its id, with the id where [`Packed`] has padding.
#[derive(Clone, Copy)]
struct PackedEntry {
    high: u64,
    low: u64,
    id: u32,
    nulls: u8,
}

impl PackedEntry {
    fn key(&self) -> Packed {
        Packed { high: self.high, low: self.low, nulls: self.nulls }
    }
}

/// Where the table looks for a key.
#[inline(always)]
fn probe(key: &Packed) -> u64 {
    let high = fold(key.high ^ 0x9E37_79B9_7F4A_7C15 ^ u64::from(key.nulls), 0xD6E8_FEB8_6659_FD93);
    fold(key.low ^ high, 0xA076_1D64_78BD_642F)
}

pub(super) struct PackedTable {
    types: Vec<Arrow>,
    table: GradualTable<PackedEntry>,
    /// The key of each id; meaningless for free ids.
    keys: Pages<Packed>,
    /// The keys of the rows that are interned.
    packed: Vec<Packed>,
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

impl PackedTable {
    /// True if keys of these types fit.
    pub fn fits(types: &[Arrow]) -> bool {
        types.len() <= COLUMNS_MAX
            && types.iter().all(is_integer_like)
            && types.iter().map(bits_of).sum::<u32>() <= 128
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
    pub fn find(&self, columns: &[ArrayRef], out: &mut Vec<u32>) {
        let mut packed = Vec::new();
        pack(columns, None, &mut packed);
        out.extend(packed.iter().map(|key| {
            self.table
                .find(probe(key), |entry| entry.key() == *key)
                .map_or(ABSENT, |entry| entry.id)
        }));
    }

    #[inline(always)]
    fn id(&mut self, ids: &mut Ids, key: &Packed) -> u32 {
        let is_it = |entry: &PackedEntry| entry.key() == *key;
        let place = match self.table.entry(probe(key), is_it, |entry| probe(&entry.key())) {
            Entry::Occupied(entry) => return entry.id,
            Entry::Vacant(place) => place,
        };
        let id = ids.assign();
        let Packed { high, low, nulls } = *key;
        place.insert(PackedEntry { high, low, id, nulls });
        self.keys.put(id as usize, *key);
        id
    }

    /// Makes room for this many more keys.
    pub fn reserve(&mut self, more: usize) {
        self.table.reserve(more, |entry| probe(&entry.key()));
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
        self.table.remove(probe(&key), |entry| entry.id == id);
    }

    /// Forgets the keys with such ids.
    pub fn remove_all(&mut self, is_gone: impl Fn(u32) -> bool) {
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

    pub fn take(&self, ids: &[u32]) -> Vec<ArrayRef> {
        let keys = || ids.iter().map(|&id| &self.keys[id as usize]);
        let any_nulls = keys().fold(0, |nulls, key| nulls | key.nulls);
        let column = |(place, behind, bits): (usize, u32, u32)| {
            let nulls = (any_nulls >> place & 1 == 1)
                .then(|| keys().map(|key| key.nulls >> place & 1 == 0).collect::<NullBuffer>());
            array_of(&self.types[place], keys().map(|key| key.value(behind, bits)), nulls)
        };
        self.fields().map(column).collect()
    }

    pub fn bytes(&self) -> usize {
        let packed = self.packed.capacity() * size_of::<Packed>();
        self.table.bytes() + self.keys.bytes() + packed
    }
}

/// The keys of the rows named, or of all.
fn pack(columns: &[ArrayRef], rows: Option<&[u32]>, packed: &mut Vec<Packed>) {
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
