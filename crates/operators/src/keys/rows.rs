//! Keys of any other shape: each key is encoded to bytes that are equal exactly when the keys are.
//!
//! The bytes stand one behind the other in blocks, so that a key costs no allocation of its own.
//! Those of keys that were forgotten stay until they are as many as the others; then all blocks are
//! rewritten.
//!
//! Encoding must not depend on the batch: whatever stands at a NULL, NaNs of other bits and slices
//! of longer arrays must give the same bytes. `canonical` and the encoder see to that. 0.0 and -0.0
//! stay two keys.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_row::{RowConverter, SortField};
use arrow_schema::DataType as Arrow;
use thalweg_core::{Error, Result};

use super::encoding::{Encoded, Encoding};
use super::hash::{canonical_f32, canonical_f64, hash_into};
use super::ids::{ABSENT, Ids, probe_hash};
use super::select;
use crate::gradual::{Entry, GradualTable, Pages};

/// How keys become bytes.
enum Codec {
    Own(Encoding),
    /// For nested types.
    Arrow(RowConverter),
}

pub(super) struct RowTable {
    codec: Codec,
    known: Known,
    /// The keys of the rows that are interned.
    of_rows: Encoded,
}

/// A key's hash and its id: most keys that are others differ in their hashes.
#[derive(Clone, Copy)]
struct RowEntry {
    hash: u64,
    id: u32,
}

fn probe(entry: &RowEntry) -> u64 {
    probe_hash(entry.hash)
}

/// The keys that have ids.
#[derive(Default)]
struct Known {
    table: GradualTable<RowEntry>,
    /// The hash of each id; meaningless for free ids.
    hashes: Pages<u64>,
    encoded: EncodedKeys,
}

/// This many rows are encoded before they are looked up: what stands between is still in the
/// nearest cache then.
const BLOCK_ROWS: usize = 256;

impl Codec {
    /// Each key of these columns, with its hash.
    fn each_key(
        &self,
        columns: &[ArrayRef],
        of_rows: &mut Encoded,
        mut see: impl FnMut(&[u8], u64) -> Result<()>,
    ) -> Result<()> {
        let rows = columns[0].len();
        let mut hashes = [0; BLOCK_ROWS];
        for from in (0..rows).step_by(BLOCK_ROWS) {
            let count = BLOCK_ROWS.min(rows - from);
            let some: Vec<ArrayRef> = columns.iter().map(|c| c.slice(from, count)).collect();
            let hashes = &mut hashes[..count];
            hash_into(&some, hashes)?;
            match self {
                Codec::Own(encoding) => {
                    encoding.encode(&some, count, of_rows);
                    let mut keys = of_rows.keys().zip(hashes);
                    keys.try_for_each(|(key, hash)| see(key, *hash))?;
                }
                Codec::Arrow(converter) => {
                    let encoded = converter.convert_columns(&some)?;
                    let mut keys = encoded.iter().zip(hashes);
                    keys.try_for_each(|(key, hash)| see(key.data(), *hash))?;
                }
            }
        }
        Ok(())
    }
}

impl Known {
    #[inline]
    fn find(&self, bytes: &[u8], hash: u64) -> Option<u32> {
        let is_it = |entry: &RowEntry| entry.hash == hash && self.encoded.get(entry.id) == bytes;
        self.table.find(probe_hash(hash), is_it).map(|entry| entry.id)
    }

    #[inline]
    fn id(&mut self, ids: &mut Ids, bytes: &[u8], hash: u64) -> Result<u32> {
        let Known { table, hashes, encoded } = self;
        let is_it = |entry: &RowEntry| entry.hash == hash && encoded.get(entry.id) == bytes;
        let place = match table.entry(probe_hash(hash), is_it, probe) {
            Entry::Occupied(entry) => return Ok(entry.id),
            Entry::Vacant(place) => place,
        };
        let id = ids.assign();
        place.insert(RowEntry { hash, id });
        hashes.put(id as usize, hash);
        encoded.set(id, bytes)?;
        Ok(id)
    }
}

impl RowTable {
    pub fn new(types: Vec<Arrow>) -> Result<Self> {
        let codec = match Encoding::of(&types) {
            Some(encoding) => Codec::Own(encoding),
            None => Codec::Arrow(converter_of(types)?),
        };
        Ok(RowTable { codec, known: Known::default(), of_rows: Encoded::default() })
    }

