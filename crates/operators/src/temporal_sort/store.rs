//! Batches with rows that wait. A batch is freed when its last row has left.
//!
//! Rows are gathered when they leave, many at once. The keys behind the time are encoded once, when
//! a batch comes.

use std::cmp::Ordering;

use arrow_array::RecordBatch;
use arrow_row::Rows;
use arrow_select::interleave::interleave_record_batch;
use hashbrown::HashMap;
use thalweg_core::Result;
use thalweg_core::bundle::batch_bytes;

/// Where a row is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StoredPlace {
    batch: u32,
    row: u32,
}

struct Stored {
    batch: RecordBatch,
    keys: Option<Rows>,
    waiting: usize,
    bytes: usize,
}

#[derive(Default)]
pub(super) struct Store {
    stored: Vec<Option<Stored>>,
    free: Vec<u32>,
    bytes: usize,
}

impl Store {
    /// Takes a batch of which no row waits yet.
    pub fn add(&mut self, batch: RecordBatch, keys: Option<Rows>) -> u32 {
        let bytes = batch_bytes(&batch) + keys.as_ref().map_or(0, Rows::size);
        self.bytes += bytes;
        let stored = Some(Stored { batch, keys, waiting: 0, bytes });
        match self.free.pop() {
            Some(index) => {
                self.stored[index as usize] = stored;
                index
            }
            None => {
                self.stored.push(stored);
                self.stored.len() as u32 - 1
            }
        }
    }

    /// Remembers that a row waits.
    pub fn keep(&mut self, batch: u32, row: u32) -> StoredPlace {
        self.at_mut(batch).waiting += 1;
        StoredPlace { batch, row }
    }

    /// Frees a batch none of whose rows waits.
    pub fn release_if_unused(&mut self, batch: u32) {
        if self.at(batch).waiting == 0 {
            self.bytes -= self.at(batch).bytes;
            self.stored[batch as usize] = None;
            self.free.push(batch);
        }
    }

    /// Compares the further keys of two rows.
    pub fn compare_keys(&self, a: StoredPlace, b: StoredPlace) -> Ordering {
        match (&self.at(a.batch).keys, &self.at(b.batch).keys) {
            (Some(left), Some(right)) => left.row(a.row as usize).cmp(&right.row(b.row as usize)),
            _ => Ordering::Equal,
        }
    }

    /// The same rows at the same places, for reading only: they stay while this store continues.
    pub fn frozen(&self) -> Store {
        let freeze = |stored: &Stored| Stored {
            batch: stored.batch.clone(),
            keys: None,
            waiting: 0,
            bytes: 0,
        };
        let stored = self.stored.iter().map(|stored| stored.as_ref().map(freeze)).collect();
        Store { stored, free: Vec::new(), bytes: 0 }
    }

    /// Rows in this order.
    pub fn read(&self, places: &[StoredPlace]) -> Result<RecordBatch> {
        Ok(self.gather(places)?.0)
    }

    /// Takes rows out, in this order.
    pub fn take(&mut self, places: &[StoredPlace]) -> Result<RecordBatch> {
        let (taken, used) = self.gather(places)?;
        for place in places {
            self.at_mut(place.batch).waiting -= 1;
        }
        for index in used {
            self.release_if_unused(index);
        }
        Ok(taken)
    }

    /// Rows, and the batches that they lie in.
    fn gather(&self, places: &[StoredPlace]) -> Result<(RecordBatch, Vec<u32>)> {
        let mut local: HashMap<u32, usize> = HashMap::new();
        let mut used = Vec::new();
        let mut indices = Vec::with_capacity(places.len());
        for place in places {
            let at = *local.entry(place.batch).or_insert_with(|| {
                used.push(place.batch);
                used.len() - 1
            });
            indices.push((at, place.row as usize));
        }
        let batches: Vec<&RecordBatch> = used.iter().map(|&index| &self.at(index).batch).collect();
        Ok((interleave_record_batch(&batches, &indices)?, used))
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn at(&self, batch: u32) -> &Stored {
        self.stored[batch as usize].as_ref().expect("a place names a batch that is kept")
    }
    fn at_mut(&mut self, batch: u32) -> &mut Stored {
        self.stored[batch as usize].as_mut().expect("a place names a batch that is kept")
    }
}
