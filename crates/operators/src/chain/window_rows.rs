//! The rows of a windowing table function: each row once per window that it belongs to.
//!
//! `HOP(5, 10)` over a row at 7: windows `[0, 10)` and `[5, 15)`. The row is repeated, latest
//! window first, with its columns and
//!
//! | `window_start` | `window_end` | `window_time` |
//! |---|---|---|
//! | 5 | 15 | 14 |
//! | 0 | 10 | 9 |
//!
//! Windows are computed in local time where the row time is an instant. `window_time` is an instant
//! again. A row that no window holds disappears. Nothing is late here: operators further down
//! judge.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMillisecondType;
use arrow_array::{Array, TimestampMillisecondArray, UInt32Array};
use arrow_schema::Schema;
use arrow_select::take::take_arrays;
use chrono_tz::Tz;
use thalweg_core::{Column, DataType, Error, Result, TableSchema};

use super::parts::{Budget, Cursor};
use super::rows::Rows;
use crate::rows::columns::batch_of;
use crate::window::{WindowSpec, Zone};

/// What the three columns take in a row.
const APPENDED_BYTES: usize = 24;

/// Repeats rows from a place on, as long as there is room; where to continue if there is not for
/// all.
pub(super) fn window_rows(
    rows: &mut Rows,
    window: &WindowSpec,
    (rowtime, zone): (usize, Option<Tz>),
    from: &Cursor,
    room_bytes: usize,
) -> Result<Option<Cursor>> {
    let (assigned, next) = assign(rows, window, (rowtime, zone), from, room_bytes)?;
    let origins = UInt32Array::from(assigned.origins);
    let mut columns = take_arrays(rows.batch.columns(), &origins, None)?;
    let times = TimestampMillisecondArray::from(assigned.times);
    columns.push(Arc::new(TimestampMillisecondArray::from(assigned.starts)));
    columns.push(Arc::new(TimestampMillisecondArray::from(assigned.ends)));
    columns.push(match zone {
        Some(_) => Arc::new(times.with_timezone("UTC")),
        None => Arc::new(times),
    });
    let fields = rows.batch.schema_ref().fields().iter().cloned();
    let more = window_columns(zone.is_some()).arrow();
    let schema = Schema::new(fields.chain(more.fields().iter().cloned()).collect::<Vec<_>>());
    let batch = batch_of(&Arc::new(schema), columns, origins.len())?;
    rows.replace(batch, origins.values());
    Ok(next)
}

/// The columns that are appended; `local_zone` for a TIMESTAMP_LTZ row time.
fn window_columns(local_zone: bool) -> TableSchema {
    let wall = DataType::Timestamp(3);
    let time = if local_zone { DataType::TimestampLtz(3) } else { DataType::Timestamp(3) };
    TableSchema::new(vec![
        Column::new("window_start", wall.clone().not_null()),
        Column::new("window_end", wall.not_null()),
        Column::new("window_time", time.not_null()),
    ])
}

/// One entry per output row.
#[derive(Default)]
struct Assigned {
    origins: Vec<u32>,
    starts: Vec<i64>,
    ends: Vec<i64>,
    times: Vec<i64>,
}

/// A local time, which of its windows were looked up, and of each start, end and last instant.
type SameWindows = (i64, Range<i64>, Vec<(i64, i64, i64)>);

fn assign(
    rows: &Rows,
    window: &WindowSpec,
    (rowtime, zone): (usize, Option<Tz>),
    from: &Cursor,
    room_bytes: usize,
) -> Result<(Assigned, Option<Cursor>)> {
    let column = rows.batch.column(rowtime);
    let times = column
        .as_primitive_opt::<TimestampMillisecondType>()
        .ok_or_else(|| Error::internal(format!("a row time of type {}", column.data_type())))?;
    let mut zone = Zone::new(zone);
    let mut assigned = Assigned::default();
    let mut budget = Budget::new(&rows.batch, |_| true, APPENDED_BYTES, room_bytes);
    // Neighbours mostly lie in the same windows: a slice of time is looked up once.
    let mut last: Option<SameWindows> = None;
    for (row, time) in times.iter().enumerate().skip(from.row) {
        let Some(time) = time else {
            let schema = rows.batch.schema_ref();
            let name = schema.field(rowtime).name();
            return Err(Error::data(format!(
                "row time '{name}' is NULL, so its row has no window"
            ))
            .hint("filter such rows out before the window"));
        };
        let local = zone.to_local(time);
        let made = if row == from.row { from.nth } else { 0 };
        let wanted = window.count(local) as usize - made;
        let taken = budget.take(row, wanted);
        let chosen = made as i64..(made + taken) as i64;
        if last.as_ref().is_none_or(|(of, which, _)| (*of, which) != (local, &chosen)) {
            let windows = chosen.clone().map(|nth| window.nth_latest(local, nth));
            let windows = windows
                .map(|(start, end)| (start, end, zone.last_instant_before(end)))
                .collect::<Vec<_>>();
            last = Some((local, chosen, windows));
        }
        for (start, end, time) in last.iter().flat_map(|(.., windows)| windows) {
            assigned.origins.push(row as u32);
            assigned.starts.push(*start);
            assigned.ends.push(*end);
            assigned.times.push(*time);
        }
        if taken < wanted {
            let next = Cursor { row, nth: made + taken, ..Cursor::default() };
            return Ok((assigned, Some(next)));
        }
    }
    Ok((assigned, None))
}
