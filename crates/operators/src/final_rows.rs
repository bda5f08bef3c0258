//! What is left of a changelog in the end, as rows that stay: batch mode puts it behind operators
//! that update their results.
//!
//! **Invariant:** an identifier stands for a row that was added more or less often than retracted,
//! and `counts` says by how much. So changes of different keys that make equal rows may come in
//! any order. A row that is retracted more often than it came is not there.
//!
//! Rows are kept in memory until the input ends, as many as the result has. Then each leaves as
//! often as it is there; where a sequence is promised by virtual partition, then by its bytes.
//!
//! It is for batch mode only, where the input is bounded: all results are kept until the end.

use std::sync::Arc;

use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch};
use arrow_schema::{DataType as Arrow, SchemaRef};
use thalweg_core::operator::WatermarkCall;
use thalweg_core::{
    Bundle, Captured, DataType, Extent, Operator, Output, Partition, PartitionContext, Piece,
    Place, Progress, Restored, Result, Route, RowKind, TableSchema, Watermark,
};

use crate::keys::route_by_keys;
use crate::keys::{CanonicalOrder, KeyTable};
use crate::sort::EMIT_ROWS;
use crate::tables::{
    add_table, for_all, is_set, kept_batch, kept_columns, kept_schema, numbers_of, owners,
    state_batch,
};

/// The table of rows that came more or less often than they were retracted.
const ROWS: &str = "rows";
/// How often more.
const COUNT: &str = "$count";
/// Whether any row has come.
const PROGRESS: &str = "progress";
const HAS_COME: &str = "has_come";

/// Applies changes, and sends out the rows that are left at the end.
pub struct FinalRows {
    schema: TableSchema,
    types: Vec<DataType>,
    columns: Vec<usize>,
    otherwise: Option<RecordBatch>,
}

impl FinalRows {
    /// What is left of changes of such rows.
    ///
    /// # Errors
    /// If there is a column of a type that can't be compared.
    pub fn new(schema: TableSchema) -> Result<Self> {
        let types: Vec<DataType> =
            schema.columns.iter().map(|column| column.column_type.data_type.clone()).collect();
        KeyTable::new(&types)?;
        let columns = (0..types.len()).collect();
        Ok(FinalRows { schema, types, columns, otherwise: None })
    }

    /// If no rows came at all these are left: the result that an aggregate without keys has anyway.
    #[must_use]
    pub fn or_else(mut self, rows: RecordBatch) -> Self {
        self.otherwise = Some(rows);
        self
    }
}

impl Operator for FinalRows {
    fn name(&self) -> String {
        "final rows".to_owned()
    }
    fn is_singleton(&self) -> bool {
        // Only who has all rows knows that there are none.
        self.otherwise.is_some()
    }
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        route_by_keys(bundle, &self.columns, partitions)
    }
    fn open(&self, opening: PartitionContext) -> Result<Box<dyn Partition>> {
        Ok(Box::new(FinalPartition {
            schema: self.schema.clone(),
            rows: KeyTable::new(&self.types)?,
            canonical: CanonicalOrder::wanted(opening.order, &self.types)?,
            counts: Vec::new(),
            ids: Vec::new(),
            leaving: None,
            otherwise: self.otherwise.clone(),
        }))
    }
    /// Nothing leaves before the end of time, so nothing is promised before.
    fn output_watermark(&self, input: Watermark) -> Option<Watermark> {
        (input == Watermark::END).then_some(input)
    }
}

struct FinalPartition {
    schema: TableSchema,
    rows: KeyTable,
    /// Set in ordered contracts.
    canonical: Option<CanonicalOrder>,
    /// By identifier.
    counts: Vec<i64>,
    ids: Vec<u32>,
    /// The rows that are left, and how many of them have left, once the input has ended.
    leaving: Option<(Vec<u32>, usize)>,
    /// What is left if no rows come.
    otherwise: Option<RecordBatch>,
}

impl FinalPartition {
    fn state_schema(&self) -> SchemaRef {
        kept_schema(&[(COUNT, Arrow::Int64)], &self.schema)
    }

    /// The identifiers of the rows that are left, each as often as it is there.
    fn left(&self) -> Result<Vec<u32>> {
        let mut live: Vec<u32> =
            (0..self.counts.len() as u32).filter(|&id| self.counts[id as usize] > 0).collect();
        if let Some(canonical) = &self.canonical {
            let places = canonical.permutation(&self.rows, &live, |_| 0)?;
            live = places.into_iter().map(|place| live[place as usize]).collect();
        }
        let times = |id: u32| std::iter::repeat_n(id, self.counts[id as usize] as usize);
        Ok(live.into_iter().flat_map(times).collect())
    }
}

