//! Columns that grow value by value: what decoders of records write into.
//!
//! A decoder appends to each column of a record and removes nothing: where a record turns out to
//! be bad in the middle, [`ColumnBuilder::fill`] completes its columns with anything, and the row
//! is left out at the end ([`super::records`]). Values are the numbers and bytes of Arrow's arrays
//! from the start, so that finishing copies nothing.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, StringViewBuilder};
use arrow_array::types::{
    Date32Type, Decimal128Type, DurationMillisecondType, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, IntervalYearMonthType, Time32MillisecondType,
};
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BooleanArray, ListArray, MapArray, PrimitiveArray, StructArray,
};
use arrow_buffer::{
    BooleanBufferBuilder, NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer,
};
use arrow_schema::DataType as Arrow;
use thalweg_core::types::timestamps;
use thalweg_core::{Column, ColumnType, DataType, Error, Result};

use super::bad_data::BadFields;

/// A column, or a part of the values of one.
pub struct ColumnBuilder {
    data_type: DataType,
    nullable: bool,
    /// Which values are NULL, but for text and bytes, whose builders know it.
    nulls: NullBufferBuilder,
    /// The values; of those that are NULL, anything.
    pub values: Values,
}

/// The values of a column, by its type.
pub enum Values {
    /// `BOOLEAN`
    Boolean(BooleanBufferBuilder),
    /// `TINYINT`
    TinyInt(Vec<i8>),
    /// `SMALLINT`
    SmallInt(Vec<i16>),
    /// `INT`
    Int(Vec<i32>),
    /// `BIGINT`
    BigInt(Vec<i64>),
    /// `FLOAT`
    Float(Vec<f32>),
    /// `DOUBLE`
    Double(Vec<f64>),
    /// `DECIMAL`: precision, scale, unscaled values.
    Decimal(u8, u8, Vec<i128>),
    /// `CHAR`, `VARCHAR`
    Text(StringViewBuilder),
    /// `BINARY`, `VARBINARY`
    Bytes(BinaryBuilder),
    /// `DATE`: days.
    Date(Vec<i32>),
    /// `TIME`: precision, milliseconds.
    Time(u8, Vec<i32>),
    /// `TIMESTAMP`, `TIMESTAMP_LTZ`: precision, whether it is an instant, and times in the unit in
    /// which this precision is stored.
    Timestamp(u8, bool, Vec<i64>),
    /// `INTERVAL YEAR TO MONTH`
    Months(Vec<i32>),
    /// `INTERVAL DAY TO SECOND`
    Millis(Vec<i64>),
    /// `ARRAY`: where each ends, and their elements.
    Array(Vec<usize>, Box<ColumnBuilder>),
    /// `MAP`: where each ends, and their keys and values.
    Map(Vec<usize>, Box<ColumnBuilder>, Box<ColumnBuilder>),
    /// `ROW`
    Row(Vec<Field>),
}

/// A named part of a record or of a ROW.
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its values.
    pub column: ColumnBuilder,
    /// The rows in which it was not there at all, where that is asked for.
    pub missing: Option<Vec<usize>>,
}

impl Field {
    /// The fields of a ROW, or of a record.
    ///
    /// # Errors
    /// As [`ColumnBuilder::new`].
    pub fn of<'c>(columns: impl IntoIterator<Item = &'c Column>) -> Result<Vec<Field>> {
        let field = |column: &Column| {
            let values = ColumnBuilder::new(&column.column_type)?;
            Ok(Field { name: column.name.clone(), column: values, missing: None })
        };
        columns.into_iter().map(field).collect()
    }
}

/// The columns of a record, none of which refuses NULL: what is declared NOT NULL is checked when
/// all are complete.
pub fn record<'c>(columns: impl IntoIterator<Item = &'c Column>) -> Result<Vec<Field>> {
    let mut fields = Field::of(columns)?;
    fields.iter_mut().for_each(|field| field.column.nullable = true);
    Ok(fields)
}

/// The columns of a block of records. A NULL in one that is declared NOT NULL makes a bad row.
///
/// # Errors
/// As [`ColumnBuilder::finish`].
pub fn finish(
    fields: Vec<Field>,
    columns: &[&Column],
    bad: &mut BadFields,
) -> Result<Vec<ArrayRef>> {
    let finished = fields.into_iter().zip(columns).enumerate().map(|(slot, (field, column))| {
        let values = field.column.finish()?;
        bad.begin_at(slot, column);
        bad.refuse_nulls(&values, column);
        Ok(values)
    });
    finished.collect()
}

