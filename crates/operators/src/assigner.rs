//! The watermark assigner: computes row times and watermarks right behind a source.
//!
//! Each row is stamped with the running maximum of the watermark expression over the rows before
//! it in its split. Lateness is judged against this stamp and nothing else, so it depends on the
//! data alone, however they are cut into batches.
//!
//! Stamping each row costs eight bytes and a pass downstream, and most bundles hold no row that
//! could be late for anything but what was promised before them. Where the times that matter
//! downstream (the watermark interest) show that, or each row's time is above all watermarks that
//! rows before it in the bundle establish, the bundle gets one lower bound for all its rows
//! instead; no judgement changes.
//!
//! The assigner drops no late row: operators judge. It sets rows aside whose time lies further in
//! the future of the wall clock than `max_future_skew_ms` allows, so that one broken device cannot
//! make all other rows late. The wall clock, not the running maximum, is the measure, because a
//! replay of old data may skip years between two rows without anything being broken.
//!
//! # Example
//!
//! `WATERMARK FOR ts AS ts - INTERVAL '5' SECOND`, one split:
//!
//! ```text
//! row   ts    watermark_before   watermark after
//! 1     10    none               5
//! 2     20    5                  15
//! 3     12    15                 15      late for windows that end at or before 15 s
//! 4     30    15                 25
//! ```
//!
//! **Invariants**
//! - The running watermark never falls.
//! - A batch has rows of one split. The running watermark of each, and their joint one, are the
//!   runtime's.
//! - A bundle gets one bound for all its rows only if each judgement downstream is the same with
//!   it.

use crate::rows::columns::batch_of;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMillisecondType;
use arrow_array::{Array, ArrayRef, BooleanArray, PrimitiveArray, RecordBatch};
use arrow_buffer::ScalarBuffer;
use arrow_schema::{Schema, SchemaRef};
use arrow_select::filter::filter_record_batch;
use thalweg_core::connector::{Assign, Assigned, ExactStamps, Origin};
use thalweg_core::operator::WatermarkInterest;
use thalweg_core::time::{AHEAD_MS, extremes};
use thalweg_core::{
    Column, Error, Result, SourceBatch, TableSchema, TimeExtremes, Watermark, WatermarkBefore,
};
use thalweg_expr::{EvalContext, Expr};

type Times = PrimitiveArray<TimestampMillisecondType>;

/// What a table declares about time.
#[derive(Clone, Debug)]
pub struct AssignerSpec {
    /// The table, for messages.
    pub table: String,
    /// Columns to append, computed from the columns that the source delivers.
    pub computed: Vec<(Column, Expr)>,
    /// Position of the row time among the delivered and computed columns. TIMESTAMP or
    /// TIMESTAMP_LTZ of precision 3 or less.
    pub rowtime: usize,
    /// The watermark that a row establishes, over the delivered and computed columns; of the same
    /// types as a row time. NULL establishes nothing.
    pub watermark: Expr,
    /// Which watermarks matter downstream.
    pub interest: WatermarkInterest,
    /// Rows further in the future of the wall clock than this are dropped.
    pub max_future_skew_ms: Option<i64>,
}

/// Stamps batches.
pub struct WatermarkAssigner {
    spec: AssignerSpec,
    /// How far the watermark is behind the row time, where that is constant.
    delay_ms: Option<i64>,
    exact: ExactStamps,
    allows_null_times: bool,
    computed_schema: SchemaRef,
    /// The delivered schema seen last and what it becomes, so that equal batches share one.
    extended: Option<(SchemaRef, SchemaRef)>,
    /// The running watermark of the split whose rows are stamped.
    running: Watermark,
}

impl WatermarkAssigner {
    /// An assigner for this table.
    pub fn new(spec: AssignerSpec) -> Self {
        let computed = spec.computed.iter().map(|(column, _)| column.clone()).collect();
        WatermarkAssigner {
            computed_schema: TableSchema::new(computed).arrow(),
            delay_ms: constant_delay_ms(&spec),
            spec,
            exact: ExactStamps::WhereLate,
            allows_null_times: false,
            extended: None,
            running: Watermark::MIN,
        }
    }

    /// Stamps every row exactly, also where no window needs it. For queries that show the stamp
    /// (`CURRENT_WATERMARK`).
    #[must_use]
    pub fn with_exact_watermarks(mut self, exact: bool) -> Self {
        self.exact = if exact { ExactStamps::Everywhere } else { ExactStamps::WhereLate };
        self
    }

    /// Lets rows without a time pass. For inputs whose watermark does not move: the time is a
    /// column like any other there.
    #[must_use]
    pub fn with_null_times(mut self, allowed: bool) -> Self {
        self.allows_null_times = allowed;
        self
    }

