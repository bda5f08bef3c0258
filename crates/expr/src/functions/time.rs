//! Arithmetic and fields of times, and the functions that read a clock.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, DurationMillisecondType, Int32Type, Int64Type, IntervalYearMonthType,
    Time32MillisecondType,
};
use arrow_array::{Array, ArrayRef, PrimitiveArray};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_schema::{DataType as Arrow, TimeUnit};
use chrono_tz::Tz;
use thalweg_core::{ColumnType, DataType, Error, Result, Watermark};

use super::definition::{Call, Definition, custom};
use crate::build::{cast, implicit_cast};
use crate::expr::{Expr, Scalar, Session};
use crate::function::{Arguments, Value};
use crate::kernels::datetime::{self, DAY_MS, TimeField, to_instant, to_local};
use crate::kernels::{out_of_range, ticks, ticks_per_second, timestamps_with};

pub(super) const DEFINITIONS: &[Definition] = &[
    custom("EXTRACT", "string any", extract),
    custom("YEAR", "date", |call| field_of(call, 0, TimeField::Year)),
    custom("QUARTER", "date", |call| field_of(call, 0, TimeField::Quarter)),
    custom("MONTH", "date", |call| field_of(call, 0, TimeField::Month)),
    custom("WEEK", "date", |call| field_of(call, 0, TimeField::Week)),
    custom("DAYOFYEAR", "date", |call| field_of(call, 0, TimeField::DayOfYear)),
    custom("DAYOFMONTH", "date", |call| field_of(call, 0, TimeField::Day)),
    custom("DAYOFWEEK", "date", |call| field_of(call, 0, TimeField::DayOfWeek)),
    custom("HOUR", "time", |call| field_of(call, 0, TimeField::Hour)),
    custom("MINUTE", "time", |call| field_of(call, 0, TimeField::Minute)),
    custom("SECOND", "time", |call| field_of(call, 0, TimeField::Second)),
    custom("TIMESTAMPADD", "string bigint time", timestamp_add),
    custom("TIMESTAMPDIFF", "string time time", timestamp_diff),
    custom("MINUS$", "time time", distance),
    custom("CURRENT_WATERMARK", "timestamp", current_watermark),
    custom("PROCTIME", "", |call| clock(call, DataType::TimestampLtz(3))),
    custom("NOW", "", |call| clock(call, DataType::TimestampLtz(3))),
    custom("CURRENT_TIMESTAMP", "", |call| clock(call, DataType::TimestampLtz(3))),
    custom("CURRENT_ROW_TIMESTAMP", "", |call| clock(call, DataType::TimestampLtz(3))),
    custom("LOCALTIMESTAMP", "", |call| clock(call, DataType::Timestamp(3))),
    custom("CURRENT_DATE", "", |call| clock(call, DataType::Date)),
    custom("CURRENT_TIME", "", |call| clock(call, DataType::Time(0))),
    custom("LOCALTIME", "", |call| clock(call, DataType::Time(0))),
];

/// `EXTRACT(unit FROM time)`, also from an interval.
fn extract(call: Call<'_>) -> Result<Expr> {
    let field = unit(&call, 0)?;
    match call.arg_type(1) {
        DataType::IntervalDayTime | DataType::IntervalYearMonth => of_interval(call, field),
        DataType::Date | DataType::Time(_) => field_of(call, 1, field),
        data_type if data_type.is_timestamp() => field_of(call, 1, field),
        DataType::Null => Ok(Expr::null(DataType::BigInt)),
        other => {
            Err(call.error(format!("does not take {other}")).hint("supported: times and intervals"))
        }
    }
}

