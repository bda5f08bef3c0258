//! Puts the columns of picked rows together: spans are joined one behind the other, then, where
//! rows interleave, put in their order.
//!
//! **Invariant:** the row with index n of a picked set is the n-th row of its spans joined; so one
//! list of indices serves every column, whatever its type, and stamps as well.
//!
//! Columns of the most common types of fixed width, without nulls, are copied and gathered here,
//! by their native values; all others by Arrow's `concat` and `take`. A set of one span is a slice,
//! no row is copied.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Decimal128Type, Float64Type, Int32Type, Int64Type,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
};
use arrow_array::{
    Array, ArrayRef, Int64Array, PrimitiveArray, RecordBatch, RecordBatchOptions,
    TimestampMillisecondArray, UInt32Array,
};
use arrow_buffer::{ArrowNativeType, ScalarBuffer};
use arrow_schema::{DataType, TimeUnit};
use arrow_select::concat::concat;
use arrow_select::take::take;
use thalweg_core::time::AHEAD_MS;
use thalweg_core::{Result, RowKind, Watermark, WatermarkBefore};

use super::rows::SortedRows;

/// Consecutive rows of one of several batches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub slot: usize,
    pub from: usize,
    pub rows: usize,
}

/// Picked rows: which, and in which order.
pub(super) struct PickedRows<'a> {
    /// The batches that spans refer to.
    pub slots: &'a [&'a SortedRows],
    pub spans: &'a [Span],
    pub rows: usize,
    /// The order of the rows, if it isn't that of the spans.
    pub order: Option<&'a [u32]>,
}