    fn evaluate(&self, expr: &Expr, batch: &RecordBatch, wall_ms: i64) -> Result<ArrayRef> {
        let watermark_before = WatermarkBefore::All(self.running);
        expr.evaluate(&EvalContext { batch, watermark_before: &watermark_before, wall_ms })
    }

    /// Appends the computed columns.
    fn extend(&mut self, batch: RecordBatch, wall_ms: i64) -> Result<RecordBatch> {
        if self.spec.computed.is_empty() {
            return Ok(batch);
        }
        let mut columns = batch.columns().to_vec();
        for (_, expr) in &self.spec.computed {
            columns.push(self.evaluate(expr, &batch, wall_ms)?);
        }
        let schema = self.extended_schema(batch.schema_ref());
        batch_of(&schema, columns, batch.num_rows())
    }

    fn extended_schema(&mut self, delivered: &SchemaRef) -> SchemaRef {
        match &self.extended {
            Some((from, to)) if Arc::ptr_eq(from, delivered) => to.clone(),
            _ => {
                let computed = self.computed_schema.fields().iter();
                let fields: Vec<_> = delivered.fields().iter().chain(computed).cloned().collect();
                let extended = Arc::new(Schema::new(fields));
                self.extended = Some((delivered.clone(), extended.clone()));
                extended
            }
        }
    }