/// A field of an interval: what is left of it besides the larger fields.
fn of_interval(call: Call<'_>, field: TimeField) -> Result<Expr> {
    let is_months = *call.arg_type(1) == DataType::IntervalYearMonth;
    let (larger, unit) = match (field, is_months) {
        (TimeField::Year, true) => (i64::MAX, 12),
        (TimeField::Month, true) => (12, 1),
        (TimeField::Day, false) => (i64::MAX, DAY_MS),
        (TimeField::Hour, false) => (DAY_MS, 3_600_000),
        (TimeField::Minute, false) => (3_600_000, 60_000),
        (TimeField::Second, false) => (60_000, 1_000),
        (TimeField::Millisecond, false) => (60_000, 1),
        _ => {
            let message = format!("there is no {field:?} in {}", call.arg_type(1));
            return Err(call.error(message));
        }
    };
    let column_type = DataType::BigInt.nullable().with_nullable(call.nullable());
    let shown = format!("EXTRACT_{field:?}").to_uppercase();
    let kernel = move |a: &Arguments<'_>| -> Result<ArrayRef> {
        let part = |span: i64| Some(span % larger / unit);
        match is_months {
            true => {
                let spans = a.numbers::<IntervalYearMonthType>(1);
                a.number_result::<Int64Type>(|row| part(spans.get(row)?.into()))
            }
            false => {
                let spans = a.numbers::<DurationMillisecondType>(1);
                a.number_result::<Int64Type>(|row| part(spans.get(row)?))
            }
        }
    };
    Ok(call.with_function(column_type, kernel, |function| function.name = shown))
}

/// The unit that a literal argument names.
fn unit(call: &Call<'_>, index: usize) -> Result<TimeField> {
    let name = call.text(index).ok_or_else(|| call.error("the unit must be a word"))?;
    TimeField::parse(name).ok_or_else(|| {
        call.error(format!("there is no unit {name}"))
            .hint("units: SECOND, MINUTE, HOUR, DAY, WEEK, MONTH, QUARTER, YEAR")
    })
}

/// The wall clock readings of a column of times, in milliseconds.
pub(super) fn local_ms(array: &dyn Array, zone: Tz) -> ScalarBuffer<i64> {
    match array.data_type() {
        Arrow::Date32 => {
            let days = array.as_primitive::<Date32Type>().values();
            days.iter().map(|d| i64::from(*d) * DAY_MS).collect()
        }
        Arrow::Time32(_) => {
            let times = array.as_primitive::<Time32MillisecondType>().values();
            times.iter().map(|t| i64::from(*t)).collect()
        }
        Arrow::Timestamp(unit, instant) => {
            let values = ticks(array);
            let per_ms = ticks_per_ms(unit);
            let is_instant = instant.is_some() && zone != Tz::UTC;
            if per_ms == 1 && !is_instant {
                return values;
            }
            let local = |tick: &i64| {
                let ms = tick.div_euclid(per_ms);
                if is_instant { to_local(ms, zone) } else { ms }
            };
            values.iter().map(local).collect()
        }
        _ => vec![0; array.len()].into(),
    }
}

/// The nanoseconds below the millisecond of each row.
pub(super) fn nanos_below_ms(array: &dyn Array) -> impl Fn(usize) -> u32 + use<> {
    let per_ms = per_ms(array);
    let values = (per_ms > 1).then(|| ticks(array));
    move |row| {
        let below = values.as_ref().map_or(0, |values| values[row].rem_euclid(per_ms));
        (below * (1_000_000 / per_ms)) as u32
    }
}

fn ticks_per_ms(unit: &TimeUnit) -> i64 {
    match unit {
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1_000_000,
        _ => 1,
    }
}

/// A field of a time, as BIGINT.
fn field_of(mut call: Call<'_>, index: usize, field: TimeField) -> Result<Expr> {
    let in_day = matches!(field, TimeField::Hour | TimeField::Minute)
        || matches!(field, TimeField::Second | TimeField::Millisecond);
    if matches!(call.arg_type(index), DataType::Time(_)) && !in_day {
        return Err(call.error("a TIME has only HOUR, MINUTE, SECOND and MILLISECOND"));
    }
    call.args = vec![call.args.swap_remove(index)];
    let column_type = DataType::BigInt.nullable().with_nullable(call.nullable());
    let kernel = move |a: &Arguments<'_>| -> Result<ArrayRef> {
        let array = a.value(0).array();
        let local = local_ms(array.as_ref(), a.zone);
        let instants = matches!(array.data_type(), Arrow::Timestamp(_, Some(_)));
        let values: ScalarBuffer<i64> = if field == TimeField::Epoch && instants {
            let per_ms = per_ms(array.as_ref());
            ticks(array.as_ref()).iter().map(|t| t.div_euclid(per_ms * 1_000)).collect()
        } else {
            let below_ms = match field {
                TimeField::Microsecond => 1_000,
                TimeField::Nanosecond => 1,
                _ => 0,
            };
            let below = (below_ms > 0).then(|| nanos_below_ms(array.as_ref()));
            let fine = |row: usize| below.as_ref().map_or(0, |b| i64::from(b(row)) / below_ms);
            let rows = local.iter().enumerate();
            rows.map(|(row, ms)| datetime::extract(field, *ms) + fine(row)).collect()
        };
        Ok(Arc::new(PrimitiveArray::<Int64Type>::new(values, array.nulls().cloned())))
    };
    let shown = match call.name {
        "EXTRACT" => format!("EXTRACT_{field:?}"),
        name => name.to_owned(),
    };
    Ok(call.with_function(column_type, kernel, |f| f.name = shown.to_uppercase()))
}