impl PickedRows<'_> {
    /// The rows as one batch, with these times in their order.
    pub(super) fn batch(&self, times: &ScalarBuffer<i64>) -> Result<RecordBatch> {
        if let [span] = self.spans {
            return Ok(self.slots[span.slot].batch.slice(span.from, span.rows));
        }
        let first = &self.slots[self.spans[0].slot].batch;
        let column = |number: usize| match self.is_of_times(number) {
            true => Ok(times_as(first.column(number), times)),
            false => self.column(number),
        };
        let columns = (0..first.num_columns()).map(column).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        Ok(RecordBatch::try_new_with_options(first.schema(), columns, &options)?)
    }

    /// True if the times of all rows stand in this column: they need not be joined again.
    fn is_of_times(&self, number: usize) -> bool {
        let stands_in = |slot: &&SortedRows| {
            let column = slot.batch.column(number);
            column.null_count() == 0
                && times_of(column).is_some_and(|times| times.ptr_eq(&slot.times))
        };
        self.slots.iter().all(stands_in)
    }

    /// The times in the order of the spans.
    pub(super) fn times(&self) -> ScalarBuffer<i64> {
        if let [span] = self.spans {
            return self.slots[span.slot].times.slice(span.from, span.rows);
        }
        let times: Vec<&[i64]> = self.slots.iter().map(|slot| &slot.times[..]).collect();
        self.joined(&times).into()
    }

    /// One stamp for all, where each batch has one and all times are ahead of the highest: what a
    /// row is late for has closed before its time, or right at it ([`AHEAD_MS`]).
    pub(super) fn shared_stamp(&self, times: &[i64]) -> Option<WatermarkBefore> {
        let mut highest = Watermark::MIN;
        for slot in self.slots {
            let WatermarkBefore::All(watermark) = slot.watermark_before else { return None };
            highest = highest.max(watermark);
        }
        let is_ahead = *times.first()? >= highest.0.saturating_add(AHEAD_MS);
        is_ahead.then_some(WatermarkBefore::All(highest))
    }

    /// The stamps.
    pub(super) fn watermark_before(&self) -> WatermarkBefore {
        let first = &self.slots[self.spans[0].slot].watermark_before;
        if let ([span], WatermarkBefore::Rows(rows)) = (self.spans, first) {
            return WatermarkBefore::Rows(rows.slice(span.from, span.rows));
        }
        let of_slots = self.slots.iter().map(|slot| &slot.watermark_before);
        if let Some(watermark) = WatermarkBefore::one_of(of_slots) {
            return WatermarkBefore::All(watermark);
        }
        let mut joined = Vec::with_capacity(self.rows);
        for &Span { slot, from, rows } in self.spans {
            match &self.slots[slot].watermark_before {
                WatermarkBefore::All(watermark) => {
                    joined.extend(std::iter::repeat_n(watermark.0, rows));
                }
                WatermarkBefore::Rows(of_rows) => {
                    joined.extend_from_slice(&of_rows[from..from + rows]);
                }
            }
        }
        WatermarkBefore::Rows(self.ordered(joined))
    }

    /// What each row does, if any batch says so; rows of the others are inserts.
    pub(super) fn kinds(&self) -> Option<Arc<[RowKind]>> {
        if self.spans.iter().all(|span| self.slots[span.slot].kinds.is_none()) {
            return None;
        }
        let mut joined = Vec::with_capacity(self.rows);
        for &Span { slot, from, rows } in self.spans {
            match &self.slots[slot].kinds {
                Some(kinds) => joined.extend_from_slice(&kinds[from..from + rows]),
                None => joined.extend(std::iter::repeat_n(RowKind::Insert, rows)),
            }
        }
        Some(match self.order {
            Some(order) => order.iter().map(|&index| joined[index as usize]).collect(),
            None => joined.into(),
        })
    }

    /// For each row a number of its batch.
    pub(super) fn numbers(&self, of_slots: &[u32]) -> ScalarBuffer<u32> {
        let mut joined = Vec::with_capacity(self.rows);
        for span in self.spans {
            joined.extend(std::iter::repeat_n(of_slots[span.slot], span.rows));
        }
        self.ordered(joined)
    }

    fn column(&self, number: usize) -> Result<ArrayRef> {
        let columns: Vec<&ArrayRef> =
            self.slots.iter().map(|slot| slot.batch.column(number)).collect();
        if columns.iter().any(|column| column.null_count() > 0) {
            return self.column_of_any_type(&columns);
        }
        Ok(match columns[0].data_type() {
            DataType::Int32 => self.column_of_fixed_width::<Int32Type>(&columns),
            DataType::Int64 => self.column_of_fixed_width::<Int64Type>(&columns),
            DataType::Float64 => self.column_of_fixed_width::<Float64Type>(&columns),
            DataType::Decimal128(..) => self.column_of_fixed_width::<Decimal128Type>(&columns),
            DataType::Timestamp(TimeUnit::Millisecond, _) => {
                self.column_of_fixed_width::<TimestampMillisecondType>(&columns)
            }
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                self.column_of_fixed_width::<TimestampMicrosecondType>(&columns)
            }
            DataType::Timestamp(TimeUnit::Nanosecond, _) => {
                self.column_of_fixed_width::<TimestampNanosecondType>(&columns)
            }
            _ => self.column_of_any_type(&columns)?,
        })
    }

    fn column_of_fixed_width<T: ArrowPrimitiveType>(&self, columns: &[&ArrayRef]) -> ArrayRef {
        let values: Vec<&[T::Native]> =
            columns.iter().map(|column| &column.as_primitive::<T>().values()[..]).collect();
        let values = self.ordered(self.joined(&values));
        let column = PrimitiveArray::<T>::new(values, None);
        Arc::new(column.with_data_type(columns[0].data_type().clone()))
    }

    fn column_of_any_type(&self, columns: &[&ArrayRef]) -> Result<ArrayRef> {
        let slice = |span: &Span| columns[span.slot].slice(span.from, span.rows);
        let slices: Vec<ArrayRef> = self.spans.iter().map(slice).collect();
        let slices: Vec<&dyn Array> = slices.iter().map(AsRef::as_ref).collect();
        let joined = concat(&slices)?;
        let Some(order) = self.order else { return Ok(joined) };
        Ok(take(&joined, &UInt32Array::from(order.to_vec()), None)?)
    }

    fn joined<V: Copy>(&self, of_slots: &[&[V]]) -> Vec<V> {
        let mut joined = Vec::with_capacity(self.rows);
        for &Span { slot, from, rows } in self.spans {
            joined.extend_from_slice(&of_slots[slot][from..from + rows]);
        }
        joined
    }

    fn ordered<V: ArrowNativeType>(&self, joined: Vec<V>) -> ScalarBuffer<V> {
        match self.order {
            Some(order) => order.iter().map(|&index| joined[index as usize]).collect(),
            None => joined.into(),
        }
    }
}

/// Times as a column of the type that they came in, see [`times_of`].
fn times_as(column: &ArrayRef, times: &ScalarBuffer<i64>) -> ArrayRef {
    if column.data_type() == &DataType::Int64 {
        return Arc::new(Int64Array::new(times.clone(), None));
    }
    let column_type = column.data_type().clone();
    Arc::new(TimestampMillisecondArray::new(times.clone(), None).with_data_type(column_type))
}

/// The milliseconds of a column of times: BIGINT or a timestamp of millisecond precision.
pub(super) fn times_of(column: &ArrayRef) -> Option<ScalarBuffer<i64>> {
    let integers = || column.as_primitive_opt::<Int64Type>().map(|times| times.values().clone());
    let timestamps = || column.as_primitive_opt::<TimestampMillisecondType>();
    integers().or_else(|| timestamps().map(|times| times.values().clone()))
}
