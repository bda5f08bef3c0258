//! The rows of a table by primary key, in chunks that versions share.
//!
//! Rows are appended in the batches in which they come, and stay where they are; a bit says whether
//! a row is still there. A version is a copy of the list of chunks and of their bits. Bits that a
//! version holds are copied before they change.
//!
//! **Invariants**
//! - `places` has exactly the keys that have a row, and where that row is;
//! - a row has a serial, which goes up in the order in which rows came, and keeps it wherever it is
//!   moved; so a capture of changes is that of the serials since the last capture, and of those
//!   that have gone;
//! - what is dead takes at most as much room as what is there, and a fixed rest ([`DEAD_ROWS_MAX`],
//!   [`CHUNKS_MIN`]): beyond that, chunks are merged.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_row::{RowConverter, SortField};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use hashbrown::HashMap;
use thalweg_core::bundle::batch_bytes;
use thalweg_core::live::LiveChunk;
use thalweg_core::{Result, RowKind, TableSchema};

use crate::rows::columns::keys_of;
use crate::tables::own_text;

/// The most rows of a merged chunk.
const CHUNK_ROWS: usize = 8192;
/// Up to how many dead rows are kept, however few rows are there.
const DEAD_ROWS_MAX: usize = 64 * 1024;
/// Up to how many chunks are kept, however few rows are there.
const CHUNKS_MIN: usize = 64;
/// About what a key takes besides its bytes.
const KEY_BYTES: usize = 48;

/// Where a row is.
#[derive(Clone, Copy, Debug)]
struct RowPlace {
    chunk: u32,
    row: u32,
}

/// Rows that came together, or were merged.
#[derive(Clone)]
struct StoredChunk {
    rows: LiveChunk,
    bytes: usize,
}

impl StoredChunk {
    /// Rows none of which is there yet.
    fn new(rows: RecordBatch, serials: Vec<u64>) -> Self {
        let bytes = batch_bytes(&rows) + serials.len() * size_of::<u64>();
        let alive = Arc::new(vec![0; rows.num_rows().div_ceil(64)]);
        let rows = LiveChunk { rows, serials: Arc::new(serials), alive, live: 0 };
        StoredChunk { rows, bytes }
    }

    fn set(&mut self, row: u32, is_alive: bool) {
        let word = &mut Arc::make_mut(&mut self.rows.alive)[row as usize / 64];
        let bit = 1 << (row % 64);
        if is_alive {
            *word |= bit;
            self.rows.live += 1;
        } else {
            *word &= !bit;
            self.rows.live -= 1;
        }
    }

    fn dead(&self) -> usize {
        self.rows.rows.num_rows() - self.rows.live
    }
}

/// Rows that are there, with their serials.
pub(super) type SerialRows = (Vec<u64>, RecordBatch);

/// Rows by primary key.
pub(super) struct RowStore {
    keys: Vec<usize>,
    converter: RowConverter,
    places: HashMap<Box<[u8]>, RowPlace>,
    /// By number; `None` where a number is free.
    chunks: Vec<Option<StoredChunk>>,
    free: Vec<u32>,
    next_serial: u64,
    /// Rows, dead or not; bytes of chunks and of keys.
    rows: usize,
    bytes: usize,
}

impl RowStore {
    /// An empty store of rows with these columns and this key.
    ///
    /// # Errors
    /// If a column cannot be a key.
    pub(super) fn new(schema: &TableSchema, keys: &[usize]) -> Result<Self> {
        let of_key =
            |&key: &usize| SortField::new(schema.columns[key].column_type.data_type.arrow());
        Ok(RowStore {
            keys: keys.to_vec(),
            converter: RowConverter::new(keys.iter().map(of_key).collect())?,
            places: HashMap::new(),
            chunks: Vec::new(),
            free: Vec::new(),
            next_serial: 0,
            rows: 0,
            bytes: 0,
        })
    }

    /// How many rows are there.
    pub(super) fn live(&self) -> usize {
        self.places.len()
    }

    /// The serial of the row that comes next.
    pub(super) fn next_serial(&self) -> u64 {
        self.next_serial
    }