fn per_ms(array: &dyn Array) -> i64 {
    match array.data_type() {
        Arrow::Timestamp(unit, _) => ticks_per_ms(unit),
        _ => 1,
    }
}

/// FLOOR and CEIL of a time to a unit; the type stays.
pub(super) fn round_to_unit(mut call: Call<'_>, up: bool) -> Result<Expr> {
    let field = unit(&call, 1)?;
    let data_type = call.arg_type(0).clone();
    if !data_type.is_time() {
        return Err(call.error(format!("a unit needs a time, got {data_type}")));
    }
    if field.millis().is_none() && field.months().is_none() {
        return Err(call.error("takes a unit from MILLISECOND to MILLENNIUM"));
    }
    let column_type = data_type.nullable().with_nullable(call.nullable());
    let kernel = move |a: &Arguments<'_>| -> Result<ArrayRef> {
        let array = a.value(0).array();
        let per_ms = per_ms(array.as_ref());
        let is_instant = matches!(a.result, DataType::TimestampLtz(_));
        let local = local_ms(array.as_ref(), a.zone);
        let below: Option<ScalarBuffer<i64>> = (per_ms > 1).then(|| ticks(array.as_ref()));
        let round = |row: usize| {
            // What lies below a millisecond rounds up to the next one first.
            let rest = below.as_ref().is_some_and(|t| t[row].rem_euclid(per_ms) != 0);
            let ms = local[row].checked_add(i64::from(up && rest))?;
            let rounded = if up { datetime::ceil(field, ms) } else { datetime::floor(field, ms) }?;
            let rounded = if is_instant { to_instant(rounded, a.zone) } else { rounded };
            rounded.checked_mul(per_ms)
        };
        checked_times(local.len(), round, array.nulls().cloned(), a.result)
    };
    let can_fail = has_narrow_range(&column_type.data_type);
    call.args.truncate(1);
    let shown = format!("{}_{field:?}", call.name).to_uppercase();
    Ok(call.with_function(column_type, kernel, |f| {
        f.name = shown;
        f.can_fail = can_fail;
    }))
}

/// True for times whose 64 bits end within years that people write: 1677 to 2262 in nanoseconds.
fn has_narrow_range(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(4..) | DataType::TimestampLtz(4..))
}

/// A column of times from ticks (milliseconds for DATE and TIME). Where there is none, the time
/// lies beyond what the type holds: an error, but for rows that are NULL.
fn checked_times(
    rows: usize,
    tick: impl Fn(usize) -> Option<i64>,
    nulls: Option<NullBuffer>,
    to: &DataType,
) -> Result<ArrayRef> {
    let is_held = |tick: &i64| *to != DataType::Date || i32::try_from(tick / DAY_MS).is_ok();
    let mut values = Vec::with_capacity(rows);
    for row in 0..rows {
        match tick(row).filter(is_held) {
            Some(tick) => values.push(tick),
            None if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) => values.push(0),
            None => return Err(out_of_range(to)),
        }
    }
    Ok(from_ticks(values.into(), nulls, to))
}

