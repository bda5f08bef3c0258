//! CAST and TRY_CAST.
//!
//! Integers wrap and floats saturate as in Java; DECIMAL rounds HALF_UP and is NULL where it
//! overflows; text that is no value of the type fails, or is NULL in TRY_CAST.

use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, PrimitiveBuilder, StringViewBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, DurationMillisecondType, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, IntervalYearMonthType,
    Time32MillisecondType,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Float64Array, Int64Array, ListArray, MapArray,
    PrimitiveArray, StringViewArray, StructArray, make_array, new_null_array,
};
use arrow_buffer::NullBuffer;
use chrono_tz::Tz;
use thalweg_core::text::TextColumn;
use thalweg_core::types::MAX_LENGTH;
use thalweg_core::{Column, ColumnType, DataType, Error, Result};

use super::datetime::{DAY_MS, to_instant, to_local};
use super::{
    decimal, map_array, out_of_range, parse, text, ticks, ticks_per_second, timestamps,
    timestamps_with,
};

/// True if a cast from one type to the other exists.
pub(crate) fn can_cast(from: &DataType, to: &DataType) -> bool {
    use DataType as T;
    if from == to || *from == T::Null {
        return true;
    }
    if *from == T::Variant || *to == T::Variant {
        return false;
    }
    if to.is_string() {
        return true;
    }
    match (from, to) {
        (f, t) if f.is_string() => {
            t.is_numeric() || t.is_time() || t.is_binary() || *t == T::Boolean
        }
        (f, t) if f.is_numeric() => t.is_numeric() || *t == T::Boolean,
        (T::Boolean, t) => t.is_numeric(),
        (f, t) if f.is_binary() => t.is_binary(),
        (T::Date, T::Timestamp(_) | T::TimestampLtz(_)) => true,
        (T::Time(_), T::Time(_) | T::Timestamp(_) | T::TimestampLtz(_)) => true,
        (T::Timestamp(_) | T::TimestampLtz(_), t) => t.is_time(),
        (T::IntervalDayTime, T::BigInt) | (T::IntervalYearMonth, T::Int | T::BigInt) => true,
        (T::Array(f), T::Array(t)) => can_cast(&f.data_type, &t.data_type),
        (T::Map(fk, fv), T::Map(tk, tv)) => {
            can_cast(&fk.data_type, &tk.data_type) && can_cast(&fv.data_type, &tv.data_type)
        }
        (T::Row(f), T::Row(t)) => f.len() == t.len() && f.iter().zip(t).all(can_cast_field),
        _ => from.arrow() == to.arrow(),
    }
}

/// Fields are cast by their places. A NOT NULL one takes only what it is already: a cast may give
/// NULL.
fn can_cast_field((from, to): (&Column, &Column)) -> bool {
    let (from, to) = (&from.column_type, &to.column_type);
    match to.nullable {
        true => can_cast(&from.data_type, &to.data_type),
        false => !from.nullable && from.data_type == to.data_type,
    }
}

/// A cast between two types.
pub(crate) struct Cast<'a> {
    pub(crate) from: &'a DataType,
    pub(crate) to: &'a DataType,
    pub(crate) safe: bool,
    pub(crate) zone: Tz,
}