    /// About how many bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.chunks.len() * size_of::<Option<StoredChunk>>()
    }

    /// Takes changes by key; `kind` says what each row does. A `-U`, which says what a row was,
    /// changes nothing. The serials of rows that have gone are given to `gone`.
    ///
    /// # Errors
    /// If a key cannot be read.
    pub(super) fn apply(
        &mut self,
        batch: &RecordBatch,
        kind: impl Fn(usize) -> RowKind,
        mut gone: impl FnMut(u64),
    ) -> Result<()> {
        let first = self.next_serial;
        self.next_serial += batch.num_rows() as u64;
        let serials = (first..self.next_serial).collect();
        let number = self.add_chunk(StoredChunk::new(own_texts(batch)?, serials));
        let keys = self.converter.convert_columns(&keys_of(batch.columns(), &self.keys))?;
        for row in 0..batch.num_rows() {
            let key = keys.row(row);
            let key: &[u8] = key.as_ref();
            let before = match kind(row) {
                RowKind::Insert | RowKind::UpdateAfter => {
                    let place = RowPlace { chunk: number, row: row as u32 };
                    self.chunk(number).set(place.row, true);
                    self.put(key, place)
                }
                RowKind::Delete => self.remove(key),
                RowKind::UpdateBefore => None,
            };
            if let Some(before) = before {
                let chunk = self.chunk(before.chunk);
                chunk.set(before.row, false);
                gone(chunk.rows.serials[before.row as usize]);
            }
        }
        self.tidy()
    }

    /// Takes rows of a capture, which have no key in common, with their serials.
    ///
    /// # Errors
    /// If a key cannot be read.
    pub(super) fn restore(&mut self, batch: RecordBatch, serials: Vec<u64>) -> Result<()> {
        let next = serials.iter().max().map_or(0, |serial| serial + 1);
        self.next_serial = self.next_serial.max(next);
        self.add_live(batch, serials)
    }

    /// The chunks of a version.
    pub(super) fn version(&self) -> Vec<LiveChunk> {
        let with_rows = self.chunks.iter().flatten().filter(|chunk| chunk.rows.live > 0);
        with_rows.map(|chunk| chunk.rows.clone()).collect()
    }

    /// What makes the rows with serials from this one on, as they are now. The store may change
    /// before it is called.
    pub(super) fn rows_from(
        &self,
        first: u64,
    ) -> impl FnOnce() -> Result<Vec<SerialRows>> + Send + use<> {
        let is_new =
            |chunk: &&StoredChunk| chunk.rows.serials.iter().any(|&serial| serial >= first);
        let chunks: Vec<StoredChunk> =
            self.chunks.iter().flatten().filter(is_new).cloned().collect();
        move || chunks.iter().map(|chunk| rows_from(chunk, first)).collect()
    }

    fn chunk(&mut self, number: u32) -> &mut StoredChunk {
        self.chunks[number as usize].as_mut().expect("places are those of chunks that are there")
    }

    fn add_chunk(&mut self, chunk: StoredChunk) -> u32 {
        self.rows += chunk.rows.rows.num_rows();
        self.bytes += chunk.bytes;
        let number = self.free.pop().unwrap_or_else(|| {
            self.chunks.push(None);
            (self.chunks.len() - 1) as u32
        });
        self.chunks[number as usize] = Some(chunk);
        number
    }

    /// The row of a key is here now; where it was before.
    fn put(&mut self, key: &[u8], place: RowPlace) -> Option<RowPlace> {
        if let Some(known) = self.places.get_mut(key) {
            return Some(std::mem::replace(known, place));
        }
        self.bytes += key.len() + KEY_BYTES;
        self.places.insert(key.into(), place);
        None
    }

    fn remove(&mut self, key: &[u8]) -> Option<RowPlace> {
        let place = self.places.remove(key)?;
        self.bytes -= key.len() + KEY_BYTES;
        Some(place)
    }

    /// Adds rows all of which are there.
    fn add_live(&mut self, batch: RecordBatch, serials: Vec<u64>) -> Result<()> {
        let keys = self.converter.convert_columns(&keys_of(batch.columns(), &self.keys))?;
        let rows = batch.num_rows();
        let number = self.add_chunk(StoredChunk::new(own_texts(&batch)?, serials));
        for row in 0..rows {
            self.chunk(number).set(row as u32, true);
            self.put(keys.row(row).as_ref(), RowPlace { chunk: number, row: row as u32 });
        }
        Ok(())
    }

    /// Merges chunks where too much is dead, or there are too many.
    fn tidy(&mut self) -> Result<()> {
        let live = self.live();
        let used = self.chunks.len() - self.free.len();
        let has_dead = self.rows - live > live + DEAD_ROWS_MAX;
        if !has_dead && used <= CHUNKS_MIN + 2 * live / CHUNK_ROWS {
            return Ok(());
        }
        let mut merged: Vec<StoredChunk> = Vec::new();
        for (number, slot) in self.chunks.iter_mut().enumerate() {
            let is_small = |chunk: &mut StoredChunk| {
                chunk.rows.live < CHUNK_ROWS / 2 || chunk.dead() > chunk.rows.live
            };
            if let Some(chunk) = slot.take_if(is_small) {
                self.free.push(number as u32);
                self.rows -= chunk.rows.rows.num_rows();
                self.bytes -= chunk.bytes;
                merged.push(chunk);
            }
        }
        let mut waiting: Vec<SerialRows> = Vec::new();
        let mut rows = 0;
        for chunk in merged.iter().filter(|chunk| chunk.rows.live > 0) {
            waiting.push(rows_from(chunk, 0)?);
            rows += chunk.rows.live;
            if rows >= CHUNK_ROWS {
                self.add_merged(&mut waiting)?;
                rows = 0;
            }
        }
        self.add_merged(&mut waiting)
    }

    fn add_merged(&mut self, waiting: &mut Vec<SerialRows>) -> Result<()> {
        let Some((_, first)) = waiting.first() else { return Ok(()) };
        let batch = concat_batches(&first.schema(), waiting.iter().map(|(_, rows)| rows))?;
        let serials = waiting.drain(..).flat_map(|(serials, _)| serials).collect();
        self.add_live(batch, serials)
    }
}

