//! What Top-N tells of its state: the rows of each key in their order, those that sort alike as they came.
//!
//! Sort keys are encoded anew, and limits, upsert keys and windows follow from the rows: in the same
//! order, so that ties are broken as before. Between two pieces no change waits and no window leaves.
//!
//! Captures tell all rows of the keys that rows have reached, without those that are passed over
//! ([`crate::watch`]). Where rows are taken back all rows of a key are kept, and there may be very many: then
//! everything is told each time, places at once and rows later.

use arrow_array::{ArrayRef, RecordBatch};
use thalweg_core::{Bundle, Captured, DataType, Piece, Restored, Result, Stamps};

use super::incoming::Incoming;
use super::ordered::Entry;
use super::partition::TopNPartition;
use super::told::TakenBack;
use crate::join::regular::arena::Place;
use crate::keys::KeyTable;
use crate::watch::keys::{KeyWatch, KeyedState};

/// The tables of state.
pub(super) const TABLES: [&str; 1] = ["rows"];
pub(super) const ROWS: usize = 0;

impl KeyedState for TopNPartition {
    fn keys(&self) -> &KeyTable {
        &self.keys
    }
    fn key_types(&self) -> Vec<DataType> {
        self.shared.spec.key_types()
    }
    fn has(&self, _: usize, id: u32) -> bool {
        self.ordered.get(id as usize).is_some_and(|ordered| ordered.len() > 0)
    }
    fn tell(&self, _: usize, ids: &[u32]) -> Result<RecordBatch> {
        let (ids, places): (Vec<u32>, Vec<Place>) = self.places(ids.iter().copied()).unzip();
        self.told.tell_rows(&self.keys, &self.expiry, &self.store.arena, (&ids, &places))
    }
    fn watch(&mut self, _: usize) -> &mut Option<KeyWatch> {
        &mut self.watch
    }
    fn tells_at_once(&self) -> bool {
        self.shared.spec.keeps_all()
    }
}

impl TopNPartition {
    /// The rows of these keys, in their order.
    fn places(&self, ids: impl Iterator<Item = u32>) -> impl Iterator<Item = (u32, Place)> {
        ids.flat_map(move |id| {
            let entries = self.ordered[id as usize].iter_from(0);
            entries.map(move |entry: Entry| (id, self.store.place(entry.row)))
        })
    }

    /// Tells all rows, the places of which are noted now.
    pub fn tell_all(&self) -> Captured {
        let rows = self.places(0..self.ordered.len() as u32);
        let arena = &self.store.arena;
        let table = self.told.tell_later(TABLES[ROWS], &self.keys, &self.expiry, arena, rows);
        Captured { tables: vec![table] }
    }

    /// Takes back what partitions have told.
    pub fn take_back(&mut self, restored: &Restored) -> Result<()> {
        let table = self.told.clone();
        for batch in restored.table(TABLES[ROWS]) {
            let told = table.take_back(batch)?;
            self.take_back_rows(&told)?;
        }
        Ok(())
    }

    fn take_back_rows(&mut self, told: &TakenBack<'_>) -> Result<()> {
        let bundle = Bundle::new(told.rows.clone(), Stamps::first());
        let piece = Piece { bundle: &bundle, rows: None, lanes: 1 };
        let incoming = Incoming::new(&piece, None, &self.sort)?;
        let rows = told.rows.num_rows();
        let column = |&key: &usize| ArrayRef::clone(told.rows.column(key));
        let columns: Vec<ArrayRef> = self.shared.spec.keys.iter().map(column).collect();
        self.ids.clear();
        self.keys.intern_rows(&columns, None, rows, &mut self.ids)?;
        self.grow();
        if let Some(unique) = &mut self.unique {
            unique.begin(&told.rows, None)?;
        }
        for position in 0..rows {
            let id = self.ids[position];
            let row = self.store.add(position as u32);
            let entry = Entry { prefix: incoming.prefixes[position], row };
            self.change(id, |ordered| ordered.push(entry));
            if let Some(unique) = &mut self.unique {
                unique.set(position, entry);
            }
            told.write(&mut self.expiry, id, position);
        }
        if !self.shared.spec.keeps_all() {
            let mut ids = self.ids.clone();
            ids.dedup();
            ids.into_iter().for_each(|id| self.evict(id, &incoming));
        }
        self.note_windows(&piece, &incoming)?;
        self.finish(&incoming.columns)
    }
}