impl Cast<'_> {
    /// Casts a column.
    pub fn apply(&self, array: &ArrayRef) -> Result<ArrayRef> {
        if self.from == self.to {
            return Ok(array.clone());
        }
        if *self.from == DataType::Null {
            return Ok(new_null_array(&self.to.arrow(), array.len()));
        }
        match (self.from, self.to) {
            (from, to) if from.is_string() && to.is_string() => Ok(self.fit_text(array.clone())),
            (from, _) if from.is_string() => self.parse_text(array),
            (_, to) if to.is_string() => self.print_text(array),
            (from, to) if from.is_numeric() && to.is_numeric() => self.number(array),
            (DataType::Boolean, to) => {
                let ones = boolean_to_int(array.as_boolean());
                Cast { from: &DataType::Int, to, ..*self }.apply(&ones)
            }
            (from, DataType::Boolean) if from.is_numeric() => self.number_to_boolean(array),
            (from, to) if from.is_binary() && to.is_binary() => Ok(self.fit_bytes(array.clone())),
            (DataType::Array(from), DataType::Array(to)) => {
                let list = array.as_list::<i32>();
                let cast = Cast { from: &from.data_type, to: &to.data_type, ..*self };
                let values = cast.apply(list.values())?;
                let field = Arc::new(to.field("item"));
                let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
                Ok(Arc::new(ListArray::new(field, offsets, values, nulls)))
            }
            (DataType::Map(fk, fv), DataType::Map(tk, tv)) => {
                self.map(array.as_map(), [fk, fv], [tk, tv])
            }
            (DataType::Row(from), DataType::Row(to)) => self.row(array.as_struct(), from, to),
            _ => self.temporal(array),
        }
    }

    fn map(
        &self,
        map: &MapArray,
        from: [&ColumnType; 2],
        to: [&ColumnType; 2],
    ) -> Result<ArrayRef> {
        let cast = |array: &ArrayRef, at: usize| {
            Cast { from: &from[at].data_type, to: &to[at].data_type, ..*self }.apply(array)
        };
        let (keys, values) = (cast(map.keys(), 0)?, cast(map.values(), 1)?);
        map_array(self.to, keys, values, map.offsets().clone(), map.nulls().cloned())
    }

    fn row(&self, rows: &StructArray, from: &[Column], to: &[Column]) -> Result<ArrayRef> {
        let mut arrays = Vec::with_capacity(to.len());
        for ((array, from), to) in rows.columns().iter().zip(from).zip(to) {
            let (from, to) = (&from.column_type.data_type, &to.column_type.data_type);
            let cast = Cast { from, to, ..*self };
            // What stands in a row that is NULL has no meaning, and must not fail the cast.
            arrays.push(match from == to {
                true => array.clone(),
                false => cast.apply(&with_nulls(array, rows.nulls())?)?,
            });
        }
        let arrow_schema::DataType::Struct(fields) = self.to.arrow() else {
            return Err(self.unsupported());
        };
        let (length, nulls) = (rows.len(), rows.nulls().cloned());
        Ok(Arc::new(StructArray::try_new_with_length(fields, arrays, nulls, length)?))
    }

    fn unsupported(&self) -> Error {
        Error::internal(format!("no cast from {} to {}", self.from, self.to))
    }

    /// Cuts (and for CHAR pads) text to the length of the type.
    fn fit_text(&self, array: ArrayRef) -> ArrayRef {
        let (length, pads) = match self.to {
            DataType::Char(length) => (*length as usize, true),
            DataType::Varchar(length) => (*length as usize, false),
            _ => return array,
        };
        if length >= MAX_LENGTH as usize {
            return array;
        }
        let strings = array.as_string_view();
        let fits = |text: &str| {
            let characters = if text.len() <= length && !pads { 0 } else { text.chars().count() };
            if pads { characters == length } else { characters <= length }
        };
        if strings.iter().flatten().all(fits) {
            return array;
        }
        let mut out = StringViewBuilder::with_capacity(strings.len());
        let mut buffer = String::new();
        for value in strings {
            out.append_option(value.map(|text| {
                buffer.clear();
                buffer.extend(text.chars().take(length));
                if pads {
                    let missing = length - buffer.chars().count();
                    buffer.extend(std::iter::repeat_n(' ', missing));
                }
                buffer.as_str()
            }));
        }
        Arc::new(out.finish())
    }

    /// Cuts (and for BINARY pads with zeros) bytes to the length of the type.
    fn fit_bytes(&self, array: ArrayRef) -> ArrayRef {
        let (length, pads) = match self.to {
            DataType::Binary(length) => (*length as usize, true),
            DataType::Varbinary(length) => (*length as usize, false),
            _ => return array,
        };
        let values = array.as_binary::<i32>();
        let fits = |bytes: &[u8]| bytes.len() == length || (!pads && bytes.len() < length);
        if values.iter().flatten().all(fits) {
            return array;
        }
        let fit = |bytes: &[u8]| {
            let mut fitted = bytes[..bytes.len().min(length)].to_vec();
            fitted.resize(if pads { length } else { fitted.len() }, 0);
            fitted
        };
        let fitted: BinaryArray = values.iter().map(|bytes| bytes.map(fit)).collect();
        Arc::new(fitted)
    }

    fn print_text(&self, array: &ArrayRef) -> Result<ArrayRef> {
        if self.from.is_binary() {
            return self.binary_to_text(array.as_binary());
        }
        let column = TextColumn::new(array.as_ref(), self.from, self.zone);
        let mut out = StringViewBuilder::with_capacity(array.len());
        let mut buffer = String::new();
        for row in 0..array.len() {
            if column.is_null(row) {
                out.append_null();
                continue;
            }
            buffer.clear();
            column.append(&mut buffer, row);
            out.append_value(&buffer);
        }
        Ok(self.fit_text(Arc::new(out.finish())))
    }

    fn binary_to_text(&self, array: &BinaryArray) -> Result<ArrayRef> {
        let strings: StringViewArray =
            array.iter().map(|bytes| bytes.map(String::from_utf8_lossy)).collect();
        Ok(self.fit_text(Arc::new(strings)))
    }

    fn parse_text(&self, array: &ArrayRef) -> Result<ArrayRef> {
        let strings = array.as_string_view();
        let per_second = ticks_per_second(self.to);
        match self.to {
            DataType::Boolean => {
                let mut out = BooleanBuilder::with_capacity(strings.len());
                for value in strings {
                    out.append_option(self.checked(value, parse::boolean)?);
                }
                Ok(Arc::new(out.finish()))
            }
            DataType::TinyInt => self.parse_each::<Int8Type>(strings, narrow),
            DataType::SmallInt => self.parse_each::<Int16Type>(strings, narrow),
            DataType::Int => self.parse_each::<Int32Type>(strings, narrow),
            DataType::BigInt => self.parse_each::<Int64Type>(strings, parse::integer),
            DataType::Float => {
                self.parse_each::<Float32Type>(strings, |t| parse::double(t).map(|v| v as f32))
            }
            DataType::Double => self.parse_each::<Float64Type>(strings, parse::double),
            DataType::Decimal(precision, scale) => self.parse_decimal(strings, *precision, *scale),
            DataType::Date => self.parse_each::<Date32Type>(strings, parse::date),
            DataType::Time(_) => self.parse_each::<Time32MillisecondType>(strings, parse::time),
            DataType::Timestamp(_) => {
                self.parse_ticks(strings, |t| parse::timestamp(t, per_second))
            }
            DataType::TimestampLtz(_) => {
                self.parse_ticks(strings, |t| parse::timestamp_ltz(t, per_second, self.zone))
            }
            to if to.is_binary() => {
                let bytes: BinaryArray =
                    strings.iter().map(|text| text.map(str::as_bytes)).collect();
                Ok(self.fit_bytes(Arc::new(bytes)))
            }
            _ => Err(self.unsupported()),
        }
    }

    /// Parses one text; what is no value is NULL in TRY_CAST and an error of the data in CAST.
    fn checked<V>(
        &self,
        text: Option<&str>,
        parse: impl Fn(&str) -> Option<V>,
    ) -> Result<Option<V>> {
        let Some(text) = text else { return Ok(None) };
        match parse(text) {
            None if !self.safe => Err(Error::data(format!(
                "'{}' is not a value of type {}",
                text.chars().take(100).collect::<String>(),
                self.to
            ))
            .hint("TRY_CAST gives NULL where a value does not fit")),
            value => Ok(value),
        }
    }

    fn parse_each<T: ArrowPrimitiveType>(
        &self,
        strings: &StringViewArray,
        parse: impl Fn(&str) -> Option<T::Native>,
    ) -> Result<ArrayRef> {
        let mut out = PrimitiveBuilder::<T>::with_capacity(strings.len());
        for value in strings {
            out.append_option(self.checked(value, &parse)?);
        }
        Ok(Arc::new(out.finish()))
    }

    fn parse_ticks(
        &self,
        strings: &StringViewArray,
        parse: impl Fn(&str) -> Option<i64>,
    ) -> Result<ArrayRef> {
        let parsed = self.parse_each::<Int64Type>(strings, parse)?;
        let values = parsed.as_primitive::<Int64Type>().values().clone();
        Ok(timestamps(values, parsed.as_ref(), self.to))
    }

    fn parse_decimal(
        &self,
        strings: &StringViewArray,
        precision: u8,
        scale: u8,
    ) -> Result<ArrayRef> {
        let mut out = PrimitiveBuilder::<Decimal128Type>::with_capacity(strings.len());
        for value in strings {
            let parsed = self.checked(value, |text| parse::decimal(text, precision, scale))?;
            out.append_option(parsed.and_then(|decimal| match decimal {
                parse::Decimal::Fits(value) => Some(value),
                parse::Decimal::Overflows => None,
            }));
        }
        Ok(Arc::new(out.finish().with_precision_and_scale(precision, scale as i8)?))
    }

    /// Integers go by BIGINT and floats by DOUBLE, exactly, so that two types have casts and not
    /// six.
    fn number(&self, array: &ArrayRef) -> Result<ArrayRef> {
        let wide = match self.from {
            DataType::TinyInt => array.as_primitive::<Int8Type>().unary(i64::from),
            DataType::SmallInt => array.as_primitive::<Int16Type>().unary(i64::from),
            DataType::Int => array.as_primitive::<Int32Type>().unary(i64::from),
            DataType::BigInt => array.as_primitive().clone(),
            DataType::Float => {
                return self.cast_float(&array.as_primitive::<Float32Type>().unary(f64::from));
            }
            DataType::Double => return self.cast_float(array.as_primitive()),
            DataType::Decimal(_, scale) => return self.cast_decimal(array, *scale),
            _ => return Err(self.unsupported()),
        };
        self.cast_integer(&wide)
    }

    fn cast_integer(&self, array: &Int64Array) -> Result<ArrayRef> {
        Ok(match self.to {
            DataType::TinyInt => Arc::new(array.unary::<_, Int8Type>(|v| v as i8)),
            DataType::SmallInt => Arc::new(array.unary::<_, Int16Type>(|v| v as i16)),
            DataType::Int => Arc::new(array.unary::<_, Int32Type>(|v| v as i32)),
            DataType::BigInt => Arc::new(array.clone()),
            DataType::Float => Arc::new(array.unary::<_, Float32Type>(|v| v as f32)),
            DataType::Double => Arc::new(array.unary::<_, Float64Type>(|v| v as f64)),
            DataType::Decimal(precision, scale) => {
                let decimals: PrimitiveArray<Decimal128Type> =
                    array.unary_opt(|v| decimal::rescale(v.into(), 0, *precision, *scale));
                Arc::new(decimals.with_precision_and_scale(*precision, *scale as i8)?)
            }
            _ => return Err(self.unsupported()),
        })
    }

    fn cast_float(&self, array: &Float64Array) -> Result<ArrayRef> {
        Ok(match self.to {
            // Java narrows a float to INT first and then wraps.
            DataType::TinyInt => Arc::new(array.unary::<_, Int8Type>(|v| v as i32 as i8)),
            DataType::SmallInt => Arc::new(array.unary::<_, Int16Type>(|v| v as i32 as i16)),
            DataType::Int => Arc::new(array.unary::<_, Int32Type>(|v| v as i32)),
            DataType::BigInt => Arc::new(array.unary::<_, Int64Type>(|v| v as i64)),
            DataType::Float => Arc::new(array.unary::<_, Float32Type>(|v| v as f32)),
            DataType::Double => Arc::new(array.clone()),
            DataType::Decimal(precision, scale) => {
                self.float_to_decimal(array, *precision, *scale)?
            }
            _ => return Err(self.unsupported()),
        })
    }

    /// The decimal of the shortest text that reads back as the DOUBLE, as Java's
    /// BigDecimal.valueOf. A FLOAT is widened first.
    fn float_to_decimal(&self, array: &Float64Array, precision: u8, scale: u8) -> Result<ArrayRef> {
        use std::fmt::Write;
        let mut out = PrimitiveBuilder::<Decimal128Type>::with_capacity(array.len());
        let mut buffer = String::new();
        for value in array {
            buffer.clear();
            let text = value.map(|value| {
                let _ = write!(buffer, "{value}");
                buffer.as_str()
            });
            let parsed = self.checked(text, |text| parse::decimal(text, precision, scale))?;
            out.append_option(parsed.and_then(|decimal| match decimal {
                parse::Decimal::Fits(value) => Some(value),
                parse::Decimal::Overflows => None,
            }));
        }
        Ok(Arc::new(out.finish().with_precision_and_scale(precision, scale as i8)?))
    }

    fn cast_decimal(&self, array: &ArrayRef, scale: u8) -> Result<ArrayRef> {
        let decimals = array.as_primitive::<Decimal128Type>();
        let power = decimal::power_of_ten(scale.into());
        let whole = |v: i128| (v / power) as i64;
        let real = |v: i128| {
            // A value of up to 15 digits and a power of up to 10^22 are exact, and so is their
            // quotient's rounding; longer ones go through text.
            if v.unsigned_abs() < 1 << 53 && scale <= 22 {
                return v as f64 / 10f64.powi(scale.into());
            }
            let mut text = String::new();
            text::append_decimal(&mut text, v, scale);
            text.parse().unwrap_or(f64::NAN)
        };
        Ok(match self.to {
            to if to.is_integer() => self.cast_integer(&decimals.unary(whole))?,
            to if to.is_float() => self.cast_float(&decimals.unary(real))?,
            DataType::Decimal(p, s) => {
                decimal::map(array, *p, *s, |v| decimal::rescale(v, scale, *p, *s))?
            }
            _ => return Err(self.unsupported()),
        })
    }

    fn number_to_boolean(&self, array: &ArrayRef) -> Result<ArrayRef> {
        let numbers = Cast { to: &DataType::Double, ..*self }.apply(array)?;
        let numbers = numbers.as_primitive::<Float64Type>();
        Ok(Arc::new(BooleanArray::from_unary(numbers, |v| v != 0.0)))
    }

    fn temporal(&self, array: &ArrayRef) -> Result<ArrayRef> {
        use DataType as T;
        match (self.from, self.to) {
            (T::Date, T::Timestamp(_) | T::TimestampLtz(_)) => {
                let per_ms = ticks_per_second(self.to) / 1_000;
                let instant = matches!(self.to, T::TimestampLtz(_));
                let ms = |days: i32| {
                    let local = i64::from(days) * DAY_MS;
                    if instant { to_instant(local, self.zone) } else { local }
                };
                let dates = array.as_primitive::<Date32Type>().values();
                self.checked_ticks(array, |row| ms(dates[row]).checked_mul(per_ms))
            }
            // A time of day is one of the first day of 1970.
            (T::Time(_), T::Timestamp(_) | T::TimestampLtz(_)) => {
                let per_ms = ticks_per_second(self.to) / 1_000;
                let instant = matches!(self.to, T::TimestampLtz(_));
                let ms = |ms: i64| if instant { to_instant(ms, self.zone) } else { ms };
                let times = array.as_primitive::<Time32MillisecondType>().values();
                self.checked_ticks(array, |row| ms(times[row].into()).checked_mul(per_ms))
            }
            (T::Timestamp(_) | T::TimestampLtz(_), _) => self.cast_timestamp(array),
            (T::Time(_), T::Time(_)) => Ok(array.clone()),
            (T::IntervalDayTime, T::BigInt) => {
                let spans = array.as_primitive::<DurationMillisecondType>();
                Ok(Arc::new(spans.unary::<_, Int64Type>(|v| v)))
            }
            (T::IntervalYearMonth, T::Int) => {
                let spans = array.as_primitive::<IntervalYearMonthType>();
                Ok(Arc::new(spans.unary::<_, Int32Type>(|v| v)))
            }
            (T::IntervalYearMonth, T::BigInt) => {
                let spans = array.as_primitive::<IntervalYearMonthType>();
                Ok(Arc::new(spans.unary::<_, Int64Type>(i64::from)))
            }
            (from, to) if from.arrow() == to.arrow() => Ok(array.clone()),
            _ => Err(self.unsupported()),
        }
    }

    fn cast_timestamp(&self, array: &ArrayRef) -> Result<ArrayRef> {
        let from_second = ticks_per_second(self.from);
        let per_ms = from_second / 1_000;
        let is_instant = matches!(self.from, DataType::TimestampLtz(_));
        let wall_ms = |tick: i64| {
            let ms = tick.div_euclid(per_ms);
            if is_instant { to_local(ms, self.zone) } else { ms }
        };
        let source = ticks(array.as_ref());
        let nulls = array.nulls().cloned();
        match self.to {
            DataType::Date => {
                let days = source.iter().map(|&t| wall_ms(t).div_euclid(DAY_MS) as i32).collect();
                Ok(Arc::new(PrimitiveArray::<Date32Type>::new(days, nulls)))
            }
            DataType::Time(_) => {
                let times = source.iter().map(|&t| wall_ms(t).rem_euclid(DAY_MS) as i32).collect();
                Ok(Arc::new(PrimitiveArray::<Time32MillisecondType>::new(times, nulls)))
            }
            DataType::Timestamp(precision) | DataType::TimestampLtz(precision) => {
                let to_instants = matches!(self.to, DataType::TimestampLtz(_));
                let zone = (is_instant != to_instants).then_some(self.zone);
                let shift = Shift { from_second, to_second: ticks_per_second(self.to), zone };
                let step = 10i64.pow(9 - u32::from((*precision).min(9)));
                let cut = step / (1_000_000_000 / shift.to_second);
                self.checked_ticks(array, |row| shift.apply(source[row], to_instants, cut.max(1)))
            }
            _ => Err(self.unsupported()),
        }
    }

    /// Timestamps from ticks. Where there is none, the time lies beyond what the type holds.
    fn checked_ticks(
        &self,
        array: &ArrayRef,
        tick: impl Fn(usize) -> Option<i64>,
    ) -> Result<ArrayRef> {
        let mut beyond = Vec::new();
        let mut values = Vec::with_capacity(array.len());
        for row in 0..array.len() {
            let tick = tick(row);
            if tick.is_none() && array.is_valid(row) {
                beyond.push(row);
            }
            values.push(tick.unwrap_or(0));
        }
        if beyond.is_empty() {
            return Ok(timestamps(values.into(), array.as_ref(), self.to));
        }
        if !self.safe {
            return Err(
                out_of_range(self.to).hint("TRY_CAST gives NULL where a value does not fit")
            );
        }
        let mut is_held = vec![true; array.len()];
        beyond.into_iter().for_each(|row| is_held[row] = false);
        let nulls = NullBuffer::union(array.nulls(), Some(&NullBuffer::from(is_held)));
        Ok(timestamps_with(values.into(), nulls, self.to))
    }
}

