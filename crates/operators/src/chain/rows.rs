//! The rows on their way through a chain: a batch, which of its rows are still meant, and what
//! travels with each row.
//!
//! `selection` marks rows that are still meant. `watermark_before`, `kinds` and `places` always
//! have as many entries as the batch has rows, selected or not; `compact` shortens all of them
//! together.

use std::sync::Arc;

use crate::rows::columns::batch_of;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch};
use arrow_buffer::{BooleanBuffer, ScalarBuffer};
use arrow_schema::SchemaRef;
use arrow_select::filter::{FilterBuilder, FilterPredicate};
use thalweg_core::{Error, Result, RowKind, WatermarkBefore};
use thalweg_expr::{EvalContext, Expr, ExprKind};

/// Below this share of selected rows (one in this many) computing over all of them is a waste.
const SPARSE_ONE_IN: usize = 2;

#[derive(Clone)]
pub(super) struct Rows {
    pub batch: RecordBatch,
    pub watermark_before: WatermarkBefore,
    pub kinds: Option<Arc<[RowKind]>>,
    /// See `Stamps::row_places`.
    pub places: Option<ScalarBuffer<i64>>,
    /// The rows that are still meant and how many; `None` means all.
    selection: Option<(BooleanBuffer, usize)>,
}

impl Rows {
    pub fn new(
        batch: RecordBatch,
        watermark_before: WatermarkBefore,
        kinds: Option<Arc<[RowKind]>>,
        places: Option<ScalarBuffer<i64>>,
    ) -> Self {
        Rows { batch, watermark_before, kinds, places, selection: None }
    }

    /// Some of the rows, of which all are meant.
    pub fn slice(&self, from: usize, count: usize) -> Rows {
        let watermark_before = match &self.watermark_before {
            WatermarkBefore::All(watermark) => WatermarkBefore::All(*watermark),
            WatermarkBefore::Rows(rows) => WatermarkBefore::Rows(rows.slice(from, count)),
        };
        Rows {
            batch: self.batch.slice(from, count),
            watermark_before,
            kinds: self.kinds.as_ref().map(|kinds| kinds[from..from + count].into()),
            places: self.places.as_ref().map(|places| places.slice(from, count)),
            selection: None,
        }
    }

    /// True if most rows are no longer meant.
    pub fn is_sparse(&self) -> bool {
        self.selection
            .as_ref()
            .is_some_and(|(_, count)| count * SPARSE_ONE_IN < self.batch.num_rows())
    }

    pub fn evaluate(&self, expr: &Expr, wall_ms: i64) -> Result<ArrayRef> {
        expr.evaluate(&self.context(wall_ms))
    }

