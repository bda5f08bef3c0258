//! Values of columns as Python's own, and back.
//!
//! Both ways go column by column: the type is looked at once, not for each value.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, DurationMillisecondType, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, IntervalYearMonthType, Time32MillisecondType,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, ListArray, NullArray,
    PrimitiveArray, RecordBatch, StringViewArray, StructArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType as Arrow, Field, IntervalUnit, TimeUnit};
use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Timelike, Utc};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use thalweg::DataType;

type Values<'py> = Vec<Bound<'py, PyAny>>;

/// The rows of a batch as tuples, at the end of a list.
pub fn rows_of<'py>(
    py: Python<'py>,
    batch: &RecordBatch,
    list: &Bound<'py, PyList>,
) -> PyResult<()> {
    let columns = batch.columns().iter().map(|column| column_values(py, column));
    let mut columns: Vec<_> =
        columns.map(|values| values.map(Vec::into_iter)).collect::<PyResult<_>>()?;
    for _ in 0..batch.num_rows() {
        list.append(PyTuple::new(
            py,
            columns.iter_mut().filter_map(Iterator::next).collect::<Vec<_>>(),
        )?)?;
    }
    Ok(())
}

/// The values of a column.
pub fn column_values<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Values<'py>> {
    match array.data_type() {
        Arrow::Boolean => each(py, array.as_boolean().iter()),
        Arrow::Int8 => each(py, array.as_primitive::<Int8Type>().iter()),
        Arrow::Int16 => each(py, array.as_primitive::<Int16Type>().iter()),
        Arrow::Int32 => each(py, array.as_primitive::<Int32Type>().iter()),
        Arrow::Int64 => each(py, array.as_primitive::<Int64Type>().iter()),
        Arrow::Float32 => each(py, array.as_primitive::<Float32Type>().iter()),
        Arrow::Float64 => each(py, array.as_primitive::<Float64Type>().iter()),
        Arrow::Utf8View => each(py, array.as_string_view().iter()),
        Arrow::Binary => {
            let bytes = array.as_binary::<i32>().iter();
            each(py, bytes.map(|value| value.map(|value| PyBytes::new(py, value))))
        }
        Arrow::Decimal128(..) => decimals(py, array),
        Arrow::Date32 => {
            let days = array.as_primitive::<Date32Type>();
            each(
                py,
                (0..days.len()).map(|row| valid(days, row).and_then(|_| days.value_as_date(row))),
            )
        }
        Arrow::Time32(TimeUnit::Millisecond) => {
            let times = array.as_primitive::<Time32MillisecondType>();
            each(
                py,
                (0..times.len())
                    .map(|row| valid(times, row).and_then(|_| times.value_as_time(row))),
            )
        }
        Arrow::Timestamp(unit, zone) => timestamps(py, array, *unit, zone.is_some()),
        Arrow::Duration(TimeUnit::Millisecond) => {
            let durations = array.as_primitive::<DurationMillisecondType>().iter();
            each(py, durations.map(|value| value.and_then(TimeDelta::try_milliseconds)))
        }
        Arrow::Interval(IntervalUnit::YearMonth) => {
            each(py, array.as_primitive::<IntervalYearMonthType>().iter())
        }
        Arrow::List(_) => lists(py, array),
        Arrow::Map(..) => maps(py, array),
        Arrow::Struct(_) => structs(py, array),
        Arrow::Null => each(py, (0..array.len()).map(|_| None::<bool>)),
        other => Err(PyTypeError::new_err(format!("values of {other} have no form in Python"))),
    }
}

fn each<'py, T: IntoPyObject<'py>>(
    py: Python<'py>,
    values: impl Iterator<Item = Option<T>>,
) -> PyResult<Values<'py>> {
    let none = || py.None().into_bound(py);
    let one = |value: Option<T>| match value {
        None => Ok(none()),
        Some(value) => value.into_bound_py_any(py),
    };
    values.map(one).collect()
}

fn valid(array: &dyn Array, row: usize) -> Option<()> {
    array.is_valid(row).then_some(())
}