    fn rowtime<'a>(&self, batch: &'a RecordBatch) -> Result<&'a Times> {
        millis(batch.column(self.spec.rowtime), "row time")
    }

    fn refuse_null_rowtime(&self, batch: &RecordBatch, origin: Option<&Origin>) -> Result<()> {
        let times = self.rowtime(batch)?;
        let Some(nulls) = times.nulls().filter(|nulls| nulls.null_count() > 0) else {
            return Ok(());
        };
        let row = nulls.iter().position(|valid| !valid).expect("some row is NULL") as u64;
        let schema = batch.schema_ref();
        let column = schema.field(self.spec.rowtime).name();
        let error = Error::data(format!(
            "row time '{column}' of table '{}' is NULL: a row time must not be null",
            self.spec.table
        ))
        .hint(format!(
            "repair the row, or fill the gap with a computed column such as \
             COALESCE({column}, …) and declare the WATERMARK on that"
        ));
        Err(match origin {
            Some(origin) => error.at_row(origin.file.as_ref(), origin.first_row + row),
            None => error,
        })
    }

    /// Takes out rows of the far future; says how many. A row without a time is of no future.
    ///
    /// Rows that are taken out establish no watermark. This is the point: one row of the year 2100
    /// would otherwise make every later row late.
    fn quarantine(&self, batch: RecordBatch, wall_ms: i64) -> Result<(RecordBatch, u64)> {
        let Some(skew_ms) = self.spec.max_future_skew_ms else { return Ok((batch, 0)) };
        let latest = wall_ms.saturating_add(skew_ms);
        let times = self.rowtime(&batch)?;
        if times.values().iter().all(|&time| time <= latest) {
            return Ok((batch, 0));
        }
        let is_kept = |time: Option<i64>| Some(time.is_none_or(|time| time <= latest));
        let kept: BooleanArray = times.iter().map(is_kept).collect();
        let rows_before = batch.num_rows();
        let batch = filter_record_batch(&batch, &kept)?;
        let quarantined = (rows_before - batch.num_rows()) as u64;
        Ok((batch, quarantined))
    }

    /// The highest watermark of rows with these times, where the watermark follows the row time at
    /// a constant distance: then the highest time alone is computed.
    fn highest_of_delayed(&self, extremes: Option<&TimeExtremes>) -> Option<Watermark> {
        let (extremes, delay_ms) = (extremes?, self.delay_ms?);
        // Where a difference does not fit, the expression itself says what is wrong.
        extremes.lowest().checked_sub(delay_ms)?;
        let highest = extremes.highest().checked_sub(delay_ms)?;
        Some(self.running.max(Watermark(highest)))
    }

    /// True if the rows must get their exact stamps, with this watermark as the highest.
    fn needs_stamps(&self, extremes: Option<&TimeExtremes>, highest: Watermark) -> bool {
        let moves = highest > self.running;
        moves && (self.needs_every_stamp(highest) || self.matters(extremes, highest))
    }

    /// True if the rows must get their exact stamps though none may be late for one of them.
    fn needs_every_stamp(&self, highest: Watermark) -> bool {
        match self.exact {
            ExactStamps::WhereLate => false,
            ExactStamps::WhereCrossed => self.crosses(self.running, highest),
            ExactStamps::Everywhere => true,
        }
    }

    /// True if each row's time is ahead of the watermarks of the rows before it in the batch, where
    /// watermarks follow at a constant distance. Whatever has a window that holds such a time then
    /// has not closed it but for a watermark of an earlier batch.
    fn is_each_ahead(&self, extremes: Option<&TimeExtremes>, times: &[i64]) -> bool {
        let Some(delay_ms) = self.delay_ms else { return false };
        let ahead_ms = self.ahead_ms();
        if delay_ms >= ahead_ms && extremes.is_some_and(TimeExtremes::is_ascending) {
            return true;
        }
        // Differences were seen to fit where the highest watermark was found.
        let mut highest = i64::MIN;
        times.iter().all(|&time| {
            let is_ahead = time >= highest.saturating_add(ahead_ms);
            highest = highest.max(time.saturating_sub(delay_ms));
            is_ahead
        })
    }

    /// How far above a watermark a time has to be for the watermark to have closed nothing that the
    /// row meets. Windows on a grid end behind the times that they hold; others may end at them.
    fn ahead_ms(&self) -> i64 {
        match self.spec.interest {
            WatermarkInterest::EndOnly | WatermarkInterest::Grids(_) => 1,
            WatermarkInterest::Every => AHEAD_MS,
        }
    }

    /// One lower bound for rows of which none needs more.
    fn pass(&mut self, highest: Watermark) -> WatermarkBefore {
        let before = std::mem::replace(&mut self.running, highest);
        WatermarkBefore::All(before)
    }

    /// The stamps of these rows; moves the running watermark behind them.
    fn stamp(&mut self, extremes: Option<&TimeExtremes>, watermarks: &Times) -> WatermarkBefore {
        let before = self.running;
        let highest = highest(watermarks).map_or(before, |highest| before.max(highest));
        if !self.needs_stamps(extremes, highest) {
            return self.pass(highest);
        }
        let stamps = running_maxima(before.0, watermarks);
        self.running = highest;
        WatermarkBefore::Rows(stamps)
    }

    /// Extremes of the times that rows have, and stamps where a row could be late for something.
    fn stamp_if_needed(
        &mut self,
        batch: &RecordBatch,
        (times, delay_ms): (&ScalarBuffer<i64>, Option<i64>),
        wall_ms: i64,
    ) -> Result<(Option<TimeExtremes>, WatermarkBefore)> {
        let extremes = TimeExtremes::of(times);
        let needs_stamps = |highest| {
            self.needs_stamps(extremes.as_ref(), highest)
                && (self.needs_every_stamp(highest)
                    || !self.is_each_ahead(extremes.as_ref(), times))
        };
        let before = match self.highest_of_delayed(extremes.as_ref()) {
            Some(highest) if !needs_stamps(highest) => self.pass(highest),
            _ => match delay_ms.and_then(|delay_ms| self.stamp_delayed(times, delay_ms)) {
                Some((_, before)) => before,
                None => {
                    let watermarks = self.evaluate(&self.spec.watermark, batch, wall_ms)?;
                    self.stamp(extremes.as_ref(), millis(&watermarks, "watermark")?)
                }
            },
        };
        Ok((extremes, before))
    }

    /// Extremes and exact stamps in one pass, where the watermark follows the row time at a
    /// constant distance; moves the running watermark. `None` where there are no rows, or where a
    /// difference does not fit (the expression itself says what is wrong then).
    fn stamp_delayed(
        &mut self,
        times: &ScalarBuffer<i64>,
        delay_ms: i64,
    ) -> Option<((i64, i64), WatermarkBefore)> {
        let before = self.running;
        let (mut running, mut lowest, mut highest) = (before.0, i64::MAX, i64::MIN);
        let mut stamps = Vec::with_capacity(times.len());
        stamps.extend(times.iter().map(|&time_ms| {
            let stamp = running;
            running = running.max(time_ms.wrapping_sub(delay_ms));
            (lowest, highest) = (lowest.min(time_ms), highest.max(time_ms));
            stamp
        }));
        if times.is_empty() {
            return None;
        }
        lowest.checked_sub(delay_ms)?;
        highest.checked_sub(delay_ms)?;
        self.running = Watermark(running);
        let stamps = match running > before.0 {
            true => WatermarkBefore::Rows(stamps.into()),
            false => WatermarkBefore::All(before),
        };
        Some(((lowest, highest), stamps))
    }

    /// True if a row at one of these times could be late for something if the watermark before it
    /// were the highest of the batch: a window of such a row ends at an edge behind its time, and
    /// is closed by a watermark at or after that edge minus 1 ms.
    ///
    /// The comparison is with the *highest* watermark of the batch, although a row's own may be
    /// lower. It errs on the side of exact stamps.
    fn matters(&self, extremes: Option<&TimeExtremes>, highest: Watermark) -> bool {
        let Some(earliest) = extremes.map(TimeExtremes::lowest) else { return false };
        match &self.spec.interest {
            WatermarkInterest::EndOnly => false,
            WatermarkInterest::Every => earliest < highest.0.saturating_add(self.ahead_ms()),
            WatermarkInterest::Grids(grids) => {
                let last_edge = highest.0.saturating_add(1);
                grids.iter().any(|grid| grid.crossed(earliest, last_edge))
            }
        }
    }
}