/// A column of times from ticks (milliseconds for DATE and TIME).
fn from_ticks(values: ScalarBuffer<i64>, nulls: Option<NullBuffer>, to: &DataType) -> ArrayRef {
    match to {
        DataType::Date => {
            let days = values.iter().map(|ms| ms.div_euclid(DAY_MS) as i32).collect();
            Arc::new(PrimitiveArray::<Date32Type>::new(days, nulls))
        }
        DataType::Time(_) => {
            let times = values.iter().map(|ms| ms.rem_euclid(DAY_MS) as i32).collect();
            Arc::new(PrimitiveArray::<Time32MillisecondType>::new(times, nulls))
        }
        _ => timestamps_with(values, nulls, to),
    }
}

/// `time + interval`, or `-` where the sign is -1.
pub(crate) fn add_interval(
    time: Expr,
    interval: Expr,
    sign: i64,
    session: &Session,
) -> Result<Expr> {
    let months = interval.column_type.data_type == DataType::IntervalYearMonth;
    if matches!(time.column_type.data_type, DataType::Time(_)) && months {
        return Err(Error::plan("a TIME has no months: add an interval of HOUR to SECOND"));
    }
    let nullable = time.column_type.nullable || interval.column_type.nullable;
    let column_type = time.column_type.clone().with_nullable(nullable);
    let kernel = move |a: &Arguments<'_>| {
        let spans = a.value(1).array();
        let signed = if months {
            let spans = spans.as_primitive::<IntervalYearMonthType>().values();
            spans.iter().map(|months| i64::from(*months) * sign).collect()
        } else {
            let spans = spans.as_primitive::<DurationMillisecondType>().values();
            spans.iter().map(|ms| ms.saturating_mul(sign)).collect()
        };
        add_ticks(a, signed, months)
    };
    let name = if sign < 0 { "-" } else { "+" };
    let can_fail = has_narrow_range(&column_type.data_type);
    let call = Call { name, args: vec![time, interval], session };
    Ok(call.with_function(column_type, kernel, |function| function.can_fail = can_fail))
}

/// The first argument moved by spans of milliseconds, or of months.
fn add_ticks(a: &Arguments<'_>, spans: Vec<i64>, months: bool) -> Result<ArrayRef> {
    let (time, by) = (a.value(0), a.value(1));
    let array = time.array();
    let (values, per_ms) = match array.data_type() {
        Arrow::Timestamp(..) => (ticks(array.as_ref()), per_ms(array.as_ref())),
        _ => (local_ms(array.as_ref(), a.zone), 1),
    };
    let rows = if time.is_constant() { spans.len() } else { values.len() };
    let nulls = union_nulls(time, by, rows);
    if let (false, true, Some(span)) = (months, by.is_constant(), spans[0].checked_mul(per_ms))
        && *a.result != DataType::Date
        && let Some(moved) = moved_alike(&values, span)
    {
        return Ok(from_ticks(moved, nulls, a.result));
    }
    let goes_round = matches!(a.result, DataType::Time(_));
    let moved = |row: usize| {
        let tick = values[time.place(row)];
        let span = spans[by.place(row)];
        match months {
            true => datetime::add_months(tick, span, DAY_MS * per_ms),
            false if goes_round => Some(tick + span % DAY_MS),
            // A DATE moves by whole days.
            false if *a.result == DataType::Date => tick.checked_add(span - span % DAY_MS),
            false => tick.checked_add(span.checked_mul(per_ms)?),
        }
    };
    checked_times(rows, moved, nulls, a.result)
}

/// All ticks moved by one span, without a branch for each; `None` if one leaves 64 bits.
fn moved_alike(ticks: &[i64], span: i64) -> Option<ScalarBuffer<i64>> {
    let mut signs = 0;
    let moved = ticks.iter().map(|tick| {
        let moved = tick.wrapping_add(span);
        // Negative where both operands have the sign that the sum has not.
        signs |= (tick ^ moved) & (span ^ moved);
        moved
    });
    let moved: ScalarBuffer<i64> = moved.collect();
    (signs >= 0).then_some(moved)
}

/// The rows in which both values are there.
fn union_nulls(left: &Value, right: &Value, rows: usize) -> Option<NullBuffer> {
    let spread = |value: &Value| match (value.array().nulls(), value.is_constant()) {
        (Some(nulls), true) if nulls.null_count() > 0 => Some(NullBuffer::new_null(rows)),
        (Some(nulls), false) => Some(nulls.clone()),
        _ => None,
    };
    NullBuffer::union(spread(left).as_ref(), spread(right).as_ref())
}

