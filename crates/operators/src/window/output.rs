//! The columns of results, and what late rows lead to.
//!
//! Result columns, in order: keys, aggregates, then for windows over time `window_start`,
//! `window_end` (TIMESTAMP(3), in local time of the zone) and `window_time` (the row time of the
//! result: the last millisecond of the window, of the input's kind of timestamp). The window of all
//! rows and count windows have keys and aggregates only.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMillisecondType;
use arrow_array::{Array, ArrayRef, RecordBatch, TimestampMillisecondArray};
use arrow_buffer::ScalarBuffer;
use arrow_schema::SchemaRef;
use chrono_tz::Tz;
use thalweg_core::{Bundle, Column, DataType, Error, Output, Piece, Result, TableSchema};

use super::top::TopChooser;
use super::zone::Zone;
use crate::aggregate::{AggregateCall, with_results};
use crate::rows::columns::schema_of;
use crate::rows::input;

/// What happens to a row that is late for all its windows. It is counted in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LatePolicy {
    /// It is dropped.
    #[default]
    Drop,
    /// The job fails.
    Fail,
    /// It leaves by the second port.
    Emit,
}

/// The columns of the result: keys, aggregates, window start, end and time.
pub(super) fn output_schema(
    input: &TableSchema,
    keys: &[usize],
    aggregates: &[AggregateCall],
    zone: Option<Tz>,
) -> TableSchema {
    let mut schema = with_results(schema_of(input, keys), aggregates);
    let time = match zone {
        Some(_) => DataType::TimestampLtz(3),
        None => DataType::Timestamp(3),
    };
    let window = [
        Column::new("window_start", DataType::Timestamp(3).not_null()),
        Column::new("window_end", DataType::Timestamp(3).not_null()),
        Column::new("window_time", time.not_null()),
    ];
    schema.columns.extend(window);
    schema
}

/// Which of window start, end and time are read. A window that slides often writes them for
/// as many rows as came in, or more. What nobody reads shares one buffer, which says nothing.
pub(super) struct WindowColumns {
    read: [bool; 3],
    unread: ScalarBuffer<i64>,
}

impl WindowColumns {
    /// All are read.
    pub fn all() -> Self {
        WindowColumns { read: [true; 3], unread: Vec::new().into() }
    }

    /// These are read, of batches that mostly have no more rows than this.
    pub fn some(read: [bool; 3], rows: usize) -> Self {
        let rows = if read == [true; 3] { 0 } else { rows };
        WindowColumns { read, unread: vec![0; rows].into() }
    }

    /// A column that nobody reads has the right type and length, and any values.
    fn fill(&self, times: [i64; 3], rows: usize) -> [ScalarBuffer<i64>; 3] {
        let is_unread = |place: usize| !self.read[place] && rows <= self.unread.len();
        std::array::from_fn(|place| match is_unread(place) {
            true => self.unread.slice(0, rows),
            false => vec![times[place]; rows].into(),
        })
    }
}

/// Makes result batches.
pub(super) struct WindowRows<'a> {
    pub(super) schema: &'a SchemaRef,
    pub(super) columns: &'a WindowColumns,
    pub(super) zone: &'a mut Zone,
    /// Where not all rows of a window are wanted.
    pub(super) top: Option<&'a TopChooser>,
}

impl WindowRows<'_> {
    /// A batch of one window, which is given in its own (local) time.
    pub fn batch(
        &mut self,
        keys: Vec<ArrayRef>,
        results: Vec<ArrayRef>,
        rows: usize,
        start: i64,
        end: i64,
    ) -> Result<RecordBatch> {
        let time = self.zone.last_instant_before(end);
        result_batch(self.schema, keys, results, self.columns.fill([start, end, time], rows))
    }
}

/// A batch of results with these window starts, ends and times.
pub(super) fn result_batch(
    schema: &SchemaRef,
    keys: Vec<ArrayRef>,
    results: Vec<ArrayRef>,
    times: [ScalarBuffer<i64>; 3],
) -> Result<RecordBatch> {
    let first_time = keys.len() + results.len();
    let mut columns = keys;
    columns.extend(results);
    for (place, values) in times.into_iter().enumerate() {
        let data_type = schema.field(first_time + place).data_type().clone();
        let values = TimestampMillisecondArray::new(values, None).with_data_type(data_type);
        columns.push(Arc::new(values));
    }
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

/// The row times of a bundle; a NULL among the rows that are meant is an error.
///
/// Only rows of the piece are checked: other rows of the bundle are another partition's, which
/// reports them itself.
pub(super) fn row_times<'a>(
    piece: &Piece<'a>,
    rowtime: usize,
    input: &TableSchema,
) -> Result<&'a ScalarBuffer<i64>> {
    let bundle: &'a Bundle = piece.bundle;
    let column = bundle.batch.column(rowtime);
    let times = column.as_primitive_opt::<TimestampMillisecondType>().ok_or_else(|| {
        Error::internal(format!("a row time of type {} is not in milliseconds", column.data_type()))
    })?;
    if times.null_count() > 0 {
        let is_null = |row: usize| times.is_null(row);
        let any = match piece.rows {
            None => true,
            Some(rows) => rows.iter().any(|&row| is_null(row as usize)),
        };
        if any {
            let name = input.columns.get(rowtime).map_or("", |column| &column.name);
            return Err(Error::data(format!("the row time {name} is NULL"))
                .hint("filter such rows out, or give the column a value with COALESCE"));
        }
    }
    Ok(times.values())
}

/// Counts late rows and does with them what the policy says.
pub(super) fn treat_late(
    policy: LatePolicy,
    late: &[u32],
    piece: &Piece<'_>,
    rowtime: usize,
    output: &mut Output,
) -> Result<()> {
    if late.is_empty() {
        return Ok(());
    }
    let times = piece.bundle.batch.column(rowtime).as_primitive::<TimestampMillisecondType>();
    let late: Vec<_> = late.iter().map(|&row| (row, times.value(row as usize))).collect();
    input::treat_late(policy, &late, piece, output)
}