    pub fn intern(
        &mut self,
        ids: &mut Ids,
        columns: &[ArrayRef],
        rows: Option<&[u32]>,
        out: &mut Vec<u32>,
    ) -> Result<()> {
        let columns: Vec<ArrayRef> =
            columns.iter().map(|c| select(c, rows).map(canonical)).collect::<Result<_>>()?;
        let RowTable { codec, known, of_rows } = self;
        codec.each_key(&columns, of_rows, |key, hash| {
            out.push(known.id(ids, key, hash)?);
            Ok(())
        })
    }

    /// Appends the ids of keys that are there.
    pub fn find(&self, columns: &[ArrayRef], out: &mut Vec<u32>) -> Result<()> {
        let columns: Vec<ArrayRef> = columns.iter().cloned().map(canonical).collect();
        self.codec.each_key(&columns, &mut Encoded::default(), |key, hash| {
            out.push(self.known.find(key, hash).unwrap_or(ABSENT));
            Ok(())
        })
    }

    /// Makes room for this many more keys.
    pub fn reserve(&mut self, more: usize) {
        let Known { table, hashes, .. } = &mut self.known;
        table.reserve(more, probe);
        hashes.reserve(more);
    }

    pub fn remove(&mut self, id: u32) {
        let Known { table, hashes, encoded } = &mut self.known;
        table.remove(probe_hash(hashes[id as usize]), |entry| entry.id == id);
        encoded.remove(id);
    }

    /// Forgets the keys with such ids, which are these.
    pub fn remove_all(&mut self, is_gone: impl Fn(u32) -> bool, ids: &[u32]) {
        let Known { table, encoded, .. } = &mut self.known;
        table.retain(|entry| !is_gone(entry.id));
        ids.iter().for_each(|&id| encoded.remove(id));
    }

    pub fn clear(&mut self) {
        self.known.table.clear();
        self.known.hashes.clear();
        self.known.encoded.clear();
    }

    #[inline]
    pub fn hash_of(&self, id: u32) -> u64 {
        self.known.hashes[id as usize]
    }

    /// For how many keys there is memory.
    pub fn capacity(&self) -> usize {
        self.known.hashes.capacity()
    }

    pub fn take(&self, ids: &[u32]) -> Result<Vec<ArrayRef>> {
        let keys = ids.iter().map(|&id| self.known.encoded.get(id));
        match &self.codec {
            Codec::Own(encoding) => encoding.decode(&keys.collect::<Vec<_>>()),
            Codec::Arrow(converter) => {
                let parser = converter.parser();
                Ok(converter.convert_rows(keys.map(|key| parser.parse(key)))?)
            }
        }
    }

    pub fn bytes(&self) -> usize {
        let Known { table, hashes, encoded } = &self.known;
        table.bytes() + hashes.bytes() + encoded.memory() + self.of_rows.memory()
    }
}

fn converter_of(types: Vec<Arrow>) -> Result<RowConverter> {
    let fields: Vec<SortField> = types.into_iter().map(SortField::new).collect();
    if !RowConverter::supports_fields(&fields) {
        return Err(Error::unsupported("grouping by a column of this type")
            .hint("group by the fields inside it, or CAST it to STRING"));
    }
    Ok(RowConverter::new(fields)?)
}

/// Below this many bytes the blocks are not rewritten.
const COMPACT_MIN_BYTES: usize = 64 * 1024;

/// A block takes no more than this, unless it is of one key. In tests of operators little, so that
/// there are several.
const BLOCK_BYTES: usize = if cfg!(test) { 256 } else { 128 * 1024 };

/// Where the bytes of a key stand.
#[derive(Clone, Copy, Default)]
struct KeyStretch {
    block: u32,
    start: u32,
    len: u32,
}

/// The bytes of keys by id, in blocks that are never moved: one piece of memory for all would take
/// three times as much while it grows.
#[derive(Default)]
struct EncodedKeys {
    blocks: Vec<Vec<u8>>,
    /// The block that is being filled. Those behind it are empty.
    open: usize,
    /// Empty for free ids.
    stretches: Pages<KeyStretch>,
    /// Bytes in all blocks.
    bytes: usize,
    live_bytes: usize,
}

impl EncodedKeys {
    #[inline]
    fn get(&self, id: u32) -> &[u8] {
        bytes_at(&self.blocks, self.stretches[id as usize])
    }

    fn set(&mut self, id: u32, bytes: &[u8]) -> Result<()> {
        let len = u32::try_from(bytes.len())
            .map_err(|_| Error::user("a key of more than 4 GiB can't be grouped by"))?;
        self.stretches.grow(id as usize + 1, KeyStretch::default());
        self.stretches[id as usize] = self.put(bytes, len);
        self.live_bytes += bytes.len();
        Ok(())
    }