/// `interval * n`
pub(crate) fn multiply_interval(interval: Expr, by: Expr, session: &Session) -> Result<Expr> {
    let nullable = interval.column_type.nullable || by.column_type.nullable;
    let column_type = interval.column_type.clone().with_nullable(nullable);
    let by = implicit_cast(by, &DataType::BigInt);
    let months = interval.column_type.data_type == DataType::IntervalYearMonth;
    let kernel = move |a: &Arguments<'_>| {
        let by = a.bigints(1);
        let mut too_long = false;
        let product = if months {
            let spans = a.numbers::<IntervalYearMonthType>(0);
            a.number_result::<IntervalYearMonthType>(|row| {
                let span = i64::from(spans.get(row)?).checked_mul(by.get(row)?);
                let span = span.and_then(|months| i32::try_from(months).ok());
                too_long |= span.is_none();
                span
            })
        } else {
            let spans = a.numbers::<DurationMillisecondType>(0);
            a.number_result::<DurationMillisecondType>(|row| {
                let span = spans.get(row)?.checked_mul(by.get(row)?);
                too_long |= span.is_none();
                span
            })
        };
        if too_long { Err(Error::data("an interval times a number is too long")) } else { product }
    };
    let call = Call { name: "*", args: vec![interval, by], session };
    Ok(call.with_function(column_type, kernel, |function| function.can_fail = true))
}

/// `TIMESTAMPADD(unit, n, time)`: an interval of n units, added.
fn timestamp_add(call: Call<'_>) -> Result<Expr> {
    let field = unit(&call, 0)?;
    let (length, data_type) = match (field.millis(), field.months()) {
        (Some(ms), _) => (ms, DataType::IntervalDayTime),
        (None, Some(months)) => (months, DataType::IntervalYearMonth),
        _ => return Err(call.error("takes a unit from MILLISECOND to MILLENNIUM")),
    };
    let Call { mut args, session, .. } = call;
    let (time, count) = (args.remove(2), args.remove(1));
    let time = match time.column_type.data_type {
        DataType::Date if length % DAY_MS != 0 && data_type == DataType::IntervalDayTime => {
            implicit_cast(time, &DataType::Timestamp(6))
        }
        DataType::Timestamp(0..=2) if field == TimeField::Millisecond => {
            implicit_cast(time, &DataType::Timestamp(3))
        }
        DataType::TimestampLtz(0..=2) if field == TimeField::Millisecond => {
            implicit_cast(time, &DataType::TimestampLtz(3))
        }
        _ => time,
    };
    let one = Expr::literal(Scalar::Integer(length), data_type.not_null());
    add_interval(time, multiply_interval(one, count, session)?, 1, session)
}

/// Whole units from the first time to the second.
fn timestamp_diff(call: Call<'_>) -> Result<Expr> {
    let field = unit(&call, 0)?;
    let is_nanos = field == TimeField::Nanosecond;
    let data_type = if is_nanos { DataType::BigInt } else { DataType::Int };
    let column_type = data_type.nullable().with_nullable(call.nullable());
    // The units below a millisecond, of which a second has as many.
    let per_second = match field {
        TimeField::Microsecond => 1_000_000,
        TimeField::Nanosecond => 1_000_000_000,
        _ => 0,
    };
    if per_second == 0 && field.millis().is_none() && field.months().is_none() {
        return Err(call.error("takes a unit from NANOSECOND to MILLENNIUM"));
    }
    let kernel = move |a: &Arguments<'_>| -> Result<ArrayRef> {
        let between = |from: i64, to: i64| match (field.millis(), field.months()) {
            (Some(ms), _) => to.wrapping_sub(from) / ms,
            (None, Some(months)) => datetime::months_between(from, to) / months,
            // As Flink does: of whole seconds, and around the ends of the type.
            (None, None) => (to.wrapping_sub(from) / 1_000).wrapping_mul(per_second),
        };
        let nulls = union_nulls(a.value(0), a.value(1), a.rows);
        let values = distances(a, between);
        Ok(match is_nanos {
            true => Arc::new(PrimitiveArray::<Int64Type>::new(values, nulls)),
            false => {
                let values = values.iter().map(|value| *value as i32).collect();
                Arc::new(PrimitiveArray::<Int32Type>::new(values, nulls))
            }
        })
    };
    let mut call = in_one_clock(call, 1)?;
    call.args.remove(0);
    let shown = format!("{}_{field:?}", call.name).to_uppercase();
    Ok(call.with_function(column_type, kernel, |f| f.name = shown))
}