fn decimals<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Values<'py>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let class = CLASS.get_or_try_init(py, || {
        Ok::<_, PyErr>(py.import("decimal")?.getattr("Decimal")?.unbind())
    })?;
    let values = array.as_primitive::<Decimal128Type>();
    let one = |row: usize| match values.is_valid(row) {
        false => Ok(py.None().into_bound(py)),
        true => class.bind(py).call1((values.value_as_string(row),)),
    };
    (0..values.len()).map(one).collect()
}

fn timestamps<'py>(
    py: Python<'py>,
    array: &ArrayRef,
    unit: TimeUnit,
    is_instant: bool,
) -> PyResult<Values<'py>> {
    fn readings<'a, T: ArrowPrimitiveType<Native = i64>>(
        array: &'a PrimitiveArray<T>,
        units_per_second: i64,
    ) -> impl Iterator<Item = Option<NaiveDateTime>> + 'a {
        let nanos = 1_000_000_000 / units_per_second;
        array.iter().map(move |value| {
            let value = value?;
            let rest = value.rem_euclid(units_per_second) * nanos;
            let rest = u32::try_from(rest).ok()?;
            Some(
                DateTime::<Utc>::from_timestamp(value.div_euclid(units_per_second), rest)?
                    .naive_utc(),
            )
        })
    }
    let readings: Vec<Option<NaiveDateTime>> = match unit {
        TimeUnit::Millisecond => {
            readings(array.as_primitive::<TimestampMillisecondType>(), 1_000).collect()
        }
        TimeUnit::Microsecond => {
            readings(array.as_primitive::<TimestampMicrosecondType>(), 1_000_000).collect()
        }
        TimeUnit::Nanosecond => {
            readings(array.as_primitive::<TimestampNanosecondType>(), 1_000_000_000).collect()
        }
        TimeUnit::Second => {
            return Err(PyTypeError::new_err("timestamps have milliseconds at least"));
        }
    };
    // Python has microseconds.
    let cut = |time: NaiveDateTime| {
        time.with_nanosecond(time.nanosecond() / 1_000 * 1_000).unwrap_or(time)
    };
    let readings = readings.into_iter().map(|time| time.map(cut));
    match is_instant {
        false => each(py, readings),
        true => each(py, readings.map(|time| time.map(|time| time.and_utc()))),
    }
}

fn lists<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Values<'py>> {
    let lists = array.as_list::<i32>();
    let one = |row: usize| match lists.is_valid(row) {
        false => Ok(py.None().into_bound(py)),
        true => Ok(PyList::new(py, column_values(py, &lists.value(row))?)?.into_any()),
    };
    (0..lists.len()).map(one).collect()
}

fn maps<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Values<'py>> {
    let maps = array.as_map();
    let one = |row: usize| {
        if maps.is_null(row) {
            return Ok(py.None().into_bound(py));
        }
        let (entries, dict) = (maps.value(row), PyDict::new(py));
        let keys = column_values(py, entries.column(0))?;
        for (key, value) in keys.into_iter().zip(column_values(py, entries.column(1))?) {
            dict.set_item(key, value)?;
        }
        Ok(dict.into_any())
    };
    (0..maps.len()).map(one).collect()
}

fn structs<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Values<'py>> {
    let structs = array.as_struct();
    let names: Vec<Bound<'py, PyString>> =
        structs.fields().iter().map(|field| PyString::new(py, field.name())).collect();
    let columns = structs.columns().iter().map(|column| column_values(py, column));
    let mut columns: Vec<_> =
        columns.map(|values| values.map(Vec::into_iter)).collect::<PyResult<_>>()?;
    let one = |row: usize| {
        let dict = PyDict::new(py);
        for (name, column) in names.iter().zip(&mut columns) {
            dict.set_item(name, column.next())?;
        }
        Ok(if structs.is_valid(row) { dict.into_any() } else { py.None().into_bound(py) })
    };
    (0..structs.len()).map(one).collect()
}