/// How ticks of one timestamp type become those of another.
struct Shift {
    from_second: i64,
    to_second: i64,
    /// The zone, where one side is an instant and the other a wall clock.
    zone: Option<Tz>,
}

impl Shift {
    /// `cut`: the result is a multiple of this many ticks, cut off. `None` where 64 bits end.
    fn apply(&self, tick: i64, to_instants: bool, cut: i64) -> Option<i64> {
        let per_ms = self.from_second / 1_000;
        let tick = match self.zone {
            None => tick,
            Some(zone) => {
                let (ms, below) = (tick.div_euclid(per_ms), tick.rem_euclid(per_ms));
                let moved = if to_instants { to_instant(ms, zone) } else { to_local(ms, zone) };
                moved.checked_mul(per_ms)?.checked_add(below)?
            }
        };
        let tick = if self.to_second >= self.from_second {
            tick.checked_mul(self.to_second / self.from_second)?
        } else {
            tick.div_euclid(self.from_second / self.to_second)
        };
        tick.div_euclid(cut).checked_mul(cut)
    }
}

fn narrow<N: TryFrom<i64>>(text: &str) -> Option<N> {
    N::try_from(parse::integer(text)?).ok()
}

fn boolean_to_int(array: &BooleanArray) -> ArrayRef {
    let ones: PrimitiveArray<Int32Type> = array.iter().map(|v| v.map(i32::from)).collect();
    Arc::new(ones)
}

/// The array with further NULLs.
fn with_nulls(array: &ArrayRef, nulls: Option<&NullBuffer>) -> Result<ArrayRef> {
    let nulls = NullBuffer::union(array.nulls(), nulls);
    Ok(make_array(array.to_data().into_builder().nulls(nulls).build()?))
}
