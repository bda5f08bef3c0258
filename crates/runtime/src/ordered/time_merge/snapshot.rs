//! The rows and watermarks that wait in a merge by time, as tables of a snapshot, and back.
//!
//! | table | a row for | columns |
//! |---|---|---|
//! | `waiting` | each row that waits, in the order of its lane | `$lane`, `$item`, `$time_ms`, `$before_ms`, `$kind`, then its own columns |
//! | `marks` | each watermark that waits | `lane`, `item`, `time_ms`, `watermark_ms` |
//! | `lanes` | each lane | `lane`, `frontier_ms`, `has_ended`, `floor_ms` |
//! | `merge` | the merge | `frontier_ms`, `serial` |
//!
//! `item` numbers what waits in a lane, rows and watermarks alike, so that they come back in their
//! order.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int8Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Int8Array, Int64Array, PrimitiveArray, RecordBatch, UInt8Array,
    UInt32Array, UInt64Array,
};
use arrow_schema::{Field, Schema};
use thalweg_core::snapshot::{InputState, PARTITION_COLUMN, state_schema};
use thalweg_core::{Captured, Error, Restored, Result, RowKind, Watermark, WatermarkBefore};

use super::TimeMerge;
use crate::sorted_merge::{SortedRows, WaitingItem};

const WAITING: &str = "waiting";
const MARKS: &str = "marks";
const LANES: &str = "lanes";
const MERGE: &str = "merge";
/// Columns of `waiting` in front of the rows' own, that of the partition included.
const OWN_COLUMNS: usize = 6;