/// What `between` makes of two times, in milliseconds, row by row.
fn distances(a: &Arguments<'_>, between: impl Fn(i64, i64) -> i64) -> ScalarBuffer<i64> {
    let (start, end) = (a.value(0), a.value(1));
    let (from, to) =
        (local_ms(start.array().as_ref(), Tz::UTC), local_ms(end.array().as_ref(), Tz::UTC));
    (0..a.rows).map(|row| between(from[start.place(row)], to[end.place(row)])).collect()
}

/// `(later - earlier) SECOND`: the distance of two times as an interval.
fn distance(call: Call<'_>) -> Result<Expr> {
    let column_type = DataType::IntervalDayTime.nullable().with_nullable(call.nullable());
    let is_clock = |index: usize| matches!(call.arg_type(index), DataType::Time(_));
    if is_clock(0) != is_clock(1) {
        let types = format!("{} and {}", call.arg_type(0), call.arg_type(1));
        return Err(Error::plan(format!("there is no distance between {types}")));
    }
    Ok(in_one_clock(call, 0)?.with_kernel(column_type, |a| {
        let nulls = union_nulls(a.value(0), a.value(1), a.rows);
        let spans = distances(a, |later, earlier| later.wrapping_sub(earlier));
        Ok(Arc::new(PrimitiveArray::<DurationMillisecondType>::new(spans, nulls)))
    }))
}

/// The call with its two times, of which the first is at `first`, as readings of one clock:
/// instants and wall clock readings meet in the session's zone.
fn in_one_clock(mut call: Call<'_>, first: usize) -> Result<Call<'_>> {
    let both = [first, first + 1];
    let mixed = both.iter().all(|index| call.args[*index].column_type.data_type.is_timestamp());
    for index in both {
        if let DataType::TimestampLtz(precision) = call.args[index].column_type.data_type {
            let other = &call.args[2 * first + 1 - index].column_type.data_type;
            if mixed && matches!(other, DataType::Timestamp(_)) {
                let local = DataType::Timestamp(precision);
                call.args[index] = cast(call.args[index].clone(), local, false, call.session)?;
            }
        }
    }
    Ok(call)
}

/// The running watermark before each row; NULL where there is none yet.
fn current_watermark(call: Call<'_>) -> Result<Expr> {
    let column_type = call.args[0].column_type.clone().with_nullable(true);
    let kernel = |a: &Arguments<'_>| -> Result<ArrayRef> {
        let scale = ticks_per_second(a.result) / 1_000;
        let marks = (0..a.rows).map(|row| a.watermark_before.at(row));
        let known = |mark: &Watermark| *mark != Watermark::MIN && *mark != Watermark::END;
        let (values, valid): (Vec<i64>, Vec<bool>) =
            marks.map(|m| (if known(&m) { m.0 * scale } else { 0 }, known(&m))).unzip();
        Ok(timestamps_with(values.into(), Some(NullBuffer::from(valid)), a.result))
    };
    Ok(call.with_function(column_type, kernel, |f| f.uses_watermark = true))
}

/// The processing time, as an instant or in the session's zone.
fn clock(call: Call<'_>, data_type: DataType) -> Result<Expr> {
    let column_type: ColumnType = data_type.not_null();
    let kernel = |a: &Arguments<'_>| -> Result<ArrayRef> {
        let ms = match a.result {
            DataType::TimestampLtz(_) => a.wall_ms,
            DataType::Time(_) => to_local(a.wall_ms, a.zone).div_euclid(1_000) * 1_000,
            _ => to_local(a.wall_ms, a.zone),
        };
        Ok(from_ticks(vec![ms; a.rows].into(), None, a.result))
    };
    Ok(call.with_function(column_type, kernel, |function| {
        function.deterministic = false;
        function.uses_wall_clock = true;
    }))
}
