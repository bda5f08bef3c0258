//! Changelogs: as scripts, as lines of text, as rows with what each does, and what is left of them.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMillisecondType;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow_cast::display::array_value_to_string;
use arrow_select::take::take_record_batch;
use thalweg_core::shim::SplitMix64;
use thalweg_core::text::format_timestamp_millis;
use thalweg_core::{RowKind, Watermark, WatermarkBefore};

use super::compare::sorted;
use super::values::rows_of;
use super::{Driven, Event};
use crate::reference::Value;

const NO_WATERMARK: WatermarkBefore = WatermarkBefore::All(Watermark::MIN);

/// A script of rows that stay.
pub fn inserts(batch: &RecordBatch) -> Vec<Event> {
    vec![Event::Rows { lane: 0, batch: batch.clone(), watermark_before: NO_WATERMARK }]
}

/// A script of rows that do this.
pub fn changes(batch: &RecordBatch, kinds: &[RowKind]) -> Vec<Event> {
    let (batch, kinds) = (batch.clone(), kinds.to_vec());
    vec![Event::Changes { lane: 0, batch, kinds, watermark_before: NO_WATERMARK }]
}

/// A changelog as long as these rows, which come in their order. `goes` takes the number of a row
/// that is to go from those that are there, or none where another is to come.
pub fn changelog_of(
    rows: &RecordBatch,
    random: &mut SplitMix64,
    mut goes: impl FnMut(&mut SplitMix64, &mut Vec<u32>) -> Option<u32>,
) -> (RecordBatch, Vec<RowKind>) {
    let (mut live, mut picks, mut kinds) = (Vec::new(), Vec::new(), Vec::new());
    let mut next = 0;
    while picks.len() < rows.num_rows() {
        if let Some(row) = goes(random, &mut live) {
            picks.push(row);
            kinds.push([RowKind::UpdateBefore, RowKind::Delete][random.below(2) as usize]);
        } else {
            live.push(next);
            picks.push(next);
            kinds.push([RowKind::UpdateAfter, RowKind::Insert][random.below(2) as usize]);
            next += 1;
        }
    }
    let picks = UInt32Array::from(picks);
    (take_record_batch(rows, &picks).expect("rows that are there"), kinds)
}

/// One line per change, as a golden case has it.
pub fn lines(driven: &Driven) -> Vec<String> {
    let each = driven.emitted.iter().zip(&driven.kinds);
    each.flat_map(|(batch, kinds)| lines_of(batch, kinds.as_ref())).collect()
}

/// The lines of these rows; without kinds they are inserts.
pub fn lines_of(batch: &RecordBatch, kinds: Option<&Arc<[RowKind]>>) -> Vec<String> {
    let line = |row: usize| {
        let kind = kinds.map_or(RowKind::Insert, |kinds| kinds[row]);
        let values = batch.columns().iter().map(|column| text(column, row));
        std::iter::once(kind.short().to_string()).chain(values).collect::<Vec<_>>().join(",")
    };
    (0..batch.num_rows()).map(line).collect()
}

fn text(column: &ArrayRef, row: usize) -> String {
    if column.is_null(row) {
        return "\\N".to_string();
    }
    match column.as_primitive_opt::<TimestampMillisecondType>() {
        Some(times) => format_timestamp_millis(times.value(row), 3),
        None => array_value_to_string(column, row).expect("a printable value"),
    }
}

impl Driven {
    /// The rows that left by port 0, in order. Where they are a changelog, the first value of each
    /// is its kind (`+I`, `-U`, `+U`, `-D`).
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
    /// If a row is retracted that is not there.
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
