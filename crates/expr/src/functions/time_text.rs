//! Times from text and numbers, and back: DATE_FORMAT, TO_TIMESTAMP, FROM_UNIXTIME and their kin.

use std::sync::Arc;

use arrow_array::types::{Date32Type, Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, PrimitiveArray, cast::AsArray};
use arrow_buffer::NullBuffer;
use chrono_tz::Tz;
use thalweg_core::{DataType, Result};

use super::definition::{Call, Definition, custom};
use super::pattern::{Pattern, Reading};
use super::simple_date::{self, read_sql};
use super::time::{local_ms, nanos_below_ms};
use super::zones::Zone;
use crate::build::implicit_cast;
use crate::expr::{Expr, ExprKind, Scalar};
use crate::function::{Arguments, KernelCode};
use crate::kernels::datetime::{DAY_MS, to_later_instant, to_local};
use crate::kernels::{parse, ticks_per_second, timestamps_with};

pub(super) const DEFINITIONS: &[Definition] = &[
    custom("DATE_FORMAT", "any string", date_format),
    custom("TO_TIMESTAMP", "string string?", to_timestamp),
    custom("TO_TIMESTAMP_LTZ", "any any? string?", to_timestamp_ltz),
    custom("TO_DATE", "string string?", to_date),
    custom("FROM_UNIXTIME", "bigint string?", from_unixtime),
    custom("UNIX_TIMESTAMP", "string? string?", unix_timestamp),
    custom("CONVERT_TZ", "string string string", convert_tz),
];

const DEFAULT_PATTERN: &str = "yyyy-MM-dd HH:mm:ss";

/// How a function reads text: by a pattern, or in Flink's default forms.
enum Reader {
    Default,
    Pattern(Pattern),
}

impl Reader {
    /// From a literal argument, if it is there.
    fn of(call: &Call<'_>, index: usize) -> Result<Reader> {
        if call.args.len() <= index {
            return Ok(Reader::Default);
        }
        literal_pattern(call, index).map(Reader::Pattern)
    }
    fn read(&self, text: &str) -> Option<Reading> {
        match self {
            Reader::Default => parse::timestamp(text, 1_000).map(Reading::of_ms),
            Reader::Pattern(pattern) => pattern.read(text).or_else(|| read_sql(text)),
        }
    }
}

fn literal_pattern(call: &Call<'_>, index: usize) -> Result<Pattern> {
    let text = call.text(index).ok_or_else(|| call.error("the pattern must be a literal"))?;
    Pattern::parse(text)
}

fn date_format(mut call: Call<'_>) -> Result<Expr> {
    let pattern = literal_pattern(&call, 1)?;
    if call.arg_type(0).is_string() {
        let kernel = move |a: &Arguments<'_>| {
            let s = a.texts(0);
            a.text_result(|row, out| {
                let reading = Reading::of_ms(parse::simple_timestamp(s.get(row)?)?);
                pattern.print(out, reading, a.zone);
                Some(())
            })
        };
        return Ok(with_pattern_in_name(call, DataType::STRING, kernel));
    }
    match call.arg_type(0) {
        data_type if data_type.is_timestamp() => {}
        DataType::Date | DataType::Null => {
            call.args[0] = implicit_cast(call.args[0].clone(), &DataType::Timestamp(3));
        }
        other => {
            let error = thalweg_core::Error::plan(format!("DATE_FORMAT does not take {other}"));
            return Err(error.hint("supported: DATE_FORMAT(timestamp or string, pattern)"));
        }
    }
    let span_ms = pattern.span_ms();
    let kernel = move |a: &Arguments<'_>| -> Result<ArrayRef> {
        let array = a.value(0).array();
        let local = local_ms(array.as_ref(), a.zone);
        let below = (span_ms == 1).then(|| nanos_below_ms(array.as_ref()));
        // Rows that follow each other are mostly of one day or minute: their text is printed once.
        let (mut span, mut text) = (None, String::new());
        a.text_result(|row, out| {
            if array.is_null(row) {
                return None;
            }
            let nanos_below_ms = below.as_ref().map_or(0, |below| below(row));
            let own = (local[row].div_euclid(span_ms), nanos_below_ms);
            if span.replace(own) != Some(own) {
                text.clear();
                let reading = Reading { nanos_below_ms, ..Reading::of_ms(local[row]) };
                pattern.print(&mut text, reading, a.zone);
            }
            out.push_str(&text);
            Some(())
        })
    };
    Ok(with_pattern_in_name(call, DataType::STRING, kernel))
}

/// Leaves only the first argument to be evaluated; the pattern becomes part of the name.
fn with_pattern_in_name(mut call: Call<'_>, data_type: DataType, kernel: impl KernelCode) -> Expr {
    let shown = match call.args.get(1) {
        Some(pattern) => format!("{}[{pattern}]", call.name),
        None => call.name.to_owned(),
    };
    call.args.truncate(1);
    call.with_function(data_type.nullable(), kernel, |function| function.name = shown)
}