impl ColumnBuilder {
    /// An empty column of this type.
    ///
    /// # Errors
    /// If there are no values of the type.
    pub fn new(column_type: &ColumnType) -> Result<Self> {
        let data_type = column_type.data_type.clone();
        let inner = |inner: &ColumnType| ColumnBuilder::new(inner).map(Box::new);
        let values = match &data_type {
            DataType::Null => return Err(Error::internal("a column of bare NULLs")),
            DataType::Variant => return Err(Error::unsupported("no source has a VARIANT")),
            DataType::Boolean => Values::Boolean(BooleanBufferBuilder::new(0)),
            DataType::TinyInt => Values::TinyInt(Vec::new()),
            DataType::SmallInt => Values::SmallInt(Vec::new()),
            DataType::Int => Values::Int(Vec::new()),
            DataType::BigInt => Values::BigInt(Vec::new()),
            DataType::Float => Values::Float(Vec::new()),
            DataType::Double => Values::Double(Vec::new()),
            DataType::Decimal(precision, scale) => Values::Decimal(*precision, *scale, Vec::new()),
            DataType::Char(_) | DataType::Varchar(_) => Values::Text(StringViewBuilder::new()),
            DataType::Binary(_) | DataType::Varbinary(_) => Values::Bytes(BinaryBuilder::new()),
            DataType::Date => Values::Date(Vec::new()),
            DataType::Time(precision) => Values::Time(*precision, Vec::new()),
            DataType::Timestamp(precision) => Values::Timestamp(*precision, false, Vec::new()),
            DataType::TimestampLtz(precision) => Values::Timestamp(*precision, true, Vec::new()),
            DataType::IntervalYearMonth => Values::Months(Vec::new()),
            DataType::IntervalDayTime => Values::Millis(Vec::new()),
            DataType::Array(element) => Values::Array(Vec::new(), inner(element)?),
            DataType::Map(key, value) => {
                let key = key.as_ref().clone().with_nullable(false);
                Values::Map(Vec::new(), inner(&key)?, inner(value)?)
            }
            DataType::Row(columns) => Values::Row(Field::of(columns)?),
        };
        let (nullable, nulls) = (column_type.nullable, NullBufferBuilder::new(0));
        Ok(ColumnBuilder { data_type, nullable, nulls, values })
    }

    /// The type of its values.
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// True if NULL is a value.
    pub fn is_nullable(&self) -> bool {
        self.nullable
    }

