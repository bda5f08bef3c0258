//! What Top-N tells of its state: the rows of each key in their order, those that sort alike as they came.
//!
//! Sort keys are encoded anew, and limits, upsert keys and windows follow from the rows: in the same
//! order, so that ties are broken as before. Between two pieces no change waits and no window leaves.

use std::sync::Arc;

use arrow_array::ArrayRef;
use thalweg_core::{Bundle, Captured, Piece, Restored, Result, Stamps, TableSchema};

use super::incoming::Incoming;
use super::ordered::Entry;
use super::partition::TopNPartition;
use super::told::{TakenBack, Told};

const ROWS: &str = "rows";

impl TopNPartition {
    fn told<'a>(&self, columns: &'a TableSchema) -> Told<'a> {
        Told::new(ROWS, columns, &self.expiry)
    }

    /// Tells the rows.
    pub fn tell(&self) -> Captured {
        let mut captured = Captured::default();
        let rows = self.ordered.iter().enumerate().flat_map(|(id, ordered)| {
            let place = move |entry: Entry| (id as u32, self.store.place(entry.row));
            ordered.iter_from(0).map(place)
        });
        let told = self.told(&self.shared.spec.input);
        told.tell_rows(&mut captured, &self.keys, &self.expiry, &self.store.arena, rows);
        captured
    }

    /// Takes back what partitions have told.
    pub fn take_back(&mut self, restored: &Restored) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        for batch in restored.table(ROWS) {
            let told = self.told(&shared.spec.input).take_back(batch)?;
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
