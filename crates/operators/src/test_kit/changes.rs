//! Changelogs: their rows with what each does, and what is left of them.

use thalweg_core::RowKind;

use super::Driven;
use super::compare::sorted;
use super::values::rows_of;
use crate::reference::Value;

impl Driven {
    /// The rows that left by port 0, in order. Where they are a changelog, the first value of each is
    /// its kind (`+I`, `-U`, `+U`, `-D`).
    pub fn changes(&self) -> Vec<Vec<Value>> {
        let mut changes = Vec::new();
        for (batch, kinds) in self.emitted.iter().zip(&self.kinds) {
            let mut rows = rows_of(std::slice::from_ref(batch));
            if let Some(kinds) = kinds {
                let each = rows.iter_mut().zip(kinds.iter());
                each.for_each(|(row, kind)| row.insert(0, Value::text(kind.short())));
            }
            changes.extend(rows);
        }
        changes
    }

    /// What is left when all changes were applied, sorted.
    ///
    /// # Panics
    /// If a row is taken back that is not there.
    pub fn final_rows(&self) -> Vec<Vec<Value>> {
        let mut kept = Vec::new();
        for (batch, kinds) in self.emitted.iter().zip(&self.kinds) {
            let rows = rows_of(std::slice::from_ref(batch));
            for (place, row) in rows.into_iter().enumerate() {
                let kind = kinds.as_ref().map_or(RowKind::Insert, |kinds| kinds[place]);
                apply(&mut kept, kind, row);
            }
        }
        sorted(kept)
    }
}

fn apply(kept: &mut Vec<Vec<Value>>, kind: RowKind, row: Vec<Value>) {
    match kind {
        RowKind::Insert | RowKind::UpdateAfter => kept.push(row),
        RowKind::UpdateBefore | RowKind::Delete => {
            let place = kept.iter().position(|other| *other == row);
            let place = place
                .unwrap_or_else(|| panic!("{} of a row that is not there: {row:?}", kind.short()));
            kept.swap_remove(place);
        }
    }
}