    /// How many values it has.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.values {
            Values::Text(values) => arrow_array::builder::ArrayBuilder::len(values),
            Values::Bytes(values) => arrow_array::builder::ArrayBuilder::len(values),
            _ => self.nulls.len(),
        }
    }

    /// The value that was appended to [`ColumnBuilder::values`] is not NULL. Text and bytes need
    /// no such call.
    #[inline]
    pub fn appended(&mut self) {
        self.nulls.append_non_null();
    }

    /// NULL; where the type does not allow it, its first value (0, FALSE, nothing), which the
    /// caller reports.
    pub fn append_null(&mut self) {
        let is_null = self.nullable;
        match &mut self.values {
            Values::Text(values) if is_null => return values.append_null(),
            Values::Text(values) => return values.append_value(""),
            Values::Bytes(values) if is_null => return values.append_null(),
            Values::Bytes(values) => return values.append_value([]),
            Values::Boolean(values) => values.append(false),
            Values::TinyInt(values) => values.push(0),
            Values::SmallInt(values) => values.push(0),
            Values::Int(values)
            | Values::Date(values)
            | Values::Time(_, values)
            | Values::Months(values) => values.push(0),
            Values::BigInt(values) | Values::Timestamp(_, _, values) | Values::Millis(values) => {
                values.push(0);
            }
            Values::Float(values) => values.push(0.0),
            Values::Double(values) => values.push(0.0),
            Values::Decimal(_, _, values) => values.push(0),
            Values::Array(ends, element) => ends.push(element.len()),
            Values::Map(ends, key, _) => ends.push(key.len()),
            Values::Row(fields) => {
                fields.iter_mut().for_each(|field| field.column.append_null());
            }
        }
        self.nulls.append(!is_null);
    }

    /// Completes the column to this many values, whatever was appended in part.
    pub fn fill(&mut self, rows: usize) {
        self.settle();
        while self.len() < rows {
            self.append_null();
        }
    }

    /// Makes parts that belong together equally long, and returns how long that is. Elements that
    /// belong to no value get one, so that they do not become part of the next.
    fn settle(&mut self) -> usize {
        let has_rest = match &mut self.values {
            Values::Array(ends, element) => element.settle() > last(ends),
            Values::Map(ends, key, value) => {
                let entries = key.settle().max(value.settle());
                key.fill(entries);
                value.fill(entries);
                entries > last(ends)
            }
            Values::Row(fields) => {
                let lengths = fields.iter_mut().map(|field| field.column.settle());
                let rows = lengths.max().unwrap_or(0).max(self.nulls.len());
                fields.iter_mut().for_each(|field| field.column.fill(rows));
                while self.nulls.len() < rows {
                    self.nulls.append(!self.nullable);
                }
                false
            }
            _ => false,
        };
        if has_rest {
            self.append_null();
        }
        self.len()
    }

    /// The values as an array.
    ///
    /// # Errors
    /// If they are more than an array can hold.
    pub fn finish(mut self) -> Result<ArrayRef> {
        let rows = self.len();
        let (nulls, data_type) = (self.nulls.finish(), &self.data_type);
        Ok(match self.values {
            Values::Boolean(mut values) => Arc::new(BooleanArray::new(values.finish(), nulls)),
            Values::TinyInt(values) => primitive::<Int8Type>(values, nulls),
            Values::SmallInt(values) => primitive::<Int16Type>(values, nulls),
            Values::Int(values) => primitive::<Int32Type>(values, nulls),
            Values::BigInt(values) => primitive::<Int64Type>(values, nulls),
            Values::Float(values) => primitive::<Float32Type>(values, nulls),
            Values::Double(values) => primitive::<Float64Type>(values, nulls),
            Values::Decimal(precision, scale, values) => {
                let array = PrimitiveArray::<Decimal128Type>::new(values.into(), nulls);
                Arc::new(array.with_precision_and_scale(precision, scale as i8)?)
            }
            Values::Text(mut values) => Arc::new(values.finish()),
            Values::Bytes(mut values) => Arc::new(values.finish()),
            Values::Date(values) => primitive::<Date32Type>(values, nulls),
            Values::Time(_, values) => primitive::<Time32MillisecondType>(values, nulls),
            Values::Timestamp(precision, is_instant, values) => {
                let values = PrimitiveArray::<Int64Type>::new(values.into(), nulls);
                timestamps(&values, precision, is_instant)
            }
            Values::Months(values) => primitive::<IntervalYearMonthType>(values, nulls),
            Values::Millis(values) => primitive::<DurationMillisecondType>(values, nulls),
            Values::Array(ends, element) => {
                let Arrow::List(item) = data_type.arrow() else {
                    return Err(Error::internal("ARRAY is not a list"));
                };
                Arc::new(ListArray::try_new(item, offsets(ends)?, element.finish()?, nulls)?)
            }
            Values::Map(ends, key, value) => {
                map(data_type, offsets(ends)?, vec![key.finish()?, value.finish()?], nulls)?
            }
            Values::Row(fields) => {
                let Arrow::Struct(types) = data_type.arrow() else {
                    return Err(Error::internal("ROW is not a struct"));
                };
                let arrays = fields.into_iter().map(|field| field.column.finish());
                let arrays = arrays.collect::<Result<Vec<_>>>()?;
                if arrays.is_empty() {
                    return Ok(Arc::new(StructArray::new_empty_fields(rows, nulls)));
                }
                Arc::new(StructArray::try_new(types, arrays, nulls)?)
            }
        })
    }
}

fn primitive<T: ArrowPrimitiveType>(
    values: impl Into<ScalarBuffer<T::Native>>,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(values.into(), nulls))
}

fn last(ends: &[usize]) -> usize {
    ends.last().copied().unwrap_or(0)
}

fn offsets(ends: Vec<usize>) -> Result<OffsetBuffer<i32>> {
    let mut offsets = Vec::with_capacity(ends.len() + 1);
    offsets.push(0);
    for end in ends {
        let end = i32::try_from(end);
        offsets.push(end.map_err(|_| Error::resource("a block with more than 2^31 elements"))?);
    }
    Ok(OffsetBuffer::new(offsets.into()))
}

fn map(
    data_type: &DataType,
    offsets: OffsetBuffer<i32>,
    columns: Vec<ArrayRef>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let Arrow::Map(entry, _) = data_type.arrow() else {
        return Err(Error::internal("MAP is not a map"));
    };
    let Arrow::Struct(fields) = entry.data_type() else {
        return Err(Error::internal("a map has no entries"));
    };
    let entries = StructArray::try_new(fields.clone(), columns, None)?;
    Ok(Arc::new(MapArray::try_new(entry, offsets, entries, nulls, false)?))
}