/// A TIMESTAMP(3) column from text, NULL where it is none.
fn to_timestamp(call: Call<'_>) -> Result<Expr> {
    let reader = Reader::of(&call, 1)?;
    let kernel = move |a: &Arguments<'_>| {
        let s = a.texts(0);
        Ok(times(a, |row| reader.read(s.get(row)?).map(|reading| reading.ms)))
    };
    Ok(with_pattern_in_name(call, DataType::Timestamp(3), kernel))
}

/// The longest run of `S` in a pattern, from 3 to 9.
fn fraction_digits(pattern: &str) -> u8 {
    let runs = pattern.split(|c| c != 'S').map(str::len);
    runs.max().unwrap_or(0).clamp(3, 9) as u8
}

/// A column of times from their ticks.
fn times(a: &Arguments<'_>, value: impl Fn(usize) -> Option<i64>) -> ArrayRef {
    let values: Vec<Option<i64>> = (0..a.rows).map(value).collect();
    let nulls = NullBuffer::from_iter(values.iter().map(Option::is_some));
    let ticks = values.into_iter().map(Option::unwrap_or_default).collect();
    timestamps_with(ticks, Some(nulls), a.result)
}

/// `TO_TIMESTAMP_LTZ(number [, digits])` or `TO_TIMESTAMP_LTZ(text [, pattern [, zone]])`.
fn to_timestamp_ltz(mut call: Call<'_>) -> Result<Expr> {
    if call.arg_type(0).is_string() {
        return instant_of_text(call);
    }
    if !call.arg_type(0).is_numeric() || call.args.len() > 2 {
        let got = call.arg_type(0).clone();
        return Err(call.error(format!("takes a number and its digits, or text, got {got}")));
    }
    let digits = match call.args.get(1).map(Expr::as_literal) {
        None => 3,
        Some(Some(Scalar::Integer(digits @ 0..=9))) => *digits as u32,
        Some(_) => {
            return Err(call.error("the precision must be a number from 0 (seconds) to 9"));
        }
    };
    let result = DataType::TimestampLtz(digits.max(3) as u8);
    let per_unit = ticks_per_second(&result) / 10i64.pow(digits);
    // Of a DECIMAL number of seconds the whole ones count.
    let whole = !call.arg_type(0).is_float();
    let target = if whole { DataType::BigInt } else { DataType::Double };
    let shown = format!("{}[{digits}]", call.name);
    call.args = vec![implicit_cast(call.args.swap_remove(0), &target)];
    let kernel = move |a: &Arguments<'_>| {
        let array = a.value(0).array();
        let ticks: Vec<i64> = if whole {
            let numbers = array.as_primitive::<Int64Type>().values();
            numbers.iter().map(|n| n.saturating_mul(per_unit)).collect()
        } else {
            let numbers = array.as_primitive::<Float64Type>().values();
            numbers.iter().map(|n| (n * per_unit as f64).floor() as i64).collect()
        };
        let per_ms = ticks_per_second(a.result) / 1_000;
        let nulls = without_strange_years(&ticks, per_ms, array.nulls());
        Ok(timestamps_with(ticks.into(), nulls, a.result))
    };
    Ok(call.with_function(result.nullable(), kernel, |function| function.name = shown))
}

fn instant_of_text(call: Call<'_>) -> Result<Expr> {
    let reader = Reader::of(&call, 1)?;
    let zone = match call.args.get(2) {
        None => Some(Zone::Named(Tz::UTC)),
        Some(_) => literal_zone(&call, 2)?,
    };
    let zone = zone.ok_or_else(|| call.error("the zone must be a literal"))?;
    let kernel = move |a: &Arguments<'_>| {
        let s = a.texts(0);
        let per_ms = ticks_per_second(a.result) / 1_000;
        Ok(times(a, |row| {
            let reading = reader.read(s.get(row)?)?;
            let ms = match reading.offset_seconds {
                Some(_) => instant_ms(reading, Tz::UTC)?,
                None => zone.later_instant_ms(reading.ms),
            };
            let below_ms = i64::from(reading.nanos_below_ms) * per_ms / 1_000_000;
            ms.checked_mul(per_ms)?.checked_add(below_ms)
        }))
    };
    // A pattern with more than three digits of a second gives as many.
    let digits = call.text(1).filter(|_| call.args.len() > 1).map_or(3, fraction_digits);
    let zone = call.text(2).map(|zone| format!(", {zone}")).unwrap_or_default();
    let mut expr = with_pattern_in_name(call, DataType::TimestampLtz(digits), kernel);
    if let ExprKind::Call { function, .. } = &mut expr.kind
        && let Some(function) = Arc::get_mut(function)
    {
        function.name += &zone;
    }
    Ok(expr)
}