/// A column of a type from values of Python. The error names the row.
pub fn column_of(
    values: &[Bound<'_, PyAny>],
    data_type: &DataType,
) -> Result<ArrayRef, (usize, PyErr)> {
    Ok(match data_type {
        DataType::Null => Arc::new(NullArray::new(values.len())),
        DataType::Boolean => Arc::new(BooleanArray::from(extracted::<bool>(values)?)),
        DataType::TinyInt => primitives::<Int8Type>(values)?,
        DataType::SmallInt => primitives::<Int16Type>(values)?,
        DataType::Int => primitives::<Int32Type>(values)?,
        DataType::BigInt => primitives::<Int64Type>(values)?,
        DataType::Float => primitives::<Float32Type>(values)?,
        DataType::Double => primitives::<Float64Type>(values)?,
        DataType::Char(_) | DataType::Varchar(_) | DataType::Variant => texts(values)?,
        DataType::Binary(_) | DataType::Varbinary(_) => {
            Arc::new(BinaryArray::from_iter(extracted::<Vec<u8>>(values)?))
        }
        DataType::Decimal(precision, scale) => decimals_of(values, *precision, *scale)?,
        DataType::Date => {
            let epoch = NaiveDate::default();
            let days = |date: NaiveDate| (date - epoch).num_days() as i32;
            converted::<Date32Type, NaiveDate>(values, days)?
        }
        DataType::Time(_) => converted::<Time32MillisecondType, NaiveTime>(values, |time| {
            (time.num_seconds_from_midnight() * 1_000 + time.nanosecond() / 1_000_000) as i32
        })?,
        DataType::Timestamp(precision) => {
            timestamps_of(extracted::<NaiveDateTime>(values)?, *precision, false)
        }
        DataType::TimestampLtz(precision) => {
            let instants = extracted::<DateTime<Utc>>(values)?;
            let readings = instants.into_iter().map(|time| time.map(|time| time.naive_utc()));
            timestamps_of(readings.collect(), *precision, true)
        }
        DataType::IntervalDayTime => {
            converted::<DurationMillisecondType, TimeDelta>(values, |delta| {
                delta.num_milliseconds()
            })?
        }
        DataType::IntervalYearMonth => primitives::<IntervalYearMonthType>(values)?,
        DataType::Array(item) => lists_of(values, &item.data_type, item.nullable)?,
        DataType::Row(columns) => rows_from(values, columns)?,
        DataType::Map(..) => {
            return Err((0, PyTypeError::new_err("a MAP cannot be returned row by row")));
        }
    })
}

fn extracted<T: for<'a, 'py> FromPyObject<'a, 'py, Error: Into<PyErr>>>(
    values: &[Bound<'_, PyAny>],
) -> Result<Vec<Option<T>>, (usize, PyErr)> {
    let one = |(row, value): (usize, &Bound<'_, PyAny>)| match value.is_none() {
        true => Ok(None),
        false => value.extract::<T>().map(Some).map_err(|error| (row, error.into())),
    };
    values.iter().enumerate().map(one).collect()
}

fn primitives<T: ArrowPrimitiveType>(
    values: &[Bound<'_, PyAny>],
) -> Result<ArrayRef, (usize, PyErr)>
where
    T::Native: for<'a, 'py> FromPyObject<'a, 'py, Error: Into<PyErr>>,
{
    Ok(Arc::new(PrimitiveArray::<T>::from_iter(extracted::<T::Native>(values)?)))
}

fn converted<T, V>(
    values: &[Bound<'_, PyAny>],
    of: impl Fn(V) -> T::Native,
) -> Result<ArrayRef, (usize, PyErr)>
where
    T: ArrowPrimitiveType,
    V: for<'a, 'py> FromPyObject<'a, 'py, Error: Into<PyErr>>,
{
    let values = extracted::<V>(values)?.into_iter().map(|value| value.map(&of));
    Ok(Arc::new(PrimitiveArray::<T>::from_iter(values)))
}

fn texts(values: &[Bound<'_, PyAny>]) -> Result<ArrayRef, (usize, PyErr)> {
    let one = |(row, value): (usize, &Bound<'_, PyAny>)| match value.is_none() {
        true => Ok(None),
        false => value
            .extract::<std::borrow::Cow<'_, str>>()
            .map(|text| Some(text.into_owned()))
            .map_err(|e| (row, e)),
    };
    let texts = values.iter().enumerate().map(one).collect::<Result<Vec<_>, _>>()?;
    Ok(Arc::new(texts.into_iter().collect::<StringViewArray>()))
}

fn decimals_of(
    values: &[Bound<'_, PyAny>],
    precision: u8,
    scale: u8,
) -> Result<ArrayRef, (usize, PyErr)> {
    let one = |(row, value): (usize, &Bound<'_, PyAny>)| {
        if value.is_none() {
            return Ok(None);
        }
        let text = value.str().map_err(|error| (row, error))?.to_string();
        let wrong =
            |error: arrow_schema::ArrowError| (row, PyValueError::new_err(error.to_string()));
        arrow_cast::parse::parse_decimal::<Decimal128Type>(&text, precision, scale as i8)
            .map(Some)
            .map_err(wrong)
    };
    let values = values.iter().enumerate().map(one).collect::<Result<Vec<_>, _>>()?;
    let array = PrimitiveArray::<Decimal128Type>::from_iter(values);
    let array = array.with_precision_and_scale(precision, scale as i8);
    Ok(Arc::new(array.map_err(|error| (0, PyValueError::new_err(error.to_string())))?))
}

fn timestamps_of(
    readings: Vec<Option<NaiveDateTime>>,
    precision: u8,
    is_instant: bool,
) -> ArrayRef {
    let micros: arrow_array::Int64Array = readings
        .into_iter()
        .map(|time| time.map(|time| time.and_utc().timestamp_micros()))
        .collect();
    let scaled: arrow_array::Int64Array = match precision {
        0..=3 => micros.unary(|micros| micros.div_euclid(1_000)),
        4..=6 => micros,
        _ => micros.unary(|micros| micros.saturating_mul(1_000)),
    };
    thalweg_core::types::timestamps(&scaled, precision, is_instant)
}

fn lists_of(
    values: &[Bound<'_, PyAny>],
    item: &DataType,
    nullable: bool,
) -> Result<ArrayRef, (usize, PyErr)> {
    let (mut items, mut lengths) = (Vec::new(), Vec::with_capacity(values.len()));
    for (row, value) in values.iter().enumerate() {
        let before = items.len();
        if !value.is_none() {
            for item in value.try_iter().map_err(|error| (row, error))? {
                items.push(item.map_err(|error| (row, error))?);
            }
        }
        lengths.push(items.len() - before);
    }
    let nulls: NullBuffer = values.iter().map(|value| !value.is_none()).collect();
    // A mistake in an item is one of its row.
    let row_of = |position: usize| {
        let ends = lengths.iter().scan(0, |end, length| {
            *end += length;
            Some(*end)
        });
        ends.take_while(|&end| end <= position).count()
    };
    let items = column_of(&items, item).map_err(|(position, error)| (row_of(position), error))?;
    let field = Arc::new(Field::new("item", item.arrow(), nullable));
    let list = ListArray::try_new(
        field,
        OffsetBuffer::from_lengths(lengths.iter().copied()),
        items,
        Some(nulls),
    );
    Ok(Arc::new(list.map_err(|error| (0, PyValueError::new_err(error.to_string())))?))
}

fn rows_from(
    values: &[Bound<'_, PyAny>],
    columns: &[thalweg::Column],
) -> Result<ArrayRef, (usize, PyErr)> {
    let mut fields: Vec<Values<'_>> =
        columns.iter().map(|_| Vec::with_capacity(values.len())).collect();
    for (row, value) in values.iter().enumerate() {
        for (number, (field, column)) in fields.iter_mut().zip(columns).enumerate() {
            let py = value.py();
            let part = match (value.is_none(), value.cast::<PyTuple>(), value.cast::<PyDict>()) {
                (true, ..) => Ok(py.None().into_bound(py)),
                (_, Ok(tuple), _) => tuple.get_item(number),
                (_, _, Ok(dict)) => dict.as_any().get_item(&column.name),
                _ => value.getattr(column.name.as_str()),
            };
            field.push(part.map_err(|error| (row, error))?);
        }
    }
    let nulls: NullBuffer = values.iter().map(|value| !value.is_none()).collect();
    let arrays = fields
        .iter()
        .zip(columns)
        .map(|(field, column)| column_of(field, &column.column_type.data_type));
    let arrays = arrays.collect::<Result<Vec<_>, _>>()?;
    let fields = columns.iter().map(|column| column.column_type.field(&column.name)).collect();
    let rows = StructArray::try_new(fields, arrays, Some(nulls));
    Ok(Arc::new(rows.map_err(|error| (0, PyValueError::new_err(error.to_string())))?))
}