/// The rows of a chunk that are there, with serials from this one on.
fn rows_from(chunk: &StoredChunk, first: u64) -> Result<SerialRows> {
    let is_wanted = |row: usize| chunk.rows.is_alive(row) && chunk.rows.serials[row] >= first;
    let wanted: Vec<usize> = (0..chunk.rows.serials.len()).filter(|&row| is_wanted(row)).collect();
    let serials = wanted.iter().map(|&row| chunk.rows.serials[row]).collect();
    let places = UInt32Array::from_iter_values(wanted.iter().map(|&row| row as u32));
    Ok((serials, take_record_batch(&chunk.rows.rows, &places)?))
}

/// The same rows in buffers that hold no other texts.
fn own_texts(batch: &RecordBatch) -> Result<RecordBatch> {
    let columns = batch.columns().iter().map(|column| own_text(ArrayRef::clone(column)));
    Ok(RecordBatch::try_new(batch.schema(), columns.collect())?)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::{Int64Array, StringViewArray};
    use thalweg_core::live::{LiveTable, TableVersion, VersionChanges};
    use thalweg_core::{Column, DataType};

    use super::*;

    fn schema() -> TableSchema {
        TableSchema::new(vec![
            Column::new("name", DataType::STRING.not_null()),
            Column::new("n", DataType::BigInt.nullable()),
        ])
    }

    fn batch(rows: &[(i64, i64)]) -> Result<RecordBatch> {
        let names = rows.iter().map(|(key, _)| Some(format!("a key of more than 12 bytes {key}")));
        let names: StringViewArray = names.collect();
        let numbers = Int64Array::from_iter_values(rows.iter().map(|&(_, n)| n));
        Ok(RecordBatch::try_new(schema().arrow(), vec![Arc::new(names), Arc::new(numbers)])?)
    }

    fn rows(batches: &[RecordBatch]) -> BTreeMap<String, i64> {
        let mut rows = BTreeMap::new();
        for batch in batches {
            let (names, numbers) =
                (batch.column(0).as_string_view(), batch.column(1).as_primitive::<Int64Type>());
            for row in 0..batch.num_rows() {
                let before = rows.insert(names.value(row).to_owned(), numbers.value(row));
                assert_eq!(before, None, "a key has one row");
            }
        }
        rows
    }

    fn version(chunks: &[LiveChunk]) -> Result<BTreeMap<String, i64>> {
        let batches: Vec<_> = chunks.iter().map(LiveChunk::live_rows).collect::<Result<_>>()?;
        Ok(rows(&batches))
    }

    /// Numbers that look random.
    fn scattered(n: u64) -> i64 {
        (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as i64
    }

    /// Many changes, whose result after each batch is compared with that of a map: in versions,
    /// which stay as they were, and in what captures of changes add up to.
    #[test]
    fn versions_and_captures_show_what_a_map_holds() -> Result<()> {
        let mut store = RowStore::new(&schema(), &[0])?;
        let mut expected: BTreeMap<String, i64> = BTreeMap::new();
        let mut captured: BTreeMap<u64, (String, i64)> = BTreeMap::new();
        let mut old = Vec::new();
        let (mut since, mut step) = (0, 0);
        for turn in 0..400_u64 {
            let mut gone = BTreeSet::new();
            let changes: Vec<(i64, i64)> = (0..300)
                .map(|_| {
                    step += 1;
                    (scattered(step) % 700, step as i64)
                })
                .collect();
            let is_deleted = |row: usize| scattered(changes[row].1 as u64 + 7) % 4 == 0;
            let batch = batch(&changes)?;
            let kind = |row| if is_deleted(row) { RowKind::Delete } else { RowKind::UpdateAfter };
            let note = |serial| assert!(gone.insert(serial), "a row goes once");
            store.apply(&batch, kind, note)?;
            for (row, &(_, n)) in changes.iter().enumerate() {
                let name = batch.column(0).as_string_view().value(row).to_owned();
                match is_deleted(row) {
                    true => drop(expected.remove(&name)),
                    false => drop(expected.insert(name, n)),
                }
            }
            assert_eq!(version(&store.version())?, expected, "turn {turn}");
            captured.retain(|serial, _| !gone.contains(serial));
            for (serials, batch) in store.rows_from(since)()? {
                let named = rows(std::slice::from_ref(&batch));
                assert_eq!(serials.len(), named.len());
                let names = batch.column(0).as_string_view();
                for (row, serial) in serials.into_iter().enumerate() {
                    let name = names.value(row).to_owned();
                    captured.insert(serial, (name.clone(), named[&name]));
                }
            }
            since = store.next_serial();
            assert_eq!(captured.values().cloned().collect::<BTreeMap<_, _>>(), expected);
            if turn % 97 == 0 {
                old.push((store.version(), expected.clone()));
            }
        }
        for (chunks, expected) in old {
            assert_eq!(version(&chunks)?, expected, "a version does not change");
        }
        assert!(store.rows <= 2 * store.live() + DEAD_ROWS_MAX + 300, "{} rows", store.rows);
        Ok(())
    }

    /// The rows of one version, with the changes to another, are those of the other.
    #[test]
    fn changes_between_versions_add_up() -> Result<()> {
        let mut store = RowStore::new(&schema(), &[0])?;
        let table = LiveTable::new(schema(), vec![0]);
        let mut shown = BTreeMap::new();
        let mut before: Option<Arc<TableVersion>> = None;
        for turn in 0..300_u64 {
            let changes: Vec<(i64, i64)> = (0..40 + turn * 3)
                .map(|n| (scattered(turn * 10_000 + n) % 500, (turn * 10_000 + n) as i64))
                .collect();
            let is_deleted = |row: usize| changes[row].1 % 3 == 0;
            let kind = |row| if is_deleted(row) { RowKind::Delete } else { RowKind::Insert };
            store.apply(&batch(&changes)?, kind, |_| ())?;
            table.stage(store.version(), 0);
            table.publish(turn + 1);
            let version = table.version().expect("it is published");
            let changes = match &before {
                Some(before) => version.changes_since(before)?,
                None => VersionChanges { gone: Vec::new(), new: version.batches()? },
            };
            for (name, n) in changes.gone.iter().flat_map(|batch| rows(std::slice::from_ref(batch)))
            {
                assert_eq!(shown.remove(&name), Some(n), "turn {turn}");
            }
            for (name, n) in rows(&changes.new) {
                assert_eq!(shown.insert(name, n), None, "turn {turn}");
            }
            assert_eq!(shown, rows(&version.batches()?), "turn {turn}");
            before = Some(version);
        }
        Ok(())
    }

    #[test]
    fn what_is_restored_is_what_was_captured() -> Result<()> {
        let mut store = RowStore::new(&schema(), &[0])?;
        store.apply(&batch(&[(1, 1), (2, 2), (3, 3)])?, |_| RowKind::Insert, |_| ())?;
        store.apply(
            &batch(&[(2, 9)])?,
            |_| RowKind::UpdateAfter,
            |serial| assert_eq!(serial, 1),
        )?;
        let mut restored = RowStore::new(&schema(), &[0])?;
        for (serials, batch) in store.rows_from(0)()? {
            restored.restore(batch, serials)?;
        }
        assert_eq!(version(&restored.version())?, version(&store.version())?);
        assert_eq!(restored.next_serial(), store.next_serial());
        restored.apply(&batch(&[(1, 0), (2, 0), (3, 0)])?, |_| RowKind::Delete, |_| ())?;
        assert_eq!((restored.live(), version(&restored.version())?.len()), (0, 0));
        Ok(())
    }
}