/// Flink's instants made of numbers lie in the years 0000 to 9999; others are NULL.
fn without_strange_years(
    ticks: &[i64],
    per_ms: i64,
    nulls: Option<&NullBuffer>,
) -> Option<NullBuffer> {
    const YEARS_MS: std::ops::RangeInclusive<i64> = -62_167_219_200_000..=253_402_300_799_999;
    let is_inside = |tick: &i64| YEARS_MS.contains(&tick.div_euclid(per_ms));
    if ticks.iter().all(is_inside) {
        return nulls.cloned();
    }
    let inside = NullBuffer::from_iter(ticks.iter().map(is_inside));
    NullBuffer::union(nulls, Some(&inside))
}

/// The instant of a reading: by the offset that it named, or else in a zone.
fn instant_ms(reading: Reading, zone: Tz) -> Option<i64> {
    match reading.offset_seconds {
        Some(offset) => reading.ms.checked_sub(offset * 1_000),
        None => Some(to_later_instant(reading.ms, zone)),
    }
}

fn to_date(call: Call<'_>) -> Result<Expr> {
    let reader = Reader::of(&call, 1)?;
    let kernel = move |a: &Arguments<'_>| {
        let s = a.texts(0);
        a.number_result::<Date32Type>(|row| match &reader {
            Reader::Default => parse::date(s.get(row)?),
            Reader::Pattern(pattern) => {
                let days = simple_date::read(pattern, s.get(row)?)?.ms.div_euclid(DAY_MS);
                i32::try_from(days).ok()
            }
        })
    };
    Ok(with_pattern_in_name(call, DataType::Date, kernel))
}

/// Seconds since 1970 as text in the session's zone.
fn from_unixtime(call: Call<'_>) -> Result<Expr> {
    let pattern = match call.args.len() {
        1 => Pattern::parse(DEFAULT_PATTERN)?,
        _ => literal_pattern(&call, 1)?,
    };
    let kernel = move |a: &Arguments<'_>| {
        let n = a.bigints(0);
        a.text_result(|row, out| {
            let ms = to_local(n.get(row)?.checked_mul(1_000)?, a.zone);
            pattern.print(out, Reading::of_ms(ms), a.zone);
            Some(())
        })
    };
    Ok(with_pattern_in_name(call, DataType::STRING, kernel))
}

/// Seconds since 1970: of now, or of a text in the session's zone.
fn unix_timestamp(call: Call<'_>) -> Result<Expr> {
    if call.args.is_empty() {
        let kernel = |a: &Arguments<'_>| -> Result<ArrayRef> {
            let seconds = a.wall_ms.div_euclid(1_000);
            Ok(Arc::new(PrimitiveArray::<Int64Type>::from_value(seconds, a.rows)))
        };
        let column_type = DataType::BigInt.not_null();
        return Ok(call.with_function(column_type, kernel, |function| {
            function.deterministic = false;
            function.uses_wall_clock = true;
        }));
    }
    let pattern = (call.args.len() > 1).then(|| literal_pattern(&call, 1)).transpose()?;
    let nullable = call.nullable();
    let kernel = move |a: &Arguments<'_>| {
        let s = a.texts(0);
        a.number_result::<Int64Type>(|row| {
            let text = s.get(row)?;
            let ms = match &pattern {
                Some(pattern) => {
                    simple_date::read(pattern, text).and_then(|read| instant_ms(read, a.zone))
                }
                None => parse::simple_timestamp(text).map(|ms| to_later_instant(ms, a.zone)),
            };
            // Flink's answer to a text that is no time.
            Some(ms.map_or(i64::MIN, |ms| ms.div_euclid(1_000)))
        })
    };
    let mut expr = with_pattern_in_name(call, DataType::BigInt, kernel);
    expr.column_type.nullable = nullable;
    Ok(expr)
}

/// The zone that a literal argument names.
fn literal_zone(call: &Call<'_>, index: usize) -> Result<Option<Zone>> {
    let Some(name) = call.text(index) else { return Ok(None) };
    let unknown = || call.error(format!("there is no time zone '{name}'"));
    Zone::named(name).map(Some).ok_or_else(unknown)
}

/// A text in the default form, moved from one zone to another.
fn convert_tz(call: Call<'_>) -> Result<Expr> {
    let (fixed_from, fixed_to) = (literal_zone(&call, 1)?, literal_zone(&call, 2)?);
    let pattern = Pattern::parse(DEFAULT_PATTERN)?;
    Ok(call.with_kernel(DataType::STRING.nullable(), move |a| {
        let (s, from, to) = (a.texts(0), a.texts(1), a.texts(2));
        a.text_result(|row, out| {
            let ms = parse::simple_timestamp(s.get(row)?)?;
            let from = fixed_from.or_else(|| Zone::named(from.get(row)?))?;
            let to = fixed_to.or_else(|| Zone::named(to.get(row)?))?;
            let moved = to.local_ms(from.later_instant_ms(ms));
            pattern.print(out, Reading::of_ms(moved), Tz::UTC);
            Some(())
        })
    }))
}