impl Partition for FinalPartition {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        output.accepted += piece.num_rows() as u64;
        if piece.num_rows() > 0 {
            self.otherwise = None;
        }
        self.ids.clear();
        let batch = &piece.bundle.batch;
        self.rows.intern_rows(batch.columns(), piece.rows, batch.num_rows(), &mut self.ids)?;
        self.counts.resize(self.rows.id_limit(), 0);
        let kinds = piece.bundle.kinds.as_deref();
        for (place, &id) in self.ids.iter().enumerate() {
            let row = piece.rows.map_or(place, |rows| rows[place] as usize);
            let kind = kinds.map_or(RowKind::Insert, |kinds| kinds[row]);
            self.counts[id as usize] += match kind {
                RowKind::Insert | RowKind::UpdateAfter => 1,
                RowKind::UpdateBefore | RowKind::Delete => -1,
            };
        }
        // Only now: an identifier that is given to another row must not stand in this bundle.
        self.ids.sort_unstable();
        self.ids.dedup();
        for &id in self.ids.iter().filter(|&&id| self.counts[id as usize] == 0) {
            self.rows.release(id);
        }
        Ok(())
    }

    fn watermark(&mut self, call: &WatermarkCall<'_>, output: &mut Output) -> Result<Progress> {
        if call.watermark != Watermark::END {
            return Ok(Progress::Done);
        }
        if let Some(rows) = self.otherwise.take() {
            output.emit_at(rows, Place::WindowEnd(i64::MAX));
        }
        let (ids, mut from) = match self.leaving.take() {
            Some(leaving) => leaving,
            None => (self.left()?, 0),
        };
        // In a sequence all rows of a time leave together.
        let (most, place) = match self.canonical {
            Some(_) => (usize::MAX, Place::WindowEnd(i64::MAX)),
            None => (EMIT_ROWS, Place::AsEmitted),
        };
        while from < ids.len() {
            let to = ids.len().min(from.saturating_add(most));
            let columns = self.rows.take_keys(&ids[from..to])?;
            let batch = RecordBatch::try_new(Arc::clone(&self.schema.arrow()), columns)?;
            output.emit_at(batch, place.clone());
            from = to;
            if from < ids.len() && output.time_is_up() {
                self.leaving = Some((ids, from));
                return Ok(Progress::More);
            }
        }
        Ok(Progress::Done)
    }

    fn state_bytes(&self) -> usize {
        let leaving = self.leaving.as_ref().map_or(0, |(ids, _)| ids.capacity());
        self.rows.bytes() + self.counts.capacity() * 8 + (self.ids.capacity() + leaving) * 4
    }

    fn state_keys(&self) -> Option<usize> {
        Some(self.rows.len())
    }

    fn wakes_at(&self) -> Watermark {
        Watermark::END
    }

    /// Before the input has ended no row leaves.
    fn capture(&mut self, _: Extent) -> Result<Captured> {
        let ids = 0..self.counts.len() as u32;
        let ids: Vec<u32> = ids.filter(|&id| self.counts[id as usize] != 0).collect();
        let counts = ids.iter().map(|&id| self.counts[id as usize]);
        let own: ArrayRef = Arc::new(Int64Array::from_iter_values(counts));
        let owners = owners(ids.iter().map(|&id| self.rows.hash_of(id)));
        let columns = self.rows.take_keys(&ids)?;
        let mut captured = Captured::default();
        let rows = kept_batch(&self.state_schema(), owners, vec![own], columns)?;
        add_table(&mut captured, ROWS, rows);
        let has_come: ArrayRef = Arc::new(BooleanArray::from(vec![self.otherwise.is_none()]));
        let progress = vec![(HAS_COME.to_owned(), has_come)];
        add_table(&mut captured, PROGRESS, state_batch(for_all(1), progress)?);
        Ok(captured)
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        if is_set(restored, PROGRESS, HAS_COME)? {
            self.otherwise = None;
        }
        for batch in restored.table(ROWS) {
            let columns = kept_columns(batch, &self.state_schema(), self.schema.len())?;
            let counts = numbers_of::<Int64Type>(batch, COUNT)?;
            self.ids.clear();
            self.rows.intern_rows(&columns, None, batch.num_rows(), &mut self.ids)?;
            self.counts.resize(self.rows.id_limit(), 0);
            for (&id, &count) in self.ids.iter().zip(counts) {
                self.counts[id as usize] = count;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{ArrayRef, Int64Array, StringViewArray};
    use thalweg_core::shim::SplitMix64;
    use thalweg_core::{Column, WatermarkBefore};

    use super::*;
    use crate::test_kit::{
        DriveOptions, Event, changes, check_damaged_state, check_operator, drive, inserts,
    };

    fn schema() -> TableSchema {
        TableSchema::new(vec![
            Column::new("name", DataType::STRING.nullable()),
            Column::new("n", DataType::BigInt.not_null()),
        ])
    }

    fn batch(rows: &[(Option<&'static str>, i64)]) -> RecordBatch {
        let names: StringViewArray = rows.iter().map(|row| row.0).collect();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(names),
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.1))),
        ];
        RecordBatch::try_new(schema().arrow(), columns).expect("columns fit")
    }

    #[test]
    fn what_is_left_is_what_a_list_has_left() {
        let names = [Some("tea"), Some("coffee"), None];
        for seed in 0..30 {
            let mut random = SplitMix64::new(seed);
            let (mut kept, mut rows, mut kinds) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..300 {
                if random.below(5) < 2 && !kept.is_empty() {
                    let taken = kept.swap_remove(random.below(kept.len() as u64) as usize);
                    rows.push(taken);
                    kinds.push([RowKind::UpdateBefore, RowKind::Delete][random.below(2) as usize]);
                } else {
                    let row = (names[random.below(3) as usize], random.below(8) as i64);
                    kept.push(row);
                    rows.push(row);
                    kinds.push([RowKind::Insert, RowKind::UpdateAfter][random.below(2) as usize]);
                }
            }
            let operator = FinalRows::new(schema()).expect("types can be compared");
            let script = changes(&batch(&rows), &kinds);
            check_damaged_state(&operator, &script);
            let driven = check_operator(&operator, &script);
            assert!(driven.kinds.iter().all(Option::is_none), "rows that stay");
            let wanted = drive(&operator, &inserts(&batch(&kept)), &DriveOptions::default());
            assert_eq!(driven.final_rows(), wanted.expect("it runs").final_rows(), "seed {seed}");
            assert_eq!(driven.final_rows().len(), kept.len(), "seed {seed}");
        }
    }

    #[test]
    fn where_nothing_comes_something_else_may_be_left() {
        let operator = || FinalRows::new(schema()).expect("types can be compared");
        let otherwise = operator().or_else(batch(&[(None, 0)]));
        assert_eq!(check_operator(&otherwise, &[]).final_rows().len(), 1);
        assert_eq!(check_operator(&operator(), &[]).final_rows().len(), 0);
        let rows = batch(&[(None, 1), (None, 1)]);
        let retracted = changes(&rows, &[RowKind::Insert, RowKind::Delete]);
        assert_eq!(check_operator(&otherwise, &retracted).final_rows().len(), 0);
    }

    #[test]
    fn a_row_may_be_retracted_before_it_comes() {
        let rows = batch(&[(None, 1), (None, 2), (None, 1)]);
        let kinds = [RowKind::Delete, RowKind::Insert, RowKind::Insert];
        let operator = FinalRows::new(schema()).expect("types can be compared");
        let driven = check_operator(&operator, &changes(&rows, &kinds));
        assert_eq!(driven.final_rows().len(), 1);
    }

    #[test]
    fn rows_that_went_take_no_memory() {
        let churn = |keys: i64| {
            let rows: Vec<_> = (0..keys).flat_map(|n| [(None, n), (None, n)]).collect();
            let kinds: Vec<_> =
                (0..keys).flat_map(|_| [RowKind::Insert, RowKind::Delete]).collect();
            let events: Vec<Event> = rows
                .chunks(100)
                .zip(kinds.chunks(100))
                .map(|(rows, kinds)| Event::Changes {
                    lane: 0,
                    batch: batch(rows),
                    kinds: kinds.to_vec(),
                    watermark_before: WatermarkBefore::All(Watermark::MIN),
                })
                .collect();
            let operator = FinalRows::new(schema()).expect("types can be compared");
            let options = DriveOptions { bundle_rows: 100, ..DriveOptions::default() };
            drive(&operator, &events, &options).expect("it runs").peak_state_bytes
        };
        // What keys leave behind is cleared away now and then; all of them would take megabytes.
        let (few, many) = (churn(1_000), churn(100_000));
        assert!(few.max(many) < 200_000, "{few} and {many} bytes");
    }
}