impl TimeMerge {
    /// Bytes that what waits here counts in the memory account.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.bytes + self.merge.waiting_bytes()
    }

    /// What is known of the lanes.
    pub(crate) fn input_state(&self, passed: Watermark) -> InputState {
        self.joint.input_state(passed)
    }

    /// What waits, as tables.
    pub(crate) fn capture(&self) -> Result<Captured> {
        let mut captured = Captured::default();
        let (mut rows, mut marks) = (Vec::new(), Vec::new());
        for (lane, state) in self.lanes.iter().enumerate() {
            let mut marked = state.marked.iter();
            for (item, waiting) in self.merge.waiting(lane).enumerate() {
                match waiting {
                    WaitingItem::Rows(of_item, from) => {
                        rows.push(captured_rows(lane as u32, item as u64, of_item, from)?);
                    }
                    WaitingItem::Mark(time_ms) => {
                        let (watermark, _) = marked.next().expect("every mark has its watermark");
                        marks.push((lane as u32, item as u64, time_ms, watermark.0));
                    }
                }
            }
        }
        if let Some(first) = rows.first() {
            captured.add(WAITING, first.schema(), rows);
        }
        add_table(&mut captured, MARKS, marks_columns(&marks))?;
        add_table(&mut captured, LANES, self.lanes_columns())?;
        let of_merge: Vec<(&str, ArrayRef)> = vec![
            ("frontier_ms", Arc::new(Int64Array::from(vec![self.frontier_ms]))),
            ("serial", Arc::new(UInt64Array::from(vec![self.serial]))),
        ];
        add_table(&mut captured, MERGE, of_merge)?;
        Ok(captured)
    }

    fn lanes_columns(&self) -> Vec<(&'static str, ArrayRef)> {
        let count = self.lanes.len();
        let states = (0..count).map(|lane| self.merge.state_of(lane));
        let (frontiers, ended): (Vec<i64>, Vec<bool>) = states.unzip();
        let floors: Int64Array = self.lanes.iter().map(|lane| lane.floor_ms).collect();
        vec![
            ("lane", Arc::new(UInt32Array::from_iter_values(0..count as u32))),
            ("frontier_ms", Arc::new(Int64Array::from(frontiers))),
            ("has_ended", Arc::new(BooleanArray::from(ended))),
            ("floor_ms", Arc::new(floors)),
        ]
    }

    /// Restores what waited. Returns its bytes.
    ///
    /// # Errors
    /// If what was saved does not fit.
    pub(crate) fn restore(&mut self, inputs: &InputState, saved: &Restored) -> Result<usize> {
        self.joint.restore(inputs)?;
        self.restore_waiting(saved)?;
        for batch in saved.table(LANES) {
            let frontiers = typed::<Int64Type>(batch, "frontier_ms")?;
            let floors = typed::<Int64Type>(batch, "floor_ms")?;
            let ended = batch.column_by_name("has_ended").and_then(|c| c.as_boolean_opt());
            let ended = ended.ok_or_else(does_not_fit)?;
            for (place, lane) in typed::<UInt32Type>(batch, "lane")?.values().iter().enumerate() {
                let number = *lane as usize;
                let lane = self.lanes.get_mut(number).ok_or_else(does_not_fit)?;
                lane.floor_ms = floors.is_valid(place).then(|| floors.value(place));
                self.merge.set_state(number, frontiers.value(place), ended.value(place));
            }
        }
        for (lane, saved) in inputs.lanes.iter().enumerate() {
            self.merge.set_idle(lane, saved.idle);
        }
        for batch in saved.table(MERGE).iter().filter(|batch| batch.num_rows() > 0) {
            self.frontier_ms = typed::<Int64Type>(batch, "frontier_ms")?.value(0);
            self.serial = typed::<UInt64Type>(batch, "serial")?.value(0);
        }
        Ok(self.waiting_bytes())
    }

    /// Rows and watermarks of each lane in the order in which they waited.
    fn restore_waiting(&mut self, saved: &Restored) -> Result<()> {
        let mut items: Vec<(u32, u64, Back)> = Vec::new();
        for batch in saved.table(WAITING) {
            for (lane, item, rows) in rows_back(batch)? {
                items.push((lane, item, Back::Rows(rows)));
            }
        }
        for batch in saved.table(MARKS) {
            let (times, watermarks) =
                (typed::<Int64Type>(batch, "time_ms")?, typed::<Int64Type>(batch, "watermark_ms")?);
            let (lanes, numbers) =
                (typed::<UInt32Type>(batch, "lane")?, typed::<UInt64Type>(batch, "item")?);
            for row in 0..batch.num_rows() {
                let back = Back::Mark(times.value(row), Watermark(watermarks.value(row)));
                items.push((lanes.value(row), numbers.value(row), back));
            }
        }
        items.sort_by_key(|&(lane, item, _)| (lane, item));
        for (lane, _, item) in items {
            let lane = lane as usize;
            let state = self.lanes.get_mut(lane).ok_or_else(does_not_fit)?;
            match item {
                Back::Rows(rows) => self.merge.push_rows(lane, rows)?,
                Back::Mark(time_ms, watermark) => {
                    self.merge.advance_to(lane, time_ms);
                    self.merge.mark(lane);
                    state.marked.push_back((watermark, 0));
                }
            }
        }
        Ok(())
    }
}

/// Something that waits again.
enum Back {
    Rows(SortedRows),
    Mark(i64, Watermark),
}

/// The rows of an item from this one on, with what goes with them.
fn captured_rows(lane: u32, item: u64, rows: &SortedRows, from: usize) -> Result<RecordBatch> {
    let count = rows.times.len() - from;
    let before = (from..from + count).map(|row| rows.watermark_before.at(row).0);
    let kinds: Int8Array = match &rows.kinds {
        Some(kinds) => kinds[from..].iter().map(|kind| Some(kind.code())).collect(),
        None => Int8Array::new_null(count),
    };
    let own: Vec<(&str, ArrayRef)> = vec![
        ("$lane", Arc::new(UInt32Array::from(vec![lane; count]))),
        ("$item", Arc::new(UInt64Array::from(vec![item; count]))),
        ("$time_ms", Arc::new(Int64Array::new(rows.times.slice(from, count), None))),
        ("$before_ms", Arc::new(Int64Array::from_iter_values(before))),
        ("$kind", Arc::new(kinds)),
    ];
    let batch = rows.batch.slice(from, count);
    let fields =
        own.iter().map(|(name, column)| Field::new(*name, column.data_type().clone(), true));
    let fields =
        fields.chain(batch.schema_ref().fields().iter().map(|field| field.as_ref().clone()));
    let schema = state_schema(fields);
    let for_all: ArrayRef = Arc::new(UInt8Array::new_null(count));
    let columns = own.into_iter().map(|(_, column)| column).chain(batch.columns().iter().cloned());
    Ok(RecordBatch::try_new(schema, std::iter::once(for_all).chain(columns).collect())?)
}