    fn context(&self, wall_ms: i64) -> EvalContext<'_> {
        EvalContext { batch: &self.batch, watermark_before: &self.watermark_before, wall_ms }
    }

    /// Takes out the rows for which the predicate is not TRUE.
    pub fn filter(&mut self, predicate: &Expr, wall_ms: i64) -> Result<()> {
        let mask = predicate.evaluate_mask(&self.context(wall_ms))?;
        self.select(&mask);
        Ok(())
    }

    /// Takes out the rows for which the mask is not true.
    ///
    /// A row once taken out stays out: masks are combined. A mask that takes nothing out leaves no
    /// selection, so that later steps see dense rows.
    pub fn select(&mut self, mask: &BooleanArray) {
        let mut selected = match mask.nulls() {
            Some(nulls) if nulls.null_count() > 0 => mask.values() & nulls.inner(),
            _ => mask.values().clone(),
        };
        if let Some((earlier, _)) = &self.selection {
            selected = earlier & &selected;
        }
        let count = selected.count_set_bits();
        self.selection = (count < self.batch.num_rows()).then_some((selected, count));
    }

    /// True if no row is meant any more.
    pub fn is_empty(&self) -> bool {
        self.selection.as_ref().map_or(self.batch.num_rows(), |(_, count)| *count) == 0
    }

    /// Continues without rows, with this empty batch.
    pub fn empty(&mut self, batch: &RecordBatch) {
        self.batch = batch.clone();
        self.selection = None;
        if let WatermarkBefore::Rows(_) = self.watermark_before {
            self.watermark_before = WatermarkBefore::Rows(Vec::new().into());
        }
        self.kinds = self.kinds.take().map(|_| Arc::from([]));
        self.places = self.places.take().map(|_| Vec::new().into());
    }

    /// Replaces the columns. Plain references share their array.
    pub fn project(&mut self, schema: &SchemaRef, exprs: &[Expr], wall_ms: i64) -> Result<()> {
        let columns = exprs
            .iter()
            .zip(schema.fields())
            .map(|(expr, field)| match expr.kind {
                ExprKind::Column(index) => Ok(self.batch.column(index).clone()),
                _ => self.evaluate(expr, wall_ms).map_err(|e| in_column(e, field.name())),
            })
            .collect::<Result<Vec<_>>>()?;
        self.batch = batch_of(schema, columns, self.batch.num_rows())?;
        Ok(())
    }

    /// Drops the rows that are not meant any more.
    pub fn compact(&mut self) -> Result<()> {
        let Some((selected, count)) = self.selection.take() else { return Ok(()) };
        if count == 0 {
            // Arrow would build new arrays.
            let none = self.batch.slice(0, 0);
            self.empty(&none);
            return Ok(());
        }
        let builder = FilterBuilder::new(&BooleanArray::new(selected.clone(), None));
        let travellers = usize::from(matches!(self.watermark_before, WatermarkBefore::Rows(_)));
        let several = self.batch.num_columns() + travellers > 1;
        let predicate = if several { builder.optimize().build() } else { builder.build() };
        self.batch = predicate.filter_record_batch(&self.batch)?;
        if let WatermarkBefore::Rows(rows) = &self.watermark_before {
            let kept = predicate.filter(&Int64Array::new(rows.clone(), None))?;
            let kept = kept.as_primitive::<Int64Type>().values().clone();
            self.watermark_before = WatermarkBefore::Rows(kept);
        }
        self.kinds = self.kinds.take().map(|kinds| compact_kinds(&kinds, &selected, &predicate));
        self.places =
            self.places.take().map(|rows| selected.set_indices().map(|row| rows[row]).collect());
        Ok(())
    }

    /// Takes from a column what each row does.
    pub fn take_kinds(&mut self, column: usize) -> Result<()> {
        let unknown = || Error::internal("a row whose kind is unknown");
        let codes = self.batch.column(column).as_primitive_opt::<Int8Type>();
        let codes = codes.ok_or_else(unknown)?.values();
        let kinds: Option<Arc<[RowKind]>> =
            codes.iter().map(|&code| RowKind::from_code(code)).collect();
        self.kinds = Some(kinds.ok_or_else(unknown)?);
        Ok(())
    }

    /// Puts other rows in the place of these, each of which comes from one of these.
    pub fn replace(&mut self, batch: RecordBatch, origins: &[u32]) {
        self.watermark_before = self.watermark_before.take(origins);
        self.kinds =
            self.kinds.take().map(|kinds| origins.iter().map(|&i| kinds[i as usize]).collect());
        self.places =
            self.places.take().map(|rows| origins.iter().map(|&i| rows[i as usize]).collect());
        self.batch = batch;
    }
}

/// A value that cannot be computed is looked for by the name of its column, unless the planner made
/// the column.
fn in_column(error: Error, column: &str) -> Error {
    if column.contains('$') {
        return error;
    }
    let named = Error::new(error.kind(), format!("column '{column}': {}", error.message()));
    let named = error.span().into_iter().fold(named, Error::at);
    error.help().into_iter().fold(named, Error::hint)
}

fn compact_kinds(
    kinds: &[RowKind],
    selected: &BooleanBuffer,
    predicate: &FilterPredicate,
) -> Arc<[RowKind]> {
    let mut kept = Vec::with_capacity(predicate.count());
    kept.extend(selected.set_indices().map(|row| kinds[row]));
    kept.into()
}

/// True if a row that is still meant holds NULL in this column.
pub(super) fn not_null_violation(rows: &Rows, column: usize) -> bool {
    let array = rows.batch.column(column);
    let Some(nulls) = array.logical_nulls().filter(|nulls| nulls.null_count() > 0) else {
        return false;
    };
    match &rows.selection {
        None => true,
        Some((selected, count)) => (selected & nulls.inner()).count_set_bits() < *count,
    }
}

/// The columns that the expressions name, if all of them are plain references.
pub(super) fn columns_of_exprs(exprs: &[Expr]) -> Option<Vec<usize>> {
    exprs
        .iter()
        .map(|expr| match expr.kind {
            ExprKind::Column(index) => Some(index),
            _ => None,
        })
        .collect()
}
