//! From columns to the bytes of records with a schema.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Time32MillisecondType, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Decimal128Array, Int8Array, Int16Array, MapArray,
    RecordBatch, StringViewArray,
};
use arrow_schema::{DataType as Arrow, TimeUnit};
use thalweg_core::{Column, DataType, Error, Result, TableSchema};

use super::schema::{Logical, Schema};

/// Appends a record per row, and `end` after each; `begin` before.
///
/// # Errors
/// If a column does not fit the schema, or a value does not.
pub fn write(
    schema: &Schema,
    out: &mut Vec<u8>,
    batch: &RecordBatch,
    columns: &TableSchema,
    begin: impl Fn(&mut Vec<u8>),
    mut end: impl FnMut(&mut Vec<u8>),
) -> Result<()> {
    let record = Form::record(schema, batch.columns(), &columns.columns)?;
    for row in 0..batch.num_rows() {
        begin(out);
        record.append(out, row)?;
        end(out);
    }
    Ok(())
}

/// A column that is ready to be written.
struct Values<'a> {
    array: &'a dyn Array,
    form: Form<'a>,
}

enum Form<'a> {
    Null,
    Boolean(&'a BooleanArray),
    TinyInt(&'a Int8Array),
    SmallInt(&'a Int16Array),
    Int(&'a [i32]),
    Long(&'a [i64]),
    /// Times, each multiplied and then divided.
    Time(&'a [i64], i64, i64),
    /// A time of day in milliseconds, as microseconds.
    TimeMicros(&'a [i32]),
    Float(&'a [f32]),
    Double(&'a [f64]),
    Text(&'a StringViewArray),
    Bytes(&'a BinaryArray),
    Fixed(&'a BinaryArray, usize),
    /// Unscaled, of this number of bytes if that is fixed.
    Decimal(&'a Decimal128Array, Option<usize>),
    Enum(&'a StringViewArray, &'a [String]),
    Array(&'a [i32], Box<Values<'a>>),
    Map(&'a MapArray, Box<Values<'a>>),
    Record(Vec<Values<'a>>),
    /// The numbers of the branches of NULL and of a value.
    Union(Option<i64>, i64, Box<Form<'a>>),
}

impl<'a> Values<'a> {
    fn new(schema: &'a Schema, array: &'a dyn Array, data_type: &'a DataType) -> Result<Self> {
        Ok(Values { array, form: Form::new(schema, array, data_type)? })
    }

    fn append(&self, out: &mut Vec<u8>, row: usize) -> Result<()> {
        match &self.form {
            Form::Union(null, value, form) => match (self.array.is_null(row), null) {
                (false, _) => {
                    long(out, *value);
                    form.append(out, row)
                }
                (true, Some(null)) => {
                    long(out, *null);
                    Ok(())
                }
                (true, None) => Err(null_value()),
            },
            Form::Null => Ok(()),
            _ if self.array.is_null(row) => Err(null_value()),
            form => form.append(out, row),
        }
    }
}

fn unfit(data_type: &DataType) -> Error {
    Error::plan(format!("the Avro schema does not fit {data_type}"))
}

fn null_value() -> Error {
    Error::data("a NULL where the Avro schema has none")
        .hint("declare the column without NOT NULL, or give it a schema that allows null")
}

impl<'a> Form<'a> {
    fn record(schema: &'a Schema, arrays: &'a [ArrayRef], columns: &'a [Column]) -> Result<Self> {
        let Schema::Record(fields) = schema else {
            return Err(Error::data("the schema is of no record"));
        };
        if let Some(column) = columns.iter().find(|c| !fields.iter().any(|f| f.name == c.name)) {
            return Err(Error::plan(format!(
                "the schema has no field {}, so values of this column would be lost",
                column.name
            )));
        }
        let values = fields.iter().map(|field| {
            let place = columns.iter().position(|column| column.name == field.name);
            let place = place.ok_or_else(|| {
                Error::plan(format!(
                    "the schema has a field {}, but the table does not",
                    field.name
                ))
            })?;
            Values::new(
                &field.schema,
                arrays[place].as_ref(),
                &columns[place].column_type.data_type,
            )
            .map_err(|e| Error::new(e.kind(), format!("column {}: {}", field.name, e.message())))
        });
        values.collect::<Result<_>>().map(Form::Record)
    }

    fn new(schema: &'a Schema, array: &'a dyn Array, data_type: &'a DataType) -> Result<Self> {
        let inner = |schema: &'a Schema, array: &'a dyn Array, data_type: &'a DataType| {
            Values::new(schema, array, data_type).map(Box::new)
        };
        Ok(match (schema, data_type) {
            (Schema::Union(branches), _) => return Form::union(branches, array, data_type),
            (Schema::Null, _) => Form::Null,
            (Schema::Boolean, DataType::Boolean) => Form::Boolean(array.as_boolean()),
            (Schema::Int(_) | Schema::Long(_), _) => Form::integer(schema, array, data_type)?,
            (Schema::Float, DataType::Float) => {
                Form::Float(array.as_primitive::<Float32Type>().values())
            }
            (Schema::Double, DataType::Double) => {
                Form::Double(array.as_primitive::<Float64Type>().values())
            }
            (Schema::Bytes(Logical::Decimal(_, scale)), DataType::Decimal(_, declared))
                if scale == declared =>
            {
                Form::Decimal(array.as_primitive::<Decimal128Type>(), None)
            }
            (Schema::Fixed(size, Logical::Decimal(_, scale)), DataType::Decimal(_, declared))
                if scale == declared =>
            {
                Form::Decimal(array.as_primitive::<Decimal128Type>(), Some(*size))
            }
            (Schema::String, other) if other.is_string() => Form::Text(array.as_string_view()),
            (Schema::Enum(words), other) if other.is_string() => {
                Form::Enum(array.as_string_view(), words)
            }
            (Schema::Bytes(_), other) if other.is_binary() => Form::Bytes(array.as_binary()),
            (Schema::Fixed(size, _), other) if other.is_binary() => {
                Form::Fixed(array.as_binary(), *size)
            }
            (Schema::Array(items), DataType::Array(element)) => {
                let list = array.as_list::<i32>();
                let values = inner(items, list.values().as_ref(), &element.data_type)?;
                Form::Array(list.offsets(), values)
            }
            (Schema::Map(values), DataType::Map(_, value)) => {
                let map = array.as_map();
                Form::Map(map, inner(values, map.values().as_ref(), &value.data_type)?)
            }
            (Schema::Record(_), DataType::Row(columns)) => {
                Form::record(schema, array.as_struct().columns(), columns)?
            }
            _ => return Err(unfit(data_type)),
        })
    }

    fn integer(schema: &Schema, array: &'a dyn Array, data_type: &DataType) -> Result<Self> {
        Ok(match (schema, data_type) {
            (Schema::Int(_) | Schema::Long(_), DataType::TinyInt) => {
                Form::TinyInt(array.as_primitive::<Int8Type>())
            }
            (Schema::Int(_) | Schema::Long(_), DataType::SmallInt) => {
                Form::SmallInt(array.as_primitive::<Int16Type>())
            }
            (Schema::Int(_) | Schema::Long(_), DataType::Int) => {
                Form::Int(array.as_primitive::<Int32Type>().values())
            }
            (Schema::Int(_), DataType::Date) => {
                Form::Int(array.as_primitive::<Date32Type>().values())
            }
            (Schema::Int(_), DataType::Time(_)) => {
                Form::Int(array.as_primitive::<Time32MillisecondType>().values())
            }
            (Schema::Long(Logical::TimeMicros), DataType::Time(_)) => {
                Form::TimeMicros(array.as_primitive::<Time32MillisecondType>().values())
            }
            (Schema::Long(_), DataType::BigInt) => {
                Form::Long(array.as_primitive::<Int64Type>().values())
            }
            (Schema::Long(logical), DataType::Timestamp(_) | DataType::TimestampLtz(_)) => {
                Form::time(*logical, array)?
            }
            _ => return Err(unfit(data_type)),
        })
    }

    fn time(logical: Logical, array: &'a dyn Array) -> Result<Self> {
        let Logical::Timestamp(written) = logical else {
            return Err(Error::plan("the Avro schema has no time there"));
        };
        let (values, stored): (&[i64], i64) = match array.data_type() {
            Arrow::Timestamp(TimeUnit::Microsecond, _) => {
                (array.as_primitive::<TimestampMicrosecondType>().values(), 1_000_000)
            }
            Arrow::Timestamp(TimeUnit::Nanosecond, _) => {
                (array.as_primitive::<TimestampNanosecondType>().values(), 1_000_000_000)
            }
            _ => (array.as_primitive::<TimestampMillisecondType>().values(), 1_000),
        };
        let by = (written / stored).max(1);
        Ok(Form::Time(values, by, (stored / written).max(1)))
    }

    /// NULL in the branch of null, and values in the first other one that fits.
    fn union(
        branches: &'a [Schema],
        array: &'a dyn Array,
        data_type: &'a DataType,
    ) -> Result<Self> {
        let null = branches.iter().position(|branch| *branch == Schema::Null);
        let values = branches.iter().enumerate().filter(|(_, branch)| **branch != Schema::Null);
        let mut fitting = values.filter_map(|(number, branch)| {
            Some((number, Form::new(branch, array, data_type).ok()?))
        });
        let (number, form) = fitting.next().ok_or_else(|| unfit(data_type))?;
        Ok(Form::Union(null.map(|null| null as i64), number as i64, Box::new(form)))
    }

    /// Appends the value of a row that is not NULL.
    fn append(&self, out: &mut Vec<u8>, row: usize) -> Result<()> {
        match self {
            Form::Null | Form::Union(..) => {}
            Form::Boolean(array) => out.push(u8::from(array.value(row))),
            Form::TinyInt(array) => long(out, i64::from(array.value(row))),
            Form::SmallInt(array) => long(out, i64::from(array.value(row))),
            Form::Int(values) => long(out, i64::from(values[row])),
            Form::Long(values) => long(out, values[row]),
            Form::Time(values, by, through) => {
                let time = values[row].checked_mul(*by);
                let time = time.ok_or_else(|| Error::data("a time is out of Avro's range"))?;
                long(out, time.div_euclid(*through));
            }
            Form::TimeMicros(values) => long(out, i64::from(values[row]) * 1_000),
            Form::Float(values) => out.extend(values[row].to_le_bytes()),
            Form::Double(values) => out.extend(values[row].to_le_bytes()),
            Form::Text(array) => sized(out, array.value(row).as_bytes()),
            Form::Bytes(array) => sized(out, array.value(row)),
            Form::Fixed(array, size) => {
                let value = array.value(row);
                if value.len() != *size {
                    let message = format!("{} bytes where the schema has {size}", value.len());
                    return Err(Error::data(message));
                }
                out.extend_from_slice(value);
            }
            Form::Decimal(array, size) => decimal(out, array.value(row), *size)?,
            Form::Enum(array, words) => {
                let word = words.iter().position(|word| word == array.value(row));
                let word = word.ok_or_else(|| {
                    Error::data(format!("'{}' is no symbol of the Avro enum", array.value(row)))
                })?;
                long(out, word as i64);
            }
            Form::Array(offsets, values) => {
                let (begin, end) = (offsets[row] as usize, offsets[row + 1] as usize);
                elements(out, begin, end, |out, at| values.append(out, at))?;
            }
            Form::Map(map, values) => {
                let keys = map.keys().as_string_view();
                let offsets = map.offsets();
                let (begin, end) = (offsets[row] as usize, offsets[row + 1] as usize);
                elements(out, begin, end, |out, at| {
                    sized(out, keys.value(at).as_bytes());
                    values.append(out, at)
                })?;
            }
            Form::Record(fields) => {
                fields.iter().try_for_each(|field| field.append(out, row))?;
            }
        }
        Ok(())
    }
}

/// One block, and the empty one that ends them.
fn elements(
    out: &mut Vec<u8>,
    begin: usize,
    end: usize,
    append: impl Fn(&mut Vec<u8>, usize) -> Result<()>,
) -> Result<()> {
    if end > begin {
        long(out, (end - begin) as i64);
        (begin..end).try_for_each(|at| append(out, at))?;
    }
    long(out, 0);
    Ok(())
}

/// Appends a number in zigzag form.
#[inline]
pub fn long(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest > 0x7F {
        out.push((rest as u8 & 0x7F) | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn sized(out: &mut Vec<u8>, bytes: &[u8]) {
    long(out, bytes.len() as i64);
    out.extend_from_slice(bytes);
}

/// The number in two's complement: as short as it can be, or of this number of bytes.
fn decimal(out: &mut Vec<u8>, value: i128, size: Option<usize>) -> Result<()> {
    let bytes = value.to_be_bytes();
    let sign = if value < 0 { 0xFF } else { 0 };
    let redundant =
        (0..15).take_while(|&at| bytes[at] == sign && (bytes[at + 1] & 0x80 == 0) == (sign == 0));
    let short = &bytes[redundant.count()..];
    match size {
        None => sized(out, short),
        Some(size) if size < short.len() => {
            return Err(Error::data("a DECIMAL has too many digits for the Avro schema"));
        }
        Some(size) => {
            out.extend(std::iter::repeat_n(sign, size - short.len()));
            out.extend_from_slice(short);
        }
    }
    Ok(())
}