/// The items of a batch.
fn rows_back(batch: &RecordBatch) -> Result<Vec<(u32, u64, SortedRows)>> {
    let (lanes, items) =
        (typed::<UInt32Type>(batch, "$lane")?, typed::<UInt64Type>(batch, "$item")?);
    let times = typed::<Int64Type>(batch, "$time_ms")?;
    let before = typed::<Int64Type>(batch, "$before_ms")?;
    let kinds = typed::<Int8Type>(batch, "$kind")?;
    let fields = batch.schema_ref().fields();
    let fields = fields.iter().skip(OWN_COLUMNS).cloned().collect::<Vec<_>>();
    let rows = RecordBatch::try_new(
        Arc::new(Schema::new(fields)),
        batch.columns()[OWN_COLUMNS.min(batch.num_columns())..].to_vec(),
    )?;
    let mut back = Vec::new();
    let mut from = 0;
    while from < batch.num_rows() {
        let place = (lanes.value(from), items.value(from));
        let is_same = |&row: &usize| (lanes.value(row), items.value(row)) == place;
        let count = (from..batch.num_rows()).take_while(is_same).count();
        let kinds = (kinds.is_valid(from)).then(|| {
            let kinds = kinds.values()[from..from + count].iter();
            kinds.map(|&code| RowKind::from_code(code).ok_or_else(does_not_fit)).collect()
        });
        let mut rows = SortedRows {
            batch: rows.slice(from, count),
            times: times.values().slice(from, count),
            watermark_before: WatermarkBefore::Rows(before.values().slice(from, count)),
            kinds: kinds.transpose()?,
            ingest_ns: 0,
            bytes: 0,
        };
        rows.bytes = thalweg_core::bundle::batch_bytes(&rows.batch) + 8 * count;
        back.push((place.0, place.1, rows));
        from += count;
    }
    Ok(back)
}

fn marks_columns(marks: &[(u32, u64, i64, i64)]) -> Vec<(&'static str, ArrayRef)> {
    let watermarks = marks.iter().map(|&(.., watermark_ms)| watermark_ms);
    vec![
        ("lane", Arc::new(UInt32Array::from_iter_values(marks.iter().map(|mark| mark.0)))),
        ("item", Arc::new(UInt64Array::from_iter_values(marks.iter().map(|mark| mark.1)))),
        ("time_ms", Arc::new(Int64Array::from_iter_values(marks.iter().map(|mark| mark.2)))),
        ("watermark_ms", Arc::new(Int64Array::from_iter_values(watermarks))),
    ]
}

/// Adds a table that is for all.
fn add_table(
    captured: &mut Captured,
    name: &'static str,
    columns: Vec<(&str, ArrayRef)>,
) -> Result<()> {
    let rows = columns.first().map_or(0, |(_, column)| column.len());
    let fields = columns.iter().map(|(name, c)| Field::new(*name, c.data_type().clone(), true));
    let schema = state_schema(fields);
    let for_all: ArrayRef = Arc::new(UInt8Array::new_null(rows));
    let columns = columns.into_iter().map(|(_, column)| column);
    let batch = RecordBatch::try_new(
        Arc::clone(&schema),
        std::iter::once(for_all).chain(columns).collect(),
    )?;
    captured.add(name, schema, vec![batch]);
    Ok(())
}

fn typed<'a, T: ArrowPrimitiveType>(
    batch: &'a RecordBatch,
    name: &str,
) -> Result<&'a PrimitiveArray<T>> {
    let column = batch.column_by_name(name).and_then(|column| column.as_primitive_opt());
    column.ok_or_else(does_not_fit)
}

fn does_not_fit() -> Error {
    Error::data(format!(
        "the rows in the snapshot that wait for other inputs do not fit (behind {PARTITION_COLUMN})"
    ))
    .hint("the snapshot is damaged, or was written by another version")
}