impl Assign for WatermarkAssigner {
    fn assign(&mut self, batch: SourceBatch, before: Watermark, wall_ms: i64) -> Result<Assigned> {
        let SourceBatch { batch, origin, .. } = batch;
        self.running = before;
        let batch = self.extend(batch, wall_ms)?;
        if !self.allows_null_times {
            self.refuse_null_rowtime(&batch, origin.as_ref())?;
        }
        let (batch, quarantined) = self.quarantine(batch, wall_ms)?;
        let column = self.rowtime(&batch)?;
        // What lies under a NULL is no time.
        let (times, delay_ms) = match column.null_count() {
            0 => (column.values().clone(), self.delay_ms),
            _ => (column.iter().flatten().collect(), None),
        };
        let always_ms = delay_ms.filter(|_| self.exact == ExactStamps::Everywhere);
        let stamped = always_ms.and_then(|delay_ms| self.stamp_delayed(&times, delay_ms));
        let (extremes, watermark_before) = match stamped {
            Some((extremes, before)) => (Some(TimeExtremes::found(&times, extremes)), before),
            None => self.stamp_if_needed(&batch, (&times, delay_ms), wall_ms)?,
        };
        let time_extremes = extremes.map(|extremes| extremes.with_watermarks(&watermark_before));
        let watermark_after = self.running;
        Ok(Assigned { batch, watermark_before, watermark_after, time_extremes, quarantined })
    }

    /// An epoch may end only where a watermark matters downstream. Otherwise containers would be
    /// cut for watermarks that close nothing.
    fn crosses(&self, from: Watermark, to: Watermark) -> bool {
        // A window with end e closes at e - 1, so edges are compared with watermark + 1.
        let (low, high) = (from.0.saturating_add(1), to.0.saturating_add(1));
        match &self.spec.interest {
            WatermarkInterest::EndOnly => false,
            WatermarkInterest::Every => to > from,
            WatermarkInterest::Grids(grids) => grids.iter().any(|grid| grid.crossed(low, high)),
        }
    }

    fn highest(&self, batch: &RecordBatch) -> Option<Watermark> {
        // The watermark, or the row time, may be computed from the rows: that is done once, when
        // they leave.
        let (delay_ms, times) = self.delay_ms.zip(batch.columns().get(self.spec.rowtime))?;
        let times = times.as_primitive_opt::<TimestampMillisecondType>()?;
        // What lies under a NULL may only make it higher.
        let highest =
            extremes(times.values()).map(|(_, highest_ms)| highest_ms.saturating_sub(delay_ms));
        Some(highest.map_or(Watermark::MIN, Watermark))
    }

    fn row_times(&self, batch: &RecordBatch) -> Result<Option<ScalarBuffer<i64>>> {
        Ok(Some(self.rowtime(batch)?.values().clone()))
    }

    fn stamp_exactly(&mut self, rows: ExactStamps) {
        self.exact = self.exact.max(rows);
    }

    fn exact_stamps(&self) -> ExactStamps {
        self.exact
    }
}

/// How far the watermark stays behind the row time, if that is all that the expression says.
fn constant_delay_ms(spec: &AssignerSpec) -> Option<i64> {
    let (column, delay_ms) = spec.watermark.as_time_minus_constant()?;
    (column == spec.rowtime).then_some(delay_ms)
}

/// The array as milliseconds, without its zone, which is UTC by convention.
fn millis<'a>(array: &'a ArrayRef, what: &str) -> Result<&'a Times> {
    array.as_primitive_opt::<TimestampMillisecondType>().ok_or_else(|| {
        Error::internal(format!("a {what} of type {}, not milliseconds", array.data_type()))
    })
}

fn highest(watermarks: &Times) -> Option<Watermark> {
    if watermarks.null_count() == 0 {
        return extremes(watermarks.values()).map(|(_, highest)| Watermark(highest));
    }
    watermarks.iter().flatten().max().map(Watermark)
}

/// For each row the highest watermark before it.
fn running_maxima(before: i64, watermarks: &Times) -> ScalarBuffer<i64> {
    let mut running = before;
    let mut stamps = Vec::with_capacity(watermarks.len());
    if watermarks.null_count() == 0 {
        stamps.extend(watermarks.values().iter().map(|&watermark| {
            let stamp = running;
            running = running.max(watermark);
            stamp
        }));
    } else {
        stamps.extend(watermarks.iter().map(|watermark| {
            let stamp = running;
            running = watermark.map_or(running, |watermark| running.max(watermark));
            stamp
        }));
    }
    stamps.into()
}

#[cfg(test)]
mod tests;