    /// Puts the bytes of a key behind those that are there.
    fn put(&mut self, bytes: &[u8], len: u32) -> KeyStretch {
        let is_full =
            |block: &Vec<u8>| !block.is_empty() && block.len() + bytes.len() > BLOCK_BYTES;
        if self.blocks.get(self.open).is_some_and(is_full) {
            self.open += 1;
        }
        if self.open == self.blocks.len() {
            self.blocks.push(Vec::new());
        }
        let block = &mut self.blocks[self.open];
        // The first block grows with its keys, since most tables have few.
        if block.is_empty() && self.open > 0 {
            block.reserve_exact(bytes.len().max(BLOCK_BYTES));
        }
        let stretch = KeyStretch { block: self.open as u32, start: block.len() as u32, len };
        block.extend_from_slice(bytes);
        self.bytes += bytes.len();
        stretch
    }

    fn remove(&mut self, id: u32) {
        let stretch = std::mem::take(&mut self.stretches[id as usize]);
        self.live_bytes -= stretch.len as usize;
        if self.bytes > COMPACT_MIN_BYTES && self.bytes > 2 * self.live_bytes {
            self.compact();
        }
    }

    fn clear(&mut self) {
        self.blocks.iter_mut().for_each(Vec::clear);
        self.stretches.clear();
        (self.open, self.bytes, self.live_bytes) = (0, 0, 0);
    }

    fn compact(&mut self) {
        let old = std::mem::take(&mut self.blocks);
        let mut stretches = std::mem::take(&mut self.stretches);
        (self.open, self.bytes) = (0, 0);
        for stretch in stretches.iter_mut().filter(|stretch| stretch.len > 0) {
            *stretch = self.put(bytes_at(&old, *stretch), stretch.len);
        }
        self.stretches = stretches;
    }

    fn memory(&self) -> usize {
        let blocks: usize = self.blocks.iter().map(Vec::capacity).sum();
        blocks + self.blocks.capacity() * size_of::<Vec<u8>>() + self.stretches.bytes()
    }
}

#[inline]
fn bytes_at(blocks: &[Vec<u8>], KeyStretch { block, start, len }: KeyStretch) -> &[u8] {
    &blocks[block as usize][start as usize..][..len as usize]
}

/// All NaN are one key.
fn canonical(column: ArrayRef) -> ArrayRef {
    match column.data_type() {
        Arrow::Float64 => {
            Arc::new(column.as_primitive::<Float64Type>().unary::<_, Float64Type>(canonical_f64))
        }
        Arrow::Float32 => {
            Arc::new(column.as_primitive::<Float32Type>().unary::<_, Float32Type>(canonical_f32))
        }
        _ => column,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: u32) -> Vec<u8> {
        // Some are longer than a block.
        let len = if id.is_multiple_of(50) { 2 * BLOCK_BYTES } else { 9 + id as usize % 40 };
        (0..len).map(|byte| (id as usize * 7 + byte) as u8).collect()
    }

    #[test]
    fn bytes_of_keys_stay_where_they_are_and_take_what_they_are() {
        let mut keys = EncodedKeys::default();
        (0..10).for_each(|id| keys.set(id, &key(id)).expect("short"));
        let first = std::ptr::from_ref(&keys.blocks[1][0]);
        (10..5000).for_each(|id| keys.set(id, &key(id)).expect("short"));
        assert!(std::ptr::eq(first, &keys.blocks[1][0]), "no block has moved");
        assert!((0..5000).all(|id| keys.get(id) == key(id)));
        let of_keys = keys.memory() - keys.stretches.bytes();
        assert!(of_keys < keys.bytes + keys.bytes / 2, "{of_keys} for {}", keys.bytes);
        (0..5000).filter(|id| id % 5 > 0).for_each(|id| keys.remove(id));
        assert!(keys.bytes <= 2 * keys.live_bytes, "they are rewritten");
        assert!((0..5000).step_by(5).all(|id| keys.get(id) == key(id)));
        keys.clear();
        let memory = keys.memory();
        (0..1000).for_each(|id| keys.set(id, &key(5 * id)).expect("short"));
        assert!((0..1000).all(|id| keys.get(id) == key(5 * id)));
        assert!(keys.memory() < memory + memory / 10, "what is cleared keeps its memory");
    }
}
